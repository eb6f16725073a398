"""The first run: what a beginner sees while the project is set up and JupyterLab opens.

Every message that docs/troubleshooting.md quotes is printed here once.
"""

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import jupyterlab
import nbformat
import pytest
from jupyterlab.labapp import LabApp

from tools import install, open_lab

ROOT = Path(__file__).parents[2]
HELP = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
# The first column of the tables quotes what is printed; … stands for what differs.
QUOTED = [
    message
    for line in HELP.splitlines()
    if line.startswith("|")
    for message in re.findall(r"`([^`]+)`", line.split("|")[1])
]
# What a Python answers to the three questions of the Makefile.
OLD = 'case "$2" in *print*) echo 3.10.13;; *) exit 1;; esac'
WITHOUT_VENV = 'case "$2" in *ensurepip*) exit 1;; esac'
LAB = Path(jupyterlab.__file__).parent
BARE = [sys.executable, "-S"]


def said(*command, **options):
    """Run a command that fails; give what it printed."""
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env=os.environ | {"LC_ALL": "C"} | options.pop("environment", {}), **options,
    )  # fmt: skip
    assert ran.returncode != 0
    return ran.stdout


def make(folder, *words, **environment):
    """Run make in a folder, as if no other make ran it."""
    environment |= {"MAKEFLAGS": "", "MAKELEVEL": ""}
    return said(shutil.which("make"), *words, cwd=folder, environment=environment)


def python(folder, answers):
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{answers}\n")
    path.chmod(0o755)
    return path


# While it is set up.


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("Downloading torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl (181.3 MB)\n",
         "  downloading torch 2.13.0+cpu (181.3 MB)"),
        ("  Downloading https://host/a/jupyterlab-4.6.6-py3-none-any.whl (17.3 MB)\n",
         "  downloading jupyterlab 4.6.6 (17.3 MB)"),
        ("Downloading einops-0.8.2-py3-none-any.whl (65 kB)\n", None),
        ("Downloading nbval-0.11.0-py3-none-any.whl (2.1 MB)\n", None),
        ("Installing collected packages: einops, torch\n", "  unpacking 2 packages"),
        ("Installing collected packages: einops\n", "  unpacking 1 package"),
        ("Collecting torch\n", None),
    ],
)  # fmt: skip
def test_only_what_takes_a_while_is_told(line, wanted):
    assert install.step(line) == wanted


@pytest.mark.parametrize(
    ("printed", "wanted"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
         "The disk is full"),
        ("[Errno 122] Disk quota exceeded", "The disk is full"),
        ("NewConnectionError('<pip...>: Failed to establish a new connection: [Errno -3] Temporary "
         "failure in name resolution')", "The packages could not be fetched"),
        ("NameResolutionError(\"Failed to resolve 'pypi.org'\")\nERROR: No matching distribution "
         "found for setuptools>=77.0.3", "The packages could not be fetched"),
        ("ProxyError('Cannot connect to proxy.')", "The packages could not be fetched"),
        ("OSError: [Errno 13] Permission denied: '/opt/project/.venv/lib'", "This folder is write"),
        ("OSError: [Errno 30] Read-only file system", "This folder is write-protected"),
        ("ERROR: No matching distribution found for torch==2.13.0", "There is no ready-made"),
        ("ERROR: Package 'twelve' requires a different Python: 3.10.13 not in '>=3.11'",
         "There is no ready-made"),
    ],
)  # fmt: skip
def test_the_sentence_that_helps_follows_from_what_pip_said(printed, wanted):
    assert install.advice(f"Collecting torch\n{printed}\n").startswith(wanted)


def test_what_is_not_known_gets_no_advice():
    assert install.advice("ERROR: Invalid requirement: 'torch=2'") is None


def test_a_disk_with_too_little_room_is_told_before_the_download():
    assert install.room(2 * 10**9, installed=False) is None
    assert install.room(0, installed=True) is None
    assert install.room(int(0.34e9), installed=False).endswith("Now 0.3 GB are.")


