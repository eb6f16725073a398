"""Hugging Face's Marian, BART and MBart as layers of ours; transformers is never imported."""

import torch
from torch import nn

from twelve._checks import check_choice
from twelve._leaves import (
    assembled,
    copied,
    embedding_from_torch,
    linear,
    linear_from_torch,
    norm_from_torch,
    shell,
    stacked,
)
from twelve.decoder import Decoder, DecoderLayer
from twelve.encoder import Encoder, EncoderLayer
from twelve.feed_forward import ACTIVATIONS
from twelve.multi_head_attention import MultiHeadAttention
from twelve.transformer import Transformer

OWNER = "from_hugging_face"
# The stacks that can be copied, and whether they normalise first.
STACKS = {
    "MarianEncoder": False, "MarianDecoder": False, "BartEncoder": False, "BartDecoder": False,
    "MBartEncoder": True, "MBartDecoder": True,
}  # fmt: skip
# The parts of our layers, and what Hugging Face calls them.
PROJECTIONS = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj"}
ATTENTIONS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
NORMS = {
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
}
LINEARS = {"feed_forward.up": "fc1", "feed_forward.down": "fc2"}


def check_class(model: nn.Module) -> None:
    """Refuse a model of another class, by name: a relative of Marian may compute otherwise."""
    check_choice(OWNER, "the model's class", type(model).__name__, ("MarianMTModel", *STACKS))


def transformer(model: nn.Module, fused: bool) -> Transformer:
    """Copy a MarianMTModel, with every table that it shares."""
    encoder, decoder, config = model.model.encoder, model.model.decoder, model.config
    table = encoder.embed_positions.weight
    if not torch.equal(table, decoder.embed_positions.weight):
        raise ValueError(f"{OWNER}: encoder and decoder have different tables of positions")
    sizes = {"d_model": config.d_model, "num_heads": 1, "num_layers": 1, "max_len": len(table)}
    ours = shell(Transformer, 1, 1, dropout=config.dropout, **sizes)
    bias = copied(model.final_logits_bias[0], trained=False)
    parts = {
        "src_embedding": embedding_from_torch(encoder.embed_tokens),
        "tgt_embedding": embedding_from_torch(decoder.embed_tokens),
        "encoder": stack(encoder, fused),
        "decoder": stack(decoder, fused),
        "output_projection": linear(copied(model.lm_head.weight), bias, model.training),
    }
    assembled(ours, parts, model.training)
    ours.positional_encoding.table = table.detach().clone()
    for embedding in (ours.src_embedding, ours.tgt_embedding):
        embedding.scale = config.scale_embedding
    shared = {"src_embedding": encoder.embed_tokens, "output_projection": model.lm_head}
    for name, theirs in shared.items():
        if theirs.weight is decoder.embed_tokens.weight:
            parts[name].weight = ours.tgt_embedding.weight
    return ours


def stack(module: nn.Module, fused: bool) -> Encoder | Decoder:
    """Copy the layers of an encoder or decoder, and its last norm where it has one."""
    name, config = type(module).__name__, module.config
    check_choice(OWNER, "activation_function", config.activation_function, tuple(ACTIVATIONS))
    if module.layerdrop:
        raise ValueError(f"{OWNER}: {name} has layerdrop={module.layerdrop}, which ours lacks")
    norm_first = STACKS[name]
    kind = Encoder if name.endswith("Encoder") else Decoder
    ours = shell(kind, config.d_model, 1, num_layers=1, norm_first=norm_first)
    layers = [layer(theirs, norm_first, fused) for theirs in module.layers]
    norm = norm_from_torch(module.layer_norm, fused) if norm_first else None
    return stacked(ours, layers, norm, module.training)


def layer(module: nn.Module, norm_first: bool, fused: bool) -> EncoderLayer | DecoderLayer:
    """Copy a layer, which is a decoder's if it has an attention to the encoder."""
    kind = DecoderLayer if hasattr(module, "encoder_attn") else EncoderLayer
    switches = {"activation": module.self_attn.config.activation_function, "norm_first": norm_first}
    ours = shell(kind, module.embed_dim, 1, dropout=module.dropout, **switches)
    ours.feed_forward.dropout.p = module.activation_dropout
    parts: dict[str, nn.Module] = {}
    for names, convert in (
        (ATTENTIONS, attention), (NORMS, norm_from_torch), (LINEARS, linear_from_torch)
    ):  # fmt: skip
        present = {name: part for name, part in names.items() if hasattr(module, part)}
        parts |= {name: convert(getattr(module, part), fused) for name, part in present.items()}
    return assembled(ours, parts, module.training)


def attention(module: nn.Module, fused: bool) -> MultiHeadAttention:
    """Copy an attention, whose four projections are linear layers on both sides."""
    ours = shell(
        MultiHeadAttention, module.embed_dim, module.num_heads, dropout=module.dropout, fused=fused
    )
    parts = {name: linear_from_torch(getattr(module, part)) for name, part in PROJECTIONS.items()}
    return assembled(ours, parts, module.training)
