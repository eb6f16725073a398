"""Lesson 19: mistakes in counting, converting, unpacking and analysing a pretrained model."""

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, notes, question, solved, task
from twelve_lab.exercises.numbers import SIZES, seeded, twelve_heads
from twelve_lab.exercises.rotary_positions import rows_for_neighbours

_HEADS = 6


@question(
    decimals=0,
    measures="the parts of a model, and how often each occurs",
    worked="49152 * 576 + 30 * (2 * 576 * (576 + 192) + 3 * 576 * 1536 + 2 * 576) + 576",
)
def parameters() -> int:
    """the parameters of a model: 30 layers of width 576, 9 heads of 64 on 3 kv heads, SwiGLU of
    1,536, RMSNorm, 49,152 words, one table, no biases
    """
    # w_q and w_o are square, w_k and w_v are not.
    attention = 2 * 576 * 576 + 2 * 576 * 192
    feed_forward = 3 * 576 * 1536
    layer = attention + feed_forward + 2 * 576
    return 49152 * 576 + 30 * layer + 576


notes(
    parameters,
    {
        "You counted a second table for the logits: they use the embedding table.": {
            "49152 * 576": "2 * 49152 * 576"
        },
        "You counted nine heads of keys and values: w_k and w_v have three.": {
            "2 * 576 * 192": "2 * 576 * 576"
        },
        "You counted two matrices in the feed-forward network: SwiGLU has gate, up and down.": {
            "3 * 576 * 1536": "2 * 576 * 1536"
        },
        "The matrix w_o is missing: it maps the heads back to the stream in each layer.": {
            "2 * 576 * 576": "576 * 576"
        },
        "All norms are missing: there are 61, each with one weight for every feature.": {
            "X + 2 * 576": "X",
            "X + 576": "X",
        },
        "You counted one norm for each layer: there is one before the attention and one before the "
        "feed-forward network.": {"X + 2 * 576": "X + 576"},
        "The last norm is missing: it comes after all layers.": {"X + 576": "X"},
        "You counted a bias in the norms: RMSNorm has only a weight.": {
            "X + 2 * 576": "X + 4 * 576",
            "X + 576": "X + 2 * 576",
        },
    },
)


def _remove_cases() -> Cases:
    draw = seeded()
    return {
        "two heads": (twelve_heads(2).w_o, 1, 2),
        "head 0 of a square": (draw(6, 6), 0, 3),
        "all sizes differ": (draw(SIZES.d_model, _HEADS * SIZES.d_k), 4, _HEADS),
    }


@task(
    _remove_cases,
    by_gradient=None,
    measures="which columns of the output matrix belong to a head",
)
def remove_head(weight: Tensor, head: int, num_heads: int) -> Tensor:
    """weight of w_o (d_model, head*d_k), head, num_heads -> (d_model, head*d_k)"""
    d_k = weight.size(1) // num_heads
    removed = weight.clone()
    removed[:, head * d_k : (head + 1) * d_k] = 0
    return removed


_COLUMNS = "removed[:, head * d_k : (head + 1) * d_k]"
again(remove_head, "split-interleaved", {_COLUMNS: "removed[:, head::num_heads]"})
notes(
    remove_head,
    {
        "You zeroed rows: a row computes one feature of the stream from all heads, while a column "
        "reads one feature of one head.": {_COLUMNS: _COLUMNS.replace(":, ", "")},
        "You split the rows into heads: w_o is stored as (d_model, head*d_k), so split its "
        "columns.": {_COLUMNS: _COLUMNS.replace(":, ", ""), "weight.size(1)": "weight.size(0)"},
        "You used d_model // num_heads as the head size: here it differs, so divide the number of "
        "columns.": {"weight.size(1)": "weight.size(0)"},
        "You counted heads from 1: the first is head 0.": {
            _COLUMNS: "removed[:, (head - 1) * d_k : head * d_k]"
        },
        "You zeroed one column: a head has d_k columns.": {_COLUMNS: "removed[:, head]"},
        "You kept this head and removed all others: remove only this head.": {
            "return removed": "return weight - removed"
        },
        "You removed the columns: keep them as zeros, so that the other heads stay at their "
        "positions.": {
            "return removed": "return torch.cat([removed[:, : head * d_k], "
            "removed[:, (head + 1) * d_k :]], dim=1)"
        },
    },
)


def _neighbours_cases() -> Cases:
    draw = seeded()
    return {
        "one head": (draw(6, 3), 6),
        "two heads": (draw(16, 5), 8),
        "all sizes differ": (draw(_HEADS * SIZES.d_k, SIZES.d_model), SIZES.d_k),
    }


