"""Attention for one query, number by number: match, scale, share and blend, in each head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.faces import name_width
from twelve_lab.draw.grid import GAP, LINE, Grid
from twelve_lab.draw.panels import signed_paint
from twelve_lab.draw.prose import capital, index_name, listed, plural, tell
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.palette import weight_fill
from twelve_lab.show.table import Block, Labels, Table, as_plain_tensor

if TYPE_CHECKING:
    from twelve_lab.trace.traced import Traced

TENSORS = (
    "projected_query", "query_heads", "key_heads", "value_heads", "scores", "weights", "context",
    "merged", "output",
)  # fmt: skip
# More than this is too wide or too high to be read on one page.
LARGEST = {"key": 4, "d_model": 4, "d_k": 3, "d_v": 3, "head*d_k": 4, "head*d_v": 4}
HEIGHT = 0.31  # of a cell
BAR = 0.86  # the width of a weight of 1
STEP = 0.31  # between two columns: room for an arrow
LAST_STEP = 0.7  # the same before the output
APART = 0.18  # between two heads
BRANCH = 0.28  # from the line that leads along the lanes to these
CLEAR = 0.04  # from an arrow to what it joins
ASIDE = 0.24  # from an edge, where an arrow comes and goes, to a name
BRACKET = 0.08  # from a bracket to its cells
CAPTION = LINE + BRACKET + 0.04  # a name and the bracket below it
HEADER = 2 * LINE + 0.06


class Head(NamedTuple):
    """What one head does for one query."""

    query: Tensor  # d_k
    keys: Tensor  # key, d_k
    match: Tensor  # key
    scores: Tensor  # key; -inf where a key is hidden
    weights: Tensor  # key
    values: Tensor  # key, d_v
    context: Tensor  # d_v


class Placed(NamedTuple):
    """Where a head is drawn."""

    query: Grid
    key: Grid
    context: Grid


class Run(NamedTuple):
    """One query's way through the layer."""

    word: str
    keys: list[str]
    x: Tensor
    heads: list[Head]
    merged: Tensor
    output: Tensor


def heads(
    trace: Mapping[str, Traced],
    path: str,
    *,
    title: str,
    batch: int = 0,
    query: int = 0,
    labels: Labels | None = None,
) -> Drawing:
    """Draw how one query collects its answer, from left to right, one lane for each head.

    Args:
        trace: A run of a multi-head attention, which keeps its operations.
        path: The layer, as "encoder.layers.0.self_attention"; "" if it ran alone.
        title: The claim of the figure.
        batch: The sentence.
        query: The position in it that asks.
        labels: Names instead of indices, for query and key.

    Returns:
        The row that asks and its query; for each key its numbers, the match, the score, the weight
        as a bar, and its value; their blend. Several heads are merged and multiplied by W_O.
        A hidden key has the score -inf and a cross.

    Raises:
        KeyError: A tensor of the layer is not in the trace.
        ValueError: The run is too large to be printed or has no such query, or scores, weights,
            context or merged are not what the tensors before them give.
    """
    run = _read(trace, path, batch, query, labels)
    canvas = Canvas()
    _draw(canvas, run)
    return canvas.finish(title, tell(title, *_in_words(run)), _summary(run))


def _read(
    trace: Mapping[str, Traced], path: str, batch: int, query: int, labels: Labels | None
) -> Run:
    """Take one query's numbers from the run."""
    names = {name: ".".join(filter(None, (path, name))) for name in (*TENSORS, "masked_scores")}
    table = Table.of(trace[names["weights"]], labels=labels)
    _check_place(table, batch, query)
    found = {name: as_plain_tensor(trace[names[name]].value)[batch] for name in TENSORS}
    if names["masked_scores"] in trace:
        found["scores"] = as_plain_tensor(trace[names["masked_scores"]].value)[batch]
    # What the projection read is what asks, wherever in the model the layer stands.
    inputs = trace[names["projected_query"]].explain(batch, query, 0).inputs
    asks = [element.value for element in inputs if element.name == inputs[0].name]
    run = Run(
        word=index_name("query", table.names_along(2, (batch, 0))[query]),
        keys=[index_name("key", name) for name in table.names_along(3, (batch, 0))],
        x=torch.tensor(asks, dtype=torch.float64),
        heads=[
            Head(
                query=found["query_heads"][head, query],
                keys=found["key_heads"][head],
                match=found["key_heads"][head] @ found["query_heads"][head, query],
                scores=found["scores"][head, query],
                weights=found["weights"][head, query],
                values=found["value_heads"][head],
                context=found["context"][head, query],
            )
            for head in range(len(found["weights"]))
        ],
        merged=found["merged"][query],
        output=found["output"][query],
    )
    _check_sizes(run)
    _check_moves(run)
    return run


