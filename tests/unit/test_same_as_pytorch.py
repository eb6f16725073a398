"""Lesson 15: our layers and torch.nn give the same outputs and gradients with the same weights."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from pairs import pairwise, spelled
from torch import Tensor, nn
from torch.testing import assert_close

import twelve
from twelve import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    TokenEmbedding,
    Transformer,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)
from twelve.same_as_pytorch import from_torch, to_torch, to_torch_mask
from twelve_lab import example

# The course promises this in float64. In float32 it is what assert_close allows by default.
TOLERANCE = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {}}
EITHER = (True, False)
SWITCHES = {"norm_first": EITHER, "activation": ("relu", "gelu")}
EITHER_ORDER = pytest.mark.parametrize("norm_first", EITHER, ids=["pre", "post"])
distinct = example.distinct


def over(**settings: tuple) -> pytest.MarkDecorator:
    """Choose so few settings that every two values meet at least once."""
    return pytest.mark.parametrize("row", pairwise(**settings), ids=spelled)


class TorchTransformer(nn.Module):
    """A model of torch.nn only, from ids to logits, with the weights of one of ours."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        self.src_embedding = to_torch(ours.src_embedding)
        self.tgt_embedding = to_torch(ours.tgt_embedding)
        self.output_projection = to_torch(ours.output_projection)
        if ours.output_projection.weight is ours.tgt_embedding.weight:
            self.output_projection.weight = self.tgt_embedding.weight
        self.positions = ours.positional_encoding.table
        self.transformer = to_torch(ours)

    def forward(self, src: Tensor, tgt: Tensor, **masks: Tensor | None) -> Tensor:
        src_input = self.src_embedding(src) + self.positions[: src.size(1)]
        tgt_input = self.tgt_embedding(tgt) + self.positions[: tgt.size(1)]
        return self.output_projection(self.transformer(src_input, tgt_input, **masks))


def torch_masks(src_mask: Tensor, tgt_mask: Tensor, sizes: tuple[int, int, int, int]) -> dict:
    """Convert our masks to the three masks of nn.Transformer."""
    batch, heads, src, tgt = sizes
    return {
        "src_mask": to_torch_mask(src_mask, (batch, heads, src, src)),
        "memory_mask": to_torch_mask(src_mask, (batch, heads, tgt, src)),
        "tgt_mask": to_torch_mask(tgt_mask, (batch, heads, tgt, tgt)),
    }


def gradients(module: nn.Module) -> SimpleNamespace:
    """Return an object whose state_dict has the gradients of a module."""
    pairs = {name: parameter.grad for name, parameter in module.named_parameters()}
    return SimpleNamespace(state_dict=lambda: dict(pairs))


def assert_same_gradients(ours, theirs, torch_state, tolerance) -> None:
    """Compare the gradients of all parameters."""
    expected = {
        name.removeprefix("transformer."): parameter.grad
        for name, parameter in theirs.named_parameters()
    }
    assert_close(torch_state(gradients(ours)), expected, **tolerance)


def assert_same_training_step(ours, theirs, logits, labels, torch_state, tolerance) -> None:
    """Compare logits, losses and the gradients of all parameters."""
    losses = [F.cross_entropy(scores.flatten(0, 1), labels.flatten()) for scores in logits]
    for loss in losses:
        loss.backward()
    assert_close(*logits, **tolerance)
    assert_close(*losses, **tolerance)
    assert_same_gradients(ours, theirs, torch_state, tolerance)


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
    assert_same_gradients(ours, theirs, torch_state, tolerance)


@pytest.fixture
def x(sizes, draw) -> Tensor:
    return draw(sizes.batch, sizes.src, sizes.d_model)


@pytest.fixture
def y(sizes, draw) -> Tensor:
    return draw(sizes.batch, sizes.tgt, sizes.d_model)


@pytest.fixture
def masks(sizes) -> dict[str, Tensor]:
    """Make masks that hide padding, the future, and one key from one head."""
    padding, causal = distinct.src_mask, causal_mask(sizes.src)
    per_head = torch.ones(1, sizes.heads, 1, sizes.src, dtype=torch.bool)
    per_head[0, 1, 0, 1] = False
    return {
        "padding": padding, "causal": causal, "merged": padding & causal,
        "per-head": padding & per_head, "query": causal_mask(sizes.tgt, sizes.src),
    }  # fmt: skip


