"""Rules for stored notebooks that nbval does not check.

nbval accepts cleared outputs, any picture, skipped cells and any execution counts. Each rule takes
a notebook and yields its problems. The rules miss two errors: a correct number in the wrong place,
and a wrong number spelled out as a word.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from twelve_lab.check import EXERCISES
from twelve_lab.course import BY_HAND
from twelve_lab.draw.drawing import stored

MAX_BYTES = 400_000
MAX_LINES = 18
# The first cell also installs the course if it is missing.
INSTALLS = re.compile(r"except ModuleNotFoundError:.*\n.*install -q twelve-numbers\[learner")
MAX_FIRST = 23
# Output that depends on the machine, the device or the run.
VOLATILE = re.compile(
    r"dtype=|device=|grad_fn|\b0x[0-9a-f]{6,}|cuda|ipykernel|(?<![\w.])/(home|tmp|usr)/"
)
FORBIDDEN = {
    "a shell command": re.compile(r"^\s*!", re.M),
    "a magic": re.compile(r"^\s*%", re.M),
    "a hidden output (;)": re.compile(r";\s*\Z"),
    "the output history": re.compile(r"\bOut\["),
    "an nbval comment": re.compile(r"NBVAL_"),
    "a download": re.compile(r"https?://|urlopen|\bhub\.load"),
}
NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\d)")
OPERATOR = re.compile(r"(?:[+·×*/-]|\\cdot) *$")
# Precedes the number of a release or a section.
NAMED = re.compile(r"(?:PyTorch|Python|section) $")
# Matches shapes, but not the arguments of a call.
TUPLE = re.compile(r"(?<!\w)(\(([\w.−-]+(?:\s*,\s*[\w.−-]+)*,?)\s*\))")
LISTED = re.compile(r"(?<=[(\[])(\s*-?[\d.]+(?:,\s*-?[\d.]+)+)\s*(?=[)\]]|,\s*[a-z])")
# Matches sizes, but not step numbers such as 02.
SIZE = re.compile(r"[−-]?(?:0|[1-9]\d*|\d+\.\d+)")
AXES = {
    "batch", "seq", "src", "tgt", "query", "key", "head", "new", "all", "position", "feature",
    "d_model", "d_k", "d_v", "d_ff", "d_in", "d_out", "in", "out", "vocab", "max_len", "channel",
    "height", "width",
}  # fmt: skip
CONTRACTS = {exercise.contract for exercise in EXERCISES.values()}
# Numbers and shapes in the prose that no cell computes, by page and reason.
OTHERS, ASKED, PAPER = "of other code", "part of a question or a hint", "worked out on paper"
UNSHOWN = "not shown in a cell yet"
SAID_ONLY = {
    "01_linear": {ASKED: {"(batch, seq, d_out, d_in)", "(batch, seq, 1, d_in)"}},
    "workshop/tools_tensors": {
        ASKED: {"(2, 1, 5, 24)", "(3, 24, 8)", "(5, 24)", "(24, 8)", "(2, 1)", "(2, 5, 24)"},
    },
    "02_embedding": {ASKED: {"(0, 0.5, 0, 0.5)"}},
    "03_positional_encoding": {ASKED: {"(0.6, 0.3, 0.5)"}},
    "06_multi_head_attention": {OTHERS: {"(out, in)"}},
    "09_feed_forward": {OTHERS: {"(out, in)"}, ASKED: {"(2, 7, 5, 24)"}},
    "18_decoder_only": {ASKED: {"-100"}},
    "workshop/12_transformer": {PAPER: {"6.9"}, UNSHOWN: {"-2"}},
    "13_training": {ASKED: {"0.5"}},
    "workshop/15_same_as_pytorch": {
        UNSHOWN: {f"({axes})" for axes in ("batch, 1, 1, key", "batch, key", "1, 1, query, key")},
        OTHERS: {"(batch, head, query, key)"},
    },
    "a3_notes_corrected": {
        OTHERS: {
            "(1024, 68)",
            "(2, 3, 68)",
            "(2, 4, 512)",
            "(batch, seq, 1)",
            "(batch, seq, d_ff)",
            "(batch, seq, d_model)",
            "(batch, head, seq, seq)",
            "(batch, head, tgt, tgt)",
        },
    },
}


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the code cells."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook: NotebookNode) -> str:
    """Return all markdown."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def headings(notebook: NotebookNode, level: str = "#+") -> list[str]:
    """Return the headings in order."""
    return re.findall(rf"^{level} +(.+?)\s*$", prose(notebook), re.M)


def text_of(output: NotebookNode) -> str:
    """Return the text of an output."""
    return output.get("text", "") or output.get("data", {}).get("text/plain", "")


def name_of(path: Path) -> str:
    """Return the name of a page, such as "04_attention" or "workshop/04_attention"."""
    folder = path.parent.name
    return f"{folder}/{path.stem}" if folder in ("workshop", BY_HAND) else path.stem


def general_problems(notebook: NotebookNode, path: Path) -> list[str]:
    """Apply the rules for every page."""
    rules = (_ran, _cells, _figures, _metadata, _markup, _numbers, _shapes)
    return [line for rule in rules for line in rule(notebook, path)]


def _ran(notebook: NotebookNode, path: Path) -> Iterator[str]:
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if not counts:
        yield "no code cell"
    if counts != list(range(1, len(counts) + 1)):
        yield f"execution counts are {counts}, not 1 to {len(counts)}: not run from top to bottom"


