"""Faces of cat, dog and fish on a canvas, each beside its word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from twelve_lab.draw.canvas import TEXT_SIZE
from twelve_lab.show.faces import FACES, SIZE
from twelve_lab.show.palette import FACE_INK

if TYPE_CHECKING:
    from matplotlib.path import Path

    from twelve_lab.draw.canvas import Canvas

FACE = 0.22  # in inches; slightly larger than the letters
BESIDE = 0.06  # gap between a face and its word
ROOM = FACE + BESIDE


def name_width(canvas: Canvas, name: str, size: float = TEXT_SIZE) -> float:
    """Return the width of a label, including the face of its word, if any.

    Args:
        canvas: Canvas of the label.
        name: The label.
        size: Size of the text, in points.
    """
    return canvas.width_of(name, size) + ROOM * (word_of(name) in FACES)


def word_of(name: str) -> str:
    """Return the word of a label that may begin with its id, such as "1 cat"."""
    return name.lstrip("0123456789").strip()


def draw_face(canvas: Canvas, name: str, x: float, y: float, size: float = FACE) -> None:
    """Draw the face of a word, if it has one.

    Args:
        canvas: Canvas to draw on.
        name: The label.
        x: Left edge of the face.
        y: Vertical centre of the face.
        size: Width and height of the face, in inches.
    """
    from matplotlib.patches import PathPatch

    unit = size / SIZE
    corner = x, y - size / 2
    for shape in FACES.get(word_of(name), ()):
        ink = {"facecolor": shape.fill, "edgecolor": FACE_INK, "linewidth": shape.line * unit * 72}
        ends = {"capstyle": "round", "joinstyle": "round"}
        patch = PathPatch(_as_path(shape.path, corner, unit), zorder=4, **ink, **ends)
        canvas.patch(patch, corner, (x + size, y + size / 2))


def _as_path(text: str, corner: tuple[float, float], unit: float) -> Path:
    """Parse the commands M, L, C and Z of an SVG path.

    Args:
        text: Absolute commands, each followed by its numbers.
        corner: Position of the origin.
        unit: Length of one unit of the path, in inches.
    """
    from matplotlib.path import Path

    codes = {"M": Path.MOVETO, "L": Path.LINETO, "C": Path.CURVE4, "Z": Path.CLOSEPOLY}
    points, segments = [], []
    for command, numbers in re.findall(r"([MLCZ])([^MLCZ]*)", text):
        # Z has no coordinates. Path needs a point for it, but ignores the value.
        values = [unit * float(number) for number in numbers.split()] or [0.0, 0.0]
        pairs = zip(values[::2], values[1::2], strict=True)
        points += [(corner[0] + x, corner[1] + y) for x, y in pairs]
        segments += [codes[command]] * (len(values) // 2)
    return Path(points, segments)
