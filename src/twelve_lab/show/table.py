"""Layout of a tensor for display: matrices with named axes, rows and columns.

Text, HTML and figures all use this layout, so indices have the same names in all of them.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Labels = Mapping[str, Sequence[Any]]
Value = float | int | bool | None  # None stands for omitted elements

MAX_SHOWN = 12  # a longer axis is shortened to its two ends
EDGE = 4


@dataclass(frozen=True)
class Block:
    """One matrix of a tensor: its last two axes, at one index of the leading ones."""

    index: tuple[int, ...]
    names: list[str]  # one for each leading axis: ["batch 0", "head 1"]
    row_axis: str
    column_axis: str
    row_names: list[str]
    column_names: list[str]
    rows: list[list[Value]]
    lit: list[list[bool]] | None = None

    @property
    def is_of_interest(self) -> bool:
        """Return whether the block has a highlighted element, or the tensor has none."""
        return self.lit is None or any(map(any, self.lit))

    @property
    def title(self) -> str:
        """Return the name of the block, such as "batch 0, head 1"."""
        return ", ".join(filter(None, self.names))


@dataclass(frozen=True)
class Table:
    """A tensor on the CPU in a printable type, with names for its axes and indices."""

    values: Tensor
    axes: tuple[str, ...]
    labels: Labels = field(default_factory=dict)
    lit: Tensor | None = None  # True for highlighted elements

    @classmethod
    def of(cls, x: Any, axes: Any = None, labels: Labels | None = None) -> Table:
        """Build a table from a tensor or nested list and its axes, or from a trace entry.

        Args:
            x: Tensor, nested list or trace entry.
            axes: Axis names in a string ("batch src d_model") or a sequence; size 1 may be "1".
            labels: Names to show instead of indices: axis -> one name per index, or axis -> one
                such list per sentence if the tensor has a batch axis.

        Raises:
            ValueError: If the number of axes differs from the rank, an axis called "1" has another
                size, or labels do not fit their axis.
        """
        if hasattr(x, "value") and hasattr(x, "axes"):
            x, axes = x.value, x.axes if axes is None else axes
        values = as_plain_tensor(x)
        if axes is None:
            raise ValueError("axes is missing: name every axis, as in 'batch src d_model'")
        names = tuple(axes.split()) if isinstance(axes, str) else tuple(axes)
        if len(names) != values.ndim:
            raise ValueError(
                f"axes '{' '.join(names)}' has {len(names)} names, "
                f"but x has {values.ndim} axes of sizes {tuple(values.shape)}"
            )
        table = cls(values, names, dict(labels or {}))
        for name, size in zip(names, values.shape, strict=True):
            if name.isdigit() and int(name) != size:
                raise ValueError(f"axis '{name}' of '{' '.join(names)}' has size {size}")
        table._check_labels()
        return table

    @property
    def sizes(self) -> str:
        """Format the axes with their sizes, such as "(batch=2, src=2, d_model=3)"."""
        pairs = zip(self.axes, self.values.shape, strict=True)
        inside = ", ".join(name if name.isdigit() else f"{name}={size}" for name, size in pairs)
        return f"({inside or 'scalar'})"

    @property
    def legend(self) -> str:
        """Explain how the table displays False, if it is a mask."""
        return "  · = False" if self.values.dtype == torch.bool else ""

    @property
    def compact(self) -> Table:
        """Drop unnamed leading axes of size 1."""
        rank = len(self.axes)
        named = [p for p in range(rank) if p >= rank - 2 or not self.axes[p].isdigit()]
        sizes = [self.values.shape[p] for p in named]
        lit = None if self.lit is None else self.lit.reshape(sizes)
        axes = tuple(self.axes[p] for p in named)
        return Table(self.values.reshape(sizes), axes, self.labels, lit)

    def names_along(self, position: int, index: Sequence[int | None] = ()) -> list[str]:
        """List the names of the indices along one axis, for the block at `index`."""
        axis, size = self.axes[position], self.values.shape[position]
        if axis.isdigit():
            return [""] * size
        names = self.labels.get(axis)
        if names is not None and is_nested(names):
            place = self.axes.index("batch")
            # If the rows are sentences, one heading cannot name the words of all sentences.
            names = names[index[place] or 0] if place < len(index) else None
        return [str(name) for name in (range(size) if names is None else names)]

    def blocks(self, *, elide: bool = True) -> Iterator[Block]:
        """Yield the matrices of the tensor; a vector becomes one unnamed row."""
        keep = _two_ends if elide else range
        for index in itertools.product(*map(keep, self.values.shape[:-2])):
            yield self._block(index, keep)

    def _block(self, index: tuple, keep: Any) -> Block:
        axes = ("", "", *self.axes)[-2:]
        is_gap = None in index
        matrix = self.values[index] if index and not is_gap else self.values
        matrix = matrix.reshape(1, -1) if matrix.ndim < 2 else matrix
        lit = None if self.lit is None or is_gap else self.lit[index].reshape(matrix.shape)
        rows = [None] if is_gap else keep(matrix.shape[-2])
        columns = list(keep(matrix.shape[-1]))
        rank = len(self.axes)
        row_names = self.names_along(rank - 2, index) if rank > 1 else [""]
        column_names = self.names_along(rank - 1, index) if rank else [""]
        leading = [self.names_along(p, index) for p in range(len(index))]
        return Block(
            index=index,
            names=[
                f"{axis_word(axis)} {'…' if i is None else names[i]}".strip()
                for axis, names, i in zip(self.axes[: len(index)], leading, index, strict=True)
            ],
            row_axis=axis_word(axes[0]),
            column_axis=axis_word(axes[1]),
            row_names=["…" if i is None else row_names[i] for i in rows],
            column_names=["…" if j is None else column_names[j] for j in columns],
            rows=[[None if None in (i, j) else matrix[i, j].item() for j in columns] for i in rows],
            lit=None
            if lit is None
            else [[None not in (i, j) and bool(lit[i, j]) for j in columns] for i in rows],
        )

    def _check_labels(self) -> None:
        sizes = dict(zip(self.axes, self.values.shape, strict=True))
        for axis in sizes.keys() & self.labels.keys():
            if problem := _misfit(axis, self.labels[axis], sizes):
                raise ValueError(problem)


def fitting(labels: Labels, axes: Sequence[str], shape: Sequence[int]) -> dict[str, Any]:
    """Keep the labels that have one name for each index of a tensor.

    Args:
        labels: Names to show instead of indices, possibly also for axes of other tensors.
        axes: Axes of the tensor.
        shape: Shape of the tensor.
    """
    sizes = dict(zip(axes, shape, strict=True))
    return {
        axis: names
        for axis, names in labels.items()
        if axis in sizes and not _misfit(axis, names, sizes)
    }


def _misfit(axis: str, names: Sequence[Any], sizes: Mapping[str, int]) -> str:
    """Return the reason why labels do not fit their axis, or ""."""
    groups = names if is_nested(names) else [names]
    if is_nested(names) and len(groups) != sizes.get("batch"):
        return f"labels['{axis}'] has {len(groups)} lists, one for each sentence, but " + (
            f"batch={sizes['batch']}" if "batch" in sizes else "there is no batch axis"
        )
    for group in groups:
        if len(group) != sizes[axis]:
            return (
                f"labels['{axis}'] has {len(group)} names, but axis {axis} has size {sizes[axis]}"
            )
    return ""


def as_plain_tensor(x: Any) -> Tensor:
    """Detach a tensor and move it to the CPU as bool, int64 or float64.

    Args:
        x: Tensor or nested list.

    Raises:
        ValueError: If x is not numeric, is complex or uint64, or is on the meta device.
    """
    if not isinstance(x, Tensor):
        try:
            floats = torch.tensor(x).is_floating_point()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"x must be a tensor, a nested list of numbers or an entry of a trace, "
                f"not {reprlib.repr(x)}: {error}"
            ) from None
        x = torch.tensor(x, dtype=torch.float64 if floats else None)
    if x.is_meta:
        raise ValueError(f"x, of shape {tuple(x.shape)}, is on the meta device: it has no numbers")
    if x.is_complex() or x.dtype == torch.uint64:  # int64 cannot represent all of uint64
        raise ValueError(f"x must hold real numbers, not {x.dtype}")
    x = x.detach().cpu().to_dense()
    return x.double() if x.is_floating_point() else x if x.dtype == torch.bool else x.long()


def axis_word(axis: str) -> str:
    """Return the displayed name of an axis: "" for an axis of size 1 called "1"."""
    return "" if axis.isdigit() else axis


def is_nested(names: Sequence[Any]) -> bool:
    """Return whether labels contain one list per sentence."""
    return len(names) > 0 and not isinstance(names[0], str) and isinstance(names[0], Sequence)


def _two_ends(size: int) -> list[int | None]:
    if size <= MAX_SHOWN:
        return list(range(size))
    return [*range(EDGE), None, *range(size - EDGE, size)]
