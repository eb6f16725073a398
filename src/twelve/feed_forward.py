"""Feed-forward layer: linear, activation, linear, at each position alone.

Step 09 | notebooks/09_feed_forward.ipynb | tests/unit/test_feed_forward.py
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_axis, check_dropout, check_positive, shows
from twelve.linear import Linear

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """Linear, activation, linear, at each position.

        FFN(x) = activation(x W_up + b_up) W_down + b_down

    Args:
        d_model: Features that come in and go out.
        d_ff: Features between the two layers; 4 · d_model if not given.
        activation: "relu", or "gelu" in its exact form x · Φ(x).
        dropout: Probability of dropping an activated feature.
        bias: Whether the two layers add a bias.

    Raises:
        ValueError: If a size is below 1, dropout lies outside [0, 1), or the activation is
            unknown.

    Source:
        Vaswani et al. (2017), section 3.3, equation 2. GELU from Hendrycks and Gimpel (2016).
    """

    def __init__(
        self, d_model: int, d_ff: int | None = None, *, activation: str = "relu",
        dropout: float = 0.0, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive("FeedForward", d_model=d_model)
        d_ff = 4 * d_model if d_ff is None else d_ff
        check_positive("FeedForward", d_ff=d_ff)
        check_dropout("FeedForward", dropout)
        if activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"FeedForward: activation must be one of {known}, got {activation!r}")
        self.d_model = d_model
        self.activation = activation
        self.up = Linear(d_model, d_ff, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.down = Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Transform every vector by the same two layers, without a look at its neighbours.

        Args:
            x: Vectors of d_model features, under any number of leading axes.

        Returns:
            One vector for each that came in.

        Raises:
            ValueError: If the last axis is not d_model.
        """
        check_axis("FeedForward", "x", x, "d_model", self.d_model)
        pre_activation: Float[Tensor, "*batch d_ff"] = self.up(x)
        activated: Float[Tensor, "*batch d_ff"] = ACTIVATIONS[self.activation](pre_activation)
        output: Float[Tensor, "*batch d_model"] = self.down(self.dropout(activated))
        return output

    extra_repr = shows("activation")


class SwiGLU(nn.Module):
    """Expand each vector twice, let one half gate the other, and bring it back.

        SwiGLU(x) = (SiLU(x W_gate) ⊙ x W_up) W_down

    Args:
        d_model: Features that come in and go out.
        d_ff: Features between. Three matrices instead of two: d_ff = 8/3 · d_model costs what
            4 · d_model costs in FeedForward.

    Raises:
        ValueError: If a size is below 1.

    Source:
        Shazeer (2020), equation 6, without biases. The names are those of LLaMA's code.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        check_positive("SwiGLU", d_model=d_model, d_ff=d_ff)
        self.d_model = d_model
        self.gate = Linear(d_model, d_ff, bias=False)
        self.up = Linear(d_model, d_ff, bias=False)
        self.down = Linear(d_ff, d_model, bias=False)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Transform every vector by the same three layers, without a look at its neighbours.

        Args:
            x: Vectors of d_model features, under any number of leading axes.

        Returns:
            One vector for each that came in.

        Raises:
            ValueError: If the last axis is not d_model.
        """
        check_axis("SwiGLU", "x", x, "d_model", self.d_model)
        gate: Float[Tensor, "*batch d_ff"] = F.silu(self.gate(x))
        expanded: Float[Tensor, "*batch d_ff"] = self.up(x)
        gated: Float[Tensor, "*batch d_ff"] = gate * expanded
        output: Float[Tensor, "*batch d_model"] = self.down(gated)
        return output
