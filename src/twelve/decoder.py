"""Decoder: layers in which target positions look back at themselves and across at the source.

Step 11 | notebooks/11_decoder.ipynb | tests/unit/test_decoder.py
"""

from jaxtyping import Bool, Float
from torch import Tensor

from twelve._checks import check_axis, check_same
from twelve.encoder import Layer, Stack
from twelve.multi_head_attention import Cache


class DecoderLayer(Layer):
    """Masked self-attention, cross-attention, feed-forward, each inside a residual connection.

    Args:
        d_model: Features of each position.
        num_heads: Heads of both attentions.
        d_ff: Features inside the feed-forward layer; 4 · d_model if not given.
        d_k: Features of a query and a key in each head; d_model / num_heads if not given.
        d_v: Features of a value in each head; d_model / num_heads if not given.
        dropout: Probability used at every dropout of the layer.
        norm_first: Pre-norm if true, post-norm if false.
        activation: "relu" or "gelu".
        bias: Whether the projections of the attentions add a bias.
        fused: Whether attention and norm call torch's fused kernels.

    Raises:
        ValueError: If one of its parts refuses its sizes.

    Source:
        Vaswani et al. (2017), section 3.1 and the right half of figure 1.
    """

    has_cross_attention = True

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
            x: The target sentence so far.
            memory: The encoder's output. In cross-attention it gives both keys and values.
            tgt_mask: True where a target position may be looked at.
            src_mask: True where a source position may be looked at.
            caches: What keeps the keys and values of both attentions; see MultiHeadAttention.

        Returns:
            The same target positions, each with what it gathered.
        """
        own, across = caches
        x = self.self_attention_residual(
            x, lambda query: self.self_attention(query, query, query, tgt_mask, cache=own)
        )
        x = self.cross_attention_residual(
            x, lambda query: self.cross_attention(query, memory, memory, src_mask, cache=across)
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Decoder(Stack):
    """A stack of decoder layers, and after pre-norm layers one last norm.

    Args:
        d_model: Features of each position.
        num_heads: Heads of each attention.
        d_ff: Features inside each feed-forward layer; 4 · d_model if not given.
        num_layers: Layers, each built fresh.
        norm_first: Pre-norm if true, post-norm if false.
        fused: Whether attention and norm call torch's fused kernels.
        **layer: Further keywords of DecoderLayer.

    Raises:
        ValueError: If num_layers is below 1, or a layer refuses its sizes.

    Source:
        Vaswani et al. (2017), section 3.1. The final norm of pre-norm as in Encoder.
    """

    kind = DecoderLayer

    def forward(
        self,
        x: Float[Tensor, "batch tgt d_model"],
        memory: Float[Tensor, "batch src d_model"],
        *,
        tgt_mask: Bool[Tensor, "#batch #head #tgt #tgt"] | None = None,
        src_mask: Bool[Tensor, "#batch #head #tgt #src"] | None = None,
    ) -> Float[Tensor, "batch tgt d_model"]:
        """Pass the target sentence through every layer, each with the same memory.

        Args:
            x: Embedded target tokens with their positions.
            memory: The encoder's output.
            tgt_mask: True where a target position may be looked at; causal in training.
            src_mask: True where a source position may be looked at; the encoder's own mask.

        Returns:
            One vector for each target position, ready to be compared with the vocabulary.

        Raises:
            ValueError: If d_model or the batch of x and memory disagree.
        """
        check_axis("Decoder", "x", x, "d_model", self.d_model, rank=3)
        check_axis("Decoder", "memory", memory, "d_model", self.d_model, rank=3)
        check_same("Decoder", "batch", x=x.size(0), memory=memory.size(0))
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
        return x if self.norm is None else self.norm(x)
