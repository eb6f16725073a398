"""Argument checks: each raises a one-sentence ValueError with the names and values at fault."""

import inspect
import math
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import chain, islice
from numbers import Integral, Real
from typing import Any, TypeVar, get_args

import torch
from jaxtyping import AbstractArray
from torch import Tensor, nn

Function = TypeVar("Function")
# The test for each jaxtyping annotation, and a description for error messages.
KINDS: dict[str, tuple[Callable[[Tensor], bool], str]] = {
    "Float": (torch.is_floating_point, "a floating-point tensor"),
    "Int": (lambda x: x.dtype in (torch.int64, torch.int32), "a tensor of int64 or int32 ids"),
    "Bool": (lambda x: x.dtype == torch.bool, "a boolean tensor (True = may attend)"),
}
_thread = threading.local()


def checked(function: Function) -> Function:
    """Check each tensor argument against its annotation before the function runs.

    The size of an axis named after an attribute of `self` must equal that attribute, and an axis
    named twice must have the same size both times. The size of `_key` is not compared, and the
    size of `#key` may also be 1. Only the outermost call is checked: a model checks its input
    once, and its layers do not check again. torch.compile and torch.export skip the check.

    Args:
        function: A function, or a method of a module, with annotations such as
            `x: Float[Tensor, "batch seq d_model"]` or `start: int`.

    Raises:
        ValueError: When the decorated function is called with an argument that does not match its
            annotation.
    """
    signature = inspect.signature(function, eval_str=True)
    notes = {name: _read(parameter.annotation) for name, parameter in signature.parameters.items()}
    integers = [name for name, parameter in signature.parameters.items()
                if parameter.annotation is int]  # fmt: skip

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or getattr(_thread, "busy", False):
            return function(*args, **kwargs)
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python's own error names the function
        owner = arguments.get("self")
        where = function.__name__ if owner is None else type(owner).__name__
        tensors = {name: (arguments.get(name), *note) for name, note in notes.items() if note}
        _check_arguments(where, owner, tensors)
        for name in integers:
            if not _is_integer(arguments.get(name, 0)):
                raise ValueError(f"{where}: {name} must be an integer, got {arguments[name]!r}")
        _thread.busy = True
        try:
            return function(*args, **kwargs)
        finally:
            _thread.busy = False

    return wrapper


def _read(annotation: Any) -> tuple[str, list[str]] | None:
    """Return the kind and the axes of `Float[Tensor, "axes"]`, also inside `... | None`."""
    for note in (annotation, *get_args(annotation)):
        if isinstance(note, type) and issubclass(note, AbstractArray):
            return note.__name__.partition("[")[0], note.dim_str.split()
    return None


def _check_arguments(
    where: str, owner: object, arguments: dict[str, tuple[Any, str, list[str]]]
) -> None:
    known: dict[str, tuple[Any, str]] = {}
    floats = {}
    for name, (x, kind, axes) in arguments.items():
        if x is None and kind == "Bool":
            continue  # no mask
        check_kind(where, name, x, kind)
        _check_axes(where, owner, name, axes, tuple(x.shape), known)
        if kind == "Float":
            floats[name] = x
    if isinstance(owner, nn.Module):
        # A layer may have no parameters: the table of positions is a buffer.
        for name, x in islice(chain(owner.named_parameters(), owner.named_buffers()), 1):
            floats[name.rpartition(".")[2]] = x
    different = len({x.dtype for x in floats.values()}) > 1
    # Autocast allows different dtypes, because it converts them.
    if different and not torch.is_autocast_enabled(next(iter(floats.values())).device.type):
        listed = ", ".join(f"{name} has {x.dtype}" for name, x in floats.items())
        raise ValueError(f"{where}: all arguments must have one dtype, got {listed}")


def _check_axes(
    where: str, owner: object, name: str, axes: list[str], shape: tuple[int, ...],
    known: dict[str, tuple[Any, str]],
) -> None:  # fmt: skip
    """Compare each axis with the attribute or the earlier argument that fixes its size."""
    leading = axes[0].startswith("*")
    if len(shape) != len(axes) and not (leading and len(shape) >= len(axes) - 1):
        names = ["..." if "*" in axis else axis.lstrip("#_") for axis in axes]
        wanted = f"the axes ({', '.join(names)})"
        raise ValueError(f"{where}: {name} must have {wanted}, got shape {shape}")
    # A leading *batch stands for any number of axes, which are compared as one tuple.
    split = len(shape) - len(axes) + 1
    sizes = (shape[:split], *shape[split:]) if leading else shape
    for axis, size in zip(axes, sizes, strict=True):
        plain = axis.lstrip("*#")
        if plain.startswith("_") or plain.isdigit() or ("#" in axis and size == 1):
            continue
        fixed = getattr(owner, plain, None)
        # A subclass may have a submodule named like an axis, such as `query`.
        fixed = fixed if isinstance(fixed, Integral) else None
        expected, source = known.get(plain, (fixed, ""))
        if expected is None:
            known[plain] = size, f" as in {name}"
        elif size != expected and not (axis.startswith("*#") and _broadcasts(size, expected)):
            wanted = f"{plain}={expected}{source}"
            raise ValueError(f"{where}: {name} must have {wanted}, got {size} in shape {shape}")


