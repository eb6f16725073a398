"""Writes the course as pages: README, docs, notebooks, reference, explorer and exercises.

Usage: python -m tools.write_book [FOLDER]

FOLDER is build/book by default. The pages work offline. Each language of the course has a folder in
the book with its translated pages.
"""

import ast
import json
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
from babel import Locale
from myst_parser.mdit_to_docutils.base import default_slugify
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from tools import papers, write_exercises_page
from tools.command import run
from tools.write_exercises_page import file_of
from tools.write_slides import central_figure
from tools.write_solutions import apart, exercise_of, solved
from twelve_lab.cli import commands
from twelve_lab.course import DRILLS, LISTS, STEPS, workshops_of
from twelve_lab.messages import ENGLISH, current, declared, language, languages, message, translated
from twelve_lab.show import faces, wide

ROOT = Path(__file__).resolve().parent.parent
BOOK = Path("build/book")
# The staged sources, Sphinx's cache, and the pages until the build is complete. Each Sphinx builder
# (html, singlehtml) has its own folder, so both can run at the same time.
STAGE = Path("build/book-stage")
MATHJAX = "node_modules/mathjax/es5/tex-svg-full.js"
# Text in code that looks like a link is not a link.
LINK = re.compile(
    r"```.*?```|`[^`\n]+`|\[(?P<text>[^\]\n]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)",
    re.DOTALL,
)
# The README has a second picture for phones; the pages do not use it.
PICTURE = re.compile(r'<picture>.*<img src="(.+?)" alt="(.+?)"></picture>')
# A table row that ends with a link to a notebook and one of its headings.
ROW = re.compile(r"\]\((?P<notebook>[\w./]+\.ipynb)\) \| (?P<heading>[^|\n]+?) \|$", re.M)

# Sphinx uses a different locale name for a language with several scripts.
LOCALES = {"zh": "zh_CN"}
# Modules in the reference that do not belong to a step.
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
# Parts after the pages by hand; a translated book has only the glossary.
CHAPTERS = {
    "Reference": [
        "Layers and instruments <reference/index>", "docs/glossary", "Coverage <docs/coverage>",
        "docs/troubleshooting", "docs/places",
    ],
    "To teach": ["docs/teaching"],
    "About": ["docs/benchmarks", "docs/graders", "docs/accessibility", "CONTRIBUTING",
              "docs/extending",
              "docs/mistakes", "docs/which_test_sees_it"],
}  # fmt: skip
# The printed book omits sections about the project itself.
NOT_BOUND = {
    "CONTRIBUTING.md", "accessibility.md", "benchmarks.md", "extending.md", "graders.md",
    "mistakes.md",
}  # fmt: skip
# The live page is the first page of the book, without a sidebar; this page comes after it.
HOME = "course.md"
EXERCISES = "exercises"
# The live page leads to the exercises after its last dare, but only in the book: the notebooks
# store copies of it.
DARES = '<section id="dares" aria-label="Dares" hidden></section>'
DARED = f"""{DARES}
      <p><a href="{EXERCISES}/index.html">%s</a></p>
      <style>#dares:not(:has(#dare-norm.done)) + p {{ display: none; }}</style>"""
# The book omits the README's overview of the project's files and its animation of the live page.
UNREAD = re.compile(
    r"^## [^\n]+\n\n```text\nnotebooks/.*?(?=^## )|^!\[[^\n]+\]\([^\n]+\.gif\)\n\n", re.M | re.S
)
# The figure of the walk has a narrow version for phones.
NARROW = "_static/walk_narrow.svg"


