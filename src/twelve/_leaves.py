"""What the conversions of step 15 share: shells without memory, and layers without parts."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from twelve.embedding import TokenEmbedding
from twelve.linear import Linear
from twelve.normalization import LayerNorm


def shell(kind: type[nn.Module], *sizes: object, **switches: object) -> nn.Module:
    """Build a module that has no memory and draws no random numbers, to be filled."""
    with torch.device("meta"):
        return kind(*sizes, **switches)


def copied(values: Tensor, trained: bool | None = None) -> nn.Parameter:
    """Copy values into a parameter that is trained if they are, or as told."""
    trained = values.requires_grad if trained is None else trained
    return nn.Parameter(values.detach().clone(), requires_grad=trained)


def filled(empty: nn.Module, source: nn.Module) -> nn.Module:
    """Give a shell without parts the mode of another module, and copies of its parameters."""
    for name, parameter in source.named_parameters(recurse=False):
        setattr(empty, name, copied(parameter))
    return empty.train(source.training)


def assembled(empty: nn.Module, parts: dict[str, nn.Module], training: bool) -> nn.Module:
    """Put parts in their places in a shell; each part keeps its own mode."""
    empty.train(training)
    for name, part in parts.items():
        empty.set_submodule(name, part)
    return empty


def stacked(
    empty: nn.Module, layers: list[nn.Module], norm: nn.Module | None, training: bool
) -> nn.Module:
    """Put layers and the last norm, if any, in a shell of a stack; each keeps its own mode."""
    empty.train(training)
    del empty.layers[:]
    empty.layers.extend(layers)
    empty.norm = norm
    return empty


def linear(weight: nn.Parameter, bias: nn.Parameter | None, training: bool) -> Linear:
    """Build a layer of ours around parameters that are there."""
    layer = shell(Linear, weight.size(1), weight.size(0), bias=bias is not None)
    layer.weight, layer.bias = weight, bias
    return layer.train(training)


def refuse(module: nn.Module, options: Sequence[str]) -> None:
    """Refuse a module of torch that makes use of an option."""
    for option in options:
        value = getattr(module, option)
        if value:
            raise ValueError(
                f"from_torch: {type(module).__name__} has {option}={value}, which ours lacks"
            )


def linear_to_torch(layer: Linear) -> nn.Linear:
    """Copy a linear layer: both store the weight as (d_out, d_in)."""
    return filled(shell(nn.Linear, layer.d_in, layer.d_out, bias=layer.bias is not None), layer)


def linear_from_torch(module: nn.Linear, fused: bool = False) -> Linear:
    """Copy a linear layer: both store the weight as (d_out, d_in)."""
    sizes = (module.in_features, module.out_features)
    return filled(shell(Linear, *sizes, bias=module.bias is not None), module)


def embedding_to_torch(layer: TokenEmbedding) -> nn.Embedding:
    """Copy a table, which torch never scales."""
    if layer.scale:
        raise ValueError(
            f"to_torch: nn.Embedding does not multiply by √d_model (d_model={layer.d_model}); "
            "give a TokenEmbedding with scale=False and multiply what comes out"
        )
    return filled(shell(nn.Embedding, layer.vocab_size, layer.d_model, layer.padding_idx), layer)


def embedding_from_torch(module: nn.Embedding, fused: bool = False) -> TokenEmbedding:
    """Copy a table, with the id that is never trained."""
    refuse(module, ("max_norm", "scale_grad_by_freq", "sparse"))
    sizes = (module.num_embeddings, module.embedding_dim)
    return filled(shell(TokenEmbedding, *sizes, padding_idx=module.padding_idx), module)


def norm_to_torch(layer: LayerNorm) -> nn.LayerNorm:
    """Copy a norm with its eps."""
    return filled(shell(nn.LayerNorm, layer.d_model, eps=layer.eps), layer)


def norm_from_torch(module: nn.LayerNorm, fused: bool = False) -> LayerNorm:
    """Copy a norm with its eps."""
    shape, affine, bias = module.normalized_shape, module.elementwise_affine, module.bias
    if len(shape) > 1 or bias is None:
        raise ValueError(
            f"from_torch: a LayerNorm must have one axis, a weight and a bias, got "
            f"normalized_shape={shape}, elementwise_affine={affine}, bias={bias is not None} "
            "(a torch layer built with bias=False has norms without bias)"
        )
    return filled(shell(LayerNorm, *shape, eps=module.eps, fused=fused), module)


def dropout_copied(module: nn.Dropout, fused: bool = False) -> nn.Dropout:
    """Copy a dropout: both sides use torch's own."""
    return nn.Dropout(module.p).train(module.training)
