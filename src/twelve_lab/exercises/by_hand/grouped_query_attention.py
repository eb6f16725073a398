"""By hand: grouped-query attention, where several query heads share one key-value head."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.grouped_query_attention import grouped_attention
from twelve_lab.exercises.multi_head_attention import merge_heads, split_heads
from twelve_lab.exercises.numbers import SIZES, seeded


def _grouped_cases() -> Cases:
    draw = seeded()

    def case(
        batch: int, seq: int, d_model: int, heads: int, kv_heads: int, d_k: int, d_v: int
    ) -> tuple[object, ...]:
        widths = (heads * d_k, kv_heads * d_k, kv_heads * d_v)
        return (
            draw(batch, seq, d_model),
            *(draw(width, d_model) / d_model**0.5 for width in widths),
            draw(d_model, heads * d_v) / 2,
            heads,
            kv_heads,
        )

    return {
        "four on two": case(1, 3, 4, 4, 2, 2, 2),
        "three on one": case(2, 2, 6, 3, 1, 2, 2),
        "one for each": case(2, 2, 4, 2, 2, 3, 2),
        "all sizes differ": case(SIZES.batch, SIZES.src, SIZES.d_model, 8, 2, 6, SIZES.d_v),
    }


@task(_grouped_cases, measures="two numbers of heads, and which query heads share one of keys")
def grouped_query_attention(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> Tensor:
    """x (batch, seq, d_model), w_q (head*d_k, d_model), w_k (kv_head*d_k, d_model), w_v
    (kv_head*d_v, d_model), w_o (d_model, head*d_v), num_heads, num_kv_heads -> (batch, seq,
    d_model)
    """
    query = split_heads(x @ w_q.T, num_heads)
    key = split_heads(x @ w_k.T, num_kv_heads)
    value = split_heads(x @ w_v.T, num_kv_heads)
    return merge_heads(grouped_attention(query, key, value)) @ w_o.T


@solved(grouped_query_attention)
def _grouped_by_repeating(x, w_q, w_k, w_v, w_o, num_heads, num_kv_heads):
    query = (x @ w_q.T).unflatten(-1, (num_heads, -1)).transpose(1, 2)
    key = (x @ w_k.T).unflatten(-1, (num_kv_heads, -1)).transpose(1, 2)
    value = (x @ w_v.T).unflatten(-1, (num_kv_heads, -1)).transpose(1, 2)
    group = num_heads // num_kv_heads
    key, value = (heads.repeat_interleave(group, dim=1) for heads in (key, value))
    weights = (query @ key.mT / query.size(-1) ** 0.5).softmax(-1)
    return (weights @ value).transpose(1, 2).flatten(2) @ w_o.T


_GROUPED = "grouped_attention(query, key, value)"
mistake(
    grouped_query_attention,
    "kv-first-head",
    "Every query head uses the first head of keys and values: query head h uses head h // group, "
    "where group is num_heads // num_kv_heads.",
    {_GROUPED: "grouped_attention(query, key[:, :1], value[:, :1])"},
)
_SHARED = "{}.repeat_interleave(num_heads // num_kv_heads, 1)"
_SCORES = f"query @ {_SHARED.format('key')}.mT / query.size(-1) ** 0.5"
again(grouped_query_attention, "softmax-heads",
      {_GROUPED: f"({_SCORES}).softmax(1) @ {_SHARED.format('value')}"})  # fmt: skip
again(grouped_query_attention, "scale-d_model",
      {_GROUPED: "grouped_attention(query * (query.size(-1) / x.size(-1)) ** 0.5, key, value)"}
      )  # fmt: skip
notes(
    grouped_query_attention,
    {
        "You divided by the square root of head*d_k, the size before the split: each head has d_k "
        "features.": {_GROUPED: "grouped_attention(query / num_heads ** 0.5, key, value)"},
        "You averaged the outputs of a group: concatenate the outputs of all query heads.": {
            "merge_heads(X) @ w_o.T": "merge_heads((X).unflatten(1, (num_kv_heads, -1)).mean(2, "
            "keepdim=True).expand(-1, -1, num_heads // num_kv_heads, -1, -1).flatten(1, 2)) "
            "@ w_o.T"
        },
    },
)


@question(decimals=2, measures="which head a query head uses, and what a cache stores")
def grouped_query_attention_on_paper() -> list[float]:
    """the outputs of query heads 1 and 2 of four, and the count of numbers that a token adds to the
    cache of a layer with 32 query heads on 8 of width 128
    """
    keys = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
    values = torch.tensor([[4.0, 8.0], [1.0, 9.0]])
    # Query head 1 has the query 1 in the first group, and query head 2 has 0 in the second.
    output = ((torch.tensor([[1.0], [0.0]]) * keys).softmax(-1) * values).sum(-1)
    return [*output.tolist(), 2 * 8 * 128]


notes(
    grouped_query_attention_on_paper,
    {
        "You assigned the query heads in turn: adjacent query heads share a head, so 0 and 1 "
        "use head 0.": [5, 6, 2048],
        "Only the second number is wrong: query head 2 uses head 1 of keys and values.": [
            7, 6, 2048,
        ],
        "Only the last number is wrong: the cache has keys and values.": [7, 5, 1024],
        "Only the last number is wrong: the cache has 8 heads of keys and values, not 32.": [
            7, 5, 8192,
        ],
    },
)  # fmt: skip
