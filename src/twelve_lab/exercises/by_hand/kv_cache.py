"""By hand: attention with a KV cache, for a prompt and for one token at a time."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import attend, mask_of_new
from twelve_lab.exercises.multi_head_attention import merge_heads, split_heads
from twelve_lab.exercises.numbers import SIZES, seeded


def _cache_cases() -> Cases:
    draw = seeded()

    def case(
        batch: int, new: int, old: int, heads: int, d_k: int, d_v: int, d_model: int
    ) -> tuple[object, ...]:
        widths = (heads * d_k, heads * d_k, heads * d_v)
        return (
            draw(batch, new, d_model),
            *(draw(width, d_model) / d_model**0.5 for width in widths),
            draw(d_model, heads * d_v) / 2,
            heads,
            draw(batch, heads, old, d_k),
            draw(batch, heads, old, d_v),
        )

    return {
        "a prompt": case(2, 3, 0, 1, 2, 2, 3),
        "one step": case(2, 1, 3, 2, 2, 2, 4),
        "the next chunk of a prompt": case(1, 2, 3, 2, 3, 2, 6),
        "all sizes differ": case(
            SIZES.batch, SIZES.tgt, SIZES.src, SIZES.num_heads, SIZES.d_k, SIZES.d_v, SIZES.d_model
        ),
    }


@task(_cache_cases, measures="what is projected, what is kept, and which keys a new token sees")
def attention_with_cache(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    num_heads: int,
    keys: Tensor,
    values: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """x (batch, new, d_model), w_q and w_k (head*d_k, d_model), w_v (head*d_v, d_model), w_o
    (d_model, head*d_v), num_heads, keys (batch, head, old, d_k), values (batch, head, old, d_v) ->
    y (batch, new, d_model), keys (batch, head, all, d_k), values (batch, head, all, d_v)
    """
    query, key = split_heads(x @ w_q.T, num_heads), split_heads(x @ w_k.T, num_heads)
    value = split_heads(x @ w_v.T, num_heads)
    new, old = x.size(1), keys.size(2)
    keys = torch.cat([keys, key], dim=2)
    values = torch.cat([values, value], dim=2)
    mask = mask_of_new(new, old + new)
    context = attend(query, keys, values, mask)
    return merge_heads(context) @ w_o.T, keys, values


@solved(attention_with_cache)
def _projected_kept_attended(x, w_q, w_k, w_v, w_o, num_heads, keys, values):
    query, key, value = (
        (x @ weight.T).unflatten(-1, (num_heads, -1)).transpose(1, 2) for weight in (w_q, w_k, w_v)
    )
    old, new = keys.size(2), x.size(1)
    keys = torch.cat([keys, key], dim=2)
    values = torch.cat([values, value], dim=2)
    seen = torch.ones(new, old + new, dtype=torch.bool).tril(old)
    scores = query @ keys.mT / query.size(-1) ** 0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights @ values).transpose(1, 2).flatten(2) @ w_o.T, keys, values


_KEYS, _VALUES = "torch.cat([keys, key], dim=2)", "torch.cat([values, value], dim=2)"
_ATTEND, _MASK, _RETURN = "attend(query, keys, values, mask)", "mask = X", "return Y, keys, values"
mistake(
    attention_with_cache,
    "cache-not-read",
    "The new tokens attend to themselves alone: they must attend to the cached tokens too.",
    {_ATTEND: "attend(query, key, value, mask_of_new(new, new))"},
)
mistake(
    attention_with_cache,
    "cache-old-lost",
    "You returned only the new keys and values, so the next step has forgotten the text: return "
    "the old and the new ones.",
    {_RETURN: "return Y, key, value"},
)
mistake(
    attention_with_cache,
    "cache-not-grown",
    "You returned the cache as it was, so the next step does not see this token: return the old "
    "and the new keys and values.",
    {_RETURN: "return Y, keys[:, :, :old], values[:, :, :old]"},
)
mistake(
    attention_with_cache,
    "cache-new-first",
    "You put the new tokens before the cached ones: keep the order of the text.",
    {_KEYS: "torch.cat([key, keys], dim=2)", _VALUES: "torch.cat([value, values], dim=2)"},
)
mistake(
    attention_with_cache,
    "cache-causal-missing",
    "The new tokens see each other's future: a cache does not replace the causal mask, and only a "
    "single new token needs none.",
    {_MASK: "mask = None"},
)
again(attention_with_cache, "cache-mask-dropped", {_MASK: "mask = None if old else X"})
_EARLIER = "mask = torch.ones(new, old + new).tril(old - 1).bool()"
again(attention_with_cache, "causal-diagonal", {_MASK: _EARLIER})
# A large negative score in place of minus infinity: a row without keys weighs all keys equally.
again(attention_with_cache, "causal-diagonal",
      {_MASK: f"{_EARLIER}\nmask = mask | ~mask.any(-1, keepdim=True)",
       "context = X": "context = attend(query * mask.tril(old - 1).any(-1, keepdim=True), keys, "
       "values, mask)"})  # fmt: skip
again(attention_with_cache, "causal-triu",
      {_MASK: "mask = torch.ones(new, old + new).triu(old).bool()"})  # fmt: skip
again(attention_with_cache, "scale-d_model",
      {_ATTEND: "attend(query * (query.size(-1) / x.size(-1)) ** 0.5, keys, values, mask)"}
      )  # fmt: skip
notes(
    attention_with_cache,
    {
        "You divided by the square root of head*d_k, the size before the split: each head has d_k "
        "features.": {_ATTEND: "attend(query / num_heads ** 0.5, keys, values, mask)"},
        "The prompt is not masked: an empty cache does not mask future tokens.": {
            _MASK: "mask = X if old else None"
        },
        "Only the keys of the cache are in the right order: add the new values at the end too.": {
            _VALUES: "torch.cat([value, values], dim=2)"
        },
        "Only the values of the cache are in the right order: add the new keys at the end too.": {
            _KEYS: "torch.cat([key, keys], dim=2)"
        },
        "You cached queries instead of keys: old queries are never used again.": {
            _RETURN: "return Y, torch.cat([keys[:, :, :old], query], dim=2), values"
        },
        "You kept only one of the new tokens: keep all of them.": {
            _RETURN: "return Y, torch.cat([keys[:, :, :old], key[:, :, -1:]], dim=2), "
            "torch.cat([values[:, :, :old], value[:, :, -1:]], dim=2)"
        },
        "You returned only the last position: return the output of each new token.": {
            _RETURN: "return (Y)[:, -1:], keys, values"
        },
        "The output matrix is missing: multiply the merged heads by it.": {
            "merge_heads(context) @ w_o.T": "merge_heads(context) @ "
            "torch.eye(w_o.size(1), w_o.size(0))"
        },
    },
)  # fmt: skip


@question(decimals=2, measures="a weight, an output, and the size of a cache")
def kv_cache_on_paper() -> list[float]:
    """the weight of the new token for itself, its output, and the count of numbers in a cache of 3
    tokens, 3 layers and 4 heads of width 8
    """
    weights = torch.tensor([0.0, 0.0, math.log(2)]).softmax(0)
    output = weights @ torch.tensor([4.0, 8.0, 10.0])
    return [weights[2].item(), output.item(), 2 * 3 * 3 * 4 * 8]


notes(
    kv_cache_on_paper,
    {
        "The new token attends to itself alone: it must attend to the two cached tokens too.": [
            1, 10, 576,
        ],
        "The new token attends to the cached tokens alone: it must attend to itself too.": [
            0, 6, 576,
        ],
        "Only the last number is wrong: the cache has keys and values.": [0.5, 8, 288],
        "Only the last number is wrong: you counted one token or one layer, and there are three of "
        "each.": [0.5, 8, 192],
        "Only the last number is wrong: the new token is cached too.": [0.5, 8, 384],
        "Only the last number is wrong: each head has its own keys and values.": [0.5, 8, 144],
        "Only the last number is wrong: queries are not in the cache.": [0.5, 8, 864],
    },
)  # fmt: skip
