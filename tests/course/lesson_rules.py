"""Rules for lessons, workshops and pages by hand, in addition to those for every page.

A lesson answers one question and then stops. The sections of its workshop can be read alone.
Cell tags mark the parts of a page. Each rule yields the problems that it finds.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from symtable import symtable

from nbformat import NotebookNode

from tests.course.exercise_rules import exercises_of
from tests.course.notebook_rules import code_cells, general_problems, headings, prose, text_of
from twelve_lab.check.blank_page import blank
from twelve_lab.check.solve import solution
from twelve_lab.course import BY_HAND, DRILLS, LISTS, STEPS
from twelve_lab.draw.drawing import stored

MAX_CELLS, MAX_PROSE, MAX_WORDS, MAX_BARE = 28, 1_400, 2_800, 3
# A learner reads every line of a cell. Imports and exercises do not count.
MAX_CODE = 12
# The tags of a lesson in order. Each marks one cell; "more" may be absent.
PARTS = ("idea", "answer", "recap", "more", "next")
# The latest cells that may carry the tag of the idea, and of the answer to the question.
LATEST = {"idea": 10, "answer": 16}
MAX_BEFORE = 600
MAX_SECTION = 10
EXERCISES = (3, 4)
HELPERS = {"show", "draw", "example", "Trace", "influence", "check", "reversal", "real_heads",
           "contributions", "without", "device"}  # fmt: skip
NOTES = "a3_notes_corrected"
# The sections of a page by hand, and its limits.
SECTIONS = ["The task", "On paper first", "From a blank page", "What they ask next",
            "Where it stands"]  # fmt: skip
MAX_ANSWER = 30
FOLLOW_UPS = (4, 6)
DETAILS = re.compile(r"<details>.*?</details>", re.S)
BARE = re.compile(r"(?:.*[:=]\s*)?(?:True|False)")


def kind(path: Path) -> str:
    """Classify a page as a lesson, a workshop, notes or a page by hand."""
    if path.parent.name in ("workshop", BY_HAND):
        return path.parent.name
    return "notes" if path.stem == NOTES else "lesson"


def problems(notebook: NotebookNode, path: Path) -> list[str]:
    """Apply every rule for a page."""
    rules = {
        "lesson": (_question, _parts_in_order, _exercises, _folded, _bounds, _code, _borrowed),
        "workshop": (_exercises, _folded, _sections, _alone),
        BY_HAND: (_folded, _by_hand),
        "notes": (_exercises, _folded),
    }[kind(path)]
    own = [line for rule in rules for line in rule(notebook, path)]
    return general_problems(notebook, path) + own


def _question(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Require the question of a lesson below its title; course_rules.py checks the title itself."""
    step = _step(path)
    if step and f"\n## {step.question}\n" not in notebook.cells[0].source:
        yield f"the first cell has no heading {step.question!r}"


