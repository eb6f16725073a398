"""Calls that run each operation with a formula, and calls that torch decomposes."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from twelve_lab import Trace


def spread(*shape):
    """Return distinct values from 0.2 to 0.8, which are in the domain of every function."""
    return torch.linspace(0.2, 0.8, math.prod(shape), dtype=torch.float64).view(shape)


X, Z = spread(2, 3), spread(2, 3).flip(1) * 0.9
A, B, C = spread(2, 3, 4), spread(2, 4, 2), spread(2, 3, 2)
MASK = torch.tensor([[False, True, False], [True, True, False]])
LAYER = nn.LayerNorm((2, 3), eps=0.3, dtype=torch.float64)
nn.init.uniform_(LAYER.weight, 1, 2), nn.init.uniform_(LAYER.bias, 1, 2)
aten, prims = torch.ops.aten, torch.ops.prims


def attend(x, queries=2, **options):
    """Attend from the first `queries` rows of x to both rows of x."""
    query, x = x[None, None, :queries], x[None, None]
    return F.scaled_dot_product_attention(query, x, x, **options)


on_cpu = torch.library.Library("aten", "IMPL")


def play(kernel, *between):
    """Emulate a GPU attention kernel on the CPU, without its backward pass.

    Args:
        kernel: "flash", "efficient" or "cudnn".
        between: Arguments of the kernel between value and dropout_p.

    Returns:
        A function that computes self-attention over the rows of x.
    """
    operation = getattr(aten, f"_scaled_dot_product_{kernel}_attention").default
    names = [argument.name for argument in operation._schema.arguments]

    def run(*args, **options):
        options = dict(zip(names, args, strict=False)) | options
        known = ("query", "key", "value", "is_causal", "scale")
        output = F.scaled_dot_product_attention(
            **{name: options[name] for name in known if name in options},
            attn_mask=options.get("attn_bias"),
        )
        sizes = {"max_q", "max_k"}
        rest = operation._schema.returns[1:]
        return output, *(0 if each.name in sizes else torch.empty(0) for each in rest)

    def attend(x, *dropout_p, **options):
        x = x.detach()[None, None]
        return operation(x, x, x, *between, *dropout_p, **options)[0]

    on_cpu.impl(operation, run, "CPU")
    return attend


flash = play("flash")
efficient = play("efficient", torch.tensor([[-0.2, 0.3]]), False)
cudnn = play("cudnn", None, False)
# Operation -> calls that run it with various options.
OPERATIONS = {
    "add": [lambda x: x + Z, lambda x: torch.add(x, Z, alpha=3)],
    "sub": [lambda x: x - Z, lambda x: torch.sub(x, Z, alpha=3)],
    "rsub": [lambda x: 1 - x, lambda x: torch.rsub(x, Z, alpha=3)],
    "silu": [F.silu], "std": [torch.std, lambda x: x.std(1, correction=0)],
    "mul": [lambda x: x * Z, lambda x: x * 0],
    "div": [lambda x: x / Z], "pow": [lambda x: x**3, lambda x: x**Z, lambda x: 2**x],
    "neg": [lambda x: -x], "reciprocal": [lambda x: 1 / x], "rsqrt": [torch.rsqrt],
    "relu": [lambda x: F.relu(x - 0.5)],
    "maximum": [lambda x: torch.maximum(x, Z)], "minimum": [lambda x: torch.minimum(x, Z)],
    **{
        name: [getattr(torch, name)]
        for name in (
            "abs acos asin atan ceil cos cosh erf erfc exp exp2 expm1 floor log log10 log1p log2 "
            "sin sinh sqrt tan tanh trunc"
        ).split()
    },
    "abs": [lambda x: (x - 0.5).abs()], "ceil": [lambda x: (x * 9).ceil()],
    "floor": [lambda x: (x * 9).floor()], "trunc": [lambda x: (x * 9 - 4).trunc()],
    "eq": [lambda x: x == X], "ne": [lambda x: x != Z], "lt": [lambda x: x < Z],
    "le": [lambda x: x <= X], "gt": [lambda x: x > Z], "ge": [lambda x: x >= X],
    "logical_not": [lambda x: torch.logical_not(x > 0.5)], "bitwise_not": [lambda x: ~(x > 0.5)],
    "logical_and": [lambda x: torch.logical_and(x > 0.3, x < 0.6)],
    "bitwise_and": [lambda x: (x > 0.3) & (x < 0.6)],
    "logical_or": [lambda x: torch.logical_or(x < 0.3, x > 0.6)],
    "bitwise_or": [lambda x: (x < 0.3) | (x > 0.6)],
    "sigmoid": [lambda x: (3000 * x - 1500).sigmoid()],
    "_to_copy": [lambda x: (9 * x).long(), lambda x: x.float(), lambda x: (x - X[0]).bool()],
    "convert_element_type": [lambda x: prims.convert_element_type(9 * x.detach(), torch.int64)],
    "gelu": [F.gelu], "mm": [lambda x: x @ Z.T], "bmm": [lambda x: (A + x[:, :, None]) @ B],
    "mv": [lambda x: x @ Z[0]], "dot": [lambda x: x[0] @ Z[1]],
    "addmm": [lambda x: torch.addmm(x[:, :2], Z, Z.T)],
    "sum": [torch.sum, lambda x: x.sum(0), lambda x: x.sum(-1, keepdim=True),
        lambda x: x[:0].sum(0)],
    "mean": [torch.mean, lambda x: x.mean(0), lambda x: x.mean((0, 1), keepdim=True)],
    "var": [
        torch.var, lambda x: x.var(0), lambda x: x.var(-1, correction=0, keepdim=True),
        lambda x: x.var(-1, unbiased=False), lambda x: prims.var(x.detach(), [1], 0.0),
    ],
    "prod": [lambda x: x.prod(1), lambda x: x.prod(0, keepdim=True)],
    "amax": [lambda x: x.amax(1)], "amin": [lambda x: x.amin((0, 1))],
    "max": [torch.max, lambda x: x.max(1).values], "min": [lambda x: x.min(0, keepdim=True).values],
    "gather": [
        lambda x: x.gather(1, torch.ones_like(x, dtype=torch.long)),
        lambda x: x.gather(-2, torch.zeros_like(x, dtype=torch.long)),
    ],
    "embedding": [lambda x: F.embedding(torch.tensor([[1, 0], [1, 1]]), x)],
    "masked_fill": [lambda x: x.masked_fill(MASK, 7.0)],
    "where": [lambda x: torch.where(MASK, x, Z)],
    "_softmax": [lambda x: x.softmax(0), lambda x: (1000 * x).softmax(1)],
    "_safe_softmax": [lambda x: torch._safe_softmax(x, -1)],
    "_log_softmax": [lambda x: x.log_softmax(0), lambda x: (1000 * x).log_softmax(-1)],
    "logsumexp": [lambda x: x.logsumexp(1), lambda x: (1000 * x).logsumexp((0, 1))],
    "native_layer_norm": [
        LAYER, lambda x: F.layer_norm(x, (3,), eps=0.2),
        lambda x: F.layer_norm(x, (3,), LAYER.weight[0]),
    ],
    "_scaled_dot_product_flash_attention_for_cpu": [
        attend, lambda x: attend(x, scale=0.3), lambda x: attend(x, is_causal=True),
        lambda x: attend(x, attn_mask=torch.tensor([[True, False], [True, True]])),
        lambda x: attend(x, queries=1, attn_mask=torch.tensor([[-0.2, 0.3]])),
        lambda x: attend(x, attn_mask=torch.zeros(2, 2, dtype=torch.bool)),
        lambda x: attend(x[:, :1]),
        lambda x: F.scaled_dot_product_attention(
            x[None, :, None], x[None, None], x[None, None], enable_gqa=True
        ),
    ],
    "_scaled_dot_product_flash_attention": [flash, lambda x: flash(x, is_causal=True)],
    "_scaled_dot_product_efficient_attention": [efficient, lambda x: efficient(x, scale=0.3)],
    "_scaled_dot_product_cudnn_attention": [cudnn, lambda x: cudnn(x, is_causal=True)],
}  # fmt: skip


def run(function, numbers):
    """Trace a function and its backward pass, with a distinct gradient for each output element."""
    start = numbers.clone().requires_grad_()
    with Trace(grad=True) as trace:
        x: Float[Tensor, "*x"] = start * 1.0
        y: Float[Tensor, "*y"] = function(x)
    if y.requires_grad:
        # Passing a gradient to backward would import sympy, which is slow.
        (y * torch.arange(1.0, y.numel() + 1, dtype=y.dtype).view(y.shape)).sum().backward()
    return trace


# Before PyTorch 2.11, aminmax has no gradient.
TAKEN_APART = {
    "dropout on a GPU": lambda x: torch.native_dropout(x, 0.25, True)[0],
    "addmm": lambda x: torch.addmm(x[:, :2], Z, Z.T, alpha=3), "cumsum": lambda x: x.cumsum(1),
    "addmm scaled": lambda x: torch.addmm(x[:, :2], Z, Z.T, alpha=3, beta=5),
    "baddbmm": lambda x: torch.baddbmm(C + x[:, :, None], A, B, alpha=3, beta=5),
    "norm": lambda x: x.norm(dim=1), "norm of order 3": lambda x: torch.linalg.vector_norm(x, 3),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, Z), "logsigmoid": lambda x: F.logsigmoid(-x),
    "any": lambda x: (x > 0.6).any(1), "all": lambda x: (x > 0.1).all(),
    "in place": lambda x: (x * 1.0).cumsum_(1),
    "aminmax": lambda x: torch.aminmax(x.detach(), dim=1)[1],
}  # fmt: skip
# Torch imports its whole compiler before it decomposes these operations.
SLOWLY = {
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"), "elu": F.elu, "mish": F.mish,
    "softplus": lambda x: F.softplus(9 * x, beta=2.0, threshold=8),
    "leaky_relu": lambda x: F.leaky_relu(x - 0.5, 0.1), "clamp": lambda x: x.clamp(0.3, 0.6),
    "clamp by a tensor": lambda x: x.clamp(Z, Z + 0.1), "clamp_max": lambda x: x.clamp_max(0.5),
    "group_norm": lambda x: F.group_norm(x[None], 2),
    "layer_norm's mean": lambda x: torch.native_layer_norm(x, (3,), None, None, 1e-5)[1],
    "clamp in place": lambda x: (x * 1.0).clamp_(0.3, 0.6), "xlogy": lambda x: torch.xlogy(x, Z),
}  # fmt: skip
