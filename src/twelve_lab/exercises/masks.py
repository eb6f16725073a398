"""Lesson 05: mistakes in masks and their use."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve_lab import example
from twelve_lab.exercises.attention import (
    MISREAD_SCALES,
    WRONG_SCORES,
    attention_scores,
    scaled_by_value,
)
from twelve_lab.exercises.declare import (
    Cases,
    again,
    inherit,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import distinct_heads, seeded, twelve_heads


def _padding_mask_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(),),
        "one sentence": (torch.tensor([[3, 0, 0, 0]]),),
        "all sizes differ": (example.distinct.src.clone(),),
    }


@task(_padding_mask_cases, forbidden=("[:]",), measures="putting the mask on the key axis")
def padding_mask(ids: Tensor) -> Tensor:
    """ids (batch, key), 0 is padding -> (batch, 1, 1, key), True = may attend"""
    return (ids != 0)[:, None, None, :]


@solved(padding_mask)
def _padding_mask_unindexed(ids: Tensor) -> Tensor:
    return ids.ne(0).unflatten(1, (1, 1, -1))


def _mask_query_axis(ids: Tensor) -> Tensor:
    return (ids != 0)[:, None, :, None]


def _mask_not_expanded(ids: Tensor) -> Tensor:
    return ids != 0


def _mask_head_axis(ids: Tensor) -> Tensor:
    return (ids != 0)[:, None, :]


again(padding_mask, "mask-inverted", line=("!=", "=="))
again(padding_mask, "mask-query-axis", by=_mask_query_axis)
again(padding_mask, "mask-not-expanded", by=_mask_not_expanded)
again(padding_mask, "mask-head-axis", by=_mask_head_axis)
misconception(
    padding_mask,
    "You hid word 1 as well: only id 0 is padding.",
    line=("ids != 0", "ids > 1"),
)


@misconception(padding_mask)
def up_to_the_longest(ids: Tensor) -> Tensor:
    """You cut all sentences at the length of the longest: each has its own padding."""
    places = torch.arange(ids.size(1)).expand_as(ids)
    return (places < (ids != 0).sum(1).max())[:, None, None, :]


misconception(
    padding_mask,
    "Your mask allows every key: which ids are padding?",
    by=lambda ids: padding_mask(torch.ones_like(ids)),
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


causal_triu = mistake(
    causal_mask,
    "causal-triu",
    "You kept the upper triangle, which shows the future and hides the past: keep the lower "
    "triangle.",
    line=("tril", "triu"),
    hidden_in={"one word"},
)
causal_diagonal = mistake(
    causal_mask,
    "causal-diagonal",
    "You hid the diagonal too, so that no word attends to itself and the first word has nothing "
    "to attend to: keep the diagonal.",
    line=("tril()", "tril(-1)"),
)
again(causal_mask, "mask-inverted", line=("tril()", "triu(1)"))
misconception(
    causal_mask,
    "One future word is visible: a query sees its own position and no later one.",
    line=("tril()", "tril(1)"),
)
misconception(
    causal_mask,
    "Each word sees itself alone: it may see all earlier words too.",
    line=("torch.ones(length, length).tril()", "torch.eye(length)"),
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


causal_corner = mistake(
    mask_of_new,
    "causal-corner",
    "You gave the new words the first positions, so that a single new word sees only the first "
    "word: they have the last positions, and the last of them sees everything (see 05, A flag or "
    "a mask).",
    line=("key_len - query_len", ""),
    hidden_in={"as many queries as keys"},
    step="14",
)
again(mask_of_new, "causal-diagonal", line=("- query_len", "- query_len - 1"))
again(mask_of_new, "mask-inverted", line=("torch", "~torch"))
misconception(
    mask_of_new,
    "Your new words see each other's future: each sees itself and the words before it.",
    line=(".tril(key_len - query_len)", ""),
)


def _masked_weights_cases() -> Cases:
    one, draw = twelve_heads(1), seeded()
    twelve, causal = attention_scores(one.query, one.key), example.tgt_mask.clone()
    return {
        "padding": (twelve, example.src_mask.clone()),
        "causal": (twelve, causal),
        "a row with nothing to attend to": (twelve, example.src_mask & causal),
        "all sizes differ": (draw(2, 3, 4, 5), example.distinct.src_mask.clone()),
    }


# The name of infinity in math and in torch.
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


@mistake(
    masked_weights,
    "mask-inverted",
)
def mask_inverted(scores: Tensor, mask: Tensor) -> Tensor:
    """You hid what the mask allows: True means "may attend", so hide where the mask is False."""
    return masked_weights(scores, ~mask)


@mistake(masked_weights, "mask-multiplied")
def mask_multiplied(scores: Tensor, mask: Tensor) -> Tensor:
    """Your hidden scores became 0, and e^0 is 1, so that a hidden key still gets a weight: set
    hidden scores to minus infinity.
    """
    return (scores * mask).softmax(-1)


@mistake(
    masked_weights,
    "mask-after-softmax",
)
def mask_after_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """You hid the weights after softmax, so that the rows no longer sum to 1: hide the scores
    before softmax.
    """
    return scores.softmax(-1) * mask


@mistake(
    masked_weights,
    "mask-finite",
    hidden_in={"padding", "causal", "all sizes differ"},
)
def mask_finite(scores: Tensor, mask: Tensor) -> Tensor:
    """You hid scores with a large negative number, so that a query with nothing to attend to gets
    equal weights: use minus infinity, and zeros for such a row.
    """
    return scores.masked_fill(~mask, -1e9).softmax(-1)


@mistake(
    masked_weights,
    "mask-empty-row",
    hidden_in={"padding", "causal", "all sizes differ"},
)
def mask_empty_row(scores: Tensor, mask: Tensor) -> Tensor:
    """A query with nothing to attend to got nan, because its softmax is 0/0: give such a
    row zeros.
    """
    return scores.masked_fill(~mask, -math.inf).softmax(-1)


WRONG_WEIGHTS = (mask_inverted, mask_multiplied, mask_after_softmax, mask_finite, mask_empty_row)
again(
    masked_weights,
    "mask-inverted",
    by=lambda scores, mask: scores.masked_fill(mask, -math.inf).softmax(-1),
)


def _where_seen(weights: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Set a row with nothing to attend to to zero, and keep the other rows."""
    return lambda scores, mask: weights(scores, mask) * mask.any(-1, keepdim=True)


