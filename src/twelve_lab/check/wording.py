"""Write shapes, positions and numbers for the messages of the checker."""

import re

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Task
from twelve_lab.show.format import format_number


def axes_of(task: Task, index: int, expected: Tensor) -> tuple[str, ...]:
    """Read the axes of an answer from the contract; () where it does not list them."""
    names = axes_named(task.contract, index)
    if names[:1] == ("*batch",):
        names = (*("batch", "seq")[: expected.ndim - len(names) + 1], *names[1:])
    return names if len(names) == expected.ndim else ()


def axes_named(contract: str, index: int = 0) -> tuple[str, ...]:
    """Read the axes of one answer after the arrow of a contract; () where there are none."""
    before, _, answer = contract.rpartition("->")
    groups = re.findall(r"\(([^()]*)\)", answer) if before else []
    return tuple(groups[index].split(", ")) if index < len(groups) else ()


def named(axes: tuple[str, ...], sizes: torch.Size) -> str:
    """Write sizes with the names of their axes."""
    written = f"({', '.join(map(str, sizes))})"
    return f"({', '.join(axes)}) = {written}" if axes else written


def sizes_of(x: Tensor) -> str:
    """Write the shape of a tensor."""
    return named((), x.shape)


def axis_of(axis: int, axes: tuple[str, ...]) -> str:
    """Write the index of an axis, with its name if it has one."""
    return f"{axis} ({axes[axis]})" if axes and axes[axis] != "1" else str(axis)


def place_of(place: list[int], axes: tuple[str, ...]) -> str:
    """Write an index, with the names of the axes where they are distinct."""
    # (1, 1, length, length) does not identify an axis by its name.
    if len(set(axes)) < len(place):
        return f"[{', '.join(map(str, place))}]"
    return f"[{', '.join(f'{axis} {index}' for axis, index in zip(axes, place, strict=True))}]"


def apart(got: float, expected: float) -> tuple[str, str]:
    """Write two numbers with enough digits to distinguish them."""
    for decimals in range(4, 10):
        texts = format_number(got, decimals), format_number(expected, decimals)
        if texts[0] != texts[1]:
            break
    return texts
