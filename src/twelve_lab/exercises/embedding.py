"""Step 02: what the lookup of a row invites."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.check.modules import run_layer
from twelve_lab.exercises.numbers import seeded

_ROWS = example.embedding_rows


def _table() -> Tensor:
    return torch.tensor(_ROWS, dtype=torch.float64)


def _embed(ids: Tensor, table: Tensor) -> Tensor:
    return table[ids]


def _embed_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(), _table()),
        "as many words as sentences": (torch.tensor([[1, 2, 3], [3, 3, 0], [2, 0, 0]]), _table()),
        "all sizes differ": (example.distinct.src.clone(), seeded()(11, 24)),
    }


def _ids_transposed(ids: Tensor, table: Tensor) -> Tensor:
    return table[ids.T]


def _picked(chosen: Tensor, table: Tensor) -> Tensor:
    return chosen.to(table.dtype) @ table


_EMBED_SLIPS = {
    "Your rows are multiplied by the root of d_model: here each id gives its row as it stands.": (
        lambda ids, table: table[ids] * math.sqrt(table.size(1))
    ),
    "Each id gave the row before its own: the ids begin at 0, as the rows do.": (
        lambda ids, table: table[ids - 1]
    ),
    "Your addresses begin at 1: id 0 finds none, and every other id the row before its own.": (
        lambda ids, table: _picked(ids.unsqueeze(-1) == torch.arange(1, len(table) + 1), table)
    ),
    "Each id gave the sum of all rows but its own: where shall the 1 stand, and where the zeros?": (
        lambda ids, table: _picked(ids.unsqueeze(-1) != torch.arange(len(table)), table)
    ),
    "Id 0 gave zeros: here it gives its row, as every other id does.": (
        lambda ids, table: table[ids] * (ids != 0).unsqueeze(-1)
    ),
}


def _padding_row(ids: Tensor, table: Tensor, pad_id: int) -> Tensor:
    return F.embedding(ids, table, padding_idx=pad_id)


def _padding_row_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(), _table(), 0),
        "the pad is id 3": (torch.tensor([[1, 2, 3], [0, 3, 3]]), _table(), 3),
        "all sizes differ": (example.distinct.src.clone(), seeded()(11, 24), 0),
    }


def _padding_idx_wrong(ids: Tensor, table: Tensor, pad_id: int) -> Tensor:
    return F.embedding(ids, table, padding_idx=1)


def _padding_idx_missing(ids: Tensor, table: Tensor, pad_id: int) -> Tensor:
    return table[ids]


def _frozen(ids: Tensor, table: Tensor, still: Tensor) -> Tensor:
    found = table[ids]
    return torch.where(still.unsqueeze(-1), found.detach(), found)


_PADDING_SLIPS = {
    "The wrong way round: row pad_id gets a gradient, and all the others get none.": (
        lambda ids, table, pad_id: _frozen(ids, table, ids != pad_id)
    ),
    "Row 0 is frozen, whatever pad_id is: here it may be another row.": (
        lambda ids, table, pad_id: _frozen(ids, table, ids == 0)
    ),
    "No row gets a gradient at all: only row pad_id is to be frozen.": (
        lambda ids, table, pad_id: table.detach()[ids]
    ),
    "Row pad_id came out as zeros: its numbers stay as they are, and only its gradient is zero.": (
        lambda ids, table, pad_id: table[ids] * (ids != pad_id).unsqueeze(-1)
    ),
}


class _ScaledEmbedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight) * math.sqrt(self.weight.size(1))


class _ScaledEmbeddingTransposed(_ScaledEmbedding):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids.T)


def _with_forward(
    forward: Callable[[_ScaledEmbedding, Tensor], Tensor],
) -> type[_ScaledEmbedding]:
    return type("_ScaledEmbeddingSlip", (_ScaledEmbedding,), {"forward": forward})


_SCALED_SLIPS = {
    "These are the rows as they stand: the factor, the root of d_model, is missing.": (
        _with_forward(lambda layer, ids: F.embedding(ids, layer.weight))
    ),
    "The factor is d_model itself: its root is meant.": (
        _with_forward(lambda layer, ids: F.embedding(ids, layer.weight) * layer.weight.size(1))
    ),
    "You divided by the root of d_model: the layer multiplies by it.": (
        _with_forward(
            lambda layer, ids: F.embedding(ids, layer.weight) / math.sqrt(layer.weight.size(1))
        )
    ),
    "The factor is the root of the number of words: the root of the number of features is meant.": (
        _with_forward(
            lambda layer, ids: F.embedding(ids, layer.weight) * math.sqrt(layer.weight.size(0))
        )
    ),
    "The numbers are right, but row 0 gets no gradient: in this layer no row is padding.": (
        _with_forward(
            lambda layer, ids: (
                F.embedding(ids, layer.weight, padding_idx=0) * math.sqrt(layer.weight.size(1))
            )
        )
    ),
}


def _run_scaled_embedding(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    ids, table = given
    return run_layer(answer, tuple(table.shape), {"weight": table}, ids)


def _one_hot_shape(*, turned: bool = False) -> tuple[int, ...]:
    ids = example.distinct.tgt
    return tuple(F.one_hot(ids.T if turned else ids, example.SIZES.tgt_vocab).shape)


def _row_gradients(
    look_up: Callable[[Tensor, Tensor, int], Tensor] = _padding_row,
) -> list[float]:
    ids, table = torch.tensor([[3, 3, 1], [0, 0, 3]]), _table().requires_grad_()
    look_up(ids, table, 0).sum().backward()
    return table.grad[:, 0].tolist()


def _mixed_row(*shares: float) -> list[float]:
    return (_table().new_tensor(shares or (0.0, 0.5, 0.0, 0.5)) @ _table()).tolist()


_SIZES = example.SIZES


QUESTIONS = (
    Question(
        name="one_hot_shape",
        contract="one-hot rows of the companion's target -> (batch, tgt, vocab)",
        right=_one_hot_shape,
        wrong={"ids-transposed": partial(_one_hot_shape, turned=True)},
        slips={
            "These are the vectors that come out: how long is a one-hot row?": (
                lambda: (_SIZES.batch, _SIZES.tgt, _SIZES.d_model)
            ),
            "This is the table itself: what meets it from the left?": (
                lambda: (_SIZES.tgt_vocab, _SIZES.d_model)
            ),
            "This is the shape of the ids: how many numbers become of each of them?": (
                lambda: (_SIZES.batch, _SIZES.tgt)
            ),
            "This is what the source has: the question is about the target.": (
                lambda: (_SIZES.batch, _SIZES.src, _SIZES.src_vocab)
            ),
        },
    ),
    Question(
        name="row_gradients",
        contract="the gradient of each of the four rows, one number a row",
        right=_row_gradients,
        wrong={
            "padding-idx-wrong": partial(_row_gradients, _padding_idx_wrong),
            "padding-idx-missing": partial(_row_gradients, _padding_idx_missing),
        },
        slips={
            "A row that is used several times hears from every use.": (
                lambda: [float(one > 0) for one in _row_gradients()]
            ),
            "You added up the three numbers of a row: the question is about one of them.": (
                lambda: [3 * one for one in _row_gradients()]
            ),
        },
    ),
    Question(
        name="mixed_row",
        contract="the three features of (0, 0.5, 0, 0.5) times the table",
        right=_mixed_row,
        decimals=3,
        slips={
            "These are the sums of two rows: each of them counts only as much as its share.": (
                partial(_mixed_row, 0, 1, 0, 1)
            ),
            "This is half of cat and half of dog: in which columns do the two halves stand?": (
                partial(_mixed_row, 0, 0.5, 0.5, 0)
            ),
            "This is half of dog and half of fish: in which columns do the two halves stand?": (
                partial(_mixed_row, 0, 0, 0.5, 0.5)
            ),
            "This is cat alone: the row of shares has a second half.": (
                partial(_mixed_row, 0, 0.5, 0, 0)
            ),
        },
    ),
)

TARGETS = (
    Target(
        name="embed",
        contract="ids (batch, seq), table (vocab, d_model) -> (batch, seq, d_model)",
        right=_embed,
        cases=_embed_cases,
        slips=_EMBED_SLIPS,
        avoid=("one_hot", "embedding"),
    ),
    Target(
        name="padding_row",
        contract="ids (batch, seq), table (vocab, d_model), pad_id -> (batch, seq, d_model), where "
        "row pad_id of the table gets no gradient",
        right=_padding_row,
        cases=_padding_row_cases,
        slips=_PADDING_SLIPS,
        avoid=("embedding",),
        by_gradient=True,
    ),
    Target(
        name="scaled_embedding",
        contract="Layer(vocab_size, d_model), weight (vocab, d_model), ids (batch, seq) -> "
        "(batch, seq, d_model)",
        right=_ScaledEmbedding,
        cases=_embed_cases,
        also={"ids-transposed": _ScaledEmbeddingTransposed},
        slips=_SCALED_SLIPS,
        by_gradient=True,
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
        sentence='Row 1, the word "cat", gets no gradient and would never learn, while the padding '
        "does: freeze the row of the padding, whichever that is.",
        step="02",
        target="padding_row",
        wrong=_padding_idx_wrong,
        plant=Plant("embedding", _LOOKUP, "ids, self.weight, padding_idx=1"),
    ),
    Mistake(
        id="padding-idx-missing",
        sentence="The row of the padding gets a gradient and would be trained like a word: "
        "padding_idx, or a detach in the right place, keeps the gradient out of it.",
        step="02",
        target="padding_row",
        wrong=_padding_idx_missing,
        plant=Plant("embedding", _LOOKUP, "ids, self.weight"),
    ),
)
