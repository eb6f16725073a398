"""The notebooks in JupyterLab: opened, run from the menu, saved, and read from the disk.

Weekly, because nbval runs every notebook and test_first_run.py starts `make lab`.
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
pytestmark = pytest.mark.weekly
PRIVATE = (
    "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR",
)  # fmt: skip
ADDRESS = r"Open notebook 00 in a browser: .* (http://localhost:\d+/lab/tree/\S+\?token=\w+)\n"
# A stopped kernel cancels what JupyterLab was still asking it.
CANCELED = re.compile(r"Canceled future for \w+ message before replies were done")
SECONDS = 1000


def copy_course(folder):
    """Copy the files that JupyterLab needs, and the notebooks without their outputs."""
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
    """Start JupyterLab as `make lab` does; yield the address that it prints."""
    private = {name: str(folder / "private" / name) for name in PRIVATE}
    log = folder / "log"
    with log.open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "tools.open_lab", "--no-browser", "--port", "0"],
            cwd=folder, env=os.environ | private, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            yield re.fullmatch(ADDRESS, server.stdout.readline())[1]
        finally:
            server.terminate()
            rest = server.communicate()[0]
    assert rest == ""
    # The address must be the only line. nbgrader, if it is installed, adds some.
    said = [line for line in log.read_text().splitlines() if not line.startswith("[NbGrader |")]
    assert re.fullmatch(r"(\[C .+ received signal 15, stopping)?", "\n".join(said))


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """Start JupyterLab; yield a page, the address and the folder of the notebooks."""
    folder = tmp_path_factory.mktemp("lab")
    copy_course(folder)
    with jupyterlab(folder) as address:
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        page = context.new_page()
        page.set_default_timeout(60 * SECONDS)
        yield page, address, folder / "notebooks"
        context.close()


@pytest.fixture
def complaints(lab):
    """Collect what fails in the page or is requested from another machine."""
    wrong, (page, *_) = [], lab
    listeners = {
        "console": lambda message: wrong.append(message.text)
        if message.type in ("warning", "error") and not CANCELED.search(message.text) else None,
        "pageerror": lambda error: wrong.append(str(error)),
        # For news and updates the server would ask other machines.
        "request": lambda request: wrong.append(request.url)
        if not re.match(r"http://localhost:\d+/(?!lab/api/(news|update))|data:|blob:", request.url)
        else None,
    }  # fmt: skip
    for event, listener in listeners.items():
        page.on(event, listener)
    yield wrong
    for event, listener in listeners.items():
        page.remove_listener(event, listener)


def choose(page, menu, item):
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.locator(".lm-Menu-itemLabel").get_by_text(item, exact=True).click()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_in_jupyterlab(lab, complaints, path):
    page, address, folder = lab
    page.goto(address.replace(NOTEBOOKS[0].name, path.name) + "&reset")
    status = page.locator("#jp-main-statusbar")
    expect(status).to_contain_text("Python 3 (ipykernel) | Idle", timeout=60 * SECONDS)
    names = [notebook.name for notebook in NOTEBOOKS]
    expect(page.locator(".jp-DirListing-itemName")).to_have_text(names)
    choose(page, "Run", "Run All Cells")
    indicator = page.locator(".jp-Notebook-ExecutionIndicator")
    expect(indicator).to_contain_text("Executed", timeout=30 * SECONDS)
    expect(indicator).to_have_attribute("data-status", "idle", timeout=120 * SECONDS)
    with page.expect_response(
        lambda response: response.request.method == "PUT" and "/api/contents/" in response.url
    ) as answer:
        choose(page, "File", "Save Notebook")
    assert answer.value.ok
    with page.expect_response(lambda response: response.request.method == "DELETE"):
        choose(page, "Kernel", "Shut Down Kernel")
    stored = code_cells(nbformat.read(path, as_version=4))
    cells = code_cells(nbformat.read(folder / path.name, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(stored) + 1))
    for cell, expected in zip(cells, stored, strict=True):
        assert cell.source == expected.source
        kinds = [output.output_type for output in cell.outputs]
        assert kinds == [output.output_type for output in expected.outputs], cell.source
    assert complaints == []
