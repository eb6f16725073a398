"""Fonts of the figures: DejaVu Sans, and a subset of Noto Sans CJK SC for Chinese.

The subset covers the characters of the translated figures: `python -m tools.translate font`
creates it. Its licence, the SIL Open Font License, is in the same folder.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

LATIN = "DejaVu Sans"
CHINESE = Path(__file__).with_name("NotoSansCJKsc-part.otf")


def families(text: str) -> list[str]:
    """Return the font families for a text, in the order in which glyphs are looked up.

    Args:
        text: The text. Only Chinese characters need the second font.
    """
    return [LATIN] if all(sign < "\u2e80" for sign in text) else [LATIN, _chinese()]


@cache
def _chinese() -> str:
    from matplotlib.font_manager import fontManager

    fontManager.addfont(CHINESE)
    regular = fontManager.ttflist[-1]
    fontManager.ttflist.append(replace(regular, weight=700))  # bold text uses the same glyphs
    return regular.name
