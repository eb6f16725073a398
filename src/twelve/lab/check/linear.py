"""Step 01: what a matrix and a change of axes invite."""

from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Target


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x @ weight.T + bias


def _linear_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    up, square = layer.feed_forward.up, layer.self_attention.w_q.weight
    return {
        "3 to 3 features": (vectors(), square.detach().clone(), draw(3)),
        "3 to 4 features": (vectors(), up.weight.detach().clone(), up.bias.detach().clone()),
        "all sizes differ": (draw(2, 5, 24), draw(96, 24), draw(96)),
    }


def _weights_transposed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x @ weight + bias


def _swap_axes(x: Tensor) -> Tensor:
    return x.transpose(1, 2)


def _swap_axes_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(),),
        "as many tokens as features": (draw(2, 3, 3),),
        "all sizes differ": (draw(2, 5, 24),),
    }


def _transpose_view(x: Tensor) -> Tensor:
    return x.reshape(x.size(0), x.size(2), x.size(1))


TARGETS = (
    Target(
        name="linear",
        contract="x (batch, seq, d_in), weight (d_out, d_in), bias (d_out) -> (batch, seq, d_out)",
        right=_linear,
        cases=_linear_cases,
    ),
    Target(
        name="swap_axes",
        contract="x (batch, seq, d_model) -> (batch, d_model, seq)",
        right=_swap_axes,
        cases=_swap_axes_cases,
    ),
)

MISTAKES = (
    Mistake(
        id="weights-transposed",
        sentence="You multiplied by W as it is stored, (d_out, d_in): each row holds what one "
        "output looks for, so multiply by its transpose, x @ W.T.",
        step="01",
        target="linear",
        wrong=_weights_transposed,
        plant=Plant(
            "linear",
            "F.linear(x, self.weight, self.bias)",
            "F.linear(x, self.weight.T, self.bias)",
        ),
    ),
    Mistake(
        id="transpose-view",
        sentence="You turned the axes with view or reshape, which keep the numbers in their order "
        "and only cut the line anew: to turn axes, use transpose.",
        step="01",
        target="swap_axes",
        wrong=_transpose_view,
        plant=Plant(
            "attention",
            "query @ key.transpose(-2, -1) / math.sqrt(d_k)",
            "query @ key.reshape(*key.shape[:-2], d_k, key.size(-2)) / math.sqrt(d_k)",
        ),
    ),
)
