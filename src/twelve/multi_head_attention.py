"""Multi-head attention: several attentions side by side, each in its own slice of features.

Step 06 | notebooks/06_multi_head_attention.ipynb | tests/unit/test_multi_head_attention.py
"""

from collections.abc import Callable

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve._checks import check_axis, check_dropout, check_mask, check_positive, check_same, shows
from twelve.attention import scaled_dot_product_attention
from twelve.linear import Linear

Cache = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class MultiHeadAttention(nn.Module):
    """Attend with several heads at once and mix their answers.

        head_h = Attention(Q W_Q^h, K W_K^h, V W_V^h)
        MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O

    Args:
        d_model: Features that come in and go out.
        num_heads: How many attentions run side by side.
        d_k: Features of a query and a key in each head; d_model / num_heads if not given.
        d_v: Features of a value in each head; d_model / num_heads if not given.
        bias: Whether the four projections add a bias.
        dropout: Probability of dropping an attention weight while training.
        fused: Whether to call torch's fused kernel: the same numbers, no intermediate to look at.

    Raises:
        ValueError: If a size is below 1, dropout lies outside [0, 1), or d_model does not divide
            into num_heads where d_k or d_v would have to be derived from it.

    Source:
        Vaswani et al. (2017), section 3.2.2. The heads' matrices are stored side by side in one
        matrix: one large product instead of num_heads small ones.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, d_k: int | None = None, d_v: int | None = None,
        bias: bool = False, dropout: float = 0.0, fused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive("MultiHeadAttention", d_model=d_model, num_heads=num_heads)
        check_dropout("MultiHeadAttention", dropout)
        if (d_k is None or d_v is None) and d_model % num_heads:
            problem = f"d_model={d_model} does not divide into num_heads={num_heads}"
            advice = "choose another number of heads or give d_k and d_v"
            raise ValueError(f"MultiHeadAttention: {problem}; {advice}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_model // num_heads if d_k is None else d_k
        self.d_v = d_model // num_heads if d_v is None else d_v
        check_positive("MultiHeadAttention", d_k=self.d_k, d_v=self.d_v)
        self.dropout = dropout
        self.fused = fused
        self.w_q = Linear(d_model, num_heads * self.d_k, bias=bias)
        self.w_k = Linear(d_model, num_heads * self.d_k, bias=bias)
        self.w_v = Linear(d_model, num_heads * self.d_v, bias=bias)
        self.w_o = Linear(num_heads * self.d_v, d_model, bias=bias)

    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_model"],
        value: Float[Tensor, "batch key d_model"],
        mask: Bool[Tensor, "#batch #head #query _key"] | None = None,
        *,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Project, split into heads, attend in each, merge, project.

        Args:
            query: The positions that ask.
            key: The positions that are looked at, as they can be found.
            value: The same positions, as they are handed over.
            mask: True where a query may attend; broadcast to (batch, head, query, key).
            cache: Takes the key and value heads of these positions and gives back those of all
                positions so far, which the queries then attend to and the mask must cover.

        Returns:
            One vector of d_model features for each query.

        Raises:
            ValueError: If d_model, the batch or the number of keys disagree, or the mask is not
                boolean, has not four axes or does not broadcast.
        """
        self._check(query, key, value)
        projected_query: Float[Tensor, "batch query head*d_k"] = self.w_q(query)
        projected_key: Float[Tensor, "batch key head*d_k"] = self.w_k(key)
        projected_value: Float[Tensor, "batch key head*d_v"] = self.w_v(value)

        query_heads: Float[Tensor, "batch head query d_k"] = self._split(projected_query)
        key_heads: Float[Tensor, "batch head key d_k"] = self._split(projected_key)
        value_heads: Float[Tensor, "batch head key d_v"] = self._split(projected_value)

        if cache is not None:
            key_heads, value_heads = cache(key_heads, value_heads)
        if mask is not None:
            scores_shape = (*query_heads.shape[:3], key_heads.size(2))
            check_mask("MultiHeadAttention", mask, scores_shape, four_axes=True)

        attend = F.scaled_dot_product_attention if self.fused else scaled_dot_product_attention
        dropout_p = self.dropout if self.training else 0.0
        blended = attend(query_heads, key_heads, value_heads, mask, dropout_p)
        merged: Float[Tensor, "batch query head*d_v"] = self._merge(blended)
        output: Float[Tensor, "batch query d_model"] = self.w_o(merged)
        return output

    def _split(self, projected: Tensor) -> Tensor:
        if self.fused:
            # The same move; on the smallest models reading a pattern takes longer than attending.
            return projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return rearrange(
            projected, "batch seq (head d_k) -> batch head seq d_k", head=self.num_heads
        )

    def _merge(self, blended: Tensor) -> Tensor:
        if self.fused:
            return blended.transpose(1, 2).flatten(2)
        return rearrange(blended, "batch head query d_v -> batch query (head d_v)")

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        owner = "MultiHeadAttention"
        check_axis(owner, "query", query, "d_model", self.d_model, rank=3)
        if key is query and value is query:
            return  # self-attention: one tensor cannot disagree with itself
        check_axis(owner, "key", key, "d_model", self.d_model, rank=3)
        check_axis(owner, "value", value, "d_model", self.d_model, rank=3)
        check_same(owner, "batch", query=query.size(0), key=key.size(0), value=value.size(0))
        check_same(owner, "the number of keys", key=key.size(1), value=value.size(1))

    extra_repr = shows("d_model", "num_heads", "d_k", "d_v", "dropout", "fused")
