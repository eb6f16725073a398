"""Lesson 09: mistakes in a feed-forward layer."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.feed_forward import FeedForward
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    mistake,
    notes,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import seeded, vectors


def _feed_forward_cases() -> Cases:
    ffn, draw = example.model().encoder.layers[0].feed_forward, seeded()
    weights = [one.detach().clone() for one in ffn.parameters()]
    return {
        "twelve numbers": (vectors(), *weights),
        "one token": (draw(1, 1, 3), *weights),
        "all sizes differ": (
            draw(3, 5, 24), draw(96, 24) / 5, draw(96), draw(24, 96) / 10, draw(24),
        ),
    }  # fmt: skip


@task(_feed_forward_cases, measures="one activation, between the two matrices")
def feed_forward(x: Tensor, w_up: Tensor, b_up: Tensor, w_down: Tensor, b_down: Tensor) -> Tensor:
    """x (batch, seq, d_model), w_up (d_ff, d_model), b_up (d_ff), w_down (d_model, d_ff), b_down
    (d_model) -> (batch, seq, d_model), with ReLU
    """
    return F.relu(x @ w_up.T + b_up) @ w_down.T + b_down


@solved(feed_forward)
def _expand_bend_contract(
    x: Tensor, w_up: Tensor, b_up: Tensor, w_down: Tensor, b_down: Tensor
) -> Tensor:
    return F.linear(F.linear(x, w_up, b_up).relu(), w_down, b_down)


_SUM = "F.relu(x @ w_up.T + b_up) @ w_down.T + b_down"
_HIDDEN = "F.relu(x @ w_up.T + b_up)"
mistake(
    feed_forward,
    "activation-forgotten",
    "There is no activation between the two matrices, so they are equivalent to one: put ReLU "
    "between them.",
    {"F.relu(X)": "X"},
)
again(feed_forward, "activation-forgotten", {_SUM: f"F.relu({_SUM.replace('F.relu', '')})"})
mistake(
    feed_forward,
    "activation-twice",
    "You applied ReLU to the output too, so the layer can never subtract: apply ReLU only between "
    "the two matrices.",
    {_SUM: f"F.relu({_SUM})"},
)
notes(
    feed_forward,
    {
        "You added b_up after ReLU: add it before, because it decides when a unit is active.": {
            _HIDDEN: "(F.relu(x @ w_up.T) + b_up)"
        },
        "You added x: the residual sum is computed outside this layer.": {_SUM: f"x + {_SUM}"},
        "You applied ReLU to the input: apply it between the two matrices.": {
            _HIDDEN: "(F.relu(x) @ w_up.T + b_up)"
        },
        "This is GELU: apply ReLU.": {"F.relu(X)": "F.gelu(X)"},
        "This is SiLU: apply ReLU.": {"F.relu(X)": "F.silu(X)"},
        "Your activation lets part of each negative number through: ReLU lets none through.": {
            "F.relu(X)": "F.leaky_relu(X)"
        },
    },
)


def _swiglu_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(4, 3), draw(4, 3), draw(3, 4)),
        "one token": (1000.0 * draw(1, 1, 3), draw(4, 3), draw(4, 3), draw(3, 4)),
        "all sizes differ": (draw(3, 5, 24), draw(64, 24), draw(64, 24), draw(24, 64)),
    }


@task(_swiglu_cases, forbidden=("silu", "SiLU"), measures="which half gets the activation")
def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """x (batch, seq, d_model), gate and up (d_ff, d_model), down (d_model, d_ff) -> (batch, seq,
    d_model)
    """
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


@solved(swiglu)
def _swiglu_in_two(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    first, second = (x @ torch.cat([gate, up]).T).chunk(2, dim=-1)
    return (first * first.sigmoid() * second) @ down.T


_GATED = "F.silu(x @ gate.T) * (x @ up.T)"
mistake(
    swiglu,
    "gate-up-swapped",
    "You applied SiLU to up instead of gate: apply it to gate, and multiply the result by up.",
    {_GATED: "F.silu(x @ up.T) * (x @ gate.T)"},
)
notes(
    swiglu,
    {
        "You applied only the sigmoid to the gate: SiLU is z times its sigmoid.": {
            "F.silu(X)": "torch.sigmoid(X)"
        },
        "The sign in your exponential is wrong: the sigmoid of z is 1 / (1 + exp(-z)).": {
            "F.silu(X)": "-F.silu(-(X))"
        },
        "You used the gate without an activation: apply SiLU to it.": {"F.silu(X)": "X"},
        "You applied SiLU to both gate and up: leave up unchanged.": {
            _GATED: "F.silu(x @ gate.T) * F.silu(x @ up.T)"
        },
        "You applied SiLU to the product: apply it to the gate, then multiply by up.": {
            _GATED: "F.silu((x @ gate.T) * (x @ up.T))"
        },
        "You added gate and up: multiply them.": {_GATED: "F.silu(x @ gate.T) + (x @ up.T)"},
        "You added x: the residual sum is computed outside this layer.": {
            f"({_GATED}) @ down.T": f"x + ({_GATED}) @ down.T"
        },
        "This gate is GELU: use z times its sigmoid.": {"F.silu(X)": "F.gelu(X)"},
        "This gate is the tanh approximation of GELU: use z times its sigmoid.": {
            "F.silu(X)": "F.gelu(X, approximate='tanh')"
        },
        "This gate is ReLU: use z times its sigmoid.": {"F.silu(X)": "F.relu(X)"},
    },
)


@question(measures="that every position is computed separately and widened")
def hidden_shape() -> tuple[int, ...]:
    """pictures, between the two layers -> (picture, row, column, d_ff)"""
    return tuple(FeedForward(24).up(torch.zeros(2, 7, 5, 24)).shape)


notes(
    hidden_shape,
    {
        "This is the shape of the output of the whole layer: the question is about the features "
        "between its two matrices.": (2, 7, 5, 24),
        "You flattened the axes: a linear layer keeps all axes except the last.": (2, 35, 96),
        "The hidden size is 4 times d_model, not 4.": (2, 7, 5, 4),
    },
)


@question(
    decimals=2,
    measures="two ReLU units, their sum and difference",
    worked="[0 + 0.7, 0 - 0.7]",
)
def edge() -> list[float]:
    """strength and direction for the pixels 0.2 and 0.9, two numbers"""
    ask, report = torch.tensor([[1.0, -1], [-1, 1]]), torch.tensor([[1.0, 1], [1, -1]])
    x, none = torch.tensor([0.2, 0.9]), torch.zeros(2)
    return feed_forward(x, ask.T, none, report.T, none).tolist()


notes(
    edge,
    {
        "You applied ReLU to the direction too: unit 0 minus unit 1 may be negative.": [0.7, 0.0],
        "The direction has the wrong sign: which of the two units is active here?": [0.7, 0.7],
        "You mistook the two pixels for the activations of the units: each unit first computes "
        "a difference.": [1.1, -0.7],
    },
)

_STAGES = ("pre_activation", "activated", "output")


@question(options=_STAGES, measures="that units have no order, if all matrices agree")
def reordered() -> frozenset[str]:
    """what changes where the units get another order"""

    def stages(order: list[int]) -> dict[str, Tensor]:
        pre_activation = x @ w_up[order].T + b_up[order]
        output = feed_forward(x, w_up[order], b_up[order], w_down[:, order], b_down)
        return dict(zip(_STAGES, (pre_activation, pre_activation.relu(), output), strict=True))

    x, w_up, b_up, w_down, b_down = _feed_forward_cases()["twelve numbers"]
    before, after = stages([0, 1, 2, 3]), stages([3, 0, 2, 1])
    return frozenset(name for name in before if not torch.allclose(before[name], after[name]))


notes(
    reordered,
    {
        "ReLU acts on each number separately: what happens to its output if its input is "
        "reordered?": {"pre_activation"},
        "ReLU acts on each number separately: can its output be reordered if its input is not?": {
            "activated"
        },
        "The output sums over the units: does a sum depend on their order?": set(_STAGES),
        "Which of the three have one number for each unit, and which sums over all units?": {
            "output"
        },
    },
)
