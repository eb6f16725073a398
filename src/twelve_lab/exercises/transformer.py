"""Step 12: what putting the parts together invites."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.transformer import Transformer
from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises.numbers import seeded

_Mask = Tensor | None


def _transformer(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    memory = parts.encoder(parts.positional_encoding(parts.src_embedding(src)), src_mask=src_mask)
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    x = parts.decoder(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(x)


def _transformer_cases() -> Cases:
    larger = example.distinct
    # Ids that both vocabularies have, so that sentences can change places unnoticed.
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


def _encoder_skipped(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    memory = parts.positional_encoding(parts.src_embedding(src))
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    x = parts.decoder(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(x)


def _sentences_swapped(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return _transformer(parts, tgt, src, src_mask, tgt_mask)


def _embedding_shared(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    memory = parts.encoder(parts.positional_encoding(parts.src_embedding(src)), src_mask=src_mask)
    x = parts.positional_encoding(parts.src_embedding(tgt))
    x = parts.decoder(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(x)


def _padding_mask_missing(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return _transformer(parts, src, tgt, None, tgt_mask)


def _half_masked(encoder: bool) -> Callable[..., Tensor]:
    def run(
        parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
    ) -> Tensor:
        memory = parts.encode(src, src_mask=src_mask if encoder else None)
        hidden = None if encoder else src_mask
        return parts.decode(tgt, memory, tgt_mask=tgt_mask, src_mask=hidden)

    return run


def _causal_missing(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return _transformer(parts, src, tgt, src_mask, None)


def _norm_never_applied(
    parts: Transformer,
    src: Tensor,
    tgt: Tensor,
    src_mask: _Mask,
    tgt_mask: _Mask,
    *,
    forgotten: tuple[str, ...] = ("encoder", "decoder"),
) -> Tensor:
    memory = parts.positional_encoding(parts.src_embedding(src))
    for layer in parts.encoder.layers:
        memory = layer(memory, src_mask=src_mask)
    memory = memory if "encoder" in forgotten else parts.encoder.norm(memory)
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    for layer in parts.decoder.layers:
        x = layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(x if "decoder" in forgotten else parts.decoder.norm(x))


def _embedded_so(
    parts: Transformer,
    src: Tensor,
    tgt: Tensor,
    src_mask: _Mask,
    tgt_mask: _Mask,
    *,
    placed: tuple[bool, bool] = (True, True),
    scaled: bool = False,
) -> Tensor:
    tables, ids = (parts.src_embedding, parts.tgt_embedding), (src, tgt)
    embedded = [table(one) for table, one in zip(tables, ids, strict=True)]
    factor = embedded[0].size(-1) ** 0.5 if scaled else 1.0
    source, target = (
        parts.positional_encoding(x * factor) if used else x
        for x, used in zip(embedded, placed, strict=True)
    )
    memory = parts.encoder(source, src_mask=src_mask)
    x = parts.decoder(target, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(x)


def _side_by_side(
    parts: Transformer,
    src: Tensor,
    tgt: Tensor,
    src_mask: _Mask,
    tgt_mask: _Mask,
    *,
    normed: bool = False,
) -> Tensor:
    """Let each layer of the decoder read what the encoder's layer of its height leaves."""
    seen = parts.positional_encoding(parts.src_embedding(src))
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    for reader, writer in zip(parts.encoder.layers, parts.decoder.layers, strict=True):
        seen = reader(seen, src_mask=src_mask)
        read = parts.encoder.norm(seen) if normed else seen
        x = writer(x, read, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(parts.decoder.norm(x))


def _norms_after_each(
    parts: Transformer,
    src: Tensor,
    tgt: Tensor,
    src_mask: _Mask,
    tgt_mask: _Mask,
    *,
    repeated: tuple[str, ...] = ("encoder", "decoder"),
) -> Tensor:
    reads, writes = (
        stack.norm if name in repeated else lambda y: y
        for name, stack in (("encoder", parts.encoder), ("decoder", parts.decoder))
    )
    memory = parts.positional_encoding(parts.src_embedding(src))
    for layer in parts.encoder.layers:
        memory = reads(layer(memory, src_mask=src_mask))
    memory = memory if "encoder" in repeated else parts.encoder.norm(memory)
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    for layer in parts.decoder.layers:
        x = writes(layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask))
    return parts.output_projection(x if "decoder" in repeated else parts.decoder.norm(x))


