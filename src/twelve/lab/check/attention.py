"""Step 04: what scores, weights and their sum invite."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded, twelve_heads
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target


def scores(query: Tensor, key: Tensor) -> Tensor:
    """Score rightly: every key by every query, over the root of d_k."""
    return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))


def _scores_cases() -> Cases:
    one, three, draw = twelve_heads(1), twelve_heads(3), seeded()
    return {
        "d_k 3": (one.query[:, 0], one.key[:, 0]),
        "d_k 1": (three.query[:, 0], three.key[:, 0]),
        "all sizes differ": (draw(2, 4, 8), draw(2, 5, 8)),
    }


def _qk_swapped(query: Tensor, key: Tensor) -> Tensor:
    return key @ query.transpose(-2, -1) / math.sqrt(query.size(-1))


def _scale_missing(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1)


def _scale_d_k(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1) / query.size(-1)


def _scale_multiplied(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1) * math.sqrt(query.size(-1))


def _scale_length(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1) / math.sqrt(key.size(-2))


def _weights(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def _weights_cases() -> Cases:
    one, draw = twelve_heads(1), seeded()
    return {
        "twelve numbers": (scores(one.query, one.key)[:, 0],),
        "one query": (draw(2, 1, 5),),
        "all sizes differ": (draw(2, 4, 5),),
    }


def _softmax_queries(scores: Tensor) -> Tensor:
    return scores.softmax(-2)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scores: Callable[..., Tensor] = scores,
    weights: Callable[..., Tensor] = _weights,
) -> Tensor:
    return weights(scores(query, key)) @ value


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


# These are made in every larger attention as well.
WRONG_SCORES = {
    "qk-swapped": _qk_swapped,
    "scale-missing": _scale_missing,
    "scale-d_k": _scale_d_k,
    "scale-multiplied": _scale_multiplied,
    "scale-length": _scale_length,
}


def _weights_shape(*, scores: Callable[..., Tensor] = scores) -> tuple[int, ...]:
    draw = seeded()
    return tuple(_weights(scores(draw(3, 7, 16), draw(3, 9, 16))).shape)


def _key_zeroed(
    *, scores: Callable[..., Tensor] = scores, weights: Callable[..., Tensor] = _weights
) -> list[float]:
    one = twelve_heads(1)
    query, key = one.query[1, 0], one.key[1, 0].clone()
    key[1] = 0
    return weights(scores(query, key))[0].tolist()


def _keys_reversed() -> frozenset[str]:
    one = twelve_heads(1)

    def steps(key: Tensor, value: Tensor) -> dict[str, Tensor]:
        found = scores(one.query, key)
        context = _attention(one.query, key, value)
        return {"scores": found, "weights": _weights(found), "context": context}

    before, after = steps(one.key, one.value), steps(one.key.flip(2), one.value.flip(2))
    return frozenset(name for name in before if not torch.allclose(before[name], after[name]))


QUESTIONS = (
    Question(
        name="weights_shape",
        contract="7 words ask 9 words, in 3 pairs of sentences -> (batch, query, key)",
        right=_weights_shape,
        wrong={"qk-swapped": partial(_weights_shape, scores=_qk_swapped)},
    ),
    Question(
        name="key_zeroed",
        contract="the weights of dog where the key of fish is zero, for dog and for fish",
        right=_key_zeroed,
        wrong={
            "softmax-queries": partial(_key_zeroed, weights=_softmax_queries),
            **{id: partial(_key_zeroed, scores=wrong) for id, wrong in WRONG_SCORES.items()},
        },
        decimals=3,
    ),
    Question(
        name="keys_reversed",
        contract="what changes where keys and values stand in reversed order",
        right=_keys_reversed,
        options=("scores", "weights", "context"),
    ),
)

TARGETS = (
    Target(
        name="attention_scores",
        contract="query (batch, query, d_k), key (batch, key, d_k) -> (batch, query, key)",
        right=scores,
        cases=_scores_cases,
    ),
    Target(
        name="attention_weights",
        contract="scores (batch, query, key) -> (batch, query, key), each row sums to 1",
        right=_weights,
        cases=_weights_cases,
    ),
    Target(
        name="attention",
        contract="query (batch, query, d_k), key (batch, key, d_k), value (batch, key, d_v) -> "
        "(batch, query, d_v)",
        right=_attention,
        cases=_attention_cases,
        also={
            "softmax-queries": partial(_attention, weights=_softmax_queries),
            **{id: partial(_attention, scores=wrong) for id, wrong in WRONG_SCORES.items()},
        },
    ),
)

_SCORES = "query @ key.transpose(-2, -1) / math.sqrt(d_k)"


def _scored(id: str, sentence: str, planted: str) -> Mistake:
    return Mistake(
        id=id,
        sentence=sentence,
        step="04",
        target="attention_scores",
        wrong=WRONG_SCORES[id],
        plant=Plant("attention", _SCORES, planted),
    )


MISTAKES = (
    Mistake(
        id="softmax-queries",
        sentence="Your softmax runs over the queries, so the columns sum to 1: each query shares "
        "out its own attention, so run softmax over the keys, the last axis.",
        step="04",
        target="attention_weights",
        wrong=_softmax_queries,
        plant=Plant("attention", "= scores.softmax(-1)\n", "= scores.softmax(-2)\n"),
    ),
    _scored(
        "qk-swapped",
        "You multiplied the keys by the queries, so a row holds who asks for a word: multiply the "
        "queries by the transposed keys, so that a row holds what a word asks for.",
        "key @ query.transpose(-2, -1) / math.sqrt(d_k)",
    ),
    _scored(
        "scale-missing",
        "The scores are not scaled: divide them by the square root of d_k, the width of a query.",
        "query @ key.transpose(-2, -1)",
    ),
    _scored(
        "scale-d_k",
        "You divided the scores by d_k itself: divide by its square root.",
        "query @ key.transpose(-2, -1) / d_k",
    ),
    _scored(
        "scale-multiplied",
        "You multiplied the scores by the square root of d_k: divide by it.",
        "query @ key.transpose(-2, -1) * math.sqrt(d_k)",
    ),
    _scored(
        "scale-length",
        "You divided the scores by the square root of the number of words: divide by that of d_k, "
        "the width of a query, whatever the length of the sentence.",
        "query @ key.transpose(-2, -1) / math.sqrt(key.size(-2))",
    ),
)
