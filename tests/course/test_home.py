"""The cards of the lessons on the book's home page, and their pictures."""

import cmath
import re
from xml.etree import ElementTree

import pytest

from tools import write_home
from twelve_lab import example, real_heads
from twelve_lab.course import STEPS, Step, find_step

LARGEST = 15_000  # bytes of a picture
NEW = Step("99", "doubling", "doubling", "Is 1 < 2?", "(batch, seq) -> (batch, d_k)", "new")


@pytest.fixture(scope="module")
def drawn():
    """The pictures of all steps, read as XML."""
    return {step.stem: ElementTree.fromstring(write_home.picture(step)) for step in STEPS}


def texts(picture):
    return [text.text for text in picture.iter("text")]


def test_the_table_of_02_shows_the_twelve_numbers(drawn):
    words = list(example.vocabulary)
    numbers = [f"{number:.2f}" for row in example.embedding_rows for number in row]
    assert texts(drawn["embedding"]) == numbers + words


def test_the_lines_of_04_are_as_wide_as_the_weights_of_the_run(drawn):
    weights = example.trace(on="cpu")["encoder.layers.0.self_attention.weights"].value[1, 0]
    widths = [float(line.get("style").split(":")[-1]) for line in drawn["attention"].iter("path")]
    assert widths == pytest.approx((1 + 9 * weights).flatten().tolist(), abs=0.006)


def test_the_words_of_00_are_those_with_the_highest_scores(drawn):
    best = example.trace(on="cpu")["logits"].value.flatten(0, 1).argmax(-1).tolist()
    assert texts(drawn["start_here"]) == [example.vocabulary[id] for id in best]
    lit = [rect for rect in drawn["start_here"].iter("rect") if rect.get("class") == "lit"]
    assert [(float(rect.get("x")) - 85) / 18 for rect in lit] == best


def test_the_arrow_of_16_is_turned_by_a_radian_and_keeps_its_length(drawn):
    ends = [
        complex(float(dot.get("cx")) - 160, 48 - float(dot.get("cy")))
        for dot in drawn["rotary_positions"].iter("circle")
    ]
    assert texts(drawn["rotary_positions"]) == ["fish at 0", "fish at 1", "dog at 0"]
    assert ends[0] == pytest.approx(66 * complex(-0.5, 0.55), abs=0.01)
    assert ends[1] / ends[0] == pytest.approx(cmath.exp(1j), abs=0.001)
    assert ends[2] == pytest.approx(66 * complex(-0.75, -0.8), abs=0.01)


def test_the_line_to_france_in_19_is_as_wide_as_the_weight_of_its_head(drawn):
    weights = real_heads.read("capital").weights[0, -1].tolist()
    lines = drawn["pretrained"].iter("path")
    widths = [float(line.get("style").split(":")[-1]) for line in lines]
    assert widths == pytest.approx([1 + 9 * weight for weight in weights], rel=0.01)
    assert max(widths) == widths[3] > 9


def test_the_heads_of_17_lead_to_the_head_that_they_share(drawn):
    lines = drawn["grouped_query_attention"].iter("path")
    ends = [float(re.search(r"L(\S+) 62", line.get("d"))[1]) for line in lines]
    assert ends == [50, 50, 150, 150]
    fills = [rect.get("class") for rect in drawn["grouped_query_attention"].iter("rect")]
    # Of the query of fish in head 0, of which both numbers are below zero, and in head 1.
    assert fills[:4] == ["down", "down", "up", "up"] and len(fills) == 4 * 2 + 2 * 4


def test_the_stack_of_18_reads_what_it_says(drawn):
    logits = example.trace(decoder_only=True, on="cpu")["logits"].value[1, -1]
    said = example.vocabulary[logits.argmax()]
    assert texts(drawn["decoder_only"]) == ["attention", "SwiGLU", said]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.number)
def test_a_picture_is_small_says_what_it_shows_and_stays_inside(drawn, step):
    picture = drawn[step.stem]
    assert len(ElementTree.tostring(picture)) < LARGEST
    assert picture.get("role") == "img" and picture.get("aria-label").endswith(".")
    for rect in picture.iter("rect"):
        x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + width <= write_home.WIDTH
        assert 0 <= y <= y + height <= write_home.HEIGHT
        assert 0 <= float(re.sub(r"[^\d.]", "", rect.get("style", "0"))) <= 100


def test_no_two_pictures_are_alike_and_each_belongs_to_a_step(drawn):
    assert len({ElementTree.tostring(picture) for picture in drawn.values()}) == len(STEPS)
    assert set(write_home.PICTURES) <= {step.stem for step in STEPS}


def test_each_lesson_has_a_card_in_reading_order_under_its_part():
    text = write_home.cards(STEPS)
    assert "\n\n" not in text
    read = ElementTree.fromstring(text)
    parts = {}
    for section in read.iter("section"):
        for card in section.iter("li"):
            link, question = card.find(".//a"), card.findall(".//p")[-1]
            said = "".join(link.itertext()), question.text, link.get("href")
            parts.setdefault(section.find("h3").text.lower(), []).append(said)
    for step in STEPS:
        title = f"{step.number} {step.title[0].upper()}{step.title[1:]}"
        page = step.notebook.replace(".ipynb", ".html")
        assert parts[step.part].pop(0) == (title, step.question, page)
    assert not any(parts.values())


def test_a_step_that_has_no_picture_yet_shows_its_axes():
    text = write_home.cards([find_step("04"), NEW])
    card = ElementTree.fromstring(text).findall(".//li")[-1]
    assert texts(card) == ["batch", "seq", "batch", "d_k"]
    assert "#D55E00" in text and "Is 1 &lt; 2?" in text
    assert card.find("svg").get("aria-label").endswith("(batch, seq) -> (batch, d_k).")
