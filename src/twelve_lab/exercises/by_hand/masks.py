"""By hand: attention with a padding mask and a causal mask."""

import math

import torch
from torch import Tensor

from twelve_lab import example
from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import attend, mask_of_new, masked_weights, padding_mask
from twelve_lab.exercises.numbers import SIZES, distinct_heads, distinct_ids, twelve_heads

# The example on the page: a sentence padded on the left, and exponentials of scores of query 2.
_IDS, _POWERS = [[0, 3, 1, 2]], [4.0, 1.0, 3.0, 8.0]


def _masked_attention_cases() -> Cases:
    one, ids = twelve_heads(1), distinct_ids()
    return {
        "our two sentences": (one.query, one.key, one.value, example.src.clone()),
        "one new word": (*distinct_heads(1), ids.clone()),
        "padding on the left": (*distinct_heads(SIZES.src), ids.flip(1)),
        "all sizes differ": (*distinct_heads(), ids),
    }


@task(
    _masked_attention_cases,
    forbidden=("scaled_dot_product_attention",),
    measures="combining both masks, each on its own axis, and the empty row",
)
def masked_attention(query: Tensor, key: Tensor, value: Tensor, ids: Tensor) -> Tensor:
    """query (batch, head, query, d_k), key (batch, head, key, d_k), value (batch, head, key, d_v),
    ids of the keys (batch, key), 0 is padding -> (batch, head, query, d_v)
    """
    causal = mask_of_new(query.size(-2), key.size(-2))
    return attend(query, key, value, padding_mask(ids) & causal)


@solved(masked_attention)
def _attention_under_both(query, key, value, ids):
    query_len, key_len = query.size(-2), key.size(-2)
    causal = torch.ones(query_len, key_len).tril(key_len - query_len).bool()
    mask = (ids != 0)[:, None, None, :] & causal
    empty = ~mask.any(-1, keepdim=True)
    match = query @ key.mT / math.sqrt(query.size(-1))
    match = match.masked_fill(~mask, -math.inf).masked_fill(empty, 0.0)
    return match.softmax(-1).masked_fill(empty, 0.0) @ value


_CAUSAL, _BOTH = "mask_of_new(query.size(-2), key.size(-2))", "padding_mask(ids) & causal"
mistake(
    masked_attention,
    "masks-either",
    "You combined the masks with or, so a key masked by only one of them stays visible: both masks "
    "must allow a key, so combine them with &.",
    {_BOTH: "padding_mask(ids) | causal"},
)
mistake(
    masked_attention,
    "masks-padding-query",
    "You also masked all keys for padding queries, so their rows are empty: mask padding only as a "
    "key.",
    {_BOTH: "padding_mask(ids) & padding_mask(ids)[..., -query.size(-2) :].mT & causal"},
)
mistake(
    masked_attention,
    "masks-padding-visible",
    "Only the causal mask is applied, so words attend to padding: also mask the keys whose id is "
    "0.",
    {_BOTH: "causal"},
)
mistake(
    masked_attention,
    "masks-future-visible",
    "Only the padding mask is applied, so a word sees the words after it: also mask later keys.",
    {_BOTH: "padding_mask(ids)"},
)
again(
    masked_attention,
    "causal-triu",
    {
        _CAUSAL: "torch.ones(query.size(-2), key.size(-2)).triu(key.size(-2) - "
        "query.size(-2)).bool()"
    },
)
notes(
    masked_attention,
    {
        "One future word is visible: a query must not see any position after its own.": {
            _CAUSAL: "torch.ones(query.size(-2), key.size(-2)).tril(key.size(-2) - "
            "query.size(-2) + 1).bool()"
        },
        "All keys are visible: mask padding and later words.": {
            f"attend(Q, K, V, {_BOTH})": "attend(Q, K, V)"
        },
        "You masked the values, not the scores: a masked key still contributes to the sum, so mask "
        "the scores before softmax.": {
            f"attend(Q, K, V, {_BOTH})": "attend(Q, K, V * padding_mask(ids).mT, causal)"
        },
    },
)


@question(
    decimals=2,
    measures="an empty row, both masks together, and a masked key in the sum",
    worked="[0, 0 + 1 + 2 + 3, 3 / (1 + 3)]",
)
def masks_on_paper() -> list[float]:
    """the number of keys that query 0 sees, the number of visible pairs of query and key, and the
    weight of key 2 for query 2
    """
    mask = padding_mask(torch.tensor(_IDS)) & mask_of_new(4, 4)
    scores = torch.tensor(_POWERS).log().expand(1, 1, 4, 4)
    weight = masked_weights(scores, mask)[0, 0, 2, 2]
    return [mask[0, 0, 0].sum().item(), mask.sum().item(), weight.item()]


notes(
    masks_on_paper,
    {
        "Query 0 does not see itself: its token is padding, and padding is masked for all "
        "queries.": [
            1, 7, 0.75,
        ],
        "This is the causal mask alone: key 0 is padding, so mask it too.": [1, 10, 3 / 8],
        "This is the padding mask alone: a query must not see later words.": [3, 12, 3 / 12],
        "This is the weight before masking: leave masked keys out of the sum too.": [
            0, 6, 3 / 16,
        ],
        "Only the weight is wrong: leave the padding key 0 out of the sum too.": [0, 6, 3 / 8],
        "Only the weight is wrong: query 2 does not see key 3.": [0, 6, 3 / 12],
    },
)  # fmt: skip
