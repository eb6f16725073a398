"""Step 15: weights copied to and from torch.nn, and the numbers kept."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from pairs import pairwise, spelled
from torch import Tensor, nn
from torch.testing import assert_close

from twelve import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Residual,
    RMSNorm,
    SwiGLU,
    TokenEmbedding,
    Transformer,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)
from twelve.same_as_pytorch import from_torch, to_torch, to_torch_mask
from twelve_lab import example

# What the course promises in float64. In float32 it is what assert_close allows by default.
TOLERANCE = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {}}
DTYPES, NORMS, ACTIVATIONS, SWITCH = (*TOLERANCE,), (True, False), ("relu", "gelu"), (False, True)
BOTH_DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
BOTH_NORMS = pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
companion = example.distinct


class Assembled(nn.Module):
    """A model of nothing but torch.nn, from ids to logits, with the weights of one of ours."""

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


def spread(src_mask: Tensor, tgt_mask: Tensor, sizes: tuple[int, int, int, int]) -> dict:
    """Give torch's masks, all as attn_mask, from ours."""
    batch, heads, src, tgt = sizes
    return {
        "src_mask": to_torch_mask(src_mask, (batch, heads, src, src)),
        "memory_mask": to_torch_mask(src_mask, (batch, heads, tgt, src)),
        "tgt_mask": to_torch_mask(tgt_mask, (batch, heads, tgt, tgt)),
    }


def gradients(module: nn.Module) -> SimpleNamespace:
    """Hold a module's gradients where its weights would be, under the same names."""
    pairs = {name: one.grad for name, one in module.named_parameters()}
    return SimpleNamespace(state_dict=lambda: dict(pairs))


def assert_same_lesson(ours, theirs, logits, labels, torch_state, tolerance) -> None:
    """Compare logits, losses and the gradient of every parameter."""
    losses = [F.cross_entropy(one.flatten(0, 1), labels.flatten()) for one in logits]
    for loss in losses:
        loss.backward()
    assert_close(*logits, **tolerance)
    assert_close(*losses, **tolerance)
    named = theirs.named_parameters()
    expected = {name.removeprefix("transformer."): one.grad for name, one in named}
    assert_close(torch_state(gradients(ours)), expected, **tolerance)


@pytest.fixture
def x(sizes, draw) -> Tensor:
    return draw(sizes.batch, sizes.src, sizes.d_model)


@pytest.fixture
def y(sizes, draw) -> Tensor:
    return draw(sizes.batch, sizes.tgt, sizes.d_model)


@pytest.fixture
def masks(sizes) -> dict[str, Tensor]:
    """Hide padding, the future, and from one head what the others see."""
    src = torch.ones(sizes.batch, sizes.src, dtype=torch.int64)
    src[0, 3:] = 0
    per_head = torch.ones(1, sizes.heads, 1, sizes.src, dtype=torch.bool)
    per_head[0, 1, 0, 1] = False
    return {
        "padding": padding_mask(src),
        "causal": causal_mask(sizes.src),
        "merged": padding_mask(src) & causal_mask(sizes.src),
        "per-head": padding_mask(src) & per_head,
        "query": causal_mask(sizes.tgt, sizes.src),
    }


def test_the_packed_matrix_is_that_of_queries_of_keys_and_of_values_one_below_the_other():
    theirs = to_torch(example.model().encoder.layers[0].self_attention)
    queries = [[-1.0, 1.0, 0.0], [0.5, 0.0, 0.5], [1.0, 0.5, 0.5]]
    keys = [[0.0, 0.5, -1.0], [-0.5, 1.0, -0.5], [0.0, 1.0, -0.5]]
    values = [[0.0, -0.5, 0.5], [-1.0, 1.0, -1.0], [-1.0, -1.0, 0.5]]
    assert torch.equal(theirs.in_proj_weight, torch.tensor([*queries, *keys, *values]))
    # On paper W is (in, out): its columns are the rows above.
    for name, rows in (("Wq", queries), ("Wk", keys), ("Wv", values)):
        assert torch.equal(torch.tensor(example.weights()["enc_self"][name]).T, torch.tensor(rows))
    assert theirs.in_proj_bias is None and theirs.out_proj.bias is None


