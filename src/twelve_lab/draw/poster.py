"""The poster: every number of a walk through the Transformer on one sheet of A2."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from twelve_lab import example
from twelve_lab.draw.canvas import FONT, Canvas
from twelve_lab.draw.threads import PLACES, curves, threads
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import (
    INK,
    IVORY,
    NAVY,
    PALE,
    PAPER,
    SHADE,
    THREADS,
    axis_style,
    signed_fill,
    weight_fill,
)  # fmt: skip
from twelve_lab.show.table import as_plain_tensor

WIDTH, HEIGHT = 594 / 25.4, 420 / 25.4  # inches
EDGE, GUTTER = 0.42, 0.56
COLUMN = (WIDTH - 2 * EDGE - 2 * GUTTER) / 3
LEFT, MIDDLE, RIGHT = (EDGE + number * (COLUMN + GUTTER) for number in range(3))
TOP, MIDDLE_TOP = 0.4, 6.3
NUMBER, NAME, SMALL, HEADING = 8.0, 8.5, 7.5, 12.0  # points
CELL, ROW = 0.5, 0.195
LINE = 0.132  # height of a line above a tensor
BETWEEN = 0.05  # between two sentences
BELOW = 0.13  # from a row of tensors to the next
LABELS = 0.55  # room for the words before a row of tensors
APART = 0.17  # between two tensors
WEIGHT = 0.3  # width of a weight, which has few digits
TITLE = "Twelve\nNumbers"
SUBTITLE = "Every number of one walk through a Transformer"

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Part(NamedTuple):
    """The common prefix of the tensor names of a sublayer, and the axis of its words."""

    prefix: str
    axis: str

    def __getitem__(self, name: str) -> str:  # type: ignore[override]
        """Return the full name of a tensor."""
        return f"{self.prefix}.{name}"


class Box(NamedTuple):
    """Edges of the numbers of a tensor."""

    left: float
    top: float
    right: float
    bottom: float


class _Sheet(Canvas):
    """A canvas for one run, on which each number carries its tensor and index as id."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        super().__init__()
        self.trace = trace

    def text(
        self, x: float, y: float, text: str, *, colour: str = INK, ground: str = "", **style: Any
    ) -> None:
        super().text(x, y, text, paper=bool(ground), **style)
        if text:
            self._artists[-1].set_color(colour)
        if ground:
            self._artists[-1].get_bbox_patch().set_facecolor(ground)

    def head_of_arrow(self, x: float, y: float, colour: str) -> None:
        """Draw the head of an arrow that points to the right."""
        from matplotlib.patches import Polygon

        corners = [(x - 0.03, y - 0.09), (x + 0.1, y), (x - 0.03, y + 0.09)]
        self.patch(Polygon(corners, facecolor=colour, edgecolor="none", zorder=3), (x, y))

    def value(self, name: str) -> Tensor:
        return as_plain_tensor(self.trace[name].value)

    def place(self, name: str, sentence: int, row: int, column: int) -> str:
        """Name a number by its tensor and flat index; with heads, each column is a head."""
        shape = self.value(name).shape
        if len(shape) == 4:
            return f"{name}[{(sentence * shape[1] + column) * shape[2] + row}]"
        return f"{name}[{(sentence * shape[-2] + row) * shape[-1] + column}]"

    def number(
        self, x: float, y: float, value: float, fill: str, *,
        width: float = CELL, names: str = "", decimals: int = 4, bold: bool = False,
    ) -> None:  # fmt: skip
        """Draw a cell by its upper left corner; `names` is its id, as "logits[0]"."""
        hidden = value == float("-inf")
        self.box(x, y, width, ROW, fill=SHADE if hidden else fill, line=0.5)
        text = "−∞" if hidden else format_number(value, decimals).replace("-", "−")
        self.text(x + width / 2, y + ROW / 2, text, size=NUMBER, bold=bold)
        self._artists[-1].set_gid(names or None)

    def head(self, x: float, y: float, names: Sequence[str], axes: str, formula: str) -> float:
        """Write names, axes and formula of a tensor; return the upper edge of its cells."""
        for name in names:
            self.text(x, y + LINE / 2, name, size=NAME, align="left", bold=True)
            y += LINE
        for line in (axes, *formula.split("\n")):
            if line:
                self.text(x, y + LINE / 2, line, size=SMALL, align="left")
                y += LINE
        return y + 0.07


