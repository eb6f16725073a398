"""The arithmetic of each operation, one element at a time.

To support a new operation, add a function to the table:

    @formula("lgamma")
    def _lgamma(arg: Output) -> Expression:
        return call("lgamma", arg(0))

`arg(0)` is the element of the first argument at the position of the output element. An operation
without a formula, or whose formula returns None, is decomposed by torch's own decomposition.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from twelve_lab.explain.expression import (
    CASTS,
    COMPARISONS,
    Apply,
    Dot,
    Expression,
    Leaf,
    Number,
    Total,
    call,
)
from twelve_lab.explain.tape import Cells, Operation, index_of

Formula = Callable[["Output"], Expression | None]
FORMULAS: dict[str, Formula] = {}
LOGIC = {
    "logical_not": "NOT", "bitwise_not": "NOT", "logical_and": "AND", "bitwise_and": "AND",
    "logical_or": "OR", "bitwise_or": "OR",
}  # fmt: skip
# Kernels of scaled_dot_product_attention: one for the CPU, three for GPUs.
FUSED_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
)  # fmt: skip
LARGEST_EXP = 300.0  # for larger scores, the formula of softmax subtracts the maximum


class Output:
    """One element of an operation's output, with access to the operation's inputs."""

    def __init__(self, operation: Operation, place: int, value: Callable[[int], float]) -> None:
        """Select one element of an operation's output.

        Args:
            operation: The operation.
            place: Position of the element in the output, in row-major order.
            value: Function that returns the number in a cell.
        """
        self.operation, self.value = operation, value
        self.index = index_of(place, operation.shape)

    def __call__(self, position: int) -> Expression:
        """Return the element of an argument that broadcasts to this output element."""
        part = self.operation.args[position]
        if not isinstance(part, Cells):
            return Number(float(part))
        return Leaf(int(part.of.expand(self.operation.shape)[self.index]))

    def truth(self, position: int) -> bool:
        """Return whether a mask is True at this output element."""
        mask = self(position)
        return bool(self.value(mask.cell) if isinstance(mask, Leaf) else mask.value)

    def get(self, name: str) -> Any:
        """Return the value of an argument: as passed, its default, or None."""
        return self.operation.get(name)

    def cells(self, position: int) -> Tensor:
        """Return the cells of a tensor argument."""  # words: allow
        return self.operation.args[position].of

    def line(self, dims: Any) -> list[int]:
        """List the cells of the first argument that a reduction over `dims` combines."""
        cells, keepdim = self.cells(0), self.get("keepdim")
        rank = cells.ndim
        dims = range(rank) if dims is None or dims == [] else dims
        dims = {dim % rank for dim in ([dims] if isinstance(dims, int) else dims)}
        left = iter(self.index)
        places = [slice(None) if dim in dims else next(left) for dim in range(rank)]
        if keepdim:
            places = [slice(None) if dim in dims else self.index[dim] for dim in range(rank)]
        return cells[tuple(places)].flatten().tolist()


def formula(*names: str) -> Callable[[Formula], Formula]:
    """Register a formula for the named operations."""

    def enter(function: Formula) -> Formula:
        for name in names:
            FORMULAS[name] = function
        return function

    return enter


def expression_of(
    operation: Operation,
    place: int,
    value: Callable[[int], float],
    formulas: Mapping[str, Formula] = FORMULAS,
) -> Expression | None:
    """Return the arithmetic of one output element, or None without a formula."""
    if operation.name not in formulas:
        return None
    return formulas[operation.name](Output(operation, place, value))


def _sum(cells: list[int]) -> Expression:
    return Total(tuple(map(Leaf, cells))) if cells else Number(0.0)


def _scaled(arg: Output, position: int) -> Expression:
    alpha = arg.get("alpha")
    return arg(position) if alpha in (None, 1) else Number(alpha) * arg(position)


FORMULAS["add"] = lambda arg: arg(0) + _scaled(arg, 1)
FORMULAS["sub"] = lambda arg: arg(0) - _scaled(arg, 1)
FORMULAS["rsub"] = lambda arg: arg(1) - _scaled(arg, 0)
FORMULAS["mul"] = lambda arg: arg(0) * arg(1)
FORMULAS["pow"] = lambda arg: arg(0) ** arg(1)


@formula("div")
def _div(arg: Output) -> Expression | None:
    return None if arg.get("rounding_mode") else arg(0) / arg(1)


FORMULAS["neg"] = lambda arg: -arg(0)
FORMULAS["reciprocal"] = lambda arg: Number(1) / arg(0)
FORMULAS["rsqrt"] = lambda arg: Number(1) / call("sqrt", arg(0))
FORMULAS["relu"] = lambda arg: call("max", Number(0.0), arg(0))
FORMULAS["maximum"] = lambda arg: call("max", arg(0), arg(1))
FORMULAS["minimum"] = lambda arg: call("min", arg(0), arg(1))
for _name in (
    "abs acos asin atan ceil cos cosh erf erfc exp exp2 expm1 floor log log10 log1p log2 sin sinh "
    "sqrt tan tanh trunc"
).split():
    FORMULAS[_name] = lambda arg, name=_name: call(name, arg(0))
for _name, _sign in zip(("eq", "ne", "lt", "le", "gt", "ge"), COMPARISONS, strict=True):
    FORMULAS[_name] = lambda arg, sign=_sign: Apply(sign, (arg(0), arg(1)))


@formula(*LOGIC)
def _logic(arg: Output) -> Expression | None:
    """Express logic as arithmetic: 1 for True, 0 for False."""
    if any(isinstance(part, Cells) and part.dtype != torch.bool for part in arg.operation.args):
        return None  # bitwise on integers
    word = LOGIC[arg.operation.name]
    if word == "NOT":
        return Number(1) - arg(0)
    return arg(0) * arg(1) if word == "AND" else call("max", arg(0), arg(1))


@formula("sigmoid")
def _sigmoid(arg: Output) -> Expression:
    """Return sigmoid in a form that cannot overflow exp."""
    x = arg(0)
    if isinstance(x, Leaf) and arg.value(x.cell) < 0:
        return call("exp", x) / (Number(1) + call("exp", x))
    return Number(1) / (Number(1) + call("exp", -x))


@formula("silu")
def _silu(arg: Output) -> Expression:
    return arg(0) * _sigmoid(arg)


@formula("_to_copy", "convert_element_type")
def _convert(arg: Output) -> Expression:
    """Return a conversion: integers truncate, and low-precision floats round."""
    dtype = arg.get("dtype")
    if (name := str(dtype).removeprefix("torch.")) in CASTS:
        return call(name, arg(0))
    if dtype == torch.bool:
        return Apply("!=", (arg(0), Number(0.0)))
    return arg(0) if dtype is None or dtype.is_floating_point else call("trunc", arg(0))


@formula("gelu")
def _gelu(arg: Output) -> Expression | None:
    if arg.get("approximate") != "none":
        return None
    x = arg(0)
    bend = call("erf", x / Number(math.sqrt(2)))
    return Number(0.5) * x * (Number(1) + bend)


@formula("mm", "bmm", "mv", "dot")
def _matmul(arg: Output) -> Expression:
    return _row_times_column(arg, arg.cells(0), arg.cells(1))


@formula("addmm")
def _addmm(arg: Output) -> Expression | None:
    if (arg.get("alpha"), arg.get("beta")) != (1, 1):
        return None
    return _row_times_column(arg, arg.cells(1), arg.cells(2)) + arg(0)


def _row_times_column(arg: Output, a: Tensor, b: Tensor) -> Expression:
    row = a[arg.index[: a.ndim - 1]]
    column = b[(*arg.index[: max(b.ndim - 2, 0)], slice(None), *arg.index[a.ndim - 1 :])]
    return _dot(row, column)


def _dot(a: Tensor, b: Tensor) -> Expression:
    left, right = (tuple(map(Leaf, cells.tolist())) for cells in (a, b))
    return left[0] * right[0] if len(left) == 1 else Dot(left, right)


def reduced(arg: Output) -> list[int]:
    """List the cells that a reduction combines into this output element."""
    return arg.line(arg.get("dims") if arg.get("dim") is None else arg.get("dim"))


@formula("sum")
def _total(arg: Output) -> Expression:
    return _sum(reduced(arg))


@formula("mean")
def _mean(arg: Output) -> Expression:
    cells = reduced(arg)
    return _sum(cells) / Number(len(cells))


@formula("var")
def _var(arg: Output) -> Expression:
    correction = arg.get("correction")
    return _variance(reduced(arg), 1 if correction is None else correction)


@formula("std")
def _std(arg: Output) -> Expression:
    return call("sqrt", _var(arg))


def _variance(cells: list[int], correction: float) -> Expression:
    mean = _sum(cells) / Number(len(cells))
    squares = tuple((Leaf(cell) - mean) ** Number(2) for cell in cells)
    return Total(squares) / Number(len(cells) - correction)


@formula("prod")
def _prod(arg: Output) -> Expression:
    return functools.reduce(operator.mul, map(Leaf, reduced(arg)))


@formula("amax", "amin", "max", "min")
def _extreme(arg: Output) -> Expression | None:
    if arg.operation.output:  # the index of the maximum
        return None
    return call(arg.operation.name[-3:], *map(Leaf, reduced(arg)))


@formula("embedding")
def _embedding(arg: Output) -> Expression:
    *place, column = arg.index
    row = int(arg.value(int(arg.cells(1)[tuple(place)])))
    return Leaf(int(arg.cells(0)[row, column]))


@formula("gather")
def _gather(arg: Output) -> Expression:
    dim = arg.get("dim")
    places = list(arg.index)
    places[dim] = int(arg.value(int(arg.cells(2)[arg.index])))
    return Leaf(int(arg.cells(0)[tuple(places)]))


@formula("masked_fill")
def _masked_fill(arg: Output) -> Expression:
    return arg(2) if arg.truth(1) else arg(0)


@formula("where")
def _where(arg: Output) -> Expression:
    return arg(1) if arg.truth(0) else arg(2)


@formula("_softmax", "_safe_softmax")
def _softmax(arg: Output) -> Expression:
    cells, here = along(arg)
    top, bottom = _exponentials(arg, cells, here)
    return top / bottom


@formula("_log_softmax")
def _log_softmax(arg: Output) -> Expression:
    cells, here = along(arg)
    _, bottom = _exponentials(arg, cells, here)
    shift = _shift(arg, cells)
    own = Leaf(cells[here]) if shift is None else Leaf(cells[here]) - Number(shift)
    return own - call("log", bottom)


@formula("logsumexp")
def _logsumexp(arg: Output) -> Expression:
    cells = reduced(arg)
    shift = _shift(arg, cells)
    result = call("log", _exponentials(arg, cells, 0)[1])
    return result if shift is None else result + Number(shift)


def along(arg: Output) -> tuple[list[int], int]:
    """List the cells that the softmax of this element runs over, and its position among them."""
    dim = arg.get("dim") % len(arg.index)
    places = (*arg.index[:dim], slice(None), *arg.index[dim + 1 :])
    return arg.cells(0)[places].tolist(), arg.index[dim]


def _shift(arg: Output, cells: list[int]) -> float | None:
    largest = max(arg.value(cell) for cell in cells)
    return largest if math.isfinite(largest) and abs(largest) > LARGEST_EXP else None


def _exponentials(arg: Output, cells: list[int], here: int) -> tuple[Expression, Expression]:
    shift = _shift(arg, cells)
    scores: list[Expression] = [Leaf(cell) for cell in cells]
    if shift is not None:
        scores = [score - Number(shift) for score in scores]
    powers = tuple(call("exp", score) for score in scores)
    return powers[here], Total(powers)


@formula("native_layer_norm")
def _layer_norm(arg: Output) -> Expression | None:
    if arg.operation.output:  # the mean or the reciprocal standard deviation
        return None
    inner = arg.index[-len(arg.get("normalized_shape")) :]
    row = arg.cells(0)[arg.index[: -len(inner)]].flatten().tolist()
    mean = _sum(row) / Number(len(row))
    root = call("sqrt", _variance(row, 0) + Number(arg.get("eps")))
    result = (arg(0) - mean) / root
    if arg.get("weight") is not None:
        result = result * Leaf(int(arg.cells(2)[inner]))
    return result if arg.get("bias") is None else result + Leaf(int(arg.cells(3)[inner]))


def attention(
    arg: Output, masked: Callable[[Expression, Leaf], Expression]
) -> tuple[list[Expression], tuple[Expression, ...]] | None:
    """Return the scores of fused attention, and the values that softmax weights.

    Args:
        arg: The output element.
        masked: Function that combines a score with the mask's entry.

    Returns:
        Scores and values, one for each key; None if the output has no formula.
    """
    if arg.operation.output or arg.get("dropout_p"):  # backward-pass outputs; random dropout
        return None
    *batch, head, query, feature = arg.index
    parts = (arg.cells(n)[tuple(batch)] for n in range(3))
    # A group of query heads may share keys and values.
    q, k, v = (part[head * len(part) // arg.operation.shape[-3]] for part in parts)
    scale = arg.get("scale")
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    mask = arg.get("attn_mask") or arg.get("attn_bias")
    scores = [_dot(q[query], row) * Number(scale) for row in k]
    if mask is not None:
        entries = mask.of.expand(*arg.operation.shape[:-2], len(q), len(k))[arg.index[:-1]]
        scores = [masked(*pair) for pair in zip(scores, map(Leaf, entries.tolist()), strict=True)]
    if arg.get("is_causal"):
        scores[query + 1 :] = [Number(-math.inf)] * len(scores[query + 1 :])
    return scores, tuple(map(Leaf, v[:, feature].tolist()))


@formula(*FUSED_ATTENTION)
def _attention(arg: Output) -> Expression | None:
    def masked(score: Expression, entry: Leaf) -> Expression:
        added = arg.value(entry.cell)
        if added == -math.inf:
            return Number(added)
        return score + Number(added) if added else score

    if (written := attention(arg, masked)) is None:
        return None
    scores, values = written
    if all(isinstance(score, Number) for score in scores):
        return Number(0.0)
    powers = tuple(call("exp", score) for score in scores)
    return Dot(powers, values) / Total(powers)


def _condition(arg: Output) -> Expression | None:
    word = LOGIC[arg.operation.name]
    if _logic(arg) is None:
        return None
    return call(word, *(arg(n) for n in range(1 if word == "NOT" else 2)))


# Masks as conditions, for formulas that are recomputed after a change: in a spreadsheet, or on the
# page of the explorer.
CONDITIONS: dict[str, Formula] = {
    "masked_fill": lambda arg: call("IF", arg(1), arg(2), arg(0)),
    "where": lambda arg: call("IF", arg(0), arg(1), arg(2)),
    "all": lambda arg: call("AND", *map(Leaf, reduced(arg))),
    "any": lambda arg: call("OR", *map(Leaf, reduced(arg))),
    **dict.fromkeys(LOGIC, _condition),
}