def test_what_may_be_seen_in_our_mask_is_what_is_not_hidden_in_theirs():
    causal = [[False, True], [False, False]]
    assert to_torch_mask(example.tgt_mask, (2, 3, 2, 2)).tolist() == [causal] * 6
    # Only the first token of the first sentence is padding: three heads, then three heads.
    padded, whole = [[True, False], [True, False]], [[False, False], [False, False]]
    expected = [padded] * 3 + [whole] * 3
    assert to_torch_mask(example.src_mask, (2, 3, 2, 2)).tolist() == expected


@pytest.mark.parametrize(
    "row",
    pairwise(
        num_heads=(3, 1), tie_weights=(False, True), norm_first=NORMS, activation=ACTIVATIONS,
        dtype=DTYPES,
    ),
    ids=spelled,
)  # fmt: skip
def test_the_twelve_numbers_come_out_the_same(torch_state, row):
    switches, dtype, num_heads = dict(row), row["dtype"], row["num_heads"]
    del switches["dtype"]
    ours = example.model(**switches).to(dtype)
    theirs = Assembled(ours)
    src, tgt, labels = example.src, example.tgt, example.labels
    logits = [
        ours(src, tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask),
        theirs(src, tgt, **spread(example.src_mask, example.tgt_mask, (2, num_heads, 2, 2))),
    ]
    assert_same_lesson(ours, theirs, logits, labels, torch_state, TOLERANCE[dtype])


def test_the_loss_of_the_example_is_what_torch_says_it_is():
    theirs = Assembled(example.model())
    masks = spread(example.src_mask, example.tgt_mask, (2, 3, 2, 2))
    logits = theirs(example.src, example.tgt, **masks)
    loss = F.cross_entropy(logits.flatten(0, 1), example.labels.flatten())
    assert f"{loss:.6f}" == "1.048250"


@pytest.mark.parametrize(
    "row",
    pairwise(norm_first=NORMS, activation=ACTIVATIONS, bias=(True, False), dtype=DTYPES),
    ids=spelled,
)
def test_the_companion_learns_the_same_lesson_as_torch(sizes, noisy, torch_state, row):
    switches = dict(row)
    dtype = switches.pop("dtype")
    model = Transformer(
        sizes.src_vocab, sizes.tgt_vocab, d_model=sizes.d_model, num_heads=sizes.heads,
        d_ff=sizes.d_ff, num_layers=2, max_len=8, **switches,
    )  # fmt: skip
    ours = noisy(model).to(dtype)
    theirs = Assembled(ours)
    src, src_mask, tgt_mask = companion.src, companion.src_mask, companion.tgt_mask
    logits = [
        ours(src, companion.tgt, src_mask=src_mask, tgt_mask=tgt_mask),
        # The idiom of torch's own examples: a mask of keys, and one triangle for all sentences.
        theirs(
            src, companion.tgt, src_key_padding_mask=src == 0, memory_key_padding_mask=src == 0,
            tgt_mask=~tgt_mask[0, 0],
        ),
    ]  # fmt: skip
    assert_same_lesson(ours, theirs, logits, companion.labels, torch_state, TOLERANCE[dtype])


@pytest.mark.slow
@BOTH_NORMS
@BOTH_DTYPES
def test_the_base_model_learns_the_same_lesson_as_torch(
    seeded, noisy, torch_state, norm_first, dtype
):
    torch.set_default_dtype(dtype)
    ours = Transformer(50, 60, norm_first=norm_first, bias=True, max_len=16)
    noisy(ours)
    theirs = Assembled(ours)
    src = torch.randint(1, 50, (2, 7), generator=seeded)
    src[0, 4:] = 0
    tgt, labels = (torch.randint(1, 60, (2, 5), generator=seeded) for _ in range(2))
    logits = [
        ours(src, tgt, src_mask=padding_mask(src), tgt_mask=causal_mask(5)),
        theirs(src, tgt, **spread(padding_mask(src), causal_mask(5), (2, 8, 7, 5))),
    ]
    assert_same_lesson(ours, theirs, logits, labels, torch_state, TOLERANCE[dtype])


