"""Figures: what each shows, that it can be read, and what it refuses."""

import re
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch

pytest.importorskip("matplotlib")
import matplotlib.style

from tests.course.figures import (
    TABLE,
    TITLE,
    TWELVE,
    VOCABULARY,
    WORDS,
    figure,
    texts,
    waves,
)
from twelve_lab import Trace, draw, example
from twelve_lab.course import STEPS
from twelve_lab.draw.canvas import Canvas, _width_of_line
from twelve_lab.draw.drawing import DATA, stored
from twelve_lab.draw.svg import EM
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import INK, PAPER, QUIET, SHADE, by_night

PAIRS = torch.tensor([[[0, 1], [0.5, 0.5]], [[0.4, 0.6], [0.6, 0.4]]])
SPLIT = torch.zeros(4, 4)
SPLIT[0, 0] = SPLIT[1, 0] = SPLIT[1, 1] = SPLIT[2:, 2:] = 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: draw.attention(
                PAIRS, "batch query key", title=TITLE, row_labels=WORDS, column_labels=WORDS
            ),
            "Batch 0: <pad> only at cat (1.0000); cat at all alike (0.5000 each). "
            "Batch 1: dog at fish (0.6000); fish at dog (0.6000).",
        ),
        (
            lambda: draw.attention([[0.4, 0.4, 0.2]], "query key", title=TITLE),
            "Query 0 at key 0 and key 1 (0.4000 each).",
        ),
        (
            lambda: draw.attention([[0.7, 0.3, 0.0]], "query key", title=TITLE),
            "Query 0 at key 0 (0.7000).",
        ),
        (
            lambda: draw.attention([[0.0, 0.0], [0.0, 0.0]], "query key", title=TITLE),
            "Query 0 and query 1 at nothing.",
        ),
        (
            lambda: draw.attention(torch.eye(24), "query key", title=TITLE),
            "The largest weights go from 1.0000 to 1.0000.",
        ),
        (
            lambda: draw.tensor(torch.eye(3).bool(), "query key", title=TITLE),
            "Ticks on the diagonal.",
        ),
        (lambda: draw.tensor(torch.ones(2, 3).bool(), "query key", title=TITLE), "All ticked."),
        (lambda: draw.tensor(torch.zeros(2, 2).bool(), "query key", title=TITLE), "No tick."),
        (
            lambda: draw.tensor(torch.ones(3, 3).tril().bool(), "query key", title=TITLE),
            "Ticks in the lower triangle, with the diagonal.",
        ),
        (
            lambda: draw.tensor(torch.ones(3, 3).triu().bool(), "query key", title=TITLE),
            "Ticks in the upper triangle, with the diagonal.",
        ),
        (
            lambda: draw.tensor([[True, False], [True, False]], "query key", title=TITLE),
            "Ticks in every row at key 0.",
        ),
        (
            lambda: draw.tensor(
                torch.tensor([[0, 0], [1, 1], [0, 1], [0, 1]]).bool(), "query key", title=TITLE
            ),
            "Query 0 nowhere; query 1 everywhere; query 2 and query 3 at key 1.",
        ),
        (
            lambda: draw.tensor(torch.eye(30).bool().roll(1, -1), "query key", title=TITLE),
            "30 ticks in 900 cells.",
        ),
        (
            lambda: draw.tensor(TWELVE, "batch src d_model", title=TITLE, labels={"src": WORDS}),
            "Batch 0: <pad> 0.0000, 1.0000, 0.0000; cat 1.6615, 0.6903, 0.3622. Batch 1: dog",
        ),
        (
            lambda: draw.tensor(torch.arange(-2.0, 28).view(3, 10), "src d_ff", title=TITLE),
            "red above zero and blue below. 30 numbers from -2.0000 (src 0, d_ff 0) to 27.0000 "
            "(src 2, d_ff 9), 2 below zero, 1 zero.",
        ),
        (
            lambda: draw.tensor([[-torch.inf] + [3.0] * 24], "query key", title=TITLE),
            "25 numbers, all 3.0000, 1 not finite.",
        ),
        (
            lambda: draw.tensor(torch.ones(5, 5), "src d_ff", title=TITLE),
            "25 numbers, all 1.0000.",
        ),
        (
            lambda: draw.influence(SPLIT, WORDS, WORDS, title=TITLE),
            "Nothing between sentences, in sentence 0 a lower triangle, in sentence 1 a full block",
        ),
        (
            lambda: draw.influence(torch.eye(4), WORDS, WORDS, title=TITLE),
            "The diagonal alone in each sentence, nothing between sentences.",
        ),
        (
            lambda: draw.influence(torch.ones(4, 4).tril(), WORDS, WORDS, title=TITLE),
            "a token is replaced. A lower triangle.",
        ),
        (
            lambda: draw.influence(torch.eye(4).flip(0), WORDS, WORDS, title=TITLE),
            "Batch 0 <pad> moved by batch 1 fish; batch 0 cat moved by batch 1 dog; batch 1 dog",
        ),
        (
            lambda: draw.influence(torch.ones(4, 4).triu(), WORDS, WORDS, title=TITLE),
            "a token is replaced. An upper triangle.",
        ),
        (
            lambda: draw.influence(torch.eye(4).roll(1, 1).triu(), WORDS, WORDS, title=TITLE),
            "batch 0 cat moved by batch 1 dog; batch 1 dog moved by batch 1 fish; batch 1 fish "
            "moved by none.",
        ),
        (lambda: draw.influence(torch.zeros(2, 2), title=TITLE), "replaced. No dot."),
        (
            lambda: draw.influence(torch.ones(4, 4).tril().roll(1, 0).repeat(3, 3), title=TITLE),
            "a dot where an output moves when a token is replaced, 90 in all.",
        ),
        (
            lambda: draw.influence(
                torch.cat([torch.eye(4), torch.zeros(4, 4)]),
                [[f"{way}: batch {i} {word}" for word in WORDS[i]]
                 for way in ("right", "wrong") for i in (0, 1)],
                WORDS,
                title=TITLE,
            ),
            "Right: the diagonal alone in each sentence, nothing between sentences. Wrong: no dot.",
        ),
        (
            lambda: draw.curves({"a": [0, 9, -5, 4], "b": [1, 1, 1, 1]}, title=TITLE, x_label="n"),
            "2 curves, over n from 0 to 3: a rises from 0.0000 to 4.0000, with its peak 9.0000 at "
            "1 and its lowest point -5.0000 at 2; b stays at 1.0000.",
        ),
        (
            lambda: draw.curves(
                {"c": [1e4, 1e-3], "d": [2, 2.1], "e": [3, 1e-9]}, title=TITLE, y_label="size",
                log=True,
            ),
            "size on a logarithmic axis over x from 0 to 1: c falls from 10,000 to 0.001; "
            "d stays near 2; e falls from 3 to 1e-09.",
        ),
        (
            lambda: draw.bars({"a": {"x": 3}, "b": {}}, title=TITLE, unit="rows"),
            "2 bars to one scale. a: x = 3; total 3 rows. b: total 0 rows.",
        ),
        (
            lambda: draw.bars({f"bar {i}": {"x" * 90: 3} for i in range(9)}, title=TITLE),
            "9 bars to one scale. bar 0: 3. bar 1: 3.",
        ),
        (
            lambda: draw.matmul([[1.0, 2.0]], [[3.0], [-4.0]], title=TITLE, names=("a", "b", "ab")),
            "left a (row=1, inner=2), above b (inner=2, column=1), where rows meet columns ab "
            "(row=1, column=1). Framed: the row of row 0 in a, the column of column 0 in b, and "
            "their product, -5.0000.",
        ),
        (
            lambda: figure("matmul"),
            "the row of src 1 in A, the column of head*d_k 2 in B, and their product, 1.1061.",
        ),
        (
            lambda: draw.storage(torch.arange(6).view(2, 3).T, axes="b a", title=TITLE),
            "Storage: 6 numbers, read by x: 0 1 2 3 4 5. x (b=3, a=2): strides b 1, a 3, not in "
            "storage order.",
        ),
        (
            lambda: figure("storage"),
            "Storage A: 12 numbers, read by x and y: 0.0000 1.0000 0.0000 1.6615 0.6903",
        ),
        (
            lambda: figure("rotation"),
            "3 unit circles with positions 0 to 7 as points: columns 0 and 1 turn 57.3° a step",
        ),
        (
            lambda: draw.rotation(waves(8, 2)[3:], title=TITLE),
            "1 unit circle with positions 0 to 4 as points: columns 0 and 1 turn 57.3° a step.",
        ),
        (lambda: figure("many positions"), "column 0 goes from 0.0000 to -0.8462 and crosses"),
        (
            lambda: draw.strip(6),
            "after 05 masks. The part before is “words become vectors” and the part after is “deep",
        ),
        (lambda: draw.strip("a2"), "“appendices”, after a1 containers. The part before is"),
        (lambda: draw.strip(0), "its first. The part after is “words become vectors”."),
        (lambda: figure("plan"), "last norm; output projection (2, 2, 4). An arrow leads"),
        (lambda: figure("walk"), "The highest logits say: <pad> cat; dog fish."),
    ],
)  # fmt: skip
def test_the_alt_text_says_what_the_data_say(call, words):
    assert words in call().alt


