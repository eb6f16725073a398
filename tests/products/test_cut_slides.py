"""The slides: what is shown, what is said, and what stays hidden."""

import html
import re
import struct
from base64 import b64encode
from itertools import groupby
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.course.exercise_rules import exercises_of, solution_lines

pytest.importorskip("nbconvert")

from tools import write_slides
from tools.cut_slides import (
    BESIDE,
    EQUATION,
    HIGH,
    POINT,
    SYMBOLS,
    TYPES,
    WORDS_WIDE,
    Slide,
    blocks,
    cut,
    markdown,
)
from twelve_lab.course import STEPS

ROOT = Path(__file__).resolve().parents[2]
PATHS = [ROOT / step.notebook for step in STEPS]
# Tables to look things up in: few slides, and nothing is folded.
NOTES = "notes_corrected"
WITHOUT_ANSWERS = ("start_here", "same_as_pytorch", "containers", "saving_and_devices", NOTES)
LOOK = "| a | b |\n|---|---|\n| 1 | 2 |"


def text_of(page: str) -> str:
    """Take the tags off, as a reader sees the page."""
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def words_of(text: str) -> str:
    return " ".join(re.findall(r"\w+", text))


def picture(width: int, height: int, alt: str = "Two dots are left.") -> NotebookNode:
    """Build the output of a drawing; of the file only its head is real."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    data = {"image/png": b64encode(head).decode(), "text/plain": alt}
    metadata = {"image/png": {"alt": alt}} if alt else {}
    return new_output("display_data", data=data, metadata=metadata)


def printed(text: str) -> NotebookNode:
    return new_output("stream", name="stdout", text=text)


def md(source: str, chosen: str = "slide") -> NotebookNode:
    return new_markdown_cell(source, metadata={"slideshow": {"slide_type": chosen}})


def code(chosen: str, *outputs: NotebookNode, source: str = "run()") -> NotebookNode:
    metadata = {"slideshow": {"slide_type": chosen}}
    return new_code_cell(source, outputs=list(outputs), metadata=metadata)


def slides(*cells: NotebookNode) -> list[Slide]:
    """Cut a notebook with a title; gives the slides after that of the title."""
    title, *others = cut(new_notebook(cells=[md("# 04 Small\n\nSaid to the title."), *cells]))
    assert text_of(title.notes[0]) == "Said to the title."
    return others


def kinds(slide: Slide) -> list[str]:
    """Name what is on a slide; what comes as a step has a plus in front."""
    return [("+" if piece.step else "") + piece.kind for piece in slide.shown]


def said(slide: Slide) -> list[str]:
    return [text_of(note).strip() for note in slide.notes]


# By hand: Markdown


def test_a_heading_opens_a_slide_and_a_paragraph_is_spoken():
    first, second = slides(
        md(f"## Why\n\nWe say this.\n\n{LOOK}\n\nAnd this.\n\n### How\n\n{LOOK}\n\nOr this.")
    )
    assert (first.heading, first.kicker, kinds(first)[0]) == ("Why", "", "table")
    assert said(first) == ["We say this.", "And this."]
    assert (second.heading, second.kicker, said(second)) == ("How", "Why", ["Or this."])


def test_the_number_of_an_exercise_is_no_part_of_its_heading():
    [slide] = slides(md(f"## Exercises\n\n### 1. Predict a shape\n\n{LOOK}"))
    assert slide.heading == "Predict a shape"


def test_a_question_is_the_heading_and_its_answer_comes_as_a_step():
    [slide] = slides(md("## Why\n\n**Predict**: how many?"), code("subslide", printed("eight")))
    assert slide.heading == "<strong>Predict</strong>: how many?"
    assert (slide.kicker, slide.question, kinds(slide)) == ("Why", True, ["+printed"])
    [slide] = slides(md("## Why\n\n**Predict**: how many?\n\n- one\n- two"))
    assert kinds(slide) == ["+list"]


def test_each_thing_to_look_at_has_a_slide_of_its_own():
    found = slides(
        md(f"## Why\n\n$$ a $$\n\n$$ b $$\n\n{LOOK}\n\n- one\n- two\n\n```\nx --> y\n```")
    )
    assert [slide.heading for slide in found] == ["Why"] * 4
    assert [kinds(slide) for slide in found] == [["math", "math"], ["table"], ["list"], ["fence"]]


def test_a_paragraph_that_ends_in_a_colon_is_spoken_where_the_next_thing_is_shown():
    first, second = slides(md(f"## Why\n\n{LOOK}\n\nOf the first.\n\nOf the second:\n\n{LOOK}"))
    assert (said(first), said(second)) == (["Of the first."], ["Of the second:"])


def test_a_point_is_spoken_in_full_and_shown_as_a_step_in_its_first_sentences():
    first, long = "**Notice** the root of 0.5.", "It goes on, " + "and on, " * 30 + "to an end."
    [slide] = slides(md("## Why"), code("subslide", printed("1")), md(f"{first} {long}"))
    assert kinds(slide) == ["printed", "+point"]
    assert text_of(slide.shown[1].html) == "Notice the root of 0.5."
    assert len(said(slide)[0]) > POINT
    [slide] = slides(md("## Why"), code("subslide", printed("1")), md(f"{first} It is short."))
    assert text_of(slide.shown[1].html) == "Notice the root of 0.5. It is short."


@pytest.mark.parametrize("closed", ["`a. B`", "$a. B$", "(see 04. There)"])
def test_a_full_stop_in_code_an_equation_or_parentheses_ends_no_sentence(closed):
    point = f"**Notice** {closed} here, " + "and on, " * 30 + "to an end."
    [slide] = slides(md("## Why"), code("subslide", printed("1")), md(f"{point} And more."))
    assert slide.shown[1].html == markdown(point)


def test_of_a_sentence_that_goes_on_in_an_equation_nothing_is_shown():
    point = "**Notice** the curve. With a sum the top is"
    [first, _] = slides(md("## Why"), code("subslide", printed("1")), md(f"{point}\n\n$$ a $$"))
    assert text_of(first.shown[1].html) == "Notice the curve."
    assert said(first) == ["Notice the curve. With a sum the top is"]


def test_a_point_that_opens_a_calculation_opens_its_slide():
    _, second = slides(md(f"## Why\n\n{LOOK}\n\n**A score.** It is:\n\n$$ a $$"))
    assert kinds(second) == ["point", "math"]


def test_what_follows_italics_is_spoken():
    [slide] = slides(md(f"## Why\n\n{LOOK}\n\n*The misconception.* Nothing moves.\n\n{LOOK}"))
    assert kinds(slide) == ["table"]
    assert said(slide)[0] == "The misconception. Nothing moves."
    assert len(said(slide)) == 2


def test_comment_and_question_go_with_the_code_that_is_left_out():
    skipped = code("skip", printed("1"))
    found = slides(
        md(f"## Why\n\n{LOOK}\n\n**Predict**: which?"),
        skipped,
        md(f"**Notice** the 1.\n\n## How\n\n{LOOK}"),
    )
    assert [slide.heading for slide in found] == ["Why", "How"]
    assert "Notice" not in "".join(map(str, found))


def test_nothing_is_said_to_a_heading_under_which_nothing_is_shown():
    [slide] = slides(md(f"## Why\n\nLost.\n\n## How\n\n{LOOK}\n\nKept."))
    assert (slide.heading, said(slide)) == ("How", ["Kept."])


def test_what_is_said_to_a_section_is_said_to_its_first_part():
    [slide] = slides(md(f"## Why\n\nKept.\n\n### How\n\n{LOOK}"))
    assert (slide.heading, said(slide)) == ("How", ["Kept."])


def test_a_slide_to_which_nothing_is_said_keeps_the_last_words_once():
    first, second, third = slides(
        md(f"## Why\n\nOne.\n\nTwo.\n\n{LOOK}"), code("slide"), code("slide")
    )
    assert (said(first), said(second), said(third)) == (["One.", "Two."], ["Two."], ["Why"])


def test_a_list_to_which_nothing_is_said_is_read():
    _, second = slides(md(f"## Why\n\nOne.\n\n{LOOK}\n\n- a\n- b"))
    assert [note.split() for note in said(second)] == [["a", "b"]]


@pytest.mark.parametrize("look", ["$$ a $$", code("subslide", printed("1")), code("slide")])
def test_what_says_little_alone_has_the_words_that_led_to_it(look):
    text = "## Why\n\nGone.\n\nWe count."
    cells = [md(f"{text}\n\n{look}")] if isinstance(look, str) else [md(text), look]
    [slide] = slides(*cells)
    assert (len(slide.shown), slide.shown[0].kind) == (2, "text")
    assert text_of(slide.shown[0].html) == "We count."
    assert said(slide) == ["Gone.", "We count."]


def test_words_between_two_equations_stand_on_one_of_their_slides():
    first, second = slides(md("## Why\n\nOne.\n\n$$ a $$\n\nThe other.\n\n$$ b $$"))
    assert (kinds(first), text_of(first.shown[0].html)) == (["text", "math"], "One.")
    assert (kinds(second), text_of(second.shown[0].html)) == (["text", "math"], "The other.")
    first, second = slides(md("## Why\n\n$$ a $$\n\nOf the one.\n\n$$ b $$\n\nOf both."))
    assert (kinds(first), text_of(first.shown[1].html)) == (["math", "text"], "Of the one.")
    assert (kinds(second), text_of(second.shown[1].html)) == (["math", "text"], "Of both.")


@pytest.mark.parametrize("end", ["And what now?", "These:"])
def test_words_that_comment_and_lead_on_are_shared_by_two_slides(end):
    first, second = slides(md(f"## Why\n\n$$ a $$\n\nOf the one. {end}\n\n$$ b $$"))
    assert (kinds(first), text_of(first.shown[1].html)) == (["math", "text"], "Of the one.")
    assert (kinds(second), text_of(second.shown[0].html)) == (["text", "math"], end)


def test_a_few_symbols_stand_with_their_one_equation():
    rows = "".join(f"\n| {row} | 2 |" for row in range(SYMBOLS))
    table = f"| symbol | size |\n|---|---|{rows}"
    [slide] = slides(md(f"## Why\n\n$$ a $$\n\n{table}"))
    assert kinds(slide) == ["math", "table"]
    assert len(slides(md(f"## Why\n\n$$ a $$\n\n{table}\n| 9 | 9 |"))) == 2
    assert len(slides(md(f"## Why\n\n$$ a $$\n\n$$ b $$\n\n{table}"))) == 2
    assert len(slides(md(f"## Why\n\n$$ a $$\n\n{LOOK}"))) == 2


def test_words_under_a_skipped_heading_are_no_comment_on_what_came_before():
    first, second = slides(
        md("## Why\n\n$$ a $$"), md("## How", "skip"), md("We count."), code("slide")
    )
    assert (kinds(first), kinds(second)) == (["math"], ["text", "run"])


def test_words_lead_to_one_thing_and_stand_above_nothing_that_came_before():
    one, two = (code("subslide", printed(text)) for text in "12")
    first, second = slides(md("## Why\n\nWe count."), one, two)
    assert (kinds(first), kinds(second)) == (["text", "printed"], ["printed"])
    step = code("fragment", printed("2"))
    [slide] = slides(md("## Why"), one, md("We count."), step)
    assert kinds(slide) == ["printed", "text", "+printed"]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [("These:", "Of both.", ["These:", "a b 1 2"]), ("Before.", "", ["Before.", "a b 1 2"]),
     ("Before.", "After.", ["a b 1 2", "After."]), ("", "After. Now:", ["a b 1 2", "After."])],
)  # fmt: skip
def test_a_table_has_the_words_that_end_in_a_colon_or_those_behind_it(before, after, shown):
    [slide] = slides(md(f"## Why\n\n{before}\n\n{LOOK}\n\n{after}"))
    assert [" ".join(text_of(piece.html).split()) for piece in slide.shown] == shown


def test_a_list_has_the_words_that_lead_to_it():
    [told] = slides(md("## Why\n\nThese:\n\n- one\n- two"))
    [alone] = slides(md("## Why\n\nTwo of them.\n\n- one\n- two"))
    assert (kinds(told), kinds(alone)) == (["text", "list"], ["list"])


def test_what_is_printed_beside_a_figure_is_spoken():
    text = md("## Why\n\nWe count.")
    [alone] = slides(text, code("subslide", picture(8, 4)))
    [beside] = slides(text, code("subslide", printed("1 < 2"), picture(8, 4)))
    assert kinds(alone) == kinds(beside) == ["figure"]
    assert said(beside) == [*said(alone), "1 < 2"]


def test_an_explanation_is_left_out_beside_another_output_and_alone_shows_its_numbers():
    why = printed("w[query 0]\n  code: a / b\n  = a[query 0] / b[query 0]\n  = 1 / 2\n  = 0.5\n")
    [beside] = slides(md("## Why"), code("subslide", printed("weights"), why))
    [alone] = slides(md("## Why"), code("subslide", why))
    assert [text_of(piece.html) for piece in beside.shown] == ["weights"]
    assert [text_of(piece.html).split() for piece in alone.shown] == [
        "w[query 0] code: a / b = 1 / 2 = 0.5".split()
    ]


@pytest.mark.parametrize(("lines", "kind"), [(17, "run"), (18, "printed")])
def test_code_that_is_too_long_stands_with_its_output_no_more(lines, kind):
    long = code("slide", printed("1"))
    long.source = "\n".join(["x = 1"] * lines)
    [slide] = slides(md("## Why\n\nWe count."), long)
    assert slide.looks[-1].kind == kind


def test_words_to_a_question_that_is_left_out_lead_to_nothing():
    skipped, shown = code("skip", printed("1")), code("subslide", printed("2"))
    question = md("## Why\n\nGone.\n\n**Predict**: which?")
    [slide] = slides(question, skipped, md("And why."), shown)
    assert kinds(slide) == ["printed"]


@pytest.mark.parametrize(
    "cells",
    [[md("## Why\n\nWe count."), code("subslide", picture(800, 300))],
     [md("## Why\n\nWe count."), code("subslide", printed("1")), md("**Notice** it.")],
     [md("## Why\n\n(In passing.)"), code("subslide", printed("1"))],
     [md("Of the title.\n\n## Why"), code("subslide", printed("1"))]],
)  # fmt: skip
def test_a_figure_a_slide_with_a_point_and_words_in_passing_get_no_words(cells):
    [slide] = slides(*cells)
    assert "text" not in "".join(kinds(slide))


def test_a_question_without_a_point_has_the_words_after_its_answer_as_a_step():
    [slide] = slides(
        md("## Why\n\nBefore.\n\n**Predict**: which?"), code("subslide", printed("1")),
        md("After.\n\nLater."),
    )  # fmt: skip
    assert (kinds(slide), text_of(slide.shown[1].html)) == (["+printed", "+text"], "After.")


def test_long_words_are_shown_in_their_first_sentences_or_where_they_lead():
    long = "And on, " * 30 + "to an end"
    [first] = slides(md(f"## Why\n\nWe count. {long}."), code("subslide", printed("1")))
    assert text_of(first.shown[0].html) == "We count."
    [end] = slides(md(f"## Why\n\n{long}. We add. We count:"), code("subslide", printed("1")))
    assert text_of(end.shown[0].html) == "We add. We count:"
    [last] = slides(md(f"## Why\n\n{long}. We count:"), code("subslide", printed("1")))
    assert text_of(last.shown[0].html) == "We count:"


@pytest.mark.parametrize(
    "pointing",
    ["The first cell asks.", "It needs more (below).", "As in the figure above, it moves.",
     "Below, we count.", "Its columns stand there, below.", "It stands at the end of this section.",
     "It is the row, shown at the top, of x.", "The large one, above as columns 0, 1.",
     "That answers the question at the top."],
)  # fmt: skip
def test_what_points_elsewhere_on_the_page_is_spoken_and_not_shown(pointing):
    shown = code("subslide", printed("1"))
    [slide] = slides(md(f"## Why\n\nWe count. {pointing}"), shown)
    assert text_of(slide.shown[0].html) == "We count."
    assert said(slide) == [f"We count. {pointing}"]
    [slide] = slides(md("## Why"), shown, md(f"**Notice** it. {pointing}"))
    assert text_of(slide.shown[1].html) == "Notice it."
    [slide] = slides(md(f"## Why\n\n- one\n- {pointing}"))
    assert text_of(slide.shown[0].html).split() == ["one"]
    [slide] = slides(md(f"## Why\n\n- {pointing}\n- {pointing}"), shown)
    assert (kinds(slide), pointing in said(slide)[0]) == (["printed"], True)


def test_a_point_that_begins_with_what_is_elsewhere_is_spoken_alone():
    point = "**Notice** that it is the figure above. It moves."
    [slide] = slides(md("## Why"), code("subslide", printed("1")), md(point))
    assert (kinds(slide), said(slide)) == (["printed"], [point.replace("*", "")])


def test_what_is_higher_or_deeper_in_what_is_shown_does_not_point_elsewhere():
    [slide] = slides(md("## Why\n\n- Above it we learn, below it we leak.\n- The sum below it."))
    assert text_of(slide.shown[0].html).split()[-4:] == ["The", "sum", "below", "it."]
    assert "Above it" in text_of(slide.shown[0].html)


def test_what_a_section_of_exercises_says_to_all_of_them_is_left_out():
    task = md("### 1. Predict\n\nHow many?", "fragment")
    [slide] = slides(md("## Exercises\n\nIn the notebook, run it."), task)
    assert (slide.heading, said(slide)) == ("Predict", ["How many?"])
    [slide] = slides(md("## Exercises\n\n**1.** How many?"))
    assert kinds(slide) == ["point"]


def test_a_last_sentence_that_ends_in_a_colon_goes_with_the_code_that_is_left_out():
    skipped, shown = code("skip", printed("1")), code("subslide", printed("2"))
    for text in ("We count. By a loop:", "We count.\n\nBy a loop:"):
        [slide] = slides(md("## Why"), shown, md(text), skipped)
        assert said(slide) == ["We count."]
    [slide] = slides(md("## Why\n\nBy a loop:"), shown)
    assert said(slide) == ["By a loop:"]


@pytest.mark.parametrize(
    "named", ["in the figure", "at the ends of both figures", "of the picture"]
)
def test_a_point_may_name_the_figure_only_where_it_stands_beside_it(named):
    point = f"**Notice** the dot {named}."
    [beside] = slides(md("## Why"), code("subslide", picture(8, 4)), md(point))
    [alone] = slides(md("## Why"), code("subslide", printed("1")), md(point))
    assert (kinds(beside), kinds(alone)) == (["figure", "+point"], ["printed"])
    assert said(alone) == [text_of(markdown(point))]
    [led] = slides(md(f"## Why\n\nWe count the dots {named}. We add."), code("slide"))
    assert text_of(led.shown[0].html) == "We add."


def test_hints_are_left_out():
    source = f"## Why\n\n<details><summary>Hint</summary>\n\nSecret.\n\n</details>\n\n{LOOK}"
    assert "Secret" not in str(slides(md(source)))


def test_links_lead_to_decks_and_others_become_text():
    linked = markdown("See [04](04_attention.ipynb#the-idea) and [a page](../docs/glossary.md).")
    assert linked == '<p>See <a href="04_attention.html">04</a> and a page.</p>'
    assert "x[i](j)" in markdown("`x[i](j)`")


def test_a_long_equation_stands_on_several_lines():
    short, long = "$$ a \\qquad b $$", f"$$ {'a + ' * EQUATION} a \\qquad b $$"
    assert "gathered" not in markdown(short)
    assert "\\\\[0.7em]b" in markdown(long)


@pytest.mark.parametrize(
    ("block", "kind"),
    [("## Why", "heading"), ("**Predict**: who?", "predict"), ("**Notice** it.", "point"),
     ("*Aside.* More.", "aside"), ("$$\na\n\nb\n$$", "math"), (LOOK, "table"), ("- one", "list"),
     ("2. two", "list"), ("```\na\n\nb\n```", "fence"), ("*Two* words.", "text")],
)  # fmt: skip
def test_a_block_is_told_by_how_it_begins(block, kind):
    assert list(blocks(f"One.\n\n{block}\n\nLast.")) == [
        ("text", "One."), (kind, block), ("text", "Last."),
    ]  # fmt: skip


# By hand: code and the other types


def test_slide_shows_code_and_output_and_subslide_the_output_alone():
    whole, alone = slides(
        md("## Why"), code("slide", printed("1")), code("subslide", printed("<pad>"))
    )
    assert kinds(whole) == ["run"]
    assert "run" in text_of(whole.shown[0].html) and "1" in text_of(whole.shown[0].html)
    assert [piece.html for piece in alone.shown] == ["<pre>&lt;pad&gt;</pre>"]
    assert alone.heading == "Why"


def test_of_a_cell_that_draws_only_the_figure_is_shown_and_told():
    data = {"text/html": "<details><pre>2</pre></details>", "text/plain": "dots = 2"}
    in_words = new_output("display_data", data=data)
    [slide] = slides(md("## Why"), code("slide", picture(800, 300), in_words))
    assert kinds(slide) == ["figure"]
    assert 'alt="Two dots are left." width="1440" height="540"' in slide.shown[0].html
    assert said(slide) == ["Two dots are left."]


def test_html_stands_for_its_text_and_source_is_highlighted():
    both = new_output("display_data", data={"text/plain": "1 2", "text/html": "<table></table>"})
    [slide] = slides(md("## Why"), code("subslide", both, printed("def f(x):\n    return x\n")))
    assert kinds(slide) == ["html", "code"]
    assert slide.shown[0].html == "<table></table>"
    assert '<span class="k">def</span>' in slide.shown[1].html


def test_source_with_other_lines_below_it_stays_as_it_was_printed():
    [slide] = slides(md("## Why"), code("subslide", printed("def f(x):\n    return x\nat 1: 2")))
    assert kinds(slide) == ["printed"]


def test_two_blank_lines_in_code_become_one():
    [slide] = slides(md("## Why"), code("slide", source="a = 1\n\n\nb = 2"))
    assert "\n\n\n" not in slide.shown[0].html


def test_fragments_come_as_steps_except_for_the_first_under_a_heading():
    [slide] = slides(
        md("## Why"), code("fragment", printed("1")), code("fragment", printed("2")),
        md("All of this.", "fragment"), code("-", printed("3")), md("At once.", "-"),
    )  # fmt: skip
    assert kinds(slide) == ["printed", "+printed", "+text", "run", "text"]


def test_a_heading_in_a_fragment_opens_a_slide_with_all_of_its_text():
    _, task = slides(md(f"## Why\n\n{LOOK}"), md("### 1. Predict\n\nHow many?", "fragment"))
    assert (task.heading, kinds(task), said(task)) == ("Predict", ["text"], ["How many?"])


def test_notes_are_spoken_and_what_is_skipped_is_gone_except_for_its_heading():
    [slide] = slides(
        md("## Why\n\nGone.", "skip"),
        code("subslide", printed("1")),
        code("skip", printed("gone")),
        md("Spoken.", "notes"),
        code("notes", printed("1 < 2")),
    )
    assert (slide.heading, said(slide)) == ("Why", ["Spoken.", "1 < 2"])
    assert kinds(slide) == ["printed"]


def test_what_comes_under_a_skipped_heading_does_not_join_the_words_before():
    first, second = slides(
        md("## Why\n\nRead this.", "fragment"), md("## How", "skip"), code("subslide", printed("1"))
    )
    assert (first.heading, kinds(first)) == ("Why", ["text"])
    assert (second.heading, kinds(second)) == ("How", ["printed"])


@pytest.mark.parametrize(
    ("width", "height", "point", "beside"),
    [(5, 4, False, True), (64, 40, False, False), (64, 40, True, True), (8, 4, True, False)],
)
def test_a_figure_stands_beside_words_where_it_is_not_wide(width, height, point, beside):
    cells = [md("## Why"), code("subslide", picture(width, height))]
    [slide] = slides(*cells, *([md("**Notice** it.")] if point else []))
    assert slide.halves is beside


@pytest.mark.parametrize(
    ("width", "height", "words"),
    [(940, 640, WORDS_WIDE[0]), (880, 640, BESIDE - 880), (500, 400, WORDS_WIDE[1]),
     (1000, 2 * HIGH, WORDS_WIDE[1])],
)  # fmt: skip
def test_words_beside_a_figure_leave_it_the_width_that_it_needs(width, height, words):
    [slide] = slides(md("## Why"), code("subslide", picture(width, height)))
    assert slide.words_width == words


# Laws: the notebooks of the course


@pytest.fixture(scope="module")
def course() -> list[write_slides.Deck]:
    return write_slides.decks()


@pytest.fixture(scope="module")
def rendered(course) -> dict[str, str]:
    return write_slides.pages(course)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_cell_has_a_slide_type(path):
    cells = nbformat.read(path, as_version=4).cells
    chosen = {cell.id: cell.metadata.get("slideshow", {}).get("slide_type") for cell in cells}
    assert {id: one for id, one in chosen.items() if one not in TYPES} == {}


def test_the_deck_of_a_lesson_has_between_10_and_25_slides(course):
    # One more stands at the end: the way to the next deck.
    lessons = [deck for deck in course if deck.step.stem != NOTES]
    assert [deck.file for deck in lessons if not 10 <= len(deck.slides) + 1 <= 25] == []


def test_every_slide_has_something_to_see_and_something_to_say(course, rendered):
    for deck in course:
        for place, slide in enumerate(deck.slides[1:], 2):
            assert slide.shown, f"{deck.file} {place}"
            assert text_of(slide.heading), f"{deck.file} {place}"
        assert all("".join(said(slide)) for slide in deck.slides), deck.file
        page = words_of(text_of(rendered[deck.file]))
        spoken = [words_of(note) for slide in deck.slides for note in said(slide)]
        assert [note for note in spoken if note not in page] == []


def test_what_is_no_figure_and_no_list_has_words_or_a_heading_that_says_what_it_is(course):
    bare = [
        f"{deck.file} {place}: {text_of(slide.heading)}"
        for deck in course
        for place, slide in enumerate(deck.slides[1:], 2)
        if not slide.words and {piece.kind for piece in slide.looks} - {"figure", "list"}
        # The table of shapes is what a recap shows.
        if len(text_of(slide.heading).split()) < 3 and text_of(slide.heading) != "Recap"
    ]
    assert bare == []


def test_no_words_are_said_to_more_than_two_slides(course):
    for deck in course:
        last = [said(slide)[-1] for slide in deck.slides]
        assert [words for words, same in groupby(last) if len(list(same)) > 2] == [], deck.file


def test_how_exercises_are_checked_in_the_notebook_reaches_no_deck(rendered):
    told = "it says what is wrong"
    assert any(told in path.read_text(encoding="utf-8") for path in PATHS)
    assert [name for name, page in rendered.items() if told in text_of(page)] == []


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.stem)
def test_no_answer_to_an_exercise_reaches_a_deck(step, rendered):
    notebook = nbformat.read(ROOT / step.notebook, as_version=4)
    shown = {name: text_of(page) for name, page in rendered.items()}
    lines = {line for one in exercises_of(notebook) for line in solution_lines(one)}
    assert lines or step.stem in WITHOUT_ANSWERS
    assert [(name, line) for line in lines for name, text in shown.items() if line in text] == []


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.stem)
def test_no_hint_and_no_unfolded_answer_reaches_a_deck(step, rendered):
    notebook = nbformat.read(ROOT / step.notebook, as_version=4)
    sources = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    hidden = "\n".join(re.findall(r"<details>.*?</summary>(.*?)</details>", sources, re.S))
    lines = {line for line in map(words_of, hidden.splitlines()) if len(line.split()) > 5}
    assert bool(lines) == (step.stem != NOTES)
    shown = words_of(text_of(rendered[f"{Path(step.notebook).stem}.html"]))
    assert {line for line in lines if line in shown} == set()


def test_neighbours_link_to_each_other_and_the_list_to_all(course, rendered):
    files = [deck.file for deck in course]
    assert files == [f"{path.stem}.html" for path in PATHS]
    listed = re.findall(r'href="(\w+\.html)"', rendered["index.html"])
    assert listed == files
    for place, deck in enumerate(course):
        last = rendered[deck.file].rpartition("<section")[2]
        around = files[place + 1 : place + 2] + files[max(place - 1, 0) : place] + ["index.html"]
        assert re.findall(r'href="(\w+\.html)"', last) == around


def test_every_link_and_every_asset_is_written(rendered):
    for name, page in rendered.items():
        for target in re.findall(r'(?:href|src)="([^"#]+)', page):
            asset = target.removeprefix("assets/")
            known = {*rendered, *write_slides.LOADED, *write_slides.OURS}
            assert target.startswith("data:") or asset in known, f"{name}: {target}"


def packages(folder: Path) -> Path:
    """Write what npm would install, each file holding its own name."""
    for path in write_slides.LOADED.values():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


def test_a_folder_of_slides_is_written_anew(tmp_path):
    slides = tmp_path / "slides"
    slides.mkdir()
    (slides / "left.html").write_text("of an earlier run")
    assert write_slides.write(slides, modules=packages(tmp_path / "modules")) == len(STEPS)
    assert {path.name for path in slides.glob("*.html")} == {
        "index.html", *(f"{path.stem}.html" for path in PATHS),
    }  # fmt: skip
    for name, path in write_slides.LOADED.items():
        assert (slides / "assets" / name).read_text() == path
    for name in write_slides.OURS:
        assert (slides / "assets" / name).read_bytes() == (ROOT / "slides" / name).read_bytes()


# Errors


def test_an_unknown_slide_type_is_named():
    with pytest.raises(ValueError, match=r"cell \w+: slide type 'slides' is not one of slide, "):
        slides(md("## Why", "slides"))


@pytest.mark.parametrize("chosen", [one for one in TYPES if one != "skip"])
def test_an_answer_must_be_skipped(chosen):
    answer = code(chosen, source="x = 1")
    answer.metadata["nbgrader"] = {"solution": True}
    with pytest.raises(ValueError, match=r"is an answer, and .+ would show it: mark it skip"):
        slides(answer)
    answer.metadata["slideshow"]["slide_type"] = "skip"
    assert slides(answer) == []


def test_a_figure_without_alt_text_is_refused():
    with pytest.raises(ValueError, match=r"cell \w+: the picture has no alt text"):
        slides(md("## Why"), code("slide", picture(800, 300, alt="")))


def test_a_missing_notebook_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"00_start_here\.ipynb is missing: step 00 has no"):
        write_slides.decks(tmp_path)


def test_an_error_names_the_notebook(tmp_path):
    path = tmp_path / PATHS[0].name
    nbformat.write(new_notebook(cells=[md("# 00 Small", "slides")]), path)
    with pytest.raises(ValueError, match=r"^00_start_here\.ipynb: cell \w+: slide type"):
        write_slides.decks(tmp_path)


def test_nothing_is_written_where_something_is_missing(tmp_path):
    slides = tmp_path / "slides"
    with pytest.raises(ValueError, match=r"reset\.css is missing: make installs it"):
        write_slides.write(slides, modules=tmp_path)
    assert not slides.exists()


def test_slides_do_not_take_the_place_of_a_file_or_of_the_notebooks(tmp_path):
    modules, file = packages(tmp_path / "modules"), tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ValueError, match="is a file: name a folder"):
        write_slides.write(file, modules=modules)
    assert file.read_text() == "mine"
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    with pytest.raises(ValueError, match="holds the project itself"):
        write_slides.write(notebooks, notebooks, modules)
    assert notebooks.exists()
