"""Step 05: what masks and their use invite."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises.attention import (
    SCALED_BY_VALUE,
    SCORE_SLIPS,
    WRONG_SCORES,
    over_root_of,
    scores,
)
from twelve_lab.exercises.numbers import companion_heads, seeded, twelve_heads


def _padding_mask(ids: Tensor) -> Tensor:
    return (ids != 0)[:, None, None, :]


def _up_to_the_longest(ids: Tensor) -> Tensor:
    places = torch.arange(ids.size(1)).expand_as(ids)
    return (places < (ids != 0).sum(1).max())[:, None, None, :]


def _padding_mask_cases() -> Cases:
    return {
        "twelve numbers": (example.src.clone(),),
        "one sentence": (torch.tensor([[3, 0, 0, 0]]),),
        "all sizes differ": (example.distinct.src.clone(),),
    }


def _mask_of_padding(ids: Tensor) -> Tensor:
    return (ids == 0)[:, None, None, :]


def _mask_query_axis(ids: Tensor) -> Tensor:
    return (ids != 0)[:, None, :, None]


def _mask_not_expanded(ids: Tensor) -> Tensor:
    return ids != 0


def _mask_head_axis(ids: Tensor) -> Tensor:
    return (ids != 0)[:, None, :]


def _causal_mask(length: int) -> Tensor:
    return torch.ones(length, length).tril().bool()[None, None]


def _causal_mask_cases() -> Cases:
    return {"twelve numbers": (2,), "one word": (1,), "four words": (4,)}


def _causal_triu(length: int) -> Tensor:
    return torch.ones(length, length).triu().bool()[None, None]


def _causal_diagonal(length: int) -> Tensor:
    return torch.ones(length, length).tril(-1).bool()[None, None]


def _mask_of_future(length: int) -> Tensor:
    return torch.ones(length, length).triu(1).bool()[None, None]


def _mask_of_new(query_len: int, key_len: int, *, move: int = 0) -> Tensor:
    diagonal = key_len - query_len + move
    return torch.ones(query_len, key_len).tril(diagonal).bool()[None, None]


def _mask_of_new_cases() -> Cases:
    return {"as many queries as keys": (2, 2), "one new word": (1, 4), "all sizes differ": (3, 5)}


def _causal_corner(query_len: int, key_len: int) -> Tensor:
    return torch.ones(query_len, key_len).tril().bool()[None, None]


def masked_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """Share out the attention rightly: nothing to hidden keys, and nothing at all in an empty row.

    Args:
        scores: Before softmax.
        mask: True where a query may attend.
    """
    empty = ~mask.any(-1, keepdim=True)
    hidden = scores.masked_fill(~mask, -math.inf).masked_fill(empty, 0.0)
    return hidden.softmax(-1).masked_fill(empty, 0.0)


def _masked_weights_cases() -> Cases:
    one, draw = twelve_heads(1), seeded()
    twelve, causal = scores(one.query, one.key), example.tgt_mask.clone()
    return {
        "padding": (twelve, example.src_mask.clone()),
        "causal": (twelve, causal),
        "a row with nothing to attend to": (twelve, example.src_mask & causal),
        "all sizes differ": (draw(2, 3, 4, 5), example.distinct.src_mask.clone()),
    }


def _mask_inverted(scores: Tensor, mask: Tensor) -> Tensor:
    return masked_weights(scores, ~mask)


def _mask_inverted_nan(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -math.inf).softmax(-1)


def _mask_multiplied(scores: Tensor, mask: Tensor) -> Tensor:
    return (scores * mask).softmax(-1)


def _mask_after_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.softmax(-1) * mask


def _mask_finite(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -1e9).softmax(-1)


def _mask_empty_row(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -math.inf).softmax(-1)


def _where_seen(weights: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a row with nothing to attend to be zero, whatever the other rows are."""
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


