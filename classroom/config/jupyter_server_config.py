"""Settings of every student's server, and of the teacher's."""

import os
import shutil
import socket
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from jupyter_client.connect import LocalPortCache
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

c = get_config()  # noqa: F821 (Jupyter puts it there)

# Any account of the machine can connect to the port on which a kernel prints: encrypt it.
c.KernelManager.transport_encryption = "required"
# When a class begins, thirty kernels choose five ports each within a second. Another kernel may
# take a free port before this one listens: a race condition. Each account therefore has its own
# hundred ports, below the ephemeral ports; the user IDs of a class are consecutive.
_hundred = 20_000 + 100 * (os.getuid() % 120)
_ports = cycle(range(_hundred, _hundred + 100))


def _own_port(_: LocalPortCache, ip: str) -> int:
    for port in (next(_ports) for _ in range(100)):
        with suppress(OSError), socket.socket() as free:
            free.bind((ip, port))
            return port
    raise RuntimeError(f"no port from {_hundred} to {_hundred + 99} is free for a kernel")


LocalPortCache.find_available_port = _own_port
# A forgotten kernel holds 430 MB. Stop a kernel after an idle hour, and the server one hour later.
# The files stay.
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
    # JupyterLab shows the formgrader, a page of the same server, in a frame.
    headers = {"Content-Security-Policy": "frame-ancestors 'self'"}
    c.ServerApp.tornado_settings["headers"] = headers
else:
    c.ServerApp.jpserver_extensions = {"nbgrader.server_extensions.formgrader": False}


class WholeFiles(AsyncLargeFileManager):
    """Saves files with atomic writes.

    Jupyter overwrites the file and keeps a copy beside it. On a nearly full disk, a second attempt
    to save overwrites the copy too, and both files are truncated.
    """

    @contextmanager
    def atomic_writing(self, os_path, text=True, encoding="utf-8"):
        """Write to a temporary file, then rename it: the file is either the old one or the new one.

        Args:
            os_path: The path of the file.
            text: Whether text is written.
            encoding: The encoding of the text.
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
