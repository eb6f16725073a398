"""Step 14: what writing word by word invites."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from twelve.generation import CachedDecoder, greedy_decode
from twelve.lab import example
from twelve.lab.check.attention import WRONG_SCORES, scores
from twelve.lab.check.numbers import companion_heads, seeded
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target
from twelve.positional_encoding import sinusoid


def _embed_step(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return table[new] + positions[length : length + new.size(1)]


def _embed_step_cases() -> Cases:
    rows = torch.tensor(example.embedding_rows, dtype=torch.float64)
    few, draw = sinusoid(8, 3).double(), seeded()
    return {
        "the first word": (example.tgt[:, :1], 0, rows, few),
        "the second word": (example.tgt[:, 1:], 1, rows, few.clone()),
        "all sizes differ": (example.companion.tgt[:, 1:], 5, draw(13, 24), draw(32, 24)),
    }


def _decode_position_zero(new: Tensor, length: int, table: Tensor, positions: Tensor) -> Tensor:
    return table[new] + positions[: new.size(1)]


def _places_run() -> list[int]:
    ran: list[int] = []
    counts = []
    model = example.companion.model()
    model.decoder.norm.register_forward_hook(lambda norm, given, out: ran.append(out.size(1)))
    for cache in (False, True):
        ran.clear()
        greedy_decode(model, example.companion.src[1:], start_id=1, max_len=12, cache=cache)
        counts.append(sum(ran))
    return counts


def _step_scores_shape(*, scores: Callable[..., Tensor] = scores) -> tuple[int, ...]:
    sizes = example.SIZES
    model = example.companion.model().requires_grad_(False)
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
    ),
    Question(
        name="step_scores_shape",
        contract="4 new words after 3 kept ones -> (batch, head, query, key)",
        right=_step_scores_shape,
        wrong={"qk-swapped": partial(_step_scores_shape, scores=WRONG_SCORES["qk-swapped"])},
    ),
)

TARGETS = (
    Target(
        name="embed_step",
        contract="new ids (batch, new), length (how many words stand before them), table (vocab, "
        "d_model), positions (max_len, d_model) -> (batch, new, d_model)",
        right=_embed_step,
        cases=_embed_step_cases,
    ),
)

MISTAKES = (
    Mistake(
        id="decode-position-zero",
        sentence="Your positions start at 0 in every step: start where the words written so far "
        "end, positions[length : length + new].",
        step="14",
        target="embed_step",
        wrong=_decode_position_zero,
        plant=Plant("generation", "[self.length : self.length + new]\n", "[:new]\n"),
    ),
)
