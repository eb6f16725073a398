"""Write the solution of an exercise into its answer cell: a notebook itself holds none.

A solution is the right answer of the checker, or what `solved` declares beside it, with the names
of the cell. What it needs and the page lacks, it imports itself.
"""

import ast
import builtins
import copy
import inspect
import textwrap
from collections.abc import Callable, Collection
from typing import Any

import twelve
from twelve_lab.check.diagnose import exercise
from twelve_lab.check.prediction import computed
from twelve_lab.exercises.declare import Prediction, Question

# The line of an answer cell that waits for an answer.
STUB = "# Your answer goes here."
# What begins and ends a solution for nbgrader, which puts the line above in its place.
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"

_Named = ast.FunctionDef | ast.ClassDef


def solution(id: str, stub: str, given: Collection[str] = (), *, marked: bool = False) -> str:
    """Solve an exercise in its answer cell.

    Args:
        id: The exercise.
        stub: The source of the cell, whose last line is `STUB`.
        given: Names that the page has by then.
        marked: Whether the solution stands between the marks of nbgrader.

    Raises:
        ValueError: If there is no such exercise, the cell does not wait for an answer to it, or
            the solution needs what no page has.
    """
    asked = exercise(id)
    *before, last = stub.rstrip().split("\n")
    if last.strip() != STUB or STUB in "".join(before):
        raise ValueError(f"{id}: the answer does not end in the one line {STUB!r}")
    indent = last.removesuffix(STUB)
    cell = ast.parse("\n".join([*before, f"{indent}..."])).body
    if isinstance(asked, Question):
        lines = _value(asked, cell, set(given))
    else:
        lines = _definition(asked.solved or asked.right, cell, set(given))
    if marked:
        lines = [indent + BEGIN, *lines, indent + END]
    return "\n".join([*before, *lines])


def _value(question: Question, cell: list[ast.stmt], given: set[str]) -> list[str]:
    """Give the name that the cell gives to the answer its value."""
    named = [one.targets[0] for one in cell if isinstance(one, ast.Assign)]
    if not named:
        raise ValueError(f"{question.name}: the cell gives no name to what is asked")
    value = question.worked or _written(question, computed(question.right))
    imported = _imports(ast.parse(value), question.right, given)
    return [*imported, f"{ast.unparse(named[-1])} = {value}"]


def _written(question: Question, value: Prediction) -> str:
    """Write a value as exactly as it is asked for."""
    if isinstance(value, frozenset):
        chosen = (f'"{one}"' for one in question.options if one in value)
        return f"{{{', '.join(chosen)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_written(question, one) for one in value)}]"
    if isinstance(value, float):
        value = round(value, question.decimals)
        return str(int(value) if value.is_integer() else value)
    return repr(value)


def _definition(answer: Callable[..., Any], cell: list[ast.stmt], given: set[str]) -> list[str]:
    """Write what is missing of the function or the class that a cell begins."""
    begun = [one for one in cell if isinstance(one, _Named)]
    source = textwrap.dedent(inspect.getsource(answer))
    written = ast.parse(source).body[0]
    if not begun or type(begun[-1]) is not type(written):
        raise ValueError(f"{answer.__name__}: the cell begins nothing of its kind")
    if isinstance(written, ast.FunctionDef):
        return _body(answer, source, written, begun[-1], given)
    methods = {one.name: one for one in begun[-1].body if isinstance(one, ast.FunctionDef)}
    given |= {begun[-1].name, "nn"}
    lines: list[str] = []
    for one in written.body:
        if not isinstance(one, ast.FunctionDef):
            raise ValueError(f"{answer.__name__} holds more than methods: declare one by `solved`")
        head = methods.get(one.name) or _bare(one, indent=4)
        if one.name not in methods:
            lines += [""] * bool(lines) + ["    " + ast.unparse(head).splitlines()[0]]
        lines += _body(answer, source, one, head, given)
    return lines


