"""Step 06: several attentions side by side, each in its own slice of features."""

import math

import oracle
import pytest
import torch
from einops import rearrange
from torch import nn
from torch.testing import assert_close

from twelve import MultiHeadAttention, causal_mask, padding_mask
from twelve_lab import Trace

NAMES = [
    "projected_query", "projected_key", "projected_value", "query_heads", "key_heads",
    "value_heads", "scores", "masked_scores", "weights", "context", "merged", "output",
]  # fmt: skip


def layer_of(sizes, **keywords) -> MultiHeadAttention:
    widths = {"d_k": sizes.d_k, "d_v": sizes.d_v}
    return MultiHeadAttention(sizes.d_model, sizes.heads, **{**widths, **keywords})


@pytest.fixture
def three(sizes, draw) -> list[torch.Tensor]:
    """Hold queries, keys and values, all drawn apart, so that none can pass for another."""
    lengths = (sizes.tgt, sizes.src, sizes.src)
    return [draw(sizes.batch, length, sizes.d_model) for length in lengths]


def mask_of(sizes) -> torch.Tensor:
    """Hide the end of the first sentence, and from each query what lies ahead of it."""
    ids = torch.ones(sizes.batch, sizes.src, dtype=torch.int64)
    ids[0, 3:] = 0
    return padding_mask(ids) & causal_mask(sizes.tgt, sizes.src)


def identity(num_heads: int, d_model: int) -> MultiHeadAttention:
    layer = MultiHeadAttention(d_model, num_heads)
    with torch.no_grad():
        for matrix in (layer.w_q, layer.w_k, layer.w_v, layer.w_o):
            matrix.weight.copy_(torch.eye(d_model))
    return layer


def test_two_heads_of_width_one_attend_each_in_its_own_way():
    query, value = torch.ones(1, 1, 2), torch.tensor([[[0.0, 0.0], [8.0, 8.0]]])
    key = torch.tensor([[[0.0, 0.0], [math.log(3.0), 0.0]]])
    # Head 0 scores 0 and ln 3: weights 1/4 and 3/4. Head 1 scores 0 and 0: weights 1/2 and 1/2.
    expected = torch.tensor([[[6.0, 4.0]]])
    assert_close(identity(2, 2)(query, key, value), expected)


