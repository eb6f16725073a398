"""Figures of whole models: stacks of boxes, each labelled with its output shape in a run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.messages import declared, message, plural
from twelve_lab.show.palette import INK, PAPER, PART_FILLS, QUIET, SHADE, SPOTLIGHT
from twelve_lab.show.wide import left
from twelve_lab.trace.traced import Traced

WIDTH, HEIGHT, GAP, SIDE = 2.75, 0.34, 0.26, 0.44
PITCH = HEIGHT + GAP  # distance from one box to the next
ENCODER_X, DECODER_X = 0.0, 4.55
SUM = "+ what went in"  # label of the box of a residual sum
NUMBER = 0.24  # from the edge of a box to the centre of its lesson number


class Part(NamedTuple):
    """A box: its label, its output tensor ("" if the part is removed), and its lesson."""

    words: str
    tensor: str = ""
    step: str = ""
    exchanged: bool = False

    @property
    def label(self) -> str:
        """Return the label in the reader's language."""
        return declared(self.words)


def _sublayer(path: str, step: str, words: str) -> tuple[Part, Part]:
    return Part(words, f"{path}.output", step), Part(SUM, f"{path}_residual.added", "08")


ENCODER = (
    Part("source embedding", "src_embedding.vectors", "02"),
    Part("+ positions", "src_input", "03"),
    *_sublayer("encoder.layers.0.self_attention", "06", "norm, self-attention"),
    *_sublayer("encoder.layers.0.feed_forward", "09", "norm, feed-forward"),
    Part("last norm = memory", "memory", "07"),
)
DECODER = (
    Part("target embedding", "tgt_embedding.vectors", "02"),
    Part("+ positions", "tgt_input", "03"),
    *_sublayer("decoder.layers.0.self_attention", "06", "norm, causal self-attention"),
    *_sublayer("decoder.layers.0.cross_attention", "06", "norm, cross-attention"),
    *_sublayer("decoder.layers.0.feed_forward", "09", "norm, feed-forward"),
    Part("last norm", "decoder_output", "07"),
    Part("output projection", "logits", "12"),
)


def plan(
    trace: Mapping[str, Traced], *, title: str, shared: bool = False, tied: bool = False
) -> Drawing:
    """Draw encoder and decoder side by side, with the output shape of every box in a run.

    Args:
        trace: A run of a pre-norm Transformer.
        title: Claim of the figure.
        shared: Whether the two embeddings share one table; a dashed line joins them.
        tied: Whether target embedding and output projection are tied; a dashed line joins them.

    Returns:
        Two columns, read from top to bottom. The layers have a shaded background; a line
        around each sublayer is the residual connection.

    Raises:
        KeyError: If the trace lacks the output tensor of a box.
    """
    canvas = Canvas()
    for name, column, x in (("src ids", ENCODER, ENCODER_X), ("tgt ids", DECODER, DECODER_X)):
        # Draw the residual connections on the outer side, away from the memory arrow.
        side = -1 if column is ENCODER else 1
        _shade(canvas, column, x, side, trace)
        canvas.text(x + WIDTH / 2, -GAP - 0.1, name, size=12, bold=True)
        canvas.arrow((x + WIDTH / 2, -GAP), (x + WIDTH / 2, 0))
        for row, part in enumerate(column):
            _draw_part(canvas, part, row, x, side, str(trace[part.tensor].shape))
    between = (ENCODER_X + WIDTH + DECODER_X) / 2
    below = len(ENCODER) * PITCH
    cross = next(row for row, part in enumerate(DECODER) if "cross" in part.words)
    height = cross * PITCH + HEIGHT / 2
    start = ENCODER_X + WIDTH / 2, below
    canvas.arrow(start, (between, below), (between, height), (DECODER_X, height), width=1.6)
    words = message("key and value")
    canvas.text(between - 0.08, below + 0.14, words, size=SMALL_SIZE, align="right")
    joined = []
    if shared:
        joined.append(message("source and target embedding"))
        ends = [(ENCODER_X + WIDTH, HEIGHT / 2), (DECODER_X, HEIGHT / 2)]
        canvas.line(ends, width=1.6, style="dashed")
        canvas.text(between, HEIGHT / 2, message("one table"), size=SMALL_SIZE, ground=PAPER)
    if tied:
        joined.append(message("target embedding and output projection"))
        edge, around = DECODER_X + WIDTH, DECODER_X + WIDTH + SIDE + 0.28
        first, last = HEIGHT / 2, (len(DECODER) - 1) * PITCH + HEIGHT / 2
        corners = [(edge, first), (around, first), (around, last), (edge, last)]
        canvas.line(corners, width=1.6, style="dashed")
        middle = (HEIGHT + PITCH) / 2
        canvas.text(around, middle, message("one matrix"), size=SMALL_SIZE, ground=PAPER)
    canvas.text(DECODER_X + WIDTH / 2, len(DECODER) * PITCH + 0.1, "logits", size=12, bold=True)
    summary = "\n".join(
        f"{part.step} {left(part.label, 27)}  {trace[part.tensor].shape!s:<12}  {part.tensor}"
        for part in (*ENCODER, *DECODER)
    )
    descriptions = (
        message(
            "Encoder on the left, from top to bottom: {encoder}. Decoder on the right: "
            "{decoder}. An arrow leads from the memory to cross-attention. "
            "Joined by dashed lines: {joined}.",
            encoder=_list_boxes(ENCODER[first:], trace),
            decoder=_list_boxes(DECODER[first:], trace),
            joined="; ".join(joined) or message("none"),
        )
        for first in (0, -1)
    )  # fmt: skip
    return canvas.finish(title, summary, *descriptions)


