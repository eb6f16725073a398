"""Figures of one tensor: any tensor, attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from twelve_lab.draw.canvas import TEXT_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.panels import draw_panels, mask_paint, signed_paint, weight_paint
from twelve_lab.draw.prose import attention_in_words, in_their_words, tell, tensor_in_words
from twelve_lab.show.format import format_tensor
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Labels, Table

ATTENTION_NOTES = {"query": "asks", "key": "is looked at"}


def tensor(x: Any, axes: Any = None, *, title: str, labels: Labels | None = None) -> Drawing:
    """Draw a tensor as matrices between the brackets of its axes, every number printed.

    Args:
        x: A tensor, a nested list, or a trace entry, which brings its axes.
        axes: Axis names, as "batch src d_model" or as a sequence.
        title: The claim of the figure.
        labels: Names instead of indices: axis -> one per index, or one list per sentence.

    Returns:
        Red above zero, blue below, -inf as a cross; one panel for each index of the leading axes.
    """
    table = Table.of(x, axes, labels)
    canvas = Canvas()
    draw_panels(canvas, table, signed_paint(largest_magnitude(table)))
    if table.values.dtype == torch.bool:
        _draw_legend(canvas)
    alt = tell(title, *tensor_in_words(table))
    return canvas.finish(title, alt, _summary(table))


def attention(
    weights: Any,
    axes: Any = None,
    *,
    title: str,
    row_labels: Sequence[Any] | None = None,
    column_labels: Sequence[Any] | None = None,
    labels: Labels | None = None,
    decimals: int = 4,
    summary: str | None = None,
) -> Drawing:
    """Draw attention weights: rows ask, columns are looked at, darker is more.

    Args:
        weights: A tensor with its axes "... query key", or a trace entry.
        axes: Axis names.
        title: The claim of the figure.
        row_labels: The tokens that ask: one list, or one list per sentence.
        column_labels: The tokens that are looked at, likewise.
        labels: Names for the indices of the leading axes: axis -> one per index.
        decimals: Digits after the point: two leave room for a whole sentence.
        summary: What to write in place of all the numbers, where they differ between machines;
            the alt text says it too.

    Returns:
        One panel for each head and sentence, white at 0, grey at 1, the largest weight of each
        row in bold.
    """
    table = Table.of(weights, axes)
    sides = dict(zip(table.axes[-2:], (row_labels, column_labels), strict=True))
    names = {axis: words for axis, words in sides.items() if words is not None}
    table = Table.of(table.values, table.axes, {**(labels or {}), **names})
    canvas = Canvas()
    paint = partial(weight_paint, decimals=decimals)
    draw_panels(canvas, table, paint, notes=ATTENTION_NOTES, bold_largest=True)
    if summary is not None:
        words = in_their_words(f"Attention weights {table.sizes}, rows ask, columns are looked at",
                               summary)  # fmt: skip
    else:
        words = attention_in_words(table, decimals)
    alt = tell(title, *words)
    return canvas.finish(title, alt, _summary(table, decimals) if summary is None else summary)


def _draw_legend(canvas: Canvas) -> None:
    """Say below the matrices what a tick and a cross mean."""
    y, x = canvas.bottom + 0.3, 0.0
    for value in (True, False):
        cell, words = mask_paint(value), str(value)
        canvas.box(x, y - 0.13, 0.38, 0.26, fill=cell.fill, hatched=cell.hatched)
        canvas.text(x + 0.19, y, cell.text, size=TEXT_SIZE + cell.larger, bold=cell.bold)
        canvas.text(x + 0.47, y, words, align="left")
        x += 0.47 + canvas.width_of(words) + 0.35


def _summary(table: Table, decimals: int = 4) -> str:
    return format_tensor(table.values, table.axes, labels=table.labels, decimals=decimals)
