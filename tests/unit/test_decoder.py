"""Step 11: target positions look back at themselves and across at the source."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import Decoder, DecoderLayer, causal_mask, padding_mask
from twelve_lab import Trace

BOTH_NORMS = pytest.mark.parametrize("norm_first", [True, False])


@pytest.fixture
def ids(sizes, seeded) -> torch.Tensor:
    """Hold source ids whose first sentence is shorter."""
    ids = torch.randint(1, sizes.src_vocab, (sizes.batch, sizes.src), generator=seeded)
    ids[0, 3:] = 0
    return ids


@pytest.fixture
def x(sizes, draw) -> torch.Tensor:
    return draw(sizes.batch, sizes.tgt, sizes.d_model)


@pytest.fixture
def memory(sizes, draw) -> torch.Tensor:
    return draw(sizes.batch, sizes.src, sizes.d_model)


@pytest.fixture
def masks(sizes, ids) -> dict[str, torch.Tensor]:
    return {"tgt_mask": causal_mask(sizes.tgt), "src_mask": padding_mask(ids)}


def stack_of(sizes, **keywords) -> Decoder:
    given = {"num_layers": 2, "d_k": sizes.d_k, "d_v": sizes.d_v, **keywords}
    return Decoder(sizes.d_model, sizes.heads, sizes.d_ff, **given)


def silence(decoder: nn.Module, *parts: str) -> None:
    """Let the named sublayers answer zero."""
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            last = ".down" if "feed_forward" in name else ".w_o"
            if any(part in name for part in parts) and last in name:
                parameter.zero_()


ALL = ("self_attention", "cross_attention", "feed_forward")


def test_sublayers_that_answer_one_bias_each_add_up_on_the_stream(sizes, x, memory):
    layer = DecoderLayer(sizes.d_model, sizes.heads, bias=True)
    silence(layer, *ALL)
    with torch.no_grad():
        layer.self_attention.w_o.bias.fill_(10.0)
        layer.cross_attention.w_o.bias.fill_(2.0)
        layer.feed_forward.down.bias.fill_(0.5)
    assert_close(layer(x, memory), x + 12.5)


def test_cross_attention_hands_over_what_the_memory_holds(sizes, x, memory):
    layer = DecoderLayer(sizes.d_model, 1, d_k=sizes.d_k, d_v=sizes.d_model)
    silence(layer, "self_attention", "feed_forward")
    with torch.no_grad():
        for matrix in (layer.cross_attention.w_v, layer.cross_attention.w_o):
            matrix.weight.copy_(torch.eye(sizes.d_model))
    # Every source position holds the same: whatever the weights are, that is what comes across.
    same = memory[:, :1].expand_as(memory)
    assert_close(layer(x, same), x + memory[:, :1])


@BOTH_NORMS
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_layer_equals_torch_in_values_and_gradients(
    sizes, draw, noisy, torch_state, x, memory, ids, masks, norm_first, activation
):
    switches = {"norm_first": norm_first, "activation": activation}
    ours = noisy(DecoderLayer(sizes.d_model, sizes.heads, sizes.d_ff, bias=True, **switches))
    theirs = nn.TransformerDecoderLayer(
        sizes.d_model, sizes.heads, sizes.d_ff, dropout=0.0, batch_first=True, **switches
    )
    theirs.load_state_dict(torch_state(ours))
    inputs = [x.requires_grad_(), memory.requires_grad_()]
    output = ours(*inputs, **masks)
    expected = theirs(*inputs, tgt_mask=~masks["tgt_mask"][0, 0], memory_key_padding_mask=ids == 0)
    assert_close(output, expected)
    direction = draw(*x.shape)
    gradients = torch.autograd.grad(expected, inputs, direction)
    assert_close(torch.autograd.grad(output, inputs, direction), gradients)


@BOTH_NORMS
def test_a_stack_equals_torch(sizes, noisy, torch_state, x, memory, ids, masks, norm_first):
    ours = noisy(stack_of(sizes, d_v=sizes.d_k, bias=True, norm_first=norm_first))
    layer = nn.TransformerDecoderLayer(
        sizes.d_model, sizes.heads, sizes.d_ff, 0.0, batch_first=True, norm_first=norm_first
    )
    theirs = nn.TransformerDecoder(layer, 2, nn.LayerNorm(sizes.d_model) if norm_first else None)
    theirs.load_state_dict(torch_state(ours))
    hidden = {"tgt_mask": ~masks["tgt_mask"][0, 0], "memory_key_padding_mask": ids == 0}
    assert_close(ours(x, memory, **masks), theirs(x, memory, **hidden))


def test_a_layer_whose_sublayers_answer_zero_is_the_identity(sizes, x, memory, masks):
    decoder = stack_of(sizes)
    silence(decoder, *ALL)
    assert torch.equal(decoder.layers[0](x, memory, **masks), x)
    assert torch.equal(decoder(x, memory, **masks), decoder.norm(x))


@BOTH_NORMS
@pytest.mark.parametrize("training", [True, False])
def test_the_future_never_leaks(sizes, draw, x, memory, masks, training, norm_first):
    decoder = stack_of(sizes, dropout=0.2, norm_first=norm_first).train(training)

    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return decoder(x, memory, **masks)

    for position in range(1, sizes.tgt):
        changed = x.clone()
        changed[:, position:] = draw(sizes.batch, sizes.tgt - position, sizes.d_model)
        assert torch.equal(run(x)[:, :position], run(changed)[:, :position])
        assert (run(x)[:, position:] != run(changed)[:, position:]).any(-1).all()


def test_one_pass_equals_step_by_step(sizes, noisy, x, memory, masks):
    decoder = noisy(stack_of(sizes))
    whole = decoder(x, memory, **masks)
    for length in range(1, sizes.tgt + 1):
        so_far = {"tgt_mask": causal_mask(length), "src_mask": masks["src_mask"]}
        prefix = decoder(x[:, :length], memory, **so_far)
        assert_close(prefix, whole[:, :length])


def test_every_position_sees_itself_and_all_that_came_before(sizes, draw, noisy, x, memory, masks):
    decoder = noisy(stack_of(sizes, num_layers=1))
    before = decoder(x, memory, **masks)
    for position in range(sizes.tgt):
        changed = x.clone()
        changed[0, position] = draw(sizes.d_model)
        moved = (decoder(changed, memory, **masks) - before).abs().amax(-1) > 1e-9
        expected = [later >= position for later in range(sizes.tgt)]
        assert moved.tolist() == [expected, [False] * sizes.tgt]


@pytest.mark.parametrize("training", [True, False])
def test_hidden_source_positions_cannot_influence_the_output(
    sizes, draw, x, memory, ids, masks, training
):
    decoder = stack_of(sizes, dropout=0.2).train(training)

    def run(memory: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return decoder(x, memory, **masks)

    noise = draw(*memory.shape)
    hidden = (ids == 0)[..., None]
    assert torch.equal(run(memory), run(torch.where(hidden, noise, memory)))
    for position in range(3):
        changed = memory.clone()
        changed[0, position] = noise[0, position]
        moved = (run(memory) != run(changed)).any(-1)
        assert moved.tolist() == [[True] * sizes.tgt, [False] * sizes.tgt]


def test_a_target_mask_of_padding_and_future_hides_both(sizes, draw, noisy, x, memory, masks):
    decoder = noisy(stack_of(sizes))
    ids = torch.tensor([[5, 6, 0, 0], [5, 6, 7, 8]])
    tgt_mask = masks["tgt_mask"] & padding_mask(ids)
    both = {"tgt_mask": tgt_mask, "src_mask": masks["src_mask"]}
    changed = torch.where((ids == 0)[..., None], draw(*x.shape), x)
    real = ids != 0
    assert torch.equal(decoder(changed, memory, **both)[real], decoder(x, memory, **both)[real])


def test_source_padding_changes_nothing(sizes, draw, noisy, x, memory):
    decoder, causal = noisy(stack_of(sizes)), causal_mask(sizes.tgt)
    longer = torch.cat([memory, draw(sizes.batch, 3, sizes.d_model)], dim=1)
    mask = torch.ones(sizes.batch, 1, 1, sizes.src + 3, dtype=torch.bool)
    mask[..., sizes.src :] = False
    padded = decoder(x, longer, tgt_mask=causal, src_mask=mask)
    assert_close(padded, decoder(x, memory, tgt_mask=causal))


def test_the_order_of_the_source_positions_does_not_matter_to_the_decoder(
    sizes, noisy, x, memory, masks
):
    decoder, order = noisy(stack_of(sizes)), torch.tensor([3, 0, 4, 1, 2])
    shuffled = {**masks, "src_mask": masks["src_mask"][..., order]}
    assert_close(decoder(x, memory[:, order], **shuffled), decoder(x, memory, **masks))


def test_sentences_do_not_see_each_other(sizes, noisy, x, memory, masks):
    decoder = noisy(stack_of(sizes))
    flipped = {**masks, "src_mask": masks["src_mask"].flip(0)}
    expected = decoder(x, memory, **masks).flip(0)
    assert_close(decoder(x.flip(0), memory.flip(0), **flipped), expected)


@BOTH_NORMS
def test_a_source_of_nothing_but_padding_leaves_finite_gradients(
    sizes, noisy, x, memory, norm_first
):
    decoder = noisy(stack_of(sizes, norm_first=norm_first))
    src_mask = padding_mask(torch.tensor([[0, 0, 0, 0, 0], [1, 2, 3, 0, 0]]))
    tgt_mask = causal_mask(sizes.tgt).repeat(sizes.batch, 1, 1, 1)
    tgt_mask[0, 0, 0] = False
    inputs = [x.requires_grad_(), memory.requires_grad_()]
    output = decoder(*inputs, tgt_mask=tgt_mask, src_mask=src_mask)
    assert output.isfinite().all()
    output.square().sum().backward()
    for tensor in (*inputs, *decoder.parameters()):
        assert tensor.grad.isfinite().all() and tensor.grad.any()
    assert not memory.grad[0].any() and memory.grad[1, :3].any(-1).all()


def test_layers_are_built_fresh_and_share_nothing(sizes):
    first, second = stack_of(sizes).layers
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert one is not other and one.data_ptr() != other.data_ptr()
        if one.ndim > 1:
            assert not torch.equal(one, other), name
    assert not torch.equal(first.self_attention.w_q.weight, first.cross_attention.w_q.weight)


def test_there_is_a_last_norm_after_pre_norm_layers_only(sizes, x, memory):
    decoder = stack_of(sizes)
    output = decoder(x, memory)
    assert_close(output.mean(-1), torch.zeros(sizes.batch, sizes.tgt))
    (output * x).sum().backward()
    assert decoder.norm.weight.grad.any() and decoder.norm.bias.grad.any()

    post = stack_of(sizes, norm_first=False)
    assert post.norm is None
    assert not any(name.startswith("norm") for name in post.state_dict())


@BOTH_NORMS
def test_every_parameter_gets_a_gradient(sizes, draw, noisy, x, memory, masks, norm_first):
    decoder = noisy(stack_of(sizes, norm_first=norm_first, bias=True))
    (decoder(x, memory, **masks) * draw(*x.shape)).sum().backward()
    # Adding one vector to all keys does not move the weights: the bias of w_k has no say.
    idle = [name for name, one in decoder.named_parameters() if one.grad.abs().max() < 1e-9]
    attentions = ("self_attention", "cross_attention")
    expected = [f"layers.{index}.{name}.w_k.bias" for index in range(2) for name in attentions]
    assert idle == expected


def test_keywords_reach_the_layers(sizes):
    decoder = stack_of(sizes, activation="gelu", bias=True, dropout=0.1, norm_first=False)
    for layer in decoder.layers:
        for attention in (layer.self_attention, layer.cross_attention):
            assert (attention.d_k, attention.d_v, attention.dropout) == (8, 6, 0.1)
            assert attention.w_q.bias is not None
        assert (layer.feed_forward.activation, layer.feed_forward.dropout.p) == ("gelu", 0.1)
        assert layer.feed_forward.up.weight.shape == (sizes.d_ff, sizes.d_model)
        for name in ALL:
            residual = layer.get_submodule(f"{name}_residual")
            assert (residual.norm_first, residual.dropout.p) == (False, 0.1)


def test_there_are_six_layers_four_times_as_wide_inside_unless_asked_for():
    decoder = Decoder(6, 2)
    assert len(decoder.layers) == 6
    assert decoder.layers[5].feed_forward.up.weight.shape == (24, 6)
    narrow = Decoder(6, 2, 7, num_layers=1).layers[0].feed_forward
    assert narrow.up.weight.shape == (7, 6)


def test_dropout_is_at_work_in_training_only(sizes, x, memory):
    decoder, without = stack_of(sizes, dropout=0.2), stack_of(sizes)
    without.load_state_dict(decoder.state_dict())
    assert not torch.equal(decoder(x, memory), decoder(x, memory))
    assert torch.equal(decoder.eval()(x, memory), without(x, memory))


@BOTH_NORMS
def test_the_trace_names_every_tensor_and_its_axes_hold(sizes, x, memory, masks, norm_first):
    decoder = stack_of(sizes, norm_first=norm_first)
    with Trace(decoder) as trace:
        decoder(x, memory, **masks)
    results = [
        name for name in trace if name.endswith((".added", "attention.output", "forward.output"))
    ]
    expected = [
        f"layers.{index}.{sublayer}{end}"
        for index in range(2)
        for sublayer in ALL
        for end in (".output", "_residual.added")
    ]
    assert results == expected
    assert ("norm.output" in trace) is norm_first
    cross = "layers.1.cross_attention"
    assert trace[f"{cross}.projected_query"].shape == (2, 4, 24)
    assert trace[f"{cross}.projected_key"].shape == (2, 5, 24)
    assert trace[f"{cross}.projected_value"].shape == (2, 5, 18)
    assert trace[f"{cross}.weights"].shape == (2, 3, 4, 5)
    assert trace["layers.1.self_attention.weights"].shape == (2, 3, 4, 4)
    assert trace["layers.1.feed_forward.output"].axes == ("batch", "tgt", "d_model")


@BOTH_NORMS
def test_saved_weights_give_the_same_stack(sizes, x, memory, norm_first):
    decoder, fresh = (stack_of(sizes, norm_first=norm_first) for _ in range(2))
    fresh.load_state_dict(decoder.state_dict())
    assert torch.equal(fresh(x, memory), decoder(x, memory))
