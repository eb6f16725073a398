"""What can be wrong with an answer, from the coarsest to the finest.

Each layer looks at all cases before the next one is asked, so that the message names the first
thing to put right: whoever returns nothing need not hear about numbers.
"""

import inspect
import io
import math
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import torch
from torch import Tensor

from twelve_lab.check.attempt import Attempt, is_blank, learners_line
from twelve_lab.check.probes import leak, unread
from twelve_lab.check.wording import (
    a_or_an,
    apart,
    axes_of,
    count_axes,
    kind_of,
    named,
    place_of,
    sizes_of,
)  # fmt: skip
from twelve_lab.exercises.declare import Task, as_tensors
from twelve_lab.exercises.modules import Misbuilt
from twelve_lab.show.format import format_number

_TOLERANCES = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 8e-3}


class Submission(NamedTuple):
    """A task, what was handed in, and both run on every case.

    Args:
        task: The task.
        function: What was handed in.
        actual: Its calls.
        expected: The calls of the right answer.
    """

    task: Task
    function: Callable[..., Any]
    actual: list[Attempt]
    expected: list[Attempt]

    def pairs(self) -> Iterator[tuple[Attempt, Tensor, Tensor, str, tuple[str, ...]]]:
        """Set each tensor beside the one that is due, with what to call it and its axes."""
        for actual, expected in zip(self.actual, self.expected, strict=True):
            for at, (one, other) in enumerate(zip(actual.values, expected.values, strict=True)):
                name = f"answer {at + 1} of {len(expected.values)}"
                if self.task.observe is not as_tensors:
                    name = "what is looked at in the answer"
                elif len(expected.values) == 1:
                    name = "the answer"
                yield actual, one, other, name, axes_of(self.task, at, other)

    def argument(self, index: int) -> str:
        """Name an argument as the learner does."""
        try:
            names = list(inspect.signature(self.function).parameters.values())
        # What is written in C cannot always be asked.
        except (TypeError, ValueError):
            names = []
        # A class is built before it is called.
        if isinstance(self.function, type):
            x = self.expected[0].given[index]
            words = isinstance(x, Tensor) and x.ndim == 2 + x.is_floating_point()
            return "the input" if words else "a parameter"
        if any(one.kind is one.VAR_POSITIONAL for one in names[: index + 1]) or not names[index:]:
            return f"number {index + 1}"
        return f'"{names[index].name}"'


def not_started(at: Submission) -> str | None:
    """Look for a function that is still to be written."""
    if any(is_blank(one, at.function) for one in at.actual):
        return "Not started yet: put your own lines in place of the blank, then run the cell again."
    return None


def call(at: Submission) -> str | None:
    """Look for an error that comes out of the function."""
    for one in at.actual:
        if one.returned:
            continue
        if isinstance(one.error, Misbuilt):
            return str(one.error)
        lines = str(one.error).strip().splitlines()
        # einops repeats the call, and says at the end what is wrong with it.
        told = lines[-1 if type(one.error).__name__ == "EinopsError" else 0] if lines else ""
        said = f"{type(one.error).__name__}: {told.strip()}".rstrip(": ")
        where = learners_line(one.error)
        if where:
            return f'With the case "{one.case}"{_sizes_in(at, one)}, {where}, fails: {said}'
        return f"It cannot be called with {at.task.contract.partition(' -> ')[0]}: {said}"
    return None


def _sizes_in(at: Submission, one: Attempt) -> str:
    """List the sizes that go in, for whoever reads of a size that does not fit."""
    sizes = [
        f"{at.argument(index).strip(chr(34))} {sizes_of(x)}"
        for index, x in enumerate(one.given)
        if isinstance(x, Tensor)
    ]
    return f" ({', '.join(sizes)})" if sizes and not isinstance(at.function, type) else ""


