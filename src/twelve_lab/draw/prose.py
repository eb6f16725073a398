"""What a figure shows, in words: the parts of its alt text, all taken from the plotted data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import torch

from twelve_lab.show.format import cell_text, format_number
from twelve_lab.show.table import Block, Table

LONGEST = 600  # characters of an alt text, so that it can be listened to
FEW_NUMBERS = 24  # a tensor of up to this many is read out whole


def tell(title: str, *versions: str) -> str:
    """Put the title before the first version that is short enough, or before the last one.

    Args:
        title: The claim of the figure.
        versions: What else it shows, the fullest first, each without its full stop.
    """
    claim = title if title[-1] in ".?!" else f"{title}."
    texts = [f"{claim} {version}." for version in versions]
    return next((text for text in texts if len(text) <= LONGEST), texts[-1])


def listed(words: Iterable[str]) -> str:
    """Join words as "a, b and c"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def index_name(axis: str, name: str) -> str:
    """Name an index: "query 0", but "dog" where it has a word of its own."""
    return f"{axis} {name}" if name.isdigit() else name


def matrices(table: Table) -> str:
    """Count the matrices that a tensor is drawn as."""
    panels = len(list(table.compact.blocks()))
    return "one matrix" if panels == 1 else f"{panels} matrices"


def attention_in_words(table: Table, decimals: int = 4) -> tuple[str, ...]:
    """Tell at what each query looks most: with the weights, without them, or as a range."""
    blocks = list(table.compact.blocks(elide=False))
    head = f"Attention weights {table.sizes}; rows ask, and look most at the columns named. "
    tops = [max(row) for block in blocks for row in block.rows]
    lowest, highest = (format_number(top, decimals) for top in (min(tops), max(tops)))
    spread = f"from {lowest} to {highest}"
    return (
        head + ". ".join(_looks(block, decimals, with_weights=True) for block in blocks),
        head + ". ".join(_looks(block, decimals, with_weights=False) for block in blocks),
        head + f"The largest weights go {spread}",
    )


def _mask_in_words(table: Table) -> tuple[str, ...]:
    """Tell where the ticks of a mask are: by its shape or row by row, or how many they are."""
    ticks, cells = int(table.values.sum()), table.values.numel()
    head = f"Mask {table.sizes}, a tick for True, a cross for False"
    blocks = list(table.compact.blocks(elide=False))
    parts = [_led(block, _ticked(block)) for block in blocks]
    count = f"{ticks} {plural('tick', ticks)} in {cells} {plural('cell', cells)}"
    return f"{head}. {'. '.join(parts)}", f"{head}. {capital(count)}"


def tensor_in_words(table: Table) -> tuple[str, ...]:
    """Read out a small tensor, tell range and signs of each matrix of a larger one, or of all."""
    if table.values.dtype == torch.bool:
        return _mask_in_words(table)
    shades = ", red above zero and blue below" * bool((table.values < 0).any())
    head = f"Tensor {table.sizes}, {matrices(table)}{shades}"
    blocks = list(table.compact.blocks(elide=False))
    ranges = ". ".join(_led(block, _range([block])) for block in blocks)
    versions = f"{head}. {ranges}", f"{head}. {capital(_range(blocks))}"
    if table.values.numel() > FEW_NUMBERS:
        return versions
    return (f"{head}. {'. '.join(_led(block, _numbers(block)) for block in blocks)}", *versions)


def in_their_words(head: str, summary: str) -> tuple[str]:
    """Say what the caller writes in place of numbers that differ between machines."""
    words = "; ".join(summary.splitlines()).replace(":;", ":").rstrip(".")
    return (f"{head}. {capital(words)}",)


def rows_in_words(pairs: Iterable[tuple[str, str]], sign: str) -> str:
    """Join (row, what it says), where neighbours that say the same are named together."""
    parts = []
    for said, group in groupby(pairs, key=lambda pair: pair[1]):
        parts.append(f"{listed(dict.fromkeys(row for row, _ in group))}{sign}{said}")
    return "; ".join(parts)


