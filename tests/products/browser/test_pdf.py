"""The PDF: contents with page numbers, bookmarks and tags. A weekly test prints the whole book."""

from contextlib import nullcontext

import pikepdf
import pytest

from tests.products.browser.conftest import ROOT
from tools import write_book, write_pdf

ONE = """# One

Words, and [the other](two.md#a-topic-of-two).

$$ a^2 + b^2 = c^2 $$

<details><summary>Hint 1</summary>
<p>Look again.</p>
</details>
"""
TWO = "# Two\n\n## A topic of two\n\n" + "Many words. " * 900
FEW = {"The lessons": ["docs/one", "docs/two"]}


def few(root, bound):
    """Yield the pages of a book of two chapters; replaces `tools.write_book.pages`."""
    assert bound
    lists = f"{write_book._contents(FEW)}{write_book._chapters(FEW)}"
    yield "course.md", f"# Twelve Numbers\n\nWords.\n\n{lists}"
    yield "docs/one.md", ONE
    yield "docs/two.md", TWO


@pytest.fixture(scope="module")
def small(browser, tmp_path_factory):
    file = tmp_path_factory.mktemp("pdf") / "small.pdf"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(file.parent)
        patch.setattr(write_book, "pages", few)
        patch.setattr(write_book, "downloads", lambda root: {})
        patch.setattr(write_pdf.browser, "launched", lambda: nullcontext(browser))
        write_pdf.write(file)
    return file


def titles(file) -> list[str]:
    with pikepdf.open(file) as pdf, pdf.open_outline() as outline:
        waiting, names = [*outline.root], []
        while waiting:
            mark = waiting.pop(0)
            names.append(mark.title)
            waiting = [*mark.children, *waiting]
    return names


def test_pdf_has_bookmarks_tags_a_language_and_a_title(small):
    assert titles(small) == ["Twelve Numbers", "One", "Two", "A topic of two"]
    with pikepdf.open(small) as pdf:
        assert pdf.Root.MarkInfo.Marked and str(pdf.Root.Lang) == "en"
        assert str(pdf.docinfo.Title).startswith("Twelve Numbers")
        assert len(pdf.pages) >= 6


def test_contents_name_the_page_of_each_chapter(small):
    with pikepdf.open(small) as pdf:
        places = {page.objgen: place for place, page in enumerate(pdf.pages, 1)}
        chapters = {
            name: places[pdf.Root.Dests[name][0].objgen]
            for name in pdf.Root.Dests
            if name.startswith("/document-docs")
        }
    assert chapters == {"/document-docs/one": 3, "/document-docs/two": 4}


def test_text_outside_the_tags_is_an_artifact(small):
    with pikepdf.open(small) as pdf:
        depth = 0
        for instruction in pikepdf.parse_content_stream(pdf.pages[3]):
            operator = str(instruction.operator)
            depth += (operator in ("BMC", "BDC")) - (operator == "EMC")
            assert depth or operator not in ("Tj", "TJ")


def test_page_numbers_need_a_page(small):
    with pytest.raises(ValueError, match="the contents link to nowhere, which is on no page"):
        write_pdf.page_numbers(small, ["nowhere"])


def test_write_refuses_a_folder(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path.name} must be a file, got a folder"):
        write_pdf.write(tmp_path)


@pytest.mark.weekly
def test_whole_book_has_a_bookmark_for_every_chapter():
    file = ROOT / write_pdf.PDF
    assert file.exists(), f"{file.name} is missing: run make pdf"
    names = titles(file)
    for name in ("04 Attention", "04 Workshop: attention", "Glossary", "Reference"):
        assert name in names