# By hand


def test_in_proj_weight_of_torch_is_w_q_above_w_k_above_w_v():
    theirs = to_torch(example.model().encoder.layers[0].self_attention)
    queries = [[-1.0, 1.0, 0.0], [0.5, 0.0, 0.5], [1.0, 0.5, 0.5]]
    keys = [[0.0, 0.5, -1.0], [-0.5, 1.0, -0.5], [0.0, 1.0, -0.5]]
    values = [[0.0, -0.5, 0.5], [-1.0, 1.0, -1.0], [-1.0, -1.0, 0.5]]
    assert torch.equal(theirs.in_proj_weight, torch.tensor([*queries, *keys, *values]))
    assert theirs.in_proj_bias is None and theirs.out_proj.bias is None


def test_to_torch_mask_is_true_where_a_query_may_not_attend():
    causal = [[False, True], [False, False]]
    assert to_torch_mask(example.tgt_mask, (2, 3, 2, 2)).tolist() == [causal] * 6
    # Only the first token of the first sentence is padding: three heads, then three heads.
    padded, whole = [[True, False], [True, False]], [[False, False], [False, False]]
    expected = [padded] * 3 + [whole] * 3
    assert to_torch_mask(example.src_mask, (2, 3, 2, 2)).tolist() == expected


def test_loss_of_the_example_in_torch():
    theirs = TorchTransformer(example.model())
    masks = torch_masks(example.src_mask, example.tgt_mask, (2, 3, 2, 2))
    logits = theirs(example.src, example.tgt, **masks)
    loss = F.cross_entropy(logits.flatten(0, 1), example.labels.flatten())
    assert f"{loss:.6f}" == "1.048250"


# Oracle: torch


@over(num_heads=(3, 1), tie_weights=EITHER, dtype=(*TOLERANCE,), **SWITCHES)
def test_transformer_of_the_example_equals_torch(torch_state, row):
    dtype, num_heads = row["dtype"], row["num_heads"]
    switches = {name: value for name, value in row.items() if name != "dtype"}
    ours = example.model(**switches).to(dtype)
    theirs = TorchTransformer(ours)
    src, tgt, labels = example.src, example.tgt, example.labels
    logits = [
        ours(src, tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask),
        theirs(src, tgt, **torch_masks(example.src_mask, example.tgt_mask, (2, num_heads, 2, 2))),
    ]
    assert_same_training_step(ours, theirs, logits, labels, torch_state, TOLERANCE[dtype])


@over(bias=EITHER, dtype=(*TOLERANCE,), **SWITCHES)
def test_transformer_at_distinct_sizes_equals_torch(sizes, noisy, torch_state, row):
    switches = {name: value for name, value in row.items() if name != "dtype"}
    model = Transformer(
        sizes.src_vocab, sizes.tgt_vocab, d_model=sizes.d_model, num_heads=sizes.heads,
        d_ff=sizes.d_ff, num_layers=2, max_len=8, **switches,
    )  # fmt: skip
    ours = noisy(model).to(row["dtype"])
    theirs = TorchTransformer(ours)
    src, src_mask, tgt_mask = distinct.src, distinct.src_mask, distinct.tgt_mask
    logits = [
        ours(src, distinct.tgt, src_mask=src_mask, tgt_mask=tgt_mask),
        # As in torch's own examples: a mask of keys, and one causal mask for all sentences.
        theirs(
            src, distinct.tgt, src_key_padding_mask=src == 0, memory_key_padding_mask=src == 0,
            tgt_mask=~tgt_mask[0, 0],
        ),
    ]  # fmt: skip
    tolerance = TOLERANCE[row["dtype"]]
    assert_same_training_step(ours, theirs, logits, distinct.labels, torch_state, tolerance)


