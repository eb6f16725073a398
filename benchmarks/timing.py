"""Times contenders side by side, and puts what it found into medians and quartiles."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

Run = Callable[[], object]
Clock = Callable[[Run, int], float]


class Spread(NamedTuple):
    """The middle of several measurements, and the bounds of the half of them around it."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Find the median and the quartiles.

    Args:
        values: At least one measurement.
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def ratios(times: Sequence[float], base: Sequence[float]) -> list[float]:
    """Divide round by round, so that what slows a whole round down cancels.

    Args:
        times: One time for each round.
        base: What it is compared with, in the same rounds.
    """
    return [one / other for one, other in zip(times, base, strict=True)]


def cpu_clock(run: Run, repeats: int) -> float:
    """Measure the CPU seconds of this process: what others do meanwhile is not counted.

    Args:
        run: What is timed.
        repeats: How often it runs.

    Returns:
        Seconds for one run.
    """
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats


def cuda_clock(run: Run, repeats: int) -> float:
    """Measure the seconds between two events of the GPU's own queue.

    Args:
        run: What is timed.
        repeats: How often it runs.

    Returns:
        Seconds for one run.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


def interleave(
    runs: dict[str, Run], rounds: int, *, clock: Clock = cpu_clock, seconds: float = 0.05
) -> dict[str, list[float]]:
    """Time every run once in each round, after a warm-up.

    The first one to run changes from round to round, and every second round goes backwards: nobody
    always runs first, and nobody always follows the same one.

    Args:
        runs: What is timed, by name.
        rounds: Rounds after the warm-up.
        clock: Tells the seconds of one run.
        seconds: A run that takes less is repeated within its turn until it takes about as much.

    Returns:
        The seconds of one run, for each name one number for each round.
    """
    names = list(runs)
    repeats: dict[str, int] = {}
    for name, run in runs.items():
        run()
        repeats[name] = max(1, math.ceil(seconds / max(clock(run, 1), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in names}
    # A collection would fall into the time of whoever happens to run.
    gc.disable()
    try:
        for turn in range(rounds):
            first = turn % len(names)
            order = names[first:] + names[:first]
            for name in order if turn % 2 == 0 else reversed(order):
                times[name].append(clock(runs[name], repeats[name]))
    finally:
        gc.enable()
    return times
