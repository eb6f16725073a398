"""Step 02: an id picks its row of the table."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import TokenEmbedding
from twelve_lab import Trace, example


def ids_of(sizes, seeded) -> torch.Tensor:
    return torch.randint(0, sizes.src_vocab, (sizes.batch, sizes.src), generator=seeded)


def test_the_example_looks_up_the_twelve_numbers():
    table = example.model().src_embedding
    expected = [[[0.0, 0.0, 0.0], [0.82, 0.15, 0.36]], [[0.7, 0.2, 0.4], [0.6, 0.3, 0.5]]]
    assert_close(table(example.src), torch.tensor(expected))


def test_scaling_multiplies_by_the_root_of_d_model():
    table = TokenEmbedding(2, 4, scale=True)
    with torch.no_grad():
        table.weight.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]]))
    assert_close(table(torch.tensor([[1]])), torch.tensor([[[2.0, 4.0, 6.0, 8.0]]]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("padding_idx", [None, 0, 3])
def test_it_equals_torch_in_values_and_gradients(sizes, seeded, draw, noisy, padding_idx, dtype):
    ours = noisy(TokenEmbedding(sizes.src_vocab, sizes.d_model, padding_idx=padding_idx))
    theirs = nn.Embedding(sizes.src_vocab, sizes.d_model, padding_idx=padding_idx)
    theirs.load_state_dict(ours.state_dict())
    ids = ids_of(sizes, seeded).to(dtype)
    ids[0, :2] = 3  # twice, so that its gradients have to be summed

    assert_close(ours(ids), theirs(ids))
    direction = draw(sizes.batch, sizes.src, sizes.d_model)
    ours(ids).backward(direction)
    theirs(ids).backward(direction)
    assert_close(ours.weight.grad, theirs.weight.grad)


def test_a_lookup_is_a_product_with_one_hot_rows(sizes, seeded):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model)
    ids = ids_of(sizes, seeded)
    one_hot = np.eye(sizes.src_vocab)[ids.numpy()]
    assert_close(table(ids), torch.from_numpy(one_hot @ table.weight.detach().numpy()))


def test_the_same_id_gives_the_same_vector_wherever_it_stands(sizes, seeded):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model)
    ids = ids_of(sizes, seeded)
    ids[0, 0] = ids[1, 4] = 7
    assert torch.equal(table(ids)[0, 0], table(ids)[1, 4])


@pytest.mark.parametrize("padding_idx", [0, 3])
def test_the_padding_row_starts_at_zero_and_is_never_trained(sizes, padding_idx):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model, padding_idx=padding_idx)
    others = [row for row in range(sizes.src_vocab) if row != padding_idx]
    assert torch.equal(table.weight[padding_idx], torch.zeros(sizes.d_model))
    assert (table.weight[others] != 0.0).all()

    table(torch.arange(sizes.src_vocab)[None]).sum().backward()
    assert torch.equal(table.weight.grad[padding_idx], torch.zeros(sizes.d_model))
    assert torch.equal(table.weight.grad[others], torch.ones(len(others), sizes.d_model))


def test_without_a_padding_row_every_row_is_trained(sizes):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model)
    assert (table.weight != 0.0).all()
    table(torch.arange(sizes.src_vocab)[None]).sum().backward()
    assert (table.weight.grad == 1.0).all()


def test_an_id_that_does_not_occur_gets_no_gradient(sizes):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model)
    table(torch.tensor([[1, 2]])).sum().backward()
    assert table.weight.grad.any(-1).nonzero().flatten().tolist() == [1, 2]


@pytest.mark.parametrize("std", [1.0, 0.02])
def test_the_table_starts_from_a_normal_distribution(std):
    table = TokenEmbedding(500, 20)
    table.reset_parameters(std)
    # 10,000 numbers: one standard error is 1 % of std in the mean and 0.7 % in the deviation.
    assert_close(table.weight.mean().item(), 0.0, rtol=0.0, atol=0.05 * std)
    assert_close(table.weight.std().item(), std, rtol=0.05, atol=0.0)


def test_the_standard_deviation_is_one_unless_asked_for():
    # As above: 10,000 numbers, one standard error is 0.7 %.
    assert_close(TokenEmbedding(500, 20).weight.std().item(), 1.0, rtol=0.05, atol=0.0)


def test_a_padding_row_stays_zero_when_the_table_is_drawn_again(sizes):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model, padding_idx=2)
    table.reset_parameters(std=0.5)
    assert table.weight.any(-1).logical_not().nonzero().flatten().tolist() == [2]


def test_first_and_last_id_of_the_table_are_accepted(sizes):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model)
    ids = torch.tensor([[0, sizes.src_vocab - 1]])
    assert torch.equal(table(ids)[0], table.weight[[0, -1]])


def test_a_sentence_of_no_tokens_is_no_error(sizes):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model)
    empty = torch.zeros(sizes.batch, 0, dtype=torch.int64)
    assert table(empty).shape == (sizes.batch, 0, sizes.d_model)


@pytest.mark.parametrize(("scale", "names"), [(False, ["vectors"]), (True, ["vectors", "scaled"])])
def test_the_trace_names_what_was_looked_up(sizes, seeded, scale, names):
    table = TokenEmbedding(sizes.src_vocab, sizes.d_model, scale=scale)
    ids = ids_of(sizes, seeded)
    with Trace(table) as trace:
        output = table(ids)
    assert list(trace) == names
    assert torch.equal(trace["vectors"].value, table.weight[ids])
    assert torch.equal(trace[names[-1]].value, output)


def test_saved_weights_give_the_same_table(sizes, seeded):
    table, fresh = (TokenEmbedding(sizes.src_vocab, sizes.d_model) for _ in range(2))
    assert list(table.state_dict()) == ["weight"]
    fresh.load_state_dict(table.state_dict())
    ids = ids_of(sizes, seeded)
    assert torch.equal(fresh(ids), table(ids))


def test_it_shows_its_sizes():
    shown = "TokenEmbedding(vocab_size=11, d_model=24, padding_idx=0, scale=True)"
    assert repr(TokenEmbedding(11, 24, padding_idx=0, scale=True)) == shown
