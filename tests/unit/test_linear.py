"""Lesson 01: the linear layer."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import Linear

# By hand


def test_linear_multiplies_by_the_rows_of_the_weight_and_adds_the_bias():
    layer = Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]))
        layer.bias.copy_(torch.tensor([10.0, 20.0, 30.0]))
    assert_close(layer(torch.tensor([1.0, 2.0])), torch.tensor([11.0, 22.0, 29.0]))


# Oracle


@pytest.mark.parametrize("leading", [(), (2,), (2, 5), (2, 3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_equals_torch_in_values_and_gradients(
    sizes, draw, noisy, assert_same, leading, bias
):
    ours = noisy(Linear(sizes.d_model, sizes.d_ff, bias=bias))
    theirs = nn.Linear(sizes.d_model, sizes.d_ff, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    x = draw(*leading, sizes.d_model).requires_grad_()
    assert_same(ours(x), theirs(x), [x, *ours.parameters()], [x, *theirs.parameters()])


# Laws


def test_linear_has_glorot_weights_and_zero_biases(sizes):
    layer = Linear(sizes.d_model, sizes.d_ff)
    bound = math.sqrt(6.0 / (sizes.d_model + sizes.d_ff))
    assert 0.99 * bound < layer.weight.abs().max() <= bound
    # With 2,304 uniform weights, the standard error of the standard deviation is 0.93 %.
    assert_close(layer.weight.std().item(), bound / math.sqrt(3.0), rtol=0.05, atol=0.0)
    assert_close(layer.bias.detach(), torch.zeros(sizes.d_ff))


def test_linear_fills_all_memory_that_it_allocates(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *shape: torch.full(shape, math.nan))
    assert all(parameter.isfinite().all() for parameter in Linear(3, 4).parameters())
