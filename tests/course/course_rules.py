"""What belongs to a step of the course, and where the list of steps is repeated.

Each rule takes the root of a project and yields what is missing, beginning with the file that
is due. Nothing of that project is imported but its list of steps.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType

import nbformat

from tests.course.notebook_rules import code_cells, headings
from tools import write_steps

LIST = "src/twelve_lab/course.py"
# The notes corrected are one page, and that is all they are.
ONE_PAGE = {"a3"}
# Workshops that belong to no step: what several of them need.
TOOLS = "tools_"


def load(root: Path) -> ModuleType:
    """Read the list of steps of a project, whichever is installed."""
    course = ModuleType("course_of_a_root")
    # From its text: of two texts of one size within a second, Python would run the compiled first.
    exec(compile((root / LIST).read_text(encoding="utf-8"), root / LIST, "exec"), vars(course))
    return course


def problems(root: Path) -> list[str]:
    """Apply every rule to a project."""
    steps = load(root).STEPS
    rules = (_files, _order, _first_lines, _imports, _notebooks, _exports, _readme, _glossary,
             _sessions, _measured)  # fmt: skip
    return [line for rule in rules for line in rule(root, steps)]


def files_of(step) -> dict[str, bool]:
    """Name every file that a step may have, and say whether it is due."""
    return {
        step.notebook: True,
        step.workshop: step.number not in ONE_PAGE,
        step.source: step.module,
        f"tests/unit/test_{step.stem}.py": step.module,
        f"src/twelve_lab/exercises/{step.stem}.py": step.exercises,
    }


def imports(path: Path) -> Iterator[str]:
    """Name every module that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports by a relative path"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files(root, steps):
    for step in steps:
        for path, due in files_of(step).items():
            if due and not (root / path).exists():
                yield f"{path}: is missing, and step {step.number} has one by {LIST}"
            if (root / path).exists() and not due and path != step.workshop:
                yield f"{path}: is there, and step {step.number} has none by {LIST}"
    known = {path for step in steps for path in files_of(step)}
    known.add("src/twelve/fast.py")  # speed, which no step teaches
    for pattern in ("src/twelve/[!_]*.py", "notebooks/*.ipynb", "notebooks/workshop/*.ipynb"):
        for path in sorted(root.glob(pattern)):
            shared = path.parent.name == "workshop" and path.stem.startswith(TOOLS)
            if (name := path.relative_to(root).as_posix()) not in known and not shared:
                yield f"{LIST}: {name} belongs to no step"


def _order(root, steps):
    numbers, stems = [step.number for step in steps], {step.stem for step in steps}
    if numbers != sorted(set(numbers)) or len(stems) < len(numbers):
        yield f"{LIST}: the numbers {numbers} do not rise, or two steps have one stem"
    parts = [part for part, _ in groupby(steps, lambda step: step.part)]
    if len(parts) > len(set(parts)):
        yield f"{LIST}: the steps of a part do not stand side by side: {parts}"


def _first_lines(root, steps):
    """Each module says its title, then where its step is taught and tested."""
    for step in steps:
        path = root / step.source
        if step.module and path.exists():
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            title, blank, places, *_ = [*text.splitlines(), "", "", ""]
            due = f"Step {step.number} | {step.notebook} | tests/unit/test_{step.stem}.py"
            if not re.fullmatch(r"[A-Z][a-z -]+: .+\.", title) or blank or places != due:
                yield f"{step.source}: begins with its title, a blank line and: {due}"


def _imports(root, steps):
    """A module imports what comes before it, and what all share."""
    allowed = {"twelve", "twelve.fast"}
    for step in steps:
        path = root / step.source
        if step.module and path.exists():
            names = {".".join(name.split(".")[:2]) for name in imports(path)}
            ours = {name for name in names if re.match(r"twelve\.(?!_)", name)}
            ours.discard(f"twelve.{step.stem}")  # parts of a package
            if later := sorted(ours - allowed):
                yield f"{step.source}: imports {', '.join(later)}, no earlier step"
            allowed.add(f"twelve.{step.stem}")


def _notebooks(root, steps):
    """A lesson and its workshop bear the name of the step, and check its exercises."""
    for step in steps:
        if not (root / step.notebook).exists():
            continue
        pages = {step.notebook: step.title, step.workshop: f"workshop: {step.title}"}
        for path, title in pages.items():
            first = (
                (headings(_read(root / path)) or ["nothing"])[0] if (root / path).exists() else ""
            )
            if first and first.lower() != f"{step.number} {title}".lower():
                yield f"{path}: the first heading is {first!r}, not that of {LIST}"
        number = str(int(step.number)) if step.number.isdigit() else f'"{step.number}"'
        cells = code_cells(_read(root / step.notebook))
        lines = {line for cell in cells for line in cell.source.splitlines()}
        if f"draw.strip({number})" not in lines:
            yield f"{step.notebook}: no cell draws draw.strip({number})"
        checks = {id[:2] for id in _checked(root, step)}
        if checks != ({step.number} if step.exercises else set()):
            yield f"{step.notebook}: has checks of {sorted(checks)}; see exercises in {LIST}"


