"""Figure of a matrix product in the classical layout."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from twelve_lab.draw.alt_text import index_name
from twelve_lab.draw.canvas import SMALL_SIZE, TEXT_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE, Grid, bare
from twelve_lab.draw.panels import signed_paint, weight_paint
from twelve_lab.messages import message
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Labels, Table, as_plain_tensor

SPREAD = 0.36  # gap between the matrices, with room for an arrow


def matmul(
    a: Any,
    b: Any,
    product: Any = None,
    axes: str = "row inner column",
    *,
    title: str,
    names: Sequence[str] = ("A", "B", "A B"),
    highlight: tuple[int, int] = (0, 0),
    labels: Labels | None = None,
) -> Drawing:
    """Draw a matrix product: A on the left, B above, each element where its row and column meet.

    Args:
        a: The left matrix, (row, inner).
        b: The right matrix, (inner, column).
        product: Their product; computed by default.
        axes: Names of the three axes, such as "query d_k key".
        title: Claim of the figure.
        names: Names of the three matrices.
        highlight: Index of the element to frame and to write out as a sum.
        labels: axis -> names instead of indices.

    Raises:
        ValueError: If the sizes do not match, product is not a @ b, or axes does not have three
            names.
    """
    if len(axes.split()) != 3:
        raise ValueError(f"matmul: axes must be three names, row inner column, got '{axes}'")
    row, inner, column = axes.split()
    a, b = as_plain_tensor(a), as_plain_tensor(b)
    product = _checked_product(a, b, product)
    pairs = ((a, (row, inner)), (b, (inner, column)), (product, (row, column)))
    tables = [Table.of(x, pair, labels) for x, pair in pairs]

    canvas = Canvas()
    grids = _place(canvas, tables, names)
    i, j = highlight
    terms = " + ".join(
        f"{_in_brackets(x)}·{_in_brackets(y)}"
        for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True)
    )
    text = f"{names[2]}[{i}, {j}] = {terms} = {format_number(product[i, j].item())}"
    _write_out(canvas, *grids, text, highlight)
    summary = [
        f"{name} {format_tensor(table.values, table.axes, labels=labels)}"
        for name, table in zip(names, tables, strict=True)
    ]
    framed_row, framed_column = (
        index_name(axis, tables[2].names_along(side)[index])
        for side, (axis, index) in enumerate(zip((row, column), highlight, strict=True))
    )
    description = message(
        "A matrix product: on the left {a} {a_sizes}, above {b} {b_sizes}, where rows meet "
        "columns {ab} {ab_sizes}. Framed: the row of {row} in {a}, the column of {column} in {b}, "
        "and their product, {value}.",
        a=names[0], b=names[1], ab=names[2],
        a_sizes=tables[0].sizes, b_sizes=tables[1].sizes, ab_sizes=tables[2].sizes,
        row=framed_row, column=framed_column, value=format_number(product[i, j].item()),
    )  # fmt: skip
    return canvas.finish(title, "\n".join([*summary, text]), description)


def _checked_product(a: Tensor, b: Tensor, product: Any) -> Tensor:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            "matmul: a and b must be matrices with as many columns in a as rows in b, "
            f"got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    expected = a @ b
    if product is None:
        return expected
    product = as_plain_tensor(product)
    if product.shape != expected.shape or not torch.allclose(product, expected, atol=1e-5):
        raise ValueError(
            f"matmul: product must be a @ b {tuple(expected.shape)}, got another matrix "
            f"{tuple(product.shape)}"
        )
    return product


def _is_attention(table: Table) -> bool:
    """Return whether the rows are attention weights: non-negative, with sum 1."""
    values = table.values.double()
    sums = values.sum(-1)
    return (
        table.axes == ("query", "key")
        and bool((values >= 0).all())
        and torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
    )


def _place(canvas: Canvas, tables: Sequence[Table], names: Sequence[str]) -> list[Grid]:
    """Draw A at the lower left, B at the upper right, and the product where they meet."""
    blocks = [next(table.blocks(elide=False)) for table in tables]
    paints = [weight_paint if _is_attention(table) else signed_paint(largest_magnitude(table))
              for table in tables]  # fmt: skip
    columns = len(blocks[0].column_names) + len(blocks[1].column_names)
    size = SMALL_SIZE if columns > 10 else TEXT_SIZE
    left = Grid(canvas, blocks[0], paints[0], size=size)
    above = Grid(canvas, blocks[1], paints[1], size=size, title=names[1])
    result = Grid(canvas, bare(blocks[2]), paints[2], size=size)
    result.cell_width = above.cell_width = max(result.cell_width, above.cell_width)

    x = max(left.width + SPREAD, above.margin_left)
    y = above.height + left.margin_top + SPREAD / 2
    left.draw_cells_at(x - SPREAD - left.cells_width, y)
    above.draw_cells_at(x, y - left.margin_top - SPREAD / 2 - above.height + above.margin_top)
    canvas.text(x, above.top - above.margin_top + LINE / 2, names[1], align="left", bold=True)
    result.draw_cells_at(x, y)
    for grid, name in ((left, names[0]), (result, names[2])):
        canvas.text(grid.left, grid.bottom + LINE * 0.7, name, align="left", bold=True)
    return [left, above, result]


def _write_out(
    canvas: Canvas, left: Grid, above: Grid, result: Grid, text: str, highlight: tuple[int, int]
) -> None:
    """Frame one row, one column and their product, and write the sum below."""
    i, j = highlight
    left.frame(i, 0, columns=len(left.cells[0]))
    above.frame(0, j, rows=len(above.cells))
    result.frame(i, j)
    y, x = left.row_middle(i), above.centre(0, j)[0]
    canvas.arrow((left.right + 0.04, y), (result.left - 0.04, y), width=2)
    canvas.arrow((x, above.bottom + 0.04), (x, result.top - 0.04), width=2)
    lines = canvas.wrap(text)
    y = result.bottom + LINE * (2.1 + 0.5 * lines.count("\n"))
    canvas.text(left.left - left.margin_left, y, lines, align="left")


def _in_brackets(value: float) -> str:
    text = format_number(value)
    return f"({text})" if text.startswith("-") else text