@pytest.mark.slow
@EITHER_ORDER
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
def test_base_transformer_equals_torch(seeded, noisy, torch_state, norm_first, dtype):
    torch.set_default_dtype(dtype)
    ours = noisy(Transformer(50, 60, norm_first=norm_first, bias=True, max_len=16))
    theirs = TorchTransformer(ours)
    src = torch.randint(1, 50, (2, 7), generator=seeded)
    src[0, 4:] = 0
    tgt, labels = (torch.randint(1, 60, (2, 5), generator=seeded) for _ in range(2))
    logits = [
        ours(src, tgt, src_mask=padding_mask(src), tgt_mask=causal_mask(5)),
        theirs(src, tgt, **torch_masks(padding_mask(src), causal_mask(5), (2, 8, 7, 5))),
    ]
    assert_same_training_step(ours, theirs, logits, labels, torch_state, TOLERANCE[dtype])


@over(
    name=("none", "padding", "causal", "merged", "per-head"), bias=EITHER, dtype=(*TOLERANCE,),
    need_weights=EITHER,
)  # fmt: skip
def test_multi_head_attention_equals_torch(sizes, draw, noisy, torch_state, masks, row):
    name, bias, dtype, need_weights = row.values()
    ours = noisy(MultiHeadAttention(sizes.d_model, sizes.heads, bias=bias)).to(dtype)
    theirs, mask = to_torch(ours), masks.get(name)
    shape = (sizes.batch, sizes.heads, sizes.src, sizes.src)
    hidden = None if mask is None else to_torch_mask(mask, shape)
    inputs = [draw(sizes.batch, sizes.src, sizes.d_model).to(dtype) for _ in range(3)]

    def run(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        expected, _ = theirs(*inputs, attn_mask=hidden, need_weights=need_weights)
        return ours(*inputs, mask), expected

    assert_same_outputs_and_gradients(ours, theirs, inputs, run, torch_state)


@over(bias=EITHER, name=("padding", "merged", "per-head"), **SWITCHES)
def test_encoder_layer_equals_torch(sizes, noisy, x, masks, torch_state, row):
    mask = masks[row.pop("name")]
    ours = noisy(EncoderLayer(sizes.d_model, sizes.heads, sizes.d_ff, **row))
    theirs = to_torch(ours)
    hidden = to_torch_mask(mask, (sizes.batch, sizes.heads, sizes.src, sizes.src))

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        return ours(x, src_mask=mask), theirs(x, src_mask=hidden)

    assert_same_outputs_and_gradients(ours, theirs, [x], run, torch_state)


@over(bias=EITHER, name=("padding", "query", "per-head"), **SWITCHES)
def test_decoder_layer_equals_torch(sizes, noisy, x, y, masks, torch_state, row):
    mask, causal = masks[row.pop("name")], causal_mask(sizes.tgt)
    ours = noisy(DecoderLayer(sizes.d_model, sizes.heads, sizes.d_ff, **row))
    theirs = to_torch(ours)
    hidden = to_torch_mask(mask, (sizes.batch, sizes.heads, sizes.tgt, sizes.src))

    def run(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        expected = theirs(y, x, memory_mask=hidden, tgt_mask=~causal[0, 0])
        return ours(y, x, src_mask=mask, tgt_mask=causal), expected

    assert_same_outputs_and_gradients(ours, theirs, [y, x], run, torch_state)


@pytest.mark.parametrize("batch_first", EITHER)
@EITHER_ORDER
def test_stacks_from_nn_transformer_equal_it(sizes, noisy, x, y, masks, batch_first, norm_first):
    switches = {"batch_first": batch_first, "norm_first": norm_first, "layer_norm_eps": 1e-3}
    # torch warns if it cannot use nested tensors.
    warned = pytest.warns(UserWarning, match="use_nested_tensor is False")
    with nullcontext() if batch_first and not norm_first else warned:
        theirs = nn.Transformer(sizes.d_model, 4, 2, 3, sizes.d_ff, activation="gelu", **switches)
    noisy(theirs).eval()
    encoder, decoder = from_torch(theirs)
    assert (len(encoder.layers), len(decoder.layers)) == (2, 3)
    # nn.Transformer has a final norm in both orders.
    assert encoder.norm.eps == decoder.norm.eps == 1e-3

    src_mask, tgt_mask = masks["padding"], causal_mask(sizes.tgt)
    hidden = ~src_mask[:, 0, 0]
    inputs = (x, y) if batch_first else (x.transpose(0, 1), y.transpose(0, 1))
    expected = theirs(
        *inputs, src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
        tgt_mask=~tgt_mask[0, 0],
    )  # fmt: skip
    output = decoder(y, encoder(x, src_mask=src_mask), src_mask=src_mask, tgt_mask=tgt_mask)
    expected = expected if batch_first else expected.transpose(0, 1)
    assert_close(output, expected, **TOLERANCE[torch.float64])


@pytest.mark.parametrize("activation", ["relu", "gelu", F.relu, F.gelu])
def test_from_torch_accepts_an_activation_as_word_or_function(noisy, x, activation):
    theirs = noisy(nn.TransformerEncoderLayer(24, 3, activation=activation, batch_first=True))
    theirs.eval()
    assert_close(from_torch(theirs)(x), theirs(x), **TOLERANCE[torch.float64])


@EITHER_ORDER
@pytest.mark.parametrize("final", EITHER)
def test_encoder_from_torch_has_a_final_norm_if_theirs_has(noisy, x, norm_first, final):
    layer = nn.TransformerEncoderLayer(24, 3, batch_first=True, norm_first=norm_first)
    norm = nn.LayerNorm(24) if final else None
    theirs = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    ours = from_torch(noisy(theirs).eval())
    assert (ours.norm is not None) == final
    assert_close(ours(x), theirs(x), **TOLERANCE[torch.float64])
    assert describe(to_torch(ours)) == describe(theirs)


# Laws

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: Linear(24, 96),
    "Linear without bias": lambda: Linear(24, 96, bias=False),
    "TokenEmbedding": lambda: TokenEmbedding(11, 24, padding_idx=3),
    "LayerNorm": lambda: LayerNorm(24, eps=1e-3),
    "MultiHeadAttention": lambda: MultiHeadAttention(24, 3, dropout=0.2),
    "MultiHeadAttention with bias": lambda: MultiHeadAttention(24, 3, bias=True),
    "EncoderLayer, post-norm": lambda: EncoderLayer(24, 3, 96, norm_first=False, bias=True),
    "DecoderLayer, post-norm": lambda: DecoderLayer(24, 3, 96, norm_first=False, bias=True),
    "Encoder": lambda: Encoder(24, 3, 96, num_layers=3, dropout=0.2),
    "Encoder, post-norm": lambda: Encoder(24, 3, 96, num_layers=2, norm_first=False),
    "Decoder": lambda: Decoder(24, 3, 96, num_layers=3, dropout=0.2, activation="gelu"),
    "Decoder, post-norm": lambda: Decoder(24, 3, 96, num_layers=2, norm_first=False),
}


def describe(module: nn.Module) -> dict[str, object]:
    """Describe types, settings and parameters of a module and its parts."""
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
    # torch_state is a second, independent map of the names.
    assert_close(dict(theirs.state_dict()), torch_state(ours), rtol=0.0, atol=0.0)
    back = from_torch(theirs)
    assert type(back) is type(ours) and describe(back) == describe(ours)
    again = to_torch(back)
    assert type(again) is type(theirs) and describe(again) == describe(theirs)


def test_nn_transformer_has_the_two_stacks_of_ours():
    ours, other = example.model(), example.model(norm_first=False)
    theirs = to_torch(ours)
    assert type(theirs) is nn.Transformer and not theirs.training
    assert (theirs.d_model, theirs.nhead, theirs.batch_first) == (3, 3, True)
    assert theirs.encoder.num_layers == theirs.decoder.num_layers == 1
    other.encoder, other.decoder = from_torch(theirs)
    assert describe(other.encoder) == describe(ours.encoder)
    assert describe(other.decoder) == describe(ours.decoder)
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    logits = ours(example.src, example.tgt, **masks)
    assert torch.equal(other(example.src, example.tgt, **masks), logits)


def test_to_torch_and_from_torch_copy_the_weights(noisy):
    ours = noisy(EncoderLayer(24, 3, bias=True))
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
    ours = Encoder(24, 3, num_layers=1, bias=True).to(device, dtype)
    theirs = to_torch(ours)
    for module in (theirs, from_torch(theirs)):
        assert {(p.dtype, p.device.type) for p in module.parameters()} == {(dtype, device)}


def test_conversion_keeps_frozen_parameters_and_modes():
    ours = DecoderLayer(24, 3, bias=True)
    ours.cross_attention.requires_grad_(False)
    ours.feed_forward.down.bias.requires_grad_(False)
    ours.self_attention.eval(), ours.feed_forward.dropout.eval()
    theirs = to_torch(ours)
    frozen = [name for name, p in theirs.named_parameters() if not p.requires_grad]
    assert {name.split(".")[0] for name in frozen} == {"multihead_attn", "linear2"}
    assert len(frozen) == 5
    modes = (theirs.training, theirs.self_attn.training, theirs.dropout.training)
    assert (*modes, theirs.multihead_attn.training) == (True, False, False, True)
    assert describe(from_torch(theirs)) == describe(ours)


def test_conversion_keeps_each_dropout_and_each_norm():
    ours = DecoderLayer(24, 3)
    ours.self_attention.dropout, ours.cross_attention.dropout = 0.1, 0.2
    residuals = [part for name, part in ours.named_children() if "residual" in name]
    for number, residual in enumerate(residuals, start=3):
        residual.dropout.p = number / 10.0
        residual.norm.eps = number / 1000.0
        nn.init.constant_(residual.norm.weight, number)
    ours.feed_forward.dropout.p = 0.6
    theirs = to_torch(ours)
    assert (theirs.self_attn.dropout, theirs.multihead_attn.dropout) == (0.1, 0.2)
    dropouts = (theirs.dropout1, theirs.dropout2, theirs.dropout3, theirs.dropout)
    assert [dropout.p for dropout in dropouts] == [0.3, 0.4, 0.5, 0.6]
    for number, norm in enumerate((theirs.norm1, theirs.norm2, theirs.norm3), start=3):
        assert norm.eps == number / 1000.0 and (norm.weight == number).all()
    assert describe(from_torch(theirs)) == describe(ours)


@pytest.mark.parametrize("name", ["merged", "per-head", "query"])
def test_to_torch_mask_expands_the_mask_to_all_heads(sizes, masks, name):
    mask = masks[name]
    shape = (sizes.batch, sizes.heads, sizes.tgt if name == "query" else sizes.src, sizes.src)
    hidden = to_torch_mask(mask, shape)
    assert hidden.shape == (sizes.batch * sizes.heads, *shape[2:])
    assert torch.equal(~hidden.unflatten(0, shape[:2]), mask.expand(shape))


def test_to_torch_fills_embeddings_on_the_cpu(monkeypatch):
    # On the meta device, normal_ makes torch import its compiler, which takes seconds.
    filled, normal = [], nn.init.normal_

    def record(tensor: Tensor, **keywords: float) -> Tensor:
        filled.append(tensor)
        return normal(tensor, **keywords)

    monkeypatch.setattr(nn.init, "normal_", record)
    theirs = to_torch(from_torch(nn.Embedding(4, 3, padding_idx=1)))
    assert (theirs.num_embeddings, theirs.embedding_dim, theirs.padding_idx) == (4, 3, 1)
    assert filled and not any(weight.is_meta for weight in filled)


# Where torch differs from ours


@pytest.fixture
def masked_query() -> SimpleNamespace:
    """Make an attention with biases, its counterpart, and a mask that hides all from query 1."""
    ours = MultiHeadAttention(4, 2, bias=True).eval()
    nn.init.normal_(ours.w_o.bias)
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    mask[..., 1, :] = False
    x = torch.randn(1, 3, 4, requires_grad=True)
    hidden = to_torch_mask(mask, (1, 2, 3, 3))
    return SimpleNamespace(ours=ours, theirs=to_torch(ours), x=x, mask=mask, hidden=hidden)


@pytest.mark.parametrize("attend", [scaled_dot_product_attention, F.scaled_dot_product_attention])
def test_both_functions_return_zeros_for_a_fully_masked_query(masked_query, attend):
    query = masked_query.x[:, None]
    output = attend(query, query, query, masked_query.mask)
    assert not output[0, 0, 1].any()
    output.sum().backward()
    assert masked_query.x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("grad", "need_weights", "nan"),
    [(True, True, True), (True, False, False), (False, False, True)],
)
def test_torch_module_returns_nan_for_a_fully_masked_query(masked_query, grad, need_weights, nan):
    # Without gradients, in eval mode, with biases: torch calls another kernel.
    case, others = masked_query, [0, 2]
    with torch.set_grad_enabled(grad):
        output = case.ours(case.x, case.x, case.x, case.mask)
        theirs, _ = case.theirs(
            case.x, case.x, case.x, attn_mask=case.hidden, need_weights=need_weights
        )
    assert_close(output[0, 1], case.ours.w_o.bias)
    assert_close(output[:, others], theirs[:, others], **TOLERANCE[torch.float64])
    assert theirs[0, 1].isnan().all() if nan else torch.equal(theirs[0, 1], output[0, 1])
    if grad:
        # One such row makes the gradient of every input NaN.
        (gradient,) = torch.autograd.grad(theirs[:, others].sum(), case.x)
        assert gradient.isnan().any() == nan


