"""The gradient of one number, split by the later numbers that it flowed through."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from twelve_lab.explain.explanation import Element
from twelve_lab.explain.graph import Graph, too_long
from twelve_lab.messages import message
from twelve_lab.show.format import format_number

MOST_LINES = 6


class GradientExplanation:
    """The gradient of one number as a sum over later numbers: gradient times slope.

    Attributes:
        target: The element whose gradient is explained.
        value: Gradient from the backward pass.
        parts: (later element, its gradient, its slope) for each number computed from the target.
    """

    def __init__(self, graph: Graph, cell: int, gradients: Mapping[str, Tensor | None]) -> None:
        """Collect the elements that were computed from an element.

        Args:
            graph: The run.
            cell: Cell of the element.
            gradients: Gradient of every tensor in the run, or None if it has no gradient.
        """

        def gradient(cell: int) -> float | None:
            block = graph.tape.block(cell)
            of_block = gradients[block.name]
            return None if of_block is None else of_block.flatten()[cell - block.start].item()

        self.target = Element.of(graph.tape, cell)
        self.value = gradient(cell)
        self.parts: list[tuple[Element, float, float]] = []
        for later in graph.consumers(cell):
            arrived = gradient(later)
            if arrived is not None:
                try:
                    slope = graph.slopes(later)[cell]
                except RecursionError:
                    raise ValueError(too_long(graph.tape.block(later).name)) from None
                self.parts.append((Element.of(graph.tape, later), arrived, slope))

    @property
    def total(self) -> float:
        """Return the sum of the parts."""
        return sum(arrived * slope for _, arrived, slope in self.parts)

    @property
    def text(self) -> str:
        """Format one line for each later number, largest shares first."""
        lines = [message("gradient of {element}", element=self.target)]
        number = format_number(self.value)
        if not self.parts:
            end = message("{number}, from what came after the trace", number=number)
            return f"{lines[0]}\n  = {end}"
        order = sorted(self.parts, key=lambda part: -abs(part[1] * part[2]))
        for element, arrived, slope in order[:MOST_LINES]:
            share = message(
                "{gradient} · {slope} = {share} through {element}",
                gradient=format_number(arrived),
                slope=format_number(slope),
                share=format_number(arrived * slope),
                element=element,
            )
            lines.append(f"  + {share}")
        if len(order) > MOST_LINES:
            rest = sum(arrived * slope for _, arrived, slope in order[MOST_LINES:])
            count = len(order) - MOST_LINES
            others = message(
                "{share} through {count} others", share=format_number(rest), count=count
            )
            lines.append(f"  + {others}")
        return "\n".join([*lines, f"  = {number}"])

    def __repr__(self) -> str:
        """Return the text."""
        return self.text
