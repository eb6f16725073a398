"""Arithmetic as a tree: numbers of the run as leaves, written in digits or as Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LEVEL = dict.fromkeys(COMPARISONS, 0) | {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "**": 4}
# The side of an operator that binds one level tighter than the operator itself.
TIGHT_LEFT = ("**", *COMPARISONS)
TIGHT_RIGHT = ("-", "/", "**", *COMPARISONS)
_ATOM = 9


@dataclass(frozen=True, slots=True)
class Number:
    """A constant of the program: a scale, a power, an eps."""

    value: float


@dataclass(frozen=True, slots=True)
class Leaf:
    """One element of a tensor of the run."""

    cell: int


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation on parts: + - * / ** neg, a comparison, or the name of a function."""

    name: str
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of many parts."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Dot:
    """A sum of products, part by part."""

    left: tuple[Expression, ...]
    right: tuple[Expression, ...]


Expression = Number | Leaf | Apply | Total | Dot


def add(a: Expression, b: Expression) -> Expression:
    """Write a + b."""
    return Apply("+", (a, b))


def subtract(a: Expression, b: Expression) -> Expression:
    """Write a - b."""
    return Apply("-", (a, b))


def multiply(a: Expression, b: Expression) -> Expression:
    """Write a * b."""
    return Apply("*", (a, b))


def divide(a: Expression, b: Expression) -> Expression:
    """Write a / b."""
    return Apply("/", (a, b))


def power(a: Expression, exponent: float) -> Expression:
    """Write a ** exponent."""
    return Apply("**", (a, Number(exponent)))


def call(name: str, *parts: Expression) -> Expression:
    """Write name(parts)."""
    return Apply(name, parts)


def leaves(tree: Expression) -> Iterator[int]:
    """Go through the cells of a tree, from left to right, each as often as it stands there."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Leaf):
            yield node.cell
        else:
            waiting.extend(reversed(parts_of(node)))


def parts_of(node: Expression) -> tuple[Expression, ...]:
    """List the parts of a node."""
    if isinstance(node, Apply | Total):
        return node.parts
    if isinstance(node, Dot):
        return tuple(part for pair in zip(node.left, node.right, strict=True) for part in pair)
    return ()


def replace(tree: Expression, change: Callable[[int], Expression]) -> Expression:
    """Put another tree in the place of every cell."""
    if isinstance(tree, Leaf):
        return change(tree.cell)
    if isinstance(tree, Apply):
        return Apply(tree.name, tuple(replace(part, change) for part in tree.parts))
    if isinstance(tree, Total):
        return Total(tuple(replace(part, change) for part in tree.parts))
    if isinstance(tree, Dot):
        return Dot(
            tuple(replace(part, change) for part in tree.left),
            tuple(replace(part, change) for part in tree.right),
        )
    return tree


def python(tree: Expression, value: Callable[[int], float]) -> str:
    """Write a tree as Python arithmetic over plain numbers and `math`.

    Args:
        tree: What to write.
        value: Gives the number of a cell.
    """
    return _python(tree, value, 0)


def _python(tree: Expression, value: Callable[[int], float], outer: int) -> str:
    if isinstance(tree, Leaf | Number):
        number = value(tree.cell) if isinstance(tree, Leaf) else tree.value
        text = literal(number)
        return f"({text})" if outer > 1 and text.startswith("-") else text
    if isinstance(tree, Total | Dot):
        text = " + ".join(_python(part, value, 1) for part in terms(tree))
        return f"({text})" if outer >= 1 and len(terms(tree)) > 1 else text
    level = LEVEL.get(tree.name, _ATOM)
    if level == _ATOM:
        inside = ", ".join(_python(part, value, 0) for part in tree.parts)
        name = tree.name if tree.name in ("max", "min", "abs") else f"math.{tree.name}"
        return f"{name}({inside})"
    if tree.name == "neg":
        text = f"-{_python(tree.parts[0], value, level)}"
    else:
        left, right = tree.parts
        first = _python(left, value, level + (tree.name in TIGHT_LEFT))
        second = _python(right, value, level + (tree.name in TIGHT_RIGHT))
        text = f"{first} {tree.name} {second}"
    return f"({text})" if level < outer else text


def terms(tree: Total | Dot) -> tuple[Expression, ...]:
    """List what is summed."""
    if isinstance(tree, Total):
        return tree.parts
    return tuple(multiply(a, b) for a, b in zip(tree.left, tree.right, strict=True))


def literal(number: float) -> str:
    """Write a number so that Python reads the same number back."""
    if math.isnan(number):
        return "math.nan"
    if math.isinf(number):
        return "math.inf" if number > 0 else "-math.inf"
    return repr(number)
