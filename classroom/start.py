"""Starts a JupyterHub for a class on this machine: `make hub`.

Usage: sudo make hub [STUDENTS=30] [CLASS=/srv/twelve] [HUB=/opt/twelve] [PORT=8000]

HUB is where the course is installed, once, owned by root and only read by everybody else. CLASS
holds all that belongs to the class: homes, passwords, exchange, the hub's memory of who is there.
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

ROOT = Path(__file__).resolve().parent.parent
# What a class needs of the project.
TAKEN = (
    "src", "notebooks", "docs", "tools", "classroom", "README.md", "LICENSE", "Makefile",
    "pyproject.toml", "requirements.txt", "constraints.txt", "package.json", "package-lock.json",
    "language-model.txt",
)  # fmt: skip
LEFT = shutil.ignore_patterns("__pycache__", "node_modules", "*.egg-info", "progress.json", ".*")
# What a student finds at home, beside what was fetched: the links of the notebooks lead there.
LINKS = ("notebooks", "docs", "src")
FITS = "import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))"
STARTS = 60


def hidden(path: Path) -> Path | None:
    """Find what keeps others out of a file or folder.

    Args:
        path: Of the file or folder; it need not be there yet.

    Returns:
        The first folder on the way that others may not pass, or None.
    """
    on_the_way = [one for one in reversed([path, *path.parents]) if one.exists()]
    return next((one for one in on_the_way if not one.stat().st_mode & stat.S_IXOTH), None)


def python_for_all(named: str = "") -> str:
    """Find a Python that every account of this machine can run.

    Args:
        named: The one to take, if it can be.

    Raises:
        ValueError: If there is none.
    """
    closed = []
    for name in [named] if named else ["python3", *_everywhere("python3")]:
        path = shutil.which(name)
        if not path or subprocess.run([path, "-c", FITS], capture_output=True).returncode:
            continue
        base = subprocess.run(
            [path, "-c", "import sys; print(sys.base_prefix, sys.executable, sep='\\n')"],
            capture_output=True, text=True,
        ).stdout.splitlines()  # fmt: skip
        where = [hidden(Path(one).resolve()) for one in base]
        if not any(where):
            return path
        closed.append(f"{path} lies behind {next(filter(None, where))}")
    raise ValueError(
        "students need a Python 3.11 to 3.14 with venv that they can run"
        + "".join(f"; {one}" for one in closed)
        + ": install one (Debian, Ubuntu: apt install python3-venv), or name it, as in make hub "
        "PYTHON=/usr/bin/python3"
    )


def _everywhere(name: str) -> list[str]:
    return [f"{folder}/{name}" for folder in ("/usr/local/bin", "/usr/bin")]


def free(address: str, port: int) -> bool:
    """Say whether nobody listens there."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((address, port))
        except OSError:
            return False
    return True


def wrong(given: argparse.Namespace, root: bool) -> str | None:
    """Say what is in the way of a start, if anything is.

    Args:
        given: The command line.
        root: Whether root asks.
    """
    if sys.platform != "linux":
        return "The accounts and limits of a class are those of Linux: run it there."
    if not root:
        return (
            "Each student gets a Unix account, which only root can make: sudo make hub. (For "
            "yourself alone, make lab needs no root.)"
        )
    try:
        accounts.count(given.students)
    except ValueError as error:
        return str(error)
    if not (given.port.isascii() and given.port.isdigit() and 0 < int(given.port) < 65534):
        return f"PORT={given.port}: it takes a number from 1 to 65533."
    if given.no_passwords and not loopback(given.address):
        return (
            "Without passwords anybody is whoever they say: that is for this machine alone, and "
            f"ADDRESS={given.address} lets others in."
        )
    if not re.fullmatch(r"\d+(\.\d+)?[MG]", given.memory):
        return f"MEMORY={given.memory}: it takes megabytes or gigabytes, such as 1500M or 2G."
    port = int(given.port)
    if pid := alive(given.folder / "hub/hub.pid", "jupyterhub"):
        return f"This class is open already: kill {pid} closes it."
    wanted = [(given.address, port), ("127.0.0.1", port + 1), ("127.0.0.1", port + 2)]
    if alive(given.folder / "hub/proxy.pid", "configurable-http-proxy"):
        wanted = wanted[1:2]  # a hub that was killed left its proxy, which the next one replaces
    for address, number in wanted:
        if not free(address, number):
            return f"Port {number} of {address} is taken: name another, as in make hub PORT=9000."
    for folder in (given.hub, given.folder):
        if shut := hidden(folder):
            return f"Students cannot pass {shut} on the way to {folder}: choose another folder."
    for program in ("node", "npm"):
        if not shutil.which(program):
            return f"{program} is needed, and is not installed (Debian, Ubuntu: apt install npm)."
    return None


