"""By hand: multi-head latent attention, whose cache holds one small vector per token."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.rotary_positions import RotaryEncoding
from twelve_lab.exercises.declare import Cases, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import attend, mask_of_new
from twelve_lab.exercises.multi_head_attention import merge_heads
from twelve_lab.exercises.numbers import SIZES, seeded

_LATENT, _ROTARY = 6, 10
# The example on the page: one cached latent, one new token, two heads of width 1.
_KEPT, _X = [[[0.0, 4.0]]], [[[math.log(3), 8.0, 1.0]]]
_W_Q, _W_DOWN = [[[0.0, 0.0, 1.0]]] * 2, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
_W_K, _W_V = [[[1.0, 0.0]], [[-1.0, 0.0]]], [[[0.0, 1.0]], [[0.0, 2.0]]]


def _on_paper() -> tuple[Tensor, ...]:
    tables = (_X, _KEPT, _W_Q, _W_DOWN, _W_K, _W_V)
    return tuple(torch.tensor(table, dtype=torch.float64) for table in tables)


def _score_cases() -> Cases:
    draw = seeded()

    def case(batch: int, heads: int, new: int, keys: int, d_k: int, d_rotary: int) -> tuple:
        shapes = ((batch, heads, new, d_k), (batch, heads, keys, d_k),
                  (batch, heads, new, d_rotary), (batch, keys, d_rotary))  # fmt: skip
        turn = RotaryEncoding(d_rotary, max_len=16).double()
        return (*(draw(*shape) for shape in shapes), turn)

    return {
        "one new token": case(1, 2, 1, 2, 1, 2),
        "nothing kept": case(2, 2, 3, 3, 4, 2),
        "all sizes differ": case(SIZES.batch, SIZES.num_heads, SIZES.tgt, SIZES.src, SIZES.d_k,
                                 _ROTARY),
    }  # fmt: skip


@task(_score_cases, measures="content and position in one score, and one scale for both")
def decoupled_scores(
    query: Tensor,
    key: Tensor,
    query_part: Tensor,
    key_part: Tensor,
    turn: Callable[[Tensor, int], Tensor],
) -> Tensor:
    """query (batch, head, new, d_k), key (batch, head, all, d_k), query_part (batch, head, new,
    d_rotary), key_part (batch, all, d_rotary), turn -> (batch, head, new, all)
    """
    start = key.size(2) - query.size(2)
    turned_query = turn(query_part, start)
    turned_key = turn(key_part.unsqueeze(1), 0)
    match = query @ key.mT + turned_query @ turned_key.mT
    return match / math.sqrt(query.size(-1) + query_part.size(-1))


_ROOT = "math.sqrt(query.size(-1) + query_part.size(-1))"
mistake(
    decoupled_scores,
    "latent-scale-without-rotary",
    "You divided by the square root of d_k alone: the query has d_k + d_rotary features, so divide "
    "by the square root of d_k + d_rotary.",
    {_ROOT: "math.sqrt(query.size(-1))"},
)
mistake(
    decoupled_scores,
    "latent-two-scales",
    "You scaled the two parts separately: each query is one concatenated vector, so divide the "
    "summed scores by the square root of d_k + d_rotary.",
    {
        "query @ key.mT + turned_query @ turned_key.mT": "query @ key.mT * math.sqrt((query.size("
        "-1) + query_part.size(-1)) / query.size(-1)) + turned_query @ turned_key.mT * math.sqrt("
        "(query.size(-1) + query_part.size(-1)) / query_part.size(-1))"
    },
)
mistake(
    decoupled_scores,
    "latent-not-rotated",
    "The rotary parts are not rotated, so the scores do not depend on the positions: rotate both "
    "parts.",
    {"turn(query_part, start)": "query_part", "turn(key_part.unsqueeze(1), 0)":
     "key_part.unsqueeze(1)"},
)  # fmt: skip
mistake(
    decoupled_scores,
    "latent-start-zero",
    "You rotated queries and keys from the same start, but the queries are the last tokens: the "
    "first key is at position 0, and the first query is at position all - new.",
    {"turn(query_part, start)": "turn(query_part, 0)"},
)
notes(
    decoupled_scores,
    {
        "Only the queries are rotated: rotate the shared keys too, starting at position 0.": {
            "turn(key_part.unsqueeze(1), 0)": "key_part.unsqueeze(1)"
        },
        "Only the keys are rotated: rotate the queries too.": {
            "turn(query_part, start)": "query_part"
        },
        "The scores lack the rotary parts: add the product of the rotated parts.": {
            "match = X + Y": "match = X"
        },
        "The scores lack the content part: add the product of query and key.": {
            "match = X + Y": "match = Y"
        },
        "The scores are not scaled: divide them by the square root of d_k + d_rotary.": {
            "match / X": "match"
        },
        "You divided by the square root of d_rotary alone: divide by the square root of d_k + "
        "d_rotary.": {
            _ROOT: "math.sqrt(query_part.size(-1))"
        },
        "You applied softmax: return the scores before softmax.": {
            "return X": "return (X).softmax(-1)"
        },
        "You concatenated content and position in one order for the queries and in the other for "
        "the keys.": {
            "match = X": "shared = turned_key.expand(-1, key.size(1), -1, -1)\n"
            "match = torch.cat([turned_query, query], -1) @ torch.cat([key, shared], -1).mT"
        },
        "You multiplied the content scores by the position scores: add them.": {
            "match = X + Y": "match = X * Y"
        },
    },
)  # fmt: skip


def _latent_cases() -> Cases:
    draw = seeded()

    def case(
        batch: int, new: int, old: int, heads: int, d_k: int, d_v: int, d_latent: int, d_model: int
    ) -> tuple:
        # Keep the scores moderate, so that softmax gives weight to several keys.
        return (
            draw(batch, new, d_model), draw(batch, old, d_latent),
            draw(heads, d_k, d_model) / d_model**0.5, draw(d_latent, d_model) / d_model**0.5,
            draw(heads, d_k, d_latent), draw(heads, d_v, d_latent),
        )  # fmt: skip

    return {
        "one kept, one new": _on_paper(),
        "nothing kept": case(2, 3, 0, 2, 2, 3, 4, 5),
        "one new token": case(2, 1, 3, 3, 2, 2, 4, 6),
        "all sizes differ": case(SIZES.batch, SIZES.tgt, SIZES.src, SIZES.num_heads, SIZES.d_k,
                                 SIZES.d_v, _LATENT, SIZES.d_model),
    }  # fmt: skip


@task(_latent_cases, measures="keys and values from the cached latents of all tokens")
def latent_attention(
    x: Tensor, kept: Tensor, w_q: Tensor, w_down: Tensor, w_k: Tensor, w_v: Tensor
) -> tuple[Tensor, Tensor]:
    """x (batch, new, d_model), kept (batch, old, d_latent), w_q (head, d_k, d_model), w_down
    (d_latent, d_model), w_k (head, d_k, d_latent), w_v (head, d_v, d_latent) -> merged (batch, new,
    head*d_v), latents (batch, all, d_latent)
    """
    latents = torch.cat([kept, x @ w_down.T], dim=1)
    query = x.unsqueeze(1) @ w_q.mT
    key = latents.unsqueeze(1) @ w_k.mT
    value = latents.unsqueeze(1) @ w_v.mT
    mask = mask_of_new(x.size(1), latents.size(1))
    return merge_heads(attend(query, key, value, mask)), latents


@solved(latent_attention)
def _expanded_after_the_cache(x, kept, w_q, w_down, w_k, w_v):
    latents = torch.cat([kept, x @ w_down.T], dim=1)
    new, total = x.size(1), latents.size(1)
    query = torch.einsum("bnm,hkm->bhnk", x, w_q)
    key = torch.einsum("btl,hkl->bhtk", latents, w_k)
    value = torch.einsum("btl,hvl->bhtv", latents, w_v)
    shown = torch.ones(new, total, dtype=torch.bool).tril(total - new)
    context = F.scaled_dot_product_attention(query, key, value, shown)
    return context.transpose(1, 2).flatten(2), latents


mistake(
    latent_attention,
    "latent-keys-cached",
    "You returned expanded keys, which take as much memory as an ordinary cache: cache the "
    "latents, and expand them again at each step.",
    {"return X, latents": "return X, merge_heads(key)"},
)
mistake(
    latent_attention,
    "latent-new-only",
    "The new tokens see one another but not the cached tokens: append the new latents to the "
    "cached ones before you expand keys and values.",
    {"mask = X": "mask = X & (torch.arange(latents.size(1)) >= kept.size(1))"},
)
mistake(
    latent_attention,
    "latent-new-first",
    "You put the new latents before the cached ones: append them, so that the latents follow the "
    "order of the sentence.",
    {"[kept, x @ w_down.T]": "[x @ w_down.T, kept]"},
)
mistake(
    latent_attention,
    "latent-one-head",
    "All heads read the same keys: expand the shared latents with a separate matrix for each head.",
    {"latents.unsqueeze(1) @ w_k.mT": "latents.unsqueeze(1) @ w_k[:1].mT"},
)
mistake(
    latent_attention,
    "latent-scale",
    "You divided the scores by the square root of d_latent: a query has d_k features, so divide by "
    "the square root of d_k, even if you multiply the query by w_k first.",
    {"query = X": "query = X * (w_k.size(1) / w_k.size(2)) ** 0.5"},
)
notes(
    latent_attention,
    {
        "You dropped the mask: a new token must not see later new tokens.": {
            "mask = X": "mask = None"
        },
        "Each new token also sees the next one: new token i should see only the cached tokens and "
        "new tokens 0 to i.": {
            "mask = X": "mask = torch.ones(x.size(1), latents.size(1)).tril(kept.size(1) + 1) > 0"
        },
        "All heads read the same values: expand the latents with a separate matrix for each "
        "head.": {
            "latents.unsqueeze(1) @ w_v.mT": "latents.unsqueeze(1) @ w_v[:1].expand_as(w_v).mT"
        },
        "You returned only the new latents: the cache must hold the latents of all tokens.": {
            "return X, latents": "return X, latents[:, kept.size(1) :]"
        },
        "You returned only the cached latents: append the new ones.": {
            "return X, latents": "return X, kept"
        },
        "You computed the values with the matrix for the keys: use w_v.": {
            "latents.unsqueeze(1) @ w_v.mT": "latents.unsqueeze(1) @ w_k.mT"
        },
        "You returned separate heads: merge them into (batch, new, head*d_v).": {
            "merge_heads(X)": "X"
        },
        "You normalised the latents. DeepSeek does so too, but this task leaves out the norm.": {
            "x @ w_down.T": "F.rms_norm(x @ w_down.T, (len(w_down),))"
        },
    },
)


@question(
    measures="two heads that read one latent, and the size of the cache",
    worked="[7, 10, 4]",
)
def latents_on_paper() -> list[float]:
    """the two features of the merged output for the new token, and the number of values in the
    cache after this token
    """
    # A single new token needs no mask, and the scale is 1.
    x, kept, w_q, w_down, w_k, w_v = _on_paper()
    latents = torch.cat([kept, x @ w_down.T], dim=1)
    key, value = (latents.unsqueeze(1) @ matrix.mT for matrix in (w_k, w_v))
    scores = x.unsqueeze(1) @ w_q.mT @ key.mT
    output = scores.softmax(-1) @ value
    return [*output.flatten().tolist(), latents.numel()]


notes(
    latents_on_paper,
    {
        "The outputs are right. The cache holds two latents of two features each, however many "
        "heads there are.": [7, 10, 8],
        "The outputs are right. The cache also holds the latent of the new token.": [7, 10, 2],
        "In head 1, the keys have the opposite sign, so the weights are three quarters and one "
        "quarter.": [7, 14, 4],
        "Head 1 doubles the values: its value matrix has the entry 2.": [7, 5, 4],
    },
)
