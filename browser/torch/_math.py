"""Operations on each number, comparisons, reductions and products."""

import cmath
import math
import operator
import warnings
from collections import namedtuple
from itertools import accumulate, repeat

from ._registry import FUNCTIONS, METHODS, op, torch_only
from ._tensor import (
    STATE,
    Tensor,
    as_tensor,
    axes,
    axis,
    broadcast,
    dtype_of,
    make,
    reader,
    record,
    spread,
    unbroadcast,
)
from ._types import bool_, int64, larger, real_of


def apply(f, *columns):
    """Apply f to each number; where that fails, the result is nan or infinite."""
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


# One argument.


def _log(of):
    return lambda v: of(v) if v > 0 else -math.inf if v == 0 else math.nan


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


def _log1p(v):
    return math.log1p(v) if v > -1 else -math.inf if v == -1 else math.nan


# The function, and the gradient from g, the input x and the output y; "y" saves the output.
_REAL = {
    "exp": (math.exp, lambda g, x, y: g * conj(y), "y"),
    "exp2": (math.exp2, lambda g, x, y: g * y * math.log(2), "y"),
    "expm1": (math.expm1, lambda g, x, y: g * (y + 1), "y"),
    "log": (_log(math.log), lambda g, x, y: g / x, "x"),
    "log2": (_log(math.log2), lambda g, x, y: g / (x * math.log(2)), "x"),
    "log10": (_log(math.log10), lambda g, x, y: g / (x * math.log(10)), "x"),
    "log1p": (_log1p, lambda g, x, y: g / (1 + x), "x"),
    "sqrt": (math.sqrt, lambda g, x, y: g / (2 * y), "y"),
    "rsqrt": (lambda v: _power(v, -0.5), lambda g, x, y: g * -0.5 * y**3, "y"),
    "sin": (math.sin, lambda g, x, y: g * x.cos(), "x"),
    "cos": (math.cos, lambda g, x, y: -g * x.sin(), "x"),
    "tan": (math.tan, lambda g, x, y: g * (1 + y * y), "y"),
    "asin": (math.asin, lambda g, x, y: g * (1 - x * x).rsqrt(), "x"),
    "acos": (math.acos, lambda g, x, y: -g * (1 - x * x).rsqrt(), "x"),
    "atan": (math.atan, lambda g, x, y: g / (1 + x * x), "x"),
    "sinh": (math.sinh, lambda g, x, y: g * x.cosh(), "x"),
    "cosh": (math.cosh, lambda g, x, y: g * x.sinh(), "x"),
    "tanh": (math.tanh, lambda g, x, y: g * (1 - y * y), "y"),
    "sigmoid": (_sigmoid, lambda g, x, y: g * y * (1 - y), "y"),
    "erf": (math.erf, lambda g, x, y: g * (-x * x).exp() * (2 / math.sqrt(math.pi)), "x"),
    "reciprocal": (lambda v: _divide(1.0, v), lambda g, x, y: -g * y * y, "y"),
    "deg2rad": (math.radians, lambda g, x, y: g * math.radians(1), ""),
    "rad2deg": (math.degrees, lambda g, x, y: g * math.degrees(1), ""),
}
_COMPLEX = {"sqrt": cmath.sqrt, "exp": cmath.exp, "sin": cmath.sin, "cos": cmath.cos}


def _rounder(f):
    return lambda v: type(v)(f(v)) if isinstance(v, int) or math.isfinite(v) else v


# These keep the dtype.
_SAME = {
    "neg": (operator.neg, lambda g, x, y: -g, ""),
    "relu": (lambda v: v if v > 0 or v != v else v * 0, lambda g, x, y: g * (y > 0), "y"),
    "sign": (lambda v: (v > 0) - (v < 0) + v * 0, lambda g, x, y: g * 0, ""),
    "floor": (_rounder(math.floor), lambda g, x, y: g * 0, ""),
    "ceil": (_rounder(math.ceil), lambda g, x, y: g * 0, ""),
    "trunc": (_rounder(math.trunc), lambda g, x, y: g * 0, ""),
    "conj": (lambda v: v.conjugate(), lambda g, x, y: conj(g), ""),
}
_TESTS = {
    "isnan": lambda v: v != v,
    "isinf": lambda v: v in (math.inf, -math.inf),
    "isfinite": math.isfinite,
    "logical_not": operator.not_,
}


