"""Writes the parts generated from the list of steps: the README's table and the API of `twelve`.

Usage: python -m tools.write_steps
"""

import textwrap
from collections.abc import Iterable
from pathlib import Path

from twelve_lab.course import DRILLS, STEPS, Drill, Step

ROOT = Path(__file__).resolve().parent.parent
README, EXPORTS = "README.md", "src/twelve/__init__.py"
HEAD = "| lesson | question | in → out | notebook |\n|---|---|---|---|\n"
OPENING = '''"""The Transformer, layer by layer, on twelve numbers you can check by hand.

The names are in reading order: each layer uses only those above it.
"""

# Written by `make catalogue` from the list of steps.
# isort: off
'''


def row(step: Step, root: Path) -> str:
    """Return the row of a step in the README's table, with a link to its workshop if it has one."""
    # A one-character arrow does not break across lines.
    contract = step.contract.replace("<->", "↔").replace("->", "→")
    notebook = f"[{step.title}]({step.notebook})"
    if (root / step.workshop).exists():
        notebook += f", [workshop]({step.workshop})"
    return f"| {step.number} | {step.question} | {contract} | {notebook} |\n"


def readme(text: str, steps: Iterable[Step], root: Path = ROOT) -> str:
    """Replace the table of the steps in the README.

    Args:
        text: Content of the README.
        steps: Steps of the course.
        root: Root of the project.
    """
    start = text.index(HEAD) + len(HEAD)
    end = text.index("\n\n", start) + 1
    return text[:start] + "".join(row(step, root) for step in steps) + text[end:]


def exports(steps: Iterable[Step | Drill]) -> str:
    """Format the package's `__init__.py`, which imports the public names in reading order.

    Args:
        steps: The steps, then the tasks to write by hand.
    """
    steps = [step for step in steps if step.exports]
    imports = "".join(_import(step) for step in steps)
    names = ", ".join(f'"{name}"' for step in steps for name in step.exports) + ","
    head = "__all__ = [  # noqa: RUF022 (reading order, not the alphabet)\n"
    listed = textwrap.fill(names, 100, initial_indent="    ", subsequent_indent="    ")
    return f"{OPENING}{imports}\n{head}{listed}\n]  # fmt: skip\n"


def _import(step: Step | Drill) -> str:
    line = f"from twelve.{step.stem} import {', '.join(step.exports)}\n"
    if len(line) <= 100:
        return line
    names = "".join(f"    {name},\n" for name in step.exports)
    return f"from twelve.{step.stem} import (\n{names})\n"


def write(root: Path, steps: Iterable[Step], drills: Iterable[Drill]) -> None:
    """Write the README's table and the package's `__init__.py`.

    Args:
        root: Root of the project.
        steps: Steps of the course.
        drills: Tasks to write by hand.
    """
    text = (root / README).read_text(encoding="utf-8")
    (root / README).write_text(readme(text, steps, root), encoding="utf-8")
    (root / EXPORTS).write_text(exports([*steps, *drills]), encoding="utf-8")


if __name__ == "__main__":
    write(ROOT, STEPS, DRILLS)
