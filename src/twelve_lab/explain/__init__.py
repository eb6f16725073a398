"""Explain any number of a run: the arithmetic that made it, down to ids and weights."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

import torch

from twelve_lab.explain.derivative import GradientExplanation
from twelve_lab.explain.explanation import Explanation

if TYPE_CHECKING:
    from twelve_lab.explain.graph import Graph
    from twelve_lab.trace.traced import Traced

TOLERANCES = {
    torch.float64: 1e-9, torch.float32: 1e-4, torch.bool: 0.0, torch.uint8: 0.0, torch.int8: 0.0,
    torch.int16: 0.0, torch.int32: 0.0, torch.int64: 0.0,
}  # fmt: skip

__all__ = ["Explanation", "GradientExplanation", "explain", "explain_grad"]


def explain(entry: Traced, index: tuple[int, ...], depth: int = 1) -> Explanation:
    """Explain one number; see `Traced.explain`.

    Args:
        entry: The tensor.
        index: One position for each of its axes.
        depth: How far to unfold.

    Raises:
        ValueError: As for `Traced.explain`; and the arithmetic does not give the number.
    """
    if not isinstance(depth, int) or depth < 1:
        raise ValueError(f"depth must be a whole number of at least 1, got {depth!r}")
    graph = _graph(entry)
    explanation = Explanation(graph, _cell(graph, entry, index), depth, entry.code)
    _check(explanation, graph.record.dtypes)
    return explanation


def explain_grad(entry: Traced, index: tuple[int, ...]) -> GradientExplanation:
    """Explain the gradient of one number; see `Traced.explain_grad`.

    Args:
        entry: The tensor.
        index: One position for each of its axes.
    """
    graph = _graph(entry)
    cell = _cell(graph, entry, index)
    value = entry.grad[_checked(entry, index)].item()

    def arrived(later: int) -> float | None:
        block = graph.record.block(later)
        tensor = entry.trace[block.name].tensor
        if tensor is None or tensor.grad is None:
            return None
        return tensor.grad.flatten()[later - block.start].item()

    return GradientExplanation(graph, cell, value, arrived)


def _check(explanation: Explanation, dtypes: set[torch.dtype]) -> None:
    """Hold the arithmetic against the number of the run: it must never explain another one."""
    value = explanation.value
    try:
        result = eval(explanation.expression, {"math": math})
    except (OverflowError, ZeroDivisionError, ValueError):
        return  # where torch gives inf or nan and goes on, Python stops
    scale = max(1.0, abs(value), *(abs(operand.value) for operand in explanation.inputs))
    # Python reckons in double precision; the run may have rounded to less on its way.
    coarsest = max(TOLERANCES.get(dtype, 0.05) for dtype in dtypes)
    tolerance = coarsest * (scale if math.isfinite(scale) else 1.0)
    if result != value and not abs(result - value) <= tolerance and not math.isnan(value):
        raise ValueError(
            f"{explanation.target}: the arithmetic that the trace saw gives {result}, but the run "
            f"holds {value}: its numbers were changed out of sight, as by numpy or another thread"
        )


def _graph(entry: Traced) -> Graph:
    graph = None if entry.trace is None else entry.trace.graph
    if graph is None:
        wanted = "trace with explain=True and without only="
        raise ValueError(f"{entry.name}: no operation was kept; {wanted}")
    return graph


def _cell(graph: Graph, entry: Traced, index: tuple[int, ...]) -> int:
    block = graph.record.named.get(entry.name)
    if block is None:
        raise ValueError(f"{entry.name}: holds no plain numbers ({entry.value.dtype}) to explain")
    place = 0
    for position, size in zip(_checked(entry, index), block.shape, strict=True):
        place = place * size + position
    return block.start + place


def _checked(entry: Traced, index: tuple[int, ...]) -> tuple[int, ...]:
    sizes = ", ".join(f"{a} {n}" for a, n in zip(entry.axes, entry.shape, strict=True))
    try:
        places = tuple(map(operator.index, index))
    except TypeError:
        raise ValueError(
            f"{entry.name}: give one whole number for each axis ({sizes}), not {index}"
        ) from None
    if len(places) != len(entry.shape):
        raise ValueError(
            f"{entry.name} has {len(entry.shape)} axes ({sizes}), but the index {places} has "
            f"{len(places)} positions"
        )
    for axis, size, position in zip(entry.axes, entry.shape, places, strict=True):
        if not -size <= position < size:
            raise ValueError(f"{entry.name}: {axis} {position} is out of range, its size is {size}")
    return tuple(p % n for p, n in zip(places, entry.shape, strict=True))
