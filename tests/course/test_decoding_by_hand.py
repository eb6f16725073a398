"""Laws of the tasks by hand about decoding: what they must compute, by enumeration."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from twelve import causal_mask
from twelve_lab.check import TASKS
from twelve_lab.exercises.by_hand.beam_search import _model
from twelve_lab.exercises.numbers import seeded


def test_a_beam_that_drops_nothing_finds_the_best_of_all_sequences():
    end, max_new, alpha = 2, 4, 0.8
    model, prompt = _model(3, 29, end, 0.0), torch.tensor([1, 0])
    scores = {}
    for new in itertools.product(range(3), repeat=max_new):
        length = new.index(end) + 1 if end in new else max_new
        total = sum(
            model(torch.tensor([[1, 0, *new[:t]]]))[0, new[t]].item() for t in range(length)
        )
        padded = new[:length] + (end,) * (max_new - length)
        scores[padded] = total / length**alpha
    given = model, prompt, end
    ids, found = TASKS["beam_search"].right(*given, len(scores), max_new, alpha)
    expected = sorted(scores.items(), key=lambda item: -item[1])
    assert [tuple(row) for row in ids[:, 2:].tolist()] == [new for new, _ in expected]
    assert_close(found.double(), torch.tensor([score for _, score in expected]).double())
    best = max(scores.values())
    narrow = TASKS["beam_search"].right(*given, 1, max_new, alpha)[1].item()
    assert not math.isclose(narrow, best, rel_tol=1e-3)


def _middles(parts):
    """Stand for a uniform number: the middles of equal intervals, which no threshold divides."""
    return (torch.arange(parts, dtype=torch.float64) + 0.5) / parts


def test_speculative_decoding_has_the_distribution_of_the_large_model():
    """Add the probabilities of all drafts and uniform numbers: the draft model cancels."""
    q = torch.tensor([[0.5, 0.2, 0.3], [0.2, 0.6, 0.2]], dtype=torch.float64)
    p = torch.tensor([[0.1, 0.3, 0.6], [0.4, 0.2, 0.4], [0.2, 0.5, 0.3]], dtype=torch.float64)
    # The ratios are multiples of 1/30, and the sums of the rests are multiples of 1/20.
    uniform = torch.cartesian_prod(_middles(30), _middles(30), _middles(20))
    many = len(uniform)
    first = torch.zeros(3, dtype=torch.float64)
    second, new_tokens = torch.zeros(3, 3, dtype=torch.float64), 0.0
    for a, b in itertools.product(range(3), repeat=2):
        weight = q[0, a] * q[1, b] / many
        accepted, _, token = TASKS["speculative_step"].right(
            torch.tensor([[a, b]]).expand(many, 2),
            q.expand(many, 2, 3),
            p.expand(many, 3, 3),
            uniform[:, :2],
            uniform[:, 2],
        )
        new_tokens += weight * (accepted + 1).sum()
        for count, new in itertools.product(range(3), repeat=2):
            tokens = [*[a, b][:count], new][:2]
            mass = weight * ((accepted == count) & (token == new)).sum()
            first[tokens[0]] += mass
            if len(tokens) == 2:
                second[tuple(tokens)] += mass
    assert_close(first, p[0])
    # A second token exists if the first draft was accepted. Its distribution is that of p too.
    assert_close(second / second.sum(1, keepdim=True), p[1].expand(3, 3))
    # Each draft is accepted with the probability 0.6.
    assert_close(new_tokens, torch.tensor(1 + 0.6 + 0.6**2, dtype=torch.float64))


@pytest.mark.parametrize("chunks", [[1] * 9, [4, 1, 1, 3], [9], [2, 7]])
def test_rolling_cache_gives_the_attention_of_the_window_mask(chunks):
    """Decode with the cache, one query after each chunk; compare with all keys and the mask."""
    window = 4
    query, key, value = seeded()(3, 2, 2, sum(chunks), 5).unbind()
    mask = TASKS["window_mask"].right(sum(chunks), sum(chunks), window)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert_close(mask, causal_mask(sum(chunks), window=window)[0, 0])
    keys = values = torch.zeros(2, 2, window, 5, dtype=key.dtype)
    length = 0
    for chunk in chunks:
        new = slice(length, length + chunk)
        keys, held = TASKS["rolling_cache"].right(keys, key[:, :, new], length)
        values, _ = TASKS["rolling_cache"].right(values, value[:, :, new], length)
        length += chunk
        last = query[:, :, length - 1 : length]
        context = F.scaled_dot_product_attention(last, keys, values, attn_mask=(held >= 0)[None])
        assert_close(context, expected[:, :, length - 1 : length])


def test_a_text_in_any_chunks_through_a_cache_is_one_causal_pass():
    draw, heads, length = seeded(), 2, 7
    x = draw(3, length, 6)
    w_q, w_k, w_v, w_o = (draw(*shape) for shape in ((8, 6), (8, 6), (10, 6), (6, 10)))
    split = ((x @ w.T).unflatten(-1, (heads, -1)).transpose(1, 2) for w in (w_q, w_k, w_v))
    context = F.scaled_dot_product_attention(*split, is_causal=True)
    expected = context.transpose(1, 2).flatten(2) @ w_o.T
    for sizes in ([7], [3, 1, 1, 2], [1] * 7):
        keys, values, rows = draw(3, heads, 0, 4), draw(3, heads, 0, 5), []
        for chunk in x.split(sizes, dim=1):
            given = chunk, w_q, w_k, w_v, w_o, heads, keys, values
            y, keys, values = TASKS["attention_with_cache"].right(*given)
            rows.append(y)
        assert keys.shape == (3, heads, length, 4)
        assert_close(torch.cat(rows, dim=1), expected)
