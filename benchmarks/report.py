"""Compare measurements with their limits, and format them as a Markdown page."""

import os
import platform
import re
from collections.abc import Hashable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks import language, models, passes
from benchmarks.language import Language
from benchmarks.models import BASE, BASE_128, BUILDERS, D64, FAST, LONG, PLAIN, TINY, TORCH, Size
from benchmarks.passes import FORWARD, TRAINING
from benchmarks.timing import Times, ratios, spread

TEMPLATE = Path(__file__).with_name("page.md")
LIMITS = [
    (name, size, kind, limit)
    for name, size, limit in (
        (FAST, BASE, 1.03), (FAST, BASE_128, 1.03), (FAST, TINY, 0.95), (FAST, D64, 0.95),
        (PLAIN, BASE, 1.12), (PLAIN, BASE_128, 1.12),
    )
    for kind in (FORWARD, TRAINING)
]  # fmt: skip
LIMITS.append((FAST, LONG, FORWARD, 1.03))


class Results(NamedTuple):
    """The measurements on a CPU.

    Attributes:
        passes: Seconds of a pass, keyed by size and kind, then by contender; one value per round.
        memory: Extra bytes of a forward pass at size `long`, by contender.
        shares: Share of the FLOP rate of matrix products, by size; one value per round.
        writing: Seconds to generate a sentence, keyed by writer and length.
        traced: Time of a traced run relative to an untraced run, with and without explain.
        startup: Milliseconds of `import twelve`; one value per process.
        language: Measurements of the language model; empty if it is not installed.
    """

    passes: dict[tuple[str, str], Times]
    memory: dict[str, int]
    shares: dict[str, list[float]]
    writing: Times
    traced: dict[bool, list[float]]
    startup: list[float]
    language: Language


def bar(
    measure: str, bound: str, limit: float, values: Sequence[float] | None, form: str = "{:.3f}"
) -> tuple[str, str, str, str]:
    """Compare the median with a limit ("at most" or "at least"); None means not measured."""
    wanted = f"{bound} {limit}"
    if values is None:
        return measure, wanted, "not installed", "not measured"
    median, *_ = spread(values)
    met = median <= limit if bound == "at most" else median >= limit
    return measure, wanted, write_spread(values, form), "yes" if met else "**no**"


def compare(times: Times, name: Hashable, base: Hashable) -> list[float] | None:
    """Divide the times of two contenders, or return None if one of them was not measured."""
    return ratios(times[name], times[base]) if {name, base} <= times.keys() else None


def write_spread(values: Sequence[float], form: str = "{:.3f}") -> str:
    """Format the median, and the quartiles if there are several values."""
    median, low, high = (form.format(value) for value in spread(values))
    return median if len(values) == 1 else f"{median} ({low} to {high})"


def bars(results: Results, lengths: Sequence[int]) -> list[tuple[str, str, str, str]]:
    """Return a table row for each bar."""
    rows = []
    for name, size, kind, limit in LIMITS:
        measured = compare(results.passes[size.name, kind], name, TORCH)
        rows.append(bar(f"{name}: {size.name}, {kind}", "at most", limit, measured))
    extra = results.memory[FAST] / results.memory[TORCH]
    rows.append(bar(f"{FAST}: {LONG.name}, forward, extra memory", "at most", 1.0, [extra]))
    for name, shares in results.shares.items():
        measure = f"share of the rate of matrix products, {name}, forward"
        rows.append(bar(measure, "at least", 0.9, shares))
    times = results.writing
    for new in lengths:
        speed = compare(times, (passes.GENERATE, new), (passes.CACHED, new))
        measure = f"tokens per second relative to `generate`, {new} tokens"
        rows.append(bar(measure, "at least", 1.05, speed))
    *_, half, whole = lengths
    growth = compare(times, (passes.CACHED, whole), (passes.CACHED, half))
    rows.append(bar(f"time to write {whole} tokens relative to {half}", "at most", 2.2, growth))
    return rows + _language_bars(results.language) + _package_bars(results)


