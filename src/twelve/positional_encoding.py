"""Positional encoding: each position adds its own pattern, so that order is not lost.

Step 03 | notebooks/03_positional_encoding.ipynb | tests/unit/test_positional_encoding.py
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_above_zero, check_axis, check_dropout, check_positive, shows


def sinusoid(
    max_len: int, d_model: int, *, base: float = 10000.0
) -> Float[Tensor, "max_len d_model"]:
    """Tabulate one row of sines and cosines for each position.

        PE[pos, 2i]   = sin(pos / base^(2i / d_model))
        PE[pos, 2i+1] = cos(pos / base^(2i / d_model))

    Args:
        max_len: Number of positions.
        d_model: Features of each row. When it is odd, the last sine has no cosine.
        base: The larger it is, the more slowly the later features turn.

    Returns:
        The table, computed in float64 and stored in torch's default dtype.

    Raises:
        ValueError: If a size is below 1, or the base is not above 0.

    Source:
        Vaswani et al. (2017), section 3.5. Odd d_model is not in the paper, nor another base.
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
    """Add the sinusoid row of its position to each vector.

        encoded[batch, seq] = x[batch, seq] + PE[seq]

    Args:
        d_model: Features of each vector.
        max_len: Longest sentence that can be encoded.
        dropout: Probability of dropping a feature of the sum.

    Raises:
        ValueError: If a size is below 1, or dropout lies outside [0, 1).

    Source:
        Vaswani et al. (2017), sections 3.5 and 5.4. The table is a buffer: it moves with the
        module and is saved with it, and no optimiser changes it.
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
        """Make the rows that are added: here, numbers that no training changes."""
        self.register_buffer("table", sinusoid(self.max_len, self.d_model))

    def forward(self, x: Float[Tensor, "batch seq d_model"]) -> Float[Tensor, "batch seq d_model"]:
        """Add to each vector the row of its position.

        Args:
            x: Vectors in sentence order: the position is the place on the second axis.

        Returns:
            The sums, dropped out while training.

        Raises:
            ValueError: If d_model differs, or the sentence is longer than max_len.
        """
        owner, max_len = type(self).__name__, self.max_len
        check_axis(owner, "x", x, "d_model", self.d_model, rank=3)
        if x.size(1) > max_len:
            found = f"got {x.size(1)} positions in shape {tuple(x.shape)}"
            raise ValueError(f"{owner}: the sequence is longer than max_len={max_len}: {found}")
        # size(1) is the sentence length; size(0) is the batch and gives the right numbers
        # only as long as the two are equal.
        positions: Float[Tensor, "seq d_model"] = self.table[: x.size(1)]
        encoded: Float[Tensor, "batch seq d_model"] = x + positions
        return self.dropout(encoded)

    extra_repr = shows("d_model", "max_len")


class LearnedPositionalEncoding(PositionalEncoding):
    """Add a trained row of its position to each vector.

    Args:
        d_model: Features of each vector.
        max_len: Longest sentence: a position beyond it has no row.
        dropout: Probability of dropping a feature of the sum.

    Raises:
        ValueError: If a size is below 1, or dropout lies outside [0, 1).

    Source:
        Gehring et al. (2017), named by Vaswani et al. (2017), section 3.5, as the alternative;
        used by BERT and GPT-2, from where the initial standard deviation of 0.02 is taken.
    """

    def make_table(self) -> None:
        """Draw the rows, close to zero, as a parameter."""
        self.table = nn.Parameter(torch.empty(self.max_len, self.d_model))
        nn.init.normal_(self.table, std=0.02)
