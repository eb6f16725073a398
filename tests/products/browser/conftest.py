"""Chromium, a local server and accessibility checks for the browser tests."""

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
PHONE = {"width": 390, "height": 844}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serve files without logging requests."""

    def log_message(self, *_):
        pass

    def copyfile(self, *ends):
        # When it leaves a page, a browser closes connections that are still loading.
        with suppress(ConnectionError):
            super().copyfile(*ends)


def written(name: str) -> Path:
    """Return a folder of `build`; fail if `make` has not written it."""
    folder = ROOT / "build" / name
    assert (folder / "index.html").exists(), f"build/{name} is missing: run make {name}"
    return folder


def grave(tab, *rules: str) -> list[str]:
    """List the serious and critical violations that axe-core reports for a page.

    Args:
        tab: The tab or frame that shows the page.
        rules: The rules to check; all by default.
    """
    if not tab.evaluate("'axe' in window"):
        tab.add_script_tag(path=AXE)
    # axe-core cannot enter the iframes of the live parts; other tests check these as pages.
    options = {"resultTypes": ["violations"], "iframes": False}
    options |= {"runOnly": rules} if rules else {}
    result = tab.evaluate("options => axe.run(options)", options)
    assert len(result["passes"]) > (0 if rules else 5)
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:150]} {node['failureSummary'][:200]}"
        for rule in result["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def until(page, condition: str) -> None:
    """Poll a condition, because the live page blocks Playwright's own wait."""
    for _ in range(500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"never true: {condition}")


def middle(node) -> tuple[int, int]:
    """Scroll to a node, and return the coordinates of its centre."""
    node.scroll_into_view_if_needed()
    box = node.bounding_box()
    return int(box["x"] + box["width"] / 2), int(box["y"] + box["height"] / 2)


def drag(tab, node, pixels: int, *, drop: bool = True) -> None:
    """Drag a node to the right with the mouse."""
    x, y = middle(node)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + pixels, y + 5, steps=4)
    if drop:
        tab.mouse.up()


def swipe(tab, node, pixels: float) -> None:
    """Drag a node to the right with a finger."""
    x, y = middle(node)
    touch = tab.context.new_cdp_session(tab)
    for kind, ways in (("Start", [0]), ("Move", [pixels / 2]), ("Move", [pixels]), ("End", [])):
        points = [{"x": x + way, "y": y} for way in ways]
        touch.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})


@pytest.fixture(scope="session")
def browser():
    with real.launched() as running:
        yield running


@pytest.fixture(scope="session")
def serve():
    """Return a function that serves a folder on the loopback interface and returns the URL."""
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
    """A tab, and a list of its errors and of its requests to other machines."""

    tab: Page
    wrong: list[str]


@contextmanager
def opened_window(browser) -> Iterator[Window]:
    """Open a tab in a new browser context."""
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
    """Reset a tab for a test, and fail afterwards if the tab logged an error."""
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
    """Share one tab: opening a tab takes longer than most tests."""
    with opened_window(browser) as window:
        yield window


@pytest.fixture
def tab(window):
    with watched(window) as tab:
        yield tab


@pytest.fixture
def fresh_tab(browser):
    """Open a new tab, for tests whose changes would persist in a shared tab."""
    with opened_window(browser) as window, watched(window) as tab:
        yield tab