def test_one_head_of_width_two_blends_both_features_alike():
    query, value = torch.ones(1, 1, 2), torch.tensor([[[0.0, 0.0], [8.0, 8.0]]])
    key = torch.tensor([[[0.0, 0.0], [math.sqrt(2.0) * math.log(3.0), 0.0]]])
    expected = torch.tensor([[[6.0, 6.0]]])
    assert_close(identity(1, 2)(query, key, value), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_it_equals_torch_whose_masks_say_what_is_hidden(
    sizes, draw, noisy, three, torch_state, bias, masked
):
    ours = noisy(MultiHeadAttention(sizes.d_model, sizes.heads, bias=bias))
    theirs = nn.MultiheadAttention(sizes.d_model, sizes.heads, bias=bias, batch_first=True)
    theirs.load_state_dict(torch_state(ours))
    mask = mask_of(sizes) if masked else None
    hidden = None if mask is None else ~mask.expand(-1, sizes.heads, -1, -1).flatten(0, 1)

    inputs = [x.requires_grad_() for x in three]
    output = ours(*inputs, mask)
    expected, _ = theirs(*inputs, attn_mask=hidden, need_weights=False)
    assert_close(output, expected)
    direction = draw(*output.shape)
    gradients = torch.autograd.grad(expected, inputs, direction)
    assert_close(torch.autograd.grad(output, inputs, direction), gradients)


def test_a_padding_mask_is_the_opposite_of_a_key_padding_mask(sizes, three, torch_state):
    ours = MultiHeadAttention(sizes.d_model, sizes.heads)
    theirs = nn.MultiheadAttention(sizes.d_model, sizes.heads, bias=False, batch_first=True)
    theirs.load_state_dict(torch_state(ours))
    mask = padding_mask(torch.tensor([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]]))
    expected, _ = theirs(*three, key_padding_mask=~mask[:, 0, 0])
    assert_close(ours(*three, mask), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_every_intermediate_equals_numpy_at_sizes_that_all_differ(sizes, noisy, three, bias):
    layer, mask = noisy(layer_of(sizes, bias=bias)), mask_of(sizes)
    query, key, _ = three
    with Trace(layer) as trace:
        layer(query, key, key, mask)
    weights = {
        f"{'w' if kind == 'weight' else 'b'}_{matrix[-1]}": value.numpy().T
        for name, value in layer.state_dict().items()
        for matrix, kind in [name.split(".")]
    }
    expected = oracle.multi_head_attention(
        query.numpy(), key.numpy(), weights, sizes.heads, mask.numpy()
    )
    assert list(trace) == list(expected) == NAMES
    for name, value in expected.items():
        assert_close(trace[name].value, torch.from_numpy(value))


def test_each_head_gets_its_own_slice_of_neighbouring_features(sizes, three):
    layer = layer_of(sizes)
    with Trace(layer) as trace:
        layer(*three)
    for side, length in (("query", sizes.tgt), ("key", sizes.src), ("value", sizes.src)):
        projected, heads = trace[f"projected_{side}"].value, trace[f"{side}_heads"].value
        width = sizes.d_v if side == "value" else sizes.d_k
        assert heads.shape == (sizes.batch, sizes.heads, length, width)
        assert torch.equal(heads, rearrange(projected, "b s (h d) -> b h s d", h=sizes.heads))
        for head in range(sizes.heads):
            start = head * width
            assert torch.equal(heads[:, head], projected[..., start : start + width])


def test_counting_shows_where_each_number_goes(sizes):
    layer = layer_of(sizes)
    shape = (sizes.batch, sizes.src, sizes.heads * sizes.d_k)
    count = torch.arange(math.prod(shape)).reshape(shape)
    split = layer._split(count)
    assert torch.equal(split, rearrange(count, "b s (h d) -> b h s d", h=sizes.heads))
    by_hand = count.view(*shape[:2], sizes.heads, sizes.d_k).transpose(1, 2)
    assert torch.equal(split, by_hand)


def test_heads_are_merged_in_the_order_in_which_they_were_split(sizes, three):
    layer = layer_of(sizes)
    with Trace(layer) as trace:
        layer(*three)
    context, merged = trace["context"].value, trace["merged"].value
    assert torch.equal(merged, rearrange(context, "b h q d -> b q (h d)"))
    assert torch.equal(merged, torch.cat(list(context.unbind(1)), dim=-1))


def test_a_head_whose_output_columns_are_zero_is_the_only_one_lost(sizes, three):
    layer = layer_of(sizes)
    with Trace(layer) as trace:
        whole = layer(*three)
    lost = slice(sizes.d_v, 2 * sizes.d_v)
    with torch.no_grad():
        share = trace["context"].value[:, 1] @ layer.w_o.weight[:, lost].T
        layer.w_o.weight[:, lost] = 0.0
    assert_close(layer(*three), whole - share)


def test_heads_may_change_places_with_their_slices(sizes, three):
    layer, other = layer_of(sizes), layer_of(sizes)
    order = [2, 0, 1]
    state = layer.state_dict()
    for name, width in (("w_q", sizes.d_k), ("w_k", sizes.d_k), ("w_v", sizes.d_v)):
        slices = state[f"{name}.weight"].split(width)
        state[f"{name}.weight"] = torch.cat([slices[head] for head in order])
    slices = state["w_o.weight"].split(sizes.d_v, dim=1)
    state["w_o.weight"] = torch.cat([slices[head] for head in order], dim=1)
    other.load_state_dict(state)
    assert_close(other(*three), layer(*three))


def test_the_weights_of_each_head_and_query_sum_to_one(sizes, three):
    layer = layer_of(sizes)
    with Trace(layer) as trace:
        layer(*three, mask_of(sizes))
    weights = trace["weights"].value
    assert_close(weights.sum(-1), torch.ones(sizes.batch, sizes.heads, sizes.tgt))


def test_sentences_do_not_see_each_other(sizes, three):
    layer, mask = layer_of(sizes), mask_of(sizes)
    expected = layer(*three, mask).flip(0)
    assert_close(layer(*(x.flip(0) for x in three), mask.flip(0)), expected)


def test_each_sentence_has_a_mask_of_its_own_in_every_head(sizes, draw):
    # As many heads as sentences: a mask laid on the wrong axis would still fit.
    layer = MultiHeadAttention(6, 2)
    x = draw(2, sizes.src, 6)
    mask = padding_mask(torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]))
    output = layer(x, x, x, mask)
    for sentence in range(2):
        alone = x[sentence : sentence + 1]
        expected = layer(alone, alone, alone, mask[sentence : sentence + 1])
        assert_close(output[sentence : sentence + 1], expected)


