"""Lesson 01: mistakes in a matrix product and a transpose."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.exercises.declare import Cases, mistake, notes, question, solved, task
from twelve_lab.exercises.modules import build, run_layer
from twelve_lab.exercises.numbers import SIZES, seeded, vectors


def _linear_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    up, square = layer.feed_forward.up, layer.self_attention.w_q.weight
    x = draw(SIZES.batch, SIZES.src, SIZES.d_model)
    return {
        "3 to 3 features": (vectors(), square.detach().clone(), draw(3)),
        "3 to 4 features": (vectors(), up.weight.detach().clone(), up.bias.detach().clone()),
        "all sizes differ": (x, draw(SIZES.d_ff, SIZES.d_model), draw(SIZES.d_ff)),
    }


@task(
    _linear_cases,
    forbidden=("@", "matmul", "einsum", "linear", "for"),
    measures="seeing the product as broadcasting and a sum",
)
def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (batch, seq, d_in), weight (d_out, d_in), bias (d_out) -> (batch, seq, d_out)"""
    return (x.unsqueeze(-2) * weight).sum(-1) + bias


mistake(
    linear,
    "weights-transposed",
    "Your code multiplies x by the columns of the weight, but each row (d_out, d_in) belongs to "
    "one output: transpose the weight for @, not for *.",
    {"X * weight": "X * weight.T"},
)


def _linear_layer_cases() -> Cases:
    given = _linear_cases()
    return {
        **given,
        "3 to 3 features, bias=False": (*given["3 to 3 features"][:2], None),
        "all sizes differ, bias=False": (*_linear_cases()["all sizes differ"][:2], None),
    }


def _run_linear_layer(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, weight, bias = given
    numbers = {"weight": weight, "bias": bias}
    # A square weight would hide swapped axes.
    build(answer, (3, 4, True), {"weight": torch.Size((4, 3)), "bias": torch.Size((4,))})
    return run_layer(answer, (*weight.T.shape, bias is not None), numbers, x)


class _LinearLayer(nn.Module):
    """Layer(d_in, d_out, bias=True), weight (d_out, d_in), bias (d_out), x (batch, seq, d_in) ->
    (batch, seq, d_out)
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, 0 if self.bias is None else self.bias)


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


notes(
    linear_layer,
    {
        "The product is right and the bias is registered, but you never add it.": {
            "forward: 0 if X else Y": "0"
        }
    },
)


def _swap_axes_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(),),
        "as many tokens as features": (draw(2, 3, 3),),
        "all sizes differ": (draw(SIZES.batch, SIZES.src, SIZES.d_model),),
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


mistake(
    swap_axes,
    "transpose-view",
    "You swapped the axes by view or reshape, which keep the order of the numbers in memory: use "
    "transpose or permute.",
    {"x.transpose(1, 2)": "x.reshape(x.size(0), x.size(2), x.size(1))"},
)


@question(measures="which axes are matrix axes, which are batch axes")
def batched_product() -> tuple[int, ...]:
    """x (2, 1, 5, 24) @ three matrices (3, 24, 8) -> (batch, matrix, seq, feature)"""
    return (2, 3, 5, 8)


notes(
    batched_product,
    {
        "No axes are merged: each sentence is multiplied by each matrix, and both axes remain.": (
            6, 5, 8,
        ),
        "The axis of size 1 meets the three matrices: what size does broadcasting 1 and 3 give?": (
            2, 1, 5, 8,
        ),
        "The two sentences are still there: only the axis of size 1 broadcasts over the three "
        "matrices.": (3, 5, 8),
        "Each sentence is multiplied by three matrices: where are the three products?": (2, 5, 8),
        "Each matrix takes 24 features: how many does it return?": (2, 3, 5, 24),
    },
)  # fmt: skip


@question(
    measures="that a transpose exchanges strides and moves no number", worked="(5 * 24, 1, 24)"
)
def strides() -> list[int]:
    """the three strides of x.transpose(1, 2), where x is (2, 5, 24)"""
    return [5 * 24, 1, 24]


notes(
    strides,
    {
        "These are the strides of a new contiguous tensor of shape (2, 24, 5): a transpose "
        "moves no numbers in memory.": [120, 5, 1],
        "These are the strides of x itself: which of them does the transpose swap?": [
            120, 24, 1,
        ],
        "You reversed all three axes: the batch axis must stay where it is.": [1, 24, 120],
    },
)  # fmt: skip


@question(
    measures="reading a stored weight by rows, not columns",
    worked="[-2 - 1, 1 + 1.5, 2 - 0.5 + 1.5]",
)
def projected() -> list[float]:
    """the three features of the token 2, -1, 3 after the query projection"""
    weight = example.model().encoder.layers[0].self_attention.w_q.weight.detach()
    return linear(weight.new_tensor([2, -1, 3]), weight, weight.new_zeros(3)).tolist()
