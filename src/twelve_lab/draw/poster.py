"""Poster: every number of a walk through the Transformer, on one A2 sheet."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from twelve.training import cross_entropy
from twelve_lab import example
from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.faces import BESIDE, draw_face
from twelve_lab.draw.font import LATIN
from twelve_lab.show import palette
from twelve_lab.show.format import format_number
from twelve_lab.show.table import as_plain_tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 594 / 25.4, 420 / 25.4  # inches
EDGE, GUTTER = 0.42, 0.56
COLUMN = (WIDTH - 2 * EDGE - 2 * GUTTER) / 3
LEFT, MIDDLE, RIGHT = (EDGE + number * (COLUMN + GUTTER) for number in range(3))
TOP, MIDDLE_TOP = 0.4, 6.3
NUMBER, NAME, SMALL, HEADING = 8.0, 8.5, 7.5, 12.0  # points
CELL, ROW = 0.5, 0.195
WEIGHT = 0.3  # width of a weight, which has few digits
LINE = 0.132  # height of a line above a tensor
BETWEEN = 0.05  # gap between two sentences
BELOW = 0.13  # gap between two rows of tensors
LABELS = 0.55  # room for the words to the left of a tensor
TITLE = "Twelve\nNumbers"
SUBTITLE = "Every number of one walk through a Transformer"
THREADS = "Each thread is one number of a word read, in the encoder. Further right is larger."
FACE = 0.17

LAYER = "encoder.layers.0"
# Stations of the encoder. The offset of a thread at a station is the value of its number there.
STATIONS = {
    "src_embedding.vectors": "vectors",
    "src_input": "+ position",
    f"{LAYER}.self_attention_residual.norm.output": "norm",
    f"{LAYER}.self_attention.projected_query": "query",
    f"{LAYER}.self_attention.projected_key": "key",
    f"{LAYER}.self_attention.projected_value": "value",
    f"{LAYER}.self_attention.merged": "context",
    f"{LAYER}.self_attention.output": "output",
    f"{LAYER}.self_attention_residual.added": "x + output",
    f"{LAYER}.feed_forward_residual.norm.output": "norm",
    f"{LAYER}.feed_forward.output": "feed-forward",
    f"{LAYER}.feed_forward_residual.added": "x + output",
    "memory": "memory",
}

Paint = Callable[[float, float], str]  # a value and the largest value -> a colour
Rows = list[list[float]]


class Box(NamedTuple):
    """Bounding box of the entries of a tensor."""

    left: float
    top: float
    right: float
    bottom: float


class Item(NamedTuple):
    """Matrices one above the other, with a heading."""

    names: Sequence[str]
    notes: Sequence[str]  # lines below the names
    blocks: list[Rows]
    ids: Iterable[str] = ()  # of the numbers, in drawing order, such as "logits[0]"
    axes: Sequence[str] = ()  # of rows and columns
    width: float = CELL
    decimals: int = 4
    paint: Paint = lambda value, largest: palette.PAPER
    words: str = ""  # the axis whose words are on the left
    rows: str = ""  # one letter to the left of each row
    columns: Sequence[str] = ()  # words above the columns; the largest number of each row is bold

    @property
    def margin(self) -> float:
        """Return the room for the words to the left of the numbers."""
        return LABELS if self.words else 0.15 * bool(self.rows)

    @property
    def height(self) -> float:
        """Return the height of the heading."""
        lines = len(self.names) + len(self.notes)
        return lines * LINE + 0.07 + (LINE + 0.04) * bool(self.columns)


class _Sheet(Canvas):
    """A canvas for one run; the next station begins at (`x`, `y`)."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        super().__init__()
        self.trace, self.x, self.y = trace, LEFT, TOP

    def band(self, number: str, title: str, prefix: str = "") -> None:
        """Draw the heading of a station: lesson number, title and prefix of its tensor names."""
        x, middle = self.x, self.y + 0.125
        self.box(x, self.y, COLUMN, 0.25, fill=palette.NAVY, edge="none", line=0)
        bold = {"size": HEADING, "align": "left", "bold": True}
        self.text(x + 0.1, middle, number, colour=palette.THREADS[1], **bold)
        after = x + 0.22 + self.width_of(number, HEADING, bold=True)
        self.text(after, middle, title, colour=palette.PALE, **bold)
        self.text(x + COLUMN - 0.1, middle, prefix, size=SMALL, align="right", colour=palette.PALE)
        self.y += 0.35

    def flow(self) -> None:
        """Draw the arrow to the next station."""
        x, y = self.x + COLUMN / 2, self.y - BELOW
        self.arrow((x, y + 0.02), (x, y + 0.19), width=2.2)
        self.y = y + 0.21

    def tensor(
        self, name: str, formula: str, *others: str, short: Sequence[str] = (), **style: Any
    ) -> Item:
        """Prepare a tensor of two sentences of two words; the tensors `others` are equal to it."""
        values, axes = as_plain_tensor(self.trace[name].value), self.trace[name].axes
        ids = zip(*(self._ids(other) for other in (name, *others)), strict=True)
        return Item(
            short or [other.rsplit(".", 1)[-1] for other in (name, *others)],
            [f"({', '.join(axes)})", formula], values.view(-1, *values.shape[-2:]).tolist(),
            map("|".join, ids), axes[-2:], paint=palette.signed_fill, **style,
        )  # fmt: skip

    def _ids(self, name: str) -> list[str]:
        """Name each number by its tensor and flat index; with heads, each column is a head."""
        shape = self.trace[name].value.shape
        index = torch.arange(shape.numel()).view(shape)
        if len(shape) == 4:
            index = index.transpose(1, 2)
        return [f"{name}[{i}]" for i in index.flatten().tolist()]

    def row(self, *items: Item) -> list[Box]:
        """Draw tensors side by side; return the edges of their cells."""
        x, boxes = self.x, []
        top = self.y + max(item.height for item in items)
        rooms = [self._room(item) for item in items]
        apart = min(0.4, (COLUMN - sum(rooms)) / len(rooms))
        for item, room in zip(items, rooms, strict=True):
            boxes.append(self._draw_item(item, x + item.margin, top))
            x += room + apart
        self.y = max(box.bottom for box in boxes) + BELOW
        return boxes

    def _room(self, item: Item) -> float:
        widths = [item.width * len(item.blocks[0][0])]
        widths += [self.width_of(name, NAME, bold=True) for name in item.names]
        widths += [self.width_of(note, SMALL) for note in item.notes]
        return item.margin + max(widths)

    def _draw_item(self, item: Item, x: float, top: float) -> Box:
        y = top - item.height
        for name in item.names:
            self.text(x, y + LINE / 2, name, size=NAME, align="left", bold=True)
            y += LINE
        for note in item.notes:
            self.text(x, y + LINE / 2, note, size=SMALL, align="left")
            y += LINE
        for number, word in enumerate(item.columns):
            self.text(x + (number + 0.5) * CELL, top - LINE / 2 - 0.1, word, size=SMALL)
        box = self.numbers(item, x, top)
        if item.axes and item.axes[-1] != "1":
            self.bracket(item.axes[-1], (x, top - 0.04), (box.right, top - 0.04), "top")
        y = top
        for number, block in enumerate(item.blocks):
            bottom = y + len(block) * ROW
            if item.axes:
                self.bracket(item.axes[0], (x - 0.04, y), (x - 0.04, bottom), "left")
            words = example.words[item.words][number] if item.words else item.rows
            for line, word in enumerate(words):
                middle = y + (line + 0.5) * ROW
                self.text(x - 0.08, middle, word, size=SMALL, align="right")
                left = x - 0.08 - self.width_of(word, SMALL) - BESIDE / 2 - FACE
                draw_face(self, word, left, middle, FACE)
            y = bottom + BETWEEN
        if item.words:
            left = x - LABELS + 0.02
            self.bracket("batch", (left, box.top), (left, box.bottom), "left")
        return box

    def numbers(self, item: Item, x: float, y: float) -> Box:
        """Draw the cells of an item with the upper left corner at (x, y)."""
        largest, ids, top = _largest(item.blocks), iter(item.ids), y
        for block in item.blocks:
            for values in block:
                for column, value in enumerate(values):
                    left = x + column * item.width
                    hidden = value == float("-inf")
                    fill = palette.SHADE if hidden else item.paint(value, largest)
                    self.box(left, y, item.width, ROW, fill=fill, line=0.5)
                    text = "−∞" if hidden else format_number(value, item.decimals)
                    bold = bool(item.columns) and value == max(values)
                    style = {"size": NUMBER, "bold": bold, "gid": next(ids, None)}
                    middle = left + item.width / 2, y + ROW / 2
                    self.text(*middle, text.replace("-", "−"), **style)
                y += ROW
            y += BETWEEN
        return Box(x, top, x + item.width * len(item.blocks[0][0]), y - BETWEEN)

    def lanes(
        self, name: str, formula: str, keys: Sequence[Sequence[str]] = (),
        paint: Paint = palette.signed_fill,
    ) -> None:  # fmt: skip
        """Draw scores or weights, with the heads of both sentences side by side."""
        values, x, y = as_plain_tensor(self.trace[name].value), self.x + LABELS, self.y
        word = name.rsplit(".", 1)[-1]
        self.text(x, y + LINE / 2, word, size=NAME, align="left", bold=True)
        after = x + self.width_of(word, NAME, bold=True) + 0.12
        note = f"({', '.join(self.trace[name].axes)})   {formula}"
        self.text(after, y + LINE / 2, note, size=SMALL, align="left")
        y += LINE + 0.09 + (LINE + 0.03) * bool(keys)
        for line, words in enumerate(("1st asks", "2nd asks")):
            self.text(x - 0.08, y + (line + 0.5) * ROW, words, size=SMALL, align="right")
        self.bracket("query", (x - 0.04, y), (x - 0.04, y + 2 * ROW), "left")
        largest = _largest(values.flatten(0, 1).tolist())
        ids = (f"{name}[{i}]" for i in range(values.numel()))
        for sentence, heads in enumerate(values.tolist()):
            for matrix in heads:
                for column, key in enumerate(keys[sentence] if keys else ()):
                    self.text(x + (column + 0.5) * CELL, y - LINE / 2 - 0.06, key, size=SMALL)
                item = Item((), (), [matrix], ids, paint=lambda value, _: paint(value, largest))
                box = self.numbers(item, x, y)
                self.bracket("head", (x, y - 0.04), (box.right, y - 0.04), "top")
                x = box.right + 0.05
            x += 0.1
        self.y = y + 2 * ROW + 0.09


