"""What can be wrong with a prediction: said so that it can be thought over, not read off.

An answer is a shape, a number, a table of numbers, or a choice of words. As for a function, the
message names the first thing to put right.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from twelve_lab.check.compare import exact_on_cpu
from twelve_lab.check.wording import a_or_an, axes_named, named
from twelve_lab.exercises.declare import Prediction, Question
from twelve_lab.show.format import format_number


def not_started(given: Any) -> bool:
    """Say whether the answer is still to be given."""
    if isinstance(given, tuple | list | set | frozenset):
        return any(not_started(one) for one in given)
    return given is ... or given is None


def fault(question: Question, given: Any) -> tuple[str, str] | None:
    """Find the first thing that is wrong with a prediction.

    Args:
        question: What was asked.
        given: What was handed in.

    Returns:
        Its kind and a message, or None where nothing is wrong.
    """
    return _fault(question, computed(question.right), given)


@cache
def computed(answer: Callable[[], Prediction]) -> Prediction:
    """Compute an answer to a question, once: some run a model for it."""
    with exact_on_cpu():
        return answer()


def _fault(question: Question, right: Prediction, given: Any) -> tuple[str, str] | None:
    if isinstance(right, frozenset):
        return _words(question, right, given)
    if isinstance(right, tuple):
        return _shape(question, right, given)
    return _numbers(question, right, given)


def suspects(question: Question, given: Any) -> list[str]:
    """Name the mistakes that lead to this prediction."""
    return _alike(question, given, question.mistakes)


def misconceptions(question: Question, given: Any) -> list[str]:
    """Find what to answer to the misconceptions that lead to this prediction."""
    one_each = {sentence: [leads_to] for sentence, leads_to in question.misconceptions.items()}
    return _alike(question, given, one_each)


def praise(question: Question) -> str:
    """Write the answer out, for whoever has found it."""
    right = computed(question.right)
    if isinstance(right, tuple):
        return f"{named(axes_named(question.contract), torch.Size(right))}."
    if isinstance(right, frozenset):
        return f"{', '.join(one for one in question.options if one in right)}."
    return f"{_written(right, question.decimals)}."


def _alike(
    question: Question, given: Any, known: Mapping[str, list[Callable[[], Prediction]]]
) -> list[str]:
    return [
        name
        for name, versions in known.items()
        if any(_fault(question, computed(leads_to), given) is None for leads_to in versions)
    ]


def _shape(question: Question, right: tuple[int, ...], given: Any) -> tuple[str, str] | None:
    if not isinstance(given, tuple | list | torch.Size):
        return "type", f"You gave {a_or_an(given)} where a shape is due, such as (2, 2, 3)."
    if not all(isinstance(size, int) and not isinstance(size, bool) for size in given):
        return "type", f"A shape holds whole numbers, and yours is {tuple(given)}."
    axes = axes_named(question.contract)
    if len(given) != len(right):
        return "rank", f"You gave {len(given)} sizes, and the answer has {len(right)}."
    if sorted(given) == sorted(right) and tuple(given) != right and len(set(right)) == len(right):
        mixed = tuple(axes[right.index(size)] for size in given) if axes else ()
        return "axes swapped", (
            f"The sizes are right and the axes are swapped: yours are "
            f"{named(mixed, torch.Size(given))}."
        )
    for axis, (size, wanted) in enumerate(zip(given, right, strict=True)):
        if size != wanted:
            called = f"axis {axis} ({axes[axis]})" if axes else f"axis {axis}"
            return "shape", f"The size of {called} is not {size}."
    return None


def _numbers(question: Question, right: Prediction, given: Any) -> tuple[str, str] | None:
    expected = torch.tensor(right, dtype=torch.float64, device="cpu")
    try:
        actual = torch.as_tensor(given, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError):
        wanted = f"what is due is {_count(expected)}"
        return "type", f"You gave {a_or_an(given)} that cannot be read as numbers; {wanted}."
    if actual.numel() == expected.numel() == 1:
        actual = actual.reshape(expected.shape)
    if actual.shape != expected.shape:
        return "shape", f"What is due is {_count(expected)}, and you gave {_count(actual)}."
    if actual.isnan().any():
        return "nan or inf", "nan is no number that can be due here."
    if expected.ndim and sorted(actual.flatten().tolist()) == sorted(expected.flatten().tolist()):
        if not torch.equal(actual, expected):
            return "numbers", "These are the right numbers, in another order."
    for place, one, wanted in _places(actual, expected):
        if abs(one - wanted) <= 10.0**-question.decimals + 1e-9 * abs(wanted):
            continue
        if any(_rounded(one, wanted, decimals) for decimals in range(1, question.decimals)):
            return "numbers", f"Right as far as it goes: {question.decimals} decimals are due."
        side = "above" if one > wanted else "below"
        text = _written(one, question.decimals)
        return "numbers", f"{_called(place, expected)}, {text}, lies {side} what is due."
    return None


def _words(question: Question, right: frozenset[str], given: Any) -> tuple[str, str] | None:
    chosen = {given} if isinstance(given, str) else given
    if not isinstance(chosen, set | frozenset | tuple | list):
        return "type", f"You gave {a_or_an(given)} where words are due, in quotes."
    unknown = [one for one in chosen if one not in question.options]
    if unknown:
        offered = ", ".join(map(repr, question.options))
        return "type", f"{unknown[0]!r} is not among the words to choose from: {offered}."
    extra, missing = len(set(chosen) - right), len(right - set(chosen))
    if not extra and not missing:
        return None
    if len(right) == 1 and len(set(chosen)) == 1:
        return "numbers", f"It is not {next(iter(chosen))!r}."
    return "numbers", f"Words that do not belong there: {extra}. Words that are missing: {missing}."


def _places(actual: Tensor, expected: Tensor) -> Iterator[tuple[int, float, float]]:
    pairs = zip(actual.flatten().tolist(), expected.flatten().tolist(), strict=True)
    return ((place, one, wanted) for place, (one, wanted) in enumerate(pairs))


def _rounded(one: float, wanted: float, decimals: int) -> bool:
    near = abs(one - wanted) <= 0.5 * 10.0**-decimals + 1e-9
    return one != 0 and near and one == round(one, decimals)


def _called(place: int, expected: Tensor) -> str:
    if expected.ndim == 2:
        row, column = divmod(place, expected.size(1))
        return f"In row {row + 1}, number {column + 1}"
    return f"Number {place + 1} of {expected.numel()}" if expected.ndim else "Your number"


def _count(x: Tensor) -> str:
    if x.ndim > 1:
        return f"{x.numel()} numbers as {' x '.join(map(str, x.shape))}"
    return "1 number" if x.numel() == 1 else f"{x.numel()} numbers"


def _written(right: Any, decimals: int) -> str:
    if isinstance(right, list):
        return f"[{', '.join(_written(one, decimals) for one in right)}]"
    whole = isinstance(right, int) or float(right).is_integer()
    return str(int(right)) if whole else format_number(right, decimals)
