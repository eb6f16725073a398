"""Figures of one tensor: any tensor, attention weights, a mask, an influence map."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

from twelve.lab.draw.canvas import Canvas
from twelve.lab.draw.drawing import Drawing
from twelve.lab.draw.grid import Cell, Grid
from twelve.lab.draw.panels import draw_panels, mask_paint, signed_paint, weight_paint
from twelve.lab.format import format_tensor
from twelve.lab.palette import INK, PAPER, SHADE, SPOTLIGHT
from twelve.lab.show import largest_magnitude
from twelve.lab.table import Labels, Table, as_plain_tensor, is_nested

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
    alt = alt or f"{title}. Tensor {table.sizes}, drawn as {_count(table)}."
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
        summary: What to write in place of all the numbers, where they differ between machines.
        alt: What to say to a reader who does not see it.

    Returns:
        One panel for each head and sentence, white at 0, grey at 1.
    """
    table = _with_sides(weights, axes, row_labels, column_labels, labels)
    canvas = Canvas()
    draw_panels(canvas, table, weight_paint, notes=ATTENTION_NOTES)
    alt = alt or (
        f"{title}. Attention weights {table.sizes}, drawn as {_count(table)}: rows ask, columns "
        "are looked at, from white at 0 to grey at 1."
    )
    return canvas.finish(title, alt, _summary(table) if summary is None else summary)


def mask(
    mask: Any,
    axes: Any = None,
    *,
    title: str,
    row_labels: Sequence[Any] | None = None,
    column_labels: Sequence[Any] | None = None,
    alt: str | None = None,
) -> Drawing:
    """Draw a mask: a tick where a query may attend, a cross where the key is hidden.

    Args:
        mask: A boolean tensor with its axes "... query key", or a trace entry.
        axes: Axis names; an axis of size 1 may be "1".
        title: The claim of the figure.
        row_labels: The tokens that ask: one list, or one list per sentence.
        column_labels: The tokens that are looked at, likewise.
        alt: What to say to a reader who does not see it.
    """
    table = _with_sides(mask, axes, row_labels, column_labels)
    table = Table(table.values.bool(), table.axes, table.labels)
    canvas = Canvas()
    draw_panels(canvas, table, mask_paint, notes=ATTENTION_NOTES)
    _legend(canvas, "may attend (True)", "hidden (False)")
    alt = alt or (
        f"{title}. Mask {table.sizes}, drawn as {_count(table)}: a tick where the row may "
        "attend to the column, a cross where the column is hidden."
    )
    return canvas.finish(title, alt, _summary(table))


def influence(
    grid: Any,
    row_labels: Sequence[Any] | None = None,
    column_labels: Sequence[Any] | None = None,
    *,
    title: str,
    batch: int = 2,
    alt: str | None = None,
) -> Drawing:
    """Draw which outputs (rows) move when an input token (column) is replaced.

    Args:
        grid: What `lab.influence` found, or booleans with one row per output position of every
            sentence and one column per input token.
        row_labels: The output positions: one list, or one list per sentence.
        column_labels: The input tokens, likewise.
        title: The claim of the figure.
        batch: How many sentences of equal length, where the labels are one flat list.
        alt: What to say to a reader who does not see it.

    Returns:
        A dot where the output moves; thick lines part the sentences.
    """
    rows = getattr(grid, "outputs", None) if row_labels is None else row_labels
    columns = getattr(grid, "tokens", None) if column_labels is None else column_labels
    grid = as_plain_tensor(getattr(grid, "grid", grid))
    sides = [
        _sentences(range(size) if names is None else names, batch)
        for names, size in zip((rows, columns), grid.shape, strict=True)
    ]
    labels = {"output": list(chain(*sides[0])), "token": list(chain(*sides[1]))}
    table = Table.of(grid, "output token", labels)
    table = Table(table.values.bool(), table.axes, table.labels)
    canvas = Canvas()
    notes = {"output": "moves", "token": "is replaced"}
    drawn = Grid(canvas, next(table.blocks(elide=False)), _dot, notes=notes).draw(0, 0)
    _part_sentences(canvas, drawn, [list(map(len, side)) for side in sides])
    alt = alt or f"{title}. Influence map {table.sizes}: a dot where an output depends on a token."
    return canvas.finish(title, alt, _summary(table))


def _dot(moved: bool | None) -> Cell:
    return Cell("●" if moved else "", SPOTLIGHT if moved else PAPER)


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


def _sentences(names: Sequence[Any], batch: int) -> list[list[Any]]:
    """Group labels by sentence."""
    if is_nested(names):
        return [list(sentence) for sentence in names]
    length, rest = divmod(len(names), batch)
    if rest:
        raise ValueError(f"{len(names)} labels do not make batch={batch} sentences of equal length")
    return [list(names[i * length : (i + 1) * length]) for i in range(batch)]


def _part_sentences(canvas: Canvas, grid: Grid, lengths: list[list[int]]) -> None:
    for end in accumulate(lengths[0]):
        y = grid.top + end * grid.cell_height
        canvas.line([(grid.left, y), (grid.right, y)], width=2.4)
    for end in accumulate(lengths[1]):
        x = grid.left + end * grid.cell_width
        canvas.line([(x, grid.top), (x, grid.bottom)], width=2.4)
    canvas.box(
        grid.left, grid.top, grid.right - grid.left, grid.bottom - grid.top, fill="none", edge=INK,
        line=2.4,
    )  # fmt: skip


def _legend(canvas: Canvas, allowed: str, hidden: str) -> None:
    y = canvas.bottom + 0.28
    canvas.box(0.0, y - 0.1, 0.25, 0.2)
    canvas.text(0.125, y, "✓")
    canvas.text(0.33, y, allowed, align="left")
    x = 0.33 + canvas.width_of(allowed) + 0.3
    canvas.box(x, y - 0.1, 0.25, 0.2, fill=SHADE, hatched=True)
    canvas.text(x + 0.33, y, hidden, align="left")


def _count(table: Table) -> str:
    panels = len(list(table.compact.blocks()))
    return "one matrix" if panels == 1 else f"{panels} matrices"


def _summary(table: Table) -> str:
    return format_tensor(table.values, table.axes, labels=table.labels)
