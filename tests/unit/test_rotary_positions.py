"""Step 16: queries and keys are turned by their place, so that scores see the distance alone."""

import math

import pytest
import torch
from torch.testing import assert_close

from twelve import RotaryEncoding, sinusoid
from twelve_lab import Trace, example


def heads_of_h2(name: str) -> torch.Tensor:
    """Project the rows of dog and fish by the block h2: two heads of width 2, one pair each."""
    rows = torch.tensor(example.embedding_rows[2:])
    return (rows @ torch.tensor(example.weights()["h2"][name])).view(1, 2, 2, 2).transpose(1, 2)


def products(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query @ key.transpose(-2, -1)


def test_fish_turns_by_one_radian_towards_dog():
    query, key = heads_of_h2("Wq"), heads_of_h2("Wk")
    assert_close(query[0, 0, 1], torch.tensor([-0.5, 0.55]))
    assert_close(key[0, 0, 0], torch.tensor([-0.75, -0.8]))
    rotary = RotaryEncoding(2)
    fish, dog = rotary(query)[0, 0, 1], rotary(key)[0, 0, 0]
    # -0.5 cos 1 - 0.55 sin 1 and -0.5 sin 1 + 0.55 cos 1; the dog stands at place 0.
    assert_close(fish, torch.tensor([-0.7330, -0.1236]), rtol=0.0, atol=5e-5)  # four decimals
    assert_close(dog, key[0, 0, 0])
    before, after = query[0, 0, 1] @ key[0, 0, 0], fish @ dog
    assert_close(before.item(), -0.065)
    assert_close(after.item(), 0.6486, rtol=0.0, atol=5e-5)  # four decimals are given
    assert_close((after / math.sqrt(2.0)).item(), 0.4586, rtol=0.0, atol=5e-5)  # four decimals

    degrees = [math.degrees(math.atan2(y, x)) % 360 for x, y in (query[0, 0, 1], fish, dog)]
    assert degrees == pytest.approx([132.3, 189.6, 226.8], abs=0.05)
    assert_close(fish.norm().item(), 0.7433, rtol=0.0, atol=5e-5)  # four decimals are given


def test_the_score_of_fish_and_dog_by_their_distance():
    query, key = heads_of_h2("Wq")[:, :1, 1:], heads_of_h2("Wk")[:, :1, :1]
    rotary = RotaryEncoding(2)
    found = [(rotary(query, start) @ key.mT).item() for start in range(6)]
    expected = [-0.065, 0.6486, 0.7659, 0.1790, -0.5724, -0.7976]
    assert found == pytest.approx(expected, abs=5e-5)
    for place in (5, 1000):
        again = (rotary(query, place + 1) @ rotary(key, place).mT).item()
        assert again == pytest.approx(0.6486, abs=5e-5)


def test_a_word_meets_itself_as_if_nothing_had_turned():
    query, key = heads_of_h2("Wq"), heads_of_h2("Wk")
    rotary = RotaryEncoding(2)
    found = products(rotary(query), rotary(key)).diagonal(dim1=-2, dim2=-1) / math.sqrt(2.0)
    expected = torch.tensor([[[0.0654, 0.0088], [0.2440, 0.1503]]])
    assert_close(found, expected, rtol=0.0, atol=5e-5)  # four decimals are given


def test_four_pairs_turn_each_at_its_own_speed():
    turned = RotaryEncoding(8)(torch.ones(1, 1, 3, 8))[0, 0]
    for place in range(3):
        for pair, speed in enumerate((1.0, 0.1, 0.01, 0.001)):
            angle = place * speed
            sin, cos = math.sin(angle), math.cos(angle)
            expected = torch.tensor([cos - sin, sin + cos])
            assert_close(turned[place, 2 * pair : 2 * pair + 2], expected)


def test_it_equals_a_product_of_complex_numbers(sizes, draw):
    # Su et al., equation 12: a pair is one complex number, and turning multiplies it by e^(i p ω).
    heads = draw(sizes.batch, sizes.heads, sizes.src, sizes.d_k)
    speed = 500.0 ** (-torch.arange(0, sizes.d_k, 2) / sizes.d_k)
    angles = (torch.arange(sizes.src) + 7).unsqueeze(1) * speed
    numbers = torch.view_as_complex(heads.unflatten(-1, (-1, 2)))
    expected = torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles))
    rotary = RotaryEncoding(sizes.d_k, base=500.0)
    assert_close(rotary(heads, start=7), expected.flatten(-2))