def stage(folder: Path, *, bound: bool = False, english: Path | None = None) -> None:
    """Stage the pages in the current language for Sphinx, under their English paths.

    Args:
        folder: Destination; existing content is removed.
        bound: Whether all pages become chapters of a single page.
        english: Folder of the English pages if the current language is not English.

    Raises:
        ValueError: If a page links to a file that the project lacks.
        OSError: If something cannot be read or written.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "book", folder)
    shutil.copytree(ROOT / "src" / "twelve", folder / "src" / "twelve")
    files = {path: text.encode() for path, text in pages(ROOT, bound=bound)}
    for picture in (ROOT / "docs").iterdir():
        if picture.suffix in (".svg", ".png"):
            files[f"docs/{picture.name}"] = picture.read_bytes()
    files["static/happy.svg"] = faces.picture(faces.HAPPY, faces.SIZE).encode()
    files["static/mathjax.js"] = (ROOT / MATHJAX).read_bytes()
    files[f"static/{Path(NARROW).name}"] = (ROOT / "docs" / Path(NARROW).name).read_bytes()
    for step in () if bound else STEPS:
        if figure := central_figure(_read(ROOT, step.notebook)):
            svg = unquote(figure.source.partition(",")[2])
            files[f"static/cards/{step.number}.svg"] = svg.encode()
    files |= {f"downloads/{name}": content for name, content in downloads(ROOT).items()}
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    lessons = {step.number: step.notebook.replace(".ipynb", ".html") for step in STEPS}
    live = commands.write_live(folder / "extra" / "index.html", lessons)
    if bound:
        return
    asked = DARED % message("Write the layers yourself, with nothing installed.")
    live.write_text(live.read_text("utf-8").replace(DARES, asked), encoding="utf-8")
    exercises = folder / "extra" / EXERCISES
    write_exercises_page.write(exercises, book="../", english=english and english / EXERCISES)
    for root, page in (("", "index"), ("../", f"{EXERCISES}/index")):
        file = folder / "extra" / f"{page}.html"
        switch = _switch().replace("ROOT", root).replace("PAGE", page)
        text = file.read_text(encoding="utf-8").replace("</header>", f"{switch}</header>", 1)
        file.write_text(text, encoding="utf-8")


def pages(root: Path, *, bound: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the path and the content of every page that Sphinx reads.

    Args:
        root: The project.
        bound: Whether all pages become chapters of a single page. If so, sections about the project
            are left out.

    Raises:
        ValueError: If a page links to a file that the project lacks.
    """
    readme = (root / file_of("README.md")).read_text(encoding="utf-8")
    readme = UNREAD.sub("", _relinked(PICTURE.sub(r"![\2](\1)", readme), "README.md", root))
    chapters = _bound(_parts(root)) if bound else _parts(root)
    if bound:
        opening = "\n\n".join(readme.split("\n\n")[:2])
        yield HOME, f"{opening}\n\n{_contents(chapters)}{_chapters(chapters)}"
    else:
        home, overview = _home(readme, root)
        chapters[message("About")].insert(0, "overview")
        yield HOME, home + _chapters(chapters)
        yield "overview.md", overview
    docs = [path.relative_to(root).as_posix() for path in sorted((root / "docs").glob("*.md"))]
    for name in ["CONTRIBUTING.md", *docs] if current() == ENGLISH else ["docs/glossary.md"]:
        if bound and Path(name).name in NOT_BOUND:
            continue
        text = ROW.sub(_to_heading, (root / file_of(name)).read_text(encoding="utf-8"))
        yield name, _relinked(text, name, root)
    for name in _notebooks(root):
        notebook = _read(root, name)
        if not bound:
            _link_exercises(notebook, name)
        notebook = _with_solutions(notebook, at_end=bound)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = papers.linked(_relinked(cell.source, name, root))
        notebook.cells[0].source += "\n\n" + _along(name)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        # Readers who do not run the code can skip the imports.
        code[0].metadata |= _folded(
            "hide-input aside", message("The imports"), message("Hide the imports")
        )
        for cell in code:
            if cell.metadata.get("jupyter", {}).get("outputs_hidden"):
                cell.metadata |= _folded(
                    "hide-output", message("What it prints"), message("Hide what it prints")
                )
            elif only_draws(cell.source):
                cell.metadata |= _folded(
                    "hide-input aside",
                    message("How this figure is made"),
                    message("Hide how this figure is made"),
                )
            if "draw.walk(" in cell.source and not bound:
                _add_narrow(cell.outputs[0].data, "../" * name.count("/") + NARROW)
        yield name, nbformat.writes(notebook)
    if current() == ENGLISH:
        yield from _reference()


def only_draws(source: str) -> bool:
    """Return whether code only draws: all its calls are to drawing, tracing or `replace`.

    Args:
        source: Source of a cell.
    """
    parts = ast.walk(ast.parse(source))
    calls = [ast.unparse(node.func) for node in parts if isinstance(node, ast.Call)]
    others = [call for call in calls if not call.startswith("draw.")]
    return len(calls) > len(others) and all(re.search(r"\.(trace|replace)$", x) for x in others)


def _folded(tags: str, show: str, hide: str) -> dict[str, object]:
    """Return the metadata of a cell that is collapsed under a prompt."""
    return {"tags": tags.split(), "mystnb": {"code_prompt_show": show, "code_prompt_hide": hide}}


