"""Say what is wrong with an answer, in the words of the mistake that gives the same numbers."""

import difflib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

import torch

from twelve_lab.check import prediction, stages
from twelve_lab.check.attempt import attempts, constants, expected, names
from twelve_lab.check.catalogue import (
    EXERCISES,
    MISTAKES,
    misconceptions_like,
    mistakes_like,
)
from twelve_lab.check.compare import Outcome, agree, exact_on_cpu, outcomes
from twelve_lab.check.gradients import gradient
from twelve_lab.check.progress import note, onward
from twelve_lab.check.reply import as_text, reply
from twelve_lab.check.stages import Submission
from twelve_lab.course import find_step
from twelve_lab.exercises.declare import Question, Task

# Asked in turn, after "not started" and before "gradient", which takes runs of its own.
_LAYERS = {
    "call": stages.call,
    "type": stages.type_,
    "rank": stages.rank,
    "axes swapped": stages.axes_swapped,
    "shape": stages.shape,
    "input changed": stages.input_changed,
    "nan or inf": stages.nan_or_inf,
    "numbers": stages.numbers,
}


@dataclass(frozen=True)
class Verdict:
    """What is to be said about an answer.

    Args:
        ok: Whether it is right.
        kind: "ok", "not started", "call", "type", "rank", "axes swapped", "shape", "input
            changed", "nan or inf", "mistake", "misconception", "numbers" or "gradient".
        mistake: Id of the mistake, where it is a known one.
        message: One or two sentences for the learner.
        note: What could be nicer about an answer that is right, and what it warned of.
        proved: What an answer that is right was held against.
    """

    ok: bool
    kind: str
    mistake: str | None
    message: str
    note: str = ""
    proved: str = ""


