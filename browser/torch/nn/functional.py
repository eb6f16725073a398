"""Functions of layers, written with the operations of tensors."""

import math
import warnings

from torch import _math as _m
from torch._errors import absent as _absent
from torch._errors import not_here as _not_here
from torch._make import bernoulli as _bernoulli
from torch._make import full as _full
from torch._registry import METHODS as _METHODS
from torch._registry import guarded as _guarded
from torch._shape import cat as _cat
from torch._shape import grid as _grid
from torch._tensor import make as _make
from torch._types import bool_ as _bool
from torch._types import finfo as _finfo
from torch._types import int32 as _int32
from torch._types import int64 as _int64

tanh, sigmoid = _METHODS["tanh"], _METHODS["sigmoid"]


def relu(input, inplace=False):
    return input.relu_() if inplace else _METHODS["relu"](input)


def linear(input, weight, bias=None):
    out = _m.matmul(input, weight.t())
    return out if bias is None else out + bias


def silu(input, inplace=False):
    return input * sigmoid(input)


def glu(input, dim=-1):
    if input.shape[dim] % 2:
        text = f"Halving dimension must be even, but dimension {dim % input.ndim} is size"
        raise RuntimeError(f"{text} {input.shape[dim]}")
    value, gate = input.chunk(2, dim)
    return value * sigmoid(gate)


def gelu(input, approximate="none"):
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)
        return 0.5 * input * (1 + tanh(inner))
    return 0.5 * input * (1 + _METHODS["erf"](input / math.sqrt(2)))


def leaky_relu(input, negative_slope=0.01, inplace=False):
    return _m.where(input > 0, input, input * negative_slope)


def softplus(input, beta=1.0, threshold=20.0):
    scaled = input * beta
    smooth = _METHODS["logaddexp"](scaled, scaled.detach() * 0) / beta
    return _m.where(scaled > threshold, input, smooth)


def logsigmoid(input):
    return -_METHODS["logaddexp"](-input, input.detach() * 0)


def _implicit(name, x, dim):
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if x.ndim in (0, 1, 3) else 1


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return _m.softmax(input, _implicit("softmax", input, dim), dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return _m.log_softmax(input, _implicit("log_softmax", input, dim), dtype)


def _last(name, x, shape):
    if not isinstance(shape, list | tuple):
        text = "argument 'normalized_shape' (position 2) must be tuple of ints"
        raise TypeError(f"{name}(): {text}, not {type(shape).__name__}")
    if not len(shape):
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
            "one element, but got normalized_shape = []"
        )
    if tuple(x.shape[x.ndim - len(shape) :]) != tuple(shape):
        want = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{want}], but got "
            f"input of size{list(x.shape)}"
        )
    return list(range(-len(shape), 0))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    dims = _last("layer_norm", input, normalized_shape)
    centred = input - input.mean(dims, keepdim=True)
    out = centred * (input.var(dims, keepdim=True, correction=0) + eps).rsqrt()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def rms_norm(input, normalized_shape, weight=None, eps=None):
    dims = _last("rms_norm", input, normalized_shape)
    eps = _finfo(input.dtype).eps if eps is None else eps
    out = input * ((input * input).mean(dims, keepdim=True) + eps).rsqrt()
    return out if weight is None else out * weight


def dropout(input, p=0.5, training=True, inplace=False):
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0
    return input * _bernoulli(_full(input.shape, 1 - p, dtype=input.dtype)) / (1 - p)


def embedding(input, weight, padding_idx=None):
    if input.dtype not in (_int64, _int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got torch.{input.dtype.title}Tensor instead "
            "(while checking arguments for embedding)"
        )
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    if any(not 0 <= i < len(weight) for i in input._values()):
        raise IndexError("index out of range in self")
    if padding_idx is not None:
        held = _m.as_tensor([i == padding_idx % len(weight) for i in range(len(weight))])
        weight = _m.where(held.unsqueeze(1), weight.detach(), weight)
    return weight[input]


def one_hot(tensor, num_classes=-1):
    if tensor.dtype is not _int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    ids = tensor._values()
    if min(ids, default=0) < 0:
        raise RuntimeError("Class values must be non-negative.")
    count = max(ids, default=-1) + 1 if num_classes < 0 else num_classes
    if max(ids, default=-1) >= count:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return _make([int(i == c) for i in ids for c in range(count)], (*tensor.shape, count), _int64)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    return input / input.norm(p, dim, True).clamp(min=eps)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    lengths = (x.norm(2, dim).clamp(min=eps) for x in (x1, x2))
    return (x1 * x2).sum(dim) / math.prod(lengths)


