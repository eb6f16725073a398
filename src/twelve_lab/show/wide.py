"""Text layout in which Chinese, Japanese and Korean characters are two columns wide."""

import re
import textwrap
import unicodedata

# A line may break next to a wide character, but not before a closing or after an opening mark.
_CLOSING = "、。，．：；！？）》」』】〕”’…—"
_OPENING = "（《「『【〔“‘"
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uff60"
_PART = re.compile(rf"[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}{_OPENING}{_CLOSING}]+)?[{_CLOSING}]*")


def width(text: str) -> int:
    """Count the terminal columns that a text occupies."""
    if text.isascii():
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in text)


def left(text: str, columns: int) -> str:
    """Pad a text on the right, like `str.ljust`."""
    return text + " " * (columns - width(text))


def right(text: str, columns: int) -> str:
    """Pad a text on the left, like `str.rjust`."""
    return " " * (columns - width(text)) + text


def parts(text: str) -> list[str]:
    """Split a text where a line may break. Each part starts with the space that precedes it."""
    pieces = []
    for space, word in re.findall(r"(\s*)(\S+)", text):
        first, *rest = filter(None, _PART.findall(word)) if width(word) > len(word) else [word]
        pieces += [space + first, *rest]
    return pieces


def wrap(text: str, columns: int, **options: bool) -> list[str]:
    """Wrap a text and return its lines, like `textwrap.wrap`.

    Args:
        text: Text to wrap. A text without wide characters is passed to `textwrap.wrap`.
        columns: Maximum width of a line, unless a single word is wider.
        options: Further arguments of `textwrap.wrap`.
    """
    if width(text) == len(text):
        return textwrap.wrap(text, columns, **options)
    lines = [""]
    for part in parts(" ".join(text.split())):
        if lines[-1] and width(lines[-1] + part) > columns:
            lines.append(part.lstrip())
        else:
            lines[-1] += part
    return lines


def fill(text: str, columns: int, **options: bool) -> str:
    """Wrap a text and return it as one string, like `textwrap.fill`."""
    return "\n".join(wrap(text, columns, **options))


def joined(*sentences: str) -> str:
    """Join non-empty sentences with a space, except after a full-width mark."""
    text = ""
    for sentence in filter(None, sentences):
        space = "" if not text or text[-1] in _CLOSING else " "
        text += space + sentence
    return text


def full_width(text: str) -> str:
    """Convert the marks between the parts of a text to full width, if it has wide characters."""
    if width(text) > len(text):
        for mark, wide in (("; ", "；"), (": ", "："), (". ", "。")):
            text = text.replace(mark, wide)
    return text
