"""The two examples: the twelve numbers, and the same models at sizes that are all different."""

from twelve_lab.example.distinct_sizes import SIZES, distinct, float64
from twelve_lab.example.twelve_numbers import (
    CONFIGURATIONS,
    embedding_rows,
    following,
    labels,
    language_model,
    model,
    src,
    src_mask,
    tgt,
    tgt_mask,
    trace,
    vocabulary,
    weights,
    words,
)  # fmt: skip

__all__ = [
    "CONFIGURATIONS", "SIZES", "distinct", "embedding_rows", "float64", "following", "labels",
    "language_model", "model", "src", "src_mask", "tgt", "tgt_mask", "trace", "vocabulary",
    "weights", "words",
]  # fmt: skip
