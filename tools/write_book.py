"""Writes the course as pages: README, docs, notebooks, reference, explorer and exercises.

Usage: python -m tools.write_book [FOLDER]

FOLDER is build/book by default. The pages load nothing from other machines.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import unquote

import nbformat
from myst_parser.mdit_to_docutils.base import default_slugify
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from tools import papers, write_exercises_page
from tools.command import run
from tools.write_slides import central_figure
from tools.write_solutions import apart, exercise_of, solved
from twelve_lab.cli import commands
from twelve_lab.course import DRILLS, LISTS, STEPS, workshops_of
from twelve_lab.show import faces

ROOT = Path(__file__).resolve().parent.parent
BOOK = Path("build/book")
# The staged sources, Sphinx's cache, and the pages until the build is complete. The site and the
# single page have separate folders, so that they can be built at the same time.
STAGE = Path("build/book-stage")
MATHJAX = "node_modules/mathjax/es5/tex-svg-full.js"
# Text in code that looks like a link is no link.
LINK = re.compile(
    r"```.*?```|`[^`\n]+`|\[(?P<text>[^\]\n]*)\]\((?P<target>[^)#\s]+)(?=[)#])", re.DOTALL
)
# The README has a second picture for phones; the pages do not use it.
PICTURE = re.compile(r'<picture>.*<img src="(.+?)" alt="(.+?)"></picture>')
# A table row that ends in a link to a notebook and the heading that it refers to.
ROW = re.compile(r"\]\((?P<notebook>[\w./]+\.ipynb)\) \| (?P<heading>[^|\n]+?) \|$", re.M)

SOLUTION = {
    "tags": ["hide-input"],
    "mystnb": {"code_prompt_show": "A solution", "code_prompt_hide": "Hide the solution"},
}
# Modules in the reference that belong to no step.
INSTRUMENTS = {
    "fast": ("twelve.fast", "Fast layers"),
    "lab": ("twelve_lab", "Instruments: watch, explain and try"),
    "lab_draw": ("twelve_lab.draw", "Instruments: draw"),
    "lab_check": ("twelve_lab.check", "Instruments: check an answer"),
}
REFERENCE = """# Reference

Every public name with its docstring, and the source of every layer. Signatures contain the sizes:
`Float[Tensor, "batch seq"]` is a tensor of floats with the axes batch and seq.

```{{toctree}}
:maxdepth: 1

{names}
```
"""
# The PDF prints only the source, which contains the docstrings.
MODULE = """# {step.stem}

The notebook: [{title}](../{page}).

````{{only}} builder_html
```{{eval-rst}}
.. automodule:: twelve.{step.stem}
   :members:
   :special-members: __call__
```
````

## The source

```{{literalinclude}} ../{step.source}
:language: python
```
"""
INSTRUMENT = """# {title}

```{{eval-rst}}
.. automodule:: {module}
   :members:
   :imported-members:
```
"""
PLAY = {"To play with": ["docs/spot_the_bug"]}
# Parts after the workshops.
CHAPTERS = {
    "Reference": [
        "Layers and instruments <reference/index>", "docs/glossary", "Coverage <docs/coverage>",
        "docs/troubleshooting", "docs/places",
    ],
    "To teach": ["docs/teaching"],
    "About": ["docs/benchmarks", "docs/graders", "docs/accessibility", "CONTRIBUTING",
              "docs/mistakes", "docs/which_test_sees_it"],
}  # fmt: skip
# The printed book omits sections about the project itself.
NOT_BOUND = {
    "CONTRIBUTING.md", "accessibility.md", "benchmarks.md", "graders.md", "mistakes.md",
}  # fmt: skip
# The live page is the first page of the book, without a sidebar; this page comes after it.
HOME = "course.md"
LIVE = f"""<a href="index.html">Pull a thread</a> in the live model, or begin the course:
[00 Start here]({STEPS[0].notebook}). <a href="exercises/index.html">The exercises</a> run in this
browser, with nothing installed."""
EXERCISES = "exercises"
# The live page leads to the exercises after its last dare, but only in the book: the notebooks
# store copies of it.
DARES = '<section id="dares" aria-label="Dares" hidden></section>'
DARED = f"""{DARES}
      <p><a href="{EXERCISES}/index.html">Write the layers yourself</a>, nothing installed.</p>
      <style>#dares:not(:has(#dare-norm.done)) + p {{ display: none; }}</style>"""
