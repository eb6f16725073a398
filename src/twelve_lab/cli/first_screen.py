"""The walk on one screen: what a terminal shows first of a run of the example."""

from collections.abc import Iterator

from torch import Tensor

from twelve_lab import example
from twelve_lab.cli.terminal import PLAIN, Terminal, fold, side_by_side
from twelve_lab.cli.walk import heading, outcome, written_by
from twelve_lab.messages import message
from twelve_lab.show.faces import COLUMNS, LINES
from twelve_lab.show.format import format_number
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Table
from twelve_lab.trace.trace import Trace
from twelve_lab.trace.traced import Traced

_TITLES = {
    "src_embedding.vectors": message("Each word read is looked up"),
    "src_input": message("Its position is added"),
    "memory": message("The encoder's memory"),
    "decoder_output": message("The decoder's output"),
    "embedding.vectors": message("Each word is looked up"),
    "layers.0.self_attention_residual.added": message("It has looked back"),
    "layers.0.feed_forward_residual.added": message("It has thought, alone"),
}
_SHARE = 14  # columns before a bar: mark, word and probability
_SHORTEST = 5  # columns of a bar


def first_screen(trace: Trace, config: dict[str, object], terminal: Terminal = PLAIN) -> str:
    """Tell a run of the example from words to predicted words, in the numbers of the trace.

    Args:
        trace: The run.
        config: Its switches, for the heading.
        terminal: The terminal that the text is formatted for.
    """
    width = terminal.width
    if "memory" in trace:
        opening = message(
            "Reads {source}; has written {target}.", source=_quoted("src"), target=_quoted("tgt")
        )
        attention = message(
            "Each head of the encoder weighs how much a word (left) looks at each (above)."
        )
        above = ("src_embedding.vectors", "src_input")
        weights = "encoder.layers.0.self_attention.weights"
        below = ("memory", "decoder_output")
    else:
        opening = message("Goes on from {text}.", text=_quoted("seq"))
        attention = message("Each head weighs how much a word (left) looks at each (above).")
        above = ("embedding.vectors", "layers.0.self_attention_residual.added")
        weights = "layers.0.self_attention.weights"
        below = ("layers.0.feed_forward_residual.added", "decoder_output")
    question = message("How likely is each word to come next? A > marks the right one.")
    probabilities, loss = outcome(trace)
    heads = side_by_side(_heads(trace[weights].value, terminal), width, gap=3)
    next_words = side_by_side(_next_words(probabilities, trace, terminal), width, gap=1)
    parts = [
        [*heading(config, terminal), *fold(opening, width)],
        side_by_side([_vectors(trace[name], terminal) for name in above], width, gap=3),
        [*fold(attention, width), *heads],
        side_by_side([_vectors(trace[name], terminal) for name in below], width, gap=3),
        [*fold(question, width), *next_words, *fold(loss, width)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _quoted(axis: str) -> str:
    """Write the sentences of an axis in quotation marks."""
    sentences = [f'"{" ".join(sentence)}"' for sentence in example.words[axis]]
    return message("{first} and {second}", first=sentences[0], second=sentences[1])


def _vectors(entry: Traced, terminal: Terminal) -> list[str]:
    """Write one row for each word with its face, under a title."""
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
    """Write the weights of each head, one sentence below the other."""
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
    """Write the probabilities at each position as bars, and what the model predicts."""
    room = terminal.width + 1  # the gap after the last panel is not printed
    across = next((n for n in (4, 2) if room // n > _SHARE + _SHORTEST), 1)
    length = max(room // across - 1 - _SHARE, 0)
    axis, all_labels = written_by(trace)
    for sentence, labels, rows in zip(
        example.words[axis], all_labels.tolist(), probabilities.tolist(), strict=True
    ):
        for position, (label, row) in enumerate(zip(labels, rows, strict=True)):
            lines = [terminal.bold(" ".join(sentence[: position + 1]) + " ...")]
            for token, (word, share) in enumerate(zip(example.vocabulary, row, strict=True)):
                mark = ">" if token == label else " "
                bar = terminal.bar(share, length, lit=token == label)
                lines.append(f"{mark}{word:<5} {format_number(share)} {bar}")
            lines.append(_verdict(row.index(max(row)), label))
            yield [f"{line:<{length + _SHARE}}" for line in lines]


def _verdict(token: int, label: int) -> str:
    """Write the predicted word beside the label."""
    word = example.vocabulary[token]
    if label < 0:
        return message("-> {word}, no label", word=word)
    if token == label:
        return message("-> {word}, right", word=word)
    return message("-> {word}, not {label}", word=word, label=example.vocabulary[label])
