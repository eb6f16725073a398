"""Step 11: what looking back and looking across invite."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve.lab import example
from twelve.lab.check import residual
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target
from twelve.masks import causal_mask, padding_mask
from twelve.multi_head_attention import MultiHeadAttention

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


def _looks_at_itself(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return attention(x, x, x, tgt_mask)


def _looks_at_itself_unmasked(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return attention(x, x, x, None)


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


def _pre_norm(
    x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]
) -> Tensor:
    return x + sublayer(norm(x))


def _decoder_layer(
    x: Tensor,
    memory: Tensor,
    back: _Attention,
    across: _Attention,
    think: Callable[[Tensor], Tensor],
    norms: Sequence[Callable[[Tensor], Tensor]],
    tgt_mask: _Mask,
    src_mask: _Mask,
    *,
    add: Callable[..., Tensor] = _pre_norm,
    look_across: Callable[..., Tensor] = _cross_attention,
) -> Tensor:
    x = add(x, lambda query: back(query, query, query, tgt_mask), norms[0])
    x = add(x, lambda query: look_across(query, memory, across, src_mask, None), norms[1])
    return add(x, think, norms[2])


def _decoder_layer_cases() -> Cases:
    twelve, larger = example.model(), example.companion.model().decoder.layers[-1]
    small, draw = twelve.decoder.layers[0], seeded()
    memory, x, other = twelve.encoder(vectors()).detach(), draw(2, 4, 24), draw(2, 5, 24)
    few, many = (
        (layer.self_attention, layer.cross_attention, layer.feed_forward)
        for layer in (small, larger)
    )
    norms = [nn.LayerNorm(24, dtype=x.dtype) for _ in range(3)]
    for norm in norms:
        norm.weight.data, norm.bias.data = 1 + draw(24) / 5, draw(24) / 5
    plain = [norm.norm for norm in small.children() if hasattr(norm, "norm")]
    tgt_mask, src_mask = example.companion.tgt_mask.clone(), example.companion.src_mask.clone()
    hidden = example.tgt_mask.clone(), example.src_mask.clone()
    one = tgt_mask[..., :1, :1].clone()
    return {
        "twelve numbers": (vectors(example.tgt), memory, *few, plain, *hidden),
        "one word": (x[:, :1].clone(), other, *many, norms, one, src_mask.clone()),
        "all sizes differ": (x, other.clone(), *many, norms, tgt_mask, src_mask),
    }


def _layer_without(*hidden: str) -> Callable[..., Tensor]:
    def run(*given: Any) -> Tensor:
        *rest, tgt_mask, src_mask = given
        masks = {"tgt_mask": tgt_mask, "src_mask": src_mask} | dict.fromkeys(hidden)
        return _decoder_layer(*rest, **masks)

    return run


def _value_shape(*, of_memory: bool = True) -> tuple[int, ...]:
    with torch.device("meta"):
        attention = MultiHeadAttention(20, 4)
        looked_at = torch.empty(7, 6 if of_memory else 3, 20)
        return tuple(attention.w_v(looked_at).unflatten(-1, (4, -1)).transpose(1, 2).shape)


def _dots(*, causal: bool = True, padding: bool = True) -> int:
    sizes, masks = example.SIZES, (example.companion.tgt_mask, example.companion.src_mask)
    widths = (sizes.tgt, sizes.src)
    shown = (
        (mask if used else torch.ones_like(mask)).expand(sizes.batch, 1, sizes.tgt, width)
        for mask, used, width in zip(masks, (causal, padding), widths, strict=True)
    )
    return sum(int(one.sum()) for one in shown)


def _stays(look: Callable[..., Tensor] = _cross_attention) -> frozenset[str]:
    x, memory, attention, *masks = _cross_attention_cases()["twelve numbers"]
    src_mask, turned = masks[0], masks[0].flip(-1)
    changed = {
        "memory": (memory.flip(1), src_mask),
        "mask": (memory, turned),
        "both": (memory.flip(1), turned),
    }
    before = look(x, memory, attention, *masks)
    return frozenset(
        name
        for name, (read, mask) in changed.items()
        if torch.allclose(look(x, read, attention, mask, masks[1]), before)
    )


QUESTIONS = (
    Question(
        name="value_shape",
        contract="the values of the cross-attention -> (batch, head, key, d_v)",
        right=_value_shape,
        wrong={"cross-value-target": partial(_value_shape, of_memory=False)},
    ),
    Question(
        name="dots",
        contract="how many dots the map of the companion's decoder has",
        right=_dots,
        wrong={
            "causal-missing": partial(_dots, causal=False),
            "padding-mask-missing": partial(_dots, padding=False),
        },
    ),
    Question(
        name="stays",
        contract="what can be turned round while the answer stays",
        right=_stays,
        wrong={"cross-memory-unused": partial(_stays, _cross_memory_unused)},
        options=("memory", "mask", "both"),
    ),
)

TARGETS = (
    Target(
        name="cross_attention",
        contract="x (batch, tgt, d_model), memory (batch, src, d_model), attention, the padding "
        "masks src_mask and tgt_mask -> (batch, tgt, d_model)",
        right=_cross_attention,
        cases=_cross_attention_cases,
        also={
            "padding-mask-missing": lambda x, memory, attention, *_: attention(x, memory, memory)
        },
    ),
    Target(
        name="target_mask",
        contract="tgt (batch, tgt) -> (1, 1, tgt, tgt), True = may attend",
        right=_target_mask,
        cases=_target_mask_cases,
        also={
            "causal-triu": lambda tgt: _target_mask(tgt).mT,
            "causal-diagonal": lambda tgt: _target_mask(tgt).tril(-1),
        },
    ),
    Target(
        name="decoder",
        contract="x (batch, tgt, d_model), memory (batch, src, d_model), layers, a list of "
        "functions of x, memory, tgt_mask and src_mask, norm, tgt_mask, src_mask -> (batch, tgt, "
        "d_model)",
        right=_decoder,
        cases=_decoder_cases,
        also={
            "padding-mask-missing": _padding_mask_missing,
            "norm-never-applied": _norm_never_applied,
        },
    ),
    Target(
        name="decoder_layer",
        contract="x (batch, tgt, d_model), memory (batch, src, d_model), back, across, think, the "
        "three sublayers, norms, a list of three, tgt_mask, src_mask -> (batch, tgt, d_model)",
        right=_decoder_layer,
        cases=_decoder_layer_cases,
        also={
            "cross-value-target": partial(_decoder_layer, look_across=_cross_value_target),
            "cross-memory-unused": partial(_decoder_layer, look_across=_cross_memory_unused),
            "causal-missing": _layer_without("tgt_mask"),
            "padding-mask-missing": _layer_without("src_mask"),
            **{
                mistake.id: partial(_decoder_layer, add=mistake.wrong)
                for mistake in residual.MISTAKES
                if mistake.target == "residual"
            },
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
        sentence="The words look at their own sentence and never hear the other one: take keys and "
        "values from the memory.",
        step="11",
        target="cross_attention",
        wrong=_cross_memory_unused,
        variants=(_looks_at_itself, _looks_at_itself_unmasked),
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
