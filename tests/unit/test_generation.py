"""Step 14: the model writes a sentence, one token after the other."""

import inspect
import math
from functools import partial

import pytest
import torch
from pairs import pairwise
from torch.testing import assert_close

from twelve import LanguageModel, MultiHeadAttention, Transformer, causal_mask, padding_mask
from twelve.generation import (
    CachedDecoder,
    KeyValueCache,
    greedy_decode,
    next_token_probabilities,
    sample,
)
from twelve_lab import Trace, example

companion = example.distinct
ENDS = (3, 11, 0, 1)  # after one word, after five, never
START, END, MAX_LEN = 1, 2, 9
EITHER = (True, False)
SWITCHES = pairwise(norm_first=EITHER, scale_embedding=EITHER, tie_weights=EITHER)


def cached(model, memory=None, *, max_len=MAX_LEN) -> CachedDecoder:
    """Hold the companion's source sentence in a decoder that has written nothing yet."""
    if memory is None:
        memory = model.encode(companion.src, src_mask=companion.src_mask)
    return CachedDecoder(model, memory, max_len=max_len, src_mask=companion.src_mask)


def one_pass(model, tgt) -> torch.Tensor:
    masks = {"src_mask": companion.src_mask, "tgt_mask": causal_mask(tgt.size(1))}
    return model(companion.src, tgt, **masks)


def write(model, **keywords) -> torch.Tensor:
    settings = {"start_id": START, "max_len": MAX_LEN, "src_mask": companion.src_mask}
    return greedy_decode(model, companion.src, **{**settings, **keywords})


def draw_words(model, **keywords) -> torch.Tensor:
    settings = {"start_id": START, "max_len": MAX_LEN, "src_mask": companion.src_mask, "seed": 0}
    return sample(model, companion.src, **{**settings, **keywords})


@pytest.fixture
def chain() -> Transformer:
    """Build a model of four words whose scores only depend on the last word: 0, 1, 2, 3, 0, ..."""
    model = Transformer(4, 4, d_model=4, num_heads=1, d_ff=4, num_layers=1, max_len=8).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.decoder.norm.weight.fill_(1.0)
        model.tgt_embedding.weight.copy_(100.0 * torch.eye(4))
        model.output_projection.weight.copy_(torch.eye(4).roll(1, 0))
    return model


def test_a_model_that_counts_writes_what_comes_next(chain):
    src = torch.tensor([[1]])
    assert greedy_decode(chain, src, start_id=0, max_len=6).tolist() == [[0, 1, 2, 3, 0, 1]]


