"""The same passes on a GPU, in milliseconds: the machine is not shared there."""

import torch

from benchmarks import report, sizes
from benchmarks.contenders import FUSED, MARIAN, TORCH, build
from benchmarks.decoding import LENGTHS, decode_times
from benchmarks.memory import cuda_peak_bytes
from benchmarks.passes import FORWARD, PASSES, time_passes
from benchmarks.timing import cuda_clock, ratios, spread

DEVICE = "cuda"


def page(dtype: str) -> str:
    """Measure on the GPU and write a page.

    Args:
        dtype: Precision of the weights.
    """
    place = {"device": DEVICE, "dtype": getattr(torch, dtype)}
    parts = [
        f"# Measured speed on a GPU, {dtype}\n\nWritten by `python -m benchmarks --device cuda "
        f"--dtype {dtype}`; docs/benchmarks.md explains the sizes and the contenders. Medians, in "
        f"brackets to {TORCH}.\n\n{report.machine('cuda')}\n\n"
    ]
    memory: dict[str, int] = {}
    rows: dict[str, list[list[str]]] = {kind: [] for kind in PASSES}
    for size in sizes.SIZES:
        contenders = build(size, **place)
        for kind in PASSES:
            times = time_passes(contenders, size, kind, clock=cuda_clock)
            rows[kind].append([size.name, *(_cell(one, times[TORCH]) for one in times.values())])
        if size is sizes.LONG:
            src, tgt = (ids.to(DEVICE) for ids in size.ids())
            for name, model in contenders.items():
                memory[name] = cuda_peak_bytes(PASSES[FORWARD](model, src, tgt))
    for kind in PASSES:
        head = ("milliseconds", *contenders)
        parts.append(f"## {kind.capitalize()}\n\n{report.table(head, rows[kind])}\n")
    parts.append(f"## Extra memory of a forward pass\n\n{report.memory_table(memory)}\n")
    writers = build(sizes.WRITING, (FUSED, MARIAN), **place)
    written = decode_times(writers, sizes.WRITING, LENGTHS, clock=cuda_clock)
    parts.append(f"## Writing: tokens a second\n\n{report.writing_table(written, LENGTHS)}")
    return "".join(parts)


def _cell(times: list[float], base: list[float]) -> str:
    milliseconds = 1000 * spread(times).median
    return f"{milliseconds:.3f} ({spread(ratios(times, base)).median:.2f})"
