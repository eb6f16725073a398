"""Settings of every student's server, and of the teacher's."""

import os
from pathlib import Path

c = get_config()  # noqa: F821 (Jupyter puts it there)

# Any account of the machine can listen to the port on which a kernel prints: its words are sealed.
c.KernelManager.transport_encryption = "required"
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
