"""Step 09: two linear layers and a bend between them, at each position alone."""

import math

import oracle
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from twelve import FeedForward, SwiGLU
from twelve_lab import Trace

BENDS = {"relu": nn.ReLU, "gelu": nn.GELU}


def by_hand(activation: str) -> FeedForward:
    """Expand x to (x, -x), bend, and bring it back as 10 · first + 100 · second + 1000."""
    layer = FeedForward(1, 2, activation=activation)
    with torch.no_grad():
        layer.up.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        layer.up.bias.copy_(torch.tensor([0.0, 3.0]))
        layer.down.weight.copy_(torch.tensor([[10.0, 100.0]]))
        layer.down.bias.copy_(torch.tensor([1000.0]))
    return layer


def test_relu_lets_through_what_is_above_zero():
    # x = 1: (1, 2) stays; x = 5: (5, -2) loses its second; x = -1: (-1, 4) its first.
    output = by_hand("relu")(torch.tensor([[1.0], [5.0], [-1.0]]))
    assert_close(output, torch.tensor([[1210.0], [1050.0], [1400.0]]))


def test_gelu_is_x_times_the_share_of_a_normal_distribution_below_x():
    # Φ(1) = 0.841345 and Φ(2) = 0.977250: GELU(1) = 0.841345, GELU(2) = 1.954500.
    expected = torch.tensor([[1000.0 + 8.41345 + 195.45]])
    # Φ is given to six decimals: up to 100 · 2 · 5e-7 off. The tanh form is 0.0083 off.
    assert_close(by_hand("gelu")(torch.tensor([[1.0]])), expected, rtol=0.0, atol=1.1e-4)


