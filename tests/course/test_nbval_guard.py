"""The guard of `make test`: each way in which nbval is green without comparing must be red."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from tests.course import nbval_guard
from tests.course.figures import picture_of
from tests.course.nbval_guard import nbval
from twelve_lab.explorer.parts import PARTS, frame

ROOT = Path(__file__).parents[2]


def stored_cell(source, printed, count):
    """Build a code cell as it is stored after a run that printed one line."""
    stream = nbformat.v4.new_output("stream", name="stdout", text=printed)
    return nbformat.v4.new_code_cell(source, execution_count=count, outputs=[stream])


def cleared(notebook):
    notebook.cells[1].execution_count = None
    notebook.cells[1].outputs = []


def skipped(notebook):
    notebook.cells[1].metadata.tags = ["nbval-skip"]


def ignored(notebook):
    notebook.cells[1].source += "\n# NBVAL_IGNORE_OUTPUT"


def only_prose(notebook):
    del notebook.cells[:]


def untouched(notebook):
    pass


def store(folder, *changes):
    """Write one notebook for each change, named after it."""
    for change in changes:
        cells = [stored_cell("print(3)", "3\n", 1), stored_cell("print(6)", "6\n", 2)]
        notebook = nbformat.v4.new_notebook(cells=cells)
        change(notebook)
        nbformat.write(notebook, folder / f"{change.__name__}.ipynb")


def run_guarded(folder):
    guarded = ["-p", "tests.course.nbval_guard", "--nbval", "--nbval-current-env", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *guarded],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_what_nbval_alone_finds_green_is_red(tmp_path):
    store(tmp_path, cleared, skipped, ignored, only_prose, untouched)
    (tmp_path / "workshop").mkdir()
    store(tmp_path / "workshop", untouched, cleared)
    # Tests of another kind run beside them, and are no cells.
    other = "import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip()\n"
    (tmp_path / "test_other.py").write_text(other)
    done = run_guarded(tmp_path)
    assert " 12 passed, 2 skipped in " in done.stdout
    assert done.returncode == 1
    for fault in (
        f"{tmp_path.name}/cleared.ipynb: code cell 2 is stored as run number None",
        "workshop/cleared.ipynb: code cell 2 is stored as run number None",
        "skipped.ipynb: 2 code cells, 1 passed",
        "skipped.ipynb: code cell 2 tells nbval not to compare it",
        "ignored.ipynb: code cell 2 tells nbval not to compare it",
        "only_prose.ipynb: no code cell",
        "7 notebooks, 12 code cells, 11 passed, 1 skipped",
    ):
        assert fault in done.stdout
    assert "untouched.ipynb:" not in done.stdout


def compared(html: str) -> str:
    """Leave of an output what nbval compares."""
    text = (ROOT / "tests" / "course" / "nbval_frames.cfg").read_text()
    for pattern, instead in nbval.get_sanitize_patterns(text):
        html = re.sub(pattern, instead, html)
    return html


def test_of_a_frame_is_compared_all_but_the_page_in_it():
    kept = compared(frame("mask"))
    assert len(kept) < 500 and PARTS["mask"].title in kept


def test_of_a_picture_its_alt_text_is_compared():
    assert compared(picture_of("Two words.")) == (
        '<img alt="Two words." style="max-width:100%" a picture>'
    )


@pytest.mark.parametrize("asked", [True, False])
def test_what_needs_the_model_is_left_out_unless_asked_for_and_that_is_said(asked, tmp_path):
    store(tmp_path, untouched)
    model = (tmp_path / "untouched.ipynb").rename(tmp_path / "19_model.ipynb")
    store(tmp_path, untouched)
    config = SimpleNamespace(
        rootpath=tmp_path, invocation_params=SimpleNamespace(dir=tmp_path), args=["."],
        option=SimpleNamespace(with_model=asked),
    )  # fmt: skip
    guard = nbval_guard.NotebookGuard(config)
    lines = []
    guard.pytest_terminal_summary(SimpleNamespace(line=lambda text, **_: lines.append(text)))
    said = "left out: 1 notebooks, 19_*.ipynb; `make check` compares them too"
    assert (said in lines) == (not asked)
    assert f"{1 + asked} notebooks, {2 + 2 * asked} code cells, 0 passed, none skipped" in lines
    assert nbval_guard.pytest_ignore_collect(model, config) is (None if asked else True)
    assert nbval_guard.pytest_ignore_collect(tmp_path / "untouched.ipynb", config) is None
