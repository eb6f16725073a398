"""Prints the course as one PDF, with bookmarks.

Usage: python -m tools.write_pdf [FILE]

FILE is build/twelve-numbers.pdf if none is named.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pikepdf
from playwright.sync_api import Page

from tools import browser, write_book

PDF = Path("build/twelve-numbers.pdf")
# The pages as one page, before it is printed.
ONE_PAGE = Path("build/book-one-page")
MARGINS = {"top": "16mm", "bottom": "18mm", "left": "15mm", "right": "15mm"}
SCALE = 0.8
FOOTER = (
    '<div style="font-size: 8px; width: 100%; text-align: center; font-family: sans-serif">'
    '<span class="pageNumber"></span> / <span class="totalPages"></span></div>'
)
PATIENCE = 600_000  # milliseconds; hundreds of equations are typeset before the first page
# What lies beside the pages does not come along.
UNLINKED = "document.querySelectorAll('a.download').forEach((a) => a.removeAttribute('href'))"
# On paper nothing can be opened: answers and hints are, and what a figure says in words goes.
UNFOLDED = """document.querySelectorAll("details").forEach((folded) => {
  if (/the figure in words/.test(folded.querySelector("summary").textContent)) folded.remove();
  else folded.open = true;
})"""
# What is printed of the headings, without the sign that links to each.
HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .filter((heading) => heading.offsetParent)
  .map((heading) => {
    const copy = heading.cloneNode(true);
    copy.querySelectorAll(".headerlink").forEach((link) => link.remove());
    return copy.textContent.trim();
  })"""


def write(file: Path) -> None:
    """Print the pages as Chromium shows them, the equations typeset.

    Args:
        file: Where to.

    Raises:
        ValueError: If the pages cannot be written, or nothing on them was typeset.
        OSError: If there is no browser, or something cannot be read or written.
    """
    if file.is_dir():
        raise ValueError(f"{file} is a folder, and a file is needed")
    write_book.write(ONE_PAGE, "singlehtml")
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.new")
    with browser.launched() as running:
        page = running.new_page(color_scheme="light")
        page.set_default_timeout(PATIENCE)
        page.goto((ONE_PAGE / "index.html").resolve().as_uri())
        headings = _print(page, aside)
    with pikepdf.open(aside, allow_overwriting_input=True) as pdf:
        _name(pdf, headings)
        # As small as a third: Chromium leaves the tags, which say what is a heading, unpacked.
        pdf.save(object_stream_mode=pikepdf.ObjectStreamMode.generate)
    os.replace(aside, file)


def _print(page: Page, file: Path) -> list[str]:
    """Print a page, and give its headings."""
    page.evaluate("MathJax.startup.promise.then(() => true)")
    if not page.locator("mjx-container svg").count():
        raise ValueError("no equation was typeset: the PDF would show TeX")
    page.evaluate(UNLINKED)
    page.evaluate(UNFOLDED)
    page.emulate_media(media="print")
    page.pdf(
        path=file, format="A4", margin=MARGINS, outline=True, tagged=True, scale=SCALE,
        print_background=True, display_header_footer=True, header_template="<span></span>",
        footer_template=FOOTER,
    )  # fmt: skip
    return page.evaluate(HEADINGS)


def _name(pdf: pikepdf.Pdf, headings: Sequence[str]) -> None:
    """Name the bookmarks as the headings: Chromium writes some of them twice in a row."""
    with pdf.open_outline() as outline:
        bookmarks = list(_in_order(outline.root))
        if len(bookmarks) != len(headings):
            raise ValueError(f"{len(bookmarks)} bookmarks for {len(headings)} headings")
        for bookmark, heading in zip(bookmarks, headings, strict=True):
            bookmark.title = heading
    pdf.docinfo["/Title"] = "Twelve Numbers"


def _in_order(bookmarks: Sequence[pikepdf.OutlineItem]) -> Iterator[pikepdf.OutlineItem]:
    for bookmark in bookmarks:
        yield bookmark
        yield from _in_order(bookmark.children)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=PDF, metavar="FILE")
    place = parser.parse_args().file
    try:
        write(place)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"written: {place}")
