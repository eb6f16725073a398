"""Two models side by side: the Transformer, and what is left of it when there is no source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.prose import tell
from twelve_lab.show.palette import INK, PART_FILLS, QUIET

if TYPE_CHECKING:
    from twelve_lab.trace.traced import Traced

WIDTH, HEIGHT, GAP = 2.4, 0.36, 0.3
SIDE = 0.22  # from the edge of a box to its arrow
COLUMNS = (0.0, 3.1, 6.5)
# Equal parts have equal colours.
KINDS = ("self-attention", "words", "norm", "positions", "feed-forward", "cross-attention")
FILLS = dict(zip(KINDS, PART_FILLS, strict=False))


class Part(NamedTuple):
    """One box: its row, its kind, its words, and the tensor behind it; none where it is gone."""

    row: int
    kind: str
    words: str
    tensor: str = ""


ENCODER = (
    Part(0, "words", "source embedding", "src_embedding.vectors"),
    Part(1, "positions", "+ positions", "src_input"),
    Part(2, "self-attention", "self-attention", "encoder.layers.0.self_attention_residual.added"),
    Part(4, "feed-forward", "feed-forward", "encoder.layers.0.feed_forward_residual.added"),
    Part(5, "norm", "last norm = memory", "memory"),
)
DECODER = (
    Part(0, "words", "target embedding", "tgt_embedding.vectors"),
    Part(1, "positions", "+ positions", "tgt_input"),
    Part(
        2, "self-attention", "causal self-attention",
        "decoder.layers.0.self_attention_residual.added",
    ),
    Part(
        3, "cross-attention", "cross-attention", "decoder.layers.0.cross_attention_residual.added"
    ),
    Part(4, "feed-forward", "feed-forward", "decoder.layers.0.feed_forward_residual.added"),
    Part(5, "norm", "last norm", "decoder_output"),
    Part(6, "words", "output projection", "logits"),
)  # fmt: skip
SISTER = (
    Part(0, "words", "embedding", "embedding.vectors"),
    Part(1, "positions", "gone: + positions"),
    Part(
        2, "self-attention", "causal self-attention", "layers.0.self_attention_residual.added"
    ),
    Part(3, "cross-attention", "gone: cross-attention"),
    Part(4, "feed-forward", "feed-forward", "layers.0.feed_forward_residual.added"),
    Part(5, "norm", "last norm", "decoder_output"),
    Part(6, "words", "the embedding's table", "logits"),
)  # fmt: skip


def without_source(
    trace: Mapping[str, Traced], sister: Mapping[str, Traced], *, title: str
) -> Drawing:
    """Draw encoder and decoder, and beside them the one stack of a model without a source.

    Args:
        trace: A run of a pre-norm Transformer.
        sister: A run of a decoder-only model with a tied table.
        title: The claim of the figure.

    Returns:
        Three columns, read from top to bottom, each box with the sizes that left it. Equal parts
        have equal colours; what is gone is a dashed frame.

    Raises:
        KeyError: A tensor of a box is not in its run.
    """
    canvas = Canvas()
    columns = {"encoder": (ENCODER, trace), "decoder": (DECODER, trace),
               "decoder-only": (SISTER, sister)}  # fmt: skip
    for x, (name, (parts, run)) in zip(COLUMNS, columns.items(), strict=True):
        _draw_column(canvas, x, name, parts, run)
    _hand_over(canvas)
    lines, told = [], []
    for name, (parts, run) in columns.items():
        sizes = [_size(run, part) for part in parts]
        lines += [name]
        lines += [
            f"  {part.words:22} {size}".rstrip() for part, size in zip(parts, sizes, strict=True)
        ]
        boxes = "; ".join(
            f"{part.words} {size}".rstrip() for part, size in zip(parts, sizes, strict=True)
        )
        told.append(f"{name}: {boxes}")
    short = [f"{name} with {len(parts)} boxes" for name, (parts, _) in columns.items()]
    end = "An arrow leads from the memory to cross-attention"
    alt = tell(
        title,
        f"Three columns, downwards. {'. '.join(part.capitalize() for part in told)}. {end}",
        f"Three columns, downwards: {', '.join(short)}, two of them gone. {end}",
    )
    return canvas.finish(title, alt, "\n".join(lines))


def _size(run: Mapping[str, Traced], part: Part) -> str:
    return str(run[part.tensor].shape) if part.tensor else ""


def _top(row: int) -> float:
    return row * (HEIGHT + GAP)


def _draw_column(
    canvas: Canvas, x: float, name: str, parts: tuple[Part, ...], run: Mapping[str, Traced]
) -> None:
    middle = x + WIDTH / 2
    canvas.text(middle, -GAP - 0.14, name, size=12, bold=True)
    above = -GAP
    for part in parts:
        top = _top(part.row)
        if not part.tensor:
            corners = [(x, top), (x + WIDTH, top), (x + WIDTH, top + HEIGHT), (x, top + HEIGHT)]
            canvas.line([*corners, corners[0]], colour=QUIET, style="dashed")
            canvas.text(middle + 0.1, top + HEIGHT / 2, part.words, size=SMALL_SIZE, paper=True)
            continue
        # At the side, where it passes what is gone without crossing its words.
        canvas.arrow((x + SIDE, above), (x + SIDE, top))
        canvas.box(x, top, WIDTH, HEIGHT, fill=FILLS[part.kind], edge=INK, line=1.0)
        canvas.text(middle, top + HEIGHT / 2, part.words)
        above = top + HEIGHT
        canvas.text(
            x + SIDE + 0.1, above + GAP / 2, _size(run, part), size=SMALL_SIZE, align="left"
        )


def _hand_over(canvas: Canvas) -> None:
    """Lead the memory into the decoder's cross-attention."""
    below = _top(5) + HEIGHT + GAP
    between = (COLUMNS[0] + WIDTH + COLUMNS[1]) / 2
    height = _top(3) + HEIGHT / 2
    start = COLUMNS[0] + WIDTH / 2
    corners = [(start, _top(5) + HEIGHT), (start, below), (between, below), (between, height)]
    canvas.line(corners, width=1.6)
    canvas.arrow((between, height), (COLUMNS[1], height), width=1.6)
