"""Lesson 03: mistakes in the table of positional encodings and in adding it."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.modules import Misbuilt, build
from twelve_lab.exercises.numbers import SIZES, seeded
from twelve_lab.messages import message


def _sinusoid_cases() -> Cases:
    return {
        "2 positions, 3 features": (2, 3),
        "an odd number of features": (4, 7),
        "all sizes differ": (5, 24),
    }


@task(
    _sinusoid_cases,
    forbidden=("sinusoid", "cos", "for", "[:]"),
    measures="the pairs of columns, and the exponent's sign",
)
def sinusoid(max_len: int, d_model: int) -> Tensor:
    """max_len, d_model -> (position, feature), max_len by d_model"""
    position = torch.arange(max_len).unsqueeze(1)
    even_feature = torch.arange(0, d_model, 2)
    angles = position * 10000.0 ** (-even_feature / d_model)
    table = torch.zeros(max_len, d_model)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles[:, : d_model // 2])
    return table


@solved(sinusoid)
def _table_of_sines(max_len: int, d_model: int) -> Tensor:
    column = torch.arange(d_model)
    speed = 10000.0 ** (-2 * (column // 2) / d_model)
    ahead = column % 2 * math.pi / 2
    return (torch.arange(max_len).unsqueeze(1) * speed + ahead).sin()


mistake(
    sinusoid,
    "pe-positive-exponent",
    "The minus of the exponent is missing, so the frequencies grow and neighbouring positions "
    "look unrelated: use 10000 to the power -2i/d_model.",
    {"-even_feature": "even_feature"},
)
mistake(
    sinusoid,
    "pe-sin-cos-halves",
    "You put all sines first and all cosines after them: interleave them, a sine on each even "
    "feature and its cosine on the next.",
    {
        "table[:, 0::2]": "table[:, : angles.size(1)]",
        "table[:, 1::2]": "table[:, angles.size(1) :]",
    },
)
_SINE, _COSINE = "torch.sin(angles)", "torch.cos(angles[:, : d_model // 2])"
_ODD = "torch.cos(position * 10000.0 ** (-{} * (even_feature + 1) / d_model))[:, : d_model // 2]"
notes(
    sinusoid,
    {
        "Your cosines are on the even features: put the sine of a pair first.": {
            _SINE: _SINE.replace("sin", "cos"),
            _COSINE: _COSINE.replace("cos", "sin"),
        },
        "Each of your features has its own frequency: the two features of a pair must share one.": {
            _COSINE: _ODD.format(1)
        },
        "Your exponent counts features instead of pairs.": {
            "-even_feature": "-2 * even_feature",
            _COSINE: _ODD.format(2),
        },
        "Your frequencies decrease too slowly: where is the 2 of the exponent?": {
            "-even_feature": "-even_feature / 2"
        },
        "Your odd features are half a period ahead: a cosine is a quarter of a period ahead.": {
            _COSINE: "-torch.sin(angles[:, : d_model // 2])"
        },
    },
)


def _positional_encoding_cases() -> Cases:
    draw, rows = seeded(), torch.tensor(example.embedding_rows, dtype=torch.float64)
    return {
        "twelve numbers": (rows[example.src], sinusoid(8, 3)),
        "one sentence": (draw(1, 4, 6), sinusoid(8, 6)),
        "all sizes differ": (
            draw(SIZES.batch, SIZES.src, SIZES.d_model),
            sinusoid(SIZES.max_len, SIZES.d_model),
        ),
    }


@task(
    _positional_encoding_cases,
    forbidden=("[:]",),
    measures="taking rows along the position axis",
)
def positional_encoding(x: Tensor, table: Tensor) -> Tensor:
    """x (batch, seq, d_model), table (max_len, d_model) -> (batch, seq, d_model)"""
    return x + table[: x.size(1)]


@solved(positional_encoding)
def _add_by_place(x: Tensor, table: Tensor) -> Tensor:
    return x + table[torch.arange(x.size(1))]


mistake(
    positional_encoding,
    "pe-batch-index",
    "You took one row for each sentence, x.size(0), which is right only if there are as many "
    "sentences as words: take one row for each word, x.size(1).",
    {"x.size(1)": "x.size(0)"},
)
mistake(
    positional_encoding,
    "pe-sequence-first",
    "You added the rows of the table along the batch, so all words of a sentence get the same "
    "row: add them along axis 1 of x.",
    {"table[: x.size(1)]": "table[: x.size(0)].unsqueeze(1)"},
)
notes(
    positional_encoding,
    {
        "Your first token gets the row of position 1: positions are counted from 0.": {
            "table[: x.size(1)]": "table[1 : x.size(1) + 1]"
        },
        "All tokens get the same row: each position needs its own row.": {
            "table[: x.size(1)]": "table[x.size(1)]"
        },
        "All tokens get the row of the last position: each position needs its own row.": {
            "table[: x.size(1)]": "table[x.size(1) - 1]"
        },
        "All tokens get the row of position 0: each position needs its own row.": {
            "table[: x.size(1)]": "table[0]"
        },
        "You multiplied the words by the square root of d_model: here they are added unchanged.": {
            "x + T": "x * math.sqrt(x.size(2)) + T"
        },
    },
)


def _drop_a_tenth() -> Callable[[Tensor], Tensor]:
    """Return a dropout with rate 0.1 that drops the same features on every machine."""
    generator = torch.Generator("cpu").manual_seed(12)

    def drop(x: Tensor) -> Tensor:
        kept = torch.rand(x.shape, generator=generator, device="cpu") >= 0.1
        return x * kept / 0.9

    return drop


def _positions_dropped_cases() -> Cases:
    given = _positional_encoding_cases()
    return {
        "twelve numbers": (*given["twelve numbers"], _drop_a_tenth()),
        "eval mode": (*given["all sizes differ"], torch.clone),
        "all sizes differ": (*given["all sizes differ"], _drop_a_tenth()),
    }


@task(_positions_dropped_cases, measures="dropout once, and after the sum")
def positions_dropped(x: Tensor, table: Tensor, dropout: Callable[[Tensor], Tensor]) -> Tensor:
    """x (batch, seq, d_model), table (max_len, d_model), dropout -> (batch, seq, d_model)"""
    rows = table[: x.size(1)]
    return dropout(x + rows)


mistake(
    positions_dropped,
    "dropout-twice",
    "You applied dropout twice, so about 8 of 10 features survive instead of 9: apply dropout "
    "once, after the sum.",
    {"dropout(x + rows)": "dropout(dropout(x + rows))"},
    step="12",
)
notes(
    positions_dropped,
    {
        "You applied dropout to the positions alone: apply it to the sum, so that words are "
        "dropped too.": {"dropout(x + rows)": "x + dropout(rows.expand_as(x))"},
        "You applied dropout to words and positions separately: apply it to the sum, so that no "
        "half of a sum is dropped.": {"dropout(x + rows)": "dropout(x) + dropout(rows)"},
    },
)


def _positional_layer_cases() -> Cases:
    given, draw = _positional_encoding_cases(), seeded()
    words = draw(SIZES.batch, SIZES.src, SIZES.d_model)
    return {
        "twelve numbers": (given["twelve numbers"][0], 8, 0),
        "all sizes differ": (words, SIZES.max_len, 0),
        "one new word, start 3": (words[:, :1].clone(), SIZES.max_len, 3),
        "all sizes differ, start 7": (words[:, :5].clone(), SIZES.max_len, 7),
    }


def run_positional_layer(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, max_len, *start = given
    shapes = {"table": torch.Size((max_len, x.size(-1)))}
    layer = build(answer, (x.size(-1), max_len), shapes, trained=False)
    if layer is ...:
        return ...
    if list(layer.parameters()):
        raise Misbuilt(
            message("table is a parameter, which training would change. Register it as a buffer.")
        )
    return layer(x, *start)


class _PositionalLayer(nn.Module):
    """Layer(d_model, max_len), x (batch, seq, d_model), start -> (batch, seq, d_model)"""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoid(max_len, d_model))

    def forward(self, x: Tensor, start: int) -> Tensor:
        return positional_encoding(x, self.table[start:])


positional_layer = task(
    _positional_layer_cases,
    name="positional_layer",
    measures="a buffer that is sliced from any start",
    run=run_positional_layer,
)(_PositionalLayer)


@solved(positional_layer)
class _EncodingFrom(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.register_buffer("table", sinusoid(max_len, d_model))

    def forward(self, x, start=0):
        return x + self.table[start : start + x.size(1)]


notes(
    positional_layer,
    {
        "Your rows always start at position 0: the first token of x has position start.": {
            "forward: self.table[start:]": "self.table"
        },
        "Your rows end at x.size(1), as if they started at 0: how many rows are needed from start "
        "on?": {"forward: positional_encoding(x, T)": "x + self.table[start : x.size(1)]"},
    },
)


@question(measures="that positions have no batch axis")
def rows_shape() -> tuple[int, ...]:
    """the rows of the table that are added -> (seq, d_model)"""
    return (5, 24)


again(rows_shape, "pe-batch-index", by=lambda: (2, 24))
again(rows_shape, "pe-sequence-first", by=lambda: (2, 1, 24))
notes(
    rows_shape,
    {
        "This shape has a batch axis: does the table know how many sentences there are?": (
            2, 5, 24,
        ),
        "The table has no batch axis, not even one of size 1.": (1, 5, 24),
        "This is the whole table: how many positions does a sentence have?": (32, 24),
        "This is one position: how many does a sentence have?": (24,),
    },
)  # fmt: skip


@question(measures="finding pair, frequency and angle of a sine", worked="0.5 + 4 * 0.0021544")
def fish_at_four() -> float:
    """feature 2 of fish at position 4, d_model 3"""
    return 0.5 + sinusoid(6, 3)[4, 2].item()


notes(
    fish_at_four,
    {
        "This is the sine of pair 0: feature 2 belongs to pair 1.": {"X[4, 2]": "X[4, 0]"},
        "This is the number of the table: add the number of the word.": {"0.5 + X": "X"},
        "This is the number at position 1: which position is asked for?": {"X[4, 2]": "X[1, 2]"},
        "This is the number at position 3: positions are counted from 0.": {"X[4, 2]": "X[3, 2]"},
        "This is the number at position 5: which position is asked for?": {"X[4, 2]": "X[5, 2]"},
        "You added to the 0.3: features are counted from 0.": {"0.5 + X": "0.3 + X"},
    },
)


@question(measures="that only the distance of two rows counts")
def far_apart() -> float:
    """the dot product of rows 40 and 43, d_model 16"""
    rows = sinusoid(45, 16)
    return (rows[40] @ rows[43]).item()


notes(
    far_apart,
    {
        "This is the dot product of a row with itself: how far apart are 40 and 43?": {
            "rows[43]": "rows[40]"
        },
        "This is the number at distance 4: how far apart are 40 and 43?": {"rows[43]": "rows[44]"},
        "This is the number at distance 2: how far apart are 40 and 43?": {"rows[43]": "rows[42]"},
        "This is the number for d_model 24: here d_model is 16.": {
            "sinusoid(45, 16)": "sinusoid(45, 24)"
        },
    },
)