def _language_bars(measured: Language) -> list[tuple[str, str, str, str]]:
    model = "SmolLM2, 135 million weights"
    speed = compare(measured.writing, language.GENERATE, language.OURS)
    delay = compare(measured.prompt, language.OURS, language.GENERATE)
    writing = f"{model}: tokens per second relative to `generate`, {language.NEW} tokens"
    reading = f"{model}: time to the first token relative to `generate`, after {language.PROMPT}"
    return [
        bar(writing, "at least", 1.0, speed),
        bar(reading, "at most", 1.0, delay),
        bar(f"{model}: `load`, seconds", "at most", 5, measured.load, "{:.1f}"),
        bar(f"{model}: peak memory of the process, GB", "at most", 1.2, measured.peak, "{:.2f}"),
    ]


def _package_bars(results: Results) -> list[tuple[str, str, str, str]]:
    rows = []
    for explain, values in results.traced.items():
        measure = f"traced run relative to an untraced run, explain={explain}"
        rows.append((measure, "no limit", write_spread(values, "{:.1f}"), "reported"))
    measure = "`import twelve` after `import torch`, ms"
    return [*rows, bar(measure, "at most", 20, results.startup, "{:.1f}")]


def page(results: Results, sizes: Sequence[Size], lengths: Sequence[int], note: str = "") -> str:
    """Fill in the page template."""
    head = ("measure", "limit", "measured", "met")
    return TEMPLATE.read_text(encoding="utf-8").format(
        machine=machine(), note=note, bars=table(head, bars(results, lengths)),
        src=models.WRITING.src, base=TORCH, sizes=size_table(sizes),
        forward=ratio_table(results, sizes, FORWARD),
        training=ratio_table(results, sizes, TRAINING),
        long=LONG.name, memory=memory_table(results.memory),
        writing=writing_table(results.writing, lengths),
    )  # fmt: skip


def machine(device: str = "cpu") -> str:
    """Describe the machine without a date, so two runs on it differ only in their results."""
    where = f"{processor()}, one of {os.cpu_count()} cores, one thread"
    if device == "cuda":
        where = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    packages = ("torch", "transformers", "x-transformers")
    versions = ", ".join(f"{package} {_version(package)}" for package in packages)
    return f"Machine: {where}. Python {platform.python_version()}, {versions}."


def processor() -> str:
    """Return the name of the CPU."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    name = re.search(r"model name\s*: (.+)", text)
    return name[1] if name else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Format a Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return text.replace("| --- ", "|---")


def size_table(sizes: Sequence[Size]) -> str:
    """Format the table of sizes."""
    head = ("size", "d_model / heads / layers / d_ff", "batch", "src", "tgt", "rounds")
    rows = []
    for size in sizes:
        model = f"{size.d_model} / {size.num_heads} / {size.num_layers} / {size.d_ff}"
        rows.append((size.name, model, *map(str, (size.batch, size.src, size.tgt, size.rounds))))
    return table(head, rows)


def ratio_table(results: Results, sizes: Sequence[Size], kind: str) -> str:
    """Format the times relative to nn.Transformer, by contender and size."""
    rows = [["", *(size.name for size in sizes)]]
    for name in BUILDERS:
        measured = (compare(results.passes[size.name, kind], name, TORCH) for size in sizes)
        cells = (write_spread(values) if values else "not installed" for values in measured)
        rows.append([name, *("1" if name == TORCH else cell for cell in cells)])
    return table(rows[0], rows[1:])


def memory_table(memory: dict[str, int]) -> str:
    """Format the extra memory of a forward pass, by contender."""
    rows = [
        (name, f"{memory[name] / 2**20:.1f}", f"{memory[name] / memory[TORCH]:.2f}")
        if name in memory
        else (name, "not installed", "")
        for name in BUILDERS
    ]
    return table(("", "MiB", f"relative to {TORCH}"), rows)


def writing_table(times: Times, lengths: Sequence[int]) -> str:
    """Format the tokens per second, by writer and length."""

    def cell(writer: str, new: int) -> str:
        measured = times.get((writer, new))
        return f"{new / spread(measured)[0]:.1f}" if measured else "not installed"

    writers = (passes.CACHED, passes.GENERATE, passes.UNCACHED)
    rows = [(writer, *(cell(writer, new) for new in lengths)) for writer in writers]
    return table(("tokens", *map(str, lengths)), rows)
