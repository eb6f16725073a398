"""Elementwise operations, comparisons, reductions and products.

Each function is registered as torch.name and Tensor.name, where PyTorch has that name.
"""

import cmath
import math
import operator
import warnings
from collections import namedtuple
from itertools import accumulate, repeat

from ._errors import check, error
from ._layout import axes, axis, broadcast, reader
from ._registry import FUNCTIONS, METHODS, register, register_module
from ._tensor import Tensor, as_tensor, dtype_of, make, record, spread, unbroadcast
from ._types import STATE, bool_, int64, larger, real_of

# Unary operations.


def _apply(f, *columns):
    """Apply f elementwise; where f fails, the result is nan or infinite."""
    try:
        return list(map(f, *columns))
    except (ValueError, OverflowError, ZeroDivisionError):
        return [_alone(f, *numbers) for numbers in zip(*columns)]


def _alone(f, *numbers):
    try:
        return f(*numbers)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf


def mapped(f, x, dtype=None):
    """Apply f elementwise; the results must already have the dtype."""
    return make(list(map(f, x._values())), x.shape, dtype or x.dtype)


def _log(of, pole=0):
    return lambda v: of(v) if v > pole else -math.inf if v == pole else math.nan


def _power(x, y):
    try:
        v = x**y
    except ZeroDivisionError:
        return math.copysign(math.inf, x) if y % 2 else math.inf
    except OverflowError:
        return -math.inf if x < 0 and y % 2 else math.inf
    return math.nan if isinstance(v, complex) and isinstance(x, float | int) else v


def _divide(x, y):
    if y:
        return x / y
    return math.nan if x != x or x == 0 else math.copysign(math.inf, x) * math.copysign(1.0, y)


def _sigmoid(v):
    return 1 / (1 + math.exp(-v)) if v > -700 else 0.0


def _rounder(f):
    return lambda v: type(v)(f(v)) if isinstance(v, int) or math.isfinite(v) else v


def _conj(x):
    if isinstance(x, Tensor):
        return x.conj() if x.dtype.is_complex else x
    return x.conjugate()


def _flat(g, *_):
    return g * 0


# The function, its gradient from g, input x and output y, and whether x or y is saved.
_REAL = {
    "exp": (math.exp, lambda g, x, y: g * _conj(y), "y"),
    "exp2": (math.exp2, lambda g, x, y: g * y * math.log(2), "y"),
    "expm1": (math.expm1, lambda g, x, y: g * (y + 1), "y"),
    "log": (_log(math.log), lambda g, x, y: g / x, "x"),
    "log2": (_log(math.log2), lambda g, x, y: g / (x * math.log(2)), "x"),
    "log10": (_log(math.log10), lambda g, x, y: g / (x * math.log(10)), "x"),
    "log1p": (_log(math.log1p, -1), lambda g, x, y: g / (1 + x), "x"),
    "sqrt": (math.sqrt, lambda g, x, y: g / (2 * y), "y"),
    "rsqrt": (lambda v: _power(v, -0.5), lambda g, x, y: g * -0.5 * y**3, "y"),
    "sin": (math.sin, lambda g, x, y: g * x.cos(), "x"),
    "cos": (math.cos, lambda g, x, y: -g * x.sin(), "x"),
    "tan": (math.tan, lambda g, x, y: g * (1 + y * y), "y"),
    "atan": (math.atan, lambda g, x, y: g / (1 + x * x), "x"),
    "tanh": (math.tanh, lambda g, x, y: g * (1 - y * y), "y"),
    "sigmoid": (_sigmoid, lambda g, x, y: g * y * (1 - y), "y"),
    "erf": (math.erf, lambda g, x, y: g * (-x * x).exp() * (2 / math.sqrt(math.pi)), "x"),
    "reciprocal": (lambda v: _divide(1.0, v), lambda g, x, y: -g * y * y, "y"),
}
_COMPLEX = {"sqrt": cmath.sqrt, "exp": cmath.exp, "sin": cmath.sin, "cos": cmath.cos}
# Functions that keep the dtype.
_SAME = {
    "neg": (operator.neg, lambda g, x, y: -g, ""),
    "relu": (lambda v: v if v > 0 or v != v else v * 0, lambda g, x, y: g * (y > 0), "y"),
    "sign": (lambda v: (v > 0) - (v < 0) + v * 0, _flat, ""),
    "floor": (_rounder(math.floor), _flat, ""),
    "ceil": (_rounder(math.ceil), _flat, ""),
    "trunc": (_rounder(math.trunc), _flat, ""),
    "conj": (lambda v: v.conjugate(), lambda g, x, y: _conj(g), ""),
}
_TESTS = {
    "isnan": lambda v: v != v,
    "isinf": lambda v: v in (math.inf, -math.inf),
    "isfinite": math.isfinite,
    "logical_not": operator.not_,
}


