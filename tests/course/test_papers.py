"""Every paper that a notebook cites is a link in the book."""

import re
from pathlib import Path

import nbformat
import pytest

from tests.course.notebook_rules import prose
from tools.papers import PAPERS, linked
from twelve_lab.course import pages

PAGES = {path: linked(prose(nbformat.read(path, 4))) for path in pages(Path(__file__).parents[2])}
CITED = re.compile(r"[A-Z]\w+ (?:et al\.|and [A-Z]\w+),? \(?(?:19|20)\d\d")
LINK = re.compile(r"\[[^\]]*\]\(https://[^)]+\)")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_paper_that_a_notebook_cites_is_a_link(path):
    assert CITED.findall(LINK.sub("", PAGES[path])) == []


def test_every_paper_of_the_list_is_cited():
    text = "".join(PAGES.values())
    assert [address for address in PAPERS if f"]({address})" not in text] == []
