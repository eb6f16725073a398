"""The faces of the words on a canvas: each stands beside its word, which stays text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twelve_lab.draw.canvas import TEXT_SIZE
from twelve_lab.show.faces import FACES, SIZE
from twelve_lab.show.palette import FACE_INK

if TYPE_CHECKING:
    from matplotlib.path import Path

    from twelve_lab.draw.canvas import Canvas

FACE = 0.22  # inches: a little more than the letters beside it
BESIDE = 0.06  # from a face to its word
ROOM = FACE + BESIDE


def name_width(canvas: Canvas, name: str, size: float = TEXT_SIZE) -> float:
    """Measure a label, with the face beside it if it is a word that has one.

    Args:
        canvas: Where it will stand.
        name: The label.
        size: Of the letters, in points.
    """
    return canvas.width_of(name, size) + ROOM * (word_of(name) in FACES)


def word_of(name: str) -> str:
    """Give the word in a label that may begin with its id, as "1 cat"."""
    return name.lstrip("0123456789").strip()


def draw_face(canvas: Canvas, name: str, x: float, y: float) -> None:
    """Draw the face of a word; a label that has none stays alone.

    Args:
        canvas: Where to.
        name: The label.
        x: The left edge of the face.
        y: The height of its middle.
    """
    from matplotlib.patches import PathPatch

    unit = FACE / SIZE
    corner = x, y - FACE / 2
    for shape in FACES.get(word_of(name), ()):
        patch = PathPatch(
            as_path(shape.path, corner, unit),
            facecolor=shape.fill,
            edgecolor=FACE_INK,
            linewidth=shape.line * unit * 72,
            capstyle="round",
            joinstyle="round",
            zorder=4,
        )
        canvas.patch(patch, corner, (x + FACE, y + FACE / 2))


def as_path(text: str, corner: tuple[float, float] = (0.0, 0.0), unit: float = 1.0) -> Path:
    """Read a path of a face.

    Args:
        text: Absolute SVG commands M, L, C and Z, parted by spaces.
        corner: Where its upper left corner stands.
        unit: The length of 1.
    """
    from matplotlib.path import Path

    codes = {"M": Path.MOVETO, "L": Path.LINETO, "C": Path.CURVE4}
    points, made, command = [], [], ""
    words = iter(text.split())
    for word in words:
        if word == "Z":
            points.append(corner)
            made.append(Path.CLOSEPOLY)
        elif word in codes:
            command = word
        else:
            points.append((corner[0] + unit * float(word), corner[1] + unit * float(next(words))))
            made.append(codes[command])
    return Path(points, made)
