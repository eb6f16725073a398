"""Lesson 14: greedy decoding, sampling and the KV cache."""

import math
import re

import numpy as np
import pytest
import torch
from pairs import pairwise
from torch import Tensor, nn
from torch.testing import assert_close

from twelve import LanguageModel, MultiHeadAttention, causal_mask, padding_mask
from twelve.fast import make_fast
from twelve.generation import (
    CachedDecoder,
    KeyValueCache,
    greedy_decode,
    next_token_probabilities,
    sample,
)
from twelve_lab import example

distinct = example.distinct
ENDS = (3, 11, 0)  # after one word, after five, never
START, MAX_LEN = 1, 9
EITHER = (True, False)
SWITCHES = pairwise(norm_first=EITHER, scale_embedding=EITHER, tie_weights=EITHER)


def make_decoder(model, *, max_len=MAX_LEN) -> CachedDecoder:
    memory = model.encode(distinct.src, src_mask=distinct.src_mask)
    return CachedDecoder(model, memory, max_len=max_len, src_mask=distinct.src_mask)


def one_pass(model, tgt) -> Tensor:
    masks = {"src_mask": distinct.src_mask, "tgt_mask": causal_mask(tgt.size(1))}
    return model(distinct.src, tgt, **masks)


def write(model, src=None, decode=greedy_decode, **keywords) -> Tensor:
    settings = {"start_id": START, "max_len": MAX_LEN}
    src = distinct.src if src is None else src
    if src is distinct.src:
        settings["src_mask"] = distinct.src_mask
    return decode(model, src, **settings | keywords)


def draw(model, src=None, seed=0, **keywords) -> Tensor:
    return write(model, src, sample, seed=seed, **keywords)


# By hand


def test_greedy_decode_pads_a_sentence_that_ends_before_the_longest():
    model = LanguageModel(4, d_model=4, num_heads=1, num_layers=1, max_len=8, d_k=2).eval()
    # After each id, the model predicts the next id of the cycle 0, 1, 2, 3.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.norm.weight.fill_(1.0)
        model.embedding.weight.copy_(100.0 * torch.eye(4))
        model.output_projection.weight.copy_(torch.eye(4).roll(1, 0))
    prompts = torch.tensor([[0, 1], [1, 2]])
    settings = {"max_len": 6, "end_id": 3}
    assert greedy_decode(model, prompts, **settings).tolist() == [[0, 1, 2, 3], [1, 2, 3, 0]]
    assert greedy_decode(model, prompts, **settings, pad_id=2)[1].tolist() == [1, 2, 3, 2]
    assert greedy_decode(model, prompts[1:], **settings).tolist() == [[1, 2, 3]]
    settings["end_id"] = [3, 2]
    assert greedy_decode(model, prompts, **settings).tolist() == [[0, 1, 2], [1, 2, 3]]
    # One seed draws different tokens in different PyTorch releases, so only one is likely here.
    settings |= {"seed": 0, "temperature": 0.01}
    assert sample(model, prompts, **settings).tolist() == [[0, 1, 2], [1, 2, 3]]
    assert greedy_decode(model, prompts[:1], max_len=6).tolist() == [[0, 1, 2, 3, 0, 1]]


# Laws


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (0, 3, 2)])
@pytest.mark.parametrize("make", [lambda model: model, make_fast], ids=["plain", "fast"])
def test_cached_decoder_equals_one_pass(switches, pieces, make):
    model = distinct.model(**switches)
    tgt = torch.tensor([[1, 12, 3, 7, 5], [1, 4, 4, 0, 9]])
    expected = one_pass(model, tgt)
    decoder = make_decoder(make(model))
    steps = [decoder.step(piece) for piece in tgt.split(pieces, dim=1)]
    assert_close(torch.cat(steps, dim=1), expected, rtol=1e-12, atol=1e-12)
    assert decoder.length == 5


@pytest.mark.parametrize("switches", SWITCHES[::3], ids=str)
def test_greedy_decode_writes_the_argmax_of_one_pass(switches):
    model = distinct.model(**switches)
    written = write(model)
    assert written.shape == (2, MAX_LEN)
    assert written[:, 0].tolist() == [START, START]
    assert torch.equal(written[:, 1:], one_pass(model, written).argmax(-1)[:, :-1])


