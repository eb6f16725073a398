"""Starts a JupyterHub for a class on this machine: `make hub`.

Usage: sudo make hub [STUDENTS=30] [CLASS=/srv/twelve] [HUB=/opt/twelve] [PORT=8000]

HUB is the folder of the installation, which root owns and everybody can read. CLASS is the folder
of the class, with home directories, passwords, nbgrader's exchange, and the state of the hub.
"""

import argparse
import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

from classroom import accounts, limits
from classroom.sandbox import ADVICE

ROOT = Path(__file__).resolve().parent.parent
# The parts of the project that a class needs.
TAKEN = (
    "src", "notebooks", "docs", "tools", "classroom", "README.md", "LICENSE", "Makefile",
    "pyproject.toml", "requirements.txt", "constraints.txt", "package.json", "package-lock.json",
    "language-model.txt",
)  # fmt: skip
LEFT = shutil.ignore_patterns("__pycache__", "node_modules", "*.egg-info", "progress.json", ".*")
# Folders that are linked in each home directory, because the notebooks link to them.
LINKS = ("notebooks", "docs", "src")
FITS = "import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))"


def hidden(path: Path) -> Path | None:
    """Return the first folder of a path that other accounts cannot enter, or None.

    Args:
        path: Path of a file or folder, which need not exist yet.
    """
    folders = [folder for folder in reversed([path, *path.parents]) if folder.exists()]
    return next((f for f in folders if not f.stat().st_mode & stat.S_IXOTH), None)


def python_for_all(named: str = "") -> str:
    """Find a Python that every account of this machine can run.

    Args:
        named: The only candidate, if not empty.

    Raises:
        ValueError: If no Python is suitable.
    """
    closed = []
    candidates = ["python3", "/usr/local/bin/python3", "/usr/bin/python3"]
    for name in [named] if named else candidates:
        path = shutil.which(name)
        if not path or subprocess.run([path, "-c", FITS], capture_output=True).returncode:
            continue
        where = "import sys; print(sys.base_prefix, sys.executable, sep='\\n')"
        paths = subprocess.run([path, "-c", where], capture_output=True, text=True).stdout
        folders = [hidden(Path(line).resolve()) for line in paths.splitlines()]
        if not any(folders):
            return path
        closed.append(f"{path} is inside {next(filter(None, folders))}")
    raise ValueError(
        "students need a Python 3.11 to 3.14 with venv that they can run"
        + "".join(f"; {candidate}" for candidate in closed)
        + ": install one (Debian, Ubuntu: apt install python3-venv), or name it, as in make hub "
        "PYTHON=/usr/bin/python3"
    )