def _add_narrow(data: dict[str, str], address: str) -> None:
    """Add a second picture for phones to a figure."""
    source = f'<picture><source media="(max-width: 40rem)" srcset="{address}">'
    data["text/html"] = data["text/html"].replace("<img", f"{source}<img") + "</picture>"


def _home(readme: str, root: Path) -> tuple[str, str]:
    """Split the README into a page that ends with the installation, and a second page.

    The first page links to the live page, and has cards instead of the table of lessons.
    """
    opening, course, readers, install, rest = re.split(r"\n\n(?=## )", readme, maxsplit=4)
    title, sentence, *_, commands = opening.split("\n\n")
    heading, how = install.split("\n\n", 1)
    table = re.search(r"^\|.+\|$", course, re.MULTILINE | re.DOTALL)[0]
    lessons = course.replace(table, _cards(root))
    live = message(
        "<a href={live}>Pull a thread</a> in the live model, or begin the course: {start}. "
        "<a href={exercises}>The exercises</a> run in this browser, with nothing installed.",
        live='"index.html"',
        start=f"[{STEPS[0].number} {_sentence(declared(STEPS[0].title))}]({STEPS[0].notebook})",
        exercises=f'"{EXERCISES}/index.html"',
    )
    home = [title, sentence, live, lessons, _drills(), readers, heading, commands, how]
    overview = message("Overview")
    return "\n\n".join(home) + "\n", f"# {overview}\n\n{rest}"


def _cards(root: Path) -> str:
    """Return a card for each lesson (figure, title, question), grouped by part of the course."""
    text = '<div class="lessons">\n'
    for part, steps in groupby(STEPS, lambda step: step.part):
        text += f"<section><h3>{_sentence(declared(part))}</h3>\n<ul>\n"
        for step in steps:
            figure, image = central_figure(_read(root, step.notebook)), ""
            if figure:
                image = f'<img src="_static/cards/{step.number}.svg" alt="{escape(figure.title)}">'
            address = step.notebook.replace(".ipynb", ".html")
            title = f"{step.number} {escape(_sentence(declared(step.title)))}"
            question = escape(declared(step.question))
            text += f'<li>{image}<p><a href="{address}">{title}</a></p><p>{question}</p></li>\n'
        text += "</ul></section>\n"
    return f"{text}</div>"


def _drills() -> str:
    """Return a table of the pages to write by hand, the most frequently asked first."""
    asked = message("asked for in, of {count} lists of interview questions", count=LISTS)
    rows = ["| " + message("to write by hand") + f" | {asked} |", "|---|---|"]
    for drill in DRILLS:
        rows.append(f"| [{_sentence(declared(drill.title))}]({drill.page}) | {drill.asked} |")
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
        "LICENSE", "src/twelve_lab/check/__init__.py", "tests/products/test_language_model.py",
        "tests/products/test_same_as_llama.py",
    ]  # fmt: skip
    return {name: (root / file_of(name)).read_bytes() for name in [*_notebooks(root), *others]}


def write(folder: Path, builder: str = "html") -> list[str]:
    """Run Sphinx with warnings as errors, and report the output.

    Args:
        folder: Destination; existing content is removed after the build.
        builder: Sphinx builder, "html" for a site or "singlehtml" for a single page.

    Raises:
        ValueError: If a file is missing, or Sphinx warns.
        OSError: If something cannot be read or written.
    """
    apart(folder, ROOT / "notebooks")
    if not (ROOT / MATHJAX).exists():
        raise ValueError(f"{MATHJAX} is missing: make installs it (make book)")
    place = STAGE / builder
    shutil.rmtree(place, ignore_errors=True)
    built = place / "pages"
    try:
        chosen = languages() if builder == "html" else [ENGLISH]
        for spoken in chosen:
            language(spoken)
            for name in ("README.md", "docs/glossary.md", *_notebooks(ROOT)):
                file_of(name)  # raises before the build, which takes minutes, if a page is missing
        for spoken in chosen:
            language(spoken)
            _build(place / spoken, built / ("" if spoken == ENGLISH else spoken), builder)
    finally:
        language(ENGLISH)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(built, folder)
    shutil.rmtree(place)
    return [f"written: {folder / 'index.html'}"]


