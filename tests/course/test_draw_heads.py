"""The figure of one query's way through attention: its numbers, its moves, and what it refuses."""

import math
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex
from torch.testing import assert_close

from tests.course.figure_rules import place_problems
from tests.course.figures import LABELS, PATH, TITLE, figure, texts, traced
from twelve import MultiHeadAttention, causal_mask
from twelve_lab import Trace, draw, example
from twelve_lab.draw.heads import BAR
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import QUIET, weight_fill

FIGURES = ("heads", "heads with a hidden key", "one head", "two wide heads")
# The rows of "dog" and "fish" and the matrices, as notebook 04 prints them.
DOG, FISH = (-0.2020, 1.3131, -1.1111), (1.3219, -0.2257, -1.0962)
W_Q = ((-1, 0.5, 1), (1, 0, 0.5), (0, 0.5, 0.5))
W_K = ((0, -0.5, 0), (0.5, 1, 1), (-1, -0.5, -0.5))
W_V = ((0, -1, -1), (-0.5, 1, -1), (0.5, -1, 0.5))


def dot(one, other):
    return sum(x * y for x, y in zip(one, other, strict=True))


def times(row, matrix):
    return [dot(row, column) for column in zip(*matrix, strict=True)]


def drawn_numbers(drawing):
    return sorted(text for text in texts(drawing) if re.fullmatch(r"-?\d+\.\d{4}|-inf", text))


def line(drawing, name):
    """Read one vector from the summary."""
    found = re.search(rf"^{name} +(.*)$", drawing.summary, re.M)[1]
    return [float(number) for number in re.findall(r"-?\d+\.\d+", found)]


def run(d_model, heads, d_k, d_v, keys, mask=None, **more):
    """Trace a random layer on its own; return the trace, the input and the layer."""
    torch.manual_seed(9)
    layer = MultiHeadAttention(d_model, heads, d_k=d_k, d_v=d_v, **more)
    x = torch.randn(2, keys, d_model)
    with Trace(layer) as trace:
        layer(x, x, x, mask)
    return trace, x, layer


def changed(trace, name, change):
    """Give the run with other numbers under one name."""
    entry = trace[f"{PATH}.{name}"]
    value = change(entry.value.clone())
    return {**trace, f"{PATH}.{name}": SimpleNamespace(value=value, axes=entry.axes)}


# By hand


def test_the_numbers_of_dog_are_those_of_pencil_and_paper():
    query = times(DOG, W_Q)
    keys, values = ([times(x, matrix) for x in (DOG, FISH)] for matrix in (W_K, W_V))
    match = [dot(query, key) for key in keys]
    scores = [number / math.sqrt(3) for number in match]
    weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
    wanted = [*DOG, *query, *keys[0], *keys[1], *match, *scores, *weights, *values[0], *values[1],
              *times(weights, values)]  # fmt: skip
    found = sorted(map(float, drawn_numbers(figure("one head"))))
    # Paper has four decimals.
    assert_close(torch.tensor(found), torch.tensor(sorted(wanted)), atol=3e-4, rtol=0)


def test_the_picture_says_the_numbers_of_the_notebooks():
    assert {"1.6796", "0.9697", "0.5693", "÷ √3: scores"} <= set(texts(figure("one head")))
    assert {"-1.2932", "0.2223", "0.8199", "0.1030"} <= set(texts(figure("heads")))


# Against an oracle


@pytest.mark.parametrize(
    ("sizes", "masked"),
    [((3, 3, 1, 1, 2), False), ((4, 2, 2, 1, 4), True), ((4, 1, 3, 2, 3), True)],
)
def test_the_answer_is_that_of_torch(sizes, masked):
    mask = causal_mask(sizes[-1]) if masked else None
    trace, x, layer = run(*sizes, mask=mask)
    drawing = draw.heads(trace, "", title=TITLE, batch=1, query=1)
    heads = [w(x).unflatten(-1, (sizes[1], -1)).transpose(1, 2)
             for w in (layer.w_q, layer.w_k, layer.w_v)]  # fmt: skip
    blended = F.scaled_dot_product_attention(*heads, mask).transpose(1, 2).flatten(2)
    several = sizes[1] > 1
    found = line(drawing, "merged" if several else "context")
    assert found == [float(format_number(n)) for n in blended[1, 1].tolist()]
    if several:
        output = layer(x, x, x, mask)[1, 1].tolist()
        assert line(drawing, "output") == [float(format_number(n)) for n in output]


# Laws


