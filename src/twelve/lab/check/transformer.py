"""Step 12: what putting the parts together invites."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target
from twelve.transformer import Transformer

_Mask = Tensor | None


def _transformer(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    memory = parts.encoder(parts.positional_encoding(parts.src_embedding(src)), src_mask=src_mask)
    x = parts.positional_encoding(parts.tgt_embedding(tgt))
    x = parts.decoder(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(x)


def _transformer_cases() -> Cases:
    larger = example.companion
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
    return tuple(run(example.companion.model(), src, tgt, None, None).shape)


def _tied_count() -> int:
    return sum(weight.numel() for weight in example.model(tie_weights=True).parameters())


def _lowest_loss() -> float:
    sure = (100 * torch.eye(2, dtype=torch.float64)).softmax(-1)
    return F.cross_entropy(sure, torch.arange(2)).item()


def _places_moved() -> frozenset[str]:
    data, model = example.companion, example.companion.model()
    model.decoder.layers = model.decoder.layers[:1]
    masked = model(data.src, data.tgt, src_mask=data.src_mask, tgt_mask=data.tgt_mask)
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
    ),
    Question(
        name="lowest_loss",
        contract="the lowest loss with two words and softmax taken twice",
        right=_lowest_loss,
        decimals=3,
    ),
    Question(
        name="places_moved",
        contract="the places whose logits change where the causal mask is left out",
        right=_places_moved,
        options=_PLACES,
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
    ),
    Target(
        name="tied_logits",
        contract="x (batch, tgt, d_model), table (vocab, d_model) -> (batch, tgt, vocab)",
        right=_tied_logits,
        cases=_tied_logits_cases,
        also={
            "weights-transposed": lambda x, table: x @ table,
            "softmax-before-loss": lambda x, table: _tied_logits(x, table).softmax(-1),
        },
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
