"""Writes the results of all single edits of the right answers into check/fingerprints.json.

Usage: python -m tools.write_fingerprints [--all]

Running all edits takes minutes. Therefore fingerprint_inputs.json stores the inputs of each task,
and only tasks whose inputs changed are recomputed. Use --all after a change to the functions below
or to `check/search.py`.
"""

import ast
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twelve_lab.check import search
from twelve_lab.check.catalogue import TASKS
from twelve_lab.check.compare import Outcome, agree, outcomes
from twelve_lab.check.edits import Edit
from twelve_lab.exercises.declare import Answer, Task
from twelve_lab.exercises.edit import IGNORED_FIELDS
from twelve_lab.exercises.parts import parts

SECONDS = 2.0  # of CPU time; an edit may cause an infinite loop
FILE = Path(search.__file__).with_name(search.TABLE)
INPUTS = Path(__file__).with_name("fingerprint_inputs.json")


def write(everything: bool) -> None:
    """Write both files.

    Args:
        everything: Whether to recompute tasks whose inputs did not change.
    """
    table, old = (json.loads(path.read_text(encoding="utf-8")) for path in (FILE, INPUTS))
    new = {name: inputs(task) for name, task in TASKS.items()}
    changed = [name for name in TASKS if everything or new[name] != old.get(name)]
    table |= {name: fingerprints(TASKS[name]) for name in changed}
    for path, rows in ((FILE, table), (INPUTS, new)):
        lines = (f'"{name}": {json.dumps(rows[name])}' for name in TASKS)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def inputs(task: Task) -> list[str | float]:
    """Return the inputs that determine the results of the edits.

    Returns:
        A hash of all edits and of the arguments of the cases, a fingerprint of the tensors among
        the arguments, and a fingerprint of the right results. The fingerprints are rounded, because
        the last digits may differ on another machine.
    """
    mark = hashlib.sha256()
    for program, edit in search.all_edits(task):
        line = edit.line - program.tree.lineno
        new = [tuple(_nodes(node)) for _, node in edit.changes]
        mark.update(repr((edit.operator, line, new)).encode())
    for part in parts(task.right):
        mark.update(repr(tuple(_nodes(getattr(search.read(part), "tree", None)))).encode())
    tensors: list[Outcome] = []
    for case, given in task.cases().items():
        mark.update(repr((case, _plain(given))).encode())
        tensors.append(Outcome(tuple(x for x in given if isinstance(x, Tensor))))
    right = outcomes(task, task.right).values()
    numbers = (float(f"{search.fingerprint(each):.7g}") for each in (tensors, right))
    return [mark.hexdigest()[:16], *numbers]


def _plain(value: Any) -> Any:
    """Replace functions, layers and tensors with their types, because their addresses change."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, int | float | str) else type(value).__name__


def _nodes(node: Any) -> Iterator[Any]:
    """Yield the content of a syntax tree, independently of the Python version."""
    if isinstance(node, list):
        for each in node:
            yield from _nodes(each)
    elif isinstance(node, ast.AST):
        yield type(node).__name__
        for name, value in ast.iter_fields(node):
            if name not in IGNORED_FIELDS and value not in (None, []):
                yield name
                yield from _nodes(value)
    else:
        yield node


def fingerprints(task: Task) -> list[tuple[float, int]]:
    """List the wrong results of single edits, each with the likeliest edit and one elsewhere."""
    right = outcomes(task, task.right)
    found: dict[float, list[tuple[Edit, int]]] = {}
    with search.quiet():
        for number, (program, edit) in enumerate(search.all_edits(task)):
            results = _results(task, search.edited(task, program, edit))
            # A wrong shape has its own message.
            if results is None or _shapes(results) != _shapes(right):
                continue
            if all(agree(results[case], right[case]) for case in right):
                continue
            mark = float(f"{search.fingerprint(results.values()):.7g}")
            found.setdefault(mark, []).append((edit, number))
    rows = []
    for mark, hits in found.items():
        hits.sort(key=lambda hit: hit[0].cost)
        first, operator, line = hits[0], hits[0][0].operator, hits[0][0].line
        others = [hit for hit in hits if hit[0].operator != operator and hit[0].line != line]
        rows += [(mark, number) for _, number in (first, *others[:1])]
    return sorted(rows)


def _results(task: Task, answer: Answer | None) -> dict[str, Outcome] | None:
    """Run an edited answer; return None if it is not valid Python or exceeds the time limit."""
    found: list[dict[str, Outcome] | None] = [None]

    def run() -> bool:
        found[0] = search.results_of(task, answer)
        return True

    end = time.thread_time() + SECONDS
    return found[0] if answer and search.in_time(end, run) else None


def _shapes(results: dict[str, Outcome]) -> list[list[torch.Size]]:
    return [[x.shape for x in result.values] for result in results.values()]


if __name__ == "__main__":
    write(everything="--all" in sys.argv[1:])
