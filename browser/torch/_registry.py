"""The table of operations, and the errors for wrong calls."""

import inspect
from functools import wraps
from types import FunctionType

from ._errors import NAMES, error, not_here

FUNCTIONS, METHODS = {}, {}  # torch.name and Tensor.name
_ALIASES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x2": "other"}


def register(functions):
    """Register functions as torch.name, Tensor.name or both, as in PyTorch.

    A trailing underscore is not part of the name: it avoids shadowing a Python built-in.
    """
    for name, function in functions.items():
        name = name.removesuffix("_")
        for module, table in (("torch", FUNCTIONS), ("Tensor", METHODS)):
            if name in NAMES[module].split():
                table[name] = function


def register_module(space):
    """Register all functions that a module defines."""
    register({
        name: f for name, f in space.items()
        if isinstance(f, FunctionType) and f.__module__ == space["__name__"]
    })  # fmt: skip


def guarded(name, function, method=False, in_python=False):
    """Wrap a function so a call with wrong arguments raises the same error as in PyTorch.

    An argument of PyTorch that the function lacks raises NotHere.

    Args:
        name: Name of the function in PyTorch.
        function: The function.
        method: Whether the first argument is `self`, which error messages do not count.
        in_python: Whether PyTorch implements the function in Python, too, so Python's error fits.
    """

    @wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except TypeError as misfit:
            # Handle only errors of the call itself, not those inside the function.
            if misfit.__traceback__.tb_next is not None:
                raise
            raised = misfit
        except AttributeError as failed:
            position = next((i for i, x in enumerate(args) if x is failed.obj), None)
            if in_python or position is None or hasattr(failed.obj, "_storage"):
                raise
            names = list(inspect.signature(function).parameters)
            parameter, got = names[min(position, len(names) - 1)], type(args[position]).__name__
            raise error("argument", name, parameter, position + 1 - method, "Tensor", got) from None
        renamed = {_ALIASES.get(key, key): value for key, value in kwargs.items()}
        if renamed.keys() != kwargs.keys() and not in_python:
            return call(*args, **renamed)
        raise _misfit(name, function, args, kwargs, method, in_python and raised)

    return call


def _misfit(name, function, args, kwargs, method, raised):
    """Return PyTorch's error for wrong arguments, or NotHere if PyTorch accepts them."""
    parameters = inspect.signature(function).parameters.values()
    places = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    unknown = [key for key in kwargs if key not in {p.name for p in parameters}]
    for key in unknown:
        if key in NAMES["arguments"].get(name, "").split():
            return not_here(f"The argument {key} of {name}")
    given = len(args) - method
    if len(places) < len(args) <= NAMES["positional"].get(name, 0):
        return not_here(f"{name} with {given} arguments")
    if raised:
        return raised
    if name in NAMES["several"].split():
        named = "".join(f"{key}={type(x).__name__}, " for key, x in kwargs.items())
        got = [type(x).__name__ for x in args[method:]] + [named] * bool(named)
        return error("arguments", name, ", ".join(got))
    if unknown:
        return error("keyword", name, unknown[0])
    if method and len(places) == 1:
        return error("no_arguments", name, given)
    required = [p.name for p in places if p.default is p.empty]
    missing = [f'"{key}"' for key in required[len(args) :] if key not in kwargs]
    if missing:
        return error("missing", name, len(missing), ", ".join(missing))
    least, most = len(required) - method, len(places) - method
    count = f"{most} positional argument{'s' * (most != 1)}"
    count = count if least == most else f"from {least} to {most} positional arguments"
    return error("count", name, count, given)
