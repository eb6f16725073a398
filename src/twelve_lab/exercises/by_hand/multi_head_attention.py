"""By hand: multi-head attention, on paper first."""

import math

import torch

from twelve_lab.exercises.declare import notes, question
from twelve_lab.exercises.masks import attend
from twelve_lab.exercises.multi_head_attention import merge_heads, split_heads


@question(decimals=2, measures="one weight, and two heads that an output matrix mixes")
def multi_head_attention_on_paper() -> list[float]:
    """the weight of the second key for query 0 in head 0, then the two numbers of its output"""
    query = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    key = torch.tensor([[[0.0, 1.0], [math.log(3), 5.0]]])
    value = torch.tensor([[[4.0, 2.0], [8.0, 6.0]]])
    w_o = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    query, key, value = split_heads(query, 2), split_heads(key, 2), split_heads(value, 2)
    weight = attend(query, key, torch.eye(2).expand(1, 2, 2, 2))[0, 0, 0, 1]
    output = merge_heads(attend(query, key, value)) @ w_o.T
    return [weight.item(), *output[0, 0].tolist()]


_SPLIT = "split_heads(query, 2), split_heads(key, 2), split_heads(value, 2)"
notes(
    multi_head_attention_on_paper,
    {
        "These are the two heads, 7 and 4, before the output matrix: multiply them by it.": {
            "X @ w_o.T": "X"
        },
        "You used one head of width 2: head 0 reads the first feature of each row, head 1 the "
        "second.": {
            _SPLIT: "query[:, None], key[:, None], value[:, None]",
            "torch.eye(2).expand(1, 2, 2, 2)": "torch.eye(2).expand(1, 1, 2, 2)",
        },
    },
)
