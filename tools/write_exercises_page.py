"""Writes the exercises as a page that runs Python in the browser, with nothing installed.

Usage: python -m tools.write_exercises_page [FOLDER]

FOLDER is build/exercises by default. Any static server can serve it. Python is Pyodide's core from
npm. `torch` is the stand-in of browser/torch, or wheels of PyTorch and NumPy for Pyodide:

    TORCH_WHEEL=torch.whl NUMPY_WHEEL=numpy.whl make exercises-page

This was tested with a wheel that contains the stand-in, without NumPy. It was not tested with a
wheel of PyTorch itself, because no registry has one. Its imports, size and speed are unknown.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import nbformat
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from tools.command import run
from tools.write_solutions import exercise_of
from twelve_lab.course import BY_HAND, DRILLS, STEPS
from twelve_lab.messages import ENGLISH, current, declared, translated

ROOT = Path(__file__).resolve().parent.parent
SOURCE, PYODIDE = ROOT / "browser", ROOT / "node_modules/pyodide"
FOLDER = Path("build/exercises")
# The imports of check: the course without some instruments, and pure Python packages.
COURSE = ((ROOT / "src", "twelve"), (ROOT / "src", "twelve_lab"), (SOURCE, "torch"))
UNUSED = {"cli", "draw", "heads.json"}
PACKAGES = "twelve-numbers einops filelock jaxtyping typing_extensions wadler_lindig".split()
# Convert TeX to MathML, which browsers render without a script.
MATHML = """require("mathjax").init({loader: {load: ["input/tex"]}}).then((MathJax) =>
  console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0)).map(([tex, display]) =>
    MathJax.tex2mml(tex, {display}).replace(/\\n\\s*/g, "")))))"""


def write(folder: Path, book: str = "", english: Path | None = None) -> list[str]:
    """Write the page in the current language, and return a message.

    Args:
        folder: Destination; existing content is removed.
        book: Path of the book's root relative to the page, if the page is part of the book.
        english: Folder of the English page, whose copy of Python a translated page uses.

    Raises:
        ValueError: If Pyodide is missing.
        OSError: If something cannot be read or written.
    """
    if not PYODIDE.is_dir():
        raise ValueError("node_modules/pyodide is missing: make installs it (make exercises-page)")
    torch = os.environ.get("TORCH_WHEEL")
    wheels = [Path(wheel) for wheel in (os.environ.get("NUMPY_WHEEL"), torch) if wheel]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not english:
        _copy(folder, wheels, stand_in=not torch)
    files = (english or folder).rglob("*.*")
    fetched = sum(path.stat().st_size for path in files if path.suffix not in (".mjs", ".html"))
    data = {"version": version("twelve-numbers"), "size": fetched, "stand_in": not torch,
            "book": book, "python": english and "../../exercises/", "language": current(),
            "groups": groups(book)}  # fmt: skip
    (folder / "index.html").write_text(_page(data), encoding="utf-8")
    return [f"written: {folder / 'index.html'}"]


def _copy(folder: Path, wheels: list[Path], *, stand_in: bool) -> None:
    """Copy Pyodide, its wheels and the code that it runs."""
    unused = shutil.ignore_patterns("*.html", "*.ts", "*.map", "*.js", "*.md", "package.json")
    shutil.copytree(PYODIDE, folder / "pyodide", ignore=unused)
    for file in (*wheels, SOURCE / "worker.mjs"):
        shutil.copy(file, folder)
    (folder / "wheels.json").write_text(json.dumps([wheel.name for wheel in wheels]))
    _pack(folder / "course.zip", stand_in=stand_in)


def file_of(page: str) -> str:
    """Return the path of a page in the current language.

    Args:
        page: Path of the English page: a notebook, the README or the glossary.

    Raises:
        ValueError: If the page has no translation.
    """
    if current() == ENGLISH:
        return page
    path = page.replace("notebooks/", f"notebooks/{current()}/", 1)
    path = path.replace("docs/", f"locale/{current()}/", 1)
    path = path.replace("README.", f"README.{current()}.", 1)
    if not (ROOT / path).is_file():
        raise ValueError(f"{path} is missing: run make {current()}")
    return path


def key(id: str, notebook: str) -> str:
    """Return the anchor of an exercise, which may also occur on a page to write by hand."""
    return f"by-hand-{id.removeprefix('by-hand-')}" if f"/{BY_HAND}/" in notebook else id


def is_offered(id: str) -> bool:
    """Return whether the page can check an exercise."""
    return id not in json.loads((SOURCE / "not_offered.json").read_text("utf-8"))


def groups(book: str = "") -> list[dict[str, Any]]:
    """Return the exercises of each lesson and of each page to write by hand, in order."""
    pages = [(f"{step.number} {declared(step.title)}", step.notebook) for step in STEPS]
    pages += [(declared(drill.title), drill.page) for drill in DRILLS]
    listed = [
        {"title": title, "by_hand": f"/{BY_HAND}/" in page, "about": "",
         "address": book and book + page.replace(".ipynb", ".html"), **_exercises(page)}
        for title, page in pages
    ]  # fmt: skip
    _render([each for group in listed for each in (group, *group["tasks"])], book)
    return [group for group in listed if group["tasks"]]


def _exercises(page: str) -> dict[str, Any]:
    """Return the exercises of a notebook, and the introduction of a page to write by hand."""
    by_hand, given, about, tasks = f"/{BY_HAND}/" in page, [], [], []
    cells = nbformat.read(ROOT / file_of(page), as_version=4).cells
    for cell, answer, check in zip(cells, [*cells[1:], {}], [*cells[2:], {}, {}], strict=True):
        code = cell.cell_type == "code" and not exercise_of(cell, "answer") and cell.source
        if answer and (id := exercise_of(answer, "answer")):
            title, text = cell.source.rpartition("### ")[2].split("\n", 1)
            tasks.append({"key": key(id, page), "id": id, "title": title, "about": text,
                          "code": answer.source.rstrip(), "given": [*given],
                          "name": re.search(r", (\w+)\)", check.source)[1],
                          "absent": not is_offered(id)})  # fmt: skip
        elif by_hand and not tasks and code:
            given.append(code)
            about += [f"```python\n{code}\n```"] * bool(about)
        elif by_hand and not tasks and cell.source.startswith("## "):
            about.append(f"#{cell.source}")
        for top in ast.parse(code or "").body if not by_hand else ():
            # Import names one by one, because the page lacks some parts of the course.
            for alias in [*getattr(top, "names", ())]:
                top.names = [alias]
                given.append(ast.unparse(top))
            given += [ast.unparse(top)] * isinstance(top, ast.FunctionDef | ast.ClassDef)
    return {"about": "\n\n".join(about), "tasks": tasks}


def _render(texts: list[dict[str, Any]], book: str) -> None:
    """Convert Markdown to HTML and equations to MathML, in place."""
    equations: list[tuple[str, bool]] = []

    def equation(tex: str, options: Mapping[str, bool]) -> str:
        equations.append((tex, options["display_mode"]))
        return f"<!--{len(equations) - 1}-->"

    markdown = MarkdownIt("commonmark").enable("table")
    markdown.use(dollarmath_plugin, renderer=equation)
    for each in texts:
        each["about"] = markdown.render(each["about"])
    shown = json.loads(_output("node", "-e", MATHML, input=json.dumps(equations)))
    link = rf'<a href="{book}notebooks/\1.html">\2</a>' if book else r"\2"
    for each in texts:
        text = re.sub(r'<a href="(?:\.\./)?(\w+)\.ipynb">(.*?)</a>', link, each["about"])
        each["about"] = re.sub(r"<!--(\d+)-->", lambda match: shown[int(match[1])], text)


def _page(data: dict[str, Any]) -> str:
    """Return the HTML of the page, with inlined style, script and data."""
    script = _output("npm", "run", "--silent", "exercises-page")
    text, style = ((SOURCE / name).read_text("utf-8") for name in ("page.html", "page.css"))
    known = translated().items()
    data["messages"] = {id: words for id, words in known if id in script + text}
    packed = json.dumps(data, ensure_ascii=False).replace("<", r"\u003c")
    text = text.replace('lang="en"', f'lang="{current()}"', 1)
    for mark, content in (("STYLE", style), ("SCRIPT", script), ("DATA", packed)):
        text = text.replace(f"/*{mark}*/", content)
    return text


def _pack(file: Path, *, stand_in: bool) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.write(SOURCE / "judge.py", "judge.py")
        for root, package in COURSE if stand_in else COURSE[:-1]:
            for path in sorted((root / package).rglob("*.*")):
                name = path.relative_to(root)
                if path.suffix in (".py", ".json", ".mo") and not UNUSED & {*name.parts}:
                    archive.write(path, name)
        for each in (file for package in PACKAGES for file in distribution(package).files):
            if each.suffix == ".py" or each.name == "METADATA":
                archive.write(each.locate(), each)


def _output(*command: str, **options: Any) -> str:
    options |= {"cwd": ROOT, "check": True, "stdout": subprocess.PIPE, "text": True}
    return subprocess.run(command, **options).stdout


if __name__ == "__main__":
    sys.exit(run(write, FOLDER, __doc__.splitlines()[0]))
