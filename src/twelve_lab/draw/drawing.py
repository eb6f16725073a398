"""A finished figure with its alt text and its values."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from twelve_lab.draw.svg import to_svg
from twelve_lab.messages import message
from twelve_lab.show.wide import fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

DATA = "data:image/svg+xml,"
STORED = re.compile(
    rf'<p [^>]*>(.*?)</p><img alt="([^"]*)" style="[^"]*" src="({re.escape(DATA)}[^"]*)">'
)


class Picture(NamedTuple):
    """A figure as stored in a notebook: its title, its alt text and its data URL."""

    title: str
    alt: str
    source: str

    @property
    def svg(self) -> str:
        """Return the picture as SVG."""
        return self.source.removeprefix(DATA).replace("%23", "#")


def stored(data: Mapping[str, str]) -> Picture | None:
    """Parse the picture in a cell output; return None if there is no picture.

    Args:
        data: Output data: MIME type -> content.
    """
    match = STORED.fullmatch(data.get("text/html", ""))
    return Picture(html.unescape(match[1]), html.unescape(match[2]), match[3]) if match else None


@dataclass(frozen=True, repr=False, eq=False)
class Drawing:
    """A figure in a notebook, with its title above and its values in a collapsed section below.

    The title wraps on a phone, where a wide picture scrolls. Screen readers and nbval cannot read
    the picture, but they can read the text.

    The picture is an SVG in an `<img>`. JupyterLab therefore shows it in untrusted notebooks, and
    it follows the colour scheme of the page.

    Attributes:
        figure: The matplotlib figure, which pyplot does not manage.
        title: Claim of the figure.
        alt: Alt text of the picture.
        summary: Values in the picture, as text.
        frame: HTML of an iframe below the picture with a part of the live page, if any. The
            picture remains where iframes are not shown: on paper and in untrusted notebooks.
    """

    figure: Figure
    title: str
    alt: str
    summary: str
    frame: str = ""

    def __repr__(self) -> str:
        """Return the alt text."""
        return self.alt

    def svg(self) -> str:
        """Return the figure as SVG."""
        return to_svg(self.figure)

    def html(self) -> str:
        """Return the title and the figure as HTML elements."""
        # The SVG has no double quotes. A "#" would end the data of the URL.
        source = DATA + self.svg().replace("#", "%23")
        title, alt = html.escape(self.title), html.escape(self.alt)
        return (
            f'<p style="margin:0.5em 0;font-size:1.15em;font-weight:bold">{title}</p>'
            f'<img alt="{alt}" style="max-width:100%;height:auto" src="{source}">'
        )

    def save(self, path: str | Path) -> None:
        """Save the figure as an SVG file, with its text as the description.

        Raises:
            ValueError: If the name does not end in .svg.
        """
        if Path(path).suffix != ".svg":
            raise ValueError(
                message("the picture is SVG; give a name that ends in .svg, not {file}", file=path)
            )
        described = to_svg(self.figure, self.alt, self.text())
        Path(path).write_text(f"{described}\n", encoding="utf-8", newline="\n")

    def text(self) -> str:
        """Return the wrapped alt text, followed by the summary."""
        return fill(message("Figure: {alt}", alt=self.alt), 100) + f"\n{self.summary}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": self.html(), "text/plain": self.alt}, raw=True)
        summary = message("the figure in words and numbers")
        folded = (
            f"<details><summary>{summary}</summary>"
            f'<pre style="font-family:monospace">{html.escape(self.text())}</pre></details>'
        )
        display({"text/html": folded, "text/plain": self.summary}, raw=True)
        if self.frame:
            display({"text/html": self.frame}, raw=True)


def live(part: str, still: Drawing) -> Drawing:
    """Return a drawing with a part of the live page below it.

    Args:
        part: Name of the part, one of `twelve_lab.explorer.parts.PARTS`, such as "query" or "mask".
        still: The static drawing.

    Raises:
        ValueError: If there is no such part.
    """
    from twelve_lab.explorer.parts import frame  # reads the live page

    return replace(still, frame=frame(part))
