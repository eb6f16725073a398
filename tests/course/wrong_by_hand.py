"""Answers to the tasks of the pages to write by hand, in the form of `wrong_answers`."""

import itertools
import math

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce, repeat
from torch import nn

from tests.course.wrong_answers import RIGHT, WRONG, Answer, right
from twelve import FeedForward, LayerNorm, MultiHeadAttention


@right("by-hand-softmax-in-blocks")
def block_by_block(scores, block_len):
    m, s, states = scores[..., :block_len].amax(-1), 0.0, []
    for block in scores.split(block_len, -1):
        new = torch.maximum(m, block.amax(-1))
        s = s * (m - new).exp() + (block - new[..., None]).exp().sum(-1)
        m = new
        states.append((m, s))
    return tuple(torch.stack(each, -1) for each in zip(*states, strict=True))


@right("by-hand-softmax-in-blocks")
def sums_by_logarithms(scores, block_len):
    largest, total = [], []
    m, log_sum = scores[..., :1] * 0 - 1e30, scores[..., :1] * 0 - 1e30
    for start in range(0, scores.size(-1), block_len):
        block = scores[..., start : start + block_len]
        m = torch.cat([m, block], -1).max(-1, keepdim=True).values
        log_sum = torch.logaddexp(log_sum, (block - m).exp().sum(-1, keepdim=True).log() + m)
        largest.append(m)
        total.append((log_sum - m).exp())
    return torch.cat(largest, -1), torch.cat(total, -1)


@right("by-hand-softmax-in-blocks")
def score_by_score(scores, block_len):
    m = scores.cummax(-1).values
    running, total = torch.zeros_like(m[..., 0]), []
    for j in range(scores.size(-1)):
        factor = (m[..., j - 1] - m[..., j]).exp() if j else 1.0
        running = running * factor + (scores[..., j] - m[..., j]).exp()
        total.append(running)
    ends = [*range(block_len - 1, scores.size(-1) - 1, block_len), scores.size(-1) - 1]
    return m[..., ends], torch.stack(total, -1)[..., ends]


START = "m, s, states = X"
WRONG["by-hand-softmax-in-blocks"] = {
    "block-sum-not-rescaled": {"s * F + X": "s + X"},
    "block-rescaled-upside-down": {"m - new": "new - m"},
    "block-maximum-forgotten": {"torch.maximum(m, X)": "X"},
    "each block on its own": {"torch.maximum(m, X)": "X", "s * F + X": "X"},
    "the maximum of the block in the powers": {"new[..., None]": "block.amax(-1, True)"},
    "the old maximum in the powers": {"new[..., None]": "m[..., None]"},
    "the sum is rescaled after the block is added": {"s * F + X": "(s + X) * F"},
    "a mean of the powers": {"X.exp().sum(-1)": "X.exp().mean(-1)"},
    "the maximum of all queries": {
        "m = new": "m = new.amax(-1, keepdim=True).expand_as(new) if states else new"
    },
    "the last block is dropped if it is shorter": {
        START: "whole = max(scores.size(-1) // block_len * block_len, block_len)\n"
        f"scores = scores[..., :whole]\n{START}"
    },
    "block_len is the number of blocks": {
        START: f"block_len = -(-scores.size(-1) // block_len)\n{START}"
    },
    "blocks of queries": {START: f"scores = scores.mT\n{START}",
                          "torch.stack(each, -1)": "torch.stack(each, -1).mT"},
    "the state after the last block only": {"torch.stack(each, -1)": "each[-1]"},
    "the logarithm of the sum": {"(m, s)": "(m, s.log())"},
}  # fmt: skip


@right("by-hand-attention-in-blocks")
def attention_by_merging(query, key, value, block_len):
    m, total, context = None, None, None
    for start in range(0, key.size(1), block_len):
        k, v = key[:, start : start + block_len], value[:, start : start + block_len]
        scores = torch.einsum("bqd,bkd->bqk", query, k) * query.size(-1) ** -0.5
        here = scores.max(-1, keepdim=True).values
        p = torch.exp(scores - here)
        part, output = p.sum(-1, keepdim=True), torch.bmm(p, v)
        if m is None:
            m, total, context = here, part, output
            continue
        new = torch.maximum(m, here)
        old, fresh = torch.exp(m - new), torch.exp(here - new)
        total = old * total + fresh * part
        context = old * context + fresh * output
        m = new
    return context / total


@right("by-hand-attention-in-blocks")
def attention_by_einops(query, key, value, block_len):
    """Keep the output divided at every step, as the first FlashAttention does."""
    lse = query.new_full(query.shape[:2], -math.inf)
    output = torch.zeros((), dtype=query.dtype)
    for k, v in zip(key.split(block_len, 1), value.split(block_len, 1), strict=True):
        scores = einsum(query, k, "b q d, b k d -> b q k") / math.sqrt(k.size(-1))
        top = reduce(scores, "b q k -> b q 1", "max")
        here = (scores - top).exp().sum(-1).log() + top[..., 0]
        both = torch.logaddexp(lse, here)
        output = output * (lse - both).exp()[..., None]
        output = output + einsum((scores - both[..., None]).exp(), v, "b q k, b k d -> b q d")
        lse = both
    return output


WRONG["by-hand-attention-in-blocks"] = {
    "block-context-not-rescaled": {"old * context": "context"},
    "block-sum-not-rescaled": {"old * total": "total"},
    "block-sum-not-rescaled: and not the context": {
        "old * total": "total", "old * context": "context",
    },
    "the new block is not rescaled": {"fresh * part": "part", "fresh * output": "output"},
    "the factors are exchanged": {"old, fresh = X, Y": "fresh, old = X, Y"},
    "scale-missing": {"query.size(-1) ** -0.5": "1"},
    "scale-multiplied": {"query.size(-1) ** -0.5": "query.size(-1) ** 0.5"},
    "the scale is that of the values": {"query.size(-1) ** -0.5": "value.size(-1) ** -0.5"},
    "a softmax of each block, added": lambda q, k, v, n: sum(
        F.scaled_dot_product_attention(q, *each)
        for each in zip(k.split(n, 1), v.split(n, 1), strict=True)
    ),
    "a softmax of each block, averaged": lambda q, k, v, n: torch.stack(
        [
            F.scaled_dot_product_attention(q, *each)
            for each in zip(k.split(n, 1), v.split(n, 1), strict=True)
        ]
    ).mean(0),
    "the last block only": {"total = old * X + Y": "total = Y", "context = old * X + Y":
                            "context = Y"},
    "the sum is not divided out": {"context / total": "context"},
    "no maximum, so that large scores overflow": {
        "scores - here": "scores", "m - new": "0 * m", "here - new": "0 * m",
    },
    "the last block is dropped if it is shorter": {
        "range(0, key.size(1), block_len)": "range(0, key.size(1) // block_len * block_len, "
        "block_len)"
    },
    "the running maximum is not updated": {"m = new": "pass"},
}  # fmt: skip


@right("by-hand-lora")
class UpdateOfRank(nn.Module):
    def __init__(self, weight, r, alpha):
        super().__init__()
        self.register_buffer("weight", weight.clone())
        self.a = nn.Parameter(weight.new_empty(r, weight.size(1)))
        self.b = nn.Parameter(weight.new_zeros(weight.size(0), r))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.alpha, self.r = alpha, r

    def forward(self, x):
        low = F.linear(x, self.a)
        return F.linear(x, self.weight) + F.linear(low, self.b) * (self.alpha / self.r)

    def merged(self):
        return torch.addmm(self.weight, self.b, self.a, alpha=self.alpha / self.r)


@right("by-hand-lora")
class MergedEachTime(nn.Module):
    def __init__(self, weight, rank, alpha):
        super().__init__()
        self.weight = nn.Parameter(weight).requires_grad_(False)
        self.a = nn.Parameter(torch.rand(rank, weight.shape[1]) - 0.5)
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank))
        self.factor = alpha / rank

    def merged(self):
        delta = einsum(self.b, self.a, "out rank, rank features -> out features")
        return self.weight + self.factor * delta

    def forward(self, x):
        return x @ self.merged().mT


SCALED, RANDOM = "F.linear(low, self.b) * S", "nn.init.kaiming_uniform_(self.a, a=X)"
WRONG["by-hand-lora"] = {
    "lora-both-zero": {RANDOM: "nn.init.zeros_(self.a)"},
    "lora-both-random": {"weight.new_zeros(weight.size(0), r)": "torch.randn(len(weight), r)"},
    "b is random and a is zero": {
        RANDOM: "nn.init.zeros_(self.a)",
        "weight.new_zeros(weight.size(0), r)": "torch.randn(len(weight), r)",
    },
    "a starts with ones": {RANDOM: "nn.init.ones_(self.a)"},
    "lora-weight-trained": {
        'self.register_buffer("weight", weight.clone())':
        'self.register_parameter("weight", nn.Parameter(weight))'
    },
    "lora-scale-missing": {
        SCALED: "F.linear(low, self.b)",
        "torch.addmm(self.weight, self.b, self.a, alpha=S)": "self.weight + self.b @ self.a",
    },
    "lora-scale-alpha": {"self.alpha, self.r = alpha, r": "self.alpha, self.r = alpha, 1"},
    "lora-merged-unscaled": {"torch.addmm(W, B, A, alpha=S)": "W + B @ A"},
    "forward is not scaled": {SCALED: "F.linear(low, self.b)"},
    "divided by the root of the rank": {
        "self.alpha, self.r = alpha, r": "self.alpha, self.r = alpha, r**0.5"
    },
    "the scale is upside down": {"self.alpha, self.r = alpha, r": "self.r, self.alpha = alpha, r"},
    "forward forgets the frozen weight": {"F.linear(x, self.weight) + U": "U"},
    "merged forgets the frozen weight": {"torch.addmm(W, B, A, alpha=S)": "S * B @ A"},
    "the scale covers the frozen weight": {
        f"return F.linear(x, self.weight) + {SCALED}":
        "return (F.linear(x, self.weight) + F.linear(low, self.b)) * S"
    },
    "a has no gradient": {"low = F.linear(x, self.a)": "low = F.linear(x, self.a.data)"},
    "b has no gradient": {"F.linear(low, self.b)": "F.linear(low, self.b.detach())"},
    "merged changes the weight": {
        "torch.addmm(W, B, A, alpha=S)": "W.add_(S * B.detach() @ A.detach())"
    },
    "merged is transposed": {"torch.addmm(W, B, A, alpha=S)": "(W + S * B @ A).T"},
    "the update is subtracted": {"F.linear(x, self.weight) + U": "F.linear(x, self.weight) - U"},
    "a relu between the two": {"F.linear(x, self.a)": "F.linear(x, self.a).relu()"},
}  # fmt: skip


@right("by-hand-dpo-loss")
def dpo_by_rewards(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    rewards = [
        beta * (policy - ref.detach())
        for policy, ref in ((policy_chosen, ref_chosen), (policy_rejected, ref_rejected))
    ]
    return F.softplus(rewards[1] - rewards[0]).mean()


@right("by-hand-dpo-loss")
def dpo_as_a_classifier(pi_w, pi_l, ref_w, ref_l, b):
    """Take the cross entropy of two classes, of which the first one is right."""
    scores = torch.stack([b * (pi_w - ref_w), b * (pi_l - ref_l)], dim=-1)
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))


