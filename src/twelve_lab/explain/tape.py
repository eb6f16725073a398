"""Record every operation of a run with its input and output elements.

Every element of every tensor gets a number, its cell. An operation that only moves data is
rerun on tensors of cells. Any other operation creates new cells and is stored with its arguments.
"""

from __future__ import annotations

import operator
import re
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

# Data movement: the output contains elements of the input, unchanged.
MOVES = frozenset(
    "view _unsafe_view reshape _reshape_alias permute transpose t expand unsqueeze squeeze slice "
    "select as_strided unfold diagonal alias detach clone contiguous flip roll repeat "
    "lift_fresh index_select take cat stack split split_with_sizes unbind "
    "narrow index tril triu constant_pad_nd movedim repeat_interleave _to_copy view_as chunk "
    "unsafe_split masked_select expand_as broadcast_in_dim convert_element_type view_of "
    "collapse_view split_dim".split()
)
# Only these argument positions contain data; the others contain indices.
LOOKUPS = {
    "index_select": (0,), "take": (0,), "index": (0,), "masked_select": (0,),
    "index_put": (0, 2), "scatter": (0, 3), "index_copy": (0, 3), "masked_scatter": (0, 2),
}  # fmt: skip
# Constant or random tensors: their elements have no arithmetic.
GIVEN = frozenset(
    "empty zeros ones full arange scalar_tensor rand randn randint randperm linspace eye "
    "empty_like zeros_like ones_like full_like rand_like randn_like new_empty new_zeros new_ones "
    "new_full empty_strided new_empty_strided bernoulli multinomial normal uniform exponential "
    "tril_indices triu_indices".split()
)


def _map(change: Callable[[Any], Any], part: Any, kind: type = Tensor) -> Any:
    """Apply a function to every tensor among the arguments of an operation."""
    # torch.utils._pytree does the same, but doubles the time of a trace.
    if isinstance(part, kind):
        return change(part)
    if isinstance(part, tuple | list):
        changed = [_map(change, each, kind) for each in part]
        return changed if isinstance(part, list) else tuple(changed)
    if isinstance(part, dict):
        return {key: _map(change, each, kind) for key, each in part.items()}
    return part


def _tensors(part: Any) -> list[Tensor]:
    """List the tensors among the arguments or the results of an operation."""
    tensors: list[Tensor] = []
    _map(tensors.append, part)
    return tensors


def _alone() -> AbstractContextManager[Any]:
    """Hide the tape's own tensors from other dispatch modes, such as a learner's."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()


def _is_plain(tensor: Tensor) -> bool:
    """Return whether the values of a tensor can be read."""
    return not (tensor.is_meta or tensor.is_complex() or tensor.layout != torch.strided)


def _kind(tensor: Tensor) -> str:
    """Return why the values of a tensor cannot be read."""
    return str(tensor.dtype if tensor.is_complex() else tensor.layout).removeprefix("torch.")


def _direct(func: OpOverload) -> Callable[..., Any]:
    """Bypass the dispatcher, which imports the compiler, for decomposed operations."""
    return getattr(func, "impl_aten", func)


def _is_lookup(name: str, args: Sequence[Any]) -> bool:
    """Return whether the output consists of elements of the data, selected by indices."""
    adds = name == "index_put" and tuple(args[3:4]) == (True,)
    return name in LOOKUPS and not adds


@dataclass(frozen=True)
class Cells:
    """A tensor argument of an operation: the cell of each element."""

    of: Tensor
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of the run, with its tensor arguments replaced by their cells.

    Attributes:
        name: Name, without the namespace if that is torch's own.
        run: The operation, or None if its arguments could not be recorded.
        args: Positional arguments as passed.
        kwargs: Keyword arguments as passed.
        shape: Shape of the output.
        output: Index of the output.
    """

    name: str
    run: OpOverload | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: torch.Size
    output: int = 0

    def get(self, name: str) -> Any:
        """Return the value of an argument: as passed, its default, or None."""
        known = self.run._schema.arguments if self.run is not None else ()
        for position, argument in enumerate(known):
            if argument.name == name:
                if position < len(self.args):
                    return self.args[position]
                return self.kwargs.get(name, argument.default_value)
        return None


