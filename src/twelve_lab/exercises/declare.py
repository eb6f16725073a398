"""Declare an exercise: a task or a question, followed by its mistakes.

    @task(_cases)
    def attention_scores(query, key):
        '''query (batch, query, d_k), key (batch, key, d_k) -> (batch, query, key)'''
        return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))

    mistake(
        attention_scores,
        "scale-missing",
        "The scores are not scaled: divide them by the square root of d_k.",
        {"X / math.sqrt(query.size(-1))": "X"},
    )

The docstring of a right answer is the contract of the exercise. The course refers to a mistake by
its id. A mistake is either an edit of the right answer (see `twelve_lab.exercises.edit`) or another
function, `by`. For a longer function, use `mistake` as a decorator, and write its sentence as the
docstring. `again` declares another version of a mistake. `notes` declares wrong answers without an
id, if the search would not find them or would explain them less well. Larger exercises whose right
answer calls this right answer inherit its mistakes and notes.

The solution that a learner sees is the right answer, or the function that `solved` declares.
"""

import ast
import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

from torch import Tensor

from twelve_lab.exercises.edit import edit as edit_source

# The arguments of one call, keyed by case name. Messages contain the case names.
Cases = dict[str, tuple[Any, ...]]
Answer = Callable[..., Any]
# Patterns and their replacements.
Edit = dict[str, str]


def as_tensors(answer: Any) -> tuple[Tensor, ...]:
    """Return an answer as a tuple of tensors.

    Raises:
        TypeError: If the answer is neither a tensor nor a tuple or list of tensors.
    """
    answers = answer if isinstance(answer, tuple | list) else (answer,)
    for x in answers:
        if not isinstance(x, Tensor):
            raise TypeError(f"answer must be a tensor, got {type(x).__name__}")
    return tuple(answers)


def by_position(answer: Answer, given: tuple[Any, ...]) -> Any:
    """Call an answer with the arguments of a case."""
    return answer(*given)


@dataclass(frozen=True, eq=False)
class Edited:
    """A copy of a function or a class with changes, built on first use.

    Args:
        right: A function or a class with source code in a file.
        changes: Patterns and their replacements. In a class, the name of a method may come first:
            "forward: self.norm(X)".
        name: Name of the copy, if it differs.
    """

    right: Answer
    changes: Edit
    name: str = ""

    @cached_property
    def function(self) -> Answer:
        """Build the copy.

        Raises:
            ValueError: If a pattern does not occur exactly once.
        """
        text = _bare(self.right)
        for pattern, replacement in self.changes.items():
            place = self.right.__name__
            if isinstance(self.right, type) and re.match(r"\w+: ", pattern):
                method, _, pattern = pattern.partition(": ")
                place = f"{place}.{method}"
            text = edit_source(text, place, {pattern: replacement})
        return _compiled(self.right, text, self.name, str(self.changes))


def made(version: Answer | Edited) -> Answer:
    """Return a declared version as a function or a class."""
    return version.function if isinstance(version, Edited) else version


@dataclass(eq=False)
class Exercise:
    """Base class of tasks and questions.

    Args:
        name: Name of the exercise.
        contract: Its inputs, an arrow, and the axes of its output.
        right: The right answer, or a function that computes it for a question.
        measures: The skill that the exercise tests, for teachers.
        mistakes: Wrong answers, keyed by mistake id, most common version first. Mistakes of smaller
            exercises are not included: see `twelve_lab.check.catalogue`.
        misconceptions: Wrong answers without an id, keyed by their message.
    """

    name: str
    contract: str
    right: Answer
    measures: str = field(default="", kw_only=True)
    mistakes: dict[str, list[Answer | Edited]] = field(default_factory=dict, kw_only=True)
    misconceptions: dict[str, Answer | Edited] = field(default_factory=dict, kw_only=True)

    def __call__(self, *given: Any) -> Any:
        """Call the right answer."""
        return self.right(*given)


@dataclass(eq=False)
class Task(Exercise):
    """A function or a class to write, with cases that distinguish its mistakes.

    Args:
        cases: Function that draws new float64 arguments on every call, so an answer that modifies
            its input does not affect other runs.
        forbidden: Operations that the solution must not use: names, operators such as "@", "for"
            or "[:]".
        observe: Function that reads the tensors to compare from the value that an answer returns.
        by_gradient: Whether the gradients of the arguments are part of the answer; None if they
            may be cut off, because nothing is trained through the answer.
        run: Function that calls an answer with the arguments of a case, after building a class.
        solved: The solution for the learner, if it differs from `right`.
    """

    cases: Callable[[], Cases]
    forbidden: tuple[str, ...] = ()
    observe: Callable[[Any], tuple[Tensor, ...]] = as_tensors
    by_gradient: bool | None = False
    run: Callable[[Answer, tuple[Any, ...]], Any] = by_position
    solved: Answer | None = None


# A shape, a number, a table of numbers, or some of the options.
Prediction = tuple[int, ...] | int | float | list[Any] | frozenset[str]


@dataclass(eq=False)
class Question(Exercise):
    """A value to predict before computing it: a tuple is a shape, a list is a table of numbers.

    Args:
        options: The words to choose from, if the answer is a set of words.
        decimals: Required number of decimals.
        worked: The calculation on paper as a Python expression, if it explains the value.
    """

    options: tuple[str, ...] = ()
    decimals: int = 4
    worked: str = ""


