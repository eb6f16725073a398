"""Lesson 06: mistakes in splitting into heads and merging them."""

from einops import rearrange
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import attend
from twelve_lab.exercises.numbers import SIZES, distinct_heads, seeded, twelve_heads, vectors


def _split_cases() -> Cases:
    two = twelve_heads(2)
    return {
        "1 head": (vectors(), 1),
        "3 heads": (vectors(), 3),
        "2 heads": (two.x @ two.w_q.T, 2),
        "all sizes differ": (
            seeded()(SIZES.batch, SIZES.src, SIZES.num_heads * SIZES.d_k),
            SIZES.num_heads,
        ),
    }


@task(_split_cases, measures="splitting features into heads, not sentences into parts")
def split_heads(projected: Tensor, num_heads: int) -> Tensor:
    """projected (batch, seq, head*d_k), num_heads -> (batch, head, seq, d_k)"""
    return rearrange(projected, "batch seq (head d_k) -> batch head seq d_k", head=num_heads)


_SPLIT = 'rearrange(projected, "batch seq (head d_k) -> batch head seq d_k", head=num_heads)'
mistake(
    split_heads,
    "split-view",
    "You split the heads by view alone, so a head gets parts of one word instead of a part of "
    "every word: view as (batch, seq, head, d_k), then transpose seq and head.",
    {_SPLIT: "projected.reshape(len(projected), num_heads, projected.size(1), -1)"},
)
mistake(
    split_heads,
    "split-interleaved",
    "You assigned the features to the heads in turn: each head takes adjacent features, so split "
    "the last axis as (head, d_k), not (d_k, head).",
    {_SPLIT: _SPLIT.replace("(head d_k)", "(d_k head)")},
)
notes(
    split_heads,
    {
        "Your heads have num_heads features each: num_heads is the number of heads, not their "
        "size.": {_SPLIT: _SPLIT.replace("head=", "d_k=")}
    },
)


def _merge_cases() -> Cases:
    heads = {"1 head": 1, "3 heads": 3, "2 heads": 2}
    return {
        **{name: (twelve_heads(number).value,) for name, number in heads.items()},
        "all sizes differ": (distinct_heads()[2],),
    }


@task(
    _merge_cases,
    forbidden=("rearrange", "shape"),
    measures="merging the heads of each word",
)
def merge_heads(heads: Tensor) -> Tensor:
    """heads (batch, head, query, d_v) -> (batch, query, head*d_v)"""
    return rearrange(heads, "batch head query d_v -> batch query (head d_v)")


@solved(merge_heads)
def _merge_in_one_line(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)


_MERGE = 'rearrange(heads, "batch head query d_v -> batch query (head d_v)")'
mistake(
    merge_heads,
    "merge-no-transpose",
    "You merged the heads by reshape alone, so a word gets the output of another word: transpose "
    "head and query first, then merge head and d_v.",
    {_MERGE: "heads.reshape(len(heads), heads.size(2), -1)"},
)
notes(
    merge_heads,
    {
        "You interleaved the features of the heads: keep the features of each head together, (head "
        "d_v), not (d_v head).": {_MERGE: _MERGE.replace("(head d_v)", "(d_v head)")},
        "You averaged the heads: concatenate them.": {_MERGE: "heads.mean(1)"},
        "You added the heads: concatenate them.": {_MERGE: "heads.sum(1)"},
    },
)


def _multi_head_attention_cases() -> Cases:
    twelve = {"1 head": twelve_heads(1), "3 heads": twelve_heads(3), "2 heads": twelve_heads(2)}
    draw = seeded()
    keys, values = SIZES.num_heads * SIZES.d_k, SIZES.num_heads * SIZES.d_v
    return {
        **{
            name: (at.x, at.x.clone(), at.w_q, at.w_k, at.w_v, at.w_o, at.query.size(1))
            for name, at in twelve.items()
        },
        "all sizes differ": (
            draw(SIZES.batch, SIZES.tgt, SIZES.d_model),
            draw(SIZES.batch, SIZES.src, SIZES.d_model),
            *(draw(width, SIZES.d_model) / 5 for width in (keys, keys, values)),
            draw(SIZES.d_model, values) / 5,
            SIZES.num_heads,
        ),
    }


@task(_multi_head_attention_cases, measures="the whole layer: inputs, scale and matrices")
def multi_head_attention(
    query: Tensor,
    memory: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    num_heads: int,
) -> Tensor:
    """query (batch, query, d_model), memory (batch, key, d_model), w_q and w_k (head*d_k,
    d_model), w_v (head*d_v, d_model), w_o (d_model, head*d_v), num_heads -> (batch, query,
    d_model)
    """
    queries = split_heads(query @ w_q.T, num_heads)
    keys = split_heads(memory @ w_k.T, num_heads)
    values = split_heads(memory @ w_v.T, num_heads)
    return merge_heads(attend(queries, keys, values)) @ w_o.T


