"""Mutation tests: change the code in a copy, and see which test notices.

Usage: python -m tests.mutants.run [ID ...]
       python -m tests.mutants.run --random N [--seed S] [FILE or FOLDER ...]

The first form plants the classic mistakes. It runs the test that docs/mistakes.md names, then the
unit tests of the layer, and writes that page if no id is named. The second form draws N mutations
of src, or of the files named, and runs the nearest tests first. Both forms fail if a change goes
unnoticed.

Two runs work in parallel, each forked from a process that has loaded torch but none of our code.
mutmut puts all mutants of a function behind a dispatcher, which changes what a trace records.
cosmic-ray starts Python for each mutant, and loading torch takes longer than most tests.
"""

import argparse
import ast
import contextlib
import gc
import io
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

# A process that runs tests must import the packages from its copy. The top of this file therefore
# imports neither twelve nor twelve_lab, nor any module that imports them.
if TYPE_CHECKING:
    from tests.mutants.operators import Mutation
    from twelve_lab.check import Mistake

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "mistakes.md"
# Libraries that the tests import. torch imports the last two lazily: to compare tensors, and to
# build an optimizer.
PRELOADED = ["torch", "pytest", "jaxtyping", "beartype", "einops"]
PRELOADED += ["torch.distributed.tensor", "torch._dynamo"]
WORKERS = 2
TEST_LIMIT = 20  # seconds of CPU time for one test
RUN_LIMIT = 1800  # seconds of wall time for one run
PASSED, NO_TESTS = "all passed", "no tests"


class Run(NamedTuple):
    """Result of a test run: the first test that failed, how it failed, and the time."""

    failed: str | None
    end: str
    seconds: float = 0.0


class Job(NamedTuple):
    """A changed file, and lists of tests to run in turn until a test fails."""

    path: Path
    text: str
    rounds: list[list[str]]


def plant_classics(ids: list[str]) -> list[str]:
    """Plant classic mistakes. If `ids` is empty, plant all of them and write the page.

    Returns:
        A line for each mistake that goes unnoticed.

    Raises:
        SystemExit: If an id is unknown.
        ValueError: If a pattern does not occur exactly once in its layer.
    """
    from tests.mutants.classic import PLANTS
    from twelve_lab.check import TAUGHT

    if unknown := [id for id in ids if id not in PLANTS]:
        raise SystemExit(f"unknown mistake: {', '.join(unknown)}")
    before = read_page(PAGE.read_text(encoding="utf-8"))
    planted = [id for id in TAUGHT if not ids or id in ids]
    jobs = []
    for id in planted:
        plant = PLANTS[id]
        first = [before[id].failed] if id in before else []
        jobs.append(Job(plant.path, plant.text(), [first, [plant.test.as_posix()]]))
    noticed = {}
    for id, run in zip(planted, run_all(jobs), strict=True):
        print(f"{id:28} {run.seconds:4.1f} s  {run.end:8} {run.failed}", flush=True)
        if run.failed is not None:
            noticed[id] = run
    if not ids:
        PAGE.write_text(format_page(TAUGHT, noticed), encoding="utf-8")
    return [f"{id} goes unnoticed" for id in planted if id not in noticed]


def format_page(mistakes: dict[str, "Mistake"], noticed: dict[str, Run]) -> str:
    """Format docs/mistakes.md from the failing runs, keyed by id."""
    from tests.mutants.classic import PLANTS
    from twelve_lab.course import STEPS

    notebooks = {step.number: step.notebook for step in STEPS}
    rows = []
    for id, mistake in mistakes.items():
        plant, run = PLANTS[id], noticed.get(id, Run("none", "nothing"))
        test = run.failed.replace("|", "\\|")
        rows.append(
            f"| `{id}` | {mistake.sentence} | [{mistake.step}](../{notebooks[mistake.step]}) "
            f"| [{plant.path.name}](../{plant.path.as_posix()}) | `{test}` | {run.end} |\n"
        )
    return (
        "# The classic mistakes\n\n"
        "Each mistake runs, or runs until all sizes differ, and gives wrong numbers of the right "
        "shape. `twelve_lab.check` keeps it beside the right answer. `make mutants` plants the "
        "mistakes in a copy of the package, one at a time, and writes this page. For each mistake "
        "it names a test that notices it and says what the test saw: other numbers, axes that "
        "contradict "
        "an annotation, or an error.\n\n"
        f"**{len(noticed)} of {len(mistakes)} are noticed.**\n\n"
        "| id | mistake and correction | lesson | planted in | test that notices | by |\n"
        "|---|---|---|---|---|---|\n" + "".join(rows)
    )


