"""Lesson 05: padding mask and causal mask. True means that the query may attend to the key."""

import oracle
import pytest
import torch

from twelve import causal_mask, padding_mask
from twelve_lab import Trace, example

# By hand


def test_padding_mask_hides_the_padding_of_the_example():
    expected = torch.tensor([[[[False, True]]], [[[True, True]]]])
    assert torch.equal(padding_mask(example.src), expected)


def test_causal_mask_hides_the_future():
    expected = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    assert torch.equal(causal_mask(3), expected[None, None])


def test_queries_of_a_causal_mask_are_the_last_positions_of_the_keys():
    expected = torch.tensor([[True, True, True, True, False], [True, True, True, True, True]])
    assert torch.equal(causal_mask(2, 5), expected[None, None])


@pytest.mark.parametrize(
    ("window", "expected"),
    [(1, [[0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]), (3, [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]),
     (9, [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])],
)  # fmt: skip
def test_causal_mask_with_a_window_hides_the_distant_past(window, expected):
    mask = causal_mask(2, 5, window=window)
    assert torch.equal(mask, torch.tensor(expected, dtype=torch.bool)[None, None])


# Oracle


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("pad", [(), (2,)], ids=str)
def test_padding_mask_equals_numpy(sizes, draw_ids, dtype, pad):
    ids = draw_ids(3, sizes.batch, sizes.src, lowest=0).to(dtype)
    with Trace():  # checks the axes
        mask = padding_mask(ids, *pad)
    assert mask.dtype == torch.bool
    assert torch.equal(mask.cpu(), torch.from_numpy(oracle.padding_mask(ids.cpu(), *pad)))


@pytest.mark.parametrize(
    ("query_len", "key_len"), [(1, 1), (4, 4), (4, 5), (1, 7), (3, None), (2, 7)]
)
def test_causal_mask_equals_numpy(query_len, key_len):
    mask = causal_mask(query_len, key_len)
    assert mask.dtype == torch.bool
    assert torch.equal(mask.cpu(), torch.from_numpy(oracle.causal_mask(query_len, key_len)))


# Laws


def test_padding_mask_and_causal_mask_are_made_on_the_requested_device(monkeypatch):
    # On the meta device, tril makes torch import its decompositions, which are slow to load.
    monkeypatch.setattr(torch.Tensor, "tril", lambda mask, diagonal: mask)
    assert causal_mask(3, device="meta").device.type == "meta"
    assert causal_mask(3).device.type == torch.get_default_device().type
    ids = torch.zeros(2, 3, dtype=torch.int64, device="meta")
    assert padding_mask(ids).device.type == "meta"
