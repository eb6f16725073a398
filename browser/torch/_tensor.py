"""The tensor: numbers in a list, views of them, indices, changes in place and gradients."""

import math
import operator
from functools import lru_cache, wraps

from ._types import CPU, STATE, Size, absent, bool_, complex_of, int64, not_here, strided


class Storage(list):
    """The numbers that a tensor and its views share, and how often they were changed."""

    version = 0


class Node:
    """A step of the graph: how the gradient of its output reaches its inputs."""

    def __init__(self, out, parents, back, saved, name):
        self.shape, self.dtype, self.back, self._name = out.shape, out.dtype, back, name
        self.parents = tuple(map(key, parents))
        self.saved = [(x, x._storage.version, x._node) for x in saved]
        self.watched, self.freed = None, False

    def name(self):
        """Return the name, as PyTorch calls it."""
        return f"{self._name}Backward0"

    def check(self):
        """Raise an error if a saved tensor was freed or changed since."""
        if self.freed and self.saved:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed). Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad(). Specify "
                "retain_graph=True if you need to backward through the graph a second time or if "
                "you need to access saved tensors after calling backward."
            )
        for x, version, node in self.saved:
            if x._storage.version != version:
                of = f", which is output 0 of {node.name()}," if node else ""
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: [torch.{x.dtype.title}Tensor {list(x.shape)}]{of} is at "
                    f"version {x._storage.version}; expected version {version} instead. Hint: "
                    "enable anomaly detection to find the operation that failed to compute its "
                    "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False)."
                )


def key(x):
    """Return the step that made a tensor, the tensor itself if it is a leaf, or None."""
    if not isinstance(x, Tensor) or not x._requires:
        return None
    return x._node or x


def record(out, parents, back, saved=(), name=""):
    """Remember how the gradient of a result reaches the tensors that it was computed from."""
    if STATE.grad and out.dtype.rank > 1 and any(key(p) is not None for p in parents):
        out._requires, out._node = True, Node(out, parents, back, saved, name)
    return out


def _ordered(starts):
    """Sort the steps behind some results: each one after all that use it."""
    order, seen, waiting = [], set(), [(start, False) for start in starts]
    while waiting:
        step, done = waiting.pop()
        if done:
            order.append(step)
        elif id(step) not in seen:
            seen.add(id(step))
            waiting.append((step, True))
            if isinstance(step, Node):
                waiting += [(p, False) for p in step.parents if p is not None]
    return reversed(order)


def propagate(outputs, seeds, retain_graph=None):
    """Yield each step and leaf that the outputs depend on, with its gradient."""
    grads, before = {}, STATE.grad

    def add(step, g):
        if g.dtype is not step.dtype:
            g = g.real if g.dtype.is_complex and not step.dtype.is_complex else g.to(step.dtype)
        grads[id(step)] = grads[id(step)] + g if id(step) in grads else g

    STATE.grad = False
    try:
        for x, seed in zip(outputs, seeds):
            if key(x) is None:
                text = "does not require grad and does not have a grad_fn"
                raise RuntimeError(f"element 0 of tensors {text}")
            if seed is None and x.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            add(key(x), make([1.0] * x.numel(), x.shape, x.dtype) if seed is None else seed)
        for step in _ordered([key(x) for x in outputs]):
            g = grads.get(id(step))
            if g is None:
                continue
            yield step, g
            if isinstance(step, Node):
                step.check()
                step.freed = not retain_graph
                for parent, part in zip(step.parents, step.back(g)):
                    if parent is not None and part is not None:
                        add(parent, part)
    finally:
        STATE.grad = before


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False,
         allow_unused=None):  # fmt: skip
    """Compute the gradients of outputs for inputs."""
    if create_graph:
        raise not_here("create_graph")
    outputs, inputs, seeds = (
        [x] if isinstance(x, Tensor) else list(x or ()) for x in (outputs, inputs, grad_outputs)
    )
    for x in inputs:
        if not x._requires:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    steps = propagate(outputs, seeds or [None] * len(outputs), retain_graph)
    found = {id(step): g for step, g in steps}
    grads = [found.get(id(key(x))) for x in inputs]
    if not allow_unused and any(g is None for g in grads):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior."
        )
    return tuple(g if g is None else g.detach().clone() for g in grads)


