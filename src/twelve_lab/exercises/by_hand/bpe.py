"""By hand: byte-pair encoding, trained and applied on lists of ids."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task

# "aaabdaaabac", with a = 0, b = 1, c = 2 and d = 3.
_TEXT = [0, 0, 0, 1, 3, 0, 0, 0, 1, 0, 2]
_LETTERS = 4


def _draw(count: int, below: int) -> list[int]:
    generator = torch.Generator("cpu").manual_seed(12)
    return torch.randint(below, (count,), generator=generator, device="cpu").tolist()


def _run_bpe(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    result = answer(*given)
    if result is None or result is ...:
        return result
    ids, last = given[0], given[-1]
    # Pad with -1, so answers of any length can be compared.
    if isinstance(last, int) and isinstance(given[1], int):
        rows = [list(pair) for pair in result]
        return torch.tensor(rows + [[-1, -1]] * (last - len(rows)), dtype=torch.int64)
    return torch.tensor([*result] + [-1] * (len(ids) - len(result)), dtype=torch.int64)


def _merge_cases() -> Cases:
    return {
        "on paper": ([*_TEXT], (0, 0), 4),
        "no such pair": ([2, 1, 0, 1], (1, 2), 9),
        "four in a row": ([1, 1, 1, 1, 0, 1, 1, 1], (1, 1), 2),
        "all counts differ": (_draw(17, 3), (2, 0), 6),
    }


@task(_merge_cases, run=_run_bpe, measures="merging from left to right without overlap")
def merge_pair(ids: list[int], pair: tuple[int, int], new_id: int) -> list[int]:
    """ids as a list, pair, new_id -> the list in which new_id replaces the pair"""
    merged = []
    i = 0
    while i < len(ids):
        found = tuple(ids[i : i + 2]) == pair
        merged.append(new_id if found else ids[i])
        i += 2 if found else 1
    return merged


mistake(
    merge_pair,
    "bpe-overlap",
    "You replaced overlapping pairs: after replacing a pair, continue after its second id.",
    {"2 if found else 1": "1"},
)
again(
    merge_pair,
    "bpe-overlap",
    {"2 if found else 1": "1 + (found and tuple(ids[i + 1 : i + 3]) != pair)"},
)


def _from_the_right(ids, pair, new_id):
    back = merge_pair(ids[::-1], pair[::-1], new_id)
    return back[::-1]


notes(
    merge_pair,
    {
        "Only the first pair is replaced: replace every pair.": {
            "tuple(ids[i : i + 2]) == pair": "tuple(ids[i : i + 2]) == pair and new_id not in "
            "merged"
        },
        "You also replaced the reversed pair: the order of the two ids matters.": {
            "tuple(ids[i : i + 2]) == pair": "sorted(ids[i : i + 2]) == sorted(pair)"
        },
        "The last id is lost unless it belongs to a pair: keep it.": {
            "i < len(ids)": "i < len(ids) - 1"
        },
        "You merged from right to left: begin at the left, so that the first two of three equal "
        "ids become one.": _from_the_right,
    },
)


# The pairs in merge order: each pair uses only older ids.
_MERGES = [(0, 0), (0, 1), (4, 5)]

# A text and merges for which the common wrong orders give different ids.
_LATER = [(1, 2), (2, 2), (2, 3), (2, 4), (6, 1), (0, 3), (2, 1)]
_DIGITS = "2101221222000020011201010102210202220220201012221201200201111212002021"


def _encode_cases() -> Cases:
    return {
        "on paper": ([0, 1, 0, 0, 0, 1, 2], [*_MERGES], _LETTERS),
        "a rank against the order of the text": ([0, 1, 2, 0, 1, 2], [(1, 2), (0, 1), (0, 3)], 3),
        "a longer token of a later rank": ([0, 1, 2, 3], [(0, 1), (1, 2), (0, 5)], 4),
        "nothing to merge": ([3, 2, 1], [*_MERGES], _LETTERS),
        "all counts differ": ([*map(int, _DIGITS)], [*_LATER], 3),
    }


@task(_encode_cases, run=_run_bpe, measures="the order of merges when a text is encoded")
def bpe_encode(ids: list[int], merges: list[tuple[int, int]], vocab_size: int) -> list[int]:
    """ids as a list, merges as a list of pairs, vocab_size -> the encoded list"""
    for rank, pair in enumerate(merges):
        ids = merge_pair(ids, pair, vocab_size + rank)
    return ids


@solved(bpe_encode)
def _encode_by_rank(ids, merges, vocab_size):
    for rank, (first, second) in enumerate(merges):
        merged = []
        for each in ids:
            if merged and merged[-1] == first and each == second:
                merged[-1] = vocab_size + rank
            else:
                merged.append(each)
        ids = merged
    return ids


@mistake(bpe_encode, "bpe-leftmost-first")
def _leftmost_first(ids, merges, vocab_size):
    """You merged the leftmost known pair first: merge the pair of the lowest rank first, wherever
    it is.
    """
    ids, i = [*ids], 0
    while i < len(ids) - 1:
        if (pair := tuple(ids[i : i + 2])) in merges:
            ids[i : i + 2] = [vocab_size + merges.index(pair)]
            i = 0
        else:
            i += 1
    return ids


@mistake(bpe_encode, "bpe-longest-match")
def _longest_match(ids, merges, vocab_size):
    """You took the longest known token at each position, as WordPiece does: BPE repeats the merges
    of training, in their order.
    """
    spelled = {each: [each] for each in range(vocab_size)}
    for rank, (first, second) in enumerate(merges):
        spelled[vocab_size + rank] = spelled[first] + spelled[second]
    encoded, i = [], 0
    while i < len(ids):
        fitting = [t for t, letters in spelled.items() if ids[i : i + len(letters)] == letters]
        encoded.append(max(fitting, key=lambda token: len(spelled[token])))
        i += len(spelled[encoded[-1]])
    return encoded


mistake(
    bpe_encode,
    "bpe-ranks-reversed",
    "You began with the newest merge: begin with rank 0, because newer pairs contain the ids of "
    "older merges.",
    {"enumerate(merges)": "reversed([*enumerate(merges)])"},
)


def _one_pass(ids, merges, vocab_size):
    encoded, i = [], 0
    while i < len(ids):
        known = (pair := tuple(ids[i : i + 2])) in merges
        encoded.append(vocab_size + merges.index(pair) if known else ids[i])
        i += 2 if known else 1
    return encoded


def _newest_first(ids, merges, vocab_size):
    while known := [pair for pair in reversed(merges) if pair in pairwise(ids)]:
        ids = merge_pair(ids, known[0], vocab_size + merges.index(known[0]))
    return ids


again(bpe_encode, "bpe-ranks-reversed", by=_newest_first)
notes(
    bpe_encode,
    {
        "One pass over the text is not enough: a new id can be part of the next pair.": _one_pass,
        "The new ids are one too large: the pair of rank 0 should become vocab_size.": {
            "vocab_size + rank": "vocab_size + rank + 1"
        },
        "The new ids are the ranks: add vocab_size.": {"vocab_size + rank": "rank"},
        "All pairs become the same id: add the rank to vocab_size.": {
            "vocab_size + rank": "vocab_size"
        },
    },
)


def _train_cases() -> Cases:
    return {
        "on paper": ([*_TEXT], _LETTERS, 3),
        "equal counts": ([1, 0, 2, 1], 3, 2),
        "a text that becomes one id": ([1, 0, 1], 2, 5),
        "all counts differ": (_draw(40, 5), 5, 6),
    }


@task(_train_cases, run=_run_bpe, measures="counting again after each merge, and a rule for ties")
def bpe_train(ids: list[int], vocab_size: int, num_merges: int) -> list[tuple[int, int]]:
    """ids as a list, vocab_size, num_merges -> a list of at most num_merges pairs"""
    merges = []
    while len(merges) < num_merges and len(ids) > 1:
        counts = Counter(pairwise(ids))
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        ids = merge_pair(ids, best, vocab_size + len(merges))
        merges.append(best)
    return merges


@solved(bpe_train)
def _most_frequent_pairs(ids, vocab_size, num_merges):
    merges = []
    while len(merges) < num_merges and len(ids) > 1:
        counts = Counter(pairwise(ids))
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merged = []
        for each in ids:
            if merged and (merged[-1], each) == best:
                merged[-1] = vocab_size + len(merges)
            else:
                merged.append(each)
        ids = merged
        merges.append(best)
    return merges


mistake(
    bpe_train,
    "bpe-counted-once",
    "You counted only the pairs of the first text: count again after each merge, because new ids "
    "form new pairs.",
    by=lambda ids, vocab_size, num_merges: sorted(
        (counts := Counter(pairwise(ids))), key=lambda pair: (-counts[pair], pair)
    )[:num_merges],
)
mistake(
    bpe_train,
    "bpe-tie-by-text",
    "When pairs are equally frequent, you took the one that comes first in the text: take the "
    "smaller pair, so that the result does not depend on the order of counting.",
    {"min(counts, key=X)": "max(counts, key=counts.get)"},
)
mistake(
    bpe_train,
    "bpe-tie-larger",
    "When pairs are equally frequent, you took the larger one: take the smaller pair.",
    {"min(counts, key=X)": "max(counts, key=lambda pair: (counts[pair], pair))"},
)


def _stops_at_one(ids, vocab_size, num_merges):
    merges = []
    while len(merges) < num_merges and len(ids) > 1:
        counts = Counter(pairwise(ids))
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] == 1:
            break
        ids = merge_pair(ids, best, vocab_size + len(merges))
        merges.append(best)
    return merges


notes(
    bpe_train,
    {
        "You stopped when no pair was repeated: training should continue until one id is "
        "left.": _stops_at_one,
        "You merged the rarest pair: merge the most frequent one.": {
            "-counts[pair]": "counts[pair]"
        },
        "Your new ids repeat old ids, so both are counted as the same id: start new ids at "
        "vocab_size.": {"vocab_size + len(merges)": "len(merges)"},
        "Every merge gets the same new id: give each merge its own id.": {
            "vocab_size + len(merges)": "vocab_size"
        },
    },
)


@question(measures="counting pairs that overlap, and merging without overlap")
def bpe_on_paper() -> list[float]:
    """how often the pair a a is counted in the text, the ids that are left after the first merge,
    and after three merges
    """
    ids, lengths = _TEXT, []
    for rank, pair in enumerate(bpe_train(_TEXT, _LETTERS, 3)):
        ids = merge_pair(ids, pair, _LETTERS + rank)
        lengths.append(len(ids))
    return [Counter(pairwise(_TEXT))[0, 0], lengths[0], lengths[2]]


notes(
    bpe_on_paper,
    {
        "Three letters a in a row contain the pair a a twice: count overlapping pairs.": [
            2, 9, 5,
        ],
        "Overlapping pairs are all counted, but only one of them can be merged: a a a becomes "
        "one new id and one a.": [4, 7, 5],
    },
)  # fmt: skip
