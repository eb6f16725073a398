"""Step 09: what the bend between two matrices invites."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.feed_forward import FeedForward
from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises.numbers import seeded, vectors


def _feed_forward(
    x: Tensor,
    w_up: Tensor,
    b_up: Tensor,
    w_down: Tensor,
    b_down: Tensor,
    *,
    bend: Callable[[Tensor], Tensor] = F.relu,
) -> Tensor:
    return bend(x @ w_up.T + b_up) @ w_down.T + b_down


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


def _bias_behind_the_bend(
    x: Tensor, w_up: Tensor, b_up: Tensor, w_down: Tensor, b_down: Tensor
) -> Tensor:
    return (F.relu(x @ w_up.T) + b_up) @ w_down.T + b_down


def _swiglu(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    *,
    bend: Callable[[Tensor], Tensor] = F.silu,
) -> Tensor:
    return (bend(x @ gate.T) * (x @ up.T)) @ down.T


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


def _edge(
    feed_forward: Callable[..., Tensor] = _feed_forward, pixels: tuple[float, float] = (0.2, 0.9)
) -> list[float]:
    ask, report = torch.tensor([[1.0, -1], [-1, 1]]), torch.tensor([[1.0, 1], [1, -1]])
    x, none = torch.tensor(pixels), torch.zeros(2)
    return feed_forward(x, ask.T, none, report.T, none).tolist()


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
        slips={
            "That is what the whole layer gives back: it is asked for in the middle, between "
            "expanding and contracting.": lambda: (*_hidden_shape()[:3], example.SIZES.d_model),
            "A linear layer needs no flattening: it leaves all axes but the last as they "
            "are.": lambda: (2, 7 * 5, _hidden_shape()[3]),
            "The middle is four times as wide as d_model, not 4 wide.": lambda: (
                *_hidden_shape()[:3],
                4,
            ),
        },
    ),
    Question(
        name="edge",
        contract="strength and direction for the pixels 0.2 and 0.9, two numbers",
        right=_edge,
        wrong={
            "activation-forgotten": partial(_edge, _activation_forgotten),
        },
        decimals=2,
        slips={
            "You bent the direction too. Nothing bends the two reports: unit 0 minus unit 1 may "
            "be below zero.": partial(_edge, _activation_twice),
            "The direction has the wrong sign: which of the two units fires here?": partial(
                _edge, pixels=(0.9, 0.2)
            ),
            "You took the two pixels for what the units report: each unit first asks for a "
            "difference.": lambda: [0.2 + 0.9, 0.2 - 0.9],
        },
    ),
    Question(
        name="reordered",
        contract="what changes where the units get another order",
        right=_reordered,
        options=("pre_activation", "activated", "output"),
        slips={
            "The bend takes each number where it stands: what comes out, if what goes in has "
            "another order?": lambda: frozenset({"pre_activation"}),
            "The bend takes each number where it stands: can it give another order to what had "
            "kept its own?": lambda: frozenset({"activated"}),
            "The output adds up what the units report: does a sum ask in which order they "
            "stand?": lambda: frozenset({"pre_activation", "activated", "output"}),
            "Which of the three hold one number for each unit, and which adds up all "
            "units?": lambda: frozenset({"output"}),
        },
    ),
)

TARGETS = (
    Target(
        name="feed_forward",
        contract="x (batch, seq, d_model), w_up (d_ff, d_model), b_up (d_ff), w_down (d_model, "
        "d_ff), b_down (d_model) -> (batch, seq, d_model), with ReLU",
        right=_feed_forward,
        cases=_feed_forward_cases,
        slips={
            "The bias b_up comes before the bend: it decides from where on a unit "
            "fires.": _bias_behind_the_bend,
            "You added x: the residual sum stands around this layer.": lambda x, *given: (
                x + _feed_forward(x, *given)
            ),
            "You bent what goes in: ReLU stands between the two matrices.": lambda x, *given: (
                _activation_forgotten(F.relu(x), *given)
            ),
            "This is GELU, and ReLU is due.": partial(_feed_forward, bend=F.gelu),
            "This is SiLU, and ReLU is due.": partial(_feed_forward, bend=F.silu),
            "Your bend lets a part of what is below zero through: ReLU lets nothing "
            "through.": partial(_feed_forward, bend=F.leaky_relu),
        },
    ),
    Target(
        name="swiglu",
        contract="x (batch, seq, d_model), gate and up (d_ff, d_model), down (d_model, d_ff) -> "
        "(batch, seq, d_model)",
        right=_swiglu,
        cases=_swiglu_cases,
        slips={
            "You let the sigmoid of the gate pass alone: SiLU is z times its sigmoid.": partial(
                _swiglu, bend=torch.sigmoid
            ),
            "The gate is not bent, and without SiLU the layer has no gate.": partial(
                _swiglu, bend=torch.clone
            ),
            "You bent both halves: up stays as it is.": lambda x, gate, up, down: (
                (F.silu(x @ gate.T) * F.silu(x @ up.T)) @ down.T
            ),
            "You bent the product: bend the gate alone, and multiply it by "
            "up.": lambda x, gate, up, down: F.silu((x @ gate.T) * (x @ up.T)) @ down.T,
            "You added the two halves: a gate multiplies.": lambda x, gate, up, down: (
                (F.silu(x @ gate.T) + x @ up.T) @ down.T
            ),
            "This gate is GELU: z times its sigmoid is due.": partial(_swiglu, bend=F.gelu),
            "This gate is ReLU: z times its sigmoid is due.": partial(_swiglu, bend=F.relu),
        },
        avoid=("silu", "SiLU"),
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
