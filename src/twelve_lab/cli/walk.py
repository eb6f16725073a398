"""The walk in words and numbers: what a terminal shows of a run of the example."""

from torch import Tensor
from torch.nn.functional import cross_entropy

from twelve_lab import example
from twelve_lab.cli.terminal import PLAIN, Terminal, fold
from twelve_lab.course import find_step
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.show import largest_magnitude
from twelve_lab.show.table import Table
from twelve_lab.trace.summary import axes_and_sizes
from twelve_lab.trace.trace import Trace

# Where the residual stream can be met in full on its way.
CHECKPOINTS = {
    "src_embedding.vectors": "Each source id is replaced by its row of the table: twelve numbers.",
    "src_input": "Each position adds its own pattern of sine and cosine.",
    "encoder.layers.0.self_attention_residual.added":
        "Each source word has looked at its sentence and added what it found.",
    "encoder.layers.0.feed_forward_residual.added": "Each has thought about it, alone.",
    "memory": "What the encoder hands over.",
    "tgt_input": "The target so far, embedded in the same way.",
    "decoder.layers.0.self_attention_residual.added": "Each target word has looked back.",
    "decoder.layers.0.cross_attention_residual.added": "Each has looked across, at the source.",
    "decoder.layers.0.feed_forward_residual.added": "Each has thought about it, alone.",
    "decoder_output": "What the decoder hands over.",
    "embedding.vectors": "Each id is replaced by its row of the table: twelve numbers.",
    "layers.0.self_attention_residual.added":
        "Each word has looked back at its sentence and added what it found.",
    "layers.0.feed_forward_residual.added": "Each has thought about it, alone.",
    "logits": "One score for each word of the vocabulary, at each position.",
}  # fmt: skip


def walk_text(
    trace: Trace,
    config: dict[str, object],
    terminal: Terminal = PLAIN,
    *,
    every_value: bool = False,
) -> str:
    """Tell a run of the example from ids to predicted words, tensor by tensor.

    Args:
        trace: The run.
        config: Its switches, for the heading.
        terminal: What the text has to fit.
        every_value: Whether every tensor shows its numbers, not only the checkpoints.
    """
    lines = [*heading(config, terminal), "", *_fold(_ids(written_by(trace)), terminal)]
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
    """Name the walk and the switches of the run.

    Args:
        config: The switches.
        terminal: What the lines have to fit.
    """
    if config.get("decoder_only"):
        switches = (
            "decoder-only, 2 query heads on 1 key head, RMSNorm, SwiGLU, "
            f"{'with' if config['padding'] else 'without'} padding mask, tied output"
        )
        return _headed(switches, terminal)
    heads = config["num_heads"]
    switches = (
        f"{heads} head{'s' if heads != 1 else ''}, "
        f"{'pre' if config['norm_first'] else 'post'}-norm, {config['activation']}, "
        f"{'with' if config['padding'] else 'without'} source padding mask, "
        f"{'tied' if config['tie_weights'] else 'untied'} output, "
        f"{'scaled' if config['scale_embedding'] else 'unscaled'} embedding"
    )
    return _headed(switches, terminal)


def _headed(switches: str, terminal: Terminal) -> list[str]:
    title = "Twelve numbers, from token ids to logits"
    return [terminal.bold(title), *fold(switches, terminal.width)]


def written_by(trace: Trace) -> tuple[str, Tensor]:
    """Say which sentences a run scores the next words of.

    Args:
        trace: The run, of the Transformer or of its decoder-only sister.

    Returns:
        The axis of their positions, which has words in the example, and the labels.
    """
    return ("tgt", example.labels) if "memory" in trace else ("seq", example.following)


def outcome(trace: Trace) -> tuple[Tensor, str]:
    """Say what comes of a run: the probability of each word, and the loss.

    Args:
        trace: The run.

    Returns:
        Probabilities (batch, tgt or seq, vocab) and a line with the loss.
    """
    logits, (axis, labels) = trace["logits"].value, written_by(trace)
    loss = float(cross_entropy(logits.flatten(0, 1), labels.flatten().to(logits.device)))
    over = "mean over the three labels" if axis == "tgt" else "of the one label"
    return logits.softmax(-1), f"loss ({over}) {format_number(loss, 6)}"


def _ids(written: tuple[str, Tensor]) -> list[str]:
    lines, sides = [], (("source", example.src, "src"), ("target", example.tgt, "tgt"))
    for name, ids, axis in sides if written[0] == "tgt" else (("text", example.src, "seq"),):
        words = example.words[axis]
        sentences = (
            " ".join(f"{token} {word}" for token, word in zip(row, line, strict=True))
            for row, line in zip(ids.tolist(), words, strict=True)
        )
        lines.append(f"  {name} ids  " + "   ".join(sentences))
    return lines


def _table(values: Tensor, axes: str, terminal: Terminal) -> list[str]:
    names = axes.split()
    nested = ("src", "tgt", "seq") if "batch" in names else ()
    labels = {axis: example.words[axis] for axis in (*nested, "vocab") if axis in names}
    text = format_tensor(values, axes, labels=labels, width=terminal.width - 4)
    limit = largest_magnitude(Table.of(values, axes))
    return [terminal.shade(f"    {line}", limit) for line in text.splitlines()[1:]]


def _fold(lines: list[str], terminal: Terminal) -> list[str]:
    return [part for line in lines for part in fold(line, terminal.width)]


def _ending(trace: Trace, terminal: Terminal) -> list[str]:
    probabilities, loss = outcome(trace)
    axis, labels = written_by(trace)
    words = []
    for batch, sentence in enumerate(probabilities.argmax(-1).tolist()):
        for position, token in enumerate(sentence):
            label = int(labels[batch, position])
            wanted = "ignored" if label < 0 else example.vocabulary[label]
            share = format_number(float(probabilities[batch, position, token]))
            words.append(
                f"    batch {batch}, {axis} {position}: {example.vocabulary[token]:<5}  "
                f"probability {share}, label {wanted}"
            )
    return [
        terminal.bold("probabilities (softmax of the logits)"),
        *_table(probabilities, f"batch {axis} vocab", terminal),
        "",
        terminal.bold("predicted words"),
        *_fold(words, terminal),
        "",
        *fold(loss, terminal.width),
    ]
