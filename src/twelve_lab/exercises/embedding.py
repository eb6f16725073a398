"""Lesson 02: mistakes in an embedding lookup."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.modules import run_layer
from twelve_lab.exercises.numbers import seeded

_SIZES = example.SIZES


def _table() -> Tensor:
    return torch.tensor(example.embedding_rows, dtype=torch.float64)


def _embed_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(), _table()),
        # No word uses the last row: a table made for the largest id is too short.
        "as many words as sentences": (torch.tensor([[1, 2, 2], [1, 0, 0], [2, 1, 0]]), _table()),
        "all sizes differ": (example.distinct.src.clone(), seeded()(11, 24)),
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


ids_transposed = mistake(
    embed,
    "ids-transposed",
    "You read the ids as (seq, batch), so that words move to other sentences: the ids are (batch, "
    "seq).",
    line=("[ids]", "[ids.T]"),
)
misconception(
    embed,
    "You multiplied the rows by the square root of d_model: here each id returns its row "
    "unchanged.",
    line=("[ids]", "[ids] * math.sqrt(table.size(1))"),
)
misconception(
    embed,
    "Each id returned the row before its own: ids are counted from 0, as rows are.",
    line=("[ids]", "[ids - 1]"),
)
misconception(
    embed,
    "Your one-hot rows are counted from 1: id 0 matches nothing, and every other id gets the row "
    "before its own.",
    line=("table[ids]", "(ids.unsqueeze(-1) == 1 + torch.arange(len(table))).to(table) @ table"),
)
misconception(
    embed,
    "Each id returned the sum of all rows but its own: where does the 1 belong, and where the "
    "zeros?",
    line=("table[ids]", "(ids.unsqueeze(-1) != torch.arange(len(table))).to(table) @ table"),
)
misconception(
    embed,
    "Id 0 returned zeros: here it returns its row, as every other id does.",
    line=("[ids]", "[ids] * (ids != 0).unsqueeze(-1)"),
)


def _padding_row_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(), _table(), 0),
        "the pad is id 3": (torch.tensor([[1, 2, 3], [0, 3, 3]]), _table(), 3),
        "all sizes differ": (example.distinct.src.clone(), seeded()(11, 24), 0),
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


padding_idx_wrong = mistake(
    padding_row,
    "padding-idx-wrong",
    'Row 1, the word "cat", gets no gradient and never learns, while the padding row does: freeze '
    "the row of the padding id.",
    line=("=pad_id", "=1"),
)
padding_idx_missing = mistake(
    padding_row,
    "padding-idx-missing",
    "The padding row gets a gradient and is trained like a word: use padding_idx, or detach this "
    "row.",
    line=("F.embedding(ids, table, padding_idx=pad_id)", "table[ids]"),
)
misconception(
    padding_row,
    "You froze the wrong rows: row pad_id gets a gradient, and all others get none.",
    by=lambda ids, table, pad_id: torch.where(
        (ids == pad_id).unsqueeze(-1), table[ids], table[ids].detach()
    ),
)
misconception(
    padding_row,
    "You froze row 0 whatever pad_id is: freeze row pad_id.",
    line=("=pad_id", "=0"),
)
misconception(
    padding_row,
    "No row gets a gradient: freeze only row pad_id.",
    line=("table,", "table.detach(),"),
)
misconception(
    padding_row,
    "Row pad_id became zeros: its numbers stay, only its gradient is zero.",
    by=lambda ids, table, pad_id: table[ids] * (ids != pad_id).unsqueeze(-1),
)


class _ScaledEmbedding(nn.Module):
    """Layer(vocab_size, d_model), weight (vocab, d_model), ids (batch, seq) -> (batch, seq,
    d_model)
    """

    look_up = staticmethod(embed)
    factor = staticmethod(lambda table: math.sqrt(table.size(1)))

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        return self.look_up(ids, self.weight) * self.factor(self.weight)


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


def _layer_with(**parts: Callable[..., Any]) -> type[_ScaledEmbedding]:
    methods = {name: staticmethod(part) for name, part in parts.items()}
    return type("_ScaledEmbeddingWith", (_ScaledEmbedding,), methods)


again(scaled_embedding, "ids-transposed", by=_layer_with(look_up=ids_transposed.wrong))
misconception(
    scaled_embedding,
    "These are the rows of the table unchanged: multiply them by the square root of d_model.",
    by=_layer_with(factor=lambda table: 1),
)
misconception(
    scaled_embedding,
    "You multiplied by d_model itself: multiply by its square root.",
    by=_layer_with(factor=lambda table: table.size(1)),
)
misconception(
    scaled_embedding,
    "You divided by the square root of d_model: multiply by it.",
    by=_layer_with(factor=lambda table: 1 / math.sqrt(table.size(1))),
)
misconception(
    scaled_embedding,
    "You multiplied by the square root of the number of words: use the number of features.",
    by=_layer_with(factor=lambda table: math.sqrt(table.size(0))),
)
misconception(
    scaled_embedding,
    "The numbers are right, but row 0 gets no gradient: this layer has no padding row.",
    by=_layer_with(look_up=partial(padding_row, pad_id=0)),
)


@question(measures="whether an axis is added, and its size")
def one_hot_shape(*, turned: bool = False) -> tuple[int, ...]:
    """one-hot rows of the companion's target -> (batch, tgt, vocab)"""
    ids = example.distinct.tgt
    return tuple(F.one_hot(ids.T if turned else ids, _SIZES.tgt_vocab).shape)


