"""Multi-head attention: several attentions in parallel, each on its own slice of features.

Step 06 | notebooks/06_multi_head_attention.ipynb | tests/unit/test_multi_head_attention.py
"""

from collections.abc import Callable

from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve._checks import check_dropout, check_heads, check_mask, check_positive, checked, shows
from twelve.attention import scaled_dot_product_attention
from twelve.linear import Linear

# Appends new key heads and value heads to the cached ones and returns all of them.
Cache = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class MultiHeadAttention(nn.Module):
    """Attend in several heads in parallel and mix their outputs.

        head_h = Attention(Q W_Q^h, K W_K^h, V W_V^h)
        MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O

    Args:
        d_model: Number of features of each input and output vector.
        num_heads: Number of heads.
        d_k: Number of features of a query and a key in each head; d_model / num_heads by default.
        d_v: Number of features of a value in each head; d_model / num_heads by default.
        bias: Whether the four projections add a bias.
        dropout: Dropout probability of the attention weights.

    Raises:
        ValueError: If a size is below 1, dropout is outside [0, 1), or d_model is not divisible by
            num_heads and d_k or d_v is not given.

    Source:
        Vaswani et al. (2017), section 3.2.2. The matrices of all heads are stored side by side in
        one matrix, so one large product replaces num_heads small ones.
    """

    # twelve.fast replaces it with torch's kernel.
    attend = staticmethod(scaled_dot_product_attention)

    def __init__(
        self, d_model: int, num_heads: int, *, d_k: int | None = None, d_v: int | None = None,
        bias: bool = False, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive("MultiHeadAttention", d_model=d_model, num_heads=num_heads)
        check_dropout("MultiHeadAttention", dropout)
        check_heads("MultiHeadAttention", d_model, num_heads, d_k=d_k, d_v=d_v)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_model // num_heads if d_k is None else d_k
        self.d_v = d_model // num_heads if d_v is None else d_v
        check_positive("MultiHeadAttention", d_k=self.d_k, d_v=self.d_v)
        self.dropout = dropout
        self.w_q = Linear(d_model, num_heads * self.d_k, bias=bias)
        self.w_k = Linear(d_model, num_heads * self.d_k, bias=bias)
        self.w_v = Linear(d_model, num_heads * self.d_v, bias=bias)
        self.w_o = Linear(num_heads * self.d_v, d_model, bias=bias)

    @checked
    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_model"],
        value: Float[Tensor, "batch key d_model"],
        mask: Bool[Tensor, "#batch #head #query _key"] | None = None,
        *,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Project, split into heads, attend in each head, merge, project.

        Args:
            query: Vectors from which queries are computed.
            key: Vectors from which keys are computed.
            value: Vectors from which values are computed, at the same positions as key.
            mask: True where a query may attend; broadcasts to (batch, head, query, key).
            cache: A KV cache. The queries attend to all cached keys, and the mask must cover them.

        Raises:
            ValueError: If d_model, batch or the number of keys disagree, or the mask is not
                boolean, does not have four axes or does not broadcast.
        """
        projected_query: Float[Tensor, "batch query head*d_k"] = self.w_q(query)
        projected_key: Float[Tensor, "batch key head*d_k"] = self.w_k(key)
        projected_value: Float[Tensor, "batch key head*d_v"] = self.w_v(value)

        query_heads: Float[Tensor, "batch head query d_k"] = self._split(projected_query)
        key_heads: Float[Tensor, "batch head key d_k"] = self._split(projected_key)
        value_heads: Float[Tensor, "batch head key d_v"] = self._split(projected_value)
        if cache is not None:
            key_heads, value_heads = cache(key_heads, value_heads)
        if mask is not None:
            check_mask("MultiHeadAttention", mask, (*query_heads.shape[:3], key_heads.size(2)))

        dropout_p = self.dropout if self.training else 0.0
        context = self.attend(query_heads, key_heads, value_heads, mask, dropout_p)
        merged: Float[Tensor, "batch query head*d_v"] = self._merge(context)
        output: Float[Tensor, "batch query d_model"] = self.w_o(merged)
        return output

    def _split(self, projected: Tensor) -> Tensor:
        return rearrange(
            projected, "batch seq (head d_k) -> batch head seq d_k", head=self.num_heads
        )

    def _merge(self, context: Tensor) -> Tensor:
        return rearrange(context, "batch head query d_v -> batch query (head d_v)")

    extra_repr = shows("d_model", "num_heads", "d_k", "d_v", "dropout")
