"""By hand: rotary positions, which rotate queries and keys before their dot products."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import attend
from twelve_lab.exercises.numbers import SIZES, seeded, twelve_heads
from twelve_lab.exercises.rotary_positions import rotary_angles, rotate


def _rotary_cases() -> Cases:
    two, draw = twelve_heads(2), seeded()

    def case(batch: int, heads: int, seq: int, d_k: int, start: int) -> tuple[object, ...]:
        return (*(draw(batch, heads, seq, d_k) for _ in range(3)), start)

    return {
        "our two heads": (two.query, two.key, two.value, 0),
        "two pairs": case(1, 1, 3, 4, 0),
        "one token after five": case(2, 1, 1, 6, 5),
        "all sizes differ": case(SIZES.batch, SIZES.num_heads, SIZES.src, SIZES.d_k, 5),
    }


@task(_rotary_cases, measures="the angles, the pairs, and what is rotated")
def attention_with_rotary(
    query: Tensor, key: Tensor, value: Tensor, start: int
) -> tuple[Tensor, Tensor]:
    """query, key and value (batch, head, seq, d_k), start -> y (batch, head, seq, d_k), keys
    (batch, head, seq, d_k), rotated
    """
    seq, d_k = query.size(2), query.size(3)
    angles = rotary_angles(start, seq, d_k)
    query, key = rotate(query, angles), rotate(key, angles)
    return attend(query, key, value), key


@solved(attention_with_rotary)
def _angles_then_pairs(query, key, value, start):
    seq, d_k = query.shape[-2:]
    position = torch.arange(start, start + seq)
    frequency = 10000.0 ** (-torch.arange(0, d_k, 2) / d_k)
    angles = position[:, None] * frequency
    sin, cos = angles.sin(), angles.cos()
    turned = []
    for heads in (query, key):
        even, odd = heads[..., 0::2], heads[..., 1::2]
        pairs = even * cos - odd * sin, even * sin + odd * cos
        turned.append(torch.stack(pairs, dim=-1).flatten(-2))
    query, key = turned
    weights = (query @ key.mT / d_k**0.5).softmax(-1)
    return weights @ value, key


_ANGLES, _TURNED = "angles = X", "query, key = rotate(query, angles), rotate(key, angles)"
_BY_HEAD = "rotate({0}.transpose(1, 2), angles).transpose(1, 2)"
mistake(
    attention_with_rotary,
    "rotary-position-missing",
    "You rotated all tokens by the same angles, so the scores ignore positions: multiply each "
    "frequency by the position of the token.",
    {_ANGLES: "angles = rotary_angles(1, 1, d_k).expand(seq, -1)"},
)
mistake(
    attention_with_rotary,
    "rotary-one-frequency",
    "You rotated all pairs by the same angle: use the frequency 10000 ** (-2 * i / d_k) for pair "
    "i.",
    {_ANGLES: "angles = rotary_angles(start, seq, 2).expand(-1, d_k // 2)"},
)
mistake(
    attention_with_rotary,
    "rotary-head-axis",
    "You counted positions along the head axis, so all tokens of a head rotate by the same angles: "
    "count along seq, the axis before the features.",
    {
        _ANGLES: "angles = rotary_angles(start, query.size(1), d_k)",
        _TURNED: f"query, key = {_BY_HEAD.format('query')}, {_BY_HEAD.format('key')}",
    },
)
again(
    attention_with_rotary,
    "rotary-values-turned",
    {"attend(query, key, value)": "attend(query, key, rotate(value, angles))"},
)
notes(
    attention_with_rotary,
    {
        "Nothing is rotated: rotate queries and keys before their dot products.": {
            _TURNED: "pass"
        },
        "You rotated only the queries: rotate the keys too, so that the score depends only on the "
        "distance.": {_TURNED: "query = rotate(query, angles)"},
        "You rotated only the keys: rotate the queries too, so that the score depends only on the "
        "distance.": {
            _TURNED: "key = rotate(key, angles)"
        },
        "You returned the unrotated keys: return the rotated keys, because a cache stores those.": {
            _TURNED: "old, query, key = key, rotate(query, angles), rotate(key, angles)",
            "return Y, key": "return Y, old",
        },
        "You rotated the output too: rotate only queries and keys.": {
            "return Y, key": "return rotate(Y, angles), key"
        },
        "Queries and keys rotate in opposite directions, so the score depends on the sum of the "
        "positions: rotate both in the same direction.": {
            "rotate(query, angles)": "rotate(query, -angles)"
        },
        "You used a different base: use 10000.": {
            _ANGLES: "angles = rotary_angles(start, seq, d_k)\n"
            "angles = angles * 50.0 ** (-torch.arange(0, d_k, 2) / d_k)"
        },
        "You rotated the queries from position 0, but the keys from start: both belong to the same "
        "tokens, so use start for both.": {
            "rotate(query, angles)": "rotate(query, rotary_angles(0, seq, d_k))"
        },
    },
)  # fmt: skip


@question(decimals=2, measures="the sign of a rotation, and a score that depends on the distance")
def rotary_on_paper() -> list[float]:
    """the pair (3, 1) at position 1, if each position adds a rotation of 90 degrees, and the score
    of (3, 1) at position 7 with (2, 5) at position 6
    """
    query, key = torch.tensor([[[[3.0, 1.0]]]]), torch.tensor([[[[2.0, 5.0]]]])
    quarter = torch.tensor([[math.pi / 2]])
    score = (rotate(query, 7 * quarter) * rotate(key, 6 * quarter)).sum()
    return [*rotate(query, quarter).flatten().tolist(), score.item()]


notes(
    rotary_on_paper,
    {
        "You rotated clockwise: a positive angle rotates counter-clockwise, from the first feature "
        "towards the second.": [1, -3, -13],
        "Only the last number is wrong: this is the score without positions.": [-1, 3, 11],
        "Only the last number is wrong: the query is one position after the key, not before it.": [
            -1, 3, -13,
        ],
        "You used a plus sign in both features: the rotated pair is (x cos - y sin, x sin + y "
        "cos).": [
            1, 3, 17,
        ],
    },
)  # fmt: skip
