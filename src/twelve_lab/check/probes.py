"""What is tried on an answer of which only this is known: its numbers are not those that are due.

One argument is changed at a time, for the answer and for the right one, and we see which of the
two moves.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from twelve_lab.check.compare import Outcome, outcomes
from twelve_lab.check.wording import axes_of
from twelve_lab.exercises.declare import Cases, Task

_WORDS = {"seq", "src", "tgt", "query"}
_Change = Callable[[Tensor], Tensor | None]


def unread(task: Task, function: Callable[..., Any]) -> int | None:
    """Look for an argument that the answer does not depend on.

    Args:
        task: The task.
        function: An answer to it.

    Returns:
        The first such argument, of those that the right answer depends on.
    """
    for index, runs in _changed_runs(task, function, _other_numbers):
        moves = [(_moves(*actual), _moves(*expected)) for actual, expected in runs]
        if any(expected for _, expected in moves) and all(actual is False for actual, _ in moves):
            return index
    return None


def leak(task: Task, function: Callable[..., Any]) -> int | None:
    """Look for a word that is heard where it must not be heard: by the words before it.

    Args:
        task: The task.
        function: An answer to it.

    Returns:
        The first argument whose last word changes the answer for earlier words, where the right
        answer for these stays as it was.
    """
    for index, runs in _changed_runs(task, function, _another_last_word):
        earlier = [tuple(_earlier(task, *both) for both in pair) for pair in runs]
        if any(
            actual and _moves(*actual) and expected and not _moves(*expected)
            for actual, expected in earlier
        ):
            return index
    return None


def _changed_runs(
    task: Task, function: Callable[..., Any], change: _Change
) -> Iterator[tuple[int, list[tuple[tuple[Outcome, Outcome], tuple[Outcome, Outcome]]]]]:
    """Change one argument after the other, and give all outcomes before and after."""
    before = [_seeded(task, one) for one in (function, task.right)]
    for index in range(max(map(len, task.cases().values()))):
        changed = replace(task, cases=lambda index=index: _cases(task, index, change))
        after = [_seeded(changed, one) for one in (function, task.right)]
        actual, expected = zip(before, after, strict=True)
        cases = [
            case for case in actual[1] if not any(run[case].error for run in (*actual, *expected))
        ]
        yield (
            index,
            [tuple((was[case], now[case]) for was, now in (actual, expected)) for case in cases],
        )


def _seeded(task: Task, function: Callable[..., Any]) -> dict[str, Outcome]:
    """Let what is drawn be drawn alike in all runs, and leave the learner's own draws alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return outcomes(task, function)


def _cases(task: Task, index: int, change: _Change) -> Cases:
    """Keep the cases in which an argument can be changed."""
    found = {}
    for case, given in task.cases().items():
        x = given[index] if index < len(given) else None
        changed = change(x.clone()) if isinstance(x, Tensor) else None
        if changed is not None:
            found[case] = (*given[:index], changed, *given[index + 1 :])
    return found


def _other_numbers(x: Tensor) -> Tensor | None:
    # Ids and masks have few values to choose from, and not all of them are possible everywhere.
    return x.flip(-1) * 1.5 + 1 if x.is_floating_point() else None


def _another_last_word(x: Tensor) -> Tensor | None:
    # Vectors have three axes and ids two; a matrix of weights holds no words.
    if x.ndim != 2 + x.is_floating_point() or x.size(1) < 2:
        return None
    # A constant alone would not do: a norm takes it away again.
    x[:, -1] = x[:, -1].flip(-1) + 1 if x.is_floating_point() else x[:, 0]
    return x


def _earlier(task: Task, *both: Outcome) -> tuple[Outcome, ...] | None:
    """Leave out the last word of an answer; None where an answer has no words."""
    answers = [one.values[0] for one in both if one.values]
    if len(answers) < 2 or answers[0].shape != answers[1].shape:
        return None
    axes = axes_of(task, 0, answers[0])
    if len(axes) < 2 or axes[1] not in _WORDS or answers[0].size(1) < 2:
        return None
    return tuple(Outcome((answer[:, :-1],)) for answer in answers)


def _moves(before: Outcome, after: Outcome) -> bool:
    pairs = list(zip(before.values, after.values, strict=False))
    return any(
        one.shape != other.shape or not torch.allclose(one.double(), other.double(), equal_nan=True)
        for one, other in pairs
    )
