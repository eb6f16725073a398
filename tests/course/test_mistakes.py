"""The table of mistakes: every id, every case, and what each mistake gives away."""

import math
import re
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.func import functional_call
from torch.testing import assert_close

import twelve
from twelve import pretrained, training
from twelve.generation import KeyValueCache, greedy_decode, next_token_probabilities
from twelve_lab import Trace, contributions, example, influence, reversal, without
from twelve_lab.check import EXERCISES, MISTAKES, TASKS, suspects, wrong_versions
from twelve_lab.check.compare import agree, gradients, outcomes, trainable
from twelve_lab.course import STEPS
from twelve_lab.exercises.numbers import twelve_heads, vectors

# What goes wrong here goes wrong at a learner's, where nobody checks signatures.
pytestmark = pytest.mark.usefixtures("unchecked")


def refused(outcome, right) -> bool:
    """Say whether it raised or came out in another shape."""
    shapes = [[value.shape for value in each.values] for each in (outcome, right)]
    return outcome.error is not None or shapes[0] != shapes[1]


def margin(outcome, right) -> float:
    """Measure the largest error, in parts of the largest right number."""
    errors = []
    pairs = zip(outcome.values + outcome.gradients, right.values + right.gradients, strict=True)
    for one, other in pairs:
        size = other.double().abs().max().item()
        error = (one.double() - other.double()).abs().max().item()
        errors.append(math.inf if math.isnan(error) else error / (size if size > 1e-6 else 1.0))
    return max(errors)


@cache
def ran(name, id="right"):
    """Run an answer on all cases of its task, once."""
    task = TASKS[name]
    return outcomes(task, task.right if id == "right" else wrong_versions(name)[id])


# The table.


@pytest.mark.parametrize("id", MISTAKES)
def test_a_row_says_in_one_sentence_what_was_done_and_what_to_do(id):
    mistake = MISTAKES[id]
    assert re.fullmatch(r"[a-z_]+(-[a-z_]+)+", id)
    assert re.fullmatch(r"[A-Z].*[^.]\.", mistake.sentence)
    assert ". " not in mistake.sentence
    assert len(mistake.sentence) <= 200
    assert mistake.step in {step.number for step in STEPS}
    assert mistake.task in TASKS


def test_a_mistake_is_taught_in_the_task_that_declares_it():
    for task in TASKS.values():
        assert set(task.mistakes) <= set(MISTAKES)
    for id, mistake in MISTAKES.items():
        assert TASKS[mistake.task].mistakes[id][0] is mistake.wrong


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_three_cases_or_more_and_draws_them_afresh(name):
    cases, again = TASKS[name].cases(), TASKS[name].cases()
    assert len(cases) >= 3
    for case in cases:
        for one, other in zip(cases[case], again[case], strict=True):
            if isinstance(one, Tensor):
                assert_close(one, other, rtol=0, atol=0)
                assert one.dtype in (torch.float64, torch.int64, torch.uint8, torch.bool)
                assert not one.requires_grad
                shared = {id(value) for value in vars(example).values()}
                assert one is not other
                assert id(one) not in shared


# The right answers.


