"""Heads that ask above the heads of keys and values that they share, and what a cache keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE, Grid, Paint
from twelve_lab.draw.panels import signed_paint, weight_paint
from twelve_lab.draw.prose import capital, index_name, plural, tell
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.palette import PART_FILLS, SHADE
from twelve_lab.show.table import Block, Labels, Table, as_plain_tensor

if TYPE_CHECKING:
    from twelve_lab.trace.traced import Traced

# More than this is too wide to be read on one page.
LARGEST = {"head": 4, "key": 3, "d_k": 3}
HEIGHT = 0.31  # of a cell
APART = 0.2  # between two heads that ask
DROP = 0.45  # from a head that asks to the one that it shares
BAR = 0.34  # the height of the cache
AWAY = 0.1  # from a name to what it names


class Run(NamedTuple):
    """What one query meets in each head."""

    word: str
    keys: list[str]
    queries: Tensor  # head, d_k
    weights: Tensor  # head, key
    kept_keys: Tensor  # kv_head, key, d_k
    kept_values: Tensor  # kv_head, key, d_v

    @property
    def group(self) -> int:
        """Count the heads that share one head of keys and values."""
        return len(self.queries) // len(self.kept_keys)


def shared_heads(
    trace: Mapping[str, Traced],
    path: str = "",
    *,
    title: str,
    batch: int = 0,
    query: int = 0,
    labels: Labels | None = None,
) -> Drawing:
    """Draw which heads that ask share which head of keys and values.

    Args:
        trace: A run of a grouped-query attention, which turns by its own angles or not at all.
        path: The layer, as "layers.0.self_attention"; "" if it ran alone.
        title: The claim of the figure.
        batch: The sentence.
        query: The position in it that asks.
        labels: Names instead of indices, for query and key.

    Returns:
        Above, for each head its query and its weights; a line leads to the keys and values that
        it shares. Below, the numbers of the sentence that a cache keeps, a bar as long as what it
        would keep if every head had keys and values of its own.

    Raises:
        KeyError: A tensor of the layer is not in the trace.
        ValueError: The run is too large to be printed or has no such query, or its scores are not
            those of neighbouring heads that share their keys.
    """
    run = _read(trace, path, batch, query, labels)
    canvas = Canvas()
    _draw(canvas, run)
    return canvas.finish(title, tell(title, *_in_words(run)), _summary(run))


def _read(
    trace: Mapping[str, Traced], path: str, batch: int, query: int, labels: Labels | None
) -> Run:
    """Take one query's numbers from the run."""

    def entry(name: str) -> Traced:
        return trace[".".join(filter(None, (path, name)))]

    table = Table.of(entry("weights"), labels=labels)
    if not (0 <= batch < len(table.values) and 0 <= query < table.values.size(2)):
        raise ValueError(f"batch {batch}, query {query} is not in weights {table.sizes}")
    # What meets in the scores is turned, where there is a rotation.
    is_turned = ".".join(filter(None, (path, "rotary.turned"))) in trace
    names = ("rotary.turned", "rotary#2.turned") if is_turned else ("query_heads", "key_heads")
    asked, keys, values, weights, scores = (
        as_plain_tensor(entry(name).value)[batch]
        for name in (*names, "value_heads", "weights", "scores")
    )
    run = Run(
        word=index_name("query", table.names_along(2, (batch, 0))[query]),
        keys=[name.removeprefix("key ") for name in table.names_along(3, (batch, 0))],
        queries=asked[:, query],
        weights=weights[:, query],
        kept_keys=keys,
        kept_values=values,
    )
    _check(run, scores[:, query])
    return run


