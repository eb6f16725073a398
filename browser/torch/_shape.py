"""Operations on shapes, indices and order, and those that join tensors."""

import builtins
import math
from collections import namedtuple

from ._math import masked_fill, rows
from ._registry import METHODS, method, op, torch_only
from ._tensor import (
    Tensor,
    as_tensor,
    axes,
    axis,
    broadcast,
    contiguous_strides,
    fill_in,
    is_packed,
    make,
    record,
    sizes,
)
from ._types import Size, bool_, complex_of, device, dtype, int64, larger, not_here, real_of

# Views.


def _dim(x, dim):
    return axis(dim, x.ndim)


@method
def view(self, *shape):
    if len(shape) == 1 and isinstance(shape[0], dtype):
        raise not_here("view with a dtype")
    if not shape:
        raise TypeError(
            "view() received an invalid combination of arguments - got (), but expected one of:"
        )
    shape = fill_in(sizes(shape), self.numel())
    strides = _as_view(self, shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return self._view(shape, strides)


def _as_view(x, shape):
    """Return the strides of the same numbers in another shape, None if they need a copy."""
    if is_packed(x.shape, x._strides):
        return contiguous_strides(shape)
    old = [(n, s) for n, s in zip(x.shape, x._strides) if n != 1]
    strides, taken = [], 1
    # From the back: each new axis takes its part of an old one, or merges some that are in order.
    step = None
    for n in reversed(shape):
        if n == 1:
            strides.append(step or 1)
            continue
        if taken == 1:
            size, step = old.pop()
            while old and old[-1][1] == step * size:
                size *= old.pop()[0]
            taken = size
        if taken % n:
            return None
        strides.append(step)
        taken //= n
        step *= n
    return tuple(reversed(strides))


@op
def reshape(input, *shape):
    shape = fill_in(sizes(shape), input.numel())
    strides = _as_view(input, shape)
    if strides is None:
        input, strides = input.clone(), contiguous_strides(shape)
    return input._view(shape, strides)


@method
def contiguous(self, *, memory_format=None):
    return self if is_packed(self.shape, self._strides) else self.clone()


@op
def clone(input, *, memory_format=None):
    out = make(input._values(), input.shape, input.dtype)
    return record(out, (input,), lambda g: (g,), (), "Clone")


@op
def permute(input, *dims):
    dims = [_dim(input, d) for d in sizes(dims)]
    if len(dims) != input.ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            "length of the desired ordering of dimensions i.e. input.dim() = "
            f"{input.ndim} is not equal to len(dims) = {len(dims)}"
        )
    if len(set(dims)) < len(dims):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return input._view([input.shape[d] for d in dims], [input._strides[d] for d in dims],
                       name="Permute")  # fmt: skip


@op
def transpose(input, dim0, dim1):
    a, b = _dim(input, dim0), _dim(input, dim1)
    dims = list(range(input.ndim))
    if dims:
        dims[a], dims[b] = b, a
    return permute(input, dims)


@op
def movedim(input, source, destination):
    source, destination = axes(source, input.ndim), axes(destination, input.ndim)
    rest = iter(d for d in range(input.ndim) if d not in source)
    where = dict(zip(destination, source))
    return permute(input, [where[d] if d in where else next(rest) for d in range(input.ndim)])


@op
def t(input):
    if input.ndim > 2:
        text = f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D"
        raise RuntimeError(text)
    return transpose(input, 0, 1) if input.ndim == 2 else input


def _matrix_transpose(self):
    if self.ndim < 2:
        text = "tensor.mT is only supported on matrices or batches of matrices."
        raise RuntimeError(f"{text} Got {self.ndim}-D tensor.")
    return transpose(self, -2, -1)


Tensor.T = property(lambda self: permute(self, list(range(self.ndim))[::-1]))
Tensor.mT = property(_matrix_transpose)
Tensor.mH = property(lambda self: _matrix_transpose(METHODS["conj"](self)))


@op
def unsqueeze(input, dim):
    d = axis(dim, input.ndim + 1)
    shape, strides = list(input.shape), list(input._strides)
    strides.insert(d, strides[d] * shape[d] if d < input.ndim else 1)
    shape.insert(d, 1)
    return input._view(shape, strides, name="Unsqueeze")


