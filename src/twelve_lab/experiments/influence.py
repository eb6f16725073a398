"""Influence map: which tokens affect which outputs, measured by changing one token at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from twelve._checks import check_kind, check_positive, described, is_real
from twelve_lab.show.format import format_tensor
from twelve_lab.trace.diff import distances


@dataclass(frozen=True)
class Influence:
    """Influence of each token (column) on each output position (row).

    Args:
        grid: True where replacing the token changed the output, (output, token).
        outputs: Names of the rows.
        tokens: Names of the columns.
    """

    grid: Tensor
    outputs: tuple[str, ...]
    tokens: tuple[str, ...]

    def __repr__(self) -> str:
        return format_tensor(
            self.grid, "output token", labels={"output": self.outputs, "token": self.tokens}
        )


def influence(
    model: Callable[..., Tensor],
    src: Tensor,
    tgt: Tensor | None = None,
    *,
    of: str = "src",
    vocab_size: int | None = None,
    tolerance: float = 1e-9,
    **masks: Tensor | None,
) -> Influence:
    """Replace each token with every other id and mark which outputs change.

    Two sentences of two tokens give a 4x4 grid that distinguishes batch from position, although
    both have size 2. A block diagonal means that sentences do not see each other. A lower triangle
    inside the blocks means that no position sees a later one.

    Args:
        model: Called as `model(src, tgt, **masks)`, or as `model(src, **masks)` without tgt. It
            must return (batch, position, ...).
        src: Source ids, (batch, src).
        tgt: Target ids, (batch, tgt).
        of: Which tokens to replace: "src" or "tgt".
        vocab_size: Number of ids to try; by default, that of the model's embedding.
        tolerance: Largest change that still counts as no change.
        **masks: Masks, passed to the model unchanged.

    Returns:
        The influence map.

    Raises:
        ValueError: If `of` is neither "src" nor "tgt", `of` is "tgt" without tgt, ids are not
            integers with two axes or are empty, the number of ids is unknown or not positive, the
            tolerance is negative, the output does not have one row for each position, or the model
            is not deterministic.
    """
    if of not in ("src", "tgt") or (of == "tgt" and tgt is None):
        raise ValueError(f'influence: of must be "src" or a given "tgt", got {of!r}')
    ids = {name: x for name, x in {"src": src, "tgt": tgt}.items() if x is not None}
    for name, x in ids.items():
        check_kind("influence", name, x, "Int")
        if x.ndim != 2 or not x.numel():
            shape = tuple(x.shape)
            raise ValueError(f"influence: {name} must be (batch, position), got shape {shape}")
    if vocab_size is None:
        table = getattr(model, f"{of}_embedding", None)
        if table is None:
            raise ValueError(f"influence: give vocab_size, since the model has no {of}_embedding")
        vocab_size = table.vocab_size
    check_positive("influence", vocab_size=vocab_size)
    if not is_real(tolerance) or not tolerance >= 0:
        raise ValueError(f"influence: tolerance must be at least 0, got {tolerance!r}")

    def run(changed: Tensor) -> Tensor:
        # The model gets copies, because it may modify its input in place or return it.
        sequences = [each.clone() for each in (ids | {of: changed}).values()]
        with torch.no_grad():
            output = model(*sequences, **masks)
        if not isinstance(output, Tensor) or output.ndim < 3 or output.size(0) != src.size(0):
            raise ValueError(
                f"influence: the output must be (batch, position, ...), got {described(output)} "
                f"for a batch of {src.size(0)}"
            )
        return output.clone()

    def moved_from(base: Tensor, other: Tensor) -> Tensor:
        return (distances(base, other) > tolerance).flatten(2).any(-1)

    base = run(ids[of])
    if moved_from(base, run(ids[of])).any():
        raise ValueError(
            "influence: the model must give one output for the same ids; call model.eval() if it "
            "has dropout"
        )
    columns = []
    for batch in range(ids[of].size(0)):
        for position in range(ids[of].size(1)):
            moved = torch.zeros(base.shape[:2], dtype=torch.bool, device=base.device)
            for token in range(vocab_size):
                changed = ids[of].clone()
                changed[batch, position] = token
                moved |= moved_from(base, run(changed))
            columns.append(moved.flatten())
    grid = torch.stack(columns, dim=1).cpu()
    return Influence(grid, _names("out", base.shape[:2]), _names(of, ids[of].shape))


def _names(word: str, sizes: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{word} {i},{j}" for i in range(sizes[0]) for j in range(sizes[1]))
