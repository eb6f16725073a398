"""By hand: softmax and attention over blocks of keys, with a running maximum and a running sum."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.attention import attention_scores
from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.numbers import SIZES, seeded, twelve_heads

# 13 keys in blocks of 2: seven blocks, the last of which is shorter.
_KEYS, _BLOCK = 13, 2
# Exponentials of the scores on the page: three blocks of two.
_PAPER = [[[1.0, 2.0, 4.0, 2.0, 2.0, 8.0]]]


def _softmax_cases() -> Cases:
    draw = seeded()
    return {
        "three blocks": (torch.tensor(_PAPER, dtype=torch.float64).log(), 2),
        "one block": (draw(2, 3, 5), 5),
        "large scores": (1000 * draw(2, 3, 6), 2),
        "all sizes differ": (3 * draw(SIZES.batch, SIZES.tgt, _KEYS), _BLOCK),
    }


@task(
    _softmax_cases,
    forbidden=("softmax", "logsumexp", "logcumsumexp"),
    by_gradient=None,
    measures="rescaling the sum so far when a larger score arrives",
)
def softmax_in_blocks(scores: Tensor, block_len: int) -> tuple[Tensor, Tensor]:
    """scores (batch, query, key), block_len -> largest (batch, query, block), total (batch, query,
    block)
    """
    largest = torch.full_like(scores[..., 0], -math.inf)
    total = torch.zeros_like(largest)
    states = []
    for block in scores.split(block_len, dim=-1):
        new = torch.maximum(largest, block.amax(-1))
        powers = (block - new.unsqueeze(-1)).exp()
        total = total * (largest - new).exp() + powers.sum(-1)
        largest = new
        states.append((largest, total))
    maxima, totals = zip(*states, strict=True)
    return torch.stack(maxima, -1), torch.stack(totals, -1)


_KEPT = "(largest - new).exp()"
# The first block has nothing to rescale.
_UPSIDE_DOWN = "torch.where(largest.isinf(), 0.0, new - largest).exp()"
mistake(
    softmax_in_blocks,
    "block-sum-not-rescaled",
    "The old sum is still relative to the old maximum: when the maximum grows, multiply the old "
    "sum by e^(old - new) before you add the new block.",
    {f"total * {_KEPT}": "total"},
)
mistake(
    softmax_in_blocks,
    "block-rescaled-upside-down",
    "You multiplied the old sum by e^(new - old), which is at least 1: multiply by e^(old - new), "
    "which is at most 1.",
    {_KEPT: _UPSIDE_DOWN},
)
mistake(
    softmax_in_blocks,
    "block-maximum-forgotten",
    "Each block starts with its own maximum: take the larger of the maximum so far and the maximum "
    "of the block.",
    {"torch.maximum(largest, X)": "X"},
)
notes(
    softmax_in_blocks,
    {
        "Each sum covers only one block: add the rescaled sum of the earlier blocks.": {
            f"total * {_KEPT} + X": "X"
        },
        "You added e^s without subtracting the maximum, so large scores overflow.": {
            "powers = X": "powers = block.exp()",
            f"total * {_KEPT}": "total",
        },
        "The maximum and the sum start again in each block: carry both from block to block.": {
            "torch.maximum(largest, X)": "X",
            f"total * {_KEPT} + X": "X",
        },
        "You subtracted the old maximum from the new block: subtract the new maximum.": {
            "block - new.unsqueeze(-1)": "block - torch.where(largest.isinf(), new, "
            "largest).unsqueeze(-1)"
        },
        "You subtracted each block's own maximum: subtract the maximum so far, including the new "
        "block.": {"block - new.unsqueeze(-1)": "block - block.amax(-1, keepdim=True)"},
    },
)


def _attention_cases() -> Cases:
    draw, one = seeded(), twelve_heads(1)
    lead = (SIZES.batch,)
    large, offsets = draw(2, 6, 4), torch.tensor([0.0, 0, -1500, -1500, 1500, 1500])
    # The last two keys share the attention: if one key had weight 1, no key would have an effect.
    large[:, :, 0] = 2 * offsets
    ones = torch.ones(2, 3, 1, dtype=large.dtype)
    return {
        "our two sentences": (one.query[:, 0], one.key[:, 0], one.value[:, 0], 1),
        "one block": (draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 6), 5),
        "large scores": (torch.cat([ones, draw(2, 3, 3)], -1), large, draw(2, 6, 2), 2),
        "all sizes differ": (
            2 * draw(*lead, SIZES.tgt, SIZES.d_k),
            draw(*lead, _KEYS, SIZES.d_k),
            draw(*lead, _KEYS, SIZES.d_v),
            _BLOCK,
        ),
    }


@task(
    _attention_cases,
    forbidden=("softmax", "scaled_dot_product_attention", "logsumexp"),
    measures="rescaling the context so far, and dividing once at the end",
)
def attention_in_blocks(query: Tensor, key: Tensor, value: Tensor, block_len: int) -> Tensor:
    """query (batch, query, d_k), key (batch, key, d_k), value (batch, key, d_v), block_len ->
    (batch, query, d_v)
    """
    largest = torch.full_like(query[..., :1], -math.inf)
    total = torch.zeros_like(largest)
    context = 0.0
    blocks = key.split(block_len, dim=1), value.split(block_len, dim=1)
    for keys, values in zip(*blocks, strict=True):
        scores = attention_scores(query, keys)
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        kept, powers = (largest - new).exp(), (scores - new).exp()
        total = total * kept + powers.sum(-1, keepdim=True)
        context = context * kept + powers @ values
        largest = new
    return context / total


@solved(attention_in_blocks)
def _context_in_blocks(query, key, value, block_len):
    largest = torch.full_like(query[..., :1], -math.inf)
    total, context = torch.zeros_like(largest), 0.0
    blocks = key.split(block_len, dim=1), value.split(block_len, dim=1)
    for keys, values in zip(*blocks, strict=True):
        match = query @ keys.mT / math.sqrt(query.size(-1))
        new = torch.maximum(largest, match.amax(-1, keepdim=True))
        kept, powers = (largest - new).exp(), (match - new).exp()
        total = kept * total + powers.sum(-1, keepdim=True)
        context = kept * context + powers @ values
        largest = new
    return context / total


mistake(
    attention_in_blocks,
    "block-context-not-rescaled",
    "You rescaled the sum but not the context: both are relative to the old maximum, so multiply "
    "both by e^(old - new).",
    {"context * kept": "context"},
)
mistake(
    attention_in_blocks,
    "block-divided-early",
    "You divided each block by the sum so far, which is not yet complete: accumulate the context "
    "without dividing, and divide once after the last block.",
    {"powers @ values": "powers / total @ values", "context / total": "context"},
)
again(attention_in_blocks, "block-sum-not-rescaled", {"total * kept": "total"})
again(
    attention_in_blocks,
    "block-sum-not-rescaled",
    {"total * kept": "total", "context * kept": "context"},
)
again(
    attention_in_blocks,
    "block-rescaled-upside-down",
    {_KEPT: _UPSIDE_DOWN},
)
notes(
    attention_in_blocks,
    {
        "You applied a separate softmax to each block and added the results: the softmax sum must "
        "run over all blocks.": {
            "context * kept + powers @ values": "context + scores.softmax(-1) @ values",
            "context / total": "context",
        },
        "You averaged the softmax results of the blocks: weight each block by its share of the "
        "total sum.": {
            "context * kept + powers @ values": "context + scores.softmax(-1) @ values",
            "context / total": "context / len(blocks[0])",
        },
        "Only the last block contributes: add each block to the rescaled sum and context.": {
            "total * kept + X": "X",
            "context * kept + X": "X",
        },
        "You returned the context without dividing it by the sum.": {"context / total": "context"},
        "You never subtract a maximum, so the exponentials of large scores overflow.": {
            f"{_KEPT}, (scores - new).exp()": "1.0, scores.exp()"
        },
        "You divided the scores by the square root of d_v: divide by the square root of d_k.": {
            "scores = X": "scores = X * (query.size(-1) / value.size(-1)) ** 0.5"
        },
    },
)


@question(decimals=3, measures="the running sum of three blocks", worked="[1.5, 2.25, 2.375]")
def running_sum() -> list[float]:
    """the running sum after each of three blocks of two scores"""
    scores = torch.tensor(_PAPER).log()
    return softmax_in_blocks(scores, 2)[1].flatten().tolist()


notes(
    running_sum,
    {
        "You added e^s without subtracting the maximum: divide each exponential by the largest one "
        "so far.": [3, 9, 19],
        "You rescaled the sums by the largest of all scores: after block 1, only the scores of "
        "block 1 are known.":
        [0.375, 1.125, 2.375],
    },
)  # fmt: skip
