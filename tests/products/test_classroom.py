"""The nbgrader course: the assignments are our notebooks, and right answers earn points.

`make classroom` runs these tests. Without nbgrader, only the tests of the written files run.
`make check` grades a small notebook with all, half and none of its answers. A weekly test grades a
lesson in the same way.
tests/products/test_solutions.py runs the solved notebooks of the course.
"""

import copy
import csv
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from tests.products.test_solutions import edit, everything, faults, is_check, small_notebook
from tools.write_course import assignments, write
from tools.write_solutions import NOTEBOOKS, exercise_of, solved
from twelve_lab.check.solve import STUB

ROOT = Path(__file__).resolve().parents[2]
SMALL = "06_small"
LESSON = "04_attention"
# The unsolved notebooks, keyed by assignment.
UNSOLVED = {
    SMALL: small_notebook(),
    LESSON: nbformat.read(NOTEBOOKS / f"{LESSON}.ipynb", as_version=4),
}
# The checks that fail, keyed by the amount answered.
FAILING = {"all": slice(0, 0), "none": slice(None), "half": slice(1, None, 2)}
NEEDS_NBGRADER = pytest.mark.skipif(not find_spec("nbgrader"), reason="nbgrader is missing")


@pytest.fixture
def project(tmp_path) -> Path:
    """Create a folder of two notebooks, one of them without exercises."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    nbformat.write(small_notebook(), notebooks / f"{SMALL}.ipynb")
    plain = small_notebook()
    del plain.cells[2:6]
    nbformat.write(plain, notebooks / "00_plain.ipynb")
    return notebooks


def hand_in(course: Path, name: str) -> None:
    """Submit a notebook with all answers, with none, and with every second answer."""
    none = UNSOLVED[name]
    ids = [id for cell in none.cells if (id := exercise_of(cell, "check"))]
    answers = {"all": solved(none), "none": copy.deepcopy(none), "half": solved(none, ids[::2])}
    for student, notebook in answers.items():
        folder = course / "submitted" / student / name
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{name}.ipynb")


def test_write_course_makes_an_assignment_of_each_notebook_with_graded_cells(project, tmp_path):
    (project / "workshop").mkdir()
    nbformat.write(small_notebook(), project / "workshop" / f"{SMALL}.ipynb")
    lines = write(tmp_path / "course", project)
    names = [SMALL, f"{SMALL}_workshop"]
    assert list(assignments(project)) == names
    assert set(everything(tmp_path / "course")) == {
        "nbgrader_config.py", ".written.json", *(f"source/{name}/{name}.ipynb" for name in names),
    }  # fmt: skip
    assert lines[0].endswith("2 assignments; 3 of 3 files written")
    assert lines[-1].endswith(f"nbgrader generate_assignment {SMALL}")
    assert LESSON in assignments()
    assert f'{{"python": "{STUB}"}}' in (ROOT / "tools" / "nbgrader_config.py").read_text()


def test_write_course_refuses_a_wrong_folder_or_record(project, tmp_path):
    with pytest.raises(ValueError, match="holds the project itself"):
        write(project, project)
    (tmp_path / "course").mkdir()
    for content in ("", "[]"):
        (tmp_path / "course" / ".written.json").write_text(content)
        with pytest.raises(ValueError, match=r"\.written\.json .*: move it away"):
            write(tmp_path / "course", project)
    assert set(everything(tmp_path / "course")) == {".written.json"}
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file is a file, and a folder is needed"):
        write(tmp_path / "file", project)
    (project / f"{SMALL}.ipynb").unlink()
    with pytest.raises(ValueError, match=r"no notebook in .* has cells that give points"):
        write(tmp_path / "none", project)
    assert not (tmp_path / "none").exists()


def test_write_course_keeps_everything_that_a_teacher_has_there(project, tmp_path):
    course = tmp_path / "course"
    write(course, project)
    own = {
        "gradebook.db": b"points",
        f"submitted/all/{SMALL}/{SMALL}.ipynb": b"answers",
        "source/mine/mine.ipynb": b"mine",
        f"source/{SMALL}/data.csv": b"1,2",
        "nbgrader_config.py": b"# mine",
    }
    for name, content in own.items():
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        (course / name).write_bytes(content)
    edit(project / f"{SMALL}.ipynb", 0, "# Newer")
    lines = write(course, project)
    now = everything(course)
    assert {name: now[name] for name in own} == own
    stored = nbformat.read(course / "source" / SMALL / f"{SMALL}.ipynb", as_version=4)
    assert stored.cells[0].source == "# Newer"
    assert lines[1].startswith("kept nbgrader_config.py: it holds your changes; to start it afresh")
    assert len(lines) == 3


CHANGES = {
    "cell added": lambda cells: cells.append(new_code_cell("x = 1")),
    "cell removed": lambda cells: cells.pop(6),
    "points": lambda cells: cells[3].metadata.nbgrader.update(points=5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_write_course_keeps_a_changed_assignment_and_replaces_one_that_was_run(
    project, tmp_path, change
):
    course = tmp_path / "course"
    write(course, project)
    path = course / "source" / SMALL / f"{SMALL}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].outputs, notebook.cells[1].execution_count = [], 7
    nbformat.write(notebook, path)
    edit(project / f"{SMALL}.ipynb", 6, "print('newer')")
    assert write(course, project)[0].endswith("1 of 2 files written")
    notebook = nbformat.read(path, as_version=4)
    assert notebook.cells[6].source == "print('newer')"
    CHANGES[change](notebook.cells)
    nbformat.write(notebook, path)
    before = path.read_bytes()
    assert "it holds your changes; to start it afresh, move it away" in write(course, project)[1]
    edit(project / f"{SMALL}.ipynb", 0, "# Newer")
    assert "the course has a newer one" in write(course, project)[1]
    assert path.read_bytes() == before


def test_write_course_is_atomic(project, tmp_path, monkeypatch):
    course = tmp_path / "course"
    write(course, project)
    before = everything(course)
    edit(project / f"{SMALL}.ipynb", 6, "print('newer')")

    def full(path, content):
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="no space left"):
            write(course, project)
    now = everything(course)
    assert {name: now[name] for name in before} == before
    assert write(course, project)[0].endswith("1 of 2 files written")


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """Write a course of two notebooks."""
    folder, notebooks = tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("notebooks")
    for name, notebook in UNSOLVED.items():
        nbformat.write(notebook, notebooks / f"{name}.ipynb")
    write(folder, notebooks)
    return folder


def succeeded(result: dict[str, object]) -> bool:
    assert result["success"], result.get("error") or result.get("log")
    return True


def stored(course: Path, step: str, name: str, student: str = "") -> NotebookNode:
    return nbformat.read(course / step / student / name / f"{name}.ipynb", as_version=4)


# nbgrader's own query causes this warning.
ITS_WARNINGS = pytest.mark.filterwarnings("ignore:Object of type <Submitted")


@NEEDS_NBGRADER
@ITS_WARNINGS
@pytest.mark.parametrize("name", [SMALL, pytest.param(LESSON, marks=pytest.mark.weekly)])
def test_grading_gives_points_for_right_answers_alone(course, api, name):
    assert succeeded(api.generate_assignment(name))
    sources = [cell.source for cell in stored(course, "release", name).cells]
    assert sources == [cell.source for cell in UNSOLVED[name].cells]
    hand_in(course, name)
    checks = [cell for cell in stored(course, "source", name).cells if is_check(cell)]
    points = [cell.metadata.nbgrader.points for cell in checks]
    for student, failing in FAILING.items():
        assert succeeded(api.autograde(name, student))
        with api.gradebook as book:
            score = book.find_submission(name, student).score
        assert score == sum(points) - sum(points[failing])
        code = [cell for cell in stored(course, "autograded", name, student).cells
                if cell.cell_type == "code"]  # fmt: skip
        assert all(cell.execution_count for cell in code if cell.source)
        assert faults(code) == [cell.id for cell in code if is_check(cell)][failing]


@pytest.mark.weekly
@NEEDS_NBGRADER
def test_nbgrader_commands_of_a_teacher_work(project, tmp_path):
    course = tmp_path / "course"
    write(course, project)
    hand_in(course, SMALL)
    for command in ("generate_assignment", "autograde", "generate_feedback", "export"):
        named = [] if command == "export" else [SMALL]
        words = [sys.executable, "-m", "nbgrader", command, *named]
        done = subprocess.run(words, cwd=course, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    with (course / "grades.csv").open(newline="") as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert scores == {"all": 2, "none": 0, "half": 1}
    page = course / "feedback" / "half" / SMALL / f"{SMALL}.html"
    assert "06-merge-heads: Not started yet" in page.read_text(encoding="utf-8")
    before = everything(course)
    write(course, project)
    assert everything(course) == before
