"""The running example: two sentences of two tokens with three features each, twelve numbers.

Every weight is a short literal, so every intermediate number can be recomputed by hand.
"""

import json
from importlib.resources import files
from typing import Any

import torch
from torch import nn

from twelve._checks import check_between
from twelve.decoder_only import LanguageModel
from twelve.masks import causal_mask, padding_mask
from twelve.multi_head_attention import MultiHeadAttention
from twelve.training import cross_entropy
from twelve.transformer import Transformer
from twelve_lab.device import device
from twelve_lab.example.distinct_sizes import SIZES, distinct, float64  # noqa: F401 (exported)
from twelve_lab.trace.trace import Trace

vocabulary = ("<pad>", "cat", "dog", "fish")
# Created outside inference mode and on the CPU, whatever is active at the first import.
with torch.inference_mode(False), torch.device("cpu"):
    src = torch.tensor([[0, 1], [2, 3]])
    # The source, reversed and shifted right. Id 0 is also the start token, so the target mask is
    # never computed from `tgt != 0`.
    tgt = torch.tensor([[0, 1], [0, 3]])
    labels = torch.tensor([[1, -100], [3, 2]])
    # The next word at each position of the source: the labels of the decoder-only model. The first
    # sentence is padded on the left.
    following = torch.tensor([[-100, -100], [3, -100]])
    src_mask = padding_mask(src)
    tgt_mask = causal_mask(2)
embedding_rows = ((0.0, 0.0, 0.0), (0.82, 0.15, 0.36), (0.7, 0.2, 0.4), (0.6, 0.3, 0.5))
# Words to show instead of indices. In the target, id 0 is the start token.
words = {
    "src": [[vocabulary[token] for token in sentence] for sentence in src.tolist()],
    "tgt": [[vocabulary[token] if token else "<start>" for token in line] for line in tgt.tolist()],
    "vocab": list(vocabulary),
}
words["seq"] = words["src"]  # the decoder-only model reads the same sentences

# Runs that the course compares: title -> switches of `trace`.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "3 heads of width 1, pre-norm, ReLU": {},
    "1 head of width 3": {"num_heads": 1},
    "2 heads of width 2": {"num_heads": 2},
    "post-norm": {"norm_first": False},
    "GELU": {"activation": "gelu"},
    "no padding mask": {"padding": False},
    "tied output": {"tie_weights": True},
    "scaled embedding": {"scale_embedding": True},
    "decoder-only": {"decoder_only": True},
}


def weights() -> dict[str, dict[str, list]]:
    """Load the weights of the example in math layout: W is (in, out) and y = x W + b.

    Returns:
        The matrices of each block (enc_self, dec_self, dec_cross, enc_ffn, dec_ffn, out, h2).
    """
    return json.loads((files("twelve_lab") / "weights.json").read_text())


def model(
    *,
    num_heads: int = 3,
    norm_first: bool = True,
    activation: str = "relu",
    tie_weights: bool = False,
    scale_embedding: bool = False,
) -> Transformer:
    """Build the Transformer with the weights of the example, in float64 and eval mode.

    Args:
        num_heads: 3 heads of width 1, 1 head of width 3, or 2 heads of width 2, for which all
            three attentions use the block h2.
        norm_first: Pre-norm if true, post-norm if false.
        activation: "relu" or "gelu".
        tie_weights: Whether the target table is also the output projection, without a bias.
        scale_embedding: Whether to multiply the embeddings by √3.

    Raises:
        ValueError: If num_heads is not 1, 2 or 3, or the activation is unknown.
    """
    if num_heads not in (1, 2, 3):
        raise ValueError(f"example.model: num_heads must be 1, 2 or 3, got {num_heads}")
    width = 2 if num_heads == 2 else None
    with float64():
        built = Transformer(
            len(vocabulary), len(vocabulary), d_model=3, num_heads=num_heads, d_ff=4, num_layers=1,
            d_k=width, d_v=width, norm_first=norm_first, activation=activation,
            tie_weights=tie_weights, scale_embedding=scale_embedding, max_len=8,
        )  # fmt: skip
        _fill(built, weights(), "h2" if num_heads == 2 else None)
    return built.eval()


