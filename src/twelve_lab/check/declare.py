"""What a row of the tables holds: a task, a question, and a mistake that they invite."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

# Each case has a name that can stand in a message, and the arguments of one call.
Cases = dict[str, tuple[Any, ...]]


def as_tensors(answer: Any) -> tuple[Tensor, ...]:
    """Take an answer for what it is: a tensor, or several.

    Raises:
        TypeError: If it is neither.
    """
    answers = answer if isinstance(answer, tuple | list) else (answer,)
    for one in answers:
        if not isinstance(one, Tensor):
            raise TypeError(f"a tensor is expected, got {type(one).__name__}")
    return tuple(answers)


def by_position(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Call what was handed in with the arguments of a case."""
    return answer(*given)


@dataclass(frozen=True)
class Target:
    """One small task, with the answer and the cases that tell its mistakes apart.

    Args:
        name: How mistakes and exercises call it.
        contract: Axes that go in and axes that come out, in words.
        right: The right answer, short.
        cases: Draws the arguments, in float64 and afresh on every call, so that a function that
            changes its input spoils no other run.
        also: Wrong answers by mistakes that have a smaller task of their own.
        halves: More wrong answers by these, as where a mistake is made in one of two places.
        slips: Wrong answers that are no classic, each under the sentence that answers it.
        avoid: What the task asks to do without: names, signs such as "@", "a loop", "a slice".
        observe: What is compared of an answer that is no tensor.
        by_gradient: Whether the gradients of the arguments belong to the answer.
        run: How an answer is called with the arguments of a case: a class is built first.
    """

    name: str
    contract: str
    right: Callable[..., Any]
    cases: Callable[[], Cases]
    also: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    halves: Mapping[str, tuple[Callable[..., Any], ...]] = field(default_factory=dict)
    slips: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    avoid: tuple[str, ...] = ()
    observe: Callable[[Any], tuple[Tensor, ...]] = as_tensors
    by_gradient: bool = False
    run: Callable[[Callable[..., Any], tuple[Any, ...]], Any] = by_position


# A shape, a number, a table of numbers, or some of the words that are offered.
Prediction = tuple[int, ...] | int | float | list[Any] | frozenset[str]


@dataclass(frozen=True)
class Question:
    """Something to predict before it is computed.

    Args:
        name: How the exercise is called.
        contract: What is asked for, in words; of a shape, the axes behind an arrow.
        right: Computes the answer: a tuple of sizes is a shape, a list holds numbers.
        wrong: Computes what the known mistakes lead to, by id.
        options: The words to choose from, where the answer is a set of words.
        decimals: How exact a number has to be.
        slips: Computes what other confusions lead to, by the sentence that answers them.
    """

    name: str
    contract: str
    right: Callable[[], Prediction]
    wrong: Mapping[str, Callable[[], Prediction]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    decimals: int = 4
    slips: Mapping[str, Callable[[], Prediction]] = field(default_factory=dict)


class Plant(NamedTuple):
    """Where the same mistake would stand in the package: `old` stands once in the module.

    Args:
        module: Stem of the file in src/twelve.
        old: The text as it is.
        new: The text with the mistake.
    """

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mistake:
    """A classic mistake.

    Args:
        id: Its name in the course.
        sentence: What was done and what to do instead, for the one who did it.
        step: Number of the notebook that teaches it.
        target: Name of the smallest task in which it can be made.
        wrong: The task done wrong, as one would write it.
        plant: The same mistake in the package, where it can stand there.
        variants: Other ways to make it that give other numbers.
    """

    id: str
    sentence: str
    step: str
    target: str
    wrong: Callable[..., Any]
    plant: Plant | None
    variants: tuple[Callable[..., Any], ...] = ()
