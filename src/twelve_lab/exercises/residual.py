"""Step 08: what the sum around a sublayer invites."""

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
    """Draw norms with numbers of their own, so that one in the place of another shows."""
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
    "You normalised x itself, and the sum starts from the normalised numbers: keep x as it came "
    "and give the norm's output to the sublayer alone.",
    line=("return x + sublayer(norm(x))", "x = norm(x)\n    return x + sublayer(x)"),
)
mistake(
    residual,
    "residual-missing",
    "You return what the sublayer gives and have lost x: add its output to x.",
    line=("x + ", ""),
)
mistake(
    residual,
    "norm-bypassed",
    "The sublayer was given x as it came, and the norm works for nothing: give the sublayer the "
    "normalised x.",
    line=("norm(x)", "x"),
    hidden_in={"a sublayer that adds nothing"},
)
norm_order = mistake(
    residual,
    "norm-order",
    "You normalised after the sum, which is post-norm: for pre-norm normalise what the sublayer is "
    "given, and leave the sum as it is.",
    line=("x + sublayer(norm(x))", "norm(x + sublayer(x))"),
)
misconception(
    residual,
    "You normalised what the sublayer gives: normalise what it is given.",
    line=("sublayer(norm(x))", "norm(sublayer(x))"),
)
misconception(
    residual,
    "The norm has changed sides: the sublayer is due norm(x), and the sum starts from x as it "
    "came.",
    line=("x + sublayer(norm(x))", "norm(x) + sublayer(x)"),
)
misconception(
    residual,
    "There is one norm too many: the sum is left as it is.",
    line=("x + sublayer(norm(x))", "norm(x + sublayer(norm(x)))"),
)
misconception(
    residual,
    "You took x away from the output: add the two.",
    line=("x + sublayer(norm(x))", "sublayer(norm(x)) - x"),
)
misconception(residual, "You took the output away from x: add the two.", line=("+", "-"))
misconception(
    residual,
    "The sublayer is never called: it is to work on norm(x).",
    line=("sublayer(norm(x))", "norm(x)"),
)
misconception(
    residual,
    "You normalised on your own: call the norm that is handed over, which has learned numbers.",
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


@task(_residual_stack_cases, measures="one norm a sublayer, and one behind the stack")
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
    "What leaves your stack is the bare sum: give it to last_norm, once, behind the loop.",
    line=("last_norm(x)", "x"),
)
misconception(
    residual_stack,
    "The sum leaves through the norm of the last sublayer: behind the loop it is due last_norm.",
    line=("last_norm(x)", "norm(x)"),
)
misconception(
    residual_stack,
    "All sublayers read through the norm of the first: each has a norm of its own.",
    line=("sublayer, norm)", "sublayer, norms[0])"),
)
misconception(
    residual_stack,
    "The sublayers read through last_norm: each has a norm of its own, in norms.",
    line=("sublayer, norm)", "sublayer, last_norm)"),
)
misconception(
    residual_stack,
    "The norms come in reverse: the first sublayer reads through the first norm.",
    line=("sublayers, norms,", "sublayers, norms[::-1],"),
)
misconception(
    residual_stack,
    "You normalised on your own: call the norms that are handed over, which have learned numbers.",
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
    "Only the last sublayer counts: what comes out of one sum must go into the next.",
    line=("sublayers, norms,", "sublayers[-1:], norms[-1:],"),
)
misconception(
    residual_stack,
    "Only the first sublayer counts: does return stand inside the loop?",
    line=("    return", "        return"),
)
misconception(
    residual_stack,
    "Only the first sublayer counts, and last_norm never: does return stand inside the loop?",
    line=("    return last_norm(x)", "        return x"),
)
misconception(
    residual_stack,
    "The last norm stands in the loop: it comes once, behind it.",
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
    "That is the shape of the output alone: each of its numbers has a gradient with each number of "
    "the input.",
    by=lambda: slopes_shape()[:3],
)
misconception(
    slopes_shape,
    "That is the table of one token with itself, as the section cuts it out: which axes do all "
    "tokens need?",
    by=lambda: slopes_shape()[2:6:3],
)
misconception(
    slopes_shape,
    "The jacobian does not know that a feature of one token may have nothing to do with another "
    "token: it asks for all pairs.",
    by=lambda: (*slopes_shape()[:3], 24),
)
misconception(
    slopes_shape,
    "The jacobian does not know that sentences have nothing to do with each other: their gradients "
    "are in it too, all of them 0.",
    by=lambda: (*slopes_shape()[:3], 5, 24),
)
misconception(
    slopes_shape,
    "So many outputs and inputs there are; jacobian keeps the axes of both.",
    by=lambda: (math.prod(slopes_shape()[:3]), math.prod(slopes_shape()[3:])),
)


