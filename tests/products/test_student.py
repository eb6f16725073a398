"""The notebooks for students: nothing of a solution is left, and nothing of a learner is lost."""

import ast
import copy
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools.write_student import LINK, NOTEBOOKS, STUB, student_version, students, write

ROOT = Path(__file__).resolve().parents[2]
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
SPLIT = '''def split(projected, num_heads):
    """Cut the features into heads."""
    ### BEGIN SOLUTION
    cut = projected.unflatten(-1, (num_heads, -1))
    return cut.transpose(1, 2)
    ### END SOLUTION'''
MERGE = '''def merge(heads):
    """Put the heads side by side."""
    ### BEGIN SOLUTION
    return heads.transpose(1, 2).flatten(2)
    ### END SOLUTION'''
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
PREDICTION = "shape = ...\n### BEGIN SOLUTION\nshape = (2, 3, 4, 5)\n### END SOLUTION"


def marked(id: str, role: str, **marks: object) -> dict[str, object]:
    """Build nbgrader's metadata of a cell."""
    common = {"grade_id": f"{id}-{role}", "schema_version": 3, "task": False}
    return {"nbgrader": common | marks}


def answer(id: str, source: str) -> NotebookNode:
    marks = marked(id, "answer", grade=False, locked=False, solution=True)
    return new_code_cell(source, id=f"{id}-answer", metadata=marks)


def check(id: str, name: str) -> NotebookNode:
    marks = marked(id, "check", grade=True, locked=True, points=1, solution=False)
    return new_code_cell(f'check("{id}", {name})', id=f"{id}-check", metadata=marks)


def small_notebook() -> NotebookNode:
    """Build a notebook with two exercises, as it is after a run."""
    printed = [new_output("stream", name="stdout", text="right\n")]
    cells = [
        new_markdown_cell("# 06 Small\n\nSee [the page](../docs/page.md#part).", id="title"),
        new_code_cell("from twelve_lab.check import check", id="imports"),
        answer("06-split-heads", SPLIT),
        check("06-split-heads", "split"),
        answer("06-merge-heads", MERGE),
        check("06-merge-heads", "merge"),
        new_code_cell("print('right')", id="after", metadata={"collapsed": True, "tags": ["kept"]}),
    ]
    code = [cell for cell in cells if cell.cell_type == "code"]
    for count, cell in enumerate(code, 1):
        cell.execution_count, cell.outputs = count, copy.deepcopy(printed)
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


@pytest.fixture
def small() -> NotebookNode:
    return small_notebook()


@pytest.fixture
def project(tmp_path) -> Path:
    """Make a project of two notebooks and a page; returns the folder of the notebooks."""
    notebooks, docs = tmp_path / "project" / "notebooks", tmp_path / "project" / "docs"
    notebooks.mkdir(parents=True)
    docs.mkdir()
    first = new_notebook(cells=[new_markdown_cell("# 00 First\n\n[on](06_small.ipynb)", id="one")])
    nbformat.write(first, notebooks / "00_first.ipynb")
    nbformat.write(small_notebook(), notebooks / "06_small.ipynb")
    (docs / "page.md").write_text("# Page\n\n[back](../notebooks/06_small.ipynb)\n")
    return notebooks


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "build" / "student"


