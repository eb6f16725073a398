"""By hand: LoRA, a frozen matrix plus a trained product of two thin matrices."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from twelve_lab.exercises.declare import Cases, mistake, notes, question, task
from twelve_lab.exercises.modules import build
from twelve_lab.exercises.numbers import SIZES, seeded

# W, a and b on the page: rank 1 on 3 x 3.
_WEIGHT = [[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
_A, _B = [[1.0, 2.0, 0.0]], [[1.0], [3.0], [-1.0]]


def _lora_cases() -> Cases:
    draw = seeded()
    weight, a, b = (torch.tensor(x, dtype=torch.float64) for x in (_WEIGHT, _A, _B))

    def case(batch: int, seq: int, d_in: int, d_out: int, rank: int, alpha: float) -> tuple:
        shapes = ((batch, seq, d_in), (d_out, d_in), (rank, d_in), (d_out, rank))
        return (*(draw(*shape) for shape in shapes), alpha)

    return {
        "rank 1 on 3 x 3": (torch.ones(1, 1, 3, dtype=torch.float64), weight, a, b, 2.0),
        "a square matrix": case(2, 3, 4, 4, 2, 8.0),
        "all sizes differ": case(SIZES.batch, SIZES.src, SIZES.d_k, SIZES.d_v, 2, 9.0),
    }


def _run_lora(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, weight, a, b, alpha = given
    shapes = {"weight": weight.shape, "a": a.shape, "b": b.shape}
    # No gradient may reach the frozen weight, even if a layer copies it.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12)
        layer = build(answer, (weight.detach(), len(a), alpha), shapes, trained=False)
    if layer is ...:
        return ...
    trained = sum(each.numel() for each in layer.parameters() if each.requires_grad)
    # Rows of a that start equal stay equal.
    random = len(layer.a.unique()) > 1
    start = torch.tensor([bool(layer.a.any()), random, bool(layer.b.any()), trained], dtype=x.dtype)
    return start, *functional_call(_Both(layer), {"layer.a": a, "layer.b": b}, (x,))


class _Both(nn.Module):
    """Call `forward` and `merged`, so that one `functional_call` sets the parameters of both."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x), self.layer.merged()


class LoRA(nn.Module):
    """Layer(weight, rank, alpha), weight (d_out, d_in), a (rank, d_in), b (d_out, rank), x (batch,
    seq, d_in) -> forward(x) (batch, seq, d_out), merged() (d_out, d_in)
    """

    def __init__(self, weight, rank, alpha):
        super().__init__()
        d_out, d_in = weight.shape
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.a = nn.Parameter(torch.randn(rank, d_in) / d_in**0.5)
        self.b = nn.Parameter(torch.zeros(d_out, rank))
        self.scale = alpha / rank

    def forward(self, x):
        update = x @ self.a.T @ self.b.T
        return x @ self.weight.T + self.scale * update

    def merged(self):
        return self.weight + self.scale * self.b @ self.a


lora = task(
    _lora_cases,
    name="lora",
    measures="an update that starts at zero, a frozen weight, the scale, and merging",
    run=_run_lora,
)(LoRA)

_A_START, _B_START = "torch.randn(rank, d_in) / d_in**0.5", "torch.zeros(d_out, rank)"
mistake(
    lora,
    "lora-both-zero",
    "Both a and b start at zero, so both gradients stay zero and nothing is learned: initialise a "
    "with random values and only b with zeros.",
    {f"__init__: {_A_START}": "torch.zeros(rank, d_in)"},
)
mistake(
    lora,
    "lora-both-random",
    "Both a and b start with random values, so the new layer already changes the model: initialise "
    "b with zeros.",
    {f"__init__: {_B_START}": "torch.randn(d_out, rank)"},
)
mistake(
    lora,
    "lora-weight-trained",
    "The weight is trained too, so LoRA saves no memory: freeze the weight with "
    "requires_grad=False, or register it as a buffer.",
    {"__init__: nn.Parameter(weight, requires_grad=False)": "nn.Parameter(weight)"},
)
mistake(
    lora,
    "lora-scale-missing",
    "The update is not scaled: multiply it by alpha / rank.",
    {"__init__: alpha / rank": "1.0"},
)
mistake(
    lora,
    "lora-scale-alpha",
    "You multiplied the update by alpha alone: divide alpha by the rank, so that one learning rate "
    "suits all ranks.",
    {"__init__: alpha / rank": "alpha"},
)
mistake(
    lora,
    "lora-merged-unscaled",
    "The merged matrix lacks the scale that forward applies: add alpha / rank times b @ a.",
    {"merged: self.scale * self.b": "self.b"},
)
notes(
    lora,
    {
        "You initialised b with random values and a with zeros. Training would work too, but the "
        "paper initialises a with random values and b with zeros.": {
            f"__init__: {_A_START}": "torch.zeros(rank, d_in)",
            f"__init__: {_B_START}": "torch.randn(d_out, rank)",
        },
        "All elements of a start equal, so its rows stay equal: initialise a with random values.": {
            f"__init__: {_A_START}": "torch.ones(rank, d_in)"
        },
        "Your forward method returns only the update: add it to the output of the frozen weight.": {
            "forward: x @ self.weight.T + X": "X"
        },
        "Your merged method returns only the update: add it to the weight.": {
            "merged: self.weight + X": "X"
        },
        "You divided alpha by the square root of the rank, as rsLoRA does: divide by the rank "
        "itself.": {"__init__: alpha / rank": "alpha / rank**0.5"},
    },
)


@question(measures="the number of trained parameters, the output, and the merged matrix")
def lora_on_paper() -> list[float]:
    """the number of trained parameters, the first number of the output, and entry (0, 1) of the
    merged matrix
    """
    layer = LoRA(torch.tensor(_WEIGHT), 1, 2.0)
    trained = sum(each.numel() for each in layer.parameters() if each.requires_grad)
    with torch.no_grad():
        layer.a.copy_(torch.tensor(_A))
        layer.b.copy_(torch.tensor(_B))
    return [trained, layer(torch.ones(3))[0].item(), layer.merged()[0, 1].item()]


notes(
    lora_on_paper,
    {
        "Only the first number is wrong: the nine entries of W are frozen, so count only those of "
        "a and b.": [
            15, 9, 4,
        ],
        "Only the first number is wrong: the update has nine entries, but a and b together have "
        "six.": [
            9, 9, 4,
        ],
    },
)  # fmt: skip
