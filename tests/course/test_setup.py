"""The set-up: requirements.txt, environment.yml, pyproject.toml and the Makefile agree."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain, product
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text()
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = (("linux", "Linux", "posix"), ("darwin", "Darwin", "posix"), ("win32", "Windows", "nt"))
# The extras that requirements.txt serves.
DEFAULT = ("learner", "sheet", "developer")
IMPORTED_AS = {
    "fonttools": "fontTools",
    "ipython": "IPython",
    "jupyter-client": "jupyter_client",
    "myst-parser": "myst_parser",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
    "websocket-client": "websocket",
    "x-transformers": "x_transformers",
}


def read_pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line[0] not in "#-"]


PINS, ALL_PINS = read_pins("requirements.txt"), read_pins("constraints.txt")


def machines():
    """List the environments of all Pythons and systems, as markers see them."""
    for python, (platform, system, os_name) in product(PYTHONS, SYSTEMS):
        yield default_environment() | {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "sys_platform": platform,
            "platform_system": system,
            "os_name": os_name,
        }


def direct(extras):
    """List the direct dependencies with some extras."""
    lines = chain(PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras))
    requirements = [Requirement(line) for line in lines]
    return [requirement for requirement in requirements if requirement.name != PROJECT["name"]]


def test_every_pin_is_one_exact_version_without_cuda():
    for pin in (*PINS, *ALL_PINS):
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin
        assert not re.match(r"cuda|nvidia|triton", pin.name), pin


@pytest.mark.parametrize("requirement", direct(EXTRAS), ids=str)
def test_a_direct_dependency_is_pinned_within_its_bound(requirement):
    pins = PINS if requirement in direct(DEFAULT) else ALL_PINS
    for machine in machines():
        (pin,) = (
            pin
            for pin in pins
            if canonicalize_name(pin.name) == canonicalize_name(requirement.name)
            and (pin.marker is None or pin.marker.evaluate(machine))
        )
        assert requirement.specifier.contains(str(pin.specifier).removeprefix("=="))


def test_requirements_and_constraints_pin_the_same_versions():
    versions = {pin.name: pin.specifier for pin in ALL_PINS}
    assert [pin for pin in PINS if versions[pin.name] != pin.specifier] == []


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
        ("benchmarks/*.py", ["bench"]),
    ],
)
def test_every_import_is_a_declared_dependency(pattern, extras):
    declared = {requirement.name for requirement in direct(extras)}
    known = {IMPORTED_AS.get(name, name) for name in declared} | sys.stdlib_module_names
    known |= {"twelve", "twelve_lab", "tests", "tools", "benchmarks", "classroom"}
    known |= {path.stem for path in (ROOT / "tests" / "unit").glob("*.py")}
    for path in ROOT.glob(pattern):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
        foreign = {name.partition(".")[0] for name in names} - known
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"
