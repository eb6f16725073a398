"""The arithmetic of each operation, one element at a time.

To teach a new operation, add a function to the table:

    @formula("softplus")
    def _softplus(at: Element) -> Expression:
        return call("log1p", call("exp", at(0)))

`at(0)` is the element of the first argument that stands where the asked element stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from twelve_lab.explain.expression import (
    COMPARISONS,
    Apply,
    Dot,
    Expression,
    Leaf,
    Number,
    Total,
    add,
    call,
    divide,
    multiply,
    power,
    subtract,
)  # fmt: skip
from twelve_lab.explain.record import Cells, Operation, index_of

Formula = Callable[["Element"], Expression]
FORMULAS: dict[str, Formula] = {}
LARGEST_EXP = 300.0  # beyond it softmax subtracts the maximum in writing, too


class Element:
    """The element that is asked for, and its way to the elements it was computed from."""

    def __init__(self, operation: Operation, place: int, value: Callable[[int], float]) -> None:
        """Look at one place of an operation's output.

        Args:
            operation: What ran.
            place: Of the element in the output, counted row by row.
            value: Gives the number in a cell.
        """
        self.operation, self.value = operation, value
        self.index = index_of(place, operation.shape)

    def __call__(self, position: int) -> Expression:
        """Give the element of an argument that broadcasts to the place asked for."""
        part = self.argument(position)
        if not isinstance(part, Cells):
            return Number(float(part))
        return Leaf(int(part.of.expand(self.operation.shape)[self.index]))

    def truth(self, position: int) -> bool:
        """Tell whether a mask is True where the asked element stands."""
        mask = self.cells(position).expand(self.operation.shape)
        return bool(self.value(int(mask[self.index])))

    def argument(self, position: int, default: Any = None) -> Any:
        """Give an argument as it was passed."""
        args = self.operation.args
        return args[position] if position < len(args) else default

    def keyword(self, name: str, default: Any = None) -> Any:
        """Give a keyword argument as it was passed."""
        return self.operation.kwargs.get(name, default)

    def cells(self, position: int) -> Tensor:
        """Give the cells of a tensor argument."""
        return self.argument(position).of

    def line(self, dims: Any, keepdim: bool, cells: Tensor | None = None) -> list[int]:
        """List the cells that a reduction over `dims` brought together here."""
        cells = self.cells(0) if cells is None else cells
        rank = cells.ndim
        dims = range(rank) if dims is None or dims == [] else dims
        dims = sorted(dim % rank for dim in ([dims] if isinstance(dims, int) else dims))
        kept = iter(self.index)
        places: list[Any] = []
        for dim in range(rank):
            if dim in dims:
                places.append(slice(None))
                if keepdim:
                    next(kept)
            else:
                places.append(next(kept))
        return cells[tuple(places)].flatten().tolist()


def formula(*names: str) -> Callable[[Formula], Formula]:
    """Enter a formula under the names of the operations it describes."""

    def enter(function: Formula) -> Formula:
        for name in names:
            FORMULAS[name] = function
        return function

    return enter


def expression_of(operation: Operation, place: int, value: Callable[[int], float]) -> Expression:
    """Write the arithmetic of one element of an operation's output.

    Raises:
        ValueError: The operation has no formula yet.
    """
    if operation.name not in FORMULAS:
        raise ValueError(
            f"no formula for the operation aten::{operation.name}; add one to FORMULAS in "
            "twelve_lab.explain.formulas, as its first lines show"
        )
    return FORMULAS[operation.name](Element(operation, place, value))


def _sum(cells: list[int]) -> Expression:
    return Leaf(cells[0]) if len(cells) == 1 else Total(tuple(map(Leaf, cells)))


def _scaled(at: Element, position: int) -> Expression:
    alpha = at.keyword("alpha", 1)
    return at(position) if alpha == 1 else multiply(Number(alpha), at(position))


@formula("add")
def _add(at: Element) -> Expression:
    return add(at(0), _scaled(at, 1))


@formula("sub")
def _sub(at: Element) -> Expression:
    return subtract(at(0), _scaled(at, 1))


@formula("rsub")
def _rsub(at: Element) -> Expression:
    return subtract(at(1), at(0))


@formula("mul")
def _mul(at: Element) -> Expression:
    return multiply(at(0), at(1))


@formula("div")
def _div(at: Element) -> Expression:
    if at.keyword("rounding_mode"):
        raise ValueError("no formula for the operation aten::div with rounding_mode")
    return divide(at(0), at(1))


@formula("neg")
def _neg(at: Element) -> Expression:
    return Apply("neg", (at(0),))


@formula("reciprocal")
def _reciprocal(at: Element) -> Expression:
    return divide(Number(1), at(0))


@formula("pow")
def _pow(at: Element) -> Expression:
    return Apply("**", (at(0), at(1)))


@formula("square")
def _square(at: Element) -> Expression:
    return power(at(0), 2)


@formula("rsqrt")
def _rsqrt(at: Element) -> Expression:
    return divide(Number(1), call("sqrt", at(0)))


for _name in (
    "abs acos asin atan ceil cos cosh erf erfc exp exp2 expm1 floor log log10 log1p log2 sin sinh "
    "sqrt tan tanh trunc"
).split():
    FORMULAS[_name] = lambda at, name=_name: call(name, at(0))
for _name, _sign in zip(("eq", "ne", "lt", "le", "gt", "ge"), COMPARISONS, strict=True):
    FORMULAS[_name] = lambda at, sign=_sign: Apply(sign, (at(0), at(1)))
# Truth as a number: 1 for True, 0 for False.
FORMULAS["logical_not"] = FORMULAS["bitwise_not"] = lambda at: subtract(Number(1), at(0))
FORMULAS["logical_and"] = FORMULAS["bitwise_and"] = lambda at: multiply(at(0), at(1))
FORMULAS["logical_or"] = FORMULAS["bitwise_or"] = lambda at: call("max", at(0), at(1))
FORMULAS["maximum"] = lambda at: call("max", at(0), at(1))
FORMULAS["minimum"] = lambda at: call("min", at(0), at(1))


@formula("relu")
def _relu(at: Element) -> Expression:
    return call("max", Number(0.0), at(0))


@formula("clamp", "clamp_min", "clamp_max")
def _clamp(at: Element) -> Expression:
    name = at.operation.name
    low = None if name == "clamp_max" else _bound(at, 1, "min")
    high = None if name == "clamp_min" else _bound(at, 1 + (name == "clamp"), "max")
    result = at(0)
    if low is not None:
        result = call("max", low, result)
    return result if high is None else call("min", high, result)


def _bound(at: Element, position: int, keyword: str) -> Expression | None:
    bound = at.argument(position, at.keyword(keyword))
    if bound is None:
        return None
    return at(position) if isinstance(bound, Cells) else Number(float(bound))


@formula("sigmoid")
def _sigmoid(at: Element) -> Expression:
    return _logistic(at)


@formula("silu")
def _silu(at: Element) -> Expression:
    return multiply(at(0), _logistic(at))


def _logistic(at: Element) -> Expression:
    """Write it so that e is never raised to a large number."""
    x = at(0)
    if isinstance(x, Leaf) and at.value(x.cell) < 0:
        return divide(call("exp", x), add(Number(1), call("exp", x)))
    return divide(Number(1), add(Number(1), call("exp", Apply("neg", (x,)))))


@formula("softplus")
def _softplus(at: Element) -> Expression:
    beta = float(at.argument(1, at.keyword("beta", 1)))
    scaled = at(0) if beta == 1 else multiply(Number(beta), at(0))
    soft = call("log1p", call("exp", scaled))
    x = at(0)
    if isinstance(x, Leaf) and at.value(x.cell) * beta > at.argument(2, 20):
        return x
    return soft if beta == 1 else divide(soft, Number(beta))


@formula("leaky_relu")
def _leaky_relu(at: Element) -> Expression:
    slope = float(at.argument(1, 0.01))
    return add(
        call("max", Number(0.0), at(0)), multiply(Number(slope), call("min", Number(0.0), at(0)))
    )


@formula("_to_copy")
def _convert(at: Element) -> Expression:
    """Write a conversion: whole numbers lose what stands behind the point."""
    dtype = at.keyword("dtype")
    if dtype is None or dtype.is_floating_point:
        return at(0)
    if dtype == torch.bool:
        raise ValueError("no formula for the operation aten::_to_copy to bool")
    return call("trunc", at(0))


@formula("gelu")
def _gelu(at: Element) -> Expression:
    x = at(0)
    if at.keyword("approximate", "none") == "tanh":
        inner = add(x, multiply(Number(0.044715), power(x, 3)))
        bend = call("tanh", multiply(Number(math.sqrt(2 / math.pi)), inner))
    else:
        bend = call("erf", divide(x, Number(math.sqrt(2))))
    return multiply(multiply(Number(0.5), x), add(Number(1), bend))


@formula("mm", "bmm", "mv", "dot")
def _matmul(at: Element) -> Expression:
    return _row_times_column(at, at.cells(0), at.cells(1))


@formula("addmm", "baddbmm", "addmv")
def _addmm(at: Element) -> Expression:
    product = _row_times_column(at, at.cells(1), at.cells(2))
    alpha, beta = at.keyword("alpha", 1), at.keyword("beta", 1)
    product = product if alpha == 1 else multiply(Number(alpha), product)
    return add(product, at(0) if beta == 1 else multiply(Number(beta), at(0)))


def _row_times_column(at: Element, a: Tensor, b: Tensor) -> Expression:
    if a.ndim == 1:  # dot
        row, column = a, b
    elif b.ndim == 1:  # matrix times vector
        row, column = a[at.index[0]], b
    else:
        *outer, i, j = at.index
        row, column = a[(*outer, i)], b[(*outer, slice(None), j)]
    left, right = (tuple(map(Leaf, cells.tolist())) for cells in (row, column))
    return multiply(left[0], right[0]) if len(left) == 1 else Dot(left, right)


def _reduced(at: Element) -> list[int]:
    dims, keepdim = at.argument(1), at.argument(2, at.keyword("keepdim", False))
    return at.line(dims, keepdim)


@formula("sum")
def _total(at: Element) -> Expression:
    return _sum(_reduced(at))


@formula("mean")
def _mean(at: Element) -> Expression:
    cells = _reduced(at)
    return divide(_sum(cells), Number(len(cells)))


@formula("var")
def _var(at: Element) -> Expression:
    cells = at.line(at.argument(1), at.keyword("keepdim", False))
    correction = at.keyword("correction", 1)
    return _variance(cells, 1 if correction is None else correction)


@formula("std")
def _std(at: Element) -> Expression:
    return call("sqrt", _var(at))


def _variance(cells: list[int], correction: float) -> Expression:
    mean = divide(_sum(cells), Number(len(cells)))
    squares = tuple(power(subtract(Leaf(cell), mean), 2) for cell in cells)
    return divide(Total(squares), Number(len(cells) - correction))


@formula("embedding")
def _embedding(at: Element) -> Expression:
    *place, column = at.index
    row = int(at.value(int(at.cells(1)[tuple(place)])))
    return Leaf(int(at.cells(0)[row, column]))


@formula("masked_fill")
def _masked_fill(at: Element) -> Expression:
    return at(2) if at.truth(1) else at(0)


@formula("where")
def _where(at: Element) -> Expression:
    return at(1) if at.truth(0) else at(2)


@formula("cumsum")
def _cumsum(at: Element) -> Expression:
    dim = at.argument(1) % len(at.index)
    places = (*at.index[:dim], slice(at.index[dim] + 1), *at.index[dim + 1 :])
    return _sum(at.cells(0)[places].tolist())


@formula("prod")
def _prod(at: Element) -> Expression:
    first, *rest = map(Leaf, _reduced(at))
    result: Expression = first
    for factor in rest:
        result = multiply(result, factor)
    return result


@formula("linalg_vector_norm")
def _norm(at: Element) -> Expression:
    """Write the length of a vector."""
    if at.argument(1, 2) != 2:
        raise ValueError("no formula for the operation aten::linalg_vector_norm but of order 2")
    cells = at.line(at.argument(2), at.argument(3, at.keyword("keepdim", False)))
    return call("sqrt", Total(tuple(power(Leaf(cell), 2) for cell in cells)))


@formula("amax", "amin")
def _extreme(at: Element) -> Expression:
    return call(at.operation.name[1:], *map(Leaf, _reduced(at)))


@formula("max", "min")
def _max(at: Element) -> Expression:
    if at.operation.output:
        raise ValueError(f"output {at.operation.output} of aten::{at.operation.name} is an index")
    return call(at.operation.name, *map(Leaf, _reduced(at)))


@formula("_softmax", "_safe_softmax")
def _softmax(at: Element) -> Expression:
    cells, here = _along(at)
    top, bottom = _exponentials(at, [Leaf(cell) for cell in cells], here)
    return divide(top, bottom)


@formula("_log_softmax")
def _log_softmax(at: Element) -> Expression:
    cells, here = _along(at)
    scores = [Leaf(cell) for cell in cells]
    _, bottom = _exponentials(at, scores, here)
    shift = _shift(at, cells)
    own = scores[here] if shift is None else subtract(scores[here], Number(shift))
    return subtract(own, call("log", bottom))


@formula("logsumexp")
def _logsumexp(at: Element) -> Expression:
    cells = _reduced(at)
    shift = _shift(at, cells)
    _, bottom = _exponentials(at, [Leaf(cell) for cell in cells], 0)
    result = call("log", bottom)
    return result if shift is None else add(result, Number(shift))


def _along(at: Element) -> tuple[list[int], int]:
    """List the cells of the softmax that this element is in, and its place among them."""
    dim = at.argument(1) % len(at.index)
    places = (*at.index[:dim], slice(None), *at.index[dim + 1 :])
    return at.cells(0)[places].tolist(), at.index[dim]


def _shift(at: Element, cells: list[int]) -> float | None:
    largest = max(at.value(cell) for cell in cells)
    return largest if math.isfinite(largest) and abs(largest) > LARGEST_EXP else None


def _exponentials(
    at: Element, scores: list[Expression], here: int
) -> tuple[Expression, Expression]:
    shift = _shift(at, [score.cell for score in scores if isinstance(score, Leaf)])
    if shift is not None:
        scores = [subtract(score, Number(shift)) for score in scores]
    powers = tuple(call("exp", score) for score in scores)
    return powers[here], Total(powers)


@formula("native_layer_norm")
def _layer_norm(at: Element) -> Expression:
    sizes = at.argument(1)
    row = at.cells(0)[at.index[: -len(sizes)]].flatten().tolist()
    x = Leaf(int(at.cells(0)[at.index]))
    if at.operation.output:
        raise ValueError("of aten::native_layer_norm only the first output has a formula")
    mean = divide(_sum(row), Number(len(row)))
    root = call("sqrt", add(_variance(row, 0), Number(at.argument(4))))
    result = divide(subtract(x, mean), root)
    inner = at.index[-len(sizes) :]
    if at.argument(2) is not None:
        result = multiply(result, Leaf(int(at.cells(2)[inner])))
    return result if at.argument(3) is None else add(result, Leaf(int(at.cells(3)[inner])))


@formula(
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_attention_math",
)
def _attention(at: Element) -> Expression:
    if at.operation.output:
        raise ValueError(f"of aten::{at.operation.name} only the first output has a formula")
    *outer, query, feature = at.index
    q, k, v = (at.cells(n)[tuple(outer)] for n in range(3))
    scale = at.keyword("scale")
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    mask = at.keyword("attn_mask")
    allowed = None
    if isinstance(mask, Cells):
        allowed = mask.of.expand(*at.operation.shape[:-2], q.size(0), k.size(0))[(*outer, query)]
    scores: list[Expression] = []
    for key in range(k.size(0)):
        left, right = (tuple(map(Leaf, row.tolist())) for row in (q[query], k[key]))
        score = multiply(left[0], right[0]) if len(left) == 1 else Dot(left, right)
        score = multiply(score, Number(scale))
        hidden = Number(-math.inf)
        is_causal = at.argument(4, at.keyword("is_causal", False))
        if allowed is not None:
            added = at.value(int(allowed[key]))
            score = hidden if added == -math.inf else add(score, Number(added)) if added else score
        scores.append(hidden if is_causal and key > query else score)
    if all(isinstance(score, Number) for score in scores):
        return Number(0.0)
    powers = tuple(call("exp", score) for score in scores)
    values = tuple(map(Leaf, v[:, feature].tolist()))
    return divide(Dot(powers, values), Total(powers))


@formula("nll_loss_forward")
def _nll_loss(at: Element) -> Expression:
    """Write the loss over the labels that count: the mean, the sum, or one by one."""
    if at.operation.output:
        raise ValueError("of aten::nll_loss_forward only the first output has a formula")
    if at.argument(2) is not None:
        raise ValueError("no formula for the operation aten::nll_loss_forward with weights")
    rows, reduction, ignored = at.cells(0), at.argument(3), at.argument(4)
    rows = rows if rows.ndim == 2 else rows.unsqueeze(0)
    labels = [int(at.value(cell)) for cell in at.cells(1).flatten().tolist()]
    chosen = {i: Leaf(int(rows[i, label])) for i, label in enumerate(labels) if label != ignored}
    if reduction == 0:
        place = at.index[0] if at.index else 0
        return Apply("neg", (chosen[place],)) if place in chosen else Number(0.0)
    total = Apply("neg", (Total(tuple(chosen.values())),)) if chosen else Number(0.0)
    if reduction == 2:
        return total
    return divide(total, Number(len(chosen))) if chosen else Number(math.nan)
