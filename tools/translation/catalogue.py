"""The catalogues of a language: one per page, and one for the messages of the lab.

Babel reads and writes them. Texts that occur on several pages are in the catalogue `shared`.
"""

import io
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import nbformat
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from nbformat import NotebookNode

from tests.course.notebook_rules import CONTRACTS
from tools import write_messages
from tools.translation.pieces import Piece, lookups, pieces
from twelve_lab.course import BY_HAND

ROOT = Path(__file__).parents[2]
MESSAGES, SHARED, README = "messages", "shared", "README"
# Sentence that `build` adds to a page that links to a workshop.
WORKSHOPS = "The workshops are in English."
DATE = datetime(2026, 1, 1, tzinfo=UTC)  # in the header of the compiled messages
HEADER = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Language: {language}\\n"
"Plural-Forms: nplurals={plurals}; plural={plural};\\n"

"""


def pages() -> dict[str, Path]:
    """Map page names, such as "04_attention" or "by_hand/lora", to the English files."""
    found = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    by_hand = sorted((ROOT / "notebooks" / BY_HAND).glob("*.ipynb"))
    found |= {f"{BY_HAND}/{path.stem}": path for path in by_hand}
    return found | {README: ROOT / "README.md"}


def names() -> list[str]:
    """List the names of all catalogues."""
    return [MESSAGES, SHARED, *pages()]


def file_of(name: str, language: str) -> Path:
    """Return the path of a catalogue."""
    if name == MESSAGES:
        return write_messages.PAGE.parent / language / "LC_MESSAGES" / "twelve_lab.po"
    return ROOT / "locale" / language / f"{name}.po"


def read_page(name: str) -> NotebookNode:
    """Read a page. A Markdown file becomes a notebook with one cell."""
    path = pages()[name]
    if path.suffix == ".ipynb":
        return nbformat.read(path, as_version=4)
    cell = nbformat.v4.new_markdown_cell(path.read_text(encoding="utf-8"), id=name)
    return nbformat.v4.new_notebook(cells=[cell])


@cache
def sources(name: str) -> list[tuple[Piece, str]]:
    """List the texts of a page except contracts, in order, each with the id of its cell."""
    page = read_page(name)
    looked_up = lookups(page)
    return [
        (piece, cell.id)
        for cell in page.cells
        for piece in pieces(cell.source, cell.cell_type, looked_up)
        if piece.note != "contract"
    ]


def template(name: str) -> Catalog:
    """Return the catalogue with all required entries, without translations."""
    if name == MESSAGES:
        return read_po(io.BytesIO(write_messages.page().encode()))
    catalogue = Catalog()
    if name == SHARED:
        catalogue.add(WORKSHOPS, auto_comments=["added to pages that link to a workshop"])
    for page in pages() if name == SHARED else [name]:
        for piece, cell in sources(page):
            if (piece.text in _shared()) == (name == SHARED):
                place = [] if name == SHARED else [(f"{page}/{cell}", 0)]
                note = [piece.note] if piece.note else []
                catalogue.add(piece.text, locations=place, auto_comments=note)
    return catalogue


@cache
def _shared() -> frozenset[str]:
    """Return the texts that occur on more than one page."""
    counts = Counter(
        text for page in pages() for text in {piece.text for piece, _ in sources(page)}
    )
    return frozenset(text for text, count in counts.items() if count > 1)


def read(name: str, language: str) -> Catalog:
    """Read a catalogue; return an empty one if the file does not exist."""
    path = file_of(name, language)
    if not path.exists():
        return Catalog(locale=language)
    with path.open("rb") as file:
        return read_po(file, locale=language)


def write(catalogue: Catalog, name: str, language: str) -> None:
    """Write a catalogue, without dates and line numbers, which change with every edit."""
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
    """Update a catalogue: a changed text keeps its translation and becomes fuzzy.

    A text that moved to another page keeps its translation too.
    """
    catalogue, wanted = read(name, language), template(name)
    if name != MESSAGES:
        known: dict[str, str] = {}
        for other in names()[1:]:
            known |= _finished(other, language)
        for entry in wanted:
            if entry.id and entry.id not in catalogue and entry.id in known:
                catalogue.add(entry.id, known[entry.id])
    catalogue.update(wanted)
    write(catalogue, name, language)


def compile_messages(language: str) -> bytes:
    """Compile the messages to the binary format of gettext."""
    written = io.BytesIO()
    catalogue = Catalog(locale=language, creation_date=DATE, revision_date=DATE)
    for id, string in _finished(MESSAGES, language).items():
        if all(string):
            catalogue.add(id, string)
    write_mo(written, catalogue)
    return written.getvalue()


def translations(name: str, language: str) -> dict[str, str]:
    """Map each text of a page to its translation, including contracts and shared texts."""
    messages = _finished(MESSAGES, language)
    contracts = {id: messages[id] for id in CONTRACTS & messages.keys()}
    return contracts | _finished(SHARED, language) | _finished(name, language)


def _finished(name: str, language: str) -> dict:
    """Map the texts of a catalogue to their finished translations."""
    done = (entry for entry in entries(name, language) if entry.string and not entry.fuzzy)
    return {entry.id: entry.string for entry in done}


def entries(name: str, language: str) -> Iterator:
    """Yield the entries of a catalogue in order, without the header."""
    yield from (entry for entry in read(name, language) if entry.id)
