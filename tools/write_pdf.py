"""Prints the course as one PDF: a cover, contents, parts, answers at the end, and bookmarks.

Usage: python -m tools.write_pdf [FILE]

FILE is build/twelve-numbers.pdf if none is named.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pikepdf
from pikepdf import Operator
from playwright.sync_api import Page

from tools import browser, write_book
from tools.draw_cover import cover
from twelve_lab import example
from twelve_lab.show.palette import axis_style

PDF = Path("build/twelve-numbers.pdf")
# The pages as one page, before it is printed.
ONE_PAGE = Path("build/book-one-page")
# Margins and running heads are in book/static/bound.css.
BIND = Path(__file__).with_name("bind.js")
SCALE = 0.8
PART = re.compile(r"/part-\d+")
PATIENCE = 600_000  # milliseconds; hundreds of equations are typeset before the first page
POINTS = 72 / 25.4  # in a millimetre
TEXT_HEIGHT = 297 - 22 - 18  # mm, as in bound.css
# What is left of the last page of a chapter is ruled for the reader's own sums, from 40 mm on.
ROOM = range(40, 260)

# What the guide inside the cover says of each axis.
AXES = {
    "batch": "which sentence",
    "src, key": "which word is read, or looked at",
    "tgt, query": "which word is written, or asks",
    "d_model": "which feature of a word",
    "head": "which head of an attention",
    "d_k, d_v": "which feature inside a head",
    "d_ff, vocab": "which feature of the wide layer; which word of the vocabulary",
}

SHOWS_TEXT = Operator("BT"), Operator("ET")
MARKED = {Operator("BMC"), Operator("BDC")}
UNMARKED = Operator("EMC")
DRAWS = {Operator(name) for name in ("m", "re")}
PAINTS = {Operator(name) for name in ("f", "F", "f*", "S", "s", "B", "B*", "b", "b*", "n")}


def write(file: Path) -> None:
    """Print the pages as Chromium shows them, the equations typeset.

    It is printed twice: the first time shows on which page each thing ends up that another one
    names, and where the chapters end.

    Args:
        file: Where to.

    Raises:
        ValueError: If the pages cannot be written, or nothing on them was typeset, or the page
            numbers in the contents move what they number.
        OSError: If there is no browser, or something cannot be read or written.
    """
    if file.is_dir():
        raise ValueError(f"{file} is a folder, and a file is needed")
    write_book.write(ONE_PAGE, "singlehtml")
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.new")
    with browser.launched() as running:
        page = running.new_page(color_scheme="light")
        headings = bind(page)
        listed = page.evaluate("listed()")
        ends = page.evaluate("askForEnds()")
        _print(page, aside, tagged=False)
        with pikepdf.open(aside) as draft:
            numbers = page_numbers(draft, listed)
            rooms = rooms_below(draft, ends)
        page.evaluate("([numbers, rooms]) => finish(numbers, rooms)", [numbers, rooms])
        _print(page, aside, tagged=True)
    with pikepdf.open(aside, allow_overwriting_input=True) as pdf:
        for name, number in page_numbers(pdf, listed).items():
            if number != numbers[name]:
                raise ValueError(f"{name} is on page {number}, a line says {numbers[name]}")
        _name(pdf, headings)
        guide = pdf.pages[0]
        del pdf.pages[0]
        pdf.pages.insert(1, guide)
        for printed in pdf.pages:
            _mark_artifacts(pdf, printed)
        # As small as a third: Chromium leaves the tags, which say what is a heading, unpacked.
        pdf.save(object_stream_mode=pikepdf.ObjectStreamMode.generate)
    os.replace(aside, file)


def bind(page: Page) -> list[str]:
    """Open the one page as it is printed, but for the page numbers, and give its headings.

    Args:
        page: An empty tab.

    Raises:
        ValueError: If nothing was typeset.
    """
    page.set_default_timeout(PATIENCE)
    page.goto((ONE_PAGE / "index.html").resolve().as_uri())
    page.evaluate("MathJax.startup.promise.then(() => true)")
    if not page.locator("mjx-container svg").count():
        raise ValueError("no equation was typeset: the PDF would show TeX")
    page.add_script_tag(path=BIND)
    page.emulate_media(media="print")
    axes = [(axis, axis_style(axis.split(",")[0]).css, means) for axis, means in AXES.items()]
    page.evaluate("told => bind(told)", [cover(example.trace(on="cpu")), axes])
    return page.evaluate("printedHeadings()")


def page_numbers(pdf: pikepdf.Pdf, names: Sequence[str]) -> dict[str, int]:
    """Number the pages, from 1, to which links lead.

    Args:
        pdf: A file printed by Chromium.
        names: What the links name.

    Raises:
        ValueError: If a link leads nowhere.
    """
    places = {page.objgen: place for place, page in enumerate(pdf.pages, 1)}
    numbers = {}
    for name in names:
        if f"/{name}" not in pdf.Root.Dests:
            raise ValueError(f"a line names {name}, and no page holds it")
        numbers[name] = places[pdf.Root.Dests[f"/{name}"][0].objgen]
    return numbers


def rooms_below(pdf: pikepdf.Pdf, ends: Sequence[str]) -> dict[str, float]:
    """Measure what is left of a page below the end of a chapter, in mm, where that is much.

    Args:
        pdf: A file printed by Chromium.
        ends: What the links to the ends name.
    """
    left = {}
    for name in ends:
        page, _, _, y, _ = pdf.Root.Dests[f"/{name}"]
        # Chromium writes lengths as on the screen, from the end of the upper margin on.
        below = SCALE * (float(page.MediaBox[3]) - float(y)) / POINTS
        left[name] = TEXT_HEIGHT - below
    return {name: height for name, height in left.items() if int(height) in ROOM}


def _print(page: Page, file: Path, *, tagged: bool) -> None:
    page.pdf(
        path=file, prefer_css_page_size=True, scale=SCALE, print_background=True,
        outline=tagged, tagged=tagged,
    )  # fmt: skip


def _name(pdf: pikepdf.Pdf, headings: Sequence[str]) -> None:
    """Name the bookmarks as the headings, and put the chapters below their parts.

    Chromium writes some headings twice in a row, and sets parts and chapters side by side.
    """
    with pdf.open_outline() as outline:
        bookmarks = list(_in_order(outline.root))
        if len(bookmarks) != len(headings):
            raise ValueError(f"{len(bookmarks)} bookmarks for {len(headings)} headings")
        for bookmark, heading in zip(bookmarks, headings, strict=True):
            bookmark.title = heading
        *inside, book = outline.root
        outline.root[:] = [book]
        chapters, book.children[:] = [*inside, *book.children], []
        places = {page.objgen: place for place, page in enumerate(pdf.pages)}
        parts = {
            places[pdf.Root.Dests[name][0].objgen] for name in pdf.Root.Dests if PART.match(name)
        }
        below = book.children
        for chapter in chapters:
            if places[chapter.destination[0].objgen] in parts:
                book.children.append(chapter)
                below = chapter.children
            else:
                below = book.children if chapter.title == "Answers" else below
                below.append(chapter)
    pdf.docinfo["/Title"] = "Twelve Numbers"
    pdf.Root.PageMode = pikepdf.Name.UseOutlines


def _mark_artifacts(pdf: pikepdf.Pdf, page: pikepdf.Page) -> None:
    """Mark what no tag holds as no part of the text: heads, page numbers and backgrounds.

    Chromium leaves it unmarked, and a screen reader may read it out in the middle of a sentence.
    """
    begin = pikepdf.ContentStreamInstruction([pikepdf.Name.Artifact], Operator("BMC"))
    end = pikepdf.ContentStreamInstruction([], UNMARKED)
    shows, shown = SHOWS_TEXT
    depth, open_, instructions = 0, False, []
    for instruction in pikepdf.parse_content_stream(page):
        operator = instruction.operator
        if not depth and not open_ and (operator == shows or operator in DRAWS):
            instructions.append(begin)
            open_ = True
        instructions.append(instruction)
        if open_ and (operator == shown or operator in PAINTS):
            instructions.append(end)
            open_ = False
        depth += (operator in MARKED) - (operator == UNMARKED)
    page.Contents = pdf.make_stream(pikepdf.unparse_content_stream(instructions))


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