def edit(path: Path, number: int, source: str) -> None:
    """Change a cell of a stored notebook, as a learner does."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[number].source = source
    nbformat.write(notebook, path)


def everything(folder: Path) -> dict[str, bytes]:
    paths = folder.rglob("*") if folder.exists() else []
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


def solution_lines(notebook: NotebookNode) -> list[str]:
    """List the lines between the markers that say more than `return x`."""
    regions = [
        region
        for cell in notebook.cells
        for region in re.findall(r"BEGIN SOLUTION\n(.*?)\n[^\n]*END", cell.source, re.DOTALL)
    ]
    lines = [line.strip() for region in regions for line in region.splitlines()]
    return [line for line in lines if len(line) > 12]


def test_a_stub_takes_the_place_of_a_solution_at_its_indentation(small):
    student = student_version(small)
    assert student.cells[2].source == (
        'def split(projected, num_heads):\n    """Cut the features into heads."""\n    ' + STUB
    )
    small.cells[2].source = PREDICTION
    assert student_version(small).cells[2].source == "shape = ...\n" + STUB
    assert STUB == "# Your answer goes here."


def test_all_else_stays_as_it_was(small):
    before = copy.deepcopy(small)
    student = student_version(small)
    assert small == before
    assert [cell.id for cell in student.cells] == [cell.id for cell in small.cells]
    assert student.metadata == small.metadata
    for number in (0, 1, 3, 5, 6):
        assert student.cells[number].source == small.cells[number].source


def test_outputs_are_cleared_with_what_an_editor_notes_of_them(small):
    code = [cell for cell in student_version(small).cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * 6
    assert code[-1].metadata == {"tags": ["kept"]}


def test_answers_can_be_edited_and_checks_cannot_and_neither_can_be_deleted(small):
    locks = [
        (cell.metadata.get("deletable"), cell.metadata.get("editable"))
        for cell in student_version(small).cells
    ]
    free, edited, fixed = (None, None), (False, None), (False, False)
    assert locks == [free, free, edited, fixed, edited, fixed, free]
    small.cells[1].metadata = marked("06", "imports", grade=False, locked=True, solution=False)
    assert student_version(small).cells[1].metadata.editable is False


def test_a_student_version_is_its_own_student_version_no_more(small):
    with pytest.raises(ValueError, match="this has 0"):
        student_version(student_version(small))


WRONG = {
    "open": ("x\n### BEGIN SOLUTION\ny", "BEGIN SOLUTION stands without END SOLUTION"),
    "closed": ("x\n### END SOLUTION", "END SOLUTION stands without BEGIN SOLUTION"),
    "nested": (
        "### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION\n### END SOLUTION",
        "a second BEGIN SOLUTION stands before END SOLUTION",
    ),
    "two": (
        f"{PREDICTION}\n{PREDICTION}",
        "an answer is a code cell with one solution; this has 2",
    ),
    "none": ("x = ...", "an answer is a code cell with one solution; this has 0"),
}


@pytest.mark.parametrize(("source", "message"), WRONG.values(), ids=WRONG)
def test_a_solution_that_is_wrongly_marked_is_refused(small, source, message):
    small.cells[2].source = source
    with pytest.raises(ValueError) as caught:
        student_version(small)
    assert str(caught.value) == f"cell 3 (06-split-heads-answer): {message}"


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_solution_in_a_cell_that_is_no_answer_is_refused(small, number):
    small.cells[number].source = PREDICTION
    message = "it holds a solution, and its metadata do not say so"
    with pytest.raises(ValueError, match=message):
        student_version(small)


def test_an_answer_in_prose_is_refused(small):
    small.cells[0].metadata = small.cells[2].metadata
    small.cells[0].source = PREDICTION
    with pytest.raises(ValueError, match="an answer is a code cell"):
        student_version(small)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_of_our_notebooks_no_solution_survives_and_every_cell_does(path):
    notebook = nbformat.read(path, as_version=4)
    student = student_version(notebook)
    assert [(cell.id, cell.cell_type) for cell in student.cells] == [
        (cell.id, cell.cell_type) for cell in notebook.cells
    ]
    sources = [cell.source for cell in student.cells]
    survived = {line for line in solution_lines(notebook) for one in sources if line in one}
    assert not survived
    assert not any("SOLUTION" in source for source in sources)
    assert not any(cell.get("outputs") for cell in student.cells)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_of_our_notebooks_every_answer_is_python_without_its_solution_too(path):
    for cell in student_version(nbformat.read(path, as_version=4)).cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            ast.parse(cell.source)


def test_the_folder_holds_every_notebook_the_pages_they_need_and_a_begun_progress(project, folder):
    lines = write(folder, project)
    assert set(everything(folder)) == {
        "00_first.ipynb", "06_small.ipynb", "docs/page.md", "progress.json", ".written.json"
    }  # fmt: skip
    assert json.loads((folder / "progress.json").read_text()) == {
        "version": version("twelve"),
        "exercises": {},
    }
    assert lines == [
        f"{folder}: 2 notebooks; 3 of 3 files written",
        f"Next: open {folder / '00_first.ipynb'} in JupyterLab",
    ]


def test_a_second_time_nothing_is_written(project, folder):
    write(folder, project)
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("*.ipynb")}
    before = everything(folder)
    assert write(folder, project)[0].endswith("0 of 3 files written")
    assert everything(folder) == before
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.ipynb")} == stamps


def test_a_notebook_that_holds_answers_is_kept_and_named(project, folder):
    write(folder, project)
    edit(folder / "06_small.ipynb", 2, "def split(projected, num_heads):\n    return projected")
    before = everything(folder)
    lines = write(folder, project)
    assert everything(folder) == before
    assert lines[1:-1] == [
        "kept 06_small.ipynb: it holds your changes; to start it afresh, move it away and run this "
        "again"
    ]


@pytest.mark.parametrize("change", ["cell added", "cell removed", "cells swapped", "prose"])
def test_every_change_of_a_cell_counts(project, folder, change):
    write(folder, project)
    path = folder / "06_small.ipynb"
    notebook = nbformat.read(path, as_version=4)
    {
        "cell added": lambda cells: cells.append(new_code_cell("x = 1")),
        "cell removed": lambda cells: cells.pop(6),
        "cells swapped": lambda cells: cells.insert(2, cells.pop(4)),
        "prose": lambda cells: cells[0].update(source="# My notes"),
    }[change](notebook.cells)
    nbformat.write(notebook, path)
    before = path.read_bytes()
    edit(project / "06_small.ipynb", 6, "print('wrong')")
    assert any("kept 06_small.ipynb" in line for line in write(folder, project))
    assert path.read_bytes() == before


def test_a_notebook_that_was_only_run_is_renewed_when_the_course_moves_on(project, folder):
    write(folder, project)
    path = folder / "06_small.ipynb"
    ran = small_notebook()
    student = nbformat.read(path, as_version=4)
    for cell, other in zip(student.cells, ran.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = other.outputs, other.execution_count
    nbformat.write(student, path)
    before = path.read_bytes()
    write(folder, project)
    assert path.read_bytes() == before
    edit(project / "06_small.ipynb", 6, "print('newer')")
    assert write(folder, project)[0].endswith("1 of 3 files written")
    assert nbformat.read(path, as_version=4).cells[6].source == "print('newer')"


def test_a_kept_notebook_that_is_older_than_the_course_is_said_to_be_until_it_is_moved(
    project, folder
):
    write(folder, project)
    path = folder / "06_small.ipynb"
    edit(path, 2, "mine = 1")
    before = path.read_bytes()
    edit(project / "06_small.ipynb", 6, "print('newer')")
    for _ in range(2):
        assert write(folder, project)[1] == (
            "kept 06_small.ipynb: it holds your changes, and the course has a newer one; to get "
            "it, move yours away and run this again"
        )
        assert path.read_bytes() == before
    path.rename(folder / "mine.ipynb")
    assert write(folder, project)[0].endswith("1 of 3 files written")
    assert nbformat.read(path, as_version=4).cells[6].source == "print('newer')"
    assert (folder / "mine.ipynb").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cells": [{}]}', b"\xff\xfe"])
def test_what_cannot_be_read_as_a_notebook_is_kept(project, folder, content):
    write(folder, project)
    (folder / "06_small.ipynb").write_bytes(content)
    assert "kept 06_small.ipynb" in write(folder, project)[1]
    assert (folder / "06_small.ipynb").read_bytes() == content


def test_what_lay_there_before_is_kept(project, folder):
    folder.mkdir(parents=True)
    (folder / "06_small.ipynb").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    (folder / "docs").mkdir()
    (folder / "docs" / "page.md").write_text("mine")
    lines = write(folder, project)
    assert [line.partition(":")[0] for line in lines[1:-1]] == [
        "kept 06_small.ipynb",
        "kept docs/page.md",
    ]
    assert [*everything(folder).values()].count(b"mine") == 3


def test_progress_is_never_written_over_and_another_version_is_told(project, folder):
    write(folder, project)
    row = {"solved": "2026-11-20T09:00:00+00:00", "wrong answers": 1, "mistakes": []}
    noted = json.dumps({"version": "0.0.1", "exercises": {"06-split-heads": row}})
    (folder / "progress.json").write_text(noted)
    lines = write(folder, project)
    assert (folder / "progress.json").read_text() == noted
    told = f"progress.json was begun with version 0.0.1, and this is {version('twelve')}"
    assert lines[1:-1] == [told]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 1, "exercises": {}}'])
def test_a_broken_progress_is_an_error_and_nothing_is_written(project, folder, content):
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text(content)
    with pytest.raises(ValueError, match=r"progress\.json is no progress of this course"):
        write(folder, project)
    assert set(everything(folder)) == {"progress.json"}


@pytest.mark.parametrize("content", ["", "[]"])
def test_a_broken_record_is_an_error_and_nothing_is_written(project, folder, content):
    folder.mkdir(parents=True)
    (folder / ".written.json").write_text(content)
    with pytest.raises(ValueError, match=r"\.written\.json .*: move it away"):
        write(folder, project)
    assert set(everything(folder)) == {".written.json"}


def test_one_bad_notebook_is_named_and_nothing_is_written(project, folder):
    edit(project / "06_small.ipynb", 2, "### BEGIN SOLUTION")
    with pytest.raises(ValueError, match=r"06_small\.ipynb: cell 3 \(06-split-heads-answer\): "):
        write(folder, project)
    (project / "06_small.ipynb").write_text("no notebook")
    with pytest.raises(ValueError, match=r"06_small\.ipynb: Notebook does not appear to be JSON"):
        write(folder, project)
    assert not folder.exists()


def test_a_folder_that_is_a_file_or_holds_the_project_is_refused(project, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="file is a file, and a folder is needed"):
        write(tmp_path / "file", project)
    for folder in (project, project.parent, tmp_path):
        before = everything(folder)
        with pytest.raises(ValueError, match="holds the project itself: name another folder"):
            write(folder, project)
        assert everything(folder) == before


def test_without_notebooks_there_is_nothing_to_write(tmp_path, folder):
    with pytest.raises(ValueError, match="nowhere holds no notebook"):
        write(folder, tmp_path / "nowhere")
    assert not folder.exists()


def test_a_write_that_fails_leaves_what_was_there(project, folder, monkeypatch):
    write(folder, project)
    before = everything(folder)
    edit(project / "06_small.ipynb", 6, "print('newer')")

    def full(path, content):
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="no space left"):
            write(folder, project)
    now = everything(folder)
    assert {name: now[name] for name in before} == before
    assert write(folder, project)[0].endswith("1 of 3 files written")


def test_a_link_that_leaves_the_notebooks_leads_to_a_copy_and_back(project, folder):
    page, more = project.parent / "docs" / "page.md", project.parent / "src" / "code.py"
    more.parent.mkdir()
    more.write_text("[no link](nowhere)\n")
    page.write_text(
        "[back](../notebooks/06_small.ipynb#part) [code](../src/code.py) [self](page.md) "
        "`x](nowhere)` [web](https://example.org/x.md)\n\n```\n[a](nowhere)\n```\n[top](#page)\n"
    )
    write(folder, project)
    assert (
        nbformat.read(folder / "06_small.ipynb", 4)
        .cells[0]
        .source.endswith("[the page](docs/page.md#part).")
    )
    assert (folder / "docs" / "page.md").read_text() == (
        "[back](../06_small.ipynb#part) [code](../src/code.py) [self](page.md) "
        "`x](nowhere)` [web](https://example.org/x.md)\n\n```\n[a](nowhere)\n```\n[top](#page)\n"
    )
    assert (folder / "src" / "code.py").read_text() == "[no link](nowhere)\n"


@pytest.mark.parametrize("target", ["05_nowhere.ipynb", "../docs", "../../file", "/etc/hosts"])
def test_a_link_to_no_file_of_the_project_is_refused(project, folder, target):
    (project.parent.parent / "file").write_text("not ours")
    edit(project / "00_first.ipynb", 0, f"[there]({target})")
    with pytest.raises(ValueError) as caught:
        write(folder, project)
    message = f"00_first.ipynb: a link leads to {target}, which is no file of ours"
    assert str(caught.value) == message
    assert not folder.exists()


def links(path: Path) -> list[str]:
    """List the relative links of a page or of the prose of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = nbformat.reads(text, as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    targets = [found["target"] for found in LINK.finditer(text) if found["target"]]
    return [target for target in targets if not target.startswith("http")]


def test_in_our_own_folder_every_link_leads_to_a_file_in_it(folder):
    write(folder)
    pages = [path for path in folder.rglob("*") if path.suffix in (".ipynb", ".md")]
    led = [(path, (path.parent / target).resolve()) for path in pages for target in links(path)]
    assert len(led) > 100
    for path, target in led:
        assert target.is_file() and target.is_relative_to(folder.resolve()), (path.name, target)


def test_our_notebooks_differ_from_their_student_versions_on_disk_in_nothing_but_links(folder):
    write(folder)
    for name, student in students().items():
        stored = nbformat.read(folder / name, as_version=4)
        for cell in (*student.cells, *stored.cells):
            cell.source = re.sub(r"\]\([^)]*\)", "]", cell.source)
        assert stored == student


@pytest.mark.parametrize(
    ("name", "code", "printed"),
    [("new", 0, "Next: open "), ("file", 1, "file is a file, and a folder is needed")],
)
def test_the_command_says_what_it_did_or_why_not(tmp_path, name, code, printed):
    (tmp_path / "file").write_text("mine")
    command = [sys.executable, "-m", "tools.write_student", str(tmp_path / name)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert printed in (done.stderr if code else done.stdout).splitlines()[-1]
    assert not (done.stdout if code else done.stderr)


def run(notebook: NotebookNode, folder: Path) -> list[NotebookNode]:
    """Run a notebook from top to bottom whatever fails; returns its code cells."""
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=120,
        allow_errors=True,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def faults(cells: list[NotebookNode]) -> list[str]:
    """Name the cells that raised or wrote to stderr."""
    return [
        cell.id
        for cell in cells
        if any(one.output_type == "error" or one.get("name") == "stderr" for one in cell.outputs)
    ]


def is_check(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def test_a_blank_answer_is_told_softly_to_a_learner(small, tmp_path, monkeypatch):
    monkeypatch.delenv("TWELVE_STRICT", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cells = run(student_version(small), tmp_path)
    assert faults(cells) == []
    assert [cell.outputs[0].text.partition(" yet")[0] for cell in cells if is_check(cell)] == [
        "○ 06-split-heads: Not started",
        "○ 06-merge-heads: Not started",
    ]


WITH_CHECKS = [path for path in PATHS if any(map(is_check, nbformat.read(path, 4).cells))]


@pytest.mark.parametrize("path", WITH_CHECKS, ids=lambda path: path.stem)
def test_unanswered_each_check_of_a_notebook_fails_when_graded_and_nothing_else_does(
    path, tmp_path, monkeypatch
):
    monkeypatch.setenv("TWELVE_STRICT", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cells = run(student_version(nbformat.read(path, as_version=4)), tmp_path)
    checks = [cell for cell in cells if is_check(cell)]
    assert faults(cells) == [cell.id for cell in checks]
    for cell in checks:
        exercise = cell.metadata.nbgrader.grade_id.removesuffix("-check")
        assert cell.outputs[0].text.startswith(f"○ {exercise}: Not started yet")
        assert cell.outputs[-1].ename == "WrongAnswer"


BY_TURNS = [
    pytest.param(path, marks=[pytest.mark.weekly] * (path != WITH_CHECKS[0]), id=path.stem)
    for path in PATHS
]


@pytest.mark.parametrize("path", BY_TURNS)
def test_handed_out_a_notebook_runs_to_its_end(path, folder, monkeypatch):
    monkeypatch.delenv("TWELVE_STRICT", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write(folder)
    cells = run(nbformat.read(folder / path.name, as_version=4), folder)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert faults(cells) == []
