"""Say what is wrong with an answer, in the words of the mistake that gives the same numbers."""

import difflib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import torch

from twelve.lab.check import layers
from twelve.lab.check.attempt import attempts, constants
from twelve.lab.check.compare import agree, outcomes
from twelve.lab.check.gradient import gradient
from twelve.lab.check.layers import Sitting
from twelve.lab.check.mistakes import MISTAKES, suspects
from twelve.lab.check.table import Target
from twelve.lab.check.targets import STEPS
from twelve.lab.steps import find_step, step_of

# Each task under the number of the notebook whose stem its file has.
EXERCISES: dict[str, Target] = {
    f"{step_of(step.__name__.rpartition('.')[2])}-{target.name.replace('_', '-')}": target
    for step in STEPS
    for target in step.TARGETS
}

# Asked in turn, after "not started" and before "gradient", which takes runs of its own.
_LAYERS = {
    "call": layers.call,
    "type": layers.type_,
    "rank": layers.rank,
    "axes swapped": layers.axes_swapped,
    "shape": layers.shape,
    "input changed": layers.input_changed,
    "nan or inf": layers.nan_or_inf,
    "numbers": layers.numbers,
}


@dataclass(frozen=True)
class Verdict:
    """What is to be said about an answer.

    Args:
        ok: Whether it is right.
        kind: "ok", "not started", "call", "type", "rank", "axes swapped", "shape", "input
            changed", "nan or inf", "mistake", "numbers" or "gradient".
        mistake: Id of the mistake, where it is a known one.
        message: One or two sentences for the learner.
        note: What could be nicer about an answer that is right.
    """

    ok: bool
    kind: str
    mistake: str | None
    message: str
    note: str = ""


class WrongAnswer(Exception):
    """An answer that is not right: the message has been printed, so the traceback is one line."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def exercise(id: str) -> Target:
    """Look up the task of an exercise.

    Args:
        id: As "06-split-heads": the number of the notebook, and the name of the task.

    Raises:
        ValueError: If there is no such exercise.
    """
    if id in EXERCISES:
        return EXERCISES[id]
    near = difflib.get_close_matches(str(id), EXERCISES, n=3, cutoff=0.0)
    raise ValueError(f"id={id!r} is no exercise; the nearest are {', '.join(near)}")


def diagnose(id: str, function: Callable[..., Any]) -> Verdict:
    """Say whether an answer is right, and if not, what to put right first.

        diagnose("06-split-heads", split).message

    Args:
        id: The exercise.
        function: The answer.

    Raises:
        ValueError: If there is no such exercise.
    """
    target = exercise(id)
    if function is ... or function is None:
        return _fault("not started", "Not started yet: write the function, then run the cell.")
    if not callable(function):
        given = type(function).__name__
        return _fault("type", f"A {given} was handed in: hand in the function itself, without ().")
    with _one_thread():
        return _verdict(target, function)


def check(id: str, function: Callable[..., Any]) -> None:
    """Print what `diagnose` says.

        check("06-split-heads", split)

    Args:
        id: The exercise.
        function: The answer.

    Raises:
        WrongAnswer: If it is wrong. One that is not started is only told so, unless the variable
            TWELVE_STRICT is 1, as for grading.
        ValueError: If there is no such exercise.
    """
    verdict = diagnose(id, function)
    if verdict.ok:
        print(f"✓ {id}: right. {verdict.message} {verdict.note}".rstrip())
        return
    blank = verdict.kind == "not started"
    print(f"{'○' if blank else '✗'} {id}: {'' if blank else 'not yet right. '}{verdict.message}")
    if not blank or os.environ.get("TWELVE_STRICT") == "1":
        raise WrongAnswer(f"{id} is not yet right ({verdict.mistake or verdict.kind}).") from None


def _verdict(target: Target, function: Callable[..., Any]) -> Verdict:
    sitting = Sitting(target, function, attempts(target, function), attempts(target, target.right))
    blank = layers.not_started(sitting)
    if blank:
        return _fault("not started", blank)
    for kind, layer in _LAYERS.items():
        message = layer(sitting)
        if message:
            return _named(sitting, kind, message)
    # What the function prints has been seen once.
    with redirect_stdout(io.StringIO()):
        runs = (attempts(target, one, by_gradient=True) for one in (function, target.right))
        message = gradient(Sitting(target, function, *runs))
    if message:
        return _named(sitting, "gradient", message)
    return Verdict(True, "ok", None, "Every case gives the numbers that are due.", _note(sitting))


def _named(sitting: Sitting, kind: str, message: str) -> Verdict:
    """Name the mistake if exactly one gives all of this, and else say what was seen."""
    # Whatever numbers come with it, a changed argument is to be put right first.
    found = [] if kind == "input changed" else _suspects(sitting)
    if len(found) != 1:
        return _fault(kind, message)
    mistake = MISTAKES[found[0]]
    step = find_step(mistake.step)
    said = f"{mistake.sentence} Notebook {step.number} ({step.title}) shows it."
    return Verdict(False, "mistake", mistake.id, said)


def _suspects(sitting: Sitting) -> list[str]:
    """Ask which mistakes give the same, unless there is nothing to tell them by."""
    target, function, mine, _ = sitting
    if not all(layers.is_plain(x) for one in mine for x in one.values):
        return []
    with redirect_stdout(io.StringIO()):
        found, due = outcomes(target, function), outcomes(target, target.right)
        # Errors alone give no mistake away: wrong numbers must come out of one case at least.
        if all(one.error is not None or agree(one, due[case]) for case, one in found.items()):
            return []
        return suspects(target.name, function)


def _fault(kind: str, message: str) -> Verdict:
    return Verdict(False, kind, None, message)


def _note(sitting: Sitting) -> str:
    if any(abs(one) >= 1e4 and float(one) < 0 for one in constants(sitting.function)):
        return "A note: -math.inf hides for certain, where a large number can overflow in half."
    for _, one, other, _, _ in sitting.pairs():
        if one.dtype != other.dtype:
            return f"A note: the answer is {one.dtype} where the cases are {other.dtype}."
    return ""


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