def _cells(notebook: NotebookNode, path: Path) -> Iterator[str]:
    for number, cell in enumerate(code_cells(notebook), 1):
        lines = len(cell.source.splitlines())
        most = MAX_FIRST if number == 1 else MAX_LINES
        if lines > most:
            yield f"code cell {number} has {lines} lines, at most {most}"
        if number == 1 and not INSTALLS.search(cell.source):
            yield "code cell 1 does not install the course where it is missing"
        if _owes_output(cell.source) and not cell.outputs:
            yield f"code cell {number} should have an output and has none"
        for name, pattern in FORBIDDEN.items():
            if pattern.search(cell.source):
                yield f"code cell {number} holds {name}"
        if any("nbval" in tag for tag in cell.metadata.get("tags", [])):
            yield f"code cell {number} has a tag of nbval"
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                yield f"code cell {number} stores an error or stderr"
            volatile = VOLATILE.search(text_of(output))
            if volatile:
                yield f"code cell {number} prints {volatile[0]!r}, which depends on the machine"


def _owes_output(code: str) -> bool:
    """Return whether a cell should have output, from print or a final expression."""
    body = ast.parse(code).body
    run = [node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = {
        node.func.id
        for node in ast.walk(ast.Module(run, []))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    shows = body and isinstance(body[-1], ast.Expr) and not _returns_nothing(body[-1].value)
    return bool(names & {"print", "expect"} or shows)


def _returns_nothing(value: ast.expr) -> bool:
    """Return whether an expression is a call that returns None, such as set_default_dtype."""
    name = value.func.attr if isinstance(value, ast.Call) and hasattr(value.func, "attr") else ""
    silent = ("set_default_dtype", "set_default_device", "set_num_threads", "backward", "language")
    return name in silent


def _figures(notebook: NotebookNode, path: Path) -> Iterator[str]:
    for number, cell in enumerate(code_cells(notebook), 1):
        for place, output in enumerate(cell.outputs):
            data = output.get("data", {})
            picture = stored(data)
            if not picture:
                if any(kind.startswith("image/") for kind in data) or re.match(
                    "<(img|svg)", data.get("text/html", "")
                ):
                    yield f"code cell {number}: the picture is no SVG in an <img>"
                continue
            after = cell.outputs[place + 1 : place + 2]
            if not after or not re.search(r"\S", text_of(after[0])):
                yield f"code cell {number}: no printed summary follows the picture"


def _metadata(notebook: NotebookNode, path: Path) -> Iterator[str]:
    if set(notebook.metadata) != {"kernelspec", "language_info"}:
        yield f"notebook metadata {sorted(notebook.metadata)}: run make notebooks"
    if path.exists() and path.stat().st_size > MAX_BYTES:
        yield f"{path.stat().st_size} bytes, at most {MAX_BYTES}"
    if "version" in notebook.metadata.get("language_info", {}):
        yield "the metadata name a Python version: run make notebooks"
    ids = [cell.id for cell in notebook.cells]
    if len(set(ids)) < len(ids):
        yield "two cells have the same id"


def _markup(notebook: NotebookNode, path: Path) -> Iterator[str]:
    text = prose(notebook)
    if re.search(r"!\[|<img|```mermaid|:::", text):
        yield "the prose holds an image or markup that not every page renders"
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if target.startswith("http") or not (path.parent / target).exists():
            yield f"a link leads to {target}, which is not in the project"
    if text.count("<details>") != text.count("</details>"):
        yield "a <details> is not closed"


def _numbers(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Find decimal or negative numbers in the prose that appear in no code cell and no output."""
    values = {float(number) for number, _ in _signed(_shown(notebook))}
    for number, before in _signed(prose(notebook)):
        # `a - 0.5` may subtract what was printed as -0.5.
        found = {float(number), -float(number) if OPERATOR.search(before) else float(number)}
        counts = not ("." in number or number.startswith("-")) or NAMED.search(before)
        if not counts and not found & values and number not in _allowed(path):
            yield f"the prose says {number}, which is in no cell and in no output"


def _shapes(notebook: NotebookNode, path: Path) -> Iterator[str]:
    """Find shapes in the prose that appear in no code cell and no output."""
    shown, said = _shown(notebook), prose(notebook)
    # exercise_rules.py compares the contracts word for word.
    for contract in sorted(CONTRACTS, key=len, reverse=True):
        said = said.replace(f"`{contract}`", "")
    axes = _row(shown) + _row(re.sub(r"(?<![\w.])\d+(?![\w.])", " ", shown))
    sizes = {_row(inside) for inside in LISTED.findall(re.sub(r"\w+=(?=\d)", "", shown))}
    for whole, inside in TUPLE.findall(said):
        parts = re.split(r"\s*,\s*", inside.strip(" ,"))
        if len(parts) < 2 or not all(part in AXES or SIZE.fullmatch(part) for part in parts):
            continue
        found = _row(inside) in (axes if AXES.intersection(parts) else sizes)
        if not found and whole not in _allowed(path):
            yield f"the prose says {whole}, which is in no cell and in no output"


def _shown(notebook: NotebookNode) -> str:
    """Return the code and its printed output."""
    cells = code_cells(notebook)
    return "\n".join(text for cell in cells for text in (cell.source, *map(text_of, cell.outputs)))


def _allowed(path: Path) -> set[str]:
    return set().union(*SAID_ONLY.get(name_of(path), {}).values())


def _signed(text: str) -> Iterator[tuple[str, str]]:
    """Yield each signed number in a text, with the text that precedes it."""
    text = re.sub(r"(?<=[\w)\]}])(?<!\de)-(?=[\d.])", " - ", text.replace("−", "-"))
    for found in NUMBER.finditer(text):
        yield found[0], text[max(0, found.start() - 12) : found.start()]


def _row(text: str) -> str:
    """Join the words and numbers of a text with spaces, whatever the notation of a shape."""
    words = re.findall(r"-?\d+\.\d*|[\w-]+", text.replace("−", "-"))
    return f" {' '.join(re.sub(r'[.]0*$', '', word) for word in words)} "
