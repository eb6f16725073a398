"""Figure of an influence map: which outputs move when a token is replaced."""

import re
from collections.abc import Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any, NamedTuple

from torch import Tensor

from twelve_lab.draw.alt_text import index_name, true_entries
from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import GAP
from twelve_lab.messages import message
from twelve_lab.show.format import format_tensor
from twelve_lab.show.palette import INK, PAPER, SPOTLIGHT
from twelve_lab.show.table import Table, as_plain_tensor, is_nested

CELL_WIDTH, CELL_HEIGHT = 0.5, 0.38
NAME_HEIGHT = 0.25
BETWEEN = 0.2  # gap between two maps


def influence(
    grid: Any,
    row_labels: Sequence[Any] | None = None,
    column_labels: Sequence[Any] | None = None,
    *,
    title: str,
    batch: int = 2,
) -> Drawing:
    """Draw which outputs (rows) move when an input token (column) is replaced.

    Args:
        grid: Result of `lab.influence`, or a boolean matrix with one row per output position of
            every sentence and one column per input token.
        row_labels: Labels of the output positions: one list, or one list per sentence. A prefix
            that all labels of a sentence share, as in "tgt cat" and "tgt fish", is printed once.
            Words before a colon, as in "no mask: batch 0 cat", name one of several maps.
        column_labels: Labels of the input tokens, in the same format.
        title: Claim of the figure.
        batch: Number of sentences of equal length, if the labels are one flat list.

    Returns:
        A grid with a dot where an output moves. Thick lines separate the sentences, and gaps
        separate the maps.

    Raises:
        ValueError: If flat labels cannot be split into `batch` sentences of equal length.
    """
    result = grid
    grid = as_plain_tensor(getattr(result, "grid", result)).bool()
    rows = _side(row_labels, getattr(result, "outputs", None), grid.shape[0], batch)
    columns = _side(column_labels, getattr(result, "tokens", None), grid.shape[1], batch)
    labels = {
        axis: [label for sentence in side for label in sentence.labels]
        for axis, side in (("output", rows), ("token", columns))
    }
    table = Table.of(grid, "output token", labels)
    canvas = Canvas()
    _draw_maps(canvas, grid, rows, columns)
    return canvas.finish(
        title,
        format_tensor(table.values, table.axes, labels=table.labels),
        message(
            "Influence map {sizes}: a dot where an output moves when a token is replaced. "
            "Dots by sentence of outputs × sentence of tokens: {dots}. No other dots.",
            sizes=table.sizes, dots=_dots(grid, rows, columns) or message("none"),
        ),
        message(
            "Influence map {sizes}: a dot where an output moves when a token is replaced, "
            "{count} dots.",
            sizes=table.sizes, count=int(grid.sum()),
        ),
    )  # fmt: skip


class Sentence(NamedTuple):
    """Labels of one sentence: in full, and split into map name, common prefix and rest."""

    labels: list[str]
    of_map: str
    head: str
    words: list[str]


def _side(labels: Any, of_result: Any, size: int, batch: int) -> list[Sentence]:
    """Group the labels of one axis by sentence, and split off their prefixes."""
    names = labels if labels is not None else range(size) if of_result is None else of_result
    if is_nested(names):
        sentences = [list(map(str, sentence)) for sentence in names]
    else:
        length, rest = divmod(len(names), batch)
        if rest:
            raise ValueError(
                f"influence: labels must make batch={batch} sentences of equal length, "
                f"got {len(names)} labels"
            )
        flat = list(map(str, names))
        sentences = [flat[i * length : (i + 1) * length] for i in range(batch)]
    if labels is None:  # "out 0,1" becomes "out 1": the heading names the sentence
        return [
            Sentence(names, "", f"batch {i}", [re.sub(r"\b\d+,", "", name) for name in names])
            for i, names in enumerate(sentences)
        ]
    return [_split(labels, f"batch {i}") for i, labels in enumerate(sentences)]


def _split(labels: list[str], default: str) -> Sentence:
    """Split labels into map name, common prefix and rest."""
    words = [label.split() for label in labels]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False))
    shared = min(len(list(same)) * (len(labels) > 1), min(map(len, words)) - 1)
    of_map, colon, head = " ".join(words[0][:shared]).rpartition(":")
    rest = [" ".join(line[shared:]) for line in words]
    return Sentence(labels, of_map, head.strip() or ("" if colon else default), rest)


def _words(sentences: list[Sentence]) -> list[str]:
    return [word for sentence in sentences for word in sentence.words]


