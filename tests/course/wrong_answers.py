"""Answers to the exercises as many different people would write them, wrong and right.

Each wrong answer has one fault, and its docstring describes it. A function with the name of a
classic mistake is a version of this mistake. `right_` begins the name of a right answer, which is
written in an unusual way. Any other name is a fault that is no classic mistake.
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
from twelve_lab.check import MISTAKES

IDS = {id.replace("-", "_"): id for id in MISTAKES}


class Answer(NamedTuple):
    """An answer to an exercise; `mistake` is the id that the checker must give it."""

    exercise: str
    function: Callable[..., Any]
    mistake: str | None


WRONG: list[Answer] = []
RIGHT: list[Answer] = []


class Answers:
    """All answers to one exercise."""

    def __init_subclass__(cls, to: str) -> None:
        for name, function in vars(cls).items():
            if not name.startswith("__"):
                # A second version of a mistake has a number.
                mistake = IDS.get(name) or IDS.get(name.rstrip("23").rstrip("_"))
                answers = RIGHT if name.startswith("right_") else WRONG
                answers.append(Answer(to, function, mistake))


def _cut(x, n):
    return x.view(x.size(0), x.size(1), n, -1).transpose(1, 2)


def _glue(x):
    return x.transpose(1, 2).flatten(2)


def _sdpa(q, k, v, shown):
    return F.scaled_dot_product_attention(q, k, v, shown, enable_gqa=True)


def _lower_right(new, total):
    return torch.ones(new, total, dtype=torch.bool).tril(total - new)


class Linear(Answers, to="01-linear"):
    def weights_transposed(x, w, b):
        """The weight is not transposed."""
        return torch.matmul(x, w) + b

    def weighted_sum_of_the_features(inputs, kernel, offset):
        """The bias is never added."""
        return torch.einsum("bsi,oi->bso", inputs, kernel)

    def dense(inputs, kernel, bias):
        """An activation follows, as a habit."""
        return F.relu(F.linear(inputs, kernel, bias))

    def affine_row_by_row(x, W, b):
        """Only the very first row gets the bias."""
        rows = [W @ x[i, j] for i in range(x.shape[0]) for j in range(x.shape[1])]
        rows[0] = rows[0] + b
        return torch.stack(rows).view(x.shape[0], x.shape[1], -1)

    def right_linear_in_one_flat_product(x, weight, bias):
        """All words in one flat product, then the shape again."""
        flat = torch.addmm(bias, x.reshape(-1, x.size(-1)), weight.t())
        return flat.view(*x.shape[:-1], weight.size(0))


class SwapAxes(Answers, to="01-swap-axes"):
    def transpose_view(x):
        """Reshaped instead of transposed."""
        batch, seq, d_model = x.shape
        return x.reshape(batch, d_model, seq)

    def transposed_like_an_array(a):
        """All axes are reversed, the batch as well."""
        return a.permute(*range(a.ndim)[::-1])

    def channels_first(tensor):
        """The sentences are stacked on the second axis."""
        return torch.stack([sentence.T for sentence in tensor], dim=1)

    def right_swap_by_sentences(x):
        """Feature by feature, each with all its words."""
        return torch.stack([torch.stack(list(sentence.unbind(-1))) for sentence in x])


class Embed(Answers, to="02-embed"):
    def embedding_as_in_the_paper(ids, table):
        """Multiplied by the root of d_model."""
        return F.embedding(ids, table) * math.sqrt(table.size(1))

    def words_are_counted_from_one(tokens, lookup):
        """Each id takes the row before its own."""
        zero_based = tokens - 1
        return lookup[zero_based.flatten()].view(*tokens.shape, -1)

    def embedded_with_blank_padding(tokens, E):
        """Word 0 is wiped as if it were padding."""
        out = E[tokens]
        return out * (tokens != 0).unsqueeze(-1)

    def right_one_hot_times_the_table(ids, table):
        """A one-hot row picks its row of the table."""
        return F.one_hot(ids, num_classes=len(table)).to(table.dtype) @ table


class PaddingRow(Answers, to="02-padding-row"):
    def padding_becomes_zero(ids, weights, pad):
        """The padding row is read as zeros."""
        vectors = weights[ids]
        return vectors.masked_fill((ids == pad)[..., None], 0.0)

    def padding_idx_missing(ids, weights, pad):
        """The padding row is trained as well."""
        return torch.stack([weights[sentence] for sentence in ids])

    def only_padding_is_frozen(ids, table, pad_id):
        """Everything but the padding row is detached."""
        rows = table[ids]
        return torch.where(ids.eq(pad_id).unsqueeze(-1), rows, rows.detach())

    def frozen_padding_row(idx, emb, pad):
        """The whole table is detached."""
        return F.embedding(idx, emb.detach(), padding_idx=pad)

    def padding_is_the_first_word(idx, emb, pad):
        """Row 0 is frozen whatever the padding id."""
        return F.embedding(idx, emb, padding_idx=0)

    def right_padding_row_behind_glass(ids, table, pad):
        """Only the padding row is read without gradient."""
        padding = ids.eq(pad).unsqueeze(-1)
        return torch.where(padding, table.detach()[ids], table[ids])


class Sinusoid(Answers, to="03-sinusoid"):
    def pe_sin_cos_halves(length, channels):
        """All sines first, then all cosines."""
        position = torch.arange(length, dtype=torch.float64)[:, None]
        rate = 10000.0 ** (torch.arange(0, channels, 2, dtype=torch.float64) / channels)
        angle = position / rate
        signal = torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)
        return signal[:, :channels].to(torch.get_default_dtype())

    def one_frequency_for_every_feature(n, d):
        """Sine and cosine differ in frequency."""
        rows = []
        for pos in range(n):
            angles = [pos / 10000 ** (i / d) for i in range(d)]
            rows.append([math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)])
        return torch.tensor(rows)

    def sinusoid_with_a_shorter_base(max_len, d_model):
        """1000 in place of 10000."""
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(1000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)[:, : d_model // 2]
        return pe

    def first_word_is_position_one(max_len, d_model):
        """Positions are counted from one."""
        positions = torch.arange(1, max_len + 1)[:, None].double()
        feature = torch.arange(d_model)[None, :]
        angles = positions / torch.pow(10000.0, (feature // 2 * 2).double() / d_model)
        wave = torch.where(feature % 2 == 0, angles.sin(), angles.cos())
        return wave.to(torch.get_default_dtype())

    def cosine_and_sine_in_turn(length, width):
        """The cosine comes before the sine."""

        def cell(pos, i):
            angle = pos * math.exp(-(i - i % 2) / width * math.log(1e4))
            return (math.cos, math.sin)[i % 2](angle)

        return torch.tensor([[cell(p, i) for i in range(width)] for p in range(length)])

    def frequency_without_the_two(max_len, d_model):
        """The exponent lacks its factor of two."""
        i = torch.arange((d_model + 1) // 2, dtype=torch.float64)
        theta = torch.outer(torch.arange(max_len, dtype=torch.float64), 10000 ** (-i / d_model))
        pairs = torch.stack((theta.sin(), theta.cos()), dim=-1)
        return pairs.flatten(1)[:, :d_model].to(torch.get_default_dtype())

    def right_sinusoid_cell_by_cell(max_len, d_model):
        """The equation for one cell at a time."""

        def wave(pos, i):
            angle = pos / 10000 ** (2 * (i // 2) / d_model)
            return math.sin(angle) if i % 2 == 0 else math.cos(angle)

        return torch.tensor([[wave(pos, i) for i in range(d_model)] for pos in range(max_len)])

    def right_sinusoid_as_a_rotation(length, width):
        """Real and imaginary part are cosine and sine."""
        pos = torch.arange(length, dtype=torch.float64)
        speed = torch.logspace(
            0, -8 * ((width - 1) // 2) / width, (width + 1) // 2, dtype=pos.dtype
        )
        turn = torch.outer(pos, speed)
        spun = torch.polar(torch.ones_like(turn), turn)
        table = torch.view_as_real(spun).flip(-1).flatten(1)[:, :width]
        return table.to(torch.get_default_dtype())


class PositionalEncoding(Answers, to="03-positional-encoding"):
    def pe_sequence_first(x, pe):
        """Rows by batch, as in sequence-first code."""
        return x + pe[: x.size(0)].unsqueeze(1)

    def position_beside_the_word(words, table):
        """Concatenated instead of added."""
        place = repeat(table[: words.size(1)], "seq d -> batch seq d", batch=words.size(0))
        return torch.cat([words, place], dim=-1)

    def added_in_place(x, pe):
        """The caller's own input is overwritten."""
        x += pe[: x.size(1)]
        return x

    def last_rows_of_the_table(x, pe):
        """The table is read from its end."""
        return x + pe[-x.size(1) :]

    def scaled_up_before_positions(x, pe):
        """The words are scaled up first."""
        return x * x.size(-1) ** 0.5 + pe[None, : x.shape[1], :]

    def right_words_and_places_in_a_loop(x, table):
        """Position by position."""
        return torch.stack([x[:, t] + table[t] for t in range(x.size(1))], dim=1)


