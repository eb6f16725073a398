"""Explanation of one number in a run: in symbols, in digits, as Python, and by its operands."""

from __future__ import annotations

import dataclasses
import html
import math
from dataclasses import dataclass
from functools import cached_property

import torch

from twelve_lab.explain.expression import (
    LEVEL,
    Apply,
    Dot,
    Expression,
    Leaf,
    Number,
    Total,
    Writer,
    bracketed,
    leaves,
)
from twelve_lab.explain.graph import Graph, too_long
from twelve_lab.explain.tape import Block, Tape
from twelve_lab.messages import message
from twelve_lab.show.format import format_number
from twelve_lab.show.show import Shown
from twelve_lab.show.table import Table

_PRE = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;font-family:monospace"
TOLERANCES = {
    torch.float64: 1e-9, torch.float32: 1e-4, torch.bool: 0.0, torch.uint8: 0.0, torch.int8: 0.0,
    torch.int16: 0.0, torch.int32: 0.0, torch.int64: 0.0,
}  # fmt: skip
SUMMANDS = 4  # a longer sum is shortened to its first three summands and the last


@dataclass(frozen=True)
class Element:
    """One element of a named tensor."""

    name: str
    axes: tuple[str, ...]
    index: tuple[int, ...]
    value: float

    @classmethod
    def of(cls, tape: Tape, cell: int) -> Element:
        """Return the element in a cell."""
        block = tape.block(cell)
        return cls(block.name, block.axes, block.index(cell), tape.value(cell))

    def __str__(self) -> str:
        """Format name and index, such as "scores[batch 0, query 1, key 0]"."""
        return f"{self.name}{place(self.axes, self.index)}"


class Digits(Writer):
    """Format a tree for reading: cells as rounded numbers, long lists shortened."""

    signs = {sign: f" {sign} " for sign in LEVEL} | {"*": "·", "**": "^"}

    def leaf(self, cell: int, outer: int) -> str:
        """Format the number in a cell."""
        return bracketed(format_number(self.value(cell)), outer)

    def number(self, number: float, outer: int) -> str:
        """Format a constant."""
        return bracketed(constant(number), outer)

    def function(self, name: str, parts: tuple[Expression, ...]) -> str:
        """Format a call."""
        return f"{name}({', '.join(few([self.write(part) for part in parts]))})"

    def cast(self, tree: Apply, outer: int) -> str:
        """Format a conversion as a call, because it changed the number."""
        return self.function(tree.name, tree.parts)

    def join(self, parts: list[str]) -> str:
        """Join the summands; if there are many, show both ends and the number of terms."""
        text = " + ".join(few(parts))
        if len(parts) <= SUMMANDS:
            return text
        return message("{sum} [{count} terms]", sum=text, count=len(parts))


class Symbols(Digits):
    """Format a tree for reading: cells as names and indices, a whole axis as a slice."""

    def __init__(self, tape: Tape, path: str) -> None:
        """Format names relative to a module.

        Args:
            tape: The run.
            path: Path of the module.
        """
        super().__init__(tape.value)
        self.tape, self.path = tape, path

    def leaf(self, cell: int, outer: int) -> str:
        """Format the name and the index of a cell."""
        element = Element.of(self.tape, cell)
        return f"{self.short(element.name)}{place(element.axes, element.index)}"

    def short(self, name: str) -> str:
        """Drop the path prefix that an operand shares with the module."""
        return name.removeprefix(f"{self.path}.") if self.path else name

    def total(self, tree: Total | Dot, outer: int) -> str:
        """Format a sum over whole axes as "a[:] · b[:]" or "sum(a[:])"."""
        sides = (tree.left, tree.right) if isinstance(tree, Dot) else (tree.parts,)
        runs = [self.run(side) for side in sides]
        if not all(runs):
            return super().total(tree, outer)
        if isinstance(tree, Total):
            return f"sum({runs[0]})"
        text = " · ".join(runs)
        return f"({text})" if outer >= 1 else text

    def run(self, parts: tuple[Expression, ...]) -> str:
        """Format leaves that form one whole axis of a tensor as a slice; return "" otherwise."""
        cells = [part.cell for part in parts if isinstance(part, Leaf)]
        blocks = {id(self.tape.block(cell)) for cell in cells}
        if len(cells) < len(parts) or len(blocks) > 1:
            return ""
        block = self.tape.block(cells[0])
        places = [block.index(cell) for cell in cells]
        moving = [n for n, values in enumerate(zip(*places, strict=True)) if len(set(values)) > 1]
        if len(moving) != 1:
            return ""
        (axis,) = moving
        if [index[axis] for index in places] != list(range(block.shape[axis])):
            return ""
        index: list[int | str] = list(places[0])
        index[axis] = ":"
        return f"{self.short(block.name)}{place(block.axes, tuple(index))}"


