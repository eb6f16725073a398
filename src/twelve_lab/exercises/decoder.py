"""Lesson 11: mistakes in a layer with self-attention and cross-attention."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twelve.attention import scaled_dot_product_attention
from twelve.masks import causal_mask, padding_mask
from twelve.multi_head_attention import MultiHeadAttention
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
from twelve_lab.exercises.multi_head_attention import (
    merge_heads,
    merge_no_transpose,
    split_heads,
    split_interleaved,
    split_view,
)
from twelve_lab.exercises.numbers import seeded, vectors
from twelve_lab.exercises.residual import residual

_Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
_Layer = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]
_Norm = Callable[[Tensor], Tensor]
_Mask = Tensor | None


def _cross_attention_cases() -> Cases:
    twelve = example.model().decoder.layers[0].cross_attention
    larger = example.distinct.model().decoder.layers[0].cross_attention
    pads = (example.src_mask.clone(), padding_mask(example.tgt))
    longer = (example.distinct.src_mask.clone(), padding_mask(example.distinct.tgt))
    draw, memory = seeded(), example.model().encoder(vectors()).detach()
    x, other = draw(2, 4, 24), draw(2, 5, 24)
    return {
        "twelve numbers": (vectors(example.tgt), memory, twelve, *pads),
        "all sizes differ": (x, other, larger, *longer),
        "all sizes differ, no padding": (x.clone(), other.clone(), larger, None, None),
    }


@task(_cross_attention_cases, measures="queries from the target, the rest from the source")
def cross_attention(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    """x (batch, tgt, d_model), memory (batch, src, d_model), attention, the padding masks src_mask
    and tgt_mask -> (batch, tgt, d_model)
    """
    return attention(x, memory, memory, src_mask)


@solved(cross_attention)
def _look_across(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    projected = attention.w_q(x), attention.w_k(memory), attention.w_v(memory)
    parts = (one.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for one in projected)
    blended = F.scaled_dot_product_attention(*parts, attn_mask=src_mask)
    return attention.w_o(blended.transpose(1, 2).flatten(2))


_ACROSS = "attention(x, memory, memory, src_mask)"

cross_mask_target = mistake(
    cross_attention,
    "cross-mask-target",
    "You hid the padding of the target in the cross-attention, whose keys are the source: pass "
    "the mask of the source.",
    line=(_ACROSS, "attention(x, memory, memory, tgt_mask)"),
)
cross_value_target = mistake(
    cross_attention,
    "cross-value-target",
    "The keys come from the memory but the values from the decoder, so that no content of the "
    "source arrives: take both from the memory.",
    line=(_ACROSS, "attention(x, memory, x, src_mask)"),
)
mistake(
    cross_attention,
    "cross-memory-unused",
    "The words attend to their own sentence instead of the other one: take keys and values from "
    "the memory.",
    line=(_ACROSS, "attention(x, x, x, src_mask)"),
)
again(cross_attention, "cross-memory-unused", line=(_ACROSS, "attention(x, x, x, tgt_mask)"))
again(cross_attention, "cross-memory-unused", line=(_ACROSS, "attention(x, x, x, None)"))


def _from_the_matrices(
    x: Tensor,
    memory: Tensor,
    attention: MultiHeadAttention,
    src_mask: _Mask,
    tgt_mask: _Mask,
    *,
    split: Callable[[Tensor, int], Tensor] = split_heads,
    merge: Callable[[Tensor], Tensor] = merge_heads,
    scaled_before: bool = False,
    mixed: bool = True,
) -> Tensor:
    read = (attention.w_q(x), attention.w_k(memory), attention.w_v(memory))
    query, key, value = (split(one, attention.num_heads) for one in read)
    query = query / query.size(-1) ** 0.5 if scaled_before else query
    merged = merge(scaled_dot_product_attention(query, key, value, src_mask))
    return attention.w_o(merged) if mixed else merged


again(cross_attention, "padding-mask-missing", line=(_ACROSS, "attention(x, memory, memory)"))
for _dealt in (split_view, split_interleaved):
    again(cross_attention, _dealt.id, by=partial(_from_the_matrices, split=_dealt.wrong))
again(
    cross_attention,
    "merge-no-transpose",
    by=partial(_from_the_matrices, merge=merge_no_transpose.wrong),
)
misconception(
    cross_attention,
    "Your mask hides what must be visible: True means may attend.",
    line=(_ACROSS, "attention(x, memory, memory, ~src_mask)"),
)
misconception(
    cross_attention,
    "Your mask marks what is hidden: True means may attend.",
    line=(_ACROSS, "attention(x, memory, memory, None if src_mask is None else ~src_mask)"),
)
misconception(
    cross_attention,
    "You exchanged the roles: the target has the queries, the memory the keys and values.",
    line=(_ACROSS, "attention(memory, x, x, tgt_mask)"),
)
misconception(
    cross_attention,
    "You exchanged the inputs: queries come from x, keys from the memory.",
    line=(_ACROSS, "attention(memory, x, x, src_mask)"),
)
misconception(
    cross_attention,
    "You added x: the residual sum is outside the attention.",
    line=(_ACROSS, f"x + {_ACROSS}"),
)
misconception(
    cross_attention,
    "You divided the queries by the square root of d_k, but F.scaled_dot_product_attention does "
    "that already.",
    by=partial(_from_the_matrices, scaled_before=True),
)
misconception(
    cross_attention,
    "The heads are concatenated but not mixed: apply w_o.",
    by=partial(_from_the_matrices, mixed=False),
)


def _target_mask_cases() -> Cases:
    return {
        "twelve numbers": (example.tgt.clone(),),
        "one sentence": (example.distinct.tgt[:1],),
        "all sizes differ": (example.distinct.tgt.clone(),),
    }


@task(
    _target_mask_cases,
    forbidden=("causal_mask", "tril", "triu"),
    measures="a mask from lengths, never from ids",
)
def target_mask(tgt: Tensor) -> Tensor:
    """tgt (batch, tgt) -> (1, 1, tgt, tgt), True = may attend"""
    return causal_mask(tgt.size(1))


@solved(target_mask)
def _mask_of_target(tgt: Tensor) -> Tensor:
    place = torch.arange(tgt.size(1), device=tgt.device)
    return (place[:, None] >= place)[None, None]


mistake(
    target_mask,
    "causal-batch-size",
    "You built the causal mask for len(tgt), the number of sentences: build it for their length, "
    "tgt.size(1).",
    line=("tgt.size(1)", "len(tgt)"),
    step="12",
)
again(target_mask, "causal-triu", line=("size(1))", "size(1)).mT"))
again(target_mask, "causal-diagonal", line=("size(1))", "size(1)).tril(-1)"))
misconception(
    target_mask,
    "Your mask marks what is hidden: True means may attend.",
    line=("return ", "return ~"),
)
misconception(
    target_mask,
    "You hid padding as well: only the order of the positions counts here.",
    line=("size(1))", "size(1)) & padding_mask(tgt)"),
)
misconception(
    target_mask,
    "You made a mask for each sentence: they are all equal, so axis 0 has size 1.",
    line=("size(1))", "size(1)).expand(len(tgt), -1, -1, -1)"),
)


def _layers(model) -> tuple[list[_Layer], Callable[[Tensor], Tensor]]:
    layers = [
        lambda x, memory, tgt_mask, src_mask, layer=layer: layer(
            x, memory, tgt_mask=tgt_mask, src_mask=src_mask
        )
        for layer in model.decoder.layers
    ]
    return layers, model.decoder.norm


def _decoder_cases() -> Cases:
    twelve, larger = example.model(), example.distinct.model()
    memory, draw = twelve.encoder(vectors()).detach(), seeded()
    x, other, longer = draw(2, 4, 24), draw(2, 5, 24), draw(2, 5, 24)
    few = (example.tgt_mask.clone(), example.src_mask.clone())
    many = (example.distinct.tgt_mask.clone(), example.distinct.src_mask.clone())
    return {
        "twelve numbers": (vectors(example.tgt), memory, *_layers(twelve), *few),
        "one word": (x[:, :1].clone(), other, *_layers(larger), many[0][..., :1, :1], many[1]),
        "as many words on both sides": (
            longer, other.clone(), *_layers(larger), causal_mask(5), many[1].clone(),
        ),
        "all sizes differ": (x, other.clone(), *_layers(larger), *many),
    }  # fmt: skip


@task(_decoder_cases, forbidden=("for",), measures="passing memory and both masks to each layer")
def decoder(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: _Norm,
    tgt_mask: _Mask,
    src_mask: _Mask,
) -> Tensor:
    """x (batch, tgt, d_model), memory (batch, src, d_model), layers, a list of functions of x,
    memory, tgt_mask and src_mask, norm, tgt_mask, src_mask -> (batch, tgt, d_model)
    """
    for layer in layers:
        x = layer(x, memory, tgt_mask, src_mask)
    return norm(x)


@solved(decoder)
def _write_sentence(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: _Norm,
    tgt_mask: _Mask,
    src_mask: _Mask,
) -> Tensor:
    return norm(reduce(lambda y, one: one(y, memory, tgt_mask, src_mask), layers, x))


mistake(
    decoder,
    "causal-missing",
    "The decoder layers do not get the causal mask, so that each word sees the one it must "
    "predict: pass the mask to each layer.",
    line=("layer(x, memory, tgt_mask", "layer(x, memory, None"),
    step="12",
)
again(
    decoder,
    "padding-mask-missing",
    line=("tgt_mask, src_mask)\n    return", "tgt_mask, None)\n    return"),
)
again(decoder, "norm-never-applied", line=("return norm(x)", "return x"))
misconception(
    decoder,
    "You applied the norm after every layer: apply it once, after the last layer.",
    line=(
        "x = layer(x, memory, tgt_mask, src_mask)\n    return norm(x)",
        "x = norm(layer(x, memory, tgt_mask, src_mask))\n    return x",
    ),
)
misconception(
    decoder,
    "You applied the norm after every layer and once more: apply it once, after the last layer.",
    line=(
        "x = layer(x, memory, tgt_mask, src_mask)\n    return norm(x)",
        "x = norm(layer(x, memory, tgt_mask, src_mask))\n    return norm(x)",
    ),
)
misconception(
    decoder,
    "You applied the norm before the layers: apply it after them.",
    by=lambda x, memory, layers, norm, *masks: decoder(
        norm(x), memory, layers, lambda y: y, *masks
    ),
)
misconception(
    decoder,
    "You exchanged the two masks: a layer takes tgt_mask first.",
    line=("memory, tgt_mask, src_mask)\n", "memory, src_mask, tgt_mask)\n"),
)
misconception(
    decoder,
    "No layer gets a mask: pass both masks to each layer.",
    line=("memory, tgt_mask, src_mask)\n", "memory, None, None)\n"),
)
misconception(
    decoder,
    "Your memory changes from layer to layer: all layers get the same memory.",
    line=("x = layer", "x = memory = layer"),
)
misconception(
    decoder,
    "You passed the stream in place of the memory: pass the memory to each layer.",
    line=("layer(x, memory", "layer(x, x"),
)
misconception(
    decoder,
    "Each layer reads the original x, so that only one of them counts: pass it the output of the "
    "layer before.",
    line=("in layers", "in layers[-1:]"),
)
misconception(
    decoder,
    "The layers run in reversed order: start with the first.",
    line=("in layers", "in layers[::-1]"),
)
misconception(
    decoder,
    "You added x to the output of a layer: the layers contain the residual sums already.",
    line=("= layer", "= x + layer"),
)


def _decoder_layer_cases() -> Cases:
    twelve, larger = example.model(), example.distinct.model().decoder.layers[-1]
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
    tgt_mask, src_mask = example.distinct.tgt_mask.clone(), example.distinct.src_mask.clone()
    hidden = example.tgt_mask.clone(), example.src_mask.clone()
    one = tgt_mask[..., :1, :1].clone()
    return {
        "twelve numbers": (vectors(example.tgt), memory, *few, plain, *hidden),
        "one word": (x[:, :1].clone(), other, *many, norms, one, src_mask.clone()),
        "all sizes differ": (x, other.clone(), *many, norms, tgt_mask, src_mask),
    }


@task(_decoder_layer_cases, measures="three sublayers, each with its inputs and mask")
def decoder_layer(
    x: Tensor,
    memory: Tensor,
    back: _Attention,
    across: _Attention,
    think: _Norm,
    norms: Sequence[_Norm],
    tgt_mask: _Mask,
    src_mask: _Mask,
    *,
    adds: Sequence[Callable[..., Tensor]] = (residual,) * 3,
    look_across: Callable[..., Tensor] = cross_attention,
    order: Sequence[int] = (0, 1, 2),
) -> Tensor:
    """x (batch, tgt, d_model), memory (batch, src, d_model), back, across, think, the three
    sublayers, norms, a list of three, tgt_mask, src_mask -> (batch, tgt, d_model)
    """
    sublayers = (
        lambda query: back(query, query, query, tgt_mask),
        lambda query: look_across(query, memory, across, src_mask, tgt_mask),
        think,
    )
    for place in order:
        x = adds[place](x, sublayers[place], norms[place])
    return x


@solved(decoder_layer)
def _write_layer(
    x: Tensor,
    memory: Tensor,
    back: _Attention,
    across: _Attention,
    think: _Norm,
    norms: Sequence[_Norm],
    tgt_mask: _Mask,
    src_mask: _Mask,
) -> Tensor:
    looks = (
        lambda asks: back(asks, asks, asks, tgt_mask),
        lambda asks: across(asks, memory, memory, src_mask),
    )
    for normed, sublayer in zip(norms, (*looks, think), strict=True):
        x = x + sublayer(normed(x))
    return x


def _with(change: Callable[..., tuple[Any, ...]], **switches: Any) -> Callable[..., Tensor]:
    """Run a layer with other norms or masks than those of the case."""

    def run(*given: Any) -> Tensor:
        *rest, norms, tgt_mask, src_mask = given
        return decoder_layer(*rest, *change(norms, tgt_mask, src_mask), **switches)

    return run


again(decoder_layer, "cross-value-target", look_across=cross_value_target.wrong)
for _unused in cross_attention.mistakes["cross-memory-unused"]:
    again(decoder_layer, "cross-memory-unused", look_across=_unused)
again(
    decoder_layer,
    "causal-missing",
    by=_with(lambda norms, tgt_mask, src_mask: (norms, None, src_mask)),
)
again(
    decoder_layer,
    "padding-mask-missing",
    by=_with(lambda norms, tgt_mask, src_mask: (norms, tgt_mask, None)),
)
# In all three sums, or in one of them.
for _id, (_add, *_) in residual.mistakes.items():
    again(decoder_layer, _id, adds=(_add,) * 3)
    again(decoder_layer, _id, adds=(_add, residual, residual))
    again(decoder_layer, _id, adds=(residual, _add, residual))
    again(decoder_layer, _id, adds=(residual, residual, _add))
misconception(
    decoder_layer,
    "You call across before back: the order is back, across, think.",
    order=(1, 0, 2),
)
misconception(
    decoder_layer,
    "Your cross-attention comes before self-attention, and their norms are exchanged.",
    by=_with(lambda norms, *masks: ([norms[1], norms[0], norms[2]], *masks), order=(1, 0, 2)),
)
misconception(
    decoder_layer,
    "You applied the norms after the sublayers: apply them before.",
    adds=(lambda x, sublayer, norm: x + norm(sublayer(x)),) * 3,
)
misconception(decoder_layer, "You never call across, so that the source is not read.", order=(0, 2))
misconception(
    decoder_layer,
    "You exchanged the two masks: self-attention gets tgt_mask, cross-attention src_mask.",
    by=_with(lambda norms, tgt_mask, src_mask: (norms, src_mask, tgt_mask)),
)
misconception(
    decoder_layer,
    "Your cross-attention gets the mask of the target: it reads the source, so pass src_mask.",
    look_across=cross_mask_target.wrong,
)
misconception(
    decoder_layer,
    "You exchanged the roles in across: the target has the queries, the memory the keys and "
    "values.",
    look_across=lambda x, memory, across, src_mask, _: across(memory, x, x, src_mask),
)
misconception(
    decoder_layer,
    "You normalised the memory: it is normalised already.",
    line=("look_across(query, memory,", "look_across(query, norms[1](memory),"),
)
misconception(
    decoder_layer,
    "You used one norm for all three sublayers: each has its own norm.",
    by=_with(lambda norms, *masks: ([norms[0]] * 3, *masks)),
)
misconception(
    decoder_layer,
    "Each sum starts from the original x, so that only the last sum counts: start from the sum "
    "before it.",
    order=(2,),
)


@question(measures="that values have the source's length")
def value_shape(*, of_memory: bool = True) -> tuple[int, ...]:
    """the values of the cross-attention -> (batch, head, key, d_v)"""
    with torch.device("meta"):
        attention = MultiHeadAttention(20, 4)
        looked_at = torch.empty(7, 6 if of_memory else 3, 20)
        return tuple(attention.w_v(looked_at).unflatten(-1, (4, -1)).transpose(1, 2).shape)


again(value_shape, "cross-value-target", of_memory=False)


@question(
    measures="the whole map: triangle, block, empty columns", worked="(10 + 4 * 3) + (10 + 4 * 5)"
)
def dots(
    *,
    causal: bool = True,
    padding: bool = True,
    diagonal: bool = True,
    batches: Sequence[int] = (0, 1),
    halves: Sequence[int] = (0, 1),
) -> int:
    """how many dots the map of the companion's decoder has"""
    sizes, masks = example.SIZES, (example.distinct.tgt_mask, example.distinct.src_mask)
    widths = (sizes.tgt, sizes.src)
    shown = [
        (mask if used else torch.ones_like(mask)).expand(sizes.batch, 1, sizes.tgt, width)
        for mask, used, width in zip(masks, (causal, padding), widths, strict=True)
    ]
    if not diagonal:
        shown[0] = shown[0].tril(-1)
    return sum(int(shown[half][batch].sum()) for half in halves for batch in batches)