def shape_in_words(rows: Sequence[Sequence[bool]]) -> str:
    """Name the shape that the True cells of a matrix make, "" if it has no name."""
    cells = [(i, j, x) for i, row in enumerate(rows) for j, x in enumerate(row)]
    if all(x for *_, x in cells):
        return "full"
    if not any(x for *_, x in cells):
        return "empty"
    if len(rows) == len(rows[0]):
        if all(x == (i == j) for i, j, x in cells):
            return "diagonal"
        if all(x == (i >= j) for i, j, x in cells):
            return "lower triangle"
        if all(x == (i <= j) for i, j, x in cells):
            return "upper triangle"
    return ""


def plural(word: str, number: int) -> str:
    """Write a word for one or for many."""
    return word if number == 1 else f"{word}s"


def capital(text: str) -> str:
    """Begin with a capital letter."""
    return text[:1].upper() + text[1:]


def _led(block: Block, words: str) -> str:
    """Put the name of a matrix before what is said of it."""
    return f"{capital(block.title)}: {words}" if block.title else capital(words)


def _looks(block: Block, decimals: int, *, with_weights: bool) -> str:
    rows = [index_name(block.row_axis, name) for name in block.row_names]
    columns = [index_name(block.column_axis, name) for name in block.column_names]
    pairs = [
        (row, _top(columns, values, decimals, with_weights=with_weights))
        for row, values in zip(rows, block.rows, strict=True)
    ]
    return _led(block, rows_in_words(pairs, " "))


def _top(columns: list[str], values: list, decimals: int, *, with_weights: bool) -> str:
    """Tell where the largest weight of a row is, as printed."""
    texts = [cell_text(value, decimals) for value in values]
    top = texts[values.index(max(values))]
    if float(top) == 0:
        return "at nothing"
    at = [column for column, text in zip(columns, texts, strict=True) if text == top]
    weight = f" ({top}{' each' * (len(at) > 1)})" if with_weights else ""
    if len(at) == len(texts) > 1:
        return f"at all alike{weight}"
    only = all(float(text) == 0 for text in texts if text != top)
    return f"{'only ' * only}at {listed(at)}{weight}"


def _ticked(block: Block) -> str:
    shape = shape_in_words(block.rows)
    if shape:
        known = {"full": "all ticked", "empty": "no tick", "diagonal": "ticks on the diagonal"}
        return known.get(shape, f"ticks in the {shape}, with the diagonal")
    columns = [index_name(block.column_axis, name) for name in block.column_names]
    said = []
    for row in block.rows:
        at = [column for column, x in zip(columns, row, strict=True) if x]
        said.append(
            "everywhere" if len(at) == len(row) else f"at {listed(at)}" if at else "nowhere"
        )
    if len(set(said)) == 1:
        return f"ticks in every row {said[0]}"
    rows = [index_name(block.row_axis, name) for name in block.row_names]
    return rows_in_words(zip(rows, said, strict=True), " ")


def _numbers(block: Block) -> str:
    """Read out a matrix row by row."""
    rows = [index_name(block.row_axis, name) for name in block.row_names]
    numbers = [", ".join(map(cell_text, row)) for row in block.rows]
    return "; ".join(f"{row} {text}".strip() for row, text in zip(rows, numbers, strict=True))


def _range(blocks: Sequence[Block]) -> str:
    """Tell the smallest and the largest number of some matrices, and how many have no sign."""
    cells = [
        (value, cell_text(value), _place(block, i, j, with_block=len(blocks) > 1))
        for block in blocks
        for i, row in enumerate(block.rows)
        for j, value in enumerate(row)
    ]
    finite = [cell for cell in cells if cell[1].lstrip("-")[:1].isdigit()]
    count = len(cells)
    words = f"{count} {plural('number', count)}"
    if finite:
        low, high = min(finite), max(finite)
        same = low[1] == high[1]
        words += f", all {low[1]}" if same else (
            f" from {low[1]} ({low[2]}) to {high[1]} ({high[2]})"
        )  # fmt: skip
    below = sum(text.startswith("-") for _, text, _ in finite)
    zero = sum(float(text) == 0 for _, text, _ in finite)
    parts = [f"{below} below zero"] * bool(below) + [f"{zero} zero"] * bool(zero)
    parts += [f"{count - len(finite)} not finite"] * (count > len(finite))
    return ", ".join([words, *parts])


def _place(block: Block, i: int, j: int, *, with_block: bool) -> str:
    row = index_name(block.row_axis, block.row_names[i])
    column = index_name(block.column_axis, block.column_names[j])
    return ", ".join(filter(None, (block.title * with_block, row, column)))
