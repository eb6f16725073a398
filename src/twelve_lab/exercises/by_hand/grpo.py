"""By hand: GRPO, advantages within a group of answers, and a clipped loss with a KL penalty."""

import math
from typing import Any

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Answer, Cases, again, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# The rewards on the page: their mean is 1, and their standard deviation is 2.
_REWARDS = [[0.0, 0.0, 0.0, 4.0]]


def _advantage_cases() -> Cases:
    equal = torch.tensor([[1.0, 1, 1], [0, 3, 0]], dtype=torch.float64)
    return {
        "one group": (torch.tensor(_REWARDS, dtype=torch.float64), 1e-4),
        "a group of equal rewards": (equal, 1e-4),
        "all sizes differ": (3 * seeded()(SIZES.batch, 5), 0.5),
    }


@task(
    _advantage_cases,
    by_gradient=None,
    measures="mean and standard deviation of each group",
)
def group_advantages(rewards: Tensor, eps: float) -> Tensor:
    """rewards (batch, group), eps -> (batch, group)"""
    centred = rewards - rewards.mean(-1, keepdim=True)
    return centred / (rewards.std(-1, keepdim=True) + eps)


_MEAN, _STD = "rewards.mean(-1, keepdim=True)", "rewards.std(-1, keepdim=True)"
mistake(
    group_advantages,
    "grpo-groups-mixed",
    "You took mean and standard deviation over all rewards: take them within each group, which "
    "answers one prompt.",
    {_MEAN: "rewards.mean()", _STD: "rewards.std()"},
)
mistake(
    group_advantages,
    "grpo-eps-missing",
    "In a group of equal rewards, you divide 0 by 0: add eps to the standard deviation.",
    {f"{_STD} + eps": _STD},
)
mistake(
    group_advantages,
    "grpo-std-of-all",
    "The standard deviation divides by the size of the group: torch.std divides by one less.",
    {_STD: "rewards.std(-1, keepdim=True, correction=0)"},
)
notes(
    group_advantages,
    {
        "You did not divide by the standard deviation. That is Dr. GRPO: divide by the standard "
        "deviation plus eps.": {"centred / X": "centred"},
        "You did not subtract the mean of the group.": {f"rewards - {_MEAN}": "rewards"},
        "You divided by the variance: divide by the standard deviation, its square root.": {
            _STD: "rewards.var(-1, keepdim=True)"
        },
        "You added eps to the variance: add it to the standard deviation.": {
            f"{_STD} + eps": "(rewards.var(-1, keepdim=True) + eps).sqrt()"
        },
        "You divided by the standard deviation of the whole batch: divide by that of the group.": {
            _STD: "rewards.std()"
        },
        "The mean runs over the whole batch: take the mean of each group.": {
            _MEAN: "rewards.mean()"
        },
        "Mean and standard deviation run over the prompts: take them over the answers to one "
        "prompt, the last axis.": {
            _MEAN: "rewards.mean(0, keepdim=True)",
            _STD: "rewards.std(0, keepdim=True)",
        },
        "You returned shares that sum to 1: an advantage is the reward minus the mean, divided "
        "by the standard deviation.": {
            "centred / X": "rewards.softmax(-1) + 0 * centred"
        },
        "You used eps only in place of small standard deviations: add it to every standard "
        "deviation.": {
            f"{_STD} + eps": f"{_STD}.clamp(min=eps)"
        },
        "You divided by the range: divide by the standard deviation.": {
            _STD: "(rewards.amax(-1, keepdim=True) - rewards.amin(-1, keepdim=True))"
        },
        "You subtracted the largest reward of the group: subtract the mean.": {
            _MEAN: "rewards.amax(-1, keepdim=True)"
        },
        "You subtracted the mean of the other answers. That is RLOO: subtract the mean of the "
        "whole group, this answer included.": {
            f"rewards - {_MEAN}": f"(rewards - {_MEAN}) * rewards.size(-1) / (rewards.size(-1) - 1)"
        },
        "The sign is wrong: a reward above the mean gives a positive advantage.": {
            f"rewards - {_MEAN}": f"{_MEAN} - rewards"
        },
        "This is layer normalisation: eps belongs to the standard deviation, which divides by one "
        "less than the size of the group.": {
            f"{_STD} + eps": "(rewards.var(-1, keepdim=True, correction=0) + eps).sqrt()"
        },
        "You divided by the root of the sum of squares, which is a norm: the standard "
        "deviation is the root of a mean.": {_STD: "centred.norm(dim=-1, keepdim=True)"},
    },
)  # fmt: skip


