"""The walk in words and numbers: what a terminal shows of a run of the example."""

import torch

from twelve_lab import example
from twelve_lab.course import find_step
from twelve_lab.show.format import format_number, format_tensor
from twelve_lab.show.summary import axes_and_sizes
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
    "logits": "One score for each word of the vocabulary, at each position.",
}  # fmt: skip


def walk_text(trace: Trace, config: dict[str, object], *, every_value: bool = False) -> str:
    """Tell a run of the example from ids to predicted words.

    Args:
        trace: The run.
        config: Its switches, for the heading.
        every_value: Whether every tensor shows its numbers, not only the checkpoints.
    """
    lines = [_heading(config), "", _ids()]
    step = ""
    for name, entry in trace.items():
        if entry.step != step:
            step = entry.step
            lines.append(f"\n{step} {find_step(step).title}")
        lines.append(f"  {name}  ({axes_and_sizes(entry)})")
        if name in CHECKPOINTS:
            lines.append(f"    {CHECKPOINTS[name]}")
        if every_value or name in CHECKPOINTS:
            lines.append(_indented(entry.value, " ".join(entry.axes)))
    return "\n".join([*lines, "", _ending(trace)])


def _heading(config: dict[str, object]) -> str:
    heads = config["num_heads"]
    return (
        "Twelve numbers, from token ids to logits\n"
        f"{heads} head{'s' if heads != 1 else ''}, "
        f"{'pre' if config['norm_first'] else 'post'}-norm, {config['activation']}, "
        f"{'with' if config['padding'] else 'without'} source padding mask, "
        f"{'tied' if config['tie_weights'] else 'untied'} output, "
        f"{'scaled' if config['scale_embedding'] else 'unscaled'} embedding"
    )


def _ids() -> str:
    lines = []
    for name, ids, axis in (("source", example.src, "src"), ("target", example.tgt, "tgt")):
        words = example.words[axis]
        sentences = (
            " ".join(f"{token} {word}" for token, word in zip(row, line, strict=True))
            for row, line in zip(ids.tolist(), words, strict=True)
        )
        lines.append(f"  {name} ids  " + "   ".join(sentences))
    return "\n".join(lines)


def _indented(values: torch.Tensor, axes: str) -> str:
    text = format_tensor(values, axes, labels=_labels(axes))
    return "\n".join(f"    {line}" for line in text.splitlines()[1:])


def _labels(axes: str) -> dict[str, list]:
    names = axes.split()
    nested = ("src", "tgt") if "batch" in names else ()
    return {axis: example.words[axis] for axis in (*nested, "vocab") if axis in names}


def _ending(trace: Trace) -> str:
    logits = trace["logits"].value
    probabilities = logits.softmax(-1)
    best = probabilities.argmax(-1)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), example.labels.to(logits.device).flatten()
    )
    lines = ["probabilities (softmax of the logits)"]
    lines.append(_indented(probabilities, "batch tgt vocab"))
    lines.append("\npredicted words")
    for batch, sentence in enumerate(best.tolist()):
        for position, token in enumerate(sentence):
            label = int(example.labels[batch, position])
            wanted = "ignored" if label < 0 else example.vocabulary[label]
            share = format_number(float(probabilities[batch, position, token]))
            lines.append(
                f"    batch {batch}, tgt {position}: {example.vocabulary[token]:<5}  "
                f"probability {share}, label {wanted}"
            )
    lines.append(f"\nloss (mean over the three labels) {format_number(float(loss), 6)}")
    return "\n".join(lines)
