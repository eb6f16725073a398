"""Figure of the whole course: twelve numbers on their way from words to words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from twelve_lab import example
from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.faces import BESIDE, draw_face
from twelve_lab.draw.grid import LINE, Grid, bare, widen
from twelve_lab.draw.panels import signed_paint
from twelve_lab.messages import message
from twelve_lab.show.format import format_tensor
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Table, as_plain_tensor

SIZE = 12
CELL, CELL_WIDTH, WORD_WIDTH = 0.33, 0.5, 0.6
IDS = 1.19  # room for the words before the ids; aligns the two lines of tensors
SIDE = 0.1  # gap between the bracket of the batch and its contents
ARROW = 0.67
ROW = 0.42  # gap between two tensors, one above the other
HEAD_ROOM = 0.4, 0.62  # from a name to the cells; logits have words above their columns
SOURCE = {
    "src_embedding.vectors": "02\nlook up",
    "src_input": "03, add\nposition",
    "memory": "04-10\nencoder",
}
TARGET = {
    "tgt_input": "02, 03\nlikewise",
    "decoder_output": "11\ndecoder",
    "logits": "12, to\nwords",
}


class Stage(NamedTuple):
    """A drawn tensor and its edges."""

    left: float
    right: float
    top: float
    bottom: float
    grids: list[Grid]

    @property
    def middle(self) -> float:
        """Return the y coordinate of the arrows."""
        return (self.top + self.bottom) / 2


def walk(trace: Mapping[str, Any], *, title: str = "", narrow: bool = False) -> Drawing:
    """Draw a run on the running example from ids to predicted words, 11 inches wide.

    Args:
        trace: The run; its entries have a value and axes.
        title: Claim of the figure; by default, that twelve numbers walk through a Transformer.
        narrow: Whether to draw all tensors one above the other, for a phone.

    Returns:
        The ids of both sides and six tensors with two decimals; the summary has four decimals.
    """
    canvas = Canvas()
    title = title or message("Twelve numbers on each side walk through a Transformer")
    if narrow:
        logits = _draw_column(canvas, trace)
    else:
        upper = _draw_line(canvas, trace, SOURCE, "src", 0.0)
        lower = _draw_line(canvas, trace, TARGET, "tgt", canvas.bottom + 0.55)
        _lead_memory_down(canvas, upper[-1], lower)
        logits = lower[-1]
    best = as_plain_tensor(trace["logits"].value).argmax(-1).tolist()
    _draw_prediction(canvas, logits, best, example.vocabulary)

    words = "; ".join(" ".join(example.vocabulary[token] for token in tokens) for tokens in best)
    summary = [
        f"{name} " + format_tensor(trace[name], labels=example.words) for name in (*SOURCE, *TARGET)
    ]
    summary.append(message("highest logit at each position: {words}", words=words))
    source, target = (
        ", ".join(f"{name} {tuple(trace[name].value.shape)}" for name in stages)
        for stages in (SOURCE, TARGET)
    )
    description = message(
        "Source ids become {source}; target ids become {target}. An arrow leads from the memory "
        "into the decoder. Words of the highest logits: {words}.",
        source=source, target=target, words=words,
    )  # fmt: skip
    return canvas.finish(title, "\n".join(summary), description)


def _draw_line(
    canvas: Canvas, trace: Mapping[str, Any], stages: Mapping[str, str], axis: str, y: float
) -> list[Stage]:
    """Draw the ids, then one tensor after the other, with an arrow before each."""
    head_room = HEAD_ROOM["logits" in stages]
    drawn = [_draw_stage(canvas, trace, f"{axis} ids", 0.0, y, head_room)]
    for name, how in stages.items():
        left = drawn[-1].right
        drawn.append(_draw_stage(canvas, trace, name, left + ARROW, y, head_room))
        middle = drawn[-1].middle
        canvas.arrow((left + 0.07, middle), (left + ARROW - 0.07, middle), width=2)
        canvas.text((left + left + ARROW) / 2, middle - 0.3, how)
    return drawn


def _draw_column(canvas: Canvas, trace: Mapping[str, Any]) -> Stage:
    """Draw the source, then the target, from top to bottom; return the logits."""
    drawn: dict[str, Stage] = {}
    for axis, stages in (("src", SOURCE), ("tgt", TARGET)):
        top = canvas.bottom + ROW if drawn else 0.0
        stage = _draw_stage(canvas, trace, f"{axis} ids", 0.0, top)
        for name, how in stages.items():
            start, y = stage.bottom, canvas.bottom + ROW
            stage = drawn[name] = _draw_stage(canvas, trace, name, 0.0, y)
            canvas.arrow((0.9, start + 0.05), (0.9, y - 0.12), width=2)
            canvas.text(1.0, y - 0.26, how.replace("\n", " "), align="left")
    memory, decoder = drawn["memory"], drawn["decoder_output"]
    x = drawn["logits"].right
    corners = [(x, memory.middle), (x, decoder.middle), (decoder.right + 0.07, decoder.middle)]
    canvas.arrow((memory.right + 0.07, memory.middle), *corners, width=2)
    height = (memory.middle + decoder.middle) / 2
    canvas.text(x + 0.1, height, message("cross-\nattention"), align="left")
    return drawn["logits"]


def _draw_stage(
    canvas: Canvas, trace: Mapping[str, Any], name: str, x: float, y: float, head_room: float = 0.0
) -> Stage:
    """Draw the sentences of a tensor one above the other, in the bracket of the batch.

    The names "src ids" and "tgt ids" select the ids, which are drawn beside their words.
    `head_room` aligns the tensors on one line.
    """
    axis = name.removesuffix(" ids")
    is_ids, is_logits = name != axis, name == "logits"
    if is_ids:
        ids = as_plain_tensor({"src": example.src, "tgt": example.tgt}[axis])
        table = Table.of(ids.unsqueeze(-1), f"batch {axis} 1", {axis: example.words[axis]})
    else:
        table = Table.of(trace[name].value, trace[name].axes, {"vocab": example.vocabulary})
    paint = signed_paint(largest_magnitude(table), decimals=2)
    sizes = table.values.shape[:2] if is_ids else table.values.shape
    canvas.text(x, y, name, size=SIZE, align="left", bold=True)
    canvas.text(x, y + LINE * 1.05, f"({', '.join(map(str, sizes))})", align="left")
    left, top = x + SIDE, y + LINE * 1.6 + (head_room or HEAD_ROOM[is_logits])
    grids = []
    for number, block in enumerate(table.blocks(elide=False)):
        if is_ids:
            grids.append(Grid(canvas, block, paint, size=SIZE, cell_height=CELL))
            continue
        plain = bare(block)
        if number == 0:
            names = block.column_names if is_logits else plain.column_names
            plain = replace(plain, column_axis=block.column_axis, column_names=names)
        width = WORD_WIDTH if is_logits else CELL_WIDTH
        grids.append(Grid(canvas, plain, paint, size=11.5, cell_height=CELL, cell_width=width))
    widen(grids, "cell_width")
    margin = max(IDS * is_ids, *(grid.margin_left for grid in grids))
    widen(grids, "names_width")
    for grid in grids:
        grid.draw_cells_at(left + margin, top)
        top = grid.bottom + 0.13
    start, end = grids[0].top, grids[-1].bottom
    right = grids[-1].right + SIDE
    for edge, side in ((x, "left"), (right, "right")):
        canvas.bracket("batch", (edge, start), (edge, end), side)
    if is_ids:
        canvas.text(x, start - LINE / 2, "batch", align="left")
    return Stage(x, right, start, end, grids)


def _lead_memory_down(canvas: Canvas, memory: Stage, lower: Sequence[Stage]) -> None:
    """Draw the line from the memory down to the arrow of the decoder."""
    source = (memory.left + memory.right) / 2
    target = (lower[1].right + lower[2].left) / 2
    turn = memory.bottom + 0.32
    canvas.line([(source, memory.bottom + 0.05), (source, turn), (target, turn)], width=2)
    canvas.arrow((target, turn - 0.01), (target, lower[2].middle - 0.62), width=2)
    words = message("cross-attention looks at the memory")
    canvas.text((source + target) / 2, turn - 0.14, words)


def _draw_prediction(
    canvas: Canvas, logits: Stage, best: list[list[int]], vocabulary: Sequence[str]
) -> None:
    """Frame the highest logit of each position and draw its word."""
    x = logits.right + 0.33
    for grid, sentence in zip(logits.grids, best, strict=True):
        for position, token in enumerate(sentence):
            grid.frame(position, token)
            y = grid.row_middle(position)
            canvas.arrow((logits.right + 0.07, y), (x - 0.05, y))
            word = vocabulary[token]
            canvas.text(x, y, word, size=SIZE, align="left", bold=True)
            draw_face(canvas, word, x + canvas.width_of(word, SIZE, bold=True) + BESIDE, y)
    canvas.text(x, logits.top - LINE * 0.6, message("says"), size=SIZE, align="left", bold=True)
