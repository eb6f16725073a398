"""Step 19: what a model from a file invites, counted, changed, unpacked and taken apart."""

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
    measures="what a model is made of, and how often each part stands there",
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
    "You counted a second table for the scores: they are made with the one of the words.",
    tables=2,
)
misconception(
    parameters,
    "You counted nine heads of keys and values: w_k and w_v have the rows of three.",
    kv_heads=9,
)
misconception(
    parameters,
    "You counted one head of keys and values: w_k and w_v have the rows of three.",
    kv_heads=1,
)
misconception(
    parameters,
    "You counted two matrices in the feed-forward network: SwiGLU has gate, up and down.",
    matrices=2,
)
misconception(
    parameters,
    "The matrix w_o is missing: what the heads found goes back through it, in each layer.",
    square=1,
)
misconception(
    parameters,
    "All norms are missing: each has a weight for every feature, and there are 61 of them.",
    norms=0,
    last_norms=0,
)
misconception(
    parameters,
    "You counted one norm a layer: attention has one in front of it, and so has the feed-forward "
    "network.",
    norms=1,
)
misconception(parameters, "The last norm is missing, behind all layers.", last_norms=0)
misconception(
    parameters,
    "Your norms have a bias: RMSNorm has a weight alone.",
    norms=4,
    last_norms=2,
)
misconception(
    parameters,
    "Your matrices have biases: here none has.",
    biases=576 + 2 * 192 + 576 + 2 * 1536 + 576,
)
misconception(parameters, "That is one layer and the table: there are 30 layers.", layers=1)
misconception(parameters, "Those are the layers and the last norm: the table counts too.", tables=0)


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
    measures="where a head stands in the matrix that leads back to the stream",
)
def remove_head(weight: Tensor, head: int, num_heads: int) -> Tensor:
    """weight of w_o (d_model, head*d_k), head, num_heads -> (d_model, head*d_k)"""
    d_k = weight.size(1) // num_heads
    removed = weight.clone()
    removed[:, head * d_k : (head + 1) * d_k] = 0
    return removed


misconception(
    remove_head,
    "You zeroed rows: a row makes one feature of the stream, out of all heads, and a column reads "
    "one feature of one head.",
    line=("removed[:, head", "removed[head"),
)
misconception(
    remove_head,
    "You cut the rows into heads: w_o stands as (d_model, head*d_k), so the heads share out its "
    "columns.",
    line=("size(1) // num_heads\n    removed = weight.clone()\n    removed[:, head",
          "size(0) // num_heads\n    removed = weight.clone()\n    removed[head"),
)  # fmt: skip
misconception(
    remove_head,
    "You took d_model // num_heads for the width of a head: here it is another, so divide the "
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
    "You kept this head and removed all others.",
    by=lambda weight, head, num_heads: weight - remove_head(weight, head, num_heads),
)
misconception(
    remove_head,
    "You counted heads from 1: the first is head 0.",
    line=("head * d_k : (head + 1) * d_k", "(head - 1) * d_k : head * d_k"),
)
misconception(
    remove_head,
    "You zeroed one column: a head has d_k of them.",
    line=("head * d_k : (head + 1) * d_k", "head"),
)
misconception(
    remove_head,
    "You zeroed all that comes before this head: its columns alone.",
    line=("head * d_k : (head + 1)", ": (head + 1)"),
)
misconception(
    remove_head,
    "You cut the columns out: their places stay, with zeros, for the other heads still come in "
    "by theirs.",
    by=lambda weight, head, num_heads: torch.cat(
        [one for at, one in enumerate(weight.chunk(num_heads, dim=1)) if at != head], dim=1
    ),
)
misconception(
    remove_head,
    "The weight is as it was: its columns of this head are to be zero.",
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
    measures="the order of the rows in a file of others, head by head",
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
    "You ordered the columns: these are features of the stream, and a head's own stand in the "
    "rows.",
    by=lambda weight, d_k: neighbours(weight.T, d_k).T,
)
misconception(
    neighbours,
    "You took d_k for the number of heads: it is the width of one, and there are len(weight) // "
    "d_k.",
    line=("(-1, 2, d_k // 2)", "(d_k, 2, -1)"),
)


def _block_cases() -> Cases:
    # What torch draws of a generator is the same on every machine.
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
    measures="two numbers in a byte, where they stand, and what they are times",
)
def dequantize(scales: Tensor, packed: Tensor) -> Tensor:
    """scales (block), packed (block, 16), of bytes -> (block, number), 32 in each"""
    low, high = packed & 15, packed >> 4
    numbers = torch.cat([low, high], dim=1).to(scales.dtype) - 8
    return numbers * scales.unsqueeze(1)


