"""Which numbers of a tensor are averaged together, one drawing for each choice of axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE, Cell, Grid, widen
from twelve_lab.draw.panels import draw_panels
from twelve_lab.draw.prose import plural, tell
from twelve_lab.show.format import cell_text, format_number
from twelve_lab.show.palette import PAPER, PART_FILLS
from twelve_lab.show.table import MAX_SHOWN, Block, Labels, Table, Value

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
PER_LINE = 8  # means on one line


def groups(
    x: Any,
    axes: Any = None,
    averaged: Mapping[str, str] | None = None,
    *,
    title: str,
    labels: Labels | None = None,
) -> Drawing:
    """Draw a tensor once for each way of averaging: cells of one mean share a letter and a shade.

    Args:
        x: A tensor of two or three axes, a nested list, or a trace entry, which brings its axes.
        axes: Axis names, as "batch seq d_model".
        averaged: Name of the method -> the axes it averages over, as "d_model" or "batch seq".
        title: The claim of the figure.
        labels: Names instead of indices: axis -> one per index, or one list per sentence.

    Returns:
        For each method the lettered cells and, below them, the mean of each letter.

    Raises:
        ValueError: There is no method, it averages over an axis that x does not have, or x is too
            large to be drawn cell by cell.
    """
    table = Table.of(x, axes, labels)
    _check(table, averaged or {})
    canvas, summary, counts = Canvas(), [], []
    y = 0.0
    for name, over in (averaged or {}).items():
        letters, means = _group(table, over.split())
        heading = f"{name}: averages over {' and '.join(over.split())}"
        canvas.text(0.0, y + LINE / 2, heading, size=12, align="left", bold=True)
        order = iter(letters.flatten().tolist())
        draw_panels(canvas, table, lambda value, order=order: _cell(value, next(order)),
                    top=y + LINE * 1.3, cell_height=0.31)  # fmt: skip
        y = _draw_means(canvas, means, canvas.bottom + 0.1) + 0.18
        summary.append(f"{heading}; means: {_list(means)}")
        counts.append(f"{heading}; {len(means)} {plural('mean', len(means))}")
    alt = tell(
        title,
        f"Tensor {table.sizes}, cells of one mean share a letter. {'. '.join(summary)}",
        f"Tensor {table.sizes}, cells of one mean share a letter. {'. '.join(counts)}",
    )
    return canvas.finish(title, alt, "\n".join(summary))


def _check(table: Table, averaged: Mapping[str, str]) -> None:
    if not averaged:
        raise ValueError("averaged must name at least one method and its axes")
    for name, over in averaged.items():
        for axis in over.split() or [""]:
            if axis not in table.axes:
                raise ValueError(f"{name!r} averages over {axis!r}, which is not in {table.sizes}")
        if _group(table, over.split())[1].numel() > len(LETTERS):
            raise ValueError(f"{name!r} makes more than {len(LETTERS)} means of {table.sizes}")
    if table.values.ndim > 3 or max(table.values.shape) > MAX_SHOWN:
        raise ValueError(f"x {table.sizes} is too large to be drawn cell by cell")


def _group(table: Table, over: list[str]) -> tuple[Tensor, Tensor]:
    """Number the groups from 0, for every element; and give the mean of each group."""
    places = [position for position, axis in enumerate(table.axes) if axis in over]
    means = table.values.double().mean(places, keepdim=True)
    numbers = torch.arange(means.numel(), device="cpu").view_as(means)
    return numbers.expand(table.values.shape), means.flatten()


def _cell(value: Value, group: int) -> Cell:
    is_whole = isinstance(value, float) and value.is_integer()
    text = cell_text(int(value) if is_whole else value)
    return Cell(f"{LETTERS[group]}  {text}", _shade(group))


def _shade(group: int) -> str:
    shades = [fill for fill in PART_FILLS if fill != PAPER]
    return shades[group % len(shades)]


def _draw_means(canvas: Canvas, means: Tensor, y: float) -> float:
    """Write the mean of each letter; return the lower edge."""
    grids = []
    for row, start in enumerate(range(0, len(means), PER_LINE)):
        part = means[start : start + PER_LINE].tolist()
        numbers: Iterator[int] = iter(range(start, start + len(part)))
        block = Block((), [], "", "", ["" if row else "mean"], [""] * len(part), [part])
        grids.append(Grid(canvas, block, lambda value, n=numbers: _cell(value, next(n))))
    widen(grids, "cell_width")
    for grid in grids:
        y = grid.draw_cells_at(0.5, y).bottom
    return y


def _list(means: Tensor) -> str:
    return ", ".join(
        f"{letter} {format_number(mean)}"
        for letter, mean in zip(LETTERS, means.tolist(), strict=False)
    )
