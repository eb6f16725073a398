"""Checkpoints of a training run: written so that a kill never leaves half of one."""

import os
import zipfile
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn


def save(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: dict[str, Any],
    losses: list[float],
) -> None:
    """Write all that the next step depends on; the next step is the number of losses."""
    device = next(model.parameters()).device
    state = {
        "settings": settings,
        "description": _describe(model),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "losses": losses,
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }
    aside = path.with_name(f"{path.name}.part")
    with aside.open("wb") as file:
        torch.save(state, file)
        file.flush()
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
    for name, value in settings.items():
        if state["settings"].get(name) != value:
            raise ValueError(
                f"train: the checkpoint {path.name} was written with "
                f"{name}={state['settings'].get(name)}, and this run has {name}={value}"
            )
    for theirs, ours in zip_longest(state["description"], _describe(model), fillvalue="nothing"):
        if theirs != ours:
            raise ValueError(
                f"train: the checkpoint {path.name} is of another model: it has {theirs}, where "
                f"this one has {ours}"
            )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    device = next(model.parameters()).device
    if device.type == "cuda" and state["random_cuda"] is not None:
        torch.cuda.set_rng_state(state["random_cuda"], device)
    return state["losses"]


def _read(path: Path) -> dict[str, Any]:
    try:
        # torch does not compare the checksums that it writes: a flipped bit would go unnoticed.
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "description" not in state:
            raise ValueError("it was not written by train")
    except Exception as error:
        # What a damaged file raises depends on which byte was hit.
        raise ValueError(
            f"train: cannot resume from {path.name}: {error}. Move it away to start afresh"
        ) from error
    return state


def _describe(model: nn.Module) -> list[str]:
    """Tell a model from any other that could not go on from its weights."""
    shapes = [
        f"{name} of {tensor.dtype} in shape {tuple(tensor.shape)}"
        for name, tensor in model.state_dict().items()
    ]
    return shapes + [line.strip() for line in repr(model).splitlines()]
