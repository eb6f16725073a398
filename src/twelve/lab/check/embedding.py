"""Step 02: what the lookup of a row invites."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twelve.lab import example
from twelve.lab.check.built import run_layer
from twelve.lab.check.numbers import seeded
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target

_ROWS = example.embedding_rows


def _table() -> Tensor:
    return torch.tensor(_ROWS, dtype=torch.float64)


def _embed(ids: Tensor, table: Tensor) -> Tensor:
    return table[ids]


def _embed_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(), _table()),
        "as many words as sentences": (torch.tensor([[1, 2, 3], [3, 3, 0], [2, 0, 0]]), _table()),
        "all sizes differ": (example.companion.src.clone(), seeded()(11, 24)),
    }


def _ids_transposed(ids: Tensor, table: Tensor) -> Tensor:
    return table[ids.T]


def _padding_row(ids: Tensor, table: Tensor, pad_id: int) -> Tensor:
    return F.embedding(ids, table, padding_idx=pad_id)


def _padding_row_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(), _table(), 0),
        "the pad is id 3": (torch.tensor([[1, 2, 3], [0, 3, 3]]), _table(), 3),
        "all sizes differ": (example.companion.src.clone(), seeded()(11, 24), 0),
    }


def _padding_idx_wrong(ids: Tensor, table: Tensor, pad_id: int) -> Tensor:
    return F.embedding(ids, table, padding_idx=1)


def _padding_idx_missing(ids: Tensor, table: Tensor, pad_id: int) -> Tensor:
    return table[ids]


class _ScaledEmbedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight) * math.sqrt(self.weight.size(1))


class _ScaledEmbeddingTransposed(_ScaledEmbedding):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids.T)


def _run_scaled_embedding(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    ids, table = given
    return run_layer(answer, tuple(table.shape), {"weight": table}, ids)


def _one_hot_shape(*, turned: bool = False) -> tuple[int, ...]:
    ids = example.companion.tgt
    return tuple(F.one_hot(ids.T if turned else ids, example.SIZES.tgt_vocab).shape)


def _row_gradients(
    look_up: Callable[[Tensor, Tensor, int], Tensor] = _padding_row,
) -> list[float]:
    ids, table = torch.tensor([[3, 3, 1], [0, 0, 3]]), _table().requires_grad_()
    look_up(ids, table, 0).sum().backward()
    return table.grad[:, 0].tolist()


def _mixed_row() -> list[float]:
    return (torch.tensor([0.0, 0.5, 0.0, 0.5], dtype=torch.float64) @ _table()).tolist()


QUESTIONS = (
    Question(
        name="one_hot_shape",
        contract="one-hot rows of the companion's target -> (batch, tgt, vocab)",
        right=_one_hot_shape,
        wrong={"ids-transposed": partial(_one_hot_shape, turned=True)},
    ),
    Question(
        name="row_gradients",
        contract="the gradient of each of the four rows, one number a row",
        right=_row_gradients,
        wrong={
            "padding-idx-wrong": partial(_row_gradients, _padding_idx_wrong),
            "padding-idx-missing": partial(_row_gradients, _padding_idx_missing),
        },
    ),
    Question(
        name="mixed_row",
        contract="the three features of (0, 0.5, 0, 0.5) times the table",
        right=_mixed_row,
    ),
)

TARGETS = (
    Target(
        name="embed",
        contract="ids (batch, seq), table (vocab, d_model) -> (batch, seq, d_model)",
        right=_embed,
        cases=_embed_cases,
    ),
    Target(
        name="padding_row",
        contract="ids (batch, seq), table (vocab, d_model), pad_id -> (batch, seq, d_model), where "
        "row pad_id of the table gets no gradient",
        right=_padding_row,
        cases=_padding_row_cases,
        by_gradient=True,
    ),
    Target(
        name="scaled_embedding",
        contract="Layer(vocab_size, d_model), weight (vocab, d_model), ids (batch, seq) -> "
        "(batch, seq, d_model)",
        right=_ScaledEmbedding,
        cases=_embed_cases,
        also={"ids-transposed": _ScaledEmbeddingTransposed},
        run=_run_scaled_embedding,
    ),
)

_LOOKUP = "ids, self.weight, padding_idx=self.padding_idx"

MISTAKES = (
    Mistake(
        id="ids-transposed",
        sentence="You read the ids as (seq, batch), so that words change their sentence: here the "
        "sentences come first, (batch, seq).",
        step="02",
        target="embed",
        wrong=_ids_transposed,
        plant=Plant("embedding", _LOOKUP, "ids.T, self.weight, padding_idx=self.padding_idx"),
    ),
    Mistake(
        id="padding-idx-wrong",
        sentence='You gave padding_idx=1, which is the word "cat": it would never learn while the '
        "padding does, so give the id of the padding.",
        step="02",
        target="padding_row",
        wrong=_padding_idx_wrong,
        plant=Plant("embedding", _LOOKUP, "ids, self.weight, padding_idx=1"),
    ),
    Mistake(
        id="padding-idx-missing",
        sentence="The row of the padding gets a gradient and would be trained like a word: keep "
        "the gradient out of it, as padding_idx does.",
        step="02",
        target="padding_row",
        wrong=_padding_idx_missing,
        plant=Plant("embedding", _LOOKUP, "ids, self.weight"),
    ),
)
