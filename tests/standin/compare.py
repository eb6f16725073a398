"""Compare the verdicts of the stand-in for PyTorch with those of PyTorch.

    python -m tests.standin.compare

The script judges all answers with PyTorch, and with the stand-in in Pyodide under Node. It writes
browser/not_offered.json, which maps each exercise that the page must not offer to the reason.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE, PYODIDE = ROOT / "browser", ROOT / "node_modules" / "pyodide"
FILE = PAGE / "not_offered.json"
SECONDS = 2.0  # of CPU time for a verdict in Node; the page does not offer slower tasks
PACKAGES = ("einops", "filelock", "jaxtyping", "typing_extensions", "wadler_lindig")


class Judged(NamedTuple):
    """An answer and its verdict."""

    id: str
    label: str
    verdict: list[str | None]
    seconds: float


def judge(kind: str, where: str) -> list[Judged]:
    """Judge answers in another process.

    Args:
        kind: "quick" for the right answers and one classic mistake each, "all" for all answers.
        where: "pytorch", "standin" or "pyodide".
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TWELVE_PROGRESS": ""}
    command = [sys.executable, "-m", "tests.standin.answers", kind]
    if where == "standin":
        environment["PYTHONPATH"] = str(PAGE)
    with tempfile.TemporaryDirectory() as folder:
        if where == "pyodide":
            _copy_packages(Path(folder))
            runner = Path(__file__).with_name("runner.mjs")
            command = ["node", str(runner), str(PYODIDE), folder, str(ROOT), kind]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    # Python 3.14 says "division by zero" for floats too.
    text = done.stdout.replace("float division by zero", "division by zero")
    return [Judged(*json.loads(line)) for line in text.splitlines()]


def _copy_packages(folder: Path) -> None:
    for package in PACKAGES:
        for file in distribution(package).files or ():
            if file.suffix == ".py" or file.name == "METADATA":
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), target)


def differences(left: list[Judged], right: list[Judged]) -> Iterator[tuple[Judged, Judged]]:
    """Yield the pairs of answers whose verdicts differ."""
    for x, y in zip(left, right, strict=True):
        if x[:3] != y[:3]:
            yield x, y


def not_offered() -> dict[str, str]:
    """Read the exercises that the page does not offer, with their reasons."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def reasons(pytorch: list[Judged], pyodide: list[Judged]) -> dict[str, str]:
    """Return the exercises that the page must not offer, with the reasons."""
    changed = {
        x.id: f"{x.label}: {y.verdict[1]}" if len(y.verdict) == 2 else f"{x.label}: another verdict"
        for x, y in differences(pytorch, pyodide)
    }
    return dict(sorted((slow(pyodide, SECONDS) | changed).items()))


def slow(judged: list[Judged], seconds: float) -> dict[str, str]:
    """Return exercises with a slow verdict, except searches, whose time the page limits."""
    searched = ("numbers", "nan or inf")
    some = (x for x in judged if x.seconds > seconds and x.verdict[0] not in searched)
    return {x.id: f"{x.label}: the verdict takes more than {SECONDS:.0f} s" for x in some}


def main() -> None:
    """Write browser/not_offered.json."""
    excluded = reasons(judge("all", "pytorch"), judge("all", "pyodide"))
    FILE.write_text(json.dumps(excluded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