def _unary(name, f, slope, saved):
    def function(input):
        dtype = input.dtype if name in _SAME or input.dtype.rank > 1 else STATE.dtype
        check(name != "neg" or dtype is not bool_, "bool_negation")
        by = _COMPLEX[name] if dtype.is_complex and name in _COMPLEX else f
        out = make(dtype.fit(_apply(by, input._values())), input.shape, dtype)
        if not (input._requires and STATE.grad):
            return out
        x, y = input.detach(), out.detach()
        keep = {"x": (input,), "y": (out,)}.get(saved, ())
        return record(out, (input,), lambda g: slope(g, x, y), keep, name.capitalize())

    return function


def _test(f):
    return lambda input: mapped(f, input, bool_)


register({name: _unary(name, *row) for name, row in {**_REAL, **_SAME}.items()})
register({name: _test(f) for name, f in _TESTS.items()})


def abs_(input):
    dtype = real_of(input.dtype) if input.dtype.is_complex else input.dtype
    out, x = mapped(abs, input, dtype), input.detach()
    return record(out, (input,), lambda g: g * sgn(x), (input,), "Abs")


def sgn(input):
    return input / input.abs().clamp(min=1e-300) if input.dtype.is_complex else input.sign()


def round_(input, *, decimals=0):
    def f(v):
        return type(v)(round(v * by)) / by if math.isfinite(v) else v

    by = 10**decimals
    values = list(map(f, input._values())) if input.dtype.rank > 1 else input._values()
    out = make(input.dtype.fit(values), input.shape, input.dtype)
    return record(out, (input,), _flat, (), "Round")


def bitwise_not(input):
    check(input.dtype.rank < 2, "invert")
    f = operator.not_ if input.dtype is bool_ else operator.invert
    return make(input.dtype.fit(list(map(f, input._values()))), input.shape, input.dtype)


# Binary operations.


def promote(a, b):
    """Return the dtype of a result; numbers and 0-d tensors count only by their kind."""

    def rank(x):
        return x.dtype.rank if isinstance(x, Tensor) else dtype_of([x]).rank

    kind = getattr(a, "dtype", None)
    if kind and (kind is getattr(b, "dtype", None) or (type(b) is float and kind.rank == 2)):
        return kind
    highest = max(rank(a), rank(b))
    tensors = [x for x in (a, b) if isinstance(x, Tensor)]
    for group in ([x for x in tensors if x.ndim], tensors):
        kinds = [x.dtype for x in group if rank(x) == highest]
        if kinds:
            return kinds[0] if len(kinds) == 1 else larger(*kinds)
    number = a if rank(a) > rank(b) else b
    return dtype_of([number.item() if isinstance(number, Tensor) else number])


def _columns(name, a, b):
    """Return the shape of a result, and the elements of both operands in that shape."""
    for x in (a, b):
        if not isinstance(x, Tensor | int | float | complex):
            raise error("argument", name, "other", 1, "Tensor", type(x).__name__)
    if not isinstance(a, Tensor):
        shape = b.shape
    elif not isinstance(b, Tensor) or a.shape == b.shape:
        shape = a.shape
    else:
        shape = broadcast(a.shape, b.shape)
    count = math.prod(shape)
    return shape, *(spread(x, shape) if isinstance(x, Tensor) else repeat(x, count) for x in (a, b))


