"""Figure of a rotation: a query turns away from its key, and their match follows the distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from twelve_lab.draw.canvas import SMALL_SIZE, Canvas, Point
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE
from twelve_lab.draw.prose import tell
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
        title: The claim of the figure.
        names: What the two arrows are called.
        steps: The longest distance. The query turns by 1 radian a step, counter-clockwise.

    Raises:
        ValueError: A vector has not two features, or is all zeros: it has no direction.
    """
    arrows = [as_plain_tensor(one).double().tolist() for one in (query, key)]
    for name, arrow in zip(("query", "key"), arrows, strict=True):
        if not isinstance(arrow, list) or len(arrow) != 2 or not any(arrow):
            raise ValueError(f"{name} must be two numbers, not both 0, got {arrow}")
    asked, found = arrows
    matches = [_match(_turn(asked, step), found) for step in range(steps + 1)]
    canvas = Canvas()
    _draw_plane(canvas, asked, found, names)
    _draw_curve(canvas, asked, found, steps)

    shown = {names[0]: asked, f"{names[0]}, turned once": _turn(asked, 1), names[1]: found}
    told = [
        f"{name} {_written(arrow)} at {format_number(_degrees(arrow), 1)}°"
        for name, arrow in shown.items()
    ]
    by_distance = [f"{format_number(match)} at {step}" for step, match in enumerate(matches)]
    waves = "Beside them the match by distance, a wave"
    head = f"Arrows in a plane: {'; '.join(told)}. {waves}"
    alt = tell(title, f"{head}: {', '.join(by_distance)}", f"{head} around 0")
    rows = [["distance", *map(str, range(steps + 1))], ["match", *map(format_number, matches)]]
    width = max(len(text) for row in rows for text in row)
    table = "\n".join("".join(text.rjust(width + 1) for text in row).strip() for row in rows)
    return canvas.finish(title, alt, "\n".join([*told, table]))


def _turn(arrow: Sequence[float], angle: float) -> list[float]:
    (x, y), sin, cos = arrow, math.sin(angle), math.cos(angle)
    return [x * cos - y * sin, x * sin + y * cos]


def _match(one: Sequence[float], other: Sequence[float]) -> float:
    return one[0] * other[0] + one[1] * other[1]


def _degrees(arrow: Sequence[float]) -> float:
    # Rounded first: -0.0 is no full turn.
    return round(math.degrees(math.atan2(arrow[1], arrow[0])), 1) % 360


def _written(arrow: Sequence[float]) -> str:
    return ", ".join(map(format_number, arrow))


def _draw_plane(
    canvas: Canvas, asked: Sequence[float], found: Sequence[float], names: tuple[str, str]
) -> None:
    """Draw the query before and after one step, the arc between, and the key."""
    x, y = 2.4, HEIGHT / 2
    scale = REACH / max(math.hypot(*asked), math.hypot(*found))

    def at(arrow: Sequence[float], share: float = 1.0) -> Point:
        return x + share * scale * arrow[0], y - share * scale * arrow[1]

    canvas.line([(x - REACH, y), (x + REACH, y)], colour=QUIET, width=0.6)
    canvas.line([(x, y - REACH), (x, y + REACH)], colour=QUIET, width=0.6)
    canvas.line([at(_turn(asked, step / 20), 0.7) for step in range(21)], style="dashed")
    canvas.line([(x, y), at(asked)], colour=QUIET, width=2.2, style="dashed")
    turned = _turn(asked, 1)
    for arrow, width in ((turned, 2.4), (found, 1.2)):
        canvas.arrow((x, y), at(arrow), width=width)
    for arrow, name in ((asked, names[0]), (turned, "turned once"), (found, names[1])):
        side = 1 if arrow[0] > 0 else -1
        tip = at(arrow)
        align = "left" if side > 0 else "right"
        canvas.text(tip[0] + 0.1 * side, tip[1], name, align=align, bold=arrow is turned)


def _draw_curve(canvas: Canvas, asked: Sequence[float], found: Sequence[float], steps: int) -> None:
    """Draw the match by distance, a dot at each whole one, and beside it that of no rotation."""
    x, middle, half = 5.0, HEIGHT / 2, HEIGHT / 2
    most = math.hypot(*asked) * math.hypot(*found)

    def at(distance: float, match: float) -> Point:
        return x + WIDTH * distance / steps, middle - match / most * half * 0.94

    canvas.box(x, 0.0, WIDTH, HEIGHT, fill="none", edge=QUIET)
    for value in (-most, 0.0, most):
        height = at(0, value)[1]
        canvas.line([(x, height), (x + WIDTH, height)], colour=QUIET, width=0.6)
        canvas.text(x - 0.08, height, format_number(value, 2), size=SMALL_SIZE, align="right")
    places = [step / FINE for step in range(steps * FINE + 1)]
    (colour, style), (other, dashes) = CURVE_STYLES[:2]
    curve = [at(place, _match(_turn(asked, place), found)) for place in places]
    canvas.line(curve, colour=colour, width=1.6, style=style)
    still = _match(asked, found)
    canvas.line([at(0, still), at(steps, still)], colour=other, width=2.2, style=dashes)
    for step in range(steps + 1):
        canvas.dot(*at(step, _match(_turn(asked, step), found)))
        canvas.text(at(step, 0)[0], HEIGHT + LINE * 0.75, str(step), size=SMALL_SIZE)
    canvas.text(x + WIDTH / 2, HEIGHT + LINE * 1.75, "distance: positions from key to query")
    canvas.text(x, -LINE * 0.75, "match: — turned, - - as it was", align="left")
