"""By hand: speculative decoding, cheap drafts that keep the large model's distribution."""

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# Probabilities of three tokens on the page: from the large model, from the draft model, and from
# the large model after the draft.
_P, _Q, _AFTER = [0.1, 0.3, 0.6], [0.5, 0.2, 0.3], [0.2, 0.2, 0.6]


def _speculative_cases() -> Cases:
    draw = seeded(377)

    def case(accept: Tensor, draws: list[float], vocab: int) -> tuple:
        batch, draft = accept.shape
        q = draw(batch, draft, vocab)
        p = 1.5 * draw(batch, draft + 1, vocab)
        # Correlate the models: the draft model approximates the large one.
        p[:, :-1] += q
        drafts = (q + draw(batch, draft, vocab)).argmax(-1)
        return drafts, q.softmax(-1), p.softmax(-1), accept, _numbers(draws)

    uniform = draw(SIZES.batch, SIZES.tgt).sigmoid()
    return {
        "the table on paper": (
            torch.tensor([[0]]), _numbers([[_Q]]), _numbers([[_P, _AFTER]]), _numbers([[0.5]]),
            _numbers([0.5]),
        ),
        "every draft is accepted": case(torch.full((2, 3), 1e-6).double(), [0.3, 0.9], 5),
        "all sizes differ": case(uniform, [0.55, 0.8, 0.35], SIZES.src),
    }  # fmt: skip


