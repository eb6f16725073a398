"""Lists which answers of a class take something from the course that their solutions do not.

Usage: python -m classroom.borrowed COURSE

The right answers are part of the course, and whoever can run Python can import them: grading cannot
tell `from twelve.attention import attention` from an answer of one's own. A teacher can.
"""

import ast
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from classroom.grading import parsed

# With these, a line can reach what it does not name.
_DETOURS = frozenset(
    "__builtins__ __import__ builtins compile ctypes eval exec gc getattr globals importlib "
    "inspect open os pickle pkgutil runpy subprocess sys vars".split()
)


def borrowed(notebook: NotebookNode, ours: NotebookNode) -> dict[str, list[str]]:
    """List what the cells of a student take from the course, and the answer to it does not.

    It reads names and runs nothing. That an answer is listed proves nothing, and neither does that
    it is not: it says which ones to read first.

    Args:
        notebook: As it was handed in.
        ours: The assignment as it stands in `source`, with the solutions.

    Returns:
        Names, by the exercise that is answered, or "cell 7" for another cell that is not ours.
    """
    known: dict[str, str] = {}
    allowed: dict[str, set[str]] = {}
    for cell in ours.cells:
        if cell.cell_type == "code":
            found = _taken(cell.source, known)
            allowed.setdefault(place := _place(cell), set()).update(
                # A page may show what the checker knows; a cell of a student need not take it.
                one
                for one in found
                if place or one == "twelve_lab.check.check" or not _knows(one)
            )
    pages = {cell.source for cell in ours.cells}
    listed = {}
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type != "code" or cell.source in pages:
            continue
        place = _place(cell)
        found = _taken(cell.source, known) - allowed.get(place, set())
        if found:
            listed[place or f"cell {number}"] = sorted(found)
    return listed


def _place(cell: NotebookNode) -> str:
    marks = cell.metadata.get("nbgrader")
    name = marks.get("grade_id") if isinstance(marks, dict) and marks.get("solution") else None
    return name.removesuffix("-answer") if isinstance(name, str) else ""


def _taken(source: str, known: dict[str, str]) -> set[str]:
    """Name what some lines use of the course, and their ways around; note what they import."""
    found: set[str] = set()
    parts = [part for top in parsed(source) for part in ast.walk(top)]
    for part in parts:
        if isinstance(part, ast.Import | ast.ImportFrom):
            home = f"{part.module}." if isinstance(part, ast.ImportFrom) else ""
            for one in part.names:
                name = one.asname or one.name
                found.update({home + one.name} if _counts(home + one.name) else ())
                known[name if home or one.asname else name.partition(".")[0]] = home + one.name
    for part in parts:
        words = []
        while isinstance(part, ast.Attribute):
            words.append(part.attr)
            part = part.value
        if isinstance(part, ast.Name):
            full = ".".join([known.get(part.id, part.id), *reversed(words)])
            found.update({full} if _counts(full) else ())
    # A longer name says more than its beginning, which stands in it.
    return {one for one in found if not any(other.startswith(f"{one}.") for other in found)}


def report(course: Path) -> str:
    """Write what all that was handed in takes from the course.

    Args:
        course: The folder of the course.
    """
    lines = []
    for path in sorted(course.glob("submitted/*/*/*.ipynb")):
        student, assignment = path.parts[-3:-1]
        try:
            ours = nbformat.read(course / "source" / assignment / path.name, as_version=4)
            listed = borrowed(nbformat.read(path, as_version=4), ours)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            lines.append(f"{student}  {assignment}: cannot be read ({type(error).__name__})")
            continue
        lines += [
            f"{student}  {assignment}  {at}: {', '.join(what)}" for at, what in listed.items()
        ]
    return (
        "\n".join(lines) or "No answer takes anything from the course that its solution does not."
    )


def _knows(name: str) -> bool:
    return name.startswith(("twelve_lab.check", "twelve_lab.exercises"))


def _counts(name: str) -> bool:
    return name.partition(".")[0] in {"twelve", "twelve_lab", *_DETOURS}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    print(report(Path(sys.argv[1])))
