"""By hand: attention under the padding mask and the causal mask together."""

import math

import torch
from torch import Tensor

from twelve_lab import example
from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import attend, mask_of_new, masked_weights, padding_mask
from twelve_lab.exercises.numbers import SIZES, distinct_heads, distinct_ids, twelve_heads

# The page: a sentence with padding on the left, and the powers of the scores of query 2.
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
    measures="both masks on their axes, joined, and the empty row",
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
    "You joined the masks with or, so that a key that one of them hides is visible: a key must be "
    "allowed by both, so join them with &.",
    {_BOTH: "padding_mask(ids) | causal"},
)
mistake(
    masked_attention,
    "masks-padding-query",
    "Your mask also hides the keys of padded queries, so that their rows are empty: hide padding "
    "as a key only.",
    {_BOTH: "padding_mask(ids) & padding_mask(ids)[..., -query.size(-2) :].mT & causal"},
)
mistake(
    masked_attention,
    "masks-padding-visible",
    "Only the causal mask is applied, so that words attend to padding: hide the keys whose id is 0 "
    "as well.",
    {_BOTH: "causal"},
)
mistake(
    masked_attention,
    "masks-future-visible",
    "Only the padding mask is applied, so that a word sees the words after it: hide later keys as "
    "well.",
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
        "One future word is visible: a query sees its own position and no later one.": {
            _CAUSAL: "torch.ones(query.size(-2), key.size(-2)).tril(key.size(-2) - "
            "query.size(-2) + 1).bool()"
        },
        "All keys are visible: hide padding and later words.": {
            f"attend(Q, K, V, {_BOTH})": "attend(Q, K, V)"
        },
        "You hid the values, not the scores: a hidden key still has a share of the sum, so hide "
        "the scores before softmax.": {
            f"attend(Q, K, V, {_BOTH})": "attend(Q, K, V * padding_mask(ids).mT, causal)"
        },
    },
)


@question(
    decimals=2,
    measures="an empty row, both masks together, and a hidden key in the sum",
    worked="[0, 0 + 1 + 2 + 3, 3 / (1 + 3)]",
)
def masks_on_paper() -> list[float]:
    """the keys that query 0 sees, the visible pairs of query and key, the weight of key 2 for query
    2
    """
    mask = padding_mask(torch.tensor(_IDS)) & mask_of_new(4, 4)
    scores = torch.tensor(_POWERS).log().expand(1, 1, 4, 4)
    weight = masked_weights(scores, mask)[0, 0, 2, 2]
    return [mask[0, 0, 0].sum().item(), mask.sum().item(), weight.item()]


notes(
    masks_on_paper,
    {
        "Query 0 does not see itself: it is padding, and padding is hidden from all queries.": [
            1, 7, 0.75,
        ],
        "This is the causal mask alone: key 0 is padding.": [1, 10, 3 / 8],
        "This is the padding mask alone: a query sees no later word.": [3, 12, 3 / 12],
        "The weight is that before masking: hidden keys are missing in the sum too.": [
            0, 6, 3 / 16,
        ],
        "Only the weight is wrong: the padded key 0 is missing in the sum too.": [0, 6, 3 / 8],
        "Only the weight is wrong: query 2 does not see key 3.": [0, 6, 3 / 12],
    },
)  # fmt: skip
