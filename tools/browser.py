"""A headless browser, which prints and tests the pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Disable background requests. As root, also disable the browser's sandbox, which does not work.
ARGUMENTS = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
AS_ROOT = ["--no-sandbox"]


def find() -> str | None:
    """Find Chromium or Chrome.

    Returns:
        Path of the browser, or None.
    """
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """Start the browser, and close it on exit.

    Raises:
        FileNotFoundError: If no browser is installed.
    """
    program = find()
    if program is None:
        raise FileNotFoundError(
            f"none of {', '.join(NAMES)} was found: install one (Debian, Ubuntu: apt install "
            "chromium)"
        )
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=[*ARGUMENTS, *(AS_ROOT if root else [])]
        )
        try:
            yield browser
        finally:
            browser.close()
