"""Lesson 06: mistakes in splitting into heads and merging them."""

import math
from collections.abc import Callable
from functools import partial

from einops import rearrange
from torch import Tensor

from twelve_lab import example
from twelve_lab.exercises.attention import (
    MISREAD_SCALES,
    WRONG_SCORES,
    attention_scores,
    scaled_by_value,
)
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
from twelve_lab.exercises.masks import attend
from twelve_lab.exercises.numbers import distinct_heads, seeded, twelve_heads, vectors


def _split_cases() -> Cases:
    two = twelve_heads(2)
    return {
        "1 head": (vectors(), 1),
        "3 heads": (vectors(), 3),
        "2 heads": (two.x @ two.w_q.T, 2),
        "all sizes differ": (seeded()(2, 5, 24), 3),
    }


@task(_split_cases, measures="splitting features into heads, not sentences into parts")
def split_heads(projected: Tensor, num_heads: int) -> Tensor:
    """projected (batch, seq, head*d_k), num_heads -> (batch, head, seq, d_k)"""
    return rearrange(projected, "batch seq (head d_k) -> batch head seq d_k", head=num_heads)


@mistake(
    split_heads,
    "split-view",
    hidden_in={"1 head"},
)
def split_view(projected: Tensor, num_heads: int) -> Tensor:
    """You split the heads by view alone, so that a head gets parts of one word instead of a part of
    every word: view as (batch, seq, head, d_k), then transpose seq and head.
    """
    batch, seq, features = projected.shape
    return projected.view(batch, num_heads, seq, features // num_heads)


split_interleaved = mistake(
    split_heads,
    "split-interleaved",
    "You dealt the features to the heads one by one: each head takes adjacent features, so split "
    "the last axis as (head, d_k), not (d_k, head).",
    line=("(head d_k) ->", "(d_k head) ->"),
    hidden_in={"1 head", "3 heads"},
)
misconception(
    split_heads,
    "Your heads have num_heads features: num_heads is the number of heads, not their size.",
    line=("head=num_heads", "d_k=num_heads"),
)


def _merge_cases() -> Cases:
    heads = {"1 head": 1, "3 heads": 3, "2 heads": 2}
    return {
        **{name: (twelve_heads(number).value,) for name, number in heads.items()},
        "all sizes differ": (distinct_heads(example.SIZES.tgt)[0],),
    }


@task(
    _merge_cases,
    forbidden=("rearrange", "shape"),
    measures="merging the heads of each word",
)
def merge_heads(heads: Tensor) -> Tensor:
    """heads (batch, head, query, d_v) -> (batch, query, head*d_v)"""
    return rearrange(heads, "batch head query d_v -> batch query (head d_v)")


@solved(merge_heads)
def _merge_in_one_line(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)


@mistake(
    merge_heads,
    "merge-no-transpose",
    hidden_in={"1 head"},
)
def merge_no_transpose(heads: Tensor) -> Tensor:
    """You merged the heads by reshape alone, so that a word gets the output of another word:
    transpose head and query first, then merge head and d_v.
    """
    batch, head, query, d_v = heads.shape
    return heads.reshape(batch, query, head * d_v)


misconception(
    merge_heads,
    "You interleaved the features of the heads: keep the features of each head together, (head "
    "d_v), not (d_v head).",
    line=("(head d_v)", "(d_v head)"),
)
misconception(
    merge_heads,
    "Your heads are in reversed order: head 0 comes first.",
    by=lambda heads: merge_heads(heads.flip(1)),
)
misconception(
    merge_heads,
    "You averaged the heads: concatenate them.",
    by=lambda heads: heads.mean(1),
)
misconception(
    merge_heads,
    "You added the heads: concatenate them.",
    by=lambda heads: heads.sum(1),
)


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


@task(_multi_head_attention_cases, measures="the whole layer: inputs, scale and matrices")
def multi_head_attention(
    query: Tensor,
    memory: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    num_heads: int,
    *,
    split: Callable[[Tensor, int], Tensor] = split_heads,
    merge: Callable[[Tensor], Tensor] = merge_heads,
    attend: Callable[..., Tensor] = attend,
) -> Tensor:
    """query (batch, query, d_model), memory (batch, key, d_model), w_q and w_k (head*d_k,
    d_model), w_v (head*d_v, d_model), w_o (d_model, head*d_v), num_heads -> (batch, query,
    d_model)
    """
    projected = (query @ w_q.T, memory @ w_k.T, memory @ w_v.T)
    heads = (split(features, num_heads) for features in projected)
    return merge(attend(*heads)) @ w_o.T


@solved(multi_head_attention)
def _whole_layer(
    query: Tensor,
    memory: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    num_heads: int,
) -> Tensor:
    projected = query @ w_q.T, memory @ w_k.T, memory @ w_v.T
    asked, found, handed = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in projected)
    match = (asked @ found.transpose(-2, -1) / asked.size(-1) ** 0.5).softmax(-1)
    return (match @ handed).transpose(1, 2).flatten(2) @ w_o.T


