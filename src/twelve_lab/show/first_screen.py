"""The walk on one screen: what a terminal shows first of a run of the example."""

from collections.abc import Iterator

from torch import Tensor

from twelve_lab import example
from twelve_lab.show.faces import COLUMNS, LINES
from twelve_lab.show.format import format_number
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Table
from twelve_lab.show.terminal import PLAIN, Terminal, fold, side_by_side
from twelve_lab.show.walk import heading, outcome
from twelve_lab.trace.trace import Trace
from twelve_lab.trace.traced import Traced

_ATTENTION = "Each head of the encoder weighs how much a word (left) looks at each (above)."
_QUESTION = "How likely is each word to come next? A > marks the right one."
_WEIGHTS = "encoder.layers.0.self_attention.weights"
_NUMBERS = 14  # what stands before a bar: mark, word and probability
_SHORTEST = 5  # cells of a bar


def first_screen(trace: Trace, config: dict[str, object], terminal: Terminal = PLAIN) -> str:
    """Tell a run of the example from words to predicted words, in the numbers of the trace.

    Args:
        trace: The run.
        config: Its switches, for the heading.
        terminal: What the text has to fit.
    """
    read, written = (
        " and ".join(f'"{" ".join(sentence)}"' for sentence in example.words[axis])
        for axis in ("src", "tgt")
    )
    looked_up, placed, memory, output = (
        _vectors(title, trace[name], terminal)
        for name, title in (
            ("src_embedding.vectors", "Each word read is looked up"),
            ("src_input", "Its position is added"),
            ("memory", "The encoder's memory"),
            ("decoder_output", "The decoder's output"),
        )
    )
    probabilities, loss = outcome(trace)
    width = terminal.width
    parts = [
        [*heading(config, terminal), *fold(f"Reads {read}; has written {written}.", width)],
        side_by_side([looked_up, placed], width, gap=3),
        [*fold(_ATTENTION, width), *side_by_side(_heads(trace, terminal), width, gap=3)],
        side_by_side([memory, output], width, gap=3),
        [
            *fold(_QUESTION, width),
            *side_by_side(_next_words(probabilities, terminal), width, gap=1),
            *fold(loss, width),
        ],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _vectors(title: str, entry: Traced, terminal: Terminal) -> list[str]:
    """Write one row for each word, with its face, under a title."""
    words = [word for sentence in example.words[entry.axes[1]] for word in sentence]
    stub = max(map(len, words))
    rows = [[format_number(value) for value in row] for row in entry.value.flatten(0, 1).tolist()]
    cell = max(len(text) for row in rows for text in row)
    limit = largest_magnitude(Table.of(entry))
    lines = [terminal.bold(title)]
    for word, row in zip(words, rows, strict=True):
        numbers = "".join(f" {text:>{cell}}" for text in row)
        face = f"{LINES.get(word, ''):<{COLUMNS}}"
        lines.append(f"{face} {word:<{stub}} " + terminal.shade(numbers, limit))
    return lines


def _heads(trace: Trace, terminal: Terminal) -> Iterator[list[str]]:
    """Write the weights of each head, sentence below sentence."""
    for head, weights in enumerate(trace[_WEIGHTS].value.unbind(1)):
        lines = []
        for words, matrix in zip(example.words["src"], weights.tolist(), strict=True):
            corner = f"head {head}" if not lines else ""
            lines.append(f"{corner:<6}" + "".join(f" {word:>6} " for word in words))
            for word, row in zip(words, matrix, strict=True):
                cells = (f" {format_number(share)}{terminal.level(share)}" for share in row)
                lines.append(f"{word:<6}" + "".join(cells))
        yield lines


def _next_words(probabilities: Tensor, terminal: Terminal) -> Iterator[list[str]]:
    """Write the probabilities of each position as bars, and what the model says."""
    room = terminal.width + 1  # each panel has a gap behind it, the last one's does not show
    across = next((n for n in (4, 2) if room // n > _NUMBERS + _SHORTEST), 1)
    length = max(room // across - 1 - _NUMBERS, 0)
    for sentence, labels, rows in zip(
        example.words["tgt"], example.labels.tolist(), probabilities.tolist(), strict=True
    ):
        for position, (label, row) in enumerate(zip(labels, rows, strict=True)):
            lines = [terminal.bold(" ".join(sentence[: position + 1]) + " ...")]
            for token, (word, share) in enumerate(zip(example.vocabulary, row, strict=True)):
                mark = ">" if token == label else " "
                bar = terminal.bar(share, length, lit=token == label)
                lines.append(f"{mark}{word:<5} {format_number(share)} {bar}")
            best = row.index(max(row))
            verdict = (
                "no label" if label < 0
                else "right" if label == best
                else f"not {example.vocabulary[label]}"
            )  # fmt: skip
            lines.append(f"-> {example.vocabulary[best]}, {verdict}")
            yield [f"{line:<{length + _NUMBERS}}" for line in lines]
