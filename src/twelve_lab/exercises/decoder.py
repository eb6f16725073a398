"""Lesson 11: mistakes in a layer with self-attention and cross-attention."""

from collections.abc import Callable, Sequence
from functools import reduce

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
    made,
    mistake,
    notes,
    question,
    solved,
    task,
)
from twelve_lab.exercises.multi_head_attention import merge_heads, split_heads
from twelve_lab.exercises.numbers import SIZES, distinct_ids, seeded, vectors
from twelve_lab.exercises.parts import with_part
from twelve_lab.exercises.residual import residual

_Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
_Layer = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]
_Norm = Callable[[Tensor], Tensor]
_Mask = Tensor | None


def _cross_attention_cases() -> Cases:
    twelve = example.model().decoder.layers[0].cross_attention
    larger = example.distinct.model().decoder.layers[0].cross_attention
    pads = (example.src_mask.clone(), padding_mask(example.tgt))
    memory, [x, other, src_mask] = example.model().encoder(vectors()).detach(), _longer()
    return {
        "twelve numbers": (vectors(example.tgt), memory, twelve, *pads),
        "all sizes differ, no padding": (x.clone(), other.clone(), larger, None, None),
        "all sizes differ": (x, other, larger, src_mask, src_mask[..., : SIZES.tgt].clone()),
    }


def _longer() -> tuple[Tensor, Tensor, Tensor]:
    """Draw three targets, three memories, and the padding mask of the sources."""
    draw = seeded()
    targets, memory = draw(SIZES.batch, SIZES.tgt, 24), draw(SIZES.batch, SIZES.src, 24)
    return targets, memory, padding_mask(distinct_ids())


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
mistake(
    cross_attention,
    "cross-mask-target",
    "You hid the padding of the target in cross-attention, whose keys come from the source: pass "
    "the mask of the source.",
    {_ACROSS: "attention(x, memory, memory, tgt_mask)"},
)
mistake(
    cross_attention,
    "cross-value-target",
    "The keys come from the memory but the values from the decoder, so no content of the source "
    "arrives: take both from the memory.",
    {_ACROSS: "attention(x, memory, x, src_mask)"},
)
mistake(
    cross_attention,
    "cross-memory-unused",
    "The words attend to their own sentence instead of the other one: take the keys and values "
    "from the memory.",
    {_ACROSS: "attention(x, x, x, src_mask)"},
)
again(cross_attention, "cross-memory-unused", {_ACROSS: "attention(x, x, x, tgt_mask)"})
again(cross_attention, "cross-memory-unused", {_ACROSS: "attention(x, x, x, None)"})
again(cross_attention, "padding-mask-missing", {_ACROSS: "attention(x, memory, memory)"})


