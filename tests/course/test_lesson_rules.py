"""The rules of lessons and workshops: each is seen to fail. What is counted, is counted by hand."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.course.figures import picture_of
from tests.course.lesson_rules import count, kind, problems
from tools.count_lessons import HEAD, row, table
from tools.run_notebooks import NOTEBOOK_METADATA


def says(text, **metadata):
    return new_markdown_cell(text, metadata=metadata)


def runs(source, printed="", **metadata):
    outputs = [new_output("stream", name="stdout", text=printed)] if printed else []
    return new_code_cell(source, outputs=outputs, metadata=metadata)


def exercise(number, id):
    answer = {"grade": False, "grade_id": f"{id}-answer", "solution": True}
    graded = {"grade": True, "grade_id": f"{id}-check", "solution": False}
    hint = "<details><summary>Hint 1</summary>\n\nThink.\n\n</details>"
    return [
        says(f"### {number}. Do it\n\n{hint}"),
        runs(f"answer_{number} = ...", nbgrader=answer),
        runs(f'check("{id}", answer_{number})', "Not yet.\n", nbgrader=graded),
    ]


def page(cells, slides):
    count = 0
    for cell in cells:
        if slides:
            cell.metadata.slideshow = {"slide_type": "slide"}
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
    return nbformat.from_dict(new_notebook(cells=cells, metadata=NOTEBOOK_METADATA))


FOLDED = {"jupyter": {"outputs_hidden": True}}


@pytest.fixture
def lesson():
    """A lesson that keeps every rule."""
    return page(
        [
            says("# 04 Attention\n\nWhat do tokens collect?"),
            runs(
                "import torch\nimport twelve_lab as lab\nfrom twelve import Linear\n"
                "from twelve_lab import reversal, show\nfrom twelve_lab.check import check\n"
                "torch.set_default_device(lab.device())"
            ),
            says("## The idea\n\n**Predict**: how many?"),
            runs("print(len('abc'))", "3\n", tags=["idea"], **FOLDED),
            runs("print(reversal.rows(1))", "True\nsame: True\n1 True\n"),
            says("So much.", tags=["answer"]),
            says("## Exercises"),
            *exercise(1, "04-weights-shape"),
            *exercise(2, "04-key-zeroed"),
            *exercise(3, "04-attention"),
            says("## Recap\n\nA [workshop](workshop/04_attention.ipynb)."),
        ],
        slides=True,
    )


@pytest.fixture
def workshop():
    """A workshop that keeps every rule."""
    return page(
        [
            says("# 04 Workshop: attention\n\nOf [04](../04_attention.ipynb)."),
            runs("import torch\nfrom twelve_lab import MISTAKES, check"),
            says("## By hand\n\n**Predict**: how many?"),
            runs("x = torch.ones(2)\nprint(len(x))", "2\n", **FOLDED),
            says("## Exercises"),
            *exercise(4, "04-keys-reversed"),
        ],
        slides=False,
    )


@pytest.fixture
def paths(tmp_path):
    """The files of two steps, of a workshop without one, and of the notes."""
    (tmp_path / "workshop").mkdir()
    names = ("04_attention", "workshop/04_attention", "workshop/tools", "15_same_as_"
             "pytorch", "workshop/15_same_as_pytorch", "a3_notes_corrected")  # fmt: skip
    for name in names:
        (tmp_path / f"{name}.ipynb").touch()
    return {name: tmp_path / f"{name}.ipynb" for name in names}


def test_a_page_is_what_its_place_and_its_name_say(paths):
    assert {name: kind(path) for name, path in paths.items()} == {
        "04_attention": "lesson",
        "workshop/04_attention": "workshop",
        "workshop/tools": "workshop",
        "15_same_as_pytorch": "lesson",
        "workshop/15_same_as_pytorch": "workshop",
        "a3_notes_corrected": "notes",
    }


def test_a_good_lesson_and_its_workshop_have_no_problem(lesson, workshop, paths):
    assert problems(lesson, paths["04_attention"]) == []
    assert problems(workshop, paths["workshop/04_attention"]) == []


def test_what_is_read_is_counted(lesson):
    found = count(lesson)
    # By hand: the title and its question, the idea's heading and question, "So much.", and so on.
    assert found.before == 7 + 6
    assert (found.cells, found.idea, found.answer, found.exercises) == (17, 4, 6, 3)
    assert (found.prose, found.bare) == (13 + 2 + 2 + 3 * 4 + 4, 2)
    assert found.helpers == ["check", "device", "reversal", "show"]
    lesson.cells[0].source += "\n\none two"
    lesson.cells[1].source += "\nthree = 4"
    lesson.cells[3].outputs[0].text += "5 6\n"
    lesson.cells[7].source += "\n\n<details>7 8 9</details>"
    assert (count(lesson).prose, count(lesson).words) == (
        found.prose + 2,
        found.words + 2 + 3 + 2 + 3,
    )


def test_the_alt_text_of_a_picture_is_not_counted_and_its_summary_is(lesson):
    before = count(lesson).words
    picture = {"text/html": picture_of("Two words."), "text/plain": "Two words."}
    lesson.cells[3].outputs.append(new_output("display_data", data=picture))
    assert count(lesson).words == before
    lesson.cells[3].outputs.append(new_output("display_data", data={"text/plain": "a summary"}))
    assert count(lesson).words == before + 2


@pytest.mark.parametrize(
    ("line", "bare"),
    [("True", 1), ("x: True", 1), ("the same = False", 1), ("  True ", 1), ("[True, True]", 0),
     ("True, and so", 0), ("1 True", 0)],
)  # fmt: skip
def test_a_bare_truth_is_a_line_that_says_nothing_else(lesson, line, bare):
    before = count(lesson).bare
    lesson.cells[3].outputs[0].text = f"3\n{line}\n"
    assert count(lesson).bare == before + bare


def put(place, **changes):
    return lambda notebook: notebook.cells[place].update(changes)


def meta(place, **changes):
    return lambda notebook: notebook.cells[place].metadata.update(nbformat.from_dict(changes))


def insert(place, *cells):
    def change(notebook):
        notebook.cells[place:place] = [*cells]

    return change


def adds(place, text):
    def change(notebook):
        notebook.cells[place].source += text

    return change


def drop(place, key):
    return lambda notebook: notebook.cells[place].metadata.pop(key)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (put(0, source="# Attention"), "does not begin with '# 04 ' and a topic"),
        (put(0, source="# 04 Workshop: attention"), "does not begin with '# 04 '"),
        (insert(0, runs("x = 1")), "does not begin with '# 04 '"),
        (put(-1, source="## Recap\n\n## More"), "the last section is not Recap"),
        (lambda n: n.cells.__delitem__(slice(7, 10)), "2 exercises; wanted are 3 to 4"),
        (insert(16, *exercise(4, "04-a"), *exercise(5, "04-b")), "5 exercises; wanted are 3 to 4"),
        (put(6, source="## Questions"), "0 sections Exercises, and 3 exercises"),
        (put(6, source="## Exercises\n\n## So"), "3 exercises stand outside of the section"),
        (meta(0, tags=["nbval-skip"]), "cell 1 is tagged 'nbval-skip'"),
        (drop(3, "jupyter"), "cell 4 has jupyter None, and {'outputs_hidden': True} is due"),
        (meta(3, jupyter={"outputs_hidden": False}), "cell 4 has jupyter {'outputs_hidden': Fa"),
        (meta(4, **FOLDED), "cell 5 has jupyter {'outputs_hidden': True}, and None is due"),
        (insert(3, says("Well.")), "cell 4 should be the code that answers the Predict before"),
        (adds(-1, "\n\n**Predict**"), "a Predict ends the page"),
        (drop(5, "slideshow"), "slide types of cells [6]"),
        (insert(6, *[says(" ") for _ in range(16)]), "33 cells, at most 32"),
        (adds(-1, " word" * 1_600), "words of prose, at most 1600"),
        (adds(7, "<details>" + " word" * 3_200 + "</details>"), "words in all, at most 3200"),
        (insert(5, runs("y = 1", "True\nTrue\n")), "4 lines of output that are bare True or F"),
        (drop(3, "tags"), "no cell, or more than one, is tagged 'idea'; one is due, by cell 10"),
        (meta(5, tags=["idea", "answer"]), "no cell, or more than one, is tagged 'idea'"),
        (insert(3, *[says(" ") for _ in range(7)]), "cell 11 is tagged 'idea'; one is due"),
        (drop(5, "tags"), "no cell, or more than one, is tagged 'answer'; one is due, by cell 20"),
        (insert(5, *[says(" ") for _ in range(15)]), "cell 21 is tagged 'answer'; one is due"),
        (adds(0, " word" * 590), "603 words of prose before the idea, at most 600"),
        (put(4, source="print(1)"), "no cell uses reversal"),
        (adds(1, "\nfrom twelve_lab.show.format import format_number"), "uses ['format_number']"),
        (adds(1, "\nlab.influence_map(x)"), "uses ['influence_map'] of twelve_lab"),
        (adds(1, "\nimport twelve_lab.sheet"), "uses ['sheet'] of twelve_lab"),
        (adds(1, "\n# MISTAKES"), "cell 2 says 'MISTAKES': lessons do without MISTAKES"),
        (adds(0, " As the source\nnotes say."), "says 'source\\nnotes': lessons do without the s"),
        (adds(0, " This is simply so."), "the prose says 'simply'"),
    ],
)  # fmt: skip
def test_each_rule_of_a_lesson_fails_on_the_one_that_breaks_it(lesson, paths, change, complaint):
    change(lesson)
    found = problems(lesson, paths["04_attention"])
    assert any(complaint in line for line in found), found


@pytest.mark.parametrize(
    "said",
    ["a source note", "the companion", "a Shadow", "check_axes(x)", "the ledger", "two hooks",
     "a layout oracle", "nbval", "MISTAKES", "TASKS", "TARGETS", "wrong_versions", "AxisError",
     "`make student`", "the slopes", "it hears", "it heard", "they look back", "it looks across"],
)  # fmt: skip
def test_a_word_that_lessons_do_without_is_found_in_prose_and_code(lesson, paths, said):
    adds(0, f" {said}")(lesson)
    adds(4, f"\n# {said}")(lesson)
    found = [line for line in problems(lesson, paths["04_attention"]) if "lessons do with" in line]
    assert [line.split(" says ")[0] for line in found] == ["cell 1", "cell 5"]


@pytest.mark.parametrize("said", ["the mistakes of two tasks", "it looks one word back", "targets"])
def test_a_word_of_the_field_is_kept(lesson, paths, said):
    adds(0, f" {said}")(lesson)
    assert problems(lesson, paths["04_attention"]) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (put(0, source="# 04 Attention"), "does not begin with '# 04 Workshop: ' and a topic"),
        (put(4, source="## By heart"), "0 sections Exercises, and 1 exercises"),
        (insert(4, *exercise(1, "04-attention")), "1 exercises stand outside of the section"),
        (meta(3, tags=["idea"]), "cell 4 is tagged 'idea'"),
        (drop(3, "jupyter"), "cell 4 has jupyter None"),
        (meta(2, slideshow={"slide_type": "slide"}), "slide types of cells [3]"),
        (insert(4, *[says(" ") for _ in range(9)]), "the section 'By hand' has 11 cells, at mos"),
        (insert(2, *[says(" ") for _ in range(9)]), "the section '' has 11 cells, at most 10"),
        (insert(4, says("## More"), runs("y = x")), "'More' uses ['x'] of another section"),
        (adds(2, " The source notes."), "says 'source notes': workshops do without the source"),
        (adds(2, " This is simply so."), "the prose says 'simply'"),
    ],
)  # fmt: skip
def test_each_rule_of_a_workshop_fails_on_the_one_that_breaks_it(
    workshop, paths, change, complaint
):
    change(workshop)
    found = problems(workshop, paths["workshop/04_attention"])
    assert any(complaint in line for line in found), found


def test_a_workshop_may_do_without_exercises_and_say_what_lessons_do_not(workshop, paths):
    del workshop.cells[4:]
    adds(2, " The companion hears MISTAKES.")(workshop)
    assert problems(workshop, paths["workshop/04_attention"]) == []


def test_a_section_may_use_what_stands_before_all_sections_and_its_own(workshop, paths):
    insert(4, says("## More"), runs("x = torch.ones(3)\n[x for x in x]"))(workshop)
    found = problems(workshop, paths["workshop/04_attention"])
    assert not any("another section" in line for line in found)


def test_a_workshop_of_no_step_has_no_number(workshop, paths):
    put(0, source="# Workshop: tensors")(workshop)
    assert problems(workshop, paths["workshop/tools"]) == []
    put(0, source="# Tensors")(workshop)
    assert len(problems(workshop, paths["workshop/tools"])) == 1


def test_a_step_without_exercises_has_none_in_its_lesson(lesson, paths):
    put(0, source="# 15 Same as PyTorch")(lesson)
    found = problems(lesson, paths["15_same_as_pytorch"])
    assert found == ["3 exercises; wanted are 0 to 0"]
    del lesson.cells[6:-1]
    assert problems(lesson, paths["15_same_as_pytorch"]) == []


def test_the_page_that_corrects_the_notes_names_them_and_has_no_bounds(lesson, paths):
    del lesson.cells[6:-1]
    put(0, source="# a3 The notes, corrected\n\nThe source notes say." + " word" * 4_000)(lesson)
    for place in (3, 5):
        drop(place, "tags")(lesson)
    assert problems(lesson, paths["a3_notes_corrected"]) == []
    drop(3, "jupyter")(lesson)
    put(-1, source="## The end")(lesson)
    assert len(problems(lesson, paths["a3_notes_corrected"])) == 2


def test_the_script_says_what_was_counted(lesson, paths):
    nbformat.write(lesson, paths["04_attention"])
    told = dict(zip(HEAD, row(paths["04_attention"]), strict=True))
    assert told["page"] == "lesson 04_attention"
    numbers = ("cells", "prose", "idea", "before", "answer", "bare", "exercises", "minutes")
    assert [told[name] for name in numbers] == ["17", "33", "4", "13", "6", "2", "3", "0"]
    assert (told["problems"], told["helpers"]) == ("0", "check device reversal show")


def test_the_rows_stand_below_each_other():
    assert table([("page", "cells", "helpers"), ("a", "7", "show draw")]) == (
        "page  cells  helpers\na         7  show draw"
    )
