"""Turn an answer into a verdict: recognise the mistake, and say what to do instead."""

import difflib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from twelve_lab.check import prediction, stages
from twelve_lab.check.attempt import attempts, constants, expected, names
from twelve_lab.check.catalogue import (
    EXERCISES,
    MISTAKES,
    gives_the_same,
    misconceptions_of,
    mistakes_of,
)
from twelve_lab.check.compare import Outcome, agree, exact_on_cpu, outcomes
from twelve_lab.check.gradients import gradient
from twelve_lab.check.probes import probed
from twelve_lab.check.progress import note, onward
from twelve_lab.check.reply import as_text, reply, write
from twelve_lab.check.stages import Submission
from twelve_lab.course import find_step
from twelve_lab.exercises.declare import Answer, Question, Task
from twelve_lab.messages import declared, message, plural
from twelve_lab.show.wide import joined

_LOCK = RLock()
# Run in this order, after "not started" and before "gradient", which needs separate calls.
_STAGES = {
    "call": stages.call,
    "type": stages.type_,
    "rank": stages.rank,
    "axes swapped": stages.axes_swapped,
    "shape": stages.shape,
    "input changed": stages.input_changed,
    "nan or inf": stages.nan_or_inf,
    "numbers": stages.numbers,
}


# The last message for each exercise: a learner who gets it twice is also told the change.
_asked: dict[str, str] = {}


@dataclass(frozen=True)
class Verdict:
    """The result of checking an answer.

    Args:
        ok: Whether the answer is right.
        kind: "ok", "not started", "call", "type", "rank", "axes swapped", "shape", "input
            changed", "nan or inf", "mistake", "misconception", "explained", "numbers" or
            "gradient".
        mistake: Id of the known mistake, if any.
        message: The problem and its remedy.
        note: Style advice for a right answer, and warnings that the code raised.
        proved: The cases that a right answer passed.
        change: A change that makes all cases pass, for a learner who gets the message again.
        forbidden: Whether a right answer uses an operation that the task forbids.
    """

    ok: bool
    kind: str
    mistake: str | None
    message: str
    note: str = ""
    proved: str = ""
    change: str = ""
    forbidden: bool = False


