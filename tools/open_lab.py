"""Opens the first notebook in JupyterLab, or the one to go on with, and says what to do there.

Usage: python -m tools.open_lab [more words for `jupyter lab`, such as --port 9000]
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = "notebooks/00_start_here.ipynb"
# With these JupyterLab asks no other machine for news or newer releases.
SETTINGS = ROOT / "tools" / "jupyterlab"


def options(
    platform: str, environment: Mapping[str, str], root: bool, notebook: str = FIRST
) -> list[str]:
    """Choose the options of JupyterLab for this machine.

    Args:
        platform: As `sys.platform` has it.
        environment: The variables of the shell.
        root: Whether the user is root, who in a container may be the only one.
        notebook: What opens.

    Returns:
        Words of its command line.
    """
    away = environment.get("CI") or environment.get("SSH_CONNECTION")
    screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    return [
        # Jupyter logs some forty lines by the first page: they would bury the one that helps.
        "--Application.log_level=ERROR",
        "--KernelManager.transport_encryption=auto",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.app_settings_dir={SETTINGS}",
        f"--LabApp.default_url=/lab/tree/{notebook}",
        *(["--no-browser"] if away or (platform == "linux" and not screen) else []),
        *(["--allow-root"] if root else []),
    ]


def moved(asked: int, port: int) -> str | None:
    """Say so where another program has the port.

    Args:
        asked: The port that was asked for; 0 for any.
        port: The one that JupyterLab took.
    """
    return (
        f"Port {asked} is in use, so JupyterLab takes {port}." if asked not in (0, port) else None
    )


def resumed(folder: Path) -> tuple[str, str]:
    """Find the notebook to go on with, and say why.

    Args:
        folder: The notebooks, and the progress.json that may be beside them.

    Returns:
        Its path from the root of the project, and what is solved so far, or nothing.
    """
    if not (folder / "progress.json").exists():
        return FIRST, ""
    # The exercises are loaded, and torch with them: only for whoever has solved some.
    from twelve_lab.check.progress import standing
    from twelve_lab.course import find_step

    try:
        found = standing(folder)
    except (ValueError, OSError):
        return FIRST, ""
    if found is None:
        return FIRST, ""
    return find_step(found.next[:2]).notebook if found.next else FIRST, found.text + " "


def next_step(opens: bool, address: str, notebook: str = FIRST, solved: str = "") -> str:
    """Say in one line what to do next.

    Args:
        opens: Whether a browser opens by itself.
        address: Of the notebook, with the token that lets the reader in.
        notebook: What opens.
        solved: What was solved before.
    """
    number = Path(notebook).name[:2]
    opening = f"Notebook {number} opens in your browser:"
    first = opening if opens else f"Open notebook {number} in a browser:"
    return (
        f"{solved}{first} press Shift+Enter in each cell, from the top. Ctrl+C here, then y, "
        f"stops it. {address}"
    )


def main(arguments: Sequence[str]) -> int:
    """Start JupyterLab, and stay until it is stopped.

    Args:
        arguments: More words for its command line.

    Returns:
        Exit status: 1 if JupyterLab is missing or cannot start.
    """
    # With these a shell can put the kernel of another Python before ours, under the same name.
    os.environ.pop("JUPYTER_PATH", None)
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    # The kernels inherit it: the first answer begins a progress.json there.
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
    # The loop calls in turn: it listens by then.
    server.io_loop.add_callback(print, *filter(None, lines), sep="\n", flush=True)
    # Else the server prints seven lines about its address, after ours.
    server.identity_provider.token_generated = False
    server.start()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
