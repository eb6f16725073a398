"""A stand-in for PyTorch in pure Python, for a page that judges answers with nothing installed.

It has what src/twelve, twelve_lab.check and usual answers use: tensors on the CPU that share their
numbers with their views, the dtypes bool, int8 to int64, uint8, float16 to float64 and complex,
broadcasting, indices, gradients by the chain rule, torch.nn and the same random numbers. It is no
PyTorch: it is slow, and it has no other device, no numpy, no dispatch modes, no saved files and no
second derivatives.

What PyTorch has and this package has not raises NotHere, so that nobody is blamed for it. The
lists in names.json are written by `python -m tools.write_standin_names`.
tests/products/test_standin.py compares the verdicts on all answers with those of PyTorch.
"""

import builtins
import math
import sys
import types
from contextlib import nullcontext

from . import _make, _math, _shape
from . import _tensor as _t
from ._make import Generator, default_generator, fork_rng, manual_seed
from ._registry import FUNCTIONS as _FUNCTIONS
from ._registry import METHODS as _METHODS
from ._registry import guarded as _guarded
from ._tensor import (
    Tensor,
    as_tensor,
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from ._types import CPU as _CPU
from ._types import STATE as _STATE
from ._types import (
    NotHere,
    Size,
    bfloat16,
    bool_,
    complex64,
    complex128,
    device,
    dtype,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    layout,
    strided,
    uint8,
)
from ._types import absent as _absent_name
from ._types import not_here as _not_here

__version__ = "2.13.0+page"
inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None
_CASTS = {
    "double": float64, "float": float32, "half": float16, "bfloat16": bfloat16, "long": int64,
    "int": int32, "short": int16, "char": int8, "byte": uint8, "bool": bool_,
}  # fmt: skip

# Operations in place, other names, and operators.


def _in_place(function):
    return lambda self, *args, **kwargs: self._assign(function(self._alias(), *args, **kwargs))


for _name in """add sub mul div pow floor_divide remainder exp log sqrt rsqrt sin cos tanh sigmoid
        relu neg abs round floor ceil trunc reciprocal square clamp masked_fill tril triu cumsum
        logical_not logical_and logical_or nan_to_num lerp addcmul addcdiv eq""".split():
    _METHODS[f"{_name}_"] = _in_place(_METHODS[_name])
_METHODS["fill_"] = _in_place(lambda x, value: _make.full_like(x, value))
_METHODS["zero_"] = _in_place(lambda x: _make.full_like(x, 0))
_METHODS["copy_"] = _in_place(
    lambda x, src, non_blocking=False: as_tensor(src).to(x.dtype).expand(x.shape)
)
_METHODS["uniform_"] = _in_place(
    lambda x, a=0.0, b=1.0, *, generator=None: _make.rand(
        *x.shape, dtype=x.dtype, generator=generator
    ) * (b - a) + a
)  # fmt: skip
_METHODS["normal_"] = _in_place(
    lambda x, mean=0.0, std=1.0, *, generator=None: _make.randn(
        *x.shape, dtype=x.dtype, generator=generator
    ) * std + mean
)  # fmt: skip
_METHODS["bernoulli_"] = _in_place(
    lambda x, p=0.5, *, generator=None: _make.bernoulli(
        _make.full_like(x, p), generator=generator
    )
)  # fmt: skip


def _fill_diagonal_(self, fill_value, wrap=False):
    self.diagonal().fill_(fill_value)
    return self


_METHODS["fill_diagonal_"] = _fill_diagonal_
for _name, _kind in _CASTS.items():
    _METHODS[_name] = lambda self, kind=_kind: _shape.to(self, kind)
_METHODS.update(
    cpu=lambda self: self,
    to_dense=lambda self: self,
    dim=lambda self: self.ndim,
    ndimension=lambda self: self.ndim,
    numel=lambda self: self.shape.numel(),
    nelement=lambda self: self.shape.numel(),
    element_size=lambda self: self.itemsize,
    storage_offset=lambda self: self._offset,
    data_ptr=lambda self: id(self._storage) + 8 * self._offset,
    is_contiguous=lambda self: _t.is_packed(self.shape, self._strides),
    is_floating_point=lambda self: self.dtype.is_floating_point,
    is_complex=lambda self: self.dtype.is_complex,
    expand_as=lambda self, other: self.expand(other.shape),
    view_as=lambda self, other: self.view(other.shape),
    reshape_as=lambda self, other: self.reshape(other.shape),
    type_as=lambda self, other: self.to(other.dtype),
    count_nonzero=lambda self, dim=None: (self != 0).sum(dim),
    clamp_min=lambda self, min: self.clamp(min=min),
    clamp_max=lambda self, max: self.clamp(max=max),
    trace=lambda self: self.diagonal().sum(),
)
_FUNCTIONS.update({name: _METHODS[name] for name in (
    "numel", "is_floating_point", "is_complex", "clamp_min", "clamp_max", "trace",
    "count_nonzero")})  # fmt: skip
for _names in """swapaxes=transpose swapdims=transpose moveaxis=movedim ravel=flatten clip=clamp
        multiply=mul divide=div true_divide=div subtract=sub negative=neg absolute=abs
        greater=gt greater_equal=ge less=lt less_equal=le not_equal=ne clip_=clamp_
        arctan=atan arctan2=atan2 arcsin=asin arccos=acos""".split():
    _new, _old = _names.split("=")
    _METHODS[_new] = _METHODS[_old]
    if _old in _FUNCTIONS:
        _FUNCTIONS[_new] = _FUNCTIONS[_old]
_FUNCTIONS.update(concat=_FUNCTIONS["cat"], concatenate=_FUNCTIONS["cat"])
for _name, _f in _METHODS.items():
    setattr(Tensor, _name, _guarded(_name, _f, method=True))


_NUMBERS = (Tensor, builtins.int, builtins.float, builtins.complex)


def _operator(name, function, reflected=True):
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
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "matmul": "matmul",
}.items():  # fmt: skip
    _operator(_name, _METHODS[_method], _name != "matmul")
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _operator(_name, _METHODS[_name], reflected=False)
Tensor.__neg__, Tensor.__abs__ = _METHODS["neg"], _METHODS["abs"]
Tensor.__invert__, Tensor.__pos__ = _METHODS["bitwise_not"], lambda self: self
globals().update({name: _guarded(name, f) for name, f in _FUNCTIONS.items()})
globals().update({name: kind for name, kind in _CASTS.items() if name not in ("byte", "char")})

