"""Plants mutations in copies of the package, and sees which unit test notices each.

Usage: python -m tools.mutants [ID ...]
       python -m tools.mutants --random N [--seed S] [FILE or FOLDER ...]

The first plants the classic mistakes, runs the test that docs/mistakes.md names, then those of the
file, and writes that page where no id is given. The second plants N random mutations of
tools/mutations.py in src, or in the files and folders named, and runs the tests that import what
was changed, the nearest first. Both fail where one goes unnoticed, or where nothing can be planted.

Two run at a time, each in a fork of a process that has loaded torch and nothing of ours. mutmut
keeps all mutants of a function in one file behind a dispatcher, whose lines a trace would then
record; cosmic-ray starts Python for each, and loading torch takes longer than most of the tests.
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
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.mutations import Mutation, is_another, mutations

ROOT = Path(__file__).resolve().parent.parent
# The package itself is imported in functions only: a process that runs the tests must not have
# seen it, so that it finds the copy.
if TYPE_CHECKING:
    from twelve_lab.check import Mistake

PAGE = ROOT / "docs" / "mistakes.md"
# What the tests import beside the package. torch itself reads the last two late: when it compares
# tensors, and when an optimizer is made.
PRELOADED = ["torch", "pytest", "jaxtyping", "beartype", "einops"]
PRELOADED += ["torch.distributed.tensor", "torch._dynamo"]
AT_A_TIME = 2
TEST_LIMIT = 20  # seconds of CPU time after which one test counts as hanging
RUN_LIMIT = 1800  # seconds by the clock after which a run counts as hanging
PASSED, NO_TESTS = "all passed", "no test there"


class Run(NamedTuple):
    """What a run of tests came to: the first test that failed, if any, and by what."""

    failed: str | None
    end: str
    seconds: float = 0.0


class Job(NamedTuple):
    """A mutation: what to write into which file, and the tests to run, one round after another."""

    path: Path
    text: str
    rounds: list[list[str]]


def replaced(path: Path, old: str, new: str) -> str:
    """Give the text of a file with one stretch replaced.

    Args:
        path: The file.
        old: What stands there.
        new: What stands there instead.

    Raises:
        ValueError: If the stretch does not stand in the file exactly once.
    """
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{path.name} holds {text.count(old)} times: {old!r}")
    return text.replace(old, new)


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
        "plants them in a copy of the package one after the other, runs the test that noticed it "
        "last time, else those of the file, and writes this page. The last column says what the "
        "test saw: other numbers, axes that do not fit an annotation, or an error.\n\n"
        f"**{len(noticed)} of {len(mistakes)} are noticed.**\n\n"
        "| id | what was done, and what to do instead | taught in | planted in | test that "
        "notices | by |\n|---|---|---|---|---|---|\n" + "".join(rows)
    )


def by_name(text: str) -> dict[str, Run]:
    """Read the page again: the run in which a test failed, by the id of the mistake."""
    rows = re.findall(r"^\| `([a-z_-]+)` \|.* \| `(.+)` \| (\w+) \|$", text, re.MULTILINE)
    return {id: Run(test.replace("\\|", "|"), how) for id, test, how in rows}


def source(module: str) -> Path:
    """Name the file of a module of `twelve`, as a path from the root of the project."""
    from twelve_lab.course import STEPS

    return Path(*(step.source for step in STEPS if step.stem == module))


def plant_classics(ids: list[str]) -> list[str]:
    """Plant the classic mistakes and report.

    Args:
        ids: Which ones; all, and the page is written, if none is named.

    Returns:
        A line for each that goes unnoticed or cannot be planted.
    """
    from twelve_lab.check import MISTAKES

    unknown = [id for id in ids if id not in MISTAKES]
    if unknown:
        raise SystemExit(f"no mistake is called {', '.join(unknown)}")
    jobs, wrong, noticed, known = {}, [], {}, by_name(PAGE.read_text(encoding="utf-8"))
    for id in ids or MISTAKES:
        plant = MISTAKES[id].plant
        path = source(plant.module)
        try:
            text = replaced(ROOT / path, plant.old, plant.new)
            tests = [known[id].failed] if id in known else []
            jobs[id] = Job(path, text, [tests, [f"tests/unit/test_{plant.module}.py"]])
        except ValueError as error:
            wrong.append(f"{id} cannot be planted: {error}")
    for id, run in notice_all(jobs):
        print(f"{id:28} {run.seconds:4.1f} s  {run.end:8} {run.failed}", flush=True)
        if run.failed is None:
            wrong.append(f"{id} goes unnoticed: {run.end}")
        else:
            noticed[id] = run
    if not ids:
        PAGE.write_text(page(list(MISTAKES.values()), noticed), encoding="utf-8")
    return wrong


def plant_random(number: int, seed: int, places: list[str]) -> list[str]:
    """Plant random mutations and report.

    Args:
        number: How many.
        seed: The same one draws the same mutations of the same files.
        places: Files and folders; src where none is named.

    Returns:
        A line for each that no test notices.
    """
    chosen = draw(files(places or ["src"]), number, seed)
    jobs = {at: Job(at[0], at[1].text, rounds(at[0])) for at in chosen}
    unnoticed = []
    for (path, mutation), run in notice_all(jobs):
        said = f"{path}:{mutation.line}\n    - {mutation.old}\n    + {mutation.new}"
        print(f"{said}\n    {run.seconds:.1f} s  {run.end}: {run.failed}", flush=True)
        # What dies, hangs or cannot even be imported has been noticed.
        if run.end in (PASSED, NO_TESTS):
            unnoticed.append(said)
    return unnoticed


def files(places: list[str]) -> list[Path]:
    """List the Python files at some places, as paths from the root.

    Raises:
        SystemExit: If nothing is there.
    """
    found: list[Path] = []
    for place in places:
        at = ROOT / place
        inside = [at] if at.suffix == ".py" and at.exists() else sorted(at.rglob("*.py"))
        if not inside:
            raise SystemExit(f"no Python file at {place}")
        found += [path.relative_to(ROOT) for path in inside]
    return list(dict.fromkeys(found))


def draw(paths: list[Path], number: int, seed: int) -> list[tuple[Path, Mutation]]:
    """Draw mutations of some files, in the order of their places."""
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    every = [(path, found) for path, text in texts.items() for found in mutations(text)]
    random.Random(seed).shuffle(every)
    chosen = []
    for path, mutation in every:
        if len(chosen) < number and is_another(texts[path], mutation.text):
            chosen.append((path, mutation))
    return sorted(chosen, key=lambda at: (at[0], at[1].line))


def rounds(path: Path) -> list[list[str]]:
    """Name the tests that can notice a change of a file, the nearest first.

    Returns:
        The tests named after it or its folder; the unit tests that import it; for the lab, the
        tests of the course that import it; then all others, for much is reached by other ways: a
        file that is read, a package that is found by its name.
    """
    unit, course, products = (
        [at for at in files([f"tests/{room}"]) if at.stem.startswith("test_")]
        for room in ("unit", "course", "products")
    )
    # The layers have all their tests in the unit tier.
    course = course if path.is_relative_to("src/twelve_lab") else []
    named = (f"test_{path.stem}", f"test_{path.parent.name}")
    # The explorer has most of its tests among the products.
    own = [at for at in unit + products if at.stem in named]
    # The figures have their tests in the course: test_draw_heads.py.
    own += [at for at in course if f"{at.stem}_".startswith(f"test_{path.parent.name}_")]
    by_import = [[at for at in room if _dotted(path) in _imports(at)] for room in (unit, course)]
    asked: list[list[Path]] = []
    for each in (own, *by_import, unit + course):
        asked.append([at for at in each if not any(at in before for before in asked)])
    return [[at.as_posix() for at in each] for each in asked if each]


def _dotted(path: Path) -> str:
    """Name the module of a file: src/twelve/masks.py is twelve.masks."""
    parts = path.relative_to("src").with_suffix("").parts if path.parts[0] == "src" else path.parts
    return ".".join(part for part in parts if part != "__init__")


@cache
def _imports(path: Path) -> list[str]:
    """Name the modules that a file imports, through whatever package hands their names on."""
    found = []
    for name in _names(path).values():
        seen = set()
        while name not in seen:
            seen.add(name)
            package, _, rest = name.rpartition(".")
            init = ROOT / "src" / package.replace(".", "/") / "__init__.py"
            if package and init.exists():
                name = _names(init.relative_to(ROOT)).get(rest, name)
        modules = {name, name.rpartition(".")[0]}
        found += [at for at in modules if at and at != _dotted(path)]
    return found


@cache
def _names(path: Path) -> dict[str, str]:
    """Collect what a file imports: the full name by its own, twelve.Linear by twelve.Linear."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            whole = ast.unparse(node)
            head, _, rest = whole.partition(".")
            if head in names:
                names[whole] = f"{names[head]}.{rest}"
    return names


