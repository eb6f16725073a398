"""Faces of the words: figures, pages and terminals share one list of shapes."""

import re

from twelve_lab import example
from twelve_lab.explorer import page
from twelve_lab.show.faces import COLUMNS, FACES, HAPPY, LINES, picture, symbols
from twelve_lab.show.palette import COATS, FACE_INK, PAPER, contrast

DARK = "#17181a"  # the dark background of the live page


def test_each_word_has_a_face_and_a_line_for_the_terminal():
    words = {word for word in example.vocabulary if not word.startswith("<")}
    assert words == set(FACES) == set(LINES)
    assert all(line.isascii() and len(line) == COLUMNS for line in LINES.values())


def test_a_face_contrasts_with_light_and_dark_pages():
    assert contrast(FACE_INK, PAPER) > 7
    for coat in COATS.values():
        assert contrast(coat, DARK) > 4.5 and contrast(coat, FACE_INK) > 4


def test_a_page_defines_each_face_once_and_hides_it_from_screen_readers():
    text = symbols()
    assert re.findall(r'id="face-(\w+)"', text) == [*FACES, "happy"]
    whole = page({"a run": example.trace(on="cpu")}, example.words)
    assert whole.count(text) == 1 and "<!--FACES-->" not in whole
    assert ' aria-hidden="true" width="40" height="40" ' in picture(HAPPY, 40)
