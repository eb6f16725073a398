"""Rules that keep the exercises of a stored notebook answerable and gradable.

An exercise is three consecutive cells: the task, a blank answer, and the check. Each rule takes
a notebook and yields its violations.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from tools.write_solutions import names_given
from twelve_lab.check import Question, Task
from twelve_lab.check.solve import solution
from twelve_lab.course import DRILLS

# Lines of a solution that reveal nothing, and may appear in other cells.
TRIVIAL = re.compile(r"return \w+|(from .+ )?import .+|super\(\)\.__init__\(\)|\W*")
# The nbgrader metadata of the two code cells of an exercise, apart from their ids.
ALL = {"schema_version": 3, "task": False}
ANSWER = {**ALL, "grade": False, "locked": False, "solution": True}
CHECK = {**ALL, "grade": True, "locked": True, "solution": False, "points": 1}


class Exercise(NamedTuple):
    """The three cells of an exercise.

    Args:
        id: Name of the exercise, such as "06-split-heads".
        task: The cell that states the task, with hints.
        answer: The answer cell, which is blank.
        check: The cell that checks the answer.
    """

    id: str
    task: NotebookNode
    answer: NotebookNode
    check: NotebookNode


def problems(
    notebook: NotebookNode,
    stem: str,
    exercises: Mapping[str, Task | Question],
    other: NotebookNode,
) -> list[str]:
    """Apply every rule.

    Args:
        notebook: The notebook.
        stem: File name without suffix; begins with the number of the step, or names a page by hand.
        exercises: The declared exercises, keyed by id.
        other: The cells of all other pages; a lesson and its workshop share exercises.
    """
    declared = _declared(stem, exercises)
    if not declared:
        return []
    here, elsewhere = exercises_of(notebook), exercises_of(other)
    ids = [each.id for each in here + elsewhere if each.id in declared]
    of_step = [exercise for exercise in here if exercise.id in declared]
    return [
        *_complete(ids, declared),
        *(
            f"{exercise.id}: {line}"
            for exercise in of_step
            for line in _cells(exercise, declared[exercise.id])
        ),
        *_hidden(notebook, of_step),
    ]


def _declared(stem: str, exercises: Mapping[str, Task | Question]) -> dict[str, Task | Question]:
    """Select the exercises of a step, or those of a page by hand."""
    drill = next((drill for drill in DRILLS if drill.stem == stem), None)
    if drill is None:
        return {id: each for id, each in exercises.items() if id.startswith(f"{stem[:2]}-")}
    file = f".by_hand.{stem}"
    return {
        id: each
        for id, each in exercises.items()
        if id == drill.exercise or each.right.__module__.endswith(file)
    }


def exercises_of(notebook: NotebookNode) -> list[Exercise]:
    """Collect the exercises in order; nbgrader metadata marks their checks."""
    cells = notebook.cells
    return [
        Exercise(
            cell.metadata.nbgrader.get("grade_id", "").removesuffix("-check"),
            cells[place - 2],
            cells[place - 1],
            cell,
        )
        for place, cell in enumerate(cells)
        if cell.metadata.get("nbgrader", {}).get("grade")
    ]


def exercise_cells(number: int, id: str, contract: str, answer: str) -> list[NotebookNode]:
    """Build the three cells of an exercise; the check reads answer_<number>."""
    hints = (f"<details><summary>Hint {n}</summary>\n\nThink.\n\n</details>" for n in (1, 2, 3))
    return [
        new_markdown_cell(f"### {number}. Do it\n\n`{contract}`\n\n{''.join(hints)}"),
        new_code_cell(answer, metadata={"nbgrader": {"grade_id": f"{id}-answer", **ANSWER}}),
        new_code_cell(
            f'check("{id}", answer_{number})',
            metadata={"nbgrader": {"grade_id": f"{id}-check", **CHECK}},
        ),
    ]


def solution_lines(exercise: Exercise) -> list[str]:
    """List the nontrivial lines of the solution of an exercise.

    Raises:
        ValueError: If the answer cell is not blank.
    """
    begun = exercise.answer.source.splitlines()
    lines = solution(exercise.id, exercise.answer.source).splitlines()
    return [
        line.strip() for line in lines if line not in begun and not TRIVIAL.fullmatch(line.strip())
    ]


def _complete(ids: Collection[str], declared: Mapping[str, Task | Question]) -> Iterator[str]:
    if sorted(ids) != sorted(declared):
        yield f"the exercises must be {sorted(declared)}, once each, got {sorted(ids)}"


def _cells(exercise: Exercise, declared: Task | Question) -> Iterator[str]:
    kinds = [exercise.task.cell_type, exercise.answer.cell_type, exercise.check.cell_type]
    if kinds != ["markdown", "code", "code"]:
        yield f"the cells must be the task, the answer and the check, got {kinds}"
        return
    for cell, kind, metadata in (
        (exercise.answer, "answer", ANSWER),
        (exercise.check, "check", CHECK),
    ):
        expected = {"grade_id": f"{exercise.id}-{kind}", **metadata}
        if cell.metadata.get("nbgrader") != expected:
            yield f"the metadata of the {kind} must be {expected}"
    # The first task may also contain the heading of the section.
    if len(re.findall(r"^### \d+\. \S", exercise.task.source, re.M)) != 1:
        yield "the task must have exactly one numbered heading ###"
    hints = re.findall(r"<details><summary>(.+?)</summary>", exercise.task.source)
    if len(hints) != 3 or len(set(hints)) != 3:
        yield f"the hints must be three with different titles, got {hints}"
    if isinstance(declared, Task) and f"`{declared.contract}`" not in exercise.task.source:
        yield f"the task must contain the contract `{declared.contract}`"
    if not re.fullmatch(rf'check\("{exercise.id}", \w+\)', exercise.check.source):
        yield f"unexpected check {exercise.check.source!r}"
    elif _checked(exercise) not in names_given(exercise.answer.source):
        yield f"the answer does not define {_checked(exercise)}, which is checked"


def _hidden(notebook: NotebookNode, exercises: list[Exercise]) -> Iterator[str]:
    """Find cells that reveal a solution or depend on an answer."""
    for cell in notebook.cells:
        if "BEGIN SOLUTION" in cell.source or "END SOLUTION" in cell.source:
            yield f"cell {cell.id} contains a solution marker"
    for exercise in exercises:
        others = [cell for cell in notebook.cells if cell.id != exercise.answer.id]
        for cell in others:
            if cell.cell_type != "code" or cell.id == exercise.check.id:
                continue
            if _checked(exercise) in _names(cell):
                yield f"{exercise.id}: cell {cell.id} uses {_checked(exercise)}, which may be blank"
        for line in solution_lines(exercise):
            if any(line in cell.source for cell in others):
                yield f"{exercise.id}: {line!r} of the solution is in another cell too"


def _checked(exercise: Exercise) -> str:
    return exercise.check.source.rpartition(", ")[2].removesuffix(")")


def _names(cell: NotebookNode) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}
