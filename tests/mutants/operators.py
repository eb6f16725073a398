"""Mutation operators: small changes of Python code that still run and that a test should notice.

A mutation replaces one span of the text, so the rest of the file keeps its lines. Annotations,
docstrings, error messages, f-strings and imports stay as they are: changing them changes no
behaviour, or breaks every import.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
PAIRS = (
    ("min", "max"), ("amin", "amax"), ("any", "all"), ("zeros", "ones"), ("zeros_", "ones_"),
    ("sin", "cos"), ("triu", "tril"), ("floor", "ceil"), ("float32", "float64"),
    ("startswith", "endswith"), ("argmin", "argmax"), ("sum", "mean"), ("bool", "int"),
)  # fmt: skip
NAMES = dict(PAIRS) | {right: left for left, right in PAIRS}
# Methods whose call can be removed: x.detach() becomes x.
METHODS = {
    "detach", "clone", "contiguous", "to", "float", "double", "cpu", "transpose", "unsqueeze",
    "flatten", "masked_fill", "expand", "reshape", "strip", "lower", "items", "copy", "abs",
}  # fmt: skip
FUNCTIONS = {"abs", "sorted", "reversed", "tuple", "list", "set", "round", "float", "str"}
# Swapping the arguments of these changes nothing.
SYMMETRIC = {"transpose", "min", "max", "minimum", "maximum", "equal", "gcd"}
# Every test fails without these decorators.
NEEDED = {"property", "staticmethod", "classmethod", "dataclass", "overload", "setter"}

Change = tuple[int, int, str]


class Mutation(NamedTuple):
    """One changed span.

    Args:
        line: Number of its first line, from 1.
        old: The lines before the change.
        new: The lines after it.
        text: The whole file after it.
    """

    line: int
    old: str
    new: str
    text: str


def mutations(source: str) -> list[Mutation]:
    """List all mutations of a file, in the order of their positions."""
    # ast counts bytes, not characters.
    data, listed = source.encode(), []
    for start, end, new in sorted(set(_Changes(source).changes)):
        first = data.rfind(b"\n", 0, start) + 1
        last = (data + b"\n").index(b"\n", end)
        old, line = data[first:last], data[first:start] + new.encode() + data[end:last]
        text = (data[:start] + new.encode() + data[end:]).decode()
        listed.append(Mutation(data.count(b"\n", 0, start) + 1, _short(old), _short(line), text))
    return listed


def is_another(source: str, text: str) -> bool:
    """Check that a mutated file still parses, to another syntax tree."""
    try:
        return ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _short(lines: bytes) -> str:
    return re.sub(r"\s+", " ", lines.decode().strip())


class _Changes:
    """Walk through a file and collect all changes."""

    def __init__(self, source: str) -> None:
        self.data, self.changes = source.encode(), []
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.locals: list[list[str]] = [[]]
        self.visit(ast.parse(source))

    def visit(self, node: ast.AST) -> None:
        """Collect the changes of a node, then those of its children."""
        kind = type(node).__name__
        for start, end, new in getattr(self, f"_{kind.lower()}", self._nothing)(node):
            self.changes.append((start, end, new))
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, functions):
            arguments = node.args
            every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
            self.locals.append([each.arg for each in every if each.arg not in ("self", "cls")])
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, ast.AST) and not self._left_alone(each):
                        self.visit(each)
        if isinstance(node, functions):
            self.locals.pop()

    def _left_alone(self, node: ast.AST) -> bool:
        # No zip gets sequences of unequal length.
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return True
        if isinstance(node, ast.If):
            return ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        listed = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        words = isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom)
        return docstring or listed or words

    def _span(self, first: ast.AST, last: ast.AST | None = None) -> tuple[int, int]:
        last = last or first
        start = self.starts[first.lineno - 1] + first.col_offset
        return start, self.starts[last.end_lineno - 1] + last.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.data[start:end].decode()

    def _between(self, left: ast.AST, right: ast.AST, operator: ast.AST) -> Iterator[Change]:
        """Replace the operator between two operands."""
        if type(operator) in OPERATORS:
            start, end = self._span(left)[1], self._span(right)[0]
            old, new = OPERATORS[type(operator)]
            gap = self.data[start:end].decode()
            yield start, end, gap.replace(old, new, 1)

    def _nothing(self, node: ast.AST) -> Iterator[Change]:
        yield from ()

    def _compare(self, node: ast.Compare) -> Iterator[Change]:
        operands = [node.left, *node.comparators]
        for left, right, operator in zip(operands, node.comparators, node.ops, strict=False):
            yield from self._between(left, right, operator)
        for each in operands:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield *self._span(each), repr(each.value + "x")

    def _binop(self, node: ast.BinOp) -> Iterator[Change]:
        if isinstance(node.op, ast.MatMult):
            yield *self._span(node), f"{self._text(node.right)} @ {self._text(node.left)}"
        yield from self._between(node.left, node.right, node.op)

    def _boolop(self, node: ast.BoolOp) -> Iterator[Change]:
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from self._between(left, right, node.op)
            yield self._span(left)[0], self._span(right)[0], ""
            yield self._span(left)[1], self._span(right)[1], ""

    def _unaryop(self, node: ast.UnaryOp) -> Iterator[Change]:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            if not isinstance(node.operand, ast.Constant):
                yield *self._span(node), self._text(node.operand)

    def _test(self, node: ast.If | ast.IfExp | ast.While) -> Iterator[Change]:
        # `not` and comparisons have operators of their own.
        if not isinstance(node.test, ast.UnaryOp | ast.Compare):
            yield *self._span(node.test), f"not ({self._text(node.test)})"

    _if = _ifexp = _while = _test

    def _comprehension(self, node: ast.comprehension) -> Iterator[Change]:
        for each in node.ifs:
            yield *self._span(each), "True"

    def _constant(self, node: ast.Constant) -> Iterator[Change]:
        if isinstance(node.value, bool):
            yield *self._span(node), repr(not node.value)
        elif isinstance(node.value, int):
            yield *self._span(node), repr(node.value + 1)
            if node.value > 0:
                yield *self._span(node), repr(node.value - 1)
        elif isinstance(node.value, float):
            yield *self._span(node), repr(node.value * 2 if node.value else 1.0)

    def _name(self, node: ast.Name) -> Iterator[Change]:
        if isinstance(node.ctx, ast.Store):
            self.locals[-1].append(node.id)
        elif node.id in NAMES:
            yield *self._span(node), NAMES[node.id]

    def _attribute(self, node: ast.Attribute) -> Iterator[Change]:
        start, end = self._span(node)
        if node.attr in NAMES:
            yield end - len(node.attr), end, NAMES[node.attr]
        if node.attr in ("mT", "T"):
            yield start, end, self._text(node.value)

    def _call(self, node: ast.Call) -> Iterator[Change]:
        only = node.args[0] if len(node.args) == 1 and not node.keywords else None
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield *self._span(node), self._text(node.func.value)
        if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and only is not None:
            yield *self._span(node), self._text(only)
        symmetric = ast.unparse(node.func).rpartition(".")[2] in SYMMETRIC
        for left, right in [] if symmetric else zip(node.args, node.args[1:], strict=False):
            kinds = {type(left), type(right)}
            if ast.Starred not in kinds and (ast.Constant not in kinds or len(kinds) == 1):
                gap = self.data[self._span(left)[1] : self._span(right)[0]].decode()
                yield *self._span(left, right), self._text(right) + gap + self._text(left)
        for keyword in node.keywords:
            if self._left_alone(keyword):
                continue
            start, end = self._span(keyword)
            after = re.match(rb"\s*,\s*", self.data[end:])
            before = re.search(rb",\s*$", self.data[:start])
            if after:
                yield start, end + after.end(), ""
            elif before:
                yield before.start(), end, ""
            else:
                yield start, end, ""
            if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
                yield *self._span(keyword.value), repr(keyword.value.value + "x")

    def _arguments(self, node: ast.arguments) -> Iterator[Change]:
        for each in (*node.defaults, *node.kw_defaults):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield *self._span(each), repr(each.value + "x")

    def _functiondef(self, node: ast.FunctionDef) -> Iterator[Change]:
        for each in node.decorator_list:
            if not NEEDED & set(re.findall(r"\w+", ast.unparse(each))):
                yield *self._span(each), "(lambda same: same)"

    def _with(self, node: ast.With) -> Iterator[Change]:
        if all(item.optional_vars is None for item in node.items):
            yield self._span(node)[0], self._span(node.items[-1].context_expr)[1], "if True"

    def _return(self, node: ast.Return) -> Iterator[Change]:
        if isinstance(node.value, ast.Name):
            others = [name for name in self.locals[-1] if name != node.value.id]
            for name in dict.fromkeys(others[-1:] + others[:1]):
                yield *self._span(node.value), name

    def _removed(self, node: ast.stmt) -> Iterator[Change]:
        yield *self._span(node), "pass"

    _raise = _augassign = _continue = _break = _delete = _removed

    def _expr(self, node: ast.Expr) -> Iterator[Change]:
        if isinstance(node.value, ast.Call):
            yield from self._removed(node)

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> Iterator[Change]:
        """Remove an assignment to a name that it also reads: x = norm(x)."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {ast.unparse(target) for target in targets}
        used = ast.walk(node.value) if node.value else ()
        if names & {each.id for each in used if isinstance(each, ast.Name)}:
            yield from self._removed(node)

    _annassign = _assign
