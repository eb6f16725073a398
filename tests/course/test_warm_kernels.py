"""Warm kernels: loaded libraries, and otherwise as fresh as those of a reader."""

import multiprocessing
import socket

import pytest
from jupyter_client.manager import start_new_kernel

from tests import warm_kernels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "forkserver" not in multiprocessing.get_all_start_methods(), reason="needs a fork server"
    ),
]


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(warm_kernels.ADDRESS, raising=False)  # beside the one of this run
        started = warm_kernels.Server()
        yield started
        started.stop()


@pytest.fixture
def run(monkeypatch, tmp_path, server):
    """Run a line in a warm kernel of its own; gives what it printed, or the name of its error."""
    name = "jupyter_client.provisioning.local_provisioner.launch_kernel"
    monkeypatch.setattr(name, warm_kernels.WarmKernel)

    def run(line, after=lambda manager: None):
        manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
        printed = []

        def note(message):
            kind, content = message["msg_type"], message["content"]
            printed.extend([content["text"]] if kind == "stream" else [])
            printed.extend([content["ename"]] if kind == "error" else [])
            if "begun" in printed[-1:]:
                after(manager)

        client.execute_interactive(line, output_hook=note, timeout=60)
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        assert not manager.is_alive()
        return "".join(printed).strip()

    return run


def test_the_libraries_are_loaded_and_nothing_of_ours(run):
    loaded = run("import sys; print(*sys.modules)").split()
    assert {name.partition(".")[0] for name in warm_kernels.LIBRARIES} <= set(loaded)
    ours = [name for name in loaded if name.startswith(("twelve", "tests.", "tools", "pytest"))]
    assert ours == []


def test_what_one_kernel_does_no_other_one_sees(run):
    assert run("import torch; torch.mine = 1; print(hasattr(torch, 'mine'))") == "True"
    assert run("import torch; print(hasattr(torch, 'mine'))") == "False"


def test_a_kernel_finds_what_is_installed_and_not_the_folders_of_the_project(run):
    assert run("import twelve_lab") == ""
    assert run("import tools") == "ModuleNotFoundError"
    assert run("import oracle") == "ModuleNotFoundError"


def test_a_kernel_runs_in_its_folder_and_its_environment(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TWELVE_STRICT", "yes")
    line = "import os; print(os.getcwd(), os.environ.get('TWELVE_STRICT'))"
    assert run(line) == f"{tmp_path} yes"
    monkeypatch.delenv("TWELVE_STRICT")
    assert run(line) == f"{tmp_path} None"


def test_an_interrupt_stops_the_cell_alone(run):
    line = "print('begun', flush=True, end='')\nwhile True: pass"
    assert run(line, lambda manager: manager.interrupt_kernel()) == "begunKeyboardInterrupt"


def test_a_port_that_is_taken_is_passed_over():
    first = warm_kernels._next_port(None, "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 1))
        assert first + 1 < warm_kernels._next_port(None, "127.0.0.1") < 32_768
