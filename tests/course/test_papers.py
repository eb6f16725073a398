"""What the notebooks cite can be read: the book makes a link of each paper."""

import re
from pathlib import Path

import nbformat
import pytest

from tests.course.notebook_rules import prose
from tools.papers import PAPERS, linked
from twelve_lab.course import pages

ROOT = Path(__file__).parents[2]
PAGES = pages(ROOT)
VASWANI, HE = "https://arxiv.org/abs/1706.03762", "https://arxiv.org/abs/1512.03385"
# Somebody, perhaps others, and a year.
CITED = re.compile(r"[A-Z]\w+ (?:et al\.|and [A-Z]\w+),? \(?(?:19|20)\d\d")
LINK = re.compile(r"\[[^\]]*\]\(https://[^)]+\)")


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("equation 1 (Vaswani et al., 2017):", f"equation 1 ([Vaswani et al., 2017]({VASWANI})):"),
        ("of He et al. (2015), where", f"of [He et al. (2015)]({HE}), where"),
        ("He et al., 2016", "He et al., 2016"),
        ("*Attention Is All You Need*", f"[*Attention Is All You Need*]({VASWANI})"),
    ],
)
def test_authors_and_titles_become_links(text, link):
    assert linked(text) == link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_paper_that_a_notebook_cites_is_a_link(path):
    text = prose(nbformat.read(path, as_version=4))
    assert CITED.findall(LINK.sub("", linked(text))) == []


def test_every_paper_of_the_list_is_cited():
    texts = [linked(prose(nbformat.read(path, as_version=4))) for path in PAGES]
    assert [address for address in PAPERS if f"]({address})" not in "".join(texts)] == []
