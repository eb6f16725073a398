"""By hand: softmax along any axis, for scores of any magnitude."""

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# Exponentials of the scores on the page.
_POWERS = [1.0, 3.0, 6.0]


def _softmax_cases() -> Cases:
    draw = seeded()
    # The scores differ widely within and between rows: only the row's own maximum avoids nan.
    far = torch.tensor([[[1000.0, -1000, 999], [-1000, -1001, -3000]]], dtype=torch.float64)
    hidden = draw(2, 3, 4)
    hidden[:, 0, 1:] = hidden[0, 2, 0] = -torch.inf
    return {
        "whole powers": (torch.tensor([[_POWERS]], dtype=torch.float64).log(), -1),
        "large and small scores": (far, -1),
        "along the queries": (far.mT.clone(), 1),
        "some keys are hidden": (hidden, 2),
        "all sizes differ": (2 * draw(SIZES.batch, SIZES.tgt, SIZES.src), -2),
    }


@task(
    _softmax_cases,
    forbidden=("softmax", "log_softmax", "softmin", "logsumexp", "normalize"),
    measures="subtracting the maximum along the same axis, and keeping this axis for the division",
)
def softmax(scores: Tensor, dim: int) -> Tensor:
    """scores (batch, query, key), dim -> (batch, query, key), which sum to 1 along axis dim"""
    largest = scores.amax(dim, keepdim=True)
    powers = (scores - largest).exp()
    return powers / powers.sum(dim, keepdim=True)


_LARGEST, _RETURN = (
    "scores.amax(dim, keepdim=True)",
    "return powers / powers.sum(dim, keepdim=True)",
)
mistake(
    softmax,
    "softmax-overflow",
    "You applied exp to the unshifted scores: e^1000 overflows to infinity, and infinity divided "
    "by infinity is nan. Subtract the largest score along dim first.",
    {"powers = (scores - largest).exp()": "powers = scores.exp()"},
)
mistake(
    softmax,
    "softmax-last-axis",
    "Your softmax always runs along the last axis: use dim for the maximum and for the sum.",
    {_LARGEST: "scores.amax(-1, keepdim=True)", _RETURN: _RETURN.replace("dim,", "-1,")},
)
mistake(
    softmax,
    "softmax-shared-maximum",
    "You subtracted the largest of all scores. In a row far below it, all exponentials are 0, and "
    "0 / 0 is nan: take the maximum along dim.",
    {_LARGEST: "scores.amax()"},
)
mistake(
    softmax,
    "softmax-shifted-above",
    "You subtracted the largest score only in the numerator: sum the same exponentials in the "
    "denominator.",
    {_RETURN: "return powers / scores.exp().sum(dim, keepdim=True)"},
)
mistake(
    softmax,
    "softmax-sum-of-all",
    "You divided by the sum of all exponentials: divide by the sum along dim.",
    {_RETURN: "return powers / powers.sum()"},
)
notes(
    softmax,
    {
        "The sum is right, but the maximum is taken along the last axis: take it along dim.": {
            _LARGEST: "scores.amax(-1, keepdim=True)"
        },
        "You took the maximum along dim, but the sum along the last axis: take both along dim.": {
            _RETURN: _RETURN.replace("dim,", "-1,")
        },
        "You divided the scores themselves by their sum: apply exp first.": {
            _RETURN: "return scores / scores.sum(dim, keepdim=True)"
        },
        "These are the exponentials: divide them by their sum.": {_RETURN: "return powers"},
        "You subtracted the smallest score, so the largest exponential overflows: subtract the "
        "largest score.": {_LARGEST: "scores.amin(dim, keepdim=True)"},
        "You subtracted the mean score, and the largest exponential still overflows: subtract the "
        "largest score.": {_LARGEST: "scores.mean(dim, keepdim=True)"},
        "You divided the scores by the largest one. This changes the weights: subtract the largest "
        "score instead.": {"scores - largest": "scores / largest"},
        "You clamped the scores. This changes the weights: subtract the largest score instead.": {
            "scores - largest": "scores.clamp(-500, 500)"
        },
        "The scores have the wrong sign: this is the softmax of the negated scores.": {
            _LARGEST: "scores.amin(dim, keepdim=True)",
            "scores - largest": "largest - scores",
        },
        "You added a small number to the sum, so the weights do not sum to 1: leave it out, "
        "because the sum is already at least 1.": {
            _RETURN: "return powers / (powers.sum(dim, keepdim=True) + 1e-3)"
        },
        "You used powers of 2: use powers of e.": {
            "(scores - largest).exp()": "(scores - largest).exp2()"
        },
        "These are the logarithms of the weights.": {
            _RETURN: "return scores - largest - powers.sum(dim, keepdim=True).log()"
        },
    },
)


@question(
    decimals=2,
    measures="exponentials divided by the largest one, and their sum",
    worked="[1 / 6, 1 / 6 + 3 / 6 + 1, 3 / 10]",
)
def softmax_on_paper() -> list[float]:
    """for the scores 1000 + log 1, 1000 + log 3 and 1000 + log 6: the first exponential after
    subtracting the maximum, the sum of the exponentials, and the second weight
    """
    scores = torch.tensor([[_POWERS]]).log()
    powers = (scores - scores.amax()).exp()[0, 0]
    return [powers[0].item(), powers.sum().item(), softmax(scores, -1)[0, 0, 1].item()]


notes(
    softmax_on_paper,
    {
        "Only the third number is right: subtracting the maximum divides each exponential by 6.": [
            1, 10, 0.3,
        ],
        "The third number is the second exponential: divide it by the sum.": [1 / 6, 5 / 3, 0.5],
        "The third number is the first weight: the question asks for the second.": [
            1 / 6, 5 / 3, 0.1,
        ],
        "You divided by the second exponential: divide by the largest one, which is 6.": [
            1 / 3, 10 / 3, 0.3,
        ],
    },
)  # fmt: skip