def alive(file: Path, program: str) -> int:
    """Look for a process that noted its number.

    Args:
        file: Where it stands.
        program: What its command line has in it: the number may be another's by now.

    Returns:
        Its number, or 0.
    """
    try:
        pid = int(file.read_text())
        return pid if program in Path(f"/proc/{pid}/cmdline").read_text() else 0
    except (OSError, ValueError):
        return 0


def loopback(address: str) -> bool:
    """Say whether only this machine can reach an address."""
    return address in ("localhost", "::1") or address.startswith("127.")


def install(hub: Path, python: str = "") -> Path:
    """Put the course where all can read it and root alone can write, or renew it.

    Args:
        hub: The folder.
        python: The Python to take, if it can be.

    Returns:
        The Python of the installation.

    Raises:
        ValueError: If there is no Python for it.
        OSError: If it cannot be written.
        subprocess.CalledProcessError: If a package cannot be installed, which is then said.
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
    # Students cannot write what they import, so each kernel would compile it anew. A few files of
    # PyTorch are for a newer Python.
    words = [".venv/bin/python", "-m", "compileall", "-qq", ".venv/lib", "src"]
    subprocess.run(words, **quiet | {"check": False})
    proxy = hub / "classroom"
    if not _newer(proxy / "node_modules/.package-lock.json", proxy / "package-lock.json"):
        words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(words, **quiet | {"cwd": proxy})
        os.utime(proxy / "node_modules/.package-lock.json")
    return hub / ".venv/bin/python"


def _newer(one: Path, other: Path) -> bool:
    return one.exists() and one.stat().st_mtime >= other.stat().st_mtime


def _copy(here: Path, there: Path) -> None:
    """Copy what changed and remove what is gone; what was installed there stays."""
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
    """Make the folder of the class, and the accounts that are missing.

    Args:
        folder: Of the class.
        hub: Of the installation.
        students: How many there shall be.
        prefix: What the names of the students begin with.
        teacher: The name of the teacher's account.

    Returns:
        The names of the accounts that were made.

    Raises:
        ValueError: If a name is taken.
        OSError: If something cannot be made.
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
    """Make what nbgrader would make, but so that nobody can move away what is another's."""
    for path, mode in (
        (exchange, 0o1777),
        (exchange / "twelve", 0o755),
        (exchange / "twelve/outbound", 0o755),
        (exchange / "twelve/inbound", 0o3733),
        (exchange / "twelve/feedback", 0o711),
    ):
        path.mkdir(exist_ok=True)
        if path != exchange:
            os.chown(path, teacher.pw_uid, teacher.pw_gid)
        path.chmod(mode)


@contextlib.contextmanager
def running(
    python: Path, folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen]:
    """Run JupyterHub, and stop it at the end with all that it started.

    Args:
        python: Of the installation.
        folder: Of the class.
        environment: The variables that jupyterhub_config.py reads.
    """
    classroom = python.parents[2] / "classroom"
    bin = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    left = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
    with (folder / "hub/hub.log").open("a") as log:
        hub = subprocess.Popen(
            [python, "-m", "jupyterhub", "--config", classroom / "jupyterhub_config.py"],
            cwd=folder / "hub", stdin=subprocess.DEVNULL, stdout=log, stderr=log, umask=0o022,
            # A Ctrl-C comes to us alone, and is handed on once.
            start_new_session=True,
            env=left | {"PATH": bin, "TWELVE_CLASS": str(folder), **environment},
        )  # fmt: skip
    try:
        yield hub
    finally:
        if hub.poll() is None:
            hub.send_signal(signal.SIGTERM)
        while hub.poll() is None:  # a second Ctrl-C does not cut the stop short
            with contextlib.suppress(KeyboardInterrupt):
                hub.wait()


