"""Lesson 17: mistakes in sharing and caching key-value heads."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.generation import KeyValueCache
from twelve.grouped_query_attention import GroupedQueryAttention
from twelve.rotary_positions import RotaryEncoding
from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import attend, mask_of_new
from twelve_lab.exercises.numbers import SIZES, distinct_heads, seeded, twelve_heads

# 12 query heads in groups of 6, which share 2 key-value heads.
_HEADS = 12


def _share_cases() -> Cases:
    _, key, _ = distinct_heads()
    return {
        "two for four": (twelve_heads(2).key, 4),
        "one for all": (twelve_heads(1).key, 3),
        "one for each": (twelve_heads(3).key, 3),
        "all sizes differ": (key, _HEADS),
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


_REPEAT = "heads.repeat_interleave(GROUP, dim=1)"
mistake(
    share_heads,
    "kv-tiled",
    "Your query heads share in the order 0, 1, 0, 1, which has the right shape: adjacent query "
    "heads must share a head, as in 0, 0, 1, 1.",
    {_REPEAT: "heads.repeat(1, GROUP, 1, 1)"},
)
mistake(
    share_heads,
    "kv-group-count",
    "You repeated each head once for each group: repeat it once for each head of its group, "
    "num_heads // num_kv_heads times.",
    {"HEADS // KV_HEADS": "KV_HEADS"},
)
notes(
    share_heads,
    {
        "You repeated each head num_heads times: the result must have num_heads heads in all.": {
            "HEADS // KV_HEADS": "HEADS"
        },
        "Every query head gets head 0: each group needs its own head.": {
            _REPEAT: "heads[:, :1].expand(-1, num_heads, -1, -1)"
        },
        "You averaged the shared heads: return each one unchanged for its group.": {
            _REPEAT: "heads.mean(1, keepdim=True).expand(-1, num_heads, -1, -1)"
        },
        "You mixed heads and tokens: insert the new axis right after the heads.": {
            f"return {_REPEAT}": "shared = heads.repeat_interleave(GROUP, dim=2)\n"
            "return shared.reshape(len(heads), num_heads, *heads.shape[2:])"
        },
    },
)


def _grouped_cases() -> Cases:
    two, draw, (_, key, value) = twelve_heads(2), seeded(), distinct_heads()
    four = torch.cat([two.query, two.key], dim=1)  # two more query heads with arbitrary content
    return {
        "four on two": (four, two.key, two.value),
        "three on one": (twelve_heads(3).query, *(draw(2, 1, 2, 1) for _ in "kv")),
        "all sizes differ": (draw(SIZES.batch, _HEADS, SIZES.tgt, SIZES.d_k), key, value),
    }


@task(
    _grouped_cases,
    forbidden=("repeat_interleave", "repeat", "expand"),
    measures="a group of queries and one shared head in one product",
)
def grouped_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """query (batch, head, query, d_k), key (batch, kv_head, key, d_k), value (batch, kv_head, key,
    d_v) -> (batch, head, query, d_v)
    """
    num_heads = query.size(1)
    return attend(query, share_heads(key, num_heads), share_heads(value, num_heads))


@solved(grouped_attention)
def _grouped_without_copies(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    groups = query.unflatten(1, (key.size(1), -1))
    match = groups @ key.unsqueeze(2).mT / query.size(-1) ** 0.5
    return (match.softmax(-1) @ value.unsqueeze(2)).flatten(1, 2)


notes(
    grouped_attention,
    {
        "You averaged the queries of a group: each head keeps its own queries.": {
            "attend(query, KEYS, VALUES)": "attend(share_heads(query.unflatten(1, (key.size(1), "
            "-1)).mean(2), num_heads), KEYS, VALUES)"
        },
        "You repeated the keys as 0, 0, 1, 1 but the values as 0, 1, 0, 1: a head must use both "
        "from the same shared head.": {
            "share_heads(value, num_heads)": "value.repeat(1, num_heads // value.size(1), 1, 1)"
        },
        "You grouped the queries in one order and merged them in another: split the heads as "
        "(kv_head, group), and merge them in the same order.": {
            "attend(query, KEYS, VALUES)": "attend("
            "query.unflatten(1, (-1, key.size(1))).transpose(1, 2).flatten(1, 2), KEYS, VALUES)"
        },
    },
)


def _cache_cases() -> Cases:
    draw = seeded()

    def case(batch: int, heads: int, kv_heads: int, new: int, old: int, d_k: int) -> tuple:
        kept = (draw(batch, kv_heads, old, d_k) for _ in "kv")
        heads_of_new = (draw(batch, number, new, d_k) for number in (heads, kv_heads, kv_heads))
        return (*heads_of_new, *kept, RotaryEncoding(d_k, max_len=16).double())

    return {
        "nothing kept": case(2, 4, 2, 3, 0, 2),
        "one new token": case(2, 4, 2, 1, 3, 4),
        "one for each": case(2, 2, 2, 2, 3, 2),
        "all sizes differ": case(SIZES.batch, _HEADS, 2, SIZES.tgt, SIZES.src, SIZES.d_k),
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
    heads, new, start = query.size(1), query.size(2), kept_keys.size(2)
    query, key = turn(query, start), turn(key, start)
    keys = torch.cat([kept_keys, key], dim=2)
    values = torch.cat([kept_values, value], dim=2)
    mask = mask_of_new(new, start + new)
    context = attend(query, share_heads(keys, heads), share_heads(values, heads), mask)
    return context, keys, values


@solved(attend_with_cache)
def _turned_kept_shared(query, key, value, kept_keys, kept_values, turn):
    old, new = kept_keys.size(2), query.size(2)
    keys = torch.cat([kept_keys, turn(key, old)], dim=2)
    values = torch.cat([kept_values, value], dim=2)
    shown = torch.ones(new, old + new, dtype=torch.bool).tril(old)
    context = F.scaled_dot_product_attention(turn(query, old), keys, values, shown, enable_gqa=True)
    return context, keys, values


_TURNED = "turn(query, start), turn(key, start)"
mistake(
    attend_with_cache,
    "rotary-values-turned",
    "You rotated the values too, so the content of a token depends on its position: rotate only "
    "queries and keys.",
    {"[kept_values, value]": "[kept_values, turn(value, start)]"},
)
mistake(
    attend_with_cache,
    "rotary-after-cache",
    "You rotated the keys after adding them to the cache, so the cached keys rotate twice: rotate "
    "only the new keys, then add them to the cache.",
    {_TURNED: "turn(query, start), key", "keys = X": "keys = turn(X, 0)"},
)
mistake(
    attend_with_cache,
    "cache-start-zero",
    "You rotated the new tokens as if nothing came before them: they follow the cached tokens, so "
    "start at the length of the cache.",
    {_TURNED: "turn(query, 0), turn(key, 0)"},
)
mistake(
    attend_with_cache,
    "kv-shared-before-cache",
    "You cached the keys after repeating the heads, so the cache saves no memory: add to the "
    "cache first, then repeat.",
    {"keys = X": "keys = share_heads(X, heads)", "values = X": "values = share_heads(X, heads)"},
)
mistake(
    attend_with_cache,
    "cache-mask-dropped",
    "You dropped the mask whenever there is a cache, so several new tokens see each other's "
    "future: only a single new token needs no mask.",
    {"mask = X": "mask = None if start else X"},
)
notes(
    attend_with_cache,
    {
        "Your positions are one too large: the position of the first new token must be the "
        "length of the cache.": {_TURNED: "turn(query, start + 1), turn(key, start + 1)"},
        "The new tokens attend to themselves alone: they must attend to the cached tokens too.": {
            "mask = X": "mask = X & (torch.arange(start + new) >= start)"
        },
    },
)


def _pool_cases() -> Cases:
    draw = seeded()
    return {
        "four to two": (draw(8, 3), 4, 2),
        "three to one": (draw(6, 5), 3, 1),
        "all sizes differ": (draw(_HEADS * SIZES.d_k, SIZES.d_model), _HEADS, SIZES.num_heads),
    }


@task(_pool_cases, by_gradient=None, measures="averaging heads by the rows of their matrix")
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
    {"(KV_HEADS, GROUP, -1)": "(GROUP, KV_HEADS, -1)", "X.mean(1)": "X.mean(0)"},
)
notes(
    pool_heads,
    {
        "You summed the heads of a group: take their mean, or the scores grow with the group.": {
            "X.mean(1)": "X.sum(1)"
        },
        "You averaged all heads: each group needs its own mean.": {
            "X.mean(1)": "X.mean((0, 1)).expand(num_kv_heads, -1, -1)"
        },
        "You kept the first head of each group: take the mean of the group.": {
            "heads.mean(1)": "heads[:, 0]"
        },
        "You averaged adjacent rows: a head has d_k rows, so average row 0 with row 0 of the "
        "other heads.": {"(KV_HEADS, GROUP, -1)": "(-1, GROUP)", "X.flatten(0, 1)": "X"},
    },
)


@question(measures="which query heads share a head")
def shared_head() -> list[int]:
    """nine query heads, three shared heads -> for each query head the number of its shared head"""
    kv_heads = torch.arange(3).view(1, 3, 1, 1)
    return share_heads(kv_heads, 9).flatten().tolist()


notes(
    shared_head,
    {
        "You counted the shared heads from 1: they are 0, 1 and 2.": [1, 1, 1, 2, 2, 2, 3, 3, 3],
        "With nine key heads, each query head would have its own: here there are three.": [
            0, 1, 2, 3, 4, 5, 6, 7, 8,
        ],
        "With one shared head, this would be multi-query attention: here there are three.": [0] * 9,
    },
)  # fmt: skip


@question(
    decimals=0,
    measures="what a token costs in the cache of a model, from its sizes",
    worked="28 * 2 * 4 * 128 * 2",
)
def bytes_of_a_token() -> int:
    """the cache of a token: 28 layers, 28 query heads sharing 4 of width 128, 2 bytes a number"""
    return 28 * 2 * 4 * 128 * 2


notes(
    bytes_of_a_token,
    {
        "You counted a key head for each query head: 4 are cached.": 28 * 2 * 28 * 128 * 2,
        "You counted 7 key heads, the size of a group: 4 are cached.": 28 * 2 * 7 * 128 * 2,
        "This is half of the answer: both keys and values are cached, and each number takes 2 "
        "bytes.":
        28 * 4 * 128 * 2,
        "This is only one layer: each of the 28 layers has its own cache.": 2 * 4 * 128 * 2,
    },
)  # fmt: skip


@question(measures="what a cache stores, in four axes", worked="(2, 3, 5, 8)")
def kept_shape() -> tuple[int, ...]:
    """the keys of 2 sentences of 5 tokens in a cache, 6 query heads sharing 3 of width 8 -> (batch,
    kv_head, key, d_k)
    """
    layer = GroupedQueryAttention(24, 6, 3, d_k=8)
    cache = KeyValueCache(layer, 2, 5)
    layer(layer.w_q.weight.new_zeros(2, 5, 24), cache=cache)
    return tuple(cache.keys.shape)


again(kept_shape, "kv-shared-before-cache", {"GroupedQueryAttention(24, 6, 3, d_k=8)":
                                             "GroupedQueryAttention(24, 6, 6, d_k=8)"})  # fmt: skip
notes(
    kept_shape,
    {
        "This is the size of a group, two heads: how many shared heads are there?": (2, 2, 5, 8),
        "The head axis comes before the tokens, as the scores need it.": (2, 5, 3, 8),
        "These are the keys and values together: the question is about the keys alone.": (
            2,
            3,
            5,
            16,
        ),
    },
)
