"""Lesson 12: the Transformer. test_oracle and test_same_as_pytorch compare all its numbers."""

import io
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from twelve import LearnedPositionalEncoding, Transformer, causal_mask, padding_mask
from twelve_lab import Trace, example, influence

EITHER_ORDER = pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
TIED = pytest.mark.parametrize("tie_weights", [True, False], ids=["tied", "untied"])


def make_model(sizes, **keywords) -> Transformer:
    defaults = {
        "d_model": sizes.d_model, "num_heads": sizes.heads, "d_ff": sizes.d_ff, "num_layers": 2,
        "d_k": sizes.d_k, "d_v": sizes.d_v, "max_len": 32,
    }  # fmt: skip
    return Transformer(sizes.src_vocab, sizes.tgt_vocab, **defaults | keywords)


@pytest.fixture
def src(sizes, seeded) -> Tensor:
    """Draw source ids whose first sentence is shorter."""
    ids = torch.randint(1, sizes.src_vocab, (sizes.batch, sizes.src), generator=seeded)
    ids[0, 3:] = 0
    return ids


@pytest.fixture
def tgt(sizes, seeded) -> Tensor:
    return torch.randint(1, sizes.tgt_vocab, (sizes.batch, sizes.tgt), generator=seeded)


@pytest.fixture
def masks(sizes, src) -> dict[str, Tensor]:
    return {"src_mask": padding_mask(src), "tgt_mask": causal_mask(sizes.tgt)}


# By hand


def test_base_transformer_of_the_paper_has_the_computed_number_of_parameters(monkeypatch):
    for name in ("normal_", "xavier_uniform_"):  # 45 million random numbers would take a second
        monkeypatch.setattr(nn.init, name, lambda weight, **keywords: weight)
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


@pytest.mark.parametrize("scale", [False, True])
def test_transformer_without_sublayers_projects_the_normed_word_and_position(
    sizes, src, tgt, scale
):
    model = make_model(sizes, scale_embedding=scale)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "w_o" in name or "feed_forward.down" in name:
                parameter.zero_()
    vectors = model.tgt_embedding.weight[tgt] * (math.sqrt(sizes.d_model) if scale else 1.0)
    stream = vectors + model.positional_encoding.table[: sizes.tgt]
    normed = F.layer_norm(stream, (sizes.d_model,))
    assert_close(model(src, tgt), normed @ model.output_projection.weight.T)


