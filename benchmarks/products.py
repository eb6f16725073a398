"""Compares a forward pass with its bare matrix products: the rate that the machine can reach."""

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.passes import FORWARD, PASSES
from benchmarks.sizes import Size
from benchmarks.timing import Run, interleave, ratios

Shape = tuple[int, ...]


class Products(TorchDispatchMode):
    """Writes down the shapes of the matrix products that run inside it.

    Attributes:
        with_weights: (rows, terms, columns) of each product with a weight matrix.
        within_attention: (matrices, rows, terms, columns) of each product of two activations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.with_weights: list[Shape] = []
        self.within_attention: list[Shape] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm"):
            left, right = args[-2:]
            self.with_weights.append((*left.shape, right.size(-1)))
        elif name in ("bmm", "baddbmm"):
            left, right = args[-2:]
            self.within_attention.append((*left.shape, right.size(-1)))
        return func(*args, **(kwargs or {}))


def flops(shapes: list[Shape]) -> int:
    """Count a multiplication and an addition for each term of each product.

    Args:
        shapes: As in Products.
    """
    return sum(2 * torch.Size(shape).numel() for shape in shapes)


def gemm_share(
    fused: nn.Module, explicit: nn.Module, size: Size, *, seconds: float = 0.05
) -> list[float]:
    """Divide the rate of a forward pass by that of its products with weights alone.

    Counted are the products with weights and, in attention, scores and blends; nothing else of
    the pass, which yet takes its time: norms, softmax, sums, copies. The machine's own rate is
    that of torch.mm on the same shapes, each with a matrix of its own as in the model.

    Args:
        fused: Our model, which is timed.
        explicit: The same model with explicit attention, which shows its products.
        size: What both were built for.
        seconds: Shorter runs are repeated until they take about as much.

    Returns:
        One share for each round: 1 would be a pass that spends no time on anything but products.
    """
    src, tgt = size.ids()
    with torch.no_grad(), Products() as products:
        explicit.eval()(src, tgt)
    times = interleave(
        {"model": PASSES[FORWARD](fused, src, tgt), "bare": bare_products(products.with_weights)},
        size.rounds,
        seconds=seconds,
    )
    bare = flops(products.with_weights)
    work = (bare + flops(products.within_attention)) / bare
    return [work * ratio for ratio in ratios(times["bare"], times["model"])]


def bare_products(shapes: list[Shape]) -> Run:
    """Prepare the products with weights and nothing else.

    Args:
        shapes: (rows, terms, columns) of each.
    """
    generator = torch.Generator().manual_seed(0)
    pairs: list[tuple[Tensor, Tensor]] = [
        (
            torch.randn(rows, terms, generator=generator, dtype=torch.float32),
            # As a linear layer stores it: one row for each column of the result.
            torch.randn(columns, terms, generator=generator, dtype=torch.float32).T,
        )
        for rows, terms, columns in shapes
    ]

    def run() -> None:
        for left, right in pairs:
            torch.mm(left, right)

    return run
