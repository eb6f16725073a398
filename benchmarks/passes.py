"""What is timed of a contender: a forward pass, and a forward pass with its gradients."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.sizes import Size
from benchmarks.timing import Clock, cpu_clock, interleave

FORWARD = "forward"
BOTH = "forward and backward"


def forward(model: nn.Module, src: Tensor, tgt: Tensor) -> Callable[[], None]:
    """Answer as in use: eval mode, no gradients.

    Args:
        model: A contender.
        src: Source ids.
        tgt: Target ids.
    """
    model.eval()

    def run() -> None:
        with torch.no_grad():
            model(src, tgt)

    return run


def forward_and_backward(model: nn.Module, src: Tensor, tgt: Tensor) -> Callable[[], None]:
    """Answer and find the gradient of the loss, as in training, without the optimiser's step.

    Args:
        model: A contender.
        src: Source ids.
        tgt: Target ids, which serve as labels too: what is learned does not matter here.
    """
    model.train()
    labels = tgt.flatten()

    def run() -> None:
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(src, tgt).flatten(0, 1), labels).backward()

    return run


PASSES = {FORWARD: forward, BOTH: forward_and_backward}


def time_passes(
    contenders: dict[str, nn.Module],
    size: Size,
    kind: str,
    *,
    clock: Clock = cpu_clock,
    seconds: float = 0.05,
) -> dict[str, list[float]]:
    """Time one kind of pass of every contender.

    Args:
        contenders: Models by name.
        size: What they were built for.
        kind: FORWARD or BOTH.
        clock: Tells the seconds.
        seconds: Shorter passes are repeated until they take about as much.

    Returns:
        Seconds of one pass, for each contender one number for each round.
    """
    device = next(next(iter(contenders.values())).parameters()).device
    src, tgt = (ids.to(device) for ids in size.ids())
    runs = {name: PASSES[kind](model, src, tgt) for name, model in contenders.items()}
    times = interleave(runs, size.rounds, clock=clock, seconds=seconds)
    for model in contenders.values():
        model.zero_grad(set_to_none=True)
    return times
