"""Same as torch: weights copied to and from torch.nn, and the numbers kept.

Step 15 | notebooks/15_same_as_pytorch.ipynb | tests/unit/test_same_as_pytorch.py
"""

import re
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor, nn

from twelve._checks import check_equal, check_mask, described
from twelve.decoder import Decoder, DecoderLayer
from twelve.embedding import TokenEmbedding
from twelve.encoder import Encoder, EncoderLayer
from twelve.feed_forward import FeedForward
from twelve.linear import Linear
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm
from twelve.transformer import Transformer

# The parts of our layers, and what torch.nn calls them.
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
    return _counterpart(to_torch, TO_TORCH, layer, _names(layer))


def from_torch(module: nn.Module) -> nn.Module | tuple[Encoder, Decoder]:
    """Build our counterpart of a torch.nn module, with copies of its weights.

    Args:
        module: An nn.Linear, nn.Embedding, nn.LayerNorm, nn.MultiheadAttention, nn.Transformer, or
            one of its layers or stacks. Batch first or not, the weights are the same; ours is
            always batch first.

    Returns:
        A layer that gives the same numbers. Of an nn.Transformer its two stacks:
        `model.encoder, model.decoder = from_torch(theirs)`. A stack has a last norm where torch's
        has one, and nn.Transformer has one after post-norm layers too.

    Raises:
        ValueError: If the module is none of these (a subclass may compute anything) or uses what
            ours lacks: add_bias_kv, add_zero_attn, keys or values of another width than the
            queries, another activation than F.relu and F.gelu, a norm without weight or bias (as
            in a layer built with bias=False) or over several axes, an embedding with max_norm,
            scale_grad_by_freq or sparse.
    """
    if type(module) is nn.Transformer:
        return from_torch(module.encoder), from_torch(module.decoder)
    names = {theirs: ours for ours, theirs in _names(module).items()}
    return _counterpart(from_torch, FROM_TORCH, module, names)


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
    check_mask("to_torch_mask", mask, scores_shape)
    hidden: Bool[Tensor, "batch head query key"] = ~mask.expand(scores_shape)
    return hidden.flatten(0, 1)


# Parts that are cut out of a packed matrix want a gradient where it does, even under no_grad.
@torch.enable_grad()
def _counterpart(
    convert: Callable, table: dict[type, Callable], module: nn.Module, names: dict[str, str]
) -> nn.Module:
    """Build what a module is on the other side, with copies of its parameters and of its parts."""
    owner, name = convert.__name__, type(module).__name__
    # By the very class: a subclass may compute anything.
    if type(module) not in table:
        known = ", ".join(kind.__name__ for kind in table)
        raise ValueError(f"{owner}: no counterpart is known for {name}; give one of {known}")
    for option in LACKING.get(type(module), ()):
        if not any(getattr(module, option) is nothing for nothing in (None, False)):
            raise ValueError(f"{owner}: the counterpart of {name} has no {option}")
    # A shell without memory, for which no random numbers are drawn. Tables get memory: to draw
    # normal numbers without it, torch would import its compiler, which takes seconds.
    place = "cpu" if isinstance(module, nn.Embedding | TokenEmbedding) else "meta"
    with torch.random.fork_rng([]), torch.device(place):
        shell = table[type(module)](module).train(module.training)
    parameters = _parameters(module)
    if dict(shell.named_parameters(recurse=False)).keys() - parameters:
        raise ValueError(f"{owner}: a {name} must have a weight and a bias, got {module}")
    for path, values in parameters.items():
        part, _, at = path.rpartition(".")
        copied = nn.Parameter(values.detach().clone(), requires_grad=values.requires_grad)
        setattr(shell.get_submodule(part), at, copied)
    for source, target in names.items():
        shell.set_submodule(target, convert(module.get_submodule(source)))
    return shell


def _names(module: nn.Module) -> dict[str, str]:
    """Pair the parts of a module with those of its counterpart, ours with theirs."""
    if isinstance(module, EncoderLayer | nn.TransformerEncoderLayer):
        return ENCODER_PARTS
    if isinstance(module, DecoderLayer | nn.TransformerDecoderLayer):
        return DECODER_PARTS
    alike = re.compile(r"layers\.\d+|norm|encoder|decoder")  # of a stack, or of a Transformer
    return {name: name for name, _ in module.named_modules() if alike.fullmatch(name)}