class WrongAnswer(Exception):
    """Raised for a wrong answer. `check` already printed why, so the traceback is one line."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def exercise(id: str) -> Task | Question:
    """Look up an exercise by its id.

    Args:
        id: The notebook number, or "by-hand", and the name of the task, such as "06-split-heads".

    Raises:
        ValueError: If no exercise has this id.
    """
    if isinstance(id, str) and id in EXERCISES:
        return EXERCISES[id]
    near = difflib.get_close_matches(str(id), EXERCISES, n=3, cutoff=0.0)
    raise ValueError(f"unknown exercise id={id!r} (nearest: {', '.join(near)})")


def diagnose(id: str, answer: Any) -> Verdict:
    """Decide whether an answer is right, and if not, what to fix first.

        diagnose("06-split-heads", split).message

    Args:
        id: Id of the exercise.
        answer: A function or a class for a task; the predicted value for a question.

    Raises:
        ValueError: If no exercise has this id.
    """
    asked = exercise(id)
    # All threads share the default dtype, stdout and the warning filters. A dispatch mode, such as
    # tracing, would affect the cached results.
    with _LOCK, _one_thread(), _disable_current_modes(), _warnings_recorded() as recorded:
        run = _predicted if isinstance(asked, Question) else _tried
        verdict = run(asked, answer)
    if verdict.mistake:
        shown_in = _shown_in(verdict.mistake, id)
        verdict = replace(verdict, message=joined(verdict.message, shown_in))
    if not recorded:
        return verdict
    said = message("Note: your code also says: {warning}", warning=recorded[0])
    return replace(verdict, note=joined(verdict.note, said))


def check(id: str, answer: Any) -> None:
    """Print the verdict of `diagnose`, and record it in progress.json if that file exists.

        check("06-split-heads", split)

    Args:
        id: Id of the exercise.
        answer: As for `diagnose`.

    Raises:
        WrongAnswer: If the answer is wrong. A blank answer raises it only during grading, when the
            environment variable TWELVE_STRICT is 1.
        ValueError: If no exercise has this id.
    """
    verdict = diagnose(id, answer)
    seconds = note(id, verdict.kind, verdict.mistake, counts=not verdict.forbidden)
    if verdict.ok:
        opening = message("✓ {id}: right.", id=id)
        if seconds is not None:
            minutes, rest = divmod(seconds, 60)
            opening = message(
                "✓ {id}: right after {minutes} min {seconds} s.",
                id=id,
                minutes=minutes,
                seconds=rest,
            )
        more = (verdict.proved, onward())
        reply(opening, verdict.message, verdict.note, ok=True, more=more)
        return
    blank = verdict.kind == "not started"
    if blank:
        write(as_text(message("○ {id}:", id=id), verdict.message, verdict.note))
    else:
        opening = message("✗ {id}: not yet right.", id=id)
        asked_again = _asked.get(id) == verdict.message
        text = joined(verdict.message, verdict.change if asked_again else "")
        _asked[id] = verdict.message
        reply(opening, text, verdict.note, ok=False)
    if not blank or os.environ.get("TWELVE_STRICT") == "1":
        reason = verdict.mistake or verdict.kind
        text = message("{id} is not yet right ({reason}).", id=id, reason=reason)
        raise WrongAnswer(text) from None


def _predicted(question: Question, answer: Any) -> Verdict:
    if prediction.not_started(answer):
        text = message(
            "Not started yet: put your answer in place of the dots, then run the cell again."
        )
        return _fault("not started", text)
    with exact_on_cpu():
        fault = prediction.fault(question, answer)
        if fault is None:
            return Verdict(True, "ok", None, prediction.praise(question))
        known = _known(
            question,
            lambda version: prediction.leads_to(question, version, answer),
            message("A classic mistake leads to this answer."),
        )
    return known or _fault(*fault)


def _tried(task: Task, function: Any) -> Verdict:
    if function is ... or function is None:
        text = message("Not started yet: write the function, then run the cell.")
        return _fault("not started", text)
    if not callable(function):
        text = message(
            "The answer must be a function, got {type}. Pass the function itself, without ().",
            type=type(function).__name__,
        )
        return _fault("type", text)
    submission = Submission(task, function, attempts(task, function), expected(task))
    blank = stages.not_started(submission)
    if blank:
        return _fault("not started", blank)
    fault = first_fault(submission) or _wrong_gradient(submission)
    if fault is None:
        verdict = right(submission, _note(submission))
        return replace(verdict, forbidden=bool(_forbidden(submission)))
    kind, text = fault
    # The learner must first fix a modified argument, even if the numbers are wrong too.
    if kind == "input changed":
        return _fault(kind, text)
    return _known_mistake(submission) or _searched(submission, kind, text)


def _wrong_gradient(submission: Submission) -> tuple[str, str] | None:
    task, function = submission.task, submission.function
    if task.by_gradient is None:
        return None
    # The first run already printed the output of the function.
    with redirect_stdout(io.StringIO()):
        calls = attempts(task, function, by_gradient=True)
        fault = gradient(Submission(task, function, calls, expected(task, by_gradient=True)))
    return ("gradient", fault) if fault else None


def first_fault(submission: Submission) -> tuple[str, str] | None:
    """Find the first fault of a submission.

    Args:
        submission: The answer, run on every case.

    Returns:
        The kind of the fault and a message; None if there is no fault.
    """
    for kind, stage in _STAGES.items():
        fault = stage(submission)
        if fault:
            return kind, fault
    return None


def right(submission: Submission, note: str = "") -> Verdict:
    """Return the verdict on a right answer.

    Args:
        submission: The answer, run on every case.
        note: Style advice.
    """
    cases = [declared(attempt.case) for attempt in submission.expected]
    text = "; ".join(cases)
    proved = plural(
        "{count} case passes: {cases}.", "{count} cases pass: {cases}.", len(cases), cases=text
    )
    return Verdict(True, "ok", None, message("All cases pass."), note, proved)


def _known(
    exercise: Task | Question, is_like: Callable[[Answer], bool], opening: str = ""
) -> Verdict | None:
    """Return a verdict for the mistake, if only one matches the answer, or a misconception."""
    like = [id for id, versions in mistakes_of(exercise).items() if any(map(is_like, versions))]
    # Mistakes declared at the exercise itself take precedence over those of its parts.
    mistakes = [id for id in like if id in exercise.mistakes] or like
    known = [text for text, version in misconceptions_of(exercise).items() if is_like(version)]
    own = [text for text in known if text in exercise.misconceptions]
    if len(mistakes) == 1 and not (own and mistakes[0] not in exercise.mistakes):
        sentence = declared(MISTAKES[mistakes[0]].sentence)
        return Verdict(False, "mistake", mistakes[0], joined(opening, sentence))
    return _fault("misconception", declared(known[0])) if known else None


def _known_mistake(submission: Submission) -> Verdict | None:
    """Find the known mistake that gives the same results in every case."""
    results = _results(submission)
    if not _is_informative(submission, results):
        return None
    task = submission.task
    return _known(task, lambda version: gives_the_same(task, version, results))


def _results(submission: Submission) -> dict[str, Outcome]:
    """Return the results of all cases, with gradients if they are part of the answer."""
    if submission.task.by_gradient:
        with redirect_stdout(io.StringIO()):
            return outcomes(submission.task, submission.function)
    return {attempt.case: attempt for attempt in submission.actual}


def _searched(submission: Submission, kind: str, text: str) -> Verdict:
    """Search for one edit that explains wrong numbers: the last resort, as it needs many runs.

    Args:
        submission: The answer, run on every case.
        kind: The kind of the first fault.
        text: The message about the first fault.
    """
    if kind not in ("numbers", "nan or inf"):
        return _fault(kind, text)
    # Import these modules late: they are slow, and most answers do not need them.
    from twelve_lab.check import explanation, search

    task, function = submission.task, submission.function
    if hits := search.explained(task, _results(submission)):
        return _fault("explained", explanation.explanation(task, hits))
    if hint := probed(submission):
        return _fault(kind, joined(text, hint))
    edit = search.repaired(task, function)
    if edit is None:
        return _fault(kind, text)
    place, change = explanation.repair_place(edit), explanation.repair_change(edit)
    return Verdict(False, kind, None, joined(text, place), change=change)


def _is_informative(submission: Submission, results: dict[str, Outcome]) -> bool:
    """Return whether the results can identify a mistake: errors alone cannot."""
    if not all(stages.is_plain(x) for attempt in submission.actual for x in attempt.values):
        return False
    calls = expected(submission.task, by_gradient=bool(submission.task.by_gradient))
    pairs = [(results[call.case], call) for call in calls]
    return any(actual.error is None and not agree(actual, due) for actual, due in pairs)


def _shown_in(mistake: str, id: str) -> str:
    """Name the notebook that shows a mistake; "" if it comes after this exercise."""
    number = MISTAKES[mistake].step
    # By-hand pages come after all lessons, just as "by" sorts after the lesson numbers.
    if not number or number > id.partition("-")[0]:
        return ""
    step = find_step(number)
    title = declared(step.title)
    return message("Notebook {number} ({title}) shows it.", number=step.number, title=title)


def _fault(kind: str, text: str) -> Verdict:
    return Verdict(False, kind, None, text)


def _forbidden(submission: Submission) -> str:
    used = names(submission.function)
    return ", ".join(name for name in submission.task.forbidden if name in used)


def _note(submission: Submission) -> str:
    if forbidden := _forbidden(submission):
        return message("Note: the task asks for a solution without {names}.", names=forbidden)
    numbers = (x for x in constants(submission.function) if isinstance(x, int | float))
    if any(number <= -1e4 for number in numbers):
        return message(
            "Note: use -math.inf to hide a score. A large negative number overflows "
            "in half precision."
        )
    for pair in submission.pairs():
        got, expected = pair.actual.dtype, pair.expected.dtype
        if got != expected:
            return message(
                "Note: the answer is {got}, but the cases are {expected}.",
                got=got,
                expected=expected,
            )
    return ""


@contextmanager
def _warnings_recorded() -> Iterator[list[str]]:
    """Record warnings and stderr instead of printing them: a grader counts stderr as a failure.

    Yields:
        A list that holds the recorded lines after the block.
    """
    recorded: list[str] = []
    stderr = io.StringIO()
    with warnings.catch_warnings(record=True) as warned, redirect_stderr(stderr):
        warnings.simplefilter("default")
        yield recorded
    texts = [f"{warning.category.__name__}: {warning.message}" for warning in warned]
    # torch appends the location in its own source.
    recorded += [
        line.partition(" (Triggered internally")[0] for text in texts for line in text.splitlines()
    ]
    recorded += [] if stderr.closed else stderr.getvalue().splitlines()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