def test_a_sentence_stops_at_its_end_and_is_filled_up_while_the_other_goes_on():
    # Every sentence of this model is its source, word for word: cross-attention looks at the
    # memory of the same position and nothing else is added.
    width = 8
    model = Transformer(width, width, d_model=width, num_heads=1, d_ff=1, num_layers=1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.positional_encoding.table.zero_()
        model.positional_encoding.table[:4, :4] = 50.0 * torch.eye(4)
        model.src_embedding.weight[4:, 4:] = 50.0 * torch.eye(4)
        layer, attention = model.decoder.layers[0], model.decoder.layers[0].cross_attention
        for norm in (layer.cross_attention_residual.norm, model.encoder.norm, model.decoder.norm):
            norm.weight.fill_(1.0)
        for name in ("w_q", "w_k"):
            getattr(attention, name).weight[:4, :4] = 50.0 * torch.eye(4)
        for name in ("w_v", "w_o"):
            getattr(attention, name).weight[4:, 4:] = 50.0 * torch.eye(4)
        model.output_projection.weight[4:, 4:] = torch.eye(4)
    src = torch.tensor([[4, 7, 5, 6], [5, 4, 6, 7]])
    # 7 is the end: sentence 0 ends after two words, sentence 1 after four.
    expected = [[0, 4, 7, 0, 0], [0, 5, 4, 6, 7]]
    settings = {"start_id": 0, "end_id": 7, "max_len": 5}
    assert greedy_decode(model, src, **settings).tolist() == expected
    assert greedy_decode(model, src, **settings | {"pad_id": 3})[0, 3:].tolist() == [3, 3]
    shorter = greedy_decode(model, src[:1], **settings)
    assert shorter.tolist() == [[0, 4, 7]]
    without_end = greedy_decode(model, src[:1], **settings | {"end_id": None})
    assert without_end.tolist() == [[0, 4, 7, 5, 6]]


def test_the_twelve_numbers_write_the_word_with_the_highest_score():
    model = example.model()
    written = greedy_decode(model, example.src, start_id=0, max_len=5, src_mask=example.src_mask)
    logits = model(
        example.src, written, src_mask=example.src_mask, tgt_mask=causal_mask(written.size(1))
    )
    assert written.shape == (2, 5)
    assert written[:, 0].tolist() == [0, 0]
    assert written[:, 1:].tolist() == logits.argmax(-1)[:, :-1].tolist()


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (5,), (2, 1, 2), (1, 4)])
def test_step_by_step_equals_one_pass(switches, pieces):
    model = companion.model(**switches)
    tgt = torch.tensor([[1, 12, 3, 7, 5], [1, 4, 4, 0, 9]])
    decoder = cached(model)
    steps = [decoder.step(piece) for piece in tgt.split(pieces, dim=1)]
    assert_close(torch.cat(steps, dim=1), one_pass(model, tgt), rtol=1e-12, atol=1e-12)
    assert decoder.length == 5


@pytest.mark.parametrize("switches", SWITCHES[::2], ids=str)
def test_greedy_ids_are_those_of_the_highest_score_in_one_pass(switches):
    model = companion.model(**switches)
    written = write(model)
    assert written.shape == (2, MAX_LEN)
    assert written[:, 0].tolist() == [START, START]
    assert torch.equal(written[:, 1:], one_pass(model, written).argmax(-1)[:, :-1])


@pytest.mark.parametrize("decode", [write, draw_words])
def test_no_graph_is_kept(decode):
    model, tracked = companion.model(), []
    for part in (model.encoder, model.output_projection):
        part.register_forward_hook(lambda layer, x, output: tracked.append(output.requires_grad))
    decode(model)
    assert tracked == MAX_LEN * [False]


@pytest.mark.parametrize("end_id", ENDS)
def test_a_sentence_in_company_is_the_sentence_alone(end_id):
    model = companion.model()
    together = write(model, end_id=end_id)
    for row in range(2):
        keywords = {"src_mask": companion.src_mask[row : row + 1], "end_id": end_id}
        src = companion.src[row : row + 1]
        alone = greedy_decode(model, src, start_id=START, max_len=MAX_LEN, **keywords)[0]
        assert together[row, : len(alone)].tolist() == alone.tolist()
        assert set(together[row, len(alone) :].tolist()) <= {0}


def test_a_longer_limit_only_writes_on():
    model = companion.model()
    assert torch.equal(write(model, max_len=MAX_LEN)[:, :4], write(model, max_len=4))


def test_padding_at_the_end_of_the_source_changes_nothing():
    model = companion.model()
    src = companion.src[:1, :3]
    settings = {"start_id": START, "max_len": MAX_LEN}
    padded = torch.cat([src, torch.zeros(1, 4, dtype=torch.int64)], dim=1)
    alone = greedy_decode(model, src, src_mask=padding_mask(src), **settings)
    assert torch.equal(
        greedy_decode(model, padded, src_mask=padding_mask(padded), **settings), alone
    )


