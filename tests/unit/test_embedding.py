"""Lesson 02: the token embedding."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import TokenEmbedding
from twelve_lab import example

# By hand


def test_embedding_of_the_example_gives_the_twelve_numbers():
    expected = [[[0.0, 0.0, 0.0], [0.82, 0.15, 0.36]], [[0.7, 0.2, 0.4], [0.6, 0.3, 0.5]]]
    assert_close(example.model().src_embedding(example.src), torch.tensor(expected))


def test_scaled_embedding_is_multiplied_by_the_root_of_d_model():
    table = TokenEmbedding(2, 4, scale=True)
    with torch.no_grad():
        table.weight.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]]))
    assert_close(table(torch.tensor([[1]])), torch.tensor([[[2.0, 4.0, 6.0, 8.0]]]))


# Oracle


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("padding_idx", [None, 0, 3])
def test_embedding_equals_torch_in_values_and_gradients(sizes, draw, noisy, padding_idx, dtype):
    ours = noisy(TokenEmbedding(sizes.src_vocab, sizes.d_model, padding_idx=padding_idx))
    theirs = nn.Embedding(sizes.src_vocab, sizes.d_model, padding_idx=padding_idx)
    theirs.load_state_dict(ours.state_dict())
    # The first id, the last id, and repeated ids, whose gradients must add up.
    ids = torch.tensor([[0, 3, 3, 7, sizes.src_vocab - 1], [1, 2, 0, 9, 3]], dtype=dtype)

    assert_close(ours(ids), theirs(ids))
    assert torch.equal(ours(ids)[0, 4], ours.weight[-1])
    direction = draw(sizes.batch, sizes.src, sizes.d_model)
    ours(ids).backward(direction)
    theirs(ids).backward(direction)
    assert_close(ours.weight.grad, theirs.weight.grad)
    trained = ours.weight.grad.any(-1).nonzero().flatten().tolist()
    assert trained == sorted({0, 1, 2, 3, 7, 9, 10} - {padding_idx})


# Laws


@pytest.mark.parametrize("padding_idx", [None, 0, 3])
def test_only_the_padding_row_of_an_embedding_starts_at_zero(sizes, padding_idx):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model, padding_idx=padding_idx)
    zeros = [] if padding_idx is None else [padding_idx]
    for _ in range(2):
        assert (table.weight == 0.0).all(-1).nonzero().flatten().tolist() == zeros
        assert (table.weight == 0.0).any(-1).nonzero().flatten().tolist() == zeros
        table.reset_parameters(std=0.5)


@pytest.mark.parametrize("keywords", [{}, {"std": 0.02}], ids=str)
def test_embedding_starts_from_a_normal_distribution(keywords):
    table, std = TokenEmbedding(500, 20), keywords.get("std", 1.0)
    if keywords:
        table.reset_parameters(**keywords)
    # With 10,000 weights, the standard errors of mean and deviation are 1 % and 0.7 % of std.
    assert_close(table.weight.mean().item(), 0.0, rtol=0.0, atol=0.05 * std)
    assert_close(table.weight.std().item(), std, rtol=0.05, atol=0.0)
