"""Properties of every layer: saving, inputs, sentences, dropout, masks, gradients, repr."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import twelve
from twelve_lab import example

distinct = example.distinct
random = partial(
    torch.randn, dtype=torch.float64, generator=torch.Generator("cpu").manual_seed(12), device="cpu"
)
X, Y, HEADS = random(2, 5, 24), random(2, 4, 24), random(2, 3, 5, 8)
MASK, SRC = {"mask": distinct.src_mask}, {"src_mask": distinct.src_mask}
BOTH = SRC | {"tgt_mask": distinct.tgt_mask}
IDS = (distinct.src, distinct.tgt)
WIDTHS = {"d_k": 8, "d_v": 6, "bias": True}
STACK = WIDTHS | {"num_layers": 2}
MODEL = STACK | {"d_model": 24, "num_heads": 3, "d_ff": 96, "max_len": 8}


def latent_attention(**settings):
    # Build the rotary table inside the test: at import time, the default device is not set yet.
    return twelve.LatentAttention(24, 6, 7, rotary=twelve.RotaryEncoding(8), **settings)


# Constructor (accepts further keywords), inputs and masks of each layer.
LAYERS: dict[str, tuple[Callable[..., nn.Module], tuple, dict[str, Tensor]]] = {
    "Linear": (partial(twelve.Linear, 24, 96), (X,), {}),
    "TokenEmbedding": (partial(twelve.TokenEmbedding, 11, 24), (distinct.src,), {}),
    "PositionalEncoding": (partial(twelve.PositionalEncoding, 24), (X,), {}),
    "LearnedPositionalEncoding": (
        partial(twelve.LearnedPositionalEncoding, 24, max_len=5), (X,), {},
    ),
    "MultiHeadAttention": (partial(twelve.MultiHeadAttention, 24, 3, **WIDTHS), (Y, X, X), MASK),
    "LayerNorm": (partial(twelve.LayerNorm, 24), (X,), {}),
    "RMSNorm": (partial(twelve.RMSNorm, 24), (X,), {}),
    "Residual": (partial(twelve.Residual, 24), (X, torch.sin), {}),
    "FeedForward": (partial(twelve.FeedForward, 24, 96, activation="gelu"), (X,), {}),
    "SwiGLU": (partial(twelve.SwiGLU, 24, 64), (X,), {}),
    "MixtureOfExperts": (partial(twelve.MixtureOfExperts, 24, 64, num_experts=5), (X,), {}),
    "EncoderLayer": (partial(twelve.EncoderLayer, 24, 3, **WIDTHS), (X,), SRC),
    "Encoder": (partial(twelve.Encoder, 24, 3, **STACK), (X,), SRC),
    "Encoder, post-norm": (partial(twelve.Encoder, 24, 3, norm_first=False, **STACK), (X,), SRC),
    "DecoderLayer": (partial(twelve.DecoderLayer, 24, 3, **WIDTHS), (Y, X), BOTH),
    "Decoder": (partial(twelve.Decoder, 24, 3, **STACK), (Y, X), BOTH),
    "Decoder, post-norm": (partial(twelve.Decoder, 24, 3, norm_first=False, **STACK), (Y, X), BOTH),
    "Transformer": (partial(twelve.Transformer, 11, 13, **MODEL), IDS, BOTH),
    "Transformer, post-norm": (
        partial(twelve.Transformer, 11, 13, norm_first=False, **MODEL), IDS, BOTH,
    ),
    "RotaryEncoding": (partial(twelve.RotaryEncoding, 8), (HEADS,), {}),
    "GroupedQueryAttention": (
        partial(twelve.GroupedQueryAttention, 24, 6, 3, bias=True), (X,), MASK,
    ),
    "LatentAttention": (latent_attention, (X,), MASK),
    "LanguageLayer": (partial(twelve.LanguageLayer, 24, 6, 2), (X,), MASK),
    "LanguageModel": (
        partial(twelve.LanguageModel, 11, d_model=24, num_heads=6, num_kv_heads=2, num_layers=2),
        (distinct.src,), {"key_mask": distinct.src_mask},
    ),
}  # fmt: skip


def select(*names: str) -> pytest.MarkDecorator:
    """Parametrize by the layers whose names start with one of `names`; by default, all layers."""
    rows = {name: row for name, row in LAYERS.items() if not names or name.startswith(names)}
    return pytest.mark.parametrize(("build", "inputs", "masks"), rows.values(), ids=rows)


MODELS = ("Encoder", "Decoder", "Transformer", "LanguageModel")
ATTENTIONS = ("MultiHeadAttention", "GroupedQueryAttention", "LatentAttention")
WITH_DROPOUT = (
    "PositionalEncoding", "Learned", *ATTENTIONS, "Residual", "FeedForward", *MODELS[:3],
)  # fmt: skip


@select()
def test_layer_with_loaded_weights_gives_the_same_output(noisy, build, inputs, masks):
    layer, loaded = noisy(build()), build()
    loaded.load_state_dict(layer.state_dict())
    assert torch.equal(loaded(*inputs, **masks), layer(*inputs, **masks))


@select()
def test_layer_leaves_its_inputs_unchanged(noisy, build, inputs, masks):
    tensors = [x for x in (*inputs, *masks.values()) if isinstance(x, Tensor)]
    before = [x.clone() for x in tensors]
    noisy(build())(*inputs, **masks)
    assert all(torch.equal(x, copy) for x, copy in zip(tensors, before, strict=True))


@select()
def test_layer_treats_each_sentence_alone(noisy, build, inputs, masks):
    def flip(x: object) -> object:
        return x.flip(0) if isinstance(x, Tensor) and x.size(0) == 2 else x

    layer = noisy(build())
    flipped = layer(*map(flip, inputs), **{name: flip(mask) for name, mask in masks.items()})
    assert_close(flipped, layer(*inputs, **masks).flip(0))


@select("Linear", "LayerNorm", "RMSNorm", "FeedForward", "SwiGLU", "MixtureOfExperts")
def test_layer_transforms_each_position_alone(noisy, build, inputs, masks):
    layer, x = noisy(build()), X.clone()
    before = layer(x)
    x[0, 1] = Y[0, 0]
    # A matrix product may sum rows in another order, so ignore rounding differences.
    changed = ((layer(x) - before).abs() > 1e-12).any(-1)
    assert changed.nonzero().tolist() == [[0, 1]]
    assert_close(layer(x.flip(1)), layer(x).flip(1))
    assert_close(layer(x[0, 1]), layer(x)[0, 1])


@select(*WITH_DROPOUT)
def test_layer_applies_dropout_in_training_only(build, inputs, masks):
    layer, without = build(dropout=0.25), build()
    without.load_state_dict(layer.state_dict())
    assert not torch.equal(layer(*inputs, **masks), layer(*inputs, **masks))
    expected = without(*inputs, **masks)  # there is no dropout by default
    assert torch.equal(layer.eval()(*inputs, **masks), expected)


@select(*ATTENTIONS, *MODELS)
def test_every_parameter_gets_a_gradient(noisy, build, inputs, masks):
    layer = noisy(build())
    output = layer(*inputs, **masks)
    (output * random(*output.shape).to(output.device)).sum().backward()
    idle = [name for name, p in layer.named_parameters() if p.grad.abs().max() < 1e-9]
    # Adding the same vector to all keys does not change the weights, so b_k has no gradient.
    assert idle == [name for name, _ in layer.named_parameters() if "w_k.bias" in name]


@select(*ATTENTIONS, *MODELS[:3])
def test_fully_masked_sentence_leaves_finite_gradients(noisy, build, inputs, masks):
    layer = noisy(build())
    hidden = {name: mask.expand(2, -1, -1, -1).clone() for name, mask in masks.items()}
    for mask in hidden.values():
        mask[0] = False
    inputs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    output = layer(*inputs, **hidden)
    assert output.isfinite().all()
    output.square().sum().backward()
    for tensor in (*inputs, *layer.parameters()):
        assert not tensor.requires_grad or tensor.grad.isfinite().all()


@pytest.mark.parametrize("build", [twelve.Encoder, twelve.Decoder])
def test_encoder_and_decoder_have_six_layers_and_a_final_norm_by_default(build):
    stack = build(6, 2)
    assert len(stack.layers) == 6
    assert stack.layers[5].feed_forward.up.d_out == 24
    assert isinstance(stack.norm, twelve.LayerNorm)


@pytest.mark.parametrize(
    ("layer", "shown"),
    [
        (twelve.Linear(2, 3, bias=False), "d_in=2, d_out=3, bias=False"),
        (twelve.TokenEmbedding(11, 24, padding_idx=0),
         "vocab_size=11, d_model=24, padding_idx=0, scale="),
        (twelve.LearnedPositionalEncoding(3, max_len=8), "d_model=3, max_len=8"),
        (twelve.MultiHeadAttention(3, 1), "d_model=3, num_heads=1, d_k=3, d_v=3, dropout=0.0"),
        (twelve.LayerNorm(3), "d_model=3, eps=1e-05"),
        (twelve.RMSNorm(3), "d_model=3, eps=1e-05"),
        (twelve.Residual(3, norm_first=False), "d_model=3, norm_first=False"),
        (twelve.FeedForward(3, activation="gelu"), "activation='gelu'"),
        (twelve.RotaryEncoding(2, max_len=8, base=500.0), "d_k=2, max_len=8, base=500.0"),
        (twelve.GroupedQueryAttention(8, 4, 2),
         "d_model=8, num_heads=4, num_kv_heads=2, d_k=2, dropout="),
        # train compares the repr of a model with the one in a checkpoint.
        (twelve.LanguageModel(3, d_model=4, num_heads=1, num_layers=1, window=3), "window=3\n"),
        (twelve.LanguageModel(3, d_model=4, num_heads=1, num_layers=1), "(embedding)"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_layer_shows_its_sizes_in_repr(layer, shown):
    name = type(layer).__name__
    assert repr(layer).startswith((f"{name}({shown}", f"{name}(\n  {shown}"))
