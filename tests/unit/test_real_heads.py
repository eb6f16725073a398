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


def test_removing_a_real_head_loses_the_answers_that_need_it():
    agreement, repeat = (real_heads.read(name) for name in ("agreement", "repeat"))
    right = agreement.right
    assert right["complete"] == right["without 26.1"] == 100 > 80 > right["without 26.0"]
    right = repeat.right
    assert right["complete"] == right["without 16.5"] == 280 > 100 > right["without 16.0"]
    # The head of repeated words needs the head that attends to the word before.
    assert repeat.heads == ["16.0", "18.6", "18.6 without 16.0", "18.6 without 16.5"]
    to_follower = repeat.weights[1:, 6:, :].diagonal(2, dim1=-2, dim2=-1)[:, :4]
    assert repeat.weights[0].diagonal(-1)[1:].min() > 0.9
    assert to_follower[[0, 2]].min() > 0.85 and to_follower[1].max() < 0.65


def test_the_head_of_the_previous_token_needs_the_rotation():
    _, heads, weights, _ = real_heads.read("previous")
    means = weights.diagonal(-1, dim1=-2, dim2=-1)[:, 1:].mean(1)
    means = dict(zip(heads, means.tolist(), strict=True))
    assert means["16.0"] > 0.7 > 0.4 > means["16.5"] > means["16.0 not rotated"]
    assert (weights[0, 1:].argmax(-1) == torch.arange(len(weights[0]) - 1)).all()
    by_weight, by_score = real_heads.by_distance("weight"), real_heads.by_distance("score")
    assert list(by_score) == ["rotated", "not rotated"]
    assert {len(line) for line in by_score.values()} == {21}
    # At distance 0 the rotation turns query and key alike.
    assert_close(by_score["rotated"][0], by_score["not rotated"][0])
    assert by_weight["rotated"].argmax() == by_score["rotated"].argmax() == 1
    assert by_weight["rotated"][1] > 0.7 > 0.03 > by_weight["not rotated"].max()
    spread = {name: (line.max() - line.min()).item() for name, line in by_score.items()}
    assert spread["rotated"] > 15 and spread["not rotated"] < 0.6


def test_a_real_head_cannot_see_how_the_sentence_ends():
    hungry, empty = real_heads.read("it, hungry"), real_heads.read("it, empty")
    assert hungry.tokens[:-1] == empty.tokens[:-1]
    assert torch.equal(hungry.weights[0, :-1], empty.weights[0, :-1])
    assert not torch.equal(hungry.weights[0, -1], empty.weights[0, -1])
    assert weights_between("it, hungry", "it", "dog")[0] > 0.9


def test_real_heads_of_one_layer_attend_to_different_words():
    tokens, heads, weights, right = real_heads.read("one layer")
    most = [tokens[key] for key in weights[:, tokens.index("sold")].argmax(-1).tolist()]
    attended = dict(zip(heads, most, strict=True))
    assert [attended[head] for head in right] == ["paintings", "man", "sold"]
    assert all(count > 80 for count in right.values())


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


def test_without_rotation_the_real_model_repeats_itself():
    texts = real_heads.continued("The capital of France is")
    assert texts["complete"].startswith(" Paris.")
    assert texts["without rotation"].startswith(" Paris, Paris,")
    with pytest.raises(ValueError, match="must be one of 'Once upon a time, a dog"):
        real_heads.continued("Hello")
