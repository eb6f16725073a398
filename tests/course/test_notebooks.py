"""The stored notebooks follow every rule, and each general rule detects a violation."""

import copy
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.course import lesson_rules, notebook_rules
from tests.course.notebook_rules import SAID_ONLY, code_cells, general_problems, name_of
from tools import run_notebooks
from twelve_lab.course import pages

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {name_of(path): path for path in pages(ROOT)}
LESSON = NOTEBOOKS["04_attention"]
FOLDED = {"jupyter": {"outputs_hidden": True}}


@cache
def stored(path):
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_stored_notebook_keeps_every_rule(name):
    assert lesson_rules.problems(stored(NOTEBOOKS[name]), NOTEBOOKS[name]) == []


@pytest.mark.parametrize("name", SAID_ONLY)
def test_an_exception_of_said_only_is_still_needed(name, monkeypatch):
    exceptions = set().union(*SAID_ONLY[name].values())
    monkeypatch.setattr(notebook_rules, "SAID_ONLY", {})
    problems = general_problems(stored(NOTEBOOKS[name]), NOTEBOOKS[name])
    assert {line.split("says ")[1].split(", which")[0] for line in problems} == exceptions


def code(change, place=-1):
    """Return an edit of one code cell; by default the last, the check of an exercise."""
    return lambda notebook: change(code_cells(notebook)[place])


def add(cell, place=2):
    return lambda notebook: notebook.cells.insert(place, cell)


def says(text):
    return add(new_markdown_cell(text), -1)


def runs(source):
    return add(new_code_cell(source, execution_count=1))


def shows(data):
    output = new_output("display_data", data=data)
    return code(lambda cell: cell.outputs.append(output))


def prints(text):
    return code(lambda cell: cell.outputs.append(new_output("stream", text=text)))


BROKEN = [
    (code(lambda cell: cell.update(outputs=[])), "should have an output and has none"),
    (code(lambda cell: cell.update(execution_count=1)), "not run from top to bottom"),
    (code(lambda cell: cell.outputs.append(new_output("error", ename="E", evalue="",
                                                      traceback=[]))), "stores an error"),
    (prints("tensor([1.], device='cuda:0')"), "prints 'device='"),
    (prints("/home/somebody/file"), "which depends on the machine"),
    (shows({"image/png": ""}), "the picture is no SVG in an <img>"),
    (runs("x = 1;"), "holds a hidden output"),
    (runs("x = 1\n" * 19), "has 19 lines"),
    (runs("print(6)  # NBVAL_IGNORE_OUTPUT"), "holds an nbval comment"),
    (code(lambda cell: cell.metadata.update(tags=["nbval-skip"])), "has a tag of nbval"),
    (code(lambda cell: cell.update(source="import twelve_lab"), 0), "does not install the course"),
    (says("The sum is 0.9876."), "the prose says 0.9876, which is in no cell"),
    (says("Of shape (77, 3)."), "the prose says (77, 3), which is in no cell"),
    (says("Of shape (head, batch)."), "the prose says (head, batch), which is in no cell"),
    (says("![figure](figure.png)"), "the prose holds an image"),
    (says("[next](05_nowhere.ipynb)"), "a link leads to 05_nowhere.ipynb"),
    (lambda notebook: notebook.metadata.update(widgets={}), "notebook metadata"),
    (lambda notebook: notebook.cells[1].update(id=notebook.cells[0].id), "have the same id"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "problem"), BROKEN)
def test_each_general_rule_fails_on_the_notebook_that_breaks_it(change, problem):
    notebook = copy.deepcopy(stored(LESSON))
    change(notebook)
    problems = general_problems(nbformat.from_dict(notebook), LESSON)
    assert any(problem in line for line in problems), problems


@pytest.mark.parametrize(
    "text",
    ["It is 0.5, or 0.50, and not −0.35.", "What is left of 1 - 0.35?", "With PyTorch 2.13.",
     "(2, 3, 4), (6, 4, -1), (batch, head), (head,query)", "`causal_mask(new, all)`, (02, 03)"],
)  # fmt: skip
def test_the_notation_of_a_number_or_a_shape_does_not_matter(text):
    shown = 'print("0.5000 -0.35 [2, 3, 4] view(6, 4, -1) batch head query")'
    cells = [new_code_cell(shown), new_markdown_cell(text)]
    problems = general_problems(new_notebook(cells=cells), Path("04_attention.ipynb"))
    assert [line for line in problems if "prose" in line] == []


@pytest.mark.slow
def test_run_notebooks_keeps_tags_and_folded_outputs(tmp_path):
    path = tmp_path / "workshop" / "04_attention.ipynb"
    path.parent.mkdir()
    kept = {**FOLDED, "tags": ["idea"]}
    cell = new_code_cell("import os\nprint(os.path.basename(os.getcwd()))", metadata=kept)
    cell.metadata["collapsed"] = True
    nbformat.write(new_notebook(cells=[cell]), path)
    run_notebooks.run(path)
    (ran,) = nbformat.read(path, as_version=4).cells
    assert ran.metadata == kept
    assert ran.outputs[0].text == "workshop\n"
