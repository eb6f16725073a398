"""Solved copies of the notebooks: every right answer passes, and every blank answer fails."""

import copy
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.course.notebook_rules import code_cells
from tools import command
from tools.write_solutions import NOTEBOOKS, exercise_of, lessons, solved, write
from twelve_lab.check.solve import STUB

SPLIT = f'def split(projected, num_heads):\n    """Cut the features into heads."""\n    {STUB}'
MERGE = f'def merge(heads):\n    """Put the heads side by side."""\n    {STUB}'
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
EXERCISES = ["06-split-heads", "06-merge-heads"]


def marked(id: str, role: str, **marks: object) -> dict[str, object]:
    """Return the nbgrader metadata of a cell."""
    common = {"grade_id": f"{id}-{role}", "schema_version": 3, "task": False}
    return {"nbgrader": common | marks}


def answer_cell(id: str, source: str) -> NotebookNode:
    marks = marked(id, "answer", grade=False, locked=False, solution=True)
    return new_code_cell(source, id=f"{id}-answer", metadata=marks)


def check_cell(id: str, name: str) -> NotebookNode:
    marks = marked(id, "check", grade=True, locked=True, points=1, solution=False)
    return new_code_cell(f'check("{id}", {name})', id=f"{id}-check", metadata=marks)