def _draw_maps(canvas: Canvas, grid: Tensor, rows: list[Sentence], columns: list[Sentence]) -> None:
    """Draw the maps one below the other from (0, 0), with labels to the left and above."""
    column_words, row_words = _words(columns), _words(rows)
    width = max(CELL_WIDTH, *(canvas.width_of(word) + 0.14 for word in column_words))
    names = max(map(canvas.width_of, row_words)) + 2 * GAP
    heads = _room(canvas, [sentence.head for sentence in rows])
    maps = _room(canvas, [sentence.of_map for sentence in rows])
    left, bottom, start = -names - heads - maps - GAP, -BETWEEN, 0
    for _, group in groupby(rows, key=lambda sentence: sentence.of_map):
        members, y = list(group), bottom + BETWEEN
        end = start + len(_words(members))
        bottom = _draw_map(canvas, grid[start:end], members, columns, width, y)
        start = end
        for first, end, head in _spans(members):
            if head and first:
                height = y + first * CELL_HEIGHT
                canvas.line([(left + maps + GAP, height), (0.0, height)], width=0.8)
            canvas.text(-names, y + (first + end) / 2 * CELL_HEIGHT, head, align="right", bold=True)
        canvas.text(left + GAP, (y + bottom) / 2, members[0].of_map, align="left", bold=True)

    top, right = -NAME_HEIGHT * 2 - GAP, width * len(column_words)
    for j, word in enumerate(column_words):
        canvas.text((j + 0.5) * width, -NAME_HEIGHT / 2, word)
    for start, end, head in _spans(columns):
        canvas.text((start + end) / 2 * width, -NAME_HEIGHT * 1.5, head, bold=True)
        if start:
            canvas.line([(start * width, top + GAP), (start * width, 0.0)], width=0.8)
    canvas.bracket("token", (0.0, top), (right, top), "top")
    words = message("when this token is replaced")
    canvas.text(max(right, canvas.width_of(words)) / 2, top - NAME_HEIGHT / 2 - 0.03, words)
    canvas.bracket("output", (left, 0.0), (left, bottom), "left")
    canvas.text(left - GAP, bottom / 2, message("this\noutput\nmoves"), align="right")


def _room(canvas: Canvas, names: list[str]) -> float:
    """Return the width of a column of bold names, including the gap to the next column."""
    widest = max(canvas.width_of(name, bold=True) for name in names)
    return widest + 2 * GAP if widest else 0.0


def _draw_map(
    canvas: Canvas, grid: Tensor, rows: list[Sentence], columns: list[Sentence],
    width: float, top: float,
) -> float:  # fmt: skip
    """Draw the cells, row labels and thick lines of one map; return its lower edge."""
    right, bottom = width * grid.shape[1], top + CELL_HEIGHT * grid.shape[0]
    for i, row in enumerate(grid.tolist()):
        for j, is_moved in enumerate(row):
            x, y = j * width, top + i * CELL_HEIGHT
            canvas.box(x, y, width, CELL_HEIGHT, fill=SPOTLIGHT if is_moved else PAPER)
            if is_moved:
                canvas.dot(x + width / 2, y + CELL_HEIGHT / 2, size=10)
    for i, word in enumerate(_words(rows)):
        canvas.text(-GAP, top + (i + 0.5) * CELL_HEIGHT, word, align="right")
    for end in _ends(rows)[:-1]:
        y = top + end * CELL_HEIGHT
        canvas.line([(0.0, y), (right, y)], width=2.4)
    for end in _ends(columns)[:-1]:
        canvas.line([(end * width, top), (end * width, bottom)], width=2.4)
    canvas.box(0.0, top, right, bottom - top, fill="none", edge=INK, line=2.4)
    return bottom


def _ends(sentences: list[Sentence]) -> list[int]:
    """Return the end index of each sentence."""
    return list(accumulate(len(sentence.words) for sentence in sentences))


def _spans(sentences: list[Sentence]) -> list[tuple[int, int, str]]:
    """Return (start, end, head) of each sentence; merge neighbours with the same head."""
    spans, start = [], 0
    for head, group in groupby(sentences, key=lambda sentence: sentence.head):
        end = start + len(_words(list(group)))
        spans.append((start, end, head))
        start = end
    return spans


def _dots(grid: Tensor, rows: list[Sentence], columns: list[Sentence]) -> str:
    """Describe the dots of each pair of sentences that has any; merge equal descriptions."""
    pairs: dict[str, list[str]] = {}
    widths = [len(sentence.words) for sentence in columns]
    bands = grid.split([len(sentence.words) for sentence in rows], 0)
    for row, band in zip(rows, bands, strict=True):
        for column, block in zip(columns, band.split(widths, 1), strict=True):
            if block.any():
                outputs = [index_name("output", word) for word in row.words]
                tokens = [index_name("token", word) for word in column.words]
                name = f"{row.of_map} {row.head} × {column.head}".strip()
                entries = true_entries(block.tolist(), outputs, tokens)
                pairs.setdefault(entries, []).append(name)
    return "; ".join(f"{', '.join(names)}: {entries}" for entries, names in pairs.items())