def test_keys_and_values_are_computed_once():
    model, projected = companion.model(), []

    def count(layer, arguments, output):
        projected.append(output.size(1))

    layer = model.decoder.layers[0]
    handles = [
        projection.register_forward_hook(count)
        for attention in (layer.self_attention, layer.cross_attention)
        for projection in (attention.w_k, attention.w_v)
    ]
    write(model)
    for handle in handles:
        handle.remove()
    # Eight steps: in each one new position of self-attention, of memory five in the first alone.
    assert projected == [1, 1, 5, 5] + 7 * [1, 1, 0, 0]


def test_the_caches_hold_what_their_sizes_say(sizes):
    decoder = cached(companion.model())
    room = sizes.batch, sizes.heads
    for caches, places in ((decoder.self_caches, MAX_LEN), (decoder.cross_caches, sizes.src)):
        assert [one.keys.shape for one in caches] == [(*room, places, sizes.d_k)] * 2
        assert [one.values.shape for one in caches] == [(*room, places, sizes.d_v)] * 2
    places = [cache.keys.data_ptr() for cache in decoder.self_caches]
    decoder.step(companion.tgt)
    assert places == [cache.keys.data_ptr() for cache in decoder.self_caches]


def test_a_cache_gives_back_all_so_far_and_keeps_precision(sizes, draw):
    attention = MultiHeadAttention(sizes.d_model, sizes.heads, d_k=sizes.d_k, d_v=sizes.d_v)
    cache = KeyValueCache(attention.to(torch.float32), sizes.batch, 3)
    keys = draw(sizes.batch, sizes.heads, 3, sizes.d_k).float()
    values = draw(sizes.batch, sizes.heads, 3, sizes.d_v).float()
    for stop in (1, 3):
        start = cache.length
        held = cache(keys[:, :, start:stop], values[:, :, start:stop])
        assert torch.equal(held[0], keys[:, :, :stop]) and torch.equal(held[1], values[:, :, :stop])
    assert cache(keys[:, :, :0], values[:, :, :0])[0].dtype == torch.float32
    assert cache.length == 3


def test_the_attention_of_a_cached_step_can_be_traced_and_explained():
    model = example.model()
    with torch.no_grad(), Trace(model) as trace:
        decoder = CachedDecoder(
            model, model.encode(example.src, src_mask=example.src_mask), max_len=2,
            src_mask=example.src_mask,
        )  # fmt: skip
        decoder.step(example.tgt[:, :1])
        decoder.step(example.tgt[:, 1:])
    whole = example.trace(on="cpu")
    for name in ("self_attention", "cross_attention"):
        weights = f"decoder.layers.0.{name}#2.weights"
        assert_close(trace[weights].value, whole[weights.replace("#2", "")].value[:, :, 1:])
    scores = trace["decoder.layers.0.self_attention#2.scores"].explain(1, 2, 0, 0)
    assert "decoder.layers.0.self_attention.key_heads" in str(scores)
    assert_close(torch.tensor(eval(scores.expression)), torch.tensor(scores.value))


def test_probabilities_are_those_of_softmax_over_the_best_words():
    logits = torch.tensor([0.0, math.log(4.0), math.log(2.0), math.log(4.0)])
    assert_close(next_token_probabilities(logits), torch.tensor([1.0, 4.0, 2.0, 4.0]) / 11)
    cold = torch.tensor([1.0, 16.0, 4.0, 16.0]) / 37
    assert_close(next_token_probabilities(logits, temperature=0.5), cold)
    best = torch.tensor([0.0, 4.0, 2.0, 4.0]) / 10
    assert_close(next_token_probabilities(logits, top_k=3), best)
    both = torch.tensor([0.0, 16.0, 4.0, 16.0]) / 36
    assert_close(next_token_probabilities(logits, temperature=0.5, top_k=3), both)
    # Of two words with the same score one is kept: never more than top_k.
    assert next_token_probabilities(logits, top_k=1).count_nonzero() == 1


