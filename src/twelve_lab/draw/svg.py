"""A figure as SVG: the same bytes everywhere, letters as shapes, and colours that follow the page.

Text is drawn, not written: every screen shows it as it was measured, whatever fonts it has. Each
letter is defined once. In an `<img>`, where the notebooks put it, a picture follows the colour
scheme of the page around it, in the book as in JupyterLab; a browser that does not tell it gets one
on paper of its own, which can be read on any ground.

Loaded where something is drawn: it loads matplotlib.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_hex
from matplotlib.path import Path

from twelve_lab.show.palette import DPI, INK, by_night

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure

STEP = 10  # of a pixel: coordinates are whole numbers of these
EM = 500  # units in which letters are drawn
VERBS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
CAPS = {"butt": "", "round": " stroke-linecap='round'", "projecting": " stroke-linecap='square'"}


def to_svg(figure: Figure, title: str = "", description: str = "") -> str:
    """Write a figure as SVG.

    Args:
        figure: Measured in inches.
        title: What a file of its own is called.
        description: What it shows, in words and numbers.
    """
    width, height = (round(side * DPI) for side in figure.get_size_inches())
    writer = Writer(width, height)
    figure.draw(writer)
    named = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>" if title else ""
    defined = "".join(element.format(id) for id, element in writer.defined.values())
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width * STEP} {height * STEP}' fill='{INK}'>{named}"
        f"<style>@media(prefers-color-scheme:dark){{{''.join(_by_night(writer.colours))}}}</style>"
        f"<defs>{defined}</defs>{''.join(writer.parts)}</svg>"
    )


def _by_night(colours: Iterable[str]) -> Iterable[str]:
    """Give each colour its other one, where it fills and where it is that of a line."""
    for colour in colours:
        name, value = colour.split("=")
        yield f"[{name}='{value}']{{{name}:{by_night(value, line=name == 'stroke')}}}"


class Writer(RendererBase):
    """Collects what a figure draws, as elements of SVG."""

    def __init__(self, width: int, height: int):
        """Begin with a sheet of some pixels, its paper still to come."""
        super().__init__()
        self.width, self.height = width, height
        self.parts: list[str] = []
        self.defined: dict[object, tuple[str, str]] = {}
        self.colours = {f"fill={INK}": None}  # in the order of their use
        self._paint = ""

    def get_canvas_width_height(self) -> tuple[int, int]:
        """Return the size in pixels."""
        return self.width, self.height

    def points_to_pixels(self, points: float) -> float:
        """Return a length in pixels."""
        return points * DPI / 72

    def draw_path(self, gc, path, transform, rgbFace=None) -> None:
        """Draw lines and areas; what is painted alike, one behind the other, is one path."""
        paint = self._fill(rgbFace) + self._stroke(gc)
        points = path.transformed(transform).vertices
        data = _outline(_steps(points * (1, -1) + (0, self.height), STEP), path.codes)
        if paint == self._paint:
            self.parts[-1] = self.parts[-1].removesuffix("'/>") + data + "'/>"
        else:
            self.parts.append(f"<path{paint} d='{data}'/>")
        self._paint = paint

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None) -> None:
        """Draw a line of text, by its definition."""
        self._paint = ""
        size = self.points_to_pixels(prop.get_size_in_points()) * STEP / EM
        place = f"translate({round(x * STEP)} {round(y * STEP)})scale({size:.4g})"
        self.parts.append(f"<use href='#{self._line(s, prop)}' transform='{place}'/>")

    def _line(self, text: str, prop) -> str:
        """Define a line of text where it comes first, by its letters, and give its id."""
        drawn = self._text2path
        placed, shapes, _ = drawn.get_glyphs_with_font(drawn._get_font(prop), text)
        scale = EM / drawn.FONT_SCALE
        uses = []
        for name, across, _, _ in placed:
            points, codes = shapes[name]
            if len(points):
                outline = _outline(_steps(points * (1, -1), scale), codes)
                letter = self._define(name, f"<path id='{{}}' d='{outline}'/>")
                uses.append(f"<use href='#{letter}' x='{round(across * scale)}'/>")
        return self._define((text, prop.get_weight()), f"<g id='{{}}'>{''.join(uses)}</g>")

    def _define(self, name: object, element: str) -> str:
        """Keep an element that is used again, under a short id."""
        id, _ = self.defined.setdefault(name, (_short(len(self.defined)), element))
        return id

    def _fill(self, colour) -> str:
        return " fill='none'" if colour is None or not any(colour[3:]) else self._in("fill", colour)

    def _stroke(self, gc) -> str:
        if not gc.get_linewidth():
            return ""
        _, dashes = gc.get_dashes()
        width = self.points_to_pixels(gc.get_linewidth()) * STEP
        lengths = " ".join(f"{self.points_to_pixels(x) * STEP:.0f}" for x in dashes or ())
        return (
            f"{self._in('stroke', gc.get_rgb())} stroke-width='{width:.0f}'"
            + CAPS[gc.get_capstyle()]
            + (f" stroke-dasharray='{lengths}'" if lengths else "")
        )

    def _in(self, name: str, colour) -> str:
        value = to_hex(colour)
        self.colours[f"{name}={value}"] = None
        return f" {name}='{value}'"


def _steps(points, length: float) -> list[list[int]]:
    return (points * length).round().astype(int).tolist()


def _outline(points: list[list[int]], codes) -> str:
    """Write a path, each point by its way from the one before."""
    if codes is None:
        codes = [Path.MOVETO, *[Path.LINETO] * (len(points) - 1)]
    written, at, start, left = [], (0, 0), (0, 0), []
    for (x, y), code in zip(points, codes, strict=True):
        if code == Path.CLOSEPOLY:
            written.append("z")
            at = start
            continue
        left.append((x - at[0], y - at[1]))
        if code in (Path.MOVETO, Path.LINETO):
            start = (x, y) if code == Path.MOVETO else start
        elif len(left) < code - 1:  # CURVE3 has two points, CURVE4 three
            continue
        written.append(_command(VERBS[code].lower() if written else VERBS[code], left))
        at, left = (x, y), []
    return "".join(written)


def _command(verb: str, ways: list[tuple[int, int]]) -> str:
    if verb == "l" and 0 in ways[0]:
        ((x, y),) = ways
        return f"v{y}" if not x else f"h{x}"
    numbers = " ".join(f"{x} {y}" for x, y in ways)
    return verb + numbers.replace(" -", "-")


def _short(number: int) -> str:
    """Name something by as few letters as will do."""
    first, rest = divmod(number, 52)
    letter = chr(rest + (65 if rest < 26 else 71))
    return letter + str(first) if first else letter
