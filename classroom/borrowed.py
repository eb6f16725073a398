"""Lists answers of a class that use parts of the course that the solutions do not use.

Usage: python -m classroom.borrowed COURSE

The right answers are part of the course, and any Python program can import them. Automatic grading
cannot distinguish `from twelve.attention import attention` from an answer that a student wrote. A
teacher can.
"""

import ast
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from classroom.grading import parsed

# With these names, code can reach an object without naming it.
_DETOURS = frozenset(
    "__builtins__ __import__ builtins compile ctypes eval exec gc getattr globals importlib "
    "inspect open os pickle pkgutil runpy subprocess sys vars".split()
)


def borrowed(notebook: NotebookNode, ours: NotebookNode) -> dict[str, list[str]]:
    """List the names of the course that a student's cells use but the solution does not.

    The code is parsed and not run. A listed answer may be fine, and a cheat may be missing: the
    list only says which answers to read first.

    Args:
        notebook: The submission.
        ours: The assignment in `source`, with the solutions.

    Returns:
        Names, keyed by exercise, or by a key such as "cell 7" for a cell that a student added.
    """
    imports: dict[str, str] = {}
    allowed: dict[str, set[str]] = {}
    for cell in ours.cells:
        if cell.cell_type == "code":
            used, id = _used(cell.source, imports), _exercise(cell)
            # Outside exercises, our cells may use the whole checker, but a student's only `check`.
            allowed.setdefault(id, set()).update(
                name for name in used
                if id or name == "twelve_lab.check.check" or not _is_of_checker(name)
            )  # fmt: skip
    pages = {cell.source for cell in ours.cells}
    listed = {}
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type != "code" or cell.source in pages:
            continue
        # The student can change this id: print it only if it belongs to the assignment.
        id = _exercise(cell) if _exercise(cell) in allowed else ""
        if names := _used(cell.source, imports) - allowed.get(id, set()):
            listed[id or f"cell {number}"] = sorted(names)
    return listed


def _exercise(cell: NotebookNode) -> str:
    metadata = cell.metadata.get("nbgrader")
    is_answer = isinstance(metadata, dict) and metadata.get("solution")
    name = metadata.get("grade_id") if is_answer else None
    return name.removesuffix("-answer") if isinstance(name, str) else ""


def _used(source: str, imports: dict[str, str]) -> set[str]:
    """Return the names of the course and the detours that a cell uses; add to `imports`."""
    names: set[str] = set()
    nodes = [node for statement in parsed(source) for node in ast.walk(statement)]
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name, full = alias.asname or alias.name, module + alias.name
                names.update({full} if _is_listed(full) else ())
                imports[name if module or alias.asname else name.partition(".")[0]] = full
    for node in nodes:
        words = []
        while isinstance(node, ast.Attribute):
            words.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            full = ".".join([imports.get(node.id, node.id), *reversed(words)])
            names.update({full} if _is_listed(full) else ())
    # Drop a name that is a prefix of another one.
    return {name for name in names if not any(other.startswith(f"{name}.") for other in names)}


def report(course: Path) -> str:
    """Format the list for all submissions of a course.

    Args:
        course: The folder of the course.
    """
    lines = []
    for path in sorted(course.glob("submitted/*/*/*.ipynb")):
        student, assignment = path.parts[-3:-1]
        try:
            ours = nbformat.read(course / "source" / assignment / path.name, as_version=4)
            listed = borrowed(nbformat.read(path, as_version=4), ours)
        except Exception as error:  # a submission may contain anything
            lines.append(f"{student}  {assignment}: cannot be read ({type(error).__name__})")
            continue
        lines += [f"{student}  {assignment}  {id}: {', '.join(n)}" for id, n in listed.items()]
    return (
        "\n".join(lines) or "No answer takes anything from the course that its solution does not."
    )


def _is_of_checker(name: str) -> bool:
    return name.startswith(("twelve_lab.check", "twelve_lab.exercises"))


def _is_listed(name: str) -> bool:
    return name.partition(".")[0] in {"twelve", "twelve_lab", *_DETOURS}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    print(report(Path(sys.argv[1])))
