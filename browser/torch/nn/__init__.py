"""Layers: Module, Parameter, and the few layers that an answer may use."""

import math
import types

import torch
from torch._errors import absent as _absent
from torch._registry import guarded as _guarded
from torch._tensor import Tensor as _Tensor
from torch._tensor import make as _make
from torch._tensor import no_grad as _no_grad
from torch._types import STATE as _STATE

from . import functional, init


class Parameter(_Tensor):
    """A tensor that a module registers and that is trained."""

    def __new__(cls, data=None, requires_grad=True):
        data = _make([], (0,), _STATE.dtype) if data is None else data
        return object.__new__(cls)._like(data.detach()).requires_grad_(requires_grad)

    def __repr__(self):
        return f"Parameter containing:\n{_Tensor.__repr__(self)}"


class Buffer(_Tensor):
    """A tensor that a module registers and that is not trained."""

    def __new__(cls, data, *, persistent=True):
        return object.__new__(cls)._like(data.detach())


class Module:
    """A layer: it finds its parameters, buffers and layers by assignment."""

    training = True

    def __init__(self, *args, **kwargs):
        for name in ("_parameters", "_buffers", "_modules", "_hooks", "_pre_hooks"):
            self.__dict__[name] = {}
        self.__dict__.update(training=True, _unsaved=set())

    def forward(self, *given):
        text = f'Module [{type(self).__name__}] is missing the required "forward" function'
        raise NotImplementedError(text)

    def __call__(self, *args, **kwargs):
        if "_parameters" not in self.__dict__:
            return self.forward(*args, **kwargs)
        for hook in list(self._pre_hooks.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        out = self.forward(*args, **kwargs)
        for hook in list(self._hooks.values()):
            changed = hook(self, args, out)
            out = out if changed is None else changed
        return out

    def __setattr__(self, name, value):
        kinds = ((Parameter, "_parameters"), (Module, "_modules"), (Buffer, "_buffers"))
        for kind, table in kinds:
            if isinstance(value, kind):
                if table not in self.__dict__:
                    what = "module" if kind is Module else "parameters"
                    text = f"cannot assign {what} before Module.__init__() call"
                    raise AttributeError(text)
                self._forget(name)
                getattr(self, table)[name] = value
                return
        for _, table in kinds:
            if name in self.__dict__.get(table, ()):
                self._check(table, name, value)
                getattr(self, table)[name] = value
                return
        object.__setattr__(self, name, value)

    def _check(self, table, name, value):
        due = {"_parameters": "parameter", "_modules": "child module", "_buffers": "buffer"}[table]
        kind = {"_parameters": "nn.Parameter", "_modules": "nn.Module", "_buffers": "Tensor"}[table]
        if value is not None and not (table == "_buffers" and isinstance(value, _Tensor)):
            of = f"'{torch.typename(value)}' as {due} '{name}' (torch.{kind} or None expected)"
            raise TypeError(f"cannot assign {of}")

    def _forget(self, name):
        self.__dict__.pop(name, None)
        for table in (self._parameters, self._buffers, self._modules):
            table.pop(name, None)

    def __getattr__(self, name):
        for table in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(table, ()):
                return self.__dict__[table][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name):
        if any(name in table for table in (self._parameters, self._buffers, self._modules)):
            self._forget(name)
        else:
            object.__delattr__(self, name)

    def register_buffer(self, name, tensor, persistent=True):
        self._forget(name)
        self._buffers[name] = tensor
        if not persistent:
            self._unsaved.add(name)

    def register_parameter(self, name, param):
        self._parameters[name] = param

    def add_module(self, name, module):
        self._modules[name] = module

    register_module = add_module

    def register_forward_hook(self, hook, **_):
        return _Handle(self._hooks, hook)

    def register_forward_pre_hook(self, hook, **_):
        return _Handle(self._pre_hooks, hook)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self.named_children():
            inner = f"{prefix}.{name}" if prefix else name
            yield from module.named_modules(memo, inner, remove_duplicate)

    def modules(self):
        return (module for _, module in self.named_modules())

    def named_children(self):
        return iter([(n, m) for n, m in self._modules.items() if m is not None])

    def children(self):
        return (module for _, module in self.named_children())

    def _named(self, table, prefix="", recurse=True, remove_duplicate=True):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in modules if recurse else [(prefix, self)]:
            for name, x in getattr(module, table).items():
                if x is None or x in seen:
                    continue
                if remove_duplicate:
                    seen.add(x)
                yield f"{path}.{name}" if path else name, x

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        return (x for _, x in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        return (x for _, x in self.named_buffers(recurse=recurse))

    def get_submodule(self, target):
        module = self
        for part in target.split(".") if target else []:
            module = getattr(module, part)
        return module

    def get_parameter(self, target):
        path, _, name = target.rpartition(".")
        return getattr(self.get_submodule(path), name)

    def state_dict(self):
        out = {}
        for path, module in self.named_modules(remove_duplicate=False):
            for name, x in {**module._parameters, **module._buffers}.items():
                if x is not None and name not in module._unsaved:
                    out[f"{path}.{name}" if path else name] = x.detach()
        return out

    def load_state_dict(self, state_dict, strict=True, assign=False):
        mine = self.state_dict()
        wrong = [f'Missing key(s) in state_dict: "{n}".' for n in mine if n not in state_dict]
        wrong += [f'Unexpected key(s) in state_dict: "{n}".' for n in state_dict if n not in mine]
        if strict and wrong:
            name = f"Error(s) in loading state_dict for {type(self).__name__}:"
            raise RuntimeError("\n\t".join([name, *wrong]))
        for name in mine.keys() & state_dict.keys():
            mine[name].copy_(state_dict[name])

    def train(self, mode=True):
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for x in self.parameters():
            x.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        for x in self.parameters():
            x.grad = None

    def apply(self, fn):
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, *args, dtype=None, device=None):
        dtype = next((x for x in args if isinstance(x, torch.dtype)), dtype)
        for x in [*self.parameters(), *self.buffers()] if dtype else []:
            if x.dtype.is_floating_point:
                x.data = x.detach().to(dtype)
        return self

    def double(self):
        return self.to(torch.float64)

    def float(self):
        return self.to(torch.float32)

    def cpu(self):
        return self

    def extra_repr(self):
        return ""

    def __repr__(self):
        lines = [f"({n}): {m!r}".replace("\n", "\n  ") for n, m in self._modules.items()]
        body = "\n  " + "\n  ".join(lines) + "\n" if lines else self.extra_repr()
        return f"{type(self).__name__}({body})"

    def __dir__(self):
        return [*object.__dir__(self), *self._parameters, *self._buffers, *self._modules]


class _Handle:
    def __init__(self, table, hook):
        self.table = table
        table[self] = hook

    def remove(self):
        self.table.pop(self, None)


class Linear(Module):
    """Multiply by a matrix."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features) if in_features else 0
        self.weight = Parameter(torch.empty(out_features, in_features, dtype=dtype))
        self.bias = Parameter(torch.empty(out_features, dtype=dtype)) if bias else None
        self._parameters["bias"] = self.__dict__.pop("bias", None) if not bias else self.bias
        for x in self.parameters():
            init.uniform_(x, -bound, bound)

    def forward(self, input):
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self):
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class Embedding(Module):
    """Look up rows of a table."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.weight = Parameter(torch.randn(num_embeddings, embedding_dim, dtype=dtype))
        if padding_idx is not None:
            with _no_grad():
                self.weight[padding_idx] = 0.0

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None):
        layer = cls(*embeddings.shape, padding_idx)
        layer.weight = Parameter(embeddings, not freeze)
        return layer

    def forward(self, input):
        return functional.embedding(input, self.weight, self.padding_idx)


