"""Figures of one tensor: any tensor, attention weights, a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from twelve_lab.draw.canvas import TEXT_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.panels import draw_panels, mask_paint, signed_paint, weight_paint
from twelve_lab.draw.prose import (
    attention_in_words,
    in_their_words,
    mask_in_words,
    tell,
    tensor_in_words,
)
from twelve_lab.show.format import format_tensor
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Labels, Table

ATTENTION_NOTES = {"query": "asks", "key": "is looked at"}


def tensor(
    x: Any,
    axes: Any = None,
    *,
    title: str,
    labels: Labels | None = None,
    alt: str | None = None,
) -> Drawing:
    """Draw a tensor as matrices between the brackets of its axes, every number printed.

    Args:
        x: A tensor, a nested list, or a trace entry, which brings its axes.
        axes: Axis names, as "batch src d_model" or as a sequence.
        title: The claim of the figure.
        labels: Names instead of indices: axis -> one per index, or one list per sentence.
        alt: What to say to a reader who does not see it; made from title and axes if not given.

    Returns:
        Red above zero, blue below, -inf as a cross; one panel for each index of the leading axes.
    """
    table = Table.of(x, axes, labels)
    canvas = Canvas()
    draw_panels(canvas, table, signed_paint(largest_magnitude(table)))
    if table.values.dtype == torch.bool:
        _legend(canvas, "True", "False")
    alt = alt or tell(title, *tensor_in_words(table))
    return canvas.finish(title, alt, _summary(table))


def attention(
    weights: Any,
    axes: Any = None,
    *,
    title: str,
    row_labels: Sequence[Any] | None = None,
    column_labels: Sequence[Any] | None = None,
    labels: Labels | None = None,
    summary: str | None = None,
    alt: str | None = None,
) -> Drawing:
    """Draw attention weights: rows ask, columns are looked at, darker is more.

    Args:
        weights: A tensor with its axes "... query key", or a trace entry.
        axes: Axis names.
        title: The claim of the figure.
        row_labels: The tokens that ask: one list, or one list per sentence.
        column_labels: The tokens that are looked at, likewise.
        labels: Names for the indices of the leading axes: axis -> one per index.
        summary: What to write in place of all the numbers, where they differ between machines;
            the alt text says it too.
        alt: What to say to a reader who does not see it.

    Returns:
        One panel for each head and sentence, white at 0, grey at 1, the largest weight of each
        row in bold.
    """
    table = _with_sides(weights, axes, row_labels, column_labels, labels)
    canvas = Canvas()
    draw_panels(canvas, table, weight_paint, notes=ATTENTION_NOTES, bold_largest=True)
    if summary is not None:
        words = in_their_words(f"Attention weights {table.sizes}, rows ask, columns are looked at",
                               summary)  # fmt: skip
    else:
        words = attention_in_words(table)
    alt = alt or tell(title, *words)
    return canvas.finish(title, alt, _summary(table) if summary is None else summary)


def mask(
    mask: Any,
    axes: Any = None,
    *,
    title: str,
    row_labels: Sequence[Any] | None = None,
    column_labels: Sequence[Any] | None = None,
    labels: Labels | None = None,
    true: str = "may attend",
    false: str = "hidden",
    alt: str | None = None,
) -> Drawing:
    """Draw a mask: a tick where it is True, a cross where it is False, and what the two mean.

    Args:
        mask: A boolean tensor with its axes "... query key", or a trace entry.
        axes: Axis names; an axis of size 1 may be "1".
        title: The claim of the figure.
        row_labels: The tokens that ask: one list, or one list per sentence.
        column_labels: The tokens that are looked at, likewise.
        labels: Names for the indices of the leading axes: axis -> one per index.
        true: What True says to a query about a key, in this mask's sense.
        false: What False says.
        alt: What to say to a reader who does not see it.
    """
    table = _with_sides(mask, axes, row_labels, column_labels, labels)
    table = Table(table.values.bool(), table.axes, table.labels)
    canvas = Canvas()
    draw_panels(canvas, table, mask_paint, notes=ATTENTION_NOTES)
    _legend(canvas, f"True: {true}", f"False: {false}")
    alt = alt or tell(title, *mask_in_words(table, true, false))
    return canvas.finish(title, alt, _summary(table))


def _with_sides(
    x: Any,
    axes: Any,
    rows: Sequence[Any] | None,
    columns: Sequence[Any] | None,
    leading: Labels | None = None,
) -> Table:
    table = Table.of(x, axes)
    sides = zip(table.axes[-2:], (rows, columns), strict=True)
    labels = {axis: names for axis, names in sides if names is not None}
    return Table.of(table.values, table.axes, {**(leading or {}), **labels})


def _legend(canvas: Canvas, true: str, false: str) -> None:
    """Say below the matrices what a tick and a cross mean."""
    y, x = canvas.bottom + 0.3, 0.0
    for cell, words in ((mask_paint(True), true), (mask_paint(False), false)):
        canvas.box(x, y - 0.13, 0.38, 0.26, fill=cell.fill, hatched=cell.hatched)
        canvas.text(x + 0.19, y, cell.text, size=TEXT_SIZE + cell.larger, bold=cell.bold)
        canvas.text(x + 0.47, y, words, align="left")
        x += 0.47 + canvas.width_of(words) + 0.35


def _summary(table: Table) -> str:
    return format_tensor(table.values, table.axes, labels=table.labels)
