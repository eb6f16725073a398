"""Step 08: what the sum around a sublayer invites."""

from collections.abc import Callable

import torch
from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Target
from twelve.normalization import LayerNorm

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


TARGETS = (
    Target(
        name="residual",
        contract="x (batch, seq, d_model), sublayer and norm, functions that keep the shape -> "
        "(batch, seq, d_model), pre-norm",
        right=_residual,
        cases=_residual_cases,
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