def pad(input, pad, mode="constant", value=None):
    if mode != "constant":
        raise _not_here(f"pad with mode {mode}")
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    for i in range(len(pad) // 2):
        d, sides = input.ndim - 1 - i, pad[2 * i : 2 * i + 2]
        cut = [max(0, -n) for n in sides]
        if any(cut):
            input = input.narrow(d, cut[0], input.shape[d] - sum(cut))
        shapes = [(*input.shape[:d], max(0, n), *input.shape[d + 1 :]) for n in sides]
        front, end = (_full(shape, value or 0, dtype=input.dtype) for shape in shapes)
        input = _cat([front, input, end], d) if max(sides) > 0 else input
    return input


def _reduction(x, reduction):
    return x if reduction == "none" else getattr(x, reduction)()


def mse_loss(input, target, reduction="mean"):
    return _reduction((input - target) ** 2, reduction)


def kl_div(input, target, reduction="mean", log_target=False):
    if log_target:
        out = target.exp() * (target - input)
    else:
        # 0 log 0 is 0.
        out = target * _m.where(target == 0, 1.0, target).log() - target * input
    if reduction == "mean":
        text = "reduction: 'mean' divides the total loss by both the batch size and the support "
        text += "size.'batchmean' divides only by the batch size, and aligns with the KL div math "
        warnings.warn(f"{text}definition.'mean' will be changed to behave the same as 'batchmean' "
                      "in the next major release.", stacklevel=2)  # fmt: skip
    return out.sum() / len(input) if reduction == "batchmean" else _reduction(out, reduction)


def nll_loss(input, target, weight=None, ignore_index=-100, reduction="mean"):
    if weight is not None:
        raise _not_here("The argument weight of nll_loss")
    if input.ndim > 2:
        input = input.movedim(1, -1).flatten(0, -2)
    rows, kept = input.reshape(-1, input.shape[-1]), target.reshape(-1) != ignore_index
    for i in target._values():
        if i != ignore_index and not 0 <= i < rows.shape[1]:
            raise IndexError(f"Target {i} is out of bounds.")
    labels = target.reshape(-1).masked_fill(~kept, 0).unsqueeze(1)
    losses = -rows[_grid("gather", rows, 1, labels)].squeeze(1).masked_fill(~kept, 0)
    if reduction == "none":
        return losses.reshape(target.shape)
    return losses.sum() / kept.sum() if reduction == "mean" else losses.sum()


def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
                  reduction="mean", label_smoothing=0.0):  # fmt: skip
    if weight is not None or size_average is not None or reduce is not None:
        raise _not_here("An argument of cross_entropy")
    if not hasattr(target, "dtype"):
        text = "argument 'target' (position 2) must be Tensor"
        raise TypeError(f"cross_entropy_loss(): {text}, not {type(target).__name__}")
    d = 1 if input.ndim > 1 else 0
    if target.dtype.is_floating_point:
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / input.shape[d]
        losses = -(input.log_softmax(d) * target).sum(d)
        if reduction == "mean":
            return losses.sum() / max(1, input.numel() // input.shape[d])
        return _reduction(losses, reduction)
    if input.ndim > 1 and input.shape[0] != target.shape[0]:
        text = f"Expected input batch_size ({input.shape[0]}) to match target batch_size"
        raise ValueError(f"{text} ({target.shape[0]}).")
    if target.dtype is not _int64:
        text = f"expected scalar type Long but found {target.dtype.title}"
        raise RuntimeError(text)
    if input.ndim > 1 and tuple(target.shape) != (input.shape[0], *input.shape[2:]):
        due = [input.shape[0], *input.shape[2:]]
        raise RuntimeError(f"Expected target size {due}, got {list(target.shape)}")
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
    if attn_mask is not None and is_causal:
        text = "Explicit attn_mask should not be set when is_causal=True"
        raise RuntimeError(f"_scaled_dot_product_attention: {text}")
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * scale
    if is_causal:
        attn_mask = _full(scores.shape[-2:], True).tril()
    if attn_mask is not None:
        boolean = attn_mask.dtype is _bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    empty = scores.detach().amax(-1, True) == -math.inf
    weights = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return dropout(weights, dropout_p) @ value


# The others are written in Python in PyTorch too.
_IN_C = "linear gelu softplus logsigmoid one_hot cosine_similarity scaled_dot_product_attention"
for _name, _f in list(globals().items()):
    if getattr(_f, "__module__", "") == __name__ and not _name.startswith("_"):
        globals()[_name] = _guarded(_name, _f, in_python=_name not in _IN_C.split())
tanh, sigmoid = (_guarded(f.__name__, f, in_python=True) for f in (tanh, sigmoid))


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(f"module 'torch.nn.functional' has no attribute {name!r}")
    _absent("torch.nn.functional", name)
