"""Tables in a notebook: structure, escaping, contrast, and the palette they share with figures."""

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import torch

from twelve_lab.show.format import format_tensor
from twelve_lab.show.palette import (
    AXIS_STYLES,
    COATS,
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


class Tags(HTMLParser):
    """Collects tags, their attributes, and whether each is closed in order."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_text_form_is_the_formatters_with_the_title_in_front():
    text = format_tensor(TWELVE, "batch src d_model", labels=WORDS)
    assert repr(show(TWELVE, "batch src d_model", labels=WORDS, title="x")) == f"x {text}"
    assert repr(show(TWELVE, "batch src d_model", labels=WORDS)) == text


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ("x", r"x must be a tensor, a nested list of numbers or an entry of a trace, not 'x'"),
        (None, "x must be a tensor, .*, not None"),
        ([[1.0], [1.0, 2.0]], "expected sequence of length 1"),
        (torch.ones(2, 3, device="meta"), r"x, of shape \(2, 3\), is on the meta device"),
        (torch.ones(2, dtype=torch.complex64), "x must hold real numbers, not torch.complex64"),
        (torch.ones(2), "axes is missing: name every axis"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_a_reason(x, message):
    with pytest.raises(ValueError, match=message):
        show(x)


def test_a_trace_entry_brings_its_name():
    entry = SimpleNamespace(value=TWELVE, axes=("batch", "src", "d_model"), name="src_input")
    assert repr(show(entry)).startswith("src_input (batch=2, src=2, d_model=3)\n")
    assert repr(show(entry, "batch seq d_model")).startswith("src_input (batch=2, seq=2, ")
    assert repr(show(entry, title="other")).startswith("other (batch=2, ")


def test_every_number_stands_in_a_cell_under_real_headers():
    parsed = Tags(show(TWELVE, "batch src d_model", labels=WORDS)._repr_html_())
    names = [tag for tag, _ in parsed.tags]
    assert names.count("table") == names.count("caption") == 2
    assert names.count("td") == 12 + 2 * 2
    assert {attrs["scope"] for tag, attrs in parsed.tags if tag == "th"} == {
        "col", "colgroup", "row", "rowgroup",
    }  # fmt: skip
    numbers = [text for text in parsed.text if re.fullmatch(r"\d\.\d{4}", text)]
    assert numbers == re.findall(r"\d\.\d{4}", format_tensor(TWELVE, "batch src d_model"))
    attributes = {name for _, attrs in parsed.tags for name in attrs}
    assert attributes == {"style", "scope", "colspan", "rowspan"}
    for axes in ("", "a", "a b", "a b c", "a b c d", "a b c d e"):
        mask = torch.zeros([2] * len(axes.split()), dtype=torch.bool)
        html = show(mask, axes)._repr_html_()
        assert not Tags(html).open and ")  · = False" in html


def test_labels_titles_and_axis_names_are_inert():
    evil = "<script>alert(1)</script>"
    labels = {"batch": [evil], "src": [evil, "<pad>"], "<b>": [evil]}
    html = show([[[1.0], [2.0]]], "batch src <b>", labels=labels, title=evil)._repr_html_()
    assert {tag for tag, _ in Tags(html).tags}.isdisjoint({"script", "b", "pad"})
    assert "&lt;script&gt;" in html and "&lt;pad&gt;" in html


def test_a_table_lies_on_the_paper_of_the_page_and_is_written_in_its_ink():
    html = show(TWELVE, "batch src d_model")._repr_html_()
    for tag, attrs in Tags(html).tags:
        if tag in ("table", "caption"):
            assert "color:inherit" in attrs["style"]
        if tag == "tr":
            assert attrs["style"] == "background:none"
    grounds = re.findall(r"background:([^;\"]+)", html)
    assert {"none"} < set(grounds)
    assert all(ground == "none" or ground.startswith("rgba(") for ground in grounds)
    assert not re.search(r"(?<![-\w])color:(?!inherit)", html)


def test_minus_infinity_is_hatched_and_named():
    html = show([[-torch.inf, 1.0]], "query key")._repr_html_()
    assert re.search(r"repeating-linear-gradient[^>]*>-inf<", html)
    assert re.search(
        r"background:rgba\(235,91,28,0\.55\)[^>]*>1\.0000<", html
    )  # the largest of what is finite


def test_each_leading_axis_has_its_bracket_and_each_matrix_its_name():
    html = show(TWELVE, "batch src d_model")._repr_html_()
    assert re.findall(r">([^<>]*)</caption>", html) == ["batch 0", "batch 1"]
    assert html.count("border-left:3px dotted #CC79A7;border-right:3px dotted #CC79A7") == 2
    html = show(torch.zeros(2, 3, 1, 1), "batch head query key")._repr_html_()
    assert html.count("border-left:3px dotted #CC79A7") == 2
    assert html.count("border-left:4px double #009E73") == 6
    assert "batch 1, head 2</caption>" in html


def test_only_the_matrix_that_is_pointed_at_is_shown_and_its_element_is_framed():
    lit = torch.zeros(2, 2, 3, dtype=torch.bool)
    lit[1, 0, 2] = True
    table = replace(Table.of(TWELVE, "batch src d_model"), lit=lit)
    html = Shown(table)._repr_html_()
    assert html.count("<table") == 1
    assert re.findall(r"<strong>([^<]*)</strong>", html) == ["0.4000"]
    assert html.count("box-shadow") == 1


# Text and paper of JupyterLab and of the book.
LIGHT, DARK = ("#323232", "#ffffff"), ("#ced6dd", "#121212")


def tinted(paper: str, value: float) -> str:
    """Lay the tint of a value over a paper."""
    *colour, strength = map(float, re.findall(r"[\d.]+", signed_tint(value, 1.0)))
    channels = [int(paper[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = (strength * c + (1 - strength) * p for c, p in zip(colour, channels, strict=True))
    return "#{:02x}{:02x}{:02x}".format(*map(round, mixed))


@pytest.mark.parametrize("share", [-1.0, -0.4, 0.0, 0.3, 1.0])
def test_text_is_readable_on_every_shade(share):
    for fill in (signed_fill(share, 1.0), weight_fill(abs(share))):
        assert contrast(INK, fill) >= 4.5
        assert contrast(by_night(INK), by_night(fill)) >= 4.5
    for text, paper in (LIGHT, DARK):
        assert contrast(text, tinted(paper, share)) >= 4.5


def test_by_night_light_and_dark_change_places_and_hues_stay():
    assert (by_night("#ffffff"), by_night("#000000")) == ("#121212", "#ffffff")
    # By hand: the middle of this orange is 0.45, that of its other colour 0.4992.
    assert by_night("#e69f00") == "#f2ab0c"
    assert {by_night(coat, line=True) for coat in COATS.values()} == set(COATS.values())
    assert by_night("#56b4e9") == "#0b699e" and by_night("#56b4e9", line=True) == "#2987bc"


def test_the_line_of_every_axis_stands_out_from_dark_paper():
    for style in {*AXIS_STYLES.values(), NEUTRAL}:
        assert contrast(by_night(style.colour, line=True), by_night(PAPER)) >= 3


def test_shades_are_symmetric_about_a_white_zero():
    assert signed_fill(0.0, 1.0) == signed_fill(1.0, 0.0) == signed_fill(torch.nan, 1.0) == PAPER
    assert signed_fill(2.0, 2.0) == signed_fill(0.5, 0.5) == "#f4a582"
    assert signed_fill(-2.0, 2.0) == "#92c5de"
    assert signed_tint(-3.0, 2.0) == "rgba(57,150,195,0.55)"
    assert signed_tint(1.0, 0.0) == "rgba(235,91,28,0.00)"
    assert tinted(PAPER, 1.0) == "#f4a582"
    assert (weight_fill(0.0), weight_fill(1.0)) == (PAPER, "#969696")
    assert (signed_fill(3.0, 2.0), weight_fill(1 + 1e-9)) == ("#f4a582", "#969696")


def test_a_shade_by_hand():
    # 0.11 of the way is 0.275 of the first part, from (255, 255, 255) to (253, 219, 199).
    assert signed_fill(0.11, 1.0) == f"#{254:02x}{245:02x}{240:02x}"
    # 0.05 gives 250.5 for the second: a tie goes up, whatever the last bits of the value say.
    assert signed_fill(0.05, 1.0) == f"#{255:02x}{251:02x}{248:02x}"


def test_axes_have_the_colours_of_the_style_guide():
    assert axis_style("batch")[:2] == ("#CC79A7", "dotted")
    assert axis_style("query") == axis_style("tgt")
    assert axis_style("key") == axis_style("src")
    assert axis_style("head*d_k") == axis_style("d_k") == axis_style("d_v")
    assert axis_style("vocab")[:2] == ("#000000", "dashdot")
    assert axis_style("anything") == NEUTRAL
    assert axis_style("head").css == "4px double #009E73"
    assert axis_style("vocab").css == "1px dashed currentColor"  # seen on dark pages too


def test_no_two_axes_differ_by_colour_alone():
    signs = {(style.line, style.width) for style in AXIS_STYLES.values()}
    solid_and_wide = {axis_style("tgt"), axis_style("d_model")}
    assert len(signs) == len(set(AXIS_STYLES.values())) - len(solid_and_wide) + 1


@pytest.mark.slow
def test_loading_the_lab_does_not_load_matplotlib():
    code = (
        "import sys, twelve_lab.show.show, twelve_lab.draw; "
        "assert 'matplotlib' not in sys.modules; "
        "twelve_lab.draw.strip('04').svg(); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_words_of_each_sentence_cannot_name_the_columns_where_sentences_are_the_rows():
    text = repr(show(torch.ones(2, 2), "batch tgt", labels={"tgt": [["a", "b"], ["c", "d"]]}))
    assert text.splitlines()[1].split() == ["tgt", "0", "1"]
