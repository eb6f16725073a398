"""Step 07: every vector is brought to one scale, by its own numbers alone."""

import math

import oracle
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import LayerNorm, RMSNorm
from twelve_lab import Trace

BOTH = [LayerNorm, RMSNorm]
TORCH = {LayerNorm: nn.LayerNorm, RMSNorm: nn.RMSNorm}


def test_the_variance_is_divided_by_the_number_of_features():
    # Mean 2, variance (1 + 0 + 1) / 3 and not / 2: the outer numbers land on √1.5, not on 1.
    end = 1.0 / math.sqrt(2.0 / 3.0 + 1e-5)
    assert_close(end, 1.224736, rtol=0.0, atol=5e-7)  # six decimals are given
    expected = torch.tensor([[-end, 0.0, end]])
    assert_close(LayerNorm(3)(torch.tensor([[1.0, 2.0, 3.0]])), expected)


def test_the_root_mean_square_is_not_a_distance_from_the_mean():
    root = math.sqrt((1.0 + 4.0 + 9.0) / 3.0 + 1e-5)
    expected = torch.tensor([[1.0 / root, 2.0 / root, 3.0 / root]])
    assert_close(RMSNorm(3)(torch.tensor([[1.0, 2.0, 3.0]])), expected)


def test_in_small_numbers_the_place_of_eps_is_seen():
    x = torch.tensor([[0.001, 0.002, 0.003]])
    rms = torch.tensor([[0.2611, 0.5222, 0.7833]])
    layer = torch.tensor([[-0.001, 0.0, 0.001]]) / math.sqrt(2e-6 / 3.0 + 1e-5)
    assert_close(RMSNorm(3)(x), rms, rtol=0.0, atol=5e-5)  # four decimals are given
    assert_close(LayerNorm(3)(x), layer)


def test_weight_and_bias_scale_and_shift_each_feature():
    norm = LayerNorm(2, eps=1e-12)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([2.0, 3.0]))
        norm.bias.copy_(torch.tensor([10.0, 20.0]))
    assert_close(norm(torch.tensor([[4.0, 6.0]])), torch.tensor([[8.0, 23.0]]))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("eps", [1e-5, 1e-2])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_it_equals_torch_in_values_and_gradients(sizes, draw, noisy, kind, eps, size):
    ours = noisy(kind(sizes.d_model, eps=eps))
    theirs = TORCH[kind](sizes.d_model, eps=eps)
    theirs.load_state_dict(ours.state_dict())
    x = (size * draw(sizes.batch, sizes.src, sizes.d_model)).requires_grad_()
    assert_close(ours(x), theirs(x))

    direction = draw(*x.shape)
    expected = torch.autograd.grad(theirs(x), [x, *theirs.parameters()], direction)
    inputs = [x, *ours.parameters()]
    assert_close(torch.autograd.grad(ours(x), inputs, direction), expected)


@pytest.mark.parametrize("kind", BOTH)
def test_eps_is_one_in_a_hundred_thousand_unless_given(draw, kind):
    x = 1e-3 * draw(5, 3)
    assert_close(kind(3)(x), TORCH[kind](3, eps=1e-5)(x))


def test_every_intermediate_equals_numpy(sizes, draw, noisy):
    norm = noisy(LayerNorm(sizes.d_model))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    with Trace(norm) as trace:
        norm(x)
    weight, bias = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    expected = oracle.layer_norm(x.numpy(), weight, bias)
    assert list(trace) == list(expected)
    for name, value in expected.items():
        assert_close(trace[name].value, torch.from_numpy(value))


def test_the_root_mean_square_equals_numpy(sizes, draw, noisy):
    norm = noisy(RMSNorm(sizes.d_model))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    with Trace(norm) as trace:
        norm(x)
    mean_square = (x.numpy() ** 2).mean(-1, keepdims=True)
    normalized = x.numpy() / (mean_square + 1e-5) ** 0.5
    output = normalized * norm.weight.detach().numpy()
    expected = {"mean_square": mean_square, "normalized": normalized, "output": output}
    assert list(trace) == list(expected)
    for name, value in expected.items():
        assert_close(trace[name].value, torch.from_numpy(value))