@right("by-hand-dpo-loss")
def dpo_by_einops(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    pairs = torch.stack([policy_chosen, policy_rejected, ref_chosen, ref_rejected])
    signs = beta * torch.tensor([1.0, -1.0, -1.0, 1.0])
    margin = einsum(pairs, signs, "four batch, four -> batch")
    return reduce(torch.logaddexp(torch.zeros_like(margin), -margin), "batch ->", "mean")


WRONG["by-hand-dpo-loss"] = {
    "dpo-reference-missing": {"policy - ref.detach()": "policy"},
    "dpo-answers-exchanged": {"rewards[1] - rewards[0]": "rewards[0] - rewards[1]"},
    "dpo-reference-added": {"policy - ref.detach()": "policy + ref.detach()"},
    "dpo-beta-missing": {"beta * X": "X"},
    "dpo-beta-outside": {"beta * X": "X", "F.softplus(X)": "beta * F.softplus(X)"},
    "dpo-loss-overflows": {"F.softplus(X)": "-torch.log(1 / (1 + torch.exp(X)))"},
    "dpo-loss-overflows: in the exponential of log1p": {"F.softplus(X)": "torch.exp(X).log1p()"},
    "a small number in the logarithm": {"F.softplus(X)": "-torch.log(torch.sigmoid(-X) + 1e-8)"},
    "the sum over the batch": {"X.mean()": "X.sum()"},
    "one loss for each pair": {"X.mean()": "X"},
    "the minus is forgotten": {"F.softplus(X)": "-F.softplus(X)"},
    "the margin is averaged first": {"F.softplus(X).mean()": "F.softplus(X.mean())"},
    "ratios of probabilities": {"policy - ref.detach()": "torch.exp(policy) / torch.exp(ref)"},
    "the policy is cut off": {"F.softplus(X)": "F.softplus(X.detach())"},
    "the rejected answer of the policy is cut off": {"(policy_rejected, ref_rejected)":
                                                     "(policy_rejected.detach(), ref_rejected)"},
    "beta has a default": {"beta * X": "0.1 * X"},
    "the square of IPO": {"F.softplus(X)": "(X / beta + 0.5 / beta) ** 2"},
    "labels of a smoothed loss": {"F.softplus(X)": "(0.9 * F.softplus(X) + 0.1 * F.softplus(-X))"},
}  # fmt: skip


@right("by-hand-group-advantages")
def advantages_from_squares(rewards, eps):
    count = rewards.size(-1)
    mean = rewards.sum(-1, keepdim=True) / count
    variance = ((rewards - mean) ** 2).sum(-1, keepdim=True) / (count - 1)
    return (rewards - mean) / (variance**0.5 + eps)


@right("by-hand-group-advantages")
def advantages_group_by_group(rewards, eps):
    result = []
    for group in rewards:
        result.append((group - group.mean()) / (torch.std(group) + eps))
    return torch.stack(result)


@right("by-hand-group-advantages")
def advantages_by_einops(rewards, eps):
    std, mean = torch.std_mean(rewards, dim=1)
    std, mean = (repeat(x, "batch -> batch group", group=rewards.size(1)) for x in (std, mean))
    return (rewards - mean) / (std + eps)


WRONG["by-hand-group-advantages"] = {
    "grpo-groups-mixed": {"mean = X": "mean = rewards.mean()", "variance = X":
                          "variance = rewards.var()"},
    "grpo-eps-missing": {"variance**0.5 + eps": "variance**0.5"},
    "grpo-std-of-all": {"count - 1": "count"},
    "grpo-std-of-all: from the mean of the squares": {
        "variance = X": "variance = ((rewards**2).mean(1, True) - mean**2).clamp(min=0)"
    },
    "the mean alone": {"X / (variance**0.5 + eps)": "X"},
    "the standard deviation alone": {"(rewards - mean) / X": "rewards / X"},
    "over the prompts": {"count = X": "rewards, count = rewards.T, len(rewards)", "return X":
                         "return X.T"},
    "the variance": {"variance**0.5": "variance", "count - 1": "count"},
    "eps in the root": {"variance**0.5 + eps": "(variance + eps) ** 0.5", "count - 1": "count"},
    "eps is the lower bound": {"variance**0.5 + eps": "(variance**0.5).clamp(min=eps)"},
    "the mean of the others": {"(rewards - mean) / X":
                               "(rewards - (count * mean - rewards) / (count - 1)) / X"},
    "the best answer is the baseline": {"(rewards - mean) / X":
                                        "(rewards - rewards.amax(1, True)) / X"},
    "the range instead of the standard deviation": {
        "variance**0.5": "(rewards.amax(1, True) - rewards.amin(1, True))"
    },
    "eps is a default": {"variance**0.5 + eps": "variance**0.5 + 1e-8"},
    "the sign": {"(rewards - mean) / X": "(mean - rewards) / X"},
}  # fmt: skip


@right("by-hand-grpo-loss")
def grpo_answer_by_answer(policy, old, reference, advantages, mask, epsilon, beta):
    total = 0.0
    for i in range(len(policy)):
        new = policy[i][mask[i]]
        before, frozen = old[i][mask[i]].detach(), reference[i][mask[i]].detach()
        ratio = torch.exp(new - before)
        a = advantages[i]
        limited = torch.clamp(ratio, min=1.0 - epsilon, max=1.0 + epsilon)
        surrogate = torch.min(ratio * a, limited * a)
        k3 = torch.exp(frozen - new) - (frozen - new) - 1.0
        total = total + (surrogate - beta * k3).sum() / len(new)
    return -total / len(policy)


@right("by-hand-grpo-loss")
def grpo_by_the_sign_of_the_advantage(policy, old, reference, advantages, mask, epsilon, beta):
    """Write the minimum as a bound on one side, which depends on the sign."""
    ratio = torch.exp(policy - old)
    a = advantages[:, None]
    bound = torch.where(a > 0, ratio.clamp(max=1 + epsilon), ratio.clamp(min=1 - epsilon))
    kl = torch.expm1(reference - policy) - (reference - policy)
    each = torch.where(mask, -bound * a + beta * kl, torch.zeros_like(ratio))
    weights = mask.to(each.dtype) / mask.sum(dim=1, keepdim=True) / len(mask)
    return (each * weights).sum()


@right("by-hand-grpo-loss")
class GRPOCriterion:
    """Take the maximum of two losses, and einops for the means."""

    def __new__(cls, policy, old, reference, advantages, mask, epsilon, beta):
        a = rearrange(advantages, "answer -> answer 1")
        ratio = (policy - old).exp()
        worse = torch.maximum(-a * ratio, -a * ratio.clip(1 - epsilon, 1 + epsilon))
        kl = reference.sub(policy).exp() - reference + policy - 1
        keep = mask.double()
        tokens = reduce(keep, "answer token -> answer", "sum")
        sums = einsum(worse + beta * kl, keep, "answer token, answer token -> answer")
        return reduce(sums / tokens, "answer ->", "mean")


SURROGATE = "torch.min(ratio * a, limited * a)"
WRONG["by-hand-grpo-loss"] = {
    "grpo-minimum-missing": {SURROGATE: "limited * a"},
    "grpo-minimum-before-advantage": {SURROGATE: "torch.min(ratio, limited) * a"},
    "grpo-maximum": {"torch.min(X, Y)": "torch.max(X, Y)"},
    "grpo-ratio-upside-down": {"new - before": "before - new"},
    "grpo-kl-upside-down": {"k3 = X": "k3 = torch.exp(new - frozen) - (new - frozen) - 1.0"},
    "grpo-padding-counted": {f"{each}[i][mask[i]]": f"{each}[i]"
                             for each in ("policy", "old", "reference")},
    "grpo-padding-counted: the mask is applied, but every position divides": {
        "len(new)": "policy.size(1)"
    },
    "grpo-mean-over-tokens": {"X.sum() / len(new)": "X.sum()", "-total / X": "-total / mask.sum()"},
    "the sum of the tokens": {"X.sum() / len(new)": "X.sum()"},
    "nothing is clipped": {SURROGATE: "ratio * a"},
    "the plain difference as penalty": {"k3 = X": "k3 = new - frozen"},
    "the expected KL": {"k3 = X": "k3 = new.exp() * (new - frozen)"},
    "the square as penalty": {"k3 = X": "k3 = (new - frozen) ** 2 / 2"},
    "the penalty is rewarded": {"surrogate - beta * k3": "surrogate + beta * k3"},
    "the penalty has no gradient": {"beta * k3": "beta * k3.detach()"},
    "the ratio is always 1": {"new - before": "new - new.detach()"},
    "one ratio for each answer": {
        "torch.exp(new - before)": "torch.exp(policy[i].mean() - old[i].mean()).expand(len(new))"
    },
    "the gain of the mean advantage": {"a = X": "a = advantages.mean()"},
    "the penalty against the old policy": {"reference[i][mask[i]]": "old[i][mask[i]]"},
    "advantages are normalised again": {
        "a = X": "a = ((advantages - advantages.mean()) / (advantages.std() + 1e-8))[i]"
    },
}  # fmt: skip


@right("by-hand-gae")
def gae_as_usual(rewards, values, last_value, dones, gamma, lam):
    batch, steps = rewards.shape
    advantages = torch.zeros_like(rewards)
    last_gae = torch.zeros(batch, dtype=rewards.dtype)
    for t in range(steps - 1, -1, -1):
        next_value = last_value if t == steps - 1 else values[:, t + 1]
        not_done = 1.0 - dones[:, t]
        delta = rewards[:, t] + gamma * next_value * not_done - values[:, t]
        last_gae = delta + gamma * lam * not_done * last_gae
        advantages[:, t] = last_gae
    return advantages, advantages + values


@right("by-hand-gae")
def gae_by_a_matrix(rewards, values, last_value, done, gamma, lam):
    """Sum the errors with a matrix of weights, without a recursion."""
    time = rewards.size(1)
    ahead = torch.cat([values[:, 1:], last_value[:, None]], dim=1)
    delta = rewards + gamma * (1 - done) * ahead - values
    ended = done.cumsum(1) - done
    same = ended[:, :, None] == ended[:, None, :]
    steps = torch.arange(time)
    distance = (steps - steps[:, None]).clamp(min=0)
    weights = torch.triu((gamma * lam) ** distance.double()) * same
    advantages = einsum(weights, delta, "batch now then, batch then -> batch now")
    return advantages, advantages + values


@right("by-hand-gae")
def gae_by_lambda_returns(rewards, values, last_value, done, gamma, lam):
    """Mix the next value and the next return, and subtract the values at the end."""
    returns, following, target = [], last_value, last_value
    for reward, value, end in zip(
        reversed(rewards.unbind(1)),
        reversed(values.unbind(1)),
        reversed(done.bool().unbind(1)),
        strict=True,
    ):
        mixed = (1 - lam) * following + lam * target
        target = reward + gamma * torch.where(end, torch.zeros_like(mixed), mixed)
        following = value
        returns.append(target)
    returns = torch.stack(returns[::-1], 1)
    return returns - values, returns


WRONG["by-hand-gae"] = {
    "gae-end-ignored": {"1.0 - dones[:, t]": "1.0"},
    "gae-end-keeps-value": {"gamma * next_value * not_done": "gamma * next_value"},
    "gae-end-keeps-advantage": {"gamma * lam * not_done": "gamma * lam"},
    "gae-gamma-missing": {"gamma * lam * not_done": "lam * not_done"},
    "gae-lambda-missing": {"gamma * lam * not_done": "gamma * not_done"},
    "gae-last-value-missing": {"last_value if X else Y": "0.0 if X else Y"},
    "the last value of the steps is repeated": {"last_value if X else Y":
                                                "values[:, -1] if X else Y"},
    "the values wrap around": {"last_value if X else Y": "values[:, 0] if X else Y"},
    "forwards": {"range(steps - 1, -1, -1)": "range(steps)"},
    "one step only": {"gamma * lam * not_done": "0.0"},
    "done is read one step later": {"1.0 - dones[:, t]":
                                    "1.0 - (dones[:, t + 1] if t + 1 < steps else 0.0)"},
    "done is read one step earlier": {"1.0 - dones[:, t]": "1.0 - (dones[:, t - 1] if t else 0.0)"},
    "done keeps": {"1.0 - dones[:, t]": "dones[:, t]"},
    "the returns are advantages plus rewards": {"advantages + values": "advantages + rewards"},
    "the returns are the advantages": {"advantages + values": "advantages"},
    "only the advantages": {"return advantages, X": "return advantages"},
    "the advantages are normalised": {
        "return A, X": "return (A - A.mean()) / (A.std() + 1e-8), X"
    },
    "the reward is masked at the end": {"rewards[:, t] + gamma * next_value * not_done":
                                        "(rewards[:, t] + gamma * next_value) * not_done"},
    "the value is added": {"X - values[:, t]": "X + values[:, t]"},
    "lambda on the next value": {"gamma * next_value * not_done":
                                 "gamma * lam * next_value * not_done"},
}  # fmt: skip


@right("by-hand-ppo-loss")
def ppo_as_a_larger_loss(new_log_probs, old_log_probs, advantages, clip):
    ratio = torch.exp(new_log_probs - old_log_probs.detach())
    first = -advantages * ratio
    second = -advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
    return torch.max(first, second).mean()


@right("by-hand-ppo-loss")
def ppo_by_a_bound(policy, old, advantages, epsilon):
    """Compare the ratio with the one bound that can act, as OpenAI's short form does."""
    bound = torch.where(advantages >= 0, 1 + epsilon, 1 - epsilon) * advantages
    return torch.min((policy - old).exp() * advantages, bound).neg().mean()


@right("by-hand-ppo-loss")
class PPOObjective:
    """Loop over sentences and average with einops."""

    def __new__(cls, policy, old, advantages, epsilon):
        gains = []
        for new, before, a in zip(policy, old, advantages, strict=True):
            r = torch.exp(new) / torch.exp(before)
            free, limited = r * a, r.clip(min=1 - epsilon, max=1 + epsilon) * a
            gains.append(torch.where(free < limited, free, limited))
        return -reduce(torch.stack(gains), "batch time ->", "mean")


WRONG["by-hand-ppo-loss"] = {
    "ppo-minimum-missing": {"torch.max(first, second)": "second"},
    "ppo-minimum-before-advantage": {
        "torch.max(X, Y)": "-advantages * torch.min(ratio, ratio.clamp(1 - clip, 1 + clip))"
    },
    "ppo-maximum": {"torch.max(X, Y)": "torch.min(X, Y)"},
    "ppo-ratio-upside-down": {"torch.exp(X - Y)": "torch.exp(Y - X)"},
    "ppo-ratio-of-logarithms": {"torch.exp(X - Y)": "X / Y"},
    "ppo-ratio-of-logarithms: the difference": {"torch.exp(X - Y)": "X - Y"},
    "the gain is minimised": {"return X": "return -X"},
    "no clip": {"torch.max(first, second)": "first"},
    "the sum": {"X.mean()": "X.sum()"},
    "no mean": {"X.mean()": "X"},
    "the sum of a sentence": {"X.mean()": "X.sum(1).mean()"},
    "the minimum of the means": {"torch.max(X, Y).mean()": "torch.max(X.mean(), Y.mean())"},
    "plain policy gradient": {"torch.max(X, Y)": "-advantages * new_log_probs"},
    "the policy is cut off": {"new_log_probs - X": "new_log_probs.detach() - X"},
    "one ratio for each sentence": {"torch.exp(D)": "torch.exp(D.sum(1, keepdim=True))"},
    "the clipped branch has a gradient": {
        "torch.exp(D)": "torch.exp(D) * torch.exp(new_log_probs - new_log_probs.detach())"
    },
    "only positive advantages": {"first = X": "advantages = advantages.relu()\nfirst = X"},
    "advantages of unit size": {
        "first = X": "advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)\n"
        "first = X"
    },
    "epsilon is a default": {"torch.clamp(ratio, X, Y)": "torch.clamp(ratio, 0.8, 1.2)"},
}  # fmt: skip


@right("by-hand-balance-loss")
def shares_times_means(scores, k):
    n_tokens, n = scores.shape
    ids = torch.topk(scores, k).indices
    f = torch.bincount(ids.reshape(-1), minlength=n) / n_tokens
    p = torch.softmax(scores, dim=1).sum(0) / n_tokens
    return n * torch.dot(f.to(p.dtype), p)


@right("by-hand-balance-loss")
def shares_by_rank(scores, k):
    """Sort the scores of each token twice: the second order is the rank of each expert."""
    rank = scores.argsort(-1, descending=True).argsort(-1)
    f = reduce((rank < k).double(), "token expert -> expert", "mean")
    p = reduce(scores.exp() / scores.exp().sum(-1, keepdim=True), "token expert -> expert", "mean")
    return einsum(f, p, "expert, expert ->") * len(p)


@right("by-hand-balance-loss")
def shares_in_a_loop(scores, k):
    best, total = scores.topk(k)[1], 0.0
    for e in range(scores.shape[1]):
        hits = sum(e in row for row in best.tolist())
        total = total + hits / len(best) * F.softmax(scores, 1)[:, e].mean()
    return total * scores.shape[1]


BY_SHARE = "return n * torch.dot(f.to(p.dtype), p)"
WRONG["by-hand-balance-loss"] = {
    "balance-share-soft": {BY_SHARE: "return n * torch.dot(p, p)"},
    "balance-count-missing": {"n * torch.dot(X, p)": "torch.dot(X, p)"},
    "balance-probability-of-chosen": {
        "p = X": "w = torch.topk(scores, k).values.softmax(-1)\n"
        "p = torch.zeros_like(scores).scatter(1, ids, w).mean(0)"
    },
    "divided by k": {"n * torch.dot(X, p)": "n / k * torch.dot(X, p)"},
    "the first choice only": {"torch.topk(scores, k)": "torch.topk(scores, 1)"},
    "the least likely experts": {"torch.topk(scores, k)": "torch.topk(scores, k, largest=False)"},
    "counts instead of shares": {"torch.bincount(X, minlength=n) / n_tokens":
                                 "torch.bincount(X, minlength=n)"},
    "sums of probabilities": {"torch.softmax(scores, dim=1).sum(0) / n_tokens":
                              "torch.softmax(scores, dim=1).sum(0)"},
    "softmax over the tokens": {"torch.softmax(scores, dim=1)": "torch.softmax(scores, dim=0)"},
    "the mean over the experts": {"n * torch.dot(X, p)": "torch.dot(X, p) / n"},
    "scores without softmax": {"torch.softmax(scores, dim=1)": "scores"},
    "shares times shares": {BY_SHARE: "f = f.to(p.dtype)\nreturn n * torch.dot(f, f)"},
    "a loss for each expert": {"n * torch.dot(f.to(p.dtype), p)": "n * f.to(p.dtype) * p"},
    "log-probabilities": {"torch.softmax(scores, dim=1)": "torch.log_softmax(scores, dim=1)"},
}  # fmt: skip


@right("by-hand-mixture-of-experts")
def token_by_token(x, router, up, down, k):
    rows = []
    for token in x.reshape(-1, x.shape[-1]):
        logits = router @ token
        values, ids = logits.topk(k)
        p = F.softmax(values, dim=0)
        y = 0
        for weight, i in zip(p, ids.tolist(), strict=True):
            y = y + weight * (down[i] @ F.relu(up[i] @ token))
        rows.append(y)
    return torch.stack(rows).view(x.shape)


@right("by-hand-mixture-of-experts")
def all_experts_by_einops(x, router, up, down, k):
    logits = einsum(x, router, "b s d, e d -> b s e")
    cut = logits.topk(k).values[..., -1:]
    gates = logits.masked_fill(logits < cut, -math.inf).softmax(-1)
    hidden = einsum(x, up, "b s d, e f d -> b s e f").relu()
    return einsum(gates, hidden, down, "b s e, b s e f, e d f -> b s d")


@right("by-hand-mixture-of-experts")
def normalised_after_the_choice(x, router, up, down, k):
    """As Mixtral's code: softmax over all experts, then division by the sum of the chosen."""
    p, ids = F.linear(x, router).softmax(-1).topk(k, -1)
    p = p / p.sum(-1, keepdim=True)
    up, down = up[ids], down[ids]
    hidden = torch.einsum("bskfd,bsd->bskf", up, x).clamp(min=0)
    return torch.einsum("bsk,bskdf,bskf->bsd", p, down, hidden)


WRONG["by-hand-mixture-of-experts"] = {
    "moe-softmax-first": {"logits.topk(k)": "F.softmax(logits, dim=0).topk(k)", "p = X":
                          "p = values"},
    "moe-gates-missing": {"weight * X": "X"},
    "moe-gates-equal": {"weight * X": "X / k"},
    "moe-overwritten: by the last choice": {"y + weight * X": "weight * X"},
    "moe-rank-as-expert": {"ids.tolist()": "range(k)"},
    "moe-all-experts": {"logits.topk(k)": "logits.topk(len(logits))"},
    "the worst experts": {"logits.topk(k)": "logits.topk(k, largest=False)"},
    "the best expert only": {"logits.topk(k)": "logits.topk(1)"},
    "one expert too many": {"logits.topk(k)": "logits.topk(min(k + 1, len(logits)))"},
    "sigmoid gates": {"p = X": "p = values.sigmoid()"},
    "sigmoid gates that sum to 1": {"p = X": "p = F.normalize(values.sigmoid(), p=1, dim=0)"},
    "softmax twice": {"p = X": "p = F.softmax(F.softmax(logits, dim=0)[ids], dim=0)"},
    "the gates are exchanged": {"p = X": "p = X.flip(0)"},
    "the scores are the gates": {"p = X": "p = values"},
    "no activation": {"F.relu(X)": "X"},
    "relu after the second matrix": {"down[i] @ F.relu(X)": "F.relu(down[i] @ X)"},
    "softmax over the tokens": {
        "p = X": "p = (x @ router.T).topk(k).values.softmax(1).flatten(0, 1)[len(rows)]"
    },
    "the best experts of the whole batch": {
        "logits.topk(k)": "(x @ router.T).flatten(0, 1).amax(0).topk(k)"
    },
    "the gate weighs the input": {"weight * (down[i] @ F.relu(up[i] @ token))":
                                  "down[i] @ F.relu(up[i] @ token + weight * token)"},
    "the input is added, as a residual": {"y = 0": "y = token"},
    "moe-gates-equal: the scores are lost": {"p = X": "p = F.softmax(values * 0, dim=0)"},
}  # fmt: skip


@right("by-hand-decoupled-scores")
def scores_of_concatenated_heads(query, key, query_part, key_part, turn):
    n_heads, n_new = query.shape[1:3]
    n_old = key.shape[2] - n_new
    q = torch.cat((query, turn(query_part, n_old)), -1)
    shared = turn(key_part[:, None], 0)
    k = torch.cat((key, shared.repeat(1, n_heads, 1, 1)), -1)
    return q @ k.transpose(2, 3) * q.shape[-1] ** -0.5


@right("by-hand-decoupled-scores")
def scores_by_einops(query, key, query_part, key_part, turn):
    root = (query.size(-1) + query_part.size(-1)) ** 0.5
    r = turn(key_part.unsqueeze(1), 0).squeeze(1)
    q = turn(query_part, key_part.size(1) - query.size(2))
    content = einsum(query, key, "b h q d, b h k d -> b h q k")
    return content / root + einsum(q, r, "b h q d, b k d -> b h q k") / root


@right("by-hand-decoupled-scores")
def scores_head_by_head(query, key, query_part, key_part, turn):
    rows = []
    k_rot = turn(key_part.unsqueeze(1), 0)[:, 0]
    q_rot = turn(query_part, key.size(2) - query.size(2))
    for h in range(query.size(1)):
        s = torch.bmm(query[:, h], key[:, h].mT) + torch.bmm(q_rot[:, h], k_rot.mT)
        rows.append(s)
    return torch.stack(rows, 1) / math.sqrt(query.size(3) + q_rot.size(3))


WRONG["by-hand-decoupled-scores"] = {
    "latent-scale-without-rotary": {"q.shape[-1] ** -0.5": "query.shape[-1] ** -0.5"},
    "latent-two-scales": lambda q, k, q_part, k_part, turn: (
        q @ k.mT / q.size(-1) ** 0.5
        + turn(q_part, k.size(2) - q.size(2)) @ turn(k_part[:, None], 0).mT / q_part.size(-1) ** 0.5
    ),
    "latent-not-rotated": {"turn(query_part, n_old)": "query_part", "turn(key_part[:, None], 0)":
                           "key_part[:, None]"},
    "latent-start-zero": {"turn(query_part, n_old)": "turn(query_part, 0)"},
    "the queries are not rotated": {"turn(query_part, n_old)": "query_part"},
    "the keys are not rotated": {"turn(key_part[:, None], 0)": "key_part[:, None]"},
    "latent-start-zero: so do the keys": {"turn(key_part[:, None], 0)":
                                            "turn(key_part[:, None], n_old)"},
    "the queries start one position late": {"turn(query_part, n_old)":
                                            "turn(query_part, n_old + 1)"},
    "no scale": {"A @ B * q.shape[-1] ** -0.5": "A @ B"},
    "multiplied by the root": {"q.shape[-1] ** -0.5": "q.shape[-1] ** 0.5"},
    "divided by the features": {"q.shape[-1] ** -0.5": "q.shape[-1] ** -1"},
    "the scale of the rotary part": {"q.shape[-1] ** -0.5": "query_part.shape[-1] ** -0.5"},
    "content alone": {"q @ k.transpose(2, 3)": "query @ key.mT"},
    "position alone": {"q @ k.transpose(2, 3)": "turn(query_part, n_old) @ shared.mT"},
    "softmax too": {"return X": "return (X).softmax(-1)"},
    "content and position are exchanged": {"(query, turn(query_part, n_old))":
                                           "(turn(query_part, n_old), query)"},
}  # fmt: skip


@right("by-hand-latent-attention")
def absorbed(x, kept, w_q, w_down, w_k, w_v):
    """Move the matrix of the keys to the queries; apply that of the values after the average."""
    cache = torch.cat((kept, F.linear(x, w_down)), 1)
    q = einsum(x, w_q, w_k, "b n m, h d m, h d c -> b h n c")
    s = torch.matmul(q, cache.unsqueeze(1).transpose(2, 3)) / math.sqrt(w_q.shape[1])
    n, t = s.shape[-2:]
    hidden = torch.ones(n, t).triu(t - n + 1) == 1
    p = torch.softmax(s.masked_fill(hidden, -math.inf), dim=-1)
    o = einsum(p, cache, w_v, "b h n t, b t c, h v c -> b n h v")
    return o.flatten(2), cache


@right("by-hand-latent-attention")
def one_head_after_the_other(x, kept, w_q, w_down, w_k, w_v):
    c = torch.cat([kept, x @ w_down.t()], dim=1)
    old, heads = kept.shape[1], []
    for wq, wk, wv in zip(w_q, w_k, w_v, strict=True):
        q, k, v = x @ wq.t(), c @ wk.t(), c @ wv.t()
        rows = []
        for i in range(x.shape[1]):
            seen = old + i + 1
            w = F.softmax(q[:, i : i + 1] @ k[:, :seen].mT / len(wq) ** 0.5, -1)
            rows.append(w @ v[:, :seen])
        heads.append(torch.cat(rows, 1))
    return torch.cat(heads, -1), c


@right("by-hand-latent-attention")
def flat_projections(x, kept, w_q, w_down, w_k, w_v):
    """Use one matrix for all heads, as a module does, and the fused kernel."""
    h, (b, n) = len(w_q), x.shape[:2]

    def heads(vectors, matrix):
        return (
            F.linear(vectors, matrix.flatten(0, 1)).view(b, -1, h, matrix.size(1)).transpose(1, 2)
        )

    c = torch.cat([kept, F.linear(x, w_down)], dim=1)
    places = torch.arange(c.size(1))
    shown = places <= places[-n:, None]
    o = F.scaled_dot_product_attention(heads(x, w_q), heads(c, w_k), heads(c, w_v), attn_mask=shown)
    return o.transpose(1, 2).reshape(b, n, -1), c


ROOT_OF_D_K = "math.sqrt(w_q.shape[1])"
WRONG["by-hand-latent-attention"] = {
    "latent-keys-cached": {"o.flatten(2), cache": "o.flatten(2), torch.einsum('btc,hkc->bthk', "
                           "cache, w_k).flatten(2)"},
    "latent-new-only": {"hidden = X": "hidden = X\nhidden[:, : t - n] = True"},
    "latent-new-first": {"(kept, F.linear(x, w_down))": "(F.linear(x, w_down), kept)"},
    "latent-one-head": {"einsum(x, w_q, w_k, X)": "einsum(x, w_q, w_k[:1].expand_as(w_k), X)"},
    "latent-scale": {ROOT_OF_D_K: "math.sqrt(w_k.shape[2])"},
    "the scale of the values": {ROOT_OF_D_K: "math.sqrt(w_v.shape[1])"},
    "scale-missing": {ROOT_OF_D_K: "1"},
    "no mask": {"s.masked_fill(hidden, -math.inf)": "s"},
    "causal-corner: the mask of a square table": {"X.triu(t - n + 1)": "X.triu(1)"},
    "a token does not see itself": {"X.triu(t - n + 1)": "X.triu(t - n)"},
    "one token of the future is seen": {"X.triu(t - n + 1)": "X.triu(t - n + 2)"},
    "the new latents are returned alone": {
        "o.flatten(2), cache": "o.flatten(2), cache[:, t - n :]"
    },
    "the cache is not extended": {"o.flatten(2), cache": "o.flatten(2), kept"},
    "the heads share the values": {
        "einsum(p, cache, w_v, X)": "einsum(p, cache, w_v[:1].expand_as(w_v), X)"
    },
    "the heads are not merged": {"o.flatten(2)": "o"},
    "the heads are merged by features first": {"o.flatten(2)": "o.mT.flatten(2)"},
    "softmax over the queries": {"torch.softmax(X, dim=-1)": "torch.softmax(s, dim=-2)"},
    "mask-multiplied: zeros instead of minus infinity": {"s.masked_fill(hidden, -math.inf)":
                                        "s.masked_fill(hidden, 0)"},
    "the latent is normalised": {"F.linear(x, w_down)":
                                 "F.rms_norm(F.linear(x, w_down), (len(w_down),))"},
    "the cache is detached": {"(kept, F.linear(x, w_down))":
                              "(kept, F.linear(x, w_down).detach())"},
}  # fmt: skip


@right("by-hand-output-backward")
def output_layer_with_indices(x, w, b, y):
    batch, seq, d = x.shape
    flat, target = x.reshape(-1, d), y.reshape(-1)
    logits = flat @ w.t() + b
    p = torch.exp(logits - logits.max(-1, keepdim=True).values)
    p = p / p.sum(-1, keepdim=True)
    n = batch * seq
    g = p.clone()
    g[torch.arange(n), target] -= 1
    g = g / n
    dx = g @ w
    dw = g.t() @ flat
    db = g.sum(0)
    return dx.view(batch, seq, d), dw, db


@right("by-hand-output-backward")
def output_layer_by_einops(x, w, b, y):
    logits = einsum(x, w, "b s d, v d -> b s v") + b
    target = (y[..., None] == torch.arange(len(b))).to(x.dtype)
    g = (logits.log_softmax(-1).exp() - target) / (y.size(0) * y.size(1))
    return (
        einsum(g, w, "b s v, v d -> b s d"),
        einsum(g, x, "b s v, b s d -> v d"),
        reduce(g, "b s v -> v", "sum"),
    )


@right("by-hand-output-backward")
def output_layer_token_by_token(x, w, b, y):
    dx, dw, db = torch.zeros_like(x), torch.zeros_like(w), torch.zeros_like(b)
    for i in range(x.size(0)):
        for j in range(x.size(1)):
            g = torch.softmax(w @ x[i, j] + b, 0)
            g[y[i, j]] = g[y[i, j]] - 1
            dx[i, j] = w.T @ g
            dw += torch.outer(g, x[i, j])
            db += g
    return dx / y.numel(), dw / y.numel(), db / y.numel()


WRONG["by-hand-output-backward"] = {
    "output-backward-label": {"g[torch.arange(n), target] -= 1": "pass"},
    "output-backward-mean": {"g / n": "g"},
    "output-backward-sign": {"g / n": "-g / n"},
    "divided by the batch": {"g / n": "g / batch"},
    "divided by the length": {"g / n": "g / seq"},
    "divided twice": {"g / n": "g / n / n"},
    "divided by the vocabulary": {"g / n": "g / len(b)"},
    "the bias is forgotten": {"X + b": "X"},
    "the mean of the bias": {"g.sum(0)": "g.mean(0)"},
    "no softmax": {"g = p.clone()": "g = logits.clone()"},
    "softmax over the tokens": {
        "logits.max(-1, keepdim=True)": "logits.max(0, keepdim=True)",
        "p.sum(-1, keepdim=True)": "p.sum(0, keepdim=True)",
    },
    "the derivative of the probability": {"g = p.clone()": "g = p * (1 - p)"},
    "the label is added": {"g[torch.arange(n), target] -= 1": "g[torch.arange(n), target] += 1"},
    "only the logit of the label has a gradient": {
        "g = p.clone()": "g = torch.zeros_like(p)",
        "g[torch.arange(n), target] -= 1":
        "g[torch.arange(n), target] = p[torch.arange(n), target] - 1",
    },
    "minus one over the probability": {
        "g = p.clone()": "g = torch.zeros_like(p)",
        "g[torch.arange(n), target] -= 1":
        "g[torch.arange(n), target] = -1 / p[torch.arange(n), target]",
    },
    "the columns of all labels": {"g[torch.arange(n), target] -= 1": "g[:, target] -= 1"},
    "the weight is transposed": {"return X, dw, db": "return X, dw.t(), db"},
    "weight before x": {"return X, dw, db": "return dw, X, db"},
    "the bias for every token": {"g.sum(0)": "g.view(batch, seq, -1)"},
    "the labels of another order": {"y.reshape(-1)": "y.t().reshape(-1)"},
}  # fmt: skip


@right("by-hand-layer-norm-backward")
def layer_norm_with_sums(dy, x, gamma):
    n = x.shape[-1]
    mu = x.mean(-1, keepdim=True)
    rstd = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    xhat = (x - mu) * rstd
    dbeta = dy.sum(dim=0).sum(dim=0)
    dgamma = (dy * xhat).sum(dim=0).sum(dim=0)
    dxhat = dy * gamma
    s1 = dxhat.sum(-1, keepdim=True)
    s2 = (dxhat * xhat).sum(-1, keepdim=True)
    dx = rstd / n * (n * dxhat - s1 - xhat * s2)
    return dx, dgamma, dbeta


@right("by-hand-layer-norm-backward")
def layer_norm_step_by_step(dy, x, gamma):
    """Apply the chain rule to each line of the forward pass, as a graph of operations does."""
    d = x.size(-1)
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True) + 1e-5
    root = variance**0.5
    d_normed = dy * gamma
    d_root = -(d_normed * centred).sum(-1, keepdim=True) / root**2
    d_variance = d_root / (2 * root)
    d_centred = d_normed / root + d_variance * 2 * centred / d
    d_x = d_centred - d_centred.mean(-1, keepdim=True)
    return d_x, einsum(dy, centred / root, "b s d, b s d -> d"), reduce(dy, "b s d -> d", "sum")