@dataclass(eq=False)
class Block:
    """The elements of one tensor: consecutive cells, their values and their origin.

    Attributes:
        start: The first cell.
        values: One value per cell, flat, on the CPU.
        made: The operation that computed the elements.
        copies: The cells that the elements duplicate, if they only duplicate others.
        name: Name in the trace or of a parameter; "" without a name.
        axes: One name for each axis; empty if the axes have no names.
        shape: Sizes of the axes.
        is_parameter: Whether the tensor is a trainable parameter.
    """

    start: int
    values: Tensor
    shape: torch.Size
    made: Operation | None = None
    copies: Tensor | None = None
    name: str = ""
    axes: tuple[str, ...] = ()
    is_parameter: bool = False

    @cached_property
    def numbers(self) -> list[float]:
        """Return the values as plain numbers."""
        return self.values.tolist()

    @property
    def cells(self) -> Tensor:
        """Return the cell of each element, in the shape of the tensor."""
        stop = self.start + self.values.numel()
        return torch.arange(self.start, stop, device="cpu").view(self.shape)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Return a name for every axis: its number if it has no name."""
        return self.axes or tuple(f"axis {n}" for n in range(len(self.shape)))

    def index(self, cell: int) -> tuple[int, ...]:
        """Return the index of a cell in the tensor."""
        return index_of(cell - self.start, self.shape)

    def cell(self, index: tuple[int, ...]) -> int:
        """Return the cell at an index; negative positions count from the end.

        Raises:
            ValueError: If the index does not fit the axes.
        """
        named = list(zip(self.axis_names, self.shape, strict=True))
        sizes = ", ".join(f"{axis} {size}" for axis, size in named)
        try:
            positions = tuple(map(operator.index, index))
        except TypeError:
            raise ValueError(
                f"{self.name}: give one whole number for each axis ({sizes}), not {index}"
            ) from None
        if len(positions) != len(self.shape):
            raise ValueError(
                f"{self.name} has {len(self.shape)} axes ({sizes}), but the index {positions} has "
                f"{len(positions)} positions"
            )
        for (axis, size), position in zip(named, positions, strict=True):
            if not -size <= position < size:
                raise ValueError(
                    f"{self.name}: {axis} {position} is out of range, its size is {size}"
                )
        return int(self.cells[positions])


def index_of(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Convert a position in row-major order to an index."""
    index = []
    for size in reversed(shape):
        place, rest = divmod(place, size)
        index.append(rest)
    return tuple(reversed(index))


