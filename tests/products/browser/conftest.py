"""A real browser, a server on this machine, and what every page owes to its reader."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Page

from tools import browser as real

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and keeps no log."""

    def log_message(self, *_):
        pass

    def copyfile(self, *ends):
        # A browser that leaves a page closes connections that are still loading.
        with suppress(ConnectionError):
            super().copyfile(*ends)


def written(name: str) -> Path:
    """Name a folder of pages that has to be there."""
    folder = ROOT / "build" / name
    assert (folder / "index.html").exists(), f"build/{name} is missing: run make {name}"
    return folder


def grave(tab, *rules: str) -> list[str]:
    """List what axe-core calls serious or critical in a page as it is shown.

    Args:
        tab: Where the page is open.
        rules: Which ones to hold it against; all if none is named.
    """
    if not tab.evaluate("'axe' in window"):
        tab.add_script_tag(path=AXE)
    # The live parts are checked as pages of their own; in a frame of no origin, which
    # axe-core would ask, the browser calls that an error.
    options = {"resultTypes": ["violations"], "iframes": False}
    options |= {"runOnly": rules} if rules else {}
    found = tab.evaluate("options => axe.run(options)", options)
    assert len(found["passes"]) > (0 if rules else 5)
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:150]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.fixture(scope="session")
def browser():
    with real.launched() as running:
        yield running


@pytest.fixture(scope="session")
def serve():
    """Serve a folder on this machine alone; gives its address."""
    servers = []

    def start(folder: Path) -> str:
        handler = functools.partial(Quiet, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


class Window(NamedTuple):
    """A tab, and all that failed in it or was asked from another machine."""

    tab: Page
    wrong: list[str]


@contextmanager
def opened_window(browser) -> Iterator[Window]:
    """Open a tab that shares nothing with any other."""
    context = browser.new_context()
    tab, wrong = context.new_page(), []
    tab.on("console", lambda message: wrong.append(message.text)
           if message.type in ("warning", "error") else None)  # fmt: skip
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    # Leaving a page aborts its pending requests.
    tab.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}")
           if request.failure != "net::ERR_ABORTED" else None)  # fmt: skip
    tab.on("request", lambda request: wrong.append(f"asked: {request.url}")
           if not request.url.startswith(("http://127.0.0.1:", "file://", "data:", "blob:"))
           else None)  # fmt: skip
    yield Window(tab, wrong)
    context.close()


@contextmanager
def watched(window: Window) -> Iterator[Page]:
    """Make a tab as a new one is; afterwards nothing may have gone wrong in it."""
    tab, wrong = window
    tab.goto("about:blank")
    tab.mouse.move(0, 0)
    tab.set_viewport_size({"width": 1280, "height": 720})
    tab.emulate_media(media="null", color_scheme="light", reduced_motion="no-preference")
    wrong.clear()
    yield tab
    if tab.url.startswith(("http:", "file:")):
        tab.evaluate("localStorage.clear(), sessionStorage.clear()")
    assert wrong == []


@pytest.fixture(scope="session")
def window(browser):
    """One for many tests: to open another takes longer than most of them."""
    with opened_window(browser) as window:
        yield window


@pytest.fixture(scope="session")
def second_window(browser):
    """One for the pages that stay open while several tests look at them."""
    with opened_window(browser) as window:
        yield window


@pytest.fixture
def tab(window):
    with watched(window) as tab:
        yield tab


@pytest.fixture
def fresh_tab(browser):
    """A tab of its own, for what would stay with the tab."""
    with opened_window(browser) as window, watched(window) as tab:
        yield tab
