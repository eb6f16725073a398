"""Figures for the tests, at least one of each kind, each drawn once."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import torch

import twelve
from twelve_lab import Trace, draw, example
from twelve_lab.draw import Drawing
from twelve_lab.draw.canvas import Canvas
from twelve_lab.draw.drawing import DATA

TWELVE = torch.tensor(
    [
        [[0, 1, 0], [1.661471, 0.690302, 0.362154]],
        [[0.7, 1.2, 0.4], [1.441471, 0.840302, 0.502154]],
    ],
    dtype=torch.float64,
)
WORDS = [["<pad>", "cat"], ["dog", "fish"]]
VOCABULARY = ("<pad>", "cat", "dog", "fish")
TABLE = torch.tensor([[0, 0, 0], [0.82, 0.15, 0.36], [0.7, 0.2, 0.4], [0.6, 0.3, 0.5]])
SCORES = torch.linspace(-2, 2, 24, dtype=torch.float64).view(2, 3, 2, 2)
HIDDEN = SCORES.masked_fill(torch.tensor([True, False]), -torch.inf)
WEIGHTS = SCORES.square().softmax(-1)
HEADS = "batch head query key"
TITLE = "A claim about numbers"


def waves(length: int, width: int) -> torch.Tensor:
    position = torch.arange(length).unsqueeze(1)
    angle = position * 10_000 ** (-torch.arange(0, width, 2) / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)[:, :width]


@cache
def traced(**how: object) -> Trace:
    """Trace the running example, once for each variant."""
    return example.trace(on="cpu", **how)


@cache
def companion() -> Trace:
    """Trace the two-layer model, whose axes all have distinct sizes."""
    case = example.distinct
    model = case.model()
    with Trace(model) as trace:
        model(case.src, case.tgt, src_mask=case.src_mask, tgt_mask=case.tgt_mask)
    return trace


@cache
def grouped(kv_heads: int, *, turned: bool = True) -> Trace:
    """Trace "dog fish" through four heads with shared keys and values, and two-decimal weights."""
    rotary = twelve.RotaryEncoding(2) if turned else None
    layer = twelve.GroupedQueryAttention(3, 4, kv_heads, d_k=2, rotary=rotary).double()
    with torch.no_grad():
        for matrix in (layer.w_q.weight, layer.w_k.weight, layer.w_v.weight):
            matrix.copy_(
                torch.arange(matrix.numel()).view_as(matrix).mul(0.37).sin().round(decimals=2)
            )
    with Trace(layer) as trace:
        layer(TABLE[None, 2:].double())
    return trace


def changed(trace: Trace, name: str, change: Callable) -> dict[str, object]:
    """Copy a trace and replace the values of one tensor."""
    entry = trace[name]
    return {**trace, name: replace(entry, value=change(entry.value.clone()))}


ASKED = {"query": ["dog", "fish"], "key": ["dog", "fish"]}
PATH = "encoder.layers.0.self_attention"
LABELS = {"query": example.words["src"], "key": example.words["src"]}
IDS = torch.tensor([[0, 1], [2, 3]])
FIGURES = {
    "tensor": lambda: draw.tensor(TWELVE, "batch src d_model", title=TITLE, labels={"src": WORDS}),
    "tensor of an entry": lambda: draw.tensor(
        traced()["positional_encoding.positions"], title=TITLE
    ),
    "masked scores": lambda: draw.tensor(HIDDEN, HEADS, title=TITLE),
    "wide tensor": lambda: draw.tensor(
        torch.linspace(-1, 1, 192).view(2, 4, 24), "batch tgt d_model", title=TITLE
    ),
    "attention": lambda: draw.attention(
        WEIGHTS, HEADS, title=TITLE, row_labels=WORDS, column_labels=WORDS
    ),
    "attention of two decimals": lambda: draw.attention(
        [[0.206, 0.794]], "query key", title=TITLE, decimals=2
    ),
    "companion": lambda: draw.attention(torch.full((2, 3, 4, 5), 0.2), HEADS, title=TITLE),
    "mask": lambda: draw.tensor(torch.ones(4, 4).tril().bool(), "query key", title=TITLE),
    "masks of two senses": lambda: draw.tensor(
        torch.eye(2).bool().repeat(2, 1, 1), "sense query key", title=TITLE,
        labels={"sense": ["ours", "theirs"]},
    ),
    "influence": lambda: draw.influence(torch.ones(4, 4).tril(), WORDS, WORDS, title=TITLE),
    "influence in three ways": lambda: draw.influence(
        torch.ones(4, 4).tril().repeat(3, 2),
        [[f"{way}: batch {i} {word}" for word in WORDS[i]]
         for way in ("right", "no mask", "one sentence") for i in (0, 1)],
        [[f"{side} {word}" for word in line] for side in ("tgt", "src") for line in WORDS],
        title=TITLE,
    ),
    "matmul": lambda: draw.matmul(
        TWELVE[1], TABLE[1:], axes="src d_model head*d_k", title=TITLE, highlight=(1, 2)
    ),
    "storage": lambda: draw.storage(
        TWELVE, TWELVE.transpose(1, 2), TWELVE.transpose(1, 2).contiguous(),
        axes=["batch src d_model", "batch d_model src", "batch d_model src"], title=TITLE,
    ),
    "storage of a slice": lambda: draw.storage(torch.arange(15)[2:5], axes="src", title=TITLE),
    "lookup": lambda: draw.lookup(IDS, TABLE, title=TITLE, vocabulary=VOCABULARY),
    "rotation": lambda: draw.rotation(waves(8, 6), title=TITLE),
    "curves": lambda: draw.curves(
        {"rises": [0.0, 1.0, 2.0], "stays": [1.0, 1.0, 1.0], "ends there too": [2.0, 0.0, 2.0]},
        title=TITLE, x_label="layers", y_label="norm",
    ),
    "curves by powers of ten": lambda: draw.curves(
        {f"halved by {n}": 2.0 ** -(n * torch.arange(65)) for n in range(1, 7)},
        title=TITLE, log=True,
    ),
    "groups": lambda: draw.groups(
        TWELVE, "batch src d_model", {"LayerNorm": "d_model", "BatchNorm": "batch src"},
        title=TITLE, labels={"src": WORDS},
    ),
    "groups of a class": lambda: draw.groups(
        torch.arange(45).view(3, 5, 3), "class student subject", {"LayerNorm": "subject"},
        title=TITLE,
    ),
    "bars": lambda: draw.bars(
        {"separate": {"table": 512_000, "layers": 44_103_680, "output": 512_000},
         "tied": {"table": 512_000, "layers": 44_103_680}},
        title=TITLE, unit="parameters",
    ),
    "bars with short parts": lambda: draw.bars(
        {"model": {"weights": 252, "positions": 24, "a count": 3, "steps (38)": 38}}, title=TITLE
    ),
    "rotated query": lambda: draw.rotated_query([-0.5, 0.55], [-0.75, -0.8], title=TITLE),
    "query rotated to the right": lambda: draw.rotated_query(
        [2.0, -0.5], [0.3, 0.6], title=TITLE, names=("query of cat", "key of cat")
    ),
    "walk": lambda: draw.walk(traced(), title=TITLE),
    "without a source": lambda: draw.without_source(
        traced(), traced(decoder_only=True), title=TITLE
    ),
    "plan": lambda: draw.plan(traced(), title=TITLE),
    "plan of two layers": lambda: draw.plan(companion(), title=TITLE),
    "plan of one matrix": lambda: draw.plan(
        traced(tie_weights=True), title=TITLE, shared=True, tied=True
    ),
    "stream": lambda: draw.stream(
        traced(), "encoder.layers.0", title=TITLE, batch=1, position=0,
        labels=example.words, last_norm=True,
    ),
    "stream with a memory": lambda: draw.stream(
        traced(), "decoder.layers.0", title=TITLE, batch=1, position=1,
        labels=example.words,
    ),
    "stream of a second encoder layer": lambda: draw.stream(
        companion(), "encoder.layers.1", title=TITLE, batch=1, position=3, last_norm=True
    ),
    "stream of a second decoder layer": lambda: draw.stream(
        companion(), "decoder.layers.1", title=TITLE, batch=1, position=3, last_norm=True
    ),
    "stream of one sublayer": lambda: draw.stream(
        traced(), "decoder.layers.0", title=TITLE, batch=0, position=0,
        sublayers={"cross_attention": "look across"},
    ),
    "stream in both orders": lambda: draw.stream(
        [traced(norm_first=order) for order in (True, False)],
        "encoder.layers.0", title=TITLE, batch=1, position=0, labels=example.words,
        sublayers={"self_attention": "attention"},
    ),
    "heads": lambda: draw.heads(traced(), PATH, title=TITLE, batch=1, labels=LABELS),
    "heads of a post-norm layer": lambda: draw.heads(
        traced(norm_first=False), PATH, title=TITLE, batch=1, query=1
    ),
    "heads across": lambda: draw.heads(
        traced(), "decoder.layers.0.cross_attention", title=TITLE, batch=1, query=1
    ),
    "heads with a hidden key": lambda: draw.heads(
        traced(), PATH, title=TITLE, batch=0, query=1, labels=LABELS
    ),
    "one head": lambda: draw.heads(
        traced(num_heads=1, padding=False), PATH, title=TITLE, batch=1,
        labels=LABELS,
    ),
    "shared heads": lambda: draw.shared_heads(grouped(2), title=TITLE, query=1, labels=ASKED),
    "heads on one head": lambda: draw.shared_heads(grouped(1), title=TITLE, query=1),
    "heads of their own": lambda: draw.shared_heads(grouped(4, turned=False), title=TITLE),
    "two wide heads": lambda: draw.heads(traced(num_heads=2), PATH, title=TITLE),
}  # fmt: skip


@cache
def drawn(name: str) -> tuple[Drawing, set[str]]:
    """Draw a figure, cached for all tests; return it with the axes that have a bracket."""
    with patch.object(Canvas, "bracket", autospec=True, side_effect=Canvas.bracket) as bracket:
        drawing = FIGURES[name]()
    return drawing, {call.args[1] for call in bracket.call_args_list}


def figure(name: str) -> Drawing:
    """Return the figure of a given name, which a test must not modify."""
    return drawn(name)[0]


def picture_of(alt: str) -> str:
    """Format a figure as a notebook stores it, with an empty picture."""
    svg = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'></svg>"
    return f'<p style="">A claim</p><img alt="{alt}" style="max-width:100%" src="{DATA}{svg}">'
