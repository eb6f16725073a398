"""The strip of all steps, one of them lit: where we are."""

from __future__ import annotations

import textwrap

from twelve_lab.course import STEPS, Step, find_step
from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.show.palette import INK, PAPER, QUIET, SHADE, SPOTLIGHT

WIDTH, HEIGHT, SPACE = 0.96, 0.66, 0.03
APART, HEAD = 0.27, 0.3  # what the gaps of a line are together, and the room for the names
# The parts of the course: two lines of nine steps.
PARTS = (
    (
        ("the map", 1),
        ("words become vectors", 3),
        ("words look at words", 3),
        ("deep, yet stable", 2),
    ),
    (("the parts make a model", 4), ("the model at work", 3), ("appendices", 2)),
)


def strip(step: str | int) -> Drawing:
    """Draw where a step stands in the course.

    Args:
        step: Its number, "04" or 4, or "a1".

    Returns:
        All steps in two lines under the names of their parts, this one lit and framed, those
        before it shaded; the summary gives its question and shapes.

    Raises:
        ValueError: There is no such step.
    """
    here = find_step(step)
    canvas = Canvas()
    steps = iter(enumerate(STEPS))
    part_of_here = ""
    for line, parts in enumerate(PARTS):
        x, top = 0.0, line * (HEAD + HEIGHT + SPACE * 4)
        for name, length in parts:
            canvas.text(x, top + HEAD * 0.4, name, size=SMALL_SIZE, align="left")
            end = x + length * (WIDTH + SPACE) - SPACE
            canvas.line([(x, top + HEAD * 0.8), (end, top + HEAD * 0.8)], width=1.2)
            for _, (place, other) in zip(range(length), steps, strict=False):
                _draw_step(canvas, x, top + HEAD, other, place - STEPS.index(here))
                part_of_here = name if other == here else part_of_here
                x += WIDTH + SPACE
            x += APART / (len(parts) - 1)
    name = f"{here.number} {here.title}"
    place = STEPS.index(here)
    around = [f"{word} {other.number} {other.title}" for word, other in (
        ("after", STEPS[place - 1] if place else None),
        ("before", STEPS[place + 1] if place + 1 < len(STEPS) else None),
    ) if other]  # fmt: skip
    alt = f"Where we are: step {name}, lit in the strip of all {len(STEPS)} steps"
    alt += f", in the part “{part_of_here}”, {' and '.join(around)}."
    return canvas.finish(f"Where we are: {name}", alt, f"{here.question}\n{here.contract}")


def _draw_step(canvas: Canvas, x: float, y: float, step: Step, ahead: int) -> None:
    """Draw one step, which is the lit one, before it or ahead of it by some places."""
    lit = ahead == 0
    fill = SPOTLIGHT if lit else PAPER if ahead > 0 else SHADE
    canvas.box(x, y, WIDTH, HEIGHT, fill=fill, edge=INK if lit else QUIET, line=3 if lit else 0.6)
    mark = "▶ " if lit else ""
    canvas.text(x + WIDTH / 2, y + 0.15, mark + step.number, size=12, bold=True)
    # A word wider than its box is broken where it may be hyphenated.
    title = step.title.replace("normalization", "normal-ization")
    title = "\n".join(textwrap.wrap(title, 11))
    canvas.text(x + WIDTH / 2, y + 0.44, title, size=SMALL_SIZE)
