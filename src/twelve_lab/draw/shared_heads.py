"""Figure of grouped-query attention: which heads share keys and values, and the KV cache."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from twelve_lab.draw.attention_run import AttentionRun, check_same, check_sizes, numbers
from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE, Grid, Paint, number_grid
from twelve_lab.draw.panels import signed_paint, weight_paint
from twelve_lab.messages import message
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.palette import PAPER, PART_FILLS, SHADE
from twelve_lab.show.table import Labels
from twelve_lab.trace.traced import Traced

# Larger sizes are too wide for one page.
LARGEST = {"head": 4, "key": 3, "d_k": 3}
HEIGHT = 0.31  # height of a cell
APART = 0.2  # gap between two query heads
DROP = 0.45  # from a query head to the shared head
BAR = 0.34  # height of the bar for the cache
AWAY = 0.1  # gap between a label and what it labels


class Run(NamedTuple):
    """Queries and weights of one position, with the keys and values of its sentence."""

    word: str
    keys: list[str]
    queries: Tensor  # head, d_k
    weights: Tensor  # head, key
    kept_keys: Tensor  # kv_head, key, d_k
    kept_values: Tensor  # kv_head, key, d_v

    @property
    def group(self) -> int:
        """Return the number of query heads that share one key-value head."""
        return len(self.queries) // len(self.kept_keys)

    @property
    def kept(self) -> int:
        """Return the number of elements in the KV cache."""
        return self.kept_keys.numel() + self.kept_values.numel()

    @property
    def unshared(self) -> int:
        """Return the number of elements that the cache would have if no head were shared."""
        return self.kept * self.group

    @property
    def weight_lists(self) -> list[str]:
        """Format the weights of each head, with the names of the keys."""
        return [
            "; ".join(
                f"{key} {format_number(weight)}"
                for key, weight in zip(self.keys, weights, strict=True)
            )
            for weights in self.weights.tolist()
        ]


def shared_heads(
    trace: Mapping[str, Traced],
    path: str = "",
    *,
    title: str,
    batch: int = 0,
    query: int = 0,
    labels: Labels | None = None,
) -> Drawing:
    """Draw which query heads share each key-value head.

    Args:
        trace: A run of grouped-query attention, with or without RoPE.
        path: Name of the layer, such as "layers.0.self_attention"; "" if it ran alone.
        title: Claim of the figure.
        batch: Index of the sentence.
        query: Position of the query.
        labels: Names instead of indices, for query and key.

    Returns:
        At the top, the query and the weights of each head. A line leads from each head to the keys
        and values that it shares. At the bottom, a bar shows how many elements the cache of the
        sentence has, relative to a cache without shared heads.

    Raises:
        KeyError: If a tensor of the layer is not in the trace.
        ValueError: If the run does not fit on a page or has no such query, or if its scores do not
            follow from keys shared by neighbouring heads.
    """
    layer = AttentionRun(trace, path, batch, query, labels)
    # Scores are computed after RoPE, if the layer uses it.
    rotated = layer.has("rotary.turned")
    queries = layer.values("rotary.turned" if rotated else "query_heads")
    run = Run(
        word=layer.word,
        keys=[name.removeprefix("key ") for name in layer.keys],
        queries=queries[:, query],
        weights=layer.values("weights")[:, query],
        kept_keys=layer.values("rotary#2.turned" if rotated else "key_heads"),
        kept_values=layer.values("value_heads"),
    )
    _check(run, layer.values("scores")[:, query])
    canvas = Canvas()
    _draw(canvas, run)
    return canvas.finish(title, _summary(run), *_describe(run))


def _check(run: Run, scores: Tensor) -> None:
    """Check that the figure fits on a page, and that the scores follow from the shared keys."""
    heads, d_k = run.queries.shape
    width = max(d_k, run.kept_values.size(-1))
    check_sizes({"head": heads, "key": len(run.keys), "d_k": width}, LARGEST)
    for head, (query, score) in enumerate(zip(run.queries, scores, strict=True)):
        kv_head = head // run.group
        formula = f"those with the keys of kv head {kv_head}"
        expected = run.kept_keys[kv_head] @ query / math.sqrt(d_k)
        check_same(f"shared_heads: scores of head {head}", score, formula, expected)


def _summary(run: Run) -> str:
    """Format every number in the picture."""
    lines = [message("{word} asks", word=run.word)]
    for head, (query, weights) in enumerate(zip(run.queries, run.weight_lists, strict=True)):
        lines.append(
            f"head {head}  query {numbers(query)}  weights {weights}  kv head {head // run.group}"
        )
    for name, width, kept in (("key", "d_k", run.kept_keys), ("value", "d_v", run.kept_values)):
        printed = format_tensor(kept, f"kv_head {name} {width}", labels={name: run.keys})
        # Skip the first line: its sizes repeat the rows.
        lines += [f"{name}s", *printed.splitlines()[1:]]
    lines.append(message("cache  {kept} of {all} numbers", kept=run.kept, all=run.unshared))
    return "\n".join(lines)


def _describe(run: Run) -> tuple[str, str]:
    counts = {"word": run.word, "heads": len(run.queries), "kv_heads": len(run.kept_keys),
              "kept": run.kept, "all": run.unshared}  # fmt: skip
    weights = ". ".join(
        message("Head {head} on kv head {kv_head}: {weights}", head=head,
                kv_head=head // run.group, weights=weights)
        for head, weights in enumerate(run.weight_lists)
    )  # fmt: skip
    full = message(
        "Grouped-query attention of {word}, query heads: {heads}, heads of keys "
        "and values: {kv_heads}. {weights}. The cache keeps {kept} of {all} numbers.",
        **counts, weights=weights,
    )  # fmt: skip
    short = message(
        "Grouped-query attention of {word}, query heads: {heads}, heads of keys "
        "and values: {kv_heads}. The cache keeps {kept} of {all} numbers.",
        **counts,
    )
    return full, short


def _draw(canvas: Canvas, run: Run) -> None:
    values = torch.cat([part.flatten() for part in (run.queries, run.kept_keys, run.kept_values)])
    signed = signed_paint(values.abs().max().item())
    cell = max(canvas.width_of(format_number(x)) for x in values.tolist()) + 0.08
    columns = max(run.queries.size(1), len(run.keys), run.kept_values.size(-1))
    step = cell * columns + APART

    def grid(values: Tensor, x: float, y: float, paint: Paint = signed, **names: Any) -> Grid:
        drawn = number_grid(
            canvas, values.tolist(), paint, cell_height=HEIGHT, cell_width=cell, **names
        )
        return drawn.draw_cells_at(x, y)

    bottoms = []
    for head, query in enumerate(run.queries):
        x = head * step
        canvas.text(x, -LINE / 2, f"head {head}", align="left", bold=True)
        top = grid(query[None], x, 0.0)
        y = top.bottom + 1.4 * LINE
        weights = grid(run.weights[head][None], x, y, weight_paint, column_names=run.keys)
        bottoms.append((x + cell * columns / 2, weights.bottom))
        if head == 0:
            canvas.text(-AWAY, top.row_middle(0), message("query of {word}", word=run.word),
                        align="right")  # fmt: skip
            canvas.text(-AWAY, weights.row_middle(0), message("its weights"), align="right")
    right = (len(run.queries) - 1) * step + cell * columns
    canvas.bracket("head", (0.0, -LINE - 0.06), (right, -LINE - 0.06), "top")
    canvas.text(right / 2, -1.7 * LINE - 0.02, "head")

    top = bottoms[0][1] + DROP + LINE
    for number, (keys, values) in enumerate(zip(run.kept_keys, run.kept_values, strict=True)):
        heads = bottoms[number * run.group : (number + 1) * run.group]
        middle = sum(x for x, _ in heads) / len(heads)
        x = middle - cell * keys.size(-1) / 2
        for start, bottom in heads:
            canvas.line([(start, bottom + 0.04), (middle, top - LINE - 0.04)], width=1.2)
        canvas.text(middle, top - LINE / 2, f"kv head {number}", bold=True)
        y = top
        for word, kept in (("key", keys), ("value", values)):
            names = {"row_axis": "key", "row_names": [f"{word} {key}" for key in run.keys]}
            bottom = grid(kept, x, y, **names if number == 0 else {}).bottom
            y = bottom + 0.1
    _draw_cache(canvas, run, right, bottom + 0.24)


def _draw_cache(canvas: Canvas, run: Run, width: float, y: float) -> None:
    """Draw the size of the cache, relative to a cache without shared heads."""
    canvas.text(-AWAY, y + BAR / 2, "cache", align="right")
    x = 0.0
    for number, pair in enumerate(zip(run.kept_keys, run.kept_values, strict=True)):
        for name, part, fill in zip(("K", "V"), pair, PART_FILLS, strict=False):
            length = width * part.numel() / run.unshared
            canvas.box(x, y, length, BAR, fill=fill)
            canvas.text(x + length / 2, y + BAR / 2, f"{name} {number}: {part.numel()}")
            x += length
    if run.kept < run.unshared:
        canvas.box(x, y, width - x, BAR, fill=SHADE, hatched=True)
        words = message("not kept: {count}", count=run.unshared - run.kept)
        canvas.text((x + width) / 2, y + BAR / 2, words, ground=PAPER)
    canvas.text(width + AWAY, y + BAR / 2, f"{run.kept}", align="left", bold=True)
