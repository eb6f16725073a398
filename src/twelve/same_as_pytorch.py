"""Same as torch: convert layers to and from torch.nn with equal outputs.

Step 15 | notebooks/15_same_as_pytorch.ipynb | tests/unit/test_same_as_pytorch.py
"""

import re
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from twelve._checks import check_equal, check_mask, described
from twelve.decoder import Decoder, DecoderLayer
from twelve.embedding import TokenEmbedding
from twelve.encoder import Encoder, EncoderLayer
from twelve.feed_forward import ACTIVATIONS, FeedForward
from twelve.linear import Linear
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm
from twelve.transformer import Transformer

# Submodules of our layers: our name -> the name in torch.nn.
ENCODER_PARTS = {
    "self_attention": "self_attn", "self_attention_residual.norm": "norm1",
    "self_attention_residual.dropout": "dropout1", "feed_forward.up": "linear1",
    "feed_forward.dropout": "dropout", "feed_forward.down": "linear2",
    "feed_forward_residual.norm": "norm2", "feed_forward_residual.dropout": "dropout2",
}  # fmt: skip
DECODER_PARTS = ENCODER_PARTS | {
    "cross_attention": "multihead_attn", "cross_attention_residual.norm": "norm2",
    "cross_attention_residual.dropout": "dropout2", "feed_forward_residual.norm": "norm3",
    "feed_forward_residual.dropout": "dropout3",
}  # fmt: skip


def to_torch(layer: nn.Module) -> nn.Module:
    """Build the torch.nn counterpart of one of our layers, with copies of its weights.

    Dtype, device, mode, dropout, eps and requires_grad are preserved.

    Args:
        layer: A Linear, TokenEmbedding, LayerNorm, MultiHeadAttention, EncoderLayer, DecoderLayer,
            Encoder, Decoder or Transformer. nn.Transformer contains the two stacks of a
            Transformer, but neither embeddings nor an output projection.

    Returns:
        A module with the same outputs, batch first. If our attentions have no bias, the torch
        layer contains attentions built with bias=False, because bias=False on the layer itself
        would also remove the biases of its other submodules.

    Raises:
        ValueError: If the layer has no counterpart, or uses an option that the counterpart lacks:
            heads whose widths do not sum to d_model, a scaled embedding, a feed-forward layer other
            than FeedForward, both norm orders in one layer, or an attention in which only some
            projections have a bias or are trained.
    """
    theirs = _build("to_torch", TO_TORCH, layer)
    for our_name, their_name in _parts(layer).items():
        theirs.set_submodule(their_name, to_torch(layer.get_submodule(our_name)))
    return theirs


def from_torch(module: nn.Module) -> nn.Module | tuple[Encoder, Decoder]:
    """Build our counterpart of a torch.nn module, with copies of its weights.

    Args:
        module: An nn.Linear, nn.Embedding, nn.LayerNorm, nn.MultiheadAttention, nn.Transformer, or
            one of its layers or stacks. Its batch_first does not matter, because the weights
            are the same; ours is always batch first.

    Returns:
        A layer with the same outputs. For an nn.Transformer, its two stacks:
        `model.encoder, model.decoder = from_torch(theirs)`. A stack has a final norm if torch's
        stack has one; nn.Transformer has one even after post-norm layers.

    Raises:
        ValueError: If the module has another type (a subclass may compute anything), or uses an
            option that ours lacks: add_bias_kv, add_zero_attn, kdim or vdim, an activation other
            than F.relu, F.gelu and F.silu, a norm without weight or bias (as in a layer built with
            bias=False) or over several axes, an embedding with max_norm, scale_grad_by_freq or
            sparse.
    """
    if type(module) is nn.Transformer:
        return from_torch(module.encoder), from_torch(module.decoder)
    ours = _build("from_torch", FROM_TORCH, module)
    for our_name, their_name in _parts(module).items():
        ours.set_submodule(our_name, from_torch(module.get_submodule(their_name)))
    return ours


