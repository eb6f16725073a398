"""Small faces of a cat, a dog and a fish: shapes for figures and pages, text for terminals.

A face appears beside its word and never replaces it. Its outline and features are dark and its coat
is light, so either is visible on any background. Ears, whiskers, nose and fins tell the
three apart without colour.
"""

from __future__ import annotations

from typing import NamedTuple

from twelve_lab.show.palette import COATS, FACE_INK

SIZE = 24  # side of the square that contains a face, in units
LINE = 1.4  # units; about a pixel at a height of 16 pixels
COLUMNS = 5  # terminal columns of a face


class Shape(NamedTuple):
    """A part of a face.

    Attributes:
        path: Absolute SVG commands M, L, C and Z with coordinates, separated by spaces.
        fill: Fill colour, or "none" for a line.
        line: Width of the outline, in units.
    """

    path: str
    fill: str = "none"
    line: float = LINE


def _oval(x: float, y: float, width: float, height: float) -> str:
    """Return an ellipse, given by its centre and semi-axes, as four curves."""
    a, b = 0.5523 * width, 0.5523 * height
    corners = [
        (x - width, y), (x - width, y - b), (x - a, y - height), (x, y - height),
        (x + a, y - height), (x + width, y - b), (x + width, y), (x + width, y + b),
        (x + a, y + height), (x, y + height), (x - a, y + height), (x - width, y + b),
        (x - width, y),
    ]  # fmt: skip
    numbers = [f"{x:.4g} {y:.4g}" for x, y in corners]
    return f"M {numbers[0]} C {' '.join(numbers[1:])} Z"


def _eyes(left: float, y: float, width: float, height: float) -> tuple[Shape, ...]:
    return tuple(Shape(_oval(x, y, width, height), FACE_INK, 0) for x in (left, SIZE - left))


_CAT_HEAD = Shape(
    "M 4 2.6 L 9.2 6.2 C 11 5.7 13 5.7 14.8 6.2 L 20 2.6 C 20.9 6.4 21.6 9.8 21.6 13.2 "
    "C 21.6 18.4 17.4 21.4 12 21.4 C 6.6 21.4 2.4 18.4 2.4 13.2 C 2.4 9.8 3.1 6.4 4 2.6 Z",
    COATS["cat"],
)
_CAT_FEATURES = (
    Shape("M 10.7 14.6 L 13.3 14.6 L 12 16.2 Z", FACE_INK, 0.8),
    Shape("M 8.9 17 C 9.4 18.7 11.6 18.6 12 16.4 C 12.4 18.6 14.6 18.7 15.1 17", line=1.2),
    Shape("M 5.9 15 L 0.9 14.2 M 6 17 L 1.3 18 M 18.1 15 L 23.1 14.2 M 18 17 L 22.7 18", line=1),
)
_DOG_EARS = (
    "M 7.4 4.1 C 4.4 2.9 1.9 5.2 1.3 9 C 0.8 12.4 1.4 16.2 3.3 16.5 C 5.6 16.8 6.3 12.4 6.5 8.6 Z "
    "M 16.6 4.1 C 19.6 2.9 22.1 5.2 22.7 9 C 23.2 12.4 22.6 16.2 20.7 16.5 "
    "C 18.4 16.8 17.7 12.4 17.5 8.6 Z"
)

FACES: dict[str, tuple[Shape, ...]] = {
    "cat": (_CAT_HEAD, *_eyes(8, 11.6, 1.35, 1.75), *_CAT_FEATURES),
    "dog": (
        Shape(
            "M 12 2.9 C 16.6 2.9 19.2 6.6 19.2 11.4 C 19.2 17.6 16.4 21.4 12 21.4 "
            "C 7.6 21.4 4.8 17.6 4.8 11.4 C 4.8 6.6 7.4 2.9 12 2.9 Z",
            COATS["dog"],
        ),
        Shape(_DOG_EARS, COATS["ears"]),
        *_eyes(9, 10.6, 1.25, 1.5),
        Shape(_oval(12, 14.4, 2.4, 1.75), FACE_INK, 0),
        Shape("M 8.8 17.4 C 9.4 18.9 11.5 18.9 12 17.2 C 12.5 18.9 14.6 18.9 15.2 17.4", line=1.2),
        Shape("M 12 15 L 12 17.2", line=1.2),
    ),
    "fish": (
        Shape(
            "M 1.2 12 C 3.6 7.2 7.4 5 11.2 5 C 14.6 5 16.9 7.2 18.2 9.6 L 22.8 5.4 "
            "C 22.1 9.6 22.1 14.4 22.8 18.6 L 18.2 14.4 C 16.9 16.8 14.6 19 11.2 19 "
            "C 7.4 19 3.6 16.8 1.2 12 Z",
            COATS["fish"],
        ),
        Shape(_oval(7, 10.2, 1.3, 1.5), FACE_INK, 0),
        Shape("M 4.4 13.6 C 5.3 14.6 6.7 14.6 7.5 13.7", line=1.2),
        Shape("M 10.6 8.6 C 12 10.6 12 13.4 10.6 15.4", line=1.2),
        Shape("M 14.3 10.6 C 15.3 11.4 15.3 12.6 14.3 13.4", line=1.2),
    ),
}  # fmt: skip
# Shown with a correct answer.
HAPPY = (
    _CAT_HEAD,
    Shape("M 6.2 12.4 C 6.8 10.4 9.2 10.4 9.8 12.4"),
    Shape("M 14.2 12.4 C 14.8 10.4 17.2 10.4 17.8 12.4"),
    *_CAT_FEATURES,
)
LINES = {"cat": "=^.^=", "dog": "U'o'U", "fish": "><(o>"}


def drawn(shapes: tuple[Shape, ...]) -> str:
    """Format shapes as an SVG group, in a square of SIZE units."""
    paths = "".join(
        f'<path d="{shape.path}" fill="{shape.fill}" stroke-width="{shape.line:g}"/>'
        for shape in shapes
    )
    return f'<g stroke="{FACE_INK}" stroke-linecap="round" stroke-linejoin="round">{paths}</g>'


def picture(shapes: tuple[Shape, ...], size: int) -> str:
    """Format shapes as an SVG picture that screen readers skip.

    Args:
        shapes: The shapes of a face.
        size: Side length in pixels.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" aria-hidden="true" width="{size}" '
        f'height="{size}" viewBox="0 0 {SIZE} {SIZE}">{drawn(shapes)}</svg>'
    )


def symbols() -> str:
    """Format each face as an SVG symbol, such as "face-cat", and the happy face as "face-happy"."""
    return "".join(
        f'<symbol id="face-{name}" viewBox="0 0 {SIZE} {SIZE}">{drawn(shapes)}</symbol>'
        for name, shapes in {**FACES, "happy": HAPPY}.items()
    )