def _largest(blocks: list[Rows]) -> float:
    values = (abs(value) for block in blocks for row in block for value in row)
    return max(value for value in values if value != float("inf"))


def _weights(name: str, matrix: Any, bias: Any = None, **style: Any) -> Item:
    """Prepare the weights of y = x W + b, on white because they are parameters."""
    notes = [f"({len(matrix)}, {len(matrix[0])})", ""]
    blocks = [matrix, *([[bias]] if bias else [])]
    return Item([name], notes, blocks, **{"width": WEIGHT, "decimals": 1, **style})


def poster(trace: Mapping[str, Any]) -> Figure:
    """Draw every number of a run on the running example, with the encoder beside the decoder.

    Args:
        trace: A pre-norm run with 3 heads; its entries have a value and axes.

    Returns:
        A matplotlib figure of A2 size.
    """
    sheet = _Sheet(trace)
    sheet.box(0, 0, WIDTH, HEIGHT, fill=palette.IVORY, edge="none", line=0)
    _draw_title(sheet)
    memory = _draw_encoder(sheet)
    keys, written = _draw_decoder(sheet)
    _lead(sheet, memory, keys, written)
    return sheet.sized(0, 0, WIDTH, HEIGHT)


def save_poster(trace: Mapping[str, Any], file: Path) -> None:
    """Save the poster as SVG or PDF, depending on the file suffix.

    Args:
        trace: The run.
        file: Output file.

    Raises:
        ValueError: If the file has another suffix.
    """
    import matplotlib as mpl

    if file.suffix not in (".svg", ".pdf"):
        raise ValueError(f"save_poster: file must end in .svg or .pdf, got {file}")
    figure, written = poster(trace), io.BytesIO()
    # Keep text as text in an embedded font; omit the date, so the file is reproducible.
    style = {"svg.fonttype": "none", "svg.hashsalt": "poster", "pdf.fonttype": 42}
    dated = {"Date": None} if file.suffix == ".svg" else {"CreationDate": None}
    with mpl.rc_context(style):
        figure.savefig(written, format=file.suffix[1:], metadata={"Title": TITLE, **dated})
    content = written.getvalue()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_with_fonts(content) if file.suffix == ".svg" else content)


