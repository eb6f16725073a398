"""Step 14: what writing word by word invites."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twelve.generation import CachedDecoder, greedy_decode
from twelve.positional_encoding import sinusoid
from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises.attention import WRONG_SCORES, scores
from twelve_lab.exercises.numbers import companion_heads, seeded


def _embed_step(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return table[new] + positions[length : length + new.size(1)]


def _embed_step_cases() -> Cases:
    rows = torch.tensor(example.embedding_rows, dtype=torch.float64)
    few, draw = sinusoid(8, 3).double(), seeded()
    return {
        "the first word": (example.tgt[:, :1], 0, rows, few),
        "the second word": (example.tgt[:, 1:], 1, rows, few.clone()),
        "all sizes differ": (example.distinct.tgt[:, 1:], 5, draw(13, 24), draw(32, 24)),
    }


def _decode_position_zero(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return table[new] + positions[: new.size(1)]


def _one_place(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return table[new] + positions[length]


def _only_the_last(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return _embed_step(new, length, table, positions)[:, -1:]


def _place_too_early(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return _embed_step(new, max(length - 1, 0), table, positions)


def _places_run(*, max_len: int = 12) -> list[int]:
    ran: list[int] = []
    counts = []
    model = example.distinct.model()
    model.decoder.norm.register_forward_hook(lambda norm, given, out: ran.append(out.size(1)))
    for cache in (False, True):
        ran.clear()
        greedy_decode(model, example.distinct.src[1:], start_id=1, max_len=max_len, cache=cache)
        counts.append(sum(ran))
    return counts


def _mixed(without: int, cached: int) -> list[int]:
    """Count one of the two ways with the start as a step, or both."""
    return [_places_run(max_len=without)[0], _places_run(max_len=cached)[1]]


def _between(query_len: int, key_len: int) -> tuple[int, ...]:
    query, key = (companion_heads(length)[0] for length in (query_len, key_len))
    return tuple(scores(query, key).shape)


def _step_scores_shape(*, scores: Callable[..., Tensor] = scores) -> tuple[int, ...]:
    sizes = example.SIZES
    model = example.distinct.model().requires_grad_(False)
    memory = seeded()(sizes.batch, sizes.src, sizes.d_model)
    ids = torch.ones(sizes.batch, 7, dtype=torch.long)
    decoder = CachedDecoder(model, memory, max_len=8)
    for piece in ids.split([3, 4], dim=1):
        decoder.step(piece)
    query, *_ = companion_heads(piece.size(1))
    cache = decoder.self_caches[0]
    return tuple(scores(query, cache.keys[:, :, : cache.length]).shape)


QUESTIONS = (
    Question(
        name="places_run",
        contract="how many places run through the decoder for 12 ids, without a cache and with one",
        right=_places_run,
        slips={
            "The start is given: of the 12 ids the model writes 11.": partial(_mixed, 13, 13),
            "With a cache, too, the start is given and is no step.": partial(_mixed, 12, 13),
            "Without a cache, too, the start is given: when the last id is chosen, it is not in "
            "the sentence yet.": partial(_mixed, 13, 12),
        },
    ),
    Question(
        name="step_scores_shape",
        contract="4 new words after 3 kept ones -> (batch, head, query, key)",
        right=_step_scores_shape,
        wrong={"qk-swapped": partial(_step_scores_shape, scores=WRONG_SCORES["qk-swapped"])},
        slips={
            "The new words look at the kept ones, too.": partial(_between, 4, 4),
            "The new words look at themselves, too.": partial(_between, 4, 3),
            "The kept words have asked already: what is kept of them are keys and values.": (
                partial(_between, 7, 7)
            ),
            "Those are the queries: whom does each of them score?": (
                lambda: tuple(companion_heads(4)[0].shape)
            ),
        },
    ),
)

TARGETS = (
    Target(
        name="embed_step",
        contract="new ids (batch, new), length (how many words stand before them), table (vocab, "
        "d_model), positions (max_len, d_model) -> (batch, new, d_model)",
        right=_embed_step,
        cases=_embed_step_cases,
        slips={
            "All new words got one place: they stand one behind the other.": _one_place,
            "Only the last of the new words is left: several may come at once.": _only_the_last,
            "Your places start one too early: they are counted from 0, so the last word that is "
            "written stands at length - 1.": _place_too_early,
        },
        avoid=("a slice",),
    ),
)

MISTAKES = (
    Mistake(
        id="decode-position-zero",
        sentence="Your positions start at 0 in every step: start where the words written so far "
        "end, so that the first new word stands at place length.",
        step="14",
        target="embed_step",
        wrong=_decode_position_zero,
        plant=Plant("generation", "[self.length : self.length + new]\n", "[:new]\n"),
    ),
)