@pytest.mark.parametrize("decode", [write, draw])
def test_decoding_records_no_gradients(decode):
    model, tracked = distinct.model(), []
    for part in (model.encoder, model.output_projection):
        part.register_forward_hook(lambda layer, x, output: tracked.append(output.requires_grad))
    decode(model)
    assert tracked == MAX_LEN * [False]


@pytest.mark.parametrize("end_id", ENDS)
def test_greedy_decode_writes_each_sentence_as_if_alone(end_id):
    model = distinct.model()
    together = write(model, end_id=end_id)
    for row in range(2):
        src, src_mask = distinct.src[row : row + 1], distinct.src_mask[row : row + 1]
        alone = write(model, src, src_mask=src_mask, end_id=end_id)[0]
        assert together[row, : len(alone)].tolist() == alone.tolist()
        assert set(together[row, len(alone) :].tolist()) <= {0}


def test_cached_decoder_projects_keys_and_values_once():
    model, projected = distinct.model(), []

    def count(layer, arguments, output):
        projected.append(output.size(1))

    layer = model.decoder.layers[0]
    for attention in (layer.self_attention, layer.cross_attention):
        attention.w_k.register_forward_hook(count)
        attention.w_v.register_forward_hook(count)
    write(model)
    # Each of eight decoding steps projects one new target position. The first step also projects
    # the five positions of the memory.
    assert projected == [1, 1, 5, 5] + 7 * [1, 1, 0, 0]


def test_next_token_probabilities_apply_temperature_and_top_k():
    logits = torch.tensor([0.0, math.log(4.0), math.log(2.0), math.log(4.0)])
    assert_close(next_token_probabilities(logits), torch.tensor([1.0, 4.0, 2.0, 4.0]) / 11)
    cold = torch.tensor([1.0, 16.0, 4.0, 16.0]) / 37
    assert_close(next_token_probabilities(logits, temperature=0.5), cold)
    best = torch.tensor([0.0, 4.0, 2.0, 4.0]) / 10
    assert_close(next_token_probabilities(logits, top_k=3), best)
    both = torch.tensor([0.0, 16.0, 4.0, 16.0]) / 36
    assert_close(next_token_probabilities(logits, temperature=0.5, top_k=3), both)
    # A tie does not keep more than top_k words.
    assert next_token_probabilities(logits, top_k=1).count_nonzero() == 1


