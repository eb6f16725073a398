"""Normalization: bring every vector to the same scale, using only its own entries.

Step 07 | notebooks/07_normalization.ipynb | tests/unit/test_normalization.py
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_above_zero, check_positive, checked, shows

HALF = (torch.float16, torch.bfloat16)


class LayerNorm(nn.Module):
    """Normalize each vector to mean 0 and variance 1, then apply a learned scale and shift.

        y = (x - mean) / √(variance + eps) · weight + bias

    Args:
        d_model: Number of features of each vector.
        eps: Added to the variance to avoid division by zero for a constant vector.

    Raises:
        ValueError: If d_model is below 1 or eps is not above 0.

    Source:
        Ba et al. (2016), equations 3 and 4. The variance is the biased one (divided by d_model,
        not by d_model - 1), as in torch.nn.LayerNorm.
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        check_positive("LayerNorm", d_model=d_model)
        check_above_zero("LayerNorm", eps=eps)
        self.d_model = d_model
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    @checked
    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalize each vector on the last axis.

        Args:
            x: Vectors of d_model features, with any number of leading axes.

        Returns:
            Vectors with mean 0 and variance 1, times weight, plus bias. The square of an entry
            beyond 1e19 is infinite in float32, and the vector then becomes bias.

        Raises:
            ValueError: If the last axis does not have size d_model.
        """
        if x.dtype in HALF:
            # The squares would overflow: compute in float32, as torch's kernel does.
            return self.forward(x.float()).to(x.dtype)
        mean: Float[Tensor, "*batch 1"] = x.mean(-1, keepdim=True)
        variance: Float[Tensor, "*batch 1"] = (x - mean).square().mean(-1, keepdim=True)
        normalized: Float[Tensor, "*batch d_model"] = (x - mean) / torch.sqrt(variance + self.eps)
        output: Float[Tensor, "*batch d_model"] = normalized * self.weight + self.bias
        return output

    extra_repr = shows("d_model", "eps")


class RMSNorm(nn.Module):
    """Divide each vector by its root mean square, then apply a learned scale.

        y = x / √(mean(x²) + eps) · weight

    Args:
        d_model: Number of features of each vector.
        eps: Added to the mean square to avoid division by zero for a zero vector.

    Raises:
        ValueError: If d_model is below 1 or eps is not above 0.

    Source:
        Zhang and Sennrich (2019), equation 4. The paper has no eps; its position under the root is
        that of torch.nn.RMSNorm and LLaMA.
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        check_positive("RMSNorm", d_model=d_model)
        check_above_zero("RMSNorm", eps=eps)
        self.d_model = d_model
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    @checked
    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Scale each vector on the last axis to unit RMS, then multiply it by weight.

        Args:
            x: Vectors of d_model features, with any number of leading axes.

        Returns:
            Vectors with the direction of x, if all entries of weight are equal. The square of an
            entry beyond 1e19 is infinite in float32, and the vector then becomes 0.

        Raises:
            ValueError: If the last axis does not have size d_model.
        """
        if x.dtype in HALF:
            return self.forward(x.float()).to(x.dtype)
        mean_square: Float[Tensor, "*batch 1"] = x.square().mean(-1, keepdim=True)
        normalized: Float[Tensor, "*batch d_model"] = x / torch.sqrt(mean_square + self.eps)
        output: Float[Tensor, "*batch d_model"] = normalized * self.weight
        return output

    extra_repr = shows("d_model", "eps")
