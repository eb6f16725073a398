"""Operations on shape, indices, order and dtype, and those that join tensors.

Each function is registered as torch.name and Tensor.name, where PyTorch has that name.
"""

import builtins
import math
from collections import namedtuple

from ._errors import check, error, not_here
from ._layout import axes, axis, broadcast, contiguous_strides, fill_in, is_packed, sizes
from ._math import along, mapped, masked_fill, rows, taken
from ._registry import FUNCTIONS, register, register_module
from ._tensor import Tensor, as_tensor, make, record
from ._types import Size, bool_, complex_of, int64, larger, real_of
from ._types import device as _device
from ._types import dtype as _dtype

# Views.


def _dim(x, dim):
    return axis(dim, x.ndim)


def _at(x, dim, index):
    """Return an index of x that applies `index` along an axis."""
    return (slice(None),) * _dim(x, dim) + (index,)


def view(self, *shape):
    if len(shape) == 1 and isinstance(shape[0], _dtype):
        raise not_here("view with a dtype")
    check(shape, "arguments", "view", "")
    shape = fill_in(sizes(shape), self.numel())
    strides = _as_view(self, shape)
    check(strides is not None, "view")
    return self._view(shape, strides)


def _as_view(x, shape):
    """Return the strides of a view of x in another shape, or None if a copy is needed."""
    if is_packed(x.shape, x._strides):
        return contiguous_strides(shape)
    old = [(n, s) for n, s in zip(x.shape, x._strides) if n != 1]
    strides, left, step = [], 1, None
    # From the back: each new axis is part of an old axis, or of adjacent axes that can be merged.
    for n in reversed(shape):
        if n == 1:
            strides.append(step or 1)
            continue
        if left == 1:
            left, step = old.pop()
            while old and old[-1][1] == step * left:
                left *= old.pop()[0]
        if left % n:
            return None
        strides.append(step)
        left //= n
        step *= n
    return tuple(reversed(strides))


def reshape(input, *shape):
    shape = fill_in(sizes(shape), input.numel())
    strides = _as_view(input, shape)
    if strides is None:
        input, strides = input.clone(), contiguous_strides(shape)
    return input._view(shape, strides)


def contiguous(self, *, memory_format=None):
    return self if is_packed(self.shape, self._strides) else self.clone()


def clone(input, *, memory_format=None):
    out = make(input._values(), input.shape, input.dtype)
    return record(out, (input,), lambda g: g, (), "Clone")


def _reordered(x, dims, name):
    return x._view([x.shape[d] for d in dims], [x._strides[d] for d in dims], name=name)


def permute(input, *dims):
    dims = [_dim(input, d) for d in sizes(dims)]
    check(len(dims) == input.ndim, "permute_ndim", input.ndim, len(dims))
    check(len(set(dims)) == len(dims), "permute_twice")
    return _reordered(input, dims, "Permute")


def transpose(input, dim0, dim1):
    a, b = _dim(input, dim0), _dim(input, dim1)
    dims = list(range(input.ndim))
    if dims:
        dims[a], dims[b] = b, a
    return permute(input, dims)


def movedim(input, source, destination):
    source, destination = axes(source, input.ndim), axes(destination, input.ndim)
    rest = iter(d for d in range(input.ndim) if d not in source)
    where = dict(zip(destination, source))
    return permute(input, [where[d] if d in where else next(rest) for d in range(input.ndim)])


def t(input):
    check(input.ndim < 3, "t", input.ndim)
    return transpose(input, 0, 1) if input.ndim == 2 else input


def _matrix_transpose(self):
    check(self.ndim > 1, "mT", self.ndim)
    return transpose(self, -2, -1)


Tensor.T = property(lambda self: permute(self, list(range(self.ndim))[::-1]))
Tensor.mT = property(_matrix_transpose)
Tensor.mH = property(lambda self: _matrix_transpose(self.conj()))


def unsqueeze(input, dim):
    d = axis(dim, input.ndim + 1)
    shape, strides = list(input.shape), list(input._strides)
    strides.insert(d, strides[d] * shape[d] if d < input.ndim else 1)
    shape.insert(d, 1)
    return input._view(shape, strides, name="Unsqueeze")


