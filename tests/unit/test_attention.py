"""Lesson 04: scaled dot-product attention."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from twelve import causal_mask, scaled_dot_product_attention
from twelve_lab import Trace

MASKS = ("none", "padding", "query and key", "shared by heads", "full", "causal", "empty rows")


@pytest.fixture
def qkv(sizes, draw) -> list[Tensor]:
    """Draw query, key and value with leading axes batch and head."""
    leading = (sizes.batch, sizes.heads)
    return [
        draw(*leading, sizes.tgt, sizes.d_k),
        draw(*leading, sizes.src, sizes.d_k),
        draw(*leading, sizes.src, sizes.d_v),
    ]


def make_mask(sizes, draw, name: str) -> Tensor | None:
    """Make the named kind of mask; only "empty rows" has fully masked rows."""
    if name in ("none", "causal"):
        return None if name == "none" else causal_mask(sizes.tgt, sizes.src)
    shape = {
        "padding": (sizes.batch, 1, 1, sizes.src),
        "query and key": (sizes.tgt, sizes.src),
        "shared by heads": (sizes.batch, 1, sizes.tgt, sizes.src),
    }.get(name, (sizes.batch, sizes.heads, sizes.tgt, sizes.src))
    mask = draw(*shape) < 0
    mask[..., 0] = True
    if name == "empty rows":
        mask[0, 1] = False
        mask[1, :, 2] = False
    return mask


# By hand


def test_attention_divides_scores_by_the_root_of_d_k():
    query = torch.ones(1, 4)
    key = torch.tensor([[0.0], [math.log(3.0) / 2.0]]).expand(2, 4)
    value = torch.tensor([[0.0, 1.0], [8.0, 5.0]])
    # The dot products 0 and 2 ln 3, divided by √4, are 0 and ln 3: the weights are 1/4 and 3/4.
    expected = torch.tensor([[6.0, 4.0]])
    assert_close(scaled_dot_product_attention(query, key, value), expected)


def test_attention_ignores_masked_keys():
    query, key = torch.ones(2, 1), torch.tensor([[0.0], [math.log(3.0)], [5.0]])
    value = torch.tensor([[0.0], [8.0], [100.0]])
    mask = torch.tensor([[True, True, False], [False, True, False]])
    expected = torch.tensor([[6.0], [8.0]])
    assert_close(scaled_dot_product_attention(query, key, value, mask), expected)


def test_attention_of_a_fully_masked_query_is_zero():
    query, key, value = torch.ones(2, 1), torch.zeros(2, 1), torch.tensor([[3.0], [5.0]])
    mask = torch.tensor([[True, True], [False, False]])
    expected = torch.tensor([[4.0], [0.0]])
    assert torch.equal(scaled_dot_product_attention(query, key, value, mask), expected)


# Oracle


@pytest.mark.parametrize("name", MASKS)
def test_attention_equals_torch_in_values_and_gradients(sizes, draw, qkv, assert_same, name):
    mask = make_mask(sizes, draw, name)
    inputs = [x.requires_grad_() for x in qkv]
    ours = scaled_dot_product_attention(*inputs, mask)
    assert_same(ours, F.scaled_dot_product_attention(*inputs, mask), inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_masked_attention_does_not_overflow_in_lower_precision(sizes, draw, qkv, dtype):
    mask = make_mask(sizes, draw, "empty rows")
    inputs = [x.to(dtype) for x in qkv]
    output = scaled_dot_product_attention(*inputs, mask)
    assert output.dtype == dtype
    # Fused kernels round other intermediate results, so allow two machine epsilons.
    expected = F.scaled_dot_product_attention(*inputs, mask)
    epsilon = torch.finfo(dtype).eps
    assert_close(output, expected, rtol=2.0 * epsilon, atol=2.0 * epsilon)


# Laws


def test_no_gradient_inside_attention_is_nan_under_a_fully_masked_row(sizes, draw, qkv):
    mask = make_mask(sizes, draw, "empty rows")
    with Trace(grad=True) as trace:
        output = scaled_dot_product_attention(qkv[0].requires_grad_(), *qkv[1:], mask)
    # Anomaly detection also raises on a NaN gradient that a later mask would remove.
    with torch.autograd.set_detect_anomaly(True):
        output.sum().backward()
    assert all(entry.grad.isfinite().all() for entry in trace.values())


def test_attention_applies_dropout_to_the_weights(sizes, qkv):
    # With an identity matrix as values, the output equals the weights after dropout.
    identity = torch.eye(sizes.src).expand(sizes.batch, sizes.heads, sizes.src, sizes.src)
    with Trace() as trace:
        kept = scaled_dot_product_attention(*qkv[:2], identity, None, 0.25)
    weights = trace["scaled_dot_product_attention.weights"].value
    dropped = kept == 0.0
    assert 0.0 < dropped.double().mean() < 0.5
    assert_close(kept[~dropped], weights[~dropped] / 0.75)
    # The dropout mask differs between queries: dropout acts on weights, not on values.
    assert (dropped != dropped[..., :1, :]).any()
