"""Answers to the exercises as many different people would write them, wrong and right.

Each exercise has a right answer, written in an unusual way, and wrong answers by their fault. A
wrong answer is an edit of that right answer, as `twelve_lab.exercises.edit` applies it, or a
function. A fault is the id of a classic mistake, which may be followed by a colon and a remark, or
any other words. tests/unit/test_check.py plants every declared mistake in the right answers, so the
wrong answers of the lessons here are those that nobody declared.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from twelve import Linear, causal_mask
from twelve_lab.check import MISTAKES
from twelve_lab.exercises.declare import Edited

Function = Callable[..., Any]


class Answer(NamedTuple):
    """An answer to an exercise; a right answer has no fault."""

    exercise: str
    function: Function
    fault: str = ""

    @property
    def mistake(self) -> str | None:
        """The id of the classic mistake that the checker must name."""
        id = self.fault.partition(":")[0]
        return id if id in MISTAKES else None


RIGHT: list[Answer] = []
WRONG: dict[str, dict[str, dict[str, str] | Function]] = {}


def right(exercise: str) -> Callable[[Function], Function]:
    """Register a right answer. The wrong answers of an exercise are edits of its first one."""

    def collect(function: Function) -> Function:
        RIGHT.append(Answer(exercise, function))
        return function

    return collect


def wrong_answer(exercise: str, fault: str) -> Answer:
    """Return a wrong answer, and apply its edit to the first right answer."""
    change = WRONG[exercise][fault]
    if isinstance(change, dict):
        base = next(answer.function for answer in RIGHT if answer.exercise == exercise)
        change = Edited(base, change).function
    return Answer(exercise, change, fault)


def wrong_answers(*exercises: str) -> Iterator[Answer]:
    """Return the wrong answers to some exercises, or to all."""
    for exercise in exercises or WRONG:
        yield from (wrong_answer(exercise, fault) for fault in WRONG.get(exercise, ()))


@right("01-linear")
def linear_in_one_flat_product(x, weight, bias):
    flat = torch.addmm(bias, x.reshape(-1, x.size(-1)), weight.t())
    return flat.view(*x.shape[:-1], weight.size(0))


RIGHT.append(Answer("01-linear-layer", Linear))
WRONG["01-linear"] = {
    "the bias is never added": {"torch.addmm(bias, X, Y)": "X @ Y"},
    "an activation follows, as a habit": {"flat = X": "flat = torch.relu(X)"},
    "only the first row gets the bias": lambda x, w, b: torch.cat(
        [(x @ w.T).flatten(0, 1)[:1] + b, (x @ w.T).flatten(0, 1)[1:]]
    ).view(*x.shape[:-1], -1),
}


@right("01-swap-axes")
def swap_by_sentences(x):
    return torch.stack([torch.stack(list(sentence.unbind(-1))) for sentence in x])


WRONG["01-swap-axes"] = {
    "the batch is reversed as well": lambda x: x.permute(2, 1, 0),
    "sentences are stacked on axis 1": lambda x: torch.stack([each.T for each in x], dim=1),
}


@right("02-embed")
def one_hot_times_the_table(ids, table):
    return F.one_hot(ids, num_classes=len(table)).to(table.dtype) @ table


WRONG["02-embed"] = {
    "ids are counted from one": lambda ids, table: table[ids - 1],
}


@right("02-padding-row")
def padding_row_without_gradient(ids, table, pad):
    padding = ids.eq(pad).unsqueeze(-1)
    return torch.where(padding, table.detach()[ids], table[ids])


WRONG["02-padding-row"] = {
    "the whole table is detached": {"table[ids]": "table.detach()[ids]"},
}


@right("03-sinusoid")
def sinusoid_entry_by_entry(max_len, d_model):
    def wave(pos, i):
        angle = pos / 10000 ** (2 * (i // 2) / d_model)
        return math.sin(angle) if i % 2 == 0 else math.cos(angle)

    return torch.tensor([[wave(pos, i) for i in range(d_model)] for pos in range(max_len)])


WRONG["03-sinusoid"] = {
    "the base is 1000": {"10000": "1000"},
    "positions are counted from one": {"pos / X": "(pos + 1) / X"},
}


@right("03-positional-encoding")
def positions_added_in_a_loop(x, table):
    return torch.stack([x[:, t] + table[t] for t in range(x.size(1))], dim=1)


WRONG["03-positional-encoding"] = {
    "concatenated instead of added": {"A + B": "torch.cat([A, B.expand_as(A)], -1)"},
    "the input is overwritten": lambda x, pe: x.add_(pe[: x.size(1)]),
    "the last rows of the table": lambda x, pe: x + pe[-x.size(1) :],
}


@right("03-positions-dropped")
def dropped_after_the_sum(x, table, dropout):
    rows = F.embedding(torch.arange(x.size(1)).expand(x.shape[:2]), table)
    return dropout(rows + x)


WRONG["03-positions-dropped"] = {
    "dropout on the words alone": {"dropout(rows + x)": "rows + dropout(x)"},
}


@right("04-attention-scores")
def scores_from_distances(q, k):
    squares = q.square().sum(-1).unsqueeze(2) + k.square().sum(-1).unsqueeze(1)
    apart = (q.unsqueeze(2) - k.unsqueeze(1)).square().sum(-1)
    return (squares - apart) / (2 * math.sqrt(q.size(-1)))


@right("04-attention-weights")
def weights_by_logsumexp(scores):
    return torch.exp(scores - scores.logsumexp(dim=-1, keepdim=True))


WRONG["04-attention-weights"] = {
    "logarithms of the weights": {"torch.exp(X)": "X"},
    "a sigmoid for each key": lambda scores: 1 / (1 + torch.exp(-scores)),
}


@right("04-attention")
def attention_query_by_query(query, key, value):
    scale = query.shape[-1] ** -0.25
    out = []
    for q, k, v in zip(query * scale, key * scale, value, strict=True):
        out.append(torch.stack([F.softmax(k @ row, dim=0) @ v for row in q]))
    return torch.stack(out)


WRONG["04-attention"] = {
    "no softmax": {"F.softmax(X, dim=0)": "X"},
}


@right("05-padding-mask")
def ids_as_truth_values(ids):
    return ids.bool().view(ids.size(0), 1, 1, -1)


WRONG["05-padding-mask"] = {
    "word 1 is hidden as well": {"ids.bool()": "(ids > 1)"},
    "floats instead of booleans": {"ids.bool()": "ids.bool().float()"},
}


@right("05-causal-mask")
def no_key_after_the_query(length):
    position = torch.arange(length)
    return torch.ge(position.view(-1, 1), position).expand(1, 1, length, length)


WRONG["05-causal-mask"] = {
    "a mask to add": lambda n: torch.full((n, n), -math.inf).triu(diagonal=1)[None, None],
}


@right("05-mask-of-new")
def last_rows_of_the_square(new, total):
    square = torch.tril(torch.ones(total, total, dtype=torch.bool))
    return square[total - new :].reshape(1, 1, new, total)


@right("05-masked-weights")
def nan_becomes_zero(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


@right("05-scaled-dot-product-attention")
def a_billion_below_then_zeroed(q, k, v, mask):
    scores = torch.einsum("bhqd,bhkd->bhqk", q / math.sqrt(q.shape[-1]), k)
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    weights = scores.masked_fill(mask == 0, -1e9).softmax(-1) * mask
    return torch.einsum("bhqk,bhkv->bhqv", weights, v)


RIGHT.append(Answer("05-scaled-dot-product-attention", F.scaled_dot_product_attention))


@right("05-padded-attention")
def padding_cut_out_of_each_sentence(query, key, value, ids):
    out = []
    for q, k, v, words in zip(query, key, value, ids, strict=True):
        real = words != 0
        k, v = k[:, real], v[:, real]
        out.append(torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1) @ v)
    return torch.stack(out)


@right("06-split-heads")
def heads_stacked_from_chunks(x, n):
    return torch.stack(x.chunk(n, dim=-1), dim=1)


WRONG["06-split-heads"] = {
    "the sentence is split": lambda x, n: (
        torch.cat(x.chunk(n, dim=1), -1).view(len(x), -1, n, x.size(-1)).transpose(1, 2)
    ),
    "the heads stay on the third axis": {"torch.stack(X, dim=1)": "torch.stack(X, dim=2)"},
}


@right("06-merge-heads")
def heads_concatenated(heads):
    return torch.cat(heads.unbind(dim=1), dim=-1)


WRONG["06-merge-heads"] = {
    "the heads are in reversed order": {"heads.unbind(dim=1)": "heads.unbind(dim=1)[::-1]"},
}


@right("06-multi-head-attention")
def multi_head_attention_in_einsums(x, y, w_q, w_k, w_v, w_o, h):
    q, k, v = (rearrange(w, "(h d) m -> h d m", h=h) for w in (w_q, w_k, w_v))
    logits = torch.einsum("bqm,hdm,hdn,bkn->bhqk", x, q, k, y) / math.sqrt(q.size(1))
    mixed = torch.einsum("bhqk,bkm,hvm->bqhv", logits.softmax(-1), y, v)
    return mixed.flatten(2) @ w_o.mT


WRONG["06-multi-head-attention"] = {
    "no output projection": {"X @ w_o.mT": "X"},
    "the keys' matrix projects the values": {"(w_q, w_k, w_v)": "(w_q, w_k, w_k)"},
    "W_o is not transposed": {"w_o.mT": "w_o"},
}


@right("07-layer-norm")
def layer_norm_from_var_mean(x, weight, bias):
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) * (var + 1e-5).rsqrt(), weight)


WRONG["07-layer-norm"] = {
    "no gradient through the statistics": {
        "var, mean = X": "var, mean = (each.detach() for each in X)"
    },
}


@right("07-rms-norm")
def rms_norm_from_the_norm(x, w):
    mean_square = torch.linalg.vecdot(x, x).unsqueeze(-1) / x.shape[-1]
    return w * x * (mean_square + 1e-5) ** -0.5


@right("08-residual")
def residual_backwards(x, f, norm):
    return f(norm(x)).add(x)


WRONG["08-residual"] = {
    "the input is subtracted": lambda x, f, norm: f(norm(x)) - x,
    "nothing is returned": {"return X": "X"},
}


@right("09-feed-forward")
def relu_by_where(x, w_up, b_up, w_down, b_down):
    h = torch.einsum("fd,bsd->bsf", w_up, x) + b_up
    h = torch.where(h > 0, h, torch.zeros_like(h))
    return torch.einsum("df,bsf->bsd", w_down, h) + b_down


@right("10-stack")
def stack_that_grows(make, depth):
    layers = nn.Sequential()
    for i in range(depth):
        layers.add_module(str(i), make())
    return layers


@right("10-encoder")
def encoder_by_reduce(x, layers, norm, mask):
    return norm(functools.reduce(lambda h, layer: layer(h, mask), layers, x))


@right("11-cross-attention")
def keys_and_values_from_the_memory(x, memory, attend, src_mask, tgt_mask):
    return attend(x, *[memory] * 2, src_mask)


@right("11-target-mask")
def causal_by_running_sum(tgt):
    n = tgt.shape[1]
    return torch.eye(n).cumsum(1).T.bool()[None, None]


@right("11-decoder")
def decoder_by_recursion(x, memory, layers, norm, tgt_mask, src_mask):
    if len(layers) == 0:
        return norm(x)
    x = layers[0](x, memory, tgt_mask, src_mask)
    return decoder_by_recursion(x, memory, layers[1:], norm, tgt_mask, src_mask)


@right("12-transformer")
def transformer_inside_out(t, src, tgt, src_mask, tgt_mask):
    return t.output_projection(
        t.decoder(
            t.positional_encoding(t.tgt_embedding(tgt)),
            t.encoder(t.positional_encoding(t.src_embedding(src)), src_mask=src_mask),
            tgt_mask=tgt_mask,
            src_mask=src_mask,
        )
    )


@right("13-shift")
def padded_on_the_left(target):
    return F.pad(target, (1, -1)), torch.where(target == 0, -100, target)


SHIFTED = "F.pad(target, (1, -1))"
WRONG["13-shift"] = {
    "the ids have become floats": {SHIFTED: f"{SHIFTED}.float()"},
}


@right("13-make-batch")
def batch_by_rolling(src, target):
    tgt = target.roll(1, dims=1)
    tgt[:, 0] = 0
    labels = target.clone()
    labels[labels == 0] = -100
    return src, tgt, labels


@right("14-embed-step")
def step_with_selected_positions(new, length, table, positions):
    rows = torch.arange(length, length + new.size(-1))
    return F.embedding(new, table) + positions.index_select(0, rows)


WRONG["14-embed-step"] = {
    "positions start one too late": {"rows = X": "rows = (X + 1).clamp(max=len(positions) - 1)"},
}


@right("16-rotary-angles")
def angles_one_by_one(start, new, d_k):
    rows = [
        [p / 10000 ** (2 * i / d_k) for i in range(d_k // 2)] for p in range(start, start + new)
    ]
    return torch.tensor(rows, dtype=torch.float64)


WRONG["16-rotary-angles"] = {
    "two columns for each pair": {"return X": "return X.repeat(1, 2)"},
    "the base of Llama 3": {"10000": "500000"},
}


@right("16-rotate")
def rotate_by_complex_exponentials(heads, angles):
    z = rearrange(heads, "b h s (pair two) -> b h s pair two", two=2)
    rotated = torch.complex(z[..., 0], z[..., 1]) * torch.exp(1j * angles)
    return torch.stack((rotated.real, rotated.imag), -1).reshape(heads.shape)


WRONG["16-rotate"] = {
    "the sines are left out": {"torch.exp(1j * angles)": "torch.cos(angles)"},
}


@right("16-rotary-attention")
def attention_of_rotated_heads(query, key, value, rotate):
    scores = torch.einsum("bhqd,bhkd->bhqk", rotate(query), rotate(key)) / query.shape[-1] ** 0.5
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), value)


@right("16-rows-for-neighbours")
def rows_by_a_list(weight, num_heads):
    width = weight.shape[0] // num_heads
    order = [
        head * width + row
        for head in range(num_heads)
        for pair in range(width // 2)
        for row in (pair, pair + width // 2)
    ]
    return weight[order]


WRONG["16-rows-for-neighbours"] = {
    "columns instead of rows": lambda weight, num_heads: torch.stack(
        weight.chunk(2, dim=1), dim=2
    ).reshape(weight.shape),
}


@right("17-share-heads")
def index_of_the_group(kv, n_heads):
    return kv[:, torch.arange(n_heads) * kv.shape[1] // n_heads]


WRONG["17-share-heads"] = {
    "even and odd heads": {"X * GROUPS // n_heads": "(X % 2).clamp(max=GROUPS - 1)"},
}


@right("17-grouped-attention")
def group_by_group(q, k, v):
    groups = [h * k.shape[1] // q.shape[1] for h in range(q.shape[1])]
    heads = [
        F.scaled_dot_product_attention(q[:, h], k[:, g], v[:, g]) for h, g in enumerate(groups)
    ]
    return torch.stack(heads, dim=1)


def lower_right(new, total):
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


@right("17-attend-with-cache")
def cached_by_concatenation(q, k, v, past_k, past_v, rope):
    past = past_k.shape[2]
    q, k = rope(q, past), rope(k, past)
    k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    mask = lower_right(q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True), k, v


WRONG["17-attend-with-cache"] = {
    "the new keys come first": {"(past_k, k)": "(k, past_k)", "(past_v, v)": "(v, past_v)"},
}


@right("17-pool-heads")
def pooled_with_einops(w, n_heads, n_kv):
    heads = rearrange(w, "(h g d) m -> g h d m", h=n_kv, g=n_heads // n_kv)
    return (heads.sum(0) / len(heads)).reshape(-1, w.shape[1])


@right("18-next-labels")
def labels_by_a_loop(ids, sign):
    rows = []
    for row in ids.tolist():
        start = row.index(sign)
        later = [*row[1:], 0]
        rows.append([x if i >= start and x else -100 for i, x in enumerate(later)])
    return torch.tensor(rows)


@right("18-chunk-mask")
def hidden_then_inverted(real, new):
    total = real.size(1)
    ahead = torch.triu(torch.ones(total, total), diagonal=1)[total - new :].bool()
    return ~(ahead | ~real[:, None, None, :])


@right("18-prompt-logits")
def last_word_by_flipping(logits, words):
    after = words.flip(1).int().argmax(1)
    return torch.stack([row[len(row) - 1 - int(n)] for row, n in zip(logits, after, strict=True)])


WRONG["18-prompt-logits"] = {
    "the mean of all words": lambda logits, words: torch.stack(
        [row[real].mean(0) for row, real in zip(logits, words, strict=True)]
    ),
}


@right("18-top-p")
def nucleus_word_by_word(probabilities, p):
    kept = torch.zeros_like(probabilities, dtype=torch.bool)
    for n, row in enumerate(probabilities.tolist()):
        total = 0.0
        for i in sorted(range(len(row)), key=row.__getitem__, reverse=True):
            if total >= p:
                break
            kept[n, i] = True
            total += row[i]
    return probabilities * kept / (probabilities * kept).sum(-1, keepdim=True)


WRONG["18-top-p"] = {
    "not divided by the sum": {"X / Y": "X"},
}


@right("18-language-model")
def small_llama(ids, table, layers, norm):
    hidden = F.embedding(ids, table)
    mask = causal_mask(ids.shape[1])
    for block in layers:
        hidden = block(hidden, mask)
    return F.linear(norm(hidden), table)


@right("19-remove-head")
def columns_times_a_mask(weight, head, num_heads):
    width = weight.shape[-1] // num_heads
    keep = torch.arange(weight.shape[-1]) // width != head
    return weight * keep


WRONG["19-remove-head"] = {
    "the weight of the model is changed": {
        "return X": "with torch.no_grad():\n    weight *= keep\nreturn weight"
    },
    "a mean instead of zeros": {
        "X * keep": "torch.where(keep, X, X[:, ~keep].mean(1, keepdim=True))"
    },
}


@right("19-neighbours")
def paired_by_einops(weight, d_k):
    return rearrange(weight, "(h two p) d -> (h p two) d", two=2, p=d_k // 2)


PAIRED = '"(h two p) d -> (h p two) d"'
WRONG["19-neighbours"] = {
    "even then odd rows of all heads": lambda weight, d_k: torch.cat([weight[::2], weight[1::2]]),
    "columns instead of rows": {PAIRED: '"d (h two p) -> d (h p two)"'},
}


@right("19-dequantize")
def byte_by_byte(scales, packed):
    rows = []
    for scale, row in zip(scales, packed.tolist(), strict=True):
        low, high = zip(*(reversed(divmod(byte, 16)) for byte in row), strict=True)
        rows.append(scale * (torch.tensor(low + high) - 8))
    return torch.stack(rows)


WRONG["19-dequantize"] = {
    "centred on 7.5": {"8": "7.5"},
    "high and low are exchanged": {"low + high": "high + low"},
}


@right("19-logit-parts")
def along_one_direction(parts, weight, row, eps):
    direction = weight * row * torch.rsqrt(parts.sum(0).pow(2).mean() + eps)
    return torch.stack([part.dot(direction) for part in parts])


WRONG["19-logit-parts"] = {
    "not divided": {"torch.rsqrt(X)": "1"},
}