def _softmax_queries(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -math.inf).softmax(-2)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    scores: Callable[..., Tensor] = scores,
    weights: Callable[..., Tensor] = masked_weights,
    dim: int = -1,
) -> Tensor:
    """Average the values under a mask, with a slot for each mistake.

    Args:
        query: What each position is looking for.
        key: What each position can be found by.
        value: What each position hands over.
        attn_mask: True where a query may attend.
        scores: How queries and keys are scored.
        weights: How scores become shares under a mask.
        dim: The axis of softmax where there is no mask.
    """
    found = scores(query, key)
    return (found.softmax(dim) if attn_mask is None else weights(found, attn_mask)) @ value


def _scaled_by_value(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return attend(query, key, value, mask, scores=over_root_of(lambda *_: value.size(-1)))


def _unshared(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return scores(query, key) @ value if mask is None else attend(query, key, value, mask)


def _triangle_instead(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    corner = _causal_corner(query.size(-2), key.size(-2))
    return attend(query, key, value, None if mask is None else corner)


def _keys_reshaped(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.reshape(key.mT.shape) / math.sqrt(key.size(-1))


def _attend_cases() -> Cases:
    one, three, longer = twelve_heads(1), twelve_heads(3), companion_heads()
    both = example.src_mask & example.tgt_mask
    return {
        "1 head": (one.query, one.key, one.value, None),
        "3 heads, a row with nothing to attend to": (three.query, three.key, three.value, both),
        "all sizes differ": (*longer, None),
        "all sizes differ, padding": (*longer, example.distinct.src_mask.clone()),
    }


def _padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ids: Tensor,
    *,
    mask: Callable[[Tensor], Tensor] = _padding_mask,
    weights: Callable[..., Tensor] = masked_weights,
) -> Tensor:
    return attend(query, key, value, mask(ids), weights=weights)


def _padded_attention_cases() -> Cases:
    twelve = {f"{n} head{'s' * (n > 1)}": twelve_heads(n) for n in (1, 2, 3)}
    longer = example.distinct.src
    return {
        **{name: (at.query, at.key, at.value, example.src.clone()) for name, at in twelve.items()},
        "nothing but padding": (*companion_heads(), longer * torch.tensor([[0], [1]])),
        "as many queries as keys": (*companion_heads(example.SIZES.src), longer.clone()),
        "all sizes differ": (*companion_heads(), longer.clone()),
    }


_WRONG_WEIGHTS = {
    "mask-inverted": _mask_inverted,
    "mask-multiplied": _mask_multiplied,
    "mask-after-softmax": _mask_after_softmax,
    "mask-finite": _mask_finite,
    "mask-empty-row": _mask_empty_row,
}

_WRONG_PADDING = {
    "mask-inverted": _mask_of_padding,
    "mask-query-axis": _mask_query_axis,
    "mask-not-expanded": _mask_not_expanded,
    "mask-head-axis": _mask_head_axis,
}


def _filling(num_heads: int, query_len: int) -> Callable[[Tensor], Tensor]:
    return lambda ids: _padding_mask(ids).expand(-1, num_heads, query_len, -1)


def _mask_shape(*, mask: Callable[[Tensor], Tensor] = _padding_mask) -> tuple[int, ...]:
    return tuple(mask(torch.ones(3, 7, dtype=torch.long)).shape)


def _keys_seen(
    *,
    padding: Callable[[Tensor], Tensor] = _padding_mask,
    causal: Callable[[int], Tensor] = _causal_mask,
    seen: bool = True,
) -> list[int]:
    both = padding(torch.tensor([[0, 0, 2, 3, 1]])) & causal(5)
    return (both == seen).sum(-1).flatten().tolist()


def _loudest_hidden(*, weights: Callable[..., Tensor] = masked_weights) -> list[float]:
    mask = torch.tensor([[True, False, True]])
    return weights(torch.tensor([[1.0, 5.0, 1.0]], dtype=torch.float64), mask)[0].tolist()


QUESTIONS = (
    Question(
        name="mask_shape",
        contract="padding_mask of 3 sentences of 7 ids -> (batch, head, query, key)",
        right=_mask_shape,
        wrong={
            id: partial(_mask_shape, mask=_WRONG_PADDING[id])
            for id in ("mask-query-axis", "mask-not-expanded", "mask-head-axis")
        },
        slips={
            "That is the shape of the scores: do the ids know how many heads there are, or how "
            "many words ask?": partial(_mask_shape, mask=_filling(2, 5)),
            "The mask is made of the ids alone: do they know how many words ask?": (
                partial(_mask_shape, mask=_filling(1, 5))
            ),
            "The mask is made of the ids alone: do they know how many heads there are?": (
                partial(_mask_shape, mask=_filling(2, 1))
            ),
        },
    ),
    Question(
        name="keys_seen",
        contract="how many keys each of five queries may see, the first two being padding",
        right=_keys_seen,
        wrong={
            "mask-inverted": partial(_keys_seen, seen=False),
            "mask-query-axis": partial(_keys_seen, padding=_mask_query_axis),
            "causal-triu": partial(_keys_seen, causal=_causal_triu),
            "causal-diagonal": partial(_keys_seen, causal=_causal_diagonal),
        },
        slips={
            "That is the triangle alone: padding may not be looked at either.": partial(
                _keys_seen, padding=lambda ids: torch.ones(1, 1, 1, 5).bool()
            ),
            "That is the padding mask alone: no word may look at what comes after it.": partial(
                _keys_seen, causal=lambda length: torch.ones(1, 1, length, length).bool()
            ),
            "You let padding look at padding: a hidden key is hidden from all.": partial(
                _keys_seen, padding=lambda ids: _padding_mask(ids) | (ids == 0)[:, None, :, None]
            ),
        },
    ),
    Question(
        name="loudest_hidden",
        contract="the weights of three keys with the scores 1, 5, 1, the second hidden",
        right=_loudest_hidden,
        wrong={
            id: partial(_loudest_hidden, weights=_WRONG_WEIGHTS[id])
            for id in ("mask-inverted", "mask-multiplied", "mask-after-softmax")
        },
        decimals=3,
        slips={
            "These are the weights where nothing is hidden: the loudest key may not be heard.": (
                partial(_loudest_hidden, weights=lambda scores, mask: scores.softmax(-1))
            ),
            "What a query gives away must sum to 1.": partial(
                _loudest_hidden, weights=lambda scores, mask: mask.double()
            ),
            "A hidden key gets no share at all.": partial(
                _loudest_hidden, weights=lambda scores, mask: (scores * 0).softmax(-1)
            ),
        },
    ),
)

TARGETS = (
    Target(
        name="padding_mask",
        contract="ids (batch, key), 0 is padding -> (batch, 1, 1, key), True = may attend",
        right=_padding_mask,
        cases=_padding_mask_cases,
        also=_WRONG_PADDING,
        slips={
            "You hide word 1 as well: padding is id 0 and no other.": lambda ids: (ids > 1)[
                :, None, None, :
            ],
            "Your sentences all end where the longest one ends: each has its own padding.": (
                _up_to_the_longest
            ),
            "Your mask allows every key: which ids are padding?": lambda ids: _padding_mask(
                torch.ones_like(ids)
            ),
        },
        avoid=("a slice",),
    ),
    Target(
        name="causal_mask",
        contract="length -> (1, 1, length, length), True = may attend",
        right=_causal_mask,
        cases=_causal_mask_cases,
        also={"mask-inverted": _mask_of_future},
        slips={
            "One word of the future can be seen: a query sees its own place and none behind it.": (
                lambda length: torch.ones(length, length).tril(1).bool()[None, None]
            ),
            "Each word sees itself alone: it may see all words before it, too.": (
                lambda length: torch.eye(length).bool()[None, None]
            ),
        },
        avoid=("tril", "triu", "tril_", "triu_", "tril_indices", "triu_indices"),
    ),
    Target(
        name="mask_of_new",
        contract="query_len, key_len -> (1, 1, query, key), True = may attend; the queries are "
        "the last query_len places",
        right=_mask_of_new,
        cases=_mask_of_new_cases,
        also={
            "causal-diagonal": partial(_mask_of_new, move=-1),
            "mask-inverted": lambda query_len, key_len: ~_mask_of_new(query_len, key_len),
        },
        slips={
            "Your new words see each other's future: each sees itself and what stands before it.": (
                lambda query_len, key_len: torch.ones(1, 1, query_len, key_len).bool()
            ),
        },
    ),
    Target(
        name="masked_weights",
        contract="scores (batch, head, query, key), mask that broadcasts to them -> (batch, head, "
        "query, key), a row with nothing to attend to is zero",
        right=masked_weights,
        cases=_masked_weights_cases,
        slips={
            "Hidden scores became 0, or nearly, and e to that is 1: a hidden key needs a "
            "numerator of 0.": _where_seen(lambda scores, mask: (scores * mask).softmax(-1)),
            "You added the mask to the scores, True as 1: a hidden key still has a share.": (
                _where_seen(lambda scores, mask: (scores + mask).softmax(-1))
            ),
            "Your columns sum to 1: the sum runs over the keys of one query, along its row.": (
                lambda scores, mask: _shares(scores, mask, dim=-2)
            ),
            "These are the numerators: each must still be divided by the sum of its row.": (
                lambda scores, mask: scores.exp() * mask
            ),
            "You changed sums that are not 0, too: only a row with nothing to attend to needs "
            "help.": lambda scores, mask: _shares(scores, mask, repair=lambda sums: sums + 1),
            "Your sums below 1 became 1: only a sum of 0 needs help.": (
                lambda scores, mask: _shares(scores, mask, repair=lambda sums: sums.clamp(min=1))
            ),
        },
        # A name for infinity, whether of math or of torch.
        avoid=("inf",),
    ),
    Target(
        name="scaled_dot_product_attention",
        contract="query (batch, head, query, d_k), key (batch, head, key, d_k), value (batch, "
        "head, key, d_v), mask or None -> (batch, head, query, d_v)",
        right=attend,
        cases=_attend_cases,
        also={
            "softmax-queries": partial(attend, weights=_softmax_queries, dim=-2),
            **{id: partial(attend, scores=wrong) for id, wrong in WRONG_SCORES.items()},
            **{id: partial(attend, weights=wrong) for id, wrong in _WRONG_WEIGHTS.items()},
        },
        slips={
            **{said: partial(attend, scores=wrong) for said, wrong in SCORE_SLIPS.items()},
            SCALED_BY_VALUE: _scaled_by_value,
            "Without a mask you blend by the scores themselves: there, too, they must become "
            "shares first.": _unshared,
            "You never use the mask: a query may not look where it is False.": (
                lambda query, key, value, mask: attend(query, key, value)
            ),
            "Where there is a mask you draw a triangle: use the mask that is given.": (
                _triangle_instead
            ),
            "You reshaped the keys, which deals their numbers out anew: exchange their last two "
            "axes.": partial(attend, scores=_keys_reshaped),
        },
        avoid=("scaled_dot_product_attention",),
    ),
    Target(
        name="padded_attention",
        contract="query (batch, head, query, d_k), key (batch, head, key, d_k), value (batch, "
        "head, key, d_v), ids of the keys (batch, key), 0 is padding -> (batch, head, query, d_v)",
        right=_padded_attention,
        cases=_padded_attention_cases,
        also={id: partial(_padded_attention, weights=at) for id, at in _WRONG_WEIGHTS.items()},
        slips={
            "Padding is heard, as if nothing were hidden: each sentence has to lose its own.": (
                lambda query, key, value, ids: attend(query, key, value)
            ),
            "You hid word 1: padding is id 0.": partial(
                _padded_attention, mask=lambda ids: (ids != 1)[:, None, None, :]
            ),
            "Your mask lies on those who ask: padding must not be looked at.": partial(
                _padded_attention, mask=_mask_query_axis, weights=_mask_finite
            ),
        },
    ),
)

_TRIANGLE = "allowed.tril(diagonal=key_len - query_len)"
_HIDE = "scores.masked_fill(hidden, -math.inf)"
_SHARE = "masked_scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)"


def _handed_on(mask: str) -> Plant:
    """Spoil the mask where the heads get it: padding_mask itself has its axes checked."""
    call = "return attend(query, key, value, {mask}, dropout_p)"
    return Plant("multi_head_attention", call.format(mask="mask"), call.format(mask=mask))


MISTAKES = (
    Mistake(
        id="mask-inverted",
        sentence='You hid what the mask allows: here True means "may attend", so hide where the '
        "mask is False.",
        step="05",
        target="masked_weights",
        wrong=_mask_inverted,
        plant=Plant("attention", "hidden = ~attn_mask\n", "hidden = attn_mask\n"),
        variants=(_mask_inverted_nan,),
    ),
    Mistake(
        id="mask-multiplied",
        sentence="Your hidden scores became 0, and e^0 is 1, so a hidden key still gets a "
        "share: it needs a numerator of 0, which a score of minus infinity gives.",
        step="05",
        target="masked_weights",
        wrong=_mask_multiplied,
        plant=Plant("attention", _HIDE, "scores * attn_mask"),
    ),
    Mistake(
        id="mask-after-softmax",
        sentence="You hid the weights when they were shared out, so the rows no longer sum to "
        "1: hide before, so that hidden keys are left out of the sum too.",
        step="05",
        target="masked_weights",
        wrong=_mask_after_softmax,
        plant=Plant("attention", _SHARE, "scores.softmax(-1) * attn_mask"),
    ),
    Mistake(
        id="mask-finite",
        sentence="You hid with a large negative number, so a query with nothing to attend to "
        "shares itself out evenly: use minus infinity, and zeros for such a row.",
        step="05",
        target="masked_weights",
        wrong=_mask_finite,
        plant=Plant("attention", _SHARE, "scores.masked_fill(hidden, -1e9).softmax(-1)"),
    ),
    Mistake(
        id="mask-empty-row",
        sentence="A query with nothing to attend to became nan, for its numerators and their "
        "sum are all 0, and 0/0 is nan: give such a row zeros.",
        step="05",
        target="masked_weights",
        wrong=_mask_empty_row,
        plant=Plant("attention", _SHARE, "masked_scores.softmax(-1)"),
    ),
    Mistake(
        id="mask-query-axis",
        sentence="Your padding mask lies on the query axis and silences the padding instead of "
        "hiding it: lay it on the axis that is looked at.",
        step="05",
        target="padded_attention",
        wrong=partial(_padded_attention, mask=_mask_query_axis),
        plant=_handed_on("None if mask is None else mask.mT"),
    ),
    Mistake(
        id="mask-not-expanded",
        sentence="You used the padding mask as (batch, key), and the scores read it as (query, "
        "key): give it an axis for the heads and one for the queries.",
        step="05",
        target="padded_attention",
        wrong=partial(_padded_attention, mask=_mask_not_expanded),
        plant=_handed_on("None if mask is None else mask[:, 0, 0]"),
    ),
    Mistake(
        id="mask-head-axis",
        sentence="Your mask has three axes, so its sentences meet the heads: give it four, like "
        "the scores.",
        step="05",
        target="padded_attention",
        wrong=partial(_padded_attention, mask=_mask_head_axis),
        plant=_handed_on("None if mask is None else mask[:, 0]"),
    ),
    Mistake(
        id="causal-triu",
        sentence="You kept the upper triangle, which shows the future and hides the past: keep "
        "the lower one.",
        step="05",
        target="causal_mask",
        wrong=_causal_triu,
        plant=Plant("masks", _TRIANGLE, "allowed.triu(diagonal=key_len - query_len)"),
    ),
    Mistake(
        id="causal-diagonal",
        sentence="You hid the diagonal too, so no word may look at itself and the first has "
        "nothing to look at: keep the diagonal.",
        step="05",
        target="causal_mask",
        wrong=_causal_diagonal,
        plant=Plant("masks", _TRIANGLE, "allowed.tril(diagonal=key_len - query_len - 1)"),
    ),
    Mistake(
        id="causal-corner",
        sentence="You took the new words for the first places, so one new word sees the first "
        "word alone: they are the last, so the last of them sees everything (as in 05, A flag or a "
        "mask).",
        step="14",
        target="mask_of_new",
        wrong=_causal_corner,
        plant=Plant("masks", _TRIANGLE, "allowed.tril()"),
    ),
)
