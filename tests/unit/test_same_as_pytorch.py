"""Lesson 15: with equal weights, our layers and torch.nn give equal outputs and gradients."""

import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from pairs import pairwise, spelled
from torch import Tensor, nn
from torch.testing import assert_close

import twelve
from twelve.same_as_pytorch import from_torch, to_torch, to_torch_mask
from twelve_lab import example

# The course promises the float64 tolerance. float32 uses the default of assert_close.
TOLERANCE = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {}}
EITHER = (True, False)
SWITCHES = {"norm_first": EITHER, "activation": ("relu", "gelu", "silu")}
distinct = example.distinct


def over(**settings: tuple) -> pytest.MarkDecorator:
    """Parametrize by few combinations in which every pair of values occurs."""
    return pytest.mark.parametrize("row", pairwise(**settings), ids=spelled)


def assert_same_outputs_and_gradients(ours, theirs, inputs, run, torch_state) -> None:
    """Compare a layer with its counterpart; `run` calls both with the same inputs."""
    tolerance = TOLERANCE[inputs[0].dtype]
    outputs, input_gradients = run(*(x.requires_grad_() for x in inputs)), []
    assert_close(*outputs, **tolerance)
    direction = torch.randn_like(outputs[0])
    for output in outputs:
        for x in inputs:
            x.grad = None
        output.backward(direction)
        input_gradients.append([x.grad for x in inputs])
    assert_close(*input_gradients, **tolerance)
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    gradients = torch_state(SimpleNamespace(state_dict=lambda: gradients))
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert_close(gradients, expected, **tolerance)


@pytest.fixture
def masks(sizes) -> dict[str, Tensor]:
    """Return masks of padding, of the future, of both, and one that differs between heads."""
    padding, causal = distinct.src_mask, twelve.causal_mask(sizes.src)
    per_head = torch.ones(1, sizes.heads, 1, sizes.src, dtype=torch.bool)
    per_head[0, 1, 0, 1] = False
    return {
        "padding": padding, "causal": causal, "merged": padding & causal,
        "per-head": padding & per_head,
    }  # fmt: skip


# By hand


def test_to_torch_mask_is_true_where_a_query_may_not_attend():
    causal = [[False, True], [False, False]]
    assert to_torch_mask(example.tgt_mask, (2, 3, 2, 2)).tolist() == [causal] * 6
    # Only the first token of the first sentence is padding. Each sentence has three heads.
    padded, whole = [[True, False], [True, False]], [[False, False], [False, False]]
    expected = [padded] * 3 + [whole] * 3
    assert to_torch_mask(example.src_mask, (2, 3, 2, 2)).tolist() == expected


# Oracle: torch


