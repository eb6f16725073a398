"""Lesson 07: layer norm and RMS norm."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import LayerNorm, RMSNorm

TORCH = {LayerNorm: nn.LayerNorm, RMSNorm: nn.RMSNorm}
BOTH = pytest.mark.parametrize("kind", TORCH)

# By hand


def test_layer_norm_divides_the_variance_by_the_number_of_features():
    # Mean 2, variance (1 + 0 + 1) / 3 rather than / 2: the outer values are ±√1.5, not ±1.
    end = 1.0 / math.sqrt(2.0 / 3.0 + 1e-5)
    assert_close(end, 1.224736, rtol=0.0, atol=5e-7)  # given to six decimals
    expected = torch.tensor([[-end, 0.0, end]])
    assert_close(LayerNorm(3)(torch.tensor([[1.0, 2.0, 3.0]])), expected)


def test_rms_norm_divides_by_the_root_mean_square():
    root = math.sqrt((1.0 + 4.0 + 9.0) / 3.0 + 1e-5)
    expected = torch.tensor([[1.0 / root, 2.0 / root, 3.0 / root]])
    assert_close(RMSNorm(3)(torch.tensor([[1.0, 2.0, 3.0]])), expected)


# Oracle


@BOTH
@pytest.mark.parametrize("eps", [{}, {"eps": 1e-2}], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_norm_equals_torch_in_values_and_gradients(
    sizes, draw, noisy, assert_same, kind, eps, size
):
    ours = noisy(kind(sizes.d_model, **eps))
    theirs = TORCH[kind](sizes.d_model, **{"eps": 1e-5} | eps)
    theirs.load_state_dict(ours.state_dict())
    x = (size * draw(sizes.batch, sizes.src, sizes.d_model)).requires_grad_()
    assert_same(ours(x), theirs(x), [x, *ours.parameters()], [x, *theirs.parameters()])


# Laws


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_norm_in_lower_precision_does_not_overflow(kind, dtype):
    x = torch.tensor([[1000.0, -1000.0, 500.0], [1e-3, 2e-3, 3e-3], [0.0, 0.0, 0.0]], dtype=dtype)
    output = kind(3).to(dtype)(x)
    assert output.dtype == dtype
    # float16 has 11 significant bits, and bfloat16 has 8.
    tolerance = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert_close(output.double(), kind(3)(x.double()), rtol=tolerance, atol=tolerance)
    assert not output[2].any()


@pytest.mark.parametrize(
    ("kind", "names"), [(LayerNorm, ["weight", "bias"]), (RMSNorm, ["weight"])]
)
def test_norm_starts_with_weight_1_and_bias_0(sizes, kind, names):
    state = kind(sizes.d_model).state_dict()
    assert list(state) == names
    for name in names:
        assert (state[name] == (1.0 if name == "weight" else 0.0)).all()
