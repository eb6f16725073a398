"""Lesson 04: mistakes in attention scores, weights and averages."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import (
    Cases,
    again,
    mistake,
    notes,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import SIZES, seeded, twelve_heads


def _scores_cases() -> Cases:
    one, three, draw = twelve_heads(1), twelve_heads(3), seeded()
    return {
        "d_k 3": (one.query[:, 0], one.key[:, 0]),
        "d_k 1": (three.query[:, 0], three.key[:, 0]),
        "all sizes differ": (
            draw(SIZES.batch, SIZES.tgt, SIZES.d_k),
            draw(SIZES.batch, SIZES.src, SIZES.d_k),
        ),
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


mistake(
    attention_scores,
    "qk-swapped",
    "You swapped queries and keys: multiply the queries by the transposed keys, so that each row "
    "belongs to a query and each column to a key.",
    {"query @ key.transpose(-2, -1)": "key @ query.transpose(-2, -1)"},
)
mistake(
    attention_scores,
    "scale-missing",
    "The scores are not scaled: divide them by the square root of d_k, the number of features of "
    "a query.",
    {"X / math.sqrt(D)": "X"},
)
mistake(
    attention_scores,
    "scale-d_k",
    "You divided the scores by d_k, or twice by its square root: divide them once by the square "
    "root.",
    {"X / math.sqrt(D)": "X / D"},
)
mistake(
    attention_scores,
    "scale-multiplied",
    "You multiplied the scores by the square root of d_k: divide by it.",
    {"X / math.sqrt(D)": "X * math.sqrt(D)"},
)
mistake(
    attention_scores,
    "scale-length",
    "You divided the scores by the square root of the number of words: divide by the square root "
    "of d_k, whatever the sentence length.",
    {"X / math.sqrt(D)": "X / math.sqrt(key.size(-2))"},
)
notes(
    attention_scores,
    {
        "You always divide by the square root of 3: read d_k from the shape of the query.": {
            "query.size(-1)": "3"
        },
        "You divided the vectors by their norms, so only their directions count: here a score "
        "is the plain dot product.": {
            "query @ key.transpose(-2, -1)": "query / query.norm(dim=-1, keepdim=True) @ "
            "(key / key.norm(dim=-1, keepdim=True)).mT"
        },
    },
)


def _weights_cases() -> Cases:
    one, draw = twelve_heads(1), seeded()
    return {
        "our two sentences": (attention_scores(one.query, one.key)[:, 0],),
        "one query": (draw(2, 1, 5),),
        # Two different rows detect softmax over the queries. All scores are large, so subtracting
        # the largest score of the whole table is right too.
        "large scores": (torch.tensor([[[1000.0, 999.0], [1000.0, 1001.0]]], dtype=torch.float64),),
        "all sizes differ": (draw(SIZES.batch, SIZES.tgt, SIZES.src),),
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


mistake(
    attention_weights,
    "softmax-queries",
    "Your softmax runs over the queries, so the columns sum to 1: run softmax over the keys, the "
    "last axis, so that the weights of each query sum to 1.",
    {"scores.softmax(-1)": "scores.softmax(-2)"},
)
_SOFTMAX = "scores.softmax(-1)"
_SHARES = "scores.exp() / scores.exp().sum(-1, keepdim=True)"
_LOGS = "(scores - scores.exp().sum(-1, keepdim=True).log()).exp()"
again(attention_weights, "softmax-queries", {_SOFTMAX: _SHARES.replace("-1", "-2")})
again(attention_weights, "softmax-queries", {_SOFTMAX: _LOGS.replace("-1", "-2")})
notes(
    attention_weights,
    {
        "This is right until a score is large: e^1000 is inf, and inf / inf is nan. Subtract a "
        "logarithm from the scores, as the task says.": {_SOFTMAX: _SHARES},
        "This is right until a score is large: e^1000 is inf, and so is its logarithm. Use "
        "`logsumexp`, which avoids this.": {_SOFTMAX: _LOGS},
        "You subtracted a number from the scores in the numerator only: subtract it in the "
        "denominator too.": {
            _SOFTMAX: "(scores - scores.amax(-1, keepdim=True)).exp() / "
            "scores.exp().sum(-1, keepdim=True)"
        },
        "All the weights of a sentence together sum to 1: each row must sum to 1.": {
            _SOFTMAX: "scores.flatten(1).softmax(-1).view_as(scores)"
        },
        "You divided the scores by their sum, but some scores are negative. Apply exp first.": {
            _SOFTMAX: "scores / scores.sum(-1, keepdim=True)"
        },
    },
)


def _attention_cases() -> Cases:
    one, three = twelve_heads(1), twelve_heads(3)
    values = seeded(13)(SIZES.batch, SIZES.src, SIZES.d_v)
    return {
        "d_k 3": (one.query[:, 0], one.key[:, 0], one.value[:, 0]),
        "d_k 1": (three.query[:, 0], three.key[:, 0], three.value[:, 0]),
        "all sizes differ": (*_scores_cases()["all sizes differ"], values),
    }


@task(
    _attention_cases,
    forbidden=("scaled_dot_product_attention",),
    measures="the four steps in their order, at any sizes",
)
def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """query (batch, query, d_k), key (batch, key, d_k), value (batch, key, d_v) -> (batch, query,
    d_v)
    """
    return attention_weights(attention_scores(query, key)) @ value


@solved(attention)
def _attention_scaled_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    asked = query / query.size(-1) ** 0.5
    shares = (asked @ key.mT).softmax(-1)
    return shares @ value


_SCORES = "attention_scores(query, key)"
_WEIGHTS = f"attention_weights({_SCORES})"
notes(
    attention,
    {
        "You divided by the square root of d_v, the size of a value: divide by the square root of "
        "d_k.": {_SCORES: "query @ key.mT / value.size(-1) ** 0.5"},
        "You scaled after softmax, so the weights of a query no longer sum to 1: scale the "
        "input of softmax.": {_WEIGHTS: "(query @ key.mT).softmax(-1) / query.size(-1) ** 0.5"},
        "You returned only the value of the best key: average all the values by their weights.": {
            _WEIGHTS: f"torch.eye(key.size(-2))[{_SCORES}.argmax(-1)]"
        },
    },
)


@question(measures="query axis, key axis, and which axes disappear")
def weights_shape() -> tuple[int, ...]:
    """7 words ask 9 words, in 3 pairs of sentences -> (batch, query, key)"""
    query, key = torch.zeros(3, 7, 16), torch.zeros(3, 9, 16)
    return tuple(attention_weights(attention_scores(query, key)).shape)


notes(
    weights_shape,
    {
        "This is the shape of the queries: which axis is left after their dot products with the "
        "keys?": (3, 7, 16),
        "Queries and keys come from different sentences: over which words does a row of weights "
        "run?": (3, 7, 7),
    },
)


@question(
    decimals=3,
    measures="that a score of 0 is not a mask",
    worked="[1.9951 / (1.9951 + 1), 1 / (1.9951 + 1)]",
)
def key_zeroed() -> list[float]:
    """the weights of dog where the key of fish is zero, for dog and for fish"""
    head = twelve_heads(1)
    query, key = head.query[1, 0], head.key[1, 0]
    key[1] = 0
    return attention_weights(attention_scores(query, key))[0].tolist()


notes(
    key_zeroed,
    {
        "A key of zeros has a score of 0, not a weight of 0.": [1.0, 0.0],
        "Equal weights need equal scores: only the key of fish is zero, not that of dog.": [
            0.5,
            0.5,
        ],
        "These are the weights with the old key: the key of fish has changed, and so has its "
        "score.": {"key[1] = 0": "pass"},
        "These are the weights of fish, the second row: the question is about dog.": {
            f"{_WEIGHTS}[0]": f"{_WEIGHTS}[1]"
        },
        "These are the scores: apply softmax.": {_WEIGHTS: _SCORES},
        "These are the exponentials of the scores: divide each one by their sum.": {
            _WEIGHTS: f"{_SCORES}.exp()"
        },
    },
)


@question(
    options=("scores", "weights", "context"),
    measures="that a weighted sum does not depend on the order",
)
def keys_reversed() -> frozenset[str]:
    """what changes if keys and values are in reversed order"""
    head = twelve_heads(1)
    steps = []
    for key, value in ((head.key, head.value), (head.key.flip(2), head.value.flip(2))):
        scores = attention_scores(head.query, key)
        weights = attention_weights(scores)
        steps.append({"scores": scores, "weights": weights, "context": weights @ value})
    return frozenset(name for name, x in steps[0].items() if not torch.allclose(x, steps[1][name]))


notes(
    keys_reversed,
    {
        "Not all of them: which one has no key axis?": {"scores", "weights", "context"},
        "You chose the opposite: what does a column of the scores belong to?": {"context"},
        "The weights come from the scores: what happens to them if the scores change?": {"scores"},
    },
)
