"""The exercises of the stored notebooks, and the rules that guard them: each is seen to fail."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.course.exercise_rules import exercises_of, problems, solution_lines
from twelve_lab.check import EXERCISES, MISTAKES

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_exercises_of_a_stored_notebook_keep_every_rule(path):
    assert problems(nbformat.read(path, as_version=4), path.stem, EXERCISES, MISTAKES) == []


def test_every_exercise_stands_in_the_notebook_of_its_number():
    found = {
        one.id: path.stem[:2]
        for path in NOTEBOOKS
        for one in exercises_of(nbformat.read(path, as_version=4))
    }
    assert set(found) == set(EXERCISES)
    assert all(id.startswith(number) for id, number in found.items())


HINTS = "\n\n".join(
    f"<details><summary>Hint {at}</summary>\n\nThink.\n\n</details>" for at in (1, 2, 3)
)
# The exercises of one step and the mistakes it teaches are enough for a small notebook.
OWN = {id: one for id, one in EXERCISES.items() if id.startswith("06-")}
TAUGHT = {id: one for id, one in MISTAKES.items() if one.step == "06"}


def exercise(number, id):
    asked, name = EXERCISES[id], f"answer_{number}"
    graded = {"schema_version": 3, "task": False}
    answer = {**graded, "grade_id": f"{id}-answer", "grade": False, "locked": False}
    check = {**graded, "grade_id": f"{id}-check", "grade": True, "locked": True, "points": 1}
    return [
        new_markdown_cell(f"### {number}. Do it\n\n`{asked.contract}`\n\n{HINTS}"),
        new_code_cell(
            f"{name} = ...\n### BEGIN SOLUTION\n{name} = {number}00\n### END SOLUTION",
            metadata={"nbgrader": {**answer, "solution": True}},
        ),
        new_code_cell(
            f'check("{id}", {name})', metadata={"nbgrader": {**check, "solution": False}}
        ),
    ]


@pytest.fixture
def good():
    """A notebook whose exercises keep every rule."""
    broken = "\n".join(f'MISTAKES["{id}"].wrong' for id in TAUGHT)
    cells = [new_markdown_cell("## Break it"), new_code_cell(broken)]
    cells.append(new_markdown_cell("## Exercises"))
    for number, id in enumerate(OWN, 1):
        cells += exercise(number, id)
    return new_notebook(cells=[*cells, new_markdown_cell("## Recap and next")])


STEM = "06_multi_head_attention"


def test_a_good_notebook_has_no_problem(good):
    assert problems(good, STEM, OWN, TAUGHT) == []


def test_a_step_without_exercises_needs_none(good):
    assert problems(good, "00_start_here", OWN, TAUGHT) == []


def put(place, old, new):
    """Replace text in the cell of the first exercise: 0 is the task, 1 the answer, 2 the check."""

    def change(notebook):
        cell = notebook.cells[3 + place]
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return change


def metadata(place, **fields):
    return lambda notebook: notebook.cells[3 + place].metadata.nbgrader.update(fields)


def add(cell):
    return lambda notebook: notebook.cells.insert(2, cell)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda n: n.cells.__delitem__(slice(3, 6)), "wanted, once each"),
        (lambda n: n.cells.pop(3), "does not begin with ### and its number"),
        (lambda n: n.cells.pop(4), "the cells are ['markdown', 'markdown', 'code']"),
        (lambda n: n.cells.insert(5, new_markdown_cell("So.")), "are ['code', 'markdown', 'code']"),
        (metadata(1, solution=False), "the metadata of the answer are not"),
        (metadata(1, grade_id="other"), "the metadata of the answer are not"),
        (metadata(2, points=2), "the metadata of the check are not"),
        (metadata(2, locked=False), "the metadata of the check are not"),
        (put(0, "### 1. Do it", "**1.** Do it"), "does not begin with ### and its number"),
        (put(0, "Hint 3", "Hint 2"), "the hints are ['1', '2', '2']"),
        (put(1, "### END SOLUTION", ""), "the answer holds no single region"),
        (put(1, "answer_1 = 100", "   "), "the region of the answer is empty"),
        (put(2, ", answer_1", ", 100"), "does not give 100, which is checked"),
        (put(2, "answer_1)", "answer_1) or 3"), "the check is"),
        (add(new_code_cell("answer_1 = 100")), "'answer_1 = 100' of the solution stands in"),
        (add(new_markdown_cell("So answer_1 = 100.")), "of the solution stands in another cell"),
        (add(new_code_cell("print(answer_1)")), "uses answer_1, which may be blank"),
        (put(0, "Think.", "Think. " * 1300), "words of exercises, at most"),
        (lambda n: n.cells.pop(1), "Break it does not read the table of mistakes"),
        (lambda n: n.cells[1].update(source='MISTAKES["split-view"]'), "does not run merge-no-tr"),
    ],
)
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
    good.cells[3:] = exercise(1, kept)
    found = problems(good, STEM, {kept: OWN[kept]}, TAUGHT)
    assert found == [f"1 exercises, {code} of them in code; at least 4, and 2 of them in code"]


def test_lines_that_give_nothing_away_are_left_out():
    lines = ["return x", ")", "", "    y = x + 1", "    return y * 2"]
    cell = new_code_cell("\n".join(["### BEGIN SOLUTION", *lines, "### END SOLUTION"]))
    assert solution_lines(cell) == ["y = x + 1", "return y * 2"]
