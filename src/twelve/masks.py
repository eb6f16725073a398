"""Masks: which keys each query may attend to. True = may attend.

Step 05 | notebooks/05_masks.ipynb | tests/unit/test_masks.py
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from twelve._checks import check_positive, checked


@checked
def padding_mask(ids: Int[Tensor, "batch key"], pad_id: int = 0) -> Bool[Tensor, "batch 1 1 key"]:
    """Allow attention to every key that is not padding.

    Args:
        ids: Token ids of the keys.
        pad_id: Id of the padding token.

    Returns:
        True where the token is not padding; broadcasts over heads and queries.

    Raises:
        ValueError: If ids are not integers with the axes (batch, key).
    """
    return (ids != pad_id)[:, None, None, :]


def causal_mask(
    query_len: int, key_len: int | None = None, *, window: int | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "1 1 query key"]:  # fmt: skip
    """Allow each query to attend to its own position and all earlier ones.

    Args:
        query_len: Number of queries, which are the *last* positions of the sequence.
        key_len: Number of keys; query_len by default. With a KV cache it is larger.
        window: Number of positions that a query may attend to, including its own; all by default.
        device: Device of the mask.

    Returns:
        True on and below the diagonal that ends in the lower right corner; broadcasts over batch
        and heads.

    Raises:
        ValueError: If a length or the window is below 1, or key_len is below query_len.

    Source:
        Vaswani et al. (2017), section 3.2.3. With fewer queries than keys, torch's is_causal
        aligns the queries with the *first* keys instead. The window is that of Mistral 7B: Jiang et
        al. (2023), section 2.
    """
    key_len = query_len if key_len is None else key_len
    check_positive("causal_mask", query_len=query_len, key_len=key_len)
    if key_len < query_len:
        raise ValueError(
            f"causal_mask: key_len must be at least query_len={query_len}, got {key_len}"
        )
    allowed = torch.ones(query_len, key_len, dtype=torch.bool, device=device)
    allowed = allowed.tril(diagonal=key_len - query_len)
    if window is not None:
        check_positive("causal_mask", window=window)
        allowed = allowed.triu(diagonal=key_len - query_len - window + 1)
    return allowed[None, None]