@pytest.mark.parametrize(
    "name", ["tensor", "masked scores", "attention", "matmul", "storage", "stream with a memory"]
)
def test_every_number_in_a_cell_is_in_the_summary(name):
    drawing = figure(name)
    written = set(texts(drawing))
    numbers = {n for text in written for n in re.findall(r"^-?\d\.\d{4}|-inf", text)}
    assert len(numbers) > 5
    assert numbers <= set(re.findall(r"-?\d\.\d{4}|-inf", drawing.summary))


def test_the_tensor_shows_its_twelve_numbers_and_words():
    drawing = figure("tensor")
    written = texts(drawing)
    for value in TWELVE.flatten().tolist():
        assert format_number(value) in written
    assert {"<pad>", "cat", "dog", "fish", "batch 0", "batch 1", "d_model"} <= set(written)


def test_a_mask_has_a_tick_for_each_true_and_no_other():
    written = texts(figure("mask"))
    assert written.count("✓") == 10 + 1  # ten in the mask, one in the legend


def test_matmul_writes_out_the_highlighted_sum():
    matrices = [[1.0, 2.0]], [[3.0, 5.0], [-4.0, -6.0]]
    drawing = draw.matmul(*matrices, title=TITLE, names=("a", "b", "ab"), highlight=(0, 1))
    assert drawing.summary.endswith("ab[0, 1] = 1.0000·5.0000 + 2.0000·(-6.0000) = -7.0000")


