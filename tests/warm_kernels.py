"""Plugin for pytest: kernels forked from a process that has loaded the libraries.

To load torch and matplotlib takes a kernel two seconds, and `make test` starts forty. Nothing of
ours is loaded beforehand, and what one kernel does no other one sees: each is a process of its own.

    pytest -p tests.warm_kernels -p tests.course.nbval_guard --nbval notebooks

Where a machine has no fork server, every kernel starts from nothing, as it does for a reader.
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from jupyter_client.provisioning import local_provisioner

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = [
    "ipykernel.kernelapp", "ipykernel.ipkernel", "torch", "torch._dynamo", "jaxtyping", "einops",
    "matplotlib.figure", "matplotlib.patches", "matplotlib.backend_bases",
]  # fmt: skip


def pytest_configure() -> None:
    """Let the kernels of this process start warm."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        local_provisioner.launch_kernel = WarmKernel


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
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(LIBRARIES)
        begun, begins = context.Pipe(duplex=False)
        arguments = (command[launcher:], cwd or os.getcwd(), env, begins)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        begins.close()
        # Whoever interrupts a kernel signals its group: until it leads one, that is our own.
        self.pid = begun.recv()

    def poll(self) -> int | None:
        """Give the exit status; None as long as it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """Wait for the end, and give the exit status."""
        self._process.join()
        return self._process.exitcode

    def send_signal(self, signum: int) -> None:
        """Signal the kernel alone, where it still runs."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it."""
        self._process.kill()


def _serve(arguments: list[str], cwd: str, env: dict[str, str], begins: Connection) -> None:
    """Be a kernel, as ipykernel_launcher is one."""
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    # A kernel ends with its parent, which is the fork server here.
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    sys.argv = arguments
    # A reader's kernel finds what is installed, and none of the folders of tests and tools.
    sys.path[:] = [path for path in sys.path if path and not _is_ours(Path(path))]
    begins.send(os.getpid())
    begins.close()

    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


def _is_ours(path: Path) -> bool:
    """Say whether pytest put a folder of the project on the path."""
    return path == ROOT or path.is_relative_to(ROOT / "tests")
