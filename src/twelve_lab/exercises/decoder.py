"""Step 11: what looking back and looking across invite."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve.attention import scaled_dot_product_attention
from twelve.masks import causal_mask, padding_mask
from twelve.multi_head_attention import MultiHeadAttention
from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises import multi_head_attention, residual
from twelve_lab.exercises.numbers import seeded, vectors

_Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
_Layer = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]
_Mask = Tensor | None
_RIGHT = {task.name: task.right for task in multi_head_attention.TARGETS + residual.TARGETS}
_HEADS = {mistake.id: mistake.wrong for mistake in multi_head_attention.MISTAKES}
_SUMS = {mistake.id: mistake.wrong for mistake in residual.MISTAKES if mistake.target == "residual"}


def _cross_attention(
    x: Tensor, memory: Tensor, attention: _Attention, src_mask: _Mask, tgt_mask: _Mask
) -> Tensor:
    return attention(x, memory, memory, src_mask)


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


def _from_the_matrices(
    x: Tensor,
    memory: Tensor,
    attention: MultiHeadAttention,
    src_mask: _Mask,
    tgt_mask: _Mask,
    *,
    split: Callable[[Tensor, int], Tensor] = _RIGHT["split_heads"],
    merge: Callable[[Tensor], Tensor] = _RIGHT["merge_heads"],
    scaled_before: bool = False,
    mixed: bool = True,
) -> Tensor:
    read = (attention.w_q(x), attention.w_k(memory), attention.w_v(memory))
    query, key, value = (split(one, attention.num_heads) for one in read)
    query = query / query.size(-1) ** 0.5 if scaled_before else query
    merged = merge(scaled_dot_product_attention(query, key, value, src_mask))
    return attention.w_o(merged) if mixed else merged


def _target_mask(tgt: Tensor) -> Tensor:
    return causal_mask(tgt.size(1))


def _target_mask_cases() -> Cases:
    return {
        "twelve numbers": (example.tgt.clone(),),
        "one sentence": (example.distinct.tgt[:1],),
        "all sizes differ": (example.distinct.tgt.clone(),),
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


def _stack_that_adds(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: Callable[[Tensor], Tensor],
    tgt_mask: _Mask,
    src_mask: _Mask,
) -> Tensor:
    for layer in layers:
        x = x + layer(x, memory, tgt_mask, src_mask)
    return norm(x)


def _norm_after_each(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: Callable[[Tensor], Tensor],
    tgt_mask: _Mask,
    src_mask: _Mask,
    *,
    also_last: bool,
) -> Tensor:
    for layer in layers:
        x = norm(layer(x, memory, tgt_mask, src_mask))
    return norm(x) if also_last else x


def _memory_flows(
    x: Tensor,
    memory: Tensor,
    layers: Sequence[_Layer],
    norm: Callable[[Tensor], Tensor],
    tgt_mask: _Mask,
    src_mask: _Mask,
    *,
    from_the_start: bool,
) -> Tensor:
    for layer in layers:
        memory = x if from_the_start else memory
        x = memory = layer(x, memory, tgt_mask, src_mask)
    return norm(x)


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
    adds: Sequence[Callable[..., Tensor]] = (_RIGHT["residual"],) * 3,
    look_across: Callable[..., Tensor] = _cross_attention,
    order: Sequence[int] = (0, 1, 2),
) -> Tensor:
    sublayers = (
        lambda query: back(query, query, query, tgt_mask),
        lambda query: look_across(query, memory, across, src_mask, tgt_mask),
        think,
    )
    for place in order:
        x = adds[place](x, sublayers[place], norms[place])
    return x


def _sums_from_the_start(
    x: Tensor, memory: Tensor, back: _Attention, across: _Attention, *rest: Any
) -> Tensor:
    think, norms, _, _ = rest
    return x + think(norms[2](x))


def _memory_normed(
    x: Tensor, memory: Tensor, back: _Attention, across: _Attention, *rest: Any
) -> Tensor:
    norm = rest[1][1]
    return _decoder_layer(x, norm(memory), back, across, *rest)


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


def _layer_with(change: Callable[..., tuple[Any, ...]]) -> Callable[..., Tensor]:
    """Let a layer run on other norms or masks than those that it is given."""

    def run(*given: Any) -> Tensor:
        *rest, norms, tgt_mask, src_mask = given
        return _decoder_layer(*rest, *change(norms, tgt_mask, src_mask))

    return run


def _layer_without(*hidden: str) -> Callable[..., Tensor]:
    def run(*given: Any) -> Tensor:
        *rest, tgt_mask, src_mask = given
        masks = {"tgt_mask": tgt_mask, "src_mask": src_mask} | dict.fromkeys(hidden)
        return _decoder_layer(*rest, **masks)

    return run


def _norm_behind(
    x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]
) -> Tensor:
    return x + norm(sublayer(x))


def _added_once(add: Callable[..., Tensor]) -> Iterator[Callable[..., Tensor]]:
    """Make a mistake at one of the three sums."""
    for place in range(3):
        adds = [_RIGHT["residual"]] * 3
        adds[place] = add
        yield partial(_decoder_layer, adds=adds)


def _value_shape(*, of_memory: bool = True) -> tuple[int, ...]:
    with torch.device("meta"):
        attention = MultiHeadAttention(20, 4)
        looked_at = torch.empty(7, 6 if of_memory else 3, 20)
        return tuple(attention.w_v(looked_at).unflatten(-1, (4, -1)).transpose(1, 2).shape)


def _dots(
    *,
    causal: bool = True,
    padding: bool = True,
    diagonal: bool = True,
    batches: Sequence[int] = (0, 1),
    halves: Sequence[int] = (0, 1),
) -> int:
    sizes, masks = example.SIZES, (example.distinct.tgt_mask, example.distinct.src_mask)
    widths = (sizes.tgt, sizes.src)
    shown = [
        (mask if used else torch.ones_like(mask)).expand(sizes.batch, 1, sizes.tgt, width)
        for mask, used, width in zip(masks, (causal, padding), widths, strict=True)
    ]
    if not diagonal:
        shown[0] = shown[0].tril(-1)
    return sum(int(shown[half][batch].sum()) for half in halves for batch in batches)


def _stays(*, both_sentences: bool = True) -> frozenset[str]:
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
        slips={
            "You counted the target half as a block: may the first place hear the second?": partial(
                _dots, causal=False
            ),
            "You counted padding too: in batch 0 two columns of the block are empty.": partial(
                _dots, padding=False
            ),
            "You counted all of both halves: what do the two masks hide?": partial(
                _dots, causal=False, padding=False
            ),
            "Either the diagonal is missing, or padding was taken off both sentences: only batch 0 "
            "has any, and a place hears itself.": partial(_dots, diagonal=False),
            "That is batch 0 alone: the map shows both sentences.": partial(_dots, batches=(0,)),
            "That is batch 1 alone: the map shows both sentences.": partial(_dots, batches=(1,)),
            "That is the source half alone: the places look back at themselves, too.": partial(
                _dots, halves=(1,)
            ),
            "That is the target half alone: the places look across at the source, too.": partial(
                _dots, halves=(0,)
            ),
        },
    ),
    Question(
        name="stays",
        contract="what can be turned round while the answer stays",
        right=_stays,
        options=("memory", "mask", "both"),
        slips={
            "In a sentence without padding the mask hides nothing. What of batch 0?": partial(
                _stays, both_sentences=False
            ),
            "The mask has stayed where it was: which place does it hide now?": (
                lambda: _stays(both_sentences=False) - {"mask", "both"}
            ),
            "With the memory alone turned, which place does the mask hide?": lambda: (
                _stays(both_sentences=False) - {"mask"}
            ),
            "The memory has stayed where it was: which of its places is hidden now?": (
                lambda: _stays(both_sentences=False) - {"memory", "both"}
            ),
            "With the mask alone turned, which place is hidden?": (
                lambda: _stays(both_sentences=False) - {"memory"}
            ),
            "Each key takes its value along: what would have to come along as well?": (
                lambda: _stays() - {"both"}
            ),
        },
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
            "padding-mask-missing": lambda x, memory, attention, *_: attention(x, memory, memory),
            **{
                id: partial(_from_the_matrices, split=_HEADS[id])
                for id in ("split-view", "split-interleaved")
            },
            "merge-no-transpose": partial(_from_the_matrices, merge=_HEADS["merge-no-transpose"]),
        },
        slips={
            "Your mask hides what may be seen: here True means may attend.": (
                lambda x, memory, attention, src_mask, _: attention(x, memory, memory, ~src_mask)
            ),
            "Your mask says what is hidden: here True means may attend.": (
                lambda x, memory, attention, src_mask, _: attention(
                    x, memory, memory, None if src_mask is None else ~src_mask
                )
            ),
            "The memory asks here and the target answers: it is the target that asks.": (
                lambda x, memory, attention, src_mask, tgt_mask: attention(memory, x, x, tgt_mask)
            ),
            "Queries are made of x here, and keys of the memory.": (
                lambda x, memory, attention, src_mask, _: attention(memory, x, x, src_mask)
            ),
            "You added x: the sum stands around the attention and is not asked for.": (
                lambda x, memory, attention, src_mask, _: x + attention(x, memory, memory, src_mask)
            ),
            "You divide the queries by the root of d_k, and F.scaled_dot_product_attention divides "
            "by it once more.": partial(_from_the_matrices, scaled_before=True),
            "The heads are put side by side and not mixed: w_o is never called.": partial(
                _from_the_matrices, mixed=False
            ),
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
        slips={
            "Your mask says what is hidden: here True means may attend.": (
                lambda tgt: ~_target_mask(tgt)
            ),
            "You hid padding as well: here only the order of the places counts.": lambda tgt: (
                _target_mask(tgt) & padding_mask(tgt)
            ),
            "You made a mask for each sentence: they would be alike, so axis 0 has size 1.": (
                lambda tgt: _target_mask(tgt).expand(len(tgt), -1, -1, -1)
            ),
        },
        avoid=("causal_mask", "tril", "triu"),
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
        slips={
            "The norm runs after every layer: call it once, on what leaves the last one.": partial(
                _norm_after_each, also_last=False
            ),
            "The norm runs after every layer, and once more: once, behind the last one, is due.": (
                partial(_norm_after_each, also_last=True)
            ),
            "The norm comes in front of the layers, and is due behind them.": (
                lambda x, memory, layers, norm, *masks: _norm_never_applied(
                    norm(x), memory, layers, norm, *masks
                )
            ),
            "The two masks have changed places: a layer takes tgt_mask first.": (
                lambda *given: _decoder(*given[:4], given[5], given[4])
            ),
            "No layer gets a mask.": lambda *given: _decoder(*given[:4], None, None),
            "The next layer is given what the last one left as its memory, too: the memory is the "
            "same for all of them.": partial(_memory_flows, from_the_start=False),
            "The stream stands in place of the memory: what was read is never heard.": partial(
                _memory_flows, from_the_start=True
            ),
            "Each layer reads the x that came in, so only one of them counts: it must read what "
            "the one before it left.": (
                lambda x, memory, layers, norm, *masks: norm(layers[-1](x, memory, *masks))
            ),
            "The layers run from the last to the first: turn their order round.": (
                lambda x, memory, layers, *rest: _decoder(x, memory, layers[::-1], *rest)
            ),
            "You add x to what a layer gives: the sums stand inside the layers already.": (
                _stack_that_adds
            ),
        },
        avoid=("a loop",),
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
            **{id: partial(_decoder_layer, adds=(add,) * 3) for id, add in _SUMS.items()},
        },
        halves={
            "cross-memory-unused": tuple(
                partial(_decoder_layer, look_across=look)
                for look in (_looks_at_itself, _looks_at_itself_unmasked)
            ),
            **{id: tuple(_added_once(add)) for id, add in _SUMS.items()},
        },
        slips={
            "The order is back, across, think: yours looks across before it looks back.": partial(
                _decoder_layer, order=(1, 0, 2)
            ),
            "You look across before you look back, and each with the norm of the other.": (
                lambda x, memory, back, across, think, norms, *masks: _decoder_layer(
                    x,
                    memory,
                    back,
                    across,
                    think,
                    [norms[1], norms[0], norms[2]],
                    *masks,
                    order=(1, 0, 2),
                )
            ),
            "The norms stand behind the sublayers, and are due in front of them.": partial(
                _decoder_layer, adds=(_norm_behind,) * 3
            ),
            "You never call across, so what was read is not heard.": partial(
                _decoder_layer, order=(0, 2)
            ),
            "The two masks have changed places: looking back goes with tgt_mask, looking across "
            "with src_mask.": _layer_with(
                lambda norms, tgt_mask, src_mask: (norms, src_mask, tgt_mask)
            ),
            "Looking across gets the mask of the target, but it looks at the source.": partial(
                _decoder_layer, look_across=_cross_mask_target
            ),
            "The memory asks in your across: it is the target that asks.": (
                partial(
                    _decoder_layer,
                    look_across=lambda x, memory, across, src_mask, _: across(
                        memory, x, x, src_mask
                    ),
                )
            ),
            "The memory goes through one of your norms: it comes normed and stays as it is.": (
                _memory_normed
            ),
            "One norm serves all three sublayers: each has its own.": _layer_with(
                lambda norms, *masks: ([norms[0]] * 3, *masks)
            ),
            "Only the last sum is left, since each starts from the x that came in: it must start "
            "from what the one before it left.": _sums_from_the_start,
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
