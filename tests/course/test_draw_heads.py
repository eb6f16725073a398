"""Figures of attention heads: their numbers against formulas, and the runs that they refuse."""

import math
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("matplotlib")
from torch.testing import assert_close

from tests.course.figure_rules import place_problems
from tests.course.figures import ASKED, LABELS, PATH, TABLE, TITLE, figure, grouped, texts, traced
from twelve import GroupedQueryAttention, MultiHeadAttention, causal_mask
from twelve_lab import Trace, draw, example
from twelve_lab.show.format import format_number

FIGURES = ("heads", "heads with a hidden key", "one head", "two wide heads")
# The rows of "dog" and "fish" and the matrices, as notebook 04 prints them.
DOG, FISH = (-0.2020, 1.3131, -1.1111), (1.3219, -0.2257, -1.0962)
W_Q = ((-1, 0.5, 1), (1, 0, 0.5), (0, 0.5, 0.5))
W_K = ((0, -0.5, 0), (0.5, 1, 1), (-1, -0.5, -0.5))
W_V = ((0, -1, -1), (-0.5, 1, -1), (0.5, -1, 0.5))


def dot(row, column):
    return sum(x * y for x, y in zip(row, column, strict=True))


def times(row, matrix):
    return [dot(row, column) for column in zip(*matrix, strict=True)]


def drawn_numbers(drawing):
    return sorted(text for text in texts(drawing) if re.fullmatch(r"-?\d+\.\d{4}|-inf", text))


def line(drawing, name):
    """Read a vector from the summary."""
    text = re.search(rf"^{name} +(.*)$", drawing.summary, re.M)[1]
    return [float(number) for number in re.findall(r"-?\d+\.\d+", text)]


def run(d_model, heads, d_k, d_v, keys, mask=None, **more):
    """Trace a random layer; return the trace, the input and the layer."""
    torch.manual_seed(9)
    layer = MultiHeadAttention(d_model, heads, d_k=d_k, d_v=d_v, **more)
    x = torch.randn(2, keys, d_model)
    with Trace(layer) as trace:
        layer(x, x, x, mask)
    return trace, x, layer


def changed(trace, name, change):
    """Copy a run with other numbers in one tensor."""
    entry = trace[name]
    value = change(entry.value.clone())
    return {**trace, name: SimpleNamespace(value=value, axes=entry.axes)}


def test_heads_draws_the_numbers_of_pencil_and_paper():
    query = times(DOG, W_Q)
    keys, values = ([times(x, matrix) for x in (DOG, FISH)] for matrix in (W_K, W_V))
    match = [dot(query, key) for key in keys]
    scores = [number / math.sqrt(3) for number in match]
    weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
    expected = [*DOG, *query, *keys[0], *keys[1], *match, *scores, *weights, *values[0],
                *values[1], *times(weights, values)]  # fmt: skip
    drawn = sorted(map(float, drawn_numbers(figure("one head"))))
    # The numbers on paper have four decimals.
    assert_close(torch.tensor(drawn), torch.tensor(sorted(expected)), atol=3e-4, rtol=0)


@pytest.mark.parametrize(
    ("sizes", "is_masked"),
    [((3, 3, 1, 1, 2), False), ((4, 2, 2, 1, 4), True), ((4, 1, 3, 2, 3), True)],
)
def test_heads_context_and_output_are_those_of_torch(sizes, is_masked):
    mask = causal_mask(sizes[-1]) if is_masked else None
    trace, x, layer = run(*sizes, mask=mask)
    drawing = draw.heads(trace, "", title=TITLE, batch=1, query=1)
    heads = [w(x).unflatten(-1, (sizes[1], -1)).transpose(1, 2)
             for w in (layer.w_q, layer.w_k, layer.w_v)]  # fmt: skip
    context = F.scaled_dot_product_attention(*heads, mask).transpose(1, 2).flatten(2)
    several = sizes[1] > 1
    drawn = line(drawing, "merged" if several else "context")
    assert drawn == [float(format_number(n)) for n in context[1, 1].tolist()]
    if several:
        output = layer(x, x, x, mask)[1, 1].tolist()
        assert line(drawing, "output") == [float(format_number(n)) for n in output]


