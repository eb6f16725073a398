"""Lesson 03: sinusoidal and learned positional encoding."""

import math

import pytest
import torch
from torch.testing import assert_close

from twelve import LearnedPositionalEncoding, PositionalEncoding, sinusoid
from twelve_lab import Trace

BOTH = pytest.mark.parametrize("kind", [PositionalEncoding, LearnedPositionalEncoding])


# By hand


def test_sinusoid_begins_with_sine_and_cosine_of_0_and_1():
    second = [math.sin(1.0), math.cos(1.0), math.sin(10000.0 ** (-2 / 3))]
    assert_close(sinusoid(2, 3), torch.tensor([[0.0, 1.0, 0.0], second]))
    assert_close(second[2], 0.002154, rtol=0.0, atol=5e-7)  # given to six decimals


# Oracle


def test_sinusoid_is_computed_in_float64():
    exact = sinusoid(5000, 6)
    # At position 4,999, float32 angles would be off by about 1e-4.
    angles = [4999 / 10000.0 ** (2 * (feature // 2) / 6) for feature in range(6)]
    expected = [(math.sin, math.cos)[feature % 2](angles[feature]) for feature in range(6)]
    assert exact[-1].tolist() == pytest.approx(expected, abs=1e-11)
    torch.set_default_dtype(torch.float32)
    table = sinusoid(5000, 6)
    assert table.dtype == torch.float32
    assert torch.equal(table, exact.float())


# Laws


@BOTH
@pytest.mark.parametrize("start", [0, 3])
def test_positional_encoding_adds_the_rows_from_start_on(sizes, draw, kind, start):
    # The table has exactly as many rows as needed.
    layer = kind(sizes.d_model, max_len=start + sizes.src)
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    with Trace(layer) as trace:
        encoded = layer(x, start)
    assert torch.equal(encoded, x + layer.table[start:])
    assert list(trace) == ["positions", "encoded"]
    assert trace["positions"].shape == (sizes.src, sizes.d_model)
    assert torch.equal(trace["encoded"].value, encoded)


@BOTH
def test_positional_encoding_has_5000_positions_by_default(kind):
    assert kind(3).table.shape == (5000, 3)


def test_sinusoid_table_is_a_buffer():
    layer = PositionalEncoding(6, max_len=9)
    assert list(layer.parameters()) == []
    assert [name for name, _ in layer.named_buffers()] == list(layer.state_dict()) == ["table"]
    assert layer.to(torch.float32).table.dtype == torch.float32
    assert layer.to("meta").table.device.type == "meta"


def test_only_used_rows_of_learned_positions_are_trained(sizes):
    layer = LearnedPositionalEncoding(sizes.d_model, max_len=9)
    assert list(layer.state_dict()) == ["table"]
    layer(torch.zeros(sizes.batch, sizes.src, sizes.d_model)).sum().backward()
    expected = torch.zeros(9, sizes.d_model)
    expected[: sizes.src] = sizes.batch
    assert_close(layer.table.grad, expected)


def test_learned_positions_start_with_standard_deviation_0_02():
    table = LearnedPositionalEncoding(20, max_len=500).table
    # With 10,000 weights, the standard errors of mean and deviation are 1 % and 0.7 % of 0.02.
    assert_close(table.mean().item(), 0.0, rtol=0.0, atol=0.001)
    assert_close(table.std().item(), 0.02, rtol=0.05, atol=0.0)


@BOTH
def test_positional_encoding_applies_dropout_to_the_sum(sizes, draw, kind):
    layer = kind(sizes.d_model, max_len=9, dropout=0.25)
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    encoded, dropped = x + layer.table[: sizes.src], layer(x)
    zero = dropped == 0.0
    assert 0.0 < zero.double().mean() < 0.5
    assert_close(dropped[~zero], encoded[~zero] / 0.75)
