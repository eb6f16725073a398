"""Measure the passes on a GPU, in milliseconds."""

from dataclasses import replace
from pathlib import Path

import torch

from benchmarks import models, passes, report
from benchmarks.models import FAST, LONG, MARIAN, TORCH, WRITING
from benchmarks.passes import FORWARD, LENGTHS, TRAINING
from benchmarks.timing import cuda_clock, ratios, spread

DEVICE = "cuda"
TEMPLATE = Path(__file__).with_name("gpu.md")
SIZES = tuple(replace(size, rounds=20) for size in models.SIZES)


def page(dtype: str) -> str:
    """Take all measurements on the GPU, and return the page."""
    place, rows, memory = {"device": DEVICE, "dtype": getattr(torch, dtype)}, {}, {}
    for size in SIZES:
        contenders = models.build(size, **place)
        for kind in (FORWARD, TRAINING):
            times = passes.time_passes(contenders, size, kind, device=DEVICE, clock=cuda_clock)
            cells = [_cell(seconds, times[TORCH]) for seconds in times.values()]
            rows.setdefault(kind, []).append([size.name, *cells])
        if size.name == LONG.name:
            for name, model in contenders.items():
                memory[name] = passes.cuda_peak_bytes(
                    passes.prepare(FORWARD, model, *size.ids(DEVICE))
                )
    writers = models.build(WRITING, (FAST, MARIAN), **place)
    written = passes.time_writing(writers, WRITING, LENGTHS, device=DEVICE, clock=cuda_clock)
    head = ("size", *contenders)
    return TEMPLATE.read_text(encoding="utf-8").format(
        dtype=dtype, base=TORCH, machine=report.machine("cuda"), sizes=report.size_table(SIZES),
        forward=report.table(head, rows[FORWARD]), training=report.table(head, rows[TRAINING]),
        memory=report.memory_table(memory), writing=report.writing_table(written, LENGTHS),
    )  # fmt: skip


def _cell(times: list[float], base: list[float]) -> str:
    compared = report.write_spread(ratios(times, base), "{:.2f}")
    return f"{1000 * spread(times)[0]:.2f}: {compared}"
