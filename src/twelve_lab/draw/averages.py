"""Figure of normalization: which elements of a tensor are averaged together."""

import string
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE, Cell, number_grid, widen
from twelve_lab.draw.panels import draw_panels
from twelve_lab.messages import message
from twelve_lab.show.format import cell_text, format_number
from twelve_lab.show.palette import PART_FILLS
from twelve_lab.show.table import MAX_SHOWN, Labels, Table, Value

PER_LINE = 8  # means per line


def groups(
    x: Any,
    axes: Any = None,
    averaged: Mapping[str, str] | None = None,
    *,
    title: str,
    labels: Labels | None = None,
) -> Drawing:
    """Draw a tensor once per method; elements averaged together share a letter and a shade.

    Args:
        x: A tensor of two or three axes, a nested list, or a trace entry, which has its own axes.
        axes: Axis names, such as "batch seq d_model".
        averaged: Method name -> the axes it averages over, such as "d_model" or "batch seq".
        title: Claim of the figure.
        labels: Names instead of indices: axis -> one per index, or one list per sentence.

    Returns:
        A drawing with one panel per method: the elements with their letters, then the mean of
        each letter.

    Raises:
        ValueError: If averaged is empty, names an axis that x lacks, or makes more than 26 means;
            or if x is too large.
    """
    table = Table.of(x, axes, labels)
    _check(table, averaged or {})
    canvas, summary, counts = Canvas(), [], []
    flat = table.values.flatten().tolist()
    numbered = Table(torch.arange(len(flat)).view_as(table.values), table.axes, table.labels)
    y = 0.0
    for name, over in (averaged or {}).items():
        letters, means = _group(table, over.split())
        axes = ", ".join(over.split())
        heading = message("{name}: averages over {axes}", name=name, axes=axes)
        canvas.text(0.0, y + LINE / 2, heading, size=12, align="left", bold=True)
        cells = [_cell(*pair) for pair in zip(flat, letters.flatten().tolist(), strict=True)]
        draw_panels(canvas, numbered, cells.__getitem__, top=y + LINE * 1.3, cell_height=0.31)
        y = _draw_means(canvas, means.tolist(), canvas.bottom + 0.1) + 0.18
        listed = ", ".join(
            f"{letter} {format_number(mean)}"
            for letter, mean in zip(string.ascii_uppercase, means.tolist(), strict=False)
        )
        summary.append(message("{heading}; means: {means}", heading=heading, means=listed))
        counts.append(message("{heading}; means: {means}", heading=heading, means=len(means)))
    descriptions = (
        message(
            "Tensor {sizes}, numbers with one mean share a letter. {methods}.",
            sizes=table.sizes, methods=". ".join(methods),
        )
        for methods in (summary, counts)
    )  # fmt: skip
    return canvas.finish(title, "\n".join(summary), *descriptions)


def _check(table: Table, averaged: Mapping[str, str]) -> None:
    if not averaged:
        raise ValueError("groups: averaged must name at least one method and its axes, got none")
    for name, over in averaged.items():
        for axis in over.split() or [""]:
            if axis not in table.axes:
                raise ValueError(f"groups: {name!r} must average over {table.sizes}, got {axis!r}")
        count = len(_group(table, over.split())[1])
        if count > len(string.ascii_uppercase):
            raise ValueError(f"groups: {name!r} must make at most 26 means, got {count}")
    if table.values.ndim > 3 or max(table.values.shape) > MAX_SHOWN:
        raise ValueError(
            f"groups: x must have at most 3 axes of at most {MAX_SHOWN}, got {table.sizes}"
        )


def _group(table: Table, over: list[str]) -> tuple[Tensor, Tensor]:
    """Return the group number of every element, starting at 0, and the mean of each group."""
    dims = [position for position, axis in enumerate(table.axes) if axis in over]
    means = table.values.double().mean(dims, keepdim=True)
    numbers = torch.arange(means.numel(), device="cpu").view_as(means)
    return numbers.expand(table.values.shape), means.flatten()


def _cell(value: Value, group: int) -> Cell:
    is_whole = isinstance(value, float) and value.is_integer()
    text = cell_text(int(value) if is_whole else value)
    *shades, _ = PART_FILLS  # the last fill is white
    return Cell(f"{string.ascii_uppercase[group]}  {text}", shades[group % len(shades)])


def _draw_means(canvas: Canvas, means: list[float], y: float) -> float:
    """Draw the mean of each letter; return the lower edge."""
    cells = [_cell(mean, group) for group, mean in enumerate(means)]
    grids = []
    for start in range(0, len(means), PER_LINE):
        line = list(range(start, min(start + PER_LINE, len(means))))
        name = "" if start else message("mean")
        grids.append(number_grid(canvas, [line], cells.__getitem__, row_names=[name]))
    widen(grids, "cell_width")
    for grid in grids:
        y = grid.draw_cells_at(0.5, y).bottom
    return y
