"""Live figures: a drawing and below it a sandboxed frame with one page."""

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from twelve_lab import draw
from twelve_lab.explorer.parts import PARTS, document, frame

LARGEST = 100_000  # bytes of a page, before it is packed into a frame


def test_live_displays_the_drawing_its_numbers_and_the_frame(monkeypatch):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    still = draw.bars({"a": {"b": 1}}, title="A bar", unit="numbers")
    live = draw.live("query", still)
    live._ipython_display_()
    picture, folded, framed = outputs
    assert repr(live) == still.alt == picture["text/plain"]
    assert picture["text/html"] == still.html() and folded["text/plain"] == still.summary
    # Without frames, plain text would appear here, but the drawing has said it all.
    assert framed == {"text/html": frame("query")}
    # Where all tags are removed, as on GitHub, one sentence remains.
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
    assert "style" not in holder.attrib  # a removed frame leaves no gap
    attributes = iframe.attrib
    # XML reads a line break in an attribute as a blank.
    assert attributes["srcdoc"] == page.replace("\n", " ")
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["title"] == part.title
    assert f"height:{part.height}px" in attributes["style"]
