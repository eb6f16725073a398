"""Lesson 10: the encoder. Equality with torch.nn is tested in test_same_as_pytorch."""

import pytest
from torch.testing import assert_close

from twelve import Encoder, EncoderLayer, padding_mask

EITHER_ORDER = pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])


def make_stack(sizes, **keywords) -> Encoder:
    defaults = {"num_layers": 2, "d_k": sizes.d_k, "d_v": sizes.d_v}
    return Encoder(sizes.d_model, sizes.heads, sizes.d_ff, **defaults | keywords)


# By hand


def test_pre_norm_encoder_layer_normalises_what_attention_gets(sizes, noisy, x, src):
    layer, mask = noisy(EncoderLayer(sizes.d_model, sizes.heads)), padding_mask(src)
    normed = layer.self_attention_residual.norm(x)
    stream = x + layer.self_attention(normed, normed, normed, mask)
    expected = stream + layer.feed_forward(layer.feed_forward_residual.norm(stream))
    assert_close(layer(x, src_mask=mask), expected)


# Laws


def test_encoder_registers_each_layer_with_its_own_weights(sizes):
    matrices = [parameter for parameter in make_stack(sizes).parameters() if parameter.ndim > 1]
    assert len(matrices) == 2 * 6
    assert len({matrix[0, 0].item() for matrix in matrices}) == len(matrices)


@EITHER_ORDER
def test_encoder_ends_with_a_norm_in_pre_norm_only(sizes, noisy, x, src, norm_first):
    encoder, mask = noisy(make_stack(sizes, norm_first=norm_first)), padding_mask(src)
    expected = x
    for layer in encoder.layers:
        expected = layer(expected, src_mask=mask)
    assert_close(encoder(x, src_mask=mask), encoder.norm(expected) if norm_first else expected)
    assert any(name.startswith("norm") for name in encoder.state_dict()) == norm_first
