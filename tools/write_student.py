"""Writes the notebooks for students: without solutions and outputs, and with a file of progress.

Usage: python -m tools.write_student [FOLDER]

FOLDER is build/student if none is named, and can be handed out as it is: the pages that the
notebooks link to lie in it too. What somebody has changed in it is kept.
"""

import argparse
import copy
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
STUDENT = Path("build/student")
STUB = "# Your answer goes here."
# A line that holds one of these begins or ends a solution, for nbgrader as for us.
BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"
# Sums of what was last written: whatever has another sum by now was changed by somebody.
RECORD = ".written.json"
# What an editor notes of outputs that are gone.
OF_OUTPUTS = ("collapsed", "scrolled")
# Code holds no links, whatever it looks like.
LINK = re.compile(r"```.*?```|`[^`\n]+`|\]\((?P<target>[^)#\s]+)", re.DOTALL)
ELSEWHERE = re.compile(r"[a-z]+:")


def student_version(notebook: NotebookNode) -> NotebookNode:
    """Take the solutions and the outputs out of a notebook, as nbgrader does.

    Args:
        notebook: With solutions. It stays as it is.

    Returns:
        A copy with the same cells. Answer cells hold a stub and cannot be deleted; check cells can
        be neither deleted nor edited.

    Raises:
        ValueError: If a solution is not marked as it should be, so that some of it would survive.
    """
    student = copy.deepcopy(notebook)
    for number, cell in enumerate(student.cells, 1):
        try:
            cell.source = _without_solution(cell)
        except ValueError as error:
            raise ValueError(f"cell {number} ({cell.get('id')}): {error}") from None
        _lock(cell)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            for key in OF_OUTPUTS:
                cell.metadata.pop(key, None)
    return student


def students(notebooks: Path = NOTEBOOKS) -> dict[str, NotebookNode]:
    """Give the student version of every notebook.

    Args:
        notebooks: The folder of the notebooks with solutions.

    Returns:
        By the name of the file, in order.

    Raises:
        ValueError: If there is no notebook, or one cannot be read or has a solution wrongly marked.
    """
    found = {}
    for path in sorted(notebooks.glob("*.ipynb")):
        try:
            found[path.name] = student_version(nbformat.read(path, as_version=4))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
    if not found:
        raise ValueError(f"{notebooks} holds no notebook")
    return found


def contents(notebooks: Path = NOTEBOOKS) -> dict[str, bytes]:
    """Give every file of a student's folder: the notebooks, and the pages that they lead to.

    A link that leaves the folder of the notebooks leads to a copy of its file in the student's
    folder, under the path that the file has in the project.

    Args:
        notebooks: The folder of the notebooks with solutions, in the folder of the project.

    Returns:
        By the path in the student's folder.

    Raises:
        ValueError: As for `students`, and if a link leads to no file of the project.
    """
    files: dict[str, bytes] = {}
    waiting: dict[str, Path] = {}
    homes = students(notebooks)

    def place(target: str, page: Path) -> str:
        """Find where in the student's folder a link leads to, and have that file written."""
        path = Path(os.path.normpath(page.parent / target))
        if path.parent == notebooks and path.name in homes:
            return path.name
        if not path.is_relative_to(notebooks.parent) or not path.is_file():
            raise ValueError(f"{page.name}: a link leads to {target}, which is no file of ours")
        name = path.relative_to(notebooks.parent).as_posix()
        waiting[name] = path
        return name

    for name, notebook in homes.items():
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = _relinked(cell.source, name, notebooks / name, place)
        files[name] = (nbformat.writes(notebook) + "\n").encode()
    while waiting:
        name, path = waiting.popitem()
        if name not in files:
            files[name] = path.read_bytes()
            if path.suffix == ".md":
                files[name] = _relinked(files[name].decode(), name, path, place).encode()
    return files


