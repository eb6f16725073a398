"""Positional encoding: add a vector for each position, so that order is not lost.

Step 03 | notebooks/03_positional_encoding.ipynb | tests/unit/test_positional_encoding.py
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import (
    check_above_zero,
    check_dropout,
    check_positions,
    check_positive,
    checked,
    shows,
)


def sinusoid(
    max_len: int, d_model: int, *, base: float = 10000.0
) -> Float[Tensor, "max_len d_model"]:
    """Compute a table with one row of sines and cosines for each position.

        PE[pos, 2i]   = sin(pos / base^(2i / d_model))
        PE[pos, 2i+1] = cos(pos / base^(2i / d_model))

    Args:
        max_len: Number of positions.
        d_model: Number of features of each row. If it is odd, the last sine has no cosine.
        base: The larger the base, the longer the wavelengths of the later features.

    Returns:
        The table, computed in float64 and stored in torch's default dtype.

    Raises:
        ValueError: If a size is below 1, or the base is not above 0.

    Source:
        Vaswani et al. (2017), section 3.5. The paper uses an even d_model and base 10000.
    """
    check_positive("sinusoid", max_len=max_len, d_model=d_model)
    check_above_zero("sinusoid", base=base)
    position = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)
    even_feature = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles: Float[Tensor, "max_len pair"] = position * base ** (-even_feature / d_model)

    table = torch.empty(max_len, d_model)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles[:, : d_model // 2])
    return table


class PositionalEncoding(nn.Module):
    """Add the sinusoid row for its position to each vector.

        encoded[batch, seq] = x[batch, seq] + PE[seq]

    Args:
        d_model: Number of features of each vector.
        max_len: Number of positions in the table.
        dropout: Dropout probability of the sum.

    Raises:
        ValueError: If a size is below 1, or dropout is outside [0, 1).

    Source:
        Vaswani et al. (2017), sections 3.5 and 5.4. The table is a buffer: it is moved and saved
        with the module, but not trained.
    """

    table: Tensor

    def __init__(self, d_model: int, *, max_len: int = 5000, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(type(self).__name__, d_model=d_model, max_len=max_len)
        check_dropout(type(self).__name__, dropout)
        self.d_model = d_model
        self.max_len = max_len
        self.dropout = nn.Dropout(dropout)
        self.make_table()

    def make_table(self) -> None:
        """Build the table of rows to add: a sinusoid, which is not trained."""
        self.register_buffer("table", sinusoid(self.max_len, self.d_model))

    @checked
    def forward(
        self, x: Float[Tensor, "batch seq d_model"], start: int = 0
    ) -> Float[Tensor, "batch seq d_model"]:
        """Add the row for its position to each vector.

        Args:
            x: Vectors in sentence order.
            start: Position of the first vector, such as the number of positions in a KV cache.

        Returns:
            The sums, after dropout.

        Raises:
            ValueError: If d_model differs, or a position is outside the table.
        """
        # size(1) is the sentence length. size(0) is the batch size: it gives the right numbers
        # only if the two happen to be equal.
        check_positions(type(self).__name__, start, x.size(1), self.max_len)
        positions: Float[Tensor, "seq d_model"] = self.table[start : start + x.size(1)]
        encoded: Float[Tensor, "batch seq d_model"] = x + positions
        return self.dropout(encoded)

    extra_repr = shows("d_model", "max_len")


class LearnedPositionalEncoding(PositionalEncoding):
    """Add a learned row for its position to each vector.

    Args:
        d_model: Number of features of each vector.
        max_len: Number of positions in the table.
        dropout: Dropout probability of the sum.

    Raises:
        ValueError: If a size is below 1, or dropout is outside [0, 1).

    Source:
        Gehring et al. (2017), an alternative in Vaswani et al. (2017), section 3.5. The initial
        standard deviation of 0.02 is that of BERT and GPT-2.
    """

    def make_table(self) -> None:
        """Build the table of rows to add: a parameter with small random values."""
        self.table = nn.Parameter(torch.empty(self.max_len, self.d_model))
        nn.init.normal_(self.table, std=0.02)
