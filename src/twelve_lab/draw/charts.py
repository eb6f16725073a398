"""Charts: curves over a common x axis, and stacked bars."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, cycle
from typing import Any

from twelve_lab.draw.canvas import Canvas, Point
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.grid import LINE
from twelve_lab.messages import message
from twelve_lab.show import wide
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import CURVE_STYLES, INK, PART_FILLS, QUIET
from twelve_lab.show.table import as_plain_tensor

WIDTH, HEIGHT = 5.2, 3.0
PRINTED = 9  # number of x values in the summary
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
BAR_WIDTH, BAR_GAP = 5.8, 0.16
NOTE = 0.26  # room under a bar for labels that do not fit inside it


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
    """Draw curves over a common x axis, each with its own dash pattern and its name at the end.

    Args:
        lines: Curve name -> values, one per x; at most six curves.
        title: Claim of the figure.
        x: The x values; 0, 1, 2, ... by default.
        x_label: Name of the x axis.
        y_label: Name of the y axis.
        log: Whether the y axis is logarithmic.
        summary: Text that replaces the values if they differ between machines.

    Raises:
        ValueError: If there are no curves or more than six, a curve has fewer than 2 values or not
            one per x, a value is not finite, or a value is not positive on a logarithmic axis.
    """
    values = {name: as_plain_tensor(line).double().tolist() for name, line in lines.items()}
    if not 1 <= len(values) <= len(CURVE_STYLES):
        raise ValueError(
            f"curves: lines must be 1 to {len(CURVE_STYLES)} curves, got {len(values)}"
        )
    xs = list(range(len(next(iter(values.values()))))) if x is None else as_plain_tensor(x).tolist()
    for name, line in values.items():
        _check_curve(name, line, xs, log=log)

    canvas = Canvas()
    heights = {name: [math.log10(y) if log else y for y in line] for name, line in values.items()}
    point_at = _draw_scales(canvas, xs, [y for line in heights.values() for y in line], log=log)
    points = {name: list(map(point_at, xs, line)) for name, line in heights.items()}
    _draw_curves(canvas, points)
    if log:
        y_label = message("{axis} (logarithmic)", axis=y_label or "y")
    canvas.text(WIDTH / 2, HEIGHT + LINE * 2.1, x_label)
    canvas.text(0.0, -LINE * 0.8, y_label, align="left")

    if summary is None:
        write = _in_short if log else format_number
        courses = "; ".join(_course(name, xs, line, write) for name, line in values.items())
        descriptions = [courses, ", ".join(values)]
        summary = _values_at(xs, values, x_label or "x", log=log)
    else:
        descriptions = ["; ".join([", ".join(values), *summary.splitlines()]).rstrip(".")]
    return canvas.finish(title, summary, *(
        message(
            "Curves of {y} over {x} from {start:g} to {end:g}: {curves}.",
            y=y_label or "y", x=x_label or "x", start=xs[0], end=xs[-1], curves=text,
        )
        for text in descriptions
    ))  # fmt: skip


def _check_curve(name: str, line: Any, xs: Sequence[float], *, log: bool) -> None:
    size = len(line) if isinstance(line, list) else 1
    if size != len(xs) or size < 2:
        raise ValueError(
            f"curves: curve {name!r} must have one value for each of at least 2 x, "
            f"got {size} values for {len(xs)} x"
        )
    for x, value in zip(xs, line, strict=True):
        if not math.isfinite(value) or (log and value <= 0):
            condition = "positive on a logarithmic axis" if log else "finite"
            raise ValueError(f"curves: curve {name!r} must be {condition}, got {value} at {x}")


def _draw_scales(
    canvas: Canvas, xs: Sequence[float], ys: Sequence[float], *, log: bool
) -> Callable[[float, float], Point]:
    """Draw the frame and its ticks; return the function that converts values to inches."""
    from matplotlib.ticker import MaxNLocator

    room = (max(ys) - min(ys)) * 0.04 or 0.5
    low, high = min(ys) - room, max(ys) + room
    start, end = min(xs), max(xs)

    def point_at(x: float, y: float) -> Point:
        share = (y - low) / (high - low)
        return (x - start) / (end - start or 1) * WIDTH, (1 - share) * HEIGHT

    canvas.box(0.0, 0.0, WIDTH, HEIGHT, fill="none", edge=QUIET)
    for tick in MaxNLocator(5, integer=log, steps=[1, 2, 5, 10]).tick_values(low, high):
        if low <= tick <= high:
            y = point_at(start, tick)[1]
            canvas.line([(0.0, y), (WIDTH, y)], colour=QUIET, width=0.4)
            text = f"10{str(round(tick)).translate(SUPERSCRIPTS)}" if log else f"{tick:.6g}"
            canvas.text(-0.08, y, text, align="right")
    if low < 0 < high and not log:
        y = point_at(start, 0.0)[1]
        canvas.line([(0.0, y), (WIDTH, y)], width=0.9)
    for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(start, end):
        if start <= tick <= end:
            x = point_at(tick, low)[0]
            canvas.line([(x, HEIGHT), (x, HEIGHT + 0.05)], colour=QUIET, width=0.8)
            canvas.text(x, HEIGHT + LINE * 0.85, f"{tick:.6g}")
    return point_at


def _draw_curves(canvas: Canvas, curves: Mapping[str, Sequence[Point]]) -> None:
    """Draw curves, each labelled at its end; the labels are spaced so they do not overlap."""
    styles = dict(zip(curves, CURVE_STYLES, strict=False))
    for name, points in curves.items():
        colour, dashes = styles[name]
        canvas.line(points, colour=colour, width=2.2, style=dashes)
    order = sorted(curves, key=lambda name: curves[name][-1][1])
    ends = (curves[name][-1][1] for name in order)
    heights = list(accumulate(ends, lambda above, end: max(end, above + LINE * 1.1)))
    lift = max(0.0, heights[-1] - HEIGHT)
    for name, lowered in zip(order, heights, strict=True):
        (right, end), (colour, dashes), height = curves[name][-1], styles[name], lowered - lift
        canvas.line([(right + 0.02, end), (right + 0.1, height)], colour=QUIET, width=0.8)
        dash = [(right + 0.1, height), (right + 0.6, height)]
        canvas.line(dash, colour=colour, width=2.2, style=dashes)
        canvas.text(right + 0.6 + 0.08, height, name, align="left")


def _course(name: str, xs: Sequence[float], line: Sequence[float], write: Any) -> str:
    """Describe the ends and the extremes of a curve."""
    low, high = min(line), max(line)
    return message(
        "{name} from {first} to {last}, lowest {low} at {low_at}, highest {high} at {high_at}",
        name=name, first=write(line[0]), last=write(line[-1]),
        low=write(low), low_at=f"{xs[line.index(low)]:g}",
        high=write(high), high_at=f"{xs[line.index(high)]:g}",
    )  # fmt: skip


def _in_short(value: float) -> str:
    """Format a number with two significant digits, such as 7,100 or 1e-15."""
    text = f"{value:.2g}"
    return f"{float(text):,.0f}" if "e+" in text else text


def _values_at(
    xs: Sequence[float], values: Mapping[str, Sequence[float]], x_label: str, *, log: bool
) -> str:
    """Format a table of the curves at a few x values."""
    few = min(PRINTED, len(xs))
    chosen = sorted({round(i * (len(xs) - 1) / (few - 1)) for i in range(few)})
    write = (lambda value: f"{value:.1e}") if log else format_number
    rows = [[x_label, *(f"{xs[i]:g}" for i in chosen)]]
    rows += [[name, *(write(line[i]) for i in chosen)] for name, line in values.items()]
    stub = max(wide.width(row[0]) for row in rows)
    width = max(len(text) for row in rows for text in row[1:])
    return "\n".join(
        wide.left(row[0], stub) + "".join(f"  {text:>{width}}" for text in row[1:]) for row in rows
    )


def bars(bars: Mapping[str, Mapping[str, float]], *, title: str, unit: str = "") -> Drawing:
    """Draw stacked horizontal bars, one below the other, all to the same scale.

    Args:
        bars: Bar name -> part name -> length, which must not be negative.
        title: Claim of the figure.
        unit: Unit of the lengths.

    Returns:
        Bars whose parts are labelled with name and length. A label that does not fit inside its
        part is below the bar. The total is at the end of the bar.

    Raises:
        ValueError: If no part is longer than 0, or a length is negative or not finite.
    """
    for name, parts in bars.items():
        for part, length in parts.items():
            if not (math.isfinite(length) and length >= 0):
                raise ValueError(
                    f"bars: part {part!r} of bar {name!r} must be a length, got {length}"
                )
    totals = {name: sum(parts.values()) for name, parts in bars.items()}
    if not any(totals.values()):
        raise ValueError("bars: bars must hold at least one part longer than 0, got none")
    canvas = Canvas()
    scale = BAR_WIDTH / max(totals.values())
    names = dict.fromkeys(part for parts in bars.values() for part in parts)
    fills = dict(zip(names, cycle(PART_FILLS), strict=False))
    labels = _labels(canvas, bars, scale)
    lines = max(label.count("\n") for row in labels for label in row) + 1
    y = 0.0
    for (name, parts), row in zip(bars.items(), labels, strict=True):
        y = _draw_bar(canvas, y, 0.16 + 0.19 * lines, name, parts, row, fills, scale) + BAR_GAP
    sums = {name: f"{_count(total)} {unit}".rstrip() for name, total in totals.items()}
    rows = []
    for name, parts in bars.items():
        listed = ", ".join(f"{part} = {_count(length)}" for part, length in parts.items()) or "-"
        rows.append(
            message("{bar}: {parts}; total {total}", bar=name, parts=listed, total=sums[name])
        )
    descriptions = ". ".join(rows), ". ".join(f"{name}: {total}" for name, total in sums.items())
    return canvas.finish(
        title,
        "\n".join(rows),
        *(message("Bars to one scale. {bars}.", bars=text) for text in descriptions),
    )


def _count(length: float) -> str:
    return f"{length:,}" if isinstance(length, int) else format_number(length)


def _labels(
    canvas: Canvas, bars: Mapping[str, Mapping[str, float]], scale: float
) -> list[list[str]]:
    """Format the label of each part on as few lines as fit into its box, or "" if none fit.

    If any label needs several lines, the length has its own line in every box.
    """

    def fitting(part: str, length: float, first: int) -> str:
        broken = re.sub(r" |(?<=[_.-])(?=\w)", "\n", part)
        count = _count(length)
        forms = (f"{part}: {count}", f"{part}\n{count}", f"{broken}\n{count}")[first:]
        room = length * scale - 0.08
        return next((form for form in forms if canvas.width_of(form) < room), "")

    for first in (0, 1):
        labels = [[fitting(*part, first) for part in parts.items()] for parts in bars.values()]
        if not any("\n" in label for row in labels for label in row):
            break
    return labels


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
