"""The gradient of one number, split by the later numbers through which it came."""

from __future__ import annotations

from collections.abc import Callable

from twelve_lab.explain.explanation import Element
from twelve_lab.explain.graph import Graph
from twelve_lab.show.format import format_number

MOST_LINES = 6


class GradientExplanation:
    """Where the gradient of one number comes from: each later number's gradient times its slope.

    Attributes:
        target: The element whose gradient is explained.
        value: The gradient that the backward pass left.
        parts: (later element, its gradient, its slope) for each later number it went into.
    """

    def __init__(self, graph: Graph, cell: int, gradient: Callable[[int], float | None]) -> None:
        """Collect what the element went into.

        Args:
            graph: The run.
            cell: Of the element.
            gradient: Gives the gradient of a cell, None where there is none.
        """
        self.target = Element.of(graph.tape, cell)
        self.value = gradient(cell)
        self.parts: list[tuple[Element, float, float]] = []
        for later in graph.consumers(cell):
            arrived = gradient(later)
            if arrived is not None:
                slope = graph.slopes(later)[cell]
                self.parts.append((Element.of(graph.tape, later), arrived, slope))

    @property
    def total(self) -> float:
        """Add up what came through the named numbers."""
        return sum(arrived * slope for _, arrived, slope in self.parts)

    @property
    def text(self) -> str:
        """Write one line for each later number, the largest shares first."""
        lines = [f"gradient of {self.target}"]
        if not self.parts:
            return f"{lines[0]}\n  = {format_number(self.value)}, from what came after the trace"
        order = sorted(self.parts, key=lambda part: -abs(part[1] * part[2]))
        for element, arrived, slope in order[:MOST_LINES]:
            lines.append(
                f"  + {format_number(arrived)} · {format_number(slope)}"
                f" = {format_number(arrived * slope)} through {element}"
            )
        if len(order) > MOST_LINES:
            rest = sum(arrived * slope for _, arrived, slope in order[MOST_LINES:])
            lines.append(f"  + {format_number(rest)} through {len(order) - MOST_LINES} others")
        return "\n".join([*lines, f"  = {format_number(self.value)}"])

    def __repr__(self) -> str:
        """Write the text."""
        return self.text
