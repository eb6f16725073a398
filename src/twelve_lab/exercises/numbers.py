"""Inputs of the cases: the twelve numbers of the example, and random tensors."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor

from twelve.transformer import Transformer
from twelve_lab import example


def seeded(seed: int = 12) -> Callable[..., Tensor]:
    """Return a function that draws normally distributed tensors, reproducible on every machine."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


def vectors(ids: Tensor = example.src) -> Tensor:
    """Embed the two sentences of the example and add their positions: the twelve numbers."""
    encoding = _model().positional_encoding
    return encoding(_model().src_embedding(ids)).detach()


@cache
def _model() -> Transformer:
    """Build the example model without gradients, and cache it."""
    return example.model().requires_grad_(False)


def twelve_heads(num_heads: int) -> SimpleNamespace:
    """Compute the tensors of the first self-attention of the encoder.

    Args:
        num_heads: Number of heads: 3 of size 1, 1 of size 3, or 2 of size 2.

    Returns:
        Its input (x), its matrices (w_q, w_k, w_v, w_o), and the query, key and value of each
        head, all as copies.
    """
    return SimpleNamespace(**{name: x.clone() for name, x in _heads(num_heads).items()})


@cache
def _heads(num_heads: int) -> dict[str, Tensor]:
    layer = example.model(num_heads=num_heads).encoder.layers[0]
    attention = layer.self_attention
    x = layer.self_attention_residual.norm(vectors()).detach()
    matrices = {
        name: getattr(attention, name).weight.detach().clone()
        for name in ("w_q", "w_k", "w_v", "w_o")
    }
    projected = {"query": "w_q", "key": "w_k", "value": "w_v"}
    heads = {
        name: (x @ matrices[matrix].T).unflatten(-1, (num_heads, -1)).transpose(1, 2).contiguous()
        for name, matrix in projected.items()
    }
    return {"x": x, **matrices, **heads}


# The sizes of the last case of a task. All sizes are distinct and greater than 1, so different
# mistakes give different results: a sum over sentences is not a sum over heads.
SIZES = SimpleNamespace(
    batch=3, num_heads=2, tgt=4, src=7, d_v=5, d_k=8, d_model=20, d_ff=28, src_vocab=11,
    tgt_vocab=13, max_len=32,
)  # fmt: skip


def distinct_heads(query_len: int = SIZES.tgt) -> tuple[Tensor, Tensor, Tensor]:
    """Draw query, key and value of 2 heads; all sizes differ."""
    draw, lead = seeded(), (SIZES.batch, SIZES.num_heads)
    query = draw(*lead, query_len, SIZES.d_k)
    return query, draw(*lead, SIZES.src, SIZES.d_k), draw(*lead, SIZES.src, SIZES.d_v)


def distinct_ids() -> Tensor:
    """Draw three sentences, two of which end in padding: 9 of 21 ids are 0."""
    generator = torch.Generator("cpu").manual_seed(12)
    sizes = (SIZES.batch, SIZES.src)
    ids = torch.randint(1, SIZES.src_vocab, sizes, generator=generator, device="cpu")
    ids[0, 3:] = ids[2, 2:] = 0
    return ids