def _bare(method: ast.FunctionDef, indent: int) -> ast.FunctionDef:
    """Take the body away from a method."""
    bare = copy.deepcopy(method)
    bare.body, bare.col_offset = [], indent
    return bare


def _body(
    answer: Callable[..., Any],
    source: str,
    written: ast.FunctionDef,
    begun: ast.FunctionDef,
    given: set[str],
) -> list[str]:
    """Write the lines of a function that the cell does not have, with the names of the cell."""
    names = {written.name: begun.name} | _renamed(source, written, begun)
    # Of what the cell begins, the docstring and the dots that wait are not in the answer.
    have = [one for one in begun.body if not _is_text(one)]
    rest = [one for one in written.body if not _is_text(one)][len(have) :]
    lines = source.splitlines()
    for one in sorted(
        (node for part in rest for node in ast.walk(part) if isinstance(node, ast.Name)),
        key=lambda node: (node.lineno, node.col_offset),
        reverse=True,
    ):
        line, new = lines[one.lineno - 1], names.get(one.id, one.id)
        lines[one.lineno - 1] = line[: one.col_offset] + new + line[one.end_col_offset :]
    text = textwrap.dedent("\n".join(lines[rest[0].lineno - 1 : rest[-1].end_lineno]))
    known = given | {
        begun.name,
        *(one.arg for one in ast.walk(begun.args) if isinstance(one, ast.arg)),
    }
    text = "\n".join([*_imports(ast.parse(text), answer, known), text])
    return textwrap.indent(text, " " * (begun.col_offset + 4)).split("\n")


def _renamed(source: str, written: ast.FunctionDef, begun: ast.FunctionDef) -> dict[str, str]:
    """Say how the cell calls the arguments; a switch of ours has its usual value there."""
    ours, theirs = written.args, begun.args
    if len(ours.args) != len(theirs.args):
        raise ValueError(
            f"{begun.name} takes {len(theirs.args)} arguments in the cell, and {written.name}, "
            f"which solves it, takes {len(ours.args)}"
        )
    names = {one.arg: other.arg for one, other in zip(ours.args, theirs.args, strict=True)}
    for one, usual in zip(ours.kwonlyargs, ours.kw_defaults, strict=True):
        names[one.arg] = ast.get_source_segment(source, usual)
    return names


def _imports(tree: ast.AST, answer: Callable[..., Any], known: set[str]) -> list[str]:
    """Import what some lines use and a page lacks.

    A name that `twelve` exports means what it exports, whatever the file of the exercises calls so.
    """
    names = [one for one in ast.walk(tree) if isinstance(one, ast.Name)]
    own = {one.id for one in names if not isinstance(one.ctx, ast.Load)}
    own |= {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    used = dict.fromkeys(one.id for one in names if isinstance(one.ctx, ast.Load))
    ours = _imported(answer)
    lines = []
    for name in used:
        if name in own | known or hasattr(builtins, name):
            continue
        if name not in ours:
            raise ValueError(
                f"{answer.__name__} uses {name}, which no page has: declare a solution by `solved`"
            )
        lines.append(ours[name])
    return sorted(lines)


def _imported(answer: Callable[..., Any]) -> dict[str, str]:
    """Give the import of each name that a file of exercises imports from elsewhere."""
    found = {}
    for one in ast.parse(inspect.getsource(inspect.getmodule(answer))).body:
        if isinstance(one, ast.ImportFrom | ast.Import):
            for alias in one.names:
                alone = copy.copy(one)
                alone.names = [alias]
                found[alias.asname or alias.name] = ast.unparse(alone)
    found = {name: line for name, line in found.items() if "twelve_lab" not in line}
    return found | {name: f"from twelve import {name}" for name in twelve.__all__}


def _is_text(statement: ast.stmt) -> bool:
    """Tell a docstring and the dots that wait from what does something."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