def _broadcasts(shape: Sequence[int], target: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, wanted) for size, wanted in pairs)


def check_kind(where: str, name: str, value: object, kind: str) -> None:
    """Reject a value that is not a tensor of the given kind: "Float", "Int" or "Bool"."""
    accepts, wanted = KINDS[kind]
    if not isinstance(value, Tensor) or not accepts(value):
        raise ValueError(f"{where}: {name} must be {wanted}, got {described(value)}")


def shows(*names: str) -> Callable[[nn.Module], str]:
    """Return an extra_repr that lists the named attributes of a layer in print(model)."""
    return lambda layer: ", ".join(f"{name}={getattr(layer, name)!r}" for name in names)


def described(value: object) -> str:
    """Describe a value for an error message: dtype and shape if it is a tensor, else its type."""
    if isinstance(value, Tensor):
        return f"{value.dtype} in shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """Escape the characters of untrusted text that could control a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _is_integer(value: object) -> bool:
    """Return whether a value is a Python or NumPy integer or a torch.export symbol, not a bool."""
    return isinstance(value, Integral | torch.SymInt) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """Return whether a value is a real number and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_positive(where: str, **sizes: int) -> None:
    """Reject a size that is not a positive integer."""
    for name, size in sizes.items():
        if not _is_integer(size) or size < 1:
            raise ValueError(f"{where}: {name} must be an integer of at least 1, got {size!r}")


def check_divisible(where: str, advice: str = "", /, **sizes: int) -> None:
    """Reject the first of two sizes if it is not divisible by the second."""
    (name, size), (by, divisor) = sizes.items()
    if size % divisor:
        advice = advice and f"; {advice}"
        raise ValueError(f"{where}: {name} must be divisible by {by}={divisor}, got {size}{advice}")


def check_heads(where: str, d_model: int, num_heads: int, **widths: int | None) -> None:
    """Reject a d_model that num_heads does not divide, unless all head widths are given."""
    if None in widths.values():
        advice = f"choose another num_heads or give {' and '.join(widths)}"
        check_divisible(where, advice, d_model=d_model, num_heads=num_heads)


def check_between(where: str, least: int, most: int, limit: str, **numbers: int) -> None:
    """Reject a number that is not an integer from `least` to `most`; `limit` describes `most`."""
    for name, number in numbers.items():
        if not _is_integer(number) or not least <= number <= most:
            raise ValueError(
                f"{where}: {name} must be an integer from {least} to {most} ({limit}), "
                f"got {number!r}"
            )


def check_positions(where: str, start: int, count: int, max_len: int) -> None:
    """Reject `count` positions from `start` on if they exceed a table of max_len rows."""
    check_between(where, 0, max_len, "max_len", start=start)
    if start + count > max_len:
        raise ValueError(
            f"{where}: the sequence must end within max_len={max_len}, "
            f"got {count} positions from position {start} on"
        )


def check_switch(where: str, **switches: bool) -> None:
    """Reject a switch that is not a bool, such as the string "no", which is truthy."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ValueError(f"{where}: {name} must be True or False, got {value!r}")


def check_dropout(where: str, dropout: float) -> None:
    """Reject a dropout probability outside [0, 1)."""
    if not is_real(dropout) or not 0.0 <= dropout < 1.0:
        raise ValueError(f"{where}: dropout must be at least 0 and below 1, got {dropout!r}")


def check_above_zero(where: str, **numbers: Real) -> None:
    """Reject a number that is not positive and finite."""
    for name, number in numbers.items():
        if not is_real(number) or not 0.0 < number < math.inf:
            raise ValueError(f"{where}: {name} must be above 0 and finite, got {number!r}")


def check_equal(where: str, what: str, **values: object) -> None:
    """Reject values that are not all equal."""
    first, *others = values.values()
    # No set of values: under torch.export a size may be a symbol, which is not hashable.
    if any(other != first for other in others):
        plain = {name: tuple(v) if isinstance(v, tuple) else v for name, v in values.items()}
        listed = ", ".join(f"{name} has {value}" for name, value in plain.items())
        raise ValueError(f"{where}: {what} must be equal, got {listed}")


def check_mask(where: str, mask: Tensor, scores_shape: Sequence[int], name: str = "mask") -> None:
    """Reject a mask that is not boolean or does not broadcast to (batch, head, query, key).

    A mask with three axes is rejected because it would broadcast against (head, query, key). If
    there were as many sentences as heads, each head would silently get the mask of one sentence.
    """
    check_kind(where, name, mask, "Bool")
    axes, shape = "(batch, head, query, key)", tuple(mask.shape)
    if len(shape) != 4:
        raise ValueError(f"{where}: {name} must have 4 axes {axes}, got shape {shape}")
    if not _broadcasts(shape, scores_shape):
        wanted = f"{axes} {tuple(scores_shape)}"
        raise ValueError(f"{where}: {name} must broadcast to {wanted}, got shape {shape}")
