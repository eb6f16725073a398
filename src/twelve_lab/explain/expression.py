"""Arithmetic as an expression tree whose leaves are numbers in the run."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LEVEL = dict.fromkeys(COMPARISONS, 0) | {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "**": 4}
# Operators whose left or right operand must bind one level tighter.
TIGHT_LEFT = ("**", *COMPARISONS)
TIGHT_RIGHT = ("/", "**", *COMPARISONS)
# Conversions that round. Arithmetic in double precision skips them.
CASTS = ("float32", "float16", "bfloat16")
# Python cannot compile a longer chain of operators.
LONGEST_SUM = 2500


class Expression:
    """A node of the tree. Arithmetic operators combine nodes into larger trees."""

    __slots__ = ()

    def __add__(self, other: Expression) -> Expression:
        return Apply("+", (self, other))

    def __sub__(self, other: Expression) -> Expression:
        return Apply("-", (self, other))

    def __mul__(self, other: Expression) -> Expression:
        return Apply("*", (self, other))

    def __truediv__(self, other: Expression) -> Expression:
        return Apply("/", (self, other))

    def __pow__(self, other: Expression) -> Expression:
        return Apply("**", (self, other))

    def __neg__(self) -> Expression:
        return Apply("neg", (self,))


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A constant of the program, such as a scale, an exponent or an eps."""

    value: float


@dataclass(frozen=True, slots=True)
class Leaf(Expression):
    """One element of a tensor in the run."""

    cell: int


@dataclass(frozen=True, slots=True)
class Apply(Expression):
    """An operation on subtrees: + - * / ** neg, a comparison, or the name of a function."""

    name: str
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Total(Expression):
    """A sum; a sum of one part equals that part."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Dot(Expression):
    """A dot product: the sum of elementwise products."""

    left: tuple[Expression, ...]
    right: tuple[Expression, ...]


def call(name: str, *parts: Expression) -> Expression:
    """Build the call name(parts)."""
    return Apply(name, parts)


def leaves(tree: Expression) -> Iterator[int]:
    """Yield the cells of a tree from left to right, including duplicates."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Leaf):
            yield node.cell
        elif not isinstance(node, Number):
            waiting.extend(reversed(terms(node)))


def replace(tree: Expression, change: Callable[[int], Expression]) -> Expression:
    """Replace every cell with a tree."""

    def each(parts: tuple[Expression, ...]) -> tuple[Expression, ...]:
        return tuple(replace(part, change) for part in parts)

    if isinstance(tree, Leaf):
        return change(tree.cell)
    if isinstance(tree, Apply):
        return Apply(tree.name, each(tree.parts))
    if isinstance(tree, Total):
        return Total(each(tree.parts))
    return Dot(each(tree.left), each(tree.right)) if isinstance(tree, Dot) else tree


def terms(tree: Apply | Total | Dot) -> tuple[Expression, ...]:
    """List the operands of a tree; for a sum, its summands."""
    if isinstance(tree, Dot):
        return tuple(a * b for a, b in zip(tree.left, tree.right, strict=True))
    return tree.parts


