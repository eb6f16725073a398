"""Step 07: what the mean, the variance and eps invite."""

from functools import partial

import torch
from torch import Tensor

from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Target


def _layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, *, dim: int | tuple[int, ...] = -1, eps: float = 1e-5
) -> Tensor:
    mean = x.mean(dim, keepdim=True)
    variance = x.var(dim, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def _layer_norm_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(3), draw(3)),
        "small numbers": (vectors() / 100, draw(3), draw(3)),
        "a square of numbers": (draw(3, 3), draw(3), draw(3)),
        "all sizes differ": (draw(2, 5, 24), draw(24), draw(24)),
    }


def _ln_unbiased(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5) -> Tensor:
    deviation = x.std(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (deviation + eps) * weight + bias


def _ln_unbiased_inside(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    variance = x.var(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-5) * weight + bias


def _ln_sequence(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _layer_norm(x, weight, bias, dim=-2)


def _ln_sentence(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _layer_norm(x, weight, bias, dim=tuple(range(1, x.ndim)))


def _ln_batch(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _layer_norm(x, weight, bias, dim=0)


def _ln_no_keepdim(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean, variance = x.mean(-1), x.var(-1, unbiased=False)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def _ln_eps_tiny(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _layer_norm(x, weight, bias, eps=1e-10)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def _rms_norm_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(3)),
        "small numbers": (vectors() / 100, draw(3)),
        "all sizes differ": (draw(2, 5, 24), draw(24)),
    }


def _rms_eps_outside(x: Tensor, weight: Tensor) -> Tensor:
    return x / (torch.sqrt(x.square().mean(-1, keepdim=True)) + 1e-5) * weight


TARGETS = (
    Target(
        name="layer_norm",
        contract="x (*batch, d_model), weight (d_model), bias (d_model) -> (*batch, d_model)",
        right=_layer_norm,
        cases=_layer_norm_cases,
    ),
    Target(
        name="rms_norm",
        contract="x (*batch, d_model), weight (d_model) -> (*batch, d_model)",
        right=_rms_norm,
        cases=_rms_norm_cases,
    ),
)

_NORMALIZED = "(x - mean) / torch.sqrt(variance + self.eps)"
_MEAN = 'mean: Float[Tensor, "*batch 1"] = x.mean({dim}, keepdim=True)\n'
_VARIANCE = (
    '        variance: Float[Tensor, "*batch 1"] = (x - mean).square().mean({dim}, keepdim=True)\n'
)


def _over(dim: str) -> str:
    return (_MEAN + _VARIANCE).format(dim=dim)


MISTAKES = (
    Mistake(
        id="ln-unbiased",
        sentence="Your deviation is that of a sample, divided by d_model - 1: take the mean of the "
        "squares, divided by d_model, and put eps under the root.",
        step="07",
        target="layer_norm",
        wrong=_ln_unbiased,
        plant=Plant(
            "normalization", _NORMALIZED, "(x - mean) / (x.std(-1, keepdim=True) + self.eps)"
        ),
        variants=(partial(_ln_unbiased, eps=1e-6), _ln_unbiased_inside),
    ),
    Mistake(
        id="ln-sequence",
        sentence="You normalised over the sentence, so that words hear of each other: normalise "
        "each word's own features, the last axis.",
        step="07",
        target="layer_norm",
        wrong=_ln_sequence,
        plant=Plant("normalization", _over("-1"), _over("1 if x.ndim == 3 else -1")),
        variants=(_ln_sentence,),
    ),
    Mistake(
        id="ln-batch",
        sentence="You normalised across the batch, so that sentences hear of each other: normalise "
        "each word's own features, the last axis.",
        step="07",
        target="layer_norm",
        wrong=_ln_batch,
        plant=Plant("normalization", _over("-1"), _over("0 if x.ndim == 3 else -1")),
    ),
    Mistake(
        id="ln-no-keepdim",
        sentence="Without keepdim=True the means lose their axis and lie along the columns: keep "
        "it in the mean and in the variance.",
        step="07",
        target="layer_norm",
        wrong=_ln_no_keepdim,
        plant=Plant("normalization", "= x.mean(-1, keepdim=True)\n", "= x.mean(-1)\n"),
    ),
    Mistake(
        id="ln-eps-tiny",
        sentence="Your eps is far smaller than 1e-5 and makes noise large where a word's features "
        "are nearly equal: use 1e-5.",
        step="07",
        target="layer_norm",
        wrong=_ln_eps_tiny,
        plant=Plant("normalization", _NORMALIZED, "(x - mean) / torch.sqrt(variance + 1e-10)"),
    ),
    Mistake(
        id="rms-eps-outside",
        sentence="You added eps to the root, which shows at small numbers alone: add it to the "
        "mean square, under the root.",
        step="07",
        target="rms_norm",
        wrong=_rms_eps_outside,
        plant=Plant(
            "normalization",
            "x / torch.sqrt(mean_square + self.eps)",
            "x / (torch.sqrt(mean_square) + self.eps)",
        ),
    ),
)
