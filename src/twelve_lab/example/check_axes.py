"""Check the axes of a layer by running it at sizes that are all different."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from twelve_lab.example.distinct_sizes import SIZES, float64
from twelve_lab.trace.trace import Trace

_AXES = {
    "batch": SIZES.batch, "head": SIZES.num_heads, "tgt": SIZES.tgt, "query": SIZES.tgt,
    "src": SIZES.src, "key": SIZES.src, "seq": SIZES.src, "d_v": SIZES.d_v, "d_k": SIZES.d_k,
    "d_model": SIZES.d_model, "d_ff": SIZES.d_ff, "vocab": SIZES.tgt_vocab,
}  # fmt: skip
_ARGUMENTS = {
    **_AXES, "num_heads": SIZES.num_heads, "vocab_size": SIZES.src_vocab,
    "src_vocab_size": SIZES.src_vocab, "tgt_vocab_size": SIZES.tgt_vocab, "num_layers": 2,
    "max_len": 32, "d_in": SIZES.d_model, "d_out": SIZES.d_ff,
}  # fmt: skip


def check_axes(build: Callable[..., Callable[..., Any]], *inputs: str | Tensor) -> Trace:
    """Build a layer at sizes that are all different, run it, and check every axis.

    At (2, 2, 3), batch, positions and heads can be confused without an error. Here all sizes are
    different.

        check_axes(lambda d_model, num_heads: MyAttention(d_model, num_heads),
                   "batch tgt d_model", "batch src d_model", "batch src d_model")

    Args:
        build: Function that returns the layer or function to run. Its parameters are filled by
            name with the sizes of `example.distinct`: d_model, num_heads, d_k, d_v, d_ff,
            vocab_size, max_len ...
        *inputs: For each argument of the layer, either its axes, for a tensor of seeded random
            numbers, or a tensor.

    Returns:
        The trace of the run.

    Raises:
        ValueError: If a parameter or an axis has no size in the example, or build does not return a
            callable.
        AxisError: If one axis name has two sizes.
    """
    sizes = {name: _size(parameter) for name, parameter in signature(build).parameters.items()
             if parameter.default is Parameter.empty}  # fmt: skip
    with float64():
        layer = build(**sizes)
    if not callable(layer):
        raise ValueError(f"check_axes: build must return a layer, got a {type(layer).__name__}")
    seeded = torch.Generator("cpu").manual_seed(12)
    where = _device(layer)
    arguments = [
        _input(axes, seeded).to(where) if isinstance(axes, str) else axes for axes in inputs
    ]
    with Trace(layer if isinstance(layer, nn.Module) else None) as trace:
        layer(*arguments)
    return trace


def _size(parameter: Parameter) -> int:
    name = parameter.name
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        raise ValueError(f"check_axes: build must name its sizes, got *{name}")
    if name not in _ARGUMENTS:
        raise ValueError(f"check_axes: no size for {name!r} (known: {', '.join(_ARGUMENTS)})")
    return _ARGUMENTS[name]


def _device(layer: object) -> torch.device:
    weights = list(layer.parameters()) if isinstance(layer, nn.Module) else []
    # torch.get_default_device() raises on PyTorch 2.6 to 2.8 after set_default_device(None).
    return weights[0].device if weights else torch.empty(0).device


def _input(axes: str, seeded: torch.Generator) -> Tensor:
    unknown = [name for name in axes.split() if name not in _AXES]
    if unknown:
        raise ValueError(f"check_axes: no size for axis {unknown[0]!r} (known: {', '.join(_AXES)})")
    shape = [_AXES[name] for name in axes.split()]
    return torch.randn(shape, generator=seeded, dtype=torch.float64, device="cpu")
