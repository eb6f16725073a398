"""The exercises of the stored notebooks keep every rule, and each rule fails where it should."""

import inspect
import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.course.exercise_rules import Exercise, exercises_of, problems, solution_lines
from tools.write_solutions import lessons
from twelve_lab.check import EXERCISES, MISTAKES, Task, check

FOLDER = Path(__file__).parents[2] / "notebooks"
PAGES = lessons(FOLDER)
# Workshops of no step: their exercises belong to the step in the id.
TOOLS = "workshop/tools_"


def others(name):
    """Join all other pages: the exercises of a step are distributed over two or more."""
    cells = (page.cells for other, page in PAGES.items() if other != name)
    return NotebookNode(cells=[cell for some in cells for cell in some])


@pytest.mark.parametrize("name", PAGES)
def test_the_exercises_of_a_stored_notebook_keep_every_rule(name):
    stems = {Path(name).stem}
    if name.startswith(TOOLS):
        stems = {one.id[:2] for one in exercises_of(PAGES[name])}
    for stem in stems:
        assert problems(PAGES[name], stem, EXERCISES, MISTAKES, others(name)) == []


HINTS = "".join(f"<details><summary>Hint {n}</summary>\n\nThink.\n\n</details>" for n in (1, 2, 3))
# A small notebook needs the exercises and mistakes of one step only.
OWN = {id: one for id, one in EXERCISES.items() if id.startswith("06-")}
TAUGHT = {id: one for id, one in MISTAKES.items() if one.step == "06"}


def exercise(number, id):
    asked, name = EXERCISES[id], f"answer_{number}"
    graded = {"schema_version": 3, "task": False}
    answer = {**graded, "grade_id": f"{id}-answer", "grade": False, "locked": False}
    checked = {**graded, "grade_id": f"{id}-check", "grade": True, "locked": True, "points": 1}
    source, blank = f"{name} = ...\n# Your answer goes here.", ...
    if isinstance(asked, Task):
        given = inspect.signature(asked.right).parameters.values()
        names = [one.name for one in given if one.kind is one.POSITIONAL_OR_KEYWORD]
        begun = f'def {name}({", ".join(names)}):\n    """Do it."""'
        source = f"{begun}\n    # Your answer goes here."

        def blank(*given):
            """Do it."""

    with redirect_stdout(io.StringIO()) as said:
        check(id, blank)
    return [
        new_markdown_cell(f"### {number}. Do it\n\n`{asked.contract}`\n\n{HINTS}"),
        new_code_cell(source, metadata={"nbgrader": {**answer, "solution": True}}),
        new_code_cell(
            f'check("{id}", {name})',
            metadata={"nbgrader": {**checked, "solution": False}},
            outputs=[new_output("stream", text=said.getvalue())],
        ),
    ]


@pytest.fixture
def good():
    """A notebook without violations."""
    broken = "\n".join(f'MISTAKES["{id}"].wrong' for id in TAUGHT)
    cells = [new_code_cell(broken)]
    for number, id in enumerate(OWN, 1):
        cells += exercise(number, id)
    return new_notebook(cells=cells)


STEM = "06_multi_head_attention"


def test_a_good_notebook_has_no_problem(good):
    assert problems(good, STEM, OWN, TAUGHT) == []
    assert problems(good, "00_start_here", OWN, TAUGHT) == []
    good.cells[1].source = f"So much.\n\n## A section\n\n{good.cells[1].source}"
    assert problems(good, STEM, OWN, TAUGHT) == []


def put(place, old, new):
    """Replace text in a cell of the first exercise: 0 is the task, 1 the answer, 2 the check."""

    def change(notebook):
        cell = notebook.cells[1 + place]
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return change


def metadata(place, **fields):
    return lambda notebook: notebook.cells[1 + place].metadata.nbgrader.update(fields)


def add(cell):
    return lambda notebook: notebook.cells.insert(0, cell)


