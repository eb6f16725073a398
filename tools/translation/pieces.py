"""Find the translatable texts of a page, and replace them with translations.

A piece is a Markdown block (the lines between two blank lines), a string in a code cell that a
reader sees, or a comment. Code, formulas and numbers in a piece are not translated.
"""

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from typing import NamedTuple

from nbformat import NotebookNode

from tests.course.notebook_rules import AXES, CONTRACTS
from twelve_lab import example
from twelve_lab.check.solve import STUB

# Names that are the same in every language: axes, tensors, the vocabulary of the model.
NAMES = {*AXES, *re.findall(r"\w+", " ".join(example.words["vocab"])), "logits", "scores",
         "weights", "context", "bias", "token", "ids", "src_mask", "tgt_mask"}  # fmt: skip
# Single-word labels that a reader sees. Other single words are names.
LABELS = {"added", "after", "before", "built", "causal", "collected", "difference", "evaluation",
          "feed-forward", "filled", "multiplied", "nothing", "ours", "padding", "right", "rotated",
          "says", "self-attention", "sum", "theirs", "training"}  # fmt: skip
# Strings that look like sentences but are input to a model or a library.
READ_BY_CODE = re.compile(
    r"install -q |Once upon a time|The capital of France|What is a dogfish|<start> I have|"
    r"decoder\.layers|d_model q_k_v|^causal mask$|^feed-forward \d$|The capital of \{|"
    r"^France Germany|^Paris Berlin|The opposite of hot|^ cold$|"
    + re.escape(STUB.removeprefix("# "))
)
# Parts of a piece that are not translated.
FIXED = re.compile(
    r"```.*?```|`[^`\n]+`|\$\$.+?\$\$|\$[^$]+\$|</?\w+[^>]*>|(?<=\])\([^()\s]+\)|https?://\S+", re.S
)
WORD = re.compile(r"[A-Za-z][A-Za-z_]+")
SPECIFICATION = re.compile(r"[a-z_][\w*]*(?: [a-z_1][\w*]*)*")
LITERAL = re.compile(r"([A-Za-z]*)(\"\"\"|'''|\"|')(.*)\2", re.S)
PART = re.compile(r"[fF]?\"((?:[^\"\\]|\\.)*)\"")
DOCSTRING = 84  # columns, as in check.blank_page.blank


class Piece(NamedTuple):
    """A text in the source of a cell.

    Args:
        start: Start index in the source.
        end: End index in the source.
        text: Text to translate.
        note: Note for the translator.
        frame: Converts a translation to source code.
    """

    start: int
    end: int
    text: str
    note: str
    frame: Callable[[str], str] = str


def pieces(source: str, kind: str, looked_up: frozenset[str] = frozenset()) -> Iterator[Piece]:
    """Yield the pieces of a cell in order.

    Args:
        source: Source of the cell.
        kind: "markdown" or "code".
        looked_up: Strings that the page uses as keys.
    """
    unsorted = _markdown(source) if kind == "markdown" else _code(source, looked_up)
    return iter(sorted(unsorted))


def translated(
    source: str, kind: str, translate: Callable[[Piece], str], looked_up: frozenset[str]
) -> str:
    """Replace each piece with its translation."""
    for piece in reversed(list(pieces(source, kind, looked_up))):
        source = source[: piece.start] + piece.frame(translate(piece)) + source[piece.end :]
    return source


def has_words(text: str) -> bool:
    """Return whether a text contains words other than code, formulas and names."""
    return any(word not in NAMES for word in WORD.findall(FIXED.sub(" ", text)))


def fields(text: str) -> list[str]:
    """List the replacement fields of a format string, sorted."""
    found, depth, start = [], 0, 0
    for place, sign in enumerate(text.replace("{{", "  ").replace("}}", "  ")):
        if sign == "{":
            depth, start = depth + 1, start if depth else place
        elif sign == "}" and depth:
            depth -= 1
            if not depth:
                found.append(text[start : place + 1])
    return sorted(found)


