"""The tensor: storage, views, indexing, in-place operations and gradients."""

import math
import operator
from contextlib import ContextDecorator
from functools import partialmethod

from ._errors import absent, check, error, not_here
from ._layout import broadcast, contiguous_strides, is_packed, places, reader
from ._types import CPU, STATE, Size, bool_, complex_of, int64, strided

# Gradients.


class Storage(list):
    """The elements that a tensor and its views share, and the number of in-place changes."""

    version = 0


class Node:
    """A node of the autograd graph: backpropagates the gradient of its output to its inputs."""

    watched, freed = None, False

    def __init__(self, out, parents, back, saved, name):
        self.shape, self.dtype, self.back, self._name = out.shape, out.dtype, back, name
        self.parents = tuple(map(key, parents))
        self.saved = [(x, x._storage.version, x._node) for x in saved]

    def name(self):
        """Return the name of the node in PyTorch."""
        return f"{self._name}Backward0"

    def verify(self):
        """Raise an error if saved tensors were freed, or modified in place."""
        check(not (self.freed and self.saved), "freed")
        for x, version, node in self.saved:
            if x._storage.version != version:
                of = f", which is output 0 of {node.name()}," if node else ""
                now, shape = x._storage.version, list(x.shape)
                raise error("modified", x.dtype.title, shape, of, now, version)


def key(x):
    """Return the node of a tensor, or the tensor if it is a leaf; None if it needs no gradient."""
    return (x._node or x) if isinstance(x, Tensor) and x._requires else None


def record(out, parents, back, saved=(), name=""):
    """Record how to backpropagate the gradient of a result to its parents.

    `back` maps the gradient of the result to a gradient for each parent.
    """
    if STATE.grad and out.dtype.rank > 1 and any(key(p) is not None for p in parents):
        out._requires, out._node = True, Node(out, parents, back, saved, name)
    return out


def _ordered(starts):
    """Sort the nodes behind some results: each node follows all nodes that use it."""
    order, seen, waiting = [], set(), [(start, False) for start in starts]
    while waiting:
        step, done = waiting.pop()
        if done:
            order.append(step)
        elif id(step) not in seen:
            seen.add(id(step))
            waiting.append((step, True))
            waiting += [(p, False) for p in getattr(step, "parents", ()) if p is not None]
    return reversed(order)


def propagate(outputs, seeds, retain_graph=None):
    """Yield each node and leaf that the outputs depend on, with its gradient."""
    grads, before = {}, STATE.grad

    def add(step, g):
        if g.dtype is not step.dtype:
            g = g.real if g.dtype.is_complex and not step.dtype.is_complex else g.to(step.dtype)
        grads[id(step)] = grads[id(step)] + g if id(step) in grads else g

    STATE.grad = False
    try:
        for x, seed in zip(outputs, seeds):
            check(key(x) is not None, "no_grad_fn")
            check(seed is not None or x.numel() == 1, "scalar_output")
            add(key(x), make([1.0] * x.numel(), x.shape, x.dtype) if seed is None else seed)
        for step in _ordered([key(x) for x in outputs]):
            g = grads.get(id(step))
            if g is None:
                continue
            yield step, g
            if isinstance(step, Node):
                step.verify()
                step.freed = not retain_graph
                parts = step.back(g)
                parts = [parts] if isinstance(parts, Tensor) else parts
                for parent, part in zip(step.parents, parts):
                    if parent is not None and part is not None:
                        add(parent, part)
    finally:
        STATE.grad = before


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False,
         allow_unused=None):  # fmt: skip
    """Compute the gradients of outputs with respect to inputs."""
    if create_graph:
        raise not_here("create_graph")
    outputs, inputs, seeds = (
        [x] if isinstance(x, Tensor) else list(x or ()) for x in (outputs, inputs, grad_outputs)
    )
    check(all(x._requires for x in inputs), "not_required")
    steps = propagate(outputs, seeds or [None] * len(outputs), retain_graph)
    by_node = {id(step): g for step, g in steps}
    grads = [by_node.get(id(key(x))) for x in inputs]
    check(allow_unused or not any(g is None for g in grads), "unused")
    return tuple(g if g is None else g.detach().clone() for g in grads)