# Where numbers lie.

_LISTS = (tuple, list)


@lru_cache(4096)
def contiguous_strides(shape):
    """Return the strides of a new tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_packed(shape, strides):
    """Return whether numbers lie one after the other, in order."""
    if strides == (due := contiguous_strides(tuple(shape))):
        return True
    return 0 in shape or all(s == d or n == 1 for n, s, d in zip(shape, strides, due))


@lru_cache(4096)
def places(shape, strides, offset):
    """List the indices in the storage of a tensor's numbers, in order."""
    found = [offset]
    for size, stride in zip(shape, strides):
        steps = [i * stride for i in range(size)]
        found = [start + step for start in found for step in steps]
    return found


@lru_cache(4096)
def reader(shape, strides, offset):
    """Return a function that reads a tensor's numbers from its storage."""
    count = math.prod(shape)
    if is_packed(shape, strides):
        return operator.itemgetter(slice(offset, offset + count))
    found = places(shape, strides, offset)
    return operator.itemgetter(*found) if count > 1 else lambda storage: [storage[found[0]]]


def spread(x, shape):
    """Read the numbers of a tensor, broadcast to a shape."""
    if x.shape == shape:
        return x._values()
    strides = [0 if n == 1 else s for n, s in zip(x.shape, x._strides)]
    strides = (0,) * (len(shape) - len(strides)) + tuple(strides)
    return reader(tuple(shape), strides, x._offset)(x._storage)


def axis(dim, count):
    """Return the index of an axis, counted from the front."""
    dim, limit = operator.index(dim), max(count, 1)
    if not -limit <= dim < limit:
        limits = f"[{-limit}, {limit - 1}]"
        text = f"Dimension out of range (expected to be in range of {limits}, but got {dim})"
        raise IndexError(text)
    return dim % limit


def axes(dim, count):
    """Return the indices of one or several axes; all of them for None."""
    if dim is None or (isinstance(dim, _LISTS) and not dim):
        return list(range(count))
    found = [axis(d, count) for d in (dim if isinstance(dim, _LISTS) else [dim])]
    for d in found:
        if found.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return found if count else []


def sizes(given):
    """Read sizes that were given one by one or as a tuple."""
    if len(given) == 1 and isinstance(given[0], _LISTS):
        given = given[0]
    return tuple(map(operator.index, given))


