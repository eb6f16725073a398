"""make_fast: convert in place to fused kernels, with the same parameters and outputs."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from tests.unit.pairs import pairwise
from twelve import (
    GroupedQueryAttention,
    LayerNorm,
    MultiHeadAttention,
    RMSNorm,
    RotaryEncoding,
    padding_mask,
)
from twelve.fast import FAST, _fast_class, make_fast
from twelve.generation import greedy_decode
from twelve_lab import Trace, example

distinct = example.distinct
EITHER = (True, False)
# Attention classes, with the number of their inputs.
ATTENTIONS = pytest.mark.parametrize(
    ("kind", "count"), [(MultiHeadAttention, 3), (GroupedQueryAttention, 1)]
)


def plain_and_fast(module):
    return module, make_fast(copy.deepcopy(module))


@pytest.mark.parametrize(
    "switches",
    pairwise(norm_first=EITHER, scale_embedding=EITHER, tie_weights=EITHER, num_heads=(2, 3)),
    ids=str,
)
def test_a_fast_transformer_gives_the_same_logits_and_gradients(assert_same, switches):
    plain, fast = plain_and_fast(distinct.model(**switches))
    masks = {"src_mask": distinct.src_mask, "tgt_mask": distinct.tgt_mask}
    ours, theirs = (model(distinct.src, distinct.tgt, **masks) for model in (fast, plain))
    assert_same(ours, theirs, [*fast.parameters()], [*plain.parameters()])


@pytest.mark.parametrize(
    "switches",
    pairwise(num_kv_heads=(1, 2, 3, 6), tie_weights=EITHER, window=(None, 2, 4, 5), masked=EITHER),
    ids=str,
)
def test_a_fast_language_model_gives_the_same_logits_and_gradients(assert_same, switches):
    switches = dict(switches)
    masked, window = switches.pop("masked"), switches.pop("window")
    model = distinct.language_model(**switches)
    model.window = window
    plain, fast = plain_and_fast(model)
    masks = {"key_mask": padding_mask(distinct.text)} if masked else {}
    ours, theirs = (each(distinct.text, **masks) for each in (fast, plain))
    assert_same(ours, theirs, [*fast.parameters()], [*plain.parameters()])


@pytest.mark.parametrize("tie_weights", EITHER)
def test_last_logits_are_those_of_the_last_position(tie_weights):
    fast = make_fast(distinct.language_model(tie_weights=tie_weights))
    with Trace(fast) as trace:
        last = fast.last_logits(distinct.text)
    assert trace["decoder_output"].shape[1] == 1
    assert_close(last, fast(distinct.text)[:, -1:])


def test_generation_with_a_fast_model_writes_the_same_and_scores_one_position(monkeypatch):
    plain, fast = plain_and_fast(distinct.language_model())
    shapes, score = [], fast.compute_logits
    monkeypatch.setattr(fast, "compute_logits", lambda x: shapes.append(x.shape) or score(x))
    expected = greedy_decode(plain, distinct.text, max_len=9)
    assert torch.equal(greedy_decode(fast, distinct.text, max_len=9), expected)
    assert {shape[1] for shape in shapes} == {1}


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_fast_norms_equal_the_plain_ones_in_every_precision(noisy, draw, kind, dtype):
    plain, fast = plain_and_fast(noisy(kind(24)).to(dtype))
    x = (300 * draw(2, 5, 24)).to(dtype)  # squares overflow in float16
    assert_close(fast(x), plain(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("start", [0, 3])
def test_fast_rope_equals_plain_rope(draw, dtype, start):
    plain, fast = plain_and_fast(RotaryEncoding(6, max_len=8).to(dtype))
    heads = draw(2, 5, 3, 6).to(dtype).transpose(1, 2)
    assert_close(fast(heads, start), plain(heads, start))


def test_fast_rope_rejects_positions_outside_its_table():
    with pytest.raises(ValueError, match="must end within max_len=8, got 5 positions"):
        make_fast(RotaryEncoding(6, max_len=8))(torch.zeros(2, 3, 5, 6), 4)


@ATTENTIONS
def test_fast_attention_gives_zeros_where_every_key_is_masked(draw, noisy, kind, count):
    plain, fast = plain_and_fast(noisy(kind(24, 3)))
    inputs, mask = [draw(2, 5, 24)] * count, torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[0, :, 2] = False
    assert_close(fast(*inputs, mask), plain(*inputs, mask))
    assert not fast(*inputs, mask)[0, 2].any()


@ATTENTIONS
def test_fast_attention_drops_weights_in_training_only(draw, kind, count):
    plain, fast = plain_and_fast(kind(24, 3, dropout=0.5))
    inputs = [draw(2, 5, 24)] * count
    assert not torch.allclose(fast.train()(*inputs), plain.eval()(*inputs))
    assert_close(fast.eval()(*inputs), plain.eval()(*inputs))


def test_only_a_causal_mask_alone_is_passed_as_is_causal(monkeypatch):
    flags, kernel = [], F.scaled_dot_product_attention

    def spy(*heads, is_causal, attn_mask, **others):
        flags.append((is_causal, attn_mask is None))
        return kernel(*heads, is_causal=is_causal, attn_mask=attn_mask, **others)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    fast, ids = make_fast(distinct.language_model()), distinct.text
    fast(ids)
    fast(ids, key_mask=padding_mask(ids))
    caches = fast.new_caches(2, 5)
    fast(ids[:, :2], caches=caches)
    fast(ids[:, 2:], caches=caches)  # fewer queries than keys
    assert flags[::2] == [(True, True), (False, False), (True, True), (False, False)]


def test_make_fast_keeps_parameters_names_and_the_module_itself():
    model = distinct.model(tie_weights=True)
    before = copy.deepcopy(model.state_dict())
    parameters = list(model.parameters())
    assert make_fast(model) is model
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert model.output_projection.weight is model.tgt_embedding.weight
    assert list(model.state_dict()) == list(before)
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    kinds = {type(module) for module in model.modules()}
    assert not kinds & {fast.__base__ for fast in FAST}
    assert make_fast(model) is model  # a second call changes nothing


def test_make_fast_packs_all_parameters_into_one_buffer():
    model = make_fast(distinct.language_model())
    starts = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert len(starts) == 1
    assert all(p.data_ptr() % 64 == 0 for p in model.parameters())


def test_a_model_made_fast_in_inference_mode_can_be_trained():
    model = distinct.language_model()
    with torch.inference_mode():
        make_fast(model)
    model(distinct.text).sum().backward()
    assert model.embedding.weight.grad.any()


def test_a_subclass_with_its_own_computation_is_left_alone():
    class Doubled(LayerNorm):
        def forward(self, x):
            return 2 * super().forward(x)

    class Named(LayerNorm):
        pass

    class Repeated(GroupedQueryAttention):
        def _repeat(self, heads):
            return heads.repeat(1, self.num_heads // self.num_kv_heads, 1, 1)

    class Summed(MultiHeadAttention):
        attend = staticmethod(lambda query, key, value, *_: value.sum(2, keepdim=True) + query)

    assert type(make_fast(Doubled(3))) is Doubled
    assert type(make_fast(Repeated(8, 4, 2))) is Repeated
    assert type(make_fast(Summed(8, 4))) is Summed
    named = make_fast(Named(3))
    assert isinstance(named, Named)
    assert type(named).forward is FAST[0].forward


def test_make_fast_refuses_what_is_no_module(unchecked):
    with pytest.raises(ValueError, match=r"make_fast: model must be a torch.nn.Module, got a str"):
        make_fast("model")


@pytest.mark.parametrize("fast", FAST)
def test_making_a_subclass_fast_twice_changes_nothing(fast):
    """The fast class of a subclass inherits from the fast layer and from the subclass."""
    named = type("Named", (fast.__base__,), {})
    once = _fast_class(named)
    assert issubclass(once, fast) and issubclass(once, named)
    assert _fast_class(once) is once and _fast_class(fast) is fast


@pytest.mark.usefixtures("unchecked")
def test_fast_grouped_query_attention_rejects_a_mask_of_other_keys(x):
    mask = torch.ones(2, 1, 1, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="GroupedQueryAttention: mask must broadcast"):
        make_fast(GroupedQueryAttention(24, 3))(x, mask)
