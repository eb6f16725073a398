"""Writes what was measured as a page of Markdown."""

import os
import platform
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import decoding, passes
from benchmarks.bars import Bar, Results, bars, write_spread
from benchmarks.contenders import BUILDERS, TORCH, missing
from benchmarks.sizes import LONG, WRITING, Size
from benchmarks.timing import ratios, spread

HEAD = """\
# Measured speed

This page is written by `make bench`, which measures again and replaces it. Only *What was found* \
is prose of its own, kept in `benchmarks/findings.md`.

{machine}

"""

BARS = """\
## The bars

What the project promises. Times and memory are ratios to `nn.Transformer`, pre-norm, where the \
row does not name somebody else. The median decides.

"""

METHOD = """\
## How to read it

A ratio compares two times that were taken in the same round. **0.97** means that we needed 97 % \
of the time `nn.Transformer` needed for the same work, so 3 % less; 1.10 would be a tenth more. \
The brackets behind the median of all rounds hold the quartiles: half of the rounds lay between \
them. Where 1.0 lies between them, nobody was faster.

There are no seconds here. On a machine that others use as well, one and the same pass can take \
a third longer from one minute to the next, and a table of seconds would show that more than the \
code. Two runs side by side suffer alike, so their ratio stays. Only the tokens a second are \
absolute, to give an idea; compare them within the table and with nothing else.

## How it is measured

- `make bench` installs the `bench` extra (Hugging Face Transformers, x-transformers) and runs \
`python -m benchmarks`: about twenty minutes of CPU time. Without the extra, \
`python -m benchmarks` leaves those two out.
- Time is CPU time of the process, on one thread, so that other processes count as little as \
possible. In each round everybody runs once; who begins changes, and every second round goes \
backwards. Short runs are repeated within their turn. Python's garbage collector waits meanwhile.
- All contenders do the same work and are checked to answer with the same shape: token ids to \
logits through embeddings, positions, encoder, decoder and projection, with random weights in \
float32, biases in the attention too (x-transformers has none there) and no dropout. Sentences are \
full, so nobody gets a padding mask; the decoder is causal, and `nn.Transformer` is told so by \
`tgt_is_causal`, its fastest way. Marian and x-transformers run torch's fused attention.
- *Forward* is in eval mode under `no_grad`, where `nn.Transformer` takes its own fast path. \
*Forward and backward* is in training mode, from the ids to the gradient of every weight.
- Extra memory is the peak of all allocations during a forward pass over what was there before, \
as torch's profiler records them. It counts buffers inside the kernels too and is the same in \
every run; the memory of the process is not, because it grows by pages and is kept for later.
- The rate of matrix products is that of `torch.mm` alone on the shapes of the model's products \
with weights, each with a matrix of its own. Of the model those products count and the two of \
each attention (2·rows·terms·columns each); all else it does costs time and counts nothing.
- Writing is greedy, one sentence from a source of {src} tokens, reading it included; no token \
ends the sentence.
- SmolLM2-135M-Instruct is read by both from the one file that `make language-model` installs, and \
both must write the same words. Its seconds are CPU time, and its memory is that of the whole \
process, torch included.

"""

# Prose on figures of earlier runs: no command can write it.
FINDINGS = Path(__file__).with_name("findings.md")
GPU = """\
## On a GPU

`python -m benchmarks --device cuda --dtype bfloat16` (or `float32`) times with events of the GPU \
and writes absolute times to `docs/benchmarks_cuda_bfloat16.md`. It has not been run yet: no such \
machine was at hand.
"""


def page(results: Results, sizes: Sequence[Size], lengths: Sequence[int], note: str = "") -> str:
    """Write the whole page.

    Args:
        results: What was measured on a CPU.
        sizes: The sizes of the passes.
        lengths: How many words were written.
        note: What to say before all else.
    """
    absent = missing()
    return "".join((
        HEAD.format(machine=machine()),
        note,
        BARS,
        table(Bar._fields, bars(results, lengths, absent)),
        "\n" + METHOD.format(src=WRITING.src),
        "## Sizes\n\n" + size_table(sizes) + "\n",
        *(
            f"## {kind.capitalize()}: time to {TORCH}\n\n{ratio_table(results, sizes, kind)}\n"
            for kind in passes.PASSES
        ),
        f"## Extra memory of a forward pass: {LONG.name}\n\n{memory_table(results.memory)}\n",
        f"## Writing: tokens a CPU second\n\n{writing_table(results.writing, lengths)}\n",
        FINDINGS.read_text(encoding="utf-8") + "\n",
        GPU,
    ))  # fmt: skip


def machine(device: str = "cpu") -> str:
    """Say on what it ran, without a date: two runs on one machine differ in figures alone.

    Args:
        device: "cpu" or "cuda".
    """
    names = ("torch", "transformers", "x-transformers")
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    where = f"{processor()}, one of {os.cpu_count()} cores, one thread"
    if device == "cuda":
        import torch

        where = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    return f"Machine: {where}. Python {platform.python_version()}, {versions}."


def processor() -> str:
    """Name the CPU, as far as the system tells."""
    listing = Path("/proc/cpuinfo")
    text = listing.read_text(encoding="utf-8") if listing.exists() else ""
    found = re.search(r"model name\s*: (.+)", text)
    return found[1] if found else platform.processor() or platform.machine()


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a table.

    Args:
        head: Names of the columns.
        rows: Cells.
    """
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("| --- ", "|---")


def size_table(sizes: Sequence[Size]) -> str:
    """List the sizes.

    Args:
        sizes: In the order of the page.
    """
    head = ("size", "d_model / heads / layers / d_ff", "batch", "src", "tgt", "rounds")
    return table(head, (
        (
            size.name,
            f"{size.d_model} / {size.num_heads} / {size.num_layers} / {size.d_ff}",
            *map(str, (size.batch, size.src, size.tgt, size.rounds)),
        )
        for size in sizes
    ))  # fmt: skip


def ratio_table(results: Results, sizes: Sequence[Size], kind: str) -> str:
    """Set every contender beside nn.Transformer, size by size.

    Args:
        results: What was measured.
        sizes: In the order of the columns.
        kind: The kind of pass.
    """
    rows = []
    for name in BUILDERS:
        cells = [name]
        for size in sizes:
            times = results.seconds[size.name, kind]
            if name not in times:
                cells.append("not installed")
            else:
                cells.append(
                    write_spread(ratios(times[name], times[TORCH])) if name != TORCH else "1"
                )
        rows.append(cells)
    return table(("", *(size.name for size in sizes)), rows)


def memory_table(memory: dict[str, int]) -> str:
    """List the bytes of a forward pass.

    Args:
        memory: Bytes by contender.
    """
    rows = (
        (name, f"{memory[name] / 2**20:.1f}", f"{memory[name] / memory[TORCH]:.2f}")
        if name in memory
        else (name, "not installed", "")
        for name in BUILDERS
    )
    return table(("", "MiB", f"to {TORCH}"), rows)


def writing_table(times: decoding.Times, lengths: Sequence[int]) -> str:
    """List tokens a second, and what each length costs to the one before.

    Args:
        times: Seconds by writer and length.
        lengths: How many words were written.
    """
    rows = []
    for writer in (decoding.CACHED, decoding.GENERATE, decoding.AGAIN):
        cells = [
            f"{new / spread(times[writer, new]).median:.1f}"
            if (writer, new) in times
            else "not installed"
            for new in lengths
        ]
        rows.append((writer, *cells))
    return table(("tokens", *map(str, lengths)), rows)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
