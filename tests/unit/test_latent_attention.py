"""By hand: multi-head latent attention."""

import math

import pytest
import torch
from torch.testing import assert_close

from twelve import LatentAttention, RotaryEncoding
from twelve.latent_attention import LatentCache
from twelve_lab import Trace


def make_layer(sizes, *, rotary: bool = True, **keywords) -> LatentAttention:
    encoding = RotaryEncoding(4, max_len=16, base=100.0) if rotary else None
    keywords = {"d_k": sizes.d_k, "d_v": sizes.d_v, "rotary": encoding} | keywords
    return LatentAttention(sizes.d_model, sizes.heads, 7, **keywords)


# By hand


def test_latent_attention_of_two_heads_reads_one_latent():
    # The latents are (0, 4) and (ln 3, 8). The weights are 1/4 and 3/4 in head 0. They are 3/4 and
    # 1/4 in head 1, which doubles its values.
    layer = LatentAttention(3, 2, 2, d_k=1, d_v=1)
    layer.norm = torch.nn.Identity()
    with torch.no_grad():
        layer.w_q.weight.copy_(torch.tensor([[0.0, 0, 1], [0, 0, 1]]))
        layer.w_down.weight.copy_(torch.eye(2, 3))
        # Rows: key and value of head 0, then of head 1.
        layer.w_up.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, 2]]))
        layer.w_o.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [1, 1]]))
    output = layer(torch.tensor([[[0.0, 4, 0], [math.log(3), 8, 1]]]))
    assert_close(output[0, 1], torch.tensor([7.0, 10.0, 17.0]))


@pytest.mark.parametrize(("rotary", "numbers"), [(True, 2 * 5 * 11), (False, 2 * 5 * 7)])
def test_latent_cache_has_one_latent_and_one_rotated_key_for_all_heads(sizes, rotary, numbers):
    cache = LatentCache(make_layer(sizes, rotary=rotary), sizes.batch, sizes.src)
    assert cache.keys.numel() + cache.values.numel() == numbers


# Oracle


@pytest.mark.parametrize("rotary", [True, False])
def test_latent_attention_equals_absorbed_attention_in_values_and_gradients(
    sizes, noisy, x, prompt_mask, assert_same, rotary
):
    """Absorb W_K into the queries and W_V into the context, without expanding keys or values."""
    layer = noisy(make_layer(sizes, rotary=rotary))
    x.requires_grad_()
    latent, key = layer.w_down(x).tensor_split([7], dim=-1)
    latent = torch.nn.functional.rms_norm(latent, (7,), layer.norm.weight, layer.norm.eps)
    up = layer.w_up.weight.unflatten(0, (sizes.heads, -1))
    w_k, w_v = up[:, : sizes.d_k], up[:, sizes.d_k :]
    query = layer.w_q(x).unflatten(-1, (sizes.heads, -1))
    content, part = query.tensor_split([sizes.d_k], dim=-1)
    scores = torch.einsum("bqhk,hkl,bsl->bhqs", content, w_k, latent)
    if rotary:
        part, key = layer.rotary(part.transpose(1, 2)), layer.rotary(key[:, None])
        scores = scores + part @ key.mT
    scores = (scores / math.sqrt(12 if rotary else 8)).masked_fill(~prompt_mask, -torch.inf)
    weights = torch.where(prompt_mask.any(-1, keepdim=True), scores.softmax(-1), 0.0)
    context = torch.einsum("bhqs,bsl,hvl->bqhv", weights, latent, w_v)
    assert_same(layer(x, prompt_mask), layer.w_o(context.flatten(2)), [x, *layer.parameters()])


# Laws


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (5,), (2, 1, 2), (1, 4)])
def test_latent_attention_with_a_cache_equals_one_pass(
    sizes, noisy, x, prompt_mask, pieces, rotary
):
    layer = noisy(make_layer(sizes, rotary=rotary))
    cache, outputs = LatentCache(layer, sizes.batch, sizes.src), []
    for piece in x.split(pieces, dim=1):
        start, stop = cache.length, cache.length + piece.size(1)
        outputs.append(layer(piece, prompt_mask[:, :, start:stop, :stop], cache=cache))
    assert_close(torch.cat(outputs, dim=1), layer(x, prompt_mask))


def test_trace_of_latent_attention_names_the_axes_of_the_latent(sizes, noisy, x):
    layer = noisy(make_layer(sizes))
    with Trace(layer) as trace:
        layer(x)
    assert trace["latent"].axes == ("batch", "1", "seq", "d_latent")
    assert trace["shared"].value.shape == (sizes.batch, sizes.heads, sizes.src, 4)


def test_latent_attention_depends_on_distances_and_not_on_positions(sizes, noisy, x):
    layer = noisy(make_layer(sizes))
    moved = LatentCache(layer, sizes.batch, 9)
    moved.length = 4
    hidden = torch.arange(9) >= 4
    shifted = layer(x, hidden.expand(1, 1, 1, 9), cache=moved)
    assert_close(shifted, layer(x))
    assert not torch.allclose(layer(x.flip(1)).flip(1), layer(x))


def test_latent_attention_without_rotary_does_not_know_the_order(sizes, noisy, x):
    layer = noisy(make_layer(sizes, rotary=False))
    assert_close(layer(x.flip(1)).flip(1), layer(x))


def test_latent_attention_has_the_width_of_the_model_by_default():
    layer = LatentAttention(24, 3, 7)
    assert (layer.d_k, layer.d_v, layer.d_rotary, layer.rotary) == (8, 8, 0, None)
    shapes = {name: tuple(x.shape) for name, x in layer.state_dict().items()}
    assert shapes == {
        "w_q.weight": (24, 24), "w_down.weight": (7, 24), "norm.weight": (7,),
        "w_up.weight": (48, 7), "w_o.weight": (24, 24),
    }  # fmt: skip