def notice_all(jobs: dict[Any, Job]) -> Iterator[tuple[Any, Run]]:
    """Plant one mutation after the other, two at a time, and yield what came of each.

    Args:
        jobs: What to write into which file, and the tests to run, by any key.

    Raises:
        SystemExit: If a test that noticed one fails without it too.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_A_TIME) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(AT_A_TIME):
            copies.put(_copy(Path(folder, str(number))))
        noticed = set()
        for key, run in zip(jobs, pool.map(lambda job: _notice(copies, job), jobs.values()),
                            strict=True):  # fmt: skip
            noticed.add(run.failed)
            yield key, run
        tests = sorted(noticed - {None})
        # Of no test at all pytest would run every one.
        halves = filter(None, (tests[0::2], tests[1::2]))
        for run in pool.map(lambda at: _run(Path(folder, "0"), at), halves):
            if run.end != PASSED:
                raise SystemExit(f"without any mutation: {run.failed} {run.end}")


def main() -> int:
    """Read the command line, plant, and report.

    Returns:
        1 where something goes unnoticed or cannot be planted, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="ID, FILE or FOLDER", help="all if none")
    parser.add_argument("--random", type=int, metavar="N", help="how many to draw")
    parser.add_argument("--seed", type=int, default=0, help="another one draws others")
    given = parser.parse_args()
    start = time.perf_counter()
    if given.random is None:
        wrong = plant_classics(given.names)
    else:
        wrong = plant_random(given.random, given.seed, given.names)
    print(f"{len(wrong)} unnoticed, {time.perf_counter() - start:.0f} s by the clock")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def _row(mistake: "Mistake", run: Run) -> str:
    from twelve_lab.course import STEPS

    step = next(step for step in STEPS if step.number == mistake.step)
    path = source(mistake.plant.module)
    cells = (
        f"`{mistake.id}`",
        mistake.sentence,
        f"[{step.number}](../{step.notebook})",
        f"[{mistake.plant.module}.py](../{path})",
        f"`{run.failed}`".replace("|", "\\|"),
        run.end,
    )
    return f"| {' | '.join(cells)} |\n"


