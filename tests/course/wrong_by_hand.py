"""Answers to the tasks of the pages to write by hand, in the form of `wrong_answers`."""

import math

import torch
import torch.nn.functional as F
from einops import einsum, reduce
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
