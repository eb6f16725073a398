"""Plugin for pytest: kernels forked from a process that has loaded the libraries.

To load torch and matplotlib takes a kernel two seconds, and `make test` starts forty. One process
loads them for all workers. Nothing of ours is loaded beforehand, and what one kernel does no other
one sees: each is a process of its own.

    pytest -p tests.warm_kernels -p tests.course.nbval_guard --nbval notebooks

Where a machine has no fork server, every kernel starts from nothing, as it does for a reader.
"""

import gc
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from itertools import cycle
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_client.connect import LocalPortCache
from jupyter_client.launcher import launch_kernel
from jupyter_client.provisioning import local_provisioner

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[1]
WORKER = "PYTEST_XDIST_WORKER"  # names a process of pytest-xdist: gw0, gw1, ...
ADDRESS = "WARM_KERNELS"  # holds the server's address for the workers, whose parent starts it
LIBRARIES = [
    "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger", "torch", "torch._dynamo",
    "jaxtyping", "einops", "matplotlib.figure", "matplotlib.patches", "matplotlib.backend_bases",
]  # fmt: skip


def pytest_configure(config: "pytest.Config") -> None:
    """Let the kernels of this process start warm."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        if ADDRESS not in os.environ:
            config.add_cleanup(Server().stop)
        local_provisioner.launch_kernel = _start
        LocalPortCache.find_available_port = _next_port


# A port that is free when it is chosen may be taken before the kernel listens there: by a kernel of
# another worker, or by a browser that calls somebody. Each worker has a stretch of its own, below
# those that a system hands to callers.
_ports = cycle(range(start := 20_000 + 1_000 * int(os.getenv(WORKER, "gw9")[2:]), start + 1_000))


def _next_port(_: LocalPortCache, ip: str) -> int:
    """Find a port that nobody listens at."""
    while True:
        with socket.socket() as tried, suppress(OSError):
            tried.bind((ip, port := next(_ports)))
            return port


class Server:
    """The process that loads the libraries once and then forks. It ends with the one it serves."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        os.environ[ADDRESS] = f"{self._folder.name}/kernels"
        # Whoever asks before the libraries are loaded waits in line.
        with socket.socket(socket.AF_UNIX) as asked:
            asked.bind(os.environ[ADDRESS])
            asked.listen(16)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_kernels", str(asked.fileno())],
                cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[asked.fileno()],
                env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"},  # a warning, otherwise
            )  # fmt: skip

    def stop(self) -> None:
        """End it, and the kernels that it forked."""
        del os.environ[ADDRESS]
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


class WarmKernel:
    """A kernel that was forked, with what jupyter_client asks of subprocess.Popen."""

    stdin = stdout = stderr = None

    def __init__(
        self, command: list[str], *, cwd: str | None, env: dict[str, str], **_: object
    ) -> None:
        """Start a kernel.

        Args:
            command: What would start it from nothing: Python, -m, the launcher, its options.
            cwd: Where it runs; where we are if it is None.
            env: Its environment.
        """
        launcher = command.index("ipykernel_launcher")
        self._kernel = Client(os.environ[ADDRESS])
        self._kernel.send((command[launcher:], cwd or os.getcwd(), env))
        # Whoever interrupts a kernel signals its group: until it leads one, that is the server's.
        self.pid = self._kernel.recv()

    def poll(self) -> int | None:
        """Give 0 once it has ended, whatever its status was; None as long as it runs."""
        return 0 if self._kernel.poll() else None

    def wait(self) -> int:
        """Wait for the end: it says nothing more, and its side is closed."""
        self._kernel.poll(None)
        return 0

    def send_signal(self, signum: int) -> None:
        """Signal the kernel alone, where it still runs."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def _start(command: list[str], **settings: object) -> "WarmKernel | subprocess.Popen":
    """Start a kernel warm, or cold where another program starts it, as behind the walls."""
    launch = WarmKernel if "ipykernel_launcher" in command else launch_kernel
    return launch(command, **settings)


def _serve(listener: socket.socket) -> None:
    """Fork a kernel for each one who asks, until the process that we serve closes our input."""
    for name in LIBRARIES:
        import_module(name)
    # The garbage collector of a kernel need not walk through all that, and copy its pages.
    gc.collect()
    gc.freeze()
    kernels = set()
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        asks = Connection(listener.accept()[0].detach())
        if (kernel := os.fork()) == 0:
            listener.close()
            try:
                _be_a_kernel(asks, *asks.recv())
            finally:
                os._exit(0)
        asks.close()
        kernels = {one for one in kernels | {kernel} if os.waitpid(one, os.WNOHANG) == (0, 0)}


def _be_a_kernel(asks: Connection, arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """Be a kernel, as ipykernel_launcher is one."""
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    # A kernel ends with its parent, which is the server here.
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    with open(os.devnull, "r+") as nowhere:
        for stream in range(3):
            os.dup2(nowhere.fileno(), stream)
    sys.argv = arguments
    # A reader's kernel finds what is installed, and none of the folders of tests and tools.
    sys.path[:] = [path for path in sys.path if path and not _is_ours(Path(path))]
    asks.send(os.getpid())

    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


def _is_ours(path: Path) -> bool:
    """Say whether pytest put a folder of the project on the path."""
    return path == ROOT or path.is_relative_to(ROOT / "tests")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        _serve(asked)
