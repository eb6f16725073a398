"""Step 12: from token ids to logits."""

import io
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from twelve import LearnedPositionalEncoding, Transformer, causal_mask, padding_mask
from twelve_lab import Trace, example, influence

BOTH_NORMS = pytest.mark.parametrize("norm_first", [True, False])


def model_of(sizes, **keywords) -> Transformer:
    given = {
        "d_model": sizes.d_model, "num_heads": sizes.heads, "d_ff": sizes.d_ff, "num_layers": 2,
        "d_k": sizes.d_k, "d_v": sizes.d_v, "max_len": 32, **keywords,
    }  # fmt: skip
    return Transformer(sizes.src_vocab, sizes.tgt_vocab, **given)


@pytest.fixture
def src(sizes, seeded) -> torch.Tensor:
    """Hold source ids whose first sentence is shorter."""
    ids = torch.randint(1, sizes.src_vocab, (sizes.batch, sizes.src), generator=seeded)
    ids[0, 3:] = 0
    return ids


@pytest.fixture
def tgt(sizes, seeded) -> torch.Tensor:
    return torch.randint(1, sizes.tgt_vocab, (sizes.batch, sizes.tgt), generator=seeded)


@pytest.fixture
def masks(sizes, src) -> dict[str, torch.Tensor]:
    return {"src_mask": padding_mask(src), "tgt_mask": causal_mask(sizes.tgt)}


def torch_transformer(sizes, state, *, norm_first, activation) -> nn.Transformer:
    """Build torch's own with our weights, and in post-norm without the last norms it would add."""
    switches = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    widths = (sizes.d_model, sizes.heads, sizes.d_ff)
    encoder_layer = nn.TransformerEncoderLayer(*widths, activation=activation, **switches)
    decoder_layer = nn.TransformerDecoderLayer(*widths, activation=activation, **switches)
    norms = [nn.LayerNorm(sizes.d_model) if norm_first else None for _ in range(2)]
    model = nn.Transformer(
        sizes.d_model,
        sizes.heads,
        custom_encoder=nn.TransformerEncoder(
            encoder_layer, 2, norms[0], enable_nested_tensor=False
        ),
        custom_decoder=nn.TransformerDecoder(decoder_layer, 2, norms[1]),
        batch_first=True,
    )
    stacks = ("encoder.", "decoder.")
    model.load_state_dict({name: state[name] for name in state if name.startswith(stacks)})
    return model


def test_the_base_model_of_the_paper_has_as_many_parameters_as_a_count_by_hand_gives():
    with torch.device("meta"):
        model = Transformer(500, 1000)
    attention, feed_forward, norm = 4 * 512 * 512, 2 * 512 * 2048 + 2048 + 512, 2 * 512
    encoder = 6 * (attention + feed_forward + 2 * norm) + norm
    decoder = 6 * (2 * attention + feed_forward + 3 * norm) + norm
    assert (encoder, decoder) == (18_903_040, 25_200_640)

    def count(part: nn.Module) -> int:
        return sum(parameter.numel() for parameter in part.parameters())

    assert count(model.encoder) == encoder
    assert count(model.decoder) == decoder
    assert count(model) == encoder + decoder + 512 * (500 + 1000) + 512 * 1000 + 1000


