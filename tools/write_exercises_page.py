"""Writes the exercises as a page that runs Python in the browser, with nothing installed.

Usage: python -m tools.write_exercises_page [FOLDER]

FOLDER is build/exercises by default. Any static server can serve it; the page makes no request to
another one. Python is Pyodide's core from npm. `torch` is the stand-in of browser/torch, unless the
variable TORCH_WHEEL names a wheel of PyTorch for Pyodide, and NUMPY_WHEEL one of NumPy:

    TORCH_WHEEL=torch.whl NUMPY_WHEEL=numpy.whl make exercises-page

Then the wheels are served beside the page, and Pyodide installs them before the course. No registry
has such a wheel of PyTorch. So this was tested with a wheel that holds the stand-in, and without
NumPy. Not tested: the real PyTorch, its other dependencies, its size and its speed.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import nbformat
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode

from tools.command import run
from tools.write_solutions import exercise_of
from twelve_lab.course import BY_HAND, DRILLS, STEPS
from twelve_lab.messages import declared, translated

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "browser"
FOLDER = Path("build/exercises")
MODULES = ROOT / "node_modules"
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip",
           "pyodide-lock.json")  # fmt: skip
PACKAGES = ("einops", "filelock", "jaxtyping", "typing_extensions", "wadler_lindig")
# Parts of the instruments that `check` does not import, or that the page has no packages for.
LEFT_OUT = ("cli", "draw", "heads.json")
WHEELS = ("NUMPY_WHEEL", "TORCH_WHEEL")
# Converts TeX to MathML, which a browser shows without a script.
MATHML = """require("./node_modules/mathjax/es5/node-main.js").init({loader: {load: ["input/tex"]}})
.then((MathJax) => console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0)).map(
(tex) => MathJax.tex2mml(tex, {display: false}).replace(/\\n\\s*/g, "")))))"""


def write(folder: Path, book: str = "") -> list[str]:
    """Write the page.

    Args:
        folder: Destination; its former content is removed.
        book: Address of the book's root relative to the page, if the page is a part of the book.

    Raises:
        ValueError: If a package is missing.
        OSError: If something cannot be read or written.
    """
    if not (MODULES / "pyodide").is_dir():
        raise ValueError("node_modules/pyodide is missing: make installs it (make exercises-page)")
    wheels = [Path(path) for name in WHEELS if (path := os.environ.get(name))]
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pyodide").mkdir(parents=True)
    for name in PYODIDE:
        shutil.copy(MODULES / "pyodide" / name, folder / "pyodide")
    for wheel in wheels:
        shutil.copy(wheel, folder)
    _pack(folder / "course.zip", stand_in="TORCH_WHEEL" not in os.environ)
    (folder / "wheels.json").write_text(json.dumps([wheel.name for wheel in wheels]))
    shutil.copy(SOURCE / "worker.mjs", folder)
    served = [path for path in folder.rglob("*") if path.suffix not in (".mjs", ".html")]
    data = {
        "version": version("twelve-numbers"),
        "size": sum(path.stat().st_size for path in served),
        "book": book,
        "groups": groups(book),
    }
    (folder / "index.html").write_text(page(data), encoding="utf-8")
    return [f"written: {folder / 'index.html'}"]


def page(data: Mapping[str, Any]) -> str:
    """Return the HTML of the page, with its script, its style and its data."""
    bundle = ["npm", "run", "--silent", "exercises-page"]
    script = subprocess.run(bundle, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    text = (SOURCE / "page.html").read_text(encoding="utf-8")
    texts = script + text
    messages = {id: words for id, words in translated().items() if id in texts}
    packed = json.dumps({**data, "messages": messages}, ensure_ascii=False).replace("<", r"\u003c")
    style = (SOURCE / "page.css").read_text(encoding="utf-8")
    for mark, content in (("STYLE", style), ("SCRIPT", script), ("DATA", packed)):
        text = text.replace(f"/*{mark}*/", content)
    return text


def groups(book: str = "") -> list[dict[str, Any]]:
    """Return the exercises of each lesson and of each page to write by hand, in order."""
    pages = [(f"{step.number} {declared(step.title)}", step.notebook) for step in STEPS]
    pages += [(declared(drill.title), drill.page) for drill in DRILLS]
    file = SOURCE / "not_offered.json"
    absent = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    groups = []
    for title, name in pages:
        by_hand = f"/{BY_HAND}/" in name
        tasks = list(_tasks(nbformat.read(ROOT / name, as_version=4), by_hand, absent))
        address = book and book + name.replace(".ipynb", ".html")
        if tasks:
            groups.append({"title": title, "by_hand": by_hand, "address": address, "tasks": tasks})
    _render([task for group in groups for task in group["tasks"]], book)
    return groups


def _tasks(
    notebook: NotebookNode, by_hand: bool, absent: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    given: list[str] = []
    for i, cell in enumerate(notebook.cells):
        if id := exercise_of(cell, "check"):
            text, answer = notebook.cells[i - 2].source, notebook.cells[i - 1].source
            title, ask = text[text.rindex("### ") + 4 :].split("\n", 1)
            prefix = "by-hand-" if by_hand and not id.startswith(BY_HAND.replace("_", "-")) else ""
            name = re.search(r', (\w+)\)', cell.source)[1]
            yield {
                "key": prefix + id, "id": id, "title": title, "ask": ask, "name": name,
                "code": answer.rstrip(), "given": [*given], "absent": absent.get(id),
            }  # fmt: skip
        elif cell.cell_type == "code" and not exercise_of(cell, "answer"):
            given += _given(cell.source)


def _given(source: str) -> Iterator[str]:
    """Yield what an answer may use of a cell: its imports, one by one, its functions and classes."""
    for top in ast.parse(source).body:
        if isinstance(top, ast.Import | ast.ImportFrom):
            for alias in top.names:
                top.names = [alias]
                yield ast.unparse(top)
        elif isinstance(top, ast.FunctionDef | ast.ClassDef):
            yield ast.unparse(top)


def _render(tasks: list[dict[str, Any]], book: str) -> None:
    """Convert the text of each exercise to HTML, and its equations to MathML."""
    equations: list[str] = []

    def equation(tex: str, _: Any) -> str:
        equations.append(tex)
        return f"\0{len(equations) - 1}\0"

    markdown = MarkdownIt("commonmark", {"html": True}).use(
        dollarmath_plugin, renderer=equation, allow_space=False
    )
    for task in tasks:
        text = markdown.render(task["ask"])
        link = rf'<a href="{book}notebooks/\1.html">\2</a>' if book else r"\2"
        task["ask"] = re.sub(r'<a href="(?:\.\./)?(\w+)\.ipynb">(.*?)</a>', link, text)
    done = subprocess.run(["node", "-e", MATHML], cwd=ROOT, check=True, capture_output=True,
                          text=True, input=json.dumps(equations))  # fmt: skip
    shown = json.loads(done.stdout)
    for task in tasks:
        task["ask"] = re.sub("\0(\\d+)\0", lambda match: shown[int(match[1])], task["ask"])


def _pack(file: Path, *, stand_in: bool) -> None:
    """Pack the course, the pure packages it imports, and the stand-in for torch."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.write(SOURCE / "judge.py", "judge.py")
        sources = [ROOT / "src" / "twelve", ROOT / "src" / "twelve_lab"]
        for folder in [*sources, *([SOURCE / "torch"] if stand_in else [])]:
            for path in sorted(folder.rglob("*")):
                name = path.relative_to(folder.parent)
                wanted = path.suffix in (".py", ".json", ".mo")
                if wanted and not set(LEFT_OUT) & set(name.parts):
                    archive.write(path, name)
        for package in (*PACKAGES, "twelve-numbers"):
            for each in distribution(package).files or ():
                if each.suffix == ".py" and ".." not in each.parts and package != "twelve-numbers" or each.name == "METADATA":
                    archive.write(each.locate(), each)


if __name__ == "__main__":
    sys.exit(run(write, FOLDER, __doc__.splitlines()[0]))
