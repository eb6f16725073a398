"""What a trace costs while it watches, and that it costs nothing once it is closed."""

import gc
import sys
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.timing import Run, interleave, ratios
from twelve_lab import Trace, example


class Operations(TorchDispatchMode):
    """Writes down every operation that runs inside it, with the shapes of what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        answer = func(*args, **(kwargs or {}))
        results = answer if isinstance(answer, (tuple, list)) else (answer,)
        shapes = [tuple(result.shape) for result in results if isinstance(result, Tensor)]
        self.names.append(f"{func} {shapes}")
        return answer


class Off(NamedTuple):
    """What is left of a trace that was closed.

    Attributes:
        operations: How many operations a run takes.
        same: Whether a run takes the same ones before any trace and after one.
        tensors: How many more tensors there are afterwards.
        watching: Whether somebody still watches the lines of Python that run.
    """

    operations: int
    same: bool
    tensors: int
    watching: bool


def after_a_trace() -> Off:
    """Compare a run before any trace with one after a trace was used, closed and dropped."""
    run = _run()
    before, watcher, tensors = _operations(run), sys.gettrace(), _tensors()
    with Trace() as trace:
        run()
    del trace
    left = _tensors() - tensors
    after = _operations(run)
    return Off(len(before), before == after, left, sys.gettrace() is not watcher)


def traced_over_untraced(rounds: int, *, seconds: float = 0.05) -> dict[str, list[float]]:
    """Divide the time of a traced run of the example by that of an untraced one.

    Args:
        rounds: How often each is timed.
        seconds: Shorter runs are repeated until they take about as much.

    Returns:
        The ratios of both kinds of trace: with every operation kept for explanations, and without.
    """
    run = _run()

    def traced(explain: bool) -> Run:
        def watch() -> None:
            with Trace(explain=explain):
                run()

        return watch

    times = interleave(
        {"off": run, "explain": traced(True), "trace": traced(False)}, rounds, seconds=seconds
    )
    return {name: ratios(times[name], times["off"]) for name in ("explain", "trace")}


def _run() -> Run:
    model = example.model()

    def run() -> None:
        with torch.no_grad():
            model(example.src, example.tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask)

    return run


def _operations(run: Run) -> list[str]:
    with Operations() as operations:
        run()
    return operations.names


def _tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())