@pytest.mark.parametrize("name", FIGURES)
def test_heads_draws_every_number_of_the_summary_once(name):
    drawing = figure(name)
    printed = re.findall(r"-?\d+\.\d{4}|-inf", drawing.summary)
    if "merged" in drawing.summary:
        # Each context is in its lane and again among the merged.
        printed += [format_number(number) for number in line(drawing, "merged")]
    assert drawn_numbers(drawing) == sorted(printed)


def test_heads_x_is_the_input_of_the_projection():
    cross = "decoder.layers.0.cross_attention"
    for path, norm_first, name in (
        (PATH, True, "encoder.layers.0.self_attention_residual.norm.output"),
        (PATH, False, "src_input"),
        (cross, True, f"{cross}_residual.norm.output"),
    ):
        trace = traced(norm_first=norm_first)
        drawn = line(draw.heads(trace, path, title=TITLE, batch=1, query=1), "x")
        assert drawn == [float(format_number(n)) for n in trace[name].value[1, 1].tolist()]


def test_heads_without_a_visible_key_have_no_output():
    hidden = torch.zeros(1, 1, 2, 2, dtype=torch.bool)
    drawing = draw.heads(run(3, 3, 1, 1, 2, mask=hidden)[0], "", title=TITLE)
    assert line(drawing, "merged") == line(drawing, "output") == [0, 0, 0]


def test_heads_with_a_long_alt_text_name_the_key_with_the_largest_weight():
    title = "A claim so long that no number has room beside it, " * 10
    trace, *_ = run(4, 4, 1, 1, 4)
    most = trace["weights"].value[0, :, 0].argmax(-1).tolist()
    expected = ", ".join(f"key {key}" for key in most)
    assert draw.heads(trace, "", title=title).alt.endswith(f"in each head: {expected}.")


@pytest.mark.parametrize("sizes", [(4, 4, 1, 1, 4), (4, 2, 2, 2, 4), (4, 1, 3, 3, 4)])
def test_heads_of_the_largest_sizes_fit_on_a_page(sizes):
    drawing = draw.heads(run(*sizes)[0], "", title=TITLE, batch=1, query=3)
    width, height = drawing.figure.get_size_inches()
    assert width <= 9.4 and height <= 10
    assert not [problem for problem in place_problems(drawing) if "cut off" in problem]


def test_heads_name_a_missing_tensor():
    trace = traced()
    with pytest.raises(KeyError, match=r"no_such\.weights"):
        draw.heads(trace, "no_such", title=TITLE)
    part = {name: entry for name, entry in trace.items() if not name.endswith(".merged")}
    with pytest.raises(KeyError, match="merged"):
        draw.heads(part, PATH, title=TITLE)


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("masked_scores", lambda x: x + 1, "scores of head 0 must be query · key"),
        ("query_heads", lambda x: x * 3, "scores of head 0 must be query"),
        ("weights", lambda x: x / 2, r"the softmax of its scores, 0\.7665.*, got 0\.3832, 0\.1168"),
        ("weights", lambda x: x.flip(-1), "weights of head 0 must be the softmax of its scores"),
        ("value_heads", lambda x: -x, r"context of head 0 must be .* 1\.0307, got -1\.0307"),
        ("context", lambda x: x + 0.001, r"context of head 0 must be .*, got -1\.0297"),
        ("merged", lambda x: x.flip(-1), "merged must be the contexts side by side"),
    ],
)
def test_heads_refuse_a_number_that_does_not_follow_from_those_before(name, change, error):
    trace = changed(traced(), f"{PATH}.{name}", change)
    with pytest.raises(ValueError, match=error):
        draw.heads(trace, PATH, title=TITLE, batch=1, labels=LABELS)


