"""Figure of the residual stream: columns that match the trace, and traces that it rejects."""

import re

import pytest
import torch

pytest.importorskip("matplotlib")

from tests.course.figures import TITLE, changed, companion, figure, traced
from twelve_lab import draw

ENCODER, DECODER = "encoder.layers.0", "decoder.layers.0"


def stream(trace, layer=ENCODER, batch=1, position=0, **options):
    return draw.stream(trace, layer, title=TITLE, batch=batch, position=position, **options)


def test_stream_names_the_positions_that_an_attention_sees():
    def seen(drawing):
        words = [text.get_text() for text in drawing.figure.axes[0].texts]
        return [word for word in words if word.startswith("sees")]

    assert seen(stream(traced(), DECODER, 0, 0)) == ["sees tgt 0", "sees src 1"]  # src 0 is padding
    assert seen(figure("stream of a second decoder layer")) == [
        "sees 4 of 4 words", "sees 5 of 5 words",
    ]  # fmt: skip
    hidden = changed(traced(), f"{ENCODER}.self_attention.weights", torch.clone)
    hidden[f"{ENCODER}.self_attention.weights"].value[1, 0, 0, 0] = 0  # masked in one head only
    assert seen(stream(hidden)) == ["sees src 0, src 1"]
    hidden[f"{ENCODER}.self_attention.weights"].value.zero_()
    assert seen(stream(hidden)) == ["sees nothing"]


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize(
    "name",
    ["src_input", f"{ENCODER}.self_attention.output", f"{ENCODER}.feed_forward_residual.added"],
)
def test_stream_refuses_a_false_residual_sum(norm_first, name):
    trace = changed(traced(norm_first=norm_first), name, lambda x: x + 1e-3 * torch.eye(3)[0])
    with pytest.raises(ValueError, match=rf"{re.escape(name)}.*at d_model 0, .* is not -?\d"):
        stream(trace)


def test_stream_refuses_a_last_norm_with_another_input():
    with pytest.raises(ValueError, match=r"norm of memory reads numbers of mean 0\.0112, but .*"):
        stream(traced(), sublayers={"self_attention": "look"}, last_norm=True)
    with pytest.raises(ValueError, match="norm of memory reads"):
        stream(companion(), last_norm=True)


def test_stream_names_a_missing_tensor():
    trace = traced()
    for layer in ("encoder.layers.7", "encoder.layers", "encoder"):
        with pytest.raises(KeyError, match=f"no layer '{layer}'; the run has {ENCODER}, {DECODER}"):
            stream(trace, layer)
    with pytest.raises(KeyError, match=r"no layer 'encoder\.layers\.0'; the run has none"):
        stream({})
    with pytest.raises(KeyError, match=r"'layers\.0' is in none of the stacks encoder, decoder"):
        stream(trace, "layers.0")
    with pytest.raises(KeyError, match="cross_attention_residual"):
        stream(trace, sublayers={"cross_attention": "look across"})
    with pytest.raises(KeyError, match=r"encoder\.norm\.mean"):
        stream(traced(norm_first=False), last_norm=True)
    with pytest.raises(KeyError, match="src_input"):
        stream({name: entry for name, entry in trace.items() if name != "src_input"})


@pytest.mark.parametrize(
    ("trace", "options", "error"),
    [
        (traced, {"batch": 2}, "batch 2 is not one of the 2 of src_input"),
        (traced, {"position": 2}, "position 2 is not one of the 2 of src_input"),
        (traced, {"position": -1}, "position -1 is not one of the 2 of src_input"),
        (traced, {"position": ()}, "got 1 runs, 0 positions"),
        (list, {}, "0 runs, 1 positions"),
        (traced, {"sublayers": {}}, r"sublayers \{\}"),
    ],
)
def test_stream_refuses_a_token_out_of_range_and_nothing_to_draw(trace, options, error):
    with pytest.raises(ValueError, match=error):
        stream(trace(), **options)
