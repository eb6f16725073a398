"""Run what a learner hands in, and keep everything that a message may need."""

import dis
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from twelve_lab.check.compare import Outcome, outcomes
from twelve_lab.exercises.declare import Task, by_position

# What an empty body is compiled to: ellipsis, pass, a docstring, and the None that it returns.
_IDLE = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "POP_TOP"}

# What a loop and a slice are compiled to.
_KINDS = {"FOR_ITER": "a loop", "SLICE": "a slice"}


@dataclass(frozen=True)
class Attempt:
    """One call: what went in, what came out, and what was made of it.

    Args:
        case: Name of the case.
        given: The arguments as they were before the call.
        returned: Whether the call came to its end.
        answer: What was returned, as it is.
        outcome: The tensors in it, or the error.
        changed: Which argument differs after the call.
    """

    case: str
    given: tuple[Any, ...]
    returned: bool
    answer: Any
    outcome: Outcome
    changed: int | None

    @property
    def error(self) -> Exception | None:
        """Give what the call raised, or what kept its answer from being read."""
        return self.outcome.error

    @property
    def values(self) -> tuple[Tensor, ...]:
        """Give the tensors of the answer."""
        return self.outcome.values


def attempts(
    task: Task, function: Callable[..., Any], *, by_gradient: bool = False
) -> list[Attempt]:
    """Run a function on every case of a task.

    Args:
        task: The task.
        function: An answer to it, right or wrong.
        by_gradient: Whether to ask for the gradients of the arguments.
    """
    calls: list[tuple[tuple[Any, ...], bool, Any, int | None]] = []

    def record(*given: Any) -> Any:
        before = tuple(one.detach().clone() if isinstance(one, Tensor) else one for one in given)
        calls.append((before, False, None, None))
        answer = task.run(function, given)
        calls[-1] = (before, True, answer, _changed(before, given))
        return answer

    found = outcomes(replace(task, by_gradient=by_gradient, run=by_position), record)
    return [
        Attempt(case, given, returned, answer, found[case], changed)
        for case, (given, returned, answer, changed) in zip(found, calls, strict=True)
    ]


@cache
def expected(task: Task, *, by_gradient: bool = False) -> list[Attempt]:
    """Run the right answer on every case of a task, once.

    Args:
        task: The task.
        by_gradient: Whether to ask for the gradients of the arguments.
    """
    return attempts(task, task.right, by_gradient=by_gradient)


def is_blank(attempt: Attempt, function: Callable[..., Any]) -> bool:
    """Say whether the function still waits to be written.

    It does if it raises NotImplementedError itself, if a `...` is left where an answer should
    stand, or if its body is empty. That torch has not implemented something is no blank.
    """
    if not attempt.returned:
        if isinstance(attempt.error, NotImplementedError):
            return _raised_by_hand(attempt.error)
        left = any(one is ... for one in _consts(function))
        return left and re.search(r"\bellipsis\b", str(attempt.error)) is not None
    parts = attempt.answer if isinstance(attempt.answer, tuple | list) else (attempt.answer,)
    return any(one is ... for one in parts) or (attempt.answer is None and _is_empty(function))


def learners_line(error: Exception) -> str:
    """Point to the deepest line of an error that the learner wrote.

    Returns:
        As `line 3 of split, "x = x.view(2)"`; "" if the error was raised before the first line.
    """
    frames = _frames(error)
    if not frames:
        return ""
    text = f', "{frames[-1].line}"' if frames[-1].line else ""
    return f"line {frames[-1].lineno} of {frames[-1].name}{text}"


def constants(function: Callable[..., Any]) -> Iterator[float]:
    """List the numbers that stand in the text of a function, or of the forward of a class."""
    yield from (one for one in _consts(function) if isinstance(one, int | float))


def _consts(function: Callable[..., Any]) -> tuple[Any, ...]:
    code = getattr(_body(function), "__code__", None)
    return code.co_consts if isinstance(code, CodeType) else ()


def names(function: Callable[..., Any]) -> set[str]:
    """List what stands in the text of a function: names, signs such as "@", loops and slices."""
    found: set[str] = set()
    waiting = [getattr(_body(function), "__code__", None)]
    while waiting:
        code = waiting.pop()
        if not isinstance(code, CodeType):
            continue
        found.update(code.co_names)
        for step in dis.get_instructions(code):
            if step.opname == "BINARY_OP":
                found.add(step.argrepr)
            found.update(name for kind, name in _KINDS.items() if kind in step.opname)
        waiting += code.co_consts
    return found


def _body(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Find what a learner writes: of a layer, how it runs."""
    return getattr(answer, "forward", answer) if isinstance(answer, type) else answer


def _changed(before: tuple[Any, ...], after: tuple[Any, ...]) -> int | None:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if isinstance(old, Tensor) and not torch.equal(old, new.detach()):
            return index
    return None


def _is_empty(function: Callable[..., Any]) -> bool:
    function = _body(function)
    if not isinstance(function, FunctionType):
        return False
    return {step.opname for step in dis.get_instructions(function)} <= _IDLE


def _raised_by_hand(error: Exception) -> bool:
    """Tell `raise` in the learner's text from an operation that torch lacks."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code
    by_raise = code.co_code[step.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return by_raise and _is_learners(code.co_filename)


def _frames(error: Exception) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if _is_learners(frame.filename)]


def _is_learners(filename: str) -> bool:
    """Leave out the files of Python, of installed packages and of this one."""
    if filename.startswith(("<frozen", "<@")):
        return False
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    here = Path(__file__).resolve().parents[2]
    ours = (here / "twelve", here / "twelve_lab")
    return not any(Path(filename).is_relative_to(folder) for folder in (*ours, *installed))
