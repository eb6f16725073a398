"""The checks that several layers share: each raises a ValueError with names and numbers."""

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real

import torch
from torch import Tensor, nn


def shows(*names: str) -> Callable[[nn.Module], str]:
    """Make the extra_repr of a layer: what print(model) lists of its settings."""
    return lambda layer: ", ".join(f"{name}={getattr(layer, name)!r}" for name in names)


def described(value: object) -> str:
    """Say of a tensor which type and shape it has, and of anything else what it is."""
    if isinstance(value, Tensor):
        return f"{value.dtype} in shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def check_positive(owner: str, **sizes: int) -> None:
    """Refuse a size that is not a whole number of at least 1, of Python or of NumPy."""
    for name, size in sizes.items():
        # While torch.export runs, a size may be a symbol.
        whole = isinstance(size, Integral | torch.SymInt) and not isinstance(size, bool)
        if not whole or size < 1:
            raise ValueError(f"{owner}: {name} must be a whole number of at least 1, got {size!r}")


def check_between(owner: str, least: int, most: int, where: str, **numbers: int) -> None:
    """Refuse what is no whole number from `least` to `most`; `where` says what has that range."""
    for name, number in numbers.items():
        if not isinstance(number, Integral) or not least <= number <= most:
            allowed = f"from {least} to {most} ({where})"
            raise ValueError(f"{owner}: {name} must lie {allowed}, got {number!r}")


def check_switch(owner: str, **switches: bool) -> None:
    """Refuse what Python would only take for true or false, as the word "no" for true."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ValueError(f"{owner}: {name} must be True or False, got {value!r}")


def check_dropout(owner: str, dropout: float) -> None:
    """Refuse a dropout probability outside [0, 1)."""
    if not isinstance(dropout, Real) or not 0.0 <= dropout < 1.0:
        raise ValueError(f"{owner}: dropout must be at least 0 and below 1, got {dropout!r}")


def check_above_zero(owner: str, **numbers: float) -> None:
    """Refuse what is no finite number above 0: a divisor, or the size of a step."""
    for name, number in numbers.items():
        if not isinstance(number, Real) or not 0.0 < number < math.inf:
            raise ValueError(f"{owner}: {name} must be above 0 and finite, got {number!r}")


def check_ids(owner: str, **arguments: Tensor) -> None:
    """Refuse what are no token ids of whole sentences."""
    for name, ids in arguments.items():
        if not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32):
            wanted = "int64 or int32 token ids"
            raise ValueError(f"{owner}: {name} must be {wanted}, got {described(ids)}")
        _check_rank(owner, name, ids, 2)


def check_axis(
    owner: str, argument: str, x: Tensor, axis: str, size: int, *, rank: int | None = None
) -> None:
    """Refuse a tensor of another type, rank or last axis than the layer was built for.

    Args:
        owner: Class name for the message.
        argument: Name of the argument that holds `x`.
        x: The tensor to check.
        axis: Name of the last axis.
        size: Its required size.
        rank: Required number of axes; any from 1 on if not given.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        wanted = "must hold floating-point numbers"
        raise ValueError(f"{owner}: {argument} {wanted}, got {described(x)}")
    if rank is not None:
        _check_rank(owner, argument, x, rank)
    found = x.size(-1) if x.ndim else "none"
    if found != size:
        wanted = f"the last axis of {argument} must be {axis}={size}"
        raise ValueError(f"{owner}: {wanted}, got {found} in shape {tuple(x.shape)}")


def _check_rank(owner: str, argument: str, x: Tensor, rank: int) -> None:
    if x.ndim != rank:
        raise ValueError(f"{owner}: {argument} must have {rank} axes, got shape {tuple(x.shape)}")


def check_same(owner: str, axis: str, **found: object) -> None:
    """Refuse arguments that disagree about the size of one axis."""
    first, *others = found.values()
    # Compared one by one: while torch.export runs, a size may be a symbol, which has no hash.
    if any(other != first for other in others):
        plain = {name: tuple(n) if isinstance(n, tuple) else n for name, n in found.items()}
        listed = ", ".join(f"{name} has {size}" for name, size in plain.items())
        raise ValueError(f"{owner}: the arguments disagree about {axis}: {listed}")


def check_types(owner: str, **tensors: Tensor) -> None:
    """Refuse tensors of different types, unless autocast is there to bring them together."""
    types = {one.dtype for one in tensors.values()}
    if len(types) > 1 and not torch.is_autocast_enabled(next(iter(tensors.values())).device.type):
        check_same(owner, "the type", **{name: one.dtype for name, one in tensors.items()})


def check_mask(
    owner: str, mask: Tensor, scores_shape: Sequence[int], *, four_axes: bool = False
) -> None:
    """Refuse a mask that is not boolean or does not broadcast to the scores.

    Broadcasting that would *grow* the scores is refused too: torch would accept it and every
    later shape would be wrong.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        wanted = "the mask must be boolean (True = may attend)"
        raise ValueError(f"{owner}: {wanted}, got {described(mask)}")
    if four_axes and mask.ndim != 4:
        # Three axes would broadcast against (head, query, key): where batch and heads are equal
        # in number, each head would silently get another sentence's mask.
        wanted = "the four axes (batch, head, query, key), 1 where it is shared"
        raise ValueError(f"{owner}: the mask must have {wanted}, got shape {tuple(mask.shape)}")
    # From the last axis on: the mask may lack the first axes of the scores.
    pairs = zip(reversed(mask.shape), reversed(scores_shape), strict=False)
    if mask.ndim > len(scores_shape) or not all(size in (1, wanted) for size, wanted in pairs):
        problem = f"a mask of shape {tuple(mask.shape)} does not broadcast to the scores"
        raise ValueError(f"{owner}: {problem} (..., query, key) of shape {tuple(scores_shape)}")
