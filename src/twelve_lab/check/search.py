"""Explain a wrong answer by searching for one edit of the right answer or of the learner's code.

`explained` finds an edit of the right answer that gives exactly the learner's wrong numbers. It
looks up a hash of the results in fingerprints.json, which tools/write_fingerprints.py writes.
`repaired` finds an edit of the learner's code that makes all cases pass.
"""

import ast
import inspect
import io
import json
import re
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from functools import cache
from importlib.resources import files
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from twelve_lab.check.attempt import attempted, expected, names
from twelve_lab.check.catalogue import gives_the_same
from twelve_lab.check.compare import Outcome, agree, exact_on_cpu, outcome
from twelve_lab.check.edits import HOLE, Edit, edits, holes, number_of, size
from twelve_lab.exercises.declare import Answer, Task
from twelve_lab.exercises.edit import fill
from twelve_lab.exercises.parts import functions_of, names_in, parts, with_part

TABLE = "fingerprints.json"
CPU_SECONDS = 0.3
_MARGIN = 8.0  # ignore explanations that cost this much more than the likeliest one
_LONGEST = 12  # the most expressions that a repair inserts
_FILE = "<edited>"  # the file name of edited code
# These edits hide a fault, and do not repair it.
_CURES = re.compile(r"nan_to_num|double|detach|roll\(0\b|% -1|1000000000\.0|(\b\w+\b) [|&] \1\b")
_LIBRARIES = ("torch", "math", "einops", "functools", "itertools", "twelve")
_SIDE_EFFECTS = re.compile(
    r"open|input|exec|eval|compile|breakpoint|exit|quit|save|load|hub|tofile|from_file|numpy"
    r"|manual_seed|seed|set_.*|__import__|setattr|delattr|globals|vars"
)
# The torch of the course in a browser raises NotHere for operations that it lacks.
_MISSING = (torch.NotHere,) if hasattr(torch, "NotHere") else ()
_clock = getattr(time, "thread_time", time.process_time)


class Program(NamedTuple):
    """A function or a class, and its syntax tree."""

    answer: Answer
    tree: Any

    def functions(self) -> list[ast.FunctionDef]:
        """The function itself, or the methods of the class."""
        body = self.tree.body if isinstance(self.tree, ast.ClassDef) else [self.tree]
        return [each for each in body if isinstance(each, ast.FunctionDef)]

    def build(self, **names: Any) -> Answer:
        """Compile the tree in its current state.

        Args:
            names: Additional global names.

        Raises:
            SyntaxError, ValueError, TypeError: If the tree is not valid Python.
        """
        function, free, cells = functions_of(self.answer)[0], (), ()
        if function is self.answer:
            free, cells = function.__code__.co_freevars, function.__closure__ or ()
        outer = ast.parse(f"def outer({', '.join(free)}):\n pass\n return {self.tree.name}")
        outer.body[0].body[0] = self.tree
        space = {**function.__globals__, **names} if names else function.__globals__
        defined: dict[str, Any] = {}
        exec(compile(outer, _FILE, "exec"), space, defined)
        return defined["outer"](*(cell.cell_contents for cell in cells))


def read(answer: Answer) -> Program | None:
    """Parse a function or a class; None if its source is unknown or not a definition."""
    if not isinstance(answer, FunctionType | type):
        return None
    try:
        lines, first = inspect.getsourcelines(answer)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if getattr(tree, "name", None) != answer.__name__:
        return None
    ast.increment_lineno(tree, first - 1)
    tree.decorator_list = []
    return Program(answer, tree)


# Edits of the right answer.


def all_edits(task: Task) -> Iterator[tuple[Program, Edit]]:
    """Yield the edits of a right answer and of its parts, in a fixed order."""
    for part in parts(task.right):
        if program := read(part):
            for function in program.functions():
                yield from ((program, edit) for edit in edits(function))


def edited(task: Task, program: Program, edit: Edit) -> Answer | None:
    """Build a right answer with an edit of one of its parts; None if it is not valid Python."""
    with edit, suppress(SyntaxError, ValueError, TypeError):
        return with_part(task.right, program.answer, program.build())
    return None


