"""Installs the project's packages: a line for each step, and advice on failure.

Usage: .venv/bin/python tools/install.py -r requirements.txt    (or other arguments of pip install)
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

# Measured on Linux with the CPU build of PyTorch: 1.5 GB installed, plus the downloads.
GIGABYTES = 2
LOG = "install.log"
PIP = [
    sys.executable, "-m", "pip", "install",
    # Python compiles a module on its first import: a few thousand of ten thousand files.
    "--no-compile",
    "--no-input", "--disable-pip-version-check",
]  # fmt: skip

LARGE = re.compile(r"Downloading (?:\S+/)?(\S+?)-(\d[^-\s]*)-\S+\.whl \((\d{2,}(?:\.\d+)? MB)\)")
# "subprocess-exited-with-error" does not help; the cause is in the lines before it.
FAULT = re.compile(r"\s*error: (?!subprocess-exited)(.+)", re.IGNORECASE)
FULL = (
    f"The disk is full: {GIGABYTES} GB must be free, and some GB more where PyTorch brings CUDA; "
    "free some and run the same command again."
)
HELP = (
    (r"No space left on device|Disk quota exceeded", FULL),
    (
        r"NewConnectionError|NameResolutionError|[Cc]onnect(ion)? ?[Tt]imeout|ReadTimeout"
        r"|Max retries exceeded|Connection(Reset|Refused)?Error|ProxyError|SSLError",
        "The packages could not be fetched: see that this machine is online (behind a proxy: set "
        "HTTPS_PROXY), and run the same command again.",
    ),
    (
        r"Permission denied|Read-only file system",
        "This folder is write-protected: copy the project to a folder of your own and start there.",
    ),
    (
        r"No matching distribution|different Python",
        "There is no ready-made package for this Python or this machine: take a 64-bit Python 3.11 "
        "to 3.14 (PyTorch has no build for Macs with Intel processors any more).",
    ),
)


def step(line: str) -> str | None:
    """Describe a slow step of pip.

    Args:
        line: A line that pip printed.

    Returns:
        A line for the reader, or None if the step is fast.
    """
    if large := LARGE.search(line):
        name, version, size = large.groups()
        return f"  downloading {name} {unquote(version)} ({size})"
    if line.startswith("Installing collected packages:"):
        packages = line.count(",") + 1
        return f"  unpacking {packages} package{'s' if packages > 1 else ''}"
    return None


def advice(said: str) -> str | None:
    """Return advice on a known error.

    Args:
        said: The whole output of pip.

    Returns:
        A sentence, or None if the error is unknown.
    """
    return next((sentence for cause, sentence in HELP if re.search(cause, said)), None)


def room(free: int, installed: bool) -> str | None:
    """Return a warning if the disk is too full to begin.

    Args:
        free: Free bytes.
        installed: Whether PyTorch, the largest package, is installed already.
    """
    if installed or free >= GIGABYTES * 10**9:
        return None
    return f"{FULL} Now {free / 10**9:.1f} GB are."


def run_pip(words: Sequence[str], log: Path) -> int:
    """Run pip, print its steps and errors, and log its whole output.

    Args:
        words: Arguments of `pip install`.
        log: The log file.

    Returns:
        Exit status of pip.
    """
    pip = subprocess.Popen(
        [*PIP, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    with pip, log.open("w", encoding="utf-8") as kept:
        for line in pip.stdout:
            kept.write(line)
            if fault := FAULT.match(line):
                print(f"  pip: {fault[1]}", file=sys.stderr, flush=True)
            elif said := step(line):
                print(said, flush=True)
    return pip.returncode


def main(words: Sequence[str]) -> int:
    """Install the packages, or explain why that failed.

    Args:
        words: Arguments of `pip install`.

    Returns:
        Exit status: that of pip, or 1 if the disk is too full.
    """
    if full := room(shutil.disk_usage(sys.prefix).free, find_spec("torch") is not None):
        print(full, file=sys.stderr)
        return 1
    log = Path(sys.prefix, LOG)
    try:
        status = run_pip(words, log)
    except OSError as error:  # the log did not fit on the disk
        print(advice(str(error)) or error, file=sys.stderr)
        return 1
    if status:
        help_ = advice(log.read_text(encoding="utf-8"))
        print(*filter(None, [help_, f"More: docs/troubleshooting.md; all that pip said: {log}"]),
              sep="\n", file=sys.stderr)  # fmt: skip
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("Stopped; the same command begins again.")