class PositionsDropped(Answers, to="03-positions-dropped"):
    def only_positions_are_dropped(x, pe, drop):
        """Dropout on the positions alone."""
        return x + drop(pe[: x.size(1)].expand_as(x))

    def dropped_before_the_sum(x, table, dropout):
        """Dropout on the words alone."""
        dropped = dropout(x)
        return torch.add(dropped, table[: x.shape[1]])

    def dropout_twice(x, table, dropout):
        """Dropout is applied twice."""
        return dropout(dropout(x + table[: x.size(1)]))

    def right_dropped_after_the_sum(x, table, dropout):
        """The rows are looked up like words, then dropped."""
        rows = F.embedding(torch.arange(x.size(1)).expand(x.shape[:2]), table)
        return dropout(rows + x)


class AttentionScores(Answers, to="04-attention-scores"):
    def scale_missing(q, k):
        """No scale."""
        return torch.bmm(q, k.transpose(1, 2))

    def scale_d_k(Q, K):
        """Divided by d_k without the root."""
        return torch.einsum("bqd,bkd->bqk", Q, K) / Q.shape[-1]

    def scale_length(query, key):
        """Root of the keys, not of d_k."""
        temperature = math.sqrt(key.size(1))
        return (query / temperature) @ key.mT

    def scale_multiplied(query, key):
        """Multiplied where it should divide."""
        d_k = query.size(-1)
        return (query[:, :, None, :] * key[:, None, :, :]).sum(-1) * d_k**0.5

    def qk_swapped(q, k):
        """Keys are rows, queries columns."""
        return torch.baddbmm(
            q.new_zeros(q.size(0), k.size(1), q.size(1)),
            k,
            q.permute(0, 2, 1),
            alpha=q.size(2) ** -0.5,
        )

    def similarity_is_the_cosine(q, k):
        """Vectors are brought to unit length."""
        return F.cosine_similarity(q.unsqueeze(2), k.unsqueeze(1), dim=-1) / q.size(-1) ** 0.5

    def right_scores_from_distances(q, k):
        """A dot product follows from lengths and distance."""
        lengths = q.square().sum(-1).unsqueeze(2) + k.square().sum(-1).unsqueeze(1)
        apart = (q.unsqueeze(2) - k.unsqueeze(1)).square().sum(-1)
        return (lengths - apart) / (2 * math.sqrt(q.size(-1)))


class AttentionWeights(Answers, to="04-attention-weights"):
    def softmax_queries(scores):
        """Softmax over the queries."""
        return torch.softmax(scores, dim=1)

    def softmax_of_the_whole_table(logits):
        """The table sums to one, not a row."""
        e = torch.exp(logits - logits.amax())
        return e / e.sum(dim=(1, 2), keepdim=True)

    def log_weights(s):
        """Logarithms of the weights."""
        return F.log_softmax(s, dim=-1)

    def share_of_each_score(s):
        """Divided by the sum without exponential."""
        total = s.sum(dim=-1, keepdim=True)
        return s / total

    def every_key_decides_alone(s):
        """A sigmoid for each key."""
        return 1 / (1 + torch.exp(-s))

    def softmax_by_hand(matrix):
        """The shift is missing in the denominator."""
        shifted = matrix - matrix.max(-1, keepdim=True).values
        top = shifted.exp()
        return top / matrix.exp().sum(-1, keepdim=True)

    def right_weights_by_logsumexp(scores):
        """Softmax is exp of the score less the logsumexp."""
        return torch.exp(scores - scores.logsumexp(dim=-1, keepdim=True))


class Attention(Answers, to="04-attention"):
    def values_by_their_scores(q, k, v):
        """No softmax between scores and values."""
        return torch.einsum("bqd,bkd,bkv->bqv", q, k, v) / math.sqrt(q.size(-1))

    def divided_after_the_softmax(q, k, v):
        """The scale comes after the softmax."""
        weights = F.softmax(q @ k.transpose(-2, -1), dim=-1)
        return torch.bmm(weights / k.size(-1) ** 0.5, v)

    def scale_read_off_the_value(query, key, value):
        """The root of d_v, not of d_k."""
        *_, width = value.size()
        attn = query.matmul(key.swapaxes(-1, -2)).div(math.sqrt(width)).softmax(-1)
        return attn.matmul(value)

    def best_key_takes_it_all(query, key, value):
        """Only the best value, no average."""
        winner = torch.matmul(query, key.mT).argmax(-1)
        return torch.stack([v[w] for v, w in zip(value, winner, strict=True)])

    def right_attention_query_by_query(Q, K, V):
        """Both sides carry half of the scale."""
        scale = Q.shape[-1] ** -0.25
        out = []
        for q, k, v in zip(Q * scale, K * scale, V, strict=True):
            out.append(torch.stack([F.softmax(k @ one, dim=0) @ v for one in q]))
        return torch.stack(out)


class PaddingMask(Answers, to="05-padding-mask"):
    def mask_inverted(ids):
        """True where the word is padding."""
        return (ids == 0).unsqueeze(1).unsqueeze(2)

    def mask_query_axis(ids):
        """The axis of the keys is in the place of the queries."""
        return ids.ne(0)[:, None, :, None]

    def real_words_start_at_two(tokens):
        """Word 1 is hidden as well."""
        return torch.gt(tokens, 1).view(tokens.size(0), 1, 1, tokens.size(1))

    def ones_for_real_words(tokens):
        """Floats in place of True and False."""
        return torch.where(tokens != 0, 1.0, 0.0)[:, None, None, :]

    def real_until_the_longest_sentence_ends(tokens):
        """All sentences are as long as the longest."""
        longest = int((tokens != 0).sum(dim=1).max())
        keep = torch.arange(tokens.shape[1]) < longest
        return keep.expand(tokens.shape).reshape(tokens.shape[0], 1, 1, -1)

    def right_ids_as_truth_values(ids):
        """Only id 0 is False."""
        return ids.bool().view(ids.size(0), 1, 1, -1)


class CausalMask(Answers, to="05-causal-mask"):
    def mask_inverted(size):
        """True where the future is."""
        return torch.triu(torch.ones(1, 1, size, size), diagonal=1) == 1

    def causal_diagonal(n):
        """A word may not look at itself."""
        return torch.ones(n, n, dtype=torch.bool).tril(-1).unsqueeze(0).unsqueeze(0)

    def look_ahead_mask(n):
        """One future word can be seen."""
        i = torch.arange(n)
        return (i[None, :] <= i[:, None] + 1)[None, None]

    def square_subsequent_mask(sz):
        """A mask to add, not one of True and False."""
        future = torch.full((sz, sz), float("-inf"))
        return torch.triu(future, diagonal=1)[None, None]

    def causal_triu(n):
        """Each word sees only what follows."""
        rows = [[key >= query for key in range(n)] for query in range(n)]
        return torch.tensor(rows).reshape(1, 1, n, n)

    def right_no_key_behind_the_query(length):
        """A key's place is not above the query's."""
        place = torch.arange(length)
        return torch.ge(place.view(-1, 1), place).expand(1, 1, length, length)

    def right_not_the_upper_triangle(n):
        """What is not the future."""
        return torch.logical_not(torch.ones(n, n).triu(diagonal=1))[None, None]


class MaskOfNew(Answers, to="05-mask-of-new"):
    def causal_corner(new, total):
        """Queries are taken for the first keys."""
        return torch.tril(torch.ones(new, total)).bool().view(1, 1, new, total)

    def causal_diagonal(n_new, n_all):
        """A new word may not look at itself."""
        old = n_all - n_new
        return torch.tensor([[j < old + i for j in range(n_all)] for i in range(n_new)])[None, None]

    def new_sees_everything(q_len, k_len):
        """The new words see each other's future."""
        return torch.ones((1, 1, q_len, k_len), dtype=torch.bool)

    def causal_corner_2(q_len, k_len):
        """First rows of the square, not last."""
        full = torch.ones(k_len, k_len, dtype=torch.bool).tril()
        return full[None, None, :q_len, :]

    def right_last_rows_of_the_square(new, total):
        """The last rows of the full causal mask."""
        square = torch.tril(torch.ones(total, total, dtype=torch.bool))
        return square[total - new :].reshape(1, 1, new, total)


