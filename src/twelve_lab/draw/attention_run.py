"""Tensors of one attention layer in a run, for figures that follow one query."""

from collections.abc import Mapping

import torch
from torch import Tensor

from twelve_lab.draw.alt_text import index_name, number_list
from twelve_lab.show.table import Labels, Table, as_plain_tensor
from twelve_lab.trace.traced import Traced


class AttentionRun:
    """The tensors of one sentence in one attention layer.

    Attributes:
        word: Name of the query.
        keys: Names of the keys.
    """

    def __init__(
        self, trace: Mapping[str, Traced], path: str, batch: int, query: int, labels: Labels | None
    ):
        """Read the attention weights, and name the query and the keys.

        Args:
            trace: The run.
            path: Name of the layer; "" if it ran alone.
            batch: Index of the sentence.
            query: Position of the query.
            labels: Names instead of indices, for query and key.

        Raises:
            ValueError: If batch or query is out of range, or the weights have unexpected axes.
        """
        self.trace, self.batch = trace, batch
        self.prefix = f"{path}." if path else ""
        table = Table.of(self.entry("weights"), labels=labels)
        if table.axes != ("batch", "head", "query", "key"):
            raise ValueError(f"weights must have axes (batch, head, query, key), got {table.sizes}")
        sentences, _, queries, _ = table.values.shape
        if not (0 <= batch < sentences and 0 <= query < queries):
            raise ValueError(
                f"batch and query must be indices of weights {table.sizes}, "
                f"got batch {batch}, query {query}"
            )
        self.word = index_name("query", table.names_along(2, (batch, 0))[query])
        self.keys = [index_name("key", name) for name in table.names_along(3, (batch, 0))]

    def entry(self, name: str) -> Traced:
        """Return a traced tensor of the layer."""
        return self.trace[self.prefix + name]

    def values(self, name: str) -> Tensor:
        """Return the slice of a layer's tensor that belongs to the sentence."""
        return as_plain_tensor(self.entry(name).value)[self.batch]

    def has(self, name: str) -> bool:
        """Return whether the layer computed a tensor."""
        return self.prefix + name in self.trace


def check_sizes(sizes: Mapping[str, int], largest: Mapping[str, int]) -> None:
    """Raise a ValueError if a size exceeds what fits on a page."""
    if any(size > largest[axis] for axis, size in sizes.items()):
        got, most = (
            ", ".join(f"{axis}={size}" for axis, size in each.items()) for each in (sizes, largest)
        )
        raise ValueError(f"too large to be drawn: sizes must be at most {most}, got {got}")


def check_same(name: str, got: Tensor, formula: str, expected: Tensor) -> None:
    """Raise a ValueError if a tensor differs from its expected values, as with dropout."""
    if got.shape != expected.shape or not torch.allclose(got, expected, atol=1e-5):
        raise ValueError(f"{name} must be {formula}, {numbers(expected)}, got {numbers(got)}")


def numbers(values: Tensor) -> str:
    """Format a vector with four decimals."""
    return number_list(values.tolist())