def _numbers(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@task(
    _speculative_cases,
    by_gradient=None,
    measures="the ratio, the first rejection, and the rest that corrects the draft",
)
def speculative_step(
    drafts: Tensor, q: Tensor, p: Tensor, accept: Tensor, draw: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """drafts (batch, draft), q (batch, draft, vocab), p (batch, draft + 1, vocab), accept (batch,
    draft), draw (batch) -> accepted (batch), rest (batch, vocab), token (batch)
    """
    ids = drafts.unsqueeze(-1)
    ratio = p[:, :-1].gather(-1, ids) / q.gather(-1, ids)
    kept = accept < ratio.squeeze(-1)
    accepted = kept.long().cumprod(-1).sum(-1)
    rest = torch.cat([(p[:, :-1] - q).clamp(min=0), p[:, -1:]], 1)
    rest = rest[torch.arange(len(rest)), accepted]
    rest = rest / rest.sum(-1, keepdim=True)
    token = (rest.cumsum(-1) <= draw.unsqueeze(-1)).sum(-1)
    return accepted, rest, token


_DIFFERENCE = "(p[:, :-1] - q).clamp(min=0)"
_SHARE = "rest / rest.sum(-1, keepdim=True)"
mistake(
    speculative_step,
    "spec-ratio-upside-down",
    "You divided q by p: accept with probability p / q, so that tokens the draft model "
    "overestimates are rejected more often.",
    {"p[:, :-1].gather(-1, ids) / q.gather(-1, ids)":
     "q.gather(-1, ids) / p[:, :-1].gather(-1, ids)"},
)  # fmt: skip
mistake(
    speculative_step,
    "spec-rejection-skipped",
    "You also counted drafts accepted after a rejection: stop at the first rejection, because the "
    "later drafts continue a rejected text.",
    {"kept.long().cumprod(-1).sum(-1)": "kept.long().sum(-1)"},
)
mistake(
    speculative_step,
    "spec-drawn-from-p",
    "After a rejection, you drew from p. This gives too much weight to tokens that are often "
    "accepted: draw from the positive part of p - q.",
    {_DIFFERENCE: "p[:, :-1]"},
)
mistake(
    speculative_step,
    "spec-negative-part",
    "You took q - p: take the positive part of p - q, which is the part of p that q does not "
    "cover.",
    {_DIFFERENCE: "(q - p[:, :-1]).clamp(min=0)"},
)
mistake(
    speculative_step,
    "spec-absolute",
    "You took the absolute difference, so you also draw tokens that q overestimates: set negative "
    "differences to 0.",
    {_DIFFERENCE: "(p[:, :-1] - q).abs()"},
)
mistake(
    speculative_step,
    "spec-not-normalised",
    "The positive part does not sum to 1: divide it by its sum before you draw.",
    {_SHARE: "rest"},
)
again(
    speculative_step,
    "spec-not-normalised",
    {_SHARE: "rest", "token = X": "token = (X).clamp(max=p.size(-1) - 1)"},
)
mistake(
    speculative_step,
    "spec-bonus-missing",
    "When all drafts were accepted, you drew the extra token from the difference at the last "
    "draft: draw it from the last row of p.",
    {"rest[torch.arange(len(rest)), accepted]":
     "rest[torch.arange(len(rest)), accepted.clamp(max=drafts.size(1) - 1)]"},
)  # fmt: skip
notes(
    speculative_step,
    {
        "You subtracted q from p at the next position: use p and q at the position of the rejected "
        "draft.": {"(p[:, :-1] - q)": "(p[:, 1:] - q)"},
        "You divided p at the next position by q: row t of p belongs to draft t.": {
            "p[:, :-1].gather(-1, ids)": "p[:, 1:].gather(-1, ids)"
        },
        "You accepted the drafts that should be rejected: accept where the uniform number is below "
        "p / q.": {"accept < X": "accept >= X"},
        "You accepted every draft with p > q and rejected the others: compare the uniform number "
        "with p / q.": {"accept < X": "X > 1"},
        "You compared the uniform number with p: compare it with p / q.": {
            "X / q.gather(-1, ids)": "X"
        },
        "You took the most probable token of the rest: draw the token with the uniform number.": {
            "token = X": "token = rest.argmax(-1)"
        },
        "You applied softmax to the rest: its values are probabilities, so divide them by their "
        "sum.": {_SHARE: "rest.softmax(-1)"},
        "You compared the uniform numbers with the running product of the ratios: use the ratio of "
        "each draft alone.": {"accept < X": "accept < (X).cumprod(-1)"},
        "You accepted all drafts or none: accept the drafts before the first rejection.": {
            "kept.long().cumprod(-1).sum(-1)": "kept.all(-1).long() * drafts.size(1)"
        },
        "You drew from q after a rejection: draw from the positive part of p - q.": {
            _DIFFERENCE: "q"
        },
        "You counted the rejected draft too: accepted is the number of drafts before the first "
        "rejection.": {
            "return accepted, rest, token": "more = (accepted + 1).clamp(max=drafts.size(1))\n"
            "return more, rest, token"
        },
        "You accepted a draft only if it was the most probable token under p. This is greedy "
        "decoding, but here the output must have the distribution p.": {
            "kept = X": "kept = p[:, :-1].argmax(-1) == drafts",
            _DIFFERENCE: "p[:, :-1]",
            "token = X": "token = rest.argmax(-1)",
        },
        "You computed the rest at the first draft: compute it at the first rejection of each "
        "sentence.": {"rest[torch.arange(len(rest)), accepted]": "rest[:, 0]"},
        "You divided by the sum over all sentences: divide each row by its own sum.": {
            "rest.sum(-1, keepdim=True)": "rest.sum()"
        },
        "You counted one accepted draft too few: accepted is the number of drafts before the first "
        "rejection.": {
            "return accepted, rest, token": "return (accepted - 1).clamp(min=0), rest, token"
        },
        "You compared the uniform number with single probabilities: compare it with their "
        "cumulative sum.": {
            "token = X": "below = (rest <= draw.unsqueeze(-1)).long().cumprod(-1).sum(-1)\n"
            "token = below.clamp(max=p.size(-1) - 1)"
        },
        "Your token id is one too large: count the cumulative sums that are at most the uniform "
        "number.": {"token = X": "token = X + 1"},
    },
)


@question(decimals=2, measures="the acceptance of one draft, the average acceptance, and the rest")
def speculative_on_paper() -> list[float]:
    """the probability that draft token 0 is accepted, the probability that a random draft is
    accepted, and the probability of token 2 after a rejection
    """
    p, q = torch.tensor(_P), torch.tensor(_Q)
    rest = (p - q).clamp(min=0)
    average = torch.minimum(p, q).sum()
    return [(p[0] / q[0]).item(), average.item(), (rest[2] / rest.sum()).item()]


notes(
    speculative_on_paper,
    {
        "Only the third number is wrong: divide the positive part of p - q by its sum.": [
            0.2, 0.6, 0.3,
        ],
        "Only the third number is wrong: after a rejection, draw from the positive part of p - q, "
        "not from p.": [0.2, 0.6, 0.6],
        "Only the second number is wrong: draft tokens come from q, so weight each ratio by q. The "
        "result is the sum of min(p, q) over the tokens.": {
            "torch.minimum(p, q).sum()": "(p / q).clamp(max=1).mean()"
        },
        "The first number is q / p: it should be min(1, p / q).": {"p[0] / q[0]": "q[0] / p[0]"},
    },
)  # fmt: skip
