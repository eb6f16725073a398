"""Scaled dot-product attention: each query takes a weighted average of the values.

Step 04 | notebooks/04_attention.ipynb | tests/unit/test_attention.py
"""

import math

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from twelve._checks import check_dropout, check_positive, checked


@checked
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
        query: Query vectors: what each position looks for.
        key: Key vectors: what each query is compared with.
        value: Value vectors: what each position contributes.
        attn_mask: True where a query may attend. A query whose keys are all masked gets zeros.
        dropout_p: Probability of dropping a weight. Dropout is applied whenever it is above 0, as
            in torch, so modules pass 0 in eval mode.

    Returns:
        One weighted average of the values for each query.

    Raises:
        ValueError: If dtypes or leading axes differ, query and key differ in d_k, key and value
            differ in length, the mask is not boolean or does not broadcast to
            `(*batch, query, key)`, or dropout_p is outside [0, 1).

    Source:
        Vaswani et al. (2017), section 3.2.1, equation 1. Same signature and same mask convention
        as torch.nn.functional.scaled_dot_product_attention.
    """
    check_dropout("scaled_dot_product_attention", dropout_p)
    # A dot product of d_k terms with variance 1 has variance d_k. Dividing by its standard
    # deviation keeps softmax out of its flat region, where gradients vanish.
    d_k = query.size(-1)
    check_positive("scaled_dot_product_attention", d_k=d_k)
    scores: Float[Tensor, "*batch query key"] = query @ key.transpose(-2, -1) / math.sqrt(d_k)
    if attn_mask is None:
        weights: Float[Tensor, "*batch query key"] = scores.softmax(-1)
    else:
        hidden = ~attn_mask
        masked_scores: Float[Tensor, "*batch query key"] = scores.masked_fill(hidden, -math.inf)
        # softmax of a row of -inf is 0/0, and the NaN would reach every gradient. Such a row goes
        # through softmax as zeros, and its weights are set to zero afterwards.
        empty = hidden.all(-1, keepdim=True)
        weights: Float[Tensor, "*batch query key"] = (
            masked_scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
        )

    kept = F.dropout(weights, dropout_p)
    context: Float[Tensor, "*batch query d_v"] = kept @ value
    return context
