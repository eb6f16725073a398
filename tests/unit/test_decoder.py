"""Lesson 11: the decoder. Equality with torch.nn is tested in test_same_as_pytorch."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from twelve import Decoder, DecoderLayer, causal_mask, padding_mask
from twelve_lab import Trace

EITHER_ORDER = pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
SUBLAYERS = ("self_attention", "cross_attention", "feed_forward")


@pytest.fixture
def memory(x) -> Tensor:
    """Use x as the encoder output."""
    return x


@pytest.fixture
def masks(sizes, src) -> dict[str, Tensor]:
    return {"tgt_mask": causal_mask(sizes.tgt), "src_mask": padding_mask(src)}


def make_stack(sizes, **keywords) -> Decoder:
    defaults = {"num_layers": 2, "d_k": sizes.d_k, "d_v": sizes.d_v}
    return Decoder(sizes.d_model, sizes.heads, sizes.d_ff, **defaults | keywords)


def silence(decoder: Decoder | DecoderLayer, *parts: str) -> None:
    """Make the named sublayers return zeros."""
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            last = ".down" if "feed_forward" in name else ".w_o"
            if any(part in name for part in parts) and last in name:
                parameter.zero_()


# By hand


def test_decoder_layer_adds_all_three_sublayers_to_the_stream(sizes, y, memory):
    layer = DecoderLayer(sizes.d_model, sizes.heads, bias=True)
    silence(layer, *SUBLAYERS)
    assert torch.equal(layer(y, memory), y)
    with torch.no_grad():
        layer.self_attention.w_o.bias.fill_(10.0)
        layer.cross_attention.w_o.bias.fill_(2.0)
        layer.feed_forward.down.bias.fill_(0.5)
    assert_close(layer(y, memory), y + 12.5)


def test_cross_attention_takes_keys_and_values_from_the_memory(sizes, y, memory):
    layer = DecoderLayer(sizes.d_model, 1, d_k=sizes.d_k, d_v=sizes.d_model)
    silence(layer, "self_attention", "feed_forward")
    with torch.no_grad():
        for matrix in (layer.cross_attention.w_v, layer.cross_attention.w_o):
            matrix.weight.copy_(torch.eye(sizes.d_model))
    # All source vectors are equal, so any weighted average equals that vector.
    same = memory[:, :1].expand_as(memory)
    assert_close(layer(y, same), y + memory[:, :1])
    with Trace(layer) as trace:
        layer(y, memory)
    for name in ("key", "value"):
        assert trace[f"cross_attention.projected_{name}"].shape[1] == sizes.src
    expected = layer.cross_attention.w_k(memory)
    assert_close(trace["cross_attention.projected_key"].value, expected.detach())


# Laws


@EITHER_ORDER
@pytest.mark.parametrize("training", [True, False])
def test_decoder_sees_itself_and_the_past_but_not_the_future(
    sizes, draw, y, memory, masks, training, norm_first
):
    decoder = make_stack(sizes, dropout=0.2, norm_first=norm_first).train(training)

    def run(y: Tensor) -> Tensor:
        torch.manual_seed(3)
        return decoder(y, memory, **masks)

    before = run(y)
    for position in range(1, sizes.tgt):
        changed = y.clone()
        changed[0, position] = draw(sizes.d_model)
        after = run(changed)
        assert torch.equal(after[:, :position], before[:, :position])
        assert (after != before)[0, position:].any(-1).all()


def test_decoder_registers_each_layer_with_its_own_weights(sizes):
    matrices = [parameter for parameter in make_stack(sizes).parameters() if parameter.ndim > 1]
    assert len(matrices) == 2 * 10
    assert len({matrix[0, 0].item() for matrix in matrices}) == len(matrices)