def squeeze(input, dim=None):
    dims = axes(dim, input.ndim)
    kept = [d for d in range(input.ndim) if d not in dims or input.shape[d] != 1]
    return _reordered(input, kept, "Squeeze")


def expand(self, *size):
    mine, size = list(self.shape), list(sizes(size))
    extra = len(size) - self.ndim
    check(extra >= 0, "expand_ndim", self.dtype.title, mine, size, len(size), self.ndim)
    shape, strides = size[:extra], [0] * extra
    for n, stride, due in zip(mine, self._strides, size[extra:]):
        due = n if due == -1 else due
        check(n in (1, due), "expand", due, n, len(shape), size, mine)
        shape.append(due)
        strides.append(stride if n == due else 0)
    return self._view(shape, strides, name="Expand")


def flatten(input, start_dim=0, end_dim=-1):
    first, last = _dim(input, start_dim), _dim(input, end_dim)
    check(first <= last, "flatten")
    middle = math.prod(input.shape[first : last + 1])
    return reshape(input, *input.shape[:first], middle, *input.shape[last + 1 :])


def unflatten(input, dim, sizes):
    d = _dim(input, dim)
    check(sizes, "unflatten_empty")
    size = input.shape[d]
    new = fill_in(tuple(sizes), size, "unflatten", list(sizes), dim, size)
    return view(input, *input.shape[:d], *new, *input.shape[d + 1 :])


def select(input, dim, index):
    return input[_at(input, dim, index)]


def narrow(input, dim, start, length):
    size = input.shape[_dim(input, dim)]
    check(start + length <= size, "narrow", start, length, size)
    return input[_at(input, dim, slice(start, start + length))]


def unbind(input, dim=0):
    return tuple(select(input, dim, i) for i in range(input.shape[_dim(input, dim)]))


def split(tensor, split_size_or_sections, dim=0):
    parts, size = split_size_or_sections, tensor.shape[_dim(tensor, dim)]
    if isinstance(parts, int):
        check(parts > 0 or size <= 0, "split_zero", size)
        parts = [min(parts, size - i) for i in range(0, size, parts)] or [0]
    check(sum(parts) == size, "split", size, dim, list(parts))
    starts = [sum(parts[:i]) for i in range(len(parts))]
    return tuple(narrow(tensor, dim, start, n) for start, n in zip(starts, parts))


