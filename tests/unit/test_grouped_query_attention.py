"""Lesson 17: grouped-query attention."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from twelve import GroupedQueryAttention, RotaryEncoding
from twelve.generation import KeyValueCache
from twelve_lab import Trace, example

# Columns for two more query heads of width 2, appended to those of h2.
MORE_QUERIES = [[1.0, 0.5, 0.0, -1.0], [0.0, -0.5, 1.0, 0.5], [0.5, 1.0, -0.5, 0.0]]


def make_layer(sizes, num_kv_heads: int = 3, **keywords) -> GroupedQueryAttention:
    rotary = RotaryEncoding(sizes.d_k, max_len=16, base=100.0)
    keywords = {"d_k": sizes.d_k, "rotary": rotary} | keywords
    return GroupedQueryAttention(sizes.d_model, 6, num_kv_heads, **keywords)


# By hand


def test_grouped_query_attention_of_fish_to_dog_with_two_kv_heads():
    h2 = {name: torch.tensor(matrix) for name, matrix in example.weights()["h2"].items()}
    layer = GroupedQueryAttention(3, 4, 2, d_k=2, rotary=RotaryEncoding(2))
    with torch.no_grad():
        layer.w_q.weight.copy_(torch.cat((h2["Wq"], torch.tensor(MORE_QUERIES)), dim=1).T)
        layer.w_k.weight.copy_(h2["Wk"].T)
        layer.w_v.weight.copy_(h2["Wv"].T)
    with Trace(layer) as trace:
        layer(torch.tensor([example.embedding_rows[2:]]))
    four_decimals = {"rtol": 0.0, "atol": 5e-5}
    weights = trace["weights"].value[0, :, 1, 0]
    assert_close(weights, torch.tensor([0.6106, 0.5310, 0.5065, 0.5275]), **four_decimals)
    # `repeat` orders the KV heads 0, 1, 0, 1, so only the first and the last head are unchanged.
    repeated = trace["rotary#2.turned"].value.repeat(1, 2, 1, 1)
    scores = trace["rotary.turned"].value @ repeated.mT / 2**0.5
    expected = torch.tensor([0.6106, 0.5301, 0.5742, 0.5275])
    assert_close(scores.softmax(-1)[0, :, 1, 0], expected, **four_decimals)


@pytest.mark.parametrize(("num_kv_heads", "numbers"), [(4, 64), (2, 32), (1, 16)])
def test_kv_cache_shrinks_with_the_number_of_kv_heads(num_kv_heads, numbers):
    cache = KeyValueCache(GroupedQueryAttention(3, 4, num_kv_heads, d_k=2), 1, 4)
    assert cache.keys.numel() + cache.values.numel() == numbers


# Oracle


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_grouped_query_attention_equals_torch_in_values_and_gradients(
    sizes, noisy, x, prompt_mask, assert_same, num_kv_heads, bias
):
    layer = noisy(make_layer(sizes, num_kv_heads, bias=bias))
    x.requires_grad_()
    query, key, value = (
        matrix(x).unflatten(-1, (-1, sizes.d_k)).transpose(1, 2)
        for matrix in (layer.w_q, layer.w_k, layer.w_v)
    )
    context = F.scaled_dot_product_attention(
        layer.rotary(query), layer.rotary(key), value, prompt_mask, enable_gqa=True
    )
    expected = layer.w_o(context.transpose(1, 2).flatten(2))
    assert_same(layer(x, prompt_mask), expected, [x, *layer.parameters()])


# Laws


@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (5,), (2, 1, 2), (1, 4)])
def test_grouped_query_attention_with_a_kv_cache_equals_one_pass(sizes, x, prompt_mask, pieces):
    layer = make_layer(sizes)
    cache, outputs = KeyValueCache(layer, sizes.batch, sizes.src), []
    for piece in x.split(pieces, dim=1):
        start, stop = cache.length, cache.length + piece.size(1)
        outputs.append(layer(piece, prompt_mask[:, :, start:stop, :stop], cache=cache))
    assert_close(torch.cat(outputs, dim=1), layer(x, prompt_mask))


@pytest.mark.parametrize("bias", [True, False])
def test_grouped_query_attention_has_smaller_projections_of_keys_and_values(sizes, bias):
    state = make_layer(sizes, bias=bias).state_dict()
    kinds = ["weight", "bias"] if bias else ["weight"]
    assert sorted(state) == sorted(f"w_{name}.{kind}" for name in "qkvo" for kind in kinds)
    assert state["w_k.weight"].shape == state["w_v.weight"].shape == (24, 24)
    assert state["w_q.weight"].shape == (48, 24)


def test_grouped_query_attention_shares_no_head_by_default():
    layer = GroupedQueryAttention(24, 3)
    assert (layer.num_kv_heads, layer.d_k, layer.rotary) == (3, 8, None)
    assert not any("bias" in name for name in layer.state_dict())
