"""Run right and wrong answers through graders of PyTorch layers, and report which they accept.

The wrong answers come from two sources: the declarations of the exercises, and
`tests.course.wrong_answers`, which was written without looking at the declarations.
"""

import io
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.entries import ENTRIES, JUDGE, LEET, OURS, Entry
from benchmarks.report import table
from tests.course import wrong_by_hand  # noqa: F401 (collects its answers)
from tests.course.wrong_answers import RIGHT, wrong_answers
from twelve_lab.check import EXERCISES, MISTAKES, diagnose
from twelve_lab.check.catalogue import misconceptions_of, mistakes_of, shows
from twelve_lab.check.compare import Outcome, agree, exact_on_cpu, gradients, outcomes
from twelve_lab.exercises.declare import as_tensors

LINKS = {
    JUDGE: f"[{JUDGE}](https://pypi.org/project/torch-judge/)",
    LEET: f"[{LEET}](https://pypi.org/project/torchleet/)",
    OURS: OURS,
}
TEMPLATE = Path(__file__).with_name("graders.md")
# Judged by hand: permitted mistakes, reasons, and messages that name a mistake.
JUDGED = tomllib.loads(Path(__file__).with_name("graders.toml").read_text(encoding="utf-8"))


class Answer(NamedTuple):
    """An answer to an exercise; a right answer has no mistake."""

    function: Callable[..., Any]
    mistake: str = ""
    key: str = ""
    independent: bool = False


class Verdict(NamedTuple):
    """The decision of a grader, its CPU time, and whether it named the mistake."""

    accepted: bool
    seconds: float
    named: bool


class Row(NamedTuple):
    """The verdicts of one grader on one task."""

    task: str
    grader: str
    verdicts: dict[Answer, Verdict]


@cache
def corpus(exercise: str) -> list[Answer]:
    """Collect the right answers to an exercise, then one wrong answer per distinct result."""
    task = EXERCISES[exercise]
    exact = replace(task, by_gradient=task.by_gradient is not None)
    right = [task.right, task.solved, *(x.function for x in RIGHT if x.exercise == exercise)]
    a_class = isinstance(task.right, type)
    wrong = [
        Answer(x.function, _sentence(x.mistake or x.fault), x.fault, True)
        for x in wrong_answers(exercise)
    ]
    for id, versions in mistakes_of(task).items():
        wrong += [Answer(function, _sentence(id), id) for function in versions]
    wrong += [Answer(f, text, text) for text, f in misconceptions_of(task).items()]
    kept: list[Answer] = []
    results = []
    for answer in wrong:
        result = outcomes(exact, answer.function)
        same = any(all(agree(old[case], result[case]) for case in result) for old in results)
        if not same and shows(exact, answer.function):
            kept.append(answer)
            results.append(result)
    return [Answer(f) for f in right if f and isinstance(f, type) == a_class] + kept


def _sentence(mistake: str) -> str:
    return MISTAKES[mistake].sentence if mistake in MISTAKES else mistake


def result(entry: Entry, function: Callable[..., Any]) -> Outcome:
    """Adapt an answer to a grader, and call it on inputs that the task description permits."""
    inputs: list[Tensor] = []

    def draw(*shape: int) -> Tensor:
        inputs.append(torch.randn(*shape).requires_grad_())
        return inputs[-1]

    with exact_on_cpu():
        torch.manual_seed(0)
        try:
            values = as_tensors(entry.call(entry.adapt(function), draw))
            return Outcome(values, gradients(values, tuple(inputs)))
        except Exception as error:
            return Outcome(error=error)


def counted(name: str, entry: Entry) -> list[Answer]:
    """List the answers that count for another grader.

    A wrong answer counts only if its results differ from those of the right answer on the inputs of
    this grader. An answer that raises an error is left out, because every grader rejects it.
    """
    permitted = JUDGED["permitted"].get(f"{name}, {entry.grader}", "$")
    answers = [
        x for x in corpus(ENTRIES[name][0]) if not (x.mistake and re.match(permitted, x.key))
    ]
    right = result(entry, answers[0].function)
    results = {x: result(entry, x.function) for x in answers if x.mistake}
    return [
        x
        for x in answers
        if not x.mistake or (results[x].error is None and not agree(results[x], right))
    ]