def test_swiglu_multiplies_what_is_expanded_by_what_the_gate_lets_through():
    layer = SwiGLU(1, 1)
    with torch.no_grad():
        layer.gate.weight.fill_(math.log(3.0))
        layer.up.weight.fill_(4.0)
        layer.down.weight.fill_(2.0)
    # SiLU(ln 3) = ln 3 · 3/4, and at x = -1 SiLU(-ln 3) = -ln 3 · 1/4.
    expected = torch.tensor([[6.0 * math.log(3.0)], [2.0 * math.log(3.0)]])
    assert_close(layer(torch.tensor([[1.0], [-1.0]])), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", BENDS)
def test_it_equals_torch_in_values_and_gradients(sizes, draw, noisy, activation, bias):
    ours = noisy(FeedForward(sizes.d_model, sizes.d_ff + 1, activation=activation, bias=bias))
    up = nn.Linear(sizes.d_model, sizes.d_ff + 1, bias=bias)
    down = nn.Linear(sizes.d_ff + 1, sizes.d_model, bias=bias)
    up.load_state_dict(ours.up.state_dict())
    down.load_state_dict(ours.down.state_dict())
    theirs = nn.Sequential(up, BENDS[activation](), down)
    x = draw(sizes.batch, sizes.src, sizes.d_model).requires_grad_()
    assert_close(ours(x), theirs(x))

    direction = draw(*x.shape)
    expected = torch.autograd.grad(theirs(x), [x, *theirs.parameters()], direction)
    inputs = [x, *ours.parameters()]
    assert_close(torch.autograd.grad(ours(x), inputs, direction), expected)


@pytest.mark.parametrize("activation", BENDS)
def test_every_intermediate_equals_numpy(sizes, draw, noisy, activation):
    layer = noisy(FeedForward(sizes.d_model, activation=activation))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    with Trace(layer) as trace:
        layer(x)
    weights = {
        f"{kind[0]}_{part}": layer.get_parameter(f"{part}.{kind}").detach().numpy().T
        for part in ("up", "down")
        for kind in ("weight", "bias")
    }
    expected = oracle.feed_forward(x.numpy(), weights, activation)
    assert list(trace) == list(expected)
    for name, value in expected.items():
        assert_close(trace[name].value, torch.from_numpy(value))


def test_swiglu_equals_its_equation_built_from_torch(sizes, draw, noisy):
    layer = noisy(SwiGLU(sizes.d_model, 64))
    x = draw(sizes.batch, sizes.src, sizes.d_model).requires_grad_()
    with Trace(layer) as trace:
        output = layer(x)
    gate = F.silu(F.linear(x, layer.gate.weight))
    expanded = F.linear(x, layer.up.weight)
    steps = {"gate": gate, "expanded": expanded, "gated": gate * expanded}
    steps["output"] = F.linear(gate * expanded, layer.down.weight)
    assert list(trace) == list(steps)
    for name, value in steps.items():
        assert_close(trace[name].value, value.detach())

    direction, inputs = draw(*x.shape), [x, *layer.parameters()]
    expected = torch.autograd.grad(steps["output"], inputs, direction)
    assert_close(torch.autograd.grad(output, inputs, direction), expected)


@pytest.mark.parametrize("build", [FeedForward, SwiGLU])
def test_each_position_is_transformed_alone(sizes, draw, noisy, build):
    layer = noisy(build(sizes.d_model, sizes.d_ff))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    changed = x.clone()
    changed[0, 1] = draw(sizes.d_model)
    # The rows of one product may be summed in another order: a bit of noise is no influence.
    moved = ((layer(x) - layer(changed)).abs() > 1e-12).any(-1)
    assert moved.nonzero().tolist() == [[0, 1]]


@pytest.mark.parametrize("build", [FeedForward, SwiGLU])
def test_every_position_is_transformed_by_the_same_weights(sizes, draw, noisy, build):
    layer = noisy(build(sizes.d_model, sizes.d_ff))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert_close(layer(x.flip(1)), layer(x).flip(1))
    assert_close(layer(x.flatten(0, 1)), layer(x).flatten(0, 1))


def test_it_is_four_times_as_wide_inside_unless_asked_for(sizes):
    assert FeedForward(sizes.d_model).up.weight.shape == (4 * sizes.d_model, sizes.d_model)
    assert FeedForward(sizes.d_model, 7).up.weight.shape == (7, sizes.d_model)


def test_relu_is_the_bend_unless_asked_for(draw):
    layer = FeedForward(3)
    with Trace(layer) as trace:
        layer(draw(5, 3))
    assert torch.equal(trace["activated"].value, trace["pre_activation"].value.relu())


def test_dropout_falls_on_the_activated_features_and_only_in_training(sizes, draw):
    layer, given = FeedForward(sizes.d_model, dropout=0.25, activation="gelu"), []
    layer.down.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
    with Trace(layer) as trace:
        output = layer(draw(sizes.batch, sizes.src, sizes.d_model))
    activated = trace["activated"].value
    gone = given[0] == 0.0
    assert 0.0 < gone.double().mean() < 0.5
    assert_close(given[0][~gone], activated[~gone] / 0.75)
    assert torch.equal(output, layer.down(given[0]))

    layer.eval()(draw(sizes.batch, sizes.src, sizes.d_model))
    assert (given[-1] != 0.0).all()


def test_swiglu_has_three_matrices_and_no_bias(sizes):
    state = SwiGLU(sizes.d_model, 64).state_dict()
    assert list(state) == ["gate.weight", "up.weight", "down.weight"]
    assert [tuple(weight.shape) for weight in state.values()] == [(64, 24), (64, 24), (24, 64)]


def test_eight_thirds_of_d_model_make_swiglu_as_large_as_a_feed_forward_layer(sizes):
    def count(layer: nn.Module) -> int:
        return sum(parameter.numel() for parameter in layer.parameters())

    plain = FeedForward(sizes.d_model, 4 * sizes.d_model, bias=False)
    assert count(SwiGLU(sizes.d_model, 8 * sizes.d_model // 3)) == count(plain)


def test_both_layers_have_a_bias_unless_asked_for(sizes):
    names = ["up.weight", "up.bias", "down.weight", "down.bias"]
    assert list(FeedForward(sizes.d_model).state_dict()) == names
    assert list(FeedForward(sizes.d_model, bias=False).state_dict()) == names[::2]


@pytest.mark.parametrize("build", [FeedForward, SwiGLU])
def test_the_axes_hold_under_the_trace(sizes, draw, build):
    layer = build(sizes.d_model, sizes.d_ff)
    with Trace(layer) as trace:
        layer(draw(sizes.batch, sizes.src, sizes.d_model))
    assert trace["output"].shape == (sizes.batch, sizes.src, sizes.d_model)
    assert {entry.axes[-1] for entry in trace.values()} == {"d_ff", "d_model"}


@pytest.mark.parametrize("build", [FeedForward, SwiGLU])
def test_saved_weights_give_the_same_layer(sizes, draw, build):
    layer, fresh = (build(sizes.d_model, sizes.d_ff) for _ in range(2))
    fresh.load_state_dict(layer.state_dict())
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert torch.equal(fresh(x), layer(x))


def test_it_shows_its_activation():
    assert "(\n  activation='gelu'\n" in repr(FeedForward(3, activation="gelu"))
