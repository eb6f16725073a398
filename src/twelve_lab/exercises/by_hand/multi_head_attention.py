"""By hand: multi-head attention, on paper first."""

import math

import torch

from twelve_lab.exercises.declare import notes, question
from twelve_lab.exercises.masks import attend
from twelve_lab.exercises.multi_head_attention import merge_heads, split_heads


@question(decimals=2, measures="one weight, and two heads mixed by an output matrix")
def multi_head_attention_on_paper() -> list[float]:
    """the weight of the second key for query 0 in head 0, then the two features of the output for
    query 0
    """
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
        "These are the outputs of the two heads, 7 and 4: multiply them by the output matrix.": {
            "X @ w_o.T": "X"
        },
        "You used one head of width 2: head 0 should read the first feature of each row, and head "
        "1 should read the second.": {
            _SPLIT: "query[:, None], key[:, None], value[:, None]",
            "torch.eye(2).expand(1, 2, 2, 2)": "torch.eye(2).expand(1, 1, 2, 2)",
        },
    },
)