def fill_in(shape, count, error=None):
    """Replace the size -1 by the one that fits."""
    error = RuntimeError(error or f"shape '{list(shape)}' is invalid for input of size {count}")
    if shape.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        if not known or count % known:
            raise error
        shape = tuple(count // known if n == -1 else n for n in shape)
    if math.prod(shape) != count:
        raise error
    return shape


def make(values, shape, dtype):
    """Make a tensor of numbers that are of its dtype already."""
    return view(Storage(values), Size(shape), dtype, contiguous_strides(tuple(shape)), 0)


def view(storage, shape, dtype, strides, offset):
    """Make a tensor whose numbers are in a storage."""
    x = object.__new__(Tensor)
    x._fill(storage, shape, dtype, strides, offset)
    return x


class Tensor:
    """A tensor on the CPU. Its views share its storage."""

    layout, device = strided, CPU
    is_sparse = is_cuda = is_quantized = is_nested = is_meta = False
    _watched = False

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

    def _like(self, x):
        """Become a view of all numbers of another tensor."""
        self._fill(x._storage, x.shape, x.dtype, x._strides, x._offset)
        return self

    def _values(self):
        """Read all numbers, in order."""
        return reader(self.shape, self._strides, self._offset)(self._storage)

    def _alias(self):
        """Return the same tensor as another object, with its place in the graph."""
        x = self.detach()
        x._requires, x._node = self._requires, self._node
        return x

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        absent("Tensor", name)

    def __hash__(self):
        return id(self)

    def __deepcopy__(self, memo):
        if self._node is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        x = type(self).__new__(type(self))
        x.__dict__.update(self.__dict__)
        x._storage, x._strides, x._offset = (
            Storage(self._values()),
            contiguous_strides(self.shape),
            0,
        )
        memo[id(self)] = x
        return x

    # Reading.

    ndim = property(lambda self: len(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.numel() * self.dtype.itemsize)
    is_leaf = property(lambda self: self._node is None)
    grad_fn = property(lambda self: self._node)

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def item(self):
        """Return the only number."""
        if self.numel() != 1:
            text = f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            raise RuntimeError(text)
        return self._values()[0]

    def tolist(self):
        """Return nested lists."""

        def nest(values, shape):
            if not shape:
                return values[0]
            step = math.prod(shape[1:])
            parts = (values[i * step : (i + 1) * step] for i in range(shape[0]))
            return [nest(part, shape[1:]) for part in parts]

        return nest(self._values(), self.shape)

    def _only(self):
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self._values()[0]

    def __float__(self):
        return float(self._only())

    def __int__(self):
        return int(self._only())

    def __complex__(self):
        return complex(self._only())

    def __index__(self):
        if self.dtype.rank > 1 or self.numel() != 1:
            text = "only integer tensors of a single element can be converted to an index"
            raise TypeError(text)
        return int(self.item())

    def __bool__(self):
        if self.numel() != 1:
            many = "more than one value" if self.numel() else "no values"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        return bool(self.item())

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __contains__(self, x):
        return bool((self == x).any())

    def __format__(self, spec):
        return format(self.item(), spec) if not self.shape else str(self)

    def __repr__(self):
        values = self._values()
        texts = [_text(v, values) for v in values]
        width = max(map(len, texts), default=0)

        def nest(texts, shape, depth):
            if not shape:
                return texts[0]
            step, gap = math.prod(shape[1:]), "\n" * (len(shape) - 1)
            gap = f",{gap}{' ' * depth}" if gap else ", "
            parts = (texts[i * step : (i + 1) * step] for i in range(shape[0]))
            return f"[{gap.join(nest(part, shape[1:], depth + 1) for part in parts)}]"

        body = nest([text.rjust(width) for text in texts], self.shape, 8)
        unusual = self.dtype not in (STATE.dtype, int64, bool_)
        kind = f", dtype={self.dtype}" if unusual else ""
        trained = f", grad_fn=<{self._node.name()}>" if self._node else ""
        return f"tensor({body}{kind}{trained or ', requires_grad=True' * self._requires})"

    # Gradients.

    @property
    def requires_grad(self):
        """Whether gradients reach this tensor."""
        return self._requires

    @requires_grad.setter
    def requires_grad(self, on):
        if on and self.dtype.rank < 2:
            text = "only Tensors of floating point and complex dtype can require gradients"
            raise RuntimeError(text)
        if not on and self._node is not None:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        self._requires = bool(on)

    def requires_grad_(self, requires_grad=True):
        """Set whether gradients reach this tensor."""
        self.requires_grad = requires_grad
        return self

    def detach(self):
        """Return a view without a gradient."""
        return view(self._storage, self.shape, self.dtype, self._strides, self._offset)

    def detach_(self):
        """Cut this tensor off the graph."""
        self._node, self._requires = None, False
        return self

    @property
    def data(self):
        """The numbers without their gradient."""
        return self.detach()

    @data.setter
    def data(self, x):
        kept = self._requires, self._node, self._base, self.grad
        self._like(x)
        self._requires, self._node, self._base, self.grad = kept

    def retain_grad(self):
        """Keep the gradient of this result in `grad`."""
        if self._node:
            self._node.watched = self

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        """Add the gradient of this number to the `grad` of each leaf."""
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
            found = places(out.shape, out._strides, offset)
            record(out, (self,), self._scatter(found, out.shape), name=name)
        return out

    def _positions(self, found):
        """Convert indices in the storage to indices in the order of this tensor."""
        if is_packed(self.shape, self._strides):
            return [i - self._offset for i in found] if self._offset else found
        index = {p: i for i, p in enumerate(places(self.shape, self._strides, self._offset))}
        return [index[i] for i in found]

    def _scatter(self, found, shape):
        """Return how a gradient flows back from numbers at these indices of the storage."""
        where, mine, dtype = self._positions(found), self.shape, self.dtype

        def back(g):
            total = [0.0] * math.prod(mine)
            for i, v in zip(where, g._values()):
                total[i] += v
            return (make(total, mine, dtype),)

        return back

    def _find(self, given):
        """Read an index: the view that it begins with, and the index tensors by its axis."""
        given, shape, strides, offset = list(given), [], [], self._offset
        # An empty list is an index of no places, and not an empty tensor of floats.
        given = [
            k if not isinstance(k, list | tuple | range)
            else as_tensor(k, None if len(k) else int64) for k in given
        ]  # fmt: skip
        used = sum(_consumed(k) for k in given)
        if used > self.ndim:
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        at = next((i for i, k in enumerate(given) if k is ...), len(given))
        given[at : at + 1] = [slice(None)] * (self.ndim - used)
        tensors, d = {}, 0
        for k in given:
            if k is None:
                shape.append(1)
                strides.append(0)
                continue
            if isinstance(k, bool) or (isinstance(k, Tensor) and k.dtype is bool_ and not k.ndim):
                # It is an axis of size 1 or 0.
                tensors[len(shape)] = make([0] if k else [], (int(bool(k)),), int64)
                shape.append(1)
                strides.append(0)
                continue
            size, stride = self.shape[d], self._strides[d]
            if isinstance(k, slice):
                if k.step is not None and k.step < 0:
                    raise ValueError("step must be greater than zero")
                cut = range(*k.indices(size))
                shape.append(len(cut))
                strides.append(stride * cut.step)
                offset += cut.start * stride if len(cut) else 0
            elif isinstance(k, Tensor) and k.ndim:
                if k.dtype.rank > 1 or k.dtype.name in ("int8", "int16"):
                    text = "tensors used as indices must be long, int, byte or bool tensors"
                    raise IndexError(text)
                count = k.ndim if k.dtype is bool_ else 1
                if k.dtype is bool_ and k.shape != self.shape[d : d + count]:
                    i = next(i for i in range(count) if k.shape[i] != self.shape[d + i])
                    raise IndexError(
                        f"The shape of the mask {list(k.shape)} at index {i} does not match the "
                        f"shape of the indexed tensor {list(self.shape)} at index {d + i}"
                    )
                for x in k.nonzero().unbind(1) if k.dtype is bool_ else [k]:
                    tensors[len(shape)] = x
                    shape.append(self.shape[d])
                    strides.append(self._strides[d])
                    d += 1
                continue
            else:
                try:
                    i = operator.index(k)
                except TypeError:
                    raise IndexError(
                        "only integers, slices (`:`), ellipsis (`...`), None and long or byte "
                        f"Variables are valid indices (got {type(k).__name__})"
                    ) from None
                if not -size <= i < size:
                    text = f"index {i} is out of bounds for dimension {d} with size {size}"
                    raise IndexError(text)
                offset += i % size * stride
            d += 1
        return shape, strides, offset, tensors

    def _gathered(self, shape, strides, offset, tensors):
        """Return the indices in the storage, and the shape, where index tensors are in it."""
        dims, common = list(tensors), broadcast(*[x.shape for x in tensors.values()])
        steps = [0] * math.prod(common)
        for d, x in tensors.items():
            size, stride = shape[d], strides[d]
            for j, i in enumerate(spread(x, common)):
                if not -size <= i < size:
                    text = f"index {i} is out of bounds for dimension {d} with size {size}"
                    raise IndexError(text)
                steps[j] += i % size * stride
        rest = [d for d in range(len(shape)) if d not in tensors]
        together = dims == list(range(dims[0], dims[0] + len(dims)))
        front = [d for d in rest if together and d < dims[0]]
        end = rest[len(front) :]
        before, after = (
            places(tuple(shape[d] for d in ds), tuple(strides[d] for d in ds), 0)
            for ds in (front, end)
        )
        found = [offset + a + b + c for a in before for b in steps for c in after]
        return found, (*[shape[d] for d in front], *common, *[shape[d] for d in end])

    def __getitem__(self, index):
        found = self._find(index if isinstance(index, tuple) else (index,))
        if not found[3]:
            return self._view(*found[:3], name="Slice")
        where, shape = self._gathered(*found)
        out = make([self._storage[i] for i in where], shape, self.dtype)
        if STATE.grad and self._requires:
            record(out, (self,), self._scatter(where, shape), name="Index")
        return out

    def __setitem__(self, index, value):
        found = self._find(index if isinstance(index, tuple) else (index,))
        value = value if isinstance(value, Tensor) else as_tensor(value, self.dtype)
        if found[3]:
            where, shape = self._gathered(*found)
        else:
            shape, where = found[0], places(tuple(found[0]), tuple(found[1]), found[2])
        extra = value.ndim - len(shape)
        if extra > 0 and set(value.shape[:extra]) <= {1}:
            value = value.reshape(value.shape[extra:])
        fits = zip(reversed(value.shape), reversed(shape))
        if value.ndim > len(shape) or any(n not in (1, m) for n, m in fits):
            if found[3]:
                text = f"value tensor of shape {list(value.shape)} cannot be broadcast to indexing"
                raise RuntimeError(f"shape mismatch: {text} result of shape {list(shape)}")
            value.expand(*shape)
        self._write(where, tuple(shape), value)

    def _write(self, where, shape, value, whole=False):
        """Put numbers at these indices of the storage."""
        root = self if self._base is None else self._base
        tracked = STATE.grad and (root._requires or value._requires) and self.dtype.rank > 1
        if STATE.grad and root._requires and root._node is None:
            of = "a view of a leaf" if root is not self else "a leaf"
            text = "Variable that requires grad is being used in an in-place operation."
            raise RuntimeError(f"{of} {text}")
        old, numbers = root._alias(), spread(value, shape)
        if value.dtype is not self.dtype:
            numbers = self.dtype.cast(numbers)
        if whole and is_packed(shape, self._strides):
            self._storage[self._offset : self._offset + len(where)] = numbers
        else:
            for i, v in zip(where, numbers):
                self._storage[i] = v
        self._storage.version += 1
        if not tracked:
            return
        at = root._positions(where)

        def back(g):
            kept = list(g._values())
            taken = make([kept[i] for i in at], shape, g.dtype)
            for i in at:
                kept[i] = 0.0
            return make(kept, g.shape, g.dtype), unbroadcast(taken, value.shape)

        root._requires, root._node = True, Node(root, (old, value), back, (), "CopySlices")
        if root is not self:
            mine = places(self.shape, self._strides, self._offset)
            back = root._scatter(mine, self.shape)
            self._requires, self._node = True, Node(self, (root,), back, (), "AsStrided")

    def _assign(self, value):
        """Replace all numbers, as an operation in place does."""
        if value.shape != self.shape and broadcast(value.shape, self.shape) != self.shape:
            raise RuntimeError(
                f"output with shape {list(self.shape)} doesn't match the broadcast shape "
                f"{list(broadcast(value.shape, self.shape))}"
            )
        if value.dtype.rank > self.dtype.rank:
            raise RuntimeError(
                f"result type {value.dtype.title} can't be cast to the desired output type "
                f"{self.dtype.title}"
            )
        self._write(places(self.shape, self._strides, self._offset), self.shape, value, whole=True)
        return self

    def numpy(self, *_, **__):
        """Fail: there is no numpy."""
        raise not_here("Tensor.numpy")

    __array__ = numpy


def _consumed(k):
    """Return how many axes a part of an index is for."""
    if isinstance(k, Tensor) and k.dtype is bool_:
        return k.ndim
    return int(not (k is None or k is ... or isinstance(k, bool)))


def _text(value, values):
    if not isinstance(value, float):
        return str(value)
    finite = [v for v in values if math.isfinite(v)]
    if not math.isfinite(value):
        return str(value)
    if all(v == int(v) for v in finite):
        return f"{value:.0f}."
    small = any(v and abs(v) < 1e-4 for v in finite)
    return f"{value:.4e}" if small or max(map(abs, finite)) >= 1e8 else f"{value:.4f}"


def broadcast(*shapes):
    """Return the shape that several shapes broadcast to."""
    count = max(map(len, shapes), default=0)
    out = [1] * count
    for shape in shapes:
        for i, n in enumerate(shape, count - len(shape)):
            if out[i] == 1:
                out[i] = n
            elif n not in (1, out[i]):
                raise RuntimeError(
                    f"The size of tensor a ({out[i]}) must match the size of tensor b ({n}) at "
                    f"non-singleton dimension {i}"
                )
    return tuple(out)


def unbroadcast(g, shape):
    """Sum a gradient over the axes along which its tensor was broadcast."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    dims = [*range(extra), *(extra + i for i, n in enumerate(shape) if n != g.shape[extra + i])]
    return g.sum(dims, keepdim=True).reshape(shape) if dims else g.reshape(shape)


def as_tensor(data, dtype=None, device=None):
    """Make a tensor from numbers, nested lists or another tensor, which is not copied."""
    if device is not None:
        type(CPU)(device)
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    shape, flat = [], []

    def walk(x, depth):
        if isinstance(x, Tensor):
            x = x.tolist()
        if isinstance(x, list | tuple | range):
            if len(shape) == depth:
                shape.append(len(x))
            elif shape[depth] != len(x):
                raise ValueError(
                    f"expected sequence of length {shape[depth]} at dim {depth} (got {len(x)})"
                )
            for part in x:
                walk(part, depth + 1)
        elif isinstance(x, bool | int | float | complex):
            flat.append(x)
        elif isinstance(x, str):
            raise TypeError("new(): invalid data type 'str'")
        else:
            raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")

    walk(data, 0)
    return make((dtype or dtype_of(flat)).cast(flat), shape, dtype or dtype_of(flat))


def dtype_of(numbers):
    """Return the dtype that a tensor of these Python numbers has."""
    kinds = set(map(type, numbers))
    if complex in kinds:
        return complex_of(STATE.dtype)
    if float in kinds or not kinds:
        return STATE.dtype
    return bool_ if kinds == {bool} else int64


class Mode:
    """Record gradients or not, in a `with` block or in a decorated function."""

    on = None

    def __new__(cls, mode=None):
        self = object.__new__(cls)
        self.mode = self.on if self.on is not None and not isinstance(mode, bool) else bool(mode)
        return self(mode) if callable(mode) else self

    def __enter__(self):
        self.before, STATE.grad = STATE.grad, self.mode
        return self

    def __exit__(self, *_):
        STATE.grad = self.before

    def __call__(self, function):

        @wraps(function)
        def run(*args, **kwargs):
            before, STATE.grad = STATE.grad, self.mode
            try:
                return function(*args, **kwargs)
            finally:
                STATE.grad = before

        return run


class no_grad(Mode):
    """Record no gradients."""

    on = False


class enable_grad(Mode):
    """Record gradients."""

    on = True


class inference_mode(Mode):
    """Record no gradients; inference_mode(False) records them."""

    on = False

    def __new__(cls, mode=True):
        return Mode.__new__(cls, not mode if isinstance(mode, bool) else mode)


class set_grad_enabled(Mode):
    """Record gradients or not from now on."""

    def __init__(self, mode):
        self.before, STATE.grad = STATE.grad, bool(mode)

    def __enter__(self):
        pass
