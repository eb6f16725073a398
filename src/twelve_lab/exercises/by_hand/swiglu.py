"""By hand: SwiGLU, on paper first."""

import math

import torch

from twelve_lab.exercises.declare import notes, question
from twelve_lab.exercises.feed_forward import swiglu


@question(decimals=2, measures="a sigmoid, a gated sum, and the size of the hidden layer")
def swiglu_on_paper() -> list[float]:
    """the sigmoid of the second gate, the output, and the d_ff at which SwiGLU with d_model 12 has
    as many weights as two matrices with d_ff 48
    """
    gate, up = torch.tensor([[0.0], [math.log(3)]]), torch.tensor([[7.0], [4.0]])
    output = swiglu(torch.ones(1, 1, 1), gate, up, torch.tensor([[1.0, 2.0]]))
    return [gate.sigmoid()[1].item(), output.item(), 2 * 48 / 3]


notes(
    swiglu_on_paper,
    {
        "Only the output is wrong: SiLU is z times the sigmoid of z, not the sigmoid alone.": [
            0.75, 9.5, 32,
        ],
        "Only the output is wrong: SiLU is z times the sigmoid of z, not z alone.": [
            0.75, 8.79, 32,
        ],
        "Only the output is wrong: apply SiLU to the gate, not to up.": [0.75, 8.63, 32],
        "Only the output is wrong: multiply the second product by the second weight of down.": [
            0.75, 3.3, 32,
        ],
        "Only the last number is wrong: SwiGLU has three matrices instead of two.": [
            0.75, 6.59, 48,
        ],
        "Only the last number is wrong: with three matrices instead of two, reduce d_ff to two "
        "thirds, not to half.": [0.75, 6.59, 24],
    },
)  # fmt: skip
