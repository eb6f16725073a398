"""By hand: softmax along any axis, for scores of any size."""

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# The page: scores whose powers are whole numbers.
_POWERS = [1.0, 3.0, 6.0]


def _softmax_cases() -> Cases:
    draw = seeded()
    # Both rows and their numbers are far apart: only the maximum of the row itself helps.
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
    "You took the powers of the scores as they are: e^1000 is infinite, and infinity divided by "
    "infinity is nan. Subtract the largest score along dim first.",
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
    "You subtracted the largest of all scores, so that the powers of a row far below it are all 0, "
    "and 0 / 0 is nan: take the maximum along dim.",
    {_LARGEST: "scores.amax()"},
)
mistake(
    softmax,
    "softmax-shifted-above",
    "You subtracted the largest score in the numerator only: the denominator is the sum of the "
    "same powers.",
    {_RETURN: "return powers / scores.exp().sum(dim, keepdim=True)"},
)
mistake(
    softmax,
    "softmax-sum-of-all",
    "You divided by the sum of all powers: divide by the sum along dim.",
    {_RETURN: "return powers / powers.sum()"},
)
notes(
    softmax,
    {
        "The sum is right, but the maximum is taken along the last axis: take it along dim.": {
            _LARGEST: "scores.amax(-1, keepdim=True)"
        },
        "The maximum is taken along dim, but your sum runs along the last axis: both run along "
        "dim.": {_RETURN: _RETURN.replace("dim,", "-1,")},
        "You divided the scores by their sum, without powers: apply exp first.": {
            _RETURN: "return scores / scores.sum(dim, keepdim=True)"
        },
        "These are the powers: divide them by their sum.": {_RETURN: "return powers"},
        "You subtracted the smallest score, so that the largest power overflows: subtract the "
        "largest score.": {_LARGEST: "scores.amin(dim, keepdim=True)"},
        "You subtracted the mean score, and the largest power still overflows: subtract the "
        "largest score.": {_LARGEST: "scores.mean(dim, keepdim=True)"},
        "You divided the scores by the largest one, which changes the weights: subtract it.": {
            "scores - largest": "scores / largest"
        },
        "You limited the scores, which changes the weights: subtract the largest score.": {
            "scores - largest": "scores.clamp(-500, 500)"
        },
        "The sign of the scores is wrong: this is the softmax of their negatives.": {
            _LARGEST: "scores.amin(dim, keepdim=True)",
            "scores - largest": "largest - scores",
        },
        "You added a small number to the sum, so that the weights do not add up to 1: the sum is "
        "at least 1 already.": {_RETURN: "return powers / (powers.sum(dim, keepdim=True) + 1e-3)"},
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
    measures="powers that are divided by the largest one, and their sum",
    worked="[1 / 6, 1 / 6 + 3 / 6 + 1, 3 / 10]",
)
def softmax_on_paper() -> list[float]:
    """for the scores 1000 + log 1, 1000 + log 3 and 1000 + log 6: the first power after the maximum
    is subtracted, the sum of the powers, and the second weight
    """
    scores = torch.tensor([[_POWERS]]).log()
    powers = (scores - scores.amax()).exp()[0, 0]
    return [powers[0].item(), powers.sum().item(), softmax(scores, -1)[0, 0, 1].item()]


notes(
    softmax_on_paper,
    {
        "Only the third number is right: subtracting the maximum divides each power by 6.": [
            1, 10, 0.3,
        ],
        "The third number is the second power: divide it by the sum.": [1 / 6, 5 / 3, 0.5],
        "The third number is the first weight: the question is about the second.": [
            1 / 6, 5 / 3, 0.1,
        ],
        "You divided by the second power: the largest one is 6.": [1 / 3, 10 / 3, 0.3],
    },
)  # fmt: skip
