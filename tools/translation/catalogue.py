"""The catalogues of a language: one for each page, one for the messages of the lab.

Babel reads and writes them. What several pages say is in the catalogue `shared`.
"""

import io
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import nbformat
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from nbformat import NotebookNode

from tests.course.notebook_rules import CONTRACTS
from tools import write_messages
from tools.translation.pieces import lookups, pieces
from twelve_lab.course import BY_HAND

ROOT = Path(__file__).parents[2]
MESSAGES, SHARED, README = "messages", "shared", "README"
# What `build` adds to a page that links to a workshop.
WORKSHOPS = "The workshops are in English."
DATE = datetime(2026, 1, 1, tzinfo=UTC)  # in the head of the compiled messages
HEADER = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Language: {language}\\n"
"Plural-Forms: nplurals={plurals}; plural={plural};\\n"

"""


class Source(NamedTuple):
    """A text of a page.

    Args:
        text: The text in English.
        cell: The id of its cell.
        note: What it is, for the translator.
    """

    text: str
    cell: str
    note: str


def pages() -> dict[str, Path]:
    """Map the name of each translated page, as "04_attention" or "by_hand/lora", to its file."""
    found = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    by_hand = sorted((ROOT / "notebooks" / BY_HAND).glob("*.ipynb"))
    found |= {f"{BY_HAND}/{path.stem}": path for path in by_hand}
    return found | {README: ROOT / "README.md"}


def names() -> list[str]:
    """Name all catalogues."""
    return [MESSAGES, SHARED, *pages()]


def file_of(name: str, language: str) -> Path:
    """Locate a catalogue."""
    if name == MESSAGES:
        return write_messages.PAGE.parent / language / "LC_MESSAGES" / "twelve_lab.po"
    return ROOT / "locale" / language / f"{name}.po"


def read_page(name: str) -> NotebookNode:
    """Read a page. A Markdown file is a notebook of one cell."""
    path = pages()[name]
    if path.suffix == ".ipynb":
        return nbformat.read(path, as_version=4)
    cell = nbformat.v4.new_markdown_cell(path.read_text(encoding="utf-8"), id=name)
    return nbformat.v4.new_notebook(cells=[cell])


@cache
def sources(name: str) -> list[Source]:
    """List the texts of a page in order. A contract is a message, and not among them."""
    page = read_page(name)
    looked_up = lookups(page)
    return [
        Source(piece.text, cell.id, piece.note)
        for cell in page.cells
        for piece in pieces(cell.source, cell.cell_type, looked_up)
        if piece.note != "contract"
    ]


def template(name: str) -> Catalog:
    """Collect the entries that a catalogue must have, without translations."""
    if name == MESSAGES:
        return read_po(io.BytesIO(write_messages.page().encode()))
    catalogue = Catalog()
    if name == SHARED:
        catalogue.add(WORKSHOPS, auto_comments=["added to pages that link to a workshop"])
    for page in pages() if name == SHARED else [name]:
        for text, cell, note in sources(page):
            if (text in _shared()) == (name == SHARED):
                place = [] if name == SHARED else [(f"{page}/{cell}", 0)]
                catalogue.add(text, locations=place, auto_comments=[note] if note else [])
    return catalogue


@cache
def _shared() -> frozenset[str]:
    """Find the texts that more than one page has."""
    places = defaultdict(set)
    for page in pages():
        for source in sources(page):
            places[source.text].add(page)
    return frozenset(text for text, found in places.items() if len(found) > 1)


def read(name: str, language: str) -> Catalog:
    """Read a catalogue; it is empty where its file does not exist."""
    path = file_of(name, language)
    if not path.exists():
        return Catalog(locale=language)
    with path.open("rb") as file:
        return read_po(file, locale=language)


def write(catalogue: Catalog, name: str, language: str) -> None:
    """Write a catalogue, without what changes at every edit: dates and line numbers."""
    written = io.BytesIO()
    write_po(
        written, catalogue, width=0, omit_header=True, include_lineno=False, ignore_obsolete=True,
        include_previous=True,
    )  # fmt: skip
    head = HEADER.format(
        language=language, plurals=catalogue.num_plurals, plural=catalogue.plural_expr
    )
    path = file_of(name, language)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + written.getvalue().decode().strip() + "\n", encoding="utf-8")


def update(name: str, language: str) -> None:
    """Bring a catalogue up to date: a changed text keeps its translation and becomes fuzzy.

    A text that moved to another page brings its translation.
    """
    catalogue = read(name, language)
    wanted = template(name)
    if name != MESSAGES:
        known = memory(language)
        for entry in wanted:
            if entry.id and entry.id not in catalogue and entry.id in known:
                catalogue.add(entry.id, known[entry.id])
    catalogue.update(wanted)
    write(catalogue, name, language)


def memory(language: str) -> dict[str, str]:
    """Map each translated text of the pages to its translation."""
    found = {}
    for name in names()[1:]:
        for entry in read(name, language):
            if entry.id and entry.string and not entry.fuzzy:
                found[entry.id] = entry.string
    return found


def compile_messages(language: str) -> bytes:
    """Compile the messages, as gettext reads them."""
    written = io.BytesIO()
    catalogue = Catalog(locale=language, creation_date=DATE, revision_date=DATE)
    for entry in entries(MESSAGES, language):
        if not entry.fuzzy and entry.string and all(entry.string):
            catalogue.add(entry.id, entry.string)
    write_mo(written, catalogue)
    return written.getvalue()


def translations(name: str, language: str) -> dict[str, str]:
    """Map each text of a page to its translation; the contracts are among the messages."""
    found = {}
    for each in (MESSAGES, SHARED, name):
        for entry in read(each, language):
            wanted = each != MESSAGES or entry.id in CONTRACTS
            if wanted and entry.id and entry.string and not entry.fuzzy:
                found[entry.id] = entry.string
    return found


def entries(name: str, language: str) -> Iterator:
    """Yield the entries of a catalogue without its head, in order."""
    yield from (entry for entry in read(name, language) if entry.id)
