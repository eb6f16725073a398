"""Functions of layers, composed of tensor operations."""

import math
import warnings

import torch
from torch import _errors, _registry, _shape, _tensor

tanh, sigmoid = _registry.METHODS["tanh"], _registry.METHODS["sigmoid"]


def relu(input, inplace=False):
    return input.relu_() if inplace else _registry.METHODS["relu"](input)


def linear(input, weight, bias=None):
    out = torch._math.matmul(input, weight.t())
    return out if bias is None else out + bias


def silu(input, inplace=False):
    return input * sigmoid(input)


def glu(input, dim=-1):
    size = input.shape[dim]
    _errors.check(size % 2 == 0, "glu", dim % max(input.ndim, 1), size)
    value, gate = input.chunk(2, dim)
    return value * sigmoid(gate)


def gelu(input, approximate="none"):
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)
        return 0.5 * input * (1 + tanh(inner))
    return 0.5 * input * (1 + (input / math.sqrt(2)).erf())


def leaky_relu(input, negative_slope=0.01, inplace=False):
    return torch.where(input > 0, input, input * negative_slope)


def softplus(input, beta=1.0, threshold=20.0):
    scaled = input * beta
    smooth = scaled.logaddexp(scaled.detach() * 0) / beta
    return torch.where(scaled > threshold, input, smooth)


def logsigmoid(input):
    return -(-input).logaddexp(input.detach() * 0)


