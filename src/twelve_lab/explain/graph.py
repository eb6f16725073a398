"""From an element to its arithmetic over named tensors, which can be unfolded in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from twelve_lab.explain.expression import Expression, Leaf, Number, leaves, replace, slopes
from twelve_lab.explain.formulas import FORMULAS, Formula, expression_of
from twelve_lab.explain.tape import Tape

MOST = 200_000


class Graph:
    """The elements of a finished run, and the arithmetic between them."""

    def __init__(self, tape: Tape) -> None:
        """Read a tape that is complete."""
        self.tape = tape
        self.shallow = cache(self._shallow)
        self.slopes = cache(lambda cell: slopes(self.shallow(cell), tape.value))
        self._after: dict[int, list[int]] | None = None

    def operation(self, cell: int, formulas: Mapping[str, Formula] = FORMULAS) -> Expression | None:
        """Write the arithmetic of the operation that computed an element; None for an input.

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

    def _shallow(self, cell: int) -> Expression:
        """Write the arithmetic of an element over the nearest named elements."""
        tree = self.operation(cell)
        if tree is not None:
            return replace(tree, self._named)
        return Leaf(cell) if self.tape.block(cell).name else Number(self.tape.value(cell))

    def _named(self, cell: int) -> Expression:
        return Leaf(cell) if self.tape.block(cell).name else self.shallow(cell)

    def unfold(self, cell: int, depth: int) -> Expression:
        """Write the arithmetic of an element, its named operands unfolded depth - 1 times.

        Raises:
            ValueError: The arithmetic would be too long.
        """
        tree = self.shallow(cell)
        for step in range(1, depth):
            if not any(self.shallow(c) != Leaf(c) for c in leaves(tree)):
                break
            size = sum(sum(1 for _ in leaves(self.shallow(c))) for c in leaves(tree))
            if size > MOST:
                raise ValueError(
                    f"depth={depth} takes {size:,} numbers from step {step + 1} on, more than "
                    f"the {MOST:,} that are written out; explain with depth={step} or less"
                )
            tree = replace(tree, self.shallow)
        return tree

    def consumers(self, cell: int) -> list[int]:
        """List the elements of named tensors whose arithmetic contains this one."""
        if self._after is None:
            self._after = defaultdict(list)
            for block in self.tape.named.values():
                for later in range(block.start, block.start + block.values.numel()):
                    for used in dict.fromkeys(leaves(self.shallow(later))):
                        self._after[used].append(later)
        return self._after[cell]
