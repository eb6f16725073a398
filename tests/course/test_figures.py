"""Figures and notebooks against the rules, and the rules against figures that break them."""

import re
from pathlib import Path

import nbformat
import pytest
import torch

pytest.importorskip("matplotlib")
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.course.figure_rules import (
    figure_problems,
    notebook_problems,
    source_problems,
    undrawn_numbers,
)
from tests.course.figures import FIGURES, TITLE, drawn, picture_of
from tests.course.notebook_rules import code_cells, name_of
from twelve_lab import draw
from twelve_lab.course import pages
from twelve_lab.draw.alt_text import LONGEST
from twelve_lab.draw.canvas import DASHES
from twelve_lab.show.palette import (
    AXIS_STYLES,
    CURVE_STYLES,
    INK,
    NEUTRAL,
    PAPER,
    PART_FILLS,
    by_night,
    contrast,
)

ROOT = Path(__file__).parents[2]
NOTEBOOKS = pages(ROOT)
CODE = sorted((ROOT / "src" / "twelve_lab" / "draw").glob("*.py"))
CHARTS = {"curves", "rotated query", "query rotated to the right"}  # they show numbers as positions
ALT = "Dog looks at fish. Attention weights (query=2, key=2), rows ask, columns are looked at."


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebook_pictures_obey_the_rules_and_are_in_figures(path):
    notebook = nbformat.read(path, as_version=4)
    assert list(notebook_problems(notebook)) == []
    tested = {call.__code__.co_names[1] for call in FIGURES.values()} | {"live"}
    code = "\n".join(cell.source for cell in code_cells(notebook))
    assert set(re.findall(r"\bdraw\.(\w+)", code)) <= tested


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_readable_small_and_described(name):
    drawing, bracketed = drawn(name)
    assert list(figure_problems(drawing, bracketed)) == []
    assert len(drawing.svg()) < 120_000
    assert repr(drawing) == drawing.alt
    assert drawing.alt.startswith(TITLE)
    assert drawing.alt.endswith(".") and len(TITLE) + 20 < len(drawing.alt) <= LONGEST
    assert drawing.text().splitlines()[-1] == drawing.summary.splitlines()[-1]
    assert name in CHARTS or undrawn_numbers(drawing) == set()


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.stem)
def test_drawing_code_takes_every_colour_from_the_palette(path):
    assert list(source_problems(path.read_text(encoding="utf-8"))) == []


def test_source_problems_finds_a_colour_in_the_code():
    for line in ('RED = "#D55E00"', 'box(0, 0, fill="red")', 'text(1, 2, "a", color="0.5")'):
        assert list(source_problems(line)), line
    assert not list(source_problems('canvas.box(0, 0, 1, 1, fill="none", edge=INK)  # "#3" \n"C#"'))


def test_palette_tells_nothing_by_colour_alone():
    styles = {*AXIS_STYLES.values(), NEUTRAL}
    assert len({style.colour for style in styles}) == len(styles)
    assert {style.line for style in styles} <= {*DASHES, "double"}
    assert min(style.width for style in styles) > 0
    dashes = [dash for _, dash in CURVE_STYLES]
    assert len(set(dashes)) == len(dashes) and set(dashes) <= set(DASHES)
    for colour, _ in CURVE_STYLES:  # WCAG 2.2, 1.4.11
        assert contrast(colour, PAPER) >= 3
        assert contrast(by_night(colour, line=True), by_night(PAPER)) >= 3
    for fill in PART_FILLS:
        assert contrast(INK, fill) >= 4.5
        assert contrast(by_night(INK), by_night(fill)) >= 4.5


def notebook(*alts, plain=None):
    outputs = [
        new_output("display_data", {"text/html": picture_of(alt), "text/plain": plain or alt})
        for alt in alts
    ]
    return new_notebook(cells=[new_code_cell("draw.tensor(x)", outputs=outputs)])


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (notebook("Dog looks at fish."), "too short"),
        (notebook("Figure of weights: dog looks at fish, and fish at dog."), "begins with 'Figure"),
        (
            notebook("The plot of the loss: it falls from 2.6 to nearly nothing."),
            "begins with 'The",
        ),
        (notebook(ALT.removesuffix(".")), "no sentence"),
        (notebook(ALT.lower()), "no sentence"),
        (notebook("The encoder reads all of the source and the decoder writes."), "only a title"),
        (notebook("What is too much is red. Tensor (row=2, vocab=4), one matrix."), "a colour"),
        (notebook(ALT, ALT), "the same alt text"),
        (notebook(f"{ALT} {'word ' * 120}."), "characters, at most 600"),
        (notebook(ALT, plain="Dog looks at cat."), "which nbval compares"),
    ],
)
def test_notebook_problems_finds_a_bad_alt_text(written, problem):
    assert any(problem in text for text in notebook_problems(written))
    assert list(notebook_problems(notebook(ALT, ALT.replace("fish", "cat")))) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text, axes: text.set_fontsize(9), "'1.0000' is 9 pt, less than 10.5 pt"),
        (lambda text, axes: text.set_color("#8a8a8a"), "not near-black"),
        (lambda text, axes: text.set_color("#8a8a8a"), ":1 on #"),
        (lambda text, axes: axes.patches[0].set_facecolor("#555555"), "on #555555"),
        # Dark enough for near-black text, but too light for the text of the night.
        (lambda text, axes: axes.patches[0].set_facecolor("#8c8c8c"), f"on {by_night('#8c8c8c')}"),
        (lambda text, axes: text.set_x(-1.0), "'1.0000' is cut off"),
        (lambda text, axes: text.set_y(9.0), "'1.0000' is cut off"),
        (lambda text, axes: text.set_x(text.get_position()[0] + 0.6), "touches '0.0000'"),
        # 11 points are 15.3 pixels; a page shows 792 of 1110.
        (lambda text, axes: axes.figure.set_figwidth(11.1), "type of 10.9 px on a page"),
        (lambda text, axes: None, "the bracket of d_k has no name"),
    ],
)
def test_figure_problems_finds_a_broken_rule(change, problem):
    drawing = draw.tensor(torch.eye(2), "query key", title="A claim about no monkey")
    axes = drawing.figure.axes[0]
    change(next(text for text in axes.texts if text.get_text() == "1.0000"), axes)
    assert any(problem in text for text in figure_problems(drawing, {"query", "key", "d_k"}))
