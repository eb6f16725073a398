"""Lesson 05: mistakes in masks and their use."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve_lab import example
from twelve_lab.exercises.attention import attention_scores, attention_weights
from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.numbers import SIZES, distinct_heads, distinct_ids, seeded, twelve_heads


def _padding_mask_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(),),
        "one sentence": (torch.tensor([[3, 0, 0, 0]]),),
        "all sizes differ": (distinct_ids(),),
    }


@task(_padding_mask_cases, forbidden=("[:]",), measures="putting the mask on the key axis")
def padding_mask(ids: Tensor) -> Tensor:
    """ids (batch, key), 0 is padding -> (batch, 1, 1, key), True = may attend"""
    return (ids != 0)[:, None, None, :]


@solved(padding_mask)
def _padding_mask_unindexed(ids: Tensor) -> Tensor:
    return ids.ne(0).unflatten(1, (1, 1, -1))


_WRONG_AXES = {
    "mask-query-axis": "(ids != 0)[:, None, :, None]",
    "mask-not-expanded": "ids != 0",
    "mask-head-axis": "(ids != 0)[:, None, :]",
}
again(padding_mask, "mask-inverted", {"ids != 0": "ids == 0"})
for id, mask in _WRONG_AXES.items():
    again(padding_mask, id, {"(ids != 0)[:, None, None, :]": mask})
notes(
    padding_mask,
    {
        "You masked only the padding that all sentences share: mask each sentence's padding.": {
            "ids != 0": "(ids != 0) | (ids.amax(0) != 0)"
        },
        "Your mask allows every key: which ids are padding?": {"ids != 0": "ids == ids"},
    },
)


def _causal_mask_cases() -> Cases:
    return {"twelve numbers": (2,), "one word": (1,), "four words": (4,)}


@task(
    _causal_mask_cases,
    forbidden=("tril", "triu", "tril_", "triu_", "tril_indices", "triu_indices"),
    measures="the direction of the triangle, diagonal included",
)
def causal_mask(length: int) -> Tensor:
    """length -> (1, 1, length, length), True = may attend"""
    return torch.ones(length, length).tril().bool()[None, None]


@solved(causal_mask)
def _causal_mask_by_place(length: int) -> Tensor:
    places = torch.arange(length)
    return (places <= places[:, None]).view(1, 1, length, length)


mistake(
    causal_mask,
    "causal-triu",
    "You kept the upper triangle, which shows the future and hides the past: keep the lower "
    "triangle.",
    {"X.tril()": "X.triu()"},
)
mistake(
    causal_mask,
    "causal-diagonal",
    "You hid the diagonal too, so no word attends to itself and the first word has nothing to "
    "attend to: keep the diagonal.",
    {"X.tril()": "X.tril(-1)"},
)
again(causal_mask, "mask-inverted", {"X.tril()": "X.triu(1)"})
notes(
    causal_mask,
    {
        "One future word is visible: a query must not see any position after its own.": {
            "X.tril()": "X.tril(1)"
        },
        "Each word sees only itself: it may see all earlier words too.": {
            "X.tril()": "torch.eye(length)"
        },
    },
)


def _mask_of_new_cases() -> Cases:
    return {"as many queries as keys": (2, 2), "one new word": (1, 4), "all sizes differ": (3, 5)}


@task(_mask_of_new_cases, measures="that new queries have the last positions")
def mask_of_new(query_len: int, key_len: int) -> Tensor:
    """query_len, key_len -> (1, 1, query, key), True = may attend; the queries are the last
    query_len places
    """
    return torch.ones(query_len, key_len).tril(key_len - query_len).bool()[None, None]


@solved(mask_of_new)
def _mask_of_the_last(query_len: int, key_len: int) -> Tensor:
    return causal_mask(key_len)[:, :, -query_len:]


mistake(
    mask_of_new,
    "causal-corner",
    "You gave the new words the first positions, so a single new word sees only the first word: "
    "they have the last positions, and the last of them sees everything (see 05, A flag or a "
    "mask).",
    {"X.tril(key_len - query_len)": "X.tril()"},
    step="14",
)
again(mask_of_new, "causal-diagonal", {"key_len - query_len": "key_len - query_len - 1"})
again(mask_of_new, "mask-inverted", {"X.bool()": "~X.bool()"})
notes(
    mask_of_new,
    {
        "Your new words see each other's future: each must see only itself and the words "
        "before it.": {"X.tril(N)": "X"}
    },
)


def _masked_weights_cases() -> Cases:
    one = twelve_heads(1)
    twelve, causal = attention_scores(one.query, one.key), example.tgt_mask.clone()
    scores = seeded()(SIZES.batch, SIZES.num_heads, SIZES.tgt, SIZES.src)
    return {
        "padding": (twelve, example.src_mask.clone()),
        "causal": (twelve, causal),
        "a row with nothing to attend to": (twelve, example.src_mask & causal),
        "all sizes differ": (scores, padding_mask(distinct_ids())),
    }


# Infinity is called `inf` in both math and torch.
@task(
    _masked_weights_cases,
    forbidden=("inf",),
    measures="minus infinity as a product, and the empty row",
)
def masked_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """scores (batch, head, query, key), mask that broadcasts to them -> (batch, head, query, key),
    a row with nothing to attend to is zero
    """
    empty = ~mask.any(-1, keepdim=True)
    hidden = scores.masked_fill(~mask, -math.inf).masked_fill(empty, 0.0)
    return hidden.softmax(-1).masked_fill(empty, 0.0)


@solved(masked_weights)
def _weights_by_equation(scores: Tensor, mask: Tensor) -> Tensor:
    powers = scores.exp() * mask
    total = powers.sum(-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1)


_HIDDEN = "scores.masked_fill(~mask, -math.inf).masked_fill(empty, 0.0)"
_ROWS = "hidden.softmax(-1).masked_fill(empty, 0.0)"
mistake(
    masked_weights,
    "mask-inverted",
    'You hid what the mask allows: True means "may attend", so hide where the mask is False.',
    {"~mask.any(-1, keepdim=True)": "mask.all(-1, keepdim=True)",
     "scores.masked_fill(~mask, -math.inf)": "scores.masked_fill(mask, -math.inf)"},
)  # fmt: skip
mistake(
    masked_weights,
    "mask-multiplied",
    "Your hidden scores became 0, and e^0 is 1, so a hidden key still gets a weight: set hidden "
    "scores to minus infinity.",
    {_ROWS: "(scores * mask).softmax(-1)"},
)
mistake(
    masked_weights,
    "mask-after-softmax",
    "You hid the weights after softmax, so the rows no longer sum to 1: hide the scores before "
    "softmax.",
    {_ROWS: "scores.softmax(-1) * mask"},
)
mistake(
    masked_weights,
    "mask-finite",
    "A query with nothing to attend to gets equal weights, as if a large negative number hid the "
    "scores: use minus infinity, and return zeros for such a row.",
    {_ROWS: "scores.masked_fill(~mask, -1e9).softmax(-1)"},
)
mistake(
    masked_weights,
    "mask-empty-row",
    "A query with nothing to attend to gets nan, because its softmax is 0/0: return zeros for "
    "such a row.",
    {_ROWS: "scores.masked_fill(~mask, -math.inf).softmax(-1)"},
)
again(masked_weights, "mask-inverted", {_ROWS: "scores.masked_fill(mask, -math.inf).softmax(-1)"})
notes(
    masked_weights,
    {
        "Hidden scores became about 0, and e^0 is 1: a hidden key must have a numerator of 0.": {
            _HIDDEN: "scores * mask"
        },
        "You added the mask to the scores, with True as 1: a hidden key still gets a weight.": {
            _HIDDEN: "scores + mask"
        },
        "Your columns sum to 1: sum over the keys of each query, along its row.": {
            _ROWS: "(lambda e: e / e.sum(-2, keepdim=True).clamp(min=1e-9))(scores.exp() * mask)"
        },
        "These are the numerators: divide each by the sum of its row.": {
            _ROWS: "scores.exp() * mask"
        },
        "You changed sums that are not 0: change only those of rows with nothing to attend to.": {
            _ROWS: "(lambda e: e / (e.sum(-1, keepdim=True) + 1))(scores.exp() * mask)"
        },
        "You raised sums below 1 to 1: replace only a sum of 0.": {
            _ROWS: "(lambda e: e / e.sum(-1, keepdim=True).clamp(min=1))(scores.exp() * mask)"
        },
    },
)


def _attend_cases() -> Cases:
    one, three, longer = twelve_heads(1), twelve_heads(3), distinct_heads()
    both = example.src_mask & example.tgt_mask
    return {
        "1 head": (one.query, one.key, one.value, None),
        "3 heads, a row with nothing to attend to": (three.query, three.key, three.value, both),
        "all sizes differ": (*longer, None),
        "all sizes differ, padding": (*longer, padding_mask(distinct_ids())),
    }


@task(
    _attend_cases,
    forbidden=("scaled_dot_product_attention",),
    measures="attention with an optional mask before softmax",
)
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None
) -> Tensor:
    """query (batch, head, query, d_k), key (batch, head, key, d_k), value (batch, head, key, d_v),
    mask or None -> (batch, head, query, d_v)
    """
    scores = attention_scores(query, key)
    if attn_mask is None:
        return attention_weights(scores) @ value
    return masked_weights(scores, attn_mask) @ value


attend = scaled_dot_product_attention


@solved(attend)
def _attention_under_mask(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    match = query @ key.mT / key.size(-1) ** 0.5
    if mask is None:
        return match.softmax(-1) @ value
    idle = mask.logical_not().all(-1, keepdim=True)
    shown = match.masked_fill(mask.logical_not(), -math.inf).masked_fill(idle, 0)
    return shown.softmax(-1).masked_fill(idle, 0) @ value


_SCORES = "attention_scores(query, key)"
again(
    attend,
    "softmax-queries",
    {
        "attention_weights(scores)": "scores.softmax(-2)",
        "masked_weights(scores, M)": "scores.masked_fill(~M, -math.inf).softmax(-2)",
    },
)
notes(
    attend,
    {
        "You divided by the square root of d_v, the size of a value: divide by the square root of "
        "d_k.": {_SCORES: "query @ key.mT / value.size(-1) ** 0.5"},
        "You ignored the mask: hide the keys where it is False.": {
            "attn_mask is None": "True",
        },
        "You replaced the mask with a causal one: use the mask that is passed.": {
            "masked_weights(X, M)": "masked_weights(X, torch.ones_like(X).tril().bool())"
        },
        "You reshaped the keys, which scrambles them: transpose their last two axes.": {
            _SCORES: "query @ key.reshape(key.mT.shape) / key.size(-1) ** 0.5"
        },
    },
)


def _padded_attention_cases() -> Cases:
    twelve = {f"{n} head{'s' * (n > 1)}": twelve_heads(n) for n in (1, 2, 3)}
    ids = distinct_ids()
    return {
        **{name: (at.query, at.key, at.value, example.src.clone()) for name, at in twelve.items()},
        "nothing but padding": (*distinct_heads(), ids * torch.tensor([[0], [1], [1]])),
        "as many queries as keys": (*distinct_heads(SIZES.src), ids.clone()),
        "all sizes differ": (*distinct_heads(), ids.clone()),
    }


@task(_padded_attention_cases, measures="the meaning and the axes of PyTorch's mask")
def padded_attention(query: Tensor, key: Tensor, value: Tensor, ids: Tensor) -> Tensor:
    """query (batch, head, query, d_k), key (batch, head, key, d_k), value (batch, head, key, d_v),
    ids of the keys (batch, key), 0 is padding -> (batch, head, query, d_v)
    """
    return attend(query, key, value, padding_mask(ids))


@solved(padded_attention)
def _attention_of_ids(query: Tensor, key: Tensor, value: Tensor, ids: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=padding_mask(ids))


mistake(
    padded_attention,
    "mask-query-axis",
    "Your padding mask is on the query axis, so padding cannot attend instead of being hidden: "
    "put it on the key axis.",
    {"padding_mask(ids)": _WRONG_AXES["mask-query-axis"]},
)
mistake(
    padded_attention,
    "mask-not-expanded",
    "You used the padding mask as (batch, key), which broadcasts to the scores as (query, key): "
    "add one axis for the heads and one for the queries.",
    {"padding_mask(ids)": _WRONG_AXES["mask-not-expanded"]},
)
mistake(
    padded_attention,
    "mask-head-axis",
    "Your mask has three axes, so its batch axis meets the heads: give it four axes, like the "
    "scores.",
    {"padding_mask(ids)": _WRONG_AXES["mask-head-axis"]},
)
notes(
    padded_attention,
    {
        "Padding is visible: hide the padding of each sentence.": {
            "attend(query, key, value, M)": "attend(query, key, value)"
        },
        "You hid word 1: padding is id 0.": {"padding_mask(ids)": "padding_mask(ids - 1)"},
        "Your mask is on the query axis: put it on the key axis, so that nobody attends to "
        "padding.": {"attend(query, key, value, M)": "attend(query * M.mT, key, value)"},
    },
)


@question(measures="which axes of a mask have size 1")
def mask_shape() -> tuple[int, ...]:
    """padding_mask of 3 sentences of 7 ids -> (batch, head, query, key)"""
    return tuple(padding_mask(torch.ones(3, 7)).shape)


notes(
    mask_shape,
    {
        "This is the shape of the scores: do the ids know the number of heads or the number of "
        "queries?": (3, 2, 5, 7),
        "The mask is made from the ids alone: do they know the number of queries?": (3, 1, 5, 7),
        "The mask is made from the ids alone: do they know the number of heads?": (3, 2, 1, 7),
    },
)


@question(measures="combining both masks, empty rows included")
def keys_seen() -> list[int]:
    """how many keys each of five queries may see, the first two being padding"""
    both = padding_mask(torch.tensor([[0, 0, 2, 3, 1]])) & causal_mask(5)
    return both.sum(-1).flatten().tolist()


again(keys_seen, "mask-inverted", {"both.sum(-1)": "(~both).sum(-1)"})
notes(
    keys_seen,
    {
        "This is only the causal mask: padding must be hidden too.": [1, 2, 3, 4, 5],
        "This is only the padding mask: later words must be hidden too.": [3, 3, 3, 3, 3],
        "You let padding attend to padding: a hidden key must be hidden from all queries.": [
            1, 2, 1, 2, 3,
        ],
    },
)  # fmt: skip


@question(decimals=3, measures="that the hidden key is missing in the denominator too")
def loudest_hidden() -> list[float]:
    """the weights of three keys with the scores 1, 5, 1, the second hidden"""
    mask = torch.tensor([[True, False, True]])
    return masked_weights(torch.tensor([[1.0, 5.0, 1.0]]), mask)[0].tolist()


notes(
    loudest_hidden,
    {
        "These are the weights without a mask: the key with the largest score is hidden.": {
            "masked_weights(X, mask)": "X.softmax(-1)"
        },
        "The weights of a query must sum to 1.": [1, 0, 1],
        "A hidden key gets a weight of 0.": {"masked_weights(X, mask)": "(X * 0).softmax(-1)"},
    },
)
