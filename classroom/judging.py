"""What a class hands in, what it deserves, and whether it is all there: for the load test.

Nothing here needs a hub.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HEADING = "### What a class costs, and what faults do to it"
STUB = "# Your answer goes here."
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
KINDS = ("right", "wrong", "none")
# What is written instead of a solution, and a piece of what `check` says to that.
MISTAKES = {
    "04-key-zeroed": ("weights_of_dog = [1.0, 0.0]", "the score 0, not the weight 0."),
    "04-keys-reversed": ('what_changes = {"scores", "weights", "context"}', "Not all of them:"),
    "04-attention": ("return (query @ key.mT).softmax(-1) @ value", "scores are not scaled"),
}
Cells = list[dict[str, Any]]
Marks = dict[str, float]


def answer_cells(cells: Cells) -> dict[str, str]:
    """Take the cells for answers out of a lesson, or out of the teacher's copy.

    Args:
        cells: Of the notebook; solutions stand between the marks of nbgrader.

    Returns:
        Their sources by exercise, in the order of the lesson, without those marks.
    """
    found = {}
    for cell in cells:
        marks = cell["metadata"].get("nbgrader", {})
        if marks.get("solution"):
            lines = "".join(cell["source"]).split("\n")
            kept = [line for line in lines if line.strip() not in (BEGIN, END)]
            found[marks["grade_id"].removesuffix("-answer")] = "\n".join(kept)
    return found


def answers(
    given: Mapping[str, str], right: Mapping[str, str], kind: str, turn: int
) -> dict[str, str]:
    """Say what a student writes.

    Args:
        given: The cells as they wait for an answer, by exercise.
        right: The same cells, solved.
        kind: One of `KINDS`.
        turn: The how many-th of that kind: who is wrong makes one mistake, two, three, one, ...

    Returns:
        The sources of the cells by exercise; of an exercise that is not answered there is none.
    """
    if kind == "none":
        return {}
    wrong = list(right)[: 1 + turn % len(right)] if kind == "wrong" else []
    return {**right, **{one: given[one].replace(STUB, MISTAKES[one][0]) for one in wrong}}


def due(right: Mapping[str, str], written: Mapping[str, str]) -> Marks:
    """Give the marks that answers deserve.

    Args:
        right: The solutions, by exercise.
        written: What the student wrote, by exercise.
    """
    return {one: float(written.get(one) == source) for one, source in right.items()}


def due_reply(exercise: str, right: Mapping[str, str], written: Mapping[str, str]) -> str:
    """Give a piece of what `check` has to say to an answer."""
    if exercise not in written:
        return f"{exercise}: Not started yet"
    return f"✓ {exercise}: right" if written[exercise] == right[exercise] else MISTAKES[exercise][1]


def lost(saved: Mapping[str, bytes], found: Mapping[str, bytes], where: str) -> list[str]:
    """Name every student whose work is not found as it was saved, byte for byte.

    Args:
        saved: What each one saved, by name.
        found: What is there, by name.
        where: In words.
    """
    return [
        f"{name}: {where} {'differs from what was saved' if name in found else 'there is nothing'}"
        for name, content in saved.items()
        if found.get(name) != content
    ]


def unanswered(saved: bytes, written: Mapping[str, str]) -> list[str]:
    """Name the exercises whose answer is not in a saved notebook.

    Args:
        saved: The notebook.
        written: What the student wrote, by exercise.
    """
    there = answer_cells(json.loads(saved)["cells"])
    return [one for one, source in written.items() if there.get(one) != source]


def misjudged(due: Mapping[str, Marks], given: Mapping[str, Marks]) -> list[str]:
    """Name every student whose marks are not those that are due.

    Args:
        due: By name, the marks of each exercise.
        given: By name, the marks that were given.
    """
    return [
        f"{name}: {given.get(name)} instead of {marks}"
        for name, marks in due.items()
        if given.get(name) != marks
    ]


def spread(values: Iterable[float], unit: str, digits: int = 1) -> str:
    """Write the median of some values, and the worst."""
    values = list(values)
    return f"{statistics.median(values):.{digits}f} {unit}, worst {max(values):.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = [head, ["---"] * len(head), *([one.replace("|", r"\|") for one in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page(text: str, section: str) -> str:
    """Put the two tables into the page.

    Args:
        text: The page as it is: its section is replaced, up to the next heading.
        section: What is to stand there.

    Raises:
        ValueError: The page has no such section.
    """
    before, heading, rest = text.partition(f"{HEADING}\n")
    if not heading:
        raise ValueError(f"the page has no heading {HEADING!r}")
    lines = rest.split("\n")
    end = next(
        (at for at, line in enumerate(lines) if line.startswith(("## ", "### "))), len(lines)
    )
    return f"{before}{heading}\n{section}\n" + "\n".join(lines[end:])
