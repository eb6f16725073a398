"""Measure forward passes, training passes, their memory, their matrix products, and decoding."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.profiler import profile

from benchmarks.models import FAST, MARIAN, PLAIN, Size
from benchmarks.timing import Clock, Run, Times, cpu_clock, interleave, ratios
from twelve import causal_mask
from twelve.generation import greedy_decode

FORWARD = "forward"
TRAINING = "forward and backward"
CACHED = "ours, cached"
GENERATE = "Hugging Face generate"
UNCACHED = "ours, whole prefix again"
LENGTHS = (16, 32, 64, 128, 256)


def prepare(kind: str, model: nn.Module, src: Tensor, tgt: Tensor) -> Run:
    """Set the mode of a model for a kind of pass, and return the pass as a function."""
    model.train(kind == TRAINING)

    @torch.no_grad()
    def forward() -> None:
        model(src, tgt)

    def forward_and_backward() -> None:
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(src, tgt).flatten(0, 1), tgt.flatten()).backward()

    return forward_and_backward if kind == TRAINING else forward


def time_passes(
    models: dict[str, nn.Module], size: Size, kind: str, *, device: str = "cpu",
    clock: Clock = cpu_clock, seconds: float = 0.05,
) -> Times:  # fmt: skip
    """Return the seconds of a pass, by contender."""
    ids = size.ids(device)
    runs = {name: prepare(kind, model, *ids) for name, model in models.items()}
    times = interleave(runs, size.rounds, clock=clock, seconds=seconds)
    for model in models.values():
        model.zero_grad(set_to_none=True)
    return times


def peak_bytes(run: Run) -> int:
    """Return the peak of allocated bytes during a run, as recorded by torch's profiler.

    Unlike the memory of the process, this peak is the same in every run.
    """
    with profile(profile_memory=True) as recording:
        run()
    level = peak = 0
    for event in recording.kineto_results.events():
        if event.name() == "[memory]":
            level += event.nbytes()
            peak = max(peak, level)
    return peak


def cuda_peak_bytes(run: Run) -> int:
    """Return the peak of allocated bytes during a run on a GPU, as recorded by its allocator."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def products(run: Run) -> tuple[list[list[list[int]]], float]:
    """Find the matrix products of a run.

    Returns:
        The two shapes of each product with a weight matrix, and the FLOPs of all products relative
        to the FLOPs of those. Attention also multiplies activations by activations.
    """
    with profile(record_shapes=True, with_flops=True) as recording:
        run()
    events = recording.function_events
    weights = [event for event in events if event.name in ("aten::mm", "aten::addmm")]
    attention = [event for event in events if event.name in ("aten::bmm", "aten::baddbmm")]
    shapes = [[shape for shape in event.input_shapes if len(shape) == 2] for event in weights]
    return shapes, 1 + sum(x.flops for x in attention) / sum(x.flops for x in weights)


def product_share(
    models: dict[str, nn.Module], size: Size, *, seconds: float = 0.05
) -> list[float]:
    """Divide the FLOP rate of a forward pass by that of its products with weights alone.

    Returns:
        One share per round; 1 means that a pass spends all its time on matrix products.
    """
    # The plain model shows the products of attention to the profiler; a fused kernel does not.
    shapes, work = products(prepare(FORWARD, models[PLAIN], *size.ids()))
    runs = {
        "model": prepare(FORWARD, models[FAST], *size.ids()),
        "products": bare_products(shapes),
    }
    times = interleave(runs, size.rounds, seconds=seconds)
    return [work * ratio for ratio in ratios(times["products"], times["model"])]


def bare_products(shapes: Sequence[Sequence[Sequence[int]]]) -> Run:
    """Prepare matrix products of the given shapes, each with its own matrices."""
    # Store the right operand like the weight of a linear layer.
    pairs = [(torch.randn(*left), torch.randn(*right[::-1]).T) for left, right in shapes]

    def run() -> None:
        for left, right in pairs:
            torch.mm(left, right)

    return run


@torch.no_grad()
def write(writer: str, models: dict[str, nn.Module], src: Tensor, new: int) -> Tensor:
    """Decode a fixed number of tokens greedily; no token ends the sentence."""
    if writer == GENERATE:
        return models[MARIAN].model.generate(
            src, max_new_tokens=new, do_sample=False, num_beams=1, use_cache=True
        )
    model = models[FAST].model
    if writer == CACHED:
        return greedy_decode(model, src, start_id=0, max_len=new + 1)
    memory, tgt = model.encode(src), torch.zeros_like(src[:, :1])
    for length in range(1, new + 1):
        logits = model.decode(tgt, memory, tgt_mask=causal_mask(length, device=src.device))
        tgt = torch.cat([tgt, logits[:, -1:].argmax(-1)], dim=1)
    return tgt


def time_writing(
    models: dict[str, nn.Module], size: Size, lengths: Sequence[int] = LENGTHS, *,
    device: str = "cpu", clock: Clock = cpu_clock, seconds: float = 0.05,
) -> Times:  # fmt: skip
    """Return the seconds per sentence, by writer and length; a single round for uncached.

    Raises:
        RuntimeError: If a writer returns the wrong number of tokens.
    """
    src, runs, slow = size.ids(device)[0], {}, {}
    for model in models.values():
        model.eval()
    for new in lengths:
        for writer in (CACHED, GENERATE) if MARIAN in models else (CACHED,):
            runs[writer, new] = partial(write, writer, models, src, new)
            shape = tuple(runs[writer, new]().shape)
            if shape != (size.batch, new + 1):
                raise RuntimeError(f"{writer} must write {new} tokens, got shape {shape}")
        slow[UNCACHED, new] = [clock(partial(write, UNCACHED, models, src, new), 1)]
    return interleave(runs, size.rounds, clock=clock, seconds=seconds) | slow
