"""The film of the live page in the README."""

from itertools import pairwise
from pathlib import Path

import torch
from PIL import Image, ImageChops, ImageSequence

from tools import film
from twelve.training import cross_entropy
from twelve_lab import example

ROOT = Path(__file__).parents[2]


def result(value):
    """Compute the loss and the last verdict with the first number of "dog" changed."""
    model = example.model()
    with torch.no_grad():
        model.src_embedding.weight[2, 0] = value
        masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
        logits = model(example.src, example.tgt, **masks)
    word = logits[1, 1].argmax()
    verdict = "✓ {}, right" if word == example.labels[1, 1] else "✗ {}, wrong"
    loss = cross_entropy(logits, example.labels)
    return [f"loss {loss:.4f}", verdict.format(example.vocabulary[word])]


def test_the_film_moves_and_its_alt_text_is_computed():
    with Image.open(ROOT / film.FILM) as image:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]
        alt = film.told(result(film.START), result(film.END))
        assert image.info["comment"].decode() == alt
    assert f"![{alt}](docs/live.gif)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(ImageChops.difference(*pair).getbbox() for pair in pairwise(frames))
