"""Measure the import of the package, and what a trace costs while it is open and once closed."""

import gc
import json
import subprocess
import sys
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.passes import Operations
from benchmarks.timing import Run, interleave, ratios
from twelve_lab import Trace, example

IMPORT = """
import json, sys, time
import torch
start = time.process_time()
import twelve
print(json.dumps([1000 * (time.process_time() - start), "matplotlib" in sys.modules]))
"""


class ClosedTrace(NamedTuple):
    """What a closed trace leaves behind.

    Attributes:
        operations: Number of operations of a run.
        same: Whether a run has the same operations before and after.
        tensors: How many more tensors are alive.
        watching: Whether a trace function is still installed.
    """

    operations: int
    same: bool
    tensors: int
    watching: bool


def in_processes(program: str, count: int) -> list[tuple[Any, ...]]:
    """Run a program that prints a JSON list in fresh processes, and return its columns."""
    command = [sys.executable, "-c", program]
    rows = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for _ in range(count)
    ]
    return list(zip(*rows, strict=True))


def closed_trace() -> ClosedTrace:
    """Compare a run before any trace with a run after a trace was closed."""
    run = _example_run()
    before, function, tensors = _operations(run), sys.gettrace(), _count_tensors()
    with Trace() as trace:
        run()
    del trace
    more = _count_tensors() - tensors
    return ClosedTrace(
        len(before), before == _operations(run), more, sys.gettrace() is not function
    )


def trace_cost(rounds: int, *, seconds: float = 0.05) -> dict[bool, list[float]]:
    """Divide the time of a traced run by that of an untraced run, with and without explain."""
    run = _example_run()

    def traced(explain: bool) -> None:
        with Trace(explain=explain):
            run()

    runs = {None: run, True: partial(traced, True), False: partial(traced, False)}
    times = interleave(runs, rounds, seconds=seconds)
    return {explain: ratios(times[explain], times[None]) for explain in (True, False)}


def _example_run() -> Run:
    model = example.model()
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    return torch.no_grad()(lambda: model(example.src, example.tgt, **masks))


def _operations(run: Run) -> list[str]:
    with Operations() as operations:
        run()
    return operations.calls


def _count_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())
