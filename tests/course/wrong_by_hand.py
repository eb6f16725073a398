"""Answers to the tasks of the pages to write by hand, in the form of `wrong_answers`."""

import math

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce, repeat
from torch import nn

from tests.course.wrong_answers import WRONG, right


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
