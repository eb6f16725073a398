"""Encoder: layers in which every source position looks at the whole source sentence.

Step 10 | notebooks/10_encoder.ipynb | tests/unit/test_encoder.py
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve._checks import check_axis, check_positive
from twelve.feed_forward import FeedForward
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm
from twelve.residual import Residual


class Layer(nn.Module):
    """What the layers of both stacks share: their parts, each with a residual of its own."""

    has_cross_attention: bool

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int | None = None, *,
        d_k: int | None = None, d_v: int | None = None, dropout: float = 0.0,
        norm_first: bool = True, activation: str = "relu", bias: bool = False, fused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        heads = {"d_k": d_k, "d_v": d_v, "bias": bias, "dropout": dropout, "fused": fused}
        self.self_attention = MultiHeadAttention(d_model, num_heads, **heads)
        if self.has_cross_attention:
            self.cross_attention = MultiHeadAttention(d_model, num_heads, **heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, dropout=dropout)
        wrapper = {"norm_first": norm_first, "dropout": dropout, "fused": fused}
        self.self_attention_residual = Residual(d_model, **wrapper)
        if self.has_cross_attention:
            self.cross_attention_residual = Residual(d_model, **wrapper)
        self.feed_forward_residual = Residual(d_model, **wrapper)


class EncoderLayer(Layer):
    """Self-attention, then feed-forward, each inside a residual connection.

    Args:
        d_model: Features of each position.
        num_heads: Heads of the attention.
        d_ff: Features inside the feed-forward layer; 4 · d_model if not given.
        d_k: Features of a query and a key in each head; d_model / num_heads if not given.
        d_v: Features of a value in each head; d_model / num_heads if not given.
        dropout: Probability used at every dropout of the layer.
        norm_first: Pre-norm if true, post-norm if false.
        activation: "relu" or "gelu".
        bias: Whether the projections of the attention add a bias.
        fused: Whether attention and norm call torch's fused kernels.

    Raises:
        ValueError: If one of its parts refuses its sizes.

    Source:
        Vaswani et al. (2017), section 3.1 and the left half of figure 1.
    """

    has_cross_attention = False

    def forward(
        self,
        x: Float[Tensor, "batch src d_model"],
        *,
        src_mask: Bool[Tensor, "#batch #head #src #src"] | None = None,
    ) -> Float[Tensor, "batch src d_model"]:
        """Apply self-attention, then feed-forward.

        Args:
            x: The source sentence.
            src_mask: True where a source position may be looked at.

        Returns:
            The same positions, each with what it gathered.
        """
        x = self.self_attention_residual(
            x, lambda query: self.self_attention(query, query, query, src_mask)
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Stack(nn.Module):
    """What the two stacks share: layers of one kind, and after pre-norm layers one last norm."""

    kind: type[nn.Module]

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int | None = None, *,
        num_layers: int = 6, norm_first: bool = True, fused: bool = False, **layer: object,
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive(type(self).__name__, num_layers=num_layers)
        self.d_model = d_model
        self.layers = nn.ModuleList(
            self.kind(d_model, num_heads, d_ff, norm_first=norm_first, fused=fused, **layer)
            for _ in range(num_layers)
        )
        self.norm = LayerNorm(d_model, fused=fused) if norm_first else None


class Encoder(Stack):
    """A stack of encoder layers, and after pre-norm layers one last norm.

    Args:
        d_model: Features of each position.
        num_heads: Heads of each attention.
        d_ff: Features inside each feed-forward layer; 4 · d_model if not given.
        num_layers: Layers, each built fresh: clones of one layer would start identical.
        norm_first: Pre-norm if true, post-norm if false.
        fused: Whether attention and norm call torch's fused kernels.
        **layer: Further keywords of EncoderLayer.

    Raises:
        ValueError: If num_layers is below 1, or a layer refuses its sizes.

    Source:
        Vaswani et al. (2017), section 3.1. In pre-norm the residual stream leaves the last layer
        as a bare sum, so it needs a norm of its own: Xiong et al. (2020), figure 1b.
    """

    kind = EncoderLayer

    def forward(
        self,
        x: Float[Tensor, "batch src d_model"],
        *,
        src_mask: Bool[Tensor, "#batch #head #src #src"] | None = None,
    ) -> Float[Tensor, "batch src d_model"]:
        """Pass the source sentence through every layer in turn.

        Args:
            x: Embedded source tokens with their positions.
            src_mask: True where a source position may be looked at; the same in every layer.

        Returns:
            The memory that the decoder will look at.

        Raises:
            ValueError: If d_model differs.
        """
        check_axis("Encoder", "x", x, "d_model", self.d_model, rank=3)
        for layer in self.layers:
            x = layer(x, src_mask=src_mask)
        return x if self.norm is None else self.norm(x)