def _trains(x):
    return isinstance(x, Tensor) and x._requires


def _binary(name, f, slope_a=None, slope_b=None, needed_a="", needed_b=""):
    """Return an operation on two tensors, or on a tensor and a number."""

    def function(input, other):
        a, b = input, other
        shape, *columns = _columns(name, a, b)
        dtype = promote(a, b)
        dtype = STATE.dtype if name in ("div", "atan2") and dtype.rank < 2 else dtype
        values = _apply(f, *columns)
        if dtype.rank == 2 and type(a) is not type(b):
            values = list(map(float, values))
        out = make(dtype.fit(values), shape, dtype)
        if slope_a is None or not STATE.grad or not (_trains(a) or _trains(b)):
            return out
        x, y = (each.detach() if isinstance(each, Tensor) else each for each in (a, b))
        o = out.detach()

        def back(g):
            return (
                unbroadcast(slope_a(g, x, y, o), a.shape) if _trains(a) else None,
                unbroadcast(slope_b(g, x, y, o), b.shape) if _trains(b) else None,
            )

        need = needed_a * _trains(a) + needed_b * _trains(b)
        keep = [x for letter, x in zip("abo", (a, b, out)) if letter in need]
        keep = [x for x in keep if isinstance(x, Tensor)]
        return record(out, (a, b), back, keep, name.capitalize())

    return function


def _floored(x, y):
    if y:
        return x // y
    check(not (isinstance(x, int) and isinstance(y, int)), "zero_division")
    return _divide(x, y)


def _log_of_sum(x, y):
    high = max(x, y)
    if math.isfinite(x) and math.isfinite(y):
        return high + math.log1p(math.exp(-abs(x - y)))
    return high if x == x and y == y else math.nan


def _winner(wins):
    """Return the gradient function of an operand that wins; equal operands share the gradient."""
    return lambda g, a, b, o: g * wins(a, b) + g * (a == b) * 0.5


# The function, the gradients of a and b from g, a, b and output o, and what each gradient needs.
_BINARY = {
    "add": (operator.add, lambda g, a, b, o: g, lambda g, a, b, o: g, "", ""),
    "sub": (operator.sub, lambda g, a, b, o: g, lambda g, a, b, o: -g, "", ""),
    "mul": (operator.mul,
            lambda g, a, b, o: g * _conj(b), lambda g, a, b, o: g * _conj(a), "b", "a"),
    "div": (_divide, lambda g, a, b, o: g / _conj(b),
            lambda g, a, b, o: -g * _conj(o) / _conj(b), "b", "ab"),
    "pow": (_power, lambda g, a, b, o: g * _conj(b * a ** (b - 1)),
            lambda g, a, b, o: g * where(o == 0, 0.0, o * as_tensor(a, o.dtype).log()),
            "ab", "abo"),
    "floor_divide": (_floored, None, None, "", ""),
    "remainder": (lambda x, y: x % y if y else _floored(x, y) * math.nan, lambda g, a, b, o: g,
                  lambda g, a, b, o: -g * floor_divide(a, b), "a", "ab"),
    "maximum": (lambda x, y: y if y > x or y != y else x,
                _winner(operator.gt), _winner(operator.lt), "ab", "ab"),
    "minimum": (lambda x, y: y if y < x or y != y else x,
                _winner(operator.lt), _winner(operator.gt), "ab", "ab"),
    "atan2": (math.atan2, lambda g, a, b, o: g * b / (a * a + b * b),
              lambda g, a, b, o: -g * a / (a * a + b * b), "ab", "ab"),
    "logaddexp": (_log_of_sum, lambda g, a, b, o: g * (a - o).exp(),
                  lambda g, a, b, o: g * (b - o).exp(), "ao", "bo"),
}  # fmt: skip
_plain = {name: _binary(name, *row) for name, row in _BINARY.items()}
register(_plain)
floor_divide, maximum, minimum = (_plain[f] for f in ("floor_divide", "maximum", "minimum"))


