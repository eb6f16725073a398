"""Detect the faults of an answer in stages, from the coarsest fault to the finest.

Each stage checks all cases before the next stage runs, so the message names the first thing to fix:
a function that returns None gets no message about numbers.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from twelve_lab.check.attempt import Attempt, is_blank, learners_line
from twelve_lab.exercises.declare import Task, as_tensors
from twelve_lab.exercises.modules import Misbuilt
from twelve_lab.messages import declared, message, plural
from twelve_lab.show.format import format_number
from twelve_lab.show.wide import joined

_TOLERANCES = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 8e-3}


class Pair(NamedTuple):
    """A tensor of an answer beside the expected one.

    Args:
        case: Name of the case in the reader's language.
        attempt: The call that returned the tensor.
        actual: The tensor.
        expected: The tensor of the right answer.
        axes: Names of its axes; () if the contract does not list them.
        which: A sentence that names the tensor, if an answer has several; "" otherwise.
    """

    case: str
    attempt: Attempt
    actual: Tensor
    expected: Tensor
    axes: tuple[str, ...]
    which: str


class Submission(NamedTuple):
    """An answer to a task, with its calls and those of the right answer on every case.

    Args:
        task: The task.
        function: The answer.
        actual: The calls of the answer.
        expected: The calls of the right answer.
    """

    task: Task
    function: Callable[..., Any]
    actual: list[Attempt]
    expected: list[Attempt]

    def pairs(self) -> Iterator[Pair]:
        """Yield each tensor of the answer with the expected one."""
        for actual, expected in zip(self.actual, self.expected, strict=True):
            total = len(expected.values)
            for index, (x, y) in enumerate(zip(actual.values, expected.values, strict=True)):
                several = total > 1 and self.task.observe is as_tensors
                which = _which(index, total) if several else ""
                axes = axes_of(self.task, index, y)
                yield Pair(declared(actual.case), actual, x, y, axes, which)

    def argument(self, index: int) -> str:
        """Return the name of an argument in the learner's code."""
        if isinstance(self.function, type):
            # The contract of a layer lists its parameters, then the input.
            *parameters, x = re.findall(r"(\w+) \(", self.task.contract.partition(" -> ")[0])
            names = [x, *parameters]
            return names[index] if index < len(names) else f"args[{index}]"
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        # Functions written in C may have no signature.
        except (TypeError, ValueError):
            parameters = []
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters[: index + 1])
        return f"args[{index}]" if variadic or not parameters[index:] else parameters[index].name


def not_started(submission: Submission) -> str | None:
    """Detect a function that is not written yet."""
    if not any(is_blank(attempt, submission.function) for attempt in submission.actual):
        return None
    return message(
        "Not started yet: put your own lines in place of the blank, then run the cell again."
    )


def call(submission: Submission) -> str | None:
    """Detect an error that the function raises."""
    for attempt in submission.actual:
        if attempt.returned:
            continue
        if isinstance(attempt.error, Misbuilt):
            return str(attempt.error)
        error = message("Error: {error}", error=_error_line(attempt.error))
        line = learners_line(attempt.error)
        if line is None:
            arguments = declared(submission.task.contract).partition(" -> ")[0]
            fault = message("The function cannot be called with {arguments}.", arguments=arguments)
            return joined(fault, error)
        fault = message(
            'Case "{case}": line {line} of {function} fails.',
            case=declared(attempt.case),
            line=line.lineno,
            function=line.name,
        )
        code = message("Its code is: {code}.", code=line.line) if line.line else ""
        return joined(fault, code, _input_shapes(submission, attempt), error)
    return None


def _error_line(error: BaseException) -> str:
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # a learner's own exception class may fail in str()
        lines = []
    # einops repeats the call first, and gives the reason in the last line.
    reason = lines[-1 if type(error).__name__ == "EinopsError" else 0] if lines else ""
    return f"{type(error).__name__}: {reason.strip()}".rstrip(": ")


