"""Lesson 12: mistakes in putting the parts together."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.transformer import Transformer
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
from twelve_lab.exercises.numbers import seeded

_Mask = Tensor | None


def _transformer_cases() -> Cases:
    larger = example.distinct
    # Both vocabularies contain these ids, so that exchanging the sentences raises no error.
    short = (larger.tgt.clone() % 11, larger.tgt.roll(1, 0) % 11)
    return {
        "twelve numbers": (
            example.model(), example.src.clone(), example.tgt.clone(),
            example.src_mask.clone(), example.tgt_mask.clone(),
        ),
        "as many words on both sides": (larger.model(), *short, None, larger.tgt_mask.clone()),
        "all sizes differ": (
            larger.model(), larger.src.clone(), larger.tgt.clone(),
            larger.src_mask.clone(), larger.tgt_mask.clone(),
        ),
    }  # fmt: skip


@task(
    _transformer_cases,
    forbidden=("encode", "decode"),
    measures="wiring the parts: tables, masks, memory",
)
def transformer(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    """parts, a Transformer, src (batch, src), tgt (batch, tgt), src_mask, tgt_mask -> logits
    (batch, tgt, vocab)
    """
    memory = parts.encoder(parts.positional_encoding(parts.src_embedding(src)), src_mask=src_mask)
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    x = parts.decoder(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(x)


@solved(transformer)
def _from_ids_to_logits(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    seen = parts.positional_encoding(parts.src_embedding(src))
    for one in parts.encoder.layers:
        seen = one(seen, src_mask=src_mask)
    seen = parts.encoder.norm(seen)
    said = parts.positional_encoding(parts.tgt_embedding(tgt))
    for one in parts.decoder.layers:
        said = one(said, seen, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(parts.decoder.norm(said))


_READ = "parts.encoder(parts.positional_encoding(parts.src_embedding(src)), src_mask=src_mask)"

mistake(
    transformer,
    "encoder-skipped",
    "The decoder attends to the embedded source instead of the output of the encoder: run the "
    "encoder first.",
    line=(_READ, "parts.positional_encoding(parts.src_embedding(src))"),
)
sentences_swapped = mistake(
    transformer,
    "sentences-swapped",
    "The encoder got the target and the decoder the source: exchange them.",
    by=lambda parts, src, tgt, *masks: transformer(parts, tgt, src, *masks),
)
mistake(
    transformer,
    "embedding-shared",
    "You embedded the target with the table of the source: each language has its own table, so "
    "use tgt_embedding.",
    line=("parts.tgt_embedding(tgt)", "parts.src_embedding(tgt)"),
)


def _stacks(
    parts: Transformer,
    src: Tensor,
    tgt: Tensor,
    src_mask: _Mask,
    tgt_mask: _Mask,
    *,
    after_each: tuple[str, ...] = (),
    never: tuple[str, ...] = (),
) -> Tensor:
    """Run the layers one by one, with the last norm of a stack after each layer, or never."""

    def norm(name: str, x: Tensor, *, last: bool) -> Tensor:
        wanted = name not in never and last != (name in after_each)
        return getattr(parts, name).norm(x) if wanted else x

    memory = parts.positional_encoding(parts.src_embedding(src))
    for layer in parts.encoder.layers:
        memory = norm("encoder", layer(memory, src_mask=src_mask), last=False)
    memory = norm("encoder", memory, last=True)
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    for layer in parts.decoder.layers:
        x = layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
        x = norm("decoder", x, last=False)
    return parts.output_projection(norm("decoder", x, last=True))


again(
    transformer,
    "padding-mask-missing",
    by=lambda parts, src, tgt, _, tgt_mask: transformer(parts, src, tgt, None, tgt_mask),
)
again(
    transformer,
    "padding-mask-missing",
    line=("memory, tgt_mask=tgt_mask, src_mask=src_mask", "memory, tgt_mask=tgt_mask"),
)
again(transformer, "padding-mask-missing", line=("(src)), src_mask=src_mask", "(src))"))
again(transformer, "causal-missing", line=(" tgt_mask=tgt_mask,", ""))
again(transformer, "norm-never-applied", by=partial(_stacks, never=("encoder", "decoder")))
again(transformer, "norm-never-applied", by=partial(_stacks, never=("encoder",)))
again(transformer, "norm-never-applied", by=partial(_stacks, never=("decoder",)))
again(transformer, "softmax-before-loss", by=lambda *given: transformer(*given).softmax(-1))
_SOURCE, _TARGET = "parts.src_embedding(src)", "parts.tgt_embedding(tgt)"
misconception(
    transformer,
    "The target gets no positions: call positional_encoding for both sides.",
    line=(f"parts.positional_encoding({_TARGET})", _TARGET),
)
misconception(
    transformer,
    "The source gets no positions: call positional_encoding for both sides.",
    line=(f"parts.positional_encoding({_SOURCE})", _SOURCE),
)


@misconception(transformer)
def without_positions(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    """No word gets a position: call positional_encoding."""
    memory = parts.encoder(parts.src_embedding(src), src_mask=src_mask)
    x = parts.decoder(parts.tgt_embedding(tgt), memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(x)


@misconception(transformer)
def scaled(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    """You multiplied the vectors by the square root of d_model: here they are used unchanged."""
    root = parts.src_embedding.weight.size(1) ** 0.5
    source = parts.positional_encoding(parts.src_embedding(src) * root)
    target = parts.positional_encoding(parts.tgt_embedding(tgt) * root)
    memory = parts.encoder(source, src_mask=src_mask)
    return parts.output_projection(
        parts.decoder(target, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    )


def _side_by_side(
    parts: Transformer,
    src: Tensor,
    tgt: Tensor,
    src_mask: _Mask,
    tgt_mask: _Mask,
    *,
    normed: bool = False,
) -> Tensor:
    """Pass each decoder layer the output of the encoder layer with the same index."""
    seen = parts.positional_encoding(parts.src_embedding(src))
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    for reader, writer in zip(parts.encoder.layers, parts.decoder.layers, strict=True):
        seen = reader(seen, src_mask=src_mask)
        read = parts.encoder.norm(seen) if normed else seen
        x = writer(x, read, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(parts.decoder.norm(x))


misconception(
    transformer,
    "Each decoder layer reads the output of one encoder layer: all decoder layers read the memory.",
    by=_side_by_side,
)
misconception(
    transformer,
    "Each decoder layer reads the normalised output of one encoder layer: all decoder layers read "
    "the memory.",
    by=partial(_side_by_side, normed=True),
)
misconception(
    transformer,
    "You applied the norm of the encoder after each layer: apply it once, after the last layer.",
    by=partial(_stacks, after_each=("encoder",)),
)
misconception(
    transformer,
    "You applied the norm of the decoder after each layer: apply it once, after the last layer.",
    by=partial(_stacks, after_each=("decoder",)),
)
misconception(
    transformer,
    "You applied both norms after each layer: apply each once, after the last layer of its stack.",
    by=partial(_stacks, after_each=("encoder", "decoder")),
)
misconception(
    transformer,
    "The decoder gets no mask: pass it both masks.",
    line=("tgt_mask=tgt_mask, src_mask=src_mask)", ")"),
)
misconception(
    transformer,
    "No layer gets a mask: pass the masks to encoder and decoder.",
    by=lambda parts, src, tgt, *_: parts(src, tgt),
)
log_softmax_taken = misconception(
    transformer,
    "You applied log_softmax: return the logits, because the loss applies it.",
    by=lambda *given: transformer(*given).log_softmax(-1),
)


def _tied_logits_cases() -> Cases:
    model, draw = example.model(), seeded()
    rows = model.tgt_embedding.weight.detach().clone()
    memory = model.encode(example.src, src_mask=example.src_mask)
    x = model.positional_encoding(model.tgt_embedding(example.tgt))
    x = model.decoder(x, memory, tgt_mask=example.tgt_mask, src_mask=example.src_mask)
    return {
        "twelve numbers": (x.detach(), rows),
        "as many words as features": (draw(2, 4, 6), draw(6, 6)),
        "all sizes differ": (draw(2, 4, 24), draw(13, 24)),
    }


@task(
    _tied_logits_cases,
    forbidden=("@", "T", "mT", "t", "transpose", "matmul", "linear"),
    measures="scoring with the rows of a table, without softmax",
)
def tied_logits(x: Tensor, table: Tensor) -> Tensor:
    """x (batch, tgt, d_model), table (vocab, d_model) -> (batch, tgt, vocab)"""
    return x @ table.T


@solved(tied_logits)
def _score_words(x: Tensor, table: Tensor) -> Tensor:
    return torch.einsum("btd, vd -> btv", x, table)


again(tied_logits, "softmax-before-loss", by=lambda *given: tied_logits(*given).softmax(-1))
misconception(
    tied_logits,
    "You read the axes of the table as (d_model, vocab), but they are (vocab, d_model): which "
    "letter does it share with x?",
    line=("table.T", "table"),
)
misconception(
    tied_logits,
    "You divided the scores by the square root of d_model: only attention scales its scores.",
    line=("table.T", "table.T / table.size(1) ** 0.5"),
)
misconception(
    tied_logits, log_softmax_taken.sentence, by=lambda *given: tied_logits(*given).log_softmax(-1)
)


@question(measures="which vocabulary and length the output has")
def logits_shape(*, run: Callable[..., Tensor] = transformer) -> tuple[int, ...]:
    """the logits of the translation -> (batch, tgt, vocab)"""
    src, tgt = (torch.zeros(7, length, dtype=torch.long) for length in (6, 4))
    return tuple(run(example.distinct.model(), src, tgt, None, None).shape)


again(logits_shape, "sentences-swapped", run=sentences_swapped.wrong)


@question(measures="what tying removes: a matrix and a bias", worked="252 - 4 * 3 - 4")
def tied_count() -> int:
    """the number of parameters of the small model with a tied output"""
    return sum(weight.numel() for weight in example.model(tie_weights=True).parameters())


def _count(*, matrices: int = 1, bias: bool = True) -> int:
    """Count the parameters of the small model without the output bias and some matrices."""
    model = example.model()
    output = model.output_projection
    off = matrices * output.weight.numel() + bias * output.bias.numel()
    return sum(weight.numel() for weight in model.parameters()) - off


misconception(
    tied_count,
    "You subtracted the matrix. What happens to the bias?",
    by=partial(_count, bias=False),
)
misconception(
    tied_count,
    "You subtracted the bias. Which matrix disappears as well?",
    by=partial(_count, matrices=0),
)
misconception(
    tied_count,
    "Only two of the three matrices are tied: the table of the source stays separate.",
    by=partial(_count, matrices=2, bias=False),
)
misconception(
    tied_count,
    "You subtracted two matrices: the table of the source stays separate.",
    by=partial(_count, matrices=2),
)


@question(decimals=3, measures="what a second softmax costs a perfect model")
def lowest_loss(*, words: int = 2) -> float:
    """the lowest loss with two words and softmax taken twice"""
    sure = (100 * torch.eye(words, dtype=torch.float64)).softmax(-1)
    return F.cross_entropy(sure, torch.arange(words)).item()


misconception(lowest_loss, "This is the minimum for four words: here there are two.", words=4)
misconception(
    lowest_loss,
    "This is the probability of the right word: the loss is minus its logarithm.",
    by=lambda: math.exp(-lowest_loss()),
)
misconception(
    lowest_loss,
    "This is the probability of the wrong word.",
    by=lambda: 1 - math.exp(-lowest_loss()),
)
misconception(
    lowest_loss,
    "The logarithm of a probability is negative: the loss is minus this logarithm.",
    by=lambda: -lowest_loss(),
)
misconception(
    lowest_loss,
    "This is the logarithm to base 10: the loss uses the natural logarithm.",
    by=lambda: lowest_loss() / math.log(10),
)
misconception(
    lowest_loss,
    "This is the loss of a model that knows nothing: which output is the most certain one?",
    by=lambda: math.log(2),
)
misconception(
    lowest_loss,
    "This is the minimum with one softmax: what does the second one do to 1 and 0?",
    by=lambda: 0.0,
)

_PLACES = ("first", "second", "third", "last")


@question(options=_PLACES, measures="how far a leak spreads in two layers")
def places_moved(*, layers: int = 1, past_hidden: bool = False) -> frozenset[str]:
    """the places whose logits change where the causal mask is left out"""
    data, model = example.distinct, example.distinct.model()
    model.decoder.layers = model.decoder.layers[:layers]
    mask = data.tgt_mask.mT if past_hidden else data.tgt_mask
    masked = model(data.src, data.tgt, src_mask=data.src_mask, tgt_mask=mask)
    free = model(data.src, data.tgt, src_mask=data.src_mask)
    moved = (masked - free).abs().amax((0, 2)) > 1e-9
    return frozenset(place for place, one in zip(_PLACES, moved.tolist(), strict=True) if one)


misconception(
    places_moved,
    "The first position has the most future words, and the last has none.",
    past_hidden=True,
)
misconception(
    places_moved,
    "In a second layer all positions would change: where does the mask hide nothing?",
    layers=2,
)
misconception(
    places_moved,
    "The last position sees every word, with the mask and without it.",
    by=lambda: places_moved(past_hidden=True) - places_moved(),
)
misconception(
    places_moved,
    "Is the first position the only one with words after it?",
    by=lambda: places_moved() - places_moved(past_hidden=True),
)
