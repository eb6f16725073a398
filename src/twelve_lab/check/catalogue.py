"""All exercises and all mistakes of the course, in its order, and which of them an answer shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module

import torch

from twelve_lab.check.compare import Outcome, agree, exact_on_cpu, outcome, outcomes
from twelve_lab.course import STEPS
from twelve_lab.exercises.declare import Answer, Cases, Exercise, Mistake, Question, Task, sheet

EXERCISES: dict[str, Exercise] = {}
TASKS: dict[str, Task] = {}
QUESTIONS: dict[str, Question] = {}
MISTAKES: dict[str, Mistake] = {}


def _collect() -> None:
    """Read the file of each step, and put its exercises under the number of the notebook."""
    for step in STEPS:
        if not step.exercises:
            continue
        found = sheet(import_module(f"twelve_lab.exercises.{step.stem}").__name__)
        # A page asks for predictions first.
        for one in sorted(found.exercises.values(), key=lambda one: isinstance(one, Task)):
            (TASKS if isinstance(one, Task) else QUESTIONS)[one.name] = one
            EXERCISES[f"{step.number}-{one.name.replace('_', '-')}"] = one
        for one in found.mistakes.values():
            MISTAKES[one.id] = replace(one, step=one.step or step.number)


_collect()


def wrong_versions(task: str) -> dict[str, Answer]:
    """Collect every mistake with which a task is known to be done.

    Args:
        task: Name of the task.

    Returns:
        The most usual wrong answer by the id of the mistake: those of this task, then those of
        smaller ones that can be made in it too.
    """
    return {id: versions[0] for id, versions in TASKS[task].mistakes.items()}


def suspects(task: str, function: Answer) -> list[str]:
    """Name the mistakes that give the numbers of a function in every case of a task.

    Args:
        task: Name of the task.
        function: An answer to it.

    Returns:
        Ids: none for a right answer or an unknown mistake, and one for a known mistake.
    """
    return mistakes_like(TASKS[task], outcomes(TASKS[task], function))


def mistakes_like(task: Task, found: Mapping[str, Outcome]) -> list[str]:
    """Name the mistakes that come to the same in every case.

    Args:
        task: The task.
        found: What an answer came to, by the name of the case.
    """
    return _alike(task, found, task.mistakes)


def misconceptions_like(task: Task, found: Mapping[str, Outcome]) -> list[str]:
    """Find what to say to the misconceptions that come to the same in every case.

    Args:
        task: The task.
        found: What an answer came to, by the name of the case.
    """
    return _alike(task, found, {one: [wrong] for one, wrong in task.misconceptions.items()})


def _alike(
    task: Task, found: Mapping[str, Outcome], known: Mapping[str, list[Answer]]
) -> list[str]:
    # A sine of a large angle is off by this much in 32 bits; two mistakes are further apart.
    exact = all(x.dtype == torch.float64 for one in found.values() for x in one.values)
    tolerance = 1e-5 if exact else 5e-3
    return [
        name
        for name, versions in known.items()
        if any(_same(task, found, version, tolerance) for version in versions)
    ]


def _same(task: Task, found: Mapping[str, Outcome], version: Answer, tolerance: float) -> bool:
    """Ask case by case, because most wrong versions part from an answer in the first one."""
    return all(agree(one, _known(task, version, case), tolerance) for case, one in found.items())


@cache
def _known(task: Task, version: Answer, case: str) -> Outcome:
    """Run a known wrong version on one case, once."""
    with exact_on_cpu():
        return outcome(task, version, _drawn(task, version)[case])


@cache
def _drawn(task: Task, version: Answer) -> Cases:
    """Draw the cases of a version, once: some hold what may be used only once, as a dropout."""
    return task.cases()
