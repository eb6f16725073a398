"""List PyTorch's names and arguments, so the stand-in can report what it does not support.

    python -m tools.write_standin_names

The output is browser/torch/names.json.
"""

import importlib
import inspect
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import torch

FILE = Path(__file__).parents[1] / "browser" / "torch" / "names.json"
MODULES = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.linalg",
           "torch.autograd", "torch.optim", "torch.func", "torch.utils", "torch.cuda")  # fmt: skip


def names(module: object) -> str:
    """List the public names of a module or a class."""
    return " ".join(sorted(name for name in dir(module) if not name.startswith("_")))


def present() -> set[str]:
    """List the functions and methods of the stand-in."""
    code = "import torch as t; from torch import nn; print(*t._FUNCTIONS, *t._METHODS, *dir(nn), "
    code += "*dir(nn.functional), *dir(nn.init), *dir(nn.utils), *dir(t.autograd))"
    command = [sys.executable, "-c", code]
    return set(subprocess.check_output(command, cwd=FILE.parents[1], text=True).split())


def page() -> str:
    """Format the lists as JSON."""
    arguments: dict[str, set[str]] = defaultdict(set)
    overloads: dict[str, set[str]] = defaultdict(set)
    positional: dict[str, int] = defaultdict(int)
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space != "aten" or name.startswith("_"):
            continue
        arguments[name].update(x.name for x in schema.arguments if x.name != "self")
        # The other overloads take scalars, named axes, or an output argument.
        of_tensors = schema.arguments and "Tensor" in str(schema.arguments[0].type)
        if of_tensors and not re.search("out|name", schema.overload_name.lower()):
            overloads[name].add(str(schema))
            count = sum(not x.kwarg_only for x in schema.arguments)
            positional[name] = max(positional[name], count)
    for module in (torch.nn.functional, torch.nn.init, torch.nn, torch.autograd, torch.nn.utils):
        for name, value in inspect.getmembers(module, callable):
            try:
                parameters = inspect.signature(value).parameters
            except (TypeError, ValueError):
                continue
            arguments[name].update(parameters)
            positional[name] = max(positional[name], len(parameters))
    listed = {name: names(importlib.import_module(name)) for name in MODULES}
    listed["Tensor"], listed["Module"] = names(torch.Tensor), names(torch.nn.Module)
    public = present()
    listed["arguments"] = {
        name: " ".join(sorted(found)) for name, found in sorted(arguments.items())
        if name in public and found
    }  # fmt: skip
    listed["positional"] = {name: n for name, n in sorted(positional.items()) if name in public}
    listed["several"] = " ".join(
        sorted(name for name, found in overloads.items() if len(found) > 1 and name in public)
    )
    lines = (f" {json.dumps(name)}: {json.dumps(found)}" for name, found in listed.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
