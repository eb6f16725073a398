"""How an exercise is written down: a task or a question, and below it what goes wrong with it.

    @task(_cases)
    def attention_scores(query, key):
        '''query (batch, query, d_k), key (batch, key, d_k) -> (batch, query, key)'''
        return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))

    @mistake(attention_scores, "scale-missing", hidden_in={"d_k 1"}, plant=Plant(...))
    def scale_missing(query, key):
        '''The scores are not scaled: divide them by the square root of d_k.'''
        return query @ key.transpose(-2, -1)

The docstring of a right answer is the contract of the exercise; that of a wrong one is what the
learner is told. A mistake has an id, by which the course speaks of it. A misconception is the same
without one: it is known in its one exercise alone. Instead of a function with a docstring, the
sentence can be given, and with it what differs from the right answer: one `line`, a switch that it
takes by keyword, or another function, `by`. `again` is the same mistake once more: made in another
way, or in another exercise.

A learner is shown the right answer. Where the task demands another way to it, `solved` holds that.
"""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

from torch import Tensor

# Each case has a name that can stand in a message, and the arguments of one call.
Cases = dict[str, tuple[Any, ...]]
Answer = Callable[..., Any]


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


def by_position(answer: Answer, given: tuple[Any, ...]) -> Any:
    """Call what was handed in with the arguments of a case."""
    return answer(*given)


@dataclass(eq=False)
class Exercise:
    """What a task and a question share.

    Args:
        name: How the exercise is called.
        contract: What goes in and what comes out, in words; axes stand behind an arrow.
        right: The right answer, short; of a question, what computes it.
        measures: What a teacher learns from it, in a few words.
        mistakes: Wrong answers by the id of the mistake, the most usual way to make it first.
        misconceptions: Wrong answers that no id is needed for, by the sentence that answers them.
    """

    name: str
    contract: str
    right: Answer
    measures: str = field(default="", kw_only=True)
    mistakes: dict[str, list[Answer]] = field(default_factory=dict, kw_only=True)
    misconceptions: dict[str, Answer] = field(default_factory=dict, kw_only=True)

    def __call__(self, *given: Any, **switches: Any) -> Any:
        """Give the right answer."""
        return self.right(*given, **switches)


@dataclass(eq=False)
class Task(Exercise):
    """One small task, with the cases that tell its mistakes apart.

    Args:
        cases: Draws the arguments, in float64 and afresh on every call, so that a function that
            changes its input spoils no other run.
        forbidden: What the task asks to do without: names, signs such as "@", "for".
        observe: What is compared of an answer that is no tensor.
        by_gradient: Whether the gradients of the arguments belong to the answer; None where they
            may be cut, for nothing is learned through it.
        run: How an answer is called with the arguments of a case: a class is built first.
        solved: What the learner is shown, where the task demands another way than `right`.
    """

    cases: Callable[[], Cases]
    forbidden: tuple[str, ...] = ()
    observe: Callable[[Any], tuple[Tensor, ...]] = as_tensors
    by_gradient: bool | None = False
    run: Callable[[Answer, tuple[Any, ...]], Any] = by_position
    solved: Answer | None = None


# A shape, a number, a table of numbers, or some of the words that are offered.
Prediction = tuple[int, ...] | int | float | list[Any] | frozenset[str]