def add(input, other, *, alpha=1):
    return _plain["add"](input, other if alpha == 1 else other * alpha)


def sub(input, other, *, alpha=1):
    bools = [x is bool_ or isinstance(x, bool) for x in (_kind(input), _kind(other))]
    check(not all(bools), "bools_subtraction")
    check(not any(bools), "bool_subtraction")
    return _plain["sub"](input, other if alpha == 1 else other * alpha)


def _kind(x):
    return x.dtype if isinstance(x, Tensor) else x


def div(input, other, *, rounding_mode=None):
    if rounding_mode == "trunc":
        return _plain["div"](input, other).trunc().to(promote(input, other))
    return floor_divide(input, other) if rounding_mode else _plain["div"](input, other)


def pow_(input, exponent):
    return _plain["pow"](input, exponent)


def _comparison(name, f):
    def function(input, other):
        shape, *columns = _columns(name, input, other)
        return make(list(map(f, *columns)), shape, bool_)

    return function


_COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")} | {
    "logical_and": lambda x, y: bool(x and y),
    "logical_or": lambda x, y: bool(x or y),
    "logical_xor": lambda x, y: bool(x) != bool(y),
}
register({name: _comparison(name, f) for name, f in _COMPARISONS.items()})


def _bitwise(name, f):
    plain = _binary(name, f)

    def function(input, other):
        for x in (input, other):
            title = x.dtype.title if isinstance(x, Tensor) else "Float"
            check(promote(x, x).rank < 2, "dtype", f"{name}_cpu", title)
        return plain(input, other)

    return function


_BITWISE = {
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift, "bitwise_right_shift": operator.rshift,
}  # fmt: skip
register({name: _bitwise(name, f) for name, f in _BITWISE.items()})


def clamp(input, min=None, max=None):
    check(min is not None or max is not None, "clamp")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        out = input if min is None else maximum(input, min)
        return out if max is None else minimum(out, max)
    dtype = promote(input, min if min is not None else max)
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    values = [low if v < low else v for v in input._values()]
    values = [high if v > high else v for v in values]
    out, x = make(dtype.cast(values), input.shape, dtype), input.detach()
    return record(out, (input,), lambda g: g * (x >= low) * (x <= high), (input,), "Clamp")


def masked_fill(input, mask, value):
    check(mask.dtype is bool_, "mask_dtype", mask.dtype.title.lower())
    value = value.item() if isinstance(value, Tensor) else value
    fits = dtype_of([value]).rank <= max(input.dtype.rank, 1)
    check(fits, "mask_overflow", input.dtype.title.lower())
    shape = broadcast(input.shape, mask.shape)
    value = input.dtype.cast([value])[0]
    pairs = zip(spread(input, shape), spread(mask, shape))
    out = make([value if hide else v for v, hide in pairs], shape, input.dtype)

    def back(g):
        return unbroadcast(masked_fill(g, mask, 0), input.shape)

    return record(out, (input,), back, (), "MaskedFill")


def where(condition, input=None, other=None):
    if input is None:
        return condition.nonzero().unbind(1)
    check(condition.dtype is bool_, "where", condition.dtype.title)
    dtype = promote(input, other)
    a, b = (x if isinstance(x, Tensor) else as_tensor(x, dtype) for x in (input, other))
    shape = broadcast(condition.shape, a.shape, b.shape)
    columns = zip(*(spread(x, shape) for x in (condition, a, b)))
    values = [x if yes else y for yes, x, y in columns]
    out = make(values if a.dtype is b.dtype else dtype.cast(values), shape, dtype)

    def back(g):
        parts = masked_fill(g, bitwise_not(condition), 0), masked_fill(g, condition, 0)
        return unbroadcast(parts[0], a.shape), unbroadcast(parts[1], b.shape)

    return record(out, (a, b), back, (), "Where")


