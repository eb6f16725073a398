"""Without: each part of a language model removed, for a while, and nothing else."""

import math
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import LanguageModel, RMSNorm
from twelve_lab import example, without
from twelve_lab.experiments.without import EACH

companion = example.distinct
ids = companion.text[1:]
EITHER = (True, False)


def built(fused: bool = False) -> LanguageModel:
    return companion.language_model(fused=fused)


def state_of(model: nn.Module) -> list:
    return [
        (name, *map(sorted, (one.__dict__, one._forward_hooks, one._forward_pre_hooks)))
        for name, one in model.named_modules()
    ]


def test_by_hand_without_feed_forward_fish_scores_with_what_leaves_attention():
    model = example.language_model()
    with torch.no_grad(), without(model, "feed-forward 0"):
        found = model(example.src[1:])[0, -1, 3].item()
    stream, row = (2.0595, 1.7051, 1.8779), (0.6, 0.3, 0.5)  # step 18
    root_mean_square = math.sqrt(sum(x * x for x in stream) / 3)
    expected = sum(x * y for x, y in zip(stream, row, strict=True)) / root_mean_square
    assert found == pytest.approx(expected, abs=1e-4)


def zeroed(weight: str):
    def change(layer: nn.Module) -> None:
        layer.get_parameter(weight).zero_()

    return change


def undivided(layer: nn.Module) -> None:
    layer.self_attention.w_q.weight *= math.sqrt(layer.self_attention.d_k)


def one_head(layer: nn.Module) -> None:
    layer.self_attention.w_o.weight.unflatten(1, (6, -1))[:, 2] = 0.0


def unnormed(layer: nn.Module) -> None:
    layer.self_attention_residual.norm = layer.feed_forward_residual.norm = nn.Identity()


def still(layer: nn.Module) -> None:
    layer.self_attention.rotary = None


# The same by other means: zero weights, other weights, another module.
OTHERWISE = {
    "head 1.2": one_head, "attention 1": zeroed("self_attention.w_o.weight"),
    "feed-forward 1": zeroed("feed_forward.down.weight"), "rotation 1": still,
    "division 1": undivided, "norms 1": unnormed,
}  # fmt: skip


@pytest.mark.parametrize("fused", EITHER)
@pytest.mark.parametrize("part", OTHERWISE)
@torch.no_grad()
def test_a_part_of_one_layer_is_missing_there_alone(part, fused):
    model, other = built(fused), built(fused)
    OTHERWISE[part](other.layers[1])
    with without(model, part):
        found = model(ids)
    assert_close(found, other(ids))
    assert not torch.allclose(found, model(ids))


@pytest.mark.parametrize("name", EACH)
@torch.no_grad()
def test_without_a_number_it_is_missing_in_every_layer(name):
    model, numbered = built(), [f"{name} {layer}" for layer in (0, 1)]
    if name == "norms":
        model.norm, last = nn.Identity(), model.norm
    with without(model, *numbered):
        expected = model(ids)
    if name == "norms":
        model.norm = last
    with without(model, name):
        assert_close(model(ids), expected)


@pytest.mark.parametrize("around", ["attention", "feed-forward"])
@torch.no_grad()
def test_without_a_residual_the_sublayer_answers_alone(around):
    model, x = built(), torch.randn(1, 5, 24)
    layer = model.layers[0]
    attend = lambda x: layer.self_attention(layer.self_attention_residual.norm(x))  # noqa: E731
    bend = lambda x: layer.feed_forward(layer.feed_forward_residual.norm(x))  # noqa: E731
    with without(model, f"residual around {around} 0"):
        found = layer(x)
    after = attend(x) if around == "attention" else x + attend(x)
    assert_close(found, bend(after) + (after if around == "attention" else 0))


@torch.no_grad()
def test_without_causal_mask_words_are_seen_before_their_turn_and_padding_still_is_not():
    model, text = built(), companion.text
    padded = text.clone()
    padded[0, :2] = 0
    mask = (padded != 0)[:, None, None]
    changed = text.clone()
    changed[:, -1] = 1 + text[:, -1] % 10
    assert torch.equal(model(changed)[:, 0], model(text)[:, 0])
    with without(model, "causal mask"):
        assert not torch.allclose(model(changed)[:, 0], model(text)[:, 0])
        other = padded.clone()
        other[0, :2] = 5
        assert torch.equal(model(other, key_mask=mask)[0, 2:], model(padded, key_mask=mask)[0, 2:])


@pytest.mark.parametrize("part", ["causal mask", *EACH, *OTHERWISE])
@torch.no_grad()
def test_whatever_happens_in_the_block_the_model_is_as_before(part):
    model = built()
    before, logits = state_of(model), model(ids)
    with suppress(ZeroDivisionError), without(model, part), without(model, part):
        raise ZeroDivisionError
    assert state_of(model) == before and torch.equal(model(ids), logits)


def test_a_part_that_is_unknown_is_refused_and_what_was_removed_before_it_is_back():
    model = built()
    before = state_of(model)
    with pytest.raises(ValueError, match=r"no part is named 'dropout'; there are head 0\.0, "):
        with without(model, "norms", "dropout"):
            pass
    assert state_of(model) == before


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("head 3", "no part is named 'head 3'"),
        ("rotation 1.2", "no part is named 'rotation 1.2'"),
        ("", "no part is named ''"),
        ("attention 2", r"without: 'attention 2': layer must lie from 0 to 1 \(2 layers\), got 2"),
        ("head 1.6", r"without: 'head 1.6': head must lie from 0 to 5 \(6 heads\), got 6"),
    ],
)
def test_it_names_the_layers_and_heads_there_are(part, message):
    with pytest.raises(ValueError, match=message), without(built(), part):
        pass
    with pytest.raises(ValueError, match="must be a LanguageModel, got a RMSNorm"):
        with without(RMSNorm(3), part):
            pass
