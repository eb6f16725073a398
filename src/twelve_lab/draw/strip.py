"""Figure of the parts of the course, with one step marked: "Where we are"."""

from __future__ import annotations

import textwrap
from itertools import groupby

from twelve_lab.course import STEPS, Step, find_step
from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.messages import message
from twelve_lab.show.palette import INK, PAPER, QUIET, SHADE, SPOTLIGHT

WIDTH, HEIGHT, SPACE = 0.95, 0.66, 0.02
APART, HEAD = 0.055, 0.7  # the gap between two parts, and the room for their names
BEHIND = 0.05  # offset of the stack of further steps of a part from its first step
LINE, LONGEST = 0.19, 11  # height of a line of text, and the number of letters over a box


def strip(step: str | int) -> Drawing:
    """Draw the position of a lesson in the course.

    Later steps of a part are not drawn. Therefore a step that is added at the end of one part
    changes no figure of the others.

    Args:
        step: Its number, "04" or 4, or "a1".

    Returns:
        The parts of the course, each with its first step. The part of this step shows the step,
        highlighted and framed, and the step before it. Earlier steps are shaded. The summary is
        the question and the shapes of the step.

    Raises:
        ValueError: If no step has this number.
    """
    here = find_step(step)
    parts = {name: list(steps) for name, steps in groupby(STEPS, lambda step: step.part)}
    before = parts[here.part][: parts[here.part].index(here)]
    canvas, x = Canvas(), 0.0
    is_later = False
    # A title of three lines makes its own figure higher, and no other one.
    longest = max(len(_title_lines(step)) for step in (*before, here))
    height = HEIGHT + LINE * max(0, longest - 2)
    for name, steps in parts.items():
        is_open = name == here.part
        shown = [*before[-1:], here] if is_open else steps[:1]
        end = x + len(shown) * (WIDTH + SPACE) - SPACE
        lines = textwrap.wrap(name, LONGEST * len(shown))
        for line, words in enumerate(reversed(lines), 1):
            canvas.text(x, HEAD - 0.03 - line * LINE, words, size=SMALL_SIZE, align="left")
        canvas.line([(x, HEAD - 0.07), (end, HEAD - 0.07)], width=3 if is_open else 1.2)
        if not is_open and len(steps) > 1:
            fill = PAPER if is_later else SHADE
            canvas.box(x + BEHIND, HEAD + BEHIND, WIDTH, height, fill=fill)
        for other in shown:
            fill = SPOTLIGHT if other == here else PAPER if is_later else SHADE
            _draw_step(canvas, x, height, other, fill)
            is_later = is_later or other == here
            x += WIDTH + SPACE
        x += APART
    title = message("Where we are: {number} {title}", number=here.number, title=here.title)
    alt = message(
        "Where we are: step {number} {title}. Its part “{part}” shows {shown}. "
        "Parts of the course from left to right: {parts}.",
        number=here.number, title=here.title, part=here.part,
        shown=", ".join(f"{step.number} {step.title}" for step in (*before[-1:], here)),
        parts="; ".join(parts),
    )  # fmt: skip
    drawing = canvas.finish(title, f"{here.question}\n{here.contract}")
    drawing.alt = alt
    return drawing


def _title_lines(step: Step) -> list[str]:
    """Break a title into lines; a word wider than its box is hyphenated."""
    return textwrap.wrap(step.title.replace("normalization", "normal-ization"), LONGEST)


def _draw_step(canvas: Canvas, x: float, height: float, step: Step, fill: str) -> None:
    """Draw one step; the current step has a frame and a mark."""
    is_here = fill == SPOTLIGHT
    frame = {"edge": INK if is_here else QUIET, "line": 2.4 if is_here else 0.6}
    canvas.box(x, HEAD, WIDTH, height, fill=fill, **frame)
    mark = "▶ " if is_here else ""
    canvas.text(x + WIDTH / 2, HEAD + 0.15, mark + step.number, size=12, bold=True)
    middle = HEAD + 0.11 + height / 2
    canvas.text(x + WIDTH / 2, middle, "\n".join(_title_lines(step)), size=SMALL_SIZE)
