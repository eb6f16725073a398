"""By hand: DPO, a loss on pairs of a chosen and a rejected answer."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve_lab.exercises.declare import Answer, Cases, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# The probabilities on the page: policy (chosen, rejected), then reference (chosen, rejected).
_PAPER = ([0.6], [0.15], [0.2], [0.1])


def _dpo_cases() -> Cases:
    draw = seeded()

    def case(batch: int, spread: float, beta: float) -> tuple[Any, ...]:
        ref_chosen, ref_rejected = (-20 + 4 * draw(batch) for _ in range(2))
        policy_chosen, policy_rejected = (
            ref + spread * draw(batch) for ref in (ref_chosen, ref_rejected)
        )
        return policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta

    log_probs = (torch.tensor(x, dtype=torch.float64).log() for x in _PAPER)
    # In float64, the sigmoid of -800 is 0, and its logarithm is not finite.
    far = torch.tensor([-4000.0, 30], dtype=torch.float64)
    policy_chosen, *others, beta = case(2, 2, 0.2)
    return {
        "two answers": (*log_probs, 2.0),
        "the start, where the policy is the reference": case(2, 0.0, 0.5),
        "a large margin": (policy_chosen + far, *others, beta),
        "all sizes differ": case(SIZES.batch, 2, 0.4),
    }


def _run_dpo(answer: Answer, given: tuple[Any, ...]) -> Any:
    # The reference is not trained, so an answer may detach it.
    policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta = given
    reference = ref_chosen.detach(), ref_rejected.detach()
    return answer(policy_chosen, policy_rejected, *reference, beta)


@task(
    _dpo_cases,
    run=_run_dpo,
    measures="two log-ratios, their sign, beta inside, and a stable log-sigmoid",
)
def dpo_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
) -> Tensor:
    """policy_chosen, policy_rejected, ref_chosen and ref_rejected (batch), beta -> one number"""
    chosen = policy_chosen - ref_chosen
    rejected = policy_rejected - ref_rejected
    return -F.logsigmoid(beta * (chosen - rejected)).mean()


_LOSS = "-F.logsigmoid(beta * (chosen - rejected)).mean()"
mistake(
    dpo_loss,
    "dpo-reference-missing",
    "The reference is missing: subtract its log-probability from that of the policy, for both "
    "answers.",
    {"policy_chosen - ref_chosen": "policy_chosen",
     "policy_rejected - ref_rejected": "policy_rejected"},
)  # fmt: skip
mistake(
    dpo_loss,
    "dpo-answers-exchanged",
    "The margin has the wrong sign, so the policy learns the rejected answer: it is chosen minus "
    "rejected, and each log-ratio is policy minus reference.",
    {"chosen - rejected": "rejected - chosen"},
)
mistake(
    dpo_loss,
    "dpo-reference-added",
    "The reference has the wrong sign: both log-ratios are policy minus reference.",
    {"policy_chosen - ref_chosen": "policy_chosen + ref_chosen",
     "policy_rejected - ref_rejected": "policy_rejected + ref_rejected"},
)  # fmt: skip
mistake(
    dpo_loss,
    "dpo-beta-missing",
    "The margin is not multiplied by beta.",
    {"beta * (chosen - rejected)": "(chosen - rejected)"},
)
mistake(
    dpo_loss,
    "dpo-beta-outside",
    "You multiplied the loss by beta: multiply the margin by it, inside the sigmoid.",
    {_LOSS: "-beta * F.logsigmoid(chosen - rejected).mean()"},
)
mistake(
    dpo_loss,
    "dpo-loss-overflows",
    "The loss of a large negative margin is infinite, because its sigmoid is rounded to 0, or an "
    "exponential overflows: use F.logsigmoid, which computes both in one step.",
    {"F.logsigmoid(X)": "torch.sigmoid(X).log()"},
)
notes(
    dpo_loss,
    {
        "The sign is wrong: DPO minimises minus the log-sigmoid.": {_LOSS: _LOSS[1:]},
        "The logarithm is missing: take the logarithm of the sigmoid.": {
            "F.logsigmoid(X)": "X.sigmoid()"
        },
        "You added a small number inside the logarithm, which removes the gradient of the "
        "worst pairs: use F.logsigmoid.": {"F.logsigmoid(X)": "(X.sigmoid() + 1e-8).log()"},
        "This is the sum over the pairs: take the mean.": {_LOSS: _LOSS[:-6] + "sum()"},
        "These are the losses of the pairs: take their mean.": {_LOSS: _LOSS[:-7]},
        "You averaged the margins before the log-sigmoid: average the losses.": {
            _LOSS: "-F.logsigmoid(beta * (chosen - rejected).mean())"
        },
        "You divided the margin by beta: multiply it.": {
            "beta * (chosen - rejected)": "(chosen - rejected) / beta"
        },
        "You added the two log-ratios: subtract the log-ratio of the rejected answer.": {
            "chosen - rejected": "chosen + rejected"
        },
        "You took the difference of two ratios: the log-ratios are differences of log-"
        "probabilities, without exp.": {
            "chosen - rejected": "chosen.exp() - rejected.exp()"
        },
        "Only the policy is multiplied by beta: multiply the reference as well.": {
            "beta * (chosen - rejected)": "beta * (policy_chosen - policy_rejected) "
            "- (ref_chosen - ref_rejected)"
        },
        "You multiplied only the log-ratio of the chosen answer by beta: multiply both.": {
            "beta * (chosen - rejected)": "(beta * chosen - rejected)"
        },
        "This is the squared loss of IPO. DPO takes minus the log-sigmoid of the margin.": {
            _LOSS: "((chosen - rejected - 1 / (2 * beta)) ** 2).mean()"
        },
        "This is the hinge loss of SLiC. DPO takes minus the log-sigmoid of the margin.": {
            _LOSS: "(1 - beta * (chosen - rejected)).relu().mean()"
        },
        "The reference of the rejected answer is missing: subtract it.": {
            "policy_rejected - ref_rejected": "policy_rejected"
        },
        "The reference of the chosen answer is missing: subtract it.": {
            "policy_chosen - ref_chosen": "policy_chosen"
        },
        "The rejected answer is missing: subtract its log-ratio.": {"chosen - rejected": "chosen"},
    },
)  # fmt: skip


@question(decimals=1, measures="the ratio of two ratios, its sigmoid, and the gradient")
def dpo_on_paper() -> list[float]:
    """the ratio of the two ratios, the sigmoid of the margin, and the gradient of the loss for
    the policy's log-probability of the chosen answer, without its sign
    """
    policy_chosen, policy_rejected, ref_chosen, ref_rejected = map(torch.tensor, _PAPER)
    ratio = policy_chosen / ref_chosen / (policy_rejected / ref_rejected)
    sigmoid = (2 * ratio.log()).sigmoid()
    return torch.cat([ratio, sigmoid, 2 * (1 - sigmoid)]).tolist()


notes(
    dpo_on_paper,
    {
        "The gradient lacks the factor beta, which multiplies the margin.": [2, 0.8, 0.2],
        "The gradient is beta times (1 - sigmoid), not beta times the sigmoid.": [
            2, 0.8, 1.6,
        ],
        "You forgot the reference: divide each probability of the policy by that of the "
        "reference.": [4, 0.9, 0.1],
        "Only beta is missing: the margin is beta times the logarithm of the ratio, and beta = "
        "2 squares the ratio.": [2, 0.7, 0.7],
    },
)  # fmt: skip
