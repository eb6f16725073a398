"""Runs one program in a sandbox made by bubblewrap (the package bubblewrap of Debian and Ubuntu).

The program sees the system and the course read-only, a home of its own in memory, the folder that
it shares with its starter, no other process and no network. bubblewrap starts a first process of
its own in a PID namespace. All processes of the program end with it, whatever they do.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from classroom import limits

HOME = "/home/student"
# Root hands each sandbox to a user ID without an account, so that the processes and files of one
# student never count against another. Debian reserves these IDs for programs.
FIRST_ID, IDS = 61_184, 4_000
SYSTEM = (
    "/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/etc/fonts",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
MEMORY = 4 << 30
# All files of the home, and all files of /tmp.
DISK = 64 << 20
# Threads count as processes, and a kernel has about ten.
LIMITS = [f"--as={MEMORY}", "--nproc=64", f"--fsize={DISK}", "--core=0"]
ENVIRONMENT = {
    "HOME": HOME,
    "USER": "student",
    "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "OMP_NUM_THREADS": "1",
    "TWELVE_DEVICE": "cpu",
    "TWELVE_PROGRESS": "",
}
# If memory runs out, Linux ends this process first. $0 is the memory group, or empty.
OUTSIDE = 'echo 1000 > /proc/self/oom_score_adj; [ -z "$0" ] || echo $$ > "$0/cgroup.procs"'
# $0 is the submission. Nothing that the program writes reaches the terminal of the teacher.
INSIDE = 'cp -R "$0/." . && exec "$@" > /dev/null 2>&1 < /dev/null'
ADVICE = "install it (Debian, Ubuntu: sudo apt install bubblewrap)"


class SandboxError(Exception):
    """This machine cannot run a sandbox."""


class Sandbox:
    """A sandbox for one program; use it as a context manager.

    Args:
        submission: A folder whose files are copied into the home.
    """

    def __init__(self, submission: Path) -> None:
        self.submission = submission
        self.user = None if os.geteuid() else FIRST_ID + secrets.randbelow(IDS)

    def __enter__(self) -> "Sandbox":
        """Make the folder that both sides see, and a memory group where Linux lets us."""
        self.folder = Path(tempfile.mkdtemp(prefix="grade"))
        self.shared, self._copy = self.folder / "shared", self.folder / "submission"
        self.shared.mkdir()
        shutil.copytree(self.submission, self._copy)
        # Without its list of fonts, matplotlib searches the system for seconds.
        fonts = self._copy / ".cache" / "matplotlib"
        fonts.mkdir(parents=True, exist_ok=True)
        cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "matplotlib"
        for path in cache.glob("fontlist-*.json"):
            shutil.copy(path, fonts)
        if self.user is not None:
            os.chown(self.shared, self.user, self.user)
            for path in (self._copy, *self._copy.rglob("*")):
                os.chown(path, self.user, self.user, follow_symlinks=False)
        self._group = limits.open_group(f"grading-{os.getpid()}-{secrets.token_hex(4)}", MEMORY)
        return self

    def __exit__(self, *_: object) -> None:
        """End what the memory group still holds, and remove the folder."""
        if self._group:
            limits.close_group(self._group)
        # The program may have removed permissions or created links. Neither command follows a link,
        # which shutil.rmtree and tempfile do on a Python without the fix of CVE-2023-6597.
        subprocess.run(["chmod", "-R", "u+rwX", self.folder], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", "--one-file-system", self.folder], check=False)

    def command(self, program: list[str]) -> list[str]:
        """Return the command that runs a program in the sandbox.

        Args:
            program: The program and its arguments.
        """
        code = Path(find_spec("twelve").origin).parents[1]
        python = {sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)}
        readable = [*SYSTEM, *sorted(python), str(code), str(Path(__file__).parent), self._copy]
        parents = {str(parent) for path in (*DEVICES, *readable) for parent in Path(path).parents}
        parents -= {"/", "/tmp"}
        environment = ENVIRONMENT | {"PYTHONPATH": str(code)}
        words = [
            # Variables of the teacher, such as tokens, are in no process that the program sees.
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items())),
            *("sh", "-c", f'{OUTSIDE}; exec "$@"', self._group or ""),
            *(self._outer() if self.user is None else ()),
            *("bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc"),
            *("--unshare-uts", "--unshare-cgroup-try", "--proc", "/proc"),
            *(word for path in ("/tmp", HOME) for word in self._disk(path)),
            # The default mode of these folders keeps other users out.
            *(word for path in sorted(parents) for word in ("--perms", "0755", "--dir", path)),
            *(word for path in DEVICES for word in ("--dev-bind", path, path)),
            *(word for path in readable for word in ("--ro-bind-try", path, path)),
            *("--bind", self.shared, self.shared, "--remount-ro", "/", "--chdir", HOME),
            *(self._become() if self.user is not None else ("--unshare-user", "--disable-userns")),
            *("prlimit", *LIMITS, "--", "sh", "-c", INSIDE, self._copy, *program),
        ]
        return [str(word) for word in words]

    @staticmethod
    def _outer() -> list[str]:
        """Add a second PID namespace around the first.

        Without root, the program runs as the user of bubblewrap's first process, and could attach
        a debugger to it. The first process of the outer namespace is out of its reach.
        """
        return ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--die-with-parent"]

    def _disk(self, path: str) -> list[str]:
        mode = "0755" if self.user is None else "1777"
        return ["--perms", mode, "--size", str(DISK), "--tmpfs", path]

    def _become(self) -> list[str]:
        """Give up root inside of the sandbox."""
        needed = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
        return [
            *(word for name in needed for word in ("--cap-add", name)),
            *("setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
        ]


@cache
def check() -> None:
    """Check once that this machine can run a sandbox.

    Raises:
        SandboxError: If it cannot, with the reason and what helps.
    """
    if not shutil.which("bwrap"):
        raise SandboxError(f"bwrap is not installed: {ADVICE}")
    needed = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
    program = [sys.executable, "-c", needed, "ipykernel", "twelve_lab"]
    with tempfile.TemporaryDirectory() as empty, Sandbox(Path(empty)) as sandbox:
        try:
            done = subprocess.run(
                sandbox.command(program), capture_output=True, text=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            raise SandboxError("bwrap did not end within a minute") from None
    if done.stderr.strip():
        raise SandboxError(
            f"{done.stderr.strip()}. Root can always run a sandbox. Another account needs user "
            "namespaces and bubblewrap 0.8 or newer"
        )
    if done.returncode:
        raise SandboxError(f"{sys.executable} does not find ipykernel and twelve_lab there")