def _list_boxes(parts: Sequence[Part | None], trace: Mapping[str, Traced]) -> str:
    """List the boxes of a stack; give the shape only where it changes."""
    boxes, before = [], ""
    for part in filter(None, parts):
        shape = str(trace[part.tensor].shape) if part.tensor else before
        boxes.append(part.label if shape == before else f"{part.label} {shape}")
        before = shape
    return "; ".join(boxes)


def _shade(
    canvas: Canvas, column: tuple[Part, ...], x: float, side: int, trace: Mapping[str, Traced]
) -> None:
    """Shade the background of the layers and label it with the number of layers."""
    rows = [row for row, part in enumerate(column) if ".layers." in part.tensor]
    stack = column[rows[0]].tensor.split(".")[0]
    layers = len({name.split(".")[2] for name in trace if name.startswith(f"{stack}.layers.")})
    top, bottom = rows[0] * PITCH - 0.16, rows[-1] * PITCH + HEIGHT + 0.24
    canvas.box(x - SIDE, top, WIDTH + 2 * SIDE, bottom - top, fill=SHADE, line=0)
    words = plural(
        "{stack}: {count} layer", "{stack}: {count} layers", layers, stack=declared(stack)
    )
    edge = x + WIDTH / 2 + side * (WIDTH / 2 + SIDE - 0.08)
    align = "left" if side < 0 else "right"
    canvas.text(edge, bottom - 0.12, words, size=SMALL_SIZE, align=align)


def _draw_part(canvas: Canvas, part: Part, row: int, x: float, side: int, shape: str) -> None:
    top, middle = row * PITCH, x + WIDTH / 2
    is_sublayer = ".layers." in part.tensor and "norm" in part.words
    fill = SPOTLIGHT if is_sublayer else PAPER
    canvas.box(x, top, WIDTH, HEIGHT, fill=fill, edge=INK, line=1.0)
    canvas.text(x + NUMBER, top + HEIGHT / 2, part.step, bold=True)
    canvas.text(x + NUMBER * 2, top + HEIGHT / 2, part.label, align="left")
    canvas.arrow((middle, top + HEIGHT), (middle, top + HEIGHT + GAP))
    align = "left" if side < 0 else "right"
    height = top + HEIGHT + GAP / 2 - 0.03
    canvas.text(middle - side * 0.1, height, shape, size=SMALL_SIZE, align=align)
    if is_sublayer:
        edge = middle + side * WIDTH / 2
        around = edge + side * SIDE / 2
        start, end = top - GAP / 2, (row + 1) * PITCH + HEIGHT / 2
        canvas.arrow((middle, start), (around, start), (around, end), (edge, end))


BOX_WIDTH, BOX_HEIGHT, BOX_GAP = 2.4, 0.36, 0.3
BOX_PITCH = BOX_HEIGHT + BOX_GAP
INDENT = 0.22  # from the edge of a box to its arrow
COLUMNS = (0.0, 3.1, 6.5)
# One colour per row. The first and the last row share a colour: both use an embedding table.
ROW_FILLS = [PART_FILLS[kind] for kind in (1, 3, 0, 5, 4, 2, 1)]
CROSS, LAST_NORM = 3, 5  # row indices


def _merge_sums(column: Sequence[Part]) -> list[Part]:
    """Merge each sublayer with its norm and its residual sum into one box."""
    merged: list[Part] = []
    for part in column:
        if part.words == SUM:
            part = Part(merged.pop().words.removeprefix("norm, "), part.tensor)
        merged.append(part)
    return merged


