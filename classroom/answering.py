"""What the kernel that holds an answer does in place of a check: it hands over numbers.

This runs where the student's code runs, and nothing that it says is believed: classroom.grading
compares the numbers with those that are due, and what else is said is shown to the student alone.
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

# Under this name it leaves the kernel.
KIND = "application/vnd.twelve.answer+json"


def hand_over(id: str, answer: Callable[[], Any]) -> None:
    """Run an answer on the cases of its exercise.

    Args:
        id: The exercise.
        answer: Gives what the check is called with; it raises where there is no such name.
    """
    given = answer()
    verdict, asked = diagnose(id, given), exercise(id)
    said = {
        "kind": verdict.kind,
        "mistake": verdict.mistake,
        "message": verdict.message,
        "note": verdict.note,
    }
    # What is wrong by its own word needs no proof.
    if verdict.ok and isinstance(asked, Question):
        said["given"] = _plain(given)
    elif verdict.ok:
        aside = io.StringIO()
        with redirect_stdout(aside), redirect_stderr(aside):
            said["calls"] = [
                [_written(one) for one in attempts(asked, given, by_gradient=slopes)]
                for slopes in runs(asked)
            ]
    display({KIND: said}, raw=True)


def runs(task: Task) -> tuple[bool, ...]:
    """Say how often an answer runs on all cases: for its numbers, and where due for its slopes.

    Args:
        task: What is asked.
    """
    return (False,) if task.by_gradient is None else (False, True)


def _written(one: Attempt) -> dict[str, Any]:
    several = isinstance(one.answer, tuple | list)
    parts = one.answer if several else (one.answer,)
    return {
        "case": one.case,
        "returned": one.returned and one.error is None,
        "changed": one.changed,
        "several": several,
        "answer": [_tensor(x) if isinstance(x, Tensor) else None for x in parts],
        "values": [_tensor(x) for x in one.values],
        "gradients": [x if x is None else _tensor(x) for x in one.outcome.gradients],
    }


def _tensor(x: Tensor) -> dict[str, Any]:
    content = x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {
        "dtype": str(x.dtype).removeprefix("torch."),
        "shape": list(x.shape),
        "asks": x.requires_grad,
        "content": base64.b64encode(content).decode(),
    }


def _plain(given: Any) -> Any:
    """Write a prediction in what JSON knows; a tuple and a set say what they are."""
    if isinstance(given, tuple):
        return {"tuple": [_plain(one) for one in given]}
    if isinstance(given, set | frozenset):
        return {"set": [_plain(one) for one in given]}
    if isinstance(given, list):
        return [_plain(one) for one in given]
    return given.tolist() if hasattr(given, "tolist") else given
