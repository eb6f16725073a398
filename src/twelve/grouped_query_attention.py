"""Grouped-query attention: several query heads share one head of keys and values.

Step 17 | notebooks/17_grouped_query_attention.ipynb | tests/unit/test_grouped_query_attention.py
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve._checks import (
    check_divisible,
    check_dropout,
    check_equal,
    check_heads,
    check_mask,
    check_positive,
    checked,
    shows,
)
from twelve.attention import scaled_dot_product_attention
from twelve.generation import KeyValueCache
from twelve.linear import Linear
from twelve.rotary_positions import RotaryEncoding


class GroupedQueryAttention(nn.Module):
    """Self-attention with fewer key and value heads than query heads.

        head_h = Attention(X W_Q^h, X W_K^g, X W_V^g),  g = ⌊h · num_kv_heads / num_heads⌋
        Grouped(X) = Concat(head_1, ..., head_H) W_O

    Args:
        d_model: Number of features of each input and output vector.
        num_heads: Number of query heads.
        num_kv_heads: Number of key and value heads: 1 is multi-query attention, and num_heads, the
            default, is multi-head attention.
        d_k: Number of features of a query, key or value in each head; d_model / num_heads by
            default.
        rotary: Encoding that rotates queries and keys by their position. Without it, their order is
            ignored.
        bias: Whether the four projections add a bias.
        dropout: Dropout probability of the attention weights.

    Raises:
        ValueError: If a size is below 1, dropout is outside [0, 1), num_heads is not divisible by
            num_kv_heads, d_model is not divisible by num_heads and d_k is not given, or rotary has
            a different d_k.

    Source:
        Ainslie et al. (2023), "GQA", section 2.2; Shazeer (2019) for a single key and value head.
        Adjacent query heads share a head, as in LLaMA; the paper does not say which do.
    """

    def __init__(
        self, d_model: int, num_heads: int, num_kv_heads: int | None = None, *,
        d_k: int | None = None, rotary: RotaryEncoding | None = None, bias: bool = False,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        check_positive("GroupedQueryAttention", d_model=d_model, **heads)
        check_divisible("GroupedQueryAttention", **heads)
        check_dropout("GroupedQueryAttention", dropout)
        check_heads("GroupedQueryAttention", d_model, num_heads, d_k=d_k)
        self.d_model = d_model
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.d_k = d_model // num_heads if d_k is None else d_k
        check_positive("GroupedQueryAttention", d_k=self.d_k)
        if rotary is not None:
            check_equal("GroupedQueryAttention", "d_k", attention=self.d_k, rotary=rotary.d_k)
        self.rotary = rotary
        self.dropout = dropout
        self.w_q = Linear(d_model, num_heads * self.d_k, bias=bias)
        self.w_k = Linear(d_model, num_kv_heads * self.d_k, bias=bias)
        self.w_v = Linear(d_model, num_kv_heads * self.d_k, bias=bias)
        self.w_o = Linear(num_heads * self.d_k, d_model, bias=bias)

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "#batch #head #seq _key"] | None = None,
        *,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Project, apply RoPE, update the KV cache, repeat KV heads, attend, merge, project.

        Args:
            x: Vectors from which queries, keys and values are computed.
            mask: True where a query may attend; broadcasts to (batch, head, query, key).
            cache: Keys and values of the positions before x. The queries attend to cached and new
                positions, and the mask must cover all of them.

        Raises:
            ValueError: If d_model differs, the mask is not boolean, does not have four axes or does
                not broadcast, or a position is outside the cache or the table of angles.
        """
        query_heads: Float[Tensor, "batch head seq d_k"] = self._split(self.w_q(x))
        key_heads: Float[Tensor, "batch kv_head seq d_k"] = self._split(self.w_k(x))
        value_heads: Float[Tensor, "batch kv_head seq d_v"] = self._split(self.w_v(x))
        if self.rotary is not None:
            start = 0 if cache is None else cache.length
            query_heads, key_heads = self.rotary(query_heads, start), self.rotary(key_heads, start)
        if cache is not None:
            # Cache keys after RoPE and before repeating heads.
            key_heads, value_heads = cache(key_heads, value_heads)
        if mask is not None:
            check_mask("GroupedQueryAttention", mask, (*query_heads.shape[:3], key_heads.size(2)))

        shared_keys: Float[Tensor, "batch head key d_k"] = self._repeat(key_heads)
        shared_values: Float[Tensor, "batch head key d_v"] = self._repeat(value_heads)
        dropout_p = self.dropout if self.training else 0.0
        context = scaled_dot_product_attention(
            query_heads, shared_keys, shared_values, mask, dropout_p
        )
        merged: Float[Tensor, "batch seq head*d_v"] = context.transpose(1, 2).flatten(2)
        output: Float[Tensor, "batch seq d_model"] = self.w_o(merged)
        return output

    def _split(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.d_k)).transpose(1, 2)

    def _repeat(self, heads: Tensor) -> Tensor:
        # 0, 0, 1, 1: adjacent query heads share a head. Tensor.repeat gives 0, 1, 0, 1.
        return heads.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)

    extra_repr = shows("d_model", "num_heads", "num_kv_heads", "d_k", "dropout")
