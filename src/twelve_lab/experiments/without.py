"""Without: a language model that runs for a while without one of its parts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from twelve import LanguageLayer, LanguageModel
from twelve._checks import check_between

# What is removed from every layer, or from the one whose number follows.
EACH = ("attention", "feed-forward", "rotation", "division", "residual around attention",
        "residual around feed-forward", "norms")  # fmt: skip


@contextmanager
def without(model: LanguageModel, *parts: str) -> Iterator[LanguageModel]:
    """Run a model without some of its parts; they are back when the block ends.

        with without(model, "head 23.4"):
            logits = model(ids)

    What is removed adds nothing to the stream (`head 23.4`: layer and head; `attention 23`,
    `feed-forward 23`), or is left out of the arithmetic: `rotation`, `division` by √d_k, `residual
    around attention`, `residual around feed-forward`, `norms`, each in all layers or, as in
    `rotation 16`, in one; and `causal mask`. `norms` without a number takes the last norm as well.

    Args:
        model: A language model, with kernels fused or not.
        *parts: What is removed, all at once.

    Raises:
        ValueError: If the model is none, or a part is unknown, or of a layer or head it lacks.
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(f"without: model must be a LanguageModel, got a {type(model).__name__}")
    with ExitStack() as back:
        for part in parts:
            _remove(model, part, back)
        yield model


def _remove(model: LanguageModel, part: str, back: ExitStack) -> None:
    if part == "causal mask":
        _put(back, model, "_mask", lambda ids, start, key_mask: key_mask)
        return
    found = re.fullmatch(r"(.+?)(?: (\d+)(?:\.(\d+))?)?", part)
    name, layer, head = found.groups() if found else (part, None, None)
    if name not in ("head", *EACH) or (name == "head") != (head is not None):
        known = ", ".join(("head 0.0", "causal mask", *EACH))
        raise ValueError(f"without: no part is named {part!r}; there are {known}, of all layers or "
                         "with the number of one")  # fmt: skip
    last = len(model.layers) - 1
    if layer is not None:
        check_between(f"without: {part!r}", 0, last, f"{last + 1} layers", layer=int(layer))
    for one in model.layers if layer is None else [model.layers[int(layer)]]:
        if head is None:
            _remove_from(one, name, back)
        else:
            heads = one.self_attention.num_heads
            check_between(f"without: {part!r}", 0, heads - 1, f"{heads} heads", head=int(head))
            clear = _clear_head(int(head), heads)
            back.enter_context(one.self_attention.w_o.register_forward_pre_hook(clear))
    if name == "norms" and layer is None:
        _put(back, model.norm, "forward", _as_it_is)


def _remove_from(layer: LanguageLayer, name: str, back: ExitStack) -> None:
    attention = layer.self_attention
    if name == "attention":
        back.enter_context(attention.register_forward_hook(_nothing))
    elif name == "feed-forward":
        back.enter_context(layer.feed_forward.register_forward_hook(_nothing))
    elif name == "rotation":
        back.callback(setattr, attention, "rotary", attention.rotary)
        attention.rotary = None
    elif name == "division":
        # A rotation keeps lengths: what is multiplied here is missing in the divisor there.
        root = math.sqrt(attention.d_k)
        back.enter_context(attention.w_q.register_forward_hook(lambda *run: run[-1] * root))
    else:
        residuals = [layer.self_attention_residual, layer.feed_forward_residual]
        for residual in residuals if name == "norms" else [residuals["forward" in name]]:
            if name == "norms":
                _put(back, residual.norm, "forward", _as_it_is)
            else:
                _put(back, residual, "forward", _answer_alone(residual))


def _put(back: ExitStack, owner: nn.Module, name: str, value: Callable[..., Any]) -> None:
    """Stand in for a method of one object, and of no other of its class."""
    before = owner.__dict__.get(name)
    setattr(owner, name, value)
    restore = (delattr, owner, name) if before is None else (setattr, owner, name, before)
    back.callback(*restore)


def _answer_alone(residual: nn.Module) -> Callable[..., Tensor]:
    return lambda x, sublayer: sublayer(residual.norm(x))


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _nothing(module: nn.Module, given: Any, output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def _clear_head(head: int, heads: int) -> Callable[..., tuple[Tensor]]:
    def clear(module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        by_head = given[0].unflatten(-1, (heads, -1)).clone()
        by_head[..., head, :] = 0.0
        return (by_head.flatten(-2),)

    return clear
