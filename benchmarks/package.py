"""Measure the import time of the package, and the overhead of an open trace."""

import json
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from benchmarks.timing import interleave, ratios
from twelve_lab import Trace, example

IMPORT = """
import json, time
import torch
start = time.process_time()
import twelve
print(json.dumps([1000 * (time.process_time() - start)]))
"""


def in_processes(program: str, count: int) -> list[tuple[Any, ...]]:
    """Run a program in fresh processes, and return the columns of the JSON lists it prints."""
    command = [sys.executable, "-c", program]
    rows = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for _ in range(count)
    ]
    return list(zip(*rows, strict=True))


def trace_cost(rounds: int, *, seconds: float = 0.05) -> dict[bool, list[float]]:
    """Divide the time of a traced run by that of an untraced run, with and without explain."""
    model = example.model()
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}

    @torch.no_grad()
    def run(explain: bool | None) -> None:
        with nullcontext() if explain is None else Trace(explain=explain):
            model(example.src, example.tgt, **masks)

    runs = {explain: partial(run, explain) for explain in (None, True, False)}
    times = interleave(runs, rounds, seconds=seconds)
    return {explain: ratios(times[explain], times[None]) for explain in (True, False)}
