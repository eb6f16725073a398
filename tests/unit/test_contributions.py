"""Contributions: a logit as the sum of what each part of a language model adds."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import LayerNorm
from twelve_lab import Trace, contributions, example

distinct = example.distinct
text = example.src[1:]  # dog, fish
longer = distinct.text[1:]
EITHER = (True, False)


def small() -> nn.Module:
    return example.language_model()


def test_by_hand_the_logit_of_fish_is_a_sum_of_four():
    found = contributions(small(), text, 3)
    # Step 18: fish comes in, leaves attention and leaves the feed-forward layer as these, and the
    # weight of the last norm is 1.
    stream = [(0.6, 0.3, 0.5), (2.0595, 1.7051, 1.8779), (1.9655, 1.6345, 2.1196)]
    row = (0.6, 0.3, 0.5)
    root_mean_square = math.sqrt(sum(x * x for x in stream[-1]) / 3)
    before, between, after = (
        sum(x * y for x, y in zip(one, row, strict=True)) / root_mean_square for one in stream
    )
    four_decimals = {"rel": 0, "abs": 1e-4}
    assert found.embedding == pytest.approx(before, **four_decimals)
    assert found.heads.shape == (1, 2)
    assert found.heads.sum().item() == pytest.approx(between - before, **four_decimals)
    assert found.feed_forward.tolist() == pytest.approx([after - between], **four_decimals)
    assert found.logit == pytest.approx(1.4236, **four_decimals)


@pytest.mark.parametrize("tie_weights", EITHER)
def test_every_summand_is_what_a_trace_saw_the_part_add(tie_weights):
    model = distinct.language_model(tie_weights=tie_weights)
    with Trace(model, explain=False) as trace:
        model(longer)
    found = contributions(model, longer, 7)

    def last(name: str) -> torch.Tensor:
        return trace[name].value[0, ..., -1, :]

    end = last("layers.1.feed_forward_residual.added")
    scale = model.norm.weight / (end.square().mean() + model.norm.eps).sqrt()
    row = (model.embedding if tie_weights else model.output_projection).weight[7]
    heads = torch.stack([
        torch.einsum("hv,mhv->hm", last(f"layers.{n}.self_attention.context"),
                     layer.self_attention.w_o.weight.unflatten(1, (6, -1)))
        for n, layer in enumerate(model.layers)
    ])  # fmt: skip
    ffn = torch.stack([last(f"layers.{n}.feed_forward.output") for n in (0, 1)])
    assert_close(found.heads, (heads * scale @ row).detach())
    assert_close(found.feed_forward, (ffn * scale @ row).detach())
    assert found.embedding == pytest.approx((last("embedding.vectors") * scale @ row).item())


@pytest.mark.parametrize("fused", EITHER)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_parts_add_up_to_the_logit_of_every_word(dtype, fused):
    model = distinct.language_model(num_kv_heads=2, fused=fused).to(dtype)
    logits = model(longer)[0, -1]
    for token, logit in enumerate(logits.tolist()):
        found = contributions(model, longer, token)
        assert len(found.parts) == 1 + 2 * (6 + 1) and found.logit == logit
        exact = 1e-9 if dtype == torch.float64 else 1e-4
        assert sum(found.parts.values()) == pytest.approx(logit, rel=exact, abs=exact)


def test_against_another_word_each_summand_is_a_difference():
    one, other = (contributions(small(), text, token) for token in (3, 1))
    found = contributions(small(), text, 3, against=1)
    assert found.logit == pytest.approx(one.logit - other.logit)
    assert found.embedding == pytest.approx(one.embedding - other.embedding)
    assert_close(found.heads, one.heads - other.heads)
    assert_close(found.feed_forward, one.feed_forward - other.feed_forward)


def test_the_parts_come_by_size_and_print_with_their_sum():
    found = contributions(small(), text, 3, against=1)
    assert list(found.parts) == ["head 0.1", "feed-forward 0", "embedding", "head 0.0"]
    assert repr(found) == (
        "logit 0.0571, the sum of (part=4, 1)\n"
        "part head 0.1         0.2336\n"
        "part feed-forward 0   0.0229\n"
        "part embedding       -0.0089\n"
        "part head 0.0        -0.1905"
    )
    assert "feed-forward 0" in found._repr_html_()


def test_of_many_parts_the_two_ends_are_printed_and_what_makes_the_sum_whole():
    found = contributions(distinct.language_model(), longer, 7)
    lines = repr(found).splitlines()[1:]
    assert len(lines) == 9 and lines[4].startswith("part 7 others ")
    shown = sum(float(line.split()[-1]) for line in lines)
    assert shown == pytest.approx(found.logit, abs=9 * 0.00005)


def test_it_leaves_nothing_on_the_model_whether_it_ends_well_or_not():
    model = small()
    contributions(model, text, 3)
    model.norm = LayerNorm(3)
    with pytest.raises(ValueError, match="add up to"):
        contributions(model, text, 3)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert all(one.grad_fn is None and one.grad is None for one in model.parameters())


@pytest.mark.parametrize(
    ("model", "ids", "words", "message"),
    [
        (example.model(), text, {"token": 3}, "must be a LanguageModel, got a Transformer"),
        (small(), example.src, {"token": 3}, r"ids must be one text, got shape \(2, 2\)"),
        (small(), text[0], {"token": 3}, r"ids must have 2 axes, got shape \(2,\)"),
        (small(), text, {"token": 4}, r"token must lie from 0 to 3 \(vocab_size=4\), got 4"),
        (small(), text, {"token": 3, "against": -1}, "against must lie from 0 to 3"),
    ],
)
def test_it_refuses_what_it_cannot_split(model, ids, words, message):
    with pytest.raises(ValueError, match=message):
        contributions(model, ids, **words)
