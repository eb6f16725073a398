"""Figures of positions as rotations: columns of the positional encoding, and RoPE."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from twelve_lab.draw.alt_text import number_list
from twelve_lab.draw.canvas import SMALL_SIZE, Canvas, Point
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE
from twelve_lab.messages import message
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import CURVE_STYLES, PAPER, QUIET
from twelve_lab.show.table import as_plain_tensor

PAIRS = 3  # circles side by side
REACH = 1.25  # length of the longer arrow, in inches
WIDTH, HEIGHT = 4.2, 2.6  # size of the plot, in inches
STEPS = 8  # largest distance in the plot
FINE = 10  # points of the curve per unit of distance


def rotation(table: Any, *, title: str) -> Drawing:
    """Draw the first pairs of columns (sine, cosine) as points that rotate with the position.

    Args:
        table: One row per position; columns 2i and 2i + 1 are a sine and its cosine.
        title: Claim of the figure.

    Raises:
        ValueError: If the table has fewer than two columns.
    """
    values = as_plain_tensor(getattr(table, "value", table))
    pairs = min(PAIRS, values.shape[1] // 2)
    if pairs == 0:
        raise ValueError(f"rotation: table must have at least 2 columns, got {values.shape[1]}")
    canvas = Canvas()
    summary, rotations = [], []
    for pair in range(pairs):
        points = values[:, 2 * pair : 2 * pair + 2]
        angles = [_degrees(cosine, sine) for sine, cosine in points.tolist()]
        step = ""
        if len(angles) > 1:
            step = message(
                "{degrees}° per position",
                degrees=format_number((_exact(points[1]) - _exact(points[0])) % 360, 1),
            )
            rotations.append(f"{2 * pair}, {2 * pair + 1}: {step}")
        _draw_circle(canvas, points, pair, step)
        summary.append(
            message(
                "columns {first} and {second}, angle in degrees at each position: {angles}",
                first=2 * pair, second=2 * pair + 1,
                angles=" ".join(format_number(angle, 1) for angle in angles),
            )
        )  # fmt: skip
    description = message(
        "Unit circles for pairs of columns, with positions 0 to {last} as points. "
        "Rotation of each pair: {rotations}.",
        last=len(values) - 1, rotations="; ".join(rotations) or "-",
    )  # fmt: skip
    return canvas.finish(title, "\n".join(summary), description)


def _exact(point: Tensor) -> float:
    return math.degrees(math.atan2(*point.tolist()))


def _degrees(x: float, y: float) -> float:
    # Round before the modulo: a tiny negative angle must not become 360.
    return round(math.degrees(math.atan2(y, x)), 1) % 360


def _draw_circle(canvas: Canvas, points: Tensor, pair: int, step: str) -> None:
    """Draw the unit circle of a pair, with the cosine to the right and the sine upward."""
    x, y = 1.35 + 2.9 * pair, 1.35
    ring = [math.radians(angle) for angle in range(0, 361, 3)]
    canvas.line([(x + math.cos(a), y + math.sin(a)) for a in ring], colour=QUIET, width=0.8)
    _draw_cross(canvas, x, y, 1.1)
    named: list[Point] = []
    for position, (sine, cosine) in enumerate(points.tolist()):
        canvas.line([(x, y), (x + cosine, y - sine)], width=0.8)
        canvas.dot(x + cosine, y - sine)
        if all(math.dist((sine, cosine), other) >= 0.15 for other in named):
            named.append((sine, cosine))
            canvas.text(x + 1.17 * cosine, y - 1.17 * sine, str(position), bold=True)
    canvas.text(x, y + 1.7, step, bold=True)
    if len(named) == 1 and len(points) > 1:
        words = message("0 to {last}", last=len(points) - 1)
        canvas.text(x + 0.92, y - 0.22, words, align="right", bold=True, ground=PAPER)
    words = message("cosine, column {column} →", column=2 * pair + 1)
    canvas.text(x, y + 1.4, words, size=SMALL_SIZE)
    canvas.text(x, y - 1.4, message("↑ sine, column {column}", column=2 * pair), size=SMALL_SIZE)


def _draw_cross(canvas: Canvas, x: float, y: float, reach: float) -> None:
    canvas.line([(x - reach, y), (x + reach, y)], colour=QUIET, width=0.6)
    canvas.line([(x, y - reach), (x, y + reach)], colour=QUIET, width=0.6)


def rotated_query(
    query: Any, key: Any, *, title: str, names: tuple[str, str] = ("query", "key")
) -> Drawing:
    """Draw a query and a key of two features as arrows, and plot their match against distance.

    The query rotates by 1 radian per position, counter-clockwise.

    Args:
        query: The two features of a query, at the position of the key.
        key: The two features of a key.
        title: Claim of the figure.
        names: Names of the two arrows.

    Raises:
        ValueError: If a vector does not have two features, or is zero.
    """
    start, end = (as_plain_tensor(arrow).double().tolist() for arrow in (query, key))
    for name, arrow in (("query", start), ("key", end)):
        if not isinstance(arrow, list) or len(arrow) != 2 or not any(arrow):
            raise ValueError(f"rotated_query: {name} must be two numbers, not both 0, got {arrow}")
    matches = [_match(_rotate(start, step), end) for step in range(STEPS + 1)]
    canvas = Canvas()
    _draw_plane(canvas, start, end, names)
    _draw_match(canvas, start, end)

    rotated = message("{name}, rotated once", name=names[0])
    arrows = [
        f"{name} {number_list(arrow)} ({format_number(_degrees(*arrow), 1)}°)"
        for name, arrow in ((names[0], start), (rotated, _rotate(start, 1)), (names[1], end))
    ]
    rows = [["distance", *map(str, range(STEPS + 1))], ["match", *map(format_number, matches)]]
    width = max(len(text) for row in rows for text in row)
    lines = ("".join(text.rjust(width + 1) for text in row).strip() for row in rows)
    described = "; ".join(arrows)
    return canvas.finish(
        title,
        "\n".join([*arrows, *lines]),
        message(
            "Arrows in a plane: {arrows}. Beside them the match as a wave, at distances from 0: "
            "{matches}.",
            arrows=described, matches=number_list(matches),
        ),
        message(
            "Arrows in a plane: {arrows}. Beside them the match as a wave around 0, by distance.",
            arrows=described,
        ),
    )  # fmt: skip


def _rotate(arrow: Sequence[float], angle: float) -> list[float]:
    (x, y), sin, cos = arrow, math.sin(angle), math.cos(angle)
    return [x * cos - y * sin, x * sin + y * cos]


def _match(query: Sequence[float], key: Sequence[float]) -> float:
    return query[0] * key[0] + query[1] * key[1]


def _draw_plane(
    canvas: Canvas, query: Sequence[float], key: Sequence[float], names: tuple[str, str]
) -> None:
    """Draw the query before and after one rotation, the arc between them, and the key."""
    x, y = 2.4, HEIGHT / 2
    scale = REACH / max(math.hypot(*query), math.hypot(*key))

    def tip(arrow: Sequence[float], share: float = 1.0) -> Point:
        return x + share * scale * arrow[0], y - share * scale * arrow[1]

    _draw_cross(canvas, x, y, REACH)
    canvas.line([tip(_rotate(query, step / 20), 0.7) for step in range(21)], style="dashed")
    canvas.line([(x, y), tip(query)], colour=QUIET, width=2.2, style="dashed")
    rotated = _rotate(query, 1)
    for arrow, width in ((rotated, 2.4), (key, 1.2)):
        canvas.arrow((x, y), tip(arrow), width=width)
    for arrow, name in ((query, names[0]), (rotated, message("rotated once")), (key, names[1])):
        side, align = (1, "left") if arrow[0] > 0 else (-1, "right")
        end = tip(arrow)
        canvas.text(end[0] + 0.1 * side, end[1], name, align=align, bold=arrow is rotated)


def _draw_match(canvas: Canvas, query: Sequence[float], key: Sequence[float]) -> None:
    """Plot the match against distance, with dots at integers, and the match without rotation."""
    x, middle = 5.0, HEIGHT / 2
    largest = math.hypot(*query) * math.hypot(*key)

    def point_at(distance: float, match: float) -> Point:
        return x + WIDTH * distance / STEPS, middle - match / largest * middle * 0.94

    canvas.box(x, 0.0, WIDTH, HEIGHT, fill="none", edge=QUIET)
    for value in (-largest, 0.0, largest):
        height = point_at(0, value)[1]
        canvas.line([(x, height), (x + WIDTH, height)], colour=QUIET, width=0.6)
        canvas.text(x - 0.08, height, format_number(value, 2), size=SMALL_SIZE, align="right")
    distances = [step / FINE for step in range(STEPS * FINE + 1)]
    (colour, style), (other, dashes) = CURVE_STYLES[:2]
    curve = [point_at(distance, _match(_rotate(query, distance), key)) for distance in distances]
    canvas.line(curve, colour=colour, width=1.6, style=style)
    match = _match(query, key)
    canvas.line([point_at(0, match), point_at(STEPS, match)], colour=other, width=2.2, style=dashes)
    for step in range(STEPS + 1):
        canvas.dot(*point_at(step, _match(_rotate(query, step), key)))
        canvas.text(point_at(step, 0)[0], HEIGHT + LINE * 0.75, str(step), size=SMALL_SIZE)
    words = message("distance: positions from key to query")
    canvas.text(x + WIDTH / 2, HEIGHT + LINE * 1.75, words)
    canvas.text(x, -LINE * 0.75, message("match: — rotated, - - not rotated"), align="left")