@task(
    _neighbours_cases,
    by_gradient=None,
    measures="the order of the rows in another file format, head by head",
)
def neighbours(weight: Tensor, d_k: int) -> Tensor:
    """weight (head*d_k, d_model), d_k -> (head*d_k, d_model)"""
    return rows_for_neighbours(weight, len(weight) // d_k)


@solved(neighbours)
def _rows_by_width(weight: Tensor, d_k: int) -> Tensor:
    halves = weight.unflatten(0, (-1, 2, d_k // 2))
    return halves.transpose(1, 2).flatten(0, 2)


notes(
    neighbours,
    {
        "You used d_k as the number of heads: it is the head size, and there are len(weight) // "
        "d_k heads.": {"len(weight) // d_k": "d_k"},
    },
)


def _block_cases() -> Cases:
    # A seeded torch generator draws the same numbers on every machine.
    generator = torch.Generator("cpu").manual_seed(12)

    def blocks(number: int) -> tuple[Tensor, Tensor]:
        packed = torch.randint(256, (number, 16), generator=generator, device="cpu")
        return seeded()(number), packed.to(torch.uint8)

    up = torch.arange(16)
    return {
        "0 to 15 and back": (torch.ones(1), (up + 16 * (15 - up)).to(torch.uint8)[None]),
        "three blocks": blocks(3),
        "as many blocks as numbers": blocks(32),
    }


@task(
    _block_cases,
    by_gradient=None,
    measures="two numbers in a byte, their positions and their scale",
)
def dequantize(scales: Tensor, packed: Tensor) -> Tensor:
    """scales (block), packed (block, 16), of bytes -> (block, number), 32 in each"""
    low, high = packed & 15, packed >> 4
    numbers = torch.cat([low, high], dim=1).to(scales.dtype) - 8
    return numbers * scales.unsqueeze(1)


_BOTH = "torch.cat([low, high], dim=1)"
notes(
    dequantize,
    {
        "You subtracted 8 from bytes, which are unsigned, so 3 - 8 is 251: convert them to a "
        "signed type first.": {"X.to(scales.dtype)": "X"},
        "You interleaved the two numbers of each byte: the low ones are numbers 0 to 15, the high "
        "ones 16 to 31.": {_BOTH: "torch.stack([low, high], dim=-1).flatten(1)"},
        "You interleaved the two numbers of each byte, the high one first: all low ones come "
        "first, then all high ones.": {_BOTH: "torch.stack([high, low], dim=-1).flatten(1)"},
        "You read 8 to 15 as signed numbers, -8 to -1: read 0 to 15 and subtract 8 from each.": {
            "X - 8": "(X + 8) % 16 - 8"
        },
        "Your high numbers are 16 times too large: shift them right by 4 bits, or divide by 16.": {
            "packed >> 4": "packed & 240"
        },
        "You subtracted 8 after scaling: subtract it from the integers, before scaling.": {
            "X - 8": "X",
            "numbers * SCALES": "numbers * SCALES - 8",
        },
    },
)


def _logit_cases() -> Cases:
    draw, wide = seeded(), SIZES.d_model
    return {
        "three parts": (draw(3, 4), draw(4), draw(4), 1e-5),
        "small numbers": (draw(4, 3) / 300, draw(3), draw(3), 1e-5),
        "another eps": (draw(2, 5), draw(5), draw(5), 0.5),
        "all sizes differ": (draw(7, wide), draw(wide), draw(wide), 1e-6),
    }


# The analysis does not train the model, so Python numbers are accepted.
@task(_logit_cases, by_gradient=None, measures="that a norm divides all summands by one number")
def logit_parts(parts: Tensor, weight: Tensor, row: Tensor, eps: float) -> Tensor:
    """parts (part, d_model), weight (d_model), row (d_model), eps -> (part)"""
    stream = parts.sum(0)
    root_mean_square = (stream.square().mean() + eps).sqrt()
    return parts / root_mean_square * weight @ row


again(logit_parts, "rms-eps-outside", {"(X + eps).sqrt()": "X.sqrt() + eps"})
_LOGITS, _MEAN = "parts / root_mean_square * weight @ row", "stream.square().mean()"
notes(
    logit_parts,
    {
        "You normalised each part separately, so they do not add up to the logit: divide all "
        "parts by the root mean square of their sum.": {
            _MEAN: "parts.square().mean(-1, keepdim=True)"
        },
        "You subtracted the mean, as LayerNorm does: RMSNorm only divides.": {
            "stream = X": "parts = parts - parts.mean(-1, keepdim=True)\nstream = X"
        },
        "Your eps is always 1e-5: use the eps that is passed.": {"X + eps": "X + 1e-5"},
        "You returned the logit of the sum up to each part: return the contribution of each part, "
        "divided by the root mean square of the whole sum.": {
            "parts.sum(0)": "parts.cumsum(0)",
            _MEAN: "stream.square().mean(-1, keepdim=True)",
            _LOGITS: _LOGITS.replace("parts", "stream"),
        },
        "You returned the drop of the logit without each part, with another root: divide each "
        "part by the root of the whole sum.": {
            f"return {_LOGITS}": f"whole, stream = {_LOGITS}, stream - parts\n"
            "root = (stream.square().mean(-1, keepdim=True) + eps).sqrt()\n"
            "return whole.sum() - stream / root * weight @ row"
        },
    },
)