class Called(nn.Module):
    """A function as a module, so that it can stand in a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given, **named):
        return self.function(*given, **named)


def linear(x, weight, bias):
    given = {"weight": weight, "bias": bias}
    return functional_call(twelve.Linear(*weight.T.shape), given, x)


def embed(ids, table, pad_id=None):
    layer = twelve.TokenEmbedding(*table.shape, padding_idx=pad_id)
    return functional_call(layer, {"weight": table}, ids)


class ScaledEmbedding(twelve.TokenEmbedding):
    """The layer with its switch on."""

    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model, scale=True)


def add_positions(x, table, dropout=None):
    layer = twelve.PositionalEncoding(x.size(-1), max_len=len(table))
    layer.dropout = Called(dropout or torch.clone)
    return functional_call(layer, {"table": table}, x)


class StartedEncoding(twelve.PositionalEncoding):
    """The layer on a sentence whose beginning is there already."""

    def __init__(self, d_model, max_len):
        super().__init__(d_model, max_len=max_len)

    def forward(self, x, start):
        before = torch.zeros(x.size(0), start, x.size(-1))
        return super().forward(torch.cat([before, x], dim=1))[:, start:]


def traced_scores(query, key):
    with Trace() as trace:
        twelve.scaled_dot_product_attention(query, key, key)
    return trace["scaled_dot_product_attention.scores"].value


def weights(scores, mask=None):
    """Let the attention show its weights: keys and values are the identity."""
    one = torch.eye(scores.size(-1)).expand(*scores.shape[:-2], -1, -1)
    query = scores * math.sqrt(scores.size(-1))
    return twelve.scaled_dot_product_attention(query, one, one, mask)


def padded_attention(query, key, value, ids):
    mask = twelve.padding_mask(ids)
    return twelve.scaled_dot_product_attention(query, key, value, mask)


def split_heads(projected, num_heads):
    return twelve.MultiHeadAttention(projected.size(-1), num_heads)._split(projected)


def merge_heads(heads):
    return twelve.MultiHeadAttention(heads.size(1), heads.size(1))._merge(heads)


def multi_head_attention(query, memory, w_q, w_k, w_v, w_o, num_heads):
    widths = {"d_k": len(w_q) // num_heads, "d_v": len(w_v) // num_heads}
    layer = twelve.MultiHeadAttention(query.size(-1), num_heads, **widths)
    matrices = {"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
    given = {f"{name}.weight": matrix for name, matrix in matrices.items()}
    return functional_call(layer, given, (query, memory, memory))


def layer_norm(x, weight, bias):
    return functional_call(twelve.LayerNorm(len(weight)), {"weight": weight, "bias": bias}, x)


def rms_norm(x, weight):
    return functional_call(twelve.RMSNorm(len(weight)), {"weight": weight}, x)


def residual(x, sublayer, norm):
    wrapper = twelve.Residual(x.size(-1))
    wrapper.norm = norm
    return wrapper(x, sublayer)


def residual_stack(x, sublayers, norms, last_norm):
    for sublayer, norm in zip(sublayers, norms, strict=True):
        x = residual(x, sublayer, norm)
    return last_norm(x)


def feed_forward(x, w_up, b_up, w_down, b_down):
    given = {"up.weight": w_up, "up.bias": b_up, "down.weight": w_down, "down.bias": b_down}
    return functional_call(twelve.FeedForward(*w_up.T.shape), given, x)


def swiglu(x, gate, up, down):
    given = {"gate.weight": gate, "up.weight": up, "down.weight": down}
    return functional_call(twelve.SwiGLU(*up.T.shape), given, x)


def stack(make, num_layers):
    built = twelve.Encoder.kind
    twelve.Encoder.kind = lambda stack, *sizes, **switches: make()
    try:
        return twelve.Encoder(3, 1, num_layers=num_layers).layers
    finally:
        twelve.Encoder.kind = built


def encoder(x, layers, norm, src_mask):
    whole = twelve.Encoder(x.size(-1), 1, num_layers=1)
    parts = [Called(lambda x, *, src_mask, layer=layer: layer(x, src_mask)) for layer in layers]
    whole.layers, whole.norm = nn.ModuleList(parts), norm
    return whole(x, src_mask=src_mask)


class EncoderLayer(nn.Module):
    """A layer of the package, its parts under the names of the exercise."""

    def __init__(self, *sizes):
        super().__init__()
        whole = twelve.EncoderLayer(*sizes)
        self.look, self.think = whole.self_attention, whole.feed_forward
        self.norm1, self.norm2 = (
            whole.self_attention_residual.norm, whole.feed_forward_residual.norm,
        )  # fmt: skip
        self.whole = [whole]

    def forward(self, x, src_mask):
        return self.whole[0](x, src_mask=src_mask)


def decoder(x, memory, layers, norm, tgt_mask, src_mask):
    def part(layer):
        return Called(lambda x, memory, *, tgt_mask, src_mask: layer(x, memory, tgt_mask, src_mask))

    whole = twelve.Decoder(x.size(-1), 1, num_layers=1)
    whole.layers, whole.norm = nn.ModuleList(part(layer) for layer in layers), norm
    return whole(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)


def decoder_layer(x, memory, back, across, think, norms, tgt_mask, src_mask):
    layer = twelve.DecoderLayer(x.size(-1), 1)
    layer.self_attention, layer.cross_attention, layer.feed_forward = back, across, think
    wrappers = [part for part in layer.children() if isinstance(part, twelve.Residual)]
    for wrapper, norm in zip(wrappers, norms, strict=True):
        wrapper.norm = norm
    return layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)


def cross_attention(x, memory, attention, src_mask, tgt_mask):
    """Let a layer answer nothing but what its cross-attention answers."""
    layer = twelve.DecoderLayer(x.size(-1), 1)
    layer.self_attention_residual = Called(lambda x, sublayer: x)
    layer.cross_attention_residual = Called(lambda x, sublayer: sublayer(x))
    layer.feed_forward_residual = Called(lambda x, sublayer: x)
    layer.cross_attention = attention
    return layer(x, memory, src_mask=src_mask)


def transformer(parts, src, tgt, src_mask, tgt_mask):
    return parts(src, tgt, src_mask=src_mask, tgt_mask=tgt_mask)


def tied_logits(x, table):
    sizes = {"d_model": x.size(-1), "num_heads": 1, "num_layers": 1}
    model = twelve.Transformer(4, len(table), **sizes, tie_weights=True)
    assert model.output_projection.weight is model.tgt_embedding.weight
    return functional_call(model.output_projection, {"weight": table}, x)


def rotary_angles(start, new, d_k):
    """Read off by how much the layer has turned an arrow that lay on the first axis."""
    arrows = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(1, 1, start + new, d_k // 2)
    x, y = twelve.RotaryEncoding(d_k).double()(arrows)[0, 0].unflatten(-1, (-1, 2)).unbind(-1)
    # From position to position no pair turns by more than half a round.
    return torch.from_numpy(np.unwrap(torch.atan2(y, x).numpy(), axis=0))[start:]


def rotate(heads, angles):
    """Turn by the layer: the angles of the cases are those of positions that follow each other."""
    return twelve.RotaryEncoding(heads.size(-1)).double()(heads, round(angles[0, 0].item()))


def rotary_attention(query, key, value, turn):
    return twelve.scaled_dot_product_attention(turn(query), turn(key), value)


def grouped_layer(heads, kv_heads, d_k, rotary=None):
    """Build a layer that is given its heads: it projects nothing."""
    layer = twelve.GroupedQueryAttention(heads * d_k, heads, kv_heads, d_k=d_k, rotary=rotary)
    return layer.double()


def share_heads(heads, num_heads):
    return grouped_layer(num_heads, heads.size(1), heads.size(-1))._share(heads)


def grouped_attention(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def attend_with_cache(query, key, value, kept_keys, kept_values, turn):
    """Hand the layer what its matrices would make, and a cache that is filled already."""
    _, heads, new, d_k = query.shape
    layer = grouped_layer(heads, key.size(1), d_k, turn)
    cache = KeyValueCache(layer, len(query), kept_keys.size(2) + new)
    cache(kept_keys, kept_values)
    for name, given in {"w_q": query, "w_k": key, "w_v": value}.items():
        setattr(layer, name, Called(lambda x, given=given: given.transpose(1, 2).flatten(2)))
    layer.w_o = Called(lambda merged: merged)
    mask = twelve.causal_mask(new, cache.keys.size(2))
    merged = layer(torch.zeros(len(query), new, heads * d_k), mask, cache=cache)
    return merged.unflatten(-1, (heads, d_k)).transpose(1, 2), cache.keys, cache.values


def language_model(ids, table, layers, norm):
    model = twelve.LanguageModel(
        len(table), d_model=table.size(1), num_heads=1, num_layers=1, d_k=2, tie_weights=True
    )
    model.layers, model.norm = nn.ModuleList(layers), norm
    return functional_call(model, {"embedding.weight": table}, ids)


def chunk_mask(words, new):
    """Let the model make the mask of a piece that stands behind what is kept."""
    model = twelve.LanguageModel(2, d_model=2, num_heads=1, num_layers=1)
    mask = model._mask(words[:, -new:].long(), words.size(1) - new, words[:, None, None])
    return mask.expand(-1, -1, new, -1)


def top_p(probabilities, p):
    return next_token_probabilities(probabilities.log(), top_p=p)


PACKAGE = {
    "linear": linear,
    "linear_layer": twelve.Linear,
    "embed": embed,
    "padding_row": embed,
    "scaled_embedding": ScaledEmbedding,
    "sinusoid": twelve.sinusoid,
    "positional_encoding": add_positions,
    "positions_dropped": add_positions,
    "positional_layer": StartedEncoding,
    "attention_scores": traced_scores,
    "attention_weights": weights,
    "attention": twelve.scaled_dot_product_attention,
    "padding_mask": twelve.padding_mask,
    "causal_mask": twelve.causal_mask,
    "mask_of_new": twelve.causal_mask,
    "masked_weights": weights,
    "scaled_dot_product_attention": twelve.scaled_dot_product_attention,
    "padded_attention": padded_attention,
    "split_heads": split_heads,
    "merge_heads": merge_heads,
    "multi_head_attention": multi_head_attention,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "residual": residual,
    "residual_stack": residual_stack,
    "feed_forward": feed_forward,
    "swiglu": swiglu,
    "stack": stack,
    "encoder": encoder,
    "encoder_layer": EncoderLayer,
    "cross_attention": cross_attention,
    "decoder": decoder,
    "decoder_layer": decoder_layer,
    "transformer": transformer,
    "tied_logits": tied_logits,
    "shift": training.shift,
    "loss": training.cross_entropy,
    "rotary_angles": rotary_angles,
    "rotate": rotate,
    "rotary_attention": rotary_attention,
    "share_heads": share_heads,
    "grouped_attention": grouped_attention,
    "attend_with_cache": attend_with_cache,
    "language_model": language_model,
    "chunk_mask": chunk_mask,
    "top_p": top_p,
    "neighbours": pretrained._neighbours,
}
# No layer stands for these; the laws are below.
BY_LAW = {
    "swap_axes",
    "target_mask",
    "make_batch",
    "embed_step",
    "rows_for_neighbours",
    "pool_heads",
    "next_labels",
    "prompt_logits",
    "remove_head",
    "dequantize",
    "logit_parts",
}


def test_every_right_answer_is_compared():
    assert set(PACKAGE) | BY_LAW == set(TASKS)


@pytest.mark.parametrize("name", PACKAGE)
def test_the_right_answer_is_that_of_the_package(name):
    ours, theirs = (outcomes(TASKS[name], at) for at in (TASKS[name].right, PACKAGE[name]))
    for case in ours:
        assert theirs[case].error is None, (case, theirs[case].error)
        assert_close(theirs[case].values, ours[case].values)
        assert_close(theirs[case].gradients, ours[case].gradients)


def test_axes_that_are_swapped_are_those_of_einops():
    for (x,) in TASKS["swap_axes"].cases().values():
        assert_close(TASKS["swap_axes"].right(x), rearrange(x, "batch seq d -> batch d seq"))


def test_a_target_mask_fits_every_sentence_and_hides_what_comes_later():
    for (tgt,) in TASKS["target_mask"].cases().values():
        mask = TASKS["target_mask"].right(tgt)
        places = torch.arange(tgt.size(1))
        assert torch.equal(mask[0, 0], places[None, :] <= places[:, None])


def test_a_batch_is_the_source_and_the_shifted_target():
    for src, target in TASKS["make_batch"].cases().values():
        kept, *shifted = TASKS["make_batch"].right(src, target)
        assert torch.equal(kept, src)
        assert_close(tuple(shifted), training.shift(target))


def test_words_that_are_embedded_one_by_one_equal_one_pass():
    right, wrong = TASKS["embed_step"].right, MISTAKES["decode-position-zero"].wrong
    rows, positions = torch.tensor(example.embedding_rows), twelve.sinusoid(8, 3)
    ids = torch.tensor([[1, 3, 2], [2, 0, 1]])
    whole = rows[ids] + positions[:3]
    for step, equal in ((right, True), (wrong, False)):
        pieces = [step(ids[:, [place]], place, rows, positions) for place in range(3)]
        assert torch.allclose(torch.cat(pieces, dim=1), whole) is equal


def test_scores_of_halves_are_those_of_neighbours_with_the_rows_in_their_order(draw):
    right, halves = TASKS["rows_for_neighbours"].right, wrong_versions("rotate")["rotary-halves"]
    angles = TASKS["rotary_angles"].right(0, 5, 8)
    x, weights = draw(2, 5, 24).double(), [draw(3 * 8, 24).double() for _ in "qk"]

    def scores(turn, weights):
        heads = (x @ weight.T for weight in weights)
        cut = (
            rearrange(one, "batch seq (head d_k) -> batch head seq d_k", head=3) for one in heads
        )
        query, key = (turn(one, angles) for one in cut)
        return query @ key.mT

    expected = scores(halves, weights)
    assert not torch.allclose(scores(TASKS["rotate"].right, weights), expected)
    ordered = [right(weight, 3) for weight in weights]
    assert_close(scores(TASKS["rotate"].right, ordered), expected)


def test_heads_that_are_alike_in_each_group_are_pooled_into_what_they_were(draw):
    pool, weight = TASKS["pool_heads"].right, draw(2 * 4, 3)
    copies = weight.unflatten(0, (2, 4)).repeat_interleave(3, dim=0).flatten(0, 1)
    assert_close(pool(copies, 6, 2), weight)
    # Scores are linear in the keys: those of a mean are the mean of those of the group.
    x, query, several = draw(2, 5, 3), draw(2, 1, 5, 4), draw(3 * 4, 3)
    scores = query @ (x @ several.T).unflatten(-1, (3, 4)).permute(0, 2, 3, 1)
    assert_close(query[:, 0] @ (x @ pool(several, 3, 1).T).mT, scores.mean(1))


def test_the_labels_of_a_line_are_those_of_the_task():
    line = reversal.line(reversal.batch(0))
    # The line stops before its last token, which asks for nothing.
    asked = TASKS["next_labels"].right(line.tgt, reversal.START)
    full = line.tgt[:, -1] == reversal.PAD
    assert full.any() and torch.equal(asked[full], line.labels[full])


def test_the_logits_of_the_last_word_choose_what_is_written_first():
    data, model = example.distinct, example.distinct.language_model().requires_grad_(False)
    text, words = data.text, data.text != 0
    logits = model(text, key_mask=words[:, None, None])
    expected = TASKS["prompt_logits"].right(logits, words).argmax(-1)
    written = greedy_decode(model, text, max_len=6, src_mask=words[:, None, None])
    assert torch.equal(written[:, -1], expected)


def test_a_head_is_removed_from_the_weight_as_it_is_from_a_run():
    data, model = example.distinct, example.distinct.language_model().requires_grad_(False)
    w_o = model.layers[1].self_attention.w_o
    with without(model, "head 1.4"):
        expected = model(data.text)
    given = w_o.weight.clone()
    w_o.weight.copy_(TASKS["remove_head"].right(w_o.weight, 4, 6))
    assert not torch.equal(w_o.weight, given)
    assert_close(model(data.text), expected)


def test_a_block_of_all_numbers_is_unpacked_by_hand():
    (numbers,) = TASKS["dequantize"].right(*TASKS["dequantize"].cases()["0 to 15 and back"])
    assert numbers.tolist() == [*range(-8, 8), *range(7, -9, -1)]


def test_blocks_are_unpacked_as_the_library_does():
    gguf = pytest.importorskip("gguf", reason="make language-model installs it")
    numbers = torch.randn(6, 32, generator=torch.Generator("cpu").manual_seed(12)).numpy()
    blocks = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType.Q4_0)
    scales, packed = torch.from_numpy(blocks).tensor_split([2], dim=1)
    scales = scales.contiguous().view(torch.float16).float().flatten()
    expected = torch.from_numpy(gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0))
    assert_close(TASKS["dequantize"].right(scales, packed), expected, rtol=0, atol=0)


def test_what_parts_add_to_a_logit_is_what_they_wrote_in_a_run():
    ids, model = example.distinct.text[1:], example.distinct.language_model()
    kept = []
    for part in [model.embedding, *(layer.feed_forward for layer in model.layers), model.norm]:
        part.register_forward_hook(lambda part, given, gives: kept.append((given[0], gives)))
    expected = contributions(model, ids, 7)
    *parts, (stream, _) = kept
    parts = torch.stack([gives[0, -1] for _, gives in parts])
    heads = stream[0, -1] - parts.sum(0)
    row, norm = model.output_projection.weight[7], model.norm
    added = TASKS["logit_parts"].right(torch.stack([*parts, heads]), norm.weight, row, norm.eps)
    due = [expected.embedding, *expected.feed_forward.tolist(), expected.heads.sum().item()]
    assert_close(added.tolist(), due)
    assert_close(added.sum().item(), expected.logit)


def test_the_parameters_that_are_counted_are_those_of_a_model_of_these_sizes():
    sizes = {"d_model": 576, "num_heads": 9, "num_kv_heads": 3, "d_ff": 1536, "num_layers": 30}
    with torch.device("meta"):
        model = twelve.LanguageModel(49152, **sizes, tie_weights=True)
    found = sum(one.numel() for one in model.parameters())
    assert EXERCISES["19-parameters"].right() == found


@pytest.mark.parametrize("name", TASKS)
def test_a_gradient_reaches_every_argument_of_the_right_answer(name):
    for case, given in TASKS[name].cases().items():
        given = trainable(given)
        answer = TASKS[name].observe(TASKS[name].run(TASKS[name].right, given))
        for slope in gradients(answer, given):
            assert slope is not None, case
            assert slope.isfinite().all(), case


def test_the_right_answer_is_no_suspect():
    for name, target in TASKS.items():
        assert suspects(name, target.right) == []


# The wrong ones.


@pytest.mark.parametrize("id", MISTAKES)
def test_a_mistake_shows_in_the_cases_in_which_it_is_said_to_show(id):
    right, wrong = ran(MISTAKES[id].task), ran(MISTAKES[id].task, id)
    hidden, raising = MISTAKES[id].hidden_in, MISTAKES[id].refused_in
    assert raising <= set(right)
    assert hidden < set(right), "it shows in no case"
    for case in right:
        assert refused(wrong[case], right[case]) == (case in raising), case
        if case in hidden:
            assert margin(wrong[case], right[case]) < 1e-3, case
        elif case not in raising:
            assert margin(wrong[case], right[case]) > 2e-2, case


@pytest.mark.parametrize("name", TASKS)
def test_two_mistakes_of_one_task_stand_far_apart_in_one_case(name):
    known = [ran(name, id) for id in ("right", *wrong_versions(name))]
    for one, other in combinations(known, 2):
        assert any(not agree(one[case], other[case], 1e-2) for case in one)


def test_an_unknown_answer_is_no_suspect():
    assert suspects("split_heads", lambda projected, num_heads: projected) == []


# How to see it.


def heads_of(ids):
    layer = example.model().encoder.layers[0].self_attention
    x = vectors(ids)
    return [layer._split(project(x)) for project in (layer.w_q, layer.w_k, layer.w_v)]


def by_weights(function):
    def run(ids):
        query, key, value = heads_of(ids)
        scores = (query @ key.mT).masked_fill(~example.tgt_mask, -math.inf)
        return (function(scores) @ value).transpose(1, 2).flatten(2)

    return run


def by_masked_weights(function):
    def run(ids):
        query, key, value = heads_of(ids)
        mask = example.src_mask & example.tgt_mask
        return (function(query @ key.mT, mask) @ value).transpose(1, 2).flatten(2)

    return run


def by_split(function):
    def run(ids):
        query, key, value = (function(merge_heads(at), 3) for at in heads_of(ids))
        causal = example.tgt_mask
        blended = twelve.scaled_dot_product_attention(query, key, value, causal)
        return merge_heads(blended)

    return run


def by_merge(function):
    def run(ids):
        causal = example.tgt_mask
        return function(twelve.scaled_dot_product_attention(*heads_of(ids), causal))

    return run


def by_padding(function):
    return lambda ids: merge_heads(function(*heads_of(ids), example.src))


def by_causal(function):
    mask = function(2).expand(2, 1, 2, 2)
    return lambda ids: merge_heads(twelve.scaled_dot_product_attention(*heads_of(ids), mask))


def by_cross(function):
    layer = example.model().decoder.layers[0].cross_attention
    masks = (example.src_mask, twelve.padding_mask(example.tgt))

    def run(ids):
        return function(vectors(example.tgt), vectors(ids), layer, *masks)

    return run


def by_norm(function):
    def run(ids):
        return function(vectors(ids), torch.ones(3), torch.zeros(3))

    return run


def by_lookup(function):
    return lambda ids: function(ids, torch.arange(12.0).view(4, 3))


INFLUENCE = {
    "split-view": by_split,
    "merge-no-transpose": by_merge,
    "softmax-queries": by_weights,
    "mask-inverted": by_masked_weights,
    "mask-multiplied": by_masked_weights,
    "mask-after-softmax": by_masked_weights,
    "mask-not-expanded": by_padding,
    "mask-query-axis": by_padding,
    "causal-triu": by_causal,
    "causal-diagonal": by_causal,
    "cross-mask-target": by_cross,
    "cross-memory-unused": by_cross,
    "cross-value-target": by_cross,
    "ln-sequence": by_norm,
    "ln-batch": by_norm,
    "ids-transposed": by_lookup,
}


@pytest.mark.parametrize("id", INFLUENCE)
def test_the_influence_map_shows_it(id):
    right, wrong = TASKS[MISTAKES[id].task].right, MISTAKES[id].wrong
    maps = [influence(INFLUENCE[id](at), example.src, vocab_size=4) for at in (right, wrong)]
    assert not torch.equal(maps[0].grid, maps[1].grid)


def test_the_influence_map_does_not_show_features_dealt_like_cards():
    right, wrong = TASKS["split_heads"].right, MISTAKES["split-interleaved"].wrong
    maps = [influence(by_split(at), example.src, vocab_size=4) for at in (right, wrong)]
    assert torch.equal(maps[0].grid, maps[1].grid)


def test_features_dealt_like_cards_show_with_two_heads_of_width_two():
    at = twelve_heads(2)
    given = (at.x, at.x, at.w_q, at.w_k, at.w_v, at.w_o, 2)
    dealt = wrong_versions("multi_head_attention")["split-interleaved"](*given)
    assert (dealt - TASKS["multi_head_attention"].right(*given)).abs().max() > 0.1


def test_heads_that_compete_show_even_with_one_head():
    at = twelve_heads(1)
    given = (at.x, at.x, at.w_q, at.w_k, at.w_v, at.w_o, 1)
    competing = MISTAKES["softmax-heads"].wrong(*given)
    assert (competing - TASKS["multi_head_attention"].right(*given)).abs().max() > 0.1


def test_a_finite_mask_raises_in_half_precision():
    scores, mask = torch.zeros(1, 1, 2, 2, dtype=torch.half), torch.eye(2).bool()[None, None]
    assert torch.equal(TASKS["masked_weights"].right(scores, mask), mask.half())
    with pytest.raises(RuntimeError, match="overflow"):
        MISTAKES["mask-finite"].wrong(scores, mask)


@pytest.mark.parametrize(
    ("id", "sums"), [("mask-after-softmax", False), ("mask-multiplied", True), ("right", True)]
)
def test_rows_sum_to_one_unless_the_weights_were_masked_after_softmax(id, sums):
    scores, mask = torch.ones(1, 1, 2, 2), torch.tensor([[[[True, False]]]])
    answer = TASKS["masked_weights"].right if id == "right" else MISTAKES[id].wrong
    assert torch.allclose(answer(scores, mask).sum(-1), torch.ones(1, 1, 2)) is sums


def test_the_sample_deviation_is_18_percent_off_at_width_3_and_a_tenth_at_512():
    for width, off in ((3, 0.1835), (512, 0.00098)):
        x, one, zero = torch.arange(float(width)), torch.ones(width), torch.zeros(width)
        right = TASKS["layer_norm"].right(x, one, zero)
        wrong = MISTAKES["ln-unbiased"].wrong(x, one, zero)
        assert_close((1 - wrong[0] / right[0]).item(), off, rtol=0, atol=1e-4)


def test_the_wrong_padding_row_freezes_a_word():
    ids, rows = example.src, torch.tensor(example.embedding_rows)
    for answer, frozen in (("right", [0]), ("padding-idx-wrong", [1]), ("padding-idx-missing", [])):
        table = rows.clone().requires_grad_()
        at = TASKS["padding_row"].right if answer == "right" else MISTAKES[answer].wrong
        at(ids, table, 0).sum().backward()
        assert (table.grad == 0).all(-1).nonzero().flatten().tolist() == frozen


def test_a_norm_that_is_never_applied_gets_no_gradient():
    wrong = MISTAKES["norm-never-applied"].wrong
    for answer, reached in ((TASKS["encoder"].right, True), (wrong, False)):
        x, layers, norm, mask = TASKS["encoder"].cases()["twelve numbers"]
        answer(x, layers, norm, mask).sum().backward()
        assert (norm.weight.grad is not None) is reached


def test_cloned_layers_start_equal_and_part_while_shared_ones_are_one():
    make, number = TASKS["stack"].cases()["3 layers"]
    for id, objects in (("layers-cloned", 3), ("layers-shared", 1)):
        layers = MISTAKES[id].wrong(make, number)
        assert all(torch.equal(layers[0].weight, layer.weight) for layer in layers)
        assert len({layer.weight.data_ptr() for layer in layers}) == objects
    fresh = TASKS["stack"].right(make, number)
    assert not torch.equal(fresh[0].weight, fresh[1].weight)


def test_a_leak_shows_in_what_the_model_is_given():
    src, target = TASKS["make_batch"].cases()["all sizes differ"]
    _, tgt, labels = wrong_versions("make_batch")["labels-not-shifted"](src, target)
    counted = labels != training.IGNORED
    assert torch.equal(tgt[counted], labels[counted])
    seen, _, labels = MISTAKES["decoder-sees-source-labels"].wrong(src, target)
    assert torch.equal(seen[counted], labels[counted])
    kept, tgt, labels = TASKS["make_batch"].right(src, target)
    assert kept is src
    assert not (tgt[counted] == labels[counted]).any()


def test_certainty_costs_nothing_unless_softmax_is_taken_twice():
    logits, labels = TASKS["loss"].cases()["certain and right"]
    assert_close(TASKS["loss"].right(logits, labels), torch.tensor(0.0))
    twice = MISTAKES["softmax-before-loss"].wrong(logits, labels)
    assert_close(twice, torch.tensor(math.log(math.e + 3) - 1))


@pytest.mark.parametrize(
    ("id", "name"), [("rms-eps-outside", "rms_norm"), ("ln-eps-tiny", "layer_norm")]
)
def test_small_numbers_alone_show_where_eps_stands(id, name):
    x, *rest = TASKS[name].cases()["twelve numbers"]
    for factor, equal in ((1.0, True), (0.01, False)):
        right = TASKS[name].right(x * factor, *rest)
        wrong = MISTAKES[id].wrong(x * factor, *rest)
        assert torch.allclose(right, wrong, rtol=1e-3, atol=1e-3) is equal


@pytest.mark.parametrize(("start", "first"), [(torch.ones, None), (torch.zeros, "0.0000")])
def test_a_fresh_norm_must_start_at_one(start, first):
    class Started(nn.Module):
        def __init__(self, d_model):
            super().__init__()
            self.weight = nn.Parameter(start(d_model))

        def forward(self, x):
            return TASKS["rms_norm"].right(x, self.weight)

    for outcome in outcomes(TASKS["rms_norm"], Started).values():
        said = f"A new layer has the weight {first}, expected 1."
        assert outcome.error is None if first is None else said in str(outcome.error)


def test_no_two_norms_of_a_stack_are_alike():
    for _, _, norms, last in TASKS["residual_stack"].cases().values():
        learned = [torch.cat([norm.weight, norm.bias]) for norm in (*norms, last)]
        assert not any(torch.equal(one, other) for one, other in combinations(learned, 2))
        assert not any((one[: len(one) // 2] == 1).any() for one in learned)


def test_a_layer_that_is_not_square_refuses_a_weight_as_it_is_stored():
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        MISTAKES["weights-transposed"].wrong(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4))
