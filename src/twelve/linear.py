"""Linear layer: multiply every feature vector by one matrix.

Step 01 | notebooks/01_linear.ipynb | tests/unit/test_linear.py
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_positive, check_switch, checked


class Linear(nn.Module):
    """Map each vector on the last axis from d_in to d_out features.

        y = x Wᵀ + b

    Args:
        d_in: Number of features of each input vector.
        d_out: Number of features of each output vector.
        bias: Whether to add b.

    Raises:
        ValueError: If a size is below 1, or bias is not a bool.

    Source:
        Weight layout of torch.nn.Linear: (d_out, d_in), so each row computes one output
        feature. Papers write the same layer as x W with W of shape (d_in, d_out). Initialization:
        Glorot and Bengio (2010), with zero biases.
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = True) -> None:
        super().__init__()
        check_positive("Linear", d_in=d_in, d_out=d_out)
        check_switch("Linear", bias=bias)
        self.d_in = d_in
        self.d_out = d_out
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight from Glorot's uniform distribution and set the bias to zero."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @checked
    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Multiply every vector on the last axis by the same matrix.

        Args:
            x: Vectors of d_in features, with any number of leading axes.

        Returns:
            One vector of d_out features for each input vector.

        Raises:
            ValueError: If the last axis does not have size d_in, or the dtypes do not match.
        """
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Show the sizes in print(model)."""
        return f"d_in={self.d_in}, d_out={self.d_out}, bias={self.bias is not None}"
