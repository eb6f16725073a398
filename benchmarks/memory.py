"""Counts the memory that a forward pass needs beside the weights.

As a program, `python -m benchmarks.memory`, it prints the figures of all contenders: the profiler
writes lines of its own to stderr, which a process of its own keeps apart.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from benchmarks.contenders import build
from benchmarks.passes import FORWARD, PASSES
from benchmarks.sizes import Size
from benchmarks.timing import Run

ROOT = Path(__file__).parent.parent


def peak_bytes(run: Run) -> int:
    """Find the most bytes that were allocated at one time, over those of the start.

    Every allocation and release of torch's CPU allocator is added up, buffers inside a kernel
    included. Unlike the memory of the process, which grows by whole pages and keeps what it may
    need again, the figure is the same in every run.

    Args:
        run: What is watched.
    """
    with profile(profile_memory=True) as recording:
        run()
    level = peak = 0
    for event in recording.kineto_results.events():
        if event.name() == "[memory]":
            level += event.nbytes()
            peak = max(peak, level)
    return peak


def cuda_peak_bytes(run: Run) -> int:
    """Find the same on a GPU, whose allocator keeps count.

    Args:
        run: What is watched.
    """
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def forward_bytes(size: Size) -> dict[str, int]:
    """Count the bytes of a forward pass of every contender, in a fresh process.

    Args:
        size: What is built and run.

    Raises:
        RuntimeError: If the process fails; what it wrote is in the message.
    """
    command = [sys.executable, "-m", "benchmarks.memory", json.dumps(vars(size))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the count of the memory failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main(size: Size) -> None:
    """Print the bytes of every contender as JSON.

    Args:
        size: What is built and run.
    """
    torch.set_num_threads(1)
    counts: dict[str, int] = {}
    for name, model in build(size).items():
        run = PASSES[FORWARD](model, *size.ids())
        run()
        counts[name] = peak_bytes(run)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Size(**json.loads(sys.argv[1])))