def _shares(
    scores: Tensor,
    mask: Tensor,
    *,
    dim: int = -1,
    repair: Callable[[Tensor], Tensor] = lambda sums: sums.masked_fill(sums == 0, 1),
) -> Tensor:
    powers = scores.exp() * mask
    return powers / repair(powers.sum(dim, keepdim=True))


misconception(
    masked_weights,
    "Hidden scores became about 0, and e^0 is 1: a hidden key needs a numerator of 0.",
    by=_where_seen(lambda scores, mask: (scores * mask).softmax(-1)),
)
misconception(
    masked_weights,
    "You added the mask to the scores, True as 1: a hidden key still gets a weight.",
    by=_where_seen(lambda scores, mask: (scores + mask).softmax(-1)),
)
misconception(
    masked_weights,
    "Your columns sum to 1: sum over the keys of one query, along its row.",
    by=partial(_shares, dim=-2),
)
misconception(
    masked_weights,
    "These are the numerators: divide each by the sum of its row.",
    by=lambda scores, mask: scores.exp() * mask,
)
misconception(
    masked_weights,
    "You changed sums that are not 0: change only those of rows with nothing to attend to.",
    by=partial(_shares, repair=lambda sums: sums + 1),
)
misconception(
    masked_weights,
    "You raised sums below 1 to 1: replace only a sum of 0.",
    by=partial(_shares, repair=lambda sums: sums.clamp(min=1)),
)


def _attend_cases() -> Cases:
    one, three, longer = twelve_heads(1), twelve_heads(3), distinct_heads()
    both = example.src_mask & example.tgt_mask
    return {
        "1 head": (one.query, one.key, one.value, None),
        "3 heads, a row with nothing to attend to": (three.query, three.key, three.value, both),
        "all sizes differ": (*longer, None),
        "all sizes differ, padding": (*longer, example.distinct.src_mask.clone()),
    }


