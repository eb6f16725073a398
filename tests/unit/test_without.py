"""without: temporarily remove one part of a language model, and nothing else."""

import copy
import math
import pickle
from contextlib import suppress
from io import BytesIO

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import RMSNorm
from twelve.fast import make_fast
from twelve_lab import example, without
from twelve_lab.experiments.without import EACH

distinct = example.distinct
ids = distinct.text[1:]


def state_of(model: nn.Module) -> list:
    return [
        (name, *map(sorted, (part.__dict__, part._forward_hooks, part._forward_pre_hooks)))
        for name, part in model.named_modules()
    ]


def test_without_feed_forward_by_hand():
    model = example.language_model()
    with torch.no_grad(), without(model, "feed-forward 0"):
        logit = model(example.src[1:])[0, -1, 3].item()
    stream, row = (2.0595, 1.7051, 1.8779), (0.6, 0.3, 0.5)  # lesson 18
    root_mean_square = math.sqrt(sum(x * x for x in stream) / 3)
    expected = sum(x * y for x, y in zip(stream, row, strict=True)) / root_mean_square
    assert logit == pytest.approx(expected, abs=1e-4)


def zero(weight: str):
    return lambda layer: layer.get_parameter(weight).zero_()


def undo_division(layer: nn.Module) -> None:
    layer.self_attention.w_q.weight *= math.sqrt(layer.self_attention.d_k)


def zero_head(layer: nn.Module) -> None:
    layer.self_attention.w_o.weight.unflatten(1, (6, -1))[:, 2] = 0.0


def remove_norms(layer: nn.Module) -> None:
    layer.self_attention_residual.norm = layer.feed_forward_residual.norm = nn.Identity()


def remove_rotation(layer: nn.Module) -> None:
    layer.self_attention.rotary = None


# The same ablation by other means: zero weights, other weights, another module.
BY_OTHER_MEANS = {
    "head 1.2": zero_head, "attention 1": zero("self_attention.w_o.weight"),
    "feed-forward 1": zero("feed_forward.down.weight"), "rotation 1": remove_rotation,
    "division 1": undo_division, "norms 1": remove_norms,
}  # fmt: skip


@pytest.mark.parametrize("part", BY_OTHER_MEANS)
@torch.no_grad()
def test_without_removes_a_part_of_one_layer_also_from_a_fast_model(part):
    model, other = distinct.language_model(), distinct.language_model()
    BY_OTHER_MEANS[part](other.layers[1])
    with without(model, part):
        logits = model(ids)
    assert_close(logits, other(ids))
    assert not torch.allclose(logits, model(ids))
    with without(make_fast(model), part):
        assert_close(model(ids), logits)


@pytest.mark.parametrize("name", EACH)
@torch.no_grad()
def test_without_a_number_removes_the_part_from_every_layer(name):
    model, other = distinct.language_model(), distinct.language_model()
    if name == "norms":
        other.norm = nn.Identity()
    with without(other, f"{name} 0", f"{name} 1"), without(model, name):
        assert_close(model(ids), other(ids))


@pytest.mark.parametrize("around", ["attention", "feed-forward"])
@torch.no_grad()
def test_without_residual_returns_the_sublayer_alone(around):
    model, x = distinct.language_model(), torch.randn(1, 5, 24)
    layer = model.layers[0]
    with without(model, f"residual around {around} 0"):
        output = layer(x)
    attended = layer.self_attention(layer.self_attention_residual.norm(x))
    if around == "feed-forward":
        attended += x
    expected = layer.feed_forward(layer.feed_forward_residual.norm(attended))
    assert_close(output, expected + attended if around == "attention" else expected)


@pytest.mark.parametrize("fast", [False, True])
@torch.no_grad()
def test_without_causal_mask_shows_later_words_and_still_hides_padding(fast):
    model, text = distinct.language_model(), distinct.text
    if fast:
        make_fast(model)
    other_end, padded, other_padding = text.clone(), text.clone(), text.clone()
    other_end[:, -1] = 1 + text[:, -1] % 10
    padded[0, :2], other_padding[0, :2] = 0, 5
    mask = (padded != 0)[:, None, None]
    assert_close(model(other_end)[:, 0], model(text)[:, 0])
    with without(model, "causal mask"):
        assert not torch.allclose(model(other_end)[:, 0], model(text)[:, 0])
        logits = [model(each, key_mask=mask)[0, 2:] for each in (padded, other_padding)]
    assert_close(*logits)


@pytest.mark.parametrize("part", ["causal mask", "head 1.2", *EACH])
@torch.no_grad()
def test_without_restores_the_model_after_an_error(part):
    model = distinct.language_model()
    before, logits = state_of(model), model(ids)
    with suppress(ZeroDivisionError), without(model, part), without(model, part):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="no part is named 'dropout'"):
        with without(model, part, "dropout"):
            pass
    assert state_of(model) == before and torch.equal(model(ids), logits)


@torch.no_grad()
def test_without_restores_the_model_if_blocks_are_left_in_the_wrong_order():
    model = distinct.language_model()
    before, logits = state_of(model), model(ids)
    outer, inner = without(model, "norms"), without(model, "norms", "head 1.2")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="leave the inner block first"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    assert state_of(model) == before and torch.equal(model(ids), logits)


def test_without_rejects_a_copy_that_would_stay_without_the_part():
    model = distinct.language_model()
    with without(model, "norms"):
        with without(model, "rotation"):
            pass
        for make_copy in (copy.deepcopy, pickle.dumps, lambda model: torch.save(model, BytesIO())):
            with pytest.raises(ValueError, match="copy or pickle the model before the block"):
                make_copy(model)
    pickle.dumps(copy.deepcopy(model))


UNKNOWN = [
    ("head 3", r"no part is named 'head 3'; there are head 0\.0, "),
    ("rotation 1.2", "no part is named 'rotation 1.2'"),
    ("", "no part is named ''"),
    (5, "no part is named 5"),
    ("attention 2", r"'attention 2': layer must be an integer from 0 to 1 \(2 layers\), got 2"),
    ("head 1.6", r"'head 1.6': head must be an integer from 0 to 5 \(6 heads\), got 6"),
]


@pytest.mark.parametrize(("part", "message"), UNKNOWN)
def test_without_rejects_an_unknown_part(unchecked, part, message):
    with pytest.raises(ValueError, match=message), without(distinct.language_model(), part):
        pass


def test_without_rejects_another_model():
    with pytest.raises(ValueError, match="must be a LanguageModel, got a RMSNorm"):
        with without(RMSNorm(3), "norms"):
            pass
