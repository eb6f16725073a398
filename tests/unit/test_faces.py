"""Faces of the words: one list of shapes for figures, pages and terminals."""

import re

import pytest

from twelve_lab import example
from twelve_lab.explorer import page
from twelve_lab.show.faces import COLUMNS, FACES, HAPPY, LINES, SIZE, picture, symbols
from twelve_lab.show.palette import COATS, FACE_INK, INK, PAPER, contrast

DARK = "#17181a"  # the dark background of the live page


def test_each_word_has_a_face_and_a_line_for_the_terminal():
    words = {word for word in example.vocabulary if not word.startswith("<")}
    assert words == set(FACES) == set(LINES)
    assert all(line.isascii() and len(line) == COLUMNS for line in LINES.values())


@pytest.mark.parametrize("shapes", [*FACES.values(), HAPPY])
def test_a_face_fills_its_square(shapes):
    across, down = [], []
    for shape in shapes:
        assert set(re.sub(r"-?[\d.]+", "", shape.path)) <= set("MLCZ ")
        points = [float(number) for number in re.findall(r"-?[\d.]+", shape.path)]
        for side in (-shape.line / 2, shape.line / 2):
            across += [x + side for x in points[::2]]
            down += [y + side for y in points[1::2]]
    assert 0 <= min(across) < 2 and SIZE - 2 < max(across) <= SIZE
    assert 0 <= min(down) and max(down) <= SIZE


def test_a_face_contrasts_with_light_and_dark_pages():
    assert contrast(FACE_INK, PAPER) > 7
    for coat in COATS.values():
        assert contrast(coat, DARK) > 4.5 and contrast(coat, FACE_INK) > 4


def test_a_page_defines_each_face_once_and_hides_it_from_screen_readers():
    text = symbols()
    assert re.findall(r'id="face-(\w+)"', text) == list(FACES)
    whole = page({"a run": example.trace(on="cpu")}, example.words)
    assert whole.count(text) == 1 and "<!--FACES-->" not in whole
    assert ' aria-hidden="true" width="40" height="40" ' in picture(HAPPY, 40)


def test_a_figure_draws_a_face_beside_each_word_and_none_beside_an_index():
    pytest.importorskip("matplotlib")
    from matplotlib.patches import PathPatch

    from twelve_lab import draw
    from twelve_lab.draw.faces import FACE, as_path

    def draw_faces(**labels):
        drawing = draw.tensor([[0.5], [1.5]], "src d_model", title="A claim", labels=labels)
        axes = drawing.figure.axes[0]
        shapes = [patch for patch in axes.patches if isinstance(patch, PathPatch)]
        return drawing, {text.get_text(): text for text in axes.texts}, shapes

    assert draw_faces()[2] == []
    drawing, texts, shapes = draw_faces(src=["<pad>", "dog"])
    assert len(shapes) == len(FACES["dog"])
    boxes = [shape.get_path().get_extents() for shape in shapes]
    x, y = texts["dog"].get_position()
    left = x - draw.canvas.Canvas().width_of("dog")
    assert max(box.x1 for box in boxes) <= left < min(box.x0 for box in boxes) + 1.5 * FACE
    assert all(abs((box.y0 + box.y1) / 2 - y) < FACE / 2 for box in boxes)
    assert texts["dog"].get_color() == INK and "dog" in drawing.summary
    square = as_path("M 0 0 L 2 0 C 2 1 2 2 1 2 Z", (1.0, 1.0), 0.5)
    assert square.vertices.tolist()[:2] == [[1.0, 1.0], [2.0, 1.0]]
    assert square.codes.tolist() == [1, 2, 4, 4, 4, 79]
