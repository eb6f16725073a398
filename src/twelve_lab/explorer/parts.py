"""Parts of the live page: each answers one question, and fits into a notebook output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from twelve.masks import causal_mask, padding_mask
from twelve.training import cross_entropy
from twelve_lab import example
from twelve_lab.explorer import page
from twelve_lab.trace.trace import Trace

ENCODER, DECODER = "encoder.layers.0", "decoder.layers.0"
ATTENTION, CROSS = f"{ENCODER}.self_attention", f"{DECODER}.cross_attention"
NORM = f"{ENCODER}.self_attention_residual.norm"
BEYOND = "&<>'"  # double quotes are allowed in a single-quoted attribute


class Part(NamedTuple):
    """A part of the page.

    Attributes:
        title: Title of the part.
        lead: One sentence that says what to do.
        height: Height of the iframe in pixels, sufficient at a width of 700 pixels.
        run: Function that returns the trace.
        panels: Panels to show; empty for the whole page.
        pulls: Name and index of the number whose threads are shown at first.
    """

    title: str
    lead: str
    height: int
    run: Callable[[], Trace]
    panels: Sequence[Mapping[str, Any]] = ()
    pulls: tuple[Any, ...] = ()


def frame(name: str) -> str:
    """Return the HTML of an iframe in which a part runs.

    Where iframes are removed, as in an untrusted notebook, a sentence remains. In print, nothing
    remains.

    Args:
        name: One of PARTS.

    Raises:
        ValueError: If there is no such part.
    """
    if name not in PARTS:
        raise ValueError(f"there is no part {name!r}; there are {', '.join(PARTS)}")
    part = PARTS[name]
    text = document(name)
    for sign in BEYOND:
        text = text.replace(sign, f"&#{ord(sign)};")
    return (
        "<style>@media print { .live { display: none; } }</style>"
        f'<div class="live"><iframe class="live" title="{part.title}" sandbox="allow-scripts" '
        f"srcdoc='{text}' style=\"display:block;width:100%;height:{part.height}px;border:0\">"
        "Run this cell, and its numbers can be changed here.</iframe></div>"
    )


@cache
def document(name: str) -> str:
    """Return the HTML page of a part.

    Args:
        name: One of PARTS.
    """
    part = PARTS[name]
    options = {
        "title": part.title, "lead": part.lead, "panels": part.panels,
        **({"pulls": part.pulls} if part.pulls else {}),
    }  # fmt: skip
    with torch.device("cpu"):
        run = part.run()
    return page({part.title: run}, example.words, options if part.panels else None)


def _encoder(*, padding: bool = True, **switches: int) -> Trace:
    """Run only the encoder, to keep the page small."""
    model = example.model(**switches)
    ids = example.src.clone()
    with Trace(model) as traced:
        traced.graph.tape.label(ids, "src", ("batch", "src"))
        model.encode(ids, src_mask=padding_mask(ids) if padding else None)
    return traced


def _masks() -> Trace:
    """Run attention as in lesson 05: one sentence with padding, one with a causal mask."""
    model = example.model(num_heads=1)
    ids = torch.tensor([[2, 3, 0], [1, 2, 3]])
    padding = padding_mask(ids)[0, 0].expand(3, 3)
    masks = torch.stack([padding, causal_mask(3)[0, 0]])[:, None]
    with Trace(model) as traced:
        tape = traced.graph.tape
        tape.label(ids, "src", ("batch", "src"))
        tape.label(masks, "src_mask", ("batch", "head", "query", "key"))
        model.encode(ids, src_mask=masks)
    return traced


def _decoder() -> Trace:
    """Run only the decoder on a fixed memory, so the mask affects only cross-attention."""
    model = example.model().requires_grad_(False)
    mask = padding_mask(example.src)
    memory = model.encode(example.src, src_mask=mask)
    with Trace(model) as traced:
        tape = traced.graph.tape
        tape.label(example.tgt, "tgt", ("batch", "tgt"))
        tape.label(memory, "memory", ("batch", "src", "d_model"))
        tape.label(mask, "src_mask", ("batch", "head", "1", "key"))
        logits = model.decode(example.tgt, memory, tgt_mask=example.tgt_mask, src_mask=mask)
        cross_entropy(logits, example.labels)
    return traced


def _panel(panel: str, title: str, **options: object) -> dict[str, object]:
    return {"panel": panel, "title": title, **options}


DOG = {"batch": 1}  # "dog fish" is the second sentence
PARTS: dict[str, Part] = {
    "walk": Part(
        "The live model",
        "Drag a number, and all that depends on it follows.",
        700,
        lambda: example.trace(loss=True, on="cpu"),
    ),
    "query": Part(
        "Ask something else",
        "Point at a number to see what it depends on; drag a query sideways, or type one.",
        400,
        lambda: _encoder(num_heads=1, padding=False),
        [
            _panel("table", "Queries", of=f"{ATTENTION}.query_heads", fixed=DOG),
            _panel("table", "Keys", of=f"{ATTENTION}.key_heads", fixed=DOG),
            _panel("table", "Scores", of=f"{ATTENTION}.scores", fixed=DOG),
            _panel("table", "Weights", of=f"{ATTENTION}.weights", fixed=DOG),
            _panel("table", "Values", of=f"{ATTENTION}.value_heads", fixed=DOG),
            _panel("table", "Context", of=f"{ATTENTION}.context", fixed=DOG),
        ],
        (f"{ATTENTION}.context", 1, 0, 0, 1),
    ),
    "mask": Part(
        "Hide a key, or show it",
        "Press an entry of a mask: a tick allows attention.",
        405,
        _masks,
        [
            _panel("table", "The masks", of="src_mask"),
            _panel("table", "Masked scores", of=f"{ATTENTION}.masked_scores"),
            _panel("table", "Weights", of=f"{ATTENTION}.weights"),
        ],
    ),
    "stretch": Part(
        "Stretch a row",
        "Press × 10 or + 5, then drag a single number: which change remains after the norm?",
        470,
        _encoder,
        [
            _panel("stretch", "The rows, and what is done to dog", of="src_input", fixed=DOG,
                   row=[1, 0]),
            _panel("table", "Normalized", of=f"{NORM}.normalized", fixed=DOG),
            _panel("table", "Mean", of=f"{NORM}.mean", fixed=DOG),
            _panel("table", "Variance", of=f"{NORM}.variance", fixed=DOG),
        ],
    ),
    "sum": Part(
        "Silence a sublayer",
        "Press a switch: what does the stream lose, and what is left?",
        680,
        lambda: example.trace(loss=True, on="cpu"),
        [
            _panel("table", "x goes in", of="src_input", fixed=DOG),
            _panel("hold", "Attention says", of=f"{ATTENTION}.output", fixed=DOG, value=0,
                   says="Silence attention"),
            _panel("table", "x + attention", of=f"{ENCODER}.self_attention_residual.added",
                   fixed=DOG),
            _panel("hold", "Feed-forward says", of=f"{ENCODER}.feed_forward.output", fixed=DOG,
                   value=0, says="Silence feed-forward"),
            _panel("table", "… + feed-forward",
                   of=f"{ENCODER}.feed_forward_residual.added", fixed=DOG),
            _panel("prediction", "What the model says in the end", only=1),
        ],
        (f"{ENCODER}.feed_forward_residual.added", 1, 0, 1),
    ),
    "memory": Part(
        "Hide what was read",
        "Press an entry of the mask: a tick allows the model to look while it writes.",
        830,
        _decoder,
        [
            _panel("hold", "What was read", of="src_mask", value=0,
                   says="Hide the whole memory"),
            _panel("attention", "Cross-attention", of=CROSS),
            _panel("prediction", "Which word is next?"),
        ],
        ("logits", 1, 0, 3),
    ),
    "learning": Part(
        "Learn",
        "Press One step, then Teach it; start again with a learning rate of 1.",
        530,
        lambda: example.trace(loss=True, on="cpu"),
        [
            _panel("learn", "The loss", rate=0.1),
            _panel("gradients", "The bias of each word", of="output_projection.bias",
                   words=list(example.vocabulary)),
            _panel("prediction", "Which word is next?"),
        ],
    ),
}  # fmt: skip
