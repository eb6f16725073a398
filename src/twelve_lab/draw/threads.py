"""Twelve numbers as threads: the picture on the cover of the course and on its poster.

Each thread is one number. At each station of the encoder, its offset is the value of the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from twelve_lab.show.table import as_plain_tensor

_LAYER = "encoder.layers.0"
STATIONS = (
    "src_embedding.vectors",
    "src_input",
    f"{_LAYER}.self_attention_residual.norm.output",
    f"{_LAYER}.self_attention.projected_query",
    f"{_LAYER}.self_attention.projected_key",
    f"{_LAYER}.self_attention.projected_value",
    f"{_LAYER}.self_attention.merged",
    f"{_LAYER}.self_attention.output",
    f"{_LAYER}.self_attention_residual.added",
    f"{_LAYER}.feed_forward_residual.norm.output",
    f"{_LAYER}.feed_forward.output",
    f"{_LAYER}.feed_forward_residual.added",
    "memory",
)
# Positions from 0 to 1, with a gap after each word and a wider gap between sentences.
_GAP = 0.9
_PLACES = [number + _GAP * (number // 3) + _GAP * (number // 6) for number in range(12)]
PLACES = [place / _PLACES[-1] for place in _PLACES]

Curve = tuple[tuple[float, float], ...]


def threads(trace: Mapping[str, Any]) -> list[list[float]]:
    """Return each of the twelve numbers at every station.

    Args:
        trace: A run of the running example.
    """
    values = [as_plain_tensor(trace[name].value).flatten().tolist() for name in STATIONS]
    return [list(thread) for thread in zip(*values, strict=True)]


def curves(points: list[tuple[float, float]]) -> list[Curve]:
    """Join points by Bézier curves with vertical tangents.

    Args:
        points: Points (x, y) with increasing y.

    Returns:
        For each pair of neighbouring points: start, two control points and end.
    """
    return [
        ((x0, y0), (x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1))
        for (x0, y0), (x1, y1) in pairwise(points)
    ]
