"""pytest plugin: fork kernels from a process that has loaded the libraries.

A kernel takes two seconds to load torch and matplotlib, and `make test` starts forty kernels. A
fork server loads the libraries once for all workers, and none of our code. Each kernel is a
separate process.

    pytest -p tests.warm_kernels -p tests.course.nbval_guard --nbval notebooks

Without a fork server every kernel starts cold, as it does for a reader.
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
WORKER = "PYTEST_XDIST_WORKER"  # id of a pytest-xdist worker: gw0, gw1, ...
ADDRESS = "WARM_KERNELS"  # server address, which the workers inherit from their parent
LIBRARIES = [
    "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger", "torch", "torch._dynamo",
    "jaxtyping", "einops", "matplotlib.figure", "matplotlib.patches", "matplotlib.backend_bases",
]  # fmt: skip


def pytest_configure(config: "pytest.Config") -> None:
    """Make this process start its kernels warm."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        if ADDRESS not in os.environ:
            config.add_cleanup(Server().stop)
        local_provisioner.launch_kernel = _start
        LocalPortCache.find_available_port = _next_port


# Another process could take a free port before the kernel listens on it. Each worker therefore has
# its own range, below the ephemeral ports.
_ports = cycle(range(start := 20_000 + 1_000 * int(os.getenv(WORKER, "gw9")[2:]), start + 1_000))


def _next_port(_: LocalPortCache, ip: str) -> int:
    """Find a free port in the range of this worker."""
    while True:
        with socket.socket() as tried, suppress(OSError):
            tried.bind((ip, port := next(_ports)))
            return port


class Server:
    """Process that preloads the libraries and forks kernels. It ends with its parent process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        os.environ[ADDRESS] = f"{self._folder.name}/kernels"
        # Requests wait in the queue until the libraries are loaded.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.environ[ADDRESS])
            listener.listen(16)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_kernels", str(listener.fileno())],
                cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()],
                env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"},  # avoids a warning
            )  # fmt: skip

    def stop(self) -> None:
        """End the process and its kernels."""
        del os.environ[ADDRESS]
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


class WarmKernel:
    """A forked kernel, with the interface of subprocess.Popen that jupyter_client uses."""

    stdin = stdout = stderr = None

    def __init__(
        self, command: list[str], *, cwd: str | None, env: dict[str, str], **_: object
    ) -> None:
        """Start a kernel.

        Args:
            command: Command of a cold kernel: Python, -m, the launcher, its options.
            cwd: Working directory; the current directory if None.
            env: Environment variables.
        """
        launcher = command.index("ipykernel_launcher")
        self._kernel = Client(os.environ[ADDRESS])
        self._kernel.send((command[launcher:], cwd or os.getcwd(), env))
        # Until the kernel leads its own process group, an interrupt would signal the server's.
        self.pid = self._kernel.recv()

    def poll(self) -> int | None:
        """Return None while the kernel runs, and then 0, whatever its exit status."""
        return 0 if self._kernel.poll() else None

    def wait(self) -> int:
        """Wait until the kernel has ended and closed its connection."""
        self._kernel.poll(None)
        return 0

    def send_signal(self, signum: int) -> None:
        """Send a signal to the kernel if it is still running."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _start(command: list[str], **settings: object) -> "WarmKernel | subprocess.Popen":
    """Start a kernel warm, or cold if another program such as a sandbox launches it."""
    launch = WarmKernel if "ipykernel_launcher" in command else launch_kernel
    return launch(command, **settings)


def _serve(listener: socket.socket) -> None:
    """Fork a kernel for each request, until standard input is closed."""
    for name in LIBRARIES:
        import_module(name)
    if os.environ.get("TWELVE_DEVICE") == "pretend":
        import_module("tests.pretend")
    # Keep the garbage collector of a kernel from copying the shared pages.
    gc.collect()
    gc.freeze()
    kernels = set()
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        request = Connection(listener.accept()[0].detach())
        if (kernel := os.fork()) == 0:
            listener.close()
            try:
                _be_a_kernel(request, *request.recv())
            finally:
                os._exit(0)
        request.close()
        kernels = {pid for pid in kernels | {kernel} if os.waitpid(pid, os.WNOHANG) == (0, 0)}


def _be_a_kernel(request: Connection, arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """Run a kernel as ipykernel_launcher does."""
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    # The kernel watches its parent, which is the server.
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    with open(os.devnull, "r+") as nowhere:
        for stream in range(3):
            os.dup2(nowhere.fileno(), stream)
    sys.argv = arguments
    # Like a reader's kernel, find installed packages but not the folders tests and tools.
    sys.path[:] = [path for path in sys.path if path and not _is_ours(Path(path))]
    request.send(os.getpid())

    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


def _is_ours(path: Path) -> bool:
    """Return whether pytest added this folder to sys.path."""
    return path == ROOT or path.is_relative_to(ROOT / "tests")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        _serve(listener)
