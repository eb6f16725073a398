"""The walk on one screen: the first thing that a terminal shows of an example run."""

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
from twelve_lab.show.wide import left
from twelve_lab.trace.trace import Trace
from twelve_lab.trace.traced import Traced

_TITLES = {
    "src_embedding.vectors": message("looked up"),
    "src_input": message("position added"),
    "memory": message("the encoder's memory"),
    "embedding.vectors": message("looked up"),
    "layers.0.self_attention_residual.added": message("has looked back"),
    "layers.0.feed_forward_residual.added": message("has thought, alone"),
}
_SHARE = 14  # columns before a bar: mark, word and probability
_SHORTEST = 5  # columns of a bar


def first_screen(trace: Trace, config: dict[str, object], terminal: Terminal = PLAIN) -> str:
    """Format a run of the example, from words to predicted words, in 80 columns and 22 lines.

    Args:
        trace: The run.
        config: Switches of the run, for the heading.
        terminal: Terminal to format the text for.
    """
    width = terminal.width
    if "memory" in trace:
        opening = message(
            "Reads {source}; has written {target}.", source=_quoted("src"), target=_quoted("tgt")
        )
        attention = message(
            "Each head of the encoder weighs how much a word (left) looks at each (above)."
        )
        vectors = ("src_embedding.vectors", "src_input", "memory")
        weights = "encoder.layers.0.self_attention.weights"
    else:
        opening = message("Continues {text}.", text=_quoted("seq"))
        attention = message("Each head weighs how much a word (left) looks at each (above).")
        sums = (f"layers.0.{name}_residual.added" for name in ("self_attention", "feed_forward"))
        vectors = ("embedding.vectors", *sums)
        weights = "layers.0.self_attention.weights"
    probabilities, loss = outcome(trace)
    question = message(
        "How likely is each word to come next? A > marks the right one. Loss: {loss}", loss=loss
    )
    heads = side_by_side(_heads(trace[weights].value[-1], terminal), width, gap=3)
    next_words = side_by_side(_next_words(probabilities, trace, terminal), width, gap=1)
    parts = [
        [*heading(config, terminal), *fold(opening, width)],
        _vectors([trace[name] for name in vectors], terminal),
        [*fold(attention, width), *heads],
        [*fold(question, width), *next_words],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _quoted(axis: str) -> str:
    """Quote the sentences of an axis."""
    sentences = [f'"{" ".join(sentence)}"' for sentence in example.words[axis]]
    return message("{first} and {second}", first=sentences[0], second=sentences[1])


def _vectors(entries: list[Traced], terminal: Terminal) -> list[str]:
    """Format one row for each word and its face, with the tensors side by side if they fit."""
    words = [word for sentence in example.words[entries[0].axes[1]] for word in sentence]
    stub = ["", *(f"{LINES.get(word, ''):<{COLUMNS}} {word}" for word in words)]
    panels = [_numbers(entry, terminal) for entry in entries]
    beside = side_by_side([stub, *panels], terminal.width, gap=2)
    if len(beside) == len(stub):
        return beside
    return [line for panel in panels for line in side_by_side([stub, panel], terminal.width, 2)]


def _numbers(entry: Traced, terminal: Terminal) -> list[str]:
    """Format the rows of a tensor below its title."""
    rows = [[format_number(value) for value in row] for row in entry.value.flatten(0, 1).tolist()]
    cell = max(len(text) for row in rows for text in row)
    limit = largest_magnitude(Table.of(entry))
    lines = (" ".join(f"{text:>{cell}}" for text in row) for row in rows)
    return [terminal.bold(_TITLES[entry.name]), *(terminal.shade(line, limit) for line in lines)]


def _heads(all_weights: Tensor, terminal: Terminal) -> Iterator[list[str]]:
    """Yield the formatted weights of each head for the sentence without padding."""
    words = example.words["src"][-1]
    for head, matrix in enumerate(all_weights.tolist()):
        lines = [f"head {head}" + "".join(f" {word:>6} " for word in words)]
        for word, row in zip(words, matrix, strict=True):
            cells = (f" {format_number(share)}{terminal.level(share)}" for share in row)
            lines.append(f"{word:<6}" + "".join(cells))
        yield lines


def _next_words(probabilities: Tensor, trace: Trace, terminal: Terminal) -> Iterator[list[str]]:
    """Yield the probabilities at each position as bars, with the predicted word."""
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
            yield [left(line, length + _SHARE) for line in lines]


def _verdict(token: int, label: int) -> str:
    """Format the predicted word next to the label."""
    word = example.vocabulary[token]
    if label < 0:
        return message("-> {word} not graded", word=word)
    if token == label:
        return message("-> {word}, right", word=word)
    return message("-> {word}, not {label}", word=word, label=example.vocabulary[label])