def type_(at: Submission) -> str | None:
    """Look for an answer that is no tensor, too few of them, or of another kind of number."""
    for actual, expected in zip(at.actual, at.expected, strict=True):
        if actual.answer is None:
            return "The function returns None: you forgot return in front of the answer."
        if at.task.observe is as_tensors:
            said = _other_type(actual.answer, expected.answer)
            if said:
                return said
        elif actual.error is not None:
            return f"You returned {a_or_an(actual.answer)}, which cannot be read: {actual.error}"
        for one in actual.values:
            if not is_plain(one):
                return (
                    f"The answer is {one.dtype}, {one.layout}, on {one.device}: a plain tensor of "
                    "real numbers on the CPU is due."
                )
    for _, one, other, name, _ in at.pairs():
        if kind_of(one) != kind_of(other):
            return (
                f"{name[0].upper()}{name[1:]} should hold {kind_of(other)}, and yours holds "
                f"{kind_of(one)} ({one.dtype})."
            )
    return None


def rank(at: Submission) -> str | None:
    """Look for axes too many or too few."""
    for actual, one, other, name, axes in at.pairs():
        if one.ndim != other.ndim:
            return (
                f'With the case "{actual.case}", {name} has {count_axes(one)}, {sizes_of(one)}, '
                f"and {count_axes(other)} are due, {named(axes, other.shape)}."
            )
    return None


def axes_swapped(at: Submission) -> str | None:
    """Look for the right sizes in another order, where no two of them are equal."""
    for actual, one, other, name, axes in at.pairs():
        sizes = list(other.shape)
        if one.shape != other.shape and sorted(one.shape) == sorted(sizes):
            if len(set(sizes)) < len(sizes):
                continue
            mixed = tuple(axes[sizes.index(size)] for size in one.shape) if axes else ()
            return (
                f'The axes are swapped: with the case "{actual.case}", {name} comes as '
                f"{named(mixed, one.shape)}, and {named(axes, other.shape)} is due."
            )
    return None


def shape(at: Submission) -> str | None:
    """Look for an axis of another size."""
    for actual, one, other, name, axes in at.pairs():
        for axis, (size, wanted) in enumerate(zip(one.shape, other.shape, strict=True)):
            if size != wanted:
                has_name = axes and axes[axis] != "1"
                called = f"axis {axis} ({axes[axis]})" if has_name else f"axis {axis}"
                return (
                    f'With the case "{actual.case}", {called} of {name} has size {size}, and '
                    f"{wanted} is due: {sizes_of(one)} in place of {sizes_of(other)}."
                )
    return None


def input_changed(at: Submission) -> str | None:
    """Look for an argument that is not what it was before the call."""
    for one in at.actual:
        if one.changed is not None:
            return (
                f"Your function changes its argument {at.argument(one.changed)}, which others "
                "still need: work on a new tensor, so x = x + y and not x += y, masked_fill and "
                "not masked_fill_."
            )
    return None


def nan_or_inf(at: Submission) -> str | None:
    """Look for nan and inf where the right answer has numbers."""
    for actual, one, other, name, _ in at.pairs():
        bad = ~one.isfinite() & other.isfinite() if one.is_floating_point() else None
        if bad is None or not bad.any():
            continue
        first = format_number(one[bad][0].item())
        return f'With the case "{actual.case}", {name} holds {first}: {_cause(one, actual)}.'
    return None


def numbers(at: Submission) -> str | None:
    """Look for the first number that is not the one that is due."""
    for actual, one, other, name, axes in at.pairs():
        right = close(one, other)
        if right.all():
            continue
        place = (~right).nonzero()[0].tolist()
        got, expected = apart(one[tuple(place)].item(), other[tuple(place)].item())
        good = int(right.sum())
        verb = "is" if good == 1 else "are"
        share = f"{good} of the {right.numel()} numbers of {name} {verb} right"
        first = f"the first other one, at {place_of(place, axes)}, is" if place else f"{name} is"
        start = f'With the case "{actual.case}", ' + (f"{share}; " if place else "")
        return (
            f"{start}{first} {got}, and {expected} is due.{_hint(one, other, rows_sum_to_one(at))}"
        )
    return None


