"""By hand: the layer that adds sines and cosines of the position."""

import torch
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.exercises.declare import Cases, notes, question, solved, task
from twelve_lab.exercises.numbers import SIZES, seeded
from twelve_lab.exercises.positional_encoding import (
    positional_encoding,
    run_positional_layer,
    sinusoid,
)


def _sinusoidal_cases() -> Cases:
    draw, rows = seeded(), torch.tensor(example.embedding_rows, dtype=torch.float64)
    return {
        "twelve numbers": (rows[example.src], 8),
        "an odd number of features": (draw(1, 4, 7), 6),
        "all sizes differ": (draw(SIZES.batch, SIZES.src, SIZES.d_model), SIZES.max_len),
    }


class _SinusoidalEncoding(nn.Module):
    """Layer(d_model, max_len), table (max_len, d_model), x (batch, seq, d_model) -> (batch, seq,
    d_model)
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoid(max_len, d_model))

    def forward(self, x: Tensor) -> Tensor:
        return positional_encoding(x, self.table)


sinusoidal_encoding = task(
    _sinusoidal_cases,
    name="sinusoidal_encoding",
    measures="pairs of one frequency, the exponent, an odd width, and a buffer",
    run=run_positional_layer,
)(_SinusoidalEncoding)


@solved(sinusoidal_encoding)
class _SinusoidalTable(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        frequency = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = torch.sin(position * frequency)
        table[:, 1::2] = torch.cos(position * frequency[: d_model // 2])
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(1)]


_TABLE, _ADDED = "__init__: sinusoid(max_len, d_model)", "forward: positional_encoding(x, T)"
notes(
    sinusoidal_encoding,
    {
        "You multiplied x by the table: add the table.": {_ADDED: "x * T[: x.size(1)]"},
        "You returned the rows of the table without x: add them to x.": {
            _ADDED: "T[: x.size(1)].expand_as(x)"
        },
        "You subtracted the table: add it.": {_ADDED: "x - T[: x.size(1)]"},
        "You counted positions from 1: the first row belongs to position 0.": {
            _TABLE: "sinusoid(max_len + 1, d_model)[1:]"
        },
    },
)


@question(decimals=2, measures="a frequency, a cosine at position 0, and the norm of a row")
def sinusoidal_on_paper() -> list[float]:
    """for d_model 4: the frequency of pair 1, feature 3 at position 0, and the dot product of row 7
    with itself
    """
    table = sinusoid(8, 4)
    return [10000.0 ** (-2 / 4), table[0, 3].item(), (table[7] @ table[7]).item()]


notes(
    sinusoidal_on_paper,
    {
        "In the first number, the exponent lacks the factor 2: pair 1 has the exponent -2/4.": [
            0.1, 1, 2,
        ],
        "The exponent lacks its minus sign: frequencies decrease from pair to pair.": [100, 1, 2],
        "Feature 3 is a cosine, which is 1 at position 0.": [0.01, 0, 2],
        "Only the third number is wrong: you counted one pair, but four features form two pairs.": [
            0.01, 1, 1,
        ],
        "Only the third number is wrong: each pair of features contributes 1.": [
            0.01, 1, 4,
        ],
    },
)  # fmt: skip
