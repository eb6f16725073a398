"""The Transformer, layer by layer, on twelve numbers you can check by hand.

The names are in reading order: each layer uses only those above it.
"""

# Written by `make catalogue` from the list of steps.
# isort: off
from twelve.linear import Linear
from twelve.embedding import TokenEmbedding
from twelve.positional_encoding import sinusoid, PositionalEncoding, LearnedPositionalEncoding
from twelve.attention import scaled_dot_product_attention
from twelve.masks import padding_mask, causal_mask
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm, RMSNorm
from twelve.residual import Residual
from twelve.feed_forward import FeedForward, SwiGLU
from twelve.encoder import EncoderLayer, Encoder
from twelve.decoder import DecoderLayer, Decoder
from twelve.transformer import Transformer
from twelve.rotary_positions import RotaryEncoding
from twelve.grouped_query_attention import GroupedQueryAttention
from twelve.decoder_only import LanguageLayer, LanguageModel
from twelve.mixture_of_experts import MixtureOfExperts
from twelve.latent_attention import LatentAttention

__all__ = [  # noqa: RUF022 (reading order, not the alphabet)
    "Linear", "TokenEmbedding", "sinusoid", "PositionalEncoding", "LearnedPositionalEncoding",
    "scaled_dot_product_attention", "padding_mask", "causal_mask", "MultiHeadAttention",
    "LayerNorm", "RMSNorm", "Residual", "FeedForward", "SwiGLU", "EncoderLayer", "Encoder",
    "DecoderLayer", "Decoder", "Transformer", "RotaryEncoding", "GroupedQueryAttention",
    "LanguageLayer", "LanguageModel", "MixtureOfExperts", "LatentAttention",
]  # fmt: skip