def ask(entry: Entry, answer: Answer) -> Verdict:
    """Run an answer through another grader."""
    # Only the extra `graders` installs these packages.
    import torch_judge.progress
    import torchleet.runner

    made, said = entry.adapt(answer.function), io.StringIO()
    torch.manual_seed(0)
    # Both graders store the progress of a learner.
    with redirect_stdout(said), tempfile.TemporaryDirectory() as folder:
        torch_judge.progress.PROGRESS_PATH = f"{folder}/progress.json"
        torchleet.runner.PROGRESS = Path(folder) / "progress.json"
        start = time.process_time()
        if entry.grader == JUDGE:
            # torch-judge looks up the names in the globals of its caller.
            exec("check(id)", {"check": torch_judge.check, "id": entry.id, **made})
        else:
            torchleet.check(entry.id, **made)
        seconds = time.process_time() - start
    text = said.getvalue()
    accepted = not re.search("❌|💥", text) and "pass" in text
    return Verdict(accepted, seconds, names(entry.grader, text, answer))


def names(grader: str, text: str, answer: Answer) -> bool:
    """Return whether a message names the mistake, rather than only a difference in values."""
    pairs = JUDGED["names"][grader].items()
    return any(re.search(said, text) and re.match(keys, answer.key) for said, keys in pairs)


def diagnosed(exercise: str, answer: Answer) -> Verdict:
    """Run an answer through the checker of the course."""
    start = time.process_time()
    verdict = diagnose(exercise, answer.function)
    seconds = time.process_time() - start
    explained = verdict.kind in ("mistake", "misconception", "explained")
    # For some mistakes, the message names only the step that differs.
    sentence = explained and "in another way" not in verdict.message
    return Verdict(verdict.ok, seconds, sentence or names(OURS, verdict.message, answer))


def rows() -> Iterator[Row]:
    """Yield the verdicts of each grader on each task."""
    for name, (exercise, entries) in ENTRIES.items():
        print(f"grading {name}", flush=True)
        for entry in entries:
            yield Row(name, entry.grader, {x: ask(entry, x) for x in counted(name, entry)})
        answers = corpus(exercise)
        diagnose(exercise, answers[0].function)  # The first run imports and caches.
        yield Row(name, OURS, {x: diagnosed(exercise, x) for x in answers})


def cells(verdicts: Iterable[tuple[Answer, Verdict]]) -> tuple[str, ...]:
    """Format the numbers of accepted answers and named mistakes, and the median time."""
    pairs = list(verdicts)
    right = [verdict for answer, verdict in pairs if not answer.mistake]
    wrong = [verdict for answer, verdict in pairs if answer.mistake]
    milliseconds = 1000 * median(verdict.seconds for _, verdict in pairs)
    return (
        f"{sum(x.accepted for x in right)} of {len(right)}",
        f"{sum(x.accepted for x in wrong)} of {len(wrong)}",
        f"{sum(x.named for x in wrong)} of {len(wrong)}",
        f"{milliseconds:.0f} ms",
    )


def page(graded: Sequence[Row]) -> str:
    """Fill in the page template."""
    columns = ("right answers accepted", "wrong answers accepted", "mistakes named", "median time")
    total = [
        (LINKS[grader], str(len(mine)), *cells(chain(*(row.verdicts.items() for row in mine))))
        for grader in LINKS
        if (mine := [row for row in graded if row.grader == grader])
    ]
    each = [(row.task, row.grader, *cells(row.verdicts.items())) for row in graded]
    versions = (f"{name} {version(name).partition('+')[0]}" for name in (JUDGE, LEET, "torch"))
    wrong = {x for row in graded if row.grader == OURS for x in row.verdicts if x.mistake}
    return TEMPLATE.read_text(encoding="utf-8").format(
        versions=", ".join(versions),
        tasks=len(ENTRIES), wrong=len(wrong), independent=sum(x.independent for x in wrong),
        total=table(("grader", "tasks", *columns), total),
        each=table(("task", "grader", *columns), each),
        accepted="\n".join(filter(None, map(accepted, graded))),
    )  # fmt: skip


def accepted(row: Row) -> str:
    """List the wrong answers that a grader accepts, and why."""
    mistakes = [x.mistake for x, verdict in row.verdicts.items() if x.mistake and verdict.accepted]
    if not mistakes:
        return ""
    title = f"{row.task}, {row.grader}"
    lines = [f"### {title}", "", JUDGED["reasons"][title], ""]
    return "\n".join([*lines, *(f"- {each}" for each in dict.fromkeys(mistakes)), ""])


def main(output: str = "docs/graders.md") -> None:
    """Run all graders, and write the page."""
    Path(output).write_text(page(list(rows())), encoding="utf-8")
    print(f"written: {output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