def _parts_in_order(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Require the tags of a lesson in order, and a link to the next lesson in the last cell."""
    places = {tag: _tagged(notebook, tag) for tag in PARTS}
    if missing := [tag for tag, place in places.items() if not place and tag != "more"]:
        yield f"no cell, or more than one, is tagged {missing}"
    order = [place for place in places.values() if place]
    if order != sorted(order):
        yield f"the tags are in the cells {places}, not in this order"
    if notebook.cells and places["next"] != len(notebook.cells):
        yield "the last cell is not tagged 'next'"
    elif f"]({_next_page(path)})" not in notebook.cells[-1].source:
        yield f"the last cell has no link to {_next_page(path)}"


def _next_page(path: Path) -> str:
    """Return the file of the next lesson. The last numbered lesson links back to the first."""
    pages = [Path(step.notebook).name for step in STEPS]
    following = pages[(pages.index(path.name) + 1) % len(pages)] if path.name in pages else ""
    return pages[0] if path.name[0] != "a" and following.startswith("a") else following


def _exercises(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Require a few exercises in a lesson, and all exercises of a page in one section."""
    step, number = _step(path), sum(map(_is_check, notebook.cells))
    due = kind(path) == "lesson" and step is not None and step.exercises
    low, high = EXERCISES if due else (0, 0)
    if kind(path) != "workshop" and not low <= number <= high:
        yield f"{number} exercises; wanted are {low} to {high}"
    titles = [title for title, cells in _parts(notebook) if any(map(_is_check, cells))]
    if len(titles) > 1:
        yield f"the exercises are in the sections {titles}"


def _folded(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Require that exactly the outputs that answer a Predict are folded."""
    asked = False
    for number, cell in enumerate(notebook.cells, 1):
        code = cell.cell_type == "code" and "nbgrader" not in cell.metadata
        if asked and cell.cell_type != "code":
            yield f"cell {number} should be the code that answers the Predict before it"
        due = {"outputs_hidden": True} if asked and code else None
        if cell.metadata.get("jupyter") != due:
            yield f"cell {number} has jupyter {cell.metadata.get('jupyter')}, not {due}"
        asked = "predict" in _tags(cell)
    if asked:
        yield "a Predict ends the page"


def _bounds(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Limit how much a reader has to read. Folded markdown does not count as prose."""
    printed = [text for cell in code_cells(notebook) for text in _printed(cell)]
    words = sum(len(text.split()) for text in (*(cell.source for cell in notebook.cells), *printed))
    bare = [line for text in printed for line in text.splitlines() if BARE.fullmatch(line.strip())]
    places = {tag: _tagged(notebook, tag) for tag in LATEST}
    before = notebook.cells[: max(places["idea"] - 1, 0)]
    for name, size, largest in (
        ("cells", len(notebook.cells), MAX_CELLS),
        ("words of prose", _words_of_prose(notebook.cells), MAX_PROSE),
        ("words in all", words, MAX_WORDS),
        ("lines of output that are bare True or False", len(bare), MAX_BARE),
        ("words of prose before the idea", _words_of_prose(before), MAX_BEFORE),
    ):
        if size > largest:
            yield f"{size} {name}, at most {largest}"
    for tag, cell in places.items():
        if cell > LATEST[tag]:
            yield f"cell {cell} is tagged {tag!r}, at the latest cell {LATEST[tag]} must be"


def _code(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Limit the lines of code in each cell after the imports."""
    for number, cell in list(enumerate(notebook.cells, 1))[2:]:
        lines = len(cell.source.splitlines())
        if cell.cell_type == "code" and "nbgrader" not in cell.metadata and lines > MAX_CODE:
            yield f"cell {number} has {lines} lines of code, at most {MAX_CODE}"


def _borrowed(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Limit the names used from the lab: a lesson defines its own experiments on models."""
    code = "\n".join(cell.source for cell in code_cells(notebook))
    imported = re.findall(r"^from twelve_lab(?!\.experiments).* import (.+)", code, re.M)
    used = {*re.findall(r"\w+", " ".join(imported)), *re.findall(r"\blab\.(\w+)", code)}
    if others := used - HELPERS:
        yield f"uses {sorted(others)} of twelve_lab; a lesson uses {sorted(HELPERS)}"


def _sections(notebook: NotebookNode, path: Path) -> Iterator[str]:
    for title, cells in _parts(notebook):
        if len(cells) > MAX_SECTION and not any(map(_is_check, cells)):
            yield f"the section {title!r} has {len(cells)} cells, at most {MAX_SECTION}"


def _alone(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Require that a section uses only its own names and those defined before the first section."""
    parts = [(title, *_names(cells)) for title, cells in _parts(notebook)]
    _, shared, _ = parts[0]
    defined = set().union(*(own for _, own, _ in parts))
    for title, own, used in parts[1:]:
        if needs := sorted(used & (defined - shared - own)):
            yield f"the section {title!r} uses {needs} of another section: it cannot be read alone"


def _by_hand(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Require the parts of a page by hand, in order."""
    drill = next(drill for drill in DRILLS if drill.stem == path.stem)
    parts = dict(_parts(notebook))
    if list(parts) != ["", *SECTIONS]:
        yield f"the sections are {list(parts)[1:]}, not {SECTIONS}"
        return
    texts = {title: prose(NotebookNode(cells=cells)) for title, cells in parts.items()}
    if not texts[""].startswith(f"# By hand: {drill.title}\n"):
        yield f"the title is not {drill.title!r}"
    if f"{drill.asked} of {LISTS} lists" not in texts[""]:
        yield f"the first cell does not say {drill.asked} of {LISTS} lists"
    ids = {title: [each.id for each in exercises_of(NotebookNode(cells=cells))]
           for title, cells in parts.items()}  # fmt: skip
    if not ids["On paper first"] or ids["From a blank page"][-1:] != [drill.exercise]:
        yield f"a question on paper comes first, and {drill.exercise} last, got {ids}"
    for each in exercises_of(notebook):
        if each.answer.source != blank(each.id):
            yield f"{each.id}: the answer cell is not the blank that `drill` writes"
        if len(solution(each.id, each.answer.source).splitlines()) > MAX_ANSWER:
            yield f"{each.id}: the answer has more than {MAX_ANSWER} lines"
    low, high = FOLLOW_UPS
    if not low <= texts["What they ask next"].count("<details>") <= high:
        yield f"{low} to {high} questions follow, each with a folded answer"
    if not re.search(rf"\]\(\.\./{drill.lesson}_\w+\.ipynb\)", texts["Where it stands"]):
        yield f"no link to lesson {drill.lesson}"


def _step(path: Path):
    """Return the step of a page, or None."""
    return next((step for step in STEPS if path.name == Path(step.notebook).name), None)


def _parts(notebook: NotebookNode) -> list[tuple[str, list[NotebookNode]]]:
    """Split a page at its second-level headings; the first part has no title."""
    parts: list[tuple[str, list[NotebookNode]]] = [("", [])]
    for cell in notebook.cells:
        titles = headings(NotebookNode(cells=[cell]), "##")
        parts += [(title, []) for title in titles]
        parts[-1][1].append(cell)
    return parts


def _is_check(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def _words_of_prose(cells: list[NotebookNode]) -> int:
    return len(DETAILS.sub(" ", prose(NotebookNode(cells=cells))).split())


def _printed(cell: NotebookNode) -> list[str]:
    return [text_of(output) for output in cell.outputs if not stored(output.get("data", {}))]


def _tagged(notebook: NotebookNode, tag: str) -> int:
    tagged = [number for number, cell in enumerate(notebook.cells, 1) if tag in _tags(cell)]
    return tagged[0] if len(tagged) == 1 else 0


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def _names(cells: list[NotebookNode]) -> tuple[set[str], set[str]]:
    """Return the global names that cells define, and the global names that they use."""
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    scopes, used = [symtable(code, "cells", "exec")], set()
    names = scopes[0].get_symbols()
    defined = {name.get_name() for name in names if name.is_assigned() or name.is_imported()}
    for scope in scopes:
        scopes += scope.get_children()
        names = [name for name in scope.get_symbols() if name.is_referenced() and name.is_global()]
        used |= {name.get_name() for name in names}
    return defined, used