def lookups(notebook: NotebookNode) -> frozenset[str]:
    """Return the strings that a notebook uses as keys or compares; these are not translated."""
    found = set()
    for cell in notebook.cells:
        for node in ast.walk(ast.parse(cell.source)) if cell.cell_type == "code" else ():
            if isinstance(node, ast.Subscript | ast.Compare):
                found |= {
                    part.value
                    for part in ast.walk(node.slice if isinstance(node, ast.Subscript) else node)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return frozenset(found)


def _markdown(source: str) -> Iterator[Piece]:
    place, fenced = 0, False
    for block in re.split(r"(\n\s*\n)", source):
        start, place = place, place + len(block)
        if block.count("```") % 2:
            fenced = not fenced
            continue
        text = block.strip("\n")
        start += len(block) - len(block.lstrip("\n"))
        if fenced or block.startswith("```"):
            continue
        if text.strip("`") in CONTRACTS and text.startswith("`"):
            yield Piece(start + 1, start + len(text) - 1, text.strip("`"), "contract")
        elif has_words(text):
            yield Piece(start, start + len(text), text, "")


def _code(source: str, looked_up: frozenset[str]) -> Iterator[Piece]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def position(line: int, column: int) -> int:
        text = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(text.encode()[:column].decode())

    # The contents of an f-string replacement field are code.
    inner = {
        part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node) if part is not node
    }  # fmt: skip
    for node in ast.walk(tree):
        is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (is_string or isinstance(node, ast.JoinedStr)) and node not in inner:
            start = position(node.lineno, node.col_offset)
            end = position(node.end_lineno, node.end_col_offset)
            if piece := _string(node, source, start, end, looked_up):
                yield piece
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.removeprefix("#").strip()
        if token.type == tokenize.COMMENT and has_words(text) and not READ_BY_CODE.search(text):
            end = starts[token.end[0] - 1] + token.end[1]
            yield Piece(end - len(text), end, text, "comment")


def _string(
    node: ast.expr, source: str, start: int, end: int, looked_up: frozenset[str]
) -> Piece | None:
    literal = LITERAL.fullmatch(source[start:end])
    if literal is None:
        return None
    prefix, quote, text = literal.groups()
    note = textwrap.shorten(source.splitlines()[node.lineno - 1], 120)
    if _is_docstring(node):
        contract = " ".join(text.split())
        if contract in CONTRACTS:
            indent = " " * node.col_offset
            frame = lambda words: _wrapped(words, indent)  # noqa: E731
            return Piece(start + len(quote), end - len(quote), contract, "contract", frame)
        return Piece(start + len(quote), end - len(quote), text, "docstring")
    if not _is_read(node, text, looked_up):
        return None
    if "\n" in text and len(quote) == 1:  # adjacent literals are concatenated
        text = "".join(PART.findall(source[start:end]))
        prefix = "f" if isinstance(node, ast.JoinedStr) else ""
        return Piece(start, end, text, note, lambda words: f'{prefix}"{words}"')
    begin = start + len(prefix) + len(quote)
    return Piece(begin, begin + len(text), text, note)


def _wrapped(contract: str, indent: str) -> str:
    """Wrap a contract like check.blank_page.blank, which includes the quotes in the width."""
    from twelve_lab.show.wide import wrap

    lines = wrap(f'"""{contract}"""', DOCSTRING)
    return f"\n{indent}".join(lines)[3:-3]


def _is_docstring(node: ast.expr) -> bool:
    statement = node.parent
    holder = getattr(statement, "parent", None)
    is_definition = isinstance(holder, ast.FunctionDef | ast.ClassDef)
    return isinstance(statement, ast.Expr) and is_definition and holder.body[0] is statement


def _is_read(node: ast.expr, text: str, looked_up: frozenset[str]) -> bool:
    """Return whether a reader sees a string, judged by how the code uses it."""
    plain = text
    for field in fields(text) if isinstance(node, ast.JoinedStr) else ():
        plain = plain.replace(field, " ")
    if not has_words(plain) or READ_BY_CODE.search(text) or text in looked_up:
        return False
    holder = node.parent
    if isinstance(holder, ast.Subscript | ast.Compare):
        return False
    if isinstance(holder, ast.keyword) and holder.arg in ("title", "x_label", "y_label"):
        return True
    if isinstance(holder, ast.Assign) and getattr(holder.targets[0], "id", "") == "title":
        return True
    if isinstance(holder, ast.Call):
        name = getattr(holder.func, "id", getattr(holder.func, "attr", ""))
        return name == "print" or (" " in text and not SPECIFICATION.fullmatch(text))
    if isinstance(node, ast.JoinedStr):
        return True
    if text in LABELS and isinstance(holder, ast.List | ast.Tuple | ast.Dict | ast.IfExp):
        is_axis = isinstance(holder.parent, ast.keyword) and node in getattr(holder, "keys", ())
        return not is_axis
    if isinstance(holder, ast.List | ast.Tuple | ast.Dict):
        listed = holder.keys if isinstance(holder, ast.Dict) else holder.elts
        if node not in listed:
            listed = [node]
        words = [each.value for each in listed if isinstance(each, ast.Constant)]
        return any(isinstance(word, str) and " " in word and has_words(word) for word in words)
    return " " in text
