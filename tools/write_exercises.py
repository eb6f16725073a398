"""Writes the table of the exercises into docs/teaching.md: each skill and the detected mistakes.

Usage: python tools/write_exercises.py
"""

from pathlib import Path

from twelve_lab.check import EXERCISES, Question
from twelve_lab.check.catalogue import named

PAGE = Path(__file__).parent.parent / "docs" / "teaching.md"
HEADING = "## What each exercise measures"
KINDS = {tuple: "shape", frozenset: "choice"}


def page(text: str) -> str:
    """Replace the table in the page.

    Args:
        text: Content of the page; everything from the table's heading onwards is replaced.
    """
    before = text[: text.index(HEADING)]
    return (
        f"{before}{HEADING}\n\n*Code* is a function or a class, *number* one number or several, "
        "*choice* one or several words. The last column holds what `check` can call by name; [the "
        "cards](spot_the_bug.md) have the sentences.\n\n"
        "| exercise | kind | what it measures | mistakes it can name |\n|---|---|---|---|\n"
        + "".join(_row(id) for id in EXERCISES)
    )


def _row(id: str) -> str:
    exercise = EXERCISES[id]
    kind = KINDS.get(type(exercise.right()), "number") if isinstance(exercise, Question) else "code"
    known = " ".join(f"`{mistake}`" for mistake in named(exercise)) or "none"
    return f"| `{id}` | {kind} | {exercise.measures} | {known} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