def test_it_equals_the_matrix_of_the_paper(draw):
    # Su et al., equation 15: blocks of 2 x 2 along the diagonal.
    key = draw(1, 1, 1, 6)
    for place in (0, 1, 11):
        matrix = torch.zeros(6, 6)
        for pair in range(3):
            angle = place * 10000.0 ** (-2 * pair / 6)
            sin, cos = math.sin(angle), math.cos(angle)
            block = torch.tensor([[cos, -sin], [sin, cos]])
            matrix[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = block
        assert_close(RotaryEncoding(6)(key, place)[0, 0, 0], matrix @ key[0, 0, 0])


def test_halves_are_neighbours_in_another_order(sizes, draw):
    # As LLaMA's code in transformers turns: feature i with feature i + d_k / 2.
    heads = draw(sizes.batch, sizes.heads, sizes.src, sizes.d_k)
    half = sizes.d_k // 2
    angles = torch.arange(sizes.src).unsqueeze(1) * 10000.0 ** (-torch.arange(half) / half)
    sin, cos = (torch.cat((one, one), -1) for one in (angles.sin(), angles.cos()))
    rotated = torch.cat((-heads[..., half:], heads[..., :half]), -1)
    order = torch.arange(sizes.d_k).view(2, half).T.flatten()
    turned = RotaryEncoding(sizes.d_k)(heads[..., order])
    assert_close(turned, (heads * cos + rotated * sin)[..., order])


@pytest.mark.parametrize("d_k", [2, 8])
def test_a_score_depends_on_the_distance_alone(draw, d_k):
    rotary = RotaryEncoding(d_k)
    query, key = draw(2, 3, 4, d_k), draw(2, 3, 4, d_k)
    scores = products(rotary(query), rotary(key))
    for shift in (1, 5, 1000):
        assert_close(products(rotary(query, shift), rotary(key, shift)), scores)
    assert not torch.allclose(products(rotary(query, 1), rotary(key)), scores)


def test_lengths_stay_and_so_does_the_first_place(sizes, draw):
    heads = draw(sizes.batch, sizes.heads, sizes.src, sizes.d_k)
    turned = RotaryEncoding(sizes.d_k)(heads)
    assert_close(turned.norm(dim=-1), heads.norm(dim=-1))
    assert_close(turned[:, :, 0], heads[:, :, 0])
    assert not torch.isclose(turned[:, :, 1:], heads[:, :, 1:]).any()


def test_turning_twice_is_turning_by_both_places(draw):
    rotary, heads = RotaryEncoding(8), draw(2, 3, 1, 8)
    assert_close(rotary(rotary(heads, 3), 4), rotary(heads, 7))


def test_the_place_is_counted_on_the_third_axis_from_the_start(sizes, draw):
    rotary = RotaryEncoding(sizes.d_k, max_len=sizes.src + 3)
    heads = draw(sizes.batch, sizes.heads, sizes.src, sizes.d_k)
    turned = rotary(heads, start=3)
    for place in range(sizes.src):
        one = heads[:, :, place : place + 1]
        assert torch.equal(turned[:, :, place : place + 1], rotary(one, start=place + 3))


def test_a_row_of_the_sinusoid_is_turned_into_the_next():
    # Step 03 with the cosine first: (cos, sin) of one place, turned by one place more.
    table = sinusoid(20, 8).unflatten(-1, (-1, 2)).flip(-1).flatten(-2)[None, None]
    turned = RotaryEncoding(8)(table[:, :, :1].expand(-1, -1, 20, -1))
    assert_close(turned, table)


def test_the_table_moves_with_the_layer_and_is_neither_saved_nor_trained():
    rotary = RotaryEncoding(6, max_len=9)
    assert torch.equal(rotary.table, sinusoid(9, 6))
    assert list(rotary.parameters()) == [] and rotary.state_dict() == {}
    assert rotary.to(torch.float32).table.dtype == torch.float32
    assert rotary.to("meta").table.device.type == "meta"


def test_a_layer_without_memory_tabulates_where_it_gets_some(draw):
    with torch.device("meta"):
        rotary = RotaryEncoding(6, max_len=9, base=100.0)
    rotary.to_empty(device="cpu")
    heads = draw(2, 3, 5, 6)
    assert torch.equal(rotary(heads), RotaryEncoding(6, max_len=9, base=100.0)(heads))


def test_there_are_2048_positions_unless_asked_for():
    assert RotaryEncoding(2).table.shape == (2048, 2)


def test_the_trace_names_the_angles_and_what_was_turned(sizes, draw):
    rotary = RotaryEncoding(sizes.d_k)
    with Trace(rotary) as trace:
        output = rotary(draw(sizes.batch, sizes.heads, sizes.src, sizes.d_k))
    assert list(trace) == ["sin", "cos", "even", "odd", "turned"]
    assert trace["sin"].shape == (sizes.src, sizes.d_k // 2)
    assert torch.equal(trace["turned"].value, output)


def test_it_shows_its_sizes():
    shown = "RotaryEncoding(d_k=2, max_len=8, base=500.0)"
    assert repr(RotaryEncoding(2, max_len=8, base=500.0)) == shown
