"""Text in columns where Chinese, Japanese and Korean characters are two columns wide."""

import re
import unicodedata

# A line may break between words and beside a wide character, but not before a closing mark or
# after an opening one.
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uff60"
_CLOSING = "、。，．：；！？）》」』】〕”’…—"
_OPENING = "（《「『【〔“‘"
_BREAK = re.compile(
    rf"(?<=[{_WIDE}{_CLOSING}])(?<![{_OPENING}])(?=\S)(?![{_CLOSING}])"
    rf"|(?<=\S)(?=[{_WIDE}{_OPENING}])(?<![{_OPENING}])(?![{_CLOSING}])"
)


def width(text: str) -> int:
    """Count the columns that a text takes in a terminal."""
    return sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in text)


def left(text: str, columns: int) -> str:
    """Pad a text on its right, as `str.ljust`."""
    return text + " " * (columns - width(text))


def right(text: str, columns: int) -> str:
    """Pad a text on its left, as `str.rjust`."""
    return " " * (columns - width(text)) + text


def words(text: str) -> list[str]:
    """Split a text where a line may break; a part begins with the space before it."""
    parts = re.split(r"(?=\s)", " ".join(text.split()))
    return [piece for part in parts for piece in _BREAK.split(part) if piece]


def wrap(text: str, columns: int) -> list[str]:
    """Break a text into lines, as `textwrap.wrap` without breaking words.

    Args:
        text: The text.
        columns: The longest line, unless a single word is longer.
    """
    lines = [""]
    for word in words(text):
        if lines[-1] and width(lines[-1] + word) > columns:
            lines.append("")
        lines[-1] += word if lines[-1] else word.lstrip()
    return lines


def fill(text: str, columns: int) -> str:
    """Join the lines of `wrap`."""
    return "\n".join(wrap(text, columns))
