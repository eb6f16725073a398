"""Step 03: each position adds its own row, and the row depends on nothing else."""

import math

import oracle
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import LearnedPositionalEncoding, PositionalEncoding, sinusoid
from twelve_lab import Trace, example

BOTH = [PositionalEncoding, LearnedPositionalEncoding]


def test_the_first_two_rows_at_three_features():
    second = [math.sin(1.0), math.cos(1.0), math.sin(10000.0 ** (-2 / 3))]
    assert_close(sinusoid(2, 3), torch.tensor([[0.0, 1.0, 0.0], second]))
    assert_close(second[2], 0.002154, rtol=0.0, atol=5e-7)  # six decimals are given


def test_the_example_gives_the_twelve_numbers_their_positions():
    encoded = example.model().positional_encoding(example.model().src_embedding(example.src))
    expected = [
        [[0.0, 1.0, 0.0], [1.661471, 0.690302, 0.362154]],
        [[0.7, 1.2, 0.4], [1.441471, 0.840302, 0.502154]],
    ]
    assert_close(encoded, torch.tensor(expected), rtol=0.0, atol=5e-7)  # six decimals are given


@pytest.mark.parametrize("d_model", [1, 2, 3, 6, 7])
def test_the_table_equals_the_formula_written_as_a_loop(d_model):
    table = sinusoid(50, d_model)
    assert table.shape == (50, d_model)
    for position in range(50):
        for feature in range(d_model):
            angle = position / 10000.0 ** ((feature - feature % 2) / d_model)
            expected = math.cos(angle) if feature % 2 else math.sin(angle)
            assert_close(table[position, feature].item(), expected)


@pytest.mark.parametrize("d_model", [3, 24])
def test_it_equals_numpy(sizes, draw, d_model):
    layer = PositionalEncoding(d_model, max_len=32)
    x = draw(sizes.batch, sizes.src, d_model)
    expected = x.numpy() + oracle.sinusoid(32, d_model)[: sizes.src]
    assert_close(layer(x), torch.from_numpy(expected))


def test_learned_positions_equal_an_embedding_of_the_place(sizes, draw):
    layer = LearnedPositionalEncoding(sizes.d_model, max_len=9)
    table = nn.Embedding.from_pretrained(layer.table.detach())
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert_close(layer(x), x + table(torch.arange(sizes.src)))


@pytest.mark.parametrize("shift", [1, 3, 10])
def test_a_shift_is_the_same_rotation_at_every_position(shift):
    d_model = 24
    table = sinusoid(60, d_model)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    sin, cos = torch.sin(shift * frequency), torch.cos(shift * frequency)
    sines, cosines = table[:, 0::2], table[:, 1::2]
    assert_close(table[shift:, 0::2], (sines * cos + cosines * sin)[:-shift])
    assert_close(table[shift:, 1::2], (cosines * cos - sines * sin)[:-shift])


def test_a_dot_product_of_two_rows_depends_on_their_distance_alone():
    table = sinusoid(40, 24)
    products = table @ table.T
    assert_close(products[1:, 1:], products[:-1, :-1])
    assert_close(products.diagonal(), torch.full((40,), 12.0))
    assert (products[0, 0] > products[0, 1:]).all()


def test_later_features_turn_more_slowly():
    table = sinusoid(2, 24)
    assert (table[1, 0::2].diff() < 0.0).all()
    assert (table[1, 1::2].diff() > 0.0).all()


def test_a_longer_table_begins_with_the_shorter_one():
    assert torch.equal(sinusoid(50, 6)[:5], sinusoid(5, 6))


def test_the_table_is_computed_in_float64_whatever_it_is_stored_in():
    exact = sinusoid(5000, 16)
    torch.set_default_dtype(torch.float32)
    table = sinusoid(5000, 16)
    assert table.dtype == torch.float32
    assert torch.equal(table, exact.float())


@pytest.mark.parametrize("kind", BOTH)
def test_the_position_is_the_place_on_the_second_axis(sizes, kind):
    layer = kind(sizes.d_model, max_len=32)
    encoded = layer(torch.zeros(sizes.batch, sizes.src, sizes.d_model))
    for sentence in encoded:
        assert torch.equal(sentence, layer.table[: sizes.src])


