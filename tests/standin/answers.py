"""Judge all known answers, and print the verdicts.

    python -m tests.standin.answers quick|all

With browser/ first in PYTHONPATH, the script uses the stand-in for PyTorch.
"""

import json
import linecache
import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch

from tests.course import wrong_answers, wrong_by_hand  # noqa: F401
from twelve_lab.check import EXERCISES, diagnose, search
from twelve_lab.check.catalogue import misconceptions_of, mistakes_of
from twelve_lab.check.prediction import computed
from twelve_lab.exercises.declare import Question

OUTSIDE = Path(os.environ.get("OUTSIDE", Path(__file__).with_name("outside_answers.json")))
EDITS = 40  # limit for each search for a repair, regardless of time


if sys.platform == "emscripten":
    from js import process

    def clock() -> float:
        """Return the CPU time of Node in seconds."""
        used = process.cpuUsage()
        return (used.user + used.system) / 1e6
else:
    clock = time.process_time


def answers(kind: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the id of an exercise, a label and an answer."""
    for id, exercise in EXERCISES.items():
        mistakes = mistakes_of(exercise)
        if kind == "quick":
            mistakes = {name: versions[:1] for name, versions in list(mistakes.items())[:1]}
        known = {"right": [exercise.right], **mistakes}
        if kind == "all":
            known |= {text: [wrong] for text, wrong in misconceptions_of(exercise).items()}
        if getattr(exercise, "solved", None):
            known["solved"] = [exercise.solved]
        for label, versions in known.items():
            for number, version in enumerate(versions):
                yield id, f"{label} {number}", version
    for answer in wrong_answers.RIGHT:
        yield answer.exercise, answer.fault, answer.function
    if kind == "all":
        for answer in wrong_answers.wrong_answers():
            yield answer.exercise, answer.fault, answer.function
        yield from outside()


def outside() -> Iterator[tuple[str, str, Any]]:
    """Yield answers by people who had not seen the declarations of the exercises."""
    stored = json.loads(OUTSIDE.read_text(encoding="utf-8"))
    for number, (id, label, source) in enumerate(stored["answers"]):
        file, text = f"<answer {number}>", f"{stored['before']}\n\n{source}\n"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        names: dict[str, Any] = {"__name__": "answer"}
        exec(compile(text, file, "exec"), names)
        name = re.match(r"(?:def|class) (\w+)", source)[1]
        yield id, f"{label} {number}", names[name]


def main(kind: str) -> None:
    """Judge the answers, and print each verdict as JSON."""
    torch.set_default_dtype(torch.float64)
    real = search.in_time

    def in_time(end: float, test: Any) -> bool:
        counted, search._clock = search._clock, clock
        end = clock() + 1
        try:
            return real(end, test)
        finally:
            # An edit that runs forever ends the search.
            search._clock = counted if clock() < end else lambda: EDITS + 1

    search.in_time = in_time
    for id, label, answer in answers(kind):
        search._clock, search.CPU_SECONDS = count().__next__, EDITS
        start = clock()
        try:
            if isinstance(EXERCISES[id], Question):
                answer = computed(answer)
            v = diagnose(id, answer)
            verdict = [v.kind, v.mistake, v.message, v.note, v.proved, v.change]
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            verdict = [type(error).__name__, str(error)]
        print(json.dumps([id, label, verdict, clock() - start]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
