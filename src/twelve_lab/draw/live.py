"""A drawing with an interactive part of the live page below it."""

from __future__ import annotations

from twelve_lab.draw.drawing import Drawing


class Live:
    """A drawing that is followed by a part of the live page.

    The drawing remains where frames are not shown: on paper and in untrusted notebooks.

    Attributes:
        still: The drawing.
        html: HTML of the frame with the part of the live page.
    """

    def __init__(self, still: Drawing, html: str):
        """Combine a drawing with the frame below it."""
        self.still = still
        self.html = html

    def __repr__(self) -> str:
        """Return the alt text of the drawing."""
        return repr(self.still)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self.still._ipython_display_()
        display({"text/html": self.html}, raw=True)


def live(part: str, still: Drawing) -> Live:
    """Show a drawing, and below it a part of the live page.

    Args:
        part: Name of the part, one of `twelve_lab.explorer.parts.PARTS`, such as "query" or "mask".
        still: The drawing.

    Raises:
        ValueError: If there is no such part.
    """
    from twelve_lab.explorer.parts import frame

    return Live(still, frame(part))