def test_a_full_disk_stops_before_pip_runs(monkeypatch, capsys):
    monkeypatch.setattr(install, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
    monkeypatch.setattr(install, "run_pip", None)
    assert install.main([]) == 1
    assert capsys.readouterr().err.startswith("The disk is full")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up_meanwhile_is_told_in_the_same_words(monkeypatch, capsys):
    monkeypatch.setattr(install, "LOG", "/dev/full")
    monkeypatch.setattr(install, "PIP", [sys.executable, "-c", "print('x' * 10**6)"])
    assert install.main([]) == 1
    assert capsys.readouterr().err.startswith("The disk is full")


def test_an_installation_that_works_prints_its_steps_alone(monkeypatch, capsys, tmp_path):
    lines = "print('Collecting a'); print('Installing collected packages: a, b')"
    monkeypatch.setattr(install, "PIP", [sys.executable, "-c", lines])
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install.main([]) == 0
    assert capsys.readouterr() == ("  unpacking 2 packages\n", "")
    assert (tmp_path / install.LOG).read_text().startswith("Collecting a\n")


def test_an_error_of_pip_is_shown_with_the_advice_and_where_the_rest_is(
    monkeypatch, capsys, tmp_path
):
    lines = (
        "print('error: subprocess-exited-with-error\\nERROR: No matching distribution'); exit(3)"
    )
    monkeypatch.setattr(install, "PIP", [sys.executable, "-c", lines])
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install.main([]) == 3
    fault, help_, more = capsys.readouterr().err.splitlines()
    assert fault == "  pip: No matching distribution"
    assert help_.startswith("There is no ready-made package")
    assert more == (f"More: docs/troubleshooting.md; all that pip said: {tmp_path / 'install.log'}")


# When JupyterLab opens.


@pytest.mark.parametrize(
    ("platform", "environment", "opens"),
    [
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":10", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, False),
        ("linux", {"DISPLAY": ":0", "CI": "true"}, False),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, False),
        ("win32", {}, True),
    ],
)
def test_a_browser_opens_where_a_person_sees_it(platform, environment, opens):
    assert ("--no-browser" not in open_lab.options(platform, environment, False)) == opens


def test_root_is_let_in():
    assert "--allow-root" in open_lab.options("linux", {}, root=True)
    assert "--allow-root" not in open_lab.options("linux", {}, root=False)


def test_one_line_says_what_to_do_next():
    for opens in (True, False):
        line = open_lab.next_step(opens, "http://localhost:8888/lab?token=1")
        assert "Shift+Enter" in line and "Ctrl+C" in line and "\n" not in line
        assert line.endswith(" http://localhost:8888/lab?token=1")
        assert line.startswith("Notebook 00 opens" if opens else "Open notebook 00")


def noted(folder, **solved):
    """A folder with two lessons, and with what is noted of their exercises."""
    for name, ids in (("04_attention", ["04-one", "04-two"]), ("05_masks", ["05-one"])):
        cells = [nbformat.v4.new_code_cell(f'check("{id}", ...)') for id in ids]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{name}.ipynb")
    rows = {
        id.replace("_", "-").removeprefix("x"): {
            "solved": day and f"{day}T00:00:00+00:00", "wrong answers": 0, "mistakes": []
        }
        for id, day in solved.items()
    }  # fmt: skip
    content = {"version": "0.1.0", "exercises": rows}
    (folder / "progress.json").write_text(json.dumps(content), encoding="utf-8")
    return open_lab.resumed(folder)


ATTENTION, MASKS = "notebooks/04_attention.ipynb", "notebooks/05_masks.ipynb"


@pytest.mark.parametrize(
    ("solved", "notebook", "words"),
    [
        ({"x04_one": "2026-01-01"}, ATTENTION,
         "1 of 3 exercises in the lessons. Next: 04-two"),
        ({"x04_two": "2026-01-01"}, MASKS, "1 of 3 exercises in the lessons. Next: 05-one"),
        ({"x05_one": "2026-01-01"}, ATTENTION, "Next: 04-one"),
        # What was done last leads on, not what stands furthest behind.
        ({"x04_one": "2026-01-02", "x05_one": "2026-01-01"}, ATTENTION, "Next: 04-two"),
        ({"x04_one": "2026-01-01", "x04_two": "2026-01-01", "x05_one": "2026-01-01"},
         open_lab.FIRST, "3 of 3 exercises in the lessons. That is all of them"),
    ],
)  # fmt: skip
def test_whoever_has_solved_something_goes_on_from_there(tmp_path, solved, notebook, words):
    opened, said = noted(tmp_path, **solved)
    assert opened == notebook and said.startswith("Solved so far: ") and f"{words}. " in said
    assert f"/lab/tree/{notebook}" in "".join(open_lab.options("linux", {}, False, opened))
    line = open_lab.next_step(True, "http://localhost", opened, said)
    assert f". Notebook {Path(notebook).name[:2]} opens in your browser: press" in line


