"""Lesson 02: mistakes in an embedding lookup."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.modules import run_layer
from twelve_lab.exercises.numbers import SIZES, distinct_ids, seeded


def _table() -> Tensor:
    return torch.tensor(example.embedding_rows, dtype=torch.float64)


def _embed_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(), _table()),
        # No word uses the last row, so one-hot rows sized by the largest id are too short.
        "as many words as sentences": (torch.tensor([[1, 2, 2], [1, 0, 0], [2, 1, 0]]), _table()),
        "all sizes differ": (distinct_ids(), seeded()(SIZES.src_vocab, SIZES.d_model)),
    }


@task(
    _embed_cases,
    forbidden=("one_hot", "embedding"),
    measures="the lookup as a product with one-hot rows",
)
def embed(ids: Tensor, table: Tensor) -> Tensor:
    """ids (batch, seq), table (vocab, d_model) -> (batch, seq, d_model)"""
    return table[ids]


@solved(embed)
def _embed_by_comparison(ids: Tensor, table: Tensor) -> Tensor:
    asked = ids.unsqueeze(-1) == torch.arange(len(table))
    return asked.to(table.dtype) @ table


mistake(
    embed,
    "ids-transposed",
    "You read the ids as (seq, batch), so words move to other sentences: the ids are (batch, seq).",
    {"table[ids]": "table[ids.T]"},
)
notes(
    embed,
    {
        "You multiplied the rows by the square root of d_model: here each id must return its "
        "row unchanged.": {"table[ids]": "table[ids] * math.sqrt(table.size(1))"},
        "Id 0 returned zeros: here it must return its row, like every other id.": {
            "table[ids]": "table[ids] * (ids != 0).unsqueeze(-1)"
        },
        "You counted the one-hot rows from 1: id 0 matches nothing, and every other id gets "
        "the row before its own.": {"table[ids]": "table[ids - 1] * (ids != 0).unsqueeze(-1)"},
        "Each id returned the sum of all rows except its own: where does the 1 belong, and "
        "where do the zeros?": {"table[ids]": "table.sum(0) - table[ids]"},
    },
)


def _padding_row_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(), _table(), 0),
        "the pad is id 3": (torch.tensor([[1, 2, 3], [0, 3, 3]]), _table(), 3),
        "all sizes differ": (*_embed_cases()["all sizes differ"], 0),
    }


@task(
    _padding_row_cases,
    forbidden=("embedding",),
    by_gradient=True,
    measures="that padding_idx stops a gradient and changes no number",
)
def padding_row(ids: Tensor, table: Tensor, pad_id: int) -> Tensor:
    """ids (batch, seq), table (vocab, d_model), pad_id -> (batch, seq, d_model), where row pad_id
    of the table gets no gradient
    """
    return F.embedding(ids, table, padding_idx=pad_id)


@solved(padding_row)
def _embed_and_freeze(ids: Tensor, table: Tensor, pad_id: int) -> Tensor:
    found = table[ids]
    is_pad = (ids == pad_id).unsqueeze(-1)
    return torch.where(is_pad, found.detach(), found)


_LOOK_UP = "F.embedding(ids, table, padding_idx=pad_id)"
mistake(
    padding_row,
    "padding-idx-wrong",
    'Row 1, the word "cat", gets no gradient and never learns, while the padding row does: freeze '
    "the row of the padding id.",
    {_LOOK_UP: "F.embedding(ids, table, padding_idx=1)"},
)
mistake(
    padding_row,
    "padding-idx-missing",
    "The padding row gets a gradient and is trained like a word: use padding_idx, or detach this "
    "row.",
    {_LOOK_UP: "F.embedding(ids, table)"},
)
notes(
    padding_row,
    {
        "You froze the wrong rows: freeze only row pad_id.": {
            _LOOK_UP: "torch.where((ids == pad_id).unsqueeze(-1), table[ids], table[ids].detach())"
        },
        "You froze row 0, whatever pad_id is: freeze row pad_id.": {
            _LOOK_UP: "F.embedding(ids, table, padding_idx=0)"
        },
        "You set row pad_id to zeros: keep its numbers, and make only its gradient zero.": {
            _LOOK_UP: "table[ids] * (ids != pad_id).unsqueeze(-1)"
        },
    },
)


class _ScaledEmbedding(nn.Module):
    """Layer(vocab_size, d_model), weight (vocab, d_model), ids (batch, seq) -> (batch, seq,
    d_model)
    """

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        return embed(ids, self.weight) * math.sqrt(self.weight.size(1))


def _run_scaled_embedding(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    ids, table = given
    return run_layer(answer, tuple(table.shape), {"weight": table}, ids)


scaled_embedding = task(
    _embed_cases,
    name="scaled_embedding",
    measures="one registered table, and the square root of d_model",
    run=_run_scaled_embedding,
    by_gradient=True,
)(_ScaledEmbedding)


@solved(scaled_embedding)
class _OwnEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / math.sqrt(d_model))

    def forward(self, tokens):
        return self.weight[tokens] * math.sqrt(self.weight.size(-1))


notes(
    scaled_embedding,
    {
        "You multiplied the rows by d_model: multiply them by its square root.": {
            "forward: X * ROOT": "X * self.weight.size(-1)"
        },
        "The numbers are right, but row 0 gets no gradient: this layer has no padding row.": {
            "forward: embed(ids, W)": "F.embedding(ids, W, padding_idx=0)"
        },
    },
)


@question(measures="whether an axis is added, and its size")
def one_hot_shape() -> tuple[int, ...]:
    """one-hot rows of the target in `example.distinct` -> (batch, tgt, vocab)"""
    return (2, 4, 13)


again(one_hot_shape, "ids-transposed", by=lambda: (4, 2, 13))
notes(
    one_hot_shape,
    {
        "This is the shape of the embedded vectors: how long is a one-hot row?": (2, 4, 24),
        "This is the shape of the table: what is multiplied by it?": (13, 24),
        "This is the shape of the ids: how many numbers replace each id?": (2, 4),
        "This is the shape for the source: the question is about the target.": (2, 5, 11),
    },
)


@question(measures="which rows learn: used, repeated, absent, padded")
def row_gradients() -> list[float]:
    """the gradient of each of the four rows, one number a row"""
    ids, table = torch.tensor([[3, 3, 1], [0, 0, 3]]), _table().requires_grad_()
    padding_row(ids, table, 0).sum().backward()
    return table.grad[:, 0].tolist()


notes(
    row_gradients,
    {
        "A row that is used several times gets a gradient from each use.": [0, 1, 0, 1],
        "You summed the three numbers of a row: the question is about one of them.": [0, 3, 0, 9],
    },
)


@question(
    decimals=3,
    measures="a row times a table as a weighted average of rows",
    worked="[(0.82 + 0.6) / 2, (0.15 + 0.3) / 2, (0.36 + 0.5) / 2]",
)
def mixed_row() -> list[float]:
    """the three features of (0, 0.5, 0, 0.5) times the table"""
    return (_table().new_tensor([0, 0.5, 0, 0.5]) @ _table()).tolist()


notes(
    mixed_row,
    {
        sentence: {"[0, 0.5, 0, 0.5]": shares}
        for sentence, shares in {
            "These are the sums of two rows: multiply each row by its share.": "[0, 1.0, 0, 1]",
            "This is half of cat and half of dog: in which columns are the two halves?": (
                "[0, 0.5, 0.5, 0]"
            ),
            "This is half of dog and half of fish: in which columns are the two halves?": (
                "[0, 0, 0.5, 0.5]"
            ),
            "This is only cat: the mixed row has a second half.": "[0, 0.5, 0, 0]",
        }.items()
    },
)
