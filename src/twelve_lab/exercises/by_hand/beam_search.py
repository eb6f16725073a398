"""By hand: beam search, the best few sequences instead of the best next token."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, Edited, again, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# P(next token) on the page: at the start, after A, and after B. The tokens are A, B and end.
_PAPER = [[0.5, 0.4, 0.1], [0.3, 0.3, 0.4], [0.05, 0.05, 0.9]]
_START, _END = 0, 3
_Model = Callable[[Tensor], Tensor]


def _paper_model(prefixes: Tensor) -> Tensor:
    """Look up log-probabilities: token 0 is the start, 1 is A, 2 is B, and 3 is the end."""
    table = torch.tensor([*_PAPER, [0.5, 0.3, 0.2]], dtype=torch.float64)
    probabilities = table[prefixes[:, -1]]
    return torch.cat([0 * probabilities[:, :1], probabilities], 1).log()


def _model(vocab: int, seed: int, end: int, bonus: float) -> _Model:
    """Return a model that reads the whole prefix, with less weight on earlier tokens."""
    table = 2 * seeded(seed)(vocab, vocab)
    table[:, end] += bonus

    def next_log_probs(prefixes: Tensor) -> Tensor:
        age = torch.arange(prefixes.size(1) - 1, -1, -1, dtype=table.dtype)
        return (table[prefixes] * (0.6**age)[:, None]).sum(1).log_softmax(-1)

    return next_log_probs


def _beam_cases() -> Cases:
    return {
        "the table on paper": (_paper_model, torch.tensor([_START]), _END, 2, 3, 1.0),
        "no length penalty": (_model(5, 3, 4, 0.0), torch.tensor([1, 2]), 4, 2, 4, 0.0),
        "a beam of one": (_model(4, 5, 0, 0.5), torch.tensor([1]), 0, 1, 4, 0.5),
        "all sizes differ": (
            _model(SIZES.src, 6, 6, 0.5), torch.tensor([1, 2]), 6, SIZES.batch, 5, 0.7,
        ),
    }  # fmt: skip


@task(
    _beam_cases,
    by_gradient=None,
    measures="summed scores, beams in competition, finished beams, and lengths",
)
def beam_search(
    next_log_probs: _Model, prompt: Tensor, end: int, width: int, max_new: int, alpha: float
) -> tuple[Tensor, Tensor]:
    """next_log_probs, prompt (prompt), end, width, max_new, alpha -> ids (width, prompt + max_new),
    scores (width), best first
    """
    beams = prompt.repeat(width, 1)
    totals = torch.full((width,), -math.inf)
    totals[0] = 0.0
    lengths = torch.zeros(width)
    done = torch.zeros(width, dtype=torch.bool)
    for _ in range(max_new):
        log_probs = next_log_probs(beams).clone()
        log_probs[done] = -math.inf
        log_probs[done, end] = 0.0
        table = totals[:, None] + log_probs
        totals, places = table.flatten().topk(width)
        rows, tokens = places // table.size(1), places % table.size(1)
        beams = torch.cat([beams[rows], tokens[:, None]], 1)
        lengths = lengths[rows] + ~done[rows]
        done = done[rows] | (tokens == end)
    scores, order = (totals / lengths**alpha).sort(descending=True)
    return beams[order], scores


_CHOICE = "totals, places = table.flatten().topk(width)"
_DIVIDED = "totals / lengths**alpha"
_SUM = "totals[:, None] + log_probs"
_LAST = "totals.where(totals.isinf(), 0.0)[:, None] + log_probs"
_GOES_ON = {"log_probs[done] = -math.inf": "pass", "log_probs[done, end] = 0.0": "pass"}


def _best_of_each(next_log_probs, prompt, end, width, max_new, alpha):
    totals, tokens = next_log_probs(prompt[None])[0].topk(width)
    beams = torch.cat([prompt.repeat(width, 1), tokens[:, None]], 1)
    lengths, done = torch.ones(width), tokens == end
    for _ in range(max_new - 1):
        log_probs, tokens = next_log_probs(beams).max(1)
        totals = totals + log_probs.masked_fill(done, 0.0)
        beams = torch.cat([beams, tokens.masked_fill(done, end)[:, None]], 1)
        lengths = lengths + ~done
        done = done | (tokens == end)
    scores, order = (totals / lengths**alpha).sort(descending=True)
    return beams[order], scores


def _ended_set_aside(next_log_probs, prompt, end, width, max_new, alpha):
    live, ended = [(0.0, prompt)], []
    for length in range(1, max_new + 1):
        rows = [
            (total + step, torch.cat([beam, torch.tensor([token])]))
            for total, beam in live
            for token, step in enumerate(next_log_probs(beam[None])[0])
        ]
        rows = sorted(rows, key=lambda row: -row[0])[: 2 * width]
        ended += [(total / length**alpha, beam) for total, beam in rows if beam[-1] == end]
        live = [row for row in rows if row[1][-1] != end][:width]
    ended += [(total / max_new**alpha, beam) for total, beam in live]
    best = sorted(ended, key=lambda row: -row[0])[:width]
    beams = torch.full((width, len(prompt) + max_new), end)
    for row, (_, beam) in zip(beams, best, strict=True):
        row[: len(beam)] = beam
    return beams, torch.stack([score for score, _ in best])


mistake(
    beam_search,
    "beam-scores-not-summed",
    "You ranked the beams only by their last token: a score should be the sum of the "
    "log-probabilities of all new tokens.",
    {_SUM: _LAST, "log_probs[done, end] = 0.0": "log_probs[done, end] = totals[done]"},
)
again(beam_search, "beam-scores-not-summed", {_SUM: _LAST})
mistake(
    beam_search,
    "beam-starts-equal",
    "All beams start from the prompt with score 0, so every beam makes the same choice: start "
    "with one beam, or set the scores of the others to minus infinity.",
    {"torch.full((width,), -math.inf)": "torch.zeros(width)"},
)
mistake(
    beam_search,
    "beam-best-of-each",
    "Each beam kept only its own best token: let the continuations of all beams compete, and keep "
    "the best, even if several come from one beam.",
    by=_best_of_each,
)
mistake(
    beam_search,
    "beam-history-kept",
    "You appended the new tokens to the wrong prefixes: first select the row of the beam that "
    "each token continues.",
    {"beams[rows]": "beams"},
)
mistake(
    beam_search,
    "beam-end-continued",
    "A finished sequence continued after the end token: add nothing to its score, and let only "
    "the end token follow.",
    _GOES_ON,
)
again(beam_search, "beam-end-continued", {**_GOES_ON, "~done[rows]": "1"})
mistake(
    beam_search,
    "beam-length-missing",
    "The sums are not divided by the length, so short sequences win: divide each sum by its "
    "number of new tokens to the power of alpha.",
    {_DIVIDED: "totals"},
)
mistake(
    beam_search,
    "beam-length-padded",
    "You divided every sum by the same length: count the new tokens of each sequence, up to and "
    "including its first end token.",
    {"lengths**alpha": "max_new**alpha"},
)
notes(
    beam_search,
    {
        "You counted the prompt in the length: count only the new tokens.": {
            "lengths**alpha": "(lengths + prompt.numel()) ** alpha"
        },
        "You left the end token out of the length: it has a log-probability too, so count it.": {
            "lengths**alpha": "(lengths - done.double()).clamp(min=1) ** alpha"
        },
        "You divided by the length while the beams grow: compare the sums there, and divide by "
        "the length only in the final ranking.": {
            _CHOICE: "counted = (lengths + ~done)[:, None] ** alpha\n"
            "places = (table / counted).flatten().topk(width).indices\n"
            "totals = table.flatten()[places]"
        },
        "You used the length penalty of Google's translator, ((5 + length) / 6) to the power "
        "of alpha: divide by the length to the power of alpha.": {
            "lengths**alpha": "((5 + lengths) / 6) ** alpha"
        },
        "You multiplied by the length: divide by it, so that a long sequence is not at a "
        "disadvantage.": {_DIVIDED: "totals * lengths**alpha"},
        "You divided by alpha times the length: alpha is the exponent of the length.": {
            "lengths**alpha": "(lengths * alpha if alpha else 1)"
        },
        "You set finished sequences aside and refilled the beam, as Hugging Face does: here, a "
        "finished sequence should stay in the beam.": _ended_set_aside,
        "A finished sequence no longer competes in your code: keep it in the beam, where better "
        "sequences may push it out.": Edited(_ended_set_aside, {"X[: 2 * width]": "X[:width]"}),
        "You added probabilities: add their logarithms, because the probability of a sequence is a "
        "product.": {"next_log_probs(beams).clone()": "next_log_probs(beams).exp()"},
        "The scores are probabilities: return the length-normalised sums of logarithms.": {
            _DIVIDED: f"({_DIVIDED}).exp()"
        },
        "The worst sequence comes first: sort by descending score.": {
            "X.sort(descending=True)": "X.sort()"
        },
        "The beams are sorted by their sums: sort them by the length-normalised score, best "
        "first.": {"X.sort(descending=True)": "(lambda s: (s, torch.arange(width)))(X)"},
    },
)


@question(decimals=2, measures="a greedy choice, a better sequence, and its mean")
def beam_search_on_paper() -> list[float]:
    """the probability of the greedy sequence, the probability of the best sequence of a beam of
    two, and e to the power of its score with alpha = 1
    """
    prompt = torch.tensor([_START])
    greedy, best, mean = (
        beam_search(_paper_model, prompt, _END, width, 2, alpha)[1][0].exp().item()
        for width, alpha in ((1, 0.0), (2, 0.0), (2, 1.0))
    )
    return [greedy, best, mean]


notes(
    beam_search_on_paper,
    {
        "Only the third number is wrong: the score is the mean of two logarithms, so take the "
        "square root of the product.": [0.2, 0.36, 0.18],
        "The third number is the score itself: raise e to the power of the score.": [
            0.2, 0.36, -0.51,
        ],
        "You added probabilities: the probability of a sequence is their product.": [
            0.9, 1.3, 0.65,
        ],
        "The second number belongs to the greedy sequence again: a beam of two also keeps B, "
        "after which the end is likely.": [0.2, 0.2, 0.45],
    },
)  # fmt: skip
