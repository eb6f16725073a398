"""Step 01: what a matrix and a change of axes invite."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve.lab import example
from twelve.lab.check.built import run_layer
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target


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


class _LinearLayer(nn.Module):
    def __init__(self, d_in: int, d_out: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class _LinearLayerTransposed(_LinearLayer):
    def forward(self, x: Tensor) -> Tensor:
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


def _linear_layer_cases() -> Cases:
    given, draw = _linear_cases(), seeded()
    return {
        **given,
        "3 to 3 features, bias=False": (*given["3 to 3 features"][:2], None),
        "all sizes differ, bias=False": (draw(2, 5, 24), draw(96, 24), None),
    }


def _run_linear_layer(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, weight, bias = given
    numbers = {"weight": weight, "bias": bias}
    return run_layer(answer, (*weight.T.shape, bias is not None), numbers, x)


def _batched_product() -> tuple[int, ...]:
    sizes = example.SIZES
    x = torch.zeros(sizes.batch, 1, sizes.src, sizes.d_model)
    return tuple((x @ torch.zeros(sizes.num_heads, sizes.d_model, sizes.d_k)).shape)


def _strides(turn: Callable[[Tensor], Tensor] = _swap_axes) -> list[int]:
    sizes = example.SIZES
    return list(turn(torch.zeros(sizes.batch, sizes.src, sizes.d_model)).stride())


def _projected(layer: Callable[[Tensor, Tensor, Tensor], Tensor] = _linear) -> list[float]:
    weight = example.model().encoder.layers[0].self_attention.w_q.weight.detach()
    token, none = (torch.tensor(at, dtype=torch.float64) for at in ((2, -1, 3), (0, 0, 0)))
    return layer(token, weight.to(token.device), none).tolist()


QUESTIONS = (
    Question(
        name="batched_product",
        contract="x (2, 1, 5, 24) @ three matrices (3, 24, 8) -> (batch, matrix, seq, feature)",
        right=_batched_product,
    ),
    Question(
        name="strides",
        contract="the three strides of x.transpose(1, 2), where x is (2, 5, 24)",
        right=_strides,
        wrong={"transpose-view": partial(_strides, _transpose_view)},
    ),
    Question(
        name="projected",
        contract="the three features of the token 2, -1, 3 behind the query projection",
        right=_projected,
        wrong={"weights-transposed": partial(_projected, _weights_transposed)},
    ),
)

TARGETS = (
    Target(
        name="linear",
        contract="x (batch, seq, d_in), weight (d_out, d_in), bias (d_out) -> (batch, seq, d_out)",
        right=_linear,
        cases=_linear_cases,
    ),
    Target(
        name="linear_layer",
        contract="Layer(d_in, d_out, bias=True), weight (d_out, d_in), bias (d_out), "
        "x (batch, seq, d_in) -> (batch, seq, d_out)",
        right=_LinearLayer,
        cases=_linear_layer_cases,
        also={"weights-transposed": _LinearLayerTransposed},
        run=_run_linear_layer,
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
