"""All exercises and mistakes of the course in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module

import torch

from twelve_lab.check.compare import Outcome, agree, exact_on_cpu, outcome
from twelve_lab.course import STEPS
from twelve_lab.exercises.declare import Answer, Cases, Exercise, Mistake, Question, Task, sheet

EXERCISES: dict[str, Exercise] = {}
TASKS: dict[str, Task] = {}
QUESTIONS: dict[str, Question] = {}
MISTAKES: dict[str, Mistake] = {}


def _collect() -> None:
    """Import the declarations of each step, and register its exercises by notebook number."""
    for step in STEPS:
        if not step.exercises:
            continue
        declared = sheet(import_module(f"twelve_lab.exercises.{step.stem}").__name__)
        # A notebook asks for predictions first.
        for exercise in sorted(declared.exercises.values(), key=lambda x: isinstance(x, Task)):
            (TASKS if isinstance(exercise, Task) else QUESTIONS)[exercise.name] = exercise
            EXERCISES[f"{step.number}-{exercise.name.replace('_', '-')}"] = exercise
        for mistake in declared.mistakes.values():
            MISTAKES[mistake.id] = replace(mistake, step=mistake.step or step.number)


_collect()


def wrong_versions(task: str) -> dict[str, Answer]:
    """Collect every known mistake of a task.

    Args:
        task: Name of the task.

    Returns:
        The most usual wrong answer by the id of the mistake: first the mistakes of this task,
        then those that it inherits from smaller ones.
    """
    return {id: versions[0] for id, versions in TASKS[task].mistakes.items()}


def gives_the_same(task: Task, version: Answer, results: Mapping[str, Outcome]) -> bool:
    """Return whether a known wrong version has the same results as an answer in every case.

    Args:
        task: The task.
        version: A wrong answer to it.
        results: The outcomes of the answer, by the name of the case.
    """
    # A sine of a large angle is off by this much in 32 bits; two mistakes are further apart.
    exact = all(x.dtype == torch.float64 for result in results.values() for x in result.values)
    tolerance = 1e-5 if exact else 5e-3
    # Most wrong versions already differ from an answer in the first case.
    return all(
        agree(result, _known(task, version, case), tolerance) for case, result in results.items()
    )


@cache
def _known(task: Task, version: Answer, case: str) -> Outcome:
    """Run a known wrong version on one case, once."""
    with exact_on_cpu():
        return outcome(task, version, _drawn(task, version)[case])


@cache
def _drawn(task: Task, version: Answer) -> Cases:
    """Draw the cases of a version once: some arguments, such as a dropout, have a state."""
    return task.cases()
