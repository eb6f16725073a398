"""Writes a course for nbgrader: its settings, and one assignment for each notebook with exercises.

Usage: python -m tools.write_course [FOLDER]

FOLDER is build/course if none is named. The gradebook, what was handed in and whatever else a
teacher has there are not touched; neither is a setting or an assignment that the teacher changed.
"""

import sys
from pathlib import Path

from nbformat import NotebookNode

from tools.write_student import NOTEBOOKS, ROOT, apart, renew, run, students, told

COURSE = Path("build/course")
CONFIG = ROOT / "tools" / "nbgrader_config.py"


def has_graded_cells(notebook: NotebookNode) -> bool:
    """Say whether a notebook has cells that give points.

    Args:
        notebook: With or without solutions.
    """
    return any(cell.metadata.get("nbgrader", {}).get("grade") for cell in notebook.cells)


def assignments(notebooks: Path = NOTEBOOKS) -> dict[str, Path]:
    """Find the notebooks that can be graded.

    Args:
        notebooks: The folder of the notebooks with solutions.

    Returns:
        By the name of the assignment, which is the stem of the file.

    Raises:
        ValueError: As for `students`, and if no notebook has graded cells.
    """
    graded = [name for name, one in students(notebooks).items() if has_graded_cells(one)]
    if not graded:
        raise ValueError(f"no notebook in {notebooks} has cells that give points")
    return {Path(name).stem: notebooks / name for name in graded}


def write(folder: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Write a course, or renew it.

    Args:
        folder: Where to write.
        notebooks: The folder of the notebooks with solutions.

    Returns:
        What there is to say about it, line by line.

    Raises:
        ValueError: If something that is given or found is wrong; then nothing is written.
        OSError: If something cannot be read or written.
    """
    apart(folder, notebooks)
    found = assignments(notebooks)
    files = {CONFIG.name: CONFIG.read_bytes()}
    files |= {f"source/{stem}/{stem}.ipynb": path.read_bytes() for stem, path in found.items()}
    states, first = renew(folder, files), next(iter(found))
    fresh = [*states.values()].count("written")
    return [
        f"{folder}: {len(found)} assignments; {fresh} of {len(files)} files written",
        *told(states),
        f"Next: in {folder}, with .venv activated: nbgrader generate_assignment {first}",
    ]


if __name__ == "__main__":
    sys.exit(run(write, COURSE, __doc__.splitlines()[0]))