@right("by-hand-layer-norm-backward")
def layer_norm_by_jacobians(dy, x, gamma):
    """Write the Jacobian of each token as a matrix."""
    d, rows = x.size(-1), []
    xhat = torch.empty_like(x)
    for b in range(x.size(0)):
        for s in range(x.size(1)):
            row = x[b, s]
            root = torch.sqrt(((row - row.mean()) ** 2).mean() + 1e-5)
            z = (row - row.mean()) / root
            xhat[b, s] = z
            jacobian = (torch.eye(d) - 1 / d - torch.outer(z, z) / d) / root
            rows.append(jacobian @ (dy[b, s] * gamma))
    return torch.stack(rows).view_as(x), (dy * xhat).sum((0, 1)), dy.sum((0, 1))


WRONG["by-hand-layer-norm-backward"] = {
    "layer-norm-backward-mean": {"n * dxhat - s1 - xhat * s2": "n * dxhat - xhat * s2"},
    "layer-norm-backward-variance": {"n * dxhat - s1 - xhat * s2": "n * dxhat - s1"},
    "layer-norm-backward-constant": {"dx = X": "dx = rstd * dxhat"},
    "layer-norm-backward-weight": {"dxhat = dy * gamma": "dxhat = dy"},
    "layer-norm-backward-deviation": {"rstd / n": "1 / n"},
    "layer-norm-backward-averaged": {
        "return dx, X, Y": "return dx, X / dy[..., 0].numel(), Y / dy[..., 0].numel()"
    },
    "parameters averaged over the batch only": {
        "dy.sum(dim=0)": "dy.mean(dim=0)",
        "(dy * xhat).sum(dim=0)": "(dy * xhat).mean(dim=0)",
    },
    "gradients of the parameters for every token": {"return dx, X, Y": "return dx, dy * xhat, dy"},
    "gamma and beta are exchanged": {"return dx, dgamma, dbeta": "return dx, dbeta, dgamma"},
    "the means are sums": {"rstd / n * (n * dxhat - s1 - xhat * s2)":
                           "rstd * (dxhat - s1 - xhat * s2)"},
    "divided by n once too often": {"rstd / n * (n * X - s1 - xhat * s2)":
                                    "rstd / n * (X - s1 - xhat * s2)"},
    "the gradient of gamma takes x": {"(dy * xhat).sum(dim=0).sum(dim=0)": "(dy * x).sum((0, 1))"},
    "the second term takes dy": {"(dxhat * xhat).sum(-1, keepdim=True)":
                                 "(dy * xhat).sum(-1, keepdim=True)"},
    "the second term takes x": {"(dxhat * xhat).sum(-1, keepdim=True)":
                                "(dxhat * x).sum(-1, keepdim=True)"},
    "the unbiased variance": {"x.var(-1, unbiased=False, keepdim=True)": "x.var(-1, keepdim=True)"},
    "no eps": {"(X + 1e-5).rsqrt()": "X.rsqrt()"},
    "the mean over tokens": {"dxhat.sum(-1, keepdim=True)": "dxhat.sum(1, keepdim=True)"},
    "gamma multiplies at the end": {
        "dxhat = dy * gamma": "dxhat = dy", "rstd / n * X": "gamma * rstd / n * X",
    },
    "the backward pass of RMSNorm": {
        "x - mu": "x", "x.var(-1, unbiased=False, keepdim=True)":
        "x.pow(2).mean(-1, keepdim=True)", "n * dxhat - s1": "n * dxhat",
    },
    "the sign of dx": {"return dx, dgamma, dbeta": "return -dx, dgamma, dbeta"},
}  # fmt: skip


@right("by-hand-attention-backward")
def attention_backward_by_einsum(do, q, k, v):
    scale = 1 / math.sqrt(q.shape[-1])
    s = torch.einsum("bqd,bkd->bqk", q, k) * scale
    p = torch.softmax(s, dim=-1)
    o = torch.einsum("bqk,bkd->bqd", p, v)
    dv = torch.einsum("bqk,bqd->bkd", p, do)
    dp = torch.einsum("bqd,bkd->bqk", do, v)
    delta = (do * o).sum(dim=-1, keepdim=True)
    ds = p * (dp - delta)
    dq = torch.einsum("bqk,bkd->bqd", ds, k) * scale
    dk = torch.einsum("bqk,bqd->bkd", ds, q) * scale
    return dq, dk, dv


@right("by-hand-attention-backward")
def attention_backward_by_einops(do, q, k, v):
    p = (einsum(q, k, "b i d, b j d -> b i j") / q.size(-1) ** 0.5).softmax(-1)
    dp = einsum(do, v, "b i e, b j e -> b i j")
    jacobian = torch.diag_embed(p) - einsum(p, p, "b i j, b i l -> b i j l")
    ds = einsum(jacobian, dp, "b i j l, b i l -> b i j") / q.size(-1) ** 0.5
    return (
        einsum(ds, k, "b i j, b j d -> b i d"),
        einsum(ds, q, "b i j, b i d -> b j d"),
        einsum(p, do, "b i j, b i e -> b j e"),
    )


@right("by-hand-attention-backward")
def attention_backward_by_loops(do, q, k, v):
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    root = math.sqrt(q.size(-1))
    for b in range(q.size(0)):
        for i in range(q.size(1)):
            scores = torch.exp(k[b] @ q[b, i] / root)
            p = scores / scores.sum()
            dp = v[b] @ do[b, i]
            ds = p * dp - p * (p @ dp)
            dq[b, i] = ds @ k[b] / root
            dk[b] += torch.outer(ds, q[b, i]) / root
            dv[b] += torch.outer(p, do[b, i])
    return dq, dk, dv


SCALED_DQ, SCALED_DK = (
    'dq = torch.einsum("bqk,bkd->bqd", ds, k) * scale',
    'dk = torch.einsum("bqk,bqd->bkd", ds, q) * scale',
)
WRONG["by-hand-attention-backward"] = {
    "attention-backward-softmax-skipped": {"p * (dp - delta)": "dp"},
    "attention-backward-average": {"p * (dp - delta)": "p * dp"},
    "attention-backward-diagonal": {"p * (dp - delta)": "p * dp * (1 - p)"},
    "attention-backward-scale": {
        SCALED_DQ: SCALED_DQ.removesuffix(" * scale"),
        SCALED_DK: SCALED_DK.removesuffix(" * scale"),
    },
    "attention-backward-plain-mean": {"(do * o).sum(dim=-1, keepdim=True)":
                                      "dp.mean(dim=-1, keepdim=True)"},
    "the mean instead of the sum": {"(do * o).sum(dim=-1, keepdim=True)":
                                "(p * dp).mean(dim=-1, keepdim=True)"},
    "delta from the values": {"delta = X": "delta = dp.sum(dim=-1, keepdim=True)"},
    "delta is not weighted by p": {"p * (dp - delta)": "p * dp - delta"},
    "the scale is missing in the forward pass": {"s = X * scale": "s = X"},
    "the scale is missing everywhere": {"1 / math.sqrt(q.shape[-1])": "1.0"},
    "only dq is scaled": {SCALED_DK: SCALED_DK.removesuffix(" * scale")},
    "only dk is scaled": {SCALED_DQ: SCALED_DQ.removesuffix(" * scale")},
    "dv is scaled too": {"return dq, dk, dv": "return dq, dk, dv * scale"},
    "the root of d_v": {"math.sqrt(q.shape[-1])": "math.sqrt(v.shape[-1])"},
    "dv takes the gradient of the weights": {
        "return dq, dk, dv": 'return dq, dk, torch.einsum("bqk,bqd->bkd", dp, do)'
    },
    "dq and dk are exchanged": {"return dq, dk, dv": "return dk, dq, dv"},
    "softmax over the queries": {"torch.softmax(s, dim=-1)": "torch.softmax(s, dim=1)"},
    "dv is the weight times the upstream of all queries": {
        "return dq, dk, dv": "return dq, dk, p.sum(1)[..., None] * do.sum(1)[:, None]"
    },
    "the sign of ds": {"p * (dp - delta)": "p * (delta - dp)"},
    "keys from another sentence": {SCALED_DQ: SCALED_DQ.replace("k)", "k.flip(0))")},
}  # fmt: skip


@right("by-hand-distillation")
def distil_by_library_softmax(s, t, T):
    s, t = s.reshape(-1, s.size(-1)), t.reshape(-1, t.size(-1))
    log_s = F.log_softmax(s / T, dim=-1)
    log_t = F.log_softmax(t / T, dim=-1)
    ps, pt = torch.exp(log_s), torch.exp(log_t)
    n = s.size(0)
    fwd = torch.sum(pt * (log_t - log_s)) / n
    rev = torch.sum(ps * (log_s - log_t)) / n
    return T * T * fwd, T * T * rev


@right("by-hand-distillation")
def distil_by_entropies(student, teacher, temperature):
    """KL is a cross entropy minus an entropy."""
    logs = [x / temperature - (x / temperature).logsumexp(-1, keepdim=True)
            for x in (teacher.detach(), student)]  # fmt: skip

    def cross_entropy(p, q):
        return -einsum(p.exp(), q, "b s v, b s v -> b s")

    losses = [
        reduce(cross_entropy(p, q) - cross_entropy(p, p), "b s -> ", "mean")
        for p, q in (logs, logs[::-1])
    ]
    return losses[0] * temperature**2, losses[1] * temperature**2


@right("by-hand-distillation")
def distil_token_by_token(student, teacher, t):
    forward = reverse = 0.0
    batch, seq, _ = student.shape
    for i in range(batch):
        for j in range(seq):
            a = torch.log_softmax(student[i, j] / t, 0)
            b = torch.log_softmax(teacher[i, j] / t, 0)
            forward = forward + t**2 * (b.exp() @ (b - a)) / (batch * seq)
            reverse = reverse + t**2 * (a.exp() @ (a - b)) / (batch * seq)
    return forward, reverse


WRONG["by-hand-distillation"] = {
    "distillation-directions": {"return X, Y": "return Y, X"},
    "distillation-square-missing": {"return X, Y": "return fwd, rev"},
    "distillation-one-temperature": {"F.log_softmax(t / T, dim=-1)": "F.log_softmax(t, dim=-1)"},
    "distillation-mean-over-vocab": {
        "torch.sum(pt * X) / n": "torch.mean(pt * X)", "torch.sum(ps * X) / n":
        "torch.mean(ps * X)",
    },
    "distillation-mean-over-batch": {"s, t = X": "batch = len(s)\ns, t = X", "n = X": "n = batch"},
    "distillation-overflow": {
        "F.log_softmax(s / T, dim=-1)": "F.softmax(s / T, dim=-1).log()",
        "F.log_softmax(t / T, dim=-1)": "F.softmax(t / T, dim=-1).log()",
    },
    "no temperature in the logits": {"s / T": "s", "t / T": "t"},
    "T instead of its square": {"return X, Y": "return T * fwd, T * rev"},
    "divided by the square": {"return X, Y": "return fwd / T**2, rev / T**2"},
    "multiplied by T inside": {"s / T": "s * T", "t / T": "t * T"},
    "the sum of all tokens": {"n = s.size(0)": "n = 1"},
    "kl_div gets logarithms without log_target": lambda s, t, T: tuple(
        T * T * F.kl_div(q, p, reduction="sum") / p[..., 0].numel()
        for p, q in [[(x / T).log_softmax(-1) for x in pair] for pair in ((t, s), (s, t))]
    ),
    "kl_div gets probabilities for logarithms": {"log_t - log_s": "log_t - ps",
                                                 "log_s - log_t": "log_s - pt"},
    "kl_div takes the logits of the student": {"log_t - log_s": "log_t - s / T",
                                               "log_s - log_t": "log_s - t / T"},
    "the cross entropy": {"log_t - log_s": "-log_s", "log_s - log_t": "-log_t"},
    "the forward direction twice": {"return X, Y": "return X, X"},
    "the reverse direction weighs by the teacher": {"ps * (log_s - log_t)": "pt * (log_s - log_t)"},
    "the softmax of all tokens": {
        "F.log_softmax(s / T, dim=-1)": "F.log_softmax(s / T, dim=0)",
        "F.log_softmax(t / T, dim=-1)": "F.log_softmax(t / T, dim=0)",
    },
    "the mean of both": {"return X, Y": "return (X + Y) / 2, (X + Y) / 2"},
    "the loss for each token": {"torch.sum(pt * X) / n": "(pt * X).sum(-1)",
                                "torch.sum(ps * X) / n": "(ps * X).sum(-1)"},
    "the squared difference of the probabilities": {"pt * (log_t - log_s)": "(pt - ps) ** 2",
                                                    "ps * (log_s - log_t)": "(pt - ps) ** 2"},
    "the student is detached": {"F.log_softmax(s / T, dim=-1)":
                                "F.log_softmax(s.detach() / T, dim=-1)"},
    "the student is detached as a weight": {"ps, pt = X, Y": "ps, pt = X.detach(), Y"},
    "T squared in the logits": {"s / T": "s / T**2", "t / T": "t / T**2"},
}  # fmt: skip


