"""Run an answer on every case of its task, and record the details that the messages need."""

import dis
import re
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from twelve_lab.check.compare import Outcome, exact_on_cpu, outcome
from twelve_lab.exercises.declare import Task

# The opcodes of an empty body: `...`, `pass` or a docstring, then `return None`.
_IDLE = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "POP_TOP"}

# Parts of opcode names for loops and slices, with the names that tasks use for them.
_KINDS = {"FOR_ITER": "for", "SLICE": "[:]"}


@dataclass(frozen=True, kw_only=True)
class Attempt(Outcome):
    """One call of an answer, with its outcome.

    Args:
        case: Name of the case.
        given: Copies of the arguments, made before the call.
        returned: Whether the call returned.
        answer: The returned value.
        used: The arguments themselves, which the answer may have modified.
    """

    case: str
    given: tuple[Any, ...]
    returned: bool
    answer: Any
    used: tuple[Any, ...]

    @property
    def changed(self) -> int | None:
        """Index of the first argument that the answer modified; None if it modified none."""
        pairs = enumerate(zip(self.given, self.used, strict=True))
        return next((i for i, (old, new) in pairs if _differ(old, new)), None)


def attempts(
    task: Task, function: Callable[..., Any], *, by_gradient: bool = False
) -> list[Attempt]:
    """Run a function on every case of a task.

    Args:
        task: The task.
        function: A right or wrong answer to the task.
        by_gradient: Whether to compute the gradients of the arguments.
    """
    task = replace(task, by_gradient=by_gradient)
    with exact_on_cpu():
        return [attempted(task, function, *drawn) for drawn in task.cases().items()]


def attempted(
    task: Task, function: Callable[..., Any], case: str, arguments: tuple[Any, ...]
) -> Attempt:
    """Run a function on one case of a task.

    Args:
        task: The task.
        function: A right or wrong answer to the task.
        case: Name of the case.
        arguments: The arguments of the case.
    """
    given = tuple(_copy(x) for x in arguments)
    answers = []

    def run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        answers.append(task.run(function, arguments))
        return answers[0]

    result = outcome(replace(task, run=run), function, arguments)
    return Attempt(
        **vars(result),
        case=case,
        given=given,
        returned=bool(answers),
        answer=answers[0] if answers else None,
        used=arguments,
    )


def _copy(x: Any) -> Any:
    """Copy an argument, to detect later whether the answer modified it."""
    if isinstance(x, Tensor):
        return x.detach().clone()
    if isinstance(x, nn.Module):
        return _copy(dict(x.state_dict()))
    if isinstance(x, dict):
        return {name: _copy(part) for name, part in x.items()}
    return [_copy(part) for part in x] if isinstance(x, list) else x


def _differ(old: Any, new: Any) -> bool:
    if isinstance(old, Tensor):
        return old.dtype != new.dtype or not torch.equal(old, new.detach())
    if isinstance(new, nn.Module):
        return _differ(old, dict(new.state_dict()))
    if isinstance(old, dict):
        return old.keys() != new.keys() or any(_differ(old[name], new[name]) for name in old)
    if isinstance(old, list):
        return len(old) != len(new) or any(map(_differ, old, new))
    return old is not new


@cache
def expected(task: Task, *, by_gradient: bool = False) -> list[Attempt]:
    """Run the right answer on every case of a task, and cache the calls.

    Args:
        task: The task.
        by_gradient: Whether to compute the gradients of the arguments.

    Raises:
        Exception: If the right answer fails, for example out of memory. Failures are not cached.
    """
    calls = attempts(task, task.right, by_gradient=by_gradient)
    for error in filter(None, (call.error for call in calls)):
        raise error
    return calls


def is_blank(attempt: Attempt, function: Callable[..., Any]) -> bool:
    """Return whether a function is still blank.

    A blank function raises NotImplementedError itself, leaves `...` in the answer, or has an empty
    body. A NotImplementedError raised by torch does not count.
    """
    if not attempt.returned:
        if isinstance(attempt.error, NotImplementedError):
            return _raised_by_learner(attempt.error)
        unfilled = any(value is ... for value in constants(function))
        return unfilled and re.search(r"\bellipsis\b", str(attempt.error)) is not None
    parts = attempt.answer if isinstance(attempt.answer, tuple | list) else (attempt.answer,)
    return any(part is ... for part in parts) or (attempt.answer is None and _is_empty(function))


def learners_line(error: BaseException) -> traceback.FrameSummary | None:
    """Return the deepest frame of the learner's code in a traceback; None if there is none."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame for frame in frames if _is_learners(frame.filename)), None)


def constants(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the constants of a function, or of the forward method of a class."""
    code = getattr(_body(function), "__code__", None)
    return code.co_consts if isinstance(code, CodeType) else ()


def names(function: Callable[..., Any]) -> set[str]:
    """Collect the names that a function uses, operators such as "@", and "for" and "[:]"."""
    used: set[str] = set()
    waiting = [getattr(_body(function), "__code__", None)]
    for code in waiting:
        # Since Python 3.14, the slices of x[:, 1:] are one constant: a tuple of slices.
        if isinstance(code, slice):
            used.add("[:]")
        elif isinstance(code, tuple):
            waiting += code
        if not isinstance(code, CodeType):
            continue
        used.update(code.co_names)
        for step in dis.get_instructions(code):
            if step.opname == "BINARY_OP":
                used.add(step.argrepr)
            used.update(name for kind, name in _KINDS.items() if kind in step.opname)
        waiting += code.co_consts
    return used


def _body(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a learner writes; for a class, its forward method."""
    return getattr(answer, "forward", answer) if isinstance(answer, type) else answer


def _is_empty(function: Callable[..., Any]) -> bool:
    function = _body(function)
    if not isinstance(function, FunctionType):
        return False
    return {step.opname for step in dis.get_instructions(function)} <= _IDLE


def _raised_by_learner(error: BaseException) -> bool:
    """Return whether an error comes from a `raise` statement in the learner's code."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code
    by_raise = code.co_code[step.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return by_raise and _is_learners(code.co_filename)


def _is_learners(filename: str) -> bool:
    """Return whether a file is outside Python, torch, installed packages and this project."""
    if filename.startswith(("<frozen", "<@")):
        return False
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    source = Path(__file__).parents[2]
    # The course in a browser has its own torch, in a separate folder.
    torch_ = Path(torch.__file__).parent
    folders = (source / "twelve", source / "twelve_lab", torch_, *installed)
    # Resolve the paths, because Python in a browser (Pyodide) writes //lib for /lib.
    file = Path(filename).resolve()
    return not any(file.is_relative_to(Path(folder).resolve()) for folder in folders)