def test_nested_tensors_of_torch_give_zeros_at_padding(noisy, draw):
    layer = nn.TransformerEncoderLayer(24, 4, batch_first=True)
    theirs = noisy(nn.TransformerEncoder(layer, 2)).eval()
    ours = from_torch(theirs)
    x, padded = draw(2, 5, 24), torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    torch.set_warn_always(True)  # torch warns once in a process
    try:
        with torch.no_grad(), pytest.warns(UserWarning, match="nested tensors is in prototype"):
            nested = theirs(x, src_key_padding_mask=padded)
    finally:
        torch.set_warn_always(False)
    with torch.no_grad():
        output = ours(x, src_mask=~padded[:, None, None])
        again = to_torch(ours)(x, src_key_padding_mask=padded)
    assert not nested[padded].any() and output[padded].all()
    assert_close(nested[~padded], output[~padded], **TOLERANCE[torch.float64])
    assert_close(again, output, **TOLERANCE[torch.float64])


# Errors


def replace(layer: nn.Module, **parts: object) -> nn.Module:
    """Replace parts of a layer."""
    for name, part in parts.items():
        setattr(layer, name, part)
    return layer


class Subclass(nn.TransformerEncoderLayer):
    """A layer with its own forward."""


def encoder_layer(**keywords) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(24, 3, batch_first=True, **keywords)