def poster(trace: Mapping[str, Any]) -> Figure:
    """Draw every number of a run of the running example, the encoder beside the decoder.

    Args:
        trace: The run, of 3 heads, pre-norm; its entries have a value and axes.

    Returns:
        A matplotlib figure of the size of A2.
    """
    sheet = _Sheet(trace)
    sheet.box(0, 0, WIDTH, HEIGHT, fill=IVORY, edge="none", line=0)
    _draw_title(sheet)
    memory = _draw_encoder(sheet)
    keys, written = _draw_decoder(sheet)
    _lead(sheet, memory, keys, written)
    return sheet.sized(0, 0, WIDTH, HEIGHT)


def save_poster(trace: Mapping[str, Any], file: Path) -> None:
    """Write the poster as SVG or PDF, by the suffix of the file.

    Args:
        trace: The run.
        file: Output file.

    Raises:
        ValueError: If the suffix is another one.
    """
    import matplotlib as mpl

    if file.suffix not in (".svg", ".pdf"):
        raise ValueError(f"save_poster: file must end in .svg or .pdf, got {file}")
    figure, written = poster(trace), io.BytesIO()
    # Text stays text in an embedded font; without a date the file is reproducible.
    style = {"svg.fonttype": "none", "svg.hashsalt": "poster", "pdf.fonttype": 42}
    dated = {"Date": None} if file.suffix == ".svg" else {"CreationDate": None}
    with mpl.rc_context(style):
        figure.savefig(written, format=file.suffix[1:], metadata={"Title": TITLE, **dated})
    content = written.getvalue()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_with_fonts(content) if file.suffix == ".svg" else content)


def _with_fonts(svg: bytes) -> bytes:
    """Embed the glyphs of an SVG as fonts."""
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont
    from matplotlib.font_manager import FontProperties, findfont

    text = svg.decode()
    letters = re.sub(r"<[^>]+>", "", text).replace("&lt;", "<").replace("&gt;", ">")
    faces = []
    for weight in ("normal", "bold"):
        font = TTFont(findfont(FontProperties(family=FONT, weight=weight)), recalcTimestamp=False)
        subsetter = Subsetter(Options(hinting=False, drop_tables=["FFTM"]))
        subsetter.populate(text=letters)
        subsetter.subset(font)
        packed = io.BytesIO()
        font.save(packed)
        data = base64.b64encode(packed.getvalue()).decode()
        faces.append(
            f"@font-face{{font-family:'{FONT}';font-weight:{weight};"
            f"src:url(data:font/ttf;base64,{data})}}"
        )
    return text.replace("<defs>", f"<defs>\n  <style>{''.join(faces)}</style>", 1).encode()


def _matrix(
    sheet: _Sheet, x: float, y: float, names: Sequence[str], formula: str, *,
    short: Sequence[str] = (), paint: Callable[[float, float], str] = signed_fill,
    columns: Sequence[str] = (), best: bool = False,
) -> Box:  # fmt: skip
    """Draw a tensor of two sentences of two words, one sentence above the other.

    Args:
        sheet: Where to draw.
        x: Left edge of the cells.
        y: Upper edge of the text above the cells.
        names: Name of the tensor, and of other tensors with the same numbers.
        formula: Formula of the tensor.
        short: Printed names; by default, the last parts of the names.
        paint: Maps a value and the largest value to a colour.
        columns: Words above the columns.
        best: Whether the largest number of each row is bold.
    """
    entry = sheet.trace[names[0]]
    values = sheet.value(names[0])
    axes = entry.axes
    if values.dim() == 2:
        values = values.unsqueeze(0)
    shown = ", ".join(axes)
    y = sheet.head(
        x, y, short or [name.rsplit(".", 1)[-1] for name in names], f"({shown})", formula
    )
    for number, word in enumerate(columns):
        sheet.text(x + (number + 0.5) * CELL, y + LINE / 2 - 0.03, word, size=SMALL)
    y += (LINE + 0.04) * bool(columns)
    width, top = CELL * values.size(-1), y
    if axes[-1] != "1":
        sheet.bracket(axes[-1], (x, y - 0.04), (x + width, y - 0.04), "top")
    largest = float(values.abs().max())
    rows = values.size(1)
    for sentence, block in enumerate(values.tolist()):
        for number, row in enumerate(block):
            for column, value in enumerate(row):
                sheet.number(
                    x + column * CELL, y, value, paint(value, largest),
                    names="|".join(sheet.place(name, sentence, number, column) for name in names),
                    bold=best and value == max(row),
                )  # fmt: skip
            y += ROW
        start = y - rows * ROW
        sheet.bracket(axes[-2], (x - 0.04, start), (x - 0.04, y), "left")
        y += BETWEEN
    return Box(x, top, x + width, y - BETWEEN)


