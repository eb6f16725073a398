"""Give wrong and right answers to graders of PyTorch layers, and write which are accepted.

A wrong answer of the corpus belongs to an exercise of the course: it is declared there, or it
comes from `tests.course.wrong_answers`, whose answers were written without the declarations. An
entry of `ENTRIES` turns an answer into what another grader asks for.
"""

import io
import math
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch_judge.progress
import torchleet.runner
from torch import Tensor

from benchmarks.entries import ENTRIES, JUDGE, LEET, Entry
from benchmarks.report import table
from tests.course import wrong_by_hand  # noqa: F401 (collects its answers)
from tests.course.wrong_answers import RIGHT, wrong_answers
from twelve_lab.check import EXERCISES, MISTAKES, diagnose
from twelve_lab.check.catalogue import misconceptions_of, mistakes_of, shows
from twelve_lab.check.compare import Outcome, agree, exact_on_cpu, gradients, outcomes
from twelve_lab.exercises.declare import as_tensors

OURS = "twelve_lab.check"


class Answer(NamedTuple):
    """An answer to an exercise; a right answer has no mistake."""

    function: Callable[..., Any]
    mistake: str = ""
    key: str = ""
    independent: bool = False


class Verdict(NamedTuple):
    """What a grader said, and how long it took."""

    accepted: bool
    text: str
    seconds: float
    named: bool = False


@cache
def corpus(exercise: str) -> list[Answer]:
    """Collect the right answers to an exercise, then a wrong one for each wrong result."""
    task = EXERCISES[exercise]
    exact = replace(task, by_gradient=task.by_gradient is not None)
    right = [task.right, task.solved, *(x.function for x in RIGHT if x.exercise == exercise)]
    a_class = isinstance(task.right, type)
    wrong = [
        Answer(x.function, _sentence(x.mistake or x.fault), x.fault, True)
        for x in wrong_answers()
        if x.exercise == exercise
    ]
    for id, versions in mistakes_of(task).items():
        wrong += [Answer(function, _sentence(id), id) for function in versions]
    wrong += [Answer(f, text, text) for text, f in misconceptions_of(task).items()]
    kept: list[Answer] = []
    results = []
    for answer in wrong:
        result = outcomes(exact, answer.function)
        same = any(all(agree(old[case], result[case]) for case in result) for old in results)
        if not same and shows(exact, answer.function):
            kept.append(answer)
            results.append(result)
    return [Answer(f) for f in right if f and isinstance(f, type) == a_class] + kept


def _sentence(mistake: str) -> str:
    return MISTAKES[mistake].sentence if mistake in MISTAKES else mistake


def result(entry: Entry, function: Callable[..., Any]) -> Outcome:
    """Call an answer as a grader asks for it, on inputs that its text permits."""
    inputs: list[Tensor] = []

    def draw(*shape: int) -> Tensor:
        inputs.append(torch.randn(*shape).requires_grad_())
        return inputs[-1]

    with exact_on_cpu():
        torch.manual_seed(0)
        try:
            values = as_tensors(entry.call(entry.adapt(function), draw))
            return Outcome(values, gradients(values, tuple(inputs)))
        except Exception as error:
            return Outcome(error=error)


def is_wrong(entry: Entry, answer: Answer) -> bool:
    """Return whether an answer gives other numbers than the right one, for this grader.

    An answer that raises there is not counted: every grader refuses it.
    """
    found, right = (result(entry, f) for f in (answer.function, EXERCISES[x].right))
    return found.error is None and not agree(found, right)


def ask(grader: str, id: str, made: dict[str, Any]) -> tuple[bool, str, bool]:
    """Return whether a grader accepts what it asked for, what it says, and whether by a name."""
    if grader == OURS:
        (function,) = made.values()
        verdict = diagnose(id, function)
        return verdict.ok, verdict.message, verdict.kind in ("mistake", "misconception", "explained")
    said = io.StringIO()
    torch.manual_seed(0)
    with redirect_stdout(said), tempfile.TemporaryDirectory() as folder:
        # Each of them stores the progress of a learner.
        if grader == JUDGE:
            torch_judge.progress.PROGRESS_PATH = f"{folder}/progress.json"
            # It looks for the names among the globals of its caller.
            exec("check(id)", {"check": torch_judge.check, "id": id, **made})
        else:
            torchleet.runner.PROGRESS = Path(folder) / "progress.json"
            torchleet.check(id, **made)
    text = re.sub(r"\x1b\[\d*m", "", said.getvalue())
    accepted = "tests passed! (" in text or bool(re.search("all checks passed|not verified here", text))
    return accepted, text, False
