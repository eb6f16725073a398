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
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises.numbers import seeded, vectors

_Layer = Callable[[Tensor], Tensor]
_SLOPES, _TOKEN = (0.5, -0.5, 2.0), (8.0, 6.0, 14.0, 0.0)


def _residual(x: Tensor, sublayer: _Layer, norm: _Layer) -> Tensor:
    return x + sublayer(norm(x))


def _norms(draw: Callable[..., Tensor], number: int, width: int) -> list[_Layer]:
    """Draw norms with numbers of their own, so that one in the place of another shows."""
    norms = [LayerNorm(width).double() for _ in range(number)]
    for norm in norms:
        norm.weight.data, norm.bias.data = 1 + draw(width) / 2, draw(width) / 2
    return norms


def _residual_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    matrix, [wide], [norm] = draw(24, 24) / 5, _norms(draw, 1, 24), _norms(draw, 1, 3)
    return {
        "twelve numbers": (vectors(), layer.feed_forward, layer.feed_forward_residual.norm),
        "a norm that has learned": (vectors(), layer.feed_forward, norm),
        "a sublayer that adds nothing": (vectors(), torch.zeros_like, norm),
        "all sizes differ": (draw(2, 5, 24), _tanh(matrix), wide),
    }


def _residual_overwritten(x: Tensor, sublayer: _Layer, norm: _Layer) -> Tensor:
    x = norm(x)
    return x + sublayer(x)


def _residual_missing(x: Tensor, sublayer: _Layer, norm: _Layer) -> Tensor:
    return sublayer(norm(x))


def _norm_bypassed(x: Tensor, sublayer: _Layer, norm: _Layer) -> Tensor:
    return x + sublayer(x)


def _norm_order(x: Tensor, sublayer: _Layer, norm: _Layer) -> Tensor:
    return norm(x + sublayer(x))


def _residual_stack(
    x: Tensor,
    sublayers: list[_Layer],
    norms: list[_Layer],
    last_norm: _Layer,
    *,
    residual: Callable[[Tensor, _Layer, _Layer], Tensor] = _residual,
) -> Tensor:
    for sublayer, norm in zip(sublayers, norms, strict=True):
        x = residual(x, sublayer, norm)
    return last_norm(x)


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


def _each_reads_the_input(
    x: Tensor, sublayers: list[_Layer], norms: list[_Layer], last_norm: _Layer
) -> Tensor:
    pairs = zip(sublayers, norms, strict=True)
    return last_norm(x + sum(sublayer(norm(x)) for sublayer, norm in pairs))


def _last_norm_in_the_loop(
    x: Tensor, sublayers: list[_Layer], norms: list[_Layer], last_norm: _Layer
) -> Tensor:
    for sublayer, norm in zip(sublayers, norms, strict=True):
        x = last_norm(_residual(x, sublayer, norm))
    return x


def _own_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _tanh(matrix: Tensor) -> _Layer:
    return lambda x: (x @ matrix).tanh()


def _slopes_shape() -> tuple[int, ...]:
    sizes = example.SIZES
    x, wrapper = torch.zeros(sizes.batch, sizes.src, sizes.d_model), Residual(sizes.d_model)
    slopes = torch.autograd.functional.jacobian(lambda x: wrapper(x, torch.tanh), x)
    return tuple(slopes.shape)


def _one_sum(
    residual: Callable[[Tensor, _Layer, _Layer], Tensor] = _residual, factor: float = 3
) -> list[float]:
    x, norm = torch.tensor([5.0, 5, 7, 7]), LayerNorm(4)
    # On paper there is no eps.
    return residual(x, lambda normed: factor * normed, norm).round(decimals=4).tolist()


def _three_slopes() -> float:
    x = point = torch.tensor(1.0, requires_grad=True)
    for slope in _SLOPES:
        x = _residual(x, partial(torch.mul, slope), lambda x: x)
    return torch.autograd.grad(x, point)[0].item()


def _silent(residual: Callable[[Tensor, _Layer, _Layer], Tensor] = _norm_order) -> list[float]:
    x, norm = torch.tensor(_TOKEN), LayerNorm(4)
    for _ in range(20):
        x = residual(x, torch.zeros_like, norm)
    # On paper there is no eps.
    return x.round(decimals=4).tolist()