def _check_place(weights: Table, batch: int, query: int) -> None:
    if weights.axes != ("batch", "head", "query", "key"):
        raise ValueError(f"weights has the axes {weights.sizes}, not (batch, head, query, key)")
    sentences, _, queries, _ = weights.values.shape
    if not (0 <= batch < sentences and 0 <= query < queries):
        raise ValueError(f"batch {batch}, query {query} is not in weights {weights.sizes}")


def _check_sizes(run: Run) -> None:
    d_k, d_v = len(run.heads[0].query), len(run.heads[0].context)
    sizes = {
        "key": len(run.keys), "d_model": max(len(run.x), len(run.output)), "d_k": d_k, "d_v": d_v,
        "head*d_k": len(run.heads) * d_k, "head*d_v": len(run.heads) * d_v,
    }  # fmt: skip
    if any(size > LARGEST[axis] for axis, size in sizes.items()):
        raise ValueError(
            f"too large to be drawn: {_pairs(sizes)}; at most {_pairs(LARGEST)} can be printed"
        )


def _check_moves(run: Run) -> None:
    """Hold every number against those that the arrows lead from."""
    for number, head in enumerate(run.heads):
        hidden = head.scores == -math.inf
        scaled = (head.match / math.sqrt(len(head.query))).masked_fill(hidden, -math.inf)
        _same(f"scores of head {number}", head.scores, "query · key / √d_k", scaled)
        # A query that may look nowhere has no weights and no answer.
        shares = torch.zeros_like(head.weights) if hidden.all() else head.scores.softmax(-1)
        _same(f"weights of head {number}", head.weights, "the softmax of its scores", shares)
        blend = head.weights @ head.values
        _same(f"context of head {number}", head.context, "the blend of its values", blend)
    answers = torch.cat([head.context for head in run.heads])
    _same("merged", run.merged, "the contexts side by side", answers)


def _same(name: str, found: Tensor, what: str, wanted: Tensor) -> None:
    if found.shape != wanted.shape or not torch.allclose(found, wanted, atol=1e-5):
        raise ValueError(f"{name}: {_numbers(found)}, but {what}: {_numbers(wanted)}")


def _pairs(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in sizes.items())


def _numbers(values: Tensor) -> str:
    return ", ".join(map(format_number, values.tolist()))


def _summary(run: Run) -> str:
    """Print every number of the picture."""
    first, several = run.heads[0], len(run.heads) > 1
    columns = [*_columns("key", first.query), "match", "score", "weight"]
    columns += _columns("value", first.context)
    table = torch.stack(
        [
            torch.cat([h.keys, torch.stack([h.match, h.scores, h.weights], 1), h.values], 1)
            for h in run.heads
        ]
    )
    axes = "head key number" if several else "1 key number"
    labels = {"key": [key.removeprefix("key ") for key in run.keys], "number": columns}
    printed = format_tensor(table, axes, labels=labels)
    query = "; ".join(_numbers(head.query) for head in run.heads)
    lines = [f"{run.word} asks", f"x        {_numbers(run.x)}", f"query    {query}"]
    # The first line, of sizes, says nothing that the names do not.
    lines += printed.splitlines()[1:]
    lines.append(f"{'merged ' if several else 'context'}  {_numbers(run.merged)}")
    if several:
        lines.append(f"output   {_numbers(run.output)}")
    return "\n".join(lines)


