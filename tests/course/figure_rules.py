"""Rules that keep figures legible when small, projected, without colour, or read aloud.

Each rule yields the problems of a notebook or of one drawing.
"""

import re
from collections import Counter
from collections.abc import Iterator
from io import StringIO

import numpy as np
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.colors import to_hex
from matplotlib.text import Text
from nbformat import NotebookNode

from tests.course.notebook_rules import code_cells
from twelve_lab.draw import Drawing
from twelve_lab.draw.alt_text import LONGEST
from twelve_lab.draw.canvas import SMALL_SIZE, TEXT_SIZE
from twelve_lab.draw.drawing import stored
from twelve_lab.show.palette import DPI, INK

# Width of a lesson in the book, and the smallest font size allowed there, in pixels.
COLUMN, SMALLEST = 792, 11
SHORTEST = 40
EMPTY_OPENING = re.compile(r"(a |an |the )?(figure|image|picture|plot|graph|chart|diagram)\b", re.I)
COLOUR_NAME = re.compile(r"\b(red|blue|green|yellow|orange|purple|gr[ae]y|dark|pale)\b", re.I)


def notebook_problems(notebook: NotebookNode) -> Iterator[str]:
    """Require one alt text in sentences for each picture, and type that is large enough."""
    pictures = [
        (f"code cell {number}", picture, output.data.get("text/plain"))
        for number, cell in enumerate(code_cells(notebook), 1)
        for output in cell.outputs
        if (picture := stored(output.get("data", {})))
    ]
    times = Counter(picture.alt for _, picture, _ in pictures)
    for cell, picture, plain in pictures:
        alt = picture.alt
        claim = re.split(r"[.?!](?: |$)", alt)[0]
        checks = {
            "the plain text, which nbval compares, is not the alt text": plain != alt,
            f"the alt text {alt!r} is too short to say what is shown": len(alt) < SHORTEST,
            f"the alt text has {len(alt)} characters, at most {LONGEST}": len(alt) > LONGEST,
            f"the alt text begins with {alt[:20]!r}": EMPTY_OPENING.match(alt),
            f"the claim uses a colour: {claim!r}": COLOUR_NAME.search(claim),
            f"the alt text is no sentence: {alt!r}": not re.fullmatch(r"\W?[A-Z0-9].*\.", alt),
            f"the alt text has only a title: {alt!r}": not re.search(r"[.:?!] \S+ \S+", alt),
            "another picture has the same alt text": times[alt] > 1,
        }
        yield from (f"{cell}: {problem}" for problem, is_broken in checks.items() if is_broken)
        problems = (*small_type(picture.svg), *lost_shapes(picture.svg))
        yield from (f"{cell}: {problem}" for problem in problems)
    for number, cell in enumerate(notebook.cells, 1):
        if "mystnb" in cell.metadata or "image" in cell.metadata:
            yield f"cell {number}: the metadata must hold no second alt text"


def figure_problems(drawing: Drawing, bracketed: set[str]) -> Iterator[str]:
    """Require legible text inside the picture, without overlaps, and a name for each bracket.

    Args:
        drawing: The figure.
        bracketed: The axes that have a bracket.
    """
    texts = [text for text in drawing.figure.axes[0].texts if text.get_text()]
    for text in texts:
        if text.get_fontsize() < SMALL_SIZE:
            yield f"{text.get_text()!r} has {text.get_fontsize():g} pt, less than {SMALL_SIZE} pt"
        # tests/unit/test_show.py checks the contrast of INK with the fills of the palette.
        if to_hex(text.get_color()) != INK:
            yield f"{text.get_text()!r} is {to_hex(text.get_color())}, not near-black"
    yield from place_problems(drawing)
    words = " ".join(text.get_text() for text in texts)
    for axis in sorted(bracketed):
        if not re.search(rf"(?<![\w*]){re.escape(axis)}(?![\w*])", words):
            yield f"the bracket of {axis} has no name"
    yield from small_type(drawing.svg())
    yield from lost_shapes(drawing.svg())


def lost_shapes(svg: str) -> Iterator[str]:
    """Find letters and dots that refer to a shape missing from the file."""
    lost = Counter(re.findall(r"href='#(.*?)'", svg))
    for shape in re.findall(r" id='(.*?)'", svg):
        lost.pop(shape, None)
    yield from (
        f"{times} uses of {shape!r}, which is not in the file" for shape, times in lost.items()
    )


def small_type(svg: str) -> Iterator[str]:
    """Find type that is too small on a page of the book, which shrinks wide pictures."""
    width = int(re.search(r"width='(\d+)'", svg)[1])
    # Matplotlib draws letters at 100 points and scales them.
    scales = map(float, re.findall(r"scale\((0\.\d+) -", svg))
    points = 100 * min(scales, default=TEXT_SIZE / 100)
    pixels = points / 72 * DPI * min(1, COLUMN / width)
    if pixels < SMALLEST:
        yield f"type of {pixels:.1f} px on a page, less than {SMALLEST}: it is {width} px wide"


def place_problems(drawing: Drawing) -> Iterator[str]:
    """Find text that is cut off or touches another text."""
    renderer = RendererSVG(*drawing.figure.bbox.size, StringIO(), image_dpi=DPI)
    sheet = drawing.figure.bbox.padded(1)
    texts = [text for text in drawing.figure.axes[0].texts if text.get_text()]
    boxes = [Text.get_window_extent(text, renderer) for text in texts]
    low, high = (np.array([getattr(box, end) for box in boxes]) for end in ("min", "max"))
    is_inside = np.all((sheet.min < low) & (high < sheet.max), -1)
    for number in np.flatnonzero(~is_inside):
        yield f"{texts[number].get_text()!r} is cut off"
    # A box is as high as its line; the outer 1.5 pixels on each side are empty.
    low, high = low + 1.5, high - 1.5
    touch = np.all(low[:, None] <= high, -1) & np.all(low <= high[:, None], -1)
    for first, second in np.argwhere(np.triu(touch, 1)):
        yield f"{texts[first].get_text()!r} touches {texts[second].get_text()!r}"


def undrawn_numbers(drawing: Drawing) -> set[float]:
    """Return the four-decimal numbers of the alt text that the picture does not show."""
    words = "\n".join(text.get_text() for text in drawing.figure.axes[0].texts)
    listed = set(map(float, re.findall(r"-?\d+\.\d{4}", drawing.alt)))
    return listed - set(map(float, re.findall(r"-?\d+(?:\.\d+)?", words)))