def ready(hub: subprocess.Popen, address: str) -> bool:
    """Wait until the hub answers.

    Args:
        hub: Its process.
        address: Of its page.

    Returns:
        False if it ended instead, or took longer than a minute.
    """
    for _ in range(STARTS * 4):
        if hub.poll() is not None:
            return False
        with contextlib.suppress(OSError), urlopen(f"{address}/hub/health", timeout=5):
            return True
        time.sleep(0.25)
    return False


def main(words: Sequence[str]) -> int:
    """Start the hub, and stay until it is stopped.

    Args:
        words: Of the command line.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser("classroom.start", description=__doc__.splitlines()[0])
    parser.add_argument("--students", default="", help="so many accounts there shall be")
    parser.add_argument("--folder", type=Path, default=Path("/srv/twelve"), help="of the class")
    parser.add_argument("--hub", type=Path, default=Path("/opt/twelve"), help="of the installation")
    parser.add_argument("--address", default="127.0.0.1", help="who may come: this machine alone")
    parser.add_argument("--port", default="8000", help="two more behind it are taken")
    parser.add_argument("--memory", default="2G", help="of one student")
    parser.add_argument("--python", default="", help="to install with")
    parser.add_argument("--prefix", default="student", help="of the names of the students")
    parser.add_argument("--teacher", default="teacher", help="name of the teacher's account")
    parser.add_argument(
        "--no-passwords", action="store_true", help="let anybody in as anybody, to try it out"
    )
    given = parser.parse_args(words)
    given.folder, given.hub = given.folder.resolve(), given.hub.resolve()
    if trouble := wrong(given, root=os.geteuid() == 0):
        print(trouble, file=sys.stderr)
        return 1
    try:
        python = install(given.hub, given.python)
        students = accounts.count(given.students)
        made = prepare(given.folder, given.hub, students, given.prefix, given.teacher)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    if made:
        print(f"{len(made)} accounts made; passwords: {given.folder / accounts.PASSWORDS}")
    if not loopback(given.address):
        print(
            "WARNING: passwords cross the network in plain text. Put a web server with TLS in "
            "front, and let this one listen on 127.0.0.1: docs/teaching.md says how.",
            file=sys.stderr,
        )
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, signal.default_int_handler)
    environment = {
        "TWELVE_HUB_ADDRESS": given.address,
        "TWELVE_HUB_PORT": given.port,
        "TWELVE_HUB_MEMORY": given.memory,
        "TWELVE_HUB_NO_PASSWORDS": "1" if given.no_passwords else "",
    }
    host = f"[{given.address}]" if ":" in given.address else given.address
    with running(python, given.folder, environment) as hub:
        try:
            if not ready(hub, f"http://{host}:{given.port}"):
                print(f"The hub does not answer: see {given.folder}/hub/hub.log", file=sys.stderr)
                return 1
            whole = "all that a student runs" if limits.memory_groups() else "each process"
            print(f"The class is open: http://{host}:{given.port}  Ctrl+C closes it.")
            print(f"Memory: {given.memory} for {whole}.", flush=True)
            hub.wait()
            print(
                f"The hub ended by itself: see {given.folder}/hub/hub.log. The same command opens "
                "the class again; who is at work can go on.",
                file=sys.stderr,
            )
            return 1
        except KeyboardInterrupt:
            print("Closing: all servers are stopped.", flush=True)
    limits.forget()
    print(f"Closed. Every answer is in {given.folder / 'home'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
