"""Writes the results of all single edits of the right answers into check/fingerprints.json.

Usage: python -m tools.write_fingerprints
"""

import json
import time
from pathlib import Path

import torch

from twelve_lab.check import search
from twelve_lab.check.catalogue import TASKS
from twelve_lab.check.compare import Outcome, agree, outcomes
from twelve_lab.check.edits import Edit
from twelve_lab.exercises.declare import Answer, Task

SECONDS = 2.0  # of CPU time; an edit may make a loop endless
FILE = Path(search.__file__).with_name(search.TABLE)


def page() -> str:
    """Return the table: of each task the number of a result, and the number of the edit."""
    lines = (f'"{name}": {json.dumps(fingerprints(task))}' for name, task in TASKS.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def fingerprints(task: Task) -> list[tuple[float, int]]:
    """List the wrong results of single edits: for each the likeliest edit and one elsewhere."""
    right = outcomes(task, task.right)
    found: dict[float, list[tuple[Edit, int]]] = {}
    with search.quiet():
        for number, (program, edit) in enumerate(search.all_edits(task)):
            results = _results(task, search.edited(task, program, edit))
            # A wrong shape has a message of its own.
            if results is None or _shapes(results) != _shapes(right):
                continue
            if all(agree(results[case], right[case]) for case in right):
                continue
            mark = float(f"{search.fingerprint(results.values()):.7g}")
            found.setdefault(mark, []).append((edit, number))
    rows = []
    for mark, hits in found.items():
        first = min(hits, key=lambda hit: hit[0].cost)
        others = [
            hit
            for hit in hits
            if hit[0].operator != first[0].operator and hit[0].line != first[0].line
        ]
        second = sorted(others, key=lambda hit: hit[0].cost)[:1]
        rows += [(mark, number) for _, number in (first, *second)]
    return sorted(rows)


def _results(task: Task, answer: Answer | None) -> dict[str, Outcome] | None:
    """Run an edited answer; None if it is not valid Python, or does not end soon."""
    found: list[dict[str, Outcome] | None] = [None]

    def run() -> bool:
        found[0] = search.results_of(task, answer)
        return True

    end = time.thread_time() + SECONDS
    return found[0] if answer and search.in_time(end, run) else None


def _shapes(results: dict[str, Outcome]) -> list[list[torch.Size]]:
    return [[x.shape for x in result.values] for result in results.values()]


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
