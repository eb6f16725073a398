"""By hand: gradient accumulation over micro-batches, then clipping by the global norm."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded


def _accumulation_cases() -> Cases:
    draw = seeded()

    def case(labels: list[list[int]], vocab: int, micro: int, largest: float) -> tuple:
        ids = torch.tensor(labels)
        features = (SIZES.d_k,)
        x, weight, bias = draw(*ids.shape, *features), draw(vocab, *features), draw(vocab)
        return x, ids, weight, bias, micro, largest

    return {
        "3 labels and 1 label": case([[0, 1, 2], [1, -100, -100]], 3, 1, 0.5),
        "a small gradient": case([[0, 1, -100], [1, 2, 0], [2, -100, -100]], 3, 2, 100.0),
        "a micro-batch without labels": case([[0, 1], [-100, -100], [2, -100]], 3, 1, 0.5),
        "all sizes differ": case(
            [[4, 0, -100, -100], [3, -100, -100, -100], [1, 2, 0, 3]], SIZES.d_v, 2, 0.75
        ),
    }


@task(
    _accumulation_cases,
    by_gradient=None,
    forbidden=("clip_grad_norm_", "clip_grad_value_", "get_total_norm"),
    measures="the divisor of the whole batch, and one norm over all gradients",
)
def accumulated_gradients(
    x: Tensor, labels: Tensor, weight: Tensor, bias: Tensor, micro_batch: int, max_norm: float
) -> tuple[Tensor, Tensor]:
    """x (batch, seq, feature), labels (batch, seq) with -100 to ignore, weight (vocab, feature),
    bias (vocab), micro_batch, max_norm -> weight_grad (vocab, feature), bias_grad (vocab)
    """
    weight, bias = weight.detach().requires_grad_(), bias.detach().requires_grad_()
    count = (labels != -100).sum()
    for inputs, due in zip(x.split(micro_batch), labels.split(micro_batch), strict=True):
        logits = inputs @ weight.T + bias
        loss = F.cross_entropy(logits.mT, due, reduction="sum") / count
        loss.backward()
    norm = (weight.grad.pow(2).sum() + bias.grad.pow(2).sum()).sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1)
    return weight.grad * factor, bias.grad * factor


_LOSS = 'F.cross_entropy(logits.mT, due, reduction="sum") / count'
_MEAN = "F.cross_entropy(logits.mT, due)"
_CLIPPED = "return weight.grad * factor, bias.grad * factor"
mistake(
    accumulated_gradients,
    "accumulation-mean-of-means",
    "You averaged the means of the micro-batches, so a label counts more in a micro-batch with "
    "few labels: divide each sum by the number of labels in the whole batch.",
    {_LOSS: f"{_MEAN} / len(x.split(micro_batch))"},
)
again(
    accumulated_gradients,
    "accumulation-mean-of-means",
    {_LOSS: f"{_MEAN}.nan_to_num() / len(x.split(micro_batch))"},
)
mistake(
    accumulated_gradients,
    "accumulation-not-divided",
    "You added the means of the micro-batches, so the gradient grows with the number of "
    "micro-batches: divide each sum by the number of labels in the whole batch.",
    {_LOSS: _MEAN},
)
again(
    accumulated_gradients,
    "accumulation-not-divided",
    {_LOSS: f"{_MEAN}.nan_to_num()"},
)
mistake(
    accumulated_gradients,
    "accumulation-padding-counted",
    "You divided by the number of all positions: do not count ignored labels.",
    {"(labels != -100).sum()": "labels.numel()"},
)
mistake(
    accumulated_gradients,
    "clip-each-tensor",
    "You clipped each tensor by its own norm, which changes the direction of the update: use one "
    "norm for all gradients.",
    {
        _CLIPPED: "return tuple(g * (max_norm / (g.norm() + 1e-6)).clamp(max=1) for g in "
        "(weight.grad, bias.grad))"
    },
)
mistake(
    accumulated_gradients,
    "clip-by-value",
    "You clipped each value separately, which changes the direction of the update: scale all "
    "gradients by one factor.",
    {
        _CLIPPED: "return weight.grad.clamp(-max_norm, max_norm), "
        "bias.grad.clamp(-max_norm, max_norm)"
    },
)
mistake(
    accumulated_gradients,
    "clip-scales-up",
    "You scaled up a gradient whose norm is below the limit: the factor must be at most 1.",
    {"X.clamp(max=1)": "X"},
)


notes(
    accumulated_gradients,
    {
        "The gradients are not clipped: scale them if their global norm is above max_norm.": {
            "factor = X": "factor = 1.0"
        },
        "The losses are sums: divide them by the number of labels in the whole batch.": {
            _LOSS: 'F.cross_entropy(logits.mT, due, reduction="sum")'
        },
        "You kept only the last micro-batch: add the gradients of all micro-batches.": {
            "x.split(micro_batch)": "x.split(micro_batch)[-1:]",
            "labels.split(micro_batch)": "labels.split(micro_batch)[-1:]",
        },
        "You divided by the number of sentences: divide by the number of labels.": {
            "(labels != -100).sum()": "len(labels)"
        },
        "You divided by the number of micro-batches: divide by the number of labels in the whole "
        "batch.": {"(labels != -100).sum()": "len(x.split(micro_batch))"},
        "The gradient of the bias is not clipped: multiply all gradients by the factor.": {
            "bias.grad * factor": "bias.grad"
        },
        "You divided by the largest absolute value: divide by the norm.": {
            "norm = X": "norm = torch.maximum(weight.grad.abs().max(), bias.grad.abs().max())"
        },
        "You added the two norms: the global norm is the square root of the sum of all squares.": {
            "norm = X": "norm = weight.grad.norm() + bias.grad.norm()"
        },
        "The square root is missing from the norm.": {"X.sqrt()": "X"},
        "The norm leaves out the bias: compute it over all gradients.": {
            "weight.grad.pow(2).sum() + bias.grad.pow(2).sum()": "weight.grad.pow(2).sum()"
        },
    },
)


@question(decimals=1, measures="the mean over all labels, and one factor for all gradients")
def accumulation_on_paper() -> list[float]:
    """the loss of the whole batch, the mean of the means of the micro-batches, the first number of
    the gradient after clipping
    """
    losses = [[1.0, 2.0, 3.0], [6.0]]
    gradient, largest = torch.tensor([3.0, 0.0, 4.0]), 1.0
    mean = sum(map(sum, losses)) / sum(map(len, losses))
    means = [sum(each) / len(each) for each in losses]
    return [mean, sum(means) / len(means), (gradient * largest / gradient.norm())[0].item()]


notes(
    accumulation_on_paper,
    {
        "The first two numbers are swapped: the loss of the whole batch is the mean over its "
        "four labels.": [4, 3, 0.6],
        "You clipped each tensor by its own norm: use the norm of all three numbers, 5.": [3, 4, 1],
        "The first two numbers are right. Divide the gradient by its norm, 5.": [3, 4, 3],
        "You added the absolute values for the norm: take the square root of the sum of "
        "squares.": [
            3, 4, 0.4,
        ],
    },
)  # fmt: skip
