"""Lesson 01: mistakes in a matrix product and a transpose."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    inherit,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.modules import build, run_layer
from twelve_lab.exercises.numbers import seeded, vectors

_SIZES = example.SIZES


def _linear_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    up, square = layer.feed_forward.up, layer.self_attention.w_q.weight
    return {
        "3 to 3 features": (vectors(), square.detach().clone(), draw(3)),
        "3 to 4 features": (vectors(), up.weight.detach().clone(), up.bias.detach().clone()),
        "all sizes differ": (draw(2, 5, 24), draw(96, 24), draw(96)),
    }


@task(
    _linear_cases,
    forbidden=("@", "matmul", "einsum", "linear", "for"),
    measures="seeing the product as broadcasting and a sum",
)
def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (batch, seq, d_in), weight (d_out, d_in), bias (d_out) -> (batch, seq, d_out)"""
    return x @ weight.T + bias


@solved(linear)
def _linear_by_broadcasting(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    meetings = x.unsqueeze(2) * weight
    return meetings.sum(dim=-1) + bias


weights_transposed = mistake(
    linear,
    "weights-transposed",
    "Your code multiplies x by the columns of the weight, but each row (d_out, d_in) belongs to "
    "one output: transpose the weight for @, not for *.",
    line=(".T", ""),
)
without_bias = misconception(
    linear, "The product is right, but the bias is missing: add it.", line=(" + bias", "")
)
misconception(
    linear,
    "You summed over the outputs: each output is a sum over the input features.",
    line=("x @ weight.T", "(x.unsqueeze(2) * weight).sum(2)"),
)
misconception(
    linear,
    "You added the bias inside the sum: it belongs to the outputs, after the sum.",
    line=("x @ weight.T + bias", "(x.unsqueeze(2) * weight + bias).sum(-1)"),
)
misconception(
    linear,
    "You added the bias once for each input feature: add it once.",
    line=("x @ weight.T + bias", "(x.unsqueeze(2) * weight + bias.unsqueeze(-1)).sum(-1)"),
)
misconception(
    linear,
    "You took the mean of the products: take their sum.",
    line=("x @ weight.T", "(x.unsqueeze(2) * weight).mean(-1)"),
)
activated = misconception(
    linear,
    "Negative numbers became 0: a linear layer has no activation.",
    line=("x @ weight.T + bias", "(x @ weight.T + bias).relu()"),
)


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
    # A square weight hides exchanged axes.
    build(answer, (3, 4, True), {"weight": torch.Size((4, 3)), "bias": torch.Size((4,))})
    return run_layer(answer, (*weight.T.shape, bias is not None), numbers, x)


class _LinearLayer(nn.Module):
    """Layer(d_in, d_out, bias=True), weight (d_out, d_in), bias (d_out), x (batch, seq, d_in) ->
    (batch, seq, d_out)
    """

    compute = staticmethod(linear)

    def __init__(self, d_in: int, d_out: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x, self.weight, 0 if self.bias is None else self.bias)


linear_layer = task(
    _linear_layer_cases,
    name="linear_layer",
    measures="registering parameters, and an optional bias",
    run=_run_linear_layer,
)(_LinearLayer)


@solved(linear_layer)
class _OptionalBias(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_out, d_in))
        self.bias = nn.Parameter(torch.ones(d_out)) if bias else None

    def forward(self, tokens):
        return nn.functional.linear(tokens, self.weight, self.bias)


def _layer_with(wrong: Callable[..., Tensor]) -> type[_LinearLayer]:
    return type("_LinearLayerWith", (_LinearLayer,), {"compute": staticmethod(wrong)})


inherit(linear_layer, _layer_with, weights_transposed)
misconception(
    linear_layer,
    "The product is right, and the bias is registered, but it is never added.",
    by=_layer_with(without_bias.wrong),
)
inherit(linear_layer, _layer_with, activated)