def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    limit = 1.7976931348623157e308
    for test, value in (
        (lambda v: v != v, nan),
        (lambda v: v == math.inf, limit if posinf is None else posinf),
        (lambda v: v == -math.inf, -limit if neginf is None else neginf),
    ):
        input = masked_fill(input, mapped(test, input, bool_), value)
    return input


def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    check(input.dtype is other.dtype, "isclose", input.dtype.title, other.dtype.title)

    def near(x, y):
        if x == y or (x != x and y != y and equal_nan):
            return True
        return abs(y) != math.inf and abs(x - y) <= atol + rtol * abs(y)

    return _comparison("isclose", near)(input, other)


def equal(input, other):
    same = input.shape == other.shape
    return same and all(map(operator.eq, input._values(), other._values()))


# Reductions.


def rows(x, dim):
    """Read the elements row by row, where a row runs along the axes `dim`.

    Returns:
        The rows, the shape with the axes `dim` removed, and the shape with these axes at size 1.
    """
    dims = axes(dim, x.ndim)
    rest = [d for d in range(x.ndim) if d not in dims]
    shape, strides = (tuple(of[d] for d in rest + dims) for of in (x.shape, x._strides))
    values, small = reader(shape, strides, x._offset)(x._storage), shape[: len(rest)]
    size = math.prod(shape[len(rest) :])
    lines = list(zip(*[iter(values)] * size)) if size else [()] * math.prod(small)
    return lines, small, tuple(1 if d in dims else n for d, n in enumerate(x.shape))


def _reduced(name, x, dim, keepdim, f, dtype, back=None, saved=()):
    """Reduce each row with f; `back` receives the gradient with the reduced axes at size 1."""
    lines, small, kept = rows(x, dim)
    out = make(dtype.fit([f(row) for row in lines]), kept if keepdim else small, dtype)
    if back is None or not x._requires:
        return out
    y = out.detach().reshape(kept)
    return record(out, (x,), lambda g: back(g.reshape(kept), y), saved, name)


def _logical(f):
    return lambda input, dim=None, keepdim=False: _reduced("", input, dim, keepdim, f, bool_)


register({"any": _logical(any), "all": _logical(all)})


def _count(x, dim):
    return math.prod(x.shape[d] for d in axes(dim, x.ndim))


def _sum_dtype(x, dtype):
    return dtype or (x.dtype if x.dtype.rank > 1 else int64)


def sum_(input, dim=None, keepdim=False, *, dtype=None):
    dtype = _sum_dtype(input, dtype)
    source = input if input.dtype.rank == dtype.rank else input.to(dtype)
    start = 0.0 if dtype.rank == 2 else 0
    return _reduced(
        "Sum", source, dim, keepdim, lambda row: sum(row, start), dtype,
        lambda g, y: g.expand(input.shape),
    )  # fmt: skip


def mean(input, dim=None, keepdim=False, *, dtype=None):
    dtype = dtype or input.dtype
    check(dtype.rank > 1, "mean", dtype.title)
    return _plain["div"](sum_(input, dim, keepdim, dtype=dtype), _count(input, dim))


def prod(input, dim=None, keepdim=False, *, dtype=None):
    x, dtype = input.detach(), _sum_dtype(input, dtype)
    return _reduced("Prod", input, dim, keepdim, math.prod, dtype, lambda g, y: g * y / x, (input,))


def _variance(name, x, dim, unbiased, keepdim, correction):
    dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    correction = correction if unbiased is None else int(unbiased)
    center = mean(x, dim, True)
    deviation = x - center
    count = _count(x, dim) - correction
    if count <= 0:
        warnings.warn(error("degrees", name), stacklevel=3)
    out = _plain["div"](sum_(deviation * deviation, dim, keepdim), max(count, 0))
    return out, center.reshape(out.shape)


