"""Run a function on the cases of a task, and say whether two functions do the same."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Answer, Task


@dataclass(frozen=True)
class Outcome:
    """What came out of one call: tensors, and gradients where they count, or an error."""

    values: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor | None, ...] = ()
    error: Exception | None = None


@contextmanager
def exact_on_cpu() -> Iterator[None]:
    """Use float64 on the CPU for tensors that an answer creates."""
    before = torch.get_default_dtype()
    # Within `with torch.device(...)` every small operation takes twice as long.
    there = torch.get_default_device().type == "cpu"
    torch.set_default_dtype(torch.float64)
    try:
        with nullcontext() if there else torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(before)


def outcomes(task: Task, function: Answer) -> dict[str, Outcome]:
    """Run a function on every case of a task.

    Args:
        task: The task.
        function: An answer to it, right or wrong.

    Returns:
        What came out, by the name of the case. An error is an outcome too: many a mistake shows
        by raising where all sizes differ.
    """
    with exact_on_cpu():
        cases = task.cases()
        return {name: outcome(task, function, given) for name, given in cases.items()}


def agree(one: Outcome, other: Outcome, tolerance: float = 1e-5) -> bool:
    """Say whether two calls came to the same: equal numbers, or an error each."""
    if one.error is not None or other.error is not None:
        return one.error is not None and other.error is not None
    left, right = one.values + one.gradients, other.values + other.gradients
    return len(left) == len(right) and all(
        _equal(a, b, tolerance) for a, b in zip(left, right, strict=True)
    )


def gradients(answer: tuple[Tensor, ...], given: tuple[Any, ...]) -> tuple[Tensor | None, ...]:
    """Ask how the answer moves with each argument that requires a gradient.

    Returns:
        One gradient for each of them, None where it does not reach the answer.
    """
    asked = [one for one in given if isinstance(one, Tensor) and one.requires_grad]
    # A plain sum would not do: a norm or a softmax keeps it fixed, whatever goes in.
    parts = [(one * _waves(one)).sum() for one in answer if one.is_floating_point()]
    if not asked or not any(part.requires_grad for part in parts):
        return (None,) * len(asked)
    return torch.autograd.grad(sum(parts), asked, allow_unused=True)


def trainable(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Let every argument of real numbers ask for its gradient."""
    return tuple(
        one.requires_grad_() if isinstance(one, Tensor) and one.is_floating_point() else one
        for one in given
    )


def outcome(task: Task, function: Answer, given: tuple[Any, ...]) -> Outcome:
    """Run a function on one case of a task.

    Args:
        task: The task.
        function: An answer to it, right or wrong.
        given: The arguments of the case.
    """
    given = trainable(given) if task.by_gradient else given
    try:
        values = task.observe(task.run(function, given))
        slopes = gradients(values, given) if task.by_gradient else ()
    # Whatever a wrong function raises belongs to what is known about it.
    except Exception as error:
        return Outcome(error=error)
    return Outcome(tuple(value.detach() for value in values), slopes)


def _equal(one: Tensor | None, other: Tensor | None, tolerance: float) -> bool:
    if one is None or other is None:
        return one is other
    if one.shape != other.shape:
        return False
    close = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
    return torch.allclose(one.double(), other.double(), **close)


def _waves(like: Tensor) -> Tensor:
    return torch.arange(like.numel(), dtype=like.dtype).cos().view(like.shape)
