"""By hand: PPO, generalised advantage estimation and the clipped loss."""

import math
from typing import Any

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Answer, Cases, again, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# Rewards and values on the page: no episode ends, and gamma and lambda are 1/2.
_REWARDS, _VALUES, _LAST = [[1.0, 0.0, 4.0]], [[2.0, 4.0, 2.0]], [4.0]


def _gae_cases() -> Cases:
    draw = seeded()

    def case(batch: int, time: int, gamma: float, lam: float, ends: list[tuple]) -> tuple[Any, ...]:
        done = torch.zeros(batch, time, dtype=torch.float64)
        for end in ends:
            done[end] = 1.0
        return 2 * draw(batch, time), 2 * draw(batch, time), 2 * draw(batch), done, gamma, lam

    paper = (torch.tensor(x, dtype=torch.float64) for x in (_REWARDS, _VALUES, _LAST))
    none = torch.zeros(1, 3, dtype=torch.float64)
    return {
        "three steps": (*paper, none, 0.5, 0.5),
        "an episode ends in the middle": case(1, 5, 0.9, 0.7, [(0, 2)]),
        "lambda is 0": case(2, 4, 0.8, 0.0, [(0, 3)]),
        "lambda is 1": case(2, 4, 0.8, 1.0, [(1, 1)]),
        "all sizes differ": case(SIZES.batch, SIZES.src, 0.9, 0.6, [(0, 3), (1, 6), (2, 1)]),
    }


