"""Put tensors into words, as the messages of the checker need them."""

import re
from typing import Any

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Task
from twelve_lab.show.format import format_number


def a_or_an(answer: Any) -> str:
    """Name the type of an answer with its article."""
    name = type(answer).__name__
    return f"an {name}" if name[0].lower() in "aeiou" or name == "ndarray" else f"a {name}"


def kind_of(x: Tensor) -> str:
    """Say in words what a tensor holds."""
    if x.dtype == torch.bool:
        return "True and False"
    return "real numbers" if x.is_floating_point() else "whole numbers"


def axes_of(task: Task, index: int, due: Tensor) -> tuple[str, ...]:
    """Read the axes of an answer from the contract; none where it does not list them."""
    names = axes_named(task.contract, index)
    if names[:1] == ("*batch",):
        names = (*("batch", "seq")[: due.ndim - len(names) + 1], *names[1:])
    return names if len(names) == due.ndim else ()


def axes_named(contract: str, index: int = 0) -> tuple[str, ...]:
    """Read the axes of one answer from behind the arrow of a contract; none where none stand."""
    before, _, answer = contract.rpartition("->")
    groups = re.findall(r"\(([^()]*)\)", answer) if before else []
    return tuple(groups[index].split(", ")) if index < len(groups) else ()


def named(axes: tuple[str, ...], sizes: torch.Size) -> str:
    """Write sizes behind the names of their axes."""
    written = f"({', '.join(map(str, sizes))})"
    return f"({', '.join(axes)}) = {written}" if axes else written


def sizes_of(x: Tensor) -> str:
    """Write the sizes of a tensor."""
    return f"({', '.join(map(str, x.shape))})"


def count_axes(x: Tensor) -> str:
    """Say how many axes a tensor has."""
    return f"{x.ndim} {'axis' if x.ndim == 1 else 'axes'}"


def place_of(place: list[int], axes: tuple[str, ...]) -> str:
    """Write an index, with the names of the axes where they tell them apart."""
    # (1, 1, length, length) says nothing by its names.
    if len(set(axes)) < len(place):
        return f"[{', '.join(map(str, place))}]"
    return f"[{', '.join(f'{axis} {index}' for axis, index in zip(axes, place, strict=True))}]"


def apart(got: float, due: float) -> tuple[str, str]:
    """Write two numbers with enough digits to tell them apart."""
    for decimals in range(4, 10):
        texts = format_number(got, decimals), format_number(due, decimals)
        if texts[0] != texts[1]:
            break
    return texts
