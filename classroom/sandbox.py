"""Runs a program in a bubblewrap sandbox (Debian and Ubuntu package: bubblewrap).

The program can read the system and the course. It has its own home directory in memory and a folder
shared with the caller. It has no network and cannot see other processes. bubblewrap starts an init
process in a PID namespace: when this process ends, all processes of the program end.
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
# Root runs each sandbox under a user ID without an account, so the processes and files of a student
# never count against another student's limits. Debian reserves these IDs for programs.
FIRST_ID, IDS = 61_184, 4_000
SYSTEM = (
    "/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/etc/fonts",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
MEMORY = 4 << 30
# Limit of all files in the home directory, and of all files in /tmp.
DISK = 64 << 20
# Threads count as processes; a kernel has about ten.
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
# If memory runs out, Linux kills this process first. $0 is the memory group, or empty.
OUTSIDE = 'echo 1000 > /proc/self/oom_score_adj; [ -z "$0" ] || echo $$ > "$0/cgroup.procs"'
# $0 is the submission. The program's output never reaches the teacher's terminal.
INSIDE = 'cp -R "$0/." . && exec "$@" > /dev/null 2>&1 < /dev/null'
ADVICE = "install it (Debian, Ubuntu: sudo apt install bubblewrap)"


class SandboxError(Exception):
    """This machine cannot run a sandbox."""


class Sandbox:
    """A sandbox for one program; use it as a context manager.

    Args:
        submission: Folder whose files are copied into the home directory.
    """

    def __init__(self, submission: Path) -> None:
        self.submission = submission
        self.user = None if os.geteuid() else FIRST_ID + secrets.randbelow(IDS)

    def __enter__(self) -> "Sandbox":
        """Create the shared folder, and a memory group if possible."""
        self.folder = Path(tempfile.mkdtemp(prefix="grade"))
        self.shared, self._copy = self.folder / "shared", self.folder / "submission"
        self.shared.mkdir()
        shutil.copytree(self.submission, self._copy)
        # Without its font list, matplotlib spends seconds searching the system.
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
        """Kill the remaining processes of the memory group, and remove the folder."""
        if self._group:
            limits.close_group(self._group)
        # The program may have removed permissions or created links. These commands do not follow
        # links; shutil.rmtree and tempfile do so on a Python without the fix for CVE-2023-6597.
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
            # The program must not see the teacher's environment variables, such as tokens.
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items())),
            *("sh", "-c", f'{OUTSIDE}; exec "$@"', self._group or ""),
            *(self._outer() if self.user is None else ()),
            *("bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc"),
            *("--unshare-uts", "--unshare-cgroup-try", "--proc", "/proc"),
            *(word for path in ("/tmp", HOME) for word in self._disk(path)),
            # By default, other users could not enter these folders.
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

        Without root, the program and bubblewrap's init process have the same user, so the program
        could attach a debugger to it. The init process of the outer namespace is out of reach.
        """
        return ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--die-with-parent"]

    def _disk(self, path: str) -> list[str]:
        mode = "0755" if self.user is None else "1777"
        return ["--perms", mode, "--size", str(DISK), "--tmpfs", path]

    def _become(self) -> list[str]:
        """Drop root privileges inside the sandbox."""
        needed = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
        return [
            *(word for name in needed for word in ("--cap-add", name)),
            *("setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
        ]


@cache
def check() -> None:
    """Check that this machine can run a sandbox; the result is cached.

    Raises:
        SandboxError: If it cannot; the message contains the reason and advice.
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