def read_page(text: str) -> dict[str, Run]:
    """Parse the page into the run that noticed each mistake."""
    rows = re.findall(r"^\| `([a-z_-]+)` \|.* \| `(.+)` \| (\w+) \|$", text, re.MULTILINE)
    return {id: Run(test.replace("\\|", "|"), how) for id, test, how in rows}


def plant_random(number: int, seed: int, places: list[str]) -> list[str]:
    """Plant random mutations in files or folders, and return those that no test notices."""
    chosen = draw(python_files(places or ["src"]), number, seed)
    jobs = [Job(path, mutation.text, nearest_tests(path)) for path, mutation in chosen]
    unnoticed = []
    for (path, mutation), run in zip(chosen, run_all(jobs), strict=True):
        change = f"{path}:{mutation.line}\n    - {mutation.old}\n    + {mutation.new}"
        print(f"{change}\n    {run.seconds:.1f} s  {run.end}: {run.failed}", flush=True)
        # A mutant that crashes, hangs or cannot be imported counts as noticed.
        if run.end in (PASSED, NO_TESTS):
            unnoticed.append(change)
    return unnoticed


def python_files(places: list[str]) -> list[Path]:
    """List the Python files in files and folders, as paths relative to the root.

    Raises:
        SystemExit: If a file or folder contains no Python file.
    """
    paths: list[Path] = []
    for place in places:
        folder = ROOT / place
        inside = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
        if not inside:
            raise SystemExit(f"no Python file in {place}")
        paths += [path.relative_to(ROOT) for path in inside]
    return list(dict.fromkeys(paths))


def draw(paths: list[Path], number: int, seed: int) -> list[tuple[Path, "Mutation"]]:
    """Draw mutations; the same seed and files give the same mutations."""
    from tests.mutants.operators import is_another, mutations

    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    candidates = [(path, each) for path, text in texts.items() for each in mutations(text)]
    random.Random(seed).shuffle(candidates)
    chosen: list[tuple[Path, Mutation]] = []
    for path, mutation in candidates:
        if len(chosen) < number and is_another(texts[path], mutation.text):
            chosen.append((path, mutation))
    return sorted(chosen, key=lambda each: (each[0], each[1].line))


def nearest_tests(path: Path) -> list[list[str]]:
    """List the tests that may notice a change to a file, nearest first.

    Returns:
        Three lists: tests named after the file or its folder, tests that mention it, and all other
        tests. The layers have all their tests in the unit tier.
    """
    folders = ["tests/unit"]
    if not path.is_relative_to("src/twelve"):
        folders.append("tests/course")
    tests = [test for test in python_files(folders) if test.stem.startswith("test_")]
    products = [test for test in python_files(["tests/products"]) if test.stem.startswith("test_")]
    names = rf"test_({path.stem}|{path.parent.name})(_|$)"
    named = [test for test in tests + products if re.match(names, test.stem)]
    top = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    defined = {each.name for each in top if hasattr(each, "name")}
    words = "|".join([*sorted(defined), ".".join(path.with_suffix("").parts[1:])])
    word = re.compile(rf"\b({words})\b")
    mention = [test for test in tests if word.search((ROOT / test).read_text(encoding="utf-8"))]
    rounds: list[list[str]] = []
    for group in (named, mention, tests):
        earlier = {test for each in rounds for test in each}
        rounds.append([test.as_posix() for test in group if test.as_posix() not in earlier])
    return rounds


def run_all(jobs: list[Job]) -> Iterator[Run]:
    """Run the tests on each changed file, and yield the results in order.

    Raises:
        SystemExit: If a test that noticed a change also fails without any change.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copies.put(_copy(Path(folder, str(number))))
        noticed = set()
        for run in pool.map(lambda job: _run_job(copies, job), jobs):
            noticed.add(run.failed)
            yield run
        # Given no names, pytest would run every test.
        if tests := sorted(noticed - {None}):
            run = _run_tests(Path(folder, "0"), tests)
            if run.end != PASSED:
                raise SystemExit(f"without any mutation: {run.failed} {run.end}")


def main() -> int:
    """Run the command line, and return 1 if a change goes unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ID, FILE or FOLDER", help="default: all")
    parser.add_argument("--random", type=int, metavar="N", help="number of random mutations")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random mutations")
    options = parser.parse_args()
    start = time.perf_counter()
    if options.random is None:
        unnoticed = plant_classics(options.names)
    else:
        unnoticed = plant_random(options.random, options.seed, options.names)
    print(f"{len(unnoticed)} unnoticed, {time.perf_counter() - start:.0f} s")
    for line in unnoticed:
        print(line)
    return 1 if unnoticed else 0