@task(
    _attend_cases,
    forbidden=("scaled_dot_product_attention",),
    measures="attention with an optional mask before softmax",
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    scores: Callable[..., Tensor] = attention_scores,
    weights: Callable[..., Tensor] = masked_weights,
    dim: int = -1,
) -> Tensor:
    """query (batch, head, query, d_k), key (batch, head, key, d_k), value (batch, head, key, d_v),
    mask or None -> (batch, head, query, d_v)
    """
    found = scores(query, key)
    return (found.softmax(dim) if attn_mask is None else weights(found, attn_mask)) @ value


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


again(
    attend,
    "softmax-queries",
    weights=lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(-2),
    dim=-2,
)
inherit(attend, lambda wrong: partial(attend, scores=wrong), *WRONG_SCORES)
inherit(attend, lambda wrong: partial(attend, weights=wrong), *WRONG_WEIGHTS)
inherit(attend, lambda wrong: partial(attend, scores=wrong), *MISREAD_SCALES)
misconception(
    attend,
    scaled_by_value.sentence,
    by=lambda query, key, value, mask=None: attend(
        query, key, value, mask, scores=lambda *_: query @ key.mT / value.size(-1) ** 0.5
    ),
)
misconception(
    attend,
    "Without a mask you average the values by their scores: apply softmax there too.",
    line=("found.softmax(dim) if", "found if"),
)
misconception(
    attend,
    "You ignore the mask: hide the keys where it is False.",
    by=lambda query, key, value, mask: attend(query, key, value),
)


@misconception(attend)
def triangle_instead(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """You replaced the mask by a causal one: use the mask that is passed."""
    corner = causal_corner.wrong(query.size(-2), key.size(-2))
    return attend(query, key, value, None if mask is None else corner)


misconception(
    attend,
    "You reshaped the keys, which mixes their numbers: transpose their last two axes.",
    scores=lambda query, key: query @ key.reshape(key.mT.shape) / math.sqrt(key.size(-1)),
)


def _padded_attention_cases() -> Cases:
    twelve = {f"{n} head{'s' * (n > 1)}": twelve_heads(n) for n in (1, 2, 3)}
    longer = example.distinct.src
    return {
        **{name: (at.query, at.key, at.value, example.src.clone()) for name, at in twelve.items()},
        "nothing but padding": (*distinct_heads(), longer * torch.tensor([[0], [1]])),
        "as many queries as keys": (*distinct_heads(example.SIZES.src), longer.clone()),
        "all sizes differ": (*distinct_heads(), longer.clone()),
    }


@task(_padded_attention_cases, measures="the meaning and the axes of PyTorch's mask")
def padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ids: Tensor,
    *,
    mask: Callable[[Tensor], Tensor] = padding_mask,
    weights: Callable[..., Tensor] = masked_weights,
) -> Tensor:
    """query (batch, head, query, d_k), key (batch, head, key, d_k), value (batch, head, key, d_v),
    ids of the keys (batch, key), 0 is padding -> (batch, head, query, d_v)
    """
    return attend(query, key, value, mask(ids), weights=weights)


@solved(padded_attention)
def _attention_of_ids(query: Tensor, key: Tensor, value: Tensor, ids: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=padding_mask(ids))


mistake(
    padded_attention,
    "mask-query-axis",
    "Your padding mask is on the query axis, so that padding cannot attend instead of being "
    "hidden: put it on the key axis.",
    mask=_mask_query_axis,
    refused_in={"nothing but padding", "all sizes differ"},
)
mistake(
    padded_attention,
    "mask-not-expanded",
    "You used the padding mask as (batch, key), which broadcasts to the scores as (query, key): "
    "add an axis for the heads and one for the queries.",
    mask=_mask_not_expanded,
    refused_in={"nothing but padding", "as many queries as keys", "all sizes differ"},
)
mistake(
    padded_attention,
    "mask-head-axis",
    "Your mask has three axes, so that its batch axis meets the heads: give it four axes, like "
    "the scores.",
    mask=_mask_head_axis,
    refused_in={
        "1 head",
        "3 heads",
        "nothing but padding",
        "as many queries as keys",
        "all sizes differ",
    },
)
inherit(padded_attention, lambda wrong: partial(padded_attention, weights=wrong), *WRONG_WEIGHTS)
misconception(
    padded_attention,
    "Padding is visible: hide the padding of each sentence.",
    by=lambda query, key, value, ids: attend(query, key, value),
)
misconception(
    padded_attention,
    "You hid word 1: padding is id 0.",
    mask=lambda ids: (ids != 1)[:, None, None, :],
)
misconception(
    padded_attention,
    "Your mask is on the query axis: put it on the key axis, so that nobody attends to padding.",
    mask=_mask_query_axis,
    weights=mask_finite.wrong,
)