# Settings.


def set_default_dtype(d):
    _STATE.dtype = d


def get_default_dtype():
    return _STATE.dtype


def is_grad_enabled():
    return _STATE.grad


def is_tensor(obj):
    return isinstance(obj, Tensor)


def typename(obj):
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    return f"{named.__module__}.{named.__qualname__}"


def set_default_device(device_):
    device(device_)


def get_default_device():
    return _CPU


def get_num_threads():
    return 1


def set_num_threads(count):
    """Change nothing: there is one thread."""


def is_autocast_enabled(device_type=None):
    return False


def get_rng_state():
    return default_generator.get_state()


def set_rng_state(new_state):
    default_generator.set_state(new_state)


def set_printoptions(**_):
    """Change nothing: there is one way to print."""


def _missing(name):
    def fail(*_, **__):
        raise _not_here(name)

    return fail


class SymInt:
    """A size that is not known; there is none here."""


class OpOverload:
    """An operation of a dispatch mode; there is none here."""


class TorchDispatchMode:
    """A mode that sees every operation, which the stand-in cannot show."""

    __init__ = _missing("TorchDispatchMode")


class Function:
    """An operation with its own gradient."""

    apply = staticmethod(_missing("torch.autograd.Function"))


class DisableTorchFunctionSubclass:
    """A block without the operations of subclasses, which nothing has here."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Leave the block."""


def _as_subclass(self, cls):
    return self._alias() if cls is Tensor else object.__new__(cls)._like(self)


Tensor.as_subclass = _as_subclass


def _jacobian(func, inputs):
    """Compute all derivatives of a function of one tensor."""
    x = inputs.detach().clone().requires_grad_()
    out = func(x)
    grads = [
        _t.grad(part, x, None, True, allow_unused=True)[0] for part in out.reshape(-1).unbind()
    ]
    grads = [_make.full_like(x, 0) if g is None else g for g in grads]
    return _shape.stack(grads).reshape(*out.shape, *x.shape).detach()


def functional_call(module, parameter_and_buffer_dicts, args=(), kwargs=None):
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


def _module(name, **contents):
    """Make a module torch.name."""
    made = types.ModuleType(f"{__name__}.{name}")
    vars(made).update(contents, __getattr__=lambda attribute: _absent(name, attribute))
    sys.modules[made.__name__] = made
    parent, _, last = made.__name__.rpartition(".")
    setattr(sys.modules[parent], last, made)
    return made


def _absent(module, name):
    if name.startswith("_"):
        raise AttributeError(f"module 'torch.{module}' has no attribute {name!r}")
    _absent_name(f"torch.{module}", name)


def _vector_norm(x, ord=2, dim=None, keepdim=False):
    return x.norm(ord, dim, keepdim)


_module("autograd", grad=_guarded("grad", _t.grad), Function=Function, no_grad=no_grad,
        enable_grad=enable_grad)  # fmt: skip
_module("autograd.functional", jacobian=_guarded("jacobian", _jacobian))
_module("random", fork_rng=fork_rng, manual_seed=manual_seed, get_rng_state=get_rng_state,
        set_rng_state=set_rng_state)  # fmt: skip
_module("cuda", is_available=lambda: False, device_count=lambda: 0)
_module("compiler", is_compiling=lambda: False, disable=lambda f: f)
_module("func", functional_call=functional_call)
_module("linalg", vector_norm=_guarded("vector_norm", _vector_norm),
        norm=_guarded("norm", _vector_norm),
        vecdot=lambda x, y, *, dim=-1: (x * y).sum(dim))  # fmt: skip
_module("optim", Optimizer=type("Optimizer", (), {"__init__": _missing("torch.optim")}))
_module("_C", DisableTorchFunctionSubclass=DisableTorchFunctionSubclass,
        _len_torch_dispatch_stack=lambda: 0)  # fmt: skip
_module("_dynamo", allow_in_graph=lambda f: f)  # einops asks for it
_module("_ops", OpOverload=OpOverload)
_module("_decomp", decomposition_table={})
_module("utils")
_module("utils._python_dispatch", TorchDispatchMode=TorchDispatchMode,
        _disable_current_modes=nullcontext)  # fmt: skip

from . import nn  # noqa: E402

layer_norm, rms_norm = nn.functional.layer_norm, nn.functional.rms_norm

# PyTorch does not have these names here.
del (DisableTorchFunctionSubclass, Function, OpOverload, TorchDispatchMode, bool_, fork_rng,
     functional_call, nullcontext)  # fmt: skip


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(f"module 'torch' has no attribute {name!r}")
    _absent_name("torch", name)
