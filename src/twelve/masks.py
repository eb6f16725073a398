"""Masks: which key each query may attend to. True = may attend.

Step 05 | notebooks/05_masks.ipynb | tests/unit/test_masks.py
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from twelve._checks import check_ids, check_positive


def padding_mask(ids: Int[Tensor, "batch key"], pad_id: int = 0) -> Bool[Tensor, "batch 1 1 key"]:
    """Allow every key that is a real token.

    Args:
        ids: Token ids of the sentences that are looked at.
        pad_id: The id that only fills up a sentence.

    Returns:
        True where the token is real; broadcasts over head and query.

    Raises:
        ValueError: If ids are not (batch, key) or of another type than int64 and int32.
    """
    check_ids("padding_mask", ids=ids)
    return (ids != pad_id)[:, None, None, :]


def causal_mask(
    query_len: int, key_len: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "1 1 query key"]:
    """Allow each query its own position and everything before it.

    Args:
        query_len: Number of queries. They are the *last* positions of the sequence.
        key_len: Number of keys, query_len if not given. With a cache of earlier keys it is
            larger.
        device: Where the mask is made.

    Returns:
        True up to the diagonal through the lower right corner; broadcasts over batch and head.

    Raises:
        ValueError: If a length is below 1, or there are fewer keys than queries.

    Source:
        Vaswani et al. (2017), section 3.2.3. At unequal lengths torch's is_causal aligns the
        queries with the *first* positions instead.
    """
    key_len = query_len if key_len is None else key_len
    check_positive("causal_mask", query_len=query_len, key_len=key_len)
    if key_len < query_len:
        order = f"key_len={key_len} cannot be below query_len={query_len}"
        raise ValueError(f"causal_mask: the queries are the last of the keys, so {order}")
    allowed = torch.ones(query_len, key_len, dtype=torch.bool, device=device)
    return allowed.tril(diagonal=key_len - query_len)[None, None]