QUESTIONS = (
    Question(
        name="slopes_shape",
        contract="the slopes of every output with every input, at the companion's sizes -> (batch "
        "out, seq out, d_model out, batch in, seq in, d_model in)",
        right=_slopes_shape,
        slips={
            "That is the shape of the output alone: each of its numbers has a slope with each "
            "number of the input.": lambda: _slopes_shape()[:3],
            "That is the table of one token with itself, as the lesson cut it out: which axes do "
            "all tokens need?": lambda: _slopes_shape()[2:6:3],
            "The jacobian does not know that a feature of one token may have nothing to do with "
            "another token: it asks for all pairs.": lambda: (*_slopes_shape()[:3], 24),
            "The jacobian does not know that sentences have nothing to do with each other: their "
            "slopes are in it too, all of them 0.": lambda: (*_slopes_shape()[:3], 5, 24),
            "So many outputs and inputs there are; jacobian keeps the axes of both.": lambda: (
                math.prod(_slopes_shape()[:3]),
                math.prod(_slopes_shape()[3:]),
            ),
        },
    ),
    Question(
        name="one_sum",
        contract="pre-norm, where the sublayer answers three times what it is given; four numbers",
        right=_one_sum,
        wrong={
            "residual-overwritten": partial(_one_sum, _residual_overwritten),
            "residual-missing": partial(_one_sum, _residual_missing),
            "norm-bypassed": partial(_one_sum, _norm_bypassed),
            "norm-order": partial(_one_sum, _norm_order),
            "ln-unbiased": partial(_one_sum, factor=3 * math.sqrt(3 / 4)),
        },
        decimals=2,
        slips={
            "You added what the sublayer is given: it answers three times that.": partial(
                _one_sum, factor=1
            ),
            "You took away what the sublayer answers: a residual sum adds it.": partial(
                _one_sum, factor=-3
            ),
        },
    ),
    Question(
        name="three_slopes",
        contract="the slope of three sums, one number",
        right=_three_slopes,
        decimals=2,
        slips={
            "You multiplied the slopes of the bare sublayers: each stands in a sum, so what is "
            "the slope of one sum?": lambda: math.prod(_SLOPES),
            "You added 1 once: each of the three sums brings a 1 of its own.": lambda: (
                1 + math.prod(_SLOPES)
            ),
            "As if all three read the same x, in one sum: each reads the sum before it, and in a "
            "row slopes multiply.": lambda: 1 + sum(_SLOPES),
            "You added the slopes of the three sums: in a row slopes multiply.": lambda: (
                3 + sum(_SLOPES)
            ),
            "You added the slopes of the bare sublayers: each stands in a sum of its own, and in "
            "a row slopes multiply.": lambda: sum(_SLOPES),
        },
    ),
    Question(
        name="silent",
        contract="what ten post-norm layers make of 8 6 14 0 if all sublayers answer 0",
        right=_silent,
        wrong={
            "residual-missing": partial(_silent, lambda x, sublayer, norm: norm(sublayer(x))),
            "ln-unbiased": lambda: [number * math.sqrt(3 / 4) for number in _silent()],
        },
        decimals=2,
        slips={
            "That is what pre-norm leaves. In post-norm the norm stands behind the sum.": lambda: (
                list(_TOKEN)
            ),
            "You took the mean off; a norm also divides.": lambda: (
                [number - sum(_TOKEN) / 4 for number in _TOKEN]
            ),
            "Nearly: a norm divides by the root, not by the mean of the squares.": lambda: (
                [number / 5 for number in _silent()]
            ),
        },
    ),
)

