"""show: tables in a notebook, and the palette that they share with figures."""

import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch

from twelve_lab.show.format import format_tensor
from twelve_lab.show.palette import (
    AXIS_STYLES,
    INK,
    NEUTRAL,
    PAPER,
    axis_style,
    by_night,
    contrast,
    signed_fill,
    signed_tint,
    weight_fill,
)
from twelve_lab.show.show import Shown, show
from twelve_lab.show.table import Table

TWELVE = torch.tensor(
    [[[0, 1, 0], [1.661471, 0.690302, 0.362154]], [[0.7, 1.2, 0.4], [1.441471, 0.840302, 0.502154]]]
)
WORDS = {"src": [["<pad>", "cat"], ["dog", "fish"]]}


def test_show_prints_the_formatted_tensor_after_its_title():
    text = format_tensor(TWELVE, "batch src d_model", labels=WORDS)
    assert repr(show(TWELVE, "batch src d_model", labels=WORDS)) == text
    assert repr(show(TWELVE, "batch src d_model", labels=WORDS, title="x")) == f"x {text}"
    entry = SimpleNamespace(value=TWELVE, axes=("batch", "src", "d_model"), name="src_input")
    assert repr(show(entry)).startswith("src_input (batch=2, src=2, d_model=3)\n")
    assert repr(show(entry, "batch seq d_model", title="y")).startswith("y (batch=2, seq=2, ")


BAD_INPUT = [
    (
        "x",
        None,
        {},
        r"x must be a tensor, a nested list of numbers or an entry of a trace, not 'x'",
    ),
    (None, None, {}, "x must be a tensor, .*, not None"),
    ([[1.0], [1.0, 2.0]], None, {}, "expected sequence of length 1"),
    (torch.ones(2, 3, device="meta"), None, {}, r"x, of shape \(2, 3\), is on the meta device"),
    (torch.ones(2, dtype=torch.complex64), None, {}, "x must hold real numbers, not .*complex64"),
    (torch.ones(2, dtype=torch.uint64), None, {}, "x must hold real numbers, not torch.uint64"),
    (TWELVE, "src d_model", {}, r"'src d_model' has 2 names.*3 axes.*\(2, 2, 3\)"),
    (TWELVE, None, {}, "axes is missing"),
    ([[1, 2]], "batch 1", {}, "axis '1' of 'batch 1' has size 2"),
    (TWELVE[0], "src d", {"src": ["a"] * 3}, r"labels\['src'\] has 3 names, but axis src"),
    (TWELVE[0], "src d", {"src": []}, r"labels\['src'\] has 0 names, but axis src"),
    (TWELVE[0], "src d", WORDS, r"labels\['src'\] has 2 lists.*no batch axis"),
]


@pytest.mark.parametrize(("x", "axes", "labels", "message"), BAD_INPUT)
def test_show_and_format_tensor_reject_bad_input(x, axes, labels, message):
    for write in (show, format_tensor):
        with pytest.raises(ValueError, match=message):
            write(x, axes, labels=labels)


def test_show_rejects_decimals_that_cannot_be_written():
    with pytest.raises(ValueError, match=r"decimals must be an integer from 0 to 20 .*, got -1"):
        show([1.0], "n", decimals=-1)


def test_show_writes_a_sparse_tensor_as_a_dense_one():
    eye = torch.eye(2)
    assert repr(show(eye.to_sparse(), "row column")) == repr(show(eye, "row column"))


def test_html_table_has_every_number_real_headers_and_the_colours_of_the_page():
    page = ElementTree.fromstring(show(TWELVE, "batch src d_model", labels=WORDS)._repr_html_())
    assert len([*page.iter("table")]) == len([*page.iter("caption")]) == 2
    assert {th.get("scope") for th in page.iter("th")} == {"col", "colgroup", "row", "rowgroup"}
    numbers = [text for text in page.itertext() if re.fullmatch(r"\d\.\d{4}", text)]
    assert numbers == re.findall(r"\d\.\d{4}", format_tensor(TWELVE, "batch src d_model"))
    for element in page.iter():
        assert element.attrib.keys() <= {"style", "scope", "colspan", "rowspan"}
        style = element.get("style", "")
        grounds = re.findall(r"background:([^;]+)", style)
        assert all(ground == "none" or ground.startswith("rgba(") for ground in grounds)
        assert not re.search(r"(?<![-\w])color:(?!inherit)", style)
        assert element.tag not in ("table", "caption") or "color:inherit" in style


