"""Explain an edit in words, with one sentence for each operator.

Each sentence states which code gives the same numbers, so it remains true if the learner's code is
wrong for another reason.
"""

import ast
import re
from typing import Any

from torch import Tensor

from twelve_lab.check.attempt import expected
from twelve_lab.check.edits import ALONG, Edit, Place, called, number_of
from twelve_lab.check.search import Program, quiet
from twelve_lab.check.stages import axes_named
from twelve_lab.exercises.declare import Task
from twelve_lab.exercises.parts import with_part
from twelve_lab.messages import declared, message

# One sentence per operator. `right` is code of the right answer. `wrong` is its replacement, which
# gives the learner's numbers.
SENTENCES = {
    "named axis": "Your numbers are exactly those of `{wrong}`, which runs along the {got} axis. "
    "It has to run along the {due} axis: `{right}`.",
    "named size": "Your numbers are exactly those of `{wrong}`, the size of the {got} axis. It has "
    "to be the size of the {due} axis: `{right}`.",
    "axis": "Your numbers are exactly those of `{wrong}`, along another axis than `{right}`.",
    "drop operand": "Your numbers are exactly those of `{wrong}`. A part of `{right}` is missing.",
    "drop call": "Your numbers are exactly those of `{wrong}`. A step of `{right}` is missing.",
    "negation": "Your numbers are exactly those of `{wrong}`, the opposite of `{right}`.",
    "comparison": "Your numbers are exactly those of the comparison `{wrong}` in place of "
    "`{right}`.",
    "swap operands": "Your numbers are exactly those of `{wrong}`: the two sides of `{right}` are "
    "swapped.",
    "swap items": "Your numbers are exactly those of `{wrong}`: two parts of `{right}` are "
    "swapped.",
    "exchange": "Your numbers are exactly those you get if `{wrong}` and `{right}` are swapped.",
    "everywhere": "Your numbers are exactly those you get with `{wrong}` in place of `{right}`, "
    "wherever it occurs.",
    "pattern": "Your numbers are exactly those of the pattern in `{wrong}`. It has to be "
    "`{right}`.",
    "reshape": "Your numbers are exactly those of a reshape without `{right}`: the shape is right, "
    "but the numbers are in other places.",
    "halves": "Your numbers are exactly those of `{wrong}` in place of `{right}`: halves and pairs "
    "are confused.",
    "move call": "Your numbers are exactly those of `{wrong}`: two steps of `{right}` are in "
    "another order.",
    "regroup": "Your numbers are exactly those of `{wrong}`. Mind the parentheses of `{right}`.",
    "branch": "Your numbers are exactly those you get if the condition `{right}` has no effect.",
    "drop statement": "Your numbers are exactly those you get without the step `{right}`.",
    "swap statements": "Your numbers are exactly those you get if the step `{right}` comes later.",
    "repeat step": "Your numbers are exactly those of `{wrong}`, which does a step of `{right}` "
    "twice.",
    "transpose": "Your numbers are exactly those of `{wrong}`: axes of `{right}` are swapped.",
    "other": "Your numbers are exactly those of `{wrong}` in place of `{right}`.",
}


def explanation(task: Task, hits: list[tuple[Program, Edit]]) -> str:
    """Explain wrong numbers by edits of the right answer that give the same numbers.

    Args:
        task: The task.
        hits: One edit, or two if both are likely. For two, only the code to check is named.
    """
    program, edit = hits[0]
    if len(hits) > 1:
        return message(
            "Your numbers come out if `{right}` is computed in another way. Compare this step with "
            "yours.",
            right=edit.before,
        )
    operator = "everywhere" if edit.everywhere else edit.operator
    values = {"right": edit.before, "wrong": edit.after}
    if operator in ("everywhere", "exchange"):
        place, new = edit.changes[0]
        values = {"right": ast.unparse(place.node), "wrong": ast.unparse(new)}
    names = _axes(task, program, edit) if operator == "axis" else None
    if names is not None:
        operator = "named size" if called(edit.where.node) == "size" else "named axis"
        values |= {"got": names[0], "due": names[1]}
    return declared(SENTENCES.get(operator, SENTENCES["other"])).format(**values)


