"""Encoder: every source position attends to the whole source sentence.

Step 10 | notebooks/10_encoder.ipynb | tests/unit/test_encoder.py
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve._checks import check_positive, checked
from twelve.feed_forward import FeedForward
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm
from twelve.residual import Residual


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each with a residual connection.

    Args:
        d_model: Number of features at each position.
        num_heads: Number of attention heads.
        d_ff: Number of hidden features in the feed-forward layer; 4 · d_model by default.
        d_k: Number of features of a query and a key in each head; d_model / num_heads by default.
        d_v: Number of features of a value in each head; d_model / num_heads by default.
        dropout: Dropout probability, the same throughout the layer.
        norm_first: Pre-norm if true, post-norm if false.
        activation: Activation of the feed-forward layer, as in FeedForward.
        bias: Whether the attention projections add a bias.

    Raises:
        ValueError: If an argument is invalid for a submodule.

    Source:
        Vaswani et al. (2017), section 3.1 and the left half of figure 1.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int | None = None, *,
        d_k: int | None = None, d_v: int | None = None, dropout: float = 0.0,
        norm_first: bool = True, activation: str = "relu", bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.d_model = d_model
        self.self_attention = MultiHeadAttention(
            d_model, num_heads, d_k=d_k, d_v=d_v, bias=bias, dropout=dropout
        )
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, dropout=dropout)
        self.self_attention_residual = Residual(d_model, norm_first=norm_first, dropout=dropout)
        self.feed_forward_residual = Residual(d_model, norm_first=norm_first, dropout=dropout)

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch src d_model"],
        *,
        src_mask: Bool[Tensor, "#batch #head #src #src"] | None = None,
    ) -> Float[Tensor, "batch src d_model"]:
        """Apply self-attention, then feed-forward.

        Args:
            x: The source positions.
            src_mask: True where a source position may be attended to.

        Raises:
            ValueError: If the shapes do not match.
        """
        x = self.self_attention_residual(
            x, lambda normed: self.self_attention(normed, normed, normed, src_mask)
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of encoder layers, followed by a final norm if the layers are pre-norm.

    Args:
        d_model: Number of features at each position.
        num_heads: Number of heads in each attention layer.
        d_ff: Number of hidden features in each feed-forward layer; 4 · d_model by default.
        num_layers: Number of layers, each with its own initial weights.
        norm_first: Pre-norm if true, post-norm if false.
        **layer: Further keyword arguments of EncoderLayer.

    Raises:
        ValueError: If num_layers is below 1, or an argument is invalid for a layer.

    Source:
        Vaswani et al. (2017), section 3.1. The residual stream leaves a pre-norm layer
        unnormalized, so the stack adds a final norm: Xiong et al. (2020), figure 1b.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int | None = None, *,
        num_layers: int = 6, norm_first: bool = True, **layer: object,
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive("Encoder", num_layers=num_layers)
        self.d_model = d_model
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, d_ff, norm_first=norm_first, **layer)
            for _ in range(num_layers)
        )
        self.norm = LayerNorm(d_model) if norm_first else None

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch src d_model"],
        *,
        src_mask: Bool[Tensor, "#batch #head #src #src"] | None = None,
    ) -> Float[Tensor, "batch src d_model"]:
        """Pass the source sentence through all layers to compute the decoder's memory.

        Args:
            x: Embedded source tokens with their positions.
            src_mask: True where a source position may be attended to; the same in every layer.

        Raises:
            ValueError: If the shapes do not match.
        """
        for layer in self.layers:
            x = layer(x, src_mask=src_mask)
        return x if self.norm is None else self.norm(x)
