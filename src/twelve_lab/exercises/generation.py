"""Lesson 14: mistakes in word-by-word generation."""

from functools import cache

import torch
from torch import Tensor

from twelve.generation import greedy_decode
from twelve.masks import causal_mask
from twelve.positional_encoding import sinusoid
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    mistake,
    notes,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import SIZES, distinct_ids, seeded


def _embed_step_cases() -> Cases:
    rows = torch.tensor(example.embedding_rows, dtype=torch.float64)
    few, draw = sinusoid(8, 3).double(), seeded()
    return {
        "the first word": (example.tgt[:, :1], 0, rows, few),
        "the second word": (example.tgt[:, 1:], 1, rows, few.clone()),
        "all sizes differ": (
            distinct_ids()[:, : SIZES.tgt], 5, draw(SIZES.tgt_vocab, 24), draw(SIZES.max_len, 24),
        ),
    }  # fmt: skip


@task(_embed_step_cases, forbidden=("[:]",), measures="that a new word gets its position")
def embed_step(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    """new ids (batch, new), length (how many words stand before them), table (vocab, d_model),
    positions (max_len, d_model) -> (batch, new, d_model)
    """
    return table[new] + positions[length : length + new.size(1)]


@solved(embed_step)
def _embed_by_number(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    places = torch.arange(length, length + new.size(1))
    return table[new] + positions[places]


mistake(
    embed_step,
    "decode-position-zero",
    "Your positions start at 0 in every step: the first new word must have position length.",
    {"positions[A:B]": "positions[: new.size(1)]"},
)
notes(
    embed_step,
    {
        "You gave all new words the same position: number them consecutively.": {
            "positions[A:B]": "positions[length]"
        },
        "You kept only the last new word: there may be several.": {
            "return X": "return (X)[:, -1:]"
        },
        "Your positions start one too early: they are counted from 0, so the last written word "
        "has position length - 1.": {"return X": "length = max(length - 1, 0)\nreturn X"},
    },
)


@question(measures="counting the work with a cache and without", worked="[sum(range(12)), 11]")
def places_run() -> list[int]:
    """how many positions run through the decoder for 12 ids, without a cache and with one"""
    return [_counted(12)[0], _counted(12)[1]]


@cache
@torch.no_grad()
def _counted(max_len: int) -> tuple[int, int]:
    """Count positions without and with a cache. The counts are cached, as decoding is slow."""
    ran: list[int] = []
    model, src = example.distinct.model(), example.distinct.src[1:]
    model.decoder.norm.register_forward_hook(lambda norm, given, out: ran.append(out.size(1)))
    written = greedy_decode(model, src, start_id=1, max_len=max_len)
    with_cache = sum(ran)
    ran.clear()
    memory = model.encode(src)
    for length in range(1, max_len):
        model.decode(written[:, :length], memory, tgt_mask=causal_mask(length))
    return sum(ran), with_cache


notes(
    places_run,
    {
        "You counted a step for the start token: the model writes 11 of the 12 ids.": {
            "_counted(12)[0]": "_counted(13)[0]",
            "_counted(12)[1]": "_counted(13)[1]",
        },
        "The start token needs no step with a cache either.": {
            "_counted(12)[1]": "_counted(13)[1]"
        },
        "The start token needs no step without a cache either: the last id is chosen before it "
        "joins the sentence.": {"_counted(12)[0]": "_counted(13)[0]"},
    },
)


@question(measures="new queries against all keys", worked="(2, 3, 4, 3 + 4)")
def step_scores_shape() -> tuple[int, ...]:
    """4 new words after 3 kept ones -> (batch, head, query, key)"""
    return (2, 3, 4, 3 + 4)


again(step_scores_shape, "qk-swapped", by=lambda: (2, 3, 7, 4))
notes(
    step_scores_shape,
    {
        "The new words attend to the cached words too.": (2, 3, 4, 4),
        "The new words attend to themselves too.": (2, 3, 4, 3),
        "The cached words need no queries: the cache holds only their keys and values.": (
            2, 3, 7, 7,
        ),
        "This is the shape of the queries: with which words does each of them get a score?": (
            2, 3, 4, 8,
        ),
    },
)  # fmt: skip
