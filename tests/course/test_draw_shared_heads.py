"""The figure of heads that share: its numbers, its lines, its cache, and what it refuses."""

import re
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("matplotlib")

from tests.course.figures import ASKED, TABLE, TITLE, figure, grouped, texts
from twelve import GroupedQueryAttention
from twelve_lab import Trace, draw
from twelve_lab.show.palette import INK

FIGURES = {"shared heads": 2, "heads on one head": 1, "heads of their own": 4}


def lines(drawing):
    """Give the two ends of each line that leads from a head to the one that it shares."""
    drawn = drawing.figure.axes[0].lines
    return [one.get_xydata() for one in drawn if one.get_color() == INK]


def changed(trace, name, change):
    entry = trace[name]
    other = SimpleNamespace(value=change(entry.value.clone()), axes=entry.axes)
    return {**trace, name: other}


def test_the_numbers_are_those_of_the_formula():
    trace = grouped(2)
    query, key = (trace[name].value[0] for name in ("rotary.turned", "rotary#2.turned"))
    drawing = figure("shared heads")
    for head in range(4):
        scores = query[head, 1] @ key[head // 2].T / 2**0.5
        dog, fish = scores.softmax(-1).tolist()
        told = f"ead {head} on kv head {head // 2}: dog {dog:.4f}; fish {fish:.4f}"
        assert told in drawing.alt
        assert {f"{dog:.4f}", f"{fish:.4f}"} <= set(texts(drawing))


@pytest.mark.parametrize(("name", "kv_heads"), FIGURES.items())
def test_the_cache_is_as_long_as_what_is_kept(name, kv_heads):
    drawing = figure(name)
    # Two tokens leave a key and a value of two numbers in each head of keys and values.
    kept = 8 * kv_heads
    assert drawing.summary.endswith(f"cache  {kept} of 32 numbers")
    assert (f"not kept: {32 - kept}" in texts(drawing)) == (kept < 32)
    parts = [text for text in texts(drawing) if re.fullmatch(r"[KV] \d: 4", text)]
    assert parts == [f"{name} {number}: 4" for number in range(kv_heads) for name in "KV"]


@pytest.mark.parametrize(("name", "kv_heads"), FIGURES.items())
def test_a_line_leads_from_each_head_to_the_one_that_it_shares(name, kv_heads):
    places = sorted(points[:, 0].tolist() for points in lines(figure(name)))
    starts, ends = zip(*places, strict=True)
    group = 4 // kv_heads
    assert len(set(starts)) == 4
    # What is shared stands below the middle of those that share it.
    assert ends == pytest.approx(
        [sum(starts[h // group * group :][:group]) / group for h in range(4)]
    )
    assert [sorted(set(ends)).index(end) for end in ends] == [h * kv_heads // 4 for h in range(4)]


@pytest.mark.parametrize("name", FIGURES)
def test_every_number_of_the_picture_is_in_the_summary(name):
    numbers = {text for text in texts(figure(name)) if re.fullmatch(r"-?\d\.\d{4}", text)}
    assert len(numbers) > 10
    assert numbers <= set(re.findall(r"-?\d\.\d{4}", figure(name).summary))


def test_what_is_kept_is_called_what_it_is():
    keys, values = figure("shared heads").summary.split("\nkeys\n")[1].split("\nvalues\n")
    for name, width, block in (("key", "d_k", keys), ("value", "d_v", values)):
        head, *rows = block.splitlines()[:5]
        assert head.split() == [width, "0", "1"]
        found = [re.search(r"(\w+ \w+) +-?\d\.", row)[1] for row in rows]
        assert found == 2 * [f"{name} dog", f"{name} fish"]


def test_a_layer_inside_another_is_found_by_its_path():
    layer = torch.nn.Sequential(GroupedQueryAttention(3, 2, 1, d_k=2)).double()
    with Trace(layer) as trace:
        layer(TABLE[None, 2:].double())
    drawing = draw.shared_heads(trace, "0", title=TITLE, labels=ASKED)
    assert "Dog asks in 2 heads on 1 head of keys and values" in drawing.alt


def test_scores_of_another_order_are_refused():
    tiled = changed(grouped(2), "scores", lambda scores: scores[:, [0, 2, 1, 3]])
    with pytest.raises(ValueError, match=r"head 1 scores .*, but with the keys of kv head 0"):
        draw.shared_heads(tiled, title=TITLE)


def test_a_query_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"batch 0, query 2 is not in weights \(batch=1, head=4"):
        draw.shared_heads(grouped(2), title=TITLE, query=2)
    with pytest.raises(ValueError, match="batch 1, query 0 is not in weights"):
        draw.shared_heads(grouped(2), title=TITLE, batch=1)


def test_what_cannot_be_printed_is_refused():
    layer = GroupedQueryAttention(3, 5, 1, d_k=2).double()
    with Trace(layer) as trace:
        layer(TABLE[None, 2:].double())
    with pytest.raises(ValueError, match="too large to be drawn: head=5, key=2, d_k=2; at most"):
        draw.shared_heads(trace, title=TITLE)
