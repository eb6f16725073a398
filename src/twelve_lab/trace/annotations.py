"""The annotations of a piece of code: its annotated parameters and assignments.

The annotation `scores: Float[Tensor, "batch head query key"] = ...` is read from the source, so the
code that runs is the code that was written and nothing is added to it.
"""

import ast
import linecache
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType

import twelve

# The layers, which are traced, and the lab, which is not.
PACKAGE = Path(twelve.__file__).resolve().parent
LAB = Path(__file__).resolve().parent.parent
DTYPES = ("Float", "Int", "Bool", "Num", "Real", "Inexact", "Integer", "Shaped", "Complex")
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


@dataclass(frozen=True)
class Assignment:
    """One annotated assignment: where it stands, the variable it binds, its axes and its code."""

    name: str
    axes: str
    first_line: int
    last_line: int
    code: str = ""

    def holds(self, line: int) -> bool:
        """Tell whether a line belongs to the statement."""
        return self.first_line <= line <= self.last_line


@dataclass(frozen=True)
class Annotated:
    """The annotations of one function, or of the top level of one notebook cell."""

    parameters: dict[str, str] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()

    def at(self, line: int) -> tuple[Assignment, ...]:
        """Return the annotated assignments that a line belongs to: one, but for semicolons."""
        return tuple(found for found in self.assignments if found.holds(line))


NOTHING = Annotated()


def annotated(code: CodeType) -> Annotated:
    """Read the annotations of a code object from its source.

    Args:
        code: The code of a function or of a notebook cell.

    Returns:
        Its annotations, empty for code of an installed library other than this package and for
        code whose source is not known.
    """
    if not is_traced(code.co_filename):
        return NOTHING
    # Looked up by text, not by code object: two cells that differ in nothing but an annotation
    # compile to equal code.
    found = _read(code.co_filename, "".join(linecache.getlines(code.co_filename)))
    for first, last, annotations in found.get(code.co_qualname, ()):
        if first <= code.co_firstlineno <= last:
            return annotations
    return NOTHING


@cache
def is_traced(filename: str) -> bool:
    """Tell whether a file is this package's or the learner's own, not a library's or generated."""
    if not linecache.getlines(filename):
        return False
    path = Path(filename)
    if path.is_relative_to(PACKAGE):
        return True
    if path.is_relative_to(LAB):
        return False
    paths = sysconfig.get_paths()
    libraries = (paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"])
    return not any(path.is_relative_to(library) for library in libraries)


@cache
def _read(filename: str, source: str) -> dict[str, list[tuple[int, int, Annotated]]]:
    try:
        tree = ast.parse(source, filename)
    except SyntaxError:  # a notebook cell with a magic: it still runs, transformed
        return {}
    found: dict[str, list[tuple[int, int, Annotated]]] = {}
    _visit(tree, "", found)
    found["<module>"] = [(0, len(source), Annotated({}, _assignments(tree)))]
    return found


def _visit(
    parent: ast.AST, prefix: str, found: dict[str, list[tuple[int, int, Annotated]]]
) -> None:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = prefix + node.name
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            entry = (first, node.end_lineno or first, _function(node))
            found.setdefault(name, []).append(entry)
            _visit(node, f"{name}.<locals>.", found)
        elif isinstance(node, ast.ClassDef):
            _visit(node, f"{prefix}{node.name}.", found)
        else:
            _visit(node, prefix, found)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Annotated:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    parameters = {argument.arg: _axes(argument.annotation) for argument in arguments}
    known = {name: axes for name, axes in parameters.items() if axes is not None}
    return Annotated(known, _assignments(node))


def _assignments(scope: ast.AST) -> tuple[Assignment, ...]:
    """Collect a scope's own annotated assignments, not those of the functions inside it."""
    found: list[Assignment] = []
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, _Scope):
            continue
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            axes = _axes(node.annotation)
            if axes is not None:
                last = node.end_lineno or node.lineno
                code = ast.unparse(node.value)
                found.append(Assignment(node.target.id, axes, node.lineno, last, code))
        waiting.extend(ast.iter_child_nodes(node))
    return tuple(found)


def _axes(annotation: ast.AST | None) -> str | None:
    """Return the axes of `Float[Tensor, "axes"]`, also inside `... | None`."""
    for node in ast.walk(annotation) if annotation is not None else ():
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
            continue
        dtype = node.value.attr if isinstance(node.value, ast.Attribute) else None
        dtype = node.value.id if isinstance(node.value, ast.Name) else dtype
        last = node.slice.elts[-1]
        if dtype in DTYPES and isinstance(last, ast.Constant) and isinstance(last.value, str):
            return last.value
    return None
