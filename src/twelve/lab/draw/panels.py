"""The matrices of a tensor side by side, and what its values look like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby

from twelve.lab.draw.canvas import Canvas
from twelve.lab.draw.grid import Cell, Grid, Paint
from twelve.lab.format import cell_text
from twelve.lab.palette import PAPER, SHADE, signed_fill, weight_fill
from twelve.lab.table import Table, Value

MAX_WIDTH = 8.7
SIDE = 0.1  # from a bracket around a matrix to the matrix
BETWEEN = 0.14


def draw_panels(
    canvas: Canvas,
    table: Table,
    paint: Paint,
    *,
    notes: Mapping[str, str] | None = None,
    top: float = 0.0,
) -> list[Grid]:
    """Draw every matrix of a tensor, those of one outer index on one line, each in its brackets.

    Args:
        canvas: Where to draw.
        table: The tensor and its names.
        paint: How one value becomes a cell.
        notes: axis -> words to add to its name.
        top: The upper edge; the left one is 0.

    Returns:
        The matrices, in order.
    """
    table = table.compact
    blocks = list(table.blocks())
    size = 9 if len(blocks[0].column_names) > 8 else 10
    grids = [
        Grid(canvas, block, paint, notes=notes, size=size, title=block.title) for block in blocks
    ]
    for name in ("cell_width", "names_width"):
        widest = max(getattr(grid, name) for grid in grids)
        for grid in grids:
            setattr(grid, name, widest)
    inner, outer = ("", "", *table.axes[:-2])[:-3:-1]
    y = top
    for _, group in groupby(grids, key=lambda grid: grid.block.index[:-1]):
        y = _draw_group(canvas, list(group), y, inner, outer) + BETWEEN
    return grids


def _draw_group(canvas: Canvas, grids: list[Grid], y: float, inner: str, outer: str) -> float:
    """Draw the matrices of one outer index, on as many lines as they need; return the bottom."""
    start = SIDE if outer else 0.0
    room = max(grid.width for grid in grids) + (2 * SIDE if inner else 0.0)
    per_line = max(1, int((MAX_WIDTH - 2 * start + BETWEEN) // (room + BETWEEN)))
    top, right = y, 0.0
    for first in range(0, len(grids), per_line):
        line = grids[first : first + per_line]
        for column, grid in enumerate(line):
            x = start + column * (room + BETWEEN)
            grid.draw(x + (SIDE if inner else 0.0), y)
            if inner:
                _enclose(canvas, inner, x, x + room, y, y + grid.height)
            right = max(right, x + room)
        y += max(grid.height for grid in line) + BETWEEN
    bottom = y - BETWEEN
    if outer:
        _enclose(canvas, outer, 0.0, right + SIDE, top, bottom)
    return bottom


def _enclose(canvas: Canvas, axis: str, x0: float, x1: float, y0: float, y1: float) -> None:
    canvas.bracket(axis, (x0, y0), (x0, y1), "left")
    canvas.bracket(axis, (x1, y0), (x1, y1), "right")


def signed_paint(limit: float, decimals: int = 4) -> Paint:
    """Print each number on its shade of red or blue; -inf and hidden cells get a cross."""

    def paint(value: Value) -> Cell:
        text = cell_text(value, decimals)
        if isinstance(value, float) and math.isfinite(value):
            return Cell(text, signed_fill(value, limit))
        if isinstance(value, bool):
            return mask_paint(value)
        is_odd = isinstance(value, float)
        return Cell(text, SHADE if is_odd else PAPER, hatched=value == -math.inf, bold=is_odd)

    return paint


def weight_paint(value: Value) -> Cell:
    """Print each attention weight on its shade of grey."""
    text = cell_text(value)
    return Cell(text, weight_fill(value)) if isinstance(value, float) else Cell(text)


def mask_paint(value: Value) -> Cell:
    """Draw a tick where the mask is True and a hatched cross where it is False."""
    if value is None:
        return Cell(cell_text(value))
    return Cell("✓") if value else Cell("", SHADE, hatched=True)
