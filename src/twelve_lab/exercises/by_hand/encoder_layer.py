"""By hand: an encoder layer, on paper first. The layer is a task of lesson 10."""

import torch
import torch.nn.functional as F

from twelve_lab.exercises.declare import notes, question


@question(
    decimals=1,
    measures="a norm, the sum after attention, and the sum after the feed-forward layer",
    worked="[1, 3 + 1, 4 + 3 * 1]",
)
def encoder_layer_on_paper() -> list[float]:
    """the second feature of the token 1 3: after the first norm, after the first sum, after the
    second sum
    """
    x = torch.tensor([1.0, 3.0])
    normed = F.layer_norm(x, (2,))
    first = x + normed
    second = first + 3 * F.layer_norm(first, (2,)).relu()
    return [normed[1].item(), first[1].item(), second[1].item()]


notes(
    encoder_layer_on_paper,
    {
        "Your sum starts from the normalised token: start from the token itself, 3.": {
            "x + normed": "normed + normed"
        },
        "You lost the token: add the output of each sublayer to the stream.": {
            "x + normed": "normed"
        },
        "Only the last number is wrong: this is the output of the feed-forward layer, so add the "
        "first sum.": [1, 4, 3],
        "Only the last number is wrong: the feed-forward layer reads the normalised sum, whose "
        "second feature is 1.": [1, 4, 16],
        "Only the last number is wrong: the second sum starts from the first sum, 4.": [1, 4, 6],
        "You normalised after the sums, which is post-norm.": [1, 1, 1],
        "You skipped the norm: attention reads the normalised token.": [3, 6, 9],
    },
)
