"""Plants every classic mistake in a copy of the package, and sees which test notices it first.

Usage: python tools/plant_mistakes.py [ID ...]

Writes docs/mistakes.md where no id is given. Fails where a mistake goes unnoticed, or where the
text that it replaces is no longer there.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

# The package itself is imported in functions only: a process that runs the tests must not have
# seen it, so that it finds the copy.
if TYPE_CHECKING:
    from twelve_lab.check import Mistake, Plant

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mistakes.md"
# What the tests import beside the package. torch itself reads the last two late: when it compares
# tensors, and when an optimizer is made.
PRELOADED = ["torch", "pytest", "jaxtyping", "beartype", "einops"]
PRELOADED += ["torch.distributed.tensor", "torch._dynamo"]
LIMIT = 300  # seconds after which a run counts as hanging


class Run(NamedTuple):
    """What a run of tests came to: the first test that failed, if any, and by what."""

    failed: str | None
    end: str
    seconds: float = 0.0


def plant(root: Path, found: "Plant") -> str:
    """Plant a mistake in a package.

    Args:
        root: The folder that holds src.
        found: What to replace, and where.

    Returns:
        The text of the file before.

    Raises:
        ValueError: If the text to replace does not stand in the file exactly once.
    """
    path = root / "src" / "twelve" / f"{found.module}.py"
    text = path.read_text(encoding="utf-8")
    if text.count(found.old) != 1:
        raise ValueError(f"{path.name} holds {text.count(found.old)} times: {found.old!r}")
    path.write_text(text.replace(found.old, found.new), encoding="utf-8")
    return text


def page(mistakes: list["Mistake"], noticed: dict[str, Run]) -> str:
    """Write the page.

    Args:
        mistakes: In the order of the table.
        noticed: The run in which a test failed, by the id of the mistake.
    """
    unnoticed = Run("none", "nothing")
    rows = [_row(mistake, noticed.get(mistake.id, unnoticed)) for mistake in mistakes]
    return (
        "# The classic mistakes\n\n"
        "Right shape, wrong numbers: each of these runs, or runs until all sizes differ. "
        "`twelve_lab.check` holds each of them once, beside the right answer. `make mutants` "
        "plants them in a copy of the package one after the other, runs the tests of the file, "
        "then those of the other steps, and writes this page. The last column says what the test "
        "saw: other numbers, axes that do not fit an annotation, or an error.\n\n"
        f"**{len(noticed)} of {len(mistakes)} are noticed.**\n\n"
        "| id | what was done, and what to do instead | taught in | planted in | first test that "
        "notices | by |\n|---|---|---|---|---|---|\n" + "".join(rows)
    )


def main(ids: list[str]) -> int:
    """Plant the mistakes and report.

    Args:
        ids: Which ones; all, and the page is written, if none is named.

    Returns:
        1 where one goes unnoticed or cannot be planted, else 0.
    """
    from twelve_lab.check import MISTAKES

    unknown = [id for id in ids if id not in MISTAKES]
    if unknown:
        raise SystemExit(f"no mistake is called {', '.join(unknown)}")
    chosen = [MISTAKES[id] for id in ids or MISTAKES]
    start, spent, noticed, wrong = time.perf_counter(), 0.0, {}, []
    with tempfile.TemporaryDirectory() as folder:
        copy = _copy(Path(folder))
        spent += _check_unplanted(copy, {mistake.plant.module for mistake in chosen})
        for mistake in chosen:
            try:
                run = _notice(copy, mistake.plant)
            except ValueError as error:
                wrong.append(f"{mistake.id} cannot be planted: {error}")
                continue
            spent += run.seconds
            print(f"{mistake.id:28} {run.seconds:4.1f} s  {run.end:8} {run.failed}", flush=True)
            if run.failed is None:
                wrong.append(f"{mistake.id} goes unnoticed: {run.end}")
            else:
                noticed[mistake.id] = run
    if not ids:
        PAGE.write_text(page(chosen, noticed), encoding="utf-8")
    print(f"{len(noticed)} of {len(chosen)} noticed, {spent:.0f} CPU s", end=", ")
    print(f"{time.perf_counter() - start:.0f} s by the clock")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def _row(mistake: "Mistake", run: Run) -> str:
    from twelve_lab.course import STEPS

    step = next(step for step in STEPS if step.number == mistake.step)
    file = f"{mistake.plant.module}.py"
    cells = (
        f"`{mistake.id}`",
        mistake.sentence,
        f"[{step.number}](../{step.notebook})",
        f"[{file}](../src/twelve/{file})",
        f"`{run.failed}`".replace("|", "\\|"),
        run.end,
    )
    return f"| {' | '.join(cells)} |\n"


def _copy(folder: Path) -> Path:
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def _tests(module: str) -> tuple[list[str], list[str]]:
    """Name the tests of a module, and those of all other steps."""
    from twelve_lab.course import STEPS

    stems = [step.stem for step in STEPS if (ROOT / "src/twelve" / f"{step.stem}.py").exists()]
    others = [f"tests/unit/test_{at}.py" for at in stems if at != module]
    return [f"tests/unit/test_{module}.py"], others


def _check_unplanted(copy: Path, modules: set[str]) -> float:
    """Refuse to begin where a test fails anyway: it would notice everything."""
    run = _run(copy, sorted(f"tests/unit/test_{module}.py" for module in modules))
    if run.end != "all passed":
        raise SystemExit(f"without any mistake: {run.failed} {run.end}")
    return run.seconds


def _notice(copy: Path, found: "Plant") -> Run:
    """Plant a mistake, ask the module's own tests, then all others, and take it out again."""
    before = plant(copy, found)
    try:
        own, others = _tests(found.module)
        first = _run(copy, own)
        if first.failed is not None:
            return first
        second = _run(copy, others)
        return second._replace(seconds=first.seconds + second.seconds)
    finally:
        (copy / "src" / "twelve" / f"{found.module}.py").write_text(before, encoding="utf-8")


