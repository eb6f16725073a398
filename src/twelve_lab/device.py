"""The device on which a notebook runs. The printed output must not depend on the device."""

import os

import torch


def device(name: str | None = None) -> torch.device:
    """Choose a device: the name, else the variable TWELVE_DEVICE, else CUDA, else the CPU.

    Args:
        name: "cpu", "cuda" or "cuda:1".

    Raises:
        ValueError: If the device is unknown, missing, or lacks float64, which the trace needs.
            Apple's MPS lacks it.
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
        try:
            torch.ones(1, dtype=torch.float64, device=chosen).item()
        except Exception:  # the exception type depends on the backend
            raise ValueError(
                f"{source}={wanted!r}: the trace needs float64; use cpu or cuda"
            ) from None
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{source}={wanted!r}, but {torch.cuda.device_count()} CUDA devices are present"
        )
    return chosen