def test_where_all_sublayers_answer_zero_the_words_and_their_places_come_through(sizes, src, tgt):
    model = model_of(sizes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "w_o" in name or "feed_forward.down" in name:
                parameter.zero_()
    stream = model.tgt_embedding.weight[tgt] + model.positional_encoding.table[: sizes.tgt]
    normed = (stream - stream.mean(-1, keepdim=True)) / torch.sqrt(
        stream.var(-1, unbiased=False, keepdim=True) + 1e-5
    )
    assert_close(model(src, tgt), normed @ model.output_projection.weight.T)


@BOTH_NORMS
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("scale", [True, False])
def test_it_equals_torch_between_the_embeddings_and_the_output(
    sizes, noisy, torch_state, src, tgt, masks, norm_first, activation, scale
):
    switches = {"norm_first": norm_first, "activation": activation}
    ours = noisy(model_of(sizes, d_v=sizes.d_k, bias=True, scale_embedding=scale, **switches))
    theirs = torch_transformer(sizes, torch_state(ours), **switches)

    factor = math.sqrt(sizes.d_model) if scale else 1.0
    table = ours.positional_encoding.table
    output = theirs(
        factor * F.embedding(src, ours.src_embedding.weight) + table[: sizes.src],
        factor * F.embedding(tgt, ours.tgt_embedding.weight) + table[: sizes.tgt],
        src_key_padding_mask=src == 0,
        memory_key_padding_mask=src == 0,
        tgt_mask=~masks["tgt_mask"][0, 0],
    )
    projection = ours.output_projection
    assert_close(ours(src, tgt, **masks), F.linear(output, projection.weight, projection.bias))


@BOTH_NORMS
def test_forward_is_encode_and_then_decode(sizes, src, tgt, masks, norm_first):
    model = model_of(sizes, norm_first=norm_first)
    memory = model.encode(src, src_mask=masks["src_mask"])
    assert memory.shape == (sizes.batch, sizes.src, sizes.d_model)
    assert torch.equal(model.decode(tgt, memory, **masks), model(src, tgt, **masks))


@BOTH_NORMS
@pytest.mark.parametrize("training", [True, False])
def test_the_future_never_leaks(sizes, seeded, src, tgt, masks, norm_first, training):
    model = model_of(sizes, norm_first=norm_first, dropout=0.2).train(training)

    def run(tgt: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return model(src, tgt, **masks)

    for position in range(1, sizes.tgt):
        changed = tgt.clone()
        changed[:, position:] = (tgt[:, position:] + 1) % sizes.tgt_vocab
        assert torch.equal(run(tgt)[:, :position], run(changed)[:, :position])
        assert (run(tgt)[:, position:] != run(changed)[:, position:]).any(-1).all()


@BOTH_NORMS
def test_one_pass_equals_step_by_step(sizes, noisy, src, tgt, masks, norm_first):
    model = noisy(model_of(sizes, norm_first=norm_first))
    whole = model(src, tgt, **masks)
    memory = model.encode(src, src_mask=masks["src_mask"])
    for length in range(1, sizes.tgt + 1):
        so_far = {"tgt_mask": causal_mask(length), "src_mask": masks["src_mask"]}
        assert_close(model.decode(tgt[:, :length], memory, **so_far), whole[:, :length])


@BOTH_NORMS
def test_padding_changes_nothing_real(sizes, noisy, src, tgt, masks, norm_first):
    model = noisy(model_of(sizes, norm_first=norm_first))
    longer = F.pad(src, (0, 4))
    padded = model(longer, tgt, src_mask=padding_mask(longer), tgt_mask=masks["tgt_mask"])
    assert_close(padded, model(src, tgt, **masks))

    shorter = model(src[:1, :3], tgt[:1], tgt_mask=masks["tgt_mask"])
    assert_close(shorter, model(src, tgt, **masks)[:1])


def test_a_hidden_source_token_may_be_any_word(sizes, noisy, src, tgt, masks):
    model = noisy(model_of(sizes))
    changed = src.masked_fill(src == 0, 7)
    assert torch.equal(model(changed, tgt, **masks), model(src, tgt, **masks))


def test_every_source_token_that_is_not_hidden_has_a_say_at_every_target_position(
    sizes, noisy, src, tgt, masks
):
    model = noisy(model_of(sizes))
    for position in range(3):
        changed = src.clone()
        changed[0, position] = src[0, position] % (sizes.src_vocab - 1) + 1
        moved = (model(changed, tgt, **masks) != model(src, tgt, **masks)).any(-1)
        assert moved.tolist() == [[True] * sizes.tgt, [False] * sizes.tgt]


def test_the_influence_map_of_the_example_is_block_diagonal_and_causal():
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    model = example.model()
    of_tgt = influence(model, example.src, example.tgt, of="tgt", **masks).grid
    assert of_tgt.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    of_src = influence(model, example.src, example.tgt, of="src", **masks).grid
    # The first token of the first sentence is padding.
    assert of_src.int().tolist() == [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


def test_sentences_do_not_see_each_other(sizes, noisy, src, tgt, masks):
    model = noisy(model_of(sizes))
    flipped = {"src_mask": padding_mask(src.flip(0)), "tgt_mask": masks["tgt_mask"]}
    expected = model(src, tgt, **masks).flip(0)
    assert_close(model(src.flip(0), tgt.flip(0), **flipped), expected)


@BOTH_NORMS
def test_sentences_of_nothing_but_padding_leave_finite_gradients(
    sizes, noisy, src, tgt, norm_first
):
    model = noisy(model_of(sizes, norm_first=norm_first))
    src[0] = 0
    tgt_mask = causal_mask(sizes.tgt).repeat(sizes.batch, 1, 1, 1)
    tgt_mask[1, :, 2] = False
    logits = model(src, tgt, src_mask=padding_mask(src), tgt_mask=tgt_mask)
    assert logits.isfinite().all()
    F.cross_entropy(logits.flatten(0, 1), tgt.flatten()).backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all() and parameter.grad.any()


@BOTH_NORMS
def test_every_parameter_gets_a_gradient(sizes, noisy, src, tgt, masks, norm_first):
    model = noisy(model_of(sizes, norm_first=norm_first, bias=True))
    F.cross_entropy(model(src, tgt, **masks).flatten(0, 1), tgt.flatten()).backward()
    # Adding one vector to all keys does not move the weights: the bias of w_k has no say.
    idle = [name for name, one in model.named_parameters() if one.grad.abs().max() < 1e-9]
    assert len(idle) == 6 and all(name.endswith("attention.w_k.bias") for name in idle)


def test_each_language_has_a_table_of_its_own(sizes, src, tgt):
    model = model_of(sizes)
    assert model.src_embedding.weight.shape == (sizes.src_vocab, sizes.d_model)
    assert model.tgt_embedding.weight.shape == (sizes.tgt_vocab, sizes.d_model)
    with Trace(model) as trace:
        logits = model(src, tgt)
    assert torch.equal(trace["src_embedding.vectors"].value, model.src_embedding.weight[src])
    assert torch.equal(trace["tgt_embedding.vectors"].value, model.tgt_embedding.weight[tgt])
    assert logits.shape == (sizes.batch, sizes.tgt, sizes.tgt_vocab)


def test_id_0_is_a_word_like_any_other_unless_a_mask_hides_it(sizes):
    model = model_of(sizes)
    src = torch.arange(sizes.src_vocab)[None]
    tgt = torch.arange(sizes.tgt_vocab)[None]
    model(src, tgt).square().sum().backward()
    for table in (model.src_embedding, model.tgt_embedding):
        assert table.padding_idx is None
        assert (table.weight != 0.0).all() and table.weight.grad.any(-1).all()


def test_one_positional_encoding_serves_both_languages(sizes, src, tgt):
    model, lengths = model_of(sizes), []
    model.positional_encoding.register_forward_pre_hook(
        lambda module, inputs: lengths.append(inputs[0].size(1))
    )
    model(src, tgt)
    assert lengths == [sizes.src, sizes.tgt]
    assert [name for name, _ in model.named_buffers()] == ["positional_encoding.table"]
    assert model.positional_encoding.max_len == 32


def test_learned_positions_may_take_the_place_of_sinusoids(sizes, src, tgt, masks):
    model = model_of(sizes)
    model.positional_encoding = LearnedPositionalEncoding(sizes.d_model, max_len=32)
    model(src, tgt, **masks).square().sum().backward()
    used = model.positional_encoding.table.grad.any(-1)
    assert used.tolist() == [True] * sizes.src + [False] * (32 - sizes.src)


def test_scaling_equals_tables_that_are_root_d_model_times_larger(sizes, src, tgt, masks):
    model, scaled = model_of(sizes), model_of(sizes, scale_embedding=True)
    scaled.load_state_dict(model.state_dict())
    with torch.no_grad():
        model.src_embedding.weight *= math.sqrt(sizes.d_model)
        model.tgt_embedding.weight *= math.sqrt(sizes.d_model)
    assert_close(scaled(src, tgt, **masks), model(src, tgt, **masks))


def test_a_tied_output_is_the_very_table_of_the_target(sizes):
    model = model_of(sizes, tie_weights=True)
    assert model.output_projection.weight is model.tgt_embedding.weight
    assert model.output_projection.bias is None
    names = [name for name, _ in model.named_parameters()]
    assert "tgt_embedding.weight" in names and "output_projection.weight" not in names
    assert model.to(torch.float32).output_projection.weight is model.tgt_embedding.weight

    untied = model_of(sizes)
    assert untied.output_projection.weight is not untied.tgt_embedding.weight
    assert untied.output_projection.bias.shape == (sizes.tgt_vocab,)


def test_a_tied_table_learns_from_both_ends(sizes, noisy, src, tgt, masks):
    tied, untied = noisy(model_of(sizes, tie_weights=True)), model_of(sizes)
    untied.load_state_dict(tied.state_dict(), strict=False)
    with torch.no_grad():
        untied.output_projection.bias.zero_()
    logits = [one(src, tgt, **masks) for one in (tied, untied)]
    assert_close(*logits)
    for output in logits:
        F.cross_entropy(output.flatten(0, 1), tgt.flatten()).backward()
    lookup, output = untied.tgt_embedding.weight.grad, untied.output_projection.weight.grad
    assert lookup.any() and output.any()
    assert_close(tied.tgt_embedding.weight.grad, lookup + output)


@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_a_fresh_model_knows_nothing(seeded, tie_weights, scale):
    model = Transformer(
        50, 40, d_model=24, num_heads=3, num_layers=2, max_len=8,
        tie_weights=tie_weights, scale_embedding=scale,
    )  # fmt: skip
    src, tgt, labels = (torch.randint(0, 40, (16, 8), generator=seeded) for _ in range(3))
    loss = F.cross_entropy(model(src, tgt).flatten(0, 1), labels.flatten())
    # Logits of a standard deviation s put the loss s²/2 above ln(vocab), and s starts near 1.
    # Over 20 seeds the loss lay from 0.1 to 0.8 above; a tied table of deviation 1 adds 12.
    assert math.log(40.0) < loss < math.log(40.0) + 1.0


@pytest.mark.parametrize(("tie_weights", "std"), [(True, 16**-0.5), (False, 1.0)])
def test_a_tied_table_starts_smaller(tie_weights, std):
    model = Transformer(9, 700, d_model=16, num_heads=2, num_layers=1, tie_weights=tie_weights)
    # 11,200 numbers: one standard error is 0.7 %.
    assert_close(model.tgt_embedding.weight.std().item(), std, rtol=0.05, atol=0.0)


def count_dropouts(monkeypatch, run) -> list[tuple[float, bool]]:
    calls, original = [], F.dropout

    def counted(x, p=0.5, training=True, inplace=False):
        calls.append((p, training))
        return original(x, p, training, inplace)

    monkeypatch.setattr(F, "dropout", counted)
    run()
    return calls


def test_dropout_stands_in_every_place_of_the_paper_and_in_no_other(monkeypatch, sizes, src, tgt):
    model = model_of(sizes, dropout=0.1)
    in_training = count_dropouts(monkeypatch, lambda: model(src, tgt))
    # Two inputs; in an encoder layer one attention, two residuals and one feed-forward layer; in
    # a decoder layer two attentions, three residuals and one feed-forward layer.
    assert in_training == [(0.1, True)] * (2 + 2 * 4 + 2 * 6)

    in_eval = count_dropouts(monkeypatch, lambda: model.eval()(src, tgt))
    assert not any(training and p for p, training in in_eval)


def test_there_is_no_dropout_unless_asked_for(sizes, src, tgt, masks):
    model = model_of(sizes)
    assert torch.equal(model(src, tgt, **masks), model(src, tgt, **masks))
    assert torch.equal(model.eval()(src, tgt, **masks), model.train()(src, tgt, **masks))


def test_dropout_is_off_in_eval(sizes, src, tgt, masks):
    model, without = model_of(sizes, dropout=0.3), model_of(sizes)
    without.load_state_dict(model.state_dict())
    assert not torch.equal(model(src, tgt, **masks), model(src, tgt, **masks))
    assert torch.equal(model.eval()(src, tgt, **masks), without(src, tgt, **masks))


def test_keywords_reach_both_stacks(sizes):
    model = model_of(
        sizes, num_layers=3, norm_first=False, activation="gelu", bias=True, dropout=0.1
    )
    assert model.positional_encoding.dropout.p == 0.1
    for stack in (model.encoder, model.decoder):
        assert len(stack.layers) == 3 and stack.norm is None
        for layer in stack.layers:
            attention = layer.self_attention
            assert (attention.num_heads, attention.d_k, attention.d_v) == (3, 8, 6)
            assert attention.dropout == 0.1
            assert attention.w_o.bias is not None
            assert layer.feed_forward.activation == "gelu"
            assert layer.feed_forward.up.weight.shape == (sizes.d_ff, sizes.d_model)
            assert layer.self_attention_residual.norm_first is False


def test_each_layer_of_both_stacks_starts_on_its_own(sizes):
    model = model_of(sizes)
    matrices = [p for p in (*model.encoder.parameters(), *model.decoder.parameters()) if p.ndim > 1]
    assert len({parameter.data_ptr() for parameter in matrices}) == len(matrices)
    assert len({parameter.flatten()[0].item() for parameter in matrices}) == len(matrices)


def test_d_model_may_be_odd(sizes, src, tgt, masks):
    model = model_of(sizes, d_model=7)
    assert model(src, tgt, **masks).shape == (sizes.batch, sizes.tgt, sizes.tgt_vocab)


def test_single_precision_gives_the_same_numbers_less_exactly(sizes, src, tgt, masks):
    model = model_of(sizes).eval()
    exact = model(src, tgt, **masks)
    single = model.to(torch.float32)(src, tgt, **masks)
    assert single.dtype == torch.float32
    # Seven digits are stored, and a dozen sublayers each round their sums of up to 96 terms.
    assert_close(single.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_a_saved_model_is_loaded_as_it_was(sizes, src, tgt, masks, tie_weights):
    model, fresh = (model_of(sizes, tie_weights=tie_weights) for _ in range(2))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(src, tgt, **masks), model(src, tgt, **masks))
    assert (fresh.output_projection.weight is fresh.tgt_embedding.weight) is tie_weights


@pytest.mark.parametrize("tie_weights", [True, False])
def test_one_table_stays_one_where_memory_is_given_to_a_model_without(sizes, tie_weights):
    model = model_of(sizes, tie_weights=tie_weights, num_layers=1).to("meta")
    for moved in (model.to_empty(device="cpu"), model.to(torch.float32)):
        same = moved.output_projection.weight is moved.tgt_embedding.weight
        assert same == tie_weights


@pytest.mark.parametrize("tied", [True, False])
def test_weights_of_a_model_tied_otherwise_are_refused(sizes, tied):
    saved, other = (model_of(sizes, tie_weights=one, num_layers=1) for one in (tied, not tied))
    before = other.src_embedding.weight.clone()
    message = f"Transformer: tie_weights is {not tied} here and was {tied} where saved"
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(saved.state_dict())
    assert torch.equal(other.src_embedding.weight, before)
    # A part of the weights says nothing about the rest.
    part = {"src_embedding.weight": saved.src_embedding.weight}
    other.load_state_dict(part, strict=False)
    assert torch.equal(other.src_embedding.weight, saved.src_embedding.weight)
