"""Bad input of every kind: one ValueError each, with the argument's name and the numbers."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from twelve import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    GroupedQueryAttention,
    LanguageModel,
    LayerNorm,
    LearnedPositionalEncoding,
    Linear,
    MultiHeadAttention,
    PositionalEncoding,
    Residual,
    RMSNorm,
    RotaryEncoding,
    SwiGLU,
    TokenEmbedding,
    Transformer,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
    sinusoid,
)

pytestmark = pytest.mark.usefixtures("unchecked")


def x(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def ids(*shape: int, fill: int = 0) -> torch.Tensor:
    return torch.full(shape, fill)


def mask(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bool)


def attend(query=(2, 4, 24), key=(2, 5, 24), value=(2, 5, 24), mask=None, **keywords):
    layer = MultiHeadAttention(24, 3, **keywords)
    return layer(x(*query), x(*key), x(*value), mask)


def attend_to_itself(**others):
    query = x(2, 4, 24)
    three = {"query": query, "key": query, "value": query} | others
    return MultiHeadAttention(24, 3)(**three)


def transform(src=(2, 5), tgt=(2, 4), **masks):
    model = Transformer(11, 13, d_model=24, num_heads=3, num_layers=1, max_len=6)
    return model(ids(*src), ids(*tgt), **masks)


def share(shape=(2, 5, 24), mask=None, **keywords):
    return GroupedQueryAttention(24, 6, 3, **keywords)(x(*shape), mask)


def speak(ids, *, max_len=8, room=None, **keywords):
    """Let a model read, with caches of a room of its own where that is given."""
    model = LanguageModel(11, d_model=24, num_heads=3, num_layers=2, max_len=max_len)
    caches = {} if room is None else {"caches": model.new_caches(2, room)}
    return model(ids, **caches, **keywords)


SDPA = scaled_dot_product_attention
SIZES = "must be a whole number of at least 1, got"
DROPOUT = "dropout must be at least 0 and below 1, got"
ABOVE = "eps must be above 0 and finite, got"
SCORES = "does not broadcast to the scores (..., query, key) of shape"

TABLE: dict[str, list[tuple[Callable[[], object], str]]] = {
    "sizes below 1": [
        (lambda: Linear(0, 3), f"Linear: d_in {SIZES} 0"),
        (lambda: Linear(3, -1), f"Linear: d_out {SIZES} -1"),
        (lambda: TokenEmbedding(0, 3), f"TokenEmbedding: vocab_size {SIZES} 0"),
        (lambda: TokenEmbedding(4, 0), f"TokenEmbedding: d_model {SIZES} 0"),
        (lambda: sinusoid(0, 3), f"sinusoid: max_len {SIZES} 0"),
        (lambda: sinusoid(5, 0), f"sinusoid: d_model {SIZES} 0"),
        (lambda: PositionalEncoding(0), f"PositionalEncoding: d_model {SIZES} 0"),
        (lambda: PositionalEncoding(3, max_len=0), f"PositionalEncoding: max_len {SIZES} 0"),
        (
            lambda: LearnedPositionalEncoding(3, max_len=-2),
            f"LearnedPositionalEncoding: max_len {SIZES} -2",
        ),
        (
            lambda: LearnedPositionalEncoding(0),
            f"LearnedPositionalEncoding: d_model {SIZES} 0",
        ),
        (lambda: RotaryEncoding(0), f"RotaryEncoding: d_k {SIZES} 0"),
        (lambda: RotaryEncoding(2, max_len=-2), f"RotaryEncoding: max_len {SIZES} -2"),
        (lambda: causal_mask(0), f"causal_mask: query_len {SIZES} 0"),
        (lambda: causal_mask(2, 0), f"causal_mask: key_len {SIZES} 0"),
        (lambda: MultiHeadAttention(0, 1), f"MultiHeadAttention: d_model {SIZES} 0"),
        (lambda: MultiHeadAttention(24, 0), f"MultiHeadAttention: num_heads {SIZES} 0"),
        (lambda: MultiHeadAttention(24, 3, d_k=0), f"MultiHeadAttention: d_k {SIZES} 0"),
        (lambda: MultiHeadAttention(24, 3, d_v=-6), f"MultiHeadAttention: d_v {SIZES} -6"),
        (
            lambda: GroupedQueryAttention(24, 6, 0),
            f"GroupedQueryAttention: num_kv_heads {SIZES} 0",
        ),
        (
            lambda: LanguageModel(11, d_model=24, num_heads=0, num_layers=1),
            f"LanguageModel: num_heads {SIZES} 0",
        ),
        (
            lambda: LanguageModel(11, d_model=24, num_heads=3, num_layers=0),
            f"LanguageModel: num_layers {SIZES} 0",
        ),
        (lambda: LayerNorm(0), f"LayerNorm: d_model {SIZES} 0"),
        (lambda: RMSNorm(0), f"RMSNorm: d_model {SIZES} 0"),
        (lambda: Residual(0), f"LayerNorm: d_model {SIZES} 0"),
        (lambda: FeedForward(0), f"FeedForward: d_model {SIZES} 0"),
        (lambda: FeedForward(24, 0), f"FeedForward: d_ff {SIZES} 0"),
        (lambda: SwiGLU(0, 64), f"SwiGLU: d_model {SIZES} 0"),
        (lambda: SwiGLU(24, 0), f"SwiGLU: d_ff {SIZES} 0"),
        (lambda: Encoder(24, 3, num_layers=0), f"Encoder: num_layers {SIZES} 0"),
        (lambda: Decoder(24, 3, num_layers=0), f"Decoder: num_layers {SIZES} 0"),
        (lambda: Transformer(0, 13), f"TokenEmbedding: vocab_size {SIZES} 0"),
        (lambda: Transformer(11, 13, num_layers=-1), f"Encoder: num_layers {SIZES} -1"),
    ],
    "sizes that are no whole numbers": [
        (lambda: Linear(2.5, 3), f"Linear: d_in {SIZES} 2.5"),
        (lambda: Linear(3, True), f"Linear: d_out {SIZES} True"),
        (lambda: LayerNorm((3,)), f"LayerNorm: d_model {SIZES} (3,)"),
        (lambda: FeedForward("24"), f"FeedForward: d_model {SIZES} '24'"),
    ],
    "sizes that do not divide": [
        (
            lambda: MultiHeadAttention(24, 5),
            "MultiHeadAttention: d_model=24 does not divide into num_heads=5; choose another "
            "number of heads or give d_k and d_v",
        ),
        (
            lambda: MultiHeadAttention(3, 2, d_k=2),
            "MultiHeadAttention: d_model=3 does not divide into num_heads=2; choose another "
            "number of heads or give d_k and d_v",
        ),
        (
            lambda: MultiHeadAttention(3, 2, d_v=2),
            "MultiHeadAttention: d_model=3 does not divide into num_heads=2; choose another "
            "number of heads or give d_k and d_v",
        ),
        (
            lambda: GroupedQueryAttention(24, 6, 4),
            "GroupedQueryAttention: num_heads=6 cannot share num_kv_heads=4 evenly",
        ),
        (
            lambda: GroupedQueryAttention(24, 3, 6),
            "GroupedQueryAttention: num_heads=3 cannot share num_kv_heads=6 evenly",
        ),
        (
            lambda: GroupedQueryAttention(24, 5),
            "MultiHeadAttention: d_model=24 does not divide into num_heads=5; choose another "
            "number of heads or give d_k and d_v",
        ),
        (
            lambda: Transformer(11, 13, d_model=24, num_heads=7),
            "MultiHeadAttention: d_model=24 does not divide into num_heads=7; choose another "
            "number of heads or give d_k and d_v",
        ),
    ],
    "features that make no pairs": [
        (
            lambda: RotaryEncoding(3),
            "RotaryEncoding: d_k must be even, features turn in pairs, got 3",
        ),
    ],
    "a base that is not above 0": [
        (lambda: sinusoid(5, 3, base=0.0), "sinusoid: base must be above 0 and finite, got 0.0"),
        (lambda: RotaryEncoding(2, base=-1), "sinusoid: base must be above 0 and finite, got -1"),
    ],
    "dropout outside [0, 1)": [
        (lambda: PositionalEncoding(3, dropout=1.0), f"PositionalEncoding: {DROPOUT} 1.0"),
        (
            lambda: LearnedPositionalEncoding(3, dropout=-0.1),
            f"LearnedPositionalEncoding: {DROPOUT} -0.1",
        ),
        (lambda: MultiHeadAttention(24, 3, dropout=1.5), f"MultiHeadAttention: {DROPOUT} 1.5"),
        (lambda: Residual(3, dropout=-1.0), f"Residual: {DROPOUT} -1.0"),
        (lambda: FeedForward(3, dropout=1.0), f"FeedForward: {DROPOUT} 1.0"),
        (lambda: FeedForward(3, dropout=float("nan")), f"FeedForward: {DROPOUT} nan"),
        (lambda: EncoderLayer(24, 3, dropout=2.0), f"MultiHeadAttention: {DROPOUT} 2.0"),
        (lambda: DecoderLayer(24, 3, dropout=2.0), f"MultiHeadAttention: {DROPOUT} 2.0"),
        (lambda: Transformer(11, 13, dropout=1.0), f"PositionalEncoding: {DROPOUT} 1.0"),
        (
            lambda: SDPA(x(4, 8), x(5, 8), x(5, 6), None, 1.0),
            f"scaled_dot_product_attention: {DROPOUT} 1.0",
        ),
        (lambda: Residual(3, dropout="0.1"), f"Residual: {DROPOUT} '0.1'"),
        (lambda: FeedForward(3, dropout=None), f"FeedForward: {DROPOUT} None"),
    ],
    "eps that is not above 0": [
        (lambda: LayerNorm(3, eps=0.0), f"LayerNorm: {ABOVE} 0.0"),
        (lambda: RMSNorm(3, eps=-1e-5), f"RMSNorm: {ABOVE} -1e-05"),
        (
            lambda: LayerNorm(3, eps=float("nan")),
            f"LayerNorm: {ABOVE} nan",
        ),
        (lambda: LayerNorm(3, eps="1e-5"), f"LayerNorm: {ABOVE} '1e-5'"),
        (lambda: RMSNorm(3, eps=None), f"RMSNorm: {ABOVE} None"),
    ],
    "a switch that is neither on nor off": [
        (
            lambda: Residual(3, norm_first="no"),
            "Residual: norm_first must be True or False, got 'no'",
        ),
        (
            lambda: Transformer(11, 13, num_layers=1, norm_first="no"),
            "Residual: norm_first must be True or False, got 'no'",
        ),
        (lambda: Linear(3, 4, bias="no"), "Linear: bias must be True or False, got 'no'"),
        (
            lambda: MultiHeadAttention(3, 1, bias=0),
            "Linear: bias must be True or False, got 0",
        ),
        (
            lambda: TokenEmbedding(4, 3, scale=2.0),
            "TokenEmbedding: scale must be True or False, got 2.0",
        ),
        (
            lambda: Transformer(11, 13, num_layers=1, tie_weights="no"),
            "Transformer: tie_weights must be True or False, got 'no'",
        ),
        (
            lambda: LanguageModel(11, d_model=6, num_heads=1, num_layers=1, tie_weights="no"),
            "LanguageModel: tie_weights must be True or False, got 'no'",
        ),
    ],
    "an activation that is not known": [
        (
            lambda: FeedForward(3, activation="tanh"),
            "FeedForward: activation must be one of relu, gelu, got 'tanh'",
        ),
        (
            lambda: Transformer(11, 13, num_layers=1, activation="ReLU"),
            "FeedForward: activation must be one of relu, gelu, got 'ReLU'",
        ),
    ],
    "a padding_idx outside the table": [
        (
            lambda: TokenEmbedding(4, 3, padding_idx=4),
            "TokenEmbedding: padding_idx must lie from 0 to 3 (vocab_size=4), got 4",
        ),
        (
            lambda: TokenEmbedding(4, 3, padding_idx=-1),
            "TokenEmbedding: padding_idx must lie from 0 to 3 (vocab_size=4), got -1",
        ),
    ],
    "ids out of range": [
        (
            lambda: TokenEmbedding(4, 3)(torch.tensor([[0, 4], [2, 3]])),
            "TokenEmbedding: ids must lie from 0 to 3 (vocab_size=4), got 4",
        ),
        (
            lambda: TokenEmbedding(4, 3)(torch.tensor([[0, -100], [2, 3]])),
            "TokenEmbedding: ids must lie from 0 to 3 (vocab_size=4), got -100",
        ),
        (
            lambda: TokenEmbedding(4, 3)(torch.tensor([[0, -1], [2, 9]])),
            "TokenEmbedding: ids must lie from 0 to 3 (vocab_size=4), got -1",
        ),
        (
            lambda: Transformer(11, 13, d_model=6, num_heads=2, num_layers=1)(
                ids(2, 5, fill=11), ids(2, 4)
            ),
            "TokenEmbedding: ids must lie from 0 to 10 (vocab_size=11), got 11",
        ),
        (
            lambda: Transformer(11, 13, d_model=6, num_heads=2, num_layers=1)(
                ids(2, 5), ids(2, 4, fill=13)
            ),
            "TokenEmbedding: ids must lie from 0 to 12 (vocab_size=13), got 13",
        ),
    ],
    "ids of another type": [
        (
            lambda: speak(x(2, 5)),
            "LanguageModel: ids must be int64 or int32 token ids, got torch.float64 in shape "
            "(2, 5)",
        ),
        (
            lambda: TokenEmbedding(4, 3)(x(2, 5)),
            "TokenEmbedding: ids must be int64 or int32 token ids, got torch.float64 in shape "
            "(2, 5)",
        ),
        (
            lambda: TokenEmbedding(4, 3)(mask(2, 5)),
            "TokenEmbedding: ids must be int64 or int32 token ids, got torch.bool in shape (2, 5)",
        ),
        (
            lambda: TokenEmbedding(4, 3)([[0, 1]]),
            "TokenEmbedding: ids must be int64 or int32 token ids, got a list",
        ),
        (
            lambda: padding_mask(np.zeros((2, 5), dtype=np.int64)),
            "padding_mask: ids must be int64 or int32 token ids, got a ndarray",
        ),
        (
            lambda: Transformer(11, 13, num_layers=1)([[0, 1]], ids(1, 2)),
            "Transformer: src must be int64 or int32 token ids, got a list",
        ),
        (
            lambda: Transformer(11, 13, num_layers=1)(ids(1, 2), None),
            "Transformer: tgt must be int64 or int32 token ids, got a NoneType",
        ),
    ],
    "vectors of another type": [
        (
            lambda: LayerNorm(3)(ids(2, 5, 3)),
            "LayerNorm: x must hold floating-point numbers, got torch.int64 in shape (2, 5, 3)",
        ),
        (
            lambda: RMSNorm(3, fused=True)(ids(2, 5, 3)),
            "RMSNorm: x must hold floating-point numbers, got torch.int64 in shape (2, 5, 3)",
        ),
        (
            lambda: Linear(2, 3)([1.0, 2.0]),
            "Linear: x must hold floating-point numbers, got a list",
        ),
        (
            lambda: Encoder(24, 3, num_layers=1)(np.zeros((2, 5, 24))),
            "Encoder: x must hold floating-point numbers, got a ndarray",
        ),
        (
            lambda: Linear(2, 3)(x(5, 2).float()),
            "Linear: the arguments disagree about the type: x has torch.float32, weight has "
            "torch.float64",
        ),
        (
            lambda: SDPA(x(4, 8), x(5, 8).float(), x(5, 6)),
            "scaled_dot_product_attention: the arguments disagree about the type: query has "
            "torch.float64, key has torch.float32, value has torch.float64",
        ),
        (
            lambda: padding_mask(x(2, 5)),
            "padding_mask: ids must be int64 or int32 token ids, got torch.float64 in shape (2, 5)",
        ),
        (
            lambda: padding_mask(ids(5)),
            "padding_mask: ids must have 2 axes, got shape (5,)",
        ),
        (
            lambda: padding_mask(ids(2, 5, 1)),
            "padding_mask: ids must have 2 axes, got shape (2, 5, 1)",
        ),
    ],
    "a sentence that is too long": [
        (
            lambda: PositionalEncoding(3, max_len=4)(x(2, 5, 3)),
            "PositionalEncoding: the sequence is longer than max_len=4: got 5 positions in shape "
            "(2, 5, 3)",
        ),
        (
            lambda: LearnedPositionalEncoding(3, max_len=4)(x(7, 5, 3)),
            "LearnedPositionalEncoding: the sequence is longer than max_len=4: got 5 positions in "
            "shape (7, 5, 3)",
        ),
        (
            lambda: transform(src=(2, 7)),
            "PositionalEncoding: the sequence is longer than max_len=6: got 7 positions in shape "
            "(2, 7, 24)",
        ),
        (
            lambda: transform(tgt=(2, 8)),
            "PositionalEncoding: the sequence is longer than max_len=6: got 8 positions in shape "
            "(2, 8, 24)",
        ),
    ],
    "a place outside the table": [
        (
            lambda: RotaryEncoding(8, max_len=4)(x(2, 3, 5, 8)),
            "RotaryEncoding: the table ends at max_len=4: start=0 and 5 positions in shape "
            "(2, 3, 5, 8)",
        ),
        (
            lambda: RotaryEncoding(8, max_len=6)(x(2, 3, 5, 8), start=2),
            "RotaryEncoding: the table ends at max_len=6: start=2 and 5 positions in shape "
            "(2, 3, 5, 8)",
        ),
        (
            lambda: RotaryEncoding(8, max_len=6)(x(2, 3, 1, 8), start=-1),
            "RotaryEncoding: start must lie from 0 to 6 (max_len), got -1",
        ),
        (
            lambda: RotaryEncoding(8, max_len=6)(x(2, 3, 1, 8), start=1.0),
            "RotaryEncoding: start must lie from 0 to 6 (max_len), got 1.0",
        ),
    ],
    "a text that is too long": [
        (
            lambda: speak(ids(2, 9)),
            "RotaryEncoding: the table ends at max_len=8: start=0 and 9 positions in shape "
            "(2, 3, 9, 8)",
        ),
        (
            lambda: speak(ids(2, 5), room=4),
            "KeyValueCache: the arguments disagree about the shape: key_heads has (2, 3, 5, 8), "
            "room has (2, 3, 4, 8)",
        ),
        (
            lambda: speak(ids(1, 3), room=4),
            "KeyValueCache: the arguments disagree about the shape: key_heads has (1, 3, 3, 8), "
            "room has (2, 3, 3, 8)",
        ),
    ],
    "caches of another model": [
        (
            lambda: speak(ids(2, 3), caches=[]),
            "LanguageModel: the arguments disagree about the layers: model has 2, caches has 0",
        ),
    ],
    "fewer keys than queries": [
        (
            lambda: causal_mask(5, 4),
            "causal_mask: the queries are the last of the keys, so key_len=4 cannot be below "
            "query_len=5",
        ),
    ],
    "another last axis than the layer was built for": [
        (
            lambda: Linear(24, 96)(x(2, 5, 8)),
            "Linear: the last axis of x must be d_in=24, got 8 in shape (2, 5, 8)",
        ),
        (
            lambda: PositionalEncoding(3)(x(2, 5, 1)),
            "PositionalEncoding: the last axis of x must be d_model=3, got 1 in shape (2, 5, 1)",
        ),
        (
            lambda: LearnedPositionalEncoding(3)(x(2, 5, 4)),
            "LearnedPositionalEncoding: the last axis of x must be d_model=3, got 4 in shape "
            "(2, 5, 4)",
        ),
        (
            lambda: RotaryEncoding(8)(x(2, 3, 5, 6)),
            "RotaryEncoding: the last axis of heads must be d_k=8, got 6 in shape (2, 3, 5, 6)",
        ),
        (
            lambda: LayerNorm(24)(x(2, 5, 1)),
            "LayerNorm: the last axis of x must be d_model=24, got 1 in shape (2, 5, 1)",
        ),
        (
            lambda: RMSNorm(24, fused=True)(x(2, 24, 5)),
            "RMSNorm: the last axis of x must be d_model=24, got 5 in shape (2, 24, 5)",
        ),
        (
            lambda: Residual(24)(x(2, 5, 8), torch.zeros_like),
            "Residual: the last axis of x must be d_model=24, got 8 in shape (2, 5, 8)",
        ),
        (
            lambda: FeedForward(24)(x(2, 5, 8)),
            "FeedForward: the last axis of x must be d_model=24, got 8 in shape (2, 5, 8)",
        ),
        (
            lambda: SwiGLU(24, 64)(x(2, 5, 8)),
            "SwiGLU: the last axis of x must be d_model=24, got 8 in shape (2, 5, 8)",
        ),
        (
            lambda: attend(query=(2, 4, 8)),
            "MultiHeadAttention: the last axis of query must be d_model=24, got 8 in shape "
            "(2, 4, 8)",
        ),
        (
            lambda: attend(key=(2, 5, 25)),
            "MultiHeadAttention: the last axis of key must be d_model=24, got 25 in shape "
            "(2, 5, 25)",
        ),
        (
            lambda: attend(value=(2, 5, 18), fused=True),
            "MultiHeadAttention: the last axis of value must be d_model=24, got 18 in shape "
            "(2, 5, 18)",
        ),
        (
            lambda: share((2, 5, 8)),
            "GroupedQueryAttention: the last axis of x must be d_model=24, got 8 in shape "
            "(2, 5, 8)",
        ),
        (
            lambda: share(rotary=RotaryEncoding(8)),
            "RotaryEncoding: the last axis of heads must be d_k=8, got 4 in shape (2, 6, 5, 4)",
        ),
        (
            lambda: Encoder(24, 3, num_layers=1)(x(2, 5, 8)),
            "Encoder: the last axis of x must be d_model=24, got 8 in shape (2, 5, 8)",
        ),
        (
            lambda: EncoderLayer(24, 3)(x(2, 5, 8)),
            "Residual: the last axis of x must be d_model=24, got 8 in shape (2, 5, 8)",
        ),
        (
            lambda: Decoder(24, 3, num_layers=1)(x(2, 4, 8), x(2, 5, 24)),
            "Decoder: the last axis of x must be d_model=24, got 8 in shape (2, 4, 8)",
        ),
        (
            lambda: Decoder(24, 3, num_layers=1)(x(2, 4, 24), x(2, 5, 8)),
            "Decoder: the last axis of memory must be d_model=24, got 8 in shape (2, 5, 8)",
        ),
        (
            lambda: DecoderLayer(24, 3)(x(2, 4, 24), x(2, 5, 8)),
            "MultiHeadAttention: the last axis of key must be d_model=24, got 8 in shape (2, 5, 8)",
        ),
    ],
    "too few or too many axes": [
        (
            lambda: TokenEmbedding(4, 3)(ids(2, 5, 1)),
            "TokenEmbedding: ids must have 2 axes, got shape (2, 5, 1)",
        ),
        (
            lambda: PositionalEncoding(3)(x(2, 5, 1, 3)),
            "PositionalEncoding: x must have 3 axes, got shape (2, 5, 1, 3)",
        ),
        (
            lambda: attend(key=(2, 1, 5, 24)),
            "MultiHeadAttention: key must have 3 axes, got shape (2, 1, 5, 24)",
        ),
        (
            lambda: Linear(3, 4)(torch.tensor(1.0)),
            "Linear: the last axis of x must be d_in=3, got none in shape ()",
        ),
        (
            lambda: PositionalEncoding(3)(x(5, 3)),
            "PositionalEncoding: x must have 3 axes, got shape (5, 3)",
        ),
        (
            lambda: LearnedPositionalEncoding(3)(x(5, 3)),
            "LearnedPositionalEncoding: x must have 3 axes, got shape (5, 3)",
        ),
        (
            lambda: RotaryEncoding(8)(x(2, 5, 8)),
            "RotaryEncoding: heads must have 4 axes, got shape (2, 5, 8)",
        ),
        (
            lambda: attend(query=(4, 24)),
            "MultiHeadAttention: query must have 3 axes, got shape (4, 24)",
        ),
        (
            lambda: Residual(24)(x(5, 24), torch.zeros_like),
            "Residual: x must have 3 axes, got shape (5, 24)",
        ),
        (
            lambda: Encoder(24, 3, num_layers=1)(x(5, 24)),
            "Encoder: x must have 3 axes, got shape (5, 24)",
        ),
        (
            lambda: Decoder(24, 3, num_layers=1)(x(5, 24), x(2, 5, 24)),
            "Decoder: x must have 3 axes, got shape (5, 24)",
        ),
        (
            lambda: Decoder(24, 3, num_layers=1)(x(2, 5, 24), x(5, 24)),
            "Decoder: memory must have 3 axes, got shape (5, 24)",
        ),
    ],
    "arguments that disagree": [
        (
            lambda: SDPA(x(2, 4, 8), x(1, 5, 8), x(3, 5, 8)),
            "scaled_dot_product_attention: the arguments disagree about the batch: query has "
            "(2,), key has (1,), value has (3,)",
        ),
        (
            lambda: SDPA(x(4, 8), x(5, 6), x(5, 6)),
            "scaled_dot_product_attention: the arguments disagree about d_k: query has 8, key "
            "has 6",
        ),
        (
            lambda: SDPA(x(4, 8), x(5, 8), x(7, 6)),
            "scaled_dot_product_attention: the arguments disagree about the number of keys: key "
            "has 5, value has 7",
        ),
        (
            lambda: attend(query=(3, 4, 24)),
            "MultiHeadAttention: the arguments disagree about batch: query has 3, key has 2, "
            "value has 2",
        ),
        (
            lambda: attend(value=(1, 5, 24)),
            "MultiHeadAttention: the arguments disagree about batch: query has 2, key has 2, "
            "value has 1",
        ),
        (
            lambda: attend(value=(2, 4, 24), fused=True),
            "MultiHeadAttention: the arguments disagree about the number of keys: key has 5, "
            "value has 4",
        ),
        (
            lambda: Decoder(24, 3, num_layers=1)(x(3, 4, 24), x(2, 5, 24)),
            "Decoder: the arguments disagree about batch: x has 3, memory has 2",
        ),
        (
            lambda: transform(src=(3, 5)),
            "Transformer: the arguments disagree about batch: src has 3, tgt has 2",
        ),
        (
            lambda: Residual(24)(x(2, 5, 24), lambda normed: normed[:, :1]),
            "Residual: the sublayer must keep the shape (2, 5, 24), it returned (2, 1, 24)",
        ),
        (
            lambda: Residual(24)(x(2, 5, 24), lambda normed: (normed, None)),
            "Residual: the sublayer must return one tensor, got a tuple",
        ),
        (
            lambda: Residual(24, norm_first=False)(x(2, 5, 24), lambda given: (given, None)),
            "Residual: the sublayer must return one tensor, got a tuple",
        ),
        (
            # Two of three arguments that are one tensor say nothing about the third.
            lambda: attend_to_itself(value=x(1, 4, 24)),
            "MultiHeadAttention: the arguments disagree about batch: query has 2, key has 2, "
            "value has 1",
        ),
        (
            lambda: attend_to_itself(key=x(2, 5, 24)),
            "MultiHeadAttention: the arguments disagree about the number of keys: key has 5, "
            "value has 4",
        ),
    ],
    "a mask of another type": [
        (
            lambda: SDPA(x(4, 8), x(5, 8), x(5, 6), x(4, 5)),
            "scaled_dot_product_attention: the mask must be boolean (True = may attend), got "
            "torch.float64 in shape (4, 5)",
        ),
        (
            lambda: attend(mask=mask(2, 1, 1, 5).long()),
            "MultiHeadAttention: the mask must be boolean (True = may attend), got torch.int64 in "
            "shape (2, 1, 1, 5)",
        ),
        (
            lambda: attend(mask=x(2, 1, 1, 5), fused=True),
            "MultiHeadAttention: the mask must be boolean (True = may attend), got torch.float64 "
            "in shape (2, 1, 1, 5)",
        ),
        (
            lambda: attend(mask=[[True]]),
            "MultiHeadAttention: the mask must be boolean (True = may attend), got a list",
        ),
        (
            lambda: SDPA(x(4, 8), x(5, 8), x(5, 6), np.ones((4, 5), dtype=bool)),
            "scaled_dot_product_attention: the mask must be boolean (True = may attend), got a "
            "ndarray",
        ),
        (
            lambda: transform(src_mask=mask(2, 1, 1, 5).int()),
            "MultiHeadAttention: the mask must be boolean (True = may attend), got torch.int32 in "
            "shape (2, 1, 1, 5)",
        ),
    ],
    "a mask that does not broadcast": [
        (
            lambda: SDPA(x(4, 8), x(5, 8), x(5, 6), mask(5, 4)),
            f"scaled_dot_product_attention: a mask of shape (5, 4) {SCORES} (4, 5)",
        ),
        (
            lambda: SDPA(x(4, 8), x(5, 8), x(5, 6), mask(2, 4, 5)),
            f"scaled_dot_product_attention: a mask of shape (2, 4, 5) {SCORES} (4, 5)",
        ),
        (
            lambda: SDPA(x(4, 8), x(5, 8), x(5, 6), mask(1, 1, 5)),
            f"scaled_dot_product_attention: a mask of shape (1, 1, 5) {SCORES} (4, 5)",
        ),
        (
            lambda: SDPA(x(1, 4, 8), x(1, 5, 8), x(1, 5, 6), mask(2, 4, 5)),
            f"scaled_dot_product_attention: a mask of shape (2, 4, 5) {SCORES} (1, 4, 5)",
        ),
        (
            lambda: attend(mask=mask(2, 1, 5, 1)),
            f"MultiHeadAttention: a mask of shape (2, 1, 5, 1) {SCORES} (2, 3, 4, 5)",
        ),
        (
            lambda: attend(mask=mask(2, 1, 1, 4), fused=True),
            f"MultiHeadAttention: a mask of shape (2, 1, 1, 4) {SCORES} (2, 3, 4, 5)",
        ),
        (
            lambda: attend(
                query=(1, 4, 24), key=(1, 5, 24), value=(1, 5, 24), mask=mask(2, 1, 1, 5)
            ),
            f"MultiHeadAttention: a mask of shape (2, 1, 1, 5) {SCORES} (1, 3, 4, 5)",
        ),
        (
            lambda: share(mask=mask(2, 3, 5, 5)),
            f"GroupedQueryAttention: a mask of shape (2, 3, 5, 5) {SCORES} (2, 6, 5, 5)",
        ),
        (
            lambda: speak(ids(2, 5), key_mask=mask(2, 1, 1, 4)),
            f"LanguageModel: a mask of shape (2, 1, 1, 4) {SCORES} (2, 1, 1, 5)",
        ),
        (
            lambda: speak(ids(2, 5), key_mask=mask(2, 1, 5, 5)),
            f"LanguageModel: a mask of shape (2, 1, 5, 5) {SCORES} (2, 1, 1, 5)",
        ),
        (
            lambda: transform(tgt_mask=causal_mask(5)),
            f"MultiHeadAttention: a mask of shape (1, 1, 5, 5) {SCORES} (2, 3, 4, 4)",
        ),
        (
            lambda: transform(src_mask=padding_mask(ids(2, 4))),
            f"MultiHeadAttention: a mask of shape (2, 1, 1, 4) {SCORES} (2, 3, 5, 5)",
        ),
    ],
    "a mask of another rank": [
        (
            lambda: attend(query=(3, 4, 24), key=(3, 5, 24), value=(3, 5, 24), mask=mask(3, 4, 5)),
            "MultiHeadAttention: the mask must have the four axes (batch, head, query, key), 1 "
            "where it is shared, got shape (3, 4, 5)",
        ),
        (
            lambda: attend(mask=mask(4, 5), fused=True),
            "MultiHeadAttention: the mask must have the four axes (batch, head, query, key), 1 "
            "where it is shared, got shape (4, 5)",
        ),
        (
            lambda: share(mask=mask(2, 5)),
            "GroupedQueryAttention: the mask must have the four axes (batch, head, query, key), 1 "
            "where it is shared, got shape (2, 5)",
        ),
        (
            lambda: speak(ids(2, 5), key_mask=mask(2, 5)),
            "LanguageModel: the mask must have the four axes (batch, head, query, key), 1 where it "
            "is shared, got shape (2, 5)",
        ),
        (
            lambda: transform(src_mask=mask(2, 5)),
            "MultiHeadAttention: the mask must have the four axes (batch, head, query, key), 1 "
            "where it is shared, got shape (2, 5)",
        ),
        (
            lambda: transform(tgt_mask=mask(1, 2, 1, 4, 4)),
            "MultiHeadAttention: the mask must have the four axes (batch, head, query, key), 1 "
            "where it is shared, got shape (1, 2, 1, 4, 4)",
        ),
    ],
}
ROWS = [
    pytest.param(call, message, id=f"{kind}: {message}")
    for kind, rows in TABLE.items()
    for call, message in rows
]


@pytest.mark.parametrize(("call", "message"), ROWS)
def test_bad_input_is_named_with_its_numbers(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message


def test_the_same_calls_with_good_input_raise_nothing():
    attend()
    attend(mask=mask(2, 1, 1, 5))
    attend(mask=mask(1, 3, 4, 1), fused=True)
    transform(src=(2, 6), tgt=(2, 6), src_mask=mask(2, 1, 1, 6), tgt_mask=causal_mask(6))
    SDPA(x(4, 8), x(5, 8), x(5, 6), mask(1, 5), 0.5)
    causal_mask(1, 1)
    share(mask=mask(1, 6, 5, 1))
    speak(ids(2, 4), room=4, key_mask=mask(1, 1, 1, 4))
    Residual(24, dropout=0.0)(x(2, 5, 24), torch.zeros_like)


def test_sizes_of_numpy_are_sizes():
    model = Transformer(np.int64(11), np.int32(13), d_model=np.int64(24), num_heads=np.int64(3))
    assert model.encoder.layers[0].self_attention.d_k == 8
    assert causal_mask(np.int64(2)).shape == (1, 1, 2, 2)


def test_autocast_brings_two_types_together():
    layer = Linear(24, 8).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x(2, 24).to(torch.bfloat16)).dtype == torch.bfloat16
