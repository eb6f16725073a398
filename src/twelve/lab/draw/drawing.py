"""A finished figure with its alt text and the numbers it shows."""

from __future__ import annotations

import html
import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 100


class Drawing:
    """A figure that a notebook shows once, followed by its alt text and its numbers, folded.

    The picture cannot be compared by machine and is silent to a screen reader; the text below it
    is neither, and it is folded away for whoever sees the picture.

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

    def png(self, *, described: bool = False) -> bytes:
        """Render the figure; the bytes name no program version and no date.

        Args:
            described: Whether the file carries the figure's text as its description.
        """
        from PIL import Image
        from PIL.PngImagePlugin import PngInfo

        info = PngInfo()
        if described:
            info.add_itxt("Description", self.text())
        canvas = self.figure.canvas
        canvas.draw()
        full = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
        # A palette of 256 colours looks the same and takes a third of the space in a notebook.
        small = io.BytesIO()
        full.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
            small, format="png", pnginfo=info
        )
        return small.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the figure to a PNG file, which carries its text as description."""
        Path(path).write_bytes(self.png(described=True))

    def text(self) -> str:
        """Write the alt text, wrapped, and the numbers below it."""
        return textwrap.fill(f"Figure: {self.alt}", 100) + f"\n{self.summary}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(
            {"image/png": self.png(), "text/plain": self.alt},
            metadata={"image/png": {"alt": self.alt}},
            raw=True,
        )
        text = self.text()
        folded = (
            "<details><summary>the figure in words and numbers</summary>"
            f'<pre style="font-family:monospace">{html.escape(text)}</pre></details>'
        )
        display({"text/html": folded, "text/plain": text}, raw=True)