def results_of(task: Task, answer: Answer) -> dict[str, Outcome] | None:
    """Run an answer on all cases; None if the results say nothing about the code."""
    results: dict[str, Outcome] = {}
    for case, given in task.cases().items():
        results[case] = outcome(task, answer, given)
        if results[case].error is not None:
            return None
    return results if _are_telling(results.values()) else None


def _are_telling(results: Iterable[Outcome]) -> bool:
    """Return whether results say something about the code.

    No result may be an error, each floating-point tensor must have a finite element, and some
    result must not be all zeros.
    """
    if any(result.error is not None for result in results):
        return False
    numbers = [[x for x in each.values if x.is_floating_point()] for each in results]
    finite = all(bool(x.isfinite().any()) for some in numbers for x in some)
    return finite and any(all(bool((x != 0).any()) for x in some) for some in numbers)


def fingerprint(results: Iterable[Outcome]) -> float:
    """Hash all results into one number.

    Results that differ only by rounding errors give nearly equal numbers. Collisions are rare, and
    running the answers exposes them.
    """
    total = 0.0
    for index, result in enumerate(results, start=1):
        for x in (*result.values, *result.gradients):
            if x is None:
                continue
            numbers = x.detach().double().nan_to_num(7.0, 8.0, -9.0).flatten().clamp(-1e6, 1e6)
            waves = (torch.arange(len(numbers), dtype=torch.float64, device="cpu") + index).cos()
            total += index * (numbers @ waves).item() + sum(x.shape) / 8
    return total


@cache
def _table() -> dict[str, list[tuple[float, int]]]:
    return json.loads(files("twelve_lab.check").joinpath(TABLE).read_text(encoding="utf-8"))


def explained(task: Task, results: Mapping[str, Outcome]) -> list[tuple[Program, Edit]]:
    """Find edits of the right answer that give the learner's numbers in all cases.

    Args:
        task: The task.
        results: The results of the learner's answer, keyed by case name.

    Returns:
        At most two edits, likeliest first. A second run of each gave the learner's numbers.
    """
    if not _are_telling(results.values()):
        return []
    mark = fingerprint(results.values())
    stored = _table().get(task.name, [])
    near = [n for x, n in stored if abs(x - mark) <= 1e-4 * max(1.0, abs(x))]
    if not near:
        return []
    every = list(all_edits(task))
    hits: list[tuple[Program, Edit]] = []
    with quiet():
        for program, edit in (every[n] for n in near if n < len(every)):
            answer = edited(task, program, edit)
            if answer is not None and gives_the_same(task, answer, results):
                hits.append((program, edit))
    hits.sort(key=lambda hit: hit[1].cost)
    return [hit for hit in hits if hit[1].cost <= hits[0][1].cost + _MARGIN][:2]


# Edits of the learner's code.


def repaired(task: Task, answer: Answer) -> Edit | None:
    """Find one edit of the learner's code that makes all cases pass.

    Args:
        task: The task.
        answer: A wrong answer. Its code runs many times, so the search accepts only code without
            side effects that uses known libraries such as torch and math.

    Returns:
        The likeliest such edit found within CPU_SECONDS; None if there is none.
    """
    program = read(answer)
    if program is None or not _is_harmless(program):
        return None
    calls = expected(task, by_gradient=bool(task.by_gradient))
    # Run the last case first: its sizes are all distinct, so most edits fail there.
    wanted = {call.case: call for call in reversed(calls)}
    end = _clock() + CPU_SECONDS
    candidates = [edit for function in program.functions()
                  for edit in edits(function, *_borrowed(task, function))]  # fmt: skip
    with quiet():
        for edit in sorted(candidates, key=lambda edit: edit.cost):
            if _clock() > end:
                break
            if edit.inserted > _LONGEST or _is_no_repair(edit):
                continue
            with edit, suppress(SyntaxError, ValueError, TypeError):
                candidate = program.build()
                if not in_time(end, lambda new=candidate: _passes(task, new, wanted)):
                    continue
                if not (names(candidate) - names(answer)).intersection(task.forbidden):
                    return edit
    return None


def _is_no_repair(edit: Edit) -> bool:
    place, new = edit.changes[0]
    whole = isinstance(place.holder, ast.Return)
    if whole and edit.operator in ("name", "inner part", "other expression"):
        return True
    # The message "0 in every place of 1" would be false: the edit does not change x.size(1).
    if edit.everywhere and number_of(place.node) is not None:
        return True
    return isinstance(new, ast.AST) and _CURES.search(ast.unparse(new)) is not None


