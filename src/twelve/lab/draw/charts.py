"""Charts: curves over a common x, and bars made of parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from twelve.lab.draw.canvas import Canvas
from twelve.lab.draw.drawing import Drawing
from twelve.lab.draw.grid import LINE
from twelve.lab.format import format_number
from twelve.lab.palette import INK, PAPER, QUIET
from twelve.lab.table import as_plain_tensor

WIDTH, HEIGHT = 5.2, 3.0
# A curve is told from its neighbours by its dashes and its name, colour only helps.
STROKES = (
    ("#000000", "solid"), ("#D55E00", "dashed"), ("#0072B2", "dotted"), ("#009E73", "dashdot"),
    ("#CC79A7", "solid"), ("#56B4E9", "dashed"),
)  # fmt: skip
FILLS = ("#fddbc7", "#d1e5f0", "#e3e3e3", "#fff3c4", "#d8efd3", "#eadcf2", PAPER)
PRINTED = 9  # places at which the summary gives the values
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
BAR_HEIGHT, BAR_GAP = 0.36, 0.2


def curves(
    lines: Mapping[str, Any],
    *,
    title: str,
    x: Any = None,
    x_label: str = "",
    y_label: str = "",
    log: bool = False,
    summary: str | None = None,
    alt: str | None = None,
) -> Drawing:
    """Draw curves over a common x, each in its own dashes with its name at its end.

    Args:
        lines: Name -> the values, one for each x; at most six.
        title: The claim of the figure.
        x: The places of the values; 0, 1, 2 ... if not given.
        x_label: What x counts.
        y_label: What the values are.
        log: Whether the y axis counts powers of ten.
        summary: What to write in place of the values, where they differ between machines.
        alt: What to say to a reader who does not see it.

    Raises:
        ValueError: There are no lines or more than six, the lengths differ, a value is not finite,
            or it is not above zero on a logarithmic axis.
    """
    values = {name: as_plain_tensor(line).double().tolist() for name, line in lines.items()}
    if not 1 <= len(values) <= len(STROKES):
        raise ValueError(f"lines must be 1 to {len(STROKES)} curves, got {len(values)}")
    first = next(iter(values.values()))
    places = list(range(len(first))) if x is None else as_plain_tensor(x).tolist()
    for name, line in values.items():
        _check_curve(name, line, places, log=log)

    canvas = Canvas()
    heights = {name: [math.log10(v) if log else v for v in line] for name, line in values.items()}
    frame = _Frame(places, [h for line in heights.values() for h in line])
    _draw_scales(canvas, frame, log=log)
    for (colour, dashes), line in zip(STROKES, heights.values(), strict=False):
        points = [frame.at(a, b) for a, b in zip(places, line, strict=True)]
        canvas.line(points, colour=colour, width=2.2, style=dashes)
    _name_ends(canvas, {name: frame.at(places[-1], line[-1])[1] for name, line in heights.items()})
    canvas.text(WIDTH / 2, HEIGHT + LINE * 2.1, x_label)
    canvas.text(0.0, -LINE, y_label + (", logarithmic" if log else ""), align="left")
    alt = alt or (
        f"{title}. {len(values)} curve{'s' * (len(values) > 1)} over "
        f"{x_label or 'x'} from {places[0]:g} to {places[-1]:g}: {', '.join(values)}."
    )
    if summary is None:
        summary = _values_at(places, values, x_label or "x", log=log)
    return canvas.finish(title, alt, summary)


def bars(
    bars: Mapping[str, Mapping[str, float]],
    *,
    title: str,
    unit: str = "",
    alt: str | None = None,
) -> Drawing:
    """Draw one bar below the other, each a row of parts, lengths to one common scale.

    Args:
        bars: Name of the bar -> name of the part -> its length, not negative.
        title: The claim of the figure.
        unit: What is counted.
        alt: What to say to a reader who does not see it.

    Returns:
        A letter and a shade for each part, explained below; the total stands behind each bar.

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
    looks = {part: (_letter(i), fill) for i, (part, fill) in enumerate(zip(names, cycle(FILLS)))}
    scale = WIDTH / max(totals.values())
    for row, (name, parts) in enumerate(bars.items()):
        _draw_bar(canvas, row * (BAR_HEIGHT + BAR_GAP), name, parts, looks, scale)
    y = len(bars) * (BAR_HEIGHT + BAR_GAP) + 0.12
    for row, (part, (letter, fill)) in enumerate(looks.items()):
        middle = y + row * 0.27
        canvas.box(0.0, middle - 0.11, 0.3, 0.22, fill=fill)
        canvas.text(0.15, middle, letter, bold=True)
        canvas.text(0.4, middle, part, align="left")
    summary = [
        f"{name}: " + ", ".join(f"{part} {_count(length)}" for part, length in parts.items())
        + f"; total {_count(totals[name])} {unit}".rstrip()
        for name, parts in bars.items()
    ]  # fmt: skip
    alt = alt or (
        f"{title}. {len(bars)} bar{'s' * (len(bars) > 1)} to one scale, made of {', '.join(names)}."
    )
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


def _name_ends(canvas: Canvas, ends: Mapping[str, float]) -> None:
    """Write each name beside the end of its curve, moved apart where the ends meet."""
    order = sorted(ends, key=ends.__getitem__)
    places: list[float] = []
    for name in order:
        places.append(max(ends[name], places[-1] + 0.24) if places else ends[name])
    lift = max(0.0, places[-1] - HEIGHT) / 1
    places = [place - lift for place in places] if lift and len(places) > 1 else places
    for name, place in zip(order, places, strict=True):
        index = list(ends).index(name)
        colour, dashes = STROKES[index]
        key = (WIDTH + 0.5, place)
        canvas.line([(WIDTH + 0.02, ends[name]), (WIDTH + 0.12, place)], colour=QUIET, width=0.6)
        canvas.line([(WIDTH + 0.12, place), key], colour=colour, width=2.2, style=dashes)
        canvas.text(key[0] + 0.08, place, name, align="left")


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


def _letter(index: int) -> str:
    return chr(ord("A") + index)


def _count(length: float) -> str:
    return f"{length:,}" if isinstance(length, int) else format_number(length)


def _draw_bar(
    canvas: Canvas,
    y: float,
    name: str,
    parts: Mapping[str, float],
    looks: Mapping[str, tuple[str, str]],
    scale: float,
) -> None:
    canvas.text(-0.1, y + BAR_HEIGHT / 2, name, align="right")
    x = 0.0
    for part, length in parts.items():
        letter, fill = looks[part]
        width = length * scale
        canvas.box(x, y, width, BAR_HEIGHT, fill=fill, edge=INK)
        for text in (f"{letter} {_count(length)}", letter):
            if canvas.width_of(text) + 0.1 < width:
                canvas.text(x + width / 2, y + BAR_HEIGHT / 2, text)
                break
        x += width
    canvas.text(x + 0.1, y + BAR_HEIGHT / 2, _count(sum(parts.values())), align="left", bold=True)
