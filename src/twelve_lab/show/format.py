"""Numbers as text: the same characters on every machine, with every axis named.

All displays of the lab use this module, so that stored notebook outputs can be compared character
by character on CPU and GPU.
"""

from __future__ import annotations

import math
from typing import Any

from twelve_lab.show import wide
from twelve_lab.show.table import Block, Labels, Table, Value


def format_number(value: float, decimals: int = 4) -> str:
    """Format one number so that rounding noise in its last bits cannot change the text.

    A tie, or a value within 1e-8 of one (at 4 decimals), rounds away from zero.

    Args:
        value: A float, an int or a bool.
        decimals: Digits after the point; ints and bools ignore it.

    Returns:
        The text, never `-0.0000`; `nan`, `inf` and `-inf` are spelled out.
    """
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    text = f"{abs(value) + 10.0 ** -(decimals + 4):.{decimals}f}"
    return f"-{text}" if value < 0 and text.strip("0.") else text


def format_tensor(
    x: Any,
    axes: Any = None,
    *,
    labels: Labels | None = None,
    decimals: int = 4,
    width: int | None = None,
) -> str:
    """Format a tensor with the names of its axes, one line for each row of its last axis.

    Args:
        x: A tensor on any device, a nested list, or a trace entry, which has its own axes.
        axes: Axis names, as "batch src d_model" or as a sequence; an axis of size 1 may be "1".
        labels: Names to print instead of indices: axis -> one name per index, or axis -> one
            such list per sentence where the tensor has a batch axis.
        decimals: Digits after the point.
        width: Characters of a row. Further columns follow below, with the names of their rows;
            unlimited if not given.

    Returns:
        A heading with names and sizes, then the numbers in columns of one width. An axis longer
        than 12 shows its first and last four indices.

    Raises:
        ValueError: The number of axes differs from the rank, or labels do not fit their axis.
    """
    table = Table.of(x, axes, labels)
    if not table.axes:
        return f"{table.sizes}  {format_number(table.values.item(), decimals)}"
    if table.values.numel() == 0:
        return f"{table.sizes}  empty"
    blocks = list(table.compact.blocks())
    stubs = [stub for block in blocks for stub in _stubs(block)]
    stub_widths = [max(map(wide.width, column)) for column in zip(*stubs, strict=True)]
    left_width = max(sum(stub_widths) + 2 * len(stub_widths) - 2, wide.width(blocks[0].column_axis))

    rows: list[tuple[str, list[str]]] = []
    names_above: list[str] = []
    stub_above: list[str] = []
    for block in blocks:
        if block.column_names != names_above and any(block.column_names):
            rows.append((wide.right(block.column_axis, left_width), block.column_names))
        for stub, row in zip(_stubs(block), block.rows, strict=True):
            texts = _blank_repeats(stub, stub_above)
            left = "  ".join(map(wide.left, texts, stub_widths))
            left = wide.left(left, left_width)
            rows.append((left, [cell_text(value, decimals) for value in row]))
            stub_above = stub
        names_above = block.column_names
    cell_width = max(wide.width(text) for _, texts in rows for text in texts)
    columns = len(blocks[0].column_names)
    fitting = columns if width is None else max(1, (width - left_width) // (cell_width + 2))
    lines = [table.sizes + table.legend]
    for start in range(0, columns, fitting):
        lines += [_line(left, texts[start : start + fitting], cell_width) for left, texts in rows]
    return "\n".join(lines)


def cell_text(value: Value, decimals: int = 4) -> str:
    """Format one element: False as a dot, an omitted element as an ellipsis."""
    if value is None:
        return "…"
    if isinstance(value, bool):
        return "True" if value else "·"
    return format_number(value, decimals)


def _stubs(block: Block) -> list[list[str]]:
    """List the texts left of each row: the names of the block, then of the row."""
    return [[*block.names, f"{block.row_axis} {name}".strip()] for name in block.row_names]


def _blank_repeats(stub: list[str], above: list[str]) -> list[str]:
    """Drop the leading names that equal those of the line above."""
    same = [left == right for left, right in zip(stub[:-1], above, strict=False)]
    repeats = same.index(False) if False in same else len(same)
    return [""] * repeats + stub[repeats:]


def _line(left: str, texts: list[str], width: int) -> str:
    return (left + "".join(f"  {wide.right(text, width)}" for text in texts)).rstrip()
