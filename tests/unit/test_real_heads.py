"""What heads of a real language model look at: the file that a tool measured, and its reader."""

import pytest
import torch
from torch.testing import assert_close

from twelve_lab import device, real_heads

NAMES = ("agreement", "previous", "brackets", "he and she", "it, hungry", "it, empty", "one layer",
         "repeat", "capital")  # fmt: skip


def weight(name: str, query: int, key: int) -> list[float]:
    """Take how much each head of a sentence gives from one token to another."""
    return real_heads.read(name).weights[:, query, key].tolist()


# --- by hand -------------------------------------------------------------------------------------


def test_a_sentence_is_read_with_its_heads_and_weights():
    tokens, heads, weights, right = real_heads.read("capital")
    assert tokens == ["The", "capital", "of", "France", "is"]
    assert heads == ["23.4", "23.3", "23.5"]
    assert_close(weights[0, 4, 3].item(), 0.9028, rtol=0, atol=1e-3)
    assert right == {}


def test_averages_are_read_by_distance():
    scores = real_heads.by_distance("score")
    assert list(scores) == ["turned", "not turned"]
    # Of a query and the key of its own token: the rotation turns both alike.
    assert_close(scores["turned"][0], scores["not turned"][0])
    assert {len(line) for line in scores.values()} == {21}


# --- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_row_shares_out_one_unit_and_no_head_sees_what_comes_later(name):
    tokens, heads, weights, _ = real_heads.read(name)
    assert weights.shape == (len(heads), len(tokens), len(tokens))
    assert weights.device.type == device().type
    # Each number was rounded at its fourth decimal.
    rounded = {"rtol": 0, "atol": 5e-5 * len(tokens) + 1e-6}
    assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)), **rounded)
    assert torch.equal(weights, weights.tril())
    assert weights.min() >= 0


def test_the_last_word_looks_at_its_subject_past_all_nouns_between():
    tokens, _, (head, control), right = real_heads.read("agreement")
    subject = tokens.index("paintings")
    assert head[-1].argmax() == subject
    assert head[-1, subject] > 0.8 > 100 * control[-1, subject]
    assert right["complete"] == right["without 26.1"] == 100 > 80 > right["without 26.0"]


def test_each_token_looks_at_the_one_before_as_long_as_queries_and_keys_are_turned():
    _, heads, weights, _ = real_heads.read("previous")
    before = weights.diagonal(-1, dim1=-2, dim2=-1)
    means = dict(zip(heads, before[:, 1:].mean(1).tolist(), strict=True))
    assert means["16.0"] > 0.7 > 0.4 > means["16.5"] > means["16.0 not turned"]
    assert (weights[0, 1:].argmax(-1) == torch.arange(len(weights[0]) - 1)).all()


def test_a_closing_bracket_looks_at_its_own_opening_one():
    tokens = real_heads.read("brackets").tokens
    for closing, opening in ((")", "("), ("]", "[")):
        head, control = weight("brackets", tokens.index(closing), tokens.index(opening))
        assert head > 0.6 > 10 * control
    assert weight("brackets", tokens.index("]"), tokens.index("("))[0] < 0.05


@pytest.mark.parametrize(
    ("word", "name", "other"), [("she", "Anna", "Peter"), ("he", "Peter", "Anna")]
)
def test_he_and_she_look_at_the_right_name(word, name, other):
    tokens = real_heads.read("he and she").tokens
    asks = tokens.index(word)
    head, control = weight("he and she", asks, tokens.index(name))
    assert head > 0.4 > 4 * control
    assert head > 2 * weight("he and she", asks, tokens.index(other))[0]


def test_it_looks_at_the_dog_whatever_the_sentence_will_say():
    first, second = real_heads.read("it, hungry"), real_heads.read("it, empty")
    assert first.tokens[:-1] == second.tokens[:-1]
    assert torch.equal(first.weights[0, :-1], second.weights[0, :-1])
    it, dog = first.tokens.index("it"), first.tokens.index("dog")
    assert first.weights[0, it, dog] > 0.9
    assert not torch.equal(first.weights[0, -1], second.weights[0, -1])


def test_heads_of_one_layer_look_elsewhere():
    tokens, heads, weights, right = real_heads.read("one layer")
    most = [tokens[key] for key in weights[:, tokens.index("sold")].argmax(-1).tolist()]
    looks = dict(zip(heads, most, strict=True))
    assert [looks[head] for head in right] == ["paintings", "man", "sold"]
    assert all(count > 80 for count in right.values())


def test_a_repeated_word_looks_at_what_followed_it_and_needs_the_head_before():
    _, heads, weights, right = real_heads.read("repeat")
    assert heads == ["16.0", "18.6", "18.6 without 16.0", "18.6 without 16.5"]
    before = weights[0].diagonal(-1)[1:]
    follower = weights[1:, 6:, :].diagonal(2, dim1=-2, dim2=-1)[:, :4]
    lowest, highest = follower.amin(1), follower.amax(1)
    assert before.min() > 0.9
    assert lowest[0] > 0.85 and lowest[2] > 0.85
    assert highest[1] < 0.65
    # Of 400 words.
    assert right["complete"] == right["without 16.5"] == 280 > 100 > right["without 16.0"]


def test_heads_that_share_keys_look_at_them_differently():
    head, *others = weight("capital", 4, 3)
    assert head > 0.85 > 0.3 > max(others)


def test_only_the_rotation_knows_the_distance():
    weights, scores = real_heads.by_distance("weight"), real_heads.by_distance("score")
    assert weights["turned"].argmax() == scores["turned"].argmax() == 1
    assert weights["turned"][1] > 0.7 > 0.03 > weights["not turned"].max()
    assert scores["turned"].max() - scores["turned"].min() > 15
    assert scores["not turned"].max() - scores["not turned"].min() < 0.6


# --- errors --------------------------------------------------------------------------------------


def test_a_sentence_that_nobody_measured_is_refused():
    with pytest.raises(ValueError, match=r"there are agreement, previous, .*, got 'it'"):
        real_heads.read("it")
    with pytest.raises(ValueError, match="there are weight, score, got 'weights'"):
        real_heads.by_distance("weights")