def _implicit(name, x, dim):
    if dim is not None:
        return dim
    warnings.warn(_errors.error("implicit_dim", name), stacklevel=3)
    return 0 if x.ndim in (0, 1, 3) else 1


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return torch._math.softmax(input, _implicit("softmax", input, dim), dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return torch._math.log_softmax(input, _implicit("log_softmax", input, dim), dtype)


def _last(name, x, shape):
    """Return the indices of the last axes, which must have the given shape."""
    if not isinstance(shape, list | tuple):
        kind = type(shape).__name__
        raise _errors.error("argument", name, "normalized_shape", 2, "tuple of ints", kind)
    _errors.check(len(shape), "normalized_empty")
    want = ", ".join(["*", *map(str, shape)])
    fits = tuple(x.shape[x.ndim - len(shape) :]) == tuple(shape)
    _errors.check(fits, "normalized_shape", list(shape), want, list(x.shape))
    return list(range(-len(shape), 0))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    dims = _last("layer_norm", input, normalized_shape)
    variance, mean = torch.var_mean(input, dims, keepdim=True, correction=0)
    out = (input - mean) * (variance + eps).rsqrt()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def rms_norm(input, normalized_shape, weight=None, eps=None):
    dims = _last("rms_norm", input, normalized_shape)
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    out = input * ((input * input).mean(dims, keepdim=True) + eps).rsqrt()
    return out if weight is None else out * weight


def dropout(input, p=0.5, training=True, inplace=False):
    _errors.check(0 <= p <= 1, "dropout", p)
    if not training or p == 0:
        return input
    kept = torch.bernoulli(torch.full(input.shape, 1 - p, dtype=input.dtype))
    return input * kept / (1 - p) if p < 1 else input * 0


def embedding(input, weight, padding_idx=None):
    indices = input.dtype in (torch.int64, torch.int32)
    _errors.check(indices, "embedding_dtype", input.dtype.title)
    _errors.check(weight.ndim == 2, "embedding_ndim")
    _errors.check(all(0 <= i < len(weight) for i in input._values()), "out_of_range")
    if padding_idx is not None:
        held = torch.arange(len(weight)) == padding_idx % len(weight)
        weight = torch.where(held.unsqueeze(1), weight.detach(), weight)
    return weight[input]


def one_hot(tensor, num_classes=-1):
    _errors.check(tensor.dtype is torch.int64, "class_type")
    ids = tensor._values()
    _errors.check(min(ids, default=0) >= 0, "class_negative")
    top = max(ids, default=-1)
    count = top + 1 if num_classes < 0 else num_classes
    _errors.check(top < count, "class_range")
    values = [int(i == c) for i in ids for c in range(count)]
    return _tensor.make(values, (*tensor.shape, count), torch.int64)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    return input / input.norm(p, dim, True).clamp(min=eps)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    lengths = (x.norm(2, dim).clamp(min=eps) for x in (x1, x2))
    return (x1 * x2).sum(dim) / math.prod(lengths)


def pad(input, pad, mode="constant", value=None):
    if mode != "constant":
        raise _errors.not_here(f"pad with mode {mode}")
    _errors.check(len(pad) % 2 == 0, "pad")
    for i in range(len(pad) // 2):
        d, sides = input.ndim - 1 - i, pad[2 * i : 2 * i + 2]
        cut = [max(0, -n) for n in sides]
        if any(cut):
            input = input.narrow(d, cut[0], input.shape[d] - sum(cut))
        shapes = [(*input.shape[:d], max(0, n), *input.shape[d + 1 :]) for n in sides]
        front, end = (torch.full(shape, value or 0, dtype=input.dtype) for shape in shapes)
        input = torch.cat([front, input, end], d) if max(sides) > 0 else input
    return input


def _reduction(x, reduction):
    return x if reduction == "none" else getattr(x, reduction)()


def mse_loss(input, target, reduction="mean"):
    return _reduction((input - target) ** 2, reduction)


def kl_div(input, target, reduction="mean", log_target=False):
    if log_target:
        out = target.exp() * (target - input)
    else:
        # By convention, 0 log 0 = 0.
        out = target * torch.where(target == 0, 1.0, target).log() - target * input
    if reduction == "mean":
        warnings.warn(_errors.error("kl_div"), stacklevel=2)
    return out.sum() / len(input) if reduction == "batchmean" else _reduction(out, reduction)


def nll_loss(input, target, weight=None, ignore_index=-100, reduction="mean"):
    if weight is not None:
        raise _errors.not_here("The argument weight of nll_loss")
    if input.ndim > 2:
        input = input.movedim(1, -1).flatten(0, -2)
    rows, kept = input.reshape(-1, input.shape[-1]), target.reshape(-1) != ignore_index
    for i in target._values():
        _errors.check(i == ignore_index or 0 <= i < rows.shape[1], "target_range", i)
    labels = target.reshape(-1).masked_fill(~kept, 0).unsqueeze(1)
    losses = -rows[_shape.grid("gather", rows, 1, labels)].squeeze(1).masked_fill(~kept, 0)
    if reduction == "none":
        return losses.reshape(target.shape)
    return losses.sum() / kept.sum() if reduction == "mean" else losses.sum()


def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
                  reduction="mean", label_smoothing=0.0):  # fmt: skip
    if weight is not None or size_average is not None or reduce is not None:
        raise _errors.not_here("An argument of cross_entropy")
    if not hasattr(target, "dtype"):
        kind = type(target).__name__
        raise _errors.error("argument", "cross_entropy_loss", "target", 2, "Tensor", kind)
    d = 1 if input.ndim > 1 else 0
    if target.dtype.is_floating_point:
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / input.shape[d]
        losses = -(input.log_softmax(d) * target).sum(d)
        if reduction == "mean":
            return losses.sum() / max(1, input.numel() // input.shape[d])
        return _reduction(losses, reduction)
    if input.ndim > 1:
        sizes = input.shape[0], target.shape[0]
        _errors.check(sizes[0] == sizes[1], "batch_size", *sizes)
    _errors.check(target.dtype is torch.int64, "scalar_type", target.dtype.title)
    if input.ndim > 1:
        due, got = [input.shape[0], *input.shape[2:]], list(target.shape)
        _errors.check(due == got, "target_size", due, got)
    logs = input.log_softmax(d)
    loss = nll_loss(logs, target, None, ignore_index, reduction)
    if not label_smoothing:
        return loss
    kept = target != ignore_index
    smooth = (-logs.mean(d)).masked_fill(~kept, 0)
    if reduction != "none":
        smooth = smooth.sum() / kept.sum() if reduction == "mean" else smooth.sum()
    return (1 - label_smoothing) * loss + label_smoothing * smooth


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0,
                                 is_causal=False, scale=None, enable_gqa=False):  # fmt: skip
    _errors.check(attn_mask is None or not is_causal, "attention")
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * scale
    if is_causal:
        attn_mask = torch.full(scores.shape[-2:], True).tril()
    if attn_mask is not None:
        boolean = attn_mask.dtype is torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    empty = scores.detach().amax(-1, True) == -math.inf
    weights = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return dropout(weights, dropout_p) @ value


# PyTorch implements these functions in C, and the others in Python.
_IN_C = "linear gelu softplus logsigmoid one_hot cosine_similarity scaled_dot_product_attention"
for _name, _f in list(globals().items()):
    if callable(_f) and not _name.startswith("_"):
        globals()[_name] = _registry.guarded(_name, _f, in_python=_name not in _IN_C.split())
__getattr__ = _errors.lookup("torch.nn.functional")
