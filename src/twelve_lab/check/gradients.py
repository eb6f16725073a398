"""Check the gradient of an answer, the subtlest fault that it can have."""

from collections.abc import Iterator

import torch
from torch import Tensor

from twelve_lab.check.attempt import Attempt
from twelve_lab.check.stages import Submission, apart, place_of
from twelve_lab.messages import declared, message
from twelve_lab.show.wide import joined


def gradient(submission: Submission) -> str | None:
    """Describe the first gradient that is cut off, nan or wrong; None if all are right."""
    for actual, expected in zip(submission.actual, submission.expected, strict=True):
        if actual.error is not None:
            error = "".join(str(actual.error).strip().splitlines()[:1])
            return message(
                "The numbers are right, but their gradient cannot be computed: {error}", error=error
            )
        advice = message("Look for detach, .data, .item(), torch.tensor(...) or torch.no_grad().")
        if _has_gradient(expected) and not _has_gradient(actual):
            fault = message("The numbers are right, but no gradient flows through the answer.")
            return joined(fault, advice)
        for name, got, right in _gradients(submission, actual, expected):
            if (right.abs() > 1e-8).any() and not got.any():
                fault = message(
                    'The numbers are right, but no gradient reaches "{argument}".', argument=name
                )
                return joined(fault, advice)
            if not got.isfinite().all():
                return message(
                    'The numbers are right, but with the case "{case}" the gradient of '
                    '"{argument}" is nan. Fix the input of softmax or of a division, not its '
                    "output.",
                    case=declared(actual.case),
                    argument=name,
                )
    return _wrong_gradient(submission)


def _wrong_gradient(submission: Submission) -> str | None:
    # The gradients of two right answers may differ at relu(0). Random numbers avoid that point.
    largest = max(submission.expected, key=_size).case
    for actual, expected in zip(submission.actual, submission.expected, strict=True):
        if actual.case != largest and not submission.task.by_gradient:
            continue
        for name, got, right in _gradients(submission, actual, expected):
            if _close(got, right, actual):
                continue
            scale = max(1.0, right.abs().max().item())
            index = ((got - right).abs() > 1e-3 * scale).nonzero()[0].tolist()
            texts = apart(got[tuple(index)].item(), right[tuple(index)].item())
            return message(
                'The numbers are right, but the gradient of "{argument}" is not: at {place} '
                "it is {got}, expected {expected}.",
                argument=name,
                place=place_of(index, ()),
                got=texts[0],
                expected=texts[1],
            )
    return None


def _size(call: Attempt) -> tuple[int, ...]:
    """Count the elements of the answer, and of the arguments to compare answers of equal size."""
    given = (x for x in call.given if isinstance(x, Tensor))
    return tuple(sum(x.numel() for x in each) for each in (call.values, given))


def _gradients(
    submission: Submission, actual: Attempt, expected: Attempt
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the name, the gradient and the expected gradient of each floating-point argument."""
    inputs = [
        (index, x)
        for index, x in enumerate(actual.given)
        if isinstance(x, Tensor) and x.is_floating_point()
    ]
    gradients = actual.gradients
    # The list lacks each argument for which the function disabled gradients.
    if len(gradients) != len(inputs):
        gradients = (None,) * len(inputs)
    for (index, x), *pair in zip(inputs, gradients, expected.gradients, strict=True):
        got, right = (torch.zeros_like(x) if each is None else each for each in pair)
        yield submission.argument(index), got, right


def _close(got: Tensor, right: Tensor, actual: Attempt) -> bool:
    # A computation in half precision is inexact, and so is its gradient.
    tolerance = 3e-2 if any(x.dtype.itemsize < 4 for x in actual.values) else 1e-3
    largest = max(1.0, right.abs().max().item())
    return torch.allclose(got.double(), right.double(), rtol=tolerance, atol=tolerance * largest)


def _has_gradient(attempt: Attempt) -> bool:
    answer = attempt.answer
    parts = answer if isinstance(answer, tuple | list) else (answer,)
    return any(isinstance(x, Tensor) and x.requires_grad for x in parts)
