"""Explain any number of a run: the arithmetic that made it, down to ids and weights."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping

import torch
from torch import Tensor

from twelve_lab.explain.derivative import GradientExplanation
from twelve_lab.explain.explanation import Explanation
from twelve_lab.explain.graph import Graph
from twelve_lab.explain.tape import Block

TOLERANCES = {
    torch.float64: 1e-9, torch.float32: 1e-4, torch.bool: 0.0, torch.uint8: 0.0, torch.int8: 0.0,
    torch.int16: 0.0, torch.int32: 0.0, torch.int64: 0.0,
}  # fmt: skip

__all__ = ["Explanation", "GradientExplanation", "explain", "explain_grad"]


def explain(
    graph: Graph, name: str, index: tuple[int, ...], depth: int = 1, code: str = ""
) -> Explanation:
    """Explain one number; see `Traced.explain`.

    Args:
        graph: The run.
        name: Name of the tensor.
        index: One position for each of its axes.
        depth: How far to unfold.
        code: The line that made the tensor.

    Raises:
        ValueError: As for `Traced.explain`; and the arithmetic does not give the number.
    """
    if not isinstance(depth, int) or depth < 1:
        raise ValueError(f"depth must be a whole number of at least 1, got {depth!r}")
    explanation = Explanation(graph, _cell(graph.tape.named[name], index), depth, code)
    _check(explanation, graph.tape.dtypes)
    return explanation


def explain_grad(
    graph: Graph, name: str, index: tuple[int, ...], gradients: Mapping[str, Tensor | None]
) -> GradientExplanation:
    """Explain the gradient of one number; see `Traced.explain_grad`.

    Args:
        graph: The run.
        name: Name of the tensor.
        index: One position for each of its axes.
        gradients: Gradient of every tensor of the run; None if the backward pass left none.
    """

    def arrived(cell: int) -> float | None:
        block = graph.tape.block(cell)
        gradient = gradients[block.name]
        return None if gradient is None else gradient.flatten()[cell - block.start].item()

    return GradientExplanation(graph, _cell(graph.tape.named[name], index), arrived)


def _check(explanation: Explanation, dtypes: set[torch.dtype]) -> None:
    """Check that the arithmetic gives the number of the run."""
    value = explanation.value
    try:
        result = eval(explanation.expression, {"math": math})
    except (OverflowError, ZeroDivisionError, ValueError):
        return  # Python raises where torch returns inf or nan
    scale = max(1.0, abs(value), *(abs(operand.value) for operand in explanation.inputs))
    # Python computes in double precision, but the run may have rounded to a lower one.
    coarsest = max(TOLERANCES.get(dtype, 0.05) for dtype in dtypes)
    tolerance = coarsest * (scale if math.isfinite(scale) else 1.0)
    if result != value and not abs(result - value) <= tolerance and not math.isnan(value):
        raise ValueError(
            f"{explanation.target}: the arithmetic that the trace saw gives {result}, but the run "
            f"holds {value}: its numbers were changed out of sight, as by numpy or another thread"
        )


def _cell(block: Block, index: tuple[int, ...]) -> int:
    """Return the cell of an element. Negative positions count from the end."""
    sizes = ", ".join(f"{a} {n}" for a, n in zip(block.axes, block.shape, strict=True))
    try:
        places = tuple(map(operator.index, index))
    except TypeError:
        raise ValueError(
            f"{block.name}: give one whole number for each axis ({sizes}), not {index}"
        ) from None
    if len(places) != len(block.shape):
        raise ValueError(
            f"{block.name} has {len(block.shape)} axes ({sizes}), but the index {places} has "
            f"{len(places)} positions"
        )
    cell = 0
    for axis, size, position in zip(block.axes, block.shape, places, strict=True):
        if not -size <= position < size:
            raise ValueError(f"{block.name}: {axis} {position} is out of range, its size is {size}")
        cell = cell * size + position % size
    return block.start + cell