def _tied_logits(x: Tensor, table: Tensor) -> Tensor:
    return x @ table.T


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


def _logits_shape(run: Callable[..., Tensor] = _transformer) -> tuple[int, ...]:
    src, tgt = (torch.zeros(7, length, dtype=torch.long) for length in (6, 4))
    return tuple(run(example.distinct.model(), src, tgt, None, None).shape)


def _count(*, matrices: int = 1, bias: bool = True) -> int:
    """Count the parameters of the small model, without the output's bias and some matrices."""
    model = example.model()
    output = model.output_projection
    off = matrices * output.weight.numel() + bias * output.bias.numel()
    return sum(weight.numel() for weight in model.parameters()) - off


def _tied_count() -> int:
    return sum(weight.numel() for weight in example.model(tie_weights=True).parameters())


def _lowest_loss(words: int = 2) -> float:
    sure = (100 * torch.eye(words, dtype=torch.float64)).softmax(-1)
    return F.cross_entropy(sure, torch.arange(words)).item()


def _places_moved(*, layers: int = 1, past_hidden: bool = False) -> frozenset[str]:
    data, model = example.distinct, example.distinct.model()
    model.decoder.layers = model.decoder.layers[:layers]
    mask = data.tgt_mask.mT if past_hidden else data.tgt_mask
    masked = model(data.src, data.tgt, src_mask=data.src_mask, tgt_mask=mask)
    free = model(data.src, data.tgt, src_mask=data.src_mask)
    moved = (masked - free).abs().amax((0, 2)) > 1e-9
    return frozenset(place for place, one in zip(_PLACES, moved.tolist(), strict=True) if one)


_PLACES = ("first", "second", "third", "last")

QUESTIONS = (
    Question(
        name="logits_shape",
        contract="the logits of the translation -> (batch, tgt, vocab)",
        right=_logits_shape,
        wrong={"sentences-swapped": partial(_logits_shape, _sentences_swapped)},
    ),
    Question(
        name="tied_count",
        contract="the number of parameters of the small model with a tied output",
        right=_tied_count,
        slips={
            "You took off the matrix. What happens to the bias?": partial(_count, bias=False),
            "You took off the bias. Which matrix goes as well?": partial(_count, matrices=0),
            "Only two of the three are tied: the table of the source stays a matrix of its own.": (
                partial(_count, matrices=2, bias=False)
            ),
            "You took off two matrices: the table of the source stays one of its own.": partial(
                _count, matrices=2
            ),
        },
    ),
    Question(
        name="lowest_loss",
        contract="the lowest loss with two words and softmax taken twice",
        right=_lowest_loss,
        decimals=3,
        slips={
            "That is the floor for four words: here are two.": partial(_lowest_loss, 4),
            "That is the share of the right word: the loss is minus its logarithm.": (
                lambda: math.exp(-_lowest_loss())
            ),
            "That is the share of the wrong word.": lambda: 1 - math.exp(-_lowest_loss()),
            "A logarithm of a share is below 0: the loss is minus that.": lambda: -_lowest_loss(),
            "That is the logarithm to base 10: the loss takes the natural one.": (
                lambda: _lowest_loss() / math.log(10)
            ),
            "So much costs a model that knows nothing: what is the surest thing to hand over?": (
                lambda: math.log(2)
            ),
            "That is the floor under one softmax: what does the second one do to 1 and 0?": (
                lambda: 0.0
            ),
        },
    ),
    Question(
        name="places_moved",
        contract="the places whose logits change where the causal mask is left out",
        right=_places_moved,
        options=_PLACES,
        slips={
            "The first place has the longest future, and the last has none.": partial(
                _places_moved, past_hidden=True
            ),
            "In a second layer all would move: where does the mask hide nothing?": partial(
                _places_moved, layers=2
            ),
            "The last place sees every word, with the mask and without it.": (
                lambda: _places_moved(past_hidden=True) - _places_moved()
            ),
            "Is the first place the only one that has words behind it?": (
                lambda: _places_moved() - _places_moved(past_hidden=True)
            ),
        },
    ),
)

