"""Swapped memory: what the trained digit reverser generates from the memory of another row."""

import torch
from torch import Tensor

from twelve.masks import causal_mask
from twelve.transformer import Transformer
from twelve_lab import reversal
from twelve_lab.device import device


@torch.no_grad()
def write_with_memories(digits: str, other: str, after: int = 5) -> dict[str, str]:
    """Reverse a row of digits with the trained model, given different memories.

    Args:
        digits: Row of 3 to 10 digits to reverse.
        other: Row of digits for the other memory.
        after: Number of digits after which the other memory replaces the row's own.

    Returns:
        The generated tokens, joined by spaces, for each memory: its own; its own with the rows in
        reverse order; the other one after some digits; and none, for each of the two rows, because
        cross-attention then adds zero.
    """
    model = reversal.trained()
    own, others = _memory(model, digits), _memory(model, other)
    written = {
        "own memory": _write(model, own),
        "own memory, rows reversed": _write(model, own.flip(1)),
        f"other memory after {after} digits": _write(model, own, others, after),
    }
    model.decoder.layers[0].cross_attention.w_o.weight.zero_()
    for row, memory in {digits: own, other: others}.items():
        written[f"no cross-attention, {row}"] = _write(model, memory)
    return written


def _memory(model: Transformer, digits: str) -> Tensor:
    """Encode one row of digits, (1, digit, d_model)."""
    ids = [reversal.ZERO + int(digit) for digit in digits]
    return model.encode(torch.tensor([ids], device=device()))


def _write(model: Transformer, memory: Tensor, later: Tensor | None = None, after: int = 0) -> str:
    """Generate greedily, up to the end token or 15 tokens."""
    tgt = torch.tensor([[reversal.START]], device=device())
    while tgt[0, -1] != reversal.END and tgt.size(1) < 16:
        read = memory if later is None or tgt.size(1) <= after else later
        mask = causal_mask(tgt.size(1), device=device())
        logits = model.decode(tgt, read, tgt_mask=mask)
        tgt = torch.cat([tgt, logits[:, -1:].argmax(-1)], dim=1)
    return " ".join(reversal.words(tgt)[0][1:])