class Writer:
    """Format a tree, with brackets only where operator precedence requires them.

    This class formats Python arithmetic with plain numbers and `math`. Subclasses override the
    format of leaves, functions, sums and signs.

    Attributes:
        signs: Operator -> text between its operands.
    """

    signs: Mapping[str, str] = {sign: f" {sign} " for sign in LEVEL}

    def __init__(self, value: Callable[[int], float]) -> None:
        """Format numbers from `value`.

        Args:
            value: Function that returns the number in a cell.
        """
        self.value = value

    def leaf(self, cell: int, outer: int) -> str:
        """Format a cell inside an operator of precedence `outer`."""
        return self.number(self.value(cell), outer)

    def number(self, number: float, outer: int) -> str:
        """Format a number, in brackets if it is negative and follows a sign."""
        return bracketed(literal(number), outer)

    def function(self, name: str, parts: tuple[Expression, ...]) -> str:
        """Format a call."""
        known = name if name in ("max", "min", "abs") else f"math.{name}"
        return f"{known}({', '.join(map(self.write, parts))})"

    def cast(self, tree: Apply, outer: int) -> str:
        """Format the number before rounding."""
        return self.write(tree.parts[0], outer)

    def total(self, tree: Total | Dot, outer: int) -> str:
        """Format a sum of several parts."""
        text = self.join([self.write(part, 1) for part in terms(tree)])
        return f"({text})" if outer >= 1 else text

    def join(self, parts: list[str]) -> str:
        """Join the parts of a sum with plus signs."""
        if len(parts) > LONGEST_SUM:
            return f"math.fsum(({', '.join(parts)}))"
        return self.signs["+"].join(parts)

    def write(self, tree: Expression, outer: int = 0) -> str:
        """Format a tree.

        Args:
            tree: Tree to format.
            outer: Precedence of the enclosing operator.
        """
        if isinstance(tree, Leaf):
            return self.leaf(tree.cell, outer)
        if isinstance(tree, Number):
            return self.number(tree.value, outer)
        if isinstance(tree, Total | Dot):
            parts = terms(tree)
            return self.total(tree, outer) if len(parts) > 1 else self.write(parts[0], outer)
        if tree.name in CASTS:
            return self.cast(tree, outer)
        level = LEVEL.get(tree.name)
        if level is None:
            return self.function(tree.name, tree.parts)
        if tree.name == "neg":
            text = f"-{self.write(tree.parts[0], level)}"
        else:
            left, right = tree.parts
            first = self.write(left, level + (tree.name in TIGHT_LEFT))
            # After a sign, a sum or a negative number needs brackets.
            second = self.write(right, max(2, level + (tree.name in TIGHT_RIGHT)))
            text = f"{first}{self.signs[tree.name]}{second}"
        return f"({text})" if level < outer else text


def bracketed(text: str, outer: int) -> str:
    """Put a negative number in brackets if it follows a sign."""
    return f"({text})" if outer > 1 and text.startswith("-") else text


def literal(number: float) -> str:
    """Format a number as a literal that Python reads back unchanged."""
    return re.sub("(inf|nan)", r"math.\1", repr(number))


def compute(tree: Expression, value: Callable[[int], Tensor]) -> Tensor:
    """Evaluate a tree with torch, so that autograd can differentiate it.

    Args:
        tree: Tree to evaluate.
        value: Function that returns the number in a cell.
    """
    if isinstance(tree, Leaf):
        return value(tree.cell)
    if isinstance(tree, Number):
        return torch.tensor(tree.value, dtype=torch.float64, device="cpu")
    if isinstance(tree, Total | Dot):
        return torch.stack([compute(part, value) for part in terms(tree)]).sum()
    parts = [compute(part, value) for part in tree.parts]
    if tree.name in CASTS:
        return parts[0]
    if tree.name in COMPARISONS:
        return _OPERATORS[tree.name](*parts).double()
    return (_OPERATORS.get(tree.name) or getattr(torch, tree.name))(*parts)


def slopes(tree: Expression, value: Callable[[int], float]) -> dict[int, float]:
    """Compute the derivative of a tree with respect to each of its cells.

    Args:
        tree: Tree to evaluate.
        value: Function that returns the number in a cell.
    """
    with torch.enable_grad():
        inputs = {
            cell: torch.tensor(
                float(value(cell)), dtype=torch.float64, device="cpu", requires_grad=True
            )
            for cell in leaves(tree)
        }
        result = compute(tree, inputs.__getitem__)
    if not result.requires_grad:  # a comparison
        return dict.fromkeys(inputs, 0.0)
    gradients = torch.autograd.grad(
        result, list(inputs.values()), allow_unused=True, materialize_grads=True
    )
    return {cell: slope.item() for cell, slope in zip(inputs, gradients, strict=True)}


_OPERATORS: dict[str, Callable[..., Tensor]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "**": operator.pow, "neg": operator.neg, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    # If numbers are equal, Python takes the first, like relu and max in torch. torch.maximum
    # would split the gradient between them.
    "max": max, "min": min,
}  # fmt: skip
