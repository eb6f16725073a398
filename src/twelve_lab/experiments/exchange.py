"""Exchange: what the trained digit reverser writes when its memory is another one."""

import torch
from torch import Tensor

from twelve.masks import causal_mask
from twelve.transformer import Transformer
from twelve_lab import reversal
from twelve_lab.device import device


@torch.no_grad()
def write_with_memories(digits: str, other: str, after: int = 5) -> dict[str, str]:
    """Let the trained digit reverser write a row of digits with different memories.

    Args:
        digits: The row to be written backwards, 3 to 10 digits.
        other: The row of the other memory.
        after: Number of digits after which the other memory takes the place of its own.

    Returns:
        The written tokens, joined by spaces: with its own memory; with the rows of this memory in
        reverse order; with the other memory after some digits; and for both rows without
        cross-attention, which then adds nothing.
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
    """Encode one row, (1, digit, d_model)."""
    ids = [reversal.ZERO + int(digit) for digit in digits]
    return model.encode(torch.tensor([ids], device=device()))


def _write(model: Transformer, memory: Tensor, later: Tensor | None = None, after: int = 0) -> str:
    """Write the most likely tokens, at most 16, until the end token."""
    tgt = torch.tensor([[reversal.START]], device=device())
    while tgt[0, -1] != reversal.END and tgt.size(1) < 16:
        read = memory if later is None or tgt.size(1) <= after else later
        mask = causal_mask(tgt.size(1), device=device())
        logits = model.decode(tgt, read, tgt_mask=mask)
        tgt = torch.cat([tgt, logits[:, -1:].argmax(-1)], dim=1)
    return " ".join(reversal.words(tgt)[0][1:])
