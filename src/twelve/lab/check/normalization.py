"""Step 07: what the mean, the variance and eps invite."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve.lab import example
from twelve.lab.check.built import run_layer
from twelve.lab.check.numbers import companion_heads, seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target


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


def _rms_norm(x: Tensor, weight: Tensor, *, dim: int = -1, keepdim: bool = True) -> Tensor:
    return x / torch.sqrt(x.square().mean(dim, keepdim=keepdim) + 1e-5) * weight


def _rms_norm_cases() -> Cases:
    draw = seeded()
    return {
        "twelve numbers": (vectors(), draw(3)),
        "small numbers": (vectors() / 100, draw(3)),
        "a square of numbers": (draw(3, 3), draw(3)),
        "all sizes differ": (draw(2, 5, 24), draw(24)),
    }


def _rms_eps_outside(x: Tensor, weight: Tensor) -> Tensor:
    return x / (torch.sqrt(x.square().mean(-1, keepdim=True)) + 1e-5) * weight


def _run_rms_norm(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, weight = given
    if not isinstance(answer, type | nn.Module):
        return answer(x, weight)
    return run_layer(answer, (x.size(-1),), {"weight": weight}, x)


def _means_shape(*, dim: int = -1, keepdim: bool = True) -> tuple[int, ...]:
    return tuple(companion_heads()[0].mean(dim, keepdim=keepdim).shape)


def _who_moves(*, dim: int = -1) -> frozenset[str]:
    words = [word for sentence in example.words["src"] for word in sentence]
    fish, cat = map(example.vocabulary.index, ("fish", "cat"))
    replaced = example.src.masked_fill(example.src == fish, cat)
    one = torch.ones(3, dtype=torch.float64, device="cpu")
    before, after = (
        _layer_norm(vectors(ids), one, 0 * one, dim=dim).flatten(0, 1)
        for ids in (example.src, replaced)
    )
    moved = (before != after).any(-1).tolist()
    return frozenset(word for word, moves in zip(words, moved, strict=True) if moves)


def _rows(layer_norm: Callable[..., Tensor] = _layer_norm) -> list[Any]:
    row = torch.tensor([1.0, 1, 1, 1, 6], dtype=torch.float64, device="cpu")
    one = torch.ones_like(row)
    normed = [layer_norm(x, one, 0 * one) for x in (row, 10 * row)]
    return [x.tolist() for x in (*normed, _rms_norm(5 * one, one))]


QUESTIONS = (
    Question(
        name="means_shape",
        contract="the means of a LayerNorm over the queries of the companion's heads, with keepdim",
        right=_means_shape,
        wrong={
            "ln-sequence": partial(_means_shape, dim=-2),
            "ln-batch": partial(_means_shape, dim=0),
            "ln-no-keepdim": partial(_means_shape, keepdim=False),
        },
    ),
    Question(
        name="who_moves",
        contract="the words whose normalised numbers change when cat takes the place of fish",
        right=_who_moves,
        wrong={
            "ln-sequence": partial(_who_moves, dim=1),
            "ln-batch": partial(_who_moves, dim=0),
        },
        options=example.vocabulary,
    ),
    Question(
        name="three_rows",
        contract="LayerNorm of 1 1 1 1 6 and of 10 10 10 10 60, and RMSNorm of 5 5 5 5 5",
        right=_rows,
        wrong={"ln-unbiased": partial(_rows, _ln_unbiased)},
        decimals=2,
    ),
)

TARGETS = (
    Target(
        name="layer_norm",
        contract="x (*batch, d_model), weight (d_model), bias (d_model) -> (*batch, d_model)",
        right=_layer_norm,
        cases=_layer_norm_cases,
    ),
    Target(
        name="rms_norm",
        contract="Layer(d_model), weight (d_model), x (*batch, d_model) -> (*batch, d_model)",
        right=_rms_norm,
        cases=_rms_norm_cases,
        also={
            "ln-sequence": partial(_rms_norm, dim=-2),
            "ln-batch": partial(_rms_norm, dim=0),
            "ln-no-keepdim": partial(_rms_norm, keepdim=False),
        },
        run=_run_rms_norm,
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
        "it in each mean and each variance.",
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