def repair_place(edit: Edit) -> str:
    """Name the line of the learner's code to look at."""
    return message("Look at line {line}: `{code}`.", line=edit.line, code=edit.before)


def repair_change(edit: Edit) -> str:
    """Describe the change that makes all cases pass."""
    place, new = edit.changes[0]
    line, old = edit.line, ast.unparse(place.node)
    if edit.operator == "drop statement":
        return message("Without line {line}, `{code}`, all cases pass.", line=line, code=old)
    if edit.operator == "swap statements":
        return message("All cases pass if line {line}, `{code}`, comes later.", line=line, code=old)
    if edit.operator == "exchange":
        return message(
            "All cases pass if you swap `{one}` and `{other}` from line {line} on.",
            line=line,
            one=old,
            other=ast.unparse(new),
        )
    others = [change for change in edit.changes if ast.unparse(change[0].node) != old]
    if others:
        second = others[0]
        return message(
            "From line {line} on, all cases pass with `{after}` in place of `{before}`, and the "
            "same change elsewhere, such as `{other_after}` in place of `{other_before}`.",
            line=line,
            before=old,
            after=ast.unparse(new),
            other_before=ast.unparse(second[0].node),
            other_after=ast.unparse(second[1]),
        )
    if edit.everywhere:
        return message(
            "From line {line} on, all cases pass with `{after}` in every place of `{before}`.",
            line=line,
            before=old,
            after=ast.unparse(new),
        )
    return message(
        "In line {line}, all cases pass with `{after}` in place of `{before}`.",
        line=line,
        before=edit.before,
        after=edit.after,
    )


def _axes(task: Task, program: Program, edit: Edit) -> tuple[str, str] | None:
    """Name the axis that an edited step uses, and the axis that it must use; None if unknown."""
    call = edit.where.node
    if not isinstance(call, ast.Call) or called(call) not in ALONG:
        return None
    method = isinstance(call.func, ast.Attribute) and "torch" not in ast.unparse(call.func.value)
    source = Place(call.func, "value", None) if method else Place(call, "args", 0)
    shape = _shape_of(task, program, source)
    place, new = edit.changes[0]
    known, axes = _names_of_sizes(task), (number_of(new), number_of(place.node))
    if shape is None or not all(-len(shape) <= axis < len(shape) for axis in axes):
        return None
    got, due = (known.get(shape[axis], "") for axis in axes)
    return (got, due) if got and due and got != due else None


def _shape_of(task: Task, program: Program, place: Place) -> tuple[int, ...] | None:
    """Run the last case, and record the shape of a value in the right answer."""
    seen: list[tuple[int, ...]] = []

    def note(value: Any) -> Any:
        seen.append(tuple(value.shape) if isinstance(value, Tensor) else ())
        return value

    noted = ast.Call(ast.Name("_note", ast.Load()), [place.node], [])
    with Edit("wrap", ((place, noted),), None), quiet():
        answer = with_part(task.right, program.answer, program.build(_note=note))
        task.run(answer, list(task.cases().values())[-1])
    return seen[0] if seen else None


def _names_of_sizes(task: Task) -> dict[int, str]:
    """Map each size in the last case, where all sizes differ, to its name in the contract."""
    call = expected(task)[-1]
    tensors = [x for x in call.given if isinstance(x, Tensor)]
    inputs = re.findall(r"\w \(([^()]*)\)", task.contract.partition("->")[0])
    axes = [tuple(text.split(", ")) for text in inputs]
    # The contract of a layer lists its parameters, then the input.
    axes = [*axes[-1:], *axes[:-1]] if isinstance(task.right, type) else axes
    pairs = list(zip(axes, tensors, strict=False)) if len(axes) == len(tensors) else []
    pairs += [(axes_named(task.contract, i), x) for i, x in enumerate(call.values)]
    known: dict[int, str] = {}
    for names, x in pairs:
        if len(names) == x.ndim:
            for name, length in zip(names, x.shape, strict=True):
                known.setdefault(length, name)
    return known
