"""Slides: the content of a deck, the speaker notes, and the cells left out."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.course.exercise_rules import exercises_of, solution_lines

pytest.importorskip("nbconvert")

from tests.course.figures import picture_of
from tools import write_slides
from tools.write_slides import Slide, cut, linked, shortened
from twelve_lab.course import STEPS

ROOT = Path(__file__).resolve().parents[2]
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"
PRINTED = new_output("stream", name="stdout", text="eight")
LONG = "It goes on, " + "and on, " * 30 + "to an end."


def md(source: str, chosen: str = "slide") -> NotebookNode:
    return new_markdown_cell(source, metadata={"slideshow": {"slide_type": chosen}})


def code(chosen: str, *outputs: NotebookNode) -> NotebookNode:
    metadata = {"slideshow": {"slide_type": chosen}}
    return new_code_cell("run()", outputs=list(outputs), metadata=metadata)


def html_output(text: str) -> NotebookNode:
    return new_output("display_data", data={"text/html": text, "text/plain": "-"})


def slides(*cells: NotebookNode) -> list[Slide]:
    """Cut a notebook into slides, and return those after the title slide."""
    return cut(new_notebook(cells=[md("# 04 Small\n\nSaid to the title."), *cells]))[1:]


def shown(slide: Slide) -> list[str]:
    """Describe each element of a slide, with a plus before those that appear step by step."""
    described = []
    for cell in slide.shown:
        kind = cell.source if cell.cell_type == "markdown" else "code"
        kind = re.sub(r"</?div[^>]*>\s*", "", kind).strip() if "words" in kind else kind
        step = cell.metadata.get("slideshow", {}).get("slide_type") == "fragment"
        described.append("+" * step + kind)
    return described


def test_heading_opens_a_slide_and_paragraphs_become_notes():
    first, second = slides(md(f"## Why\n\nWe say.\n\nWe count.\n\n{TABLE}\n\n### How\n\n- one"))
    assert (first.heading, first.notes) == ("## Why", ["We say.", "We count."])
    assert shown(first) == ["We count.", TABLE]
    assert (second.heading, shown(second)) == ("## How", ["- one"])


def test_each_table_has_its_own_slide_and_an_equation_joins_a_list():
    deck = slides(md(f"## Why\n\n{TABLE}\n\n- one\n\n$$ a $$\n\nThen:\n\n```\nx\n```"))
    assert [shown(slide)[0] for slide in deck] == [TABLE, "- one", "Then:"]
    assert shown(deck[1]) == ["- one", "+$$ a $$"]
    assert {slide.heading for slide in deck} == {"## Why"}


def test_predict_is_the_heading_and_its_answer_a_step():
    asked = md("## Why\n\nBefore.\n\n**Predict**: how many?")
    asked.metadata.tags = ["predict"]
    [slide] = slides(asked, code("fragment", PRINTED))
    assert slide.heading == '<p class="kicker">Why</p>\n\n## **Predict**: how many?'
    assert slide.notes == ["Before."]
    [answer] = slide.shown
    assert answer.outputs == [PRINTED]


@pytest.mark.parametrize(("chosen", "hidden"), [("slide", False), ("subslide", True)])
def test_subslide_hides_the_code(chosen, hidden):
    [slide] = slides(md("## Why"), code(chosen, PRINTED))
    assert slide.shown[0].metadata.transient.remove_source is hidden


def test_figure_is_shown_without_code_and_its_folded_text_is_left_out():
    details = html_output("<details>the figure in words</details>")
    [slide] = slides(md("## Why"), code("slide", html_output(picture_of("Two dots.")), details))
    assert len(slide.shown) == 1 and 'alt="Two dots."' in slide.shown[0].source
    assert slide.cells()[-1].source == "Two dots."


def test_live_part_has_the_slide_after_its_figure():
    live = html_output('<div class="live"><iframe class="live" title="Ask"></iframe></div>')
    figure, part = slides(md("## Why"), code("subslide", html_output(picture_of("Two.")), live))
    assert "figure" in figure.shown[0].source
    assert (part.heading, part.shown[0].outputs) == ("## Ask", [live])


def test_fragment_stays_on_the_slide_as_a_step():
    [slide] = slides(md(f"## Why\n\n{TABLE}"), code("fragment", PRINTED))
    assert shown(slide) == [TABLE, "+code"]


def test_hints_and_skipped_cells_are_left_out():
    hint = "<details><summary>Hint</summary>\n\nSecret.\n\n</details>"
    deck = slides(md(f"## Why\n\n{hint}\n\n{TABLE}"), code("skip", PRINTED), md("Gone.", "skip"))
    assert not re.search("Secret|Gone|eight", str(deck))


def test_links_lead_to_decks_and_other_links_become_text():
    text = "See [04](04_attention.ipynb#the-idea) and [a page](../docs/glossary.md), `x[i](j)`."
    assert linked(text) == "See [04](04_attention.html) and a page, `x[i](j)`."


@pytest.mark.parametrize(
    ("paragraph", "kept"),
    [("One. Two.", "One. Two."), (f"One. {LONG}", "One."), (LONG, LONG), ("One. Two:", "Two:")],
)
def test_shortened_keeps_the_first_sentences_or_the_one_that_ends_in_a_colon(paragraph, kept):
    assert shortened(paragraph) == kept


def test_every_deck_has_10_to_25_slides_each_with_something_to_see():
    for place, step in enumerate(STEPS):
        lesson = nbformat.read(ROOT / step.notebook, as_version=4)
        cells = write_slides.deck(lesson, place).cells
        kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in cells]
        assert step.stem == "notes_corrected" or 10 <= kinds.count("slide") <= 25, step.stem
        assert all(slide.shown or slide.notes for slide in cut(lesson)), step.stem


def test_no_deck_holds_a_solution():
    for step in STEPS:
        lesson = nbformat.read(ROOT / step.notebook, as_version=4)
        text = "\n".join(cell.source for slide in cut(lesson) for cell in slide.cells())
        for exercise in exercises_of(lesson):
            assert not [line for line in solution_lines(exercise) if line in text], exercise.id


def test_unknown_slide_type_and_visible_answer_are_errors():
    with pytest.raises(ValueError, match=r"cell \w+: slide type must be one of .+, got 'slides'"):
        slides(md("## Why", "slides"))
    answer = code("slide")
    answer.metadata["nbgrader"] = {"solution": True}
    with pytest.raises(ValueError, match="the slide type of an answer must be skip, got slide"):
        slides(answer)


def test_figure_without_alt_text_is_an_error():
    with pytest.raises(ValueError, match=r"cell \w+: the figure has no alt text"):
        slides(md("## Why"), code("slide", html_output(picture_of(""))))


def test_write_removes_nothing_when_a_file_is_missing_or_the_folder_is_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"reset\.css is missing: `make slides` installs it"):
        write_slides.write(tmp_path / "slides", modules=tmp_path)
    assert not (tmp_path / "slides").exists()
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ValueError, match="must be a folder, got a file"):
        write_slides.write(file)
    with pytest.raises(ValueError, match="holds the project itself"):
        write_slides.write(write_slides.NOTEBOOKS)


def test_cover_has_the_question_once_and_the_drawing_of_the_lesson():
    for place in (4, len(STEPS) - 1):  # the last lesson has no figure
        lesson = nbformat.read(ROOT / STEPS[place].notebook, as_version=4)
        text = [cell.source for cell in write_slides.deck(lesson, place).cells]
        question, figure = STEPS[place].question, write_slides.central_figure(lesson)
        assert text[0].startswith("# ") and text[1].startswith(question)
        assert f"## {question}" not in text and (figure is None) == (place > 4)
        assert [cell for cell in text if 'class="cover"' in cell] == (
            [f'<div class="cover"><img src="{figure.source}" alt=""></div>'] if figure else []
        )
