"""Answers to the tasks of the pages to write by hand, in the form of `wrong_answers`."""

import itertools
import math
from collections import Counter

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce, repeat
from torch import nn

from tests.course.wrong_answers import RIGHT, WRONG, Answer, right
from twelve import FeedForward, LayerNorm, MultiHeadAttention


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


def blocks(step):
    """Write the loop over blocks with another step from the old state to the new one."""

    def answer(scores, block_len):
        state, states = (None, None), []
        for block in scores.split(block_len, -1):
            state = step(*state, block)
            states.append(state)
        return tuple(torch.stack(each, -1) for each in zip(*states, strict=True))

    return answer


def first_or(step):
    """Take the first block as it is."""
    return blocks(
        lambda m, s, x: (
            (x.amax(-1), (x - x.amax(-1, keepdim=True)).exp().sum(-1))
            if m is None
            else step(m, s, x, torch.maximum(m, x.amax(-1)))
        )
    )


def powers(x, m):
    return (x - m[..., None]).exp().sum(-1)


WRONG["by-hand-softmax-in-blocks"] = {
    "block-sum-not-rescaled": first_or(lambda m, s, x, n: (n, s + powers(x, n))),
    "block-rescaled-upside-down": first_or(
        lambda m, s, x, n: (n, s * (n - m).exp() + powers(x, n))
    ),
    "block-maximum-forgotten": first_or(
        lambda m, s, x, n: (
            x.amax(-1),
            s * (m - x.amax(-1)).exp() + powers(x, x.amax(-1)),
        )
    ),
    "each block on its own": first_or(lambda m, s, x, n: (x.amax(-1), powers(x, x.amax(-1)))),
    "the maximum of the block in the powers": first_or(
        lambda m, s, x, n: (n, s * (m - n).exp() + powers(x, x.amax(-1)))
    ),
    "the old maximum in the powers": first_or(
        lambda m, s, x, n: (n, s * (m - n).exp() + powers(x, m))
    ),
    "the sum is rescaled after the block is added": first_or(
        lambda m, s, x, n: (n, (s + powers(x, n)) * (m - n).exp())
    ),
    "a mean of the powers": {"(block - m).exp().sum(-1, keepdim=True)":
                             "(block - m).exp().mean(-1, keepdim=True)"},
    "the maximum of all queries": first_or(
        lambda m, s, x, n: (
            n.amax(-1, keepdim=True).expand_as(n),
            s * (m - n).exp() + powers(x, n),
        )
    ),
    "the last block is dropped if it is shorter": lambda scores, n: sums_by_logarithms(
        scores[..., : max(scores.size(-1) // n * n, n)], n
    ),
    "block_len is the number of blocks": lambda scores, n: sums_by_logarithms(
        scores, -(-scores.size(-1) // n)
    ),
    "blocks of queries": lambda scores, n: tuple(
        x.mT for x in sums_by_logarithms(scores.mT, n)
    ),
    "the state after the last block only": lambda scores, n: tuple(
        x[..., -1] for x in sums_by_logarithms(scores, n)
    ),
    "the logarithm of the sum": lambda scores, n: (
        sums_by_logarithms(scores, n)[0],
        sums_by_logarithms(scores, n)[1].log(),
    ),
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


def dpo_margin(pi_w, pi_l, ref_w, ref_l):
    return (pi_w - pi_l) - (ref_w - ref_l)


class DPOCriterion(nn.Module):
    """Forget beta in forward."""

    def __init__(self, beta=0.1):
        super().__init__()
        self.beta = beta

    def forward(self, policy_w, policy_l, ref_w, ref_l):
        logits = dpo_margin(policy_w, policy_l, ref_w, ref_l)
        return -F.logsigmoid(self.beta * logits).mean()


WRONG["by-hand-dpo-loss"] = {
    "dpo-reference-missing": lambda c, r, ref_c, ref_r, b: F.softplus(-b * (c - r)).mean(),
    "dpo-answers-exchanged": lambda c, r, ref_c, ref_r, b: (
        -F.logsigmoid(b * dpo_margin(r, c, ref_r, ref_c)).mean()
    ),
    "dpo-answers-exchanged: softplus without minus": lambda c, r, ref_c, ref_r, b: F.softplus(
        b * dpo_margin(c, r, ref_c, ref_r)
    ).mean(),
    "dpo-reference-added": lambda c, r, ref_c, ref_r, b: (
        -F.logsigmoid(b * ((c - r) + (ref_c - ref_r))).mean()
    ),
    "dpo-beta-missing": lambda c, r, ref_c, ref_r, b: torch.mean(
        -F.logsigmoid(dpo_margin(c, r, ref_c, ref_r))
    ),
    "dpo-beta-outside": lambda c, r, ref_c, ref_r, b: (
        b * F.softplus(-dpo_margin(c, r, ref_c, ref_r)).mean()
    ),
    "dpo-loss-overflows": lambda c, r, ref_c, ref_r, b: torch.mean(
        -torch.log(1 / (1 + torch.exp(-b * dpo_margin(c, r, ref_c, ref_r))))
    ),
    "dpo-loss-overflows: in the exponential of log1p": lambda c, r, ref_c, ref_r, b: torch.log1p(
        torch.exp(-b * dpo_margin(c, r, ref_c, ref_r))
    ).mean(),
    "a small number in the logarithm": lambda c, r, ref_c, ref_r, b: (
        -torch.log(torch.sigmoid(b * dpo_margin(c, r, ref_c, ref_r)) + 1e-8).mean()
    ),
    "the sum over the batch": lambda c, r, ref_c, ref_r, b: (
        -F.logsigmoid(b * dpo_margin(c, r, ref_c, ref_r)).sum()
    ),
    "one loss for each pair": lambda c, r, ref_c, ref_r, b: (
        -F.logsigmoid(b * dpo_margin(c, r, ref_c, ref_r))
    ),
    "the minus is forgotten": lambda c, r, ref_c, ref_r, b: F.logsigmoid(
        b * dpo_margin(c, r, ref_c, ref_r)
    ).mean(),
    "the margin is averaged first": lambda c, r, ref_c, ref_r, b: F.softplus(
        -b * dpo_margin(c.mean(), r.mean(), ref_c.mean(), ref_r.mean())
    ),
    "ratios of probabilities": lambda c, r, ref_c, ref_r, b: (
        -F.logsigmoid(
            b * (torch.exp(c) / torch.exp(ref_c) - torch.exp(r) / torch.exp(ref_r))
        ).mean()
    ),
    "the policy is cut off": lambda c, r, ref_c, ref_r, b: (
        -F.logsigmoid(b * dpo_margin(c, r, ref_c, ref_r).detach()).mean()
    ),
    "the rejected answer of the policy is cut off": lambda c, r, ref_c, ref_r, b: (
        -F.logsigmoid(b * dpo_margin(c, r.detach(), ref_c, ref_r)).mean()
    ),
    "beta has a default": lambda c, r, ref_c, ref_r, b: DPOCriterion()(c, r, ref_c, ref_r),
    "the square of IPO": lambda c, r, ref_c, ref_r, b: (
        (dpo_margin(c, r, ref_c, ref_r) - 0.5 / b) ** 2
    ).mean(),
    "labels of a smoothed loss": lambda c, r, ref_c, ref_r, b: (
        -(
            0.9 * F.logsigmoid(b * dpo_margin(c, r, ref_c, ref_r))
            + 0.1 * F.logsigmoid(-b * dpo_margin(c, r, ref_c, ref_r))
        ).mean()
    ),
}


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
    "grpo-groups-mixed": lambda r, eps: (r - torch.mean(r)) / (torch.std(r) + eps),
    "grpo-eps-missing": lambda r, eps: (r - r.mean(1)[:, None]) / r.std(1)[:, None],
    "grpo-std-of-all": lambda r, eps: (
        (r - r.mean(1)[:, None]) / (r.std(1, unbiased=False)[:, None] + eps)
    ),
    "grpo-std-of-all: from the mean of the squares": lambda r, eps: (
        (r - r.mean(1)[:, None])
        / (((r**2).mean(1) - r.mean(1) ** 2).clamp(min=0).sqrt()[:, None] + eps)
    ),
    "the mean alone": lambda r, eps: r - r.mean(-1, keepdim=True),
    "the standard deviation alone": lambda r, eps: r / (r.std(-1, keepdim=True) + eps),
    "over the prompts": lambda r, eps: (r - r.mean(0)) / (r.std(0) + eps),
    "the variance": lambda r, eps: (
        (r - r.mean(1)[:, None]) / (((r - r.mean(1)[:, None]) ** 2).mean(1)[:, None] + eps)
    ),
    "eps in the root": lambda r, eps: F.layer_norm(r, r.shape[-1:], eps=eps),
    "eps is the lower bound": lambda r, eps: (
        (r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True).clamp(min=eps)
    ),
    "the mean of the others": lambda r, eps: (
        (r - (r.sum(1, keepdim=True) - r) / (r.size(1) - 1)) / (r.std(1, keepdim=True) + eps)
    ),
    "the best answer is the baseline": lambda r, eps: (
        (r - r.amax(1, keepdim=True)) / (r.std(1, keepdim=True) + eps)
    ),
    "the range instead of the standard deviation": lambda r, eps: (
        (r - r.mean(1, keepdim=True)) / (r.amax(1, keepdim=True) - r.amin(1, keepdim=True) + eps)
    ),
    "eps is a default": lambda r, eps: (
        (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-8)
    ),
    "the sign": lambda r, eps: (r.mean(1, keepdim=True) - r) / (r.std(1, keepdim=True) + eps),
}


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


def grpo_terms(policy, old, a, epsilon):
    """Return the ratio and both products, as most libraries write them."""
    coefficient = torch.exp(policy - old)
    limited = torch.clamp(coefficient, 1 - epsilon, 1 + epsilon)
    return coefficient, coefficient * a[:, None], limited * a[:, None]


def k3(policy, reference):
    return torch.exp(reference - policy) - (reference - policy) - 1


def per_answer(losses, mask):
    return ((losses * mask).sum(-1) / mask.sum(-1)).mean()


def grpo_wrong(gain=torch.min, kl=k3, mean=per_answer, terms=grpo_terms):
    """Write a loss of parts, one of which is wrong."""

    def answer(policy, old, reference, advantages, mask, epsilon, beta):
        _, free, limited = terms(policy, old, advantages, epsilon)
        return mean(beta * kl(policy, reference) - gain(free, limited), mask)

    return answer


def smaller_ratio_first(policy, old, reference, advantages, mask, epsilon, beta):
    ratio = torch.exp(policy - old)
    ratio = torch.min(ratio, torch.clamp(ratio, 1 - epsilon, 1 + epsilon))
    return per_answer(beta * k3(policy, reference) - ratio * advantages[:, None], mask)


WRONG["by-hand-grpo-loss"] = {
    "grpo-minimum-missing": grpo_wrong(gain=lambda free, limited: limited),
    "grpo-minimum-before-advantage": smaller_ratio_first,
    "grpo-maximum": grpo_wrong(gain=torch.max),
    "grpo-ratio-upside-down": grpo_wrong(terms=lambda new, old, *rest: grpo_terms(old, new, *rest)),
    "grpo-kl-upside-down": grpo_wrong(kl=lambda policy, reference: k3(reference, policy)),
    "grpo-padding-counted": grpo_wrong(mean=lambda losses, mask: losses.mean()),
    "grpo-padding-counted: the mask is applied, but every position divides": grpo_wrong(
        mean=lambda losses, mask: (losses * mask).mean()
    ),
    "grpo-mean-over-tokens": grpo_wrong(mean=lambda losses, mask: losses[mask].mean()),
    "the sum of the tokens": grpo_wrong(
        mean=lambda losses, mask: (losses * mask).sum() / len(losses)
    ),
    "nothing is clipped": grpo_wrong(gain=lambda free, limited: free),
    "the plain difference as penalty": grpo_wrong(kl=lambda policy, ref: policy - ref),
    "the expected KL": grpo_wrong(kl=lambda policy, ref: policy.exp() * (policy - ref)),
    "the square as penalty": grpo_wrong(kl=lambda policy, ref: (policy - ref) ** 2 / 2),
    "the penalty is rewarded": grpo_wrong(kl=lambda policy, ref: -k3(policy, ref)),
    "the penalty has no gradient": grpo_wrong(kl=lambda policy, ref: k3(policy.detach(), ref)),
    "the ratio is always 1": lambda p, o, ref, a, m, eps, beta: per_answer(
        beta * k3(p, ref) - torch.exp(p - p.detach()) * a[:, None], m
    ),
    "one ratio for each answer": grpo_wrong(
        terms=lambda p, o, a, eps: grpo_terms(
            p.mean(-1, keepdim=True).expand_as(p), o.mean(-1, keepdim=True), a, eps
        )
    ),
    "the gain of the mean advantage": grpo_wrong(
        terms=lambda p, o, a, eps: grpo_terms(p, o, a.mean().expand(len(a)), eps)
    ),
    "the penalty against the old policy": lambda p, o, ref, a, m, eps, beta: grpo_wrong()(
        p, o, o, a, m, eps, beta
    ),
    "advantages are normalised again": grpo_wrong(
        terms=lambda p, o, a, eps: grpo_terms(p, o, (a - a.mean()) / (a.std() + 1e-8), eps)
    ),
}


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


def gae_wrong(delta=None, keep=None, ahead=None, end=None, finish=None):
    """Write the loop of a library with one other part."""
    delta = delta or (lambda r, v, n, go, gamma, lam: r + gamma * n * go - v)
    keep = keep or (lambda go, gamma, lam: gamma * lam * go)
    ahead = ahead or (lambda v, last: torch.cat([v[:, 1:], last.unsqueeze(1)], 1))
    end = end or (lambda d: 1 - d)
    finish = finish or (lambda adv, v, r: (adv, adv + v))

    def answer(rewards, values, last_value, done, gamma, lam):
        nexts, go = ahead(values, last_value), end(done)
        out, running = [None] * rewards.size(1), 0.0
        for t in range(rewards.size(1) - 1, -1, -1):
            here = rewards[:, t], values[:, t], nexts[:, t], go[:, t]
            running = delta(*here, gamma, lam) + keep(go[:, t], gamma, lam) * running
            out[t] = running
        return finish(torch.stack(out, 1), values, rewards)

    return answer


def gae_forwards(rewards, values, last_value, done, gamma, lam):
    ahead = torch.cat([values[:, 1:], last_value.unsqueeze(1)], 1)
    delta = rewards + gamma * ahead * (1 - done) - values
    running, out = torch.zeros_like(last_value), []
    for t in range(rewards.size(1)):
        running = delta[:, t] + gamma * lam * (1 - done[:, t]) * running
        out.append(running)
    advantages = torch.stack(out, 1)
    return advantages, advantages + values


def discounted_returns(rewards, values, last_value, done, gamma, lam):
    total, out = last_value, []
    for t in reversed(range(rewards.size(1))):
        total = rewards[:, t] + gamma * (1 - done[:, t]) * total
        out.append(total)
    returns = torch.stack(out[::-1], 1)
    return returns - values, returns


WRONG["by-hand-gae"] = {
    "gae-end-ignored": gae_wrong(end=torch.ones_like),
    "gae-end-keeps-value": gae_wrong(delta=lambda r, v, n, go, gamma, lam: r + gamma * n - v),
    "gae-end-keeps-advantage": gae_wrong(keep=lambda go, gamma, lam: gamma * lam),
    "gae-gamma-missing": gae_wrong(keep=lambda go, gamma, lam: lam * go),
    "gae-lambda-missing": gae_wrong(keep=lambda go, gamma, lam: gamma * go),
    "gae-last-value-missing": gae_wrong(
        ahead=lambda v, last: torch.cat([v[:, 1:], torch.zeros_like(last)[:, None]], 1)
    ),
    "the last value of the steps is repeated": gae_wrong(
        ahead=lambda v, last: torch.cat([v[:, 1:], v[:, -1:]], 1)
    ),
    "the values wrap around": gae_wrong(ahead=lambda v, last: v.roll(-1, 1)),
    "forwards": gae_forwards,
    "one step only": gae_wrong(keep=lambda go, gamma, lam: 0.0),
    "gae-lambda-missing: the sum of rewards minus the value": discounted_returns,
    "done is read one step later": gae_wrong(
        end=lambda d: torch.cat([1 - d[:, 1:], torch.ones_like(d[:, :1])], 1)
    ),
    "done is read one step earlier": gae_wrong(
        end=lambda d: torch.cat([torch.ones_like(d[:, :1]), 1 - d[:, :-1]], 1)
    ),
    "done keeps": gae_wrong(end=lambda d: d),
    "the returns are advantages plus rewards": gae_wrong(finish=lambda adv, v, r: (adv, adv + r)),
    "the returns are the advantages": gae_wrong(finish=lambda adv, v, r: (adv, adv)),
    "only the advantages": gae_wrong(finish=lambda adv, v, r: adv),
    "the advantages are normalised": gae_wrong(
        finish=lambda adv, v, r: ((adv - adv.mean()) / (adv.std() + 1e-8), adv + v)
    ),
    "the reward is masked at the end": gae_wrong(
        delta=lambda r, v, n, go, gamma, lam: (r + gamma * n) * go - v
    ),
    "the value is added": gae_wrong(delta=lambda r, v, n, go, gamma, lam: r + gamma * n * go + v),
    "lambda on the next value": gae_wrong(
        delta=lambda r, v, n, go, gamma, lam: r + gamma * lam * n * go - v
    ),
}


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


def ppo_wrong(loss, ratio=lambda new, old: torch.exp(new - old)):
    """Write a loss of the ratio, the clipped ratio and the advantages."""

    def answer(policy, old, advantages, epsilon):
        r = ratio(policy, old)
        return loss(r, torch.clamp(r, 1.0 - epsilon, 1.0 + epsilon), advantages)

    return answer


def surrogate(r, c, a):
    return -torch.min(r * a, c * a).mean()


WRONG["by-hand-ppo-loss"] = {
    "ppo-minimum-missing": ppo_wrong(lambda r, c, a: -(c * a).mean()),
    "ppo-minimum-before-advantage": ppo_wrong(lambda r, c, a: -(torch.min(r, c) * a).mean()),
    "ppo-maximum": ppo_wrong(lambda r, c, a: -torch.max(r * a, c * a).mean()),
    "ppo-maximum: the smaller one of two losses": ppo_wrong(
        lambda r, c, a: torch.min(-a * r, -a * c).mean()
    ),
    "ppo-ratio-upside-down": ppo_wrong(surrogate, lambda new, old: torch.exp(old - new)),
    "ppo-ratio-of-logarithms": ppo_wrong(surrogate, lambda new, old: new / old),
    "ppo-ratio-of-logarithms: the difference": ppo_wrong(surrogate, lambda new, old: new - old),
    "the gain is minimised": ppo_wrong(lambda r, c, a: torch.min(r * a, c * a).mean()),
    "no clip": ppo_wrong(lambda r, c, a: -(r * a).mean()),
    "the sum": ppo_wrong(lambda r, c, a: -torch.min(r * a, c * a).sum()),
    "no mean": ppo_wrong(lambda r, c, a: -torch.min(r * a, c * a)),
    "the sum of a sentence": ppo_wrong(lambda r, c, a: -torch.min(r * a, c * a).sum(1).mean()),
    "the minimum of the means": ppo_wrong(
        lambda r, c, a: -torch.min((r * a).mean(), (c * a).mean())
    ),
    "plain policy gradient": lambda new, old, a, eps: -(new * a).mean(),
    "the policy is cut off": ppo_wrong(surrogate, lambda new, old: torch.exp(new.detach() - old)),
    "one ratio for each sentence": ppo_wrong(
        surrogate, lambda new, old: torch.exp((new - old).sum(1, keepdim=True))
    ),
    "the clipped branch has a gradient": ppo_wrong(
        surrogate, lambda new, old: torch.exp(new - old) * torch.exp(new - new.detach())
    ),
    "only positive advantages": ppo_wrong(
        lambda r, c, a: -torch.min(r * a.relu(), c * a.relu()).mean()
    ),
    "advantages of unit size": ppo_wrong(
        lambda r, c, a: surrogate(r, c, (a - a.mean()) / (a.std() + 1e-8))
    ),
    "epsilon is a default": lambda new, old, a, eps: ppo_as_a_larger_loss(new, old, a, 0.2),
}


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


class Mixture(nn.Module):
    """Write the layer with a loop over the experts, and other gates or another sum."""

    def __init__(self, gate, add=lambda total, part: total + part):
        super().__init__()
        self.gate, self.add = gate, add

    def forward(self, x, router, up, down, k):
        gates, ids = self.gate(x @ router.T, k)
        total = torch.zeros_like(x)
        for slot in range(k):
            chosen = ids[..., slot]
            hidden = F.relu((up[chosen] @ x.unsqueeze(-1)).squeeze(-1))
            part = (down[chosen] @ hidden.unsqueeze(-1)).squeeze(-1)
            total = self.add(total, gates[..., slot, None] * part)
        return total


def routed(gate, add=lambda total, part: total + part):
    return lambda *given: Mixture(gate, add)(*given)


def softmax_of_best(scores, k):
    best, ids = scores.topk(k)
    return best.softmax(-1), ids


WRONG["by-hand-mixture-of-experts"] = {
    "moe-softmax-first": routed(lambda s, k: s.softmax(-1).topk(k)),
    "moe-gates-missing": routed(lambda s, k: (torch.ones_like(s[..., :k]), s.topk(k).indices)),
    "moe-gates-equal": routed(lambda s, k: (torch.ones_like(s[..., :k]) / k, s.topk(k).indices)),
    "moe-overwritten: by the last choice": routed(softmax_of_best, lambda total, part: part),
    "moe-rank-as-expert": {"ids.tolist()": "range(k)"},
    "moe-all-experts": {"logits.topk(k)": "logits.topk(len(logits))"},
    "the worst experts": routed(
        lambda s, k: (s.topk(k, largest=False)[0].softmax(-1), s.topk(k, largest=False)[1])
    ),
    "the best expert only": {"logits.topk(k)": "logits.topk(1)"},
    "one expert too many": {"logits.topk(k)": "logits.topk(min(k + 1, len(logits)))"},
    "sigmoid gates": routed(lambda s, k: (s.topk(k)[0].sigmoid(), s.topk(k)[1])),
    "sigmoid gates that sum to 1": routed(
        lambda s, k: (F.normalize(s.topk(k)[0].sigmoid(), p=1, dim=-1), s.topk(k)[1])
    ),
    "softmax twice": routed(
        lambda s, k: (s.softmax(-1).topk(k)[0].softmax(-1), s.topk(k)[1])
    ),
    "the gates are exchanged": routed(
        lambda s, k: (softmax_of_best(s, k)[0].flip(-1), s.topk(k)[1])
    ),
    "the scores are the gates": routed(lambda s, k: s.topk(k)),
    "no activation": {"F.relu(X)": "X"},
    "relu after the second matrix": {"down[i] @ F.relu(X)": "F.relu(down[i] @ X)"},
    "softmax over the tokens": routed(
        lambda s, k: (s.topk(k)[0].softmax(1), s.topk(k)[1])
    ),
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
    "layer-norm-backward-constant": lambda dy, x, g: (
        dy * g / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt(),
        *layer_norm_with_sums(dy, x, g)[1:],
    ),
    "layer-norm-backward-weight": {"dxhat = dy * gamma": "dxhat = dy"},
    "layer-norm-backward-deviation": {"rstd / n": "1 / n"},
    "layer-norm-backward-averaged": lambda dy, x, g: tuple(
        each / (1 if each.ndim == 3 else len(dy) * dy.size(1))
        for each in layer_norm_with_sums(dy, x, g)
    ),
    "parameters averaged over the batch only": {
        "dy.sum(dim=0)": "dy.mean(dim=0)",
        "(dy * xhat).sum(dim=0)": "(dy * xhat).mean(dim=0)",
    },
    "gradients of the parameters for every token": lambda dy, x, g: (
        layer_norm_with_sums(dy, x, g)[0], dy * F.layer_norm(x, g.shape), dy,
    ),
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
    "distillation-mean-over-batch": lambda s, t, T: tuple(
        each * s.size(1) for each in distil_by_library_softmax(s, t, T)
    ),
    "distillation-overflow": {
        "F.log_softmax(s / T, dim=-1)": "F.softmax(s / T, dim=-1).log()",
        "F.log_softmax(t / T, dim=-1)": "F.softmax(t / T, dim=-1).log()",
    },
    "no temperature in the logits": {"s / T": "s", "t / T": "t"},
    "T instead of its square": {"return X, Y": "return T * fwd, T * rev"},
    "divided by the square": {"return X, Y": "return fwd / T**2, rev / T**2"},
    "multiplied by T inside": {"s / T": "s * T", "t / T": "t * T"},
    "the sum of all tokens": {"n = s.size(0)": "n = 1"},
    "distillation-directions: kl_div with its arguments exchanged": lambda s, t, T: tuple(
        T * T * F.kl_div(b, a, reduction="sum", log_target=True) / a[..., 0].numel()
        for a, b in [[(x / T).log_softmax(-1) for x in pair] for pair in ((s, t), (t, s))]
    ),
    "distillation-mean-over-vocab: kl_div with its default reduction": lambda s, t, T: tuple(
        T * T * F.kl_div(q, p, log_target=True)
        for p, q in [[(x / T).log_softmax(-1) for x in pair] for pair in ((t, s), (s, t))]
    ),
    "kl_div gets logarithms without log_target": lambda s, t, T: tuple(
        T * T * F.kl_div(q, p, reduction="sum") / p[..., 0].numel()
        for p, q in [[(x / T).log_softmax(-1) for x in pair] for pair in ((t, s), (s, t))]
    ),
    "kl_div gets probabilities for logarithms": lambda s, t, T: tuple(
        T * T * F.kl_div(q, p, reduction="sum") / p[..., 0].numel()
        for p, q in [[(x / T).softmax(-1) for x in pair] for pair in ((t, s), (s, t))]
    ),
    "kl_div takes the logits of the student": lambda s, t, T: tuple(
        T * T * F.kl_div(q / T, (p / T).softmax(-1), reduction="sum") / p[..., 0].numel()
        for p, q in ((t, s), (s, t))
    ),
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


def greedy_copies(next_log_probs, prompt, end, width, max_new, alpha):
    ids, total, length = prompt[None], 0.0, 0
    for _ in range(max_new):
        best, token = next_log_probs(ids)[0].max(0)
        if not length or ids[0, -1] != end:
            total, length = total + best, length + 1
        else:
            token = torch.tensor(end)
        ids = torch.cat([ids, token.view(1, 1)], 1)
    return ids.repeat(width, 1), (total / length**alpha).repeat(width)


def first_tokens_then_greedy(next_log_probs, prompt, end, width, max_new, alpha):
    totals, tokens = next_log_probs(prompt[None])[0].topk(width)
    rows = []
    for total, token in zip(totals, tokens, strict=True):
        ids, length = torch.cat([prompt, token[None]]), 1
        while ids[-1] != end and length < max_new:
            step, token = next_log_probs(ids[None])[0].max(-1)
            ids, total, length = torch.cat([ids, token[None]]), total + step, length + 1
        padding = torch.full((max_new - length,), end)
        rows.append((total / length**alpha, torch.cat([ids, padding])))
    rows.sort(key=lambda row: row[0], reverse=True)
    return torch.stack([ids for _, ids in rows]), torch.stack([score for score, _ in rows])


def without_lists_of_the_finished(next_log_probs, prompt, end, width, max_new, alpha):
    """Drop a beam when it ends, keep it in a list of results, and narrow the search."""
    live, results = [(prompt, torch.zeros(()))], []
    for length in range(1, max_new + 1):
        every = [(torch.cat([ids, torch.tensor([token])]), total + step)
                 for ids, total in live
                 for token, step in enumerate(next_log_probs(ids[None])[0])]  # fmt: skip
        every.sort(key=lambda row: row[1], reverse=True)
        live = []
        for ids, total in every[:width]:
            if ids[-1] == end or length == max_new:
                fill = torch.full((max_new - length,), end)
                results.append((torch.cat([ids, fill]), total / length**alpha))
            else:
                live.append((ids, total))
    results.sort(key=lambda row: row[1], reverse=True)
    return tuple(torch.stack(part) for part in zip(*results[:width], strict=True))


def sums_of_probabilities(next_log_probs, prompt, end, width, max_new, alpha):
    return beams_in_lists(lambda x: next_log_probs(x).exp(), prompt, end, width, max_new, alpha)


def best_alone(*given):
    ids, scores = beams_in_lists(*given)
    return ids[0], scores[0]


def probabilities(*given):
    ids, scores = beams_in_lists(*given)
    return ids, scores.exp()


def only_new_tokens(next_log_probs, prompt, *given):
    ids, scores = beams_in_lists(next_log_probs, prompt, *given)
    return ids[:, prompt.numel() :], scores


def padded_with_zeros(next_log_probs, prompt, end, width, max_new, alpha):
    ids, scores = beams_by_masks(next_log_probs, prompt, end, width, max_new, alpha)
    new = ids[:, prompt.numel() :]
    after = (new == end).cumsum(1) - (new == end).long() > 0
    return torch.cat([ids[:, : prompt.numel()], new.masked_fill(after, 0)], 1), scores


def last_token_only(next_log_probs, prompt, end, width, max_new, alpha):
    """Pass the last token alone to the model, as if it kept a state."""
    return beams_in_lists(lambda ids: next_log_probs(ids[:, -1:]), prompt, end, width, max_new,
                          alpha)  # fmt: skip


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


def every_beam_from_the_prompt(next_log_probs, prompt, end, width, max_new, alpha):
    beams = [(prompt.tolist(), 0.0, 0)] * width
    for _ in range(max_new):
        grown = []
        for ids, total, n in beams:
            if n and ids[-1] == end:
                grown.append((ids, total, n))
            else:
                row = next_log_probs(torch.tensor([ids]))[0]
                grown += [([*ids, v], total + row[v].item(), n + 1) for v in range(len(row))]
        beams = sorted(grown, key=lambda b: -b[1])[:width]
    beams.sort(key=lambda b: -b[1] / b[2] ** alpha)
    size = len(prompt) + max_new
    return (
        torch.tensor([(ids + [end] * size)[:size] for ids, _, _ in beams]),
        torch.tensor([total / n**alpha for _, total, n in beams]),
    )


WRONG["by-hand-beam-search"] = {
    "beam-starts-equal: greedy, width times": greedy_copies,
    "beam-best-of-each": first_tokens_then_greedy,
    "the beam narrows when a sequence ends": without_lists_of_the_finished,
    "sums of probabilities": sums_of_probabilities,
    "one token too many": lambda model, prompt, end, width, max_new, alpha: beams_in_lists(
        model, prompt, end, width, max_new + 1, alpha
    ),
    "the best sequence alone": best_alone,
    "probabilities in place of logarithms": probabilities,
    "the prompt is left out": only_new_tokens,
    "padded with zeros": padded_with_zeros,
    "the model sees the last token only": last_token_only,
    "beam-history-kept": history_kept,
    "beam-starts-equal": every_beam_from_the_prompt,
    "beam-scores-not-summed": {"total + log_prob": "log_prob"},
    "beam-end-continued: and every token counts": {"end in new": "False"},
    "beam-length-missing": {"total / len(new) ** alpha": "total"},
    "beam-length-padded": {"len(new) ** alpha": "max_new ** alpha"},
    "the prompt counts": {"len(new) ** alpha": "(len(new) + len(prompt)) ** alpha"},
    "alpha is a factor": {"len(new) ** alpha": "(len(new) * alpha)"},
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


def greedy_verification(drafts, q, p, accept, draw):
    """Accept a draft only if it is the best token of the large model."""
    best = p.argmax(-1)
    n = (best[:, :-1] == drafts).long().cumprod(1).sum(1)
    rest = p[torch.arange(len(p)), n]
    return n, rest, best[torch.arange(len(p)), n]


def all_or_nothing(drafts, q, p, accept, draw):
    ids = drafts[..., None]
    good = (accept < (p[:, :-1].gather(2, ids) / q.gather(2, ids))[..., 0]).all(1)
    n = good.long() * drafts.size(1)
    rest = F.relu(p - F.pad(q, (0, 0, 0, 1)))[torch.arange(len(p)), n]
    rest = rest / rest.sum(-1, keepdim=True)
    return n, rest, (rest.cumsum(-1) <= draw[:, None]).sum(-1)


def one_ratio_for_the_whole_draft(drafts, q, p, accept, draw):
    ids = drafts[..., None]
    ratio = (p[:, :-1].gather(2, ids) / q.gather(2, ids))[..., 0].cumprod(1)
    n = (accept < ratio).long().cumprod(1).sum(1)
    rest = F.relu(p - F.pad(q, (0, 0, 0, 1)))[torch.arange(len(p)), n]
    rest = rest / rest.sum(-1, keepdim=True)
    return n, rest, (rest.cumsum(-1) <= draw[:, None]).sum(-1)


def rest_of(change):
    """Replace the distribution from which the last token is drawn."""

    def answer(drafts, q, p, accept, draw):
        n = one_sentence_at_a_time(drafts, q, p, accept, draw)[0]
        rest = change(p, F.pad(q, (0, 0, 0, 1)), n, torch.arange(len(p)))
        return n, rest, (rest.cumsum(-1) <= draw[:, None]).sum(-1).clamp(max=p.size(-1) - 1)

    return answer


def without_the_draft(p, q, n, rows):
    """Forbid the rejected token, and draw from the other ones of p."""
    rest = p[rows, n].clone()
    for row, count in enumerate(n):
        if count < p.size(1) - 1:
            rest[row, p[row, count].argmax()] = 0
    return rest / rest.sum(-1, keepdim=True)


def first_token_given(drafts, q, p, accept, draw):
    n, rest, _ = steps_by_padding(drafts, q, p, accept, draw)
    full = n == drafts.size(1)
    return n, rest, torch.where(full, drafts[:, -1], rest.argmax(-1))


WRONG["by-hand-speculative-step"] = {
    "greedy verification": greedy_verification,
    "all drafts or none": all_or_nothing,
    "one ratio for the whole draft": one_ratio_for_the_whole_draft,
    "spec-drawn-from-p": rest_of(lambda p, q, n, rows: p[rows, n]),
    "drawn from q": rest_of(lambda p, q, n, rows: torch.cat([q[:, :-1], p[:, -1:]], 1)[rows, n]),
    "spec-not-normalised": rest_of(lambda p, q, n, rows: F.relu(p - q)[rows, n]),
    "spec-absolute": rest_of(
        lambda p, q, n, rows: F.normalize((p - q).abs()[rows, n], p=1.0, dim=-1)
    ),
    "spec-negative-part": rest_of(
        lambda p, q, n, rows: F.normalize(
            torch.cat([F.relu(q - p)[:, :-1], p[:, -1:]], 1)[rows, n], p=1.0, dim=-1
        )
    ),
    "softmax of the positive part": rest_of(
        lambda p, q, n, rows: F.relu(p - q)[rows, n].softmax(-1)
    ),
    "spec-bonus-missing": rest_of(
        lambda p, q, n, rows: F.normalize(
            F.relu(p - q)[rows, n.clamp(max=p.size(1) - 2)], p=1.0, dim=-1
        )
    ),
    "the most probable token of p is forbidden": rest_of(without_the_draft),
    "the rest at position 0": rest_of(
        lambda p, q, n, rows: F.normalize(F.relu(p - q)[:, 0], p=1.0, dim=-1)
    ),
    "the rest is summed over the vocabulary of all sentences": rest_of(
        lambda p, q, n, rows: F.relu(p - q)[rows, n] / F.relu(p - q)[rows, n].sum()
    ),
    "no new token after a full draft": first_token_given,
    "spec-ratio-upside-down": {
        "p[row, n, token] / q[row, n, token]": "q[row, n, token] / p[row, n, token]"
    },
    "accepts what it should reject": {"accept[row, n] >= R": "accept[row, n] < R"},
    "one draft too few is counted": {"counts.append(n)": "counts.append(max(n - 1, 0))"},
    "the rejected draft is counted": {"counts.append(n)": "counts.append(min(n + 1, length))"},
    "q is not read": {"p[row, n, token] / q[row, n, token]": "p[row, n, token]"},
    "p of the next position": {"p[row, n, token]": "p[row, n + 1, token]"},
    "spec-rejection-skipped": lambda drafts, q, p, accept, draw: (
        lambda n, rest: (n, rest, (rest.cumsum(-1) <= draw[:, None]).sum(-1))
    )(
        *(
            lambda n: (
                n,
                F.normalize(
                    F.relu(p - F.pad(q, (0, 0, 0, 1)))[torch.arange(len(p)), n], p=1.0, dim=-1
                ),
            )
        )(
            (accept * q.gather(2, drafts[..., None])[..., 0]
             < p.gather(2, drafts[..., None])[..., 0]).sum(1)
        )
    ),
    "a uniform number for each token": {"draw[row] < total": "draw[row] < rest[new]"},
    "the distribution as logarithms": lambda *given: (
        lambda n, rest, token: (n, (rest + 1e-9).log(), token)
    )(*steps_by_padding(*given)),
}  # fmt: skip


@right("by-hand-window-mask")
def window_by_triangles(query_len, key_len, window):
    square = torch.ones(key_len, key_len, dtype=torch.bool)
    return (square.tril() & ~square.tril(-window))[key_len - query_len :]


@right("by-hand-window-mask")
def window_by_loop(query_len, key_len, window):
    mask = torch.zeros(query_len, key_len, dtype=torch.bool)
    for i in range(query_len):
        position = key_len - query_len + i
        mask[i, max(0, position - window + 1) : position + 1] = True
    return mask


@right("by-hand-window-mask")
def window_by_distance(query_len, key_len, window):
    back = torch.arange(key_len)[-query_len:, None] - torch.arange(key_len)[None, :]
    return (back >= 0).logical_and(back.lt(window))


def spans(first, last, top_left=False):
    """Fill each row between two columns, which depend on its position and the window."""

    def answer(query_len, key_len, window):
        mask = torch.zeros(query_len, key_len, dtype=torch.bool)
        for i in range(query_len):
            p = i if top_left else key_len - query_len + i
            mask[i, max(0, first(p, window)) : max(0, last(p, window))] = True
        return mask

    return answer


WRONG["by-hand-window-mask"] = {
    "window-one-more": spans(lambda p, w: p - w, lambda p, w: p + 1),
    "one key too few": spans(lambda p, w: p - w + 2, lambda p, w: p + 1),
    "window-no-lower-edge": spans(lambda p, w: 0, lambda p, w: p + 1),
    "window-not-causal": spans(lambda p, w: p - w + 1, lambda p, w: p + w),
    "half of the window on each side": spans(
        lambda p, w: p - w // 2, lambda p, w: p + w // 2 + 1
    ),
    "causal-corner": spans(lambda p, w: p - w + 1, lambda p, w: p + 1, top_left=True),
    "causal-diagonal": spans(lambda p, w: p - w + 1, lambda p, w: p),
    "a window before the query": spans(lambda p, w: p - w, lambda p, w: p),
    "blocks of the size of the window": spans(lambda p, w: p // w * w, lambda p, w: p + 1),
    "a window of the future": spans(lambda p, w: p, lambda p, w: p + w),
    "window-not-causal: no upper edge": spans(lambda p, w: p - w + 1, lambda p, w: 10**6),
    "mask-inverted": lambda q, k, w: ~window_by_loop(q, k, w),
    "queries and keys are exchanged": lambda q, k, w: window_by_loop(q, k, w).T,
    "the same window for all queries": lambda q, k, w: window_by_loop(1, k, w).repeat(q, 1),
    "numbers to add to the scores": lambda q, k, w: torch.zeros(q, k).masked_fill(
        ~window_by_loop(q, k, w), -math.inf
    ),
    "the first keys stay visible": lambda q, k, w: window_by_loop(q, k, w)
    | (torch.arange(k) == 0),
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


def written(slot, kept=lambda j, length, n, w: True, positions=None):
    """Write the new keys one by one, to other slots or not all of them."""

    def answer(cache, new, length):
        cache, n, w = cache.clone(), new.size(2), cache.size(2)
        held = positions or (lambda *given: cache_key_by_key(*given)[1])
        for j in range(length, length + n):
            if kept(j, length, n, w):
                cache[:, :, slot(j, length, n, w)] = new[:, :, j - length]
        return cache, held(cache, new, length)

    return answer


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


def round_robin(j, length, n, w):
    return j % w


def held_of(read):
    """Write the right keys, and return other positions."""
    return written(round_robin, positions=read)


WRONG["by-hand-rolling-cache"] = {
    "rolling-shifted": appended,
    "rolling-shifted: empty slots on the left": padded_on_the_left,
    "rolling-starts-at-zero": written(lambda j, length, n, w: (j - length) % w),
    "slots from 1 on": written(lambda j, length, n, w: (j + 1) % w),
    "the last slot takes everything": written(lambda j, length, n, w: min(j, w - 1)),
    "rolling-first-kept: without overwriting": written(
        round_robin, lambda j, length, n, w: j - length < w
    ),
    "a full cache stays as it is": written(round_robin, lambda j, length, n, w: j < w),
    "the last new key alone": written(round_robin, lambda j, length, n, w: j == length + n - 1),
    "slots modulo the number of new keys": written(lambda j, length, n, w: j % n % w),
    "the newest key in slot 0": lambda cache, new, length: tuple(
        x.flip(-2 if x.ndim > 1 else 0) for x in appended(cache, new, length)
    ),
    "rolling-first-turn": held_of(
        lambda cache, new, length: torch.tensor(
            [s if s < length + new.size(2) else -1 for s in range(cache.size(2))]
        )
    ),
    "positions of the new keys": held_of(
        lambda cache, new, length: torch.arange(length, length + new.size(2))
    ),
    "sorted positions": held_of(
        lambda cache, new, length: cache_key_by_key(cache, new, length)[1].sort().values
    ),
    "positions one too large": held_of(
        lambda cache, new, length: cache_key_by_key(cache, new, length)[1] + 1
    ),
    "positions before the new keys": held_of(
        lambda cache, new, length: cache_key_by_key(cache, new[:, :, :0], length)[1]
    ),
    "empty slots hold position 0": held_of(
        lambda cache, new, length: cache_key_by_key(cache, new, length)[1].clamp(min=0)
    ),
    "distances to the next query": held_of(
        lambda cache, new, length: length + new.size(2) - cache_key_by_key(cache, new, length)[1]
    ),
    "the cache grows": lambda cache, new, length: (
        torch.cat([cache, new], 2), torch.arange(cache.size(2) + new.size(2))
    ),
}  # fmt: skip


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
def rows_by_reduce(x):
    top = reduce(x.abs(), "b s f -> b s 1", "max")
    scale = (top / 127).masked_fill(top == 0, 1.0)
    return torch.clamp(torch.round(x / scale), -127, 127).type(torch.int8), scale


@right("by-hand-quantize-rows")
def rows_by_norm(x):
    scale = torch.linalg.vector_norm(x, ord=math.inf, dim=-1, keepdim=True) / 127
    scale = scale + (scale == 0)
    return (x / scale + 0.5).floor().char(), scale


def absmax(x, largest, steps=127, convert=torch.round, back=False):
    scale = torch.where(largest > 0, largest / steps, torch.ones_like(largest))
    quantized = convert(x / scale).clamp(-128, 127).to(torch.int8)
    return quantized, 1 / scale if back else scale


def top_of(x, dim=-1):
    return x.abs().amax(dim, keepdim=True)


WRONG["by-hand-quantize-rows"] = {
    "int8-one-scale": lambda x: absmax(x, x.abs().max().expand(*x.shape[:-1], 1)),
    "one scale for each sentence": lambda x: absmax(
        x, top_of(x, (1, 2)).expand(*x.shape[:-1], 1)
    ),
    "a single scale is returned": lambda x: absmax(x, x.abs().max()),
    "one scale for each column": lambda x: absmax(x, top_of(x, (0, 1))),
    "int8-truncated": lambda x: absmax(x, top_of(x), convert=torch.trunc),
    "rounded down": lambda x: absmax(x, top_of(x), convert=torch.floor),
    "int8-divided-by-128": lambda x: absmax(x, top_of(x), 128),
    "divided by 255": lambda x: absmax(x, top_of(x), 255),
    "four bits": lambda x: absmax(x, top_of(x), 7),
    "int8-sign-lost": {"max(row.max(), -row.min())": "row.max()", "top > 0": "top != 0"},
    "int8-zero-row": lambda x: (
        torch.round(127 * x / top_of(x)).to(torch.int8), top_of(x) / 127
    ),
    "the scale is upside down": lambda x: absmax(x, top_of(x), back=True),
    "the largest absolute value is the scale": lambda x: (
        absmax(x, top_of(x))[0], top_of(x) + (top_of(x) == 0)
    ),
    "a zero point": lambda x: (
        torch.round((x - x.mean(-1, keepdim=True)) / top_of(x).clamp(min=1e-9) * 127).char(),
        (top_of(x) / 127).masked_fill(top_of(x) == 0, 1),
    ),
    "the numbers are not converted": lambda x: (
        torch.round(x / absmax(x, top_of(x))[1]), absmax(x, top_of(x))[1]
    ),
    "the scale lost its axis": lambda x: (
        absmax(x, top_of(x))[0], absmax(x, top_of(x))[1].squeeze(-1)
    ),
    "the mean of the absolute values": lambda x: absmax(x, x.abs().mean(-1, keepdim=True)),
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
    "products overflow": lambda x, weight: (
        (rows_by_norm(x)[0][:, :, None] * rows_by_norm(weight[None])[0][0]).sum(-1)
        * rows_by_norm(x)[1] * rows_by_norm(weight[None])[1][0].T
    ),
    "int8-sum-overflows: the sum is cast": {"total.double()": "total.to(torch.int8)"},
    "int8-weight-scale-missing": {"X * w_scale": "X"},
    "the scale of x is missing": {"total.double() * x_scale": "total.double()"},
    "no scale at all": {"total.double() * x_scale * w_scale": "total.double()"},
    "divided by the scales": {
        "total.double() * x_scale * w_scale": "total.double() / x_scale / w_scale"
    },
    "the weight has one scale": {
        "weight.abs().amax(-1) / 127": "weight.abs().amax().expand(len(weight)) / 127"
    },
    "x has one scale": {"x.abs().amax(-1, keepdim=True) / 127":
                        "x.abs().amax().view(1, 1, 1) / 127"},
    "int8-truncated": {
        "(x / x_scale).round()": "(x / x_scale)",
        "(weight / w_scale[:, None]).round()": "(weight / w_scale[:, None])",
    },
    "only x is truncated": {"(x / x_scale).round()": "(x / x_scale)"},
    "nothing is quantised": lambda x, weight: x @ weight.T,
    "weight only": lambda x, weight: x @ (
        rows_by_norm(weight[None])[0][0] * rows_by_norm(weight[None])[1][0]
    ).T,
    "the weight has a scale for each column": lambda x, weight: (
        rows_by_norm(x)[0] * rows_by_norm(x)[1]
    ) @ (rows_by_norm(weight.T[None])[0][0] * rows_by_norm(weight.T[None])[1][0]),
    "four bits of each": {
        "x.abs().amax(-1, keepdim=True) / 127": "x.abs().amax(-1, keepdim=True) / 7",
        "weight.abs().amax(-1) / 127": "weight.abs().amax(-1) / 7",
    },
    "the scales are added": {"total.double() * x_scale * w_scale":
                             "total.double() * (x_scale + w_scale)"},
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


def alibi(bias, *, after=False, first=None, hidden=lambda d: d < 0, slopes=None, fill=-math.inf):
    """Write the layer with another bias, another first query, another mask or other slopes."""

    def answer(scores):
        heads, queries, keys = scores.shape[1:]
        start = keys - queries if first is None else first
        distance = torch.arange(start, start + queries)[:, None] - torch.arange(keys)
        m = (slopes or slopes_by_logspace)(heads).view(-1, 1, 1)
        due = bias(m, distance)
        if after:
            return scores.masked_fill(hidden(distance), fill).softmax(-1) + due
        return (scores + due).masked_fill(hidden(distance), fill).softmax(-1)

    return answer


def fall(m, d):
    return -m * d


WRONG["by-hand-alibi-weights"] = {
    "alibi-sign": alibi(lambda m, d: m * d),
    "alibi-sign: of the keys": {"scores + M * places":
                                "scores - M * places"},
    "alibi-queries-from-zero": alibi(fall, first=0),
    "alibi-one-slope": alibi(lambda m, d: -m[0] * d),
    "alibi-after-softmax": alibi(fall, after=True),
    "alibi-future-visible": alibi(fall, hidden=lambda d: d > 99),
    "alibi-future-visible: with absolute distances": alibi(
        lambda m, d: -m * d.abs(), hidden=lambda d: d > 99
    ),
    "alibi-head-from-zero": alibi(fall, slopes=lambda n: 2 ** (-8 * torch.arange(n) / n)),
    "alibi-eight-heads-only": alibi(fall, slopes=lambda n: 0.5 ** heads_of(n)),
    "no bias": alibi(lambda m, d: 0 * d),
    "no slope": alibi(lambda m, d: -d),
    "squared distance": alibi(lambda m, d: -m * d**2),
    "the logarithm of the distance": alibi(lambda m, d: -m * (1 + d.abs()).log()),
    "the future is 0": alibi(fall, fill=0),
    "the past is hidden": alibi(lambda m, d: m * d, hidden=lambda d: d > 0),
    "alibi-queries-from-zero: in the mask": alibi(
        fall, hidden=lambda d: torch.ones(d.shape).triu(1) > 0
    ),
    "slopes in reverse order": alibi(fall, slopes=lambda n: slopes_by_logspace(n).flip(0)),
    "softmax over the queries": {"F.softmax(scores, dim=-1)": "F.softmax(scores, dim=-2)"},
    "no softmax": {"F.softmax(scores, dim=-1)": "scores"},
    "the scores are multiplied": lambda scores: alibi(lambda m, d: 0 * d)(
        scores * slopes_by_logspace(scores.size(1)).view(-1, 1, 1)
    ),
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


def train(choose, merge=merged_at_the_end, new=lambda size, done: size + done):
    def answer(ids, vocab_size, num_merges):
        merges = []
        while len(merges) < num_merges and len(ids) > 1:
            counts = Counter(itertools.pairwise(ids))
            best = choose(counts)
            ids = merge(ids, best, new(vocab_size, len(merges)))
            merges.append(best)
        return merges

    return answer


def most(counts):
    return min(counts, key=lambda pair: (-counts[pair], pair))


def at_start(ids, vocab_size, num_merges):
    counts = Counter(itertools.pairwise(ids))
    return sorted(counts, key=lambda pair: (-counts[pair], *pair))[:num_merges]


WRONG["by-hand-bpe-train"] = {
    "bpe-counted-once": at_start,
    "bpe-tie-by-text": train(lambda counts: counts.most_common(1)[0][0]),
    "bpe-tie-larger": train(lambda counts: max((n, pair) for pair, n in counts.items())[1]),
    "ties by the second id": train(
        lambda counts: min(counts, key=lambda pair: (-counts[pair], pair[::-1]))
    ),
    "the rarest pair": train(lambda counts: min(counts, key=lambda pair: (counts[pair], pair))),
    "the smallest pair": train(min),
    "bpe-overlap": train(
        most, by_index(lambda ids, i, pair: tuple(ids[i : i + 2]) == pair, step=1)
    ),
    "new ids begin at 0": train(most, new=lambda size, done: done),
    "one new id": train(most, new=lambda size, done: size),
    "every other pair is counted": lambda ids, size, n: train_in_steps(ids, size, n),
    "one merge too few": lambda ids, size, n: train(most)(ids, size, n - 1),
    "the pairs are sorted": lambda ids, size, n: sorted(train(most)(ids, size, n)),
    "the pairs are reversed": lambda ids, size, n: [
        pair[::-1] for pair in train(most)(ids, size, n)
    ],
    "stops when no pair is repeated": lambda ids, size, n: stopped(ids, size, n),
}  # fmt: skip


def train_in_steps(ids, vocab_size, num_merges):
    """Count every other pair."""
    merges = []
    while len(merges) < num_merges and len(ids) > 1:
        counts = Counter(zip(ids[::2], ids[1::2], strict=False))
        merges.append(most(counts))
        ids = merged_at_the_end(ids, merges[-1], vocab_size + len(merges) - 1)
    return merges


def stopped(ids, vocab_size, num_merges):
    merges = []
    while len(merges) < num_merges and len(ids) > 1:
        counts = Counter(itertools.pairwise(ids))
        if counts[most(counts)] < 2:
            break
        merges.append(most(counts))
        ids = merged_at_the_end(ids, merges[-1], vocab_size + len(merges) - 1)
    return merges


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


def scaled(scale):
    """Accumulate rightly, and clip in another way."""
    return lambda x, y, w, b, size, top: scale(*gradients_by_formula(x, y, w, b, size, 1e9), top)


def divided(divisor, clip=True):
    """Accumulate with another divisor of the sum of a micro-batch."""

    def answer(x, labels, weight, bias, size, top):
        w = weight.detach().clone().requires_grad_()
        b = bias.detach().clone().requires_grad_()
        for xs, ys in zip(x.split(size), labels.split(size), strict=True):
            logits = F.linear(xs, w, b).flatten(0, 1)
            loss = F.cross_entropy(logits, ys.flatten(), reduction="sum")
            (loss / divisor(labels, ys, size)).backward()
            if not clip:
                norm = torch.cat([w.grad.flatten(), b.grad]).norm()
                w.grad *= min(1, top / norm)
                b.grad *= min(1, top / norm)
        norm = torch.cat([w.grad.flatten(), b.grad]).norm()
        return w.grad * min(1, top / norm), b.grad * min(1, top / norm)

    return answer


def known(y):
    return (y != -100).sum()


WRONG["by-hand-accumulated-gradients"] = {
    "accumulation-mean-of-means": divided(lambda all, y, n: known(y) * len(all.split(n))),
    "accumulation-not-divided": divided(lambda all, y, n: known(y)),
    "accumulation-padding-counted": divided(lambda all, y, n: all.numel()),
    "the padding of each micro-batch is counted": divided(
        lambda all, y, n: y.numel() * len(all.split(n))
    ),
    "divided by the number of sentences": divided(lambda all, y, n: len(all)),
    "divided by the number of micro-batches": divided(lambda all, y, n: len(all.split(n))),
    "sums": divided(lambda all, y, n: 1),
    "clip-each-tensor": scaled(
        lambda w, b, top: tuple(each * min(1, top / each.norm()) for each in (w, b))
    ),
    "clip-by-value": scaled(lambda w, b, top: (w.clamp(-top, top), b.clamp(-top, top))),
    "clip-scales-up": {"norm > max_norm": "norm > 0"},
    "each micro-batch is clipped": divided(lambda all, y, n: known(all), clip=False),
    "not clipped": {"norm > max_norm": "norm < 0"},
    "the bias is not clipped": {"w, b = w * max_norm / norm, X": "w = w * max_norm / norm"},
    "the norms are added": {"torch.cat([w.flatten(), b]).norm()": "w.norm() + b.norm()"},
    "the norm of the weight alone": {"torch.cat([w.flatten(), b]).norm()": "w.norm()"},
    "the largest number is the norm": {"torch.cat([w.flatten(), b]).norm()":
                                       "torch.cat([w.flatten(), b]).abs().max()"},
    "the sum of absolute values is the norm": {"torch.cat([w.flatten(), b]).norm()":
                                               "torch.cat([w.flatten(), b]).norm(1)"},
    "divided by the norm": {"w * max_norm / norm, b * max_norm / norm": "w / norm, b / norm"},
    "only the last micro-batch": {"w + error.T @ xs[keep] / total": "error.T @ xs[keep] / total",
                                  "b + error.sum(0) / total": "error.sum(0) / total"},
    "the last micro-batch is dropped if it is shorter": lambda x, y, w, b, n, top: (
        gradients_by_formula(x[: len(x) // n * n], y[: len(x) // n * n], w, b, n, top)
    ),
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


class LayerWithState(nn.Module):
    """Keep the cache in the layer, and lose it because each call makes a new layer."""

    def __init__(self, num_heads):
        super().__init__()
        self.num_heads, self.k, self.v = num_heads, None, None

    def forward(self, x, w_q, w_k, w_v, w_o):
        q, k, v = ((x @ w.T).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
                   for w in (w_q, w_k, w_v))  # fmt: skip
        self.k = k if self.k is None else torch.cat([self.k, k], 2)
        self.v = v if self.v is None else torch.cat([self.v, v], 2)
        causal = torch.ones(x.size(1), x.size(1)).tril().bool()
        out = F.scaled_dot_product_attention(q, self.k, self.v, causal)
        return out.transpose(1, 2).flatten(2) @ w_o.T, self.k, self.v


def cached_by_sdpa(**options):
    """Give SDPA a flag instead of a mask."""

    def answer(x, w_q, w_k, w_v, w_o, num_heads, keys, values):
        q, k, v = ((x @ w.T).unflatten(2, (num_heads, -1)).transpose(1, 2) for w in (w_q, w_k, w_v))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        out = F.scaled_dot_product_attention(q, keys, values, **options)
        return out.transpose(1, 2).flatten(2) @ w_o.T, keys, values

    return answer


HIDDEN_KEYS = "torch.ones(n, total).triu(total - n + 1).bool()"
WRONG["by-hand-attention-with-cache"] = {
    "cache-causal-missing": cached_by_sdpa(),
    "causal-corner": cached_by_sdpa(is_causal=True),
    "cache-mask-dropped": {
        "hidden = X": "hidden = X if n == total else torch.zeros(n, total).bool()"
    },
    "causal-diagonal": {HIDDEN_KEYS: "torch.ones(n, total).triu(total - n).bool()"},
    "one future token is visible": {
        HIDDEN_KEYS: "torch.ones(n, total).triu(total - n + 2).bool()"
    },
    "a new layer, and so a new cache, in each call": lambda *given: (
        LayerWithState(given[5])(*given[:5])
    ),
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


def nucleus(probs, p):
    """Keep the top words until their sum reaches p."""
    top, order = probs.sort(-1, descending=True)
    top = top * ((top.cumsum(-1) - top) < p)
    return torch.zeros_like(probs).scatter(-1, order, top)


def best_of(logits, k):
    return logits.masked_fill(logits < logits.topk(k).values[:, -1:], -math.inf)


def to_one(probs):
    return probs / probs.sum(-1, keepdim=True)


WRONG["by-hand-sampling-probabilities"] = {
    "temperature-multiplied": {"logits / temperature": "logits * temperature"},
    "temperature-without-effect": {"logits / temperature": "logits"},
    "temperature-without-effect: probabilities are divided": lambda z, t, k, p: to_one(
        nucleus(best_of(z, k).softmax(-1) / t, p)
    ),
    "temperature-last": lambda z, t, k, p: to_one(
        nucleus(best_of(z, k).softmax(-1), p) ** (1 / t)
    ),
    "temperature between top-k and top-p of probabilities": lambda z, t, k, p: to_one(
        nucleus(to_one(best_of(z, k).softmax(-1)) * t, p)
    ),
    "top-k-logit-zero": lambda z, t, k, p: to_one(
        nucleus((z / t * (z >= z.topk(k).values[:, -1:])).softmax(-1), p)
    ),
    "top-p-of-all-words: top-p first": lambda z, t, k, p: to_one(
        nucleus((z / t).softmax(-1), p) * (z >= z.topk(k).values[:, -1:])
    ),
    "top-p-of-all-words": lambda z, t, k, p: to_one(
        nucleus((z / t).softmax(-1) * (z >= z.topk(k).values[:, -1:]), p)
    ),
    "top-p-one-short": {"X.clamp(max=k - 1)": "(X - 1).clamp(min=0)"},
    "top-p-one-short: the word that reaches p": lambda z, t, k, p: to_one(
        (lambda s: torch.zeros_like(z).scatter(
            -1, s.indices, s.values * (s.values.cumsum(-1) <= p)))(
            best_of(z / t, k).softmax(-1).sort(-1, descending=True)
        )
    ),
    "top-p-by-rank": lambda z, t, k, p: to_one(
        nucleus(best_of(z / t, k).softmax(-1).sort(-1, descending=True).values, p)
    ),
    "each word is compared with p": lambda z, t, k, p: to_one(
        (lambda s: s * (s >= 1 - p))(best_of(z / t, k).softmax(-1))
    ),
    "the smallest words are kept": {"z.topk(k, dim=-1)": "(-z).topk(k, dim=-1)",
                                    "z < kth": "-z < kth"},
    "one threshold for the batch": {"z.topk(k, dim=-1).values[:, -1:]":
                                    "z.flatten().topk(k).values[-1]"},
    "k + 1 words": {"z.topk(k, dim=-1)": "z.topk(min(k + 1, z.size(-1)), dim=-1)",
                    "X.clamp(max=k - 1)": "X.clamp(max=z.size(-1) - 1)"},
    "not divided by the sum": {"probs / probs.sum(dim=-1, keepdim=True)": "probs"},
    "top-p is missing": {"probs >= smallest": "probs >= 0"},
    "top-k is missing": {"z.masked_fill(z < kth, -math.inf)": "z",
                         "X.clamp(max=k - 1)": "X.clamp(max=z.size(-1) - 1)"},
    "softmax over the batch": {"torch.softmax(z, dim=-1)": "torch.softmax(z, dim=0)"},
    "the best word alone": lambda z, t, k, p: F.one_hot(z.argmax(-1), z.size(-1)).double(),
    "the remaining words are equal": {"torch.where(probs >= smallest, probs, 0.0)":
                                      "(probs >= smallest).double()"},
    "softmax twice": {"return X": "return (X).softmax(-1)"},
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


def shared_by(share, mix=lambda out: out.transpose(1, 2).flatten(2)):
    """Share heads in another way."""

    def answer(x, w_q, w_k, w_v, w_o, n_heads, n_kv):
        q, k, v = (
            (x @ w.T).unflatten(-1, (n, -1)).transpose(1, 2)
            for w, n in ((w_q, n_heads), (w_k, n_kv), (w_v, n_kv))
        )
        k, v = share(k, n_heads // n_kv), share(v, n_heads // n_kv)
        return mix(F.scaled_dot_product_attention(q, k, v)) @ w_o.T

    return answer


WRONG["by-hand-grouped-query-attention"] = {
    "kv-tiled": shared_by(lambda kv, group: kv.repeat(1, group, 1, 1)),
    "kv-tiled: by the remainder": {"h // group": "h % n_kv"},
    "kv-first-head": {"h // group": "h // n_heads"},
    "kv-first-head: expanded": shared_by(
        lambda kv, group: kv[:, :1].expand(-1, group * kv.size(1), -1, -1)
    ),
    "the last head of keys and values": {"h // group": "n_kv - 1"},
    "the heads of keys and values are averaged": shared_by(
        lambda kv, group: kv.mean(1, keepdim=True).repeat(1, group * kv.size(1), 1, 1)
    ),
    "the keys of one group and the values of another": {"v_heads[g]": "v_heads[h % n_kv]"},
    "each head is repeated once for each group": shared_by(
        lambda kv, group: kv.repeat_interleave(kv.size(1), dim=1)
    ),
    "the query heads are in another order": {
        "torch.bmm(q_heads[h], K)": "torch.bmm(q_heads[(h % group) * n_kv + g], K)"
    },
    "merge-no-transpose": shared_by(
        lambda kv, group: kv.repeat_interleave(group, 1),
        lambda out: out.reshape(out.size(0), out.size(2), -1),
    ),
    "the outputs are added": {"torch.cat(outputs, dim=-1)":
                              "torch.cat([sum(outputs)] * n_heads, dim=-1)"},
    "scale-missing": {"X / math.sqrt(D)": "X"},
    "scale-d_model": {"math.sqrt(D)": "math.sqrt(x.size(-1))"},
    "the scale of the whole width": {"math.sqrt(D)": "math.sqrt(q.size(-1))"},
    "softmax-queries": {"torch.softmax(scores, dim=-1)": "torch.softmax(scores, dim=1)"},
    "split-interleaved": lambda x, w_q, w_k, w_v, w_o, n_heads, n_kv: heads_expanded(
        x,
        *(rearrange(w, "(d h) m -> (h d) m", h=n)
          for w, n in ((w_q, n_heads), (w_k, n_kv), (w_v, n_kv))),
        w_o, n_heads, n_kv,
    ),
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


def half_split(x, cos, sin):
    """Rotate feature i with feature i + d / 2, as Llama's code in Transformers does."""
    first, second = x.chunk(2, dim=-1)
    return x * cos.repeat(1, 2) + torch.cat((-second, first), -1) * sin.repeat(1, 2)


def rotary_by_halves(q, k, v, start):
    places = torch.arange(start, start + q.size(2)).double()
    freqs = places[:, None] * 10000 ** (-torch.arange(0, q.size(-1), 2).double() / q.size(-1))
    q, k = (half_split(x, freqs.cos(), freqs.sin()) for x in (q, k))
    return F.scaled_dot_product_attention(q, k, v), k


BOTH, FREQS = "q, k = apply(q), apply(k)", "torch.outer(places.double(), inv_freq.double())"
WRONG["by-hand-attention-with-rotary"] = {
    "rotary-halves": rotary_by_halves,
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


def gated(hidden):
    """Combine the two projections in another way."""
    return lambda x, gate, up, down: hidden(x @ gate.T, x @ up.T) @ down.T


WRONG["09-swiglu"] = {
    "gate-up-swapped": gated(lambda g, u: u * torch.sigmoid(u) * g),
    "gate-up-swapped: halves of one product": lambda x, gate, up, down: (
        (lambda u, g: F.silu(g) * u)(*F.linear(x, torch.cat([gate, up])).chunk(2, -1)) @ down.T
    ),
    "the gate of F.glu": lambda x, gate, up, down: F.glu(x @ torch.cat([up, gate]).T) @ down.T,
    "no activation": gated(lambda g, u: g * u),
    "SiLU on both": gated(lambda g, u: F.silu(g) * F.silu(u)),
    "ReLU instead of SiLU": gated(lambda g, u: g.relu() * u),
    "GELU by tanh": gated(lambda g, u: F.gelu(g, approximate="tanh") * u),
    "the swish of 1.702": gated(lambda g, u: g * torch.sigmoid(1.702 * g) * u),
    "up is missing": gated(lambda g, u: F.silu(g)),
    "the gate is missing": gated(lambda g, u: F.silu(u)),
    "the sign in the exponential": gated(lambda g, u: g / (1 + g.exp()) * u),
    "softmax instead of a sigmoid": gated(lambda g, u: g * g.softmax(-1) * u),
    "SiLU of the output": lambda x, gate, up, down: F.silu((x @ gate.T) * (x @ up.T) @ down.T),
    "a residual connection": lambda x, gate, up, down: (
        x + (F.silu(x @ gate.T) * (x @ up.T)) @ down.T
    ),
    "up is added once more": gated(lambda g, u: F.silu(g) * u + u),
}  # fmt: skip


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


class LogSumExp(nn.Module):
    def __init__(self, eps=1e-12):
        super().__init__()
        self.eps = eps

    def forward(self, scores):
        return torch.log(scores.exp().sum(dim=-1) + self.eps)


WRONG["by-hand-log-sum-exp"] = {
    "logsumexp-overflow": lambda z: torch.exp(z).sum(-1).log(),
    "a small number inside the logarithm, and it overflows": lambda z: LogSumExp()(z),
    "logsumexp-maximum-lost": lambda z: torch.log(
        torch.sum(torch.exp(z - z.max(-1, keepdim=True)[0]), -1)
    ),
    "logsumexp-shared-maximum": lambda z: torch.log(torch.exp(z - z.max()).sum(-1)) + z.max(),
    "logsumexp-shared-maximum: the one of each sentence": lambda z: (
        (z - z.flatten(1).amax(1)[:, None, None]).exp().sum(-1).log()
        + z.flatten(1).amax(1)[:, None]
    ),
    "the sum of the logarithms": lambda z: z.exp().log().sum(-1),
    "the sum of the scores": lambda z: z.sum(-1),
    "logsumexp-maximum-subtracted": {"X + top.squeeze(-1)": "X - top.squeeze(-1)"},
    "a mean instead of a sum": {"torch.sum(powers, dim=-1)": "torch.mean(powers, dim=-1)"},
    "the sum runs over the words": lambda z: word_by_word(z.mT),
    "the axis of size one is kept": lambda z: word_by_word(z).unsqueeze(-1),
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


def per_word(logits, labels, log_p):
    """Take the mean of minus the log probability of each label."""
    counted = labels != -100
    rows, words = log_p(logits)[counted], labels[counted]
    return -rows.gather(1, words[:, None]).mean()


RIGHT.append(Answer("13-loss", lambda logits, labels: TokenLoss()(logits, labels)))
WRONG["13-loss"] = {
    "softmax-before-loss": lambda logits, labels: per_word(
        logits.softmax(-1), labels, lambda z: z.log_softmax(-1)
    ),
    "logits-flattened-wrong": lambda logits, labels: F.cross_entropy(
        logits.transpose(0, 1).reshape(-1, logits.size(-1)), labels.reshape(-1)
    ),
    "softmax over the words": lambda logits, labels: per_word(
        logits, labels, lambda z: z.log_softmax(1)
    ),
    "powers that overflow": lambda logits, labels: per_word(
        logits, labels, lambda z: z - z.exp().sum(-1, keepdim=True).log()
    ),
    "the logarithm of a softmax": lambda logits, labels: per_word(
        logits, labels, lambda z: z.softmax(-1).log()
    ),
    "a small number in the logarithm": lambda logits, labels: per_word(
        logits, labels, lambda z: (z.softmax(-1) + 1e-9).log()
    ),
    "the score of the label without log-sum-exp": lambda logits, labels: per_word(
        logits, labels, lambda z: z
    ),
    "the sign of the probability": lambda logits, labels: (
        -per_word(logits, labels, lambda z: z.log_softmax(-1))
    ),
    "word 0 is ignored too": lambda logits, labels: per_word(
        logits, labels.masked_fill(labels == 0, -100), lambda z: z.log_softmax(-1)
    ),
    "the mean over the batch only": lambda logits, labels: (
        F.cross_entropy(logits.mT, labels, reduction="sum") / len(labels)
    ),
    "the loss of the most probable word": lambda logits, labels: per_word(
        logits, torch.where(labels == -100, labels, logits.argmax(-1)), lambda z: z.log_softmax(-1)
    ),
    "labels before the logits are shifted": lambda logits, labels: F.cross_entropy(
        logits[:, 1:].flatten(0, 1), labels[:, :-1].flatten()
    ),
    "one loss for each word": lambda logits, labels: F.cross_entropy(
        logits.mT, labels, reduction="none"
    ),
    "smoothed labels": lambda logits, labels: F.cross_entropy(
        logits.mT, labels, label_smoothing=0.1
    ),
    "the mean over the vocabulary as well": lambda logits, labels: (
        F.cross_entropy(logits.mT, labels) / logits.size(-1)
    ),
}


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
WRONG["by-hand-softmax"] = {
    "softmax-overflow": lambda x, d: x.exp() / x.exp().sum(d, keepdim=True),
    "softmax-last-axis": lambda x, dim: StableSoftmax(2)(x),
    "softmax-shared-maximum": {"torch.max(X, dim=dim, keepdim=True).values": "X.max()"},
    "softmax-shared-maximum: that of each sentence": lambda x, d: (
        lambda e: e / e.sum(d, keepdim=True)
    )(torch.exp(x - x.flatten(1).amax(1).view(-1, 1, 1))),
    "softmax-shifted-above": lambda x, d: (
        torch.exp(x - x.amax(d, keepdim=True)) / torch.exp(x).sum(d, keepdim=True)
    ),
    "softmax-sum-of-all": {"e.sum(dim=dim, keepdim=True)": "e.sum()"},
    "the maximum is that of the last axis": {"torch.max(x, dim=dim, keepdim=True)":
                                             "torch.max(x, dim=-1, keepdim=True)"},
    "the sum is that of the last axis": {"e.sum(dim=dim, keepdim=True)": "e.sum(-1, True)"},
    "the axis is lost": {"e.sum(dim=dim, keepdim=True)": "e.sum(dim=dim)"},
    "the axis of the maximum is lost": lambda x, d: (
        lambda e: e / e.sum(d, keepdim=True)
    )(torch.exp(x - x.amax(d))),
    "clamped scores": lambda x, d: (
        x.clamp(-80, 80).exp() / x.clamp(-80, 80).exp().sum(d, keepdim=True)
    ),
    "a small number in the denominator": {"e.sum(dim=dim, keepdim=True)":
                                          "(e.sum(dim=dim, keepdim=True) + 1e-4)"},
    "no exponential": lambda x, d: x / x.sum(d, keepdim=True),
    "the mean is subtracted": {"torch.max(x, dim=dim, keepdim=True).values":
                               "x.mean(dim, keepdim=True)"},
    "the denominator is cut off": {"e.sum(dim=dim, keepdim=True)":
                                   "e.detach().sum(dim=dim, keepdim=True)"},
    "rounded to two decimals": {"return X": "return (X).round(decimals=2)"},
    "a sigmoid": lambda x, d: torch.sigmoid(x),
    "the absolute maximum": {"torch.max(x, dim=dim, keepdim=True).values":
                             "x.abs().amax(dim, keepdim=True)"},
}  # fmt: skip


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


def attention_that_sees(mask):
    """Attend with another mask, made of the ids and of the causal mask."""

    def answer(q, k, v, ids):
        causal = torch.ones(q.size(-2), k.size(-2)).tril(k.size(-2) - q.size(-2)).bool()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask(ids, causal))

    return answer


VISIBLE = "ids.bool()[:, None, None]"
WRONG["by-hand-masked-attention"] = {
    "masks-either": attention_that_sees(lambda ids, causal: (ids > 0)[:, None, None] | causal),
    "masks-padding-visible": attention_that_sees(lambda ids, causal: causal),
    "masks-future-visible": attention_that_sees(lambda ids, causal: (ids != 0)[:, None, None]),
    "mask-inverted: both": attention_that_sees(
        lambda ids, causal: ~((ids != 0)[:, None, None] & causal)
    ),
    "mask-inverted: only that of padding": attention_that_sees(
        lambda ids, causal: (ids == 0)[:, None, None] & causal
    ),
    "causal-corner": lambda q, k, v, ids: F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=(ids != 0)[:, None, None] & torch.ones(q.size(2), k.size(2)).tril().bool(),
    ),
    "causal-diagonal": {"torch.arange(m)[None] <= rows": "torch.arange(m)[None] < rows"},
    "causal-triu": {"torch.arange(m)[None] <= rows": "torch.arange(m)[None] >= rows"},
    "one word of the future": {
        "torch.arange(m)[None] <= rows": "torch.arange(m)[None] <= rows + 1"
    },
    "mask-finite": {"(weights * visible)": "weights"},
    "mask-empty-row": {"-1e30": "-math.inf", "(weights * visible)": "weights"},
    "mask-multiplied": lambda q, k, v, ids: (
        torch.softmax(
            q
            @ k.mT
            / q.size(-1) ** 0.5
            * (
                (ids != 0)[:, None, None]
                & torch.ones(q.size(2), k.size(2)).tril(k.size(2) - q.size(2)).bool()
            ),
            -1,
        )
        @ v
    ),
    "mask-after-softmax": {"X + bias": "X"},
    "mask-query-axis": {VISIBLE: "ids.bool()[:, None, :, None]"},
    "mask-head-axis": {VISIBLE: "ids.bool()[:, None]"},
    "scale-missing": {"q.size(-1) ** -0.5": "1"},
    "the values are hidden, the scores are not": lambda q, k, v, ids: attention_that_sees(
        lambda ids, causal: causal
    )(q, k, v * (ids != 0)[:, None, :, None], ids),
    "a small finite bias": {"-1e30": "-5.0", "(weights * visible)": "weights"},
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
    "the cross-attention comes first": lambda x, memory, back, across, think, norms, *masks: (
        three_sums(x, memory, lambda q, k, v, m: across(q, memory, memory, masks[1]),
                   lambda q, k, v, m: back(q, q, q, masks[0]), think,
                   [norms[1], norms[0], norms[2]], *masks)
    ),
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
    "all sublayers read the input": lambda x, memory, back, across, think, norms, tgt, src: (
        x + back(*[norms[0](x)] * 3, tgt) + across(norms[1](x), memory, memory, src)
        + think(norms[2](x))
    ),
}  # fmt: skip


def heads_by(split, merge, softmax=lambda scores: scores.softmax(-1), key_matrix="w_k"):
    """Write multi-head attention with another split, merge or softmax."""

    def answer(query, memory, w_q, w_k, w_v, w_o, num_heads):
        k = memory @ {"w_q": w_q, "w_k": w_k}[key_matrix].T
        q, k, v = (split(x, num_heads) for x in (query @ w_q.T, k, memory @ w_v.T))
        context = softmax(q @ k.mT / math.sqrt(q.size(-1))) @ v
        return merge(context) @ w_o.T

    return answer


def in_order(x, heads):
    return rearrange(x, "b s (h d) -> b h s d", h=heads)


def joined(x):
    return rearrange(x, "b h s d -> b s (h d)")


WRONG["06-multi-head-attention"] |= {
    "split and merged by view": heads_by(
        lambda x, h: x.view(len(x), h, x.size(1), -1),
        lambda x: x.reshape(len(x), x.size(2), -1),
    ),
    "split-view": heads_by(lambda x, h: x.view(len(x), h, x.size(1), -1), joined),
    "merge-no-transpose": heads_by(in_order, lambda x: x.reshape(len(x), x.size(2), -1)),
    "split-interleaved: merged alike": heads_by(
        lambda x, h: rearrange(x, "b s (d h) -> b h s d", h=h),
        lambda x: rearrange(x, "b h s d -> b s (d h)"),
    ),
    "split-interleaved": heads_by(lambda x, h: rearrange(x, "b s (d h) -> b h s d", h=h), joined),
    "softmax twice": heads_by(in_order, joined, lambda x: x.softmax(-1).softmax(-1)),
    "softmax-heads": heads_by(in_order, joined, lambda x: x.softmax(1)),
    "softmax-queries": heads_by(in_order, joined, lambda x: x.softmax(2)),
    "the keys have the matrix of the queries": heads_by(in_order, joined, key_matrix="w_q"),
    "no softmax": heads_by(in_order, joined, lambda x: x),
}
