"""Explain any number of a run: the arithmetic that made it, down to ids and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from twelve.lab.explain.explanation import Explanation
from twelve.lab.explain.gradient import GradientExplanation

if TYPE_CHECKING:
    from twelve.lab.explain.graph import Graph
    from twelve.lab.traced import Traced

__all__ = ["Explanation", "GradientExplanation", "explain", "explain_grad"]


def explain(entry: Traced, index: tuple[int, ...], depth: int = 1) -> Explanation:
    """Explain one number; see `Traced.explain`.

    Args:
        entry: The tensor.
        index: One position for each of its axes.
        depth: How far to unfold.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}")
    graph = _graph(entry)
    return Explanation(graph, _cell(graph, entry, index), depth, entry.code)


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


def _graph(entry: Traced) -> Graph:
    graph = None if entry.trace is None else entry.trace.graph
    if graph is None:
        raise ValueError(f"{entry.name}: no operation was kept; trace with explain=True")
    return graph


def _cell(graph: Graph, entry: Traced, index: tuple[int, ...]) -> int:
    block = graph.record.named.get(entry.name)
    if block is None:
        raise ValueError(f"{entry.name}: holds no plain numbers ({entry.value.dtype}) to explain")
    places = torch.arange(block.values.numel()).view(block.shape)
    return block.start + int(places[_checked(entry, index)])


def _checked(entry: Traced, index: tuple[int, ...]) -> tuple[int, ...]:
    sizes = ", ".join(f"{a} {n}" for a, n in zip(entry.axes, entry.shape, strict=True))
    if len(index) != len(entry.shape):
        raise ValueError(
            f"{entry.name} has {len(entry.shape)} axes ({sizes}), but the index {index} has "
            f"{len(index)} positions"
        )
    for axis, size, position in zip(entry.axes, entry.shape, index, strict=True):
        if not -size <= position < size:
            raise ValueError(f"{entry.name}: {axis} {position} is out of range, its size is {size}")
    return tuple(p % n for p, n in zip(index, entry.shape, strict=True))
