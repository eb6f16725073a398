"""Writes a course for nbgrader: its settings, and one assignment for each notebook with exercises.

Usage: python -m tools.write_course [FOLDER]

FOLDER is build/course by default. The gradebook, the submissions and the teacher's other files stay
untouched. So does every configuration file or assignment that the teacher changed.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.command import run
from tools.write_solutions import NOTEBOOKS, ROOT, apart, exercise_of, lessons, solved

COURSE = Path("build/course")
CONFIG = ROOT / "tools" / "nbgrader_config.py"
# Checksums of the files as last written, which reveal later edits.
RECORD = ".written.json"
REASONS = {
    "kept": "it holds your changes; to start it afresh, move it away and run this again",
    "older": "it holds your changes, and the course has a newer one; to get it, move yours away "
    "and run this again",
}


def assignments(notebooks: Path = NOTEBOOKS) -> dict[str, NotebookNode]:
    """Find the notebooks that can be graded.

    Args:
        notebooks: Their folder.

    Returns:
        Notebooks with solutions between nbgrader's markers, by the name of the assignment:
        "04_attention" for a lesson, "04_attention_workshop" for its workshop.

    Raises:
        ValueError: If no notebook has graded cells, or one cannot be read or solved.
    """
    graded = {}
    for name, notebook in lessons(notebooks).items():
        path = Path(name)
        if any(exercise_of(cell, "check") for cell in notebook.cells):
            stem = "_".join([path.stem, *path.parts[:-1]])
            graded[stem] = solved(notebook, marked=True)
    if not graded:
        raise ValueError(f"no notebook in {notebooks} has cells that give points")
    return graded


def write(folder: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Write a course, or update it.

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
    notebooks_by_name = assignments(notebooks)
    config = CONFIG.read_text(encoding="utf-8").replace('"CODE"', repr(str(ROOT)))
    files = {CONFIG.name: config.encode()}
    files |= {
        f"source/{stem}/{stem}.ipynb": (nbformat.writes(notebook) + "\n").encode()
        for stem, notebook in notebooks_by_name.items()
    }
    states, first = renew(folder, files), next(iter(notebooks_by_name))
    fresh = [*states.values()].count("written")
    return [
        f"{folder}: {len(notebooks_by_name)} assignments; {fresh} of {len(files)} files written",
        *(f"kept {name}: {REASONS[state]}" for name, state in states.items() if state in REASONS),
        f"Next: in {folder}, with .venv activated: nbgrader generate_assignment {first}",
    ]


def renew(folder: Path, files: dict[str, bytes]) -> dict[str, str]:
    """Update the files of a folder in which people work; files that they edited are kept.

    A notebook counts as edited if the source of a cell changed, not if it was only run.

    Args:
        folder: Destination; it is created if missing.
        files: Content by path in the folder.

    Returns:
        The state of each file: "written", "same", "kept", or "older" if it was kept and the
        course has changed since.

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


def _state(path: Path, new: bytes, last: str | None) -> str:
    """Return the state of a file, from the checksums of its current, new and last content."""
    if not path.exists():
        return "written"
    current, fresh = _sum(path.name, path.read_bytes()), _sum(path.name, new)
    if current == fresh:
        return "same"
    if current == last:
        return "written"
    return "kept" if last in (None, fresh) else "older"


def _sum(name: str, content: bytes) -> str:
    """Return the checksum of a file; for a notebook, without its outputs."""
    if name.endswith(".ipynb"):
        try:
            cells = [
                [cell["cell_type"], "".join(cell["source"]), cell["metadata"].get("nbgrader")]
                for cell in json.loads(content)["cells"]
            ]
            content = json.dumps(cells, sort_keys=True).encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # not a notebook: hash the bytes, which matches none of our notebooks
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
    """Write a file atomically: an interruption leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(content)
    os.replace(aside, path)


if __name__ == "__main__":
    sys.exit(run(write, COURSE, __doc__.splitlines()[0]))
