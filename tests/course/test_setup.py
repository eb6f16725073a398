"""The set-up: requirements.txt, environment.yml, pyproject.toml and the Makefile agree."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text()
# Pyodide has the module js.
OURS = {"js", "twelve", "twelve_lab", "tests", "tools", "benchmarks", "classroom"}
OURS |= {path.stem for path in (ROOT / "tests" / "unit").glob("*.py")}


def read_pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line[0] not in "#-"]


def direct(extras):
    """Return the names of the direct dependencies, including those of the given extras."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


@pytest.mark.parametrize(
    ("name", "extras"),
    [("requirements.txt", ["--extra=developer"]), ("constraints.txt", ["--all-extras"])],
)
def test_the_pins_are_those_of_the_lock(name, extras):
    pattern = r"^EXPORT := \$\(VENV\)/bin/uv (.*)$"
    words = re.search(pattern, MAKEFILE, re.MULTILINE)[1].split()
    uv = Path(sys.executable).with_name("uv")
    command = [uv, *words, *extras, "--offline"]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = [line for line in out.splitlines() if not re.match("cuda|nvidia|triton", line)]
    assert [Requirement(line) for line in lines] == read_pins(name)


def test_the_lock_serves_what_pyproject_asks_for():
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "lock", "--check", "--offline"], cwd=ROOT, capture_output=True, check=True)


def test_all_files_name_the_same_pythons():
    environment = (ROOT / "environment.yml").read_text()
    assert PROJECT["requires-python"] == ">=3.11"
    assert "not (3, 11) <= sys.version_info < (3, 15)" in MAKEFILE
    assert "python>=3.11,<3.15" in environment and "-r requirements.txt" in environment


def test_make_lists_every_public_target():
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    public = re.search(r"^\.PHONY: (.*) FORCE$", MAKEFILE, re.MULTILINE)[1].split()
    assert re.findall(r"^  make ([\w-]+) ", listed, re.MULTILINE) == public


@pytest.mark.parametrize(
    ("pattern", "extras"),
    [
        ("src/twelve/**/*.py", ["pretrained"]),
        ("src/twelve_lab/**/*.py", ["learner", "sheet", "pretrained"]),
        ("tests/**/*.py", EXTRAS),
        ("tools/*.py", ["learner", "developer", "book"]),
        ("classroom/*.py", ["learner", "developer", "teach", "hub"]),
        ("book/*.py", ["book"]),
        ("benchmarks/*.py", ["bench", "graders"]),
    ],
)
def test_every_import_is_a_declared_dependency(pattern, extras):
    allowed, distributions = direct(extras), packages_distributions()
    for path in ROOT.glob(pattern):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
        for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - OURS:
            # For a package that is not installed, guess its name from the module: markdown-it-py.
            packages = map(canonicalize_name, distributions.get(name, [name, f"{name}-py"]))
            assert allowed.intersection(packages), f"{path.relative_to(ROOT)} imports {name}"