@right("by-hand-cosine-schedule")
def schedule_in_a_loop(steps, warmup, total, peak):
    rates = []
    for step in steps.tolist():
        if step < warmup:
            rate = peak * step / warmup
        else:
            done = (step - warmup) / (total - warmup)
            rate = 0.5 * peak * (1 + math.cos(math.pi * done))
        rates.append(rate)
    return torch.tensor(rates)


@right("by-hand-cosine-schedule")
def schedule_by_squares(steps, warmup, total, peak):
    """Half of 1 + cos(x) is the square of the cosine of x / 2."""
    done = ((steps - warmup) / (total - warmup)).clamp(min=0)
    warm = (steps / warmup).clamp(max=1) if warmup else torch.ones(len(steps))
    return peak * warm * torch.cos(done * torch.pi / 2) ** 2


@right("by-hand-cosine-schedule")
def schedule_in_pieces(steps, warmup, total, peak):
    rate = torch.empty(len(steps))
    warm = steps < warmup
    rate[warm] = steps[warm].double() / max(1, warmup)
    rest = steps[~warm].double() - warmup
    rate[~warm] = torch.cos(rest.div(total - warmup).mul(math.pi)).add(1).div(2)
    return rate * peak


WRONG["by-hand-cosine-schedule"] = {
    "cosine-counts-warmup": {"(step - warmup) / (total - warmup)": "step / total"},
    "cosine-ends-late": {"(step - warmup) / (total - warmup)": "(step - warmup) / total"},
    "cosine-not-shifted": {"0.5 * peak * (1 + X)": "peak * X"},
    "step over the steps after the warm-up": {"(step - warmup) / (total - warmup)":
                                              "step / (total - warmup)"},
    "not halved": {"0.5 * peak * X": "peak * X"},
    "cosine-quarter": {"0.5 * peak * (1 + math.cos(math.pi * done))":
                              "peak * math.cos(math.pi / 2 * done)"},
    "a whole period": {"math.pi * done": "2 * math.pi * done"},
    "without pi": {"math.pi * done": "done"},
    "degrees": {"math.pi * done": "180 * done"},
    "a sine": {"math.cos(X)": "math.sin(X)"},
    "a line instead of a cosine": {"0.5 * peak * (1 + X)": "peak * (1 - done)"},
    "no warm-up": {"step < warmup": "False"},
    "cosine-warmup-above-zero": {"peak * step / warmup": "peak * (step + 1) / warmup"},
    "the warm-up is too long": {"peak * step / warmup": "peak * step / (warmup + 1)"},
    "the warm-up is constant": {"peak * step / warmup": "peak"},
    "the warm-up is zero": {"peak * step / warmup": "0.0"},
    "no peak": {"return torch.tensor(rates)": "return torch.tensor(rates) / peak"},
    "only the cosine has a peak": {"peak * step / warmup": "step / warmup"},
    "both at the same time": lambda steps, warmup, total, peak: (
        peak * (steps / max(1, warmup)).clamp(max=1) * (1 + torch.cos(torch.pi * steps / total)) / 2
    ),
    "the last step is the one before total": {"(total - warmup)": "(total - 1 - warmup)"},
    "the sign of the cosine": {"1 + math.cos(X)": "1 - math.cos(X)"},
}  # fmt: skip


@right("by-hand-adamw-step")
def adamw_as_the_library(p, g, m, v, t, lr, wd):
    b1, b2, eps = 0.9, 0.999, 1e-8
    p = p * (1 - lr * wd)
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    m_hat = m / (1 - b1**t)
    v_hat = v / (1 - b2**t)
    p = p - lr * m_hat / (torch.sqrt(v_hat) + eps)
    return p, m, v


@right("by-hand-adamw-step")
def adamw_with_lerp(weight, gradient, mean, square, step, lr, decay):
    new_mean = torch.lerp(mean, gradient, 0.1)
    new_square = square.mul(0.999).addcmul(gradient, gradient, value=0.001)
    root = new_square.sqrt() / math.sqrt(1 - 0.999**step) + 1e-8
    rate = lr / (1 - 0.9**step)
    return weight.mul(1 - lr * decay).addcdiv(new_mean, root, value=-rate), new_mean, new_square


@right("by-hand-adamw-step")
def adamw_in_place_on_copies(weight, gradient, mean, square, step, lr, decay):
    weight, mean, square = weight.clone(), mean.clone(), square.clone()
    mean *= 0.9
    mean += 0.1 * gradient
    square *= 0.999
    square += 0.001 * gradient.pow(2)
    corrected = square / (1 - 0.999**step)
    update = (mean / (1 - 0.9**step)) / (corrected.sqrt() + 1e-8) + decay * weight
    weight -= lr * update
    return weight, mean, square


P = "p * (1 - lr * wd)"
WRONG["by-hand-adamw-step"] = {
    "adamw-bias-uncorrected": {"m / (1 - b1**t)": "m", "v / (1 - b2**t)": "v"},
    "adamw-decay-in-gradient": {P: "p", "(1 - b1) * g": "(1 - b1) * (g + wd * p)",
                                "(1 - b2) * g * g": "(1 - b2) * (g + wd * p) ** 2"},
    "adamw-decay-without-rate": {P: "p * (1 - wd)"},
    "adamw-eps-inside": {"torch.sqrt(v_hat) + eps": "torch.sqrt(v_hat + eps)"},
    "adamw-corrected-kept": {"return p, m, v": "return p, m_hat, v_hat"},
    "adamw-root-missing": {"torch.sqrt(v_hat)": "v_hat"},
    "only the second moment is corrected": {"m / (1 - b1**t)": "m"},
    "only the first moment is corrected": {"v / (1 - b2**t)": "v"},
    "no decay": {P: "p"},
    "the decay of the new weight": {P: "p", "return p, m, v": "return p * (1 - lr * wd), m, v"},
    "the decay joins the direction": {P: "p", "lr * m_hat": "lr * (m_hat + wd * p)"},
    "the weight grows": {P: "p * (1 + lr * wd)"},
    "up the slope": {"p - X": "p + X"},
    "steps from zero": {"b1**t": "b1 ** (t + 1)", "b2**t": "b2 ** (t + 1)"},
    "no power": {"b1**t": "b1", "b2**t": "b2"},
    "the product instead of the power": {"b1**t": "(b1 * t)", "b2**t": "(b2 * t)"},
    "the constants are exchanged": {"b1, b2, eps = 0.9, 0.999, 1e-8":
                                    "b1, b2, eps = 0.999, 0.9, 1e-8"},
    "beta 2 of 0.99": {"b1, b2, eps = 0.9, 0.999, 1e-8": "b1, b2, eps = 0.9, 0.99, 1e-8"},
    "eps of 1e-6": {"b1, b2, eps = 0.9, 0.999, 1e-8": "b1, b2, eps = 0.9, 0.999, 1e-6"},
    "no eps": {"torch.sqrt(v_hat) + eps": "torch.sqrt(v_hat)"},
    "eps before the correction": {"torch.sqrt(v_hat) + eps":
                                  "(torch.sqrt(v) + eps) / (1 - b2**t) ** 0.5"},
    "the gradient is not weighted": {"(1 - b1) * g": "g"},
    "the second moment is not squared": {"(1 - b2) * g * g": "(1 - b2) * g.abs()"},
    "the second moment squares the mean": {"(1 - b2) * g * g": "(1 - b2) * m * m"},
    "the variance of the gradient": {"(1 - b2) * g * g": "(1 - b2) * (g - m) ** 2"},
    "the gradient as direction": {"m / (1 - b1**t)": "g"},
    "no learning rate": {"lr * m_hat": "m_hat"},
    "the mean over the matrix": {"v / (1 - b2**t)": "(v / (1 - b2**t)).mean()"},
    "only the weight": {"return p, m, v": "return p"},
    "mean and square are exchanged": {"return p, m, v": "return p, v, m"},
}  # fmt: skip


@right("by-hand-beam-search")
def beams_in_lists(next_log_probs, prompt, end, width, max_new, alpha):
    """Keep each beam as a list of new tokens and a sum."""
    beams = [([], 0.0)]
    for _ in range(max_new):
        grown = []
        for new, total in beams:
            if end in new:
                grown.append((new, total))
                continue
            prefix = torch.cat([prompt, torch.tensor(new, dtype=torch.long)])
            for token, log_prob in enumerate(next_log_probs(prefix[None])[0].tolist()):
                grown.append(([*new, token], total + log_prob))
        beams = sorted(grown, key=lambda beam: beam[1], reverse=True)[:width]
    scored = sorted(((total / len(new) ** alpha, new) for new, total in beams), reverse=True)
    ids = [prompt.tolist() + new + [end] * (max_new - len(new)) for _, new in scored]
    return torch.tensor(ids), torch.tensor([score for score, _ in scored])


@right("by-hand-beam-search")
def beams_by_masks(next_log_probs, prompt, end, width, max_new, alpha):
    """Start with the best first tokens, and read the length from the ids."""
    totals, first = next_log_probs(prompt[None]).squeeze(0).topk(width)
    ids = torch.cat([prompt.expand(width, -1), first[:, None]], -1)
    for _ in range(max_new - 1):
        logp = next_log_probs(ids)
        only_end = torch.full_like(logp, -torch.inf).index_fill(1, torch.tensor(end), 0)
        logp = torch.where((ids[:, -1:] == end), only_end, logp)
        totals, flat = (totals.unsqueeze(1) + logp).view(-1).topk(width)
        beam = torch.div(flat, logp.shape[1], rounding_mode="floor")
        ids = torch.hstack([ids.index_select(0, beam), (flat % logp.shape[1]).unsqueeze(1)])
    new = ids[:, prompt.numel() :]
    lengths = (new != end).sum(1) + (new == end).any(1)
    scores = totals / lengths.double().pow(alpha)
    order = scores.argsort(descending=True)
    return ids[order], scores[order]


@right("by-hand-beam-search")
def beams_as_objects(next_log_probs, prompt, end, width, max_new, alpha):
    """Stop early, then pad; with a class for a beam."""

    class Beam:
        def __init__(self, ids, steps):
            self.ids, self.steps = ids, steps
            self.finished = len(steps) > 0 and ids[-1] == end
            self.total = sum(steps)

        def children(self):
            if self.finished:
                return [self]
            log_probs = next_log_probs(torch.tensor([self.ids]))[0]
            return [Beam([*self.ids, t], [*self.steps, x]) for t, x in enumerate(log_probs)]

        def score(self):
            return self.total / len(self.steps) ** alpha

    beams = [Beam(prompt.tolist(), [])]
    for _ in range(max_new):
        every = [child for beam in beams for child in beam.children()]
        every.sort(key=lambda beam: -beam.total)
        beams = every[:width]
        if all(beam.finished for beam in beams):
            break
    beams.sort(key=Beam.score, reverse=True)
    size = len(prompt) + max_new
    ids = torch.tensor([beam.ids + [end] * (size - len(beam.ids)) for beam in beams])
    return ids, torch.stack([beam.score() for beam in beams])


