"""Whether the gradient of an answer is whole: the finest thing that can be wrong with it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from twelve_lab.check.attempt import Attempt
from twelve_lab.check.stages import Submission
from twelve_lab.check.wording import apart

_CUT = "look for detach, .data, .item(), torch.tensor(...) or torch.no_grad()."


def gradient(at: Submission) -> str | None:
    """Look for a gradient that is cut off, in calls that were run for their gradients."""
    for actual, expected in zip(at.actual, at.expected, strict=True):
        if actual.error is not None:
            said = str(actual.error).strip().splitlines()[:1]
            return f"The numbers are right, but no gradient can be taken: {''.join(said)}"
        if _passes(expected) and not _passes(actual):
            return f"The numbers are right, but no gradient goes through the answer: {_CUT}"
        for name, one, other in _slopes(at, actual, expected):
            if (other.abs() > 1e-8).any() and not one.any():
                return f"The numbers are right, but no gradient reaches {name}: {_CUT}"
            if not one.isfinite().all():
                return (
                    f'The numbers are right, but with the case "{actual.case}" the gradient of '
                    f"{name} is nan: repair what goes into softmax or a division, not what comes "
                    "out of it."
                )
    # Where relu meets an exact 0, two right answers may differ: the drawn numbers avoid it.
    largest = max(at.expected, key=lambda one: sum(x.numel() for x in one.values)).case
    for actual, expected in zip(at.actual, at.expected, strict=True):
        for name, one, other in _slopes(at, actual, expected):
            counts = actual.case == largest or at.task.by_gradient
            if counts and not _same(one, other, actual):
                where = _first(one, other)
                return f"The numbers are right, but the gradient of {name} is not: {where}"
    return None


def _slopes(
    at: Submission, actual: Attempt, expected: Attempt
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Set the gradient of each argument of real numbers beside the one that is due."""
    asked = [
        (index, one)
        for index, one in enumerate(actual.given)
        if isinstance(one, Tensor) and one.is_floating_point()
    ]
    for place, (index, one) in enumerate(asked):
        # An argument that was told to need no gradient is left out of the list.
        whole = len(actual.outcome.gradients) == len(asked)
        pair = (
            actual.outcome.gradients[place] if whole else None,
            expected.outcome.gradients[place],
        )
        filled = (torch.zeros_like(one) if slope is None else slope for slope in pair)
        yield at.argument(index), *filled


def _first(one: Tensor, other: Tensor) -> str:
    """Show the first number of a gradient that is not the one that is due."""
    scale = max(1.0, other.abs().max().item())
    place = ((one - other).abs() > 1e-3 * scale).nonzero()[0].tolist()
    got, expected = apart(one[tuple(place)].item(), other[tuple(place)].item())
    return f"at [{', '.join(map(str, place))}] it is {got}, and {expected} is due."


def _same(one: Tensor, other: Tensor, actual: Attempt) -> bool:
    # What took half precision on its way is not exact, and neither is its gradient.
    tolerance = 3e-2 if any(x.dtype.itemsize < 4 for x in actual.values) else 1e-3
    largest = max(1.0, other.abs().max().item())
    return torch.allclose(one.double(), other.double(), rtol=tolerance, atol=tolerance * largest)


def _passes(one: Attempt) -> bool:
    return any(x.requires_grad for x in _tensors(one.answer) if x.is_floating_point())


def _tensors(answer: Any) -> list[Tensor]:
    parts = answer if isinstance(answer, tuple | list) else (answer,)
    return [one for one in parts if isinstance(one, Tensor)]
