"""A stand-in for PyTorch in pure Python, for a page that judges answers with nothing installed.

It covers what src/twelve, twelve_lab.check and typical answers use: CPU tensors that share storage
with their views; the dtypes bool, int8 to int64, uint8, float16 to float64 and complex;
broadcasting, indexing, autograd and torch.nn; and the same random numbers as PyTorch. It is slow,
and it lacks other devices, NumPy, dispatch modes, saved files and second derivatives.

A feature of PyTorch that is missing here raises NotHere, so no answer is rejected for using it.
`python -m tools.write_standin_names` generates the lists in names.json.
tests/products/test_standin.py compares the verdicts on all answers with those of PyTorch.

Modules, each built on the previous ones:
    _errors: The texts of PyTorch's errors, and NotHere.
    _types, _layout: Dtypes, strides, axes and broadcasting.
    _tensor: The tensor, views, indexing and gradients.
    _registry: Registration as torch.name, Tensor.name or both, and errors for wrong calls.
    _math, _shape, _make: The functions. To add one, define it in one of these modules.
    nn: Functions of layers, layers, and initial values.
"""

import builtins
import math
import sys
import types
from contextlib import nullcontext as _nullcontext

from . import _errors, _layout, _make, _math, _registry, _shape, _tensor, _types
from ._errors import NotHere
from ._make import Generator, default_generator
from ._registry import FUNCTIONS as _FUNCTIONS
from ._registry import METHODS as _METHODS
from ._tensor import Tensor, as_tensor, enable_grad, inference_mode, no_grad, set_grad_enabled
from ._types import Size, device, dtype, finfo, iinfo, layout, strided

__version__ = "2.13.0+page"
inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None
_KINDS = {kind.name: kind for kind in _types.KINDS}
_CASTS = {kind.title.lower(): kind for kind in _types.KINDS if not kind.is_complex}

# Short functions and methods.


def _cast(kind):
    return lambda self: self.to(kind)


_METHODS.update({name: _cast(kind) for name, kind in _CASTS.items()}, cpu=lambda self: self)
_registry.register({
    # Properties of a tensor.
    "dim": lambda self: self.ndim,
    "ndimension": lambda self: self.ndim,
    "numel": lambda self: self.shape.numel(),
    "nelement": lambda self: self.shape.numel(),
    "element_size": lambda self: self.itemsize,
    "storage_offset": lambda self: self._offset,
    "data_ptr": lambda self: id(self._storage) + 8 * self._offset,
    "is_contiguous": lambda self: _layout.is_packed(self.shape, self._strides),
    "is_floating_point": lambda self: self.dtype.is_floating_point,
    "is_complex": lambda self: self.dtype.is_complex,
    # Changes of shape or dtype.
    "to_dense": lambda self: self,
    "type_as": lambda self, other: self.to(other.dtype),
    "view_as": lambda self, other: self.view(other.shape),
    "reshape_as": lambda self, other: self.reshape(other.shape),
    "expand_as": lambda self, other: self.expand(other.shape),
    "broadcast_to": lambda input, size: input.expand(size),
    "broadcast_shapes": lambda *shapes: Size(_layout.broadcast(*shapes)),
    "tile": lambda input, *dims: input.repeat(
        (1,) * (input.ndim - len(_layout.sizes(dims))) + _layout.sizes(dims)
    ),
    "hstack": lambda tensors: _shape.cat(tensors, 0 if tensors[0].ndim < 2 else 1),
    "vstack": lambda tensors: _shape.cat([x if x.ndim > 1 else x[None] for x in tensors]),
    # Arithmetic.
    "square": lambda input: input.pow(2),
    "clamp_min": lambda self, min: self.clamp(min=min),
    "clamp_max": lambda self, max: self.clamp(max=max),
    "addcmul": lambda input, tensor1, tensor2, *, value=1: input + tensor1 * tensor2 * value,
    "addcdiv": lambda input, tensor1, tensor2, *, value=1: input + tensor1 / tensor2 * value,
    "lerp": lambda input, end, weight: input + weight * (end - input),
    "trace": lambda self: self.diagonal().sum(),
    "count_nonzero": lambda input, dim=None: (input != 0).sum(dim),
    "allclose": lambda input, other, rtol=1e-5, atol=1e-8, equal_nan=False: (
        builtins.all(input.isclose(other, rtol, atol, equal_nan)._values())
    ),
    # Complex numbers.
    "angle": lambda input: input.imag.atan2(input.real),
    "polar": lambda abs, angle: _shape.complex_(abs * angle.cos(), abs * angle.sin()),
    "view_as_real": lambda input: _shape.stack([input.real, input.imag], -1),
})  # fmt: skip
for _names in """swapaxes=transpose swapdims=transpose moveaxis=movedim ravel=flatten clip=clamp
        multiply=mul divide=div true_divide=div subtract=sub negative=neg absolute=abs greater=gt
        greater_equal=ge less=lt less_equal=le not_equal=ne concat=cat concatenate=cat""".split():
    _new, _old = _names.split("=")
    _registry.register({_new: _FUNCTIONS[_old]})