def test_heads_refuse_a_run_with_dropout():
    trace, *_ = run(3, 3, 1, 1, 2, dropout=0.9)
    with pytest.raises(ValueError, match="must be weights · values"):
        draw.heads(trace, "", title=TITLE)


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ((3, 3, 1, 1, 5), "key=5, d_model=3, d_k=1, d_v=1"),
        ((5, 1, 1, 1, 2), "d_model=5"),
        ((4, 1, 4, 1, 2), "d_k=4"),
        ((4, 1, 1, 4, 2), "d_v=4"),
        ((4, 3, 2, 1, 2), r"head\*d_k=6"),
        ((4, 2, 1, 3, 2), r"head\*d_v=6"),
    ],
)
def test_heads_refuse_sizes_that_do_not_fit_on_a_page(sizes, error):
    with pytest.raises(ValueError, match=rf"at most key=4, .* got .*{error}"):
        draw.heads(run(*sizes)[0], "", title=TITLE)


@pytest.mark.parametrize("place", [(2, 0), (0, 2), (-1, 0), (0, -1)])
def test_heads_refuse_a_query_out_of_range(place):
    batch, query = place
    with pytest.raises(ValueError, match=f"query=2, key=2.*, got batch {batch}, query {query}"):
        draw.heads(traced(), PATH, title=TITLE, batch=batch, query=query)


def test_heads_refuse_a_run_without_heads_or_operations():
    trace = traced()
    flat = SimpleNamespace(value=torch.ones(2, 2, 2), axes=("batch", "query", "key"))
    with pytest.raises(ValueError, match=r"\(batch, head, query, key\), got \(batch=2, query=2"):
        draw.heads({**trace, f"{PATH}.weights": flat}, PATH, title=TITLE)
    model = example.model()
    with Trace(model, explain=False) as silent:
        model(example.src, example.tgt)
    with pytest.raises(ValueError, match="trace with explain=True"):
        draw.heads(silent, PATH, title=TITLE)


def test_shared_heads_weights_are_those_of_the_formula():
    trace = grouped(2)
    query, key = (trace[name].value[0] for name in ("rotary.turned", "rotary#2.turned"))
    drawing = figure("shared heads")
    for head in range(4):
        scores = query[head, 1] @ key[head // 2].T / 2**0.5
        dog, fish = scores.softmax(-1).tolist()
        assert f"Head {head} on kv head {head // 2}: dog {dog:.4f}; fish {fish:.4f}" in drawing.alt
        assert {f"{dog:.4f}", f"{fish:.4f}"} <= set(texts(drawing))


@pytest.mark.parametrize(
    ("name", "kv_heads"),
    {"shared heads": 2, "heads on one head": 1, "heads of their own": 4}.items(),
)
def test_shared_heads_cache_keeps_the_numbers_of_the_kv_heads(name, kv_heads):
    # Two tokens leave a key and a value of two numbers in each head of keys and values.
    assert figure(name).summary.endswith(f"cache  {8 * kv_heads} of 32 numbers")
    parts = [text for text in texts(figure(name)) if re.fullmatch(r"[KV] \d: 4", text)]
    assert parts == [f"{part} {number}: 4" for number in range(kv_heads) for part in "KV"]


def test_shared_heads_finds_a_layer_by_its_path_and_checks_its_size():
    layer = torch.nn.Sequential(GroupedQueryAttention(3, 2, 1, d_k=2)).double()
    with Trace(layer) as trace:
        layer(TABLE[None, 2:].double())
    drawing = draw.shared_heads(trace, "0", title=TITLE, labels=ASKED)
    assert "query heads: 2, heads of keys and values: 1." in drawing.alt
    layer = GroupedQueryAttention(3, 5, 1, d_k=2).double()
    with Trace(layer) as trace:
        layer(TABLE[None, 2:].double())
    with pytest.raises(ValueError, match=r"at most head=4, .* got head=5, key=2, d_k=2"):
        draw.shared_heads(trace, title=TITLE)


def test_shared_heads_refuses_scores_of_another_order_and_a_query_out_of_range():
    tiled = changed(grouped(2), "scores", lambda scores: scores[:, [0, 2, 1, 3]])
    with pytest.raises(ValueError, match="scores of head 1 must be those with the keys of kv head"):
        draw.shared_heads(tiled, title=TITLE)
    with pytest.raises(ValueError, match=r"batch=1, head=4.* got batch 0, query 2"):
        draw.shared_heads(grouped(2), title=TITLE, query=2)