def _input_shapes(submission: Submission, attempt: Attempt) -> str:
    shapes = [
        f"{submission.argument(index)} {sizes_of(x)}"
        for index, x in enumerate(attempt.given)
        if isinstance(x, Tensor)
    ]
    if not shapes or isinstance(submission.function, type):
        return ""
    return message("The input shapes are {shapes}.", shapes=", ".join(shapes))


def type_(submission: Submission) -> str | None:
    """Detect an answer that is not a tensor, has too few tensors, or has a wrong dtype."""
    for actual, expected in zip(submission.actual, submission.expected, strict=True):
        if actual.answer is None:
            return message("The function returns None. Write return before the result.")
        if submission.task.observe is as_tensors:
            fault = _other_type(actual.answer, expected.answer)
            if fault:
                return fault
        elif actual.error is not None:
            name = type(actual.answer).__name__
            return message(
                "The answer cannot be read, got {type}: {error}", type=name, error=actual.error
            )
        for x in actual.values:
            if not is_plain(x):
                return message(
                    "The answer must be a plain tensor of real numbers on the CPU, got {dtype}, "
                    "{layout}, on {device}.",
                    dtype=x.dtype,
                    layout=x.layout,
                    device=x.device,
                )
    return dtype(submission)


def _other_type(answer: Any, expected: Any) -> str | None:
    several = isinstance(expected, tuple)
    if isinstance(expected, Tensor) and isinstance(answer, tuple) and len(answer) == 1:
        return message("The answer is a tuple with one tensor. Remove the comma after it.")
    if isinstance(expected, Tensor) and not isinstance(answer, Tensor):
        lost = isinstance(answer, bool | int | float)
        advice = message("Keep the tensor: .item() and float() lose its gradient.") if lost else ""
        return joined(_no_tensor(answer), advice)
    if several and (not isinstance(answer, tuple | list) or len(answer) != len(expected)):
        got = len(answer) if isinstance(answer, tuple | list) else type(answer).__name__
        return message(
            "The answer must be {count} tensors, got {got}.", count=len(expected), got=got
        )
    for index, value in enumerate(answer if several else ()):
        if not isinstance(value, Tensor):
            return joined(_no_tensor(value), _which(index, len(expected)))
    return None


def _no_tensor(value: Any) -> str:
    return message("The answer must be a tensor, got {type}.", type=type(value).__name__)


def _which(index: int, total: int) -> str:
    return message("This is about output {number} of {total}.", number=index + 1, total=total)


def of_each_pair(fault: Callable[[Pair], str | None]) -> Callable[[Submission], str | None]:
    """Turn a check of one tensor into a stage that checks all tensors."""

    def stage(submission: Submission) -> str | None:
        for pair in submission.pairs():
            text = fault(pair)
            if text:
                return joined(text, pair.which)
        return None

    return stage


@of_each_pair
def dtype(pair: Pair) -> str | None:
    """Detect a dtype of the wrong kind, such as a mask of numbers or float ids."""
    got, expected = pair.actual.dtype, pair.expected.dtype
    if got == expected or (got.is_floating_point and expected.is_floating_point):
        return None
    if expected == torch.bool:
        return message("The answer must contain True and False, got {dtype}.", dtype=got)
    if expected.is_floating_point:
        return message("The answer must contain real numbers, got {dtype}.", dtype=got)
    if got == torch.bool or got.is_floating_point:
        return message("The answer must contain whole numbers, got {dtype}.", dtype=got)
    return None


def _shapes(pair: Pair, got: str) -> str:
    return message(
        'Case "{case}": the shape is {got}, expected {expected}.',
        case=pair.case,
        got=got,
        expected=named(pair.axes, pair.expected.shape),
    )


@of_each_pair
def rank(pair: Pair) -> str | None:
    """Detect a wrong number of axes."""
    got, expected = pair.actual.ndim, pair.expected.ndim
    if got == expected:
        return None
    fault = message("The number of axes is {got}, expected {expected}.", got=got, expected=expected)
    return joined(fault, _shapes(pair, sizes_of(pair.actual)))