def _check(run: Run, scores: Tensor) -> None:
    """Hold the sizes against those that fit on a page, and the scores against the lines."""
    heads, d_k = run.queries.shape
    sizes = {"head": heads, "key": len(run.keys), "d_k": max(d_k, run.kept_values.size(-1))}
    if any(size > LARGEST[axis] for axis, size in sizes.items()):
        told = [", ".join(f"{axis}={n}" for axis, n in each.items()) for each in (sizes, LARGEST)]
        raise ValueError(f"too large to be drawn: {told[0]}; at most {told[1]} can be printed")
    for head, (asked, found) in enumerate(zip(run.queries, scores, strict=True)):
        kept = run.kept_keys[head // run.group]
        wanted = kept @ asked / math.sqrt(d_k) if kept.shape == (len(found), d_k) else found * 0
        if not torch.allclose(found, wanted, atol=1e-5):
            raise ValueError(
                f"head {head} scores {_numbers(found)}, but with the keys of kv head "
                f"{head // run.group} {_numbers(wanted)}"
            )


def _numbers(values: Tensor) -> str:
    return ", ".join(map(format_number, values.tolist()))


def _counts(run: Run) -> tuple[int, int]:
    """Count the numbers that are kept, and those of as many kv heads as ask."""
    kept = run.kept_keys.numel() + run.kept_values.numel()
    return kept, kept * run.group


def _summary(run: Run) -> str:
    """Print every number of the picture."""
    kept, all_of_them = _counts(run)
    lines = [f"{run.word} asks"]
    for head, asked in enumerate(run.queries):
        shares = "; ".join(
            f"{key} {format_number(weight)}"
            for key, weight in zip(run.keys, run.weights[head].tolist(), strict=True)
        )
        lines.append(
            f"head {head}  query {_numbers(asked)}  weights {shares}  kv head {head // run.group}"
        )
    for name, width, numbers in (("key", "d_k", run.kept_keys), ("value", "d_v", run.kept_values)):
        printed = format_tensor(numbers, f"kv_head {name} {width}", labels={name: run.keys})
        # The first line, of sizes, says nothing that the rows do not.
        lines += [f"{name}s", *printed.splitlines()[1:]]
    lines.append(f"cache  {kept} of {all_of_them} numbers")
    return "\n".join(lines)


def _in_words(run: Run) -> list[str]:
    """Tell who shares what: with the weights, or without."""
    heads, shared = len(run.queries), len(run.kept_keys)
    kept, all_of_them = _counts(run)
    begin = (
        f"{capital(run.word)} asks in {heads} {plural('head', heads)} on {shared} "
        f"{plural('head', shared)} of keys and values"
    )
    whose = [
        f"Head {head} on kv head {head // run.group}: "
        + "; ".join(
            f"{key} {format_number(weight)}"
            for key, weight in zip(run.keys, run.weights[head].tolist(), strict=True)
        )
        for head in range(heads)
    ]
    end = f"The cache keeps {kept} of {all_of_them} numbers"
    return [f"{begin}. {'. '.join(whose)}. {end}", f"{begin}. {end}"]


def _draw(canvas: Canvas, run: Run) -> None:
    numbers = torch.cat([part.flatten() for part in (run.queries, run.kept_keys, run.kept_values)])
    signed = signed_paint(numbers.abs().max().item())
    cell = max(canvas.width_of(format_number(x)) for x in numbers.tolist()) + 0.08
    columns = max(run.queries.size(1), len(run.keys), run.kept_values.size(-1))
    step = cell * columns + APART

    def grid(
        values: Tensor, x: float, y: float, paint: Paint, names: list[str] | None = None,
        heads: list[str] | None = None,
    ) -> Grid:  # fmt: skip
        rows, width = values.shape
        block = Block(
            (), [], "key" if names else "", "", names or [""] * rows, heads or [""] * width,
            values.tolist(),
        )  # fmt: skip
        size = {"cell_height": HEIGHT, "cell_width": cell, "named": False}
        return Grid(canvas, block, paint, **size).draw_cells_at(x, y)

    bottoms = []
    for head, asked in enumerate(run.queries):
        x = head * step
        canvas.text(x, -LINE / 2, f"head {head}", align="left", bold=True)
        top = grid(asked[None], x, 0.0, signed)
        y = top.bottom + 1.4 * LINE
        share = grid(run.weights[head][None], x, y, weight_paint, heads=run.keys)
        bottoms.append((x + cell * columns / 2, share.bottom))
        if head == 0:
            for row, name in ((top, f"query of {run.word}"), (share, "its weights")):
                canvas.text(-AWAY, row.row_middle(0), name, align="right")
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
        named = number == 0
        kept = grid(keys, x, top, signed, [f"key {key}" for key in run.keys] if named else None)
        below = kept.bottom + 0.1
        kept = grid(
            values, x, below, signed, [f"value {key}" for key in run.keys] if named else None
        )
    _draw_cache(canvas, run, right, kept.bottom + 0.24)


def _draw_cache(canvas: Canvas, run: Run, width: float, y: float) -> None:
    """Draw what is kept, to the length of what every head would keep for itself."""
    kept, all_of_them = _counts(run)
    canvas.text(-AWAY, y + BAR / 2, "cache", align="right")
    x = 0.0
    for number, pair in enumerate(zip(run.kept_keys, run.kept_values, strict=True)):
        for name, part, fill in zip(("K", "V"), pair, PART_FILLS, strict=False):
            length = width * part.numel() / all_of_them
            canvas.box(x, y, length, BAR, fill=fill)
            canvas.text(x + length / 2, y + BAR / 2, f"{name} {number}: {part.numel()}")
            x += length
    if kept < all_of_them:
        canvas.box(x, y, width - x, BAR, fill=SHADE, hatched=True)
        canvas.text((x + width) / 2, y + BAR / 2, f"not kept: {all_of_them - kept}", paper=True)
    canvas.text(width + AWAY, y + BAR / 2, f"{kept}", align="left", bold=True)
