"""The same layers on torch's fused kernels: the same outputs, but no intermediates to trace.

`make_fast(model)` swaps them into a model. Parameters and state_dict stay the same.
"""

import inspect
import math
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twelve._checks import check_mask, check_positions, checked, described
from twelve.decoder_only import LanguageModel
from twelve.generation import KeyValueCache, all_or_nothing
from twelve.grouped_query_attention import GroupedQueryAttention
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import HALF, LayerNorm, RMSNorm
from twelve.rotary_positions import RotaryEncoding

__all__ = ["make_fast"]

CACHE_LINE = 64  # bytes
# Methods that do not affect the output; subclasses may override them.
SETUP = {"__init__", "_apply", "extra_repr"}


def make_fast(model: nn.Module) -> nn.Module:
    """Replace the layers of a model, in place, with versions on fused kernels.

    Also packs all parameters into one contiguous buffer. Subclasses that override a method of the
    computation are left unchanged.

    Args:
        model: Any module that contains layers of this package.

    Returns:
        The model itself.

    Raises:
        ValueError: If the model is not a module.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"make_fast: model must be a torch.nn.Module, got {described(model)}")
    for module in model.modules():
        module.__class__ = _fast_class(type(module))
    _pack(model)
    return model


def _checked_as(plain: type[nn.Module]) -> Callable[[Callable], Callable]:
    """Check the arguments of a fast forward against the annotations of the plain layer."""
    annotations = inspect.unwrap(plain.forward).__annotations__

    def decorate(forward: Callable) -> Callable:
        inspect.unwrap(forward).__annotations__ = annotations
        return checked(forward)

    return decorate


class FastLayerNorm(LayerNorm):
    """LayerNorm on torch's kernel."""

    @_checked_as(LayerNorm)
    def forward(self, x: Tensor) -> Tensor:
        """Compute the same as LayerNorm.forward."""
        return F.layer_norm(x, (self.d_model,), self.weight, self.bias, self.eps)


class FastRMSNorm(RMSNorm):
    """RMSNorm on torch's kernel."""

    @_checked_as(RMSNorm)
    def forward(self, x: Tensor) -> Tensor:
        """Compute the same as RMSNorm.forward."""
        return F.rms_norm(x, (self.d_model,), self.weight, self.eps)


class FastRotaryEncoding(RotaryEncoding):
    """RotaryEncoding with each pair of features as one complex number."""

    @_checked_as(RotaryEncoding)
    def forward(self, heads: Tensor, start: int = 0) -> Tensor:
        """Compute the same as RotaryEncoding.forward."""
        if heads.dtype != self.table.dtype or heads.dtype in HALF:
            return super().forward(heads, start)  # complex numbers need full precision
        check_positions("RotaryEncoding", start, heads.size(2), self.max_len)
        sin, cos = self.table[start : start + heads.size(2)].unflatten(-1, (-1, 2)).unbind(-1)
        rotated = torch.complex(heads[..., 0::2], heads[..., 1::2]) * torch.complex(cos, sin)
        return torch.view_as_real(rotated).flatten(-2)


class FastMultiHeadAttention(MultiHeadAttention):
    """MultiHeadAttention on torch's fused attention kernel."""

    attend = staticmethod(F.scaled_dot_product_attention)

    def _split(self, projected: Tensor) -> Tensor:
        # In the smallest models, einops takes longer than attention itself.
        return projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _merge(self, context: Tensor) -> Tensor:
        return context.transpose(1, 2).flatten(2)


class FastGroupedQueryAttention(GroupedQueryAttention):
    """GroupedQueryAttention on torch's fused attention kernel, without repeating heads."""

    @_checked_as(GroupedQueryAttention)
    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, cache: KeyValueCache | None = None
    ) -> Tensor:
        """Compute the same as GroupedQueryAttention.forward."""
        query_heads, key_heads = self._split(self.w_q(x)), self._split(self.w_k(x))
        value_heads = self._split(self.w_v(x))
        if self.rotary is not None:
            start = 0 if cache is None else cache.length
            query_heads, key_heads = self.rotary(query_heads, start), self.rotary(key_heads, start)
        if cache is not None:
            key_heads, value_heads = cache(key_heads, value_heads)
        # With is_causal, the kernel skips masked blocks instead of computing and masking them.
        is_causal = getattr(mask, "is_causal", False)
        if mask is not None and not is_causal:
            check_mask("GroupedQueryAttention", mask, (*query_heads.shape[:3], key_heads.size(2)))
        context = F.scaled_dot_product_attention(
            query_heads, key_heads, value_heads,
            attn_mask=None if is_causal else mask, is_causal=is_causal,
            dropout_p=self.dropout if self.training else 0.0, enable_gqa=True,
        )  # fmt: skip
        return self.w_o(context.transpose(1, 2).flatten(2))


class FastLanguageModel(LanguageModel):
    """LanguageModel that can compute the logits at the last position only."""

    def last_logits(
        self, ids: Tensor, *, caches: list[KeyValueCache] | None = None,
        key_mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return LanguageModel.forward(...)[:, -1:] without computing earlier logits."""
        with all_or_nothing(caches):
            return self.compute_logits(self.run_layers(ids, caches, key_mask)[:, -1:])

    def make_mask(self, ids: Tensor, start: int, key_mask: Tensor | None) -> Tensor | None:
        """Make the mask, and set its attribute `is_causal` if it is purely causal."""
        mask = super().make_mask(ids, start, key_mask)
        narrow = self.window is not None and self.window < ids.size(1)
        if mask is not None and key_mask is None and start == 0 and not narrow:
            mask.is_causal = True
        return mask


FAST = (
    FastLayerNorm, FastRMSNorm, FastRotaryEncoding, FastMultiHeadAttention,
    FastGroupedQueryAttention, FastLanguageModel,
)  # fmt: skip


@cache
def _fast_class(kind: type[nn.Module]) -> type[nn.Module]:
    """Return the fast version of a class, or the class itself if it has none."""
    for fast in FAST:
        plain = fast.__base__
        if kind in (plain, fast):
            return fast
        if issubclass(kind, plain) and not issubclass(kind, fast):
            # The forward of the fast class does not call all methods of the plain class.
            methods = {name for name in vars(plain) if callable(getattr(plain, name))} - SETUP
            if all(getattr(kind, name) is getattr(plain, name) for name in methods):
                return type(f"Fast{kind.__name__}", (fast, kind), {})
    return kind


@torch.inference_mode(False)  # parameters made in inference mode could never be trained
def _pack(model: nn.Module) -> None:
    """Move all parameters into one contiguous buffer, aligned to cache lines.

    Every decoding step reads all weights, and page-table lookups take time. Linux backs a large
    NumPy buffer with huge pages.
    """
    parameters = [p for p in model.parameters() if p.device.type == "cpu"]
    if not parameters:
        return
    import numpy  # imported here, because the layers do not need NumPy

    sizes = [math.ceil(p.nbytes / CACHE_LINE) * CACHE_LINE for p in parameters]
    buffer = torch.from_numpy(numpy.empty(sum(sizes) + CACHE_LINE, dtype=numpy.uint8))
    buffer = buffer[-buffer.data_ptr() % CACHE_LINE :][: sum(sizes)]
    for parameter, part in zip(parameters, buffer.split(sizes), strict=True):
        packed = part[: parameter.nbytes].view(parameter.dtype).view(parameter.shape)
        parameter.data = packed.copy_(parameter.data)