def _columns(name: str, row: Tensor) -> list[str]:
    return [f"{name} {place}" for place in range(len(row))] if len(row) > 1 else [name]


def _in_words(run: Run) -> list[str]:
    """Tell what is asked, found and answered: with the numbers, or where each head looks."""
    several = len(run.heads) > 1
    begin = f"{capital(run.word)} asks {len(run.keys)} {plural('key', len(run.keys))}"
    begin += f" in {len(run.heads)} heads" * several
    end = f". Merged: {_numbers(run.merged)}; times W_O: {_numbers(run.output)}" if several else ""
    parts = [_head_in_words(run, number) for number in range(len(run.heads))]
    most = (
        f"head {number} " + (f"most at {run.keys[int(w.argmax())]}" if w.any() else "at nothing")
        for number, w in enumerate(head.weights for head in run.heads)
    )
    return [f"{begin}. x: {_numbers(run.x)}. {'. '.join(parts)}{end}", f"{begin}: {listed(most)}"]


def _head_in_words(run: Run, number: int) -> str:
    """Tell what one head finds; of one among several, the weights say enough."""
    head, several = run.heads[number], len(run.heads) > 1
    keys = []
    for place, key in enumerate(run.keys):
        score, weight = float(head.scores[place]), float(head.weights[place])
        way = f"match {format_number(float(head.match[place]))}, score {format_number(score)}, "
        told = way * (not several) + f"weight {format_number(weight)}"
        keys.append(f"{key} {'hidden' if score == -math.inf else told}")
    begin = f"Head {number}, query" if several else "Query"
    return f"{begin} {_numbers(head.query)}: {'; '.join(keys)}; context {_numbers(head.context)}"


class _Sheet:
    """The canvas, with the left edge of each column on it."""

    def __init__(self, canvas: Canvas, run: Run):
        self.canvas, self.run = canvas, run
        first = run.heads[0]
        parts = [run.x, run.merged, run.output, *(part for head in run.heads for part in head)]
        numbers = torch.cat([part.flatten() for part in parts])
        numbers = numbers[numbers.isfinite()].tolist()
        self.paint = signed_paint(max(map(abs, numbers)))
        self.cell = max(canvas.width_of(format_number(number)) for number in numbers) + 0.08
        self.names = max(name_width(canvas, key) for key in run.keys) + 2 * GAP
        # A query and an answer of one number each have room beside the keys.
        self.beside = len(first.query) == len(first.context) == 1
        self.left = self._columns(len(first.query), len(first.context))

    @property
    def is_branching(self) -> bool:
        """Tell whether a line leads along the lanes, from which each takes its query."""
        return self.beside or len(self.run.heads) > 1

    def _columns(self, d_k: int, d_v: int) -> dict[str, float]:
        widths = {
            "query": (self.cell + STEP) * self.beside,
            "names": self.names,
            "key": self.cell * d_k + STEP,
            "match": self.cell + STEP,
            "score": self.cell + STEP,
            "weight": BAR + STEP,
            "value": self.cell * d_v + STEP * self.beside,
            "context": self.cell * self.beside,
        }
        left, x = {}, 0.0
        for name, width in widths.items():
            left[name] = x
            x += width
        left["end"] = x
        return left if self.beside else left | {"query": left["key"], "context": left["value"]}

    def row(self, numbers: Tensor, x: float, y: float, caption: str = "", axis: str = "") -> Grid:
        """Draw a vector, above it its name and the bracket of its axis."""
        grid = self._grid(numbers.view(1, -1), x, y)
        if caption:
            over = grid.top - BRACKET
            self.canvas.bracket(axis, (grid.left, over), (grid.right, over), "top")
            text = f"{caption} ({axis})"
            self.canvas.text(grid.left + ASIDE, over - LINE / 2 - 0.02, text, align="left")
        return grid

    def column(self, name: str, numbers: Tensor, y: float, keys: Sequence[str] = ()) -> Grid:
        """Draw a column of a lane, one row for each key."""
        return self._grid(numbers.view(len(self.run.keys), -1), self.left[name], y, keys)

    def _grid(self, numbers: Tensor, x: float, y: float, keys: Sequence[str] = ()) -> Grid:
        rows, columns = numbers.shape
        axis, names = "key" * bool(keys), list(keys) or [""] * rows
        block = Block((), [], axis, "", names, [""] * columns, numbers.tolist())
        size = {"cell_height": HEIGHT, "cell_width": self.cell}
        return Grid(self.canvas, block, self.paint, named=False, **size).draw_cells_at(x, y)


