"""KV heads: train four query heads with one, two or four key and value heads."""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from twelve import GroupedQueryAttention, RotaryEncoding, causal_mask
from twelve_lab.experiments.digits import DIGITS, draw_digits, train
from twelve_lab.trace.trace import Trace

WIDTH, HEADS = 32, 4


class FourBack(NamedTuple):
    """Results of a layer trained to name the digits one, two, three and four positions back.

    Attributes:
        percent: Percentage of correct answers for each of the four distances.
        weights: Mean attention weights from the last digit to the last seven digits.
    """

    percent: list[float]
    weights: Float[Tensor, "head key"]


class _Model(nn.Module):
    """A model with one grouped-query attention layer that names four digits per position."""

    def __init__(self, digits: int, kv_heads: int, d_k: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(DIGITS, WIDTH) for _ in range(digits))
        rotary = RotaryEncoding(d_k)
        self.attention = GroupedQueryAttention(WIDTH, HEADS, kv_heads, d_k=d_k, rotary=rotary)
        self.out = nn.Linear(WIDTH, HEADS * DIGITS)

    def forward(
        self, ids: Int[Tensor, "text token digit"]
    ) -> Float[Tensor, "text token answer digit"]:
        parts = [table(column) for table, column in zip(self.tables, ids.unbind(-1), strict=True)]
        mixed = self.attention(torch.stack(parts).sum(0), causal_mask(ids.size(1)).cpu())
        return self.out(mixed).unflatten(-1, (HEADS, DIGITS))


def four_back() -> FourBack:
    """Train four heads on one KV head to name the previous four digits in texts of 12 digits."""

    def labels(ids: Tensor) -> Tensor:
        return torch.stack([ids[:, 4 - back : -back, 0] for back in (1, 2, 3, 4)], dim=-1)

    model, draws = _new(1, 1, 16), torch.Generator("cpu").manual_seed(17)
    train(model, partial(draw_digits, draws, 32, 12, 1), labels, steps=150, rate=0.03)
    test = draw_digits(draws, 200, 12, 1)
    with torch.no_grad(), Trace(model, explain=False) as seen:
        right = model(test)[:, 4:].argmax(-1) == labels(test)
    weights = seen["attention.weights"].value[:, :, -1].mean(0)[:, 5:]
    return FourBack((100 * right.double().mean((0, 1))).tolist(), weights)


def four_digits(kv_heads: int) -> list[float]:
    """Train four heads of width 4 to name all four digits of the previous token.

    Args:
        kv_heads: Number of key and value heads: 1, 2 or 4.

    Returns:
        Percentage of correct answers for each of the four digits.
    """

    def labels(ids: Tensor) -> Tensor:
        return ids[:, :-1]

    model, draws = _new(4, kv_heads, 4), torch.Generator("cpu").manual_seed(17)
    train(model, partial(draw_digits, draws, 32, 6, 4), labels, steps=200, rate=0.02)
    test = draw_digits(draws, 400, 6, 4)
    with torch.no_grad():
        right = model(test)[:, 1:].argmax(-1) == labels(test)
    return (100 * right.double().mean((0, 1))).tolist()


def _new(digits: int, kv_heads: int, d_k: int) -> _Model:
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        return _Model(digits, kv_heads, d_k).double()
