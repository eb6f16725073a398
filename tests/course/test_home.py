"""The cards of the lessons on the book's home page, and their pictures."""

import re
from xml.etree import ElementTree

import pytest

from tools import write_home
from twelve_lab import example
from twelve_lab.course import STEPS, Step, find_step

MAX_BYTES = 15_000
NEW = Step("99", "doubling", "doubling", "Is 1 < 2?", "(batch, seq) -> (batch, d_k)", "new")


def draw(stem):
    step = next(step for step in STEPS if step.stem == stem)
    return ElementTree.fromstring(write_home.picture(step))


def texts(picture):
    return [text.text for text in picture.iter("text")]


def test_the_picture_of_embedding_shows_the_twelve_numbers():
    numbers = [f"{number:.2f}" for row in example.embedding_rows for number in row]
    assert texts(draw("embedding")) == numbers + list(example.vocabulary)


def test_the_lines_of_attention_are_as_wide_as_the_weights():
    weights = example.trace(on="cpu")["encoder.layers.0.self_attention.weights"].value[1, 0]
    widths = [float(line.get("style").split(":")[-1]) for line in draw("attention").iter("path")]
    assert widths == pytest.approx((1 + 9 * weights).flatten().tolist(), abs=0.006)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.number)
def test_a_picture_is_small_has_alt_text_and_stays_inside(step):
    picture = draw(step.stem)
    assert len(ElementTree.tostring(picture)) < MAX_BYTES
    assert picture.get("role") == "img" and picture.get("aria-label").endswith(".")
    for rect in picture.iter("rect"):
        x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + width <= write_home.WIDTH
        assert 0 <= y <= y + height <= write_home.HEIGHT


def test_each_lesson_has_a_card_in_reading_order():
    cards = list(ElementTree.fromstring(write_home.cards(STEPS)).iter("li"))
    links = [card.find(".//a").get("href") for card in cards]
    assert links == [step.notebook.replace(".ipynb", ".html") for step in STEPS]
    assert [card.findall(".//p")[-1].text for card in cards] == [step.question for step in STEPS]


def test_a_step_without_a_picture_shows_its_axes():
    text = write_home.cards([find_step("04"), NEW])
    card = ElementTree.fromstring(text).findall(".//li")[-1]
    assert texts(card) == ["batch", "seq", "batch", "d_k"]
    assert re.search("Is 1 &lt; 2", text)
