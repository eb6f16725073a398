"""Rules for the list of steps: every step has its files, and every file belongs to a step.

A module may also belong to a task to write by hand.

Each rule takes the root of a project and yields problems that begin with the file at fault.
The rules import only the list of steps from that project.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nbformat

from tests.course.notebook_rules import code_cells, headings
from tools import write_steps

LIST = "src/twelve_lab/course.py"
NO_WORKSHOP = {"a3"}
# Prefix of the workshops shared by several steps, and the fused kernels, which no step teaches.
TOOLS, FAST = "tools_", "src/twelve/fast.py"


def load(root: Path) -> ModuleType:
    """Import the list of steps of a project."""
    course = ModuleType("course_of_a_root")
    # An import could reuse stale bytecode: source with the same size and modification time.
    exec(compile((root / LIST).read_text(encoding="utf-8"), root / LIST, "exec"), vars(course))
    return course


def problems(root: Path) -> list[str]:
    """Apply every rule to a project."""
    course = load(root)
    found = [*_notebooks(root, course.STEPS)]
    rules = (_files, _modules, _written, _glossary, _by_hand)
    return found + [line for rule in rules for line in rule(root, course)]


def with_modules(course: ModuleType) -> list:
    """List the steps and the tasks by hand that have a module, in import order."""
    return [*(step for step in course.STEPS if step.module),
            *(drill for drill in course.DRILLS if drill.exports)]  # fmt: skip


def files_of(step) -> dict[str, bool]:
    """Map each file that a step may have to whether the file is required."""
    return {
        step.notebook: True,
        step.workshop: step.number not in NO_WORKSHOP,
        step.source: step.module,
        f"tests/unit/test_{step.stem}.py": step.module,
        f"src/twelve_lab/exercises/{step.stem}.py": step.exercises,
    }


def imports(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, at top level or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files(root, course):
    for step in course.STEPS:
        for path, required in files_of(step).items():
            if required and not (root / path).exists():
                yield f"{path}: missing; by {LIST} step {step.number} has one"
            if (root / path).exists() and not required and path != step.workshop:
                yield f"{path}: unexpected; by {LIST} step {step.number} has none"
    known = {path for step in course.STEPS for path in files_of(step)} | {FAST}
    known |= {owner.source for owner in with_modules(course)}
    patterns = ("src/twelve/[!_]*.py", "notebooks/*.ipynb", "notebooks/workshop/*.ipynb")
    for path in (path for pattern in patterns for path in sorted(root.glob(pattern))):
        shared = path.parent.name == "workshop" and path.stem.startswith(TOOLS)
        if (name := path.relative_to(root).as_posix()) not in known and not shared:
            yield f"{LIST}: {name} belongs to no step"


def _by_hand(root, course):
    """Check that each task by hand has its page, its exercises and its module."""
    for folder, suffix in ((f"notebooks/{course.BY_HAND}", ".ipynb"),
                           (f"src/twelve_lab/exercises/{course.BY_HAND}", ".py")):  # fmt: skip
        stems = {path.stem for path in (root / folder).glob(f"*{suffix}")} - {"__init__"}
        for stem in stems ^ {drill.stem for drill in course.DRILLS}:
            yield f"{folder}/{stem}{suffix}: each task of {LIST} has one, and no other exists"
    for drill in course.DRILLS:
        for path in (drill.source, f"tests/unit/test_{drill.stem}.py") if drill.exports else ():
            if not (root / path).exists():
                yield f"{path}: missing; by {LIST} {drill.title} has one"


def _modules(root, course):
    """Check that each module names its page, defines its exports, and imports earlier modules."""
    allowed = {"twelve", "twelve.fast"}
    for step in with_modules(course):
        name = step.source
        if not (root / name).exists():
            continue
        tree = ast.parse((root / name).read_text(encoding="utf-8"))
        lines = [*(ast.get_docstring(tree) or "").splitlines(), "", "", ""]
        by_hand = step in course.DRILLS
        page = f"By hand | {step.page}" if by_hand else f"Step {step.number} | {step.notebook}"
        place = f"{page} | tests/unit/test_{step.stem}.py"
        if not re.fullmatch(r"[A-Z][a-z -]+: .+\.", lines[0]) or lines[1:3] != ["", place]:
            yield f"{name}: must begin with its title, a blank line and: {place}"
        allowed.add(f"twelve.{step.stem}")
        used = {".".join(other.split(".")[:2]) for other in imports(root / name)}
        layers = {other for other in used if re.match(r"twelve\.(?!_)", other)}
        if later := sorted(layers - allowed):
            yield f"{name}: imports {', '.join(later)}, which is no earlier module"
        defined = {getattr(node, "name", "") for node in tree.body}
        for export in set(step.exports) - defined:
            yield f"{name}: defines no {export}, which {LIST} exports"


def _notebooks(root, steps):
    """Check the titles of each lesson and its workshop, and the steps of their exercises."""
    for step in steps:
        checked = set()
        for path, title in ((step.notebook, step.title),
                            (step.workshop, f"workshop: {step.title}")):  # fmt: skip
            if not (root / path).exists():
                continue
            notebook = nbformat.read(root / path, as_version=4)
            first = (headings(notebook) or [""])[0]
            if first.lower() != f"{step.number} {title}".lower():
                yield f"{path}: the first heading is {first!r}, not that of {LIST}"
            source = "\n".join(cell.source for cell in code_cells(notebook))
            checked |= set(re.findall(r'^check\("(\w\w)-', source, re.M))
        if checked - {step.number} or bool(checked) < (step.exercises and step.number != "00"):
            yield f"{step.notebook}: has exercises of {sorted(checked)}; see {LIST}"


def _written(root, course):
    """Check the files that `make catalogue` generates from the list."""
    readme = (root / write_steps.README).read_text(encoding="utf-8")
    for name, expected in {
        write_steps.EXPORTS: write_steps.exports([*course.STEPS, *course.DRILLS]),
        write_steps.README: write_steps.readme(readme, course.STEPS, root),
    }.items():
        written = (root / name).read_text(encoding="utf-8").splitlines()
        if missing := [line for line in expected.splitlines() if line not in written]:
            yield f"{name}: run make catalogue, which adds: {missing[0]}"
        elif written != expected.splitlines():
            yield f"{name}: run make catalogue"


def _glossary(root, course):
    """Check that the glossary lists the exports of each module under the number of its step.

    A module by hand has the number of the lesson that it belongs to.
    """
    text = (root / "docs/glossary.md").read_text(encoding="utf-8")
    table = text.partition("## Layers and functions\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| (\w+) \|", table, re.M)
    entries = {(name, number) for cell, number in rows for name in re.findall(r"`(\w+)`", cell)}
    numbers = {step.number for step in course.STEPS if step.module}
    for step in with_modules(course):
        number = step.lesson if step in course.DRILLS else step.number
        for name in step.exports:
            if (name, number) not in entries:
                yield f"docs/glossary.md: no row | `{name}` | {number} |"
    for name, number in sorted(entries):
        if number not in numbers:
            yield f"docs/glossary.md: `{name}` has the step {number}, which has no module"
