"""Encoder-decoders against Marian, BART and MBart in transformers.

The parameters are random, so nothing is downloaded. The tests run weekly and in `make compare`,
and are skipped without transformers.
"""

import os

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

from twelve import (  # noqa: E402 (after the optional library)
    Decoder,
    Encoder,
    Transformer,
    causal_mask,
    padding_mask,
)
from twelve.fast import make_fast  # noqa: E402

pytestmark = pytest.mark.weekly
# For float32, the default of assert_close.
TOLERANCE = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {}}
FAST_AND_PLAIN = pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
# Encoder and decoder differ in depth, heads and d_ff.
SIZES = {
    "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80,
    "max_position_embeddings": 32, "pad_token_id": 0, "eos_token_id": 1,
    "forced_eos_token_id": None, "decoder_start_token_id": 2,
}  # fmt: skip
# Our names -> the names in transformers.
NAMES = {
    "output_projection": "lm_head",
    "src_embedding": "model.encoder.embed_tokens",
    "tgt_embedding": "model.decoder.embed_tokens",
    "encoder.layers": "model.encoder.layers",
    "decoder.layers": "model.decoder.layers",
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
    "self_attention.w_": "self_attn.",
    "cross_attention.w_": "encoder_attn.",
    "attn.q.": "attn.q_proj.",
    "attn.k.": "attn.k_proj.",
    "attn.v.": "attn.v_proj.",
    "attn.o.": "attn.out_proj.",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "encoder.norm": "model.encoder.layer_norm",
    "decoder.norm": "model.decoder.layer_norm",
}


def from_hugging_face(theirs: nn.Module, *, fast: bool = False) -> Transformer | Encoder | Decoder:
    """Copy a MarianMTModel, or the encoder or decoder of a Marian, BART or MBart model."""
    ours = copied_stack(theirs) if hasattr(theirs, "layers") else copied_model(theirs)
    if fast:
        make_fast(ours)
    return ours


def copied_model(theirs: nn.Module) -> Transformer:
    config, inside = theirs.config, theirs.model
    switches = {"norm_first": False, "scale_embedding": config.scale_embedding}
    sizes = {"d_model": config.d_model, "num_heads": 1, "num_layers": 1}
    ours = Transformer(config.vocab_size, config.decoder_vocab_size, **sizes, **switches)
    ours.encoder, ours.decoder = copied_stack(inside.encoder), copied_stack(inside.decoder)
    ours.positional_encoding.table = inside.encoder.embed_positions.weight.detach().clone()
    ours.positional_encoding.max_len = config.max_position_embeddings
    ours.output_projection.bias.requires_grad_(False)
    fill(ours, theirs.state_dict() | {"lm_head.bias": theirs.final_logits_bias[0]})
    # Tie the same weights; the row of the padding id gets no gradient.
    for part, other in (
        (ours.src_embedding, inside.encoder.embed_tokens),
        (ours.output_projection, theirs.lm_head),
    ):
        if other.weight is inside.decoder.embed_tokens.weight:
            part.weight = ours.tgt_embedding.weight
    ours.src_embedding.padding_idx = ours.tgt_embedding.padding_idx = config.pad_token_id
    return ours.to(theirs.lm_head.weight.dtype)


def copied_stack(theirs: nn.Module) -> Encoder | Decoder:
    name, config = type(theirs).__name__, theirs.config
    side, kind = ("encoder", Encoder) if name.endswith("Encoder") else ("decoder", Decoder)
    sizes = [f"{side}_{size}" for size in ("attention_heads", "ffn_dim", "layers")]
    heads, d_ff, layers = (getattr(config, size) for size in sizes)
    switches = {"norm_first": name.startswith("MBart"), "bias": True}  # only MBart is pre-norm
    switches["activation"] = config.activation_function
    ours = kind(config.d_model, heads, d_ff, num_layers=layers, **switches)
    fill(ours, theirs.state_dict(prefix=f"model.{side}."), prefix=f"{side}.")
    return ours.to(next(theirs.parameters()).dtype)


@torch.no_grad()
def fill(ours: nn.Module, state: dict[str, Tensor], prefix: str = "") -> None:
    for name, parameter in ours.named_parameters():
        name = prefix + name
        for our_name, their_name in NAMES.items():
            name = name.replace(our_name, their_name)
        parameter.copy_(state[name])


