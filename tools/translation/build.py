"""Build a translated page: the English page with each text replaced."""

import os
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.translation import catalogue
from tools.translation.pieces import lookups, translated

LINK = re.compile(r"(?<=\]\()([^()#\s]+)(?=[)#])|(?<=href=\")([^\"#]+)(?=[\"#])")


def target(name: str, language: str) -> Path:
    """Return the path of the translated page."""
    if name == catalogue.README:
        return catalogue.ROOT / f"README.{language}.md"
    return catalogue.ROOT / "notebooks" / language / f"{name}.ipynb"


def build(name: str, language: str) -> NotebookNode:
    """Translate a page; texts without a translation stay English.

    Args:
        name: Name of the page.
        language: Language of the translation.
    """
    page = catalogue.read_page(name)
    known = catalogue.translations(name, language)
    looked_up = lookups(page)
    for cell in page.cells:
        cell.source = translated(
            cell.source, cell.cell_type, lambda piece: known.get(piece.text, piece.text), looked_up
        )
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:
            cell.source = _linked(cell.source, name, language)
    if name == catalogue.README:  # the README and its translations link to each other
        own = re.escape(f"({target(name, language).name})")
        source = page.cells[0].source
        page.cells[0].source = re.sub(rf"\[\w+\]{own}", "[English](README.md)", source)
    if code := next((cell for cell in page.cells if cell.cell_type == "code"), None):
        code.source += selects(code.source, language)
    ends = [cell for cell in page.cells if "next" in cell.metadata.get("tags", ())]
    if ends and "workshop/" in ends[-1].source:
        ends[-1].source += f"\n\n{known.get(catalogue.WORKSHOPS, catalogue.WORKSHOPS)}"
    return page


def selects(source: str, language: str) -> str:
    """Return the lines that select the language, to append to the first code cell."""
    first = "" if "import twelve_lab as lab" in source else "\n\nimport twelve_lab as lab\n"
    return f'{first}\nlab.language("{language}")'


def write(name: str, language: str) -> Path:
    """Build a page and write it, without outputs."""
    path = target(name, language)
    path.parent.mkdir(parents=True, exist_ok=True)
    page = build(name, language)
    if path.suffix == ".ipynb":
        nbformat.write(page, path)
    else:
        path.write_text(page.cells[0].source, encoding="utf-8")
    return path


def _linked(source: str, name: str, language: str) -> str:
    """Rewrite links of a translated page to translated pages, or to English ones if missing."""
    here, there = catalogue.pages()[name].parent, target(name, language).parent
    ours = {path.resolve(): target(page, language) for page, path in catalogue.pages().items()}

    def moved(match: re.Match) -> str:
        link = match[0]
        if re.match(r"\w+:", link):
            return link
        goal = (here / link).resolve()
        return Path(os.path.relpath(ours.get(goal, goal), there)).as_posix()

    return LINK.sub(moved, source)