def test_storage_tells_a_view_from_a_copy():
    x = torch.arange(6).view(2, 3)
    view = draw.storage(x, x.T, axes=["a b", "b a"], title=TITLE, names=["x", "x.T"])
    assert view.summary == (
        "storage: 0 1 2 3 4 5\n"
        "x (a=2, b=3): strides a 3, b 1; row by row: @0 @1 @2 @3 @4 @5\n"
        "x.T (b=3, a=2): strides b 1, a 3; row by row: @0 @3 @1 @4 @2 @5"
    )
    copy = draw.storage(x, x.T.contiguous(), axes=["a b", "b a"], title=TITLE)
    assert "storage B: 0 3 1 4 2 5" in copy.summary


def test_storage_starts_a_slice_where_it_starts():
    drawing = draw.storage(torch.arange(6)[2:5], axes="src", title=TITLE)
    assert drawing.summary.endswith("row by row: @2 @3 @4")


def test_lookup_gives_each_id_its_row():
    drawing = draw.lookup([[3, 1], [0, 0]], TABLE, title=TITLE, vocabulary=VOCABULARY)
    assert "batch 0  src fish   0.6000  0.3000  0.5000" in drawing.summary
    assert "src cat    0.8200  0.1500  0.3600" in drawing.summary
    assert "id 3 (fish) picks row 3" in drawing.alt


def test_curves_print_their_values_and_name_each_end():
    drawing = draw.curves(
        {"up": [0.0, 0.5], "down": [1.0, -0.25]}, x=[10, 20], title=TITLE, x_label="steps"
    )
    assert drawing.summary.splitlines() == [
        "steps       10       20",
        "up      0.0000   0.5000",
        "down    1.0000  -0.2500",
    ]
    assert {"up", "down"} <= set(texts(drawing))


