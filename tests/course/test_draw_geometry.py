"""Figures, read back: what stands where, and which shade it has, says the numbers that went in."""

import math
import re
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("matplotlib")
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch.testing import assert_close

from tests.course.figures import TITLE, VOCABULARY, WORDS, figure, texts, waves
from twelve_lab import draw
from twelve_lab.draw import Drawing
from twelve_lab.draw.canvas import SMALL_SIZE
from twelve_lab.draw.faces import ROOM
from twelve_lab.draw.storage import PER_LINE
from twelve_lab.show.format import cell_text
from twelve_lab.show.palette import CURVE_STYLES, QUIET, SPOTLIGHT, axis_style

NUMBERS = torch.tensor([[0.5, -1.0, 0.25, 4.0], [-0.5, 2.0, 0.0, -4.0], [1.5, -2.0, 3.0, 0.75]])
ROWS, COLUMNS = ["red", "green", "blue"], ["north", "east", "south", "west"]


def spots(drawing: Drawing) -> dict[str, list[tuple[float, float]]]:
    """Map each text to the places where it stands; y goes down."""
    found: dict[str, list[tuple[float, float]]] = {}
    for text in drawing.figure.axes[0].texts:
        found.setdefault(text.get_text(), []).append(text.get_position())
    return found


def spot(drawing: Drawing, text: str) -> tuple[float, float]:
    """Find the one place of a text."""
    (place,) = spots(drawing)[text]
    return place


def fill_at(drawing: Drawing, x: float, y: float) -> str:
    """Find the shade of a place: that of the box drawn last."""
    boxes = [box for box in drawing.figure.axes[0].patches if isinstance(box, Rectangle)]
    around = [
        to_hex(box.get_facecolor())
        for box in boxes
        if box.get_facecolor()[3]
        and box.get_x() < x < box.get_x() + box.get_width()
        and box.get_y() < y < box.get_y() + box.get_height()
    ]
    return around[-1]


def redness(colour: str) -> float:
    """Tell how far a shade is to the red (above 0) or to the blue side."""
    red, _, blue = to_rgb(colour)
    return red - blue


def points(drawing: Drawing, colour: str) -> list[np.ndarray]:
    """List the lines of a colour, each as its points."""
    lines = drawing.figure.axes[0].lines
    return [line.get_xydata() for line in lines if to_hex(line.get_color()) == colour.lower()]


def arrows(drawing: Drawing) -> list[list[tuple[float, float]]]:
    """List (start, tip) of each arrow."""
    patches = drawing.figure.axes[0].patches
    return [patch._posA_posB for patch in patches if isinstance(patch, FancyArrowPatch)]


def cell(drawing: Drawing, row: str, column: str) -> str:
    """Read the text in the cell where a named row and a named column cross.

    A name with a face beside it stands a little to the right of the middle.
    """
    x, y = spot(drawing, column)[0], spot(drawing, row)[1]
    here = [text for text, places in spots(drawing).items() if (x, y) in
            [(pytest.approx(a, abs=ROOM), pytest.approx(b)) for a, b in places]]  # fmt: skip
    return here[0] if here else ""


# Matrices


@pytest.fixture
def matrix() -> Drawing:
    labels = {"query": ROWS, "key": COLUMNS}
    return draw.tensor(NUMBERS, "query key", title=TITLE, labels=labels)


def test_each_number_stands_where_its_row_and_its_column_cross(matrix):
    read = [[cell(matrix, row, column) for column in COLUMNS] for row in ROWS]
    assert read == [[cell_text(value) for value in row] for row in NUMBERS.tolist()]


def test_numbers_above_zero_are_red_and_those_below_as_blue(matrix):
    for row, values in zip(ROWS, NUMBERS.tolist(), strict=True):
        for column, value in zip(COLUMNS, values, strict=True):
            shade = redness(fill_at(matrix, spot(matrix, column)[0], spot(matrix, row)[1]))
            assert math.copysign(1, shade) == math.copysign(1, value) or value == shade == 0
    # The largest number alone has the fullest shade.
    half, most = (spot(matrix, column)[0] for column in ("east", "west"))
    row = spot(matrix, "green")[1]
    assert abs(redness(fill_at(matrix, half, row))) < abs(redness(fill_at(matrix, most, row)))


