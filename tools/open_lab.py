"""Opens the first notebook in JupyterLab, or the one to continue with, and prints what to do.

Usage: python -m tools.open_lab [more arguments of `jupyter lab`, such as --port 9000]
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = "notebooks/00_start_here.ipynb"
# Settings and style sheet: JupyterLab must not check for news or updates over the network, nor show
# the first line of a collapsed output.
SETTINGS = ROOT / "tools" / "jupyterlab"


def options(
    platform: str, environment: Mapping[str, str], root: bool, notebook: str = FIRST
) -> list[str]:
    """Choose the options of JupyterLab for this machine.

    Args:
        platform: The value of `sys.platform`.
        environment: The environment variables.
        root: Whether the user is root, as is common in a container.
        notebook: The notebook to open.

    Returns:
        Command-line arguments.
    """
    away = environment.get("CI") or environment.get("SSH_CONNECTION")
    screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    return [
        # Jupyter logs about forty lines at startup, which would bury our line of instructions.
        "--Application.log_level=ERROR",
        "--KernelManager.transport_encryption=auto",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.app_settings_dir={SETTINGS}",
        f"--ServerApp.tornado_settings=static_custom_path={SETTINGS}",
        "--LabApp.custom_css=True",
        f"--LabApp.default_url=/lab/tree/{notebook}",
        *(["--no-browser"] if away or (platform == "linux" and not screen) else []),
        *(["--allow-root"] if root else []),
    ]


def moved(asked: int, port: int) -> str | None:
    """Return a notice if another program uses the port.

    Args:
        asked: Requested port; 0 means any port.
        port: Port that JupyterLab uses.
    """
    return (
        f"Port {asked} is in use, so JupyterLab takes {port}." if asked not in (0, port) else None
    )


def resumed(folder: Path) -> tuple[str, str]:
    """Find the notebook to continue with, and summarise the progress.

    Args:
        folder: Folder of the notebooks, which may contain progress.json.

    Returns:
        Path of the notebook from the project root, and a sentence on the progress so far, or "".
    """
    if not (folder / "progress.json").exists():
        return FIRST, ""
    # Import torch and the exercises only if the learner has made progress.
    from twelve_lab.check.progress import standing
    from twelve_lab.course import find_step

    try:
        text, following = standing(folder)
    except (ValueError, OSError):
        return FIRST, ""
    return find_step(following[:2]).notebook if following else FIRST, text and f"{text} "


def next_step(opens: bool, address: str, notebook: str = FIRST, solved: str = "") -> str:
    """Return a line that says what to do next.

    Args:
        opens: Whether a browser opens automatically.
        address: URL of the notebook, with the login token.
        notebook: Path of the notebook.
        solved: Sentence on the progress so far.
    """
    number = Path(notebook).name[:2]
    opening = f"Notebook {number} opens in your browser:"
    first = opening if opens else f"Open notebook {number} in a browser:"
    return (
        f"{solved}{first} press Shift+Enter in each cell, from the top. Ctrl+C here, then y, "
        f"stops it. {address}"
    )


def main(arguments: Sequence[str]) -> int:
    """Start JupyterLab, and wait until it is stopped.

    Args:
        arguments: Additional command-line arguments for JupyterLab.

    Returns:
        Exit status: 1 if JupyterLab is missing or cannot start.
    """
    # With these variables, a kernel of another Python could shadow ours, which has the same name.
    os.environ.pop("JUPYTER_PATH", None)
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    # The kernels inherit this variable: the first answer creates progress.json there.
    os.environ["TWELVE_PROGRESS"] = str((ROOT / FIRST).parent)
    try:
        from jupyterlab.labapp import LabApp
    except ModuleNotFoundError as error:
        print(
            f"{error.name} is not installed in {sys.prefix}: start with `make lab`, or install as "
            "README.md says.",
            file=sys.stderr,
        )
        return 1
    if set(arguments) & {"-h", "--help", "--help-all", "--version"}:
        LabApp.launch_instance(arguments)  # prints and exits
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    notebook, solved = resumed(ROOT / "notebooks")
    words = [*options(sys.platform, os.environ, root, notebook), *arguments]
    try:
        server = LabApp.initialize_server(words)
    except OSError as error:
        print(f"JupyterLab cannot start: {error}. See docs/troubleshooting.md.", file=sys.stderr)
        return 1
    usual = os.environ.get(server.port_env, server.port_default_value)
    asked = int(server.config.ServerApp.get("port", usual))
    lines = [
        moved(asked, server.port),
        next_step(server.open_browser, server.public_url, notebook, solved),
    ]
    # Callbacks run in order, so the server is listening by then.
    server.io_loop.add_callback(print, *filter(None, lines), sep="\n", flush=True)
    # Otherwise the server prints seven more lines about its URL.
    server.identity_provider.token_generated = False
    server.start()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
