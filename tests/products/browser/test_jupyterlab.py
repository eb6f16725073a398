"""The notebooks in a real JupyterLab: opened, run from the menu, saved, and read from the disk.

They are copies without outputs, in a folder of their own, which `make lab` would serve. nbval has
run them all: here one with figures and exercises is run, and the others once a week.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from tests.course.notebook_rules import code_cells

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OFTEN = "06_multi_head_attention"
BY_TURNS = [
    pytest.param(path, marks=[pytest.mark.weekly] * (path.stem != OFTEN), id=path.stem)
    for path in NOTEBOOKS
]
PRIVATE = (
    "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR",
)  # fmt: skip
LINE = re.compile(
    r"Open notebook 00 in a browser: press Shift\+Enter in each cell, from the top\. "
    r"Ctrl\+C here, then y, stops it\. (http://localhost:\d+/lab/tree/notebooks/00_start_here"
    r"\.ipynb\?token=\w+)\n"
)
# Whoever stops a kernel cancels what JupyterLab was still asking it.
CANCELED = re.compile(r"Canceled future for \w+ message before replies were done")
SECONDS = 1000


def lay_out(folder):
    """Copy what JupyterLab needs of the project, the notebooks without their outputs."""
    (folder / "notebooks").mkdir()
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        for cell in code_cells(notebook):
            cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, folder / "notebooks" / path.name)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "open_lab.py", folder / "tools")
    shutil.copytree(ROOT / "tools" / "jupyterlab", folder / "tools" / "jupyterlab")


@contextlib.contextmanager
def jupyterlab(folder):
    """Start it as `make lab` does, with settings of its own; gives the line that it prints."""
    private = {name: str(folder / "private" / name) for name in PRIVATE}
    log = folder / "log"
    with log.open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "tools.open_lab", "--no-browser", "--port", "0"],
            cwd=folder, env=os.environ | private, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            yield server.stdout.readline()
        finally:
            server.terminate()
            rest = server.communicate()[0]
    assert rest == ""
    # Whoever reads the one line is not to find it among others. The last word is our own doing,
    # and after `make course` nbgrader adds one of its own.
    said = [line for line in log.read_text().splitlines() if not line.startswith("[NbGrader |")]
    assert re.fullmatch(r"(\[C .+ received signal 15, stopping)?", "\n".join(said))


class Lab:
    """JupyterLab in a browser, and what a person does there."""

    def __init__(self, page, folder, line):
        self.page, self.folder, self.line = page, folder, line
        self.complaints, self.asked = [], []
        page.set_default_timeout(30 * SECONDS)
        page.on("console", lambda message: self.complain(message.text)
                if message.type in ("warning", "error") else None)  # fmt: skip
        page.on("pageerror", lambda error: self.complain(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def complain(self, text):
        if not CANCELED.search(text):
            self.complaints.append(text)

    def open(self, name):
        """Click twice on a notebook in the list of files; begin anew where another was left."""
        files = self.page.locator(".jp-DirListing-itemName").get_by_text(name, exact=True)
        if files.count() and not self.page.locator(".jp-NotebookPanel, .jp-Dialog").count():
            files.dblclick()
        else:
            first = LINE.fullmatch(self.line)[1]
            self.page.goto(first.replace(NOTEBOOKS[0].name, name) + "&reset")

    def ready(self):
        """Wait for the kernel."""
        status = self.page.locator("#jp-main-statusbar")
        expect(status).to_contain_text("Python 3 (ipykernel) | Idle", timeout=60 * SECONDS)

    def choose(self, menu, item):
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.locator(".lm-Menu-itemLabel").get_by_text(item, exact=True).click()

    def run_all(self):
        """Run all cells, and wait for the end."""
        self.choose("Run", "Run All Cells")
        indicator = self.page.locator(".jp-Notebook-ExecutionIndicator")
        expect(indicator).to_contain_text("Executed", timeout=30 * SECONDS)
        expect(indicator).to_have_attribute("data-status", "idle", timeout=120 * SECONDS)

    def save(self):
        with self.page.expect_response(
            lambda response: response.request.method == "PUT" and "/api/contents/" in response.url
        ) as answer:
            self.choose("File", "Save Notebook")
        assert answer.value.ok

    def close(self):
        """Stop the kernel, then close the notebook."""
        with self.page.expect_response(lambda response: response.request.method == "DELETE"):
            self.choose("Kernel", "Shut Down Kernel")
        self.choose("File", "Close Tab")


@pytest.fixture(scope="module")
def started(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    lay_out(folder)
    with jupyterlab(folder) as line:
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        yield Lab(context.new_page(), folder, line)
        context.close()


@pytest.fixture
def lab(started):
    """JupyterLab; afterwards nothing may have failed or been asked from another machine."""
    started.complaints.clear()
    started.asked.clear()
    yield started
    assert started.complaints == []
    local = re.compile(r"http://localhost:\d+/|data:|blob:")
    assert [url for url in started.asked if not local.match(url)] == []
    # For these the server would ask other machines.
    assert [url for url in started.asked if re.search(r"/lab/api/(news|update)", url)] == []


def again(output):
    """Reduce an output to what must be there again: its kind and texts; of a picture its alt."""
    if output.output_type == "stream":
        return output.name, output.text
    data = {kind: re.sub('src="data:image/[^"]*"', "", text) for kind, text in output.data.items()}
    return output.output_type, data


def test_the_line_of_make_lab_leads_to_notebook_00(lab):
    lab.page.goto(LINE.fullmatch(lab.line)[1])
    lab.ready()
    expect(lab.page.get_by_role("heading", name="00 Start here")).to_be_visible()
    names = [path.name for path in NOTEBOOKS]
    expect(lab.page.locator(".jp-DirListing-itemName")).to_have_text(names)
    lab.close()


@pytest.mark.parametrize("path", BY_TURNS)
def test_a_notebook_runs_in_jupyterlab(lab, path):
    lab.open(path.name)
    lab.ready()
    lab.run_all()
    lab.save()
    lab.close()
    before = code_cells(nbformat.read(path, as_version=4))
    after = code_cells(nbformat.read(lab.folder / "notebooks" / path.name, as_version=4))
    assert [cell.execution_count for cell in after] == list(range(1, len(before) + 1))
    for cell, stored in zip(after, before, strict=True):
        assert cell.source == stored.source
        assert [*map(again, cell.outputs)] == [*map(again, stored.outputs)], cell.source
