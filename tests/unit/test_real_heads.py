"""Real heads: the stored weights of a real language model and what its heads look at."""

import pytest
import torch
from torch.testing import assert_close

from twelve_lab import device, real_heads

NAMES = ("agreement", "previous", "brackets", "he and she", "it, hungry", "it, empty", "one layer",
         "repeat", "capital")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_real_heads_are_causal_and_each_row_sums_to_one(name):
    tokens, heads, weights, _ = real_heads.read(name)
    assert weights.shape == (len(heads), len(tokens), len(tokens))
    assert weights.device.type == device().type
    # Each number was rounded at its fourth decimal.
    rounded = {"rtol": 0, "atol": 5e-5 * len(tokens) + 1e-6}
    assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)), **rounded)
    assert torch.equal(weights, weights.tril()) and weights.min() >= 0


def test_real_heads_reject_an_unknown_name():
    with pytest.raises(ValueError, match=r"there are agreement, previous, .*, got 'it'"):
        real_heads.read("it")
    with pytest.raises(ValueError, match="there are weight, score, got 'weights'"):
        real_heads.by_distance("weights")


def test_nearest_tokens_reject_a_word_that_was_not_measured():
    with pytest.raises(ValueError, match="must be one of dog, three, Paris, got 'cat'"):
        real_heads.nearest_tokens("cat")


def test_without_rotation_the_real_model_repeats_itself():
    texts = real_heads.continued("The capital of France is")
    assert texts["complete"].startswith(" Paris.")
    assert texts["without rotation"].startswith(" Paris, Paris,")
    with pytest.raises(ValueError, match="must be one of 'Once upon a time, a dog"):
        real_heads.continued("Hello")