class Explanation:
    """The arithmetic that computed one number.

    Attributes:
        target: The explained element.
        depth: Number of levels that are unfolded, including the target.
    """

    def __init__(self, graph: Graph, cell: int, depth: int, code: str = ""):
        """Unfold the arithmetic; see `Traced.explain`.

        Args:
            graph: The run.
            cell: Cell of the element.
            depth: Number of levels to unfold.
            code: Source line that assigned the tensor.

        Raises:
            ValueError: As for `Traced.explain`, or if the arithmetic does not reproduce the number.
        """
        if not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth must be a whole number of at least 1, got {depth!r}")
        self._graph, self._cell = graph, cell
        self.depth, self._code = depth, code
        self.target = Element.of(graph.tape, cell)
        try:
            self._tree, dtypes = graph.unfold(cell, depth)
            self._check(dtypes)
        except (RecursionError, MemoryError, SyntaxError):  # Python raises these for deep nesting
            raise ValueError(too_long(self.target.name)) from None

    def _check(self, dtypes: set[torch.dtype]) -> None:
        """Check that the arithmetic reproduces the number in the run."""
        value = self.value
        try:
            result = eval(self.expression, {"math": math})
        except (OverflowError, ZeroDivisionError, ValueError):
            return  # Python raises where torch returns inf or nan
        scale = max(1.0, abs(value), *(abs(operand.value) for operand in self.inputs))
        # Python computes in double precision, but the run may have rounded to a lower one.
        coarsest = max(TOLERANCES.get(dtype, 0.05) for dtype in dtypes)
        tolerance = coarsest * (scale if math.isfinite(scale) else 1.0)
        if result != value and not abs(result - value) <= tolerance and not math.isnan(value):
            raise ValueError(
                f"{self.target}: the arithmetic that the trace saw gives {result}, but the run "
                f"holds {value}: its numbers were changed out of sight, as by numpy or another "
                "thread"
            )

    @property
    def value(self) -> float:
        """Return the explained number."""
        return self.target.value

    @cached_property
    def expression(self) -> str:
        """Return a Python expression with numbers and `math` that evaluates to the value."""
        return Writer(self._graph.tape.value).write(self._tree)

    @cached_property
    def cells(self) -> list[int]:
        """List the distinct cells of the operands in the order of the arithmetic."""
        return [] if self._is_given else list(dict.fromkeys(leaves(self._tree)))

    @cached_property
    def inputs(self) -> list[Element]:
        """List the distinct operands, which are elements of named tensors."""
        return [Element.of(self._graph.tape, cell) for cell in self.cells]

    @property
    def text(self) -> str:
        """Format symbols, digits and the result, each on its own line."""
        lines, number = [str(self.target)], format_number(self.value)
        if isinstance(self._tree, Number):
            return f"{lines[0]}\n  = " + message("{number}, a constant of the code", number=number)
        if self._is_given:
            return f"{lines[0]}\n  = " + message("{number}, given to the run", number=number)
        if self._code and self.depth == 1:
            lines.append("  " + message("code: {code}", code=self._code))
        symbols = Symbols(self._graph.tape, self.target.name.rpartition(".")[0])
        if isinstance(self._tree, Leaf):
            source = symbols.write(self._tree)
            lines.append("  " + message("copied from {source}", source=source))
        else:
            lines.append(f"  = {symbols.write(self._tree)}")
            lines.append(f"  = {Digits(self._graph.tape.value).write(self._tree)}")
        return "\n".join([*lines, f"  = {number}"])

    def __repr__(self) -> str:
        """Return the text."""
        return self.text

    def _repr_html_(self) -> str:
        """Return the text and, below it, the operands with the used elements framed."""
        tables = "".join(self._drawn(block, cells) for block, cells in self._used().items())
        text = f'<pre style="{_PRE}">{html.escape(self.text)}</pre>'
        return f"<div>{text}{tables}</div>"

    @property
    def _is_given(self) -> bool:
        return self._tree == Leaf(self._cell) or isinstance(self._tree, Number)

    def _used(self) -> dict[Block, list[int]]:
        used: dict[Block, list[int]] = {}
        for cell in self.cells:
            used.setdefault(self._graph.tape.block(cell), []).append(cell)
        return used

    def _drawn(self, block: Block, cells: list[int]) -> str:
        lit = torch.zeros(block.values.numel(), dtype=torch.bool)
        lit[[cell - block.start for cell in cells]] = True
        table = Table.of(block.values.view(block.shape), block.axis_names)
        return Shown(
            dataclasses.replace(table, lit=lit.view(block.shape)), block.name
        )._repr_html_()


def few(parts: list[str]) -> list[str]:
    """Shorten a long list to its two ends."""
    return parts if len(parts) <= SUMMANDS else [*parts[: SUMMANDS - 1], "…", parts[-1]]


def place(axes: tuple[str, ...], index: tuple[int | str, ...]) -> str:
    """Format an index with axis names, such as "[batch 0, query 1]"."""
    if not index:
        return ""
    names = axes or ("",) * len(index)
    parts = (
        f"{'' if axis.isdigit() else axis} {i}".strip()
        for axis, i in zip(names, index, strict=True)
    )
    return f"[{', '.join(parts)}]"


def constant(number: float) -> str:
    """Format a constant of the program; the root of a whole number is shown as a root."""
    if 0 < number < math.inf and not float(number).is_integer():
        squared = number * number
        if abs(squared - round(squared)) < 1e-12 and round(squared) > 0:
            return f"sqrt({round(squared)})"
    return f"{number:g}"