@question(
    decimals=2,
    measures="what is normed, what is added, in which order",
    worked="[5 - 3, 5 - 3, 7 + 3, 7 + 3]",
)
def one_sum(
    *, add: Callable[[Tensor, _Layer, _Layer], Tensor] = residual, factor: float = 3
) -> list[float]:
    """pre-norm, where the sublayer gives three times what it is given; four numbers"""
    x, norm = torch.tensor([5.0, 5, 7, 7]), LayerNorm(4)
    # On paper there is no eps.
    return add(x, lambda normed: factor * normed, norm).round(decimals=4).tolist()


for _id, (_add,) in residual.mistakes.items():
    again(one_sum, _id, add=_add)
again(one_sum, "ln-unbiased", factor=3 * math.sqrt(3 / 4))
misconception(one_sum, "You added what the sublayer is given: it gives three times that.", factor=1)
misconception(one_sum, "You took away what the sublayer gives: a residual sum adds it.", factor=-3)


@question(
    decimals=2,
    measures="that paths multiply as 1 + gradient",
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
    "You multiplied the gradients of the bare sublayers: each stands in a sum, so what is the "
    "gradient of one sum?",
    by=lambda: math.prod(_SLOPES),
)
misconception(
    three_slopes,
    "You added 1 once: each of the three sums brings a 1 of its own.",
    by=lambda: 1 + math.prod(_SLOPES),
)
misconception(
    three_slopes,
    "As if all three read the same x, in one sum: each reads the sum before it, and in a row "
    "gradients multiply.",
    by=lambda: 1 + sum(_SLOPES),
)
misconception(
    three_slopes,
    "You added the gradients of the three sums: in a row gradients multiply.",
    by=lambda: 3 + sum(_SLOPES),
)
misconception(
    three_slopes,
    "You added the gradients of the bare sublayers: each stands in a sum of its own, and in a row "
    "gradients multiply.",
    by=lambda: sum(_SLOPES),
)


@question(decimals=2, measures="that silent post-norm layers still norm")
def silent(*, add: Callable[[Tensor, _Layer, _Layer], Tensor] = norm_order.wrong) -> list[float]:
    """what ten post-norm layers make of 8 6 14 0 if all sublayers give 0"""
    x, norm = torch.tensor(_TOKEN), LayerNorm(4)
    for _ in range(20):
        x = add(x, torch.zeros_like, norm)
    # On paper there is no eps.
    return x.round(decimals=4).tolist()


again(silent, "residual-missing", add=lambda x, sublayer, norm: norm(sublayer(x)))
again(silent, "ln-unbiased", by=lambda: [number * math.sqrt(3 / 4) for number in silent()])
misconception(
    silent,
    "That is what pre-norm leaves. In post-norm the norm stands behind the sum.",
    by=lambda: list(_TOKEN),
)
misconception(
    silent,
    "You took the mean off; a norm also divides.",
    by=lambda: [number - sum(_TOKEN) / 4 for number in _TOKEN],
)
misconception(
    silent,
    "Nearly: a norm divides by the root, not by the mean of the squares.",
    by=lambda: [number / 5 for number in silent()],
)
