"""Writes the catalogue of the trace into docs/glossary.md: every name, its axes, its line of code.

Usage: python tools/write_catalogue.py
"""

import ast
import linecache
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import nn

from twelve import LearnedPositionalEncoding, RMSNorm, SwiGLU
from twelve.lab import Trace, example
from twelve.lab.steps import find_step

GLOSSARY = Path(__file__).parent.parent / "docs" / "glossary.md"
HEADING = "## Catalogue of the trace"
HEAD = "| name | axes | line of code | notebook |\n|---|---|---|---|\n"


class CatalogueTrace(Trace):
    """A trace that also keeps the line of code of each tensor."""

    def __init__(self, model: nn.Module | None = None) -> None:
        """Start empty."""
        super().__init__(model)
        self.formulas: dict[str, str] = {}
        self.written: dict[str, str] = {}

    def record(self, call, assignment, value) -> None:
        """Keep the tensor, the code that computed it and the axes as they are written."""
        known = set(self)
        super().record(call, assignment, value)
        lines = linecache.getlines(call.code.co_filename)
        code = textwrap.dedent("".join(lines[assignment.first_line - 1 : assignment.last_line]))
        statement = ast.parse(code).body[0]
        for name in set(self) - known:
            self.formulas[name] = ast.unparse(statement.value)
            self.written[name] = assignment.axes


def catalogue() -> str:
    """Write the catalogue: the main run, what the switches add, and the layers beside it.

    Returns:
        Markdown, one table for each of the three.
    """
    main = _run()
    tables = [f"The {len(main)} tensors of the main run, in its order:\n\n" + HEAD + _rows(main)]
    added: dict[str, str] = {}
    switches = ({"norm_first": False}, {"scale_embedding": True}, {"tie_weights": True},
                {"activation": "gelu"}, {"num_heads": 1})  # fmt: skip
    for switch in switches:
        for name, row in _entries(_run(**switch), {}):
            if name not in main:
                added[name] = row
    tables.append("What a switch adds:\n\n" + HEAD + "".join(added.values()))
    tables.append("Layers that the model does not use, run on their own:\n\n" + HEAD + _beside())
    return "\n".join(tables)


def page(text: str) -> str:
    """Put a fresh catalogue into the page.

    Args:
        text: The page as it is; everything from the heading of the catalogue on is replaced.
    """
    before, heading, _ = text.partition(HEADING)
    if not heading:
        raise ValueError(f"{GLOSSARY.name} has no heading {HEADING!r}")
    return (
        f"{before}{HEADING}\n\nWritten by `make catalogue` from runs of the example. A line of "
        "code is the right-hand side that ran; `self` is the module that the name leads to.\n\n"
        + catalogue()
    )


def _run(**switches: object) -> CatalogueTrace:
    model = example.model(**switches)
    with CatalogueTrace(model) as trace:
        model(example.src, example.tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask)
    return trace


def _beside() -> str:
    x = example.trace(on="cpu")["src_input"].value
    layers = (LearnedPositionalEncoding(3, max_len=4), RMSNorm(3), SwiGLU(3, 4))
    rows = ""
    for layer in layers:
        with CatalogueTrace() as trace:
            layer.to(torch.float64)(x)
        rows += _rows(trace, trace.written)
    return rows


def _rows(trace: CatalogueTrace, axes: Mapping[str, str] | None = None) -> str:
    return "".join(row for _, row in _entries(trace, axes or {}))


def _entries(trace: CatalogueTrace, axes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Write a row for each tensor; `axes` replaces those of the run."""
    for name, entry in trace.items():
        formula = trace.formulas[name].replace("|", "\\|")
        link = f"[{entry.step}](../{find_step(entry.step).notebook})"
        yield (
            name,
            f"| `{name}` | `{axes.get(name, ' '.join(entry.axes))}` | `{formula}` | {link} |\n",
        )


if __name__ == "__main__":
    GLOSSARY.write_text(page(GLOSSARY.read_text(encoding="utf-8")), encoding="utf-8")
