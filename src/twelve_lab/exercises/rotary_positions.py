"""Lesson 16: mistakes in rotating queries and keys by their positions."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import seeded, twelve_heads

_SIZES = example.SIZES


def _angles_cases() -> Cases:
    return {"from 0": (0, 4, 6), "one pair": (2, 3, 2), "one new token": (7, 1, 8)}


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


frequency_one = mistake(
    rotary_angles,
    "rotary-frequency-one",
    "You counted the pairs from 1, so that even the first one is too slow: count from 0, so that "
    "its frequency is 1.",
    line=("torch.arange(0, d_k, 2)", "torch.arange(2, d_k + 2, 2)"),
)
one_late = mistake(
    rotary_angles,
    "rotary-one-late",
    "Your positions are one too large: the first new token has position `start`, after the tokens "
    "0 to start - 1.",
    line=("torch.arange(start, start + new,", "torch.arange(start + 1, start + 1 + new,"),
)
start_ignored = mistake(
    rotary_angles,
    "rotary-start-ignored",
    "Your new tokens start at position 0 again: they follow the tokens in the cache, so start at "
    "`start`.",
    line=("torch.arange(start, start + new,", "torch.arange(new,"),
)
misconception(
    rotary_angles,
    "Your frequencies increase from pair to pair: the exponent needs a minus.",
    line=("(-even", "(even"),
)
misconception(
    rotary_angles,
    "Your frequencies decrease too slowly: where is the 2 of the exponent?",
    line=("(-even / d_k)", "(-even / (2 * d_k))"),
)
misconception(
    rotary_angles,
    "You computed an angle for each feature: the two features of a pair share one, so there are "
    "d_k / 2 columns.",
    line=("torch.arange(0, d_k, 2)", "torch.arange(d_k)"),
)
misconception(
    rotary_angles,
    "All your pairs have the same frequency: each pair has its own.",
    line=("(-even / d_k)", "(0.0 * even)"),
)
misconception(
    rotary_angles,
    "These are degrees: sine and cosine take radians, and the first pair rotates by 1 per "
    "position.",
    by=lambda start, new, d_k: rotary_angles(start, new, d_k).rad2deg(),
)


def _rotate_cases() -> Cases:
    two, draw = twelve_heads(2), seeded()
    return {
        "our two heads": (two.query, rotary_angles(0, 2, 2)),
        "two pairs": (draw(1, 1, 3, 4), rotary_angles(1, 3, 4)),
        "all sizes differ": (
            draw(_SIZES.batch, _SIZES.num_heads, _SIZES.src, _SIZES.d_k),
            rotary_angles(0, _SIZES.src, _SIZES.d_k),
        ),
    }


@task(
    _rotate_cases,
    forbidden=("sin", "cos", "RotaryEncoding"),
    measures="adjacent features as one complex number",
)
def rotate(heads: Tensor, angles: Tensor) -> Tensor:
    """heads (batch, head, seq, d_k), angles (seq, pair) -> (batch, head, seq, d_k)"""
    sin, cos = angles.sin(), angles.cos()
    x, y = heads[..., 0::2], heads[..., 1::2]
    return torch.stack([x * cos - y * sin, x * sin + y * cos], dim=-1).flatten(-2)


@solved(rotate)
def _rotate_complex(heads: Tensor, angles: Tensor) -> Tensor:
    numbers = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
    turned = numbers * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


@mistake(
    rotate,
    "rotary-halves",
)
def rotary_halves(heads: Tensor, angles: Tensor) -> Tensor:
    """You paired each feature of the first half with one of the second, as other libraries do: here
    adjacent features form a pair, 0 and 1, 2 and 3.
    """
    sin, cos = angles.sin(), angles.cos()
    x, y = heads.chunk(2, dim=-1)
    return torch.cat([x * cos - y * sin, x * sin + y * cos], dim=-1)


@mistake(
    rotate,
    "rotary-cat",
)
def rotary_cat(heads: Tensor, angles: Tensor) -> Tensor:
    """Your angles are ordered 0, 1, 0, 1, so that the two features of a pair rotate by different
    angles: repeat each angle for its pair, 0, 0, 1, 1.
    """
    angles = torch.cat([angles, angles], dim=-1)
    x, y = heads[..., 0::2], heads[..., 1::2]
    across = torch.stack([-y, x], dim=-1).flatten(-2)
    return heads * angles.cos() + across * angles.sin()


clockwise = mistake(
    rotate,
    "rotary-clockwise",
    "You rotated clockwise: the minus belongs to the first feature of a pair, x cos - y sin, and "
    "the plus to the second.",
    line=("[x * cos - y * sin, x * sin + y * cos]", "[x * cos + y * sin, y * cos - x * sin]"),
)
misconception(
    rotate,
    "Both of your sums have a plus, so that norms change: the first sum of a rotation has a minus.",
    line=("x * cos - y", "x * cos + y"),
)
misconception(
    rotate,
    "You exchanged sine and cosine in each pair.",
    line=("[x * cos - y * sin, x * sin + y * cos]", "[x * sin - y * cos, x * cos + y * sin]"),
)
misconception(
    rotate,
    "You exchanged the two features of each pair.",
    line=("[x * cos - y * sin, x * sin + y * cos]", "[x * sin + y * cos, x * cos - y * sin]"),
)
misconception(
    rotate,
    "You rotated the pairs but returned them as halves: interleave them, so that each pair is "
    "adjacent again.",
    line=("dim=-1).flatten(-2)", "dim=-2).flatten(-2)"),
)
misconception(
    rotate,
    "You rotated by twice the angle.",
    line=("angles.sin(), angles.cos()", "(2 * angles).sin(), (2 * angles).cos()"),
)
misconception(
    rotate,
    "You rotated every position by the angle of position 0: use row i of the table for position i.",
    line=("angles.sin(), angles.cos()", "angles[:1].sin(), angles[:1].cos()"),
)


def _by_position(heads: Tensor) -> Tensor:
    """Rotate a head by its positions, for any even size."""
    return rotate(heads, rotary_angles(0, heads.size(-2), heads.size(-1)))


def _attention_cases() -> Cases:
    two, sizes, draw = twelve_heads(2), _SIZES, seeded()
    shape = (sizes.batch, sizes.num_heads, sizes.src, sizes.d_k)
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
    scores = turn(query) @ turn(key).mT / math.sqrt(query.size(-1))
    return scores.softmax(-1) @ value


@solved(rotary_attention)
def _attention_turned(query, key, value, turn):
    return F.scaled_dot_product_attention(turn(query), turn(key), value)


misconception(
    rotary_attention,
    "You rotated the values as well, so that their content depends on their position: rotate only "
    "queries and keys.",
    line=("@ value", "@ turn(value)"),
)
misconception(
    rotary_attention,
    "You rotated the queries alone: the score depends on the distance only if both are rotated.",
    line=("turn(key)", "key"),
)
misconception(
    rotary_attention,
    "You rotated the keys alone: the score depends on the distance only if both are rotated.",
    line=("turn(query)", "query"),
)
misconception(
    rotary_attention,
    "You rotated nothing: attention does not know the positions.",
    line=("turn(query) @ turn(key)", "query @ key"),
)
misconception(
    rotary_attention,
    "You rotated the output: rotate the queries and keys before their dot products.",
    by=lambda query, key, value, turn: turn(rotary_attention(query, key, value, torch.clone)),
)
misconception(
    rotary_attention,
    "You rotated queries and keys twice.",
    by=lambda query, key, value, turn: rotary_attention(
        query, key, value, lambda heads: turn(turn(heads))
    ),
)
misconception(
    rotary_attention,
    "The scores are not scaled: divide them by the square root of d_k.",
    line=(" / math.sqrt(query.size(-1))", ""),
)


def _rows_cases() -> Cases:
    draw = seeded()
    return {
        "one head": (draw(8, 3), 1),
        "two heads": (draw(8, 5), 2),
        "all sizes differ": (draw(_SIZES.num_heads * _SIZES.d_k, _SIZES.d_model), _SIZES.num_heads),
    }


@task(
    _rows_cases,
    by_gradient=None,
    measures="a layout as an order of the rows, head by head",
)
def rows_for_neighbours(weight: Tensor, num_heads: int) -> Tensor:
    """weight (head*d_k, d_model), num_heads -> (head*d_k, d_model)"""
    heads = weight.unflatten(0, (num_heads, 2, -1))
    return heads.transpose(1, 2).reshape(weight.shape)


@solved(rows_for_neighbours)
def _rows_woven(weight: Tensor, num_heads: int) -> Tensor:
    pattern = "(head two pair) d_model -> (head pair two) d_model"
    return rearrange(weight, pattern, head=num_heads, two=2)


rows_kept = mistake(
    rows_for_neighbours,
    "rows-kept",
    "You left the rows in halves: interleave the two halves of each head, so that the rows of a "
    "pair are adjacent.",
    line=("heads.transpose(1, 2)", "heads"),
    step="19",
)
rows_across_heads = mistake(
    rows_for_neighbours,
    "rows-across-heads",
    "You interleaved the halves of the whole matrix, which mixes the heads: interleave the halves "
    "of each head.",
    line=("(num_heads, 2, -1)", "(1, 2, -1)"),
    step="19",
)
rows_woven_back = mistake(
    rows_for_neighbours,
    "rows-woven-back",
    "You converted in the opposite direction, from adjacent pairs to halves: row i of the first "
    "half moves to row 2i, followed by row i of the second half.",
    line=(
        "(num_heads, 2, -1)",
        "(num_heads, -1, 2)",
    ),  # with four rows the inverse permutation is the same
    step="19",
)
pairs_turned_round = misconception(
    rows_for_neighbours,
    "The second half comes first in your pairs: put feature i of the first half before feature i "
    "of the second.",
    line=("heads.transpose", "heads.flip(1).transpose"),
)
# The rows of a model file have the same order, and invite the same mistakes.
MISLAID_ROWS = (rows_kept, rows_across_heads, rows_woven_back, pairs_turned_round)


@question(measures="that only the distance counts")
def fish_further_on(*, query_at: int = 1003, key_at: int = 1000) -> float:
    """the match of fish at 1003 with dog at 1000, in head 0"""
    model = example.model(num_heads=2).encoder.layers[0].self_attention
    rows = torch.tensor(example.embedding_rows, dtype=torch.float64)
    query, key = (at.weight.detach()[:2] @ rows[i] for at, i in ((model.w_q, 3), (model.w_k, 2)))
    places = ((query, query_at), (key, key_at))
    query, key = (rotate(one[None, None, None], rotary_angles(at, 1, 2)) for one, at in places)
    return (query @ key.mT).item()


misconception(
    fish_further_on,
    "This is the score at distance 0: how far is 1003 from 1000?",
    query_at=1000,
)
misconception(fish_further_on, "This is the score at distance 1, as in dog fish.", query_at=1001)
misconception(
    fish_further_on, "This is the score at distance 2: how far is 1003 from 1000?", query_at=1002
)
misconception(
    fish_further_on, "This is the score at distance 4: how far is 1003 from 1000?", query_at=1004
)
misconception(
    fish_further_on,
    "This is the score for dog three positions after fish: a rotation distinguishes before and "
    "after.",
    query_at=1000,
    key_at=1003,
)
misconception(
    fish_further_on,
    "This is the score after scaling: do not divide by the square root of 2.",
    by=lambda: fish_further_on() / math.sqrt(2),
)

_PARTS = ("query", "key", "value", "scores", "weights")


@question(options=_PARTS, measures="what a shift of the whole text leaves unchanged")
def text_moved_on() -> frozenset[str]:
    """what changes where a whole text is moved on by 100 positions"""
    two = twelve_heads(2)

    def parts(start: int) -> dict[str, Tensor]:
        angles = rotary_angles(start, 2, 2)
        query, key = rotate(two.query, angles), rotate(two.key, angles)
        scores = query @ key.mT / math.sqrt(2)
        found = {"query": query, "key": key, "value": two.value, "scores": scores}
        return {**found, "weights": scores.softmax(-1)}

    before, after = parts(0), parts(100)
    return frozenset(name for name in before if not torch.allclose(before[name], after[name]))


misconception(
    text_moved_on,
    "Each query and each key is rotated by 100 radians more: do they stay the same?",
    by=lambda: frozenset(),
)
misconception(
    text_moved_on,
    "Values are not rotated.",
    by=lambda: text_moved_on() | {"value"},
)
misconception(
    text_moved_on,
    "Do all of them change? The distances stay the same, and on what else do scores depend?",
    by=lambda: frozenset(_PARTS),
)
misconception(
    text_moved_on,
    "The scores depend only on the distances, which stay the same.",
    by=lambda: text_moved_on() | {"scores", "weights"},
)
misconception(
    text_moved_on,
    "You chose the opposite: what is rotated, and what depends on two rotated vectors?",
    by=lambda: frozenset({"scores", "weights"}),
)


@question(
    decimals=0,
    measures="how slow the slowest pair is",
    worked="2 * 3.14159265 * 10000 ** (62 / 64)",
)
def slowest_round(*, d_k: int = 64, base: float = 10000.0, last: int = 2) -> float:
    """positions for one round of the slowest pair, d_k 64"""
    return 2 * math.pi * base ** ((d_k - last) / d_k)


misconception(
    slowest_round,
    "Your last pair has the frequency 1/10000: the exponent of the last pair is 62/64, not 1.",
    last=0,
)
misconception(
    slowest_round,
    "This is the number for one radian: a full rotation has two pi radians.",
    by=lambda: slowest_round() / (2 * math.pi),
)
misconception(
    slowest_round,
    "This is the pair before the last: the last pair is made of features 62 and 63.",
    last=4,
)
misconception(
    slowest_round,
    "This is the fastest pair, which rotates by 1 radian per position.",
    by=lambda: 2 * math.pi,
)
