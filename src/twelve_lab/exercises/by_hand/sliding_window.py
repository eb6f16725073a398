"""By hand: sliding-window attention, its mask, and the cache that overwrites old keys."""

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded


def _mask_cases() -> Cases:
    return {
        "five words, a window of three": (5, 5, 3),
        "a window of one": (4, 4, 1),
        "a window longer than the text": (3, 3, 8),
        "one new word": (1, 6, 4),
        "all sizes differ": (4, 9, 3),
    }


@task(_mask_cases, measures="the two diagonals of a causal window, for the last queries")
def window_mask(query_len: int, key_len: int, window: int) -> Tensor:
    """query_len, key_len, window -> (query, key), True = may attend; the queries are the last
    query_len positions
    """
    query = torch.arange(key_len - query_len, key_len).unsqueeze(1)
    key = torch.arange(key_len)
    return (key <= query) & (key > query - window)


mistake(
    window_mask,
    "window-one-more",
    "Each query sees one key too many: a window of w contains the query's own position and w - 1 "
    "earlier positions.",
    {"key > query - window": "key >= query - window"},
)
mistake(
    window_mask,
    "window-not-causal",
    "The window also includes later positions: keep the causal mask, and cut off only the distant "
    "past.",
    {"key <= query": "key < query + window"},
)
mistake(
    window_mask,
    "window-no-lower-edge",
    "This is the causal mask alone: also mask the keys that are at least window positions back.",
    {"(key <= query) & X": "key <= query"},
)
again(window_mask, "window-not-causal", {"(key <= query) & X": "X"})
again(window_mask, "causal-corner", {"torch.arange(key_len - query_len, key_len)":
                                     "torch.arange(query_len)"})  # fmt: skip
again(window_mask, "mask-inverted", {"(key <= query) & X": "~((key <= query) & X)"})
again(window_mask, "causal-diagonal", {"key <= query": "key < query"})
notes(
    window_mask,
    {
        "Each query sees one key too few: its own position counts towards the window.": {
            "key > query - window": "key > query - window + 1"
        },
        "You used fixed blocks: the window must move with each query.": {
            "key > query - window": "key >= query // window * window"
        },
        "You masked the window and left the distant past visible.": {
            "key > query - window": "key <= query - window"
        },
        "You centred the window on the query: a causal window ends at the query.": {
            "(key <= query) & X": "(key - query).abs() <= window // 2"
        },
        "The window ends before the query: include the query's own position.": {
            "key <= query": "key < query",
            "key > query - window": "key >= query - window",
        },
        "The window begins at the query and includes the future: it should end at the query.": {
            "key <= query": "key >= query",
            "key > query - window": "key < query + window",
        },
        "You used the mask of the last query for all queries: give each query its own window.": {
            "query - window": "key_len - 1 - window"
        },
    },
)


def _cache_cases() -> Cases:
    draw = seeded()

    def case(batch: int, heads: int, window: int, new: int, d_k: int, length: int) -> tuple:
        cache = draw(batch, heads, window, d_k)
        cache[:, :, length:] = 0
        return cache, draw(batch, heads, new, d_k), length

    return {
        "an empty cache": case(1, 2, 3, 2, 4, 0),
        "one new key": case(2, 1, 3, 1, 2, 7),
        "more new keys than slots": case(2, 2, 3, 8, 4, 2),
        "all sizes differ": case(SIZES.batch, SIZES.num_heads, SIZES.src, SIZES.tgt, SIZES.d_v, 13),
    }