def _build(place: Path, built: Path, builder: str) -> None:
    """Write the pages in the current language."""
    staged, bound = place / "source", builder == "singlehtml"
    stage(staged, bound=bound, english=None if current() == ENGLISH else built.parent)
    title = (ROOT / file_of("README.md")).read_text(encoding="utf-8").partition("\n")[0]
    footer = message("MIT licence. Every number on these pages was computed and compared.")
    shared = [name.removesuffix(".ipynb") for name in _notebooks(ROOT) if "/workshop/" not in name]
    script = (ROOT / "book" / "static" / "read.js").read_text(encoding="utf-8")
    texts = {id: words for id, words in translated().items() if id in script}
    settings = {
        "-Dlanguage": LOCALES.get(current(), current()),
        "-Dhtml_title": title.removeprefix("# "),
        "-Dhtml_theme_options.extra_footer": footer,
        "-Aexercises": message("Exercises, with nothing installed"),
        "-Aswitch": "" if bound else _switch(),
        "-Amessages": json.dumps(texts, ensure_ascii=False),
        "-Atranslated": " ".join(["course", "overview", "search", "docs/glossary", *shared]),
    }
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto"]
    command += ["-b", builder, "-d", place / "read"]
    command += [f"{name}={value}" for name, value in settings.items()]
    if status := subprocess.run([*command, staged, built]).returncode:
        raise ValueError(f"Sphinx ended with {status}: see above")


def _switch() -> str:
    """Return links to PAGE in the other languages; ROOT is the root of the current language."""
    links, up = [], "" if current() == ENGLISH else "../"
    for other in languages():
        if other != current():
            tag = LOCALES.get(other, other).replace("_", "-")
            address = f"ROOT{up}{'' if other == ENGLISH else f'{other}/'}PAGE.html"
            name = Locale(other).display_name
            links.append(f'<a lang="{tag}" hreflang="{tag}" href="{address}">{name}</a>')
    return f'<p class="languages d-print-none">{" ".join(links)}</p>'


def _english(path: str) -> str:
    """Return the path of the English page of a file: the inverse of `file_of`."""
    path = re.sub(rf"(?<=^notebooks/){current()}/|(?<=^README)\.{current()}(?=\.)", "", path)
    return re.sub(rf"^locale/{current()}/", "docs/", path)


def _read(root: Path, name: str) -> NotebookNode:
    return nbformat.read(root / file_of(name), as_version=4)


def _notebooks(root: Path) -> list[str]:
    """Return the paths of the lessons in reading order, then of the workshops and pages by hand.

    The workshops exist only in English.
    """
    english = workshops_of(root) if current() == ENGLISH else ()
    workshops = [path.relative_to(root).as_posix() for path in english]
    return [*(step.notebook for step in STEPS), *workshops, *(drill.page for drill in DRILLS)]


def _parts(root: Path) -> dict[str, list[str]]:
    """Map each part of the book to its chapters."""
    names = [name.removesuffix(".ipynb") for name in _notebooks(root)]
    lessons, workshops = names[: len(STEPS)], names[len(STEPS) : -len(DRILLS)]
    course, by_hand = {message("The course"): lessons}, {message("By hand"): names[-len(DRILLS) :]}
    if current() != ENGLISH:
        return course | by_hand | {message("About"): ["docs/glossary"]}
    deep = {"To play with": ["docs/spot_the_bug"], "Workshops": workshops}
    return course | deep | by_hand | {part: [*names] for part, names in CHAPTERS.items()}


