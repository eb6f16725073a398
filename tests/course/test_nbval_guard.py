"""The guard of `make test`: where nbval passes without comparing, the run must fail."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.course.nbval_guard import nbval
from twelve_lab.explorer.parts import PARTS, frame

ROOT = Path(__file__).parents[2]
UNCHANGED = {
    "unchanged": lambda notebook: None,
    "19_model": lambda notebook: None,
}
FAULTS = {
    "cleared": lambda notebook: notebook.cells[1].update(outputs=[], execution_count=None),
    "skipped": lambda notebook: notebook.cells[1].metadata.update(tags=["nbval-skip"]),
    "ignored": lambda notebook: notebook.cells[1].update(source="# NBVAL_IGNORE_OUTPUT\nprint(6)"),
    "empty": lambda notebook: notebook.cells.clear(),
}


@pytest.mark.slow
def test_what_nbval_passes_without_comparing_fails(tmp_path):
    for name, change in (UNCHANGED | FAULTS).items():
        cells = [
            new_code_cell(
                f"print({3 * count})",
                execution_count=count,
                outputs=[new_output("stream", name="stdout", text=f"{3 * count}\n")],
            )
            for count in (1, 2)
        ]
        notebook = new_notebook(cells=cells)
        change(notebook)
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    guarded = ["-p", "tests.course.nbval_guard", "--nbval", "--nbval-current-env", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *guarded],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert " 7 passed, 1 skipped in " in done.stdout
    assert done.returncode == 1
    for fault in (
        "cleared.ipynb: code cell 2 is stored as run number None",
        "skipped.ipynb: 2 code cells, 1 passed",
        "ignored.ipynb: code cell 2 tells nbval not to compare it",
        "empty.ipynb: no code cell",
        "left out: 1 notebooks, 19_*.ipynb",
        "5 notebooks, 8 code cells, 7 passed, 1 skipped",
    ):
        assert fault in done.stdout
    assert "unchanged.ipynb:" not in done.stdout


def test_a_live_page_is_compared_without_its_packed_data():
    html = frame("mask")
    for pattern, replacement in nbval.get_sanitize_patterns(
        (ROOT / "tests" / "course" / "nbval_frames.cfg").read_text()
    ):
        html = re.sub(pattern, replacement, html)
    assert len(html) < 500 and PARTS["mask"].title in html
