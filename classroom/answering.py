"""Runs in a student's kernel in place of a check, and reports results to the grader.

The student controls this process, so its report is not trusted: classroom.judge compares the
results with the right ones. Messages in the report are shown only to the student.
"""

import base64
import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import torch
from IPython.display import display
from torch import Tensor

from twelve_lab.check import diagnose
from twelve_lab.check.attempt import Attempt, attempts
from twelve_lab.check.diagnose import exercise
from twelve_lab.exercises.declare import Question, Task

# The MIME type of the report.
KIND = "application/vnd.twelve.answer+json"


def hand_over(id: str, answer: Callable[[], Any]) -> None:
    """Run an answer on the cases of its exercise, and report the results.

    Args:
        id: Id of the exercise.
        answer: Returns the argument of the check. Raises if the name is not defined.
    """
    value = answer()
    verdict, asked = diagnose(id, value), exercise(id)
    report = {"kind": verdict.kind, "message": verdict.message, "note": verdict.note}
    # An answer that the student's own checker rejects needs no proof.
    if verdict.ok and isinstance(asked, Question):
        report["given"] = _plain(value)
    elif verdict.ok:
        ignored = io.StringIO()
        with redirect_stdout(ignored), redirect_stderr(ignored):
            report["calls"] = [
                [_encode(attempt) for attempt in attempts(asked, value, by_gradient=by_gradient)]
                for by_gradient in runs(asked)
            ]
    display({KIND: report}, raw=True)


def runs(task: Task) -> tuple[bool, ...]:
    """List the runs over all cases: without gradients, and with them if the task needs them.

    Args:
        task: The exercise.
    """
    return (False,) if task.by_gradient is None else (False, True)


def _encode(attempt: Attempt) -> dict[str, Any]:
    several = isinstance(attempt.answer, tuple | list)
    parts = attempt.answer if several else (attempt.answer,)
    return {
        "case": attempt.case,
        "returned": attempt.returned and attempt.error is None,
        "changed": attempt.changed,
        "several": several,
        "answer": [_tensor(x) if isinstance(x, Tensor) else None for x in parts],
        "values": [_tensor(x) for x in attempt.values],
        "gradients": [x if x is None else _tensor(x) for x in attempt.gradients],
    }


def _tensor(x: Tensor) -> dict[str, Any]:
    content = x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {
        "dtype": str(x.dtype).removeprefix("torch."),
        "shape": list(x.shape),
        "asks": x.requires_grad,
        "content": base64.b64encode(content).decode(),
    }


def _plain(value: Any) -> Any:
    """Encode a prediction for JSON; tuples and sets are tagged with their type."""
    if isinstance(value, tuple):
        return {"tuple": [_plain(part) for part in value]}
    if isinstance(value, set | frozenset):
        return {"set": [_plain(part) for part in value]}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value
