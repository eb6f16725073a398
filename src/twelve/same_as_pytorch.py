"""Same as torch: weights copied to and from torch.nn and Hugging Face, and the numbers kept.

Step 15 | notebooks/15_same_as_pytorch.ipynb | tests/unit/test_same_as_pytorch.py
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve import _hugging_face, _leaves
from twelve._checks import check_mask, check_positive, check_same
from twelve._leaves import assembled, copied, filled, shell, stacked
from twelve.decoder import Decoder, DecoderLayer
from twelve.embedding import TokenEmbedding
from twelve.encoder import Encoder, EncoderLayer
from twelve.feed_forward import FeedForward
from twelve.linear import Linear
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm
from twelve.residual import Residual
from twelve.transformer import Transformer

# The parts of our layers, and what torch.nn calls them.
ENCODER_PARTS = {
    "self_attention": "self_attn",
    "self_attention_residual.norm": "norm1",
    "self_attention_residual.dropout": "dropout1",
    "feed_forward.up": "linear1",
    "feed_forward.dropout": "dropout",
    "feed_forward.down": "linear2",
    "feed_forward_residual.norm": "norm2",
    "feed_forward_residual.dropout": "dropout2",
}
DECODER_PARTS = ENCODER_PARTS | {
    "cross_attention": "multihead_attn",
    "cross_attention_residual.norm": "norm2",
    "cross_attention_residual.dropout": "dropout2",
    "feed_forward_residual.norm": "norm3",
    "feed_forward_residual.dropout": "dropout3",
}


def to_torch(layer: nn.Module) -> nn.Module:
    """Build the torch.nn counterpart of one of our layers, with copies of its weights.

    Dtype, device, mode, dropout, eps and which parameters are trained are kept.

    Args:
        layer: A Linear, TokenEmbedding, LayerNorm, MultiHeadAttention, EncoderLayer, DecoderLayer,
            Encoder, Decoder or Transformer. Of a Transformer, nn.Transformer holds the two stacks:
            it knows neither embeddings nor an output projection.

    Returns:
        A module that gives the same numbers, batch first. Where our attentions have no bias, a
        torch layer holds attentions built with bias=False: its own bias=False would take the
        biases of the other parts away as well.

    Raises:
        ValueError: If the layer has no counterpart or uses what it lacks: heads that do not share
            out d_model exactly, a scaled embedding, another feed-forward layer than FeedForward,
            both norm orders in one layer, an attention of which some projections have a bias, or
            are trained, and others not.
    """
    return _convert(_TO_TORCH, "to_torch", layer)


def from_torch(module: nn.Module, *, fused: bool = False) -> nn.Module | tuple[Encoder, Decoder]:
    """Build our counterpart of a torch.nn module, with copies of its weights.

    Args:
        module: An nn.Linear, nn.Embedding, nn.LayerNorm, nn.MultiheadAttention, nn.Transformer, or
            one of its layers or stacks. Batch first or not, the weights are the same; ours is
            always batch first.
        fused: Whether attention and norm call torch's fused kernels.

    Returns:
        A layer that gives the same numbers. Of an nn.Transformer its two stacks:
        `model.encoder, model.decoder = from_torch(theirs)`. A stack has a last norm where torch's
        has one, and nn.Transformer has one after post-norm layers too.

    Raises:
        ValueError: If the module is none of these (a subclass may compute anything) or uses what
            ours lacks: add_bias_kv, add_zero_attn, another activation than ReLU and exact GELU, a
            norm without weight or bias (as in a layer built with bias=False) or over several axes,
            an embedding with max_norm, scale_grad_by_freq or sparse.
    """
    return _convert(_FROM_TORCH, "from_torch", module, fused)


def from_hugging_face(model: nn.Module, *, fused: bool = False) -> Transformer | Encoder | Decoder:
    """Build our counterpart of a model of Hugging Face's transformers, with copies of its weights.

    Args:
        model: A MarianMTModel, or the encoder or decoder of a Marian, BART or MBart. Such a stack
            becomes the layers and the last norm: it takes vectors, not ids.
        fused: Whether attention and norm call torch's fused kernels.

    Returns:
        A Transformer that gives the same logits for the same ids. Its positions are Marian's, all
        sines before all cosines; tables that Marian shares are shared; final_logits_bias, which
        nobody trains, is the bias of the output projection.

    Raises:
        ValueError: If the model is of another class, or uses what ours lacks: another activation
            than relu and gelu, or layerdrop.
    """
    _hugging_face.check_class(model)
    convert = _hugging_face.stack if hasattr(model, "layers") else _hugging_face.transformer
    return convert(model, fused)


def to_torch_mask(
    mask: Bool[Tensor, "#batch #head #query #key"], scores_shape: tuple[int, int, int, int]
) -> Bool[Tensor, "batch_head query key"]:
    """Turn one of our masks into the attn_mask of torch's modules: the opposite sense.

    F.scaled_dot_product_attention has our sense and takes our masks as they are.

    Args:
        mask: True where a query may attend.
        scores_shape: The sizes (batch, head, query, key), which the mask is spread to.

    Returns:
        True where a query may *not* attend; the heads of the first sentence, then of the next.

    Raises:
        ValueError: If the mask is not boolean, has not four axes or does not broadcast.
    """
    if mask.ndim != 4:
        raise ValueError(
            "to_torch_mask: the mask must have the four axes (batch, head, query, key), got shape "
            f"{tuple(mask.shape)}"
        )
    check_mask("to_torch_mask", mask, scores_shape)
    hidden: Bool[Tensor, "batch head query key"] = ~mask.expand(scores_shape)
    return hidden.flatten(0, 1)


def from_torch_mask(
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    *,
    num_heads: int = 1,
) -> Bool[Tensor, "batch head query key"]:
    """Turn the masks of torch's modules into one of ours: the opposite sense.

    Args:
        attn_mask: (query, key) or (batch*head, query, key), True or minus infinity where a query
            may *not* attend.
        key_padding_mask: (batch, key), the same for all queries.
        num_heads: Heads of the attention, to divide batch*head.

    Returns:
        True where a query may attend by both masks; an axis that all share has size 1.

    Raises:
        ValueError: If neither is given, one has other axes or is neither boolean nor made of 0
            and minus infinity, num_heads does not divide batch*head, or the two do not fit.
    """
    owner, allowed = "from_torch_mask", []
    if attn_mask is not None:
        allowed.append(_from_attn_mask(attn_mask, num_heads))
    if key_padding_mask is not None:
        may_attend = _may_attend("key_padding_mask", key_padding_mask, (2,))
        allowed.append(may_attend[:, None, None])
    if not allowed:
        raise ValueError(f"{owner}: give attn_mask, key_padding_mask or both")
    if len(allowed) == 2:
        by_query, by_key = allowed
        check_same(owner, "key", attn_mask=by_query.size(3), key_padding_mask=by_key.size(3))
        if by_query.size(0) > 1:
            check_same(owner, "batch", attn_mask=by_query.size(0), key_padding_mask=by_key.size(0))
        return by_query & by_key
    return allowed[0]


def _from_attn_mask(mask: Tensor, num_heads: int) -> Tensor:
    may_attend = _may_attend("attn_mask", mask, (2, 3))
    if mask.ndim == 2:
        return may_attend[None, None]
    if mask.size(0) % num_heads:
        raise ValueError(
            f"from_torch_mask: num_heads={num_heads} does not divide the first axis (batch*head) "
            f"of attn_mask, got shape {tuple(mask.shape)}"
        )
    return may_attend.unflatten(0, (-1, num_heads))


def _may_attend(argument: str, mask: Tensor, ranks: tuple[int, ...]) -> Tensor:
    if mask.ndim not in ranks:
        raise ValueError(
            f"from_torch_mask: {argument} must have {' or '.join(map(str, ranks))} axes, got shape "
            f"{tuple(mask.shape)}"
        )
    if mask.dtype == torch.bool:
        return ~mask
    if not (mask.is_floating_point() and ((mask == 0.0) | (mask == -torch.inf)).all()):
        raise ValueError(
            f"from_torch_mask: {argument} must be boolean or hold nothing but 0 and -inf (what "
            f"else it adds to the scores, ours cannot), got {mask.dtype}"
        )
    return mask == 0.0


def _convert(table: dict[type, Callable], owner: str, module: nn.Module, *fused: bool) -> Any:
    # By the very class: a subclass may compute anything.
    if type(module) not in table:
        known = ", ".join(kind.__name__ for kind in table)
        raise ValueError(
            f"{owner}: no counterpart is known for {type(module).__name__}; give one of {known}"
        )
    return table[type(module)](module, *fused)


def _attention_to_torch(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    heads, d_model = layer.num_heads, layer.d_model
    if (heads * layer.d_k, heads * layer.d_v) != (d_model, d_model):
        raise ValueError(
            "to_torch: nn.MultiheadAttention shares d_model out among its heads, so num_heads · "
            f"d_k and num_heads · d_v must be d_model={d_model}; got num_heads={heads}, "
            f"d_k={layer.d_k}, d_v={layer.d_v}"
        )
    projections = {"w_q": layer.w_q, "w_k": layer.w_k, "w_v": layer.w_v, "w_o": layer.w_o}
    biased = {name: projection.bias is not None for name, projection in projections.items()}
    widths = {"kdim": layer.w_k.d_in, "vdim": layer.w_v.d_in}
    switches = {"bias": _agreed("bias", biased), "dropout": layer.dropout, "batch_first": True}
    theirs = shell(nn.MultiheadAttention, d_model, heads, **widths, **switches)

    filled(theirs.out_proj, projections.pop("w_o"))
    if theirs.in_proj_weight is None:
        for name, projection in projections.items():
            setattr(theirs, f"{name[-1]}_proj_weight", copied(projection.weight))
    else:
        theirs.in_proj_weight = _packed({name: one.weight for name, one in projections.items()})
    if theirs.in_proj_bias is not None:
        theirs.in_proj_bias = _packed({name: one.bias for name, one in projections.items()})
    return theirs.train(layer.training)


def _packed(parts: dict[str, Tensor]) -> nn.Parameter:
    """Stack what queries, keys and values are made with: one large product instead of three."""
    trained = _agreed("requires_grad", {name: part.requires_grad for name, part in parts.items()})
    packed: Float[Tensor, "3*d_model ..."] = torch.cat(list(parts.values()))
    return copied(packed, trained)


def _agreed(option: str, values: dict[str, bool]) -> bool:
    if len(set(values.values())) > 1:
        listed = ", ".join(f"{name} has {value}" for name, value in values.items())
        raise ValueError(f"to_torch: nn.MultiheadAttention has one {option} for all: {listed}")
    return next(iter(values.values()))


def _attention_from_torch(module: nn.MultiheadAttention, fused: bool) -> MultiHeadAttention:
    if module.bias_k is not None or module.bias_v is not None:
        raise ValueError("from_torch: MultiheadAttention has add_bias_kv=True, which ours lacks")
    _leaves.refuse(module, ["add_zero_attn"])
    if module.in_proj_weight is None:
        separate = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        weights = [copied(weight) for weight in separate]
    else:
        weights = _unpacked(module.in_proj_weight)
    biases = [None] * 3 if module.in_proj_bias is None else _unpacked(module.in_proj_bias)
    parts = {
        name: _leaves.linear(weight, bias, module.training)
        for name, weight, bias in zip(("w_q", "w_k", "w_v"), weights, biases, strict=True)
    }
    parts["w_o"] = _leaves.linear_from_torch(module.out_proj)
    ours = shell(
        MultiHeadAttention, module.embed_dim, module.num_heads, dropout=module.dropout, fused=fused
    )
    return assembled(ours, parts, module.training)


def _unpacked(packed: nn.Parameter) -> list[nn.Parameter]:
    """Cut into what queries, keys and values are made with, which stand in this order."""
    return [copied(third, packed.requires_grad) for third in packed.chunk(3)]


def _layer_to_torch(
    layer: EncoderLayer | DecoderLayer, kind: type[nn.Module], names: dict[str, str]
) -> nn.Module:
    inside = layer.feed_forward
    if type(inside) is not FeedForward:
        raise ValueError(
            "to_torch: a layer of torch has two linear layers with an activation between them, got "
            f"feed_forward={type(inside).__name__}"
        )
    orders = [part.norm_first for part in layer.children() if isinstance(part, Residual)]
    if len(set(orders)) > 1:
        raise ValueError(f"to_torch: a layer of torch has one norm_first for all, got {orders}")
    switches = {"norm_first": orders[0], "activation": inside.activation}
    theirs = shell(kind, layer.self_attention.d_model, 1, **switches)
    parts = {name: to_torch(layer.get_submodule(part)) for part, name in names.items()}
    return assembled(theirs, parts, layer.training)


def _layer_from_torch(
    module: nn.Module, fused: bool, kind: type[nn.Module], names: dict[str, str]
) -> nn.Module:
    parts = {
        part: from_torch(module.get_submodule(name), fused=fused) for part, name in names.items()
    }
    switches = {"norm_first": module.norm_first, "activation": _activation(module.activation)}
    ours = shell(kind, parts["feed_forward.up"].d_in, 1, **switches)
    return assembled(ours, parts, module.training)


def _activation(function: Callable[[Tensor], Tensor]) -> str:
    if function in (F.relu, torch.relu) or isinstance(function, nn.ReLU):
        return "relu"
    if function is F.gelu or (isinstance(function, nn.GELU) and function.approximate == "none"):
        return "gelu"
    name = getattr(function, "__name__", repr(function))
    raise ValueError(f"from_torch: activation must be ReLU or exact GELU, got {name}")


def _stack_to_torch(stack: Encoder | Decoder, kind: Callable[..., nn.Module]) -> nn.Module:
    layers = [to_torch(layer) for layer in stack.layers]
    # Zero clones of the layer that torch asks for: ours differ from each other.
    theirs = kind(layers[0], 0)
    theirs.num_layers = len(layers)
    norm = None if stack.norm is None else to_torch(stack.norm)
    return stacked(theirs, layers, norm, stack.training)


def _stack_from_torch(module: nn.Module, fused: bool, kind: type[nn.Module]) -> nn.Module:
    layers = [from_torch(layer, fused=fused) for layer in module.layers]
    check_positive(type(module).__name__, num_layers=len(layers))
    norm = None if module.norm is None else from_torch(module.norm, fused=fused)
    d_model = layers[0].self_attention.d_model
    ours = shell(kind, d_model, 1, num_layers=1, norm_first=norm is not None)
    return stacked(ours, layers, norm, module.training)


def _transformer_to_torch(model: Transformer) -> nn.Transformer:
    attention = model.encoder.layers[0].self_attention
    # Given the stacks here, nn.Transformer would draw all their weights anew.
    nothing = {"custom_encoder": nn.Identity(), "custom_decoder": nn.Identity()}
    theirs = nn.Transformer(attention.d_model, attention.num_heads, batch_first=True, **nothing)
    stacks = {"encoder": to_torch(model.encoder), "decoder": to_torch(model.decoder)}
    return assembled(theirs, stacks, model.training)


def _transformer_from_torch(module: nn.Transformer, fused: bool) -> tuple[Encoder, Decoder]:
    return from_torch(module.encoder, fused=fused), from_torch(module.decoder, fused=fused)


_TO_TORCH = {
    Linear: _leaves.linear_to_torch,
    TokenEmbedding: _leaves.embedding_to_torch,
    LayerNorm: _leaves.norm_to_torch,
    nn.Dropout: _leaves.dropout_copied,
    MultiHeadAttention: _attention_to_torch,
    EncoderLayer: partial(_layer_to_torch, kind=nn.TransformerEncoderLayer, names=ENCODER_PARTS),
    DecoderLayer: partial(_layer_to_torch, kind=nn.TransformerDecoderLayer, names=DECODER_PARTS),
    # Nested tensors would leave padded positions out and give back zeros in their place.
    Encoder: partial(
        _stack_to_torch, kind=partial(nn.TransformerEncoder, enable_nested_tensor=False)
    ),
    Decoder: partial(_stack_to_torch, kind=nn.TransformerDecoder),
    Transformer: _transformer_to_torch,
}
_FROM_TORCH = {
    nn.Linear: _leaves.linear_from_torch,
    nn.Embedding: _leaves.embedding_from_torch,
    nn.LayerNorm: _leaves.norm_from_torch,
    nn.Dropout: _leaves.dropout_copied,
    nn.MultiheadAttention: _attention_from_torch,
    nn.TransformerEncoderLayer: partial(_layer_from_torch, kind=EncoderLayer, names=ENCODER_PARTS),
    nn.TransformerDecoderLayer: partial(_layer_from_torch, kind=DecoderLayer, names=DECODER_PARTS),
    nn.TransformerEncoder: partial(_stack_from_torch, kind=Encoder),
    nn.TransformerDecoder: partial(_stack_from_torch, kind=Decoder),
    nn.Transformer: _transformer_from_torch,
}
