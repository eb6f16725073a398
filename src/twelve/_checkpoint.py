"""Checkpoints of a training run: written so that a kill never leaves half of one."""

import os
import zipfile
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn


def save(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any],
    losses: list[float],
) -> None:  # fmt: skip
    """Write all that the next step depends on; the next step is the number of losses."""
    device = next(model.parameters()).device
    state = {
        "description": _describe(model, settings), "model": model.state_dict(),
        "optimizer": optimizer.state_dict(), "losses": losses, "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }  # fmt: skip
    # Under a name of its own: another run may be writing the same checkpoint.
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    with aside.open("wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())
    # A rename replaces the old checkpoint in one piece: whenever the run is killed, the name
    # stands for a whole file, the old one or the new one.
    os.replace(aside, path)


def resume(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]
) -> list[float]:
    """Go back to where a checkpoint was written, and give the losses up to there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return []
    state = _read(path)
    pairs = zip_longest(state["description"], _describe(model, settings), fillvalue="nothing")
    for theirs, ours in pairs:
        if theirs != ours:
            other = f"the checkpoint {path.name} is of another model or other settings"
            raise ValueError(f"train: {other}: it has {theirs}, where this run has {ours}")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    if state["random_cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["random_cuda"], next(model.parameters()).device)
    return state["losses"]


def _read(path: Path) -> dict[str, Any]:
    try:
        # torch does not compare the checksums that it writes: a flipped bit would go unnoticed.
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        state = torch.load(path, map_location="cpu", weights_only=True)
        if damaged is not None or "description" not in state:
            raise ValueError("a checksum is wrong, or it was not written by train")
        return state
    except Exception as error:
        # What a damaged file raises depends on which byte was hit.
        message = f"cannot resume from {path.name}: {error}. Move it away to start afresh"
        raise ValueError(f"train: {message}") from error


def _describe(model: nn.Module, settings: dict[str, Any]) -> list[str]:
    """Tell a run from any other that could not go on from its weights."""
    tensors = model.state_dict().items()
    shapes = [f"{name} of {one.dtype} in shape {tuple(one.shape)}" for name, one in tensors]
    parts = [line.strip() for line in repr(model).splitlines()]
    return [f"{name}={value}" for name, value in settings.items()] + shapes + parts
