"""By hand: ALiBi, a distance penalty in place of positional encodings."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.numbers import SIZES, seeded


def _slopes_cases() -> Cases:
    return {f"{heads} heads": (heads,) for heads in (4, 8, 2, 16)}


@task(_slopes_cases, measures="a geometric sequence that begins with its own ratio")
def alibi_slopes(num_heads: int) -> Tensor:
    """num_heads, a power of two -> (head)"""
    return 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)


mistake(
    alibi_slopes,
    "alibi-head-from-zero",
    "You counted the heads from 0, so the first slope is 1: it should be the ratio itself, "
    "2^(-8/n).",
    {"torch.arange(1, num_heads + 1)": "torch.arange(num_heads)"},
)
mistake(
    alibi_slopes,
    "alibi-eight-heads-only",
    "1/2, 1/4, 1/8 ... are the slopes of 8 heads: for n heads, use the ratio 2^(-8/n), so that "
    "the last slope is always 1/256.",
    {"X / num_heads": "X / 8"},
)
notes(
    alibi_slopes,
    {
        "Your slopes grow: the exponent should be negative.": {"-8 * X": "8 * X"},
        "The slopes are in reverse order: the first head should have the steepest slope.": {
            "torch.arange(1, num_heads + 1)": "torch.arange(num_heads, 0, -1)"
        },
        "Your slopes are negative: return positive ones, and subtract the bias later.": {
            "2.0 ** X": "-(2.0 ** X)"
        },
        "These are the exponents: the slopes are powers of 2.": {"2.0 ** X": "X"},
        "Your slopes are powers of e: use base 2.": {"2.0 ** X": "torch.exp(X)"},
        "Your slopes are equally spaced: the ratio of neighbouring slopes should be constant.": {
            "return X": "return torch.arange(num_heads, 0, -1) / num_heads"
        },
    },
)


def _weights_cases() -> Cases:
    draw = seeded()
    return {
        "equal scores": (torch.zeros(1, 2, 4, 4, dtype=torch.float64),),
        "one new token": (draw(2, 4, 1, 6),),
        "all sizes differ": (draw(SIZES.batch, 8, SIZES.tgt, SIZES.src),),
    }


@task(_weights_cases, measures="the sign of the bias, a slope for each head, and cached keys")
def alibi_weights(scores: Tensor) -> Tensor:
    """scores (batch, head, query, key) -> (batch, head, query, key)"""
    heads, query_len, key_len = scores.shape[1:]
    query = torch.arange(key_len - query_len, key_len)
    distance = query[:, None] - torch.arange(key_len)
    bias = alibi_slopes(heads)[:, None, None] * distance
    biased = scores - bias
    return biased.masked_fill(distance < 0, -math.inf).softmax(-1)


@solved(alibi_weights)
def _biased_weights(scores):
    heads, query_len, key_len = scores.shape[1:]
    keys = torch.arange(key_len)
    distance = keys[-query_len:, None] - keys
    slopes = torch.tensor([2 ** (-8 * n / heads) for n in range(1, heads + 1)])
    biased = scores - slopes.view(-1, 1, 1) * distance
    return biased.masked_fill(distance < 0, -math.inf).softmax(dim=-1)


mistake(
    alibi_weights,
    "alibi-sign",
    "Your bias rewards distance: subtract slope times distance, so that distant keys get lower "
    "scores.",
    {"scores - bias": "scores + bias"},
)
mistake(
    alibi_weights,
    "alibi-queries-from-zero",
    "You counted the queries from 0, but with a cache they are at the last positions: the first "
    "query is at position key_len - query_len.",
    {"torch.arange(key_len - query_len, key_len)": "torch.arange(query_len)"},
)
mistake(
    alibi_weights,
    "alibi-one-slope",
    "All heads have the same slope: give each head its own.",
    {"alibi_slopes(heads)[:, None, None]": "alibi_slopes(heads)[0]"},
)
mistake(
    alibi_weights,
    "alibi-after-softmax",
    "You added the bias to the weights, so they no longer add up to 1: add the bias to the "
    "scores, before the softmax.",
    {
        "biased = X": "biased = scores",
        "return X": "return X - bias.masked_fill(distance < 0, 0)",
    },
)
again(
    alibi_weights,
    "alibi-after-softmax",
    {"biased = X": "biased = scores", "return X": "return X - bias"},
)
mistake(
    alibi_weights,
    "alibi-future-visible",
    "Keys after the query are visible: mask them with minus infinity.",
    {"biased.masked_fill(distance < 0, -math.inf)": "biased"},
)
again(
    alibi_weights,
    "alibi-future-visible",
    {"biased.masked_fill(distance < 0, -math.inf)": "biased", "X * distance": "X * distance.abs()"},
)
notes(
    alibi_weights,
    {
        "There is no bias: subtract slope times distance from the scores.": {
            "scores - bias": "scores"
        },
        "All heads have slope 1: multiply the distance by the slope of the head.": {
            "bias = X": "bias = 1.0 * distance"
        },
        "You squared the distance in the bias: the bias should grow linearly.": {
            "X * distance": "X * distance**2"
        },
        "The bias stops growing at distance 1: it should grow with each further position.": {
            "X * distance": "X * distance.clamp(max=1)"
        },
        "Keys after the query get the score 0, which is an ordinary score: use minus infinity.": {
            "-math.inf": "0"
        },
        "The key at the position of the query is masked too: mask only the keys after it.": {
            "distance < 0": "(distance <= 0) & (query[:, None] > 0)"
        },
        "These are scores: apply softmax over the keys.": {"X.softmax(-1)": "X"},
        "The softmax runs over the queries: apply it over the keys.": {
            "X.softmax(-1)": "X.softmax(-2)"
        },
    },
)


@question(measures="the first slope, a bias, and a score with a cache")
def alibi_on_paper() -> list[float]:
    """the first slope of 4 heads; in head 0 the bias of query 3 and key 0; in head 1 what becomes
    of the score 3 of key 0, if one query follows 5 cached keys
    """
    slopes = alibi_slopes(4).tolist()
    return [slopes[0], -3 * slopes[0], 3 - 5 * slopes[1]]


notes(
    alibi_on_paper,
    {
        "You counted the heads from 0: the first slope of 4 heads is 2^(-8/4).": [1, -3, 1.75],
        "These are the slopes of 8 heads: for 4 heads, the ratio is 2^(-8/4).": [0.5, -1.5, 1.75],
        "Your bias is positive: it should be negative, to lower the score of a distant key.": [
            0.25, 0.75, 3.3125,
        ],
        "The new query is at position 5, so the distance to key 0 is 5, not 0.": [
            0.25, -0.75, 3,
        ],
        "The new query is at position 5: five keys come before it.": [0.25, -0.75, 2.625],
    },
)  # fmt: skip
