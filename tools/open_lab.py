"""Opens the first notebook in JupyterLab, or the notebook to continue with, and says what to do.

Usage: python -m tools.open_lab [more arguments of `jupyter lab`, such as --port 9000]
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = "notebooks/00_start_here.ipynb"
# Settings and style sheet: JupyterLab must not ask other machines for news or newer releases, nor
# show the first line of a folded output.
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
        # Jupyter logs about forty lines before the first page: they would bury the line that helps.
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
        asked: The requested port; 0 for any.
        port: The port that JupyterLab uses.
    """
    return (
        f"Port {asked} is in use, so JupyterLab takes {port}." if asked not in (0, port) else None
    )


def resumed(folder: Path) -> tuple[str, str]:
    """Find the notebook to continue with, and say why.

    Args:
        folder: The folder of the notebooks, which may also contain progress.json.

    Returns:
        Its path from the root of the project, and a sentence on the progress so far, or "".
    """
    if not (folder / "progress.json").exists():
        return FIRST, ""
    # This loads the exercises and torch: do so only if the learner has progress.
    from twelve_lab.check.progress import standing
    from twelve_lab.course import find_step

    try:
        text, following = standing(folder)
    except (ValueError, OSError):
        return FIRST, ""
    return find_step(following[:2]).notebook if following else FIRST, text and f"{text} "


def next_step(opens: bool, address: str, notebook: str = FIRST, solved: str = "") -> str:
    """Say in one line what to do next.

    Args:
        opens: Whether a browser opens automatically.
        address: The URL of the notebook, with the login token.
        notebook: The notebook to open.
        solved: A sentence on the progress so far.
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
        arguments: More arguments of its command line.

    Returns:
        Exit status: 1 if JupyterLab is missing or cannot start.
    """
    # These variables can shadow our kernel with the kernel of another Python of the same name.
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
        LabApp.launch_instance(arguments)  # prints, and leaves
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
    # Callbacks run in order: the server listens by then.
    server.io_loop.add_callback(print, *filter(None, lines), sep="\n", flush=True)
    # Otherwise the server prints seven lines about its address after ours.
    server.identity_provider.token_generated = False
    server.start()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
