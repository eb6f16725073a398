"""Lesson 08: mistakes in the residual sum around a sublayer."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twelve.normalization import LayerNorm
from twelve.residual import Residual
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
from twelve_lab.exercises.numbers import seeded, vectors

_Layer = Callable[[Tensor], Tensor]


def _norms(draw: Callable[..., Tensor], number: int, width: int) -> list[_Layer]:
    """Build norms with distinct random weights, so swapping two norms changes the result."""
    norms = [LayerNorm(width).double() for _ in range(number)]
    for norm in norms:
        norm.weight.data, norm.bias.data = 1 + draw(width) / 2, draw(width) / 2
    return norms


def _tanh(matrix: Tensor) -> _Layer:
    return lambda x: (x @ matrix).tanh()


def _residual_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    matrix, [wide], [norm] = draw(24, 24) / 5, _norms(draw, 1, 24), _norms(draw, 1, 3)
    return {
        "twelve numbers": (vectors(), layer.feed_forward, layer.feed_forward_residual.norm),
        "a norm that has learned": (vectors(), layer.feed_forward, norm),
        "a sublayer that adds nothing": (vectors(), torch.zeros_like, norm),
        "all sizes differ": (draw(3, 5, 24), _tanh(matrix), wide),
    }


@task(_residual_cases, measures="keeping x for the sum")
def residual(x: Tensor, sublayer: _Layer, norm: _Layer) -> Tensor:
    """x (batch, seq, d_model), sublayer and norm, functions that keep the shape -> (batch, seq,
    d_model), pre-norm
    """
    return x + sublayer(norm(x))


_SUM = "x + sublayer(norm(x))"
mistake(
    residual,
    "residual-overwritten",
    "You normalised x itself, so the sum starts from the normalised numbers: keep x unchanged and "
    "pass norm(x) to the sublayer only.",
    {f"return {_SUM}": "x = norm(x)\nreturn x + sublayer(x)"},
)
mistake(
    residual,
    "residual-missing",
    "You returned the output of the sublayer without x: add the output to x.",
    {_SUM: "sublayer(norm(x))"},
)
mistake(
    residual,
    "norm-bypassed",
    "The sublayer got x without the norm, so the norm has no effect: pass norm(x) to the sublayer.",
    {_SUM: "x + sublayer(x)"},
)
mistake(
    residual,
    "norm-order",
    "You normalised after the sum, which is post-norm: for pre-norm normalise the input of the "
    "sublayer and leave the sum unchanged.",
    {_SUM: "norm(x + sublayer(x))"},
)
notes(
    residual,
    {
        "You normalised the output of the sublayer: normalise its input.": {
            _SUM: "x + norm(sublayer(x))"
        },
        "You swapped the two inputs: pass norm(x) to the sublayer, and start the sum from x.": {
            _SUM: "norm(x) + sublayer(x)"
        },
        "There is one norm too many: leave the sum unchanged.": {_SUM: f"norm({_SUM})"},
        "You never call the sublayer: apply it to norm(x).": {_SUM: "x + norm(x)"},
        "You normalised with your own code: call the norm that is passed, because it has "
        "learned weights.": {_SUM: "x + sublayer(torch.layer_norm(x, x.shape[-1:]))"},
    },
)


def _residual_stack_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    looks, thinks = (lambda x: layer.self_attention(x, x, x)), layer.feed_forward
    matrices, (*wide, widest) = draw(4, 24, 24) / 5, _norms(draw, 5, 24)
    *norms, last = _norms(draw, 3, 3)
    return {
        "twelve numbers": (vectors(), [looks, thinks], norms, last),
        "one sublayer": (vectors(), [thinks], norms[:1], last),
        "sublayers that add nothing": (vectors(), [torch.zeros_like] * 2, norms, last),
        "all sizes differ": (draw(3, 5, 24), [_tanh(one) for one in matrices], wide, widest),
    }


@task(_residual_stack_cases, measures="one norm for each sublayer, and one after the stack")
def residual_stack(
    x: Tensor, sublayers: list[_Layer], norms: list[_Layer], last_norm: _Layer
) -> Tensor:
    """x (batch, seq, d_model), sublayers and norms, two lists of functions of the same length,
    last_norm, one more function -> (batch, seq, d_model), pre-norm
    """
    for sublayer, norm in zip(sublayers, norms, strict=True):
        x = residual(x, sublayer, norm)
    return last_norm(x)


@solved(residual_stack)
def _run_stack(
    x: Tensor, sublayers: list[_Layer], norms: list[_Layer], last_norm: _Layer
) -> Tensor:
    for work, own_norm in zip(sublayers, norms, strict=True):
        x = x + work(own_norm(x))
    return last_norm(x)


_PAIRS, _ADD = "zip(sublayers, norms, strict=True)", "residual(x, sublayer, norm)"
_LOOP = f"for sublayer, norm in {_PAIRS}:\n    x = {_ADD}"
_EARLY = f"{_LOOP}\n    return last_norm(x)"
notes(
    residual_stack,
    {
        "Your stack returns the unnormalised sum: apply last_norm once, after the loop.": {
            "return last_norm(x)": "return x"
        },
        "Your stack ends with the norm of the last sublayer: apply last_norm after the loop.": {
            "return last_norm(x)": "return norm(x)"
        },
        "All sublayers use the norm of the first sublayer: each needs its own.": {
            _ADD: "residual(x, sublayer, norms[0])"
        },
        "The sublayers use last_norm: each needs its own norm from norms.": {
            _ADD: "residual(x, sublayer, last_norm)"
        },
        "You used the norms in reversed order: the first sublayer uses the first norm.": {
            _PAIRS: "zip(sublayers, norms[::-1], strict=True)"
        },
        "You normalised with your own code: call the norms that are passed, which have learned "
        "weights.": {
            _ADD: "residual(x, sublayer, lambda x: torch.layer_norm(x, x.shape[-1:]))",
            "last_norm(x)": "torch.layer_norm(x, x.shape[-1:])",
        },
        "Every sublayer reads the input: the second must read the sum before it.": {
            "return last_norm(x)": "return last_norm(given + total)",
            _LOOP: f"given, total = x, 0\nfor sublayer, norm in {_PAIRS}:\n"
            "    total = total + sublayer(norm(given))",
        },
        "Only the last sublayer counts: the next sublayer must start from the sum before it.": {
            _PAIRS: "zip(sublayers[-1:], norms[-1:], strict=True)"
        },
        "Only the first sublayer counts: is return inside the loop?": {_LOOP: _EARLY},
        "Only the first sublayer counts, and last_norm is never called: is return inside the "
        "loop?": {_LOOP: _EARLY.replace("last_norm(x)", "x")},
        "You applied the last norm inside the loop: apply it once, after the loop.": {
            f"x = {_ADD}": f"x = last_norm({_ADD})",
            "return last_norm(x)": "return x",
        },
    },
)


@question(measures="a gradient as a table of outputs by inputs")
def slopes_shape() -> tuple[int, ...]:
    """the gradients of every output with every input, at the sizes of `example.distinct` -> (batch
    out, seq out, d_model out, batch in, seq in, d_model in)
    """
    x, wrapper = torch.zeros(2, 5, 24), Residual(24)
    slopes = torch.autograd.functional.jacobian(lambda x: wrapper(x, torch.tanh), x)
    return tuple(slopes.shape)


notes(
    slopes_shape,
    {
        "This is the shape of the output alone: each output has a gradient for each input.": (
            2, 5, 24,
        ),
        "This is the table of one token with itself, as in the section: which axes are needed for "
        "all tokens?": (24, 24),
        "You left out pairs of different tokens: jacobian computes them too, even where they are "
        "0.": (2, 5, 24, 24),
        "You left out pairs of different sentences: jacobian computes them too, all of them 0.": (
            2, 5, 24, 5, 24,
        ),
        "These are the numbers of outputs and inputs: jacobian keeps the axes of both.": (240, 240),
    },
)  # fmt: skip


@question(
    decimals=2,
    measures="what is normalised and what is added, in which order",
    worked="[5 - 3, 5 - 3, 7 + 3, 7 + 3]",
)
def one_sum() -> list[float]:
    """pre-norm, where the sublayer gives three times what it is given; four numbers"""
    x, norm = torch.tensor([5.0, 5, 7, 7]), LayerNorm(4)
    # The calculation on paper has no eps.
    return residual(x, lambda normed: 3 * normed, norm).round(decimals=4).tolist()


again(one_sum, "ln-unbiased", {"3 * normed": "3 * (3 / 4) ** 0.5 * normed"})
notes(
    one_sum,
    {
        "You added the input of the sublayer: its output is three times as large.": {
            "3 * normed": "normed"
        },
        "You subtracted the output of the sublayer: a residual sum adds it.": {
            "3 * normed": "-3 * normed"
        },
    },
)


@question(
    decimals=2,
    measures="that residual gradients multiply as 1 + gradient",
    worked="(1 + 0.5) * (1 - 0.5) * (1 + 2)",
)
def three_slopes() -> float:
    """the gradient of three sums, one number"""
    x = point = torch.tensor(1.0, requires_grad=True)
    for slope in (0.5, -0.5, 2.0):
        x = residual(x, partial(torch.mul, slope), lambda x: x)
    return torch.autograd.grad(x, point)[0].item()


notes(
    three_slopes,
    {
        "You multiplied the gradients of the sublayers alone: what is the gradient of a sum x + "
        "sublayer(x)?": -0.5,
        "You added 1 once: each of the three sums adds a 1.": 0.5,
        "This would be right if all three sublayers read the same x: each reads the sum before "
        "it, so the gradients multiply.": 3.0,
        "You added the gradients of the three sums: gradients of consecutive steps multiply.": 5.0,
        "You added the gradients of the sublayers alone: each is part of a sum, and gradients of "
        "consecutive steps multiply.": 2.0,
    },
)


@question(decimals=2, measures="that post-norm layers normalise even if sublayers give 0")
def silent() -> list[float]:
    """what ten post-norm layers make of 8 6 14 0 if all sublayers give 0"""
    x, norm = torch.tensor([8.0, 6, 14, 0]), LayerNorm(4)
    for _ in range(20):
        x = norm(x + torch.zeros_like(x))
    # The calculation on paper has no eps.
    return x.round(decimals=4).tolist()


again(silent, "residual-missing", {"x + torch.zeros_like(x)": "torch.zeros_like(x)"})
again(silent, "ln-unbiased", {"x.round(decimals=4)": "(x * (3 / 4) ** 0.5).round(decimals=4)"})
notes(
    silent,
    {
        "This is the result of pre-norm. Post-norm applies the norm after the sum.": [8, 6, 14, 0],
        "You subtracted the mean, but a norm also divides.": [1, -1, 7, -7],
        "Nearly right: a norm divides by the root of the mean square, not by the mean square.": {
            "x.round(decimals=4)": "(x / 5).round(decimals=4)"
        },
    },
)
