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

# Any account of the machine can listen to the port on which a kernel prints: its words are sealed.
c.KernelManager.transport_encryption = "required"
# When a class begins, thirty kernels look for five ports each within a second, and one that is free
# when it is chosen may be another's before the kernel listens. Each account has a hundred of its
# own, below those that the system hands out; the accounts of a class follow one another.
_hundred = 20_000 + 100 * (os.getuid() % 120)
_ports = cycle(range(_hundred, _hundred + 100))


def _own_port(_: LocalPortCache, ip: str) -> int:
    for port in (next(_ports) for _ in range(100)):
        with suppress(OSError), socket.socket() as free:
            free.bind((ip, port))
            return port
    raise RuntimeError(f"no port from {_hundred} to {_hundred + 99} is free for a kernel")


LocalPortCache.find_available_port = _own_port
# Who goes home leaves a kernel behind, which holds 430 MB: after an hour in which nothing ran it is
# stopped, and an hour later the server. The files stay.
c.MappingKernelManager.cull_idle_timeout = 3600
c.MappingKernelManager.cull_connected = True
c.TerminalManager.cull_inactive_timeout = 3600
c.ServerApp.shutdown_no_activity_timeout = 3600
# With these JupyterLab asks no other machine for news or newer releases.
c.LabApp.app_settings_dir = str(Path(__file__).parents[2] / "tools" / "jupyterlab")

if "TWELVE_COURSE" in os.environ:
    # JupyterLab shows the formgrader, a page of the same server, in a frame.
    headers = {"Content-Security-Policy": "frame-ancestors 'self'"}
    c.ServerApp.tornado_settings = {"headers": headers}
else:
    c.ServerApp.jpserver_extensions = {"nbgrader.server_extensions.formgrader": False}


class WholeFiles(AsyncLargeFileManager):
    """Puts a file in its place once it is whole.

    Jupyter's own way writes over the file and keeps a copy beside it: where a disk is nearly full,
    a second try to save writes over that copy too, and both are cut off.
    """

    @contextmanager
    def atomic_writing(self, os_path, text=True, encoding="utf-8"):
        """Write beside a file, then move it over: what was there stays, or all that is new.

        Args:
            os_path: Of the file.
            text: Whether text is written.
            encoding: Of text.
        """
        place = Path(os_path).resolve()
        aside = place.with_name(f".{place.name}.new")
        how = {"mode": "w", "encoding": encoding, "newline": "\n"} if text else {"mode": "wb"}
        with self.perm_to_403(os_path):
            try:
                with aside.open(**how) as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                if place.exists():
                    shutil.copymode(place, aside)
                aside.replace(place)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise


c.ServerApp.contents_manager_class = WholeFiles
