"""Writes the cards of the lessons for the book's home page, each with a small picture.

A picture is SVG of the traced numbers of the lesson, in the colours of the page. A lesson that has
none here shows the axes that go in and come out, from the list of steps.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from html import escape
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from twelve import GroupedQueryAttention, RotaryEncoding, causal_mask, sinusoid
from twelve.generation import greedy_decode
from twelve.same_as_pytorch import to_torch
from twelve.training import cross_entropy
from twelve_lab import Trace, example, real_heads
from twelve_lab.course import Step
from twelve_lab.show.palette import axis_style

WIDTH, HEIGHT = 200, 110
# Of 15 at this width, letters are 11 px high where two cards share the width of a phone.
LETTER = 15
SELF = "encoder.layers.0.self_attention"
NORM, FORWARD = f"{SELF}_residual.norm", "encoder.layers.0.feed_forward"

# What a picture says to whoever does not see it, and what it is drawn with.
Picture = tuple[str, str]
PICTURES: dict[str, Callable[[], Picture]] = {}


def cards(steps: Iterable[Step]) -> str:
    """Write the lessons as a grid of cards, by the parts of the course.

    Args:
        steps: The steps, in reading order.

    Returns:
        HTML without an empty line, for a page at the root of the book.
    """
    parts = []
    for part, group in groupby(steps, lambda step: step.part):
        lessons = "\n".join(map(card, group))
        parts.append(f"<section><h3>{_sentence(part)}</h3>\n<ul>\n{lessons}\n</ul></section>")
    return '<div class="lessons">\n' + "\n".join(parts) + "\n</div>"


def card(step: Step) -> str:
    """Write the card of a lesson: picture, number, title and the question that it answers."""
    page = step.notebook.replace(".ipynb", ".html")
    title = f'<a href="{page}"><span>{step.number}</span> {escape(_sentence(step.title))}</a>'
    return f"<li>{picture(step)}<div><p>{title}</p><p>{escape(step.question)}</p></div></li>"


def picture(step: Step) -> str:
    """Draw the picture of a lesson as SVG that takes its colours from the page around it."""
    alt, drawn = PICTURES.get(step.stem, lambda: _shapes(step.contract))()
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-size="{LETTER}"'
    return f'<svg role="img" aria-label="{escape(alt)}" {size}>{drawn}</svg>'


def _of(draw: Callable[[], Picture]) -> Callable[[], Picture]:
    """Let a function draw the step of its name, once."""
    PICTURES[draw.__name__.removeprefix("_")] = cache(draw)
    return draw


# --- what the pictures are made of ---


def _word(x: float, y: float, text: str, anchor: str = "middle") -> str:
    place = f'x="{x:g}" y="{y + LETTER / 3:g}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>"


def _line(*points: tuple[float, float], style: str = "") -> str:
    path = "L".join(f"{x:.4g} {y:.4g}" for x, y in points)
    return f'<path d="M{path}"' + (f' style="{style}"/>' if style else "/>")


def _arrow(*points: tuple[float, float]) -> str:
    """Draw a line whose last stretch, which is level or upright, ends in a point."""
    (x0, y0), (x, y) = points[-2:]
    dx, dy = 5 * (x > x0) - 5 * (x < x0), 5 * (y > y0) - 5 * (y < y0)
    wings = (x - dx - dy, y - dy - dx), (x, y), (x - dx + dy, y - dy + dx)
    return _line(*points) + _line(*wings)


def _box(x: float, y: float, width: float, height: float, text: str = "", kind: str = "") -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    named = f' class="{kind}"' if kind else ""
    return f"<rect {place}{named}/>" + (text and _word(x + width / 2, y + height / 2, text))


def _cells(
    rows: Tensor, x: float, y: float, width: float, height: float, *,
    numbers: bool = False, share: bool = False, gap: float = 0,
) -> str:  # fmt: skip
    """Draw numbers as cells: red above zero, blue below, as in every figure; shares are grey."""
    rows, drawn = torch.atleast_2d(rows).tolist(), ""
    largest = 1.0 if share else max(abs(number) for row in rows for number in row)
    for down, row in enumerate(rows):
        for right, number in enumerate(row):
            kind = "share" if share else "up" if number > 0 else "down"
            left, top = x + right * width, y + down * (height + gap)
            place = f'x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"'
            part = f"--f:{100 * abs(number) / largest:.0f}%"
            drawn += f'<rect {place} class="{kind}" style="{part}"/>'
            if numbers:
                drawn += _word(left + width / 2, top + height / 2, f"{number:.2f}")
    return drawn


def _net(weight: Tensor, x: float, end: float, y: float, space: float) -> str:
    """Draw a matrix as lines from what goes in, on the left, to what comes out.

    Args:
        weight: As torch stores it, (out, in); the wider a line, the further from zero.
        x: Where the lines begin.
        end: Where they end.
        y: The middle between the first and the last of both sides.
        space: From one number to the next.
    """
    drawn = ""
    for down, row in enumerate(weight.tolist()):
        for at, number in enumerate(row):
            start = (x, y + space * (at - (len(row) - 1) / 2))
            stop = (end, y + space * (down - (len(weight) - 1) / 2))
            if number:
                colour = "orange" if number > 0 else "blue"
                style = f"stroke:var(--{colour});stroke-width:{0.5 + 4 * abs(number):.3g}"
                drawn += _line(start, stop, style=style)
    return drawn


def _two(numbers: Tensor) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers.flatten().tolist())


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


@cache
def _run() -> Mapping[str, Any]:
    return example.trace(on="cpu")


def _value(name: str) -> Tensor:
    return _run()[name].value


def _shapes(contract: str) -> Picture:
    """Draw the axes that go in and come out, each in its colour."""
    sides = [re.findall(r"\(([^)]+)\)", side) for side in re.split("<?->", contract)]
    drawn = _arrow((88, 55), (112, 55))
    for left, shapes in zip((0, 118), (sides[0], sides[-1]), strict=True):
        axes = shapes[0].split(", ") if shapes else ["words"]
        for down, axis in enumerate(axes):
            y = 55 + 26 * (down - len(axes) / 2)
            colour = f"stroke:{axis_style(axis).colour};stroke-width:4"
            drawn += _word(left + 41, y + 9, axis)
            drawn += _line((left + 6, y + 21), (left + 76, y + 21), style=colour)
    return f"What goes in and what comes out: {contract}.", drawn


# --- the lessons ---


@_of
def _start_here() -> Picture:
    numbers, scores = _value("src_embedding.vectors").flatten(0, 1), _value("logits").flatten(0, 1)
    best = scores.argmax(-1).tolist()
    said = [example.vocabulary[id] for id in best]
    drawn = _cells(numbers, 2, 7, 18, 24) + _arrow((60, 55), (80, 55))
    drawn += _cells(scores, 85, 7, 18, 24)
    for down, id in enumerate(best):
        drawn += _box(85 + 18 * id, 7 + 24 * down, 18, 24, kind="lit")
        drawn += _word(164, 19 + 24 * down, said[down], "start")
    return f"Twelve numbers become scores, and the scores words: {', '.join(said)}.", drawn


@_of
def _linear() -> Picture:
    goes_in = _value(f"{NORM}.output")[1, 0]
    comes_out = _value(f"{SELF}.projected_query")[1, 0]
    drawn = _net(example.model().encoder.layers[0].self_attention.w_q.weight, 52, 148, 55, 37)
    for numbers, x in ((goes_in, 2), (comes_out, 148)):
        drawn += _cells(numbers[:, None], x, 5, 50, 26, gap=11, numbers=True)
    return f"Three numbers, {_two(goes_in)}, mix into three others: {_two(comes_out)}.", drawn


@_of
def _embedding() -> Picture:
    table = torch.tensor(example.embedding_rows)
    drawn = _cells(table, 58, 5, 36, 25, numbers=True)
    for down, word in enumerate(example.vocabulary):
        drawn += _word(52, 17.5 + 25 * down, word, "end")
    drawn += _box(58, 55, 108, 25, kind="lit") + _arrow((168, 67.5), (196, 67.5))
    return f"A table with a row of three numbers a word; that of dog is {_two(table[2])}.", drawn


@_of
def _positional_encoding() -> Picture:
    table, drawn = sinusoid(49, 16), _line((4, 55), (196, 55))
    for pair, colour in enumerate(("orange", "blue", "green"), 1):
        curve = [(4 + 4 * at, 55 - 46 * row[2 * pair]) for at, row in enumerate(table.tolist())]
        drawn += _line(*curve, style=f"stroke:var(--{colour});stroke-width:3")
    return "Three waves over 49 positions: a fast, a slower and a very slow one.", drawn


@_of
def _attention() -> Picture:
    weights, words = _value(f"{SELF}.weights")[1, 0], example.words["src"][1]
    drawn = ""
    for query, row in enumerate(weights.tolist()):
        for key, weight in enumerate(row):
            ends = (44, 28 + 56 * query), (156, 28 + 56 * key)
            drawn += _line(*ends, style=f"stroke:var(--blue);stroke-width:{1 + 9 * weight:.3g}")
        drawn += _word(100, (10, 102)[query], f"{row[query]:.2f}")
    for at, word in enumerate(words):
        drawn += _word(38, 28 + 56 * at, word, "end") + _word(162, 28 + 56 * at, word, "start")
    both = zip(words, weights.diag(), strict=True)
    told = [f"{word} looks at itself with {weight:.2f}" for word, weight in both]
    return f"Two words look at two words: {' and '.join(told)}.", drawn


@_of
def _masks() -> Picture:
    allowed = causal_mask(5)[0, 0]
    drawn = _cells(allowed.double(), 45, 5, 22, 20, share=True)
    for query, key in (~allowed).nonzero().tolist():
        x, y = 45 + 22 * key, 5 + 20 * query
        drawn += _line((x, y), (x + 22, y + 20)) + _line((x + 22, y), (x, y + 20))
    return f"Of 25 pairs of words {int(allowed.sum())} may look; the future is crossed out.", drawn


@_of
def _multi_head_attention() -> Picture:
    drawn, heads = "", _value(f"{SELF}.weights")[1]
    for at, weights in enumerate(heads):
        x = 4 + 66 * at
        drawn += _word(x + 30, 14, f"head {at}") + _cells(weights, x, 38, 30, 30, share=True)
        for y in (26, 31):  # as the bracket of this axis in every figure
            drawn += _line((x, y), (x + 60, y), style="stroke:var(--green);stroke-width:2")
    return (
        f"Three heads, each with weights of its own: {_two(heads[:, 0, 0])} are the first.",
        drawn,
    )


@_of
def _normalization() -> Picture:
    rows = _value("src_input")[1, 0], _value(f"{NORM}.output")[1, 0]
    drawn = "".join(_line((4, y), (196, y)) for y in (16, 74))
    for mark in (-1, 0, 1):
        drawn += _line((100 + 62 * mark, 70), (100 + 62 * mark, 78))
        drawn += _word(100 + 62 * mark, 96, str(mark))
    ends = zip(*([100 + 62 * x for x in row.tolist()] for row in rows), strict=True)
    for before, after in ends:
        drawn += _line((before, 16), (after, 74), style="stroke:var(--orange)")
        for x, y in ((before, 16), (after, 74)):
            drawn += f'<circle cx="{x:.4g}" cy="{y}" r="6"/>'
    return f"Three numbers, {_two(rows[0])}, are moved around zero: {_two(rows[1])}.", drawn


@_of
def _residual() -> Picture:
    names = ("src_input", f"{SELF}.output", "encoder.layers.0.self_attention_residual.added")
    came, made, added = (_value(name)[1, 0] for name in names)
    drawn = _cells(came, 2, 68, 16, 26) + _cells(added, 150, 68, 16, 26)
    drawn += _line((50, 81), (108, 81)) + _arrow((132, 81), (148, 81)) + _word(120, 81, "+")
    drawn += '<circle cx="120" cy="81" r="12" class="ring"/>'
    drawn += _line((62, 81), (62, 24), (72, 24)) + _box(72, 10, 38, 28, "f(x)")
    drawn += _arrow((110, 24), (120, 24), (120, 68)) + _cells(made, 134, 11, 16, 26)
    return f"A layer adds to a row: {_two(came)} plus {_two(made)} is {_two(added)}.", drawn


@_of
def _feed_forward() -> Picture:
    layer = example.model().encoder.layers[0].feed_forward
    names = (f"{FORWARD}_residual.norm.output", f"{FORWARD}.activated", f"{FORWARD}.output")
    three, four, last = (_value(name)[1, 1] for name in names)
    drawn = _net(layer.up.weight, 26, 88, 55, 27) + _net(layer.down.weight, 112, 174, 55, 27)
    for numbers, x in ((three, 2), (four, 88), (last, 174)):
        drawn += _cells(numbers[:, None], x, 55 - 13.5 * len(numbers), 24, 24, gap=3)
    off = int((four == 0).sum())
    return f"Three numbers become four, {off} of them 0, and then three again.", drawn


@_of
def _encoder() -> Picture:
    drawn = _cells(_value("src_input").flatten(0, 1), 2, 15, 10, 20) + _arrow((33, 55), (43, 55))
    drawn += _box(45, 5, 110, 100, kind="frame")
    drawn += _box(50, 12, 100, 36, "attention") + _box(50, 62, 100, 36, "feed-forward")
    drawn += _arrow((100, 48), (100, 62)) + _arrow((155, 55), (165, 55))
    drawn += _cells(_value("memory").flatten(0, 1), 168, 15, 10, 20)
    return "Numbers go through attention and feed-forward, and come out as memory.", drawn


@_of
def _decoder() -> Picture:
    drawn = _cells(_value("tgt_input")[1], 2, 3, 10, 18) + _arrow((33, 21), (43, 21))
    drawn += _box(45, 2, 110, 106, kind="frame")
    for y, name in ((8, "self"), (42, "cross"), (76, "feed-forward")):
        drawn += _box(50, y, 100, 26, name)
    drawn += _arrow((100, 34), (100, 42)) + _arrow((100, 68), (100, 76))
    drawn += _cells(_value("memory")[1], 168, 30, 10, 18) + _arrow((166, 55), (152, 55))
    drawn += _arrow((155, 89), (165, 89)) + _cells(_value("decoder_output")[1], 168, 71, 10, 18)
    return "Self-attention, then cross-attention to the memory, then feed-forward.", drawn


@_of
def _transformer() -> Picture:
    src, tgt = (example.words[side][1] for side in ("src", "tgt"))
    said = example.vocabulary[_value("logits")[1, -1].argmax()]
    drawn = _box(10, 36, 78, 40, "encoder") + _box(112, 36, 78, 40, "decoder")
    drawn += _arrow((88, 56), (110, 56)) + _arrow((49, 92), (49, 78)) + _arrow((151, 92), (151, 78))
    drawn += _arrow((151, 36), (151, 22)) + _word(151, 11, said)
    drawn += _word(49, 101, " ".join(src)) + _word(151, 101, " ".join(tgt))
    told = f"The encoder reads {' '.join(src)}; the decoder has written {' '.join(tgt[1:])}"
    return f"{told} and says {said}.", drawn


@_of
def _training() -> Picture:
    losses, model = [], example.model()
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    for _ in range(31):
        with torch.enable_grad():
            loss = cross_entropy(model(example.src, example.tgt, **masks), example.labels)
            slopes = torch.autograd.grad(loss, weights := list(model.parameters()))
        losses.append(loss.item())
        for weight, slope in zip(weights, slopes, strict=True):
            weight.data -= 0.03 * slope
    drawn = _line((30, 4), (30, 92), (196, 92)) + _word(110, 14, "loss")
    curve = [(34 + 5.2 * at, 88 - 70 * value / losses[0]) for at, value in enumerate(losses)]
    drawn += _line(*curve, style="stroke:var(--orange);stroke-width:3")
    first, *_, last = losses
    return f"In {len(losses) - 1} steps the loss falls from {first:.2f} to {last:.2f}.", drawn


@_of
def _generation() -> Picture:
    ids = greedy_decode(example.model(), example.src[1:], start_id=0, max_len=3)
    words = ["<start>", *(example.vocabulary[id] for id in ids[0, 1:].tolist())]
    drawn = ""
    for down in range(len(words)):
        for at, word in enumerate(words[: down + 1]):
            x, width = (2, 70) if not at else (26 + 50 * at, 46)
            drawn += _box(x, 4 + 36 * down, width, 28, word, "spot" if at == down else "")
    return f"Word by word: {', then '.join(words)}.", drawn


@_of
def _same_as_pytorch() -> Picture:
    ours = example.model()
    theirs = to_torch(ours).encoder.layers[0].self_attn.in_proj_weight[:3]
    mine = ours.encoder.layers[0].self_attention.w_q.weight
    drawn = _cells(mine, 6, 4, 26, 26) + _cells(theirs, 116, 4, 26, 26) + _word(100, 43, "=")
    drawn += _word(45, 98, "twelve") + _word(155, 98, "torch.nn")
    return "The nine weights of a matrix, the same nine in torch.nn.", drawn


@_of
def _rotary_positions() -> Picture:
    model = example.model(num_heads=2).requires_grad_(False)
    attention, rows = model.encoder.layers[0].self_attention, model.src_embedding.weight
    query, key = attention.w_q(rows[3])[:2], attention.w_k(rows[2])[:2]  # of head 0
    # At place 0, at 1, and on the way there.
    places = RotaryEncoding(2, max_len=2)(query.expand(1, 1, 2, 2))[0, 0]
    share = torch.linspace(0, 1, 9).unsqueeze(1)
    way = places[0] + share * (places[1] - places[0])
    way *= 0.8 * query.norm() / way.norm(dim=1, keepdim=True)

    def at(arrow: Tensor) -> tuple[float, float]:
        return 160 + 66 * arrow[0].item(), 48 - 66 * arrow[1].item()

    drawn = _line(*map(at, way), style="stroke:var(--orange)")
    for arrow, name, style in (
        (places[0], "fish at 0", "stroke-dasharray:4 3"),
        (places[1], "fish at 1", "stroke:var(--orange);stroke-width:3"),
        (key, "dog at 0", "stroke:var(--blue);stroke-width:3"),
    ):
        x, y = at(arrow)
        drawn += _line((160, 48), (x, y), style=style) + _word(x - 8, y, name, "end")
        drawn += f'<circle cx="{x:.4g}" cy="{y:.4g}" r="4"/>'
    before, after = (places @ key).tolist()
    told = f"their match was {before:.2f} and is {after:.2f}"
    return f"The arrow of fish is turned towards that of dog: {told}.", drawn


@_of
def _grouped_query_attention() -> Picture:
    two = example.model(num_heads=2).encoder.layers[0].self_attention
    further = torch.tensor([[1, 0, 0.5], [0.5, -0.5, 1], [0, 1, -0.5], [-1, 0.5, 0]])  # as in 17
    layer = GroupedQueryAttention(3, 4, 2, d_k=2, rotary=RotaryEncoding(2)).requires_grad_(False)
    layer.w_q.weight[:] = torch.cat([two.w_q.weight, further])
    layer.w_k.weight[:] = two.w_k.weight
    with Trace(layer) as run:
        layer(torch.tensor([example.embedding_rows[2:]]))
    asks, kept = (run[name].value[0] for name in ("rotary.turned", "rotary#2.turned"))
    drawn = _word(100, 10, f"{len(asks)} heads ask")
    for head, query in enumerate(asks[:, 1]):
        x, shared = 4 + 50 * head, 50 + 100 * (head * len(kept) // len(asks))
        drawn += _cells(query, x, 22, 21, 20)
        drawn += _line((x + 21, 42), (shared, 62), style="stroke:var(--green);stroke-width:3")
    for head, keys in enumerate(kept):
        drawn += _cells(keys, 29 + 100 * head, 62, 21, 13)
    drawn += _word(100, 102, f"{len(kept)} are kept")
    return (
        f"{len(asks)} heads ask, and {len(kept)} heads of keys are kept; neighbours share.",
        drawn,
    )


@_of
def _decoder_only() -> Picture:
    run, heard = example.trace(decoder_only=True, on="cpu"), example.words["seq"][1]
    said = example.vocabulary[run["logits"].value[1, -1].argmax()]
    drawn = _cells(run["embedded"].value[1], 2, 18, 10, 22) + _arrow((34, 40), (44, 40))
    drawn += _box(46, 3, 108, 88, kind="frame")
    drawn += _box(51, 9, 98, 32, "attention") + _box(51, 53, 98, 32, "SwiGLU")
    drawn += _arrow((100, 41), (100, 53)) + _arrow((154, 69), (164, 69)) + _word(182, 69, said)
    # What it says is the next word that it reads.
    drawn += _arrow((182, 80), (182, 102), (17, 102), (17, 86)) + _box(2, 62, 30, 22, kind="spot")
    return f"One stack reads {' '.join(heard)}, says {said}, and reads that as well.", drawn


@_of
def _pretrained() -> Picture:
    france = real_heads.read("capital")
    drawn, weights = _word(198, 55, "Paris", "end"), france.weights[0, -1].tolist()
    for at, (word, weight) in enumerate(zip(france.tokens, weights, strict=True)):
        height = 11 + 22 * at
        drawn += _word(2, height, word, "start")
        style = f"stroke:var(--blue);stroke-width:{1 + 9 * weight:.3g}"
        drawn += _line((60, height), (152, 55), style=style)
    told = f"gives {france.tokens[3]} {weights[3]:.2f} of its weight"
    return f"A head of a real model {told}, and the model says Paris.", drawn


@_of
def _containers() -> Picture:
    drawn = _box(2, 30, 196, 60, kind="frame") + _word(100, 14, "Sequential")
    for at, name in enumerate(("Linear", "ReLU", "Linear")):
        drawn += _box(10 + 64 * at, 44, 52, 32, name)
    drawn += _arrow((62, 60), (74, 60)) + _arrow((126, 60), (138, 60))
    return "A Sequential holds a Linear, a ReLU and a Linear.", drawn


@_of
def _saving_and_devices() -> Picture:
    weight = example.model().encoder.layers[0].self_attention.w_q.weight
    drawn = _cells(weight, 2, 22, 16, 22) + _arrow((54, 55), (72, 55))
    drawn += _line((76, 24), (104, 24), (120, 40), (120, 86), (76, 86), (76, 24))
    drawn += _line((104, 24), (104, 40), (120, 40)) + _word(98, 64, ".pt")
    drawn += _arrow((124, 55), (142, 55)) + _box(146, 8, 52, 92, kind="frame")
    drawn += _cells(weight, 148, 30, 16, 22) + _word(172, 20, "GPU")
    return "Nine weights go to a file, and from there to a GPU.", drawn


@_of
def _notes_corrected() -> Picture:
    drawn = _word(12, 24, "scores × mask", "start") + _word(12, 62, "where False: −∞", "start")
    drawn += _line((8, 25), (116, 25), style="stroke:var(--orange);stroke-width:3")
    drawn += _line((148, 60), (158, 72), (182, 44), style="stroke:var(--green);stroke-width:4")
    return "Scores times a mask is crossed out; minus infinity where it is False is right.", drawn