@dataclass(frozen=True)
class Mistake:
    """A classic mistake.

    Args:
        id: Identifier of the mistake in the course.
        sentence: The error in the answer, and what to do instead.
        task: Name of the smallest task in which the mistake can occur.
        version: A typical wrong answer to that task.
        step: Number of the notebook that teaches the mistake; "" if no lesson has the task.
    """

    id: str
    sentence: str
    task: str
    version: Answer | Edited
    step: str = ""

    @property
    def wrong(self) -> Answer:
        """A typical wrong answer to that task."""
        return made(self.version)


class Sheet(NamedTuple):
    """The declarations of one file of exercises, in order."""

    exercises: dict[str, Exercise]
    mistakes: dict[str, Mistake]


_SHEETS: dict[str, Sheet] = {}


def sheet(module: str) -> Sheet:
    """Return the declarations of a file.

    Args:
        module: Full name of the module, as in `__name__`.
    """
    return _SHEETS.setdefault(module, Sheet({}, {}))


def task(cases: Callable[[], Cases], *, name: str = "", **settings: Any) -> Callable[..., Task]:
    """Declare a task by its right answer, whose docstring is the contract.

    Args:
        cases: Draws the arguments of each case.
        name: Name of the task, if it differs from the name of the right answer.
        settings: Additional arguments of Task.
    """
    return lambda right: _declared(
        Task(name or right.__name__, _sentence(right), right, cases, **settings)
    )


def question(**settings: Any) -> Callable[..., Question]:
    """Declare a question by a function that computes its answer; the docstring is the contract.

    Args:
        settings: Additional arguments of Question.
    """
    return lambda right: _declared(Question(right.__name__, _sentence(right), right, **settings))


def solved(at: Task) -> Callable[[Answer], Answer]:
    """Declare the solution for the learner.

    Args:
        at: The task.
    """

    def declare(answer: Answer) -> Answer:
        if at.solved is not None:
            raise ValueError(f"{at.name}: solution declared twice")
        at.solved = answer
        return answer

    return declare


def mistake(
    at: Task,
    id: str,
    sentence: str = "",
    edit: Edit | None = None,
    *,
    by: Answer | Edited | None = None,
    step: str = "",
) -> Any:
    """Declare a classic mistake at the smallest task in which it can occur.

    Args:
        at: The task.
        id: Identifier of the mistake in the course.
        sentence: The error, and what to do instead. If it is empty, `mistake` returns a decorator
            for a wrong answer whose docstring is the sentence.
        edit: The changes to the right answer.
        by: A wrong answer, if no edit of the right answer describes it.
        step: Number of the notebook that teaches the mistake, if it differs from that of the task.

    Returns:
        The Mistake, or a decorator that returns it.
    """

    if not sentence:
        return lambda wrong: mistake(at, id, _sentence(wrong), by=wrong, step=step)
    wrong = by or Edited(at.right, edit, id.replace("-", "_"))
    new = Mistake(id, sentence, at.name, wrong, step)
    known = sheet(at.right.__module__).mistakes
    if id in known:
        raise ValueError(f"mistake {id} declared twice: use `again` for another version")
    known[id] = new
    again(at, id, by=wrong)
    return new


def again(
    at: Exercise, id: str, edit: Edit | None = None, *, by: Answer | Edited | None = None
) -> None:
    """Declare another version of a mistake, in the same exercise or in another one.

    Args:
        at: The task or question.
        id: Id of the mistake.
        edit: The changes to the right answer.
        by: A wrong answer, if no edit of the right answer describes it.
    """
    at.mistakes.setdefault(id, []).append(by or Edited(at.right, edit))


def notes(at: Exercise, wrong: dict[str, Edit | Edited | Answer | Prediction | set[str]]) -> None:
    """Declare wrong answers to this exercise that have no id.

    Args:
        at: The task or question.
        wrong: Wrong answers, keyed by the message for the learner. Each is a dict of changes to the
            right answer, an edited copy, or another function; for a question, also a value.
    """
    for sentence, difference in wrong.items():
        if sentence in at.misconceptions:
            raise ValueError(f"{at.name}: declared twice: {sentence!r}")
        if isinstance(difference, dict):
            at.misconceptions[sentence] = Edited(at.right, difference)
        elif isinstance(difference, Edited) or callable(difference):
            at.misconceptions[sentence] = difference
        else:
            value = frozenset(difference) if isinstance(difference, set) else difference
            at.misconceptions[sentence] = partial(_value, value)


def _value(value: Prediction) -> Prediction:
    return value


def _compiled(right: Answer, text: str, name: str, key: str) -> Answer:
    """Compile the changed source of a function or a class."""
    name = name or right.__name__
    for word in ("def", "class"):
        text = text.replace(f"{word} {right.__name__}(", f"{word} {name}(", 1)
    # Tracebacks and `source` show the new text.
    file = f"{inspect.getsourcefile(right)}:{name}:{key}"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    defined: dict[str, Answer] = {}
    exec(compile(text, file, "exec"), vars(sys.modules[right.__module__]), defined)
    return defined[name]


# Each mistake copies the right answer, and parsing the file is slow.
@cache
def _bare(function: Answer) -> str:
    """Return the source of a function without its docstring and its decorators."""
    text = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(text).body[0]
    lines = text.splitlines(keepends=True)
    if ast.get_docstring(tree) is not None:
        del lines[tree.body[0].lineno - 1 : tree.body[0].end_lineno]
    # The decorators would declare the exercise again.
    return "".join(lines[tree.lineno - 1 :])


def _declared(exercise: Any) -> Any:
    known = sheet(exercise.right.__module__).exercises
    if exercise.name in known:
        raise ValueError(f"exercise {exercise.name} declared twice")
    known[exercise.name] = exercise
    return exercise


def _sentence(function: Answer) -> str:
    """Return the docstring of a function as one line."""
    return " ".join((function.__doc__ or "").split())