def rows_sum_to_one(at: Submission) -> bool:
    """Say whether all rows of all right answers do, and so none of them by accident."""
    answers = [other for _, _, other, _, _ in at.pairs()]
    return all(x.is_floating_point() and x.ndim > 0 and x.size(-1) > 1 for x in answers) and all(
        _sum_to_one(x) for x in answers
    )


def is_plain(x: Tensor) -> bool:
    """Say whether a tensor can be compared at all with what is due."""
    return x.layout == torch.strided and not x.is_complex() and x.device.type == "cpu"


def close(one: Tensor, other: Tensor) -> Tensor:
    """Say of each number whether it is right, as far as its type can hold it."""
    tolerance, expected = _TOLERANCES.get(one.dtype, 1e-5), other.double()
    # A sum of large numbers is exact to a part of them, however small it comes out. The known
    # mistakes are 2 percent of the largest number away, and so out of reach of every type.
    largest = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    return torch.isclose(one.double(), expected, rtol=tolerance, atol=tolerance * largest)


def _other_type(answer: Any, expected: Any) -> str | None:
    if isinstance(expected, Tensor) and not isinstance(answer, Tensor):
        if isinstance(answer, tuple) and len(answer) == 1:
            return "You returned a tuple of one tensor: take away the comma behind the answer."
        if isinstance(answer, bool | int | float):
            return (
                f"You returned {a_or_an(answer)} where a tensor is due: keep the tensor, since "
                ".item() and float() lose its gradient."
            )
        return f"You returned {a_or_an(answer)} where a tensor is due."
    if isinstance(expected, tuple):
        if not isinstance(answer, tuple | list):
            several = f"{len(expected)} tensors are due"
            return f"You returned {a_or_an(answer)} where {several}: return a, b."
        if len(answer) != len(expected):
            return f"You returned {len(answer)} values where {len(expected)} tensors are due."
        for index, one in enumerate(answer):
            if not isinstance(one, Tensor):
                place = f"Answer {index + 1} of {len(expected)}"
                return f"{place} is {a_or_an(one)} where a tensor is due."
    return None


def _hint(one: Tensor, other: Tensor, rows_sum_to_one: bool) -> str:
    if other.dtype == torch.bool:
        shown, hidden = int((one & ~other).sum()), int((other & ~one).sum())
        return f" In all, {shown} too many are True, and {hidden} too few."
    if not rows_sum_to_one:
        return ""
    kept = _sum_to_one(one)
    return " Your rows do sum to 1." if kept else " Each row must sum to 1; yours do not."


def probed(at: Submission) -> str:
    """Say what changed arguments show of an answer whose numbers no known mistake gives.

    Returns:
        A sentence behind a space, "" where they show nothing.
    """
    # What the function prints has been seen once.
    with redirect_stdout(io.StringIO()):
        index = unread(at.task, at.function)
        heard = leak(at.task, at.function) if index is None else None
    if index is not None:
        return f" Your answer does not depend on {at.argument(index)}."
    if heard is not None:
        return f" The first words change with the last one of {at.argument(heard)}; they must not."
    return ""


def _sum_to_one(x: Tensor) -> bool:
    """Say whether each row sums to 1, or is empty because there was nothing to share."""
    return bool((close(x.sum(-1), torch.ones_like(x[..., 0])) | (x == 0).all(-1)).all())


def _cause(one: Tensor, actual: Attempt) -> str:
    if one.isnan().any():
        rows = one.isnan()
        whole = rows.ndim > 0 and bool((rows.all(-1) == rows.any(-1)).all())
        masks = [x for x in actual.given if isinstance(x, Tensor) and x.dtype == torch.bool]
        if whole and (masks or "nothing but padding" in actual.case):
            return "most likely softmax met a row of nothing but -inf, which has no shares to give"
        return (
            "most likely 0 was divided by 0, inf taken from inf, or the root of a negative "
            "number was taken"
        )
    if (one == -math.inf).any():
        return "most likely the log of 0, or a score that was hidden and never went into softmax"
    return "most likely a division by 0, or an exponential that grew too large"
