"""A warm kernel has loaded the libraries and no module of the project."""

import pytest
from jupyter_client.manager import start_new_kernel

from tests import warm_kernels


@pytest.mark.slow
def test_a_warm_kernel_has_loaded_libraries_only(monkeypatch, tmp_path):
    monkeypatch.delenv(warm_kernels.ADDRESS, raising=False)
    launch = "jupyter_client.provisioning.local_provisioner.launch_kernel"
    monkeypatch.setattr(launch, warm_kernels.WarmKernel)
    server = warm_kernels.Server()
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    printed = []
    client.execute_interactive(
        "import sys; print(*sys.modules)",
        output_hook=lambda message: printed.append(message["content"].get("text", "")),
        timeout=60,
    )
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    server.stop()
    packages = {name.partition(".")[0] for name in "".join(printed).split()}
    assert {name.partition(".")[0] for name in warm_kernels.LIBRARIES} <= packages
    assert not {"twelve", "twelve_lab", "tools", "pytest"} & packages
