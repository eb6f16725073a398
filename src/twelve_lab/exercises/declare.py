"""How an exercise is declared: a task or a question, followed by its mistakes.

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

The docstring of a right answer is the contract of the exercise. A mistake has an id, by which the
course refers to it. The difference from the right answer is an edit, as
`twelve_lab.exercises.edit` applies it, or another function, `by`; decorate a longer function with
its sentence as docstring. `again` declares another version of a mistake. `notes` declares wrong
answers without an id, if the search would not find them or would explain them less well. Every
larger exercise whose right answer calls this one has its mistakes and notes too.

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

# The arguments of one call, by the name of the case, which appears in messages.
Cases = dict[str, tuple[Any, ...]]
Answer = Callable[..., Any]
# Patterns and their replacements.
Edit = dict[str, str]


def as_tensors(answer: Any) -> tuple[Tensor, ...]:
    """Return an answer as a tuple of tensors.

    Raises:
        TypeError: If it is neither a tensor nor several tensors.
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
    """A copy of a function or a class with changes, made when it is needed.

    Args:
        right: A function or a class that is defined in a file.
        changes: Patterns and their replacements. In a class, the name of a method may come first:
            "forward: self.norm(X)".
        name: Name of the copy, if it differs.
    """

    right: Answer
    changes: Edit
    name: str = ""

    @cached_property
    def function(self) -> Answer:
        """Make the copy.

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
    """The common part of a task and a question.

    Args:
        name: Name of the exercise.
        contract: Its inputs, an arrow, and the axes of its output.
        right: The right answer, or a function that computes it for a question.
        measures: The ability that it tests, for teachers.
        mistakes: Wrong answers by the id of the mistake, the most usual version first. Those of
            smaller exercises are not in it: see `twelve_lab.check.catalogue`.
        misconceptions: Wrong answers without an id, by their message.
    """

    name: str
    contract: str
    right: Answer
    measures: str = field(default="", kw_only=True)
    mistakes: dict[str, list[Answer | Edited]] = field(default_factory=dict, kw_only=True)
    misconceptions: dict[str, Answer | Edited] = field(default_factory=dict, kw_only=True)

    def __call__(self, *given: Any) -> Any:
        """Return the right answer."""
        return self.right(*given)


@dataclass(eq=False)
class Task(Exercise):
    """A function or a class to write, with cases that distinguish its mistakes.

    Args:
        cases: Draws new arguments in float64 on every call, so that a function that changes its
            input affects no other run.
        forbidden: Operations that the solution must not use: names, operators such as "@", "for"
            or "[:]".
        observe: Reads the tensors to compare from an answer that is not a tensor.
        by_gradient: Whether the gradients of the arguments are part of the answer; None if they
            may be cut off, because nothing is trained through the answer.
        run: Calls an answer with the arguments of a case; a class is built first.
        solved: The solution for the learner, if the task forbids the one of `right`.
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
    """A value to predict before it is computed: a tuple is a shape, a list a table of numbers.

    Args:
        options: The words to choose from, if the answer is a set of words.
        decimals: Number of decimals of a right number.
        worked: The calculation on paper as a Python expression, if it explains the value.
    """

    options: tuple[str, ...] = ()
    decimals: int = 4
    worked: str = ""


@dataclass(frozen=True)
class Mistake:
    """A classic mistake.

    Args:
        id: Its name in the course.
        sentence: The error in the answer, and what to do instead.
        task: Name of the smallest task in which it can be made.
        version: A typical wrong answer to that task.
        step: Number of the notebook that teaches it; "" for a task that belongs to no lesson.
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
        module: Its full name, as in `__name__`.
    """
    return _SHEETS.setdefault(module, Sheet({}, {}))


def task(cases: Callable[[], Cases], *, name: str = "", **settings: Any) -> Callable[..., Task]:
    """Declare a task by its right answer, whose docstring is the contract.

    Args:
        cases: Draws the arguments of each case.
        name: Its name, if it differs from the name of the right answer.
        settings: Further arguments of Task.
    """
    return lambda right: _declared(
        Task(name or right.__name__, _sentence(right), right, cases, **settings)
    )


def question(**settings: Any) -> Callable[..., Question]:
    """Declare a question by a function that computes its answer; the docstring is the contract.

    Args:
        settings: Further arguments of Question.
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
    """Declare a classic mistake at the smallest task in which it can be made.

    Args:
        at: The task.
        id: Its name in the course.
        sentence: The error, and what to do instead. Without it, this decorates the wrong
            answer, and its docstring is the sentence.
        edit: The changes of the right answer.
        by: A wrong answer, if no changes of the right one describe it.
        step: Number of the notebook that teaches it, if it is not the one of the task.

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
        id: Name of the mistake.
        edit: The changes of the right answer.
        by: A wrong answer, if no changes of the right one describe it.
    """
    at.mistakes.setdefault(id, []).append(by or Edited(at.right, edit))


def notes(at: Exercise, wrong: dict[str, Edit | Edited | Answer | Prediction | set[str]]) -> None:
    """Declare wrong answers to this exercise that have no id.

    Args:
        at: The task or question.
        wrong: The difference from the right answer by the message for the learner: changes, or
            another function, also as an edit; for a question also the value itself.
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
    """Define a function or a class whose source is a changed copy of another one."""
    name = name or right.__name__
    for word in ("def", "class"):
        text = text.replace(f"{word} {right.__name__}(", f"{word} {name}(", 1)
    # Tracebacks and `source` show the new text.
    file = f"{inspect.getsourcefile(right)}:{name}:{key}"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    defined: dict[str, Answer] = {}
    exec(compile(text, file, "exec"), vars(sys.modules[right.__module__]), defined)
    return defined[name]


# A right answer is copied once for each of its mistakes, and parsing its file is slow.
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
    """Return a docstring as one line."""
    return " ".join((function.__doc__ or "").split())
