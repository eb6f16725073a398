"""Holds what was measured against what was promised."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks import decoding, language, passes
from benchmarks.contenders import EXPLICIT, FUSED, TORCH
from benchmarks.sizes import BASE, BASE_128, D64, LONG, TINY
from benchmarks.startup import Import
from benchmarks.timing import ratios, spread
from benchmarks.tracing import Off


@dataclass
class Results:
    """Everything that was measured on a CPU.

    Attributes:
        seconds: Of one pass, by size and kind, then by contender; a number for each round.
        memory: Bytes of a long forward pass, by contender.
        shares: Share of the machine's rate of matrix products, by size.
        writing: Seconds of one sentence, by writer and length.
        traced: Ratios to an untraced run, by kind of trace.
        off: What is left of a closed trace.
        startup: What the import costs.
        model: What was measured of a real language model, where one is installed.
    """

    seconds: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    shares: dict[str, list[float]] = field(default_factory=dict)
    writing: decoding.Times = field(default_factory=dict)
    traced: dict[str, list[float]] = field(default_factory=dict)
    off: Off | None = None
    startup: Import | None = None
    model: language.Language | None = None


class Bar(NamedTuple):
    """One promise and what came of it."""

    measure: str
    limit: str
    measured: str
    met: str


def at_most(measure: str, limit: float, values: Sequence[float], form: str = "{:.3f}") -> Bar:
    """Ask the median to stay at or below a limit.

    Args:
        measure: What was measured.
        limit: The highest median that is good enough.
        values: One for each round.
        form: How numbers are written.
    """
    met = spread(values).median <= limit
    return Bar(measure, f"at most {limit}", write_spread(values, form), _word(met))


def at_least(measure: str, limit: float, values: Sequence[float]) -> Bar:
    """Ask the median to reach a limit.

    Args:
        measure: What was measured.
        limit: The lowest median that is good enough.
        values: One for each round.
    """
    met = spread(values).median >= limit
    return Bar(measure, f"at least {limit}", write_spread(values), _word(met))


def write_spread(values: Sequence[float], form: str = "{:.3f}") -> str:
    """Write the median and, where there are several values, the quartiles.

    Args:
        values: One for each round.
        form: How numbers are written.
    """
    median, low, high = (form.format(value) for value in spread(values))
    return median if len(values) == 1 else f"{median} ({low} to {high})"


def bars(results: Results, lengths: Sequence[int], missing: dict[str, str]) -> list[Bar]:
    """List every promise in the order it was made.

    Args:
        results: What was measured.
        lengths: How many words were written.
        missing: Package that is not installed, by contender.
    """
    return [
        *_passes(results),
        *_long(results),
        *(
            at_least(f"share of the rate of matrix products, {name}, forward", 0.9, shares)
            for name, shares in results.shares.items()
        ),
        *_writing(results, lengths, missing),
        *_language(results.model),
        *_trace(results),
        *_startup(results),
    ]


def _word(met: bool) -> str:
    return "yes" if met else "**no**"


def _to_torch(results: Results, size: str, kind: str, contender: str) -> list[float]:
    times = results.seconds[size, kind]
    return ratios(times[contender], times[TORCH])


def _passes(results: Results) -> list[Bar]:
    limits = ((BASE, FUSED, 1.03), (BASE_128, FUSED, 1.03), (TINY, FUSED, 0.95), (D64, FUSED, 0.95),
              (BASE, EXPLICIT, 1.12), (BASE_128, EXPLICIT, 1.12))  # fmt: skip
    return [
        at_most(
            f"{contender}: {size.name}, {kind}",
            limit,
            _to_torch(results, size.name, kind, contender),
        )
        for size, contender, limit in limits
        for kind in passes.PASSES
    ]


def _long(results: Results) -> list[Bar]:
    name = f"{FUSED}: {LONG.name}, {passes.FORWARD}"
    extra = results.memory[FUSED] / results.memory[TORCH]
    return [
        at_most(name, 1.03, _to_torch(results, LONG.name, passes.FORWARD, FUSED)),
        at_most(f"{name}, extra memory", 1.0, [extra]),
    ]


def _writing(results: Results, lengths: Sequence[int], missing: dict[str, str]) -> list[Bar]:
    rows = []
    for new in lengths:
        measure = f"tokens a second to those of `generate`, {new} tokens"
        times = results.writing
        if (decoding.GENERATE, new) in times:
            ours, theirs = times[decoding.CACHED, new], times[decoding.GENERATE, new]
            rows.append(at_least(measure, 1.05, ratios(theirs, ours)))
        else:
            reason = f"not installed: {', '.join(missing.values())}"
            rows.append(Bar(measure, "at least 1.05", reason, "not measured"))
    *_, half, whole = lengths
    longer = ratios(results.writing[decoding.CACHED, whole], results.writing[decoding.CACHED, half])
    return [*rows, at_most(f"time to write {whole} tokens to {half}", 2.2, longer)]


def _language(found: language.Language | None) -> list[Bar]:
    model = "SmolLM2, 135 million weights"
    written = f"{model}: tokens a second to those of `generate`, {language.NEW} tokens"
    read = f"{model}: time to the first word to that of `generate`, behind {language.PROMPT} tokens"
    loaded, peak = f"{model}: `load`, seconds", f"{model}: peak memory of what loads it, GB"
    if found is None:
        reason = f"not installed: {', '.join(language.missing())}"
        limits = {
            written: "at least 1.0",
            read: "at most 1.0",
            loaded: "at most 5",
            peak: "at most 1.2",
        }
        return [Bar(name, limit, reason, "not measured") for name, limit in limits.items()]
    ours, theirs = language.OURS, language.GENERATE
    return [
        at_least(written, 1.0, ratios(found.writing[theirs], found.writing[ours])),
        at_most(read, 1.0, ratios(found.prompt[ours], found.prompt[theirs])),
        at_most(loaded, 5, found.load, "{:.1f}"),
        at_most(peak, 1.2, [one / 1e9 for one in found.peak], "{:.2f}"),
    ]


def _trace(results: Results) -> list[Bar]:
    off = results.off
    same = f"{off.operations}, {'the same' if off.same else 'not the same'} before and after"
    watch = "watched" if off.watching else "not watched"
    kept = f"{off.tensors} tensors more, lines {watch}"
    free = off.tensors <= 0 and not off.watching
    return [
        Bar("operations of a run after a trace", "the same list", same, _word(off.same)),
        Bar("what a closed trace keeps", "nothing", kept, _word(free)),
        *(
            Bar(f"traced run to an untraced one, {words}", "none: as low as it goes",
                write_spread(results.traced[name], "{:.1f}"), "reported")
            for name, words in (("explain", "explain=True"), ("trace", "explain=False"))
        ),
    ]  # fmt: skip


def _startup(results: Results) -> list[Bar]:
    found = results.startup
    drawn = "imported" if found.matplotlib else "not imported"
    return [
        at_most("`import twelve` after `import torch`, ms", 20, found.milliseconds, "{:.1f}"),
        Bar("matplotlib after `import twelve`", "not imported", drawn, _word(not found.matplotlib)),
    ]
