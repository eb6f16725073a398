"""Mutation operators: small changes to Python code that a test should detect.

A mutation replaces one expression or statement. Annotations, docstrings, error messages, f-strings
and imports stay as they are: changing them changes no behaviour, or breaks every import.
"""

import ast
from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

from twelve_lab.exercises.edit import replace_node

OPERATORS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
PAIRS = (
    ("min", "max"), ("amin", "amax"), ("any", "all"), ("zeros", "ones"), ("zeros_", "ones_"),
    ("sin", "cos"), ("triu", "tril"), ("floor", "ceil"), ("float32", "float64"),
    ("startswith", "endswith"), ("argmin", "argmax"), ("sum", "mean"), ("bool", "int"),
)  # fmt: skip
NAMES = dict(PAIRS) | {right: left for left, right in PAIRS}
# Calls to remove: x.detach() and sorted(x) become x.
METHODS = {
    "detach", "clone", "contiguous", "to", "float", "double", "cpu", "transpose", "unsqueeze",
    "flatten", "masked_fill", "expand", "reshape", "strip", "lower", "items", "copy", "abs",
}  # fmt: skip
FUNCTIONS = {"abs", "sorted", "reversed", "tuple", "list", "set", "round", "float", "str"}
# Swapping the arguments of these calls changes nothing.
SYMMETRIC = {"transpose", "min", "max", "minimum", "maximum", "equal", "gcd"}
# Every test fails without these decorators.
NEEDED = {"property", "staticmethod", "classmethod", "dataclass", "overload", "setter"}
REMOVED = (ast.Raise, ast.AugAssign, ast.Continue, ast.Break, ast.Delete)
LEFT_ALONE = ("annotation", "returns", "decorator_list", "bases")
Change = tuple[ast.AST, str]


class Mutation(NamedTuple):
    """One changed expression or statement.

    Args:
        line: One-based number of its first line.
        old: The code before the change.
        new: The code after the change.
        text: The whole file after the change.
    """

    line: int
    old: str
    new: str
    text: str


def mutations(source: str) -> list[Mutation]:
    """List all mutations of a file, ordered by position."""
    changes = [change for node in _walk(ast.parse(source)) for change in _changes(node)]
    changes.sort(key=lambda change: (change[0].lineno, change[0].col_offset, change[1]))
    return [
        Mutation(node.lineno, ast.unparse(node), new, replace_node(source, node, new))
        for node, new in changes
    ]


def is_another(source: str, text: str) -> bool:
    """Return whether a mutated file still parses, and to a different syntax tree."""
    try:
        return ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in LEFT_ALONE and not _left_alone(child):
                yield from _walk(child)


def _left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    exported = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    # Zipped sequences always have equal lengths, so changing `strict` has no effect.
    strict = isinstance(node, ast.keyword) and node.arg == "strict"
    words = isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom)
    return docstring or exported or strict or words


def _with(node: ast.AST, **fields: object) -> str:
    """Return the source of a node with some fields replaced."""
    other = copy(node)
    vars(other).update(fields)
    return f"({ast.unparse(other)})"


def _without(parts: list, index: int) -> list:
    return [*parts[:index], *parts[index + 1 :]]


def _changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                other = OPERATORS[type(operator)]()
                yield node, _with(node, ops=[*node.ops[:index], other, *node.ops[index + 1 :]])
        case ast.BinOp(op=ast.MatMult()):
            yield node, _with(node, left=node.right, right=node.left)
        case ast.BinOp() if type(node.op) in OPERATORS:
            yield node, _with(node, op=OPERATORS[type(node.op)]())
        case ast.BoolOp():
            yield node, _with(node, op=OPERATORS[type(node.op)]())
            for index in range(len(node.values)):
                yield node, _with(node, values=_without(node.values, index))
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            if not isinstance(node.operand, ast.Constant):
                yield node, f"({ast.unparse(node.operand)})"
        case ast.If() | ast.IfExp() | ast.While():
            # Other mutations cover `not` and comparisons.
            if not isinstance(node.test, ast.UnaryOp | ast.Compare):
                yield node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.comprehension():
            yield from ((test, "True") for test in node.ifs)
        case ast.Constant(value=bool()):
            yield node, repr(not node.value)
        case ast.Constant(value=int()):
            yield node, repr(node.value + 1)
            if node.value > 0:
                yield node, repr(node.value - 1)
        case ast.Constant(value=float()):
            yield node, repr(node.value * 2 if node.value else 1.0)
        case ast.Name(ctx=ast.Load()) if node.id in NAMES:
            yield node, NAMES[node.id]
        case ast.Attribute() if node.attr in NAMES:
            yield node, _with(node, attr=NAMES[node.attr])
        case ast.Attribute(attr="mT" | "T"):
            yield node, f"({ast.unparse(node.value)})"
        case ast.Call():
            yield from _changes_of_call(node)
        case ast.FunctionDef():
            for decorator in node.decorator_list:
                names = {each.id for each in ast.walk(decorator) if isinstance(each, ast.Name)}
                if not names & NEEDED and not ast.unparse(decorator).endswith("setter"):
                    yield decorator, "(lambda same: same)"
        case ast.Expr(value=ast.Call()):
            yield node, "pass"
        case ast.Assign() | ast.AnnAssign():
            # Drop an assignment that reads its own target, such as x = norm(x).
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            used = {ast.unparse(each) for each in ast.walk(node.value)} if node.value else set()
            if {ast.unparse(target) for target in targets} & used:
                yield node, "pass"
        case _ if isinstance(node, REMOVED):
            yield node, "pass"


def _changes_of_call(node: ast.Call) -> Iterator[Change]:
    name, arguments = ast.unparse(node.func).rpartition(".")[2], node.args
    if isinstance(node.func, ast.Attribute) and name in METHODS:
        yield node, f"({ast.unparse(node.func.value)})"
    if isinstance(node.func, ast.Name) and name in FUNCTIONS and len(arguments) == 1:
        yield node, f"({ast.unparse(arguments[0])})"
    for index in range(0 if name in SYMMETRIC else len(arguments) - 1):
        first, second = arguments[index : index + 2]
        if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            swapped = [*arguments[:index], second, first, *arguments[index + 2 :]]
            yield node, _with(node, args=swapped)
    for index, keyword in enumerate(node.keywords):
        if not _left_alone(keyword):
            yield node, _with(node, keywords=_without(node.keywords, index))
