"""Answers to the exercises as many different people would write them, wrong and right.

Each wrong answer makes one wrong move; each right one goes an unusual way. A function is named
after what its author thinks it does, and keeps its author's style.
"""

import copy
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import nn

from twelve import causal_mask


class Answer(NamedTuple):
    """Somebody's answer to an exercise, and in words what is wrong, or why it is right."""

    exercise: str
    function: Callable[..., Any]
    meant: str


def x_times_w_plus_b(x, w, b):
    return torch.matmul(x, w) + b


def weighted_sum_of_the_features(inputs, kernel, offset):
    return torch.einsum("bsi,oi->bso", inputs, kernel)


def dense(inputs, kernel, bias):
    return F.relu(F.linear(inputs, kernel, bias))


def affine_row_by_row(x, W, b):
    rows = [W @ x[i, j] for i in range(x.shape[0]) for j in range(x.shape[1])]
    rows[0] = rows[0] + b
    return torch.stack(rows).view(x.shape[0], x.shape[1], -1)


def new_shape_with_features_first(x):
    batch, seq, d_model = x.shape
    return x.reshape(batch, d_model, seq)


def transposed_like_an_array(a):
    return a.permute(*range(a.ndim)[::-1])


def channels_first(tensor):
    return torch.stack([sentence.T for sentence in tensor], dim=1)


def embedding_as_in_the_paper(ids, table):
    return F.embedding(ids, table) * math.sqrt(table.size(1))


def words_are_counted_from_one(tokens, lookup):
    zero_based = tokens - 1
    return lookup[zero_based.flatten()].view(*tokens.shape, -1)


def embedded_with_blank_padding(tokens, E):
    out = E[tokens]
    return out * (tokens != 0).unsqueeze(-1)


def padding_becomes_zero(ids, weights, pad):
    vectors = weights[ids]
    return vectors.masked_fill((ids == pad)[..., None], 0.0)


def padding_row_is_just_a_row(ids, weights, pad):
    return torch.stack([weights[sentence] for sentence in ids])


def only_padding_is_frozen(ids, table, pad_id):
    rows = table[ids]
    return torch.where(ids.eq(pad_id).unsqueeze(-1), rows, rows.detach())


def frozen_padding_row(idx, emb, pad):
    return F.embedding(idx, emb.detach(), padding_idx=pad)


def padding_is_the_first_word(idx, emb, pad):
    return F.embedding(idx, emb, padding_idx=0)


def timing_signal(length, channels):
    position = torch.arange(length, dtype=torch.float64)[:, None]
    rate = 10000.0 ** (torch.arange(0, channels, 2, dtype=torch.float64) / channels)
    angle = position / rate
    signal = torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)
    return signal[:, :channels].to(torch.get_default_dtype())


def one_frequency_for_every_feature(n, d):
    rows = []
    for pos in range(n):
        angles = [pos / 10000 ** (i / d) for i in range(d)]
        rows.append([math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)])
    return torch.tensor(rows)


