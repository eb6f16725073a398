"""A made-up step 99, played through in a copy of the project: what it takes, and what is missed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.course.course_rules import LIST, load, problems
from tools import write_steps
from tools.run_notebooks import NOTEBOOK_METADATA
from twelve_lab import draw
from twelve_lab.course import STEPS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
# What is compiled is taken along: it need not be compiled again.
LEAVE = shutil.ignore_patterns(".*", "node_modules", "build", "*.egg-info")

ENTRY = """    Step(
        "99", "doubling", "doubling",
        "What is twice as much?",
        "x (batch, seq, d_model) -> (batch, seq, d_model)",
        "today's parts", exports=("Doubling",),
    ),
"""
MODULE = '''"""Doubling: each number twice.

Step 99 | notebooks/99_doubling.ipynb | tests/unit/test_doubling.py
"""

from jaxtyping import Float
from torch import Tensor, nn


class Doubling(nn.Module):
    """Double every number.

    Args:
        d_model: Features of a position.
    """

    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Add each number to itself."""
        doubled: Float[Tensor, "*batch d_model"] = x + x
        return doubled
'''
TEST = """import torch

from twelve import Doubling


def test_one_and_one_is_two():
    assert Doubling(3)(torch.ones(1, 2, 3)).eq(2).all()
"""
EXERCISES = '''"""Step 99: what doubling invites."""

from twelve_lab.exercises.declare import question


@question(measures="the first sum that there is")
def one_and_one() -> int:
    """one and one"""
    return 1 + 1


@question(measures="the next sum that there is")
def two_and_two() -> int:
    """two and two"""
    return 2 + 2


@question(measures="a sum that is larger still")
def four_and_four() -> int:
    """four and four"""
    return 4 + 4