def _unary(name, f, slope, saved, same):
    def function(input):
        dtype = input.dtype if same or input.dtype.rank > 1 else STATE.dtype
        if name == "neg" and dtype is bool_:
            raise RuntimeError(
                "Negation, the `-` operator, on a bool tensor is not supported. If you are trying "
                "to invert a mask, use the `~` or `logical_not()` operator instead."
            )
        by = _COMPLEX[name] if dtype.is_complex and name in _COMPLEX else f
        values = dtype.fit(apply(by, input._values()))
        out = make(values, input.shape, dtype)
        if not (input._requires and STATE.grad):
            return out
        x, y = input.detach(), out.detach()
        keep = {"x": (input,), "y": (out,)}.get(saved, ())
        name_ = name.capitalize()
        return record(out, (input,), lambda g: (slope(g, x, y),), keep, name_)

    function.__name__ = name
    op(function)


for _name, (_f, _slope, _saved) in {**_REAL, **_SAME}.items():
    _unary(_name, _f, _slope, _saved, _name in _SAME)
for _name, _f in _TESTS.items():

    def _test(input, f=_f):
        return make(list(map(f, input._values())), input.shape, bool_)

    FUNCTIONS[_name] = METHODS[_name] = _test


def conj(x):
    """Return the complex conjugate."""
    if isinstance(x, Tensor):
        return METHODS["conj"](x) if x.dtype.is_complex else x
    return x.conjugate()


@op
def abs_(input):
    dtype = real_of(input.dtype) if input.dtype.is_complex else input.dtype
    out = make(list(map(abs, input._values())), input.shape, dtype)
    x = input.detach()
    return record(out, (input,), lambda g: (g * sgn(x),), (input,), "Abs")


def sgn(input):
    """Return the sign, or the direction of a complex number."""
    return input / input.abs().clamp(min=1e-300) if input.dtype.is_complex else input.sign()


@op
def round_(input, *, decimals=0):
    def f(v):
        return v if v != v or v in (math.inf, -math.inf) else type(v)(round(v * by)) / by

    by = 10**decimals
    values = list(map(f, input._values())) if input.dtype.rank > 1 else input._values()
    out = make(input.dtype.fit(values), input.shape, input.dtype)
    return record(out, (input,), lambda g: (g * 0,), (), "Round")


# Two arguments.


def promote(a, b):
    """Return the dtype of an operation: a number or a tensor of no axes counts by its kind."""

    def rank(x):
        return x.dtype.rank if isinstance(x, Tensor) else dtype_of([x]).rank

    kind = getattr(a, "dtype", None)
    if kind and (kind is getattr(b, "dtype", None) or (type(b) is float and kind.rank == 2)):
        return kind
    strong = [x for x in (a, b) if isinstance(x, Tensor) and x.ndim]
    tensors = [x for x in (a, b) if isinstance(x, Tensor)]
    for group in (strong, tensors):
        if group and max(map(rank, group)) == max(rank(a), rank(b)):
            group = [x.dtype for x in group if rank(x) == max(rank(a), rank(b))]
            return group[0] if len(group) == 1 else larger(*group)
    number = a if rank(a) > rank(b) else b
    return dtype_of([number.item() if isinstance(number, Tensor) else number])


def _column(x, shape, count):
    return spread(x, shape) if isinstance(x, Tensor) else repeat(x, count)


_OPERANDS = (Tensor, int, float, complex)


def _operand(name, a, b):
    for x in (a, b):
        if not isinstance(x, _OPERANDS):
            position = f"argument 'other' (position 1) must be Tensor, not {type(x).__name__}"
            raise TypeError(f"{name}(): {position}")


def _shape(a, b):
    if not isinstance(a, Tensor):
        return b.shape
    if not isinstance(b, Tensor) or a.shape == b.shape:
        return a.shape
    return broadcast(a.shape, b.shape)