def test_the_panels_of_attention_can_have_names():
    weights, names = torch.eye(2).repeat(2, 1, 1), {"stage": ["untrained", "trained"]}
    drawing = draw.attention(weights, "stage query key", title=TITLE, labels=names)
    written = set(texts(drawing))
    assert {"stage: untrained", "stage: trained"} <= written
    assert "stage trained" in drawing.summary


def test_a_sentence_has_room_where_weights_have_two_decimals():
    drawing = draw.attention([[0.206, 0.794]], "query key", title=TITLE, decimals=2)
    assert {"0.21", "0.79"} <= set(texts(drawing))
    assert "(0.79)" in drawing.alt and "0.21  0.79" in drawing.summary
    assert "0.794" not in drawing.text()


def test_words_can_stand_for_numbers_that_differ_between_machines():
    words = "the last loss is below 0.1"
    for drawing in (
        draw.curves({"loss": [1.0, 0.0521]}, title=TITLE, summary=words),
        draw.attention(torch.eye(2), "query key", title=TITLE, summary=words),
    ):
        assert drawing.summary == words
        assert "0.0521" not in drawing.text()


def test_a_logarithmic_axis_counts_powers_of_ten():
    drawing = draw.curves({"falls": 10.0 ** -torch.arange(9)}, title=TITLE, log=True)
    written = set(texts(drawing))
    assert {"10⁰", "10⁻⁸"} <= written
    assert drawing.summary.splitlines()[1].split()[1::8] == ["1.0e+00", "1.0e-08"]


def test_groups_give_the_mean_of_every_letter():
    drawing = draw.groups(
        [[1, 2, 3], [4, 5, 6], [7, 8, 9], [2, 3, 4]], "token feature",
        {"LayerNorm": "feature", "BatchNorm": "token"}, title=TITLE,
    )  # fmt: skip
    assert drawing.summary.splitlines() == [
        "LayerNorm: averages over feature; means: A 2.0000, B 5.0000, C 8.0000, D 3.0000",
        "BatchNorm: averages over token; means: A 3.5000, B 4.5000, C 5.5000",
    ]
    written = texts(drawing)
    assert written.count("A  1") == 2 and "D  4" in written and "C  4" in written
    assert {"A  3.5000", "D  3"} <= set(written)


def test_groups_span_several_axes():
    drawing = draw.groups(TWELVE, "batch src d_model", {"both": "batch src"}, title=TITLE)
    means = TWELVE.mean((0, 1)).tolist()
    assert drawing.summary.endswith(
        "means: " + ", ".join(f"{a} {format_number(m)}" for a, m in zip("ABC", means, strict=True))
    )


def test_bars_are_as_long_as_their_parts_and_give_the_total():
    drawing = draw.bars({"a": {"x": 3, "y": 1}, "b": {"x": 2}}, title=TITLE, unit="numbers")
    assert drawing.summary == "a: x = 3, y = 1; total 4 numbers\nb: x = 2; total 2 numbers"
    widths = [p.get_width() for p in drawing.figure.axes[0].patches if p.get_height() > 0.3]
    assert widths[1] * 3 == pytest.approx(widths[0]) and widths[2] == pytest.approx(widths[1] * 2)
    written = texts(drawing)
    assert {"x: 3", "y: 1", "x: 2", "4", "2"} <= set(written)


def test_a_part_too_short_for_its_name_has_it_below_the_bar():
    drawing = figure("bars with short parts")
    heights = {text.get_text(): text.get_position()[1] for text in drawing.figure.axes[0].texts}
    assert heights["positions: 24"] == heights["a count: 3"] > heights["weights\n252"]
    assert "steps\n(38)\n38" in heights
    axes = drawing.figure.axes[0]
    bottom = max(box.get_y() + box.get_height() for box in axes.patches)
    assert [min(line.get_ydata()) for line in axes.lines] == [bottom, bottom]


def test_the_largest_weight_of_each_row_is_bold_where_one_is():
    drawing = draw.attention([[0.2, 0.8], [0.5, 0.5]], "query key", title=TITLE)
    bold = [t.get_text() for t in drawing.figure.axes[0].texts if t.get_weight() == "bold"]
    assert bold == ["0.8000", TITLE]
    bold = {t for t in figure("matmul").figure.axes[0].texts if t.get_weight() == "bold"}
    assert not any("." in text.get_text() for text in bold)