def _words(sheet: _Sheet, x: float, box: Box, axis: str) -> None:
    """Write the words of both sentences beside a tensor, with the bracket of the batch."""
    y = box.top
    for words in example.words[axis]:
        for word in words:
            sheet.text(x + LABELS - 0.08, y + ROW / 2, word, size=SMALL, align="right")
            y += ROW
        y += BETWEEN
    sheet.bracket("batch", (x + 0.02, box.top), (x + 0.02, box.bottom), "left")


def _lanes(
    sheet: _Sheet, x: float, y: float, part: Part, name: str, formula: str,
    paint: Callable[[float, float], str], keys: Sequence[Sequence[str]],
) -> float:  # fmt: skip
    """Draw scores or weights, the heads of a sentence side by side; return the lower edge."""
    values = sheet.value(part[name])
    shown = ", ".join(sheet.trace[part[name]].axes)
    sheet.text(x + LABELS, y + LINE / 2, name, size=NAME, align="left", bold=True)
    after = x + LABELS + sheet.width_of(name, NAME, bold=True) + 0.12
    sheet.text(after, y + LINE / 2, f"({shown})   {formula}", size=SMALL, align="left")
    y += LINE + 0.09 + (LINE + 0.03 if keys else 0)
    for i, word in enumerate(("1st asks", "2nd asks")):
        sheet.text(x + LABELS - 0.08, y + (i + 0.5) * ROW, word, size=SMALL, align="right")
    largest = float(values[values.isfinite()].abs().max())
    left = x + LABELS
    for sentence, heads in enumerate(values.tolist()):
        for head, matrix in enumerate(heads):
            for column, word in enumerate(keys[sentence] if keys else ()):
                sheet.text(left + (column + 0.5) * CELL, y - LINE / 2 - 0.06, word, size=SMALL)
            sheet.bracket("head", (left, y - 0.04), (left + 2 * CELL, y - 0.04), "top")
            for i, row in enumerate(matrix):
                for j, value in enumerate(row):
                    index = ((sentence * 3 + head) * 2 + i) * 2 + j
                    sheet.number(left + j * CELL, y + i * ROW, value, paint(value, largest),
                                 names=f"{part[name]}[{index}]")  # fmt: skip
            left += 2 * CELL + 0.05
        left += 0.1
    at = x + LABELS - 0.04
    sheet.bracket("query", (at, y), (at, y + 2 * ROW), "left")
    return y + 2 * ROW + 0.09


def _weights(
    sheet: _Sheet, x: float, y: float, name: str, matrix: Any, bias: Any = None, *,
    width: float = WEIGHT, decimals: int = 1, rows: Sequence[str] = (),
) -> Box:  # fmt: skip
    """Draw weights as in y = x W + b, on white because they are not computed."""
    y = top = sheet.head(x, y, [name], f"({len(matrix)}, {len(matrix[0])})", " ")
    for number, row in enumerate([*matrix, *([bias] if bias else [])]):
        y += BETWEEN if number == len(matrix) else 0
        for column, value in enumerate(row):
            sheet.number(x + column * width, y, value, PAPER, width=width, decimals=decimals)
        if rows:
            sheet.text(x - 0.06, y + ROW / 2, rows[number], size=SMALL, align="right")
        y += ROW
    return Box(x, top, x + width * len(matrix[0]), y)


def _band(sheet: _Sheet, x: float, y: float, number: str, title: str, prefix: str = "") -> float:
    """Draw the heading of a station: lesson, title and prefix of its names."""
    height = 0.25
    sheet.box(x, y, COLUMN, height, fill=NAVY, edge="none", line=0)
    middle = y + height / 2
    sheet.text(x + 0.1, middle, number, size=HEADING, align="left", bold=True, colour=THREADS[1])
    after = x + 0.22 + sheet.width_of(number, HEADING, bold=True)
    sheet.text(after, middle, title, size=HEADING, align="left", bold=True, colour=PALE)
    sheet.text(x + COLUMN - 0.1, middle, prefix, size=SMALL, align="right", colour=PALE)
    return y + height + 0.1


def _flow(sheet: _Sheet, x: float, y: float) -> float:
    """Draw the arrow to the next station."""
    sheet.arrow((x + COLUMN / 2, y + 0.02), (x + COLUMN / 2, y + 0.19), width=2.2)
    return y + 0.21


