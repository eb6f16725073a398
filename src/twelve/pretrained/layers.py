"""Two layers that only some pretrained models have."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from twelve._checks import check_above_zero
from twelve.linear import Linear
from twelve.normalization import RMSNorm
from twelve.pretrained.checkpoint import require
from twelve.rotary_positions import RotaryEncoding

SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


class NormedHeads(Linear):
    """Project, then apply RMSNorm to each head, as Qwen3 does before the rotation."""

    def __init__(self, d_in: int, d_out: int, d_k: int, *, eps: float) -> None:
        super().__init__(d_in, d_out, bias=False)
        self.norm = RMSNorm(d_k, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Project, split into heads, normalise, merge."""
        heads = super().forward(x).unflatten(-1, (-1, self.norm.d_model))
        return self.norm(heads).flatten(-2)


class ScaledRotaryEncoding(RotaryEncoding):
    """Rotate slow pairs more slowly, as Llama 3.1 does for texts longer than those in training.

        ω'_i = ω_i (share_i + (1 - share_i) / factor)

    The share is 1 for a pair that completes at least `high_freq_factor` rotations within the
    original context length, and 0 for at most `low_freq_factor`. It is linear in between.

    Source:
        `apply_scaling` of Meta's reference implementation of Llama.
    """

    def __init__(self, d_k: int, *, max_len: int, base: float, scaling: Mapping[str, Any]) -> None:
        super().__init__(d_k, max_len=max_len, base=base)
        self.scaling = {key: require(scaling, key) for key in SCALING}
        check_above_zero("rope_scaling", **self.scaling)
        low, high = self.scaling["low_freq_factor"], self.scaling["high_freq_factor"]
        if not low < high:
            raise ValueError(f"low_freq_factor must be below high_freq_factor={high}, got {low}")
        self._fill_table()

    def _apply(self, *arguments: object, **keywords: object) -> "ScaledRotaryEncoding":
        super()._apply(*arguments, **keywords)
        self._fill_table()
        return self

    def _fill_table(self) -> None:
        factor, low, high, original_len = self.scaling.values()
        even_feature = torch.arange(0, self.d_k, 2, dtype=torch.float64)
        frequency = self.base ** (-even_feature / self.d_k)
        rotations = original_len * frequency / (2 * math.pi)
        share = ((rotations - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (share + (1 - share) / factor)
        angles = torch.arange(self.max_len, dtype=torch.float64).unsqueeze(1) * frequency
        self.table.copy_(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))
