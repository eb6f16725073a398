"""Checkpoints of a training run, written atomically."""

import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch import nn


def save(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any],
    losses: list[float],
) -> None:  # fmt: skip
    """Save the state that the next step needs; the index of that step is the number of losses."""
    device = next(model.parameters()).device
    state = {
        "description": _describe(model, settings), "model": model.state_dict(),
        "optimizer": optimizer.state_dict(), "losses": losses, "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }  # fmt: skip
    # To memory first: Ctrl-C while torch writes to a Python file object can abort the process.
    content = io.BytesIO()
    torch.save(state, content)
    # A unique name, because another run may be writing the same checkpoint.
    aside = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        with aside.open("wb") as file:
            file.write(content.getbuffer())
            os.fsync(file.fileno())
        # Renaming is atomic: a killed run leaves a complete file, either the old or the new one.
        os.replace(aside, path)
    except OSError as error:
        problem = f"cannot write checkpoint {path.name}: {error}"
        raise OSError(f"train: {problem}. The last checkpoint is unchanged") from error
    finally:
        aside.unlink(missing_ok=True)


def resume(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]
) -> list[float]:
    """Restore the state saved in a checkpoint and return the losses so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return []
    state = _read(path)
    pairs = zip_longest(state["description"], _describe(model, settings), fillvalue="nothing")
    for theirs, ours in pairs:
        if theirs != ours:
            raise ValueError(
                f"train: checkpoint {path.name} must belong to this model with these settings, "
                f"got {theirs} there and {ours} here"
            )
    with _explained(path):
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["random_cuda"], next(model.parameters()).device)
        losses = [float(loss) for loss in state["losses"]]
        if not 0 < len(losses) <= settings["steps"] or not all(map(math.isfinite, losses)):
            raise ValueError(f"losses must be 1 to {settings['steps']} finite numbers")
        # Last, so that an error above leaves the weights unchanged.
        model.load_state_dict(state["model"])
    return losses


def _read(path: Path) -> dict[str, Any]:
    with _explained(path):
        # Reading a named pipe would block forever.
        if not path.is_file():
            raise ValueError("not a file")
        # torch.load does not verify the checksums in the file.
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        state = torch.load(path, map_location="cpu", weights_only=True)
        if damaged is not None or not isinstance(state.get("description"), list):
            raise ValueError("wrong checksum, or not written by train")
        return state


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # The exception type depends on which byte is damaged.
        message = f"cannot resume from {path.name}: {error}. Move it away to start again"
        raise ValueError(f"train: {message}") from error


def _describe(model: nn.Module, settings: dict[str, Any]) -> list[str]:
    """Describe the settings, shapes, modules and frozen weights, which a resumed run must share."""
    tensors = model.state_dict().items()
    shapes = [f"{name} of {x.dtype} in shape {tuple(x.shape)}" for name, x in tensors]
    parts = [line.strip() for line in repr(model).splitlines()]
    weights = model.named_parameters()
    frozen = [f"{name} without gradient" for name, x in weights if not x.requires_grad]
    return [f"{name}={value}" for name, value in settings.items()] + shapes + parts + frozen
