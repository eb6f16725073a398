"""A drawing, and below it the part of the live page in which its numbers can be changed."""

from __future__ import annotations

from twelve_lab.draw.drawing import Drawing


class Live:
    """A drawing that is followed by a part of the live page.

    The drawing is shown as ever: it is what remains on paper, and wherever frames are taken away,
    as in a notebook that is not trusted yet.

    Attributes:
        still: The drawing.
        html: The frame in which the part runs.
    """

    def __init__(self, still: Drawing, html: str):
        """Keep the two together."""
        self.still = still
        self.html = html

    def __repr__(self) -> str:
        """Give the alt text of the drawing."""
        return repr(self.still)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self.still._ipython_display_()
        display({"text/html": self.html}, raw=True)


def live(part: str, still: Drawing) -> Live:
    """Show a drawing, and below it a part of the live page.

    Args:
        part: Its name, one of `twelve_lab.explorer.parts.PARTS`, such as "query" or "mask".
        still: What is drawn where nothing can be changed.

    Raises:
        ValueError: There is no such part.
    """
    from twelve_lab.explorer.parts import frame

    return Live(still, frame(part))
