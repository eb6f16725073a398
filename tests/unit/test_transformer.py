"""Lesson 12: the Transformer. test_oracle and test_same_as_pytorch compare all its values."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from twelve import (
    LearnedPositionalEncoding,
    PositionalEncoding,
    Transformer,
    causal_mask,
    padding_mask,
)
from twelve_lab import example, influence

EITHER_ORDER = pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
TIED = pytest.mark.parametrize("tie_weights", [True, False], ids=["tied", "untied"])


def make_model(sizes, **keywords) -> Transformer:
    defaults = {
        "d_model": sizes.d_model, "num_heads": sizes.heads, "d_ff": sizes.d_ff, "num_layers": 2,
        "d_k": sizes.d_k, "d_v": sizes.d_v, "max_len": 32,
    }  # fmt: skip
    return Transformer(sizes.src_vocab, sizes.tgt_vocab, **defaults | keywords)


@pytest.fixture
def tgt(sizes, draw_ids) -> Tensor:
    return draw_ids(sizes.tgt_vocab, sizes.batch, sizes.tgt)


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


def test_transformer_and_positional_encoding_have_the_same_default_max_len():
    model = Transformer(3, 3, d_model=2, num_heads=1, num_layers=1)
    assert model.positional_encoding.table.shape == PositionalEncoding(2).table.shape
    assert model.max_len == len(model.positional_encoding.table)


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


def test_transformer_trains_id_0_unless_a_mask_hides_it(sizes):
    model = make_model(sizes)
    model(*(torch.arange(n)[None] for n in (sizes.src_vocab, sizes.tgt_vocab))).norm().backward()
    for table in (model.src_embedding, model.tgt_embedding):
        assert table.padding_idx is None
        assert (table.weight != 0.0).all() and table.weight.grad.any(-1).all()


def test_transformer_shares_one_positional_encoding_which_can_be_replaced(sizes, src, tgt, masks):
    model = make_model(sizes)
    assert [name for name, _ in model.named_buffers()] == ["positional_encoding.table"]
    assert model.positional_encoding.max_len == 32
    model.positional_encoding = LearnedPositionalEncoding(sizes.d_model, max_len=32)
    model(src, tgt, **masks).square().sum().backward()
    used = model.positional_encoding.table.grad.any(-1)
    assert used.tolist() == [True] * sizes.src + [False] * (32 - sizes.src)


@TIED
def test_tied_weights_stay_tied_when_the_model_is_moved(sizes, tie_weights):
    model = make_model(sizes, tie_weights=tie_weights, num_layers=1)
    assert (model.output_projection.bias is None) == tie_weights
    names = [name for name, _ in model.named_parameters()]
    assert "tgt_embedding.weight" in names
    assert ("output_projection.weight" in names) != tie_weights
    model.load_state_dict(model.state_dict())
    assigned = make_model(sizes, tie_weights=tie_weights, num_layers=1)
    assigned.load_state_dict(model.state_dict(), assign=True)
    part = make_model(sizes, tie_weights=tie_weights, num_layers=1)
    whole = nn.ModuleList([part])
    whole.load_state_dict(nn.ModuleList([model]).state_dict(), assign=True)
    on_meta = copy.deepcopy(model).to("meta")
    on_meta.load_state_dict(on_meta.state_dict())
    moves = (
        part,
        on_meta,
        copy.deepcopy(part),
        model,
        model.to("meta"),
        model.to_empty(device="cpu"),
        model.to(torch.float32),
    )
    for moved in (assigned, *moves):
        assert (moved.output_projection.weight is moved.tgt_embedding.weight) == tie_weights


@TIED
def test_weights_of_another_tie_weights_are_refused_before_any_is_copied(sizes, tie_weights):
    model, other = (make_model(sizes, tie_weights=tied) for tied in (tie_weights, not tie_weights))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(ValueError, match=f"must be {not tie_weights} as .*, got {tie_weights}$"):
        model.load_state_dict(other.state_dict())
    assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("assign", [False, True])
def test_two_different_tables_are_refused_where_weights_are_tied(sizes, assign):
    model = make_model(sizes, tie_weights=True)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    saved = before | {"output_projection.weight": before["tgt_embedding.weight"] + 1}
    with pytest.raises(ValueError, match=r"^Transformer: tied weights must be equal, got diff"):
        model.load_state_dict(saved, assign=assign)
    assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)


@TIED
@pytest.mark.parametrize("scale", [True, False])
def test_untrained_transformer_has_the_loss_of_a_uniform_guess(draw_ids, tie_weights, scale):
    model = Transformer(
        50, 40, d_model=24, num_heads=3, num_layers=2, max_len=8,
        tie_weights=tie_weights, scale_embedding=scale,
    )  # fmt: skip
    src, tgt, labels = (draw_ids(40, 16, 8, lowest=0) for _ in range(3))
    loss = F.cross_entropy(model(src, tgt).flatten(0, 1), labels.flatten())
    # Logits with standard deviation s raise the loss to ln(vocab) + s²/2, and s starts near 1.
    # Over 20 seeds, the loss rose by 0.1 to 0.8. A tied embedding with deviation 1 would add 12.
    assert math.log(40.0) < loss < math.log(40.0) + 1.0


def test_transformer_applies_dropout_exactly_where_the_paper_does(monkeypatch, sizes, src, tgt):
    model, calls, original = make_model(sizes, dropout=0.1), [], F.dropout

    def record(x: Tensor, p: float, training: bool = True, inplace: bool = False) -> Tensor:
        calls.append((p, training))
        return original(x, p, training, inplace)

    monkeypatch.setattr(F, "dropout", record)
    model(src, tgt)
    # Two inputs. Each encoder layer has one attention, two residuals and one feed-forward layer.
    # Each decoder layer has two attentions, three residuals and one feed-forward layer.
    assert calls == [(0.1, True)] * (2 + 2 * 4 + 2 * 6)
    calls.clear()
    model.eval()(src, tgt)
    assert not any(training and p for p, training in calls)


def test_transformer_passes_bias_to_every_attention(sizes):
    names = make_model(sizes, bias=True).state_dict()
    assert sum(name.endswith("w_q.bias") for name in names) == 2 + 2 * 2