def _loss_cases() -> Cases:
    draw = seeded()

    def case(
        lengths: list[int], epsilon: float, beta: float, spread: float = 0.6
    ) -> tuple[Any, ...]:
        shape = len(lengths), max(lengths)
        old = -2 + draw(*shape)
        policy, reference = old + spread * draw(*shape), old + 0.8 * draw(*shape)
        mask = torch.arange(shape[1]) < torch.tensor(lengths).unsqueeze(-1)
        return policy, old, reference, 2 * draw(len(lengths)), mask, epsilon, beta

    log_two = torch.full((2, 1), math.log(2), dtype=torch.float64)
    old = -3 * torch.ones_like(log_two)
    advantages = torch.tensor([-0.5, 1.5], dtype=torch.float64)
    mask = torch.ones(2, 1, dtype=torch.bool)
    return {
        "two answers of one token": (old + log_two, old, old.clone(), advantages, mask, 0.2, 0.0),
        "the first update, where the policy is the old one": case([1, 4, 2], 0.2, 0.9, spread=0.0),
        "without a penalty": case([3, 5], 0.1, 0.0),
        "all sizes differ": case([7, 2, 5, 1], 0.3, 0.7),
    }


def _run_loss(answer: Answer, given: tuple[Any, ...]) -> Any:
    # Only the policy is trained, so an answer may detach the other inputs.
    policy, old, reference, advantages, *rest = given
    return answer(policy, old.detach(), reference.detach(), advantages.detach(), *rest)


@task(
    _loss_cases,
    run=_run_loss,
    measures="a clipped ratio, a KL penalty, and one weight for each answer",
)
def grpo_loss(
    policy: Tensor,
    old: Tensor,
    reference: Tensor,
    advantages: Tensor,
    mask: Tensor,
    epsilon: float,
    beta: float,
) -> Tensor:
    """policy, old and reference (answer, token), advantages (answer), mask (answer, token),
    epsilon, beta -> one number
    """
    advantages = advantages.unsqueeze(-1)
    ratio = (policy - old).exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    apart = reference - policy
    kl = apart.exp() - apart - 1
    losses = (beta * kl - gain) * mask
    return (losses.sum(-1) / mask.sum(-1)).mean()


