"""Answers to the tasks of the pages to write by hand, in the form of `wrong_answers`."""

import itertools
import math
from collections import Counter

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
