"""A finished figure with its alt text and the numbers it shows."""

from __future__ import annotations

import html
import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

DPI = 100
AREA = 150  # pixels: a colour that has fewer belongs to edges
EDGE_STEP = 32  # of 256: no shade of an edge moves by more than half of it


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
        few = Image.fromarray(_with_few_shades(canvas.buffer_rgba()))
        # A palette of 256 colours looks the same and takes a third of the space in a notebook.
        method, dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
        small = io.BytesIO()
        few.quantize(256, method=method, dither=dither).save(
            small, format="png", pnginfo=info, optimize=True
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
        folded = (
            "<details><summary>the figure in words and numbers</summary>"
            f'<pre style="font-family:monospace">{html.escape(self.text())}</pre></details>'
        )
        display({"text/html": folded, "text/plain": self.summary}, raw=True)


def _with_few_shades(picture: memoryview) -> np.ndarray:
    """Round the shades at the edges of letters and lines, which compress badly; keep all areas."""
    import numpy as np

    pixels = np.array(picture)
    codes = pixels.view(np.uint32)
    colours, times = np.unique(codes, return_counts=True)
    is_area = np.isin(codes, colours[times >= AREA])
    pixels = pixels[..., :3]
    rounded = np.minimum((pixels.astype(int) + EDGE_STEP // 2) // EDGE_STEP * EDGE_STEP, 255)
    return np.where(is_area, pixels, rounded).astype(np.uint8)
