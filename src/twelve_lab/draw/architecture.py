"""Figures of whole models: stacks of boxes, each with the shape of its output in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from twelve_lab.draw.alt_text import alt_text
from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.messages import message, plural
from twelve_lab.show.palette import INK, PAPER, PART_FILLS, QUIET, SHADE, SPOTLIGHT

if TYPE_CHECKING:
    from twelve_lab.trace.traced import Traced

WIDTH, HEIGHT, GAP, SIDE = 2.75, 0.34, 0.26, 0.44
ENCODER_X, DECODER_X = 0.0, 4.55
NUMBER = 0.24  # from the edge of a box to the middle of its step number


class Part(NamedTuple):
    """One box of `plan`: the step that teaches it, its words, and the tensor that leaves it."""

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
    """Draw encoder and decoder side by side, every box with the shape of its output in a run.

    Args:
        trace: A run of a pre-norm Transformer.
        title: Claim of the figure.
        shared: Whether to join the two embeddings by a dashed line: one table for both.
        tied: Whether to join target embedding and output projection: one matrix for both.

    Returns:
        Two columns, read from top to bottom. The layers have a shaded background; a line
        around each sublayer is the residual connection.

    Raises:
        KeyError: If a tensor of a box is not in the trace.
    """
    canvas = Canvas()
    for name, column, x in (("src ids", ENCODER, ENCODER_X), ("tgt ids", DECODER, DECODER_X)):
        # The residual connections are on the outer side, away from the arrow of the memory.
        side = -1 if column is ENCODER else 1
        _shade(canvas, column, x, side, trace)
        canvas.text(x + WIDTH / 2, -GAP - 0.1, name, size=12, bold=True)
        canvas.arrow((x + WIDTH / 2, -GAP), (x + WIDTH / 2, 0))
        for row, part in enumerate(column):
            _draw_part(canvas, column, row, x, side, str(trace[part.tensor].shape))
    between = (ENCODER_X + WIDTH + DECODER_X) / 2
    below = _top(len(ENCODER) - 1) + HEIGHT + GAP
    cross = next(row for row, part in enumerate(DECODER) if "cross" in part.words)
    start = ENCODER_X + WIDTH / 2
    _lead_memory(canvas, [(start, below), (between, below)], _top(cross) + HEIGHT / 2, DECODER_X)
    words = message("key and value")
    canvas.text(between - 0.08, below + 0.14, words, size=SMALL_SIZE, align="right")
    joined = []
    if shared:
        joined.append(message("source and target embedding"))
        canvas.line([(ENCODER_X + WIDTH, HEIGHT / 2), (DECODER_X, HEIGHT / 2)], width=1.6,
                    style="dashed")  # fmt: skip
        canvas.text(between, HEIGHT / 2, message("one table"), size=SMALL_SIZE, paper=True)
    if tied:
        joined.append(message("target embedding and output projection"))
        _join_output(canvas)
    canvas.text(DECODER_X + WIDTH / 2, _top(len(DECODER)) + 0.1, "logits", size=12, bold=True)
    summary = "\n".join(
        f"{part.step} {part.words:<27}  {trace[part.tensor].shape!s:<12}  {part.tensor}"
        for part in (*ENCODER, *DECODER)
    )
    return canvas.finish(title, _describe_plan(title, trace, joined), summary)


def _describe_plan(title: str, trace: Mapping[str, Traced], joined: Sequence[str]) -> str:
    return alt_text(
        title,
        *(
            message(
                "Encoder on the left, from top to bottom: {encoder}. Decoder on the right: "
                "{decoder}. An arrow leads from the memory to cross-attention. "
                "Joined by dashed lines: {joined}.",
                encoder="; ".join(encoder), decoder="; ".join(decoder),
                joined="; ".join(joined) or message("none"),
            )
            for encoder, decoder in (
                (_boxes(ENCODER, trace), _boxes(DECODER, trace)),
                (_boxes(ENCODER[-1:], trace), _boxes(DECODER[-1:], trace)),
            )
        ),
    )  # fmt: skip


def _boxes(parts: Sequence[Part | Box], trace: Mapping[str, Traced]) -> list[str]:
    """List the boxes of a stack, with a shape where it changes."""
    boxes, before = [], ""
    for part in parts:
        shape = str(trace[part.tensor].shape) if part.tensor else before
        boxes.append(part.words if shape == before else f"{part.words} {shape}")
        before = shape
    return boxes


def _top(row: int) -> float:
    return row * (HEIGHT + GAP)


def _is_in_layer(part: Part) -> bool:
    return ".layers." in part.tensor


def _shade(
    canvas: Canvas, column: tuple[Part, ...], x: float, side: int, trace: Mapping[str, Traced]
) -> None:
    """Draw the background of the layers and write their number."""
    rows = [row for row, part in enumerate(column) if _is_in_layer(part)]
    stack = column[rows[0]].tensor.split(".")[0]
    layers = len({name.split(".")[2] for name in trace if name.startswith(f"{stack}.layers.")})
    top, bottom = _top(rows[0]) - 0.16, _top(rows[-1]) + HEIGHT + 0.24
    canvas.box(x - SIDE, top, WIDTH + 2 * SIDE, bottom - top, fill=SHADE, line=0)
    words = plural("{stack}: {count} layer", "{stack}: {count} layers", layers, stack=stack)
    edge = x + WIDTH / 2 + side * (WIDTH / 2 + SIDE - 0.08)
    align = "left" if side < 0 else "right"
    canvas.text(edge, bottom - 0.12, words, size=SMALL_SIZE, align=align)


def _draw_part(
    canvas: Canvas, column: tuple[Part, ...], row: int, x: float, side: int, shape: str
) -> None:
    part, top, middle = column[row], _top(row), x + WIDTH / 2
    is_sublayer = _is_in_layer(part) and "norm" in part.words
    fill = SPOTLIGHT if is_sublayer else PAPER
    canvas.box(x, top, WIDTH, HEIGHT, fill=fill, edge=INK, line=1.0)
    canvas.text(x + NUMBER, top + HEIGHT / 2, part.step, bold=True)
    canvas.text(x + NUMBER * 2, top + HEIGHT / 2, part.words, align="left")
    canvas.arrow((middle, top + HEIGHT), (middle, top + HEIGHT + GAP))
    align = "left" if side < 0 else "right"
    height = top + HEIGHT + GAP / 2 - 0.03
    canvas.text(middle - side * 0.1, height, shape, size=SMALL_SIZE, align=align)
    if is_sublayer:
        edge = middle + side * WIDTH / 2
        around = edge + side * SIDE / 2
        start, back = top - GAP / 2, _top(row + 1) + HEIGHT / 2
        canvas.line([(middle, start), (around, start), (around, back)], width=1.2)
        canvas.arrow((around, back), (edge, back))


def _lead_memory(
    canvas: Canvas, corners: list[tuple[float, float]], height: float, end: float
) -> None:
    """Draw the line of the memory through corners, and the arrow into cross-attention."""
    canvas.line([*corners, (corners[-1][0], height)], width=1.6)
    canvas.arrow((corners[-1][0], height), (end, height), width=1.6)


def _join_output(canvas: Canvas) -> None:
    """Join the output projection to the target embedding: both use one table."""
    edge, around = DECODER_X + WIDTH, DECODER_X + WIDTH + SIDE + 0.28
    first, last = HEIGHT / 2, _top(len(DECODER) - 1) + HEIGHT / 2
    corners = [(edge, first), (around, first), (around, last), (edge, last)]
    canvas.line(corners, width=1.6, style="dashed")
    middle = (_top(0) + HEIGHT + _top(1)) / 2
    canvas.text(around, middle, message("one matrix"), size=SMALL_SIZE, paper=True)


class Box(NamedTuple):
    """One box of `without_source`: its row, kind, words and tensor; no tensor if it is gone."""

    row: int
    kind: str
    words: str
    tensor: str = ""


BOX_WIDTH, BOX_HEIGHT, BOX_GAP = 2.4, 0.36, 0.3
INDENT = 0.22  # from the edge of a box to its arrow
COLUMNS = (0.0, 3.1, 6.5)
# Equal kinds have equal colours.
KINDS = ("self-attention", "words", "norm", "positions", "feed-forward", "cross-attention")
FILLS = dict(zip(KINDS, PART_FILLS, strict=False))
BOXES = {
    "encoder": (
        Box(0, "words", "source embedding", "src_embedding.vectors"),
        Box(1, "positions", "+ positions", "src_input"),
        Box(2, "self-attention", "self-attention",
            "encoder.layers.0.self_attention_residual.added"),
        Box(4, "feed-forward", "feed-forward", "encoder.layers.0.feed_forward_residual.added"),
        Box(5, "norm", "last norm = memory", "memory"),
    ),
    "decoder": (
        Box(0, "words", "target embedding", "tgt_embedding.vectors"),
        Box(1, "positions", "+ positions", "tgt_input"),
        Box(2, "self-attention", "causal self-attention",
            "decoder.layers.0.self_attention_residual.added"),
        Box(3, "cross-attention", "cross-attention",
            "decoder.layers.0.cross_attention_residual.added"),
        Box(4, "feed-forward", "feed-forward", "decoder.layers.0.feed_forward_residual.added"),
        Box(5, "norm", "last norm", "decoder_output"),
        Box(6, "words", "output projection", "logits"),
    ),
    "decoder-only": (
        Box(0, "words", "embedding", "embedding.vectors"),
        Box(1, "positions", "gone: + positions"),
        Box(2, "self-attention", "causal self-attention", "layers.0.self_attention_residual.added"),
        Box(3, "cross-attention", "gone: cross-attention"),
        Box(4, "feed-forward", "feed-forward", "layers.0.feed_forward_residual.added"),
        Box(5, "norm", "last norm", "decoder_output"),
        Box(6, "words", "the embedding's table", "logits"),
    ),
}  # fmt: skip


def without_source(
    trace: Mapping[str, Traced], sister: Mapping[str, Traced], *, title: str
) -> Drawing:
    """Draw encoder and decoder, and beside them the single stack of a decoder-only model.

    Args:
        trace: A run of a pre-norm Transformer.
        sister: A run of a decoder-only model with a tied table.
        title: Claim of the figure.

    Returns:
        Three columns, read from top to bottom, each box with the shape of its output. Equal parts
        have equal colours; removed parts have dashed frames.

    Raises:
        KeyError: If a tensor of a box is not in its run.
    """
    canvas = Canvas()
    runs = dict(zip(BOXES, (trace, trace, sister), strict=True))
    lines = []
    for x, (name, boxes) in zip(COLUMNS, BOXES.items(), strict=True):
        shapes = [str(runs[name][box.tensor].shape) if box.tensor else "" for box in boxes]
        _draw_column(canvas, x, name, boxes, shapes)
        lines.append(name)
        lines += [
            f"  {box.words:22} {shape}".rstrip() for box, shape in zip(boxes, shapes, strict=True)
        ]
    below = _box_top(5) + BOX_HEIGHT
    start, between = COLUMNS[0] + BOX_WIDTH / 2, (COLUMNS[0] + BOX_WIDTH + COLUMNS[1]) / 2
    corners = [(start, below), (start, below + BOX_GAP), (between, below + BOX_GAP)]
    _lead_memory(canvas, corners, _box_top(3) + BOX_HEIGHT / 2, COLUMNS[1])
    stacks = {name: "; ".join(_boxes(boxes, runs[name])) for name, boxes in BOXES.items()}
    alt = alt_text(
        title,
        message(
            "Three columns, from top to bottom. Encoder: {encoder}. Decoder: {decoder}. "
            "Decoder-only: {single}. An arrow leads from the memory to cross-attention.",
            encoder=stacks["encoder"], decoder=stacks["decoder"], single=stacks["decoder-only"],
        ),
        message(
            "Three columns: encoder, decoder, decoder-only, which has these boxes: {single}. "
            "An arrow leads from the memory to cross-attention.",
            single=stacks["decoder-only"],
        ),
    )  # fmt: skip
    return canvas.finish(title, alt, "\n".join(lines))


def _box_top(row: int) -> float:
    return row * (BOX_HEIGHT + BOX_GAP)


def _draw_column(
    canvas: Canvas, x: float, name: str, boxes: Sequence[Box], shapes: Sequence[str]
) -> None:
    middle = x + BOX_WIDTH / 2
    canvas.text(middle, -BOX_GAP - 0.14, name, size=12, bold=True)
    above = -BOX_GAP
    for box, shape in zip(boxes, shapes, strict=True):
        top, right = _box_top(box.row), x + BOX_WIDTH
        if not box.tensor:
            bottom = top + BOX_HEIGHT
            corners = [(x, top), (right, top), (right, bottom), (x, bottom), (x, top)]
            canvas.line(corners, colour=QUIET, style="dashed")
            height = top + BOX_HEIGHT / 2
            canvas.text(middle + 0.1, height, box.words, size=SMALL_SIZE, paper=True)
            continue
        # At the side, so that it does not cross the words of removed boxes.
        canvas.arrow((x + INDENT, above), (x + INDENT, top))
        canvas.box(x, top, BOX_WIDTH, BOX_HEIGHT, fill=FILLS[box.kind], edge=INK, line=1.0)
        canvas.text(middle, top + BOX_HEIGHT / 2, box.words)
        above = top + BOX_HEIGHT
        height = above + BOX_GAP / 2
        canvas.text(x + INDENT + 0.1, height, shape, size=SMALL_SIZE, align="left")
