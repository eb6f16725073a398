"""Figure of the residual stream: its columns against the run, and the runs that it refuses."""

import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("matplotlib")


from tests.course.figure_rules import place_problems
from tests.course.figures import TITLE, texts, traced
from twelve_lab import Trace, draw, example
from twelve_lab.draw import Drawing
from twelve_lab.show.format import format_number

ENCODER, DECODER = "encoder.layers.0", "decoder.layers.0"
LOOK = {"self_attention": "look"}


@pytest.fixture(scope="module")
def pre() -> Trace:
    return traced()


@pytest.fixture(scope="module")
def post() -> Trace:
    return traced(norm_first=False)


@pytest.fixture(scope="module")
def companion() -> Trace:
    case = example.distinct
    model = case.model()
    with Trace(model) as trace:
        model(case.src, case.tgt, src_mask=case.src_mask, tgt_mask=case.tgt_mask)
    return trace


def stream(trace: object, layer: str, batch: int = 1, position: object = 0, **how: object):
    return draw.stream(trace, layer, title=TITLE, batch=batch, position=position, **how)


def columns(drawing: Drawing) -> list[list[str]]:
    """Read the numbers of the cells, column by column, from left to right and top to bottom."""
    numbers = [t for t in drawing.figure.axes[0].texts if re.match(r"-?\d\.\d", t.get_text())]
    found: dict[tuple, list[str]] = {}
    for text in sorted(numbers, key=lambda text: text.get_position()[1]):
        x, y = text.get_position()
        near = [key for key in found if abs(key[0] - x) < 0.05 and y - key[1] < 0.35]
        key = near[-1] if near else (x, y)
        found[x, y] = [*found.pop(key, []), text.get_text()]
    return [found[key] for key in sorted(found)]


def numbers(trace: Trace, name: str, batch: int = 1, position: int = 0) -> list[str]:
    return [format_number(value) for value in trace[name].value[batch, position].tolist()]


def changed(trace: Trace, name: str, change: float) -> dict:
    """Copy a run, with feature 0 of one tensor changed."""
    value = trace[name].value.clone()
    value[..., 0] += change
    return dict(trace) | {name: replace(trace[name], value=value)}


def test_stream_of_the_encoder_layer_by_hand(pre):
    """Feature 0 of dog: 0.7000 - 1.6546 = -0.9546, and then + 0.0154 = -0.9391 (-0.9392)."""
    drawn = columns(stream(pre, ENCODER, last_norm=True))
    first = [column[0] for column in drawn]
    assert first == "-0.2020 0.7000 -1.6546 -1.3237 -0.9546 0.0154 -0.9391 -1.1117".split()


@pytest.mark.parametrize(
    ("layer", "batch", "position"), [(ENCODER, 0, 1), (ENCODER, 1, 1), (DECODER, 1, 1)]
)
def test_every_column_of_the_stream_is_a_traced_tensor(pre, layer, batch, position):
    stack = layer.split(".")[0]
    sublayers = ["self_attention", "cross_attention", "feed_forward"]
    names = ["src_input" if stack == "encoder" else "tgt_input"]
    for sublayer in sublayers[:: 1 if stack == "decoder" else 2]:
        path = f"{layer}.{sublayer}"
        names += [f"{path}_residual.norm.output", f"{path}.output", f"{path}_residual.added"]
    names.append("memory" if stack == "encoder" else "decoder_output")
    expected = [numbers(pre, name, batch, position) for name in names]
    if stack == "decoder":
        expected += [numbers(pre, "memory", batch, src) for src in (0, 1)]
    drawn = columns(stream(pre, layer, batch, position, last_norm=True))
    assert sorted(drawn) == sorted(expected)


@pytest.mark.parametrize("layer", ["encoder.layers.1", "decoder.layers.1"])
def test_stream_keeps_long_names_apart(companion, layer):
    """The lengths of the axes all differ, and most numbers are left out."""
    drawing = stream(companion, layer, 1, 3, last_norm=True)
    assert list(place_problems(drawing)) == []
    assert {"…", "23"} <= set(texts(drawing)) and "4" not in texts(drawing)


def test_stream_names_the_positions_that_an_attention_sees(pre, companion):
    def seen(*where: object) -> list[str]:
        return [word for word in texts(stream(*where)) if word.startswith("sees")]

    assert seen(pre, ENCODER, 0, 0) == ["sees src 1"]  # src 0 is padding
    assert seen(pre, DECODER, 0, 0) == ["sees tgt 0", "sees src 1"]  # and the future is hidden
    assert seen(pre, DECODER, 1, 1) == ["sees tgt 0, tgt 1", "sees src 0, src 1"]
    assert seen(companion, DECODER, 1, 3) == ["sees 4 of 4 words", "sees 5 of 5 words"]
    assert seen(companion, DECODER, 0, 2) == [
        "sees tgt 0, tgt 1, tgt 2", "sees src 0, src 1, src 2",
    ]  # fmt: skip
    name = f"{ENCODER}.self_attention.weights"
    hidden = changed(pre, name, 0.0)
    hidden[name].value[1, 0, 0, 0] = 0  # one head alone looks past it
    assert seen(hidden, ENCODER, 1, 0) == ["sees src 0, src 1"]
    hidden[name].value.zero_()
    assert seen(hidden, ENCODER, 1, 0) == ["sees nothing"]


