"""Summary of a run: one line for each tensor, with its lesson, name and axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from torch import Tensor

from twelve_lab.messages import message, plural
from twelve_lab.show.show import NAME, PAGE, ROW, html_table
from twelve_lab.trace.traced import Traced

_COLUMNS = ("step", "name", "axes = sizes")
_STYLE = f"{NAME};text-align:left"


def summary_text(entries: Mapping[str, Traced]) -> str:
    """Format the summary as text.

    Args:
        entries: The tensors of a run, in order.
    """
    if not entries:
        return message("Trace: no tensor yet")
    rows = [_COLUMNS, *map(_row, entries.values())]
    width = max(len(name) for _, name, _ in rows)
    lines = [f"{step:>4}  {name:<{width}}  {axes}".rstrip() for step, name, axes in rows]
    return "\n".join([*lines, _count(entries)])


def summary_html(entries: Mapping[str, Traced]) -> str:
    """Format the summary as an HTML table.

    Args:
        entries: The tensors of a run, in order.
    """
    head = "".join(f'<th scope="col" style="{_STYLE}">{word}</th>' for word in _COLUMNS)
    rows = (
        "".join(f'<td style="{_STYLE}">{escape(text)}</td>' for text in _row(entry))
        for entry in entries.values()
    )
    table = html_table(_count(entries), [f"{ROW}{head}</tr>"], (f"{ROW}{row}</tr>" for row in rows))
    return f'<div style="{PAGE}">{table}</div>'


def plain(values: Tensor) -> object:
    """Convert a tensor to nested lists in full precision, with nan and infinities as strings.

    Args:
        values: Any tensor.
    """
    return _spell(values.tolist())


def axes_and_sizes(entry: Traced) -> str:
    """Format the axes of a tensor with their sizes, such as "batch 2, src 2, d_model 3".

    Args:
        entry: A tensor of a run.
    """
    pairs = zip(entry.axes, entry.shape, strict=True)
    return ", ".join(axis if axis.isdigit() else f"{axis} {size}" for axis, size in pairs)


def _count(entries: Mapping[str, Traced]) -> str:
    return plural("{count} tensor", "{count} tensors", len(entries))


def _row(entry: Traced) -> tuple[str, str, str]:
    return entry.step, entry.name, axes_and_sizes(entry)


def _spell(value: object) -> object:
    if isinstance(value, list):
        return [_spell(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
