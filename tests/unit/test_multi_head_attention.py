"""Lesson 06: multi-head attention. Equality with torch.nn is tested in test_same_as_pytorch."""

import math

import oracle
import pytest
import torch
from torch.testing import assert_close

from twelve import MultiHeadAttention, causal_mask, padding_mask
from twelve_lab import Trace


def make_layer(sizes, **keywords) -> MultiHeadAttention:
    widths = {"d_k": sizes.d_k, "d_v": sizes.d_v}
    return MultiHeadAttention(sizes.d_model, sizes.heads, **widths | keywords)


@pytest.fixture
def qkv(sizes, draw) -> list[torch.Tensor]:
    """Draw a different query, key and value."""
    lengths = (sizes.tgt, sizes.src, sizes.src)
    return [draw(sizes.batch, length, sizes.d_model) for length in lengths]


def make_mask(sizes) -> torch.Tensor:
    """Mask the end of the first sentence, and the future of each query."""
    ids = torch.ones(sizes.batch, sizes.src, dtype=torch.int64)
    ids[0, 3:] = 0
    return padding_mask(ids) & causal_mask(sizes.tgt, sizes.src)


# By hand


def test_multi_head_attention_uses_the_weights_of_each_head():
    layer = MultiHeadAttention(2, 2)
    with torch.no_grad():
        for matrix in (layer.w_q, layer.w_k, layer.w_v, layer.w_o):
            matrix.weight.copy_(torch.eye(2))
    query, value = torch.ones(1, 1, 2), torch.tensor([[[0.0, 0.0], [8.0, 8.0]]])
    key = torch.tensor([[[0.0, 0.0], [math.log(3.0), 0.0]]])
    # Head 0 has scores 0 and ln 3, so weights 1/4 and 3/4. Head 1 has scores 0 and equal weights.
    assert_close(layer(query, key, value), torch.tensor([[[6.0, 4.0]]]))


# Oracle


@pytest.mark.parametrize("bias", [True, False])
def test_every_intermediate_of_multi_head_attention_equals_numpy(sizes, noisy, qkv, bias):
    layer, mask = noisy(make_layer(sizes, bias=bias)), make_mask(sizes)
    query, key, _ = qkv
    with Trace(layer) as trace:
        layer(query, key, key, mask)
    arrays = query.cpu().numpy(), key.cpu().numpy(), oracle.weights_of(layer)
    oracle.compare(trace, oracle.multi_head_attention(*arrays, sizes.heads, mask.cpu().numpy()))


# Laws


@pytest.mark.parametrize(
    ("keywords", "widths"),
    [({}, (8, 8)), ({"d_k": 5}, (5, 8)), ({"d_v": 5}, (8, 5)), ({"d_k": 8, "d_v": 6}, (8, 6))],
    ids=str,
)
def test_multi_head_attention_divides_d_model_by_num_heads_by_default(keywords, widths):
    layer = MultiHeadAttention(24, 3, **keywords)
    assert (layer.d_k, layer.d_v) == widths


@pytest.mark.parametrize("keywords", [{"bias": True}, {"bias": False}, {}], ids=str)
def test_multi_head_attention_has_four_biases_or_none(sizes, keywords):
    state = make_layer(sizes, **keywords).state_dict()
    kinds = ["weight", "bias"] if keywords.get("bias") else ["weight"]
    assert list(state) == [f"w_{name}.{kind}" for name in "qkvo" for kind in kinds]
    assert state["w_q.weight"].shape == (24, 24) and state["w_v.weight"].shape == (18, 24)
    assert state["w_k.weight"].shape == (24, 24) and state["w_o.weight"].shape == (24, 18)
