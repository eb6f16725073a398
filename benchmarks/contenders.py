"""Who is measured: models that do the same work, called alike, `model(src, tgt)` to logits.

Every one embeds the tokens, adds positions, runs as many encoder and decoder layers of the same
sizes with biased projections (x-transformers has none in its attention) and projects to the
vocabulary. All sentences are full, so nobody needs a padding mask; the decoder's self-attention is
causal. Dropout is 0.
"""

from collections.abc import Callable, Iterable
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from benchmarks.sizes import Size
from twelve import Transformer, causal_mask, sinusoid

FUSED = "ours, fused"
EXPLICIT = "ours, explicit"
TORCH = "nn.Transformer, pre-norm"
TORCH_POST = "nn.Transformer, post-norm"
MARIAN = "Hugging Face Marian"
X_TRANSFORMERS = "x-transformers"


class Ours(nn.Module):
    """The model of this course, pre-norm.

    Args:
        size: Its sizes.
        fused: Whether attention and norm call torch's fused kernels.
    """

    mask: Tensor

    def __init__(self, size: Size, *, fused: bool) -> None:
        super().__init__()
        self.model = Transformer(
            size.vocab_size,
            size.vocab_size,
            d_model=size.d_model,
            num_heads=size.num_heads,
            d_ff=size.d_ff,
            num_layers=size.num_layers,
            bias=True,
            fused=fused,
        )
        # Made once, as a training loop makes it once for all its batches.
        self.register_buffer("mask", causal_mask(size.tgt))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Score the words of the target."""
        return self.model(src, tgt, tgt_mask=self.mask)


class Torch(nn.Module):
    """nn.Transformer with what it leaves to its user: embeddings, positions and the projection.

    Args:
        size: Its sizes.
        norm_first: Pre-norm if true, post-norm if false.
    """

    mask: Tensor
    table: Tensor

    def __init__(self, size: Size, *, norm_first: bool) -> None:
        super().__init__()
        self.src_embedding = nn.Embedding(size.vocab_size, size.d_model)
        self.tgt_embedding = nn.Embedding(size.vocab_size, size.d_model)
        self.register_buffer("table", sinusoid(max(size.src, size.tgt), size.d_model))
        layer = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(size.d_model, size.num_heads, size.d_ff, **layer),
            size.num_layers,
            nn.LayerNorm(size.d_model),
            # Nested tensors serve padded batches, and pre-norm layers cannot take them.
            enable_nested_tensor=False,
        )
        self.model = nn.Transformer(
            size.d_model,
            size.num_heads,
            num_decoder_layers=size.num_layers,
            dim_feedforward=size.d_ff,
            custom_encoder=encoder,
            **layer,
        )
        self.output_projection = nn.Linear(size.d_model, size.vocab_size)
        # torch's sense: True = hidden.
        self.register_buffer("mask", ~causal_mask(size.tgt)[0, 0])

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Score the words of the target."""
        src_input = self.src_embedding(src) + self.table[: src.size(1)]
        tgt_input = self.tgt_embedding(tgt) + self.table[: tgt.size(1)]
        # The hint lets torch choose the kernel that skips what is hidden.
        output = self.model(src_input, tgt_input, tgt_mask=self.mask, tgt_is_causal=True)
        return self.output_projection(output)


class Marian(nn.Module):
    """Hugging Face's encoder-decoder of Vaswani et al. (2017): post-norm, without final norms."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        configuration = MarianConfig(
            vocab_size=size.vocab_size,
            decoder_vocab_size=size.vocab_size,
            share_encoder_decoder_embeddings=False,
            tie_word_embeddings=False,
            d_model=size.d_model,
            encoder_layers=size.num_layers,
            decoder_layers=size.num_layers,
            encoder_attention_heads=size.num_heads,
            decoder_attention_heads=size.num_heads,
            encoder_ffn_dim=size.d_ff,
            decoder_ffn_dim=size.d_ff,
            activation_function="relu",
            dropout=0.0,
            pad_token_id=0,
            decoder_start_token_id=0,
            # No end token, and none forced: every sentence is written to its full length.
            eos_token_id=None,
            forced_eos_token_id=None,
            attn_implementation="sdpa",
        )
        self.model = MarianMTModel(configuration)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Score the words of the target."""
        return self.model(input_ids=src, decoder_input_ids=tgt, use_cache=False).logits


class XTransformers(nn.Module):
    """x-transformers with its flash attention: pre-norm, attention without bias."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        from x_transformers import Decoder, Encoder, TransformerWrapper

        layers = {
            "dim": size.d_model,
            "depth": size.num_layers,
            "heads": size.num_heads,
            "attn_dim_head": size.d_model // size.num_heads,
            "attn_flash": True,
            "ff_mult": size.d_ff / size.d_model,
            "ff_custom_activation": nn.ReLU(),
        }
        self.encoder = TransformerWrapper(
            num_tokens=size.vocab_size,
            max_seq_len=size.src,
            attn_layers=Encoder(**layers),
            return_only_embed=True,
        )
        self.decoder = TransformerWrapper(
            num_tokens=size.vocab_size,
            max_seq_len=size.tgt,
            attn_layers=Decoder(**layers, cross_attend=True),
        )

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Score the words of the target."""
        return self.decoder(tgt, context=self.encoder(src, return_embeddings=True))


BUILDERS: dict[str, Callable[[Size], nn.Module]] = {
    FUSED: lambda size: Ours(size, fused=True),
    EXPLICIT: lambda size: Ours(size, fused=False),
    TORCH: lambda size: Torch(size, norm_first=True),
    TORCH_POST: lambda size: Torch(size, norm_first=False),
    MARIAN: Marian,
    X_TRANSFORMERS: XTransformers,
}
NEEDS = {MARIAN: "transformers", X_TRANSFORMERS: "x_transformers"}


def missing() -> dict[str, str]:
    """Find the contenders whose package is not installed.

    Returns:
        The name of the package for each of them.
    """
    return {name: package for name, package in NEEDS.items() if find_spec(package) is None}


def build(
    size: Size,
    names: Iterable[str] = tuple(BUILDERS),
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[str, nn.Module]:
    """Build every contender that is installed, and check that all answer alike.

    Args:
        size: The sizes of all of them.
        names: Whom to build.
        device: Where the weights are.
        dtype: Their precision.

    Returns:
        The contenders by name, in the order of the tables.

    Raises:
        RuntimeError: If one answers with another shape: it would not do the same work.
    """
    src, tgt = (ids.to(device) for ids in size.ids())
    absent = missing()
    contenders: dict[str, nn.Module] = {}
    for name in names:
        if name in absent:
            continue
        torch.manual_seed(0)
        model = BUILDERS[name](size).to(device=device, dtype=dtype)
        with torch.no_grad():
            shape = tuple(model(src, tgt).shape)
        if shape != (size.batch, size.tgt, size.vocab_size):
            raise RuntimeError(f"{name} answers {size} with logits of shape {shape}")
        contenders[name] = model
    return contenders