@pytest.mark.parametrize("name", FIGURES)
def test_every_number_is_drawn_once_and_printed(name):
    drawing = figure(name)
    printed = re.findall(r"-?\d+\.\d{4}|-inf", drawing.summary)
    if "merged" in drawing.summary:
        # Each answer stands in its lane and again among the merged.
        printed += [format_number(number) for number in line(drawing, "merged")]
    assert drawn_numbers(drawing) == sorted(printed)


def test_a_bar_is_as_long_as_its_weight():
    trace = traced()
    patches = figure("heads").figure.axes[0].patches
    grey = [patch for patch in patches if to_hex(patch.get_facecolor()) == weight_fill(0.5)]
    bars = torch.tensor([patch.get_width() / BAR for patch in grey])
    assert_close(bars, trace[f"{PATH}.weights"].value[1, :, 0].flatten())


def test_the_numbers_of_a_key_stand_in_its_row_under_the_names_of_their_columns():
    drawing = figure("one head")
    places = {text.get_position(): text.get_text() for text in drawing.figure.axes[0].texts}
    for key in ("dog", "fish"):
        height = next(y for (_, y), text in places.items() if text == key)
        row = [text for (_, y), text in sorted(places.items()) if y == pytest.approx(height)]
        row = [text for text in row if re.match(r"-?\d", text)]
        assert row == re.search(rf"{key} +(.*\d\.\d{{4}})$", drawing.summary, re.M)[1].split()
    left = {text: x for (x, _), text in places.items()}
    assert left["key"] == left["each x by W_K"] < left["value"] == left["each x by W_V"]
    assert left["match"] == left["query · key"] < left["scale"] < left["share"] == left["weights"]


def test_the_row_that_asks_is_the_one_that_the_projection_reads():
    asked = {
        (PATH, True): "encoder.layers.0.self_attention_residual.norm.output",
        (PATH, False): "src_input",
        ("decoder.layers.0.cross_attention", True):
            "decoder.layers.0.cross_attention_residual.norm.output",
    }  # fmt: skip
    for (path, norm_first), name in asked.items():
        trace = traced(norm_first=norm_first)
        found = line(draw.heads(trace, path, title=TITLE, batch=1, query=1), "x")
        assert found == [float(format_number(n)) for n in trace[name].value[1, 1].tolist()]


def test_a_hidden_key_has_a_cross_no_score_and_no_weight():
    drawing = figure("heads with a hidden key")
    assert texts(drawing).count("-inf") == 3 and texts(drawing).count("0.0000") == 3
    assert drawing.alt.count("<pad> hidden; cat weight 1.0000") == 3
    assert "x of cat (d_model)" in texts(drawing) and "Cat asks 2 keys" in drawing.alt
    assert "-inf" not in texts(figure("heads")) and "hidden" not in figure("heads").alt
    crosses = [line for line in drawing.figure.axes[0].lines if line.get_color() == QUIET]
    assert len(crosses) == 2 * 3


def test_a_query_that_may_look_nowhere_has_no_answer():
    trace, *_ = run(3, 3, 1, 1, 2, mask=torch.zeros(1, 1, 2, 2, dtype=torch.bool))
    drawing = draw.heads(trace, "", title=TITLE)
    assert line(drawing, "merged") == line(drawing, "output") == [0, 0, 0]


@pytest.mark.parametrize("name", FIGURES)
def test_the_moves_have_the_names_of_the_notebooks(name):
    drawing = figure(name)
    bold = {t.get_text() for t in drawing.figure.axes[0].texts if t.get_weight() == "bold"}
    assert {"match", "scale", "share", "blend"} <= bold
    several = name != "one head"
    assert {"split", "merge"} & bold == ({"split", "merge"} if several else set())
    assert ("W_O" in texts(drawing)) is several


def test_the_alt_text_follows_each_head_from_the_query_to_the_answer():
    assert figure("one head").alt.endswith(
        "Dog asks 2 keys. x: -0.2020, 1.3131, -1.1111. Query 1.5152, -0.6566, -0.1010: "
        "dog match 1.1963, score 0.6907, weight 0.4307; "
        "fish match 1.6796, score 0.9697, weight 0.5693; context -0.7698, 0.8741, -1.6539."
    )
    alt = figure("heads").alt
    assert "Head 1, query -0.6566: dog weight 0.1801; fish weight 0.8199; context 0.1030." in alt
    assert alt.endswith("Merged: -1.0307, 0.1030, -1.6546; times W_O: -1.6546, -0.2090, -0.1030.")