def _embed(sheet: _Sheet, x: float, y: float, axis: str, positional: str) -> float:
    """Draw ids, table and positions; return the lower edge."""
    y = _band(sheet, x, y, "02, 03", "Look up a vector for each word, add its place")
    ids = {"src": example.src, "tgt": example.tgt}[axis].tolist()
    top = line = sheet.head(x + LABELS, y, ["ids"], axis, " ")
    for sentence in ids:
        for token in sentence:
            sheet.box(x + LABELS, line, 0.26, ROW, line=0.5)
            sheet.text(x + LABELS + 0.13, line + ROW / 2, str(token), size=NUMBER)
            line += ROW
        line += BETWEEN
    _words(sheet, x, Box(x, top, x, line - BETWEEN), axis)
    table = _weights(
        sheet, x + LABELS + 0.26 + APART + 0.12, y, "table", example.embedding_rows,
        width=0.35, decimals=2, rows="0123",
    )  # fmt: skip
    vectors = _matrix(sheet, table.right + APART, y, [f"{axis}_embedding.vectors"], "table[ids]",
                      short=["vectors"])  # fmt: skip
    positions = _matrix(sheet, vectors.right + APART, y, [f"{positional}.positions"],
                        "sine, cosine of the place")  # fmt: skip
    encoded = _matrix(sheet, positions.right + APART, y,
                      [f"{positional}.encoded", f"{axis}_input"], "vectors + positions",
                      short=[f"encoded = {axis}_input"])  # fmt: skip
    return encoded.bottom


def _norm(sheet: _Sheet, x: float, y: float, part: Part, moved: str = "") -> Box:
    """Draw mean, variance and normalized rows; gain 1 and shift 0 do not change them."""
    mean = _matrix(sheet, x + LABELS, y, [part["mean"]], "Σx / 3")
    _matrix(sheet, x + LABELS + 0.92, y, [part["variance"]], "Σ(x − mean)² / 3")
    _words(sheet, x, mean, part.axis)
    short = "normalized = output" + (f" = {moved}" if moved else "")
    names = [part["normalized"], part["output"], *([moved] if moved else [])]
    return _matrix(sheet, x + LABELS + 1.95, y, names, "(x − mean) / √variance; γ 1, β 0",
                   short=[short])  # fmt: skip


def _attention(
    sheet: _Sheet, x: float, y: float, path: str, block: str, axis: str, title: str
) -> tuple[float, Box]:
    """Draw norm, projections, weights, context and sum; return the lower edge and the keys."""
    part, is_cross = Part(path, axis), path.endswith("cross_attention")
    y = _band(sheet, x, y, "04 to 08", title, path)
    weights = example.weights()[block]
    box = _norm(sheet, x, y, Part(f"{path}_residual.norm", axis))
    at = x + COLUMN - 3 * 3 * WEIGHT - 2 * 0.1
    for letter in "qkv":
        at = _weights(sheet, at, y, f"W{letter}", weights[f"W{letter}"]).right + 0.1
    y = box.bottom + BELOW

    boxes = []
    third = (COLUMN - LABELS) / 3 + 0.12
    for number, word in enumerate(("query", "key", "value")):
        names = [part[f"projected_{word}"], part[f"{word}_heads"]]
        source = "memory" if is_cross and number else "output"
        boxes.append(_matrix(
            sheet, x + LABELS + number * third, y, names, f"{source} @ W{word[0]}, a column a head",
            short=[f"projected_{word}", f"= {word}_heads"],
        ))  # fmt: skip
    _words(sheet, x, boxes[0], axis)
    if is_cross:
        _words(sheet, boxes[1].left - LABELS, boxes[1], "src")
    y = boxes[0].bottom + BELOW

    mask = "−∞ where the " + ("future is" if axis == "tgt" and not is_cross else "padding is")
    keys = example.words["src" if is_cross else axis]
    y = _lanes(sheet, x, y, part, "scores", "query · key / √d_k, which is 1", signed_fill, keys)
    y = _lanes(sheet, x, y, part, "masked_scores", mask, signed_fill, ())
    y = _lanes(sheet, x, y, part, "weights", "softmax: each row sums to 1",
               lambda value, _: weight_fill(value), ())  # fmt: skip
    y += BELOW - 0.09

    context = _matrix(sheet, x + LABELS, y, [part["merged"], part["context"]],
                      "weights · values", short=["context = merged"])  # fmt: skip
    _words(sheet, x, context, axis)
    w_o = _weights(sheet, context.right + 0.42, y, "Wo", weights["Wo"])
    output = _matrix(sheet, w_o.right + 0.42, y, [part["output"]], "merged @ Wo")
    added = _matrix(sheet, output.right + 0.3, y, [f"{path}_residual.added"], "x + output")
    return added.bottom, boxes[1]