def frozen() -> Linear:
    return Linear(24, 24, bias=False).requires_grad_(False)


# A call, then, indented, its error message: OURS and THEIRS are the supported modules.
TABLE = """\
# unsupported modules
to_torch(SwiGLU(24, 64))
    to_torch: unsupported module SwiGLU (supported: OURS)
to_torch(nn.Linear(3, 4))
    to_torch: unsupported module Linear (supported: OURS)
to_torch(replace(Encoder(24, 3, num_layers=1), norm=RMSNorm(24)))
    to_torch: unsupported module RMSNorm (supported: OURS)
to_torch(replace(EncoderLayer(24, 3), feed_forward=SwiGLU(24, 64)))
    to_torch: feed_forward must be a FeedForward, got a SwiGLU
to_torch(replace(EncoderLayer(24, 3), feed_forward_residual=Residual(24, norm_first=False)))
    to_torch: norm_first of all residuals must be equal, got self_attention_residual has True,
    feed_forward_residual has False
from_torch(nn.LSTM(3, 4))
    from_torch: unsupported module LSTM (supported: THEIRS)
from_torch(Subclass(24, 3))
    from_torch: unsupported module Subclass (supported: THEIRS)
from_torch(nn.Transformer(24, 3, 1, 1, custom_encoder=nn.Identity()))
    from_torch: unsupported module Identity (supported: THEIRS)
# heads whose widths do not sum to d_model
to_torch(MultiHeadAttention(24, 3, d_k=6))
    to_torch: d_model and the width of all heads must be equal, got d_model has 24, 3 heads of d_k
    has 18, 3 heads of d_v has 24
to_torch(MultiHeadAttention(24, 3, d_v=6))
    to_torch: d_model and the width of all heads must be equal, got d_model has 24, 3 heads of d_k
    has 24, 3 heads of d_v has 18
to_torch(example.model(num_heads=2))
    to_torch: d_model and the width of all heads must be equal, got d_model has 3, 2 heads of d_k
    has 4, 2 heads of d_v has 4
# projections that torch packs into one parameter
to_torch(replace(MultiHeadAttention(24, 3), w_o=Linear(24, 24)))
    to_torch: the biases of all projections must be equal, got w_q has False, w_k has False, w_v
    has False, w_o has True
to_torch(replace(MultiHeadAttention(24, 3), w_k=frozen()))
    to_torch: requires_grad of all projections must be equal, got w_q has True, w_k has False, w_v
    has True
# options that the counterpart lacks
to_torch(TokenEmbedding(4, 3, scale=True))
    to_torch: unsupported option scale of TokenEmbedding
from_torch(nn.MultiheadAttention(24, 3, add_bias_kv=True))
    from_torch: unsupported option bias_k of MultiheadAttention
from_torch(nn.MultiheadAttention(24, 3, add_zero_attn=True))
    from_torch: unsupported option add_zero_attn of MultiheadAttention
from_torch(nn.MultiheadAttention(24, 3, kdim=20))
    from_torch: unsupported option q_proj_weight of MultiheadAttention
from_torch(nn.MultiheadAttention(24, 3, vdim=18))
    from_torch: unsupported option q_proj_weight of MultiheadAttention
from_torch(nn.Embedding(4, 3, max_norm=1.0))
    from_torch: unsupported option max_norm of Embedding
from_torch(nn.Embedding(4, 3, scale_grad_by_freq=True))
    from_torch: unsupported option scale_grad_by_freq of Embedding
from_torch(nn.Embedding(4, 3, sparse=True))
    from_torch: unsupported option sparse of Embedding
from_torch(encoder_layer(activation=F.silu))
    from_torch: activation must be F.relu or F.gelu, got SILU
from_torch(encoder_layer(activation=nn.GELU('tanh')))
    from_torch: activation must be F.relu or F.gelu, got GELU(approximate='tanh')
from_torch(nn.LayerNorm((5, 24)))
    LayerNorm: d_model must be an integer of at least 1, got (5, 24)
from_torch(nn.LayerNorm(24, elementwise_affine=False))
    from_torch: a LayerNorm must have a weight and a bias, got LayerNorm((24,), eps=1e-05,
    elementwise_affine=False, bias=False)
from_torch(encoder_layer(bias=False))
    from_torch: a LayerNorm must have a weight and a bias, got LayerNorm((24,), eps=1e-05,
    elementwise_affine=True, bias=False)
# masks
to_torch_mask(causal_mask(5)[0], (2, 3, 5, 5))
    to_torch_mask: mask must have 4 axes (batch, head, query, key), got shape (1, 5, 5)
to_torch_mask(causal_mask(5), (2, 3, 4, 5))
    to_torch_mask: mask must broadcast to (batch, head, query, key) (2, 3, 4, 5), got shape (1, 1,
    5, 5)
to_torch_mask(causal_mask(5).long(), (2, 3, 5, 5))
    to_torch_mask: mask must be a boolean tensor (True = may attend), got torch.int64 in shape (1,
    1, 5, 5)
"""
NAMES = {
    "OURS": "Linear, TokenEmbedding, LayerNorm, Dropout, MultiHeadAttention, EncoderLayer, "
    "DecoderLayer, Encoder, Decoder, Transformer",
    "THEIRS": "Linear, Embedding, LayerNorm, Dropout, MultiheadAttention, "
    "TransformerEncoderLayer, TransformerDecoderLayer, TransformerEncoder, TransformerDecoder",
    "SILU": str(F.silu),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"), re.findall(r"^([^#\s].*)((?:\n    .+)+)", TABLE, re.MULTILINE)
)
def test_conversion_names_what_it_does_not_support(call, message):
    with pytest.raises(ValueError) as caught:
        eval(call, vars(twelve) | globals())
    expected = " ".join(message.split())
    for name, text in NAMES.items():
        expected = re.sub(rf"\b{name}\b", text, expected)
    assert str(caught.value) == expected