class Mode(ContextDecorator):
    """Enable or disable gradients in a `with` block or in a decorated function."""

    def __init__(self, mode):
        self.mode, self.before = mode, []

    def __enter__(self):
        self.before.append(STATE.grad)
        STATE.grad = self.mode

    def __exit__(self, *_):
        STATE.grad = self.before.pop()


def no_grad(function=None):
    return Mode(False)(function) if function else Mode(False)


def enable_grad(function=None):
    return Mode(True)(function) if function else Mode(True)


def inference_mode(mode=True):
    return Mode(False)(mode) if callable(mode) else Mode(not mode)


class set_grad_enabled(Mode):
    """Enable or disable gradients from now on, or until the end of the `with` block."""

    def __init__(self, mode):
        super().__init__(bool(mode))
        super().__enter__()

    def __enter__(self):
        pass


# New tensors.


def spread(x, shape):
    """Return the elements of a tensor, broadcast to a shape."""
    if x.shape == shape:
        return x._values()
    strides = [0 if n == 1 else s for n, s in zip(x.shape, x._strides)]
    strides = (0,) * (len(shape) - len(strides)) + tuple(strides)
    return reader(tuple(shape), strides, x._offset)(x._storage)


def unbroadcast(g, shape):
    """Sum a gradient over the axes along which its tensor was broadcast."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    dims = [*range(extra), *(extra + i for i, n in enumerate(shape) if n != g.shape[extra + i])]
    return g.sum(dims, keepdim=True).reshape(shape) if dims else g.reshape(shape)


def make(values, shape, dtype):
    """Create a tensor from numbers that already have its dtype."""
    return view(Storage(values), Size(shape), dtype, contiguous_strides(tuple(shape)), 0)


def view(storage, shape, dtype, strides, offset):
    """Create a tensor that reads a storage."""
    return object.__new__(Tensor)._fill(storage, shape, dtype, strides, offset)


def dtype_of(numbers):
    """Return the dtype of a tensor of these Python numbers."""
    kinds = set(map(type, numbers))
    if complex in kinds:
        return complex_of(STATE.dtype)
    if float in kinds or not kinds:
        return STATE.dtype
    return bool_ if kinds == {bool} else int64


def as_tensor(data, dtype=None, device=None):
    """Create a tensor from numbers or nested lists; return a tensor without copying it."""
    if device is not None:
        type(CPU)(device)
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    shape, flat = [], []

    def walk(x, depth):
        x = x.tolist() if isinstance(x, Tensor) else x
        if isinstance(x, list | tuple | range):
            if len(shape) == depth:
                shape.append(len(x))
            check(shape[depth] == len(x), "sequence", shape[depth], depth, len(x))
            for part in x:
                walk(part, depth + 1)
        elif isinstance(x, bool | int | float | complex):
            flat.append(x)
        else:
            check(not isinstance(x, str), "string")
            raise error("infer_type", type(x).__name__)

    walk(data, 0)
    dtype = dtype or dtype_of(flat)
    return make(dtype.cast(flat), shape, dtype)


def _nested(values, shape):
    """Arrange numbers in nested lists."""
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return [_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _printed(part, ndim, depth=8):
    """Format nested lists, with one line per innermost list."""
    if not ndim:
        return part
    gap = "," + "\n" * (ndim - 1) + " " * (depth if ndim > 1 else 1)
    return f"[{gap.join(_printed(each, ndim - 1, depth + 1) for each in part)}]"


def _digits(values):
    """Return the format string for the real numbers of a tensor."""
    finite = [abs(v) for v in values if isinstance(v, float) and math.isfinite(v)]
    if all(v == int(v) for v in finite):
        return "{:.0f}."
    return "{:.4e}" if max(finite) >= 1e8 or any(0 < v < 1e-4 for v in finite) else "{:.4f}"


class Tensor:
    """A CPU tensor whose views share its storage."""

    layout, device = strided, CPU
    is_sparse = is_cuda = is_quantized = is_nested = is_meta = False

    def __new__(cls, *given, **_):
        x = object.__new__(cls)
        data = given[0] if given and isinstance(given[0], list | tuple | Tensor) else None
        if data is None and cls is Tensor:
            data = make([0.0] * math.prod(given or (0,)), given or (0,), STATE.dtype)
        return x if data is None else x._like(as_tensor(data, STATE.dtype).detach())

    def _fill(self, storage, shape, dtype, strides, offset):
        self._storage, self.shape, self.dtype = storage, shape, dtype
        self._strides, self._offset = strides, offset
        self._requires, self._node, self._base, self.grad = False, None, None, None
        return self

    def _like(self, x):
        """Become a view of another tensor."""
        return self._fill(x._storage, x.shape, x.dtype, x._strides, x._offset)

    def _values(self):
        """Return all elements, in order."""
        return reader(self.shape, self._strides, self._offset)(self._storage)

    def _alias(self):
        """Return the same tensor as another object, with the same node of the graph."""
        x = self.detach()
        x._requires, x._node = self._requires, self._node
        return x

    def __getattr__(self, name):
        absent("Tensor", name, "'Tensor' object")

    def __hash__(self):
        return id(self)

    def __deepcopy__(self, memo):
        check(self._node is None, "deepcopy")
        x = memo[id(self)] = type(self).__new__(type(self))
        x.__dict__.update(self.__dict__)
        x._storage, x._offset = Storage(self._values()), 0
        x._strides = contiguous_strides(self.shape)
        return x

    # Reading.

    ndim = property(lambda self: len(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.numel() * self.dtype.itemsize)
    is_leaf = property(lambda self: self._node is None)
    grad_fn = property(lambda self: self._node)

    def __len__(self):
        check(self.shape, "len")
        return self.shape[0]

    def item(self):
        check(self.numel() == 1, "item", self.numel())
        return self._values()[0]

    def tolist(self):
        return _nested(self._values(), self.shape)

    def _number(self, kind):
        check(self.numel() == 1, "scalar")
        return kind(self.item())

    __float__ = partialmethod(_number, float)
    __int__ = partialmethod(_number, int)
    __complex__ = partialmethod(_number, complex)

    def __index__(self):
        check(self.dtype.rank < 2 and self.numel() == 1, "index_convert")
        return int(self.item())

    def __bool__(self):
        many = "more than one value" if self.numel() else "no values"
        check(self.numel() == 1, "ambiguous", many)
        return bool(self.item())

    def __iter__(self):
        check(self.shape, "iteration")
        return iter(self.unbind(0))

    def __contains__(self, x):
        return bool((self == x).any())

    def __format__(self, spec):
        return str(self) if self.shape else format(self.item(), spec)

    def __repr__(self):
        values = self._values()
        texts = [
            _digits(values).format(v) if isinstance(v, float) and math.isfinite(v) else str(v)
            for v in values
        ]
        width = max(map(len, texts), default=0)
        body = _printed(_nested([text.rjust(width) for text in texts], self.shape), self.ndim)
        kind = "" if self.dtype in (STATE.dtype, int64, bool_) else f", dtype={self.dtype}"
        trained = f", grad_fn=<{self._node.name()}>" if self._node else ""
        return f"tensor({body}{kind}{trained or ', requires_grad=True' * self._requires})"

    # Gradients.

    @property
    def requires_grad(self):
        return self._requires

    @requires_grad.setter
    def requires_grad(self, on):
        if on:
            check(self.dtype.rank > 1, "not_differentiable")
        elif self._node is not None:
            raise error("not_leaf")
        self._requires = bool(on)

    def requires_grad_(self, requires_grad=True):
        self.requires_grad = requires_grad
        return self

    def detach(self):
        return view(self._storage, self.shape, self.dtype, self._strides, self._offset)

    def detach_(self):
        self._node, self._requires = None, False
        return self

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, x):
        kept = self._requires, self._node, self._base, self.grad
        self._like(x)
        self._requires, self._node, self._base, self.grad = kept

    def retain_grad(self):
        if self._node:
            self._node.watched = self

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        if create_graph or inputs:
            raise not_here("backward with create_graph or inputs")
        for step, g in propagate([self], [gradient], retain_graph):
            leaf = step.watched if isinstance(step, Node) else step
            if leaf is not None:
                leaf.grad = g.detach().clone() if leaf.grad is None else leaf.grad + g

    # Views and indices.

    def _view(self, shape, strides, offset=None, name="View"):
        """Return a view through which gradients flow."""
        offset = self._offset if offset is None else offset
        out = view(self._storage, Size(shape), self.dtype, tuple(strides), offset)
        out._base = self if self._base is None else self._base
        if STATE.grad and self._requires:
            indices = places(out.shape, out._strides, offset)
            record(out, (self,), self._scatter(indices, out.shape), name=name)
        return out

    def _positions(self, indices):
        """Convert storage indices to flat indices of this tensor."""
        if is_packed(self.shape, self._strides):
            return [i - self._offset for i in indices] if self._offset else indices
        index = {p: i for i, p in enumerate(places(self.shape, self._strides, self._offset))}
        return [index[i] for i in indices]

    def _scatter(self, indices, shape):
        """Return the function that backpropagates from elements at these storage indices."""
        where, mine, dtype = self._positions(indices), self.shape, self.dtype

        def back(g):
            total = [0.0] * math.prod(mine)
            for i, v in zip(where, g._values()):
                total[i] += v
            return make(total, mine, dtype)

        return back

    def _find(self, index):
        """Parse an index.

        Returns:
            The axes of the view before index tensors are applied, as pairs of size and stride; the
            offset of the view; and the index tensors, keyed by axis.
        """
        index = list(index) if isinstance(index, tuple) else [index]
        # An empty list selects no elements; it must not become a tensor of floats.
        index = [
            k if not isinstance(k, list | tuple | range)
            else as_tensor(k, None if len(k) else int64) for k in index
        ]  # fmt: skip
        used = sum(map(_consumed, index))
        check(used <= self.ndim, "too_many", self.ndim)
        position = next((i for i, k in enumerate(index) if k is ...), len(index))
        index[position : position + 1] = [slice(None)] * (self.ndim - used)
        mine, dims, offset, tensors = list(zip(self.shape, self._strides)), [], self._offset, {}
        for k in index:
            if k is None:
                dims.append((1, 0))
            elif k is not ... and not _consumed(k):  # True or False is an axis of size 1 or 0.
                tensors[len(dims)] = make([0] if k else [], (int(bool(k)),), int64)
                dims.append((1, 0))
            elif isinstance(k, slice):
                check(k.step is None or k.step >= 0, "step")
                size, stride = mine.pop(0)
                cut = range(*k.indices(size))
                dims.append((len(cut), stride * cut.step))
                offset += cut.start * stride if len(cut) else 0
            elif isinstance(k, Tensor) and k.ndim:
                for x in self._split_index(k, len(mine)):
                    tensors[len(dims)] = x
                    dims.append(mine.pop(0))
            else:
                try:
                    i = operator.index(k)
                except TypeError:
                    raise error("index", type(k).__name__) from None
                d, (size, stride) = self.ndim - len(mine), mine.pop(0)
                check(-size <= i < size, "index_range", i, d, size)
                offset += i % size * stride
        return dims, offset, tensors

    def _split_index(self, k, left):
        """Return a list of one index tensor, or one index tensor for each axis of a mask."""
        kind = k.dtype
        check(kind.rank < 2 and kind.name not in ("int8", "int16"), "index_dtype")
        if kind is not bool_:
            return [k]
        start = self.ndim - left
        for i, (n, m) in enumerate(zip(k.shape, self.shape[start:])):
            check(n == m, "mask", list(k.shape), i, list(self.shape), start + i)
        return k.nonzero().unbind(1)

    def _gathered(self, dims, offset, tensors):
        """Return the storage indices and the shape of the elements that an index selects."""
        if not tensors:
            shape = tuple(n for n, _ in dims)
            return places(shape, tuple(s for _, s in dims), offset), shape
        common = broadcast(*[x.shape for x in tensors.values()])
        steps = [0] * math.prod(common)
        for d, x in tensors.items():
            size, stride = dims[d]
            for j, i in enumerate(spread(x, common)):
                if not -size <= i < size:
                    raise error("index_range", i, d, size)
                steps[j] += i % size * stride
        first, together = min(tensors), max(tensors) - min(tensors) == len(tensors) - 1
        rest = [d for d in range(len(dims)) if d not in tensors]
        front = [dims[d] for d in rest if together and d < first]
        end = [dims[d] for d in rest][len(front) :]
        before, after = (places(*zip(*part), 0) if part else [0] for part in (front, end))
        indices = [offset + a + b + c for a in before for b in steps for c in after]
        return indices, (*[n for n, _ in front], *common, *[n for n, _ in end])

    def __getitem__(self, index):
        dims, offset, tensors = self._find(index)
        if not tensors:
            return self._view([n for n, _ in dims], [s for _, s in dims], offset, "Slice")
        where, shape = self._gathered(dims, offset, tensors)
        out = make([self._storage[i] for i in where], shape, self.dtype)
        if STATE.grad and self._requires:
            record(out, (self,), self._scatter(where, shape), name="Index")
        return out

    def __setitem__(self, index, value):
        found = self._find(index)
        value = value if isinstance(value, Tensor) else as_tensor(value, self.dtype)
        where, shape = self._gathered(*found)
        extra = value.ndim - len(shape)
        if extra > 0 and set(value.shape[:extra]) <= {1}:
            value = value.reshape(value.shape[extra:])
        fits = all(n in (1, m) for n, m in zip(reversed(value.shape), reversed(shape)))
        if value.ndim > len(shape) or not fits:
            check(not found[2], "index_shape", list(value.shape), list(shape))
            value.expand(*shape)
        self._write(where, shape, value)

    def _write(self, where, shape, value, whole=False):
        """Write elements to these storage indices."""
        root = self if self._base is None else self._base
        of = "a view of a leaf" if root is not self else "a leaf"
        leaf = STATE.grad and root._requires and root._node is None
        check(not leaf, "in_place_leaf", of)
        old, numbers = root._alias(), spread(value, shape)
        if value.dtype is not self.dtype:
            numbers = self.dtype.cast(numbers)
        if whole and is_packed(shape, self._strides):
            self._storage[self._offset : self._offset + len(where)] = numbers
        else:
            for i, v in zip(where, numbers):
                self._storage[i] = v
        self._storage.version += 1
        if not (STATE.grad and (root._requires or value._requires) and self.dtype.rank > 1):
            return
        positions = root._positions(where)

        def back(g):
            kept = list(g._values())
            taken = make([kept[i] for i in positions], shape, g.dtype)
            for i in positions:
                kept[i] = 0.0
            return make(kept, g.shape, g.dtype), unbroadcast(taken, value.shape)

        root._requires, root._node = True, Node(root, (old, value), back, (), "CopySlices")
        if root is not self:
            mine = places(self.shape, self._strides, self._offset)
            back = root._scatter(mine, self.shape)
            self._requires, self._node = True, Node(self, (root,), back, (), "AsStrided")

    def _assign(self, value):
        """Replace all elements in place."""
        if value.shape != self.shape:
            due = broadcast(value.shape, self.shape)
            check(due == self.shape, "in_place_shape", list(self.shape), list(due))
        mine, kind = self.dtype, value.dtype
        check(kind.rank <= mine.rank, "in_place_dtype", kind.title, mine.title)
        self._write(places(self.shape, self._strides, self._offset), self.shape, value, whole=True)
        return self


def _consumed(k):
    """Return the number of axes that a part of an index consumes."""
    if isinstance(k, Tensor) and k.dtype is bool_:
        return k.ndim
    return int(not (k is None or k is ... or isinstance(k, bool)))
