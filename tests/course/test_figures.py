"""Every figure, and every picture in a notebook, follows the rules for figures."""

import re
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("matplotlib")

from tests.course.figure_rules import figure_problems, notebook_problems, undrawn_numbers
from tests.course.figures import FIGURES, TITLE, drawn
from tests.course.notebook_rules import code_cells, name_of
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
CHARTS = {"curves", "rotated query", "query rotated to the right"}  # positions show the numbers


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