@over(bias=EITHER, dtype=(*TOLERANCE,), **SWITCHES)
def test_transformer_equals_torch(sizes, noisy, x, y, torch_state, row):
    dtype = row.pop("dtype")
    model = twelve.Transformer(
        11, 13, d_model=sizes.d_model, num_heads=sizes.heads, d_ff=sizes.d_ff, num_layers=2, **row
    )
    ours = noisy(model).to(dtype)
    theirs = to_torch(ours)
    src_mask, tgt_mask, hidden = distinct.src_mask, distinct.tgt_mask, distinct.src == 0

    def run(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        memory = ours.encoder(x, src_mask=src_mask)
        output = ours.decoder(y, memory, src_mask=src_mask, tgt_mask=tgt_mask)
        # As in torch's own examples: a key padding mask, and one causal mask for all sentences.
        padding = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
        return output, theirs(x, y, tgt_mask=~tgt_mask[0, 0], **padding)

    stacks = nn.ModuleDict({"encoder": ours.encoder, "decoder": ours.decoder})
    inputs = [x.to(dtype), y.to(dtype)]
    assert_same_outputs_and_gradients(stacks, theirs, inputs, run, torch_state)


@over(
    name=("none", "padding", "causal", "merged", "per-head"), bias=EITHER, dtype=(*TOLERANCE,),
    need_weights=EITHER,
)  # fmt: skip
def test_multi_head_attention_equals_torch(sizes, draw, noisy, torch_state, masks, row):
    name, bias, dtype, need_weights = row.values()
    ours = noisy(twelve.MultiHeadAttention(sizes.d_model, sizes.heads, bias=bias)).to(dtype)
    theirs, mask = to_torch(ours), masks.get(name)
    shape = (sizes.batch, sizes.heads, sizes.src, sizes.src)
    hidden = None if mask is None else to_torch_mask(mask, shape)
    inputs = [draw(sizes.batch, sizes.src, sizes.d_model).to(dtype) for _ in range(3)]

    def run(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        expected, _ = theirs(*inputs, attn_mask=hidden, need_weights=need_weights)
        return ours(*inputs, mask), expected

    assert_same_outputs_and_gradients(ours, theirs, inputs, run, torch_state)


@pytest.mark.parametrize("batch_first", EITHER)
@pytest.mark.parametrize("norm_first", EITHER)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_stacks_from_nn_transformer_equal_it(sizes, noisy, x, y, masks, batch_first, norm_first):
    switches = {"batch_first": batch_first, "norm_first": norm_first, "layer_norm_eps": 1e-3}
    theirs = nn.Transformer(sizes.d_model, 4, 2, 3, sizes.d_ff, activation="gelu", **switches)
    encoder, decoder = from_torch(noisy(theirs).eval())
    assert (len(encoder.layers), len(decoder.layers)) == (2, 3)
    # nn.Transformer has a final norm with pre-norm as well as post-norm.
    assert encoder.norm.eps == decoder.norm.eps == 1e-3
    src_mask, causal = masks["padding"], twelve.causal_mask(sizes.tgt)
    hidden = ~src_mask[:, 0, 0]
    padding = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    flip = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    expected = flip(theirs(flip(x), flip(y), tgt_mask=~causal[0, 0], **padding))
    output = decoder(y, encoder(x, src_mask=src_mask), src_mask=src_mask, tgt_mask=causal)
    assert_close(output, expected, **TOLERANCE[torch.float64])


# Laws

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: twelve.Linear(24, 96),
    "Linear without bias": lambda: twelve.Linear(24, 96, bias=False),
    "TokenEmbedding": lambda: twelve.TokenEmbedding(11, 24, padding_idx=3),
    "LayerNorm": lambda: twelve.LayerNorm(24, eps=1e-3),
    "MultiHeadAttention": lambda: twelve.MultiHeadAttention(24, 3, dropout=0.2),
    "MultiHeadAttention with bias": lambda: twelve.MultiHeadAttention(24, 3, bias=True),
    "EncoderLayer, post-norm": lambda: twelve.EncoderLayer(24, 3, 96, norm_first=False, bias=True),
    "DecoderLayer, post-norm": lambda: twelve.DecoderLayer(24, 3, 96, norm_first=False, bias=True),
    "Encoder": lambda: twelve.Encoder(24, 3, 96, num_layers=3, dropout=0.2),
    "Encoder, post-norm": lambda: twelve.Encoder(24, 3, 96, num_layers=2, norm_first=False),
    "Decoder": lambda: twelve.Decoder(24, 3, 96, num_layers=3, dropout=0.2, activation="gelu"),
    "Decoder, post-norm": lambda: twelve.Decoder(24, 3, 96, num_layers=2, norm_first=False),
}


def describe(module: nn.Module) -> dict[str, object]:
    """Return the repr, settings and parameters of a module and its submodules."""
    parts: dict[str, object] = {"shown": repr(module)}
    for name, part in module.named_modules():
        dropout = getattr(part, "dropout", None)
        dropout = dropout if isinstance(dropout, float) else None
        parts[f"{name} settings"] = part.training, getattr(part, "eps", None), dropout
    for name, parameter in module.named_parameters():
        kind = parameter.dtype, parameter.device, parameter.requires_grad
        parts[name] = *kind, parameter.tolist()
    return parts


@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)
def test_conversion_there_and_back_changes_nothing(noisy, torch_state, build):
    ours = noisy(build()).eval()
    theirs = to_torch(ours)
    # torch_state maps the names independently of to_torch.
    assert_close(dict(theirs.state_dict()), torch_state(ours), rtol=0.0, atol=0.0)
    back = from_torch(theirs)
    assert type(back) is type(ours) and describe(back) == describe(ours)
    again = to_torch(back)
    assert type(again) is type(theirs) and describe(again) == describe(theirs)


