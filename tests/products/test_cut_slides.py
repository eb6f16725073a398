"""The slides: what is shown, what is said, and what stays hidden."""

import html
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
from tools.cut_slides import TYPES, WORDS, Slide, blocks, cut, markdown, shortened
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


def picture(alt: str = "Two dots are left.") -> NotebookNode:
    """Build the output of a drawing; the picture itself is looked at by nobody."""
    return page(picture_of(alt), alt)


def page(source: str, text: str) -> NotebookNode:
    return new_output("display_data", data={"text/html": source, "text/plain": text})


def printed(text: str) -> NotebookNode:
    return new_output("stream", name="stdout", text=text)


def live(title: str) -> NotebookNode:
    """Build the output in which a part of the live page stands: its frame, and words beside it."""
    frame = f'<iframe class="live" title="{title}" srcdoc=\'<p>1</p>\'></iframe>'
    data = {"text/html": f'<div class="live"><p>Run this cell.</p>{frame}</div>'}
    return new_output("display_data", data=data)


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


def test_a_heading_opens_a_slide_and_all_paragraphs_are_spoken():
    first, second = slides(
        md(f"## Why\n\nWe say this.\n\nAnd this.\n\n{LOOK}\n\n### How\n\n{LOOK}\n\nOr this.")
    )
    assert (first.heading, said(first)) == ("Why", ["We say this.", "And this."])
    assert (second.heading, said(second)) == ("How", ["Or this."])


def test_the_paragraph_right_before_what_is_shown_stands_above_it():
    [slide] = slides(md(f"## Why\n\nGone.\n\nWe count.\n\n{LOOK}\n\nSpoken."))
    assert kinds(slide) == ["text", "table"]
    assert text_of(slide.shown[0].html) == "We count."
    assert said(slide) == ["Gone.", "We count.", "Spoken."]


def test_where_there_is_none_the_first_one_behind_stands_below():
    [slide] = slides(md("## Why"), code("subslide", printed("1")), md("After.\n\nLater."))
    assert kinds(slide) == ["printed", "text"]
    assert text_of(slide.shown[1].html) == "After."


def test_a_paragraph_between_two_stands_with_one_of_them_and_is_spoken_there():
    first, second = slides(md("## Why\n\nOne.\n\n$$ a $$\n\nThe other.\n\n$$ b $$"))
    assert (kinds(first), said(first)) == (["text", "math"], ["One."])
    assert (kinds(second), said(second)) == (["text", "math"], ["The other."])
    first, second = slides(md("## Why\n\n$$ a $$\n\nOf the one.\n\n$$ b $$\n\nOf both."))
    assert (kinds(first), said(first)) == (["math", "text"], ["Of the one."])
    assert (kinds(second), said(second)) == (["math", "text"], ["Of both."])


def test_a_paragraph_that_leads_on_stands_above_what_it_leads_to():
    first, second = slides(md(f"## Why\n\n{LOOK}\n\nOf the second:\n\n{LOOK}"))
    assert (kinds(first), kinds(second)) == (["table"], ["text", "table"])
    assert said(second) == ["Of the second:"]


def test_words_lead_to_one_thing():
    first, second = slides(md("## Why\n\nWe count."), code("slide"), code("slide"))
    assert (kinds(first), kinds(second)) == (["text", "code"], ["code"])
    assert said(first) == ["We count."]


@pytest.mark.parametrize("opener", ["## How", "**Predict**: which?"])
def test_words_lead_to_nothing_beyond_a_heading_or_a_question(opener):
    *_, last = slides(md(f"## Why\n\n{LOOK}\n\nAfter.\n\nLater.\n\n{opener}\n\n{LOOK}"))
    assert [kind.strip("+") for kind in kinds(last)] == ["table"]


def test_a_list_is_words_enough_and_takes_none_from_behind():
    led, alone = slides(md("## Why\n\nThese:\n\n- one\n- two\n\n## How\n\n- one\n\nSpoken."))
    assert (kinds(led), kinds(alone)) == (["text", "list"], ["list"])
    assert said(alone) == ["Spoken."]


def test_what_stands_in_parentheses_is_only_spoken():
    [slide] = slides(md(f"## Why\n\n{LOOK}\n\n(In passing.)\n\nThe point."))
    assert text_of(slide.shown[1].html) == "The point."
    assert said(slide) == ["(In passing.)", "The point."]


def test_a_question_is_the_heading_and_its_answer_comes_as_a_step():
    [slide] = slides(
        md("## Why\n\nBefore.\n\n**Predict**: how many?"),
        code("subslide", printed("eight")),
        md("After.\n\nLater."),
    )
    assert slide.heading == "<strong>Predict</strong>: how many?"
    assert (slide.kicker, kinds(slide)) == ("Why", ["+printed", "+text"])
    assert text_of(slide.shown[1].html) == "After."
    assert said(slide) == ["Before.", "After.", "Later."]