def test_next_token_probabilities_keep_the_fewest_words_that_reach_top_p():
    shares = torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.4, 0.1, 0.2, 0.3]])
    for top_p, kept in [
        (0.01, ([1], [0])), (0.49, ([1], [0, 3])), (0.51, ([1, 3], [0, 3])),
        (0.74, ([1, 3], [0, 3, 2])), (0.76, ([1, 3, 2], [0, 3, 2])), (0.91, (range(4), range(4))),
        (1.0, (range(4), range(4))),
    ]:  # fmt: skip
        probabilities = next_token_probabilities(shares.log(), top_p=top_p)
        expected = torch.zeros(2, 4)
        for row, words in enumerate(kept):
            for word in words:
                expected[row, word] = shares[row, word]
        assert_close(probabilities, expected / expected.sum(-1, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [3e-4, 1e-9, 1e-39, 1e-50])
def test_next_token_probabilities_at_a_tiny_temperature_are_greedy(dtype, temperature):
    logits = torch.tensor([28.25, 28.5, -3.0], dtype=dtype)
    probabilities = next_token_probabilities(logits, temperature=temperature)
    assert probabilities.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_top_p_keeps_the_same_words_in_every_dtype(dtype):
    logits = torch.linspace(0.0, 3.0, 5000).to(dtype)
    for top_p in (1e-300, 1e-8, 0.5, 0.9, 1.0):
        expected = next_token_probabilities(logits.double(), top_p=top_p) > 0
        assert torch.equal(next_token_probabilities(logits, top_p=top_p) > 0, expected)
    assert expected.all()
    # The probability mass before the second word rounds to 1.
    assert next_token_probabilities(torch.tensor([0.0, -50.0]), top_p=1.0).all()


def test_sample_with_one_word_left_equals_greedy_decode():
    model = distinct.model()
    expected = write(model)
    for keywords in ({"top_k": 1}, {"temperature": 1e-9}, {"top_p": 1e-9}):
        assert torch.equal(draw(model, **keywords), expected)


def test_sample_repeats_with_its_seed_and_leaves_the_random_state_of_torch(unchecked):
    model, before = distinct.model(), torch.get_rng_state()
    first = draw(model, seed=3)
    all_words = {"top_k": 13, "temperature": 1.0}
    assert torch.equal(draw(model, seed=np.int64(3), **all_words), first)
    assert not torch.equal(draw(model, seed=4), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_sample_draws_words_as_often_as_their_probability():
    model = distinct.model()
    src = distinct.src[1:].expand(1000, -1)
    words = draw(model, src, max_len=2, top_k=5, temperature=2.0)[:, 1]
    logits = model(src[:1], torch.tensor([[START]]))[0, -1]
    expected = next_token_probabilities(logits, temperature=2.0, top_k=5)
    # Four standard errors of a proportion in 1,000 draws are at most 0.064.
    share = words.bincount(minlength=13) / 1000
    assert_close(share, expected, rtol=0.0, atol=0.064)
    assert (share[expected == 0] == 0).all()


def test_greedy_decode_keeps_the_integer_type_of_the_source():
    assert write(distinct.model(), distinct.src.int()).dtype == torch.int32


@pytest.mark.parametrize("first", [0, 2])
def test_interrupted_step_of_cached_decoder_changes_nothing(first):
    model, tgt = distinct.model(), torch.tensor([[1, 12, 3], [1, 4, 4]])
    decoder = make_decoder(model)
    steps = [decoder.step(tgt[:, :first])] if first else []

    def interrupt(*_):
        raise KeyboardInterrupt

    # By then, the earlier layers have already extended their caches.
    handle = model.decoder.layers[-1].feed_forward.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        decoder.step(tgt[:, first : first + 1])
    handle.remove()
    assert decoder.length == first
    steps += [decoder.step(piece) for piece in tgt[:, first:].split(1, dim=1)]
    assert_close(torch.cat(steps, dim=1), one_pass(model, tgt), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("decode", [write, draw])
def test_decoding_raises_an_error_if_logits_are_nan_or_inf(decode, value):
    model = distinct.model()
    with torch.no_grad():
        model.output_projection.bias[3] = value
    text = r"(greedy_decode|sample): the logits of the model contain NaN or inf"
    with pytest.raises(FloatingPointError, match=text):
        decode(model)


PROMPT_MASK = padding_mask(distinct.text)  # the first prompt is padded on the left


@pytest.mark.parametrize("end_id", (7, None))
def test_language_model_continues_each_prompt_as_if_alone(end_id):
    model = distinct.language_model(num_kv_heads=2)
    settings = {"end_id": end_id, "pad_id": 3}
    together = greedy_decode(model, distinct.text, src_mask=PROMPT_MASK, max_len=12, **settings)
    assert torch.equal(together[:, :5], distinct.text)
    for row, start in enumerate((2, 0)):
        prompt = distinct.text[row : row + 1, start:]
        alone = greedy_decode(model, prompt, max_len=12 - start, **settings)[0]
        assert together[row, start : start + len(alone)].tolist() == alone.tolist()
        assert set(together[row, start + len(alone) :].tolist()) <= {3}


def test_language_model_reads_its_prompt_at_once_and_then_word_by_word():
    model, lengths = distinct.language_model(), []
    model.layers[0].self_attention.w_k.register_forward_hook(
        lambda layer, inputs, output: lengths.append(output.size(1))
    )
    greedy_decode(model, distinct.text, max_len=9)
    assert lengths == [5, 1, 1, 1]


def test_cache_of_inference_mode_can_be_used_outside_of_it():
    model, ids = distinct.language_model(), distinct.text
    with torch.inference_mode():
        caches = model.new_caches(*ids.shape)
        model(ids[:, :2], caches=caches)
    assert_close(model(ids[:, 2:], caches=caches), model(ids)[:, 2:])


# Errors


def make_cache() -> KeyValueCache:
    return KeyValueCache(MultiHeadAttention(24, 3, d_k=8, d_v=6), 2, 3)


def step(*positions: int, tgt: Tensor | None = None, **settings: int) -> None:
    """Call `step` with the first n positions of tgt, for each n in `positions`."""
    decoder = make_decoder(distinct.model(), **settings)
    for count in positions:
        decoder.step((distinct.tgt if tgt is None else tgt)[:, :count])


def continue_prompt(src=distinct.text, max_len=9, **keywords) -> Tensor:
    return greedy_decode(distinct.language_model(), src, max_len=max_len, **keywords)


def partly_trained(model: nn.Module) -> nn.Module:
    """Switch one layer of a model to training mode, and return the model."""
    model.encoder.layers[1].train()
    return model


heads, logits = torch.ones, torch.zeros(2, 3)
# Each call, followed by its error message on indented lines.
TABLE = """\
# ids
write(model, start_id=13)
    greedy_decode: start_id must be an integer from 0 to 12 (the vocabulary), got 13
write(model, start_id=None)
    greedy_decode: start_id must be an id for a Transformer, got None
continue_prompt(start_id=1)
    greedy_decode: start_id must be None for a decoder-only model, got 1
write(model, end_id=(1, 13))
    greedy_decode: end_id must be an integer from 0 to 12 (the vocabulary), got 13
draw(model, pad_id=2.0)
    sample: pad_id must be an integer, got 2.0
# max_len
write(model, max_len=33)
    greedy_decode: max_len must be an integer from 2 to 32 (max_len of the model), got 33
continue_prompt(max_len=5)
    greedy_decode: max_len must be an integer from 6 to 32 (max_len of the model), got 5
step(max_len=0)
    KeyValueCache: max_len must be an integer of at least 1, got 0
step(2, 2, max_len=3)
    KeyValueCache: shapes must be equal, got key_heads has (2, 3, 2, 8), room has (2, 3, 1, 8)
# sampling
draw(model, temperature=0.0)
    sample: temperature must be above 0 and finite, got 0.0
draw(model, top_k=14)
    sample: top_k must be an integer from 1 to 13 (vocab_size), got 14
draw(model, top_p=0.0)
    sample: top_p must be above 0 and at most 1, got 0.0
draw(model, top_p=1.5)
    sample: top_p must be above 0 and at most 1, got 1.5
draw(model, top_p=True)
    sample: top_p must be above 0 and at most 1, got True
draw(model, seed=2**64)
    sample: seed must be an integer from -9223372036854775808 to 18446744073709551615 (64 bits),
    got 18446744073709551616
draw(model, seed="0")
    sample: seed must be an integer, got '0'
next_token_probabilities(logits.long())
    next_token_probabilities: logits must be a floating-point tensor, got torch.int64 in shape (2,
    3)
# source and prompt
write(model, src=torch.ones(2, 0).long())
    greedy_decode: src_len must be an integer of at least 1, got 0
write(model, src=torch.ones(0, 5).long())
    greedy_decode: batch must be an integer of at least 1, got 0
write(model, src=[[1, 2]])
    greedy_decode: src must be a tensor of int64 or int32 ids, got a list
continue_prompt(src_mask=PROMPT_MASK.expand(-1, -1, 2, -1))
    LanguageModel: src_mask must broadcast to (batch, head, query, key) (2, 1, 1, 5), got shape
    (2, 1, 2, 5)
continue_prompt(src=distinct.src, src_mask=distinct.src_mask)
    LanguageModel: src_mask must be True at the last position, got False in prompts [0]; pad
    prompts on the left
# training mode
write(partly_trained(model))
    greedy_decode: the model must be in eval mode, because dropout would change its output; call
    model.eval() first
make_decoder(model.train())
    CachedDecoder: the model must be in eval mode, because dropout would change its output; call
    model.eval() first
# steps and caches
CachedDecoder(model, torch.zeros(2, 24), max_len=3)
    CachedDecoder: memory must have the axes (batch, src, d_model), got shape (2, 24)
CachedDecoder(model, torch.zeros(2, 5, 23), max_len=3)
    CachedDecoder: d_model must be equal, got model has 24, memory has 23
step(1, tgt=torch.zeros(2, 1))
    CachedDecoder: tgt must be a tensor of int64 or int32 ids, got torch.float64 in shape (2, 1)
make_cache()(heads(1, 3, 1, 8), heads(1, 3, 1, 6))
    KeyValueCache: shapes must be equal, got key_heads has (1, 3, 1, 8), room has (2, 3, 1, 8)
make_cache()(heads(2, 3, 1, 8), heads(2, 3, 1, 1))
    KeyValueCache: shapes must be equal, got value_heads has (2, 3, 1, 1), room has (2, 3, 1, 6)
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"), re.findall(r"^([^#\s].*)((?:\n    .+)+)", TABLE, re.MULTILINE)
)
def test_invalid_argument_of_generation_is_named_with_its_numbers(call, message):
    with pytest.raises(ValueError) as caught:
        eval(call, globals() | {"model": distinct.model()})
    assert str(caught.value) == " ".join(message.split())