def test_a_mask_says_what_a_tick_means():
    mask = figure("mask")
    assert {"True", "False"} <= set(texts(mask))
    assert "a tick for True, a cross for False" in mask.alt


def test_rotation_prints_the_angles():
    assert draw.rotation(waves(3, 2), title=TITLE).summary.endswith(": 0.0 57.3 114.6")


def test_a_turned_query_has_its_angles_and_its_match_by_distance():
    # The arrow points east and is turned away from its key by 1 radian a step: cos 0, 1, 2, 3.
    drawing = draw.turned([1, 0], [2, 0], title=TITLE, names=("asks", "found"), steps=3)
    assert drawing.summary.splitlines() == [
        "asks 1.0000, 0.0000 at 0.0°",
        "asks, turned once 0.5403, 0.8415 at 57.3°",
        "found 2.0000, 0.0000 at 0.0°",
        "distance        0        1        2        3",
        "match   2.0000   1.0806  -0.8323  -1.9800",
    ]
    assert "a wave: 2.0000 at 0, 1.0806 at 1, -0.8323 at 2, -1.9800 at 3." in drawing.alt
    # A dot for each of them, at the height of its match.
    dots = [line for line in drawing.figure.axes[0].lines if line.get_marker() == "o"]
    heights = [line.get_ydata()[0] for line in dots]
    assert heights == sorted(heights) and len(dots) == 4


def test_influence_takes_what_the_instrument_found():
    found = SimpleNamespace(
        grid=torch.eye(2).bool(), outputs=("out 0", "out 1"), tokens=("src 0", "src 1")
    )
    drawing = draw.influence(found, title=TITLE)
    assert "out 0   True      ·" in drawing.summary


def test_what_the_labels_of_a_map_and_of_a_sentence_share_is_written_once():
    drawing = figure("influence in three ways")
    written = texts(drawing)
    assert [written.count(word) for word in ("tgt", "src", "no mask", "batch 0")] == [1, 1, 1, 3]
    assert written.count("<pad>") == 2 + 3
    assert "no mask: batch 0 <pad>" in drawing.summary


def test_a_gap_parts_the_maps_and_none_the_sentences():
    drawing = figure("influence in three ways")
    frames = [p for p in drawing.figure.axes[0].patches if p.get_linewidth() == 2.4]
    tops = [frame.get_y() for frame in frames]
    assert len(frames) == 3
    assert tops[1] > tops[0] + frames[0].get_height() + 0.1


def test_the_strip_gives_the_question_and_the_shapes():
    assert draw.strip(2).summary == (
        "How does a word become numbers?\nids (batch, seq) -> (batch, seq, d_model)"
    )


@pytest.mark.parametrize("here", ["00", "02", "12", "16", "a1"])
def test_a_step_added_at_the_end_of_a_part_changes_no_strip_of_another(here, monkeypatch):
    def drawn():
        strip = draw.strip(here)
        axes = strip.figure.axes[0]
        boxes = [(str(box), box.get_facecolor(), box.get_linewidth()) for box in axes.patches]
        return strip.text(), boxes, list(map(str, axes.texts)), str(strip.figure)

    before = drawn()
    parts = {step.part: place for place, step in enumerate(STEPS, 1)}
    assert len(parts) == 8
    for part, place in parts.items():
        if [step.part for step in STEPS].count(part) == 1:
            continue  # behind a first step that is the only one, none looks out yet
        added = STEPS[place - 1]._replace(number="99", stem="made_up", part=part)
        steps = (*STEPS[:place], added, *STEPS[place:])
        monkeypatch.setattr(sys.modules["twelve_lab.draw.strip"], "STEPS", steps)
        assert drawn() == before, part


def test_the_walk_ends_in_words():
    drawing = figure("walk")
    assert drawing.summary.endswith("highest logit at each position: <pad> cat; dog fish")


def test_a_notebook_gets_one_picture_with_alt_text_and_the_numbers_folded(monkeypatch):
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda *args, **options: shown.append((args, options))
    )
    drawing = figure("tensor")
    drawing._ipython_display_()
    ((data,), options), ((folded,), _) = shown
    assert data["text/plain"] == drawing.alt
    assert stored(data) == (drawing.alt, DATA + drawing.svg().replace("#", "%23"))
    assert stored(data).svg == drawing.svg()
    assert options == {"raw": True}
    assert folded["text/plain"] == drawing.summary
    assert folded["text/html"].startswith("<details><summary>")
    assert "0.8200" in folded["text/html"] or "1.6615" in folded["text/html"]


