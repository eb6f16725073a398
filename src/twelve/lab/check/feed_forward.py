"""Step 09: what the bend between two matrices invites."""

import torch.nn.functional as F
from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Target


def _feed_forward(x: Tensor, w_up: Tensor, b_up: Tensor, w_down: Tensor, b_down: Tensor) -> Tensor:
    return F.relu(x @ w_up.T + b_up) @ w_down.T + b_down


def _feed_forward_cases() -> Cases:
    ffn, draw = example.model().encoder.layers[0].feed_forward, seeded()
    weights = [one.detach().clone() for one in ffn.parameters()]
    return {
        "twelve numbers": (vectors(), *weights),
        "one token": (draw(1, 1, 3), *weights),
        "all sizes differ": (
            draw(2, 5, 24), draw(96, 24) / 5, draw(96), draw(24, 96) / 10, draw(24),
        ),
    }  # fmt: skip


def _activation_forgotten(
    x: Tensor, w_up: Tensor, b_up: Tensor, w_down: Tensor, b_down: Tensor
) -> Tensor:
    return (x @ w_up.T + b_up) @ w_down.T + b_down


def _activation_twice(
    x: Tensor, w_up: Tensor, b_up: Tensor, w_down: Tensor, b_down: Tensor
) -> Tensor:
    return F.relu(F.relu(x @ w_up.T + b_up) @ w_down.T + b_down)


def _swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


def _swiglu_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(4, 3), draw(4, 3), draw(3, 4)),
        "one token": (draw(1, 1, 3), draw(4, 3), draw(4, 3), draw(3, 4)),
        "all sizes differ": (draw(2, 5, 24), draw(64, 24), draw(64, 24), draw(24, 64)),
    }


def _gate_up_swapped(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (F.silu(x @ up.T) * (x @ gate.T)) @ down.T


TARGETS = (
    Target(
        name="feed_forward",
        contract="x (batch, seq, d_model), w_up (d_ff, d_model), b_up (d_ff), w_down (d_model, "
        "d_ff), b_down (d_model) -> (batch, seq, d_model), with ReLU",
        right=_feed_forward,
        cases=_feed_forward_cases,
    ),
    Target(
        name="swiglu",
        contract="x (batch, seq, d_model), gate and up (d_ff, d_model), down (d_model, d_ff) -> "
        "(batch, seq, d_model)",
        right=_swiglu,
        cases=_swiglu_cases,
    ),
)

_BENT = (
    '= F.silu(self.{bent}(x))\n        expanded: Float[Tensor, "*batch d_ff"] = self.{plain}(x)\n'
)

MISTAKES = (
    Mistake(
        id="activation-forgotten",
        sentence="There is no bend between the two matrices, so they are no more than one: put "
        "ReLU between them.",
        step="09",
        target="feed_forward",
        wrong=_activation_forgotten,
        plant=Plant(
            "feed_forward", "ACTIVATIONS[self.activation](pre_activation)", "pre_activation"
        ),
    ),
    Mistake(
        id="activation-twice",
        sentence="You bent the output as well, so the layer can only add and never take away: "
        "put ReLU between the two matrices alone.",
        step="09",
        target="feed_forward",
        wrong=_activation_twice,
        plant=Plant(
            "feed_forward",
            "self.down(self.dropout(activated))",
            "ACTIVATIONS[self.activation](self.down(self.dropout(activated)))",
        ),
    ),
    Mistake(
        id="gate-up-swapped",
        sentence="You bent the features of up with SiLU and took gate as it is: bend gate, and "
        "multiply it by up.",
        step="09",
        target="swiglu",
        wrong=_gate_up_swapped,
        plant=Plant(
            "feed_forward",
            _BENT.format(bent="gate", plain="up"),
            _BENT.format(bent="up", plain="gate"),
        ),
    ),
)
