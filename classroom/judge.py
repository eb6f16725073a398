"""Judges the results of an answer in a process that does not run a student's code.

The results come from a kernel that the student controls. They are decoded from bytes, and compared
using the teacher's cases, checker and right answers.
"""

import base64
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from classroom.answering import runs
from twelve_lab.check import Verdict, prediction
from twelve_lab.check.attempt import Attempt, expected
from twelve_lab.check.compare import exact_on_cpu
from twelve_lab.check.diagnose import exercise, first_fault, right
from twelve_lab.check.gradients import gradient
from twelve_lab.check.stages import Submission
from twelve_lab.exercises.declare import Question, Task

DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()


def judge(id: str, reported: Any) -> Verdict:
    """Judge an answer by the results that its kernel reported.

    Args:
        id: Id of the exercise.
        reported: The report, which is not trusted and may be any value.
    """
    asked = exercise(id)
    try:
        text = {key: str(reported.get(key) or "")[:2000] for key in ("kind", "message", "note")}
        if text["kind"] != "ok":
            return Verdict(False, text["kind"] or "call", None, text["message"], text["note"])
        if isinstance(asked, Question):
            return _judge_prediction(asked, _read_plain(reported["given"]), text["note"])
        return _judge_task(asked, reported["calls"], text["note"])
    except Exception as error:  # the report claims to be right, but is malformed
        message = f"What your code handed over cannot be read ({type(error).__name__})."
        return Verdict(False, "call", None, message)


def _judge_prediction(question: Question, answer: Any, note: str) -> Verdict:
    with exact_on_cpu():
        if fault := prediction.fault(question, answer):
            return Verdict(False, fault[0], None, fault[1])
        return Verdict(True, "ok", None, prediction.praise(question), note)


def _judge_task(task: Task, calls: Any, note: str) -> Verdict:
    submissions = []
    for by_gradient, reported in zip(runs(task), calls, strict=True):
        ours = expected(task, by_gradient=by_gradient)
        theirs = [*_read_attempts(ours, reported)]
        submissions.append(Submission(task, task.right, theirs, ours))
    plain, *with_gradients = submissions
    fault = first_fault(plain)
    for submission in with_gradients:
        if not fault and (message := gradient(submission)):
            fault = "gradient", message
    return Verdict(False, fault[0], None, fault[1]) if fault else right(plain, note)


def _read_attempts(attempts: list[Attempt], reported: Any) -> Iterator[Attempt]:
    """Decode the results of an answer case by case, using the teacher's cases."""
    for ours, theirs in zip(attempts, reported, strict=True):
        if theirs["returned"] is not True or theirs["case"] != ours.case:
            raise ValueError(f'the case "{ours.case}" has no answer')
        parts = [None if part is None else _read_tensor(part) for part in theirs["answer"]]
        # A layer, or anything else that is not a tensor, is judged only by its values.
        answer = ours.answer if parts == [None] else parts[0]
        used = list(ours.given)
        if theirs["changed"] is not None:
            used[theirs["changed"]] = torch.tensor(torch.nan)  # NaN differs from any argument
        values = tuple(_read_tensor(value).detach() for value in theirs["values"])
        gradients = tuple(None if g is None else _read_tensor(g) for g in theirs["gradients"])
        yield Attempt(
            case=ours.case,
            given=ours.given,
            returned=True,
            answer=tuple(parts) if theirs["several"] is True else answer,
            values=values,
            gradients=gradients,
            used=tuple(used),
        )


def _read_tensor(reported: Any) -> Tensor:
    if reported["dtype"] not in DTYPES:
        raise ValueError("unsupported dtype")
    dtype = getattr(torch, reported["dtype"])
    content = bytearray(base64.b64decode(reported["content"]))
    flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
    tensor = flat.reshape([int(size) for size in reported["shape"]])
    wants_grad = reported["asks"] is True and dtype.is_floating_point
    return tensor.requires_grad_() if wants_grad else tensor


def _read_plain(reported: Any) -> Any:
    if isinstance(reported, dict):
        ((kind, parts),) = reported.items()
        return {"tuple": tuple, "set": set}[kind](_read_plain(part) for part in parts)
    return [_read_plain(part) for part in reported] if isinstance(reported, list) else reported