class MaskedWeights(Answers, to="05-masked-weights"):
    def mask_after_softmax(scores, mask):
        """Wiped after softmax, not renormalised."""
        probs = scores.softmax(dim=-1)
        return probs.masked_fill(mask.logical_not(), 0)

    def mask_multiplied(scores, mask):
        """A hidden score of zero still has weight."""
        return F.softmax(scores * mask, dim=-1)

    def mask_empty_row(scores, mask):
        """An empty row becomes not-a-number."""
        return torch.where(mask, scores, torch.tensor(float("-inf"), dtype=scores.dtype)).softmax(
            -1
        )

    def mask_finite(scores, mask):
        """An empty row attends to everything alike."""
        return torch.softmax(scores.masked_fill(mask == 0, -1e9), dim=-1)

    def a_tiny_number_hides(scores, mask):
        """-1e-9 in place of -1e9."""
        scores = scores.masked_fill(~mask, -1e-9)
        weights = scores.softmax(-1)
        return weights * mask.any(-1, keepdim=True)

    def mask_inverted(scores, mask):
        """True is hidden and False is seen."""
        weights = torch.softmax(scores.masked_fill(mask, -torch.inf), dim=-1)
        return torch.nan_to_num(weights)

    def mask_is_added(scores, mask):
        """The mask is added to the scores as 0 and 1."""
        return (scores + mask.to(scores.dtype)).softmax(dim=-1) * mask.any(-1, keepdim=True)

    def renormalised_over_the_queries(scores, mask):
        """Columns sum to one, not rows."""
        e = torch.exp(scores) * mask
        return e / e.sum(-2, keepdim=True).clamp(min=1e-30)

    def right_softmax_over_what_is_seen(scores, mask):
        """Softmax by hand, with a guard for empty rows."""
        top = scores.masked_fill(~mask, -math.inf).amax(-1, keepdim=True)
        top = torch.where(top.isinf(), 0.0, top)
        e = torch.exp(torch.where(mask, scores - top, -math.inf))
        total = e.sum(-1, keepdim=True)
        return e / torch.where(total == 0, 1.0, total)

    def right_not_a_number_means_nothing(scores, mask):
        """Only an empty row is not-a-number."""
        return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


class ScaledDotProductAttention(Answers, to="05-scaled-dot-product-attention"):
    def mask_inverted(q, k, v, mask):
        """The mask is inverted."""
        blocked = None if mask is None else ~mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked)

    def key_in_the_shape_of_its_transpose(q, k, v, mask):
        """The key is reshaped, not transposed."""
        batch, heads, keys, d_k = k.shape
        energy = q @ k.reshape(batch, heads, d_k, keys) / math.sqrt(d_k)
        if mask is None:
            return energy.softmax(-1) @ v
        energy = energy.masked_fill(~mask, float("-inf"))
        return energy.softmax(-1).nan_to_num(0.0) @ v

    def scale_d_k(q, k, v, mask):
        """Scaled twice."""
        q = q * q.size(-1) ** -0.5
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def mask_only_when_it_is_square(q, k, v, mask):
        """A causal mask in place of the one that is given."""
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None)

    def right_a_billion_below_then_wiped(q, k, v, mask):
        """-1e9, and hidden weights wiped afterwards."""
        scores = torch.einsum("bhqd,bhkd->bhqk", q / math.sqrt(q.shape[-1]), k)
        if mask is None:
            mask = torch.ones_like(scores, dtype=torch.bool)
        weights = scores.masked_fill(mask == 0, -1e9).softmax(-1) * mask
        return torch.einsum("bhqk,bhkv->bhqv", weights, v)

    def right_the_kernel_of_torch(query, key, value, allowed):
        """Torch's kernel has the same sense of a mask."""
        return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)


class PaddedAttention(Answers, to="05-padded-attention"):
    def mask_after_softmax(query, key, value, ids):
        """Padding still takes part in softmax."""
        value = value * (ids != 0)[:, None, :, None]
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / query.shape[-1] ** 0.5
        return torch.einsum("bhqk,bhkv->bhqv", scores.softmax(-1), value)

    def trimmed_to_the_longest(query, key, value, tokens):
        """Shorter sentences keep their padding."""
        n = (tokens != 0).sum(dim=1).max()
        return F.scaled_dot_product_attention(query, key[:, :, :n], value[:, :, :n])

    def padding_does_not_ask(query, key, value, tokens):
        """The mask lies on the queries."""
        scores = query @ key.mT / math.sqrt(key.size(-1))
        keep = tokens.ne(0)[:, None, :, None]
        return torch.where(keep, scores, -1e30).softmax(-1) @ value

    def padding_is_one(Q, K, V, ids):
        """Word 1 is hidden in place of word 0."""
        keep = rearrange(ids != 1, "b k -> b 1 1 k")
        return F.scaled_dot_product_attention(Q, K, V, keep)

    def right_padding_cut_out_of_each_sentence(query, key, value, ids):
        """Each sentence without its padding."""
        out = []
        for q, k, v, words in zip(query, key, value, ids, strict=True):
            real = words != 0
            k, v = k[:, real], v[:, real]
            out.append(torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1) @ v)
        return torch.stack(out)


class SplitHeads(Answers, to="06-split-heads"):
    def split_view(projected, num_heads):
        """Reshaped across the words, no transpose."""
        B, T, C = projected.shape
        return projected.view(B, num_heads, T, C // num_heads)

    def split_interleaved(x, h):
        """A head takes every num_heads-th feature."""
        return rearrange(x, "b s (d h) -> b h s d", h=h)

    def pieces_of_the_features(x, n_head):
        """Pieces as wide as there are heads."""
        return torch.stack(torch.split(x, n_head, dim=-1), dim=1)

    def sentence_in_pieces(x, heads):
        """The sentence is cut in place of the features."""
        batch, _, width = x.shape
        return (
            torch.cat(x.chunk(heads, dim=1), dim=-1).view(batch, -1, heads, width).transpose(1, 2)
        )

    def heads_stay_behind_the_words(x, n):
        """The heads stay on the third axis."""
        return x.unflatten(-1, (n, -1))

    def right_heads_stacked_from_chunks(x, n):
        """Consecutive features, stacked as heads."""
        return torch.stack(x.chunk(n, dim=-1), dim=1)


class MergeHeads(Answers, to="06-merge-heads"):
    def merge_no_transpose(heads):
        """Merged without moving the heads back."""
        return heads.reshape(heads.size(0), heads.size(2), -1)

    def features_of_all_heads_side_by_side(heads):
        """The heads are interleaved."""
        return heads.permute(0, 2, 3, 1).flatten(start_dim=2)

    def heads_vote(heads):
        """Averaged in place of concatenated."""
        return heads.mean(dim=1)

    def glued_from_the_last(heads):
        """The heads are in reversed order."""
        pieces = [heads[:, h] for h in range(heads.shape[1])]
        return torch.cat(pieces[::-1], dim=-1)

    def right_heads_in_a_row(heads):
        """The heads concatenated in order."""
        return torch.cat(heads.unbind(dim=1), dim=-1)


class MultiHeadAttention(Answers, to="06-multi-head-attention"):
    def scale_d_model(query, memory, w_q, w_k, w_v, w_o, num_heads):
        """The root of d_model, not of d_k."""
        q, k, v = _cut(query @ w_q.T, num_heads), _cut(memory @ w_k.T, num_heads), memory @ w_v.T
        scores = q @ k.mT / math.sqrt(query.size(-1))
        return _glue(scores.softmax(-1) @ _cut(v, num_heads)) @ w_o.T

    def mha_with_concatenated_heads(x, y, Wq, Wk, Wv, Wo, h):
        """No output projection."""
        q, k, v = (
            rearrange(F.linear(z, W), "b s (h d) -> b h s d", h=h)
            for z, W in ((x, Wq), (y, Wk), (y, Wv))
        )
        return rearrange(F.scaled_dot_product_attention(q, k, v), "b h s d -> b s (h d)")

    def cross_memory_unused(x, context, q_proj, k_proj, v_proj, o_proj, n):
        """Keys and values from the query."""
        q, k, v = (_cut(F.linear(x, p), n) for p in (q_proj, k_proj, v_proj))
        return F.linear(_glue(F.scaled_dot_product_attention(q, k, v)), o_proj)

    def mha_copied_line(query, memory, w_q, w_k, w_v, w_o, heads):
        """Values are projected by the keys' matrix."""
        queries = torch.stack((query @ w_q.t()).chunk(heads, -1))
        keys = torch.stack((memory @ w_k.t()).chunk(heads, -1))
        values = torch.stack((memory @ w_k.t()).chunk(heads, -1))
        mixed = F.scaled_dot_product_attention(queries, keys, values)
        return torch.cat(list(mixed), dim=-1) @ w_o.t()

    def mha_mixed_by_the_matrix(query, memory, w_q, w_k, w_v, w_o, heads):
        """W_o is not transposed."""
        out = []
        for wq, wk, wv in zip(w_q.chunk(heads), w_k.chunk(heads), w_v.chunk(heads), strict=True):
            q, k, v = query @ wq.T, memory @ wk.T, memory @ wv.T
            out.append(torch.softmax(q @ k.mT / wq.size(0) ** 0.5, dim=-1) @ v)
        return torch.cat(out, dim=-1) @ w_o

    def mha_in_which_heads_meet(query, memory, w_q, w_k, w_v, w_o, heads):
        """Keys are summed over all heads."""
        q = (query @ w_q.T).unflatten(-1, (heads, -1))
        k = (memory @ w_k.T).unflatten(-1, (heads, -1))
        v = (memory @ w_v.T).unflatten(-1, (heads, -1))
        a = torch.einsum("bqhd,bkgd->bhqk", q, k) / q.size(-1) ** 0.5
        return torch.einsum("bhqk,bkhd->bqhd", a.softmax(-1), v).flatten(2) @ w_o.T

    def right_mha_head_by_head(query, memory, w_q, w_k, w_v, w_o, num_heads):
        """Each head adds its share of the output."""
        answer = torch.zeros_like(query)
        matrices = (w_q.chunk(num_heads), w_k.chunk(num_heads), w_v.chunk(num_heads))
        for wq, wk, wv, wo in zip(*matrices, w_o.chunk(num_heads, dim=1), strict=True):
            scores = (query @ wq.T) @ (memory @ wk.T).mT
            answer = answer + torch.softmax(scores / wq.size(0) ** 0.5, -1) @ (memory @ wv.T) @ wo.T
        return answer

    def right_mha_in_einsums(x, y, w_q, w_k, w_v, w_o, h):
        """The heads' matrices with an axis of their own."""
        q, k, v = (rearrange(w, "(h d) m -> h d m", h=h) for w in (w_q, w_k, w_v))
        logits = torch.einsum("bqm,hdm,hdn,bkn->bhqk", x, q, k, y) / math.sqrt(q.size(1))
        mixed = torch.einsum("bhqk,bkm,hvm->bqhv", logits.softmax(-1), y, v)
        return mixed.flatten(2) @ w_o.mT


class LayerNorm(Answers, to="07-layer-norm"):
    def ln_unbiased(x, gamma, beta):
        """Divided by d_model - 1."""
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True)
        return gamma * (x - mean) * torch.rsqrt(var + 1e-5) + beta

    def norm_with_eps_beside_the_root(x, a_2, b_2):
        """Eps is added outside the root."""
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True, correction=0)
        return a_2 * (x - mean) / (std + 1e-5) + b_2

    def ln_batch(x, weight, bias):
        """Statistics over the first axis."""
        var, mu = torch.var_mean(x, dim=0, unbiased=False, keepdim=True)
        return (x - mu) / (var + 1e-5).sqrt() * weight + bias

    def norm_by_the_variance(x, g, b):
        """Divided by the variance without a root."""
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-5) * g + b

    def norm_with_the_keras_eps(x, gamma, beta):
        """An eps of 1e-3."""
        return F.layer_norm(x, x.shape[-1:], gamma, beta, eps=1e-3)

    def norm_then_shift_then_scale(x, weight, bias):
        """The bias is scaled as well."""
        return (F.layer_norm(x, [x.size(-1)]) + bias) * weight

    def norm_of_fixed_statistics(x, w, b):
        """No gradient through mean and variance."""
        with torch.no_grad():
            mu = x.mean(-1, keepdim=True)
            sigma = ((x - mu) ** 2).mean(-1, keepdim=True).add(1e-5).sqrt()
        return (x - mu) / sigma * w + b

    def right_layer_norm_from_var_mean(x, weight, bias):
        """Biased variance, eps inside the root."""
        var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        return torch.addcmul(bias, (x - mean) * (var + 1e-5).rsqrt(), weight)


