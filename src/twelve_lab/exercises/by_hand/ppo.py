"""By hand: PPO, generalised advantage estimation and the clipped loss."""

import math
from typing import Any

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Answer, Cases, again, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# Rewards and values of the page: no episode ends, gamma and lambda are 1/2.
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
    measures="the recursion backwards, and what the end of an episode cuts",
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
    "The end of an episode is ignored: after done, neither the next value nor the next advantage "
    "counts.",
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
    "After the last step you count 0: unless the episode ends there, last_value is the value of "
    "the next state.",
    {"following, advantage = X, Y": "following, advantage = torch.zeros_like(X), Y"},
)
_NEXT = "(values[:, t + 1] if t + 1 < rewards.size(1) else last_value)"
notes(
    gae,
    {
        "You went forwards: the advantage of a step needs that of the next step, so begin at the "
        "last one.": {
            "reversed(range(rewards.size(1)))": "range(rewards.size(1))",
            _DELTA: f"gamma * goes_on * {_NEXT}",
            "advantages.insert(0, advantage)": "advantages.append(advantage)",
        },
        "The advantages are in the order in which you computed them, the last step first: reverse "
        "them.": {"advantages.insert(0, advantage)": "advantages.append(advantage)"},
        "These are the errors of single steps: add gamma times lambda times the next advantage.": {
            f"delta + {_SUM}": "delta + 0 * advantage"
        },
        "The value of the step itself is missing: subtract it from reward plus next value.": {
            "X - values[:, t]": "X"
        },
        "The value of the next step is not discounted: multiply it by gamma.": {
            _DELTA: "goes_on * following"
        },
        "The value of the next step is missing in the error.": {_DELTA: "0 * goes_on * following"},
        "You added the value of the step itself in place of the next one.": {
            _DELTA: "gamma * goes_on * values[:, t]"
        },
        "The next value is multiplied by lambda as well: lambda belongs to the next advantage.": {
            _DELTA: "gamma * lam * goes_on * following"
        },
        "You multiplied by done, which keeps exactly the steps that must be cut: multiply by 1 - "
        "done.": {"1 - done[:, t]": "done[:, t]"},
        "You read done one step too late: done at step t says that the episode ends after step t.":
        {"1 - done[:, t]": "1 - done[:, t + 1] if t + 1 < rewards.size(1) else 1.0"},
        "You read done one step too early: done at step t says that the episode ends after step t.":
        {"1 - done[:, t]": "1 - done[:, t - 1] if t else 1.0"},
        "The reward of the last step of an episode counts: only what follows is cut.": {
            "rewards[:, t] + X - V": "goes_on * rewards[:, t] + X - V"
        },
        "You added the value of the step itself: subtract it.": {
            "X - values[:, t]": "X + values[:, t]"
        },
        "After the last step you used the value of the last step: use last_value.": {
            "following, advantage = X, Y": "following, advantage = values[:, -1], Y"
        },
        "After the last step you used the value of the first step, by roll: use last_value.": {
            "following, advantage = X, Y": "following, advantage = values[:, 0], Y"
        },
        "You added the rewards to the advantages: a return is the advantage plus the value.": {
            "result + values": "result + rewards"
        },
        "Gamma and lambda are exchanged: the next value is multiplied by gamma.": {
            _DELTA: "lam * goes_on * following"
        },
        "The two results are exchanged: return the advantages first.": {
            "return result, X": "return X, result"
        },
        "The returns lack the values: a return is the advantage plus the value.": {
            "result + values": "result"
        },
        "The returns have the wrong sign of the value: add it to the advantage.": {
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
        "These advantages are normalised. The library does this later, and the returns need the "
        "unchanged ones.": {
            "return result, X": "return (result - result.mean()) / result.std(), X"
        },
    },
)  # fmt: skip


def _loss_cases() -> Cases:
    draw = seeded()

    def case(batch: int, time: int, epsilon: float, spread: float = 0.6) -> tuple[Any, ...]:
        old = -2 + draw(batch, time)
        return old + spread * draw(batch, time), old, 2 * draw(batch, time), epsilon

    # All four corners: a ratio above and below the range, an advantage of each sign.
    old = torch.full((2, 2), -3.0, dtype=torch.float64)
    policy = old + math.log(2) * torch.tensor([[1.0, -1], [1, -1]])
    advantages = torch.tensor([[4.0, 2], [-1, -3]], dtype=torch.float64)
    return {
        "four corners": (policy.double(), old, advantages, 0.25),
        "the first update, where the policy is the old one": case(2, 3, 0.2, spread=0.0),
        "all sizes differ": case(SIZES.batch, SIZES.src, 0.3),
    }


def _run_loss(answer: Answer, given: tuple[Any, ...]) -> Any:
    # Only the policy is trained: an answer may cut off the gradients of the others.
    policy, old, advantages, epsilon = given
    return answer(policy, old.detach(), advantages.detach(), epsilon)


@task(
    _loss_cases,
    run=_run_loss,
    measures="a clipped ratio that is pessimistic for both signs",
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
    "You always use the clipped ratio: take the smaller one of both products, so that a ratio on "
    "the wrong side is still corrected.",
    {_MINIMUM: "Y"},
)
mistake(
    ppo_loss,
    "ppo-minimum-before-advantage",
    "You took the smaller ratio and multiplied it afterwards: with a negative advantage that is "
    "the larger product. Multiply first, then take the minimum.",
    {_MINIMUM: "(torch.minimum(ratio, clipped) * advantages)"},
)
mistake(
    ppo_loss,
    "ppo-maximum",
    "You took the larger product before the minus: of gains take the smaller one, of losses the "
    "larger one.",
    {_MINIMUM: "torch.maximum(X, Y)"},
)
mistake(
    ppo_loss,
    "ppo-ratio-upside-down",
    "The ratio is upside down: it is the new probability divided by the old one.",
    {"policy - old": "old - policy"},
)
mistake(
    ppo_loss,
    "ppo-ratio-of-logarithms",
    "You divided two log-probabilities: the ratio of the probabilities is exp of their difference.",
    {"(policy - old).exp()": "(policy / old)"},
)
again(ppo_loss, "ppo-ratio-of-logarithms", {"(policy - old).exp()": "(policy - old)"})
notes(
    ppo_loss,
    {
        "This is minus the loss: the optimizer minimises, so negate the gain.": {
            f"-{_MINIMUM}.mean()": f"{_MINIMUM}.mean()"
        },
        "Nothing is clipped: take the minimum with the clipped ratio times the advantage.": {
            _MINIMUM: "X"
        },
        "There is no ratio: this is the plain policy gradient.": {
            _MINIMUM: "(policy * advantages)"
        },
        "You clipped the product: clip the ratio, then multiply by the advantage.": {
            _MINIMUM: "torch.minimum(X, X.clamp(1 - epsilon, 1 + epsilon))"
        },
        "The ratio is clipped from above only: clip it to at least 1 - epsilon as well.": {
            "ratio.clamp(1 - epsilon, 1 + epsilon)": "ratio.clamp(max=1 + epsilon)"
        },
        "You clipped the log-ratio: clip the ratio, after exp.": {
            "ratio.clamp(1 - epsilon, 1 + epsilon)": "(policy - old).clamp(-epsilon, epsilon).exp()"
        },
        "You clipped the ratio to epsilon around 0: clip it around 1.": {
            "ratio.clamp(1 - epsilon, 1 + epsilon)": "ratio.clamp(-epsilon, epsilon)"
        },
        "This is the sum over all steps: take the mean.": {
            f"-{_MINIMUM}.mean()": f"-{_MINIMUM}.sum()"
        },
        "You added the steps of a sentence: take the mean over all of them.": {
            f"-{_MINIMUM}.mean()": f"-{_MINIMUM}.sum(-1).mean()"
        },
        "Each step has a ratio of its own: do not add the log-ratios of a sentence.": {
            "(policy - old).exp()": "(policy - old).sum(-1, keepdim=True).exp()"
        },
        "You dropped the negative advantages: they lower the probability of bad steps.": {
            "ratio = X": "ratio = X\nadvantages = advantages.relu()"
        },
        "These are the losses of all steps: take their mean.": {
            f"-{_MINIMUM}.mean()": f"-{_MINIMUM}"
        },
        "You took the mean of both products first: take the minimum of each step, then the mean.": {
            f"-{_MINIMUM}.mean()": "-torch.minimum(X.mean(), Y.mean())"
        },
        "The advantages are ready: do not normalise them again.": {
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
        "These are the errors of single steps: add a quarter of the next advantage.": [1, -3, 4],
        "You multiplied the next advantage by gamma alone: multiply it by gamma and lambda.": [
            0.5, -1, 4,
        ],
        "You began at the first step: begin at the last one.": [1, -2.75, 3.31],
        "You forgot the value after the last step.": [0.38, -2.5, 2],
    },
)  # fmt: skip
