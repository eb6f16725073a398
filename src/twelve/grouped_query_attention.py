"""Grouped-query attention: several query heads share one head of keys and values.

Step 17 | notebooks/17_grouped_query_attention.ipynb | tests/unit/test_grouped_query_attention.py
"""

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from twelve._checks import check_axis, check_mask, check_positive, check_same, shows
from twelve.attention import scaled_dot_product_attention
from twelve.generation import KeyValueCache
from twelve.linear import Linear
from twelve.multi_head_attention import MultiHeadAttention
from twelve.rotary_positions import RotaryEncoding


class GroupedQueryAttention(MultiHeadAttention):
    """Let a sentence attend to itself, with fewer heads of keys and values than of queries.

        head_h = Attention(X W_Q^h, X W_K^g, X W_V^g),  g = ⌊h · num_kv_heads / num_heads⌋
        Grouped(X) = Concat(head_1, ..., head_H) W_O

    Args:
        d_model: Features that come in and go out.
        num_heads: How many heads ask.
        num_kv_heads: How many heads of keys and values there are: 1 for multi-query attention, and
            num_heads if not given, which is multi-head attention.
        d_k: Features of a query, a key and a value in each head; d_model / num_heads if not given.
        rotary: Turns queries and keys by their place; without one the order is unknown.
        bias: Whether the four projections add a bias.
        dropout: Probability of dropping an attention weight while training.
        fused: Whether to call torch's fused kernel: the same numbers, no intermediate to look at.

    Raises:
        ValueError: If a size is below 1, dropout lies outside [0, 1), num_heads is no multiple of
            num_kv_heads, or d_model none of num_heads where d_k would have to be derived from it.

    Source:
        Ainslie et al. (2023), "GQA", section 2.2; one head of keys and values: Shazeer (2019).
        Neighbouring query heads share a head, as in LLaMA; the paper does not say which do.
    """

    def __init__(
        self, d_model: int, num_heads: int, num_kv_heads: int | None = None, *,
        d_k: int | None = None, rotary: RotaryEncoding | None = None, bias: bool = False,
        dropout: float = 0.0, fused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            d_model, num_heads, d_k=d_k, d_v=d_k, bias=bias, dropout=dropout, fused=fused
        )
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_positive("GroupedQueryAttention", num_kv_heads=num_kv_heads)
        if num_heads % num_kv_heads:
            problem = f"num_heads={num_heads} cannot share num_kv_heads={num_kv_heads} evenly"
            raise ValueError(f"GroupedQueryAttention: {problem}")
        self.num_kv_heads = num_kv_heads
        self.rotary = rotary
        self.w_k = Linear(d_model, num_kv_heads * self.d_k, bias=bias)
        self.w_v = Linear(d_model, num_kv_heads * self.d_v, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "#batch #head #seq _key"] | None = None,
        *,
        cache: KeyValueCache | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Project, turn, keep, share, attend in each head, merge, project.

        Args:
            x: The positions that ask, and that are looked at.
            mask: True where a query may attend; broadcast to (batch, head, query, key).
            cache: Holds the keys and values of earlier positions, which x follows; the queries
                attend to all of them and the mask must cover them.
            is_causal: Says that the mask is `causal_mask(seq)`, as in torch's layers: the fused
                kernel then skips what lies ahead instead of hiding it.

        Returns:
            One vector of d_model features for each position of x.

        Raises:
            ValueError: If d_model differs, the mask is not boolean, has not four axes or does not
                broadcast, there is no room or no angle for a position, or is_causal comes without
                a mask or with keys of earlier positions.
        """
        check_axis("GroupedQueryAttention", "x", x, "d_model", self.d_model, rank=3)
        query_heads: Float[Tensor, "batch head seq d_k"] = self._split(self.w_q(x))
        key_heads: Float[Tensor, "batch kv_head seq d_k"] = self._split(self.w_k(x))
        value_heads: Float[Tensor, "batch kv_head seq d_v"] = self._split(self.w_v(x))

        if self.rotary is not None:
            start = 0 if cache is None else cache.length
            query_heads, key_heads = self.rotary(query_heads, start), self.rotary(key_heads, start)
        if cache is not None:
            # Kept as they are turned, once, and before they are shared out.
            key_heads, value_heads = cache(key_heads, value_heads)
        if mask is not None or is_causal:
            scores_shape = (*query_heads.shape[:3], key_heads.size(2))
            check_mask("GroupedQueryAttention", mask, scores_shape, four_axes=True)

        dropout_p = self.dropout if self.training else 0.0
        if self.fused:
            heads = (query_heads, key_heads, value_heads)
            blended = self._attend_fused(*heads, mask, dropout_p, is_causal)
        else:
            shared_keys: Float[Tensor, "batch head key d_k"] = self._share(key_heads)
            shared_values: Float[Tensor, "batch head key d_v"] = self._share(value_heads)
            heads = (query_heads, shared_keys, shared_values)
            blended = scaled_dot_product_attention(*heads, mask, dropout_p)
        merged: Float[Tensor, "batch seq head*d_v"] = self._merge(blended)
        output: Float[Tensor, "batch seq d_model"] = self.w_o(merged)
        return output

    def _attend_fused(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float,
        is_causal: bool,
    ) -> Tensor:  # fmt: skip
        hidden = {"attn_mask": mask, "dropout_p": dropout_p}
        if is_causal:
            sizes = {"queries": query.size(2), "keys": key.size(2)}
            check_same("GroupedQueryAttention", "how many a causal mask has", **sizes)
            hidden |= {"attn_mask": None, "is_causal": True}
        # The kernel shares the heads by itself, without copies.
        return F.scaled_dot_product_attention(query, key, value, **hidden, enable_gqa=True)

    def _split(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.d_k)).transpose(1, 2)

    def _share(self, heads: Tensor) -> Tensor:
        # 0, 0, 1, 1: neighbours share. `repeat` would lay them 0, 1, 0, 1, in the same shape.
        return heads.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)

    extra_repr = shows("d_model", "num_heads", "num_kv_heads", "d_k", "dropout", "fused")