def to_torch_mask(
    mask: Bool[Tensor, "#batch #head #query #key"], scores_shape: tuple[int, int, int, int]
) -> Bool[Tensor, "batch_head query key"]:
    """Convert one of our masks to the attn_mask of torch's modules, where True means masked.

    F.scaled_dot_product_attention accepts our masks unchanged.

    Args:
        mask: True where a query may attend.
        scores_shape: The sizes (batch, head, query, key), to which the mask is expanded.

    Returns:
        True where a query may *not* attend; shape (batch · head, query, key).

    Raises:
        ValueError: If the mask is not boolean, does not have four axes or does not broadcast.
    """
    check_mask("to_torch_mask", mask, scores_shape)
    hidden: Bool[Tensor, "batch head query key"] = ~mask.expand(scores_shape)
    return hidden.flatten(0, 1)


def _parts(module: nn.Module) -> dict[str, str]:
    """Map our names of the submodules to those of the counterpart."""
    if isinstance(module, EncoderLayer | nn.TransformerEncoderLayer):
        return ENCODER_PARTS
    if isinstance(module, DecoderLayer | nn.TransformerDecoderLayer):
        return DECODER_PARTS
    # The submodules of a stack and of a Transformer have the same names in both libraries.
    shared = re.compile(r"layers\.\d+|norm|encoder|decoder")
    return {name: name for name, _ in module.named_modules() if shared.fullmatch(name)}


# Slices of a packed matrix must inherit its requires_grad, even under no_grad.
@torch.enable_grad()
def _build(where: str, table: dict[type, Callable], module: nn.Module) -> nn.Module:
    """Build the counterpart, and copy all parameters that are not in submodules of `_parts`."""
    name = type(module).__name__
    # Require the exact class, because a subclass may compute anything.
    if type(module) not in table:
        known = ", ".join(kind.__name__ for kind in table)
        raise ValueError(f"{where}: unsupported module {name} (supported: {known})")
    for option in LACKING.get(type(module), ()):
        if not any(getattr(module, option) is unset for unset in (None, False)):
            raise ValueError(f"{where}: unsupported option {option} of {name}")
    # The initial weights are replaced, so drawing them must not advance the caller's RNG.
    with torch.random.fork_rng([]), torch.device("cpu"):
        built = table[type(module)](module).train(module.training)
    parameters = _parameters(module)
    if dict(built.named_parameters(recurse=False)).keys() - parameters:
        raise ValueError(f"{where}: a {name} must have a weight and a bias, got {module}")
    for path, values in parameters.items():
        part, _, kind = path.rpartition(".")
        copied = nn.Parameter(values.detach().clone(), requires_grad=values.requires_grad)
        setattr(built.get_submodule(part), kind, copied)
    return built


