"""Decoder: target positions attend to earlier target positions and to the source.

Step 11 | notebooks/11_decoder.ipynb | tests/unit/test_decoder.py
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve._checks import check_equal, check_positive, checked
from twelve.feed_forward import FeedForward
from twelve.multi_head_attention import Cache, MultiHeadAttention
from twelve.normalization import LayerNorm
from twelve.residual import Residual


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, feed-forward, each with a residual connection.

    Args:
        d_model: Number of features at each position.
        num_heads: Number of heads in each attention layer.
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
        Vaswani et al. (2017), section 3.1 and the right half of figure 1.
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
        self.cross_attention = MultiHeadAttention(
            d_model, num_heads, d_k=d_k, d_v=d_v, bias=bias, dropout=dropout
        )
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, dropout=dropout)
        self.self_attention_residual = Residual(d_model, norm_first=norm_first, dropout=dropout)
        self.cross_attention_residual = Residual(d_model, norm_first=norm_first, dropout=dropout)
        self.feed_forward_residual = Residual(d_model, norm_first=norm_first, dropout=dropout)

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch tgt d_model"],
        memory: Float[Tensor, "batch src d_model"],
        *,
        tgt_mask: Bool[Tensor, "#batch #head #tgt _tgt"] | None = None,
        src_mask: Bool[Tensor, "#batch #head #tgt _src"] | None = None,
        caches: tuple[Cache | None, Cache | None] = (None, None),
    ) -> Float[Tensor, "batch tgt d_model"]:
        """Apply masked self-attention, cross-attention, then feed-forward.

        Args:
            x: The target positions.
            memory: The encoder's output, from which cross-attention computes keys and values.
            tgt_mask: True where a target position may be attended to.
            src_mask: True where a source position may be attended to.
            caches: KV caches of self-attention and cross-attention; see MultiHeadAttention.

        Raises:
            ValueError: If the shapes do not match.
        """
        self_cache, cross_cache = caches
        x = self.self_attention_residual(
            x,
            lambda normed: self.self_attention(normed, normed, normed, tgt_mask, cache=self_cache),
        )
        x = self.cross_attention_residual(
            x,
            lambda query: self.cross_attention(query, memory, memory, src_mask, cache=cross_cache),
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Decoder(nn.Module):
    """A stack of decoder layers, followed by a final norm if the layers are pre-norm.

    Args:
        d_model: Number of features at each position.
        num_heads: Number of heads in each attention layer.
        d_ff: Number of hidden features in each feed-forward layer; 4 · d_model by default.
        num_layers: Number of layers, each with its own initial weights.
        norm_first: Pre-norm if true, post-norm if false.
        **layer: Further keyword arguments of DecoderLayer.

    Raises:
        ValueError: If num_layers is below 1, or an argument is invalid for a layer.

    Source:
        Vaswani et al. (2017), section 3.1. The final norm is that of Encoder.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int | None = None, *,
        num_layers: int = 6, norm_first: bool = True, **layer: object,
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive("Decoder", num_layers=num_layers)
        self.d_model = d_model
        self.layers = nn.ModuleList(
            DecoderLayer(d_model, num_heads, d_ff, norm_first=norm_first, **layer)
            for _ in range(num_layers)
        )
        self.norm = LayerNorm(d_model) if norm_first else None

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch tgt d_model"],
        memory: Float[Tensor, "batch src d_model"],
        *,
        tgt_mask: Bool[Tensor, "#batch #head #tgt _tgt"] | None = None,
        src_mask: Bool[Tensor, "#batch #head #tgt _src"] | None = None,
        caches: list[tuple[Cache, Cache]] | None = None,
    ) -> Float[Tensor, "batch tgt d_model"]:
        """Pass the target sentence through all layers, which share one memory.

        Args:
            x: Embedded target tokens with their positions.
            memory: The encoder's output.
            tgt_mask: True where a target position may be attended to; causal in training.
            src_mask: True where a source position may be attended to, as in the encoder.
            caches: KV caches of self-attention and cross-attention in each layer.

        Raises:
            ValueError: If the shapes do not match.
        """
        pairs = [(None, None)] * len(self.layers) if caches is None else caches
        sizes = {"layers": len(self.layers), "caches": len(pairs)}
        check_equal("Decoder", "the numbers of layers and caches", **sizes)
        for layer, pair in zip(self.layers, pairs, strict=True):
            x = layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask, caches=pair)
        return x if self.norm is None else self.norm(x)