def test_brackets_stand_beside_the_rows_and_above_the_columns_in_their_own_style(matrix):
    (left,), (top,) = (points(matrix, axis_style(axis).colour) for axis in ("query", "key"))
    # The ends of a bracket turn toward the cells.
    (hook, y0), (bar, _), (same, _), (_, y1) = left
    assert bar == same < hook < spot(matrix, "north")[0]
    assert y0 < spot(matrix, "red")[1] and spot(matrix, "blue")[1] < y1
    (x0, hook), (_, bar), (_, same), (x1, _) = top
    assert bar == same < hook < spot(matrix, "red")[1]
    assert x0 < spot(matrix, "north")[0] and spot(matrix, "west")[0] < x1


def test_the_brackets_of_head_and_batch_stand_around_their_matrices():
    drawing = figure("attention")
    assert len(points(drawing, axis_style("batch").colour)) == 2 * 2
    # A head has a double bracket on each side of each of six matrices.
    assert len(points(drawing, axis_style("head").colour)) == 2 * 2 * 6
    # From left of the first head to right of the last.
    edges = sorted(line[1, 0] for line in points(drawing, axis_style("batch").colour))
    assert edges[0] < spots(drawing)["query\nasks"][0][0] - 0.3
    assert edges[-1] > max(
        x for text in texts(drawing) if "." in text for x, _ in spots(drawing)[text]
    )


def test_a_larger_weight_is_darker_and_rows_ask():
    drawing = draw.attention(
        [[0.9, 0.1], [0.4, 0.6]], "query key", title=TITLE, row_labels=["dog", "cat"],
        column_labels=["mouse", "fish"],
    )  # fmt: skip
    assert cell(drawing, "dog", "fish") == "0.1000" and cell(drawing, "cat", "fish") == "0.6000"
    shades = [sum(to_rgb(fill_at(drawing, *spot(drawing, n)))) for n in ("0.9000", "0.1000")]
    assert shades[0] < shades[1]
    assert {"query\nasks", "key is looked at"} <= set(texts(drawing))


def test_the_ticks_of_a_mask_stand_where_it_is_true():
    mask = NUMBERS > 0
    drawing = draw.tensor(mask, "query key", title=TITLE, labels={"query": ROWS, "key": COLUMNS})
    read = [[cell(drawing, row, column) == "✓" for column in COLUMNS] for row in ROWS]
    assert read == mask.tolist()
    # The legend: a tick beside True, a shade with a cross beside False.
    tick, true = spots(drawing)["✓"][-1], spot(drawing, "True")
    assert tick[1] == true[1] and tick[0] < true[0] < spot(drawing, "False")[0]
    box = drawing.figure.axes[0].patches[-2]
    assert tick == pytest.approx(box.get_center())


def test_a_hidden_score_is_crossed_out():
    crosses = points(figure("masked scores"), QUIET)
    assert len(crosses) == 2 * texts(figure("masked scores")).count("-inf") == 2 * 12


# Averages


def test_cells_of_one_mean_share_a_shade_that_the_next_does_not_have():
    drawing = draw.groups(NUMBERS, "row column", {"LayerNorm": "column"}, title=TITLE)
    shades: dict[str, set[str]] = {}
    for text, places in spots(drawing).items():
        if re.match(r"[A-C]  ", text):
            shades.setdefault(text[0], set()).update(fill_at(drawing, *place) for place in places)
    assert [len(shades[letter]) for letter in "ABC"] == [1, 1, 1]
    assert len(set.union(*shades.values())) == 3


# Charts