def binary(name, f, slopes=None, saved="", true=False):
    """Register an operation of two tensors, or of a tensor and a number.

    Args:
        name: Its name.
        f: The function of two numbers.
        slopes: The gradients from g, both inputs a and b, and the output o.
        saved: What the gradients of a and of b need, as "b a".
        true: Whether integers give real numbers.
    """
    needs_a, _, needs_b = saved.partition(" ")

    def function(input, other):
        a, b = input, other
        _operand(name, a, b)
        dtype, shape = promote(a, b), _shape(a, b)
        dtype = STATE.dtype if true and dtype.rank < 2 else dtype
        count = math.prod(shape)
        values = apply(f, _column(a, shape, count), _column(b, shape, count))
        if dtype.rank == 2 and type(a) is not type(b):
            values = map(float, values)
        out = make(dtype.fit(list(values)), shape, dtype)
        if slopes is None or not STATE.grad or not (_trains(a) or _trains(b)):
            return out
        x, y = (each.detach() if isinstance(each, Tensor) else each for each in (a, b))
        o = out.detach()

        def back(g):
            parts = (slopes[0](g, x, y, o) if _trains(a) else None,
                     slopes[1](g, x, y, o) if _trains(b) else None)  # fmt: skip
            return tuple(
                part if part is None else unbroadcast(part, each.shape)
                for part, each in zip(parts, (a, b))
            )

        need = (needs_a if _trains(a) else "") + (needs_b if _trains(b) else "")
        keep = [each for letter, each in (("a", a), ("b", b), ("o", out)) if letter in need]
        keep = [each for each in keep if isinstance(each, Tensor)]
        return record(out, (a, b), back, keep, name.capitalize())

    function.__name__ = name
    return op(function)


def _trains(x):
    return isinstance(x, Tensor) and x._requires


def _half(g, wins, ties):
    return g * wins + g * ties * 0.5


add_plain = binary("add", operator.add, (lambda g, a, b, o: g, lambda g, a, b, o: g))
sub_plain = binary("sub", operator.sub, (lambda g, a, b, o: g, lambda g, a, b, o: -g))
mul = binary(
    "mul", operator.mul,
    (lambda g, a, b, o: g * conj(b), lambda g, a, b, o: g * conj(a)), "b a",
)  # fmt: skip
div_plain = binary(
    "div", _divide,
    (lambda g, a, b, o: g / conj(b), lambda g, a, b, o: -g * conj(o) / conj(b)), "b ab", True,
)  # fmt: skip
pow_plain = binary(
    "pow", _power,
    (lambda g, a, b, o: g * conj(b * a ** (b - 1)),
     lambda g, a, b, o: g * where(o == 0, 0.0, o * as_tensor(a, o.dtype).log())), "ab abo",
)  # fmt: skip


def _floored(x, y):
    if y == 0:
        if isinstance(x, int) and isinstance(y, int):
            raise RuntimeError("ZeroDivisionError")
        return _divide(x, y)
    return x // y


floor_divide = binary("floor_divide", _floored)
remainder = binary(
    "remainder", lambda x, y: x % y if y else _floored(x, y) * math.nan,
    (lambda g, a, b, o: g, lambda g, a, b, o: -g * floor_divide(a, b)), "a ab",
)  # fmt: skip
maximum = binary(
    "maximum", lambda x, y: y if y > x or y != y else x,
    (lambda g, a, b, o: _half(g, a > b, a == b), lambda g, a, b, o: _half(g, a < b, a == b)),
    "ab ab",
)  # fmt: skip
minimum = binary(
    "minimum", lambda x, y: y if y < x or y != y else x,
    (lambda g, a, b, o: _half(g, a < b, a == b), lambda g, a, b, o: _half(g, a > b, a == b)),
    "ab ab",
)  # fmt: skip
binary(
    "atan2", math.atan2,
    (lambda g, a, b, o: g * b / (a * a + b * b), lambda g, a, b, o: -g * a / (a * a + b * b)),
    "ab ab", True,
)  # fmt: skip


def _more(x, y):
    high = max(x, y)
    if high in (math.inf, -math.inf) or x != x or y != y:
        return high if x == x and y == y else math.nan
    return high + math.log1p(math.exp(-abs(x - y)))


binary(
    "logaddexp", _more,
    (lambda g, a, b, o: g * (a - o).exp(), lambda g, a, b, o: g * (b - o).exp()), "ao bo",
)  # fmt: skip


@op
def add(input, other, *, alpha=1):
    return add_plain(input, other if alpha == 1 else other * alpha)


@op
def sub(input, other, *, alpha=1):
    if _is_bool(input) and _is_bool(other):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. "
            "Use the `^` or `logical_xor()` operator instead."
        )
    if _is_bool(input) or _is_bool(other):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
            "to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return sub_plain(input, other if alpha == 1 else other * alpha)


def _is_bool(x):
    return isinstance(x, bool) or (isinstance(x, Tensor) and x.dtype is bool_)


@op
def div(input, other, *, rounding_mode=None):
    if rounding_mode == "trunc":
        dtype = promote(input, other)
        return div_plain(input, other).trunc().to(dtype)
    return floor_divide(input, other) if rounding_mode else div_plain(input, other)


