"""A lesson in JupyterLab: opened, run from the menu, saved, reloaded from disk, and predicted.

nbval runs every notebook, and test_first_run.py starts `make lab`.
"""

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from playwright.sync_api import expect

from tests.course.notebook_rules import code_cells
from tests.products.browser.conftest import ROOT

LESSON = "04_attention.ipynb"
PRIVATE = (
    "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR",
)  # fmt: skip
# A stopped kernel cancels the pending requests of JupyterLab.
CANCELED = re.compile(r"Canceled future for \w+ message before replies were done")
# The local requests of the page, except those for news and updates, which the server would forward.
LOCAL = re.compile(r"http://localhost:\d+/(?!lab/api/(news|update))|data:|blob:")
SECONDS = 1000


@pytest.fixture
def lab(tmp_path):
    """Copy what JupyterLab needs, start it as `make lab` does, and yield its address."""
    for name in ("notebooks", "tools/jupyterlab"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "tools/open_lab.py", tmp_path / "tools")
    private = {name: str(tmp_path / "private" / name) for name in PRIVATE}
    server = subprocess.Popen(
        [sys.executable, "-m", "tools.open_lab", "--no-browser", "--port", "0"],
        cwd=tmp_path, env=os.environ | private, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        printed = server.stdout.readline()
        yield re.search(r"http://localhost:\d+/lab/tree/\S+\?token=\w+", printed)[0]
    finally:
        server.terminate()
        server.communicate()


def opened(page, address):
    page.set_default_timeout(60 * SECONDS)
    page.goto(re.sub(r"[^/]+\.ipynb", LESSON, address) + "&reset")
    status = page.locator("#jp-main-statusbar")
    expect(status).to_contain_text("Python 3 (ipykernel) | Idle", timeout=60 * SECONDS)


def choose(page, menu, item):
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.locator(".lm-Menu-itemLabel").get_by_text(item, exact=True).click()


@pytest.mark.weekly
def test_lesson_runs_and_is_saved_in_jupyterlab(lab, browser, tmp_path):
    context, complaints = browser.new_context(viewport={"width": 1280, "height": 720}), []
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text)
            if message.type in ("warning", "error") and not CANCELED.search(message.text)
            else None)  # fmt: skip
    page.on("request", lambda request: None if LOCAL.match(request.url)
            else complaints.append(request.url))  # fmt: skip
    opened(page, lab)
    choose(page, "Edit", "Clear Outputs of All Cells")
    choose(page, "Run", "Run All Cells")
    indicator = page.locator(".jp-Notebook-ExecutionIndicator")
    expect(indicator).to_contain_text("Executed", timeout=30 * SECONDS)
    expect(indicator).to_have_attribute("data-status", "idle", timeout=120 * SECONDS)
    with page.expect_response(
        lambda response: response.request.method == "PUT" and "/api/contents/" in response.url
    ) as answer:
        choose(page, "File", "Save Notebook")
    assert answer.value.ok
    context.close()
    expected, cells = (
        code_cells(nbformat.read(folder / "notebooks" / LESSON, as_version=4))
        for folder in (ROOT, tmp_path)
    )
    assert [cell.execution_count for cell in cells] == list(range(1, len(expected) + 1))
    kinds = [[[output.output_type for output in cell.outputs] for cell in page_cells]
             for page_cells in (cells, expected)]  # fmt: skip
    assert kinds[0] == kinds[1]
    assert complaints == []


@pytest.mark.weekly
def test_folded_output_hides_the_answer_and_a_wrong_answer_is_reported_once(lab, browser, tmp_path):
    path = tmp_path / "notebooks" / LESSON
    notebook = nbformat.read(path, as_version=4)
    predicted = nbformat.v4.new_code_cell("from twelve_lab.check import check\nprint('secret')")
    predicted.metadata = {"jupyter": {"outputs_hidden": True}}
    predicted.outputs = [nbformat.v4.new_output("stream", text="secret\n")]
    notebook.cells = [predicted, nbformat.v4.new_code_cell('check("04-keys-reversed", "no")')]
    nbformat.write(notebook, path)
    page = browser.new_page()
    opened(page, lab)
    folded = page.locator(".jp-OutputPlaceholder")
    expect(folded).to_be_visible()
    expect(folded.get_by_text("secret")).to_be_hidden()
    shown = "e => getComputedStyle(e, '::before').content"
    asks = folded.locator(".jp-Placeholder-contentContainer").evaluate(shown)
    assert asks == '"What it prints: predict, then click"'
    folded.click()
    expect(page.locator(".jp-OutputArea-output", has_text="secret")).to_be_visible()
    choose(page, "Run", "Run All Cells")
    card = page.locator("section.reply")
    expect(card).to_contain_text("04-keys-reversed: not yet right", timeout=60 * SECONDS)
    error = page.locator("[data-mime-type='application/vnd.jupyter.stderr']")
    expect(error).to_contain_text("04-keys-reversed is not yet right")
    expect(error).to_be_hidden()
    page.close()
