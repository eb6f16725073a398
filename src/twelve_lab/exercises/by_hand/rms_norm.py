"""By hand: RMSNorm, on paper first."""

import torch

from twelve_lab.exercises.declare import notes, question
from twelve_lab.exercises.normalization import rms_norm


@question(decimals=2, measures="the root of the mean square, and a learned weight")
def rms_norm_on_paper() -> list[float]:
    """RMSNorm of (1, 5, 7) with weight (1, 2, 10) and a negligible eps"""
    return rms_norm(torch.tensor([[1.0, 5, 7]]), torch.tensor([1.0, 2, 10]))[0].tolist()


notes(
    rms_norm_on_paper,
    {
        "You divided by the root of the sum of squares, 75: divide by the root of the mean "
        "square.": {
            "rms_norm(X, W)": "X / X.norm() * W"
        },
        "You divided each feature by its own absolute value: take the mean square over all three "
        "features.": [
            1, 2, 10,
        ],
        "The root mean square is right, but the weight is missing: multiply each feature by its "
        "weight.": [0.2, 1, 1.4],
    },
)  # fmt: skip