@op
def pow_(input, exponent):
    return pow_plain(input, exponent)


def _comparison(name, f):
    def function(input, other):
        _operand(name, input, other)
        shape = _shape(input, other)
        columns = (_column(x, shape, math.prod(shape)) for x in (input, other))
        return make(list(map(f, *columns)), shape, bool_)

    function.__name__ = name
    op(function)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_name, getattr(operator, _name))
_comparison("logical_and", lambda x, y: bool(x and y))
_comparison("logical_or", lambda x, y: bool(x or y))
_comparison("logical_xor", lambda x, y: bool(x) != bool(y))


def _bitwise(name, f):
    plain = binary(name, f)

    def function(input, other):
        for x in (input, other):
            if promote(x, x).rank > 1:
                title = x.dtype.title if isinstance(x, Tensor) else "Float"
                raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{title}'")
        return plain(input, other)

    function.__name__ = name
    op(function)


for _name, _f in {
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift, "bitwise_right_shift": operator.rshift,
}.items():  # fmt: skip
    _bitwise(_name, _f)


@op
def bitwise_not(input):
    if input.dtype.rank > 1:
        text = "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
        raise TypeError(text)
    f = operator.not_ if input.dtype is bool_ else operator.invert
    return make(input.dtype.fit(list(map(f, input._values()))), input.shape, input.dtype)


@op
def clamp(input, min=None, max=None):
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    low = -math.inf if min is None else min
    high = math.inf if max is None else max
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        out = input if min is None else maximum(input, min)
        return out if max is None else minimum(out, max)
    dtype = promote(input, min if min is not None else max)
    values = [low if v < low else v for v in input._values()]
    values = [high if v > high else v for v in values]
    out, x = make(dtype.cast(values), input.shape, dtype), input.detach()
    return record(out, (input,), lambda g: (g * (x >= low) * (x <= high),), (input,), "Clamp")


@op
def masked_fill(input, mask, value):
    if mask.dtype is not bool_:
        text = f"mask with dtype {mask.dtype.title.lower()}"
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got {text}")
    value = value.item() if isinstance(value, Tensor) else value
    if dtype_of([value]).rank > max(input.dtype.rank, 1):
        title = {"f": "float", "i": "long"}.get(dtype_of([value]).kind)
        low = input.dtype.title.lower()
        raise RuntimeError(
            f"value cannot be converted to type {low}{title and ''} without overflow"
        )
    shape = broadcast(input.shape, mask.shape)
    value = input.dtype.cast([value])[0]
    pairs = zip(spread(input, shape), spread(mask, shape))
    out = make([value if hide else v for v, hide in pairs], shape, input.dtype)
    return record(
        out, (input,), lambda g: (unbroadcast(masked_fill(g, mask, 0), input.shape),), (),
        "MaskedFill",
    )  # fmt: skip


@torch_only
def where(condition, input=None, other=None):
    if input is None:
        return condition.nonzero().unbind(1)
    if condition.dtype is not bool_:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype.title}"
        )
    dtype = promote(input, other)
    a, b = (x if isinstance(x, Tensor) else as_tensor(x, dtype) for x in (input, other))
    shape = broadcast(condition.shape, a.shape, b.shape)
    columns = zip(spread(condition, shape), spread(a, shape), spread(b, shape))
    values = [x if yes else y for yes, x, y in columns]
    out = make(values if a.dtype is b.dtype else dtype.cast(values), shape, dtype)

    def back(g):
        return (
            unbroadcast(masked_fill(g, bitwise_not(condition), 0), a.shape),
            unbroadcast(masked_fill(g, condition, 0), b.shape),
        )

    return record(out, (a, b), back, (), "Where")


METHODS["where"] = lambda self, condition, other: where(condition, self, other)


# Reductions.


def rows(x, dim):
    """Read the numbers row by row, where a row goes along the axes `dim`.

    Returns:
        The rows, the shape of one number for each row, and the same with axes of size 1.
    """
    dims = axes(dim, x.ndim)
    rest = [d for d in range(x.ndim) if d not in dims]
    order = rest + dims
    shape, strides = (tuple(of[d] for d in order) for of in (x.shape, x._strides))
    values, small = reader(shape, strides, x._offset)(x._storage), shape[: len(rest)]
    size = math.prod(shape[len(rest) :])
    found = list(zip(*[iter(values)] * size)) if size else [()] * math.prod(small)
    return found, small, tuple(1 if d in dims else n for d, n in enumerate(x.shape))