@pytest.mark.parametrize("log", [False, True])
def test_the_values_of_a_curve_can_be_read_off_the_axes(log):
    values = {"up": [0.02, 3.0, 0.5, 40.0], "down": [7.0, 0.3, 0.3, 0.04]}
    where = [10, 20, 25, 40]
    drawing = draw.curves(values, x=where, title=TITLE, x_label="layers", y_label="size", log=log)
    written = drawing.figure.axes[0].texts
    sizes = [t for t in written if re.fullmatch(r"-?[\d.]+|10[⁻⁰¹²]+", t.get_text())]
    beside = [t for t in sizes if t.get_ha() == "right"]
    below = [t for t in sizes if t.get_ha() == "center"]
    digits = str.maketrans("⁻⁰¹²", "-012")
    marks = [float(t.get_text()[2:].translate(digits) if log else t.get_text()) for t in beside]
    height = np.polyfit([t.get_position()[1] for t in beside], marks, 1)
    place = np.polyfit(
        [t.get_position()[0] for t in below], [float(t.get_text()) for t in below], 1
    )
    assert height[0] < 0 < place[0]  # larger values stand higher, later ones to the right
    for (colour, _), line in zip(CURVE_STYLES, values.values(), strict=False):
        curve = next(p for p in points(drawing, colour) if len(p) == len(where))
        read = np.polyval(height, curve[:, 1])
        assert_close(read, np.log10(line) if log else np.array(line), atol=1e-6, rtol=0)
        assert_close(np.polyval(place, curve[:, 0]), np.array(where, float), atol=1e-6, rtol=0)
    assert {"layers", "size, logarithmic" if log else "size"} <= set(texts(drawing))


def test_the_name_of_a_curve_stands_beside_a_piece_of_it():
    drawing = draw.curves({"last": [0.0, 1.0], "first": [1.0, 9.0]}, title=TITLE)
    lines = drawing.figure.axes[0].lines
    for name, (colour, _) in zip(("last", "first"), CURVE_STYLES, strict=False):
        assert len({line.get_linewidth() for line in lines if line.get_color() == colour}) == 1
        key = points(drawing, colour)[-1]
        x, y = spot(drawing, name)
        assert key[0, 1] == key[1, 1] == y and x > key[1, 0]
    assert spot(drawing, "first")[1] < spot(drawing, "last")[1]


def test_a_bar_stands_beside_its_name_and_equal_parts_are_shaded_alike():
    drawing = draw.bars({"a": {"x": 3, "y": 1}, "b": {"x": 2}}, title=TITLE)
    assert spot(drawing, "a")[1] == spot(drawing, "x: 3")[1] < spot(drawing, "x: 2")[1]
    assert spot(drawing, "b")[1] == spot(drawing, "x: 2")[1]
    assert spot(drawing, "a")[0] < spot(drawing, "x: 3")[0] < spot(drawing, "y: 1")[0]
    x, same, y = (fill_at(drawing, *spot(drawing, part)) for part in ("x: 3", "x: 2", "y: 1"))
    assert x == same != y


# Influence


def test_a_dot_stands_where_the_row_of_an_output_and_the_column_of_a_token_cross():
    moved = torch.tensor([[True, False], [False, False], [True, True]])
    outputs, tokens = [["one"], ["two"], ["three"]], [["tic"], ["tac"]]
    drawing = draw.influence(moved, outputs, tokens, title=TITLE)
    dots = {tuple(p[0].round(6)) for p in points(drawing, "#222222") if len(p) == 1}
    for row, (output,) in zip(moved.tolist(), outputs, strict=True):
        for is_moved, (token,) in zip(row, tokens, strict=True):
            place = round(spot(drawing, token)[0], 6), round(spot(drawing, output)[1], 6)
            assert (place in dots) is is_moved
            assert (fill_at(drawing, *place) == SPOTLIGHT.lower()) is is_moved
    assert len(dots) == moved.sum()


def test_each_of_several_maps_has_its_own_dots():
    both = torch.cat([torch.eye(4), torch.zeros(4, 4)])
    names = [[f"{way}: {word}" for word in line] for way in ("right", "wrong") for line in WORDS]
    drawing = draw.influence(both, names, WORDS, title=TITLE)
    heights = [p[0, 1] for p in points(drawing, "#222222") if len(p) == 1]
    assert len(heights) == 4
    assert max(heights) < (spot(drawing, "right")[1] + spot(drawing, "wrong")[1]) / 2