ANSWER = """

<p class="d-print-none"><a href="{}">Answer it in this browser</a>, with nothing installed.</p>"""
# The book omits the README's map of the project's files and its film of the live page.
UNREAD = re.compile(r"^## The tree\n.*?(?=^## )|^!\[[^\n]+\]\([^\n]+\.gif\)\n\n", re.M | re.S)
PREDICTED = {
    "tags": ["hide-output"],
    "mystnb": {"code_prompt_show": "What it prints", "code_prompt_hide": "Hide what it prints"},
}
DRAWN = {
    "tags": ["hide-input", "aside"],
    "mystnb": {
        "code_prompt_show": "How this figure is made",
        "code_prompt_hide": "Hide how this figure is made",
    },
}
# A phone shows another figure of the walk.
NARROW = "_static/walk_narrow.svg"
# Readers who do not run the code can skip the imports.
IMPORTS = {
    "tags": ["hide-input", "aside"],
    "mystnb": {"code_prompt_show": "The imports", "code_prompt_hide": "Hide the imports"},
}


def stage(folder: Path, root: Path = ROOT, *, bound: bool = False) -> None:
    """Stage the pages for Sphinx, under the paths that they have in the project.

    Args:
        folder: Destination; its former content is removed.
        root: The project.
        bound: Whether all pages become chapters of a single page.

    Raises:
        ValueError: If a page links to a file that the project lacks.
        OSError: If something cannot be read or written.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "book", folder)
    for path, text in pages(root, bound=bound):
        _put(folder / path, text.encode())
    shutil.copytree(root / "src" / "twelve", folder / "src" / "twelve")
    for picture in (root / "docs").iterdir():
        if picture.suffix in (".svg", ".png"):
            _put(folder / "docs" / picture.name, picture.read_bytes())
    _put(folder / "static" / "happy.svg", faces.picture(faces.HAPPY, faces.SIZE).encode())
    shutil.copy(root / "docs" / Path(NARROW).name, folder / "static")
    for step in () if bound else STEPS:
        if figure := central_figure(nbformat.read(root / step.notebook, as_version=4)):
            svg = unquote(figure.source.partition(",")[2])
            _put(folder / "static" / "cards" / f"{step.number}.svg", svg.encode())
    _put(folder / "static" / "mathjax.js", (root / MATHJAX).read_bytes())
    for name, content in downloads(root).items():
        _put(folder / "downloads" / name, content)
    lessons = {step.number: step.notebook.replace(".ipynb", ".html") for step in STEPS}
    live = commands.write_live(folder / "extra" / "index.html", lessons)
    if not bound:
        live.write_text(live.read_text("utf-8").replace(DARES, DARED), encoding="utf-8")
        write_exercises_page.write(folder / "extra" / EXERCISES, book="../")


def pages(root: Path, *, bound: bool = False) -> Iterator[tuple[str, str]]:
    """Return every page that Sphinx reads, by its path.

    Args:
        root: The project.
        bound: Whether all pages become chapters of a single page; then sections about the project
            are left out.

    Raises:
        ValueError: If a page links to a file that the project lacks.
    """
    readme = PICTURE.sub(r"![\2](\1)", (root / "README.md").read_text(encoding="utf-8"))
    readme = UNREAD.sub("", _relinked(readme, "README.md", root))
    chapters = _bound(_parts(root)) if bound else _parts(root)
    if bound:
        opening = "\n\n".join(readme.split("\n\n")[:2])
        yield HOME, f"{opening}\n\n{_contents(chapters)}{_chapters(chapters)}"
    else:
        home, overview = _home(readme, root)
        chapters["About"] = ["overview", *chapters["About"]]
        yield HOME, home + _chapters(chapters)
        yield "overview.md", overview
    for path in [root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        if bound and path.name in NOT_BOUND:
            continue
        name = path.relative_to(root).as_posix()
        text = ROW.sub(_to_heading, path.read_text(encoding="utf-8"))
        yield name, _relinked(text, name, root)
    for name in _notebooks(root):
        notebook = nbformat.read(root / name, as_version=4)
        if not bound:
            _link_exercises(notebook, name)
        notebook = _with_solutions(notebook, at_end=bound)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = papers.linked(_relinked(cell.source, name, root))
        notebook.cells[0].source += "\n\n" + _along(name)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        code[0].metadata |= IMPORTS
        for cell in code:
            if cell.metadata.get("jupyter", {}).get("outputs_hidden"):
                cell.metadata |= PREDICTED
            elif only_draws(cell.source):
                cell.metadata |= DRAWN
            if "draw.walk(" in cell.source and not bound:
                _add_narrow(cell.outputs[0].data, "../" * name.count("/") + NARROW)
        yield name, nbformat.writes(notebook)
    yield from _reference()


def only_draws(source: str) -> bool:
    """Check whether code only draws: it calls the functions that draw or trace, and `replace`.

    Args:
        source: Code of a cell.
    """
    parts = ast.walk(ast.parse(source))
    calls = [ast.unparse(node.func) for node in parts if isinstance(node, ast.Call)]
    others = [call for call in calls if not call.startswith("draw.")]
    return len(calls) > len(others) and all(re.search(r"\.(trace|replace)$", x) for x in others)


def _add_narrow(data: dict[str, str], address: str) -> None:
    """Add a second picture for phones to a figure."""
    source = f'<picture><source media="(max-width: 40rem)" srcset="{address}">'
    data["text/html"] = data["text/html"].replace("<img", f"{source}<img") + "</picture>"


def _home(readme: str, root: Path) -> tuple[str, str]:
    """Split the README into a page that ends with the installation, and a second page.

    The first one leads to the live page, and cards replace the table of lessons.
    """
    opening, course, readers, install, rest = re.split(r"\n\n(?=## )", readme, maxsplit=4)
    title, sentence, *_, commands = opening.split("\n\n")
    heading, how = install.split("\n\n", 1)
    table = re.search(r"^\|.+\|$", course, re.MULTILINE | re.DOTALL)[0]
    lessons = course.replace(table, _cards(root))
    home = [title, sentence, LIVE, lessons, _drills(), readers, heading, commands, how]
    return "\n\n".join(home) + "\n", f"# Overview\n\n{rest}"


def _cards(root: Path) -> str:
    """Return a card for each lesson, by the parts of the course: figure, title, question."""
    parts = []
    for part, steps in groupby(STEPS, lambda step: step.part):
        cards = []
        for step in steps:
            page = step.notebook.replace(".ipynb", ".html")
            image = ""
            if figure := central_figure(nbformat.read(root / step.notebook, as_version=4)):
                title = escape(figure.title)
                image = f'<img src="_static/cards/{step.number}.svg" alt="{title}">'
            cards.append(
                f"<li>{image}"
                f'<p><a href="{page}">{step.number} {escape(_sentence(step.title))}</a></p>'
                f"<p>{escape(step.question)}</p></li>"
            )
        listed = "\n".join(cards)
        parts.append(f"<section><h3>{_sentence(part)}</h3>\n<ul>\n{listed}\n</ul></section>")
    return '<div class="lessons">\n' + "\n".join(parts) + "\n</div>"


def _drills() -> str:
    """Return a table of the pages to write by hand, the most asked first."""
    rows = [
        f"| to write by hand | asked for in, of {LISTS} lists of interview questions |",
        "|---|---|",
    ]
    rows += [f"| [{_sentence(drill.title)}]({drill.page}) | {drill.asked} |" for drill in DRILLS]
    return "\n".join(rows)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def downloads(root: Path) -> dict[str, bytes]:
    """Return the files for download: each notebook, and other files that pages link to.

    Args:
        root: The project.

    Returns:
        Content by path under `downloads`.
    """
    others = [
        "LICENSE", "tests/products/test_language_model.py",
        "tests/products/test_same_as_llama.py",
    ]  # fmt: skip
    return {name: (root / name).read_bytes() for name in [*_notebooks(root), *others]}


def write(folder: Path, builder: str = "html") -> list[str]:
    """Run Sphinx, in which a warning is an error, and say what was written.

    Args:
        folder: Destination; its former content is removed after the build.
        builder: "html" for a site, "singlehtml" for one page.

    Raises:
        ValueError: If a file is missing, or Sphinx warns.
        OSError: If something cannot be read or written.
    """
    apart(folder, ROOT / "notebooks")
    if not (ROOT / MATHJAX).exists():
        raise ValueError(f"{MATHJAX} is missing: make installs it (make book)")
    place = STAGE / builder
    shutil.rmtree(place, ignore_errors=True)
    staged, pages_ = place / "source", place / "pages"
    stage(staged, bound=builder == "singlehtml")
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto", "-b", builder]
    done = subprocess.run([sys.executable, *command, "-d", place / "read", staged, pages_])
    if done.returncode:
        raise ValueError(f"Sphinx ended with {done.returncode}: see above")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(pages_, folder)
    shutil.rmtree(place)
    return [f"written: {folder / 'index.html'}"]


def _notebooks(root: Path) -> list[str]:
    """Return the paths of the lessons in reading order, of the workshops, of the pages by hand."""
    workshops = [path.relative_to(root).as_posix() for path in workshops_of(root)]
    return [*(step.notebook for step in STEPS), *workshops, *(drill.page for drill in DRILLS)]


def _parts(root: Path) -> dict[str, list[str]]:
    """List the chapters by parts."""
    names = [name.removesuffix(".ipynb") for name in _notebooks(root)]
    lessons, workshops = names[: len(STEPS)], names[len(STEPS) : -len(DRILLS)]
    deep = {"Workshops": workshops} if workshops else {}
    by_hand = {"By hand": names[-len(DRILLS) :]}
    return {"The course": lessons} | PLAY | deep | by_hand | CHAPTERS


def _bound(parts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Regroup the parts for print: read, practise, look up."""
    play = [name for names in PLAY.values() for name in names]
    return {
        "The lessons": parts["The course"],
        "The workshops": [*parts.get("Workshops", []), *play],
        "By hand": parts["By hand"],
        "To look up and to teach": [
            *parts["Reference"],
            *parts["To teach"],
            "docs/which_test_sees_it",
        ],
    }


