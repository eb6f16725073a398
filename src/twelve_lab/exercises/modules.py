"""Answers that are classes: a layer is built, gets the numbers of the case, and is called."""

from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class Misbuilt(ValueError):
    """What kept a layer from being built: its message needs no other words around it."""


def build(
    answer: Callable[..., Any], sizes: tuple[Any, ...], shapes: Mapping[str, torch.Size]
) -> nn.Module | EllipsisType:
    """Build a layer, and see that it registers what it should.

    Args:
        answer: The class.
        sizes: What it is built from.
        shapes: The shapes of its parameters and buffers, by name.

    Returns:
        The layer; `...` if the class is still to be written.

    Raises:
        Misbuilt: If it is no class of layers, has no forward, or registers other parameters and
            buffers, or of other shapes.
    """
    if isinstance(answer, nn.Module):
        raise Misbuilt("The layer is built already: hand in the class itself, without ().")
    if not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        raise Misbuilt("A class is due that begins with class Name(nn.Module).")
    if answer.__init__ is nn.Module.__init__ and answer.forward is nn.Module.forward:
        return ...
    layer = answer(*sizes)
    registered = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
    if answer.forward is nn.Module.forward:
        if not registered:
            return ...
        raise Misbuilt(f"{answer.__name__} has no method forward(self, ...) yet.")
    if set(registered) != set(shapes):
        built = f"{answer.__name__}({', '.join(map(repr, sizes))})"
        missing, other = _apart(shapes, registered), _apart(registered, shapes)
        twice = dict(layer.named_parameters(remove_duplicate=False)).keys() - registered.keys()
        if twice & shapes.keys():
            raise Misbuilt(f"In {built}, {missing} is no layer of its own: build one for each.")
        if not other:
            raise Misbuilt(
                f"{built} does not register {missing}: what is assigned to self must be an "
                "nn.Parameter or a layer, or go through register_buffer."
            )
        instead = f" where {missing} is due" if missing else ", which is not due"
        raise Misbuilt(f"{built} registers {other}{instead}.")
    for name, shape in shapes.items():
        if registered[name].shape != shape:
            has = tuple(registered[name].shape)
            raise Misbuilt(f"{name} has the shape {has}, and {tuple(shape)} is due.")
    return layer


def run_layer(
    answer: Callable[..., Any],
    sizes: tuple[Any, ...],
    numbers: Mapping[str, Tensor | None],
    *given: Any,
) -> Any:
    """Build a layer, put numbers into it, and call it.

    Args:
        answer: The class.
        sizes: What it is built from.
        numbers: What its parameters and buffers shall hold, by name; None where there is none.
        given: What it is called with.

    Returns:
        What the layer gives; `...` if the class is still to be written.
    """
    due = {name: number for name, number in numbers.items() if number is not None}
    layer = build(answer, sizes, {name: number.shape for name, number in due.items()})
    return layer if layer is ... else functional_call(layer, due, given)


def _apart(names: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """List what only the first register holds; a layer of several parts by their names."""
    found = [name for name in names if name not in others]
    parts = {name.partition(".")[0]: None for name in others}
    short = [one if (one := name.partition(".")[0]) not in parts else name for name in found]
    return " and ".join(dict.fromkeys(short))