def _with_fonts(svg: bytes) -> bytes:
    """Embed in an SVG the font glyphs that its text uses."""
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont
    from matplotlib.font_manager import FontProperties, findfont

    text = svg.decode()
    letters = re.sub(r"<[^>]+>", "", text).replace("&lt;", "<").replace("&gt;", ">")
    faces = []
    for weight in ("normal", "bold"):
        font = TTFont(findfont(FontProperties(family=LATIN, weight=weight)), recalcTimestamp=False)
        subsetter = Subsetter(Options(hinting=False, drop_tables=["FFTM"]))
        subsetter.populate(text=letters)
        subsetter.subset(font)
        packed = io.BytesIO()
        font.save(packed)
        data = base64.b64encode(packed.getvalue()).decode()
        faces.append(
            f"@font-face{{font-family:'{LATIN}';font-weight:{weight};"
            f"src:url(data:font/ttf;base64,{data})}}"
        )
    return text.replace("<defs>", f"<defs>\n  <style>{''.join(faces)}</style>", 1).encode()


def _embed(sheet: _Sheet, axis: str, positional: str) -> None:
    """Draw ids, embedding table and positions."""
    sheet.band("02, 03", "Look up a vector for each word, add its position")
    ids = {"src": example.src, "tgt": example.tgt}[axis].unsqueeze(-1).tolist()
    sheet.row(
        Item(["ids"], [axis, ""], ids, width=0.26, words=axis),
        _weights("table", example.embedding_rows, width=0.35, decimals=2, rows="0123"),
        sheet.tensor(f"{axis}_embedding.vectors", "table[ids]"),
        sheet.tensor(f"{positional}.positions", "sine, cosine of the position"),
        sheet.tensor(f"{positional}.encoded", "vectors + positions", f"{axis}_input",
                     short=[f"encoded = {axis}_input"]),
    )  # fmt: skip