# In-place operations.


def _in_place(function):
    return lambda self, *args, **kwargs: self._assign(function(self._alias(), *args, **kwargs))


def _fill_diagonal_(self, fill_value, wrap=False):
    self.diagonal().fill_(fill_value)
    return self


for _name, _f in list(_METHODS.items()):
    # In-place operations that change the shape are missing.
    _reshapes = _f in map(_FUNCTIONS.get, ("t", "transpose", "squeeze", "unsqueeze", "as_strided"))
    if f"{_name}_" in _errors.NAMES["Tensor"].split() and not _reshapes:
        _METHODS[f"{_name}_"] = _in_place(_registry.guarded(f"{_name}_", _f, method=True))
_METHODS["fill_diagonal_"] = _fill_diagonal_
_METHODS.update({f"{name}_": _in_place(f) for name, f in {
    "fill": lambda x, value: _make.full_like(x, value),
    "zero": lambda x: _make.full_like(x, 0),
    "copy": lambda x, src, non_blocking=False: as_tensor(src).to(x.dtype).expand(x.shape),
    "uniform": lambda x, a=0.0, b=1.0, *, generator=None: _make.rand(
        *x.shape, dtype=x.dtype, generator=generator
    ) * (b - a) + a,
    "normal": lambda x, mean=0.0, std=1.0, *, generator=None: _make.randn(
        *x.shape, dtype=x.dtype, generator=generator
    ) * std + mean,
    "bernoulli": lambda x, p=0.5, *, generator=None: _make.bernoulli(
        _make.full_like(x, p), generator=generator
    ),
}.items()})  # fmt: skip

# Methods, operators and functions.

for _name, _f in _METHODS.items():
    setattr(Tensor, _name, _registry.guarded(_name, _f, method=True))


_NUMBERS = (Tensor, builtins.int, builtins.float, builtins.complex)


def _operator(name, function, reflected):
    def left(self, other):
        return function(self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def right(self, other):
        return function(other, self) if isinstance(other, _NUMBERS) else NotImplemented

    setattr(Tensor, f"__{name}__", left)
    if reflected:
        setattr(Tensor, f"__r{name}__", right)
        setattr(Tensor, f"__i{name}__", _in_place(function))


for _name, _method in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow", "mod": "remainder",
    "floordiv": "floor_divide", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}.items():  # fmt: skip
    _operator(_name, _METHODS[_method], reflected=True)
for _name in ("matmul", "eq", "ne", "lt", "le", "gt", "ge"):
    _operator(_name, _METHODS[_name], reflected=False)
Tensor.__neg__, Tensor.__abs__ = _METHODS["neg"], _METHODS["abs"]
Tensor.__invert__, Tensor.__pos__ = _METHODS["bitwise_not"], lambda self: self
Tensor.as_subclass = lambda self, cls: (
    self._alias() if cls is Tensor else object.__new__(cls)._like(self)
)

globals().update(_KINDS)
globals().update({name: _registry.guarded(name, f) for name, f in _FUNCTIONS.items()})
globals().update({name: kind for name, kind in _CASTS.items() if name not in ("byte", "char")})

# Settings.


def set_default_dtype(d):
    _types.STATE.dtype = d


