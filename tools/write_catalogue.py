"""Writes the catalogue of the trace into docs/glossary.md: every name, its axes, its line of code.

Usage: python tools/write_catalogue.py
"""

import inspect
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
# Layer arguments that are not used by any model of the course.
SIZES = {"d_model": 3, "max_len": 4}
HEAD = "| name | axes | line of code | notebook |\n|---|---|---|---|\n"


def catalogue() -> str:
    """Format the catalogue: the main run, optional tensors, the decoder-only run, other layers.

    Returns:
        Markdown with one table for each of the four parts.
    """
    main = _rows(_run())
    tables = {f"The {len(main)} tensors of the main run, in its order": main}
    switched = [_rows(_run(**switch)).items() for switch in SWITCHES]
    added = {name: row for rows in switched for name, row in rows if name not in main}
    tables["What a switch adds"] = added
    sister = _rows(example.trace(decoder_only=True, on="cpu"))
    tables[f"The {len(sister)} tensors of the decoder-only run"] = sister
    tables["Layers that neither model uses, run on their own"] = _beside()
    return "\n".join(f"{of}:\n\n{HEAD}{''.join(rows.values())}" for of, rows in tables.items())


def page(text: str) -> str:
    """Replace the catalogue in the page.

    Args:
        text: Content of the page; everything from the catalogue's heading onwards is replaced.
    """
    before = text[: text.index(HEADING)]
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


def _beside() -> dict[str, str]:
    x = example.trace(on="cpu")["src_input"].value
    models = [example.language_model(), *(example.model(**switch) for switch in SWITCHES)]
    used = {type(module) for model in models for module in model.modules()}
    rows = {}
    for layer in (getattr(twelve, name) for step in STEPS for name in step.exports):
        if not inspect.isclass(layer) or not issubclass(layer, nn.Module) or layer in used:
            continue
        known = inspect.signature(layer).parameters.keys() & SIZES.keys()
        with Trace() as trace:
            layer(**{name: SIZES[name] for name in known}).to(torch.float64)(x)
        rows |= {f"{layer.__name__}.{name}": row for name, row in _rows(trace).items()}
    return rows


def _rows(trace: Trace) -> dict[str, str]:
    """Return a row for each tensor, by its name."""
    rows = {}
    for name, entry in trace.items():
        formula = entry.code.replace("|", "\\|")
        axes = " ".join(entry.axes).replace("batch_0 batch_1", "*batch")
        link = f"[{entry.step}](../{find_step(entry.step).notebook})"
        rows[name] = f"| `{name}` | `{axes}` | `{formula}` | {link} |\n"
    return rows


if __name__ == "__main__":
    GLOSSARY.write_text(page(GLOSSARY.read_text(encoding="utf-8")), encoding="utf-8")
