"""Counts the words and cells of each lesson, and the problems that the lesson rules report.

Usage: python -m tools.count_lessons [PATHS]

Without paths it counts all notebooks. For named notebooks it prints each problem.
"""

import sys
from pathlib import Path

import nbformat

from tests.course.lesson_rules import count, kind, problems
from twelve_lab.course import pages

ROOT = Path(__file__).resolve().parent.parent
# Words that a reader reads in a minute.
PACE = 200
HEAD = ("page", "cells", "prose", "words", "idea", "before", "answer", "bare", "exercises",
        "minutes", "problems", "helpers")  # fmt: skip


def row(path: Path) -> tuple[str, ...]:
    """Count one notebook.

    Args:
        path: The notebook.

    Returns:
        The text of each column of HEAD.
    """
    notebook = nbformat.read(path, as_version=4)
    page = count(notebook)
    numbers = (
        page.cells, page.prose, page.words, page.idea or "-", page.before, page.answer or "-",
        page.bare, page.exercises, round(page.words / PACE), len(problems(notebook, path)),
    )  # fmt: skip
    name = f"{kind(path)} {path.stem}"
    return (name, *map(str, numbers), " ".join(page.helpers))


def table(rows: list[tuple[str, ...]]) -> str:
    """Format rows as a table with right-aligned numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *numbers, last in rows:
        columns = zip(numbers, widths[1:-1], strict=True)
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in columns), last]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    named = [Path(name).resolve() for name in sys.argv[1:]]
    print(table([HEAD, *map(row, named or pages(ROOT))]))
    for path in named:
        for line in problems(nbformat.read(path, as_version=4), path):
            print(f"{kind(path)} {path.stem}: {line}")
