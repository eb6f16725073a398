"""Sizes and models of the benchmark; `model(src, tgt)` returns logits.

All models have embeddings, positions, an output projection, and the same numbers and sizes of
encoder and decoder layers. Projections have biases, except in the attention of x-transformers.
Sentences have no padding, so there is no padding mask. The decoder is causal. Dropout is 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from twelve import Transformer, causal_mask, sinusoid
from twelve.fast import make_fast

FAST = "ours, fast"
PLAIN = "ours, plain"
TORCH = "nn.Transformer, pre-norm"
TORCH_POST = "nn.Transformer, post-norm"
MARIAN = "Hugging Face Marian"
X_TRANSFORMERS = "x-transformers"


@dataclass(frozen=True)
class Size:
    """Sizes of a model and a batch, and the number of rounds in which contenders are timed."""

    name: str
    batch: int
    src: int
    tgt: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    vocab_size: int
    rounds: int

    def ids(self, device: str = "cpu") -> tuple[Tensor, Tensor]:
        """Draw source and target ids; never 0, which some libraries treat as padding."""
        generator = torch.Generator().manual_seed(0)
        draw = partial(torch.randint, 1, self.vocab_size, generator=generator)
        src, tgt = (draw((self.batch, length)).to(device) for length in (self.src, self.tgt))
        return src, tgt


# The running example of the course, and the model of lesson 13.
TINY = Size("tiny", 2, 2, 2, 3, 3, 4, 1, 4, 30)
D64 = Size("d64", 64, 10, 11, 64, 4, 256, 2, 13, 20)
# The base model of Vaswani et al. (2017), table 3, with a small vocabulary.
BASE = Size("base, 64 tokens", 8, 64, 64, 512, 8, 2048, 6, 1000, 10)
BASE_128 = replace(BASE, name="base, 128 tokens", src=128, tgt=128, rounds=5)
LONG = replace(BASE, name="long", batch=1, src=1024, tgt=1024, num_layers=2, rounds=6)
SIZES = (TINY, D64, BASE, BASE_128, LONG)
WRITING = replace(BASE, name="writing", batch=1, rounds=5)


class Ours(nn.Module):
    """The model of this course, pre-norm."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.model = Transformer(
            size.vocab_size, size.vocab_size, d_model=size.d_model, num_heads=size.num_heads,
            d_ff=size.d_ff, num_layers=size.num_layers, bias=True,
        )  # fmt: skip
        self.register_buffer("mask", causal_mask(size.tgt))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits."""
        return self.model(src, tgt, tgt_mask=self.mask)


class Torch(nn.Module):
    """nn.Transformer with the parts that it lacks: embeddings, positions, output projection."""

    def __init__(self, size: Size, *, norm_first: bool) -> None:
        super().__init__()
        self.src_embedding = nn.Embedding(size.vocab_size, size.d_model)
        self.tgt_embedding = nn.Embedding(size.vocab_size, size.d_model)
        self.register_buffer("table", sinusoid(max(size.src, size.tgt), size.d_model))
        layer = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(size.d_model, size.num_heads, size.d_ff, **layer),
            size.num_layers, nn.LayerNorm(size.d_model),
            enable_nested_tensor=False,  # for padded batches; pre-norm layers do not support it
        )  # fmt: skip
        self.model = nn.Transformer(
            size.d_model, size.num_heads, num_decoder_layers=size.num_layers,
            dim_feedforward=size.d_ff, custom_encoder=encoder, **layer,
        )  # fmt: skip
        self.output_projection = nn.Linear(size.d_model, size.vocab_size)
        self.register_buffer("mask", ~causal_mask(size.tgt)[0, 0])  # in torch, True means masked

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits."""
        src_input = self.src_embedding(src) + self.table[: src.size(1)]
        tgt_input = self.tgt_embedding(tgt) + self.table[: tgt.size(1)]
        # The hint lets torch choose the kernel that skips masked blocks.
        output = self.model(src_input, tgt_input, tgt_mask=self.mask, tgt_is_causal=True)
        return self.output_projection(output)


class Marian(nn.Module):
    """Hugging Face's encoder-decoder of Vaswani et al. (2017): post-norm, without final norms."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        sides = {}
        for side in ("encoder", "decoder"):
            sides |= {f"{side}_layers": size.num_layers, f"{side}_ffn_dim": size.d_ff,
                      f"{side}_attention_heads": size.num_heads}  # fmt: skip
        config = MarianConfig(
            vocab_size=size.vocab_size, decoder_vocab_size=size.vocab_size, d_model=size.d_model,
            share_encoder_decoder_embeddings=False, tie_word_embeddings=False, dropout=0.0,
            activation_function="relu", attn_implementation="sdpa", pad_token_id=0,
            decoder_start_token_id=0, eos_token_id=None, forced_eos_token_id=None, **sides,
        )  # fmt: skip
        self.model = MarianMTModel(config)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits."""
        return self.model(input_ids=src, decoder_input_ids=tgt, use_cache=False).logits


class XTransformers(nn.Module):
    """x-transformers with its flash attention: pre-norm, attention without bias."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        from x_transformers import Decoder, Encoder, TransformerWrapper

        layers = {
            "dim": size.d_model, "depth": size.num_layers, "heads": size.num_heads,
            "attn_dim_head": size.d_model // size.num_heads, "attn_flash": True,
            "ff_mult": size.d_ff / size.d_model, "ff_custom_activation": nn.ReLU(),
        }  # fmt: skip
        self.encoder = TransformerWrapper(
            num_tokens=size.vocab_size, max_seq_len=size.src, attn_layers=Encoder(**layers),
            return_only_embed=True,
        )  # fmt: skip
        self.decoder = TransformerWrapper(
            num_tokens=size.vocab_size, max_seq_len=size.tgt,
            attn_layers=Decoder(cross_attend=True, **layers),
        )  # fmt: skip

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits."""
        return self.decoder(tgt, context=self.encoder(src, return_embeddings=True))


BUILDERS = {
    FAST: Ours,
    PLAIN: Ours,
    TORCH: partial(Torch, norm_first=True),
    TORCH_POST: partial(Torch, norm_first=False),
    MARIAN: Marian,
    X_TRANSFORMERS: XTransformers,
}
PACKAGES = {MARIAN: "transformers", X_TRANSFORMERS: "x_transformers"}


def missing() -> dict[str, str]:
    """Map each contender that is not installed to the package it needs."""
    return {name: package for name, package in PACKAGES.items() if find_spec(package) is None}


def build(
    size: Size, names: Iterable[str] = tuple(BUILDERS), *, device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[str, nn.Module]:  # fmt: skip
    """Build every installed contender.

    Raises:
        RuntimeError: If a contender returns logits of the wrong shape.
    """
    absent, models = missing(), {}
    for name in (name for name in names if name not in absent):
        torch.manual_seed(0)
        model = BUILDERS[name](size).to(device=device, dtype=dtype)
        if name == FAST:
            make_fast(model.model)
        with torch.no_grad():
            shape = tuple(model(*size.ids(device)).shape)
        if shape != (size.batch, size.tgt, size.vocab_size):
            raise RuntimeError(f"{name}, size {size.name}: wrong shape of logits: {shape}")
        models[name] = model
    return models
