"""The errors of PyTorch, and the error for features that the stand-in lacks.

errors.json holds the texts of PyTorch's errors, keyed by type. names.json lists PyTorch's names.
"""

import builtins
import json
from pathlib import Path


def _read(file):
    return json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))


NAMES = _read("names.json")
_ERRORS = {
    key: (getattr(builtins, kind), text)
    for kind, texts in _read("errors.json").items()
    for key, text in texts.items()
}


class NotHere(BaseException):
    """Raised for a feature of PyTorch that the stand-in lacks; the answer is not judged."""


def not_here(what):
    return NotHere(f"{what} is in torch, but not in this page. Your answer was not judged")


def absent(module, name, owner=""):
    """Raise NotHere for a name of PyTorch, and AttributeError for any other name."""
    if name in NAMES.get(module, "").split():
        raise not_here(f"{module}.{name}")
    raise error("no_attribute", owner or f"module '{module}'", name)


def lookup(module):
    """Return the `__getattr__` of a module."""
    return lambda name: absent(module, name)


def error(key, *values):
    """Return an error of PyTorch, with the values filled into its text."""
    kind, text = _ERRORS[key]
    return kind(text.format(*values))


def check(condition, key, *values):
    """Raise an error of PyTorch unless the condition is true."""
    if not condition:
        raise error(key, *values)
