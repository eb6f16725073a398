"""Charts: curves over a common x, and bars made of parts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from twelve_lab.draw.canvas import Canvas, Point
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE
from twelve_lab.draw.prose import in_their_words, listed, plural, tell
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import CURVE_STYLES, INK, PART_FILLS, QUIET
from twelve_lab.show.table import as_plain_tensor

WIDTH, HEIGHT = 5.2, 3.0
PRINTED = 9  # places at which the summary gives the values
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
BAR_WIDTH, BAR_GAP = 5.8, 0.16
NOTE = 0.26  # the room under a bar for the names of parts too short to carry them
VISIBLE = 0.025  # the share of the height that a curve must move by for the eye
THIN = 300  # a curve of more values than this gets a thinner line


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
    """Draw curves over a common x, each in its own dashes with its name at its end.

    Args:
        lines: Name -> the values, one for each x; at most six.
        title: The claim of the figure.
        x: The places of the values; 0, 1, 2 ... if not given.
        x_label: What x counts.
        y_label: What the values are.
        log: Whether the y axis counts powers of ten.
        summary: What to write in place of the values, where they differ between machines; the
            alt text says it too.

    Raises:
        ValueError: There are no lines or more than six, the lengths differ, a value is not finite,
            or it is not above zero on a logarithmic axis.
    """
    values = {name: as_plain_tensor(line).double().tolist() for name, line in lines.items()}
    if not 1 <= len(values) <= len(CURVE_STYLES):
        raise ValueError(f"lines must be 1 to {len(CURVE_STYLES)} curves, got {len(values)}")
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
    canvas.text(WIDTH / 2, HEIGHT + LINE * 2.1, x_label)
    canvas.text(0.0, -LINE * 0.8, y_label + (", logarithmic" if log else ""), align="left")
    over = f"{x_label or 'x'} from {places[0]:g} to {places[-1]:g}"
    what = f"{y_label}{' on a logarithmic axis' * log} over {over}".strip()
    head = f"{len(values)} {plural('curve', len(values))}, {what}"
    if summary is None:
        said = [
            f"{name} {_course(places, line, heights[name], frame, log=log)}"
            for name, line in values.items()
        ]
        alt = tell(title, f"{head}: {'; '.join(said)}", f"{head}: {listed(values)}")
        summary = _values_at(places, values, x_label or "x", log=log)
    else:
        alt = tell(title, *in_their_words(f"{head}: {listed(values)}", summary))
    return canvas.finish(title, alt, summary)


def bars(bars: Mapping[str, Mapping[str, float]], *, title: str, unit: str = "") -> Drawing:
    """Draw one bar below the other, each a row of parts, lengths to one common scale.

    Args:
        bars: Name of the bar -> name of the part -> its length, not negative.
        title: The claim of the figure.
        unit: What is counted.

    Returns:
        Each part with its name and length, below the bar where it is too short for them; the total
        stands behind the bar.

    Raises:
        ValueError: There is no bar, or a part is negative or not finite.
    """
    for name, parts in bars.items():
        for part, length in parts.items():
            if not (math.isfinite(length) and length >= 0):
                raise ValueError(f"part {part!r} of bar {name!r} is {length}, not a length")
    totals = {name: sum(parts.values()) for name, parts in bars.items()}
    if not max(totals.values(), default=0):
        raise ValueError("bars must hold at least one part longer than 0")
    canvas = Canvas()
    names = list(dict.fromkeys(part for parts in bars.values() for part in parts))
    fills = dict(zip(names, cycle(PART_FILLS), strict=False))
    scale = BAR_WIDTH / max(totals.values())
    labels = _labels(canvas, bars, scale, stacked=False)
    if any("\n" in label for row in labels.values() for label in row):
        labels = _labels(canvas, bars, scale, stacked=True)
    lines = max(label.count("\n") for row in labels.values() for label in row) + 1
    height = 0.16 + 0.19 * max(lines, 1)
    y = 0.0
    for name, parts in bars.items():
        y = _draw_bar(canvas, y, height, name, parts, labels[name], fills, scale) + BAR_GAP
    summary = []
    for name, parts in bars.items():
        made_of = "".join(f"{part} = {_count(length)}, " for part, length in parts.items())
        total = f"total {_count(totals[name])} {unit}".rstrip()
        summary.append(f"{name}: {made_of[:-2]}{'; ' * bool(parts)}{total}")
    head = f"{len(bars)} {plural('bar', len(bars))} to one scale. "
    sums = [f"{name}: {_count(total)} {unit}".strip() for name, total in totals.items()]
    alt = tell(title, head + ". ".join(summary), head + ". ".join(sums))
    return canvas.finish(title, alt, "\n".join(summary))


class _Frame:
    """The rectangle of a chart: values in, inches out."""

    def __init__(self, places: Sequence[float], heights: Sequence[float]):
        low, high = min(heights), max(heights)
        room = (high - low) * 0.04 or 0.5
        self.low, self.high = low - room, high + room
        self.start, self.end = min(places), max(places)

    def at(self, place: float, height: float) -> tuple[float, float]:
        span = self.end - self.start or 1
        share = (height - self.low) / (self.high - self.low)
        return (place - self.start) / span * WIDTH, (1 - share) * HEIGHT


def _check_curve(name: str, line: Any, places: Sequence[float], *, log: bool) -> None:
    if not isinstance(line, list) or len(line) != len(places) or len(line) < 2:
        size = len(line) if isinstance(line, list) else "one number"
        raise ValueError(f"curve {name!r} has {size} values for {len(places)} places, at least 2")
    for place, value in zip(places, line, strict=True):
        if not math.isfinite(value) or (log and value <= 0):
            wanted = "above zero on a logarithmic axis" if log else "finite"
            raise ValueError(f"curve {name!r} is {value} at {place}, which is not {wanted}")


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
            at = frame.at(tick, frame.low)[0]
            canvas.line([(at, HEIGHT), (at, HEIGHT + 0.05)], colour=QUIET, width=0.8)
            canvas.text(at, HEIGHT + LINE * 0.85, f"{tick:.6g}")


def draw_curves(
    canvas: Canvas, curves: Mapping[str, Sequence[Point]], bottom: float, width: float
) -> None:
    """Draw curves, and beside the end of each its name, moved apart where the ends meet.

    Args:
        canvas: Where to draw.
        curves: Name -> its points; all end equally far to the right.
        bottom: The lower edge of the chart.
        width: Of the lines, in points.
    """
    styles = dict(zip(curves, CURVE_STYLES, strict=False))
    for name, points in curves.items():
        colour, dashes = styles[name]
        canvas.line(points, colour=colour, width=width, style=dashes)
    order = sorted(curves, key=lambda name: curves[name][-1][1])
    places: list[float] = []
    for name in order:
        end = curves[name][-1][1]
        places.append(max(end, places[-1] + LINE * 1.1) if places else end)
    lift = max(0.0, places[-1] - bottom) if len(places) > 1 else 0.0
    for name, place in zip(order, (place - lift for place in places), strict=True):
        (right, end), (colour, dashes) = curves[name][-1], styles[name]
        key = (right + 0.6, place)
        canvas.line([(right + 0.02, end), (right + 0.1, place)], colour=QUIET, width=0.8)
        canvas.line([(right + 0.1, place), key], colour=colour, width=2.2, style=dashes)
        canvas.text(key[0] + 0.08, place, name, align="left")


def _course(
    places: Sequence[float],
    line: Sequence[float],
    heights: Sequence[float],
    frame: _Frame,
    *,
    log: bool,
) -> str:
    """Tell where a curve begins and ends, and by what it goes beyond where that can be seen."""
    texts = [_in_short(value) if log else format_number(value) for value in line]
    first, last = texts[0], texts[-1]
    seen = (frame.high - frame.low) * VISIBLE
    if len(set(texts)) == 1:
        return f"stays at {first}"
    if max(heights) - min(heights) < seen:
        return f"stays near {first}"
    if abs(heights[-1] - heights[0]) < seen:
        way = f"goes from {first} to {last}"
    else:
        way = f"{'rises' if heights[-1] > heights[0] else 'falls'} from {first} to {last}"
    ends = heights[0], heights[-1]
    turns = []
    if max(heights) > max(ends) + seen:
        turns.append(("peak", heights.index(max(heights))))
    if min(heights) < min(ends) - seen:
        turns.append(("lowest point", heights.index(min(heights))))
    words = " and ".join(f"its {word} {texts[i]} at {places[i]:g}" for word, i in turns)
    return f"{way}, with {words}" if turns else way


def _in_short(value: float) -> str:
    """Write a number of any size with two digits that count, as 7,100 or 1e-15."""
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
        stacked: Whether the length has a line of its own in every box, as it needs in some.
    """

    def fitting(part: str, length: float) -> str:
        broken = re.sub(r" |(?<=[_.-])(?=\w)", "\n", part)
        count = _count(length)
        forms = (f"{part}: {count}", f"{part}\n{count}", f"{broken}\n{count}")[stacked:]
        room = length * scale - 0.08
        return next((form for form in forms if canvas.width_of(form) < room), "")

    return {name: [fitting(*part) for part in parts.items()] for name, parts in bars.items()}


def _draw_bar(
    canvas: Canvas,
    y: float,
    height: float,
    name: str,
    parts: Mapping[str, float],
    labels: Sequence[str],
    fills: Mapping[str, str],
    scale: float,
) -> float:
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
            at = max(x + width / 2, noted)
            canvas.line([(x + width / 2, y + height), (x + width / 2, y + height + 0.12)])
            canvas.text(at - 0.02, y + height + NOTE * 0.8, note, align="left")
            noted = at + canvas.width_of(note) + 0.15
        x += width
    canvas.text(x + 0.1, middle, _count(sum(parts.values())), align="left", bold=True)
    return y + height + (0.0 if all(labels) else NOTE)