class RmsNorm(Answers, to="07-rms-norm"):
    def unit_length(x, weight):
        """Divided by the length, not by the root mean square."""
        return F.normalize(x, dim=-1) * weight

    def rms_around_the_mean(x, scale):
        """The mean is taken off first."""
        x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scale

    def rms_with_one_plus_weight(x, weight):
        """One is added to the weight."""
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normed * (1.0 + weight)

    def mean_of_magnitudes(x, gain):
        """Mean of absolute values, not of squares."""
        return x / (x.abs().mean(dim=-1, keepdim=True) + 1e-5) * gain

    def rms_eps_outside(x, g):
        """Eps is added outside the root."""
        rms = torch.linalg.vector_norm(x, dim=-1, keepdim=True) / x.size(-1) ** 0.5
        return g * x / (rms + 1e-5)

    def right_rms_from_the_length(x, w):
        """A vector times itself is the sum of its squares."""
        mean_square = torch.linalg.vecdot(x, x).unsqueeze(-1) / x.shape[-1]
        return w * x * (mean_square + 1e-5) ** -0.5


class Residual(Answers, to="08-residual"):
    def norm_order(x, sublayer, norm):
        """Post-norm."""
        return norm(x + sublayer(x))

    def residual_overwritten(x, sublayer, norm):
        """The normed input is carried on."""
        x = norm(x)
        return x + sublayer(x)

    def residual_missing(x, f, norm):
        """Nothing is carried past the sublayer."""
        return f(norm(x))

    def norm_of_the_answer(x, f, ln):
        """The norm comes after the sublayer."""
        return x + ln(f(x))

    def answer_minus_input(x, layer, norm):
        """The input is taken off, not added."""
        return torch.sub(layer(norm(x)), x)

    def residual_that_is_computed(x, layer, norm):
        """Nothing is returned."""
        torch.add(x, layer(norm(x)))

    def right_residual_backwards(x, f, norm):
        """A sum in the other order."""
        return f(norm(x)).add(x)


class FeedForward(Answers, to="09-feed-forward"):
    def activation_forgotten(x, w1, b1, w2, b2):
        """No activation."""
        return F.linear(F.linear(x, w1, b1), w2, b2)

    def mlp_of_gpt(x, c_fc, b_fc, c_proj, b_proj):
        """GELU in place of ReLU."""
        return F.linear(F.gelu(F.linear(x, c_fc, b_fc)), c_proj, b_proj)

    def activation_twice(x, w_in, b_in, w_out, b_out):
        """A second ReLU on the output."""
        hidden = x @ w_in.T + b_in
        return torch.relu(hidden.clamp_min(0) @ w_out.T + b_out)

    def bias_on_top_of_relu(x, W1, b1, W2, b2):
        """The first bias is added behind ReLU."""
        h = torch.maximum(torch.einsum("bsd,fd->bsf", x, W1), torch.zeros(())) + b1
        return torch.einsum("bsf,df->bsd", h, W2) + b2

    def with_its_own_shortcut(x, w_up, b_up, w_down, b_down):
        """A residual connection of its own."""
        h = w_up @ x.mT + b_up[:, None]
        h[h < 0] = 0
        return (w_down @ h).mT + b_down + x

    def leaky_feed_forward(x, up, up_bias, down, down_bias):
        """A leaky ReLU."""
        h = torch.addmm(up_bias, x.flatten(0, 1), up.t())
        h = F.leaky_relu(h)
        return torch.addmm(down_bias, h, down.t()).view_as(x)

    def right_relu_by_where(x, w_up, b_up, w_down, b_down):
        """ReLU as a choice between x and zero."""
        h = torch.einsum("fd,bsd->bsf", w_up, x) + b_up
        h = torch.where(h > 0, h, torch.zeros_like(h))
        return torch.einsum("df,bsf->bsd", w_down, h) + b_down


class Swiglu(Answers, to="09-swiglu"):
    def gate_up_swapped(x, w1, w3, w2):
        """Gate and up have changed roles."""
        return F.linear(F.linear(x, w1) * F.silu(F.linear(x, w3)), w2)

    def gated_by_a_sigmoid(x, gate, up, down):
        """A sigmoid in place of SiLU."""
        g = torch.sigmoid(x @ gate.T)
        return (g * (x @ up.T)) @ down.T

    def gate_added(x, gate, up, down):
        """Gate and up are added, not multiplied."""
        h = F.silu(torch.einsum("...d,fd->...f", x, gate)) + torch.einsum("...d,fd->...f", x, up)
        return torch.einsum("...f,df->...d", h, down)

    def silu_of_the_product(x, gate_proj, up_proj, down_proj):
        """SiLU of the product."""
        both = (x @ gate_proj.mT).mul(x @ up_proj.mT)
        return F.silu(both) @ down_proj.mT

    def gated_gelu(x, wg, wu, wd):
        """GELU in place of SiLU."""
        return (F.gelu(x @ wg.t()) * (x @ wu.t())) @ wd.t()

    def right_gate_and_up_in_one_product(x, gate, up, down):
        """Both matrices in one product, SiLU written out."""
        g, u = F.linear(x, torch.cat([gate, up])).chunk(2, dim=-1)
        return F.linear(g * u * g.sigmoid(), down)


class Stack(Answers, to="10-stack"):
    def layers_shared(make, n):
        """One layer many times over."""
        return nn.ModuleList([make()] * n)

    def layers_in_list(build, depth):
        """A plain list, which no optimiser finds."""
        layers = []
        for _ in range(depth):
            layers.append(build())
        return layers

    def layers_cloned(factory, N):
        """All layers start from the same weights."""
        module = factory()
        return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])

    def layers_from_one_to_n(make_layer, n_layers):
        """One layer too few."""
        return nn.Sequential(*(make_layer() for _ in range(1, n_layers)))

    def right_stack_that_grows(make, depth):
        """A fresh layer each time, in a module."""
        layers = nn.Sequential()
        for i in range(depth):
            layers.add_module(str(i), make())
        return layers