@pytest.mark.parametrize(
    "row",
    pairwise(
        name=("none", "padding", "causal", "merged", "per-head"), bias=(True, False), dtype=DTYPES,
    ),
    ids=spelled,
)  # fmt: skip
def test_an_attention_gives_the_same_numbers_under_every_mask(
    sizes, draw, noisy, torch_state, masks, row
):
    name, bias, dtype = row.values()
    ours = noisy(MultiHeadAttention(sizes.d_model, sizes.heads, bias=bias)).to(dtype)
    theirs, mask = to_torch(ours), masks.get(name)
    three = [
        draw(sizes.batch, sizes.src, sizes.d_model).to(dtype).requires_grad_() for _ in range(3)
    ]
    shape = (sizes.batch, sizes.heads, sizes.src, sizes.src)
    hidden = None if mask is None else to_torch_mask(mask, shape)
    expected, averaged = theirs(*three, attn_mask=hidden)
    fast, nothing = theirs(*three, attn_mask=hidden, need_weights=False)
    assert averaged.shape == (sizes.batch, sizes.src, sizes.src) and nothing is None
    output = ours(*three, mask)
    for one in (expected, fast):
        assert_close(output, one, **TOLERANCE[dtype])

    direction = draw(*output.shape).to(dtype)
    output.backward(direction)
    inputs = [one.grad for one in three]
    wanted = torch.autograd.grad(expected, [*three, *theirs.parameters()], direction)
    assert_close(inputs, list(wanted[:3]), **TOLERANCE[dtype])
    names = [name for name, _ in theirs.named_parameters()]
    by_name = dict(zip(names, wanted[3:], strict=True))
    assert_close(torch_state(gradients(ours)), by_name, **TOLERANCE[dtype])


@pytest.mark.parametrize(
    "row",
    pairwise(
        norm_first=NORMS, activation=ACTIVATIONS, bias=(True, False),
        name=("padding", "merged", "per-head"),
    ),
    ids=spelled,
)  # fmt: skip
def test_an_encoder_layer_gives_the_same_numbers(sizes, draw, noisy, x, masks, torch_state, row):
    switches = dict(row)
    name = switches.pop("name")
    ours = noisy(EncoderLayer(sizes.d_model, sizes.heads, sizes.d_ff, **switches))
    theirs = to_torch(ours)
    x.requires_grad_()
    hidden = to_torch_mask(masks[name], (sizes.batch, sizes.heads, sizes.src, sizes.src))
    outputs = [ours(x, src_mask=masks[name]), theirs(x, src_mask=hidden)]
    assert_close(*outputs, **TOLERANCE[torch.float64])
    direction = draw(*x.shape)
    found = []
    for output in outputs:
        x.grad = None
        output.backward(direction)
        found.append(x.grad)
    assert_close(*found, **TOLERANCE[torch.float64])
    wanted = {name: one.grad for name, one in theirs.named_parameters()}
    assert_close(torch_state(gradients(ours)), wanted, **TOLERANCE[torch.float64])


