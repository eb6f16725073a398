"""Step 01: what a matrix and a change of axes invite."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.check.modules import build, run_layer
from twelve_lab.exercises.numbers import seeded, vectors

_SIZES = example.SIZES


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


def _meetings(x: Tensor, weight: Tensor) -> Tensor:
    return x.unsqueeze(2) * weight


_LINEAR_SLIPS = {
    "The product is right, and the bias is still to be added.": (
        lambda x, weight, bias: x @ weight.T
    ),
    "You added up over the outputs: each output is a sum over the features that come in.": (
        lambda x, weight, bias: _meetings(x, weight).sum(2) + bias
    ),
    "Your bias meets the features, inside the sum: it belongs to the outputs, after the sum.": (
        lambda x, weight, bias: (_meetings(x, weight) + bias).sum(-1)
    ),
    "The bias is added once for each feature that comes in: once is enough.": (
        lambda x, weight, bias: (_meetings(x, weight) + bias.unsqueeze(-1)).sum(-1)
    ),
    "You took the mean of the products of a token and a row: add them up.": (
        lambda x, weight, bias: _meetings(x, weight).mean(-1) + bias
    ),
    "What lies below zero is cut off: a linear layer has no activation.": (
        lambda x, weight, bias: _linear(x, weight, bias).relu()
    ),
}


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


class _LinearLayerWithoutBias(_LinearLayer):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class _LinearLayerActivated(_LinearLayer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


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
    # A square weight hides which of its axes is which.
    build(answer, (3, 4, True), {"weight": torch.Size((4, 3)), "bias": torch.Size((4,))})
    return run_layer(answer, (*weight.T.shape, bias is not None), numbers, x)


def _batched_product() -> tuple[int, ...]:
    x = torch.zeros(_SIZES.batch, 1, _SIZES.src, _SIZES.d_model)
    return tuple((x @ torch.zeros(_SIZES.num_heads, _SIZES.d_model, _SIZES.d_k)).shape)


def _strides(turn: Callable[[Tensor], Tensor] = _swap_axes) -> list[int]:
    return list(turn(torch.zeros(_SIZES.batch, _SIZES.src, _SIZES.d_model)).stride())


def _projected(layer: Callable[[Tensor, Tensor, Tensor], Tensor] = _linear) -> list[float]:
    weight = example.model().encoder.layers[0].self_attention.w_q.weight.detach()
    return layer(weight.new_tensor([2, -1, 3]), weight, weight.new_zeros(3)).tolist()


QUESTIONS = (
    Question(
        name="batched_product",
        contract="x (2, 1, 5, 24) @ three matrices (3, 24, 8) -> (batch, matrix, seq, feature)",
        right=_batched_product,
        slips={
            "No two axes are merged: each sentence meets each matrix, and both axes stay.": (
                lambda: (_SIZES.batch * _SIZES.num_heads, _SIZES.src, _SIZES.d_k)
            ),
            "The axis of size 1 lies over the three matrices: what becomes of a 1 over a 3?": (
                lambda: (_SIZES.batch, 1, _SIZES.src, _SIZES.d_k)
            ),
            "The two sentences are still there: only the 1 lies over the three matrices.": (
                lambda: (_SIZES.num_heads, _SIZES.src, _SIZES.d_k)
            ),
            "Each sentence meets three matrices: where are the three products?": (
                lambda: (_SIZES.batch, _SIZES.src, _SIZES.d_k)
            ),
            "Each matrix takes 24 features in: how many come out of it?": (
                lambda: (_SIZES.batch, _SIZES.num_heads, _SIZES.src, _SIZES.d_model)
            ),
        },
    ),
    Question(
        name="strides",
        contract="the three strides of x.transpose(1, 2), where x is (2, 5, 24)",
        right=_strides,
        slips={
            "These are the strides of a new tensor of shape (2, 24, 5), laid out row by row. "
            "A transpose moves no number in memory.": partial(_strides, _transpose_view),
            "These are the strides of x itself: what has changed behind the transpose?": (
                partial(_strides, lambda x: x)
            ),
            "You turned all three axes: the batch stays where it is.": (
                partial(_strides, lambda x: x.permute(2, 1, 0))
            ),
        },
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
        slips=_LINEAR_SLIPS,
        avoid=("@", "matmul", "einsum", "linear", "a loop"),
    ),
    Target(
        name="linear_layer",
        contract="Layer(d_in, d_out, bias=True), weight (d_out, d_in), bias (d_out), "
        "x (batch, seq, d_in) -> (batch, seq, d_out)",
        right=_LinearLayer,
        cases=_linear_layer_cases,
        also={"weights-transposed": _LinearLayerTransposed},
        slips={
            "The product is right, and the bias is registered but never added.": (
                _LinearLayerWithoutBias
            ),
            "What lies below zero is cut off: a linear layer has no activation.": (
                _LinearLayerActivated
            ),
        },
        run=_run_linear_layer,
    ),
    Target(
        name="swap_axes",
        contract="x (batch, seq, d_model) -> (batch, d_model, seq)",
        right=_swap_axes,
        cases=_swap_axes_cases,
        avoid=("transpose", "swapaxes", "swapdims", "mT"),
    ),
)

MISTAKES = (
    Mistake(
        id="weights-transposed",
        sentence="Each output met a column of the weight, but its numbers stand in a row, "
        "(d_out, d_in): let it meet its row, for which @ needs a transpose and * does not.",
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
        "and only cut the line anew: to turn axes, use permute or transpose.",
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
