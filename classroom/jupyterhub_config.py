"""Settings of JupyterHub for a class on one machine; `make hub` starts it with them.

What differs from class to class stands in the variables that are read here.
"""

import grp
import os
import sys
from pathlib import Path

CODE = Path(__file__).resolve().parent
sys.path.append(str(CODE.parent))
from classroom.accounts import STUDENTS, TEACHERS  # noqa: E402
from classroom.spawner import ClassroomSpawner  # noqa: E402

c = get_config()  # noqa: F821 (JupyterHub puts it there)

CLASS = Path(os.environ["TWELVE_CLASS"])
ADDRESS = os.environ.get("TWELVE_HUB_ADDRESS", "127.0.0.1")
PORT = int(os.environ.get("TWELVE_HUB_PORT", "8000"))
OWN = CLASS / "hub"  # for root alone

# Behind its port stand two more, for this machine alone: the hub's, and that of its proxy.
c.JupyterHub.bind_url = f"http://{ADDRESS}:{PORT}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{PORT + 1}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{PORT + 2}"
c.ConfigurableHTTPProxy.command = [
    "node",
    str(CODE / "node_modules/configurable-http-proxy/bin/configurable-http-proxy"),
]

# What the next start has to know of this one.
c.JupyterHub.db_url = f"sqlite:///{OWN}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(OWN / "cookie_secret")
c.JupyterHub.pid_file = str(OWN / "hub.pid")
c.ConfigurableHTTPProxy.pid_file = str(OWN / "proxy.pid")

# Who comes in: the accounts of a class, with the passwords of the machine.
c.LocalAuthenticator.allowed_groups = {STUDENTS, TEACHERS}
c.LocalAuthenticator.admin_groups = {TEACHERS}
if os.environ.get("TWELVE_HUB_NO_PASSWORDS"):
    # To try things out alone. `classroom.start` takes care that no other machine can come in.
    c.JupyterHub.authenticator_class = "dummy"
    c.Authenticator.allowed_users = {*grp.getgrnam(STUDENTS).gr_mem}
    c.Authenticator.admin_users = {*grp.getgrnam(TEACHERS).gr_mem}
else:
    c.JupyterHub.authenticator_class = "pam"

c.JupyterHub.spawner_class = ClassroomSpawner
# -P: a random.py that a student keeps at home is nobody's module but theirs.
c.Spawner.cmd = [sys.executable, "-P", "-m", "jupyterhub.singleuser"]
c.Spawner.mem_limit = os.environ.get("TWELVE_HUB_MEMORY", "2G")
c.Spawner.default_url = "/lab"
# Thirty who start in the same minute wait for one another.
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
c.Spawner.args = ["--ServerApp.log_level=ERROR", "--LabApp.log_level=ERROR"]
c.Spawner.environment = {
    "JUPYTER_PREFER_ENV_PATH": "1",
    "JUPYTER_CONFIG_PATH": str(CODE / "config"),
    "TWELVE_EXCHANGE": str(CLASS / "exchange"),
    "TWELVE_DEVICE": "cpu",
    # At these sizes a second thread only waits, and a class has many kernels.
    "OMP_NUM_THREADS": "1",
}
