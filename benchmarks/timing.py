"""Time contenders side by side; summarise times by medians and quartiles."""

import gc
import math
import time
from collections.abc import Callable, Hashable, Sequence

import torch

Run = Callable[[], object]
Clock = Callable[[Run, int], float]
Times = dict[Hashable, list[float]]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and the quartiles of at least one value."""
    points = torch.tensor((0.5, 0.25, 0.75), dtype=torch.float64)
    return tuple(torch.tensor(values, dtype=torch.float64).quantile(points).tolist())


def ratios(times: Sequence[float], base: Sequence[float]) -> list[float]:
    """Divide times round by round, so a slow round cancels out."""
    return [time / other for time, other in zip(times, base, strict=True)]


def cpu_clock(run: Run, repeats: int) -> float:
    """Return the CPU seconds of one run; other processes are not counted."""
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats


def cuda_clock(run: Run, repeats: int) -> float:
    """Return the seconds of one run between two CUDA events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


def interleave(
    runs: dict[Hashable, Run], rounds: int, *, clock: Clock = cpu_clock, seconds: float = 0.05
) -> Times:
    """Time every run once in each round, after a warm-up.

    The order rotates from round to round, and every second round is reversed. A run that takes
    less than `seconds` is repeated within its turn.

    Returns:
        The seconds of one run, by name; one value per round.
    """
    names, repeats, times = list(runs), {}, {name: [] for name in runs}
    for name, run in runs.items():
        run()
        repeats[name] = max(1, math.ceil(seconds / max(clock(run, 1), 1e-6)))
    gc.disable()  # a collection would be charged to an arbitrary contender
    try:
        for number in range(rounds):
            first = number % len(names)
            order = names[first:] + names[:first]
            for name in order if number % 2 == 0 else reversed(order):
                times[name].append(clock(runs[name], repeats[name]))
    finally:
        gc.enable()
    return times
