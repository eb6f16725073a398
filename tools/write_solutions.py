"""Writes solved copies of the notebooks, which themselves hold no solutions.

Usage: python -m tools.write_solutions [FOLDER]

FOLDER is build/solutions if none is named; what it holds under the name of a notebook is written
over. A solution comes from the right answer of the checker: see twelve_lab.check.solve.
"""

import argparse
import ast
import copy
import os
import re
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = Path("build/solutions")
# Code holds no links, whatever it looks like.
LINK = re.compile(r"```.*?```|`[^`\n]+`|\]\((?P<target>[^)#\s]+)", re.DOTALL)
ELSEWHERE = re.compile(r"[a-z]+:")


def lessons(notebooks: Path = NOTEBOOKS) -> dict[str, NotebookNode]:
    """Read every notebook, workshops too.

    Args:
        notebooks: Their folder.

    Returns:
        By the path in the folder, in order.

    Raises:
        ValueError: If there is none, or one cannot be read.
    """
    found = {}
    for path in sorted(notebooks.rglob("*.ipynb")):
        name = path.relative_to(notebooks)
        # An editor keeps copies in hidden folders.
        if any(part.startswith(".") for part in name.parts):
            continue
        try:
            found[name.as_posix()] = nbformat.read(path, as_version=4)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if not found:
        raise ValueError(f"{notebooks} holds no notebook")
    return found


def exercise_of(cell: NotebookNode, role: str) -> str | None:
    """Give the id of the exercise that is answered, or checked, in a cell.

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
        notebook: Without solutions. It stays as it is.
        ids: Which exercises; all, if not given.
        marked: Whether nbgrader finds its marks around each solution.

    Returns:
        A copy. The outputs of solved cells and their checks, which were those of a blank, are gone.

    Raises:
        ValueError: If an answer cell does not wait for an answer.
    """
    # The package loads torch, which whoever only reads notebooks does not need.
    from twelve_lab.check.solve import solution

    given: set[str] = set()
    answered = copy.deepcopy(notebook)
    for cell in answered.cells:
        if cell.cell_type != "code":
            continue
        id = exercise_of(cell, "answer") or exercise_of(cell, "check")
        if id is None:
            given |= names_given(cell.source)
        elif ids is None or id in ids:
            cell.outputs, cell.execution_count = [], None
            if exercise_of(cell, "answer"):
                cell.source = solution(id, cell.source, given, marked=marked)
    return answered


def names_given(source: str) -> set[str]:
    """List the names that a cell leaves behind.

    Args:
        source: Its code.
    """
    found: set[str] = set()
    for top in ast.parse(source).body:
        if isinstance(top, ast.FunctionDef | ast.ClassDef):
            found.add(top.name)
        elif isinstance(top, ast.Import | ast.ImportFrom):
            found |= {(one.asname or one.name).partition(".")[0] for one in top.names}
        else:
            names = (one for one in ast.walk(top) if isinstance(one, ast.Name))
            found |= {one.id for one in names if isinstance(one.ctx, ast.Store)}
    return found


def apart(folder: Path, notebooks: Path) -> None:
    """Refuse a folder that is, holds or lies in the one of the notebooks.

    Args:
        folder: Where something is to be written.
        notebooks: The folder of the notebooks.

    Raises:
        ValueError: If it is such a folder.
    """
    place, home = folder.resolve(), notebooks.resolve()
    if home.is_relative_to(place) or place.is_relative_to(home):
        raise ValueError(f"{folder} holds the project itself: name another folder")


def write(folder: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Write the solved copies.

    Args:
        folder: Where to write.
        notebooks: The folder of the notebooks.

    Returns:
        What there is to say about it, line by line.

    Raises:
        ValueError: If something that is given or found is wrong; then nothing is written.
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
    """Turn the links that leave the notebooks so that they lead to the same files from a copy."""

    def turn(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None or ELSEWHERE.match(target):
            return found[0]
        path = Path(os.path.normpath(page.resolve().parent / target))
        if path.is_relative_to(notebooks.resolve()):
            return found[0]
        return "](" + os.path.relpath(path, copied.resolve().parent).replace(os.sep, "/")

    return LINK.sub(turn, text)


def run(write: Callable[[Path], list[str]], default: Path, about: str) -> int:
    """Read the folder from the command line, write it and say so, or say what is wrong.

    Args:
        write: What writes the folder, and returns what there is to say.
        default: Which folder, if none is named.
        about: What is written, in one line.

    Returns:
        Exit status: 0, or 1 after an error that was explained.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("folder", nargs="?", type=Path, default=default, metavar="FOLDER")
    try:
        print("\n".join(write(parser.parse_args().folder)))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(write, SOLUTIONS, __doc__.splitlines()[0]))