def _reduced(name, x, dim, keepdim, f, dtype, back=None, saved=()):
    """Make a tensor with f of each row; `back` gets the gradient with axes of size 1."""
    found, small, kept = rows(x, dim)
    out = make(dtype.fit([f(row) for row in found]), kept if keepdim else small, dtype)
    if back is None or not x._requires:
        return out
    y = out.detach().reshape(kept)
    return record(out, (x,), lambda g: (back(g.reshape(kept), y),), saved, name)


@op
def sum_(input, dim=None, keepdim=False, *, dtype=None):
    dtype = dtype or (input.dtype if input.dtype.rank > 1 else int64)
    source = input if input.dtype.rank == dtype.rank else input.to(dtype)
    start = 0.0 if dtype.rank == 2 else 0
    return _reduced(
        "Sum", source, dim, keepdim, lambda row: sum(row, start), dtype,
        lambda g, y: g.expand(input.shape),
    )  # fmt: skip


@op
def mean(input, dim=None, keepdim=False, *, dtype=None):
    dtype = dtype or input.dtype
    if dtype.rank < 2:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {dtype.title}"
        )
    total = sum_(input, dim, keepdim, dtype=dtype)
    return div_plain(total, math.prod(input.shape[d] for d in axes(dim, input.ndim)))


@op
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=1, _name="var"):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = correction if unbiased is None else int(unbiased)
    deviation = input - mean(input, dim, True)
    count = math.prod(input.shape[d] for d in axes(dim, input.ndim)) - correction
    if count <= 0:
        warnings.warn(
            f"{_name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "reduction factor (input numel divided by output numel).", stacklevel=2,
        )  # fmt: skip
    return div_plain(sum_(deviation * deviation, dim, keepdim), max(count, 0))


@op
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    out = var(input, dim, unbiased, keepdim, correction=correction, _name="std")
    root, y = out.sqrt().detach(), out
    # The gradient of a root at 0 is 0 here, so that it stays finite.
    back = lambda g: (masked_fill(g / (2 * root), root == 0, 0),)  # noqa: E731
    return record(make(root._values(), root.shape, root.dtype), (y,), back, (), "Std")


@torch_only
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    second = var(input, dim, unbiased, keepdim, correction=correction)
    return second, mean(input, None if isinstance(dim, bool) else dim, keepdim)


@torch_only
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    second = std(input, dim, unbiased, keepdim, correction=correction)
    return second, mean(input, None if isinstance(dim, bool) else dim, keepdim)


@op
def prod(input, dim=None, keepdim=False, *, dtype=None):
    x = input.detach()
    kind = dtype or (input.dtype if input.dtype.rank > 1 else int64)
    return _reduced(
        "Prod", input, dim, keepdim, math.prod, kind, lambda g, y: g * y / x, (input,)
    )  # fmt: skip


@op
def any_(input, dim=None, keepdim=False):
    return _reduced("", input, dim, keepdim, any, bool_)


@op
def all_(input, dim=None, keepdim=False):
    return _reduced("", input, dim, keepdim, all, bool_)


def _extreme(name, pick, two):
    """Register the largest or smallest number: amax, argmax, max and cummax, or those of min."""
    Pair = namedtuple(name, ("values", "indices"))

    def best(row):
        if not row:
            text = "Expected reduction dim to be specified for input.numel() == 0."
            raise IndexError(f"{name}(): {text} Specify the reduction dim with the 'dim' argument.")
        nans = [v for v in row if v != v]
        return nans[0] if nans else pick(row)

    def amax(input, dim=None, keepdim=False):
        x = input.detach()

        def back(g, y):
            same = (x == y).to(x.dtype)
            return same * g / sum_(same, dim, True)

        return _reduced(f"A{name}", input, dim, keepdim, best, input.dtype, back, (input,))

    def argmax(input, dim=None, keepdim=False):
        def first(row):
            top = best(row)
            return next(i for i, v in enumerate(row) if v == top or v != v)

        return _reduced("", input, dim, keepdim, first, int64)

    def maximal(input, dim=None, keepdim=False, *, other=None):
        if isinstance(dim, Tensor) or other is not None:
            return two(input, dim if other is None else other)
        if dim is None:
            return amax(input)
        index = argmax(input, dim, True) if input.ndim else argmax(input)
        values = FUNCTIONS["gather"](input, dim, index) if input.ndim else input
        pair = (values, index) if keepdim or not input.ndim else (
            values.squeeze(dim), index.squeeze(dim))  # fmt: skip
        return Pair(*pair)

    def cummax(input, dim):
        def later(row):
            return lambda i, j: j if pick(row[i], row[j]) == row[j] else i

        x = input.detach().movedim(dim, -1)
        index = []
        for row in rows(x, -1)[0]:
            index += accumulate(range(len(row)), later(row))
        index = make(index, x.shape, int64).movedim(-1, dim)
        return Pair(FUNCTIONS["gather"](input, dim, index), index)

    for kind, f in (("a{}", amax), ("arg{}", argmax), ("{}", maximal), ("cum{}", cummax)):
        f.__name__ = kind.format(name)
        op(f)


