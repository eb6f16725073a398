"""Live figures: a drawing with a sandboxed iframe below it."""

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from twelve_lab import draw
from twelve_lab.explorer.parts import PARTS, document, frame

LARGEST = 100_000  # upper bound for a page in bytes, before escaping


def test_live_displays_the_drawing_its_numbers_and_the_frame(monkeypatch):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    still = draw.bars({"a": {"b": 1}}, title="A bar", unit="numbers")
    live = draw.live("query", still)
    live._ipython_display_()
    picture, folded, framed = outputs
    assert repr(live) == still.alt == picture["text/plain"]
    assert picture["text/html"] == still.html() and folded["text/plain"] == still.summary
    # The iframe has no plain-text fallback, because the drawing already has one.
    assert framed == {"text/html": frame("query")}
    # If all tags are stripped, as on GitHub, one sentence remains.
    bare = re.sub(r"<style.*?</style>|<[^<]+?>", "", frame("query"))
    assert re.fullmatch("[^.]+[.]", bare)
    with pytest.raises(ValueError, match=r"no part 'qery'; there are walk, query, mask, stretch"):
        draw.live("qery", still)


@pytest.mark.parametrize("name", PARTS)
def test_live_part_has_a_small_sandboxed_page_without_the_network(name):
    page, part = document(name), PARTS[name]
    assert len(page.encode()) < LARGEST
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|@import|\burl\(", page.replace("http://www.w3.org/2000/svg", ""))
    _, style, holder, iframe = ElementTree.fromstring(f"<p>{frame(name)}</p>").iter()
    assert (style.tag, holder.tag, iframe.tag) == ("style", "div", "iframe")
    assert "style" not in holder.attrib  # a stripped iframe leaves no gap
    attributes = iframe.attrib
    # An XML parser turns a line break in an attribute into a space.
    assert attributes["srcdoc"] == page.replace("\n", " ")
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["title"] == part.title
    assert f"height:{part.height}px" in attributes["style"]
