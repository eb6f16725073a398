"""A fake device, to test device placement without a GPU. The CPU does the computation.

An operation that mixes tensors on the device "pretend" and on the CPU fails, as on CUDA.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

backend_registration._setup_privateuseone_for_python_backend("pretend")
DEVICE = torch.device("pretend:0")
# CUDA does not support matrix products of integers.
PRODUCTS = {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::mv", "aten::addmv",
            "aten::dot"}  # fmt: skip
# These operations copy from one device to another.
COPIES = {"aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::set_"}
# CUDA accepts indices on the CPU.
INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


class Pretend(Tensor):
    """A tensor on the device, backed by a CPU tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers: Tensor) -> "Pretend":
        """Wrap a CPU tensor as a tensor on the device, without a copy."""
        made = Tensor._make_wrapper_subclass(
            cls, numbers.size(), numbers.stride(), numbers.storage_offset(),
            dtype=numbers.dtype, layout=numbers.layout, device=DEVICE,
        )  # fmt: skip
        made.numbers = numbers
        return made

    def __repr__(self, **_: Any) -> str:
        return repr(self.detach().numbers)

    def __format__(self, form: str) -> str:
        return format(self.detach().numbers, form)

    def tolist(self) -> Any:
        """Return the values as a nested list."""
        return self.detach().numbers.tolist()

    def untyped_storage(self) -> torch.UntypedStorage:
        """Return the storage of the CPU tensor."""
        return self.detach().numbers.untyped_storage()

    @property
    def data(self) -> Tensor:
        """The tensor, detached from the graph."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self.numbers = value.numbers.view_as(self.numbers)

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_indices(index), value)

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None) -> Any:
        """Run an operation that has a tensor on the device among its arguments."""
        return run(operation, *args, **kwargs or {})


def run(operation: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run an operation on the CPU.

    Raises:
        RuntimeError: If the operation mixes tensors or generators of both devices.
    """
    if operation is torch.ops.aten._conj.default:
        # Inside a dispatch, torch ignores the conjugate bit.
        operation = torch.ops.aten.conj_physical.default
    name, leaves = operation._schema.name, tree_leaves((args, kwargs))
    here = any(isinstance(leaf, Pretend) for leaf in leaves)
    # A zero-dimensional tensor counts as a Python scalar.
    others = [leaf for leaf in leaves if type(leaf) is not Pretend and isinstance(leaf, Tensor)]
    if here and any(leaf.dim() for leaf in others) and name not in COPIES | INDEXING:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"pretend:0 and cpu! ({name})"
        )
    if here and name in PRODUCTS and args[0].dtype in (torch.bool, torch.int64):
        raise NotImplementedError(f"'{name}' not implemented for {args[0].dtype} on the device")
    wanted = kwargs.get("device")
    here = here if wanted is None else wanted.type == "pretend"
    if here and any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError(
            f"Expected a 'pretend' device type for generator but found 'cpu' ({name})"
        )
    result = operation(*tree_map(_to_cpu, args), **tree_map(_to_cpu, kwargs))
    if not here:
        return result
    return return_and_correct_aliasing(operation, args, kwargs, tree_map(_from_cpu, result))


def _to_cpu(value: Any) -> Any:
    if isinstance(value, Pretend):
        return value.numbers
    there = isinstance(value, torch.device) and value.type == "pretend"
    return torch.device("cpu") if there else value


def _from_cpu(value: Any) -> Any:
    return Pretend(value) if type(value) is Tensor else value


def _indices(index: Any) -> Any:
    """Replace lists with CPU tensors; torch would convert a list to a device tensor in C++."""
    parts = index if isinstance(index, tuple) else (index,)
    return tuple(
        torch.tensor(part, dtype=None if part else torch.int64, device="cpu")
        if isinstance(part, list)
        else part
        for part in parts
    )


def _constructor(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a constructor build its tensor on the CPU first; C++ cannot build it on the device."""

    @functools.wraps(original)
    def make(*data: Any, device: Any = None, requires_grad: bool = False, **options: Any) -> Any:
        if device is None and isinstance(data[0], Tensor):
            device = data[0].device
        where = torch.empty(0, device=device).device
        made = original(
            *tree_map(_to_cpu, data), device="cpu" if where == DEVICE else where, **options
        )
        return made.to(where).requires_grad_(requires_grad)

    return make


for name in ("tensor", "as_tensor", "arange"):
    setattr(torch, name, _constructor(getattr(torch, name)))
# A wrapped tensor cannot be an inference tensor.
torch.inference_mode = lambda mode=True: torch.no_grad() if mode else torch.enable_grad()
# Module.to must swap parameters: assigning to `data` would keep the old values.
torch.__future__.set_swap_module_params_on_conversion(True)
# Factory operations have no tensor argument, so __torch_dispatch__ does not see them.
factories = torch.library.Library("_", "IMPL")
factories.fallback(run, "PrivateUse1")