TARGETS = (
    Target(
        name="transformer",
        contract="parts, a Transformer, src (batch, src), tgt (batch, tgt), src_mask, tgt_mask -> "
        "logits (batch, tgt, vocab)",
        right=_transformer,
        cases=_transformer_cases,
        also={
            "padding-mask-missing": _padding_mask_missing,
            "causal-missing": _causal_missing,
            "norm-never-applied": _norm_never_applied,
            "softmax-before-loss": lambda *given: _transformer(*given).softmax(-1),
        },
        halves={
            "padding-mask-missing": (_half_masked(encoder=True), _half_masked(encoder=False)),
            "norm-never-applied": tuple(
                partial(_norm_never_applied, forgotten=(stack,)) for stack in ("encoder", "decoder")
            ),
        },
        slips={
            "The target gets no positions: the encoding serves both sides.": partial(
                _embedded_so, placed=(True, False)
            ),
            "The source gets no positions: the encoding serves both sides.": partial(
                _embedded_so, placed=(False, True)
            ),
            "No word knows its place: positional_encoding is not called.": partial(
                _embedded_so, placed=(False, False)
            ),
            "The vectors are multiplied by the root of the width: here they go on as the table "
            "holds them.": partial(_embedded_so, scaled=True),
            "Each layer of the decoder reads what the encoder's layer of its height leaves: all of "
            "them read the memory.": _side_by_side,
            "Each layer of the decoder reads the encoder's layer of its height, normed: all of "
            "them read the memory.": partial(_side_by_side, normed=True),
            "The norm of the encoder runs after each layer: it closes the stack, once.": (
                partial(_norms_after_each, repeated=("encoder",))
            ),
            "The norm of the decoder runs after each layer: it closes the stack, once.": (
                partial(_norms_after_each, repeated=("decoder",))
            ),
            "Both norms run after each layer: they close the two stacks, once each.": (
                _norms_after_each
            ),
            "The decoder gets no mask at all.": (
                lambda parts, src, tgt, src_mask, _: parts.decode(
                    tgt, parts.encode(src, src_mask=src_mask)
                )
            ),
            "No mask reaches any layer.": lambda parts, src, tgt, *_: parts(src, tgt),
            "You took the log of the softmax: the loss takes both, and logits are due.": (
                lambda *given: _transformer(*given).log_softmax(-1)
            ),
        },
        avoid=("encode", "decode"),
    ),
    Target(
        name="tied_logits",
        contract="x (batch, tgt, d_model), table (vocab, d_model) -> (batch, tgt, vocab)",
        right=_tied_logits,
        cases=_tied_logits_cases,
        also={
            "softmax-before-loss": lambda x, table: _tied_logits(x, table).softmax(-1),
        },
        slips={
            "You read the axes of the table as (d_model, vocab), and they are (vocab, d_model): "
            "which letter does it share with x?": lambda x, table: x @ table,
            "The scores are divided by the root of the width: that belongs to attention.": (
                lambda x, table: _tied_logits(x, table) / table.size(1) ** 0.5
            ),
            "You took the log of the softmax: the loss takes both, and logits are due.": (
                lambda x, table: _tied_logits(x, table).log_softmax(-1)
            ),
        },
        avoid=("@", "T", "mT", "t", "transpose", "matmul", "linear"),
    ),
)

MISTAKES = (
    Mistake(
        id="encoder-skipped",
        sentence="The decoder looks at the embedded source and not at what the encoder made of it: "
        "pass the source through the encoder first.",
        step="12",
        target="transformer",
        wrong=_encoder_skipped,
        plant=Plant(
            "transformer", "= self.encoder(src_input, src_mask=src_mask)\n", "= src_input\n"
        ),
    ),
    Mistake(
        id="sentences-swapped",
        sentence="The encoder got the target and the decoder the source: change them over.",
        step="12",
        target="transformer",
        wrong=_sentences_swapped,
        plant=Plant(
            "transformer",
            "        memory = self.encode(src, src_mask=src_mask)\n"
            "        return self.decode(tgt, memory,",
            "        memory = self.encode(tgt, src_mask=src_mask)\n"
            "        return self.decode(src, memory,",
        ),
    ),
    Mistake(
        id="embedding-shared",
        sentence="You looked the target up in the table of the source: the languages have their "
        "own tables, so use tgt_embedding.",
        step="12",
        target="transformer",
        wrong=_embedding_shared,
        plant=Plant("transformer", "self.tgt_embedding(tgt)\n", "self.src_embedding(tgt)\n"),
    ),
)