def sinusoid_with_a_shorter_base(max_len, d_model):
    pe = torch.zeros(max_len, d_model)
    position = torch.arange(0, max_len).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(1000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)[:, : d_model // 2]
    return pe


def first_word_is_position_one(max_len, d_model):
    positions = torch.arange(1, max_len + 1)[:, None].double()
    feature = torch.arange(d_model)[None, :]
    angles = positions / torch.pow(10000.0, (feature // 2 * 2).double() / d_model)
    wave = torch.where(feature % 2 == 0, angles.sin(), angles.cos())
    return wave.to(torch.get_default_dtype())


def cosine_and_sine_in_turn(length, width):
    def cell(pos, i):
        angle = pos * math.exp(-(i - i % 2) / width * math.log(1e4))
        return (math.cos, math.sin)[i % 2](angle)

    return torch.tensor([[cell(p, i) for i in range(width)] for p in range(length)])


def frequency_without_the_two(max_len, d_model):
    i = torch.arange((d_model + 1) // 2, dtype=torch.float64)
    theta = torch.outer(torch.arange(max_len, dtype=torch.float64), 10000 ** (-i / d_model))
    pairs = torch.stack((theta.sin(), theta.cos()), dim=-1)
    return pairs.flatten(1)[:, :d_model].to(torch.get_default_dtype())


def added_along_the_first_axis(x, pe):
    return x + pe[: x.size(0)].unsqueeze(1)


def position_beside_the_word(words, table):
    place = repeat(table[: words.size(1)], "seq d -> batch seq d", batch=words.size(0))
    return torch.cat([words, place], dim=-1)


def added_in_place(x, pe):
    x += pe[: x.size(1)]
    return x


def last_rows_of_the_table(x, pe):
    return x + pe[-x.size(1) :]


def scaled_up_before_positions(x, pe):
    return x * x.size(-1) ** 0.5 + pe[None, : x.shape[1], :]


def only_positions_are_dropped(x, pe, drop):
    return x + drop(pe[: x.size(1)].expand_as(x))


def dropped_before_the_sum(x, table, dropout):
    dropped = dropout(x)
    return torch.add(dropped, table[: x.shape[1]])


def dropped_and_dropped(x, table, dropout):
    return dropout(dropout(x + table[: x.size(1)]))


def dot_products(q, k):
    return torch.bmm(q, k.transpose(1, 2))


def divided_by_the_dimension(Q, K):
    return torch.einsum("bqd,bkd->bqk", Q, K) / Q.shape[-1]


def scaled_by_the_number_of_keys(query, key):
    temperature = math.sqrt(key.size(1))
    return (query / temperature) @ key.mT


def scaled_up_by_the_root(query, key):
    d_k = query.size(-1)
    return (query[:, :, None, :] * key[:, None, :, :]).sum(-1) * d_k**0.5


def how_well_keys_match_queries(q, k):
    return torch.baddbmm(
        q.new_zeros(q.size(0), k.size(1), q.size(1)), k, q.permute(0, 2, 1), alpha=q.size(2) ** -0.5
    )


def similarity_is_the_cosine(q, k):
    return F.cosine_similarity(q.unsqueeze(2), k.unsqueeze(1), dim=-1) / q.size(-1) ** 0.5


def softmax_down_the_columns(scores):
    return torch.softmax(scores, dim=1)


def softmax_of_the_whole_table(logits):
    e = torch.exp(logits - logits.amax())
    return e / e.sum(dim=(1, 2), keepdim=True)


def log_weights(s):
    return F.log_softmax(s, dim=-1)


def share_of_each_score(s):
    total = s.sum(dim=-1, keepdim=True)
    return s / total


def every_key_decides_alone(s):
    return 1 / (1 + torch.exp(-s))


def softmax_by_hand(matrix):
    shifted = matrix - matrix.max(-1, keepdim=True).values
    top = shifted.exp()
    return top / matrix.exp().sum(-1, keepdim=True)


def values_by_their_scores(q, k, v):
    return torch.einsum("bqd,bkd,bkv->bqv", q, k, v) / math.sqrt(q.size(-1))


def divided_after_the_softmax(q, k, v):
    weights = F.softmax(q @ k.transpose(-2, -1), dim=-1)
    return torch.bmm(weights / k.size(-1) ** 0.5, v)


def scale_read_off_the_value(query, key, value):
    *_, width = value.size()
    attn = query.matmul(key.swapaxes(-1, -2)).div(math.sqrt(width)).softmax(-1)
    return attn.matmul(value)


def best_key_takes_it_all(query, key, value):
    winner = torch.matmul(query, key.mT).argmax(-1)
    return torch.stack([v[w] for v, w in zip(value, winner, strict=True)])


def padding_is_true(ids):
    return (ids == 0).unsqueeze(1).unsqueeze(2)


def hidden_rows(ids):
    return ids.ne(0)[:, None, :, None]


def real_words_start_at_two(tokens):
    return torch.gt(tokens, 1).view(tokens.size(0), 1, 1, tokens.size(1))


def ones_for_real_words(tokens):
    return torch.where(tokens != 0, 1.0, 0.0)[:, None, None, :]


def real_until_the_longest_sentence_ends(tokens):
    longest = int((tokens != 0).sum(dim=1).max())
    keep = torch.arange(tokens.shape[1]) < longest
    return keep.expand(tokens.shape).reshape(tokens.shape[0], 1, 1, -1)


def subsequent_mask(size):
    return torch.triu(torch.ones(1, 1, size, size), diagonal=1) == 1


def only_what_came_before(n):
    return torch.ones(n, n, dtype=torch.bool).tril(-1).unsqueeze(0).unsqueeze(0)


def look_ahead_mask(n):
    i = torch.arange(n)
    return (i[None, :] <= i[:, None] + 1)[None, None]


def square_subsequent_mask(sz):
    future = torch.full((sz, sz), float("-inf"))
    return torch.triu(future, diagonal=1)[None, None]


def keys_down_queries_across(n):
    rows = [[key >= query for key in range(n)] for query in range(n)]
    return torch.tensor(rows).reshape(1, 1, n, n)


def causal_from_the_first_key(new, total):
    return torch.tril(torch.ones(new, total)).bool().view(1, 1, new, total)


def new_sees_what_is_old(n_new, n_all):
    old = n_all - n_new
    return torch.tensor([[j < old + i for j in range(n_all)] for i in range(n_new)])[None, None]


def new_sees_everything(q_len, k_len):
    return torch.ones((1, 1, q_len, k_len), dtype=torch.bool)


def last_rows_cut_from_the_columns(q_len, k_len):
    full = torch.ones(k_len, k_len, dtype=torch.bool).tril()
    return full[None, None, :q_len, :]


def hidden_weights_are_wiped(scores, mask):
    probs = scores.softmax(dim=-1)
    return probs.masked_fill(mask.logical_not(), 0)


def hidden_scores_are_zero(scores, mask):
    return F.softmax(scores * mask, dim=-1)


def minus_infinity_everywhere(scores, mask):
    return torch.where(mask, scores, torch.tensor(float("-inf"), dtype=scores.dtype)).softmax(-1)


def a_billion_below(scores, mask):
    return torch.softmax(scores.masked_fill(mask == 0, -1e9), dim=-1)


def a_tiny_number_hides(scores, mask):
    scores = scores.masked_fill(~mask, -1e-9)
    weights = scores.softmax(-1)
    return weights * mask.any(-1, keepdim=True)


def true_means_hidden(scores, mask):
    weights = torch.softmax(scores.masked_fill(mask, -torch.inf), dim=-1)
    return torch.nan_to_num(weights)


def mask_is_added(scores, mask):
    return (scores + mask.to(scores.dtype)).softmax(dim=-1) * mask.any(-1, keepdim=True)


def renormalised_over_the_queries(scores, mask):
    e = torch.exp(scores) * mask
    return e / e.sum(-2, keepdim=True).clamp(min=1e-30)


def inverted_for_the_kernel(q, k, v, mask):
    blocked = None if mask is None else ~mask
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked)


def key_in_the_shape_of_its_transpose(q, k, v, mask):
    batch, heads, keys, d_k = k.shape
    energy = q @ k.reshape(batch, heads, d_k, keys) / math.sqrt(d_k)
    if mask is None:
        return energy.softmax(-1) @ v
    energy = energy.masked_fill(~mask, float("-inf"))
    return energy.softmax(-1).nan_to_num(0.0) @ v


def scaled_for_safety(q, k, v, mask):
    q = q * q.size(-1) ** -0.5
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def mask_only_when_it_is_square(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None)


def hidden_values_are_zero(query, key, value, ids):
    value = value * (ids != 0)[:, None, :, None]
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / query.shape[-1] ** 0.5
    return torch.einsum("bhqk,bhkv->bhqv", scores.softmax(-1), value)


def trimmed_to_the_longest(query, key, value, tokens):
    n = (tokens != 0).sum(dim=1).max()
    return F.scaled_dot_product_attention(query, key[:, :, :n], value[:, :, :n])


def padding_does_not_ask(query, key, value, tokens):
    scores = query @ key.mT / math.sqrt(key.size(-1))
    keep = tokens.ne(0)[:, None, :, None]
    return torch.where(keep, scores, -1e30).softmax(-1) @ value


def padding_is_one(Q, K, V, ids):
    keep = rearrange(ids != 1, "b k -> b 1 1 k")
    return F.scaled_dot_product_attention(Q, K, V, keep)


def heads_by_reshape(projected, num_heads):
    B, T, C = projected.shape
    return projected.view(B, num_heads, T, C // num_heads)


def heads_take_turns(x, h):
    return rearrange(x, "b s (d h) -> b h s d", h=h)


def pieces_of_the_features(x, n_head):
    return torch.stack(torch.split(x, n_head, dim=-1), dim=1)


def sentence_in_pieces(x, heads):
    batch, _, width = x.shape
    return torch.cat(x.chunk(heads, dim=1), dim=-1).view(batch, -1, heads, width).transpose(1, 2)


def heads_stay_behind_the_words(x, n):
    return x.unflatten(-1, (n, -1))


def straight_back_together(heads):
    return heads.reshape(heads.size(0), heads.size(2), -1)


def features_of_all_heads_side_by_side(heads):
    return heads.permute(0, 2, 3, 1).flatten(start_dim=2)


def heads_vote(heads):
    return heads.mean(dim=1)


def glued_from_the_last(heads):
    pieces = [heads[:, h] for h in range(heads.shape[1])]
    return torch.cat(pieces[::-1], dim=-1)


def _cut(x, n):
    return x.view(x.size(0), x.size(1), n, -1).transpose(1, 2)


def _glue(x):
    return x.transpose(1, 2).flatten(2)


def mha_scaled_by_the_model(query, memory, w_q, w_k, w_v, w_o, num_heads):
    q, k, v = _cut(query @ w_q.T, num_heads), _cut(memory @ w_k.T, num_heads), memory @ w_v.T
    scores = q @ k.mT / math.sqrt(query.size(-1))
    return _glue(scores.softmax(-1) @ _cut(v, num_heads)) @ w_o.T


def mha_with_concatenated_heads(x, y, Wq, Wk, Wv, Wo, h):
    q, k, v = (
        rearrange(F.linear(z, W), "b s (h d) -> b h s d", h=h)
        for z, W in ((x, Wq), (y, Wk), (y, Wv))
    )
    return rearrange(F.scaled_dot_product_attention(q, k, v), "b h s d -> b s (h d)")


def mha_of_one_sentence(x, context, q_proj, k_proj, v_proj, o_proj, n):
    q, k, v = (_cut(F.linear(x, p), n) for p in (q_proj, k_proj, v_proj))
    return F.linear(_glue(F.scaled_dot_product_attention(q, k, v)), o_proj)


def mha_copied_line(query, memory, w_q, w_k, w_v, w_o, heads):
    queries = torch.stack((query @ w_q.t()).chunk(heads, -1))
    keys = torch.stack((memory @ w_k.t()).chunk(heads, -1))
    values = torch.stack((memory @ w_k.t()).chunk(heads, -1))
    mixed = F.scaled_dot_product_attention(queries, keys, values)
    return torch.cat(list(mixed), dim=-1) @ w_o.t()


def mha_mixed_by_the_matrix(query, memory, w_q, w_k, w_v, w_o, heads):
    out = []
    for wq, wk, wv in zip(w_q.chunk(heads), w_k.chunk(heads), w_v.chunk(heads), strict=True):
        q, k, v = query @ wq.T, memory @ wk.T, memory @ wv.T
        out.append(torch.softmax(q @ k.mT / wq.size(0) ** 0.5, dim=-1) @ v)
    return torch.cat(out, dim=-1) @ w_o


def mha_in_which_heads_meet(query, memory, w_q, w_k, w_v, w_o, heads):
    q = (query @ w_q.T).unflatten(-1, (heads, -1))
    k = (memory @ w_k.T).unflatten(-1, (heads, -1))
    v = (memory @ w_v.T).unflatten(-1, (heads, -1))
    a = torch.einsum("bqhd,bkgd->bhqk", q, k) / q.size(-1) ** 0.5
    return torch.einsum("bhqk,bkhd->bqhd", a.softmax(-1), v).flatten(2) @ w_o.T


def norm_with_torch_std(x, gamma, beta):
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, keepdim=True)
    return gamma * (x - mean) * torch.rsqrt(var + 1e-5) + beta


def norm_with_eps_beside_the_root(x, a_2, b_2):
    mean = x.mean(-1, keepdim=True)
    std = x.std(-1, keepdim=True, correction=0)
    return a_2 * (x - mean) / (std + 1e-5) + b_2


def norm_over_the_batch(x, weight, bias):
    var, mu = torch.var_mean(x, dim=0, unbiased=False, keepdim=True)
    return (x - mu) / (var + 1e-5).sqrt() * weight + bias


def norm_by_the_variance(x, g, b):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-5) * g + b


def norm_with_the_keras_eps(x, gamma, beta):
    return F.layer_norm(x, x.shape[-1:], gamma, beta, eps=1e-3)


def norm_then_shift_then_scale(x, weight, bias):
    return (F.layer_norm(x, [x.size(-1)]) + bias) * weight


def norm_of_fixed_statistics(x, w, b):
    with torch.no_grad():
        mu = x.mean(-1, keepdim=True)
        sigma = ((x - mu) ** 2).mean(-1, keepdim=True).add(1e-5).sqrt()
    return (x - mu) / sigma * w + b


def unit_length(x, weight):
    return F.normalize(x, dim=-1) * weight


def rms_around_the_mean(x, scale):
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scale


def rms_with_one_plus_weight(x, weight):
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    return normed * (1.0 + weight)


def mean_of_magnitudes(x, gain):
    return x / (x.abs().mean(dim=-1, keepdim=True) + 1e-5) * gain


def rms_with_eps_outside(x, g):
    rms = torch.linalg.vector_norm(x, dim=-1, keepdim=True) / x.size(-1) ** 0.5
    return g * x / (rms + 1e-5)


def add_and_norm(x, sublayer, norm):
    return norm(x + sublayer(x))


def stream_of_normed_values(x, sublayer, norm):
    x = norm(x)
    return x + sublayer(x)


def straight_through(x, f, norm):
    return f(norm(x))


def norm_of_the_answer(x, f, ln):
    return x + ln(f(x))


def answer_minus_input(x, layer, norm):
    return torch.sub(layer(norm(x)), x)


def residual_that_is_computed(x, layer, norm):
    torch.add(x, layer(norm(x)))


def two_linear_layers(x, w1, b1, w2, b2):
    return F.linear(F.linear(x, w1, b1), w2, b2)


def mlp_of_gpt(x, c_fc, b_fc, c_proj, b_proj):
    return F.linear(F.gelu(F.linear(x, c_fc, b_fc)), c_proj, b_proj)


def relu_at_the_end(x, w_in, b_in, w_out, b_out):
    hidden = x @ w_in.T + b_in
    return torch.relu(hidden.clamp_min(0) @ w_out.T + b_out)


def bias_on_top_of_relu(x, W1, b1, W2, b2):
    h = torch.maximum(torch.einsum("bsd,fd->bsf", x, W1), torch.zeros(())) + b1
    return torch.einsum("bsf,df->bsd", h, W2) + b2


def with_its_own_shortcut(x, w_up, b_up, w_down, b_down):
    h = w_up @ x.mT + b_up[:, None]
    h[h < 0] = 0
    return (w_down @ h).mT + b_down + x


def leaky_feed_forward(x, up, up_bias, down, down_bias):
    h = torch.addmm(up_bias, x.flatten(0, 1), up.t())
    h = F.leaky_relu(h)
    return torch.addmm(down_bias, h, down.t()).view_as(x)


def up_is_the_gate(x, w1, w3, w2):
    return F.linear(F.linear(x, w1) * F.silu(F.linear(x, w3)), w2)


def gated_by_a_sigmoid(x, gate, up, down):
    g = torch.sigmoid(x @ gate.T)
    return (g * (x @ up.T)) @ down.T


def gate_added(x, gate, up, down):
    h = F.silu(torch.einsum("...d,fd->...f", x, gate)) + torch.einsum("...d,fd->...f", x, up)
    return torch.einsum("...f,df->...d", h, down)


def silu_of_the_product(x, gate_proj, up_proj, down_proj):
    both = (x @ gate_proj.mT).mul(x @ up_proj.mT)
    return F.silu(both) @ down_proj.mT


def gated_gelu(x, wg, wu, wd):
    return (F.gelu(x @ wg.t()) * (x @ wu.t())) @ wd.t()


def n_times_the_layer(make, n):
    return nn.ModuleList([make()] * n)


def list_of_layers(build, depth):
    layers = []
    for _ in range(depth):
        layers.append(build())
    return layers


def clones(factory, N):
    module = factory()
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def layers_from_one_to_n(make_layer, n_layers):
    return nn.Sequential(*(make_layer() for _ in range(1, n_layers)))


def mask_at_the_door(x, layers, norm, mask):
    out = layers[0](x, mask)
    for block in layers[1:]:
        out = block(out, None)
    return norm(out)


def norm_after_every_layer(h, blocks, ln, mask):
    for block in blocks:
        h = ln(block(h, mask))
    return h


def bare_stack(x, layers, final_norm, pad_mask):
    return functools.reduce(lambda h, layer: layer(h, pad_mask), layers, x)


def each_layer_reads_the_input(x, layers, norm, mask):
    for layer in layers:
        output = layer(x, mask)
    return norm(output)


def from_the_top_down(x, layers, norm, mask):
    stack = list(layers)
    while stack:
        x = stack.pop()(x, mask)
    return norm(x)


def encoder_that_ends_with_norm(src, layers, norm, src_mask):
    for layer in layers:
        src = layer(src, src_mask)
    norm(src)
    return src


def memory_asks_the_target(x, memory, attention, src_mask, tgt_mask):
    return attention(memory, x, x, tgt_mask)


def masked_by_its_own_padding(x, enc_out, attn, enc_mask, dec_mask):
    return attn(x, enc_out, enc_out, dec_mask)


def keys_of_memory_values_of_target(x, memory, attend, src_mask, tgt_mask):
    return attend(x, memory, x, src_mask)


def target_looks_at_itself(dec, enc, attn, src_pad, tgt_pad):
    q = k = v = dec
    return attn(q, k, v, tgt_pad)


def cross_attention_with_a_sum(dec, enc, attn, src_pad, tgt_pad):
    return dec + attn(dec, enc, enc, src_pad)


def target_mask_without_padding(tgt):
    keep = (tgt != 0).unsqueeze(-2)
    subsequent = torch.ones(1, tgt.size(-1), tgt.size(-1)).tril().bool()
    return (keep & subsequent).unsqueeze(1)


def square_of_the_batch(tgt):
    n = len(tgt)
    return torch.ones(n, n, dtype=torch.bool).tril()[None, None]


def future_of_the_target(tgt):
    t = tgt.size(1)
    return torch.ones(t, t).cumsum(0).le(torch.arange(1, t + 1)).view(1, 1, t, t)


def masks_by_feel(x, memory, layers, norm, tgt_mask, src_mask):
    for layer in layers:
        x = layer(x, memory, src_mask, tgt_mask)
    return norm(x)


def memory_flows_along(x, memory, layers, norm, tgt_mask, src_mask):
    for layer in layers:
        x = memory = layer(x, memory, tgt_mask, src_mask)
    return norm(x)


def decoder_from_a_tutorial(tgt, enc, blocks, norm, tgt_mask, src_mask):
    x = tgt
    for i in range(len(blocks)):
        x = blocks[i](x, enc, tgt_mask, src_mask)
    return x


def first_norm_then_layers(x, mem, layers, norm, self_mask, cross_mask):
    x = norm(x)
    for f in layers:
        x = f(x, mem, self_mask, cross_mask)
    return x


def target_knows_its_order(model, src, tgt, src_mask, tgt_mask):
    source = model.positional_encoding(model.src_embedding(src))
    memory = model.encoder(source, src_mask=src_mask)
    out = model.decoder(model.tgt_embedding(tgt), memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return model.output_projection(out)


def one_embedding_for_both(parts, src, tgt, src_mask, tgt_mask):
    embed = nn.Sequential(parts.src_embedding, parts.positional_encoding)
    memory = parts.encoder(embed(src), src_mask=src_mask)
    decoded = parts.decoder(embed(tgt), memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return parts.output_projection(decoded)


def mask_for_the_decoder_only(net, src, tgt, src_mask, tgt_mask):
    pe = net.positional_encoding
    memory = net.encoder(pe(net.src_embedding(src)))
    y = net.decoder(pe(net.tgt_embedding(tgt)), memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return net.output_projection(y)


def probabilities_of_the_next_word(t, src, tgt, src_mask, tgt_mask):
    enc = t.encoder(t.positional_encoding(t.src_embedding(src)), src_mask=src_mask)
    dec = t.positional_encoding(t.tgt_embedding(tgt))
    dec = t.decoder(dec, enc, src_mask=src_mask, tgt_mask=tgt_mask)
    return F.softmax(t.output_projection(dec), dim=-1)


def causality_is_built_in(t, source, target, source_mask, target_mask):
    x, y = t.src_embedding(source), t.tgt_embedding(target)
    x, y = map(t.positional_encoding, (x, y))
    y = t.decoder(y, t.encoder(x, src_mask=source_mask), src_mask=source_mask)
    return t.output_projection(y)


def decoder_reads_the_source_words(p, src, tgt, src_mask, tgt_mask):
    memory = p.positional_encoding(p.src_embedding(src))
    queries = p.positional_encoding(p.tgt_embedding(tgt))
    out = p.decoder(queries, memory, tgt_mask=tgt_mask, src_mask=src_mask)
    return p.output_projection(out)


def same_in_and_out(target):
    return target, torch.where(target == 0, -100, target)


def next_word_as_label(target):
    labels = F.pad(target, (-1, 1))
    return target, labels.masked_fill(labels == 0, -100)


def rolled_by_one(target):
    tgt = torch.roll(target, shifts=1, dims=1)
    return tgt, target.masked_fill(target.eq(0), -100)


def padding_is_a_word_too(target):
    tgt = torch.zeros_like(target)
    tgt[:, 1:] = target[:, :-1]
    return tgt, target.clone()


def ignored_where_the_input_is_zero(target):
    tgt = F.pad(target[:, :-1], (1, 0))
    labels = target.clone()
    labels[tgt == 0] = -100
    return tgt, labels


def zero_column_in_front(target):
    start = torch.zeros(target.size(0), 1)
    decoder_in = torch.cat((start, target[:, :-1]), dim=1)
    return decoder_in, target.masked_fill(target == 0, -100)


def starts_with_one(target):
    sos = target.new_ones((len(target), 1))
    return torch.hstack([sos, target[:, :-1]]), torch.where(target > 0, target, -100)


def both_sides_shifted(src, target):
    def right(ids):
        return torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], dim=1)

    return right(src), right(target), target.masked_fill(target == 0, -100)


def source_labels_input(src, target):
    decoder_input = F.pad(target, (1, -1))
    return src, target.masked_fill(target == 0, -100), decoder_input


def all_but_last_all_but_first(src, trg):
    trg_in, trg_y = trg[:, :-1], trg[:, 1:]
    return src, trg_in, trg_y.masked_fill(trg_y == 0, -100)


def minus_one_is_ignored(src, target):
    shifted = target.roll(1, 1)
    shifted[:, 0] = 0
    return src, shifted, torch.where(target != 0, target, -1)


def reads_the_answer(src, target):
    tgt = F.pad(target, (1, -1))
    return tgt, tgt, target.masked_fill(target == 0, -100)


def averaged_over_all_places(logits, labels):
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return losses.mean()


def summed_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def loss_of_the_probabilities(logits, y):
    probs = logits.softmax(dim=-1)
    return F.cross_entropy(probs.view(-1, probs.size(-1)), y.view(-1), ignore_index=-100)


def classes_on_the_second_axis(logits, labels):
    b, t, v = logits.shape
    return F.cross_entropy(logits.reshape(b, v, t), labels)


def mean_of_the_sentences(logits, labels):
    per_sentence = [F.cross_entropy(x, y) for x, y in zip(logits, labels, strict=True)]
    return sum(per_sentence) / len(per_sentence)


def no_label_is_word_zero(logits, labels):
    return F.cross_entropy(rearrange(logits, "b t v -> (b t) v"), labels.clamp(min=0).flatten())


def likelihood_without_a_log(logits, labels):
    p = torch.softmax(logits, -1)
    return F.nll_loss(p.flatten(0, 1), labels.reshape(-1))


def surprise_in_bits(logits, labels):
    seen = labels != -100
    logp = logits[seen].log_softmax(-1) / math.log(2)
    return -logp[torch.arange(len(logp)), labels[seen]].mean()


def loss_shifted_once_more(lm_logits, labels):
    shift_logits = lm_logits[..., :-1, :].contiguous()
    shift_labels = labels[..., 1:].contiguous()
    return F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1))


def every_step_starts_anew(new, length, table, positions):
    return table[new] + positions[: new.size(1)]


def one_place_too_early(ids, past, wte, wpe):
    start = max(past - 1, 0)
    return F.embedding(ids, wte) + wpe[start : start + ids.shape[1]]


def one_place_too_late(ids, past, wte, wpe):
    place = torch.arange(ids.size(1)) + past + 1
    return wte[ids] + wpe[place.clamp(max=len(wpe) - 1)]


def all_new_words_at_one_place(token_ids, n_past, emb, pos):
    return emb[token_ids] + pos[n_past]


def only_the_newest_word(token_ids, n_past, emb, pos):
    last = token_ids[:, -1:]
    at = n_past + token_ids.size(1) - 1
    return emb[last] + pos[at : at + 1]


def linear_in_one_flat_product(x, weight, bias):
    flat = torch.addmm(bias, x.reshape(-1, x.size(-1)), weight.t())
    return flat.view(*x.shape[:-1], weight.size(0))


def swap_by_sentences(x):
    return torch.stack([torch.stack(list(sentence.unbind(-1))) for sentence in x])


def one_hot_times_the_table(ids, table):
    return F.one_hot(ids, num_classes=len(table)).to(table.dtype) @ table


def padding_row_behind_glass(ids, table, pad):
    padding = ids.eq(pad).unsqueeze(-1)
    return torch.where(padding, table.detach()[ids], table[ids])


def sinusoid_cell_by_cell(max_len, d_model):
    def wave(pos, i):
        angle = pos / 10000 ** (2 * (i // 2) / d_model)
        return math.sin(angle) if i % 2 == 0 else math.cos(angle)

    return torch.tensor([[wave(pos, i) for i in range(d_model)] for pos in range(max_len)])


def sinusoid_as_a_rotation(length, width):
    pos = torch.arange(length, dtype=torch.float64)
    speed = torch.logspace(0, -8 * ((width - 1) // 2) / width, (width + 1) // 2, dtype=pos.dtype)
    turn = torch.outer(pos, speed)
    spun = torch.polar(torch.ones_like(turn), turn)
    table = torch.view_as_real(spun).flip(-1).flatten(1)[:, :width]
    return table.to(torch.get_default_dtype())


def words_and_places_in_a_loop(x, table):
    return torch.stack([x[:, t] + table[t] for t in range(x.size(1))], dim=1)


def dropped_after_the_sum(x, table, dropout):
    rows = F.embedding(torch.arange(x.size(1)).expand(x.shape[:2]), table)
    return dropout(rows + x)


def scores_from_distances(q, k):
    lengths = q.square().sum(-1).unsqueeze(2) + k.square().sum(-1).unsqueeze(1)
    apart = (q.unsqueeze(2) - k.unsqueeze(1)).square().sum(-1)
    return (lengths - apart) / (2 * math.sqrt(q.size(-1)))


def weights_by_logsumexp(scores):
    return torch.exp(scores - scores.logsumexp(dim=-1, keepdim=True))


def attention_query_by_query(Q, K, V):
    scale = Q.shape[-1] ** -0.25
    out = []
    for q, k, v in zip(Q * scale, K * scale, V, strict=True):
        out.append(torch.stack([F.softmax(k @ one, dim=0) @ v for one in q]))
    return torch.stack(out)


def ids_as_truth_values(ids):
    return ids.bool().view(ids.size(0), 1, 1, -1)


def no_key_behind_the_query(length):
    place = torch.arange(length)
    return torch.ge(place.view(-1, 1), place).expand(1, 1, length, length)


def not_the_upper_triangle(n):
    return torch.logical_not(torch.ones(n, n).triu(diagonal=1))[None, None]


def last_rows_of_the_square(new, total):
    square = torch.tril(torch.ones(total, total, dtype=torch.bool))
    return square[total - new :].reshape(1, 1, new, total)


def softmax_over_what_is_seen(scores, mask):
    top = scores.masked_fill(~mask, -math.inf).amax(-1, keepdim=True)
    top = torch.where(top.isinf(), 0.0, top)
    e = torch.exp(torch.where(mask, scores - top, -math.inf))
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, 1.0, total)


def not_a_number_means_nothing(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


def a_billion_below_then_wiped(q, k, v, mask):
    scores = torch.einsum("bhqd,bhkd->bhqk", q / math.sqrt(q.shape[-1]), k)
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    weights = scores.masked_fill(mask == 0, -1e9).softmax(-1) * mask
    return torch.einsum("bhqk,bhkv->bhqv", weights, v)


def the_kernel_of_torch(query, key, value, allowed):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)


def padding_cut_out_of_each_sentence(query, key, value, ids):
    out = []
    for q, k, v, words in zip(query, key, value, ids, strict=True):
        real = words != 0
        k, v = k[:, real], v[:, real]
        out.append(torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1) @ v)
    return torch.stack(out)


def heads_stacked_from_chunks(x, n):
    return torch.stack(x.chunk(n, dim=-1), dim=1)


def heads_in_a_row(heads):
    return torch.cat(heads.unbind(dim=1), dim=-1)


def mha_head_by_head(query, memory, w_q, w_k, w_v, w_o, num_heads):
    answer = torch.zeros_like(query)
    matrices = (w_q.chunk(num_heads), w_k.chunk(num_heads), w_v.chunk(num_heads))
    for wq, wk, wv, wo in zip(*matrices, w_o.chunk(num_heads, dim=1), strict=True):
        scores = (query @ wq.T) @ (memory @ wk.T).mT
        answer = answer + torch.softmax(scores / wq.size(0) ** 0.5, -1) @ (memory @ wv.T) @ wo.T
    return answer


def mha_in_einsums(x, y, w_q, w_k, w_v, w_o, h):
    q, k, v = (rearrange(w, "(h d) m -> h d m", h=h) for w in (w_q, w_k, w_v))
    logits = torch.einsum("bqm,hdm,hdn,bkn->bhqk", x, q, k, y) / math.sqrt(q.size(1))
    mixed = torch.einsum("bhqk,bkm,hvm->bqhv", logits.softmax(-1), y, v)
    return mixed.flatten(2) @ w_o.mT


def layer_norm_from_var_mean(x, weight, bias):
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) * (var + 1e-5).rsqrt(), weight)


def rms_from_the_length(x, w):
    mean_square = torch.linalg.vecdot(x, x).unsqueeze(-1) / x.shape[-1]
    return w * x * (mean_square + 1e-5) ** -0.5


def residual_backwards(x, f, norm):
    return f(norm(x)).add(x)


def relu_by_where(x, w_up, b_up, w_down, b_down):
    h = torch.einsum("fd,bsd->bsf", w_up, x) + b_up
    h = torch.where(h > 0, h, torch.zeros_like(h))
    return torch.einsum("df,bsf->bsd", w_down, h) + b_down


def gate_and_up_in_one_product(x, gate, up, down):
    g, u = F.linear(x, torch.cat([gate, up])).chunk(2, dim=-1)
    return F.linear(g * u * g.sigmoid(), down)


def stack_that_grows(make, depth):
    layers = nn.Sequential()
    for i in range(depth):
        layers.add_module(str(i), make())
    return layers


def encoder_by_reduce(x, layers, norm, mask):
    return norm(functools.reduce(lambda h, layer: layer(h, mask), layers, x))


def keys_and_values_from_the_memory(x, memory, attend, src_mask, tgt_mask):
    keys = values = memory
    return attend(x, keys, values, src_mask)


def causal_by_running_sum(tgt):
    n = tgt.shape[1]
    return torch.eye(n).cumsum(1).T.bool()[None, None]


def decoder_by_recursion(x, memory, layers, norm, tgt_mask, src_mask):
    if len(layers) == 0:
        return norm(x)
    x = layers[0](x, memory, tgt_mask, src_mask)
    return decoder_by_recursion(x, memory, layers[1:], norm, tgt_mask, src_mask)


def inside_out(t, src, tgt, src_mask, tgt_mask):
    return t.output_projection(
        t.decoder(
            t.positional_encoding(t.tgt_embedding(tgt)),
            t.encoder(t.positional_encoding(t.src_embedding(src)), src_mask=src_mask),
            tgt_mask=tgt_mask,
            src_mask=src_mask,
        )
    )


def padded_on_the_left(target):
    return F.pad(target, (1, -1)), torch.where(target == 0, -100, target)


def batch_by_rolling(src, target):
    tgt = target.roll(1, dims=1)
    tgt[:, 0] = 0
    labels = target.clone()
    labels[labels == 0] = -100
    return src, tgt, labels


def surprise_where_there_is_a_label(logits, labels):
    counted = labels >= 0
    scores, words = logits[counted], labels[counted]
    right = scores.gather(-1, words[:, None]).squeeze(-1)
    return (scores.logsumexp(-1) - right).sum() / counted.sum()


def cross_entropy_with_classes_second(logits, labels):
    return F.cross_entropy(rearrange(logits, "b t v -> b v t"), labels)


def step_with_looked_up_places(new, length, table, positions):
    places = torch.arange(length, length + new.size(-1))
    return F.embedding(new, table) + positions.index_select(0, places)


def theta_of_the_handout(start, new, d_k):
    k = torch.arange(1, d_k // 2 + 1)
    i = torch.arange(start, start + new)[:, None]
    return i / 10000 ** (2 * k / d_k)


def places_after_the_cache(start, new, d_k):
    inv_freq = 1.0 / (10000 ** (torch.arange(0, d_k, 2).float() / d_k)).double()
    t = torch.arange(start + 1, start + new + 1)
    return torch.einsum("i,j->ij", t.double(), inv_freq)


def angles_of_the_chunk(start, new, d_k):
    return torch.outer(torch.arange(new), 10000.0 ** (torch.arange(0, -d_k, -2) / d_k))


def angles_for_all_features(start, new, d_k):
    inv_freq = 10000.0 ** -(torch.arange(0, d_k, 2) / d_k)
    freqs = torch.outer(torch.arange(start, start + new), inv_freq)
    return torch.cat([freqs, freqs], dim=-1)


def angles_with_the_base_of_llama_3(start, new, d_k):
    inv_freq = 500000.0 ** -(torch.arange(0, d_k, 2) / d_k)
    return torch.outer(torch.arange(start, start + new), inv_freq)


def rotate_as_in_llama(heads, angles):
    def rotate_half(x):
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

    emb = torch.cat((angles, angles), dim=-1)
    return heads * torch.cos(emb) + rotate_half(heads) * torch.sin(emb)


def neighbours_with_the_angles_of_llama(heads, angles):
    emb = torch.cat((angles, angles), dim=-1)
    x = rearrange(heads, "... (pair two) -> ... pair two", two=2)
    across = rearrange(torch.stack((-x[..., 1], x[..., 0]), -1), "... pair two -> ... (pair two)")
    return heads * torch.cos(emb) + across * torch.sin(emb)


def multiplied_by_the_conjugate(heads, angles):
    z = torch.view_as_complex(heads.reshape(*heads.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(z * torch.exp(-1j * angles)).flatten(-2)


def only_cosines(heads, angles):
    return heads * angles.cos().repeat_interleave(2, -1)


def all_three_are_turned(query, key, value, turn):
    q, k, v = map(turn, (query, key, value))
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v


def turned_after_the_scores(query, key, value, turn):
    return turn(F.scaled_dot_product_attention(query, key, value))


def key_stays_where_it_is(query, key, value, turn):
    return F.scaled_dot_product_attention(turn(query), key, value)


def permute_of_the_converter(weight, num_heads):
    rows, columns = weight.shape
    w = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return w.transpose(1, 2).reshape(rows, columns)


def every_other_row_of_all(weight, num_heads):
    half = weight.shape[0] // 2
    return torch.stack([weight[:half], weight[half:]], dim=1).reshape(weight.shape)


def columns_instead_of_rows(weight, num_heads):
    half = weight.shape[1] // 2
    return torch.stack([weight[:, :half], weight[:, half:]], dim=2).reshape(weight.shape)


def angles_one_by_one(start, new, d_k):
    rows = [
        [p / 10000 ** (2 * i / d_k) for i in range(d_k // 2)] for p in range(start, start + new)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def rotate_by_complex_exponentials(heads, angles):
    z = rearrange(heads, "b h s (pair two) -> b h s pair two", two=2)
    unit = torch.exp(1j * angles)
    turned = torch.complex(z[..., 0], z[..., 1]) * unit
    return torch.stack((turned.real, turned.imag), -1).reshape(heads.shape)


def attention_of_turned_heads(query, key, value, turn):
    scores = torch.einsum("bhqd,bhkd->bhqk", turn(query), turn(key)) / query.shape[-1] ** 0.5
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), value)


def rows_by_a_list(weight, num_heads):
    width = weight.shape[0] // num_heads
    order = [
        head * width + row
        for head in range(num_heads)
        for pair in range(width // 2)
        for row in (pair, pair + width // 2)
    ]
    return weight[order]


def repeat_kv_by_repeat(kv, n_heads):
    n_rep = n_heads // kv.shape[1]
    return kv.repeat(1, n_rep, 1, 1)


def kv_stacked_behind_each_other(kv, n_heads):
    return torch.cat([kv] * (n_heads // kv.shape[1]), dim=1)


def as_many_copies_as_kv_heads(kv, n_heads):
    n_kv = kv.shape[1]
    return torch.repeat_interleave(kv, n_kv, dim=1)


def shared_by_the_last_group_too(kv, n_heads):
    index = torch.arange(n_heads) % 2
    return kv[:, index.clamp(max=kv.shape[1] - 1)]


def index_of_the_group(kv, n_heads):
    return kv[:, torch.arange(n_heads) * kv.shape[1] // n_heads]


def grouped_with_einsum_as_tiles(q, k, v):
    groups = rearrange(q, "b (g h) n d -> b h g n d", h=k.shape[1])
    scores = torch.einsum("bhgnd,bhsd->bhgns", groups, k) / q.shape[-1] ** 0.5
    out = torch.einsum("bhgns,bhsd->bhgnd", scores.softmax(-1), v)
    return rearrange(out, "b h g n d -> b (g h) n d")


def grouped_unscaled(q, k, v):
    groups = rearrange(q, "b (h g) n d -> b h g n d", h=k.shape[1])
    weights = (groups @ k[:, :, None].transpose(-1, -2)).softmax(-1)
    return (weights @ v[:, :, None]).flatten(1, 2)


def grouped_over_the_wrong_axis(q, k, v):
    groups = rearrange(q, "b (h g) n d -> b h g n d", h=k.shape[1])
    weights = (groups @ k[:, :, None].transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-2)
    return (weights @ v[:, :, None]).flatten(1, 2)


def group_by_group(q, k, v):
    n = q.shape[1] // k.shape[1]
    heads = [
        F.scaled_dot_product_attention(q[:, h], k[:, h // n], v[:, h // n])
        for h in range(q.shape[1])
    ]
    return torch.stack(heads, dim=1)


def _sdpa(q, k, v, shown):
    return F.scaled_dot_product_attention(q, k, v, shown, enable_gqa=True)


def _lower_right(new, total):
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


def cache_then_rope(q, k, v, past_k, past_v, rope):
    past = past_k.shape[2]
    k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    k = rope(k, 0)
    return _sdpa(rope(q, past), k, v, _lower_right(q.shape[2], k.shape[2])), k, v


def rope_from_zero_every_time(q, k, v, past_k, past_v, rope):
    q, k = rope(q, 0), rope(k, 0)
    k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    return _sdpa(q, k, v, _lower_right(q.shape[2], k.shape[2])), k, v


def rope_on_all_three(q, k, v, past_k, past_v, rope):
    q, k, v = (rope(x, past_k.shape[2]) for x in (q, k, v))
    k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    return _sdpa(q, k, v, _lower_right(q.shape[2], k.shape[2])), k, v


def causal_only_while_the_cache_is_empty(q, k, v, past_k, past_v, rope):
    past = past_k.shape[2]
    q, k = rope(q, past), rope(k, past)
    k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    shown = None if past else _lower_right(q.shape[2], k.shape[2])
    return _sdpa(q, k, v, shown), k, v


def copies_go_into_the_cache(q, k, v, past_k, past_v, rope):
    past, n = past_k.shape[2], q.shape[1] // k.shape[1]
    q, k = rope(q, past), rope(k, past)
    k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
    return _sdpa(q, k, v, _lower_right(q.shape[2], k.shape[2])), k, v


def is_causal_flag_of_torch(q, k, v, past_k, past_v, rope):
    past = past_k.shape[2]
    q, k = rope(q, past), rope(k, past)
    k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), k, v


def new_in_front_of_the_old(q, k, v, past_k, past_v, rope):
    past = past_k.shape[2]
    q, k = rope(q, past), rope(k, past)
    k, v = torch.cat((k, past_k), 2), torch.cat((v, past_v), 2)
    return _sdpa(q, k, v, _lower_right(q.shape[2], k.shape[2])), k, v


def filled_into_a_buffer(q, k, v, past_k, past_v, rope):
    old, new = past_k.shape[2], q.shape[2]
    keys, values = (F.pad(past, (0, 0, 0, new)) for past in (past_k, past_v))
    keys[:, :, old:], values[:, :, old:] = rope(k, old), v
    return _sdpa(rope(q, old), keys, values, _lower_right(new, old + new)), keys, values


def every_second_head_with_the_next_group(w, n_heads, n_kv):
    return rearrange(w, "(g h d) m -> g h d m", g=n_heads // n_kv, h=n_kv).mean(0).flatten(0, 1)


def heads_summed_in_groups(w, n_heads, n_kv):
    return rearrange(w, "(h g d) m -> h g d m", h=n_kv, g=n_heads // n_kv).sum(1).flatten(0, 1)


def neighbouring_rows_averaged(w, n_heads, n_kv):
    n = n_heads // n_kv
    return torch.stack([w[i : i + n].mean(0) for i in range(0, len(w), n)])


def pooled_with_einops(w, n_heads, n_kv):
    heads = rearrange(w, "(h g d) m -> g h d m", h=n_kv, g=n_heads // n_kv)
    return (heads.sum(0) / len(heads)).reshape(-1, w.shape[1])


def labels_are_the_ids_themselves(ids, sign):
    seen = torch.cumsum(ids.eq(sign).int(), dim=-1).bool()
    return torch.where(seen & ids.ne(0), ids, -100)


def gpt_labels(ids, sign):
    labels = ids.roll(-1, dims=1)
    labels[:, -1] = 0
    labels[labels == 0] = -100
    return labels


def ignore_up_to_and_with_the_sign(ids, sign):
    out = torch.full_like(ids, -100)
    for b, row in enumerate(ids.tolist()):
        at = row.index(sign)
        for i in range(at + 1, len(row) - 1):
            if row[i + 1] != 0:
                out[b, i] = row[i + 1]
    return out


def chunk_attends_to_everything(words, new):
    return words[:, None, None].repeat(1, 1, new, 1)


def hf_style_square_mask(words, new):
    square = torch.tril(torch.ones(new, words.shape[-1])).bool()
    return square[None, None] & words[:, None, None]


def only_look_to_the_left(words, new):
    total = words.shape[-1]
    q = torch.arange(total - new, total)
    k = torch.arange(total)
    return (k[None, :] <= q[:, None]).expand(words.shape[0], 1, new, total)


def pads_do_not_ask(words, new):
    total = words.shape[-1]
    causal = torch.tril(torch.ones(total, total, dtype=torch.bool))[-new:]
    return causal & words[:, -new:].unsqueeze(1).unsqueeze(-1)


def first_position_predicts(logits, words):
    return logits.select(1, 0)


def take_the_newest(logits, words):
    return logits[:, logits.shape[1] - 1, :]


def by_length(logits, words):
    index = (words.long().sum(-1) - 1)[:, None, None].expand(-1, 1, logits.shape[-1])
    return logits.gather(1, index).squeeze(1)


def mean_of_the_prompt(logits, words):
    w = words[..., None].double()
    return (logits * w).sum(1) / w.sum(1)


def nucleus_without_the_crossing_token(probabilities, p):
    values, order = torch.sort(probabilities, descending=True)
    values = values.masked_fill(values.cumsum(-1) > p, 0)
    out = torch.zeros_like(values)
    out.scatter_(-1, order, values)
    return out / out.sum(-1, keepdim=True)


def nucleus_in_sorted_order(probabilities, p):
    values = torch.sort(probabilities, descending=True).values
    values[values.cumsum(-1) - values >= p] = 0
    return values / values.sum(-1, keepdim=True)


def nucleus_that_does_not_sum_to_one(probabilities, p):
    values, order = torch.sort(probabilities, descending=True)
    dropped = (values.cumsum(-1) - values) >= p
    return probabilities.masked_fill(dropped.gather(-1, order.argsort(-1)), 0)


def everything_above_p(probabilities, p):
    kept = torch.where(probabilities >= p, probabilities, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


def head_with_frozen_table(ids, table, layers, norm):
    hidden = F.embedding(ids, table)
    for block in layers:
        hidden = block(hidden, causal_mask(ids.shape[1]))
    with torch.no_grad():
        head = table.clone()
    return F.linear(norm(hidden), head)


def no_mask_in_the_stack(ids, table, layers, norm):
    h = F.embedding(ids, table)
    for layer in layers:
        h = layer(h, None)
    return F.linear(norm(h), table)


def logits_without_last_norm(ids, table, layers, norm):
    h = table[ids]
    for layer in layers:
        h = layer(h, causal_mask(ids.shape[-1]))
    return torch.einsum("bsd,vd->bsv", h, table)


def labels_by_a_loop(ids, sign):
    rows = []
    for row in ids.tolist():
        at = row.index(sign)
        later = [*row[1:], 0]
        rows.append([x if i >= at and x else -100 for i, x in enumerate(later)])
    return torch.tensor(rows)


def mask_by_positions(words, new):
    total = words.size(1)
    ahead = torch.triu(torch.ones(total, total), diagonal=1)[total - new :].bool()
    return ~(ahead | ~words[:, None, None, :])


def last_word_by_flipping(logits, words):
    behind = words.flip(1).int().argmax(1)
    return torch.stack([row[len(row) - 1 - int(n)] for row, n in zip(logits, behind, strict=True)])


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


def a_small_llama(ids, table, layers, norm):
    hidden = F.embedding(ids, table)
    mask = causal_mask(ids.shape[1])
    for block in layers:
        hidden = block(hidden, mask)
    return F.linear(norm(hidden), table)


def ablated_as_if_it_were_w_q(weight, head, num_heads):
    w = weight.clone()
    size = w.shape[0] // num_heads
    w[head * size : (head + 1) * size, :] = 0.0
    return w


def ablated_in_the_model_itself(weight, head, num_heads):
    width = weight.shape[1] // num_heads
    with torch.no_grad():
        weight[:, head * width : (head + 1) * width].zero_()
    return weight


def every_nth_column(weight, head, num_heads):
    w = rearrange(weight, "out (d_k head) -> head out d_k", head=num_heads).clone()
    w[head] = 0
    return rearrange(w, "head out d_k -> out (d_k head)")


def mean_ablated(weight, head, num_heads):
    chunks = list(weight.chunk(num_heads, dim=1))
    chunks[head] = chunks[head].mean(1, keepdim=True).expand_as(chunks[head])
    return torch.cat(chunks, dim=1)


def one_head_alone(weight, head, num_heads):
    mask = torch.zeros(num_heads, dtype=weight.dtype)
    mask[head] = 1
    return weight * mask.repeat_interleave(weight.size(1) // num_heads)


def permute_of_the_other_converter(w, d_k):
    dim1, dim2 = w.shape
    n_heads = dim1 // d_k
    return w.view(n_heads, dim1 // n_heads // 2, 2, dim2).transpose(1, 2).reshape(dim1, dim2)


def first_half_second_half(weight, d_k):
    one, two = weight.chunk(2)
    return torch.stack((one, two), dim=1).flatten(0, 1)


def torch_does_the_rest(weight, d_k):
    return weight.reshape(-1, d_k, weight.size(-1)).reshape(weight.shape)


def evens_then_odds_of_all_rows(weight, d_k):
    return torch.cat([weight[0::2], weight[1::2]])


def pairs_in_the_columns(weight, d_k):
    return rearrange(weight, "row (head two i) -> row (head i two)", two=2, i=d_k // 2)


def nibbles_as_they_lie_in_the_bytes(scales, packed):
    out = torch.empty(len(packed), 32, dtype=scales.dtype)
    out[:, 0::2] = (packed & 0x0F).to(scales.dtype) - 8
    out[:, 1::2] = (packed >> 4).to(scales.dtype) - 8
    return out * scales[:, None]


def signed_nibbles(scales, packed):
    signed = packed.view(torch.int8)
    q = torch.cat([(signed << 4) >> 4, signed >> 4], dim=-1)
    return scales[:, None] * q


def eight_is_taken_off_bytes(scales, packed):
    q = torch.hstack([packed % 16, packed // 16]) - 8
    return torch.einsum("b,bi->bi", scales, q.double())


def centred_on_seven_and_a_half(scales, packed):
    q = torch.hstack([packed % 16, packed // 16]).double() - 7.5
    return q * scales[:, None]


def the_lines_of_each_nibble_swapped(scales, packed):
    high, low = packed.int() & 15, packed.int() >> 4
    return torch.cat([low, high], 1).sub(8).mul(scales.view(-1, 1))


def direct_attribution_without_the_norm(parts, weight, row, eps):
    return (parts * weight) @ row


def every_part_through_the_norm(parts, weight, row, eps):
    return F.rms_norm(parts, weight.shape, weight, eps) @ row


def logit_without_minus_logit_with(parts, weight, row, eps):
    def logit(stream):
        return F.rms_norm(stream, weight.shape, weight, eps) @ row

    whole = parts.sum(0)
    return torch.stack([logit(whole) - logit(whole - part) for part in parts])


def eps_beside_the_root(parts, weight, row, eps):
    rms = parts.sum(0).norm() / math.sqrt(parts.size(1)) + eps
    return parts @ (weight * row) / rms


def lens_after_each_layer(parts, weight, row, eps):
    return F.rms_norm(torch.cumsum(parts, 0), weight.shape, weight, eps) @ row


def columns_times_a_mask(weight, head, num_heads):
    width = weight.shape[-1] // num_heads
    keep = torch.arange(weight.shape[-1]) // width != head
    return weight * keep


def paired_by_einops(weight, d_k):
    return rearrange(weight, "(h two p) d -> (h p two) d", two=2, p=d_k // 2)


def byte_by_byte(scales, packed):
    rows = []
    for scale, row in zip(scales, packed.tolist(), strict=True):
        low, high = zip(*(reversed(divmod(byte, 16)) for byte in row), strict=True)
        rows.append(scale * (torch.tensor(low + high) - 8))
    return torch.stack(rows)


def along_one_direction(parts, weight, row, eps):
    direction = weight * row * torch.rsqrt(parts.sum(0).pow(2).mean() + eps)
    return torch.stack([part.dot(direction) for part in parts])


WRONG: list[Answer] = [
    Answer("01-linear", x_times_w_plus_b, "the weight is not transposed"),
    Answer("01-linear", weighted_sum_of_the_features, "the bias is never added"),
    Answer("01-linear", dense, "an activation follows, as a habit"),
    Answer("01-linear", affine_row_by_row, "only the very first row gets the bias"),
    Answer("01-swap-axes", new_shape_with_features_first, "reshaped instead of transposed"),
    Answer("01-swap-axes", transposed_like_an_array, "all axes are reversed, the batch as well"),
    Answer("01-swap-axes", channels_first, "the sentences are stacked on the second axis"),
    Answer("02-embed", embedding_as_in_the_paper, "multiplied by the root of d_model"),
    Answer("02-embed", words_are_counted_from_one, "each id takes the row before its own"),
    Answer("02-embed", embedded_with_blank_padding, "word 0 is wiped as if it were padding"),
    Answer("02-padding-row", padding_becomes_zero, "the padding row is read as zeros"),
    Answer("02-padding-row", padding_row_is_just_a_row, "the padding row is trained as well"),
    Answer("02-padding-row", only_padding_is_frozen, "everything but the padding row is detached"),
    Answer("02-padding-row", frozen_padding_row, "the whole table is detached"),
    Answer("02-padding-row", padding_is_the_first_word, "row 0 is frozen whatever the padding id"),
    Answer("03-sinusoid", timing_signal, "all sines first, then all cosines"),
    Answer("03-sinusoid", one_frequency_for_every_feature, "sine and cosine differ in frequency"),
    Answer("03-sinusoid", sinusoid_with_a_shorter_base, "1000 in place of 10000"),
    Answer("03-sinusoid", first_word_is_position_one, "positions are counted from one"),
    Answer("03-sinusoid", cosine_and_sine_in_turn, "the cosine comes before the sine"),
    Answer("03-sinusoid", frequency_without_the_two, "the exponent lacks its factor of two"),
    Answer(
        "03-positional-encoding",
        added_along_the_first_axis,
        "rows by batch, as in sequence-first code",
    ),
    Answer("03-positional-encoding", position_beside_the_word, "concatenated instead of added"),
    Answer("03-positional-encoding", added_in_place, "the caller's own input is overwritten"),
    Answer("03-positional-encoding", last_rows_of_the_table, "the table is read from its end"),
    Answer("03-positional-encoding", scaled_up_before_positions, "the words are scaled up first"),
    Answer("03-positions-dropped", only_positions_are_dropped, "dropout on the positions alone"),
    Answer("03-positions-dropped", dropped_before_the_sum, "dropout on the words alone"),
    Answer("03-positions-dropped", dropped_and_dropped, "dropout is applied twice"),
    Answer("04-attention-scores", dot_products, "no scale"),
    Answer("04-attention-scores", divided_by_the_dimension, "divided by d_k without the root"),
    Answer("04-attention-scores", scaled_by_the_number_of_keys, "root of the keys, not of d_k"),
    Answer("04-attention-scores", scaled_up_by_the_root, "multiplied where it should divide"),
    Answer("04-attention-scores", how_well_keys_match_queries, "keys are rows, queries columns"),
    Answer("04-attention-scores", similarity_is_the_cosine, "vectors are brought to unit length"),
    Answer("04-attention-weights", softmax_down_the_columns, "softmax over the queries"),
    Answer("04-attention-weights", softmax_of_the_whole_table, "the table sums to one, not a row"),
    Answer("04-attention-weights", log_weights, "logarithms of the weights"),
    Answer("04-attention-weights", share_of_each_score, "divided by the sum without exponential"),
    Answer("04-attention-weights", every_key_decides_alone, "a sigmoid for each key"),
    Answer("04-attention-weights", softmax_by_hand, "the shift is missing in the denominator"),
    Answer("04-attention", values_by_their_scores, "no softmax between scores and values"),
    Answer("04-attention", divided_after_the_softmax, "the scale comes after the softmax"),
    Answer("04-attention", scale_read_off_the_value, "the root of d_v, not of d_k"),
    Answer("04-attention", best_key_takes_it_all, "only the best value, no average"),
    Answer("05-padding-mask", padding_is_true, "True where the word is padding"),
    Answer("05-padding-mask", hidden_rows, "the axis of the keys is in the place of the queries"),
    Answer("05-padding-mask", real_words_start_at_two, "word 1 is hidden as well"),
    Answer("05-padding-mask", ones_for_real_words, "floats in place of True and False"),
    Answer(
        "05-padding-mask",
        real_until_the_longest_sentence_ends,
        "all sentences are as long as the longest",
    ),
    Answer("05-causal-mask", subsequent_mask, "True where the future is"),
    Answer("05-causal-mask", only_what_came_before, "a word may not look at itself"),
    Answer("05-causal-mask", look_ahead_mask, "one future word can be seen"),
    Answer("05-causal-mask", square_subsequent_mask, "a mask to add, not one of True and False"),
    Answer("05-causal-mask", keys_down_queries_across, "each word sees only what follows"),
    Answer("05-mask-of-new", causal_from_the_first_key, "queries are taken for the first keys"),
    Answer("05-mask-of-new", new_sees_what_is_old, "a new word may not look at itself"),
    Answer("05-mask-of-new", new_sees_everything, "the new words see each other's future"),
    Answer("05-mask-of-new", last_rows_cut_from_the_columns, "first rows of the square, not last"),
    Answer("05-masked-weights", hidden_weights_are_wiped, "wiped after softmax, not renormalised"),
    Answer("05-masked-weights", hidden_scores_are_zero, "a hidden score of zero still has weight"),
    Answer("05-masked-weights", minus_infinity_everywhere, "an empty row becomes not-a-number"),
    Answer("05-masked-weights", a_billion_below, "an empty row attends to everything alike"),
    Answer("05-masked-weights", a_tiny_number_hides, "-1e-9 in place of -1e9"),
    Answer("05-masked-weights", true_means_hidden, "True is hidden and False is seen"),
    Answer("05-masked-weights", mask_is_added, "the mask is added to the scores as 0 and 1"),
    Answer("05-masked-weights", renormalised_over_the_queries, "columns sum to one, not rows"),
    Answer("05-scaled-dot-product-attention", inverted_for_the_kernel, "the mask is inverted"),
    Answer(
        "05-scaled-dot-product-attention",
        key_in_the_shape_of_its_transpose,
        "the key is reshaped, not transposed",
    ),
    Answer("05-scaled-dot-product-attention", scaled_for_safety, "scaled twice"),
    Answer(
        "05-scaled-dot-product-attention",
        mask_only_when_it_is_square,
        "a causal mask in place of the one that is given",
    ),
    Answer("05-padded-attention", hidden_values_are_zero, "padding still takes part in softmax"),
    Answer("05-padded-attention", trimmed_to_the_longest, "shorter sentences keep their padding"),
    Answer("05-padded-attention", padding_does_not_ask, "the mask lies on the queries"),
    Answer("05-padded-attention", padding_is_one, "word 1 is hidden in place of word 0"),
    Answer("06-split-heads", heads_by_reshape, "reshaped across the words, no transpose"),
    Answer("06-split-heads", heads_take_turns, "a head takes every num_heads-th feature"),
    Answer("06-split-heads", pieces_of_the_features, "pieces as wide as there are heads"),
    Answer("06-split-heads", sentence_in_pieces, "the sentence is cut in place of the features"),
    Answer("06-split-heads", heads_stay_behind_the_words, "the heads stay on the third axis"),
    Answer("06-merge-heads", straight_back_together, "merged without moving the heads back"),
    Answer("06-merge-heads", features_of_all_heads_side_by_side, "the heads are interleaved"),
    Answer("06-merge-heads", heads_vote, "averaged in place of concatenated"),
    Answer("06-merge-heads", glued_from_the_last, "the heads are in reversed order"),
    Answer("06-multi-head-attention", mha_scaled_by_the_model, "the root of d_model, not of d_k"),
    Answer("06-multi-head-attention", mha_with_concatenated_heads, "no output projection"),
    Answer("06-multi-head-attention", mha_of_one_sentence, "keys and values from the query"),
    Answer("06-multi-head-attention", mha_copied_line, "values are projected by the keys' matrix"),
    Answer("06-multi-head-attention", mha_mixed_by_the_matrix, "w_o is not transposed"),
    Answer("06-multi-head-attention", mha_in_which_heads_meet, "keys are summed over all heads"),
    Answer("07-layer-norm", norm_with_torch_std, "divided by d_model - 1"),
    Answer("07-layer-norm", norm_with_eps_beside_the_root, "eps is added outside the root"),
    Answer("07-layer-norm", norm_over_the_batch, "statistics over the first axis"),
    Answer("07-layer-norm", norm_by_the_variance, "divided by the variance without a root"),
    Answer("07-layer-norm", norm_with_the_keras_eps, "an eps of 1e-3"),
    Answer("07-layer-norm", norm_then_shift_then_scale, "the bias is scaled as well"),
    Answer("07-layer-norm", norm_of_fixed_statistics, "no gradient through mean and variance"),
    Answer("07-rms-norm", unit_length, "divided by the length, not by the root mean square"),
    Answer("07-rms-norm", rms_around_the_mean, "the mean is taken off first"),
    Answer("07-rms-norm", rms_with_one_plus_weight, "one is added to the weight"),
    Answer("07-rms-norm", mean_of_magnitudes, "mean of absolute values, not of squares"),
    Answer("07-rms-norm", rms_with_eps_outside, "eps is added outside the root"),
    Answer("08-residual", add_and_norm, "post-norm"),
    Answer("08-residual", stream_of_normed_values, "the normed input is carried on"),
    Answer("08-residual", straight_through, "nothing is carried past the sublayer"),
    Answer("08-residual", norm_of_the_answer, "the norm comes after the sublayer"),
    Answer("08-residual", answer_minus_input, "the input is taken off, not added"),
    Answer("08-residual", residual_that_is_computed, "nothing is returned"),
    Answer("09-feed-forward", two_linear_layers, "no activation"),
    Answer("09-feed-forward", mlp_of_gpt, "GELU in place of ReLU"),
    Answer("09-feed-forward", relu_at_the_end, "a second ReLU on the output"),
    Answer("09-feed-forward", bias_on_top_of_relu, "the first bias is added behind ReLU"),
    Answer("09-feed-forward", with_its_own_shortcut, "a residual connection of its own"),
    Answer("09-feed-forward", leaky_feed_forward, "a leaky ReLU"),
    Answer("09-swiglu", up_is_the_gate, "gate and up have changed roles"),
    Answer("09-swiglu", gated_by_a_sigmoid, "a sigmoid in place of SiLU"),
    Answer("09-swiglu", gate_added, "gate and up are added, not multiplied"),
    Answer("09-swiglu", silu_of_the_product, "SiLU of the product"),
    Answer("09-swiglu", gated_gelu, "GELU in place of SiLU"),
    Answer("10-stack", n_times_the_layer, "one layer many times over"),
    Answer("10-stack", list_of_layers, "a plain list, which no optimiser finds"),
    Answer("10-stack", clones, "all layers start from the same weights"),
    Answer("10-stack", layers_from_one_to_n, "one layer too few"),
    Answer("10-encoder", mask_at_the_door, "only the first layer gets the mask"),
    Answer("10-encoder", norm_after_every_layer, "the norm follows every layer"),
    Answer("10-encoder", bare_stack, "no last norm"),
    Answer("10-encoder", each_layer_reads_the_input, "the layers are not chained"),
    Answer("10-encoder", from_the_top_down, "the last layer comes first"),
    Answer("10-encoder", encoder_that_ends_with_norm, "what the norm returns is thrown away"),
    Answer("11-cross-attention", memory_asks_the_target, "source and target have changed roles"),
    Answer("11-cross-attention", masked_by_its_own_padding, "the target's mask on source keys"),
    Answer("11-cross-attention", keys_of_memory_values_of_target, "the values are the target's"),
    Answer("11-cross-attention", target_looks_at_itself, "self-attention, memory is not read"),
    Answer("11-cross-attention", cross_attention_with_a_sum, "a residual connection of its own"),
    Answer("11-target-mask", target_mask_without_padding, "padding is hidden as well"),
    Answer("11-target-mask", square_of_the_batch, "as large as the batch, not the sentence"),
    Answer("11-target-mask", future_of_the_target, "each word sees only what follows"),
    Answer("11-decoder", masks_by_feel, "the two masks have changed places"),
    Answer("11-decoder", memory_flows_along, "a later layer reads the target as its memory"),
    Answer("11-decoder", decoder_from_a_tutorial, "no last norm"),
    Answer("11-decoder", first_norm_then_layers, "the norm comes first, not last"),
    Answer("12-transformer", target_knows_its_order, "no positions on the target"),
    Answer("12-transformer", one_embedding_for_both, "the source's table for the target"),
    Answer("12-transformer", mask_for_the_decoder_only, "the encoder sees padding"),
    Answer("12-transformer", probabilities_of_the_next_word, "softmax of the logits"),
    Answer("12-transformer", causality_is_built_in, "the decoder sees the future"),
    Answer("12-transformer", decoder_reads_the_source_words, "the encoder is left out"),
    Answer("13-shift", same_in_and_out, "the input is not shifted"),
    Answer("13-shift", next_word_as_label, "the labels are shifted left, not the input right"),
    Answer("13-shift", rolled_by_one, "the last word comes round to the front"),
    Answer("13-shift", padding_is_a_word_too, "padding keeps its label"),
    Answer("13-shift", ignored_where_the_input_is_zero, "the input's zeros hide the first label"),
    Answer("13-shift", zero_column_in_front, "the ids have become floats"),
    Answer("13-shift", starts_with_one, "the input starts with 1"),
    Answer("13-make-batch", both_sides_shifted, "the source is shifted as well"),
    Answer("13-make-batch", source_labels_input, "labels and input have changed places"),
    Answer("13-make-batch", all_but_last_all_but_first, "no start, and one place is lost"),
    Answer("13-make-batch", minus_one_is_ignored, "-1 in place of -100"),
    Answer("13-make-batch", reads_the_answer, "the target is handed over as the source"),
    Answer("13-loss", averaged_over_all_places, "places without a label are in the average"),
    Answer("13-loss", summed_loss, "the sum, not the mean"),
    Answer("13-loss", loss_of_the_probabilities, "softmax is taken twice"),
    Answer("13-loss", classes_on_the_second_axis, "reshaped instead of transposed"),
    Answer("13-loss", mean_of_the_sentences, "every sentence counts the same, however short"),
    Answer("13-loss", no_label_is_word_zero, "padding counts as word 0"),
    Answer("13-loss", likelihood_without_a_log, "probabilities without their logarithm"),
    Answer("13-loss", surprise_in_bits, "logarithms to base two"),
    Answer("13-loss", loss_shifted_once_more, "shifted again inside the loss"),
    Answer("14-embed-step", every_step_starts_anew, "positions start at zero in every step"),
    Answer("14-embed-step", one_place_too_early, "positions start one too early"),
    Answer("14-embed-step", one_place_too_late, "positions start one too late"),
    Answer("14-embed-step", all_new_words_at_one_place, "one position for all new words"),
    Answer("14-embed-step", only_the_newest_word, "all new words but the last are lost"),
    Answer("16-rotary-angles", theta_of_the_handout, "pairs are counted from one"),
    Answer("16-rotary-angles", places_after_the_cache, "one position too far"),
    Answer("16-rotary-angles", angles_of_the_chunk, "start is not used"),
    Answer("16-rotary-angles", angles_for_all_features, "two columns for each pair, as halves"),
    Answer("16-rotary-angles", angles_with_the_base_of_llama_3, "another base"),
    Answer("16-rotate", rotate_as_in_llama, "pairs are halves"),
    Answer("16-rotate", neighbours_with_the_angles_of_llama, "angles in the order of halves"),
    Answer("16-rotate", multiplied_by_the_conjugate, "turned the other way"),
    Answer("16-rotate", only_cosines, "the sines are left out"),
    Answer("16-rotary-attention", all_three_are_turned, "the values are turned as well"),
    Answer("16-rotary-attention", turned_after_the_scores, "what is handed over is turned"),
    Answer("16-rotary-attention", key_stays_where_it_is, "only the queries are turned"),
    Answer("16-rows-for-neighbours", permute_of_the_converter, "the way back to halves"),
    Answer("16-rows-for-neighbours", every_other_row_of_all, "the heads are not kept apart"),
    Answer("16-rows-for-neighbours", columns_instead_of_rows, "the inputs change their order"),
    Answer("17-share-heads", repeat_kv_by_repeat, "tiles"),
    Answer("17-share-heads", kv_stacked_behind_each_other, "tiles, by cat"),
    Answer("17-share-heads", as_many_copies_as_kv_heads, "the number of groups for their size"),
    Answer(
        "17-share-heads", shared_by_the_last_group_too, "even and odd heads, as if there were two"
    ),
    Answer("17-grouped-attention", grouped_with_einsum_as_tiles, "groups as tiles"),
    Answer("17-grouped-attention", grouped_unscaled, "no root of d_k"),
    Answer("17-grouped-attention", grouped_over_the_wrong_axis, "softmax over the queries"),
    Answer("17-attend-with-cache", cache_then_rope, "all keys turned, the kept ones again"),
    Answer("17-attend-with-cache", rope_from_zero_every_time, "new tokens turned from 0"),
    Answer("17-attend-with-cache", rope_on_all_three, "values turned too"),
    Answer("17-attend-with-cache", causal_only_while_the_cache_is_empty, "no mask with a cache"),
    Answer("17-attend-with-cache", copies_go_into_the_cache, "shared, then kept"),
    Answer("17-attend-with-cache", is_causal_flag_of_torch, "the triangle in the other corner"),
    Answer("17-attend-with-cache", new_in_front_of_the_old, "the new keys stand first"),
    Answer("17-pool-heads", every_second_head_with_the_next_group, "groups as tiles"),
    Answer("17-pool-heads", heads_summed_in_groups, "a sum for a mean"),
    Answer("17-pool-heads", neighbouring_rows_averaged, "rows for heads"),
    Answer("18-next-labels", labels_are_the_ids_themselves, "each word is asked for itself"),
    Answer("18-next-labels", gpt_labels, "the question is asked as well"),
    Answer(
        "18-next-labels",
        ignore_up_to_and_with_the_sign,
        "the sign asks nothing",
    ),
    Answer("18-chunk-mask", chunk_attends_to_everything, "no causal mask"),
    Answer("18-chunk-mask", hf_style_square_mask, "the corner is at the first key"),
    Answer("18-chunk-mask", only_look_to_the_left, "padding is seen"),
    Answer("18-chunk-mask", pads_do_not_ask, "the padding lies on the query axis"),
    Answer("18-prompt-logits", first_position_predicts, "the first position"),
    Answer("18-prompt-logits", take_the_newest, "the last position, padding or not"),
    Answer("18-prompt-logits", by_length, "right only where padding stands behind"),
    Answer("18-prompt-logits", mean_of_the_prompt, "the mean of all words"),
    Answer("18-top-p", nucleus_without_the_crossing_token, "one word too few"),
    Answer("18-top-p", nucleus_in_sorted_order, "never put back"),
    Answer("18-top-p", nucleus_that_does_not_sum_to_one, "not divided by the sum"),
    Answer("18-top-p", everything_above_p, "each word against p"),
    Answer("18-language-model", head_with_frozen_table, "the scores do not teach the table"),
    Answer("18-language-model", no_mask_in_the_stack, "no causal mask"),
    Answer("18-language-model", logits_without_last_norm, "no last norm"),
    Answer("19-remove-head", ablated_as_if_it_were_w_q, "rows, by a width of the rows"),
    Answer("19-remove-head", ablated_in_the_model_itself, "the weight that is given is changed"),
    Answer("19-remove-head", every_nth_column, "features dealt to the heads in turn"),
    Answer("19-remove-head", mean_ablated, "a mean in the place of zeros"),
    Answer("19-remove-head", one_head_alone, "all others are removed"),
    Answer("19-neighbours", permute_of_the_other_converter, "the way back to halves"),
    Answer("19-neighbours", first_half_second_half, "the heads are not kept apart"),
    Answer("19-neighbours", torch_does_the_rest, "nothing changes its place"),
    Answer("19-neighbours", evens_then_odds_of_all_rows, "to halves, of all heads at once"),
    Answer("19-neighbours", pairs_in_the_columns, "the inputs change their order"),
    Answer("19-dequantize", nibbles_as_they_lie_in_the_bytes, "low, high, low, high"),
    Answer("19-dequantize", signed_nibbles, "read with a sign"),
    Answer("19-dequantize", eight_is_taken_off_bytes, "3 - 8 is 251"),
    Answer("19-dequantize", centred_on_seven_and_a_half, "another middle"),
    Answer("19-dequantize", the_lines_of_each_nibble_swapped, "high and low have changed names"),
    Answer("19-logit-parts", direct_attribution_without_the_norm, "not divided"),
    Answer("19-logit-parts", every_part_through_the_norm, "a root of its own for each part"),
    Answer("19-logit-parts", logit_without_minus_logit_with, "what is lost without it"),
    Answer("19-logit-parts", eps_beside_the_root, "eps is added outside the root"),
    Answer("19-logit-parts", lens_after_each_layer, "the logit of all parts so far"),
]

RIGHT: list[Answer] = [
    Answer(
        "01-linear",
        linear_in_one_flat_product,
        "all words in one flat product, then the shape again",
    ),
    Answer("01-swap-axes", swap_by_sentences, "feature by feature, each with all its words"),
    Answer("02-embed", one_hot_times_the_table, "a one-hot row picks its row of the table"),
    Answer(
        "02-padding-row", padding_row_behind_glass, "only the padding row is read without gradient"
    ),
    Answer("03-sinusoid", sinusoid_cell_by_cell, "the equation for one cell at a time"),
    Answer("03-sinusoid", sinusoid_as_a_rotation, "real and imaginary part are cosine and sine"),
    Answer("03-positional-encoding", words_and_places_in_a_loop, "position by position"),
    Answer(
        "03-positions-dropped",
        dropped_after_the_sum,
        "the rows are looked up like words, then dropped",
    ),
    Answer(
        "04-attention-scores",
        scores_from_distances,
        "a dot product follows from lengths and distance",
    ),
    Answer(
        "04-attention-weights",
        weights_by_logsumexp,
        "softmax is exp of the score less the logsumexp",
    ),
    Answer("04-attention", attention_query_by_query, "both sides carry half of the scale"),
    Answer("05-padding-mask", ids_as_truth_values, "only id 0 is False"),
    Answer("05-causal-mask", no_key_behind_the_query, "a key's place is not above the query's"),
    Answer("05-causal-mask", not_the_upper_triangle, "what is not the future"),
    Answer("05-mask-of-new", last_rows_of_the_square, "the last rows of the full causal mask"),
    Answer(
        "05-masked-weights",
        softmax_over_what_is_seen,
        "softmax by hand, with a guard for empty rows",
    ),
    Answer("05-masked-weights", not_a_number_means_nothing, "only an empty row is not-a-number"),
    Answer(
        "05-scaled-dot-product-attention",
        a_billion_below_then_wiped,
        "-1e9, and hidden weights wiped afterwards",
    ),
    Answer(
        "05-scaled-dot-product-attention",
        the_kernel_of_torch,
        "torch's kernel has the same sense of a mask",
    ),
    Answer(
        "05-padded-attention", padding_cut_out_of_each_sentence, "each sentence without its padding"
    ),
    Answer("06-split-heads", heads_stacked_from_chunks, "consecutive features, stacked as heads"),
    Answer("06-merge-heads", heads_in_a_row, "the heads concatenated in order"),
    Answer("06-multi-head-attention", mha_head_by_head, "each head adds its share of the output"),
    Answer(
        "06-multi-head-attention", mha_in_einsums, "the heads' matrices with an axis of their own"
    ),
    Answer("07-layer-norm", layer_norm_from_var_mean, "biased variance, eps inside the root"),
    Answer("07-rms-norm", rms_from_the_length, "a vector times itself is the sum of its squares"),
    Answer("08-residual", residual_backwards, "a sum in the other order"),
    Answer("09-feed-forward", relu_by_where, "ReLU as a choice between x and zero"),
    Answer(
        "09-swiglu", gate_and_up_in_one_product, "both matrices in one product, SiLU written out"
    ),
    Answer("10-stack", stack_that_grows, "a fresh layer each time, in a module"),
    Answer("10-encoder", encoder_by_reduce, "a chain of layers is a reduction"),
    Answer(
        "11-cross-attention", keys_and_values_from_the_memory, "the target asks, the memory answers"
    ),
    Answer(
        "11-target-mask", causal_by_running_sum, "the diagonal summed along the keys, transposed"
    ),
    Answer("11-decoder", decoder_by_recursion, "the first layer, then the decoder of the others"),
    Answer("12-transformer", inside_out, "all parts in one expression"),
    Answer("13-shift", padded_on_the_left, "a zero on the left, one column less on the right"),
    Answer("13-make-batch", batch_by_rolling, "what comes round to the front is overwritten"),
    Answer("13-loss", surprise_where_there_is_a_label, "logsumexp less the right score"),
    Answer(
        "13-loss",
        cross_entropy_with_classes_second,
        "classes on the second axis, as torch wants them",
    ),
    Answer("14-embed-step", step_with_looked_up_places, "places looked up by number"),
    Answer("16-rotary-angles", angles_one_by_one, "one number at a time"),
    Answer(
        "16-rotate", rotate_by_complex_exponentials, "complex numbers from two halves of a pair"
    ),
    Answer("16-rotary-attention", attention_of_turned_heads, "written out with letters"),
    Answer("16-rows-for-neighbours", rows_by_a_list, "an index for each row"),
    Answer("17-share-heads", index_of_the_group, "each head picks the number of its group"),
    Answer("17-grouped-attention", group_by_group, "head by head, with the floor of the paper"),
    Answer("17-attend-with-cache", filled_into_a_buffer, "written into memory set aside"),
    Answer("17-pool-heads", pooled_with_einops, "a sum over the groups, divided at the end"),
    Answer("18-next-labels", labels_by_a_loop, "row by row in lists"),
    Answer("18-chunk-mask", mask_by_positions, "what is hidden, turned over"),
    Answer("18-prompt-logits", last_word_by_flipping, "counted from the end"),
    Answer("18-top-p", nucleus_word_by_word, "two loops"),
    Answer("18-language-model", a_small_llama, "by the functions of torch"),
    Answer("19-remove-head", columns_times_a_mask, "each column asks whose it is"),
    Answer("19-neighbours", paired_by_einops, "three axes by their names"),
    Answer("19-dequantize", byte_by_byte, "one byte at a time"),
    Answer("19-logit-parts", along_one_direction, "a dot product with one direction"),
]