@question(measures="which axes of a mask have size 1")
def mask_shape(*, mask: Callable[[Tensor], Tensor] = padding_mask) -> tuple[int, ...]:
    """padding_mask of 3 sentences of 7 ids -> (batch, head, query, key)"""
    return tuple(mask(torch.ones(3, 7, dtype=torch.long)).shape)


def _filling(num_heads: int, query_len: int) -> Callable[[Tensor], Tensor]:
    return lambda ids: padding_mask(ids).expand(-1, num_heads, query_len, -1)


again(mask_shape, "mask-query-axis", mask=_mask_query_axis)
again(mask_shape, "mask-not-expanded", mask=_mask_not_expanded)
again(mask_shape, "mask-head-axis", mask=_mask_head_axis)
misconception(
    mask_shape,
    "This is the shape of the scores: do the ids know the number of heads or the number of "
    "queries?",
    mask=_filling(2, 5),
)
misconception(
    mask_shape,
    "The mask is made from the ids alone: do they know the number of queries?",
    mask=_filling(1, 5),
)
misconception(
    mask_shape,
    "The mask is made from the ids alone: do they know the number of heads?",
    mask=_filling(2, 1),
)


@question(measures="combining both masks, empty rows included")
def keys_seen(
    *,
    padding: Callable[[Tensor], Tensor] = padding_mask,
    causal: Callable[[int], Tensor] = causal_mask,
    seen: bool = True,
) -> list[int]:
    """how many keys each of five queries may see, the first two being padding"""
    both = padding(torch.tensor([[0, 0, 2, 3, 1]])) & causal(5)
    return (both == seen).sum(-1).flatten().tolist()


again(keys_seen, "mask-inverted", seen=False)
again(keys_seen, "mask-query-axis", padding=_mask_query_axis)
inherit(keys_seen, lambda wrong: partial(keys_seen, causal=wrong), causal_triu, causal_diagonal)
misconception(
    keys_seen,
    "This is the causal mask alone: padding must be hidden too.",
    padding=lambda ids: torch.ones(1, 1, 1, 5).bool(),
)
misconception(
    keys_seen,
    "This is the padding mask alone: later words must be hidden too.",
    causal=lambda length: torch.ones(1, 1, length, length).bool(),
)
misconception(
    keys_seen,
    "You let padding attend to padding: a hidden key is hidden from all queries.",
    padding=lambda ids: padding_mask(ids) | (ids == 0)[:, None, :, None],
)


@question(decimals=3, measures="that the hidden key is missing in the denominator too")
def loudest_hidden(*, weights: Callable[..., Tensor] = masked_weights) -> list[float]:
    """the weights of three keys with the scores 1, 5, 1, the second hidden"""
    mask = torch.tensor([[True, False, True]])
    return weights(torch.tensor([[1.0, 5.0, 1.0]], dtype=torch.float64), mask)[0].tolist()


inherit(loudest_hidden, lambda wrong: partial(loudest_hidden, weights=wrong), *WRONG_WEIGHTS[:3])
misconception(
    loudest_hidden,
    "These are the weights without a mask: the key with the largest score is hidden.",
    weights=lambda scores, mask: scores.softmax(-1),
)
misconception(
    loudest_hidden,
    "The weights of a query must sum to 1.",
    weights=lambda scores, mask: mask.double(),
)
misconception(
    loudest_hidden,
    "A hidden key gets the weight 0.",
    weights=lambda scores, mask: (scores * 0).softmax(-1),
)