def test_as_few_of_the_likeliest_words_are_kept_as_sum_to_top_p():
    shares = torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.4, 0.1, 0.2, 0.3]])
    for top_p, kept in [
        (0.01, ([1], [0])), (0.49, ([1], [0, 3])), (0.51, ([1, 3], [0, 3])),
        (0.74, ([1, 3], [0, 3, 2])), (0.76, ([1, 3, 2], [0, 3, 2])), (0.91, (range(4), range(4))),
        (1.0, (range(4), range(4))),
    ]:  # fmt: skip
        found = next_token_probabilities(shares.log(), top_p=top_p)
        expected = torch.zeros(2, 4)
        for row, words in enumerate(kept):
            for word in words:
                expected[row, word] = shares[row, word]
        assert_close(found, expected / expected.sum(-1, keepdim=True))


def test_top_p_is_asked_of_what_top_k_and_the_temperature_left():
    logits = torch.tensor([0.1, 0.5, 0.15, 0.25]).log()
    # Of the best two, 2/3 and 1/3, the first alone reaches 0.6.
    found = next_token_probabilities(logits, top_k=2, top_p=0.6)
    assert_close(found, torch.tensor([0.0, 1.0, 0.0, 0.0]))
    # Cold, 100 : 25 : 9 : 4 of 138: the first alone reaches 0.7.
    found = next_token_probabilities(logits, temperature=0.5, top_p=0.7)
    assert_close(found, torch.tensor([0.0, 1.0, 0.0, 0.0]))


def test_one_word_to_draw_from_is_the_greedy_word():
    model = companion.model()
    assert torch.equal(draw_words(model, top_k=1, end_id=END), write(model, end_id=END))
    assert torch.equal(draw_words(model, temperature=1e-9), write(model))
    assert torch.equal(draw_words(model, top_p=1e-9), write(model))


def test_a_seed_draws_the_same_sentences_and_another_seed_others():
    model = companion.model()
    first = draw_words(model, seed=3)
    assert torch.equal(draw_words(model, seed=3), first)
    assert not torch.equal(draw_words(model, seed=4), first)


def test_words_are_drawn_from_the_scores_of_one_pass():
    model, scores = companion.model(), []
    model.output_projection.register_forward_hook(
        lambda layer, x, logits: scores.append(logits[:, -1])
    )
    whole = one_pass(model, draw_words(model)[:, :-1])
    kept = torch.stack(scores[: MAX_LEN - 1], dim=1)
    assert_close(kept, whole, rtol=1e-12, atol=1e-12)


