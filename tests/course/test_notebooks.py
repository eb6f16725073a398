"""The stored notebooks, and the rules that guard them: each rule is seen to fail."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.course import lesson_rules, notebook_rules
from tests.course.figures import picture_of
from tests.course.notebook_rules import SAID_ONLY, code_cells, general_problems, name_of
from tools import run_notebooks
from twelve_lab.check import EXERCISES
from twelve_lab.course import pages

NOTEBOOKS = pages(Path(__file__).parents[2])
[CORRECTIONS] = [path for path in NOTEBOOKS if path.stem == lesson_rules.NOTES]
ALT = "A figure that shows two sentences."
PICTURE = picture_of(ALT)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_stored_notebook_keeps_every_rule(path):
    assert lesson_rules.problems(nbformat.read(path, as_version=4), path) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_only_what_a_page_says_without_a_cell_is_excepted(path, monkeypatch):
    excepted = set().union(*SAID_ONLY.get(name_of(path), {}).values())
    monkeypatch.setattr(notebook_rules, "SAID_ONLY", {})
    found = general_problems(nbformat.read(path, as_version=4), path)
    assert {line.split("says ")[1].split(", which")[0] for line in found} == excepted


def test_exceptions_are_those_of_pages_that_are_there():
    assert set(SAID_ONLY) <= set(map(name_of, NOTEBOOKS))


def test_the_corrections_are_counted_by_their_kind_and_each_cell_is_there():
    notebook = nbformat.read(CORRECTIONS, as_version=4)
    counted = dict(re.findall(r"^\| (\w+) \| (\d+) \|", notebook.cells[-1].source, re.M))
    found = Counter()
    for cell, after in pairwise(notebook.cells):
        rows = re.findall(r"^\| [^|]+ \| [^|]+ \| .+ \| (\w+) \| (.*)\|$", cell.source, re.M)
        found.update(kind for kind, _ in rows if kind != "kind")
        assert "cell " not in [shown for _, shown in rows] or after.cell_type == "code", cell.id
    assert counted == {kind: str(number) for kind, number in found.items()}
    assert f": {found.total()} statements" in notebook.cells[0].source
    assert f"{found['stops']} of {found.total()} raise" in notebook.cells[-1].source


def test_there_are_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS][:5] == ["00", "01", "02", "03", "04"]


@pytest.fixture
def good():
    """A notebook that keeps every rule."""
    code = [
        new_code_cell("import torch", execution_count=1),
        new_code_cell("print(1)", execution_count=2,
                      outputs=[new_output("stream", name="stdout", text="1\n")]),
        new_code_cell("draw.tensor(x)", execution_count=3, outputs=[
            new_output("display_data", data={"text/html": PICTURE, "text/plain": ALT}),
            new_output("stream", name="stdout", text="1.0000\n"),
        ]),
    ]  # fmt: skip
    notebook = new_notebook(cells=[new_markdown_cell("# 04 Attention"), *code])
    notebook.metadata = {"kernelspec": {}, "language_info": {}}
    return notebook


PATH = Path("04_attention.ipynb")


def test_a_good_notebook_has_no_problem(good):
    assert general_problems(good, PATH) == []


def _code(notebook, number):
    return code_cells(notebook)[number - 1]


def clear_outputs(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def prose(text):
    return lambda notebook: notebook.cells.append(new_markdown_cell(text))


def source(text):
    def change(notebook):
        _code(notebook, 2).source = text

    return change


def output(text):
    def change(notebook):
        _code(notebook, 2).outputs[0].text = text

    return change


def shows(picture):
    return lambda notebook: _code(notebook, 3).outputs[0].data.update({"text/html": picture})


def stores(kind, **fields):
    return lambda notebook: _code(notebook, 2).outputs.append(new_output(kind, **fields))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (clear_outputs, "not run from top to bottom"),
        (clear_outputs, "code cell 2 should have an output"),
        (lambda n: _code(n, 3).update(execution_count=7), "execution counts are [1, 2, 7]"),
        (lambda n: _code(n, 3).update(outputs=[]), "code cell 3 should have an output"),
        (lambda n: _code(n, 3).outputs.pop(), "no printed summary follows"),
        (shows(picture_of("")), "the picture has no alt text"),
        (shows(PICTURE.replace("</svg>", "")), "the picture is no SVG"),
        (shows(PICTURE.replace("svg+xml", "png")), "the picture is no SVG in an <img>"),
        (lambda n: _code(n, 3).outputs[0].update(data={"image/png": ""}), "no SVG in an <img>"),
        (stores("error", ename="ValueError", evalue="", traceback=[]), "stores an error: Value"),
        (stores("stream", name="stderr", text="warning"), "stores stderr: 'warning'"),
        (source("# NBVAL_IGNORE_OUTPUT\nprint(1)"), "an nbval comment"),
        (source("x = 1;"), "a hidden output"),
        (source("Out[1]"), "the output history"),
        (source("import sys\nsys.path.append('.')"), "holds sys.path"),
        (source("x = 1\n" * 18), "has 18 lines"),
        (output("tensor([1.], device='cuda:0')"), "prints 'device='"),
        (output("<object at 0x7f0123456789>"), "which another machine would not"),
        (output("/home/somebody/file"), "which another machine would not"),
        (prose("This is simply so."), "the prose says 'simply'"),
        (prose("The sum is 0.1234."), "the prose says 0.1234, which is in no cell"),
        (prose("![figure](figure.png)"), "the prose holds an image"),
        (prose("[next](05_nowhere.ipynb)"), "a link leads to 05_nowhere.ipynb"),
        (prose("<details>"), "a <details> is not closed"),
        (lambda n: n.metadata.update(widgets={}), "notebook metadata"),
        (lambda n: n.metadata.language_info.update(version="3.11.7"), "name a Python version"),
        (lambda n: n.cells[1].update(id=n.cells[2].id), "two cells have the same id"),
    ],
)  # fmt: skip
def test_each_rule_fails_on_the_notebook_that_breaks_it(good, change, complaint):
    good.metadata = nbformat.from_dict(good.metadata)
    change(good)
    found = general_problems(good, PATH)
    assert any(complaint in line for line in found), found


SHOWN = """0.5000 -0.35 1e-5 3.10 torch.Size([2, 3, 4]) view(6, 4, -1) (batch=2, query=5)
Float[Tensor, "batch head query"]"""


@pytest.mark.parametrize(
    "text",
    [
        "It is 0.5, or 0.50, and not −0.35.", "What is left of 1 - 0.35 and $2\\cdot 0.35$?",
        "From $-0.35$ to 1e-5, at 3.1.", "With PyTorch 2.13, as in section 5.4.", "On page 12.",
        "(2, 3, 4) and [9, 9], (6, 4, -1), (2, 5)",
        "(batch, head, query), (head,query), (2, query)",
        "Steps (02, 03) and `causal_mask(new, all)`, (x, weight), (2), (batch)",
        f"`{EXERCISES['06-split-heads'].contract}`",
    ],
)  # fmt: skip
def test_a_number_or_a_shape_may_be_written_in_another_way(good, text):
    output(SHOWN)(good)
    prose(text)(good)
    assert general_problems(good, PATH) == []


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("It is -0.5.", "-0.5"), ("It is 0.35.", "0.35"), ("It is (−0.5)", "-0.5"),
        ("About 0.6.", "0.6"), ("It is $-7$.", "-7"), ("2e-5 or 1.5e-5", "1.5e-5"),
        ("The sum, 1 - 0.65 = -0.35", "0.65"), ("(2, 4, 3)", "(2, 4, 3)"), ("(3, 4)", "(3, 4)"),
        ("(2, 3)", "(2, 3)"), ("(6, 5, -1)", "(6, 5, -1)"),
        ("(head, batch, query)", "(head, batch, query)"), ("(query, batch)", "(query, batch)"),
        ("(query, 2)", "(query, 2)"),
    ],
)  # fmt: skip
def test_a_changed_number_or_shape_is_noticed(good, text, unknown):
    output(SHOWN)(good)
    prose(text)(good)
    assert f"the prose says {unknown}, which is in no cell and in no output" in general_problems(
        good, PATH
    )


@pytest.mark.parametrize("line", ["!pip install torch", "%matplotlib inline"])
def test_what_is_not_python_is_refused(good, line):
    _code(good, 2).source = line
    with pytest.raises(SyntaxError):
        general_problems(good, PATH)


@pytest.mark.slow
def test_a_run_keeps_tags_and_folded_outputs_and_drops_what_an_editor_noted(tmp_path):
    path = tmp_path / "workshop" / "04_attention.ipynb"
    path.parent.mkdir()
    kept = {"jupyter": {"outputs_hidden": True}, "tags": ["idea"]}
    cell = new_code_cell("import os\nprint(os.path.basename(os.getcwd()))", metadata=kept)
    cell.metadata["collapsed"] = True
    nbformat.write(new_notebook(cells=[cell, new_markdown_cell("So.", metadata=kept)]), path)
    run_notebooks.run(path)
    ran, prose = nbformat.read(path, as_version=4).cells
    assert ran.metadata == prose.metadata == kept
    assert ran.outputs[0].text == "workshop\n"
