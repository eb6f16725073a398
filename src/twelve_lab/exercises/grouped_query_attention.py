"""Lesson 17: mistakes in sharing and caching heads of keys and values."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.generation import KeyValueCache
from twelve.grouped_query_attention import GroupedQueryAttention
from twelve.masks import causal_mask
from twelve.rotary_positions import RotaryEncoding
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.masks import attend
from twelve_lab.exercises.numbers import seeded, twelve_heads

_SIZES = example.SIZES
_KV_HEADS, _D_K = _SIZES.num_heads, _SIZES.d_k
_HEADS = 2 * _KV_HEADS


def _share_cases() -> Cases:
    draw = seeded()
    return {
        "two for four": (twelve_heads(2).key, 4),
        "one for all": (twelve_heads(1).key, 3),
        "one for each": (twelve_heads(3).key, 3),
        "all sizes differ": (draw(_SIZES.batch, _KV_HEADS, _SIZES.src, _D_K), _HEADS),
    }


@task(
    _share_cases,
    forbidden=("repeat_interleave", "repeat", "for"),
    measures="which query heads share a head, and where the new axis belongs",
)
def share_heads(heads: Tensor, num_heads: int) -> Tensor:
    """heads (batch, kv_head, seq, d_k), num_heads -> (batch, head, seq, d_k)"""
    return heads.repeat_interleave(num_heads // heads.size(1), dim=1)


@solved(share_heads)
def _share_by_a_new_axis(heads: Tensor, num_heads: int) -> Tensor:
    group = num_heads // heads.size(1)
    return heads.unsqueeze(2).expand(-1, -1, group, -1, -1).flatten(1, 2)


@mistake(
    share_heads,
    "kv-tiled",
)
def kv_tiled(heads: Tensor, num_heads: int) -> Tensor:
    """You repeated the shared heads in the order 0, 1, 0, 1, which has the right shape: adjacent
    query heads share a head, 0, 0, 1, 1.
    """
    return heads.repeat(1, num_heads // heads.size(1), 1, 1)


group_count = mistake(
    share_heads,
    "kv-group-count",
    "You repeated each head once for each group: repeat it once for each head of its group, "
    "num_heads // num_kv_heads times.",
    line=("num_heads // heads.size(1)", "heads.size(1)"),
)
misconception(
    share_heads,
    "You repeated each head num_heads times: the result must have num_heads heads in all.",
    line=("num_heads // heads.size(1)", "num_heads"),
)
misconception(
    share_heads,
    "Every query head gets head 0: each group has its own head.",
    by=lambda heads, num_heads: share_heads(heads[:, :1], num_heads),
)
misconception(
    share_heads,
    "You averaged the shared heads: return each one unchanged for its group.",
    by=lambda heads, num_heads: share_heads(heads.mean(1, keepdim=True), num_heads),
)
misconception(
    share_heads,
    "You repeated the tokens: repeat the heads.",
    line=("dim=1", "dim=2"),
)
misconception(
    share_heads,
    "Your groups are in reversed order: the first query heads share head 0.",
    by=lambda heads, num_heads: share_heads(heads.flip(1), num_heads),
)
misconception(
    share_heads,
    "You mixed heads and tokens: insert the new axis right after the heads.",
    by=lambda heads, num_heads: (
        heads.unsqueeze(3)
        .expand(-1, -1, -1, num_heads // heads.size(1), -1)
        .reshape(len(heads), num_heads, *heads.shape[2:])
    ),
)


def _grouped_cases() -> Cases:
    two, draw = twelve_heads(2), seeded()
    four = torch.cat([two.query, two.key], dim=1)  # two more query heads with any content
    wide = (_SIZES.batch, _KV_HEADS, _SIZES.src)
    return {
        "four on two": (four, two.key, two.value),
        "three on one": (twelve_heads(3).query, *(draw(2, 1, 2, 1) for _ in "kv")),
        "all sizes differ": (
            draw(_SIZES.batch, _HEADS, _SIZES.tgt, _D_K),
            draw(*wide, _D_K),
            draw(*wide, _SIZES.d_v),
        ),
    }


@task(
    _grouped_cases,
    forbidden=("repeat_interleave", "repeat", "expand"),
    measures="a group of queries and one shared head in one product",
)
def grouped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
) -> Tensor:
    """query (batch, head, query, d_k), key (batch, kv_head, key, d_k), value (batch, kv_head, key,
    d_v) -> (batch, head, query, d_v)
    """
    key, value = share_heads(key, query.size(1)), share_heads(value, query.size(1))
    return attend(query, key, value)


@solved(grouped_attention)
def _grouped_without_copies(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    groups = query.unflatten(1, (key.size(1), -1))
    match = groups @ key.unsqueeze(2).mT / query.size(-1) ** 0.5
    return (match.softmax(-1) @ value.unsqueeze(2)).flatten(1, 2)


@misconception(grouped_attention)
def values_tiled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """You repeated the keys as 0, 0, 1, 1 but the values as 0, 1, 0, 1: a head must use both from
    the same shared head.
    """
    key, value = share_heads(key, query.size(1)), kv_tiled.wrong(value, query.size(1))
    return attend(query, key, value)


@misconception(grouped_attention)
def groups_mixed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """You grouped the queries in one order and merged them in another: split the heads as (kv_head,
    group), and merge them in this order.
    """
    groups = query.unflatten(1, (-1, key.size(1))).transpose(1, 2)
    return grouped_attention(groups.flatten(1, 2), key, value)


misconception(
    grouped_attention,
    "You averaged the queries of a group: each head has its own queries.",
    by=lambda query, key, value: share_heads(
        attend(query.unflatten(1, (key.size(1), -1)).mean(2), key, value), query.size(1)
    ),
)


def _cache_cases() -> Cases:
    draw = seeded()

    def case(heads: int, kv_heads: int, new: int, old: int, d_k: int) -> tuple:
        kept = (draw(2, kv_heads, old, d_k) for _ in "kv")
        heads_of_new = (draw(2, number, new, d_k) for number in (heads, kv_heads, kv_heads))
        return (*heads_of_new, *kept, RotaryEncoding(d_k, max_len=16).double())

    return {
        "nothing kept": case(4, 2, 3, 0, 2),
        "one new token": case(4, 2, 1, 3, 4),
        "one for each": case(2, 2, 2, 3, 2),
        "all sizes differ": case(_HEADS, _KV_HEADS, _SIZES.tgt, _SIZES.src, _D_K),
    }


@task(_cache_cases, measures="the order of rotating, caching, repeating and masking")
def attend_with_cache(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept_keys: Tensor,
    kept_values: Tensor,
    turn: Callable[[Tensor, int], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """query (batch, head, new, d_k), key and value (batch, kv_head, new, d_k), kept_keys, turned,
    and kept_values (batch, kv_head, old, d_k), turn -> context (batch, head, new, d_k), keys
    (batch, kv_head, all, d_k), values (batch, kv_head, all, d_k)
    """
    start, new = kept_keys.size(2), query.size(2)
    query, key = turn(query, start), turn(key, start)
    keys = torch.cat([kept_keys, key], dim=2)
    values = torch.cat([kept_values, value], dim=2)
    mask = causal_mask(new, start + new)
    shared = (share_heads(heads, query.size(1)) for heads in (keys, values))
    return attend(query, *shared, mask), keys, values


@solved(attend_with_cache)
def _turned_kept_shared(query, key, value, kept_keys, kept_values, turn):
    old, new = kept_keys.size(2), query.size(2)
    keys = torch.cat([kept_keys, turn(key, old)], dim=2)
    values = torch.cat([kept_values, value], dim=2)
    shown = torch.ones(new, old + new, dtype=torch.bool).tril(old)
    context = F.scaled_dot_product_attention(turn(query, old), keys, values, shown, enable_gqa=True)
    return context, keys, values


mistake(
    attend_with_cache,
    "rotary-values-turned",
    "You rotated the values too, so that the content of a token depends on its position: rotate "
    "only queries and keys.",
    by=lambda query, key, value, kept_keys, kept_values, turn: attend_with_cache(
        query, key, turn(value, kept_keys.size(2)), kept_keys, kept_values, turn
    ),
)
mistake(
    attend_with_cache,
    "rotary-after-cache",
    "You rotated the keys after adding them to the cache, so that the cached keys rotate twice: "
    "rotate only the new keys, then add them to the cache.",
    line=(
        "query, key = turn(query, start), turn(key, start)\n"
        "    keys = torch.cat([kept_keys, key], dim=2)",
        "query = turn(query, start)\n    keys = turn(torch.cat([kept_keys, key], dim=2), 0)",
    ),
)
mistake(
    attend_with_cache,
    "cache-start-zero",
    "You rotated the new tokens as if nothing came before them: they follow the cached tokens, so "
    "start at the length of the cache.",
    line=(
        "query, key = turn(query, start), turn(key, start)",
        "query, key = turn(query, 0), turn(key, 0)",
    ),
)
mistake(
    attend_with_cache,
    "kv-shared-before-cache",
    "You cached the keys after repeating the heads, so that the cache saves no memory: add to the "
    "cache first, then repeat.",
    line=(
        "return attend(query, *shared, mask), keys, values",
        "keys, values = shared\n    return attend(query, keys, values, mask), keys, values",
    ),
)
mistake(
    attend_with_cache,
    "cache-mask-dropped",
    "You dropped the mask whenever there is a cache, so that several new tokens see each other's "
    "future: only a single new token needs no mask.",
    line=("causal_mask(new, start + new)", "None if start else causal_mask(new)"),
)
again(
    attend_with_cache,
    "kv-tiled",
    line=("(share_heads(heads, query", "(kv_tiled.wrong(heads, query"),
)
again(
    attend_with_cache,
    "causal-corner",
    line=(
        "causal_mask(new, start + new)",
        "torch.ones(new, start + new, dtype=torch.bool).tril()[None, None]",
    ),
)
misconception(
    attend_with_cache,
    "You rotated the keys but not the queries: the score depends on the distance only if both are "
    "rotated.",
    line=("turn(query, start), turn", "query, turn"),
)
misconception(
    attend_with_cache,
    "You rotated the queries but not the new keys: rotate both by the same positions.",
    line=("turn(query, start), turn(key, start)", "turn(query, start), key"),
)
misconception(
    attend_with_cache,
    "You rotated nothing: attention does not know the positions.",
    line=("turn(query, start), turn(key, start)", "query, key"),
)
misconception(
    attend_with_cache,
    "Your positions are one too large: the first new token has the length of the cache as its "
    "position.",
    line=(
        "turn(query, start), turn(key, start)",
        "turn(query, start + 1), turn(key, start + 1)",
    ),
)
misconception(
    attend_with_cache,
    "The new tokens attend to themselves alone: they attend to the cached tokens too.",
    by=lambda query, key, value, kept_keys, kept_values, turn: (
        attend(
            turn(query, kept_keys.size(2)),
            *(share_heads(heads, query.size(1)) for heads in (turn(key, kept_keys.size(2)), value)),
            causal_mask(query.size(2)),
        ),
        *attend_with_cache(query, key, value, kept_keys, kept_values, turn)[1:],
    ),
)


def _pool_cases() -> Cases:
    draw = seeded()
    return {
        "four to two": (draw(8, 3), 4, 2),
        "three to one": (draw(6, 5), 3, 1),
        "all sizes differ": (draw(_HEADS * _D_K, _SIZES.d_model), _HEADS, _KV_HEADS),
    }


@task(
    _pool_cases,
    by_gradient=None,
    measures="averaging heads by the rows of their matrix",
)
def pool_heads(weight: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    """weight (head*d_k, d_model), num_heads, num_kv_heads -> (kv_head*d_k, d_model)"""
    heads = weight.unflatten(0, (num_kv_heads, num_heads // num_kv_heads, -1))
    return heads.mean(1).flatten(0, 1)


@solved(pool_heads)
def _mean_of_neighbours(weight: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    heads = weight.chunk(num_heads)
    group = num_heads // num_kv_heads
    groups = [heads[first : first + group] for first in range(0, num_heads, group)]
    return torch.cat([torch.stack(group).mean(0) for group in groups])


again(
    pool_heads,
    "kv-tiled",
    by=lambda weight, num_heads, num_kv_heads: (
        weight.unflatten(0, (num_heads // num_kv_heads, num_kv_heads, -1)).mean(0).flatten(0, 1)
    ),
)
misconception(
    pool_heads,
    "You summed the heads of a group: take their mean, or the scores grow with the group.",
    line=("mean(1)", "sum(1)"),
)
misconception(
    pool_heads,
    "You kept the first head of each group: take the mean of the group.",
    line=("heads.mean(1)", "heads[:, 0]"),
)
misconception(
    pool_heads,
    "You averaged adjacent rows: a head has d_k rows, and row 0 is averaged with row 0 of the "
    "other heads.",
    line=(
        "weight.unflatten(0, (num_kv_heads, num_heads // num_kv_heads, -1))",
        "weight.unflatten(0, (-1, num_heads // num_kv_heads))",
    ),
)
misconception(
    pool_heads,
    "You averaged all heads: each group has its own mean.",
    line=("heads.mean(1)", "heads.mean((0, 1))[None].expand_as(heads[:, 0])"),
)


@question(measures="which query heads share a head")
def shared_head(*, order: Callable[[Tensor, int], Tensor] = share_heads) -> list[int]:
    """nine query heads, three shared heads -> for each query head the number of its shared head"""
    kv_heads = torch.arange(3).view(1, 3, 1, 1)
    return order(kv_heads, 9).flatten().tolist()


again(shared_head, "kv-tiled", order=kv_tiled.wrong)
misconception(
    shared_head,
    "You counted the shared heads from 1: they are 0, 1 and 2.",
    by=lambda: [number + 1 for number in shared_head()],
)
misconception(
    shared_head,
    "With nine key heads each query head would have its own: here there are three.",
    by=lambda: list(range(9)),
)
misconception(
    shared_head,
    "Nine heads on three make groups of three: your groups have another size.",
    by=lambda: [0, 0, 1, 1, 2, 2, 0, 0, 1],
)
misconception(
    shared_head,
    "With one shared head this would be multi-query attention: here there are three.",
    by=lambda: [0] * 9,
)


@question(
    decimals=0,
    measures="what a token costs in the cache of a model, from its sizes",
    worked="28 * 2 * 4 * 128 * 2",
)
def bytes_of_a_token(
    *, layers: int = 28, pair: int = 2, kv_heads: int = 4, d_k: int = 128, bytes_each: int = 2
) -> int:
    """the cache of a token: 28 layers, 28 query heads sharing 4 of width 128, 2 bytes a number"""
    return layers * pair * kv_heads * d_k * bytes_each


misconception(
    bytes_of_a_token, "You counted a key head for each query head: 4 are cached.", kv_heads=28
)
misconception(
    bytes_of_a_token,
    "You counted 7 key heads, the size of a group: 4 are cached.",
    kv_heads=7,
)
misconception(
    bytes_of_a_token,
    "This is half of it: keys and values are cached, and each number takes 2 bytes.",
    pair=1,
)
misconception(
    bytes_of_a_token,
    "This is a quarter of it: keys and values are cached, and each number takes 2 bytes.",
    by=lambda: bytes_of_a_token(pair=1, bytes_each=1),
)
misconception(
    bytes_of_a_token, "This is one layer: each of the 28 layers has its own cache.", layers=1
)
misconception(bytes_of_a_token, "You counted 4 bytes for a number: here it takes 2.", bytes_each=4)


@question(measures="what a cache stores, in four axes", worked="(2, 3, 5, 8)")
def kept_shape(*, kv_heads: int = _KV_HEADS) -> tuple[int, ...]:
    """the keys of 2 sentences of 5 tokens in a cache, 6 query heads sharing 3 of width 8 -> (batch,
    kv_head, key, d_k)
    """
    layer = GroupedQueryAttention(_SIZES.d_model, _HEADS, kv_heads, d_k=_D_K)
    cache = KeyValueCache(layer, _SIZES.batch, _SIZES.src)
    layer(layer.w_q.weight.new_zeros(_SIZES.batch, _SIZES.src, _SIZES.d_model), cache=cache)
    return tuple(cache.keys.shape)


again(kept_shape, "kv-shared-before-cache", kv_heads=_HEADS)
misconception(
    kept_shape,
    "This is the size of a group, two heads: how many shared heads are there?",
    kv_heads=2,
)
misconception(
    kept_shape,
    "The head axis comes before the tokens, as the scores need it.",
    by=lambda: tuple(kept_shape()[i] for i in (0, 2, 1, 3)),
)
misconception(
    kept_shape,
    "These are keys and values together: the question is about the keys alone.",
    by=lambda: (*kept_shape()[:3], 2 * _D_K),
)
