"""Normalisation: every vector is brought to one scale, by its own numbers alone.

Step 07 | notebooks/07_normalization.ipynb | tests/unit/test_normalization.py
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_above_zero, check_axis, check_positive, shows

# In half precision squares overflow or lose digits: the kernels of torch compute in float32 there.
HALF = (torch.float16, torch.bfloat16)


class Norm(nn.Module):
    """What the two norms share: their sizes, and the learned scale."""

    def __init__(self, d_model: int, *, eps: float = 1e-5, fused: bool = False) -> None:
        super().__init__()
        check_positive(type(self).__name__, d_model=d_model)
        check_above_zero(type(self).__name__, eps=eps)
        self.d_model = d_model
        self.eps = eps
        self.fused = fused
        self.weight = nn.Parameter(torch.ones(d_model))

    extra_repr = shows("d_model", "eps", "fused")


class LayerNorm(Norm):
    """Give each vector mean 0 and variance 1, then a learned scale and shift.

        y = (x - mean) / √(variance + eps) · weight + bias

    Args:
        d_model: Features of each vector.
        eps: Added to the variance under the root, so that a constant vector does not divide by
            zero.
        fused: Whether to call torch's fused kernel: the same numbers, no intermediate to look at.

    Raises:
        ValueError: If d_model is below 1 or eps is not above 0.

    Source:
        Ba et al. (2016), equations 3 and 4. The variance is the biased one (divided by d_model,
        not by d_model - 1), as in torch.nn.LayerNorm.
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5, fused: bool = False) -> None:
        super().__init__(d_model, eps=eps, fused=fused)
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise each vector on the last axis.

        Args:
            x: Vectors of d_model features, under any number of leading axes.

        Returns:
            Vectors of mean `bias` and standard deviation `weight` while those are single numbers.

        Raises:
            ValueError: If the last axis is not d_model.
        """
        check_axis("LayerNorm", "x", x, "d_model", self.d_model)
        if self.fused or x.dtype in HALF:
            return F.layer_norm(x, (self.d_model,), self.weight, self.bias, self.eps)
        mean: Float[Tensor, "*batch 1"] = x.mean(-1, keepdim=True)
        variance: Float[Tensor, "*batch 1"] = (x - mean).square().mean(-1, keepdim=True)
        normalized: Float[Tensor, "*batch d_model"] = (x - mean) / torch.sqrt(variance + self.eps)
        output: Float[Tensor, "*batch d_model"] = normalized * self.weight + self.bias
        return output


class RMSNorm(Norm):
    """Divide each vector by its root mean square, then a learned scale.

        y = x / √(mean(x²) + eps) · weight

    Args:
        d_model: Features of each vector.
        eps: Added to the mean square under the root.
        fused: Whether to call torch's fused kernel.

    Raises:
        ValueError: If d_model is below 1 or eps is not above 0.

    Source:
        Zhang and Sennrich (2019), equation 4. The paper has no eps; it stands under the root as
        in torch.nn.RMSNorm and LLaMA.
    """

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Scale each vector on the last axis to root mean square 1.

        Args:
            x: Vectors of d_model features, under any number of leading axes.

        Returns:
            Vectors that point where they did, of one length while `weight` is a single number.

        Raises:
            ValueError: If the last axis is not d_model.
        """
        check_axis("RMSNorm", "x", x, "d_model", self.d_model)
        if self.fused or x.dtype in HALF:
            return F.rms_norm(x, (self.d_model,), self.weight, self.eps)
        mean_square: Float[Tensor, "*batch 1"] = x.square().mean(-1, keepdim=True)
        normalized: Float[Tensor, "*batch d_model"] = x / torch.sqrt(mean_square + self.eps)
        output: Float[Tensor, "*batch d_model"] = normalized * self.weight
        return output