class Tape(TorchDispatchMode):
    """All operations of a run, recorded element by element while it runs."""

    def __init__(self) -> None:
        """Create an empty tape."""
        super().__init__()
        self.blocks: list[Block] = []
        self.starts: list[int] = []
        self.named: dict[str, Block] = {}
        self._next = 0
        # Keyed by id. An id may be reused, which a weak reference to the tensor detects.
        self._cells: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._labels: dict[int, tuple[weakref.ref[Tensor], str, tuple[str, ...]]] = {}

    def label(self, tensor: Tensor, name: str, axes: tuple[str, ...] = ()) -> None:
        """Name an input of the run, for example a weight."""
        known = self._labels.get(id(tensor))
        if known is None or known[0]() is not tensor:
            self._labels[id(tensor)] = (weakref.ref(tensor), name, axes)

    def name(self, tensor: Tensor, name: str, axes: tuple[str, ...]) -> None:
        """Set the name of a tensor in the trace. From now on, its elements use this name."""
        if not _is_plain(tensor):
            return
        with _alone():
            cells = self.cells(tensor)
            first = self.block(int(cells.flatten()[0])) if cells.numel() else None
            is_whole_block = (
                first is not None
                and not first.name
                and first.made is not None
                and first.values.dtype == tensor.dtype
                and torch.equal(cells, first.cells)
            )
            if not is_whole_block:
                first = self._allocate(tensor, copies=cells)
            first.name, first.axes = name, axes
            self.named[name] = first

    def take_apart(self, operation: Operation) -> Tensor:
        """Run an operation again, decomposed by torch into simpler operations.

        Returns:
            The cells of its output, computed by the simpler operations.

        Raises:
            ValueError: If torch has no decomposition, or the operation could not be recorded.
        """
        name = operation.name if "::" in operation.name else f"aten::{operation.name}"
        if operation.run is None:
            raise ValueError(f"computed by {name}, which are not recorded: nothing explains it")
        simpler = decomposition_table.get(operation.run)
        if simpler is not None and torch.Tag.nondeterministic_seeded not in operation.run.tags:
            with _alone(), torch.no_grad(), self, suppress(RuntimeError, TypeError):
                args, kwargs = _map(self._again, (operation.args, operation.kwargs), Cells)
                outputs = _tensors(simpler(*args, **kwargs))
                return self.cells(outputs[operation.output])
        raise ValueError(
            f"no formula for the operation {name}; add one to FORMULAS in "
            "twelve_lab.explain.formulas, as its first lines show"
        )

    def _again(self, cells: Cells) -> Tensor:
        """Rebuild a tensor that was an argument."""
        tensor = self._values(cells)
        self._assign(tensor, cells.of)
        return tensor

    def close(self) -> None:
        """Release the tensors of the run."""
        self._cells.clear()
        self._labels.clear()

    def block(self, cell: int) -> Block:
        """Return the tensor that a cell belongs to."""
        return self.blocks[bisect_right(self.starts, cell) - 1]

    def value(self, cell: int) -> float:
        """Return the value in a cell."""
        block = self.block(cell)
        return block.numbers[cell - block.start]

    def cells(self, tensor: Tensor) -> Tensor:
        """Return the cell of every element of a tensor."""
        known = self._cells.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        block = self._allocate(tensor)
        owner, name, axes = self._labels.get(id(tensor), (lambda: None, "", ()))
        if owner() is tensor:
            block.name, block.axes = name, axes
            block.is_parameter = isinstance(tensor, Parameter)
            self.named.setdefault(name, block)
        return self._cells[id(tensor)][1]

    def _assign(self, tensor: Tensor, cells: Tensor) -> None:
        self._cells[id(tensor)] = (weakref.ref(tensor), cells)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise, the first operation would import the whole compiler, which takes over 1 s.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and record it."""
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():
            # Autograd would have decomposed this operation.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        compute = _direct(func)
        name = re.sub("^(aten|prims)::", "", func._schema.name)
        unreadable = next((x for x in _tensors((args, kwargs)) if not _is_plain(x)), None)
        if unreadable is not None:
            result = compute(*args, **kwargs)
            with _alone():
                self._keep_unexplained(f"{name} of {_kind(unreadable)} numbers", result)
            return result
        with _alone():
            is_in_place = func._schema.is_mutable and name.endswith("_")
            before = _map(self._argument, (args, kwargs))
        result = compute(*args, **kwargs)
        if not all(map(_is_plain, _tensors(result))):
            return result
        with _alone():
            if is_in_place:
                self._change(func, name.removesuffix("_"), args[0], before)
            else:
                self._keep(func, name, args, kwargs, before, result)
        return result

    def _argument(self, tensor: Tensor) -> Cells:
        return Cells(self.cells(tensor), tensor.dtype)

    def _keep_unexplained(self, name: str, result: Any) -> None:
        """Record only the name of an operation on tensors whose values cannot be read."""
        for place, output in enumerate(_tensors(result)):
            if _is_plain(output):
                self._allocate(output, made=Operation(name, None, (), {}, output.shape, place))

    def _keep(self, func, name, args, kwargs, before, result) -> None:
        outputs = result if isinstance(result, tuple | list) else (result,)
        if (name in MOVES or _is_lookup(name, args)) and func._overloadname != "dtype":
            # Some overloads of these operations cannot run on cells.
            with suppress(RuntimeError, TypeError, IndexError, NotImplementedError):
                moved = self._move(func, name, args, kwargs, before, result)
                moved = moved if isinstance(moved, tuple | list) else (moved,)
                for output, cells in zip(outputs, moved, strict=True):
                    self._assign(output, cells)
                return
        if name == "native_dropout" and args[2] and args[1] < 1:
            self._keep_dropout(*args[:2], *outputs)
            return
        for place, output in enumerate(outputs):
            if isinstance(output, Tensor):
                made = Operation(name, func, *before, output.shape, place)
                self._allocate(output, made=None if name in GIVEN else made)

    def _keep_dropout(self, x: Tensor, p: float, output: Tensor, mask: Tensor) -> None:
        """Record dropout on a GPU, which is one operation, as the two operations on a CPU."""
        kept = mask.to(x.dtype)
        scale = kept / (1 - p)
        for name, args, made in (("div", (kept, 1 - p), scale), ("mul", (x, scale), output)):
            run = getattr(torch.ops.aten, name).Tensor
            args = _map(self._argument, args)
            self._allocate(made, made=Operation(name, run, args, {}, x.shape))

    def _move(self, func, name, args, kwargs, before, result) -> Any:
        """Rerun the operation on cells, with its index arguments unchanged."""
        if name in LOOKUPS:
            return self._look_up(name, *before)
        if name in ("view", "_unsafe_view", "reshape", "_reshape_alias"):
            # The tensor may not be contiguous, but its cells are in row-major order.
            return self.cells(args[0]).reshape(result.shape)
        if name == "as_strided":
            return self._in_storage(args[0]).as_strided(*args[1:], **kwargs)
        if name in ("_to_copy", "convert_element_type"):
            if not torch.equal(args[0].cpu().double(), result.cpu().double()):
                raise TypeError("the conversion changes numbers")
            return self.cells(args[0]).clone()
        if name in ("tril", "triu", "constant_pad_nd"):
            zero = self._constant(args[2] if len(args) > 2 else 0.0)
            shifted = self.cells(args[0]) - zero
            return func(shifted, *args[1:2], **kwargs) + zero
        return _direct(func)(*_map(self.cells, args), **_map(self.cells, kwargs))

    def _look_up(self, name: str, args: Any, kwargs: Any) -> Tensor:
        """Rerun a lookup on the cells of its data, with indices read from the tape."""
        parts = [
            self._cell_of(part) if place in LOOKUPS[name] else _map(self._values, part, Cells)
            for place, part in enumerate(args)
        ]
        return getattr(torch.ops.aten, name)(*parts, **kwargs)

    def _cell_of(self, part: Any) -> Any:
        """Return the cells of a data argument; a plain number gets its own cell."""
        return part.of if isinstance(part, Cells) else self._constant(part)

    def _change(self, func: OpOverload, name: str, target: Tensor, before: Any) -> None:
        """Assign new cells to a tensor that was modified in place, and to all its views."""
        (arguments, kwargs), old = before, before[0][0].of
        if name in ("copy", "fill", "masked_fill", "zero"):
            number = 0.0 if name == "zero" else arguments[1 + (name == "masked_fill")]
            mask = self._values(arguments[1]) if name == "masked_fill" else torch.tensor(True)
            fresh = torch.where(mask, self._cell_of(number), old).expand(old.shape)
        elif _is_lookup(name, arguments):
            fresh = self._look_up(name, arguments, kwargs)
        else:
            block = self._allocate(target)
            if name not in GIVEN:
                block.made = Operation(name, func, arguments, kwargs, target.shape)
            fresh = self._cells[id(target)][1]
        self._assign(target, fresh)
        self._spread(target)

    def _spread(self, target: Tensor) -> None:
        storage = target.untyped_storage()
        written = self._in_storage(target)
        for known, cells in list(self._cells.values()):
            tensor = known()
            if tensor is None or tensor is target:
                continue
            same = tensor.untyped_storage()._cdata == storage._cdata
            if same and tensor.element_size() == target.element_size():
                new = written.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
                self._assign(tensor, torch.where(new >= 0, new, cells))

    def _in_storage(self, tensor: Tensor) -> Tensor:
        """Arrange the cells like the tensor's storage, with -1 where the tensor has no element."""
        length = tensor.untyped_storage().nbytes() // tensor.element_size()
        written = torch.full((length,), -1, device="cpu")
        laid = written.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        laid.copy_(self.cells(tensor))
        return written

    def _values(self, part: Cells) -> Tensor:
        """Read the values of an argument from the tape."""
        numbers = [self.value(cell) for cell in part.of.flatten().tolist()]
        return torch.tensor(numbers, dtype=part.dtype, device="cpu").view(part.of.shape)

    def _constant(self, number: Any) -> int:
        value = torch.tensor(float(number), dtype=torch.float64, device="cpu")
        return self._allocate(value).start

    def _allocate(self, tensor: Tensor, *, made=None, copies=None) -> Block:
        values = tensor.detach().cpu().flatten().clone()
        block = Block(self._next, values, tensor.shape, made, copies)
        self.blocks.append(block)
        self.starts.append(self._next)
        self._next += values.numel()
        self._assign(tensor, block.cells)
        return block
