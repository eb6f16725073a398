"""Step 04: what scores, weights and their sum invite."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises.numbers import seeded, twelve_heads


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


def over_root_of(number: Callable[[Tensor, Tensor], int]) -> Callable[[Tensor, Tensor], Tensor]:
    """Score with another divisor.

    Args:
        number: Finds in query and key the number whose root divides.
    """
    return lambda query, key: query @ key.mT / math.sqrt(number(query, key))


def _weights(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def _weights_cases() -> Cases:
    one, draw = twelve_heads(1), seeded()
    return {
        "our two sentences": (scores(one.query, one.key)[:, 0],),
        "one query": (draw(2, 1, 5),),
        "all sizes differ": (draw(2, 4, 5),),
        # Two rows that differ, for softmax along the queries, and all large, so that whoever takes
        # off the largest score of the whole table is right as well.
        "large scores": (torch.tensor([[[1000.0, 999.0], [1000.0, 1001.0]]], dtype=torch.float64),),
    }


def _softmax_queries(scores: Tensor) -> Tensor:
    return scores.softmax(-2)


def _powers_shared(scores: Tensor, *, dim: int = -1) -> Tensor:
    return scores.exp() / scores.exp().sum(dim, keepdim=True)


def _log_of_powers(scores: Tensor, *, dim: int = -1) -> Tensor:
    return (scores - scores.exp().sum(dim, keepdim=True).log()).exp()


def _shifted_above(scores: Tensor) -> Tensor:
    shifted = scores - scores.amax(-1, keepdim=True)
    return shifted.exp() / scores.exp().sum(-1, keepdim=True)


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


# So are these confusions.
SCORE_SLIPS = {
    "You divided by the root of the number of queries: divide by that of d_k, the width of a "
    "query.": over_root_of(lambda query, key: query.size(-2)),
    "You divide by the root of 3 wherever you are: read the width off the query.": over_root_of(
        lambda query, key: 3
    ),
}
SCALED_BY_VALUE = "You divided by the root of d_v, the width of a value: divide by that of d_k."


def _scaled_by_value(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return _attention(query, key, value, scores=over_root_of(lambda *_: value.size(-1)))


def _only_the_best(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    found = scores(query, key)
    return (found == found.amax(-1, keepdim=True)).double() @ value


def _weights_shape(*, scores: Callable[..., Tensor] = scores) -> tuple[int, ...]:
    draw = seeded()
    return tuple(_weights(scores(draw(3, 7, 16), draw(3, 9, 16))).shape)


def _context_shape() -> tuple[int, ...]:
    draw = seeded()
    return tuple(_attention(draw(3, 7, 16), draw(3, 9, 16), draw(3, 9, 10)).shape)


def _key_zeroed(
    *,
    scores: Callable[..., Tensor] = scores,
    weights: Callable[..., Tensor] = _weights,
    zeroed: tuple[int, ...] = (1,),
    asks: int = 0,
) -> list[float]:
    one = twelve_heads(1)
    query, key = one.query[1, 0], one.key[1, 0].clone()
    key[list(zeroed)] = 0
    return weights(scores(query, key))[asks].tolist()


def _zero_hidden(scores: Tensor) -> Tensor:
    return scores.masked_fill(scores == 0, -math.inf).softmax(-1)


def _keys_reversed() -> frozenset[str]:
    one = twelve_heads(1)

    def steps(key: Tensor, value: Tensor) -> dict[str, Tensor]:
        found = scores(one.query, key)
        context = _attention(one.query, key, value)
        return {"scores": found, "weights": _weights(found), "context": context}

    before, after = steps(one.key, one.value), steps(one.key.flip(2), one.value.flip(2))
    return frozenset(name for name in before if not torch.allclose(before[name], after[name]))


_STEPS = ("scores", "weights", "context")

QUESTIONS = (
    Question(
        name="weights_shape",
        contract="7 words ask 9 words, in 3 pairs of sentences -> (batch, query, key)",
        right=_weights_shape,
        wrong={"qk-swapped": partial(_weights_shape, scores=_qk_swapped)},
        slips={
            "That is the shape of the context: the weights come before the values are blended.": (
                _context_shape
            ),
            "That is the shape of the queries: what is left of d_k once they have met the keys?": (
                partial(_weights_shape, scores=lambda query, key: query)
            ),
            "Those who ask are not those who are looked at: whom does a row look at here?": (
                partial(_weights_shape, scores=lambda query, key: scores(query, query))
            ),
        },
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
        slips={
            "A key of zeros has the score 0, not the weight 0.": partial(
                _key_zeroed, weights=_zero_hidden
            ),
            "These are the weights as they were: the key of fish is another now, and so is its "
            "score.": partial(_key_zeroed, zeroed=()),
            "Equal weights come from equal scores: only the key of fish is zero, not that of "
            "dog.": partial(_key_zeroed, zeroed=(0, 1)),
            "These are the two numbers, in the other order: dog comes first.": (
                lambda: _key_zeroed()[::-1]
            ),
            "So looks fish, in the second row: it is dog that asks.": partial(_key_zeroed, asks=1),
            "These are the scores: softmax still has to make weights of them.": partial(
                _key_zeroed, weights=torch.clone
            ),
            "These are e to the scores: each must still be divided by the sum of both.": partial(
                _key_zeroed, weights=torch.exp
            ),
        },
    ),
    Question(
        name="keys_reversed",
        contract="what changes where keys and values stand in reversed order",
        right=_keys_reversed,
        options=_STEPS,
        slips={
            "Not all of them: which one has no axis that belongs to the keys?": (
                lambda: frozenset(_STEPS)
            ),
            "You have it the wrong way round: think of what a column of the scores belongs to.": (
                lambda: frozenset(_STEPS) - _keys_reversed()
            ),
            "Weights are made of scores, row by row: can a row change its order and its weights "
            "keep theirs?": lambda: _keys_reversed() - {"weights"},
            "Weights are made of scores: can they change where no score does?": (
                lambda: _keys_reversed() - {"scores"}
            ),
        },
    ),
)

TARGETS = (
    Target(
        name="attention_scores",
        contract="query (batch, query, d_k), key (batch, key, d_k) -> (batch, query, key)",
        right=scores,
        cases=_scores_cases,
        slips={
            **SCORE_SLIPS,
            "Your queries meet the keys of all sentences: both have the same letter for the "
            "sentence.": lambda query, key: scores(query, key.sum(0, keepdim=True)),
            "You brought the vectors to length 1, so that their directions alone count: here a "
            "match is the plain dot product.": lambda query, key: scores(
                *(one / one.norm(dim=-1, keepdim=True) for one in (query, key))
            ),
        },
        avoid=("transpose", "mT", "T", "mH", "t", "swapaxes", "swapdims", "permute", "movedim"),
    ),
    Target(
        name="attention_weights",
        contract="scores (batch, query, key) -> (batch, query, key), each row sums to 1",
        right=_weights,
        cases=_weights_cases,
        slips={
            "Right until a score is large: e^1000 is inf, and inf / inf is nan. Stay with the "
            "scores and take off a logarithm, as the task says.": _powers_shared,
            "Right until a score is large: your logarithm is that of inf, for e^1000 is computed "
            "on the way. Let `logsumexp` avoid it.": _log_of_powers,
            "Something is taken off the scores above the line and not below it: numerator and sum "
            "must be made of the same numbers.": _shifted_above,
            "These are the logarithms of the weights: undo the logarithm.": (
                lambda scores: scores.log_softmax(-1)
            ),
            "All weights of a sentence sum to 1: each row should have a unit of its own.": (
                lambda scores: scores.flatten(1).softmax(-1).view_as(scores)
            ),
            "You share out among the sentences of the batch: a query chooses among its keys.": (
                lambda scores: scores.softmax(0)
            ),
            "You divided the scores by their sum: some are negative, and no share is. Take e to "
            "them first.": lambda scores: scores / scores.sum(-1, keepdim=True),
        },
        avoid=("softmax", "log_softmax", "softmin", "/", "div", "divide", "true_divide"),
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
        slips={
            **{said: partial(_attention, scores=wrong) for said, wrong in SCORE_SLIPS.items()},
            SCALED_BY_VALUE: _scaled_by_value,
            "You scaled after softmax, so the weights of a query no longer sum to 1: scale what "
            "goes into softmax.": lambda query, key, value: (
                _weights(_scale_missing(query, key)) / math.sqrt(query.size(-1)) @ value
            ),
            "You blend by the scores themselves: make weights of them first.": partial(
                _attention, weights=torch.clone
            ),
            "Your softmax shares out the features of a query: first match, then share.": (
                lambda query, key, value: (
                    (query / math.sqrt(query.size(-1))).softmax(-1) @ key.mT @ value
                )
            ),
            "You hand over the value of the best key alone: blend all values by their weights.": (
                _only_the_best
            ),
            "You blended the keys: what is handed over are the values.": (
                lambda query, key, value: _attention(query, key, key)
            ),
        },
        avoid=("scaled_dot_product_attention",),
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
        variants=(partial(_powers_shared, dim=-2), partial(_log_of_powers, dim=-2)),
    ),
    _scored(
        "qk-swapped",
        "Your keys ask and your queries are looked at: multiply the queries by the transposed "
        "keys, so that a row belongs to the query that asks, and a column to a key.",
        "key @ query.transpose(-2, -1) / math.sqrt(d_k)",
    ),
    _scored(
        "scale-missing",
        "The scores are not scaled: divide them by the square root of d_k, the width of a query.",
        "query @ key.transpose(-2, -1)",
    ),
    _scored(
        "scale-d_k",
        "Your scores are divided by d_k, by d_k itself or twice by its root: divide them once, by "
        "the square root.",
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
