"""Rules for figures that are seen small, projected, without colour or not at all.

Each rule yields the problems of a notebook, of one drawing, or of the code that draws.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from io import StringIO

import numpy as np
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.colors import is_color_like, to_hex, to_rgba
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from nbformat import NotebookNode

from tests.course.notebook_rules import code_cells
from twelve_lab.draw import Drawing
from twelve_lab.draw.alt_text import LONGEST
from twelve_lab.draw.canvas import SMALL_SIZE, TEXT_SIZE
from twelve_lab.draw.drawing import stored
from twelve_lab.show.palette import DPI, INK, PAPER, AxisStyle, by_night, contrast

# The width of a lesson in the book, in pixels, and the smallest type in it.
COLUMN, SMALLEST = 792, 11
TEXT_CONTRAST, LINE_CONTRAST = 4.5, 3.0  # WCAG 2.2, 1.4.3 and 1.4.11
SHORTEST = 40
EMPTY_OPENING = re.compile(r"(a |an |the )?(figure|image|picture|plot|graph|chart|diagram)\b", re.I)
COLOUR_WORD = re.compile(r"colou?r|fill|edge", re.I)
COLOUR_NAME = re.compile(r"\b(red|blue|green|yellow|orange|purple|gr[ae]y|dark|pale)\b", re.I)


def alt_problems(notebook: NotebookNode) -> Iterator[str]:
    """Every picture says in a sentence what it shows, and no two of a notebook say the same."""
    pictures = [
        (number, picture.alt, output)
        for number, cell in enumerate(code_cells(notebook), 1)
        for output in cell.outputs
        if (picture := stored(output.get("data", {})))
    ]
    times = Counter(alt for _, alt, _ in pictures)
    for number, alt, output in pictures:
        if output.data.get("text/plain") != alt:
            yield f"code cell {number}: the text of the picture, which nbval compares, is no alt"
        if len(alt) < SHORTEST:
            yield f"code cell {number}: the alt text {alt!r} is too short to say what is shown"
        if len(alt) > LONGEST:
            yield f"code cell {number}: the alt text has {len(alt)} characters, at most {LONGEST}"
        if EMPTY_OPENING.match(alt):
            yield f"code cell {number}: the alt text begins with {alt.split()[0]!r}"
        claim = re.split(r"[.?!](?: |$)", alt)[0]
        if told := COLOUR_NAME.search(claim):
            yield f"code cell {number}: the claim is told by a colour, {told[0]!r}: {claim!r}"
        if not re.match(r"\W?[A-Z0-9]", alt) or not alt.endswith("."):
            yield f"code cell {number}: the alt text is no sentence: {alt!r}"
        if not re.search(r"[.:?!] \S+ \S+", alt):
            yield f"code cell {number}: the alt text is a title and tells nothing more: {alt!r}"
        if times[alt] > 1:
            yield f"code cell {number}: another picture has the same alt text"


def second_alts(notebook: NotebookNode) -> Iterator[str]:
    """A picture has one alt text, that of its output: the metadata of a cell hold none."""
    for number, cell in enumerate(notebook.cells, 1):
        if "mystnb" in cell.metadata or "image" in cell.metadata:
            yield f"cell {number}: its metadata hold {sorted(cell.metadata)}: no second alt text"


def drawn_in(notebook: NotebookNode) -> set[str]:
    """Name the draw functions that a notebook calls."""
    return {
        name for cell in code_cells(notebook) for name in re.findall(r"\bdraw\.(\w+)", cell.source)
    }


def drawing_problems(drawing: Drawing) -> Iterator[str]:
    """Text is no smaller than ours, and stands out from what it stands on, by day and night."""
    # Listed once: matplotlib looks through all that is drawn for each patch.
    boxes = [patch for axes in drawing.figure.axes for patch in axes.patches]
    boxes = [patch for patch in boxes if isinstance(patch, Rectangle)]
    for text in _written(drawing):
        if text.get_fontsize() < SMALL_SIZE:
            yield f"{text.get_text()!r} is {text.get_fontsize():g} pt, less than {SMALL_SIZE} pt"
        if to_hex(text.get_color()) != INK:
            yield f"{text.get_text()!r} is {to_hex(text.get_color())}, not near-black"
        colours = to_hex(text.get_color()), _ground(text, boxes)
        for colour, ground in (colours, map(by_night, colours)):
            ratio = contrast(colour, ground)
            if ratio < TEXT_CONTRAST:
                yield f"{text.get_text()!r} reaches {ratio:.1f}:1 on {ground}"


def small_type(svg: str) -> Iterator[str]:
    """The smallest text is large enough on a page of the book, which shrinks wide pictures."""
    width = int(re.search(r"width='(\d+)'", svg)[1])
    # Matplotlib draws letters at 100 points and scales them.
    scales = map(float, re.findall(r"scale\((0\.\d+) -", svg))
    points = 100 * min(scales, default=TEXT_SIZE / 100)
    pixels = points / 72 * DPI * min(1, COLUMN / width)
    if pixels < SMALLEST:
        yield f"type of {pixels:.1f} px on a page, less than {SMALLEST}, for it is {width} px wide"


def place_problems(drawing: Drawing) -> Iterator[str]:
    """Text stands inside the picture, and no two texts touch."""
    renderer = RendererSVG(*drawing.figure.bbox.size, StringIO(), image_dpi=DPI)
    sheet = drawing.figure.bbox.padded(1)
    texts = _written(drawing)
    boxes = [Text.get_window_extent(text, renderer) for text in texts]
    for text, box in zip(texts, boxes, strict=True):
        if not (
            sheet.x0 < box.x0 and box.x1 < sheet.x1 and sheet.y0 < box.y0 and box.y1 < sheet.y1
        ):
            yield f"{text.get_text()!r} is cut off"
    low, high = (np.array([getattr(box, end) for box in boxes]) for end in ("min", "max"))
    # A box is as high as its line: 1.5 pixels of each side hold no ink.
    low, high = low + 1.5, high - 1.5
    touch = np.all(low[:, None] <= high, -1) & np.all(low <= high[:, None], -1)
    for first, second in np.argwhere(np.triu(touch, 1)):
        yield f"{texts[first].get_text()!r} touches {texts[second].get_text()!r}"


def unnamed_axes(drawing: Drawing, bracketed: set[str]) -> Iterator[str]:
    """The name of every axis that has a bracket is in the picture."""
    words = " ".join(text.get_text() for axes in drawing.figure.axes for text in axes.texts)
    for axis in sorted(bracketed):
        if not re.search(rf"(?<![\w*]){re.escape(axis)}(?![\w*])", words):
            yield f"the bracket of {axis} has no name"


def source_problems(source: str) -> Iterator[str]:
    """No colour is written where figures are drawn: all come from the palette."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for literal in re.findall(r"#[0-9a-fA-F]{3,8}\b", node.value):
                yield f"line {node.lineno}: the colour {literal} belongs into the palette"
        if isinstance(node, ast.keyword) and COLOUR_WORD.search(node.arg or ""):
            value = getattr(node.value, "value", None)
            if isinstance(value, str) and value != "none" and is_color_like(value):
                yield f"line {node.value.lineno}: the colour {value!r} belongs into the palette"


