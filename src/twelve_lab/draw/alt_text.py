"""Helpers for alt texts: index names, lists of numbers, and the pattern of a mask."""

from collections.abc import Iterable, Sequence

import torch

from twelve_lab.messages import message
from twelve_lab.show.format import cell_text
from twelve_lab.show.table import Block
from twelve_lab.show.wide import full_width, joined, width

LONGEST = 600  # maximum width of an alt text, in columns: screen readers read it aloud


def alt_text(title: str, *versions: str) -> str:
    """Join the title with the first version that is short enough, or with the last version.

    Args:
        title: Claim of the figure.
        versions: Descriptions in full sentences, most detailed first.
    """
    claim = title if title[-1] in ".?!。？！" else message("{title}.", title=title)
    texts = [full_width(joined(claim, version)) for version in versions]
    return next((text for text in texts if width(text) <= LONGEST), [claim, *texts][-1])


def index_name(axis: str, name: str) -> str:
    """Name an index: "query 0", or its word, such as "dog", if it has one."""
    return f"{axis} {name}" if name.isdigit() else name


def row_names(block: Block) -> list[str]:
    """Name the rows of a matrix."""
    return [index_name(block.row_axis, name).strip() for name in block.row_names]


def column_names(block: Block) -> list[str]:
    """Name the columns of a matrix."""
    return [index_name(block.column_axis, name).strip() for name in block.column_names]


def in_block(block: Block, text: str) -> str:
    """Prefix a text with the title of its matrix, if the matrix has a title."""
    title = block.title[:1].upper() + block.title[1:]
    return f"{title}: {text}" if title else text


def number_list(values: Iterable[float]) -> str:
    """Format numbers with four decimals, separated by commas."""
    return ", ".join(map(cell_text, values))


def true_entries(
    rows: Sequence[Sequence[bool]], row_names: Sequence[str], column_names: Sequence[str]
) -> str:
    """Name the pattern of the True entries of a matrix, or list their columns row by row."""
    cells = torch.tensor(rows)
    shapes = (
        (message("none"), torch.zeros_like(cells)),
        (message("all"), torch.ones_like(cells)),
        (message("the diagonal"), torch.eye(*cells.shape, dtype=torch.bool)),
        (message("the lower triangle with the diagonal"), torch.ones_like(cells).tril()),
        (message("the upper triangle with the diagonal"), torch.ones_like(cells).triu()),
    )
    is_square = len(rows) == len(rows[0])
    for name, shape in shapes if is_square else shapes[:2]:
        if torch.equal(cells, shape):
            return name
    return "; ".join(
        f"{row}: {', '.join(name for name, x in zip(column_names, line, strict=True) if x) or '-'}"
        for row, line in zip(row_names, rows, strict=True)
    )