misconception(
    dequantize,
    "Your numbers run from 0 to 15: take 8 off, and they run from -8 to 7.",
    line=(" - 8", ""),
)
misconception(
    dequantize,
    "You took 8 off in bytes, which know no minus: 3 - 8 is 251 there, so make them numbers of "
    "another kind first.",
    line=("dim=1).to(scales.dtype) - 8", "dim=1) - 8"),
)
misconception(
    dequantize,
    "You put the two of a byte side by side: the low ones are numbers 0 to 15, the high ones 16 "
    "to 31.",
    line=("torch.cat([low, high], dim=1)", "torch.stack([low, high], dim=-1).flatten(1)"),
)
misconception(
    dequantize,
    "You put the two of a byte side by side, the high one first: all low ones come first, then "
    "all high ones.",
    line=("torch.cat([low, high], dim=1)", "torch.stack([high, low], dim=-1).flatten(1)"),
)
misconception(
    dequantize,
    "Your high ones come first: the low ones are numbers 0 to 15.",
    line=("[low, high]", "[high, low]"),
)
misconception(
    dequantize,
    "You read 8 to 15 as -8 to -1, with a sign: these count from 0, and 8 is taken off all.",
    line=("dim=1).to(scales.dtype) - 8", "dim=1).to(scales.dtype)\n"
          "    numbers = numbers - 16 * (numbers > 7)"),
)  # fmt: skip
misconception(
    dequantize,
    "Your high ones are sixteen times too large: shift them by four places, or divide by 16.",
    line=("packed >> 4", "packed & 240"),
)
misconception(
    dequantize,
    "Your low ones still hold the high ones: the lower four places alone are due, what remains "
    "of a division by 16.",
    line=("packed & 15", "packed"),
)
misconception(
    dequantize,
    "Your scales lie along the numbers: each block, a row, has one for all its numbers.",
    line=("scales.unsqueeze(1)", "scales"),
)
misconception(
    dequantize,
    "You took 8 off behind the scale: it is taken off the small whole numbers, before.",
    by=lambda scales, packed: dequantize(scales, packed) + 8 * scales.unsqueeze(1) - 8,
)
misconception(
    dequantize,
    "Your numbers are whole: each is to be multiplied by the scale of its block.",
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


@task(_logit_cases, measures="that one number divides all summands of a norm")
def logit_parts(parts: Tensor, weight: Tensor, row: Tensor, eps: float) -> Tensor:
    """parts (part, d_model), weight (d_model), row (d_model), eps -> (part)"""
    stream = parts.sum(0)
    root_mean_square = (stream.square().mean() + eps).sqrt()
    return parts / root_mean_square * weight @ row


misconception(
    logit_parts,
    "You normed each part by itself, and so they do not add up to the logit: the norm divides "
    "their sum, by one number for all.",
    line=("(stream.square().mean() + eps)", "(parts.square().mean(-1, keepdim=True) + eps)"),
)
misconception(
    logit_parts,
    "You took the mean of the squares over all parts: the norm sees their sum alone, and squares "
    "that.",
    line=("stream.square()", "parts.square()"),
)
misconception(
    logit_parts,
    "You did not divide: what the layers add is normed before it meets the row.",
    line=(" / root_mean_square", ""),
)
misconception(
    logit_parts,
    "The weight of the norm is missing: each feature is multiplied by it behind the division.",
    line=(" * weight", ""),
)
misconception(
    logit_parts,
    "You multiplied by 1 + weight: the weight is used as it is.",
    line=("* weight", "* (1 + weight)"),
)
misconception(
    logit_parts,
    "You took the mean off, as LayerNorm does: RMSNorm only divides.",
    by=lambda parts, *rest: logit_parts(parts - parts.mean(-1, keepdim=True), *rest),
)
misconception(
    logit_parts,
    "You took the root of the sum of the squares: of their mean is due.",
    line=(".mean()", ".sum()"),
)
misconception(
    logit_parts,
    "You divided by the mean square: take its root first.",
    line=(".sqrt()", ""),
)
again(
    logit_parts,
    "rms-eps-outside",
    line=("(stream.square().mean() + eps).sqrt()", "stream.square().mean().sqrt() + eps"),
)
misconception(logit_parts, "Your eps is missing: it stands under the root.", line=(" + eps", ""))
misconception(
    logit_parts,
    "Your eps is 1e-5 whatever is given: take the one that is handed over.",
    line=("+ eps", "+ 1e-5"),
)


@misconception(logit_parts)
def logits_so_far(parts: Tensor, weight: Tensor, row: Tensor, eps: float) -> Tensor:
    """You gave the logit after each part, of all so far: what each one adds by itself is due, and
    the norm divides by the root of the whole.
    """
    stream = parts.cumsum(0)
    root_mean_square = (stream.square().mean(-1, keepdim=True) + eps).sqrt()
    return stream / root_mean_square * weight @ row


misconception(
    logit_parts,
    "You added up from part to part: what each one adds by itself is due.",
    by=lambda *given: logit_parts(*given).cumsum(0),
)
misconception(
    logit_parts,
    "You gave shares of the logit, which sum to 1: they are to sum to the logit itself.",
    by=lambda *given: logit_parts(*given) / logit_parts(*given).sum(),
)


@misconception(logit_parts)
def lost_without_it(parts: Tensor, weight: Tensor, row: Tensor, eps: float) -> Tensor:
    """You gave what the logit loses without each part, under another root: the root of the whole
    stays, and divides each part alone.
    """
    stream = parts.sum(0)
    without = stream - parts
    root_mean_square = (without.square().mean(-1, keepdim=True) + eps).sqrt()
    return logit_parts(parts, weight, row, eps).sum() - without / root_mean_square * weight @ row