@pytest.mark.parametrize(
    "row",
    pairwise(
        norm_first=NORMS, activation=ACTIVATIONS, bias=(True, False),
        name=("padding", "query", "per-head"),
    ),
    ids=spelled,
)  # fmt: skip
def test_a_decoder_layer_gives_the_same_numbers(sizes, draw, noisy, x, y, masks, torch_state, row):
    switches = dict(row)
    name = switches.pop("name")
    ours = noisy(DecoderLayer(sizes.d_model, sizes.heads, sizes.d_ff, **switches))
    theirs = to_torch(ours)
    x.requires_grad_(), y.requires_grad_()
    hidden = to_torch_mask(masks[name], (sizes.batch, sizes.heads, sizes.tgt, sizes.src))
    outputs = [
        ours(y, x, src_mask=masks[name], tgt_mask=causal_mask(sizes.tgt)),
        theirs(y, x, memory_mask=hidden, tgt_mask=~causal_mask(sizes.tgt)[0, 0]),
    ]
    assert_close(*outputs, **TOLERANCE[torch.float64])
    direction = draw(*y.shape)
    found = []
    for output in outputs:
        x.grad = y.grad = None
        output.backward(direction)
        found.append([x.grad, y.grad])
    assert_close(*found, **TOLERANCE[torch.float64])
    wanted = {name: one.grad for name, one in theirs.named_parameters()}
    assert_close(torch_state(gradients(ours)), wanted, **TOLERANCE[torch.float64])


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: Linear(24, 96),
    "Linear without bias": lambda: Linear(24, 96, bias=False),
    "TokenEmbedding": lambda: TokenEmbedding(11, 24, padding_idx=3),
    "LayerNorm": lambda: LayerNorm(24, eps=1e-3),
    "MultiHeadAttention": lambda: MultiHeadAttention(24, 3, dropout=0.2),
    "MultiHeadAttention with bias": lambda: MultiHeadAttention(24, 3, bias=True),
    "EncoderLayer": lambda: EncoderLayer(24, 3, 96, dropout=0.2),
    "EncoderLayer, post-norm": lambda: EncoderLayer(24, 3, 96, norm_first=False, bias=True),
    "DecoderLayer": lambda: DecoderLayer(24, 3, 96, dropout=0.2, activation="gelu"),
    "DecoderLayer, post-norm": lambda: DecoderLayer(24, 3, 96, norm_first=False, bias=True),
    "Encoder": lambda: Encoder(24, 3, 96, num_layers=3, dropout=0.2),
    "Encoder, post-norm": lambda: Encoder(24, 3, 96, num_layers=2, norm_first=False),
    "Decoder": lambda: Decoder(24, 3, 96, num_layers=3, dropout=0.2),
    "Decoder, post-norm": lambda: Decoder(24, 3, 96, num_layers=2, norm_first=False),
}
EVERY_LAYER = pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)


def describe(module: nn.Module) -> dict[str, object]:
    """Say of every part of a module what it is, how it is set, and what it holds."""
    found: dict[str, object] = {"shown": repr(module)}
    for name, part in module.named_modules():
        found[f"{name} mode"] = part.training
        found[f"{name} eps"] = getattr(part, "eps", None)
        dropout = getattr(part, "dropout", None)
        found[f"{name} dropout"] = dropout if isinstance(dropout, float) else None
    for name, one in module.named_parameters():
        found[name] = (one.dtype, one.device, one.requires_grad, one.tolist())
    return found


@EVERY_LAYER
def test_there_and_back_again_nothing_has_changed(noisy, build):
    ours = noisy(build()).eval()
    back = from_torch(to_torch(ours))
    assert type(back) is type(ours)
    assert describe(back) == describe(ours)


@EVERY_LAYER
def test_back_and_there_again_nothing_has_changed(noisy, build):
    theirs = to_torch(noisy(build()))
    again = to_torch(from_torch(theirs))
    assert type(again) is type(theirs)
    assert describe(again) == describe(theirs)


@EVERY_LAYER
def test_the_names_and_values_are_those_of_a_map_written_apart(noisy, torch_state, build):
    ours = noisy(build())
    found, expected = dict(to_torch(ours).state_dict()), torch_state(ours)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_transformer_comes_back_as_its_two_stacks():
    ours = example.model()
    theirs = to_torch(ours)
    assert type(theirs) is nn.Transformer and not theirs.training
    assert (theirs.d_model, theirs.nhead, theirs.batch_first) == (3, 3, True)
    assert theirs.encoder.num_layers == theirs.decoder.num_layers == 1
    encoder, decoder = from_torch(theirs)
    assert describe(encoder) == describe(ours.encoder)
    assert describe(decoder) == describe(ours.decoder)


def test_a_model_whose_stacks_went_to_torch_and_back_gives_the_same_logits():
    ours, other = example.model(), example.model(norm_first=False)
    other.encoder, other.decoder = from_torch(to_torch(ours))
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    logits = ours(example.src, example.tgt, **masks)
    assert torch.equal(other(example.src, example.tgt, **masks), logits)


def test_weights_are_copies_on_both_ways(noisy):
    ours = noisy(EncoderLayer(24, 3, bias=True))
    theirs = to_torch(ours)
    back = from_torch(theirs)
    storages = [
        {one.untyped_storage().data_ptr() for one in module.parameters()}
        for module in (ours, theirs, back)
    ]
    assert [len(one) for one in storages] == [16, 12, 16]
    assert len(set.union(*storages)) == 44


