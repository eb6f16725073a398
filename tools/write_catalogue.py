"""Writes the catalogue of the trace into docs/glossary.md: every name, its axes, its line of code.

Usage: python tools/write_catalogue.py
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import twelve
from twelve_lab import Trace, example
from twelve_lab.course import STEPS, find_step

GLOSSARY = Path(__file__).parent.parent / "docs" / "glossary.md"
HEADING = "## Catalogue of the trace"
SWITCHES = (
    {"norm_first": False}, {"scale_embedding": True}, {"tie_weights": True}, {"activation": "gelu"},
    {"num_heads": 1},
)  # fmt: skip
# Arguments of layers that no model of the course uses.
SIZES = {"d_model": 3, "max_len": 4}
HEAD = "| name | axes | line of code | notebook |\n|---|---|---|---|\n"


def catalogue() -> str:
    """Return the catalogue: the main run, optional tensors, the decoder-only run, other layers.

    Returns:
        Markdown with one table for each of the four parts.
    """
    main = _run()
    tables = [f"The {len(main)} tensors of the main run, in its order:\n\n" + HEAD + _rows(main)]
    added: dict[str, str] = {}
    for switch in SWITCHES:
        for name, row in _entries(_run(**switch)):
            if name not in main:
                added[name] = row
    tables.append("What a switch adds:\n\n" + HEAD + "".join(added.values()))
    sister = example.trace(decoder_only=True, on="cpu")
    tables.append(f"The {len(sister)} tensors of the decoder-only run:\n\n" + HEAD + _rows(sister))
    tables.append("Layers that neither model uses, run on their own:\n\n" + HEAD + _beside())
    return "\n".join(tables)


def page(text: str) -> str:
    """Replace the catalogue in the page.

    Args:
        text: The page; everything from the heading of the catalogue on is replaced.
    """
    before, heading, _ = text.partition(HEADING)
    if not heading:
        raise ValueError(f"{GLOSSARY.name} has no heading {HEADING!r}")
    return (
        f"{before}{HEADING}\n\nWritten by `make catalogue` from runs of the example. A line of "
        "code is the right-hand side that ran; `self` is the module that the name leads to.\n\n"
        + catalogue()
    )


def _run(**switches: object) -> Trace:
    model = example.model(**switches)
    with Trace(model) as trace:
        model(example.src, example.tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask)
    return trace


def _beside() -> str:
    x = example.trace(on="cpu")["src_input"].value
    models = [example.language_model(), *(example.model(**switch) for switch in SWITCHES)]
    used = {type(module) for model in models for module in model.modules()}
    exported = [getattr(twelve, name) for step in STEPS for name in step.exports]
    rows = ""
    for layer in exported:
        if not inspect.isclass(layer) or not issubclass(layer, nn.Module) or layer in used:
            continue
        known = inspect.signature(layer).parameters.keys() & SIZES.keys()
        with Trace() as trace:
            layer(**{name: SIZES[name] for name in known}).to(torch.float64)(x)
        rows += _rows(trace)
    return rows


def _rows(trace: Trace) -> str:
    return "".join(row for _, row in _entries(trace))


def _entries(trace: Trace) -> Iterator[tuple[str, str]]:
    for name, entry in trace.items():
        formula = entry.code.replace("|", "\\|")
        axes = " ".join(entry.axes).replace("batch_0 batch_1", "*batch")
        link = f"[{entry.step}](../{find_step(entry.step).notebook})"
        yield (
            name,
            f"| `{name}` | `{axes}` | `{formula}` | {link} |\n",
        )


if __name__ == "__main__":
    GLOSSARY.write_text(page(GLOSSARY.read_text(encoding="utf-8")), encoding="utf-8")
