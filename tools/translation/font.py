"""The subset of Noto Sans CJK SC that translated figures need."""

from pathlib import Path

from tools.translation import catalogue
from twelve_lab.draw.font import CHINESE

# Path in Debian's package fonts-noto-cjk. The file contains several fonts.
INSTALLED = Path("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc")
NAME = "Noto Sans CJK SC"


def characters(language: str) -> str:
    """Collect the characters that figures may show, from messages and strings in code cells."""
    texts = [
        "".join(entry.string or "")
        for name in catalogue.names()
        for entry in catalogue.entries(name, language)
        if name == catalogue.MESSAGES or entry.auto_comments
    ]
    return "".join(sorted({sign for text in texts for sign in text if sign >= "\u2e80"}))


def write() -> Path:
    """Write the subset of the installed font that all languages need.

    Raises:
        OSError: If the font is not installed.
    """
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTCollection

    fonts = TTCollection(INSTALLED).fonts
    font = next(each for each in fonts if each["name"].getDebugName(1) == NAME)
    font.recalcTimestamp = False
    options = Options(hinting=False, layout_features=[], name_IDs=[0, 1, 2, 4, 6, 13, 14])
    subsetter = Subsetter(options)
    languages = (path.name for path in (catalogue.ROOT / "locale").iterdir() if path.is_dir())
    subsetter.populate(text="".join(map(characters, languages)))
    subsetter.subset(font)
    font.save(CHINESE)
    return CHINESE


def missing(language: str) -> set[str]:
    """Return the characters that the stored subset lacks."""
    from fontTools.ttLib import TTFont

    return set(characters(language)) - set(map(chr, TTFont(CHINESE).getBestCmap()))