_MINIMUM, _AVERAGE = "torch.minimum(X, Y)", "(losses.sum(-1) / mask.sum(-1)).mean()"
mistake(
    grpo_loss,
    "grpo-minimum-missing",
    "You always used the clipped ratio: take the smaller of the two products, so that a ratio on "
    "the wrong side is still corrected.",
    {_MINIMUM: "Y"},
)
mistake(
    grpo_loss,
    "grpo-minimum-before-advantage",
    "You took the smaller ratio and then multiplied it. With a negative advantage, this gives the "
    "larger product: multiply first, then take the minimum.",
    {_MINIMUM: "torch.minimum(ratio, clipped) * advantages"},
)
mistake(
    grpo_loss,
    "grpo-ratio-upside-down",
    "The ratio is upside down: divide the new probability by the old one.",
    {"policy - old": "old - policy"},
)
mistake(
    grpo_loss,
    "grpo-kl-upside-down",
    "The penalty is upside down: in e^d - d - 1, d is reference minus policy.",
    {"reference - policy": "policy - reference"},
)
mistake(
    grpo_loss,
    "grpo-padding-counted",
    "You divided by all positions, padding included: divide by the number of tokens of the answer.",
    {_AVERAGE: "losses.mean()"},
)
again(
    grpo_loss,
    "grpo-padding-counted",
    {"(beta * kl - gain) * mask": "beta * kl - gain", _AVERAGE: "losses.mean()"},
)
mistake(
    grpo_loss,
    "grpo-mean-over-tokens",
    "You averaged over all tokens, so a long answer weighs more: take the mean of each answer, "
    "then the mean of the answers.",
    {_AVERAGE: "losses.sum() / mask.sum()"},
)
mistake(
    grpo_loss,
    "grpo-maximum",
    "You took the maximum of the two products, as for losses, before negating: take the minimum "
    "of gains.",
    {_MINIMUM: "torch.maximum(X, Y)"},
)
notes(
    grpo_loss,
    {
        "The sign is wrong: subtract the gain, and add the penalty.": {
            f"return {_AVERAGE}": f"return -{_AVERAGE}"
        },
        "The penalty has the wrong sign: it should make the loss larger.": {
            "beta * kl - gain": "-beta * kl - gain"
        },
        "The gain has the wrong sign: a positive advantage makes the loss smaller.": {
            "beta * kl - gain": "beta * kl + gain"
        },
        "The penalty is missing: add beta times the KL estimate.": {
            "beta * kl - gain": "-gain + 0 * kl"
        },
        "The penalty is not multiplied by beta.": {"beta * kl - gain": "kl - gain"},
        "Nothing is clipped: also compute the product with the clipped ratio, and take the "
        "minimum of both products.": {
            _MINIMUM: "X"
        },
        "The ratio is a difference of log-probabilities: apply exp.": {
            "(policy - old).exp()": "policy - old"
        },
        "You divided the policy by the reference: the ratio compares it with the old policy.": {
            "policy - old": "policy - reference"
        },
        "The penalty compares the policy with the old policy: compare it with the reference.": {
            "reference - policy": "old - policy"
        },
        "Your penalty is the difference of the log-probabilities, k1, which may be negative: use "
        "e^d - d - 1.": {"apart.exp() - apart - 1": "-apart"},
        "Your penalty is half the square of the difference, k2: use e^d - d - 1.": {
            "apart.exp() - apart - 1": "apart**2 / 2"
        },
        "The \"- 1\" of the penalty is missing: the penalty must be 0 at the start.": {
            "apart.exp() - apart - 1": "apart.exp() - apart"
        },
        "The mask is missing in the sum: multiply by it before you add.": {
            "(beta * kl - gain) * mask": "beta * kl - gain",
        },
        "You summed over the answers: take their mean.": {
            _AVERAGE: "(losses.sum(-1) / mask.sum(-1)).sum()"
        },
        "You summed over the tokens of an answer: take their mean, so that the length does not "
        "matter.": {
            _AVERAGE: "losses.sum(-1).mean()"
        },
        "These are the losses of the answers: take their mean.": {
            _AVERAGE: "losses.sum(-1) / mask.sum(-1)"
        },
        "You multiplied the log-ratio by the probability, as in the exact KL: a sample needs no "
        "weight. Use e^d - d - 1.": {"apart.exp() - apart - 1": "-apart * policy.exp()"},
        "Each token has a ratio of its own: do not average the log-ratio of an answer first.": {
            "(policy - old).exp()": "(policy - old).mean(-1, keepdim=True).exp()"
        },
        "You normalised the advantages: use them as they are.": {
            "advantages.unsqueeze(-1)": "((advantages - advantages.mean()) / advantages.std())"
            ".unsqueeze(-1)"
        },
        "The penalty is not masked: multiply it by the mask as well.": {
            "(beta * kl - gain) * mask": "beta * kl - gain * mask"
        },
        "You clipped the ratio only from above: also clip it to at least 1 - epsilon.": {
            "ratio.clamp(1 - epsilon, 1 + epsilon)": "ratio.clamp(max=1 + epsilon)"
        },
        "You clipped the log-ratio: apply exp first, then clip the ratio.": {
            "ratio.clamp(1 - epsilon, 1 + epsilon)": "(policy - old).clamp(-epsilon, epsilon).exp()"
        },
        "You clipped the ratio to within epsilon of 0: clip it to within epsilon of 1.": {
            "ratio.clamp(1 - epsilon, 1 + epsilon)": "ratio.clamp(-epsilon, epsilon)"
        },
    },
)  # fmt: skip


@question(decimals=1, measures="an advantage, and the clipped gain of both signs")
def grpo_on_paper() -> list[float]:
    """the advantage of the last answer, the gain of its token, and the gain of the token of the
    first answer
    """
    first, *_, last = group_advantages(torch.tensor(_REWARDS), 0.0)[0].unsqueeze(-1)
    gains = (torch.minimum(2 * each, 1.2 * each) for each in (last, first))
    return torch.cat([last, *gains]).tolist()


notes(
    grpo_on_paper,
    {
        "The last number: the minimum of -1 and -0.6 is -1, so a negative advantage is not "
        "clipped here.": [1.5, 1.8, -0.6],
        "You divided the sum of squares by 4: torch.std divides by one less than the number of "
        "rewards.": [
            1.7, 2.1, -1.2,
        ],
        "You did not divide by the standard deviation.": [3, 3.6, -2],
        "The gains are not clipped: take the smaller of the ratio times the advantage and the "
        "clipped ratio times the advantage.": [1.5, 3, -1],
    },
)  # fmt: skip