def test_whoever_has_solved_nothing_begins_at_the_beginning(tmp_path):
    assert open_lab.resumed(tmp_path) == (open_lab.FIRST, "")
    assert noted(tmp_path, x04_one=None) == (open_lab.FIRST, "")
    (tmp_path / "progress.json").write_text("[]", encoding="utf-8")
    assert open_lab.resumed(tmp_path) == (open_lab.FIRST, "")


def test_another_port_than_the_wanted_one_is_told():
    assert open_lab.moved(9000, 9001) == "Port 9000 is in use, so JupyterLab takes 9001."
    assert open_lab.moved(9000, 9000) is None
    assert open_lab.moved(0, 34567) is None


def test_what_keeps_jupyterlab_from_starting_is_one_sentence(monkeypatch, capsys):
    def fail(words):
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "")
    monkeypatch.setattr(LabApp, "initialize_server", fail)
    assert open_lab.main([]) == 1
    words = f"JupyterLab cannot start: [Errno {errno.EADDRNOTAVAIL}] Cannot assign"
    assert capsys.readouterr().err.startswith(words)


def test_a_busy_port_and_a_foreign_kernel_do_not_keep_a_beginner_out(tmp_path):
    foreign = tmp_path / "kernels" / "python3"
    foreign.mkdir(parents=True)
    kernel = {"argv": ["/nowhere/python"], "display_name": "Foreign", "language": "python"}
    (foreign / "kernel.json").write_text(json.dumps(kernel))
    private = {"JUPYTER_PATH": str(tmp_path), "JUPYTER_DATA_DIR": str(tmp_path)} | {
        f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "RUNTIME")
    }
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        server = subprocess.Popen(
            [sys.executable, "-m", "tools.open_lab", "--no-browser", f"--port={port}"],
            cwd=ROOT, env=os.environ | private, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            moved = server.stdout.readline()
            taken = re.fullmatch(rf"Port {port} is in use, so JupyterLab takes (\d+)\.\n", moved)[1]
            line = server.stdout.readline()
            address = f"http://localhost:{taken}/api/kernelspecs?" + line.strip().rpartition("?")[2]
            with urllib.request.urlopen(address) as answer:
                specs = json.load(answer)
        finally:
            server.terminate()
            server.communicate()
    assert specs["default"] == "python3"
    assert specs["kernelspecs"]["python3"]["spec"]["display_name"] == "Python 3 (ipykernel)"


# What the page on troubleshooting quotes.


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """All that the commands print, each where it fails for the reason that the page gives."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.txt", "pyproject.toml", "package.json", "package-lock.json"):
        (folder / name).touch()
    texts = [
        make(tmp_path_factory.mktemp("empty"), "lab"),
        said("/bin/bash", "-c", "PATH=/nowhere; make lab"),
        make(folder, f"PYTHON={python(folder, OLD)}", "install"),
        make(folder, f"PYTHON={python(folder, WITHOUT_VENV)}", "install"),
        install.FULL,
        str(PermissionError(errno.EACCES, os.strerror(errno.EACCES))),
        open_lab.moved(8888, 8889),
        said(*BARE, "-m", "tools.open_lab", cwd=ROOT),
        said(*BARE, "-m", "tools.open_lab", cwd=folder),
        said(*BARE, "-c", "import torch"),
        said(*BARE, "-m", "twelve", "trace", cwd=folder),
        said(*BARE, "-c", "draw"),
        make(folder, "node_modules/.package-lock.json", PATH="/nowhere"),
        *(path.read_text(encoding="utf-8") for path in LAB.glob("static/jlab_core.*.js")),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        for words in (["--no-index"], ["--index-url=https://localhost:9/simple", "--retries=1"]):
            assert install.run_pip([*words, "no-such-package"], folder / "log") != 0
            texts.append((folder / "log").read_text())
            texts.append(install.advice(texts[-1]))
    return texts


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_that_the_page_quotes_is_printed(message, printed):
    pattern = ".+".join(map(re.escape, message.split("…")))
    assert any(re.search(pattern, text) for text in printed)