BLANK = "does not show what it says of a blank"
BROKEN = [
    (lambda n: n.cells.__delitem__(slice(1, 4)), "wanted, once each"),
    (lambda n: n.cells.pop(2), "the cells are ['code', 'markdown', 'code']"),
    (metadata(1, grade_id="other"), "the metadata of the answer are not"),
    (metadata(2, points=2), "the metadata of the check are not"),
    (put(0, "### 1. Do it", "**1.** Do it"), "has not one heading ### with its number"),
    (put(0, "Hint 3", "Hint 2"), "the hints are ['Hint 1', 'Hint 2', 'Hint 2']"),
    (put(1, "# Your answer", "# An answer"), "solved: 06-scores-shape: the answer cell must end"),
    (put(1, "answer_1 = ...", "..."), "solved: scores_shape: the answer cell must assign"),
    (lambda n: n.cells[3].outputs.clear(), BLANK),
    (lambda n: n.cells[3].outputs[0].update(text="✓"), BLANK),
    (put(2, ", answer_1", ", 100"), "does not give 100, which is checked"),
    (put(2, "answer_1)", "answer_1) or 3"), "the check is"),
    (add(new_code_cell("answer_1 = (2, 3, 4, 5)")), "'answer_1 = (2, 3, 4, 5)' of the solution"),
    (add(new_markdown_cell("So answer_1 = (2, 3, 4, 5).")), "solution stands in another cell"),
    (add(new_code_cell("### BEGIN SOLUTION")), "holds a mark of a solution"),
    (add(new_code_cell("print(answer_1)")), "uses answer_1, which may be blank"),
    (put(0, "Think.", "Think. " * 1300), "words of exercises, at most"),
    (lambda n: n.cells[0].update(source='MISTAKES["split-view"]'), "no cell runs merge-no-tr"),
]


@pytest.mark.parametrize(("change", "complaint"), BROKEN)
def test_each_rule_fails_on_the_notebook_that_breaks_it(good, change, complaint):
    change(good)
    found = problems(good, STEM, OWN, TAUGHT)
    assert any(complaint in line for line in found), found


def test_a_task_in_code_shows_its_contract(good):
    contract = f"`{EXERCISES['06-split-heads'].contract}`"
    task = next(cell for cell in good.cells if contract in cell.source)
    task.source = task.source.replace(contract, "Cut it.")
    found = problems(good, STEM, OWN, TAUGHT)
    assert [line for line in found if line.startswith("06-split-heads: the task does not hold")]


@pytest.mark.parametrize(("kept", "code"), [("06-split-heads", 1), ("06-scores-shape", 0)])
def test_a_step_has_four_exercises_and_two_in_code(good, kept, code):
    good.cells[1:] = exercise(1, kept)
    found = problems(good, STEM, {kept: OWN[kept]}, TAUGHT)
    assert found == [f"1 exercises, {code} of them in code; at least 4, and 2 of them in code"]


def test_a_lesson_and_its_workshop_share_the_exercises_of_their_step(good):
    lesson, workshop = new_notebook(cells=good.cells[:4]), new_notebook(cells=good.cells[4:])
    assert problems(lesson, STEM, OWN, TAUGHT, workshop) == []
    assert problems(workshop, STEM, OWN, TAUGHT, lesson) == []
    lesson.cells += exercise(1, "11-decoder-layer")
    assert problems(workshop, STEM, OWN, TAUGHT, lesson) == []
    workshop.cells += exercise(1, "06-scores-shape")
    assert "wanted, once each" in problems(lesson, STEM, OWN, TAUGHT, workshop)[0]


def test_lines_that_give_nothing_away_are_left_out():
    asked, answer, checked = exercise(1, "11-decoder-layer")
    lines = solution_lines(Exercise("11-decoder-layer", asked, answer, checked))
    assert "x = x + sublayer(normed(x))" in lines
    assert not {")", "return x", "", *answer.source.splitlines()} & set(lines)
    asked, answer, checked = exercise(1, "06-split-heads")
    (line,) = solution_lines(Exercise("06-split-heads", asked, answer, checked))
    assert line.startswith("return rearrange(")
