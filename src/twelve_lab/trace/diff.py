"""Compare two runs: the first tensor that differs, and the first number in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from twelve_lab.show.format import format_number
from twelve_lab.trace.traced import Traced


@dataclass(frozen=True)
class Difference:
    """The first difference between two runs; false if there is none.

    Args:
        compared: How many tensors were equal before it.
        name: The tensor that differs, or "".
        reason: How it differs, in words.
        index: The first element that differs, if both tensors have the same shape.
        largest: The largest difference in that tensor.
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
            return f"the two runs agree in all {self.compared} tensors"
        return f"{self.compared} tensors agree, then the runs part at {self.name}\n  {self.reason}"


def difference(
    one: Mapping[str, Traced], other: Mapping[str, Traced], tolerance: float
) -> Difference:
    """Compare two runs tensor by tensor, in the order of the first.

    Args:
        one: The first run.
        other: The second.
        tolerance: Largest difference that still counts as equal.
    """
    compared = 0
    for name, entry in one.items():
        if name not in other:
            return Difference(compared, name, "the other run has no tensor of this name")
        found = _compare(compared, entry, other[name], tolerance)
        if found:
            return found
        compared += 1
    extra = next((name for name in other if name not in one), "")
    return Difference(compared, extra, "only the other run has a tensor of this name")


def _compare(compared: int, one: Traced, other: Traced, tolerance: float) -> Difference:
    if one.shape != other.shape:
        return Difference(compared, one.name, f"shape {one.shape} here, {other.shape} there")
    left, right = _numbers(one.value), _numbers(other.value)
    # Equal infinities and equal gaps (nan) are agreement; their difference would be nan.
    same = (left == right) | (left.isnan() & right.isnan())
    distance = torch.where(same, torch.zeros_like(left), (left - right).abs())
    distance = distance.nan_to_num(nan=torch.inf, posinf=torch.inf)
    beyond = (distance > tolerance).nonzero()
    if not len(beyond):
        return Difference(compared)
    index = tuple(beyond[0].tolist())
    where = ", ".join(f"{axis} {i}" for axis, i in zip(one.axes, index, strict=True))
    largest = float(distance.max())
    return Difference(
        compared,
        one.name,
        f"first at [{where}]: {format_number(float(left[index]))} here, "
        f"{format_number(float(right[index]))} there; largest difference {format_number(largest)}",
        index,
        largest,
    )


def _numbers(values: Tensor) -> Tensor:
    return values.detach().cpu().double()
