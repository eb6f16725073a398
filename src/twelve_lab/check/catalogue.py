"""Registry of all exercises and mistakes of the course, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module

import torch

from twelve_lab.check.compare import Outcome, agree, exact_on_cpu, outcome, outcomes
from twelve_lab.check.prediction import computed, leads_to
from twelve_lab.course import exercise_files
from twelve_lab.exercises.declare import (
    Answer,
    Cases,
    Exercise,
    Mistake,
    Question,
    Task,
    made,
    sheet,
)
from twelve_lab.exercises.parts import parts, with_part

EXERCISES: dict[str, Exercise] = {}
TASKS: dict[str, Task] = {}
QUESTIONS: dict[str, Question] = {}
MISTAKES: dict[str, Mistake] = {}
# Mistakes that a lesson teaches. Each has a card, and the mutation tests plant it in a layer.
TAUGHT: dict[str, Mistake] = {}
# Exercises keyed by their right answer.
_EXERCISES_OF: dict[Answer, list[Exercise]] = {}


def _collect() -> None:
    """Import the declarations of each page, and register its exercises and mistakes by id."""
    for prefix, module, step in exercise_files():
        declared = sheet(import_module(module).__name__)
        # A notebook asks for predictions first.
        for exercise in sorted(declared.exercises.values(), key=lambda x: isinstance(x, Task)):
            (TASKS if isinstance(exercise, Task) else QUESTIONS)[exercise.name] = exercise
            EXERCISES[f"{prefix}-{exercise.name.replace('_', '-')}"] = exercise
            _EXERCISES_OF.setdefault(exercise.right, []).append(exercise)
        for mistake in declared.mistakes.values():
            MISTAKES[mistake.id] = replace(mistake, step=mistake.step or step)
    TAUGHT.update((id, mistake) for id, mistake in MISTAKES.items() if mistake.step)


_collect()


@cache
def mistakes_of(exercise: Exercise) -> dict[str, list[Answer]]:
    """Return the wrong answers to an exercise, keyed by mistake id, most common version first.

    Args:
        exercise: The task or question. Its own mistakes precede those of its parts.
    """
    mistakes: dict[str, list[Answer]] = {}
    for part in _within(exercise):
        for id, versions in part.mistakes.items():
            answers = (with_part(exercise.right, part.right, made(each)) for each in versions)
            mistakes.setdefault(id, []).extend(answers)
    return mistakes


@cache
def misconceptions_of(exercise: Exercise) -> dict[str, Answer]:
    """Return the known wrong answers without an id, keyed by their message."""
    wrong: dict[str, Answer] = {}
    for part in _within(exercise):
        for sentence, version in part.misconceptions.items():
            wrong.setdefault(sentence, with_part(exercise.right, part.right, made(version)))
    return wrong


def wrong_versions(task: str) -> dict[str, Answer]:
    """Collect one wrong answer for each mistake that shows in a task.

    Args:
        task: Name of the task.

    Returns:
        The most common wrong answers, keyed by mistake id: first the mistakes of this task, then
        those that it inherits from smaller tasks.
    """
    return {id: mistakes_of(TASKS[task])[id][0] for id in named(TASKS[task])}


@cache
def named(exercise: Exercise) -> list[str]:
    """List the mistakes that show in an exercise: a mistake in a part may cancel out or raise."""
    return [
        id
        for id, versions in mistakes_of(exercise).items()
        if any(shows(exercise, version) for version in versions)
    ]


def shows(exercise: Exercise, version: Answer) -> bool:
    """Return whether the results of a wrong answer differ from the right ones in some case.

    Args:
        exercise: The task or question. For a question, misconceptions count as right ones too.
        version: The wrong answer.
    """
    if isinstance(exercise, Question):
        others = [exercise.right, *map(made, exercise.misconceptions.values())]
        with suppress(Exception):
            return not any(leads_to(exercise, other, computed(version)) for other in others)
        return False
    right = outcomes(exercise, exercise.right)
    wrong = {case: _known(exercise, version, case) for case in right}
    return any(each.error is None and not agree(each, right[case]) for case, each in wrong.items())


def _within(exercise: Exercise) -> Iterator[Exercise]:
    """Yield an exercise and the smaller exercises whose right answers it calls."""
    choice = isinstance(exercise, Question) and exercise.options
    # Mistakes in the parts say little about an answer that is a set of words.
    for part in parts(exercise.right)[: 1 if choice else None]:
        yield from _EXERCISES_OF.get(part, ())


def gives_the_same(task: Task, version: Answer, results: Mapping[str, Outcome]) -> bool:
    """Return whether a known wrong version gives the same results as an answer in every case.

    Args:
        task: The task.
        version: A wrong answer to the task.
        results: The outcomes of the answer, keyed by case name.
    """
    # In float32, the sine of a large angle is off by this much. Mistakes differ by more.
    exact = all(x.dtype == torch.float64 for result in results.values() for x in result.values)
    tolerance = 1e-5 if exact else 5e-3
    # Most wrong versions already differ from an answer in the first case.
    return all(
        agree(result, _known(task, version, case), tolerance) for case, result in results.items()
    )


@cache
def _known(task: Task, version: Answer, case: str) -> Outcome:
    """Run a known wrong version on one case, and cache the outcome."""
    with exact_on_cpu():
        return outcome(task, version, _drawn(task, version)[case])


@cache
def _drawn(task: Task, version: Answer) -> Cases:
    """Draw the cases for a version once: some arguments, such as a dropout, are stateful."""
    return task.cases()
