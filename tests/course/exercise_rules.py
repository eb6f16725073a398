"""Rules for the exercises of a stored notebook, so that they can be answered and graded.

An exercise is three consecutive cells: the task, the answer, which is blank, and the check. A rule
takes a notebook and yields its violations.
"""

import ast
import io
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import redirect_stdout
from typing import NamedTuple

from nbformat import NotebookNode
from torch import nn

from tests.course.notebook_rules import code_cells
from twelve_lab.check import Mistake, Question, Task, check
from twelve_lab.check.solve import solution

MAX_WORDS = 1_200
# Lines of a solution that may appear in other cells: they reveal nothing.
TRIVIAL = re.compile(r"return \w+|(from .+ )?import .+|super\(\)\.__init__\(\)|\W*")


class Exercise(NamedTuple):
    """The three cells of an exercise.

    Args:
        id: As "06-split-heads".
        task: The task, with hints.
        answer: The cell for the answer.
        check: The call that checks the answer.
    """

    id: str
    task: NotebookNode
    answer: NotebookNode
    check: NotebookNode


def problems(
    notebook: NotebookNode,
    stem: str,
    exercises: Mapping[str, Task | Question],
    mistakes: Mapping[str, Mistake],
    other: NotebookNode | None = None,
) -> list[str]:
    """Apply every rule.

    Args:
        notebook: The notebook.
        stem: Its name, which begins with the number of the step.
        exercises: The declared exercises, by id.
        mistakes: The declared mistakes, by id.
        other: Another page with exercises of the step, such as the workshop of a lesson. Its
            exercises of other steps are ignored.
    """
    own = {id: one for id, one in exercises.items() if id.startswith(f"{stem[:2]}-")}
    if not own:
        return []
    here = exercises_of(notebook)
    elsewhere = exercises_of(other) if other else []
    ids = [one.id for one in here] + [one.id for one in elsewhere if one.id in own]
    taught = [id for id, one in mistakes.items() if one.step == stem[:2]]
    here_and_own = [one for one in here if one.id in own]
    return [
        *_complete(ids, own, stem),
        *(line for one in here_and_own for line in _cells(one, own[one.id])),
        *_hidden(notebook, here_and_own),
        *_short(here),
        *_broken(notebook, taught),
    ]


def exercises_of(notebook: NotebookNode) -> list[Exercise]:
    """Collect the exercises in order, by the nbgrader metadata of their checks."""
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


def solution_lines(one: Exercise) -> list[str]:
    """List the lines that solve an exercise, without trivial ones.

    Raises:
        ValueError: If the answer cell is not blank.
    """
    begun = one.answer.source.splitlines()
    lines = solution(one.id, one.answer.source).splitlines()
    return [
        line.strip() for line in lines if line not in begun and not TRIVIAL.fullmatch(line.strip())
    ]


def _complete(ids: Collection[str], own: Mapping[str, Task | Question], stem: str) -> Iterator[str]:
    if sorted(ids) != sorted(own):
        yield f"the exercises are {sorted(ids)}; wanted, once each: {sorted(own)}"
    if not "01" <= stem[:2] <= "12":
        return
    code = sum(isinstance(one, Task) for one in own.values())
    if len(own) < 4 or code < 2:
        yield f"{len(own)} exercises, {code} of them in code; at least 4, and 2 of them in code"


def _cells(one: Exercise, asked: Task | Question) -> Iterator[str]:
    kinds = [one.task.cell_type, one.answer.cell_type, one.check.cell_type]
    if kinds != ["markdown", "code", "code"]:
        yield f"{one.id}: the cells are {kinds}; wanted are the task, the answer and the check"
        return
    for cell, kind, flags in (
        (one.answer, "answer", {"grade": False, "locked": False, "solution": True}),
        (one.check, "check", {"grade": True, "locked": True, "points": 1, "solution": False}),
    ):
        wanted = {"grade_id": f"{one.id}-{kind}", "schema_version": 3, "task": False, **flags}
        if cell.metadata.get("nbgrader") != wanted:
            yield f"{one.id}: the metadata of the {kind} are not {wanted}"
    # The first task may also contain the heading of the section.
    if len(re.findall(r"^### \d+\. \S", one.task.source, re.M)) != 1:
        yield f"{one.id}: the task has not one heading ### with its number"
    hints = re.findall(r"<details><summary>(.+?)</summary>", one.task.source)
    if len(hints) != 3 or len(set(hints)) != 3:
        yield f"{one.id}: the hints are {hints}, expected three with different titles"
    if isinstance(asked, Task) and f"`{asked.contract}`" not in one.task.source:
        yield f"{one.id}: the task does not hold the contract `{asked.contract}`"
    try:
        solution(one.id, one.answer.source)
    except (ValueError, SyntaxError) as error:
        yield f"{one.id}: the answer cannot be solved: {error}"
    if not re.fullmatch(rf'check\("{one.id}", \w+\)', one.check.source):
        yield f"{one.id}: the check is {one.check.source!r}"
    elif _checked(one) not in _given(one.answer):
        yield f"{one.id}: the answer does not give {_checked(one)}, which is checked"
    elif [output.get("text") for output in one.check.outputs] != [_said_of_a_blank(one)]:
        yield f"{one.id}: the check does not show what it says of a blank answer"


def _said_of_a_blank(one: Exercise) -> str:
    here: dict[str, object] = {"nn": nn}
    exec(one.answer.source, here)
    with redirect_stdout(io.StringIO()) as said:
        check(one.id, here[_checked(one)])
    return said.getvalue()


def _hidden(notebook: NotebookNode, found: list[Exercise]) -> Iterator[str]:
    """Find a solution that another cell reveals, and a cell that needs an answer."""
    for cell in notebook.cells:
        if "BEGIN SOLUTION" in cell.source or "END SOLUTION" in cell.source:
            yield f"the cell {cell.id} holds a mark of a solution"
    for one in found:
        others = [cell for cell in notebook.cells if cell.id != one.answer.id]
        for cell in others:
            if cell.cell_type != "code" or cell.id == one.check.id:
                continue
            if _checked(one) in _names(cell):
                yield f"{one.id}: the cell {cell.id} uses {_checked(one)}, which may be blank"
        try:
            lines = solution_lines(one)
        except (ValueError, SyntaxError):
            continue  # another rule reports this cell
        for line in lines:
            if any(line in cell.source for cell in others):
                yield f"{one.id}: {line!r} of the solution stands in another cell too"


def _checked(one: Exercise) -> str:
    return one.check.source.rpartition(", ")[2].removesuffix(")")


def _given(cell: NotebookNode) -> set[str]:
    """List the names that an answer cell defines."""
    tree = ast.parse(cell.source)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return defined | {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _names(cell: NotebookNode) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}


def _short(found: list[Exercise]) -> Iterator[str]:
    words = sum(len(one.task.source.split()) for one in found)
    if words > MAX_WORDS:
        yield f"{words} words of exercises, at most {MAX_WORDS}"


def _broken(notebook: NotebookNode, ids: list[str]) -> Iterator[str]:
    """Find a mistake that a page with the declared mistakes of its step does not run."""
    code = "\n".join(cell.source for cell in code_cells(notebook))
    if re.search(r"\b(MISTAKES\[|wrong_versions\()", code):
        yield from (f"no cell runs {id}" for id in ids if f'"{id}"' not in code)