def _norm(sheet: _Sheet, path: str, axis: str, *moved: str) -> list[Item]:
    """Prepare mean, variance and normalized rows; gain 1 and shift 0 do not change them."""
    short = [" = ".join(("normalized", "output", *moved))]
    return [
        sheet.tensor(f"{path}.mean", "Σx / 3", words=axis),
        sheet.tensor(f"{path}.variance", "Σ(x − mean)² / 3"),
        sheet.tensor(f"{path}.normalized", "(x − mean) / √variance; γ 1, β 0", f"{path}.output",
                     *moved, short=short),
    ]  # fmt: skip


def _attention(sheet: _Sheet, path: str, block: str, axis: str, title: str) -> Box:
    """Draw norm, projections, weights, context and sum; return the edges of the keys."""
    is_cross = path.endswith("cross_attention")
    source, read = ("memory", "src") if is_cross else ("output", axis)
    sheet.band("04 to 08", title, path)
    weights = example.weights()[block]
    matrices = (_weights(f"W{letter}", weights[f"W{letter}"]) for letter in "qkv")
    sheet.row(*_norm(sheet, f"{path}_residual.norm", axis), *matrices)
    _, keys, _ = sheet.row(*(
        sheet.tensor(
            f"{path}.projected_{word}",
            f"{source if word != 'query' else 'output'} @ W{word[0]}, a column a head",
            f"{path}.{word}_heads", short=[f"projected_{word}", f"= {word}_heads"],
            words=axis if word == "query" else "src" if is_cross and word == "key" else "",
        )
        for word in ("query", "key", "value")
    ))  # fmt: skip
    mask = "−∞ where the " + ("future is" if axis == "tgt" and not is_cross else "padding is")
    scores = "query · key / √d_k, which is 1"
    sheet.lanes(f"{path}.scores", scores, example.words[read])
    sheet.lanes(f"{path}.masked_scores", mask)
    sheet.lanes(f"{path}.weights", "softmax: each row sums to 1",
                paint=lambda value, _: palette.weight_fill(value))  # fmt: skip
    sheet.y += BELOW - 0.09
    sheet.row(
        sheet.tensor(f"{path}.merged", "weights · values", f"{path}.context",
                     short=["context = merged"], words=axis),
        _weights("Wo", weights["Wo"]),
        sheet.tensor(f"{path}.output", "merged @ Wo"),
        sheet.tensor(f"{path}_residual.added", "x + output"),
    )  # fmt: skip
    return keys


def _feed_forward(sheet: _Sheet, path: str, block: str, axis: str) -> None:
    """Draw norm, both linear layers and the sum."""
    sheet.band("09", "Each word thinks, alone", path)
    weights = example.weights()[block]
    first = _weights("W1, b1", weights["W1"], weights["b1"])
    sheet.row(*_norm(sheet, f"{path}_residual.norm", axis), first)
    sheet.row(
        sheet.tensor(f"{path}.pre_activation", "output @ W1 + b1", words=axis),
        sheet.tensor(f"{path}.activated", "max(0, x)"),
        _weights("W2, b2", weights["W2"], weights["b2"]),
    )
    sheet.row(
        sheet.tensor(f"{path}.output", "activated @ W2 + b2", words=axis),
        sheet.tensor(f"{path}_residual.added", "x + output"),
    )


