"""The distinct-size example: the models of the course at sizes that are all different.

At (2, 2, 3), axes of equal size can be swapped without an error. These sizes are all different.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from twelve.decoder_only import LanguageModel
from twelve.masks import causal_mask, padding_mask
from twelve.transformer import Transformer

SIZES = SimpleNamespace(
    batch=2, num_heads=3, tgt=4, src=5, d_v=6, d_k=8, src_vocab=11, tgt_vocab=13, d_model=24,
    d_ff=96,
)  # fmt: skip


@contextmanager
def float64() -> Iterator[None]:
    """Set the default dtype to float64 inside the block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _DistinctSizes:
    """The same models at sizes that are all different, with two layers and seeded weights."""

    sizes = SIZES

    def __init__(self) -> None:
        # Always on the CPU, so that every machine generates the same numbers.
        draw = {"generator": torch.Generator("cpu").manual_seed(12), "device": "cpu"}
        self.src = torch.randint(1, SIZES.src_vocab, (SIZES.batch, SIZES.src), **draw)
        self.src[0, 3:] = 0  # the first sentence is shorter and padded on the right
        self.tgt = torch.randint(1, SIZES.tgt_vocab, (SIZES.batch, SIZES.tgt), **draw)
        self.labels = torch.randint(1, SIZES.tgt_vocab, (SIZES.batch, SIZES.tgt), **draw)
        self.src_mask: Tensor = padding_mask(self.src)
        self.text = self.src.flip(1)  # the same words, padded on the left
        self.tgt_mask: Tensor = causal_mask(SIZES.tgt)

    def model(self, *, num_heads: int = SIZES.num_heads, **switches: object) -> Transformer:
        """Build the distinct-size example, in float64 and eval mode.

        Args:
            num_heads: Number of heads, each with d_k = 8 and d_v = 6.
            **switches: Keyword arguments of Transformer: norm_first, activation, tie_weights
                and scale_embedding.
        """
        with float64():
            built = Transformer(
                SIZES.src_vocab, SIZES.tgt_vocab, d_model=SIZES.d_model, num_heads=num_heads,
                d_ff=SIZES.d_ff, num_layers=2, d_k=SIZES.d_k, d_v=SIZES.d_v, max_len=32,
                **switches,
            )  # fmt: skip
        return _with_noise(built)

    def language_model(self, *, num_kv_heads: int = 3, tie_weights: bool = False) -> LanguageModel:
        """Build the decoder-only model, which reads `text`, in float64 and eval mode.

        Args:
            num_kv_heads: Number of key and value heads that the six query heads share.
            tie_weights: Whether the embedding is also the output projection.
        """
        with float64():
            built = LanguageModel(
                SIZES.src_vocab, d_model=SIZES.d_model, num_heads=6, num_kv_heads=num_kv_heads,
                d_ff=SIZES.d_ff, num_layers=2, d_k=SIZES.d_k, max_len=32, base=100.0, eps=1e-6,
                tie_weights=tie_weights,
            )  # fmt: skip
        return _with_noise(built)


def _with_noise(built: nn.Module) -> nn.Module:
    """Fill all parameters with seeded normal values of variance 1 / fan-in."""
    draw = {"generator": torch.Generator("cpu").manual_seed(12), "device": "cpu"}
    with torch.no_grad():
        for parameter in built.parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64, **draw)
            parameter.copy_(noise * parameter.size(-1) ** -0.5)
    return built.eval()


# Created outside inference mode and on the CPU, whatever is active at the first import.
with torch.inference_mode(False), torch.device("cpu"):
    distinct = _DistinctSizes()
