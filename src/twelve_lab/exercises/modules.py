"""Run answers that are classes: build a layer, set its parameters, and call it."""

from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from twelve_lab.messages import message


class Misbuilt(ValueError):
    """Raised if a layer cannot be built, with a message for the learner."""


def build(
    answer: Callable[..., Any],
    sizes: tuple[Any, ...],
    shapes: Mapping[str, torch.Size],
    *,
    trained: bool = True,
) -> nn.Module | EllipsisType:
    """Build a layer, and check the parameters and buffers that it registers.

    Args:
        answer: The class.
        sizes: The arguments of its constructor.
        shapes: The shapes of its parameters and buffers, by name.
        trained: Whether all of them must be trainable parameters.

    Returns:
        The layer; `...` if the class is not written yet.

    Raises:
        Misbuilt: If the answer is not a subclass of nn.Module, has no forward method, registers
            unexpected names or shapes, or has untrainable parameters.
    """
    if isinstance(answer, nn.Module):
        raise Misbuilt(message("The layer is already built. Pass the class itself, without ()."))
    if not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        raise Misbuilt(
            message("The answer must be a class that begins with class Name(nn.Module).")
        )
    if answer.__init__ is nn.Module.__init__ and answer.forward is nn.Module.forward:
        return ...
    layer = answer(*sizes)
    registered = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
    if answer.forward is nn.Module.forward:
        if not registered:
            return ...
        raise Misbuilt(
            message("{layer} has no method forward(self, ...) yet.", layer=answer.__name__)
        )
    if set(registered) != set(shapes):
        raise Misbuilt(_other_names(answer, sizes, layer, registered, shapes))
    for name, shape in shapes.items():
        got = tuple(registered[name].shape)
        if got != tuple(shape):
            raise Misbuilt(
                message(
                    "{name} has shape {got}, expected {expected}.",
                    name=name,
                    got=got,
                    expected=tuple(shape),
                )
            )
        if trained and not registered[name].requires_grad:
            raise Misbuilt(
                message(
                    "{name} is not trained. Assign an nn.Parameter to self, and keep its "
                    "requires_grad.",
                    name=name,
                )
            )
    return layer


def _other_names(
    answer: type,
    sizes: tuple[Any, ...],
    layer: nn.Module,
    registered: Mapping[str, Tensor],
    shapes: Mapping[str, torch.Size],
) -> str:
    """Describe the difference between the registered names and the expected ones."""
    built = f"{answer.__name__}({', '.join(map(repr, sizes))})"
    missing, extra = _difference(shapes, registered), _difference(registered, shapes)
    twice = dict(layer.named_parameters(remove_duplicate=False)).keys() - registered.keys()
    if twice & shapes.keys():
        return message(
            "{layer} uses one layer under two names: build a separate layer for {names}.",
            layer=built,
            names=missing,
        )
    if not extra:
        return message(
            "{layer} does not register {names}. Assign an nn.Parameter or a layer to "
            "self, or call register_buffer.",
            layer=built,
            names=missing,
        )
    if missing:
        return message(
            "{layer} registers {names}, expected {expected}.",
            layer=built,
            names=extra,
            expected=missing,
        )
    return message("{layer} registers {names}, which it does not need.", layer=built, names=extra)


def run_layer(
    answer: Callable[..., Any],
    sizes: tuple[Any, ...],
    numbers: Mapping[str, Tensor | None],
    *given: Any,
) -> Any:
    """Build a layer, set its parameters, and call it.

    Args:
        answer: The class.
        sizes: The arguments of its constructor.
        numbers: The values of its parameters and buffers, by name; None for a parameter that the
            layer must not have.
        given: The arguments of the forward method.

    Returns:
        The output of the layer; `...` if the class is not written yet.
    """
    values = {name: value for name, value in numbers.items() if value is not None}
    layer = build(answer, sizes, {name: value.shape for name, value in values.items()})
    return layer if layer is ... else functional_call(layer, values, given)


def _difference(names: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """List the names that only the first mapping has; a whole layer is named once."""
    layers = {name.partition(".")[0] for name in others}
    only = (name for name in names if name not in others)
    short = (name if name.partition(".")[0] in layers else name.partition(".")[0] for name in only)
    return ", ".join(dict.fromkeys(short))