@task(
    _gae_cases,
    by_gradient=None,
    measures="the backward recursion, and the terms that the end of an episode cuts off",
)
def gae(
    rewards: Tensor, values: Tensor, last_value: Tensor, done: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """rewards and values (batch, time), last_value (batch), done (batch, time), gamma, lam ->
    advantages (batch, time), returns (batch, time)
    """
    advantages = []
    following, advantage = last_value, torch.zeros_like(last_value)
    for t in reversed(range(rewards.size(1))):
        goes_on = 1 - done[:, t]
        delta = rewards[:, t] + gamma * goes_on * following - values[:, t]
        advantage = delta + gamma * lam * goes_on * advantage
        following = values[:, t]
        advantages.insert(0, advantage)
    result = torch.stack(advantages, dim=1)
    return result, result + values


_DELTA, _SUM = "gamma * goes_on * following", "gamma * lam * goes_on * advantage"
mistake(
    gae,
    "gae-end-ignored",
    "You ignored the end of an episode: after done, drop both the next value and the next "
    "advantage.",
    {_DELTA: "gamma * following", _SUM: "gamma * lam * advantage"},
)
mistake(
    gae,
    "gae-end-keeps-value",
    "At the end of an episode, you still add the next value, which belongs to another episode: "
    "multiply it by 1 - done.",
    {_DELTA: "gamma * following"},
)
mistake(
    gae,
    "gae-end-keeps-advantage",
    "At the end of an episode, the advantage of the next episode flows back: multiply it by 1 - "
    "done.",
    {_SUM: "gamma * lam * advantage"},
)
mistake(
    gae,
    "gae-gamma-missing",
    "The advantage of the next step is multiplied by lambda alone: multiply it by gamma and "
    "lambda.",
    {_SUM: "lam * goes_on * advantage"},
)
mistake(
    gae,
    "gae-lambda-missing",
    "The advantage of the next step is multiplied by gamma alone: multiply it by gamma and lambda.",
    {_SUM: "gamma * goes_on * advantage"},
)
mistake(
    gae,
    "gae-last-value-missing",
    "After the last step, you used 0: unless the episode ends there, use last_value, the value of "
    "the next state.",
    {"following, advantage = X, Y": "following, advantage = torch.zeros_like(X), Y"},
)
_NEXT = "(values[:, t + 1] if t + 1 < rewards.size(1) else last_value)"
notes(
    gae,
    {
        "You iterated forwards: each advantage depends on the next one, so start at the last "
        "step.": {
            "reversed(range(rewards.size(1)))": "range(rewards.size(1))",
            _DELTA: f"gamma * goes_on * {_NEXT}",
            "advantages.insert(0, advantage)": "advantages.append(advantage)",
        },
        "The advantages are in the order of computation, last step first: reverse them.": {
            "advantages.insert(0, advantage)": "advantages.append(advantage)"
        },
        "These are the one-step errors: add gamma times lambda times the next advantage.": {
            f"delta + {_SUM}": "delta + 0 * advantage"
        },
        "The value of the current step is missing: subtract it from the reward plus the next "
        "value.": {
            "X - values[:, t]": "X"
        },
        "The value of the next step is not discounted: multiply it by gamma.": {
            _DELTA: "goes_on * following"
        },
        "The value of the next step is missing from the error.": {
            _DELTA: "0 * goes_on * following"
        },
        "You added the value of the current step instead of the next one.": {
            _DELTA: "gamma * goes_on * values[:, t]"
        },
        "You multiplied the next value by lambda as well: multiply only the next advantage by "
        "lambda.": {
            _DELTA: "gamma * lam * goes_on * following"
        },
        "You multiplied by done, which keeps exactly the steps that must be cut: multiply by 1 - "
        "done.": {"1 - done[:, t]": "done[:, t]"},
        "You read done one step too late: done at step t means that the episode ends after "
        "step t.":
        {"1 - done[:, t]": "1 - done[:, t + 1] if t + 1 < rewards.size(1) else 1.0"},
        "You read done one step too early: done at step t means that the episode ends after step "
        "t.":
        {"1 - done[:, t]": "1 - done[:, t - 1] if t else 1.0"},
        "You dropped the reward at the last step of an episode: keep it, and drop only the next "
        "value and the next advantage.": {
            "rewards[:, t] + X - V": "goes_on * rewards[:, t] + X - V"
        },
        "You added the value of the current step: subtract it.": {
            "X - values[:, t]": "X + values[:, t]"
        },
        "After the last step, you used the value of that step again: use last_value.": {
            "following, advantage = X, Y": "following, advantage = values[:, -1], Y"
        },
        "After the last step, you used the value of the first step, because roll wraps around: use "
        "last_value.": {
            "following, advantage = X, Y": "following, advantage = values[:, 0], Y"
        },
        "You added the rewards to the advantages: a return is the advantage plus the value.": {
            "result + values": "result + rewards"
        },
        "You swapped gamma and lambda: multiply the next value by gamma.": {
            _DELTA: "lam * goes_on * following"
        },
        "You swapped the two results: return the advantages first.": {
            "return result, X": "return X, result"
        },
        "The returns lack the values: a return is the advantage plus the value.": {
            "result + values": "result"
        },
        "The value has the wrong sign in the returns: add it to the advantage.": {
            "result + values": "result - values"
        },
        "Your returns are sums of discounted rewards. With lambda below 1, a return is the "
        "advantage plus the value.": {
            "return result, X": "total, sums = last_value, []\n"
            "for t in reversed(range(rewards.size(1))):\n"
            "    total = rewards[:, t] + gamma * (1 - done[:, t]) * total\n"
            "    sums.insert(0, total)\n"
            "return result, torch.stack(sums, dim=1)"
        },
        "You normalised the advantages. PPO does so later, and the returns need the unnormalised "
        "advantages.": {
            "return result, X": "return (result - result.mean()) / result.std(), X"
        },
    },
)  # fmt: skip


def _loss_cases() -> Cases:
    draw = seeded()

    def case(batch: int, time: int, epsilon: float, spread: float = 0.6) -> tuple[Any, ...]:
        old = -2 + draw(batch, time)
        return old + spread * draw(batch, time), old, 2 * draw(batch, time), epsilon

    # All four corners: a ratio above or below the range, and an advantage of either sign.
    old = torch.full((2, 2), -3.0, dtype=torch.float64)
    policy = old + math.log(2) * torch.tensor([[1.0, -1], [1, -1]])
    advantages = torch.tensor([[4.0, 2], [-1, -3]], dtype=torch.float64)
    return {
        "four corners": (policy.double(), old, advantages, 0.25),
        "the first update, where the policy is the old one": case(2, 3, 0.2, spread=0.0),
        "all sizes differ": case(SIZES.batch, SIZES.src, 0.3),
    }


def _run_loss(answer: Answer, given: tuple[Any, ...]) -> Any:
    # Only the policy needs a gradient: an answer may detach the other tensors.
    policy, old, advantages, epsilon = given
    return answer(policy, old.detach(), advantages.detach(), epsilon)


@task(
    _loss_cases,
    run=_run_loss,
    measures="a clipped loss that is pessimistic for advantages of either sign",
)
def ppo_loss(policy: Tensor, old: Tensor, advantages: Tensor, epsilon: float) -> Tensor:
    """policy, old and advantages (batch, time), epsilon -> one number"""
    ratio = (policy - old).exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


_MINIMUM = "torch.minimum(X, Y)"
mistake(
    ppo_loss,
    "ppo-minimum-missing",
    "You always used the clipped ratio: take the smaller of the two products, so that a ratio on "
    "the wrong side is still corrected.",
    {_MINIMUM: "Y"},
)
mistake(
    ppo_loss,
    "ppo-minimum-before-advantage",
    "You took the smaller ratio and then multiplied it. With a negative advantage, this gives the "
    "larger product: multiply first, then take the minimum.",
    {_MINIMUM: "(torch.minimum(ratio, clipped) * advantages)"},
)
mistake(
    ppo_loss,
    "ppo-maximum",
    "You took the larger product before negating: take the smaller of two gains, or the larger of "
    "two losses.",
    {_MINIMUM: "torch.maximum(X, Y)"},
)
mistake(
    ppo_loss,
    "ppo-ratio-upside-down",
    "The ratio is upside down: divide the new probability by the old one.",
    {"policy - old": "old - policy"},
)
mistake(
    ppo_loss,
    "ppo-ratio-of-logarithms",
    "You divided two log-probabilities: subtract them and apply exp to get the ratio of the "
    "probabilities.",
    {"(policy - old).exp()": "(policy / old)"},
)
again(ppo_loss, "ppo-ratio-of-logarithms", {"(policy - old).exp()": "(policy - old)"})
notes(
    ppo_loss,
    {
        "This is the negated loss: the optimizer minimises, so negate the gain.": {
            f"-{_MINIMUM}.mean()": f"{_MINIMUM}.mean()"
        },
        "Nothing is clipped: also compute the product with the clipped ratio, and take the minimum "
        "of both products.": {
            _MINIMUM: "X"
        },
        "The ratio is missing: this is the loss of the plain policy gradient.": {
            _MINIMUM: "(policy * advantages)"
        },
        "You clipped the product: clip the ratio, then multiply by the advantage.": {
            _MINIMUM: "torch.minimum(X, X.clamp(1 - epsilon, 1 + epsilon))"
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
        "This is the sum over all steps: take the mean.": {
            f"-{_MINIMUM}.mean()": f"-{_MINIMUM}.sum()"
        },
        "You summed over the steps of each sentence: take the mean over all steps.": {
            f"-{_MINIMUM}.mean()": f"-{_MINIMUM}.sum(-1).mean()"
        },
        "You added the log-ratios of a sentence: compute a separate ratio for each step.": {
            "(policy - old).exp()": "(policy - old).sum(-1, keepdim=True).exp()"
        },
        "You dropped the negative advantages: keep them, because they lower the probability of bad "
        "steps.": {
            "ratio = X": "ratio = X\nadvantages = advantages.relu()"
        },
        "These are the losses of all steps: take their mean.": {
            f"-{_MINIMUM}.mean()": f"-{_MINIMUM}"
        },
        "You took the mean of each product first: take the minimum at each step, then the mean.": {
            f"-{_MINIMUM}.mean()": "-torch.minimum(X.mean(), Y.mean())"
        },
        "You normalised the advantages: use them as they are.": {
            "ratio = X": "ratio = X\n"
            "advantages = (advantages - advantages.mean()) / advantages.std()"
        },
        "You multiplied the clipped product by the ratio again.": {
            _MINIMUM: "torch.minimum(X, Y * ratio)"
        },
    },
)  # fmt: skip


@question(decimals=2, measures="errors and advantages, from the last step backwards")
def gae_on_paper() -> list[float]:
    """the advantages of the three steps"""
    rewards, values, last = map(torch.tensor, (_REWARDS, _VALUES, _LAST))
    return gae(rewards, values, last, torch.zeros(1, 3), 0.5, 0.5)[0][0].tolist()


notes(
    gae_on_paper,
    {
        "These are the one-step errors: add a quarter of the next advantage.": [1, -3, 4],
        "You multiplied the next advantage by gamma alone: multiply it by gamma and lambda.": [
            0.5, -1, 4,
        ],
        "You started at the first step: start at the last one.": [1, -2.75, 3.31],
        "You forgot the value after the last step.": [0.38, -2.5, 2],
    },
)  # fmt: skip
