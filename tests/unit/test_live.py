"""Live figures: a drawing as ever, and below it a frame that holds one page and nothing else."""

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib")

from twelve_lab import draw
from twelve_lab.explorer.parts import PARTS, document, frame
from twelve_lab.explorer.program import Program

LARGEST = 100_000  # bytes of a page, before it is packed into a frame


class Read(HTMLParser):
    """What a browser finds in a frame: its tags with their attributes, and the words outside."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words += data


@pytest.fixture
def shown(monkeypatch):
    """What a notebook is given, one entry an output."""
    found = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: found.append(data))
    return found


def test_below_the_drawing_and_its_numbers_stands_the_frame(shown):
    still = draw.strip(4)
    live = draw.live("query", still)
    live._ipython_display_()
    picture, folded, framed = shown
    assert repr(live) == still.alt == picture["text/plain"]
    assert picture["text/html"] == still.html()
    assert folded["text/plain"] == still.summary
    # Text that stood here would be printed where no frame can be: the drawing has said it all.
    assert framed == {"text/html": frame("query")}


def test_an_unknown_part_is_named_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"no part 'qery'; there are walk, query, mask, stretch"):
        draw.live("qery", draw.strip(4))


@pytest.mark.parametrize("name", PARTS)
def test_a_frame_holds_the_page_of_its_part_and_may_do_nothing_but_run_it(name):
    style, holder, sentence, found = Read(frame(name)).tags
    assert (style[0], holder[0], sentence[0], found[0]) == ("style", "div", "p", "iframe")
    assert found[1]["srcdoc"] == document(name)
    assert found[1]["sandbox"] == "allow-scripts"
    assert found[1]["title"] == PARTS[name].title
    assert f"height:{PARTS[name].height}px" in found[1]["style"]
    # Where frames are taken away no room is kept for them.
    assert "style" not in holder[1]


def test_what_takes_frames_away_by_their_tags_leaves_a_sentence_alone():
    bare = re.sub(r"<style.*?</style>|<[^<]+?>", "", frame("mask"))
    assert bare == "Run this cell, and its numbers can be changed here."


@pytest.mark.parametrize("name", PARTS)
def test_the_page_of_a_part_is_small_and_alone(name):
    page = document(name)
    assert len(page.encode()) < LARGEST
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|@import|\burl\(", page.replace("http://www.w3.org/2000/svg", ""))


@pytest.mark.parametrize("name", PARTS)
def test_a_part_shows_tensors_of_its_run_and_says_what_to_do(name):
    part = PARTS[name]
    tensors = {tensor["name"]: tensor for tensor in Program(part.run()).data["tensors"]}
    for panel in part.panels:
        of = panel.get("of")
        assert (of is None) == (panel["panel"] in ("learn", "prediction"))
        if of is not None:
            shown = tensors[f"{of}.weights" if panel["panel"] == "attention" else of]
            sizes = dict(zip(shown["axes"], shown["shape"], strict=True))
            assert all(at in range(sizes[axis]) for axis, at in panel.get("fixed", {}).items())
    assert part.lead[-1] in ".?" and part.lead.count(".") + part.lead.count("?") == 1
