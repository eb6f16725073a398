"""Lesson 19: mistakes in counting, changing, unpacking and analysing a model from a file."""

import torch
from torch import Tensor

from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    inherit,
    misconception,
    question,
    task,
)
from twelve_lab.exercises.numbers import seeded, twelve_heads
from twelve_lab.exercises.rotary_positions import MISLAID_ROWS

_SIZES = example.SIZES
_HEADS, _D_K = 2 * _SIZES.num_heads, _SIZES.d_k


@question(
    decimals=0,
    measures="the parts of a model, and how often each occurs",
    worked="49152 * 576 + 30 * (2 * 576 * (576 + 192) + 3 * 576 * 1536 + 2 * 576) + 576",
)
def parameters(
    *,
    layers: int = 30,
    kv_heads: int = 3,
    square: int = 2,
    matrices: int = 3,
    norms: int = 2,
    last_norms: int = 1,
    biases: int = 0,
    tables: int = 1,
) -> int:
    """the parameters of a model: 30 layers of width 576, 9 heads of 64 on 3 kv heads, SwiGLU of
    1,536, RMSNorm, 49,152 words, one table, no biases
    """
    # w_q and w_o are square, w_k and w_v are not.
    attention = square * 576 * 9 * 64 + 2 * 576 * kv_heads * 64
    feed_forward = matrices * 576 * 1536
    layer = attention + feed_forward + norms * 576 + biases
    return tables * 49152 * 576 + layers * layer + last_norms * 576


misconception(
    parameters,
    "You counted a second table for the scores: they use the table of the words.",
    tables=2,
)
misconception(
    parameters,
    "You counted nine heads of keys and values: w_k and w_v have three.",
    kv_heads=9,
)
misconception(
    parameters,
    "You counted one head of keys and values: w_k and w_v have three.",
    kv_heads=1,
)
misconception(
    parameters,
    "You counted two matrices in the feed-forward network: SwiGLU has gate, up and down.",
    matrices=2,
)
misconception(
    parameters,
    "The matrix w_o is missing: it maps the heads back to the stream in each layer.",
    square=1,
)
misconception(
    parameters,
    "All norms are missing: there are 61, each with one weight for every feature.",
    norms=0,
    last_norms=0,
)
misconception(
    parameters,
    "You counted one norm for each layer: there is one before the attention and one before the "
    "feed-forward network.",
    norms=1,
)
misconception(parameters, "The last norm is missing: it comes after all layers.", last_norms=0)
misconception(
    parameters,
    "You counted a bias in the norms: RMSNorm has only a weight.",
    norms=4,
    last_norms=2,
)
misconception(
    parameters,
    "You counted biases of the matrices: here they have none.",
    biases=576 + 2 * 192 + 576 + 2 * 1536 + 576,
)
misconception(parameters, "This is one layer and the table: there are 30 layers.", layers=1)
misconception(parameters, "These are the layers and the last norm: count the table too.", tables=0)


