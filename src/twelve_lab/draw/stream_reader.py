"""Read the residual stream of one token through a layer from a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from twelve_lab.draw.alt_text import index_name
from twelve_lab.messages import message
from twelve_lab.show.format import cell_text
from twelve_lab.show.table import Labels, Table, as_plain_tensor

if TYPE_CHECKING:
    from twelve_lab.trace.traced import Traced

LETTERS = "abcdefghijklmnopqrstuvw"  # names between the input x and the output y
MAX_LISTED = 3  # attended words that are listed by name
# Input of each stack, and output of its last norm.
STACKS = {"encoder": ("src_input", "memory"), "decoder": ("tgt_input", "decoder_output")}
ACROSS = "cross_attention"  # the sublayer that attends to the memory


class Column(NamedTuple):
    """The features of the token in one tensor."""

    label: str
    name: str
    values: Tensor

    @property
    def text(self) -> str:
        """Write the numbers in a row."""
        return ", ".join(map(cell_text, self.values.tolist()))


class Sublayer(NamedTuple):
    """Input and output of one sublayer, and the stream after it."""

    words: str
    looks: str  # which positions it attends to; "" for a feed-forward layer
    reads: Column | None  # output of its norm; None if it reads the stream itself
    output: Column
    sum: Column
    equation: str
    leaves: Column | None  # output of a norm after the sum, if there is one
    memory: Table | None

    @property
    def columns(self) -> list[Column]:
        """List the columns in the order of the run."""
        return [c for c in (self.reads, self.output, self.sum, self.leaves) if c]


class Stream(NamedTuple):
    """The residual stream of one token in one run."""

    heading: str
    start: Column
    sublayers: list[Sublayer]
    last: Column | None  # output of the last norm of the stack

    @property
    def columns(self) -> list[Column]:
        """List the columns in the order of the run."""
        between = [column for part in self.sublayers for column in part.columns]
        return [self.start, *between, *([self.last] if self.last else [])]

    @property
    def order(self) -> str:
        """Name the position of the norms: pre-norm or post-norm."""
        return "pre-norm" if self.sublayers[0].reads else "post-norm"

    @property
    def memory(self) -> Table | None:
        """Return the memory that the cross-attention attends to."""
        return next((part.memory for part in self.sublayers if part.memory), None)


class StreamReader:
    """Reads the stream of one token through one layer of one run."""

    def __init__(
        self, trace: Mapping[str, Traced], layer: str, batch: int, position: int, labels: Labels
    ):
        """Select the token; `labels` has words for "src" and "tgt"."""
        self.trace, self.layer, self.labels = trace, layer, labels
        self.batch, self.position = batch, position

    def read(self, sublayers: Mapping[str, str] | None, last_norm: bool) -> Stream:
        """Read the sublayers one after the other.

        Args:
            sublayers: Name of a sublayer -> its words; all of the layer, by their names, if None.
            last_norm: Whether to include the norm at the end of the stack.

        Raises:
            KeyError: A tensor of the stream is not in the run.
            ValueError: If the sentence or position does not exist, a residual sum is not input plus
                output, or the last norm has another input.
        """
        stack = self.layer.split(".")[0]
        if stack not in STACKS:
            raise KeyError(f"stream: {self.layer!r} is in none of the stacks {', '.join(STACKS)}")
        names = self._sublayers_of(self.layer)
        words = {name: name.replace("_", " ") for name in names} if sublayers is None else sublayers
        source = self._source(stack, names, next(iter(words), ""))
        here = start = self._column("x", source)
        parts: list[Sublayer] = []
        for number, (sublayer, word) in enumerate(words.items(), 1):
            letter = "y" if number == len(words) else LETTERS[number - 1]
            parts.append(self._read_sublayer(sublayer, word, letter, here))
            here = parts[-1].leaves or parts[-1].sum
        last = self._last(stack, here) if last_norm else None
        [word] = self._words(self.trace[source], [self.position])
        return Stream(word, start, parts, last)

    def _last(self, stack: str, read: Column) -> Column:
        """Read the output of the last norm, whose input must be the end of the stream."""
        name = STACKS[stack][1]
        mean, drawn = self._column("", f"{stack}.norm.mean").values, read.values.mean()
        if not torch.allclose(mean, drawn):
            raise ValueError(
                f"stream: the norm of {name} reads numbers of mean {cell_text(mean.item())}, "
                f"but {read.name} ({read.text}) has mean {cell_text(drawn.item())}"
            )
        return self._column(name, name)

    def _sublayers_of(self, layer: str) -> list[str]:
        """List the sublayers that add to the stream in a layer, in the order of the run."""
        start, end = f"{layer}.", "_residual.added"
        sums = [name.removesuffix(end) for name in self.trace if name.endswith(end)]
        found = [name.removeprefix(start) for name in sums if name.startswith(start)]
        if not found or "." in found[0]:
            known = dict.fromkeys(name.rpartition(".")[0] for name in sums)
            raise KeyError(f"stream: no layer {layer!r}; the run has {', '.join(known) or 'none'}")
        return found

    def _source(self, stack: str, found: list[str], first: str) -> str:
        """Name the input tensor of the first sublayer of the figure."""
        if first in found[1:]:
            return self._leaving(f"{self.layer}.{found[found.index(first) - 1]}")
        number = int(self.layer.split(".")[2])
        if number == 0:
            return STACKS[stack][0]
        before = f"{stack}.layers.{number - 1}"
        return self._leaving(f"{before}.{self._sublayers_of(before)[-1]}")

    def _leaving(self, path: str) -> str:
        """Return the name of the stream's tensor after a sublayer."""
        return f"{path}_residual.{'added' if self._is_pre(path) else 'norm.output'}"

    def _is_pre(self, path: str) -> bool:
        """Tell whether the layer is pre-norm."""
        norm, output = f"{path}_residual.norm.output", f"{path}.output"
        ran = [name for name in self.trace if name in (norm, output)]
        return ran == [norm, output]

    def _read_sublayer(self, sublayer: str, words: str, letter: str, x: Column) -> Sublayer:
        path = f"{self.layer}.{sublayer}"
        is_pre, term = self._is_pre(path), f"{x.label} + {words}"
        normed = self._column("norm" if is_pre else letter, f"{path}_residual.norm.output")
        output = self._column("output", f"{path}.output")
        added = self._column(letter if is_pre else term, f"{path}_residual.added")
        _check_sum(x, output, added)
        keys = self.trace["memory" if sublayer == ACROSS else x.name]
        return Sublayer(
            words,
            self._looks(path, keys),
            normed if is_pre else None,
            output,
            added,
            f"{letter} = {term}" if is_pre else term,
            None if is_pre else normed,
            self._memory(keys) if sublayer == ACROSS else None,
        )

    def _looks(self, path: str, keys: Traced) -> str:
        """List the positions to which any head gives weight."""
        name = f"{path}.weights"
        if name not in self.trace:
            return ""
        weights = as_plain_tensor(self.trace[name].value)[self.batch, :, self.position]
        seen = (weights != 0).any(0).nonzero().flatten().tolist()
        if len(seen) > MAX_LISTED:
            return message("sees {seen} of {all} words", seen=len(seen), all=weights.size(-1))
        if not seen:
            return message("sees nothing")
        return message("sees {words}", words=", ".join(self._words(keys, seen)))

    def _memory(self, entry: Traced) -> Table:
        words = self._words(entry, range(entry.value.size(1)))
        return Table.of(as_plain_tensor(entry.value)[self.batch].T, "d_model src", {"src": words})

    def _column(self, label: str, name: str) -> Column:
        values = as_plain_tensor(self.trace[name].value)
        wanted = {"batch": self.batch, "position": self.position}
        for (axis, at), size in zip(wanted.items(), values.shape, strict=False):
            if not 0 <= at < size:
                raise ValueError(f"stream: {axis} {at} is not one of the {size} of {name}")
        return Column(label, name, values[self.batch, self.position])

    def _words(self, entry: Traced, positions: Iterable[int]) -> list[str]:
        names = Table.of(entry, labels=self.labels).names_along(1, (self.batch,))
        return [index_name(entry.axes[1], names[position]) for position in positions]


def _check_sum(x: Column, output: Column, added: Column) -> None:
    """Check that a residual sum is input plus output; with dropout it is not."""
    expected = x.values + output.values
    if torch.allclose(expected, added.values):
        return
    worst = int((expected - added.values).abs().argmax())
    terms = [cell_text(column.values[worst].item()) for column in (x, output, added)]
    raise ValueError(
        f"stream: {x.name} plus {output.name} is not {added.name}: "
        f"at d_model {worst}, {terms[0]} + ({terms[1]}) is not {terms[2]}"
    )
