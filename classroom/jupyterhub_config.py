"""JupyterHub configuration for a class on one machine, used by `make hub`.

Settings that differ between classes come from environment variables.
"""

import grp
import os
import sys
from pathlib import Path

CODE = Path(__file__).resolve().parent
sys.path.append(str(CODE.parent))
from classroom.accounts import STUDENTS, TEACHERS  # noqa: E402
from classroom.spawner import ClassroomSpawner  # noqa: E402

c = get_config()  # noqa: F821 (defined by JupyterHub)

CLASS = Path(os.environ["TWELVE_CLASS"])
ADDRESS = os.environ.get("TWELVE_HUB_ADDRESS", "127.0.0.1")
PORT = int(os.environ.get("TWELVE_HUB_PORT", "8000"))
OWN = CLASS / "hub"  # accessible only to root

# The next two ports belong to the hub and to the API of its proxy; both listen on loopback only.
c.JupyterHub.bind_url = f"http://{ADDRESS}:{PORT}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{PORT + 1}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{PORT + 2}"
c.ConfigurableHTTPProxy.command = [
    "node",
    str(CODE / "node_modules/configurable-http-proxy/bin/configurable-http-proxy"),
]

# State that is kept between restarts.
c.JupyterHub.db_url = f"sqlite:///{OWN}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(OWN / "cookie_secret")
c.JupyterHub.pid_file = str(OWN / "hub.pid")
c.ConfigurableHTTPProxy.pid_file = str(OWN / "proxy.pid")

# Accounts of a class log in with their system passwords (PAM).
c.LocalAuthenticator.allowed_groups = {STUDENTS, TEACHERS}
c.LocalAuthenticator.admin_groups = {TEACHERS}
if os.environ.get("TWELVE_HUB_NO_PASSWORDS"):
    # For a trial without a class. `classroom.start` ensures that only loopback can connect.
    c.JupyterHub.authenticator_class = "dummy"
    c.Authenticator.allowed_users = {*grp.getgrnam(STUDENTS).gr_mem}
    c.Authenticator.admin_users = {*grp.getgrnam(TEACHERS).gr_mem}
else:
    c.JupyterHub.authenticator_class = "pam"

c.JupyterHub.spawner_class = ClassroomSpawner
# -P: a random.py in a student's home must not shadow the standard library.
c.Spawner.cmd = [sys.executable, "-P", "-m", "jupyterhub.singleuser"]
c.Spawner.mem_limit = os.environ.get("TWELVE_HUB_MEMORY", "2G")
c.Spawner.default_url = "/lab"
# Thirty servers that start in the same minute slow one another down.
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
c.Spawner.args = ["--ServerApp.log_level=ERROR", "--LabApp.log_level=ERROR"]
c.Spawner.environment = {
    "JUPYTER_PREFER_ENV_PATH": "1",
    "JUPYTER_CONFIG_PATH": str(CODE / "config"),
    "TWELVE_EXCHANGE": str(CLASS / "exchange"),
    "TWELVE_DEVICE": "cpu",
    # Tensors this small do not benefit from a second thread, and a class has many kernels.
    "OMP_NUM_THREADS": "1",
}
