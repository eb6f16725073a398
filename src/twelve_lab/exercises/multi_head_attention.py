"""Step 06: what splitting into heads and merging them invites."""

import math
from collections.abc import Callable
from functools import partial

import torch
from einops import rearrange
from torch import Tensor

from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises.attention import (
    SCALED_BY_VALUE,
    SCORE_SLIPS,
    WRONG_SCORES,
    over_root_of,
    scores,
)
from twelve_lab.exercises.masks import attend
from twelve_lab.exercises.numbers import companion_heads, seeded, twelve_heads, vectors


def _split(projected: Tensor, num_heads: int) -> Tensor:
    return rearrange(projected, "batch seq (head d_k) -> batch head seq d_k", head=num_heads)


def _split_cases() -> Cases:
    two = twelve_heads(2)
    return {
        "1 head": (vectors(), 1),
        "3 heads": (vectors(), 3),
        "2 heads": (two.x @ two.w_q.T, 2),
        "all sizes differ": (seeded()(2, 5, 24), 3),
    }


def _split_view(projected: Tensor, num_heads: int) -> Tensor:
    batch, seq, features = projected.shape
    return projected.view(batch, num_heads, seq, features // num_heads)


def _split_interleaved(projected: Tensor, num_heads: int) -> Tensor:
    return rearrange(projected, "batch seq (d_k head) -> batch head seq d_k", head=num_heads)


def _merge(heads: Tensor) -> Tensor:
    return rearrange(heads, "batch head query d_v -> batch query (head d_v)")


def _merge_cases() -> Cases:
    heads = {"1 head": 1, "3 heads": 3, "2 heads": 2}
    return {
        **{name: (twelve_heads(number).value,) for name, number in heads.items()},
        "all sizes differ": (companion_heads(example.SIZES.tgt)[0],),
    }


def _merge_no_transpose(heads: Tensor) -> Tensor:
    batch, head, query, d_v = heads.shape
    return heads.reshape(batch, query, head * d_v)


def _multi_head_attention(
    query: Tensor,
    memory: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    num_heads: int,
    *,
    split: Callable[[Tensor, int], Tensor] = _split,
    merge: Callable[[Tensor], Tensor] = _merge,
    attend: Callable[..., Tensor] = attend,
) -> Tensor:
    projected = (query @ w_q.T, memory @ w_k.T, memory @ w_v.T)
    heads = (split(features, num_heads) for features in projected)
    return merge(attend(*heads)) @ w_o.T


def _multi_head_attention_cases() -> Cases:
    twelve = {"1 head": twelve_heads(1), "3 heads": twelve_heads(3), "2 heads": twelve_heads(2)}
    draw, sizes = seeded(), example.SIZES
    keys, values = sizes.num_heads * sizes.d_k, sizes.num_heads * sizes.d_v
    return {
        **{
            name: (at.x, at.x.clone(), at.w_q, at.w_k, at.w_v, at.w_o, at.query.size(1))
            for name, at in twelve.items()
        },
        "all sizes differ": (
            draw(sizes.batch, sizes.tgt, sizes.d_model),
            draw(sizes.batch, sizes.src, sizes.d_model),
            *(draw(width, sizes.d_model) / 5 for width in (keys, keys, values)),
            draw(sizes.d_model, values) / 5,
            sizes.num_heads,
        ),
    }


def _scale_d_model(query: Tensor, memory: Tensor, *rest: Tensor | int) -> Tensor:
    def scores(query_heads: Tensor, key_heads: Tensor) -> Tensor:
        return query_heads @ key_heads.transpose(-2, -1) / math.sqrt(query.size(-1))

    return _multi_head_attention(query, memory, *rest, attend=partial(attend, scores=scores))


def _scale_before_split(query: Tensor, memory: Tensor, *rest: Tensor | int) -> Tensor:
    wide = over_root_of(lambda query_heads, _: query_heads.size(1) * query_heads.size(-1))
    return _multi_head_attention(query, memory, *rest, attend=partial(attend, scores=wide))


def _scaled_by_value(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend(query, key, value, scores=over_root_of(lambda *_: value.size(-1)))


def _heads_meet(query: Tensor, key: Tensor) -> Tensor:
    return scores(query, key.sum(1, keepdim=True))


def _as_stored(*transposed: str) -> Callable[..., Tensor]:
    """Undo the transposing of some matrices, so that they are multiplied as they are stored."""

    def wrong(query: Tensor, memory: Tensor, *given: Tensor | int) -> Tensor:
        *matrices, num_heads = given
        named = dict(zip(("w_q", "w_k", "w_v", "w_o"), matrices, strict=True))
        turned = (w.T if name in transposed else w for name, w in named.items())
        return _multi_head_attention(query, memory, *turned, num_heads)

    return wrong


def _heads_are_features(query: Tensor, memory: Tensor, *rest: Tensor | int) -> Tensor:
    return _multi_head_attention(query, memory, *rest[:-1], query.size(-1))


def _scores_shape(*, swapped: bool = False) -> tuple[int, ...]:
    query, key, _ = companion_heads()
    asks, looked_at = (key, query) if swapped else (query, key)
    return tuple((asks @ looked_at.mT).shape)


def _values_zeroed(*zeroed: int) -> list[float]:
    at = twelve_heads(3)
    values = at.w_v.clone()
    values[list(zeroed)] = 0
    return _multi_head_attention(at.x, at.x, at.w_q, at.w_k, values, at.w_o, 3)[1, 0].tolist()


QUESTIONS = (
    Question(
        name="scores_shape",
        contract="the scores at the companion's sizes -> (batch, head, query, key)",
        right=_scores_shape,
        wrong={"qk-swapped": partial(_scores_shape, swapped=True)},
        slips={
            "That is the shape of the context: the values come after the scores.": (
                lambda: tuple(attend(*companion_heads()).shape)
            ),
            "That is the shape of the queries, split into heads: whom does each of them score?": (
                lambda: tuple(companion_heads()[0].shape)
            ),
            "In cross-attention the target does not look at itself: who is looked at?": (
                lambda: tuple((companion_heads()[0] @ companion_heads()[0].mT).shape)
            ),
        },
    ),
    Question(
        name="values_zeroed",
        contract="the output of dog, three numbers, where the values of head 1 are zero",
        right=partial(_values_zeroed, 1),
        decimals=3,
        slips={
            "That is the output as it was: head 1 still answers.": _values_zeroed,
            "You left out head 0: heads are counted from 0, so head 1 is the second of them.": (
                partial(_values_zeroed, 0)
            ),
            "You left out head 2: heads are counted from 0, so head 1 is the second of them.": (
                partial(_values_zeroed, 2)
            ),
            "That is the part of head 1 alone: it is the one that says nothing now.": (
                partial(_values_zeroed, 0, 2)
            ),
        },
    ),
)

TARGETS = (
    Target(
        name="split_heads",
        contract="projected (batch, seq, head*d_k), num_heads -> (batch, head, seq, d_k)",
        right=_split,
        cases=_split_cases,
        slips={
            "Your pieces are as wide as there are heads: num_heads is how many pieces there are, "
            "not how wide one is.": lambda projected, num_heads: rearrange(
                projected, "batch seq (head d_k) -> batch head seq d_k", d_k=num_heads
            ),
        },
    ),
    Target(
        name="merge_heads",
        contract="heads (batch, head, query, d_v) -> (batch, query, head*d_v)",
        right=_merge,
        cases=_merge_cases,
        slips={
            "You dealt out the features of the heads in turn, like cards: each head keeps its "
            "features together, (head d_v) and not (d_v head).": lambda heads: rearrange(
                heads, "batch head query d_v -> batch query (d_v head)"
            ),
            "Your heads stand in reversed order: head 0 comes first.": (
                lambda heads: _merge(heads.flip(1))
            ),
            "You averaged the heads: put them side by side instead.": lambda heads: heads.mean(1),
            "You added the heads up: put them side by side instead.": lambda heads: heads.sum(1),
        },
        avoid=("rearrange", "shape"),
    ),
    Target(
        name="multi_head_attention",
        contract="query (batch, query, d_model), memory (batch, key, d_model), w_q and w_k "
        "(head*d_k, d_model), w_v (head*d_v, d_model), w_o (d_model, head*d_v), num_heads -> "
        "(batch, query, d_model)",
        right=_multi_head_attention,
        cases=_multi_head_attention_cases,
        also={
            "split-view": partial(_multi_head_attention, split=_split_view),
            "split-interleaved": partial(_multi_head_attention, split=_split_interleaved),
            "merge-no-transpose": partial(_multi_head_attention, merge=_merge_no_transpose),
            "softmax-queries": partial(_multi_head_attention, attend=partial(attend, dim=-2)),
            "cross-memory-unused": lambda query, memory, *rest: _multi_head_attention(
                query, query, *rest
            ),
            **{
                id: partial(_multi_head_attention, attend=partial(attend, scores=wrong))
                for id, wrong in WRONG_SCORES.items()
            },
        },
        slips={
            **{
                said: partial(_multi_head_attention, attend=partial(attend, scores=wrong))
                for said, wrong in SCORE_SLIPS.items()
            },
            SCALED_BY_VALUE: partial(_multi_head_attention, attend=_scaled_by_value),
            "You divided by the root of head*d_k, the width before the split: a head scores with "
            "d_k features.": _scale_before_split,
            "Each head meets the keys of all heads: the queries of a head score the keys of the "
            "same head.": partial(
                _multi_head_attention, attend=partial(attend, scores=_heads_meet)
            ),
            "The heads stand side by side and are not mixed yet: w_o is still to come.": (
                lambda *given: _multi_head_attention(
                    *given[:5], torch.eye(len(given[4])), given[-1]
                )
            ),
            "Your values are made by the matrix of the keys: they have one of their own.": (
                lambda query, memory, w_q, w_k, w_v, *rest: _multi_head_attention(
                    query, memory, w_q, w_k, w_k, *rest
                )
            ),
            "In your product w_o stands as it is stored, (out, in): transpose it like the "
            "others.": _as_stored("w_o"),
            "In your products w_q, w_k and w_v stand as they are stored, (out, in): transpose "
            "them.": _as_stored("w_q", "w_k", "w_v"),
            "The four matrices stand in your products as they are stored, (out, in): transpose "
            "them.": _as_stored("w_q", "w_k", "w_v", "w_o"),
        },
    ),
)

_PATTERN = '"batch seq (head d_k) -> batch head seq d_k"'

MISTAKES = (
    Mistake(
        id="split-view",
        sentence="You cut the heads with view alone, so a head gets slices of one word instead of "
        "a slice of every word: view as (batch, seq, head, d_k), then transpose seq and head.",
        step="06",
        target="split_heads",
        wrong=_split_view,
        plant=Plant(
            "multi_head_attention",
            f"rearrange(\n            projected, {_PATTERN}, head=self.num_heads\n        )",
            "projected.reshape(\n"
            "            projected.size(0), self.num_heads, projected.size(1), -1\n"
            "        )",
        ),
    ),
    Mistake(
        id="split-interleaved",
        sentence="You dealt the features to the heads in turn, like cards: each head takes "
        "neighbouring features, so cut the last axis as (head, d_k) and not as (d_k, head).",
        step="06",
        target="split_heads",
        wrong=_split_interleaved,
        plant=Plant(
            "multi_head_attention", _PATTERN, '"batch seq (d_k head) -> batch head seq d_k"'
        ),
    ),
    Mistake(
        id="merge-no-transpose",
        sentence="You merged the heads with reshape alone, so a word gets what was answered to "
        "another: transpose head and query back first, then merge head and d_v.",
        step="06",
        target="merge_heads",
        wrong=_merge_no_transpose,
        plant=Plant(
            "multi_head_attention",
            'rearrange(blended, "batch head query d_v -> batch query (head d_v)")',
            "blended.reshape(blended.size(0), blended.size(2), -1)",
        ),
    ),
    Mistake(
        id="softmax-heads",
        sentence="Your softmax runs over the heads, which then compete for each pair of words: "
        "run it over the keys, the last axis.",
        step="06",
        target="multi_head_attention",
        wrong=partial(_multi_head_attention, attend=partial(attend, dim=1)),
        plant=Plant(
            "attention",
            "= scores.softmax(-1)\n",
            "= scores.softmax(1 if scores.ndim == 4 else -1)\n",
        ),
    ),
    Mistake(
        id="scale-d_model",
        sentence="You divided the scores by the square root of d_model: each head scores with "
        "d_k features, so divide by the square root of d_k.",
        step="06",
        target="multi_head_attention",
        wrong=_scale_d_model,
        plant=Plant(
            "multi_head_attention",
            "return attend(query, key, value, mask, dropout_p)",
            "return attend(query * (self.d_k / self.d_model) ** 0.5, key, value, mask, dropout_p)",
        ),
    ),
    Mistake(
        id="heads-are-features",
        sentence="You cut into as many heads as there are features: cut into num_heads.",
        step="12",
        target="multi_head_attention",
        wrong=_heads_are_features,
        plant=Plant("multi_head_attention", "head=self.num_heads\n", "head=self.d_model\n"),
    ),
)
