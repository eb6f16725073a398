"""Lesson 18: the decoder-only language model."""

import copy

import oracle
import pytest
import torch
from pairs import pairwise
from torch.testing import assert_close

from twelve import LanguageModel, causal_mask, padding_mask
from twelve.fast import make_fast
from twelve.training import cross_entropy
from twelve_lab import Trace, example

distinct = example.distinct
TIED = pytest.mark.parametrize("tie_weights", [True, False], ids=["tied", "untied"])
SWITCHES = pairwise(num_kv_heads=(1, 2, 3, 6), tie_weights=(True, False))


# Oracle


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_language_model_at_distinct_sizes_equals_numpy(switches):
    model, ids = distinct.language_model(**switches), distinct.text
    with torch.no_grad(), Trace(model, explain=False) as trace:
        model(ids, key_mask=padding_mask(ids))
    expected = oracle.run_decoder_only(
        oracle.weights_of(model), ids.cpu().numpy(), num_heads=6, num_layers=2, base=100.0,
        eps=1e-6, key_mask=oracle.padding_mask(ids.cpu()),
    )  # fmt: skip
    assert set(trace) == set(expected)
    oracle.compare({name: trace[name] for name in expected}, expected)


# Laws


@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (5,), (2, 1, 2), (1, 4)])
@pytest.mark.parametrize("num_kv_heads", [1, 2])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("make", [lambda model: model, make_fast], ids=["plain", "fast"])
def test_language_model_with_kv_caches_equals_one_pass(num_kv_heads, pieces, window, make):
    model, ids = distinct.language_model(num_kv_heads=num_kv_heads), distinct.text
    model.window = window
    plain, model = copy.deepcopy(model), make(model)
    for mask in (None, padding_mask(ids)):
        caches, logits = model.new_caches(*ids.shape), []
        for piece in ids.split(pieces, dim=1):
            stop = caches[0].length + piece.size(1)
            key_mask = None if mask is None else mask[..., :stop]
            logits.append(model(piece, caches=caches, key_mask=key_mask))
        whole = plain(ids, key_mask=mask)
        assert_close(torch.cat(logits, dim=1), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("part", ["layers.1", "layers.1.feed_forward", "norm"])
@pytest.mark.parametrize("call", ["forward", "last_logits"])
def test_interrupted_call_leaves_the_caches_unchanged(part, call):
    model, ids = make_fast(distinct.language_model()), distinct.text
    caches, compute = model.new_caches(2, 5), getattr(model, call)
    compute(ids[:, :2], caches=caches)

    def interrupt(*_):
        raise KeyboardInterrupt

    handle = model.get_submodule(part).register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        compute(ids[:, 2:], caches=caches)
    handle.remove()
    assert [cache.length for cache in caches] == [2, 2]
    logits = compute(ids[:, 2:], caches=caches)
    assert_close(logits, model(ids)[:, -logits.size(1) :])


@pytest.mark.parametrize(("window", "reach"), [(1, 1), (2, 3), (3, 5), (None, 5)])
def test_each_layer_sees_one_window_further_back(window, reach):
    sizes = {"d_model": 24, "num_heads": 3, "num_layers": 2}
    model, ids = LanguageModel(11, **sizes, window=window), distinct.text[1:]
    logits = model(ids)[0, -1]
    changed = [torch.where(torch.arange(5) == position, 10 - ids, ids) for position in range(5)]
    seen = [not torch.equal(model(other)[0, -1], logits) for other in changed]
    assert seen == [position >= 5 - reach for position in range(5)]


def test_bias_and_activation_reach_every_layer():
    sizes = {"d_model": 24, "num_heads": 3, "num_layers": 2}
    model = LanguageModel(11, **sizes, bias=True, activation="gelu_tanh")
    biases = [name for name in model.state_dict() if name.endswith("bias")]
    assert len(biases) == 8 and all("self_attention.w_" in name for name in biases)
    assert {layer.feed_forward.activation for layer in model.layers} == {"gelu_tanh"}


def test_sizes_of_a_language_model_follow_from_d_model_by_default():
    model = LanguageModel(11, d_model=24, num_heads=3, num_layers=2)
    assert model.rotary.table.shape == (2048, 8)
    assert model.layers[0].feed_forward.gate.d_out == 64
    assert model.layers[1].self_attention.num_kv_heads == 3
    assert model.norm.eps == model.layers[1].feed_forward_residual.norm.eps == 1e-5
    assert model.output_projection.bias is None


def test_tied_embedding_gets_both_gradients():
    tied, untied = (example.language_model(tie_weights=tied) for tied in (True, False))
    with torch.no_grad():
        untied.output_projection.weight.copy_(tied.embedding.weight)
    for model in (tied, untied):
        cross_entropy(model(example.src), example.following).backward()
    expected = untied.embedding.weight.grad + untied.output_projection.weight.grad
    assert_close(tied.embedding.weight.grad, expected)


def test_tied_embedding_is_saved_once_and_starts_small():
    sizes = {"d_model": 100, "num_heads": 2, "num_layers": 1}
    tied, untied = (LanguageModel(500, tie_weights=tied, **sizes) for tied in (True, False))
    # With 50,000 weights, the standard error of the standard deviation is 0.3 %.
    assert_close(tied.embedding.weight.std().item(), 0.1, rtol=0.02, atol=0.0)
    assert_close(untied.embedding.weight.std().item(), 1.0, rtol=0.02, atol=0.0)
    with pytest.raises(RuntimeError, match=r"Missing key.*output_projection\.weight"):
        untied.load_state_dict(tied.state_dict())


@TIED
def test_saved_language_model_can_be_loaded_with_a_larger_max_len(tie_weights):
    model = distinct.language_model(tie_weights=tie_weights)
    longer = LanguageModel(
        11, d_model=24, num_heads=6, num_kv_heads=3, d_ff=96, num_layers=2, d_k=8, base=100.0,
        eps=1e-6, tie_weights=tie_weights, max_len=99,
    )  # fmt: skip
    longer.to("meta").to_empty(device=distinct.text.device).load_state_dict(model.state_dict())
    assert torch.equal(longer(distinct.text), model(distinct.text))


def test_assigned_weights_bring_their_dtype_and_device_to_the_table_of_angles():
    model = distinct.language_model()
    other = copy.deepcopy(model).to("meta", torch.bfloat16)
    other.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(other.rotary.table, model.rotary.table)
    assert torch.equal(other(distinct.text), model(distinct.text))


def test_language_model_makes_its_mask_on_the_device_of_the_ids(monkeypatch):
    devices = []

    def record(*lengths: int, device: torch.device | None, **settings) -> torch.Tensor:
        devices.append(device)
        return causal_mask(*lengths)

    monkeypatch.setattr("twelve.decoder_only.causal_mask", record)
    distinct.language_model()(distinct.text)
    assert devices == [distinct.text.device]
