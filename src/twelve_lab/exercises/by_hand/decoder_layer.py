"""By hand: a decoder layer, on paper first. The layer is a task of lesson 11."""

import torch
import torch.nn.functional as F

from twelve_lab.exercises.declare import notes, question


@question(
    decimals=1,
    measures="three sums, of which the second reads the memory",
    worked="[3 + 1, 4 + 2, 6 + 3 * 1]",
)
def decoder_layer_on_paper() -> list[float]:
    """the second feature of the token 1 3 after each of the three sums; the memory is 4 2"""
    x, memory = torch.tensor([1.0, 3.0]), torch.tensor([4.0, 2.0])
    first = x + F.layer_norm(x, (2,))
    second = first + memory
    third = second + 3 * F.layer_norm(second, (2,)).relu()
    return [first[1].item(), second[1].item(), third[1].item()]


notes(
    decoder_layer_on_paper,
    {
        "You normalised the memory: it is normalised already, so its second feature is 2.": {
            "first + memory": "first + F.layer_norm(memory, (2,))"
        },
        "The values of the cross-attention come from the target: take them from the memory.": {
            "first + memory": "first + F.layer_norm(first, (2,))"
        },
        "You lost the first sum: add the memory to it.": {"first + memory": "memory"},
        "You used the first feature of the memory: the second one is 2.": [4, 8, 11],
        "Only the last number is wrong: this is the output of the feed-forward layer, so add the "
        "second sum.": [4, 6, 3],
        "Only the last number is wrong: the feed-forward layer reads the normalised sum, whose "
        "second feature is 1.": [4, 6, 24],
        "You skipped the first norm: attention reads the normalised token.": {
            "F.layer_norm(x, (2,))": "x"
        },
    },
)
