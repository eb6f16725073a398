"""The exercises of the stored notebooks keep every rule, and each rule fails where it should."""

import inspect
import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.course.exercise_rules import (
    Exercise,
    exercise_cells,
    exercises_of,
    problems,
    solution_lines,
)
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
        stems = {each.id[:2] for each in exercises_of(PAGES[name])}
    for stem in stems:
        assert problems(PAGES[name], stem, EXERCISES, MISTAKES, others(name)) == []


# A small notebook needs the exercises and mistakes of one step only.
DECLARED = {id: each for id, each in EXERCISES.items() if id.startswith("06-")}
TAUGHT = {id: each for id, each in MISTAKES.items() if each.step == "06"}


def exercise(number, id):
    """Write the cells of a declared exercise, with the reply to a blank answer."""
    declared, name = EXERCISES[id], f"answer_{number}"
    source, blank = f"{name} = ...\n# Your answer goes here.", ...
    if isinstance(declared, Task):
        parameters = inspect.signature(declared.right).parameters.values()
        names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        source = f'def {name}({", ".join(names)}):\n    """Do it."""\n    # Your answer goes here.'

        def blank(*arguments):
            """Do it."""

    cells = exercise_cells(number, id, declared.contract, source)
    with redirect_stdout(io.StringIO()) as printed:
        check(id, blank)
    cells[2].outputs = [new_output("stream", text=printed.getvalue())]
    return cells


@pytest.fixture
def good():
    """A notebook without violations."""
    broken = "\n".join(f'MISTAKES["{id}"].wrong' for id in TAUGHT)
    cells = [new_code_cell(broken)]
    for number, id in enumerate(DECLARED, 1):
        cells += exercise(number, id)
    return new_notebook(cells=cells)


STEM = "06_multi_head_attention"


def test_a_good_notebook_has_no_problem(good):
    assert problems(good, STEM, DECLARED, TAUGHT) == []
    assert problems(good, "00_start_here", DECLARED, TAUGHT) == []
    good.cells[1].source = f"So much.\n\n## A section\n\n{good.cells[1].source}"
    assert problems(good, STEM, DECLARED, TAUGHT) == []


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


BLANK = "is not its reply to a blank answer"
BROKEN = [
    (lambda n: n.cells.__delitem__(slice(1, 4)), "once each, got"),
    (lambda n: n.cells.pop(2), "the check, got ['code', 'markdown', 'code']"),
    (metadata(1, grade_id="other"), "the metadata of the answer must be"),
    (metadata(2, points=2), "the metadata of the check must be"),
    (put(0, "### 1. Do it", "**1.** Do it"), "must have exactly one numbered heading ###"),
    (put(0, "Hint 3", "Hint 2"), "titles, got ['Hint 1', 'Hint 2', 'Hint 2']"),
    (put(1, "# Your answer", "# An answer"), "solved: 06-scores-shape: the answer cell must end"),
    (put(1, "answer_1 = ...", "..."), "solved: scores_shape: the answer cell must assign"),
    (lambda n: n.cells[3].outputs.clear(), BLANK),
    (lambda n: n.cells[3].outputs[0].update(text="✓"), BLANK),
    (put(2, ", answer_1", ", 100"), "does not define 100, which is checked"),
    (put(2, "answer_1)", "answer_1) or 3"), "unexpected check"),
    (add(new_code_cell("answer_1 = (2, 3, 4, 5)")), "'answer_1 = (2, 3, 4, 5)' of the solution"),
    (add(new_markdown_cell("So answer_1 = (2, 3, 4, 5).")), "solution is in another cell"),
    (add(new_code_cell("### BEGIN SOLUTION")), "contains a solution marker"),
    (add(new_code_cell("print(answer_1)")), "uses answer_1, which may be blank"),
    (put(0, "Think.", "Think. " * 1300), "words of exercises, at most"),
    (lambda n: n.cells[0].update(source='MISTAKES["split-view"]'), "no cell runs merge-no-tr"),
]


@pytest.mark.parametrize(("change", "complaint"), BROKEN)
def test_each_rule_fails_on_the_notebook_that_breaks_it(good, change, complaint):
    change(good)
    lines = problems(good, STEM, DECLARED, TAUGHT)
    assert any(complaint in line for line in lines), lines


def test_a_task_in_code_shows_its_contract(good):
    contract = f"`{EXERCISES['06-split-heads'].contract}`"
    task = next(cell for cell in good.cells if contract in cell.source)
    task.source = task.source.replace(contract, "Cut it.")
    lines = problems(good, STEM, DECLARED, TAUGHT)
    assert [line for line in lines if line.startswith("06-split-heads: the task must contain")]


@pytest.mark.parametrize(("kept", "code"), [("06-split-heads", 1), ("06-scores-shape", 0)])
def test_a_step_has_four_exercises_and_two_in_code(good, kept, code):
    good.cells[1:] = exercise(1, kept)
    lines = problems(good, STEM, {kept: DECLARED[kept]}, TAUGHT)
    assert lines == [f"expected 4 exercises and 2 of them in code, got 1 and {code}"]


def test_a_lesson_and_its_workshop_share_the_exercises_of_their_step(good):
    lesson, workshop = new_notebook(cells=good.cells[:4]), new_notebook(cells=good.cells[4:])
    assert problems(lesson, STEM, DECLARED, TAUGHT, workshop) == []
    assert problems(workshop, STEM, DECLARED, TAUGHT, lesson) == []
    lesson.cells += exercise(1, "11-decoder-layer")
    assert problems(workshop, STEM, DECLARED, TAUGHT, lesson) == []
    workshop.cells += exercise(1, "06-scores-shape")
    assert "once each, got" in problems(lesson, STEM, DECLARED, TAUGHT, workshop)[0]


def test_lines_that_give_nothing_away_are_left_out():
    task, answer, graded = exercise(1, "11-decoder-layer")
    lines = solution_lines(Exercise("11-decoder-layer", task, answer, graded))
    assert "x = x + sublayer(normed(x))" in lines
    assert not {")", "return x", "", *answer.source.splitlines()} & set(lines)
    task, answer, graded = exercise(1, "06-split-heads")
    (line,) = solution_lines(Exercise("06-split-heads", task, answer, graded))
    assert line.startswith("return rearrange(")
