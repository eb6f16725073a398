"""Figures of attention heads: the tensors that they read, and the traces that they reject."""

import re
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("matplotlib")

from tests.course.figure_rules import place_problems
from tests.course.figures import ASKED, LABELS, PATH, TABLE, TITLE, changed, grouped, traced
from twelve import GroupedQueryAttention, MultiHeadAttention
from twelve_lab import Trace, draw, example


def line(drawing, name):
    """Read a vector from the summary."""
    return re.search(rf"^{name} +(.*)$", drawing.summary, re.M)[1].split(", ")


def run(d_model, heads, d_k, d_v, keys, mask=None):
    """Trace a random layer."""
    layer = MultiHeadAttention(d_model, heads, d_k=d_k, d_v=d_v)
    x = torch.randn(2, keys, d_model)
    with Trace(layer) as trace:
        layer(x, x, x, mask)
    return trace


def test_heads_without_a_visible_key_have_no_output():
    hidden = torch.zeros(1, 1, 2, 2, dtype=torch.bool)
    drawing = draw.heads(run(3, 3, 1, 1, 2, mask=hidden), "", title=TITLE)
    assert line(drawing, "merged") == line(drawing, "output") == ["0.0000"] * 3


def test_heads_with_a_long_alt_text_name_the_key_with_the_largest_weight():
    title = "A claim so long that no number has room beside it, " * 10
    trace = run(4, 4, 1, 1, 4)
    most = trace["weights"].value[0, :, 0].argmax(-1).tolist()
    expected = ", ".join(f"key {key}" for key in most)
    assert draw.heads(trace, "", title=title).alt.endswith(f"in each head: {expected}.")


@pytest.mark.parametrize("sizes", [(4, 4, 1, 1, 4), (4, 2, 2, 2, 4), (4, 1, 3, 3, 4)])
def test_heads_of_the_largest_sizes_fit_on_a_page(sizes):
    drawing = draw.heads(run(*sizes), "", title=TITLE, batch=1, query=3)
    width, height = drawing.figure.get_size_inches()
    assert width <= 9.4 and height <= 10
    assert not [problem for problem in place_problems(drawing) if "cut off" in problem]


def test_heads_report_a_missing_tensor_by_name():
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
        ("weights", lambda x: x / 2, r"the softmax of its scores, 0\.7665.*, got 0\.3832, 0\.1168"),
        ("value_heads", lambda x: -x, r"context of head 0 must be .* 1\.0307, got -1\.0307"),
        ("context", lambda x: x + 0.001, r"context of head 0 must be .*, got -1\.0297"),
        ("merged", lambda x: x.flip(-1), "merged must be the contexts side by side"),
    ],
)
def test_heads_refuse_a_number_that_does_not_follow_from_those_before(name, change, error):
    trace = changed(traced(), f"{PATH}.{name}", change)
    with pytest.raises(ValueError, match=error):
        draw.heads(trace, PATH, title=TITLE, batch=1, labels=LABELS)


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
        draw.heads(run(*sizes), "", title=TITLE)


@pytest.mark.parametrize(("batch", "query"), [(2, 0), (0, 2), (-1, 0), (0, -1)])
def test_heads_refuse_a_query_out_of_range(batch, query):
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


def test_shared_heads_finds_a_layer_by_its_path_and_checks_its_size():
    layer = torch.nn.Sequential(GroupedQueryAttention(3, 2, 1, d_k=2))
    with Trace(layer) as trace:
        layer(TABLE[None, 2:].double())
    drawing = draw.shared_heads(trace, "0", title=TITLE, labels=ASKED)
    assert "query heads: 2, heads of keys and values: 1." in drawing.alt
    layer = GroupedQueryAttention(3, 5, 1, d_k=2)
    with Trace(layer) as trace:
        layer(TABLE[None, 2:].double())
    with pytest.raises(ValueError, match=r"at most head=4, .* got head=5, key=2, d_k=2"):
        draw.shared_heads(trace, title=TITLE)


def test_shared_heads_refuses_scores_of_another_order():
    tiled = changed(grouped(2), "scores", lambda scores: scores[:, [0, 2, 1, 3]])
    with pytest.raises(ValueError, match="scores of head 1 must be those with the keys of kv head"):
        draw.shared_heads(tiled, title=TITLE)
