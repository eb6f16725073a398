"""Figures of the positional encoding: the table as a heat map and curves, and as rotations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from twelve_lab.draw.alt_text import alt_text
from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.charts import draw_curves
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE, Grid
from twelve_lab.draw.panels import signed_paint
from twelve_lab.messages import message
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.palette import QUIET, signed_fill
from twelve_lab.show.table import Table, as_plain_tensor

WITH_NUMBERS = 8  # a larger table is drawn as a heat map without numbers
CURVES = 4
PAIRS = 3  # circles side by side
MAP_WIDTH, MAP_HEIGHT = 3.6, 2.6


def positions(table: Any, axes: str = "src d_model", *, title: str) -> Drawing:
    """Draw a table of positions: its numbers, and its first columns as curves.

    Args:
        table: One row per position, (src, d_model).
        axes: The names of its two axes.
        title: Claim of the figure.

    Returns:
        Numbers in cells for a small table, a heat map for a larger one; beside it at most four
        curves: the columns, or the first sines of a table with more than four columns.
    """
    laid_out = Table.of(table, axes)
    if len(laid_out.axes) != 2:
        raise ValueError(f"positions: table must have two axes, got {laid_out.sizes}")
    canvas = Canvas()
    width = laid_out.values.shape[1]
    columns = range(0, width, 1 if width <= CURVES else 2)[:CURVES]
    if max(laid_out.values.shape) <= WITH_NUMBERS:
        paint = signed_paint(1.0)
        grid = Grid(canvas, next(laid_out.blocks(elide=False)), paint).draw(0.0, 0.0)
        right, top = grid.right, grid.top
    else:
        right, top = _heat_map(canvas, laid_out)
    _curves(canvas, laid_out, columns, right + 0.55, top)
    courses = "; ".join(_course(column, laid_out.values[:, column]) for column in columns)
    versions = (
        message(
            "Table of positions {sizes}, and beside it curves of its columns: {columns}.",
            sizes=laid_out.sizes, columns=text,
        )
        for text in (courses, ", ".join(map(str, columns)))
    )  # fmt: skip
    alt = alt_text(title, *versions)
    return canvas.finish(title, alt, format_tensor(laid_out.values, laid_out.axes))


def rotation(table: Any, *, title: str) -> Drawing:
    """Draw the first pairs of columns (sine, cosine) as points that rotate with the position.

    Args:
        table: One row per position; columns 2i and 2i + 1 are a sine and its cosine.
        title: Claim of the figure.

    Raises:
        ValueError: If the table has fewer than two columns.
    """
    values = as_plain_tensor(getattr(table, "value", table))
    pairs = min(PAIRS, values.shape[1] // 2)
    if pairs == 0:
        raise ValueError(f"rotation: table must have at least 2 columns, got {values.shape[1]}")
    canvas = Canvas()
    summary, steps = [], {}
    for pair in range(pairs):
        points = values[:, 2 * pair : 2 * pair + 2]
        _circle(canvas, points, pair, x=1.35 + 2.9 * pair, y=1.35)
        angles = [math.degrees(math.atan2(sine, cosine)) for sine, cosine in points.tolist()]
        if len(angles) > 1:
            steps[pair] = _step(angles)
        summary.append(
            message(
                "columns {first} and {second}, angle in degrees at each position: {angles}",
                first=2 * pair,
                second=2 * pair + 1,
                # Rounded before the modulo: -0.0 must not become 360.
                angles=" ".join(format_number(round(angle, 1) % 360, 1) for angle in angles),
            )
        )
    rotations = (f"{2 * pair}, {2 * pair + 1}: {step}" for pair, step in steps.items())
    alt = alt_text(
        title,
        message(
            "Unit circles for pairs of columns, with positions 0 to {last} as points. "
            "Rotation of each pair: {rotations}.",
            last=len(values) - 1, rotations="; ".join(rotations) or "-",
        ),
    )  # fmt: skip
    return canvas.finish(title, alt, "\n".join(summary))


def _course(column: int, values: Tensor) -> str:
    """Describe a column: its first and last number, and how often it crosses zero."""
    signs = values.sign()
    signs = signs[signs != 0]
    crossings = int((signs[1:] != signs[:-1]).sum())
    first, last = (format_number(values[i].item()) for i in (0, -1))
    return message(
        "column {column} from {first} to {last}, zero crossings: {crossings}",
        column=column, first=first, last=last, crossings=crossings,
    )  # fmt: skip


def _step(angles: Sequence[float]) -> str:
    """Write the rotation from one position to the next, counter-clockwise."""
    degrees = format_number((angles[1] - angles[0]) % 360, 1)
    return message("{degrees}° per position", degrees=degrees)


def _heat_map(canvas: Canvas, table: Table) -> tuple[float, float]:
    """Draw the table in shades; return its right edge and its top."""
    rows, columns = table.values.shape
    left, top = 0.95, 0.55
    width, height = MAP_WIDTH / columns, MAP_HEIGHT / rows
    for i, row in enumerate(table.values.tolist()):
        for j, value in enumerate(row):
            fill = signed_fill(value, 1.0)
            canvas.box(left + j * width, top + i * height, width, height, fill=fill, edge=fill)
            if value < 0:  # a minus sign, because the two shades differ in colour alone
                x, y = left + (j + 0.5) * width, top + (i + 0.5) * height
                canvas.line([(x - width / 5, y), (x + width / 5, y)], width=0.8)
    canvas.box(left, top, MAP_WIDTH, MAP_HEIGHT, fill="none", edge=QUIET)
    x, y = left - 0.36, top - 0.26
    canvas.bracket(table.axes[0], (x, top), (x, top + MAP_HEIGHT), "left")
    canvas.bracket(table.axes[1], (left, y), (left + MAP_WIDTH, y), "top")
    canvas.text(x - 0.08, top + MAP_HEIGHT / 2, table.axes[0], align="right")
    canvas.text(left + MAP_WIDTH / 2, y - 0.14, table.axes[1])
    for i in {0, rows // 2, rows - 1}:
        canvas.text(left - 0.06, top + (i + 0.5) * height, str(i), size=SMALL_SIZE, align="right")
    for j in {0, columns // 2, columns - 1}:
        canvas.text(left + (j + 0.5) * width, top - 0.1, str(j), size=SMALL_SIZE)
    _scale(canvas, left, top + MAP_HEIGHT + 0.2)
    return left + MAP_WIDTH, top


def _scale(canvas: Canvas, x: float, y: float) -> None:
    """Draw the legend of the shades."""
    for value in (-1, -0.5, 0, 0.5, 1):
        canvas.box(x, y, 0.4, 0.2, fill=signed_fill(value, 1.0))
        if value < 0:
            canvas.line([(x + 0.15, y + 0.1), (x + 0.25, y + 0.1)], width=0.8)
        canvas.text(x + 0.2, y + 0.2 + LINE / 2, f"{value:g}", size=SMALL_SIZE)
        x += 0.4


def _curves(canvas: Canvas, table: Table, columns: Sequence[int], x: float, y: float) -> None:
    """Draw columns as curves between -1 and 1 over the position."""
    steps = max(len(table.values) - 1, 1)
    middle, half, width = y + MAP_HEIGHT / 2, MAP_HEIGHT / 2, MAP_WIDTH * 0.8
    for value in (-1, 0, 1):
        height = middle - value * half
        canvas.line([(x, height), (x + width, height)], colour=QUIET, width=0.6)
        canvas.text(x - 0.08, height, str(value), size=SMALL_SIZE, align="right")
    curves = {
        message("column {column}", column=column): [
            (x + width * i / steps, middle - value * half)
            for i, value in enumerate(table.values[:, column].tolist())
        ]
        for column in columns
    }
    draw_curves(canvas, curves, y + MAP_HEIGHT, 2)
    for i in {0, steps // 2, steps}:
        canvas.text(x + width * i / steps, y + MAP_HEIGHT + LINE * 0.6, str(i), size=SMALL_SIZE)
    canvas.text(
        x + width / 2, y + MAP_HEIGHT + LINE * 1.6, message("position ({axis})", axis=table.axes[0])
    )


def _circle(canvas: Canvas, points: Tensor, pair: int, x: float, y: float) -> None:
    """Draw one unit circle around (x, y); the cosine goes right, the sine goes up."""
    ring = [math.radians(angle) for angle in range(0, 361, 3)]
    canvas.line([(x + math.cos(a), y + math.sin(a)) for a in ring], colour=QUIET, width=0.8)
    canvas.line([(x - 1.1, y), (x + 1.1, y)], colour=QUIET, width=0.6)
    canvas.line([(x, y - 1.1), (x, y + 1.1)], colour=QUIET, width=0.6)
    named: list[tuple[float, float]] = []
    for position, (sine, cosine) in enumerate(points.tolist()):
        canvas.line([(x, y), (x + cosine, y - sine)], width=0.8)
        canvas.dot(x + cosine, y - sine)
        near = any(math.dist((sine, cosine), other) < 0.15 for other in named)
        if not near:
            named.append((sine, cosine))
            canvas.text(x + 1.17 * cosine, y - 1.17 * sine, str(position), bold=True)
    if len(points) > 1:
        angles = [math.degrees(math.atan2(*point)) for point in points[:2].tolist()]
        canvas.text(x, y + 1.7, _step(angles), bold=True)
    if len(named) == 1 and len(points) > 1:
        last = len(points) - 1
        canvas.text(
            x + 0.92,
            y - 0.22,
            message("0 to {last}", last=last),
            align="right",
            bold=True,
            paper=True,
        )
    canvas.text(
        x, y + 1.4, message("cosine, column {column} →", column=2 * pair + 1), size=SMALL_SIZE
    )
    canvas.text(x, y - 1.4, message("↑ sine, column {column}", column=2 * pair), size=SMALL_SIZE)
