"""Writes a course for nbgrader: its settings, and one assignment for each notebook with exercises.

Usage: python -m tools.write_course [FOLDER]

FOLDER is build/course if none is named. The gradebook, what was handed in and whatever else a
teacher has there are not touched; neither is a setting or an assignment that the teacher changed.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.write_solutions import NOTEBOOKS, ROOT, apart, exercise_of, lessons, run, solved

COURSE = Path("build/course")
CONFIG = ROOT / "tools" / "nbgrader_config.py"
# Sums of what was last written: whatever has another sum by now was changed by somebody.
RECORD = ".written.json"


def assignments(notebooks: Path = NOTEBOOKS) -> dict[str, NotebookNode]:
    """Find the notebooks that can be graded.

    Args:
        notebooks: Their folder.

    Returns:
        With solutions between the marks of nbgrader, by the name of the assignment: "04_attention"
        for a lesson, "04_attention_workshop" for its workshop.

    Raises:
        ValueError: If no notebook has graded cells, or one cannot be read or solved.
    """
    found = {}
    for name, notebook in lessons(notebooks).items():
        path = Path(name)
        if any(exercise_of(cell, "check") for cell in notebook.cells):
            stem = "_".join([path.stem, *path.parts[:-1]])
            found[stem] = solved(notebook, marked=True)
    if not found:
        raise ValueError(f"no notebook in {notebooks} has cells that give points")
    return found


def write(folder: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Write a course, or renew it.

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
    found = assignments(notebooks)
    config = CONFIG.read_text(encoding="utf-8").replace('"CODE"', repr(str(ROOT)))
    files = {CONFIG.name: config.encode()}
    files |= {
        f"source/{stem}/{stem}.ipynb": (nbformat.writes(one) + "\n").encode()
        for stem, one in found.items()
    }
    states, first = renew(folder, files), next(iter(found))
    fresh = [*states.values()].count("written")
    return [
        f"{folder}: {len(found)} assignments; {fresh} of {len(files)} files written",
        *told(states),
        f"Next: in {folder}, with .venv activated: nbgrader generate_assignment {first}",
    ]


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


if __name__ == "__main__":
    sys.exit(run(write, COURSE, __doc__.splitlines()[0]))
