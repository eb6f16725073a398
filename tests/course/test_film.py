"""The film of the live page in the README."""

from itertools import pairwise
from pathlib import Path

import torch
from PIL import Image, ImageChops, ImageSequence

from tools import film
from twelve.training import cross_entropy
from twelve_lab import example

ROOT = Path(__file__).parents[2]


def moments():
    """Compute the written words and the loss at first, after learning and after the drag."""
    model = example.model()
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}

    def moment():
        logits = model(example.src, example.tgt, **masks)
        loss = cross_entropy(logits, example.labels)
        words = [
            f"{example.vocabulary[word]} {'✓' if word == label else '✗'}"
            for word, label in zip(logits[1].argmax(-1), example.labels[1], strict=True)
        ]
        return loss, [*words, f"{loss:.4f}"]

    descent = torch.optim.SGD(model.parameters(), lr=film.RATE)
    yield moment()[1]
    for _ in range(film.STEPS):
        descent.zero_grad()
        moment()[0].backward()
        descent.step()
    yield moment()[1]
    name, index = film.WEIGHT
    with torch.no_grad():
        model.get_parameter(name)[tuple(index)] += 0.2 * film.DRAGS
    yield moment()[1]


def test_the_film_moves_and_its_alt_text_is_computed():
    with Image.open(ROOT / film.FILM) as image:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]
        alt = image.info["comment"].decode()
    # A drag rounds the number, so the last loss differs in the third decimal.
    (told, last), (computed, expected) = (
        text.rstrip(".").rsplit(" ", 1) for text in (alt, film.told(*moments()))
    )
    assert told == computed and abs(float(last) - float(expected)) < 0.01
    assert f"![{alt}](docs/live.gif)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(ImageChops.difference(*pair).getbbox() for pair in pairwise(frames))
