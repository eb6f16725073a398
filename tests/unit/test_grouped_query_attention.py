"""Step 17: several query heads share one head of keys and values."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from twelve import (
    GroupedQueryAttention,
    Linear,
    MultiHeadAttention,
    RotaryEncoding,
    causal_mask,
    padding_mask,
)
from twelve.generation import KeyValueCache
from twelve_lab import Trace, example

EITHER = (True, False)
# Two query heads beside those of h2, of width 2 each.
FURTHER = [[1.0, 0.5, 0.0, -1.0], [0.0, -0.5, 1.0, 0.5], [0.5, 1.0, -0.5, 0.0]]
NAMES = [
    "query_heads", "key_heads", "value_heads", "rotary.sin", "rotary.cos", "rotary.even",
    "rotary.odd", "rotary.turned", "rotary#2.sin", "rotary#2.cos", "rotary#2.even", "rotary#2.odd",
    "rotary#2.turned", "shared_keys", "shared_values", "scores", "masked_scores", "weights",
    "context", "merged", "output",
]  # fmt: skip


def four_on_two() -> GroupedQueryAttention:
    """Build four query heads on the two key heads of h2, with the numbers of the example."""
    h2 = {name: torch.tensor(matrix) for name, matrix in example.weights()["h2"].items()}
    layer = GroupedQueryAttention(3, 4, 2, d_k=2, rotary=RotaryEncoding(2))
    with torch.no_grad():
        layer.w_q.weight.copy_(torch.cat((h2["Wq"], torch.tensor(FURTHER)), dim=1).T)
        layer.w_k.weight.copy_(h2["Wk"].T)
        layer.w_v.weight.copy_(h2["Wv"].T)
    return layer


def layer_of(sizes, num_kv_heads: int = 3, **keywords) -> GroupedQueryAttention:
    rotary = RotaryEncoding(sizes.d_k, max_len=16, base=100.0)
    keywords = {"d_k": sizes.d_k, "rotary": rotary} | keywords
    return GroupedQueryAttention(sizes.d_model, 6, num_kv_heads, **keywords)


def copied(grouped: GroupedQueryAttention) -> MultiHeadAttention:
    """Build the plain attention in which each query head has a copy of the head that it shares."""
    heads, width, shared = grouped.num_heads, grouped.d_k, grouped.num_kv_heads
    plain = MultiHeadAttention(
        grouped.d_model, heads, d_k=width, d_v=width, bias=grouped.w_q.bias is not None
    )
    state = grouped.state_dict()
    for name in [name for name in state if name[:3] in ("w_k", "w_v")]:
        slices = state[name].split(width)
        state[name] = torch.cat([slices[head * shared // heads] for head in range(heads)])
    plain.load_state_dict(state)
    return plain


@pytest.fixture
def x(sizes, draw) -> torch.Tensor:
    return draw(sizes.batch, sizes.src, sizes.d_model)


def mask_of(sizes) -> torch.Tensor:
    """Hide the beginning of the first sentence, and from each query what lies ahead of it."""
    ids = torch.ones(sizes.batch, sizes.src, dtype=torch.int64)
    ids[0, :2] = 0
    return padding_mask(ids) & causal_mask(sizes.src)


def test_fish_looks_at_dog_in_four_heads_on_two():
    layer, rows = four_on_two(), torch.tensor([example.embedding_rows[2:]])
    with Trace(layer) as trace:
        layer(rows)
    weights = trace["weights"].value[0, :, 1, 0]
    four = {"rtol": 0.0, "atol": 5e-5}  # four decimals are given
    assert_close(weights, torch.tensor([0.6106, 0.5310, 0.5065, 0.5275]), **four)
    # Laid as tiles, 0, 1, 0, 1: the first and the last head are blind to it.
    tiled = trace["rotary#2.turned"].value.repeat(1, 2, 1, 1)
    scores = trace["rotary.turned"].value @ tiled.mT / 2**0.5
    expected = torch.tensor([0.6106, 0.5301, 0.5742, 0.5275])
    assert_close(scores.softmax(-1)[0, :, 1, 0], expected, **four)


@pytest.mark.parametrize(("num_kv_heads", "numbers"), [(4, 64), (2, 32), (1, 16)])
def test_the_cache_of_four_tokens_shrinks_with_the_heads_that_are_kept(num_kv_heads, numbers):
    cache = KeyValueCache(GroupedQueryAttention(3, 4, num_kv_heads, d_k=2), 1, 4)
    assert cache.keys.numel() + cache.values.numel() == numbers


@pytest.mark.parametrize("bias", EITHER)
@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_copies_of_each_shared_head_make_it_multi_head_attention(
    sizes, noisy, x, num_kv_heads, bias
):
    layer = noisy(layer_of(sizes, num_kv_heads, rotary=None, bias=bias))
    for mask in (mask_of(sizes), None):
        assert_close(layer(x, mask), copied(layer)(x, x, x, mask))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_it_equals_torch_with_grouped_heads(sizes, draw, noisy, x, num_kv_heads):
    layer = noisy(layer_of(sizes, num_kv_heads))
    x.requires_grad_()
    heads = [
        matrix(x).unflatten(-1, (-1, sizes.d_k)).transpose(1, 2)
        for matrix in (layer.w_q, layer.w_k, layer.w_v)
    ]
    turned = [layer.rotary(one) for one in heads[:2]]
    blended = F.scaled_dot_product_attention(
        *turned, heads[2], mask_of(sizes), enable_gqa=True
    )  # fmt: skip
    expected = layer.w_o(blended.transpose(1, 2).flatten(2))
    output = layer(x, mask_of(sizes))
    assert_close(output, expected)
    inputs, direction = [x, *layer.parameters()], draw(*output.shape)
    gradients = torch.autograd.grad(expected, inputs, direction)
    assert_close(torch.autograd.grad(output, inputs, direction), gradients)


def test_one_shared_head_is_multi_query_attention(sizes, x):
    layer = layer_of(sizes, 1)
    with Trace(layer) as trace:
        layer(x)
    for name, width in (("key", sizes.d_k), ("value", sizes.d_k)):
        heads, shared = trace[f"{name}_heads"].value, trace[f"shared_{name}s"].value
        assert heads.shape == (sizes.batch, 1, sizes.src, width)
        turned = trace["rotary#2.turned"].value if name == "key" else heads
        assert torch.equal(shared, turned.expand(-1, 6, -1, -1))


def test_neighbours_share_a_head(sizes, x):
    layer = layer_of(sizes)
    with Trace(layer) as trace:
        layer(x)
    shared, values = trace["shared_values"].value, trace["value_heads"].value
    for head, group in enumerate((0, 0, 1, 1, 2, 2)):
        assert torch.equal(shared[:, head], values[:, group])
    assert not torch.equal(shared[:, 0], shared[:, 2])


def test_the_trace_names_every_step(sizes, x):
    layer = layer_of(sizes)
    with Trace(layer) as trace:
        layer(x, mask_of(sizes))
    assert list(trace) == NAMES
    assert trace["key_heads"].shape == (sizes.batch, 3, sizes.src, sizes.d_k)
    assert trace["shared_keys"].axes == ("batch", "head", "key", "d_k")


def test_only_queries_and_keys_are_turned_and_by_the_distance_alone(sizes, draw, x):
    layer = layer_of(sizes)
    with Trace(layer) as trace:
        first = layer(x)
    plain = layer_of(sizes, rotary=None)
    plain.load_state_dict(layer.state_dict())
    with Trace(plain) as other:
        assert not torch.allclose(plain(x), first)
    assert torch.equal(trace["shared_values"].value, other["shared_values"].value)
    assert not torch.equal(trace["shared_keys"].value, other["shared_keys"].value)
    # The same words behind four others that nobody may look at: all places move, no score does.
    longer = torch.cat((draw(sizes.batch, 4, sizes.d_model), x), dim=1)
    mask = torch.ones(1, 1, 1, 9, dtype=torch.bool)
    mask[..., :4] = False
    assert_close(layer(longer, mask)[:, 4:], first)


@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (5,), (2, 1, 2), (1, 4)])
def test_piece_by_piece_with_a_cache_equals_one_pass(sizes, x, pieces):
    layer, mask = layer_of(sizes), mask_of(sizes)
    cache, found = KeyValueCache(layer, sizes.batch, sizes.src), []
    for piece in x.split(pieces, dim=1):
        start, stop = cache.length, cache.length + piece.size(1)
        found.append(layer(piece, mask[:, :, start:stop, :stop], cache=cache))
    assert_close(torch.cat(found, dim=1), layer(x, mask))


def test_what_is_kept_is_turned_once_and_shared_by_nobody_yet(sizes, x):
    layer = layer_of(sizes)
    cache = KeyValueCache(layer, sizes.batch, sizes.src + 1)
    layer(x, cache=cache)
    key_heads = layer.w_k(x).unflatten(-1, (3, sizes.d_k)).transpose(1, 2)
    assert_close(cache.keys[:, :, : sizes.src], layer.rotary(key_heads))
    before = cache.keys.clone()
    layer(x[:, :1], cache=cache)
    assert torch.equal(cache.keys[:, :, : sizes.src], before[:, :, : sizes.src])


def test_keys_and_queries_may_be_normed_in_each_head_before_they_turn(sizes, x):
    # As in Qwen3: a projection is any layer of its widths.
    class NormedHeads(Linear):
        def __init__(self, given: Linear) -> None:
            super().__init__(given.d_in, given.d_out, bias=False)
            self.weight, self.norm = given.weight, nn.RMSNorm(sizes.d_k, eps=1e-5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(super().forward(x).unflatten(-1, (-1, sizes.d_k))).flatten(-2)

    layer = layer_of(sizes)
    layer.w_q, layer.w_k = NormedHeads(layer.w_q), NormedHeads(layer.w_k)
    with Trace(layer) as trace:
        whole = layer(x)
    length = trace["shared_keys"].value.square().mean(-1).sqrt()
    assert_close(length, torch.ones(sizes.batch, 6, sizes.src), rtol=1e-4, atol=0.0)  # eps
    cache = KeyValueCache(layer, sizes.batch, sizes.src)
    assert_close(layer(x, cache=cache), whole)


@pytest.mark.parametrize("training", EITHER)
@pytest.mark.parametrize("masked", EITHER)
def test_dropout_is_at_work_in_training_only(sizes, x, masked, training):
    layer = layer_of(sizes, dropout=0.25).train(training)
    mask = mask_of(sizes) if masked else None
    assert torch.equal(layer(x, mask), layer(x, mask)) != training


def test_without_a_number_of_its_own_every_head_has_its_own_keys():
    layer = GroupedQueryAttention(24, 3)
    assert (layer.num_kv_heads, layer.d_k, layer.rotary) == (3, 8, None)
    assert layer.w_k.weight.shape == (24, 24)
    assert not any("bias" in name for name in layer.state_dict())


@pytest.mark.parametrize("bias", EITHER)
def test_saved_weights_give_the_same_layer_and_are_as_few_as_the_heads(sizes, noisy, x, bias):
    layer, fresh = noisy(layer_of(sizes, bias=bias)), layer_of(sizes, bias=bias)
    kinds = ["weight", "bias"] if bias else ["weight"]
    state = layer.state_dict()
    assert sorted(state) == sorted(f"w_{name}.{kind}" for name in "qkvo" for kind in kinds)
    assert state["w_k.weight"].shape == state["w_v.weight"].shape == (24, 24)
    assert state["w_q.weight"].shape == (48, 24)
    fresh.load_state_dict(state)
    assert torch.equal(fresh(x), layer(x))


def test_it_shows_its_sizes():
    shown = "d_model=8, num_heads=4, num_kv_heads=2, d_k=2, dropout=0.5"
    assert shown in repr(GroupedQueryAttention(8, 4, 2, dropout=0.5))
