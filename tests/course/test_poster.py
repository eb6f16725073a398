"""The poster shows every number of the trace, cuts nothing off, and has legible text."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from matplotlib.colors import to_hex

from tests.course.figure_rules import place_problems
from twelve_lab import cli, example
from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.poster import CELL, NUMBER, STATIONS, THREADS, poster, save_poster
from twelve_lab.show.format import format_number
from twelve_lab.show.palette import COATS

# These tests take seconds, and rarely fail.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trace():
    return example.trace(on="cpu")


@pytest.fixture(scope="module")
def figure(trace):
    return poster(trace)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Save the poster once with the command line."""
    folder = tmp_path_factory.mktemp("poster")
    files = [folder / f"poster.{kind}" for kind in ("svg", "pdf")]
    assert cli.main(["poster", *map(str, files)]) == 0
    return files


def numbers(svg: str) -> dict[str, dict[int, str]]:
    """Read the numbers of an SVG: tensor name -> index of the element -> text."""
    numbers = {}
    for group in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        for name, place in re.findall(r"([^|]+)\[(\d+)\]", group.get("id", "")):
            numbers.setdefault(name, {})[int(place)] = "".join(group.itertext()).strip()
    return numbers


def test_poster_shows_every_number_of_every_traced_tensor(files, trace):
    shown = numbers(files[0].read_text())
    assert set(shown) == set(trace)
    for name, entry in trace.items():
        values = entry.value.flatten().tolist()
        expected = [format_number(value).replace("-", "−").replace("inf", "∞") for value in values]
        assert shown[name] == dict(enumerate(expected)), name


def test_poster_is_a2_and_readable(figure):
    assert tuple(figure.get_size_inches()) == pytest.approx((594 / 25.4, 420 / 25.4))
    assert list(place_problems(SimpleNamespace(figure=figure))) == []
    sizes = {text.get_text(): text.get_fontsize() for text in figure.axes[0].texts}
    assert min(sizes.values()) >= 7
    numbers = [text for text, size in sizes.items() if size == NUMBER]
    assert len(numbers) > 400
    assert max(Canvas().width_of(number, NUMBER) for number in numbers) <= CELL


def test_poster_has_faces_verdicts_the_loss_and_a_key_of_the_threads(figure):
    axes = figure.axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("✓") == 2 and texts.count("not graded") == 1
    assert {"✗ should say fish", THREADS, *STATIONS.values()} <= set(texts)
    assert "loss 1.0482: mean of −ln(probability of the right word)" in texts
    heads = [to_hex(patch.get_facecolor()) for patch in axes.patches].count(COATS["cat"])
    assert heads > 20


def test_save_poster_rejects_other_suffixes(trace, tmp_path):
    with pytest.raises(ValueError, match=r"must end in .svg or .pdf, got .+poster.png"):
        save_poster(trace, tmp_path / "poster.png")


def test_poster_command_writes_reproducible_files_with_fonts(files, capsys):
    first = [file.read_bytes() for file in files]
    assert b"@font-face" in first[0]
    assert b"/FontFile2" in first[1]
    cli.main(["poster", *map(str, files)])
    assert capsys.readouterr().out.splitlines() == [f"drawn: {file}" for file in files]
    assert [file.read_bytes() for file in files] == first