class Encoder(Answers, to="10-encoder"):
    def padding_mask_missing(x, layers, norm, mask):
        """Only the first layer gets the mask."""
        out = layers[0](x, mask)
        for block in layers[1:]:
            out = block(out, None)
        return norm(out)

    def norm_after_every_layer(h, blocks, ln, mask):
        """The norm follows every layer."""
        for block in blocks:
            h = ln(block(h, mask))
        return h

    def norm_never_applied(x, layers, final_norm, pad_mask):
        """No last norm."""
        return functools.reduce(lambda h, layer: layer(h, pad_mask), layers, x)

    def each_layer_reads_the_input(x, layers, norm, mask):
        """The layers are not chained."""
        for layer in layers:
            output = layer(x, mask)
        return norm(output)

    def from_the_top_down(x, layers, norm, mask):
        """The last layer comes first."""
        stack = list(layers)
        while stack:
            x = stack.pop()(x, mask)
        return norm(x)

    def norm_never_applied_2(src, layers, norm, src_mask):
        """What the norm returns is thrown away."""
        for layer in layers:
            src = layer(src, src_mask)
        norm(src)
        return src

    def right_encoder_by_reduce(x, layers, norm, mask):
        """A chain of layers is a reduction."""
        return norm(functools.reduce(lambda h, layer: layer(h, mask), layers, x))


class CrossAttention(Answers, to="11-cross-attention"):
    def memory_asks_the_target(x, memory, attention, src_mask, tgt_mask):
        """Source and target have changed roles."""
        return attention(memory, x, x, tgt_mask)

    def cross_mask_target(x, enc_out, attn, enc_mask, dec_mask):
        """The target's mask on source keys."""
        return attn(x, enc_out, enc_out, dec_mask)

    def cross_value_target(x, memory, attend, src_mask, tgt_mask):
        """The values are the target's."""
        return attend(x, memory, x, src_mask)

    def cross_memory_unused(dec, enc, attn, src_pad, tgt_pad):
        """Self-attention, memory is not read."""
        q = k = v = dec
        return attn(q, k, v, tgt_pad)

    def cross_attention_with_a_sum(dec, enc, attn, src_pad, tgt_pad):
        """A residual connection of its own."""
        return dec + attn(dec, enc, enc, src_pad)

    def right_keys_and_values_from_the_memory(x, memory, attend, src_mask, tgt_mask):
        """The target asks, the memory answers."""
        keys = values = memory
        return attend(x, keys, values, src_mask)


class TargetMask(Answers, to="11-target-mask"):
    def target_mask_without_padding(tgt):
        """Padding is hidden as well."""
        keep = (tgt != 0).unsqueeze(-2)
        subsequent = torch.ones(1, tgt.size(-1), tgt.size(-1)).tril().bool()
        return (keep & subsequent).unsqueeze(1)

    def causal_batch_size(tgt):
        """As large as the batch, not the sentence."""
        n = len(tgt)
        return torch.ones(n, n, dtype=torch.bool).tril()[None, None]

    def causal_triu(tgt):
        """Each word sees only what follows."""
        t = tgt.size(1)
        return torch.ones(t, t).cumsum(0).le(torch.arange(1, t + 1)).view(1, 1, t, t)

    def right_causal_by_running_sum(tgt):
        """The diagonal summed along the keys, transposed."""
        n = tgt.shape[1]
        return torch.eye(n).cumsum(1).T.bool()[None, None]


class Decoder(Answers, to="11-decoder"):
    def masks_by_feel(x, memory, layers, norm, tgt_mask, src_mask):
        """The two masks have changed places."""
        for layer in layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return norm(x)

    def memory_flows_along(x, memory, layers, norm, tgt_mask, src_mask):
        """A later layer reads the target as its memory."""
        for layer in layers:
            x = memory = layer(x, memory, tgt_mask, src_mask)
        return norm(x)

    def norm_never_applied(tgt, enc, blocks, norm, tgt_mask, src_mask):
        """No last norm."""
        x = tgt
        for i in range(len(blocks)):
            x = blocks[i](x, enc, tgt_mask, src_mask)
        return x

    def first_norm_then_layers(x, mem, layers, norm, self_mask, cross_mask):
        """The norm comes first, not last."""
        x = norm(x)
        for f in layers:
            x = f(x, mem, self_mask, cross_mask)
        return x

    def right_decoder_by_recursion(x, memory, layers, norm, tgt_mask, src_mask):
        """The first layer, then the decoder of the others."""
        if len(layers) == 0:
            return norm(x)
        x = layers[0](x, memory, tgt_mask, src_mask)
        return Decoder.right_decoder_by_recursion(x, memory, layers[1:], norm, tgt_mask, src_mask)


class Transformer(Answers, to="12-transformer"):
    def target_knows_its_order(model, src, tgt, src_mask, tgt_mask):
        """No positions on the target."""
        source = model.positional_encoding(model.src_embedding(src))
        memory = model.encoder(source, src_mask=src_mask)
        out = model.decoder(model.tgt_embedding(tgt), memory, tgt_mask=tgt_mask, src_mask=src_mask)
        return model.output_projection(out)

    def embedding_shared(parts, src, tgt, src_mask, tgt_mask):
        """The source's table for the target."""
        embed = nn.Sequential(parts.src_embedding, parts.positional_encoding)
        memory = parts.encoder(embed(src), src_mask=src_mask)
        decoded = parts.decoder(embed(tgt), memory, tgt_mask=tgt_mask, src_mask=src_mask)
        return parts.output_projection(decoded)

    def padding_mask_missing(net, src, tgt, src_mask, tgt_mask):
        """The encoder sees padding."""
        pe = net.positional_encoding
        memory = net.encoder(pe(net.src_embedding(src)))
        y = net.decoder(pe(net.tgt_embedding(tgt)), memory, tgt_mask=tgt_mask, src_mask=src_mask)
        return net.output_projection(y)

    def softmax_before_loss(t, src, tgt, src_mask, tgt_mask):
        """Softmax of the logits."""
        enc = t.encoder(t.positional_encoding(t.src_embedding(src)), src_mask=src_mask)
        dec = t.positional_encoding(t.tgt_embedding(tgt))
        dec = t.decoder(dec, enc, src_mask=src_mask, tgt_mask=tgt_mask)
        return F.softmax(t.output_projection(dec), dim=-1)

    def causal_missing(t, source, target, source_mask, target_mask):
        """The decoder sees the future."""
        x, y = t.src_embedding(source), t.tgt_embedding(target)
        x, y = map(t.positional_encoding, (x, y))
        y = t.decoder(y, t.encoder(x, src_mask=source_mask), src_mask=source_mask)
        return t.output_projection(y)

    def encoder_skipped(p, src, tgt, src_mask, tgt_mask):
        """The encoder is left out."""
        memory = p.positional_encoding(p.src_embedding(src))
        queries = p.positional_encoding(p.tgt_embedding(tgt))
        out = p.decoder(queries, memory, tgt_mask=tgt_mask, src_mask=src_mask)
        return p.output_projection(out)

    def right_inside_out(t, src, tgt, src_mask, tgt_mask):
        """All parts in one expression."""
        return t.output_projection(
            t.decoder(
                t.positional_encoding(t.tgt_embedding(tgt)),
                t.encoder(t.positional_encoding(t.src_embedding(src)), src_mask=src_mask),
                tgt_mask=tgt_mask,
                src_mask=src_mask,
            )
        )


class Shift(Answers, to="13-shift"):
    def labels_not_shifted(target):
        """The input is not shifted."""
        return target, torch.where(target == 0, -100, target)

    def next_word_as_label(target):
        """The labels are shifted left, not the input right."""
        labels = F.pad(target, (-1, 1))
        return target, labels.masked_fill(labels == 0, -100)

    def rolled_by_one(target):
        """The last word comes round to the front."""
        tgt = torch.roll(target, shifts=1, dims=1)
        return tgt, target.masked_fill(target.eq(0), -100)

    def padding_is_a_word_too(target):
        """Padding keeps its label."""
        tgt = torch.zeros_like(target)
        tgt[:, 1:] = target[:, :-1]
        return tgt, target.clone()

    def ignored_where_the_input_is_zero(target):
        """The input's zeros hide the first label."""
        tgt = F.pad(target[:, :-1], (1, 0))
        labels = target.clone()
        labels[tgt == 0] = -100
        return tgt, labels

    def zero_column_in_front(target):
        """The ids have become floats."""
        start = torch.zeros(target.size(0), 1)
        decoder_in = torch.cat((start, target[:, :-1]), dim=1)
        return decoder_in, target.masked_fill(target == 0, -100)

    def starts_with_one(target):
        """The input starts with 1."""
        sos = target.new_ones((len(target), 1))
        return torch.hstack([sos, target[:, :-1]]), torch.where(target > 0, target, -100)

    def right_padded_on_the_left(target):
        """A zero on the left, one column less on the right."""
        return F.pad(target, (1, -1)), torch.where(target == 0, -100, target)


