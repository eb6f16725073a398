"""Training: loop, loss and schedule.

Step 13 | notebooks/13_training.ipynb | tests/unit/test_training.py
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from twelve._checkpoint import resume, save
from twelve._checks import (
    check_above_zero,
    check_between,
    check_positive,
    checked,
    described,
    is_real,
)

IGNORED = -100  # the label that torch's cross_entropy ignores by default


class Batch(NamedTuple):
    """Data of one training step: tgt is the decoder's input, labels its expected output."""

    src: Int[Tensor, "batch src"] | None  # None for a decoder-only model
    tgt: Int[Tensor, "batch tgt"]
    labels: Int[Tensor, "batch tgt"]
    src_mask: Bool[Tensor, "#batch #head #query #src"] | None = None
    tgt_mask: Bool[Tensor, "#batch #head #tgt #tgt"] | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Move every tensor to a device."""
        return Batch(*(None if part is None else part.to(device) for part in self))


@checked
def shift(
    target: Int[Tensor, "batch tgt"], *, start_id: int = 0, pad_id: int = 0
) -> tuple[Int[Tensor, "batch tgt"], Int[Tensor, "batch tgt"]]:
    """Make the decoder's input and its labels from the target sentences.

    Each position gets the previous word as its input and its own word as its label.

    Args:
        target: The sentences, without a start token, padded on the right.
        start_id: Id of the start token.
        pad_id: Id of the padding token, which is ignored as a label.

    Returns:
        tgt: start_id, then every word but the last.
        labels: every word, with IGNORED at padding.

    Raises:
        ValueError: If target does not contain integers with the axes (batch, tgt), or is empty.
    """
    check_positive("shift", target_len=target.size(1))
    start = torch.full_like(target[:, :1], start_id)
    tgt: Int[Tensor, "batch tgt"] = torch.cat([start, target[:, :-1]], dim=1)
    labels: Int[Tensor, "batch tgt"] = target.masked_fill(target == pad_id, IGNORED)
    return tgt, labels


@checked
def cross_entropy(
    logits: Float[Tensor, "batch tgt vocab"],
    labels: Int[Tensor, "batch tgt"],
    *,
    label_smoothing: float = 0.0,
    ignored: int = IGNORED,
) -> Float[Tensor, ""]:
    """Compute the mean negative log probability of the labels.

        loss = mean over the counted labels of −ln softmax(logits)[label]

    Args:
        logits: One score for each word in the vocabulary at each position.
        labels: Id of the correct word at each position.
        label_smoothing: Probability ε that is spread evenly over the vocabulary. The loss is then
            (1 − ε) times the above plus ε times the mean of −ln softmax(logits) over all words.
        ignored: Label that does not count towards the mean.

    Returns:
        A scalar: 0 if every label has probability 1, ln(vocab) for uniform probabilities.

    Raises:
        ValueError: If the shapes do not match, label_smoothing is outside [0, 1], a label is not an
            id, or all labels are ignored. The values of the labels are checked on the CPU only,
            because checking on CUDA would force a synchronization. If all labels are ignored on
            CUDA, the loss is NaN, as in torch.

    Source:
        Vaswani et al. (2017), section 5.4, for label smoothing, from Szegedy et al. (2016). Equal
        to torch.nn.functional.cross_entropy on flattened logits and labels.
    """
    _check_labels(labels, logits.size(-1), label_smoothing, ignored)
    counted: Bool[Tensor, "batch tgt"] = labels != ignored
    # An ignored label is not an id. Replace it by 0 for gather; its loss is not counted.
    words = labels.masked_fill(~counted, 0).unsqueeze(-1)

    log_probabilities: Float[Tensor, "batch tgt vocab"] = logits.log_softmax(-1)
    losses: Float[Tensor, "batch tgt"] = -log_probabilities.gather(-1, words).squeeze(-1)
    if label_smoothing > 0.0:
        over_all_words: Float[Tensor, "batch tgt"] = -log_probabilities.mean(-1)
        losses = (1.0 - label_smoothing) * losses + label_smoothing * over_all_words

    counted_losses: Float[Tensor, "batch tgt"] = losses.masked_fill(~counted, 0.0)
    loss: Float[Tensor, ""] = counted_losses.sum() / counted.sum()
    return loss


def warmup_then_linear(step: int, *, warmup: int, steps: int) -> float:
    """Compute the learning-rate factor at a step: linear warm-up, then linear decay.

        factor = min((step + 1) / warmup, (steps − step) / (steps − warmup), 1)

    Args:
        step: Index of the step, from 0.
        warmup: Number of steps over which the factor rises to 1; with 0 it starts at 1.
        steps: Number of steps. The factor would reach 0 one step after the last.

    Returns:
        The factor, above 0 and at most 1.

    Raises:
        ValueError: If warmup or step is not between 0 and steps − 1.

    Source:
        Warm-up as in Vaswani et al. (2017), section 5.3, equation 3. The decay of the paper is
        proportional to 1/√step, which never reaches 0.
    """
    check_between("warmup_then_linear", 0, steps - 1, "steps - 1", warmup=warmup, step=step)
    rise = (step + 1) / max(warmup, 1)
    fall = (steps - step) / (steps - warmup)
    return min(rise, fall, 1.0)


@torch.inference_mode(False)
@torch.enable_grad()
def train(
    model: nn.Module, batch: Callable[[int], Batch], *, steps: int, lr: float = 3e-3,
    betas: tuple[float, float] = (0.9, 0.98), warmup: int = 50, clip: float = 1.0,
    label_smoothing: float = 0.0, checkpoint: str | Path | None = None,
    save_every: int = 100, after_step: Callable[[int, float], None] | None = None,
) -> list[float]:  # fmt: skip
    """Train: forward, loss, backward, optimizer step.

    Args:
        model: Model to train, in place and on its device. The modes (train or eval) of its
            submodules are restored at the end.
        batch: Function that returns the batch of a step, counted from 0. A resumed run reproduces
            the original only if each step always gets the same batch.
        steps: Number of steps in the whole run, including those before it was resumed.
        lr: Maximum learning rate, reached after warm-up.
        betas: Adam's decay rates for the gradient and its square.
        warmup: Number of warm-up steps; see warmup_then_linear.
        clip: Maximum norm of the gradient over all weights; math.inf disables clipping.
        label_smoothing: See cross_entropy.
        checkpoint: File to resume from if it exists, and to write every `save_every` steps and at
            the end. The write is atomic, so a killed run never leaves a partial file. On one
            thread, a resumed run has bit for bit the losses and weights of an uninterrupted run,
            because torch's random state is restored too.
        save_every: Number of steps between checkpoints.
        after_step: Function called with the number of steps so far and the last loss.

    Returns:
        The loss of every step, including those before the run was resumed.

    Raises:
        ValueError: If a setting is out of range, no parameter is trained, batch does not return a
            Batch, or the checkpoint is damaged or belongs to another model or other settings.
        FloatingPointError: If a loss or a gradient is not finite. The weights are then those of
            the previous step, and the last checkpoint is unchanged.
        OSError: If a checkpoint cannot be written. The last checkpoint is unchanged.

    Source:
        Vaswani et al. (2017), section 5.3, with its β₂ = 0.98. Clipping: Pascanu et al. (2013).
    """
    settings = {
        "steps": steps, "lr": lr, "betas": tuple(betas), "warmup": warmup, "clip": clip,
        "label_smoothing": label_smoothing,
    }  # fmt: skip
    check_positive("train", steps=steps, save_every=save_every)
    check_above_zero("train", lr=lr)
    if not is_real(clip) or not clip > 0.0:
        raise ValueError(f"train: clip must be above 0, got {clip!r}")
    warmup_then_linear(0, warmup=warmup, steps=steps)
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError("train: model must have a parameter that requires a gradient, got none")
    optimizer = torch.optim.Adam(parameters, betas=betas)  # each step sets its learning rate
    device, modes = parameters[0].device, [(part, part.training) for part in model.modules()]
    # If the checkpoint is a symbolic link, replace its target, not the link.
    path = None if checkpoint is None else Path(checkpoint).resolve()
    losses = [] if path is None else resume(path, model, optimizer, settings)

    try:
        for step in range(len(losses), steps):
            data = batch(step)
            model.train()  # batch may have evaluated the model in eval mode
            if not isinstance(data, Batch):
                raise ValueError(f"train: batch must return a Batch, got {described(data)}")
            src, tgt, labels, src_mask, tgt_mask = data.to(device)
            if src is None:
                if src_mask is not None or tgt_mask is not None:
                    raise ValueError("train: a batch without src must have no mask")
                logits = model(tgt)
            else:
                logits = model(src, tgt, src_mask=src_mask, tgt_mask=tgt_mask)
            loss = cross_entropy(logits, labels, label_smoothing=label_smoothing)

            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(parameters, clip)
            rate = lr * warmup_then_linear(step, warmup=warmup, steps=steps)
            _check_finite(step, loss.item(), norm.item(), rate, labels)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

            losses.append(loss.item())
            if after_step is not None:
                after_step(step + 1, losses[-1])
            if path is not None and ((step + 1) % save_every == 0 or step + 1 == steps):
                save(path, model, optimizer, settings, losses)
    finally:
        for part, mode in modes:
            part.training = mode
    return losses


def _check_labels(labels: Tensor, vocab_size: int, label_smoothing: float, ignored: int) -> None:
    if not is_real(label_smoothing) or not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(
            f"cross_entropy: label_smoothing must be between 0 and 1, got {label_smoothing!r}"
        )
    if labels.device.type != "cpu" or torch.compiler.is_compiling():
        return
    counted = labels[labels != ignored]
    if not counted.numel():
        raise ValueError(
            f"cross_entropy: labels must contain an id, got only {ignored} (ignored) in shape "
            f"{tuple(labels.shape)}"
        )
    unknown = counted[(counted < 0) | (counted >= vocab_size)]
    if unknown.numel():
        limit = f"an id from 0 to {vocab_size - 1} or {ignored}"
        raise ValueError(f"cross_entropy: a label must be {limit}, got {int(unknown[0])}")


def _check_finite(step: int, loss: float, norm: float, rate: float, labels: Tensor) -> None:
    """Raise an error if an optimizer step would make the weights NaN or infinite."""
    if math.isfinite(loss) and math.isfinite(norm):
        return
    cause = f"The learning rate of {rate:.3g} may be too high: lower lr or raise warmup"
    if not (labels != IGNORED).any():
        cause = "All labels of this batch are ignored"
    raise FloatingPointError(
        f"train: loss and gradient must be finite, got a loss of {loss} and a gradient norm of "
        f"{norm} at step {step}. {cause}. The weights are unchanged"
    )
