"""Lesson 07: mistakes in the mean, the variance and eps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    Task,
    again,
    inherit,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.modules import Misbuilt, build
from twelve_lab.exercises.numbers import seeded, vectors
from twelve_lab.messages import message
from twelve_lab.show.format import format_number

# These cases do not show a wrong eps.
_LARGE = {"twelve numbers", "a square of numbers", "all sizes differ"}


def _other_eps(at: Task) -> None:
    for eps in ("1e-3", "1e-6", "1e-8"):
        misconception(at, f"Your eps is {eps}: take 1e-5, as the task says.", eps=float(eps))


def _layer_norm_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(3), draw(3)),
        "small numbers": (vectors() / 100, draw(3), draw(3)),
        "a square of numbers": (draw(3, 3), draw(3), draw(3)),
        "all sizes differ": (draw(2, 5, 24), draw(24), draw(24)),
    }


@task(
    _layer_norm_cases,
    forbidden=("layer_norm", "LayerNorm"),
    measures="axis, keepdim, correction and eps together",
)
def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    dim: int | tuple[int, ...] = -1,
    keepdim: bool = True,
    eps: float = 1e-5,
) -> Tensor:
    """x (*batch, d_model), weight (d_model), bias (d_model) -> (*batch, d_model)"""
    variance, mean = torch.var_mean(x, dim, correction=0, keepdim=keepdim)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


ln_unbiased = mistake(
    layer_norm,
    "ln-unbiased",
    "Your variance is the unbiased one, which divides by d_model - 1: divide by d_model (in torch "
    "unbiased=False, or correction=0).",
    line=("torch.sqrt(variance + eps)", "(x.std(dim, keepdim=True) + eps)"),
)
again(layer_norm, "ln-unbiased", by=partial(ln_unbiased.wrong, eps=1e-6))
again(layer_norm, "ln-unbiased", line=("correction=0, ", ""))
mistake(
    layer_norm,
    "ln-sequence",
    "You normalised over the sentence, so that words affect each other: normalise the features of "
    "each word, the last axis (-1).",
    dim=-2,
)
again(layer_norm, "ln-sequence", dim=1)
mistake(
    layer_norm,
    "ln-batch",
    "You normalised over the batch, so that sentences affect each other: normalise the features "
    "of each word, the last axis (-1).",
    dim=0,
)
again(layer_norm, "ln-batch", line=("x, dim,", "x, tuple(range(x.ndim - 1)),"))
mistake(
    layer_norm,
    "ln-no-keepdim",
    "Without keepdim=True the means lose their axis and broadcast along the wrong one: use "
    "keepdim=True in the mean and in the variance.",
    keepdim=False,
)
mistake(
    layer_norm,
    "ln-eps-tiny",
    "Your eps is far smaller than 1e-5, which amplifies noise if the features of a word are "
    "nearly equal: use 1e-5.",
    eps=1e-10,
)
whole_sentence = misconception(
    layer_norm,
    "You normalised over words and features together, so that words affect each other: normalise "
    "the features of each word, the last axis (-1).",
    line=("x, dim,", "x, (-2, -1),"),
)
misconception(
    layer_norm,
    "You exchanged the mean and the variance: torch.var_mean returns the variance first.",
    line=("variance, mean", "mean, variance"),
)
misconception(
    layer_norm,
    "You added eps to the root: add it to the variance, then take the square root.",
    line=("torch.sqrt(variance + eps)", "(torch.sqrt(variance) + eps)"),
)
no_root = misconception(
    layer_norm, "You divided by the variance: take its square root first.", line=("torch.sqrt", "")
)
mean_kept = misconception(
    layer_norm,
    "You divided without subtracting the mean: subtract it from x first.",
    line=("(x - mean)", "x"),
)
misconception(
    layer_norm,
    "This is an RMSNorm with a bias: subtract the mean first.",
    by=lambda x, weight, bias: rms_norm(x, weight) + bias,
)
misconception(
    layer_norm,
    "You multiplied the bias by the weight as well: multiply first, then add the bias.",
    line=("+ bias", "+ bias * weight"),
)
_other_eps(layer_norm)


def _rms_norm_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(3)),
        "small numbers": (vectors() / 100, draw(3)),
        "a square of numbers": (draw(3, 3), draw(3)),
        "all sizes differ": (draw(2, 5, 24), draw(24)),
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
def rms_norm(
    x: Tensor,
    weight: Tensor,
    *,
    dim: int | tuple[int, ...] = -1,
    keepdim: bool = True,
    eps: float = 1e-5,
) -> Tensor:
    """Layer(d_model), weight (d_model), x (*batch, d_model) -> (*batch, d_model)"""
    mean_square = x.square().mean(dim, keepdim=keepdim)
    return x / torch.sqrt(mean_square + eps) * weight


@solved(rms_norm)
class _OwnRMSNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        root = (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return self.weight * x / root


mistake(
    rms_norm,
    "rms-eps-outside",
    "You added eps to the root, which matters only for small numbers: add it to the mean square, "
    "under the root.",
    line=("torch.sqrt(mean_square + eps)", "(torch.sqrt(mean_square) + eps)"),
)
again(rms_norm, "ln-sequence", dim=-2)
again(rms_norm, "ln-sequence", dim=1)
again(rms_norm, "ln-batch", dim=0)
again(rms_norm, "ln-batch", line=("mean(dim,", "mean(tuple(range(x.ndim - 1)),"))
again(rms_norm, "ln-no-keepdim", keepdim=False)
misconception(rms_norm, whole_sentence.sentence, line=("mean(dim,", "mean((-2, -1),"))
misconception(
    rms_norm, "You divided by the mean square: take its square root first.", line=("torch.sqrt", "")
)
misconception(
    rms_norm,
    "You took the root of the sum of squares: take the root of their mean.",
    line=(".mean(", ".sum("),
)
misconception(
    rms_norm,
    "You divided by the norm of the vector, the root of a sum: divide by the root of the mean "
    "square.",
    by=lambda x, weight: x / x.norm(dim=-1, keepdim=True) * weight,
)
misconception(
    rms_norm,
    "You took the mean of the absolute values: square, take the mean, then the square root.",
    by=lambda x, weight: x / (x.abs().mean(-1, keepdim=True) + 1e-5) * weight,
)
misconception(
    rms_norm,
    "You subtracted the mean: RMSNorm only divides.",
    by=lambda x, weight: layer_norm(x, weight, 0 * weight),
)
misconception(
    rms_norm,
    "You multiplied by 1 + weight: multiply by the weight, which starts at 1.",
    line=("* weight", "* (1 + weight)"),
)
misconception(
    rms_norm,
    "Your eps is 0, or far smaller than 1e-5: small numbers show the difference.",
    eps=1e-10,
)
_other_eps(rms_norm)


@question(measures="one mean for each row, with its axis")
def means_shape(*, dim: int | tuple[int, ...] = -1, keepdim: bool = True) -> tuple[int, ...]:
    """the means of a LayerNorm over the queries of the companion's heads, with keepdim -> (batch,
    head, query, d_k)
    """
    return tuple(torch.zeros(2, 3, 4, 8).mean(dim, keepdim=keepdim).shape)


again(means_shape, "ln-sequence", dim=-2)
again(means_shape, "ln-batch", dim=0)
again(means_shape, "ln-no-keepdim", keepdim=False)
misconception(
    means_shape,
    "This is the shape of the queries. Which size has the axis after the mean?",
    by=lambda: (2, 3, 4, 8),
)
misconception(
    means_shape,
    "Your heads share one mean for each token: the query of each head is normalised separately.",
    dim=(1, 3),
)


@question(options=example.vocabulary, measures="that each token is normalised separately")
def who_moves(*, dim: int | tuple[int, ...] = -1) -> frozenset[str]:
    """the words whose normalised numbers change when cat takes the place of fish"""
    words = [word for sentence in example.words["src"] for word in sentence]
    fish, cat = map(example.vocabulary.index, ("fish", "cat"))
    replaced = example.src.masked_fill(example.src == fish, cat)
    ones = torch.ones(3)
    before, after = (
        layer_norm(vectors(ids), ones, 0 * ones, dim=dim).flatten(0, 1)
        for ids in (example.src, replaced)
    )
    moved = (before != after).any(-1).tolist()
    return frozenset(word for word, moves in zip(words, moved, strict=True) if moves)


again(who_moves, "ln-sequence", dim=1)
again(who_moves, "ln-batch", dim=0)
misconception(
    who_moves,
    "This is the new word: name the position by the word that it replaces.",
    by=lambda: frozenset({"cat"}),
)
misconception(
    who_moves,
    "This would be true if all tokens shared one mean and one variance: each token has its own.",
    dim=(0, 1),
)


@question(decimals=2, measures="mean, biased variance, and what RMSNorm leaves out")
def three_rows(
    *, norm: Callable[..., Tensor] = layer_norm, rms: Callable[..., Tensor] = rms_norm
) -> list[Any]:
    """LayerNorm of 1 1 1 1 6 and of 10 10 10 10 60, and RMSNorm of 5 5 5 5 5"""
    row, ones = torch.tensor([1.0, 1, 1, 1, 6]), torch.ones(5)
    normed = [norm(x, ones, 0 * ones) for x in (row, 10 * row)]
    # The calculation on paper has no eps.
    return torch.stack([*normed, rms(5 * ones, ones)]).round(decimals=4).tolist()


again(three_rows, "ln-unbiased", norm=ln_unbiased.wrong)


@misconception(three_rows)
def rows_grown() -> list[Any]:
    """The second row is ten times the first: what happens to its deviations, and to their root mean
    square?
    """
    first, _, third = three_rows()
    return [first, [10 * number for number in first], third]


misconception(
    three_rows,
    "Rows 1 and 2 are right. The third row is an RMSNorm, which subtracts no mean.",
    rms=lambda x, weight: layer_norm(x, weight, 0 * weight),
)
inherit(three_rows, lambda wrong: partial(three_rows, norm=wrong), no_root)
misconception(
    three_rows,
    "You divided without subtracting the mean: LayerNorm subtracts the mean first.",
    norm=mean_kept.wrong,
)
