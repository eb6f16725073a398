"""Figures and notebooks against the rules, and each rule against a figure that breaks it."""

from pathlib import Path

import nbformat
import pytest
import torch

pytest.importorskip("matplotlib")
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.course.figure_rules import (
    alt_problems,
    curve_problems,
    drawing_problems,
    drawn_in,
    palette_problems,
    place_problems,
    second_alts,
    small_type,
    source_problems,
    undrawn_numbers,
    unnamed_axes,
)
from tests.course.figures import FIGURES, TITLE, drawn, figure, picture_of
from tests.course.notebook_rules import code_cells, name_of
from twelve_lab import draw
from twelve_lab.course import pages
from twelve_lab.draw.alt_text import LONGEST
from twelve_lab.draw.canvas import DASHES
from twelve_lab.draw.drawing import stored
from twelve_lab.show.palette import (
    AXIS_STYLES,
    CURVE_STYLES,
    INK,
    NEUTRAL,
    PART_FILLS,
    AxisStyle,
    by_night,
    contrast,
)

ROOT = Path(__file__).parents[2]
NOTEBOOKS = pages(ROOT)
CODE = sorted((ROOT / "src" / "twelve_lab" / "draw").glob("*.py"))
ALT = "Dog looks at fish. Attention weights (query=2, key=2), rows ask, columns are looked at."


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebook_pictures_have_alt_texts(path):
    notebook = nbformat.read(path, as_version=4)
    assert list(alt_problems(notebook)) == []
    assert list(second_alts(notebook)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebook_pictures_have_large_enough_type(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    outputs = [output.get("data", {}) for cell in cells for output in cell.outputs]
    pictures = [picture for output in outputs if (picture := stored(output))]
    assert [fault for picture in pictures for fault in small_type(picture.svg)] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_every_draw_function_of_a_notebook_is_in_figures(path):
    tested = {call.__code__.co_names[1] for call in FIGURES.values()} | {"live"}
    assert drawn_in(nbformat.read(path, as_version=4)) <= tested


@pytest.mark.parametrize("name", FIGURES)
def test_figure_texts_are_readable_apart_and_name_every_bracket(name):
    drawing, bracketed = drawn(name)
    assert list(drawing_problems(drawing)) == []
    assert list(place_problems(drawing)) == []
    assert list(unnamed_axes(drawing, bracketed)) == []


@pytest.mark.parametrize("name", FIGURES)
def test_figure_svg_is_small_and_its_type_large_enough(name):
    svg = figure(name).svg()
    assert len(svg) < 120_000
    assert list(small_type(svg)) == []


@pytest.mark.parametrize("name", FIGURES)
def test_figure_alt_text_has_claim_and_description(name):
    drawing = figure(name)
    assert repr(drawing) == drawing.alt
    assert drawing.alt.startswith("Where we are" if name == "strip" else TITLE)
    assert drawing.alt.endswith(".") and len(TITLE) + 20 < len(drawing.alt) <= LONGEST
    assert drawing.text().splitlines()[-1] == drawing.summary.splitlines()[-1]


# These charts show numbers as positions.
CHARTS = {"curves", "turned", "turned to the right"}


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in CHARTS])
def test_every_number_of_an_alt_text_is_drawn(name):
    assert undrawn_numbers(figure(name)) == set()


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.stem)
def test_drawing_code_takes_every_colour_from_the_palette(path):
    assert list(source_problems(path.read_text(encoding="utf-8"))) == []


def test_palette_tells_nothing_by_colour_alone():
    assert list(palette_problems({**AXIS_STYLES, "any other": NEUTRAL}, {*DASHES, "double"})) == []
    assert list(curve_problems(CURVE_STYLES)) == []
    assert all(dashes in DASHES for _, dashes in CURVE_STYLES)
    assert min(contrast(INK, fill) for fill in PART_FILLS) >= 4.5
    assert min(contrast(by_night(INK), by_night(fill)) for fill in PART_FILLS) >= 4.5


def notebook(*alts):
    picture = [
        new_output(
            "display_data",
            data={"text/html": picture_of(alt), "text/plain": alt},
        )
        for alt in alts
    ]
    return new_notebook(cells=[new_code_cell("draw.tensor(x)", outputs=picture)])


def test_alt_problems_accepts_a_good_alt_text():
    assert list(alt_problems(notebook(ALT, ALT.replace("fish", "cat")))) == []


@pytest.mark.parametrize(
    ("alts", "problem"),
    [
        ([""], "too short"),
        (["Dog looks at fish."], "too short"),
        (["Figure of weights: dog looks at fish, and fish at dog."], "begins with 'Figure'"),
        (["The plot of the loss: it falls from 2.6 to nearly nothing."], "begins with 'The'"),
        (["Dog looks at fish: attention weights of two queries and two keys"], "no sentence"),
        (["dog looks at fish: attention weights of two queries and two keys."], "no sentence"),
        (["The encoder reads all of the source and the decoder writes."], "nothing more"),
        (["What is too much is red. Tensor (row=2, vocab=4), one matrix."], "by a colour, 'red'"),
        ([ALT, ALT], "the same alt text"),
        ([f"{ALT} {'word ' * 120}."], "characters, at most 600"),
    ],
)
def test_alt_problems_finds_a_bad_alt_text(alts, problem):
    assert any(problem in text for text in alt_problems(notebook(*alts)))


