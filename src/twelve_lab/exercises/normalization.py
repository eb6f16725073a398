"""Lesson 07: mistakes in the mean, the variance and eps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

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
from twelve_lab.exercises.modules import Misbuilt, build
from twelve_lab.exercises.numbers import seeded, vectors
from twelve_lab.messages import message
from twelve_lab.show.format import format_number

_EPS = "Your eps is {}: take 1e-5, as the task says."


def _layer_norm_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(3), draw(3)),
        "small numbers": (vectors() / 100, draw(3), draw(3)),
        "a square of numbers": (draw(3, 3), draw(3), draw(3)),
        "all sizes differ": (draw(3, 5, 24), draw(24), draw(24)),
    }


@task(
    _layer_norm_cases,
    forbidden=("layer_norm", "LayerNorm"),
    measures="axis, keepdim, correction and eps together",
)
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (*batch, d_model), weight (d_model), bias (d_model) -> (*batch, d_model)"""
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


_ROOT, _STATISTICS = (
    "torch.sqrt(variance + 1e-5)",
    "torch.var_mean(x, -1, correction=0, keepdim=True)",
)
mistake(
    layer_norm,
    "ln-unbiased",
    "Your variance is the unbiased one, which divides by d_model - 1: divide by d_model (in "
    "torch, unbiased=False or correction=0).",
    {_ROOT: "(x.std(-1, keepdim=True) + 1e-5)"},
)
again(layer_norm, "ln-unbiased", {_ROOT: "(x.std(-1, keepdim=True) + 1e-6)"})
again(layer_norm, "ln-unbiased", {_STATISTICS: "torch.var_mean(x, -1, keepdim=True)"})
mistake(
    layer_norm,
    "ln-sequence",
    "You normalised over the sentence, so words affect each other: normalise the features of each "
    "word, the last axis (-1).",
    {_STATISTICS: _STATISTICS.replace("-1", "-2")},
)
again(layer_norm, "ln-sequence", {_STATISTICS: _STATISTICS.replace("-1", "1")})
mistake(
    layer_norm,
    "ln-batch",
    "You normalised over the batch, so sentences affect each other: normalise the features of "
    "each word, the last axis (-1).",
    {_STATISTICS: _STATISTICS.replace("-1", "0")},
)
again(layer_norm, "ln-batch", {_STATISTICS: _STATISTICS.replace("-1", "tuple(range(x.ndim - 1))")})
mistake(
    layer_norm,
    "ln-no-keepdim",
    "Without keepdim=True the means lose their axis and broadcast along the wrong one: use "
    "keepdim=True in the mean and in the variance.",
    {_STATISTICS: "torch.var_mean(x, -1, correction=0)"},
)
mistake(
    layer_norm,
    "ln-eps-tiny",
    "Your eps is far smaller than 1e-5, which amplifies noise if the features of a word are "
    "nearly equal: use 1e-5.",
    {"1e-5": "1e-10"},
)
_WHOLE = (
    "You normalised over words and features together, so words affect each other: normalise the "
    "features of each word, the last axis (-1)."
)
notes(
    layer_norm,
    {
        _WHOLE: {_STATISTICS: _STATISTICS.replace("-1", "(-2, -1)")},
        "You swapped the mean and the variance: torch.var_mean returns the variance first.": {
            f"variance, mean = {_STATISTICS}": f"mean, variance = {_STATISTICS}"
        },
        "You added eps outside the root: add it to the variance, then take the square root.": {
            _ROOT: "(torch.sqrt(variance) + 1e-5)"
        },
        "You divided by the variance: take its square root first.": {_ROOT: "(variance + 1e-5)"},
        "You divided by the root mean square of x: subtract the mean before you square.": {
            _ROOT: "torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5)"
        },
        "You divided without subtracting the mean: subtract it from x first.": {"x - mean": "x"},
        "This is an RMSNorm with a bias: subtract the mean first.": {
            f"(x - mean) / {_ROOT}": "x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5)"
        },
        "You multiplied the bias by the weight as well: multiply first, then add the bias.": {
            "X + bias": "X + bias * weight"
        },
    }
    | {_EPS.format(eps): {"1e-5": eps} for eps in ("1e-3", "1e-6", "1e-8")},
)


def _rms_norm_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(3)),
        "small numbers": (vectors() / 100, draw(3)),
        "a square of numbers": (draw(3, 3), draw(3)),
        "all sizes differ": (draw(3, 5, 24), draw(24)),
    }