def test_thick_lines_part_the_sentences_of_a_map():
    drawing = figure("influence")
    thick = [line for line in drawing.figure.axes[0].lines if line.get_linewidth() == 2.4]
    assert len(thick) == 2  # one across, one down
    left, top = spots(drawing)["this\noutput\nmoves"], spot(drawing, "when this token is replaced")
    assert left[0][0] < top[0] and top[1] < left[0][1]


# Embedding


def test_arrows_lead_from_each_id_to_its_row_and_on_to_its_vector():
    table = torch.arange(12.0).view(4, 3)
    drawing = draw.lookup([[3, 1], [0, 2]], table, title=TITLE, vocabulary=VOCABULARY)
    rows = {i: spot(drawing, f"{i} {word}")[1] for i, word in enumerate(VOCABULARY)}
    assert texts(drawing).count("vocab") == 1
    found = arrows(drawing)
    first = [(fill, tip) for fill, tip in found if tip[0] < spot(drawing, "0 <pad>")[0]]
    second = [pair for pair in found if pair[0][0] > spot(drawing, "0 <pad>")[0]]
    assert len(first) == len(second) == 4
    for token, (start, tip), (leave, end) in zip([3, 1, 0, 2], first, second, strict=True):
        ids = spots(drawing)[str(token)]
        assert any(y == pytest.approx(start[1]) and x < start[0] for x, y in ids)
        assert tip[1] == leave[1] == pytest.approx(rows[token])
        number = cell_text(table[token, 0].item())
        assert any(y == pytest.approx(end[1]) and x > end[0] for x, y in spots(drawing)[number])
        assert any(y == pytest.approx(rows[token]) for _, y in spots(drawing)[number])


# Products


def test_the_frames_stand_around_a_row_a_column_and_where_they_cross():
    drawing = draw.matmul(NUMBERS[:2, :3], NUMBERS, title=TITLE, highlight=(1, 2))
    frames = [p for p in drawing.figure.axes[0].patches if p.get_linewidth() == 2.4]
    row, column, product = (
        {
            text
            for text, places in spots(drawing).items()
            for x, y in places
            if f.get_x() < x < f.get_x() + f.get_width()
            and f.get_y() < y < f.get_y() + f.get_height()
        }
        for f in frames
    )
    assert row == {cell_text(x) for x in NUMBERS[1, :3].tolist()}
    assert column == {cell_text(x) for x in NUMBERS[:, 2].tolist()}
    assert product == {cell_text((NUMBERS[:2, :3] @ NUMBERS)[1, 2].item())}
    a, b, ab = (spots(drawing)[name][0] for name in ("A", "B", "A B"))
    assert a[0] < ab[0] and a[1] == ab[1] and b[1] < ab[1]
    (start, tip), (top, end) = arrows(drawing)
    assert start[0] < tip[0] < end[0] and top[1] < end[1] < tip[1]


def test_the_numbers_of_a_wide_product_are_all_of_one_size():
    drawing = draw.matmul(torch.ones(1, 8), torch.ones(8, 4), title=TITLE)
    numbers = [t for t in drawing.figure.axes[0].texts if re.fullmatch(r"\d\.\d+", t.get_text())]
    assert len(numbers) == 8 + 32 + 4 and {t.get_fontsize() for t in numbers} == {SMALL_SIZE}


def test_rows_that_are_shares_are_grey_in_a_product():
    drawing = draw.matmul([[0.25, 0.75]], [[1.0], [-2.0]], axes="query key d_v", title=TITLE)
    assert redness(fill_at(drawing, *spot(drawing, "0.7500"))) == 0
    assert redness(fill_at(drawing, *spot(drawing, "-2.0000"))) < 0


# Positions