def _draw(canvas: Canvas, run: Run) -> None:
    """Draw what asks, the lanes below it, and what comes of several of them."""
    sheet = _Sheet(canvas, run)
    x = -BRANCH - ASIDE if sheet.is_branching else sheet.left["query"]
    asks = sheet.row(run.x, x, 0.0, f"x of {run.word}", "d_model")
    move = "W_Q," if len(run.heads) > 1 else "W_Q"
    canvas.text(x + ASIDE, asks.bottom + 0.16, move, align="left")
    if len(run.heads) > 1:
        beyond = x + ASIDE + canvas.width_of("W_Q, ")
        canvas.text(beyond, asks.bottom + 0.16, "split", align="left", bold=True)
    y = asks.bottom + (HEADER + 0.06 if sheet.beside else 0.28 + CAPTION)
    lanes = []
    for number, head in enumerate(run.heads):
        lanes.append(_draw_head(sheet, head, number, y))
        y = max(grid.bottom for grid in lanes[-1]) + APART
        y += CAPTION * (not sheet.beside)
    _lead_in(sheet, asks, [lane.query for lane in lanes])
    if len(run.heads) > 1:
        _merge(sheet, [lane.context for lane in lanes])


def _draw_head(sheet: _Sheet, head: Head, number: int, y: float) -> Placed:
    """Draw one lane: beside its keys, or above and below them, a query and its answer."""
    canvas, left = sheet.canvas, sheet.left
    name = f"head {number}" if len(sheet.run.heads) > 1 else ""
    if sheet.beside:
        key, value = _draw_moves(sheet, head, y)
        middle = (key.top + key.bottom) / 2
        query = sheet.row(head.query, left["query"], middle - HEIGHT / 2)
        context = sheet.row(head.context, left["context"], middle - HEIGHT / 2)
        canvas.text(query.left, query.top - LINE / 2, name, align="left", bold=True)
        canvas.arrow((query.right + CLEAR, middle), (key.left - sheet.names, middle))
        canvas.arrow((value.right + CLEAR, middle), (context.left - CLEAR, middle))
    else:
        caption = ": ".join(filter(None, (name, "query")))
        query = sheet.row(head.query, left["query"], y, caption, "d_k")
        header = HEADER if number == 0 else 0.0
        key, value = _draw_moves(sheet, head, query.bottom + header + APART)
        top = value.bottom + 0.28 + CAPTION
        context = sheet.row(head.context, left["context"], top, "context", "d_v")
        canvas.text(value.left + ASIDE, value.bottom + 0.16, "blend", align="left", bold=True)
        _point_down(canvas, value, context.top - BRACKET - CLEAR)
        x, middle = left["match"] + sheet.cell / 2, query.row_middle(0)
        canvas.line([(query.right + CLEAR, middle), (x, middle)], width=1.2)
        canvas.arrow((x, middle), (x, key.top - header - CLEAR))
    if number == 0:
        _name_columns(sheet, key.top)
    return Placed(query, key, context)


