"""Step 03: what the table of positions and its sum invite."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.check.modules import Misbuilt, build
from twelve_lab.exercises.numbers import seeded

_SIZES = example.SIZES


def _angles(max_len: int, d_model: int, sign: float = -1.0, base: float = 10000.0) -> Tensor:
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    return torch.arange(max_len).unsqueeze(1) * base ** (sign * even / d_model)


def _woven(angles: Tensor, d_model: int) -> Tensor:
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]


def _sinusoid(max_len: int, d_model: int) -> Tensor:
    return _woven(_angles(max_len, d_model), d_model)


def _sinusoid_cases() -> Cases:
    return {
        "2 positions, 3 features": (2, 3),
        "all sizes differ": (5, 24),
        "an odd number of features": (4, 7),
    }


def _pe_positive_exponent(max_len: int, d_model: int) -> Tensor:
    return _woven(_angles(max_len, d_model, sign=1.0), d_model)


def _pe_sin_cos_halves(max_len: int, d_model: int) -> Tensor:
    angles = _angles(max_len, d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :d_model]


def _one_sine(
    max_len: int, d_model: int, *, ahead: float = math.pi / 2, by_feature: int = 0
) -> Tensor:
    feature = torch.arange(d_model, dtype=torch.float64)
    power = by_feature * feature if by_feature else feature - feature % 2
    angles = torch.arange(max_len).unsqueeze(1) * 10000.0 ** (-power / d_model)
    return (angles + feature % 2 * ahead).sin()


_SINUSOID_SLIPS = {
    "Your rows begin with position 1: the first row is that of position 0.": (
        lambda max_len, d_model: _sinusoid(max_len + 1, d_model)[1:]
    ),
    "The cosines stand on the even features: a pair begins with its sine.": (
        lambda max_len, d_model: torch.stack(
            [_angles(max_len, d_model).cos(), _angles(max_len, d_model).sin()], dim=-1
        ).flatten(1)[:, :d_model]
    ),
    "Each of your features has a frequency of its own: the two of a pair share one.": (
        partial(_one_sine, by_feature=1)
    ),
    "Your exponent counts features where it should count pairs.": (
        partial(_one_sine, by_feature=2)
    ),
    "All your features are sines: the odd ones begin a quarter round ahead.": (
        partial(_one_sine, ahead=0.0)
    ),
    "Your odd features begin half a round ahead: a cosine is a quarter ahead.": (
        partial(_one_sine, ahead=math.pi)
    ),
    "Your odd features begin a quarter round behind, so their cosines have the other sign.": (
        partial(_one_sine, ahead=-math.pi / 2)
    ),
    "Your frequencies fall too slowly: the base of the power is too small.": (
        lambda max_len, d_model: _woven(_angles(max_len, d_model, base=1000.0), d_model)
    ),
    "Your frequencies fall too slowly: where is the 2 of the exponent?": (
        lambda max_len, d_model: _woven(_angles(max_len, d_model, base=100.0), d_model)
    ),
}


def _positional_encoding(x: Tensor, table: Tensor) -> Tensor:
    return x + table[: x.size(1)]


def _positional_encoding_cases() -> Cases:
    draw, rows = seeded(), torch.tensor(example.embedding_rows, dtype=torch.float64)
    return {
        "twelve numbers": (rows[example.src], _sinusoid(8, 3)),
        "one sentence": (draw(1, 4, 6), _sinusoid(8, 6)),
        "all sizes differ": (draw(2, 5, 24), _sinusoid(32, 24)),
    }


def _pe_batch_index(x: Tensor, table: Tensor) -> Tensor:
    return x + table[: x.size(0)]


def _pe_sequence_first(x: Tensor, table: Tensor) -> Tensor:
    return x + table[: x.size(0)].unsqueeze(1)


_ENCODING_SLIPS = {
    "Your first token gets the row of position 1: places are counted from 0.": (
        lambda x, table: x + table[1 : x.size(1) + 1]
    ),
    "Your rows come from the end of the table: the first token stands at position 0.": (
        lambda x, table: x + table[-x.size(1) :]
    ),
    "All tokens get one and the same row: each place has a row of its own.": (
        lambda x, table: x + table[x.size(1)]
    ),
    "All tokens get the row of the last place: each place has a row of its own.": (
        lambda x, table: x + table[x.size(1) - 1]
    ),
    "All tokens get the row of position 0: each place has a row of its own.": (
        lambda x, table: x + table[0]
    ),
    "The words are multiplied by the root of d_model: here they are added as they come.": (
        lambda x, table: x * math.sqrt(x.size(2)) + table[: x.size(1)]
    ),
    "The row of the place stands beside the word: add the two, number by number.": (
        lambda x, table: torch.cat([x, table[: x.size(1)].expand_as(x)], dim=-1)
    ),
    "These are the rows of the places alone: the words are missing.": (
        lambda x, table: table[: x.size(1)]
    ),
}


def _positions_dropped(x: Tensor, table: Tensor, dropout: Callable[[Tensor], Tensor]) -> Tensor:
    return dropout(x + table[: x.size(1)])


def _drop_a_tenth() -> Callable[[Tensor], Tensor]:
    """Give a dropout of 0.1 that drops the same features on every machine."""
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


def _dropout_twice(x: Tensor, table: Tensor, dropout: Callable[[Tensor], Tensor]) -> Tensor:
    return dropout(dropout(x + table[: x.size(1)]))


_DROPPED_SLIPS = {
    "The sum is right, and nothing of it is dropped.": lambda x, table, dropout: (
        _positional_encoding(x, table)
    ),
    "You drop out the words before the sum, so that every position stays whole: drop the sum.": (
        lambda x, table, dropout: _positional_encoding(dropout(x), table)
    ),
    "You drop out the positions alone, so that every word stays whole: drop the sum.": (
        lambda x, table, dropout: x + dropout(table[: x.size(1)].expand_as(x))
    ),
    "You drop out the rows of the table, so that every word stays whole: drop the sum.": (
        lambda x, table, dropout: x + dropout(table[: x.size(1)])
    ),
    "You drop out words and positions apart, so that half of a sum can be gone: drop the sum.": (
        lambda x, table, dropout: dropout(x) + dropout(table[: x.size(1)])
    ),
    "The positions are added after the dropout as well: add them once, before it.": (
        lambda x, table, dropout: _positional_encoding(
            dropout(_positional_encoding(x, table)), table
        )
    ),
}


def _from_start(x: Tensor, table: Tensor, start: int) -> Tensor:
    return x + table[start : start + x.size(1)]


class _PositionalLayer(nn.Module):
    make, add = staticmethod(_sinusoid), staticmethod(_from_start)

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.register_buffer("table", self.make(max_len, d_model))

    def forward(self, x: Tensor, start: int) -> Tensor:
        return self.add(x, self.table, start)


class _LayerPositiveExponent(_PositionalLayer):
    make = staticmethod(_pe_positive_exponent)


class _LayerSinCosHalves(_PositionalLayer):
    make = staticmethod(_pe_sin_cos_halves)


class _LayerBatchIndex(_PositionalLayer):
    add = staticmethod(lambda x, table, start: x + table[start : start + x.size(0)])


class _LayerSequenceFirst(_PositionalLayer):
    add = staticmethod(lambda x, table, start: x + table[start : start + x.size(0)].unsqueeze(1))


def _adding(add: Callable[[Tensor, Tensor, int], Tensor]) -> type[_PositionalLayer]:
    return type("_PositionalSlip", (_PositionalLayer,), {"add": staticmethod(add)})


_LAYER_SLIPS = {
    "Your rows always begin at position 0: the first token of x stands at position start.": (
        _adding(lambda x, table, start: x + table[: x.size(1)])
    ),
    "Your rows end at x.size(1), as if they began at 0: how many rows are due, from start on?": (
        _adding(lambda x, table, start: x + table[start : x.size(1)])
    ),
    "Your rows begin one place too late: the first token of x stands at position start.": (
        _adding(lambda x, table, start: _from_start(x, table, start + 1))
    ),
    "All tokens get the row of position start: each token has a place of its own.": (
        _adding(lambda x, table, start: x + table[start])
    ),
    "The words are multiplied by the root of d_model: here they are added as they come.": (
        _adding(lambda x, table, start: _from_start(x * math.sqrt(x.size(2)), table, start))
    ),
}


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
    layer = build(answer, (x.size(-1), max_len), {"table": torch.Size((max_len, x.size(-1)))})
    if layer is ...:
        return ...
    if list(layer.parameters()):
        raise Misbuilt("table is a parameter, which training would move: a buffer is due.")
    return layer(x, start)


def _rows_shape(
    rows: Callable[[Tensor, Tensor], Tensor] = lambda x, table: table[: x.size(1)],
) -> tuple[int, ...]:
    x = torch.zeros(_SIZES.batch, _SIZES.src, _SIZES.d_model)
    return tuple(rows(x, torch.zeros(32, _SIZES.d_model)).shape)


def _fish_at_four(
    table: Callable[[int, int], Tensor] = _sinusoid,
    *,
    position: int = 4,
    column: int = 2,
    feature: int = 2,
) -> float:
    return example.embedding_rows[3][feature] + table(6, 3)[position, column].item()


def _far_apart(
    table: Callable[[int, int], Tensor] = _sinusoid, *, steps: int = 3, d_model: int = 16
) -> float:
    rows = table(45, d_model)
    return (rows[40] @ rows[40 + steps]).item()


QUESTIONS = (
    Question(
        name="rows_shape",
        contract="the rows of the table that are added -> (seq, d_model)",
        right=_rows_shape,
        wrong={
            "pe-batch-index": partial(_rows_shape, lambda x, table: table[: x.size(0)]),
            "pe-sequence-first": partial(
                _rows_shape, lambda x, table: table[: x.size(0)].unsqueeze(1)
            ),
        },
        slips={
            "This is the shape of the sentences: does the table know how many there are?": (
                lambda: (_SIZES.batch, _SIZES.src, _SIZES.d_model)
            ),
            "The table has no axis for sentences, not even one of size 1.": (
                lambda: (1, _SIZES.src, _SIZES.d_model)
            ),
            "This is the whole table: how many places does a sentence have?": (
                partial(_rows_shape, lambda x, table: table)
            ),
            "That is one place: how many does a sentence have?": lambda: (_SIZES.d_model,),
        },
    ),
    Question(
        name="fish_at_four",
        contract="feature 2 of fish at position 4, d_model 3",
        right=_fish_at_four,
        wrong={
            "pe-positive-exponent": partial(_fish_at_four, _pe_positive_exponent),
            "pe-sin-cos-halves": partial(_fish_at_four, _pe_sin_cos_halves),
        },
        slips={
            "This is the sine of pair 0: feature 2 belongs to pair 1.": (
                partial(_fish_at_four, column=0)
            ),
            "This is the number of the table: the word's own number is still to be added.": (
                lambda: _fish_at_four() - _fish_at_four(lambda *sizes: torch.zeros(*sizes))
            ),
            "You added the cosine of pair 1: an even feature holds the sine.": (
                partial(_fish_at_four, lambda *sizes: _angles(*sizes).cos(), column=1)
            ),
            "This is one step from position 0: how many is position 4?": (
                partial(_fish_at_four, position=1)
            ),
            "This is three steps from position 0: position 4 is the fifth place.": (
                partial(_fish_at_four, position=3)
            ),
            "This is five steps from position 0: how many is position 4?": (
                partial(_fish_at_four, position=5)
            ),
            "You added to 0.3: features are counted from 0.": partial(_fish_at_four, feature=1),
        },
    ),
    Question(
        name="far_apart",
        contract="the dot product of rows 40 and 43, d_model 16",
        right=_far_apart,
        wrong={"pe-positive-exponent": partial(_far_apart, _pe_positive_exponent)},
        slips={
            "This is the dot product of a row with itself: 40 and 43 are some steps apart.": (
                partial(_far_apart, steps=0)
            ),
            "This is the number for 4 steps: how many lie between 40 and 43?": (
                partial(_far_apart, steps=4)
            ),
            "This is the number for 2 steps: how many lie between 40 and 43?": (
                partial(_far_apart, steps=2)
            ),
            "This is the number for d_model 24: here it is 16.": partial(_far_apart, d_model=24),
        },
    ),
)

TARGETS = (
    Target(
        name="sinusoid",
        contract="max_len, d_model -> (position, feature), max_len by d_model",
        right=_sinusoid,
        cases=_sinusoid_cases,
        slips=_SINUSOID_SLIPS,
        avoid=("sinusoid", "cos", "a loop", "a slice"),
    ),
    Target(
        name="positional_encoding",
        contract="x (batch, seq, d_model), table (max_len, d_model) -> (batch, seq, d_model)",
        right=_positional_encoding,
        cases=_positional_encoding_cases,
        slips=_ENCODING_SLIPS,
        avoid=("a slice",),
    ),
    Target(
        name="positions_dropped",
        contract="x (batch, seq, d_model), table (max_len, d_model), dropout -> "
        "(batch, seq, d_model)",
        right=_positions_dropped,
        cases=_positions_dropped_cases,
        slips=_DROPPED_SLIPS,
    ),
    Target(
        name="positional_layer",
        contract="Layer(d_model, max_len), x (batch, seq, d_model), start -> (batch, seq, d_model)",
        right=_PositionalLayer,
        cases=_positional_layer_cases,
        also={
            "pe-positive-exponent": _LayerPositiveExponent,
            "pe-sin-cos-halves": _LayerSinCosHalves,
            "pe-batch-index": _LayerBatchIndex,
            "pe-sequence-first": _LayerSequenceFirst,
        },
        slips=_LAYER_SLIPS,
        run=_run_positional_layer,
    ),
)

MISTAKES = (
    Mistake(
        id="pe-positive-exponent",
        sentence="The minus of the exponent is missing, so the frequencies grow and neighbouring "
        "positions have nothing in common: use 10000 to the power -2i/d_model.",
        step="03",
        target="sinusoid",
        wrong=_pe_positive_exponent,
        plant=Plant("positional_encoding", "torch.exp(-even_feature", "torch.exp(even_feature"),
    ),
    Mistake(
        id="pe-sin-cos-halves",
        sentence="You put all sines first and all cosines after them: weave them, a sine on each "
        "even feature and its cosine on the next.",
        step="03",
        target="sinusoid",
        wrong=_pe_sin_cos_halves,
        plant=Plant(
            "positional_encoding",
            "    table[:, 0::2] = torch.sin(angles)\n"
            "    table[:, 1::2] = torch.cos(angles[:, : d_model // 2])\n",
            "    half = angles.size(1)\n"
            "    table[:, :half] = torch.sin(angles)\n"
            "    table[:, half:] = torch.cos(angles[:, : d_model // 2])\n",
        ),
    ),
    Mistake(
        id="pe-batch-index",
        sentence="You took as many rows as there are sentences, x.size(0), which is right only "
        "where sentences happen to be as long: take a row for each token, x.size(1).",
        step="03",
        target="positional_encoding",
        wrong=_pe_batch_index,
        plant=Plant("positional_encoding", "self.table[: x.size(1)]", "self.table[: x.size(0)]"),
    ),
    Mistake(
        id="pe-sequence-first",
        sentence="You laid the rows of the table along the sentences, so that all words of one "
        "sentence get the same row: lay them along the words, axis 1 of x.",
        step="03",
        target="positional_encoding",
        wrong=_pe_sequence_first,
        plant=Plant(
            "positional_encoding",
            "self.table[: x.size(1)]",
            "self.table[: x.size(0)].unsqueeze(1)",
        ),
    ),
    Mistake(
        id="dropout-twice",
        sentence="You drop out twice in a row, so that of 10 features 8 survive where 9 are meant: "
        "drop out once, after the sum.",
        step="12",
        target="positions_dropped",
        wrong=_dropout_twice,
        plant=Plant(
            "positional_encoding",
            " = self.table[: x.size(1)]\n"
            '        encoded: Float[Tensor, "batch seq d_model"] = x + positions\n'
            "        return self.dropout(encoded)\n",
            " = self.table[: x.size(1)]\n"
            '        encoded: Float[Tensor, "batch seq d_model"] = x + positions\n'
            "        return self.dropout(self.dropout(encoded))\n",
        ),
    ),
)
