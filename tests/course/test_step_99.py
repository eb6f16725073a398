"""A made-up step 99, routed layers, added to a copy of the project in nine files."""

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

MODULE = '''"""Routed layers: a router sends each position to a few feed-forward layers.

Step 99 | notebooks/99_routed_layers.ipynb | tests/unit/test_routed_layers.py
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from twelve.feed_forward import FeedForward
from twelve.linear import Linear


class RoutedLayers(nn.Module):
    """Add what the best experts answer, weighted by their gates.

    Args:
        d_model: Features of a position.
        num_experts: Number of feed-forward layers.
        k: Number of experts that each position is sent to.
    """

    def __init__(self, d_model: int, num_experts: int = 8, k: int = 2) -> None:
        super().__init__()
        self.k = k
        self.router = Linear(d_model, num_experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(d_model) for _ in range(num_experts))

    def forward(
        self, x: Float[Tensor, "batch seq d_model"]
    ) -> Float[Tensor, "batch seq d_model"]:
        """Route each position, and mix what its experts answer."""
        scores: Float[Tensor, "batch seq expert"] = self.router(x)
        left_out = scores < scores.topk(self.k).values[..., -1:]
        chosen = scores.masked_fill(left_out, -math.inf)
        gates: Float[Tensor, "batch seq expert"] = chosen.softmax(-1)
        answers = torch.stack([expert(x) for expert in self.experts], dim=-1)
        mixed: Float[Tensor, "batch seq d_model"] = (answers @ gates.unsqueeze(-1)).squeeze(-1)
        return mixed
'''
TEST = """import torch
from torch.testing import assert_close

from twelve import RoutedLayers


def test_routed_layers_with_equal_experts_is_one_expert():
    layer, x = RoutedLayers(3), torch.randn(2, 5, 3)
    for expert in layer.experts:
        expert.load_state_dict(layer.experts[0].state_dict())
    assert_close(layer(x), layer.experts[0](x))
"""
EXERCISES = '''"""Step 99: mistakes with routed layers."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, mistake, question, task
from twelve_lab.exercises.numbers import seeded


def _cases() -> Cases:
    draw = seeded()
    small = torch.tensor([[[1.0, 2.0, 3.0]]], dtype=torch.float64)
    return {"three experts": (small,), "five": (draw(2, 4, 5),), "seven": (draw(3, 2, 7),)}


@task(_cases, measures="softmax after the choice of experts")
def gates(scores: Tensor) -> Tensor:
    """scores (batch, seq, expert) -> (batch, seq, expert)"""
    left_out = scores < scores.topk(2).values[..., -1:]
    return scores.masked_fill(left_out, -math.inf).softmax(-1)


mistake(
    gates,
    "gates-before-choice",
    "Your gates do not sum to 1: choose the experts first, then run softmax over those.",
    {"scores.masked_fill(left_out, -math.inf).softmax(-1)":
     "scores.softmax(-1).masked_fill(left_out, 0)"},
)


@question(measures="that all experts have parameters")
def expert_count() -> int:
    """the experts with parameters, where 2 of 8 answer"""
    return 8


@question(measures="that few experts compute")
def experts_computed() -> int:
    """the experts that compute, where 2 of 8 answer"""
    return 2
'''
ENTRY = """    Step(
        "99", "routed_layers", "routed layers",
        "Who answers which token?",
        "x (batch, seq, d_model) -> (batch, seq, d_model)",
        "today's parts", exports=("RoutedLayers",),
    ),
"""
PLANT = """    "routed_layers RoutedLayers.forward": {
        "gates-before-choice": {
            "chosen.softmax(-1)": "scores.softmax(-1).masked_fill(left_out, 0)"
        },
    },
"""
CARD = """    "gates": Card("scores = torch.tensor([[[1.0, 2, 3]]])\\n"),
"""
ROW = "| `RoutedLayers` | 99 | mixes what each `expert` answers |\n"


def page(*cells: nbformat.NotebookNode, slides: bool) -> str:
    for cell in cells if slides else ():
        cell.metadata["slideshow"] = {"slide_type": "slide"}
    return nbformat.writes(new_notebook(cells=[*cells], metadata=NOTEBOOK_METADATA))


STUB = "# Your answer goes here."
FIRST = PurePosixPath(STEPS[0].notebook).name
IMPORTS = nbformat.read(ROOT / STEPS[1].notebook, 4).cells[1].source.partition("\n\n")[0]
LESSON = page(
    new_markdown_cell(
        "# 99 Routed layers\n\n## Who answers which token?\n\n"
        "More in the [workshop](workshop/99_routed_layers.ipynb)."
    ),
    new_code_cell(f"{IMPORTS}\nfrom twelve_lab.check import check"),
    new_markdown_cell("## The idea\n\nA router chooses.", metadata={"tags": ["idea"]}),
    new_markdown_cell("A few experts answer.", metadata={"tags": ["answer"]}),
    new_markdown_cell("## Exercises"),
    *exercise_cells(
        1, "99-gates", "scores (batch, seq, expert) -> (batch, seq, expert)",
        f'def answer_1(scores):\n    """Weigh the two best experts."""\n    {STUB}',
    ),
    *exercise_cells(2, "99-expert-count", "a number", f"answer_2 = ...\n{STUB}"),
    *exercise_cells(3, "99-experts-computed", "a number", f"answer_3 = ...\n{STUB}"),
    new_markdown_cell("## Recap\n\nFew of many compute.", metadata={"tags": ["recap"]}),
    new_markdown_cell(f"To [the start]({FIRST}).", metadata={"tags": ["next"]}),
    slides=True,
)  # fmt: skip
WORKSHOP = page(
    new_markdown_cell(
        "# 99 Workshop: routed layers\n\nTo [the lesson](../99_routed_layers.ipynb)."
    ),
    new_code_cell(f"{IMPORTS}\nexperts = 8"),
    slides=False,
)

NEW_FILES = {
    "notebooks/99_routed_layers.ipynb": LESSON,
    "notebooks/workshop/99_routed_layers.ipynb": WORKSHOP,
    "src/twelve/routed_layers.py": MODULE,
    "tests/unit/test_routed_layers.py": TEST,
    "src/twelve_lab/exercises/routed_layers.py": EXERCISES,
}
# The text that is inserted into a file, and the text before it.
ENTRIES = {
    LIST: (ENTRY, r'(?=    Step\(\n        "a1")'),
    "docs/glossary.md": (ROW, r"## Layers and functions\n[^|]*\|.+\n\|[-| :]+\n"),
    "tests/mutants/classic.py": (PLANT, r"EDITS = \{\n"),
    "tools/write_cards.py": (CARD, r"CARDS = \{\n"),
}

# `make catalogue`, `make notebooks`, and the tests of the new step.
COMMANDS = [
    "tools/write_catalogue.py",
    "tools/write_exercises.py",
    "-m tools.write_cards",
    "tools/run_notebooks.py notebooks/99_routed_layers.ipynb "
    "notebooks/workshop/99_routed_layers.ipynb",
    "-m pytest -q -n0 -p no:cacheprovider tests/unit/test_routed_layers.py "
    + " ".join(
        f"tests/course/test_{name}.py"
        for name in "structure docs teaching notebooks exercises mistakes cards".split()
    )
    + " tests/unit/test_mutants.py -k",
]
SELECTED = "99 or routed or gates or glossary or current or declared or every_step"


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """Copy the project and add the step by hand."""
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
