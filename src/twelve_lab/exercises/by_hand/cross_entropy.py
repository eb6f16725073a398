"""By hand: log-sum-exp, and cross entropy on paper. The loss is a task of lesson 13."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded
from twelve_lab.exercises.training import loss

# The example on the page: exp(logits) are whole numbers. The last word is padding.
_POWERS, _LABELS = [[[1.0, 2, 5], [3, 3, 6], [1, 1, 1]]], [[1, 2, -100]]


def _log_sum_exp_cases() -> Cases:
    draw = seeded()
    # The values differ widely even within a row: only the maximum of each row prevents overflow.
    large = torch.tensor([[[1000.0, 1001, -999], [-1000, -1002, -1001]]], dtype=torch.float64)
    return {
        "whole powers": (torch.tensor(_POWERS, dtype=torch.float64).log(),),
        "large and small scores": (large,),
        "all sizes differ": (3 * draw(SIZES.batch, SIZES.tgt, SIZES.tgt_vocab),),
    }


@task(
    _log_sum_exp_cases,
    forbidden=(
        "logsumexp",
        "softmax",
        "log_softmax",
        "logaddexp",
        "logcumsumexp",
        "cross_entropy",
        "CrossEntropyLoss",
    ),
    measures="taking the largest score of each row out of the logarithm",
)
def log_sum_exp(scores: Tensor) -> Tensor:
    """scores (batch, tgt, vocab) -> (batch, tgt)"""
    largest = scores.amax(-1, keepdim=True)
    total = (scores - largest).exp().sum(-1)
    return total.log() + largest.squeeze(-1)


_LARGEST, _RETURN = "scores.amax(-1, keepdim=True)", "return total.log() + largest.squeeze(-1)"
mistake(
    log_sum_exp,
    "logsumexp-overflow",
    "You took the exponentials of the scores directly, so e^1000 is infinite and e^-1000 is 0: "
    "subtract the largest score of the row first, and add it back after the logarithm.",
    {f"largest = {_LARGEST}": "largest = torch.zeros_like(scores[..., :1])"},
)
mistake(
    log_sum_exp,
    "logsumexp-maximum-lost",
    "You subtracted the largest score and never added it back: add it after the logarithm.",
    {_RETURN: "return total.log()"},
)
mistake(
    log_sum_exp,
    "logsumexp-shared-maximum",
    "You subtracted one maximum from several rows, so all exponentials of a much smaller row are "
    "0: subtract from each row its own maximum.",
    {_LARGEST: "scores.amax().expand_as(scores[..., :1])"},
)
mistake(
    log_sum_exp,
    "logsumexp-maximum-subtracted",
    "You subtracted the largest score again: add it after the logarithm.",
    {_RETURN: "return total.log() - largest.squeeze(-1)"},
)
notes(
    log_sum_exp,
    {
        "You subtracted the smallest score: subtract the largest, so that no exponential "
        "exceeds 1.": {_LARGEST: "scores.amin(-1, keepdim=True)"},
        "You added the scores, which are the logarithms of the exponentials: add the "
        "exponentials, and take the logarithm of the sum.": {_RETURN: "return scores.sum(-1)"},
        "You added a small number inside the logarithm, but the exponentials still overflow: "
        "subtract the largest score of the row first.": {
            _RETURN: "return (scores.exp().sum(-1) + 1e-8).log()"
        },
        "You added 1 inside the logarithm, as log1p does: one of the exponentials is already "
        "this 1.": {"total.log()": "total.log1p()"},
        "You multiplied by the largest score: the logarithm of a product is a sum, so add the "
        "largest score.": {_RETURN: "return total.log() * largest.squeeze(-1)"},
        "This is only the largest score: the other exponentials are missing.": {
            _RETURN: "return largest.squeeze(-1)"
        },
        "This is the mean of the exponentials: take their sum.": {
            "(scores - largest).exp().sum(-1)": "(scores - largest).exp().mean(-1)"
        },
        "This is the sum: take its logarithm.": {_RETURN: "return scores.exp().sum(-1)"},
        "You added the largest score to the sum: take the logarithm of the sum first.": {
            "total.log()": "total"
        },
        "You used logarithms to base 2: use natural logarithms.": {
            _RETURN: "return total.log2() + largest.squeeze(-1)"
        },
        "Your sum runs over the words of the sentence: sum over the vocabulary.": {
            _LARGEST: "scores.amax(-2, keepdim=True)",
            "(scores - largest).exp().sum(-1)": "(scores - largest).exp().sum(-2)",
            "largest.squeeze(-1)": "largest.squeeze(-2)",
        },
        "You kept an axis of size 1: the result must have one number for each word.": {
            "(scores - largest).exp().sum(-1)": "(scores - largest).exp().sum(-1, keepdim=True)",
            "largest.squeeze(-1)": "largest",
        },
    },
)


@question(
    decimals=2,
    measures="log-sum-exp, the loss of one word, and the mean over words with a label",
    worked="[math.log(8), math.log(8 / 2), (math.log(8 / 2) + math.log(12 / 6)) / 2]",
)
def cross_entropy_on_paper() -> list[float]:
    """log-sum-exp and loss of the first word, then the loss of the sentence"""
    logits, labels = torch.tensor(_POWERS).log(), torch.tensor(_LABELS)
    first = loss(logits[:, :1], labels[:, :1])
    return [log_sum_exp(logits)[0, 0].item(), first.item(), loss(logits, labels).item()]


notes(
    cross_entropy_on_paper,
    {
        "Only the last number is wrong: padding has no label, so divide by 2 words, not by 3.": [
            math.log(8), math.log(4), math.log(2),
        ],
        "Only the last number is wrong: this is the sum of the losses, so divide it by 2.": [
            math.log(8), math.log(4), 3 * math.log(2),
        ],
        "These are logarithms to base 2: use the natural logarithm.": [3, 2, 1.5],
        "The logarithm of a probability is negative: negate it to get the loss.": [
            math.log(8), -math.log(4), -1.5 * math.log(2),
        ],
        "The second number is the probability of the label: take its negative logarithm.": [
            math.log(8), 0.25, 1.5 * math.log(2),
        ],
        "The first number is the sum of the exponentials: take its logarithm.": [
            8, math.log(4), 1.5 * math.log(2),
        ],
    },
)  # fmt: skip
