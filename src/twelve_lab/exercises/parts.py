"""Find the functions that a right answer uses, and rebuild the answer with one of them replaced.

The right answer of a larger exercise calls the right answers of smaller exercises. A mistake is
therefore declared once, at the smallest exercise, and every larger exercise inherits it:
`with_part` builds the larger wrong answer.
"""

from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from twelve_lab.exercises.declare import Answer, Exercise

_TOOLS = ("declare", "edit", "modules", "numbers", "parts")


@cache
def parts(answer: Answer) -> tuple[Answer, ...]:
    """List an answer, followed by the functions and classes of the exercises that it uses."""
    all_parts = {answer: None}
    for part in _used(answer).values():
        all_parts |= dict.fromkeys(parts(part))
    return tuple(all_parts)


def with_part(answer: Answer, old: Answer, new: Answer) -> Answer:
    """Rebuild an answer with another function in place of one of its parts.

    Args:
        answer: A right answer; not modified.
        old: One of its parts.
        new: A function with the same arguments.
    """
    if answer is old or old not in parts(answer):
        return new if answer is old else answer
    others = {name: with_part(part, old, new) for name, part in _used(answer).items()}
    if isinstance(answer, type):
        methods = {each.__name__: _rebuilt(each, others) for each in functions_of(answer)}
        return type(answer.__name__, (answer,), methods)
    return _rebuilt(answer, others)


def _rebuilt(function: FunctionType, others: dict[str, Answer]) -> FunctionType:
    new = FunctionType(
        function.__code__,
        function.__globals__ | others,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    new.__kwdefaults__ = function.__kwdefaults__
    return new


@cache
def _used(answer: Answer) -> dict[str, Answer]:
    """Return the parts that an answer uses, keyed by global name."""
    used: dict[str, Answer] = {}
    for function in functions_of(answer):
        for name in names_in(function.__code__):
            value: Any = function.__globals__.get(name)
            value = value.right if isinstance(value, Exercise) else value
            if value is not answer and _is_part(value):
                used[name] = value
    return used


def _is_part(value: Any) -> bool:
    package, _, file = (getattr(value, "__module__", None) or "").rpartition(".")
    kinds = isinstance(value, FunctionType | type)
    return kinds and package.startswith("twelve_lab.exercises") and file not in _TOOLS


def functions_of(answer: Answer) -> list[FunctionType]:
    """Return the methods of a class, or the function itself; [] if it is written in C."""
    each = vars(answer).values() if isinstance(answer, type) else (answer,)
    return [function for function in each if isinstance(function, FunctionType)]


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the global names and attributes that code uses, including its nested functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)