def test_a_saved_figure_looks_the_same_every_time_and_says_what_it_shows(tmp_path):
    drawing, again = draw.strip(0), draw.strip(0)
    assert drawing.svg() == again.svg() == again.svg()
    again.save(tmp_path / "strip.svg")
    title, description, *shown = ElementTree.parse(tmp_path / "strip.svg").getroot()
    assert (title.text, description.text) == (drawing.alt, drawing.text())
    assert [part.tag for part in shown] == [
        part.tag for part in ElementTree.fromstring(drawing.svg())
    ]


def test_a_figure_names_no_font_no_day_and_no_place_and_has_no_fractions():
    svg = draw.strip(0).svg()
    assert not re.search(r'<text|font|metadata|date|url\(|"', svg)
    assert re.findall(r"https?:[^']*", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\d\.\d", re.sub(r"scale\(\S+\)", "", svg))


def test_a_box_and_its_number_stand_where_they_were_put():
    canvas = Canvas()
    canvas.box(0.0, 0.0, 1.0, 0.5, fill=SHADE, edge=INK, line=0.72)
    canvas.text(0.5, 0.25, "I")
    root = ElementTree.fromstring(canvas.finish("I", "I.", "").svg())
    width, height = int(root.get("width")), int(root.get("height"))
    assert root.get("viewBox") == f"0 0 {width * 10} {height * 10}"
    (box,) = [part for part in root if part.get("fill") == SHADE]
    # 0.12 inches from the left and from below, at 100 pixels of 10 steps an inch.
    assert box.get("d") == f"M120 {height * 10 - 120 - 500}h1000v500h-1000z"
    assert (box.get("stroke"), box.get("stroke-width")) == (INK, "10")
    number, title = [part for part in root if part.tag.endswith("use")]
    place = re.fullmatch(r"translate\((\d+) (\d+)\)scale\((.+)\)", number.get("transform"))
    # 11 points are 152.8 steps; of these an "I" is 0.295 wide and 0.729 high, in a line with some
    # room above it.
    assert float(place[3]) * EM == pytest.approx(152.8, rel=1e-3)
    assert int(place[1]) == pytest.approx(120 + 500 - 0.295 * 152.8 / 2, abs=2)
    below = int(place[2]) - (height * 10 - 120 - 250 + 0.729 * 152.8 / 2)
    assert 0 < below < 20
    assert title.get("transform").endswith(f"scale({14 / 72 * 1000 / EM:.4g})")


def test_every_colour_has_another_one_by_night_and_white_becomes_the_paper_of_dark_pages():
    svg = figure("matmul").svg()
    shown = set(re.findall(r"(?<=\s)(?:fill|stroke)='#\w+'", svg))
    turned = dict(re.findall(r"\[(\w+='#\w+')\]\{(.*?)\}", svg))
    assert shown == set(turned)
    assert turned[f"fill='{PAPER}'"] == "fill:#121212"
    assert turned[f"fill='{INK}'"] == f"fill:{by_night(INK)}"
    assert turned[f"stroke='{QUIET}'"] == f"stroke:{by_night(QUIET, line=True)}"


def test_a_style_of_the_readers_own_changes_no_figure():
    kept = draw.tensor([1.0], "src", title=TITLE).svg()
    _width_of_line.cache_clear()
    with matplotlib.style.context(["dark_background", {"font.family": "monospace"}]):
        assert draw.tensor([1.0], "src", title=TITLE).svg() == kept


def test_a_dollar_sign_is_only_a_dollar_sign():
    drawing = draw.tensor([1.0], "src", title="$x_1$", labels={"src": [r"$\no_such_symbol$"]})
    assert drawing.svg()


def test_errors_name_the_argument_and_the_numbers():
    with pytest.raises(ValueError, match="'src d_model' has 2 names"):
        draw.tensor(TWELVE, "src d_model", title=TITLE)
    with pytest.raises(ValueError, match=r"a \(2, 3\) and b \(2, 3\)"):
        draw.matmul(TWELVE[0], TWELVE[0], title=TITLE)
    with pytest.raises(ValueError, match="is not a @ b"):
        draw.matmul([[1.0]], [[2.0]], [[3.0]], title=TITLE)
    with pytest.raises(ValueError, match="must name three axes"):
        draw.matmul([[1.0]], [[2.0]], axes="a b", title=TITLE)
    with pytest.raises(ValueError, match="more than the 48"):
        draw.storage(torch.zeros(7, 7), axes="a b", title=TITLE)
    with pytest.raises(ValueError, match="1 tensors, but 2 axes"):
        draw.storage(torch.zeros(2), axes=["a", "b"], title=TITLE)
    with pytest.raises(ValueError, match="1 to 6 curves, got 0"):
        draw.curves({}, title=TITLE)
    with pytest.raises(ValueError, match="'a' has 2 values for 3 places"):
        draw.curves({"a": [1.0, 2.0]}, x=[1, 2, 3], title=TITLE)
    with pytest.raises(ValueError, match="'a' is nan at 1, which is not finite"):
        draw.curves({"a": [1.0, float("nan")]}, title=TITLE)
    with pytest.raises(ValueError, match=r"'a' is 0\.0 at 1, which is not above zero"):
        draw.curves({"a": [1.0, 0.0]}, title=TITLE, log=True)
    with pytest.raises(ValueError, match="at least one method"):
        draw.groups(TWELVE, "batch src d_model", title=TITLE)
    with pytest.raises(ValueError, match="over 'seq', which is not in"):
        draw.groups(TWELVE, "batch src d_model", {"a": "seq"}, title=TITLE)
    with pytest.raises(ValueError, match="more than 26 means"):
        draw.groups(torch.zeros(27, 2), "seq d_model", {"a": "d_model"}, title=TITLE)
    with pytest.raises(ValueError, match="too large to be drawn"):
        draw.groups(torch.zeros(2, 13), "seq d_model", {"a": "d_model"}, title=TITLE)
    with pytest.raises(ValueError, match="part 'x' of bar 'a' is -1"):
        draw.bars({"a": {"x": -1}}, title=TITLE)
    with pytest.raises(ValueError, match="at least one part"):
        draw.bars({}, title=TITLE)
    with pytest.raises(ValueError, match="no pair of columns"):
        draw.rotation(waves(3, 1), title=TITLE)
    with pytest.raises(ValueError, match=r"key must be two numbers, not both 0, got \[0.0, 0.0\]"):
        draw.turned([1.0, 0.0], [0.0, 0.0], title=TITLE)
    with pytest.raises(ValueError, match="query must be two numbers"):
        draw.turned([1.0, 0.0, 0.0], [1.0, 0.0], title=TITLE)
    with pytest.raises(ValueError, match="3 labels do not make batch=2"):
        draw.influence(torch.eye(3), [0, 1, 2], [0, 1, 2], title=TITLE)
    with pytest.raises(ValueError, match="step 77"):
        draw.strip(77)


def test_the_plan_shows_the_sizes_of_the_run_and_counts_the_layers():
    companion = example.distinct
    model = companion.model()
    with Trace(model) as trace:
        model(companion.src, companion.tgt)
    drawing = draw.plan(trace, title=TITLE)
    assert any(
        line.split() == ["06", "norm,", "cross-attention", "(2,", "4,", "24)",
                         "decoder.layers.0.cross_attention.output"]
        for line in drawing.summary.splitlines()
    )  # fmt: skip
    written = texts(drawing)
    assert {"encoder: 2 layers", "decoder: 2 layers", "(2, 5, 24)", "(2, 4, 13)"} <= set(written)


def test_the_plan_joins_what_is_one_matrix_only_where_it_is():
    separate, joined = figure("plan"), figure("plan of one matrix")
    words = set(texts(joined))
    assert {"one table", "one matrix"} <= words
    assert not {"one table", "one matrix"} & set(texts(separate))
    assert "one table" in joined.alt and "one matrix" in joined.alt and "one" not in separate.alt


def test_the_plan_needs_a_run_of_the_whole_model():
    with pytest.raises(KeyError, match="src_embedding"):
        draw.plan({}, title=TITLE)
