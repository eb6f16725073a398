"""Terminal capabilities: width, colours and block characters."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple, TextIO

from twelve_lab.show import wide
from twelve_lab.show.palette import AXIS_STYLES, INK, PAPER, QUIET, signed_step

_EIGHTHS_ACROSS = " ▏▎▍▌▋▊▉█"  # a column filled from the left by 0 to 8 eighths
_EIGHTHS_UP = " ▁▂▃▄▅▆▇█"  # filled from below
_CHANNELS = (0, 95, 135, 175, 215, 255)  # levels of the 256-colour palette, 16 to 231
_ESCAPE = re.compile(r"\033\[[\d;]*m")
_SIGNED = re.compile(r"[ -]?\d+\.\d+")
# Never split: an axis and its size, an id and its word, or text without a space.
_PIECE = re.compile(r"\s*(?:\(?[\w*]+ \d+[,)]+|\d+ \S+|\S+)")
_DOTS = re.compile(r"(?<=\.)(?=[a-z]|\d+\.)")  # matches in a name, never in a number


class Terminal(NamedTuple):
    """The properties of an output stream.

    Attributes:
        width: Number of columns.
        colour: Whether the stream shows colours and bold text.
        blocks: Whether the stream shows block characters.
    """

    width: int = 80
    colour: bool = False
    blocks: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> Terminal:
        """Detect the properties of a stream: 80 columns without colour unless it is a terminal.

        Args:
            stream: Usually `sys.stdout`.
        """
        asked = not os.environ.get("NO_COLOR")  # https://no-color.org
        # Windows Terminal sets WT_SESSION instead of TERM; the older console has no colours.
        kind = os.environ.get("TERM") or ("windows" if "WT_SESSION" in os.environ else "dumb")
        is_terminal = hasattr(stream, "isatty") and stream.isatty()
        return cls(
            shutil.get_terminal_size((80, 24)).columns,
            is_terminal and asked and kind != "dumb",
            _can_write(stream, _EIGHTHS_ACROSS + _EIGHTHS_UP),
        )

    def bold(self, text: str) -> str:
        """Make text bold if the terminal shows colours."""
        return f"\033[1m{text}\033[0m" if self.colour else text

    def shade(self, text: str, limit: float) -> str:
        """Shade the background of every number by its sign and magnitude.

        Args:
            text: One line of numbers with decimals.
            limit: Magnitude that gets the deepest shade.
        """
        return _SIGNED.sub(lambda number: self._shaded(number[0], limit), text)

    def _shaded(self, number: str, limit: float) -> str:
        fill = signed_step(float(number), limit)
        if not self.colour or fill == PAPER:
            return number
        return f"\033[38;5;{_colour(INK)};48;5;{_colour(fill)}m{number}\033[0m"

    def bar(self, share: float, length: int, *, lit: bool = False) -> str:
        """Draw a fraction as a horizontal bar.

        Args:
            share: Fraction from 0 to 1.
            length: Number of columns in a full bar.
            lit: Whether to draw the bar in green instead of grey.
        """
        if not self.blocks:
            return "#" * round(share * length)
        full, eighths = divmod(round(share * length * 8), 8)
        text = ("█" * full + _EIGHTHS_ACROSS[eighths]).rstrip()
        colour = AXIS_STYLES["head"].colour if lit else QUIET
        return f"\033[38;5;{_colour(colour)}m{text}\033[0m" if self.colour else text

    def level(self, share: float) -> str:
        """Draw a fraction as a single block character, or a space without block characters."""
        return _EIGHTHS_UP[round(share * 8)] if self.blocks else " "


PLAIN = Terminal()


def visible(text: str) -> int:
    """Count the columns of a line, ignoring colour codes."""
    return wide.width(_ESCAPE.sub("", text))


def fold(line: str, width: int) -> list[str]:
    """Break a line between words, axes, numbers and the parts of a long name.

    Args:
        line: Text without colours.
        width: Number of columns. A piece that cannot be split may be wider.

    Returns:
        The lines; all but the first are indented by two additional columns.
    """
    hanging = " " * (len(line) - len(line.lstrip()) + 2)
    lines = [""]
    for piece in _pieces(line, width - len(hanging)):
        if lines[-1].strip() and wide.width(lines[-1] + piece) > width:
            lines.append(hanging + piece.lstrip())
        else:
            lines[-1] += piece
    return lines


def side_by_side(panels: Iterable[Sequence[str]], width: int, gap: int) -> list[str]:
    """Place blocks of lines side by side, and wrap those that do not fit.

    Args:
        panels: Blocks of lines, which may contain colour codes.
        width: Number of columns.
        gap: Number of columns between two blocks.
    """
    rows: list[list[Sequence[str]]] = [[]]
    for panel in panels:
        if rows[-1] and sum(_width(other) + gap for other in rows[-1]) + _width(panel) > width:
            rows.append([])
        rows[-1].append(panel)
    lines = []
    for row in rows:
        for parts in zip_longest(*row, fillvalue=""):
            filled = (
                part + " " * (_width(panel) + gap - visible(part))
                for part, panel in zip(parts, row, strict=True)
            )
            lines.append("".join(filled).rstrip())
    return lines


def _pieces(line: str, room: int) -> Iterator[str]:
    words = _PIECE.findall(line)
    split = (wide.parts(word) if wide.width(word) > len(word) else [word] for word in words)
    for piece in chain.from_iterable(split):
        yield from _DOTS.split(piece) if len(piece.strip()) > room else [piece]


def _width(panel: Sequence[str]) -> int:
    return max(map(visible, panel))


def _can_write(stream: TextIO, text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _colour(colour: str) -> int:
    """Return the nearest colour in the 256-colour palette."""
    levels = [
        min(range(6), key=lambda level: abs(_CHANNELS[level] - channel))
        for channel in bytes.fromhex(colour[1:])
    ]
    return 16 + 36 * levels[0] + 6 * levels[1] + levels[2]
