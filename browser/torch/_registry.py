"""The table of operations, and what happens when one is called in a wrong way."""

import inspect
from functools import wraps

from ._types import NAMES, not_here

FUNCTIONS, METHODS = {}, {}  # torch.name and Tensor.name
_ALIASES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x2": "other"}


def op(function):
    """Register torch.name and Tensor.name. An underscore at the end is not part of the name."""
    FUNCTIONS[_name(function)] = METHODS[_name(function)] = function
    return function


def torch_only(function):
    """Register torch.name."""
    FUNCTIONS[_name(function)] = function
    return function


def method(function):
    """Register Tensor.name."""
    METHODS[function.__name__] = function
    return function


def _name(function):
    return function.__name__.removesuffix("_")


def guarded(name, function, method=False, in_python=False):
    """Wrap a function, so that a call that does not fit fails as in PyTorch.

    An argument of PyTorch that the function lacks raises NotHere.

    Args:
        name: Its name in PyTorch.
        function: The function.
        method: Whether its first argument is `self`, which is not counted.
        in_python: Whether it is written in Python in PyTorch too, so that Python's error fits.
    """

    @wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            # Only where the call itself failed.
            if error.__traceback__.tb_next is not None:
                raise
            misfit = error
        except AttributeError as error:
            at = [i for i, x in enumerate(args) if x is error.obj]
            if in_python or not at or hasattr(error.obj, "_storage"):
                raise
            raise _wrong_type(name, function, args, at[0], method) from None
        renamed = {_ALIASES.get(key, key): value for key, value in kwargs.items()}
        if renamed.keys() != kwargs.keys() and not in_python:
            return call(*args, **renamed)
        lacking = _lacking(name, function, args, kwargs, method)
        raise lacking or (misfit if in_python else _misfit(name, function, args, kwargs, method))

    return call


def _several(name):
    return name in NAMES["several"].split()


def _got(args, kwargs):
    named = "".join(f"{key}={type(x).__name__}, " for key, x in kwargs.items())
    return ", ".join([*(type(x).__name__ for x in args), *([named] if named else [])])


def _wrong_type(name, function, args, at, method):
    parameters = list(inspect.signature(function).parameters)
    parameter = parameters[min(at, len(parameters) - 1)]
    text = f"argument '{parameter}' (position {at + 1 - method}) must be Tensor"
    return TypeError(f"{name}(): {text}, not {type(args[at]).__name__}")


def _lacking(name, function, args, kwargs, method):
    """Return NotHere if PyTorch would take these arguments."""
    parameters = inspect.signature(function).parameters.values()
    for key in kwargs.keys() - {p.name for p in parameters}:
        if key in NAMES["arguments"].get(name, "").split():
            return not_here(f"The argument {key} of {name}")
    places = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    if places < len(args) <= NAMES["positional"].get(name, 0):
        return not_here(f"{name} with {len(args) - method} arguments")
    return None


def _misfit(name, function, args, kwargs, method):
    """Return the error of PyTorch for arguments that it does not take."""
    parameters = inspect.signature(function).parameters.values()
    known = {p.name for p in parameters}
    places = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if _several(name):
        text = "received an invalid combination of arguments"
        got = _got(args[method:], kwargs)
        return TypeError(f"{name}() {text} - got ({got}), but expected one of:")
    for key in kwargs.keys() - known:
        return TypeError(f"{name}() got an unexpected keyword argument '{key}'")
    if method and len(places) == 1:
        return TypeError(f"TensorBase.{name}() takes no arguments ({len(args) - 1} given)")
    missing = [p.name for p in places[len(args) :] if p.default is p.empty]
    missing = [key for key in missing if key not in kwargs]
    if missing:
        listed = ", ".join(f'"{key}"' for key in missing)
        text = f"missing {len(missing)} required positional arguments: {listed}"
        return TypeError(f"{name}() {text}")
    least = sum(p.default is p.empty for p in places) - method
    most = len(places) - method
    count = f"{most} positional argument{'s' * (most != 1)}"
    count = count if least == most else f"from {least} to {most} positional arguments"
    return TypeError(f"{name}() takes {count} but {len(args) - method} were given")
