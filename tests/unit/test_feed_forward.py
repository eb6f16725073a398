"""Lesson 09: the feed-forward layer and SwiGLU."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import FeedForward, SwiGLU
from twelve_lab import Trace

TORCH = {
    "relu": nn.ReLU, "gelu": nn.GELU, "gelu_tanh": partial(nn.GELU, "tanh"), "silu": nn.SiLU,
}  # fmt: skip


# By hand


def test_relu_feed_forward_sets_negative_features_to_zero():
    # Expand x to (x, 3 - x), activate, and return 10 · first + 100 · second + 1,000.
    layer = FeedForward(1, 2)
    with torch.no_grad():
        layer.up.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        layer.up.bias.copy_(torch.tensor([0.0, 3.0]))
        layer.down.weight.copy_(torch.tensor([[10.0, 100.0]]))
        layer.down.bias.copy_(torch.tensor([1000.0]))
    # ReLU keeps (1, 2) of x = 1, sets (5, -2) of x = 5 to (5, 0), and (-1, 4) of x = -1 to (0, 4).
    assert_close(
        layer(torch.tensor([[1.0], [5.0], [-1.0]])), torch.tensor([[1210.0], [1050.0], [1400.0]])
    )


def test_swiglu_multiplies_silu_of_the_gate_by_the_expanded_features():
    # SiLU(ln 3) = 3/4 · ln 3 for x = 1, and SiLU(-ln 3) = -1/4 · ln 3 for x = -1.
    expected = torch.tensor([[6.0 * math.log(3.0)], [2.0 * math.log(3.0)]])
    assert_close(gate_of_log_three("silu")(torch.tensor([[1.0], [-1.0]])), expected)


def test_swiglu_can_have_another_activation():
    # ReLU(ln 3) = ln 3, and ReLU(-ln 3) = 0.
    expected = torch.tensor([[8.0 * math.log(3.0)], [0.0]])
    assert_close(gate_of_log_three("relu")(torch.tensor([[1.0], [-1.0]])), expected)


def gate_of_log_three(activation: str) -> SwiGLU:
    layer = SwiGLU(1, 1, activation=activation)
    with torch.no_grad():
        layer.gate.weight.fill_(math.log(3.0))
        layer.up.weight.fill_(4.0)
        layer.down.weight.fill_(2.0)
    return layer


# Oracle


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", TORCH)
def test_feed_forward_equals_torch_in_values_and_gradients(
    sizes, draw, noisy, assert_same, activation, bias
):
    ours = noisy(FeedForward(sizes.d_model, sizes.d_ff + 1, activation=activation, bias=bias))
    up = nn.Linear(sizes.d_model, sizes.d_ff + 1, bias=bias)
    down = nn.Linear(sizes.d_ff + 1, sizes.d_model, bias=bias)
    up.load_state_dict(ours.up.state_dict())
    down.load_state_dict(ours.down.state_dict())
    theirs = nn.Sequential(up, TORCH[activation](), down)
    x = draw(sizes.batch, sizes.src, sizes.d_model).requires_grad_()
    assert_same(ours(x), theirs(x), [x, *ours.parameters()], [x, *theirs.parameters()])


# Laws


def test_feed_forward_is_four_times_as_wide_inside_by_default(sizes):
    assert FeedForward(sizes.d_model).up.weight.shape == (4 * sizes.d_model, sizes.d_model)
    assert FeedForward(sizes.d_model, 7).up.weight.shape == (7, sizes.d_model)


def test_feed_forward_applies_dropout_to_the_activated_features(sizes, draw):
    layer, inputs = FeedForward(sizes.d_model, dropout=0.25, activation="gelu"), []
    layer.down.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    with Trace(layer) as trace:
        output = layer(draw(sizes.batch, sizes.src, sizes.d_model))
    (kept,), activated = inputs, trace["activated"].value
    dropped = kept == 0.0
    assert 0.0 < dropped.double().mean() < 0.5
    assert_close(kept[~dropped], activated[~dropped] / 0.75)
    assert torch.equal(output, layer.down(kept))


def test_feed_forward_has_biases_unless_switched_off_and_swiglu_has_none(sizes):
    names = ["up.weight", "up.bias", "down.weight", "down.bias"]
    assert list(FeedForward(sizes.d_model).state_dict()) == names
    assert list(FeedForward(sizes.d_model, bias=False).state_dict()) == names[::2]
    state = SwiGLU(sizes.d_model, 64).state_dict()
    assert list(state) == ["gate.weight", "up.weight", "down.weight"]