def free(address: str, port: int) -> bool:
    """Return whether a port is free."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.create_server((address, port), family=family):
        return True
    return False


def problem(options: argparse.Namespace, root: bool) -> str | None:
    """Return why the class cannot start, or None.

    Args:
        options: Options of the command line.
        root: Whether the user is root.
    """
    if sys.platform != "linux":
        return "The accounts and limits of a class are those of Linux: run it there."
    if not root:
        return (
            "Each student gets a Unix account, which only root can make: sudo make hub. (For "
            "yourself alone, make lab needs no root.)"
        )
    try:
        accounts.count(options.students)
    except ValueError as error:
        return str(error)
    if not (options.port.isascii() and options.port.isdigit() and 0 < int(options.port) < 65534):
        return f"PORT must be a number from 1 to 65533, got {options.port!r}."
    if options.no_passwords and not loopback(options.address):
        return (
            "Without passwords anybody can log in as anybody: that is for this machine alone, and "
            f"ADDRESS={options.address} lets others in."
        )
    if not re.fullmatch(r"\d+(\.\d+)?[MG]", options.memory):
        return (
            f"MEMORY must be megabytes or gigabytes, such as 1500M or 2G, got {options.memory!r}."
        )
    port = int(options.port)
    if pid := alive(options.folder / "hub/hub.pid", "jupyterhub"):
        return f"This class is open already: kill {pid} closes it."
    wanted = [(options.address, port), ("127.0.0.1", port + 1), ("127.0.0.1", port + 2)]
    if alive(options.folder / "hub/proxy.pid", "configurable-http-proxy"):
        wanted = wanted[1:2]  # the proxy of a killed hub, which the next hub replaces
    for address, number in wanted:
        if not free(address, number):
            return (
                f"Port {number} of {address} is in use: choose another, as in make hub PORT=9000."
            )
    for folder in (options.hub, options.folder):
        if shut := hidden(folder):
            return f"Students cannot enter {shut}, and so not {folder}: choose another folder."
    for program in ("node", "npm"):
        if not shutil.which(program):
            return f"{program} is needed, and is not installed (Debian, Ubuntu: apt install npm)."
    return None


def alive(file: Path, program: str) -> int:
    """Return the PID from a file if that process is running, otherwise 0.

    Args:
        file: The PID file.
        program: Part of the process's command line, because the PID may have been reused.
    """
    try:
        pid = int(file.read_text())
        return pid if program in Path(f"/proc/{pid}/cmdline").read_text() else 0
    except (OSError, ValueError):
        return 0


def loopback(address: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    return address in ("localhost", "::1") or address.startswith("127.")


def install(hub: Path, python: str = "") -> Path:
    """Install or update the course for all accounts; only root can write to the folder.

    Args:
        hub: Folder of the installation.
        python: Python to install with; found automatically if empty.

    Returns:
        The Python of the installation.

    Raises:
        ValueError: If no Python is suitable.
        OSError: If the folder cannot be written.
        subprocess.CalledProcessError: If a package cannot be installed; the installer prints why.
    """
    if hub != ROOT:
        hub.mkdir(parents=True, exist_ok=True)
        for name in TAKEN:
            _copy(ROOT / name, hub / name)
    quiet = {"cwd": hub, "check": True, "umask": 0o022}
    chosen = python_for_all(python)
    subprocess.run(
        ["make", "--no-print-directory", "--silent", f"PYTHON={chosen}", ".venv/with-hub"], **quiet
    )
    # Students cannot write bytecode there, so each kernel would recompile every module. A few
    # files of PyTorch need a newer Python and fail to compile.
    words = [".venv/bin/python", "-m", "compileall", "-qq", ".venv/lib", "src"]
    subprocess.run(words, **quiet | {"check": False})
    proxy = hub / "classroom"
    installed = proxy / "node_modules/.package-lock.json"
    lock = proxy / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(words, **quiet | {"cwd": proxy})
        os.utime(installed)
    return hub / ".venv/bin/python"


def _copy(here: Path, there: Path) -> None:
    """Synchronise a file or folder, but keep installed packages in the target."""
    if here.is_dir():
        names = {path.name for path in here.iterdir()}
        names -= LEFT(str(here), [*names])
        there.mkdir(exist_ok=True)
        there.chmod(0o755)
        old = {path.name for path in there.iterdir()}
        for name in (old - names) - LEFT(str(there), [*old]):
            gone = there / name
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        for name in names:
            _copy(here / name, there / name)
    elif not there.exists() or here.read_bytes() != there.read_bytes():
        shutil.copyfile(here, there)
        there.chmod(0o644)


def prepare(folder: Path, hub: Path, students: int, prefix: str, teacher: str) -> list[str]:
    """Create the folder of the class, and the missing accounts.

    Args:
        folder: Folder of the class.
        hub: Folder of the installation.
        students: Number of students.
        prefix: Prefix of the students' account names.
        teacher: Name of the teacher's account.

    Returns:
        The names of the new accounts.

    Raises:
        ValueError: If a name is taken or invalid, or a path is a file instead of a folder.
        OSError: If a folder or an account cannot be created.
    """
    for path, mode in ((folder, 0o755), (folder / "hub", 0o700), (folder / "home", 0o755)):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
    made = accounts.make(folder, accounts.names(students, prefix), teacher)
    for name in made:
        for link in LINKS:
            with contextlib.suppress(FileExistsError):
                (folder / "home" / name / link).symlink_to(hub / link)
    _exchange(folder / "exchange", accounts.members(folder)[teacher])
    return made


def _exchange(exchange: Path, teacher: pwd.struct_passwd) -> None:
    """Create nbgrader's exchange folders, with permissions that separate the students.

    The teacher owns some of these folders and could put links there, so root changes only folders
    that it has just created.

    Raises:
        ValueError: If a path is a link or a file instead of a folder.
    """
    for path, mode in (
        (exchange, 0o1777),
        (exchange / "twelve", 0o755),
        (exchange / "twelve/outbound", 0o755),
        (exchange / "twelve/inbound", 0o3733),
        (exchange / "twelve/feedback", 0o711),
    ):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if path.is_symlink() or not path.is_dir():
                raise ValueError(f"{path} must be a folder: remove what is there") from None
            continue
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if path != exchange:
                os.fchown(folder, teacher.pw_uid, teacher.pw_gid)
            os.fchmod(folder, mode)
        finally:
            os.close(folder)


@contextlib.contextmanager
def running(
    python: Path, folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen]:
    """Run JupyterHub; stop it and all servers on exit.

    Args:
        python: The Python of the installation.
        folder: The folder of the class.
        environment: Environment variables for jupyterhub_config.py.
    """
    classroom = python.parents[2] / "classroom"
    bin = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    left = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
    with (folder / "hub/hub.log").open("a") as log:
        hub = subprocess.Popen(
            [python, "-m", "jupyterhub", "--config", classroom / "jupyterhub_config.py"],
            cwd=folder / "hub", stdin=subprocess.DEVNULL, stdout=log, stderr=log, umask=0o022,
            # Ctrl-C must reach only this process, which forwards it once.
            start_new_session=True,
            env=left | {"PATH": bin, "TWELVE_CLASS": str(folder), **environment},
        )  # fmt: skip
    try:
        yield hub
    finally:
        if hub.poll() is None:
            hub.send_signal(signal.SIGTERM)
        while hub.poll() is None:  # ignore a second Ctrl-C during shutdown
            with contextlib.suppress(KeyboardInterrupt):
                hub.wait()


def ready(hub: subprocess.Popen, address: str, seconds: int = 60) -> bool:
    """Wait until the hub answers; return False if it exits or the time runs out.

    Args:
        hub: Process of the hub.
        address: URL of the hub.
        seconds: Timeout in seconds.
    """
    for _ in range(seconds * 4):
        if hub.poll() is not None:
            return False
        with contextlib.suppress(OSError), urlopen(f"{address}/hub/health", timeout=5):
            return True
        time.sleep(0.25)
    return False


def main(words: Sequence[str]) -> int:
    """Start the hub, and wait until it is stopped.

    Args:
        words: The arguments of the command line.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser("classroom.start", description=__doc__.splitlines()[0])
    parser.add_argument("--students", default="", help="the number of accounts")
    parser.add_argument("--folder", type=Path, default=Path("/srv/twelve"), help="of the class")
    parser.add_argument("--hub", type=Path, default=Path("/opt/twelve"), help="of the installation")
    parser.add_argument("--address", default="127.0.0.1", help="to listen on")
    parser.add_argument("--port", default="8000", help="the next two ports are used too")
    parser.add_argument("--memory", default="2G", help="of one student")
    parser.add_argument("--python", default="", help="to install with")
    parser.add_argument("--prefix", default="student", help="of the names of the students")
    parser.add_argument("--teacher", default="teacher", help="name of the teacher's account")
    parser.add_argument(
        "--no-passwords", action="store_true", help="let anybody log in as anybody, to try it out"
    )
    options = parser.parse_args(words)
    options.folder, options.hub = options.folder.resolve(), options.hub.resolve()
    if reason := problem(options, root=os.geteuid() == 0):
        print(reason, file=sys.stderr)
        return 1
    try:
        python = install(options.hub, options.python)
        students = accounts.count(options.students)
        made = prepare(options.folder, options.hub, students, options.prefix, options.teacher)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    if made:
        print(f"{len(made)} accounts made; passwords: {options.folder / accounts.PASSWORDS}")
    if not shutil.which("bwrap"):
        print(f"WARNING: grading needs bwrap: {ADVICE}.", file=sys.stderr)
    if not loopback(options.address):
        print(
            "WARNING: passwords cross the network in plain text. Use a web server with TLS, and "
            "let this one listen on 127.0.0.1: docs/teaching.md says how.",
            file=sys.stderr,
        )
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, signal.default_int_handler)
    environment = {
        "TWELVE_HUB_ADDRESS": options.address,
        "TWELVE_HUB_PORT": options.port,
        "TWELVE_HUB_MEMORY": options.memory,
        "TWELVE_HUB_NO_PASSWORDS": "1" if options.no_passwords else "",
    }
    host = f"[{options.address}]" if ":" in options.address else options.address
    with running(python, options.folder, environment) as hub:
        try:
            if not ready(hub, f"http://{host}:{options.port}"):
                print(f"The hub does not answer: see {options.folder}/hub/hub.log", file=sys.stderr)
                return 1
            whole = (
                "all processes of a student together" if limits.memory_groups() else "each process"
            )
            print(f"The class is open: http://{host}:{options.port}  Ctrl+C closes it.")
            print(f"Memory: {options.memory} for {whole}.", flush=True)
            hub.wait()
            print(
                f"The hub ended by itself: see {options.folder}/hub/hub.log. The same command "
                "opens the class again; running servers stay.",
                file=sys.stderr,
            )
            return 1
        except KeyboardInterrupt:
            print("Closing: all servers are stopped.", flush=True)
    limits.forget()
    print(f"Closed. Every answer is in {options.folder / 'home'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