class WrongAnswer(Exception):
    """An answer that is not right: the message has been printed, so the traceback is one line."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def exercise(id: str) -> Task | Question:
    """Look up the task or the question of an exercise.

    Args:
        id: As "06-split-heads": the number of the notebook, and the name of the task.

    Raises:
        ValueError: If there is no such exercise.
    """
    if id in EXERCISES:
        return EXERCISES[id]
    near = difflib.get_close_matches(str(id), EXERCISES, n=3, cutoff=0.0)
    raise ValueError(f"id={id!r} is no exercise; the nearest are {', '.join(near)}")


def diagnose(id: str, answer: Any) -> Verdict:
    """Say whether an answer is right, and if not, what to put right first.

        diagnose("06-split-heads", split).message

    Args:
        id: The exercise.
        answer: A function, or a class, to a task; what is predicted, to a question.

    Raises:
        ValueError: If there is no such exercise.
    """
    asked = exercise(id)
    with _one_thread(), _listening() as heard:
        run = _predicted if isinstance(asked, Question) else _tried
        verdict = run(asked, answer)
    if verdict.mistake:
        verdict = replace(verdict, message=verdict.message + _shown_in(verdict.mistake, id))
    if not heard:
        return verdict
    return replace(verdict, note=f"{verdict.note} A note: your code also says: {heard[0]}".strip())


def check(id: str, answer: Any) -> None:
    """Print what `diagnose` says, and note it where a progress.json is kept.

        check("06-split-heads", split)

    Args:
        id: The exercise.
        answer: As for `diagnose`.

    Raises:
        WrongAnswer: If it is wrong. One that is not started is only told so, unless the variable
            TWELVE_STRICT is 1, as for grading.
        ValueError: If there is no such exercise.
    """
    verdict = diagnose(id, answer)
    note(id, verdict.kind, verdict.mistake)
    if verdict.ok:
        said = f"✓ {id}: right."
        reply(said, verdict.message, verdict.note, ok=True, more=(verdict.proved, onward()))
        return
    blank = verdict.kind == "not started"
    if blank:
        print(as_text(f"○ {id}:", verdict.message, verdict.note))
    else:
        reply(f"✗ {id}: not yet right.", verdict.message, verdict.note, ok=False)
    if not blank or os.environ.get("TWELVE_STRICT") == "1":
        raise WrongAnswer(f"{id} is not yet right ({verdict.mistake or verdict.kind}).") from None


def _predicted(question: Question, given: Any) -> Verdict:
    if prediction.not_started(given):
        blank = "Not started yet: put your answer in place of the dots, then run the cell again."
        return _fault("not started", blank)
    with exact_on_cpu():
        found = prediction.fault(question, given)
        if found is None:
            return Verdict(True, "ok", None, prediction.praise(question))
        named = prediction.suspects(question, given)
        answers = prediction.misconceptions(question, given)
    if len(named) == 1:
        return _mistake(named[0], "This is what comes out of a classic mistake: ")
    return _fault("misconception", answers[0]) if len(answers) == 1 else _fault(*found)


def _tried(task: Task, function: Any) -> Verdict:
    if function is ... or function is None:
        return _fault("not started", "Not started yet: write the function, then run the cell.")
    if not callable(function):
        given = type(function).__name__
        return _fault("type", f"A {given} was handed in: hand in the function itself, without ().")
    return _verdict(task, function)


def _verdict(task: Task, function: Callable[..., Any]) -> Verdict:
    submission = Submission(task, function, attempts(task, function), expected(task))
    blank = stages.not_started(submission)
    if blank:
        return _fault("not started", blank)
    found = first_fault(submission)
    if found:
        return _named(submission, *found)
    if task.by_gradient is not None:
        # What the function prints has been seen once.
        with redirect_stdout(io.StringIO()):
            run = attempts(task, function, by_gradient=True)
            message = gradient(Submission(task, function, run, expected(task, by_gradient=True)))
        if message:
            return _named(submission, "gradient", message)
    return right(submission, _note(submission))


def first_fault(submission: Submission) -> tuple[str, str] | None:
    """Find the first thing that is wrong with the numbers of a submission.

    Args:
        submission: What was handed in, run on every case.

    Returns:
        Its kind and a message, or None where nothing is wrong.
    """
    found = ((kind, layer(submission)) for kind, layer in _LAYERS.items())
    return next(((kind, message) for kind, message in found if message), None)


def right(submission: Submission, note: str = "") -> Verdict:
    """Say that an answer is right.

    Args:
        submission: What was handed in, run on every case.
        note: What could be nicer.
    """
    cases = [one.case for one in submission.expected]
    proved = f"Held in {len(cases)} case{'s' * (len(cases) > 1)}: {'; '.join(cases)}."
    message = "Every case gives the numbers that are due."
    return Verdict(True, "ok", None, message, note, proved)


def _named(submission: Submission, kind: str, message: str) -> Verdict:
    """Name the mistake if exactly one gives all of this, and else say what was seen."""
    # Whatever numbers come with it, a changed argument is to be put right first.
    if kind == "input changed":
        return _fault(kind, message)
    found = _found(submission)
    if _can_be_told(submission, found):
        mistakes = mistakes_like(submission.task, found)
        if len(mistakes) == 1:
            return _mistake(mistakes[0])
        sentences = misconceptions_like(submission.task, found)
        if len(sentences) == 1:
            return _fault("misconception", sentences[0])
    # The probes take many runs: they are asked where there is nothing better to say.
    return _fault(kind, message + (stages.probed(submission) if kind == "numbers" else ""))


def _found(submission: Submission) -> dict[str, Outcome]:
    """Give what the answer came to in each case, with gradients where they belong to it."""
    if not submission.task.by_gradient:
        return {one.case: one.outcome for one in submission.actual}
    with redirect_stdout(io.StringIO()):
        return outcomes(submission.task, submission.function)


def _mistake(id: str, opening: str = "") -> Verdict:
    return Verdict(False, "mistake", id, f"{opening}{MISTAKES[id].sentence}")


def _shown_in(mistake: str, id: str) -> str:
    """Name the notebook that shows a mistake, unless it is still ahead."""
    step = find_step(MISTAKES[mistake].step)
    return f" Notebook {step.number} ({step.title}) shows it." if step.number <= id[:2] else ""


def _can_be_told(submission: Submission, found: dict[str, Outcome]) -> bool:
    """Say whether there is something to tell a mistake by: errors alone give none away."""
    if not all(stages.is_plain(x) for one in submission.actual for x in one.values):
        return False
    by_gradient = submission.task.by_gradient
    due = {one.case: one.outcome for one in expected(submission.task, by_gradient=by_gradient)}
    return not all(one.error is not None or agree(one, due[case]) for case, one in found.items())


def _fault(kind: str, message: str) -> Verdict:
    return Verdict(False, kind, None, message)


def _note(submission: Submission) -> str:
    used = [one for one in submission.task.forbidden if one in names(submission.function)]
    if used:
        return f"A note: the task asks to do without {' and '.join(used)}."
    if any(abs(one) >= 1e4 and float(one) < 0 for one in constants(submission.function)):
        return "A note: -math.inf hides for certain, where a large number can overflow in half."
    for _, one, other, _, _ in submission.pairs():
        if one.dtype != other.dtype:
            return f"A note: the answer is {one.dtype} where the cases are {other.dtype}."
    return ""


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Keep warnings and stderr off the page: a grader takes all that is written there for a fault.

    Yields:
        What was said, filled in at the end.
    """
    heard: list[str] = []
    aside = io.StringIO()
    with warnings.catch_warnings(record=True) as warned, redirect_stderr(aside):
        warnings.simplefilter("default")
        yield heard
    said = [f"{one.category.__name__}: {one.message}" for one in warned]
    # torch names a line of its own source.
    heard += [
        line.partition(" (Triggered internally")[0] for one in said for line in one.splitlines()
    ]
    heard += aside.getvalue().splitlines()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
