"""Figures: snapshots of each drawing and its texts, properties of the SVG, rejected arguments."""

import re
from xml.etree import ElementTree

import pytest
import torch

pytest.importorskip("matplotlib")
import matplotlib.style
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, Rectangle

from tests.course.figures import FIGURES, TITLE, TWELVE, figure, waves
from twelve_lab import draw
from twelve_lab.draw import Drawing
from twelve_lab.draw.alt_text import true_entries
from twelve_lab.draw.canvas import _width_of_line
from twelve_lab.draw.drawing import DATA, stored
from twelve_lab.show.palette import INK, PAPER, QUIET, by_night

POINTS = 9  # points of each curve in a snapshot


def layout(drawing: Drawing) -> str:
    """Describe a drawing line by line: its texts, then each shape with its position and colour."""
    axes = drawing.figure.axes[0]
    lines = [drawing.alt, drawing.summary, "size " + place(drawing.figure.get_size_inches())]
    for text in axes.texts:
        weight = "bold " if text.get_weight() == "bold" else ""
        style = f"{text.get_fontsize():g} {weight}{text.get_ha()}"
        lines.append(f"text {place(text.get_position())} {style} {text.get_text()!r}")
    for patch in axes.patches:
        fill = to_hex(patch.get_facecolor()) if patch.get_facecolor()[3] else "none"
        if isinstance(patch, Rectangle):
            shape = f"{place(patch.get_xy())} {patch.get_width():.2f}×{patch.get_height():.2f}"
            lines.append(f"box {shape} {fill} {patch.get_linewidth():g}")
        elif isinstance(patch, FancyArrowPatch):
            lines.append("arrow " + " ".join(map(place, patch._posA_posB)))
        else:
            lines.append(f"shape {place(patch.get_path().vertices[0])} {fill}")
    for line in axes.lines:
        points = line.get_xydata()
        few = points[:: max(1, len(points) // POINTS)]
        style = f"{to_hex(line.get_color())} {line.get_linewidth():g} {line.get_linestyle()}"
        lines.append(f"line {style} {' '.join(map(place, few))}")
    return "\n".join(lines)


def place(point) -> str:
    x, y = (round(float(value), 2) + 0.0 for value in point)
    return f"{x:g},{y:g}"


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_that_of_its_snapshot(name, snapshot):
    assert layout(figure(name)) == snapshot


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (torch.eye(3), "the diagonal"),
        (torch.ones(2, 3), "all"),
        (torch.zeros(2, 2), "none"),
        (torch.ones(3, 3).tril(), "the lower triangle with the diagonal"),
        (torch.ones(3, 3).triu(), "the upper triangle with the diagonal"),
        (torch.tensor([[0, 0, 0], [1, 0, 1]]), "0: -; 1: 0, 2"),
    ],
)
def test_true_entries_names_a_shape_or_lists_the_columns(rows, said):
    assert true_entries(rows.bool().tolist(), "012"[: len(rows)], "012"[: rows.size(1)]) == said


def test_a_long_alt_text_falls_back_to_a_range_or_a_count():
    wide = torch.eye(40)
    assert "between 1.0000 and 1.0000." in draw.attention(wide, "query key", title=TITLE).alt
    mask = draw.tensor(wide.bool().roll(1, -1), "query key", title=TITLE)
    assert "40 of 1600 are True." in mask.alt
    moved = draw.influence(torch.rand(24, 24) > 0.5, title=TITLE)
    assert moved.alt.endswith("dots.")
    holes = draw.tensor([[-torch.inf, -1.0] + [3.0] * 24], "query key", title=TITLE)
    assert "Negative: 2; zero: 0; not finite: 1." in holes.alt


def test_equal_largest_weights_are_all_named():
    drawing = draw.attention([[0.4, 0.4, 0.2]], "query key", title=TITLE)
    assert drawing.alt.endswith("query 0: key 0, key 1 0.4000.")
    bold = [t.get_text() for t in drawing.figure.axes[0].texts if t.get_weight() == "bold"]
    assert bold == []


def test_summary_replaces_numbers_that_differ_between_machines():
    words = "the last loss is below 0.1"
    for drawing in (
        draw.curves({"loss": [1.0, 0.0521]}, title=TITLE, summary=words),
        draw.attention(torch.eye(2), "query key", title=TITLE, summary=words),
    ):
        assert drawing.summary == words and words in drawing.alt
        assert "0.0521" not in drawing.text()


def test_a_notebook_gets_one_picture_with_alt_text_and_the_numbers_folded(monkeypatch):
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda *args, **options: shown.append((args, options))
    )
    drawing = figure("tensor")
    drawing._ipython_display_()
    ((data,), options), ((folded,), _) = shown
    assert data["text/plain"] == drawing.alt
    assert stored(data) == (TITLE, drawing.alt, DATA + drawing.svg().replace("#", "%23"))
    assert stored(data).svg == drawing.svg()
    assert options == {"raw": True}
    assert folded["text/plain"] == drawing.summary
    assert folded["text/html"].startswith("<details><summary>")
    assert "1.6615" in folded["text/html"]


