"""Writes solved copies of the notebooks; the notebooks contain no solutions.

Usage: python -m tools.write_solutions [FOLDER]

FOLDER is build/solutions by default. Existing notebooks of the same name are overwritten. A
solution is the checker's right answer: see twelve_lab.check.solve.
"""

import ast
import copy
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.command import run

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = Path("build/solutions")
# Text in code that looks like a link is not a link.
LINK = re.compile(r"```.*?```|`[^`\n]+`|\]\((?P<target>[^)#\s]+)", re.DOTALL)
ELSEWHERE = re.compile(r"[a-z]+:")


def lessons(notebooks: Path = NOTEBOOKS) -> dict[str, NotebookNode]:
    """Read all notebooks, including workshops.

    Args:
        notebooks: Folder of the notebooks.

    Returns:
        Notebooks keyed by their path in the folder, sorted.

    Raises:
        ValueError: If no notebook is found, or a notebook cannot be read.
    """
    notebooks_by_path = {}
    for path in sorted(notebooks.rglob("*.ipynb")):
        name = path.relative_to(notebooks)
        # Editors keep copies in hidden folders.
        if any(part.startswith(".") for part in name.parts):
            continue
        try:
            notebooks_by_path[name.as_posix()] = nbformat.read(path, as_version=4)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if not notebooks_by_path:
        raise ValueError(f"{notebooks} holds no notebook")
    return notebooks_by_path


def exercise_of(cell: NotebookNode, role: str) -> str | None:
    """Return the id of the exercise that a cell answers or checks.

    Args:
        cell: Any cell.
        role: "answer" or "check".
    """
    marks = cell.metadata.get("nbgrader", {})
    if not marks.get("solution" if role == "answer" else "grade"):
        return None
    return marks["grade_id"].removesuffix(f"-{role}")


def solved(
    notebook: NotebookNode, ids: Collection[str] | None = None, *, marked: bool = False
) -> NotebookNode:
    """Solve the exercises of a notebook.

    Args:
        notebook: A notebook without solutions. It is not modified.
        ids: Ids of the exercises to solve; all by default.
        marked: Whether to put nbgrader's markers around each solution.

    Returns:
        A copy without the outputs of solved cells and their checks.

    Raises:
        ValueError: If an answer cell is already filled in.
    """
    # Import here: this loads torch, which is not needed to read notebooks.
    from twelve_lab.check.solve import solution

    names: set[str] = set()
    answered = copy.deepcopy(notebook)
    for cell in answered.cells:
        if cell.cell_type != "code":
            continue
        id = exercise_of(cell, "answer") or exercise_of(cell, "check")
        if id is None:
            names |= names_given(cell.source)
        elif ids is None or id in ids:
            cell.outputs, cell.execution_count = [], None
            if exercise_of(cell, "answer"):
                cell.source = solution(id, cell.source, names, marked=marked)
    return answered


def names_given(source: str) -> set[str]:
    """Return the names that a cell defines.

    Args:
        source: The code of the cell.
    """
    defined: set[str] = set()
    for top in ast.parse(source).body:
        if isinstance(top, ast.FunctionDef | ast.ClassDef):
            defined.add(top.name)
        elif isinstance(top, ast.Import | ast.ImportFrom):
            defined |= {(alias.asname or alias.name).partition(".")[0] for alias in top.names}
        else:
            names = (node for node in ast.walk(top) if isinstance(node, ast.Name))
            defined |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return defined


def apart(folder: Path, notebooks: Path) -> None:
    """Reject a folder that overlaps the folder of the notebooks.

    Args:
        folder: Destination.
        notebooks: The folder of the notebooks.

    Raises:
        ValueError: If the folders overlap.
    """
    target, source = folder.resolve(), notebooks.resolve()
    if source.is_relative_to(target) or target.is_relative_to(source):
        raise ValueError(f"{folder} holds the project itself: name another folder")


def write(folder: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Write the solved copies.

    Args:
        folder: Destination.
        notebooks: The folder of the notebooks.

    Returns:
        Lines of a message.

    Raises:
        ValueError: If a folder or a notebook is invalid; then nothing is written.
        OSError: If something cannot be read or written.
    """
    apart(folder, notebooks)
    copies = {name: solved(notebook) for name, notebook in lessons(notebooks).items()}
    for name, notebook in copies.items():
        path = folder / name
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = _relinked(cell.source, notebooks / name, path, notebooks)
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
    return [f"{folder}: {len(copies)} notebooks, solved"]


def _relinked(text: str, page: Path, copied: Path, notebooks: Path) -> str:
    """Rewrite links that leave the folder of the notebooks, so they work from a copy."""

    def rewrite(link: re.Match[str]) -> str:
        target = link["target"]
        if target is None or ELSEWHERE.match(target):
            return link[0]
        path = Path(os.path.normpath(page.resolve().parent / target))
        if path.is_relative_to(notebooks.resolve()):
            return link[0]
        return "](" + os.path.relpath(path, copied.resolve().parent).replace(os.sep, "/")

    return LINK.sub(rewrite, text)


if __name__ == "__main__":
    sys.exit(run(write, SOLUTIONS, __doc__.splitlines()[0]))