def test_sampling_leaves_the_random_state_of_torch_alone():
    model, before = companion.model(), torch.get_rng_state()
    draw_words(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_words_are_drawn_as_often_as_their_probability_says():
    model = companion.model()
    src = companion.src[1:].expand(4000, -1)
    words = sample(model, src, start_id=START, max_len=2, seed=0, top_k=5, temperature=2.0)[:, 1]
    logits = model(src[:1], torch.tensor([[START]]))[0, -1]
    expected = next_token_probabilities(logits, temperature=2.0, top_k=5)
    # Four standard deviations of a share of 4,000 draws are at most 0.032.
    share = words.bincount(minlength=13) / 4000
    assert_close(share, expected, rtol=0.0, atol=0.032)
    assert (share[expected == 0] == 0).all()


def test_integer_types_of_the_source_are_kept():
    written = greedy_decode(
        companion.model(), companion.src.int(), start_id=START, max_len=4,
        src_mask=companion.src_mask,
    )  # fmt: skip
    assert written.dtype == torch.int32


@pytest.mark.parametrize("decode", [write, draw_words])
@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"start_id": 13}, r"start_id must lie from 0 to 12 \(the target vocabulary\), got 13"),
        ({"start_id": -1}, r"start_id must lie from 0 to 12 .*, got -1"),
        ({"end_id": 13}, r"end_id must lie from 0 to 12 .*, got 13"),
        ({"pad_id": 99}, r"pad_id must lie from 0 to 12 .*, got 99"),
        (
            {"max_len": 33},
            r"max_len must lie from 2 to 32 \(the model's table of positions\), got 33",
        ),
        ({"max_len": 1}, r"max_len must lie from 2 to 32 .*, got 1"),
    ],
    ids=str,
)
def test_bad_input_is_refused_with_names_and_numbers(decode, keywords, message):
    with pytest.raises(ValueError, match=message):
        decode(companion.model(), **keywords)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"temperature": 0.0}, r"temperature must be above 0 and finite, got 0.0"),
        ({"temperature": math.inf}, r"temperature must be above 0 and finite, got inf"),
        ({"temperature": math.nan}, r"temperature must be above 0 and finite, got nan"),
        ({"top_k": 0}, r"top_k must lie from 1 to 13 \(the words there are\), got 0"),
        ({"top_k": 14}, r"top_k must lie from 1 to 13 \(the words there are\), got 14"),
        ({"top_p": 0.0}, r"top_p must be above 0 and at most 1, got 0\.0"),
        ({"top_p": 1.5}, r"top_p must be above 0 and at most 1, got 1\.5"),
        ({"top_p": math.nan}, r"top_p must be above 0 and at most 1, got nan"),
    ],
    ids=str,
)
def test_bad_settings_of_sampling_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        draw_words(companion.model(), **keywords)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("shape", "empty"), [((2, 0), "src_len"), ((0, 5), "batch")], ids=str)
def test_an_empty_source_is_refused(shape, empty):
    src = torch.ones(shape, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"{empty} must be a whole number of at least 1, got 0"):
        greedy_decode(companion.model(), src, start_id=START, max_len=3)


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(
        ValueError,
        match=r"greedy_decode: .* in training mode, .*; call model\.eval",
    ):
        write(companion.model().train())
    with pytest.raises(ValueError, match=r"CachedDecoder: the model is in training mode"):
        cached(companion.model().train(), torch.zeros(2, 5, 24))


def test_a_cache_refuses_more_positions_than_it_has_room_for():
    decoder = cached(companion.model(), max_len=3)
    decoder.step(companion.tgt[:, :2])
    with pytest.raises(ValueError, match=r"key_heads has \(2, 3, 2, 8\), room has \(2, 3, 1, 8\)"):
        decoder.step(companion.tgt[:, 2:])
    for outside in (0, 33):
        with pytest.raises(
            ValueError, match=f"CachedDecoder: max_len must lie from 1 .* {outside}"
        ):
            cached(companion.model(), max_len=outside)
    with pytest.raises(ValueError, match=r"CachedDecoder: new must be a whole number of at least"):
        decoder.step(companion.tgt[:, :0])


def test_a_mask_must_cover_the_keys_of_the_cache_too():
    attention = companion.model().decoder.layers[0].self_attention
    cache, x = KeyValueCache(attention, 2, 4), torch.zeros(2, 2, 24)
    attention(x, x, x, cache=cache)
    with pytest.raises(ValueError, match=r"mask of shape \(1, 1, 2, 2\) does not broadcast"):
        attention(x, x, x, causal_mask(2), cache=cache)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("name", "value"), [("start_id", None), ("pad_id", None), ("end_id", 2.0)])
def test_an_id_that_is_no_whole_number_is_refused(name, value):
    with pytest.raises(ValueError, match=f"greedy_decode: {name} must lie .* got {value}"):
        write(companion.model(), **{name: value})


@pytest.mark.usefixtures("unchecked")
def test_a_source_that_is_no_tensor_is_refused():
    with pytest.raises(ValueError, match="src must be int64 or int32 token ids, got a list"):
        greedy_decode(companion.model(), [[1, 2]], start_id=START, max_len=3)


@pytest.mark.usefixtures("unchecked")
def test_a_step_of_no_ids_is_refused():
    with pytest.raises(ValueError, match=r"CachedDecoder: tgt must be int64 or int32 token ids"):
        cached(companion.model()).step(torch.zeros(2, 1))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("failure", ["refused", "interrupted"])