def _by_matrices(
    x: Tensor, memory: Tensor, attention: MultiHeadAttention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    query = split_heads(attention.w_q(x), attention.num_heads)
    key = split_heads(attention.w_k(memory), attention.num_heads)
    value = split_heads(attention.w_v(memory), attention.num_heads)
    return attention.w_o(merge_heads(scaled_dot_product_attention(query, key, value, src_mask)))


for _part in (split_heads, merge_heads):
    for _id, _versions in _part.mistakes.items():
        _wrong = with_part(_by_matrices, _part.right, made(_versions[0]))
        again(cross_attention, _id, by=_wrong)
notes(
    cross_attention,
    {
        'Your mask hides what must be visible: True means "may attend".': {
            _ACROSS: "attention(x, memory, memory, None if src_mask is None else ~src_mask)"
        },
        "You swapped the roles: the target has the queries, the memory the keys and values.": {
            _ACROSS: "attention(memory, x, x, tgt_mask)"
        },
        "You swapped the inputs: queries come from x, keys from the memory.": {
            _ACROSS: "attention(memory, x, x, src_mask)"
        },
        "You added x: the residual sum is computed outside the attention.": {
            _ACROSS: f"x + {_ACROSS}"
        },
    },
)


def _target_mask_cases() -> Cases:
    return {
        "twelve numbers": (example.tgt.clone(),),
        "one sentence": (distinct_ids()[:1],),
        "all sizes differ": (distinct_ids(),),
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
    {"tgt.size(1)": "len(tgt)"},
    step="12",
)
again(target_mask, "causal-triu", {"return MASK": "return MASK.mT"})
again(target_mask, "causal-diagonal", {"return MASK": "return MASK.tril(-1)"})
notes(
    target_mask,
    {
        'Your mask marks what is hidden: True means "may attend".': {"return MASK": "return ~MASK"},
        "You hid padding as well: only the order of the positions counts here.": {
            "return MASK": "return MASK & padding_mask(tgt)"
        },
        "You made a mask for each sentence: they are all equal, so axis 0 must have size 1.": {
            "return MASK": "return MASK.expand(len(tgt), -1, -1, -1)"
        },
    },
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
    memory, [x, other, src_mask] = twelve.encoder(vectors()).detach(), _longer()
    longer, tgt_mask = seeded(13)(*other.shape), causal_mask(SIZES.tgt)
    few = (example.tgt_mask.clone(), example.src_mask.clone())
    return {
        "twelve numbers": (vectors(example.tgt), memory, *_layers(twelve), *few),
        "one word": (
            x[:, :1].clone(), other, *_layers(larger), causal_mask(1), src_mask.clone(),
        ),
        "equal lengths": (
            longer, other.clone(), *_layers(larger), causal_mask(SIZES.src), src_mask.clone(),
        ),
        "all sizes differ": (x, other.clone(), *_layers(larger), tgt_mask, src_mask),
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


_LAYER = "layer(x, memory, tgt_mask, src_mask)"
_LOOP = f"for layer in layers:\n    x = {_LAYER}"
mistake(
    decoder,
    "causal-missing",
    "The decoder layers do not get the causal mask, so each word sees the one it must predict: "
    "pass the mask to each layer.",
    {_LAYER: "layer(x, memory, None, src_mask)"},
    step="12",
)
again(decoder, "padding-mask-missing", {_LAYER: "layer(x, memory, tgt_mask, None)"})
again(decoder, "norm-never-applied", {"return norm(x)": "return x"})
notes(
    decoder,
    {
        "You applied the norm after every layer: apply it once, after the last layer.": {
            _LAYER: f"norm({_LAYER})",
            "return norm(x)": "return x",
        },
        "You applied the norm after every layer and again at the end: apply it once, after the "
        "last layer.": {_LAYER: f"norm({_LAYER})"},
        "You applied the norm before the layers: apply it after them.": {
            _LOOP: f"x = norm(x)\n{_LOOP}",
            "return norm(x)": "return x",
        },
        "You swapped the two masks: a layer takes tgt_mask first.": {
            _LAYER: "layer(x, memory, src_mask, tgt_mask)"
        },
        "No layer gets a mask: pass both masks to each layer.": {
            _LAYER: "layer(x, memory, None, None)"
        },
        "Your memory changes from layer to layer: give all layers the same memory.": {
            f"x = {_LAYER}": f"x = memory = {_LAYER}"
        },
        "You passed the stream instead of the memory: pass the memory to each layer.": {
            _LAYER: "layer(x, x, tgt_mask, src_mask)"
        },
        "Each layer reads the original x, so only one of them counts: pass it the output of "
        "the layer before.": {_LOOP: _LOOP.replace("in layers", "in layers[-1:]")},
        "The layers run in reversed order: start with the first.": {
            _LOOP: _LOOP.replace("in layers", "in layers[::-1]")
        },
        "You added x to the output of a layer: the layers already contain the residual sums.": {
            _LAYER: f"x + {_LAYER}"
        },
    },
)


def _decoder_layer_cases() -> Cases:
    twelve, larger = example.model(), example.distinct.model().decoder.layers[-1]
    small, draw, [x, other, src_mask] = twelve.decoder.layers[0], seeded(13), _longer()
    memory = twelve.encoder(vectors()).detach()
    few, many = (
        (layer.self_attention, layer.cross_attention, layer.feed_forward)
        for layer in (small, larger)
    )
    norms = [nn.LayerNorm(24, dtype=x.dtype) for _ in range(3)]
    for norm in norms:
        norm.weight.data, norm.bias.data = 1 + draw(24) / 5, draw(24) / 5
    plain = [norm.norm for norm in small.children() if hasattr(norm, "norm")]
    hidden = example.tgt_mask.clone(), example.src_mask.clone()
    return {
        "twelve numbers": (vectors(example.tgt), memory, *few, plain, *hidden),
        "one word": (x[:, :1].clone(), other, *many, norms, causal_mask(1), src_mask.clone()),
        "all sizes differ": (x, other.clone(), *many, norms, causal_mask(SIZES.tgt), src_mask),
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
) -> Tensor:
    """x (batch, tgt, d_model), memory (batch, src, d_model), back, across and think (the three
    sublayers), norms (a list of three), tgt_mask, src_mask -> (batch, tgt, d_model)
    """
    x = residual(x, lambda q: back(q, q, q, tgt_mask), norms[0])
    x = residual(x, lambda q: cross_attention(q, memory, across, src_mask, tgt_mask), norms[1])
    return residual(x, think, norms[2])


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


_BACK, _CROSS = "residual(x, SELF, norms[0])", "residual(x, CROSS, norms[1])"
again(decoder_layer, "causal-missing", {"back(q, q, q, tgt_mask)": "back(q, q, q, None)"})
# One of the three sums is wrong. If all three are wrong, it is a mistake of `residual`.
for _id, _sum in (
    ("residual-overwritten", "{norm}(x) + SUB({norm}(x))"),
    ("residual-missing", "SUB({norm}(x))"),
    ("norm-bypassed", "x + SUB(x)"),
    ("norm-order", "{norm}(x + SUB(x))"),
):
    for _norm in ("norms[0]", "norms[1]", "norms[2]"):
        again(decoder_layer, _id, {f"residual(x, SUB, {_norm})": _sum.format(norm=_norm)})
notes(
    decoder_layer,
    {
        "You called across before back: the order must be back, across, think.": {
            f"x = {_BACK}": "y = lambda x: residual(x, SELF, norms[0])",
            f"x = {_CROSS}": "x = y(residual(x, CROSS, norms[1]))",
        },
        "Your cross-attention comes before self-attention, and their norms are swapped.": {
            f"x = {_BACK}": "y = lambda x: residual(x, SELF, norms[1])",
            f"x = {_CROSS}": "x = y(residual(x, CROSS, norms[0]))",
        },
        "You applied the norms after the sublayers: apply them before.": {
            _BACK: "x + norms[0]((SELF)(x))",
            _CROSS: "x + norms[1]((CROSS)(x))",
            "residual(x, think, norms[2])": "x + norms[2](think(x))",
        },
        "You never call across, so the source is not read.": {f"x = {_CROSS}": "pass"},
        "You swapped the two masks: self-attention gets tgt_mask, cross-attention src_mask.": {
            "back(q, q, q, tgt_mask)": "back(q, q, q, src_mask)",
            "cross_attention(q, memory, across, src_mask, tgt_mask)": "across(q, memory, memory, "
            "tgt_mask)",
        },
        "You normalised the memory: it is already normalised.": {
            "cross_attention(q, memory, across, src_mask, tgt_mask)": "across(q, "
            "norms[1](memory), norms[1](memory), src_mask)"
        },
        "You normalised only the query of the self-attention: take the keys and values from "
        "the normalised x too.": {_BACK: "x + back(norms[0](x), x, x, tgt_mask)"},
        "Your cross-attention takes its queries from the output of the first norm: normalise "
        "the first sum.": {
            f"x = {_BACK}": "start, x = x, residual(x, SELF, norms[0])",
            f"x = {_CROSS}": "x = x + (CROSS)(norms[0](start))",
        },
        "All three sublayers read the original x: each must read the sum before it.": {
            f"x = {_BACK}": "start, x = x, residual(x, SELF, norms[0])",
            f"x = {_CROSS}": "x = x + (CROSS)(norms[1](start))",
            "residual(x, think, norms[2])": "x + think(norms[2](start))",
        },
        "You used one norm for all three sublayers: each needs its own norm.": {
            "norms[1]": "norms[0]",
            "norms[2]": "norms[0]",
        },
        "Each sum starts from the original x, so only the last sum counts: start from the sum "
        "before it.": {f"x = {_BACK}": "pass", f"x = {_CROSS}": "pass"},
    },
)


@question(measures="that values have the source's length")
def value_shape() -> tuple[int, ...]:
    """the values of the cross-attention -> (batch, head, key, d_v)"""
    with torch.device("meta"):
        values = MultiHeadAttention(20, 4).w_v(torch.empty(7, 6, 20))
        return tuple(values.unflatten(-1, (4, -1)).transpose(1, 2).shape)


again(value_shape, "cross-value-target", {"torch.empty(7, 6, 20)": "torch.empty(7, 3, 20)"})


@question(
    measures="the whole map: triangle, block, empty columns", worked="(10 + 4 * 3) + (10 + 4 * 5)"
)
def dots() -> int:
    """how many dots the map of a decoder run on `example.distinct` has"""
    own = example.distinct.tgt_mask.expand(2, 1, 4, 4)
    source = example.distinct.src_mask.expand(2, 1, 4, 5)
    return int(own.sum() + source.sum())


notes(
    dots,
    {
        "You counted every position of the target half: may the first position see the second?": 64,
        "You counted padding too: in batch 0 two source columns are empty.": 60,
        "You counted every entry of both halves: what do the two masks hide?": 72,
        "Either the diagonal is missing, or you subtracted padding in both sentences: only batch "
        "0 has padding, and each position depends on itself.": 44,
        "This is only batch 0: the map shows both sentences.": 22,
        "This is only batch 1: the map shows both sentences.": 30,
        "This is only the source half: the target attends to itself too.": 32,
        "This is only the target half: the target attends to the source too.": 20,
    },
)


@question(options=("memory", "mask", "both"), measures="that a mask belongs to its keys")
def stays() -> frozenset[str]:
    """what can be reversed while the answer stays"""
    x, memory, attention, src_mask, _ = _cross_attention_cases()["twelve numbers"]
    changed = {
        "memory": (memory.flip(1), src_mask),
        "mask": (memory, src_mask.flip(-1)),
        "both": (memory.flip(1), src_mask.flip(-1)),
    }
    before = attention(x, memory, memory, src_mask)
    return frozenset(
        name
        for name, (read, mask) in changed.items()
        if torch.allclose(attention(x, read, read, mask), before)
    )


notes(
    stays,
    {
        "Without padding, the mask hides nothing. What about batch 0?": {"memory", "mask", "both"},
        "The mask is not reversed: which position does it hide now?": {"memory"},
        "If only the memory is reversed, which position does the mask hide?": {"memory", "both"},
        "The memory is not reversed: which of its positions is hidden now?": {"mask"},
        "If only the mask is reversed, which position is hidden?": {"mask", "both"},
        "Each key moves with its value: what else must move with them?": set(),
    },
)