TARGETS = (
    Target(
        name="residual",
        contract="x (batch, seq, d_model), sublayer and norm, functions that keep the shape -> "
        "(batch, seq, d_model), pre-norm",
        right=_residual,
        cases=_residual_cases,
        slips={
            "You normalised what the sublayer answers: normalise what it is "
            "given.": lambda x, sublayer, norm: x + norm(sublayer(x)),
            "The norm has changed sides: the sublayer is due norm(x), and the sum starts from x "
            "as it came.": lambda x, sublayer, norm: norm(x) + sublayer(x),
            "There is one norm too many: the sum is left as it is.": lambda x, sublayer, norm: norm(
                x + sublayer(norm(x))
            ),
            "You took x away from the answer: add the two.": lambda x, sublayer, norm: (
                sublayer(norm(x)) - x
            ),
            "You took the answer away from x: add the two.": lambda x, sublayer, norm: (
                x - sublayer(norm(x))
            ),
            "The sublayer is never called: it is to work on norm(x).": lambda x, sublayer, norm: (
                x + norm(x)
            ),
            "You normalised on your own: call the norm that is handed over, which has learned "
            "numbers.": lambda x, sublayer, norm: _residual(x, sublayer, _own_norm),
        },
    ),
    Target(
        name="residual_stack",
        contract="x (batch, seq, d_model), sublayers and norms, two lists of functions of the same "
        "length, last_norm, one more function -> (batch, seq, d_model), pre-norm",
        right=_residual_stack,
        cases=_residual_stack_cases,
        also={
            "residual-overwritten": partial(_residual_stack, residual=_residual_overwritten),
            "residual-missing": partial(_residual_stack, residual=_residual_missing),
            "norm-bypassed": partial(_residual_stack, residual=_norm_bypassed),
            "norm-order": partial(_residual_stack, residual=_norm_order),
        },
        slips={
            "What leaves your stack is the bare sum: give it to last_norm, once, behind the "
            "loop.": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers, norms, lambda x: x
            ),
            "The sum leaves through the norm of the last sublayer: behind the loop it is due "
            "last_norm.": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers, norms, norms[-1]
            ),
            "All sublayers read through the norm of the first: each has a norm of its "
            "own.": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers, norms[:1] * len(norms), last_norm
            ),
            "The sublayers read through last_norm: each has a norm of its own, in "
            "norms.": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers, [last_norm] * len(norms), last_norm
            ),
            "The norms come in reverse: the first sublayer reads through the first "
            "norm.": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers, norms[::-1], last_norm
            ),
            "You normalised on your own: call the norms that are handed over, which have learned "
            "numbers.": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers, [_own_norm] * len(norms), _own_norm
            ),
            "Every sublayer reads the input: the second must read the sum before "
            "it.": _each_reads_the_input,
            "Only the last sublayer is heard: what comes out of one sum must go into the "
            "next.": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers[-1:], norms[-1:], last_norm
            ),
            "Only the first sublayer is heard: does return stand inside the "
            "loop?": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers[:1], norms[:1], last_norm
            ),
            "Only the first sublayer is heard, and last_norm never: does return stand inside the "
            "loop?": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers[:1], norms[:1], lambda x: x
            ),
            "The last norm stands in the loop: it comes once, behind it.": _last_norm_in_the_loop,
        },
    ),
)

_UPDATE = "update = self.dropout(sublayer(self.norm(x) if self.norm_first else x))\n"

MISTAKES = (
    Mistake(
        id="residual-overwritten",
        sentence="You normalised x itself, and the sum starts from the normalised numbers: keep x "
        "as it came and give the norm's answer to the sublayer alone.",
        step="08",
        target="residual",
        wrong=_residual_overwritten,
        plant=Plant(
            "residual",
            _UPDATE,
            "x = self.norm(x) if self.norm_first else x\n"
            "        update = self.dropout(sublayer(x))\n",
        ),
    ),
    Mistake(
        id="residual-missing",
        sentence="You return what the sublayer answers and have lost x: add the answer to x.",
        step="08",
        target="residual",
        wrong=_residual_missing,
        plant=Plant("residual", "= x + update\n", "= update\n"),
    ),
    Mistake(
        id="norm-bypassed",
        sentence="The sublayer was given x as it came, and the norm works for nothing: give the "
        "sublayer the normalised x.",
        step="08",
        target="residual",
        wrong=_norm_bypassed,
        plant=Plant(
            "encoder",
            "lambda query: self.self_attention(query, query, query, src_mask)",
            "lambda query: self.self_attention(x, x, x, src_mask)",
        ),
    ),
    Mistake(
        id="norm-order",
        sentence="You normalised after the sum, which is post-norm: for pre-norm normalise what "
        "the sublayer is given, and leave the sum as it is.",
        step="08",
        target="residual",
        wrong=_norm_order,
        plant=Plant(
            "residual", "self.norm_first = norm_first\n", "self.norm_first = not norm_first\n"
        ),
    ),
)
