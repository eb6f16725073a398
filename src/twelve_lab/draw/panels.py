"""Matrices of a tensor side by side, and the functions that map values to cells."""

import math
from itertools import groupby
from typing import Any

from twelve_lab.draw.canvas import SMALL_SIZE, TEXT_SIZE, Canvas
from twelve_lab.draw.grid import Cell, Grid, Paint, widen
from twelve_lab.show.format import cell_text
from twelve_lab.show.palette import PAPER, SHADE, signed_fill, weight_fill
from twelve_lab.show.table import Block, Table, Value

MAX_WIDTH = 9.0
MOST = 100_000  # elements; the text of the figure is computed from all of them
SIDE = 0.1  # gap between a matrix and the brackets around it
BETWEEN = 0.16


def draw_panels(
    canvas: Canvas, table: Table, paint: Paint, *, left: float = 0.0, top: float = 0.0, **style: Any
) -> list[Grid]:
    """Draw every matrix of a tensor within brackets, with one line per outer index.

    Args:
        canvas: Canvas to draw on.
        table: The tensor and its names.
        paint: Function that maps a value to a cell.
        left: Left edge.
        top: Upper edge.
        style: Further arguments of `Grid`.

    Returns:
        The drawn matrices, in order.

    Raises:
        ValueError: If the tensor is empty or too large.
    """
    shape = tuple(table.values.shape)
    if not 0 < math.prod(shape) <= MOST:
        raise ValueError(f"draw: a tensor must have 1 to {MOST:,} numbers, got shape {shape}")
    table = table.compact
    blocks = list(table.blocks())
    size = SMALL_SIZE if len(blocks[0].column_names) > 8 else TEXT_SIZE
    grids = [
        Grid(canvas, block, paint, size=size, title=_heading(table, block), **style)
        for block in blocks
    ]
    widen(grids, "cell_width", "names_width", "title_width")
    inner, outer = ("", "", *table.axes[:-2])[:-3:-1]
    y = top
    for _, group in groupby(grids, key=lambda grid: grid.block.index[:-1]):
        y = _draw_group(canvas, list(group), left, y, inner, outer) + BETWEEN
    return grids


def _heading(table: Table, block: Block) -> str:
    """Format the title of a matrix: "batch 0, head 1", or "stage: untrained" for a named index."""
    parts = []
    for axis, name in zip(table.axes, block.names, strict=False):
        word = name.removeprefix(axis).strip()
        is_word = name.startswith(axis) and word not in ("", "…") and not word.isdigit()
        parts.append(f"{axis}: {word}" if is_word else name)
    return ", ".join(filter(None, parts))


def _draw_group(
    canvas: Canvas, grids: list[Grid], left: float, y: float, inner: str, outer: str
) -> float:
    """Draw the matrices of one outer index on as many lines as needed; return the lower edge.

    The first matrix of each line names the row axis; the others show only its bracket.
    """
    start = SIDE if outer else 0.0
    around = 2 * SIDE if inner else 0.0
    first = max(grid.width for grid in grids) + around
    for grid in grids[1:]:
        grid.row_axis = ""
    per_line = _fit(grids, first, around, MAX_WIDTH - 2 * start)
    room = max(grid.width for grid in grids[1:] or grids) + around
    top, right = y, left
    for begin in range(0, len(grids), per_line):
        line = grids[begin : begin + per_line]
        line[0].row_axis = grids[0].row_axis
        x = left + start
        for grid in line:
            width = first if grid is line[0] else room
            grid.draw(x + around / 2, y)
            if inner:
                _enclose(canvas, inner, x, x + width, y, y + grid.height)
            right = max(right, x + width)
            x += width + BETWEEN
        y += max(grid.height for grid in line) + BETWEEN
    bottom = y - BETWEEN
    if outer:
        _enclose(canvas, outer, left, right + SIDE, top, bottom)
    return bottom


def _fit(grids: list[Grid], first: float, around: float, space: float) -> int:
    """Return the number of matrices per line; share row names if all then fit on one line."""

    def fitting() -> int:
        room = max(grid.width for grid in grids[1:] or grids) + around
        return 1 + max(0, int((space - first) // (room + BETWEEN)))

    per_line = fitting()
    names = grids[0].row_names
    if per_line < len(grids) and all(grid.row_names == names for grid in grids):
        width = grids[0].names_width
        for grid in grids[1:]:
            grid.row_names, grid.names_width = [""] * len(names), 0.0
        if fitting() >= len(grids):
            return len(grids)
        for grid in grids[1:]:
            grid.row_names, grid.names_width = names, width
    lines = math.ceil(len(grids) / per_line)
    return math.ceil(len(grids) / lines)


def _enclose(canvas: Canvas, axis: str, x0: float, x1: float, y0: float, y1: float) -> None:
    canvas.bracket(axis, (x0, y0), (x0, y1), "left")
    canvas.bracket(axis, (x1, y0), (x1, y1), "right")


def signed_paint(limit: float, decimals: int = 4) -> Paint:
    """Return a function that shades numbers red or blue, and crosses out -inf and False."""

    def paint(value: Value) -> Cell:
        text = cell_text(value, decimals)
        if isinstance(value, float) and math.isfinite(value):
            return Cell(text, signed_fill(value, limit))
        if isinstance(value, bool):
            return mask_paint(value)
        is_odd = isinstance(value, float)
        return Cell(text, SHADE if is_odd else PAPER, hatched=value == -math.inf, bold=is_odd)

    return paint


def weight_paint(value: Value, decimals: int = 4) -> Cell:
    """Shade an attention weight in grey."""
    text = cell_text(value, decimals)
    return Cell(text, weight_fill(value)) if isinstance(value, float) else Cell(text)


def mask_paint(value: Value) -> Cell:
    """Show a tick for True and a cross for False."""
    if value is None:
        return Cell(cell_text(value))
    return Cell("✓", bold=True, larger=4) if value else Cell("", SHADE, hatched=True)