def _parameters(module: nn.Module) -> dict[str, Tensor]:
    """Collect the parameters that are not in submodules, under the names of the counterpart."""
    parameters = dict(module.named_parameters(recurse=False))
    if isinstance(module, MultiHeadAttention):
        # torch packs three matrices into one.
        for kind, w_o in module.w_o.named_parameters():
            three = {name: getattr(getattr(module, name), kind) for name in ("w_q", "w_k", "w_v")}
            trained = {name: values.requires_grad for name, values in three.items()}
            check_equal("to_torch", "requires_grad of all projections", **trained)
            parameters[f"in_proj_{kind}"] = torch.cat(list(three.values()))
            parameters[f"out_proj.{kind}"] = w_o
    if isinstance(module, nn.MultiheadAttention):
        for kind, w_o in module.out_proj.named_parameters():
            w_q, w_k, w_v = parameters.pop(f"in_proj_{kind}").chunk(3)
            four = {"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
            parameters |= {f"{name}.{kind}": values for name, values in four.items()}
    return parameters


def _attention_to_torch(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    heads, d_model = ours.num_heads, ours.d_model
    widths = {f"{heads} heads of d_k": heads * ours.d_k, f"{heads} heads of d_v": heads * ours.d_v}
    check_equal("to_torch", "d_model and the width of all heads", d_model=d_model, **widths)
    biased = {name: part.bias is not None for name, part in ours.named_children()}
    check_equal("to_torch", "the biases of all projections", **biased)
    switches = {"bias": biased["w_o"], "dropout": ours.dropout, "batch_first": True}
    return nn.MultiheadAttention(d_model, heads, **switches)


def _attention_from_torch(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    switches = {"bias": theirs.in_proj_bias is not None, "dropout": theirs.dropout}
    return MultiHeadAttention(theirs.embed_dim, theirs.num_heads, **switches)


def _layer_to_torch(kind: type[nn.Module], ours: EncoderLayer | DecoderLayer) -> nn.Module:
    inside = ours.feed_forward
    if type(inside) is not FeedForward:
        raise ValueError(f"to_torch: feed_forward must be a FeedForward, got {described(inside)}")
    orders = {name: part.norm_first for name, part in ours.named_children() if "residual" in name}
    check_equal("to_torch", "norm_first of all residuals", **orders)
    order = ours.feed_forward_residual.norm_first
    return kind(inside.d_model, 1, 1, norm_first=order, activation=ACTIVATIONS[inside.activation])


def _layer_from_torch(kind: type[nn.Module], theirs: nn.Module) -> EncoderLayer | DecoderLayer:
    # torch stores a function; other functions and modules are not supported.
    name = {function: name for name, function in ACTIVATIONS.items()}.get(theirs.activation)
    if name is None:
        wanted = "activation must be F.relu, F.gelu or F.silu"
        raise ValueError(f"from_torch: {wanted}, got {theirs.activation}")
    return kind(theirs.linear1.in_features, 1, 1, norm_first=theirs.norm_first, activation=name)


def _norm_from_torch(theirs: nn.LayerNorm) -> LayerNorm:
    shape = theirs.normalized_shape
    return LayerNorm(shape if len(shape) > 1 else shape[0], eps=theirs.eps)


def _stack_from_torch(kind: type[nn.Module], theirs: nn.Module) -> Encoder | Decoder:
    d_model, layers = theirs.layers[0].linear1.in_features, len(theirs.layers)
    return kind(d_model, 1, 1, num_layers=layers, norm_first=theirs.norm is not None)


def _stack_to_torch(kind: type[nn.Module], ours: Encoder | Decoder, **options: bool) -> nn.Module:
    return kind(nn.Identity(), len(ours.layers), ours.norm and nn.Identity(), **options)


def _transformer_to_torch(ours: Transformer) -> nn.Transformer:
    # nn.Transformer reinitializes custom stacks, so they are set afterwards.
    stacks = {"custom_encoder": nn.Identity(), "custom_decoder": nn.Identity()}
    attention = ours.encoder.layers[0].self_attention
    return nn.Transformer(attention.d_model, attention.num_heads, batch_first=True, **stacks)


LACKING = {
    TokenEmbedding: ("scale",),
    nn.Embedding: ("max_norm", "scale_grad_by_freq", "sparse"),
    nn.MultiheadAttention: ("bias_k", "bias_v", "add_zero_attn", "q_proj_weight"),
}
TO_TORCH = {
    Linear: lambda ours: nn.Linear(ours.d_in, ours.d_out, bias=ours.bias is not None),
    TokenEmbedding: lambda ours: nn.Embedding(ours.vocab_size, ours.d_model, ours.padding_idx),
    LayerNorm: lambda ours: nn.LayerNorm(ours.d_model, eps=ours.eps),
    nn.Dropout: lambda ours: nn.Dropout(ours.p),
    MultiHeadAttention: _attention_to_torch,
    EncoderLayer: partial(_layer_to_torch, nn.TransformerEncoderLayer),
    DecoderLayer: partial(_layer_to_torch, nn.TransformerDecoderLayer),
    # Nested tensors would return zeros at padded positions.
    Encoder: partial(_stack_to_torch, nn.TransformerEncoder, enable_nested_tensor=False),
    Decoder: partial(_stack_to_torch, nn.TransformerDecoder),
    Transformer: _transformer_to_torch,
}
FROM_TORCH = {
    nn.Linear: lambda theirs: Linear(*theirs.weight.T.shape, bias=theirs.bias is not None),
    nn.Embedding: lambda theirs: TokenEmbedding(
        *theirs.weight.shape, padding_idx=theirs.padding_idx
    ),
    nn.LayerNorm: _norm_from_torch,
    nn.Dropout: lambda theirs: nn.Dropout(theirs.p),
    nn.MultiheadAttention: _attention_from_torch,
    nn.TransformerEncoderLayer: partial(_layer_from_torch, EncoderLayer),
    nn.TransformerDecoderLayer: partial(_layer_from_torch, DecoderLayer),
    nn.TransformerEncoder: partial(_stack_from_torch, Encoder),
    nn.TransformerDecoder: partial(_stack_from_torch, Decoder),
}
