"""Generate all single edits of a function, each a small change to its syntax tree.

    for edit in edits(function):
        with edit:
            ...  # the tree contains the change here

This file does not depend on any exercise. Most edits are rules in the notation of the exercises,
such as `X.softmax => X.log_softmax`. An operator is a kind of change. OPERATORS lists the likeliest
kinds first.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

from twelve_lab.exercises.edit import fill, match, parse

OPERATORS = (
    "axis", "function", "drop operand", "drop call", "number", "keyword value", "comparison",
    "negation", "slice", "drop index", "swap operands", "arithmetic", "pattern", "drop keyword",
    "exchange", "name", "reshape", "halves", "constant", "move call", "regroup", "branch",
    "repeat step", "drop statement", "swap items", "drop argument", "transpose", "add keyword",
    "insert step", "inner part", "swap statements", "wrap", "other expression",
)  # fmt: skip
# Names that are easily confused, one group per line.
_COUSINS = """
softmax log_softmax sigmoid
mean sum var std amax
sin cos tanh
tril triu
relu gelu silu sigmoid tanh
repeat repeat_interleave expand
cat stack
argmax argmin
max min amax
square sqrt rsqrt
std var
any all
ones zeros
ones_like zeros_like
layer_norm rms_norm
exp log
erf tanh
eq ne
lt le gt ge
masked_fill where
gather index_select
cumsum sum
flip roll
"""
# A rule is a pattern and its replacement; {o} and {p} stand for binary operators.
_RULES = {
    "drop operand": "X {o} Y => X; X {o} Y => Y",
    "swap operands": "X - Y => Y - X; X / Y => Y / X; X @ Y => Y @ X",
    "arithmetic": "X + Y => X - Y; X + Y => X * Y; X - Y => X + Y; X * Y => X / Y; X * Y => X + Y; "
    "X / Y => X * Y; X / Y => X // Y; X @ Y => X * Y; X ** Y => X * Y; X // Y => X % Y; "
    "X % Y => X // Y; X & Y => X | Y; X | Y => X & Y",
    "comparison": "X == Y => X != Y; X != Y => X == Y; X != Y => X > Y; X < Y => X <= Y; "
    "X < Y => X > Y; X < Y => X >= Y; X <= Y => X < Y; X <= Y => X >= Y; X <= Y => X > Y; "
    "X > Y => X >= Y; X > Y => X < Y; X > Y => X <= Y; X >= Y => X > Y; X >= Y => X <= Y; "
    "X >= Y => X < Y; X is Y => X is not Y; X is not Y => X is Y",
    "regroup": "(X {o} Y) {p} Z => X {o} (Y {p} Z); X {o} (Y {p} Z) => (X {o} Y) {p} Z; "
    "(X {o} Y) {p} Z => (X {p} Z) {o} Y; X {o} (Y {p} Z) => (X {o} Z) {p} Y",
    "negation": "~X => X; -X => X; not X => X; X => ~X; X => -X; 1 - X => X",
    "drop call": "X.mT => X; X.T => X",
    "drop index": "X[INDEX] => X",
    "reshape": "X.transpose(A, B) => X.reshape(X.transpose(A, B).shape); "
    "X.mT => X.reshape(X.mT.shape); X.T => X.reshape(X.T.shape)",
    "halves": "torch.cat(X, A) => torch.stack(X, -1).flatten(-2); "
    "torch.stack(X, A).flatten(B) => torch.cat(X, -1)",
    "function": "X.repeat_interleave(N, dim=1) => X.repeat(1, N, 1, 1); "
    "X.repeat_interleave(N, 1) => X.repeat(1, N, 1, 1); "
    "X.repeat(1, N, 1, 1) => X.repeat_interleave(N, 1)",
    "branch": "X if C else Y => X; X if C else Y => Y",
}
_SIGNS = ("+", "-", "*", "/", "@", "**", "//", "%", "&", "|")
# Changes that apply to any value.
_AROUND = {
    "transpose": "X.mT; X.transpose(1, 2); X.transpose(0, 1)",
    "wrap": "X.softmax(-1); X.relu(); X ** 0.5; X ** 2; 1 / X; 2 * X; X + 1; X - 1; X.exp(); "
    "X.log(); X.flip(-1); X / X.norm(dim=-1, keepdim=True); X.mean(-1, keepdim=True); X.detach(); "
    "X.sum(-1, keepdim=True); X[:, :1]; X.unsqueeze(1); X.unsqueeze(-1)",
}
# Functions that take an axis as an argument, possibly by the keyword dim.
ALONG = ("softmax", "log_softmax", "mean", "sum", "var", "std", "amax", "argmax", "cumsum", "size",
         "cat", "stack", "logsumexp", "norm", "sort", "any", "all")  # fmt: skip
_KEEPDIM = ("mean", "sum", "var", "std", "amax", "norm", "logsumexp")
_MODULES = ("torch", "F", "nn", "math", "einops", "np")
_INFINITE = ("math.inf", "torch.inf", "float('inf')")
HOLE = "HOLE"
Variant = tuple[str, Any]


class Place(NamedTuple):
    """The position of a node in a syntax tree."""

    holder: Any
    field: str
    index: int | None

    @property
    def node(self) -> Any:
        """The current node at this position."""
        value = getattr(self.holder, self.field)
        return value if self.index is None else value[self.index]

    def put(self, node: Any) -> None:
        """Replace the node at this position."""
        if self.index is None:
            setattr(self.holder, self.field, node)
        else:
            getattr(self.holder, self.field)[self.index] = node


@dataclass(frozen=True, eq=False)
class Edit:
    """A change at one or more positions of a function, applied inside a `with` block.

    Args:
        operator: Kind of change, one of OPERATORS.
        changes: Pairs of a position and its new node.
        tree: The function that contains the positions; None if `where` is not needed.
    """

    operator: str
    changes: tuple[tuple[Place, Any], ...]
    tree: "_Tree | None"
    _old: list[Any] = field(default_factory=list)

    def __enter__(self) -> "Edit":
        for place, new in self.changes:
            self._old.append(place.node)
            place.put(ast.fix_missing_locations(new))
        return self

    def __exit__(self, *_: object) -> None:
        for place, _ in reversed(self.changes):
            place.put(self._old.pop())

    @property
    def everywhere(self) -> bool:
        """Whether the edit makes the same change at several positions."""
        return len(self.changes) > 1 and self.operator not in ("exchange", "swap statements")

    @property
    def cost(self) -> float:
        """Rank of the edit, lower if likelier. The same change at several positions costs more."""
        return OPERATORS.index(self.operator) + 3.5 * self.everywhere

    @cached_property
    def where(self) -> Place:
        """The smallest readable piece of code around the first position."""
        return self.tree.readable(self.changes[0][0])

    @property
    def before(self) -> str:
        """The piece of code around the first position, without the change."""
        return _code(self.where.node)

    @property
    def after(self) -> str:
        """The piece of code around the first position, with the change."""
        with self:
            return _code(self.where.node)

    @property
    def line(self) -> int:
        """The line number of the change in the file, or in the parsed source."""
        return getattr(self.changes[0][0].node, "lineno", 0) or getattr(
            self.where.node, "lineno", 0
        )

    @property
    def inserted(self) -> int:
        """The largest number of expressions that the change adds at one position."""
        return max(size(new) - size(place.node) for place, new in self.changes)


def size(node: ast.AST) -> int:
    """Count the expressions in a piece of code."""
    return sum(isinstance(each, ast.expr) for each in ast.walk(node))


def _code(node: ast.AST) -> str:
    if isinstance(node, ast.Return) and node.value is not None:
        node = node.value
    return ast.unparse(node).splitlines()[0]


def edits(
    function: ast.FunctionDef, steps: Iterable[ast.expr] = (), donors: Iterable[ast.expr] = ()
) -> list[Edit]:
    """List all single edits of a function, likeliest first.

    Args:
        function: The function. Its annotations and docstring are never edited.
        steps: Expressions with a placeholder HOLE that may wrap a value.
        donors: Expressions that may replace a value.
    """
    tree = _Tree(function, tuple(steps), tuple(donors))
    all_edits = [*tree.of_expressions(), *tree.exchanges(), *tree.of_statements(function)]
    return sorted(all_edits, key=lambda edit: edit.cost)


class _Tree:
    """The editable positions of a function."""

    def __init__(
        self, function: ast.FunctionDef, steps: tuple[ast.expr, ...], donors: tuple[ast.expr, ...]
    ) -> None:
        self.function, self.steps, self.donors = function, steps, donors
        self.places = [place for each in function.body for place in _below(each)]
        self.outer: dict[int, Place] = {}
        for place in self.places:
            # The function, keywords and slices of a call are not values themselves.
            for child in ast.walk(place.node):
                self.outer[id(child)] = place
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        # self.norm(x), but not len(x)
        self.called = [Place(node, "func", None) for node in calls
                       if not isinstance(node.func, ast.Name)]  # fmt: skip
        names = [arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)]
        nodes = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        names += [node.id for node in nodes if isinstance(node.ctx, ast.Store)]
        self.names = [name for name in dict.fromkeys(names) if name != "self"]

    def readable(self, place: Place) -> Place:
        """Find the smallest call, formula, comparison or slice around a position."""
        kinds = (ast.Call, ast.BinOp, ast.Compare, ast.Subscript, ast.IfExp)
        outer, best = self.outer.get(id(place.holder)), place
        while outer is not None and len(ast.unparse(outer.node)) <= 70:
            best = outer
            if isinstance(outer.node, kinds):
                break
            outer = self.outer.get(id(outer.holder))
        return best

    def of_expressions(self) -> Iterator[Edit]:
        groups: dict[tuple[str, ...], list[tuple[Place, Any]]] = {}
        for place in self.places:
            for operator, new in self.variants(place):
                yield Edit(operator, ((place, new),), self)
                if kind := _kind(operator, place.node, new):
                    groups.setdefault((operator, *kind), []).append((place, new))
        # The same change at all positions.
        for (operator, *_), members in groups.items():
            if len(members) > 1 and not _nested([place.node for place, _ in members]):
                yield Edit(operator, tuple(members), self)

    def variants(self, place: Place) -> Iterator[Variant]:
        """Yield the possible replacements of an expression."""
        node, holder = place.node, place.holder
        if _is_number(node):
            yield from _numbers(place, number_of(node))
        elif isinstance(node, ast.Constant):
            yield from _constants(node.value)
        elif not isinstance(node, ast.Slice | ast.Starred | ast.Lambda | ast.comprehension):
            yield from _by_rules(node)
            yield from _by_kind(node)
            if isinstance(node, ast.Name):
                yield from (("name", ast.Name(x, ast.Load())) for x in self.names if x != node.id)
            index = isinstance(holder, ast.Subscript) and isinstance(node, ast.Tuple)
            if not index and not isinstance(holder, ast.Slice | ast.Starred | ast.Expr):
                yield from _around_value(node)
                yield from (("insert step", fill(step, {HOLE: node})) for step in self.steps)
        # Replacing a whole return value with other code is not a repair.
        if not isinstance(holder, ast.Return):
            yield from (("other expression", donor) for donor in self.donors)

    def exchanges(self) -> Iterator[Edit]:
        """Swap two values of the same kind, in one statement or in the whole function."""
        read: dict[str, list[Place]] = {}
        for place in (*self.places, *self.called):
            if _is_named(place.node):
                read.setdefault(ast.unparse(place.node), []).append(place)
        inside = [set(_below(each)) for each in self.function.body]
        for left, right in combinations(read, 2):
            # Swap a name with a name, `self.a` with `self.b`, or `a[0]` with `a[1]`.
            if type(read[left][0].node) is not type(read[right][0].node):
                continue
            both = (*read[left], *read[right])
            some = [[place for place in both if place in within] for within in inside]
            for places in (both, *some) if len(some) > 1 else (both,):
                new = {left: read[right][0].node, right: read[left][0].node}
                changes = [(place, new[ast.unparse(place.node)]) for place in places]
                if len({ast.unparse(node) for _, node in changes}) == 2:
                    yield Edit("exchange", tuple(changes), self)

    def of_statements(self, holder: ast.AST) -> Iterator[Edit]:
        """Yield edits that drop a statement, swap it with the next one, or drop a condition."""
        for name in ("body", "orelse"):
            body = getattr(holder, name, None)
            for index, statement in enumerate(body if isinstance(body, list) else ()):
                place = Place(holder, name, index)
                if not isinstance(statement, ast.Return | ast.FunctionDef):
                    yield Edit("drop statement", ((place, ast.Pass()),), self)
                if isinstance(statement, ast.If) and not statement.orelse:
                    new = ast.If(ast.Constant(True), statement.body, [])
                    yield Edit("branch", ((place, new),), self)
                if index + 1 < len(body) and not isinstance(body[index + 1], ast.Return):
                    other = Place(holder, name, index + 1)
                    swapped = ((place, other.node), (other, statement))
                    yield Edit("swap statements", swapped, self)
                yield from self.of_statements(statement)


def _nested(nodes: list[ast.AST]) -> bool:
    """Return whether a node contains another node of the list, or occurs twice in it."""
    inside = {id(each) for node in nodes for each in ast.walk(node) if each is not node}
    ids = [id(node) for node in nodes]
    return len(set(ids)) < len(ids) or not inside.isdisjoint(ids)


def _below(node: ast.AST) -> Iterator[Place]:
    """Yield the positions of all values that a piece of code reads."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "ctx", "decorator_list", "targets", "target"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            called = name == "func" and isinstance(node, ast.Call)
            docstring = isinstance(node, ast.Expr) and isinstance(child, ast.Constant)
            if isinstance(child, ast.expr) and not (called or docstring or _is_module(child)):
                yield Place(node, name, index)
            if isinstance(child, ast.AST) and not _is_number(child):
                yield from _below(child)