def _passes(task: Task, candidate: Answer, wanted: Mapping[str, Outcome]) -> bool:
    cases = task.cases()
    for case, due in wanted.items():
        tried = attempted(task, candidate, case, cases[case])
        if not agree(tried, due, 1e-7) or tried.changed is not None:
            return False
    return True


def _borrowed(task: Task, function: ast.FunctionDef) -> tuple[list[ast.expr], list[ast.expr]]:
    """Collect steps and expressions of the right answers, with the learner's argument names."""
    steps: dict[str, ast.expr] = {}
    donors: dict[str, ast.expr] = {}
    for right in filter(None, (task.right, task.solved)):
        program = read(right)
        for theirs in program.functions() if program else ():
            if function.name != theirs.name and theirs is not program.tree:
                continue
            pairs = zip(_parameters(theirs), _parameters(function), strict=False)
            names = {name: ast.Name(own, ast.Load()) for name, own in pairs}
            known = {*names, *_LIBRARIES, "F", HOLE}
            for node in filter(_is_short, ast.walk(theirs)):
                around = [build(ast.Name(HOLE, ast.Load())) for build, _ in holes(node)]
                for pieces, new in [(donors, node), *((steps, step) for step in around)]:
                    if {x.id for x in ast.walk(new) if isinstance(x, ast.Name)} <= known:
                        new = fill(new, names)
                        pieces[ast.unparse(new)] = new
            # Never insert the whole right answer.
            for node in ast.walk(theirs):
                if isinstance(node, ast.Return) and node.value is not None:
                    donors.pop(ast.unparse(fill(node.value, names)), None)
    return list(steps.values()), list(donors.values())


def _is_short(node: ast.AST) -> bool:
    kinds = ast.Call | ast.BinOp | ast.Attribute | ast.Subscript | ast.UnaryOp | ast.Compare
    return isinstance(node, kinds) and size(node) <= _LONGEST


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args]


def _is_harmless(program: Program) -> bool:
    """Return whether code can safely run many times: no side effects, only known libraries."""
    refused = (ast.Global, ast.Nonlocal, ast.Try, ast.Import, ast.ImportFrom, ast.Yield, ast.Await)
    if any(isinstance(node, refused) for node in ast.walk(program.tree)):
        return False
    functions = functions_of(program.answer)
    return all(_uses_libraries(function, {program.answer}) for function in functions)


def _uses_libraries(function: FunctionType, seen: set[Any]) -> bool:
    seen.add(function)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    names = set(names_in(function.__code__))
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    for value in (*cells, *values):
        if isinstance(value, Hashable) and value in seen:
            continue
        if isinstance(value, FunctionType) and not _is_library(value.__module__):
            if not _uses_libraries(value, seen):
                return False
        elif isinstance(value, ModuleType):
            if not _is_library(value.__name__):
                return False
        elif not isinstance(value, int | float | str | None):
            if not _is_library(getattr(value, "__module__", None)):
                return False
    return not any(_SIDE_EFFECTS.fullmatch(name) for name in names)


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES


class _TooLong(BaseException):
    """Raised when a search runs out of time. A learner's `except Exception` does not catch it."""


def in_time(end: float, test: Callable[[], bool]) -> bool:
    """Run a test, and return False if it uses too much CPU time, such as in an endless loop."""
    before = sys.gettrace()

    def trace(frame: Any, event: str, argument: Any) -> Callable[..., Any] | None:
        # Do not raise in a generator: if Python is closing it, Python would print the error.
        resumed = event == "call" and frame.f_code.co_flags & inspect.CO_GENERATOR
        if _clock() > end and not resumed:
            raise _TooLong
        # Trace each line of edited code, and each call of other code.
        return trace if frame.f_code.co_filename == _FILE else None

    # Call no other function between these lines: the trace would include it.
    sys.settrace(trace)
    try:
        return test()
    except (_TooLong, *_MISSING):
        return False
    finally:
        sys.settrace(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress output and warnings, and compute in float64 on the CPU."""
    with exact_on_cpu(), redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
