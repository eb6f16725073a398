"""Helpers for notebook cells: show source text, expect an error."""

import ast
import html
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@contextmanager
def expect(kind: type[Exception]) -> Iterator[None]:
    """Print the error that the block raises, as `Kind: first line of the message`.

        with expect(RuntimeError):
            x - x.mean(-1)

    Args:
        kind: Type of the expected error.

    Raises:
        AssertionError: If the block raises nothing. An error of another type propagates.
    """
    try:
        yield
    except kind as error:
        lines = str(error).strip().splitlines()
        print(f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": "))
    else:
        raise AssertionError(f"the block was expected to raise {kind.__name__} and raised nothing")


@dataclass(frozen=True)
class Source:
    """A piece of source text, printed unchanged.

    Args:
        text: Source text.
    """

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<pre style="font-family:monospace">{html.escape(self.text)}</pre>'


def source(thing: type | Callable[..., object]) -> Source:
    """Read the source of a class, method or function from its file.

    Args:
        thing: Class, method or function to show.

    Returns:
        The source text without docstrings, but with comments.

    Raises:
        OSError: If the source is unavailable.
    """
    text = textwrap.dedent(inspect.getsource(thing))
    tree = ast.parse(text)
    lines = text.splitlines()
    for node in reversed(_docstrings(tree)):
        del lines[node.lineno - 1 : node.end_lineno]
        if node.lineno - 1 < len(lines) and not lines[node.lineno - 1].strip():
            del lines[node.lineno - 1]
    if getattr(thing, "__module__", "").startswith("twelve_lab.exercises."):
        # The decorators that declare an exercise are not part of its answer.
        lines = lines[tree.body[0].lineno - 1 :]
    return Source("\n".join(lines).rstrip())


def _docstrings(tree: ast.AST) -> list[ast.Expr]:
    docstrings = [
        node.body[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
    ]
    return sorted(docstrings, key=lambda node: node.lineno)