def renew(folder: Path, files: dict[str, bytes]) -> dict[str, str]:
    """Write files into a folder in which people work: what they changed stays.

    A notebook counts as changed where the source of a cell was changed, not where it was only run.

    Args:
        folder: It is made if there is none.
        files: By their path in the folder.

    Returns:
        What became of each: "written", "same", "kept", or "older" where it was kept and the
        course has moved on since.

    Raises:
        ValueError: If the folder is a file, or its record is broken.
        OSError: If something cannot be read or written.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and a folder is needed")
    record = _read_record(folder / RECORD)
    states = {name: _state(folder / name, new, record.get(name)) for name, new in files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, state in states.items():
        if state == "written":
            _put(folder / name, files[name])
        if state in ("written", "same"):
            record[name] = _sum(name, files[name])
    _put(folder / RECORD, (json.dumps(record, indent=1) + "\n").encode())
    return states


def told(states: dict[str, str]) -> list[str]:
    """Say which files were kept, and how to have them afresh.

    Args:
        states: As `renew` returns them.
    """
    reasons = {
        "kept": "it holds your changes; to start it afresh, move it away and run this again",
        "older": "it holds your changes, and the course has a newer one; to get it, move yours "
        "away and run this again",
    }
    return [f"kept {name}: {reasons[state]}" for name, state in states.items() if state in reasons]


def apart(folder: Path, notebooks: Path) -> None:
    """Refuse a folder that is or holds the one of the notebooks: its files are not for students.

    Args:
        folder: Where something is to be written.
        notebooks: The folder of the notebooks with solutions.

    Raises:
        ValueError: If it is such a folder.
    """
    if notebooks.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{folder} holds the project itself: name another folder")


def write(folder: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Write a student's folder, or renew it.

    Args:
        folder: Where to write.
        notebooks: The folder of the notebooks with solutions.

    Returns:
        What there is to say about it, line by line.

    Raises:
        ValueError: If something that is given or found is wrong; then nothing is written.
        OSError: If something cannot be read or written.
    """
    # The package loads torch, which whoever asks for a student version alone does not need.
    from twelve_lab.check import progress

    apart(folder, notebooks)
    files = contents(notebooks)
    noted = folder / progress.FILE
    here = version("twelve")
    begun = progress.read(noted)["version"] if noted.exists() else here
    states = renew(folder, files)
    progress.begin(folder)
    count = sum(name.endswith(".ipynb") for name in files)
    fresh = [*states.values()].count("written")
    lines = [f"{folder}: {count} notebooks; {fresh} of {len(files)} files written", *told(states)]
    if begun != here:
        lines.append(f"{noted.name} was begun with version {begun}, and this is {here}")
    first = next(iter(files))
    return [*lines, f"Next: open {folder / first} in JupyterLab"]


def _without_solution(cell: NotebookNode) -> str:
    """Put the stub in place of the solution, at its indentation."""
    lines, regions, inside = [], 0, False
    for line in cell.source.split("\n"):
        if BEGIN in line:
            if inside:
                raise ValueError(f"a second {BEGIN} stands before {END}")
            inside, regions = True, regions + 1
            lines.append(re.match(r"\s*", line)[0] + STUB)
        elif END in line:
            if not inside:
                raise ValueError(f"{END} stands without {BEGIN}")
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"{BEGIN} stands without {END}")
    answer = _marks(cell).get("solution", False)
    if regions and not answer:
        raise ValueError("it holds a solution, and its metadata do not say so")
    if answer and (regions != 1 or cell.cell_type != "code"):
        raise ValueError(f"an answer is a code cell with one solution; this has {regions}")
    return "\n".join(lines)


def _lock(cell: NotebookNode) -> None:
    marks = _marks(cell)
    answer = marks.get("solution", False)
    fixed = not answer and (marks.get("grade", False) or marks.get("locked", False))
    if answer or fixed:
        cell.metadata["deletable"] = False
    if fixed:
        cell.metadata["editable"] = False


def _marks(cell: NotebookNode) -> dict[str, object]:
    """Give nbgrader's metadata of a cell."""
    return cell.metadata.get("nbgrader", {})


def _relinked(text: str, name: str, page: Path, place: Callable[[str, Path], str]) -> str:
    """Turn the links of a page so that they lead to the same files from where it is written."""

    def turn(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None or ELSEWHERE.match(target):
            return found[0]
        start = os.path.dirname(name) or "."
        return "](" + os.path.relpath(place(target, page), start).replace(os.sep, "/")

    return LINK.sub(turn, text)


def _state(path: Path, new: bytes, last: str | None) -> str:
    """Say what is to become of a file, by the sums of what is there, what is new, what was."""
    if not path.exists():
        return "written"
    here, due = _sum(path.name, path.read_bytes()), _sum(path.name, new)
    if here == due:
        return "same"
    if here == last:
        return "written"
    return "kept" if last in (None, due) else "older"


def _sum(name: str, content: bytes) -> str:
    """Sum up what counts of a file: of a notebook what its cells are, not what they printed."""
    if name.endswith(".ipynb"):
        try:
            cells = [
                [cell["cell_type"], "".join(cell["source"]), cell["metadata"].get("nbgrader")]
                for cell in json.loads(content)["cells"]
            ]
            content = json.dumps(cells, sort_keys=True).encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # no notebook: it has the sum of its bytes, which no notebook of ours has
    return hashlib.sha256(content).hexdigest()


def _read_record(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}): move it away") from None
    if not isinstance(record, dict):
        raise ValueError(f"{path} holds no sums: move it away")
    return record


def _put(path: Path, content: bytes) -> None:
    """Write aside, then put in place: whatever stops it leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(content)
    os.replace(aside, path)


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
    sys.exit(run(write, STUDENT, __doc__.splitlines()[0]))
