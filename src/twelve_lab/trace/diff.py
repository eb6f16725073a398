"""Compare two runs: find the first tensor that differs, and its first differing element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from twelve._checks import is_real
from twelve_lab.messages import message
from twelve_lab.show.format import format_number
from twelve_lab.trace.traced import Traced


@dataclass(frozen=True)
class Difference:
    """The first difference between two runs; falsy if the runs agree.

    Args:
        compared: Number of tensors that were equal before the first difference.
        name: Name of the tensor that differs, or "".
        reason: Description of the difference.
        index: Index of the first element that differs, if the shapes are equal.
        largest: Largest difference in that tensor.
    """

    compared: int
    name: str = ""
    reason: str = ""
    index: tuple[int, ...] = ()
    largest: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.name)

    def __repr__(self) -> str:
        if not self:
            return message("the two runs agree in all {count} tensors", count=self.compared)
        head = message(
            "{count} tensors agree; the first different tensor is {name}",
            count=self.compared,
            name=self.name,
        )
        return f"{head}\n  {self.reason}"


def difference(
    run: Mapping[str, Traced], other: Mapping[str, Traced], tolerance: float
) -> Difference:
    """Compare two runs tensor by tensor, in the order of the first.

    Args:
        run: The first run.
        other: The second run.
        tolerance: Largest difference that still counts as equal.
    """
    if not isinstance(other, Mapping):
        raise ValueError(f"Trace.diff: other must be a trace, got a {type(other).__name__}")
    if not is_real(tolerance) or not tolerance >= 0:
        raise ValueError(f"Trace.diff: tolerance must be at least 0, got {tolerance!r}")
    for compared, (name, entry) in enumerate(run.items()):
        if name not in other:
            reason = message("the other run has no tensor of this name")
            return Difference(compared, name, reason)
        if different := _compare(compared, entry, other[name], tolerance):
            return different
    extra = next((name for name in other if name not in run), "")
    return Difference(len(run), extra, message("only the other run has a tensor of this name"))


def _compare(compared: int, here: Traced, there: Traced, tolerance: float) -> Difference | None:
    if here.shape != there.shape:
        reason = message("shape {here} here, {there} there", here=here.shape, there=there.shape)
        return Difference(compared, here.name, reason)
    left, right = (_widest(entry.value.detach().cpu()) for entry in (here, there))
    apart = distances(left, right)
    beyond = (apart > tolerance).nonzero()
    if not len(beyond):
        return None
    index = tuple(beyond[0].tolist())
    largest = float(apart.max())
    reason = message(
        "first at [{place}]: {here} here, {there} there; largest difference {largest}",
        place=", ".join(f"{axis} {i}" for axis, i in zip(here.axes, index, strict=True)),
        here=_number(left[index].item()),
        there=_number(right[index].item()),
        largest=format_number(largest),
    )
    return Difference(compared, here.name, reason, index, largest)


def distances(left: Tensor, right: Tensor) -> Tensor:
    """Compute the elementwise distance in float64; a distance of nan becomes inf.

    Args:
        left: A tensor.
        right: A tensor of the same shape.
    """
    # Equal infinities agree, and so do two nan, although their difference is nan.
    same = (left == right) | (left.isnan() & right.isnan())
    if left.is_complex() or right.is_complex():
        apart = (left - right).abs().double()
    else:
        apart = (left.double() - right.double()).abs()
    if not left.dtype.is_floating_point and not right.dtype.is_floating_point:
        apart = apart.clamp(min=1.0)  # float64 rounds integers beyond 2**53
    return torch.where(same, 0.0, apart).nan_to_num(nan=torch.inf, posinf=torch.inf)


def _widest(values: Tensor) -> Tensor:
    """Convert to the widest dtype of the same kind: float64 rounds integers beyond 2**53."""
    if values.is_complex():
        return values.to(torch.complex128)
    return values.double() if values.is_floating_point() else values.long()


def _number(value: complex) -> str:
    if isinstance(value, complex):
        return f"{format_number(value.real)} + {format_number(value.imag)}i"
    return format_number(value)