def _copy(folder: Path) -> Path:
    """Copy src and tests, and link to everything else except .git and build."""
    folder.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for path in ROOT.iterdir():
        if path.name in ("src", "tests"):
            shutil.copytree(path, folder / path.name, ignore=ignore)
        elif path.name not in (".git", "build"):
            (folder / path.name).symlink_to(path)
    return folder


def _run_job(copies: SimpleQueue[Path], job: Job) -> Run:
    """Plant a mutation, run the tests until one fails, and restore the file."""
    copy = copies.get()
    file = copy / job.path
    before, seconds, run = file.read_text(encoding="utf-8"), 0.0, Run(None, NO_TESTS)
    file.write_text(job.text, encoding="utf-8")
    try:
        for tests in filter(None, job.rounds):
            run = _run_tests(copy, tests)
            seconds += run.seconds
            if run.end not in (PASSED, NO_TESTS):
                break
        return run._replace(seconds=seconds)
    finally:
        file.write_text(before, encoding="utf-8")
        copies.put(copy)


def _run_tests(copy: Path, tests: list[str]) -> Run:
    """Run tests in a process that has loaded torch but none of our code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_pytest, args=(copy, tests, theirs))
    process.start()
    theirs.close()
    try:
        return Run(*ours.recv()) if ours.poll(RUN_LIMIT) else Run(None, f"{RUN_LIMIT} s passed")
    except EOFError:
        return Run(None, "the process died")
    finally:
        process.join(5)
        process.kill()


class _FirstFailure:
    """pytest plugin that records the first failure, and stops a test that hangs."""

    failed: str | None = None
    end = PASSED

    def pytest_runtest_logstart(self) -> None:
        signal.signal(signal.SIGPROF, self._stop)
        signal.setitimer(signal.ITIMER_PROF, TEST_LIMIT)

    def _stop(self, *_: object) -> None:
        import pytest

        pytest.fail(f"no end after {TEST_LIMIT} s")

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed and self.failed is None:
            error = re.split(r"[ .]", report.longreprtext.strip().splitlines()[-1])[-1]
            kinds = {"AssertionError": "numbers", "TypeCheckError": "axes"}
            self.failed, self.end = report.nodeid, kinds.get(error, "error")

    def pytest_collectreport(self, report) -> None:
        # A mistake that breaks the import is not silent, so no test gets credit for it.
        if report.failed:
            error = report.longreprtext.strip().splitlines()[-1]
            self.end = f"{report.nodeid} cannot be collected: {error}"


def _pytest(copy: Path, tests: list[str], answer: Connection) -> None:
    import pytest

    # Garbage collection of the preloaded modules would take as long as the tests.
    gc.freeze()
    os.chdir(copy)
    # The tests need two plugins. Loading all of them takes longer than most tests.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "-m", "not slow and not weekly"]
    options += ["-p", "jaxtyping._pytest_plugin", "-p", "syrupy"]
    # Mutants of equal size, written within the same second, would share cached bytecode.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    # Subprocesses of a test also import from the copy.
    os.environ["PYTHONPATH"] = str(copy / "src")
    sys.path[:0] = [str(copy / "src"), str(copy)]
    # Import `tests` from the copy.
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    first, output = _FirstFailure(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main([*options, "-p", "no:cacheprovider", *tests], plugins=[first])
    # A test that no longer exists is a usage error.
    ends = {pytest.ExitCode.OK: PASSED}
    ends |= dict.fromkeys(
        (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR), NO_TESTS
    )
    end = first.end if first.end != PASSED else ends.get(code, f"pytest ended with {code!r}")
    # Send a plain tuple, because the `tests` package of the copy has its own class Run.
    answer.send((first.failed, end, time.process_time()))


if __name__ == "__main__":
    sys.exit(main())
