"""The walk on one screen: what a terminal shows first of a run of the example."""

from collections.abc import Iterator

from torch import Tensor

from twelve_lab import example
from twelve_lab.cli.terminal import PLAIN, Terminal, fold, side_by_side
from twelve_lab.cli.walk import heading, outcome, written_by
from twelve_lab.show.faces import COLUMNS, LINES
from twelve_lab.show.format import format_number
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Table
from twelve_lab.trace.trace import Trace
from twelve_lab.trace.traced import Traced

_ATTENTION = "Each head{} weighs how much a word (left) looks at each (above)."
_QUESTION = "How likely is each word to come next? A > marks the right one."
_TITLES = {
    "src_embedding.vectors": "Each word read is looked up",
    "src_input": "Its position is added",
    "memory": "The encoder's memory",
    "decoder_output": "The decoder's output",
    "embedding.vectors": "Each word is looked up",
    "layers.0.self_attention_residual.added": "It has looked back",
    "layers.0.feed_forward_residual.added": "It has thought, alone",
}
# Two panels above the heads, the heads, and two below them.
_BOTH = (("src_embedding.vectors", "src_input"), "encoder.layers.0.self_attention.weights",
         ("memory", "decoder_output"))  # fmt: skip
_SISTER = (("embedding.vectors", "layers.0.self_attention_residual.added"),
           "layers.0.self_attention.weights",
           ("layers.0.feed_forward_residual.added", "decoder_output"))  # fmt: skip
_NUMBERS = 14  # what stands before a bar: mark, word and probability
_SHORTEST = 5  # cells of a bar


def first_screen(trace: Trace, config: dict[str, object], terminal: Terminal = PLAIN) -> str:
    """Tell a run of the example from words to predicted words, in the numbers of the trace.

    Args:
        trace: The run.
        config: Its switches, for the heading.
        terminal: What the text has to fit.
    """
    axis, _ = written_by(trace)
    read, written = (
        " and ".join(f'"{" ".join(sentence)}"' for sentence in example.words[each])
        for each in ("src", axis)
    )
    above, weights, below = _BOTH if axis == "tgt" else _SISTER
    opening = f"Reads {read}; has written {written}." if axis == "tgt" else f"Goes on from {read}."
    probabilities, loss = outcome(trace)
    width = terminal.width
    attention = _ATTENTION.format(" of the encoder" if axis == "tgt" else "")
    parts = [
        [*heading(config, terminal), *fold(opening, width)],
        side_by_side([_vectors(trace[name], terminal) for name in above], width, gap=3),
        [
            *fold(attention, width),
            *side_by_side(_heads(trace[weights].value, terminal), width, gap=3),
        ],
        side_by_side([_vectors(trace[name], terminal) for name in below], width, gap=3),
        [
            *fold(_QUESTION, width),
            *side_by_side(_next_words(probabilities, trace, terminal), width, gap=1),
            *fold(loss, width),
        ],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _vectors(entry: Traced, terminal: Terminal) -> list[str]:
    """Write one row for each word, with its face, under a title."""
    words = [word for sentence in example.words[entry.axes[1]] for word in sentence]
    stub = max(map(len, words))
    rows = [[format_number(value) for value in row] for row in entry.value.flatten(0, 1).tolist()]
    cell = max(len(text) for row in rows for text in row)
    limit = largest_magnitude(Table.of(entry))
    lines = [terminal.bold(_TITLES[entry.name])]
    for word, row in zip(words, rows, strict=True):
        numbers = "".join(f" {text:>{cell}}" for text in row)
        face = f"{LINES.get(word, ''):<{COLUMNS}}"
        lines.append(f"{face} {word:<{stub}} " + terminal.shade(numbers, limit))
    return lines


def _heads(all_weights: Tensor, terminal: Terminal) -> Iterator[list[str]]:
    """Write the weights of each head, sentence below sentence."""
    for head, weights in enumerate(all_weights.unbind(1)):
        lines = []
        for words, matrix in zip(example.words["src"], weights.tolist(), strict=True):
            corner = f"head {head}" if not lines else ""
            lines.append(f"{corner:<6}" + "".join(f" {word:>6} " for word in words))
            for word, row in zip(words, matrix, strict=True):
                cells = (f" {format_number(share)}{terminal.level(share)}" for share in row)
                lines.append(f"{word:<6}" + "".join(cells))
        yield lines


def _next_words(probabilities: Tensor, trace: Trace, terminal: Terminal) -> Iterator[list[str]]:
    """Write the probabilities of each position as bars, and what the model says."""
    room = terminal.width + 1  # each panel has a gap behind it, the last one's does not show
    across = next((n for n in (4, 2) if room // n > _NUMBERS + _SHORTEST), 1)
    length = max(room // across - 1 - _NUMBERS, 0)
    axis, wanted = written_by(trace)
    for sentence, labels, rows in zip(
        example.words[axis], wanted.tolist(), probabilities.tolist(), strict=True
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
