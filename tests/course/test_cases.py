"""All sizes in the last case of a task are distinct and not 1, so different mistakes differ.

If "ignore one token" and "add one" gave the same number, either edit would explain it.
"""

import inspect
import re
from itertools import combinations

import pytest
from torch import Tensor

from twelve_lab.check import TASKS


def axes_of(contract):
    """Return the axes of each argument in a contract, keyed by argument name."""
    groups = re.findall(
        r"((?:\w+(?:, | and ))*\w+)(?: of \w+)? \(([^()]+)\)", contract.partition(" -> ")[0]
    )
    return {
        name: axes.split(", ")
        for names, axes in groups
        for name in re.split(r", | and ", names)
        if re.fullmatch(r"[\w*]+(, [\w*]+)*", axes)
    }


def arguments(task):
    """Return the arguments of the last case, keyed by name; the input of a layer comes first."""
    given = list(task.cases().values())[-1]
    if isinstance(task.right, type):
        *parameters, x = axes_of(task.contract)
        return dict(zip([x, *parameters], given, strict=False))
    return dict(zip(inspect.signature(task.right).parameters, given, strict=False))


def violations(task):
    axes, given = axes_of(task.contract), arguments(task)
    counts = {}
    for name, value in given.items():
        if isinstance(value, Tensor) and name in axes and value.ndim == len(axes[name]):
            counts |= dict(zip(axes[name], value.shape, strict=True))
    assert counts or not any(isinstance(value, Tensor) for value in given.values())
    if counts.get("batch", 3) != 3:
        yield f"batch is {counts['batch']}"
    for name, value in given.items():
        # num_heads is the size of the axis `head`.
        if type(value) is int and not any(axis in name and axis in counts for axis in counts):
            counts[name] = value
    yield from (f"{name} is 1" for name, count in counts.items() if count == 1)
    for (one, count), (other, same) in combinations(counts.items(), 2):
        if count == same:
            yield f"{one} and {other} are {count}"


@pytest.mark.parametrize("name", TASKS)
def test_no_two_counts_of_the_last_case_are_equal(name):
    assert not list(violations(TASKS[name]))