misconception(
    dots,
    "You counted every position of the target half: may the first position see the second?",
    causal=False,
)
misconception(
    dots, "You counted padding too: in batch 0 two source columns are empty.", padding=False
)
misconception(
    dots,
    "You counted every entry of both halves: what do the two masks hide?",
    causal=False,
    padding=False,
)
misconception(
    dots,
    "Either the diagonal is missing, or you subtracted padding in both sentences: only batch 0 "
    "has padding, and each position depends on itself.",
    diagonal=False,
)
misconception(dots, "This is batch 0 alone: the map shows both sentences.", batches=(0,))
misconception(dots, "This is batch 1 alone: the map shows both sentences.", batches=(1,))
misconception(dots, "This is the source half alone: the target attends to itself too.", halves=(1,))
misconception(
    dots, "This is the target half alone: the target attends to the source too.", halves=(0,)
)


@question(options=("memory", "mask", "both"), measures="that a mask belongs to its keys")
def stays(*, both_sentences: bool = True) -> frozenset[str]:
    """what can be reversed while the answer stays"""
    x, memory, attention, *masks = _cross_attention_cases()["twelve numbers"]
    first = 0 if both_sentences else 1
    x, memory, masks = x[first:], memory[first:], [mask[first:] for mask in masks]
    src_mask, turned = masks[0], masks[0].flip(-1)
    changed = {
        "memory": (memory.flip(1), src_mask),
        "mask": (memory, turned),
        "both": (memory.flip(1), turned),
    }
    before = attention(x, memory, memory, src_mask)
    return frozenset(
        name
        for name, (read, mask) in changed.items()
        if torch.allclose(attention(x, read, read, mask), before)
    )


misconception(
    stays,
    "Without padding the mask hides nothing. What about batch 0?",
    both_sentences=False,
)
misconception(
    stays,
    "The mask is not reversed: which position does it hide now?",
    by=lambda: stays(both_sentences=False) - {"mask", "both"},
)
misconception(
    stays,
    "If only the memory is reversed, which position does the mask hide?",
    by=lambda: stays(both_sentences=False) - {"mask"},
)
misconception(
    stays,
    "The memory is not reversed: which of its positions is hidden now?",
    by=lambda: stays(both_sentences=False) - {"memory", "both"},
)
misconception(
    stays,
    "If only the mask is reversed, which position is hidden?",
    by=lambda: stays(both_sentences=False) - {"memory"},
)
misconception(
    stays,
    "Each key moves together with its value: what else must move with them?",
    by=lambda: stays() - {"both"},
)
