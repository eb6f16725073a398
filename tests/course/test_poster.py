"""The poster: it shows every number of the run, nothing is cut off, all text is readable."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
from matplotlib.text import Text

from twelve_lab import Trace, cli, example
from twelve_lab.draw.poster import CELL, NUMBER, poster, save_poster
from twelve_lab.show.format import format_number

# Seconds, and seldom broken.
pytestmark = pytest.mark.slow
A2 = 420 / 25.4, 594 / 25.4
SMALLEST = 7  # points


@pytest.fixture(scope="module")
def trace():
    return example.trace(on="cpu")


@pytest.fixture(scope="module")
def figure(trace):
    return poster(trace)


@pytest.fixture(scope="module")
def boxes(figure):
    """List each text with its left, lower, right and upper edge in inches."""
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    edges = [text.get_window_extent().extents / figure.dpi for text in texts]
    return texts, np.array(edges)


def numbers(svg: str) -> dict[str, dict[int, str]]:
    """Read the numbers of an SVG: tensor -> place -> what is written there."""
    numbers = {}
    for group in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        for name, place in re.findall(r"([^|]+)\[(\d+)\]", group.get("id", "")):
            numbers.setdefault(name, {})[int(place)] = "".join(group.itertext()).strip()
    return numbers


@pytest.fixture(params=["the example", "other weights"])
def run(request, trace):
    """A run: of other weights, too, so that no number can have been written by hand."""
    if request.param == "the example":
        return trace
    model = example.model()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".norm." not in name:
                weight += 0.1
    with Trace(model) as traced:
        masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
        model(example.src, example.tgt, **masks)
    return traced


def test_poster_shows_every_number_of_every_traced_tensor(tmp_path, run):
    save_poster(run, tmp_path / "poster.svg")
    shown = numbers((tmp_path / "poster.svg").read_text())
    assert set(shown) == set(run)
    for name, entry in run.items():
        values = entry.value.flatten().tolist()
        told = [format_number(value).replace("-", "−").replace("inf", "∞") for value in values]
        assert shown[name] == dict(enumerate(told)), name


def test_poster_has_size_a2(figure):
    assert tuple(figure.get_size_inches()) == pytest.approx(A2[::-1])


def test_poster_has_no_text_below_7_points(boxes):
    texts, _ = boxes
    assert min(text.get_fontsize() for text in texts) >= SMALLEST


def test_poster_cuts_off_no_text(boxes):
    texts, edges = boxes
    width, height = A2[::-1]
    margin = 0.2
    inside = (edges[:, :2] > margin).all(1) & (
        edges[:, 2:] < (width - margin, height - margin)
    ).all(1)
    assert [text.get_text() for text, fits in zip(texts, inside, strict=True) if not fits] == []


def test_poster_texts_do_not_overlap(boxes):
    texts, edges = boxes
    low, high = edges[:, None, :2], edges[:, None, 2:]
    # The height of a line has room above and below its letters.
    slack = (0.0, 0.02)
    shared = np.minimum(high, high.swapaxes(0, 1)) - np.maximum(low, low.swapaxes(0, 1)) - slack
    overlap = np.triu((shared > 0).all(-1), 1)
    assert [(texts[i].get_text(), texts[j].get_text()) for i, j in np.argwhere(overlap)] == []


def test_poster_numbers_fit_their_cells(boxes):
    texts, edges = boxes
    widths = {
        text.get_text(): right - left
        for text, (left, _, right, _) in zip(texts, edges, strict=True)
        if text.get_fontsize() == NUMBER
    }
    assert len(widths) > 400
    assert {text for text, width in widths.items() if width > CELL} == set()


def test_save_poster_refuses_another_suffix(trace, tmp_path):
    with pytest.raises(ValueError, match=r"must end in .svg or .pdf, got .+poster.png"):
        save_poster(trace, tmp_path / "poster.png")


def test_poster_command_writes_reproducible_files_with_fonts(capsys, tmp_path):
    files = [tmp_path / f"poster.{kind}" for kind in ("svg", "pdf")]
    assert cli.main(["poster", *map(str, files)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"drawn: {file}" for file in files]
    first = [file.read_bytes() for file in files]
    assert b"@font-face" in first[0]
    assert b"/FontFile2" in first[1]
    cli.main(["poster", *map(str, files)])
    assert [file.read_bytes() for file in files] == first