def test_alt_problems_finds_an_alt_text_that_nbval_does_not_compare():
    written = notebook(ALT)
    written.cells[0].outputs[0].data["text/html"] = picture_of(ALT.replace("fish", "cat"))
    assert any("which nbval compares" in text for text in alt_problems(written))


def test_second_alts_finds_an_alt_text_in_the_metadata():
    written = notebook(ALT)
    assert list(second_alts(written)) == []
    written.cells[0].metadata["mystnb"] = {"image": {"alt": ALT}}
    assert any("no second alt text" in text for text in second_alts(written))


def test_drawn_in_finds_the_draw_functions_of_a_notebook():
    cell = new_code_cell("draw.tensor(x, title='a')\nwith_curves = draw.curves")
    assert drawn_in(new_notebook(cells=[cell])) == {"tensor", "curves"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.set_fontsize(9), "9 pt, less than 10.5 pt"),
        (lambda text: text.set_color("#8a8a8a"), "not near-black"),
        (lambda text: text.set_color("#8a8a8a"), ":1 on #"),
    ],
)
def test_drawing_problems_finds_small_and_grey_text(change, problem):
    drawing = draw.tensor(torch.eye(2), "query key", title="A claim")
    change(next(text for text in drawing.figure.axes[0].texts if text.get_text() == "1.0000"))
    assert any(problem in text for text in drawing_problems(drawing))


def test_small_type_finds_a_picture_that_is_too_wide_for_a_page():
    drawing = draw.tensor(torch.eye(2), "query key", title="A claim")
    drawing.figure.set_figwidth(11.1)
    # 11 points are 15.3 pixels; a page shows 792 of 1110.
    assert list(small_type(drawing.svg())) == [
        "type of 10.9 px on a page, less than 11, for it is 1110 px wide"
    ]


def test_drawing_problems_finds_text_on_a_dark_box():
    drawing = draw.tensor(torch.eye(2), "query key", title="A claim")
    drawing.figure.axes[0].patches[0].set_facecolor("#555555")
    assert any("on #555555" in text for text in drawing_problems(drawing))
    # Dark enough for near-black text, and by night too light for the text of the night.
    drawing.figure.axes[0].patches[0].set_facecolor("#8c8c8c")
    (problem,) = drawing_problems(drawing)
    assert f":1 on {by_night('#8c8c8c')}" in problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text, other: text.set_x(-1.0), "'1.0000' is cut off"),
        (lambda text, other: text.set_y(9.0), "'1.0000' is cut off"),
        (lambda text, other: text.set_position(other.get_position()), "'1.0000' touches '0.0000'"),
    ],
)
def test_place_problems_finds_cut_off_and_overlapping_text(change, problem):
    drawing = draw.tensor(torch.eye(2), "query key", title="A claim")
    assert list(place_problems(drawing)) == []
    written = {text.get_text(): text for text in reversed(drawing.figure.axes[0].texts)}
    change(written["1.0000"], written["0.0000"])
    assert problem in list(place_problems(drawing))


def test_unnamed_axes_finds_a_bracket_without_a_name():
    drawing = draw.tensor(torch.eye(2), "query key", title="A claim about no monkey")
    assert list(unnamed_axes(drawing, {"query", "key", "d_k"})) == [
        "the bracket of d_k has no name"
    ]


@pytest.mark.parametrize(
    "line",
    ['RED = "#D55E00"', 'canvas.box(0, 0, 1, 1, fill="red")', 'text(1, 2, "a", color="0.5")'],
)
def test_source_problems_finds_a_colour_in_the_code(line):
    assert list(source_problems(line))
    assert not list(source_problems('canvas.box(0, 0, 1, 1, fill="none", edge=INK)  # "#3" \n"C#"'))


@pytest.mark.parametrize(
    ("style", "problem"),
    [
        (AxisStyle("#123456", "wavy", 1), "which is none of"),
        (AxisStyle("#123456", "solid", 0), "width 0"),
        (AxisStyle(AXIS_STYLES["query"].colour, "dotted", 3), "share #0072B2"),
    ],
)
def test_palette_problems_finds_an_axis_without_its_own_style(style, problem):
    problems = palette_problems({**AXIS_STYLES, "other": style}, {*DASHES, "double"})
    assert any(problem in text for text in problems)


@pytest.mark.parametrize(
    ("curve", "problem"),
    [(("#D55E00", "solid"), "two curves are solid"), (("#56B4E9", "wavy"), "2.3:1 on paper")],
)
def test_curve_problems_finds_equal_dashes_and_light_curves(curve, problem):
    assert problem in list(curve_problems((*CURVE_STYLES, curve)))[-1]
