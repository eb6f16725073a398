"""The guard of `make test` fails a run that nbval passes without comparing every cell."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

PRINTED = new_output("stream", name="stdout", text="6\n")
CELLS = {"unchanged": {}, "19_model": {}, "skipped": {"metadata": {"tags": ["nbval-skip"]}}}
SAID = [
    "skipped.ipynb: 1 code cells, 0 passed",
    "left out: 1 notebooks, 19_*.ipynb",
    "2 notebooks, 2 code cells, 1 passed, 1 skipped",
]


@pytest.mark.slow
def test_what_nbval_passes_without_comparing_fails(tmp_path):
    good = {"source": "print(6)", "execution_count": 1, "outputs": [PRINTED]}
    pages = {name: [new_code_cell(**good | change)] for name, change in CELLS.items()}
    for name, cells in pages.items():
        nbformat.write(new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    other = tmp_path / "zh"
    other.mkdir()
    nbformat.write(new_notebook(cells=pages["skipped"]), other / "ignored.ipynb")
    options = ["-p", "no:cacheprovider", "-p", "tests.course.nbval_guard", "--nbval"]
    options += [f"--ignore={other}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--nbval-current-env", str(tmp_path)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert [line for line in SAID if line not in done.stdout] == []
    assert "unchanged.ipynb:" not in done.stdout
