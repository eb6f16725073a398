"""Step 03: what the table of positions and its sum invite."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve.lab import example
from twelve.lab.check.built import Misbuilt, build
from twelve.lab.check.numbers import seeded
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target


def _angles(max_len: int, d_model: int, sign: float = -1.0) -> Tensor:
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    return torch.arange(max_len).unsqueeze(1) * 10000.0 ** (sign * even / d_model)


def _woven(angles: Tensor, d_model: int) -> Tensor:
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]


def _sinusoid(max_len: int, d_model: int) -> Tensor:
    return _woven(_angles(max_len, d_model), d_model)


def _sinusoid_cases() -> Cases:
    return {
        "twelve numbers": (2, 3),
        "all sizes differ": (5, 24),
        "an odd number of features": (4, 7),
    }


def _pe_positive_exponent(max_len: int, d_model: int) -> Tensor:
    return _woven(_angles(max_len, d_model, sign=1.0), d_model)


def _pe_sin_cos_halves(max_len: int, d_model: int) -> Tensor:
    angles = _angles(max_len, d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :d_model]


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


class _LayerPositionZero(_PositionalLayer):
    add = staticmethod(lambda x, table, start: x + table[: x.size(1)])


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
    sizes = example.SIZES
    x = torch.zeros(sizes.batch, sizes.src, sizes.d_model)
    return tuple(rows(x, torch.zeros(32, sizes.d_model)).shape)


def _fish_at_four(table: Callable[[int, int], Tensor] = _sinusoid) -> float:
    return example.embedding_rows[3][2] + table(5, 3)[4, 2].item()


def _far_apart(table: Callable[[int, int], Tensor] = _sinusoid) -> float:
    rows = table(44, 16)
    return (rows[40] @ rows[43]).item()


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
    ),
    Question(
        name="fish_at_four",
        contract="feature 2 of fish at position 4, d_model 3",
        right=_fish_at_four,
        wrong={
            "pe-positive-exponent": partial(_fish_at_four, _pe_positive_exponent),
            "pe-sin-cos-halves": partial(_fish_at_four, _pe_sin_cos_halves),
        },
    ),
    Question(
        name="far_apart",
        contract="the dot product of rows 40 and 43, d_model 16",
        right=_far_apart,
        wrong={"pe-positive-exponent": partial(_far_apart, _pe_positive_exponent)},
    ),
)

TARGETS = (
    Target(
        name="sinusoid",
        contract="max_len, d_model -> (max_len, d_model)",
        right=_sinusoid,
        cases=_sinusoid_cases,
    ),
    Target(
        name="positional_encoding",
        contract="x (batch, seq, d_model), table (max_len, d_model) -> (batch, seq, d_model)",
        right=_positional_encoding,
        cases=_positional_encoding_cases,
    ),
    Target(
        name="positions_dropped",
        contract="x (batch, seq, d_model), table (max_len, d_model), dropout -> "
        "(batch, seq, d_model)",
        right=_positions_dropped,
        cases=_positions_dropped_cases,
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
            "decode-position-zero": _LayerPositionZero,
        },
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
        sentence="You cut the table by x.size(0), the number of sentences, which is right only "
        "where it happens to equal their length: cut by x.size(1).",
        step="03",
        target="positional_encoding",
        wrong=_pe_batch_index,
        plant=Plant("positional_encoding", "self.table[: x.size(1)]", "self.table[: x.size(0)]"),
    ),
    Mistake(
        id="pe-sequence-first",
        sentence="You laid the rows of the table along the sentences, so that all words of one "
        "sentence get the same row: lay them along the words, table[: x.size(1)].",
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