def language_model(*, num_kv_heads: int = 1, tie_weights: bool = True) -> LanguageModel:
    """Build the decoder-only model with the same weights, in float64 and eval mode.

    The two query heads of width 2 come from the block h2 and use RoPE. SwiGLU takes its gate and
    its down-projection from the encoder's feed-forward layer, its up-projection from
    that of the decoder.

    Args:
        num_kv_heads: 1 for the first key and value head of h2, 2 for both.
        tie_weights: Whether the embedding is also the output projection. Otherwise, the model
            uses the output projection of the example without its bias.

    Raises:
        ValueError: If num_kv_heads is not 1 or 2.
    """
    check_between("example.language_model", 1, 2, "heads of h2", num_kv_heads=num_kv_heads)
    blocks = weights()
    attention = dict(blocks["h2"])
    for name in ("Wk", "Wv"):
        attention[name] = [row[: 2 * num_kv_heads] for row in attention[name]]
    with float64():
        built = LanguageModel(
            len(vocabulary), d_model=3, num_heads=2, num_kv_heads=num_kv_heads, d_ff=4,
            num_layers=1, d_k=2, max_len=8, tie_weights=tie_weights,
        )  # fmt: skip
        layer, ffn = built.layers[0], built.layers[0].feed_forward
        with torch.no_grad():
            built.embedding.weight.copy_(torch.tensor(embedding_rows))
            _fill_attention(layer.self_attention, attention)
            _fill_linear(ffn.gate, blocks["enc_ffn"]["W1"])
            _fill_linear(ffn.up, blocks["dec_ffn"]["W1"])
            _fill_linear(ffn.down, blocks["enc_ffn"]["W2"])
            if not tie_weights:
                _fill_linear(built.output_projection, blocks["out"]["W"])
    return built.eval()


def trace(
    *,
    decoder_only: bool = False,
    padding: bool = True,
    loss: bool = False,
    grad: bool = False,
    on: torch.device | str | None = None,
    **switches: object,
) -> Trace:
    """Run the model on the twelve numbers and trace every tensor.

    Args:
        decoder_only: Whether to run the decoder-only model, on the source sentences.
        padding: Whether to use the source padding mask.
        loss: Whether to also trace the loss and the padding mask, which is computed from the ids.
        grad: Whether to make gradients readable after a backward pass.
        on: Device; `twelve_lab.device()` by default.
        **switches: Keyword arguments of `model`, such as num_heads=1 or activation="gelu", or of
            `language_model` for the decoder-only model.
    """
    where = device() if on is None else on
    if decoder_only:
        built, name, axis, mask_name = language_model(**switches), "ids", "seq", "key_mask"
        known, wanted = {}, following
    else:
        built, name, axis, mask_name = model(**switches), "src", "src", "src_mask"
        known, wanted = {"tgt": tgt.to(where), "tgt_mask": tgt_mask.to(where)}, labels
    ids = src.to(where)
    known[mask_name] = src_mask.to(where) if padding else None
    with Trace(built.to(where), grad=grad) as traced:
        if not loss:
            built(ids, **known)
            return traced
        tape = traced.graph.tape
        tape.label(ids, name, ("batch", axis))
        if padding:
            # Pass a view, because the mask calls the axis of the ids "key" and the model does not.
            known[mask_name] = padding_mask(ids[:])
            tape.name(known[mask_name], mask_name, ("batch", "1", "1", "key"))
        if decoder_only:
            # Pass the combined mask, so that its entries can be changed on the live page.
            axes = ("batch" if padding else "1", "1", "query", "key")
            built.layers[0].register_forward_pre_hook(
                lambda _, inputs: tape.name(inputs[1], "mask", axes)
            )
        else:
            tape.label(known["tgt_mask"], "tgt_mask", ("1", "1", "query", "key"))
        cross_entropy(built(ids, **known), wanted.to(where))
    return traced


def _fill(built: Transformer, blocks: dict[str, dict[str, list]], shared: str | None) -> None:
    encoder, decoder = built.encoder.layers[0], built.decoder.layers[0]
    with torch.no_grad():
        for table in (built.src_embedding, built.tgt_embedding):
            table.weight.copy_(torch.tensor(embedding_rows))
        _fill_attention(encoder.self_attention, blocks[shared or "enc_self"])
        _fill_attention(decoder.self_attention, blocks[shared or "dec_self"])
        _fill_attention(decoder.cross_attention, blocks[shared or "dec_cross"])
        for ffn, block in (
            (encoder.feed_forward, blocks["enc_ffn"]),
            (decoder.feed_forward, blocks["dec_ffn"]),
        ):
            _fill_linear(ffn.up, block["W1"], block["b1"])
            _fill_linear(ffn.down, block["W2"], block["b2"])
        if built.output_projection.bias is not None:
            _fill_linear(built.output_projection, blocks["out"]["W"], blocks["out"]["b"])


def _fill_attention(attention: MultiHeadAttention, block: dict[str, list]) -> None:
    for projection, name in (("w_q", "Wq"), ("w_k", "Wk"), ("w_v", "Wv"), ("w_o", "Wo")):
        _fill_linear(getattr(attention, projection), block[name])


def _fill_linear(layer: nn.Module, matrix: list, bias: list | None = None) -> None:
    """Copy a matrix in math layout (in, out) into a layer that stores (out, in)."""
    layer.weight.copy_(torch.tensor(matrix).T)
    if bias is not None:
        layer.bias.copy_(torch.tensor(bias))
