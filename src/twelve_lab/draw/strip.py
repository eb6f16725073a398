"""The strip of the parts of the course, a step lit in one of them: where we are."""

from __future__ import annotations

import textwrap
from itertools import groupby

from twelve_lab.course import STEPS, Step, find_step
from twelve_lab.draw.canvas import SMALL_SIZE, Canvas
from twelve_lab.draw.drawing import Drawing
from twelve_lab.show.palette import INK, PAPER, QUIET, SHADE, SPOTLIGHT

WIDTH, HEIGHT, SPACE = 0.95, 0.66, 0.02
APART, HEAD = 0.055, 0.7  # the gap between two parts, and the room for their names
BEHIND = 0.05  # how far the other steps of a part look out behind its first
LINE, LONGEST = 0.19, 11  # of text: its height, and how many letters fit over a box


def strip(step: str | int) -> Drawing:
    """Draw where a step stands in the course.

    What comes later in a part is not drawn, so a step that is added at the end of one changes no
    figure of the others.

    Args:
        step: Its number, "04" or 4, or "a1".

    Returns:
        The parts of the course, each with its first step; the part of this step shows it, lit and
        framed, and the step before it. What was before is shaded. The summary gives the
        question and the shapes of the step.

    Raises:
        ValueError: There is no such step.
    """
    here = find_step(step)
    parts = {name: list(steps) for name, steps in groupby(STEPS, lambda step: step.part)}
    before = parts[here.part][: parts[here.part].index(here)]
    canvas, x = Canvas(), 0.0
    ahead = False
    # A title of three lines makes its figure higher, and no other one.
    height = HEIGHT + LINE * max(0, max(len(_title(one)) for one in (*before, here)) - 2)
    for name, steps in parts.items():
        opened = name == here.part
        shown = [*before[-1:], here] if opened else steps[:1]
        end = x + len(shown) * (WIDTH + SPACE) - SPACE
        lines = textwrap.wrap(name, LONGEST * len(shown))
        for up, words in enumerate(reversed(lines), 1):
            canvas.text(x, HEAD - 0.03 - up * LINE, words, size=SMALL_SIZE, align="left")
        canvas.line([(x, HEAD - 0.07), (end, HEAD - 0.07)], width=3 if opened else 1.2)
        if not opened and len(steps) > 1:
            canvas.box(x + BEHIND, HEAD + BEHIND, WIDTH, height, fill=PAPER if ahead else SHADE)
        for other in shown:
            lit = other == here
            fill = SPOTLIGHT if lit else PAPER if ahead else SHADE
            _draw_step(canvas, x, height, other, fill)
            ahead = ahead or lit
            x += WIDTH + SPACE
        x += APART
    return canvas.finish(
        f"Where we are: {here.number} {here.title}",
        _tell(here, before, list(parts)),
        f"{here.question}\n{here.contract}",
    )


def _tell(here: Step, before: list[Step], parts: list[str]) -> str:
    """Say where the step stands: in its part, and which parts are beside it."""
    after = f"after {before[-1].number} {before[-1].title}" if before else "as its first"
    place = parts.index(here.part)
    around = {"before": parts[:place][-1:], "after": parts[place + 1 : place + 2]}
    beside = [f"the part {word} is “{part}”" for word, names in around.items() for part in names]
    sentence = " and ".join(beside)
    return (
        f"Where we are: step {here.number} {here.title}, in the part “{here.part}”, {after}. "
        f"{sentence[0].upper()}{sentence[1:]}."
    )


def _title(step: Step) -> list[str]:
    """Break the title into lines; a word wider than its box where it may be hyphenated."""
    return textwrap.wrap(step.title.replace("normalization", "normal-ization"), LONGEST)


def _draw_step(canvas: Canvas, x: float, height: float, step: Step, fill: str) -> None:
    """Draw one step; the one that is lit has a frame and a mark."""
    lit = fill == SPOTLIGHT
    frame = {"edge": INK if lit else QUIET, "line": 2.4 if lit else 0.6}
    canvas.box(x, HEAD, WIDTH, height, fill=fill, **frame)
    mark = "▶ " if lit else ""
    canvas.text(x + WIDTH / 2, HEAD + 0.15, mark + step.number, size=12, bold=True)
    middle = HEAD + 0.11 + height / 2
    canvas.text(x + WIDTH / 2, middle, "\n".join(_title(step)), size=SMALL_SIZE)
