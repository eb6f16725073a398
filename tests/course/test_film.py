"""The film of the live page in the README."""

from itertools import pairwise
from pathlib import Path

import torch
from PIL import Image, ImageChops, ImageSequence

from tools import film
from twelve.training import cross_entropy
from twelve_lab import example

ROOT = Path(__file__).parents[2]


def result(model):
    """Compute what the film reads from the page: the written words and the loss."""
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    logits = model(example.src, example.tgt, **masks)
    loss = cross_entropy(logits, example.labels)
    pairs = zip(logits[1].argmax(-1), example.labels[1], strict=True)
    words = [f"{example.vocabulary[word]} {'✓' if word == label else '✗'}" for word, label in pairs]
    return loss, [*words, f"{loss:.4f}"]


def test_the_film_moves_and_its_alt_text_is_computed():
    model = example.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=film.RATE)
    _, start = result(model)
    for _ in range(film.STEPS):
        optimizer.zero_grad()
        result(model)[0].backward()
        optimizer.step()
    _, taught = result(model)
    name, index = film.NUMBER
    with torch.no_grad():
        number = model.get_parameter(name)[tuple(index)]
        number.copy_((number + 0.2 * film.DRAGS).round(decimals=3))  # as the page drags it
    with Image.open(ROOT / film.FILM) as image:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]
        alt = film.told(start, taught, result(model)[1])
        assert image.info["comment"].decode() == alt and image.height <= 640
    assert f"![{alt}](docs/live.gif)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(ImageChops.difference(*pair).getbbox() for pair in pairwise(frames))