@pytest.mark.parametrize("count", range(6))
def test_html_table_closes_its_tags_at_any_number_of_axes(count):
    html = show(torch.zeros([2] * count, dtype=torch.bool), "a b c d e"[: 2 * count])._repr_html_()
    assert ElementTree.fromstring(html) and ")  · = False" in html


def test_html_table_escapes_labels_titles_and_axis_names():
    evil = "<script>alert(1)</script>"
    labels = {"batch": [evil], "src": [evil, "<pad>"], "<b>": [evil]}
    html = show([[[1.0], [2.0]]], "batch src <b>", labels=labels, title=evil)._repr_html_()
    tags = {element.tag for element in ElementTree.fromstring(html).iter()}
    assert tags.isdisjoint({"script", "b", "pad"})
    assert "&lt;script&gt;" in html and "&lt;pad&gt;" in html


def test_html_table_marks_minus_infinity_axes_and_the_lit_element():
    html = show([[-torch.inf, 1.0]], "query key")._repr_html_()
    assert re.search(r"repeating-linear-gradient[^>]*>-inf<", html)
    # The largest finite value has the darkest colour.
    assert re.search(r"background:rgba\(235,91,28,0\.55\)[^>]*>1\.0000<", html)
    html = show(torch.zeros(2, 3, 1, 1), "batch head query key")._repr_html_()
    assert html.count("border-left:3px dotted #CC79A7") == 2
    assert html.count("border-left:4px double #009E73") == 6
    assert "batch 1, head 2</caption>" in html
    lit = torch.zeros(2, 2, 3, dtype=torch.bool)
    lit[1, 0, 2] = True
    html = Shown(replace(Table.of(TWELVE, "batch src d_model"), lit=lit))._repr_html_()
    assert html.count("<table") == html.count("box-shadow") == 1
    assert re.findall(r"<strong>([^<]*)</strong>", html) == ["0.4000"]


# Text and background colours in JupyterLab and in the book.
LIGHT, DARK = ("#323232", "#ffffff"), ("#ced6dd", "#121212")


def tinted(paper: str, value: float) -> str:
    """Blend the tint of a value with a background, and return the colour."""
    *colour, strength = map(float, re.findall(r"[\d.]+", signed_tint(value, 1.0)))
    channels = [int(paper[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = (strength * c + (1 - strength) * p for c, p in zip(colour, channels, strict=True))
    return "#{:02x}{:02x}{:02x}".format(*map(round, mixed))


@pytest.mark.parametrize("share", [-1.0, -0.4, 0.0, 0.3, 1.0])
def test_text_is_readable_on_every_fill(share):
    for fill in (signed_fill(share, 1.0), weight_fill(abs(share))):
        assert contrast(INK, fill) >= 4.5
        assert contrast(by_night(INK), by_night(fill)) >= 4.5
    for text, paper in (LIGHT, DARK):
        assert contrast(text, tinted(paper, share)) >= 4.5


def test_axes_have_the_colours_of_the_style_guide():
    assert axis_style("batch")[:2] == ("#CC79A7", "dotted")
    assert axis_style("query") == axis_style("tgt") and axis_style("key") == axis_style("src")
    assert axis_style("head*d_k") == axis_style("d_k") == axis_style("d_v")
    assert axis_style("anything") == NEUTRAL
    assert axis_style("head").css == "4px double #009E73"
    assert axis_style("vocab").css == "1px dashed currentColor"  # visible on dark pages too
    for style in {*AXIS_STYLES.values(), NEUTRAL}:
        assert contrast(by_night(style.colour, line=True), by_night(PAPER)) >= 3


def test_no_two_axes_differ_by_colour_alone():
    signs = {(style.line, style.width) for style in AXIS_STYLES.values()}
    solid_and_wide = {axis_style("tgt"), axis_style("d_model")}
    assert len(signs) == len(set(AXIS_STYLES.values())) - len(solid_and_wide) + 1


@pytest.mark.slow
def test_loading_the_lab_does_not_load_matplotlib():
    code = (
        "import sys, twelve_lab.show.show, twelve_lab.draw; "
        "assert 'matplotlib' not in sys.modules; "
        "twelve_lab.draw.bars({'a': {'b': 1}}, title='t', unit='u').svg(); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
