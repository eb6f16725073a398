"""The explorer: a page that explains every number of a run and lets the reader change it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from twelve_lab.explorer.program import Program
from twelve_lab.messages import current, translated
from twelve_lab.show.faces import symbols
from twelve_lab.show.palette import AXIS_STYLES, NEUTRAL, THREADS
from twelve_lab.show.table import Labels
from twelve_lab.trace.trace import Trace

LARGEST = 2_000_000  # maximum size of a page, in bytes


def write_explorer(
    path: str | Path,
    traces: Mapping[str, Trace],
    labels: Labels | None = None,
    lessons: Mapping[str, Mapping[str, str]] | None = None,
) -> Path:
    """Write a self-contained page that a browser opens without a server or a network.

    Args:
        path: Output file.
        traces: Configuration name -> its run; a menu on the page selects a configuration.
        labels: Names instead of indices, in the format of `show`.
        lessons: For the page of the course: lesson number -> title of the lesson, and its address
            if it has one. The page then has dares.

    Returns:
        The path of the output file.

    Raises:
        ValueError: If there is no run, a run is empty or contains an operation that the page
            cannot compute, or the page would be larger than 2 MB.
    """
    path = Path(path)
    text = page(traces, labels, lessons and {"lessons": lessons})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def page(
    traces: Mapping[str, Trace],
    labels: Labels | None = None,
    extra: Mapping[str, Any] | None = None,
) -> str:
    """Return the HTML of the page in the language of `messages.use`; see `write_explorer`.

    Args:
        traces: Configuration name -> its run.
        labels: Names instead of indices.
        extra: The lessons; or, for a part in a lesson, the title, lead and panels of the part.
    """
    if not traces:
        raise ValueError("traces must hold at least one run")
    runs = []
    for title, trace in traces.items():
        try:
            runs.append({"title": title, **Program(trace, labels).data})
        except ValueError as error:
            raise ValueError(f"run {title!r}: {error}") from error
    vocabulary = (labels or {}).get("vocab")
    data = {
        "runs": runs,
        "vocab": vocabulary,
        "styles": {axis: style.css for axis, style in AXIS_STYLES.items()},
        "neutral": NEUTRAL.css,
        "threads": THREADS,
        **(extra or {}),
    }
    script, html = _read("bundle.js"), _read("page.html")
    texts = script + html + json.dumps(data, ensure_ascii=False)
    if translations := {id: text for id, text in translated().items() if id in texts}:
        data["messages"] = translations
    packed = base64.b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode()
    text = html
    for mark, content in (
        ("/*STYLE*/", _read("page.css")),
        ("/*SCRIPT*/", script),
        ("/*DATA*/", packed),
        ("<!--FACES-->", symbols()),
        ('lang="en"', f'lang="{current()}"'),
    ):
        text = text.replace(mark, content)
    if len(text.encode()) > LARGEST:
        raise ValueError(
            f"the page would take {len(text.encode()):,} bytes, more than {LARGEST:,}: "
            "trace a smaller model or fewer runs"
        )
    return text


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