'''
ROW = "| `Doubling` | 99 | adds each number to itself |\n"
MEASURES = """| `99-one-and-one` | number | the first sum that there is | none |
| `99-two-and-two` | number | the next sum that there is | none |
| `99-four-and-four` | number | a sum that is larger still | none |
"""
WORDS = ("one", "two", "four")

# All that is written by hand: five files, and what is put into two others before a line there.
LESSON, WORKSHOP = "notebooks/99_doubling.ipynb", "notebooks/workshop/99_doubling.ipynb"
FILES = {
    LESSON: "",
    WORKSHOP: "",
    "src/twelve/doubling.py": MODULE,
    "tests/unit/test_doubling.py": TEST,
    "src/twelve_lab/exercises/doubling.py": EXERCISES,
}
ENTRIES = {
    LIST: (ENTRY, '    Step(\n        "a1"'),
    "docs/glossary.md": (ROW, "\nPre-norm normalises"),
}
# What `make catalogue` writes.
WRITTEN = ("README.md", "src/twelve/__init__.py", "docs/teaching.md")

# Runs in the copy: writes the catalogue and what the notebook shows, tells the strips of all steps,
# and asks the tests. What the layers check of shapes is no question here.
PLAY = """
import contextlib, io, json, sys
import nbformat, pytest
from nbformat.v4 import new_output
from tools import write_catalogue
from twelve_lab import course, draw
from twelve_lab.check import check

page = write_catalogue.GLOSSARY
page.write_text(write_catalogue.page(page.read_text(encoding="utf-8")), encoding="utf-8")
strips = {step.number: draw.strip(step.number) for step in course.STEPS}
own = strips["99"]
notebook = nbformat.read("notebooks/99_doubling.ipynb", as_version=4)
for cell in notebook.cells:
    if cell.source == "draw.strip(99)":
        data = {"text/html": own.html(), "text/plain": own.alt}
        told = {"text/plain": own.summary}
        cell.outputs = [new_output("display_data", data), new_output("display_data", told)]
    elif cell.source.startswith("check("):
        id, said = cell.source.split('"')[1], io.StringIO()
        with contextlib.redirect_stdout(said):
            check(id, ...)
        cell.outputs = [new_output("stream", name="stdout", text=said.getvalue())]
nbformat.write(notebook, "notebooks/99_doubling.ipynb")
pictures = [strips[number].svg() for number in ("16",)]
told = {number: strip.text() for number, strip in strips.items()}
with open("played.json", "w") as file:
    json.dump([told, pictures], file)
course_ = "tests/course/test_"
sys.exit(pytest.main([
    "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-m", "not slow", "--durations=8",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
    "tests/unit/test_doubling.py", f"{course_}structure.py", f"{course_}docs.py",
    f"{course_}teaching.py", f"{course_}notebooks.py", f"{course_}exercises.py",
    "-k", "99 or oubling or public_names or every_exercise or public_api or axis"
    " or table_of_the_exercises",
]))
"""


def exercise(place: int, word: str) -> list[nbformat.NotebookNode]:
    """Write the three cells of an exercise."""
    id, name = f"99-{word}-and-{word}", f"{word}_and_{word}"
    nbgrader = {"schema_version": 3, "task": False}
    answer = {**nbgrader, "grade": False, "locked": False, "solution": True}
    check = {**nbgrader, "grade": True, "locked": True, "points": 1, "solution": False}
    hints = "\n".join(
        f"<details><summary>Hint {at}</summary>\n\nCount the ones that you can see.\n\n</details>"
        for at in (1, 2, 3)
    )
    return [
        new_markdown_cell(f"### {place}. Add\n\nWhat is {word} and {word}?\n\n{hints}"),
        new_code_cell(
            f"{name} = ...\n# Your answer goes here.",
            metadata={"nbgrader": {**answer, "grade_id": f"{id}-answer"}},
        ),
        new_code_cell(
            f'check("{id}", {name})', metadata={"nbgrader": {**check, "grade_id": f"{id}-check"}}
        ),
    ]


def lesson() -> str:
    """Write the lesson of the step as JupyterLab would, before it is run."""
    imports = "from twelve_lab import draw\nfrom twelve_lab.check import check"
    cells = [
        new_markdown_cell(
            "# 99 Doubling\n\nMore is in the [workshop](workshop/99_doubling.ipynb)."
        ),
        new_code_cell(imports),
        new_code_cell("draw.strip(99)"),
        new_markdown_cell(
            "## The idea\n\nTwice is once and once again.", metadata={"tags": ["idea"]}
        ),
        new_markdown_cell("So it is a sum.", metadata={"tags": ["answer"]}),
        new_markdown_cell("## Exercises"),
    ]
    for place, word in enumerate(WORDS, 1):
        cells += exercise(place, word)
    cells.append(new_markdown_cell("## Recap\n\nTwice is a sum."))
    for cell in cells:
        cell.metadata["slideshow"] = {"slide_type": "slide"}
    return written(cells)


def workshop() -> str:
    """Write the workshop of the step."""
    begins = "# 99 Workshop: doubling\n\nIt follows [the lesson](../99_doubling.ipynb)."
    return written([new_markdown_cell(begins), new_code_cell("double = 1 + 1")])


def written(cells: list[nbformat.NotebookNode]) -> str:
    """Number the cells as a run would, and write them as a notebook."""
    for count, cell in enumerate((cell for cell in cells if cell.cell_type == "code"), 1):
        cell.execution_count = count
    return nbformat.writes(new_notebook(cells=cells, metadata=NOTEBOOK_METADATA))


def put_in(path: Path, text: str, before: str) -> None:
    """Put text into a file before what stands there once, or at its end."""
    old = path.read_text(encoding="utf-8")
    assert not before or old.count(before) == 1, (path, before)
    place = old.index(before) if before else len(old)
    path.write_text(old[:place] + text + old[place:], encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """Copy the project and add the step, as CONTRIBUTING.md says."""
    root = tmp_path_factory.mktemp("step_99") / "project"
    shutil.copytree(ROOT, root, ignore=LEAVE)
    assert problems(root) == []
    made = {**FILES, LESSON: lesson(), WORKSHOP: workshop()}
    for path, text in made.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    for path, (text, before) in ENTRIES.items():
        put_in(root / path, text, before)
    write_steps.write(root, load(root).STEPS)
    put_in(root / "docs/teaching.md", MEASURES, "")
    return root


@pytest.fixture(scope="module")
def played(copy) -> tuple[dict[str, str], list[str]]:
    """Ask the tests of the copy, and return what the strips of all steps say and show there."""
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
    done = subprocess.run(
        [sys.executable, "-c", PLAY],
        cwd=copy,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout and "skipped" not in done.stdout
    return json.loads((copy / "played.json").read_text())


def test_five_files_one_entry_and_the_rows_that_speak_of_them_are_a_whole_step(copy, played):
    assert problems(copy) == []
    assert "99" in played[0]


def test_a_new_step_changes_no_figure_and_no_word_of_the_strips_of_the_others(played):
    told, pictures = played
    assert {number: told[number] for number in told if number != "99"} == {
        step.number: draw.strip(step.number).text() for step in STEPS
    }
    assert pictures == [draw.strip(number).svg() for number in ("16",)]


@pytest.fixture
def undone(copy, request) -> Iterator[str]:
    """Take one part of the step out of the copy for one test."""
    path = copy / request.param
    text = path.read_text(encoding="utf-8")
    if request.param in FILES:
        path.unlink()
    elif request.param in WRITTEN:
        shutil.copy(ROOT / request.param, path)
    else:
        path.write_text(text.replace(ENTRIES[request.param][0], ""), encoding="utf-8")
    yield request.param
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("undone", [*FILES, *ENTRIES, *WRITTEN], indirect=True)
def test_a_part_that_is_forgotten_is_named_by_its_file(copy, undone):
    first, *_ = problems(copy)
    assert first.startswith(f"{undone}: ")


SPOILED = (
    (LIST, '"99", "doubling"', '"98", "doubling"', "98_doubling.ipynb: is m"),
    (LIST, '"99", "doubling"', '"12", "doubling"', "do not rise"),
    (LIST, '"today\'s parts", exports=("D', '"the map", exports=("D', "side by side"),
    (LIST, 'exports=("Doubling",)', "exercises=False", "has none by"),
    ("src/twelve/doubling.py", "Step 99 | ", "Step 9 | ", "begins with its title"),
    ("src/twelve/doubling.py", "class Doubling", "class Double", "defines no Doubling"),
    ("src/twelve/attention.py", "import math\n", "import math, twelve.masks\n", "no earlier"),
    (LESSON, "# 99 Doubling", "# 99 Halving", "'99 Halving', not that"),
    (LESSON, "draw.strip(99)", "draw.strip(15)", "draws draw.strip(99)"),
    (LESSON, 'check(\\"99-two', 'check(\\"98-two', "has checks of ['98', '99']"),
    (WORKSHOP, "Workshop: doubling", "Workshop: halving", "halving', not that"),
    (WORKSHOP, "double = 1 + 1", 'check(\\"98-one\\", 2)', "has checks of ['98', '99']"),
    ("docs/glossary.md", "| `Doubling` | 99 |", "| `Doubling` | 98 |", "98, which has no module"),
    ("docs/teaching.md", "### 07 Normalization", "### 07 Norms", "'07 Norms'"),
    ("docs/teaching.md", "A term of 22", "A term of 21", "the sessions are"),
    (
        "docs/teaching.md",
        "| `99-one-and-one` |",
        "| `99-three-and-three` |",
        "no row of 99",
    ),
    ("README.md", f", [workshop]({WORKSHOP})", "", "+ | 99 | What is twice"),
    ("README.md", "What is twice as much?", "What is half as much?", "+ | 99 | What is twice"),
)


@pytest.mark.parametrize(("file", "old", "new", "said"), SPOILED, ids=lambda text: text[:20])
def test_what_is_written_wrong_is_named_by_its_file(copy, file, old, new, said):
    path = copy / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    found = [line for line in problems(copy) if said in line]
    path.write_text(text, encoding="utf-8")
    # What a workshop checks is held together with what its lesson does.
    due = LESSON if "has checks" in said else file
    assert found and (file == LIST or found[0].startswith(f"{due}: "))


@pytest.mark.parametrize(
    "added",
    ["src/twelve/dropout.py", "notebooks/5_masks.ipynb", "notebooks/workshop/5_masks.ipynb"],
)
def test_a_file_that_belongs_to_no_step_is_found(copy, added):
    (copy / added).touch()
    found = problems(copy)
    (copy / added).unlink()
    assert found == [f"{LIST}: {added} belongs to no step"]


def test_what_steps_share_and_further_tests_belong_to_none(copy):
    shared = [copy / name for name in ("src/twelve/_shared.py", "tests/unit/test_anything.py")]
    for path in shared:
        path.touch()
    assert problems(copy) == []
    for path in shared:
        path.unlink()


def test_an_exercise_in_a_workshop_of_no_step_is_one_of_the_step_in_its_id(copy):
    tools = copy / "notebooks/workshop/tools_more.ipynb"
    nbformat.write(new_notebook(), tools)
    assert problems(copy) == []
    nbformat.write(new_notebook(cells=[new_code_cell('check("99-half", half)')]), tools)
    found = problems(copy)
    tools.unlink()
    assert found == ["docs/teaching.md: What each exercise measures has no row of 99-half"]


def test_a_readme_without_a_table_is_an_error():
    with pytest.raises(ValueError, match=r"README.md has no table that begins with '\| step"):
        write_steps.readme("# Twelve Numbers", STEPS)