def test_a_saved_figure_is_reproducible_and_has_title_and_description(tmp_path):
    drawing, again = figure("tensor"), figure("tensor")
    assert drawing.svg() == again.svg() == again.svg()
    again.save(tmp_path / "tensor.svg")
    title, description, *shown = ElementTree.parse(tmp_path / "tensor.svg").getroot()
    assert (title.text, description.text) == (drawing.alt, drawing.text())
    tags = [part.tag for part in ElementTree.fromstring(drawing.svg())]
    assert [part.tag for part in shown] == tags
    with pytest.raises(ValueError, match=r"ends in .svg, not .*tensor.png$"):
        again.save(tmp_path / "tensor.png")


def test_svg_needs_no_font_and_no_other_file():
    svg = figure("tensor").svg()
    assert not re.search(r'<text|font|metadata|date|url\(|"', svg)
    assert set(re.findall(r"https?:[^']*", svg)) <= {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink",
    }  # fmt: skip


def test_every_colour_of_an_svg_has_another_one_on_dark_pages():
    svg = figure("matmul").svg()
    drawn, dark = svg.split("</style>", 1)[1], svg.split("</style>", 1)[0]
    shown = set(re.findall(r"(?:fill|stroke):#\w+", drawn))
    dark = dict(re.findall(r"\[style\*='(\w+:#\w+)'\]\{(.*?)!important\}", dark))
    assert shown == set(dark)
    assert dark[f"fill:{PAPER}"] == "fill:#121212"
    assert dark[f"fill:{INK}"] == f"fill:{by_night(INK)}"
    assert dark[f"stroke:{QUIET}"] == f"stroke:{by_night(QUIET, line=True)}"


def test_a_matplotlib_style_of_the_reader_changes_no_figure():
    kept = draw.tensor([1.0], "src", title=TITLE).svg()
    _width_of_line.cache_clear()
    with matplotlib.style.context(["dark_background", {"font.family": "monospace"}]):
        assert draw.tensor([1.0], "src", title=TITLE).svg() == kept


def test_a_dollar_sign_is_only_a_dollar_sign():
    drawing = draw.tensor([1.0], "src", title="$x_1$", labels={"src": [r"$\no_such_symbol$"]})
    assert drawing.svg()


@pytest.mark.parametrize(
    ("name", "arguments", "options", "error"),
    [
        ("tensor", (TWELVE, "src d_model"), {}, "'src d_model' has 2 names"),
        ("tensor", (torch.zeros(2, 0), "a b"), {}, r"1 to 100,000 numbers, got shape \(2, 0\)"),
        ("attention", (torch.zeros(1000, 101), "query key"), {}, r"got shape \(1000, 101\)"),
        ("matmul", (TWELVE[0], TWELVE[0]), {}, r"got \(2, 3\) and \(2, 3\)"),
        ("matmul", ([[1.0]], [[2.0]], [[3.0]]), {}, "product must be a @ b"),
        ("matmul", ([[1.0]], [[2.0]]), {"axes": "a b"}, "axes must be three names"),
        ("storage", (torch.zeros(7, 7),), {"axes": "a b"}, "at most 48 numbers, got 49"),
        ("storage", (torch.zeros(2),), {"axes": ["a", "b"]}, "each of 1 tensors, got 2 axes"),
        ("curves", ({},), {}, "1 to 6 curves, got 0"),
        ("curves", ({"a": [1.0, 2.0]},), {"x": [1, 2, 3]}, "got 2 values for 3 x"),
        ("curves", ({"a": [1.0, float("nan")]},), {}, "must be finite, got nan at 1"),
        ("curves", ({"a": [1.0, 0.0]},), {"log": True}, r"positive .*, got 0\.0 at 1"),
        ("groups", (TWELVE, "batch src d_model"), {}, "at least one method"),
        ("groups", (TWELVE, "batch src d_model", {"a": "seq"}), {}, "got 'seq'"),
        ("groups", (torch.zeros(27, 2), "seq d_model", {"a": "d_model"}), {}, "got 27"),
        ("groups", (torch.zeros(2, 13), "seq d_model", {"a": "d_model"}), {}, "at most 12, got"),
        ("bars", ({"a": {"x": -1}},), {}, "part 'x' of bar 'a' must be a length, got -1"),
        ("bars", ({},), {}, "at least one part"),
        ("rotation", (waves(3, 1),), {}, "at least 2 columns, got 1"),
        ("rotated_query", ([1.0, 0.0], [0.0, 0.0]), {}, r"key must be .* both 0, got \[0.0, 0.0\]"),
        ("rotated_query", ([1.0, 0.0, 0.0], [1.0, 0.0]), {}, "query must be two numbers"),
        ("influence", (torch.eye(3), [0, 1, 2], [0, 1, 2]), {}, "batch=2 .* got 3 labels"),
    ],
)
def test_a_figure_refuses_wrong_arguments(name, arguments, options, error):
    with pytest.raises(ValueError, match=error):
        getattr(draw, name)(*arguments, title=TITLE, **options)
