"""What a row of the two tables holds: a task of the course, and a mistake that it invites."""

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
        observe: What is compared of an answer that is no tensor.
        by_gradient: Whether the gradients of the arguments belong to the answer.
    """

    name: str
    contract: str
    right: Callable[..., Any]
    cases: Callable[[], Cases]
    also: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    observe: Callable[[Any], tuple[Tensor, ...]] = as_tensors
    by_gradient: bool = False


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