def _with_solutions(notebook: NotebookNode, *, at_end: bool) -> NotebookNode:
    """Add the folded solution after each exercise, or all solutions at the end of the notebook."""
    answers = {exercise_of(cell, "answer"): cell for cell in solved(notebook).cells}
    cells, last, exercise = [], [], ""
    for cell in notebook.cells:
        cells.append(cell)
        for heading in re.findall(r"^#+ (.+)$", cell.source, re.M):
            exercise = heading
        if id := exercise_of(cell, "check"):
            cell.outputs = []
            solution = new_code_cell(answers[id].source, id=f"{cell.id}-solved")
            if at_end:
                last += [new_markdown_cell(f"**{exercise}**"), solution]
            else:
                solution.metadata = SOLUTION
                cells.append(solution)
    if last:
        cells += [new_markdown_cell("## Solutions"), *last]
    notebook.cells = cells
    return notebook


def _link_exercises(notebook: NotebookNode, name: str) -> None:
    """Link the text of each exercise to the page that checks it in the browser."""
    for text, answer in pairwise(notebook.cells):
        id = exercise_of(answer, "answer")
        if id and "/workshop/" not in name and write_exercises_page.is_offered(id):
            key = write_exercises_page.key(id, name)
            text.source += ANSWER.format(f"{'../' * name.count('/')}{EXERCISES}/index.html#{key}")


