"""Digits: train a small model on random digits; every run draws the same ones."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIGITS = 10


def draw_digits(draws: torch.Generator, *shape: int) -> Tensor:
    """Draw digits on the CPU."""
    return torch.randint(DIGITS, shape, generator=draws, device="cpu")


def train(
    model: nn.Module, draw: Callable[[], Tensor], answers: Callable[[Tensor], Tensor], *,
    steps: int, rate: float,
) -> None:  # fmt: skip
    """Train by Adam to give the answers to freshly drawn digits at their last positions."""
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        ids = draw()
        labels = answers(ids)
        logits = model(ids)[:, -labels.size(1) :]
        F.cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
        adam.step()
        adam.zero_grad()
