"""Lesson 08: the residual connection."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import LayerNorm, Residual, RMSNorm
from twelve_lab import Trace

EITHER_ORDER = pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])


def double(x: torch.Tensor) -> torch.Tensor:
    return 2.0 * x


# By hand


def test_pre_norm_residual_adds_to_the_stream_as_it_was():
    x = torch.tensor([[[1.0, 2.0, 3.0]]])
    end = 1.0 / math.sqrt(2.0 / 3.0 + 1e-5)  # layer norm maps [1, 2, 3] to [-end, 0, end]
    expected = torch.tensor([[[1.0 - 2.0 * end, 2.0, 3.0 + 2.0 * end]]])
    assert_close(Residual(3)(x, double), expected)


def test_post_norm_residual_normalises_the_sum():
    x = torch.tensor([[[1.0, 2.0, 3.0]]])
    # x + 2x = [3, 6, 9] has mean 6 and variance 6.
    end = 3.0 / math.sqrt(6.0 + 1e-5)
    assert_close(Residual(3, norm_first=False)(x, double), torch.tensor([[[-end, 0.0, end]]]))


# Oracle


@EITHER_ORDER
def test_residual_equals_torch_in_values_and_gradients(sizes, draw, noisy, assert_same, norm_first):
    residual = noisy(Residual(sizes.d_model, norm_first=norm_first))
    norm, sublayer = nn.LayerNorm(sizes.d_model), nn.Linear(sizes.d_model, sizes.d_model)
    norm.load_state_dict(residual.norm.state_dict())
    x = draw(sizes.batch, sizes.src, sizes.d_model).requires_grad_()
    expected = x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))
    ours = [x, *residual.parameters()]
    assert_same(residual(x, sublayer), expected, ours, [x, *norm.parameters()])


# Laws


def test_residual_takes_another_norm(draw):
    norm, x = RMSNorm(3, eps=0.5), draw(2, 4, 3)
    assert_close(Residual(3, norm=norm)(x, double), x + 2.0 * norm(x))
    assert_close(Residual(3, norm_first=False, norm=norm)(x, double), norm(3.0 * x))
    default = Residual(3).norm
    assert isinstance(default, LayerNorm) and default.eps == 1e-5


@EITHER_ORDER
def test_residual_applies_dropout_to_the_update_only(sizes, draw, norm_first):
    residual = Residual(sizes.d_model, norm_first=norm_first, dropout=0.25)
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    with Trace(residual) as trace:
        output = residual(x, torch.ones_like)
    added = trace["added"].value
    dropped = torch.isclose(added, x)
    assert 0.0 < dropped.double().mean() < 0.5
    assert_close(added[~dropped], x[~dropped] + 1.0 / 0.75)
    assert torch.equal(output, added if norm_first else residual.norm(added))
