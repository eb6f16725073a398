"""A drawing with an interactive part of the live page below it."""

from dataclasses import replace

from twelve_lab.draw.drawing import Drawing


def live(part: str, still: Drawing) -> Drawing:
    """Show a drawing, and below it a part of the live page.

    Args:
        part: Name of the part, one of `twelve_lab.explorer.parts.PARTS`, such as "query" or "mask".
        still: The drawing.

    Raises:
        ValueError: If there is no such part.
    """
    from twelve_lab.explorer.parts import frame

    return replace(still, frame=frame(part))