def test_the_points_of_a_rotation_stand_at_the_cosine_and_the_sine():
    table = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-0.6, -0.8]])
    drawing = draw.rotation(table, title=TITLE)
    dots = [p[0] for p in points(drawing, "#222222") if len(p) == 1]
    ring = next(p for p in points(drawing, QUIET) if len(p) > 9)
    x, y = (ring.max(0) + ring.min(0)) / 2
    read = np.array([(y - dot[1], dot[0] - x) for dot in dots])
    assert_close(read, table.numpy(), atol=1e-3, rtol=0)
    assert spot(drawing, "1")[1] < y < spot(drawing, "2")[1]


def test_each_circle_shows_a_pair_of_its_own():
    table = torch.cat([waves(3, 2), -waves(3, 2)], 1)
    drawing = draw.rotation(table, title=TITLE)
    dots = [p[0] for p in points(drawing, "#222222") if len(p) == 1]
    shift = np.array([2.9, 0])  # from one circle to the next
    for one, other in zip(dots[:3], dots[3:], strict=True):
        assert_close((one + other - shift) / 2, (dots[0] + dots[3] - shift) / 2)


@pytest.mark.parametrize("size", [(2, 3), (24, 16)])
def test_the_columns_of_a_table_of_positions_become_curves(size):
    drawing, table = draw.positions(waves(*size), title=TITLE), waves(*size).numpy()
    columns = list(range(3) if size[1] == 3 else range(0, 8, 2))
    marks = [text for text in drawing.figure.axes[0].texts if text.get_ha() == "right"]
    right = max(mark.get_position()[0] for mark in marks)
    height = {m.get_text(): m.get_position()[1] for m in marks if m.get_position()[0] == right}
    for (colour, _), column in zip(CURVE_STYLES, columns, strict=False):
        curve = next(p for p in points(drawing, colour) if len(p) == size[0])
        read = (height["0"] - curve[:, 1]) / (height["0"] - height["1"])
        assert_close(read, table[:, column], atol=1e-6, rtol=0)
        assert f"column {column}" in texts(drawing)


def test_a_large_table_of_positions_is_a_map_of_shades_with_a_minus_where_it_is_below_zero():
    table = waves(24, 16)
    patches = figure("many positions").figure.axes[0].patches
    shades = [to_hex(p.get_facecolor()) for p in patches if to_hex(p.get_edgecolor()) ==
              to_hex(p.get_facecolor())]  # fmt: skip
    assert len(shades) == table.numel()
    for shade, value in zip(shades, table.flatten().tolist(), strict=True):
        assert redness(shade) * value >= 0 and (abs(value) < 0.3 or redness(shade) * value > 0)
    strokes = [p for p in points(figure("many positions"), "#222222") if np.ptp(p[:, 0]) < 0.12]
    assert len([p for p in strokes if len(p) == 2 and p[0, 1] == p[1, 1]]) == (table < 0).sum() + 2


# Storage


def test_a_number_of_a_view_names_the_cell_of_storage_that_it_is_read_from():
    x = torch.tensor([[0.0, 10.0, 20.0], [30.0, 40.0, 50.0]])
    drawing = draw.storage(x.T[1:], axes="b a", title=TITLE)
    written = texts(drawing)
    for place, value in enumerate(x.flatten().tolist()):
        assert spot(drawing, f"@{place}")[0] == spot(drawing, cell_text(value))[0]
        shown = f"{cell_text(value)}\n@{place}"
        assert (shown in written) is (value in (10, 20, 40, 50))


def test_a_step_along_an_axis_is_as_long_as_its_stride():
    drawing = draw.storage(torch.arange(6).view(2, 3), axes="query key", title=TITLE)
    width = spot(drawing, "@1")[0] - spot(drawing, "@0")[0]
    for axis, stride in (("query", 3), ("key", 1)):
        step = points(drawing, axis_style(axis).colour)[0]
        assert np.ptp(step[:, 0]) == pytest.approx(stride * width)
        assert step[:, 0].min() == pytest.approx(spot(drawing, "@0")[0])
    tips = [(tip[0] - spot(drawing, "@0")[0]) / width for _, tip in arrows(drawing)]
    assert tips == pytest.approx([1, 3])
    assert 6 < PER_LINE