class MakeBatch(Answers, to="13-make-batch"):
    def both_sides_shifted(src, target):
        """The source is shifted as well."""

        def right(ids):
            return torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], dim=1)

        return right(src), right(target), target.masked_fill(target == 0, -100)

    def source_labels_input(src, target):
        """Labels and input have changed places."""
        decoder_input = F.pad(target, (1, -1))
        return src, target.masked_fill(target == 0, -100), decoder_input

    def all_but_last_all_but_first(src, trg):
        """No start, and one place is lost."""
        trg_in, trg_y = trg[:, :-1], trg[:, 1:]
        return src, trg_in, trg_y.masked_fill(trg_y == 0, -100)

    def minus_one_is_ignored(src, target):
        """-1 in place of -100."""
        shifted = target.roll(1, 1)
        shifted[:, 0] = 0
        return src, shifted, torch.where(target != 0, target, -1)

    def reads_the_answer(src, target):
        """The target is handed over as the source."""
        tgt = F.pad(target, (1, -1))
        return tgt, tgt, target.masked_fill(target == 0, -100)

    def right_batch_by_rolling(src, target):
        """What comes round to the front is overwritten."""
        tgt = target.roll(1, dims=1)
        tgt[:, 0] = 0
        labels = target.clone()
        labels[labels == 0] = -100
        return src, tgt, labels


class Loss(Answers, to="13-loss"):
    def averaged_over_all_places(logits, labels):
        """Places without a label are in the average."""
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return losses.mean()

    def summed_loss(logits, labels):
        """The sum, not the mean."""
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")

    def softmax_before_loss(logits, y):
        """Softmax is taken twice."""
        probs = logits.softmax(dim=-1)
        return F.cross_entropy(probs.view(-1, probs.size(-1)), y.view(-1), ignore_index=-100)

    def classes_on_the_second_axis(logits, labels):
        """Reshaped instead of transposed."""
        b, t, v = logits.shape
        return F.cross_entropy(logits.reshape(b, v, t), labels)

    def mean_of_the_sentences(logits, labels):
        """Every sentence counts the same, however short."""
        per_sentence = [F.cross_entropy(x, y) for x, y in zip(logits, labels, strict=True)]
        return sum(per_sentence) / len(per_sentence)

    def no_label_is_word_zero(logits, labels):
        """Padding counts as word 0."""
        return F.cross_entropy(rearrange(logits, "b t v -> (b t) v"), labels.clamp(min=0).flatten())

    def likelihood_without_a_log(logits, labels):
        """Probabilities without their logarithm."""
        p = torch.softmax(logits, -1)
        return F.nll_loss(p.flatten(0, 1), labels.reshape(-1))

    def surprise_in_bits(logits, labels):
        """Logarithms to base two."""
        seen = labels != -100
        logp = logits[seen].log_softmax(-1) / math.log(2)
        return -logp[torch.arange(len(logp)), labels[seen]].mean()

    def loss_shifted_once_more(lm_logits, labels):
        """Shifted again inside the loss."""
        shift_logits = lm_logits[..., :-1, :].contiguous()
        shift_labels = labels[..., 1:].contiguous()
        return F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1))

    def right_surprise_where_there_is_a_label(logits, labels):
        """Logsumexp less the right score."""
        counted = labels >= 0
        scores, words = logits[counted], labels[counted]
        right = scores.gather(-1, words[:, None]).squeeze(-1)
        return (scores.logsumexp(-1) - right).sum() / counted.sum()

    def right_cross_entropy_with_classes_second(logits, labels):
        """Classes on the second axis, as torch wants them."""
        return F.cross_entropy(rearrange(logits, "b t v -> b v t"), labels)


class EmbedStep(Answers, to="14-embed-step"):
    def decode_position_zero(new, length, table, positions):
        """Positions start at zero in every step."""
        return table[new] + positions[: new.size(1)]

    def one_place_too_early(ids, past, wte, wpe):
        """Positions start one too early."""
        start = max(past - 1, 0)
        return F.embedding(ids, wte) + wpe[start : start + ids.shape[1]]

    def one_place_too_late(ids, past, wte, wpe):
        """Positions start one too late."""
        place = torch.arange(ids.size(1)) + past + 1
        return wte[ids] + wpe[place.clamp(max=len(wpe) - 1)]

    def all_new_words_at_one_place(token_ids, n_past, emb, pos):
        """One position for all new words."""
        return emb[token_ids] + pos[n_past]

    def only_the_newest_word(token_ids, n_past, emb, pos):
        """All new words but the last are lost."""
        last = token_ids[:, -1:]
        at = n_past + token_ids.size(1) - 1
        return emb[last] + pos[at : at + 1]

    def right_step_with_looked_up_places(new, length, table, positions):
        """Places looked up by number."""
        places = torch.arange(length, length + new.size(-1))
        return F.embedding(new, table) + positions.index_select(0, places)


