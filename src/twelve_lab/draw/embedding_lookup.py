"""Figure of the embedding: ids select rows of a table."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.faces import draw_face, name_width
from twelve_lab.draw.grid import LINE, Cell, Grid, widen, without_rows
from twelve_lab.draw.panels import signed_paint
from twelve_lab.messages import message
from twelve_lab.show.format import cell_text, format_tensor
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Table, as_plain_tensor

BETWEEN = 1.0  # room for the arrows between two columns
APART = 0.35  # gap between the sentences
NAMES = 0.2  # gap between row names and table, with room for the bracket


def lookup(ids: Any, table: Any, *, title: str, vocabulary: Sequence[str]) -> Drawing:
    """Draw how ids select rows of the embedding table.

    Args:
        ids: Token ids of the sentences, (batch, src).
        table: The embedding table, (vocab, d_model).
        title: Claim of the figure.
        vocabulary: The word of each row of the table.
    """
    ids, table = as_plain_tensor(ids), as_plain_tensor(table)
    vectors = table[ids]
    words = [[vocabulary[i] for i in sentence] for sentence in ids.tolist()]
    named = Table.of(
        table, "vocab d_model", {"vocab": [f"{i} {word}" for i, word in enumerate(vocabulary)]}
    )
    result = Table.of(vectors, "batch src d_model", {"src": words})

    canvas = Canvas()
    asked, middle, picked = _place(canvas, ids, named, result)
    names = _name_rows(canvas, middle, named)
    for sentence, start, end in zip(ids.tolist(), asked, picked, strict=True):
        for position, token in enumerate(sentence):
            height = middle.row_middle(token)
            asks, gets = start.row_middle(position), end.row_middle(position)
            canvas.arrow((start.right + 0.03, asks), (middle.left - names - 0.06, height))
            canvas.arrow((middle.right + 0.03, height), (end.left - 0.03, gets))
    picks = [f"{i} {vocabulary[i]}" for i in ids.flatten().tolist()]
    copied = [
        f"{pick} {' '.join(map(cell_text, vector))}"
        for pick, vector in zip(picks, vectors.flatten(0, 1).tolist(), strict=True)
    ]
    descriptions = (
        message(
            "Arrows lead from ids {ids} to rows of a table {table} and on to vectors {vectors}. "
            "Rows picked: {rows}.",
            ids=tuple(ids.shape), table=tuple(table.shape), vectors=tuple(vectors.shape),
            rows="; ".join(rows),
        )
        for rows in (copied, picks)
    )  # fmt: skip
    summary = [
        "ids " + format_tensor(ids, "batch src"),
        "table " + format_tensor(table, "vocab d_model", labels=named.labels),
        "vectors " + format_tensor(vectors, "batch src d_model", labels=result.labels),
    ]
    return canvas.finish(title, "\n".join(summary), *descriptions)


def _place(
    canvas: Canvas, ids: Tensor, rows: Table, result: Table
) -> tuple[list[Grid], Grid, list[Grid]]:
    """Draw the ids on the left, the table in the middle, and the vectors on the right."""
    paint = signed_paint(largest_magnitude(rows))
    asked = [
        Grid(canvas, block, lambda token: Cell(str(token), bold=True),
             title=message("ids, {sentence}", sentence=block.title))
        for block in Table.of(ids.unsqueeze(-1), "batch src 1", result.labels).blocks(elide=False)
    ]  # fmt: skip
    picked = [
        Grid(canvas, without_rows(block), paint,
             title=message("vectors, {sentence}", sentence=block.title))
        for block in result.blocks(elide=False)
    ]  # fmt: skip
    block = without_rows(next(rows.blocks(elide=False)))
    middle = Grid(canvas, block, paint, title=message("embedding table"))
    widen(asked, "names_width")

    ids_left = max(grid.margin_left for grid in asked)
    table_left = ids_left + max(grid.cell_width for grid in asked) + BETWEEN + middle.margin_left
    table_left += max(name_width(canvas, name) for name in rows.labels["vocab"]) + NAMES
    vectors_left = table_left + middle.cells_width + BETWEEN
    y = 0.0
    for left, right in zip(asked, picked, strict=True):
        top = y + right.margin_top
        left.draw_cells_at(ids_left, top)
        canvas.text(0.0, top - LINE * 0.8, left.title, align="left", bold=True)
        right.draw_cells_at(vectors_left, top)
        canvas.text(vectors_left, y + LINE / 2, right.title, align="left", bold=True)
        y = right.bottom + APART
    top = max(0.0, (y - APART - middle.height) / 2)
    middle.draw(table_left - middle.margin_left, top)
    return asked, middle, picked


def _name_rows(canvas: Canvas, table: Grid, rows: Table) -> float:
    """Draw the row names outside the bracket, where the arrows end; return their width."""
    x = table.left - NAMES / 2
    canvas.bracket("vocab", (x, table.top), (x, table.bottom), "left")
    names = rows.labels["vocab"]
    widths = [name_width(canvas, name) for name in names]
    for i, (name, width) in enumerate(zip(names, widths, strict=True)):
        canvas.text(table.left - NAMES, table.row_middle(i), name, align="right")
        draw_face(canvas, name, table.left - NAMES - width, table.row_middle(i))
    canvas.text(table.left - NAMES, table.top - LINE / 2, "vocab", align="right")
    return NAMES + max(widths)
