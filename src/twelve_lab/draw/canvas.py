"""Drawing area in inches, with x to the right and y down, that grows with its contents.

Text never scales with the picture, so lengths in inches and sizes in points stay in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from twelve_lab.draw.alt_text import alt_text
from twelve_lab.draw.drawing import Drawing
from twelve_lab.draw.font import families
from twelve_lab.show.palette import DPI, INK, PAPER, QUIET, axis_style
from twelve_lab.show.wide import parts

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

MARGIN = 0.12
# In points. The smallest text has an x-height of 8 pixels at 100 dpi, and 4 at half size.
TEXT_SIZE, SMALL_SIZE = 11, 10.5
TICK = 0.06  # length of the ends of a bracket
DASHES = {
    "solid": "-",
    "dashed": (0, (4, 2)),
    "dotted": (0, (1, 1.2)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 3)),
    "dashdotdot": (0, (5, 1.5, 1, 1.5, 1, 1.5)),
}

_TOWARD_CELLS = {"left": (1, 0), "right": (-1, 0), "top": (0, 1), "bottom": (0, -1)}

Point = tuple[float, float]


@cache
def _width_of_line(line: str, size: float, bold: bool) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=families(line), size=size, weight="bold" if bold else "normal")
    return text_to_path.get_text_width_height_descent(line, font, False)[0] / 72


class Canvas:
    """A canvas for boxes, lines, brackets and text at positions in inches.

    Attributes:
        bottom: Lower edge of the drawing so far.
    """

    def __init__(self) -> None:
        """Start with an empty canvas."""
        self._artists: list[Artist] = []
        self._left = self._top = math.inf
        self._right = self.bottom = -math.inf

    def width_of(self, text: str, size: float = TEXT_SIZE, *, bold: bool = False) -> float:
        """Return the width of the longest line of a text, in inches."""
        return max(_width_of_line(line, size, bold) for line in text.split("\n"))

    def text(
        self, x: float, y: float, text: str, *, size: float = TEXT_SIZE, align: str = "center",
        bold: bool = False, colour: str = INK, ground: str = "", gid: str | None = None,
    ) -> None:  # fmt: skip
        """Draw text centred vertically on y; `ground` is its background colour, if any."""
        if not text:
            return
        # Import matplotlib lazily, here and below: the lab must load without it.
        from matplotlib.text import Text

        background = {"facecolor": ground, "edgecolor": "none", "pad": 1.2} if ground else None
        style = {"size": size, "family": families(text), "weight": "bold" if bold else "normal",
                 "ha": align, "va": "center_baseline", "linespacing": 1.15, "color": colour,
                 "bbox": background, "gid": gid}  # fmt: skip
        self._artists.append(Text(x, y, text, zorder=4, parse_math=False, **style))
        width = self.width_of(text, size, bold=bold)
        height = size / 72 * 1.25 * (text.count("\n") + 1)
        start = x - width * {"left": 0, "center": 0.5, "right": 1}[align]
        self._grow((start, y - height / 2), (start + width, y + height / 2))

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str = PAPER,
        edge: str = QUIET, line: float = 0.6, hatched: bool = False,
    ) -> None:  # fmt: skip
        """Draw a rectangle with its upper left corner at (x, y); `fill="none"` draws a frame."""
        from matplotlib.patches import Rectangle

        style = {"facecolor": fill, "edgecolor": edge, "linewidth": line}
        front = 3 if fill == "none" else 1
        self._artists.append(Rectangle((x, y), width, height, zorder=front, **style))
        if hatched:
            self.line([(x, y), (x + width, y + height)], colour=QUIET, width=0.8)
            self.line([(x + width, y), (x, y + height)], colour=QUIET, width=0.8)
        self._grow((x, y), (x + width, y + height))

    def line(
        self, points: Sequence[Point], *, colour: str = INK, width: float = 1.0,
        style: str = "solid",
    ) -> None:  # fmt: skip
        """Draw a line through points."""
        from matplotlib.lines import Line2D

        ends = {"solid_capstyle": "butt", "dash_capstyle": "butt"}
        xs, ys = zip(*points, strict=True)
        self._artists.append(
            Line2D(xs, ys, color=colour, linewidth=width, linestyle=DASHES[style], zorder=2, **ends)
        )
        self._grow(*points)

    def dot(self, x: float, y: float, *, size: float = 6) -> None:
        """Draw a dot; `size` is its diameter in points."""
        from matplotlib.lines import Line2D

        self._artists.append(Line2D([x], [y], marker="o", markersize=size, color=INK, zorder=3))

    def patch(self, patch: Artist, *corners: Point) -> None:
        """Draw a matplotlib patch, and extend the canvas to the corners."""
        self._artists.append(patch)
        self._grow(*corners)

    def arrow(self, *points: Point, width: float = 1.2) -> None:
        """Draw an arrow through points; only the last segment has an arrowhead."""
        from matplotlib.patches import FancyArrowPatch

        if len(points) > 2:
            self.line(points[:-1], width=width)
        style = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0}
        self._artists.append(
            FancyArrowPatch(*points[-2:], linewidth=width, color=INK, zorder=2, **style)
        )
        self._grow(*points)

    def bracket(self, axis: str, start: Point, end: Point, side: str) -> None:
        """Draw the bracket of an axis along a line, with its ends pointing toward the cells.

        Args:
            axis: Axis that determines colour and line style.
            start: First end.
            end: Second end.
            side: Side of the cells that the bracket is on: "left", "right", "top" or "bottom".
        """
        style = axis_style(axis)
        dx, dy = _TOWARD_CELLS[side]
        is_double = style.line == "double"
        width = 1.2 if is_double else style.width
        dashes = "solid" if is_double else style.line
        hooks = [(p[0] + dx * TICK, p[1] + dy * TICK) for p in (start, end)]
        self.line([hooks[0], start, end, hooks[1]], colour=style.colour, width=width, style=dashes)
        if is_double:
            inner = [(p[0] + dx * 0.04, p[1] + dy * 0.04) for p in (start, end)]
            self.line(inner, colour=style.colour, width=width)

    def wrap(self, text: str) -> str:
        """Break text into lines no wider than the drawing or 6.5 inches, whichever is larger."""
        room = max(self._right - self._left, 6.5)
        lines = [""]
        for word in parts(" ".join(text.split())):
            longer = (lines[-1] + word).strip()
            if self.width_of(longer) > room and lines[-1]:
                lines.append(word.strip())
            else:
                lines[-1] = longer
        return "\n".join(lines)

    def finish(self, title: str, summary: str, *descriptions: str) -> Drawing:
        """Return the drawing, cropped to its contents.

        Args:
            title: Claim of the figure.
            summary: Values in the picture, as text.
            descriptions: Candidates for the alt text, most detailed first. The first candidate
                that is short enough follows the title.
        """
        edges = self._left - MARGIN, self._top - MARGIN, self._right + MARGIN, self.bottom + MARGIN
        return Drawing(self.sized(*edges), title, alt_text(title, *descriptions), summary)

    def sized(self, left: float, top: float, right: float, bottom: float) -> Figure:
        """Return the figure cropped to four edges, in inches."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(right - left, bottom - top), dpi=DPI, facecolor=PAPER)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
        axes.set_axis_off()
        for artist in self._artists:
            axes.add_artist(artist)
            artist.set_clip_on(False)  # clip paths would double the size of the SVG
        return figure

    def _grow(self, *points: Point) -> None:
        xs, ys = zip(*points, strict=True)
        self._left, self._top = min(self._left, *xs), min(self._top, *ys)
        self._right, self.bottom = max(self._right, *xs), max(self.bottom, *ys)
