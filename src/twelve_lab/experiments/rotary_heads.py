"""Rotary heads: train single attention heads with added or rotary positions."""

import math
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from twelve import causal_mask, scaled_dot_product_attention, sinusoid
from twelve_lab.experiments.digits import DIGITS, draw_digits, train

WIDTH, NUMBERS = 16, torch.float64
SPEEDS = 10000.0 ** (-torch.arange(0, WIDTH, 2, dtype=NUMBERS) / WIDTH)  # radians per position
TRAINED, LONGER = 32, 128  # lengths of the texts whose first digit is marked
FAST = SPEEDS * (TRAINED - 1) > 2 * math.pi  # pairs that reach every angle in training


class TwoBack(NamedTuple):
    """Results of three heads trained to name the digit two positions back.

    Attributes:
        percent: Percentage of correct answers, by head and by the first position of the texts.
        angles: Angle from query to key in the fastest pair of the rotated head before any rotation,
            in radians, for each pair of digits.
    """

    percent: dict[str, dict[str, float]]
    angles: Float[Tensor, "query key"]

    def __str__(self) -> str:
        """Return the percentages, one line for each head."""
        lines = []
        for name, rates in self.percent.items():
            columns = (f"{where} {rate:3.0f} %" for where, rate in rates.items())
            lines.append(f"{name:13} {'   '.join(columns)}")
        return "\n".join(lines)


class _Head(nn.Module):
    """One attention head that reads digits; with `added`, sinusoids are added to its input."""

    def __init__(self, kinds: int, *, added: bool = False, speeds: Tensor = SPEEDS) -> None:
        super().__init__()
        self.added, self.speeds = added, speeds
        sizes = {"dtype": NUMBERS, "device": "cpu"}
        self.embed, self.out = nn.Embedding(kinds, WIDTH, **sizes), nn.Linear(WIDTH, 10, **sizes)
        self.w_q, self.w_k = (nn.Linear(WIDTH, WIDTH, bias=False, **sizes) for _ in range(2))

    def forward(
        self, ids: Int[Tensor, "batch seq"], start: int = 0
    ) -> Float[Tensor, "batch seq digit"]:
        value = self.embed(ids).unsqueeze(1)
        end = start + ids.size(1)
        x = value + sinusoid(end, WIDTH)[start:].to(value) if self.added else value
        angle = torch.outer(torch.arange(start, end, dtype=NUMBERS), self.speeds)
        query, key = _rotate(self.w_q(x), angle), _rotate(self.w_k(x), angle)
        mask = causal_mask(ids.size(1)).cpu()
        return self.out(scaled_dot_product_attention(query, key, value, mask)).squeeze(1)


def two_back() -> TwoBack:
    """Train three heads on texts of 12 digits from position 0, and test them at other positions."""
    still = torch.zeros_like(SPEEDS)
    makers = {
        "nothing": {"speeds": still},
        "added": {"added": True, "speeds": still},
        "rotated": {},
    }
    test = draw_digits(torch.Generator("cpu").manual_seed(1), 200, 12)
    counts = F.one_hot(test, DIGITS).cumsum(1)
    often = counts[:, 1:-1].argmax(-1)  # most frequent of the digits before each answer
    rule = 100 * (often == test[:, :-2]).double().mean().item()
    starts = {"at 0": 0, "at 100": 100, "at 1000": 1000}
    percent = {"most frequent": dict.fromkeys(starts, rule)}
    for name, settings in makers.items():
        head = _new(0, DIGITS, **settings)
        draws = torch.Generator("cpu").manual_seed(16)
        draw = partial(draw_digits, draws, 32, 12)
        train(head, draw, lambda ids: ids[:, :-2], steps=150, rate=0.03)
        percent[name] = {where: _percent(head, test, start) for where, start in starts.items()}
    with torch.no_grad():
        query, key = (w(head.embed.weight)[:, :2] for w in (head.w_q, head.w_k))
    direction = [torch.atan2(arrows[:, 1], arrows[:, 0]) for arrows in (query, key)]
    return TwoBack(percent, (direction[1] - direction[0].unsqueeze(1)) % (2 * math.pi))


def longer_texts(seed: int = 1) -> dict[str, float]:
    """Train a rotated head on texts of 32 digits, and test it on texts of 128.

    The first digit of each text is marked, and each position has to name the digit.

    Args:
        seed: Seed of the initial parameters.

    Returns:
        Percentage of correct answers at the last position, for texts of 32 digits and for texts of
        128. For the latter, the speed of no pairs, all pairs, only the slow pairs or only the fast
        pairs is divided by 4.
    """
    head = _new(seed, 2 * DIGITS)
    draws = torch.Generator("cpu").manual_seed(16)

    def first(ids: Tensor) -> Tensor:
        return (ids[:, :1] - DIGITS).expand(-1, TRAINED)

    train(head, partial(_marked, draws, 16, TRAINED), first, steps=150, rate=0.01)
    percent = {}
    for name, length, divided in (
        ("length 32", TRAINED, torch.zeros_like(FAST)),
        ("length 128", LONGER, torch.zeros_like(FAST)),
        ("all pairs / 4", LONGER, torch.ones_like(FAST)),
        ("slow pairs / 4", LONGER, ~FAST),
        ("fast pairs / 4", LONGER, FAST),
    ):
        head.speeds = torch.where(divided, SPEEDS / 4, SPEEDS)
        ids = _marked(torch.Generator("cpu").manual_seed(1), 200, length)
        with torch.no_grad():
            named = head(ids)[:, -1].argmax(-1)
        percent[name] = 100 * (named == ids[:, 0] - DIGITS).double().mean().item()
    return percent


def _rotate(
    heads: Float[Tensor, "batch head seq d_k"], angle: Float[Tensor, "seq pair"]
) -> Float[Tensor, "batch head seq d_k"]:
    """Rotate adjacent features by arbitrary angles, which RotaryEncoding does not support."""
    even, odd, cos, sin = heads[..., 0::2], heads[..., 1::2], angle.cos(), angle.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def _new(seed: int, kinds: int, **settings: Tensor | bool) -> _Head:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _Head(kinds, **settings)


def _marked(draws: torch.Generator, *shape: int) -> Int[Tensor, "text position"]:
    ids = draw_digits(draws, *shape)
    ids[:, 0] += DIGITS
    return ids


@torch.no_grad()
def _percent(head: _Head, ids: Int[Tensor, "text position"], start: int) -> float:
    named = head(ids, start).argmax(-1)[:, 2:]
    return 100 * (named == ids[:, :-2]).double().mean().item()
