"""Step 12: what putting the parts together invites."""

from torch import Tensor

from twelve.lab import example
from twelve.lab.check.table import Cases, Mistake, Plant, Target
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


def _causal_missing(
    parts: Transformer, src: Tensor, tgt: Tensor, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return _transformer(parts, src, tgt, src_mask, None)


TARGETS = (
    Target(
        name="transformer",
        contract="parts, a Transformer whose layers are used, src (batch, src), tgt (batch, tgt), "
        "src_mask, tgt_mask -> logits (batch, tgt, vocab)",
        right=_transformer,
        cases=_transformer_cases,
        also={"padding-mask-missing": _padding_mask_missing, "causal-missing": _causal_missing},
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