def test_a_step_happens_wholly_or_not_at_all(first, failure):
    model, tgt = companion.model(), torch.tensor([[1, 12, 3], [1, 4, 4]])
    decoder = cached(model)
    steps = [decoder.step(tgt[:, :first])] if first else []
    if failure == "refused":
        with pytest.raises(ValueError, match=r"shape: key_heads has .*, room has \(2, 3, 1, 8\)"):
            decoder.step(tgt[:1, first : first + 1])
    else:

        def interrupt(*_):
            raise KeyboardInterrupt

        # The caches before this part are longer by now.
        handle = model.decoder.layers[-1].feed_forward.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            decoder.step(tgt[:, first : first + 1])
        handle.remove()
    assert decoder.length == first
    steps += [decoder.step(piece) for piece in tgt[:, first:].split(1, dim=1)]
    assert_close(torch.cat(steps, dim=1), one_pass(model, tgt), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        ((1, 3, 1, 8), (1, 3, 1, 6), r"the shape: key_heads has .*, room has \(2, 3, 1, 8\)"),
        ((2, 3, 2, 8), (2, 3, 1, 6), r"the shape: value_heads has .*, room has \(2, 3, 2, 6\)"),
        ((2, 1, 1, 8), (2, 3, 1, 6), r"the shape: key_heads has .*, room has \(2, 3, 1, 8\)"),
        ((2, 3, 1, 8), (2, 3, 1, 1), r"the shape: value_heads has .*, room has \(2, 3, 1, 6\)"),
    ],
    ids=str,
)
def test_a_cache_takes_only_what_fills_its_places(sizes, keys, values, message):
    attention = MultiHeadAttention(sizes.d_model, sizes.heads, d_k=sizes.d_k, d_v=sizes.d_v)
    cache = KeyValueCache(attention, sizes.batch, 3)
    with pytest.raises(ValueError, match=message):
        cache(torch.ones(keys), torch.ones(values))
    assert cache.length == 0 and not cache.keys.any()


@pytest.mark.parametrize("decode", [write, draw_words])
def test_no_word_is_chosen_from_nan(decode):
    model = companion.model()
    with torch.no_grad():
        model.output_projection.bias[3] = math.nan
    with pytest.raises(FloatingPointError, match=r"(greedy_decode|sample): the model gives NaN"):
        decode(model)


def test_the_longest_sentence_fills_the_table_and_every_word_may_be_drawn():
    model = companion.model()
    assert write(model, max_len=32).shape == (2, 32)
    assert torch.equal(draw_words(model, top_k=13), draw_words(model))


@pytest.mark.parametrize("decode", [greedy_decode, sample])
def test_what_is_not_said_is_what_the_documentation_says(decode):
    found = {name: one.default for name, one in inspect.signature(decode).parameters.items()}
    defaults = {"end_id": None, "pad_id": 0, "src_mask": None}
    defaults |= {"temperature": 1.0, "top_k": None} if decode is sample else {}
    assert {name: found[name] for name in defaults} == defaults


@pytest.mark.parametrize("decode", [greedy_decode, sample])
def test_everything_is_made_where_the_source_is(monkeypatch, decode):
    # No numbers on this device, so none can be NaN; what is left behind on the CPU raises.
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda one: False)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda one: torch.ones(one.shape))
    made = []

    def watched(*sizes, device=None):
        made.append(device)
        return causal_mask(*sizes, device=device)

    monkeypatch.setattr("twelve.generation.causal_mask", watched)
    model, src = companion.model().to("meta"), companion.src.to("meta")
    seed = {"seed": 0} if decode is sample else {}
    written = decode(model, src, start_id=START, max_len=4, **seed)
    assert written.device.type == "meta"
    CachedDecoder(model, model.encode(src), max_len=4).step(written[:, :2])
    assert [one.type for one in made] == ["meta"]


