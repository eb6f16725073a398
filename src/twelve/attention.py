"""Scaled dot-product attention: each query takes a weighted average of the values.

Step 04 | notebooks/04_attention.ipynb | tests/unit/test_attention.py
"""

import math

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from twelve._checks import check_dropout, check_mask, check_same, check_types

OWNER = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    attn_mask: Bool[Tensor, "*#batch #query #key"] | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "*batch query d_v"]:
    """Average the values, weighted by how well each query matches each key.

        Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V

    Args:
        query: What each position is looking for.
        key: What each position can be found by.
        value: What each position hands over once found.
        attn_mask: True where a query may attend. A query that may attend nowhere gets zeros.
        dropout_p: Probability of dropping a weight. Applied whenever it is above 0, as in torch:
            a module passes 0 in eval mode.

    Returns:
        One blended value for each query.

    Raises:
        ValueError: If the types or the leading axes differ, query and key in d_k, key and value in
            length, the mask is not boolean or does not broadcast to `(*batch, query, key)`, or
            dropout_p lies outside [0, 1).

    Source:
        Vaswani et al. (2017), section 3.2.1, equation 1. Signature and mask sense of
        torch.nn.functional.scaled_dot_product_attention, which can replace it.
    """
    check_dropout(OWNER, dropout_p)
    _check(query, key, value)
    # A dot product of d_k unit-variance terms has variance d_k: dividing by its standard
    # deviation keeps softmax out of the flat region where gradients vanish.
    d_k = query.size(-1)
    scores: Float[Tensor, "*batch query key"] = query @ key.transpose(-2, -1) / math.sqrt(d_k)
    if attn_mask is None:
        weights: Float[Tensor, "*batch query key"] = scores.softmax(-1)
    else:
        check_mask(OWNER, attn_mask, scores.shape)
        hidden = ~attn_mask
        masked_scores: Float[Tensor, "*batch query key"] = scores.masked_fill(hidden, -math.inf)
        # A row of nothing but -inf would be 0/0 in softmax, and its NaN would reach every
        # gradient. Such a row passes softmax as zeros and has its weights cleared after it.
        empty = hidden.all(-1, keepdim=True)
        weights: Float[Tensor, "*batch query key"] = (
            masked_scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
        )

    kept = F.dropout(weights, dropout_p)
    context: Float[Tensor, "*batch query d_v"] = kept @ value
    return context


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    three = {"query": query, "key": key, "value": value}
    check_types(OWNER, **three)
    check_same(OWNER, "the batch", **{name: one.shape[:-2] for name, one in three.items()})
    check_same(OWNER, "d_k", query=query.size(-1), key=key.size(-1))
    check_same(OWNER, "the number of keys", key=key.size(-2), value=value.size(-2))
