"""Figures of one tensor: any tensor, a mask, attention weights."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from twelve_lab.draw.alt_text import column_names, in_block, number_list, row_names, true_entries
from twelve_lab.draw.canvas import TEXT_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.panels import draw_panels, mask_paint, signed_paint, weight_paint
from twelve_lab.messages import message
from twelve_lab.show.format import cell_text, format_number, format_tensor
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Block, Labels, Table

FEW_NUMBERS = 24  # the alt text lists all numbers of a tensor up to this size


def tensor(x: Any, axes: Any = None, *, title: str, labels: Labels | None = None) -> Drawing:
    """Draw a tensor as matrices between axis brackets, with a number in each cell.

    Args:
        x: A tensor, a nested list, or a trace entry, which has its own axes.
        axes: Axis names, such as "batch src d_model", or a sequence of names.
        title: Claim of the figure.
        labels: Names instead of indices: axis -> one per index, or one list per sentence.

    Returns:
        One panel for each index of the leading axes. Positive numbers are red, negative numbers
        are blue, and -inf is crossed out.
    """
    table = Table.of(x, axes, labels)
    canvas = Canvas()
    draw_panels(canvas, table, signed_paint(largest_magnitude(table)))
    is_mask = table.values.dtype == torch.bool
    if is_mask:
        _draw_legend(canvas)
    descriptions = _describe_mask(table) if is_mask else _describe(table)
    summary = format_tensor(table.values, table.axes, labels=table.labels)
    return canvas.finish(title, summary, *descriptions)


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
    """Draw attention weights: one row per query, one column per key; darker is larger.

    Args:
        weights: A tensor with its axes "... query key", or a trace entry.
        axes: Axis names.
        title: Claim of the figure.
        row_labels: Tokens of the queries: one list, or one list per sentence.
        column_labels: Tokens of the keys, in the same format.
        labels: Names for the indices of the leading axes: axis -> one per index.
        decimals: Digits after the decimal point; two leave room for a whole sentence.
        summary: Text that replaces the numbers if they differ between machines.

    Returns:
        One panel per head and sentence. Weight 0 is white and weight 1 is grey. The largest weight
        of each row is bold.
    """
    table = Table.of(weights, axes)
    sides = dict(zip(table.axes[-2:], (row_labels, column_labels), strict=True))
    names = {axis: words for axis, words in sides.items() if words is not None}
    table = Table.of(table.values, table.axes, {**(labels or {}), **names})
    canvas = Canvas()
    paint = partial(weight_paint, decimals=decimals)
    notes = {"query": message("asks"), "key": message("is looked at")}
    draw_panels(canvas, table, paint, notes=notes, bold_largest=True)
    if summary is None:
        descriptions = _describe_attention(table, decimals)
        summary = format_tensor(table.values, table.axes, labels=table.labels, decimals=decimals)
    else:
        text = "; ".join(summary.splitlines()).rstrip(".")
        descriptions = [message("Attention weights {sizes}: {told}.", sizes=table.sizes, told=text)]
    return canvas.finish(title, summary, *descriptions)


def _describe(table: Table) -> list[str]:
    """List the numbers if the tensor is small; always give their range."""
    blocks = list(table.compact.blocks(elide=False))
    cells = [
        (value, in_block(block, f"{row}, {column}"))
        for block in blocks
        for row, values in zip(row_names(block), block.rows, strict=True)
        for column, value in zip(column_names(block), values, strict=True)
    ]
    values = table.values.double()
    finite = [cell for cell in cells if -torch.inf < cell[0] < torch.inf] or cells
    (low, low_at), (high, high_at) = (
        choose(finite, key=lambda cell: cell[0]) for choose in (min, max)
    )
    spread = message(
        "Tensor {sizes}, {count} numbers from {low} ({low_at}) to {high} ({high_at}). "
        "Negative: {negative}; zero: {zero}; not finite: {not_finite}.",
        sizes=table.sizes, count=len(cells), low=cell_text(low), low_at=low_at,
        high=cell_text(high), high_at=high_at, negative=int((values < 0).sum()),
        zero=int((values == 0).sum()), not_finite=int((~values.isfinite()).sum()),
    )  # fmt: skip
    if len(cells) > FEW_NUMBERS:
        return [spread]
    numbers = ". ".join(in_block(block, _rows(block)) for block in blocks)
    full = message("Tensor {sizes}. {numbers}.", sizes=table.sizes, numbers=numbers)
    return [full, spread]


def _rows(block: Block) -> str:
    return "; ".join(
        f"{name} {number_list(row)}".strip()
        for name, row in zip(row_names(block), block.rows, strict=True)
    )


def _describe_mask(table: Table) -> list[str]:
    blocks = table.compact.blocks(elide=False)
    ticks = ". ".join(
        in_block(block, true_entries(block.rows, row_names(block), column_names(block)))
        for block in blocks
    )
    return [
        message(
            "Mask {sizes}, a tick for True, a cross for False. Ticks: {ticks}.",
            sizes=table.sizes, ticks=ticks,
        ),
        message(
            "Mask {sizes}, a tick for True, a cross for False. {count} of {cells} are True.",
            sizes=table.sizes, count=int(table.values.sum()), cells=table.values.numel(),
        ),
    ]  # fmt: skip


def _describe_attention(table: Table, decimals: int) -> list[str]:
    """Name the keys with the largest weight for each query, and give the range of the weights."""
    blocks = list(table.compact.blocks(elide=False))
    largest = ". ".join(in_block(block, _largest(block, decimals)) for block in blocks)
    tops = [max(row) for block in blocks for row in block.rows]
    low, high = (format_number(top, decimals) for top in (min(tops), max(tops)))
    return [
        message(
            "Attention weights {sizes}, each query with its largest weights. {largest}.",
            sizes=table.sizes, largest=largest,
        ),
        message(
            "Attention weights {sizes}. The largest weight of each query is between {low} "
            "and {high}.",
            sizes=table.sizes, low=low, high=high,
        ),
    ]  # fmt: skip


def _largest(block: Block, decimals: int) -> str:
    """Format each row as "query: key 0.6000", with all keys that print the largest weight."""
    rows = []
    for name, values in zip(row_names(block), block.rows, strict=True):
        texts = [cell_text(value, decimals) for value in values]
        top = texts[values.index(max(values))]
        keys = [key for key, text in zip(column_names(block), texts, strict=True) if text == top]
        rows.append(f"{name}: {', '.join(keys)} {top}")
    return "; ".join(rows)


def _draw_legend(canvas: Canvas) -> None:
    """Draw a legend of tick and cross below the matrices."""
    y, x = canvas.bottom + 0.3, 0.0
    for value in (True, False):
        cell, words = mask_paint(value), str(value)
        canvas.box(x, y - 0.13, 0.38, 0.26, fill=cell.fill, hatched=cell.hatched)
        canvas.text(x + 0.19, y, cell.text, size=TEXT_SIZE + cell.larger, bold=cell.bold)
        canvas.text(x + 0.47, y, words, align="left")
        x += 0.47 + canvas.width_of(words) + 0.35