def history_kept(next_log_probs, prompt, end, width, max_new, alpha):
    totals, first = next_log_probs(prompt[None])[0].topk(width)
    ids = torch.cat([prompt.expand(width, -1), first[:, None]], 1)
    done, lengths = first == end, torch.ones(width)
    for _ in range(max_new - 1):
        log_probs = next_log_probs(ids)
        vocab = log_probs.size(1)
        forced = torch.full((vocab,), -math.inf)
        forced[end] = 0
        log_probs = torch.where(done[:, None], forced, log_probs)
        totals, flat = (totals[:, None] + log_probs).flatten().topk(width)
        ids = torch.cat([ids, (flat % vocab)[:, None]], 1)
        lengths = lengths[flat // vocab] + ~done[flat // vocab]
        done = done[flat // vocab] | (flat % vocab == end)
    scores, order = (totals / lengths**alpha).sort(descending=True)
    return ids[order], scores


LENGTH, ROWS = "len(new) ** alpha", "[([], 0.0)]"
WRONG["by-hand-beam-search"] = {
    "beam-best-of-each": {
        "enumerate(P)": "[(i, x) for i, x in enumerate(P) if not new or x == max(P)]"
    },
    "the beam narrows when a sequence ends": {
        "beams = [([], 0.0)]": "beams, ended = [([], 0.0)], []",
        "grown.append((new, total))": "ended.append((new, total))",
        "sorted((X for new, total in beams), reverse=True)":
        "sorted((X for new, total in beams + ended), reverse=True)[:width]",
    },
    "sums of probabilities": {"next_log_probs(X)": "next_log_probs(X).exp()"},
    "one token too many": {"beams = [([], 0.0)]": "max_new = max_new + 1\nbeams = [([], 0.0)]"},
    "the best sequence alone": {"return torch.tensor(X), Y": "return torch.tensor(X)[0], Y[0]"},
    "probabilities in place of logarithms": {"return X, Y": "return X, Y.exp()"},
    "the prompt is left out": {"prompt.tolist() + new": "new"},
    "padded with zeros": {"[end] * X": "[0] * X"},
    "the model sees the last token only": {"prefix[None]": "prefix[None, -1:]"},
    "beam-history-kept": history_kept,
    "beam-starts-equal": {ROWS: f"{ROWS} * width"},
    "beam-scores-not-summed": {"total + log_prob": "log_prob"},
    "beam-end-continued: and every token counts": {"end in new": "False"},
    "beam-length-missing": {f"total / {LENGTH}": "total"},
    "beam-length-padded": {LENGTH: "max_new ** alpha"},
    "the prompt counts": {LENGTH: "(len(new) + len(prompt)) ** alpha"},
    "alpha is a factor": {LENGTH: "(len(new) * alpha)"},
    "the worst beams are kept": {"lambda beam: beam[1]": "lambda beam: -beam[1]"},
    "worst first": {"sorted(X, reverse=True)": "sorted(X)"},
    "twice as wide": {"X[:width]": "X[: 2 * width]"},
    "ranked by the mean in every step": {
        "lambda beam: beam[1]": "lambda beam: beam[1] / len(beam[0]) ** alpha"
    },
    "a finished beam leaves the beam": {"grown.append((new, total))": "None"},
}  # fmt: skip


@right("by-hand-speculative-step")
def one_sentence_at_a_time(drafts, q, p, accept, draw):
    counts, rests, tokens = [], [], []
    for row in range(len(drafts)):
        n, length = 0, drafts.size(1)
        while n < length:
            token = drafts[row, n]
            if accept[row, n] >= min(1.0, p[row, n, token] / q[row, n, token]):
                break
            n += 1
        rest = p[row, n]
        if n < length:
            rest = torch.relu(rest - q[row, n])
            rest = rest / rest.sum()
        total, new = 0.0, 0
        for new in range(len(rest)):
            total = total + rest[new]
            if draw[row] < total:
                break
        counts.append(n)
        rests.append(rest)
        tokens.append(new)
    return torch.tensor(counts), torch.stack(rests), torch.tensor(tokens)


@right("by-hand-speculative-step")
def steps_by_padding(drafts, q, p, accept, draw):
    """Let the draft model give nothing at the bonus position, and find the first rejection."""
    batch, length, vocab = q.shape
    chosen = F.one_hot(drafts, vocab).to(q)
    p_of, q_of = ((x[:, :length] * chosen).sum(-1) for x in (p, q))
    rejected = F.pad((accept * q_of >= p_of).int(), (0, 1), value=1)
    n = rejected.argmax(1)
    rest = F.relu(p - F.pad(q, (0, 0, 0, 1)))
    rest = rest / rest.sum(-1, keepdim=True)
    rest = rest.gather(1, n.view(batch, 1, 1).expand(batch, 1, vocab)).squeeze(1)
    token = torch.searchsorted(rest.cumsum(-1), draw[:, None], right=True).squeeze(1)
    return n, rest, token


@right("by-hand-speculative-step")
def steps_by_einsum(drafts, q, p, accept, draw):
    pick = torch.zeros_like(q).scatter(2, drafts[..., None], 1.0)
    ratio = einsum(p[:, :-1], pick, "b t v, b t v -> b t") / einsum(q, pick, "b t v, b t v -> b t")
    still = torch.ones(len(drafts), dtype=torch.bool)
    count = torch.zeros(len(drafts), dtype=torch.long)
    rest = torch.empty(0)
    for t in range(drafts.size(1)):
        still = still & (accept[:, t] < ratio[:, t].clamp(max=1))
        count = count + still
    extra = torch.cat([q, torch.zeros_like(p[:, -1:])], 1)
    where = F.one_hot(count, p.size(1)).to(p)
    rest = einsum((p - extra).clamp_min(0), where, "b t v, b t -> b v")
    rest = rest / reduce(rest, "b v -> b 1", "sum")
    return count, rest, (rest.cumsum(1) > draw[:, None]).int().argmax(1)


REST, FOUND = "torch.relu(rest - q[row, n])", "rest = p[row, n]"
RATIO, COUNTED_DRAFTS = "p[row, n, token] / q[row, n, token]", "counts.append(n)"
NOT_DIVIDED = {"rest = rest / rest.sum()": "pass"}
WRONG["by-hand-speculative-step"] = {
    "greedy verification": {"accept[row, n] >= X": "token != p[row, n].argmax()", REST: "rest",
                            "tokens.append(new)": "tokens.append(int(rest.argmax()))"},
    "all drafts or none": {FOUND: f"n = n if n == length else 0\n{FOUND}"},
    "one ratio for the whole draft": {
        f"min(1.0, {RATIO})": "ratio", "n, length = 0, X": "n, length, ratio = 0, X, 1.0",
        "token = X": f"token = X\nratio = ratio * {RATIO}",
    },
    "spec-drawn-from-p": {REST: "rest"},
    "drawn from q": {REST: "q[row, n]"},
    "spec-not-normalised": NOT_DIVIDED,
    "spec-absolute": {"torch.relu(X)": "X.abs()"},
    "spec-negative-part": {"rest - q[row, n]": "q[row, n] - rest"},
    "softmax of the positive part": {"total, new = X": "rest = rest.softmax(-1)\ntotal, new = X",
                                     **NOT_DIVIDED},
    "spec-bonus-missing": {FOUND: f"count, n = n, min(n, length - 1)\n{FOUND}",
                           COUNTED_DRAFTS: "counts.append(count)"},
    "the most probable token of p is forbidden": {REST: "rest.masked_fill(rest == rest.max(), 0)"},
    "the rest at position 0": {FOUND: f"count, n = n, 0\n{FOUND}",
                               COUNTED_DRAFTS: "counts.append(count)"},
    "the rest is summed over the vocabulary of all sentences": {
        "return C, R, T": "rest = R / R.sum()\n"
        "return C, rest, (rest.cumsum(-1) <= draw[:, None]).sum(-1).clamp(max=rest.size(-1) - 1)",
        **NOT_DIVIDED,
    },
    "no new token after a full draft": {
        "tokens.append(new)":
        "tokens.append(int(drafts[row, -1] if n == length else rest.argmax()))"
    },
    "spec-ratio-upside-down": {RATIO: "q[row, n, token] / p[row, n, token]"},
    "accepts what it should reject": {"accept[row, n] >= R": "accept[row, n] < R"},
    "one draft too few is counted": {COUNTED_DRAFTS: "counts.append(max(n - 1, 0))"},
    "the rejected draft is counted": {COUNTED_DRAFTS: "counts.append(min(n + 1, length))"},
    "q is not read": {RATIO: "p[row, n, token]"},
    "p of the next position": {"p[row, n, token]": "p[row, n + 1, token]"},
    "spec-rejection-skipped": {
        FOUND: "n = sum(bool(accept[row, i] * q[row, i, t] < p[row, i, t]) for i, t in "
        f"enumerate(drafts[row]))\n{FOUND}"
    },
    "a uniform number for each token": {"draw[row] < total": "draw[row] < rest[new]"},
    "the distribution as logarithms": {"rests.append(rest)": "rests.append((rest + 1e-9).log())"},
}  # fmt: skip


@right("by-hand-window-mask")
def window_by_loop(query_len, key_len, window):
    mask = torch.zeros(query_len, key_len, dtype=torch.bool)
    for i in range(query_len):
        position = key_len - query_len + i
        mask[i, max(0, position - window + 1) : position + 1] = True
    return mask


@right("by-hand-window-mask")
def window_by_triangles(query_len, key_len, window):
    square = torch.ones(key_len, key_len, dtype=torch.bool)
    return (square.tril() & ~square.tril(-window))[key_len - query_len :]


@right("by-hand-window-mask")
def window_by_distance(query_len, key_len, window):
    back = torch.arange(key_len)[-query_len:, None] - torch.arange(key_len)[None, :]
    return (back >= 0).logical_and(back.lt(window))


WRONG["by-hand-window-mask"] = {
    "window-one-more": {"position - window + 1": "position - window"},
    "one key too few": {"position - window + 1": "position - window + 2"},
    "window-no-lower-edge": {"max(0, X)": "0"},
    "window-not-causal": {"position + 1": "position + window"},
    "half of the window on each side": {"position - window + 1": "position - window // 2",
                                        "position + 1": "position + window // 2 + 1"},
    "causal-corner": {"position = X": "position = i"},
    "causal-diagonal": {"position + 1": "position"},
    "a window before the query": {"position - window + 1": "position - window",
                                  "position + 1": "position"},
    "blocks of the size of the window": {"position - window + 1": "position // window * window"},
    "a window of the future": {"position - window + 1": "position",
                               "position + 1": "position + window"},
    "window-not-causal: no upper edge": {"position + 1": "key_len"},
    "mask-inverted": {"return mask": "return ~mask"},
    "queries and keys are exchanged": {"return mask": "return mask.T"},
    "the same window for all queries": {"position = X": "position = key_len - 1"},
    "numbers to add to the scores": {
        "return mask": "return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)"
    },
    "the first keys stay visible": {"return mask": "return mask | (torch.arange(key_len) == 0)"},
}  # fmt: skip


@right("by-hand-rolling-cache")
def cache_key_by_key(cache, new, length):
    slots = list(cache.unbind(2))
    window = len(slots)
    positions = [-1] * window
    for j in range(length + new.size(2)):
        positions[j % window] = j
        if j >= length:
            slots[j % window] = new[:, :, j - length]
    return torch.stack(slots, 2), torch.tensor(positions)


@right("by-hand-rolling-cache")
def cache_by_gathering(cache, new, length):
    """Ask each slot for its position, and where that key is."""
    window, n = cache.shape[2], new.shape[2]
    held = torch.tensor([max(range(s, length + n, window), default=-1) for s in range(window)])
    fresh = held >= length
    picked = new.index_select(2, (held - length).clamp(0, n - 1))
    return torch.where(fresh.view(1, 1, -1, 1), picked, cache), held


@right("by-hand-rolling-cache")
def cache_by_rolling(cache, new, length):
    """Unroll the slots into time order, append, cut, and roll back."""
    w, end = cache.size(2), length + new.size(2)
    shift = length % w if length > w else 0
    old = torch.cat([cache[:, :, shift:], cache[:, :, :shift]], 2)[:, :, : min(length, w)]
    last = torch.cat([old, new], 2)[:, :, -w:]
    positions = torch.arange(end)[-w:]
    if end < w:
        last = F.pad(last, (0, 0, 0, w - end))
        return last, F.pad(positions, (0, w - end), value=-1)
    return last.roll(end % w, 2), positions.roll(end % w)


def appended(cache, new, length):
    """Shift the cache to the left and append, as a deque does."""
    w, end = cache.size(2), length + new.size(2)
    both = torch.cat([cache[:, :, : min(length, w)], new], 2)[:, :, -w:]
    positions = torch.arange(end)[-w:]
    gap = w - len(positions)
    return F.pad(both, (0, 0, 0, gap)), F.pad(positions, (0, gap), value=-1)


def padded_on_the_left(cache, new, length):
    w, end = cache.size(2), length + new.size(2)
    both = torch.cat([cache, new], 2)[:, :, -w:]
    positions = torch.arange(end - w, end)
    return both, positions.clamp(min=-1)


SLOT, POSITION = "slots[j % window]", "positions[j % window] = j"
WRONG["by-hand-rolling-cache"] = {
    "rolling-shifted": appended,
    "rolling-shifted: empty slots on the left": padded_on_the_left,
    "rolling-starts-at-zero": {SLOT: "slots[(j - length) % window]"},
    "slots from 1 on": {SLOT: "slots[(j + 1) % window]"},
    "the last slot takes everything": {SLOT: "slots[min(j, window - 1)]"},
    "rolling-first-kept: without overwriting": {"j >= length": "length <= j < length + window"},
    "a full cache stays as it is": {"j >= length": "length <= j < window"},
    "the last new key alone": {"j >= length": "j == length + new.size(2) - 1"},
    "slots modulo the number of new keys": {SLOT: "slots[j % new.size(2) % window]"},
    "the newest key in slot 0": lambda cache, new, length: tuple(
        x.flip(-2 if x.ndim > 1 else 0) for x in appended(cache, new, length)
    ),
    "rolling-first-turn": {POSITION: "positions[j % window] = j % window"},
    "positions of the new keys": {"torch.tensor(P)": "torch.arange(length, length + new.size(2))"},
    "sorted positions": {"torch.tensor(P)": "torch.tensor(sorted(P))"},
    "positions one too large": {"torch.tensor(P)": "torch.tensor(P) + 1"},
    "positions before the new keys": {POSITION: f"if j < length: {POSITION}"},
    "empty slots hold position 0": {"[-1] * window": "[0] * window"},
    "distances to the next query": {"torch.tensor(P)": "length + new.size(2) - torch.tensor(P)"},
    "the cache grows": {
        "return X": "return torch.cat([cache, new], 2), torch.arange(window + new.size(2))"
    },
}  # fmt: skip


@right("by-hand-quantize-rows")
def rows_by_reduce(x):
    top = reduce(x.abs(), "b s f -> b s 1", "max")
    scale = (top / 127).masked_fill(top == 0, 1.0)
    return torch.clamp(torch.round(x / scale), -127, 127).type(torch.int8), scale


@right("by-hand-quantize-rows")
def rows_one_by_one(x):
    flat = x.reshape(-1, x.size(-1))
    quantized, scales = [], []
    for row in flat:
        top = max(row.max(), -row.min())
        scale = top / 127 if top > 0 else torch.ones_like(top)
        quantized.append(torch.round(row / scale).to(torch.int8))
        scales.append(scale)
    return torch.stack(quantized).view(x.shape), torch.stack(scales).view(*x.shape[:-1], 1)


@right("by-hand-quantize-rows")
def rows_by_norm(x):
    scale = torch.linalg.vector_norm(x, ord=math.inf, dim=-1, keepdim=True) / 127
    scale = scale + (scale == 0)
    return (x / scale + 0.5).floor().char(), scale


WIDER = {"torch.clamp(X, -127, 127)": "torch.clamp(X, -128, 127)"}
WRONG["by-hand-quantize-rows"] = {
    "int8-one-scale": {"top = X": "top = x.abs().max().expand(*x.shape[:-1], 1)"},
    "one scale for each sentence": {
        "top = X": "top = x.abs().amax((1, 2), True).expand(*x.shape[:-1], 1)"
    },
    "a single scale is returned": {"top = X": "top = x.abs().max()"},
    "one scale for each column": {'"b s f -> b s 1"': '"b s f -> 1 1 f"'},
    "int8-truncated": {"torch.round(X)": "torch.trunc(X)"},
    "rounded down": {"torch.round(X)": "torch.floor(X)", **WIDER},
    "int8-divided-by-128": {"top / 127": "top / 128", **WIDER},
    "divided by 255": {"top / 127": "top / 255", **WIDER},
    "four bits": {"top / 127": "top / 7"},
    "int8-sign-lost": {"x.abs()": "x", "torch.clamp(X, -127, 127)": "X"},
    "int8-zero-row": {"scale = X": "scale = top / 127"},
    "the scale is upside down": {"return Q, scale": "return Q, 1 / scale"},
    "the largest absolute value is the scale": {"return Q, scale": "return Q, top + (top == 0)"},
    "a zero point": {"x / scale": "(x - x.mean(-1, keepdim=True)) / scale",
                     "torch.clamp(X, -127, 127)": "X"},
    "the numbers are not converted": {"X.type(torch.int8)": "X"},
    "the scale lost its axis": {"return Q, scale": "return Q, scale.squeeze(-1)"},
    "the mean of the absolute values": {'"max"': '"mean"', **WIDER},
}  # fmt: skip


@right("by-hand-int8-matmul")
def integers_by_einsum(x, weight):
    x_scale = x.abs().amax(-1, keepdim=True) / 127
    w_scale = weight.abs().amax(-1) / 127
    x_scale = torch.where(x_scale == 0, 1.0, x_scale)
    q = (x / x_scale).round().to(torch.int8)
    w = (weight / w_scale[:, None]).round().to(torch.int8)
    total = torch.einsum("bsi,oi->bso", q.to(torch.int32), w.to(torch.int32))
    return total.double() * x_scale * w_scale


@right("by-hand-int8-matmul")
def integers_in_a_layer(x, weight):
    class Int8Linear(nn.Module):
        def __init__(self, weight):
            super().__init__()
            q, scale = rows_by_norm(weight[None])
            self.register_buffer("q", q[0].long())
            self.register_buffer("scale", scale[0, :, 0])

        def forward(self, x):
            q, scale = rows_by_norm(x)
            return F.linear(q.long(), self.q) * (scale * self.scale)

    return Int8Linear(weight)(x)


@right("by-hand-int8-matmul")
def integers_by_products(x, weight):
    (q, s), (w, t) = rows_by_reduce(x), rows_by_reduce(weight[None])
    products = q.int()[:, :, None, :] * w.int()[:, None, :, :]
    return reduce(products, "b s o i -> b s o", "sum") * einsum(s, t, "b s i, c o i -> b s o")


WRONG["by-hand-int8-matmul"] = {
    "int8-sum-overflows": {"q.to(torch.int32)": "q", "w.to(torch.int32)": "w"},
    "products overflow": {"total = X": "total = (q[:, :, None] * w).sum(-1)"},
    "int8-sum-overflows: the sum is cast": {"total.double()": "total.to(torch.int8)"},
    "int8-weight-scale-missing": {"X * w_scale": "X"},
    "the scale of x is missing": {"X * x_scale": "X"},
    "no scale at all": {"X * x_scale * w_scale": "X"},
    "divided by the scales": {"X * x_scale * w_scale": "X / x_scale / w_scale"},
    "the weight has one scale": {"w_scale = X":
                                 "w_scale = weight.abs().amax().expand(len(weight)) / 127"},
    "x has one scale": {"x.abs().amax(-1, keepdim=True)": "x.abs().amax().view(1, 1, 1)"},
    "int8-truncated": {"(x / S).round()": "(x / S)", "(weight / S).round()": "(weight / S)"},
    "only x is truncated": {"(x / x_scale).round()": "(x / x_scale)"},
    "nothing is quantised": {"return X": "return x @ weight.T"},
    "weight only": {"return X": "return x @ (w * w_scale[:, None]).T"},
    "the weight has a scale for each column": {
        "weight.abs().amax(-1)": "weight.abs().amax(0)", "w_scale[:, None]": "w_scale",
        "return X": "return (q * x_scale) @ (w * w_scale).T",
    },
    "four bits of each": {"x.abs().amax(X, keepdim=True) / 127":
                          "x.abs().amax(X, keepdim=True) / 7",
                          "weight.abs().amax(-1) / 127": "weight.abs().amax(-1) / 7"},
    "the scales are added": {"X * x_scale * w_scale": "X * (x_scale + w_scale)"},
}  # fmt: skip


@right("by-hand-alibi-slopes")
def slopes_by_products(num_heads):
    ratio = 2 ** -(2 ** -(math.log2(num_heads) - 3))
    slopes = [ratio]
    while len(slopes) < num_heads:
        slopes.append(slopes[-1] * ratio)
    return torch.tensor(slopes)


@right("by-hand-alibi-slopes")
def slopes_by_logspace(num_heads):
    return torch.logspace(-8 / num_heads, -8, num_heads, base=2)


@right("by-hand-alibi-slopes")
def slopes_by_cumprod(num_heads):
    return torch.full((num_heads,), 0.5 ** (8 / num_heads)).cumprod(0)


def heads_of(n):
    return torch.arange(1.0, n + 1)


WRONG["by-hand-alibi-slopes"] = {
    "alibi-head-from-zero": {"slopes = [ratio]": "slopes = [1.0]"},
    "alibi-eight-heads-only": lambda n: 0.5 ** heads_of(n),
    "the slopes grow": {"ratio = X": "ratio = 2 ** (8 / num_heads)"},
    "the first head is the flattest": lambda n: slopes_by_logspace(n).flip(0),
    "the base is e": lambda n: torch.exp(-8 * heads_of(n) / n),
    "equal steps": lambda n: 1 - (heads_of(n) - 1) / n,
    "one over the head": lambda n: 1 / heads_of(n),
    "negative slopes": lambda n: -slopes_by_logspace(n),
    "the exponents only": lambda n: -8 * heads_of(n) / n,
    "from 1 to the last slope": lambda n: torch.logspace(0, -8, n, base=2),
    "the number of heads in the numerator": lambda n: 2 ** (-heads_of(n) * n / 8),
    "an axis too many": lambda n: slopes_by_logspace(n).view(n, 1, 1),
    "a frequency of rotary positions": lambda n: 10000 ** (-heads_of(n) / n),
}


@right("by-hand-alibi-weights")
def bias_of_keys_alone(scores):
    """Leave out what is equal for all keys of a query, as BLOOM does."""
    _, heads, query_len, key_len = scores.shape
    slopes = slopes_by_cumprod(heads)
    places = torch.arange(key_len)
    scores = scores + slopes.reshape(1, heads, 1, 1) * places
    hidden = torch.ones(query_len, key_len).triu(key_len - query_len + 1).bool()
    scores = torch.where(hidden, -math.inf, scores)
    return F.softmax(scores, dim=-1)


@right("by-hand-alibi-weights")
def query_by_query(scores):
    result = torch.zeros_like(scores)
    past = scores.size(3) - scores.size(2)
    for i in range(scores.size(2)):
        seen = past + i + 1
        behind = torch.arange(seen - 1, -1, -1)
        bias = einsum(slopes_by_logspace(scores.size(1)), behind.double(), "h, k -> h k")
        result[:, :, i, :seen] = (scores[:, :, i, :seen] - bias).softmax(-1)
    return result


@right("by-hand-alibi-weights")
def multiplied_powers(scores):
    keys = torch.arange(scores.size(-1))
    distance = keys[-scores.size(-2) :].unsqueeze(1) - keys
    factor = torch.exp(-slopes_by_products(scores.size(1))[:, None, None] * distance)
    powers = (scores - scores.amax(-1, keepdim=True)).exp() * factor.tril(
        scores.size(-1) - scores.size(-2)
    )
    return powers / powers.sum(-1, keepdim=True)


SLOPES, HIDDEN = "slopes.reshape(1, heads, 1, 1)", "torch.where(hidden, -math.inf, scores)"
ADDED, BEHIND = f"{SLOPES} * places", "(places - places[-query_len:, None])"
WRONG["by-hand-alibi-weights"] = {
    "alibi-sign": {f"scores + {ADDED}": f"scores - {ADDED}"},
    "alibi-queries-from-zero": {"X.triu(Y)": "X.triu(1)"},
    "alibi-one-slope": {SLOPES: "slopes[0]"},
    "alibi-after-softmax": {f"scores + {ADDED}": "scores", "F.softmax(X, dim=-1)":
                            f"F.softmax(X, dim=-1) + {SLOPES} * {BEHIND}"},
    "alibi-future-visible": {HIDDEN: "scores"},
    "alibi-future-visible: with absolute distances": {ADDED: f"{SLOPES} * -{BEHIND}.abs()",
                                                      HIDDEN: "scores"},
    "alibi-head-from-zero": {"slopes = X": "slopes = 2 ** (-8 * torch.arange(heads) / heads)"},
    "alibi-eight-heads-only": {"slopes = X": "slopes = 0.5 ** heads_of(heads)"},
    "no bias": {f"scores + {ADDED}": "scores"},
    "no slope": {ADDED: "places"},
    "squared distance": {ADDED: f"{SLOPES} * -({BEHIND} ** 2)"},
    "the logarithm of the distance": {ADDED: f"{SLOPES} * -(1 + {BEHIND}.abs()).log()"},
    "the future is 0": {ADDED: f"{SLOPES} * {BEHIND}", "-math.inf": "0.0"},
    "the past is hidden": {f"scores + {ADDED}": f"scores - {ADDED}",
                           "X.triu(Y)": "X.tril(key_len - query_len - 1)"},
    "slopes in reverse order": {"slopes = X": "slopes = X.flip(0)"},
    "softmax over the queries": {"F.softmax(X, dim=-1)": "F.softmax(X, dim=-2)"},
    "no softmax": {"F.softmax(X, dim=-1)": "X"},
    "the scores are multiplied": {f"scores + {ADDED}": f"scores * {SLOPES}"},
}  # fmt: skip


@right("by-hand-merge-pair")
def merged_at_the_end(ids, pair, new_id):
    result = []
    for each in ids:
        if result and (result[-1], each) == pair:
            result.pop()
            result.append(new_id)
        else:
            result.append(each)
    return result


@right("by-hand-merge-pair")
def merged_in_place_of_a_slice(ids, pair, new_id):
    result, i = list(ids), 0
    while i < len(result) - 1:
        if result[i] == pair[0] and result[i + 1] == pair[1]:
            result[i : i + 2] = [new_id]
        i += 1
    return result


@right("by-hand-merge-pair")
def merged_by_recursion(ids, pair, new_id):
    if len(ids) < 2:
        return ids
    if (ids[0], ids[1]) == pair:
        return [new_id, *merged_by_recursion(ids[2:], pair, new_id)]
    return [ids[0], *merged_by_recursion(ids[1:], pair, new_id)]


def by_index(match, step=2):
    def answer(ids, pair, new_id):
        out, i = [], 0
        while i < len(ids):
            if match(ids, i, pair):
                out.append(new_id)
                i += step
            else:
                out.append(ids[i])
                i += 1
        return out

    return answer


WRONG["by-hand-merge-pair"] = {
    "bpe-overlap": by_index(lambda ids, i, pair: tuple(ids[i : i + 2]) == pair, step=1),
    "either order": by_index(lambda ids, i, pair: {*ids[i : i + 2]} == {*pair}),
    "the first id alone": by_index(lambda ids, i, pair: ids[i] == pair[0]),
    "one pair only": {"(result[-1], each) == pair": "(result[-1], each) == pair and new_id not in "
                      "result"},
    "both ids stay": {"result.pop()": "None"},
    "three ids are replaced": by_index(lambda ids, i, pair: tuple(ids[i : i + 2]) == pair, step=3),
    "nothing is replaced": lambda ids, pair, new_id: list(ids),
    "the last id is lost": lambda ids, pair, new_id: merged_at_the_end(ids[:-1], pair, new_id),
    "the new id is put at the end": lambda ids, pair, new_id: [
        each for each in merged_at_the_end(ids, pair, -5) if each != -5
    ] + [new_id] * merged_at_the_end(ids, pair, -5).count(-5),
    "from the right": lambda ids, pair, new_id: merged_at_the_end(
        ids[::-1], pair[::-1], new_id
    )[::-1],
    "merged twice": lambda ids, pair, new_id: merged_at_the_end(
        merged_at_the_end(ids, pair, pair[0]), pair, new_id
    ),
    "without duplicates": lambda ids, pair, new_id: list(
        dict.fromkeys(merged_at_the_end(ids, pair, new_id))
    ),
}  # fmt: skip


@right("by-hand-bpe-encode")
def lowest_rank_first(ids, merges, vocab_size):
    rank = {pair: number for number, pair in enumerate(merges)}
    while len(ids) > 1:
        known = [pair for pair in itertools.pairwise(ids) if pair in rank]
        if not known:
            break
        best = min(known, key=rank.get)
        ids = merged_at_the_end(ids, best, vocab_size + rank[best])
    return ids


@right("by-hand-bpe-encode")
def one_pair_at_a_time(ids, merges, vocab_size):
    ids = list(ids)
    while True:
        found = [
            (merges.index((ids[i], ids[i + 1])), i)
            for i in range(len(ids) - 1)
            if (ids[i], ids[i + 1]) in merges
        ]
        if not found:
            return ids
        number, i = min(found)
        ids = [*ids[:i], vocab_size + number, *ids[i + 2 :]]


@right("by-hand-bpe-encode")
def merges_as_a_stack(ids, merges, vocab_size):
    for new_id, pair in enumerate(merges, start=vocab_size):
        ids = merged_in_place_of_a_slice(ids, pair, new_id)
    return ids


def greedy(ids, merges, vocab_size):
    out = []
    for each in ids:
        out.append(each)
        while len(out) > 1 and tuple(out[-2:]) in merges:
            out[-2:] = [vocab_size + merges.index(tuple(out[-2:]))]
    return out


def encode(order, merge=merged_at_the_end, new=lambda size, number: size + number):
    def answer(ids, merges, vocab_size):
        for number, pair in order([*enumerate(merges)]):
            ids = merge(ids, pair, new(vocab_size, number))
        return ids

    return answer


def one_pass(ids, merges, vocab_size):
    out, i = [], 0
    while i < len(ids):
        pair = tuple(ids[i : i + 2])
        out.append(vocab_size + merges.index(pair) if pair in merges else ids[i])
        i += 2 if pair in merges else 1
    return out


WRONG["by-hand-bpe-encode"] = {
    "bpe-leftmost-first": greedy,
    "bpe-ranks-reversed": {"min(known, key=rank.get)": "max(known, key=rank.get)"},
    "the leftmost pair first, everywhere": {"min(known, key=rank.get)": "known[0]"},
    "the smallest pair first": {"min(known, key=rank.get)": "min(known)"},
    "the most frequent pair first": {"min(known, key=rank.get)": "max(known, key=known.count)"},
    "one pass": one_pass,
    "bpe-overlap": encode(
        lambda m: m, by_index(lambda ids, i, pair: tuple(ids[i : i + 2]) == pair, step=1)
    ),
    "bpe-ranks-reversed: one pass": encode(lambda m: m[::-1]),
    "the ids begin at 0": encode(lambda m: m, new=lambda size, number: number),
    "the ids are one too large": encode(lambda m: m, new=lambda size, number: size + number + 1),
    "one new id": encode(lambda m: m, new=lambda size, number: size),
    "the newest merge is not used": encode(lambda m: m[:-1]),
    "the merges are sorted": encode(lambda m: sorted(m, key=lambda each: each[1])),
    "only merges of letters": lambda ids, merges, size: encode(
        lambda m: [each for each in m if max(each[1]) < size]
    )(ids, merges, size),
}  # fmt: skip


@right("by-hand-bpe-train")
def training_by_sorting(ids, vocab_size, num_merges):
    merges = []
    for number in range(num_merges):
        pairs = sorted(itertools.pairwise(ids))
        if not pairs:
            break
        best = max(pairs, key=pairs.count)
        merges.append(best)
        ids = merged_at_the_end(ids, best, vocab_size + number)
    return merges


@right("by-hand-bpe-train")
def training_in_a_class(ids, vocab_size, num_merges):
    class Tokenizer:
        def __init__(self):
            self.merges = []

        def train(self, ids):
            if len(self.merges) == num_merges or len(ids) < 2:
                return
            counts = {}
            for i in range(len(ids) - 1):
                pair = (ids[i], ids[i + 1])
                counts[pair] = counts.get(pair, 0) + 1
            top = max(counts.values())
            best = min(pair for pair, count in counts.items() if count == top)
            new_id = vocab_size + len(self.merges)
            self.merges.append(best)
            self.train(merged_by_recursion(ids, best, new_id))

    tokenizer = Tokenizer()
    tokenizer.train(ids)
    return tokenizer.merges


@right("by-hand-bpe-train")
def training_by_tensors(ids, vocab_size, num_merges):
    merges = []
    while len(merges) < num_merges and len(ids) > 1:
        pairs = torch.tensor(ids).unfold(0, 2, 1)
        unique, counts = pairs.unique(dim=0, return_counts=True)
        merges.append(tuple(unique[(counts == counts.max()).nonzero()[0, 0]].tolist()))
        ids = merged_in_place_of_a_slice(ids, merges[-1], vocab_size + len(merges) - 1)
    return merges


WRONG["by-hand-bpe-train"] = {
    "bpe-counted-once": {
        "merges = []": "pairs = sorted(itertools.pairwise(ids))\n"
        "return sorted(dict.fromkeys(pairs), key=pairs.count, reverse=True)[:num_merges]"
    },
    "bpe-tie-by-text": {"sorted(X)": "[*X]"},
    "bpe-tie-larger": {"sorted(X)": "sorted(X, reverse=True)"},
    "ties by the second id": {"sorted(X)": "sorted(X, key=lambda pair: pair[::-1])"},
    "the rarest pair": {"max(pairs, key=C)": "min(pairs, key=C)"},
    "the smallest pair": {"max(pairs, key=C)": "pairs[0]"},
    "bpe-overlap": {
        "merged_at_the_end": "by_index(lambda ids, i, pair: (*ids[i : i + 2],) == pair, step=1)"
    },
    "new ids begin at 0": {"vocab_size + number": "number"},
    "one new id": {"vocab_size + number": "vocab_size"},
    "every other pair is counted": {"itertools.pairwise(ids)":
                                    "zip(ids[::2], ids[1::2], strict=False)"},
    "one merge too few": {"range(num_merges)": "range(num_merges - 1)"},
    "the pairs are sorted": {"return merges": "return sorted(merges)"},
    "the pairs are reversed": {"return merges": "return [pair[::-1] for pair in merges]"},
    "stops when no pair is repeated": {"not pairs": "len({*pairs}) == len(pairs)"},
}  # fmt: skip


@right("by-hand-accumulated-gradients")
def gradients_by_formula(x, labels, weight, bias, micro_batch, max_norm):
    """Softmax minus one-hot, without autograd."""
    total = labels.ne(-100).sum()
    w, b = torch.zeros_like(weight), torch.zeros_like(bias)
    for start in range(0, len(x), micro_batch):
        xs, ys = x[start : start + micro_batch], labels[start : start + micro_batch]
        keep = ys >= 0
        error = (xs @ weight.T + bias).softmax(-1)[keep]
        error = error - F.one_hot(ys[keep], len(weight))
        w = w + error.T @ xs[keep] / total
        b = b + error.sum(0) / total
    norm = torch.cat([w.flatten(), b]).norm()
    if norm > max_norm:
        w, b = w * max_norm / norm, b * max_norm / norm
    return w, b


@right("by-hand-accumulated-gradients")
def gradients_of_a_module(x, labels, weight, bias, micro_batch, max_norm):
    layer = nn.Linear(weight.size(1), weight.size(0))
    layer.weight.data, layer.bias.data = weight.detach().clone(), bias.detach().clone()
    for xs, ys in zip(x.split(micro_batch), labels.split(micro_batch), strict=True):
        seen = ys.flatten() != -100
        if seen.any():
            loss = F.cross_entropy(layer(xs).flatten(0, 1)[seen], ys.flatten()[seen])
            (loss * seen.sum()).backward()
    gradients = [p.grad / (labels != -100).sum() for p in layer.parameters()]
    norms = torch.stack([each.norm() for each in gradients])
    scale = min(1.0, max_norm / norms.norm().item())
    return [each * scale for each in gradients]


@right("by-hand-accumulated-gradients")
def gradients_by_einsum(x, labels, weight, bias, micro_batch, max_norm):
    keep = (labels != -100).to(x.dtype)
    parts = []
    for xs, ys, ks in zip(*(t.split(micro_batch) for t in (x, labels, keep)), strict=True):
        logits = einsum(xs, weight, "b s f, v f -> b s v") + bias
        target = F.one_hot(ys.clamp(min=0), len(bias))
        error = (logits.softmax(-1) - target) * ks[..., None] / keep.sum()
        parts.append((einsum(error, xs, "b s v, b s f -> v f"), reduce(error, "b s v -> v", "sum")))
    w, b = (sum(each) for each in zip(*parts, strict=True))
    norm = ((w**2).sum() + (b**2).sum()) ** 0.5
    return tuple(each / max(norm / max_norm, 1) for each in (w, b))


COUNT = "labels.ne(-100).sum()"
WRONG["by-hand-accumulated-gradients"] = {
    "accumulation-mean-of-means": {
        "keep = X": "keep = X\ntotal = keep.sum().clamp(min=1) * len(x.split(micro_batch))"
    },
    "accumulation-not-divided": {"keep = X": "keep = X\ntotal = keep.sum().clamp(min=1)"},
    "accumulation-padding-counted": {COUNT: "labels.numel()"},
    "the padding of each micro-batch is counted": {
        "keep = X": "keep = X\ntotal = keep.numel() * len(x.split(micro_batch))"
    },
    "divided by the number of sentences": {COUNT: "len(labels)"},
    "divided by the number of micro-batches": {COUNT: "len(labels.split(micro_batch))"},
    "sums": {COUNT: "1"},
    "clip-each-tensor": {
        "norm > max_norm": "False",
        "return X": "return tuple(each * min(1, max_norm / each.norm()) for each in (w, b))",
    },
    "clip-by-value": {
        "norm > max_norm": "False",
        "return X": "return w.clamp(-max_norm, max_norm), b.clamp(-max_norm, max_norm)",
    },
    "clip-scales-up": {"norm > max_norm": "norm > 0"},
    "each micro-batch is clipped": {
        "b = b + X": "b = b + X\nclip = min(1, max_norm / torch.cat([w.flatten(), b]).norm())\n"
        "w, b = w * clip, b * clip"
    },
    "not clipped": {"norm > max_norm": "norm < 0"},
    "the bias is not clipped": {"w, b = w * max_norm / norm, X": "w = w * max_norm / norm"},
    "the norms are added": {"norm = X": "norm = w.norm() + b.norm()"},
    "the norm of the weight alone": {"norm = X": "norm = w.norm()"},
    "the largest number is the norm": {"torch.cat(X).norm()": "torch.cat(X).abs().max()"},
    "the sum of absolute values is the norm": {"torch.cat(X).norm()": "torch.cat(X).norm(1)"},
    "divided by the norm": {"w * max_norm / norm, b * max_norm / norm": "w / norm, b / norm"},
    "only the last micro-batch": {"w + X": "X", "b + X": "X"},
    "the last micro-batch is dropped if it is shorter": {
        "total = X": "x, labels = (t[: len(t) // micro_batch * micro_batch] for t in (x, labels))\n"
        "total = X"
    },
}  # fmt: skip


@right("by-hand-attention-with-cache")
def cached_layer(x, w_q, w_k, w_v, w_o, num_heads, past_k, past_v):
    q, k, v = (rearrange(x @ w.T, "b n (h d) -> b h n d", h=num_heads) for w in (w_q, w_k, w_v))
    all_k, all_v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    n, total = q.size(2), all_k.size(2)
    hidden = torch.ones(n, total).triu(total - n + 1).bool()
    scores = einsum(q, all_k, "b h q d, b h k d -> b h q k") * q.size(-1) ** -0.5
    weights = scores.masked_fill(hidden, -1e30).softmax(-1)
    return rearrange(weights @ all_v, "b h n d -> b n (h d)") @ w_o.T, all_k, all_v


@right("by-hand-attention-with-cache")
def cached_token_by_token(x, w_q, w_k, w_v, w_o, num_heads, keys, values):
    """Attend after each token, so that no mask is needed."""
    rows = []
    for token in x.unbind(1):
        q, k, v = (F.linear(token, w).view(len(x), num_heads, 1, -1) for w in (w_q, w_k, w_v))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        out = F.scaled_dot_product_attention(q, keys, values)
        rows.append(F.linear(out.reshape(len(x), -1), w_o))
    return torch.stack(rows, 1), keys, values


@right("by-hand-attention-with-cache")
def cached_in_new_buffers(x, w_q, w_k, w_v, w_o, num_heads, keys, values):
    """Write into buffers, as a library does."""
    old, new = keys.shape[2], x.shape[1]
    q, k, v = ((x @ w.T).unflatten(2, (num_heads, -1)).permute(0, 2, 1, 3)
               for w in (w_q, w_k, w_v))  # fmt: skip
    buffers = []
    for kept, here in ((keys, k), (values, v)):
        buffer = here.new_empty(*kept.shape[:2], old + new, kept.shape[3])
        buffer[:, :, :old], buffer[:, :, old:] = kept, here
        buffers.append(buffer)
    places = torch.arange(old + new)
    mask = places[None] <= places[old:, None]
    out = F.scaled_dot_product_attention(q, *buffers, attn_mask=mask)
    return out.transpose(1, 2).reshape(*x.shape[:2], -1) @ w_o.mT, *buffers


HIDDEN_KEYS = "torch.ones(n, total).triu(total - n + 1).bool()"
WRONG["by-hand-attention-with-cache"] = {
    "cache-causal-missing": {"scores.masked_fill(hidden, X)": "scores"},
    "causal-corner": {HIDDEN_KEYS: "torch.ones(n, total).triu(1).bool()"},
    "cache-mask-dropped": {
        "hidden = X": "hidden = X if n == total else torch.zeros(n, total).bool()"
    },
    "causal-diagonal": {HIDDEN_KEYS: "torch.ones(n, total).triu(total - n).bool()"},
    "one future token is visible": {
        HIDDEN_KEYS: "torch.ones(n, total).triu(total - n + 2).bool()"
    },
    "a new layer, and so a new cache, in each call": {"all_k, all_v = X": "all_k, all_v = k, v"},
    "cache-old-lost": {"return Y, all_k, all_v": "return Y, k, v"},
    "cache-not-grown": {"return Y, all_k, all_v": "return Y, past_k, past_v"},
    "cache-new-first": {
        "torch.cat((past_k, k), 2)": "torch.cat((k, past_k), 2)",
        "torch.cat((past_v, v), 2)": "torch.cat((v, past_v), 2)",
    },
    "only the values are in the wrong order": {
        "torch.cat((past_v, v), 2)": "torch.cat((v, past_v), 2)"
    },
    "scale-missing": {"X * q.size(-1) ** -0.5": "X"},
    "the scale of the whole width": {"q.size(-1) ** -0.5": "(q.size(-1) * num_heads) ** -0.5"},
    "split-interleaved": {'"b n (h d) -> b h n d"': '"b n (d h) -> b h n d"'},
    "merge-no-transpose": {
        'rearrange(C, "b h n d -> b n (h d)")': "(C).reshape(x.size(0), n, -1)"
    },
    "the output matrix is missing": {"rearrange(C, R) @ w_o.T": "rearrange(C, R) @ w_o.T * 0"},
    "mask-after-softmax": {
        "scores.masked_fill(hidden, -1e30).softmax(-1)": "scores.softmax(-1).masked_fill(hidden, 0)"
    },
    "the last row alone": {"return Y, all_k, all_v": "return (Y)[:, -1:], all_k, all_v"},
    "the cache is cut off": {"torch.cat((past_k, k), 2)": "torch.cat((past_k.detach(), k), 2)"},
    "values are projected as keys": {
        "torch.cat((past_v, v), 2)": "torch.cat((past_v, k[..., : v.size(-1)]), 2)"
    },
    "a window of the last keys": {
        HIDDEN_KEYS: "~torch.ones(n, total).tril(total - n).triu(total - n - 2).bool()"
    },
}  # fmt: skip


@right("by-hand-sampling-probabilities")
def thresholds(logits, temperature, k, p):
    """Compare each logit with the k-th, and each probability with the last one that is kept."""
    z = logits / temperature
    kth = z.topk(k, dim=-1).values[:, -1:]
    z = z.masked_fill(z < kth, -math.inf)
    probs = torch.softmax(z, dim=-1)
    top, _ = torch.sort(probs, dim=-1, descending=True)
    first = (torch.cumsum(top, dim=-1) < p).sum(-1, keepdim=True).clamp(max=k - 1)
    smallest = top.gather(-1, first)
    probs = torch.where(probs >= smallest, probs, 0.0)
    return probs / probs.sum(dim=-1, keepdim=True)


@right("by-hand-sampling-probabilities")
def sorted_mask_of_logits(logits, temperature, k, p):
    """Mask sorted logits, shift the mask by one, and scatter it back, as Transformers does."""
    logits = logits.clone() / temperature
    order = logits.argsort(-1, descending=True)
    rank = order.argsort(-1)
    logits[rank >= k] = -math.inf
    cumulative = logits.gather(-1, order).softmax(-1).cumsum(-1)
    remove = torch.cat([torch.zeros_like(cumulative[:, :1]), cumulative[:, :-1]], -1) >= p
    return logits.masked_fill(remove.gather(-1, rank), -math.inf).softmax(-1)


@right("by-hand-sampling-probabilities")
def row_by_row(logits, temperature, k, p):
    rows = []
    for row in logits.tolist():
        powers = {i: math.exp((x - max(row)) / temperature) for i, x in enumerate(row)}
        best = sorted(powers, key=powers.get, reverse=True)[:k]
        total, kept = sum(powers[i] for i in best), []
        while best and sum(powers[i] for i in kept) / total < p:
            kept.append(best.pop(0))
        total = sum(powers[i] for i in kept)
        rows.append([powers[i] / total if i in kept else 0.0 for i in range(len(row))])
    return torch.tensor(rows)


TOP_K, CLAMP = "z.masked_fill(z < kth, -math.inf)", "X.clamp(max=k - 1)"
SUM_TO = "top.cumsum(-1).gather(-1, probs.argsort(-1, descending=True).argsort(-1))"
ALL_WORDS = {CLAMP: "X.clamp(max=z.size(-1) - 1)"}
WRONG["by-hand-sampling-probabilities"] = {
    "temperature-multiplied": {"logits / temperature": "logits * temperature"},
    "temperature-without-effect": {"logits / temperature": "logits"},
    "temperature-without-effect: probabilities are divided": {
        "z = logits / X": "z = logits", "probs = torch.softmax(Z, dim=-1)":
        "probs = torch.softmax(Z, dim=-1) / temperature",
    },
    "temperature-last": {"logits / temperature": "logits", "torch.where(X, probs, 0.0)":
                         "torch.where(X, probs, 0.0) ** (1 / temperature)"},
    "temperature between top-k and top-p of probabilities": {
        "logits / temperature": "logits", "torch.softmax(z, dim=-1)":
        "torch.softmax(z, dim=-1) * temperature",
    },
    "top-k-logit-zero": {
        TOP_K: "z * (z >= kth)", "probs >= smallest": f"{SUM_TO} - probs < p", **ALL_WORDS
    },
    "top-p-of-all-words: top-p first": {
        TOP_K: "z", "torch.where(X, probs, 0.0)": "torch.where(X & (z >= kth), probs, 0.0)",
        **ALL_WORDS,
    },
    "top-p-of-all-words": {f"z = {TOP_K}": "pass", "torch.softmax(z, dim=-1)":
                           "torch.softmax(z, dim=-1) * (z >= kth)"},
    "top-p-one-short": {CLAMP: "(X - 1).clamp(min=0)"},
    "top-p-one-short: the word that reaches p": {"probs >= smallest": f"{SUM_TO} <= p"},
    "top-p-by-rank": {"torch.softmax(z, dim=-1)":
                      "torch.softmax(z, dim=-1).sort(-1, descending=True).values"},
    "each word is compared with p": {"probs >= smallest": "probs >= 1 - p"},
    "the smallest words are kept": {"z.topk(k, dim=-1)": "(-z).topk(k, dim=-1)",
                                    "z < kth": "-z < kth"},
    "one threshold for the batch": {"kth = X": "kth = z.flatten().topk(k).values[-1]"},
    "k + 1 words": {"z.topk(k, dim=-1)": "z.topk(min(k + 1, z.size(-1)), dim=-1)", **ALL_WORDS},
    "not divided by the sum": {"probs / X": "probs"},
    "top-p is missing": {"probs >= smallest": "probs >= 0"},
    "top-k is missing": {TOP_K: "z", **ALL_WORDS},
    "softmax over the batch": {"torch.softmax(z, dim=-1)": "torch.softmax(z, dim=0)"},
    "the best word alone": {"return X": "return F.one_hot(z.argmax(-1), z.size(-1)).double()"},
    "the remaining words are equal": {"torch.where(X, probs, 0.0)": "X.double()"},
    "softmax twice": {"return X": "return X.softmax(-1)"},
}  # fmt: skip


@right("by-hand-grouped-query-attention")
def head_by_head(x, w_q, w_k, w_v, w_o, n_heads, n_kv):
    group, outputs = n_heads // n_kv, []
    q, k, v = (F.linear(x, w) for w in (w_q, w_k, w_v))
    q_heads, k_heads, v_heads = q.chunk(n_heads, -1), k.chunk(n_kv, -1), v.chunk(n_kv, -1)
    for h in range(n_heads):
        g = h // group
        scores = torch.bmm(q_heads[h], k_heads[g].transpose(1, 2)) / math.sqrt(q_heads[h].size(-1))
        outputs.append(torch.bmm(torch.softmax(scores, dim=-1), v_heads[g]))
    return F.linear(torch.cat(outputs, dim=-1), w_o)


@right("by-hand-grouped-query-attention")
def groups_by_einsum(x, w_q, w_k, w_v, w_o, n_heads, n_kv):
    q = rearrange(x @ w_q.T, "b s (kv group d) -> b kv group s d", kv=n_kv, group=n_heads // n_kv)
    k, v = (rearrange(x @ w.T, "b s (kv d) -> b kv s d", kv=n_kv) for w in (w_k, w_v))
    scores = einsum(q, k, "b kv group i d, b kv j d -> b kv group i j") * q.size(-1) ** -0.5
    out = einsum(scores.softmax(-1), v, "b kv group i j, b kv j d -> b kv group i d")
    return rearrange(out, "b kv group i d -> b i (kv group d)") @ w_o.T


@right("by-hand-grouped-query-attention")
def heads_expanded(x, w_q, w_k, w_v, w_o, n_heads, n_kv):
    """Expand a new axis, as `repeat_kv` of Transformers does."""

    def heads(weight, number):
        return (x @ weight.mT).view(*x.shape[:2], number, -1).transpose(1, 2)

    def shared(kv):
        batch, _, seq, width = kv.shape
        kv = kv[:, :, None].expand(batch, n_kv, n_heads // n_kv, seq, width)
        return kv.reshape(batch, n_heads, seq, width)

    out = F.scaled_dot_product_attention(
        heads(w_q, n_heads), shared(heads(w_k, n_kv)), shared(heads(w_v, n_kv))
    )
    return out.transpose(1, 2).reshape(*x.shape[:2], -1) @ w_o.mT


WRONG["by-hand-grouped-query-attention"] = {
    "kv-tiled": {"h // group": "h % n_kv"},
    "kv-first-head": {"h // group": "h // n_heads"},
    "the last head of keys and values": {"h // group": "n_kv - 1"},
    "the heads of keys and values are averaged": {
        "g = X": "g = 0\nk_heads, v_heads = ([sum(y) / len(y)] for y in (k_heads, v_heads))"
    },
    "the keys of one group and the values of another": {"v_heads[g]": "v_heads[h % n_kv]"},
    "each head is repeated once for each group": {"h // group": "h // n_kv"},
    "the query heads are in another order": {
        "torch.bmm(q_heads[h], K)": "torch.bmm(q_heads[(h % group) * n_kv + g], K)"
    },
    "merge-no-transpose": {"torch.cat(outputs, dim=-1)":
                           "torch.stack(outputs, 1).reshape(*x.shape[:2], -1)"},
    "the outputs are added": {"torch.cat(outputs, dim=-1)":
                              "torch.cat([sum(outputs)] * n_heads, dim=-1)"},
    "scale-missing": {"X / math.sqrt(D)": "X"},
    "scale-d_model": {"math.sqrt(D)": "math.sqrt(x.size(-1))"},
    "the scale of the whole width": {"math.sqrt(D)": "math.sqrt(q.size(-1))"},
    "softmax-queries": {"torch.softmax(scores, dim=-1)": "torch.softmax(scores, dim=1)"},
    "split-interleaved": {
        "q, k, v = X": "w_q, w_k, w_v = (rearrange(w, '(d h) m -> (h d) m', h=n) for w, n in "
        "((w_q, n_heads), (w_k, n_kv), (w_v, n_kv)))\nq, k, v = X"
    },
    "a causal mask": {"torch.softmax(scores, dim=-1)": "torch.softmax(scores.masked_fill("
                      "torch.ones_like(scores[0]).triu(1).bool(), -math.inf), dim=-1)"},
    "no output matrix": {"F.linear(C, w_o)": "C @ torch.eye(w_o.size(1), w_o.size(0))"},
}  # fmt: skip


@right("by-hand-attention-with-rotary")
def rotated_numbers(q, k, v, start):
    """Multiply complex numbers."""
    width, places = q.size(-1), torch.arange(start, start + q.size(-2))
    inv_freq = 1.0 / 10000 ** (torch.arange(0, width, 2) / width)
    freqs = torch.outer(places.double(), inv_freq.double())
    unit = torch.polar(torch.ones_like(freqs), freqs)

    def apply(x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * unit).flatten(-2)

    q, k = apply(q), apply(k)
    return F.scaled_dot_product_attention(q, k, v), k


@right("by-hand-attention-with-rotary")
def repeated_angles(q, k, v, start):
    """Repeat each angle for its pair, and add the rotated neighbours."""
    d = q.size(-1)
    theta = torch.tensor([10000 ** (-2 * (i // 2) / d) for i in range(d)], dtype=q.dtype)
    angle = torch.arange(start, start + q.size(2), dtype=q.dtype)[:, None] * theta

    def neighbours(x):
        return rearrange(torch.stack((-x[..., 1::2], x[..., ::2])), "two b h s p -> b h s (p two)")

    q, k = (x * angle.cos() + neighbours(x) * angle.sin() for x in (q, k))
    scores = einsum(q, k, "b h i d, b h j d -> b h i j") / math.sqrt(d)
    return scores.softmax(-1) @ v, k


@right("by-hand-attention-with-rotary")
def rotation_matrices(q, k, v, start):
    """Multiply each vector by a matrix with a block for each pair."""
    d, rows = q.size(-1), []
    for position in range(start, start + q.size(-2)):
        angles = [torch.tensor(position * 10000 ** (-2 * i / d)) for i in range(d // 2)]
        blocks = [torch.stack([a.cos(), -a.sin(), a.sin(), a.cos()]).view(2, 2) for a in angles]
        rows.append(torch.block_diag(*blocks).to(q.dtype))
    matrix = torch.stack(rows)
    q, k = (einsum(matrix, x, "s out d, b h s d -> b h s out") for x in (q, k))
    return F.scaled_dot_product_attention(q, k, v), k


BOTH, FREQS = "q, k = apply(q), apply(k)", "torch.outer(places.double(), inv_freq.double())"
WRONG["by-hand-attention-with-rotary"] = {
    "rotary-halves": {"torch.view_as_complex(X)": "torch.complex(*x.chunk(2, -1))",
                      "torch.view_as_real(X).flatten(-2)": "torch.view_as_real(X).mT.flatten(-2)"},
    "rotary-position-missing": {FREQS: "inv_freq.double().expand(len(places), -1)"},
    "rotary-one-frequency": {"1.0 / X": "torch.ones(width // 2)"},
    "rotary-one-frequency: of the position alone": {
        FREQS: "places.double()[:, None].expand(-1, width // 2)"
    },
    "nothing is rotated": {BOTH: "pass"},
    "rotary-values-turned": {BOTH: "q, k, v = apply(q), apply(k), apply(v)"},
    "only the queries are rotated": {BOTH: "q = apply(q)"},
    "only the keys are rotated": {BOTH: "k = apply(k)"},
    "rotary-start-ignored": {"torch.arange(start, start + q.size(-2))":
                             "torch.arange(q.size(-2))"},
    "rotary-one-late": {"torch.arange(start, start + q.size(-2))":
                        "torch.arange(start + 1, start + 1 + q.size(-2))"},
    "rotary-clockwise": {"torch.polar(X, freqs)": "torch.polar(X, -freqs)"},
    "frequencies that increase": {"1.0 / X": "X"},
    "the exponent lacks its 2": {"torch.arange(0, width, 2)": "torch.arange(width // 2)"},
    "rotary-frequency-one": {"torch.arange(0, width, 2)": "torch.arange(2, width + 2, 2)"},
    "the base of Llama 3": {"10000 ** X": "500000 ** X"},
    "rotary-head-axis": {
        "torch.arange(start, start + q.size(-2))": "torch.arange(start, start + q.size(1))",
        "pairs * unit": "pairs * unit[:, None]",
    },
    "sine and cosine are exchanged": {"torch.polar(X, freqs)": "torch.polar(X, torch.pi / 2 - "
                                      "freqs)"},
    "the keys are returned as they were": {BOTH: "q, old, k = apply(q), k, apply(k)",
                                           "return Y, k": "return Y, old"},
    "scale-missing": {"F.scaled_dot_product_attention(q, k, v)":
                      "F.scaled_dot_product_attention(q, k, v, scale=1.0)"},
    "a causal mask": {"F.scaled_dot_product_attention(q, k, v)":
                      "F.scaled_dot_product_attention(q, k, v, is_causal=True)"},
    "angles are added": {"pairs * unit": "pairs + unit"},
}  # fmt: skip


@right("09-swiglu")
def swiglu_by_exponentials(x, gate, up, down):
    z = F.linear(x, gate)
    hidden = z / (1 + torch.exp(-z)) * F.linear(x, up)
    return F.linear(hidden, down)


@right("09-swiglu")
def swiglu_by_einsum(x, w1, w3, w2):
    g = einsum(x, w1, "b s d, f d -> b s f")
    hidden = einsum(torch.sigmoid(g), g, einsum(x, w3, "b s d, f d -> b s f"),
                    "b s f, b s f, b s f -> b s f")  # fmt: skip
    return einsum(hidden, w2, "b s f, d f -> b s d")


@right("09-swiglu")
class GatedLayer(nn.Module):
    """Register the matrices in a module, as a model does."""

    def __new__(cls, x, gate, up, down):
        layer = super().__new__(cls)
        nn.Module.__init__(layer)
        layer.matrices = gate, up, down
        return layer(x)

    def forward(self, x):
        gate, up, down = (weight.mT for weight in self.matrices)
        z = x @ gate
        return (z * (0.5 + 0.5 * torch.tanh(z / 2)) * (x @ up)) @ down


@right("09-swiglu")
def gate_and_up_in_one_product(x, gate, up, down):
    g, u = F.linear(x, torch.cat([gate, up])).chunk(2, dim=-1)
    return F.linear(g * u * g.sigmoid(), down)


SILU, UP = "z / (1 + torch.exp(-z))", "F.linear(x, up)"
WRONG["09-swiglu"] = {
    "gate-up-swapped": {"z = X": "gate, up = up, gate\nz = X", SILU: "F.silu(z)"},
    "the gate of F.glu": {SILU: "torch.sigmoid(z)"},
    "no activation": {SILU: "z"},
    "SiLU on both": {UP: f"F.silu({UP})"},
    "ReLU instead of SiLU": {SILU: "z.relu()"},
    "GELU by tanh": {SILU: 'F.gelu(z, approximate="tanh")'},
    "the swish of 1.702": {SILU: "z * torch.sigmoid(1.702 * z)"},
    "up is missing": {f"X * {UP}": "X"},
    "the gate is missing": {f"X * {UP}": "X", "z = X": f"z = {UP}"},
    "the sign in the exponential": {"torch.exp(-z)": "torch.exp(z)"},
    "softmax instead of a sigmoid": {SILU: "z * z.softmax(-1)"},
    "SiLU of the output": {SILU: "z", "return X": "return F.silu(X)"},
    "a residual connection": {"return X": "return x + X"},
    "up is added once more": {f"X * {UP}": f"(X + 1) * {UP}"},
}


@right("by-hand-log-sum-exp")
def largest_taken_out(scores):
    top = scores.max(dim=-1, keepdim=True).values
    powers = torch.exp(scores - top)
    return torch.log(torch.sum(powers, dim=-1)) + top.squeeze(-1)


@right("by-hand-log-sum-exp")
def word_by_word(scores):
    running = scores[..., 0]
    for column in scores.unbind(-1)[1:]:
        top, low = torch.maximum(running, column), torch.minimum(running, column)
        running = top + torch.log1p(torch.exp(low - top))
    return running


@right("by-hand-log-sum-exp")
def log_sum_exp_by_einops(scores):
    top = reduce(scores.detach(), "b t v -> b t", "max")
    rest = scores - rearrange(top, "b t -> b t 1")
    return top + reduce(rest.exp(), "b t v -> b t", "sum").log()


WRONG["by-hand-log-sum-exp"] = {
    "logsumexp-overflow": {"scores - top": "scores", "X + top.squeeze(-1)": "X"},
    "a small number inside the logarithm, and it overflows": {
        "scores - top": "scores", "torch.log(X) + Y": "torch.log(X + 1e-12)"
    },
    "logsumexp-maximum-lost": {"X + top.squeeze(-1)": "X"},
    "logsumexp-shared-maximum": {"top = X": "top = scores.max()"},
    "logsumexp-shared-maximum: the one of each sentence": {"top = X":
                                                           "top = scores.amax((1, 2), True)"},
    "the sum of the logarithms": {"return X": "return scores.exp().log().sum(-1)"},
    "the sum of the scores": {"return X": "return scores.sum(-1)"},
    "logsumexp-maximum-subtracted": {"X + top.squeeze(-1)": "X - top.squeeze(-1)"},
    "a mean instead of a sum": {"torch.sum(powers, dim=-1)": "torch.mean(powers, dim=-1)"},
    "the sum runs over the words": {"top = X": "scores = scores.mT\ntop = X"},
    "the axis of size one is kept": {"return X": "return X.unsqueeze(-1)"},
    "the largest score alone": {"torch.log(X) + Y": "Y"},
    "logarithms to base two": {"torch.log(X)": "torch.log2(X)"},
    "the smallest score is taken out": {"scores.max(dim=-1, keepdim=True)":
                                        "scores.min(dim=-1, keepdim=True)"},
    "a log of one plus the sum": {"torch.log(X)": "torch.log1p(X)"},
    "no logarithm": {"torch.log(X)": "X"},
}  # fmt: skip


@right("13-loss")
def loss_by_a_one_hot_product(logits, labels):
    counted = labels.ne(-100)
    hot = F.one_hot(labels.where(counted, 0), logits.size(-1)).to(logits.dtype)
    right_scores = einsum(hot, logits, "b t v, b t v -> b t")
    each = torch.logsumexp(logits, -1) - right_scores
    return (each * counted).sum() / counted.sum()


class TokenLoss(nn.Module):
    """Write the log probabilities out."""

    def forward(self, logits, labels):
        rows, words = logits.flatten(0, 1), labels.flatten()
        rows, words = rows[words >= 0], words[words >= 0]
        rows = rows - rows.max(-1, keepdim=True).values
        log_p = rows - rows.exp().sum(-1, keepdim=True).log()
        return -log_p[range(len(words)), words].mean()


RIGHT.append(Answer("13-loss", lambda logits, labels: TokenLoss()(logits, labels)))


@right("13-loss")
def cross_entropy_with_classes_second(logits, labels):
    return F.cross_entropy(rearrange(logits, "b t v -> b v t"), labels)


EACH, COUNTED = "torch.logsumexp(logits, -1) - right_scores", "counted = labels.ne(-100)"
WRONG["13-loss"] = {
    "softmax-before-loss": {COUNTED: f"logits = logits.softmax(-1)\n{COUNTED}"},
    "logits-flattened-wrong": {
        COUNTED: f"logits = logits.transpose(0, 1).reshape(logits.shape)\n{COUNTED}"
    },
    "softmax over the words": {COUNTED: f"logits = logits.log_softmax(1)\n{COUNTED}",
                               EACH: "-right_scores"},
    "powers that overflow": {"torch.logsumexp(logits, -1)": "logits.exp().sum(-1).log()"},
    "the logarithm of a softmax": {
        EACH: "-logits.softmax(-1).log().gather(-1, labels.where(counted, 0)[..., None])[..., 0]",
        "(each * counted)": "each[counted]",
    },
    "a small number in the logarithm": {
        "einsum(hot, logits, E)": "einsum(hot, (logits.softmax(-1) + 1e-9).log(), E)",
        EACH: "-right_scores",
    },
    "the score of the label without log-sum-exp": {EACH: "-right_scores"},
    "the sign of the probability": {"return X": "return -X"},
    "word 0 is ignored too": {"labels.ne(-100)": "labels > 0"},
    "the mean over the batch only": {"X / counted.sum()": "X / len(labels)"},
    "the loss of the most probable word": {"labels.where(counted, 0)": "logits.argmax(-1)"},
    "labels before the logits are shifted": {
        COUNTED: f"logits, labels = logits[:, 1:], labels[:, :-1]\n{COUNTED}"
    },
    "one loss for each word": {"return X": "return each * counted"},
    "smoothed labels": {
        EACH: "torch.logsumexp(logits, -1) - 0.9 * right_scores - 0.1 * logits.mean(-1)"
    },
    "the mean over the vocabulary as well": {"return X": "return X / logits.size(-1)"},
}  # fmt: skip


@right("by-hand-softmax")
def softmax_with_max_values(x, dim):
    m = torch.max(x, dim=dim, keepdim=True).values
    e = torch.exp(x - m)
    return e / e.sum(dim=dim, keepdim=True)


@right("by-hand-softmax")
def softmax_on_the_last_axis(x, axis):
    """Move the axis to the end, detach the maximum, and work with logarithms."""
    rows = x.movedim(axis, -1)
    rows = rows - rows.detach().amax(-1)[..., None]
    log_sum = torch.log(torch.einsum("...k->...", rows.exp()))
    return torch.exp(rows - log_sum[..., None]).movedim(-1, axis)


class StableSoftmax(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim % 3

    def forward(self, x):
        rows = rearrange(x, "b q k -> b k q") if self.dim == 1 else x
        e = torch.exp(rows - reduce(rows, "b q k -> b q 1", "max"))
        e = e / reduce(e, "b q k -> b q 1", "sum")
        return rearrange(e, "b k q -> b q k") if self.dim == 1 else e


RIGHT.append(Answer("by-hand-softmax", lambda x, dim: StableSoftmax(dim)(x)))
MAXIMUM, SUM = "torch.max(x, dim=dim, keepdim=True).values", "e.sum(dim=dim, keepdim=True)"
WRONG["by-hand-softmax"] = {
    "softmax-overflow": {"x - m": "x"},
    "softmax-last-axis": {"m = X": "dim = -1\nm = X"},
    "softmax-shared-maximum": {MAXIMUM: "x.max()"},
    "softmax-shared-maximum: that of each sentence": {MAXIMUM: "x.amax((1, 2), True)"},
    "softmax-shifted-above": {SUM: "torch.exp(x).sum(dim, True)"},
    "softmax-sum-of-all": {SUM: "e.sum()"},
    "the maximum is that of the last axis": {MAXIMUM: "x.amax(-1, True)"},
    "the sum is that of the last axis": {SUM: "e.sum(-1, True)"},
    "the axis is lost": {SUM: "e.sum(dim=dim)"},
    "the axis of the maximum is lost": {MAXIMUM: "x.amax(dim)"},
    "clamped scores": {"x - m": "x.clamp(-80, 80)"},
    "a small number in the denominator": {SUM: f"({SUM} + 1e-4)"},
    "no exponential": {"torch.exp(X)": "x"},
    "the mean is subtracted": {MAXIMUM: "x.mean(dim, keepdim=True)"},
    "the denominator is cut off": {SUM: "e.detach().sum(dim=dim, keepdim=True)"},
    "rounded to two decimals": {"return X": "return X.round(decimals=2)"},
    "a sigmoid": {"return X": "return torch.sigmoid(x)"},
    "the absolute maximum": {MAXIMUM: "x.abs().amax(dim, keepdim=True)"},
}


@right("by-hand-masked-attention")
def attention_with_a_bias(q, k, v, ids):
    n, m = q.shape[-2], k.shape[-2]
    rows = torch.arange(m - n, m)[:, None]
    visible = (torch.arange(m)[None] <= rows)[None, None] & ids.bool()[:, None, None]
    bias = torch.zeros(visible.shape).masked_fill(~visible, -1e30)
    weights = torch.softmax(q @ k.transpose(-1, -2) * q.size(-1) ** -0.5 + bias, dim=-1)
    return (weights * visible) @ v


@right("by-hand-masked-attention")
def query_by_query_over_visible_keys(query, key, value, ids):
    out = query.new_zeros(*query.shape[:-1], value.size(-1))
    before = key.size(2) - query.size(2)
    for b, words in enumerate(ids.tolist()):
        for i in range(query.size(2)):
            seen = [j for j in range(before + i + 1) if words[j] != 0]
            scores = einsum(query[b, :, i], key[b, :, seen], "h d, h k d -> h k")
            weights = (scores / math.sqrt(query.size(3))).softmax(-1)
            out[b, :, i] = einsum(weights, value[b, :, seen], "h k, h k d -> h d")
    return out


class MaskedAttention(nn.Module):
    def forward(self, query, key, value, ids):
        scores = einsum(query, key, "b h q d, b h k d -> b h q k") / key.shape[-1] ** 0.5
        padding = rearrange(ids == 0, "b k -> b 1 1 k")
        future = torch.ones(scores.shape[-2:]).triu(1 + scores.size(-1) - scores.size(-2)) == 1
        weights = scores.masked_fill(padding | future, -math.inf).softmax(-1)
        return weights.nan_to_num() @ value


RIGHT.append(Answer("by-hand-masked-attention", lambda *given: MaskedAttention()(*given)))


VISIBLE = "ids.bool()[:, None, None]"
BOTH_MASKS, CAUSAL = "X & ids.bool()[:, None, None]", "torch.arange(m)[None] <= rows"
VISIBLE, UNMASKED = "ids.bool()[:, None, None]", {"(weights * visible)": "weights"}
WRONG["by-hand-masked-attention"] = {
    "masks-either": {BOTH_MASKS: f"X | {VISIBLE}"},
    "masks-padding-visible": {BOTH_MASKS: "X"},
    "masks-future-visible": {BOTH_MASKS: VISIBLE},
    "mask-inverted: both": {"visible = X": "visible = ~(X)"},
    "mask-inverted: only that of padding": {"ids.bool()": "(ids == 0)"},
    "causal-corner": {"torch.arange(m - n, m)": "torch.arange(n)"},
    "causal-diagonal": {CAUSAL: "torch.arange(m)[None] < rows"},
    "causal-triu": {CAUSAL: "torch.arange(m)[None] >= rows"},
    "one word of the future": {CAUSAL: "torch.arange(m)[None] <= rows + 1"},
    "mask-finite": UNMASKED,
    "mask-empty-row": {"-1e30": "-math.inf", **UNMASKED},
    "mask-multiplied": {"X + bias": "X * visible", **UNMASKED},
    "mask-after-softmax": {"X + bias": "X"},
    "mask-query-axis": {VISIBLE: "ids.bool()[:, None, :, None]"},
    "mask-head-axis": {VISIBLE: "ids.bool()[:, None]"},
    "scale-missing": {"q.size(-1) ** -0.5": "1"},
    "the values are hidden, the scores are not": {
        BOTH_MASKS: "X",
        "W @ v": "W @ (v * ids.bool()[:, None, :, None])",
    },
    "a small finite bias": {"-1e30": "-5.0", **UNMASKED},
    "the last id is taken for padding": {VISIBLE: "(ids != ids.amax())[:, None, None]"},
}


@right("by-hand-sinusoidal-encoding")
class AddedSines(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        pos = torch.arange(max_len, dtype=torch.float64)[:, None]
        div = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)[:, : d_model // 2]
        self.register_buffer("table", pe)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


@right("by-hand-sinusoidal-encoding")
class AddedInALoop(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        table = torch.empty(length, width)
        for pos, i in itertools.product(range(length), range(width)):
            angle = pos / 10000 ** ((i - i % 2) / width)
            table[pos, i] = math.cos(angle) if i % 2 else math.sin(angle)
        self.table = nn.Buffer(table)

    def forward(self, x):
        return torch.stack(
            [word + row for word, row in zip(x.unbind(1), self.table, strict=False)], 1
        )


@right("by-hand-sinusoidal-encoding")
class AddedByEinops(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        pairs = torch.logspace(0, -8 * ((d - 1) // 2) / d, (d + 1) // 2)
        angles = einsum(torch.arange(n).double(), pairs, "p, i -> p i")
        both = torch.stack([angles.sin(), angles.cos()])
        self.register_buffer("table", rearrange(both, "two p i -> p (i two)")[:, :d])

    def forward(self, x):
        return x + repeat(self.table[: x.size(1)], "p i -> b p i", b=len(x))


DIV, SINE, COSINE = (
    "torch.arange(0, d_model, 2) * S",
    "torch.sin(pos * div)",
    "torch.cos(pos * div)",
)
WRONG["by-hand-sinusoidal-encoding"] = {
    "pe-positive-exponent": {"-math.log(10000.0)": "math.log(10000.0)"},
    "pe-sin-cos-halves": {
        "pe[:, 0::2]": "pe[:, : (d_model + 1) // 2]", "pe[:, 1::2]": "pe[:, (d_model + 1) // 2 :]",
    },
    "pe-batch-index": {"self.table[: x.shape[1]]": "self.table[: x.shape[0]]"},
    "pe-sequence-first": {"self.table[: x.shape[1]]": "self.table[: x.shape[0], None]"},
    "the whole table is added": {"self.table[: x.shape[1]]": "self.table"},
    "an odd width fails": {"torch.cos(pos * div)[:, : d_model // 2]": COSINE},
    "the exponent lacks its factor of two": {DIV: f"({DIV}) / 2"},
    "the factor of two is there twice": {DIV: f"2 * {DIV}"},
    "sine and cosine are exchanged": {
        "pe[:, 0::2] = X": f"pe[:, 0::2] = {COSINE}",
        "torch.cos(pos * div)[:, : d_model // 2]": f"{SINE}[:, : d_model // 2]",
    },
    "positions are counted from one": {
        "torch.arange(max_len, dtype=X)": "torch.arange(1, max_len + 1)"
    },
    "the base is 1000": {"10000.0": "1000.0"},
    "the words are scaled": {"x + T": "x * math.sqrt(x.size(-1)) + T"},
    "the words are multiplied": {"x + T": "x * T"},
    "the positions alone": {"x + T": "T.expand_as(x)"},
    "all tokens get one row": {"self.table[: x.shape[1]]": "self.table[x.shape[1]]"},
    "the table is trained": {
        'self.register_buffer("table", pe)': 'self.register_parameter("table", nn.Parameter(pe))'
    },
    "the table is no buffer": {'self.register_buffer("table", pe)': 'setattr(self, "table", pe)'},
    "x is changed": {"x + T": "x.add_(T)"},
    "the table has a batch axis": {'self.register_buffer("table", pe)':
                                   'self.register_buffer("table", pe[None])',
                                   "self.table[: x.shape[1]]": "self.table[:, : x.shape[1]]"},
}  # fmt: skip


@right("10-encoder-layer")
class PreNormLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff):
        super().__init__()
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.look = MultiHeadAttention(d_model, num_heads)
        self.think = FeedForward(d_model, d_ff)

    def forward(self, x, mask=None):
        h = self.norm1(x)
        x = x + self.look(h, h, h, mask)
        h = self.norm2(x)
        x = x + self.think(h)
        return x


@right("10-encoder-layer")
class LayerOfTwoSublayers(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.look = MultiHeadAttention(width, heads)
        self.think = FeedForward(width, hidden)
        self.norm1, self.norm2 = (LayerNorm(width) for _ in range(2))

    def forward(self, x, src_mask):
        def attend(y):
            return self.look(y, y, y, src_mask)

        for norm, sublayer in ((self.norm1, attend), (self.norm2, self.think)):
            x = torch.add(x, sublayer(norm(x)))
        return x


@right("10-encoder-layer")
class LayerByMatrices(nn.Module):
    def __init__(self, d, heads, d_ff):
        super().__init__()
        self.look, self.think = MultiHeadAttention(d, heads), FeedForward(d, d_ff)
        self.norm1, self.norm2 = LayerNorm(d), LayerNorm(d)
        self.heads = heads

    def forward(self, x, mask):
        h = F.layer_norm(x, x.shape[-1:], self.norm1.weight, self.norm1.bias)
        projected = (self.look.w_q(h), self.look.w_k(h), self.look.w_v(h))
        q, k, v = (rearrange(y, "b s (h d) -> b h s d", h=self.heads) for y in projected)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.look.w_o(rearrange(mixed, "b h s d -> b s (h d)"))
        return x + self.think(self.norm2(x))


LOOK, FIRST = "self.look(h, h, h, mask)", "x = x + self.look(h, h, h, mask)"
WRONG["10-encoder-layer"] = {
    "residual-missing: in both sums": {FIRST: f"x = {LOOK}", "x = x + self.think(h)":
                                       "x = self.think(h)"},
    "residual-missing: around the attention": {FIRST: f"x = {LOOK}"},
    "residual-missing: around the feed-forward layer": {"x = x + self.think(h)":
                                                        "x = self.think(h)"},
    "residual-overwritten": {"h = self.norm1(x)": "x = h = self.norm1(x)",
                             "h = self.norm2(x)": "x = h = self.norm2(x)"},
    "residual-overwritten: before the attention": {"h = self.norm1(x)": "x = h = self.norm1(x)"},
    "norm-bypassed: in the attention": {LOOK: "self.look(x, x, x, mask)"},
    "norm-bypassed: in the feed-forward layer": {"self.think(h)": "self.think(x)"},
    "norm-order": {
        "h = self.norm1(x)": "h = x", FIRST: f"x = self.norm1(x + {LOOK})",
        "h = self.norm2(x)": "h = x", "x = x + self.think(h)": "x = self.norm2(x + self.think(h))",
    },
    "padding-mask-missing": {LOOK: "self.look(h, h, h)"},
    "one norm for both sublayers": {"self.norm2(x)": "self.norm1(x)"},
    "the norms are exchanged": {
        "h = self.norm1(x)": "first, second = self.norm2, self.norm1\nh = first(x)",
        "h = self.norm2(x)": "h = second(x)",
    },
    "only the query is normalised": {LOOK: "self.look(h, x, x, mask)"},
    "the values are not normalised": {LOOK: "self.look(h, h, x, mask)"},
    "the second sum starts from the input": {FIRST: f"y = x + {LOOK}", "self.norm2(x)":
                                             "self.norm2(y)"},
    "the feed-forward layer reads the input": {"h = self.norm1(x)": "h, start = self.norm1(x), x",
                                               "self.norm2(x)": "self.norm2(start)"},
    "the norms are applied to the outputs": {
        "h = self.norm1(x)": "h = x", LOOK: f"self.norm1({LOOK})",
        "h = self.norm2(x)": "h = x", "self.think(h)": "self.norm2(self.think(h))",
    },
    "a norm follows the layer": {"return x": "return self.norm2(x)"},
    "the mask is inverted": {LOOK: "self.look(h, h, h, None if mask is None else ~mask)"},
    "the feed-forward layer comes first": {
        "h = self.norm1(x)": "x = x + self.think(self.norm2(x))\nh = self.norm1(x)",
        "x = x + self.think(h)": "pass",
    },
    "both sublayers read the same numbers": {"h = self.norm2(x)": "pass"},
    "the attention is left out": {FIRST: "pass"},
}  # fmt: skip


@right("11-decoder-layer")
def three_sums(x, memory, back, across, think, norms, tgt_mask, src_mask):
    norm1, norm2, norm3 = norms
    h = norm1(x)
    x = x + back(h, h, h, tgt_mask)
    h = norm2(x)
    x = x + across(h, memory, memory, src_mask)
    h = norm3(x)
    return x + think(h)


class WritingLayer(nn.Module):
    def __init__(self, back, across, think, norms):
        super().__init__()
        self.sublayers = nn.ModuleList([back, across, think])
        self.norms = norms

    def forward(self, x, memory, tgt_mask, src_mask):
        for number, (norm, sublayer) in enumerate(zip(self.norms, self.sublayers, strict=True)):
            y = norm(x)
            inputs = [(y, y, y, tgt_mask), (y, memory, memory, src_mask), (y,)][number]
            x = x + sublayer(*inputs)
        return x


RIGHT.append(
    Answer(
        "11-decoder-layer",
        lambda x, memory, back, across, think, norms, tgt_mask, src_mask: WritingLayer(
            back, across, think, norms
        )(x, memory, tgt_mask, src_mask),
    )
)


@right("11-decoder-layer")
def sums_of_matrices(x, memory, back, across, think, norms, tgt_mask, src_mask):
    def attend(layer, query, source, mask):
        q, k, v = (
            rearrange(y, "b s (h d) -> b h s d", h=layer.num_heads)
            for y in (layer.w_q(query), layer.w_k(source), layer.w_v(source))
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return layer.w_o(rearrange(mixed, "b h s d -> b s (h d)"))

    h = norms[0](x)
    y = x + attend(back, h, h, tgt_mask)
    z = y + attend(across, norms[1](y), memory, src_mask)
    return z + think(norms[2](z))


BACK, ACROSS = "back(h, h, h, tgt_mask)", "across(h, memory, memory, src_mask)"
WRONG["11-decoder-layer"] = {
    "causal-missing": {BACK: "back(h, h, h)"},
    "padding-mask-missing": {ACROSS: "across(h, memory, memory)"},
    "cross-memory-unused": {ACROSS: "across(h, h, h, None)"},
    "cross-value-target": {ACROSS: "across(h, memory, h, src_mask)"},
    "residual-missing: around the self-attention": {f"x + {BACK}": BACK},
    "residual-missing: around the cross-attention": {f"x + {ACROSS}": ACROSS},
    "residual-missing: around the feed-forward layer": {"x + think(h)": "think(h)"},
    "residual-overwritten: everywhere": {
        "h = norm1(x)": "x = h = norm1(x)", "h = norm2(x)": "x = h = norm2(x)",
        "h = norm3(x)": "x = h = norm3(x)",
    },
    "norm-bypassed: before the feed-forward layer": {"think(h)": "think(x)"},
    "norm-order": {
        "h = norm1(x)": "h = x", f"x + {BACK}": f"norm1(x + {BACK})",
        "h = norm2(x)": "h = x", f"x + {ACROSS}": f"norm2(x + {ACROSS})",
        "h = norm3(x)": "h = x", "x + think(h)": "norm3(x + think(h))",
    },
    "the masks are exchanged": {BACK: "back(h, h, h, src_mask)",
                                ACROSS: "across(h, memory, memory, tgt_mask)"},
    "the cross-attention comes first": {
        f"x = x + {ACROSS}": "pass", "h = norm1(x)": f"h = norm2(x)\nx = x + {ACROSS}\nh = norm1(x)"
    },
    "the cross-attention is left out": {f"x = x + {ACROSS}": "pass"},
    "the self-attention is left out": {f"x = x + {BACK}": "pass"},
    "the memory is normalised": {ACROSS: "across(h, norm2(memory), norm2(memory), src_mask)"},
    "the memory asks the target": {ACROSS: "across(memory, h, h, tgt_mask)"},
    "one norm for all three": {"norm1, norm2, norm3 = norms": "norm1 = norm2 = norm3 = norms[0]"},
    "the norms are in reversed order": {"norm1, norm2, norm3 = norms":
                                        "norm3, norm2, norm1 = norms"},
    "only the query of the self-attention is normalised": {BACK: "back(h, x, x, tgt_mask)"},
    "the cross-attention reads the first norm": {"h = norm2(x)": "pass"},
    "the self-attention is run twice": {"h = norm3(x)": f"x = x + {BACK}\nh = norm3(x)"},
    "all sublayers read the input": {"h = norm1(x)": "start = x\nh = norm1(x)",
                                     "h = norm2(x)": "h = norm2(start)",
                                     "h = norm3(x)": "h = norm3(start)"},
}  # fmt: skip


HEADS, MERGED = (
    '"(h d) m -> h d m"',
    {"mixed.flatten(2)": "mixed.transpose(1, 2).reshape(*x.shape[:2], -1)"},
)
BY_VIEW = {
    "q, k, v = X": "q, k, v = ((z @ w.mT).view(len(z), h, z.size(1), -1) "
    "for z, w in ((x, w_q), (y, w_k), (y, w_v)))",
    "logits = X": "logits = q @ k.mT / math.sqrt(q.size(-1))",
    "mixed = X": "mixed = (logits.softmax(-1) @ v).transpose(1, 2)",
}
WRONG["06-multi-head-attention"] |= {
    "split and merged by view": BY_VIEW | MERGED,
    "split-view": BY_VIEW,
    "merge-no-transpose": MERGED,
    "split-interleaved": {HEADS: '"(d h) m -> h d m"'},
    "softmax twice": {"logits.softmax(-1)": "logits.softmax(-1).softmax(-1)"},
    "softmax-heads": {"logits.softmax(-1)": "logits.softmax(1)"},
    "softmax-queries": {"logits.softmax(-1)": "logits.softmax(2)"},
    "the keys have the matrix of the queries": {"(w_q, w_k, w_v)": "(w_q, w_q, w_v)"},
    "no softmax": {"logits.softmax(-1)": "logits"},
}
