"""Lesson 03: mistakes in the table of positions and in adding it."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    inherit,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.modules import Misbuilt, build
from twelve_lab.exercises.numbers import seeded
from twelve_lab.messages import message

_SIZES = example.SIZES


def _angles(max_len: int, d_model: int, sign: float = -1.0, base: float = 10000.0) -> Tensor:
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    return torch.arange(max_len).unsqueeze(1) * base ** (sign * even / d_model)


def _woven(angles: Tensor, d_model: int) -> Tensor:
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]


def _one_sine(
    max_len: int, d_model: int, *, ahead: float = math.pi / 2, by_feature: int = 0
) -> Tensor:
    feature = torch.arange(d_model, dtype=torch.float64)
    power = by_feature * feature if by_feature else feature - feature % 2
    angles = torch.arange(max_len).unsqueeze(1) * 10000.0 ** (-power / d_model)
    return (angles + feature % 2 * ahead).sin()


def _sinusoid_cases() -> Cases:
    return {
        "2 positions, 3 features": (2, 3),
        "all sizes differ": (5, 24),
        "an odd number of features": (4, 7),
    }


@task(
    _sinusoid_cases,
    forbidden=("sinusoid", "cos", "for", "[:]"),
    measures="the pairs of columns, and the exponent's sign",
)
def sinusoid(max_len: int, d_model: int) -> Tensor:
    """max_len, d_model -> (position, feature), max_len by d_model"""
    return _woven(_angles(max_len, d_model), d_model)


@solved(sinusoid)
def _table_of_sines(max_len: int, d_model: int) -> Tensor:
    column = torch.arange(d_model)
    speed = 10000.0 ** (-2 * (column // 2) / d_model)
    ahead = column % 2 * math.pi / 2
    return (torch.arange(max_len).unsqueeze(1) * speed + ahead).sin()


positive_exponent = mistake(
    sinusoid,
    "pe-positive-exponent",
    "The minus of the exponent is missing, so the frequencies grow and neighbouring positions "
    "look unrelated: use 10000 to the power -2i/d_model.",
    line=("d_model), ", "d_model, sign=1.0), "),
)
sin_cos_halves = mistake(
    sinusoid,
    "pe-sin-cos-halves",
    "You put all sines first and all cosines after them: interleave them, a sine on each even "
    "feature and its cosine on the next.",
    line=(
        "return _woven(_angles(max_len, d_model), d_model)",
        "angles = _angles(max_len, d_model)\n"
        "    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :d_model]",
    ),
)
misconception(
    sinusoid,
    "Your rows start at position 1: the first row is position 0.",
    by=lambda max_len, d_model: sinusoid(max_len + 1, d_model)[1:],
)
misconception(
    sinusoid,
    "Your cosines are on the even features: a pair begins with its sine.",
    # sin(pi/2 - x) = cos(x), and cos(pi/2 - x) = sin(x).
    line=("_angles(", "math.pi / 2 - _angles("),
)
misconception(
    sinusoid,
    "Each of your features has its own frequency: the two features of a pair share one.",
    by=partial(_one_sine, by_feature=1),
)
misconception(
    sinusoid,
    "Your exponent counts features instead of pairs.",
    by=partial(_one_sine, by_feature=2),
)
misconception(
    sinusoid,
    "All your features are sines: the odd features are cosines, a quarter period ahead.",
    by=partial(_one_sine, ahead=0.0),
)
misconception(
    sinusoid,
    "Your odd features are half a period ahead: a cosine is a quarter period ahead.",
    by=partial(_one_sine, ahead=math.pi),
)
misconception(
    sinusoid,
    "Your odd features are a quarter period late, so that their cosines have the opposite sign.",
    by=partial(_one_sine, ahead=-math.pi / 2),
)
misconception(
    sinusoid,
    "Your frequencies decrease too slowly: the base of the power is too small.",
    line=("d_model), ", "d_model, base=1000.0), "),
)
misconception(
    sinusoid,
    "Your frequencies decrease too slowly: where is the 2 of the exponent?",
    line=("d_model), ", "d_model, base=100.0), "),
)


def _positional_encoding_cases() -> Cases:
    draw, rows = seeded(), torch.tensor(example.embedding_rows, dtype=torch.float64)
    return {
        "twelve numbers": (rows[example.src], sinusoid(8, 3)),
        "one sentence": (draw(1, 4, 6), sinusoid(8, 6)),
        "all sizes differ": (draw(2, 5, 24), sinusoid(32, 24)),
    }


@task(
    _positional_encoding_cases,
    forbidden=("[:]",),
    measures="taking rows along the position axis",
)
def positional_encoding(x: Tensor, table: Tensor, *, start: int = 0) -> Tensor:
    """x (batch, seq, d_model), table (max_len, d_model) -> (batch, seq, d_model)"""
    return x + table[start : start + x.size(1)]


@solved(positional_encoding)
def _add_by_place(x: Tensor, table: Tensor) -> Tensor:
    return x + table[torch.arange(x.size(1))]


batch_index = mistake(
    positional_encoding,
    "pe-batch-index",
    "You took one row for each sentence, x.size(0), which is right only if there are as many "
    "sentences as words: take one row for each word, x.size(1).",
    line=("size(1)", "size(0)"),
    hidden_in={"twelve numbers"},
    refused_in={"all sizes differ"},
)
sequence_first = mistake(
    positional_encoding,
    "pe-sequence-first",
    "You added the rows of the table along the batch, so that all words of a sentence get the "
    "same row: add them along axis 1 of x.",
    line=("size(1)]", "size(0)].unsqueeze(1)"),
)
one_late = misconception(
    positional_encoding,
    "Your first token gets the row of position 1: positions are counted from 0.",
    line=("[start : start", "[start + 1 : start + 1"),
)
misconception(
    positional_encoding,
    "Your rows come from the end of the table: the first token has position 0.",
    line=("start : start + x.size(1)", "-x.size(1) :"),
)
misconception(
    positional_encoding,
    "All tokens get the same row: each position has its own row.",
    line=("start : start + x.size(1)", "x.size(1)"),
)
misconception(
    positional_encoding,
    "All tokens get the row of the last position: each position has its own row.",
    line=("start : start + x.size(1)", "x.size(1) - 1"),
)
first_alone = misconception(
    positional_encoding,
    "All tokens get the row of position 0: each position has its own row.",
    line=("start : start + x.size(1)", "start"),
)
words_scaled = misconception(
    positional_encoding,
    "You multiplied the words by the square root of d_model: here they are added unchanged.",
    line=("x +", "x * math.sqrt(x.size(2)) +"),
)
misconception(
    positional_encoding,
    "You concatenated word and position: add them.",
    by=lambda x, table: torch.cat([x, table[: x.size(1)].expand_as(x)], dim=-1),
)
misconception(
    positional_encoding,
    "These are the rows of the positions alone: add the words.",
    line=("x + table", "table"),
)


def _drop_a_tenth() -> Callable[[Tensor], Tensor]:
    """Return a dropout of 0.1 that drops the same features on every machine."""
    generator = torch.Generator("cpu").manual_seed(12)

    def drop(x: Tensor) -> Tensor:
        kept = torch.rand(x.shape, generator=generator, device="cpu") >= 0.1
        return x * kept / 0.9

    return drop


def _positions_dropped_cases() -> Cases:
    given = _positional_encoding_cases()
    return {
        "twelve numbers": (*given["twelve numbers"], _drop_a_tenth()),
        "all sizes differ": (*given["all sizes differ"], _drop_a_tenth()),
        "eval mode": (*given["all sizes differ"], torch.clone),
    }


@task(_positions_dropped_cases, measures="dropout once, and after the sum")
def positions_dropped(x: Tensor, table: Tensor, dropout: Callable[[Tensor], Tensor]) -> Tensor:
    """x (batch, seq, d_model), table (max_len, d_model), dropout -> (batch, seq, d_model)"""
    rows = table[: x.size(1)]
    return dropout(x + rows)


mistake(
    positions_dropped,
    "dropout-twice",
    "You applied dropout twice, so that about 8 of 10 features survive instead of 9: apply "
    "dropout once, after the sum.",
    line=("dropout(x + rows)", "dropout(dropout(x + rows))"),
    hidden_in={"eval mode"},
    step="12",
)
misconception(
    positions_dropped,
    "The sum is right, but dropout is missing.",
    line=("dropout(x + rows)", "x + rows"),
)
misconception(
    positions_dropped,
    "You applied dropout to the words before the sum: apply it to the sum, so that positions are "
    "dropped too.",
    line=("dropout(x + rows)", "dropout(x) + rows"),
)
misconception(
    positions_dropped,
    "You applied dropout to the positions alone: apply it to the sum, so that words are dropped "
    "too.",
    line=("dropout(x + rows)", "x + dropout(rows.expand_as(x))"),
)
misconception(
    positions_dropped,
    "You applied dropout to the rows of the table: apply it to the sum, so that words are dropped "
    "too.",
    line=("dropout(x + rows)", "x + dropout(rows)"),
)
misconception(
    positions_dropped,
    "You applied dropout to words and positions separately: apply it to the sum, so that no half "
    "of a sum is dropped.",
    line=("dropout(x + rows)", "dropout(x) + dropout(rows)"),
)
misconception(
    positions_dropped,
    "You added the positions again after dropout: add them once, before it.",
    line=("dropout(x + rows)", "dropout(x + rows) + rows"),
)


def _positional_layer_cases() -> Cases:
    given, draw = _positional_encoding_cases(), seeded()
    return {
        "twelve numbers": (given["twelve numbers"][0], 8, 0),
        "all sizes differ": (given["all sizes differ"][0], 32, 0),
        "all sizes differ, start 7": (draw(2, 5, 24), 32, 7),
        "one new word, start 3": (draw(2, 1, 24), 32, 3),
    }


def _run_positional_layer(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, max_len, start = given
    shapes = {"table": torch.Size((max_len, x.size(-1)))}
    layer = build(answer, (x.size(-1), max_len), shapes, trained=False)
    if layer is ...:
        return ...
    if list(layer.parameters()):
        raise Misbuilt(
            message("table is a parameter, which training would change. Register it as a buffer.")
        )
    return layer(x, start)


class _PositionalLayer(nn.Module):
    """Layer(d_model, max_len), x (batch, seq, d_model), start -> (batch, seq, d_model)"""

    make, add = staticmethod(sinusoid), staticmethod(positional_encoding)

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.register_buffer("table", self.make(max_len, d_model))

    def forward(self, x: Tensor, start: int) -> Tensor:
        return self.add(x, self.table, start=start)


positional_layer = task(
    _positional_layer_cases,
    name="positional_layer",
    measures="a buffer that is sliced from any start",
    run=_run_positional_layer,
)(_PositionalLayer)


@solved(positional_layer)
class _EncodingFrom(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.register_buffer("table", sinusoid(max_len, d_model))

    def forward(self, x, start=0):
        return x + self.table[start : start + x.size(1)]


def _making(make: Callable[..., Tensor]) -> type[_PositionalLayer]:
    return type("_LayerMaking", (_PositionalLayer,), {"make": staticmethod(make)})


def _adding(add: Callable[..., Tensor]) -> type[_PositionalLayer]:
    return type("_LayerAdding", (_PositionalLayer,), {"add": staticmethod(add)})


inherit(positional_layer, _making, positive_exponent, sin_cos_halves)
inherit(positional_layer, _adding, batch_index, sequence_first)
misconception(
    positional_layer,
    "Your rows always start at position 0: the first token of x has position start.",
    by=_adding(lambda x, table, start: positional_encoding(x, table)),
)
misconception(
    positional_layer,
    "Your rows end at x.size(1), as if they started at 0: how many rows are needed from start on?",
    by=_adding(lambda x, table, start: x + table[start : x.size(1)]),
)
misconception(
    positional_layer,
    "Your rows start one position too late: the first token of x has position start.",
    by=_adding(one_late.wrong),
)
misconception(
    positional_layer,
    "All tokens get the row of position start: each token has its own position.",
    by=_adding(first_alone.wrong),
)
inherit(positional_layer, _adding, words_scaled)


@question(measures="that positions have no batch axis")
def rows_shape() -> tuple[int, ...]:
    """the rows of the table that are added -> (seq, d_model)"""
    x = torch.zeros(_SIZES.batch, _SIZES.src, _SIZES.d_model)
    table = torch.zeros(32, _SIZES.d_model)
    return tuple(table[: x.size(1)].shape)


again(rows_shape, "pe-batch-index", line=("size(1)", "size(0)"))
again(rows_shape, "pe-sequence-first", line=("size(1)]", "size(0)].unsqueeze(1)"))
misconception(
    rows_shape,
    "This shape has a batch axis: does the table know how many sentences there are?",
    line=("table[: x.size(1)]", "x"),
)
misconception(
    rows_shape,
    "The table has no batch axis, not even one of size 1.",
    line=("size(1)]", "size(1)].unsqueeze(0)"),
)
misconception(
    rows_shape,
    "This is the whole table: how many positions does a sentence have?",
    line=("[: x.size(1)]", ""),
)
misconception(
    rows_shape,
    "This is one position: how many does a sentence have?",
    line=("[: x.size(1)]", "[0]"),
)


@question(measures="finding pair, frequency and angle of a sine", worked="0.5 + 4 * 0.0021544")
def fish_at_four(
    *,
    table: Callable[[int, int], Tensor] = sinusoid,
    position: int = 4,
    column: int = 2,
    feature: int = 2,
) -> float:
    """feature 2 of fish at position 4, d_model 3"""
    return example.embedding_rows[3][feature] + table(6, 3)[position, column].item()


again(fish_at_four, "pe-positive-exponent", table=positive_exponent.wrong)
again(fish_at_four, "pe-sin-cos-halves", table=sin_cos_halves.wrong)
misconception(fish_at_four, "This is the sine of pair 0: feature 2 belongs to pair 1.", column=0)
misconception(
    fish_at_four,
    "This is the number of the table: add the number of the word.",
    by=lambda: fish_at_four() - example.embedding_rows[3][2],
)
misconception(
    fish_at_four,
    "You added the cosine of pair 1: an even feature contains the sine.",
    table=lambda *sizes: _angles(*sizes).cos(),
    column=1,
)
misconception(
    fish_at_four, "This is the number at position 1: which position is asked for?", position=1
)
misconception(
    fish_at_four, "This is the number at position 3: positions are counted from 0.", position=3
)
misconception(
    fish_at_four, "This is the number at position 5: which position is asked for?", position=5
)
misconception(fish_at_four, "You added to 0.3: features are counted from 0.", feature=1)


@question(measures="that only the distance of two rows counts")
def far_apart(
    *, table: Callable[[int, int], Tensor] = sinusoid, steps: int = 3, d_model: int = 16
) -> float:
    """the dot product of rows 40 and 43, d_model 16"""
    rows = table(45, d_model)
    return (rows[40] @ rows[40 + steps]).item()


again(far_apart, "pe-positive-exponent", table=positive_exponent.wrong)
misconception(
    far_apart,
    "This is the dot product of a row with itself: how far apart are 40 and 43?",
    steps=0,
)
misconception(far_apart, "This is the number at distance 4: how far apart are 40 and 43?", steps=4)
misconception(far_apart, "This is the number at distance 2: how far apart are 40 and 43?", steps=2)
misconception(far_apart, "This is the number for d_model 24: here d_model is 16.", d_model=24)