def _chapters(chapters: dict[str, list[str]]) -> str:
    trees = [
        f"```{{toctree}}\n:caption: {caption}\n:hidden:\n\n" + "\n".join(names) + "\n```"
        for caption, names in chapters.items()
    ]
    return "\n\n" + "\n\n".join(trees) + "\n"


def _contents(chapters: dict[str, list[str]]) -> str:
    """Return the contents: a link for each chapter, grouped by parts."""
    lines = []
    for part, names in chapters.items():
        lines.append(f"- {part}")
        lines += [f"  - [](/{name.split('<')[-1].rstrip('>')})" for name in names]
    listed = "\n".join(lines)
    return f"````{{container}} book-contents\n```{{rubric}} Contents\n```\n\n{listed}\n````"


def _along(name: str) -> str:
    """Return the line under the title of a notebook: its downloads and its module."""
    up = "../" * name.count("/")
    line = f"To take along: {{download}}`the notebook <{up}downloads/{name}>`."
    step = next((step for step in STEPS if name in (step.notebook, step.workshop)), None)
    drill = next((drill for drill in DRILLS if name == drill.page), None)
    if (step and step.module) or (drill and drill.exports):
        stem = (step or drill).stem
        line += f" The module: [{stem}.py]({up}reference/{stem}.md)."
    return f"```{{only}} builder_html\n{line}\n```"


