"""By hand: temperature, top-k and top-p, in this order."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.decoder_only import top_p
from twelve_lab.exercises.numbers import SIZES, seeded

# The example on the page: the squares of 6, 4, 2 and 1, so T = 2 gives the ratio 6 : 4 : 2 : 1.
_POWERS = (36.0, 16.0, 4.0, 1.0)


def _sampling_cases() -> Cases:
    draw, paper = seeded(), torch.tensor([_POWERS], dtype=torch.float64).log()
    return {
        "the table on paper": (paper, 2.0, 3, 0.8),
        "temperature alone": (draw(2, 4), 0.5, 4, 1.0),
        "top-k alone": (2 * draw(2, 6), 1.0, 2, 1.0),
        "the best word alone": (draw(2, 5), 1.5, 1, 0.9),
        "all sizes differ": (2 * draw(SIZES.batch, SIZES.src), 1.6, 5, 0.75),
    }


@task(
    _sampling_cases,
    by_gradient=None,
    measures="three transformations in the right order, and the normalisation between them",
)
def sampling_probabilities(logits: Tensor, temperature: float, k: int, p: float) -> Tensor:
    """logits (batch, vocab), temperature, k, p -> (batch, vocab), each row sums to 1"""
    scaled = logits / temperature
    best = scaled.topk(k, dim=-1)
    cut = torch.full_like(scaled, -math.inf).scatter(-1, best.indices, best.values)
    return top_p(cut.softmax(-1), p)


@solved(sampling_probabilities)
def _by_rank_and_back(logits, temperature, k, p):
    top = (logits / temperature).topk(k, dim=-1)
    probabilities = top.values.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    probabilities = probabilities.masked_fill(before >= p, 0.0)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, top.indices, probabilities)


_CUT = "torch.full_like(scaled, -math.inf).scatter(-1, best.indices, best.values)"
_SCALED, _LAST = "logits / temperature", "top_p(cut.softmax(-1), p)"
_MEMBERS = "torch.zeros_like(scaled).scatter(-1, best.indices, 1.0)"
mistake(
    sampling_probabilities,
    "temperature-multiplied",
    "You multiplied the logits by the temperature: divide by it, so that a high temperature makes "
    "the probabilities more equal.",
    {_SCALED: "logits * temperature"},
)
mistake(
    sampling_probabilities,
    "temperature-without-effect",
    "The temperature has no effect: divide the logits by it before softmax. If you divide the "
    "probabilities instead, normalising them cancels the temperature.",
    {_SCALED: "logits"},
)
again(
    sampling_probabilities,
    "temperature-without-effect",
    {_SCALED: "logits", _LAST: "top_p(cut.softmax(-1) / temperature, p)"},
)
mistake(
    sampling_probabilities,
    "temperature-last",
    "You applied the temperature after top-p, so top-p used different probabilities: apply the "
    "temperature first. Some libraries use your order.",
    {_SCALED: "logits", _LAST: "(top_p(cut.softmax(-1), p).log() / temperature).softmax(-1)"},
)
mistake(
    sampling_probabilities,
    "top-k-logit-zero",
    "You gave the words that top-k leaves out the logit 0, but e^0 is 1: set their logits to minus "
    "infinity.",
    {_CUT: "torch.zeros_like(scaled).scatter(-1, best.indices, best.values)"},
)
mistake(
    sampling_probabilities,
    "top-p-of-all-words",
    "You applied top-p to the probabilities before top-k: apply top-k first, normalise the "
    "probabilities of the remaining words, then apply top-p.",
    {_LAST: f"top_p(scaled.softmax(-1) * {_MEMBERS}, p)"},
)
notes(
    sampling_probabilities,
    {
        "You kept the k worst words: keep the k best.": {
            "scaled.topk(k, dim=-1)": "scaled.topk(k, dim=-1, largest=False)"
        },
        "You kept one word too many in top-k.": {
            "scaled.topk(k, dim=-1)": "scaled.topk(min(k + 1, logits.size(-1)), dim=-1)"
        },
        "You kept one word too few in top-k.": {
            "scaled.topk(k, dim=-1)": "scaled.topk(max(k - 1, 1), dim=-1)"
        },
        "Top-k is missing: keep the k words with the highest logits.": {
            "scaled.topk(k, dim=-1)": "scaled.topk(logits.size(-1), dim=-1)"
        },
        "Top-p is missing: keep the smallest set of top words whose probabilities sum to at least "
        "p.": {_LAST: "cut.softmax(-1)"},
        "The rows do not sum to 1: divide by the total probability of the words that top-p "
        "keeps.": {_LAST: "cut.softmax(-1) * (top_p(cut.softmax(-1), p) > 0)"},
        "You applied softmax to probabilities: softmax expects logits, which are the logarithms of "
        "the probabilities.": {_LAST: "top_p(cut.softmax(-1), p).softmax(-1)"},
        "These are logits: return the probabilities.": {
            _LAST: "cut.masked_fill(top_p(cut.softmax(-1), p) == 0, -math.inf)"
        },
    },
)


@question(decimals=2, measures="the three transformations, in the right order")
def sampling_on_paper() -> list[float]:
    """the probabilities of the first three of four words with the logits log 36, log 16, log 4 and
    log 1, for temperature 2, k = 3 and p = 0.8
    """
    roots = torch.tensor(_POWERS).sqrt()[:2]  # of the first two words, which reach 10/12
    return [*(roots / roots.sum()).tolist(), 0.0]


notes(
    sampling_on_paper,
    {
        "The temperature is missing: half a logarithm is the logarithm of the square root.": [
            36 / 52, 16 / 52, 0,
        ],
        "You dropped the word that brings the sum to p: keep it, because the first word has a "
        "probability of only 1/2.": [1, 0, 0],
        "Top-p is missing, or you used sums out of 13: after top-k, the first two words have "
        "10/12.": [1 / 2, 1 / 3, 1 / 6],
        "You divided by 13, and top-p is missing: the sum after top-k is 12.": [
            6 / 13, 4 / 13, 2 / 13,
        ],
        "You divided by 12: after top-p, divide by the sum over the remaining words.": [
            1 / 2, 1 / 3, 0,
        ],
        "You divided by 13, the sum over all four words: divide by the sum over the remaining "
        "words.": [
            6 / 13, 4 / 13, 0,
        ],
    },
)  # fmt: skip
