"""Real heads: the stored weights of a real language model and what its heads look at."""

import pytest
import torch
from torch.testing import assert_close

from twelve_lab import device, real_heads

NAMES = ("agreement", "previous", "brackets", "he and she", "it, hungry", "it, empty", "one layer",
         "repeat", "capital")  # fmt: skip


def weights_between(name: str, query: str, key: str) -> list[float]:
    """Return how strongly each head of a sentence attends from one token to another."""
    tokens = real_heads.read(name).tokens
    return real_heads.read(name).weights[:, tokens.index(query), tokens.index(key)].tolist()


def test_real_heads_are_read_with_tokens_and_weights():
    tokens, heads, weights, right = real_heads.read("capital")
    assert tokens == ["The", "capital", "of", "France", "is"]
    assert heads == ["23.4", "23.3", "23.5"] and right == {}
    assert_close(weights[0, 4, 3].item(), 0.9028, rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_real_heads_are_causal_and_each_row_sums_to_one(name):
    tokens, heads, weights, _ = real_heads.read(name)
    assert weights.shape == (len(heads), len(tokens), len(tokens))
    assert weights.device.type == device().type
    # Each number was rounded at its fourth decimal.
    rounded = {"rtol": 0, "atol": 5e-5 * len(tokens) + 1e-6}
    assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)), **rounded)
    assert torch.equal(weights, weights.tril()) and weights.min() >= 0


@pytest.mark.parametrize(
    ("name", "query", "key", "least", "factor"),
    [
        ("agreement", "museum", "paintings", 0.8, 100),
        ("brackets", ")", "(", 0.6, 10),
        ("brackets", "]", "[", 0.6, 10),
        ("he and she", "she", "Anna", 0.4, 4),
        ("he and she", "he", "Peter", 0.4, 4),
        ("capital", "is", "France", 0.85, 2.8),
    ],
)
def test_a_real_head_attends_to_its_token_and_the_control_heads_do_not(
    name, query, key, least, factor
):
    head, *controls = weights_between(name, query, key)
    assert head > least and head > factor * max(controls)


def test_by_distance_reads_averages_with_and_without_the_rotation():
    weight, score = real_heads.by_distance("weight"), real_heads.by_distance("score")
    assert list(weight) == list(score) == ["turned", "not turned"]
    assert {len(line) for line in (*weight.values(), *score.values())} == {21}
    # At distance 0 the rotation turns query and key alike.
    assert_close(score["turned"][0], score["not turned"][0])
    assert weight["turned"].argmax() == 1 and weight["turned"][1] > 0.7


def test_real_heads_reject_an_unknown_name():
    with pytest.raises(ValueError, match=r"there are agreement, previous, .*, got 'it'"):
        real_heads.read("it")
    with pytest.raises(ValueError, match="there are weight, score, got 'weights'"):
        real_heads.by_distance("weights")


@pytest.mark.parametrize(
    ("word", "neighbour"), [("dog", " cat"), ("three", " four"), ("Paris", " London")]
)
def test_nearest_tokens_hold_a_related_word_far_above_the_control(word, neighbour):
    cosines = real_heads.nearest_tokens(word)
    assert cosines[neighbour] > cosines[" bridge"] + 0.25
    assert list(cosines.values()) == sorted(cosines.values(), reverse=True)


def test_nearest_tokens_reject_a_word_that_was_not_measured():
    with pytest.raises(ValueError, match="must be one of dog, three, Paris, got 'cat'"):
        real_heads.nearest_tokens("cat")
