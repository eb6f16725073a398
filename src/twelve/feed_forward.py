"""Feed-forward layer: linear, activation, linear, at each position separately.

Step 09 | notebooks/09_feed_forward.ipynb | tests/unit/test_feed_forward.py
"""

from functools import partial

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_dropout, check_positive, checked, shows
from twelve.linear import Linear

ACTIVATIONS = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh"), "silu": F.silu
}  # fmt: skip


class FeedForward(nn.Module):
    """Linear, activation, linear, at each position.

        FFN(x) = activation(x W_up + b_up) W_down + b_down

    Args:
        d_model: Number of features of each input and output vector.
        d_ff: Number of features in the hidden layer; 4 · d_model by default.
        activation: "relu", "gelu" (exact: x · Φ(x)), "gelu_tanh" (its approximation with tanh) or
            "silu" (x · sigmoid(x)).
        dropout: Dropout probability after the activation.
        bias: Whether the two linear layers add a bias.

    Raises:
        ValueError: If a size is below 1, dropout is outside [0, 1), or the activation is
            unknown.

    Source:
        Vaswani et al. (2017), section 3.3, equation 2. GELU, its approximation and SiLU:
        Hendrycks and Gimpel (2016), section 2.
    """

    def __init__(
        self, d_model: int, d_ff: int | None = None, *, activation: str = "relu",
        dropout: float = 0.0, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        d_ff = 4 * d_model if d_ff is None else d_ff
        check_positive("FeedForward", d_model=d_model, d_ff=d_ff)
        check_dropout("FeedForward", dropout)
        _check_activation("FeedForward", activation)
        self.d_model = d_model
        self.activation = activation
        self.up = Linear(d_model, d_ff, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.down = Linear(d_ff, d_model, bias=bias)

    @checked
    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Apply the same two layers to every vector separately.

        Args:
            x: Vectors of d_model features, with any number of leading axes.

        Returns:
            One output vector for each input vector.

        Raises:
            ValueError: If the last axis does not have size d_model.
        """
        pre_activation: Float[Tensor, "*batch d_ff"] = self.up(x)
        activated: Float[Tensor, "*batch d_ff"] = ACTIVATIONS[self.activation](pre_activation)
        output: Float[Tensor, "*batch d_model"] = self.down(self.dropout(activated))
        return output

    extra_repr = shows("activation")


class SwiGLU(nn.Module):
    """Gated feed-forward layer: two projections, one of which gates the other.

        SwiGLU(x) = (SiLU(x W_gate) ⊙ x W_up) W_down

    Args:
        d_model: Number of features of each input and output vector.
        d_ff: Number of features in the hidden layer. With d_ff = 8/3 · d_model, the three
            matrices have as many parameters as FeedForward with 4 · d_model.
        activation: Activation of the gate, as in FeedForward. With GELU the layer is called GEGLU.

    Raises:
        ValueError: If a size is below 1, or the activation is unknown.

    Source:
        Shazeer (2020), equation 6, without biases. Parameter names follow LLaMA's code.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: str = "silu") -> None:
        super().__init__()
        check_positive("SwiGLU", d_model=d_model, d_ff=d_ff)
        _check_activation("SwiGLU", activation)
        self.d_model = d_model
        self.activation = activation
        self.gate = Linear(d_model, d_ff, bias=False)
        self.up = Linear(d_model, d_ff, bias=False)
        self.down = Linear(d_ff, d_model, bias=False)

    @checked
    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Apply the same three layers to every vector separately.

        Args:
            x: Vectors of d_model features, with any number of leading axes.

        Returns:
            One output vector for each input vector.

        Raises:
            ValueError: If the last axis does not have size d_model.
        """
        gate: Float[Tensor, "*batch d_ff"] = ACTIVATIONS[self.activation](self.gate(x))
        expanded: Float[Tensor, "*batch d_ff"] = self.up(x)
        gated: Float[Tensor, "*batch d_ff"] = gate * expanded
        output: Float[Tensor, "*batch d_model"] = self.down(gated)
        return output

    extra_repr = shows("activation")


def _check_activation(where: str, activation: str) -> None:
    if activation not in tuple(ACTIVATIONS):
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"{where}: activation must be one of {known}, got {activation!r}")