@op
def squeeze(input, dim=None):
    dims = axes(dim, input.ndim)
    kept = [d for d in range(input.ndim) if d not in dims or input.shape[d] != 1]
    return input._view([input.shape[d] for d in kept], [input._strides[d] for d in kept],
                       name="Squeeze")  # fmt: skip


@method
def expand(self, *size):
    shape, extra = list(sizes(size)), len(sizes(size)) - self.ndim
    if extra < 0:
        raise RuntimeError(
            f"expand(torch.{self.dtype.title}Tensor{{{list(self.shape)}}}, size={shape}): the "
            f"number of sizes provided ({len(shape)}) must be greater or equal to the number of "
            f"dimensions in the tensor ({self.ndim})"
        )
    strides, wanted = [0] * extra, list(shape)
    for i, (n, s) in enumerate(zip(self.shape, self._strides), extra):
        shape[i] = n if shape[i] == -1 else shape[i]
        if n not in (1, shape[i]):
            raise RuntimeError(
                f"The expanded size of the tensor ({shape[i]}) must match the existing size ({n}) "
                f"at non-singleton dimension {i}.  Target sizes: {wanted}.  "
                f"Tensor sizes: {list(self.shape)}"
            )
        strides.append(s if n == shape[i] else 0)
    return self._view(shape, strides, name="Expand")


@op
def broadcast_to(input, size):
    return expand(input, size)


@op
def flatten(input, start_dim=0, end_dim=-1):
    first, last = _dim(input, start_dim), _dim(input, end_dim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    middle = math.prod(input.shape[first : last + 1])
    return reshape(input, *input.shape[:first], middle, *input.shape[last + 1 :])


@op
def unflatten(input, dim, sizes):
    d = _dim(input, dim)
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    new = fill_in(tuple(sizes), input.shape[d], "unflatten", list(sizes), dim, input.shape[d])
    return view(input, *input.shape[:d], *new, *input.shape[d + 1 :])


@op
def select(input, dim, index):
    return input[(slice(None),) * _dim(input, dim) + (index,)]


@op
def narrow(input, dim, start, length):
    d = _dim(input, dim)
    if start + length > input.shape[d]:
        text = f"start ({start}) + length ({length}) exceeds dimension size ({input.shape[d]})."
        raise RuntimeError(text)
    return input[(slice(None),) * d + (slice(start, start + length),)]


@op
def unbind(input, dim=0):
    return tuple(select(input, dim, i) for i in range(input.shape[_dim(input, dim)]))


@op
def split(tensor, split_size_or_sections, dim=0):
    parts, size = split_size_or_sections, tensor.shape[_dim(tensor, dim)]
    if isinstance(parts, int):
        if parts <= 0 < size:
            text = f"but got dimension size of {size}"
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, {text}")
        parts = [min(parts, size - i) for i in range(0, size, parts)] or [0]
    elif sum(parts) != size:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size "
            f"at dimension {dim}), but got split_sizes={list(parts)}"
        )
    starts = [sum(parts[:i]) for i in range(len(parts))]
    return tuple(narrow(tensor, dim, start, n) for start, n in zip(starts, parts))


