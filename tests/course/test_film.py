"""The animation of the live page in the README."""

from itertools import pairwise
from pathlib import Path

from PIL import Image, ImageChops, ImageSequence

from tools import film

ROOT = Path(__file__).parents[2]


def test_the_film_moves_and_the_readme_describes_it():
    """The recorded page supplies the description; test_film_again.py records it again."""
    with Image.open(ROOT / film.FILM) as image:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]
        alt = image.info["comment"].decode()
        assert image.height <= 640
    assert f"![{alt}](docs/live.gif)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(ImageChops.difference(*pair).getbbox() for pair in pairwise(frames))