_extreme("max", max, maximum)
_extreme("min", min, minimum)


def _running(name, f, back):
    def function(input, dim, *, dtype=None):
        kind = dtype or (input.dtype if input.dtype.rank > 1 else int64)
        x = input.to(kind)
        line = x.detach().movedim(dim, -1) if x.ndim else x.detach().reshape(1)
        values = [v for row in rows(line, -1)[0] for v in accumulate(row, f)]
        out = make(kind.fit(values), line.shape, kind)
        out = out.movedim(-1, dim) if x.ndim else out.reshape(())
        out, y = out.contiguous(), out.detach()
        return record(out, (x,), lambda g: (back(g, x.detach(), y, dim),), (x,), name.title())

    function.__name__ = name
    return op(function)


def _backwards(g, dim):
    return g.flip(dim).cumsum(dim).flip(dim)


_running("cumsum", operator.add, lambda g, x, y, dim: _backwards(g, dim))
_running("cumprod", operator.mul, lambda g, x, y, dim: _backwards(g * y, dim) / x)


@op
def norm(input, p="fro", dim=None, keepdim=False):
    p = 2 if p in ("fro", None) else p
    size = input.abs() if input.dtype.is_complex or p not in (2, 2.0) else input
    if p == math.inf:
        return FUNCTIONS["amax"](size, dim, keepdim)
    if p not in (2, 2.0):
        return sum_(size**p, dim, keepdim) ** (1 / p)
    x = input
    root = sum_((size * size).detach(), dim, True).sqrt()

    def back(g):
        g = g.reshape(root.shape)
        return (masked_fill(x.detach() * g / root, root == 0, 0),)

    values = root.detach() if keepdim else root.reshape(rows(input, dim)[1])
    out = make(values._values(), values.shape, values.dtype)
    return record(out, (x,), back, (x,), "LinalgVectorNorm")


def _soft(name, input, dim, dtype, f, back):
    x = input if dtype is None else input.to(dtype)
    if x.dtype.rank < 2:
        text = f"\"{name}_lastdim_kernel_impl\" not implemented for '{x.dtype.title}'"
        raise NotImplementedError(text)
    at = axis(dim, x.ndim)
    line = x.detach().movedim(at, -1) if x.ndim else x.detach().reshape(1)
    values = [v for row in rows(line, -1)[0] for v in f(row)]
    out = make(x.dtype.fit(values), line.shape, x.dtype)
    out = out.movedim(-1, at).contiguous() if x.ndim else out.reshape(())
    out, y = out.detach(), out.detach()
    title = "".join(part.title() for part in name.split("_"))
    return record(out, (x,), lambda g: (back(g, y, at),), (out,), title)


def _softened(row):
    top = max(row, default=0.0)
    if top in (math.inf, -math.inf) or any(v != v for v in row):
        return [math.nan] * len(row)
    parts = [math.exp(v - top) for v in row]
    total = sum(parts)
    return [v / total for v in parts]


def _log_softened(row):
    top = max(row, default=0.0)
    if top in (math.inf, -math.inf) or any(v != v for v in row):
        return [math.nan] * len(row)
    total = top + math.log(sum(math.exp(v - top) for v in row)) if row else 0.0
    return [v - total for v in row]


@op
def softmax(input, dim, dtype=None):
    back = lambda g, y, at: y * (g - sum_(g * y, at, True))  # noqa: E731
    return _soft("softmax", input, dim, dtype, _softened, back)


@op
def log_softmax(input, dim, dtype=None):
    back = lambda g, y, at: g - y.exp() * sum_(g, at, True)  # noqa: E731
    return _soft("log_softmax", input, dim, dtype, _log_softened, back)