def test_stream_of_the_second_layer_starts_with_the_output_of_the_first(companion):
    drawing = stream(companion, "encoder.layers.1", 1, 4, last_norm=True)
    assert "x: encoder.layers.0.feed_forward_residual.added" in drawing.summary
    below = example.distinct.model(norm_first=False)
    with Trace(below) as trace:
        below(example.distinct.src, example.distinct.tgt)
    drawing = stream(trace, "decoder.layers.1", 1, 3)
    assert "x: decoder.layers.0.feed_forward_residual.norm.output" in drawing.summary


def test_stream_of_one_sublayer_starts_with_the_output_of_the_sublayer_before(pre):
    drawing = stream(pre, DECODER, sublayers={"cross_attention": "look across"})
    assert "x: self_attention_residual.added" in drawing.summary
    assert {"y = x + look across", "keys and values", "memory"} <= set(texts(drawing))


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("term", ["src_input", ".self_attention.output", "_residual.added"])
def test_stream_refuses_a_false_residual_sum(pre, post, norm_first, term):
    trace = pre if norm_first else post
    name = {
        "src_input": "src_input",
        ".self_attention.output": f"{ENCODER}.self_attention.output",
        "_residual.added": f"{ENCODER}.feed_forward_residual.added",
    }[term]
    with pytest.raises(ValueError, match=rf"{re.escape(name)}.*at d_model 0, .* is not -?\d"):
        stream(changed(trace, name, 1e-3), ENCODER)


def test_stream_refuses_a_run_with_dropout():
    torch.manual_seed(0)
    model = example.model()
    model.encoder.layers[0].self_attention_residual.dropout.p = 0.5
    with Trace(model.train()) as trace:
        model(example.src, example.tgt)
    with pytest.raises(ValueError, match=r"self_attention_residual\.added: at d_model"):
        stream(trace, ENCODER)


def test_stream_refuses_sublayers_out_of_order(pre):
    swapped = {"feed_forward": "think", "self_attention": "look"}
    with pytest.raises(ValueError, match=r"feed_forward_residual\.added plus .*self_attention"):
        stream(pre, ENCODER, sublayers=swapped)


def test_stream_refuses_a_last_norm_with_another_input(pre, companion):
    with pytest.raises(ValueError, match=r"norm of memory reads numbers of mean 0\.0112, but .*"):
        stream(pre, ENCODER, sublayers=LOOK, last_norm=True)
    with pytest.raises(ValueError, match="norm of memory reads"):
        stream(companion, ENCODER, last_norm=True)


def test_stream_names_a_missing_tensor(pre, post):
    for layer in ("encoder.layers.7", "encoder.layers", "encoder"):
        with pytest.raises(KeyError, match=f"no layer '{layer}'; the run has {ENCODER}, {DECODER}"):
            stream(pre, layer)
    with pytest.raises(KeyError, match=r"no layer 'encoder\.layers\.0'; the run has none"):
        stream({}, ENCODER)
    with pytest.raises(KeyError, match=r"'layers\.0' is in none of the stacks encoder, decoder"):
        stream(pre, "layers.0")
    with pytest.raises(KeyError, match="cross_attention_residual"):
        stream(pre, ENCODER, sublayers={"cross_attention": "look across"})
    with pytest.raises(KeyError, match=r"encoder\.norm\.mean"):
        stream(post, ENCODER, last_norm=True)
    for name in ("src_input", f"{ENCODER}.self_attention.output"):
        with pytest.raises(KeyError, match=name):
            stream({other: pre[other] for other in pre if other != name}, ENCODER)


def test_stream_refuses_a_token_out_of_range(pre):
    with pytest.raises(ValueError, match="batch 2 is not one of the 2 of src_input"):
        stream(pre, ENCODER, 2)
    for position in (2, -1):
        with pytest.raises(ValueError, match=f"position {position} is not one of the 2 of src_inp"):
            stream(pre, ENCODER, 1, position)
    with pytest.raises(ValueError, match="got 1 runs, 0 positions"):
        stream(pre, ENCODER, 1, ())
    with pytest.raises(ValueError, match="0 runs, 1 positions"):
        stream([], ENCODER)
    with pytest.raises(ValueError, match=r"sublayers \{\}"):
        stream(pre, ENCODER, sublayers={})