def assert_same_gradients(ours: nn.Module, theirs: nn.Module, tolerance: dict) -> None:
    """Subtract the gradients from the parameters, which were equal, and compare the results."""
    for module in (ours, theirs):
        torch.optim.SGD(module.parameters(), lr=1.0).step()
    assert_close(ours.state_dict(), from_hugging_face(theirs).state_dict(), **tolerance)


@pytest.fixture
def sentences(draw_ids) -> dict[str, Tensor]:
    """Return sentences; the first source is padded, and the last label is ignored."""
    src, tgt, labels = (draw_ids(11, 2, length) for length in (5, 4, 4))
    src[0, 3:], labels[1, 3] = 0, -100
    return {"src": src, "tgt": tgt, "labels": labels}


def run_theirs(model: nn.Module, src: Tensor, tgt: Tensor, **more: object):
    mask = (src != 0).long()
    return model(input_ids=src, attention_mask=mask, decoder_input_ids=tgt, use_cache=False, **more)


@pytest.mark.parametrize(
    ("share", "tie", "scale", "activation", "dtype"),
    [
        (True, True, True, "gelu", torch.float64),
        (False, True, False, "relu", torch.float64),
        (False, False, True, "relu", torch.float32),
    ],
)
@FAST_AND_PLAIN
def test_transformer_matches_logits_loss_and_gradients_of_marian(
    noisy, draw, sentences, share, tie, scale, activation, fast, dtype
):
    config = transformers.MarianConfig(
        vocab_size=13 if share else 11, decoder_vocab_size=13, scale_embedding=scale,
        activation_function=activation, share_encoder_decoder_embeddings=share,
        tie_word_embeddings=tie, **SIZES,
    )  # fmt: skip
    theirs = noisy(transformers.MarianMTModel(config)).eval()
    theirs.final_logits_bias = draw(1, 13)
    # Our model has a single positional table.
    theirs.model.decoder.embed_positions = theirs.model.encoder.embed_positions
    theirs.to(dtype)
    ours = from_hugging_face(theirs, fast=fast)
    src, tgt, labels = sentences.values()
    expected = run_theirs(theirs, src, tgt, labels=labels)
    logits = ours(src, tgt, src_mask=padding_mask(src), tgt_mask=causal_mask(4))
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert_close(logits, expected.logits, **TOLERANCE[dtype])
    assert_close(loss, expected.loss, **TOLERANCE[dtype])

    loss.backward(), expected.loss.backward()
    assert_same_gradients(ours, theirs, TOLERANCE[dtype])


@pytest.mark.parametrize(("family", "activation"), [("Bart", "gelu"), ("MBart", "relu")])
@FAST_AND_PLAIN
def test_stacks_give_states_and_gradients_of_bart_and_mbart(
    noisy, sentences, draw, family, activation, fast
):
    settings = SIZES | {"vocab_size": 13, "activation_function": activation}
    config = getattr(transformers, f"{family}Config")(**settings)
    theirs = noisy(getattr(transformers, f"{family}Model")(config)).eval()
    encoder, decoder = (
        from_hugging_face(part, fast=fast) for part in (theirs.encoder, theirs.decoder)
    )
    src, tgt, _ = sentences.values()
    expected = run_theirs(theirs, src, tgt, output_hidden_states=True)
    embedded, wanted = expected.encoder_hidden_states[0], expected.encoder_last_hidden_state
    embedded.retain_grad()
    x = embedded.detach().requires_grad_()
    memory = encoder(x, src_mask=padding_mask(src))
    assert_close(memory, wanted, **TOLERANCE[torch.float64])
    masks = {"src_mask": padding_mask(src), "tgt_mask": causal_mask(4)}
    output = decoder(expected.decoder_hidden_states[0], wanted, **masks)
    assert_close(output, expected.last_hidden_state, **TOLERANCE[torch.float64])

    direction = draw(*embedded.shape)
    wanted.backward(direction), memory.backward(direction)
    assert_close(x.grad, embedded.grad, **TOLERANCE[torch.float64])
    assert_same_gradients(encoder, theirs.encoder, TOLERANCE[torch.float64])