@op
def logsumexp(input, dim, keepdim=False):
    def f(row):
        top = max(row, default=-math.inf)
        if top in (math.inf, -math.inf) or top != top:
            return top
        return top + math.log(sum(math.exp(v - top) for v in row))

    x = input.detach() if input.dtype.rank > 1 else input.to(STATE.dtype)
    back = lambda g, y: g * (x - y).exp()  # noqa: E731
    return _reduced("Logsumexp", input, dim, keepdim, f, x.dtype, back, (input,))


# Products.

# Python 3.12 added sumprod.
_dot = getattr(math, "sumprod", None) or (lambda a, b: sum(map(operator.mul, a, b)))


@op
def matmul(input, other):
    a, b = input, other
    if not a.ndim or not b.ndim:
        dims = f"but they are {a.ndim}D and {b.ndim}D"
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, {dims}")
    if a.dtype is not b.dtype:
        got = f"{_c_name(a)} != {_c_name(b)}"
        if a.ndim == b.ndim == 1:
            got = f"{a.dtype.title} and {b.dtype.title}"
            raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {got}")
        what = "m1 and m2" if b.ndim <= 2 or a.ndim <= 2 else "scalar type"
        if what == "scalar type":
            text = f"expected scalar type {a.dtype.title} but found {b.dtype.title}"
            raise RuntimeError(text)
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {got}")
    if a.ndim == 1 and b.ndim == 1 and len(a) != len(b):
        text = f"expected tensor [{len(a)}] and src [{len(b)}] to have the same number of elements"
        both = f"but got {len(a)} and {len(b)} elements respectively"
        raise RuntimeError(f"inconsistent tensor size, {text}, {both}")
    if a.ndim == 1:
        return matmul(a.unsqueeze(0), b).squeeze(-2 if b.ndim > 1 else 0)
    if b.ndim == 1:
        if a.shape[-1] != len(b) and a.ndim == 2:
            raise RuntimeError(f"size mismatch, got input ({a.shape[0]}), mat ({a.shape[0]}x"
                               f"{a.shape[1]}), vec ({len(b)})")  # fmt: skip
        return matmul(a, b.unsqueeze(-1)).squeeze(-1)
    n, k, m = a.shape[-2], a.shape[-1], b.shape[-1]
    lead = broadcast(a.shape[:-2], b.shape[:-2])
    if k != b.shape[-2]:
        if b.ndim == 2 or a.ndim == 2:
            n, m = (math.prod(a.shape[:-1]), m) if b.ndim == 2 else (n, m)
            text = f"({n}x{k} and {b.shape[-2]}x{m})"
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied {text}")
        count = math.prod(lead)
        raise RuntimeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"[{count}, {k}] but got: [{count}, {b.shape[-2]}]."
        )
    left, right = a.detach(), b.detach()
    flat = left.expand(*lead, n, k)._values()
    columns = right.expand(*lead, k, m).transpose(-1, -2)._values()
    values = []
    for q in range(math.prod(lead)):
        ours = [flat[i : i + k] for i in range(q * n * k, (q + 1) * n * k, k or 1)]
        theirs = [columns[i : i + k] for i in range(q * k * m, (q + 1) * k * m, k or 1)]
        values += [_dot(row, column) for row in ours for column in theirs]
    if not k:
        values = [0] * (math.prod(lead) * n * m)
    dtype = a.dtype
    out = make(dtype.cast(values) if dtype.rank == 2 else dtype.fit(values), (*lead, n, m), dtype)

    def back(g):
        return (
            unbroadcast(matmul(g, conj(right).transpose(-1, -2)), a.shape) if a._requires else None,
            unbroadcast(matmul(conj(left).transpose(-1, -2), g), b.shape) if b._requires else None,
        )

    saved = [x for x, y in ((b, a), (a, b)) if y._requires]
    return record(out, (a, b), back, saved, "Mm" if a.ndim == b.ndim == 2 else "Bmm")


def _c_name(x):
    names = {"Long": "int64_t", "Int": "int", "Bool": "bool", "Byte": "unsigned char"}
    return names.get(x.dtype.title, x.dtype.title.lower())


def _of_rank(name, left, right, texts):
    def function(input, other):
        for x, rank, text in zip((input, other), (left, right), texts):
            if x.ndim != rank:
                raise RuntimeError(text.format(input.ndim, other.ndim, x.ndim))
        return matmul(input, other)

    function.__name__ = name
    op(function)


