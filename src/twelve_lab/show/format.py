"""Numbers as text: identical on every machine, with every axis named.

All displays of the lab use this module, so stored notebook outputs can be compared character by
character on CPU and GPU.
"""

from __future__ import annotations

import math
from typing import Any

from twelve_lab.show import wide
from twelve_lab.show.table import Block, Labels, Table, Value


def format_number(value: float, decimals: int = 4) -> str:
    """Format one number so that rounding noise in its last bits cannot change the text.

    A tie, or a value within 1e-8 of a tie (at 4 decimals), rounds away from zero.

    Args:
        value: A float, an int or a bool.
        decimals: Number of digits after the point; ignored for ints and bools.

    Returns:
        The text, never `-0.0000`; non-finite values become `nan`, `inf` or `-inf`.
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
        x: Tensor on any device, nested list, or trace entry, which has its own axes.
        axes: Axis names in a string ("batch src d_model") or a sequence; size 1 may be "1".
        labels: Names to print instead of indices: axis -> one name per index, or axis -> one
            such list per sentence if the tensor has a batch axis.
        decimals: Number of digits after the point.
        width: Maximum number of characters in a row; unlimited by default. Further columns
            follow below, with their row names repeated.

    Returns:
        A heading with names and sizes, then the numbers in columns of equal width. An axis longer
        than 12 shows its first and last four indices.

    Raises:
        ValueError: If the number of axes differs from the rank, or labels do not fit their axis.
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
    """List the texts to the left of each row: the names of the block, then of the row."""
    return [[*block.names, f"{block.row_axis} {name}".strip()] for name in block.row_names]


def _blank_repeats(stub: list[str], above: list[str]) -> list[str]:
    """Blank out leading names that equal those on the line above."""
    same = [left == right for left, right in zip(stub[:-1], above, strict=False)]
    repeats = same.index(False) if False in same else len(same)
    return [""] * repeats + stub[repeats:]


def _line(left: str, texts: list[str], width: int) -> str:
    return (left + "".join(f"  {wide.right(text, width)}" for text in texts)).rstrip()