def _copy(folder: Path) -> Path:
    """Copy what is mutated and what the tests write into, and point to the rest."""
    folder.mkdir()
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for path in ROOT.iterdir():
        if path.name in ("src", "tests"):
            shutil.copytree(path, folder / path.name, ignore=leave)
        elif path.name not in (".git", "build"):
            (folder / path.name).symlink_to(path)
    return folder


def _notice(copies: SimpleQueue[Path], job: Job) -> Run:
    """Plant a mutation, run round after round until a test fails, and take it out again."""
    copy = copies.get()
    file = copy / job.path
    before, seconds, run = file.read_text(encoding="utf-8"), 0.0, Run(None, NO_TESTS)
    file.write_text(job.text, encoding="utf-8")
    try:
        for tests in filter(None, job.rounds):
            run = _run(copy, tests)
            seconds += run.seconds
            if run.end not in (PASSED, NO_TESTS):
                break
        return run._replace(seconds=seconds)
    finally:
        file.write_text(before, encoding="utf-8")
        copies.put(copy)


def _run(copy: Path, tests: list[str]) -> Run:
    """Run tests in a fresh process that has loaded torch and nothing of ours."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_pytest, args=(copy, tests, TEST_LIMIT, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(RUN_LIMIT):
            return Run(None, f"no end after {RUN_LIMIT} s")
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
    """A plugin that keeps the name of the first test that fails, and ends one that hangs."""

    failed: str | None = None
    end = PASSED

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def pytest_runtest_logstart(self) -> None:
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGPROF, self._hangs)
            signal.setitimer(signal.ITIMER_PROF, self.limit)

    def _hangs(self, *_: object) -> None:
        import pytest

        pytest.fail(f"no end after {self.limit} s")

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed and self.failed is None:
            self.failed, self.end = report.nodeid, _kind(report.longreprtext)

    def pytest_collectreport(self, report) -> None:
        # A file that cannot be read has noticed nothing: such a plant is no silent mistake.
        if report.failed:
            last = report.longreprtext.strip().splitlines()[-1]
            self.end = f"{report.nodeid} cannot be collected: {last}"


def _pytest(copy: Path, tests: list[str], limit: int, answer: Connection) -> None:
    import pytest

    # What was loaded beforehand stays: to look through it for garbage takes as long as the tests.
    gc.freeze()
    os.chdir(copy)
    # The tests need one plugin, and reading them all takes longer than most of the tests.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "-m", "not slow and not weekly", "-p", "jaxtyping._pytest_plugin"]
    # Two mutants may be files of one size within one second: compiled code would pass for new.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    # A test may start a process of its own.
    os.environ["PYTHONPATH"] = str(copy / "src")
    sys.path[:0] = [str(copy / "src"), str(copy)]
    first, quiet = _First(limit), io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        code = pytest.main([*options, "-p", "no:cacheprovider", *tests], plugins=[first])
    codes = pytest.ExitCode
    # To name a test that is gone is wrong usage.
    ends = {codes.OK: PASSED, codes.NO_TESTS_COLLECTED: NO_TESTS, codes.USAGE_ERROR: NO_TESTS}
    end = first.end if first.end != PASSED else ends.get(code, f"pytest ended with {code!r}")
    answer.send(Run(first.failed, end, time.process_time()))


if __name__ == "__main__":
    sys.exit(main())
