"""Figure of the residual stream: one token on its way through a layer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.faces import ROOM, draw_face
from twelve_lab.draw.grid import LINE, Grid, Paint, bare
from twelve_lab.draw.panels import MAX_WIDTH, signed_paint
from twelve_lab.draw.stream_reader import Column, Stream, StreamReader, Sublayer
from twelve_lab.messages import message
from twelve_lab.show.faces import FACES
from twelve_lab.show.format import cell_text, format_tensor
from twelve_lab.show.palette import INK, SHADE, SPOTLIGHT
from twelve_lab.show.table import Labels, Table
from twelve_lab.trace.traced import Traced

CELL = 0.3  # height of a cell
RISE = 0.35  # room for an arrow up or down
BEFORE, AFTER = 0.3, 0.36  # gaps before and after the output of a sublayer
NORM = 0.6  # room for an arrow along the stream, with its label
BAND = 0.1  # from the columns of the stream to the edge of their background
BOX, PADDING = 0.5, 0.12
PLUS, PLUS_SIZE = 0.13, 20  # half the width of the plus sign in inches, and its size in points
APART = 0.35  # gap between two lanes
STREAM = 2.4  # line width of the stream, in points


def stream(
    trace: Mapping[str, Traced] | Sequence[Mapping[str, Traced]],
    layer: str,
    *,
    title: str,
    batch: int,
    position: int | Sequence[int],
    sublayers: Mapping[str, str] | None = None,
    last_norm: bool = False,
    labels: Labels | None = None,
) -> Drawing:
    """Draw the residual stream of a token: each sublayer reads the stream and adds to it.

    Args:
        trace: A run of a Transformer, or several runs.
        layer: Name of the layer, such as "encoder.layers.0".
        title: Claim of the figure.
        batch: Index of the sentence.
        position: Position of the token, or several positions. Each position has its own lane for
            each run.
        sublayers: Sublayer name, such as "self_attention" -> label of its box; by default, all
            sublayers with their names as labels.
        last_norm: Whether to include the norm at the end of the stack.
        labels: Words instead of indices, for "src" and "tgt".

    Returns:
        The stream from left to right on a shaded background, with the sublayers above it. Each
        attention sublayer lists the positions that any of its heads attends to.

    Raises:
        KeyError: If a tensor of the stream is not in the run.
        ValueError: If the sentence or position does not exist, no sublayer is selected, a residual
            sum is not input plus output, or the last norm does not read the end of the stream.
    """
    runs = [trace] if isinstance(trace, Mapping) else list(trace)
    positions = [position] if isinstance(position, int) else list(position)
    lanes = [
        StreamReader(run, layer, batch, index, labels or {}).read(sublayers, last_norm)
        for run in runs
        for index in positions
    ]
    if not lanes or not lanes[0].sublayers:
        raise ValueError(
            "stream: trace, position and sublayers must not be empty, "
            f"got {len(runs)} runs, {len(positions)} positions, sublayers {sublayers}"
        )
    if len(runs) > 1:
        lanes = [lane._replace(heading=f"{lane.heading}, {lane.order}") for lane in lanes]
    canvas = Canvas()
    _draw_lanes(canvas, lanes)
    summary = "\n".join(_summary(lane, layer) for lane in lanes)
    versions = (" ".join(_describe(lane, detail) for lane in lanes) for detail in (2, 1, 0))
    return canvas.finish(title, summary, *versions)


def _draw_lanes(canvas: Canvas, lanes: list[Stream]) -> None:
    """Draw the lanes side by side, on as many lines as they need."""
    columns = [column for lane in lanes for column in lane.columns]
    tables = [lane.memory for lane in lanes if lane.memory]
    values = torch.cat([c.values for c in columns] + [table.values.flatten() for table in tables])
    finite = values[torch.isfinite(values)].abs().tolist()
    paint = signed_paint(max(finite, default=0.0))
    cell = max(canvas.width_of(cell_text(value)) for value in values.tolist()) + PADDING
    x = y = 0.0
    for lane in lanes:
        painter = _Painter(canvas, lane, paint, cell, is_first=x == 0)
        if x and x + painter.width > MAX_WIDTH:
            x, y = 0.0, canvas.bottom + APART
            painter = _Painter(canvas, lane, paint, cell, is_first=True)
        painter.draw(x, y)
        x += painter.width + APART


class _Painter:
    """Painter of one lane: the stream at the bottom, the sublayers above it."""

    def __init__(self, canvas: Canvas, lane: Stream, paint: Paint, cell: float, *, is_first: bool):
        """Measure the lane; only the first lane of a line names the feature axis."""
        self.canvas, self.lane, self.paint, self.cell = canvas, lane, paint, cell
        features = Table.of(lane.start.values.unsqueeze(-1), "d_model 1")
        block = next(features.blocks())
        if not is_first:
            block = replace(block, row_names=[""] * len(block.rows))
        self.start = Grid(canvas, block, paint, cell_height=CELL, cell_width=cell, named=is_first)
        self.height = self.start.height
        inside = [canvas.width_of(part.words, bold=True) for part in lane.sublayers]
        inside += [canvas.width_of(part.looks, SMALL_SIZE) for part in lane.sublayers]
        below = [canvas.width_of(part.equation) for part in lane.sublayers]
        room = max(max(inside) + 2 * PADDING, max(below) + PADDING - AFTER)
        self.before = max(BEFORE, room - 2 * cell)
        # Labels below the last column, and below the columns on both sides of a norm.
        ends = [(part.equation, part.leaves.label) for part in lane.sublayers if part.leaves]
        labels = [ends[-1][-1] if ends else lane.sublayers[-1].equation]
        if lane.last:
            labels.append(lane.last.label)
            ends.append((labels[0], labels[1]))
        halves = [sum(map(canvas.width_of, pair)) / 2 for pair in ends]
        self.norm = max(NORM, max(halves, default=0.0) + PADDING - cell)
        overhangs = [max(BAND, (canvas.width_of(text) + PADDING - cell) / 2) for text in labels]
        self.after = overhangs[-1]
        # The last norm and its output are to the right of the background.
        self.beyond = self.norm + cell + overhangs[-1] - overhangs[0] if lane.last else 0.0
        self.top = self.box = 0.0

    @property
    def width(self) -> float:
        """Return the width of the lane."""
        norms = sum(part.leaves is not None for part in self.lane.sublayers) + bool(self.lane.last)
        pitch = 2 * self.cell + self.before + AFTER
        columns = len(self.lane.sublayers) * pitch + self.cell + norms * (self.norm + self.cell)
        return self.start.margin_left + columns + self.after

    def draw(self, x: float, y: float) -> None:
        """Draw the lane and its labels with the upper left corner at (x, y)."""
        memory = self.lane.memory
        over = self._memory_grid(memory).height + RISE if memory else LINE + PADDING
        self.box = y + over
        self.top = self.box + BOX + RISE + self.height + RISE
        left = x + self.start.margin_left
        ground = left - BAND, self.top - BAND
        size = x + self.width - self.beyond - ground[0], self.height + 2 * BAND + LINE
        self.canvas.box(*ground, *size, fill=SHADE, line=0)
        head = self.box - LINE / 2 - PADDING / 2
        draw_face(self.canvas, self.lane.heading, x, head)
        indent = ROOM if self.lane.heading in FACES else 0.0
        self.canvas.text(x + indent, head, self.lane.heading, size=12, align="left", bold=True)
        self.start.draw_cells_at(left, self.top)
        self._label(self.lane.start.label, left)
        for part in self.lane.sublayers:
            left = self._draw_sublayer(part, left)
        if self.lane.last:
            self._draw_norm(self.lane.last, left)

    def _draw_sublayer(self, part: Sublayer, left: float) -> float:
        """Draw a sublayer between two columns of the stream; return the left edge of the second."""
        canvas, middle = self.canvas, self.top + self.height / 2
        side = self.top - RISE - self.height
        reading, adding = left + self.cell / 2, left + self.cell * 1.5 + self.before
        output = adding - self.cell / 2

        canvas.box(left, self.box, output + self.cell - left, BOX, fill=SPOTLIGHT, edge=INK, line=1)
        centre, box = (left + output + self.cell) / 2, self.box + BOX / 2
        shift = LINE / 2 if part.looks else 0.0
        canvas.text(centre, box - shift, part.words, bold=True)
        canvas.text(centre, box + shift, part.looks, size=SMALL_SIZE)
        if part.memory:
            self._draw_memory(part.memory, centre)

        if part.reads:
            canvas.arrow((reading, self.top), (reading, side + self.height))
            height = self.top - BAND - LINE / 2 - 0.01
            canvas.text(reading + 0.08, height, message("norm"), size=SMALL_SIZE, align="left")
            self._draw_column(part.reads, left, side)
            canvas.arrow((reading, side), (reading, self.box + BOX))
        else:
            canvas.arrow((reading, self.top), (reading, self.box + BOX))
        canvas.arrow((adding, self.box + BOX), (adding, side))
        words = self.box + BOX + RISE / 2 - 0.03
        canvas.text(adding + 0.08, words, message("output"), size=SMALL_SIZE, align="left")
        self._draw_column(part.output, output, side)
        canvas.arrow((adding, side + self.height), (adding, middle - PLUS))

        canvas.line([(left + self.cell, middle), (adding - PLUS, middle)], width=STREAM)
        canvas.text(adding, middle - 0.02, "\N{CIRCLED PLUS}", size=PLUS_SIZE)
        after = output + self.cell + AFTER
        canvas.arrow((adding + PLUS, middle), (after, middle), width=STREAM)
        self._draw_column(part.sum, after, self.top)
        self._label(part.equation, after)
        return self._draw_norm(part.leaves, after) if part.leaves else after

    def _draw_norm(self, column: Column, left: float) -> float:
        """Draw a norm on the stream; return the left edge of its output."""
        start, middle = left + self.cell, self.top + self.height / 2
        end = start + self.norm
        self.canvas.arrow((start, middle), (end, middle), width=STREAM)
        self.canvas.text((start + end) / 2 - 0.04, middle - 0.16, message("norm"), size=SMALL_SIZE)
        self._draw_column(column, end, self.top)
        self._label(column.label, end)
        return end

    def _draw_memory(self, memory: Table, centre: float) -> None:
        """Draw the memory above the sublayer that attends to it."""
        canvas, grid = self.canvas, self._memory_grid(memory)
        top = self.box - RISE - grid.height + grid.margin_top
        grid.draw_cells_at(centre - grid.cells_width / 2, top)
        middle = (grid.top + grid.bottom) / 2
        canvas.text(grid.left - 0.2, middle, message("memory"), align="right", bold=True)
        canvas.arrow((centre, grid.bottom), (centre, self.box))
        words = message("keys and values")
        canvas.text(centre + 0.08, self.box - RISE / 2 - 0.03, words, size=SMALL_SIZE, align="left")

    def _memory_grid(self, memory: Table) -> Grid:
        block = next(memory.blocks())
        block = replace(block, row_names=[""] * len(block.row_names))
        grid = Grid(self.canvas, block, self.paint, cell_height=CELL, named=False)
        grid.cell_width = max(self.cell, grid.cell_width)
        return grid

    def _draw_column(self, column: Column, x: float, y: float) -> None:
        block = bare(next(Table.of(column.values.unsqueeze(-1), "d_model 1").blocks()))
        grid = Grid(self.canvas, block, self.paint, cell_height=CELL, cell_width=self.cell)
        grid.draw_cells_at(x, y)

    def _label(self, words: str, left: float) -> None:
        """Draw the label of a column of the stream below the column."""
        y = self.top + self.height + BAND + LINE / 2 - 0.04
        self.canvas.text(left + self.cell / 2, y, words)


def _summary(lane: Stream, layer: str) -> str:
    """Format the columns of a lane as rows, with the names of their tensors."""
    names = [f"{column.label}: {column.name.removeprefix(f'{layer}.')}" for column in lane.columns]
    rows = torch.stack([column.values for column in lane.columns])
    text = f"{lane.heading}, {layer} " + format_tensor(
        rows, "stage d_model", labels={"stage": names}
    )
    if lane.memory is None:
        return text
    memory = format_tensor(lane.memory.values, lane.memory.axes, labels=lane.memory.labels)
    return f"{text}\nmemory {memory}"


def _describe(lane: Stream, detail: int) -> str:
    """List the stages of a lane with all numbers (2), all but pre-norm outputs (1), or none (0)."""

    def stage(label: str, column: Column, least: int = 1) -> str:
        return f"{label} {column.text}" if detail >= least else label

    stages = [stage(lane.start.label, lane.start)]
    for part in lane.sublayers:
        stages.append(", ".join(filter(None, (part.words, part.looks))))
        if part.reads:
            stages.append(stage("norm", part.reads, least=2))
        stages += [stage("output", part.output), stage(part.equation, part.sum)]
        if part.leaves:
            stages.append(stage(f"norm {part.leaves.label}", part.leaves))
    if lane.last:
        stages.append(stage(f"norm {lane.last.label}", lane.last))
    listed = "; ".join(stages)
    if lane.memory:
        return message(
            "Residual stream of {word}, from left to right: {stages}. The memory enters from above "
            "as keys and values.",
            word=lane.heading, stages=listed,
        )  # fmt: skip
    return message("Residual stream of {word}, from left to right: {stages}.",
                   word=lane.heading, stages=listed)  # fmt: skip
