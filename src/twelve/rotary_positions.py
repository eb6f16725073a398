"""Rotary positions: rotate queries and keys by their position, so scores depend on the distance.

Step 16 | notebooks/16_rotary_positions.ipynb | tests/unit/test_rotary_positions.py
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_positions, check_positive, checked, shows
from twelve.positional_encoding import sinusoid


class RotaryEncoding(nn.Module):
    """Rotate each pair of adjacent features by an angle proportional to its position.

        rotated[pos, 2i]   = x[2i] cos(pos · ω_i) - x[2i+1] sin(pos · ω_i)
        rotated[pos, 2i+1] = x[2i] sin(pos · ω_i) + x[2i+1] cos(pos · ω_i)
        ω_i = base^(-2i / d_k)

    Args:
        d_k: Number of features of a query and a key in each head; even, because pairs rotate.
        max_len: Number of positions in the table of angles.
        base: The larger the base, the more slowly the later pairs rotate. The first pair always
            rotates by 1 radian per position.

    Raises:
        ValueError: If a size is below 1, d_k is odd, or the base is not above 0.

    Source:
        Su et al. (2021), "RoFormer", section 3.2.2 and equation 34. The table is computed by
        `sinusoid` and is not saved. LLaMA's code in transformers pairs feature i with i + d_k / 2
        instead, which permutes the features.
    """

    table: Tensor

    def __init__(self, d_k: int, *, max_len: int = 2048, base: float = 10000.0) -> None:
        super().__init__()
        check_positive("RotaryEncoding", d_k=d_k, max_len=max_len)
        if d_k % 2:
            raise ValueError(f"RotaryEncoding: d_k must be even, got {d_k}")
        self.d_k = d_k
        self.max_len = max_len
        self.base = base
        self.register_buffer("table", sinusoid(max_len, d_k, base=base), persistent=False)

    def _apply(self, *arguments: object, **keywords: object) -> "RotaryEncoding":
        """Recompute the table, which to_empty leaves uninitialized and no file restores."""
        super()._apply(*arguments, **keywords)
        self.table.copy_(sinusoid(self.max_len, self.d_k, base=self.base))
        return self

    @checked
    def forward(
        self, heads: Float[Tensor, "batch head seq d_k"], start: int = 0
    ) -> Float[Tensor, "batch head seq d_k"]:
        """Rotate each vector by the angles of its position.

        Args:
            heads: Queries or keys in sentence order; values are not rotated.
            start: Position of the first vector, such as the number of positions in a KV cache.

        Returns:
            Vectors of the same norm. The dot product of a rotated query and a rotated key depends
            on their positions only through the distance between them.

        Raises:
            ValueError: If d_k differs, or a position is outside the table.
        """
        check_positions("RotaryEncoding", start, heads.size(2), self.max_len)
        sin: Float[Tensor, "seq pair"] = self.table[start : start + heads.size(2), 0::2]
        cos: Float[Tensor, "seq pair"] = self.table[start : start + heads.size(2), 1::2]

        even: Float[Tensor, "batch head seq pair"] = heads[..., 0::2]
        odd: Float[Tensor, "batch head seq pair"] = heads[..., 1::2]
        # Interleave the rotated pairs again: both features of a pair are adjacent.
        pairs = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        turned: Float[Tensor, "batch head seq d_k"] = pairs.flatten(-2)
        return turned

    extra_repr = shows("d_k", "max_len", "base")
