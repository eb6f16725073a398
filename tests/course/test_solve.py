"""Every exercise is solved in its answer cell, and the checker accepts the solution."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from tools.write_solutions import exercise_of, lessons
from twelve_lab.check import EXERCISES, TASKS, check, diagnose
from twelve_lab.check.catalogue import QUESTIONS
from twelve_lab.check.solve import BEGIN, END, STUB, solution
from twelve_lab.exercises.declare import solved

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# The answer cell of each exercise.
STUBS = {
    id: cell.source
    for notebook in lessons(ROOT / "notebooks").values()
    for cell in notebook.cells
    if (id := exercise_of(cell, "answer"))
}
MERGE = f'def merge(x):\n    """Merge."""\n    {STUB}'


def answer_in(source, **given):
    """Run an answer cell, and return the value that it defines last."""
    here = dict(given)
    exec(source, here)
    last = ast.parse(source).body[-1]
    return here[last.targets[0].id if isinstance(last, ast.Assign) else last.name]


def fault(id, stub):
    """Return the complaint of the checker about a solution without other cells; "" if none."""
    given = {"nn": nn} if stub.startswith("class") else {}
    verdict = diagnose(id, answer_in(solution(id, stub), **given))
    return verdict.note if verdict.ok else verdict.message


# By hand.


def test_solution_of_a_function_uses_the_argument_names_of_the_cell():
    assert solution("06-merge-heads", MERGE) == (
        'def merge(x):\n    """Merge."""\n    return x.transpose(1, 2).flatten(2)'
    )


def test_solution_of_a_question_is_its_value_or_its_calculation():
    stub = f"found = ...\n{STUB}"
    assert solution("06-scores-shape", stub) == "found = ...\nfound = (2, 3, 4, 5)"
    assert solution("11-stays", stub) == 'found = ...\nfound = {"both"}'
    assert solution("12-lowest-loss", stub) == "found = ...\nfound = 0.313"
    assert solution("12-tied-count", stub) == "found = ...\nfound = 252 - 4 * 3 - 4"


def test_solution_replaces_a_switch_by_its_default():
    stub = f"def norm(x, scale, shift):\n    {STUB}"
    assert solution("07-layer-norm", stub, {"torch"}).splitlines()[1:] == [
        "    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)",
        "    return (x - mean) / torch.sqrt(variance + 1e-5) * scale + shift",
    ]


def test_solution_of_a_class_adds_the_missing_methods():
    begun = "class Norm(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
    rest = [
        "        self.weight = nn.Parameter(torch.ones(width))",
        "",
        "    def forward(self, x):",
        "        root = (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()",
        "        return self.weight * x / root",
    ]
    written = solution("07-rms-norm", f"{begun}        {STUB}", {"torch"})
    assert written == begun + "\n".join(rest)
    whole = solution("07-rms-norm", f"class Norm(nn.Module):\n    {STUB}", {"torch"})
    head = ["    def __init__(self, d_model):", "        super().__init__()"]
    rest[0] = rest[0].replace("width", "d_model")
    assert whole.splitlines() == ["class Norm(nn.Module):", *head, *rest]


def test_what_the_page_lacks_is_imported_and_what_it_has_is_not():
    stub = f"def mask(new, all_):\n    {STUB}"
    last = "    return causal_mask(all_)[:, :, -new:]"
    lines = solution("05-mask-of-new", stub).splitlines()
    assert lines[1:] == ["    from twelve import causal_mask", last]
    assert solution("05-mask-of-new", stub, ["causal_mask"]).splitlines()[1:] == [last]


def test_the_marks_of_nbgrader_stand_around_a_solution_at_its_indentation():
    plain, marked = (solution("06-merge-heads", MERGE, marked=one) for one in (False, True))
    lines = [line for line in marked.splitlines() if line not in (f"    {BEGIN}", f"    {END}")]
    assert lines == plain.splitlines()
    assert marked.splitlines()[2] == f"    {BEGIN}" and marked.endswith(f"    {END}")


# Laws.


def test_every_exercise_has_an_answer_cell():
    assert set(STUBS) == set(EXERCISES)


@pytest.mark.parametrize("id", EXERCISES)
def test_checker_accepts_the_solution_without_a_note(id):
    assert fault(id, STUBS[id]) == ""


def test_checker_rejects_a_wrong_or_forbidden_solution(monkeypatch):
    monkeypatch.setattr(TASKS["linear"], "solved", None)
    assert fault("01-linear", STUBS["01-linear"]).endswith("asks for a solution without @.")
    monkeypatch.setattr(TASKS["merge_heads"], "solved", put_side_by_side)
    assert "transpose" in fault("06-merge-heads", STUBS["06-merge-heads"])
    monkeypatch.setattr(QUESTIONS["dots"], "worked", "40 + 1")
    assert fault("11-dots", STUBS["11-dots"]) != ""


def put_side_by_side(heads):
    return heads.reshape(heads.size(0), heads.size(2), -1)


# Errors.


@pytest.mark.parametrize(
    ("id", "stub", "message"),
    [
        ("06-nothing", MERGE, "unknown exercise"),
        ("06-merge-heads", "def merge(x): ...", "06-merge-heads: the answer cell must end"),
        ("06-merge-heads", f"{MERGE}\n    {STUB}", "06-merge-heads: the answer cell must end"),
        ("06-merge-heads", f"{MERGE}\nprint()", "06-merge-heads: the answer cell must end"),
        (
            "06-merge-heads",
            f"merge = ...\n{STUB}",
            "_merge_in_one_line: the answer cell must begin a function",
        ),
        ("06-merge-heads", f"class Merge:\n    {STUB}", "the answer cell must begin a function"),
        ("06-merge-heads", f"def merge(x, y):\n    {STUB}", "merge takes 2 arguments in the cell"),
        ("06-scores-shape", STUB, "scores_shape: the answer cell must assign a variable"),
    ],
)
def test_solution_rejects_another_cell(id, stub, message):
    with pytest.raises(ValueError, match=message):
        solution(id, stub)


def uses_the_checker(heads):
    return check(heads)


def test_solution_rejects_a_name_that_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(TASKS["merge_heads"], "solved", uses_the_checker)
    with pytest.raises(
        ValueError, match="uses_the_checker uses check, which no notebook can import"
    ):
        solution("06-merge-heads", MERGE)


def test_solved_rejects_a_second_solution():
    task = replace(TASKS["linear"])
    with pytest.raises(ValueError, match="linear: solution declared twice"):
        solved(task)(put_side_by_side)
