"""contributions: a logit as the sum of the contributions of a language model's parts."""

import math

import pytest
import torch
from torch.testing import assert_close

from twelve import LayerNorm
from twelve.fast import make_fast
from twelve_lab import contributions, example

distinct = example.distinct
text = example.src[1:]  # dog, fish
longer = distinct.text[1:]


@pytest.fixture
def small():
    return example.language_model()


def test_contributions_by_hand(small):
    result = contributions(small, text, 3)
    # From lesson 18: the vector of fish at the input, after attention, and after feed-forward.
    # The weight of the final norm is 1.
    stream = [(0.6, 0.3, 0.5), (2.0595, 1.7051, 1.8779), (1.9655, 1.6345, 2.1196)]
    row = (0.6, 0.3, 0.5)
    root_mean_square = math.sqrt(sum(x * x for x in stream[-1]) / 3)
    before, between, after = (
        sum(x * y for x, y in zip(vector, row, strict=True)) / root_mean_square for vector in stream
    )
    four_decimals = {"rel": 0, "abs": 1e-4}
    assert result.embedding == pytest.approx(before, **four_decimals)
    assert result.heads.shape == (1, 2)
    assert result.heads.sum().item() == pytest.approx(between - before, **four_decimals)
    assert result.feed_forward.tolist() == pytest.approx([after - between], **four_decimals)
    assert result.logit == pytest.approx(1.4236, **four_decimals)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_contributions_add_up_to_each_logit_in_plain_and_fast_models(dtype, fast):
    model = distinct.language_model(num_kv_heads=2).to(dtype)
    if fast:
        make_fast(model)
    logits = model(longer)[0, -1]
    for token, logit in enumerate(logits.tolist()):
        result = contributions(model, longer, token)
        assert len(result.parts) == 1 + 2 * (6 + 1) and result.logit == pytest.approx(logit)
        tolerance = 1e-9 if dtype == torch.float64 else 1e-4
        assert sum(result.parts.values()) == pytest.approx(logit, rel=tolerance, abs=tolerance)


def test_contributions_under_autocast_add_up_as_exactly_as_the_logit():
    model = distinct.language_model().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        split = contributions(model, distinct.text[1:], 3)
    assert_close(
        split.logit, contributions(model, distinct.text[1:], 3).logit, rtol=0.02, atol=0.02
    )


def test_contributions_against_another_word_are_differences(small):
    fish, cat = (contributions(small, text, token) for token in (3, 1))
    result = contributions(small, text, 3, against=1)
    for name in ("logit", "embedding", "heads", "feed_forward"):
        assert_close(getattr(result, name), getattr(fish, name) - getattr(cat, name))
    assert list(result.parts) == ["head 0.1", "feed-forward 0", "embedding", "head 0.0"]


def test_contributions_leave_no_hook_and_no_gradient_even_after_an_error(small):
    contributions(small, text, 3)
    small.norm = LayerNorm(3)
    with pytest.raises(ValueError, match="add up to"):
        contributions(small, text, 3)
    for module in small.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert all(weight.grad is None for weight in small.parameters())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("ids", "words", "message"),
    [
        (example.src, {"token": 3}, r"ids must be one text, got shape \(2, 2\)"),
        (text[:, :0], {"token": 3}, r"ids must be one text, got shape \(1, 0\)"),
        (text, {"token": True}, "token must be an integer, got True"),
        (text[0], {"token": 3}, r"ids must have the axes \(batch, seq\), got shape \(2,\)"),
        (text, {"token": 4}, r"token must be an integer from 0 to 3 \(vocab_size=4\), got 4"),
        (text, {"token": 3, "against": -1}, "against must be an integer from 0 to 3"),
    ],
)
def test_contributions_reject_bad_input(small, ids, words, message):
    with pytest.raises(ValueError, match=message):
        contributions(small, ids, **words)


def test_contributions_reject_another_model():
    with pytest.raises(ValueError, match="must be a LanguageModel, got a Transformer"):
        contributions(example.model(), text, 3)
