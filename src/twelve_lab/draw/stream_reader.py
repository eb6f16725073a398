"""Read the residual stream of one token through one layer from the trace of a run."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from twelve_lab.draw.alt_text import index_name, number_list
from twelve_lab.messages import message
from twelve_lab.show.format import cell_text
from twelve_lab.show.table import Labels, Table, as_plain_tensor
from twelve_lab.trace.traced import Traced

LETTERS = "abcdefghijklmnopqrstuvw"  # labels between the input x and the output y
MAX_LISTED = 3  # maximum number of attended words listed by name
# Input of each stack, and output of its last norm.
STACKS = {"encoder": ("src_input", "memory"), "decoder": ("tgt_input", "decoder_output")}
ACROSS = "cross_attention"  # the sublayer that attends to the memory
END = "_residual.added"


class Column(NamedTuple):
    """The features of the token in one tensor."""

    label: str
    name: str
    values: Tensor

    @property
    def text(self) -> str:
        """Format the features as a row of numbers."""
        return number_list(self.values.tolist())


class Sublayer(NamedTuple):
    """Input and output of one sublayer, and the stream after it."""

    words: str
    looks: str  # the positions that it attends to; "" for a feed-forward layer
    reads: Column | None  # output of its pre-norm; None for post-norm
    output: Column
    sum: Column
    equation: str
    leaves: Column | None  # output of its post-norm; None for pre-norm
    memory: Table | None


class Stream(NamedTuple):
    """The residual stream of one token in one run."""

    heading: str
    start: Column
    sublayers: list[Sublayer]
    last: Column | None  # output of the last norm of the stack

    @property
    def columns(self) -> list[Column]:
        """List the columns in execution order."""
        between = (c for p in self.sublayers for c in (p.reads, p.output, p.sum, p.leaves))
        return [column for column in (self.start, *between, self.last) if column]

    @property
    def order(self) -> str:
        """Return the position of the norms: "pre-norm" or "post-norm"."""
        return "pre-norm" if self.sublayers[0].reads else "post-norm"

    @property
    def memory(self) -> Table | None:
        """Return the memory that the cross-attention attends to."""
        return next((part.memory for part in self.sublayers if part.memory), None)


class StreamReader:
    """Reader of the stream of one token through one layer of one run."""

    def __init__(
        self, trace: Mapping[str, Traced], layer: str, batch: int, position: int, labels: Labels
    ):
        """Select the token; `labels` has words for "src" and "tgt"."""
        self.trace, self.layer, self.labels = trace, layer, labels
        self.batch, self.position = batch, position

    def read(self, sublayers: Mapping[str, str] | None, last_norm: bool) -> Stream:
        """Read the sublayers in order.

        Args:
            sublayers: Sublayer name -> label; if None, all sublayers with their names as labels.
            last_norm: Whether to include the norm at the end of the stack.

        Raises:
            KeyError: If a tensor of the stream is not in the run.
            ValueError: If the sentence or position does not exist, a residual sum is not input plus
                output, or the last norm does not read the end of the stream.
        """
        stack = self.layer.split(".")[0]
        if stack not in STACKS:
            raise KeyError(f"stream: {self.layer!r} is in none of the stacks {', '.join(STACKS)}")
        ran = [name.removesuffix(END) for name in self.trace if name.endswith(END)]
        in_layer = [path for path in ran if path.rpartition(".")[0] == self.layer]
        if not in_layer:
            known = ", ".join(dict.fromkeys(path.rpartition(".")[0] for path in ran))
            raise KeyError(f"stream: no layer {self.layer!r}; the run has {known or 'none'}")
        names = [path.rpartition(".")[2] for path in in_layer]
        words = {name: name.replace("_", " ") for name in names} if sublayers is None else sublayers
        # The figure starts with the output of the preceding sublayer or the input of the stack.
        ran = [path for path in ran if path.startswith(f"{stack}.")]
        first = f"{self.layer}.{next(iter(words), '')}"
        before = ran.index(first) - 1 if first in ran else -1
        start = self._column("x", STACKS[stack][0] if before < 0 else self._leaving(ran[before]))
        x, parts = start, []
        for number, (sublayer, word) in enumerate(words.items(), 1):
            letter = "y" if number == len(words) else LETTERS[number - 1]
            parts.append(self._read_sublayer(sublayer, word, letter, x))
            x = parts[-1].leaves or parts[-1].sum
        last = self._last(stack, x) if last_norm else None
        [word] = self._words(self.trace[start.name], [self.position])
        return Stream(word, start, parts, last)

    def _last(self, stack: str, x: Column) -> Column:
        """Return the output of the last norm, whose input must be the end of the stream."""
        name = STACKS[stack][1]
        mean, drawn = self._column("", f"{stack}.norm.mean").values, x.values.mean()
        if not torch.allclose(mean, drawn):
            raise ValueError(
                f"stream: the norm of {name} reads numbers of mean {cell_text(mean.item())}, "
                f"but {x.name} ({x.text}) has mean {cell_text(drawn.item())}"
            )
        return self._column(name, name)

    def _leaving(self, path: str) -> str:
        """Return the name of the stream tensor after a sublayer."""
        return f"{path}_residual.{'added' if self._is_pre(path) else 'norm.output'}"

    def _is_pre(self, path: str) -> bool:
        """Return whether a sublayer is pre-norm."""
        norm, output = f"{path}_residual.norm.output", f"{path}.output"
        return [name for name in self.trace if name in (norm, output)] == [norm, output]

    def _read_sublayer(self, sublayer: str, words: str, letter: str, x: Column) -> Sublayer:
        path = f"{self.layer}.{sublayer}"
        is_pre, term = self._is_pre(path), f"{x.label} + {words}"
        normed = self._column("norm" if is_pre else letter, f"{path}_residual.norm.output")
        output = self._column("output", f"{path}.output")
        added = self._column(letter if is_pre else term, f"{path}{END}")
        _check_sum(x, output, added)
        keys = self.trace["memory" if sublayer == ACROSS else x.name]
        memory = None
        if sublayer == ACROSS:
            labels = {"src": self._words(keys, range(keys.value.size(1)))}
            memory = Table.of(as_plain_tensor(keys.value)[self.batch].T, "d_model src", labels)
        return Sublayer(
            words=words,
            looks=self._looks(path, keys),
            reads=normed if is_pre else None,
            output=output,
            sum=added,
            equation=f"{letter} = {term}" if is_pre else term,
            leaves=None if is_pre else normed,
            memory=memory,
        )

    def _looks(self, path: str, keys: Traced) -> str:
        """List the positions that any head attends to."""
        if f"{path}.weights" not in self.trace:
            return ""
        weights = as_plain_tensor(self.trace[f"{path}.weights"].value)[self.batch]
        seen = (weights[:, self.position] != 0).any(0).nonzero().flatten().tolist()
        if len(seen) > MAX_LISTED:
            return message("sees {seen} of {all} words", seen=len(seen), all=weights.size(-1))
        if not seen:
            return message("sees nothing")
        return message("sees {words}", words=", ".join(self._words(keys, seen)))

    def _column(self, label: str, name: str) -> Column:
        values = as_plain_tensor(self.trace[name].value)
        for axis, index, size in zip(
            ("batch", "position"), (self.batch, self.position), values.shape, strict=False
        ):
            if not 0 <= index < size:
                raise ValueError(f"stream: {axis} {index} is not one of the {size} of {name}")
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
