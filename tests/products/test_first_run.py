"""The first run: what a beginner sees during installation and while JupyterLab opens.

The tests trigger every message that docs/troubleshooting.md quotes.
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
# The first column of the tables quotes messages; … stands for the variable parts.
QUOTED = [
    message
    for line in HELP.splitlines()
    if line.startswith("|")
    for message in re.findall(r"`([^`]+)`", line.split("|")[1])
]
BARE = [sys.executable, "-S"]


def run_failing(*command, cwd=None, **environment) -> str:
    """Run a command that fails, and return its output."""
    ran = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"LC_ALL": "C", "MAKEFLAGS": "", "MAKELEVEL": ""} | environment,
    )  # fmt: skip
    assert ran.returncode != 0
    return ran.stdout


# Installation.


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ("", []),
        ("global.timeout='9'\n:env:.find-links='/a /b'\n",
         ["--find-links", "/a", "--find-links", "/b"]),
        ("install.index-url='https://host/simple'", ["--default-index", "https://host/simple"]),
        ("global.extra-index-url='file:///c'",
         ["--index", "file:///c", "--index-strategy=unsafe-best-match"]),
    ],
)  # fmt: skip
def test_uv_gets_the_settings_of_pip(listed, wanted):
    assert install.settings(listed) == wanted


@pytest.mark.parametrize("uv", ["/bin/uv", None])
def test_packages_are_installed_by_uv_or_without_it_by_pip(monkeypatch, capsys, uv):
    commands = []

    def run(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 3, stdout="global.find-links='/wheels'")

    monkeypatch.setattr(install, "find_uv", lambda: uv)
    monkeypatch.setattr(install.subprocess, "run", run)
    assert install.main(["-r", "requirements.txt"]) == 3
    called, printed = commands[-1], capsys.readouterr().err
    assert called[-2:] == ["-r", "requirements.txt"]
    assert called[0] == (uv or sys.executable)
    assert ("/wheels" in called) == bool(uv)
    assert ("pip installs" in printed) == (uv is None)
    assert printed.endswith("docs/troubleshooting.md may help.\n")


# JupyterLab.


@pytest.mark.parametrize(
    ("platform", "environment", "opens"),
    [
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":10", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, False),
        ("linux", {"DISPLAY": ":0", "CI": "true"}, False),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_browser_opens_where_a_person_sees_it(platform, environment, opens):
    assert ("--no-browser" not in open_lab.options(platform, environment, False)) == opens


ATTENTION, MASKS = "notebooks/04_attention.ipynb", "notebooks/05_masks.ipynb"


def write_progress(folder, **solved):
    """Write two lessons, and a progress record with the day on which each exercise was solved."""
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


@pytest.mark.parametrize(
    ("solved", "notebook", "words"),
    [
        ({"x04_one": "2026-01-01"}, ATTENTION, "1 of 3 exercises in the lessons. Next: 04-two"),
        # A skipped exercise comes before the next lesson.
        ({"x04_two": "2026-01-01"}, ATTENTION, "1 of 3 exercises in the lessons. Next: 04-one"),
        ({"x05_one": "2026-01-01"}, ATTENTION, "1 of 3 exercises in the lessons. Next: 04-one"),
        # The exercise solved last decides, not the first unsolved exercise.
        ({"x04_one": "2026-01-02", "x05_one": "2026-01-01"}, ATTENTION, "Next: 04-two"),
        ({"x04_one": "2026-01-01", "x04_two": "2026-01-01", "x05_one": "2026-01-01"},
         open_lab.FIRST, "3 of 3 exercises in the lessons. That is all of them"),
    ],
)  # fmt: skip
def test_lab_resumes_in_the_lesson_of_the_exercise_solved_last(tmp_path, solved, notebook, words):
    write_progress(tmp_path, **solved)
    opened, text = open_lab.resumed(tmp_path)
    assert opened == notebook and text.startswith("Solved so far: ") and f"{words}. " in text
    assert f"/lab/tree/{notebook}" in "".join(open_lab.options("linux", {}, False, opened))
    line = open_lab.next_step(True, "http://localhost", opened, text)
    assert f". Notebook {Path(notebook).name[:2]} opens in your browser: press" in line


def test_lab_begins_with_notebook_00_without_progress(tmp_path):
    assert open_lab.resumed(tmp_path) == (open_lab.FIRST, "")
    write_progress(tmp_path, x04_one=None)
    assert open_lab.resumed(tmp_path) == (open_lab.FIRST, "")
    (tmp_path / "progress.json").write_text("[]", encoding="utf-8")
    assert open_lab.resumed(tmp_path) == (open_lab.FIRST, "")
    for opens in (True, False):
        line = open_lab.next_step(opens, "http://localhost:8888/lab?token=1")
        assert line.startswith("Notebook 00 opens" if opens else "Open notebook 00")
        assert "Shift+Enter" in line and line.endswith(" http://localhost:8888/lab?token=1")
        assert "\n" not in line


def test_lab_that_cannot_start_prints_one_sentence(monkeypatch, capsys):
    def fail(words):
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "")
    monkeypatch.setattr(LabApp, "initialize_server", fail)
    assert open_lab.main([]) == 1
    words = f"JupyterLab cannot start: [Errno {errno.EADDRNOTAVAIL}] Cannot assign"
    assert capsys.readouterr().err.startswith(words)


def test_lab_starts_on_a_busy_port_and_ignores_a_foreign_kernel(tmp_path):
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
            moved, line = server.stdout.readline(), server.stdout.readline()
            taken = re.fullmatch(rf"Port {port} is in use, so JupyterLab takes (\d+)\.\n", moved)[1]
            token = line.strip().rpartition("?")[2]
            specs, style = (
                urllib.request.urlopen(f"http://localhost:{taken}/{path}?{token}").read()
                for path in ("api/kernelspecs", "custom/custom.css")
            )
        finally:
            server.terminate()
            server.communicate()
    kernel = json.loads(specs)["kernelspecs"]["python3"]
    assert kernel["spec"]["display_name"] == "Python 3 (ipykernel)"
    assert style == (ROOT / "tools" / "jupyterlab" / "custom.css").read_bytes()


@pytest.mark.weekly
def test_binder_gives_jupyterlab_the_style_sheet(tmp_path):
    private = {"HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path / ".jupyter")}
    subprocess.run([ROOT / "binder" / "postBuild"], cwd=ROOT, env=os.environ | private, check=True)
    code = """from jupyterlab.labapp import LabApp
