"""pytest plugin: a run of notebooks passes only if every code cell was compared.

nbval passes a run that skips cells or finds no notebook. This plugin fails such a run, and any run
in which a cell did not pass. tests/course/notebook_rules.py rejects cleared outputs and the marks
that tell nbval not to compare a cell.

    pytest -p tests.course.nbval_guard --nbval notebooks
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

# jsonschema would spend two seconds on a grammar for IRIs.
sys.modules.setdefault("rfc3987_syntax", None)

from nbval import plugin as nbval  # noqa: E402

# Notebooks that load a model of 93 MB. A run without `--with-model` excludes and reports them.
NEEDS_MODEL = "19_*.ipynb"
# The slowest notebooks, which train or load the model, run first: started last, they would leave
# cores idle.
LONGEST = "19_a_language_model.ipynb", "13_training.ipynb"


def pytest_plugin_registered(plugin, manager):
    """Load nbval, which pyproject.toml disables for all other runs."""
    if plugin is sys.modules[__name__]:
        # Do not record progress: these answers are not a learner's.
        os.environ["TWELVE_PROGRESS"] = ""
        manager.unblock("nbval")
        manager.register(nbval, "nbval")


def pytest_configure(config):
    """Register the guard in the main process, which sees every report, not in xdist's workers.

    nbval ignores the packed data of live pages, which differ between machines:
    test_frames.py compares them.
    """
    if config.option.nbval_sanitize_with is None:
        config.option.nbval_sanitize_with = str(Path(__file__).with_name("nbval_frames.cfg"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(NotebookGuard(config))


def pytest_addoption(parser):
    """Add the option for notebooks that need `make language-model`."""
    parser.addoption("--with-model", action="store_true", help=f"compare {NEEDS_MODEL} as well")


def pytest_ignore_collect(collection_path, config):
    """Ignore notebooks that need the model; return None to leave the decision to other plugins."""
    return True if _left_out(collection_path, config) else None


def pytest_collection_modifyitems(items):
    """Run the slowest notebooks first; the other files keep their order."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def _left_out(path: Path, config) -> bool:
    return path.match(NEEDS_MODEL) and not config.option.with_model


class NotebookGuard:
    """Check that every code cell of the notebooks passed."""

    def __init__(self, config):
        self.root = config.rootpath
        here = config.invocation_params.dir
        ignored = [here / folder for folder in config.option.ignore or []]
        notebooks = [
            path.resolve()
            for path in notebooks_below([here / argument for argument in config.args])
            if not any(path.is_relative_to(folder) for folder in ignored)
        ]
        self.left_out = [path for path in notebooks if _left_out(path, config)]
        self.cells = {path: code_cells(path) for path in notebooks if path not in self.left_out}
        self.passed = Counter()
        self.skipped = 0

    def pytest_runtest_logreport(self, report):
        """Count a cell when its call passes, ignoring setup and teardown."""
        path = (self.root / report.nodeid.partition("::")[0]).resolve()
        if path not in self.cells:
            return  # not a notebook
        if report.skipped or hasattr(report, "wasxfail"):
            self.skipped += 1
        elif report.when == "call" and report.passed:
            self.passed[path] += 1

    def pytest_sessionfinish(self, session):
        """Fail the run if a cell is missing."""
        if session.exitstatus == pytest.ExitCode.OK and any(self.faults()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        """Report the number of cells compared, and every fault."""
        total = sum(map(len, self.cells.values()))
        counts = [f"{len(self.cells)} notebooks", f"{total} code cells"]
        counts += [f"{self.passed.total()} passed", f"{self.skipped or 'none'} skipped"]
        terminalreporter.line("")
        for fault in self.faults():
            terminalreporter.line(fault, red=True)
        if self.left_out:
            left = f"{len(self.left_out)} notebooks, {NEEDS_MODEL}"
            terminalreporter.line(f"left out: {left}; `make check` compares them too")
        terminalreporter.line(", ".join(counts))

    def faults(self) -> Iterator[str]:
        """Yield a message for each notebook with cells that did not pass."""
        if not self.cells:
            yield "no notebook was found"
        if self.skipped:
            yield f"skipped cells: {self.skipped}"
        for path, cells in self.cells.items():
            if self.passed[path] != len(cells):
                # A lesson and its workshop have the same file name.
                name = f"{path.parent.name}/{path.name}"
                yield f"{name}: {len(cells)} code cells, {self.passed[path]} passed"


def notebooks_below(arguments: list[Path]) -> list[Path]:
    """List the notebooks that pytest's arguments name or contain, except checkpoints."""
    inside = [path for folder in arguments for path in sorted(folder.rglob("*.ipynb"))]
    named = [path for path in arguments if path.suffix == ".ipynb" and path.is_file()]
    return [path for path in named + inside if ".ipynb_checkpoints" not in path.parts]


def code_cells(path: Path) -> list[dict]:
    """Read the code cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]
