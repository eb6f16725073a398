"""Lesson 16: mistakes in rotating queries and keys by their positions."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from twelve_lab import example
from twelve_lab.exercises.attention import attention_scores, attention_weights
from twelve_lab.exercises.declare import Cases, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import attend
from twelve_lab.exercises.numbers import SIZES, seeded, twelve_heads


def _angles_cases() -> Cases:
    return {
        "from 0": (0, 4, 6),
        "one pair": (2, 3, 2),
        "one new token": (7, 1, 8),
        "all sizes differ": (7, 3, 10),
    }


@task(_angles_cases, measures="the position of a new token, and the frequency of each pair")
def rotary_angles(start: int, new: int, d_k: int) -> Tensor:
    """start, new, d_k -> (position, pair), new by d_k / 2"""
    position = torch.arange(start, start + new, dtype=torch.float64).unsqueeze(1)
    even = torch.arange(0, d_k, 2)
    return position * 10000.0 ** (-even / d_k)


@solved(rotary_angles)
def _angles_of_new(start: int, new: int, d_k: int) -> Tensor:
    hand = torch.arange(d_k // 2)
    speed = 10000.0 ** (-2 * hand / d_k)
    return torch.outer(start + torch.arange(new), speed)


_EVEN, _POSITION = "torch.arange(0, d_k, 2)", "torch.arange(start, start + new, dtype=D)"
mistake(
    rotary_angles,
    "rotary-frequency-one",
    "You counted the pairs from 1, so even the first one is too slow: count from 0, so that its "
    "frequency is 1.",
    {_EVEN: "torch.arange(2, d_k + 2, 2)"},
)
mistake(
    rotary_angles,
    "rotary-one-late",
    "Your positions are one too large: the first new token has position `start`, after the tokens "
    "0 to start - 1.",
    {_POSITION: "torch.arange(start + 1, start + 1 + new, dtype=D)"},
)
mistake(
    rotary_angles,
    "rotary-start-ignored",
    "Your new tokens start at position 0 again: they follow the tokens in the cache, so start at "
    "`start`.",
    {_POSITION: "torch.arange(new, dtype=D)"},
)
notes(
    rotary_angles,
    {
        "Your frequencies increase from pair to pair: the exponent needs a minus.": {
            "-even / d_k": "even / d_k"
        },
        "Your angles do not depend on the position: multiply each frequency by the position.": {
            "return position * X": "return 0 * position + X"
        },
        "All pairs have the frequency 1: only the first pair should, and later ones are slower.": {
            "-even / d_k": "0 * even"
        },
        "Your frequencies decrease too slowly: where is the 2 of the exponent?": {
            _EVEN: "torch.arange(d_k // 2)"
        },
        "You computed an angle for each feature: the two features of a pair share one, so there "
        "are d_k / 2 columns.": {_EVEN: "torch.arange(d_k)"},
    },
)


def _rotate_cases() -> Cases:
    draw = seeded()
    heads = draw(SIZES.batch, SIZES.num_heads, SIZES.src, SIZES.d_k)
    return {
        "our two heads": (twelve_heads(2).query, rotary_angles(0, 2, 2)),
        "two pairs": (draw(1, 1, 3, 4), rotary_angles(1, 3, 4)),
        "all sizes differ": (heads, rotary_angles(0, SIZES.src, SIZES.d_k)),
    }


@task(
    _rotate_cases,
    forbidden=("sin", "cos", "RotaryEncoding"),
    measures="adjacent features as one complex number",
)
def rotate(heads: Tensor, angles: Tensor) -> Tensor:
    """heads (batch, head, seq, d_k), angles (seq, pair) -> (batch, head, seq, d_k)"""
    sin, cos = angles.sin(), angles.cos()
    even, odd = heads[..., 0::2], heads[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


@solved(rotate)
def _rotate_complex(heads: Tensor, angles: Tensor) -> Tensor:
    numbers = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
    turned = numbers * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


mistake(
    rotate,
    "rotary-halves",
    "You paired each feature of the first half with one of the second, as other libraries do: "
    "here adjacent features form a pair, 0 and 1, 2 and 3.",
    {
        "heads[..., 0::2]": "heads.chunk(2, dim=-1)[0]",
        "heads[..., 1::2]": "heads.chunk(2, dim=-1)[1]",
        "torch.stack(PAIRS, dim=-1)": "torch.stack(PAIRS, dim=-2)",
    },
)
mistake(
    rotate,
    "rotary-cat",
    "Your angles are ordered 0, 1, 0, 1, so the two features of a pair rotate by different "
    "angles: repeat each angle for its pair, 0, 0, 1, 1.",
    {
        "sin, cos = X": "angles = torch.cat([angles, angles], dim=-1)",
        "return X": "across = torch.stack([-odd, even], dim=-1).flatten(-2)\n"
        "return heads * angles.cos() + across * angles.sin()",
    },
)
mistake(
    rotate,
    "rotary-clockwise",
    "You rotated clockwise: the minus belongs to the first feature of a pair, x cos - y sin, and "
    "the plus to the second.",
    {
        "even * cos - odd * sin": "even * cos + odd * sin",
        "even * sin + odd * cos": "odd * cos - even * sin",
    },
)
notes(
    rotate,
    {
        "Both of your sums have a plus, so the norms change: the first sum of a rotation needs "
        "a minus.": {"even * cos - odd * sin": "even * cos + odd * sin"},
        "Nothing is rotated: rotate each pair by its angle.": {"return X": "return heads.clone()"},
        "All tokens rotate by the angles of the first: give each token its own row of angles.": {
            "sin, cos = X": "angles = angles[:1]\nsin, cos = X"
        },
        "All pairs rotate by the angles of the first: give each pair its own column of angles.": {
            "sin, cos = X": "angles = angles[:, :1]\nsin, cos = X"
        },
        "You swapped the two features of each pair.": {
            "torch.stack((X, Y), dim=-1)": "torch.stack((Y, X), dim=-1)"
        },
        "You rotated the pairs but returned them as halves: interleave them, so that each pair is "
        "adjacent again.": {"torch.stack(PAIRS, dim=-1)": "torch.stack(PAIRS, dim=-2)"},
    },
)


def _by_position(heads: Tensor) -> Tensor:
    """Rotate heads of any even size by their positions."""
    return rotate(heads, rotary_angles(0, heads.size(-2), heads.size(-1)))


def _attention_cases() -> Cases:
    two, draw = twelve_heads(2), seeded()
    shape = (SIZES.batch, SIZES.num_heads, SIZES.src, SIZES.d_k)
    return {
        "our two heads": (two.query, two.key, two.value, _by_position),
        "one sentence": (*(draw(1, 2, 4, 6) for _ in range(3)), _by_position),
        "all sizes differ": (*(draw(*shape) for _ in range(3)), _by_position),
    }


@task(_attention_cases, measures="that queries and keys are rotated, and values are not")
def rotary_attention(
    query: Tensor, key: Tensor, value: Tensor, turn: Callable[[Tensor], Tensor]
) -> Tensor:
    """query, key, value (batch, head, seq, d_k), turn -> (batch, head, seq, d_k)"""
    return attend(turn(query), turn(key), value)


@solved(rotary_attention)
def _attention_turned(query, key, value, turn):
    return F.scaled_dot_product_attention(turn(query), turn(key), value)


_ATTEND = "attend(turn(query), turn(key), value)"
notes(
    rotary_attention,
    {
        "You rotated the values as well, so their content depends on their position: rotate "
        "only queries and keys.": {_ATTEND: "attend(turn(query), turn(key), turn(value))"},
        "You rotated only the queries: rotate the keys too, so that the score depends only on "
        "the distance.": {_ATTEND: "attend(turn(query), key, value)"},
        "You rotated only the keys: rotate the queries too, so that the score depends only on "
        "the distance.": {_ATTEND: "attend(query, turn(key), value)"},
        "You rotated the output: rotate the queries and keys before their dot products.": {
            _ATTEND: "turn(attend(query, key, value))"
        },
    },
)


def _rows_cases() -> Cases:
    draw = seeded()
    return {
        "one head": (draw(8, 3), 1),
        "two heads": (draw(8, 5), 2),
        "all sizes differ": (draw(SIZES.num_heads * SIZES.d_k, SIZES.d_model), SIZES.num_heads),
    }


@task(_rows_cases, by_gradient=None, measures="a layout as an order of the rows, head by head")
def rows_for_neighbours(weight: Tensor, num_heads: int) -> Tensor:
    """weight (head*d_k, d_model), num_heads -> (head*d_k, d_model)"""
    heads = weight.unflatten(0, (num_heads, 2, -1))
    return heads.transpose(1, 2).reshape(weight.shape)


@solved(rows_for_neighbours)
def _rows_woven(weight: Tensor, num_heads: int) -> Tensor:
    pattern = "(head two pair) d_model -> (head pair two) d_model"
    return rearrange(weight, pattern, head=num_heads, two=2)


mistake(
    rows_for_neighbours,
    "rows-kept",
    "You left the rows in halves: interleave the two halves of each head, so that the rows of a "
    "pair are adjacent.",
    {"X.transpose(1, 2)": "X"},
    step="19",
)
mistake(
    rows_for_neighbours,
    "rows-across-heads",
    "You interleaved the halves of the whole matrix, which mixes the heads: interleave the halves "
    "of each head.",
    {"(HEADS, 2, HALF)": "(1, 2, -1)"},
    step="19",
)
# With four rows, the permutation is its own inverse.
mistake(
    rows_for_neighbours,
    "rows-woven-back",
    "You converted in the opposite direction, from adjacent pairs to halves: row i of the first "
    "half moves to row 2i, followed by row i of the second half.",
    {"(HEADS, 2, HALF)": "(HEADS, HALF, 2)"},
    step="19",
)
notes(
    rows_for_neighbours,
    {
        "The second half comes first in your pairs: put feature i of the first half before feature "
        "i of the second.": {"X.transpose(1, 2)": "X.flip(1).transpose(1, 2)"},
    },
)


@question(measures="that only the distance counts")
def fish_further_on() -> float:
    """the match of fish at 1003 with dog at 1000, in head 0"""
    model = example.model(num_heads=2).encoder.layers[0].self_attention
    rows = torch.tensor(example.embedding_rows, dtype=torch.float64)
    query, key = model.w_q.weight.detach()[:2] @ rows[3], model.w_k.weight.detach()[:2] @ rows[2]
    query = rotate(query[None, None, None], rotary_angles(1003, 1, 2))
    key = rotate(key[None, None, None], rotary_angles(1000, 1, 2))
    return (query @ key.mT).item()


notes(
    fish_further_on,
    {
        "This is the score at distance 0: how far is 1003 from 1000?": {"1003": "1000"},
        "This is the score at distance 1, as in dog fish.": {"1003": "1001"},
        "This is the score for dog three positions after fish: a rotation distinguishes before "
        "from after.": {"1003": "997"},
        "This is the score after scaling: do not divide by the square root of 2.": {
            "query @ key.mT": "attention_scores(query, key)"
        },
    },
)


@question(
    options=("query", "key", "value", "scores", "weights"),
    measures="what a shift of the whole text leaves unchanged",
)
def text_moved_on() -> frozenset[str]:
    """what changes where a whole text is moved on by 100 positions"""
    two = twelve_heads(2)
    parts = []
    for start in (0, 100):
        angles = rotary_angles(start, 2, 2)
        query, key = rotate(two.query, angles), rotate(two.key, angles)
        scores = attention_scores(query, key)
        weights = attention_weights(scores)
        parts.append((query, key, two.value, scores, weights))
    names = ("query", "key", "value", "scores", "weights")
    pairs = zip(names, *parts, strict=True)
    return frozenset(name for name, old, new in pairs if not torch.allclose(old, new))


notes(
    text_moved_on,
    {
        "Each query and each key is rotated further than before: do they stay the same?": set(),
        "Values are not rotated.": {"query", "key", "value"},
        "Do all of them change? The distances stay the same. What else do the scores depend on?": {
            "query", "key", "value", "scores", "weights",
        },
        "The scores depend only on the distances, which stay the same.": {
            "query", "key", "scores", "weights",
        },
        "You chose the opposite: what is rotated, and what depends on two rotated vectors?": {
            "scores", "weights",
        },
    },
)  # fmt: skip


@question(
    decimals=0,
    measures="how slow the slowest pair is",
    worked="2 * 3.14159265 * 10000 ** (62 / 64)",
)
def slowest_round() -> float:
    """positions for one round of the slowest pair, d_k 64"""
    return 2 * math.pi * 10000 ** (62 / 64)


notes(
    slowest_round,
    {
        "Your last pair has the frequency 1/10000: the exponent of the last pair is 62/64, not 1.":
        2 * math.pi * 10000,
        "This is the number for one radian: a full rotation has two pi radians.":
        10000 ** (62 / 64),
        "This is the pair before the last: the last pair is made of features 62 and 63.":
        2 * math.pi * 10000 ** (60 / 64),
        "This is the fastest pair, which rotates by 1 radian per position.": 2 * math.pi,
    },
)  # fmt: skip
