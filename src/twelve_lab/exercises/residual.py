"""Lesson 08: mistakes in the residual sum around a sublayer."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.normalization import LayerNorm
from twelve.residual import Residual
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import seeded, vectors

_Layer = Callable[[Tensor], Tensor]
_SLOPES, _TOKEN = (0.5, -0.5, 2.0), (8.0, 6.0, 14.0, 0.0)


def _norms(draw: Callable[..., Tensor], number: int, width: int) -> list[_Layer]:
    """Draw norms with different weights, so that exchanged norms give other numbers."""
    norms = [LayerNorm(width).double() for _ in range(number)]
    for norm in norms:
        norm.weight.data, norm.bias.data = 1 + draw(width) / 2, draw(width) / 2
    return norms


def _own_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _tanh(matrix: Tensor) -> _Layer:
    return lambda x: (x @ matrix).tanh()


def _residual_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    matrix, [wide], [norm] = draw(24, 24) / 5, _norms(draw, 1, 24), _norms(draw, 1, 3)
    return {
        "twelve numbers": (vectors(), layer.feed_forward, layer.feed_forward_residual.norm),
        "a norm that has learned": (vectors(), layer.feed_forward, norm),
        "a sublayer that adds nothing": (vectors(), torch.zeros_like, norm),
        "all sizes differ": (draw(2, 5, 24), _tanh(matrix), wide),
    }


@task(_residual_cases, measures="keeping x for the sum")
def residual(x: Tensor, sublayer: _Layer, norm: _Layer) -> Tensor:
    """x (batch, seq, d_model), sublayer and norm, functions that keep the shape -> (batch, seq,
    d_model), pre-norm
    """
    return x + sublayer(norm(x))


mistake(
    residual,
    "residual-overwritten",
    "You normalised x itself, so that the sum starts from the normalised numbers: keep x "
    "unchanged and pass norm(x) to the sublayer only.",
    line=("return x + sublayer(norm(x))", "x = norm(x)\n    return x + sublayer(x)"),
)
mistake(
    residual,
    "residual-missing",
    "You return the output of the sublayer and lost x: add the output to x.",
    line=("x + ", ""),
)
mistake(
    residual,
    "norm-bypassed",
    "The sublayer got x without the norm, so that the norm has no effect: pass norm(x) to the "
    "sublayer.",
    line=("norm(x)", "x"),
)
norm_order = mistake(
    residual,
    "norm-order",
    "You normalised after the sum, which is post-norm: for pre-norm normalise the input of the "
    "sublayer and leave the sum unchanged.",
    line=("x + sublayer(norm(x))", "norm(x + sublayer(x))"),
)
misconception(
    residual,
    "You normalised the output of the sublayer: normalise its input.",
    line=("sublayer(norm(x))", "norm(sublayer(x))"),
)
misconception(
    residual,
    "You exchanged the two inputs: pass norm(x) to the sublayer, and start the sum from x.",
    line=("x + sublayer(norm(x))", "norm(x) + sublayer(x)"),
)
misconception(
    residual,
    "There is one norm too many: leave the sum unchanged.",
    line=("x + sublayer(norm(x))", "norm(x + sublayer(norm(x)))"),
)
misconception(
    residual,
    "You subtracted x from the output: add the two.",
    line=("x + sublayer(norm(x))", "sublayer(norm(x)) - x"),
)
misconception(residual, "You subtracted the output from x: add the two.", line=("+", "-"))
misconception(
    residual,
    "You never call the sublayer: apply it to norm(x).",
    line=("sublayer(norm(x))", "norm(x)"),
)
misconception(
    residual,
    "You normalised with your own code: call the norm that is passed, which has learned weights.",
    line=("norm(x)", "_own_norm(x)"),
)


def _residual_stack_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    looks, thinks = (lambda x: layer.self_attention(x, x, x)), layer.feed_forward
    matrices, (*wide, widest) = draw(3, 24, 24) / 5, _norms(draw, 4, 24)
    *norms, last = _norms(draw, 3, 3)
    return {
        "twelve numbers": (vectors(), [looks, thinks], norms, last),
        "one sublayer": (vectors(), [thinks], norms[:1], last),
        "sublayers that add nothing": (vectors(), [torch.zeros_like] * 2, norms, last),
        "all sizes differ": (draw(2, 5, 24), [_tanh(one) for one in matrices], wide, widest),
    }


@task(_residual_stack_cases, measures="one norm for each sublayer, and one after the stack")
def residual_stack(
    x: Tensor,
    sublayers: list[_Layer],
    norms: list[_Layer],
    last_norm: _Layer,
    *,
    add: Callable[[Tensor, _Layer, _Layer], Tensor] = residual,
) -> Tensor:
    """x (batch, seq, d_model), sublayers and norms, two lists of functions of the same length,
    last_norm, one more function -> (batch, seq, d_model), pre-norm
    """
    for sublayer, norm in zip(sublayers, norms, strict=True):
        x = add(x, sublayer, norm)
    return last_norm(x)


@solved(residual_stack)
def _run_stack(
    x: Tensor, sublayers: list[_Layer], norms: list[_Layer], last_norm: _Layer
) -> Tensor:
    for work, own_norm in zip(sublayers, norms, strict=True):
        x = x + work(own_norm(x))
    return last_norm(x)


for _id, (_add,) in residual.mistakes.items():
    again(residual_stack, _id, add=_add)
misconception(
    residual_stack,
    "Your stack returns the unnormalised sum: apply last_norm once, after the loop.",
    line=("last_norm(x)", "x"),
)
misconception(
    residual_stack,
    "Your stack ends with the norm of the last sublayer: apply last_norm after the loop.",
    line=("last_norm(x)", "norm(x)"),
)
misconception(
    residual_stack,
    "All sublayers use the norm of the first: each has its own norm.",
    line=("sublayer, norm)", "sublayer, norms[0])"),
)
misconception(
    residual_stack,
    "The sublayers use last_norm: each has its own norm in norms.",
    line=("sublayer, norm)", "sublayer, last_norm)"),
)
misconception(
    residual_stack,
    "You used the norms in reversed order: the first sublayer uses the first norm.",
    line=("sublayers, norms,", "sublayers, norms[::-1],"),
)
misconception(
    residual_stack,
    "You normalised with your own code: call the norms that are passed, which have learned "
    "weights.",
    by=lambda x, sublayers, norms, _: residual_stack(
        x, sublayers, [_own_norm] * len(norms), _own_norm
    ),
)


@misconception(residual_stack)
def each_reads_the_input(
    x: Tensor, sublayers: list[_Layer], norms: list[_Layer], last_norm: _Layer
) -> Tensor:
    """Every sublayer reads the input: the second must read the sum before it."""
    pairs = zip(sublayers, norms, strict=True)
    return last_norm(x + sum(sublayer(norm(x)) for sublayer, norm in pairs))


misconception(
    residual_stack,
    "Only the last sublayer counts: the next sublayer must start from the sum before it.",
    line=("sublayers, norms,", "sublayers[-1:], norms[-1:],"),
)
misconception(
    residual_stack,
    "Only the first sublayer counts: is return inside the loop?",
    line=("    return", "        return"),
)
misconception(
    residual_stack,
    "Only the first sublayer counts, and last_norm is never called: is return inside the loop?",
    line=("    return last_norm(x)", "        return x"),
)
misconception(
    residual_stack,
    "You applied the last norm inside the loop: apply it once, after the loop.",
    line=(
        "x = add(x, sublayer, norm)\n    return last_norm(x)",
        "x = last_norm(add(x, sublayer, norm))\n    return x",
    ),
)


@question(measures="a gradient as a table of outputs by inputs")
def slopes_shape() -> tuple[int, ...]:
    """the gradients of every output with every input, at the companion's sizes -> (batch out, seq
    out, d_model out, batch in, seq in, d_model in)
    """
    sizes = example.SIZES
    x, wrapper = torch.zeros(sizes.batch, sizes.src, sizes.d_model), Residual(sizes.d_model)
    slopes = torch.autograd.functional.jacobian(lambda x: wrapper(x, torch.tanh), x)
    return tuple(slopes.shape)


misconception(
    slopes_shape,
    "This is the shape of the output alone: each output has a gradient for each input.",
    by=lambda: slopes_shape()[:3],
)
misconception(
    slopes_shape,
    "This is the table of one token with itself, as in the section: which axes are needed for all "
    "tokens?",
    by=lambda: slopes_shape()[2:6:3],
)
misconception(
    slopes_shape,
    "You left out pairs of different tokens: jacobian computes them too, even where they are 0.",
    by=lambda: (*slopes_shape()[:3], 24),
)
misconception(
    slopes_shape,
    "You left out pairs of different sentences: jacobian computes them too, all of them 0.",
    by=lambda: (*slopes_shape()[:3], 5, 24),
)
misconception(
    slopes_shape,
    "These are the numbers of outputs and inputs: jacobian keeps the axes of both.",
    by=lambda: (math.prod(slopes_shape()[:3]), math.prod(slopes_shape()[3:])),
)


@question(
    decimals=2,
    measures="what is normalised and what is added, in which order",
    worked="[5 - 3, 5 - 3, 7 + 3, 7 + 3]",
)
def one_sum(
    *, add: Callable[[Tensor, _Layer, _Layer], Tensor] = residual, factor: float = 3
) -> list[float]:
    """pre-norm, where the sublayer gives three times what it is given; four numbers"""
    x, norm = torch.tensor([5.0, 5, 7, 7]), LayerNorm(4)
    # The calculation on paper has no eps.
    return add(x, lambda normed: factor * normed, norm).round(decimals=4).tolist()


for _id, (_add,) in residual.mistakes.items():
    again(one_sum, _id, add=_add)
again(one_sum, "ln-unbiased", factor=3 * math.sqrt(3 / 4))
misconception(
    one_sum, "You added the input of the sublayer: its output is three times as large.", factor=1
)
misconception(
    one_sum, "You subtracted the output of the sublayer: a residual sum adds it.", factor=-3
)


@question(
    decimals=2,
    measures="that residual gradients multiply as 1 + gradient",
    worked="(1 + 0.5) * (1 - 0.5) * (1 + 2)",
)
def three_slopes() -> float:
    """the gradient of three sums, one number"""
    x = point = torch.tensor(1.0, requires_grad=True)
    for slope in _SLOPES:
        x = residual(x, partial(torch.mul, slope), lambda x: x)
    return torch.autograd.grad(x, point)[0].item()


misconception(
    three_slopes,
    "You multiplied the gradients of the sublayers alone: what is the gradient of a sum x + "
    "sublayer(x)?",
    by=lambda: math.prod(_SLOPES),
)
misconception(
    three_slopes,
    "You added 1 once: each of the three sums adds a 1.",
    by=lambda: 1 + math.prod(_SLOPES),
)
misconception(
    three_slopes,
    "This would be right if all three sublayers read the same x: each reads the sum before it, so "
    "the gradients multiply.",
    by=lambda: 1 + sum(_SLOPES),
)
misconception(
    three_slopes,
    "You added the gradients of the three sums: gradients of consecutive steps multiply.",
    by=lambda: 3 + sum(_SLOPES),
)
misconception(
    three_slopes,
    "You added the gradients of the sublayers alone: each is part of a sum, and gradients of "
    "consecutive steps multiply.",
    by=lambda: sum(_SLOPES),
)


@question(decimals=2, measures="that post-norm layers normalise even if sublayers give 0")
def silent(*, add: Callable[[Tensor, _Layer, _Layer], Tensor] = norm_order.wrong) -> list[float]:
    """what ten post-norm layers make of 8 6 14 0 if all sublayers give 0"""
    x, norm = torch.tensor(_TOKEN), LayerNorm(4)
    for _ in range(20):
        x = add(x, torch.zeros_like, norm)
    # The calculation on paper has no eps.
    return x.round(decimals=4).tolist()


again(silent, "residual-missing", add=lambda x, sublayer, norm: norm(sublayer(x)))
again(silent, "ln-unbiased", by=lambda: [number * math.sqrt(3 / 4) for number in silent()])
misconception(
    silent,
    "This is the result of pre-norm. Post-norm applies the norm after the sum.",
    by=lambda: list(_TOKEN),
)
misconception(
    silent,
    "You subtracted the mean, but a norm also divides.",
    by=lambda: [number - sum(_TOKEN) / 4 for number in _TOKEN],
)
misconception(
    silent,
    "Nearly right: a norm divides by the root of the mean square, not by the mean square.",
    by=lambda: [number / 5 for number in silent()],
)