def test_of_an_answer_with_its_code_the_code_is_no_step():
    [slide] = slides(md("## Why\n\n**Predict**: how many?"), code("slide", printed("eight")))
    assert kinds(slide) == ["code", "+printed"]


def test_each_thing_to_look_at_has_a_slide_of_its_own_except_for_an_equation():
    found = slides(
        md(f"## Why\n\n{LOOK}\n\n- one\n- two\n\n$$ a $$\n\n$$ b $$\n\n```\nx --> y\n```")
    )
    assert [slide.heading for slide in found] == ["Why"] * 3
    assert [kinds(slide) for slide in found] == [["table"], ["list", "math", "math"], ["fence"]]


def test_under_a_heading_with_nothing_to_look_at_the_paragraphs_are_shown():
    first, last = slides(md(f"## Try it\n\n**1.** One.\n\n**2.** Two.\n\n## Why\n\n{LOOK}"),
                        md("## Last\n\nOf all."))[::2]  # fmt: skip
    assert kinds(first) == ["text", "text"]
    assert (kinds(last), text_of(last.shown[0].html)) == (["text"], "Of all.")


def test_a_slide_to_which_nothing_is_said_is_told_itself_or_else_the_one_before():
    drawn, listed, run, other = slides(
        md("## Why"), code("subslide", picture()), md("- a\n- b"), code("slide"), code("slide"),
    )  # fmt: skip
    assert said(drawn) == ["Two dots are left."]
    assert said(listed)[0].split() == said(run)[0].split() == ["a", "b"]
    assert said(other) == ["Why"]


def test_hints_are_left_out():
    source = f"## Why\n\n<details><summary>Hint</summary>\n\nSecret.\n\n</details>\n\n{LOOK}"
    assert "Secret" not in str(slides(md(source)))


def test_links_lead_to_decks_and_others_become_text():
    linked = markdown("See [04](04_attention.ipynb#the-idea) and [a page](../docs/glossary.md).")
    assert linked == '<p>See <a href="04_attention.html">04</a> and a page.</p>'
    assert "x[i](j)" in markdown("`x[i](j)`")


@pytest.mark.parametrize(
    ("block", "kind"),
    [("## Why", "heading"), ("**Predict**: who?", "question"), ("**Notice** it.", "text"),
     ("$$\na\n\nb\n$$", "math"), (LOOK, "table"), ("- one", "list"), ("2. two", "list"),
     ("```\na\n\nb\n```", "fence"), ("*Two* words.", "text")],
)  # fmt: skip
def test_a_block_is_told_by_how_it_begins(block, kind):
    assert list(blocks(f"One.\n\n{block}\n\nLast.")) == [
        ("text", "One."), (kind, block), ("text", "Last."),
    ]  # fmt: skip


LONG = "It goes on, " + "and on, " * 30 + "to an end"


@pytest.mark.parametrize(
    ("block", "shown"),
    [("One. Two. Three.", "One. Two. Three."), (f"One. Two. {LONG}.", "One. Two."),
     (f"{LONG}. One.", f"{LONG}."), (f"{LONG}. One. Two:", "Two:"), (f"{LONG}:", f"{LONG}:"),
     (f'It is "one." {LONG}.', 'It is "one."'), (f"It is 0.5. {LONG}.", "It is 0.5."),
     *((f"{closed} {LONG}. One.", f"{closed} {LONG}.")
       for closed in ("0.5", "`a. B`", "$a. B$", "(see 04. There)"))],
)  # fmt: skip
def test_a_paragraph_is_shown_in_its_first_sentences_or_in_the_one_that_leads_on(block, shown):
    assert len(LONG) > WORDS
    assert shortened(block) == shown


# By hand: code and the other types


def test_slide_shows_code_and_output_and_subslide_the_output_alone():
    whole, alone = slides(
        md("## Why"), code("slide", printed("1")), code("subslide", printed("<pad>"))
    )
    assert (kinds(whole), kinds(alone)) == (["code", "printed"], ["printed"])
    assert text_of(whole.shown[0].html).strip() == "run()"
    assert alone.shown[0].html == "<pre>&lt;pad&gt;</pre>"
    assert alone.heading == "Why"


def test_of_a_cell_that_draws_only_the_figure_is_shown_and_what_it_prints_is_spoken():
    in_words = page("<details><pre>2</pre></details>", "dots = 2")
    [slide] = slides(
        md("## Why\n\nWe count."), code("slide", printed("1 < 2"), picture(), in_words)
    )
    assert kinds(slide) == ["text", "figure"]
    assert slide.looks[0].html == (
        "<img src=\"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'></svg>\" "
        'alt="Two dots are left.">'
    )
    assert said(slide) == ["We count.", "1 < 2"]