class RotaryAngles(Answers, to="16-rotary-angles"):
    def rotary_frequency_one(start, new, d_k):
        """Pairs are counted from one."""
        k = torch.arange(1, d_k // 2 + 1)
        i = torch.arange(start, start + new)[:, None]
        return i / 10000 ** (2 * k / d_k)

    def rotary_one_late(start, new, d_k):
        """One position too far."""
        inv_freq = 1.0 / (10000 ** (torch.arange(0, d_k, 2).float() / d_k)).double()
        t = torch.arange(start + 1, start + new + 1)
        return torch.einsum("i,j->ij", t.double(), inv_freq)

    def rotary_start_ignored(start, new, d_k):
        """Start is not used."""
        return torch.outer(torch.arange(new), 10000.0 ** (torch.arange(0, -d_k, -2) / d_k))

    def angles_for_all_features(start, new, d_k):
        """Two columns for each pair, as halves."""
        inv_freq = 10000.0 ** -(torch.arange(0, d_k, 2) / d_k)
        freqs = torch.outer(torch.arange(start, start + new), inv_freq)
        return torch.cat([freqs, freqs], dim=-1)

    def angles_with_the_base_of_llama_3(start, new, d_k):
        """Another base."""
        inv_freq = 500000.0 ** -(torch.arange(0, d_k, 2) / d_k)
        return torch.outer(torch.arange(start, start + new), inv_freq)

    def right_angles_one_by_one(start, new, d_k):
        """One number at a time."""
        rows = [
            [p / 10000 ** (2 * i / d_k) for i in range(d_k // 2)] for p in range(start, start + new)
        ]
        return torch.tensor(rows, dtype=torch.float64)


class Rotate(Answers, to="16-rotate"):
    def rotary_halves(heads, angles):
        """Pairs are halves."""

        def rotate_half(x):
            half = x.shape[-1] // 2
            return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

        emb = torch.cat((angles, angles), dim=-1)
        return heads * torch.cos(emb) + rotate_half(heads) * torch.sin(emb)

    def rotary_cat(heads, angles):
        """Angles in the order of halves."""
        emb = torch.cat((angles, angles), dim=-1)
        x = rearrange(heads, "... (pair two) -> ... pair two", two=2)
        across = rearrange(
            torch.stack((-x[..., 1], x[..., 0]), -1), "... pair two -> ... (pair two)"
        )
        return heads * torch.cos(emb) + across * torch.sin(emb)

    def rotary_clockwise(heads, angles):
        """Turned the other way."""
        z = torch.view_as_complex(heads.reshape(*heads.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(z * torch.exp(-1j * angles)).flatten(-2)

    def only_cosines(heads, angles):
        """The sines are left out."""
        return heads * angles.cos().repeat_interleave(2, -1)

    def right_rotate_by_complex_exponentials(heads, angles):
        """Complex numbers from two halves of a pair."""
        z = rearrange(heads, "b h s (pair two) -> b h s pair two", two=2)
        unit = torch.exp(1j * angles)
        turned = torch.complex(z[..., 0], z[..., 1]) * unit
        return torch.stack((turned.real, turned.imag), -1).reshape(heads.shape)


class RotaryAttention(Answers, to="16-rotary-attention"):
    def all_three_are_turned(query, key, value, turn):
        """The values are turned as well."""
        q, k, v = map(turn, (query, key, value))
        return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v

    def turned_after_the_scores(query, key, value, turn):
        """What is handed over is turned."""
        return turn(F.scaled_dot_product_attention(query, key, value))

    def key_stays_where_it_is(query, key, value, turn):
        """Only the queries are turned."""
        return F.scaled_dot_product_attention(turn(query), key, value)

    def right_attention_of_turned_heads(query, key, value, turn):
        """Written out with letters."""
        scores = torch.einsum("bhqd,bhkd->bhqk", turn(query), turn(key)) / query.shape[-1] ** 0.5
        return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), value)


class RowsForNeighbours(Answers, to="16-rows-for-neighbours"):
    def rows_woven_back(weight, num_heads):
        """The way back to halves."""
        rows, columns = weight.shape
        w = weight.view(num_heads, rows // num_heads // 2, 2, columns)
        return w.transpose(1, 2).reshape(rows, columns)

    def rows_across_heads(weight, num_heads):
        """The heads are not kept apart."""
        half = weight.shape[0] // 2
        return torch.stack([weight[:half], weight[half:]], dim=1).reshape(weight.shape)

    def columns_instead_of_rows(weight, num_heads):
        """The inputs change their order."""
        half = weight.shape[1] // 2
        return torch.stack([weight[:, :half], weight[:, half:]], dim=2).reshape(weight.shape)

    def right_rows_by_a_list(weight, num_heads):
        """An index for each row."""
        width = weight.shape[0] // num_heads
        order = [
            head * width + row
            for head in range(num_heads)
            for pair in range(width // 2)
            for row in (pair, pair + width // 2)
        ]
        return weight[order]


class ShareHeads(Answers, to="17-share-heads"):
    def kv_tiled(kv, n_heads):
        """Tiles."""
        n_rep = n_heads // kv.shape[1]
        return kv.repeat(1, n_rep, 1, 1)

    def kv_tiled_2(kv, n_heads):
        """Tiles, by cat."""
        return torch.cat([kv] * (n_heads // kv.shape[1]), dim=1)

    def kv_group_count(kv, n_heads):
        """The number of groups for their size."""
        n_kv = kv.shape[1]
        return torch.repeat_interleave(kv, n_kv, dim=1)

    def shared_by_the_last_group_too(kv, n_heads):
        """Even and odd heads, as if there were two."""
        index = torch.arange(n_heads) % 2
        return kv[:, index.clamp(max=kv.shape[1] - 1)]

    def right_index_of_the_group(kv, n_heads):
        """Each head picks the number of its group."""
        return kv[:, torch.arange(n_heads) * kv.shape[1] // n_heads]


class GroupedAttention(Answers, to="17-grouped-attention"):
    def kv_tiled(q, k, v):
        """Groups as tiles."""
        groups = rearrange(q, "b (g h) n d -> b h g n d", h=k.shape[1])
        scores = torch.einsum("bhgnd,bhsd->bhgns", groups, k) / q.shape[-1] ** 0.5
        out = torch.einsum("bhgns,bhsd->bhgnd", scores.softmax(-1), v)
        return rearrange(out, "b h g n d -> b (g h) n d")

    def scale_missing(q, k, v):
        """No root of d_k."""
        groups = rearrange(q, "b (h g) n d -> b h g n d", h=k.shape[1])
        weights = (groups @ k[:, :, None].transpose(-1, -2)).softmax(-1)
        return (weights @ v[:, :, None]).flatten(1, 2)

    def softmax_queries(q, k, v):
        """Softmax over the queries."""
        groups = rearrange(q, "b (h g) n d -> b h g n d", h=k.shape[1])
        weights = (groups @ k[:, :, None].transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-2)
        return (weights @ v[:, :, None]).flatten(1, 2)

    def right_group_by_group(q, k, v):
        """Head by head, with the floor of the paper."""
        n = q.shape[1] // k.shape[1]
        heads = [
            F.scaled_dot_product_attention(q[:, h], k[:, h // n], v[:, h // n])
            for h in range(q.shape[1])
        ]
        return torch.stack(heads, dim=1)


class AttendWithCache(Answers, to="17-attend-with-cache"):
    def rotary_after_cache(q, k, v, past_k, past_v, rope):
        """All keys turned, the kept ones again."""
        past = past_k.shape[2]
        k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        k = rope(k, 0)
        return _sdpa(rope(q, past), k, v, _lower_right(q.shape[2], k.shape[2])), k, v

    def cache_start_zero(q, k, v, past_k, past_v, rope):
        """New tokens turned from 0."""
        q, k = rope(q, 0), rope(k, 0)
        k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        return _sdpa(q, k, v, _lower_right(q.shape[2], k.shape[2])), k, v

    def rotary_values_turned(q, k, v, past_k, past_v, rope):
        """Values turned too."""
        q, k, v = (rope(x, past_k.shape[2]) for x in (q, k, v))
        k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        return _sdpa(q, k, v, _lower_right(q.shape[2], k.shape[2])), k, v

    def cache_mask_dropped(q, k, v, past_k, past_v, rope):
        """No mask with a cache."""
        past = past_k.shape[2]
        q, k = rope(q, past), rope(k, past)
        k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        shown = None if past else _lower_right(q.shape[2], k.shape[2])
        return _sdpa(q, k, v, shown), k, v

    def kv_shared_before_cache(q, k, v, past_k, past_v, rope):
        """Shared, then kept."""
        past, n = past_k.shape[2], q.shape[1] // k.shape[1]
        q, k = rope(q, past), rope(k, past)
        k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
        return _sdpa(q, k, v, _lower_right(q.shape[2], k.shape[2])), k, v

    def causal_corner(q, k, v, past_k, past_v, rope):
        """The triangle in the other corner."""
        past = past_k.shape[2]
        q, k = rope(q, past), rope(k, past)
        k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), k, v

    def new_in_front_of_the_old(q, k, v, past_k, past_v, rope):
        """The new keys stand first."""
        past = past_k.shape[2]
        q, k = rope(q, past), rope(k, past)
        k, v = torch.cat((k, past_k), 2), torch.cat((v, past_v), 2)
        return _sdpa(q, k, v, _lower_right(q.shape[2], k.shape[2])), k, v

    def right_filled_into_a_buffer(q, k, v, past_k, past_v, rope):
        """Written into memory set aside."""
        old, new = past_k.shape[2], q.shape[2]
        keys, values = (F.pad(past, (0, 0, 0, new)) for past in (past_k, past_v))
        keys[:, :, old:], values[:, :, old:] = rope(k, old), v
        return _sdpa(rope(q, old), keys, values, _lower_right(new, old + new)), keys, values


class PoolHeads(Answers, to="17-pool-heads"):
    def kv_tiled(w, n_heads, n_kv):
        """Groups as tiles."""
        return rearrange(w, "(g h d) m -> g h d m", g=n_heads // n_kv, h=n_kv).mean(0).flatten(0, 1)

    def heads_summed_in_groups(w, n_heads, n_kv):
        """A sum for a mean."""
        return rearrange(w, "(h g d) m -> h g d m", h=n_kv, g=n_heads // n_kv).sum(1).flatten(0, 1)

    def neighbouring_rows_averaged(w, n_heads, n_kv):
        """Rows for heads."""
        n = n_heads // n_kv
        return torch.stack([w[i : i + n].mean(0) for i in range(0, len(w), n)])

    def right_pooled_with_einops(w, n_heads, n_kv):
        """A sum over the groups, divided at the end."""
        heads = rearrange(w, "(h g d) m -> g h d m", h=n_kv, g=n_heads // n_kv)
        return (heads.sum(0) / len(heads)).reshape(-1, w.shape[1])


class NextLabels(Answers, to="18-next-labels"):
    def labels_not_shifted(ids, sign):
        """Each word is asked for itself."""
        seen = torch.cumsum(ids.eq(sign).int(), dim=-1).bool()
        return torch.where(seen & ids.ne(0), ids, -100)

    def gpt_labels(ids, sign):
        """The question is asked as well."""
        labels = ids.roll(-1, dims=1)
        labels[:, -1] = 0
        labels[labels == 0] = -100
        return labels

    def ignore_up_to_and_with_the_sign(ids, sign):
        """The sign asks nothing."""
        out = torch.full_like(ids, -100)
        for b, row in enumerate(ids.tolist()):
            at = row.index(sign)
            for i in range(at + 1, len(row) - 1):
                if row[i + 1] != 0:
                    out[b, i] = row[i + 1]
        return out

    def right_labels_by_a_loop(ids, sign):
        """Row by row in lists."""
        rows = []
        for row in ids.tolist():
            at = row.index(sign)
            later = [*row[1:], 0]
            rows.append([x if i >= at and x else -100 for i, x in enumerate(later)])
        return torch.tensor(rows)


class ChunkMask(Answers, to="18-chunk-mask"):
    def prompt_unmasked(words, new):
        """No causal mask."""
        return words[:, None, None].repeat(1, 1, new, 1)

    def causal_corner(words, new):
        """The corner is at the first key."""
        square = torch.tril(torch.ones(new, words.shape[-1])).bool()
        return square[None, None] & words[:, None, None]

    def left_padding_seen(words, new):
        """Padding is seen."""
        total = words.shape[-1]
        q = torch.arange(total - new, total)
        k = torch.arange(total)
        return (k[None, :] <= q[:, None]).expand(words.shape[0], 1, new, total)

    def mask_query_axis(words, new):
        """The padding lies on the query axis."""
        total = words.shape[-1]
        causal = torch.tril(torch.ones(total, total, dtype=torch.bool))[-new:]
        return causal & words[:, -new:].unsqueeze(1).unsqueeze(-1)

    def right_mask_by_positions(words, new):
        """What is hidden, turned over."""
        total = words.size(1)
        ahead = torch.triu(torch.ones(total, total), diagonal=1)[total - new :].bool()
        return ~(ahead | ~words[:, None, None, :])


class PromptLogits(Answers, to="18-prompt-logits"):
    def prompt_first_logit(logits, words):
        """The first position."""
        return logits.select(1, 0)

    def prompt_padded_right(logits, words):
        """The last position, padding or not."""
        return logits[:, logits.shape[1] - 1, :]

    def by_length(logits, words):
        """Right only where padding stands behind."""
        index = (words.long().sum(-1) - 1)[:, None, None].expand(-1, 1, logits.shape[-1])
        return logits.gather(1, index).squeeze(1)

    def mean_of_the_prompt(logits, words):
        """The mean of all words."""
        w = words[..., None].double()
        return (logits * w).sum(1) / w.sum(1)

    def right_last_word_by_flipping(logits, words):
        """Counted from the end."""
        behind = words.flip(1).int().argmax(1)
        return torch.stack(
            [row[len(row) - 1 - int(n)] for row, n in zip(logits, behind, strict=True)]
        )


class TopP(Answers, to="18-top-p"):
    def top_p_one_short(probabilities, p):
        """One word too few."""
        values, order = torch.sort(probabilities, descending=True)
        values = values.masked_fill(values.cumsum(-1) > p, 0)
        out = torch.zeros_like(values)
        out.scatter_(-1, order, values)
        return out / out.sum(-1, keepdim=True)

    def top_p_by_rank(probabilities, p):
        """Never put back."""
        values = torch.sort(probabilities, descending=True).values
        values[values.cumsum(-1) - values >= p] = 0
        return values / values.sum(-1, keepdim=True)

    def nucleus_that_does_not_sum_to_one(probabilities, p):
        """Not divided by the sum."""
        values, order = torch.sort(probabilities, descending=True)
        dropped = (values.cumsum(-1) - values) >= p
        return probabilities.masked_fill(dropped.gather(-1, order.argsort(-1)), 0)

    def everything_above_p(probabilities, p):
        """Each word against p."""
        kept = torch.where(probabilities >= p, probabilities, 0.0)
        return kept / kept.sum(dim=-1, keepdim=True)

    def right_nucleus_word_by_word(probabilities, p):
        """Two loops."""
        kept = torch.zeros_like(probabilities, dtype=torch.bool)
        for n, row in enumerate(probabilities.tolist()):
            total = 0.0
            for i in sorted(range(len(row)), key=row.__getitem__, reverse=True):
                if total >= p:
                    break
                kept[n, i] = True
                total += row[i]
        return probabilities * kept / (probabilities * kept).sum(-1, keepdim=True)


class LanguageModel(Answers, to="18-language-model"):
    def table_untied(ids, table, layers, norm):
        """The scores do not teach the table."""
        hidden = F.embedding(ids, table)
        for block in layers:
            hidden = block(hidden, causal_mask(ids.shape[1]))
        with torch.no_grad():
            head = table.clone()
        return F.linear(norm(hidden), head)

    def causal_missing(ids, table, layers, norm):
        """No causal mask."""
        h = F.embedding(ids, table)
        for layer in layers:
            h = layer(h, None)
        return F.linear(norm(h), table)

    def norm_never_applied(ids, table, layers, norm):
        """No last norm."""
        h = table[ids]
        for layer in layers:
            h = layer(h, causal_mask(ids.shape[-1]))
        return torch.einsum("bsd,vd->bsv", h, table)

    def right_a_small_llama(ids, table, layers, norm):
        """By the functions of torch."""
        hidden = F.embedding(ids, table)
        mask = causal_mask(ids.shape[1])
        for block in layers:
            hidden = block(hidden, mask)
        return F.linear(norm(hidden), table)


class RemoveHead(Answers, to="19-remove-head"):
    def ablated_as_if_it_were_w_q(weight, head, num_heads):
        """Rows, by a width of the rows."""
        w = weight.clone()
        size = w.shape[0] // num_heads
        w[head * size : (head + 1) * size, :] = 0.0
        return w

    def ablated_in_the_model_itself(weight, head, num_heads):
        """The weight that is given is changed."""
        width = weight.shape[1] // num_heads
        with torch.no_grad():
            weight[:, head * width : (head + 1) * width].zero_()
        return weight

    def split_interleaved(weight, head, num_heads):
        """Features dealt to the heads in turn."""
        w = rearrange(weight, "out (d_k head) -> head out d_k", head=num_heads).clone()
        w[head] = 0
        return rearrange(w, "head out d_k -> out (d_k head)")

    def mean_ablated(weight, head, num_heads):
        """A mean in the place of zeros."""
        chunks = list(weight.chunk(num_heads, dim=1))
        chunks[head] = chunks[head].mean(1, keepdim=True).expand_as(chunks[head])
        return torch.cat(chunks, dim=1)

    def one_head_alone(weight, head, num_heads):
        """All others are removed."""
        mask = torch.zeros(num_heads, dtype=weight.dtype)
        mask[head] = 1
        return weight * mask.repeat_interleave(weight.size(1) // num_heads)

    def right_columns_times_a_mask(weight, head, num_heads):
        """Each column asks whose it is."""
        width = weight.shape[-1] // num_heads
        keep = torch.arange(weight.shape[-1]) // width != head
        return weight * keep


class Neighbours(Answers, to="19-neighbours"):
    def rows_woven_back(w, d_k):
        """The way back to halves."""
        dim1, dim2 = w.shape
        n_heads = dim1 // d_k
        return w.view(n_heads, dim1 // n_heads // 2, 2, dim2).transpose(1, 2).reshape(dim1, dim2)

    def rows_across_heads(weight, d_k):
        """The heads are not kept apart."""
        one, two = weight.chunk(2)
        return torch.stack((one, two), dim=1).flatten(0, 1)

    def rows_kept(weight, d_k):
        """Nothing changes its place."""
        return weight.reshape(-1, d_k, weight.size(-1)).reshape(weight.shape)

    def evens_then_odds_of_all_rows(weight, d_k):
        """To halves, of all heads at once."""
        return torch.cat([weight[0::2], weight[1::2]])

    def pairs_in_the_columns(weight, d_k):
        """The inputs change their order."""
        return rearrange(weight, "row (head two i) -> row (head i two)", two=2, i=d_k // 2)

    def right_paired_by_einops(weight, d_k):
        """Three axes by their names."""
        return rearrange(weight, "(h two p) d -> (h p two) d", two=2, p=d_k // 2)


class Dequantize(Answers, to="19-dequantize"):
    def nibbles_as_they_lie_in_the_bytes(scales, packed):
        """Low, high, low, high."""
        out = torch.empty(len(packed), 32, dtype=scales.dtype)
        out[:, 0::2] = (packed & 0x0F).to(scales.dtype) - 8
        out[:, 1::2] = (packed >> 4).to(scales.dtype) - 8
        return out * scales[:, None]

    def signed_nibbles(scales, packed):
        """Read with a sign."""
        signed = packed.view(torch.int8)
        q = torch.cat([(signed << 4) >> 4, signed >> 4], dim=-1)
        return scales[:, None] * q

    def eight_is_taken_off_bytes(scales, packed):
        """3 - 8 is 251."""
        q = torch.hstack([packed % 16, packed // 16]) - 8
        return torch.einsum("b,bi->bi", scales, q.double())

    def centred_on_seven_and_a_half(scales, packed):
        """Another middle."""
        q = torch.hstack([packed % 16, packed // 16]).double() - 7.5
        return q * scales[:, None]

    def the_lines_of_each_nibble_swapped(scales, packed):
        """High and low have changed names."""
        high, low = packed.int() & 15, packed.int() >> 4
        return torch.cat([low, high], 1).sub(8).mul(scales.view(-1, 1))

    def right_byte_by_byte(scales, packed):
        """One byte at a time."""
        rows = []
        for scale, row in zip(scales, packed.tolist(), strict=True):
            low, high = zip(*(reversed(divmod(byte, 16)) for byte in row), strict=True)
            rows.append(scale * (torch.tensor(low + high) - 8))
        return torch.stack(rows)


class LogitParts(Answers, to="19-logit-parts"):
    def direct_attribution_without_the_norm(parts, weight, row, eps):
        """Not divided."""
        return (parts * weight) @ row

    def every_part_through_the_norm(parts, weight, row, eps):
        """A root of its own for each part."""
        return F.rms_norm(parts, weight.shape, weight, eps) @ row

    def logit_without_minus_logit_with(parts, weight, row, eps):
        """What is lost without it."""

        def logit(stream):
            return F.rms_norm(stream, weight.shape, weight, eps) @ row

        whole = parts.sum(0)
        return torch.stack([logit(whole) - logit(whole - part) for part in parts])

    def rms_eps_outside(parts, weight, row, eps):
        """Eps is added outside the root."""
        rms = parts.sum(0).norm() / math.sqrt(parts.size(1)) + eps
        return parts @ (weight * row) / rms

    def lens_after_each_layer(parts, weight, row, eps):
        """The logit of all parts so far."""
        return F.rms_norm(torch.cumsum(parts, 0), weight.shape, weight, eps) @ row

    def right_along_one_direction(parts, weight, row, eps):
        """A dot product with one direction."""
        direction = weight * row * torch.rsqrt(parts.sum(0).pow(2).mean() + eps)
        return torch.stack([part.dot(direction) for part in parts])