@pytest.mark.parametrize("kind", BOTH)
def test_order_matters(sizes, draw, kind):
    layer = kind(sizes.d_model)
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert not torch.allclose(layer(x.flip(1)), layer(x).flip(1))


@pytest.mark.parametrize("kind", BOTH)
def test_a_sentence_as_long_as_the_table_is_accepted(sizes, kind):
    layer = kind(sizes.d_model, max_len=sizes.src)
    zeros = torch.zeros(sizes.batch, sizes.src, sizes.d_model)
    assert torch.equal(layer(zeros)[1], layer.table)


@pytest.mark.parametrize("kind", BOTH)
def test_there_are_5000_positions_unless_asked_for(kind):
    assert kind(3).table.shape == (5000, 3)


def test_the_sinusoid_table_is_saved_and_moved_and_not_trained():
    layer = PositionalEncoding(6, max_len=9)
    assert list(layer.parameters()) == []
    assert [name for name, _ in layer.named_buffers()] == ["table"]
    assert list(layer.state_dict()) == ["table"]
    assert layer.to(torch.float32).table.dtype == torch.float32
    assert layer.to("meta").table.device.type == "meta"


def test_learned_rows_are_trained_as_far_as_they_are_used(sizes):
    layer = LearnedPositionalEncoding(sizes.d_model, max_len=9)
    assert list(layer.state_dict()) == ["table"]
    layer(torch.zeros(sizes.batch, sizes.src, sizes.d_model)).sum().backward()
    expected = torch.zeros(9, sizes.d_model)
    expected[: sizes.src] = sizes.batch
    assert_close(layer.table.grad, expected)


def test_learned_rows_start_small():
    table = LearnedPositionalEncoding(20, max_len=500).table
    # 10,000 numbers: one standard error is 1 % of 0.02 in the mean and 0.7 % in the deviation.
    assert_close(table.mean().item(), 0.0, rtol=0.0, atol=0.001)
    assert_close(table.std().item(), 0.02, rtol=0.05, atol=0.0)


@pytest.mark.parametrize("kind", BOTH)
def test_dropout_falls_on_the_sum_and_only_in_training(sizes, draw, kind):
    layer = kind(sizes.d_model, max_len=9, dropout=0.25)
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    encoded = x + layer.table[: sizes.src]
    dropped = layer(x)
    gone = dropped == 0.0
    assert 0.0 < gone.double().mean() < 0.5
    assert_close(dropped[~gone], encoded[~gone] / 0.75)
    assert torch.equal(layer.eval()(x), encoded)


@pytest.mark.parametrize("kind", BOTH)
def test_the_trace_names_the_rows_and_the_sum(sizes, draw, kind):
    layer = kind(sizes.d_model)
    with Trace(layer) as trace:
        output = layer(draw(sizes.batch, sizes.src, sizes.d_model))
    assert list(trace) == ["positions", "encoded"]
    assert trace["positions"].shape == (sizes.src, sizes.d_model)
    assert torch.equal(trace["encoded"].value, output)


@pytest.mark.parametrize("kind", BOTH)
def test_saved_rows_give_the_same_layer(sizes, draw, kind):
    layer, fresh = kind(sizes.d_model), kind(sizes.d_model)
    fresh.load_state_dict(layer.state_dict())
    x = draw(sizes.batch, sizes.src, sizes.d_model)
    assert torch.equal(fresh(x), layer(x))


@pytest.mark.parametrize("kind", BOTH)
def test_it_shows_its_sizes(kind):
    assert f"{kind.__name__}(\n  d_model=3, max_len=8\n" in repr(kind(3, max_len=8))


def test_the_table_is_computed_in_double_precision():
    # At position 4,999 single precision is off by about 1e-4 already.
    row = sinusoid(5000, 6)[-1].tolist()
    angles = [4999 / 10000.0 ** (2 * (feature // 2) / 6) for feature in range(6)]
    expected = [(math.sin, math.cos)[feature % 2](angles[feature]) for feature in range(6)]
    assert row == pytest.approx(expected, abs=1e-11)
    torch.set_default_dtype(torch.float32)
    assert_close(sinusoid(5000, 6)[-1], torch.tensor(expected), rtol=0.0, atol=1e-7)
