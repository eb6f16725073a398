"""Figure of where numbers lie in memory: what a view leaves in place and what a copy moves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from twelve.lab.draw.canvas import Canvas
from twelve.lab.draw.drawing import Drawing
from twelve.lab.draw.grid import LINE, Cell, Grid
from twelve.lab.draw.panels import MAX_WIDTH
from twelve.lab.format import cell_text
from twelve.lab.palette import signed_fill
from twelve.lab.table import Table, as_plain_tensor

PER_LINE = 12  # storage cells on one line
LARGEST = 48
SPREAD = 0.45


def memory(
    *tensors: Tensor,
    axes: str | Sequence[str],
    title: str,
    names: Sequence[str] | None = None,
    alt: str | None = None,
) -> Drawing:
    """Draw where the numbers of tensors lie in storage: a view moves nothing, a copy does.

    Args:
        tensors: One or more tensors, each at most 48 numbers.
        axes: The axis names of each, as a list of strings, or one string for a single tensor.
        title: The claim of the figure.
        names: What each tensor is called.
        alt: What to say to a reader who does not see it.

    Returns:
        Each storage as a line of numbered cells. Below it every tensor that reads it: under each
        number the storage cell it comes from, and for each axis the stride, which is how many
        storage cells one step along the axis takes.

    Raises:
        ValueError: A tensor is too large to draw, or axes or names do not fit the tensors.
    """
    axes = [axes] if isinstance(axes, str) else list(axes)
    names = list(names or ["x", "y", "z", "w"][: len(tensors)])
    if not len(axes) == len(names) == len(tensors):
        raise ValueError(f"{len(tensors)} tensors, but {len(axes)} axes and {len(names)} names")
    views = [View(x, a, name) for x, a, name in zip(tensors, axes, names, strict=True)]
    shared: dict[int, list[View]] = {}
    for view in views:
        shared.setdefault(view.address, []).append(view)

    canvas = Canvas()
    summary = []
    y = 0.0
    for number, members in enumerate(shared.values()):
        label = "storage" if len(shared) == 1 else f"storage {'ABCD'[number]}"
        summary.append(f"{label}: " + " ".join(map(cell_text, members[0].storage)))
        y = _draw_storage(canvas, members[0], label, y) + 0.25
        y = _draw_views(canvas, members, y) + 0.35
        summary += [view.describe() for view in members]
    alt = alt or " ".join(
        [f"{title}.", f"{len(shared)} storage line{'s' * (len(shared) > 1)}."]
        + [f"{view.name} {view.table.sizes}: {view.strides}." for view in views]
    )
    return canvas.finish(title, alt, "\n".join(summary))


class View:
    """A tensor as a way of reading a storage."""

    def __init__(self, x: Tensor, axes: str, name: str):
        """Look up the storage of x and where in it each element lies."""
        self.name = name
        length = x.untyped_storage().nbytes() // x.element_size()
        if max(length, x.numel()) > LARGEST:
            raise ValueError(f"{name} reads {length} numbers, more than the {LARGEST} that fit")
        self.address = x.untyped_storage().data_ptr()
        flat = torch.as_strided(x.detach(), (length,), (1,), 0)
        self.storage: list[float] = as_plain_tensor(flat).tolist()
        places = torch.as_strided(torch.arange(length), x.shape, x.stride(), x.storage_offset())
        self.places: list[int] = places.flatten().tolist()
        self.table = Table.of(places, axes)
        steps = zip(self.table.axes, x.stride(), strict=True)
        self.strides = "strides " + ", ".join(f"{axis} {step}" for axis, step in steps)
        self.order = "in storage order" if x.is_contiguous() else "not in storage order"

    def cell(self, place: int) -> Cell:
        """Show the number at one storage cell, and which cell that is."""
        value = self.storage[place]
        return Cell(f"{cell_text(value)}\n@{place}", self.fill(value))

    def fill(self, value: float) -> str:
        """Shade a number by its sign and size, so that it can be recognised elsewhere."""
        return signed_fill(float(value), max(abs(float(v)) for v in self.storage))

    def describe(self) -> str:
        """Tell in words how the storage is read."""
        places = " ".join(f"@{place}" for place in self.places)
        return f"{self.name} {self.table.sizes}: {self.strides}; row by row: {places}"


def _draw_storage(canvas: Canvas, view: View, label: str, y: float) -> float:
    canvas.text(0.0, y, label, align="left", bold=True)
    texts = [cell_text(value) for value in view.storage]
    width = max(0.42, *(canvas.width_of(text) + 0.12 for text in texts))
    y += LINE * 0.7
    for start in range(0, len(texts), PER_LINE):
        for column, place in enumerate(range(start, min(start + PER_LINE, len(texts)))):
            x = column * width
            canvas.box(x, y, width, 0.3, fill=view.fill(view.storage[place]))
            canvas.text(x + width / 2, y + 0.15, texts[place])
            canvas.text(x + width / 2, y + 0.3 + LINE / 2, f"@{place}", size=9)
        y += 0.3 + LINE
    return y


def _draw_views(canvas: Canvas, views: list[View], y: float) -> float:
    """Draw the tensors that read one storage side by side; return the lowest edge."""
    x, lowest = 0.0, y
    for view in views:
        grids = [
            Grid(canvas, block, view.cell, title=block.title, cell_height=0.44)
            for block in view.table.blocks(elide=False)
        ]
        lines = [view.table.sizes, view.strides, view.order]
        width = max(
            canvas.width_of(view.name, bold=True),
            *(canvas.width_of(line) for line in lines),
            *(grid.width for grid in grids),
        )
        if x and x + width > MAX_WIDTH:
            x, y = 0.0, lowest + 0.3
        canvas.text(x, y + LINE / 2, view.name, align="left", bold=True)
        canvas.text(x, y + LINE * 2.45, "\n".join(lines), align="left")
        below = y + LINE * 4.2
        for grid in grids:
            grid.draw(x, below)
            below = grid.bottom + 0.12
        x, lowest = x + width + SPREAD, max(lowest, below)
    return lowest
