"""Run experiments on an answer whose numbers are wrong for no known reason.

Each experiment changes one argument, and compares the effects on this answer and the right answer.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from twelve_lab.check.compare import Outcome, outcomes
from twelve_lab.check.stages import Submission, axes_of
from twelve_lab.exercises.declare import Cases, Task
from twelve_lab.messages import message

_WORDS = {"seq", "src", "tgt", "query"}
_Change = Callable[[Tensor], Tensor | None]


class _Pair(NamedTuple):
    """The outcomes of one case before and after an argument was changed."""

    before: Outcome
    after: Outcome


def probed(submission: Submission) -> str:
    """Describe what experiments show about an answer whose numbers match no known mistake.

    Returns:
        One sentence; "" if the experiments show nothing.
    """
    # The first run already printed the output of the function.
    with redirect_stdout(io.StringIO()):
        ignored = unread(submission.task, submission.function)
        leaked = leak(submission.task, submission.function) if ignored is None else None
    if ignored is not None:
        argument = submission.argument(ignored)
        return message('The answer does not depend on "{argument}".', argument=argument)
    if leaked is not None:
        argument = submission.argument(leaked)
        return message(
            'The answer for earlier words changes with the last word of "{argument}", which must '
            "stay hidden from them.",
            argument=argument,
        )
    return ""


def unread(task: Task, function: Callable[..., Any]) -> int | None:
    """Find an argument that the answer ignores, although the right answer depends on it.

    Args:
        task: The task.
        function: An answer to the task.

    Returns:
        The index of the first such argument; None if there is none.
    """
    for index, runs in _runs(task, function, _other_numbers):
        if any(_moves(expected) for _, expected in runs):
            if not any(_moves(actual) for actual, _ in runs):
                return index
    return None


def leak(task: Task, function: Callable[..., Any]) -> int | None:
    """Find an argument whose last word wrongly changes the answer for earlier words.

    Args:
        task: The task.
        function: An answer to the task.

    Returns:
        The index of the first such argument; None if the answer leaks nothing.
    """
    for index, runs in _runs(task, function, _another_last_word):
        earlier = [(_earlier(task, actual), _earlier(task, due)) for actual, due in runs]
        known = [(actual, due) for actual, due in earlier if actual and due]
        # Check all cases together: in a single case, a weight near 0 may conceal an allowed word.
        if any(_moves(actual) for actual, _ in known) and not any(_moves(due) for _, due in known):
            return index
    return None


def _runs(
    task: Task, function: Callable[..., Any], change: _Change
) -> Iterator[tuple[int, list[list[_Pair]]]]:
    """Run an answer and the right answer before and after a change of each argument.

    Yields:
        The index of the argument, and the error-free runs on the cases where it can change.
    """
    answers = (function, task.right)
    cases, before = task.cases(), []
    for index in range(max(map(len, cases.values()))):
        if not _changed(cases, index, change):
            continue
        before = before or [_seeded(task, answer) for answer in answers]
        changed = replace(task, cases=lambda i=index: _changed(task.cases(), i, change))
        after = [_seeded(changed, answer) for answer in answers]
        runs = [[_Pair(old[case], new[case]) for old, new in zip(before, after, strict=True)]
                for case in after[0]]  # fmt: skip
        yield index, [run for run in runs if not any(each.error for pair in run for each in pair)]


def _seeded(task: Task, function: Callable[..., Any]) -> dict[str, Outcome]:
    """Run a function with a fixed seed, and restore the state of the learner's generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return outcomes(task, function)


def _changed(drawn: Cases, index: int, change: _Change) -> Cases:
    """Change one argument, and keep only the cases where that is possible."""
    cases = {}
    for case, given in drawn.items():
        x = given[index] if index < len(given) else None
        changed = change(x.clone()) if isinstance(x, Tensor) else None
        if changed is not None:
            cases[case] = (*given[:index], changed, *given[index + 1 :])
    return cases


def _other_numbers(x: Tensor) -> Tensor | None:
    # Ids and masks have few possible values, and not every value is valid everywhere.
    return x.flip(-1) * 1.5 + 1 if x.is_floating_point() else None


def _another_last_word(x: Tensor) -> Tensor | None:
    # Vectors have three axes, and ids have two. A weight matrix has no axis of words.
    if x.ndim != 2 + x.is_floating_point() or x.size(1) < 2:
        return None
    # Adding a constant would not be enough: a norm removes the constant.
    x[:, -1] = x[:, -1].flip(-1) + 1 if x.is_floating_point() else x[:, 0]
    return x


def _earlier(task: Task, pair: _Pair) -> _Pair | None:
    """Remove the last word from two answers; None if an answer has no word axis."""
    answers = [outcome.values[0] for outcome in pair if outcome.values]
    if len(answers) < 2 or answers[0].shape != answers[1].shape:
        return None
    axes = axes_of(task, 0, answers[0])
    if len(axes) < 2 or axes[1] not in _WORDS or answers[0].size(1) < 2:
        return None
    return _Pair(*(Outcome((answer[:, :-1],)) for answer in answers))


def _moves(pair: _Pair) -> bool:
    return any(
        old.shape != new.shape or not torch.allclose(old.double(), new.double(), equal_nan=True)
        for old, new in zip(pair.before.values, pair.after.values, strict=False)
    )
