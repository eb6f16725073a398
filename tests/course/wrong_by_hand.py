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
