"""Every answer cell can be filled with a solution that the checker accepts."""

import ast

import pytest
from torch import nn

from tests.course.test_exercises import FOUND
from tools.write_solutions import exercise_of
from twelve_lab.check import EXERCISES, TASKS, diagnose
from twelve_lab.check.catalogue import QUESTIONS
from twelve_lab.check.solve import BEGIN, END, STUB, solution

pytestmark = pytest.mark.slow

# The answer cell of each exercise.
STUBS = {
    id: cell.source
    for notebook in FOUND.values()
    for cell in notebook.cells
    if (id := exercise_of(cell, "answer"))
}
MERGE = f'def merge(x):\n    """Merge."""\n    {STUB}'


NORM = (
    "class Norm(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
    f"        {STUB}"
)


def answer_in(source, **given):
    """Run an answer cell, and return the last value that it defines."""
    here = dict(given)
    exec(source, here)
    last = ast.parse(source).body[-1]
    return here[last.targets[0].id if isinstance(last, ast.Assign) else last.name]


def fault(id, stub):
    """Return the checker's complaint about a solution run without other cells, or ""."""
    given = {"nn": nn} if stub.startswith("class") else {}
    verdict = diagnose(id, answer_in(solution(id, stub), **given))
    return verdict.note if verdict.ok else verdict.message


# By hand.


SOLVED = [
    ("06-merge-heads", MERGE, ["    return x.transpose(1, 2).flatten(2)"]),
    ("06-scores-shape", f"found = ...\n{STUB}", ["found = (2, 3, 4, 5)"]),
    ("11-stays", f"found = ...\n{STUB}", ['found = {"both"}']),
    ("12-lowest-loss", f"found = ...\n{STUB}", ["found = 0.313"]),
    ("12-tied-count", f"found = ...\n{STUB}", ["found = 252 - 4 * 3 - 4"]),
    # The default value replaces an option of the declared answer.
    ("07-layer-norm", f"def norm(x, scale, shift):\n    {STUB}",
     ["    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)",
      "    return (x - mean) / torch.sqrt(variance + 1e-5) * scale + shift"]),
    # The cell has one of the two methods; its argument keeps its name.
    ("07-rms-norm", NORM,
     ["        self.weight = nn.Parameter(torch.ones(width))",
      "",
      "    def forward(self, x):",
      "        root = (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()",
      "        return self.weight * x / root"]),
]  # fmt: skip


@pytest.mark.parametrize(("id", "stub", "lines"), SOLVED)
def test_solution_completes_the_cell_with_its_own_names(id, stub, lines):
    assert solution(id, stub, {"torch"}).splitlines() == [*stub.splitlines()[:-1], *lines]


def test_solution_imports_what_the_page_lacks():
    stub = f"def mask(new, all_):\n    {STUB}"
    last = "    return causal_mask(all_)[:, :, -new:]"
    imported = "    from twelve import causal_mask"
    assert solution("05-mask-of-new", stub).splitlines()[1:] == [imported, last]
    assert solution("05-mask-of-new", stub, ["causal_mask"]).splitlines()[1:] == [last]


def test_the_marks_of_nbgrader_surround_a_solution_at_its_indentation():
    *before, line = solution("06-merge-heads", MERGE).splitlines()
    marked = [*before, f"    {BEGIN}", line, f"    {END}"]
    assert solution("06-merge-heads", MERGE, marked=True).splitlines() == marked


# Laws.


@pytest.mark.parametrize("id", EXERCISES)
def test_checker_accepts_the_solution_without_a_note(id):
    assert fault(id, STUBS[id]) == ""


def test_checker_rejects_a_wrong_or_forbidden_solution(monkeypatch):
    monkeypatch.setattr(TASKS["layer_norm"], "forbidden", ("var_mean",))
    assert fault("07-layer-norm", STUBS["07-layer-norm"]).endswith("a solution without var_mean.")
    monkeypatch.setattr(TASKS["merge_heads"], "solved", put_side_by_side)
    assert "transpose" in fault("06-merge-heads", STUBS["06-merge-heads"])
    monkeypatch.setattr(QUESTIONS["dots"], "worked", "40 + 1")
    assert fault("11-dots", STUBS["11-dots"]) != ""


def put_side_by_side(heads):
    return heads.reshape(heads.size(0), heads.size(2), -1)
