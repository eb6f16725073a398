"""A fixed colour and line style for each axis, shared by all figures, tables and pages.

A fill shows a value, a bracket shows an axis, and text is always near-black. The contrast of orange
and sky blue on white is only 2.3:1, so colour is never used for text and never the only cue.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

INK = "#222222"
PAPER = "#ffffff"
QUIET = "#8a8a8a"  # frames and hatching
SHADE = "#f2f2f2"  # masked, or out of focus
DPI = 100  # pixels per inch of a figure
SPOTLIGHT = "#fff3c4"  # highlight, always combined with a thick frame


class AxisStyle(NamedTuple):
    """Style of the bracket of an axis."""

    colour: str
    line: str  # solid, dashed, dotted, dashdot or double
    width: float  # points

    @property
    def css(self) -> str:
        """Format the style as a CSS border. CSS has no dash-dot, so a thin dashed line is used."""
        line, width = ("dashed", 1.0) if self.line == "dashdot" else (self.line, self.width)
        # Black becomes the text colour, because black is invisible on a dark page.
        return f"{width:g}px {line} {self.colour.replace('#000000', 'currentColor')}"


_BATCH = AxisStyle("#CC79A7", "dotted", 3)
_ASKS = AxisStyle("#0072B2", "solid", 3)
_LOOKED_AT = AxisStyle("#56B4E9", "solid", 1.5)
_D_MODEL = AxisStyle("#E69F00", "solid", 3)
_D_HEAD = AxisStyle("#D55E00", "dashed", 2)
_HEAD = AxisStyle("#009E73", "double", 4)
_WIDE = AxisStyle("#000000", "dashdot", 2)
NEUTRAL = AxisStyle("#8a8a8a", "solid", 1)

AXIS_STYLES = {
    "batch": _BATCH,
    "tgt": _ASKS,
    "query": _ASKS,
    "src": _LOOKED_AT,
    "key": _LOOKED_AT,
    "d_model": _D_MODEL,
    "d_k": _D_HEAD,
    "d_v": _D_HEAD,
    "head": _HEAD,
    "kv_head": _HEAD,
    "d_ff": _WIDE,
    "vocab": _WIDE,
}

# Parts of a whole, distinguished by their names; near-black text is readable on each.
PART_FILLS = ("#fddbc7", "#d1e5f0", "#e3e3e3", "#fff3c4", "#d8efd3", "#eadcf2", PAPER)
# Curves, distinguished by their dashes and the name at their end; contrast at least 3:1.
CURVE_STYLES = (
    ("#000000", "solid"), ("#D55E00", "dashed"), ("#0072B2", "dotted"), ("#007a59", "dashdot"),
    ("#9c4a7c", "longdash"), ("#6b6b6b", "dashdotdot"),
)  # fmt: skip

# Cat, dog and fish: the outline is visible on white, the coats on dark and on white.
FACE_INK = "#33302c"
COATS = {"cat": "#f2b544", "dog": "#f3dcb8", "ears": "#c98a4b", "fish": "#7cc3ee"}

# The printed cover and poster have their own colours; threads have one colour for each word.
NAVY, PALE, IVORY = "#12263f", "#f6f1e4", "#faf7f0"
THREADS = ("#CC79A7", "#E69F00", "#56B4E9", "#3fc79a")

# The light middle of the RdBu scale: #222222 stays readable (7:1 or better) on every shade.
_NEGATIVE = ((0.0, (255, 255, 255)), (0.4, (209, 229, 240)), (1.0, (146, 197, 222)))
_POSITIVE = ((0.0, (255, 255, 255)), (0.4, (253, 219, 199)), (1.0, (244, 165, 130)))
# At opacity _TINT, these give the same shades on white; text stays readable on dark, too.
_POSITIVE_TINT, _NEGATIVE_TINT, _TINT = (235, 91, 28), (57, 150, 195), 0.55
# For terminals with 256 colours; small values keep the terminal's own background.
_POSITIVE_STEPS = (PAPER, "#ffd7af", "#ffaf87")
_NEGATIVE_STEPS = (PAPER, "#afd7ff", "#87afd7")
_NIGHT = 18 / 255  # lightness of a dark page
_GREYS = ((0.0, (255, 255, 255)), (1.0, (150, 150, 150)))


def axis_style(name: str) -> AxisStyle:
    """Return the style of an axis.

    Args:
        name: An axis of the course. A product such as "head*d_k" has the style of its last
            factor; any other name is neutral grey.
    """
    return AXIS_STYLES.get(name.split("*")[-1].strip(), NEUTRAL)


def signed_fill(value: float, limit: float) -> str:
    """Shade a signed value: red above zero, blue below, white at zero and for nan and inf.

    Args:
        value: The number.
        limit: Magnitude that gets the strongest shade, for both signs.
    """
    if not math.isfinite(value) or limit <= 0:
        return PAPER
    return _blend(_POSITIVE if value > 0 else _NEGATIVE, abs(value) / limit)


def signed_tint(value: float, limit: float) -> str:
    """Shade a signed value like `signed_fill`, as translucent CSS for light and dark pages.

    Args:
        value: A finite number.
        limit: Magnitude that gets the strongest shade, for both signs.
    """
    strength = min(abs(value) / limit, 1.0) if limit > 0 else 0.0
    red, green, blue = _POSITIVE_TINT if value > 0 else _NEGATIVE_TINT
    # Shifted to avoid ties, as below.
    return f"rgba({red},{green},{blue},{_TINT * strength + 1e-6:.2f})"


def signed_step(value: float, limit: float) -> str:
    """Shade a signed value in three steps, for a terminal.

    Args:
        value: The number.
        limit: Magnitude that gets the strongest shade, for both signs.
    """
    steps = _POSITIVE_STEPS if value > 0 else _NEGATIVE_STEPS
    return steps[min(int(3 * abs(value) / limit + 1e-6), 2)] if limit > 0 else PAPER


def weight_fill(value: float) -> str:
    """Shade an attention weight from white at 0 to grey at 1."""
    return _blend(_GREYS, value) if math.isfinite(value) else PAPER


def by_night(colour: str, *, line: bool = False) -> str:
    """Return the dark-page version of a colour: lightness inverted, hue and chroma kept.

    Args:
        colour: Colour in the form "#rrggbb". The colours of faces do not change.
        line: Whether the colour is for a line, which must stand out from the page, or an area.
    """
    if colour in (FACE_INK, *COATS.values()):
        return colour
    channels = _channels(colour)
    middle = (max(channels) + min(channels)) / 2
    # Steeper than a plain inversion, so areas are dark enough for the text on them.
    turned = max(_NIGHT + (1 - _NIGHT) * (1 - middle) ** 1.3, 0.45 * line)
    mixed = (min(max(turned + c - middle, 0.0), 1.0) for c in channels)
    return "#{:02x}{:02x}{:02x}".format(*(round(255 * c) for c in mixed))


def contrast(colour: str, other: str) -> float:
    """Compute the WCAG contrast ratio of two colours, from 1 to 21."""
    low, high = sorted(map(_luminance, (colour, other)))
    return (high + 0.05) / (low + 0.05)


def _blend(scale: tuple, position: float) -> str:
    position = min(max(position, 0.0), 1.0)
    for (start, low), (end, high) in pairwise(scale):
        if position <= end:
            share = (position - start) / (end - start)
            # Shifted to avoid ties, so the last bits of a value cannot change its shade.
            mixed = [round(a + (b - a) * share + 1e-6) for a, b in zip(low, high, strict=True)]
            return "#{:02x}{:02x}{:02x}".format(*mixed)
    raise AssertionError("unreachable: the scale ends at 1")


def _channels(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def _luminance(colour: str) -> float:
    channels = _channels(colour)
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