def _is_named(node: ast.AST) -> bool:
    """Return whether a node reads a variable, or an attribute or numbered entry of a variable."""
    if isinstance(node, ast.Subscript) and not isinstance(number_of(node.slice), int):
        return False
    holder = node.value if isinstance(node, ast.Attribute | ast.Subscript) else node
    return isinstance(holder, ast.Name) and not _is_module(holder)


def _is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in _MODULES


def number_of(node: ast.AST) -> int | float | None:
    """Return the value of a number literal, possibly negative; None for other code."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return sign * node.value
    return None


def _is_number(node: ast.AST) -> bool:
    kinds = ast.Attribute | ast.UnaryOp | ast.Call
    infinite = isinstance(node, kinds) and ast.unparse(node).removeprefix("-") in _INFINITE
    return number_of(node) is not None or infinite


def called(node: ast.AST) -> str:
    """Return the name of a function, or of the function in a call."""
    function = node.func if isinstance(node, ast.Call) else node
    return getattr(function, "attr", getattr(function, "id", ""))


def _kind(operator: str, node: ast.AST, new: Any) -> tuple[str, ...]:
    """Return a key that groups equal changes at several positions; () if it should stay single."""
    if operator in ("axis", "number", "constant", "keyword value", "slice", "pattern", "name"):
        return ast.unparse(node), ast.unparse(new)
    if operator in ("drop call", "function", "reshape", "drop keyword", "add keyword"):
        return called(node), called(new) if operator == "function" else ""
    return ()


@cache
def _rules() -> dict[tuple[Any, ...], list[tuple[str, Any, Any]]]:
    """Parse all rules, and group them by the kind of node that they match."""
    texts = [(operator, rule) for operator, line in _RULES.items() for rule in line.split("; ")]
    for line in _COUSINS.split("\n"):
        texts += [("function", f"X.{x} => X.{y}") for x, y in permutations(line.split(), 2)]
    signs = list(product(_SIGNS, _SIGNS[:5]))
    written = [(operator, text.format(o=o, p=p)) for operator, text in texts for o, p in signs]
    rules: dict[tuple[Any, ...], list[tuple[str, Any, Any]]] = {}
    for operator, text in dict.fromkeys(written):
        old, new = (parse(side.strip())[0] for side in text.split("=>"))
        rules.setdefault(_key(old), []).append((operator, old, new))
    return rules


@cache
def _around() -> list[tuple[str, Any]]:
    lines = _AROUND.items()
    return [(operator, parse(text)[0]) for operator, line in lines for text in line.split("; ")]


def _key(node: ast.AST) -> tuple[Any, ...]:
    if isinstance(node, ast.BinOp | ast.UnaryOp):
        return type(node), type(node.op)
    if isinstance(node, ast.Compare):
        return type(node), type(node.ops[0])
    return type(node), called(node) if isinstance(node, ast.Attribute | ast.Call) else ""


def _by_rules(node: ast.AST) -> Iterator[Variant]:
    rules = () if isinstance(node, ast.Name) else _rules().get(_key(node), ())
    for operator, old, new in rules:
        if (matches := match(old, node)) is not None:
            yield operator, fill(new, matches)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        for operator, function in _by_rules(node.func):
            if operator == "function":
                yield operator, _copy(node, func=function)


def _around_value(node: ast.AST) -> Iterator[Variant]:
    for operator, old, new in _rules()[ast.Name, ""]:
        # Do not negate a negation or a condition.
        if not isinstance(node, ast.UnaryOp | ast.Compare | ast.BoolOp):
            yield operator, fill(new, match(old, node))
    yield from ((operator, fill(template, {"X": node})) for operator, template in _around())


def _numbers(place: Place, value: int | float | None) -> Iterator[Variant]:
    call, keyword = place.holder, getattr(place.holder, "arg", "")
    if value is None:
        texts = ["0", "-1e9", "1e-9", "math.inf" if "-" in ast.unparse(place.node) else "-math.inf"]
        yield from (("number", parse(text)[0]) for text in texts)
        return
    if isinstance(value, float) or abs(value) > 99:
        near = (-value, 0.0, 1.0, 2 * value, value / 2, 10 * value, value / 10)
    else:
        near = (-1, value - 1, value + 1, -value, 0, 1, -2, 2, 3)
    along = keyword == "dim" or (isinstance(call, ast.Call) and called(call) in ALONG)
    kind = "axis" if along else "number" if isinstance(value, int) else "constant"
    yield from ((kind, parse(repr(x))[0]) for x in dict.fromkeys(near) if x != value)


def _constants(value: object) -> Iterator[Variant]:
    reductions = ("mean", "sum", "none")
    if isinstance(value, bool):
        yield "keyword value", ast.Constant(not value)
    elif value in reductions:
        yield from (("keyword value", ast.Constant(x)) for x in reductions if x != value)
    elif isinstance(value, str) and "->" in value:
        yield from (("pattern", ast.Constant(text)) for text in _patterns(value))


def _patterns(text: str) -> Iterator[str]:
    """Yield einsum or einops patterns with two names swapped on one side."""
    sides = [side.strip() for side in text.split("->")]
    gap = " " if " -> " in text else ""
    # A wrong order is likelier on the right side.
    for index, side in reversed(list(enumerate(sides))):
        words = re.findall(r"\w+|\W" if gap else r"\w|\W", side)
        for i, j in combinations([i for i, word in enumerate(words) if word.isidentifier()], 2):
            if words[i] != words[j]:
                new = "".join(_swapped(words, i, j))
                yield f"{gap}->{gap}".join([*sides[:index], new, *sides[index + 1 :]])


def _by_kind(node: ast.AST) -> Iterator[Variant]:
    """Yield edits that rules cannot express, because they apply to any number of parts."""
    if isinstance(node, ast.Tuple | ast.List):
        for i, j in combinations(range(len(node.elts)), 2):
            yield "swap items", _copy(node, elts=_swapped(node.elts, i, j))
    elif isinstance(node, ast.BoolOp):
        yield from (("drop operand", each) for each in node.values)
    elif isinstance(node, ast.Subscript):
        yield from (("slice", new) for new in _slices(node))
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.BinOp):
        # a + f(b) becomes f(a + b).
        for around, call in holes(node):
            for other, inner in holes(call) if isinstance(call, ast.Call | ast.Attribute) else ():
                yield "move call", other(around(inner))


def _calls(node: ast.Call) -> Iterator[Variant]:
    method = isinstance(node.func, ast.Attribute) and not _is_module(node.func.value)
    arguments, keywords = node.args, node.keywords
    if method:
        yield "drop call", node.func.value
    for index, argument in enumerate(arguments):
        if not isinstance(argument, ast.Starred):
            yield "inner part" if index or method else "drop call", argument
        if len(arguments) > (not method):
            rest = [*arguments[:index], *arguments[index + 1 :]]
            yield "drop argument", _copy(node, args=rest)
    for i, j in combinations(range(len(arguments)), 2):
        yield "swap items", _copy(node, args=_swapped(arguments, i, j))
    for index in range(len(keywords)):
        rest = [*keywords[:index], *keywords[index + 1 :]]
        yield "drop keyword", _copy(node, keywords=rest)
    if called(node) in _KEEPDIM and all(keyword.arg != "keepdim" for keyword in keywords):
        keepdim = ast.keyword("keepdim", ast.Constant(True))
        yield "add keyword", _copy(node, keywords=[*keywords, keepdim])
    for around, inner in holes(node):
        yield "repeat step", around(node)
        # f(g(x)) becomes g(f(x)), and f(a + b) becomes f(a) + b or a + f(b).
        for other, deeper in holes(inner):
            yield "move call", other(around(deeper))


def holes(node: ast.AST) -> Iterator[tuple[Callable[[ast.AST], ast.AST], ast.AST]]:
    """Yield each operand of a step, preceded by a function that rebuilds the step around it."""
    if isinstance(node, ast.BinOp):
        yield lambda x: _copy(node, left=x), node.left
        yield lambda x: _copy(node, right=x), node.right
    elif isinstance(node, ast.Attribute | ast.Subscript) and not _is_module(node.value):
        yield lambda x: _copy(node, value=x), node.value
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
            yield lambda x: _copy(node, func=_copy(node.func, value=x)), node.func.value
        elif node.args and not isinstance(node.args[0], ast.Starred):
            yield lambda x: _copy(node, args=[x, *node.args[1:]]), node.args[0]


def _slices(node: ast.Subscript) -> Iterator[ast.expr]:
    """Yield slices with other bounds, another order, or one index more or less."""
    index = node.slice
    parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
    others = [_swapped(parts, i, j) for i, j in combinations(range(len(parts)), 2)]
    others += [[*parts[:i], *parts[i + 1 :]] for i in range(len(parts)) if len(parts) > 1]
    for i, part in enumerate(parts):
        others.append([*parts[:i], ast.Slice(), *parts[i:]])
        if isinstance(part, ast.Slice):
            others += [[*parts[:i], new, *parts[i + 1 :]] for new in _bounds(part, node.value)]
    for new in others:
        # Skip slices that select all of x: dropping the index gives the same.
        if all(isinstance(part, ast.Slice) and part.lower is part.upper for part in new):
            continue
        yield _copy(node, slice=new[0] if len(new) == 1 else ast.Tuple(new, ast.Load()))


def _bounds(part: ast.Slice, of: ast.expr) -> Iterator[ast.Slice]:
    lower, upper = part.lower, part.upper
    if part.step is not None:
        yield _copy(part, step=None)
        # A slice with a step, such as 0::2, becomes one half.
        half = fill(parse("X.size(-1) // 2")[0], {"X": of})
        yield ast.Slice(*(half, None) if lower and number_of(lower) else (None, half), None)
    for name, bound, other in (("lower", lower, "1"), ("upper", upper, "-1")):
        if bound is None:
            yield _copy(part, **{name: parse(other)[0]})
            continue
        yield _copy(part, **{name: None})
        for template in ("X + 1", "X - 1"):
            yield _copy(part, **{name: fill(parse(template)[0], {"X": bound})})
    if (lower is None) != (upper is None):
        bound = upper or lower
        yield _copy(part, lower=upper, upper=lower)
        minus = fill(parse("-X")[0], {"X": bound})
        yield ast.Slice(*(None, minus) if lower else (minus, None), part.step)


def _swapped(items: list[Any], i: int, j: int) -> list[Any]:
    new = list(items)
    new[i], new[j] = new[j], new[i]
    return new


def _copy(node: Any, **fields: Any) -> Any:
    """Copy a node and replace some fields; the copy shares the children."""
    values = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
    return ast.copy_location(type(node)(**values | fields), node)
