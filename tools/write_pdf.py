"""Print the course as one PDF with contents, page numbers and bookmarks.

Usage: python -m tools.write_pdf [FILE]

FILE is build/twelve-numbers.pdf by default. Sphinx writes one page, and Chromium prints it.
"""

import os
import sys
from pathlib import Path

import pikepdf
from pikepdf import Operator
from playwright.sync_api import Page

from tools import browser, write_book
from tools.command import run

PDF = Path("build/twelve-numbers.pdf")
ONE_PAGE = Path("build/book-one-page")
SCALE = 0.8
TIMEOUT = 600_000  # milliseconds; thousands of equations are typeset before the first page
# Paper is not interactive: expand all collapsed parts, and remove the live parts below figures.
PREPARE = """() => {
  document.querySelectorAll("iframe, div.live").forEach((part) => part.remove());
  for (const part of document.querySelectorAll("details")) {
    if (part.textContent.startsWith("the figure in words")) part.remove();
    else part.open = true;
  }
  // An empty anchor before a heading would stay on the page before it.
  for (const anchor of document.querySelectorAll("span[id]:empty")) {
    if (anchor.nextElementSibling?.matches("section")) anchor.nextElementSibling.prepend(anchor);
  }
  return [...document.querySelectorAll(".book-contents a")].map((link) => link.hash.slice(1));
}"""
NUMBER = """(numbers) => {
  for (const link of document.querySelectorAll(".book-contents a[href^='#']")) {
    link.dataset.page = numbers[link.hash.slice(1)] ?? "000";
  }
}"""
HEADINGS = "all => all.map((heading) => heading.innerText.trim())"
MARKED = {Operator("BMC"), Operator("BDC")}
STARTS = {Operator(name) for name in ("BT", "m", "re")}
ENDS = {Operator(name) for name in ("ET", "f", "F", "f*", "S", "s", "B", "B*", "b", "b*", "n")}


def write(file: Path) -> list[str]:
    """Print the book twice: the first pass yields the page numbers of the table of contents.

    Args:
        file: Destination.

    Raises:
        ValueError: If the pages cannot be written, or a link in the table of contents is broken.
        OSError: If Chromium is missing, or something cannot be read or written.
    """
    if file.is_dir():
        raise ValueError(f"{file} must be a file, got a folder")
    write_book.write(ONE_PAGE, "singlehtml")
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.new")
    with browser.launched() as running:
        page = running.new_page(color_scheme="light")
        listed = prepare(page)
        headings = page.locator("h1, h2, h3, h4, h5, h6").evaluate_all(HEADINGS)
        page.evaluate(NUMBER, {})
        _print(page, draft, tagged=False)
        page.evaluate(NUMBER, page_numbers(draft, listed))
        _print(page, draft, tagged=True)
    with pikepdf.open(draft, allow_overwriting_input=True) as pdf:
        for printed in pdf.pages:
            _mark_artifacts(pdf, printed)
        with pdf.open_outline() as outline:
            _name(outline.root, {heading.replace(" ", ""): heading for heading in headings})
        pdf.Root.PageMode = pikepdf.Name.UseOutlines
        # This reduces the file to a third, because Chromium does not compress the tags.
        pdf.save(object_stream_mode=pikepdf.ObjectStreamMode.generate)
    os.replace(draft, file)
    return [f"written: {file}"]


def prepare(page: Page) -> list[str]:
    """Prepare the page for printing, and return the anchors in its table of contents.

    Args:
        page: An empty tab.

    Raises:
        ValueError: If no equation was typeset.
    """
    page.set_default_timeout(TIMEOUT)
    page.goto((ONE_PAGE / "course.html").resolve().as_uri())
    page.evaluate("MathJax.startup.promise.then(() => true)")
    if not page.locator("mjx-container svg").count():
        raise ValueError("no equation was typeset: the PDF would show TeX")
    page.emulate_media(media="print")
    return page.evaluate(PREPARE)


def page_numbers(file: Path, anchors: list[str]) -> dict[str, int]:
    """Return the page number of each anchor, counted from 1.

    Args:
        file: A PDF printed by Chromium.
        anchors: The targets of the links.

    Raises:
        ValueError: If an anchor is missing from the file.
    """
    with pikepdf.open(file) as pdf:
        places = {page.objgen: place for place, page in enumerate(pdf.pages, 1)}
        missing = [anchor for anchor in anchors if f"/{anchor}" not in pdf.Root.Dests]
        if missing:
            raise ValueError(f"the contents link to {missing[0]}, which is on no page")
        return {anchor: places[pdf.Root.Dests[f"/{anchor}"][0].objgen] for anchor in anchors}


def _print(page: Page, file: Path, *, tagged: bool) -> None:
    page.pdf(
        path=file, prefer_css_page_size=True, scale=SCALE, print_background=True,
        outline=tagged, tagged=tagged,
    )  # fmt: skip


def _name(bookmarks: list[pikepdf.OutlineItem], headings: dict[str, str]) -> None:
    """Restore the space that Chromium drops when a heading wraps to the next line."""
    for bookmark in bookmarks:
        bookmark.title = headings.get(bookmark.title.replace(" ", ""), bookmark.title)
        _name(bookmark.children, headings)


def _mark_artifacts(pdf: pikepdf.Pdf, page: pikepdf.Page) -> None:
    """Mark untagged page numbers and backgrounds, which a screen reader would read out."""
    begin = pikepdf.ContentStreamInstruction([pikepdf.Name.Artifact], Operator("BMC"))
    end = pikepdf.ContentStreamInstruction([], Operator("EMC"))
    depth, inside, instructions = 0, False, []
    for instruction in pikepdf.parse_content_stream(page):
        operator = instruction.operator
        if not depth and not inside and operator in STARTS:
            instructions.append(begin)
            inside = True
        instructions.append(instruction)
        if inside and operator in ENDS:
            instructions.append(end)
            inside = False
        depth += (operator in MARKED) - (operator == Operator("EMC"))
    page.Contents = pdf.make_stream(pikepdf.unparse_content_stream(instructions))


if __name__ == "__main__":
    sys.exit(run(write, PDF, __doc__.splitlines()[0]))
