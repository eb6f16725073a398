"""The arithmetic of each element over named tensors, which can be unfolded in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import torch

from twelve_lab.explain.expression import Expression, Leaf, Number, leaves, replace, slopes
from twelve_lab.explain.formulas import FORMULAS, Formula, expression_of
from twelve_lab.explain.tape import Tape

# More terms take seconds and hundreds of megabytes. A LayerNorm of width 768 has 590,000.
MOST = 600_000


class Graph:
    """The elements of a finished run, and the arithmetic that connects them."""

    def __init__(self, tape: Tape) -> None:
        """Build the graph of a complete tape."""
        self.tape = tape
        self._trees = cache(self._shallow)
        self._sizes: dict[int, int] = {}
        self._dtypes: dict[int, set[torch.dtype]] = {}
        self.slopes = cache(lambda cell: slopes(self.shallow(cell), tape.value))
        self._after: dict[int, list[int]] | None = None

    def __deepcopy__(self, memo: object) -> Graph:
        """Share the graph with copies of the trace: a finished run does not change."""
        return self

    def operation(self, cell: int, formulas: Mapping[str, Formula] = FORMULAS) -> Expression | None:
        """Return the arithmetic of the operation that computed an element; None for an input.

        Args:
            cell: Cell of the element.
            formulas: Formulas of the operations that are not decomposed.
        """
        block = self.tape.block(cell)
        if block.copies is None:
            if block.made is None:
                return None
            tree = expression_of(block.made, cell - block.start, self.tape.value, formulas)
            if tree is not None:
                return tree
            block.copies = self.tape.take_apart(block.made)
        return Leaf(int(block.copies.flatten()[cell - block.start]))

    def shallow(self, cell: int) -> Expression:
        """Return the arithmetic of an element over the nearest named elements.

        Raises:
            ValueError: If the arithmetic would be too long.
        """
        try:
            return self._trees(cell)
        except (OverflowError, RecursionError):
            raise ValueError(too_long(self.tape.block(cell).name)) from None

    def _shallow(self, cell: int) -> Expression:
        tree = self.operation(cell)
        self._dtypes[cell] = {self.tape.block(cell).values.dtype}
        if tree is None:
            self._sizes[cell] = 1
            return Leaf(cell) if self.tape.block(cell).name else Number(self.tape.value(cell))
        operands = {used: self._named(used) for used in leaves(tree)}
        # Count before copying: the size may double with every operation.
        size = sum(1 if operands[c] == Leaf(c) else self._sizes[c] for c in leaves(tree))
        if size > MOST:
            raise OverflowError
        self._sizes[cell] = size
        unnamed = (c for c, operand in operands.items() if operand != Leaf(c))
        self._dtypes[cell].update(*(self._dtypes[c] for c in unnamed))
        return replace(tree, operands.__getitem__)

    def _named(self, cell: int) -> Expression:
        return Leaf(cell) if self.tape.block(cell).name else self._trees(cell)

    def unfold(self, cell: int, depth: int) -> tuple[Expression, set[torch.dtype]]:
        """Return the arithmetic of an element with its named operands unfolded depth - 1 times.

        Returns:
            The arithmetic, and the dtypes of all numbers that it computes.

        Raises:
            ValueError: If the arithmetic would be too long.
        """
        tree = self.shallow(cell)
        dtypes = set(self._dtypes[cell])
        for step in range(1, depth):
            operands = {c: self.shallow(c) for c in leaves(tree)}
            if all(operand == Leaf(c) for c, operand in operands.items()):
                break
            size = sum(self._sizes[c] for c in leaves(tree))
            if size > MOST:
                raise ValueError(
                    f"depth={depth} takes {size:,} numbers from step {step + 1} on, more than "
                    f"the {MOST:,} that are written out; explain with depth={step} or less"
                )
            tree = replace(tree, operands.__getitem__)
            dtypes.update(*(self._dtypes[c] for c in operands))
        return tree, dtypes

    def consumers(self, cell: int) -> list[int]:
        """List the elements of named tensors whose arithmetic contains this cell."""
        if self._after is None:
            self._after = defaultdict(list)
            for block in self.tape.named.values():
                for later in range(block.start, block.start + block.values.numel()):
                    for used in dict.fromkeys(leaves(self.shallow(later))):
                        self._after[used].append(later)
        return self._after[cell]


def too_long(name: str) -> str:
    """Format the error for arithmetic that is too long or too deeply nested."""
    return (
        f"{name}: the arithmetic from the nearest named tensors is too long to be written out; "
        "annotate a tensor in between"
    )
