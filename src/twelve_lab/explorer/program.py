"""A run as a program: the arithmetic of every named number, with all branches.

`explain` formats the computation of one run. A program keeps the ids of a lookup, the condition of
a mask and the scores of a softmax, so any number can be changed before the program runs.
"""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any

import torch

from twelve_lab.course import find_step
from twelve_lab.explain.expression import (
    CASTS,
    Dot,
    Expression,
    Leaf,
    Number,
    Total,
    call,
    replace,
)
from twelve_lab.explain.formulas import (
    CONDITIONS,
    FORMULAS,
    FUSED_ATTENTION,
    Formula,
    Output,
    along,
    attention,
    reduced,
)
from twelve_lab.explain.tape import Block
from twelve_lab.show.table import Labels, fitting
from twelve_lab.trace.trace import Trace


def _along(name: str) -> Formula:
    def write(at: Output) -> Expression:
        cells, here = along(at)
        return call(name, Number(here), *map(Leaf, cells))

    return write


def _embedding(at: Output) -> Expression:
    *place, column = at.index
    chosen = Leaf(int(at.cells(1)[tuple(place)]))
    return call("pick", chosen, *map(Leaf, at.cells(0)[:, column].tolist()))


def _gather(at: Output) -> Expression:
    table, dim = at.cells(0), at.get("dim")
    places = list(at.index)
    places[dim % table.ndim] = slice(None)
    chosen = Leaf(int(at.cells(2)[at.index]))
    return call("pick", chosen, *map(Leaf, table[tuple(places)].tolist()))


def _attention(at: Output) -> Expression | None:
    """Express fused attention in terms of its scores, including the additive mask."""
    if (written := attention(at, operator.add)) is None:
        return None
    scores, values = written
    weights = (call("safe_softmax", Number(key), *scores) for key in range(len(scores)))
    return Dot(tuple(weights), values)


LIVE: dict[str, Formula] = (
    FORMULAS
    | CONDITIONS
    | {
        "embedding": _embedding,
        "gather": _gather,
        "sigmoid": lambda at: call("sigmoid", at(0)),
        "silu": lambda at: at(0) * call("sigmoid", at(0)),
        "logsumexp": lambda at: call("logsumexp", *map(Leaf, reduced(at))),
        "_softmax": _along("softmax"),
        "_safe_softmax": _along("safe_softmax"),
        "_log_softmax": _along("log_softmax"),
        **dict.fromkeys(FUSED_ATTENTION, _attention),
    }
)
# Operations of the engine in the page, apart from sums and products.
FUNCTIONS = frozenset(
    "+ - * / ** neg == != < <= > >= max min IF AND OR NOT pick softmax safe_softmax log_softmax "
    "logsumexp sigmoid abs ceil cos cosh erf erfc exp exp2 expm1 floor log log10 log1p log2 sin "
    "sinh sqrt tan tanh trunc acos asin atan".split()
)


