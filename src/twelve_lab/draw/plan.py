"""The architecture of the model: both stacks, box by box, with the sizes that a run really had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.prose import tell
from twelve_lab.show.palette import INK, PAPER, SHADE, SPOTLIGHT

if TYPE_CHECKING:
    from twelve_lab.trace.traced import Traced

WIDTH, HEIGHT, GAP, SIDE = 2.75, 0.34, 0.26, 0.44
ENCODER_X, DECODER_X = 0.0, 4.55
NUMBER = 0.24  # from the edge of a box to the middle of its step's number


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
        KeyError: A tensor of a box is not in the trace.
    """
    canvas = Canvas()
    for name, column, x in (("src ids", ENCODER, ENCODER_X), ("tgt ids", DECODER, DECODER_X)):
        # Each stack has its bypass on its outer side, where the memory's arrow does not cross it.
        side = -1 if column is ENCODER else 1
        _shade(canvas, column, x, side, trace)
        canvas.text(x + WIDTH / 2, -GAP - 0.1, name, size=12, bold=True)
        canvas.arrow((x + WIDTH / 2, -GAP), (x + WIDTH / 2, 0))
        for place, part in enumerate(column):
            _draw_part(canvas, column, place, x, side, _size(trace[part.tensor]))
    _hand_over(canvas)
    if shared:
        _join_tables(canvas)
    if tied:
        _join_output(canvas)
    canvas.text(DECODER_X + WIDTH / 2, _top(len(DECODER)) + 0.1, "logits", size=12, bold=True)
    summary = "\n".join(
        f"{part.step} {part.words:<27}  {_size(trace[part.tensor]):<12}  {part.tensor}"
        for part in (*ENCODER, *DECODER)
    )
    lines = ["the two embeddings, which are one table"] * shared
    lines += ["target embedding and output projection, which are one matrix"] * tied
    joined = "An arrow leads from the memory to cross-attention"
    joined += f". A dashed line joins {'; another joins '.join(lines)}" if lines else ""
    stacks = [_steps_in_words(column, trace) for column in (ENCODER, DECODER)]
    ends = [_size(trace[name]) for name in ("memory", "logits")]
    alt = tell(
        title,
        f"Encoder on the left, downwards: {stacks[0]}. Decoder on the right: {stacks[1]}. {joined}",
        f"Encoder on the left, {len(ENCODER)} boxes from source embedding to memory {ends[0]}; "
        f"decoder on the right, {len(DECODER)} boxes from target embedding to logits {ends[1]}. "
        f"{joined}",
    )
    return canvas.finish(title, alt, summary)


def _steps_in_words(column: tuple[Part, ...], trace: Mapping[str, Traced]) -> str:
    """List the boxes of a stack, with a size where it is another than before."""
    words, before = [], ""
    for part in column:
        size = _size(trace[part.tensor])
        words.append(part.words + f" {size}" * (size != before))
        before = size
    return "; ".join(words)


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
    canvas.text(edge, bottom - 0.12, words, size=SMALL_SIZE, align=align)


def _draw_part(
    canvas: Canvas, column: tuple[Part, ...], place: int, x: float, side: int, size: str
) -> None:
    part, top, middle = column[place], _top(place), x + WIDTH / 2
    lit = _in_layer(part) and "norm" in part.words
    canvas.box(x, top, WIDTH, HEIGHT, fill=SPOTLIGHT if lit else PAPER, edge=INK, line=1.0)
    canvas.text(x + NUMBER, top + HEIGHT / 2, part.step, bold=True)
    canvas.text(x + NUMBER * 2, top + HEIGHT / 2, part.words, align="left")
    canvas.arrow((middle, top + HEIGHT), (middle, top + HEIGHT + GAP))
    align = "left" if side < 0 else "right"
    height = top + HEIGHT + GAP / 2 - 0.03
    canvas.text(middle - side * 0.1, height, size, size=SMALL_SIZE, align=align)
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
    canvas.text(between - 0.08, below + 0.14, "key and value", size=SMALL_SIZE, align="right")


def _join_tables(canvas: Canvas) -> None:
    """Draw that both embeddings read one table."""
    height = HEIGHT / 2
    canvas.line([(ENCODER_X + WIDTH, height), (DECODER_X, height)], width=1.6, style="dashed")
    middle = (ENCODER_X + WIDTH + DECODER_X) / 2
    canvas.text(middle, height, "one table", size=SMALL_SIZE, paper=True)


def _join_output(canvas: Canvas) -> None:
    """Draw that the output projection multiplies by the target's table."""
    edge, around = DECODER_X + WIDTH, DECODER_X + WIDTH + SIDE + 0.28
    first, last = HEIGHT / 2, _top(len(DECODER) - 1) + HEIGHT / 2
    corners = [(edge, first), (around, first), (around, last), (edge, last)]
    canvas.line(corners, width=1.6, style="dashed")
    middle = (_top(0) + HEIGHT + _top(1)) / 2
    canvas.text(around, middle, "one matrix", size=SMALL_SIZE, paper=True)