def _reference() -> Iterator[tuple[str, str]]:
    """Return a reference page for each module and each subpackage of the instruments."""
    modules = [
        (step, f"{step.number} {step.title}", step.notebook) for step in STEPS if step.module
    ] + [(drill, f"By hand: {drill.title}", drill.page) for drill in DRILLS if drill.exports]
    names = [step.stem for step, *_ in modules] + list(INSTRUMENTS)
    yield "reference/index.md", REFERENCE.format(names="\n".join(names))
    for step, title, page in modules:
        yield f"reference/{step.stem}.md", MODULE.format(step=step, title=title, page=page)
    for name, (module, title) in INSTRUMENTS.items():
        yield f"reference/{name}.md", INSTRUMENT.format(title=title, module=module)


def _to_heading(row: re.Match[str]) -> str:
    """Link a row to the heading that it names, not to the top of its notebook."""
    anchor = default_slugify(row["heading"])
    return f"]({row['notebook']}#{anchor}) | {row['heading']} |"


def _relinked(text: str, name: str, root: Path) -> str:
    """Rewrite the links of a page to the paths of their targets in the book.

    If the text of a link is a heading of the target notebook, the link gets the heading's anchor.
    """

    def rewrite(link: re.Match[str]) -> str:
        target = link["target"]
        if target is None or re.match(r"[a-z]+:", target):
            return link[0]
        path = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if not (root / path).is_file():
            raise ValueError(f"{name}: a link leads to {target}, which is no file of the project")
        place = os.path.relpath(_place(path), os.path.dirname(name) or ".").replace(os.sep, "/")
        anchor = default_slugify(link["text"])
        if path.endswith(".ipynb") and anchor in _anchors(root / path):
            place += f"#{anchor}"
        return f"[{link['text']}]({place}"

    return LINK.sub(rewrite, text)


@cache
def _anchors(notebook: Path) -> set[str]:
    """Return the anchors of a notebook's headings."""
    cells = nbformat.read(notebook, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return set(map(default_slugify, re.findall(r"^#+ (.+)$", text, re.MULTILINE)))


def _place(path: str) -> str:
    """Return the path in the book of a file of the project."""
    module = re.fullmatch(r"src/twelve/([a-z]\w*?)(?:/__init__)?\.py", path)
    if path == "README.md":
        return HOME
    if module:
        return f"reference/{module[1]}.md"
    return path if path.startswith(("docs/", "notebooks/", "CONTRIBUTING")) else f"downloads/{path}"


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    sys.exit(run(write, BOOK, __doc__.splitlines()[0]))