def _bound(parts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Regroup the parts for print: read, practise, look up."""
    tests = "docs/which_test_sees_it"
    return {
        "The lessons": parts["The course"],
        "The workshops": [*parts["Workshops"], *parts["To play with"]],
        "By hand": parts["By hand"],
        "To look up and to teach": [*parts["Reference"], *parts["To teach"], tests],
    }


def _with_solutions(notebook: NotebookNode, *, at_end: bool) -> NotebookNode:
    """Add collapsed solutions after each exercise, or all solutions at the end of the notebook."""
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
                solution.metadata = _folded(
                    "hide-input", message("A solution"), message("Hide the solution")
                )
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
            address = f"{'../' * name.count('/')}{EXERCISES}/index.html#{key}"
            link = message(
                "<a href={address}>Answer it in this browser</a>, with nothing installed.",
                address=f'"{address}"',
            )
            text.source += f'\n\n<p class="d-print-none">{link}</p>'


def _chapters(chapters: dict[str, list[str]]) -> str:
    trees = [
        f"```{{toctree}}\n:caption: {caption}\n:hidden:\n\n" + "\n".join(names) + "\n```"
        for caption, names in chapters.items()
    ]
    return "\n\n" + "\n\n".join(trees) + "\n"


def _contents(chapters: dict[str, list[str]]) -> str:
    """Return the table of contents: a link for each chapter, grouped by part."""
    lines = []
    for part, names in chapters.items():
        lines.append(f"- {part}")
        lines += [f"  - [](/{name.split('<')[-1].rstrip('>')})" for name in names]
    listed = "\n".join(lines)
    return f"````{{container}} book-contents\n```{{rubric}} Contents\n```\n\n{listed}\n````"


def _along(name: str) -> str:
    """Return the line below the title of a notebook, with links to its downloads and its module."""
    up, notebook = "../" * name.count("/"), message("the notebook")
    copy = f"{{download}}`{notebook} <{up}downloads/{name}>`"
    line = message("To take along: {notebook}.", notebook=copy)
    stems = {page: each.stem for each, _, *pages in _modules() for page in pages}
    if stem := stems.get(name):
        module = _link(f"{stem}.py", f"reference/{stem}.md", name)
        line = wide.joined(line, message("The module: {module}.", module=module))
    return f"```{{only}} builder_html\n{line}\n```"


def _modules() -> Iterator[tuple]:
    """Yield each lesson and drill that has a module, with its title and its pages."""
    for step in STEPS:
        if step.module:
            yield step, f"{step.number} {step.title}", step.notebook, step.workshop
    for drill in DRILLS:
        if drill.exports:
            yield drill, f"By hand: {drill.title}", drill.page


def _reference() -> Iterator[tuple[str, str]]:
    """Yield a reference page for each module and each subpackage of the instruments."""
    names = [*(step.stem for step, *_ in _modules()), *INSTRUMENTS]
    yield "reference/index.md", REFERENCE.format(names="\n".join(names))
    for step, title, page, *_ in _modules():
        yield f"reference/{step.stem}.md", MODULE.format(step=step, title=title, page=page)
    for name, (module, title) in INSTRUMENTS.items():
        yield f"reference/{name}.md", INSTRUMENT.format(title=title, module=module)


def _to_heading(row: re.Match[str]) -> str:
    """Link a row to the heading that it names rather than to the top of the notebook."""
    anchor = default_slugify(row["heading"])
    return f"]({row['notebook']}#{anchor}) | {row['heading']} |"


def _relinked(text: str, name: str, root: Path) -> str:
    """Replace the links of a page with the paths of their targets in the book.

    If the text of a link is a heading of the target notebook, the link gets the heading's anchor.
    """
    name = file_of(name)

    def rewrite(link: re.Match[str]) -> str:
        target = link["target"]
        if target is None or re.match(r"[a-z]+:", target):
            return link[0]
        path = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if not (root / path).is_file():
            raise ValueError(f"{name}: a link leads to {target}, which is no file of the project")
        anchor = link["anchor"] or ""
        heading = default_slugify(link["text"])
        if not anchor and path.endswith(".ipynb") and heading in _anchors(root / path):
            anchor = f"#{heading}"
        return _link(link["text"], path, _place(name), anchor)

    return LINK.sub(rewrite, text)


def _link(text: str, path: str, page: str, anchor: str = "") -> str:
    """Link a page of the book to a file, which may be a page only of the English book."""
    place = _place(path)
    if current() != ENGLISH and _english(path) == path and place.endswith((".md", ".ipynb")):
        address = os.path.relpath(place, f"{current()}/{os.path.dirname(page)}")
        address = f"{Path(address).with_suffix('.html').as_posix()}{anchor}"
        return f'<a hreflang="en" href="{address}">{text}</a>'
    place = os.path.relpath(place, os.path.dirname(page) or ".").replace(os.sep, "/")
    return f"[{text}]({place}{anchor})"


@cache
def _anchors(notebook: Path) -> set[str]:
    """Return the anchors of a notebook's headings."""
    cells = nbformat.read(notebook, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return set(map(default_slugify, re.findall(r"^#+ (.+)$", text, re.MULTILINE)))


def _place(path: str) -> str:
    """Return the path that a file of the project has in the book."""
    path = _english(path)
    if path == "README.md":
        return HOME
    if module := re.fullmatch(r"src/twelve/([a-z]\w*?)(?:/__init__)?\.py", path):
        return f"reference/{module[1]}.md"
    if path.startswith(("docs/", "notebooks/", "CONTRIBUTING", "reference/")):
        return path
    return f"downloads/{path}"


if __name__ == "__main__":
    sys.exit(run(write, BOOK, __doc__.splitlines()[0]))
