"""The command: python -m benchmarks."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks import gpu, language, report, sizes
from benchmarks.bars import Results
from benchmarks.contenders import EXPLICIT, FUSED, MARIAN, build
from benchmarks.decoding import LENGTHS, decode_times
from benchmarks.memory import forward_bytes
from benchmarks.passes import PASSES, time_passes
from benchmarks.products import gemm_share
from benchmarks.startup import import_times
from benchmarks.tracing import after_a_trace, traced_over_untraced

DOCS = Path(__file__).parent.parent / "docs"
QUICK = "**A quick run on sizes cut down: it shows that the command works, and no speed.**\n\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure everything and write the page.

    Args:
        arguments: Of the command line.
    """
    options = parse(arguments)
    torch.set_num_threads(1)
    if options.device == "cuda":
        text = gpu.page(options.dtype)
    elif options.quick:
        small = [sizes.cut(size) for size in sizes.SIZES]
        results = measure(small, (2, 4), processes=1, seconds=0.0)
        text = report.page(results, small, (2, 4), QUICK)
    else:
        results = measure(sizes.SIZES, LENGTHS, processes=7)
        text = report.page(results, sizes.SIZES, LENGTHS)
    options.output.write_text(text, encoding="utf-8")
    print(f"written: {options.output}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line.

    Args:
        arguments: What follows the command; those of the process if not given.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--output", type=Path, help="the page; docs/benchmarks.md on a CPU")
    parser.add_argument("--quick", action="store_true", help="only show that the command works")
    options = parser.parse_args(arguments)
    if options.device == "cpu" and options.dtype != "float32":
        parser.error("--dtype is for --device cuda: on a CPU all is measured in float32")
    if options.device == "cuda" and options.quick:
        parser.error("--quick is for the CPU")
    if options.quick and options.output is None:
        parser.error("--quick needs --output: its figures are not for docs/benchmarks.md")
    if options.output is None:
        end = "" if options.device == "cpu" else f"_{options.device}_{options.dtype}"
        options.output = DOCS / f"benchmarks{end}.md"
    return options


def measure(
    chosen: Sequence[sizes.Size], lengths: Sequence[int], *, processes: int, seconds: float = 0.05
) -> Results:
    """Measure everything that the page tells.

    Args:
        chosen: As sizes.SIZES.
        lengths: How many words are written.
        processes: How many import the package.
        seconds: Shorter runs are repeated until they take about as much.
    """
    tiny, *_, base, base_128, long = chosen
    results = Results()
    # First of all: later, a trace has been used.
    results.off = after_a_trace()
    results.traced = traced_over_untraced(tiny.rounds, seconds=seconds)
    results.startup = import_times(processes)
    if not language.missing():
        print("measuring a real language model", flush=True)
        new, prompt = (language.NEW, language.PROMPT) if seconds else (2, 4)
        rounds = 7 if seconds else 2
        results.model = language.measure(
            new=new, prompt=prompt, rounds=rounds, processes=min(processes, 3)
        )
    for size in chosen:
        print(f"measuring {size}", flush=True)
        contenders = build(size)
        for kind in PASSES:
            times = time_passes(contenders, size, kind, seconds=seconds)
            results.seconds[size.name, kind] = times
        if size in (base, base_128):
            shares = gemm_share(contenders[FUSED], contenders[EXPLICIT], size, seconds=seconds)
            results.shares[size.name] = shares
    print("measuring memory and writing", flush=True)
    results.memory = forward_bytes(long)
    one = replace(base, batch=1, rounds=min(base.rounds, sizes.WRITING.rounds))
    results.writing = decode_times(build(one, (FUSED, MARIAN)), one, lengths, seconds=seconds)
    return results


if __name__ == "__main__":
    main()