def _draw_moves(sheet: _Sheet, head: Head, y: float) -> tuple[Grid, Grid]:
    """Draw a row for each key: its match, its score, its weight as a bar, its value."""
    canvas, left = sheet.canvas, sheet.left
    key = sheet.column("key", head.keys, y, sheet.run.keys)
    sheet.column("match", head.match, y)
    sheet.column("score", head.scores, y)
    value = sheet.column("value", head.values, y)
    for i, weight in enumerate(head.weights.tolist()):
        middle = key.row_middle(i)
        corner = left["weight"], middle - HEIGHT / 2
        canvas.box(*corner, BAR, HEIGHT)
        canvas.box(*corner, BAR * weight, HEIGHT, fill=weight_fill(0.5))
        canvas.text(left["weight"] + BAR / 2, middle, format_number(weight))
        for name in ("match", "score", "weight"):
            canvas.arrow((left[name] - STEP + CLEAR, middle), (left[name] - CLEAR, middle))
        canvas.text(value.left - STEP / 2, middle, "×", bold=True)
    return key, value


def _point_down(canvas: Canvas, grid: Grid, end: float) -> None:
    """Draw an arrow from the left of a matrix downwards."""
    x = grid.left + ASIDE / 2
    canvas.arrow((x, grid.bottom + CLEAR), (x, end))


def _name_columns(sheet: _Sheet, y: float) -> None:
    """Write above a lane the move that makes each column, in bold, and what it is."""
    width = len(sheet.run.heads[0].query)
    columns = {
        "match": ("match", "query · key"),
        "score": ("scale", f"÷ √{width}: scores"),
        "weight": ("share", "weights"),
    }
    if sheet.beside:
        columns["context"] = ("blend", "context")
        columns["query"] = ("", "query")
    for name, (move, what) in columns.items():
        x = sheet.left[name] + (BAR if name == "weight" else sheet.cell) / 2
        sheet.canvas.text(x, y - 1.5 * LINE - 0.05, move, bold=True)
        sheet.canvas.text(x, y - 0.5 * LINE - 0.05, what, size=SMALL_SIZE)
    for name, matrix in (("key", "W_K"), ("value", "W_V")):
        x, align, source = sheet.left[name] + sheet.cell / 2, "center", f"by {matrix}"
        if not sheet.beside:
            x, align, source = sheet.left[name] + ASIDE, "left", f"each x by {matrix}"
        sheet.canvas.text(x, y - 1.5 * LINE - 0.05, name, align=align)
        sheet.canvas.text(x, y - 0.5 * LINE - 0.05, source, size=SMALL_SIZE, align=align)


def _lead_in(sheet: _Sheet, asks: Grid, queries: Sequence[Grid]) -> None:
    """Lead the row that asks to the query of each head."""
    if not sheet.is_branching:
        return _point_down(sheet.canvas, asks, queries[0].top - BRACKET - CLEAR)
    x = asks.left + ASIDE / 2
    end = queries[-1].row_middle(0)
    sheet.canvas.line([(x, asks.bottom + CLEAR), (x, end)], width=1.2)
    for query in queries:
        height = query.row_middle(0)
        sheet.canvas.arrow((x, height), (query.left - CLEAR, height))


def _merge(sheet: _Sheet, answers: Sequence[Grid]) -> None:
    """Lay the answers side by side and multiply them by W_O."""
    canvas, run = sheet.canvas, sheet.run
    around, turn = sheet.left["end"] + BRANCH, canvas.bottom + 0.14
    top = turn + 0.08 + CAPTION
    left = around - sheet.cell * len(run.output)
    output = sheet.row(run.output, left, top, "output", "d_model")
    left -= LAST_STEP + sheet.cell * len(run.merged)
    merged = sheet.row(run.merged, left, top, "merged", "head*d_v")
    for answer in answers:
        height = answer.row_middle(0)
        canvas.line([(answer.right + CLEAR, height), (around, height)], width=1.2)
    into = merged.left + ASIDE / 2
    corners = [(around, answers[0].row_middle(0)), (around, turn), (into, turn)]
    canvas.line(corners, width=1.2)
    canvas.arrow((into, turn), (into, merged.top - BRACKET - CLEAR))
    canvas.text(into - 0.1, turn + 0.14, "merge", align="right", bold=True)
    middle = merged.row_middle(0)
    canvas.arrow((merged.right + CLEAR, middle), (output.left - CLEAR, middle))
    canvas.text((merged.right + output.left) / 2, middle - 0.17, "W_O")
