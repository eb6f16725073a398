"""Ablations: run a language model without some of its parts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from twelve import LanguageLayer, LanguageModel
from twelve._checks import check_between

# Parts of all layers, or of one layer if its number follows.
EACH = ("attention", "feed-forward", "rotation", "division", "residual around attention",
        "residual around feed-forward", "norms")  # fmt: skip
# Open `with` blocks of each model, outermost first.
_OPEN: WeakKeyDictionary[LanguageModel, list[ExitStack]] = WeakKeyDictionary()


@contextmanager
def without(model: LanguageModel, *parts: str) -> Iterator[LanguageModel]:
    """Run a model without some of its parts, which are restored when the block ends.

        with without(model, "head 23.4"):
            logits = model(ids)

    `head 23.4` (layer and head), `attention 23` and `feed-forward 23` add nothing to the stream.
    `rotation`, `division` by √d_k, `residual around attention`, `residual around feed-forward`
    and `norms` are skipped, in all layers or in one (`rotation 16`). `norms` without a number
    includes the last norm. `causal mask` has no number.

    Args:
        model: A language model.
        *parts: The parts to remove.

    Raises:
        ValueError: If the model is not a LanguageModel, or has no such part, layer or head; inside
            the block, if the model is deep-copied or pickled.
        RuntimeError: On leaving the block, if a block opened later is still open.
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(f"without: model must be a LanguageModel, got a {type(model).__name__}")
    blocks, back = _OPEN.setdefault(model, []), ExitStack()
    blocks.append(back)
    try:
        if len(blocks) == 1:
            # deepcopy and pickle look it up.
            put_method(back, model, "__reduce_ex__", _refuse_copy)
        for part in parts:
            _remove(model, part, back)
        yield model
    finally:
        is_early = back in blocks and blocks[-1] is not back
        # Each block restores what it replaced, so blocks must close in reverse order.
        while back in blocks:
            blocks.pop().close()
        if is_early:
            raise RuntimeError("without: leave the inner block first; all parts are restored now")


def _refuse_copy(protocol: int) -> NoReturn:
    # The hooks and methods of a copy would never be restored, and would use this model.
    raise ValueError(
        "without: copy or pickle the model before the block, since a copy stays without parts"
    )


def _remove(model: LanguageModel, part: str, back: ExitStack) -> None:
    if part == "causal mask":
        put_method(back, model, "make_mask", lambda ids, start, key_mask: key_mask)
        return
    match = re.fullmatch(r"(.+?)(?: (\d+)(?:\.(\d+))?)?", part) if isinstance(part, str) else None
    name, layer, head = match.groups() if match else (part, None, None)
    if name not in ("head", *EACH) or (name == "head") != (head is not None):
        known = ", ".join(("head 0.0", "causal mask", *EACH))
        raise ValueError(f"without: no part is named {part!r}; there are {known}, of all layers or "
                         "with the number of one")  # fmt: skip
    last = len(model.layers) - 1
    if layer is not None:
        check_between(f"without: {part!r}", 0, last, f"{last + 1} layers", layer=int(layer))
    for each in model.layers if layer is None else [model.layers[int(layer)]]:
        if head is None:
            _remove_from(each, name, back)
        else:
            heads = each.self_attention.num_heads
            check_between(f"without: {part!r}", 0, heads - 1, f"{heads} heads", head=int(head))
            clear = _clear_head(int(head), heads)
            back.enter_context(each.self_attention.w_o.register_forward_pre_hook(clear))
    if name == "norms" and layer is None:
        put_method(back, model.norm, "forward", _identity)


def _remove_from(layer: LanguageLayer, name: str, back: ExitStack) -> None:
    attention = layer.self_attention
    residuals = [layer.self_attention_residual, layer.feed_forward_residual]
    if name == "attention":
        back.enter_context(attention.register_forward_hook(_zeros))
    elif name == "feed-forward":
        back.enter_context(layer.feed_forward.register_forward_hook(_zeros))
    elif name == "rotation":
        back.callback(setattr, attention, "rotary", attention.rotary)
        attention.rotary = None
    elif name == "division":
        # A rotation keeps norms, so multiplying the query cancels the later division.
        root = math.sqrt(attention.d_k)
        back.enter_context(attention.w_q.register_forward_hook(lambda *run: run[-1] * root))
    elif name == "norms":
        for residual in residuals:
            put_method(back, residual.norm, "forward", _identity)
    else:
        around = residuals["forward" in name]
        put_method(back, around, "forward", lambda x, sublayer: sublayer(around.norm(x)))


def put_method(back: ExitStack, owner: nn.Module, name: str, value: Callable[..., Any]) -> None:
    """Replace a method of one object until the exit stack closes."""
    before = owner.__dict__.get(name)
    setattr(owner, name, value)
    restore = (delattr, owner, name) if before is None else (setattr, owner, name, before)
    back.callback(*restore)


def _identity(x: Tensor) -> Tensor:
    return x


def _zeros(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def _clear_head(head: int, heads: int) -> Callable[..., tuple[Tensor]]:
    def clear(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        by_head = inputs[0].unflatten(-1, (heads, -1)).clone()
        by_head[..., head, :] = 0.0
        return (by_head.flatten(-2),)

    return clear