def test_a_copy_draws_no_random_numbers_and_works_where_gradients_are_off():
    ours = example.model()
    before = torch.random.get_rng_state()
    with torch.no_grad():
        theirs = to_torch(ours)
        modules = (theirs, *from_torch(theirs))
    assert torch.equal(torch.random.get_rng_state(), before)
    for module in modules:
        assert all(one.requires_grad and one.is_leaf for one in module.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_dtype_and_device_are_kept(dtype, device):
    ours = Encoder(24, 3, num_layers=1, bias=True).to(device, dtype)
    theirs = to_torch(ours)
    for module in (theirs, from_torch(theirs)):
        assert {(one.dtype, one.device.type) for one in module.parameters()} == {(dtype, device)}


def test_what_is_frozen_stays_frozen_and_what_is_in_eval_mode_stays_in_it():
    ours = DecoderLayer(24, 3, bias=True)
    ours.cross_attention.requires_grad_(False)
    ours.feed_forward.down.bias.requires_grad_(False)
    ours.self_attention.eval(), ours.feed_forward.dropout.eval()
    theirs = to_torch(ours)
    frozen = {name for name, one in theirs.named_parameters() if not one.requires_grad}
    assert {name.split(".")[0] for name in frozen} == {"multihead_attn", "linear2"}
    assert len(frozen) == 5
    modes = (theirs.training, theirs.self_attn.training, theirs.dropout.training)
    assert (*modes, theirs.multihead_attn.training) == (True, False, False, True)
    assert describe(from_torch(theirs)) == describe(ours)


def test_each_dropout_is_carried_to_its_place():
    ours = DecoderLayer(24, 3)
    ours.self_attention.dropout, ours.cross_attention.dropout = 0.1, 0.2
    ours.self_attention_residual.dropout.p, ours.cross_attention_residual.dropout.p = 0.3, 0.4
    ours.feed_forward_residual.dropout.p, ours.feed_forward.dropout.p = 0.5, 0.6
    theirs = to_torch(ours)
    attentions = (theirs.self_attn.dropout, theirs.multihead_attn.dropout)
    assert attentions == (0.1, 0.2)
    others = (theirs.dropout1, theirs.dropout2, theirs.dropout3, theirs.dropout)
    assert [one.p for one in others] == [0.3, 0.4, 0.5, 0.6]
    assert describe(from_torch(theirs)) == describe(ours)


def test_each_norm_is_carried_to_its_place_with_its_eps():
    ours = DecoderLayer(24, 3)
    norms = [
        ours.self_attention_residual.norm, ours.cross_attention_residual.norm,
        ours.feed_forward_residual.norm,
    ]  # fmt: skip
    for index, norm in enumerate(norms, start=1):
        norm.eps = index / 1000.0
        nn.init.constant_(norm.weight, index)
    theirs = to_torch(ours)
    for index, norm in enumerate((theirs.norm1, theirs.norm2, theirs.norm3), start=1):
        assert norm.eps == index / 1000.0
        assert (norm.weight == index).all()
    assert describe(from_torch(theirs)) == describe(ours)


@pytest.mark.parametrize("batch_first", [True, False])
@BOTH_NORMS
def test_torch_s_own_transformer_gives_the_same_numbers_here(
    sizes, noisy, x, y, masks, batch_first, norm_first
):
    switches = {"batch_first": batch_first, "norm_first": norm_first, "layer_norm_eps": 1e-3}
    # torch says so where it cannot use nested tensors.
    warned = pytest.warns(UserWarning, match="use_nested_tensor is False")
    with nullcontext() if batch_first and not norm_first else warned:
        theirs = nn.Transformer(sizes.d_model, 4, 2, 3, sizes.d_ff, activation="gelu", **switches)
    noisy(theirs).eval()
    encoder, decoder = from_torch(theirs)
    assert (len(encoder.layers), len(decoder.layers)) == (2, 3)
    # nn.Transformer ends with a norm in both orders.
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
def test_an_activation_may_be_a_word_or_a_function(noisy, x, activation):
    theirs = noisy(nn.TransformerEncoderLayer(24, 3, activation=activation, batch_first=True))
    theirs.eval()
    assert_close(from_torch(theirs)(x), theirs(x), **TOLERANCE[torch.float64])


@BOTH_NORMS
@pytest.mark.parametrize("final", [True, False])
def test_a_stack_has_a_last_norm_where_torch_s_has_one(noisy, x, norm_first, final):
    layer = nn.TransformerEncoderLayer(24, 3, batch_first=True, norm_first=norm_first)
    norm = nn.LayerNorm(24) if final else None
    theirs = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    ours = from_torch(noisy(theirs).eval())
    assert (ours.norm is not None) == final
    assert_close(ours(x), theirs(x), **TOLERANCE[torch.float64])
    assert describe(to_torch(ours)) == describe(theirs)


def test_a_table_keeps_its_number_of_rows_and_of_features():
    theirs = to_torch(TokenEmbedding(11, 24, padding_idx=3))
    assert (theirs.num_embeddings, theirs.embedding_dim, theirs.padding_idx) == (11, 24, 3)


@pytest.mark.parametrize("name", ["padding", "causal", "merged", "per-head", "query"])
def test_a_mask_comes_back_as_it_went(sizes, masks, name):
    mask = masks[name]
    shape = (sizes.batch, sizes.heads, sizes.tgt if name == "query" else sizes.src, sizes.src)
    hidden = to_torch_mask(mask, shape)
    assert hidden.shape == (sizes.batch * sizes.heads, *shape[2:])
    assert torch.equal(~hidden.unflatten(0, shape[:2]), mask.expand(shape))


@pytest.fixture
def row() -> SimpleNamespace:
    """Hold a layer with biases, its counterpart, and a mask under which query 1 sees nothing."""
    ours = MultiHeadAttention(4, 2, bias=True).eval()
    nn.init.normal_(ours.w_o.bias)
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    mask[..., 1, :] = False
    x = torch.randn(1, 3, 4, requires_grad=True)
    hidden = to_torch_mask(mask, (1, 2, 3, 3))
    return SimpleNamespace(ours=ours, theirs=to_torch(ours), x=x, mask=mask, hidden=hidden)


@pytest.mark.parametrize("function", [scaled_dot_product_attention, F.scaled_dot_product_attention])
def test_a_query_that_sees_nothing_gets_zeros_from_both_functions(row, function):
    query = row.x[:, None]
    output = function(query, query, query, row.mask)
    assert not output[0, 0, 1].any()
    output.sum().backward()
    assert row.x.grad.isfinite().all()


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_query_that_sees_nothing_gets_nan_from_torch_s_module_where_weights_are_asked_for(
    row, need_weights
):
    output = row.ours(row.x, row.x, row.x, row.mask)
    theirs, _ = row.theirs(row.x, row.x, row.x, attn_mask=row.hidden, need_weights=need_weights)
    assert_close(output[0, 1], row.ours.w_o.bias)
    seeing = [0, 2]
    assert_close(output[:, seeing], theirs[:, seeing], **TOLERANCE[torch.float64])
    assert theirs[0, 1].isnan().all() if need_weights else torch.equal(theirs[0, 1], output[0, 1])
    # One such row spoils the gradient of every input.
    (gradient,) = torch.autograd.grad(theirs[:, seeing].sum(), row.x)
    assert gradient.isnan().any() == need_weights


def test_torch_s_fast_path_gives_nan_even_where_no_weights_are_asked_for(row):
    # Eval mode, no gradients, an even number of heads, biases: another kernel is called.
    with torch.no_grad():
        output = row.ours(row.x, row.x, row.x, row.mask)
        theirs, _ = row.theirs(row.x, row.x, row.x, attn_mask=row.hidden, need_weights=False)
    assert output.isfinite().all()
    assert theirs[0, 1].isnan().all()
    assert_close(output[:, [0, 2]], theirs[:, [0, 2]], **TOLERANCE[torch.float64])


def test_torch_s_nested_tensors_give_zeros_at_padded_positions_and_ours_does_not_use_them(
    noisy, draw
):
    layer = nn.TransformerEncoderLayer(24, 4, batch_first=True)
    theirs = noisy(nn.TransformerEncoder(layer, 2)).eval()
    ours = from_torch(theirs)
    x, padded = draw(2, 5, 24), torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    torch.set_warn_always(True)  # torch says it once in a process: here, in whichever test
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


def altered(layer: nn.Module, **parts: object) -> nn.Module:
    """Put something else in the place of parts of a layer."""
    for name, part in parts.items():
        setattr(layer, name, part)
    return layer


class Masked(nn.TransformerEncoderLayer):
    """Stand for a layer that somebody wrote anew."""


def torch_layer(**keywords) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(24, 3, batch_first=True, **keywords)


TANH_GELU = nn.GELU("tanh")
POST_NORM = Residual(24, norm_first=False)
FROZEN = Linear(24, 24, bias=False).requires_grad_(False)
OURS = (
    "Linear, TokenEmbedding, LayerNorm, Dropout, MultiHeadAttention, EncoderLayer, DecoderLayer, "
    "Encoder, Decoder, Transformer"
)
THEIRS = (
    "Linear, Embedding, LayerNorm, Dropout, MultiheadAttention, TransformerEncoderLayer, "
    "TransformerDecoderLayer, TransformerEncoder, TransformerDecoder"
)
NORM = "from_torch: a LayerNorm must have a weight and a bias, got "


def shares(d_model: int, heads: int, d_k: int, d_v: int) -> str:
    """Say what to_torch answers to heads that do not share out d_model."""
    width = "the width that nn.MultiheadAttention shares out among its heads"
    found = f"d_model has {d_model}, {heads} heads of d_k has {d_k}, {heads} heads of d_v has {d_v}"
    return f"to_torch: the arguments disagree about {width}: {found}"


ERRORS = {
    "what has no counterpart": [
        (
            lambda: to_torch(SwiGLU(24, 64)),
            f"to_torch: no counterpart is known for SwiGLU; give one of {OURS}",
        ),
        (
            lambda: to_torch(nn.Linear(3, 4)),
            f"to_torch: no counterpart is known for Linear; give one of {OURS}",
        ),
        (
            lambda: to_torch(altered(Encoder(24, 3, num_layers=1), norm=RMSNorm(24))),
            f"to_torch: no counterpart is known for RMSNorm; give one of {OURS}",
        ),
        (
            lambda: to_torch(altered(EncoderLayer(24, 3), feed_forward=SwiGLU(24, 64))),
            "to_torch: feed_forward must be a FeedForward, got a SwiGLU",
        ),
        (
            lambda: to_torch(altered(EncoderLayer(24, 3), feed_forward_residual=POST_NORM)),
            "to_torch: the arguments disagree about the one norm_first of "
            "nn.TransformerEncoderLayer: self_attention_residual has True, feed_forward_residual "
            "has False",
        ),
        (
            lambda: from_torch(nn.LSTM(3, 4)),
            f"from_torch: no counterpart is known for LSTM; give one of {THEIRS}",
        ),
        (
            lambda: from_torch(Masked(24, 3)),
            f"from_torch: no counterpart is known for Masked; give one of {THEIRS}",
        ),
        (
            lambda: from_torch(nn.Transformer(24, 3, 1, 1, custom_encoder=nn.Identity())),
            f"from_torch: no counterpart is known for Identity; give one of {THEIRS}",
        ),
        (
            lambda: from_torch(nn.TransformerDecoder(Masked(24, 3), 1)),
            f"from_torch: no counterpart is known for Masked; give one of {THEIRS}",
        ),
    ],
    "heads that do not share out d_model": [
        (lambda: to_torch(MultiHeadAttention(24, 3, d_k=6)), shares(24, 3, 18, 24)),
        (lambda: to_torch(MultiHeadAttention(24, 3, d_v=6)), shares(24, 3, 24, 18)),
        (lambda: to_torch(companion.model()), shares(24, 3, 24, 18)),
        (lambda: to_torch(EncoderLayer(24, 3, d_k=6, d_v=6)), shares(24, 3, 18, 18)),
        (lambda: to_torch(example.model(num_heads=2)), shares(3, 2, 4, 4)),
    ],
    "what is packed into one parameter": [
        (
            lambda: to_torch(altered(MultiHeadAttention(24, 3), w_o=Linear(24, 24))),
            "to_torch: the arguments disagree about the one bias of nn.MultiheadAttention: w_q has "
            "False, w_k has False, w_v has False, w_o has True",
        ),
        (
            lambda: to_torch(altered(MultiHeadAttention(24, 3), w_k=FROZEN)),
            "to_torch: the arguments disagree about the one requires_grad of "
            "nn.MultiheadAttention: w_q has True, w_k has False, w_v has True",
        ),
    ],
    "options of torch that ours lacks": [
        (
            lambda: to_torch(TokenEmbedding(4, 3, scale=True)),
            "to_torch: the counterpart of TokenEmbedding has no scale",
        ),
        (
            lambda: from_torch(nn.MultiheadAttention(24, 3, add_bias_kv=True)),
            "from_torch: the counterpart of MultiheadAttention has no bias_k",
        ),
        (
            lambda: from_torch(nn.MultiheadAttention(24, 3, add_zero_attn=True)),
            "from_torch: the counterpart of MultiheadAttention has no add_zero_attn",
        ),
        (
            lambda: from_torch(nn.MultiheadAttention(24, 3, kdim=20)),
            "from_torch: the counterpart of MultiheadAttention has no q_proj_weight",
        ),
        (
            lambda: from_torch(nn.MultiheadAttention(24, 3, vdim=18)),
            "from_torch: the counterpart of MultiheadAttention has no q_proj_weight",
        ),
        (
            lambda: from_torch(nn.Embedding(4, 3, max_norm=1.0)),
            "from_torch: the counterpart of Embedding has no max_norm",
        ),
        (
            lambda: from_torch(nn.Embedding(4, 3, scale_grad_by_freq=True)),
            "from_torch: the counterpart of Embedding has no scale_grad_by_freq",
        ),
        (
            lambda: from_torch(nn.Embedding(4, 3, sparse=True)),
            "from_torch: the counterpart of Embedding has no sparse",
        ),
        (
            lambda: from_torch(torch_layer(activation=torch.tanh)),
            f"from_torch: activation must be F.relu or F.gelu, got {torch.tanh}",
        ),
        (
            lambda: from_torch(torch_layer(activation=TANH_GELU)),
            "from_torch: activation must be F.relu or F.gelu, got GELU(approximate='tanh')",
        ),
        (
            lambda: from_torch(nn.LayerNorm((5, 24))),
            "LayerNorm: d_model must be a whole number of at least 1, got (5, 24)",
        ),
        (
            lambda: from_torch(nn.LayerNorm(24, elementwise_affine=False)),
            f"{NORM}{nn.LayerNorm(24, elementwise_affine=False)}",
        ),
        (
            lambda: from_torch(torch_layer(bias=False)),
            f"{NORM}{torch_layer(bias=False).norm1}",
        ),
    ],
    "masks that cannot be turned": [
        (
            lambda: to_torch_mask(causal_mask(5)[0], (2, 3, 5, 5)),
            "to_torch_mask: the mask must have the four axes (batch, head, query, key), 1 where it "
            "is shared, got shape (1, 5, 5)",
        ),
        (
            lambda: to_torch_mask(causal_mask(5), (2, 3, 4, 5)),
            "to_torch_mask: a mask of shape (1, 1, 5, 5) does not broadcast to the scores (..., "
            "query, key) of shape (2, 3, 4, 5)",
        ),
        (
            lambda: to_torch_mask(causal_mask(5).long(), (2, 3, 5, 5)),
            "to_torch_mask: the mask must be boolean (True = may attend), got torch.int64 in "
            "shape (1, 1, 5, 5)",
        ),
    ],
}  # fmt: skip
ROWS = [
    pytest.param(call, message, id=f"{kind} {number}")
    for kind, rows in ERRORS.items()
    for number, (call, message) in enumerate(rows, 1)
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), ROWS)
def test_what_cannot_be_carried_over_is_named(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message


def test_no_normal_numbers_are_drawn_without_memory(monkeypatch):
    # For that torch would import its compiler, which takes seconds.
    drawn, normal = [], nn.init.normal_

    def watched(*given, **named):
        drawn.append(named.get("tensor", *given[:1]))
        return normal(*given, **named)

    monkeypatch.setattr(nn.init, "normal_", watched)
    to_torch(from_torch(nn.Embedding(4, 3, padding_idx=1)))
    assert drawn and not any(one.is_meta for one in drawn)
