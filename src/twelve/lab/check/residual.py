"""Step 08: what the sum around a sublayer invites."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target
from twelve.normalization import LayerNorm
from twelve.residual import Residual

_Layer = Callable[[Tensor], Tensor]


def _residual(x: Tensor, sublayer: _Layer, norm: _Layer) -> Tensor:
    return x + sublayer(norm(x))


def _residual_cases() -> Cases:
    layer, draw = example.model().encoder.layers[0], seeded()
    wide, matrix = LayerNorm(24).double(), draw(24, 24) / 5
    norm = layer.feed_forward_residual.norm
    return {
        "twelve numbers": (vectors(), layer.feed_forward, norm),
        "a sublayer that adds nothing": (vectors(), torch.zeros_like, norm),
        "all sizes differ": (draw(2, 5, 24), lambda x: (x @ matrix).tanh(), wide),
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
    layer, last, draw = example.model().encoder.layers[0], example.model().encoder.norm, seeded()
    norms = [layer.self_attention_residual.norm, layer.feed_forward_residual.norm]
    matrices, wide = draw(3, 24, 24) / 5, [LayerNorm(24).double() for _ in range(4)]
    return {
        "twelve numbers": (vectors(), [_looks(layer.self_attention), layer.feed_forward], norms,
                           last),
        "one sublayer": (vectors(), [layer.feed_forward], norms[:1], last),
        "sublayers that add nothing": (vectors(), [torch.zeros_like] * 2, norms, last),
        "all sizes differ": (draw(2, 5, 24), [_tanh(matrix) for matrix in matrices], wide[:3],
                             wide[3]),
    }  # fmt: skip


def _looks(attention: Callable[..., Tensor]) -> _Layer:
    return lambda x: attention(x, x, x)


def _tanh(matrix: Tensor) -> _Layer:
    return lambda x: (x @ matrix).tanh()


def _slopes_shape() -> tuple[int, ...]:
    sizes = example.SIZES
    x = torch.zeros(sizes.batch, sizes.src, sizes.d_model, dtype=torch.float64, device="cpu")
    wrapper = Residual(sizes.d_model).double().cpu()
    slopes = torch.autograd.functional.jacobian(lambda x: wrapper(x, torch.tanh), x)
    return tuple(slopes.shape)


def _one_sum(residual: Callable[[Tensor, _Layer, _Layer], Tensor] = _residual) -> list[float]:
    norm = LayerNorm(4).double().cpu()
    x = torch.tensor([5.0, 5, 7, 7], dtype=torch.float64, device="cpu")
    return residual(x, lambda normed: 3 * normed, norm).tolist()


def _three_slopes(residual: Callable[[Tensor, _Layer, _Layer], Tensor] = _residual) -> float:
    x = point = torch.tensor(1.0, dtype=torch.float64, device="cpu", requires_grad=True)
    for slope in (0.5, -0.2, 2.0):
        x = residual(x, lambda read, slope=slope: slope * read, lambda x: x)
    return torch.autograd.grad(x, point)[0].item()


def _silent(residual: Callable[[Tensor, _Layer, _Layer], Tensor] = _norm_order) -> list[float]:
    norm = LayerNorm(4).double().cpu()
    x = torch.tensor([5.0, 5, 7, 7], dtype=torch.float64, device="cpu")
    for _ in range(20):
        x = residual(x, torch.zeros_like, norm)
    return x.tolist()


QUESTIONS = (
    Question(
        name="slopes_shape",
        contract="the slopes of every output with every input, at the companion's sizes",
        right=_slopes_shape,
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
        },
        decimals=2,
    ),
    Question(
        name="three_slopes",
        contract="the slope of three sums, one number",
        right=_three_slopes,
        wrong={"residual-missing": partial(_three_slopes, _residual_missing)},
        decimals=2,
    ),
    Question(
        name="silent",
        contract="what ten post-norm layers make of 5 5 7 7 if all sublayers answer 0",
        right=_silent,
        wrong={"residual-missing": partial(_silent, lambda x, sublayer, norm: norm(sublayer(x)))},
        decimals=2,
    ),
)

TARGETS = (
    Target(
        name="residual",
        contract="x (batch, seq, d_model), sublayer and norm, functions that keep the shape -> "
        "(batch, seq, d_model), pre-norm",
        right=_residual,
        cases=_residual_cases,
    ),
    Target(
        name="residual_stack",
        contract="x (batch, seq, d_model), sublayers and norms, two lists of the same length, "
        "last_norm -> (batch, seq, d_model), pre-norm",
        right=_residual_stack,
        cases=_residual_stack_cases,
        also={
            "residual-overwritten": partial(_residual_stack, residual=_residual_overwritten),
            "residual-missing": partial(_residual_stack, residual=_residual_missing),
            "norm-bypassed": partial(_residual_stack, residual=_norm_bypassed),
            "norm-order": partial(_residual_stack, residual=_norm_order),
            "norm-never-applied": lambda x, sublayers, norms, last_norm: _residual_stack(
                x, sublayers, norms, lambda x: x
            ),
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
