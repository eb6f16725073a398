"""The checks that several layers share: each raises a ValueError with names and numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor


def check_positive(owner: str, **sizes: int) -> None:
    """Refuse a size that is not a whole number of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{owner}: {name} must be a whole number of at least 1, got {size!r}")


def check_dropout(owner: str, dropout: float) -> None:
    """Refuse a dropout probability outside [0, 1)."""
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"{owner}: dropout must be at least 0 and below 1, got {dropout!r}")


def check_eps(owner: str, eps: float) -> None:
    """Refuse an eps that would let a constant row divide by zero."""
    if not eps > 0.0:
        raise ValueError(f"{owner}: eps must be above 0, got {eps!r}")


def check_axis(
    owner: str, argument: str, x: Tensor, axis: str, size: int, *, rank: int | None = None
) -> None:
    """Refuse a tensor of another rank or another last axis than the layer was built for.

    Args:
        owner: Class name for the message.
        argument: Name of the argument that holds `x`.
        x: The tensor to check.
        axis: Name of the last axis.
        size: Its required size.
        rank: Required number of axes; any from 1 on if not given.
    """
    if x.ndim != rank if rank is not None else x.ndim < 1:
        wanted = "an axis" if rank is None else f"{rank} axes"
        raise ValueError(f"{owner}: {argument} must have {wanted}, got shape {tuple(x.shape)}")
    if x.size(-1) != size:
        raise ValueError(
            f"{owner}: the last axis of {argument} must be {axis}={size}, "
            f"got {x.size(-1)} in shape {tuple(x.shape)}"
        )


def check_same(owner: str, axis: str, **sizes: int | tuple[int, ...]) -> None:
    """Refuse arguments that disagree about the size of one axis."""
    first, *others = sizes.values()
    # Compared one by one: while torch.export runs, a size may be a symbol, which has no hash.
    for other in others:
        if other != first:
            plain = {name: tuple(n) if isinstance(n, tuple) else n for name, n in sizes.items()}
            listed = ", ".join(f"{name} has {size}" for name, size in plain.items())
            raise ValueError(f"{owner}: the arguments disagree about {axis}: {listed}")


def check_choice(owner: str, argument: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a word that is none of the choices, and list them."""
    if value not in choices:
        raise ValueError(f"{owner}: {argument} must be one of {', '.join(choices)}, got {value!r}")


def check_mask(owner: str, mask: Tensor, scores_shape: Sequence[int]) -> None:
    """Refuse a mask that is not boolean or does not broadcast to the scores.

    Broadcasting that would *grow* the scores is refused too: torch would accept it and every
    later shape would be wrong.
    """
    if mask.dtype != torch.bool:
        raise ValueError(
            f"{owner}: the mask must be boolean (True = may attend), got {mask.dtype} "
            f"in shape {tuple(mask.shape)}"
        )
    tail = scores_shape[max(0, len(scores_shape) - mask.ndim) :]
    fits = mask.ndim == len(tail) and all(
        size in (1, wanted) for size, wanted in zip(mask.shape, tail, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{owner}: a mask of shape {tuple(mask.shape)} does not broadcast to the scores "
            f"(..., query, key) of shape {tuple(scores_shape)}"
        )