def _draw_encoder(sheet: _Sheet) -> Box:
    """Draw the encoder in the left column; return the edges of the memory."""
    _embed(sheet, "src", "positional_encoding")
    sheet.flow()
    path = f"{LAYER}.self_attention"
    _attention(sheet, path, "enc_self", "src", "Each word looks at its sentence")
    sheet.flow()
    _feed_forward(sheet, f"{LAYER}.feed_forward", "enc_ffn", "src")
    sheet.flow()
    sheet.band("10", "The encoder hands over its memory", "encoder.norm")
    return sheet.row(*_norm(sheet, "encoder.norm", "src", "memory"))[-1]


def _draw_decoder(sheet: _Sheet) -> tuple[Box, float]:
    """Draw the decoder in two columns; return the memory keys and the end of the first column."""
    layer = "decoder.layers.0"
    sheet.x, sheet.y = MIDDLE, MIDDLE_TOP
    _embed(sheet, "tgt", "positional_encoding#2")
    sheet.flow()
    path = f"{layer}.self_attention"
    _attention(sheet, path, "dec_self", "tgt", "Each word looks at those before it")
    written = sheet.y - BELOW
    sheet.x, sheet.y = RIGHT, TOP
    path = f"{layer}.cross_attention"
    keys = _attention(sheet, path, "dec_cross", "tgt", "Each looks at the words read")
    sheet.flow()
    _feed_forward(sheet, f"{layer}.feed_forward", "dec_ffn", "tgt")
    sheet.flow()
    sheet.band("12", "Which word is next?", "decoder.norm")
    sheet.row(*_norm(sheet, "decoder.norm", "tgt", "decoder_output"))
    weights = example.weights()["out"]
    formula, columns = "decoder_output @ W + b", example.vocabulary
    logits = sheet.row(
        _weights("W, b", weights["W"], weights["b"]),
        sheet.tensor("logits", formula, words="tgt", columns=columns),
    )[-1]
    _draw_answers(sheet, logits)
    return keys, written


def _draw_answers(sheet: _Sheet, logits: Box) -> None:
    """Draw the predicted words beside the logits, the verdict on each, and the loss below."""
    scores, x, y = as_plain_tensor(sheet.trace["logits"].value), logits.right, logits.top + ROW / 2
    for sentence, labels in zip(scores.argmax(-1).tolist(), example.labels.tolist(), strict=True):
        for token, label in zip(sentence, labels, strict=True):
            word = example.vocabulary[token]
            sheet.arrow((x + 0.06, y), (x + 0.28, y))
            draw_face(sheet, word, x + 0.32, y, FACE)
            sheet.text(x + 0.54, y, word, size=HEADING, align="left", bold=True)
            wrong = f"✗ should say {example.vocabulary[label]}" if label >= 0 else "not graded"
            verdict = "✓" if token == label else wrong
            sheet.text(x + 1.0, y, verdict, size=NAME + 2, align="left")
            y += ROW
        y += BETWEEN
    loss = format_number(float(cross_entropy(scores, example.labels)))
    words = f"loss {loss}: mean of −ln(probability of the right word)"
    sheet.text(logits.left, y + 0.05, words, size=NAME + 2, align="left")


def _lead(sheet: _Sheet, memory: Box, keys: Box, written: float) -> None:
    """Draw the lines from the memory to its keys, and from the middle to the right column."""
    x, bottom = RIGHT - GUTTER / 2, HEIGHT - 0.36
    of_memory, of_stream = (palette.axis_style(axis).colour for axis in ("src", "tgt"))
    start = memory.right + 0.15, (memory.top + memory.bottom) / 2
    turn, end = LEFT + COLUMN + GUTTER / 2, (keys.top + keys.bottom) / 2
    points = [start, (turn, start[1]), (turn, bottom), (x - 0.08, bottom), (x - 0.08, end)]
    _draw_way(sheet, [*points, (RIGHT - 0.1, end)], of_memory)
    middle, top = MIDDLE + COLUMN / 2, TOP + 0.125
    sheet.text(middle, bottom, "memory", size=HEADING, bold=True, ground=palette.IVORY)
    points = [(middle, written + 0.06), (middle, bottom - 0.2), (x + 0.08, bottom - 0.2)]
    _draw_way(sheet, [*points, (x + 0.08, top), (RIGHT - 0.12, top)], of_stream)


