"""Fill the answer cell of an exercise with its solution: the stored notebooks contain none.

A solution is the right answer of the checker, or the answer that `solved` declares, with the names
of the cell. It imports every name that the notebook lacks.
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
from twelve_lab.exercises.edit import replace_node

# The placeholder line of an answer cell.
STUB = "# Your answer goes here."
# nbgrader replaces the code between these marks with the line above.
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"

_Named = ast.FunctionDef | ast.ClassDef


def solution(id: str, stub: str, given: Collection[str] = (), *, marked: bool = False) -> str:
    """Fill the answer cell of an exercise with its solution.

    Args:
        id: Id of the exercise.
        stub: The source of the cell, whose last line is `STUB`.
        given: Names that earlier cells of the notebook define.
        marked: Whether to put the solution between the marks of nbgrader.

    Raises:
        ValueError: If there is no such exercise, the cell is not its answer cell, or the solution
            uses a name that cannot be imported.
    """
    asked = exercise(id)
    *before, last = stub.rstrip().split("\n")
    if last.strip() != STUB or STUB in "".join(before):
        raise ValueError(f"{id}: the answer cell must end with the only line {STUB!r}")
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
    """Assign the answer to the last variable that the cell assigns."""
    targets = [statement.targets[0] for statement in cell if isinstance(statement, ast.Assign)]
    value = question.worked or _written(question, computed(question.right))
    imported = _imports(ast.parse(value), question.right, given)
    return [*imported, f"{ast.unparse(targets[-1])} = {value}"]


def _written(question: Question, value: Prediction) -> str:
    """Format a value with the precision that the question asks for."""
    if isinstance(value, frozenset):
        chosen = (f'"{option}"' for option in question.options if option in value)
        return f"{{{', '.join(chosen)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_written(question, part) for part in value)}]"
    if isinstance(value, float):
        value = round(value, question.decimals)
        return str(int(value) if value.is_integer() else value)
    return repr(value)


def _definition(answer: Callable[..., Any], cell: list[ast.stmt], given: set[str]) -> list[str]:
    """Return the missing lines of the function or class that a cell begins."""
    begun = [statement for statement in cell if isinstance(statement, _Named)]
    source = textwrap.dedent(inspect.getsource(answer))
    written = ast.parse(source).body[0]
    if not begun or type(begun[-1]) is not type(written):
        kind = "function" if isinstance(written, ast.FunctionDef) else "class"
        raise ValueError(f"{answer.__name__}: the answer cell must begin a {kind}")
    if isinstance(written, ast.FunctionDef):
        return _body(answer, source, written, begun[-1], given)
    methods = {node.name: node for node in begun[-1].body if isinstance(node, ast.FunctionDef)}
    given |= {begun[-1].name, "nn"}
    lines: list[str] = []
    for method in written.body:
        if _is_text(method):
            continue
        if not isinstance(method, ast.FunctionDef):
            name = answer.__name__
            raise ValueError(f"{name} has more than methods: declare a solution by `solved`")
        head = methods.get(method.name)
        if head is None:
            head = copy.copy(method)
            head.body, head.col_offset = [], 4
            lines += [""] * bool(lines) + ["    " + ast.unparse(head).splitlines()[0]]
        lines += _body(answer, source, method, head, given)
    return lines


def _body(
    answer: Callable[..., Any],
    source: str,
    written: ast.FunctionDef,
    begun: ast.FunctionDef,
    given: set[str],
) -> list[str]:
    """Return the lines that the cell lacks, with the argument names of the cell."""
    names = {written.name: begun.name} | _renamed(source, written, begun)
    # The docstring and the dots of the cell are not part of the answer.
    skip = sum(not _is_text(statement) for statement in begun.body)
    rest = [statement for statement in written.body if not _is_text(statement)][skip:]
    nodes = [node for part in rest for node in ast.walk(part) if isinstance(node, ast.Name)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        source = replace_node(source, node, names.get(node.id, node.id))
    lines = source.splitlines()
    text = textwrap.dedent("\n".join(lines[rest[0].lineno - 1 : rest[-1].end_lineno]))
    arguments = {node.arg for node in ast.walk(begun.args) if isinstance(node, ast.arg)}
    imports = _imports(ast.parse(text), answer, given | {begun.name} | arguments)
    return textwrap.indent("\n".join([*imports, text]), " " * (begun.col_offset + 4)).split("\n")


def _renamed(source: str, written: ast.FunctionDef, begun: ast.FunctionDef) -> dict[str, str]:
    """Map our argument names to those of the cell, and keyword-only names to their defaults."""
    ours, theirs = written.args, begun.args
    names = {old.arg: new.arg for old, new in zip(ours.args, theirs.args, strict=True)}
    for switch, default in zip(ours.kwonlyargs, ours.kw_defaults, strict=True):
        names[switch.arg] = ast.get_source_segment(source, default)
    return names


def _imports(tree: ast.AST, answer: Callable[..., Any], known: set[str]) -> list[str]:
    """Return import lines for the names that a solution uses and the notebook lacks.

    A name that `twelve` exports refers to that export, even if the exercises define it too.
    """
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    used = dict.fromkeys(node.id for node in names if isinstance(node.ctx, ast.Load))
    available = _imported(answer)
    lines = []
    for name in used:
        if name in own | known or hasattr(builtins, name):
            continue
        if name not in available:
            raise ValueError(
                f"{answer.__name__} uses {name}, which no notebook can import: declare a solution "
                "by `solved`"
            )
        lines.append(available[name])
    return sorted(lines)


def _imported(answer: Callable[..., Any]) -> dict[str, str]:
    """Map each name that the file of an answer imports, or `twelve` exports, to an import line."""
    lines = {}
    for node in ast.parse(inspect.getsource(inspect.getmodule(answer))).body:
        if isinstance(node, ast.ImportFrom | ast.Import):
            for alias in node.names:
                single = copy.copy(node)
                single.names = [alias]
                lines[alias.asname or alias.name] = ast.unparse(single)
    lines = {name: line for name, line in lines.items() if "twelve_lab" not in line}
    return lines | {name: f"from twelve import {name}" for name in twelve.__all__}


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring or `...`."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
