"""Charts: curves over a common x axis, and stacked bars."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from twelve_lab.draw.alt_text import alt_text
from twelve_lab.draw.canvas import Canvas, Point
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE
from twelve_lab.messages import message
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import CURVE_STYLES, INK, PART_FILLS, QUIET
from twelve_lab.show.table import as_plain_tensor

WIDTH, HEIGHT = 5.2, 3.0
PRINTED = 9  # x values for which the summary gives the curves
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
BAR_WIDTH, BAR_GAP = 5.8, 0.16
NOTE = 0.26  # room under a bar for the names of parts that are too short for them
THIN = 300  # a curve with more values than this has a thinner line


def curves(
    lines: Mapping[str, Any],
    *,
    title: str,
    x: Any = None,
    x_label: str = "",
    y_label: str = "",
    log: bool = False,
    summary: str | None = None,
) -> Drawing:
    """Draw curves over a common x axis, each with its own dashes and its name at its end.

    Args:
        lines: Name -> the values, one for each x; at most six.
        title: Claim of the figure.
        x: Positions of the values; 0, 1, 2 ... by default.
        x_label: Name of the x axis.
        y_label: Name of the y axis.
        log: Whether the y axis is logarithmic.
        summary: Text instead of the values, if they differ between machines.

    Raises:
        ValueError: If there are no lines or more than six, the lengths differ, a value is not
            finite, or it is not positive on a logarithmic axis.
    """
    values = {name: as_plain_tensor(line).double().tolist() for name, line in lines.items()}
    if not 1 <= len(values) <= len(CURVE_STYLES):
        raise ValueError(
            f"curves: lines must be 1 to {len(CURVE_STYLES)} curves, got {len(values)}"
        )
    first = next(iter(values.values()))
    places = list(range(len(first))) if x is None else as_plain_tensor(x).tolist()
    for name, line in values.items():
        _check_curve(name, line, places, log=log)

    canvas = Canvas()
    heights = {name: [math.log10(v) if log else v for v in line] for name, line in values.items()}
    frame = _Frame(places, [h for line in heights.values() for h in line])
    _draw_scales(canvas, frame, log=log)
    points = {
        name: [frame.at(a, b) for a, b in zip(places, line, strict=True)]
        for name, line in heights.items()
    }
    draw_curves(canvas, points, HEIGHT, 1.2 if len(places) > THIN else 2.2)
    if log:
        y_label = message("{axis} (logarithmic)", axis=y_label or "y")
    canvas.text(WIDTH / 2, HEIGHT + LINE * 2.1, x_label)
    canvas.text(0.0, -LINE * 0.8, y_label, align="left")

    if summary is None:
        write = _in_short if log else format_number
        courses = "; ".join(_course(name, places, line, write) for name, line in values.items())
        told = [courses, ", ".join(values)]
        summary = _values_at(places, values, x_label or "x", log=log)
    else:
        told = ["; ".join([", ".join(values), *summary.splitlines()]).rstrip(".")]
    versions = (
        message(
            "Curves of {y} over {x} from {start:g} to {end:g}: {curves}.",
            y=y_label or "y", x=x_label or "x", start=places[0], end=places[-1], curves=text,
        )
        for text in told
    )  # fmt: skip
    alt = alt_text(title, *versions)
    return canvas.finish(title, alt, summary)


def bars(bars: Mapping[str, Mapping[str, float]], *, title: str, unit: str = "") -> Drawing:
    """Draw stacked horizontal bars, one below the other, all to one scale.

    Args:
        bars: Name of the bar -> name of the part -> its length, not negative.
        title: Claim of the figure.
        unit: Unit of the lengths.

    Returns:
        Each part with its name and length, below the bar where the part is too short for them.
        The total is at the end of the bar.

    Raises:
        ValueError: If there is no bar, or a part is negative or not finite.
    """
    for name, parts in bars.items():
        for part, length in parts.items():
            if not (math.isfinite(length) and length >= 0):
                raise ValueError(
                    f"bars: part {part!r} of bar {name!r} must be a length, got {length}"
                )
    totals = {name: sum(parts.values()) for name, parts in bars.items()}
    if not max(totals.values(), default=0):
        raise ValueError("bars: bars must hold at least one part longer than 0, got none")
    canvas = Canvas()
    names = list(dict.fromkeys(part for parts in bars.values() for part in parts))
    fills = dict(zip(names, cycle(PART_FILLS), strict=False))
    scale = BAR_WIDTH / max(totals.values())
    labels = _labels(canvas, bars, scale, stacked=False)
    if any("\n" in label for row in labels.values() for label in row):
        labels = _labels(canvas, bars, scale, stacked=True)
    lines = max(label.count("\n") for row in labels.values() for label in row) + 1
    y = 0.0
    for name, parts in bars.items():
        height = 0.16 + 0.19 * lines
        y = _draw_bar(canvas, y, height, name, parts, labels[name], fills, scale) + BAR_GAP
    sums = {name: f"{_count(total)} {unit}".rstrip() for name, total in totals.items()}
    rows = []
    for name, parts in bars.items():
        listed = ", ".join(f"{part} = {_count(length)}" for part, length in parts.items()) or "-"
        rows.append(
            message("{bar}: {parts}; total {total}", bar=name, parts=listed, total=sums[name])
        )
    short = [f"{name}: {total}" for name, total in sums.items()]
    told = (message("Bars to one scale. {bars}.", bars=". ".join(bars)) for bars in (rows, short))
    return canvas.finish(title, alt_text(title, *told), "\n".join(rows))


class _Frame:
    """The rectangle of a chart, which converts values to inches."""

    def __init__(self, places: Sequence[float], heights: Sequence[float]):
        low, high = min(heights), max(heights)
        room = (high - low) * 0.04 or 0.5
        self.low, self.high = low - room, high + room
        self.start, self.end = min(places), max(places)

    def at(self, place: float, height: float) -> Point:
        span = self.end - self.start or 1
        share = (height - self.low) / (self.high - self.low)
        return (place - self.start) / span * WIDTH, (1 - share) * HEIGHT


def _check_curve(name: str, line: Any, places: Sequence[float], *, log: bool) -> None:
    size = len(line) if isinstance(line, list) else 1
    if size != len(places) or size < 2:
        raise ValueError(
            f"curves: curve {name!r} must have one value for each of at least 2 x, "
            f"got {size} values for {len(places)} x"
        )
    for place, value in zip(places, line, strict=True):
        if not math.isfinite(value) or (log and value <= 0):
            condition = "positive on a logarithmic axis" if log else "finite"
            raise ValueError(f"curves: curve {name!r} must be {condition}, got {value} at {place}")


def _draw_scales(canvas: Canvas, frame: _Frame, *, log: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    canvas.box(0.0, 0.0, WIDTH, HEIGHT, fill="none", edge=QUIET)
    for tick in MaxNLocator(5, integer=log, steps=[1, 2, 5, 10]).tick_values(frame.low, frame.high):
        if frame.low <= tick <= frame.high:
            y = frame.at(frame.start, tick)[1]
            canvas.line([(0.0, y), (WIDTH, y)], colour=QUIET, width=0.4)
            text = f"10{str(round(tick)).translate(SUPERSCRIPTS)}" if log else f"{tick:.6g}"
            canvas.text(-0.08, y, text, align="right")
    if frame.low < 0 < frame.high and not log:
        y = frame.at(frame.start, 0.0)[1]
        canvas.line([(0.0, y), (WIDTH, y)], width=0.9)
    for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(frame.start, frame.end):
        if frame.start <= tick <= frame.end:
            x = frame.at(tick, frame.low)[0]
            canvas.line([(x, HEIGHT), (x, HEIGHT + 0.05)], colour=QUIET, width=0.8)
            canvas.text(x, HEIGHT + LINE * 0.85, f"{tick:.6g}")


def draw_curves(
    canvas: Canvas, curves: Mapping[str, Sequence[Point]], bottom: float, width: float
) -> None:
    """Draw curves, with the name of each beside its end. Names keep a distance from each other.

    Args:
        canvas: Where to draw.
        curves: Name -> its points; all end at the same x.
        bottom: Lower edge of the chart.
        width: Width of the lines, in points.
    """
    styles = dict(zip(curves, CURVE_STYLES, strict=False))
    for name, points in curves.items():
        colour, dashes = styles[name]
        canvas.line(points, colour=colour, width=width, style=dashes)
    order = sorted(curves, key=lambda name: curves[name][-1][1])
    heights: list[float] = []
    for name in order:
        end = curves[name][-1][1]
        heights.append(max(end, heights[-1] + LINE * 1.1) if heights else end)
    lift = max(0.0, heights[-1] - bottom) if len(heights) > 1 else 0.0
    for name, height in zip(order, (height - lift for height in heights), strict=True):
        (right, end), (colour, dashes) = curves[name][-1], styles[name]
        key = (right + 0.6, height)
        canvas.line([(right + 0.02, end), (right + 0.1, height)], colour=QUIET, width=0.8)
        canvas.line([(right + 0.1, height), key], colour=colour, width=2.2, style=dashes)
        canvas.text(key[0] + 0.08, height, name, align="left")


def _course(name: str, places: Sequence[float], line: Sequence[float], write: Any) -> str:
    """Describe the ends and the extremes of a curve."""
    return message(
        "{name} from {first} to {last}, lowest {low} at {low_at}, highest {high} at {high_at}",
        name=name, first=write(line[0]), last=write(line[-1]), low=write(min(line)),
        low_at=f"{places[line.index(min(line))]:g}", high=write(max(line)),
        high_at=f"{places[line.index(max(line))]:g}",
    )  # fmt: skip


def _in_short(value: float) -> str:
    """Write a number of any magnitude with two significant digits, as 7,100 or 1e-15."""
    text = f"{value:.2g}"
    return f"{float(text):,.0f}" if "e+" in text else text


def _values_at(
    places: Sequence[float], values: Mapping[str, Sequence[float]], x_label: str, *, log: bool
) -> str:
    last = len(places) - 1
    few = min(PRINTED, len(places))
    chosen = sorted({round(i * last / (few - 1)) for i in range(few)})
    write = (lambda v: f"{v:.1e}") if log else format_number
    rows = [[x_label, *(f"{places[i]:g}" for i in chosen)]]
    rows += [[name, *(write(line[i]) for i in chosen)] for name, line in values.items()]
    stub = max(len(row[0]) for row in rows)
    width = max(len(text) for row in rows for text in row[1:])
    lines = (row[0].ljust(stub) + "".join(f"  {t:>{width}}" for t in row[1:]) for row in rows)
    return "\n".join(lines)


def _count(length: float) -> str:
    return f"{length:,}" if isinstance(length, int) else format_number(length)


def _labels(
    canvas: Canvas, bars: Mapping[str, Mapping[str, float]], scale: float, *, stacked: bool
) -> dict[str, list[str]]:
    """Write name and length of each part on as few lines as fit into its box, "" if none do.

    Args:
        canvas: Where to measure.
        bars: The bars.
        scale: Inches for a length of 1.
        stacked: Whether the length has a line of its own in every box.
    """

    def fitting(part: str, length: float) -> str:
        broken = re.sub(r" |(?<=[_.-])(?=\w)", "\n", part)
        count = _count(length)
        forms = (f"{part}: {count}", f"{part}\n{count}", f"{broken}\n{count}")[stacked:]
        room = length * scale - 0.08
        return next((form for form in forms if canvas.width_of(form) < room), "")

    return {name: [fitting(*part) for part in parts.items()] for name, parts in bars.items()}


def _draw_bar(
    canvas: Canvas, y: float, height: float, name: str, parts: Mapping[str, float],
    labels: Sequence[str], fills: Mapping[str, str], scale: float,
) -> float:  # fmt: skip
    """Draw one bar with its name on the left and its total on the right; return its lower edge."""
    middle = y + height / 2
    canvas.text(-0.1, middle, name, align="right")
    x, noted = 0.0, -math.inf
    for (part, length), label in zip(parts.items(), labels, strict=True):
        width = length * scale
        canvas.box(x, y, width, height, fill=fills[part], edge=INK)
        canvas.text(x + width / 2, middle, label)
        if not label:
            note = part if _count(length) in part else f"{part}: {_count(length)}"
            left = max(x + width / 2, noted)
            canvas.line([(x + width / 2, y + height), (x + width / 2, y + height + 0.12)])
            canvas.text(left - 0.02, y + height + NOTE * 0.8, note, align="left")
            noted = left + canvas.width_of(note) + 0.15
        x += width
    canvas.text(x + 0.1, middle, _count(sum(parts.values())), align="left", bold=True)
    return y + height + (0.0 if all(labels) else NOTE)
