"""The explorer: one page in which every number of a run can be clicked and explains itself."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twelve_lab.course import find_step
from twelve_lab.explain.explanation import Explanation
from twelve_lab.explain.expression import literal
from twelve_lab.explain.record import Block
from twelve_lab.show.format import cell_text
from twelve_lab.show.palette import AXIS_STYLES, NEUTRAL, PAPER, signed_fill
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Labels, Table, fitting
from twelve_lab.show.walk import CHECKPOINTS

if TYPE_CHECKING:
    from twelve_lab.trace.trace import Trace

LARGEST = 2_000_000  # bytes of a page


def write_explorer(
    path: str | Path, traces: Mapping[str, Trace], labels: Labels | None = None
) -> Path:
    """Write a page that needs nothing but a browser: no server, no network.

    Args:
        path: The file.
        traces: Name of a configuration -> its run; a switch on the page chooses among them.
        labels: Names instead of indices, as `show` takes them.

    Returns:
        The file.

    Raises:
        ValueError: There is no run, a run is empty, or the page would be larger than 2 MB.
    """
    if not traces:
        raise ValueError("traces must hold at least one run")
    runs = [{"title": title, **_run(title, trace, labels or {})} for title, trace in traces.items()]
    styles = {axis: style.css for axis, style in AXIS_STYLES.items()}
    data = {"runs": runs, "styles": styles, "neutral": NEUTRAL.css}
    packed = base64.b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode()
    page = (files("twelve_lab.explorer") / "page.html").read_text(encoding="utf-8")
    script = (files("twelve_lab.explorer") / "page.js").read_text(encoding="utf-8")
    page = page.replace("/*SCRIPT*/", script).replace("/*DATA*/", packed)
    if len(page.encode()) > LARGEST:
        raise ValueError(
            f"the page would take {len(page.encode()):,} bytes, more than {LARGEST:,}: "
            "trace a smaller model or fewer runs"
        )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def _run(title: str, trace: Trace, labels: Labels) -> dict[str, Any]:
    """Lay out a run as plain data: its tensors, and for every element its arithmetic."""
    if trace.graph is None or not len(trace):
        raise ValueError(f"run {title!r} holds no tensor that can be explained")
    record = trace.graph.record
    # What was given, such as weights, stands at the end; of all tensors only those that are used.
    given = [block for name, block in record.named.items() if name not in trace]
    blocks = [record.named[name] for name in trace] + given
    places = {id(block): number for number, block in enumerate(blocks)}
    tensors = []
    for block in blocks:
        entry = trace[block.name] if block.name in trace else None
        step = find_step(entry.step) if entry is not None and entry.step else None
        tensors.append(
            {
                **_tensor(block, labels),
                "name": block.name,
                "code": "" if entry is None else entry.code,
                "step": f"{step.number} {step.title}" if step else "",
                "given": entry is None,
                "cells": [
                    _cell(trace, block, cell, places) for cell in range(block.values.numel())
                ],
            }
        )
    stations = [place for place, name in enumerate(trace) if name in CHECKPOINTS]
    return {"tensors": tensors, "stations": stations}


def _tensor(block: Block, labels: Labels) -> dict[str, Any]:
    axes = block.axes or tuple("" for _ in block.shape)
    fit = fitting(labels, axes, block.shape)
    names = tuple(axis or f"axis {n}" for n, axis in enumerate(axes))
    table = Table.of(block.values.view(block.shape), names, fit)
    limit = largest_magnitude(table)
    return {
        "axes": [axis if not axis.isdigit() else "" for axis in axes],
        "shape": list(block.shape),
        "labels": fit,
        "texts": [cell_text(value) for value in block.numbers],
        "fills": [
            signed_fill(value, limit) if isinstance(value, float) else PAPER
            for value in block.numbers
        ],
    }


def _cell(trace: Trace, block: Block, cell: int, places: Mapping[int, int]) -> list[Any]:
    """Give the lines, the Python expression and the operands of one element."""
    graph = trace.graph
    assert graph is not None
    explanation = Explanation(graph, block.start + cell, 1)
    lines = explanation.text.splitlines()[1:-1]
    used = []
    for operand in explanation.cells:
        home = graph.record.block(operand)
        used.append([places[id(home)], operand - home.start])
    return [lines, explanation.expression, literal(explanation.value), used]
