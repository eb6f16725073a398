"""Multi-head latent attention: keys and values of all heads come from one small vector per token.

By hand | notebooks/by_hand/latent_attention.ipynb | tests/unit/test_latent_attention.py
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve._checks import check_dropout, check_heads, check_mask, check_positive, checked, shows
from twelve.attention import scaled_dot_product_attention
from twelve.generation import KeyValueCache
from twelve.linear import Linear
from twelve.rotary_positions import RotaryEncoding


class LatentCache(KeyValueCache):
    """KV cache of a LatentAttention: the latents, and the rotated keys that all heads share.

    Args:
        attention: A LatentAttention. The cache has the same sizes, dtype and device.
        batch: Number of sentences generated in parallel.
        max_len: Maximum number of positions.
        layer: Index of the layer, if a model has several caches.

    Raises:
        ValueError: If a size is below 1.
    """

    @staticmethod
    def _sizes(attention: nn.Module) -> tuple[int, int, int]:
        return 1, attention.d_rotary, attention.d_latent


class LatentAttention(nn.Module):
    """Self-attention with keys and values expanded from one latent vector per position.

        c = RMSNorm(X W_C),  r = RoPE(X W_R)
        Q_h = [X W_Q^h ; RoPE(X W_QR^h)],  K_h = [c W_K^h ; r],  V_h = c W_V^h
        Latent(X) = Concat(Attention(Q_1, K_1, V_1), ..., Attention(Q_H, K_H, V_H)) W_O

    The cache holds c and r, which all heads share. RoPE is applied to separate features: a rotated
    c W_K^h would depend on the position, so W_K could not be absorbed into the queries. The scores
    are divided by the square root of d_k + d_rotary.

    Args:
        d_model: Number of features of each input and output vector.
        num_heads: Number of heads.
        d_latent: Number of features of the latent vector.
        d_k: Number of features of a query and a key in each head, without the rotated ones;
            d_model / num_heads by default.
        d_v: Number of features of a value in each head; d_k by default.
        rotary: Rotates rotary.d_k further features of queries and keys. Without it, their
            order is ignored.
        dropout: Dropout probability of the attention weights.

    Raises:
        ValueError: If a size is below 1, dropout is outside [0, 1), or d_model is not divisible by
            num_heads and d_k is not given.

    Source:
        DeepSeek-AI (2024), "DeepSeek-V2", section 2.1, without the compression of queries, as in
        DeepSeek-V2-Lite. Its code concatenates W_C and W_R (here w_down), W_K and W_V (here
        w_up), and W_Q and W_QR (here w_q).
    """

    def __init__(
        self, d_model: int, num_heads: int, d_latent: int, *, d_k: int | None = None,
        d_v: int | None = None, rotary: RotaryEncoding | None = None, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive("LatentAttention", d_model=d_model, num_heads=num_heads, d_latent=d_latent)
        check_dropout("LatentAttention", dropout)
        check_heads("LatentAttention", d_model, num_heads, d_k=d_k)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_latent = d_latent
        self.d_k = d_model // num_heads if d_k is None else d_k
        self.d_v = self.d_k if d_v is None else d_v
        check_positive("LatentAttention", d_k=self.d_k, d_v=self.d_v)
        self.d_rotary = 0 if rotary is None else rotary.d_k
        self.rotary = rotary
        self.dropout = dropout
        self.w_q = Linear(d_model, num_heads * (self.d_k + self.d_rotary), bias=False)
        self.w_down = Linear(d_model, d_latent + self.d_rotary, bias=False)
        # Not twelve's RMSNorm: its axis is named d_model, whose size must not change in a trace.
        self.norm = nn.RMSNorm(d_latent, eps=1e-6)
        self.w_up = Linear(d_latent, num_heads * (self.d_k + self.d_v), bias=False)
        self.w_o = Linear(num_heads * self.d_v, d_model, bias=False)

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "#batch #head #seq _key"] | None = None,
        *,
        cache: LatentCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Project, apply RoPE, update the cache, expand the latents, attend, merge, project.

        Args:
            x: Vectors from which queries, keys and values are computed.
            mask: True where a query may attend; broadcasts to (batch, head, query, key).
            cache: Latents of the positions before x. The queries attend to cached and new
                positions, and the mask must cover all of them.

        Returns:
            One vector of d_model features for each position of x.

        Raises:
            ValueError: If d_model differs, the mask is not boolean, does not have four axes or does
                not broadcast, or a position is outside the cache or the table of angles.
        """
        projected = self._split(self.w_q(x)).split([self.d_k, self.d_rotary], dim=-1)
        query_content: Float[Tensor, "batch head seq d_k"] = projected[0]
        query_rotary: Float[Tensor, "batch head seq d_rotary"] = projected[1]
        down = self.w_down(x).unsqueeze(1).split([self.d_latent, self.d_rotary], dim=-1)
        latent: Float[Tensor, "batch 1 seq d_latent"] = self.norm(down[0])
        key_rotary: Float[Tensor, "batch 1 seq d_rotary"] = down[1]
        if self.rotary is not None:
            start = 0 if cache is None else cache.length
            query_rotary = self.rotary(query_rotary, start)
            key_rotary = self.rotary(key_rotary, start)
        if cache is not None:
            key_rotary, latent = cache(key_rotary, latent)
        if mask is not None:
            check_mask("LatentAttention", mask, (*query_content.shape[:3], latent.size(2)))

        up = self._split(self.w_up(latent.squeeze(1))).split([self.d_k, self.d_v], dim=-1)
        key_content: Float[Tensor, "batch head key d_k"] = up[0]
        value_heads: Float[Tensor, "batch head key d_v"] = up[1]
        shared: Float[Tensor, "batch head key d_rotary"] = key_rotary.expand(
            -1, self.num_heads, -1, -1
        )
        context = scaled_dot_product_attention(
            torch.cat([query_content, query_rotary], dim=-1),
            torch.cat([key_content, shared], dim=-1),
            value_heads,
            mask,
            self.dropout if self.training else 0.0,
        )
        merged: Float[Tensor, "batch seq head*d_v"] = context.transpose(1, 2).flatten(2)
        output: Float[Tensor, "batch seq d_model"] = self.w_o(merged)
        return output

    def _split(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    extra_repr = shows("d_model", "num_heads", "d_latent", "d_k", "d_v", "dropout")
