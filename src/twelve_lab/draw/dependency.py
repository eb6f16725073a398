"""Figure of an influence map: which output moves when which token is replaced."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any, NamedTuple

from torch import Tensor

from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import GAP
from twelve_lab.draw.prose import capital, index_name, listed, rows_in_words, shape_in_words, tell
from twelve_lab.show.format import format_tensor
from twelve_lab.show.palette import INK, PAPER, SPOTLIGHT
from twelve_lab.show.table import Table, as_plain_tensor, is_nested

CELL_WIDTH, CELL_HEIGHT = 0.5, 0.38
NAME_HEIGHT = 0.25
BETWEEN = 0.2  # from one map to the next
ROWS, COLUMNS = "this\noutput\nmoves", "when this token is replaced"


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
        grid: What `lab.influence` found, or booleans with one row per output position of every
            sentence and one column per input token.
        row_labels: The output positions: one list, or one list per sentence. What the labels of a
            sentence begin with, as in "tgt cat" and "tgt fish", is written once; what stands
            before a colon, as in "no mask: batch 0 cat", names one of several maps.
        column_labels: The input tokens, likewise.
        title: The claim of the figure.
        batch: How many sentences of equal length, where the labels are one flat list.

    Returns:
        A dot where the output moves; thick lines part the sentences, and a gap the maps.

    Raises:
        ValueError: Flat labels do not make `batch` sentences of equal length.
    """
    found = grid
    grid = as_plain_tensor(getattr(found, "grid", found)).bool()
    rows = _side(row_labels, getattr(found, "outputs", None), grid.shape[0], batch)
    columns = _side(column_labels, getattr(found, "tokens", None), grid.shape[1], batch)
    labels = {"output": _labels(rows), "token": _labels(columns)}
    table = Table.of(grid, "output token", labels)
    canvas = Canvas()
    _draw_maps(canvas, grid, rows, columns)
    where = f"Influence map {table.sizes}: a dot where an output moves when a token is replaced"
    alt = tell(
        title, f"{where}. {_in_words(grid, rows, columns)}", f"{where}, {int(grid.sum())} in all"
    )
    return canvas.finish(title, alt, format_tensor(table.values, table.axes, labels=table.labels))


class Sentence(NamedTuple):
    """The labels of one sentence: in full, and what they begin with apart from the rest."""

    labels: list[str]
    of_map: str
    head: str
    words: list[str]


def _side(given: Any, found: Any, size: int, batch: int) -> list[Sentence]:
    """Group the labels of one side by sentence, and find what those of a sentence share."""
    names = given if given is not None else range(size) if found is None else found
    if is_nested(names):
        sentences = [list(map(str, sentence)) for sentence in names]
    else:
        length, rest = divmod(len(names), batch)
        if rest:
            raise ValueError(
                f"{len(names)} labels do not make batch={batch} sentences of equal length"
            )
        flat = list(map(str, names))
        sentences = [flat[i * length : (i + 1) * length] for i in range(batch)]
    is_named = given is not None
    return [_part(labels, f"batch {i}", is_named) for i, labels in enumerate(sentences)]


def _part(labels: list[str], otherwise: str, is_named: bool) -> Sentence:
    """Split labels into map, the words they all begin with, and the rest."""
    if not is_named:  # "out 0,1" stands under its sentence
        return Sentence(labels, "", otherwise, [re.sub(r"\b\d+,", "", label) for label in labels])
    words = [label.split() for label in labels]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False))
    shared = min(len(list(same)) * (len(labels) > 1), min(map(len, words)) - 1)
    of_map, colon, head = " ".join(words[0][:shared]).rpartition(":")
    rest = [" ".join(line[shared:]) for line in words]
    return Sentence(labels, of_map, head.strip() or ("" if colon else otherwise), rest)


def _labels(sentences: list[Sentence]) -> list[str]:
    return [label for sentence in sentences for label in sentence.labels]


def _words(sentences: list[Sentence]) -> list[str]:
    return [word for sentence in sentences for word in sentence.words]


def _maps(rows: list[Sentence]) -> list[tuple[int, list[Sentence]]]:
    """List (first row, sentences) of each map."""
    maps, start = [], 0
    for _, group in groupby(rows, key=lambda sentence: sentence.of_map):
        members = list(group)
        maps.append((start, members))
        start += len(_words(members))
    return maps


