"""Compare speed and memory with other implementations, and write the page."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks import gpu, language, models, package, passes, report
from benchmarks.models import FAST, MARIAN, SIZES
from benchmarks.passes import FORWARD, TRAINING

DOCS = Path(__file__).parent.parent / "docs"
QUICK = (
    "**A quick run on small sizes. It shows that the command works; its numbers say nothing.**\n\n"
)
SMALL = {"batch": 2, "src": 4, "tgt": 5, "d_model": 16, "num_heads": 2, "d_ff": 32,
         "num_layers": 1, "rounds": 2}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure everything and write the page."""
    options = parse(arguments)
    torch.set_num_threads(1)
    if options.device == "cuda":
        text = gpu.page(options.dtype)
    else:
        sizes = [replace(size, **SMALL) for size in SIZES] if options.quick else SIZES
        lengths = (2, 4) if options.quick else passes.LENGTHS
        results = measure(sizes, lengths, quick=options.quick)
        text = report.page(results, sizes, lengths, QUICK if options.quick else "")
    options.output.write_text(text, encoding="utf-8")
    print(f"written: {options.output}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--output", type=Path, help="the page; docs/benchmarks.md on a CPU")
    parser.add_argument("--quick", action="store_true", help="only show that the command works")
    options = parser.parse_args(arguments)
    if options.device == "cpu" and options.dtype != "float32":
        parser.error("--dtype needs --device cuda: the CPU is measured in float32")
    if options.device == "cuda" and options.quick:
        parser.error("--quick needs --device cpu")
    if options.quick and options.output is None:
        parser.error("--quick needs --output: its numbers do not belong in docs/benchmarks.md")
    if options.output is None:
        suffix = "" if options.device == "cpu" else f"_{options.device}_{options.dtype}"
        options.output = DOCS / f"benchmarks{suffix}.md"
    return options


def measure(sizes: Sequence[models.Size], lengths: Sequence[int], *, quick: bool) -> report.Results:
    """Take all measurements of the page, with few rounds and processes if `quick`."""
    tiny, _, base, base_128, long = sizes
    seconds = 0.0 if quick else 0.05
    traced = package.trace_cost(tiny.rounds, seconds=seconds)
    (startup,) = package.in_processes(package.IMPORT, 1 if quick else 7)
    times, shares, memory, measured = {}, {}, {}, language.Language(None, None, {}, {})
    if not language.missing():
        print("measuring a language model", flush=True)
        few = {"new": 2, "prompt": 4, "rounds": 2, "processes": 1}
        many = {"new": language.NEW, "prompt": language.PROMPT, "rounds": 7, "processes": 3}
        measured = language.measure(**few if quick else many)
    for size in sizes:
        print(f"measuring {size.name}", flush=True)
        contenders = models.build(size)
        for kind in (FORWARD, TRAINING):
            times[size.name, kind] = passes.time_passes(contenders, size, kind, seconds=seconds)
        if size in (base, base_128):
            shares[size.name] = passes.product_share(contenders, size, seconds=seconds)
    for name, model in contenders.items():
        run = passes.prepare(FORWARD, model, *long.ids())
        run()
        memory[name] = passes.peak_bytes(run)
    print("measuring decoding", flush=True)
    single = replace(base, batch=1, rounds=min(base.rounds, models.WRITING.rounds))
    writers = models.build(single, (FAST, MARIAN))
    writing = passes.time_writing(writers, single, lengths, seconds=seconds)
    return report.Results(times, memory, shares, writing, traced, startup, measured)


if __name__ == "__main__":
    main()