PROMPTS = padding_mask(companion.text)  # the first of two prompts is padded on the left


@pytest.mark.parametrize("end_id", (2, 7, None))
@pytest.mark.parametrize("drawn", EITHER)
def test_a_model_without_a_source_goes_on_from_its_prompt(end_id, drawn):
    model = companion.language_model(num_kv_heads=2)
    settings = {"max_len": 12, "end_id": end_id, "pad_id": 3}
    decode = partial(sample, seed=0, temperature=3.0) if drawn else greedy_decode
    together = decode(model, companion.text, src_mask=PROMPTS, **settings)
    assert torch.equal(together[:, :5], companion.text)
    for row in range(2):
        sentence = together[row, 5:].tolist()
        if end_id in sentence:
            end = sentence.index(end_id)
            assert set(sentence[end + 1 :]) <= {3}
    if end_id is None:
        assert together.shape == (2, 12)
    if not drawn:
        for row, start in enumerate((2, 0)):
            prompt = companion.text[row : row + 1, start:]
            alone = decode(model, prompt, **settings | {"max_len": 12 - start})[0]
            assert together[row, start : start + len(alone)].tolist() == alone.tolist()


def test_a_prompt_is_read_at_once_and_each_word_after_it_alone():
    model, lengths = companion.language_model(), []
    model.layers[0].self_attention.w_k.register_forward_hook(
        lambda layer, given, output: lengths.append(output.size(1))
    )
    greedy_decode(model, companion.text, max_len=9)
    assert lengths == [5, 1, 1, 1]


def test_a_chain_of_words_stops_each_sentence_at_its_end():
    model = LanguageModel(4, d_model=4, num_heads=1, num_layers=1, max_len=8, d_k=2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.norm.weight.fill_(1.0)
        model.embedding.weight.copy_(torch.eye(4))
        model.output_projection.weight.copy_(torch.eye(4).roll(1, 0))
    # Each word is followed by the next one, and 3 is the end.
    prompts = torch.tensor([[0, 1], [1, 2]])
    written = greedy_decode(model, prompts, max_len=6, end_id=3, pad_id=0)
    assert written.tolist() == [[0, 1, 2, 3], [1, 2, 3, 0]]
    assert greedy_decode(model, prompts[:1], max_len=6).tolist() == [[0, 1, 2, 3, 0, 1]]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"start_id": 1}, r"greedy_decode: a prompt is the start already, got start_id=1"),
        (
            {"max_len": 5},
            r"max_len must lie from 6 to 32 \(the model's table of .*, got 5",
        ),
        ({"max_len": 33}, r"max_len must lie from 6 to 32 .*, got 33"),
        ({"end_id": 11}, r"end_id must lie from 0 to 10 .*, got 11"),
        ({"src_mask": PROMPTS[..., 1:]}, r"LanguageModel: a mask of shape \(2, 1, 1, 4\) does not"),
        ({"src_mask": PROMPTS.expand(-1, -1, 2, -1)}, r"a mask of shape \(2, 1, 2, 5\) does not"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_prompts_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        greedy_decode(companion.language_model(), companion.text, **{"max_len": 9} | keywords)


@pytest.mark.parametrize("drawn", EITHER)
def test_a_prompt_that_ends_in_padding_is_refused(drawn):
    decode = partial(sample, seed=0) if drawn else greedy_decode
    said = r"LanguageModel: src_mask hides the last position of prompts \[0\], .*: pad on the left"
    with pytest.raises(ValueError, match=said):
        decode(companion.language_model(), companion.src, src_mask=PROMPTS.flip(3), max_len=9)


def test_a_prompt_is_refused_by_a_model_in_training():
    with pytest.raises(ValueError, match=r"greedy_decode: .* in training mode"):
        greedy_decode(companion.language_model().train(), companion.text, max_len=9)
