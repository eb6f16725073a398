"""The gradient of one number, split by the later numbers through which it came."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

from twelve_lab.explain.explanation import Element
from twelve_lab.explain.expression import (
    COMPARISONS,
    Apply,
    Dot,
    Expression,
    Leaf,
    Number,
    Total,
    terms,
)
from twelve_lab.show.format import format_number

if TYPE_CHECKING:
    from twelve_lab.explain.graph import Graph

MOST_LINES = 6


def derivative(tree: Expression, cell: int, value) -> tuple[float, float]:
    """Give the value of a tree and how fast it grows with one of its cells.

    Args:
        tree: Arithmetic.
        cell: What moves.
        value: Gives the number in a cell.
    """
    if isinstance(tree, Leaf):
        return value(tree.cell), float(tree.cell == cell)
    if isinstance(tree, Number):
        return tree.value, 0.0
    if isinstance(tree, Total | Dot):
        pairs = [derivative(part, cell, value) for part in terms(tree)]
        return sum(v for v, _ in pairs), sum(d for _, d in pairs)
    return _apply(tree, [derivative(part, cell, value) for part in tree.parts])


def _apply(tree: Apply, parts: list[tuple[float, float]]) -> tuple[float, float]:
    (a, da), (b, db) = parts[0], parts[-1]
    match tree.name:
        case "+":
            return a + b, da + db
        case "-":
            return a - b, da - db
        case "*":
            return a * b, (da * b if da else 0.0) + (a * db if db else 0.0)
        case "/":
            return a / b, (da / b if da else 0.0) - (a * db / b**2 if db else 0.0)
        case "neg":
            return -a, -da
        case "**":
            return a**b, b * a ** (b - 1) * da if da else 0.0
        case "max" | "min":
            # Of equal numbers torch takes the first, as relu does at 0.
            best = (max if tree.name == "max" else min)(v for v, _ in parts)
            return next(pair for pair in parts if pair[0] == best)
        case "abs":
            return abs(a), math.copysign(da, da * a) if a else 0.0
    if tree.name in COMPARISONS:
        return float(_COMPARE[tree.name](a, b)), 0.0
    slope = _SLOPES[tree.name]
    return getattr(math, tree.name)(a), slope(a) * da if da else 0.0


_COMPARE = dict(
    zip(
        COMPARISONS,
        (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
        strict=True,
    )
)
_SLOPES = {
    "acos": lambda a: -1 / math.sqrt(1 - a * a),
    "asin": lambda a: 1 / math.sqrt(1 - a * a),
    "atan": lambda a: 1 / (1 + a * a),
    "ceil": lambda a: 0.0,
    "cosh": math.sinh,
    "erfc": lambda a: -2 / math.sqrt(math.pi) * math.exp(-a * a),
    "exp2": lambda a: math.log(2) * 2**a,
    "floor": lambda a: 0.0,
    "log10": lambda a: 1 / (a * math.log(10)),
    "log2": lambda a: 1 / (a * math.log(2)),
    "sinh": math.cosh,
    "trunc": lambda a: 0.0,
    "exp": math.exp,
    "expm1": math.exp,
    "log": lambda a: 1 / a,
    "log1p": lambda a: 1 / (1 + a),
    "sqrt": lambda a: 0.5 / math.sqrt(a),
    "sin": math.cos,
    "cos": lambda a: -math.sin(a),
    "tan": lambda a: 1 / math.cos(a) ** 2,
    "tanh": lambda a: 1 - math.tanh(a) ** 2,
    "erf": lambda a: 2 / math.sqrt(math.pi) * math.exp(-a * a),
}


class GradientExplanation:
    """Where the gradient of one number comes from: each later number's gradient times its slope.

    Attributes:
        target: The element whose gradient is explained.
        value: The gradient that the backward pass left.
        parts: (later element, its gradient, its slope) for each later number it went into.
    """

    def __init__(self, graph: Graph, cell: int, value: float, gradient):
        """Collect what the element went into.

        Args:
            graph: The run.
            cell: Of the element.
            value: Its gradient.
            gradient: Gives the gradient of a later cell, None where there is none.
        """
        block = graph.record.block(cell)
        self.target = Element(block.name, block.axes, block.index(cell), graph.record.value(cell))
        self.value = value
        self.parts: list[tuple[Element, float, float]] = []
        for later in graph.consumers(cell):
            _, slope = derivative(graph.shallow(later), cell, graph.record.value)
            arrived = gradient(later)
            if arrived is not None:
                home = graph.record.block(later)
                element = Element(
                    home.name, home.axes, home.index(later), graph.record.value(later)
                )
                self.parts.append((element, arrived, slope))

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