def test_to_torch_and_from_torch_copy_the_weights(noisy):
    ours = noisy(twelve.EncoderLayer(24, 3, bias=True))
    theirs = to_torch(ours)
    storages = [
        {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
        for module in (ours, theirs, from_torch(theirs))
    ]
    assert [len(pointers) for pointers in storages] == [16, 12, 16]
    assert len(set.union(*storages)) == 44


def test_conversion_draws_no_random_numbers_and_works_without_gradients():
    ours = example.model()
    before = torch.random.get_rng_state()
    with torch.no_grad():
        theirs = to_torch(ours)
        modules = (theirs, *from_torch(theirs))
    assert torch.equal(torch.random.get_rng_state(), before)
    for module in modules:
        assert all(p.requires_grad and p.is_leaf for p in module.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_conversion_keeps_dtype_and_device(dtype, device):
    ours = twelve.Encoder(24, 3, num_layers=1, bias=True).to(device, dtype)
    theirs = to_torch(ours)
    for module in (theirs, from_torch(theirs)):
        assert {(p.dtype, p.device.type) for p in module.parameters()} == {(dtype, device)}


def test_conversion_keeps_each_mode_dropout_norm_and_frozen_parameter():
    ours = twelve.DecoderLayer(24, 3, bias=True)
    ours.cross_attention.requires_grad_(False)
    ours.feed_forward.down.bias.requires_grad_(False)
    ours.self_attention.eval(), ours.feed_forward.dropout.eval()
    ours.self_attention.dropout, ours.cross_attention.dropout = 0.1, 0.2
    residuals = [part for name, part in ours.named_children() if "residual" in name]
    for number, residual in enumerate(residuals, start=3):
        residual.dropout.p, residual.norm.eps = number / 10.0, number / 1000.0
        nn.init.constant_(residual.norm.weight, number)
    theirs = to_torch(ours)
    frozen = [name for name, p in theirs.named_parameters() if not p.requires_grad]
    assert {name.split(".")[0] for name in frozen} == {"multihead_attn", "linear2"}
    assert len(frozen) == 5
    modes = (theirs.training, theirs.self_attn.training, theirs.dropout.training)
    assert (*modes, theirs.multihead_attn.training) == (True, False, False, True)
    assert (theirs.self_attn.dropout, theirs.multihead_attn.dropout) == (0.1, 0.2)
    dropouts = theirs.dropout1, theirs.dropout2, theirs.dropout3
    assert [dropout.p for dropout in dropouts] == [0.3, 0.4, 0.5]
    for number, norm in enumerate((theirs.norm1, theirs.norm2, theirs.norm3), start=3):
        assert norm.eps == number / 1000.0 and (norm.weight == number).all()
    assert describe(from_torch(theirs)) == describe(ours)


# Errors


def replace(layer: nn.Module, **parts: object) -> nn.Module:
    """Replace submodules of a layer in place, and return the layer."""
    for name, part in parts.items():
        setattr(layer, name, part)
    return layer


class Subclass(nn.TransformerEncoderLayer):
    """A subclass, which could override forward."""


def encoder_layer(**keywords) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(24, 3, batch_first=True, **keywords)


CASES = """\
to_torch(SwiGLU(24, 64)) | to_torch: unsupported module SwiGLU (supported: Linear, TokenEmbedding,
to_torch(replace(Encoder(24, 3, num_layers=1), norm=RMSNorm(24))) | unsupported module RMSNorm
to_torch(replace(EncoderLayer(24, 3), feed_forward=SwiGLU(24, 64))) | must be a FeedForward, got a
to_torch(replace(EncoderLayer(24, 3), feed_forward_residual=Residual(24, norm_first=False))) \
| to_torch: norm_first of all residuals must be equal, got self_attention_residual has True
to_torch(MultiHeadAttention(24, 3, d_k=6)) | 24, 3 heads of d_k has 18, 3 heads of d_v has 24
to_torch(MultiHeadAttention(24, 3, d_v=6)) | 24, 3 heads of d_k has 24, 3 heads of d_v has 18
to_torch(replace(MultiHeadAttention(24, 3), w_o=Linear(24, 24))) | the biases of all projections
to_torch(replace(MultiHeadAttention(24, 3), w_k=Linear(24, 24, False).requires_grad_(False))) \
| requires_grad of all
to_torch(TokenEmbedding(4, 3, scale=True)) | to_torch: unsupported option scale of TokenEmbedding
from_torch(nn.LSTM(3, 4)) | from_torch: unsupported module LSTM (supported: Linear, Embedding,
from_torch(Subclass(24, 3)) | from_torch: unsupported module Subclass
from_torch(nn.MultiheadAttention(24, 3, add_bias_kv=True)) | bias_k of MultiheadAttention
from_torch(nn.MultiheadAttention(24, 3, add_zero_attn=True)) | add_zero_attn of MultiheadAttention
from_torch(nn.MultiheadAttention(24, 3, kdim=20)) | q_proj_weight of MultiheadAttention
from_torch(nn.Embedding(4, 3, max_norm=1.0)) | unsupported option max_norm of Embedding
from_torch(nn.Embedding(4, 3, scale_grad_by_freq=True)) | scale_grad_by_freq of Embedding
from_torch(nn.Embedding(4, 3, sparse=True)) | unsupported option sparse of Embedding
from_torch(encoder_layer(activation=nn.GELU('tanh'))) | must be F.relu, F.gelu or F.silu, got GE
from_torch(nn.LayerNorm((5, 24))) | LayerNorm: d_model must be an integer of at least 1, got (5,
from_torch(encoder_layer(bias=False)) | from_torch: a LayerNorm must have a weight and a bias, got
to_torch_mask(causal_mask(5)[0], (2, 3, 5, 5)) | to_torch_mask: mask must have 4 axes
to_torch_mask(causal_mask(5), (2, 3, 4, 5)) | must broadcast to (batch, head, query, key) (2, 3, 4,
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", CASES.replace("\\\n", "").splitlines())
def test_conversion_names_what_it_does_not_support(case):
    call, message = case.split(" | ")
    with pytest.raises(ValueError, match=re.escape(message)):
        eval(call, vars(twelve) | globals())
