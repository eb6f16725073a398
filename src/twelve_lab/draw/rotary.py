"""Figure of rotary positions: a query rotates, and its match with a key follows the distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from twelve_lab.draw.alt_text import alt_text, number_list
from twelve_lab.draw.canvas import SMALL_SIZE, Canvas, Point
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE
from twelve_lab.messages import message
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import CURVE_STYLES, QUIET
from twelve_lab.show.table import as_plain_tensor

REACH = 1.25  # inches of the longer arrow
WIDTH, HEIGHT = 4.2, 2.6
FINE = 10  # points of the curve for each step


def turned(
    query: Any,
    key: Any,
    *,
    title: str,
    names: tuple[str, str] = ("query", "key"),
    steps: int = 8,
) -> Drawing:
    """Draw a query of two features and its key as arrows, and their match by distance.

    Args:
        query: The two features of a query, at the position of the key.
        key: The two features of a key.
        title: Claim of the figure.
        names: Names of the two arrows.
        steps: Largest distance. The query rotates by 1 radian per position, counter-clockwise.

    Raises:
        ValueError: If a vector does not have two features, or is zero.
    """
    start, end = (as_plain_tensor(arrow).double().tolist() for arrow in (query, key))
    for name, arrow in (("query", start), ("key", end)):
        if not isinstance(arrow, list) or len(arrow) != 2 or not any(arrow):
            raise ValueError(f"turned: {name} must be two numbers, not both 0, got {arrow}")
    matches = [_match(_rotate(start, step), end) for step in range(steps + 1)]
    canvas = Canvas()
    _draw_plane(canvas, start, end, names)
    _draw_curve(canvas, start, end, steps)

    rotated = message("{name}, turned once", name=names[0])
    arrows = [
        f"{name} {number_list(arrow)} ({format_number(_degrees(arrow), 1)}°)"
        for name, arrow in ((names[0], start), (rotated, _rotate(start, 1)), (names[1], end))
    ]
    alt = alt_text(
        title,
        message(
            "Arrows in a plane: {arrows}. Beside them the match as a wave, at distances from 0: "
            "{matches}.",
            arrows="; ".join(arrows), matches=number_list(matches),
        ),
        message(
            "Arrows in a plane: {arrows}. Beside them the match as a wave around 0, by distance.",
            arrows="; ".join(arrows),
        ),
    )  # fmt: skip
    rows = [["distance", *map(str, range(steps + 1))], ["match", *map(format_number, matches)]]
    width = max(len(text) for row in rows for text in row)
    table = "\n".join("".join(text.rjust(width + 1) for text in row).strip() for row in rows)
    return canvas.finish(title, alt, "\n".join([*arrows, table]))


def _rotate(arrow: Sequence[float], angle: float) -> list[float]:
    (x, y), sin, cos = arrow, math.sin(angle), math.cos(angle)
    return [x * cos - y * sin, x * sin + y * cos]


def _match(query: Sequence[float], key: Sequence[float]) -> float:
    return query[0] * key[0] + query[1] * key[1]


def _degrees(arrow: Sequence[float]) -> float:
    # Rounded before the modulo: -0.0 must not become 360.
    return round(math.degrees(math.atan2(arrow[1], arrow[0])), 1) % 360


def _draw_plane(
    canvas: Canvas, query: Sequence[float], key: Sequence[float], names: tuple[str, str]
) -> None:
    """Draw the query before and after one step, the arc between, and the key."""
    x, y = 2.4, HEIGHT / 2
    scale = REACH / max(math.hypot(*query), math.hypot(*key))

    def at(arrow: Sequence[float], share: float = 1.0) -> Point:
        return x + share * scale * arrow[0], y - share * scale * arrow[1]

    canvas.line([(x - REACH, y), (x + REACH, y)], colour=QUIET, width=0.6)
    canvas.line([(x, y - REACH), (x, y + REACH)], colour=QUIET, width=0.6)
    canvas.line([at(_rotate(query, step / 20), 0.7) for step in range(21)], style="dashed")
    canvas.line([(x, y), at(query)], colour=QUIET, width=2.2, style="dashed")
    turned = _rotate(query, 1)
    for arrow, width in ((turned, 2.4), (key, 1.2)):
        canvas.arrow((x, y), at(arrow), width=width)
    for arrow, name in ((query, names[0]), (turned, message("turned once")), (key, names[1])):
        side = 1 if arrow[0] > 0 else -1
        tip = at(arrow)
        align = "left" if side > 0 else "right"
        canvas.text(tip[0] + 0.1 * side, tip[1], name, align=align, bold=arrow is turned)


def _draw_curve(canvas: Canvas, query: Sequence[float], key: Sequence[float], steps: int) -> None:
    """Draw the match by distance, with dots at whole distances, and the match without rotation."""
    x, middle, half = 5.0, HEIGHT / 2, HEIGHT / 2
    most = math.hypot(*query) * math.hypot(*key)

    def at(distance: float, match: float) -> Point:
        return x + WIDTH * distance / steps, middle - match / most * half * 0.94

    canvas.box(x, 0.0, WIDTH, HEIGHT, fill="none", edge=QUIET)
    for value in (-most, 0.0, most):
        height = at(0, value)[1]
        canvas.line([(x, height), (x + WIDTH, height)], colour=QUIET, width=0.6)
        canvas.text(x - 0.08, height, format_number(value, 2), size=SMALL_SIZE, align="right")
    distances = [step / FINE for step in range(steps * FINE + 1)]
    (colour, style), (other, dashes) = CURVE_STYLES[:2]
    curve = [at(distance, _match(_rotate(query, distance), key)) for distance in distances]
    canvas.line(curve, colour=colour, width=1.6, style=style)
    still = _match(query, key)
    canvas.line([at(0, still), at(steps, still)], colour=other, width=2.2, style=dashes)
    for step in range(steps + 1):
        canvas.dot(*at(step, _match(_rotate(query, step), key)))
        canvas.text(at(step, 0)[0], HEIGHT + LINE * 0.75, str(step), size=SMALL_SIZE)
    canvas.text(
        x + WIDTH / 2, HEIGHT + LINE * 1.75, message("distance: positions from key to query")
    )
    canvas.text(x, -LINE * 0.75, message("match: — turned, - - as it was"), align="left")