def _checked(root, step):
    """List the exercises of a step: in its lesson, in its workshop, and in those of no step."""
    paths = [root / path for path in (step.notebook, step.workshop) if (root / path).exists()]
    ids = [id for path in paths for id in _checks(_read(path))]
    shared = sorted((root / "notebooks" / "workshop").glob(f"{TOOLS}*.ipynb"))
    others = [id for path in shared for id in _checks(_read(path))]
    return ids + [id for id in others if id.startswith(f"{step.number}-")]


def _read(path):
    return _notebook(path, path.stat().st_mtime_ns)


@cache
def _notebook(path, written):
    """Read a notebook once, however many rules look at it."""
    return nbformat.read(path, as_version=4)


def _checks(notebook):
    """List the exercises that a notebook checks, in order."""
    return [
        found[1]
        for cell in code_cells(notebook)
        if (found := re.match(r'check\("(\w\w-[\w-]+)"', cell.source))
    ]


def _exports(root, steps):
    for step in steps:
        path = root / step.source
        if step.exports and path.exists():
            body = ast.parse(path.read_text(encoding="utf-8")).body
            defined = {
                node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)
            }
            for name in set(step.exports) - defined:
                yield f"src/twelve/{step.stem}.py: defines no {name}, which {LIST} exports"
    due = write_steps.exports(steps)
    yield from _due(root, write_steps.EXPORTS, due)


def _readme(root, steps):
    text = (root / write_steps.README).read_text(encoding="utf-8")
    yield from _due(root, write_steps.README, write_steps.readme(text, steps, root))


def _due(root, name, due):
    """Name the lines of a written page that are due, and those that are not."""
    text = (root / name).read_text(encoding="utf-8")
    if text == due:
        return
    here, wanted = text.splitlines(), due.splitlines()
    missing = [line for line in wanted if line not in here]
    extra = [line for line in here if line not in wanted]
    lines = "\n".join([*(f"+ {line}" for line in missing), *(f"- {line}" for line in extra)])
    yield f"{name}: make catalogue writes it anew:\n{lines or 'the lines stand in another order'}"


def _glossary(root, steps):
    """Each module has its names in the glossary, under its number."""
    text = (root / "docs/glossary.md").read_text(encoding="utf-8")
    table = text.partition("## Layers and functions\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| (\w+) \|", table, re.M)
    found = [(name, number) for cell, number in rows for name in re.findall(r"`(\w+)`", cell)]
    for step in steps:
        own = {name for name, number in found if number == step.number}
        for name in [name for name in step.exports if name not in own]:
            yield f"docs/glossary.md: Layers and functions has no row | `{name}` | {step.number} |"
        if step.module and not own:
            yield f"docs/glossary.md: Layers and functions has no row of step {step.number}"
    for name, number in found:
        if number not in {step.number for step in steps if step.module}:
            yield f"docs/glossary.md: `{name}` has the step {number}, which has no module"


def _sessions(root, steps):
    """The plans for teachers are those of steps, in their order; a new step may lack one."""
    page = (root / "docs/teaching.md").read_text(encoding="utf-8")
    count, _, term = page.partition("### A term of ")[2].partition("\n### ")[0].partition(" ")
    rows = re.findall(r"^\| \d+ to \d+ \| ([^|]+) \|", term, re.M)
    planned = [number for row in rows for number in row.strip().split(", ")]
    wanted = [f"{step.number} {step.title}".lower() for step in steps if step.number in planned]
    sessions = re.findall(
        r"^### (.+)$", page.partition("\n## The sessions\n")[2].partition("\n## ")[0], re.M
    )
    if [title.lower() for title in sessions] != wanted or not (
        count == str(len(planned)) == str(len(wanted))
    ):
        yield f"docs/teaching.md: the sessions are {sessions}; those of the term are {wanted}"


def _measured(root, steps):
    """What each exercise measures is said in the order of the course."""
    page = (root / "docs/teaching.md").read_text(encoding="utf-8")
    table = page.partition("\n## What each exercise measures\n")[2]
    rows = re.findall(r"^\| `(\w\w-[\w-]+)` \|", table, re.M)
    ids = [id for step in steps for id in _checked(root, step)]
    for id in [id for id in ids if id not in rows]:
        yield f"docs/teaching.md: What each exercise measures has no row of {id}"
    for id in [id for id in rows if id not in ids]:
        yield f"docs/teaching.md: {id} is measured, and no notebook has it"
    numbers = [step.number for step in steps]
    places = [numbers.index(id[:2]) for id in rows if id[:2] in numbers]
    if places != sorted(places) or len(rows) > len(set(rows)):
        yield "docs/teaching.md: the rows do not follow the steps, or an exercise has two"
