"""Configuration of the Jupyter servers of students and teacher."""

import os
import shutil
import socket
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from jupyter_client.connect import LocalPortCache
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

c = get_config()  # noqa: F821 (defined by Jupyter)

# Any account on this machine can connect to a kernel's output port: encrypt the connection.
c.KernelManager.transport_encryption = "required"
# When a class begins, thirty kernels choose five ports each within a second. This is a race
# condition: another kernel may take a free port before this one listens. Each account therefore has
# its own range of 100 ports below the ephemeral ports. The user IDs of a class are consecutive.
_hundred = 20_000 + 100 * (os.getuid() % 120)
_ports = cycle(range(_hundred, _hundred + 100))


def _own_port(_: LocalPortCache, ip: str) -> int:
    for port in (next(_ports) for _ in range(100)):
        with suppress(OSError), socket.socket() as free:
            free.bind((ip, port))
            return port
    raise RuntimeError(f"no port from {_hundred} to {_hundred + 99} is free for a kernel")


LocalPortCache.find_available_port = _own_port
# A forgotten kernel uses 430 MB. Stop a kernel after an idle hour, and the server one hour later.
# Files are kept.
c.MappingKernelManager.cull_idle_timeout = 3600
c.MappingKernelManager.cull_connected = True
c.TerminalManager.cull_inactive_timeout = 3600
c.ServerApp.shutdown_no_activity_timeout = 3600
# The settings and the style sheet of `make lab`.
_lab = str(Path(__file__).parents[2] / "tools" / "jupyterlab")
c.LabApp.app_settings_dir = _lab
c.LabApp.custom_css = True
c.ServerApp.tornado_settings = {"static_custom_path": _lab}

if "TWELVE_COURSE" in os.environ:
    # JupyterLab shows the formgrader, a page of the same server, in an iframe.
    headers = {"Content-Security-Policy": "frame-ancestors 'self'"}
    c.ServerApp.tornado_settings["headers"] = headers
else:
    c.ServerApp.jpserver_extensions = {"nbgrader.server_extensions.formgrader": False}


class WholeFiles(AsyncLargeFileManager):
    """Save files with atomic writes.

    By default, Jupyter overwrites the file and keeps a copy beside it. On a nearly full disk, a
    second attempt to save also overwrites the copy, and both files are truncated.
    """

    @contextmanager
    def atomic_writing(self, os_path, text=True, encoding="utf-8"):
        """Write to a temporary file, then rename it, so the file is never incomplete.

        Args:
            os_path: Path of the file.
            text: Whether to open the file in text mode.
            encoding: Encoding in text mode.
        """
        target = Path(os_path).resolve()
        temporary = target.with_name(f".{target.name}.new")
        how = {"mode": "w", "encoding": encoding, "newline": "\n"} if text else {"mode": "wb"}
        with self.perm_to_403(os_path):
            try:
                with temporary.open(**how) as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                if target.exists():
                    shutil.copymode(target, temporary)
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise


c.ServerApp.contents_manager_class = WholeFiles
