"""Lesson 12: mistakes in assembling the model."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.masks import causal_mask, padding_mask
from twelve.transformer import Transformer
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    Edited,
    again,
    mistake,
    notes,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import SIZES, distinct_ids, seeded

_Mask = Tensor | None


def _transformer_cases() -> Cases:
    larger, model, ids = example.distinct, example.distinct.model(), distinct_ids()
    # Both vocabularies contain these ids, so swapping the sentences raises no error.
    short = (larger.tgt.clone() % 11, larger.tgt.roll(1, 0) % 11)
    return {
        "twelve numbers": (
            example.model(), example.src.clone(), example.tgt.clone(),
            example.src_mask.clone(), example.tgt_mask.clone(),
        ),
        "equal lengths": (model, *short, None, larger.tgt_mask.clone()),
        "all sizes differ": (
            model, ids, ids[:, : SIZES.tgt].clone(),
            padding_mask(ids), causal_mask(SIZES.tgt),
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
    memory = parts.positional_encoding(parts.src_embedding(src))
    for layer in parts.encoder.layers:
        memory = layer(memory, src_mask=src_mask)
    memory = parts.encoder.norm(memory)
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    for layer in parts.decoder.layers:
        x = layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(parts.decoder.norm(x))


_ENCODER = "parts.encoder(X, src_mask=src_mask)"
_DECODER = "parts.decoder(X, MEMORY, tgt_mask=tgt_mask, src_mask=src_mask)"
_RETURN = "return parts.output_projection(x)"
mistake(
    transformer,
    "encoder-skipped",
    "The decoder attends to the embedded source instead of the output of the encoder: run the "
    "encoder first.",
    {_ENCODER: "X"},
)
mistake(
    transformer,
    "sentences-swapped",
    "The encoder got the target and the decoder the source: swap them.",
    {"parts.src_embedding(src)": "parts.src_embedding(tgt)",
     "parts.tgt_embedding(tgt)": "parts.tgt_embedding(src)"},
)  # fmt: skip
mistake(
    transformer,
    "embedding-shared",
    "You embedded the target with the table of the source: each language has its own table, so "
    "use tgt_embedding.",
    {"parts.tgt_embedding": "parts.src_embedding"},
)
_UNMASKED = "parts.decoder(X, MEMORY, tgt_mask=tgt_mask)"
again(transformer, "padding-mask-missing", {_ENCODER: "parts.encoder(X)", _DECODER: _UNMASKED})
again(transformer, "padding-mask-missing", {_DECODER: _UNMASKED})
again(transformer, "padding-mask-missing", {_ENCODER: "parts.encoder(X)"})
again(transformer, "causal-missing", {_DECODER: "parts.decoder(X, MEMORY, src_mask=src_mask)"})
again(transformer, "softmax-before-loss", {_RETURN: f"{_RETURN}.softmax(-1)"})
# The solution loops over the layers, so an edit can add a step between two layers.
_NO_FIRST = {"memory = parts.encoder.norm(memory)": "pass"}
_NO_LAST = {"parts.decoder.norm(x)": "x"}
for _changes in (_NO_FIRST | _NO_LAST, _NO_FIRST, _NO_LAST):
    again(transformer, "norm-never-applied", by=Edited(_from_ids_to_logits, _changes))
_READ, _WRITE = "layer(memory, src_mask=M)", "layer(x, memory, tgt_mask=T, src_mask=M)"
_EACH_FIRST = _NO_FIRST | {_READ: f"parts.encoder.norm({_READ})"}
_EACH_LAST = _NO_LAST | {_WRITE: f"parts.decoder.norm({_WRITE})"}
_SIDE_BY_SIDE = _NO_FIRST | {
    f"memory = {_READ}": "pass",
    f"x = {_WRITE}": "memory = parts.encoder.layers[[*parts.decoder.layers].index(layer)](memory, "
    f"src_mask=M)\nx = {_WRITE}",
}
notes(
    transformer,
    {
        "The target gets no positions: call positional_encoding for both sides.": {
            "x = parts.positional_encoding(X)": "x = X"
        },
        "The source gets no positions: call positional_encoding for both sides.": {
            "parts.positional_encoding(parts.src_embedding(src))": "parts.src_embedding(src)"
        },
        "You added no positions: call positional_encoding.": {
            "parts.positional_encoding(parts.src_embedding(src))": "parts.src_embedding(src)",
            "parts.positional_encoding(parts.tgt_embedding(tgt))": "parts.tgt_embedding(tgt)",
        },
        "You multiplied the vectors by the square root of d_model: here they are used unchanged.": {
            f"parts.{table}({ids})": f"parts.{table}({ids}) * parts.{table}.weight.size(1) ** 0.5"
            for table, ids in (("src_embedding", "src"), ("tgt_embedding", "tgt"))
        },
        "Each decoder layer reads the output of one encoder layer: all decoder layers must "
        "read the memory.": Edited(_from_ids_to_logits, _SIDE_BY_SIDE),
        "You applied the norm of the encoder after each layer: apply it once, after the last "
        "layer.": Edited(_from_ids_to_logits, _EACH_FIRST),
        "You applied the norm of the decoder after each layer: apply it once, after the last "
        "layer.": Edited(_from_ids_to_logits, _EACH_LAST),
        "You applied both norms after each layer: apply each once, after the last layer of its "
        "stack.": Edited(_from_ids_to_logits, _EACH_FIRST | _EACH_LAST),
        "The decoder gets no mask: pass it both masks.": {_DECODER: "parts.decoder(X, MEMORY)"},
        "No layer gets a mask: pass the masks to encoder and decoder.": {
            _ENCODER: "parts.encoder(X)",
            _DECODER: "parts.decoder(X, MEMORY)",
        },
        "You applied log_softmax: return the logits, because the loss applies it.": {
            _RETURN: f"{_RETURN}.log_softmax(-1)"
        },
    },
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
        "all sizes differ": (draw(SIZES.batch, SIZES.tgt, 24), draw(SIZES.tgt_vocab, 24)),
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


again(tied_logits, "softmax-before-loss", {"x @ table.T": "(x @ table.T).softmax(-1)"})
notes(
    tied_logits,
    {
        "You read the axes of the table as (d_model, vocab), but they are (vocab, d_model): which "
        "letter does it share with x?": {"table.T": "table"},
        "You divided the scores by the square root of d_model: only attention scales its scores.": {
            "table.T": "table.T / table.size(1) ** 0.5"
        },
        "You applied log_softmax: return the logits, because the loss applies it.": {
            "x @ table.T": "(x @ table.T).log_softmax(-1)"
        },
    },
)


@question(measures="which vocabulary and length the output has")
def logits_shape() -> tuple[int, ...]:
    """the logits of the translation -> (batch, tgt, vocab)"""
    src, tgt = (torch.zeros(7, length, dtype=torch.long) for length in (6, 4))
    return tuple(transformer(example.distinct.model(), src, tgt, None, None).shape)


@question(measures="what tying removes: a matrix and a bias", worked="252 - 4 * 3 - 4")
def tied_count() -> int:
    """the number of parameters of the small model with a tied output"""
    return sum(weight.numel() for weight in example.model(tie_weights=True).parameters())


notes(
    tied_count,
    {
        "You subtracted the matrix. What happens to the bias?": 252 - 12,
        "You subtracted the bias. Which matrix disappears as well?": 252 - 4,
        "Only two of the three matrices are tied: the table of the source stays separate.": (
            252 - 2 * 12
        ),
        "You subtracted two matrices: the table of the source stays separate.": 252 - 2 * 12 - 4,
    },
)


@question(decimals=3, measures="what a second softmax costs a perfect model")
def lowest_loss() -> float:
    """the lowest loss with two words and softmax applied twice"""
    sure = (100 * torch.eye(2, dtype=torch.float64)).softmax(-1)
    loss = F.cross_entropy(sure, torch.arange(2))
    return loss.item()


notes(
    lowest_loss,
    {
        "This is the minimum for four words: here there are two.": {
            "torch.eye(2, dtype=X)": "torch.eye(4, dtype=X)",
            "torch.arange(2)": "torch.arange(4)",
        },
        "This is the probability of the right word: the loss is minus its logarithm.": {
            "loss.item()": "(-loss).exp().item()"
        },
        "This is the probability of the wrong word.": {"loss.item()": "1 - (-loss).exp().item()"},
        "The logarithm of a probability is negative: the loss is minus this logarithm.": {
            "loss.item()": "-loss.item()"
        },
        "This is the logarithm to base 10: the loss uses the natural logarithm.": {
            "loss.item()": "loss.item() / torch.tensor(10.0).log().item()"
        },
        "This is the loss of a model that knows nothing: which output is the most certain one?": {
            "100 * X": "0 * X"
        },
        "This is the minimum with one softmax: what does the second one do to 1 and 0?": 0.0,
    },
)

_PLACES = ("first", "second", "third", "last")


@question(options=_PLACES, measures="how far a leak spreads in two layers")
def places_moved() -> frozenset[str]:
    """the positions whose logits change if the causal mask is left out"""
    data, model = example.distinct, example.distinct.model()
    model.decoder.layers = model.decoder.layers[:1]
    masked = model(data.src, data.tgt, src_mask=data.src_mask, tgt_mask=data.tgt_mask)
    free = model(data.src, data.tgt, src_mask=data.src_mask)
    moved = (masked - free).abs().amax((0, 2)) > 1e-9
    return frozenset(place for place, one in zip(_PLACES, moved.tolist(), strict=True) if one)


notes(
    places_moved,
    {
        "The first position has the most future words, and the last has none.": {
            "second",
            "third",
            "last",
        },
        "In a second layer all positions would change: where does the mask hide nothing?": {
            *_PLACES
        },
        "The last position sees every word, with the mask and without it.": {"last"},
        "Is the first position the only one with words after it?": {"first"},
    },
)
