"""Step 05: a mask says which key each query may attend to. True = may attend."""

import oracle
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from twelve import causal_mask, padding_mask, scaled_dot_product_attention
from twelve_lab import Trace, example


def test_the_padding_of_the_example_is_hidden():
    expected = torch.tensor([[[[False, True]]], [[[True, True]]]])
    assert torch.equal(padding_mask(example.src), expected)


def test_another_id_may_stand_for_padding():
    expected = torch.tensor([[[[True, False, True]]]])
    assert torch.equal(padding_mask(torch.tensor([[0, 9, 1]]), pad_id=9), expected)


def test_each_position_sees_itself_and_what_came_before():
    expected = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    assert torch.equal(causal_mask(3), expected[None, None])


def test_queries_are_the_last_positions_of_the_keys():
    expected = torch.tensor([[True, True, True, True, False], [True, True, True, True, True]])
    assert torch.equal(causal_mask(2, 5), expected[None, None])
    assert torch.equal(causal_mask(1, 4), torch.ones(1, 1, 1, 4, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_padding_equals_numpy(sizes, seeded, dtype):
    shape = (sizes.batch, sizes.src)
    ids = torch.randint(0, 3, shape, generator=seeded).to(dtype)
    mask = padding_mask(ids)
    assert mask.shape == (sizes.batch, 1, 1, sizes.src)
    assert mask.dtype == torch.bool
    assert torch.equal(mask, torch.from_numpy(oracle.padding_mask(ids.numpy())))
    expected = torch.from_numpy(oracle.padding_mask(ids.numpy(), 2))
    assert torch.equal(padding_mask(ids, 2), expected)


@pytest.mark.parametrize(("query_len", "key_len"), [(1, 1), (4, 4), (4, 5), (1, 7), (3, None)])
def test_causal_equals_numpy(query_len, key_len):
    mask = causal_mask(query_len, key_len)
    assert mask.dtype == torch.bool
    expected = oracle.causal_mask(query_len, key_len)
    assert torch.equal(mask, torch.from_numpy(expected))


def test_causal_equals_the_float_mask_of_torch():
    theirs = nn.Transformer.generate_square_subsequent_mask(5)
    assert torch.equal(causal_mask(5)[0, 0], theirs == 0.0)


def test_torch_agrees_at_equal_lengths_and_aligns_with_the_first_at_unequal_ones(sizes, draw):
    query, key = draw(sizes.batch, sizes.tgt, sizes.d_k), draw(sizes.batch, sizes.src, sizes.d_k)

    def both(query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = causal_mask(query.size(1), key.size(1))[0]
        theirs = F.scaled_dot_product_attention(query, key, key, is_causal=True)
        return scaled_dot_product_attention(query, key, key, mask), theirs

    assert_close(*both(key, key))
    ours, theirs = both(query, key)
    assert (ours - theirs).abs().amax((0, 2)).gt(1e-3).all()
    # Its first query sees only the first key; ours stands at position 1 and sees two.
    assert_close(theirs[:, 0], key[:, 0])


def test_with_a_cache_the_rows_are_the_last_rows_of_the_square():
    square = causal_mask(7)
    for query_len in range(1, 8):
        assert torch.equal(causal_mask(query_len, 7), square[..., -query_len:, :])


def test_no_query_is_left_without_a_key(sizes):
    assert causal_mask(sizes.tgt).any(-1).all()
    assert causal_mask(sizes.tgt).sum(-1).flatten().tolist() == [1, 2, 3, 4]


def test_both_masks_merge_by_and(sizes):
    ids = torch.tensor([[1, 2, 0, 0], [1, 2, 3, 4]])
    merged = padding_mask(ids) & causal_mask(4)
    assert merged.shape == (2, 1, 4, 4)
    rows = [["1000", "1100", "1100", "1100"], ["1000", "1100", "1110", "1111"]]
    expected = [[[[mark == "1" for mark in row] for row in sentence]] for sentence in rows]
    assert torch.equal(merged, torch.tensor(expected))


def test_a_mask_is_made_where_it_is_needed():
    assert causal_mask(3, device="meta").device.type == "meta"
    assert causal_mask(3).device.type == "cpu"
    ids = torch.zeros(2, 3, dtype=torch.int64, device="meta")
    assert padding_mask(ids).device.type == "meta"


def test_the_axes_of_both_masks_hold_while_tracing(sizes, seeded):
    ids = torch.randint(0, 3, (sizes.batch, sizes.src), generator=seeded)
    with Trace():
        padding_mask(ids)
        causal_mask(sizes.tgt, sizes.src)