def _feed_forward(sheet: _Sheet, x: float, y: float, path: str, block: str, axis: str) -> float:
    """Draw norm, both linear layers and the sum; return the lower edge."""
    part = Part(path, axis)
    y = _band(sheet, x, y, "09", "Each word thinks, alone", path)
    weights = example.weights()[block]
    box = _norm(sheet, x, y, Part(f"{path}_residual.norm", axis))
    _weights(sheet, box.right + 0.62, y, "W1, b1", weights["W1"], weights["b1"])
    y = box.bottom + BELOW
    before = _matrix(sheet, x + LABELS, y, [part["pre_activation"]], "output @ W1 + b1")
    _words(sheet, x, before, axis)
    after = _matrix(sheet, before.right + 0.3, y, [part["activated"]], "max(0, x)")
    _weights(sheet, after.right + 0.42, y, "W2, b2", weights["W2"], weights["b2"])
    y = before.bottom + BELOW
    output = _matrix(sheet, x + LABELS, y, [part["output"]], "activated @ W2 + b2")
    _words(sheet, x, output, axis)
    added = _matrix(sheet, output.right + 0.3, y, [f"{path}_residual.added"], "x + output")
    return added.bottom


def _draw_encoder(sheet: _Sheet) -> Box:
    """Draw the encoder in the left column; return the memory."""
    layer = "encoder.layers.0"
    y = _embed(sheet, LEFT, TOP, "src", "positional_encoding")
    y = _flow(sheet, LEFT, y)
    y, _ = _attention(sheet, LEFT, y, f"{layer}.self_attention", "enc_self", "src",
                      "Each word looks at its sentence")  # fmt: skip
    y = _flow(sheet, LEFT, y)
    y = _feed_forward(sheet, LEFT, y, f"{layer}.feed_forward", "enc_ffn", "src")
    y = _flow(sheet, LEFT, y)
    y = _band(sheet, LEFT, y, "10", "The encoder hands over its memory", "encoder.norm")
    return _norm(sheet, LEFT, y, Part("encoder.norm", "src"), "memory")


def _draw_decoder(sheet: _Sheet) -> tuple[Box, float]:
    """Draw the decoder in two columns; return the keys of the memory and the end of the first."""
    layer = "decoder.layers.0"
    y = MIDDLE_TOP
    y = _embed(sheet, MIDDLE, y, "tgt", "positional_encoding#2")
    y = _flow(sheet, MIDDLE, y)
    written, _ = _attention(sheet, MIDDLE, y, f"{layer}.self_attention", "dec_self", "tgt",
                            "Each word looks at those before it")  # fmt: skip
    y, keys = _attention(sheet, RIGHT, TOP, f"{layer}.cross_attention", "dec_cross", "tgt",
                         "Each looks at the words read")  # fmt: skip
    y = _flow(sheet, RIGHT, y)
    y = _feed_forward(sheet, RIGHT, y, f"{layer}.feed_forward", "dec_ffn", "tgt")
    y = _flow(sheet, RIGHT, y)
    y = _band(sheet, RIGHT, y, "12", "Which word is next?", "decoder.norm")
    box = _norm(sheet, RIGHT, y, Part("decoder.norm", "tgt"), "decoder_output")
    y = box.bottom + BELOW
    out = example.weights()["out"]
    weights = _weights(sheet, RIGHT + LABELS, y, "W, b", out["W"], out["b"])
    logits = _matrix(sheet, weights.right + LABELS + 0.35, y, ["logits"],
                     "decoder_output @ W + b", columns=example.vocabulary, best=True)  # fmt: skip
    _words(sheet, logits.left - LABELS, logits, "tgt")
    _draw_prediction(sheet, logits)
    return keys, written


def _draw_prediction(sheet: _Sheet, logits: Box) -> None:
    """Write the word with the highest logit of each row."""
    y = logits.top
    for sentence in sheet.value("logits").argmax(-1).tolist():
        for token in sentence:
            middle, x = y + ROW / 2, logits.right
            sheet.arrow((x + 0.06, middle), (x + 0.36, middle))
            word = example.vocabulary[token]
            sheet.text(x + 0.42, middle, word, size=HEADING, align="left", bold=True)
            y += ROW
        y += BETWEEN