@op
def chunk(input, chunks, dim=0):
    if chunks < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    return split(input, max(-(-input.shape[_dim(input, dim)] // chunks), 1), dim)


@op
def diagonal(input, offset=0, dim1=0, dim2=1):
    a, b = _dim(input, dim1), _dim(input, dim2)
    size = min(input.shape[a] + min(0, offset), input.shape[b] - max(0, offset))
    start = input._offset + offset * (input._strides[b] if offset > 0 else -input._strides[a])
    rest = [d for d in range(input.ndim) if d not in (a, b)]
    shape = [*(input.shape[d] for d in rest), max(size, 0)]
    strides = [*(input._strides[d] for d in rest), input._strides[a] + input._strides[b]]
    return input._view(shape, strides, start, "Diagonal")


@op
def as_strided(input, size, stride, storage_offset=None):
    return input._view(size, stride, storage_offset)


@method
def unfold(self, dimension, size, step):
    d = _dim(self, dimension)
    count = (self.shape[d] - size) // step + 1
    if count < 1:
        text = f"dimension {d} has size {self.shape[d]} but got size {size}"
        raise RuntimeError(f"maximum size for tensor at {text}")
    shape = [*self.shape[:d], count, *self.shape[d + 1 :], size]
    stride = self._strides[d]
    strides = [*self._strides[:d], stride * step, *self._strides[d + 1 :], stride]
    return self._view(shape, strides)


# Order and copies.


def _picked(x, dim, index):
    return x[(slice(None),) * _dim(x, dim) + (as_tensor(list(index), int64),)]


@op
def flip(input, *dims):
    out = input.clone()
    for d in sizes(dims):
        out = _picked(out, d, reversed(range(out.shape[_dim(out, d)])))
    return out


@op
def roll(input, shifts, dims=None):
    if dims is None or dims == ():
        return roll(input.flatten(), shifts, 0).reshape(input.shape)
    pairs = zip(*([x] if isinstance(x, int) else x for x in (shifts, dims)))
    for shift, d in pairs:
        size = input.shape[_dim(input, d)]
        input = _picked(input, d, [(i - shift) % size for i in range(size)])
    return input


@method
def repeat(self, *repeats):
    counts = sizes(repeats)
    if len(counts) < self.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    shape = (1,) * (len(counts) - self.ndim) + self.shape
    pairs = [part for n, size in zip(counts, shape) for part in (n, size)]
    split = self.reshape([part for size in shape for part in (1, size)])
    return split.expand(pairs).reshape([n * size for n, size in zip(counts, shape)]).clone()


@op
def tile(input, *dims):
    dims = sizes(dims)
    return repeat(input, (1,) * (input.ndim - len(dims)) + dims)


@op
def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    if dim is None:
        input, dim = input.flatten(), 0
    size = input.shape[_dim(input, dim)]
    counts = repeats.tolist() if isinstance(repeats, Tensor) else repeats
    counts = [counts] * size if isinstance(counts, int) else counts
    counts = counts * size if len(counts) == 1 else counts
    if len(counts) != size:
        raise RuntimeError("repeats must have the same size as input along dim")
    return _picked(input, dim, [i for i, n in enumerate(counts) for _ in range(n)])


def _triangle(name, keeps):
    def function(input, diagonal=0):
        if input.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        n, m = input.shape[-2:]
        values = [not keeps(j - i, diagonal) for i in range(n) for j in range(m)]
        return masked_fill(input, make(values, (n, m), bool_), 0)

    function.__name__ = name
    op(function)


_triangle("tril", lambda ahead, diagonal: ahead <= diagonal)
_triangle("triu", lambda ahead, diagonal: ahead >= diagonal)


@op
def diag(input, diagonal=0):
    if input.ndim == 2:
        return METHODS["diagonal"](input, diagonal)
    return diag_embed(input, diagonal)


@op
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    if (dim1, dim2) != (-2, -1):
        raise not_here("diag_embed along other axes")
    if offset:
        raise not_here("diag_embed with an offset")
    n = input.shape[-1]
    values = [float(i == j) for i in range(n) for j in range(n)]
    return input.unsqueeze(-1) * make(input.dtype.cast(values), (n, n), input.dtype)


# Indices.


@op
def gather(input, dim, index):
    return input[_grid("gather", input, dim, index)]


def _grid(name, x, dim, index):
    """Return an index of x that takes `index` along one axis, and counts along the others."""
    if index.dtype is not int64 and index.dtype.name != "int32":
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    if index.ndim != x.ndim:
        text = "Index tensor must have the same number of dimensions as input tensor"
        which = "self" if name == "scatter" else "input"
        raise RuntimeError(text.replace("input", which) if name == "scatter" else text)
    d = _dim(x, dim)
    for i in range(x.ndim):
        if i != d and index.shape[i] > x.shape[i]:
            raise RuntimeError(
                f"Size does not match at dimension {i} expected index {list(index.shape)} to be "
                f"no larger than self {list(x.shape)} apart from dimension {d}"
            )
    for i in index._values():
        if not 0 <= i < x.shape[d]:
            text = f"index {i} is out of bounds for dimension {d} with size {x.shape[d]}"
            raise RuntimeError(text)
    grid = [
        make(range(n), [n if i == q else 1 for i in range(index.ndim)], int64)
        for q, n in enumerate(index.shape)
    ]
    return tuple(index if i == d else grid[i] for i in range(x.ndim)) or (index,)


@op
def index_select(input, dim, index):
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    for i in index._values():
        if not 0 <= i < input.shape[_dim(input, dim)]:
            raise IndexError("index out of range in self")
    return input[(slice(None),) * _dim(input, dim) + (index.reshape(-1),)]


@op
def masked_select(input, mask):
    shape = broadcast(input.shape, mask.shape)
    return input.expand(shape)[mask.expand(shape)]


@method
def scatter_(self, dim, index, src=None, *, value=None, reduce=None):
    if reduce is not None:
        raise not_here("scatter with reduce")
    src = value if src is None else src
    if isinstance(src, Tensor) and src.ndim:
        src = src[tuple(slice(n) for n in index.shape)]
        if src.dtype is not self.dtype:
            raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    self[_grid("scatter", self, dim, index)] = src
    return self


@method
def index_fill_(self, dim, index, value):
    self[(slice(None),) * _dim(self, dim) + (index,)] = value
    return self


@method
def index_add_(self, dim, index, source, *, alpha=1):
    front = (slice(None),) * _dim(self, dim)
    for at, i in enumerate(index.tolist()):
        self[(*front, i)] = self[(*front, i)] + source[(*front, at)] * alpha
    return self


@method
def scatter_add_(self, dim, index, src):
    grid, d = _grid("scatter_add", self, dim, index), _dim(self, dim)
    for at in range(index.shape[d]):
        part = (slice(None),) * d + (slice(at, at + 1),)
        place = tuple(x[part] if x.shape[d] > 1 or i == d else x for i, x in enumerate(grid))
        self[place] = self[place] + src[tuple(slice(n) for n in index.shape)][part]
    return self


for _name in ("scatter", "index_fill", "index_add", "scatter_add"):

    def _copied(input, *args, _in_place=METHODS[f"{_name}_"], **kwargs):
        return _in_place(input.clone(), *args, **kwargs)

    _copied.__name__ = _name
    op(_copied)


@op
def nonzero(input, *, as_tuple=False):
    found, hits = [], [i for i, v in enumerate(input._values()) if v]
    for i in hits:
        at, rest = [], i
        for n in reversed(input.shape):
            at.append(rest % n)
            rest //= n
        found += reversed(at)
    out = make(found, (len(hits), input.ndim), int64)
    return unbind(out, 1) if as_tuple else out


def _ranked(x, dim, descending):
    line = x.detach().movedim(dim, -1) if x.ndim else x.detach()
    index = []
    for row in rows(line, -1)[0]:
        by = {i: v if v == v else math.inf for i, v in enumerate(row)}
        index += sorted(by, key=by.__getitem__, reverse=False) if not descending else sorted(
            by, key=lambda i: -by[i])  # fmt: skip
    out = make(index, line.shape, int64)
    return out.movedim(-1, dim) if x.ndim else out


_Sort = namedtuple("sort", ("values", "indices"))
_Topk = namedtuple("topk", ("values", "indices"))


@op
def argsort(input, dim=-1, descending=False, stable=False):
    return _ranked(input, dim, descending)


@op
def sort(input, dim=-1, descending=False, *, stable=False):
    index = _ranked(input, dim, descending)
    return _Sort(gather(input, dim, index), index)


@op
def topk(input, k, dim=-1, largest=True, sorted=True):
    if k > (input.shape[_dim(input, dim)] if input.ndim else 1):
        raise RuntimeError("selected index k out of range")
    index = _ranked(input, dim, largest).narrow(dim, 0, k)
    return _Topk(gather(input, dim, index), index)


@op
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    if dim not in (None, 0):
        raise not_here("unique along this dim")
    items = input._values() if dim is None else [tuple(row._values()) for row in input]
    found = {v: i for i, v in enumerate(builtins.sorted(set(items)))}
    flat = list(found) if dim is None else [v for row in found for v in row]
    out = [make(flat, (len(found), *(input.shape[1:] if dim == 0 else ())), input.dtype)]
    if return_inverse:
        shape = input.shape if dim is None else (len(items),)
        out.append(make([found[v] for v in items], shape, int64))
    if return_counts:
        out.append(make([list(items).count(v) for v in found], (len(found),), int64))
    return out[0] if len(out) == 1 else tuple(out)


@op
def bincount(input, weights=None, minlength=0):
    values = input._values()
    size = max(minlength, max(values, default=-1) + 1)
    if weights is None:
        return make([list(values).count(i) for i in range(size)], (size,), int64)
    totals = [0.0] * size
    for i, v in zip(values, weights._values()):
        totals[i] += v
    return make(totals, (size,), weights.dtype)


@torch_only
def searchsorted(sorted_sequence, input, *, right=False):
    if not isinstance(input, Tensor):
        return searchsorted(sorted_sequence, as_tensor([input]), right=right).reshape(())
    lines = rows(sorted_sequence, -1)[0]
    asked = rows(input, -1)[0]
    lines = lines * len(asked) if len(lines) == 1 else lines
    counts = [
        sum(v <= x if right else v < x for v in line)
        for line, row in zip(lines, asked) for x in row
    ]  # fmt: skip
    return make(counts, input.shape, int64)


@torch_only
def isin(elements, test_elements):
    known = set(test_elements._values() if isinstance(test_elements, Tensor) else [test_elements])
    return make([v in known for v in elements._values()], elements.shape, bool_)


@op
def median(input, dim=None, keepdim=False):
    if dim is None:
        return sort(input.flatten()).values[(input.numel() - 1) // 2]
    index = _ranked(input, dim, False).narrow(dim, (input.shape[dim] - 1) // 2, 1)
    values = gather(input, dim, index)
    return _Sort(*((values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))))


# Joining.


@torch_only
def cat(tensors, dim=0):
    if isinstance(tensors, Tensor):
        text = "argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"
        raise TypeError(f"cat(): {text}")
    tensors = list(tensors)
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            text = f"expected Tensor as element {i} in argument 0, but got {type(x).__name__}"
            raise TypeError(text)
    if not tensors:
        raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
    # PyTorch skips empty tensors of one axis.
    used = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    first = used[0]
    if not first.ndim:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    d, kind = _dim(first, dim), first.dtype
    for i, x in enumerate(used):
        if x.ndim != first.ndim:
            got = f"got {first.ndim} and {x.ndim}"
            raise RuntimeError(f"Tensors must have same number of dimensions: {got}")
        for q, n in enumerate(x.shape):
            if q != d and n != first.shape[q]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {d}. Expected size "
                    f"{first.shape[q]} but got size {n} for tensor number {i} in the list."
                )
        kind = larger(kind, x.dtype) if x.dtype is not kind else kind
    shape = list(first.shape)
    shape[d] = sum(x.shape[d] for x in used)
    parts, values = [], []
    for x in used:
        numbers = x._values()
        parts.append(
            (kind.cast(numbers) if x.dtype is not kind else numbers, math.prod(x.shape[d:]))
        )
    for i in range(math.prod(shape[:d])):
        for numbers, n in parts:
            values += numbers[i * n : (i + 1) * n]
    return record(
        make(values, shape, kind), used, lambda g: g.split([x.shape[d] for x in used], d), (), "Cat"
    )


@torch_only
def stack(tensors, dim=0):
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            text = f"expected Tensor as element {i} in argument 0, but got {type(x).__name__}"
            raise TypeError(text)
        if x.shape != tensors[0].shape:
            first, got = list(tensors[0].shape), list(x.shape)
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {first} at entry 0 and "
                f"{got} at entry {i}"
            )
    return cat([unsqueeze(x, dim) for x in tensors], dim)


@torch_only
def hstack(tensors):
    return cat(tensors, 0 if tensors[0].ndim < 2 else 1)


@torch_only
def vstack(tensors):
    return cat([x if x.ndim > 1 else x.unsqueeze(0) for x in tensors], 0)


@torch_only
def block_diag(*tensors):
    blocks = [x if x.ndim == 2 else x.reshape(1, -1) for x in tensors]
    bands, before, width = [], 0, sum(x.shape[1] for x in blocks)
    for x in blocks:
        height, after = x.shape[0], width - before - x.shape[1]
        bands.append(cat([x.new_zeros(height, before), x, x.new_zeros(height, after)], 1))
        before += x.shape[1]
    return cat(bands)


@torch_only
def meshgrid(*tensors, indexing="ij"):
    tensors = tensors[0] if isinstance(tensors[0], list | tuple) else tensors
    if indexing == "xy":
        return tuple(x.mT for x in reversed(meshgrid(*reversed(tensors))))
    shape = [x.numel() for x in tensors]
    ones = [[n if i == q else 1 for i in range(len(shape))] for q, n in enumerate(shape)]
    return tuple(x.reshape(one).expand(shape) for x, one in zip(tensors, ones))


@torch_only
def broadcast_shapes(*shapes):
    return Size(broadcast(*shapes))


@torch_only
def tensordot(a, b, dims=2):
    left, right = (range(a.ndim - dims, a.ndim), range(dims)) if isinstance(dims, int) else dims
    left, right = axes(tuple(left), a.ndim), axes(tuple(right), b.ndim)
    a = a.movedim(tuple(left), tuple(range(-len(left), 0)))
    b = b.movedim(tuple(right), tuple(range(len(right))))
    outer = a.shape[: -len(left)] + b.shape[len(right) :]
    return (a.flatten(-len(left)) @ b.flatten(0, len(right) - 1).flatten(1)).reshape(outer)


# Dtypes.


@method
def to(self, *args, dtype=None, device=None, copy=False, non_blocking=False):
    for x in args:
        if isinstance(x, Tensor):
            dtype = x.dtype
        elif isinstance(x, _Dtype):
            dtype = x
        elif not isinstance(x, bool):
            _Device(x)
    if dtype is None or dtype is self.dtype:
        return self.clone() if copy else self
    source = self._values()
    if self.dtype.is_complex and not dtype.is_complex:
        source = [v.real for v in source]
    out, old = make(dtype.cast(source), self.shape, dtype), self.dtype
    return record(out, (self,), lambda g: (g.to(old),), (), "ToCopy")


_Dtype, _Device = dtype, device


@method
def size(self, dim=None):
    return self.shape if dim is None else self.shape[_dim(self, dim)]


@method
def stride(self, dim=None):
    return self._strides if dim is None else self._strides[_dim(self, dim)]


@method
def type(self, dtype=None):
    return f"torch.{self.dtype.title}Tensor" if dtype is None else to(self, dtype)


def _new(name, value):
    def function(self, *size, dtype=None, device=None, requires_grad=False):
        kind = dtype or self.dtype
        shape = sizes(size)
        return make(kind.cast([value] * math.prod(shape)), shape, kind).requires_grad_(
            requires_grad
        )

    function.__name__ = name
    method(function)


_new("new_zeros", 0)
_new("new_ones", 1)
_new("new_empty", 0)


@method
def new_full(self, size, fill_value, *, dtype=None, device=None):
    kind = dtype or self.dtype
    return make(kind.cast([fill_value] * math.prod(size)), tuple(size), kind)


@method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    return as_tensor(data, dtype or self.dtype).detach().clone().requires_grad_(requires_grad)


# Complex numbers.


@torch_only
def complex(real, imag):
    kind = complex_of(real.dtype)
    values = list(map(builtins.complex, real._values(), imag._values()))
    out = make(values, real.shape, kind)
    return record(out, (real, imag), lambda g: (g.real, g.imag), (), "Complex")


@torch_only
def polar(abs, angle):
    return complex(abs * METHODS["cos"](angle), abs * METHODS["sin"](angle))


@torch_only
def view_as_complex(input):
    if input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    return complex(input[..., 0], input[..., 1])


@torch_only
def view_as_real(input):
    return stack([input.real, input.imag], -1)


def _part(name, back):
    def part(self):
        if not self.dtype.is_complex:
            if name == "real":
                return self
            raise RuntimeError(f"{name} is not implemented for tensors with non-complex dtypes.")
        values, kind = [getattr(v, name) for v in self._values()], real_of(self.dtype)
        mine = self.dtype
        return record(
            make(values, self.shape, kind), (self,),
            lambda g: (make([v * back for v in g._values()], g.shape, mine),), (), name.title(),
        )  # fmt: skip

    setattr(Tensor, name, property(part))


_part("real", 1 + 0j)
_part("imag", 1j)


@op
def angle(input):
    return METHODS["atan2"](input.imag, input.real)