def _draw_maps(canvas: Canvas, grid: Tensor, rows: list[Sentence], columns: list[Sentence]) -> None:
    """Draw the maps one below the other from (0, 0), with the names to the left and above."""
    column_words, row_words = _words(columns), _words(rows)
    width = max(CELL_WIDTH, *(canvas.width_of(word) + 0.14 for word in column_words))
    names = max(map(canvas.width_of, row_words)) + 2 * GAP
    heads = _room(canvas, [sentence.head for sentence in rows])
    maps = _room(canvas, [sentence.of_map for sentence in rows])
    left, y = -names - heads - maps - GAP, 0.0
    for start, members in _maps(rows):
        cells = grid[start : start + len(_words(members))]
        bottom = _draw_map(canvas, cells, members, columns, width, y)
        for first, _, head in _spans(members):
            if head and first:
                height = y + first * CELL_HEIGHT
                canvas.line([(left + maps + GAP, height), (0.0, height)], width=0.8)
        for first, end, head in _spans(members):
            canvas.text(-names, y + (first + end) / 2 * CELL_HEIGHT, head, align="right", bold=True)
        canvas.text(left + GAP, (y + bottom) / 2, members[0].of_map, align="left", bold=True)
        y = bottom + BETWEEN
    bottom = y - BETWEEN

    top, right = -NAME_HEIGHT * 2 - GAP, width * len(column_words)
    for j, word in enumerate(column_words):
        canvas.text((j + 0.5) * width, -NAME_HEIGHT / 2, word)
    for start, end, head in _spans(columns):
        canvas.text((start + end) / 2 * width, -NAME_HEIGHT * 1.5, head, bold=True)
        if start:
            canvas.line([(start * width, top + GAP), (start * width, 0.0)], width=0.8)
    canvas.bracket("token", (0.0, top), (right, top), "top")
    canvas.text(max(right, canvas.width_of(COLUMNS)) / 2, top - NAME_HEIGHT / 2 - 0.03, COLUMNS)
    canvas.bracket("output", (left, 0.0), (left, bottom), "left")
    canvas.text(left - GAP, bottom / 2, ROWS, align="right")


def _room(canvas: Canvas, names: list[str]) -> float:
    """Measure a column of bold names, with its distance from the next."""
    widest = max(canvas.width_of(name, bold=True) for name in names)
    return widest + 2 * GAP if widest else 0.0


def _draw_map(
    canvas: Canvas,
    grid: Tensor,
    rows: list[Sentence],
    columns: list[Sentence],
    width: float,
    top: float,
) -> float:
    """Draw the cells of one map, the names of its rows and its thick lines; return the bottom."""
    right, bottom = width * grid.shape[1], top + CELL_HEIGHT * grid.shape[0]
    for i, row in enumerate(grid.tolist()):
        for j, moved in enumerate(row):
            x, y = j * width, top + i * CELL_HEIGHT
            canvas.box(x, y, width, CELL_HEIGHT, fill=SPOTLIGHT if moved else PAPER)
            if moved:
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
    """List where each sentence ends."""
    return list(accumulate(len(sentence.words) for sentence in sentences))


def _spans(sentences: list[Sentence]) -> list[tuple[int, int, str]]:
    """List (start, end, head), one for all neighbours of the same head."""
    spans, start = [], 0
    for head, group in groupby(sentences, key=lambda sentence: sentence.head):
        end = start + sum(len(sentence.words) for sentence in group)
        spans.append((start, end, head))
        start = end
    return spans


def _in_words(grid: Tensor, rows: list[Sentence], columns: list[Sentence]) -> str:
    """Tell of each map, and of each side of it that has several sentences, where its dots are."""
    heads = [sentence.head for sentence in columns]
    sides = [(head, heads.count(head)) for head in dict.fromkeys(heads)]
    if all(count == 1 for _, count in sides):
        sides = [("", len(columns))]
    parts = []
    for start, members in _maps(rows):
        cells = grid[start : start + len(_words(members))]
        first, said = 0, []
        for head, count in sides:
            of_side = columns[first : first + count]
            begin = len(_words(columns[:first]))
            words = _blocks_in_words(
                cells[:, begin : begin + len(_words(of_side))], members, of_side
            )
            said.append(f"{head}: {words}" if head else words)
            first += count
        name = members[0].of_map
        text = "; ".join(said)
        parts.append(capital(f"{name}: {text}" if name else text))
    return ". ".join(parts)


def _blocks_in_words(grid: Tensor, rows: list[Sentence], columns: list[Sentence]) -> str:
    """Tell where the dots of a map are: the same in each sentence, sentence by sentence, or all."""
    if not grid.any():
        return "no dot"
    lengths = [[len(sentence.words) for sentence in side] for side in (rows, columns)]
    blocks = [line.split(lengths[1], 1) for line in grid.split(lengths[0], 0)]
    if len(rows) != len(columns) or len(rows) == 1 or any(
        block.any() for i, line in enumerate(blocks) for j, block in enumerate(line) if i != j
    ):  # fmt: skip
        outputs, tokens = (_full_names(side) for side in (rows, columns))
        return _dots(grid, outputs, tokens)
    own = [
        _dots(blocks[i][i], row.words, column.words)
        for i, (row, column) in enumerate(zip(rows, columns, strict=True))
    ]
    if len(set(own)) == 1:
        return f"{own[0]} in each sentence, nothing between sentences"
    parts = [f"in sentence {i} {words}" for i, words in enumerate(own)]
    return f"nothing between sentences, {', '.join(parts)}"


def _dots(grid: Tensor, outputs: list[str], tokens: list[str]) -> str:
    """Tell where the dots are: by their shape, or row by row."""
    shape = shape_in_words(grid.tolist())
    if shape:
        known = {"full": "a full block", "empty": "no dot", "diagonal": "the diagonal alone"}
        return known.get(shape, f"{'an' if shape[0] == 'u' else 'a'} {shape}")
    tokens = [index_name("token", token) for token in tokens]
    movers = [
        listed([token for token, moved in zip(tokens, row, strict=True) if moved] or ["none"])
        for row in grid.tolist()
    ]
    outputs = [index_name("output", output) for output in outputs]
    return rows_in_words(zip(outputs, movers, strict=True), " moved by ")


def _full_names(sentences: list[Sentence]) -> list[str]:
    return [f"{sentence.head} {word}" for sentence in sentences for word in sentence.words]
