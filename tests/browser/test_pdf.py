"""The book as one file to print: chapters, bookmarks, links and tags."""

from itertools import pairwise
from pathlib import Path

import pikepdf
import pytest

from tests.browser.conftest import ROOT
from tools import write_pdf
from twelve.lab.steps import STEPS

# The width of what is printed, 180 mm, in the pixels of the page.
PAPER = round(180 / 25.4 * 96 / write_pdf.SCALE)


@pytest.fixture(scope="module")
def pdf():
    file = ROOT / write_pdf.PDF
    assert file.exists(), f"{file.name} is missing: run make pdf"
    with pikepdf.open(file) as opened:
        yield opened


@pytest.fixture(scope="module")
def chapters(pdf):
    """The bookmarks below the title of the book."""
    with pdf.open_outline() as outline:
        (book,) = outline.root
        assert book.title == "Twelve Numbers"
        return list(book.children)


@pytest.fixture(scope="module")
def number(pdf):
    """Number the page that a destination names, from 0."""
    places = {page.objgen: place for place, page in enumerate(pdf.pages)}
    return lambda destination: places[destination[0].objgen]


def test_each_notebook_is_a_chapter_in_reading_order(chapters):
    titles = [f"{step.number} {step.title[0].upper()}{step.title[1:]}" for step in STEPS]
    found = [chapter.title for chapter in chapters]
    assert [title.casefold() for title in found[1:19]] == [title.casefold() for title in titles]
    assert found[0] == "The course"
    assert {"Glossary", "Reference", "Troubleshooting"} <= set(found[19:])
    assert len(found) == len(set(found))


def test_each_chapter_begins_on_a_page_of_its_own(chapters, number):
    starts = [number(chapter.destination) for chapter in chapters]
    assert starts[0] == 1
    assert all(before < after for before, after in pairwise(starts))


def test_the_bookmarks_of_a_notebook_are_its_headings(chapters):
    masks = next(chapter for chapter in chapters if chapter.title == "05 Masks")
    sections = [section.title for section in masks.children]
    assert sections[0] == "Where we are"
    assert "Recap and next" in sections
    steps = next(section for section in masks.children if section.title == "Step by step")
    assert "A fully masked row" in [step.title for step in steps.children]


def test_every_link_leads_into_the_file_or_to_an_address(pdf):
    names = set(pdf.Root.Dests.keys())
    links = [link for page in pdf.pages for link in page.get("/Annots", [])]
    inside = [str(link.Dest) for link in links if "/Dest" in link]
    outside = [str(link.A.URI) for link in links if "/A" in link]
    assert len(inside) > 900
    assert {f"/{name.removeprefix('/')}" for name in inside} <= names
    assert [address for address in outside if not address.startswith("https://")] == []


def test_a_link_leads_into_the_chapter_that_it_names(pdf, chapters, number):
    starts = [number(chapter.destination) for chapter in chapters] + [len(pdf.pages)]
    checked = 0
    for place, step in enumerate(STEPS, 1):
        prefix = f"/notebooks-{Path(step.notebook).stem}-"
        for name, destination in pdf.Root.Dests.items():
            if name.startswith(prefix):
                checked += 1
                assert starts[place] <= number(destination) < starts[place + 1], name
    assert checked > 150


def test_a_screen_reader_is_told_the_language_and_the_headings(pdf):
    assert str(pdf.Root.Lang) == "en"
    assert bool(pdf.Root.MarkInfo.Marked)
    assert str(pdf.docinfo.Title) == "Twelve Numbers"


def test_nothing_is_cut_at_the_edge_of_the_paper(browser):
    page = browser.new_page(viewport={"width": PAPER, "height": 1100})
    page.set_default_timeout(write_pdf.PATIENCE)
    page.goto((ROOT / write_pdf.ONE_PAGE / "index.html").as_uri())
    page.evaluate("MathJax.startup.promise.then(() => true)")
    page.emulate_media(media="print")
    cut = page.eval_on_selector_all(
        "main pre, main table",
        "all => all.filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.textContent.slice(0, 60))",
    )
    over = "(e) => e.firstElementChild.getBoundingClientRect().width > e.clientWidth + 1"
    equations = 'mjx-container[display="true"]'
    assert page.locator(equations).count() > 40
    too_wide = f"all => all.filter({over}).length"
    assert page.eval_on_selector_all(equations, too_wide) == 0
    page.close()
    assert cut == []


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path.name} is a folder, and a file is needed"):
        write_pdf.write(tmp_path)