def test_each_head_may_have_a_mask_of_its_own(sizes, three):
    layer = layer_of(sizes)
    mask = torch.ones(1, sizes.heads, 1, sizes.src, dtype=torch.bool)
    mask[0, 1, 0, 2:] = False
    with Trace(layer) as trace:
        layer(*three, mask)
    hidden = trace["weights"].value[..., 2:] == 0.0
    assert hidden[:, 1].all() and not hidden[:, [0, 2]].any()


@pytest.mark.parametrize("training", [True, False])
def test_the_future_never_leaks(sizes, draw, training):
    layer = layer_of(sizes, dropout=0.2).train(training)
    x = draw(sizes.batch, sizes.tgt, sizes.d_model)
    changed = x.clone()
    changed[:, 2:] = draw(sizes.batch, 2, sizes.d_model)

    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return layer(x, x, x, causal_mask(sizes.tgt))

    assert torch.equal(run(x)[:, :2], run(changed)[:, :2])
    assert not torch.allclose(run(x)[:, 2:], run(changed)[:, 2:])


def test_fully_masked_rows_add_nothing_and_leave_finite_gradients(sizes, noisy, three):
    layer = noisy(layer_of(sizes, bias=True))
    mask = mask_of(sizes)
    mask[0, :, 1] = False
    mask[1] = False
    for x in three:
        x.requires_grad_()
    output = layer(*three, mask)
    only_bias = layer.w_o.bias.expand(sizes.tgt, -1)
    assert_close(output[1], only_bias)
    assert_close(output[0, 1], only_bias[1])

    output.square().sum().backward()
    for tensor in (*three, *layer.parameters()):
        assert tensor.grad.isfinite().all()
    assert all(layer.get_parameter(name).grad.any() for name in ("w_q.weight", "w_v.bias"))


def test_dropout_is_at_work_in_training_only(sizes, three):
    layer = layer_of(sizes, dropout=0.25)
    assert not torch.equal(layer(*three), layer(*three))
    layer.eval()
    without = layer_of(sizes)
    without.load_state_dict(layer.state_dict())
    assert_close(layer(*three), without(*three))


def test_dropout_falls_on_the_weights(sizes, draw):
    # One head, the identity for values and for the output: what comes out are the kept weights.
    layer = MultiHeadAttention(sizes.src, 1, dropout=0.25)
    with torch.no_grad():
        for matrix in (layer.w_v, layer.w_o):
            matrix.weight.copy_(torch.eye(sizes.src))
    x = draw(sizes.batch, sizes.src, sizes.src)
    with Trace(layer) as trace:
        kept = layer(x, x, torch.eye(sizes.src).expand_as(x))
    weights = trace["weights"].value[:, 0]
    gone = kept == 0.0
    assert 0.0 < gone.double().mean() < 0.5
    assert_close(kept[~gone], weights[~gone] / 0.75)


def test_widths_follow_from_d_model_unless_given(sizes):
    layer = MultiHeadAttention(24, 3)
    assert (layer.d_k, layer.d_v) == (8, 8)
    assert (layer_of(sizes).d_k, layer_of(sizes).d_v) == (8, 6)
    assert MultiHeadAttention(24, 3, d_k=5).d_v == 8
    assert MultiHeadAttention(24, 3, d_v=5).d_k == 8


def test_heads_need_not_divide_d_model_where_both_widths_are_given(draw):
    layer = MultiHeadAttention(3, 2, d_k=2, d_v=5)
    x = draw(2, 4, 3)
    assert layer(x, x, x).shape == (2, 4, 3)


@pytest.mark.parametrize("bias", [True, False])
def test_all_four_projections_have_a_bias_or_none_has(sizes, bias):
    state = layer_of(sizes, bias=bias).state_dict()
    kinds = ["weight", "bias"] if bias else ["weight"]
    assert list(state) == [f"w_{name}.{kind}" for name in "qkvo" for kind in kinds]
    assert state["w_q.weight"].shape == (24, 24) and state["w_v.weight"].shape == (18, 24)
    assert state["w_k.weight"].shape == (24, 24) and state["w_o.weight"].shape == (24, 18)


def test_there_is_no_bias_unless_asked_for(sizes):
    assert not any("bias" in name for name in MultiHeadAttention(24, 3).state_dict())


def test_saved_weights_give_the_same_layer(sizes, three):
    layer, fresh = layer_of(sizes, bias=True), layer_of(sizes, bias=True)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(*three), layer(*three))


def test_it_shows_its_sizes():
    shown = "d_model=3, num_heads=1, d_k=3, d_v=3, dropout=0.5"
    assert shown in repr(MultiHeadAttention(3, 1, dropout=0.5))
