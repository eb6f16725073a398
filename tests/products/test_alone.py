"""A standalone notebook: in an empty folder, in an environment reached through a symbolic link.

Like Colab or a university's server, the environment has every package except the course itself.
The first cell of the notebook installs the course from a wheel.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.course.notebook_rules import code_cells, text_of
from tools import write_alone

ROOT = Path(__file__).parents[2]
PACKAGES = Path(sysconfig.get_paths()["purelib"])


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Create an environment that links to every installed package except the course."""
    folder = tmp_path_factory.mktemp("elsewhere")
    real, link = folder / "real", folder / "link"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", real], check=True)
    link.symlink_to(real)
    packages = link / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for path in PACKAGES.iterdir():
        if not path.name.lstrip("_").startswith(("twelve", "editable___twelve")):
            (packages / path.name).symlink_to(path)
    kernel = folder / "kernels" / "elsewhere"
    kernel.mkdir(parents=True)
    python = link / Path(sys.executable).relative_to(sys.prefix)
    words = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": words, "display_name": "elsewhere", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    # setuptools writes its build folder next to the source.
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source]
    subprocess.run([sys.executable, *words], check=True)
    return folder


def printed(notebook):
    """List the text output of each code cell; the alt text of a picture states its numbers."""
    return ["".join(map(text_of, cell.outputs)) for cell in code_cells(notebook)]


@pytest.mark.parametrize(
    "name",
    [
        "04_attention",
        *(pytest.param(name, marks=pytest.mark.weekly)
          for name in ("00_start_here", "11_decoder", "19_a_language_model")),
    ],
)  # fmt: skip
def test_a_lesson_runs_alone(environment, wheels, tmp_path, monkeypatch, name):
    monkeypatch.setenv("JUPYTER_PATH", str(environment))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    for variable in ("PYTHONPATH", "VIRTUAL_ENV", "TWELVE_PROGRESS"):
        monkeypatch.delenv(variable, raising=False)
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4)
    stored = printed(notebook)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, kernel_name="elsewhere", resources=resources).execute()
    assert printed(notebook)[1:] == stored[1:]
    assert os.listdir(tmp_path) == []


def test_a_copy_has_absolute_links_and_opens_elsewhere():
    path = "notebooks/05_masks.ipynb"
    notebook = nbformat.read(ROOT / path, 4)
    write_alone.rewrite(notebook, path, "https://github.com/a/b", "alone")
    markdown = "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not write_alone.LINK.findall(markdown)
    assert "](https://github.com/a/b/blob/main/src/twelve/masks.py)" in markdown
    assert "](https://github.com/a/b/blob/alone/notebooks/workshop/05_masks.ipynb" in markdown
    assert f"](https://colab.research.google.com/github/a/b/blob/alone/{path})" in markdown