class LayerNorm(Module):
    """Normalize to mean 0 and variance 1."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True,
                 device=None, dtype=None):  # fmt: skip
        super().__init__()
        one = isinstance(normalized_shape, int)
        self.normalized_shape = (normalized_shape,) if one else tuple(normalized_shape)
        self.eps, shape = eps, self.normalized_shape
        affine = elementwise_affine
        self._parameters["weight"] = Parameter(torch.ones(shape, dtype=dtype)) if affine else None
        shift = affine and bias
        self._parameters["bias"] = Parameter(torch.zeros(shape, dtype=dtype)) if shift else None

    def forward(self, input):
        shape = self.normalized_shape
        return functional.layer_norm(input, shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divide by the root mean square."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None,
                 dtype=None):  # fmt: skip
        super().__init__()
        one = isinstance(normalized_shape, int)
        self.normalized_shape = (normalized_shape,) if one else tuple(normalized_shape)
        self.eps, affine = eps, elementwise_affine
        weight = torch.ones(self.normalized_shape, dtype=dtype)
        self._parameters["weight"] = Parameter(weight) if affine else None

    def forward(self, input):
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class Dropout(Module):
    """Set numbers to zero at random while training."""

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p

    def forward(self, input):
        return functional.dropout(input, self.p, self.training)


class Identity(Module):
    """Change nothing."""

    def forward(self, input):
        return input


def _activation(name, parameter=None, default=None):
    """Make the layer that calls a function, with one setting at most."""

    class Layer(Module):
        def __init__(self, *given, **named):
            super().__init__()
            values = [*given, *named.values(), default][:1]
            self.settings = dict(zip([parameter] if parameter else [], values))

        def forward(self, input):
            return getattr(functional, name)(input, **self.settings)

    return Layer


ReLU, SiLU, Tanh, Sigmoid = map(_activation, ("relu", "silu", "tanh", "sigmoid"))
GELU = _activation("gelu", "approximate", "none")
Softmax = _activation("softmax", "dim")


class ModuleList(Module):
    """A list of layers."""

    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def append(self, module):
        if not isinstance(module, Module):
            raise TypeError(f"{torch.typename(module)} is not a Module subclass")
        self._modules[str(len(self._modules))] = module
        return self

    def extend(self, modules):
        for module in modules:
            self.append(module)
        return self

    def __iter__(self):
        return iter(self._modules.values())

    def __len__(self):
        return len(self._modules)

    def __getitem__(self, index):
        found = list(self._modules.values())[index]
        return type(self)(*[found] if type(self) is ModuleList else found) if isinstance(
            index, slice) else found  # fmt: skip


class Sequential(ModuleList):
    """Layers that run one after the other."""

    def __init__(self, *modules):
        super().__init__(modules if not (modules and isinstance(modules[0], dict)) else ())
        if modules and isinstance(modules[0], dict):
            self._modules.update(modules[0])

    def forward(self, input):
        for module in self:
            input = module(input)
        return input


class ModuleDict(Module):
    """Layers by name."""

    def __init__(self, modules=None):
        super().__init__()
        self._modules.update(modules or {})

    def __getitem__(self, key):
        return self._modules[key]

    def __getattr__(self, name):
        if name in ("keys", "items", "values"):
            return getattr(self._modules, name)
        return super().__getattr__(name)


for _name, _layer in list(globals().items()):
    if isinstance(_layer, type) and "__init__" in vars(_layer) and _layer is not Module:
        _layer.__init__ = _guarded(_name, _layer.__init__, method=True, in_python=True)


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(f"module 'torch.nn' has no attribute {name!r}")
    _absent("torch.nn", name)


utils = types.ModuleType("torch.nn.utils")


def _clip_grad_norm_(parameters, max_norm):
    """Scale the gradients down to a norm."""
    grads = [x.grad for x in parameters if x.grad is not None]
    total = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g.mul_((max_norm / (total + 1e-6)).clamp(max=1.0))
    return total


utils.clip_grad_norm_ = _guarded("clip_grad_norm_", _clip_grad_norm_)