def palette_problems(axes: Mapping[str, AxisStyle], lines: set[str]) -> Iterator[str]:
    """An axis has a known line, and the axes of one colour have one style."""
    for name, style in axes.items():
        if style.line not in lines:
            yield f"axis {name} has the line {style.line!r}, which is none of {sorted(lines)}"
        if style.width <= 0:
            yield f"axis {name} has a bracket of width {style.width}"
        for other, its in axes.items():
            if style.colour == its.colour and style != its:
                yield f"axes {name} and {other} share {style.colour}, but not their line"


def curve_problems(curves: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """Curves are told apart by their dashes, and each is seen on paper."""
    dashes = [dash for _, dash in curves]
    for colour, dash in curves:
        if dashes.count(dash) > 1:
            yield f"two curves are {dash}"
        for line, paper in ((colour, PAPER), (by_night(colour, line=True), by_night(PAPER))):
            if contrast(line, paper) < LINE_CONTRAST:
                yield f"the curve {line} reaches {contrast(line, paper):.1f}:1 on paper"


def _written(drawing: Drawing) -> list[Text]:
    """List the texts that are seen: those of hidden ticks are not."""
    own = [text for axes in drawing.figure.axes for text in axes.texts]
    return [text for text in (*own, *drawing.figure.texts) if text.get_text()]


def _ground(text: Text, boxes: list[Rectangle]) -> str:
    """Find the background colour of a text: its own, or that of the box drawn last below it."""
    own = text.get_bbox_patch()
    if own is not None and own.get_facecolor()[3]:
        return to_hex(own.get_facecolor())
    x, y = text.get_position()
    behind = (box for box in reversed(boxes) if _is_behind(box, x, y))
    return next((to_hex(box.get_facecolor()) for box in behind), PAPER)


def _is_behind(box: Rectangle, x: float, y: float) -> bool:
    left, top = box.get_xy()
    is_around = left <= x <= left + box.get_width() and top <= y <= top + box.get_height()
    return is_around and to_rgba(box.get_facecolor())[3] > 0


def undrawn_numbers(drawing: Drawing) -> set[float]:
    """List the numbers with decimals of the alt text that are not written in the picture."""
    words = "\n".join(text.get_text() for text in _written(drawing))
    told = set(map(float, re.findall(r"-?\d+\.\d{4}", drawing.alt)))
    return told - set(map(float, re.findall(r"-?\d+(?:\.\d+)?", words)))