def _swap_axes_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(),),
        "as many tokens as features": (draw(2, 3, 3),),
        "all sizes differ": (draw(2, 5, 24),),
    }


@task(
    _swap_axes_cases,
    forbidden=("transpose", "swapaxes", "swapdims", "mT"),
    measures="exchanging axes without reshaping",
)
def swap_axes(x: Tensor) -> Tensor:
    """x (batch, seq, d_model) -> (batch, d_model, seq)"""
    return x.transpose(1, 2)


@solved(swap_axes)
def _features_first(x: Tensor) -> Tensor:
    return x.permute(0, 2, 1)


transpose_view = mistake(
    swap_axes,
    "transpose-view",
    "You exchanged the axes by view or reshape, which keep the order of the numbers in memory: "
    "use transpose or permute.",
    line=("transpose(1, 2)", "reshape(x.size(0), x.size(2), x.size(1))"),
)


@question(measures="which axes are matrix axes, which are batch axes")
def batched_product() -> tuple[int, ...]:
    """x (2, 1, 5, 24) @ three matrices (3, 24, 8) -> (batch, matrix, seq, feature)"""
    x = torch.zeros(_SIZES.batch, 1, _SIZES.src, _SIZES.d_model)
    return tuple((x @ torch.zeros(_SIZES.num_heads, _SIZES.d_model, _SIZES.d_k)).shape)


misconception(
    batched_product,
    "No axes are merged: each sentence is multiplied by each matrix, and both axes remain.",
    by=lambda: (_SIZES.batch * _SIZES.num_heads, _SIZES.src, _SIZES.d_k),
)
misconception(
    batched_product,
    "The axis of size 1 meets the three matrices: which size has a broadcast of 1 and 3?",
    by=lambda: (_SIZES.batch, 1, _SIZES.src, _SIZES.d_k),
)
misconception(
    batched_product,
    "The two sentences are still there: only the axis of size 1 broadcasts over the three "
    "matrices.",
    by=lambda: (_SIZES.num_heads, _SIZES.src, _SIZES.d_k),
)
misconception(
    batched_product,
    "Each sentence is multiplied by three matrices: where are the three products?",
    by=lambda: (_SIZES.batch, _SIZES.src, _SIZES.d_k),
)
misconception(
    batched_product,
    "Each matrix takes 24 features: how many does it return?",
    by=lambda: (_SIZES.batch, _SIZES.num_heads, _SIZES.src, _SIZES.d_model),
)


@question(
    measures="that a transpose exchanges strides and moves no number", worked="(5 * 24, 1, 24)"
)
def strides(*, turn: Callable[[Tensor], Tensor] = swap_axes) -> list[int]:
    """the three strides of x.transpose(1, 2), where x is (2, 5, 24)"""
    return list(turn(torch.zeros(_SIZES.batch, _SIZES.src, _SIZES.d_model)).stride())


misconception(
    strides,
    "These are the strides of a new contiguous tensor of shape (2, 24, 5). A transpose moves no "
    "number in memory.",
    turn=transpose_view.wrong,
)
misconception(
    strides,
    "These are the strides of x itself: which of them does the transpose exchange?",
    turn=lambda x: x,
)
misconception(
    strides,
    "You reversed all three axes: the batch axis stays where it is.",
    turn=lambda x: x.permute(2, 1, 0),
)


@question(
    measures="reading a stored weight by rows, not columns",
    worked="[-2 - 1, 1 + 1.5, 2 - 0.5 + 1.5]",
)
def projected(*, layer: Callable[[Tensor, Tensor, Tensor], Tensor] = linear) -> list[float]:
    """the three features of the token 2, -1, 3 after the query projection"""
    weight = example.model().encoder.layers[0].self_attention.w_q.weight.detach()
    return layer(weight.new_tensor([2, -1, 3]), weight, weight.new_zeros(3)).tolist()


again(projected, "weights-transposed", layer=weights_transposed.wrong)