@task(
    _cache_cases,
    by_gradient=None,
    measures="the slot of a position, and which positions are still in the cache",
)
def rolling_cache(cache: Tensor, new: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """cache (batch, head, window, d_k), new (batch, head, new, d_k), length (positions before the
    new ones) -> cache (batch, head, window, d_k), positions (window), -1 in an empty slot
    """
    window, new_len = cache.size(2), new.size(2)
    end = length + new_len
    kept = torch.arange(max(length, end - window), end)
    cache = cache.clone()
    cache[:, :, kept % window] = new[:, :, kept - length]
    slots = torch.arange(window)
    positions = end - 1 - (end - 1 - slots) % window
    return cache, positions.clamp(min=-1)


_SLOTS, _KEPT = "kept % window", "torch.arange(max(length, end - window), end)"
_WRITE = "cache[:, :, kept % window] = new[:, :, kept - length]"
mistake(
    rolling_cache,
    "rolling-starts-at-zero",
    "You wrote the new keys from slot 0 onwards: position j belongs in slot j % window, and the "
    "new positions start at length.",
    {_SLOTS: "(kept - length) % window"},
)
mistake(
    rolling_cache,
    "rolling-first-kept",
    "When there were more new keys than slots, you kept the first ones: keep the last ones, "
    "because later queries see those.",
    {"new[:, :, kept - length]": "new[:, :, : len(kept)]"},
)
mistake(
    rolling_cache,
    "rolling-shifted",
    "You shifted the old keys, so the slots are in the order of positions: leave each key in its "
    "slot, and overwrite only the oldest one.",
    {
        _WRITE:
        "cache = torch.cat([cache[:, :, : min(length, window)], new], 2)[:, :, -window:]\n"
        "cache = torch.cat([cache, cache.new_zeros(cache.shape).narrow(2, 0, window - "
        "cache.size(2))], 2)",
        "positions = X": "positions = max(end - window, 0) + slots\n"
        "positions = positions.where(positions < end, torch.tensor(-1))",
    },
)  # fmt: skip
again(
    rolling_cache,
    "rolling-shifted",
    {
        _WRITE: "cache = torch.cat([cache, new], 2)[:, :, -window:]",
        "positions = X": "positions = end - window + slots",
    },
)
again(
    rolling_cache,
    "rolling-first-kept",
    {_KEPT: "torch.arange(length, min(end, length + window))"},
)
mistake(
    rolling_cache,
    "rolling-first-turn",
    "These are the positions written in the first round: give the last position j written to each "
    "slot, where j % window is the slot.",
    {"positions = X": "positions = slots.where(slots < end, torch.tensor(-1))"},
)
notes(
    rolling_cache,
    {
        "An empty slot holds no key: its position must be -1.": {
            "positions.clamp(min=-1)": "positions.clamp(min=0)"
        },
        "These are slot numbers: give the position of the key in each slot.": {
            "positions = X": "positions = slots"
        },
        "The slots are off by one: position 0 belongs in slot 0.": {_SLOTS: "(kept + 1) % window"},
        "You wrote nothing to a full cache: overwrite the oldest key with the new one.": {
            _KEPT: "torch.arange(length, max(length, min(end, window)))"
        },
        "The positions are one too large: the first key is at position 0.": {
            "positions.clamp(min=-1)": "positions.clamp(min=-1) + 1"
        },
        "These are the positions before the new keys were written.": {
            "positions = X": "positions = length - 1 - (length - 1 - slots) % window"
        },
        "The positions start at 0 in each call: the first new key is at position length.": {
            "positions = X": "positions = new_len - 1 - (new_len - 1 - slots) % window"
        },
    },
)


@question(measures="counting the pairs of a mask, a slot, and the reach of two layers")
def sliding_window_on_paper() -> list[int]:
    """the number of allowed pairs of five words in a window of three, the position in slot 1 of a
    rolling cache of three slots after five words, and the number of words that can reach the last
    output of two layers
    """
    mask = window_mask(5, 5, 3)
    new = torch.zeros(1, 1, 5, 1)
    positions = rolling_cache(torch.zeros(1, 1, 3, 1), new, 0)[1]
    reach = (mask.long() @ mask.long())[-1] > 0
    return [int(mask.sum()), int(positions[1]), int(reach.sum())]


notes(
    sliding_window_on_paper,
    {
        "Only the first number is wrong: the first two words see fewer than three keys, because "
        "too few words come before them.": [15, 4, 5],
        "Only the second number is wrong: position 4 has overwritten position 1.": [12, 1, 5],
        "Only the third number is wrong: in the second layer, the last word sees words that have "
        "seen earlier ones.": [12, 4, 3],
        "Only the third number is wrong: both windows contain the middle word, so count it once.":
        [12, 4, 6],
    },
)  # fmt: skip
