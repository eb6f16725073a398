"""Step 07: what the mean, the variance and eps invite."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.check.modules import Misbuilt, build
from twelve_lab.exercises.numbers import companion_heads, seeded, vectors
from twelve_lab.show.format import format_number


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


def _ln_over_tokens(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _layer_norm(x, weight, bias, dim=tuple(range(x.ndim - 1)))


def _ln_turned(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean, variance = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def _ln_eps_outside(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    deviation = x.std(-1, unbiased=False, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (deviation + 1e-5) * weight + bias


def _ln_no_root(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    variance = x.var(-1, unbiased=False, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (variance + 1e-5) * weight + bias


def _ln_mean_kept(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    variance = x.var(-1, unbiased=False, keepdim=True)
    return x / torch.sqrt(variance + 1e-5) * weight + bias


def _ln_eps_tiny(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _layer_norm(x, weight, bias, eps=1e-10)


def _rms_norm(
    x: Tensor,
    weight: Tensor,
    *,
    dim: int | tuple[int, ...] = -1,
    keepdim: bool = True,
    eps: float = 1e-5,
) -> Tensor:
    return x / torch.sqrt(x.square().mean(dim, keepdim=keepdim) + eps) * weight


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


def _rms_no_root(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5) * weight


def _rms_sum(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-5) * weight


def _rms_length(x: Tensor, weight: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True) * weight


def _rms_magnitudes(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.abs().mean(-1, keepdim=True) + 1e-5) * weight


def _run_rms_norm(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, weight = given
    if not isinstance(answer, type | nn.Module):
        return answer(x, weight)
    layer = build(answer, (x.size(-1),), {"weight": weight.shape})
    if layer is ...:
        return ...
    # The numbers of the case take its place, so this is the moment to look at it.
    other = layer.weight[layer.weight != 1]
    if other.numel():
        started = format_number(other[0].item())
        raise Misbuilt(
            f"A number of your fresh weight is {started}: it must start at 1, so that a fresh "
            "layer only divides."
        )
    return functional_call(layer, {"weight": weight}, (x,))


def _other_eps(norm: Callable[..., Tensor]) -> dict[str, Callable[..., Tensor]]:
    return {
        f"Your eps is {eps}: take 1e-5, as the task says.": partial(norm, eps=float(eps))
        for eps in ("1e-3", "1e-6", "1e-8")
    }


def _means_shape(*, dim: int | tuple[int, ...] = -1, keepdim: bool = True) -> tuple[int, ...]:
    return tuple(companion_heads()[0].mean(dim, keepdim=keepdim).shape)


def _who_moves(*, dim: int | tuple[int, ...] = -1) -> frozenset[str]:
    words = [word for sentence in example.words["src"] for word in sentence]
    fish, cat = map(example.vocabulary.index, ("fish", "cat"))
    replaced = example.src.masked_fill(example.src == fish, cat)
    one = torch.ones(3)
    before, after = (
        _layer_norm(vectors(ids), one, 0 * one, dim=dim).flatten(0, 1)
        for ids in (example.src, replaced)
    )
    moved = (before != after).any(-1).tolist()
    return frozenset(word for word, moves in zip(words, moved, strict=True) if moves)


def _rows(
    layer_norm: Callable[..., Tensor] = _layer_norm, rms_norm: Callable[..., Tensor] = _rms_norm
) -> list[Any]:
    row, one = torch.tensor([1.0, 1, 1, 1, 6]), torch.ones(5)
    normed = [layer_norm(x, one, 0 * one) for x in (row, 10 * row)]
    # On paper there is no eps.
    return torch.stack([*normed, rms_norm(5 * one, one)]).round(decimals=4).tolist()


def _rows_grown() -> list[Any]:
    first, _, third = _rows()
    return [first, [10 * number for number in first], third]


QUESTIONS = (
    Question(
        name="means_shape",
        contract="the means of a LayerNorm over the queries of the companion's heads, with "
        "keepdim -> (batch, head, query, d_k)",
        right=_means_shape,
        wrong={
            "ln-sequence": partial(_means_shape, dim=-2),
            "ln-batch": partial(_means_shape, dim=0),
            "ln-no-keepdim": partial(_means_shape, keepdim=False),
        },
        slips={
            "That is the shape of the queries themselves. What becomes of the axis that is "
            "averaged?": lambda: tuple(companion_heads()[0].shape),
            "So the heads of a token share one mean: the query of each head is normalised by "
            "itself.": partial(_means_shape, dim=(1, 3)),
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
        slips={
            "That is the new word: call the place by the word that it takes the place "
            "of.": lambda: frozenset({"cat"}),
            "So all tokens would share one mean and one variance: each token has its own.": partial(
                _who_moves, dim=(0, 1)
            ),
        },
    ),
    Question(
        name="three_rows",
        contract="LayerNorm of 1 1 1 1 6 and of 10 10 10 10 60, and RMSNorm of 5 5 5 5 5",
        right=_rows,
        wrong={"ln-unbiased": partial(_rows, _ln_unbiased)},
        slips={
            "The second row is ten times the first: are its deviations so too, and its "
            "root?": _rows_grown,
            "Rows 1 and 2 are right. The third is an RMSNorm, which takes no mean off.": partial(
                _rows, rms_norm=lambda x, one: _layer_norm(x, one, 0 * one)
            ),
            "You divided by the variance: take its root first.": partial(_rows, _ln_no_root),
            "You divided and took no mean off: LayerNorm does both, the mean first.": partial(
                _rows, _ln_mean_kept
            ),
        },
        decimals=2,
    ),
)

TARGETS = (
    Target(
        name="layer_norm",
        contract="x (*batch, d_model), weight (d_model), bias (d_model) -> (*batch, d_model)",
        right=_layer_norm,
        cases=_layer_norm_cases,
        slips={
            "The mean and the variance have changed places: torch.var_mean returns the variance "
            "first.": _ln_turned,
            "Your eps stands outside the root: add it to the variance, and then take the "
            "root.": _ln_eps_outside,
            "You divided by the variance: take its root first.": _ln_no_root,
            "You divided and took no mean off: subtract it from x first.": _ln_mean_kept,
            "This is an RMSNorm with a bias: take the mean off first.": lambda x, weight, bias: (
                _rms_norm(x, weight) + bias
            ),
            "Your weight stretches the bias as well: multiply first, and add the bias to "
            "that.": lambda x, weight, bias: _layer_norm(x, weight, bias * weight),
            **_other_eps(_layer_norm),
        },
        avoid=("layer_norm", "LayerNorm"),
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
        halves={
            "ln-sequence": (
                partial(_rms_norm, dim=1),
                lambda x, weight: _rms_norm(x, weight, dim=tuple(range(1, x.ndim))),
            ),
            "ln-batch": (lambda x, weight: _rms_norm(x, weight, dim=tuple(range(x.ndim - 1))),),
        },
        slips={
            "You divided by the mean square: take its root first.": _rms_no_root,
            "You took the root of the sum of the squares: of their mean is due.": _rms_sum,
            "You divided by the length of the vector, the root of a sum: the root of the mean "
            "of the squares is due.": _rms_length,
            "You took the mean of the sizes: square first, then take the mean, then the "
            "root.": _rms_magnitudes,
            "You took the mean off: RMSNorm only divides.": lambda x, weight: _layer_norm(
                x, weight, torch.zeros_like(weight)
            ),
            "You multiplied by 1 + weight: the weight starts at 1, so it stretches as it "
            "is.": lambda x, weight: _rms_norm(x, 1 + weight),
            "Your eps is 0, or far smaller than 1e-5: small numbers show it.": partial(
                _rms_norm, eps=1e-10
            ),
            **_other_eps(_rms_norm),
        },
        avoid=("rms_norm", "RMSNorm"),
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
        sentence="Your variance is that of a sample, the squares divided by d_model - 1: divide "
        "by d_model (in torch unbiased=False, or correction=0).",
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
        "each word's own features, the last axis (-1).",
        step="07",
        target="layer_norm",
        wrong=_ln_sequence,
        plant=Plant("normalization", _over("-1"), _over("1 if x.ndim == 3 else -1")),
        variants=(_ln_sentence, partial(_layer_norm, dim=1)),
    ),
    Mistake(
        id="ln-batch",
        sentence="You normalised across the batch, so that sentences hear of each other: normalise "
        "each word's own features, the last axis (-1).",
        step="07",
        target="layer_norm",
        wrong=_ln_batch,
        plant=Plant("normalization", _over("-1"), _over("0 if x.ndim == 3 else -1")),
        variants=(_ln_over_tokens,),
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