def _remove_cases() -> Cases:
    draw = seeded()
    return {
        "two heads": (twelve_heads(2).w_o, 1, 2),
        "head 0 of a square": (draw(6, 6), 0, 3),
        "all sizes differ": (draw(_SIZES.d_model, _HEADS * _D_K), 4, _HEADS),
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


misconception(
    remove_head,
    "You zeroed rows: a row computes one feature of the stream from all heads, while a column "
    "reads one feature of one head.",
    line=("removed[:, head", "removed[head"),
)
misconception(
    remove_head,
    "You split the rows into heads: w_o is stored as (d_model, head*d_k), so split its columns.",
    line=("size(1) // num_heads\n    removed = weight.clone()\n    removed[:, head",
          "size(0) // num_heads\n    removed = weight.clone()\n    removed[head"),
)  # fmt: skip
misconception(
    remove_head,
    "You used d_model // num_heads as the head size: here it differs, so divide the number of "
    "columns.",
    line=("size(1)", "size(0)"),
)
again(
    remove_head,
    "split-interleaved",
    line=("head * d_k : (head + 1) * d_k", "head::num_heads"),
)
misconception(
    remove_head,
    "You kept this head and removed all others: remove only this head.",
    by=lambda weight, head, num_heads: weight - remove_head(weight, head, num_heads),
)
misconception(
    remove_head,
    "You counted heads from 1: the first is head 0.",
    line=("head * d_k : (head + 1) * d_k", "(head - 1) * d_k : head * d_k"),
)
misconception(
    remove_head,
    "You zeroed one column: a head has d_k columns.",
    line=("head * d_k : (head + 1) * d_k", "head"),
)
misconception(
    remove_head,
    "You zeroed all columns up to this head: zero only its own.",
    line=("head * d_k : (head + 1)", ": (head + 1)"),
)
misconception(
    remove_head,
    "You removed the columns: keep them as zeros, so that the other heads stay at their positions.",
    by=lambda weight, head, num_heads: torch.cat(
        [one for at, one in enumerate(weight.chunk(num_heads, dim=1)) if at != head], dim=1
    ),
)
misconception(
    remove_head,
    "You returned the weight unchanged: zero the columns of this head.",
    line=("removed[:, head * d_k : (head + 1) * d_k] = 0", "pass"),
)


def _neighbours_cases() -> Cases:
    draw = seeded()
    return {
        "one head": (draw(6, 3), 6),
        "two heads": (draw(16, 5), 8),
        "all sizes differ": (draw(_HEADS * _D_K, _SIZES.d_model), _D_K),
    }


@task(
    _neighbours_cases,
    by_gradient=None,
    measures="the order of the rows in another file format, head by head",
)
def neighbours(weight: Tensor, d_k: int) -> Tensor:
    """weight (head*d_k, d_model), d_k -> (head*d_k, d_model)"""
    halves = weight.unflatten(0, (-1, 2, d_k // 2))
    return halves.transpose(1, 2).flatten(0, 2)


inherit(
    neighbours,
    lambda wrong: lambda weight, d_k: wrong(weight, len(weight) // d_k),
    *MISLAID_ROWS,
)
misconception(
    neighbours,
    "You reordered the columns: these are features of the stream, so reorder the rows.",
    by=lambda weight, d_k: neighbours(weight.T, d_k).T,
)
misconception(
    neighbours,
    "You used d_k as the number of heads: it is the head size, and there are len(weight) // d_k "
    "heads.",
    line=("(-1, 2, d_k // 2)", "(d_k, 2, -1)"),
)


def _block_cases() -> Cases:
    # A seeded generator of torch draws the same numbers on every machine.
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


misconception(
    dequantize,
    "Your numbers run from 0 to 15: subtract 8, so that they run from -8 to 7.",
    line=(" - 8", ""),
)
misconception(
    dequantize,
    "You subtracted 8 from bytes, which are unsigned, so that 3 - 8 is 251: convert them to a "
    "signed type first.",
    line=("dim=1).to(scales.dtype) - 8", "dim=1) - 8"),
)
misconception(
    dequantize,
    "You interleaved the two numbers of each byte: the low ones are numbers 0 to 15, the high "
    "ones 16 to 31.",
    line=("torch.cat([low, high], dim=1)", "torch.stack([low, high], dim=-1).flatten(1)"),
)
misconception(
    dequantize,
    "You interleaved the two numbers of each byte, the high one first: all low ones come first, "
    "then all high ones.",
    line=("torch.cat([low, high], dim=1)", "torch.stack([high, low], dim=-1).flatten(1)"),
)
misconception(
    dequantize,
    "Your high numbers come first: the low ones are numbers 0 to 15.",
    line=("[low, high]", "[high, low]"),
)
misconception(
    dequantize,
    "You read 8 to 15 as signed numbers, -8 to -1: read 0 to 15 and subtract 8 from each.",
    line=("dim=1).to(scales.dtype) - 8", "dim=1).to(scales.dtype)\n"
          "    numbers = numbers - 16 * (numbers > 7)"),
)  # fmt: skip
misconception(
    dequantize,
    "Your high numbers are 16 times too large: shift them right by 4 bits, or divide by 16.",
    line=("packed >> 4", "packed & 240"),
)
misconception(
    dequantize,
    "Your low numbers still contain the high ones: keep only the lower 4 bits, the remainder of a "
    "division by 16.",
    line=("packed & 15", "packed"),
)
misconception(
    dequantize,
    "You multiplied each column by a scale: each block is a row and has one scale.",
    line=("scales.unsqueeze(1)", "scales"),
)
misconception(
    dequantize,
    "You subtracted 8 after scaling: subtract it from the whole numbers before.",
    by=lambda scales, packed: dequantize(scales, packed) + 8 * scales.unsqueeze(1) - 8,
)
misconception(
    dequantize,
    "Your numbers are not scaled: multiply each by the scale of its block.",
    by=lambda scales, packed: dequantize(torch.ones_like(scales), packed),
)


def _logit_cases() -> Cases:
    draw = seeded()
    wide = _SIZES.d_model
    return {
        "three parts": (draw(3, 4), draw(4), draw(4), 1e-5),
        "small numbers": (draw(4, 3) / 300, draw(3), draw(3), 1e-5),
        "another eps": (draw(2, 5), draw(5), draw(5), 0.5),
        "all sizes differ": (draw(7, wide), draw(wide), draw(wide), 1e-6),
    }


@task(_logit_cases, measures="that a norm divides all summands by one number")
def logit_parts(parts: Tensor, weight: Tensor, row: Tensor, eps: float) -> Tensor:
    """parts (part, d_model), weight (d_model), row (d_model), eps -> (part)"""
    stream = parts.sum(0)
    root_mean_square = (stream.square().mean() + eps).sqrt()
    return parts / root_mean_square * weight @ row


misconception(
    logit_parts,
    "You normalised each part separately, so that they do not add up to the logit: divide all "
    "parts by the root mean square of their sum.",
    line=("(stream.square().mean() + eps)", "(parts.square().mean(-1, keepdim=True) + eps)"),
)
misconception(
    logit_parts,
    "You took the mean of the squares over all parts: take it over their sum.",
    line=("stream.square()", "parts.square()"),
)
misconception(
    logit_parts,
    "You did not divide: divide by the root mean square of the sum.",
    line=(" / root_mean_square", ""),
)
misconception(
    logit_parts,
    "The weight of the norm is missing: multiply by it after the division.",
    line=(" * weight", ""),
)
misconception(
    logit_parts,
    "You multiplied by 1 + weight: multiply by the weight itself.",
    line=("* weight", "* (1 + weight)"),
)
misconception(
    logit_parts,
    "You subtracted the mean, as LayerNorm does: RMSNorm only divides.",
    by=lambda parts, *rest: logit_parts(parts - parts.mean(-1, keepdim=True), *rest),
)
misconception(
    logit_parts,
    "You took the root of the sum of squares: take the root of their mean.",
    line=(".mean()", ".sum()"),
)
misconception(
    logit_parts,
    "You divided by the mean square: take its square root first.",
    line=(".sqrt()", ""),
)
again(
    logit_parts,
    "rms-eps-outside",
    line=("(stream.square().mean() + eps).sqrt()", "stream.square().mean().sqrt() + eps"),
)
misconception(logit_parts, "Your eps is missing: add it under the root.", line=(" + eps", ""))
misconception(
    logit_parts,
    "Your eps is always 1e-5: use the eps that is passed.",
    line=("+ eps", "+ 1e-5"),
)


@misconception(logit_parts)
def logits_so_far(parts: Tensor, weight: Tensor, row: Tensor, eps: float) -> Tensor:
    """You returned the logit of the sum up to each part: return the contribution of each part,
    divided by the root mean square of the whole sum.
    """
    stream = parts.cumsum(0)
    root_mean_square = (stream.square().mean(-1, keepdim=True) + eps).sqrt()
    return stream / root_mean_square * weight @ row


misconception(
    logit_parts,
    "You returned cumulative sums: return the contribution of each part.",
    by=lambda *given: logit_parts(*given).cumsum(0),
)
misconception(
    logit_parts,
    "You returned shares that sum to 1: the contributions must sum to the logit.",
    by=lambda *given: logit_parts(*given) / logit_parts(*given).sum(),
)


@misconception(logit_parts)
def lost_without_it(parts: Tensor, weight: Tensor, row: Tensor, eps: float) -> Tensor:
    """You returned the loss of the logit without each part, with another root: divide each part by
    the root of the whole sum.
    """
    stream = parts.sum(0)
    without = stream - parts
    root_mean_square = (without.square().mean(-1, keepdim=True) + eps).sqrt()
    return logit_parts(parts, weight, row, eps).sum() - without / root_mean_square * weight @ row