def test_a_long_alt_text_says_where_each_head_looks_most():
    trace, *_ = run(4, 4, 1, 1, 4)
    alt = draw.heads(trace, "", title=TITLE).alt
    most = trace["weights"].value[0, :, 0].argmax(-1).tolist()
    assert all(f"head {head} most at key {key}" in alt for head, key in enumerate(most))
    hidden = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    long = "A claim so long that no number has room beside it, " * 10
    alt = draw.heads(run(4, 4, 1, 1, 4, mask=hidden)[0], "", title=long).alt
    assert "head 3 at nothing" in alt


@pytest.mark.parametrize("sizes", [(4, 4, 1, 1, 4), (4, 2, 2, 2, 4), (4, 1, 3, 3, 4)])
def test_the_largest_picture_fits_a_page(sizes):
    drawing = draw.heads(run(*sizes)[0], "", title=TITLE, batch=1, query=3)
    width, height = drawing.figure.get_size_inches()
    assert width <= 9.4 and height <= 10
    assert not [problem for problem in place_problems(drawing) if "cut off" in problem]


# Errors


def test_a_tensor_that_is_missing_is_named():
    trace = traced()
    with pytest.raises(KeyError, match="weights"):
        draw.heads({}, PATH, title=TITLE)
    with pytest.raises(KeyError, match=r"no_such\.weights"):
        draw.heads(trace, "no_such", title=TITLE)
    with pytest.raises(KeyError, match="merged"):
        part = {name: entry for name, entry in trace.items() if not name.endswith(".merged")}
        draw.heads(part, PATH, title=TITLE)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("masked_scores", lambda x: x + 1, r"scores of head 0: 3\.6783, 2\.4899, but query · key"),
        ("query_heads", lambda x: x * 3, "scores of head 0: 2.6783, 1.4899, but query"),
        (
            "weights",
            lambda x: x / 2,
            r"weights of head 0: 0\.3832, 0\.1168, but the softmax of its",
        ),
        ("weights", lambda x: x.flip(-1), r"but the softmax of its scores: 0\.7665, 0\.2335"),
        ("value_heads", lambda x: -x, r"context of head 0: -1\.0307, but the blend .*: 1\.0307"),
        ("context", lambda x: x + 0.001, r"context of head 0: -1\.0297, but the blend of its"),
        ("merged", lambda x: x.flip(-1), "merged: -1.6546, 0.1030, -1.0307, but the contexts side"),
    ],
)
def test_a_false_step_is_never_drawn(name, change, words):
    trace = changed(traced(), name, change)
    with pytest.raises(ValueError, match=words):
        draw.heads(trace, PATH, title=TITLE, batch=1, labels=LABELS)


def test_dropped_weights_are_refused():
    trace, *_ = run(3, 3, 1, 1, 2, dropout=0.9)
    with pytest.raises(ValueError, match="but the blend of its values"):
        draw.heads(trace, "", title=TITLE)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((3, 3, 1, 1, 5), "key=5, d_model=3, d_k=1, d_v=1, .*at most key=4, d_model=4, d_k=3"),
        ((5, 1, 1, 1, 2), "d_model=5"),
        ((4, 1, 4, 1, 2), "d_k=4"),
        ((4, 1, 1, 4, 2), "d_v=4"),
        ((4, 3, 2, 1, 2), r"head\*d_k=6"),
        ((4, 2, 1, 3, 2), r"head\*d_v=6"),
    ],
)
def test_what_is_too_large_is_refused_with_its_sizes(sizes, words):
    with pytest.raises(ValueError, match=f"too large to be drawn: .*{words}"):
        draw.heads(run(*sizes)[0], "", title=TITLE)


@pytest.mark.parametrize("place", [(2, 0), (0, 2), (-1, 0), (0, -1)])
def test_a_query_that_is_not_there_is_refused(place):
    batch, query = place
    words = rf"batch {batch}, query {query} is not in weights \(batch=2, head=3, query=2, key=2\)"
    with pytest.raises(ValueError, match=words):
        draw.heads(traced(), PATH, title=TITLE, batch=batch, query=query)


def test_a_run_without_heads_or_without_operations_is_refused():
    trace = traced()
    flat = SimpleNamespace(value=torch.ones(2, 2, 2), axes=("batch", "query", "key"))
    with pytest.raises(ValueError, match=r"\(batch=2, query=2, key=2\), not \(batch, head, query"):
        draw.heads({**trace, f"{PATH}.weights": flat}, PATH, title=TITLE)
    model = example.model()
    with Trace(model, explain=False) as silent:
        model(example.src, example.tgt)
    with pytest.raises(ValueError, match="trace with explain=True"):
        draw.heads(silent, PATH, title=TITLE)


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"labels\['key'\] has 1 names, but axis key has size 2"):
        draw.heads(traced(), PATH, title=TITLE, labels={"key": ["dog"]})
