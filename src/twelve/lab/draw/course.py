"""The strip of all steps, one of them lit: where we are."""

from __future__ import annotations

import textwrap

from twelve.lab.draw.canvas import Canvas
from twelve.lab.draw.drawing import Drawing
from twelve.lab.palette import INK, PAPER, QUIET, SPOTLIGHT
from twelve.lab.steps import STEPS, find_step

PER_LINE = 9
WIDTH, HEIGHT, SPACE = 0.94, 0.58, 0.04


def strip(step: str | int) -> Drawing:
    """Draw where a step stands in the course.

    Args:
        step: Its number, "04" or 4, or "a1".

    Returns:
        All steps in two lines, this one lit and framed; the summary gives its question and shapes.

    Raises:
        ValueError: There is no such step.
    """
    here = find_step(step)
    canvas = Canvas()
    for place, other in enumerate(STEPS):
        line, column = divmod(place, PER_LINE)
        x, y = column * (WIDTH + SPACE), line * (HEIGHT + SPACE)
        lit = other == here
        canvas.box(
            x, y, WIDTH, HEIGHT,
            fill=SPOTLIGHT if lit else PAPER, edge=INK if lit else QUIET, line=3 if lit else 0.6,
        )  # fmt: skip
        mark = "▶ " if lit else ""
        canvas.text(x + WIDTH / 2, y + 0.13, mark + other.number, size=10, bold=lit)
        # A word wider than its box is broken where it may be hyphenated.
        title = other.title.replace("normalization", "normal-ization")
        title = "\n".join(textwrap.wrap(title, 11))
        canvas.text(x + WIDTH / 2, y + 0.37, title, size=9, bold=lit)
    name = f"{here.number} {here.title}"
    alt = f"Where we are: step {name}, lit in the strip of all {len(STEPS)} steps."
    return canvas.finish(f"Where we are: {name}", alt, f"{here.question}\n{here.contract}")
