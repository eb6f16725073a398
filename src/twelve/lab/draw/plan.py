"""The plan of the whole model: both stacks, box by box, with the sizes that a run really had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from twelve.lab.draw.canvas import Canvas
from twelve.lab.draw.drawing import Drawing
from twelve.lab.palette import INK, PAPER, SHADE, SPOTLIGHT

if TYPE_CHECKING:
    from twelve.lab.traced import Traced

WIDTH, HEIGHT, GAP, SIDE = 2.5, 0.34, 0.3, 0.44
ENCODER_X, DECODER_X = 0.0, 4.2


class Part(NamedTuple):
    """One box: the step that teaches it, its words, and the traced tensor that leaves it."""

    step: str
    words: str
    tensor: str


def _sublayer(path: str, step: str, words: str) -> tuple[Part, Part]:
    return (
        Part(step, words, f"{path}.output"),
        Part("08", "+ what went in", f"{path}_residual.added"),
    )


ENCODER = (
    Part("02", "source embedding", "src_embedding.vectors"),
    Part("03", "+ positions", "src_input"),
    *_sublayer("encoder.layers.0.self_attention", "06", "norm, self-attention"),
    *_sublayer("encoder.layers.0.feed_forward", "09", "norm, feed-forward"),
    Part("07", "last norm = memory", "memory"),
)
DECODER = (
    Part("02", "target embedding", "tgt_embedding.vectors"),
    Part("03", "+ positions", "tgt_input"),
    *_sublayer("decoder.layers.0.self_attention", "06", "norm, causal self-attention"),
    *_sublayer("decoder.layers.0.cross_attention", "06", "norm, cross-attention"),
    *_sublayer("decoder.layers.0.feed_forward", "09", "norm, feed-forward"),
    Part("07", "last norm", "decoder_output"),
    Part("12", "output projection", "logits"),
)


def plan(
    trace: Mapping[str, Traced], *, title: str, shared: bool = False, tied: bool = False
) -> Drawing:
    """Draw encoder and decoder side by side, every box with what left it in a run.

    Args:
        trace: A run of a pre-norm Transformer.
        title: The claim of the figure.
        shared: Whether to join the two embeddings by a dashed line: one table for both.
        tied: Whether to join target embedding and output projection: one matrix for both.

    Returns:
        Two columns, read from top to bottom; the layers stand on a shaded ground, and a line
        around each sublayer carries past it what went in.

    Raises:
        KeyError: A tensor of the plan is not in the trace.
    """
    canvas = Canvas()
    for name, column, x in (("src ids", ENCODER, ENCODER_X), ("tgt ids", DECODER, DECODER_X)):
        # Each stack has its bypass on its outer side, where the memory's arrow does not cross it.
        side = -1 if column is ENCODER else 1
        _shade(canvas, column, x, side, trace)
        canvas.text(x + WIDTH / 2, -GAP - 0.1, name, size=11, bold=True)
        canvas.arrow((x + WIDTH / 2, -GAP), (x + WIDTH / 2, 0))
        for place, part in enumerate(column):
            _draw_part(canvas, column, place, x, side, _size(trace[part.tensor]))
    _hand_over(canvas)
    if shared:
        _join_tables(canvas)
    if tied:
        _join_output(canvas)
    canvas.text(DECODER_X + WIDTH / 2, _top(len(DECODER)) + 0.1, "logits", size=11, bold=True)
    summary = "\n".join(
        f"{part.step} {part.words:<27}  {_size(trace[part.tensor]):<12}  {part.tensor}"
        for part in (*ENCODER, *DECODER)
    )
    alt = (
        f"{title}. Plan of the model: the encoder's boxes on the left, the decoder's on the right, "
        "an arrow from the memory to the decoder's cross-attention."
        + " A dashed line joins the two embeddings, which are one table." * shared
        + " A dashed line joins target embedding and output projection, which are one matrix."
        * tied
    )
    return canvas.finish(title, alt, summary)


def _top(place: int) -> float:
    return place * (HEIGHT + GAP)


def _size(entry: Traced) -> str:
    return str(entry.shape)


def _in_layer(part: Part) -> bool:
    return ".layers." in part.tensor


def _shade(
    canvas: Canvas, column: tuple[Part, ...], x: float, side: int, trace: Mapping[str, Traced]
) -> None:
    """Lay a ground under the layers, and count them by the names in the run."""
    places = [place for place, part in enumerate(column) if _in_layer(part)]
    stack = column[places[0]].tensor.split(".")[0]
    layers = len({name.split(".")[2] for name in trace if name.startswith(f"{stack}.layers.")})
    top, bottom = _top(places[0]) - 0.16, _top(places[-1]) + HEIGHT + 0.24
    canvas.box(x - SIDE, top, WIDTH + 2 * SIDE, bottom - top, fill=SHADE, line=0)
    words = f"{stack}: {layers} layer{'s' if layers > 1 else ''}"
    edge = x + WIDTH / 2 + side * (WIDTH / 2 + SIDE - 0.08)
    align = "left" if side < 0 else "right"
    canvas.text(edge, bottom - 0.12, words, size=9.5, align=align)


def _draw_part(
    canvas: Canvas, column: tuple[Part, ...], place: int, x: float, side: int, size: str
) -> None:
    part, top, middle = column[place], _top(place), x + WIDTH / 2
    lit = _in_layer(part) and "norm" in part.words
    canvas.box(x, top, WIDTH, HEIGHT, fill=SPOTLIGHT if lit else PAPER, edge=INK, line=1.0)
    canvas.text(middle, top + HEIGHT / 2, f"{part.step}  {part.words}", size=10)
    canvas.arrow((middle, top + HEIGHT), (middle, top + HEIGHT + GAP))
    align = "left" if side < 0 else "right"
    canvas.text(middle - side * 0.1, top + HEIGHT + GAP / 2 - 0.03, size, size=9.5, align=align)
    if lit:
        edge = middle + side * WIDTH / 2
        around = edge + side * SIDE / 2
        start, back = top - GAP / 2, _top(place + 1) + HEIGHT / 2
        canvas.line([(middle, start), (around, start), (around, back)], width=1.2)
        canvas.arrow((around, back), (edge, back))


def _hand_over(canvas: Canvas) -> None:
    """Lead the memory into the decoder's cross-attention."""
    target = next(i for i, part in enumerate(DECODER) if "cross" in part.words)
    below = _top(len(ENCODER) - 1) + HEIGHT + GAP
    between = (ENCODER_X + WIDTH + DECODER_X) / 2
    height = _top(target) + HEIGHT / 2
    start = ENCODER_X + WIDTH / 2
    canvas.line([(start, below), (between, below), (between, height)], width=1.6)
    canvas.arrow((between, height), (DECODER_X, height), width=1.6)
    canvas.text(between - 0.08, below + 0.14, "key and value", size=9.5, align="right")


def _join_tables(canvas: Canvas) -> None:
    """Draw that both embeddings read one table."""
    height = HEIGHT / 2
    canvas.line([(ENCODER_X + WIDTH, height), (DECODER_X, height)], width=1.6, style="dashed")
    middle = (ENCODER_X + WIDTH + DECODER_X) / 2
    canvas.text(middle, height, "one table", size=9.5, paper=True)


def _join_output(canvas: Canvas) -> None:
    """Draw that the output projection multiplies by the target's table."""
    edge, around = DECODER_X + WIDTH, DECODER_X + WIDTH + SIDE + 0.28
    first, last = HEIGHT / 2, _top(len(DECODER) - 1) + HEIGHT / 2
    corners = [(edge, first), (around, first), (around, last), (edge, last)]
    canvas.line(corners, width=1.6, style="dashed")
    middle = (_top(0) + HEIGHT + _top(1)) / 2
    canvas.text(around, middle, "one matrix", size=9.5, paper=True)
