"""Step 10: layers in which every source position looks at the whole source sentence."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve import Encoder, EncoderLayer, padding_mask
from twelve_lab import Trace

BOTH_NORMS = pytest.mark.parametrize("norm_first", [True, False])


@pytest.fixture
def ids(sizes, seeded) -> torch.Tensor:
    """Hold ids whose first sentence is shorter."""
    ids = torch.randint(1, sizes.src_vocab, (sizes.batch, sizes.src), generator=seeded)
    ids[0, 3:] = 0
    return ids


@pytest.fixture
def x(sizes, draw) -> torch.Tensor:
    return draw(sizes.batch, sizes.src, sizes.d_model)


def stack_of(sizes, **keywords) -> Encoder:
    given = {"num_layers": 2, "d_k": sizes.d_k, "d_v": sizes.d_v, **keywords}
    return Encoder(sizes.d_model, sizes.heads, sizes.d_ff, **given)


def silence(encoder: nn.Module) -> None:
    """Let every sublayer answer zero."""
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "w_o" in name or "feed_forward.down" in name:
                parameter.zero_()


def test_sublayers_that_answer_one_bias_each_add_up_on_the_stream(sizes, x):
    layer = EncoderLayer(sizes.d_model, sizes.heads, bias=True)
    silence(layer)
    with torch.no_grad():
        layer.self_attention.w_o.bias.fill_(10.0)
        layer.feed_forward.down.bias.fill_(0.5)
    assert_close(layer(x), x + 10.5)


def test_attention_comes_before_the_feed_forward_layer(sizes, x):
    # Attention answers (1, 0, 0, ...) everywhere. The feed-forward layer is given the norm of
    # that and moves its first feature to the second.
    layer = EncoderLayer(sizes.d_model, sizes.heads, 1, bias=True)
    silence(layer)
    with torch.no_grad():
        layer.self_attention.w_o.bias[0] = 1.0
        layer.feed_forward.up.weight.zero_()
        layer.feed_forward.up.weight[0, 0] = 1.0
        layer.feed_forward.up.bias.zero_()
        layer.feed_forward.down.weight[1, 0] = 1.0
    zeros = torch.zeros_like(x)
    # The norm of (1, 0, ..., 0): mean 1/24, variance 23/576.
    expected = zeros.clone()
    expected[..., 0] = 1.0
    expected[..., 1] = (1.0 - 1.0 / 24.0) / (23.0 / 576.0 + 1e-5) ** 0.5
    assert_close(layer(zeros), expected)


@BOTH_NORMS
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_layer_equals_torch_in_values_and_gradients(
    sizes, draw, noisy, torch_state, x, ids, norm_first, activation
):
    switches = {"norm_first": norm_first, "activation": activation}
    ours = noisy(EncoderLayer(sizes.d_model, sizes.heads, sizes.d_ff, bias=True, **switches))
    theirs = nn.TransformerEncoderLayer(
        sizes.d_model, sizes.heads, sizes.d_ff, dropout=0.0, batch_first=True, **switches
    )
    theirs.load_state_dict(torch_state(ours))
    x.requires_grad_()
    output = ours(x, src_mask=padding_mask(ids))
    expected = theirs(x, src_key_padding_mask=ids == 0)
    assert_close(output, expected)
    direction = draw(*x.shape)
    gradient = torch.autograd.grad(expected, x, direction)
    assert_close(torch.autograd.grad(output, x, direction), gradient)


@BOTH_NORMS
def test_a_stack_equals_torch(sizes, noisy, torch_state, x, ids, norm_first):
    ours = noisy(stack_of(sizes, d_v=sizes.d_k, bias=True, norm_first=norm_first))
    layer = nn.TransformerEncoderLayer(
        sizes.d_model, sizes.heads, sizes.d_ff, 0.0, batch_first=True, norm_first=norm_first
    )
    norm = nn.LayerNorm(sizes.d_model) if norm_first else None
    theirs = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    theirs.load_state_dict(torch_state(ours))
    expected = theirs(x, src_key_padding_mask=ids == 0)
    assert_close(ours(x, src_mask=padding_mask(ids)), expected)


def test_a_layer_whose_sublayers_answer_zero_is_the_identity(sizes, x):
    encoder = stack_of(sizes)
    silence(encoder)
    assert torch.equal(encoder.layers[0](x), x)
    assert torch.equal(encoder(x), encoder.norm(x))


def test_sentences_do_not_see_each_other(sizes, noisy, x, ids):
    encoder, mask = noisy(stack_of(sizes)), padding_mask(ids)
    assert_close(encoder(x.flip(0), src_mask=mask.flip(0)), encoder(x, src_mask=mask).flip(0))


def test_without_positions_order_is_carried_through_and_nothing_else(sizes, noisy, x, ids):
    encoder, order = noisy(stack_of(sizes)), torch.tensor([3, 0, 4, 1, 2])
    expected = encoder(x, src_mask=padding_mask(ids))[:, order]
    shuffled = encoder(x[:, order], src_mask=padding_mask(ids[:, order]))
    assert_close(shuffled, expected)


@pytest.mark.parametrize("training", [True, False])
def test_hidden_positions_cannot_influence_real_ones_in_any_layer(sizes, draw, x, ids, training):
    encoder, mask = stack_of(sizes, dropout=0.2).train(training), padding_mask(ids)
    changed = torch.where((ids == 0)[..., None], draw(*x.shape), x)

    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return encoder(x, src_mask=mask)[ids != 0]

    assert torch.equal(run(x), run(changed))


@BOTH_NORMS
def test_padding_changes_nothing_real(sizes, draw, noisy, x, norm_first):
    encoder = noisy(stack_of(sizes, norm_first=norm_first))
    longer = torch.cat([x, draw(sizes.batch, 3, sizes.d_model)], dim=1)
    mask = torch.ones(sizes.batch, 1, 1, sizes.src + 3, dtype=torch.bool)
    mask[..., sizes.src :] = False
    assert_close(encoder(longer, src_mask=mask)[:, : sizes.src], encoder(x))


def test_every_position_sees_every_other_where_nothing_is_hidden(sizes, draw, noisy, x):
    encoder = noisy(stack_of(sizes, num_layers=1))
    for position in range(sizes.src):
        changed = x.clone()
        changed[0, position] = draw(sizes.d_model)
        moved = (encoder(changed) - encoder(x)).abs().amax(-1) > 1e-9
        assert moved.tolist() == [[True] * sizes.src, [False] * sizes.src]


@BOTH_NORMS
def test_a_sentence_of_nothing_but_padding_leaves_finite_gradients(sizes, noisy, x, norm_first):
    encoder = noisy(stack_of(sizes, norm_first=norm_first))
    mask = padding_mask(torch.tensor([[0, 0, 0, 0, 0], [1, 2, 3, 0, 0]]))
    memory = encoder(x.requires_grad_(), src_mask=mask)
    assert memory.isfinite().all()
    memory.square().sum().backward()
    for tensor in (x, *encoder.parameters()):
        assert tensor.grad.isfinite().all() and tensor.grad.any()


def test_layers_are_built_fresh_and_share_nothing(sizes):
    first, second = stack_of(sizes).layers
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert one is not other and one.data_ptr() != other.data_ptr()
        if one.ndim > 1:
            assert not torch.equal(one, other), name


def test_there_is_a_last_norm_after_pre_norm_layers_only(sizes, x):
    encoder = stack_of(sizes)
    output = encoder(x)
    assert_close(output.mean(-1), torch.zeros(sizes.batch, sizes.src))
    (output * x).sum().backward()
    assert encoder.norm.weight.grad.any() and encoder.norm.bias.grad.any()

    post = stack_of(sizes, norm_first=False)
    assert post.norm is None
    assert not any(name.startswith("norm") for name in post.state_dict())


@BOTH_NORMS
def test_every_parameter_gets_a_gradient(sizes, draw, noisy, x, ids, norm_first):
    encoder = noisy(stack_of(sizes, norm_first=norm_first, bias=True))
    (encoder(x, src_mask=padding_mask(ids)) * draw(*x.shape)).sum().backward()
    # Adding one vector to all keys does not move the weights: the bias of w_k has no say.
    idle = [name for name, one in encoder.named_parameters() if one.grad.abs().max() < 1e-9]
    assert idle == [f"layers.{index}.self_attention.w_k.bias" for index in range(2)]


def test_keywords_reach_the_layers(sizes):
    encoder = stack_of(sizes, activation="gelu", bias=True, dropout=0.1, norm_first=False)
    for layer in encoder.layers:
        attention, feed_forward = layer.self_attention, layer.feed_forward
        assert (attention.d_k, attention.d_v, attention.dropout) == (8, 6, 0.1)
        assert attention.w_q.bias is not None
        assert (feed_forward.activation, feed_forward.dropout.p) == ("gelu", 0.1)
        assert feed_forward.up.weight.shape == (sizes.d_ff, sizes.d_model)
        for residual in (layer.self_attention_residual, layer.feed_forward_residual):
            assert (residual.norm_first, residual.dropout.p) == (False, 0.1)


def test_there_are_six_layers_four_times_as_wide_inside_unless_asked_for():
    encoder = Encoder(6, 2)
    assert len(encoder.layers) == 6
    assert encoder.layers[5].feed_forward.up.weight.shape == (24, 6)
    narrow = Encoder(6, 2, 7, num_layers=1).layers[0].feed_forward
    assert narrow.up.weight.shape == (7, 6)


def test_dropout_is_at_work_in_training_only(sizes, x):
    encoder, without = stack_of(sizes, dropout=0.2), stack_of(sizes)
    without.load_state_dict(encoder.state_dict())
    assert not torch.equal(encoder(x), encoder(x))
    assert torch.equal(encoder.eval()(x), without(x))


@BOTH_NORMS
def test_the_trace_names_every_tensor_and_its_axes_hold(sizes, x, ids, norm_first):
    encoder = stack_of(sizes, norm_first=norm_first)
    with Trace(encoder) as trace:
        encoder(x, src_mask=padding_mask(ids))
    stations = [name for name in trace if name.endswith(("merged", "activated", "added", "output"))]
    attend = ["self_attention.merged", "self_attention.output"]
    feed = ["feed_forward.activated", "feed_forward.output"]
    if norm_first:
        block = [
            "self_attention_residual.norm.output", *attend, "self_attention_residual.added",
            "feed_forward_residual.norm.output", *feed, "feed_forward_residual.added",
        ]  # fmt: skip
    else:
        block = [
            *attend, "self_attention_residual.added", "self_attention_residual.norm.output",
            *feed, "feed_forward_residual.added", "feed_forward_residual.norm.output",
        ]  # fmt: skip
    expected = [f"layers.{index}.{name}" for index in range(2) for name in block]
    assert stations == expected + (["norm.output"] if norm_first else [])
    assert trace["layers.1.feed_forward.output"].axes == ("batch", "src", "d_model")
    assert trace["layers.1.self_attention.scores"].shape == (2, 3, 5, 5)


@BOTH_NORMS
def test_saved_weights_give_the_same_stack(sizes, x, norm_first):
    encoder, fresh = (stack_of(sizes, norm_first=norm_first) for _ in range(2))
    fresh.load_state_dict(encoder.state_dict())
    assert torch.equal(fresh(x), encoder(x))
