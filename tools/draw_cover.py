"""Draws the cover of the printed course: its twelve numbers as threads."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from twelve_lab import example
from twelve_lab.draw.threads import PLACES, curves, threads
from twelve_lab.show.palette import NAVY, THREADS

WIDTH, HEIGHT = 210, 297  # mm
LEFT, RIGHT, TOP, BOTTOM = 26, 184, 124, 258
UNIT = 6.4  # mm that a thread moves for a value of 1
ENDS = 8  # mm that a thread runs on above the first station and below the last


def cover(trace: Mapping[str, Any]) -> str:
    """Draw the picture on the cover as SVG, a page of A4.

    Args:
        trace: A run of the running example.
    """
    drawn = []
    for number, (place, values) in enumerate(zip(PLACES, threads(trace), strict=True)):
        base = LEFT + (RIGHT - LEFT) * place
        step = (BOTTOM - TOP) / (len(values) - 1)
        points = [(base + UNIT * value, TOP + step * row) for row, value in enumerate(values)]
        drawn.append(_thread(points, THREADS[number // 3]))
    words = [word for sentence in example.words["src"] for word in sentence]
    named = [
        f'<text x="{LEFT + (RIGHT - LEFT) * PLACES[3 * at + 1]:.2f}" y="{TOP - 12}" '
        f'fill="{colour}">{escape(word)}</text>'
        for at, (word, colour) in enumerate(zip(words, THREADS, strict=True))
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Twelve threads, three for each of four words, run down the page and weave">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{NAVY}"/>'
        f'<g font-family="sans-serif" font-size="5.5" text-anchor="middle">{"".join(named)}</g>'
        f"{''.join(drawn)}</svg>"
    )


def _thread(points: Sequence[tuple[float, float]], colour: str) -> str:
    """Draw one number from station to station, upright at each."""
    (x, y), drawn = points[0], []
    for _, *curve in curves(points):
        drawn.append("C" + " ".join(f"{x:.2f} {y:.2f}" for x, y in curve))
    path = f"M{x:.2f} {y - ENDS:.2f}V{y:.2f}{''.join(drawn)}v{ENDS}"
    dots = "".join(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="1.15"/>' for x, y in points)
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.15" '
        f'stroke-linecap="round"/>'
        f'<g fill="{NAVY}" stroke="{colour}" stroke-width="0.65">{dots}</g>'
    )
