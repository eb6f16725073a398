"""Step 14: what writing word by word invites."""

import torch
from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded
from twelve.lab.check.table import Cases, Mistake, Plant, Target
from twelve.positional_encoding import sinusoid


def _embed_step(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return table[new] + positions[length : length + new.size(1)]


def _embed_step_cases() -> Cases:
    rows = torch.tensor(example.embedding_rows, dtype=torch.float64)
    few, draw = sinusoid(8, 3).double(), seeded()
    return {
        "the first word": (example.tgt[:, :1], 0, rows, few),
        "the second word": (example.tgt[:, 1:], 1, rows, few.clone()),
        "all sizes differ": (example.companion.tgt[:, 1:], 5, draw(13, 24), draw(32, 24)),
    }


def _decode_position_zero(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return table[new] + positions[: new.size(1)]


TARGETS = (
    Target(
        name="embed_step",
        contract="new (batch, new), length (words written before), table (vocab, d_model), "
        "positions (max_len, d_model) -> (batch, new, d_model)",
        right=_embed_step,
        cases=_embed_step_cases,
    ),
)

MISTAKES = (
    Mistake(
        id="decode-position-zero",
        sentence="Every new word gets the row of position 0: start where the words written so far "
        "end, positions[length : length + new].",
        step="14",
        target="embed_step",
        wrong=_decode_position_zero,
        plant=Plant("generation", "[self.length : self.length + new]\n", "[:new]\n"),
    ),
)
