"""Lesson 16: rotary positions."""

import math

import oracle
import pytest
import torch
from torch.testing import assert_close

from twelve import RotaryEncoding, sinusoid
from twelve_lab import Trace, example

FOUR_DECIMALS = {"rtol": 0.0, "atol": 5e-5}


def heads_of_h2(name: str) -> torch.Tensor:
    """Project the vectors of dog and fish with block h2: two heads, each with one feature pair."""
    rows = torch.tensor(example.embedding_rows[2:])
    return (rows @ torch.tensor(example.weights()["h2"][name])).view(1, 2, 2, 2).transpose(1, 2)


# By hand


def test_rotary_rotates_fish_by_one_radian():
    query, key = heads_of_h2("Wq"), heads_of_h2("Wk")
    assert_close(query[0, 0, 1], torch.tensor([-0.5, 0.55]))
    assert_close(key[0, 0, 0], torch.tensor([-0.75, -0.8]))
    rotary = RotaryEncoding(2)
    fish, dog = rotary(query)[0, 0, 1], rotary(key)[0, 0, 0]
    # -0.5 cos 1 - 0.55 sin 1 and -0.5 sin 1 + 0.55 cos 1. The dog is at position 0.
    assert_close(fish, torch.tensor([-0.7330, -0.1236]), **FOUR_DECIMALS)
    assert_close(dog, key[0, 0, 0])
    assert_close((query[0, 0, 1] @ key[0, 0, 0]).item(), -0.065)

    degrees = [math.degrees(math.atan2(y, x)) % 360 for x, y in (query[0, 0, 1], fish, dog)]
    assert degrees == pytest.approx([132.3, 189.6, 226.8], abs=0.05)


def test_rotary_score_of_fish_and_dog_by_distance():
    query, key = heads_of_h2("Wq")[:, :1, 1:], heads_of_h2("Wk")[:, :1, :1]
    rotary = RotaryEncoding(2)
    scores = [(rotary(query, start) @ key.mT).item() for start in range(6)]
    expected = [-0.065, 0.6486, 0.7659, 0.1790, -0.5724, -0.7976]
    assert scores == pytest.approx(expected, abs=5e-5)


def test_rotary_rotates_each_pair_at_its_own_frequency():
    rotated = RotaryEncoding(8)(torch.ones(1, 1, 3, 8))[0, 0]
    for position in range(3):
        for pair, frequency in enumerate((1.0, 0.1, 0.01, 0.001)):
            sin, cos = math.sin(position * frequency), math.cos(position * frequency)
            expected = torch.tensor([cos - sin, sin + cos])
            assert_close(rotated[position, 2 * pair : 2 * pair + 2], expected)


# Oracle


def test_rotary_equals_a_product_of_complex_numbers(sizes, draw):
    # Su et al., equation 12, in NumPy. The table has exactly as many rows as needed.
    heads = draw(sizes.batch, sizes.heads, sizes.src, sizes.d_k)
    rotary = RotaryEncoding(sizes.d_k, base=500.0, max_len=sizes.src + 7)
    with Trace(rotary) as trace:
        rotary(heads, start=7)
    oracle.compare(trace, oracle.rotate(heads.cpu().numpy(), start=7, base=500.0))


# Laws


def test_rotary_table_is_moved_but_neither_saved_nor_trained():
    rotary = RotaryEncoding(6, max_len=9)
    assert torch.equal(rotary.table, sinusoid(9, 6))
    assert list(rotary.parameters()) == [] and rotary.state_dict() == {}
    assert rotary.to(torch.float32).table.dtype == torch.float32
    assert rotary.to("meta").table.device.type == "meta"
    # The state_dict does not contain the table, so to_empty recomputes it.
    device = torch.get_default_device()
    assert torch.equal(rotary.to_empty(device=device).table, sinusoid(9, 6).float())


def test_rotary_has_2048_positions_by_default():
    assert RotaryEncoding(2).table.shape == (2048, 2)