STACKS = {
    "encoder": [*_merge_sums(ENCODER[:4]), None, *_merge_sums(ENCODER[4:])],
    "decoder": _merge_sums(DECODER),
    "decoder-only": (
        Part("embedding", "embedding.vectors"),
        Part("gone: + positions"),
        Part("causal self-attention", "layers.0.self_attention_residual.added", exchanged=True),
        Part("gone: cross-attention"),
        Part("feed-forward", "layers.0.feed_forward_residual.added", exchanged=True),
        Part("last norm", "decoder_output", exchanged=True),
        Part("the embedding's table", "logits", exchanged=True),
    ),
}


def without_source(
    trace: Mapping[str, Traced], sister: Mapping[str, Traced], *, title: str
) -> Drawing:
    """Draw encoder and decoder beside the single stack of a decoder-only model.

    Args:
        trace: A run of a pre-norm Transformer.
        sister: A run of a decoder-only model with tied weights.
        title: Claim of the figure.

    Returns:
        Three columns, read from top to bottom. Each box shows its output shape; each kind of part
        has a colour. Removed parts have dashed frames, and swapped parts have thick frames.

    Raises:
        KeyError: If a run lacks the output tensor of a box.
    """
    canvas = Canvas()
    runs = dict(zip(STACKS, (trace, trace, sister), strict=True))
    lines = []
    for x, (name, parts) in zip(COLUMNS, STACKS.items(), strict=True):
        canvas.text(x + BOX_WIDTH / 2, -BOX_GAP - 0.14, declared(name), size=12, bold=True)
        lines += [declared(name), *_draw_stack(canvas, x, parts, runs[name])]
    below, height = LAST_NORM * BOX_PITCH + BOX_HEIGHT, CROSS * BOX_PITCH + BOX_HEIGHT / 2
    start, between = BOX_WIDTH / 2, (BOX_WIDTH + COLUMNS[1]) / 2
    corners = [(start, below), (start, below + BOX_GAP), (between, below + BOX_GAP)]
    canvas.arrow(*corners, (between, height), (COLUMNS[1], height), width=1.6)
    encoder, decoder, single = (_list_boxes(parts, runs[name]) for name, parts in STACKS.items())
    exchanged = "; ".join(part.label for part in STACKS["decoder-only"] if part.exchanged)
    return canvas.finish(
        title,
        "\n".join(lines),
        message(
            "Three columns, from top to bottom. Encoder: {encoder}. Decoder: {decoder}. "
            "Decoder-only: {single}. Exchanged, with thick frames: {exchanged}. "
            "An arrow leads from the memory to cross-attention.",
            encoder=encoder, decoder=decoder, single=single, exchanged=exchanged,
        ),
        message(
            "Three columns: encoder, decoder, decoder-only, which has these boxes: {single}. "
            "Exchanged, with thick frames: {exchanged}. "
            "An arrow leads from the memory to cross-attention.",
            single=single, exchanged=exchanged,
        ),
    )  # fmt: skip


def _draw_stack(
    canvas: Canvas, x: float, parts: Sequence[Part | None], trace: Mapping[str, Traced]
) -> list[str]:
    """Draw one column; return its summary lines."""
    middle, right, above, lines = x + BOX_WIDTH / 2, x + BOX_WIDTH, -BOX_GAP, []
    for row, part in enumerate(parts):
        if part is None:
            continue
        top, bottom = row * BOX_PITCH, row * BOX_PITCH + BOX_HEIGHT
        height = top + BOX_HEIGHT / 2
        shape = str(trace[part.tensor].shape) if part.tensor else ""
        exchanged = message("exchanged") if part.exchanged else ""
        lines.append(f"  {left(part.label, 22)} {shape}  {exchanged}".rstrip())
        if not part.tensor:
            corners = [(x, top), (right, top), (right, bottom), (x, bottom), (x, top)]
            canvas.line(corners, colour=QUIET, style="dashed")
            canvas.text(middle + 0.1, height, part.label, size=SMALL_SIZE, ground=PAPER)
            continue
        line = 2.4 if part.exchanged else 1.0
        # Draw the arrow at the side: in the middle it would cross the labels of removed boxes.
        canvas.arrow((x + INDENT, above), (x + INDENT, top))
        canvas.box(x, top, BOX_WIDTH, BOX_HEIGHT, fill=ROW_FILLS[row], edge=INK, line=line)
        canvas.text(middle, height, part.label)
        aside = x + INDENT + 0.1
        canvas.text(aside, bottom + BOX_GAP / 2, shape, size=SMALL_SIZE, align="left")
        above = bottom
    return lines
