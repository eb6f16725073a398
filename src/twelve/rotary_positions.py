"""Rotary positions: queries and keys are turned by their place, so that scores see the distance.

Step 16 | notebooks/16_rotary_positions.ipynb | tests/unit/test_rotary_positions.py
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_axis, check_between, check_positive, shows
from twelve.normalization import HALF
from twelve.positional_encoding import sinusoid


class RotaryEncoding(nn.Module):
    """Turn each pair of neighbouring features counter-clockwise by an angle that grows with place.

        turned[pos, 2i]   = x[2i] cos(pos · ω_i) - x[2i+1] sin(pos · ω_i)
        turned[pos, 2i+1] = x[2i] sin(pos · ω_i) + x[2i+1] cos(pos · ω_i)
        ω_i = base^(-2i / d_k)

    Args:
        d_k: Features of a query and a key in each head: an even number, for they turn in pairs.
        max_len: Positions there are angles for.
        base: The larger it is, the more slowly the later pairs turn; the first turns by 1 radian a
            place whatever it is.
        fused: Whether a pair is turned as one complex number: the same numbers, no
            intermediate to look at. In half precision, which has none, it makes no difference.

    Raises:
        ValueError: If a size is below 1, d_k is odd, or the base is not above 0.

    Source:
        Su et al. (2021), "RoFormer", section 3.2.2 and equation 34. The table is that of
        `sinusoid`; it follows from the three numbers above and is not saved. LLaMA's code in
        transformers turns feature i with i + d_k / 2 instead: the same in another order.
    """

    table: Tensor

    def __init__(
        self, d_k: int, *, max_len: int = 2048, base: float = 10000.0, fused: bool = False
    ) -> None:
        super().__init__()
        check_positive("RotaryEncoding", d_k=d_k, max_len=max_len)
        if d_k % 2:
            raise ValueError(f"RotaryEncoding: d_k must be even, features turn in pairs, got {d_k}")
        self.d_k = d_k
        self.max_len = max_len
        self.base = base
        self.fused = fused
        self.register_buffer("table", sinusoid(max_len, d_k, base=base), persistent=False)

    def _apply(self, *arguments: object, **keywords: object) -> "RotaryEncoding":
        """Tabulate again: to_empty leaves nothing in the table, and no file brings it."""
        super()._apply(*arguments, **keywords)
        self.table.copy_(sinusoid(self.max_len, self.d_k, base=self.base))
        return self

    def forward(
        self, heads: Float[Tensor, "batch head seq d_k"], start: int = 0
    ) -> Float[Tensor, "batch head seq d_k"]:
        """Turn each vector by the angles of its place.

        Args:
            heads: Queries or keys in sentence order; values stay as they are.
            start: The place of the first one: how many positions a cache holds already.

        Returns:
            Vectors of the same length. The dot product of a turned query with a turned key depends
            on both and on their distance, and on nothing else of their places.

        Raises:
            ValueError: If d_k differs, or a place lies outside the table.
        """
        check_axis("RotaryEncoding", "heads", heads, "d_k", self.d_k, rank=4)
        check_between("RotaryEncoding", 0, self.max_len, "max_len", start=start)
        stop = start + heads.size(2)
        if stop > self.max_len:
            found = f"start={start} and {heads.size(2)} positions in shape {tuple(heads.shape)}"
            raise ValueError(f"RotaryEncoding: the table ends at max_len={self.max_len}: {found}")
        sin: Float[Tensor, "seq pair"] = self.table[start:stop, 0::2]
        cos: Float[Tensor, "seq pair"] = self.table[start:stop, 1::2]

        if self.fused and heads.dtype == self.table.dtype and heads.dtype not in HALF:
            # The two lines of the formula are (even + i · odd) · (cos + i · sin).
            numbers = torch.complex(heads[..., 0::2], heads[..., 1::2]) * torch.complex(cos, sin)
            turned: Float[Tensor, "batch head seq d_k"] = torch.view_as_real(numbers).flatten(-2)
            return turned

        even: Float[Tensor, "batch head seq pair"] = heads[..., 0::2]
        odd: Float[Tensor, "batch head seq pair"] = heads[..., 1::2]
        # Back side by side, as they came: the two of a pair are neighbours.
        pairs = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        turned: Float[Tensor, "batch head seq d_k"] = pairs.flatten(-2)
        return turned

    extra_repr = shows("d_k", "max_len", "base", "fused")
