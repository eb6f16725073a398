"""One number of a run explained: in symbols, in digits, as Python, and by what it was made from."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from twelve_lab.explain.expression import (
    LEVEL,
    TIGHT_LEFT,
    TIGHT_RIGHT,
    Dot,
    Expression,
    Leaf,
    Number,
    Total,
    leaves,
    literal,
    python,
)  # fmt: skip
from twelve_lab.show.format import format_number
from twelve_lab.show.show import Shown
from twelve_lab.show.table import Table

if TYPE_CHECKING:
    from twelve_lab.explain.graph import Graph
    from twelve_lab.explain.record import Block

_PRE = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;font-family:monospace"
SUMMANDS = 4  # of a longer sum, the first three and the last are written
WORDS = {"*": "·", "**": "^", "neg": "-"}
Write = Callable[[Expression], str]


@dataclass(frozen=True)
class Element:
    """One element of a named tensor."""

    name: str
    axes: tuple[str, ...]
    index: tuple[int, ...]
    value: float

    def __str__(self) -> str:
        """Write name and index, as "scores[batch 0, query 1, key 0]"."""
        return f"{self.name}{place(self.axes, self.index)}"


class Explanation:
    """The arithmetic that made one number.

    Attributes:
        target: The element that is explained.
        depth: How many times its operands were unfolded, counting itself.
    """

    def __init__(self, graph: Graph, cell: int, depth: int, code: str = ""):
        """Unfold the arithmetic; see `Traced.explain`."""
        self._graph, self._cell = graph, cell
        self.depth, self._code = depth, code
        self.target = self._element(cell)
        self._tree = graph.unfold(cell, depth)

    @property
    def value(self) -> float:
        """Return the number itself."""
        return self.target.value

    @cached_property
    def expression(self) -> str:
        """Write plain Python arithmetic over numbers and `math` that evaluates to the value."""
        return python(self._tree, self._graph.record.value)

    @cached_property
    def cells(self) -> list[int]:
        """List the cells that it was made from, each once, in the order of the arithmetic."""
        return [] if self._is_given else list(dict.fromkeys(leaves(self._tree)))

    @cached_property
    def inputs(self) -> list[Element]:
        """List the elements of named tensors that it was made from, each once."""
        return [self._element(cell) for cell in self.cells]

    @property
    def text(self) -> str:
        """Write symbols, digits and the result, one line each."""
        lines = [str(self.target)]
        if isinstance(self._tree, Number):
            return f"{lines[0]}\n  = {format_number(self.value)}, a constant of the code"
        if self._is_given:
            return f"{lines[0]}\n  = {format_number(self.value)}, given to the run"
        if self._code and self.depth == 1:
            lines.append(f"  code: {self._code}")
        if isinstance(self._tree, Leaf):
            lines.append(f"  = {self._symbol(self._tree.cell)}, the same number moved")
        else:
            lines.append(f"  = {self._write(self._tree, self._symbol)}")
            lines.append(f"  = {self._write(self._tree, self._digits)}")
        return "\n".join([*lines, f"  = {format_number(self.value)}"])

    def __repr__(self) -> str:
        """Write the text."""
        return self.text

    def _repr_html_(self) -> str:
        """Draw the text, and below it the used matrices of each operand, what was used framed."""
        tables = "".join(self._drawn(block, cells) for block, cells in self._used().items())
        text = f'<pre style="{_PRE}">{html.escape(self.text)}</pre>'
        return f"<div>{text}{tables}</div>"

    @property
    def _is_given(self) -> bool:
        return self._tree == Leaf(self._cell) or isinstance(self._tree, Number)

    def _element(self, cell: int) -> Element:
        block = self._graph.record.block(cell)
        return Element(block.name, block.axes, block.index(cell), self._graph.record.value(cell))

    def _symbol(self, cell: int) -> str:
        element = self._element(cell)
        return f"{self._short(element.name)}{place(element.axes, element.index)}"

    def _short(self, name: str) -> str:
        """Leave out the path that an operand shares with the module of the target."""
        path = self.target.name.rpartition(".")[0]
        return name.removeprefix(f"{path}.") if path else name

    def _digits(self, cell: int) -> str:
        return format_number(self._graph.record.value(cell))

    def _write(self, tree: Expression, leaf: Callable[[int], str], outer: int = 0) -> str:
        if isinstance(tree, Leaf | Number):
            text = leaf(tree.cell) if isinstance(tree, Leaf) else constant(tree.value)
            return f"({text})" if outer > 1 and text.startswith("-") else text
        if isinstance(tree, Dot) and leaf == self._symbol:
            sides = [self._run(tree.left), self._run(tree.right)]
            if all(sides):
                text = " · ".join(sides)
                return f"({text})" if outer >= 1 else text
        if isinstance(tree, Total | Dot):
            return self._write_sum(tree, leaf, outer)
        level = LEVEL.get(tree.name)
        if level is None:
            inside = ", ".join(self._few([self._write(part, leaf) for part in tree.parts]))
            return f"{tree.name}({inside})"
        if tree.name == "neg":
            text = f"-{self._write(tree.parts[0], leaf, level)}"
        else:
            left, right = tree.parts
            first = self._write(left, leaf, level + (tree.name in TIGHT_LEFT))
            # A negative number after a sign stands in brackets, whatever binds tighter.
            second = self._write(right, leaf, max(2, level + (tree.name in TIGHT_RIGHT)))
            sign = WORDS.get(tree.name, f" {tree.name} ")
            text = f"{first}{sign}{second}"
        return f"({text})" if level < outer else text

    def _write_sum(self, tree: Total | Dot, leaf: Callable[[int], str], outer: int) -> str:
        if isinstance(tree, Dot):
            pairs = zip(tree.left, tree.right, strict=True)
            parts = [f"{self._write(a, leaf, 2)}·{self._write(b, leaf, 2)}" for a, b in pairs]
        else:
            run = self._run(tree.parts) if leaf == self._symbol else ""
            if run:
                return f"sum({run})"
            parts = [self._write(part, leaf, 1) for part in tree.parts]
        text = " + ".join(self._few(parts))
        text += f" [{len(parts)} terms]" if len(parts) > SUMMANDS else ""
        return f"({text})" if outer >= 1 else text

    @staticmethod
    def _few(parts: list[str]) -> list[str]:
        return parts if len(parts) <= SUMMANDS else [*parts[: SUMMANDS - 1], "…", parts[-1]]

    def _run(self, parts: tuple[Expression, ...]) -> str:
        """Write leaves that run along one whole axis of one tensor as a slice, or nothing."""
        cells = [part.cell for part in parts if isinstance(part, Leaf)]
        blocks = {id(self._graph.record.block(cell)) for cell in cells}
        if len(cells) < len(parts) or len(cells) < 2 or len(blocks) > 1:
            return ""
        block = self._graph.record.block(cells[0])
        places = [block.index(cell) for cell in cells]
        moving = [
            axis for axis, values in enumerate(zip(*places, strict=True)) if len(set(values)) > 1
        ]
        if len(moving) != 1 or [p[moving[0]] for p in places] != list(
            range(block.shape[moving[0]])
        ):
            return ""
        index: list[int | str] = list(places[0])
        index[moving[0]] = ":"
        return f"{self._short(block.name)}{place(block.axes, tuple(index))}"

    def _used(self) -> dict[Block, list[int]]:
        used: dict[Block, list[int]] = {}
        for cell in self.cells:
            used.setdefault(self._graph.record.block(cell), []).append(cell)
        return used

    def _drawn(self, block: Block, cells: list[int]) -> str:
        axes = block.axes or tuple(f"axis {n}" for n in range(len(block.shape)))
        lit = torch.zeros(block.values.numel(), dtype=torch.bool)
        lit[[cell - block.start for cell in cells]] = True
        table = Table.of(block.values.view(block.shape), axes)
        return Shown(
            dataclasses.replace(table, lit=lit.view(block.shape)), block.name
        )._repr_html_()


def place(axes: tuple[str, ...], index: tuple[int | str, ...]) -> str:
    """Write an index with the names of its axes, as "[batch 0, query 1]"."""
    if not index:
        return ""
    names = axes or ("",) * len(index)
    parts = (
        f"{'' if axis.isdigit() else axis} {i}".strip()
        for axis, i in zip(names, index, strict=True)
    )
    return f"[{', '.join(parts)}]"


def constant(number: float) -> str:
    """Write a constant of the program: a root of a whole number as such, others in full."""
    if not math.isfinite(number):
        return literal(number).replace("math.", "")
    squared = number * number
    if number > 0 and not float(number).is_integer() and abs(squared - round(squared)) < 1e-12:
        if round(squared) > 0:
            return f"sqrt({round(squared)})"
    return f"{number:g}"
