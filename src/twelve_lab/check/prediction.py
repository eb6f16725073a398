"""Check a prediction. The message gives a hint, and never gives the answer away.

An answer is a shape, a number, a table of numbers, or a choice of words. As for a function, the
message names the first fault.
"""

from collections.abc import Callable
from functools import cache
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from twelve_lab.check.compare import exact_on_cpu
from twelve_lab.check.stages import axes_named, axis_of, named
from twelve_lab.exercises.declare import Prediction, Question
from twelve_lab.messages import message, plural
from twelve_lab.show.format import format_number
from twelve_lab.show.wide import joined


def not_started(answer: Any) -> bool:
    """Return whether the answer is None or still contains `...`."""
    if isinstance(answer, tuple | list | set | frozenset):
        return any(not_started(part) for part in answer)
    return answer is ... or answer is None


def fault(question: Question, answer: Any) -> tuple[str, str] | None:
    """Find the first fault of a prediction.

    Args:
        question: The question.
        answer: The prediction.

    Returns:
        The kind of the fault and a message; None if the prediction is right.
    """
    return _difference(question, computed(question.right), answer)


@cache
def computed(answer: Callable[[], Prediction]) -> Prediction:
    """Compute an answer to a question, and cache it: some answers need a model."""
    with exact_on_cpu():
        return answer()


def leads_to(question: Question, version: Callable[[], Prediction], answer: Any) -> bool:
    """Return whether a known wrong version leads to this prediction."""
    try:
        value = computed(version)
    # A mistake in a part may raise an error here.
    except Exception:
        return False
    return _difference(question, value, answer) is None


def praise(question: Question) -> str:
    """Format the full answer for a learner who got it right."""
    right = computed(question.right)
    if isinstance(right, tuple):
        text = named(axes_named(question.contract), torch.Size(right))
    elif isinstance(right, frozenset):
        text = ", ".join(option for option in question.options if option in right)
    else:
        text = _written(right, question.decimals)
    return message("The answer is {answer}.", answer=text)


def _difference(question: Question, right: Prediction, answer: Any) -> tuple[str, str] | None:
    if isinstance(right, frozenset):
        return _words(question, right, answer)
    if isinstance(right, tuple):
        return _shape(question, right, answer)
    return _numbers(question, right, answer)


def _shape(question: Question, right: tuple[int, ...], answer: Any) -> tuple[str, str] | None:
    if not isinstance(answer, tuple | list | torch.Size):
        name = type(answer).__name__
        text = message("The answer must be a shape such as (2, 2, 3), got {type}.", type=name)
        return "type", text
    got, axes = tuple(answer), axes_named(question.contract)
    if any(not isinstance(size, Integral) or isinstance(size, bool) for size in got):
        return "type", message("A shape consists of whole numbers, got {shape}.", shape=got)
    got = tuple(int(size) for size in got)  # a subclass of int may override ==
    if len(got) != len(right):
        return "rank", message(
            "The number of axes is {expected}, got {got}.", expected=len(right), got=len(got)
        )
    if sorted(got) == sorted(right) and got != right and len(set(right)) == len(right):
        mixed = tuple(axes[right.index(size)] for size in got) if axes else ()
        text = named(mixed, torch.Size(got))
        return "axes swapped", message(
            "The sizes are right, but the axes are swapped: {got}.", got=text
        )
    for index, (size, expected) in enumerate(zip(got, right, strict=True)):
        if size != expected:
            axis = axis_of(index, axes)
            return "shape", message("The size of axis {axis} is not {size}.", axis=axis, size=size)
    return None


def _numbers(question: Question, right: Prediction, answer: Any) -> tuple[str, str] | None:
    expected = torch.tensor(right, dtype=torch.float64, device="cpu")
    try:
        if isinstance(answer, torch.Tensor) and answer.is_complex():
            raise TypeError("a complex number")
        actual = torch.as_tensor(answer, dtype=torch.float64, device="cpu").detach().to_dense()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        name = type(answer).__name__
        text = message("The answer cannot be read as numbers, got {type}.", type=name)
        return "type", joined(text, _expected(expected))
    if actual.numel() == expected.numel() == 1:
        actual = actual.reshape(expected.shape)
    if actual.shape != expected.shape:
        return "shape", joined(_given(actual), _expected(expected))
    if actual.isnan().any():
        return "nan or inf", message("The answer is a number, not nan.")
    flat, due = actual.flatten().tolist(), expected.flatten().tolist()
    if expected.ndim and sorted(flat) == sorted(due) and flat != due:
        return "numbers", message("These are the right numbers in the wrong order.")
    decimals = question.decimals
    for index, (got, wanted) in enumerate(zip(flat, due, strict=True)):
        if abs(got - wanted) <= 10.0**-decimals + 1e-9 * abs(wanted):
            continue
        if any(_rounded(got, wanted, fewer) for fewer in range(1, decimals)):
            text = message("Right so far. Give {decimals} decimals.", decimals=decimals)
            return "numbers", text
        number = _written(got, decimals)
        if got > wanted:
            size = message("{number} is too large.", number=number)
        else:
            size = message("{number} is too small.", number=number)
        return "numbers", joined(size, _position(index, expected))
    return None


def _position(index: int, expected: Tensor) -> str:
    if expected.ndim == 0:
        return ""
    if expected.ndim == 2:
        row, column = divmod(index, expected.size(1))
        return message("It is number {column} of row {row}.", column=column + 1, row=row + 1)
    total = expected.numel()
    return message("It is number {index} of {total}.", index=index + 1, total=total)


def _words(question: Question, right: frozenset[str], answer: Any) -> tuple[str, str] | None:
    chosen = {answer} if isinstance(answer, str) else answer
    if not isinstance(chosen, set | frozenset | tuple | list):
        name = type(answer).__name__
        text = message("The answer must be one or several words in quotes, got {type}.", type=name)
        return "type", text
    # A subclass of str may override ==.
    chosen = [str.__str__(word) if isinstance(word, str) else word for word in chosen]
    unknown = [word for word in chosen if word not in question.options]
    if unknown:
        options = ", ".join(map(repr, question.options))
        return "type", message(
            "{word!r} is not an option. The options are {options}.",
            word=unknown[0],
            options=options,
        )
    chosen = set(chosen)
    extra, missing = len(chosen - right), len(right - chosen)
    if not extra and not missing:
        return None
    if len(right) == len(chosen) == 1:
        return "numbers", message("It is not {word!r}.", word=chosen.pop())
    return "numbers", message(
        "Wrong words: {extra}. Missing words: {missing}.", extra=extra, missing=missing
    )


def _given(x: Tensor) -> str:
    if x.ndim > 1:
        return message("You gave a table of {shape} numbers.", shape=_times(x))
    return plural("You gave {count} number.", "You gave {count} numbers.", x.numel())


def _expected(x: Tensor) -> str:
    if x.ndim > 1:
        return message("The answer is a table of {shape} numbers.", shape=_times(x))
    return plural("The answer is {count} number.", "The answer is {count} numbers.", x.numel())


def _times(x: Tensor) -> str:
    return " x ".join(map(str, x.shape))


def _rounded(got: float, wanted: float, decimals: int) -> bool:
    near = abs(got - wanted) <= 0.5 * 10.0**-decimals + 1e-9
    return got != 0 and near and got == round(got, decimals)


def _written(value: Any, decimals: int) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_written(part, decimals) for part in value)}]"
    whole = isinstance(value, int) or float(value).is_integer()
    return str(int(value)) if whole else format_number(value, decimals)
