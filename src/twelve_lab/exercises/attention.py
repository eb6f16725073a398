"""Lesson 04: mistakes in attention scores, weights and averages."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twelve_lab import example
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
from twelve_lab.exercises.numbers import seeded, twelve_heads


def _scores_cases() -> Cases:
    one, three, draw = twelve_heads(1), twelve_heads(3), seeded()
    return {
        "d_k 3": (one.query[:, 0], one.key[:, 0]),
        "d_k 1": (three.query[:, 0], three.key[:, 0]),
        "all sizes differ": (draw(2, 4, 8), draw(2, 5, 8)),
    }


@task(
    _scores_cases,
    forbidden=("transpose", "mT", "T", "mH", "t", "swapaxes", "swapdims", "permute", "movedim"),
    measures="naming axes, and the scale in general",
)
def attention_scores(query: Tensor, key: Tensor) -> Tensor:
    """query (batch, query, d_k), key (batch, key, d_k) -> (batch, query, key)"""
    return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))


@solved(attention_scores)
def _scores_by_letter(query: Tensor, key: Tensor) -> Tensor:
    pairs = torch.einsum("bqd,bkd->bqk", query, key)
    return pairs / query.size(-1) ** 0.5


qk_swapped = mistake(
    attention_scores,
    "qk-swapped",
    "You exchanged queries and keys: multiply the queries by the transposed keys, so that each "
    "row belongs to a query and each column to a key.",
    line=("query @ key.transpose(-2, -1)", "key @ query.transpose(-2, -1)"),
    refused_in={"all sizes differ"},
)
scale_missing = mistake(
    attention_scores,
    "scale-missing",
    "The scores are not scaled: divide them by the square root of d_k, the number of features of "
    "a query.",
    line=(" / math.sqrt(query.size(-1))", ""),
    hidden_in={"d_k 1"},
)
scale_d_k = mistake(
    attention_scores,
    "scale-d_k",
    "The scores are divided by d_k, or twice by its square root: divide them once by the square "
    "root.",
    line=("math.sqrt(query.size(-1))", "query.size(-1)"),
    hidden_in={"d_k 1"},
)
scale_multiplied = mistake(
    attention_scores,
    "scale-multiplied",
    "You multiplied the scores by the square root of d_k: divide by it.",
    line=("/", "*"),
    hidden_in={"d_k 1"},
)
scale_length = mistake(
    attention_scores,
    "scale-length",
    "You divided the scores by the square root of the number of words: divide by the square root "
    "of d_k, whatever the sentence length.",
    line=("query.size(-1)", "key.size(-2)"),
)
# Every larger attention inherits these mistakes and the two misconceptions below.
WRONG_SCORES = (qk_swapped, scale_missing, scale_d_k, scale_multiplied, scale_length)
MISREAD_SCALES = (
    misconception(
        attention_scores,
        "You divided by the square root of the number of queries: divide by the square root of "
        "d_k.",
        line=("query.size(-1)", "query.size(-2)"),
    ),
    misconception(
        attention_scores,
        "You always divide by the square root of 3: read d_k from the shape of the query.",
        line=("query.size(-1)", "3"),
    ),
)
misconception(
    attention_scores,
    "Your queries meet the keys of all sentences: use the same letter for the batch axis of both.",
    line=("query @ key.", "query @ key.sum(0, keepdim=True)."),
)


@misconception(attention_scores)
def directions_alone(query: Tensor, key: Tensor) -> Tensor:
    """You divided the vectors by their norms, so that only their directions count: here a score is
    the plain dot product.
    """
    return attention_scores(*(one / one.norm(dim=-1, keepdim=True) for one in (query, key)))


def _weights_cases() -> Cases:
    one, draw = twelve_heads(1), seeded()
    return {
        "our two sentences": (attention_scores(one.query, one.key)[:, 0],),
        "one query": (draw(2, 1, 5),),
        "all sizes differ": (draw(2, 4, 5),),
        # Two different rows detect softmax over the queries. All scores are large, so that
        # subtracting the largest score of the whole table is right too.
        "large scores": (torch.tensor([[[1000.0, 999.0], [1000.0, 1001.0]]], dtype=torch.float64),),
    }


@task(
    _weights_cases,
    forbidden=("softmax", "log_softmax", "softmin", "/", "div", "divide", "true_divide"),
    measures="softmax along the keys, without overflow",
)
def attention_weights(scores: Tensor) -> Tensor:
    """scores (batch, query, key) -> (batch, query, key), each row sums to 1"""
    return scores.softmax(-1)


@solved(attention_weights)
def _weights_by_logs(scores: Tensor) -> Tensor:
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


def _powers_shared(scores: Tensor, *, dim: int = -1) -> Tensor:
    return scores.exp() / scores.exp().sum(dim, keepdim=True)


def _log_of_powers(scores: Tensor, *, dim: int = -1) -> Tensor:
    return (scores - scores.exp().sum(dim, keepdim=True).log()).exp()


softmax_queries = mistake(
    attention_weights,
    "softmax-queries",
    "Your softmax runs over the queries, so the columns sum to 1: run softmax over the keys, the "
    "last axis, so that the weights of each query sum to 1.",
    line=("softmax(-1)", "softmax(-2)"),
)
again(attention_weights, "softmax-queries", by=partial(_powers_shared, dim=-2))
again(attention_weights, "softmax-queries", by=partial(_log_of_powers, dim=-2))
misconception(
    attention_weights,
    "Right until a score is large: e^1000 is inf, and inf / inf is nan. Subtract a logarithm from "
    "the scores, as the task says.",
    by=_powers_shared,
)
misconception(
    attention_weights,
    "Right until a score is large: e^1000 is inf, and so is its logarithm. Use `logsumexp`, which "
    "avoids this.",
    by=_log_of_powers,
)


@misconception(attention_weights)
def shifted_above(scores: Tensor) -> Tensor:
    """You subtracted a number from the scores in the numerator only: subtract it in the denominator
    too.
    """
    shifted = scores - scores.amax(-1, keepdim=True)
    return shifted.exp() / scores.exp().sum(-1, keepdim=True)


misconception(
    attention_weights,
    "These are the logarithms of the weights: apply exp.",
    line=("softmax", "log_softmax"),
)
misconception(
    attention_weights,
    "All weights of a sentence sum to 1 together: each row must sum to 1.",
    line=("softmax(-1)", "flatten(1).softmax(-1).view_as(scores)"),
)
misconception(
    attention_weights,
    "Your softmax runs over the batch: a query distributes its weights over its keys.",
    line=("-1", "0"),
)
misconception(
    attention_weights,
    "You divided the scores by their sum, but some scores are negative. Apply exp first.",
    line=("scores.softmax(-1)", "scores / scores.sum(-1, keepdim=True)"),
)


def _attention_cases() -> Cases:
    one, three, sizes, draw = twelve_heads(1), twelve_heads(3), example.SIZES, seeded()
    return {
        "d_k 3": (one.query[:, 0], one.key[:, 0], one.value[:, 0]),
        "d_k 1": (three.query[:, 0], three.key[:, 0], three.value[:, 0]),
        "all sizes differ": (
            draw(sizes.batch, sizes.tgt, sizes.d_k),
            draw(sizes.batch, sizes.src, sizes.d_k),
            draw(sizes.batch, sizes.src, sizes.d_v),
        ),
    }


@task(
    _attention_cases,
    forbidden=("scaled_dot_product_attention",),
    measures="the four steps in their order, at any sizes",
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scores: Callable[..., Tensor] = attention_scores,
    weights: Callable[..., Tensor] = attention_weights,
) -> Tensor:
    """query (batch, query, d_k), key (batch, key, d_k), value (batch, key, d_v) -> (batch, query,
    d_v)
    """
    return weights(scores(query, key)) @ value


@solved(attention)
def _attention_scaled_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    asked = query / query.size(-1) ** 0.5
    shares = (asked @ key.mT).softmax(-1)
    return shares @ value


again(attention, "softmax-queries", weights=softmax_queries.wrong)
inherit(attention, lambda wrong: partial(attention, scores=wrong), *WRONG_SCORES, *MISREAD_SCALES)


@misconception(attention)
def scaled_by_value(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """You divided by the square root of d_v, the size of a value: divide by the square
    root of d_k.
    """
    return attention(query, key, value, scores=lambda *_: query @ key.mT / value.size(-1) ** 0.5)


@misconception(attention)
def scaled_after(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """You scaled after softmax, so that the weights of a query no longer sum to 1: scale the input
    of softmax.
    """
    return (query @ key.mT).softmax(-1) / math.sqrt(query.size(-1)) @ value


misconception(
    attention,
    "You averaged the values by their scores: apply softmax to the scores first.",
    weights=torch.clone,
)


@misconception(attention)
def features_shared(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Your softmax runs over the features of a query: compute the scores first, then
    apply softmax.
    """
    return (query / math.sqrt(query.size(-1))).softmax(-1) @ key.mT @ value