def _run_rms_norm(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, weight = given
    if not isinstance(answer, type | nn.Module):
        return answer(x, weight)
    layer = build(answer, (x.size(-1),), {"weight": weight.shape})
    if layer is ...:
        return ...
    # The case replaces the weight below, so check its initial value here.
    other = layer.weight[layer.weight != 1]
    if other.numel():
        started = format_number(other[0].item())
        raise Misbuilt(
            message(
                "A new layer has the weight {weight}, expected 1. Start with ones, so that it only "
                "divides.",
                weight=started,
            )
        )
    return functional_call(layer, {"weight": weight}, (x,))


@task(
    _rms_norm_cases,
    forbidden=("rms_norm", "RMSNorm"),
    run=_run_rms_norm,
    measures="a learned weight, and eps under the root",
)
def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Layer(d_model), weight (d_model), x (*batch, d_model) -> (*batch, d_model)"""
    mean_square = x.square().mean(-1, keepdim=True)
    return x / torch.sqrt(mean_square + 1e-5) * weight


@solved(rms_norm)
class _OwnRMSNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        root = (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return self.weight * x / root


_MEAN, _NORM = "x.square().mean(-1, keepdim=True)", "torch.sqrt(mean_square + 1e-5)"
mistake(
    rms_norm,
    "rms-eps-outside",
    "You added eps outside the root, which matters only for small numbers: add it to the mean "
    "square, under the root.",
    {"torch.sqrt(X + EPS)": "(torch.sqrt(X) + EPS)"},
)
again(rms_norm, "ln-sequence", {_MEAN: _MEAN.replace("-1", "-2")})
again(rms_norm, "ln-sequence", {_MEAN: _MEAN.replace("-1", "1")})
again(rms_norm, "ln-batch", {_MEAN: _MEAN.replace("-1", "0")})
again(rms_norm, "ln-batch", {_MEAN: _MEAN.replace("-1", "tuple(range(x.ndim - 1))")})
again(rms_norm, "ln-no-keepdim", {_MEAN: "x.square().mean(-1)"})
notes(
    rms_norm,
    {
        _WHOLE: {_MEAN: _MEAN.replace("-1", "(-2, -1)")},
        "You divided by the mean square: take its square root first.": {
            _NORM: "(mean_square + 1e-5)"
        },
        "You divided by the standard deviation, which subtracts the mean: square x itself.": {
            _NORM: "torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)"
        },
        "You took the root of the sum of squares: take the root of their mean.": {
            _MEAN: _MEAN.replace("mean", "sum")
        },
        "You divided by the norm of the vector, the root of a sum: divide by the root of the mean "
        "square.": {_NORM: "x.norm(dim=-1, keepdim=True)"},
        "You took the mean of the absolute values: square, take the mean, then the square root.": {
            _NORM: "(x.abs().mean(-1, keepdim=True) + 1e-5)"
        },
        "You subtracted the mean: RMSNorm only divides.": {
            f"x / {_NORM} * weight": "layer_norm(x, weight, 0 * weight)"
        },
        "You multiplied by 1 + weight: multiply by the weight, which starts at 1.": {
            "X * weight": "X * (1 + weight)"
        },
        "Your eps is 0, or far smaller than 1e-5: small numbers show the difference.": {
            "1e-5": "1e-10"
        },
    }
    | {_EPS.format(eps): {"1e-5": eps} for eps in ("1e-3", "1e-6", "1e-8")},
)


@question(measures="one mean for each row, with its axis")
def means_shape() -> tuple[int, ...]:
    """the means of a LayerNorm over the query heads of `example.distinct`, with keepdim -> (batch,
    head, query, d_k)
    """
    return tuple(torch.zeros(2, 3, 4, 8).mean(-1, keepdim=True).shape)


again(means_shape, "ln-sequence", {"X.mean(-1, keepdim=True)": "X.mean(-2, keepdim=True)"})
again(means_shape, "ln-batch", {"X.mean(-1, keepdim=True)": "X.mean(0, keepdim=True)"})
again(means_shape, "ln-no-keepdim", {"X.mean(-1, keepdim=True)": "X.mean(-1)"})
notes(
    means_shape,
    {
        "This is the shape of the queries: how large is the axis after the mean?": (2, 3, 4, 8),
        "Your heads share one mean for each token: normalise the query of each head separately.": (
            2,
            1,
            4,
            1,
        ),
    },
)


@question(options=example.vocabulary, measures="that each token is normalised separately")
def who_moves() -> frozenset[str]:
    """the words whose normalised numbers change when cat takes the place of fish"""
    words = [word for sentence in example.words["src"] for word in sentence]
    fish, cat = map(example.vocabulary.index, ("fish", "cat"))
    replaced = example.src.masked_fill(example.src == fish, cat)
    ones = torch.ones(3)
    before, after = (
        layer_norm(vectors(ids), ones, 0 * ones).flatten(0, 1) for ids in (example.src, replaced)
    )
    moved = (before != after).any(-1).tolist()
    return frozenset(word for word, moves in zip(words, moved, strict=True) if moves)


_NORMED = "layer_norm(vectors(ids), ones, 0 * ones).flatten(0, 1)"
_CENTRED = "(vectors(ids) - vectors(ids).mean({}, keepdim=True)).flatten(0, 1)"
again(who_moves, "ln-sequence", {_NORMED: _CENTRED.format("1")})
again(who_moves, "ln-batch", {_NORMED: _CENTRED.format("0")})
notes(
    who_moves,
    {
        "This is the new word: name the position by the word that it replaces.": {"cat"},
        "This would be true if all tokens shared one mean and one variance: each token has its "
        "own.": {_NORMED: _CENTRED.format("(0, 1)")},
    },
)


@question(decimals=2, measures="mean, biased variance, and what RMSNorm leaves out")
def three_rows() -> list[Any]:
    """LayerNorm of 1 1 1 1 6 and of 10 10 10 10 60, and RMSNorm of 5 5 5 5 5"""
    row = torch.tensor([1.0, 1, 1, 1, 6])
    normed = [(x - x.mean()) / x.std(correction=0) for x in (row, 10 * row)]
    return torch.stack([*normed, torch.ones(5)]).round(decimals=4).tolist()


again(three_rows, "ln-unbiased", {"x.std(correction=0)": "x.std()"})
notes(
    three_rows,
    {
        "The second row is ten times the first: what happens to its deviations, and to their root "
        "mean square?": {"[*normed, RMS]": "[normed[0], 10 * normed[0], RMS]"},
        "Rows 1 and 2 are right. The third row is an RMSNorm, which subtracts no mean.": {
            "torch.ones(5)": "torch.zeros(5)"
        },
        "You divided by the variance: take its square root first.": {
            "x.std(correction=0)": "x.var(correction=0)"
        },
        "You divided without subtracting the mean: LayerNorm subtracts the mean first.": {
            "x - x.mean()": "x"
        },
    },
)
