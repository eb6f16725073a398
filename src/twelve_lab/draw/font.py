"""The fonts of the figures: DejaVu Sans, and for Chinese a part of Noto Sans CJK SC.

The part holds the characters of the translated figures: `python -m tools.translate font` writes it.
Its licence, the SIL Open Font License, lies beside it.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

LATIN = "DejaVu Sans"
CHINESE = Path(__file__).with_name("NotoSansCJKsc-part.otf")


def families(text: str) -> list[str]:
    """List the font families of a text, in the order in which a glyph is looked up.

    Args:
        text: The text. Only one with Chinese characters needs the second font.
    """
    return [LATIN] if all(sign < "\u2e80" for sign in text) else [LATIN, _chinese()]


@cache
def _chinese() -> str:
    from matplotlib.font_manager import fontManager

    fontManager.addfont(CHINESE)
    regular = fontManager.ttflist[-1]
    fontManager.ttflist.append(replace(regular, weight=700))  # bold text has the same letters
    return regular.name
