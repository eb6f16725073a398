"""Shapes: positions of elements in storage, indices of axes, and broadcasting."""

import math
import operator
from functools import lru_cache

from ._errors import check, error


@lru_cache(4096)
def contiguous_strides(shape):
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_packed(shape, strides):
    """Return whether the elements are contiguous in storage."""
    if strides == (due := contiguous_strides(tuple(shape))):
        return True
    return 0 in shape or all(s == d or n == 1 for n, s, d in zip(shape, strides, due))


@lru_cache(4096)
def places(shape, strides, offset):
    """List the storage indices of a tensor's elements, in order."""
    indices = [offset]
    for size, stride in zip(shape, strides):
        steps = [i * stride for i in range(size)]
        indices = [start + step for start in indices for step in steps]
    return indices


@lru_cache(4096)
def reader(shape, strides, offset):
    """Return a function that reads a tensor's elements from its storage."""
    count = math.prod(shape)
    if is_packed(shape, strides):
        return operator.itemgetter(slice(offset, offset + count))
    indices = places(shape, strides, offset)
    return operator.itemgetter(*indices) if count > 1 else lambda storage: [storage[indices[0]]]


def axis(dim, count):
    """Return the non-negative index of an axis."""
    dim, limit = operator.index(dim), max(count, 1)
    if not -limit <= dim < limit:
        raise error("dim", -limit, limit - 1, dim)
    return dim % limit


def axes(dim, count):
    """Return the non-negative indices of one or several axes, or of all axes for None."""
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        return list(range(count))
    indices = [axis(d, count) for d in (dim if isinstance(dim, tuple | list) else [dim])]
    for d in indices:
        check(indices.count(d) == 1, "same_dim", d)
    return indices if count else []


def fill_in(shape, count, *problem):
    """Replace the size -1 with the size that fits; `problem` is the error if no size fits."""
    check(shape.count(-1) < 2, "infer_one")
    known = math.prod(n for n in shape if n != -1)
    fits = known and count % known == 0 if -1 in shape else count == known
    check(fits, *(problem or ("shape", list(shape), count)))
    return tuple(count // known if n == -1 else n for n in shape)


def sizes(given):
    """Return a tuple of sizes that were passed separately or as one sequence."""
    if len(given) == 1 and isinstance(given[0], tuple | list):
        given = given[0]
    return tuple(map(operator.index, given))


def broadcast(*shapes):
    """Return the shape that several shapes broadcast to."""
    count = max(map(len, shapes), default=0)
    out = [1] * count
    for shape in shapes:
        for i, n in enumerate(shape, count - len(shape)):
            if out[i] == 1:
                out[i] = n
            elif n not in (1, out[i]):
                raise error("broadcast", out[i], n, i)
    return tuple(out)