# Architecture and walk


def test_the_boxes_of_both_stacks_stand_in_the_order_of_the_run():
    drawing = figure("plan")
    encoder = ["source embedding", "norm, self-attention", "last norm = memory"]
    decoder = ["target embedding", "norm, causal self-attention", "norm, cross-attention",
               "last norm", "output projection", "logits"]  # fmt: skip
    for stack in (encoder, decoder):
        heights = [spot(drawing, words)[1] for words in stack]
        assert heights == sorted(heights)
    assert spot(drawing, encoder[0])[0] < spot(drawing, decoder[0])[0]
    assert {"encoder: 1 layer", "decoder: 1 layer"} <= set(texts(drawing))
    # What leads around a sublayer leaves the stack between two boxes.
    boxes = [box.get_bbox() for box in drawing.figure.axes[0].patches if box.get_linewidth() == 1]
    around = [p[0, 1] for p in points(drawing, "#222222") if len(p) == 3]
    assert not any(box.y0 <= height <= box.y1 for box in boxes for height in around)


def test_the_memory_goes_into_cross_attention():
    drawing = figure("plan")
    # The one arrow that goes sideways into the decoder from outside of its own column.
    side = [tip for start, tip in arrows(drawing)
            if abs(start[1] - tip[1]) < 0.05 and start[0] < tip[0]]  # fmt: skip
    assert any(tip[1] == pytest.approx(spot(drawing, "norm, cross-attention")[1], abs=0.02)
               for tip in side)  # fmt: skip
    memory = [line for line in drawing.summary.splitlines() if "= memory" in line]
    assert memory[0].split()[-1] == "memory"


def test_one_table_and_one_matrix_are_joined_apart_from_each_other():
    trace = {name: SimpleNamespace(shape=(2, 2)) for name in
             re.findall(r"\S+$", figure("plan").summary, re.M)}  # fmt: skip
    for shared, tied in ((True, False), (False, True)):
        drawing = draw.plan(trace, title=TITLE, shared=shared, tied=tied)
        assert ("one table" in texts(drawing)) is shared
        assert ("one matrix" in texts(drawing)) is tied


def test_the_walk_frames_the_highest_logit_and_says_its_word():
    drawing = figure("walk")
    frames = [p for p in drawing.figure.axes[0].patches if p.get_linewidth() == 2.4]
    middles = [(f.get_x() + f.get_width() / 2, f.get_y() + f.get_height() / 2) for f in frames]
    high = cell_text(0.75, 2)
    assert sorted(middles) == [(pytest.approx(x), pytest.approx(y)) for x, y in
                               sorted(spots(drawing)[high])]  # fmt: skip
    right = max(x for x, _ in middles)
    said = [next(word for word, places in spots(drawing).items() for x, at in places
                 if x > right + 0.3 and at == pytest.approx(y)) for _, y in middles]  # fmt: skip
    assert said == ["<pad>", "cat", "dog", "fish"]


def test_the_walk_names_the_step_between_two_tensors_and_hands_the_memory_down():
    drawing = figure("walk")
    assert {"02\nlook up", "04-10\nencoder", "12, to\nwords"} <= set(texts(drawing))
    down = [(start, tip) for start, tip in arrows(drawing) if tip[1] - start[1] > 0.2]
    assert len(down) == 1
    (line,) = [p for p in points(drawing, "#222222") if len(p) == 3]
    assert line[0, 0] > spot(drawing, "memory")[0] and line[-1, 0] == pytest.approx(down[0][1][0])
    assert spot(drawing, "tgt_input")[0] < line[-1, 0] < spot(drawing, "decoder_output")[0]
    x, y = spot(drawing, "11\ndecoder")
    assert x == pytest.approx(line[-1, 0]) and y - 0.5 < down[0][1][1] < y
