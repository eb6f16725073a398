"""The source of a layer as it stands in the package, without its docstrings."""

import ast
import html
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from twelve_lab import exercises


@dataclass(frozen=True)
class Source:
    """A piece of source text, printed as it is.

    Args:
        text: The lines.
    """

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<pre style="font-family:monospace">{html.escape(self.text)}</pre>'


def source(thing: type | Callable[..., object]) -> Source:
    """Read the source of a class, method or function from its file.

    Args:
        thing: What to show.

    Returns:
        Its lines without docstrings; comments stay.

    Raises:
        OSError: If the source is not known.
    """
    text = textwrap.dedent(inspect.getsource(thing))
    lines = text.splitlines()
    for node in reversed(_docstrings(ast.parse(text))):
        del lines[node.lineno - 1 : node.end_lineno]
        if node.lineno - 1 < len(lines) and not lines[node.lineno - 1].strip():
            del lines[node.lineno - 1]
    if getattr(thing, "__module__", "").startswith(f"{exercises.__name__}."):
        # What declares an exercise is no part of the answer to it.
        lines = lines[ast.parse(text).body[0].lineno - 1 :]
    return Source("\n".join(lines).rstrip())


def _docstrings(tree: ast.AST) -> list[ast.Expr]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            found.append(node.body[0])
    return sorted(found, key=lambda node: node.lineno)
