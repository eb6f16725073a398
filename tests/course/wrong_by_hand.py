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