def test_mean_0_and_variance_1_come_out(sizes, draw):
    output = LayerNorm(sizes.d_model)(1e3 * draw(sizes.batch, sizes.src, 24) + 50.0)
    assert_close(output.mean(-1), torch.zeros(sizes.batch, sizes.src))
    assert_close(output.var(-1, unbiased=False), torch.ones(sizes.batch, sizes.src))


def test_a_root_mean_square_of_1_comes_out(sizes, draw):
    output = RMSNorm(sizes.d_model)(1e3 * draw(sizes.batch, sizes.src, 24))
    assert_close(output.square().mean(-1), torch.ones(sizes.batch, sizes.src))


def test_shift_and_scale_of_a_vector_do_not_matter_to_layer_norm(sizes, draw):
    norm, x = LayerNorm(sizes.d_model, eps=1e-12), draw(sizes.batch, sizes.src, sizes.d_model)
    assert_close(norm(5.0 * x + 3.0), norm(x))


def test_rms_norm_keeps_the_direction_and_layer_norm_does_not(draw):
    x = draw(5, 3) + 2.0
    cosine = torch.cosine_similarity(RMSNorm(3)(x), x, dim=-1)
    assert_close(cosine, torch.ones(5))
    assert (torch.cosine_similarity(LayerNorm(3)(x), x, dim=-1) < 0.9).all()


@pytest.mark.parametrize("kind", BOTH)
def test_each_token_is_normalised_by_its_own_numbers(sizes, draw, noisy, kind):
    norm = noisy(kind(sizes.d_model))
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    changed = x.clone()
    changed[0, 1] = draw(sizes.d_model)
    moved = (norm(x) != norm(changed)).any(-1)
    assert moved.nonzero().tolist() == [[0, 1]]


@pytest.mark.parametrize("kind", BOTH)
def test_a_square_of_numbers_is_normalised_by_rows(kind):
    x = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 60.0], [0.0, 0.0, 9.0]])
    together = kind(3)(x)
    for row in range(3):
        assert_close(together[row], kind(3)(x[row]))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_row_of_zeros_stays_zero_in_any_type(kind, dtype):
    output = kind(3).to(dtype)(torch.zeros(2, 3, dtype=dtype))
    assert output.dtype == dtype
    assert torch.equal(output, torch.zeros(2, 3, dtype=dtype))


def test_a_single_feature_has_no_variance_and_becomes_the_bias(draw, noisy):
    norm = noisy(LayerNorm(1))
    assert_close(norm(draw(4, 1)), norm.bias.expand(4, 1))


@pytest.mark.parametrize(
    ("kind", "names"), [(LayerNorm, ["weight", "bias"]), (RMSNorm, ["weight"])]
)
def test_scales_start_at_1_and_shifts_at_0(sizes, kind, names):
    state = kind(sizes.d_model).state_dict()
    assert list(state) == names
    assert torch.equal(state["weight"], torch.ones(sizes.d_model))
    if "bias" in state:
        assert torch.equal(state["bias"], torch.zeros(sizes.d_model))


@pytest.mark.parametrize("kind", BOTH)
def test_saved_weights_give_the_same_layer(sizes, draw, noisy, kind):
    norm, fresh = noisy(kind(sizes.d_model)), kind(sizes.d_model)
    fresh.load_state_dict(norm.state_dict())
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert torch.equal(fresh(x), norm(x))


@pytest.mark.parametrize("kind", BOTH)
def test_it_shows_its_sizes(kind):
    assert repr(kind(3)) == f"{kind.__name__}(d_model=3, eps=1e-05)"


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_row_whose_squares_overflow_in_half_precision_is_normalised(kind, dtype):
    x = torch.tensor([[1000.0, -1000.0, 500.0], [1e-3, 2e-3, 3e-3]], dtype=dtype)
    expected = kind(3)(x.double())
    output = kind(3).to(dtype)(x)
    assert output.dtype == dtype
    # Half precision keeps 11 bits, and bfloat16 8.
    tolerance = {torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
