"""Figure of tensors in storage: a view shares the storage, a copy has its own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE, Cell
from twelve_lab.draw.panels import MAX_WIDTH, SIDE, draw_panels
from twelve_lab.messages import message, plural
from twelve_lab.show.format import cell_text
from twelve_lab.show.palette import signed_fill
from twelve_lab.show.table import Table, Value, as_plain_tensor

PER_LINE = 12  # storage cells per line
LARGEST = 48
ROOM = 0.23  # height of one stride
SPREAD = 0.4  # gap between two tensors, and half the gap between two storages


def storage(
    *tensors: Tensor, axes: str | Sequence[str], title: str, names: Sequence[str] | None = None
) -> Drawing:
    """Draw the storage of tensors: a view shares the storage, a copy has its own.

    Args:
        tensors: One or more tensors, each with at most 48 elements.
        axes: Axis names: a list with one string per tensor, or one string for a single tensor.
        title: Claim of the figure.
        names: Name of each tensor.

    Returns:
        Each storage as a line of numbered cells. Below the cells, a bracket for each axis spans
        its stride: the number of cells by which one step along the axis advances. Below the
        brackets are the tensors that read the storage, with the cell number under each element.

    Raises:
        ValueError: If a tensor is too large, or axes or names do not match the tensors.
    """
    axes = [axes] if isinstance(axes, str) else list(axes)
    names = list(names or ["x", "y", "z", "w"][: len(tensors)])
    if not len(axes) == len(names) == len(tensors):
        raise ValueError(
            f"storage: axes and names must be one for each of {len(tensors)} tensors, "
            f"got {len(axes)} axes and {len(names)} names"
        )
    views = [View(x, a, name) for x, a, name in zip(tensors, axes, names, strict=True)]
    shared: dict[int, list[View]] = {}
    for view in views:
        shared.setdefault(view.address, []).append(view)

    canvas = Canvas()
    summary, full, short = [], [], []
    y = 0.0
    for letter, members in zip("ABCD", shared.values(), strict=False):
        label = message("storage")
        if len(shared) > 1:
            label = message("storage {letter}", letter=letter)
        _draw_storage(canvas, members, label, y)
        y = canvas.bottom + 2 * SPREAD
        numbers = " ".join(map(cell_text, members[0].storage))
        summary += [f"{label}: {numbers}", *(view.describe() for view in members)]
        names = ", ".join(view.name for view in members)
        full.append(message("{storage} read by {names}: {numbers}", storage=label, names=names,
                            numbers=numbers))  # fmt: skip
        short.append(message("{storage} read by {names}", storage=label, names=names))
    described = ". ".join(
        f"{view.name} {view.table.sizes}: {view.strides}, {view.order}" for view in views
    )
    descriptions = (
        message("Tensors in storage: {storages}. {tensors}.", storages=". ".join(storages),
                tensors=described)
        for storages in (full, short)
    )  # fmt: skip
    return canvas.finish(title, "\n".join(summary), *descriptions)


class View:
    """A tensor as a view of its storage."""

    def __init__(self, x: Tensor, axes: str, name: str):
        """Read the storage of x and the storage offset of each element."""
        self.name = name
        length = x.untyped_storage().nbytes() // x.element_size()
        if max(length, x.numel()) > LARGEST:
            raise ValueError(f"storage: {name} must read at most {LARGEST} numbers, got {length}")
        self.start = x.storage_offset()
        self.address = x.untyped_storage().data_ptr()
        flat = torch.as_strided(x.detach(), (length,), (1,), 0)
        self.storage: list[float] = as_plain_tensor(flat).tolist()
        offsets = torch.as_strided(torch.arange(length), x.shape, x.stride(), x.storage_offset())
        self.offsets: list[int] = offsets.flatten().tolist()
        self.table = Table.of(offsets, axes)
        self.steps = list(zip(self.table.axes, x.stride(), strict=True))
        steps = ", ".join(f"{axis} {step}" for axis, step in self.steps)
        self.strides = message("strides {steps}", steps=steps)
        self.order = (
            message("in storage order") if x.is_contiguous() else message("not in storage order")
        )

    def cell(self, offset: Value) -> Cell:
        """Show the number at a storage offset, and the offset."""
        if offset is None:
            return Cell(cell_text(offset))
        value = self.storage[int(offset)]
        return Cell(f"{cell_text(value)}\n@{offset}", self.fill(value))

    def fill(self, value: float) -> str:
        """Return the shade of a number, which depends on its sign and magnitude."""
        return signed_fill(float(value), max(abs(float(v)) for v in self.storage))

    def describe(self) -> str:
        """List the storage cells that the tensor reads."""
        places = " ".join(f"@{offset}" for offset in self.offsets)
        return message(
            "{name} {sizes}: {strides}; row by row: {places}",
            name=self.name, sizes=self.table.sizes, strides=self.strides, places=places,
        )  # fmt: skip


def _draw_storage(canvas: Canvas, views: list[View], label: str, y: float) -> None:
    """Draw one storage with its strides and its tensors."""
    canvas.text(0.0, y, label, size=12, align="left", bold=True)
    view = views[0]
    texts = [cell_text(value) for value in view.storage]
    width = max(0.46, *(canvas.width_of(text) + 0.12 for text in texts))
    y += LINE * 0.7
    for start in range(0, len(texts), PER_LINE):
        for column, offset in enumerate(range(start, min(start + PER_LINE, len(texts)))):
            x = column * width
            canvas.box(x, y, width, 0.33, fill=view.fill(view.storage[offset]))
            canvas.text(x + width / 2, y + 0.165, texts[offset])
            canvas.text(x + width / 2, y + 0.33 + LINE / 2, f"@{offset}", size=SMALL_SIZE)
        y += 0.33 + LINE
    y = _draw_steps(canvas, views, width, y + 0.14) + 0.12
    x, lowest = 0.0, y
    for view in views:
        if x and x + _draw_view(Canvas(), view, 0.0, 0.0)[0] > MAX_WIDTH:
            x, y = 0.0, lowest
        right, bottom = _draw_view(canvas, view, x, y)
        x, lowest = right + SPREAD, max(lowest, bottom + 0.2)


def _draw_steps(canvas: Canvas, views: list[View], width: float, y: float) -> float:
    """Draw one step along each axis as a bracket between two cells; return the lower edge.

    An axis that has the same stride in several views is drawn once.
    """
    steps: dict[tuple[str, int], View] = {}
    for view in views:
        for step in view.steps:
            steps.setdefault(step, view)
    for axis, step in sorted(steps, key=lambda key: key[1]):
        view = steps[axis, step]
        words = plural("one step along {axis}: {count} cell",
                       "one step along {axis}: {count} cells", step, axis=axis)  # fmt: skip
        if sum(other == axis for other, _ in steps) > 1:
            words = message("{step}, in {name}", step=words, name=view.name)
        start = (view.start % PER_LINE + 0.5) * width
        end = start + step * width
        if step and end < PER_LINE * width:
            canvas.bracket(axis, (start, y), (end, y), "bottom")
            canvas.arrow((end, y), (end, y - 0.13), width=1.0)
        else:
            end = start
        canvas.text(end + 0.12, y - 0.02, words, align="left")
        y += ROOM
    return y


def _draw_view(canvas: Canvas, view: View, x: float, y: float) -> tuple[float, float]:
    """Draw one tensor with its upper left corner at (x, y); return its lower right corner."""
    words = f"{view.table.sizes}, {view.order}"
    canvas.text(x, y, view.name, size=12, align="left", bold=True)
    canvas.text(x, y + LINE, words, align="left")
    top = y + LINE * 1.8
    grids = draw_panels(canvas, view.table, view.cell, left=x, top=top, cell_height=0.41)
    right = max(x + canvas.width_of(words), *(grid.right + SIDE for grid in grids))
    return right, max(grid.bottom for grid in grids)