def _scored(scores: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return partial(multi_head_attention, attend=partial(attend, scores=scores))


mistake(
    multi_head_attention,
    "softmax-heads",
    "Your softmax runs over the heads, which then compete for each pair of words: run softmax "
    "over the keys, the last axis.",
    attend=partial(attend, dim=1),
)


@mistake(
    multi_head_attention,
    "scale-d_model",
    hidden_in={"1 head"},
)
def scale_d_model(query: Tensor, memory: Tensor, *rest: Tensor | int) -> Tensor:
    """You divided the scores by the square root of d_model: each head has d_k features, so divide
    by the square root of d_k.
    """

    def scores(query_heads: Tensor, key_heads: Tensor) -> Tensor:
        return query_heads @ key_heads.transpose(-2, -1) / math.sqrt(query.size(-1))

    return _scored(scores)(query, memory, *rest)


mistake(
    multi_head_attention,
    "heads-are-features",
    "You made as many heads as there are features: make num_heads heads.",
    line=("split(features, num_heads)", "split(features, query.size(-1))"),
    hidden_in={"3 heads"},
    refused_in={"2 heads", "all sizes differ"},
    step="12",
)
again(multi_head_attention, "split-view", split=split_view.wrong)
again(multi_head_attention, "split-interleaved", split=split_interleaved.wrong)
again(multi_head_attention, "merge-no-transpose", merge=merge_no_transpose.wrong)
again(multi_head_attention, "softmax-queries", attend=partial(attend, dim=-2))
again(
    multi_head_attention,
    "cross-memory-unused",
    by=lambda query, memory, *rest: multi_head_attention(query, query, *rest),
)
inherit(multi_head_attention, _scored, *WRONG_SCORES, *MISREAD_SCALES)
misconception(
    multi_head_attention,
    scaled_by_value.sentence,
    attend=attend.misconceptions[scaled_by_value.sentence],
)
misconception(
    multi_head_attention,
    "You divided by the square root of head*d_k, the size before the split: each head has d_k "
    "features.",
    by=_scored(lambda query, key: query @ key.mT / math.sqrt(query.size(1) * query.size(-1))),
)
misconception(
    multi_head_attention,
    "Each head meets the keys of all heads: multiply the queries of a head by the keys of the "
    "same head.",
    by=_scored(lambda query, key: attention_scores(query, key.sum(1, keepdim=True))),
)
misconception(
    multi_head_attention,
    "The heads are concatenated but not mixed: apply w_o.",
    line=(" @ w_o.T", ""),
)
misconception(
    multi_head_attention,
    "You computed the values by the matrix of the keys: use w_v.",
    line=("memory @ w_v.T", "memory @ w_k.T"),
)
misconception(
    multi_head_attention,
    "You multiplied by w_o as it is stored, (out, in): transpose it like the others.",
    line=("w_o.T", "w_o"),
)
misconception(
    multi_head_attention,
    "You multiplied by w_q, w_k and w_v as they are stored, (out, in): transpose them.",
    line=(
        "query @ w_q.T, memory @ w_k.T, memory @ w_v.T",
        "query @ w_q, memory @ w_k, memory @ w_v",
    ),
)


@misconception(multi_head_attention)
def as_stored(query: Tensor, memory: Tensor, *given: Tensor | int) -> Tensor:
    """You multiplied by the four matrices as they are stored, (out, in): transpose them."""
    *matrices, num_heads = given
    return multi_head_attention(query, memory, *(w.T for w in matrices), num_heads)


@question(measures="the four axes of scores where lengths differ")
def scores_shape(*, swapped: bool = False) -> tuple[int, ...]:
    """the scores at the companion's sizes -> (batch, head, query, key)"""
    query, key, _ = distinct_heads()
    asks, looked_at = (key, query) if swapped else (query, key)
    return tuple((asks @ looked_at.mT).shape)


again(scores_shape, "qk-swapped", swapped=True)
misconception(
    scores_shape,
    "This is the shape of the context: the scores come before the values.",
    by=lambda: tuple(attend(*distinct_heads()).shape),
)
misconception(
    scores_shape,
    "This is the shape of the queries, split into heads: with which words does each of them get a "
    "score?",
    by=lambda: tuple(distinct_heads()[0].shape),
)
misconception(
    scores_shape,
    "In cross-attention the target does not attend to itself: which sentence has the keys?",
    by=lambda: tuple((distinct_heads()[0] @ distinct_heads()[0].mT).shape),
)


@question(
    decimals=3,
    measures="the output as a sum over the heads",
    worked="[-1.655, -0.209 - 0.103, 0.0]",
)
def values_zeroed(*, zeroed: tuple[int, ...] = (1,)) -> list[float]:
    """the output of dog, three numbers, where the values of head 1 are zero"""
    at = twelve_heads(3)
    values = at.w_v.clone()
    values[list(zeroed)] = 0
    return multi_head_attention(at.x, at.x, at.w_q, at.w_k, values, at.w_o, 3)[1, 0].tolist()


misconception(values_zeroed, "This is the unchanged output: head 1 still contributes.", zeroed=())
misconception(
    values_zeroed,
    "You removed head 0: heads are counted from 0, so head 1 is the second.",
    zeroed=(0,),
)
misconception(
    values_zeroed,
    "You removed head 2: heads are counted from 0, so head 1 is the second.",
    zeroed=(2,),
)
misconception(
    values_zeroed,
    "This is the part of head 1 alone: it is the part that becomes zero.",
    zeroed=(0, 2),
)
