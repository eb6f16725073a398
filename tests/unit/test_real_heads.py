"""Real heads: stored attention weights of a language model, and what its heads attend to."""

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
    # The stored weights are rounded to four decimals.
    rounded = {"rtol": 0, "atol": 5e-5 * len(tokens) + 1e-6}
    assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)), **rounded)
    assert torch.equal(weights, weights.tril()) and weights.min() >= 0


@pytest.mark.parametrize(
    ("function", "value", "known"),
    [
        ("read", "it", "name must be one of 'agreement', 'previous', "),
        ("by_distance", "weights", "what must be one of 'weight', 'score'"),
        ("nearest_tokens", "cat", "word must be one of 'dog', 'three', 'Paris'"),
        ("continued", "Hello", "text must be one of 'Once upon a time, a dog"),
    ],
)
def test_real_heads_reject_what_was_not_measured(function, value, known):
    with pytest.raises(ValueError, match=f"real_heads.{function}: {known}.*, got '{value}'"):
        getattr(real_heads, function)(value)


def test_without_rotation_the_real_model_repeats_itself():
    texts = real_heads.continued("The capital of France is")
    assert texts["complete"].startswith(" Paris.")
    assert texts["without rotation"].startswith(" Paris, Paris,")