_of_rank("mm", 2, 2, ("self must be a matrix", "mat2 must be a matrix"))
_of_rank("bmm", 3, 3, ("batch1 must be a 3D tensor", "batch2 must be a 3D tensor"))
_of_rank("dot", 1, 1, ("1D tensors expected, but got {0}D and {1}D tensors",) * 2)


@op
def outer(input, vec2):
    for x, which in ((input, "self"), (vec2, "vec2")):
        if x.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {which}, but got {x.ndim}-D")
    return input.unsqueeze(-1) * vec2


@torch_only
def einsum(equation, *operands):
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = operands[0]
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(operands):
        more = "more" if len(operands) > len(parts) else "fewer"
        raise RuntimeError(
            f"einsum(): {more} operands were provided than specified in the equation"
        )
    extra = [x.ndim - len(part.replace("...", "")) for part, x in zip(parts, operands)]
    dots = "0123456789"[: max([n for n, part in zip(extra, parts) if "..." in part] or [0])]
    parts = [part.replace("...", dots[len(dots) - n :]) for part, n in zip(parts, extra)]
    if not arrow:
        once = (c for c in set("".join(parts)) if "".join(parts).count(c) == 1 and c not in dots)
        right = "..." * ("..." in left) + "".join(sorted(once))
    right, sizes = right.replace("...", dots), {}
    for which, (part, x) in enumerate(zip(parts, operands)):
        if len(part) != x.ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(part)}) does not match "
                f"the number of dimensions ({x.ndim}) for operand {which} and no ellipsis was given"
            )
        for c, n in zip(part, x.shape):
            if sizes.setdefault(c, n) != n and 1 not in (n, sizes[c]):
                raise RuntimeError(
                    f"einsum(): subscript {c} has size {n} for operand {which} which does not "
                    f"broadcast with previously seen size {sizes[c]}"
                )
            sizes[c] = max(sizes[c], n)
    for c in right:
        if c not in sizes:
            text = f"output subscript {c} does not appear in the equation for any input operand"
            raise RuntimeError(f"einsum(): {text}")
    left_over = "".join(sorted(set("".join(parts)) - set(right)))
    return _contract(parts, operands, right, left_over)


def _contract(parts, operands, right, left_over):
    """Sum the product of the operands over the letters that are left over."""
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
    first, *others = placed
    # A product of rows and columns sums as it goes.
    if len(placed) == 2 and left_over:
        a, b = placed
        shape = broadcast(a.shape[: len(right)], b.shape[: len(right)])
        inner = broadcast(a.shape[len(right) :], b.shape[len(right) :])
        a, b = (x.expand(*x.shape[: len(right)], *inner).flatten(len(right)) for x in (a, b))
        return (a.unsqueeze(-2) @ b.unsqueeze(-1)).reshape(shape)
    for x in others:
        first = first * x
    return first.sum(list(range(len(right), first.ndim))) if left_over else first


@op
def square(input):
    return pow_plain(input, 2)


@op
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    product = METHODS["mm"](mat1, mat2)
    return add_plain(
        input if beta == 1 else input * beta, product if alpha == 1 else product * alpha
    )


@op
def addcmul(input, tensor1, tensor2, *, value=1):
    return input + tensor1 * tensor2 * value


@op
def addcdiv(input, tensor1, tensor2, *, value=1):
    return input + tensor1 / tensor2 * value


@op
def lerp(input, end, weight):
    return input + weight * (end - input)


@op
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    limit = 1.7976931348623157e308
    for test, value in (
        (lambda v: v != v, nan),
        (lambda v: v == math.inf, limit if posinf is None else posinf),
        (lambda v: v == -math.inf, -limit if neginf is None else neginf),
    ):
        mask = make(list(map(test, input._values())), input.shape, bool_)
        input = masked_fill(input, mask, value)
    return input


@op
def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype.title} did not match {other.dtype.title}")
    shape = broadcast(input.shape, other.shape)

    def near(x, y):
        if x == y or (x != x and y != y and equal_nan):
            return True
        return abs(y) != math.inf and abs(x - y) <= atol + rtol * abs(y)

    return make(list(map(near, spread(input, shape), spread(other, shape))), shape, bool_)


@op
def allclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    return all(isclose(input, other, rtol, atol, equal_nan)._values())


@op
def equal(input, other):
    same = input.shape == other.shape
    return same and all(map(operator.eq, input._values(), other._values()))
