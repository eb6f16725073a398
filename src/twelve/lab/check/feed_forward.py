"""Step 09: what the bend between two matrices invites."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.feed_forward import FeedForward
from twelve.lab import example
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target


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


def _activation_late(
    x: Tensor, w_up: Tensor, b_up: Tensor, w_down: Tensor, b_down: Tensor
) -> Tensor:
    return F.relu(_activation_forgotten(x, w_up, b_up, w_down, b_down))


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


def _hidden_shape() -> tuple[int, ...]:
    width = example.SIZES.d_model
    return tuple(FeedForward(width).up(torch.zeros(2, 7, 5, width)).shape)


def _edge(feed_forward: Callable[..., Tensor] = _feed_forward) -> list[float]:
    as_numbers = partial(torch.tensor, dtype=torch.float64, device="cpu")
    ask, report = as_numbers([[1.0, -1], [-1, 1]]), as_numbers([[1.0, 1], [1, -1]])
    return feed_forward(as_numbers([0.2, 0.9]), ask.T, 0 * ask[0], report.T, 0 * ask[0]).tolist()


def _reordered() -> frozenset[str]:
    def stages(order: list[int]) -> dict[str, Tensor]:
        pre_activation = x @ w_up[order].T + b_up[order]
        output = _feed_forward(x, w_up[order], b_up[order], w_down[:, order], b_down)
        return {
            "pre_activation": pre_activation,
            "activated": pre_activation.relu(),
            "output": output,
        }

    x, w_up, b_up, w_down, b_down = _feed_forward_cases()["twelve numbers"]
    before, after = stages([0, 1, 2, 3]), stages([3, 0, 2, 1])
    return frozenset(name for name in before if not torch.allclose(before[name], after[name]))


QUESTIONS = (
    Question(
        name="hidden_shape",
        contract="pictures, between the two layers -> (picture, row, column, d_ff)",
        right=_hidden_shape,
    ),
    Question(
        name="edge",
        contract="strength and direction for the pixels 0.2 and 0.9, two numbers",
        right=_edge,
        wrong={
            "activation-forgotten": partial(_edge, _activation_forgotten),
            "activation-twice": partial(_edge, _activation_twice),
        },
        decimals=2,
    ),
    Question(
        name="reordered",
        contract="what changes where the units get another order",
        right=_reordered,
        options=("pre_activation", "activated", "output"),
    ),
)

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
        variants=(_activation_late,),
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