@misconception(attention)
def only_the_best(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """You returned the value of the best key alone: average all values by their weights."""
    found = attention_scores(query, key)
    return (found == found.amax(-1, keepdim=True)).double() @ value


misconception(
    attention,
    "You averaged the keys: average the values.",
    line=("@ value", "@ key"),
)


@question(measures="query axis, key axis, and which axes disappear")
def weights_shape(*, scores: Callable[..., Tensor] = attention_scores) -> tuple[int, ...]:
    """7 words ask 9 words, in 3 pairs of sentences -> (batch, query, key)"""
    draw = seeded()
    return tuple(attention_weights(scores(draw(3, 7, 16), draw(3, 9, 16))).shape)


again(weights_shape, "qk-swapped", scores=qk_swapped.wrong)


@misconception(weights_shape)
def shape_of_context() -> tuple[int, ...]:
    """This is the shape of the context: the question is about the weights, before the values are
    averaged.
    """
    draw = seeded()
    return tuple(attention(draw(3, 7, 16), draw(3, 9, 16), draw(3, 9, 10)).shape)


misconception(
    weights_shape,
    "This is the shape of the queries: which axis is left after their dot products with the keys?",
    scores=lambda query, key: query,
)
misconception(
    weights_shape,
    "Queries and keys come from different sentences: over which words does a row of weights run?",
    scores=lambda query, key: attention_scores(query, query),
)


@question(
    decimals=3,
    measures="that a score of 0 is not a mask",
    worked="[1.9951 / (1.9951 + 1), 1 / (1.9951 + 1)]",
)
def key_zeroed(
    *,
    scores: Callable[..., Tensor] = attention_scores,
    weights: Callable[..., Tensor] = attention_weights,
    zeroed: tuple[int, ...] = (1,),
    asks: int = 0,
) -> list[float]:
    """the weights of dog where the key of fish is zero, for dog and for fish"""
    head = twelve_heads(1)
    query, key = head.query[1, 0], head.key[1, 0].clone()
    key[list(zeroed)] = 0
    return weights(scores(query, key))[asks].tolist()


again(key_zeroed, "softmax-queries", weights=softmax_queries.wrong)
inherit(key_zeroed, lambda wrong: partial(key_zeroed, scores=wrong), *WRONG_SCORES)
misconception(
    key_zeroed,
    "A key of zeros has the score 0, not the weight 0.",
    weights=lambda scores: scores.masked_fill(scores == 0, -math.inf).softmax(-1),
)
misconception(
    key_zeroed,
    "These are the weights with the old key: the key of fish has changed, and so has its score.",
    zeroed=(),
)
misconception(
    key_zeroed,
    "Equal weights need equal scores: only the key of fish is zero, not the key of dog.",
    zeroed=(0, 1),
)
misconception(
    key_zeroed,
    "These are the right two numbers in the wrong order: dog comes first.",
    by=lambda: key_zeroed()[::-1],
)
misconception(
    key_zeroed, "These are the weights of fish, the second row: the question is about dog.", asks=1
)
misconception(
    key_zeroed,
    "These are the scores: apply softmax.",
    weights=torch.clone,
)
misconception(
    key_zeroed,
    "These are the exponentials of the scores: divide each by their sum.",
    weights=torch.exp,
)

_STEPS = ("scores", "weights", "context")


@question(options=_STEPS, measures="that a weighted sum does not depend on the order")
def keys_reversed() -> frozenset[str]:
    """what changes if keys and values are in reversed order"""
    head = twelve_heads(1)

    def steps(key: Tensor, value: Tensor) -> dict[str, Tensor]:
        scores = attention_scores(head.query, key)
        context = attention(head.query, key, value)
        return {"scores": scores, "weights": attention_weights(scores), "context": context}

    before, after = steps(head.key, head.value), steps(head.key.flip(2), head.value.flip(2))
    return frozenset(name for name in before if not torch.allclose(before[name], after[name]))


misconception(
    keys_reversed,
    "Not all of them: which one has no key axis?",
    by=lambda: frozenset(_STEPS),
)
misconception(
    keys_reversed,
    "You chose the opposite: what does a column of the scores belong to?",
    by=lambda: frozenset(_STEPS) - keys_reversed(),
)
misconception(
    keys_reversed,
    "The weights of a row come from its scores: can the scores change their order and the weights "
    "not?",
    by=lambda: keys_reversed() - {"weights"},
)
misconception(
    keys_reversed,
    "The weights come from the scores: can they change if no score does?",
    by=lambda: keys_reversed() - {"scores"},
)
