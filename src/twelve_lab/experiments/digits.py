"""Digits: train a small model on random digits, which are the same in every run."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIGITS = 10


def draw_digits(draws: torch.Generator, *shape: int) -> Tensor:
    """Draw random digits on the CPU."""
    return torch.randint(DIGITS, shape, generator=draws, device="cpu")


def train(
    model: nn.Module, draw: Callable[[], Tensor], answers: Callable[[Tensor], Tensor], *,
    steps: int, rate: float,
) -> None:  # fmt: skip
    """Train with Adam to predict the answers at the last positions of freshly drawn digits."""
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        ids = draw()
        labels = answers(ids)
        logits = model(ids)[:, -labels.size(1) :]
        F.cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
        adam.step()
        adam.zero_grad()