@solved(multi_head_attention)
def _whole_layer(
    query: Tensor,
    memory: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    num_heads: int,
) -> Tensor:
    projected = query @ w_q.T, memory @ w_k.T, memory @ w_v.T
    asked, found, handed = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in projected)
    match = (asked @ found.transpose(-2, -1) / asked.size(-1) ** 0.5).softmax(-1)
    return (match @ handed).transpose(1, 2).flatten(2) @ w_o.T


_ATTEND = "attend(queries, keys, values)"
mistake(
    multi_head_attention,
    "softmax-heads",
    "Your softmax runs over the heads, so they compete for each pair of words: run softmax over "
    "the keys, the last axis.",
    {_ATTEND: "(queries @ keys.mT / queries.size(-1) ** 0.5).softmax(1) @ values"},
)
mistake(
    multi_head_attention,
    "scale-d_model",
    "You divided the scores by the square root of d_model: each head has d_k features, so divide "
    "by the square root of d_k.",
    {_ATTEND: "attend(queries * (queries.size(-1) / query.size(-1)) ** 0.5, keys, values)"},
)
mistake(
    multi_head_attention,
    "heads-are-features",
    "You made as many heads as there are features: make num_heads heads.",
    {f"{x} = split_heads(X, num_heads)": f"{x} = split_heads(X, query.size(-1))"
     for x in ("queries", "keys", "values")},
    step="12",
)  # fmt: skip
again(
    multi_head_attention,
    "cross-memory-unused",
    {"memory @ w_k.T": "query @ w_k.T", "memory @ w_v.T": "query @ w_v.T"},
)
again(
    multi_head_attention,
    "split-interleaved",
    {
        **{
            f"{x} = split_heads(X, N)": f"{x} = X.unflatten(-1, (-1, N)).permute(0, 3, 1, 2)"
            for x in ("queries", "keys", "values")
        },
        "merge_heads(X)": "X.permute(0, 2, 3, 1).flatten(2)",
    },
)
_MATRICES = {
    "query @ w_q.T": "query @ w_q",
    "memory @ w_k.T": "memory @ w_k",
    "memory @ w_v.T": "memory @ w_v",
}
notes(
    multi_head_attention,
    {
        "You divided by the square root of head*d_k, the size before the split: each head has d_k "
        "features.": {_ATTEND: "attend(queries / num_heads ** 0.5, keys, values)"},
        "Each head is multiplied by the keys of all heads: multiply the queries of a head by "
        "the keys of the same head.": {
            _ATTEND: "attend(queries, keys.sum(1, keepdim=True), values)"
        },
        "You split and merged the heads by view, so a head gets parts of one word: transpose "
        "seq and head after the split, and again before the merge.": {
            **{
                f"{x} = split_heads(X, N)": f"{x} = X.reshape(len(X), N, X.size(1), -1)"
                for x in ("queries", "keys", "values")
            },
            "merge_heads(X)": "X.reshape(query.size(0), query.size(1), -1)",
        },
        "You applied softmax twice, which makes the weights nearly equal: apply it once.": {
            _ATTEND: "(queries @ keys.mT / queries.size(-1) ** 0.5).softmax(-1).softmax(-1) "
            "@ values"
        },
        "You computed the keys with w_q, the matrix for the queries: use w_k.": {
            "memory @ w_k.T": "memory @ w_q.T"
        },
        "You multiplied by w_q, w_k and w_v as they are stored, (out, in): transpose them.": (
            _MATRICES
        ),
        "You multiplied by the four matrices as they are stored, (out, in): transpose them.": {
            **_MATRICES,
            "w_o.T": "w_o",
        },
    },
)


@question(measures="the four axes of scores where lengths differ")
def scores_shape() -> tuple[int, ...]:
    """the scores at the sizes of `example.distinct` -> (batch, head, query, key)"""
    return (2, 3, 4, 5)


again(scores_shape, "qk-swapped", by=lambda: (2, 3, 5, 4))
notes(
    scores_shape,
    {
        "This is the shape of the context: the scores come before the values.": (2, 3, 4, 6),
        "This is the shape of the queries, split into heads: with which words does each of them "
        "get a score?": (2, 3, 4, 8),
        "In cross-attention the target does not attend to itself: which sentence has the keys?": (
            2,
            3,
            4,
            4,
        ),
    },
)


@question(
    decimals=3,
    measures="the output as a sum over the heads",
    worked="[-1.655, -0.209 - 0.103, 0.0]",
)
def values_zeroed() -> list[float]:
    """the output of dog, three numbers, where the values of head 1 are zero"""
    at = twelve_heads(3)
    at.w_v[1] = 0
    return multi_head_attention(at.x, at.x, at.w_q, at.w_k, at.w_v, at.w_o, 3)[1, 0].tolist()


notes(
    values_zeroed,
    {
        "This is the unchanged output: head 1 still contributes.": {"at.w_v[1] = 0": "pass"},
        "You removed head 0: heads are counted from 0, so head 1 is the second.": {
            "at.w_v[1] = 0": "at.w_v[0] = 0"
        },
        "This is the part of head 1 alone: it is the part that becomes zero.": {
            "at.w_v[1] = 0": "at.w_v[[0, 2]] = 0"
        },
    },
)