from pathlib import Path
lab = LabApp.initialize_server(["--no-browser", "--allow-root", "--port=0"])
app = lab.extension_manager.extension_apps["jupyterlab"].pop()
(custom, *_) = lab.web_app.settings["static_custom_path"]
print(app.custom_css, (Path(custom) / "custom.css").is_file())"""
    words = [sys.executable, "-c", code]
    ran = subprocess.run(words, env=os.environ | private, text=True, capture_output=True)
    assert ran.stdout.split()[-2:] == ["True", "True"], ran.stderr


# The troubleshooting page.


def fake_python(folder, answers) -> str:
    """Write a fake Python for the Makefile's version checks; return the argument for make."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{answers}\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Collect the output of commands that fail for the reasons that the page states."""
    folder, make = tmp_path_factory.mktemp("project"), shutil.which("make")
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.txt", "pyproject.toml", "package.json", "package-lock.json"):
        (folder / name).touch()
    old = fake_python(folder, 'case "$2" in *print*) echo 3.10.13;; *) exit 1;; esac')
    texts = [run_failing(make, old, "install", cwd=folder)]
    without_venv = fake_python(folder, 'case "$2" in *ensurepip*) exit 1;; esac')
    texts += [
        run_failing(make, without_venv, "install", cwd=folder),
        run_failing(make, "lab", cwd=tmp_path_factory.mktemp("empty")),
        run_failing("/bin/bash", "-c", "PATH=/nowhere; make lab"),
        run_failing(make, "node_modules/.package-lock.json", cwd=folder, PATH="/nowhere"),
        run_failing(*BARE, "-m", "tools.open_lab", cwd=ROOT),
        run_failing(*BARE, "-m", "tools.open_lab", cwd=folder),
        run_failing(*BARE, "-c", "import torch"),
        run_failing(*BARE, "-m", "twelve", "trace", cwd=folder),
        run_failing(*BARE, "-c", "draw"),
        install.FAILED,
        install.WITHOUT_UV,
        os.strerror(errno.ENOSPC),
        str(PermissionError(errno.EACCES, os.strerror(errno.EACCES))),
        open_lab.moved(8888, 8889),
    ]
    scripts = Path(jupyterlab.__file__).parent.glob("static/jlab_core.*.js")
    texts += [script.read_text(encoding="utf-8") for script in scripts]
    return texts


def test_every_message_that_the_page_quotes_is_printed(printed):
    assert len(QUOTED) > 15
    for message in QUOTED:
        pattern = ".+".join(map(re.escape, message.split("…")))
        assert any(re.search(pattern, text) for text in printed), message
