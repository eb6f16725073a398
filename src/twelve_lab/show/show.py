"""Show a tensor as text, and as tables in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from typing import Any

import torch

from twelve._checks import check_between
from twelve_lab.show.format import cell_text, format_tensor
from twelve_lab.show.palette import axis_style, signed_tint
from twelve_lab.show.table import Block, Labels, Table, Value

PAGE = "padding:8px 10px;font-size:14px;overflow-x:auto"
_PANELS = "display:flex;flex-wrap:wrap;width:fit-content;gap:8px 14px;margin-top:8px"
_TABLE = (
    "border-collapse:collapse;margin:0;border:none;color:inherit;font-size:14px;text-align:right;"
    "font-variant-numeric:tabular-nums"
)
_CAPTION = "color:inherit;caption-side:top;text-align:left;padding:0 0 2px;white-space:nowrap"
# Inherit text and background from the page; otherwise notebook themes stripe the rows.
ROW = '<tr style="background:none">'
_CELL = "padding:2px 8px;min-width:{}ch"
_FRAME = ";box-shadow:inset 0 0 0 2px"
NAME = "background:none;padding:2px 8px;font-weight:normal"
_HATCHED = "repeating-linear-gradient(45deg,transparent 0 4px,rgba(128,128,128,.5) 4px 5px)"


class Shown:
    """A tensor ready for display as text (`repr`) and as HTML (in a notebook)."""

    def __init__(self, table: Table, title: str | None = None, decimals: int = 4):
        """See `show`."""
        self.table = table
        self.title = title
        self.decimals = decimals
        self._limit = largest_magnitude(table) if table.axes else 0.0
        self._width = max(map(len, self._texts()), default=1)

    def __repr__(self) -> str:
        """Return the tensor as text below its title."""
        text = format_tensor(
            self.table.values, self.table.axes, labels=self.table.labels, decimals=self.decimals
        )
        return text if self.title is None else f"{self.title} {text}"

    def _repr_html_(self) -> str:
        """Return the tensor as HTML tables without ids, scripts or external resources."""
        blocks = [block for block in self.table.compact.blocks() if block.is_of_interest]
        heading = self._heading()
        if len(self.table.compact.axes) <= 2:
            return f'<div style="{PAGE}">{self._matrix(blocks[0], heading)}</div>'
        lines = []
        for _, group in groupby(blocks, key=lambda block: block.index[:-1]):
            panels = "".join(self._panel(block) for block in group)
            lines.append(f'<div style="{_PANELS}{self._sides(-2)}">{panels}</div>')
        return f'<div style="{PAGE}"><div>{heading}</div>{"".join(lines)}</div>'

    def _texts(self) -> Iterator[str]:
        for block in self.table.compact.blocks():
            yield from (cell_text(value, self.decimals) for row in block.rows for value in row)

    def _heading(self) -> str:
        sizes = zip(self.table.axes, self.table.values.shape, strict=True)
        parts = [
            "1"
            if name.isdigit()
            else f'<span style="border-bottom:{axis_style(name).css}">{escape(name)}={size}</span>'
            for name, size in sizes
        ]
        title = f"<strong>{escape(self.title)}</strong> " if self.title else ""
        return f"{title}({', '.join(parts) or 'scalar'}){self.table.legend}"

    def _sides(self, axis: int) -> str:
        """Return the CSS of both brackets of a leading axis, counted from the innermost."""
        leading = self.table.compact.axes[:-2]
        if -axis > len(leading):
            return ""
        border = axis_style(leading[axis]).css
        return f";border-left:{border};border-right:{border};padding:0 8px"

    def _panel(self, block: Block) -> str:
        return (
            f'<div style="{self._sides(-1)[1:]}">{self._matrix(block, escape(block.title))}</div>'
        )

    def _matrix(self, block: Block, caption: str) -> str:
        rows = (self._row(block, i) for i in range(len(block.rows)))
        return html_table(caption, self._head(block), rows)

    def _head(self, block: Block) -> Iterator[str]:
        corner = f'<td colspan="{1 + bool(block.row_axis)}" style="{NAME}"></td>'
        if block.column_axis:
            style = f"{NAME};text-align:center;border-bottom:{axis_style(block.column_axis).css}"
            yield (
                f'{ROW}{corner}<th scope="colgroup" colspan="{len(block.column_names)}" '
                f'style="{style}">{escape(block.column_axis)}</th></tr>'
            )
        names = "".join(
            f'<th scope="col" style="{NAME}">{escape(name)}</th>' for name in block.column_names
        )
        if any(block.column_names):
            yield f"{ROW}{corner}{names}</tr>"

    def _row(self, block: Block, i: int) -> str:
        axis = ""
        if block.row_axis and i == 0:
            style = f"{NAME};border-right:{axis_style(block.row_axis).css}"
            axis = (
                f'<th scope="rowgroup" rowspan="{len(block.rows)}" style="{style}">'
                f"{escape(block.row_axis)}</th>"
            )
        name = f'<th scope="row" style="{NAME};text-align:left">{escape(block.row_names[i])}</th>'
        lit = block.lit[i] if block.lit else [False] * len(block.rows[i])
        cells = "".join(map(self._cell, block.rows[i], lit))
        return f"{ROW}{axis}{name}{cells}</tr>"

    def _cell(self, value: Value, lit: bool) -> str:
        style = _CELL.format(self._width) + (_FRAME if lit else "")
        if isinstance(value, float):
            fill = signed_tint(value, self._limit) if math.isfinite(value) else _HATCHED
            style += f";background:{fill}"
        text = cell_text(value, self.decimals)
        return f'<td style="{style}">{f"<strong>{text}</strong>" if lit else text}</td>'


def show(
    x: Any,
    axes: Any = None,
    *,
    labels: Labels | None = None,
    title: str | None = None,
    decimals: int = 4,
) -> Shown:
    """Show a tensor with the names of its axes: `show(x, "batch src d_model")`.

    Args:
        x: Tensor on any device, nested list, or trace entry, which has its own axes.
        axes: Axis names in a string ("batch src d_model") or a sequence; size 1 may be "1".
        labels: Names to show instead of indices: axis -> one name per index, or axis -> one such
            list per sentence if the tensor has a batch axis.
        title: Name of the tensor; a trace entry has its own name.
        decimals: Number of digits after the point.

    Returns:
        An object that prints as text and that a notebook renders as tables: red above zero, blue
        below zero, with brackets in the style of each axis.

    Raises:
        ValueError: If the number of axes differs from the rank, labels do not fit their axis, or
            decimals is not from 0 to 20.
    """
    check_between("show", 0, 20, "digits after the point", decimals=decimals)
    if title is None and hasattr(x, "axes"):
        title = getattr(x, "name", None)
    return Shown(Table.of(x, axes, labels), title, decimals)


def html_table(caption: str, head: Iterable[str], rows: Iterable[str]) -> str:
    """Format an HTML table in the style that all notebook tables share.

    Args:
        caption: Caption, as HTML.
        head: Header rows, each a `<tr>`.
        rows: Body rows.
    """
    return (
        f'<table style="{_TABLE}"><caption style="{_CAPTION}">{caption}</caption>'
        f"<thead>{''.join(head)}</thead><tbody>{''.join(rows)}</tbody></table>"
    )


def largest_magnitude(table: Table) -> float:
    """Return the largest finite magnitude in a tensor of floats, or 0."""
    values = table.values
    finite = values[torch.isfinite(values)] if values.is_floating_point() else values[:0]
    return float(finite.abs().max()) if values.is_floating_point() and finite.numel() else 0.0
