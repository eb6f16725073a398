"""Where a notebook runs: nothing that it prints may depend on the answer."""

import os

import torch


def device(name: str | None = None) -> torch.device:
    """Choose the device: the name, else the variable TWELVE_DEVICE, else CUDA, else the CPU.

    Args:
        name: "cpu", "cuda" or "cuda:1".

    Raises:
        ValueError: If the name is no device, or one that is not there. Apple's MPS has no
            float64, which the trace needs, and is refused for that reason.
    """
    source = "device" if name else "TWELVE_DEVICE"
    wanted = name or os.environ.get("TWELVE_DEVICE", "").strip()
    if not wanted:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(wanted)
    except RuntimeError:
        raise ValueError(f"{source}={wanted!r} is no device; use cpu or cuda") from None
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"{source}={wanted!r}: the trace needs float64; use cpu or cuda")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{source}={wanted!r}, but {torch.cuda.device_count()} CUDA devices are present"
        )
    return chosen