def _root(x, name):
    """Compute a square root with gradient 0 at 0."""
    y = x.detach().sqrt()
    return record(y.clone(), (x,), lambda g: masked_fill(g / (2 * y), y == 0, 0), (), name)


def var(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    return _variance("var", input, dim, unbiased, keepdim, correction)[0]


def std(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    return _root(_variance("std", input, dim, unbiased, keepdim, correction)[0], "Std")


def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    return _variance("var", input, dim, unbiased, keepdim, correction)


def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    square, center = _variance("std", input, dim, unbiased, keepdim, correction)
    return _root(square, "Std"), center


def norm(input, p="fro", dim=None, keepdim=False):
    p = 2 if p in ("fro", None) else p
    size = input.abs() if input.dtype.is_complex or p != 2 else input
    if p == math.inf:
        return FUNCTIONS["amax"](size, dim, keepdim)
    if p != 2:
        return sum_(size**p, dim, keepdim) ** (1 / p)
    return _root(sum_(size * size, dim, keepdim), "LinalgVectorNorm")


def logsumexp(input, dim, keepdim=False):
    x = input.detach() if input.dtype.rank > 1 else input.to(STATE.dtype)
    return _reduced(
        "Logsumexp", input, dim, keepdim, _log_sum, x.dtype, lambda g, y: g * (x - y).exp(),
        (input,),
    )  # fmt: skip


def _log_sum(row):
    top = max(row, default=-math.inf)
    if not math.isfinite(top):
        return top
    return top + math.log(sum(math.exp(v - top) for v in row))


def _extremes(name, pick, two):
    """Return the functions for the largest or the smallest element."""
    Pair = namedtuple(name, ("values", "indices"))

    def best(row):
        check(row, "empty_row", name)
        nans = [v for v in row if v != v]
        return nans[0] if nans else pick(row)

    def first(row):
        top = best(row)
        return next(i for i, v in enumerate(row) if v == top or v != v)

    def amax(input, dim=None, keepdim=False):
        x = input.detach()

        def back(g, y):
            same = (x == y).to(x.dtype)
            return same * g / sum_(same, dim, True)

        return _reduced(f"A{name}", input, dim, keepdim, best, input.dtype, back, (input,))

    def argmax(input, dim=None, keepdim=False):
        return _reduced("", input, dim, keepdim, first, int64)

    def largest(input, dim=None, keepdim=False, *, other=None):
        if isinstance(dim, Tensor) or other is not None:
            return two(input, dim if other is None else other)
        if dim is None:
            return amax(input)
        if not input.ndim:
            return Pair(input, argmax(input))
        pair = taken(input, dim, argmax(input, dim, True))
        return Pair(*(pair if keepdim else (x.squeeze(dim) for x in pair)))

    def cummax(input, dim):
        def places(row):
            return accumulate(
                range(len(row)), lambda i, j: j if pick(row[i], row[j]) == row[j] else i
            )

        return Pair(*taken(input, dim, along(input, dim, places, int64)))

    return {f"a{name}": amax, f"arg{name}": argmax, name: largest, f"cum{name}": cummax}


def taken(x, dim, index):
    """Return the elements at indices along an axis, and the indices."""
    return FUNCTIONS["gather"](x, dim, index), index


register(_extremes("max", max, maximum) | _extremes("min", min, minimum))


def along(x, dim, f, dtype):
    """Apply f to each row along an axis; f must return a row of the same length."""
    dim = axis(dim, x.ndim)
    line = x.detach().movedim(dim, -1) if x.ndim else x.detach().reshape(1)
    values = [v for row in rows(line, -1)[0] for v in f(row)]
    out = make(dtype.fit(values), line.shape, dtype)
    return out.movedim(-1, dim).contiguous().detach() if x.ndim else out.reshape(()).detach()


def _running(name, f, back):
    def function(input, dim, *, dtype=None):
        x = input.to(_sum_dtype(input, dtype))
        out = along(x, dim, lambda row: accumulate(row, f), x.dtype)
        y = out.detach()
        return record(out, (x,), lambda g: back(g, x.detach(), y, dim), (x,), name)

    return function


def _sum_ahead(g, dim):
    return g.flip(dim).cumsum(dim).flip(dim)


cumsum = _running("Cumsum", operator.add, lambda g, x, y, dim: _sum_ahead(g, dim))
cumprod = _running("Cumprod", operator.mul, lambda g, x, y, dim: _sum_ahead(g * y, dim) / x)


def _soft(name, title, f, slope):
    def function(input, dim, dtype=None):
        x = input if dtype is None else input.to(dtype)
        check(x.dtype.rank > 1, "dtype", f"{name}_lastdim_kernel_impl", x.dtype.title)
        out = along(x, dim, f, x.dtype)
        y = out.detach()
        return record(out, (x,), lambda g: slope(g, y, dim), (out,), title)

    return function


def _softened(row):
    top = max(row, default=0.0)
    if not math.isfinite(top):
        return [math.nan] * len(row)
    parts = [math.exp(v - top) for v in row]
    total = sum(parts)
    return [v / total for v in parts]


def _log_softened(row):
    total = _log_sum(row)
    if math.isfinite(total):
        return [v - total for v in row]
    return [math.nan] * len(row)


softmax = _soft("softmax", "Softmax", _softened, lambda g, y, d: y * (g - sum_(g * y, d, True)))
log_softmax = _soft(
    "log_softmax", "LogSoftmax", _log_softened, lambda g, y, d: g - y.exp() * sum_(g, d, True)
)


# Products.

# math.sumprod is new in Python 3.12.
_dot = getattr(math, "sumprod", None) or (lambda a, b: sum(map(operator.mul, a, b)))
_C_NAMES = {"Long": "int64_t", "Int": "int", "Bool": "bool", "Byte": "unsigned char"}


def _same_dtype(a, b):
    titles = a.dtype.title, b.dtype.title
    if a.dtype is b.dtype:
        return
    if a.ndim == b.ndim == 1:
        raise error("dot_dtype", *titles)
    if a.ndim > 2 and b.ndim > 2:
        raise error("bmm_scalar", *titles)
    raise error("matmul_dtype", *(_C_NAMES.get(title, title.lower()) for title in titles))


def matmul(input, other):
    a, b = input, other
    check(a.ndim and b.ndim, "matmul_scalar", a.ndim, b.ndim)
    _same_dtype(a, b)
    if a.ndim == 1:
        check(b.ndim > 1 or len(a) == len(b), "dot_size", len(a), len(b))
        return matmul(a.unsqueeze(0), b).squeeze(-2 if b.ndim > 1 else 0)
    if b.ndim == 1:
        fits = a.ndim > 2 or a.shape[-1] == len(b)
        check(fits, "matmul_vector", a.shape[0], a.shape[1], len(b))
        return matmul(a, b.unsqueeze(-1)).squeeze(-1)
    n, k, m = a.shape[-2], a.shape[-1], b.shape[-1]
    lead = broadcast(a.shape[:-2], b.shape[:-2])
    if k != b.shape[-2]:
        check(a.ndim > 2 and b.ndim > 2, "matmul", math.prod(a.shape[:-1]) if b.ndim == 2 else n,
              k, b.shape[-2], m)  # fmt: skip
        raise error("bmm", math.prod(lead), k, b.shape[-2])
    left, right = a.detach(), b.detach()
    flat, columns = spread(left, (*lead, n, k)), spread(right.mT, (*lead, m, k))
    values = [] if k else [a.dtype.number(0)] * (math.prod(lead) * n * m)
    for q in range(math.prod(lead)):
        ours = [flat[i : i + k] for i in range(q * n * k, (q + 1) * n * k, k or 1)]
        theirs = [columns[i : i + k] for i in range(q * k * m, (q + 1) * k * m, k or 1)]
        values += [_dot(row, column) for row in ours for column in theirs]
    out = make(a.dtype.fit(values), (*lead, n, m), a.dtype)

    def back(g):
        return (
            unbroadcast(matmul(g, _conj(right).mT), a.shape) if a._requires else None,
            unbroadcast(matmul(_conj(left).mT, g), b.shape) if b._requires else None,
        )

    saved = [x for x, y in ((b, a), (a, b)) if y._requires]
    return record(out, (a, b), back, saved, "Mm" if a.ndim == b.ndim == 2 else "Bmm")


def mm(input, mat2):
    check(input.ndim == 2, "matrix", "self", "matrix")
    check(mat2.ndim == 2, "matrix", "mat2", "matrix")
    return matmul(input, mat2)


def bmm(input, mat2):
    check(input.ndim == 3, "matrix", "batch1", "3D tensor")
    check(mat2.ndim == 3, "matrix", "batch2", "3D tensor")
    return matmul(input, mat2)


def dot(input, tensor):
    check(input.ndim == tensor.ndim == 1, "dot", input.ndim, tensor.ndim)
    return matmul(input, tensor)


def outer(input, vec2):
    for x, which in ((input, "self"), (vec2, "vec2")):
        check(x.ndim == 1, "outer", which, x.ndim)
    return input.unsqueeze(-1) * vec2


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    return add(input if beta == 1 else input * beta, mm(mat1, mat2), alpha=alpha)


def einsum(equation, *operands):
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = operands[0]
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    more = "more" if len(operands) > len(parts) else "fewer"
    check(len(parts) == len(operands), "einsum_count", more)
    # Digits stand for the axes of an ellipsis.
    extra = [x.ndim - len(part.replace("...", "")) for part, x in zip(parts, operands)]
    dots = "0123456789"[: max([n for n, part in zip(extra, parts) if "..." in part] or [0])]
    parts = [part.replace("...", dots[len(dots) - n :]) for part, n in zip(parts, extra)]
    if not arrow:
        once = [c for c in sorted({*left} - {*".,"}) if "".join(parts).count(c) == 1]
        right = "..." * ("..." in left) + "".join(once)
    right, sizes = right.replace("...", dots), {}
    for which, (part, x) in enumerate(zip(parts, operands)):
        check(len(part) == x.ndim, "einsum_ndim", len(part), x.ndim, which)
        for c, n in zip(part, x.shape):
            fits = sizes.setdefault(c, n) == n or 1 in (n, sizes[c])
            check(fits, "einsum_broadcast", c, n, which, sizes[c])
            sizes[c] = max(sizes[c], n)
    for c in right:
        check(c in sizes, "einsum_output", c)
    return _contract(parts, operands, right, "".join(sorted(sizes.keys() - {*right})))


def _contract(parts, operands, right, left_over):
    """Multiply the operands, and sum over the axes `left_over`."""
    placed = []
    for part, x in zip(parts, operands):
        for c in sorted(set(part)):
            while part.count(c) > 1:
                first = part.index(c)
                x = x.diagonal(dim1=first, dim2=part.index(c, first + 1))
                part = part.replace(c, "", 2) + c
        x = x.permute([part.index(c) for c in right + left_over if c in part])
        for i, c in enumerate(right + left_over):
            x = x if c in part else x.unsqueeze(i)
        placed.append(x)
    # A matrix product sums without storing the elementwise products.
    if len(placed) == 2 and left_over:
        count = len(right)
        a, b = placed
        inner = broadcast(a.shape[count:], b.shape[count:])
        a, b = (x.expand(*x.shape[:count], *inner).flatten(count) for x in placed)
        return (a.unsqueeze(-2) @ b.unsqueeze(-1)).reshape(broadcast(a.shape[:-1], b.shape[:-1]))
    product = math.prod(placed[1:], start=placed[0])
    return product.sum(list(range(len(right), product.ndim))) if left_over else product


register_module(globals())
METHODS["where"] = lambda self, condition, other: where(condition, self, other)