def _lead(sheet: _Sheet, memory: Box, keys: Box, written: float) -> None:
    """Draw the lines from the memory to its keys, and from the middle to the right column."""
    x, bottom = RIGHT - GUTTER / 2, HEIGHT - 0.36
    end = (keys.top + keys.bottom) / 2
    start = memory.right + 0.15, (memory.top + memory.bottom) / 2
    turn = LEFT + COLUMN + GUTTER / 2
    points = [start, (turn, start[1]), (turn, bottom), (x - 0.08, bottom), (x - 0.08, end)]
    sheet.line(points, colour=axis_style("src").colour, width=5)
    sheet.line([(x - 0.08, end), (RIGHT - 0.1, end)], colour=axis_style("src").colour, width=5)
    sheet.head_of_arrow(RIGHT - 0.1, end, axis_style("src").colour)
    sheet.text(MIDDLE + COLUMN / 2, bottom, "memory", size=HEADING, bold=True, ground=IVORY)
    top = TOP + 0.125
    middle = MIDDLE + COLUMN / 2
    points = [(middle, written + 0.06), (middle, bottom - 0.2), (x + 0.08, bottom - 0.2),
              (x + 0.08, top), (RIGHT - 0.12, top)]  # fmt: skip
    sheet.line(points, colour=axis_style("tgt").colour, width=5)
    sheet.head_of_arrow(RIGHT - 0.12, top, axis_style("tgt").colour)


def _draw_title(sheet: _Sheet) -> None:
    """Draw the title with the threads of the cover, and the legend."""
    left, right, bottom = MIDDLE - 0.02, MIDDLE + COLUMN + 0.02, 5.1
    sheet.box(left, 0, right - left, bottom, fill=NAVY, edge="none", line=0)
    _draw_threads(sheet, (left + 0.55, right - 0.55), (2.95, bottom + 0.02))
    sheet.text(left + 0.4, 1.13, TITLE, size=62, align="left", bold=True, colour=PALE)
    sheet.text(left + 0.43, 2.45, SUBTITLE, size=17, align="left", colour=PALE)
    _draw_legend(sheet, bottom + 0.22)


def _draw_threads(sheet: _Sheet, across: tuple[float, float], down: tuple[float, float]) -> None:
    """Draw the twelve numbers as threads, as on the cover of the course."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Line

    for number, (place, values) in enumerate(zip(PLACES, threads(sheet.trace), strict=True)):
        base = across[0] + (across[1] - across[0]) * place
        step = (down[1] - down[0]) / (len(values) - 1)
        points = [(base + 0.22 * value, down[0] + step * row) for row, value in enumerate(values)]
        path = [points[0], *(point for curve in curves(points) for point in curve[1:])]
        codes = [Line.MOVETO, *[Line.CURVE4] * (len(path) - 1)]
        style = {"edgecolor": THREADS[number // 3], "facecolor": "none", "linewidth": 2.4}
        sheet.patch(PathPatch(Line(path, codes), zorder=2, **style), points[0])


def _draw_legend(sheet: _Sheet, y: float) -> None:
    """Explain brackets, colours and white cells."""
    rows = (
        (
            ("batch", "the two sentences"),
            ("src", "a word that is read"),
            ("tgt", "a word that is written"),
        ),
        (("d_model", "a feature of a word"), ("head", "a head"), ("d_k", "a feature of a head")),
    )
    third = COLUMN / 3
    for line, entries in enumerate(rows):
        for number, (axis, means) in enumerate(entries):
            x, at = MIDDLE + number * third, y + 0.22 * line
            sheet.bracket(axis, (x, at), (x + 0.3, at), "top")
            sheet.text(x + 0.38, at + 0.02, f"{axis}: {means}", size=SMALL, align="left")
    y += 0.42
    for value, fill, means in (
        (-1.0, signed_fill(-1.0, 1.0), "below zero"), (1.0, signed_fill(1.0, 1.0), "above zero"),
        (0.5, PAPER, "given: an id or a weight"),
    ):  # fmt: skip
        number = (-1.0, 1.0, 0.5).index(value)
        sheet.box(MIDDLE + number * third, y, 0.3, ROW, fill=fill, line=0.5)
        sheet.text(MIDDLE + number * third + 0.38, y + ROW / 2, means, size=SMALL, align="left")