again(one_hot_shape, "ids-transposed", turned=True)
misconception(
    one_hot_shape,
    "This is the shape of the embedded vectors: how long is a one-hot row?",
    by=lambda: (_SIZES.batch, _SIZES.tgt, _SIZES.d_model),
)
misconception(
    one_hot_shape,
    "This is the shape of the table: what is multiplied by it?",
    by=lambda: (_SIZES.tgt_vocab, _SIZES.d_model),
)
misconception(
    one_hot_shape,
    "This is the shape of the ids: how many numbers replace each id?",
    by=lambda: (_SIZES.batch, _SIZES.tgt),
)
misconception(
    one_hot_shape,
    "This is the shape for the source: the question is about the target.",
    by=lambda: (_SIZES.batch, _SIZES.src, _SIZES.src_vocab),
)


@question(measures="which rows learn: used, repeated, absent, padded")
def row_gradients(*, look_up: Callable[[Tensor, Tensor, int], Tensor] = padding_row) -> list[float]:
    """the gradient of each of the four rows, one number a row"""
    ids, table = torch.tensor([[3, 3, 1], [0, 0, 3]]), _table().requires_grad_()
    look_up(ids, table, 0).sum().backward()
    return table.grad[:, 0].tolist()


again(row_gradients, "padding-idx-wrong", look_up=padding_idx_wrong.wrong)
again(row_gradients, "padding-idx-missing", look_up=padding_idx_missing.wrong)
misconception(
    row_gradients,
    "A row that is used several times gets a gradient from every use.",
    by=lambda: [float(one > 0) for one in row_gradients()],
)
misconception(
    row_gradients,
    "You summed the three numbers of a row: the question is about one of them.",
    by=lambda: [3 * one for one in row_gradients()],
)


@question(
    decimals=3,
    measures="a row times a table as a weighted average of rows",
    worked="[(0.82 + 0.6) / 2, (0.15 + 0.3) / 2, (0.36 + 0.5) / 2]",
)
def mixed_row(*, shares: tuple[float, ...] = (0, 0.5, 0, 0.5)) -> list[float]:
    """the three features of (0, 0.5, 0, 0.5) times the table"""
    return (_table().new_tensor(shares) @ _table()).tolist()


misconception(
    mixed_row,
    "These are the sums of two rows: multiply each row by its share.",
    shares=(0, 1, 0, 1),
)
misconception(
    mixed_row,
    "This is half of cat and half of dog: in which columns are the two halves?",
    shares=(0, 0.5, 0.5, 0),
)
misconception(
    mixed_row,
    "This is half of dog and half of fish: in which columns are the two halves?",
    shares=(0, 0, 0.5, 0.5),
)
misconception(
    mixed_row, "This is cat alone: the mixed row has a second half.", shares=(0, 0.5, 0, 0)
)
