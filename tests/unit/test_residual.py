"""Step 08: a sublayer adds to what it was given and never replaces it."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import LayerNorm, Residual, RMSNorm
from twelve_lab import Trace

END = 1.0 / math.sqrt(2.0 / 3.0 + 1e-5)  # where LayerNorm puts the 3 of [1, 2, 3]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2.0 * x


def test_pre_norm_adds_to_what_came_in_and_not_to_what_was_normalised():
    x = torch.tensor([[[1.0, 2.0, 3.0]]])
    expected = torch.tensor([[[1.0 - 2.0 * END, 2.0, 3.0 + 2.0 * END]]])
    assert_close(Residual(3)(x, doubled), expected)


def test_post_norm_normalises_the_sum():
    x = torch.tensor([[[1.0, 2.0, 3.0]]])
    # x + 2x = [3, 6, 9]: mean 6, variance 6.
    end = 3.0 / math.sqrt(6.0 + 1e-5)
    assert_close(Residual(3, norm_first=False)(x, doubled), torch.tensor([[[-end, 0.0, end]]]))


def test_another_norm_takes_the_place_of_layer_norm(draw):
    norm, x = RMSNorm(3, eps=0.5), draw(2, 4, 3)
    assert_close(Residual(3, norm=norm)(x, doubled), x + 2.0 * norm(x))
    assert_close(Residual(3, norm_first=False, norm=norm)(x, doubled), norm(3.0 * x))


@pytest.mark.parametrize("norm_first", [True, False])
def test_it_equals_the_same_sum_built_from_torch(sizes, draw, noisy, norm_first):
    residual = noisy(Residual(sizes.d_model, norm_first=norm_first))
    norm, sublayer = nn.LayerNorm(sizes.d_model), nn.Linear(sizes.d_model, sizes.d_model)
    norm.load_state_dict(residual.norm.state_dict())
    x = draw(sizes.batch, sizes.src, sizes.d_model).requires_grad_()
    expected = x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))
    output = residual(x, sublayer)
    assert_close(output, expected)

    direction = draw(*x.shape)
    gradients = torch.autograd.grad(expected, [x, *norm.parameters()], direction)
    inputs = [x, *residual.parameters()]
    assert_close(torch.autograd.grad(output, inputs, direction), gradients)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_sublayer_is_given_the_normed_stream_in_pre_norm_only(sizes, draw, noisy, norm_first):
    residual = noisy(Residual(sizes.d_model, norm_first=norm_first))
    x, given = draw(sizes.batch, sizes.src, sizes.d_model), []

    def sublayer(normed: torch.Tensor) -> torch.Tensor:
        given.append(normed)
        return normed

    residual(x, sublayer)
    assert len(given) == 1
    assert torch.equal(given[0], residual.norm(x) if norm_first else x)


def test_a_sublayer_that_adds_nothing_is_the_identity(sizes, draw, noisy):
    residual = noisy(Residual(sizes.d_model))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert torch.equal(residual(x, torch.zeros_like), x)


def test_post_norm_has_no_identity_path(sizes, draw, noisy):
    residual = noisy(Residual(sizes.d_model, norm_first=False))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert torch.equal(residual(x, torch.zeros_like), residual.norm(x))


def test_the_gradient_has_a_path_past_a_sublayer_that_passes_none_on(sizes, draw):
    residual = Residual(sizes.d_model)
    x = draw(sizes.batch, sizes.src, sizes.d_model).requires_grad_()
    direction = draw(*x.shape)
    residual(x, lambda normed: 0.0 * normed).backward(direction)
    assert_close(x.grad, direction)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_norm_runs_once(sizes, draw, norm_first):
    residual, calls = Residual(sizes.d_model, norm_first=norm_first), []
    residual.norm.register_forward_hook(lambda *call: calls.append(call))
    residual(draw(sizes.batch, sizes.src, sizes.d_model), doubled)
    assert len(calls) == 1


def test_dropout_falls_on_what_is_added_and_only_in_training(sizes, draw):
    residual = Residual(sizes.d_model, dropout=0.25)
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    added = residual(x, torch.ones_like) - x
    gone = added.abs() < 0.5
    assert 0.0 < gone.double().mean() < 0.5
    assert_close(added[gone], torch.zeros_like(added[gone]))
    assert_close(added[~gone], torch.full_like(added[~gone], 1.0 / 0.75))
    assert torch.equal(residual.eval()(x, torch.ones_like), x + 1.0)


def test_in_post_norm_dropout_falls_before_the_norm(sizes, draw):
    residual = Residual(sizes.d_model, norm_first=False, dropout=0.25)
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    with Trace(residual) as trace:
        output = residual(x, torch.ones_like)
    assert 0.0 < torch.isclose(trace["added"].value, x).double().mean() < 0.5
    assert torch.equal(output, residual.norm(trace["added"].value))


def test_the_input_is_left_as_it_was(sizes, draw):
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    before = x.clone()
    Residual(sizes.d_model)(x, doubled)
    assert torch.equal(x, before)


def test_its_norm_is_ours_with_our_eps(sizes):
    norm = Residual(sizes.d_model).norm
    assert isinstance(norm, LayerNorm)
    assert norm.eps == 1e-5


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_trace_shows_norm_and_sum_in_the_order_in_which_they_are_computed(
    sizes, draw, norm_first
):
    residual = Residual(sizes.d_model, norm_first=norm_first)
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    with Trace(residual) as trace:
        residual(x, doubled)
    norm = [f"norm.{name}" for name in ("mean", "variance", "normalized", "output")]
    assert list(trace) == ([*norm, "added"] if norm_first else ["added", *norm])
    assert trace["added"].axes == ("batch", "seq", "d_model")


def test_saved_weights_give_the_same_layer(sizes, draw, noisy):
    residual, fresh = noisy(Residual(sizes.d_model)), Residual(sizes.d_model)
    assert list(residual.state_dict()) == ["norm.weight", "norm.bias"]
    fresh.load_state_dict(residual.state_dict())
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert torch.equal(fresh(x, doubled), residual(x, doubled))


def test_it_shows_its_sizes():
    assert "(\n  d_model=3, norm_first=False\n" in repr(Residual(3, norm_first=False))
