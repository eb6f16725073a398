"""Layers: Module, Parameter, and the few layers that an answer may use."""

import math
import types

import torch
from torch import _errors, _registry, _tensor

from . import functional, init


class Parameter(_tensor.Tensor):
    """A trainable tensor that a module registers on assignment."""

    def __new__(cls, data=None, requires_grad=True):
        data = torch.empty(0) if data is None else data
        return object.__new__(cls)._like(data.detach()).requires_grad_(requires_grad)

    def __repr__(self):
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(_tensor.Tensor):
    """A tensor that a module registers on assignment, but that is not trained."""

    def __new__(cls, data, *, persistent=True):
        return object.__new__(cls)._like(data.detach())


class Module:
    """A layer that registers its parameters, buffers and submodules on assignment."""

    training = True

    def __init__(self, *args, **kwargs):
        self.__dict__.update(
            _parameters={}, _buffers={}, _modules={}, _hooks={}, _unsaved=set(), training=True
        )

    def forward(self, *given):
        raise _errors.error("forward", type(self).__name__)

    def __call__(self, *args, **kwargs):
        out = self.forward(*args, **kwargs)
        for hook in list(self.__dict__.get("_hooks", {}).values()):
            changed = hook(self, args, out)
            out = out if changed is None else changed
        return out

    # Parameters, buffers and submodules.

    def __setattr__(self, name, value):
        for table, (kind, *_) in _TABLES.items():
            if isinstance(value, kind):
                of = "module" if kind is Module else "parameters"
                _errors.check(table in self.__dict__, "before_init", of)
                self._forget(name)
                self.__dict__[table][name] = value
                return
        for table, (_, what, title) in _TABLES.items():
            if name in self.__dict__.get(table, ()):
                fits = value is None or (what == "buffer" and isinstance(value, torch.Tensor))
                _errors.check(fits, "assign", torch.typename(value), what, name, title)
                self.__dict__[table][name] = value
                return
        object.__setattr__(self, name, value)

    def _forget(self, name):
        for table in (self.__dict__, self._parameters, self._buffers, self._modules):
            table.pop(name, None)

    def __getattr__(self, name):
        for table in _TABLES:
            if name in self.__dict__.get(table, ()):
                return self.__dict__[table][name]
        _errors.absent("Module", name, f"'{type(self).__name__}' object")

    def __delattr__(self, name):
        if any(name in self.__dict__[table] for table in _TABLES):
            self._forget(name)
        else:
            object.__delattr__(self, name)

    def __dir__(self):
        return [*object.__dir__(self), *self._parameters, *self._buffers, *self._modules]

    def register_buffer(self, name, tensor, persistent=True):
        self._forget(name)
        self._buffers[name] = tensor
        if not persistent:
            self._unsaved.add(name)

    def register_parameter(self, name, param):
        self._parameters[name] = param

    def add_module(self, name, module):
        self._modules[name] = module

    def register_forward_hook(self, hook, **_):
        return _Handle(self._hooks, hook)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self.named_children():
            yield from module.named_modules(memo, _joined(prefix, name), remove_duplicate)

    def modules(self):
        return (module for _, module in self.named_modules())

    def named_children(self):
        return iter([(n, m) for n, m in self._modules.items() if m is not None])

    def children(self):
        return (module for _, module in self.named_children())

    def _named(self, table, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in modules if recurse else [(prefix, self)]:
            for name, x in module.__dict__[table].items():
                if x is not None and x not in seen:
                    seen.update([x] if remove_duplicate else [])
                    yield _joined(path, name), x

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

    # Methods that traverse all submodules.

    def state_dict(self):
        return {
            _joined(path, name): x.detach()
            for path, module in self.named_modules(remove_duplicate=False)
            for name, x in {**module._parameters, **module._buffers}.items()
            if x is not None and name not in module._unsaved
        }

    def load_state_dict(self, state_dict, strict=True, assign=False):
        mine = self.state_dict()
        wrong = [f'Missing key(s) in state_dict: "{n}".' for n in mine if n not in state_dict]
        wrong += [f'Unexpected key(s) in state_dict: "{n}".' for n in state_dict if n not in mine]
        _errors.check(not (strict and wrong), "load", type(self).__name__, "\n\t".join(wrong))
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


# The class of the entries of each table, and its names in error messages.
_TABLES = {
    "_parameters": (Parameter, "parameter", "nn.Parameter"),
    "_modules": (Module, "child module", "nn.Module"),
    "_buffers": (Buffer, "buffer", "Tensor"),
}


def _joined(path, name):
    return f"{path}.{name}" if path else name


class _Handle:
    def __init__(self, table, hook):
        self.table = table
        table[self] = hook

    def remove(self):
        self.table.pop(self, None)


class Linear(Module):
    """Multiply by a matrix and add a bias."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features) if in_features else 0
        self.weight = Parameter(torch.empty(out_features, in_features, dtype=dtype))
        shift = Parameter(torch.empty(out_features, dtype=dtype)) if bias else None
        self.register_parameter("bias", shift)
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
            self.weight.data[padding_idx] = 0.0

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None):
        layer = cls(*embeddings.shape, padding_idx)
        layer.weight = Parameter(embeddings, not freeze)
        return layer

    def forward(self, input):
        return functional.embedding(input, self.weight, self.padding_idx)


class _Norm(Module):
    """A layer that normalizes the last axes."""

    def _start(self, shape, eps, **starts):
        super().__init__()
        self.normalized_shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.eps = eps
        for name, (used, new) in starts.items():
            self.register_parameter(name, Parameter(new(self.normalized_shape)) if used else None)


class LayerNorm(_Norm):
    """Normalize to mean 0 and variance 1."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True,
                 device=None, dtype=None):  # fmt: skip
        affine = elementwise_affine
        self._start(normalized_shape, eps, weight=(affine, torch.ones),
                    bias=(affine and bias, torch.zeros))  # fmt: skip
        self.to(dtype=dtype)

    def forward(self, input):
        shape = self.normalized_shape
        return functional.layer_norm(input, shape, self.weight, self.bias, self.eps)