def _draw_way(sheet: _Sheet, points: list[tuple[float, float]], colour: str) -> None:
    """Draw a thick line that ends in an arrowhead pointing right."""
    from matplotlib.patches import Polygon

    sheet.line(points, colour=colour, width=5)
    x, y = points[-1]
    corners = [(x - 0.03, y - 0.09), (x + 0.1, y), (x - 0.03, y + 0.09)]
    sheet.patch(Polygon(corners, facecolor=colour, edgecolor="none", zorder=3), (x, y))


def _draw_title(sheet: _Sheet) -> None:
    """Draw the title with the threads, and the legend."""
    left, right, bottom = MIDDLE - 0.02, MIDDLE + COLUMN + 0.02, 5.1
    sheet.box(left, 0, right - left, bottom, fill=palette.NAVY, edge="none", line=0)
    _draw_threads(sheet, (left + 1.5, right - 0.55), (2.98, bottom - 0.1))
    sheet.text(left + 0.4, 1.08, TITLE, size=62, align="left", bold=True, colour=palette.PALE)
    sheet.text(left + 0.43, 2.3, SUBTITLE, size=17, align="left", colour=palette.PALE)
    sheet.text(left + 0.43, 2.58, THREADS, size=NAME, align="left", colour=palette.PALE)
    _draw_legend(sheet, bottom + 0.22)


def _draw_threads(sheet: _Sheet, across: tuple[float, float], down: tuple[float, float]) -> None:
    """Draw the twelve numbers as threads that are vertical at each station."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Line

    stations = [as_plain_tensor(sheet.trace[name].value).flatten() for name in STATIONS]
    step = (down[1] - down[0]) / (len(stations) - 1)
    # Leave a gap after each word, and a wider gap between sentences.
    offsets = [number + 0.9 * (number // 3 + number // 6) for number in range(12)]
    for number, (offset, values) in enumerate(
        zip(offsets, torch.stack(stations, 1).tolist(), strict=True)
    ):
        base = across[0] + (across[1] - across[0]) * offset / offsets[-1]
        points = [(base + 0.22 * value, down[0] + step * row) for row, value in enumerate(values)]
        path = [points[0]]
        for (x0, y0), (x1, y1) in pairwise(points):
            path += [(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1)]
        codes = [Line.MOVETO, *[Line.CURVE4] * (len(path) - 1)]
        style = {"edgecolor": palette.THREADS[number // 3], "facecolor": "none", "linewidth": 2.4}
        sheet.patch(PathPatch(Line(path, codes), zorder=2, **style), points[0])
        if number % 3 == 1:
            word = example.words["src"][number // 6][number // 3 % 2]
            sheet.text(base, down[0] - 0.16, word, size=NAME, bold=True, colour=palette.PALE)
            face = base - sheet.width_of(word, NAME, bold=True) / 2 - BESIDE - FACE
            draw_face(sheet, word, face, down[0] - 0.16, FACE)
    for row, name in enumerate(STATIONS.values()):
        style = {"size": SMALL, "align": "right", "colour": palette.PALE}
        sheet.text(across[0] - 0.45, down[0] + step * row, name, **style)


def _draw_legend(sheet: _Sheet, y: float) -> None:
    """Draw the legend of brackets, colours and white cells."""
    axes = {
        "batch": "the two sentences", "src": "a word that is read", "tgt": "a word that is written",
        "d_model": "a feature of a word", "head": "a head", "d_k": "a feature of a head",
    }  # fmt: skip
    fills = {
        palette.signed_fill(-1.0, 1.0): "below zero", palette.signed_fill(1.0, 1.0): "above zero",
        palette.PAPER: "given: an id or a weight",
    }  # fmt: skip
    for number, (axis, meaning) in enumerate(axes.items()):
        x, height = MIDDLE + number % 3 * COLUMN / 3, y + 0.22 * (number // 3)
        sheet.bracket(axis, (x, height), (x + 0.3, height), "top")
        sheet.text(x + 0.38, height + 0.02, f"{axis}: {meaning}", size=SMALL, align="left")
    y += 0.42
    for number, (fill, meaning) in enumerate(fills.items()):
        x = MIDDLE + number * COLUMN / 3
        sheet.box(x, y, 0.3, ROW, fill=fill, line=0.5)
        sheet.text(x + 0.38, y + ROW / 2, meaning, size=SMALL, align="left")