@of_each_pair
def axes_swapped(pair: Pair) -> str | None:
    """Detect the right sizes in the wrong order, if all sizes are distinct."""
    got, sizes = pair.actual.shape, list(pair.expected.shape)
    if list(got) == sizes or sorted(got) != sorted(sizes) or len(set(sizes)) < len(sizes):
        return None
    axes = tuple(pair.axes[sizes.index(size)] for size in got) if pair.axes else ()
    return joined(message("The axes are swapped."), _shapes(pair, named(axes, got)))


@of_each_pair
def shape(pair: Pair) -> str | None:
    """Detect an axis of the wrong size."""
    for index, (got, expected) in enumerate(
        zip(pair.actual.shape, pair.expected.shape, strict=True)
    ):
        if got != expected:
            fault = message(
                "The size of axis {axis} is {got}, expected {expected}.",
                axis=axis_of(index, pair.axes),
                got=got,
                expected=expected,
            )
            return joined(fault, _shapes(pair, sizes_of(pair.actual)))
    return None


def input_changed(submission: Submission) -> str | None:
    """Detect an argument that the call modified in place."""
    for attempt in submission.actual:
        if attempt.changed is not None:
            return message(
                'The function changes its argument "{argument}" in place. Compute a new tensor: '
                "x = x + y instead of x += y, masked_fill instead of masked_fill_.",
                argument=submission.argument(attempt.changed),
            )
    return None


@of_each_pair
def nan_or_inf(pair: Pair) -> str | None:
    """Detect nan and inf where the right answer is finite."""
    bad = pair.actual[~pair.actual.isfinite() & pair.expected.isfinite()]
    if not bad.numel():
        return None
    fault = message(
        'Case "{case}": the answer contains {value}.',
        case=pair.case,
        value=format_number(bad[0].item()),
    )
    return joined(fault, _cause(pair.actual, pair.attempt))


def _cause(x: Tensor, attempt: Attempt) -> str:
    if x.isnan().any():
        rows = x.isnan()
        whole = rows.ndim > 0 and bool((rows.all(-1) == rows.any(-1)).all())
        masked = any(isinstance(g, Tensor) and g.dtype == torch.bool for g in attempt.given)
        if whole and (masked or "nothing but padding" in attempt.case):
            return message(
                "Most likely softmax got a row of nothing but -inf, which has no weights to give."
            )
        return message(
            "Most likely the code computes 0 / 0, inf - inf or the root of a negative number."
        )
    if (x == -math.inf).any():
        return message(
            "Most likely the code takes the log of 0, or returns a hidden score without softmax."
        )
    return message("Most likely the code divides by 0, or an exponential overflows.")


def numbers(submission: Submission) -> str | None:
    """Detect the first wrong number."""
    every_row = rows_sum_to_one(submission)
    return of_each_pair(lambda pair: _wrong_number(pair, every_row))(submission)


def _wrong_number(pair: Pair, every_row_sums_to_one: bool) -> str | None:
    right = close(pair.actual, pair.expected)
    if right.all():
        return None
    index = (~right).nonzero()[0].tolist()
    got, expected = apart(pair.actual[tuple(index)].item(), pair.expected[tuple(index)].item())
    hint = _hint(pair, every_row_sums_to_one)
    if not index:
        fault = message(
            'Case "{case}": the answer is {got}, expected {expected}.',
            case=pair.case,
            got=got,
            expected=expected,
        )
        return joined(fault, hint)
    count = plural(
        'With the case "{case}", {count} of {total} numbers is right.',
        'With the case "{case}", {count} of {total} numbers are right.',
        int(right.sum()),
        case=pair.case,
        total=right.numel(),
    )
    first = message(
        "The first wrong number is at {place}: it is {got}, expected {expected}.",
        place=place_of(index, pair.axes),
        got=got,
        expected=expected,
    )
    return joined(count, first, hint)


