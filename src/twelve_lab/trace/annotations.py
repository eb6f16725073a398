"""The annotations of a piece of code: its annotated parameters and assignments.

The annotation `scores: Float[Tensor, "batch head query key"] = ...` is read from the source, so
nothing is added to the code that runs.
"""

import ast
import linecache
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType

import torch

import twelve

# Folders of the layers, which are traced, and of the lab, which is not.
PACKAGE = Path(twelve.__file__).resolve().parent
LAB = Path(__file__).resolve().parent.parent
DTYPES = ("Float", "Int", "Bool", "Num", "Real", "Inexact", "Integer", "Shaped", "Complex")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Assignment:
    """One annotated assignment: its variable, axes, lines and right-hand side."""

    name: str
    axes: str
    first_line: int
    last_line: int
    code: str = ""


@dataclass(frozen=True)
class Annotated:
    """The annotations of one function, or of the top level of one notebook cell."""

    parameters: dict[str, str] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()

    def on_line(self, line: int) -> tuple[Assignment, ...]:
        """Return the assignments that include a line; semicolons allow several."""
        return tuple(a for a in self.assignments if a.first_line <= line <= a.last_line)


NOTHING = Annotated()


def annotated(code: CodeType) -> Annotated:
    """Read the annotations of a code object from its source.

    Args:
        code: Code object of a function or of a notebook cell.

    Returns:
        The annotations; empty for code of other installed libraries and for code without source.
    """
    if not is_traced(code.co_filename):
        return NOTHING
    # Keyed by source text: two cells that differ only in an annotation compile to equal code.
    functions = _read(code.co_filename, "".join(linecache.getlines(code.co_filename)))
    for name, first, last, annotations in functions:
        if name == code.co_qualname and first <= code.co_firstlineno <= last:
            return annotations
    return NOTHING


@cache
def is_traced(filename: str) -> bool:
    """Return whether a file contains layers or learner code, not library code."""
    # "<string>" names code from exec, although Python 3.13 caches `python -c` under it too.
    if filename == "<string>" or not linecache.getlines(filename):
        return False
    if _is_inside(filename, PACKAGE):
        return True
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    libraries = [Path(sysconfig.get_paths()[kind]) for kind in kinds]
    folders = (LAB, Path(torch.__file__).parent, *libraries)
    return not any(_is_inside(filename, folder) for folder in folders)


def _is_inside(filename: str, folder: Path) -> bool:
    """Compare paths with and without symbolic links, which may lead to the environment."""
    path = Path(filename)
    return path.is_relative_to(folder) or path.resolve().is_relative_to(folder.resolve())


@cache
def _read(filename: str, source: str) -> list[tuple[str, int, int, Annotated]]:
    """List the functions in a file: qualified name, first line, last line and annotations."""
    try:
        tree = ast.parse(source, filename)
    except SyntaxError:  # a notebook cell with a magic, which runs in a transformed form
        return []
    return [("<module>", 0, len(source), Annotated({}, _assignments(tree))), *_functions(tree, "")]


def _functions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, int, int, Annotated]]:
    for node in ast.iter_child_nodes(parent):
        inner = prefix
        if isinstance(node, _Function):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            axes = {argument.arg: _axes(argument.annotation) for argument in arguments}
            known = {name: its for name, its in axes.items() if its is not None}
            annotations = Annotated(known, _assignments(node))
            yield prefix + node.name, first, node.end_lineno or first, annotations
            inner = f"{prefix}{node.name}.<locals>."
        elif isinstance(node, ast.ClassDef):
            inner = f"{prefix}{node.name}."
        yield from _functions(node, inner)


def _assignments(scope: ast.AST) -> tuple[Assignment, ...]:
    """Collect the annotated assignments of a scope, excluding nested functions."""
    assignments: list[Assignment] = []
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, _Function | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            axes = _axes(node.annotation)
            if axes is not None:
                last = node.end_lineno or node.lineno
                code = ast.unparse(node.value)
                assignments.append(Assignment(node.target.id, axes, node.lineno, last, code))
        waiting.extend(ast.iter_child_nodes(node))
    return tuple(assignments)


def _axes(annotation: ast.AST | None) -> str | None:
    """Return the axes of `Float[Tensor, "axes"]`, also inside `... | None`."""
    for node in ast.walk(annotation) if annotation is not None else ():
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
            continue
        dtype = ast.unparse(node.value).rpartition(".")[2]
        last = node.slice.elts[-1]
        if dtype in DTYPES and isinstance(last, ast.Constant) and isinstance(last.value, str):
            return last.value
    return None
