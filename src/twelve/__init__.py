"""The Transformer, layer by layer, on twelve numbers you can check by hand.

The names stand in reading order: each layer uses only those above it.
"""

from twelve.linear import Linear  # isort: skip
from twelve.embedding import TokenEmbedding  # isort: skip
from twelve.positional_encoding import (  # isort: skip
    LearnedPositionalEncoding,
    PositionalEncoding,
    sinusoid,
)
from twelve.attention import scaled_dot_product_attention  # isort: skip
from twelve.masks import causal_mask, padding_mask  # isort: skip
from twelve.multi_head_attention import MultiHeadAttention  # isort: skip
from twelve.normalization import LayerNorm, RMSNorm  # isort: skip
from twelve.residual import Residual  # isort: skip
from twelve.feed_forward import FeedForward, SwiGLU  # isort: skip
from twelve.encoder import Encoder, EncoderLayer  # isort: skip
from twelve.decoder import Decoder, DecoderLayer  # isort: skip
from twelve.transformer import Transformer  # isort: skip

__all__ = [  # noqa: RUF022 (reading order, not the alphabet)
    "Linear",
    "TokenEmbedding",
    "sinusoid",
    "PositionalEncoding",
    "LearnedPositionalEncoding",
    "scaled_dot_product_attention",
    "padding_mask",
    "causal_mask",
    "MultiHeadAttention",
    "LayerNorm",
    "RMSNorm",
    "Residual",
    "FeedForward",
    "SwiGLU",
    "EncoderLayer",
    "Encoder",
    "DecoderLayer",
    "Decoder",
    "Transformer",
]