def test_influence_in_the_example_is_block_diagonal_and_causal():
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    model = example.model()
    of_tgt = influence(model, example.src, example.tgt, of="tgt", **masks).grid
    assert of_tgt.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    of_src = influence(model, example.src, example.tgt, of="src", **masks).grid
    # The first token of the first sentence is padding.
    assert of_src.int().tolist() == [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


# Laws


@EITHER_ORDER
def test_transformer_encodes_and_then_decodes(sizes, src, tgt, masks, norm_first):
    model = make_model(sizes, norm_first=norm_first)
    memory = model.encode(src, src_mask=masks["src_mask"])
    whole = model(src, tgt, **masks)
    assert torch.equal(model.decode(tgt, memory, **masks), whole)
    for length in range(1, sizes.tgt):
        prefix_masks = masks | {"tgt_mask": causal_mask(length)}
        assert_close(model.decode(tgt[:, :length], memory, **prefix_masks), whole[:, :length])


@EITHER_ORDER
def test_padding_of_the_source_does_not_change_the_logits(sizes, noisy, src, tgt, norm_first):
    model, tgt_mask = noisy(make_model(sizes, norm_first=norm_first)), causal_mask(sizes.tgt)
    expected = model(src, tgt, src_mask=padding_mask(src), tgt_mask=tgt_mask)
    longer = F.pad(src, (0, 4))
    padded = model(longer, tgt, src_mask=padding_mask(longer), tgt_mask=tgt_mask)
    assert_close(padded, expected)
    shorter = model(src[:1, :3], tgt[:1], tgt_mask=tgt_mask)
    assert_close(shorter, expected[:1])


def test_transformer_sees_every_source_word_but_masked_ones(sizes, noisy, src, tgt, masks):
    model = noisy(make_model(sizes))
    before = model(src, tgt, **masks)
    assert torch.equal(model(src.masked_fill(src == 0, 7), tgt, **masks), before)
    for position in range(3):
        changed = src.clone()
        changed[0, position] = src[0, position] % (sizes.src_vocab - 1) + 1
        moved = (model(changed, tgt, **masks) != before).any(-1)
        assert moved.tolist() == [[True] * sizes.tgt, [False] * sizes.tgt]


def test_each_language_has_its_own_embedding(sizes, src, tgt):
    model = make_model(sizes)
    with Trace(model) as trace:
        logits = model(src, tgt)
    assert torch.equal(trace["src_embedding.vectors"].value, model.src_embedding.weight[src])
    assert torch.equal(trace["tgt_embedding.vectors"].value, model.tgt_embedding.weight[tgt])
    assert logits.shape == (sizes.batch, sizes.tgt, sizes.tgt_vocab)


def test_id_0_is_trained_unless_a_mask_hides_it(sizes):
    model = make_model(sizes)
    model(*(torch.arange(n)[None] for n in (sizes.src_vocab, sizes.tgt_vocab))).norm().backward()
    for table in (model.src_embedding, model.tgt_embedding):
        assert table.padding_idx is None
        assert (table.weight != 0.0).all() and table.weight.grad.any(-1).all()


def test_both_languages_share_one_positional_encoding_which_can_be_replaced(sizes, src, tgt, masks):
    model = make_model(sizes)
    assert [name for name, _ in model.named_buffers()] == ["positional_encoding.table"]
    assert model.positional_encoding.max_len == 32
    model.positional_encoding = LearnedPositionalEncoding(sizes.d_model, max_len=32)
    model(src, tgt, **masks).square().sum().backward()
    used = model.positional_encoding.table.grad.any(-1)
    assert used.tolist() == [True] * sizes.src + [False] * (32 - sizes.src)


def test_scaled_embeddings_equal_tables_that_are_root_d_model_times_larger(sizes, src, tgt, masks):
    model, scaled = make_model(sizes), make_model(sizes, scale_embedding=True)
    scaled.load_state_dict(model.state_dict())
    with torch.no_grad():
        model.src_embedding.weight *= math.sqrt(sizes.d_model)
        model.tgt_embedding.weight *= math.sqrt(sizes.d_model)
    assert_close(scaled(src, tgt, **masks), model(src, tgt, **masks))


@TIED
def test_tied_weights_stay_tied_when_the_model_is_moved(sizes, tie_weights):
    model = make_model(sizes, tie_weights=tie_weights, num_layers=1)
    assert (model.output_projection.bias is None) == tie_weights
    names = [name for name, _ in model.named_parameters()]
    assert "tgt_embedding.weight" in names
    assert ("output_projection.weight" in names) != tie_weights
    for moved in (model, model.to("meta"), model.to_empty(device="cpu"), model.to(torch.float32)):
        assert (moved.output_projection.weight is moved.tgt_embedding.weight) == tie_weights


def test_tied_table_gets_both_gradients(sizes, noisy, src, tgt, masks):
    tied, untied = noisy(make_model(sizes, tie_weights=True)), make_model(sizes)
    untied.load_state_dict(tied.state_dict(), strict=False)
    with torch.no_grad():
        untied.output_projection.bias.zero_()
    logits = [model(src, tgt, **masks) for model in (tied, untied)]
    assert_close(*logits)
    for output in logits:
        F.cross_entropy(output.flatten(0, 1), tgt.flatten()).backward()
    lookup, output = untied.tgt_embedding.weight.grad, untied.output_projection.weight.grad
    assert lookup.any() and output.any()
    assert_close(tied.tgt_embedding.weight.grad, lookup + output)


@TIED
@pytest.mark.parametrize("scale", [True, False])
def test_untrained_transformer_has_the_loss_of_a_uniform_guess(seeded, tie_weights, scale):
    model = Transformer(
        50, 40, d_model=24, num_heads=3, num_layers=2, max_len=8,
        tie_weights=tie_weights, scale_embedding=scale,
    )  # fmt: skip
    src, tgt, labels = (torch.randint(0, 40, (16, 8), generator=seeded) for _ in range(3))
    loss = F.cross_entropy(model(src, tgt).flatten(0, 1), labels.flatten())
    # Logits of standard deviation s put the loss s²/2 above ln(vocab), and s starts near 1.
    # Over 20 seeds the loss was 0.1 to 0.8 above; a tied table of deviation 1 adds 12.
    assert math.log(40.0) < loss < math.log(40.0) + 1.0


@pytest.mark.parametrize(("tie_weights", "std"), [(True, 16**-0.5), (False, 1.0)])
def test_tied_table_starts_with_a_smaller_standard_deviation(tie_weights, std):
    model = Transformer(9, 700, d_model=16, num_heads=2, num_layers=1, tie_weights=tie_weights)
    # 11,200 numbers: one standard error is 0.7 %.
    assert_close(model.tgt_embedding.weight.std().item(), std, rtol=0.05, atol=0.0)


def test_transformer_applies_dropout_exactly_where_the_paper_does(monkeypatch, sizes, src, tgt):
    model, calls, original = make_model(sizes, dropout=0.1), [], F.dropout

    def record(x: Tensor, p: float, training: bool = True, inplace: bool = False) -> Tensor:
        calls.append((p, training))
        return original(x, p, training, inplace)

    monkeypatch.setattr(F, "dropout", record)
    model(src, tgt)
    # Two inputs; in an encoder layer one attention, two residuals and one feed-forward layer; in
    # a decoder layer two attentions, three residuals and one feed-forward layer.
    assert calls == [(0.1, True)] * (2 + 2 * 4 + 2 * 6)
    calls.clear()
    model.eval()(src, tgt)
    assert not any(training and p for p, training in calls)


def test_transformer_passes_its_keywords_to_both_stacks(sizes):
    model = make_model(
        sizes, num_layers=3, norm_first=False, activation="gelu", bias=True, dropout=0.1
    )
    assert model.positional_encoding.dropout.p == 0.1
    for stack in (model.encoder, model.decoder):
        assert len(stack.layers) == 3 and stack.norm is None
        for layer in stack.layers:
            attention, feed_forward = layer.self_attention, layer.feed_forward
            assert (attention.num_heads, attention.d_k, attention.d_v) == (3, 8, 6)
            assert (attention.dropout, attention.w_o.bias is None) == (0.1, False)
            assert (feed_forward.activation, feed_forward.up.d_out) == ("gelu", sizes.d_ff)
            assert layer.self_attention_residual.norm_first is False


def test_transformer_accepts_an_odd_d_model(sizes, src, tgt, masks):
    model = make_model(sizes, d_model=7)
    assert model(src, tgt, **masks).shape == (sizes.batch, sizes.tgt, sizes.tgt_vocab)


def test_transformer_in_float32_gives_nearly_the_same_logits(sizes, src, tgt, masks):
    model = make_model(sizes).eval()
    exact = model(src, tgt, **masks)
    single = model.to(torch.float32)(src, tgt, **masks)
    assert single.dtype == torch.float32
    # float32 has seven digits, and a dozen sublayers each round sums of up to 96 terms.
    assert_close(single.double(), exact, rtol=1e-4, atol=1e-5)


@TIED
def test_transformer_can_be_saved_and_loaded(sizes, src, tgt, masks, tie_weights):
    model, loaded = (make_model(sizes, tie_weights=tie_weights) for _ in range(2))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(loaded(src, tgt, **masks), model(src, tgt, **masks))
    assert (loaded.output_projection.weight is loaded.tgt_embedding.weight) is tie_weights


# Errors


@TIED
def test_transformer_rejects_weights_of_a_model_with_other_tie_weights(sizes, tie_weights):
    saved, other = (make_model(sizes, tie_weights=tied) for tied in (tie_weights, not tie_weights))
    before = other.src_embedding.weight.clone()
    with pytest.raises(ValueError) as caught:
        other.load_state_dict(saved.state_dict())
    assert str(caught.value) == (
        f"Transformer: tie_weights must be as in the saved model, got {not tie_weights} here and "
        f"{tie_weights} there"
    )
    assert torch.equal(other.src_embedding.weight, before)
    # A part of the weights does not show whether they are tied.
    part = {"src_embedding.weight": saved.src_embedding.weight}
    other.load_state_dict(part, strict=False)
    assert torch.equal(other.src_embedding.weight, saved.src_embedding.weight)