class Program:
    """A run as plain data.

    Attributes:
        data: {"tensors": one entry per tensor, inputs first, then in execution order}. An entry
            has the name, axes, shape and type of its tensor, whether it is a weight, the words of
            its axes, its code and its step. An input has `numbers`; a computed tensor has `trees`,
            one for each element. A tree is the index of an element in the program, or
            [operation, part, ...]; ["#", x] is a constant.
    """

    def __init__(self, trace: Trace, labels: Labels | None = None) -> None:
        """Convert a run.

        Args:
            trace: The run.
            labels: Words for the indices of an axis, in the format of `show`.

        Raises:
            ValueError: If the run contains no tensor that can be explained, or an operation that
                the page cannot compute.
        """
        if trace.graph is None or not len(trace):
            raise ValueError("the run holds no tensor that can be explained")
        for entry in trace.values():
            entry.kept()
        self.trace, self.graph, self.labels = trace, trace.graph, labels or {}
        named = self.graph.tape.named
        # Inputs first, then computed tensors in execution order.
        inputs = [block for name, block in named.items() if name not in trace]
        self.blocks = inputs + [named[name] for name in trace]
        self.starts: dict[int, int] = {}
        places = 0
        for block in self.blocks:
            self.starts[block.start] = places
            places += block.values.numel()
        self.tree = cache(self._tree)
        self.data = {"tensors": [self._tensor(block) for block in self.blocks]}

    def _tree(self, cell: int) -> Expression:
        made = self.graph.operation(cell, LIVE)
        if made is None:
            return self._leaf(cell)
        return replace(made, self._operand)

    def _operand(self, cell: int) -> Expression:
        return Leaf(cell) if self._is_named(cell) else self.tree(cell)

    def _leaf(self, cell: int) -> Expression:
        return Leaf(cell) if self._is_named(cell) else Number(self.graph.tape.value(cell))

    def _is_named(self, cell: int) -> bool:
        return self.graph.tape.block(cell).start in self.starts

    def _place(self, cell: int) -> int:
        start = self.graph.tape.block(cell).start
        return self.starts[start] + cell - start

    def _written(self, tree: Expression, name: str) -> Any:
        if isinstance(tree, Leaf):
            return self._place(tree.cell)
        if isinstance(tree, Number):
            value = float(tree.value)
            return ["#", value if math.isfinite(value) else str(value)]
        if isinstance(tree, Total):
            return ["sum", *(self._written(part, name) for part in tree.parts)]
        if isinstance(tree, Dot):
            sides = (*tree.left, *tree.right)
            return ["dot", *(self._written(part, name) for part in sides)]
        if tree.name in CASTS:  # the page computes in double precision
            return self._written(tree.parts[0], name)
        if tree.name not in FUNCTIONS:
            raise ValueError(f"{name}: the page cannot compute {tree.name}")
        return [tree.name, *(self._written(part, name) for part in tree.parts)]

    def _tensor(self, block: Block) -> dict[str, Any]:
        entry = self.trace[block.name] if block.name in self.trace else None
        step = find_step(entry.step) if entry is not None and entry.step else None
        cells = range(block.start, block.start + block.values.numel())
        trees = [self.tree(cell) for cell in cells]
        made = any(tree != Leaf(cell) for tree, cell in zip(trees, cells, strict=True))
        held = {"trees": [self._written(tree, block.name) for tree in trees]}
        if not made:
            held = {"numbers": [_plain(number) for number in block.numbers]}
        return {
            "name": block.name,
            "axes": list(block.axes or ("",) * len(block.shape)),
            "shape": list(block.shape),
            "type": _type(block.values.dtype),
            "weight": block.is_parameter,
            "words": [self._words(block, axis) for axis in block.axes or ("",) * len(block.shape)],
            "code": "" if entry is None else entry.code,
            "step": f"{step.number} {step.title}" if step else "",
            **held,
        }

    def _words(self, block: Block, axis: str) -> Any:
        """Return the words of an axis: the name of a tensor of ids, a list of words, or None."""
        named = self.graph.tape.named
        role = axis
        if axis in ("query", "key") and axis not in self.labels:
            side = "src" if block.name.startswith(("encoder", "src")) else "tgt"
            role = "src" if axis == "key" and "cross_attention" in block.name else side
        if role in ("src", "tgt") and "ids" in named:
            role = "seq"  # decoder-only model
        holder = "ids" if role == "seq" else role
        ids = named.get(holder)
        if (
            ids is not None
            and "vocab" in self.labels
            and "batch" in block.axes
            and block.shape[block.axes.index(axis)] == ids.shape[-1]
            and not ids.values.dtype.is_floating_point
        ):
            return holder
        axes = tuple(role if each == axis else each for each in block.axes)
        return fitting(self.labels, axes, block.shape).get(role) if axis else None


def _type(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "bool"
    return "float" if dtype.is_floating_point else "int"


def _plain(number: float) -> float | str:
    return +number if math.isfinite(number) else str(number)  # converts True and False to 1 and 0