class RMSNorm(_Norm):
    """Divide by the root mean square."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None,
                 dtype=None):  # fmt: skip
        self._start(normalized_shape, eps, weight=(elementwise_affine, torch.ones))
        self.to(dtype=dtype)

    def forward(self, input):
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class Dropout(Module):
    """Set random elements to zero during training."""

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        _errors.check(0 <= p <= 1, "dropout", p)
        self.p = p

    def forward(self, input):
        return functional.dropout(input, self.p, self.training)


class Identity(Module):
    """Return the input unchanged."""

    def forward(self, input):
        return input


def _activation(name, **settings):
    """Create a layer class that calls an activation function with at most one setting."""

    def start(self, *given, **named):
        Module.__init__(self)
        self.settings = dict(zip(settings, [*given, *named.values(), *settings.values()]))

    def forward(self, input):
        return getattr(functional, name.lower())(input, **self.settings)

    return type(name, (Module,), {"__init__": start, "forward": forward})


ReLU, SiLU = _activation("ReLU", inplace=False), _activation("SiLU", inplace=False)
Tanh, Sigmoid = _activation("Tanh"), _activation("Sigmoid")
GELU, Softmax = _activation("GELU", approximate="none"), _activation("Softmax", dim=None)


class ModuleList(Module):
    """A list of layers."""

    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def append(self, module):
        _errors.check(isinstance(module, Module), "module", torch.typename(module))
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
        part = list(self._modules.values())[index]
        if isinstance(index, slice):
            return type(self)(*part) if isinstance(self, Sequential) else type(self)(part)
        return part


class Sequential(ModuleList):
    """Layers that run in sequence."""

    def __init__(self, *modules):
        named = modules and isinstance(modules[0], dict)
        super().__init__(() if named else modules)
        self._modules.update(modules[0] if named else {})

    def forward(self, input):
        for module in self:
            input = module(input)
        return input


class ModuleDict(Module):
    """A dictionary of layers."""

    def __init__(self, modules=None):
        super().__init__()
        self._modules.update(modules or {})

    def __getitem__(self, key):
        return self._modules[key]

    def __getattr__(self, name):
        known = name in ("keys", "items", "values")
        return getattr(self._modules, name) if known else super().__getattr__(name)


for _name, _layer in list(globals().items()):
    if isinstance(_layer, type) and "__init__" in vars(_layer) and _layer is not Module:
        _layer.__init__ = _registry.guarded(_name, _layer.__init__, method=True, in_python=True)


def _clip_grad_norm_(parameters, max_norm):
    """Scale the gradients so their total norm is at most `max_norm`; return the original norm."""
    grads = [x.grad for x in parameters if x.grad is not None]
    total = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g.mul_((max_norm / (total + 1e-6)).clamp(max=1.0))
    return total


utils = types.ModuleType("torch.nn.utils")
utils.clip_grad_norm_ = _registry.guarded("clip_grad_norm_", _clip_grad_norm_)
__getattr__ = _errors.lookup("torch.nn")
