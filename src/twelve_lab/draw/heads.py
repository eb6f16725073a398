"""Figure of attention for one query: match, scale, softmax and weighted sum, in each head."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from twelve_lab.draw.attention_run import AttentionRun, check_same, check_sizes, numbers
from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.faces import name_width
from twelve_lab.draw.grid import GAP, LINE, Grid, number_grid
from twelve_lab.draw.panels import signed_paint
from twelve_lab.messages import message
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.palette import weight_fill
from twelve_lab.show.table import Labels
from twelve_lab.trace.traced import Traced

# Larger sizes are too wide or too high for one page.
LARGEST = {"key": 4, "d_model": 4, "d_k": 3, "d_v": 3, "head*d_k": 4, "head*d_v": 4}
HEIGHT = 0.31  # height of a cell
BAR = 0.86  # width of the bar of weight 1
STEP = 0.31  # gap between two columns, with room for an arrow
LAST_STEP = 0.7  # room for the arrow before the output
APART = 0.18  # gap between two heads
BRANCH = 0.28  # gap between the lanes and the line beside them
CLEAR = 0.04  # gap between an arrow and the matrix it touches
ASIDE = 0.24  # from an edge to a name, with room for an arrow
BRACKET = 0.08  # from a bracket to its cells
CAPTION = LINE + BRACKET + 0.04  # a name and the bracket below it
HEADER = 2 * LINE + 0.06


class Head(NamedTuple):
    """Tensors that one head computes for one query."""

    query: Tensor  # d_k
    keys: Tensor  # key, d_k
    match: Tensor  # key
    scores: Tensor  # key; -inf where a key is masked
    weights: Tensor  # key
    values: Tensor  # key, d_v
    context: Tensor  # d_v


class Run(NamedTuple):
    """Tensors that the layer computes for one query."""

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
    """Draw attention for one query from left to right, with one lane per head.

    Args:
        trace: A run of multi-head attention that keeps its operations.
        path: Name of the layer, such as "encoder.layers.0.self_attention"; "" if it ran alone.
        title: Claim of the figure.
        batch: Index of the sentence.
        query: Position of the query.
        labels: Names instead of indices, for query and key.

    Returns:
        The input row and its query. Each key has a row with its vector, the match, the score, the
        weight as a bar, and its value. The weighted sum of the values follows. Several heads are
        merged and multiplied by W_O. A masked key has score -inf and is crossed out.

    Raises:
        KeyError: If a tensor of the layer is not in the trace.
        ValueError: If the run does not fit on a page or has no such query, or if scores, weights,
            context or merged do not follow from the preceding tensors, as in a run with dropout.
    """
    run = _read(AttentionRun(trace, path, batch, query, labels), query)
    _check(run)
    canvas = Canvas()
    _draw(canvas, run)
    return canvas.finish(title, _summary(run), *_describe(run))


def _read(layer: AttentionRun, query: int) -> Run:
    """Read the tensors of one query."""
    scores = "masked_scores" if layer.has("masked_scores") else "scores"
    names = ("query_heads", "key_heads", scores, "weights", "value_heads", "context")
    heads = [
        Head(q[query], k, k @ q[query], s[query], w[query], v, c[query])
        for q, k, s, w, v, c in zip(*map(layer.values, names), strict=True)
    ]
    # The trace names the input of the projection differently for each layer.
    inputs = layer.entry("projected_query").explain(layer.batch, query, 0).inputs
    x = [element.value for element in inputs if element.name == inputs[0].name]
    merged, output = (layer.values(name)[query] for name in ("merged", "output"))
    x = torch.tensor(x, dtype=torch.float64, device="cpu")
    return Run(layer.word, layer.keys, x, heads, merged, output)


def _check(run: Run) -> None:
    """Check that the figure fits on a page, and that each tensor follows from earlier tensors."""
    d_k, d_v, count = len(run.heads[0].query), len(run.heads[0].context), len(run.heads)
    sizes = {"key": len(run.keys), "d_model": max(len(run.x), len(run.output)), "d_k": d_k,
             "d_v": d_v, "head*d_k": count * d_k, "head*d_v": count * d_v}  # fmt: skip
    check_sizes(sizes, LARGEST)
    for number, head in enumerate(run.heads):
        of_head = f"of head {number}"
        hidden = head.scores == -math.inf
        scaled = (head.match / math.sqrt(d_k)).masked_fill(hidden, -math.inf)
        check_same(f"heads: scores {of_head}", head.scores, "query · key / √d_k", scaled)
        # If all keys are masked, the weights are 0 instead of NaN.
        weights = torch.zeros_like(head.weights) if hidden.all() else head.scores.softmax(-1)
        check_same(f"heads: weights {of_head}", head.weights, "the softmax of its scores", weights)
        context = head.weights @ head.values
        check_same(f"heads: context {of_head}", head.context, "weights · values", context)
    contexts = torch.cat([head.context for head in run.heads])
    check_same("heads: merged", run.merged, "the contexts side by side", contexts)


def _summary(run: Run) -> str:
    """Format every number in the picture."""
    first, several = run.heads[0], len(run.heads) > 1
    columns = [*_columns("key", first.query), "match", "score", "weight"]
    columns += _columns("value", first.context)
    table = torch.stack(
        [
            torch.cat([h.keys, torch.stack([h.match, h.scores, h.weights], 1), h.values], 1)
            for h in run.heads
        ]
    )
    labels = {"key": [key.removeprefix("key ") for key in run.keys], "number": columns}
    printed = format_tensor(table, "head key number" if several else "1 key number", labels=labels)
    queries = "; ".join(numbers(head.query) for head in run.heads)
    return "\n".join([
        message("{word} asks", word=run.word),
        f"x        {numbers(run.x)}",
        f"query    {queries}",
        *printed.splitlines()[1:],  # without the first line: its sizes repeat the names
        f"{'merged ' if several else 'context'}  {numbers(run.merged)}",
        *([f"output   {numbers(run.output)}"] if several else []),
    ])  # fmt: skip


def _columns(name: str, row: Tensor) -> list[str]:
    return [f"{name} {number}" for number in range(len(row))] if len(row) > 1 else [name]


def _describe(run: Run) -> tuple[str, str]:
    """Describe the run twice: with all numbers, and with only the largest weights."""
    lanes = [_describe_head(head, run.keys) for head in run.heads]
    x = numbers(run.x)
    if len(run.heads) == 1:
        full = message("Attention of {word}. x: {x}. {head}.", word=run.word, x=x, head=lanes[0])
    else:
        lanes = [message("Head {number}. {head}", number=number, head=lane)
                 for number, lane in enumerate(lanes)]  # fmt: skip
        full = message(
            "Attention of {word}. x: {x}. {heads}. Merged: {merged}; "
            "times W_O: {output}.",
            word=run.word, x=x, heads=". ".join(lanes), merged=numbers(run.merged),
            output=numbers(run.output),
        )  # fmt: skip
    largest = [run.keys[int(h.weights.argmax())] if h.weights.any() else "-" for h in run.heads]
    short = message(
        "Attention of {word}. Key with the largest weight in each head: {keys}.",
        word=run.word, keys=", ".join(largest),
    )  # fmt: skip
    return full, short


def _describe_head(head: Head, keys: Sequence[str]) -> str:
    weights = "; ".join(
        message("{key} score {score}, weight {weight}", key=key, score=format_number(score),
                weight=format_number(weight))
        for key, score, weight in zip(
            keys, head.scores.tolist(), head.weights.tolist(), strict=True
        )
    )  # fmt: skip
    return message(
        "Query {query}: {weights}; context {context}",
        query=numbers(head.query), weights=weights, context=numbers(head.context),
    )  # fmt: skip


class _Sheet:
    """The canvas and the left edge of each column."""

    def __init__(self, canvas: Canvas, run: Run):
        self.canvas, self.run = canvas, run
        parts = [run.x, run.merged, run.output, *(part for head in run.heads for part in head)]
        values = torch.cat([part.flatten() for part in parts])
        values = values[values.isfinite()].tolist()
        self.paint = signed_paint(max(map(abs, values)))
        self.cell = max(canvas.width_of(format_number(value)) for value in values) + 0.08
        self.names = max(name_width(canvas, key) for key in run.keys) + 2 * GAP
        d_k, d_v = len(run.heads[0].query), len(run.heads[0].context)
        # A query and a context of one number each fit beside the keys.
        self.beside = d_k == d_v == 1
        # A line beside the lanes leads to their queries.
        self.is_branching = self.beside or len(run.heads) > 1
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
        edges = accumulate(widths.values(), initial=0.0)
        self.left = dict(zip([*widths, "end"], edges, strict=True))
        if not self.beside:
            self.left |= {"query": self.left["key"], "context": self.left["value"]}

    def row(self, values: Tensor, x: float, y: float, caption: str = "", axis: str = "") -> Grid:
        """Draw a vector, with its name and the bracket of its axis above."""
        grid = self.grid(values[None], x, y)
        if caption:
            over = grid.top - BRACKET
            self.canvas.bracket(axis, (grid.left, over), (grid.right, over), "top")
            text = f"{caption} ({axis})"
            self.canvas.text(grid.left + ASIDE, over - LINE / 2 - 0.02, text, align="left")
        return grid

    def grid(self, values: Tensor, x: float, y: float, keys: Sequence[str] = ()) -> Grid:
        """Draw a matrix, with the names of the keys beside its rows if `keys` is set."""
        grid = number_grid(
            self.canvas, values.tolist(), self.paint, row_axis="key" * bool(keys), row_names=keys,
            cell_height=HEIGHT, cell_width=self.cell,
        )  # fmt: skip
        return grid.draw_cells_at(x, y)


def _draw(canvas: Canvas, run: Run) -> None:
    """Draw the input row, the lanes below it, and the merge if there are several lanes."""
    sheet, several = _Sheet(canvas, run), len(run.heads) > 1
    x = -BRANCH - ASIDE if sheet.is_branching else sheet.left["query"]
    source = sheet.row(run.x, x, 0.0, message("x of {word}", word=run.word), "d_model")
    below = source.bottom + 0.16
    canvas.text(x + ASIDE, below, "W_Q," if several else "W_Q", align="left")
    if several:
        beyond = x + ASIDE + canvas.width_of("W_Q, ")
        canvas.text(beyond, below, message("split"), align="left", bold=True)
    y = source.bottom + (HEADER + 0.06 if sheet.beside else 0.28 + CAPTION)
    queries, contexts = [], []
    for number, head in enumerate(run.heads):
        query, key, context = _draw_head(sheet, head, number, y)
        queries.append(query)
        contexts.append(context)
        y = max(grid.bottom for grid in (query, key, context)) + APART
        y += CAPTION * (not sheet.beside)
    _lead_in(sheet, source, queries)
    if several:
        _merge(sheet, contexts)


def _draw_head(sheet: _Sheet, head: Head, number: int, y: float) -> tuple[Grid, Grid, Grid]:
    """Draw one lane: query and context beside the keys, or above and below them."""
    canvas, left = sheet.canvas, sheet.left
    name = f"head {number}" if len(sheet.run.heads) > 1 else ""
    if sheet.beside:
        key, value = _draw_columns(sheet, head, y)
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
        key, value = _draw_columns(sheet, head, query.bottom + header + APART)
        top = value.bottom + 0.28 + CAPTION
        context = sheet.row(head.context, left["context"], top, "context", "d_v")
        words = message("blend")
        canvas.text(value.left + ASIDE, value.bottom + 0.16, words, align="left", bold=True)
        _point_down(canvas, value, context)
        x, middle = left["match"] + sheet.cell / 2, query.row_middle(0)
        canvas.arrow((query.right + CLEAR, middle), (x, middle), (x, key.top - header - CLEAR))
    if number == 0:
        _name_columns(sheet, key.top)
    return query, key, context


def _draw_columns(sheet: _Sheet, head: Head, y: float) -> tuple[Grid, Grid]:
    """Draw key, match, score, weight bar and value, with one row per key."""
    canvas, left = sheet.canvas, sheet.left
    key = sheet.grid(head.keys, left["key"], y, sheet.run.keys)
    sheet.grid(head.match[:, None], left["match"], y)
    sheet.grid(head.scores[:, None], left["score"], y)
    value = sheet.grid(head.values, left["value"], y)
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


def _point_down(canvas: Canvas, start: Grid, end: Grid) -> None:
    """Draw an arrow from the left end of a matrix down to the bracket of another."""
    x = start.left + ASIDE / 2
    canvas.arrow((x, start.bottom + CLEAR), (x, end.top - BRACKET - CLEAR))


def _name_columns(sheet: _Sheet, y: float) -> None:
    """Label each column above a lane with its operation, in bold, and its result."""
    above, below = y - 1.5 * LINE - 0.05, y - 0.5 * LINE - 0.05
    width = len(sheet.run.heads[0].query)
    columns = {
        "match": (message("match"), "query · key"),
        "score": (message("scale"), message("÷ √{width}: scores", width=width)),
        "weight": (message("share"), message("weights")),
    }
    if sheet.beside:
        columns |= {"context": (message("blend"), "context"), "query": ("", "query")}
    for name, (operation, result) in columns.items():
        x = sheet.left[name] + (BAR if name == "weight" else sheet.cell) / 2
        sheet.canvas.text(x, above, operation, bold=True)
        sheet.canvas.text(x, below, result, size=SMALL_SIZE)
    for name, matrix in (("key", "W_K"), ("value", "W_V")):
        if sheet.beside:
            aside, align, origin = sheet.cell / 2, "center", message("by {matrix}", matrix=matrix)
        else:
            aside, align, origin = ASIDE, "left", message("each x by {matrix}", matrix=matrix)
        sheet.canvas.text(sheet.left[name] + aside, above, name, align=align)
        sheet.canvas.text(sheet.left[name] + aside, below, origin, size=SMALL_SIZE, align=align)


def _lead_in(sheet: _Sheet, source: Grid, queries: Sequence[Grid]) -> None:
    """Draw arrows from the input row to the query of each head."""
    if not sheet.is_branching:
        return _point_down(sheet.canvas, source, queries[0])
    x = source.left + ASIDE / 2
    end = queries[-1].row_middle(0)
    sheet.canvas.line([(x, source.bottom + CLEAR), (x, end)], width=1.2)
    for query in queries:
        height = query.row_middle(0)
        sheet.canvas.arrow((x, height), (query.left - CLEAR, height))


def _merge(sheet: _Sheet, contexts: Sequence[Grid]) -> None:
    """Draw the contexts side by side, and their product with W_O."""
    canvas, run = sheet.canvas, sheet.run
    around, turn = sheet.left["end"] + BRANCH, canvas.bottom + 0.14
    top = turn + 0.08 + CAPTION
    left = around - sheet.cell * len(run.output)
    output = sheet.row(run.output, left, top, "output", "d_model")
    left -= LAST_STEP + sheet.cell * len(run.merged)
    merged = sheet.row(run.merged, left, top, "merged", "head*d_v")
    for context in contexts:
        height = context.row_middle(0)
        canvas.line([(context.right + CLEAR, height), (around, height)], width=1.2)
    into = merged.left + ASIDE / 2
    start = around, contexts[0].row_middle(0)
    canvas.arrow(start, (around, turn), (into, turn), (into, merged.top - BRACKET - CLEAR))
    canvas.text(into - 0.1, turn + 0.14, message("merge"), align="right", bold=True)
    middle = merged.row_middle(0)
    canvas.arrow((merged.right + CLEAR, middle), (output.left - CLEAR, middle))
    canvas.text((merged.right + output.left) / 2, middle - 0.17, "W_O")
