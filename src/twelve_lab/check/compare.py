"""Run a function on the cases of a task, and compare two functions by their results."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from twelve_lab.example import float64
from twelve_lab.exercises.declare import Answer, Task


@dataclass(frozen=True)
class Outcome:
    """The result of one call: tensors and, if the task compares them, gradients; or an error."""

    values: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor | None, ...] = ()
    error: BaseException | None = None


@contextmanager
def exact_on_cpu() -> Iterator[None]:
    """Make an answer create float64 tensors on the CPU, and enable gradients.

    Results are cached, so they must not depend on the learner's grad mode. The state of the
    learner's random number generator is restored.
    """
    # Within `with torch.device(...)` every small operation takes twice as long.
    on_cpu = torch.empty(0).device.type == "cpu"
    with torch.inference_mode(False), torch.enable_grad():
        with float64(), nullcontext() if on_cpu else torch.device("cpu"):
            with torch.random.fork_rng(devices=[]):
                yield


def outcomes(task: Task, function: Answer) -> dict[str, Outcome]:
    """Run a function on every case of a task.

    Args:
        task: The task.
        function: A right or wrong answer to the task.

    Returns:
        The outcomes, keyed by case name. An error is an outcome too: many mistakes raise an error
        only if all sizes differ.
    """
    with exact_on_cpu():
        return {case: outcome(task, function, given) for case, given in task.cases().items()}


def agree(left: Outcome, right: Outcome, tolerance: float = 1e-5) -> bool:
    """Return whether two outcomes agree: their values are close, or both are errors."""
    if left.error is not None or right.error is not None:
        return left.error is not None and right.error is not None
    pairs = (left.values + left.gradients, right.values + right.gradients)
    return len(pairs[0]) == len(pairs[1]) and all(
        _equal(x, y, tolerance) for x, y in zip(*pairs, strict=True)
    )


def gradients(answer: tuple[Tensor, ...], given: tuple[Any, ...]) -> tuple[Tensor | None, ...]:
    """Compute the gradient of an answer with respect to each argument that requires one.

    Returns:
        One gradient for each such argument; None if the answer does not depend on the argument.
    """
    inputs = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
    # A plain sum would hide errors: it is constant after a norm or a softmax.
    parts = [(x * _waves(x)).sum() for x in answer if x.is_floating_point()]
    if not inputs or not any(part.requires_grad for part in parts):
        return (None,) * len(inputs)
    return torch.autograd.grad(sum(parts), inputs, allow_unused=True)


def trainable(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Set requires_grad for every floating-point tensor, in place."""
    return tuple(
        x.requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given
    )


def outcome(task: Task, function: Answer, given: tuple[Any, ...]) -> Outcome:
    """Run a function on one case of a task.

    Args:
        task: The task.
        function: A right or wrong answer to the task.
        given: The arguments of the case.
    """
    given = trainable(given) if task.by_gradient else given
    try:
        # A subclass of Tensor could make every comparison return True.
        with torch._C.DisableTorchFunctionSubclass():
            values = tuple(
                value if type(value) is Tensor else Tensor.as_subclass(value, Tensor)
                for value in task.observe(task.run(function, given))
            )
        slopes = gradients(values, given) if task.by_gradient else ()
    # Any error of a wrong answer is an outcome, and so is a call of exit().
    except (Exception, SystemExit) as error:
        return Outcome(error=error)
    # An answer may be a view of a tensor that a later call modifies.
    return Outcome(tuple(value.detach().clone() for value in values), slopes)


def _equal(left: Tensor | None, right: Tensor | None, tolerance: float) -> bool:
    if left is None or right is None:
        return left is right
    if left.shape != right.shape:
        return False
    close = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
    return torch.allclose(left.double(), right.double(), **close)


def _waves(like: Tensor) -> Tensor:
    return torch.arange(like.numel(), dtype=like.dtype).cos().view(like.shape)