def chunk(input, chunks, dim=0):
    check(chunks >= 1, "chunk", chunks)
    return split(input, max(-(-input.shape[_dim(input, dim)] // chunks), 1), dim)


def diagonal(input, offset=0, dim1=0, dim2=1):
    a, b = _dim(input, dim1), _dim(input, dim2)
    size = min(input.shape[a] + min(0, offset), input.shape[b] - max(0, offset))
    start = input._offset + offset * (input._strides[b] if offset > 0 else -input._strides[a])
    rest = [d for d in range(input.ndim) if d not in (a, b)]
    shape = [*(input.shape[d] for d in rest), max(size, 0)]
    strides = [*(input._strides[d] for d in rest), input._strides[a] + input._strides[b]]
    return input._view(shape, strides, start, "Diagonal")


def as_strided(input, size, stride, storage_offset=None):
    return input._view(size, stride, storage_offset)


def unfold(self, dimension, size, step):
    d = _dim(self, dimension)
    count = (self.shape[d] - size) // step + 1
    check(count > 0, "unfold", d, self.shape[d], size)
    shape, strides = [*self.shape, size], [*self._strides, self._strides[d]]
    shape[d], strides[d] = count, strides[d] * step
    return self._view(shape, strides)


# Order and copies.


def _picked(x, dim, index):
    return x[_at(x, dim, as_tensor(list(index), int64))]


def flip(input, *dims):
    out = input.clone()
    for d in sizes(dims):
        out = _picked(out, d, reversed(range(out.shape[_dim(out, d)])))
    return out


def roll(input, shifts, dims=None):
    if dims is None or dims == ():
        return roll(input.flatten(), shifts, 0).reshape(input.shape)
    for shift, d in zip(*([x] if isinstance(x, int) else x for x in (shifts, dims))):
        size = input.shape[_dim(input, d)]
        input = _picked(input, d, [(i - shift) % size for i in range(size)])
    return input


def repeat(self, *repeats):
    counts = sizes(repeats)
    check(len(counts) >= self.ndim, "repeat")
    shape = (1,) * (len(counts) - self.ndim) + self.shape
    pairs = [part for n, size in zip(counts, shape) for part in (n, size)]
    split = self.reshape([part for size in shape for part in (1, size)])
    return split.expand(pairs).reshape([n * size for n, size in zip(counts, shape)]).clone()


def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    input, dim = (input.flatten(), 0) if dim is None else (input, dim)
    size = input.shape[_dim(input, dim)]
    counts = repeats.tolist() if isinstance(repeats, Tensor) else repeats
    counts = [counts] * size if isinstance(counts, int) else counts
    counts = counts * size if len(counts) == 1 else counts
    check(len(counts) == size, "repeat_interleave")
    return _picked(input, dim, [i for i, n in enumerate(counts) for _ in range(n)])


def _triangle(name, keeps):
    def function(input, diagonal=0):
        check(input.ndim > 1, "triangle", name)
        n, m = input.shape[-2:]
        values = [not keeps(j - i, diagonal) for i in range(n) for j in range(m)]
        return masked_fill(input, make(values, (n, m), bool_), 0)

    return function


tril = _triangle("tril", lambda ahead, diagonal: ahead <= diagonal)
triu = _triangle("triu", lambda ahead, diagonal: ahead >= diagonal)


def diag(input, diagonal=0):
    of_matrix = FUNCTIONS["diagonal"] if input.ndim == 2 else diag_embed
    return of_matrix(input, diagonal)


def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    if offset or (dim1, dim2) != (-2, -1):
        raise not_here("diag_embed with an offset or along other axes")
    n = input.shape[-1]
    values = [float(i == j) for i in range(n) for j in range(n)]
    return input.unsqueeze(-1) * make(input.dtype.cast(values), (n, n), input.dtype)


# Indexing.


def gather(input, dim, index):
    return input[grid("gather", input, dim, index)]


def grid(name, x, dim, index):
    """Return an index of x with `index` along one axis, and coordinates along the others."""
    check(index.dtype.name in ("int64", "int32"), "gather_dtype", name)
    check(index.ndim == x.ndim, "gather_ndim", "self" if name == "scatter" else "input")
    d, lengths = _dim(x, dim), list(index.shape)
    for i, (n, size) in enumerate(zip(lengths, x.shape)):
        check(i == d or n <= size, "gather_size", i, lengths, list(x.shape), d)
    for i in index._values():
        check(0 <= i < x.shape[d], "gather_range", i, d, x.shape[d])
    counts = meshgrid(*(make(range(n), (n,), int64) for n in lengths)) if lengths else ()
    return tuple(index if i == d else count for i, count in enumerate(counts)) or (index,)


def index_select(input, dim, index):
    check(index.ndim < 2, "index_select")
    size = input.shape[_dim(input, dim)]
    check(all(0 <= i < size for i in index._values()), "out_of_range")
    return input[_at(input, dim, index.reshape(-1))]


def masked_select(input, mask):
    shape = broadcast(input.shape, mask.shape)
    return input.expand(shape)[mask.expand(shape)]


def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    if reduce is not None:
        raise not_here("scatter with reduce")
    src = value if src is None else src
    if isinstance(src, Tensor) and src.ndim:
        src = src[tuple(map(slice, index.shape))]
        check(src.dtype is input.dtype, "scatter_dtype")
    out = input.clone()
    out[grid("scatter", input, dim, index)] = src
    return out


def scatter_add(input, dim, index, src):
    where, out = grid("scatter_add", input, dim, index), input.clone()
    for i in range(index.shape[_dim(input, dim)]):
        part = _at(input, dim, slice(i, i + 1))
        place = tuple(x[part] for x in where)
        out[place] = out[place] + src[tuple(map(slice, index.shape))][part]
    return out


def index_fill(input, dim, index, value):
    out = input.clone()
    out[_at(input, dim, index)] = value
    return out


def index_add(input, dim, index, source, *, alpha=1):
    out = input.clone()
    for position, i in enumerate(index.tolist()):
        place = _at(input, dim, i)
        out[place] = out[place] + source[_at(input, dim, position)] * alpha
    return out


def nonzero(input, *, as_tuple=False):
    steps = contiguous_strides(input.shape)
    hits = [i for i, v in enumerate(input._values()) if v]
    indices = [i // step % n for i in hits for n, step in zip(input.shape, steps)]
    out = make(indices, (len(hits), input.ndim), int64)
    return unbind(out, 1) if as_tuple else out


_Sort = namedtuple("sort", ("values", "indices"))
_Topk = namedtuple("topk", ("values", "indices"))


def argsort(input, dim=-1, descending=False, stable=False):
    def ranked(row):
        by = [v if v == v else math.inf for v in row]
        return sorted(range(len(by)), key=lambda i: -by[i] if descending else by[i])

    return along(input, dim, ranked, int64)


def sort(input, dim=-1, descending=False, *, stable=False):
    return _Sort(*taken(input, dim, argsort(input, dim, descending)))


def topk(input, k, dim=-1, largest=True, sorted=True):
    check(k <= (input.shape[_dim(input, dim)] if input.ndim else 1), "k_range")
    return _Topk(*taken(input, dim, argsort(input, dim, largest).narrow(dim, 0, k)))


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    if dim not in (None, 0):
        raise not_here("unique along this dim")
    items = list(input._values()) if dim is None else [tuple(row._values()) for row in input]
    index = {v: i for i, v in enumerate(builtins.sorted(set(items)))}
    flat = index if dim is None else [v for row in index for v in row]
    out = [make(flat, (len(index), *(() if dim is None else input.shape[1:])), input.dtype)]
    if return_inverse:
        shape = input.shape if dim is None else (len(items),)
        out.append(make(map(index.get, items), shape, int64))
    if return_counts:
        out.append(make(map(items.count, index), (len(index),), int64))
    return out[0] if len(out) == 1 else tuple(out)


def bincount(input, weights=None, minlength=0):
    values = input._values()
    totals = [0 if weights is None else 0.0] * max(minlength, max(values, default=-1) + 1)
    for i, v in zip(values, [1] * len(values) if weights is None else weights._values()):
        totals[i] += v
    return make(totals, (len(totals),), int64 if weights is None else weights.dtype)


def searchsorted(sorted_sequence, input, *, right=False):
    if not isinstance(input, Tensor):
        return searchsorted(sorted_sequence, as_tensor([input]), right=right).reshape(())
    lines, asked = rows(sorted_sequence, -1)[0], rows(input, -1)[0]
    lines = lines * len(asked) if len(lines) == 1 else lines
    counts = [
        sum(v <= x if right else v < x for v in line)
        for line, row in zip(lines, asked) for x in row
    ]  # fmt: skip
    return make(counts, input.shape, int64)


# Joining.


def _check_tensors(tensors):
    for i, x in enumerate(tensors):
        check(isinstance(x, Tensor), "element", i, type(x).__name__)


def cat(tensors, dim=0):
    if isinstance(tensors, Tensor):
        raise error("argument", "cat", "tensors", 1, "tuple of Tensors", "Tensor")
    tensors = list(tensors)
    _check_tensors(tensors)
    check(tensors, "cat_empty")
    # PyTorch skips empty 1-d tensors.
    used = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    first = used[0]
    check(first.ndim, "cat_scalar")
    d, kind, shape = _dim(first, dim), first.dtype, list(first.shape)
    for i, x in enumerate(used):
        check(x.ndim == first.ndim, "cat_ndim", first.ndim, x.ndim)
        for q, n in enumerate(x.shape):
            check(q == d or n == shape[q], "cat", d, shape[q], n, i)
        kind = larger(kind, x.dtype) if x.dtype is not kind else kind
    lengths = [x.shape[d] for x in used]
    shape[d] = sum(lengths)
    parts, values = [], []
    for x in used:
        numbers = x._values() if x.dtype is kind else kind.cast(x._values())
        parts.append((numbers, math.prod(x.shape[d:])))
    for i in range(math.prod(shape[:d])):
        for numbers, n in parts:
            values += numbers[i * n : (i + 1) * n]
    return record(make(values, shape, kind), used, lambda g: g.split(lengths, d), (), "Cat")


def stack(tensors, dim=0):
    tensors = list(tensors)
    check(tensors, "stack_empty")
    _check_tensors(tensors)
    first = tensors[0].shape
    for i, x in enumerate(tensors):
        check(x.shape == first, "stack", list(first), list(x.shape), i)
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def block_diag(*tensors):
    blocks = [x if x.ndim == 2 else x.reshape(1, -1) for x in tensors]
    bands, before, width = [], 0, sum(x.shape[1] for x in blocks)
    for x in blocks:
        height, after = x.shape[0], width - before - x.shape[1]
        bands.append(cat([x.new_zeros(height, before), x, x.new_zeros(height, after)], 1))
        before += x.shape[1]
    return cat(bands)


def meshgrid(*tensors, indexing="ij"):
    tensors = tensors[0] if isinstance(tensors[0], list | tuple) else tensors
    if indexing == "xy":
        return tuple(x.mT for x in reversed(meshgrid(*reversed(tensors))))
    shape = [x.numel() for x in tensors]
    ones = [[n if i == q else 1 for i in range(len(shape))] for q, n in enumerate(shape)]
    return tuple(x.reshape(dims).expand(shape) for x, dims in zip(tensors, ones))


# Dtypes.


def to(self, *args, dtype=None, device=None, copy=False, non_blocking=False):
    for x in args:
        if isinstance(x, Tensor | _dtype):
            dtype = x.dtype if isinstance(x, Tensor) else x
        elif not isinstance(x, bool):
            _device(x)
    if dtype is None or dtype is self.dtype:
        return self.clone() if copy else self
    values, mine = self._values(), self.dtype
    if mine.is_complex and not dtype.is_complex:
        values = [v.real for v in values]
    out = make(dtype.cast(values), self.shape, dtype)
    return record(out, (self,), lambda g: g.to(mine), (), "ToCopy")


def size(self, dim=None):
    return self.shape if dim is None else self.shape[_dim(self, dim)]


def stride(self, dim=None):
    return self._strides if dim is None else self._strides[_dim(self, dim)]


def type_(self, dtype=None):
    return f"torch.{self.dtype.title}Tensor" if dtype is None else to(self, dtype)


def new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False):
    kind = dtype or self.dtype
    out = make(kind.cast([fill_value] * math.prod(size)), tuple(size), kind)
    return out.requires_grad_(requires_grad)


def _new(value):
    return lambda self, *size, dtype=None, device=None, requires_grad=False: new_full(
        self, sizes(size), value, dtype=dtype, requires_grad=requires_grad
    )


new_zeros, new_ones, new_empty = _new(0), _new(1), _new(0)


def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    return as_tensor(data, dtype or self.dtype).detach().clone().requires_grad_(requires_grad)


# Complex numbers.


def complex_(real, imag):
    values = list(map(complex, real._values(), imag._values()))
    out = make(values, real.shape, complex_of(real.dtype))
    return record(out, (real, imag), lambda g: (g.real, g.imag), (), "Complex")


def view_as_complex(input):
    check(input.shape[-1] == 2, "complex_size")
    return complex_(input[..., 0], input[..., 1])


def _part(name, unit):
    def part(self):
        if not self.dtype.is_complex:
            check(name == "real", "complex", name)
            return self
        out = mapped(lambda v: getattr(v, name), self, real_of(self.dtype))

        def back(g):
            return mapped(lambda v: v * unit, g, self.dtype)

        return record(out, (self,), back, (), name.title())

    return property(part)


Tensor.real, Tensor.imag = _part("real", 1 + 0j), _part("imag", 1j)


register_module(globals())
