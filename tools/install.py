"""Installs packages with uv, or with pip if uv is not available.

Usage: .venv/bin/python tools/install.py -r requirements.txt    (or other arguments of pip install)
"""

import ast
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
FAILED = "The installation failed: docs/troubleshooting.md may help."
WITHOUT_UV = "uv could not be had, so pip installs, which takes longer."
# pip settings to pass to uv, which reads neither pip's configuration nor its variables.
OPTIONS = {
    "find-links": "--find-links",
    "index-url": "--default-index",
    "extra-index-url": "--index",
}


def find_uv() -> str | None:
    """Return the path of uv, installing it beside this Python if needed, or None on failure."""
    beside = shutil.which("uv", path=Path(sys.executable).parent)
    if beside is None and find_spec("pip") is not None:
        pins = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
        (pin,) = (line for line in pins if line.startswith("uv=="))
        subprocess.run([*PIP, "install", "--quiet", pin], stderr=subprocess.DEVNULL)
        beside = shutil.which("uv", path=Path(sys.executable).parent)
    return beside or shutil.which("uv")


def settings(listed: str) -> list[str]:
    """Translate pip's settings to options of uv.

    Args:
        listed: Output of `pip config list`.

    Returns:
        Options for `uv pip install`.
    """
    options = []
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        if option := OPTIONS.get(name.rpartition(".")[2]):
            options += [word for each in ast.literal_eval(value).split() for word in (option, each)]
    # pip takes the best release from all indexes; by default, uv stops at the first index.
    return [*options, "--index-strategy=unsafe-best-match"] if "--index" in options else options


def main(words: Sequence[str]) -> int:
    """Install the packages.

    Args:
        words: Arguments of `pip install` that uv also accepts.

    Returns:
        Exit status of uv or pip.
    """
    if uv := find_uv():
        listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True).stdout
        command = [uv, "pip", "install", "--python", sys.executable, *settings(listed)]
        # Without a terminal, uv would print a list of all packages as its progress.
        command += [] if sys.stderr.isatty() else ["--quiet"]
    else:
        print(WITHOUT_UV, file=sys.stderr)
        command = [*PIP, "install", "--quiet"]
    status = subprocess.run([*command, *words]).returncode
    if status:
        print(FAILED, file=sys.stderr)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("Stopped; the same command begins again.")