def small_notebook() -> NotebookNode:
    """Build a notebook with two exercises and the outputs of a run."""
    printed = [new_output("stream", name="stdout", text="printed\n")]
    cells = [
        new_markdown_cell("# 06 Small\n\n[a page](../docs/page.md#part) [on](07.ipynb)", id="one"),
        new_code_cell("from twelve_lab.check import check", id="imports"),
        answer_cell(EXERCISES[0], SPLIT),
        check_cell(EXERCISES[0], "split"),
        answer_cell(EXERCISES[1], MERGE),
        check_cell(EXERCISES[1], "merge"),
        new_code_cell("print('printed')", id="after"),
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
    """Create the notebooks of a project: a lesson, its workshop and an editor's checkpoint."""
    notebooks = tmp_path / "project" / "notebooks"
    for folder in ("", "workshop", ".ipynb_checkpoints"):
        (notebooks / folder).mkdir(parents=True, exist_ok=True)
        nbformat.write(small_notebook(), notebooks / folder / "06_small.ipynb")
    return notebooks


def edit(path: Path, number: int, source: str) -> None:
    """Edit a cell of a stored notebook."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[number].source = source
    nbformat.write(notebook, path)


def everything(folder: Path) -> dict[str, bytes]:
    paths = folder.rglob("*") if folder.exists() else []
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


def test_solved_replaces_each_answer_and_removes_outputs_of_the_blank(small):
    before = copy.deepcopy(small)
    answered = solved(small)
    assert small == before
    line = "return heads.transpose(1, 2).flatten(2)"
    assert answered.cells[4].source == MERGE.replace(STUB, line)
    shown = [cell.id for cell in answered.cells if cell.get("outputs")]
    assert shown == ["imports", "after"]
    assert [cell.source for cell in answered.cells if not exercise_of(cell, "answer")] == [
        cell.source for cell in small.cells if not exercise_of(cell, "answer")
    ]


def test_solved_solves_the_named_exercises_alone(small):
    half = solved(small, EXERCISES[:1])
    assert STUB not in half.cells[2].source
    assert half.cells[4:] == small.cells[4:]


def test_solved_imports_no_name_that_the_page_has(small):
    assert "    from einops import rearrange\n" in solved(small).cells[2].source
    small.cells[1].source += "\nfrom einops import rearrange"
    assert "import" not in solved(small).cells[2].source


def test_write_solutions_keeps_folders_and_links(project, tmp_path):
    folder = tmp_path / "project" / "build" / "solutions"
    (folder / "workshop").mkdir(parents=True)
    (folder / "workshop" / "06_small.ipynb").write_text("of an earlier run")
    edit(project / "workshop" / "06_small.ipynb", 0, "[l](../06_small.ipynb) [p](../../docs/p.md)")
    assert write(folder, project) == [f"{folder}: 2 notebooks, solved"]
    assert set(everything(folder)) == {"06_small.ipynb", "workshop/06_small.ipynb"}
    lesson, workshop = (nbformat.read(folder / name, 4) for name in everything(folder))
    assert lesson.cells[0].source.endswith("[a page](../../docs/page.md#part) [on](07.ipynb)")
    assert workshop.cells[0].source == "[l](../06_small.ipynb) [p](../../../docs/p.md)"
    assert not any(STUB in cell.source for cell in lesson.cells + workshop.cells)


def test_write_solutions_refuses_wrong_notebooks_and_folders(project):
    before = everything(project.parent)
    for folder in (project, project.parent, project / "solutions"):
        with pytest.raises(ValueError, match="holds the project itself: name another folder"):
            write(folder, project)
    with pytest.raises(ValueError, match="nowhere holds no notebook"):
        write(project.parent / "build", project / "nowhere")
    assert everything(project.parent) == before
    edit(project / "06_small.ipynb", 2, "def split(projected, num_heads): return projected")
    message = "06-split-heads: the answer cell must end with the only line"
    with pytest.raises(ValueError, match=message):
        write(project.parent / "build", project)
    (project / "06_small.ipynb").write_text("no notebook")
    with pytest.raises(ValueError, match=r"06_small\.ipynb: Notebook does not appear to be JSON"):
        write(project.parent / "build", project)
    assert not (project.parent / "build").exists()


def test_write_solutions_command_prints_a_result_or_an_error(
    project, tmp_path, monkeypatch, capsys
):
    for folder, status in ((tmp_path / "solved", 0), (project, 1)):
        monkeypatch.setattr(sys, "argv", ["write_solutions", str(folder)])
        assert command.run(lambda folder: write(folder, project), tmp_path, "") == status
        out, err = capsys.readouterr()
        assert ("2 notebooks, solved" in out, bool(err)) == (not status, bool(status))


def run(notebook: NotebookNode, folder: Path) -> list[NotebookNode]:
    """Run a notebook from top to bottom, ignoring errors, and return the code cells."""
    NotebookClient(
        notebook, timeout=120, allow_errors=True, coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    ).execute()  # fmt: skip
    return code_cells(notebook)


def faults(cells: list[NotebookNode]) -> list[str]:
    """Return the ids of the cells that raised an error or wrote to stderr."""
    return [
        cell.id
        for cell in cells
        if any(out.output_type == "error" or out.get("name") == "stderr" for out in cell.outputs)
    ]


def is_check(cell: NotebookNode) -> bool:
    return exercise_of(cell, "check") is not None


@pytest.fixture
def graded(monkeypatch):
    """Make blank answers fail, as in grading; the kernels inherit the environment variables."""
    monkeypatch.setenv("TWELVE_STRICT", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


ONE = "04_attention.ipynb"  # `make check` runs this notebook, the weekly tests run the others
WITH_CHECKS = [
    pytest.param(name, marks=[pytest.mark.weekly] * (name != ONE))
    for name, notebook in lessons(NOTEBOOKS).items()
    if any(map(is_check, notebook.cells))
]


@pytest.mark.parametrize("name", WITH_CHECKS)
def test_solved_notebook_passes_and_half_solved_one_fails_the_other_checks(name, tmp_path, graded):
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    for cell in (cells := run(solved(notebook), tmp_path)):
        if id := exercise_of(cell, "check"):
            reply = cell.outputs[0].data["text/plain"]
            assert reply.startswith(f"✓ {id}") and "A note" not in reply
    assert faults(cells) == []
    ids = [id for cell in notebook.cells if (id := exercise_of(cell, "check"))]
    cells = run(solved(notebook, ids[::2]), tmp_path)
    failing = [cell for cell in cells if is_check(cell)][1::2]
    assert faults(cells) == [cell.id for cell in failing]
    for cell in failing:
        assert cell.outputs[0].text.startswith(f"○ {exercise_of(cell, 'check')}")
        assert cell.outputs[-1].ename == "WrongAnswer"
