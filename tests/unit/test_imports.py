"""No circular imports between the files of `src` or between its packages."""

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"


def module_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SRC.rglob("*.py")}


@cache
def imports_of(path: Path) -> set[str]:
    """Return the modules of `src` that a file imports, including imports in functions."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            imported |= {name if name in MODULES else node.module for name in submodules}
    return imported & MODULES.keys()


def package_of(module: str) -> str:
    """Return the package directly below `twelve` or `twelve_lab`, or the module if it has none."""
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize("unit", [str, package_of], ids=["files", "packages"])
def test_imports_form_no_cycle(unit):
    graph: dict[str, set[str]] = defaultdict(set)
    for module, path in MODULES.items():
        graph[unit(module)] |= {unit(other) for other in imports_of(path)} - {unit(module)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
