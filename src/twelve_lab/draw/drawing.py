"""A finished figure with its alt text and the numbers it shows."""

from __future__ import annotations

import html
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

DATA = "data:image/svg+xml,"
STORED = re.compile(rf'<img alt="([^"]*)" style="[^"]*" src="({re.escape(DATA)}[^"]*)">')


class Picture(NamedTuple):
    """What a notebook stores of a figure: its alt text, and the address that is the picture."""

    alt: str
    source: str

    @property
    def svg(self) -> str:
        """Return the picture as SVG."""
        return self.source.removeprefix(DATA).replace("%23", "#")


def stored(data: Mapping[str, str]) -> Picture | None:
    """Find the picture in one output of a cell, if it is one.

    Args:
        data: Kind -> what is stored, as in a notebook.
    """
    found = STORED.fullmatch(data.get("text/html", ""))
    return Picture(html.unescape(found[1]), found[2]) if found else None


class Drawing:
    """A figure that a notebook shows once, followed by its alt text and its numbers, folded.

    The picture cannot be compared by machine and is silent to a screen reader; the text below it
    is neither, and it is folded away for whoever sees the picture.

    The picture is SVG in an `<img>`: so JupyterLab shows it in a notebook that is not trusted yet,
    and reads out its alt text, and so it follows the colour scheme of the page.

    Attributes:
        figure: The matplotlib figure, unknown to pyplot: nothing to close, no second display.
        alt: What the picture shows, in words.
        summary: The plotted numbers as text.
    """

    def __init__(self, figure: Figure, alt: str, summary: str):
        """Keep the three together."""
        self.figure = figure
        self.alt = alt
        self.summary = summary

    def __repr__(self) -> str:
        """Give the alt text."""
        return self.alt

    def svg(self) -> str:
        """Write the figure as SVG; the same figure gives the same text on every machine."""
        from twelve_lab.draw.svg import to_svg  # loads matplotlib

        return to_svg(self.figure)

    def html(self) -> str:
        """Write the figure as an element of a page."""
        # A picture has no quotation marks; in an address a # would end it.
        source = DATA + self.svg().replace("#", "%23")
        alt = html.escape(self.alt)
        return f'<img alt="{alt}" style="max-width:100%;height:auto" src="{source}">'

    def save(self, path: str | Path) -> None:
        """Write the figure to an SVG file, which carries its text as description."""
        from twelve_lab.draw.svg import to_svg  # loads matplotlib

        described = to_svg(self.figure, self.alt, self.text())
        Path(path).write_text(f"{described}\n", encoding="utf-8", newline="\n")

    def text(self) -> str:
        """Write the alt text, wrapped, and the numbers below it."""
        return textwrap.fill(f"Figure: {self.alt}", 100) + f"\n{self.summary}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": self.html(), "text/plain": self.alt}, raw=True)
        folded = (
            "<details><summary>the figure in words and numbers</summary>"
            f'<pre style="font-family:monospace">{html.escape(self.text())}</pre></details>'
        )
        display({"text/html": folded, "text/plain": self.summary}, raw=True)