def _parameters(module: nn.Module) -> dict[str, Tensor]:
    """Give the parameters that belong to no part, under the names of the counterpart."""
    found = dict(module.named_parameters(recurse=False))
    if isinstance(module, MultiHeadAttention):
        for kind, one in module.w_o.named_parameters():
            three = {f"w_{name}": getattr(getattr(module, f"w_{name}"), kind) for name in "qkv"}
            trained = {name: part.requires_grad for name, part in three.items()}
            check_equal("to_torch", "the one requires_grad of nn.MultiheadAttention", **trained)
            # One product instead of three: first the queries, then the keys.
            found |= {f"out_proj.{kind}": one, f"in_proj_{kind}": torch.cat([*three.values()])}
    if isinstance(module, nn.MultiheadAttention):
        found = {}
        for kind, one in module.out_proj.named_parameters():
            parts = (*getattr(module, f"in_proj_{kind}").chunk(3), one)
            found |= {f"w_{name}.{kind}": part for name, part in zip("qkvo", parts, strict=True)}
    return found


def _attention_to_torch(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    heads, d_model = ours.num_heads, ours.d_model
    widths = {f"{heads} heads of d_k": heads * ours.d_k, f"{heads} heads of d_v": heads * ours.d_v}
    shared_out = "the width that nn.MultiheadAttention shares out among its heads"
    check_equal("to_torch", shared_out, d_model=d_model, **widths)
    biased = {name: part.bias is not None for name, part in ours.named_children()}
    check_equal("to_torch", "the one bias of nn.MultiheadAttention", **biased)
    switches = {"bias": biased["w_o"], "dropout": ours.dropout, "batch_first": True}
    return nn.MultiheadAttention(d_model, heads, **switches)


def _attention_from_torch(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    switches = {"bias": theirs.in_proj_bias is not None, "dropout": theirs.dropout}
    return MultiHeadAttention(theirs.embed_dim, theirs.num_heads, **switches)


def _layer_to_torch(kind: type[nn.Module], ours: EncoderLayer | DecoderLayer) -> nn.Module:
    inside = ours.feed_forward
    if type(inside) is not FeedForward:
        raise ValueError(f"to_torch: feed_forward must be a FeedForward, got {described(inside)}")
    orders = {name: one.norm_first for name, one in ours.named_children() if "residual" in name}
    check_equal("to_torch", f"the one norm_first of nn.{kind.__name__}", **orders)
    order = ours.feed_forward_residual.norm_first
    return kind(inside.d_model, 1, norm_first=order, activation=inside.activation)


def _layer_from_torch(kind: type[nn.Module], theirs: nn.Module) -> EncoderLayer | DecoderLayer:
    # From a word torch keeps the function; a function or a module of one's own may be anything.
    name = {F.relu: "relu", F.gelu: "gelu"}.get(theirs.activation)
    if name is None:
        wanted = "activation must be F.relu or F.gelu"
        raise ValueError(f"from_torch: {wanted}, got {theirs.activation}")
    return kind(theirs.linear1.in_features, 1, norm_first=theirs.norm_first, activation=name)


def _norm_from_torch(theirs: nn.LayerNorm) -> LayerNorm:
    shape = theirs.normalized_shape
    return LayerNorm(shape if len(shape) > 1 else shape[0], eps=theirs.eps)


def _stack_from_torch(kind: type[nn.Module], theirs: nn.Module) -> Encoder | Decoder:
    d_model, layers = theirs.layers[0].linear1.in_features, len(theirs.layers)
    return kind(d_model, 1, num_layers=layers, norm_first=theirs.norm is not None)


def _transformer_to_torch(ours: Transformer) -> nn.Transformer:
    # Given the stacks here, nn.Transformer would draw all their weights anew.
    nothing = {"custom_encoder": nn.Identity(), "custom_decoder": nn.Identity()}
    attention = ours.encoder.layers[0].self_attention
    return nn.Transformer(attention.d_model, attention.num_heads, batch_first=True, **nothing)


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
    # Nested tensors would leave padded positions out and give back zeros in their place.
    Encoder: lambda ours: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(1, 1), len(ours.layers), ours.norm and nn.LayerNorm(1),
        enable_nested_tensor=False,
    ),
    Decoder: lambda ours: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(1, 1), len(ours.layers), ours.norm and nn.LayerNorm(1)
    ),
    Transformer: _transformer_to_torch,
}  # fmt: skip
FROM_TORCH = {
    nn.Linear: lambda one: Linear(one.in_features, one.out_features, bias=one.bias is not None),
    nn.Embedding: lambda one: TokenEmbedding(*one.weight.shape, padding_idx=one.padding_idx),
    nn.LayerNorm: _norm_from_torch,
    nn.Dropout: lambda theirs: nn.Dropout(theirs.p),
    nn.MultiheadAttention: _attention_from_torch,
    nn.TransformerEncoderLayer: partial(_layer_from_torch, EncoderLayer),
    nn.TransformerDecoderLayer: partial(_layer_from_torch, DecoderLayer),
    nn.TransformerEncoder: partial(_stack_from_torch, Encoder),
    nn.TransformerDecoder: partial(_stack_from_torch, Decoder),
}
