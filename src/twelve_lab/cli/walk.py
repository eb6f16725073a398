"""The walk in words and numbers, as a terminal shows it for a run of the example."""

from torch import Tensor

from twelve.training import cross_entropy
from twelve_lab import example
from twelve_lab.cli.terminal import PLAIN, Terminal, fold
from twelve_lab.course import find_step
from twelve_lab.messages import message, plural
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Table
from twelve_lab.trace.summary import axes_and_sizes
from twelve_lab.trace.trace import Trace

_ALONE = message("Each has thought about it, alone.")
# Tensors that together show the whole residual stream.
CHECKPOINTS = {
    "src_embedding.vectors":
        message("Each source id is replaced by its row of the table: twelve numbers."),
    "src_input": message("Each position adds its own pattern of sine and cosine."),
    "encoder.layers.0.self_attention_residual.added":
        message("Each source word has looked at its sentence and added what it found."),
    "encoder.layers.0.feed_forward_residual.added": _ALONE,
    "memory": message("The output of the encoder."),
    "tgt_input": message("The target so far, embedded in the same way."),
    "decoder.layers.0.self_attention_residual.added":
        message("Each target word has looked back."),
    "decoder.layers.0.cross_attention_residual.added":
        message("Each has looked across, at the source."),
    "decoder.layers.0.feed_forward_residual.added": _ALONE,
    "decoder_output": message("The output of the decoder."),
    "embedding.vectors":
        message("Each id is replaced by its row of the table: twelve numbers."),
    "layers.0.self_attention_residual.added":
        message("Each word has looked back at its sentence and added what it found."),
    "layers.0.feed_forward_residual.added": _ALONE,
    "logits": message("One score for each word of the vocabulary, at each position."),
}  # fmt: skip


def walk_text(
    trace: Trace,
    config: dict[str, object],
    terminal: Terminal = PLAIN,
    *,
    every_value: bool = False,
) -> str:
    """Format a run of the example tensor by tensor, from ids to predicted words.

    Args:
        trace: The run.
        config: Switches of the run, for the heading.
        terminal: Terminal to format the text for.
        every_value: Whether to print the values of every tensor, not only those of the checkpoints.
    """
    lines = [*heading(config, terminal), "", *_ids(trace, terminal)]
    step = ""
    for name, entry in trace.items():
        if entry.step != step:
            step = entry.step
            lines += ["", terminal.bold(f"{step} {find_step(step).title}")]
        lines += fold(f"  {name}  ({axes_and_sizes(entry)})", terminal.width)
        if name in CHECKPOINTS:
            lines += fold(f"    {CHECKPOINTS[name]}", terminal.width)
        if every_value or name in CHECKPOINTS:
            lines += _table(entry.value, " ".join(entry.axes), terminal)
    return "\n".join([*lines, "", *_ending(trace, terminal)])


def heading(config: dict[str, object], terminal: Terminal) -> list[str]:
    """Format the title and the switches of a run.

    Args:
        config: The switches.
        terminal: Terminal to format the lines for.
    """
    if config.get("decoder_only"):
        switches = [
            message("decoder-only"),
            message("2 query heads on 1 key head"),
            "RMSNorm",
            "SwiGLU",
            message("with padding mask") if config["padding"] else message("without padding mask"),
            message("tied output"),
        ]
    else:
        switches = [
            plural("{count} head", "{count} heads", config["num_heads"]),
            message("pre-norm") if config["norm_first"] else message("post-norm"),
            str(config["activation"]),
            message("with padding mask") if config["padding"] else message("without padding mask"),
            message("tied output") if config["tie_weights"] else message("untied output"),
            message("scaled embedding")
            if config["scale_embedding"]
            else message("unscaled embedding"),
        ]
    title = message("Twelve numbers, from token ids to logits")
    return [terminal.bold(title), *fold(", ".join(switches), terminal.width)]


def written_by(trace: Trace) -> tuple[str, Tensor]:
    """Return the axis of the sentences whose next words the run predicts, and the labels.

    Args:
        trace: The run, of the Transformer or of the decoder-only model.
    """
    return ("tgt", example.labels) if "memory" in trace else ("seq", example.following)


def outcome(trace: Trace) -> tuple[Tensor, str]:
    """Compute the probability of each word, and the loss.

    Args:
        trace: The run.

    Returns:
        Probabilities (batch, tgt or seq, vocab) and the loss as text.
    """
    logits, (_, labels) = trace["logits"].value, written_by(trace)
    loss = float(cross_entropy(logits, labels.to(logits.device)))
    return logits.softmax(-1), format_number(loss)


def _ids(trace: Trace, terminal: Terminal) -> list[str]:
    axis, _ = written_by(trace)
    source, target = (message("source ids"), example.src), (message("target ids"), example.tgt)
    sides = {"src": source, "tgt": target}
    if axis == "seq":
        sides = {"seq": (message("text ids"), example.src)}
    lines = []
    for side, (title, ids) in sides.items():
        sentences = (
            " ".join(f"{token} {word}" for token, word in zip(row, words, strict=True))
            for row, words in zip(ids.tolist(), example.words[side], strict=True)
        )
        lines += fold(f"  {title}  " + "   ".join(sentences), terminal.width)
    return lines


def _table(values: Tensor, axes: str, terminal: Terminal) -> list[str]:
    names = axes.split()
    nested = ("src", "tgt", "seq") if "batch" in names else ()
    labels = {axis: example.words[axis] for axis in (*nested, "vocab") if axis in names}
    text = format_tensor(values, axes, labels=labels, width=terminal.width - 4)
    limit = largest_magnitude(Table.of(values, axes))
    return [terminal.shade(f"    {line}", limit) for line in text.splitlines()[1:]]


def _ending(trace: Trace, terminal: Terminal) -> list[str]:
    probabilities, loss = outcome(trace)
    axis, labels = written_by(trace)
    predicted = []
    for batch, sentence in enumerate(probabilities.argmax(-1).tolist()):
        for position, token in enumerate(sentence):
            label = int(labels[batch, position])
            line = message(
                "batch {batch}, {axis} {position}: {word}  probability {share}, label {label}",
                batch=batch,
                axis=axis,
                position=position,
                word=f"{example.vocabulary[token]:<5}",
                share=format_number(float(probabilities[batch, position, token])),
                label=message("none: not graded") if label < 0 else example.vocabulary[label],
            )
            predicted += fold(f"    {line}", terminal.width)
    if axis == "tgt":
        line = message("loss (mean over the three labels) {loss}", loss=loss)
    else:
        line = message("loss (of the one label) {loss}", loss=loss)
    return [
        terminal.bold(message("probabilities (softmax of the logits)")),
        *_table(probabilities, f"batch {axis} vocab", terminal),
        "",
        terminal.bold(message("predicted words")),
        *predicted,
        "",
        *fold(line, terminal.width),
    ]