@dataclass(eq=False)
class Question(Exercise):
    """Something to predict before it is computed: a tuple of sizes is a shape, a list numbers.

    Args:
        options: The words to choose from, where the answer is a set of words.
        decimals: How exact a number has to be.
        worked: The answer as it is found on paper, in Python, where it says more than its value.
    """

    options: tuple[str, ...] = ()
    decimals: int = 4
    worked: str = ""


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
        task: Name of the smallest task in which it can be made.
        wrong: That task done wrong, as one would write it.
        plant: The same mistake in the package.
        hidden_in: The cases that give the right numbers all the same: a test of these would pass.
        refused_in: The cases that raise, or come out in another shape. In all others it is silent.
        step: Number of the notebook that teaches it.
    """

    id: str
    sentence: str
    task: str
    wrong: Answer
    plant: Plant
    hidden_in: frozenset[str] = frozenset()
    refused_in: frozenset[str] = frozenset()
    step: str = ""


@dataclass(frozen=True)
class Misconception:
    """A wrong answer that is known in one exercise, and the sentence that answers it."""

    sentence: str
    wrong: Answer


class Sheet(NamedTuple):
    """All that one file of exercises declares, in its order."""

    exercises: dict[str, Exercise]
    mistakes: dict[str, Mistake]


_SHEETS: dict[str, Sheet] = {}


def sheet(module: str) -> Sheet:
    """Find what a file declares.

    Args:
        module: Its full name, as in `__name__`.
    """
    return _SHEETS.setdefault(module, Sheet({}, {}))


def task(cases: Callable[[], Cases], *, name: str = "", **settings: Any) -> Callable[..., Task]:
    """Declare a task by its right answer, whose docstring is the contract.

    Args:
        cases: Draws the arguments of each case.
        name: How it is called, where that is not the name of the right answer.
        settings: Further arguments of Task.
    """
    return lambda right: _declared(
        Task(name or right.__name__, _sentence(right), right, cases, **settings)
    )


def question(**settings: Any) -> Callable[..., Question]:
    """Declare a question by what computes its answer, and whose docstring says what is asked.

    Args:
        settings: Further arguments of Question.
    """
    return lambda right: _declared(Question(right.__name__, _sentence(right), right, **settings))


def solved(at: Task) -> Callable[[Answer], Answer]:
    """Declare what the learner is shown, in the way that the task demands.

    Args:
        at: The task.
    """

    def declare(answer: Answer) -> Answer:
        if at.solved is not None:
            raise ValueError(f"{at.name} is solved twice")
        at.solved = answer
        return answer

    return declare


def mistake(
    at: Task,
    id: str,
    sentence: str = "",
    *,
    plant: Plant,
    hidden_in: Collection[str] = (),
    refused_in: Collection[str] = (),
    step: str = "",
    **how: Any,
) -> Any:
    """Declare a classic mistake at the smallest task in which it can be made.

    Args:
        at: The task.
        id: Its name in the course.
        sentence: What was done and what to do instead; if not given, this decorates the wrong
            answer and its docstring says so.
        plant: The same mistake in the package.
        hidden_in: Names of the cases that give the right numbers all the same.
        refused_in: Names of the cases that raise, or come out in another shape.
        step: Number of the notebook that teaches it, where that is not the one of the task.
        how: What differs from the right answer: `line`, `by`, or a switch.

    Returns:
        The Mistake, or what makes it of the decorated function.
    """

    def declare(sentence: str, wrong: Answer) -> Mistake:
        cases = frozenset(hidden_in), frozenset(refused_in)
        found = Mistake(id, sentence, at.name, wrong, plant, *cases, step)
        known = sheet(at.right.__module__).mistakes
        if id in known:
            raise ValueError(f"the mistake {id} is declared twice: write `again` for another way")
        known[id] = found
        at.mistakes.setdefault(id, []).append(wrong)
        return found

    return _said(declare, at, sentence, how, id.replace("-", "_"))


def misconception(at: Exercise, sentence: str = "", **how: Any) -> Any:
    """Declare a wrong answer that is known in this exercise alone.

    Args:
        at: The task or question.
        sentence: The answer to it; if not given, this decorates the wrong answer and its docstring
            says so.
        how: What differs from the right answer: `line`, `by`, or a switch.

    Returns:
        The Misconception, or what makes it of the decorated function.
    """

    def declare(sentence: str, wrong: Answer) -> Misconception:
        if sentence in at.misconceptions:
            raise ValueError(f"{at.name}: two misconceptions are answered by {sentence!r}")
        at.misconceptions[sentence] = wrong
        return Misconception(sentence, wrong)

    return _said(declare, at, sentence, how)


def again(at: Exercise, id: str, **how: Any) -> Any:
    """Declare a mistake once more: made in another way, or in another exercise.

    Args:
        at: The task or question.
        id: Name of the mistake.
        how: What differs from the right answer: `line`, `by`, or a switch. If nothing is given,
            this decorates the wrong answer.
    """

    def declare(_: str, wrong: Answer) -> Answer:
        at.mistakes.setdefault(id, []).append(wrong)
        return wrong

    return _said(declare, at, id if how else "", how)


def inherit(
    at: Exercise, rebuild: Callable[[Answer], Answer], *known: Mistake | Misconception
) -> None:
    """Let a larger exercise know what goes wrong in a part of it.

    Args:
        at: The larger task or question.
        rebuild: Makes a wrong answer to it of a wrong part.
        known: What goes wrong in the part.
    """
    for one in known:
        if isinstance(one, Mistake):
            again(at, one.id, by=rebuild(one.wrong))
        else:
            misconception(at, one.sentence, by=rebuild(one.wrong))


def _said(
    declare: Callable[[str, Answer], Any],
    at: Exercise,
    sentence: str,
    how: dict[str, Any],
    name: str = "",
) -> Any:
    """Declare with the sentence that is given, or with the docstring of what is decorated."""
    if sentence:
        return declare(sentence, _different(at, sentence, name, **how))
    return lambda wrong: declare(_sentence(wrong), wrong)


def _different(
    at: Exercise,
    sentence: str,
    name: str,
    *,
    by: Answer | None = None,
    line: tuple[str, str] | None = None,
    **switches: Any,
) -> Answer:
    if [by is not None, line is not None, bool(switches)].count(True) != 1:
        raise ValueError(f"{at.name}: give one of by, line and a switch for {sentence!r}")
    if line is not None:
        return patched(at.right, *line, name)
    return by if by is not None else partial(at.right, **switches)


def patched(right: Answer, old: str, new: str, name: str = "") -> Answer:
    """Write a function once more with another text at one place.

    Args:
        right: A function of a file.
        old: What stands in its source once.
        new: What stands there instead.
        name: What the new function is called, if not as the right one.

    Raises:
        ValueError: If the old text does not stand there exactly once.
    """
    text = _bare(right)
    if text.count(old) != 1:
        raise ValueError(f"{right.__name__} holds {text.count(old)} times: {old!r}")
    name = name or right.__name__
    text = text.replace(old, new).replace(f"def {right.__name__}(", f"def {name}(", 1)
    # Errors and `source` show the text that runs.
    file = f"{right.__code__.co_filename}:{name}:{new or old}"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    made: dict[str, Answer] = {}
    exec(compile(text, file, "exec"), right.__globals__, made)
    return made[name]


# One right answer is written anew for each mistake in it, and its file is long.
@cache
def _bare(function: Answer) -> str:
    """Read the text of a function without its docstring and its decorators."""
    text = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(text).body[0]
    lines = text.splitlines(keepends=True)
    if ast.get_docstring(tree) is not None:
        del lines[tree.body[0].lineno - 1 : tree.body[0].end_lineno]
    # Its decorators would declare the exercise again.
    return "".join(lines[tree.lineno - 1 :])


def _declared(one: Any) -> Any:
    known = sheet(one.right.__module__).exercises
    if one.name in known:
        raise ValueError(f"the exercise {one.name} is declared twice")
    known[one.name] = one
    return one


def _sentence(function: Answer) -> str:
    """Read a docstring as one line."""
    return " ".join((function.__doc__ or "").split())
