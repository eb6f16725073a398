"""Step 11: what looking back and looking across invite."""

from collections.abc import Callable, Sequence

from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Target
from twelve.masks import causal_mask, padding_mask

_Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
_Layer = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]
_Mask = Tensor | None


def _cross_attention(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return attention(x, memory, memory, src_mask)


def _cross_attention_cases() -> Cases:
    twelve = example.model().decoder.layers[0].cross_attention
    larger = example.companion.model().decoder.layers[0].cross_attention
    pads = (example.src_mask.clone(), padding_mask(example.tgt))
    longer = (example.companion.src_mask.clone(), padding_mask(example.companion.tgt))
    draw, memory = seeded(), example.model().encoder(vectors()).detach()
    x, other = draw(2, 4, 24), draw(2, 5, 24)
    return {
        "twelve numbers": (vectors(example.tgt), memory, twelve, *pads),
        "all sizes differ": (x, other, larger, *longer),
        "all sizes differ, no padding": (x.clone(), other.clone(), larger, None, None),
    }


def _cross_mask_target(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return attention(x, memory, memory, tgt_mask)


def _cross_value_target(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return attention(x, memory, x, src_mask)


def _cross_memory_unused(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return attention(x, x, x, src_mask)


def _target_mask(tgt: Tensor) -> Tensor:
    return causal_mask(tgt.size(1))


def _target_mask_cases() -> Cases:
    return {
        "twelve numbers": (example.tgt.clone(),),
        "one sentence": (example.companion.tgt[:1],),
        "all sizes differ": (example.companion.tgt.clone(),),
    }


def _causal_batch_size(tgt: Tensor) -> Tensor:
    return causal_mask(len(tgt))


def _decoder(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: Callable[[Tensor], Tensor],
    tgt_mask: _Mask,
    src_mask: _Mask,
) -> Tensor:
    for layer in layers:
        x = layer(x, memory, tgt_mask, src_mask)
    return norm(x)


def _decoder_cases() -> Cases:
    twelve, larger = example.model(), example.companion.model()
    memory, draw = twelve.encoder(vectors()).detach(), seeded()
    x, other = draw(2, 4, 24), draw(2, 5, 24)
    few = (example.tgt_mask.clone(), example.src_mask.clone())
    many = (example.companion.tgt_mask.clone(), example.companion.src_mask.clone())
    return {
        "twelve numbers": (vectors(example.tgt), memory, *_layers(twelve), *few),
        "one word": (x[:, :1].clone(), other, *_layers(larger), many[0][..., :1, :1], many[1]),
        "all sizes differ": (x, other.clone(), *_layers(larger), *many),
    }


def _layers(model) -> tuple[list[_Layer], Callable[[Tensor], Tensor]]:
    layers = [
        lambda x, memory, tgt_mask, src_mask, layer=layer: layer(
            x, memory, tgt_mask=tgt_mask, src_mask=src_mask
        )
        for layer in model.decoder.layers
    ]
    return layers, model.decoder.norm


def _causal_missing(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: Callable[[Tensor], Tensor],
    tgt_mask: _Mask,
    src_mask: _Mask,
) -> Tensor:
    for layer in layers:
        x = layer(x, memory, None, src_mask)
    return norm(x)


def _padding_mask_missing(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: Callable[[Tensor], Tensor],
    tgt_mask: _Mask,
    src_mask: _Mask,
) -> Tensor:
    for layer in layers:
        x = layer(x, memory, tgt_mask, None)
    return norm(x)


def _norm_never_applied(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: Callable[[Tensor], Tensor],
    tgt_mask: _Mask,
    src_mask: _Mask,
) -> Tensor:
    for layer in layers:
        x = layer(x, memory, tgt_mask, src_mask)
    return x


TARGETS = (
    Target(
        name="cross_attention",
        contract="x (batch, tgt, d_model), memory (batch, src, d_model), attention, a function of "
        "query, key, value and mask, the padding masks of source and target -> (batch, tgt, "
        "d_model)",
        right=_cross_attention,
        cases=_cross_attention_cases,
    ),
    Target(
        name="target_mask",
        contract="tgt (batch, tgt) -> (1, 1, tgt, tgt), True = may attend",
        right=_target_mask,
        cases=_target_mask_cases,
    ),
    Target(
        name="decoder",
        contract="x (batch, tgt, d_model), memory (batch, src, d_model), layers, each a function "
        "of x, memory, tgt_mask and src_mask, norm, tgt_mask, src_mask -> (batch, tgt, d_model)",
        right=_decoder,
        cases=_decoder_cases,
        also={
            "padding-mask-missing": _padding_mask_missing,
            "norm-never-applied": _norm_never_applied,
        },
    ),
)

_CALL = "self.cross_attention(query, memory, memory, src_mask)"

MISTAKES = (
    Mistake(
        id="cross-mask-target",
        sentence="You hid the target's padding from the cross-attention, whose keys are the "
        "source: hand it the mask of the source.",
        step="11",
        target="cross_attention",
        wrong=_cross_mask_target,
        plant=Plant(
            "transformer",
            "tgt_input, memory, tgt_mask=tgt_mask, src_mask=src_mask\n",
            "tgt_input, memory, tgt_mask=tgt_mask, src_mask=(tgt != 0)[:, None, None, :]\n",
        ),
    ),
    Mistake(
        id="cross-value-target",
        sentence="The keys come from the memory and the values from the decoder, so the source "
        "says where to look and nothing of its own: take both from the memory.",
        step="11",
        target="cross_attention",
        wrong=_cross_value_target,
        plant=Plant("decoder", _CALL, "self.cross_attention(query, memory, query, src_mask)"),
    ),
    Mistake(
        id="cross-memory-unused",
        sentence="The decoder looks at itself once more and never hears the source: take keys and "
        "values from the memory.",
        step="11",
        target="cross_attention",
        wrong=_cross_memory_unused,
        plant=Plant("decoder", _CALL, "self.cross_attention(query, query, query, src_mask)"),
    ),
    Mistake(
        id="causal-missing",
        sentence="The decoder's layers do not get the causal mask, so each word hears the one it "
        "must predict: hand it to each.",
        step="12",
        target="decoder",
        wrong=_causal_missing,
        plant=Plant(
            "decoder",
            "x = layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)\n",
            "x = layer(x, memory, src_mask=src_mask)\n",
        ),
    ),
    Mistake(
        id="causal-batch-size",
        sentence="You sized the causal mask by len(tgt), the number of sentences: size it by "
        "their length, tgt.size(1).",
        step="12",
        target="target_mask",
        wrong=_causal_batch_size,
        plant=Plant("generation", "causal_mask(tgt.size(1), ", "causal_mask(tgt.size(0), "),
    ),
)
