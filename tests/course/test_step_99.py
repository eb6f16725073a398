"""A fictitious step 99, halving: nine files add it to a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.course.course_rules import LIST, load, problems
from tests.course.exercise_rules import exercise_cells
from tools import write_steps
from tools.run_notebooks import NOTEBOOK_METADATA
from twelve_lab.course import STEPS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.weekly

MODULE = '''"""Halving: each number divided by two.

Step 99 | notebooks/99_halving.ipynb | tests/unit/test_halving.py
"""

from jaxtyping import Float
from torch import Tensor, nn


class Halving(nn.Module):
    """Divide each number.

    Args:
        by: The divisor.
    """

    def __init__(self, by: float = 2.0) -> None:
        super().__init__()
        self.by = by

    def forward(
        self, x: Float[Tensor, "batch seq d_model"]
    ) -> Float[Tensor, "batch seq d_model"]:
        """Divide."""
        halved: Float[Tensor, "batch seq d_model"] = x / self.by
        return halved
'''
TEST = """import torch

from twelve import Halving


def test_half_of_four_is_two():
    assert Halving()(torch.full((1, 1, 1), 4.0)).item() == 2
"""
EXERCISES = '''"""Step 99: mistakes with halves."""

from torch import Tensor

from twelve_lab.exercises.declare import Cases, mistake, question, task
from twelve_lab.exercises.numbers import seeded


def _cases() -> Cases:
    draw = seeded()
    return {"one": (draw(1, 1, 3),), "two": (draw(2, 2, 3),), "three": (draw(3, 2, 7),)}


@task(_cases, measures="a division by two")
def halve(x: Tensor) -> Tensor:
    """x (batch, seq, d_model) -> (batch, seq, d_model)"""
    return x / 2


mistake(halve, "halved-twice", "You divided twice: divide once.", {"x / 2": "x / 2 / 2"})


@question(measures="an even half")
def half_of_eight() -> int:
    """the half of 8"""
    return 8 // 2


@question(measures="another half")
def half_of_two() -> int:
    """the half of 2"""
    return 2 // 2
'''
ENTRY = """    Step("99", "halving", "halving", part="today's parts", exports=("Halving",),
         question="What is the half?",
         contract="x (batch, seq, d_model) -> (batch, seq, d_model)"),
"""
PLANT = """    "halving Halving.forward": {"halved-twice": {"x / self.by": "x / self.by / 2"}},
"""
CARD = """    "halve": Card("x = torch.tensor([[[4.0, 6]]])\\n"),
"""
ROW = "| `Halving` | 99 | divides each number by two |\n"


def page(*cells: nbformat.NotebookNode, slides: bool) -> str:
    for cell in cells if slides else ():
        cell.metadata["slideshow"] = {"slide_type": "slide"}
    return nbformat.writes(new_notebook(cells=[*cells], metadata=NOTEBOOK_METADATA))


STUB = "# Your answer goes here."
FIRST = PurePosixPath(STEPS[0].notebook).name
IMPORTS = nbformat.read(ROOT / STEPS[1].notebook, 4).cells[1].source.partition("\n\n")[0]
LESSON = page(
    new_markdown_cell(
        "# 99 Halving\n\n## What is the half?\n\n"
        "More in the [workshop](workshop/99_halving.ipynb)."
    ),
    new_code_cell(f"{IMPORTS}\nfrom twelve_lab.check import check"),
    new_markdown_cell("## The idea\n\nDivide by two.", metadata={"tags": ["idea"]}),
    new_markdown_cell("A division.", metadata={"tags": ["answer"]}),
    new_markdown_cell("## Exercises"),
    *exercise_cells(
        1, "99-halve", "x (batch, seq, d_model) -> (batch, seq, d_model)",
        f'def answer_1(x):\n    """Halve each number."""\n    {STUB}',
    ),
    *exercise_cells(2, "99-half-of-eight", "a number", f"answer_2 = ...\n{STUB}"),
    *exercise_cells(3, "99-half-of-two", "a number", f"answer_3 = ...\n{STUB}"),
    new_markdown_cell("## Recap\n\nHalf is left.", metadata={"tags": ["recap"]}),
    new_markdown_cell(f"To [the start]({FIRST}).", metadata={"tags": ["next"]}),
    slides=True,
)  # fmt: skip
WORKSHOP = page(
    new_markdown_cell("# 99 Workshop: halving\n\nTo [the lesson](../99_halving.ipynb)."),
    new_code_cell(f"{IMPORTS}\nhalf = 0.5"),
    slides=False,
)

NEW_FILES = {
    "notebooks/99_halving.ipynb": LESSON,
    "notebooks/workshop/99_halving.ipynb": WORKSHOP,
    "src/twelve/halving.py": MODULE,
    "tests/unit/test_halving.py": TEST,
    "src/twelve_lab/exercises/halving.py": EXERCISES,
}
# The text to insert into a file, and a pattern for the text before it.
ENTRIES = {
    LIST: (ENTRY, r'(?=    Step\("a1")'),
    "docs/glossary.md": (ROW, r"## Layers and functions\n[^|]*\|.+\n\|[-| :]+\n"),
    "tests/mutants/classic.py": (PLANT, r"EDITS = \{\n"),
    "tools/write_cards.py": (CARD, r"CARDS = \{\n"),
}

# `make catalogue`, `make notebooks`, and the tests of the new step.
COMMANDS = [
    "tools/write_catalogue.py",
    "tools/write_exercises.py",
    "-m tools.write_cards",
    "tools/run_notebooks.py notebooks/99_halving.ipynb notebooks/workshop/99_halving.ipynb",
    "-m pytest -q -n0 -p no:cacheprovider tests/unit/test_halving.py "
    + " ".join(
        f"tests/course/test_{name}.py"
        for name in "structure docs teaching notebooks exercises mistakes cards".split()
    )
    + " tests/unit/test_mutants.py -k",
]
SELECTED = "99 or halv or glossary or current or declared or every_step"


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """Copy the project and add the step."""
    root = tmp_path_factory.mktemp("step_99") / "project"
    ignore = shutil.ignore_patterns(".*", "node_modules", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, root, ignore=ignore)
    for path, text in NEW_FILES.items():
        (root / path).write_text(text, encoding="utf-8")
    for path, (text, before) in ENTRIES.items():
        old = (root / path).read_text(encoding="utf-8")
        place = re.search(before, old).end()
        (root / path).write_text(old[:place] + text + old[place:], encoding="utf-8")
    course = load(root)
    write_steps.write(root, course.STEPS, course.DRILLS)
    return root


def run(copy: Path, *arguments: str) -> str:
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy, env=os.environ | settings, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_step_is_nine_files_and_contributing_lists_each(copy):
    assert len(NEW_FILES) + len(ENTRIES) <= 9
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Adding a step\n")[2].partition("\n## ")[0]
    named = {PurePosixPath(name) for name in re.findall(r"`([^`]+)`", section)}
    folders = {name.parent for name in named}
    assert [path for path in NEW_FILES if PurePosixPath(path).parent not in folders] == []
    assert [path for path in ENTRIES if PurePosixPath(path) not in named] == []
    for command in COMMANDS[:-1]:
        run(copy, *command.split())
    printed = run(copy, *COMMANDS[-1].split(), SELECTED)
    assert " passed" in printed and "skipped" not in printed
    assert problems(copy) == []
