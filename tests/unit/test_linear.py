"""Step 01: a linear layer mixes the features of each vector, and nothing else."""

import math

import oracle
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import Linear
from twelve_lab import Trace


def by_hand() -> Linear:
    """Map (a, b) to (a + 10, b + 20, a - b + 30)."""
    layer = Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]))
        layer.bias.copy_(torch.tensor([10.0, 20.0, 30.0]))
    return layer


def test_each_row_of_the_weight_looks_for_one_output_feature():
    assert_close(by_hand()(torch.tensor([1.0, 2.0])), torch.tensor([11.0, 22.0, 29.0]))


def test_without_a_bias_zero_stays_zero():
    layer = Linear(2, 3, bias=False)
    assert layer.bias is None
    assert list(layer.state_dict()) == ["weight"]
    assert_close(layer(torch.zeros(4, 2)), torch.zeros(4, 3))


def test_a_square_weight_is_not_mistaken_for_its_transpose():
    layer = Linear(2, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    assert_close(layer(torch.tensor([3.0, 5.0])), torch.tensor([5.0, 0.0]))


@pytest.mark.parametrize("leading", [(), (2,), (2, 5), (2, 3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_it_equals_torch_under_any_number_of_leading_axes(sizes, draw, noisy, leading, bias):
    ours = noisy(Linear(sizes.d_model, sizes.d_ff, bias=bias))
    theirs = nn.Linear(sizes.d_model, sizes.d_ff, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    x = draw(*leading, sizes.d_model).requires_grad_()

    assert_close(ours(x), theirs(x))
    direction = draw(*leading, sizes.d_ff)
    inputs = [x, *ours.parameters()]
    expected = torch.autograd.grad(theirs(x), [x, *theirs.parameters()], direction)
    assert_close(torch.autograd.grad(ours(x), inputs, direction), expected)


def test_it_equals_numpy_with_the_matrix_of_the_paper(sizes, draw, noisy):
    layer = noisy(Linear(sizes.d_model, sizes.d_ff))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    w, b = layer.weight.detach().numpy().T, layer.bias.detach().numpy()
    assert_close(layer(x), torch.from_numpy(oracle.linear(x.numpy(), w, b)))


def test_a_sum_of_inputs_gives_the_sum_of_the_outputs(sizes, draw, noisy):
    layer = noisy(Linear(sizes.d_model, sizes.d_ff, bias=False))
    x, y = draw(sizes.batch, sizes.d_model), draw(sizes.batch, sizes.d_model)
    assert_close(layer(2.0 * x - y), 2.0 * layer(x) - layer(y))


def test_a_position_does_not_see_its_neighbours(sizes, draw, noisy):
    layer = noisy(Linear(sizes.d_model, sizes.d_ff))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    changed = x.clone()
    changed[0, 1] += 1.0
    moved = (layer(x) != layer(changed)).any(-1)
    assert moved.nonzero().tolist() == [[0, 1]]


def test_weights_start_from_glorot_and_biases_from_zero(sizes):
    layer = Linear(sizes.d_model, sizes.d_ff)
    bound = math.sqrt(6.0 / (sizes.d_model + sizes.d_ff))
    assert 0.99 * bound < layer.weight.abs().max() <= bound
    # 2,304 uniform numbers: their standard deviation is off by 0.93 % in one standard error.
    assert_close(layer.weight.std().item(), bound / math.sqrt(3.0), rtol=0.05, atol=0.0)
    assert_close(layer.bias.detach(), torch.zeros(sizes.d_ff))


def test_a_bias_does_not_start_from_whatever_lay_in_memory():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # memory that nobody has filled holds NaN then
    try:
        bias = Linear(3, 4).bias
    finally:
        torch.use_deterministic_algorithms(before)
    assert bias.tolist() == [0.0, 0.0, 0.0, 0.0]


def test_the_input_is_left_as_it_was(draw, noisy):
    x = draw(5, 2)
    before = x.clone()
    noisy(Linear(2, 3))(x)
    assert torch.equal(x, before)


def test_the_axes_hold_under_the_trace_and_there_is_nothing_between_input_and_output(sizes, draw):
    layer = Linear(sizes.d_model, sizes.d_ff)
    with Trace(layer) as trace:
        layer(draw(sizes.batch, sizes.src, sizes.d_model))
    assert list(trace) == []


def test_saved_weights_give_the_same_layer(sizes, draw, noisy):
    layer, fresh = noisy(Linear(sizes.d_model, sizes.d_ff)), Linear(sizes.d_model, sizes.d_ff)
    fresh.load_state_dict(layer.state_dict())
    x = draw(sizes.batch, sizes.d_model)
    assert torch.equal(fresh(x), layer(x))


def test_it_shows_its_sizes():
    assert repr(Linear(2, 3)) == "Linear(d_in=2, d_out=3, bias=True)"
    assert repr(Linear(2, 3, bias=False)) == "Linear(d_in=2, d_out=3, bias=False)"