def test_html_stands_for_its_text_except_where_it_begins_with_it():
    table = page("<table></table>", "1 2")
    explained = page("<div><pre>w = 0.5</pre><table></table></div>", "w = 0.5\n")
    [slide] = slides(md("## Why"), code("subslide", table, explained))
    assert [(piece.kind, piece.html) for piece in slide.shown] == [
        ("html", "<table></table>"), ("html", "<pre>w = 0.5</pre>"),
    ]  # fmt: skip


def test_two_blank_lines_in_code_become_one():
    [slide] = slides(md("## Why"), code("slide", source="a = 1\n\n\nb = 2"))
    assert "\n\n\n" not in slide.shown[0].html


@pytest.mark.parametrize("outputs", [(), (printed("\n"),)])
def test_code_without_output_shows_nothing_where_only_the_output_is_asked_for(outputs):
    silent = code("subslide", *outputs)
    [slide] = slides(md("## Why\n\nWe count."), silent, code("subslide", printed("1")))
    assert kinds(slide) == ["text", "printed"]


def test_fragments_come_as_steps_except_for_the_first_under_a_heading():
    [slide] = slides(
        md("## Why"), code("fragment", printed("1")), code("fragment", printed("2")),
        md("All of this.\n\nAnd this.", "fragment"), code("-", printed("3")), md("At once.", "-"),
    )  # fmt: skip
    assert kinds(slide) == ["printed", "+printed", "+text", "+text", "code", "printed", "text"]
    assert said(slide) == ["All of this.", "And this.", "At once."]


def test_notes_are_spoken_and_what_is_skipped_is_gone():
    [slide] = slides(
        md("## Gone\n\nGone.", "skip"), md("## Why"), code("subslide", printed("1")),
        code("skip", printed("gone")), md("## Spoken\n\nAll.\n\n- one", "notes"),
        code("notes", printed("1 < 2"), picture()),
    )  # fmt: skip
    assert (slide.heading, kinds(slide)) == ("Why", ["printed"])
    assert [note.strip() for note in said(slide)] == ["All.", "one", "1 < 2", "Two dots are left."]


@pytest.mark.parametrize("chosen", ["skip", "notes"])
def test_words_lead_to_nothing_beyond_code_that_is_not_shown(chosen):
    [slide] = slides(md("## Why\n\nBoth:"), code(chosen, picture()), code("slide"))
    assert kinds(slide) == ["code"]


@pytest.mark.parametrize(
    ("before", "told"), [("slide", ["It is 1."]), ("notes", ["1", "It is 1."]), ("skip", ["Why"])]
)
def test_what_stands_before_a_heading_that_is_skipped_goes_with_the_code_before(before, told):
    shown = [md("## Why"), code("slide")] if before != "slide" else [md("## Why")]
    task = md("It is 1.\n\n## Exercises\n\nHow many?", "skip")
    [slide] = slides(*shown, code(before, printed("1")), task)
    assert said(slide) == told


def test_a_cell_that_is_skipped_and_has_no_heading_is_left_out():
    [slide] = slides(md("## Why"), code("slide"), md("Gone.", "skip"))
    assert said(slide) == ["Why"]


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
        # A live part brings its words along.
        if not slide.words and {piece.kind for piece in slide.looks} - {"figure", "list", "live"}
        if len(text_of(slide.heading).split()) < 3
    ]
    assert bare == []


def test_few_words_are_shown_and_every_question_has_an_answer(course):
    for deck in course:
        for slide in deck.slides[1:]:
            where = f"{deck.file}: {text_of(slide.heading)}"
            if slide.looks:
                assert len(slide.words) <= 1, where
                assert all(len(text_of(piece.html)) <= 1.3 * WORDS for piece in slide.words), where
            assert slide.looks or not slide.kicker, where


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
        slides(md("## Why"), code("slide", picture(alt="")))


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


def test_a_live_part_has_the_slide_behind_its_figure_to_itself():
    cells = (
        md("## Ask\n\nA row is a query."),
        code("subslide", picture(), live("Ask something else")),
        md("Two are left, and one is not."),
        md("## Next\n\nMore words."),
    )
    figure, part, after = slides(*cells)
    assert [piece.kind for piece in figure.shown] == ["text", "figure"]
    assert part.heading == "Ask something else"
    (piece,) = part.shown
    assert (
        piece.kind == "live" and piece.html.startswith("<iframe") and "Run this" not in piece.html
    )
    assert "Ask something else" in part.notes[0]
    assert "Two are left" in figure.notes[-1]  # the words after it belong to the figure
    assert after.heading == "Next"


def test_a_live_part_that_nobody_is_to_see_is_left_out():
    (only,) = slides(md("## Ask\n\nWords."), code("skip", picture(), live("Ask something else")))
    assert only.heading == "Ask"
