"""The film of the live page in the README: it moves, it is small, and its numbers are today's."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageChops, ImageSequence

from tools import film
from twelve.training import cross_entropy
from twelve_lab import example

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def stored():
    with Image.open(ROOT / film.FILM) as image:
        yield image


def said(value):
    """Give the loss and the last verdict with the first number of "dog" changed."""
    model = example.model()
    with torch.no_grad():
        model.src_embedding.weight[2, 0] = value
        masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
        logits = model(example.src, example.tgt, **masks)
    word = logits[1, 1].argmax()
    right = "✓ {}, right" if word == example.labels[1, 1] else "✗ {}, wrong"
    loss = cross_entropy(logits, example.labels)
    return [f"loss {loss:.4f}", right.format(example.vocabulary[word])]


def test_it_says_what_the_model_gives_today(stored):
    told = film.told(said(film.START), said(film.END))
    assert stored.info["comment"].decode() == told
    assert f"![{told}](docs/live.gif)" in README


def test_it_moves_from_picture_to_picture_and_waits_at_both_ends(stored):
    seen = [frame.convert("RGB") for frame in ImageSequence.Iterator(stored)]
    lasts = [frame.info["duration"] for frame in ImageSequence.Iterator(stored)]
    assert len(seen) == round((film.END - film.START) / film.STEP) + 1 == 14
    assert lasts == [film.BEFORE, *[film.DURING] * 12, film.AFTER]
    for before, after in pairwise(seen):
        assert ImageChops.difference(before, after).getbbox()
    # What is dragged, on the left above, and the loss, on the right below.
    left, _, right, below = ImageChops.difference(seen[0], seen[-1]).getbbox()
    assert left < 120 and right > 700 and below > 700


def test_it_is_small_and_sharp_enough(stored):
    assert (ROOT / film.FILM).stat().st_size < 1_000_000
    assert stored.width >= 830  # as wide as GitHub shows it
    assert stored.info["loop"] == 0


def test_the_readme_shows_it_before_anything_else():
    assert re.search(r"!\[[^\]]+\]\(([^)]+)\)", README)[1] == str(film.FILM)
    assert README.index("docs/live.gif") < README.index("```sh") < README.index("| step |")