def _run(copy: Path, files: list[str]) -> Run:
    """Run tests in a fresh process that has loaded torch and nothing of ours."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_pytest, args=(copy, files, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(LIMIT):
            return Run(None, f"no end after {LIMIT} s")
        return ours.recv()
    except EOFError:
        return Run(None, "the process died")
    finally:
        process.join(5)
        process.kill()


def _kind(report: str) -> str:
    """Say by what a test failed, which the last line of its report tells."""
    error = re.split(r"[ .]", report.strip().splitlines()[-1])[-1]
    return {"AssertionError": "numbers", "TypeCheckError": "axes"}.get(error, "error")


class _First:
    """A plugin that keeps the name of the first test that fails, and how all ended."""

    failed: str | None = None
    end = "all passed"

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed and self.failed is None:
            self.failed, self.end = report.nodeid, _kind(report.longreprtext)

    def pytest_collectreport(self, report) -> None:
        # A file that cannot be read has noticed nothing: such a plant is no silent mistake.
        if report.failed:
            last = report.longreprtext.strip().splitlines()[-1]
            self.end = f"{report.nodeid} cannot be collected: {last}"


def _pytest(copy: Path, files: list[str], answer: Connection) -> None:
    import pytest

    os.chdir(copy)
    # The step's tests need no plugin, and reading them all takes longer than most of the tests.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Two plants may leave a file of one size within one second: compiled code would pass for new.
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(copy / "src"), str(copy)]
    first, quiet = _First(), io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files], plugins=[first])
    known = code == pytest.ExitCode.OK or first.end != "all passed"
    end = first.end if known else f"pytest ended with {code!r}"
    answer.send(Run(first.failed, end, time.process_time()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="mistakes to plant; all if none")
    sys.exit(main(parser.parse_args().ids))
