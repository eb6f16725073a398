"""Step 02: what the lookup of a row invites."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded
from twelve.lab.check.table import Cases, Mistake, Plant, Target

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
        sentence="The row of the padding gets a gradient and would be trained like a word: hand "
        "padding_idx to the lookup.",
        step="02",
        target="padding_row",
        wrong=_padding_idx_missing,
        plant=Plant("embedding", _LOOKUP, "ids, self.weight"),
    ),
)