def _hint(pair: Pair, every_row_sums_to_one: bool) -> str:
    if pair.expected.dtype == torch.bool:
        return message(
            "Wrongly True: {true}. Wrongly False: {false}.",
            true=int((pair.actual & ~pair.expected).sum()),
            false=int((pair.expected & ~pair.actual).sum()),
        )
    if not every_row_sums_to_one:
        return ""
    if _sum_to_one(pair.actual):
        return message("The rows do sum to 1, as they must.")
    return message("Each row must sum to 1, and some do not.")


def rows_sum_to_one(submission: Submission) -> bool:
    """Return whether all rows of all right answers sum to 1, so the task requires it."""
    answers = [pair.expected for pair in submission.pairs()]
    return all(
        x.is_floating_point() and x.ndim > 0 and x.size(-1) > 1 and _sum_to_one(x) for x in answers
    )


def _sum_to_one(x: Tensor) -> bool:
    """Return whether each row sums to 1, or is all zeros because it has nothing to attend to."""
    return bool((close(x.sum(-1), torch.ones_like(x[..., 0])) | (x == 0).all(-1)).all())


def is_plain(x: Tensor) -> bool:
    """Return whether a tensor is real, dense and on the CPU, so it can be compared."""
    special = x.is_complex() or x.is_quantized or x.is_nested
    return x.layout == torch.strided and not special and x.device.type == "cpu"


def close(actual: Tensor, expected: Tensor) -> Tensor:
    """Compare element by element, with a tolerance that depends on the dtype."""
    tolerance, expected = _TOLERANCES.get(actual.dtype, 1e-5), expected.double()
    # The rounding error of a sum grows with its largest term. Known mistakes differ from the right
    # answer by 2 percent of the largest number, which exceeds the tolerance of every dtype.
    largest = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    return torch.isclose(actual.double(), expected, rtol=tolerance, atol=tolerance * largest)


def axes_of(task: Task, index: int, expected: Tensor) -> tuple[str, ...]:
    """Read the axes of an answer from the contract; () if the contract does not list them."""
    names = axes_named(task.contract, index)
    if names[:1] == ("*batch",):
        names = (*("batch", "seq")[: expected.ndim - len(names) + 1], *names[1:])
    return names if len(names) == expected.ndim else ()


def axes_named(contract: str, index: int = 0) -> tuple[str, ...]:
    """Read the axes of one output after the arrow of a contract; () if it has none."""
    before, _, answer = contract.rpartition("->")
    groups = re.findall(r"\(([^()]*)\)", answer) if before else []
    return tuple(groups[index].split(", ")) if index < len(groups) else ()


def named(axes: tuple[str, ...], sizes: torch.Size) -> str:
    """Format sizes with the names of their axes."""
    written = f"({', '.join(map(str, sizes))})"
    return f"({', '.join(axes)}) = {written}" if axes else written


def sizes_of(x: Tensor) -> str:
    """Format the shape of a tensor."""
    return named((), x.shape)


def axis_of(axis: int, axes: tuple[str, ...]) -> str:
    """Format the index of an axis, with the name of the axis if it has one."""
    return f"{axis} ({axes[axis]})" if axes and axes[axis] != "1" else str(axis)


def place_of(place: list[int], axes: tuple[str, ...]) -> str:
    """Format an index, with axis names if they are all distinct."""
    # (1, 1, length, length) does not identify an axis by its name.
    if len(set(axes)) < len(place):
        return f"[{', '.join(map(str, place))}]"
    return f"[{', '.join(f'{axis} {index}' for axis, index in zip(axes, place, strict=True))}]"


def apart(got: float, expected: float) -> tuple[str, str]:
    """Format two numbers with enough digits to distinguish them."""
    for decimals in range(4, 10):
        texts = format_number(got, decimals), format_number(expected, decimals)
        if texts[0] != texts[1]:
            break
    return texts