def typename(obj):
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    return f"{named.__module__}.{named.__qualname__}"


globals().update(
    get_default_dtype=lambda: _types.STATE.dtype,
    set_default_device=device,
    get_default_device=lambda: _types.CPU,
    get_rng_state=lambda: default_generator.get_state(),
    set_rng_state=lambda new_state: default_generator.set_state(new_state),
    is_grad_enabled=lambda: _types.STATE.grad,
    is_tensor=lambda obj: isinstance(obj, Tensor),
    is_autocast_enabled=lambda device_type=None: False,
    get_num_threads=lambda: 1,
    set_num_threads=lambda count: None,
    set_printoptions=lambda **_: None,
)

# Modules.


class SymInt:
    """A symbolic size; no such size exists here."""


def _missing(name):
    """Return a class that raises NotHere when it is instantiated or applied."""

    def fail(*_, **__):
        raise _errors.not_here(name)

    return type(name.rpartition(".")[2], (), {"__init__": fail, "apply": fail})


def _jacobian(func, inputs):
    """Compute the Jacobian of a function of one tensor."""
    x = inputs.detach().clone().requires_grad_()
    out = func(x)
    parts = out.reshape(-1).unbind()
    grads = [_tensor.grad(part, x, None, True, allow_unused=True)[0] for part in parts]
    grads = [_make.full_like(x, 0) if g is None else g for g in grads]
    return _shape.stack(grads).reshape(*out.shape, *x.shape).detach()


def _functional_call(module, parameter_and_buffer_dicts, args=(), kwargs=None):
    before = []
    try:
        for path, x in parameter_and_buffer_dicts.items():
            parent, _, name = path.rpartition(".")
            owner = module.get_submodule(parent)
            table = owner._parameters if name in owner._parameters else owner._buffers
            before.append((table, name, table[name]))
            table[name] = x
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for table, name, x in before:
            table[name] = x


def _vector_norm(x, ord=2, dim=None, keepdim=False):
    return x.norm(ord, dim, keepdim)


def _module(name, **contents):
    """Create the module torch.name."""
    made = types.ModuleType(f"{__name__}.{name}")
    vars(made).update(contents, __getattr__=_errors.lookup(made.__name__))
    sys.modules[made.__name__] = made
    parent, _, last = made.__name__.rpartition(".")
    setattr(sys.modules[parent], last, made)


_module(
    "autograd", grad=_registry.guarded("grad", _tensor.grad), no_grad=no_grad,
    enable_grad=enable_grad, Function=_missing("torch.autograd.Function"),
)  # fmt: skip
_module("autograd.functional", jacobian=_registry.guarded("jacobian", _jacobian))
_module(
    "random", fork_rng=_make.fork_rng, manual_seed=_make.manual_seed,
    get_rng_state=default_generator.get_state, set_rng_state=default_generator.set_state,
)  # fmt: skip
_module("cuda", is_available=lambda: False, device_count=lambda: 0)
_module("compiler", is_compiling=lambda: False, disable=lambda f: f)
_module("func", functional_call=_functional_call)
_module(
    "linalg", vector_norm=_registry.guarded("vector_norm", _vector_norm),
    norm=_registry.guarded("norm", _vector_norm),
    vecdot=lambda x, y, *, dim=-1: (x * y).sum(dim),
)  # fmt: skip
_module("optim", Optimizer=_missing("torch.optim"))
# The parts of PyTorch's dispatcher that the checker uses.
_module(
    "_C", DisableTorchFunctionSubclass=_nullcontext, _len_torch_dispatch_stack=lambda: 0
)  # fmt: skip
_module("_dynamo", allow_in_graph=lambda f: f)  # einops needs it
_module("_ops", OpOverload=type("OpOverload", (), {}))
_module("_decomp", decomposition_table={})
_module("utils")
_module(
    "utils._python_dispatch", TorchDispatchMode=_missing("TorchDispatchMode"),
    _disable_current_modes=_nullcontext,
)  # fmt: skip

from . import nn  # noqa: E402

layer_norm, rms_norm = nn.functional.layer_norm, nn.functional.rms_norm
__getattr__ = _errors.lookup("torch")
